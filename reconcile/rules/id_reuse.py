"""One id of two ledgers: by key or headers, bookies hold another ledger than the record's; or they hold two histories.

    of a copy                                                   it is another ledger than the record's
    another master key                                          on any bookie
    a header with a proved digest of another type               on any bookie
    a header that no entry of a ledger closed there can have:   on bookies that the record does not name
      a LAC above the end; up to the end a larger length than
      the record's
    entries above the end                                       on as many bookies that the record does not name as
                                                                acknowledge one, and on two at least: one alone may be
                                                                left from before its place in the ensemble was taken.
                                                                Not where a member has a copy: re-replication took the
                                                                places of bookies that may be back. Nor on a bookie
                                                                that has such an entry with the header that members
                                                                have, two of them: a writer replaced it, and sent the
                                                                entry again

A recovery starts from the length of some member's last entry, and corrects it by each entry that it reads: one that
reads none leaves a larger length than the end has, or, where the last segment is empty, a smaller one or none.

That is what a store leaves that was formatted again and has given out low ids again, or that was restored to a state
from before its last ids. Bookies that hold the older ledger, and that the record does not name, may delete it.
"""

import hashlib
from collections.abc import Collection, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings import table
from reconcile.findings.categories import Category
from reconcile.findings.table import FindingRun, FindingStatement
from reconcile.rules.holds import HOLD_MARK
from reconcile.rules.sides import ABSENT, unite
from recovery.codecs import ledger_metadata
from recovery.infer.refusal import Refusal
from recovery.model import tables
from recovery.model.metadata import NO_ENTRY, LedgerMetadata

_DIGITS: Final = 12
_UNKNOWN: Final = ("which of the two ledgers is wanted under this id",)


_Header = tuple[int, int, int, str]
"""Entry, LAC, length, digest; empty: none agreed."""
_FEWEST: Final = 2
"""Bookies outside a record with entries above its end that show another ledger, where A is 1."""

HISTORIES: Final = (Refusal.TWO_KEYS, Refusal.LENGTHS_DIFFER, Refusal.DIGESTS_DIFFER)
"""Reasons for a hold that show two ledgers; others only allow for them."""


def findings(copies: pa.Table, stored: pa.Table, rows: pa.Table, run: FindingRun) -> pa.Table:
    """Return a finding for each id that two ledgers have.

    Args:
        copies: COPIES of a bucket range.
        stored: CATALOG_LEDGERS of the store.
        rows: RECONSTRUCTION.
        run: this one.
    """
    known = _in_store(copies, stored, run)
    several = rows.filter(pc.is_in(rows["reason"], pa.array([str(reason) for reason in HISTORIES])))
    if not several.num_rows:
        return known
    named, known_rows = unite([several, known]).rows
    several = several.take(pa.array(np.sort(named[(named != ABSENT) & (known_rows == ABSENT)])))
    keys: dict[tuple[int, int], dict[str, set[str]]] = {}
    keyed = copies.filter(pc.is_valid(copies["key"])).select(["scope", "ledger", "key", "bookie"])
    of_several = keyed.filter(pc.is_in(keyed["ledger"], several["ledger"].combine_chunks()))
    for copy in of_several.to_pylist():
        by_key = keys.setdefault((copy["scope"], copy["ledger"]), {})
        by_key.setdefault(copy["key"].hex()[:_DIGITS], set()).add(copy["bookie"])
    texts = []
    for row in several.select(["scope", "ledger"]).to_pylist():
        by_key = keys.get((row["scope"], row["ledger"]), {})
        texts.append("; ".join(f"key {key}… on {', '.join(sorted(names))}" for key, names in sorted(by_key.items())))
    evidence = [
        FindingStatement("bookies", "reason", several["reason"]),
        FindingStatement("bookies", "keys", pa.array(texts, pa.string())),
    ]
    holders = several["holders"].combine_chunks()
    made = table.make_ledger_findings(
        Category.ID_REUSE, several, evidence, run, subject="histories", bookies=holders, unknowns=_UNKNOWN
    )
    return pa.concat_tables([known, made])


