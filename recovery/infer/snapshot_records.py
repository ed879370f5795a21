"""A snapshot's records of ledgers, compared with what bookies show now.

    the snapshot's record           what becomes of the ledger
    closed, and all is readable     the record, byte for byte: a closed ledger's end never changes
    closed, its bookies moved       the record with the segments that bookies show: re-replicated since
    open, the last that the store   itself, where its recovery loses nothing (`open_records`)
    had
    not closed                      closed where bookies end, or left open as they are, if the tail policy asks for it;
                                    quorums, password, custom metadata of the record
    contradicted by bytes           held, unless that is a loss (`contradictions`): two ledgers may be under one id
    of what no bookie has           itself if it is closed; held by its members if it is not

Contradictions are reported, whatever the outcome of the ledger. Whole batches are compared; only ledgers that differ
are judged one by one.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recovery.codecs import ledger_metadata
from recovery.infer.copies import Ints, Mask
from recovery.infer.facts import LedgerFacts
from recovery.infer.ledger_row import Alternative, CustomItem, LedgerRow, SegmentRow, read_rows, write_rows
from recovery.infer.open_records import can_stay_open
from recovery.infer.readings import MOST_RUNS, RecordBasis, find_holes
from recovery.infer.refusal import Refusal
from recovery.infer.search import MAX_RUNS
from recovery.infer.segment_cases import NOBODY, Cases, Copies, ShapeProblem, TriedShape
from recovery.infer.segment_costs import find_cheapest
from recovery.infer.snapshot_agreement import KEPT, mark_agreeing
from recovery.infer.snapshot_contradictions import (
    SHAPE,
    Contradiction,
    SnapshotDoubts,
    find_contradictions,
    find_end_above_all,
    find_other_stripes,
    read_end,
)
from recovery.infer.solve import PlacedCopies, Solution, solve_problems
from recovery.model import tables
from recovery.model.groups import KeyedGroups, group_runs, to_arrow
from recovery.model.metadata import NO_ENTRY, LedgerMetadata, LedgerState, Segment

_GRADED: Final = tuple(name for name in tables.GRADED if name != "password")
_LENGTH: Final = "the same entries; the length as the header of the last one has it"
_READS_AS: Final = "as the earlier record had it: entries that moved since could not be read"
_CLOSED_THERE: Final = "closed at the highest entry on a bookie, not left to the recovery of its next reader"
_READS_AS_SHOWN: Final = "as bookies alone show it: the same entries; checks and repairs would count other copies"


@dataclass(frozen=True, slots=True)
class _Record:
    """A snapshot's record; `key`: SHA-256 of the master key of its password, None without one."""

    metadata: LedgerMetadata
    raw: bytes
    key: bytes | None


def apply_snapshot(
    rows: pa.Table, known: LedgerFacts, catalog: pa.Table, doubts: SnapshotDoubts, alive: pa.Table | None = None
) -> pa.Table:
    """Complete ledgers from records of snapshots, and check the records by the bookies.

    Args:
        rows: RECONSTRUCTION of the ledgers of `known`, in their order.
        known: the facts of bookies.
        catalog: CATALOG_LEDGERS, each ledger at most once; no holds.
        doubts: possibly hidden or lost entries.
        alive: key columns and bytes of the records that the store had last; None: nothing shows them.

    Returns:
        RECONSTRUCTION; `raw` where a snapshot's record is the base, `contradictions` where one is contradicted.
    """
    if not known.count:
        return rows
    numbers, places = match_records(known, catalog)
    if not len(numbers):
        return rows
    usable = pc.is_valid(catalog["ensemble_size"]).to_numpy()
    numbers, places = numbers[usable[places]], places[usable[places]]
    shown, records = rows.take(pa.array(numbers)), catalog.take(pa.array(places))
    agrees = mark_agreeing(known, numbers, shown, records)
    taken = _restore_records(shown.filter(pa.array(agrees)), records.filter(pa.array(agrees)))
    rest = np.flatnonzero(~agrees)
    differing, differing_records = shown.take(pa.array(rest)), records.take(pa.array(rest))
    is_last = _mark_last(known, numbers[rest], differing_records, alive)
    changed = [
        _decide(known, ledger, row, record, doubts, is_last=last)
        for ledger, row, record, last in zip(
            numbers[rest].tolist(),
            read_rows(differing),
            _decode_records(differing_records),
            is_last.tolist(),
            strict=True,
        )
    ]
    untouched = np.setdiff1d(np.arange(rows.num_rows), numbers)
    written = _list_holes(write_rows(differing, changed), known, numbers[rest])
    joined = pa.concat_tables([rows.take(pa.array(untouched)), taken, written])
    order = np.argsort(np.concatenate([untouched, numbers[agrees], numbers[rest]]))
    return joined.take(pa.array(order))


