"""Entries of closed ledgers read from the bookies that their records name, copy after copy, until a digest agrees.

    verdict        when
    good           the entry has these ids, and the digest that its record asks for agrees
    unproven       it has these ids, and neither record nor bytes say by which digest it could be checked
    damaged        it has these ids, and its digest does not agree
    absent         the bookie says that it has none; or what is at its place is another entry
    unanswered     the bookie did not answer

The first good copy is taken, whichever bookie has it; what was wrong with the copies before it is noted. Which bookie
is asked first differs from ledger to ledger, so that all bookies give about as much: of a ledger that each member has
whole it is the same bookie for all entries, so that it reads its disk in order.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recovery.codecs import entry, ledger_metadata
from recovery.errors import FormatError
from recovery.model.ids import LedgerId, buckets, mix
from recovery.model.metadata import Digest
from recovery.model.tables import UNUSED_COPIES

Ints = npt.NDArray[np.int64]

COLUMNS: Final = ("bucket", "scope", "ledger", "raw", "last_entry", "write_quorum", "segments")
"""Of CATALOG_LEDGERS, what is needed to read a ledger."""


class CopyState(IntEnum):
    """What a copy is; see the module's table. Of two answers for one copy the better one counts."""

    UNKNOWN = 0
    UNANSWERED = 1
    ABSENT = 2
    DAMAGED = 3
    UNPROVEN = 4
    GOOD = 5


class EntriesQuestion(NamedTuple):
    """Entries that one bookie is asked for; `place` is what the answer to each comes back with."""

    bookie: str
    place: Ints
    ledger: Sequence[LedgerId]
    """Of each entry."""
    entry: Ints


Take = Callable[[int, bytes | None, str], None]
"""Takes (place, record, what was said): no bytes, the bookie has no such entry; None, nothing is known of it."""