def _in_store(copies: pa.Table, stored: pa.Table, run: FindingRun) -> pa.Table:
    """Return the findings of records that some bookie holds another ledger under the id of."""
    if not stored.num_rows:
        return tables.FINDINGS.empty_table()
    keys = list(tables.KEY_COLUMNS)
    seen = copies.filter(pc.is_valid(copies["key"])).group_by([*keys, "key", "bookie"]).aggregate([])
    strangers = _find_other_headers(copies, stored)
    # A ledger may have several keys: each is compared with the one record.
    record = stored.select([*keys, "password_hash"]).append_column("at", pa.array(np.arange(stored.num_rows)))
    other = seen.join(record, keys, join_type="inner")
    other = other.filter(pc.fill_null(pc.not_equal(other["key"], other["password_hash"]), fill_value=False))
    rows: dict[int, tuple[set[str], set[str]]] = {}
    for row in other.to_pylist():
        known = ledger_metadata.decode(stored["raw"][row["at"]].as_py())
        if any(key == HOLD_MARK for key, _ in known.custom):
            continue  # which has a password of its own
        # A data-integrity copy stores the password itself where its key belongs.
        if known.password is None or row["key"] != hashlib.sha256(known.password).digest():
            bookies, key_texts = rows.setdefault(row["at"], (set(), set()))
            bookies.add(row["bookie"])
            key_texts.add(row["key"].hex()[:_DIGITS])
    for place, headers in strangers.items():
        rows.setdefault(place, (set(), set()))[0].update(headers)
    places = sorted(rows)
    records = stored.take(pa.array(places, pa.int64()))
    segments = records["segments"].to_pylist()
    members = {place: {name for part in segments[n] for name in part["members"]} for n, place in enumerate(places)}
    outside = [", ".join(sorted(rows[place][0] - members[place])) or "none" for place in places]
    own = ["none" if row is None else row.hex()[:_DIGITS] for row in records["password_hash"].to_pylist()]
    statements = [
        FindingStatement("store", "key", pa.array([f"key {row}…" for row in own], pa.string())),
        FindingStatement("store", "state", records["state"]),
        FindingStatement("store", "created", records["created_at"]),
        FindingStatement(
            "bookies",
            "key",
            pa.array([", ".join(f"key {k}…" for k in sorted(rows[place][1])) or None for place in places], pa.string()),
        ),
        FindingStatement(
            "bookies",
            "entries that are not the record's",
            pa.array(["; ".join(sorted(strangers.get(place, {}).values())) or None for place in places], pa.string()),
        ),
        FindingStatement("bookies", "hold it, and are not in the record", pa.array(outside, pa.string())),
    ]
    bookies = pa.array([sorted(rows[place][0]) for place in places], pa.list_(pa.string()))
    return table.make_ledger_findings(
        Category.ID_REUSE, records, statements, run, subject="key", bookies=bookies, unknowns=_UNKNOWN
    )