def _mark_last(known: LedgerFacts, numbers: Ints, records: pa.Table, alive: pa.Table | None) -> Mask:
    """Mark records of some ledgers that are the store's last ones, byte for byte."""
    is_last = np.zeros(len(numbers), np.bool_)
    if alive is None or not len(numbers):
        return is_last
    ledgers, places = match_records(known, alive)
    place_of = np.full(known.count, -1)
    place_of[ledgers] = places
    found = np.flatnonzero(place_of[numbers] >= 0)
    same = pc.equal(alive["raw"].take(pa.array(place_of[numbers[found]])), records["raw"].take(pa.array(found)))
    is_last[found] = same.to_numpy()
    return is_last


def _list_holes(rows: pa.Table, known: LedgerFacts, numbers: Ints) -> pa.Table:
    """List the unserved entries up to the ends of guarded records; these ends may differ from the bookies'."""
    is_guarded = pc.and_(pc.equal(rows["outcome"], "guarded"), pc.is_valid(rows["raw"])).to_numpy(zero_copy_only=False)
    if not is_guarded.any():
        return rows
    ledgers = np.sort(numbers[is_guarded])
    ends = np.full(known.count, NO_ENTRY)
    ends[numbers[is_guarded]] = rows["last_entry"].to_numpy()[is_guarded]
    listed = to_arrow(group_runs(find_holes(known, ledgers, ends)), known.count)
    is_listed = is_guarded & (known.copies.count_runs()[numbers] <= MOST_RUNS)
    either = pa.concat_arrays([rows["holes"].combine_chunks(), listed])
    places = np.where(is_guarded, rows.num_rows + numbers, np.arange(rows.num_rows))
    holes = either.take(pa.array(places, mask=is_guarded & ~is_listed))
    return rows.set_column(rows.column_names.index("holes"), rows.schema.field("holes"), holes)


def restore_as_recorded(records: pa.Table) -> pa.Table:
    """Return RECONSTRUCTION of ledgers as in their records, where no scanned bookie has anything of them.

    Args:
        records: CATALOG_LEDGERS of closed ledgers.
    """
    ends = pc.max_element_wise(records["last_entry"], NO_ENTRY).to_numpy().astype(np.int64)
    missing = (ends + 1) * records["write_quorum"].to_numpy().astype(np.int64)
    unproved = pa.array(np.where(ends < 0, "clean", "undecided"), pa.string())
    blank = _fill_rows(records, "restored", {"class": unproved, "missing": pa.array(missing)})
    return _restore_records(blank, records)


def hold_by_members(records: pa.Table, looked_at: Sequence[str], hiding: Sequence[str]) -> pa.Table:
    """Return RECONSTRUCTION of ledgers that are not closed, and that unscanned bookies may have.

    Their ends are not known, and a client that opens such a ledger closes it where an answer is missing. So each is
    held by those of its members that may have it. All members may have been replaced since, before the first entry: so
    it is held by all bookies that may have it, too, where these could acknowledge an entry. What no bookie may have is
    left out.

    Args:
        records: CATALOG_LEDGERS of ledgers that are not closed.
        looked_at: bookies that were, completely.
        hiding: bookies that may have more than was seen.
    """
    seen = set(looked_at)
    may_have_moved = pc.less_equal(records["ack_quorum"], len(hiding)).to_pylist()
    holders = [
        sorted(({name for segment in segments for name in segment["members"]} - seen).union(hiding if moved else ()))
        for segments, moved in zip(records["segments"].to_pylist(), may_have_moved, strict=True)
    ]
    kind = tables.RECONSTRUCTION.field("holders").type
    may_have = pa.array([bool(names) for names in holders], pa.bool_())
    reason = pa.array([str(Refusal.SOURCE_INCOMPLETE)] * records.num_rows, pa.string())
    return _fill_rows(records, "held", {"holders": pa.array(holders, kind), "reason": reason}).filter(may_have)


