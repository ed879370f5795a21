"""What an earlier catalog had of each ledger, against what bookies show now.

    the earlier record              what becomes of the ledger
    closed, and all is readable     the record, byte for byte: a closed ledger's end never changes
    closed, its bookies moved       the record with the segments that bookies show: re-replicated since
    not closed                      closed where bookies end; quorums, password, custom metadata of the record
    contradicted by bytes           held, unless that is a loss (`contradictions`): two ledgers may be under one id
    of what no bookie has           itself if it is closed; held by its members if it is not

What is contradicted is said, whatever becomes of the ledger. Whole batches are compared; only what differs is looked
at ledger by ledger.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recovery.codecs import ledger_metadata
from recovery.infer.copies import Ints, Mask
from recovery.infer.facts import Facts
from recovery.infer.refusal import Refusal
from recovery.infer.search import MAX_RUNS
from recovery.infer.segment_cases import NOBODY, Cases, Copies, Problem, TriedShape
from recovery.infer.segment_costs import find_cheapest
from recovery.infer.snapshot_contradictions import (
    Contradiction,
    SnapshotDoubts,
    find_contradictions,
    find_end_above_all,
    read_end,
)
from recovery.infer.solve import LaidCopies, Solution, solve_problems
from recovery.model import tables
from recovery.model.metadata import NO_ENTRY, LedgerMetadata, Segment, State

KEPT: Final = frozenset(
    {
        Refusal.ID_OUT_OF_RANGE,
        Refusal.CONTRADICTION,
        Refusal.TWO_KEYS,
        Refusal.TWO_INCARNATIONS,
        Refusal.LENGTHS_DIFFER,
        Refusal.DIGESTS_DIFFER,
        Refusal.LIMBO,
        Refusal.DELETED_SOMEWHERE,
        Refusal.LOGS_OR_JOURNALS_ONLY,
    }
)
"""Reasons that an earlier record does not take away."""

_GRADED: Final = tuple(name for name in tables.GRADED if name != "password")
_READS_AS: Final = "as the earlier record had it: entries that moved since could not be read"

Row = dict[str, Any]


def apply_snapshot(rows: pa.Table, known: Facts, earlier: pa.Table, unseen: SnapshotDoubts) -> pa.Table:
    """Let earlier records supply what bookies do not show, and bookies' bytes check what the records say.

    Args:
        rows: RECONSTRUCTION of the ledgers of `known`, in their order.
        known: what bookies show.
        earlier: CATALOG_LEDGERS, each ledger at most once; no holds.
        unseen: what may be hidden or lost, and which ends are proved.

    Returns:
        RECONSTRUCTION; `raw` where an earlier record is the base, `contradictions` where one is contradicted.
    """
    if not known.count:
        return rows
    mine, theirs = _matched(known, earlier)
    if not len(mine):
        return rows
    usable = pc.and_(pc.is_null(earlier["error"]), pc.is_valid(earlier["ensemble_size"])).to_numpy()
    mine, theirs = mine[usable[theirs]], theirs[usable[theirs]]
    ours, before = rows.take(pa.array(mine)), earlier.take(pa.array(theirs))
    agrees = _same(ours, before) & pc.equal(before["state"], str(State.CLOSED)).to_numpy()
    for name in ("last_entry", "length"):
        agrees &= pc.fill_null(pc.equal(ours[name], before[name]), fill_value=False).to_numpy()
    agrees &= ~_differs(ours["key"], before["password_hash"]) & ~_differs(ours["digest"], before["digest"])
    taken = _as_it_was(ours.filter(pa.array(agrees)), before.filter(pa.array(agrees)))
    rest = np.flatnonzero(~agrees)
    changed = [
        _decided(known, int(mine[at]), row, record, unseen)
        for at, row, record in zip(
            rest.tolist(), ours.take(pa.array(rest)).to_pylist(), before.take(pa.array(rest)).to_pylist(), strict=True
        )
    ]
    untouched = np.setdiff1d(np.arange(rows.num_rows), mine)
    both = pa.concat_tables(
        [rows.take(pa.array(untouched)), taken, pa.Table.from_pylist(changed, schema=tables.RECONSTRUCTION)]
    )
    order = np.argsort(np.concatenate([untouched, mine[agrees], mine[rest]]))
    return both.take(pa.array(order))


def restore_as_recorded(records: pa.Table) -> pa.Table:
    """Return RECONSTRUCTION of ledgers that are as their records say, of whom no bookie that was looked at has any.

    Args:
        records: CATALOG_LEDGERS of closed ledgers.
    """
    count = records.num_rows
    ends = pc.max_element_wise(records["last_entry"], NO_ENTRY).to_numpy().astype(np.int64)
    missing = (ends + 1) * records["write_quorum"].to_numpy().astype(np.int64)
    unproved = pa.array(np.where(ends < 0, "clean", "undecided"), pa.string())
    blank = _unseen(records, "restored", {"class": unproved, "missing": pa.array(missing)})
    return _as_it_was(blank, records) if count else blank


def hold_by_members(records: pa.Table, looked_at: Sequence[str]) -> pa.Table:
    """Return RECONSTRUCTION of ledgers that are not closed, and that bookies may have which were not looked at.

    Where they end nobody knows, and whoever opens one closes it where an answer is missing: each is held by those of
    its members that may have it. Ledgers without such a member are left out.

    Args:
        records: CATALOG_LEDGERS of ledgers that are not closed.
        looked_at: bookies that were, completely.
    """
    seen = set(looked_at)
    holders = [
        sorted({name for segment in segments for name in segment["members"]} - seen)
        for segments in records["segments"].to_pylist()
    ]
    kind = tables.RECONSTRUCTION.field("holders").type
    may_have = pa.array([bool(names) for names in holders], pa.bool_())
    reason = pa.array([str(Refusal.SOURCE_INCOMPLETE)] * records.num_rows, pa.string())
    return _unseen(records, "held", {"holders": pa.array(holders, kind), "reason": reason}).filter(may_have)


def _unseen(records: pa.Table, outcome: str, others: Mapping[str, pa.Array]) -> pa.Table:
    """Return RECONSTRUCTION of ledgers of which bookies show nothing; other columns as given."""
    count = records.num_rows
    grades = tables.RECONSTRUCTION.field("grades").type
    unknown = pa.StructArray.from_arrays(
        [pa.array(["unknown"] * count, pa.string())] * len(grades), fields=list(grades)
    )
    given = {
        **{name: records[name] for name in tables.KEY_COLUMNS},
        "class": pa.array(["undecided"] * count, pa.string()),
        "outcome": pa.array([outcome] * count, pa.string()),
        "key": records["password_hash"],
        "grades": unknown,
        "missing": pa.array(np.zeros(count, np.int64)),
        "extra": pa.array(np.zeros(count, np.int64)),
        "holders": pa.array([[]] * count, tables.RECONSTRUCTION.field("holders").type),
        "alternatives": pa.array([[]] * count, tables.RECONSTRUCTION.field("alternatives").type),
        **others,
    }
    columns = [given[f.name] if f.name in given else pa.nulls(count, f.type) for f in tables.RECONSTRUCTION]
    return pa.table(columns, schema=tables.RECONSTRUCTION)


def _matched(known: Facts, earlier: pa.Table) -> tuple[Ints, Ints]:
    """Return the numbers of ledgers that both have, and their rows in the catalog."""
    scope, ledger = (earlier[name].to_numpy() for name in ("scope", "ledger"))
    pairs = np.stack([np.append(known.scope, scope), np.append(known.ledger, ledger)], axis=1)
    number = np.unique(pairs, axis=0, return_inverse=True)[1].ravel()
    at = np.full(int(number.max(initial=-1)) + 1, -1)
    at[number[known.count :]] = np.arange(len(scope))
    found = at[number[: known.count]]
    mine = np.flatnonzero(found >= 0)
    return mine, found[mine]


def _differs(ours: pa.ChunkedArray, before: pa.ChunkedArray) -> Mask:
    """Say where both sides know something, and not the same."""
    other: Mask = pc.fill_null(pc.not_equal(ours, before), fill_value=False).to_numpy()
    return other


def _same(ours: pa.Table, before: pa.Table) -> Mask:
    """Say which ledgers have the same segments on both sides, as far as a reader can tell: with W = E in any order."""
    alike = [
        pc.fill_null(pc.equal(ours[name], before[name]), fill_value=False) for name in ("ensemble_size", "write_quorum")
    ]
    counts = [pc.fill_null(pc.list_value_length(side["segments"]), 0).to_numpy() for side in (ours, before)]
    same: Mask = pc.and_(*alike).to_numpy() & (counts[0] == counts[1]) & (counts[0] > 0)
    some = np.flatnonzero(same)
    size = ours["ensemble_size"].take(pa.array(some)).to_numpy().astype(np.int64)
    plain = size == ours["write_quorum"].take(pa.array(some)).to_numpy()
    of = np.repeat(np.arange(len(some)), counts[0][some])
    here, there = (side["segments"].take(pa.array(some)).combine_chunks().flatten() for side in (ours, before))
    low, high, start, width = (
        column.to_numpy().astype(np.int64)
        for column in (here.field(1), here.field(0), there.field(0), pc.list_value_length(there.field(1)))
    )
    fits = (low <= start) & (start <= high)
    # Members are laid side by side; where the widths differ the ledger is out anyway.
    cells = [np.repeat(np.arange(len(of)), size[of]), np.repeat(np.arange(len(of)), width)]
    members = [here.field(2).flatten(), there.field(1).flatten()]
    names = pc.unique(pa.chunked_array([column.cast(pa.string()) for column in members], pa.string()))
    folded = []
    for segment, column in zip(cells, members, strict=True):
        code = pc.index_in(column, value_set=names).to_numpy().astype(np.int64)
        order = np.lexsort((np.where(plain[of][segment], code, np.arange(len(code))), segment))
        folded.append(code[order])
    right = fits & (width == size[of])
    if right.all():
        np.logical_and.at(right, cells[0], folded[0] == folded[1])
    else:
        begin = [np.cumsum(count) - count for count in (size[of], width)]
        for at in np.flatnonzero(right).tolist():
            one, other = (
                side[start : start + size[of[at]]] for side, start in zip(folded, (b[at] for b in begin), strict=True)
            )
            right[at] = np.array_equal(one, other)
    same[some[np.unique(of[~right])]] = False
    return same


def _as_it_was(ours: pa.Table, before: pa.Table) -> pa.Table:
    """Take the earlier records, byte for byte, for ledgers that bookies show as they were."""
    segments = before["segments"].combine_chunks()
    flat = segments.flatten()
    kind = tables.RECONSTRUCTION.field("segments").type
    members = flat.field(1)
    assumed = pa.ListArray.from_arrays(
        members.offsets, pa.array(np.zeros(len(members.values), np.bool_)), type=kind.value_type.field("assumed").type
    )
    listed = pa.StructArray.from_arrays([flat.field(0), flat.field(0), members, assumed], fields=list(kind.value_type))
    offsets = np.append(0, np.cumsum(pc.list_value_length(segments).to_numpy())).astype(np.int32)
    columns = {name: before[name] for name in (*(field.name for field in tables.METADATA_FIELDS), "custom", "raw")}
    columns["segments"] = pa.ListArray.from_arrays(pa.array(offsets), listed, type=kind)
    columns["outcome"] = pa.array(["restored"] * ours.num_rows, pa.string())
    columns["reason"] = pa.nulls(ours.num_rows, pa.string())
    grade = pa.array(["snapshot"] * ours.num_rows, pa.string())
    grades = ours["grades"].combine_chunks()
    columns["grades"] = pa.StructArray.from_arrays([grade] * len(tables.GRADED), fields=list(grades.type))
    columns["alternatives"] = pa.array([[]] * ours.num_rows, tables.RECONSTRUCTION.field("alternatives").type)
    columns["acked_high"] = before["last_entry"]
    names = tables.RECONSTRUCTION.names
    return pa.table([columns.get(name, ours[name]) for name in names], schema=tables.RECONSTRUCTION)


def _decided(known: Facts, ledger: int, row: Row, record: Mapping[str, Any], unseen: SnapshotDoubts) -> Row:
    """Return the row of a ledger whose earlier record is not what bookies show now."""
    stored = ledger_metadata.decode(record["raw"])
    against = find_contradictions(known, ledger, row, stored, record["password_hash"], unseen)
    if row["reason"] in KEPT:
        return _against(row, against)
    if against:
        return _refused(row, against)
    if stored.state is State.CLOSED:
        return _closed(known, ledger, row, stored, record, unseen)
    if row["outcome"] != "restored" or row["last_entry"] is None:
        return row
    if (row["ensemble_size"], row["write_quorum"]) != (stored.ensemble_size, stored.write_quorum):
        found = _solved(known, ledger, stored, row["last_entry"])
        if found is None:
            return row
        row = _with_segments(known, ledger, row, found, stored)
    segments = tuple(Segment(s["first"], tuple(s["members"])) for s in row["segments"])
    made = replace(stored, state=State.CLOSED, last_entry=row["last_entry"], length=row["length"], segments=segments)
    return _based_on(row, made, ("ensemble_size", "write_quorum", "ack_quorum", "digest", "ctime", "custom"))


def _against(row: Row, against: Sequence[Contradiction]) -> Row:
    return row | {"contradictions": [one.row() for one in against] or None}


def _refused(row: Row, against: Sequence[Contradiction]) -> Row:
    """Hold a ledger whose earlier record is contradicted."""
    return _against(_held(row, next(one.refusal for one in against if one.refusal is not None)), against)


def _closed(
    known: Facts, ledger: int, row: Row, stored: LedgerMetadata, record: Mapping[str, Any], unseen: SnapshotDoubts
) -> Row:
    end = read_end(stored)
    copies = _copies(known, ledger)
    if copies is None:
        return row
    first = np.array([segment.first for segment in stored.segments])
    names = known.bookies.take(pa.array(copies.bookie)).to_pylist()
    place = {name: at for at, name in enumerate(names)}
    members = np.array([[place.get(name, NOBODY) for name in s.members] for s in stored.segments])
    # Of what is above all entries nothing is there to be laid.
    until = min(end, int(known.copies.end[ledger]))
    kept = first <= max(until, 0)
    laid = LaidCopies.lay(copies.cut_at(until), until, stored.write_quorum, first[kept], members[kept])
    lost = find_end_above_all(known, ledger, stored, first.tolist(), laid, members, unseen)
    if lost is not None and lost.refusal is not None:
        return _refused(row, [lost])
    against = [] if lost is None else [lost]
    in_place = int(laid.in_place.sum())
    row = row | {
        "outcome": "restored",
        "reason": None,
        "class": "clean" if row["class"] == "undecided" else row["class"],
        "acked_high": end,
    }
    if end >= 0 and not laid.readable:
        found = _solved(known, ledger, stored, until)
        if found is None:
            return _against(_held(row, Refusal.FRAGMENTED), against)
        row = _with_segments(known, ledger, row, found, stored) | {"class": "solved"}
        row["missing"] += stored.write_quorum * (end - until)
        row["segments"] += _listed([s for s in stored.segments if s.first > until], place)
        segments = tuple(Segment(s["first"], tuple(s["members"])) for s in row["segments"])
        graded = tuple(name for name in _GRADED if name != "segments")
        made = replace(stored, segments=segments)
        if not copies.copied.any():
            # Re-replication leaves its mark: these members wrote, or go by other names.
            shown = Contradiction("segments", _in_words(stored.segments), _in_words(segments), None)
            against.append(shown)
        others = [*row["alternatives"], _earlier_segments(stored)]
        return _against(_based_on(row, made, graded) | {"alternatives": others}, against)
    held = copies.cut_at(until).entries
    counts = {"missing": stored.write_quorum * (end + 1) - in_place, "extra": held - in_place}
    row = row | {"segments": _listed(stored.segments, place), "alternatives": []} | counts
    return _against(_based_on(row, stored, _GRADED) | {"raw": record["raw"]}, against)


def _listed(segments: Sequence[Segment], shown: Mapping[str, int]) -> list[Row]:
    """Return segments of a record as RECONSTRUCTION has them; members that show nothing are assumed."""
    return [
        {
            "first": one.first,
            "first_low": one.first,
            "members": list(one.members),
            "assumed": [name not in shown for name in one.members],
        }
        for one in segments
    ]


def _copies(known: Facts, ledger: int) -> Copies | None:
    low, high = np.searchsorted(known.copies.row_ledger, [ledger, ledger + 1])
    copies = Copies.from_columns(known.copies, slice(int(low), int(high)), known.row_bookie, known.row_copied)
    return copies if copies.runs <= MAX_RUNS else None


def _solved(known: Facts, ledger: int, stored: LedgerMetadata, end: int) -> Solution | None:
    """Find who holds what, given quorums and end."""
    copies = _copies(known, ledger)
    if copies is None or not len(copies.bookie):
        return None
    laid = copies.cut_at(end)
    shape = TriedShape(stored.ensemble_size, stored.write_quorum, 0.0)
    cases, problems = Cases.build([laid], [end]), [Problem(0, laid, end, shape)]
    return solve_problems(cases, problems, find_cheapest(cases, problems))[0]


def _with_segments(known: Facts, ledger: int, row: Row, found: Solution, stored: LedgerMetadata) -> Row:
    """Give a row the segments of a solution; what nobody shows is as the earlier record has it."""
    low = int(np.searchsorted(known.copies.row_ledger, ledger))
    names = known.bookies.to_pylist()
    segments = []
    for first, earliest, rows in zip(found.first.tolist(), found.low.tolist(), found.members.tolist(), strict=True):
        members = [None if r == NOBODY else names[known.row_bookie[low + r]] for r in rows]
        before = next(s.members for s in reversed(stored.segments) if s.first <= first)
        spare = [name for name in dict.fromkeys((*before, *names)) if name not in members]
        assumed = [name is None for name in members]
        for at, name in enumerate(members):
            if name is None:
                wanted = before[at] if before[at] in spare else spare[0]
                members[at] = wanted
                spare.remove(wanted)
        segments.append({"first": first, "first_low": earliest, "members": members, "assumed": assumed})
    return row | {
        "ensemble_size": found.ensemble,
        "write_quorum": found.write,
        "segments": segments,
        "missing": found.missing,
        "extra": found.extra,
    }


def _earlier_segments(stored: LedgerMetadata) -> Row:
    return {"field": "segments", "value": _in_words(stored.segments), "reads_as": _READS_AS, "weight": 0.0}


def _in_words(segments: Sequence[Segment]) -> str:
    return " ".join(f"{s.first}:[{','.join(s.members)}]" for s in segments)


def _held(row: Row, reason: Refusal) -> Row:
    nothing = {field.name: None for field in tables.METADATA_FIELDS}
    grades = dict.fromkeys(tables.GRADED, "unknown")
    return row | nothing | {
        "class": "undecided", "outcome": "held", "reason": str(reason), "segments": None, "custom": None,
        "grades": grades, "acked_high": None, "missing": 0, "extra": 0, "alternatives": [], "raw": None,
    }  # fmt: skip


def _based_on(row: Row, made: LedgerMetadata, graded: Sequence[str]) -> Row:
    """Let a record be what is written: its fields, its bytes, and which of them are the earlier ones."""
    known = graded if made.password is None else (*graded, "password")
    grades = row["grades"] | dict.fromkeys(known, "snapshot")
    return row | {
        "format": made.format,
        "state": str(made.state),
        "ensemble_size": made.ensemble_size,
        "write_quorum": made.write_quorum,
        "ack_quorum": made.ack_quorum,
        "last_entry": made.last_entry,
        "length": made.length,
        "digest": None if made.digest is None else str(made.digest),
        "ctime": made.ctime,
        "custom": [{"key": key, "value": value} for key, value in made.custom],
        "grades": grades,
        "raw": ledger_metadata.encode(made),
    }