def _find_other_headers(copies: pa.Table, stored: pa.Table) -> dict[int, dict[str, str]]:
    """Return the rows of the store with the bookies that have headers of another ledger, each with one of them."""
    names = ["scope", "ledger"]
    served = copies.select([*names, "bookie", "source"]).append_column("copy", pa.array(np.arange(copies.num_rows)))
    record = stored.select(names).append_column("at", pa.array(np.arange(stored.num_rows)))
    pairs = served.filter(pc.not_equal(served["source"], "log")).join(record, names, join_type="inner")
    if not pairs.num_rows:
        return {}
    heads = copies["headers"].take(pairs["copy"]).combine_chunks()
    counts = pc.fill_null(pc.list_value_length(heads), 0).to_numpy(zero_copy_only=False)
    pair = np.repeat(np.arange(pairs.num_rows), counts)
    entry, lac, length, digest = (
        pc.struct_field(heads.flatten(), name) for name in ("entry", "lac", "length", "digest")
    )
    claimed = stored.select(["state", "last_entry", "length", "digest", "custom"]).take(
        pairs["at"].take(pa.array(pair))
    )
    end, total = pc.subtract(entry, claimed["last_entry"]), pc.subtract(length, claimed["length"])
    is_closed = pc.equal(claimed["state"], "CLOSED")
    is_later = _fill(pc.and_(is_closed, pc.greater(lac, claimed["last_entry"])))
    is_longer = _fill(pc.and_(is_closed, pc.and_(pc.less_equal(end, 0), pc.greater(total, 0))))
    # Where a header of the end has the record's length, no recovery guessed that.
    at = pairs["at"].to_numpy()[pair]
    is_exact = np.isin(at, at[_fill(pc.and_(is_closed, pc.and_(pc.equal(end, 0), pc.equal(total, 0))))])
    is_other = _fill(
        pc.or_(pc.and_(pc.equal(end, 0), pc.not_equal(total, 0)), pc.and_(pc.greater(end, 0), pc.less(total, 0)))
    )
    is_sure = is_later | (is_exact & is_other)
    other_digest = _fill(pc.not_equal(digest, claimed["digest"]))
    flagged = np.flatnonzero(is_sure | is_longer | other_digest)
    places = pa.array(flagged)
    columns = [pairs[name].take(pa.array(pair[flagged])) for name in ("at", "bookie")]
    columns += [column.take(places) for column in (entry, lac, length, digest)]
    listed = list(zip(flagged.tolist(), *(column.to_pylist() for column in columns), strict=True))
    records = {row: ledger_metadata.decode(stored["raw"][row].as_py()) for row in {row for _, row, *_ in listed}}
    members = {row: {name for part in known.segments for name in part.members} for row, known in records.items()}
    # What a member shows, too, is the ledger's own: who sends ids out of order counts lengths in that order.
    own = {(row, *one) for place, row, name, *one in listed if name in members[row] and not other_digest[place]}
    headers: dict[int, dict[str, str]] = {}
    for place, row, bookie, *header in listed:
        known = records[row]
        is_possible = not is_sure[place] and (not _is_length_sure(known) or (row, *header) in own)
        is_own = bookie in members[row] or is_possible
        if bookie in headers.get(row, {}) or any(key == HOLD_MARK for key, _ in known.custom):
            continue
        if other_digest[place] or not is_own:
            words = "entry {} on {}: LAC {}, length {}, digest {}".format(header[0], bookie, *header[1:])
            headers.setdefault(row, {})[bookie] = words
    is_copied = np.zeros(pairs.num_rows, np.bool_)
    is_copied[pair[_fill(pc.greater_equal(lac, entry))]] = True
    above = np.flatnonzero(_fill(pc.and_(is_closed, pc.greater(end, 0))))
    columns = [pairs[name].take(pa.array(pair[above])) for name in ("at", "bookie")]
    columns += [column.take(pa.array(above)) for column in (entry, lac, length, pc.fill_null(digest, ""))]
    seen_above: dict[int, dict[str, set[_Header]]] = {}
    for row, bookie, *header in zip(*(column.to_pylist() for column in columns), strict=True):
        seen_above.setdefault(row, {}).setdefault(bookie, set()).add((header[0], header[1], header[2], header[3]))
    _add_beyond_end(headers, copies, stored, pairs, is_copied, seen_above)
    return headers


def _is_length_sure(record: LedgerMetadata) -> bool:
    """Whether no header up to the end has a larger length than a closed record's, which is not a recovery's guess."""
    return record.segments[-1].first <= (NO_ENTRY if record.last_entry is None else record.last_entry)