def _fill_rows(records: pa.Table, outcome: str, given_columns: Mapping[str, pa.Array]) -> pa.Table:
    """Return RECONSTRUCTION of ledgers that no bookie shows; other columns as given."""
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
        **given_columns,
    }
    columns = [given[f.name] if f.name in given else pa.nulls(count, f.type) for f in tables.RECONSTRUCTION]
    return pa.table(columns, schema=tables.RECONSTRUCTION)


def match_records(known: LedgerFacts, catalog: pa.Table) -> tuple[Ints, Ints]:
    """Return the numbers of ledgers that both have, and their rows in the catalog."""
    scope, ledger = (catalog[name].to_numpy() for name in ("scope", "ledger"))
    pairs = np.stack([np.append(known.scope, scope), np.append(known.ledger, ledger)], axis=1)
    number = np.unique(pairs, axis=0, return_inverse=True)[1].ravel()
    places = np.full(int(number.max(initial=-1)) + 1, -1)
    places[number[known.count :]] = np.arange(len(scope))
    matches = places[number[: known.count]]
    numbers = np.flatnonzero(matches >= 0)
    return numbers, matches[numbers]


def _restore_records(shown: pa.Table, records: pa.Table) -> pa.Table:
    """Take the records of snapshots, byte for byte, for ledgers that bookies show as they were."""
    segments = records["segments"].combine_chunks()
    flat = segments.flatten()
    kind = tables.RECONSTRUCTION.field("segments").type
    members = flat.field(1)
    assumed = pa.ListArray.from_arrays(
        members.offsets, pa.array(np.zeros(len(members.values), np.bool_)), type=kind.value_type.field("assumed").type
    )
    listed = pa.StructArray.from_arrays([flat.field(0), flat.field(0), members, assumed], fields=list(kind.value_type))
    offsets = np.append(0, np.cumsum(pc.list_value_length(segments).to_numpy())).astype(np.int32)
    columns = {name: records[name] for name in (*(field.name for field in tables.METADATA_FIELDS), "custom", "raw")}
    columns["segments"] = pa.ListArray.from_arrays(pa.array(offsets), listed, type=kind)
    columns["outcome"] = pa.array(["restored"] * shown.num_rows, pa.string())
    columns["reason"] = pa.nulls(shown.num_rows, pa.string())
    columns["reading"] = pa.array([str(RecordBasis.PROVED)] * shown.num_rows, pa.string())
    grade = pa.array(["snapshot"] * shown.num_rows, pa.string())
    grades = shown["grades"].combine_chunks()
    columns["grades"] = pa.StructArray.from_arrays([grade] * len(tables.GRADED), fields=list(grades.type))
    columns["alternatives"] = pa.array([[]] * shown.num_rows, tables.RECONSTRUCTION.field("alternatives").type)
    columns["acked_high"] = records["last_entry"]
    names = tables.RECONSTRUCTION.names
    return pa.table([columns.get(name, shown[name]) for name in names], schema=tables.RECONSTRUCTION)


def _decode_records(records: pa.Table) -> Iterator[_Record]:
    for raw, key in zip(records["raw"].to_pylist(), records["password_hash"].to_pylist(), strict=True):
        yield _Record(ledger_metadata.decode(raw), raw, key)


