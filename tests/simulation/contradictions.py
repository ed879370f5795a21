"""What in an inventory proves that a record or a reference is not of the ledger that bookies hold.

Written from the protocol, on rows of COPIES as they are: nothing of `recovery.infer` is used, which is judged by it.

    key      a bookie that serves entries has another master key
    digest   an entry's digest verified as another type
    LAC      an entry above the end was acknowledged
    length   an entry up to the end has a greater running length than is claimed, or the last one that anybody has a
             smaller one; not where it is 0 and the last segment empty: so a recovery leaves it that no member answered
    end      every bookie was seen whole, those that are named serve many older ledgers, so were not wiped since,
             and none has an entry so late
    writers  the same, whoever was seen, where bookies wrote an entry that no member of its write set has
    stripes  two bookies or more repeat a pattern that another E or W gives, and none repeats the claimed one
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from recovery.codecs.entry import master_key
from recovery.model.metadata import LedgerMetadata, LedgerState, Segment
from tests.simulation.evidence import Reference

Row = Mapping[str, Any]
_REPEATS: Final = 3
"""Runs that make a pattern."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What somebody says of a ledger; None: nothing.

    Attributes:
        is_uncounted: the length may be that of a recovery which no member of the last, empty segment answered.
    """

    end: int | None = None
    length: int | None = None
    digest: str | None = None
    key: bytes | None = None
    shape: tuple[int, int] | None = None
    segments: tuple[Segment, ...] = ()
    is_uncounted: bool = False

    def value(self, name: str) -> int | str | None:
        """Return what is claimed of a field."""
        ensemble, write = self.shape or (None, None)
        fields = {"ensemble_size": ensemble, "write_quorum": write, "last_entry": self.end, "length": self.length}
        return self.digest if name == "digest" else fields[name]

    @classmethod
    def of_record(cls, record: LedgerMetadata) -> "Claim":
        """Return what a record says."""
        is_closed = record.state is LedgerState.CLOSED
        return cls(
            record.last_entry if is_closed else None,
            record.length if is_closed else None,
            None if record.digest is None else str(record.digest),
            None if record.password is None else hashlib.sha256(master_key(record.password)).digest(),
            (record.ensemble_size, record.write_quorum),
            record.segments,
            is_closed and not record.length and record.segments[-1].first == (record.last_entry or 0) + 1,
        )

    @classmethod
    def of_reference(cls, reference: Reference) -> "Claim":
        """Return what a reference says."""
        return cls(reference.last_entry, reference.length)


def contradictions(claim: Claim, rows: Sequence[Row], *, is_all_seen: bool) -> Iterator[str]:
    """Yield what speaks against a claim.

    Args:
        claim: of one ledger.
        rows: of COPIES, of bookies that serve the ledger.
        is_all_seen: every bookie was scanned completely, and none was ever wiped.
    """
    keys = {row["bookie"]: row["key"] for row in rows if row["key_kind"] == "set"}
    if claim.key is not None and keys and claim.key not in keys.values():
        yield f"another key on {sorted(keys)}"
    heads = [head for row in rows for head in row["headers"]]
    if claim.digest is not None and (types := {head["digest"] for head in heads} - {None, claim.digest}):
        yield f"digest {sorted(types)} verified"
    if claim.end is not None:
        yield from _of_end(
            claim.end, None if claim.is_uncounted else claim.length, rows, heads, is_all_seen=is_all_seen
        )
    if claim.shape is not None:
        yield from _of_shape(claim.shape, rows)
    if claim.shape is not None and claim.segments and claim.end is not None:
        yield from _of_writers(claim.end, claim.shape, claim.segments, rows)


def _of_end(
    end: int, length: int | None, rows: Sequence[Row], heads: Sequence[Row], *, is_all_seen: bool
) -> Iterator[str]:
    explicit = [row["explicit_lac"] for row in rows if row["explicit_lac"] is not None]
    lac = max([head["lac"] for head in heads] + explicit, default=-1)
    if lac > end:
        yield f"a LAC of {lac}"
    last = max((row["last"] for row in rows if row["last"] is not None), default=-1)
    if is_all_seen and end > last:
        yield f"nobody has an entry above {last}"
    if length is None:
        return
    for head in heads:
        entry, running = head["entry"], head["length"]
        # A close with adds that were not synced counts them, although they are above its end.
        if (entry <= end and running > length) or (entry == end == last and running < length):
            yield f"length {running} at {entry}"


def _of_shape(shape: tuple[int, int], rows: Sequence[Row]) -> Iterator[str]:
    shown: dict[tuple[int, int], set[str]] = {}
    for row in rows:
        for group in row["groups"]:
            runs = (group["last"] - group["first"]) // group["period"] + 1 if group["period"] else 1
            if runs >= _REPEATS and group["size"] < group["period"]:
                shown.setdefault((group["period"], group["size"]), set()).add(row["bookie"])
    if len(shown) == 1 and shape not in shown:
        pattern, bookies = next(iter(shown.items()))
        if len(bookies) > 1:
            yield f"{sorted(bookies)} repeat {pattern[1]} of {pattern[0]}"


def _of_writers(end: int, shape: tuple[int, int], segments: Sequence[Segment], rows: Sequence[Row]) -> Iterator[str]:
    last = max((row["last"] for row in rows if row["last"] is not None), default=-1)
    if last >= end:
        return
    named = {name for segment in segments for name in segment.members}
    holders: dict[int, set[str]] = {}
    written: set[int] = set()
    for row in rows:
        # Who re-replicates reads what is closed: its LAC is not below the entry.
        is_copied = any(head["lac"] >= head["entry"] for head in row["headers"])
        for group in row["groups"]:
            for start in range(group["first"], group["last"] + 1, group["period"] or group["last"] + 1):
                for entry in range(start, start + group["size"]):
                    holders.setdefault(entry, set()).add(row["bookie"])
                    if not is_copied or row["bookie"] in named:
                        written.add(entry)
    for entry in sorted(written):
        members = next(segment.members for segment in reversed(segments) if segment.first <= entry)
        if not holders[entry] & {members[(entry + i) % shape[0]] for i in range(shape[1])}:
            yield f"nobody has an entry above {last}, and {sorted(holders[entry])} have {entry}"
            return