def _add_beyond_end(
    headers: dict[int, dict[str, str]],
    copies: pa.Table,
    stored: pa.Table,
    pairs: pa.Table,
    is_copied: npt.NDArray[np.bool_],
    seen_above: Mapping[int, Mapping[str, set[_Header]]],
) -> None:
    """Add the bookies that have entries above the end of closed records, where these cannot be left of the ledger.

    Args:
        headers: row of the store → bookie → words; those that are there stay.
        copies: COPIES.
        stored: CATALOG_LEDGERS.
        pairs: copy and at: rows of both that belong to one ledger.
        is_copied: which of these have a header that re-replication made.
        seen_above: row of the store → bookie → headers of entries above its end.
    """
    last = copies["last"].take(pairs["copy"])
    claimed = stored.select(["state", "last_entry"]).take(pairs["at"])
    is_above = pc.and_(pc.equal(claimed["state"], "CLOSED"), pc.greater(last, claimed["last_entry"]))
    above: dict[int, dict[str, int]] = {}
    for place in np.flatnonzero(_fill(is_above)).tolist():
        ends = above.setdefault(pairs["at"][place].as_py(), {})
        bookie = pairs["bookie"][place].as_py()
        ends[bookie] = max(ends.get(bookie, -1), last[place].as_py())
    copied: dict[int, set[str]] = {}
    is_made = is_copied & np.isin(pairs["at"].to_numpy(), np.fromiter(above, np.int64, len(above)))
    made = pairs.filter(pa.array(is_made))
    for row, bookie in zip(*(made[name].to_pylist() for name in ("at", "bookie")), strict=True):
        copied.setdefault(row, set()).add(bookie)
    for row, ends in above.items():
        known = ledger_metadata.decode(stored["raw"][row].as_py())
        named = {member for segment in known.segments for member in segment.members}
        strays = _leave_out_replaced(ends.keys() - named, named, seen_above.get(row, {}))
        if len(strays) >= max(known.ack_quorum, _FEWEST) and named.isdisjoint(copied.get(row, ())):
            for bookie in strays:
                headers.setdefault(row, {}).setdefault(bookie, f"entries up to {ends[bookie]} on {bookie}")


def _leave_out_replaced(strays: set[str], members: Collection[str], headers: Mapping[str, set[_Header]]) -> list[str]:
    """Return bookies outside of a record that no writer replaced: members lack their entries above the end.

    One member may be one of the other ledger's.
    """
    shown = {bookie: headers[bookie] for bookie in members if bookie in headers}
    same = {stray for stray in strays if any(headers.get(stray, set()) & own for own in shown.values())}
    of_same = set[_Header]().union(*(headers[stray] for stray in same))
    is_sent_again = sum(not own.isdisjoint(of_same) for own in shown.values()) >= _FEWEST
    return sorted(strays - same if is_sent_again else strays)


def _fill(mask: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    known: npt.NDArray[np.bool_] = pc.fill_null(mask, fill_value=False).to_numpy(zero_copy_only=False)
    return known


def find_strays(copies: pa.Table, stored: pa.Table, findings: pa.Table) -> npt.NDArray[np.int64]:
    """Return the rows of the store with an id of two ledgers, held by bookies that the record does not name.

    Their over-replicated check deletes these copies, once the record is closed.

    Args:
        copies: COPIES of a bucket range.
        stored: CATALOG_LEDGERS of the store.
        findings: of the range; only ID_REUSE is read.
    """
    reused = findings.filter(pc.equal(findings["category"], str(Category.ID_REUSE)))
    if not reused.num_rows or not stored.num_rows:
        return np.zeros(0, np.int64)
    names = ["scope", "ledger"]
    record = stored.select(names).append_column("at", pa.array(np.arange(stored.num_rows)))
    record = record.join(reused.select(names), names, join_type="left semi")
    own = copies.select([*names, "bookie", "source", "entries"])
    own = own.filter(pc.and_(pc.not_equal(own["source"], "log"), pc.greater(own["entries"], 0)))
    holders: dict[int, set[str]] = {}
    for row in own.join(record, names, join_type="inner").select(["at", "bookie"]).to_pylist():
        holders.setdefault(row["at"], set()).add(row["bookie"])
    segments = stored["segments"].take(pa.array(sorted(holders), pa.int64())).to_pylist()
    members = [{name for segment in listed or () for name in segment["members"]} for listed in segments]
    rows = [row for row, named in zip(sorted(holders), members, strict=True) if holders[row] - named]
    return np.array(rows, np.int64)