def _decide(
    known: LedgerFacts, ledger: int, row: LedgerRow, record: _Record, doubts: SnapshotDoubts, *, is_last: bool
) -> LedgerRow:
    """Return the row of a ledger with a record in a snapshot that differs from what bookies show."""
    stored = record.metadata
    against = find_contradictions(known, ledger, row, stored, record.key)
    if row.reason in KEPT:
        return _add_contradictions(row, against)
    if [(c.field, c.refusal) for c in against] == [("length", Refusal.TWO_HISTORIES)]:
        return _guard(_restore_closed(known, ledger, row, record, doubts), against[0])
    if against:
        return _refuse(row, against)
    if stored.state is LedgerState.CLOSED:
        restored = _restore_closed(known, ledger, row, record, doubts)
        other = find_other_stripes(known, ledger, stored)
        return restored if other is None else _guard(restored, other)
    if is_last and stored.state is LedgerState.OPEN and (left_open := _leave_open(known, ledger, row, record, doubts)):
        return left_open
    is_open, end, length = row.state == LedgerState.OPEN, row.last_entry, row.length
    if end is None and not is_open:
        return row
    if (row.ensemble_size, row.write_quorum) != (stored.ensemble_size, stored.write_quorum):
        if is_open:
            # That a recovery loses nothing was shown for another shape.
            end, length = int(known.copies.end[ledger]), int(known.last_length[ledger])
        solution = _solve(known, ledger, stored, end or 0)
        if solution is None:
            return row
        row = _with_segments(known, ledger, row, solution, stored)
    state = LedgerState.OPEN if end is None else LedgerState.CLOSED
    made = replace(stored, state=state, last_entry=end, length=length, segments=row.list_segments())
    return _take_record(row, made, ("ensemble_size", "write_quorum", "ack_quorum", "digest", "ctime", "custom"))


def _add_contradictions(row: LedgerRow, against: Sequence[Contradiction]) -> LedgerRow:
    return replace(row, contradictions=tuple(contradiction.row() for contradiction in against) or None)


def _refuse(row: LedgerRow, against: Sequence[Contradiction]) -> LedgerRow:
    """Hold a ledger with a contradicted record in a snapshot."""
    return _add_contradictions(
        _hold(row, next(c.refusal for c in against if c.refusal is not None)),
        against,
    )


def _guard(restored: LedgerRow, against: Contradiction) -> LedgerRow:
    """Keep all copies of a ledger if only its length or its shape is in doubt; what bookies show is offered."""
    rows = (*(restored.contradictions or ()), against.row())
    if restored.outcome != "restored":
        return replace(restored, contradictions=rows)
    shown, reads_as = against.bookies.partition(",")[0], _LENGTH if against.field == "length" else _READS_AS_SHOWN
    return replace(
        restored,
        outcome="guarded",
        reason=str(Refusal.TWO_HISTORIES),
        reading=str(RecordBasis.LIKELIEST),
        acked_high=None,
        alternatives=(*restored.alternatives, Alternative(against.field, shown, reads_as, 0.0)),
        contradictions=rows,
    )


def _restore_closed(
    known: LedgerFacts, ledger: int, row: LedgerRow, record: _Record, doubts: SnapshotDoubts
) -> LedgerRow:
    stored = record.metadata
    end = read_end(stored)
    copies = _copies(known, ledger)
    if copies is None:
        return row
    first, members, place = _place_members(known, stored, copies)
    # Above the highest entry there are no copies.
    until = min(end, int(known.copies.end[ledger]))
    kept = first <= max(until, 0)
    placed = PlacedCopies.sum_up(copies.cut_at(until), until, stored.write_quorum, first[kept], members[kept])
    is_elsewhere = until < end and _is_written_elsewhere(copies, until, stored.write_quorum, first, members, kept)
    lost = find_end_above_all(
        known, ledger, stored, first.tolist(), placed, members, doubts, is_written_elsewhere=is_elsewhere
    )
    if lost is not None and lost.refusal is not None:
        return _refuse(row, [lost])
    against = [] if lost is None else [lost]
    in_place = int(placed.in_place.sum())
    if known.leftover[ledger] and in_place < stored.write_quorum * (end + 1):
        # A copy is missing where a bookie that does not serve the ledger has some in its logs: it deleted it.
        return _add_contradictions(_hold(row, Refusal.DELETED_SOMEWHERE), against)
    row = replace(
        row,
        outcome="restored",
        reading=str(RecordBasis.PROVED),
        reason=None,
        class_="clean" if row.class_ == "undecided" else row.class_,
        acked_high=end,
    )
    if not placed.readable:
        solution = _solve(known, ledger, stored, until)
        if solution is None:
            return _add_contradictions(_hold(row, Refusal.FRAGMENTED), against)
        row = _with_segments(known, ledger, row, solution, stored)
        later = _list_segments([s for s in stored.segments if s.first > until], place)
        row = replace(
            row,
            class_="solved",
            missing=row.missing + stored.write_quorum * (end - until),
            segments=(*(row.segments or ()), *later),
        )
        segments = row.list_segments()
        graded = tuple(name for name in _GRADED if name != "segments")
        made = replace(stored, segments=segments)
        if not copies.copied.any():
            # Re-replication leaves its mark: these members wrote, or go by other names.
            shown = Contradiction("segments", _write_segments(stored.segments), _write_segments(segments), None)
            against.append(shown)
        row = replace(row, alternatives=(*row.alternatives, _list_as_alternative(stored)))
        return _add_contradictions(_take_record(row, made, graded), against)
    kept_copies = copies.cut_at(until).entries
    row = replace(
        row,
        segments=_list_segments(stored.segments, place),
        alternatives=(),
        missing=stored.write_quorum * (end + 1) - in_place,
        extra=kept_copies - in_place,
    )
    return _add_contradictions(replace(_take_record(row, stored, _GRADED), raw=record.raw), against)