class AskableBookies(Protocol):
    """Bookies that can be asked for entries: running ones, or their disks."""

    def ask(self, questions: Sequence[EntriesQuestion], take: Take) -> None:
        """Ask each bookie, and hand on what comes of every entry, once at least."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ClosedLedgers:
    """Closed ledgers, and where each of their entries should be.

    Attributes:
        ids: of them.
        digests: that their entries have; None: the record does not say.
        passwords: of them.
        write: write quorums.
        shift: a number of each that its first bookie is chosen by.
        segment: of each segment, its ledger, its first entry, how many members it has, and where these begin.
        members: places in `names`.
        names: of bookies, as records have them.
    """

    ids: list[LedgerId]
    digests: list[Digest | None]
    passwords: list[bytes]
    write: Ints
    shift: Ints
    segment: tuple[Ints, Ints, Ints, Ints]
    members: Ints
    names: list[str]

    def find_members(self, row: Ints, number: Ints, attempt: int) -> Ints:
        """Return which bookie of the write set of each entry is asked at an attempt, as places in `names`."""
        of_ledger, first, size, begin = self.segment
        # An entry before a record's first segment is asked of that one's bookies.
        at = np.maximum(_find_last(of_ledger, first, row, number), np.searchsorted(of_ledger, row))
        width, write, shift = size[at], np.minimum(self.write[row], size[at]), self.shift[row]
        step = (shift + attempt) % write
        position = np.where(write == width, step, (number + step) % width)
        chosen: Ints = self.members[begin[at] + position]
        return chosen


def _find_last(of_ledger: Ints, first: Ints, row: Ints, number: Ints) -> Ints:
    """Return the last segment that is not behind each (ledger, entry), of keys that ascend on both sides."""
    keys = np.concatenate([of_ledger, row])
    entries = np.concatenate([first, number])
    side = np.concatenate([np.zeros(len(first), np.int64), np.ones(len(row), np.int64)])
    order = np.lexsort((side, entries, keys))
    count = np.cumsum(side[order] == 0) - 1
    chosen: Ints = count[np.argsort(order, kind="stable")][len(first) :]
    return chosen


def lay_out(rows: pa.Table) -> ClosedLedgers:
    """Return ledgers as they are read.

    Args:
        rows: `COLUMNS` of closed ledgers whose records can be read.
    """
    records = [ledger_metadata.decode(raw) for raw in rows["raw"].to_pylist()]
    scope, ledger = rows["scope"].to_numpy(), rows["ledger"].to_numpy()
    segments = rows["segments"].combine_chunks()
    members = segments.flatten().field("members")
    size = pc.list_value_length(members).to_numpy(zero_copy_only=False).astype(np.int64)
    coded = members.flatten().dictionary_encode()
    segment = (
        pc.list_parent_indices(segments).to_numpy(zero_copy_only=False).astype(np.int64),
        segments.flatten().field("first").to_numpy(zero_copy_only=False).astype(np.int64),
        size,
        np.cumsum(size) - size,
    )
    return ClosedLedgers(
        [LedgerId(*ids) for ids in zip(scope.tolist(), ledger.tolist(), strict=True)],
        [record.digest for record in records],
        [record.password or b"" for record in records],
        np.maximum(rows["write_quorum"].to_numpy().astype(np.int64), 1),
        (mix(scope, ledger) >> np.uint64(16)).astype(np.int64) & 0xFFFF,
        segment,
        coded.indices.to_numpy(zero_copy_only=False).astype(np.int64),
        coded.dictionary.to_pylist(),
    )


@dataclass(slots=True)
class UnusedCopies:
    """Copies that were not taken, gathered by ledger, bookie and problem."""

    _parts: list[tuple[Ints, Ints, Ints, Ints, Ints]] = field(default_factory=list)
    _names: dict[str, int] = field(default_factory=dict)
    _details: dict[tuple[int, int], str] = field(default_factory=dict)

    def add(self, ledgers: ClosedLedgers, row: Ints, number: Ints, member: Ints, kind: Ints) -> None:
        """Note copies of entries, each with the bookie that was asked and what came of it."""
        codes = np.array([self._names.setdefault(name, len(self._names)) for name in ledgers.names], np.int64)
        ids = np.array([(item.scope, item.ledger) for item in ledgers.ids], np.int64).reshape(-1, 2)
        self._parts.append((ids[row, 0], ids[row, 1], codes[member], kind, number))

    def explain(self, bookie: str, kind: CopyState, said: str) -> None:
        """Note the first thing that a bookie said in place of entries."""
        code = self._names.setdefault(bookie, len(self._names))
        self._details.setdefault((code, int(kind)), said)

    def make_table(self) -> pa.Table:
        """Return UNUSED_COPIES, in the order of the ledgers."""
        if not self._parts:
            return UNUSED_COPIES.empty_table()
        scope, ledger, code, kind, number = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        keys = pa.table({"scope": scope, "ledger": ledger, "code": code, "kind": kind, "number": number})
        rows = keys.group_by(["scope", "ledger", "code", "kind"]).aggregate(
            [("number", "min"), ("number", "max"), ("number", "count")]
        )
        names = list(self._names)
        pairs = list(zip(rows["code"].to_pylist(), rows["kind"].to_pylist(), strict=True))
        columns = {
            "bucket": buckets(rows["scope"].to_numpy(), rows["ledger"].to_numpy()),
            "scope": rows["scope"],
            "ledger": rows["ledger"],
            "bookie": pa.array([names[code] for code, _ in pairs], pa.string()),
            "first": rows["number_min"],
            "last": rows["number_max"],
            "entries": rows["number_count"],
            "problem": pa.array([CopyState(kind).name.lower() for _, kind in pairs], pa.string()),
            "detail": pa.array([self._details.get(pair) for pair in pairs], pa.string()),
        }
        table = pa.table([columns[name] for name in UNUSED_COPIES.names], schema=UNUSED_COPIES)
        return table.sort_by([(name, "ascending") for name in ("bucket", "scope", "ledger", "bookie", "problem")])


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """Entries that were asked for.

    Attributes:
        records: in their order, as the bookie that gave it has each; None: no copy was good.
        worst: of those without a record, what was in the way: a copy that was not answered for comes first.
    """

    records: list[bytes | None]
    worst: Mapping[int, CopyState]


_BLAME: Final = (CopyState.UNANSWERED, CopyState.UNPROVEN, CopyState.DAMAGED, CopyState.ABSENT)


def read_batch(
    ledgers: ClosedLedgers, row: Ints, number: Ints, bookies: AskableBookies, problems: UnusedCopies
) -> ReadBatch:
    """Read entries, of each the first copy that is good.

    Args:
        ledgers: whose.
        row: of each entry, the place of its ledger.
        number: its id.
        bookies: that are asked.
        problems: gets what was not good.
    """
    count = len(row)
    records: list[bytes | None] = [None] * count
    kinds = bytearray(count)
    rows, numbers = row.tolist(), number.tolist()
    seen = np.zeros(count, np.int64)
    facts = list(zip(ledgers.ids, ledgers.digests, ledgers.passwords, strict=True))
    asked = [""]
    said_of: dict[int, str] = {}

    def take(place: int, record: bytes | None, said: str) -> None:
        if record:
            ledger, digest, password = facts[rows[place]]
            kind = judge(record, ledger, digest, password, numbers[place])
            if kind is CopyState.GOOD:
                records[place] = record
        else:
            kind = CopyState.UNANSWERED if record is None else CopyState.ABSENT
            if record is None:
                said_of.setdefault(place, said)
        kinds[place] = max(kinds[place], kind)

    left = np.arange(count)
    for attempt in range(int(ledgers.write[row].max(initial=0))):
        left = left[attempt < ledgers.write[row[left]]]
        if not len(left):
            break
        member = ledgers.find_members(row[left], number[left], attempt)
        order = np.argsort(member, kind="stable")
        edges = np.flatnonzero(np.diff(member[order])) + 1
        questions = []
        for part in np.split(order, edges):
            places = left[part]
            asked[0] = ledgers.names[int(member[part[0]])]
            questions.append(
                EntriesQuestion(asked[0], places, [ledgers.ids[n] for n in row[places].tolist()], number[places])
            )
        bookies.ask(questions, take)
        kind = np.frombuffer(kinds, np.uint8)[left].astype(np.int64)
        bad = kind != CopyState.GOOD
        if bad.any():
            for place, name in zip(left[bad].tolist(), member[bad].tolist(), strict=True):
                if place in said_of:
                    problems.explain(ledgers.names[name], CopyState.UNANSWERED, said_of.pop(place))
            problems.add(ledgers, row[left[bad]], number[left[bad]], member[bad], kind[bad])
            seen[left[bad]] |= 1 << kind[bad]
        left = left[bad]
        for place in left.tolist():
            kinds[place] = CopyState.UNKNOWN
    missing = np.flatnonzero(np.array([record is None for record in records], np.bool_)) if count else left
    worst = {
        place: next((kind for kind in _BLAME if seen[place] >> kind & 1), CopyState.ABSENT)
        for place in missing.tolist()
    }
    return ReadBatch(records, worst)


def judge(record: bytes, ledger: LedgerId, digest: Digest | None, password: bytes, number: int) -> CopyState:
    """Return what the bytes are that a bookie gave for an entry."""
    if not entry.is_of(record, ledger, number):
        return CopyState.ABSENT
    if digest is None:
        return CopyState.UNPROVEN if entry.find_digest(record) is None else CopyState.GOOD
    if not entry.digest_agrees(record, digest, password):
        return CopyState.DAMAGED
    if digest is Digest.DUMMY:
        try:
            entry.decode_header(record)
        except FormatError:
            return CopyState.DAMAGED
    return CopyState.GOOD