def _leave_open(
    known: LedgerFacts, ledger: int, row: LedgerRow, record: _Record, doubts: SnapshotDoubts
) -> LedgerRow | None:
    """Return the row as its open record has it; None where its recovery may lose entries, or some cannot be read."""
    stored, end = record.metadata, int(known.copies.end[ledger])
    copies = _copies(known, ledger)
    if not doubts.may_stay_open or doubts.hidden[ledger] or end < 0 or copies is None:
        return None
    first, members, place = _place_members(known, stored, copies)
    if not can_stay_open(known, ledger, stored, copies, members[-1]):
        return None
    begun = first <= end
    placed = PlacedCopies.sum_up(copies, end, stored.write_quorum, first[begun], members[begun])
    if not placed.readable:
        return None
    in_place = int(placed.in_place.sum())
    closings = tuple(other for other in row.alternatives if other.field == "last_entry")
    row = replace(
        row,
        class_="solved" if row.class_ == "undecided" else row.class_,
        outcome="restored",
        reading=str(RecordBasis.PROVED),
        reason=None,
        segments=_list_segments(stored.segments, place),
        alternatives=(*closings, Alternative("last_entry", str(end), _CLOSED_THERE, 0.0)),
        missing=stored.write_quorum * (end + 1) - in_place,
        extra=copies.entries - in_place,
        acked_high=None,
    )
    return replace(_take_record(row, stored, _GRADED), raw=record.raw)


def _place_members(known: LedgerFacts, stored: LedgerMetadata, copies: Copies) -> tuple[Ints, Ints, dict[str, int]]:
    """Return where segments of a record begin, their members as rows of `copies` or NOBODY, and the rows of names."""
    first = np.array([segment.first for segment in stored.segments])
    names = known.bookies.take(pa.array(copies.bookie)).to_pylist()
    place = {name: number for number, name in enumerate(names)}
    return first, np.array([[place.get(name, NOBODY) for name in s.members] for s in stored.segments]), place


def _is_written_elsewhere(copies: Copies, until: int, write: int, first: Ints, members: Ints, kept: Mask) -> bool:
    """Whether an entry is on no member of its write set, but on another member, or on a bookie without copies' marks.

    Segments that begin above all entries have members, too: what these have is not explained by a copy made since.
    """
    is_of_writer = ~copies.copied | np.isin(np.arange(len(copies.bookie)), members)
    of_writers = is_of_writer[copies.groups.key]
    written = copies._replace(groups=KeyedGroups(*(column[of_writers] for column in copies.groups)))
    return not PlacedCopies.sum_up(written.cut_at(until), until, write, first[kept], members[kept]).readable


def _list_segments(segments: Sequence[Segment], shown: Container[str]) -> tuple[SegmentRow, ...]:
    """Return segments of a record in the form of RECONSTRUCTION; members that show nothing are assumed."""
    return tuple(
        SegmentRow(s.first, s.first, tuple(s.members), tuple(name not in shown for name in s.members)) for s in segments
    )


def _copies(known: LedgerFacts, ledger: int) -> Copies | None:
    low, high = np.searchsorted(known.copies.row_ledger, [ledger, ledger + 1])
    copies = Copies.from_columns(known.copies, slice(int(low), int(high)), known.row_bookie, known.row_copied)
    return copies if copies.runs <= MAX_RUNS else None


def _solve(known: LedgerFacts, ledger: int, stored: LedgerMetadata, end: int) -> Solution | None:
    """Find the holders of entries, for given quorums and a given end."""
    copies = _copies(known, ledger)
    if copies is None or not len(copies.bookie):
        return None
    copies_to_end = copies.cut_at(end)
    shape = TriedShape(stored.ensemble_size, stored.write_quorum, 0.0)
    cases, problems = Cases.build([copies_to_end], [end]), [ShapeProblem(0, copies_to_end, end, shape)]
    return solve_problems(cases, problems, find_cheapest(cases, problems))[0]


def _with_segments(
    known: LedgerFacts, ledger: int, row: LedgerRow, solution: Solution, stored: LedgerMetadata
) -> LedgerRow:
    """Give a row the segments of a solution; the snapshot's record has the parts that no bookie shows."""
    low = int(np.searchsorted(known.copies.row_ledger, ledger))
    names = known.bookies.to_pylist()
    segments = []
    for first, earliest, rows in zip(
        solution.first.tolist(), solution.low.tolist(), solution.members.tolist(), strict=True
    ):
        members = [None if r == NOBODY else names[known.row_bookie[low + r]] for r in rows]
        previous = next(s.members for s in reversed(stored.segments) if s.first <= first)
        spare = [name for name in dict.fromkeys((*previous, *names)) if name not in members]
        assumed = tuple(name is None for name in members)
        ensemble = []
        for position, name in enumerate(members):
            chosen = name
            if chosen is None:
                chosen = previous[position] if previous[position] in spare else spare[0]
                spare.remove(chosen)
            ensemble.append(chosen)
        segments.append(SegmentRow(first, earliest, tuple(ensemble), assumed))
    return replace(
        row,
        ensemble_size=solution.ensemble,
        write_quorum=solution.write,
        segments=tuple(segments),
        missing=solution.missing,
        extra=solution.extra,
        alternatives=_list_shown_shape(row, solution.ensemble, solution.write),
    )


def _list_shown_shape(row: LedgerRow, ensemble: int, write: int) -> tuple[Alternative, ...]:
    """Return a row's alternatives after a change of its shape: the bookies' shape replaces the new one."""
    if row.ensemble_size is None or (row.ensemble_size, row.write_quorum) == (ensemble, write):
        return row.alternatives
    shown = Alternative(SHAPE, f"{row.ensemble_size}/{row.write_quorum}", _READS_AS_SHOWN, 0.0)
    taken = (SHAPE, f"{ensemble}/{write}")
    return (shown, *(other for other in row.alternatives if (other.field, other.value) != taken))


def _list_as_alternative(stored: LedgerMetadata) -> Alternative:
    return Alternative("segments", _write_segments(stored.segments), _READS_AS, 0.0)


def _write_segments(segments: Sequence[Segment]) -> str:
    return " ".join(f"{s.first}:[{','.join(s.members)}]" for s in segments)


def _hold(row: LedgerRow, reason: Refusal) -> LedgerRow:
    """Return the row without any field of a record; its key and its contradictions stay."""
    return LedgerRow(
        class_="undecided", outcome="held", reason=str(reason), reading=None, format=None, state=None,
        ensemble_size=None, write_quorum=None, ack_quorum=None, last_entry=None, length=None, digest=None, ctime=None,
        key=row.key, segments=None, custom=None, grades=dict.fromkeys(tables.GRADED, "unknown"), acked_high=None,
        missing=0, extra=0, alternatives=(), raw=None, contradictions=row.contradictions,
    )  # fmt: skip


def _take_record(row: LedgerRow, made: LedgerMetadata, graded: Sequence[str]) -> LedgerRow:
    """Return the row with the fields and bytes of a record; fields that come from it are graded `snapshot`."""
    known = graded if made.password is None else (*graded, "password")
    return replace(
        row,
        format=made.format,
        state=str(made.state),
        ensemble_size=made.ensemble_size,
        write_quorum=made.write_quorum,
        ack_quorum=made.ack_quorum,
        last_entry=made.last_entry,
        length=made.length,
        digest=None if made.digest is None else str(made.digest),
        ctime=made.ctime,
        custom=tuple(CustomItem(key, value) for key, value in made.custom),
        grades={**row.grades, **dict.fromkeys(known, "snapshot")},
        raw=ledger_metadata.encode(made),
    )
