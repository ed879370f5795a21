"""Missing copies that a record promises: marked ones, and those that were found missing.

A mark names bookies that are believed to lack entries of a ledger: their copies of it count as down, unless evidence
that is younger than the mark shows them. What evidence shows to be missing, or to be lost with a wiped bookie, counts
as gone. Of what it does not cover, records are believed.

A mark is text, `replica: "<bookie>"` a line, and perhaps when it was made.

Source: docs/operations/impact.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.check.evidence import COPIES_SEEN, SeenCopies
from reconcile.check.impact.names import CopyHealth
from reconcile.check.impact.segments.columns import Ints, LedgerRows, SegmentColumns
from reconcile.check.impact.segments.judgement import States
from recovery.codecs.keys import read_marks
from recovery.dataset import Dataset, sort_by_key
from recovery.model import tables
from recovery.model.groups import KeyedGroups, from_arrow, run_counts, to_runs
from recovery.model.ids import buckets as buckets_of

MARKED: Final = pa.schema([*tables.KEY, pa.field("bookie", pa.string(), nullable=False), pa.field("txn", pa.int64())])
"""`txn`: the store's transaction that changed the mark last; null: it is not known."""
_REPLICA: Final = r'^\s*replica:\s*"([^"]*)"\s*$'
_TIME: Final = r"^\s*(ctime:\s*-?[0-9]+)?\s*$"
"""The other lines of a mark: its time, or nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """Which copies are marked.

    Attributes:
        rows: `MARKED`, sorted by key: a row a copy.
        ledgers: how many ledgers are marked.
        unreadable: how many marks cannot be read.
    """

    rows: pa.Table
    ledgers: int
    unreadable: int


def read_marked_copies(nodes: pa.Table, aliases: Mapping[str, str]) -> Marks:
    """Read the under-replication marks of a catalog.

    Args:
        nodes: path, kind, raw and changed_txn of CATALOG_NODES.
        aliases: other names of bookies → ids.
    """
    marks = nodes.filter(pc.equal(nodes["kind"], "mark"))
    ledgers = read_marks(marks["path"].combine_chunks())
    lines = pc.split_pattern(marks["raw"].combine_chunks().take(pa.array(ledgers.rows)), b"\n")
    of_line = np.repeat(np.arange(len(lines)), pc.list_value_length(lines).to_numpy())
    line = _decode_texts(lines.flatten())
    is_replica = pc.match_substring_regex(line, _REPLICA).to_numpy(zero_copy_only=False)
    is_sound = is_replica | pc.match_substring_regex(line, _TIME).to_numpy(zero_copy_only=False)
    wrong = np.zeros(len(lines), np.bool_)
    wrong[of_line[~is_sound]] = True
    row = of_line[is_replica]
    scope, ledger = ledgers.scope[row], ledgers.ledger[row]
    coded = pc.replace_substring_regex(line.filter(pa.array(is_replica)), _REPLICA, r"\1").dictionary_encode()
    names = pa.array([aliases.get(name, name) for name in coded.dictionary.to_pylist()], pa.string())
    rows = pa.table(
        {
            "bucket": pa.array(buckets_of(scope, ledger)),
            "scope": pa.array(scope),
            "ledger": pa.array(ledger),
            "bookie": names.take(coded.indices),
            "txn": marks["changed_txn"].combine_chunks().take(pa.array(ledgers.rows[row])),
        }
    ).cast(MARKED)
    unreadable = marks.num_rows - len(ledgers.rows) + int(wrong.sum())
    return Marks(sort_by_key(rows), marks.num_rows, unreadable)


def _decode_texts(lines: pa.Array) -> pa.Array:
    try:
        return lines.cast(pa.string())
    except pa.ArrowInvalid:
        # A client wrote bytes that are not text: the mark says nothing in those lines.
        return pa.array([line.decode(errors="replace") for line in lines.to_pylist()], pa.string())


class Missing:
    """Copies of some ledgers that are not there.

    Args:
        ledgers: key columns of the records.
        names: of bookies; a member's number is its place there.
        marked: rows of `MARKED`.
        seen: other facts about the copies; None: none.

    Attributes:
        marks_overruled: marked copies that were seen to be there.
    """

    def __init__(self, ledgers: pa.Table, names: pa.Array, marked: pa.Table, seen: SeenCopies | None = None) -> None:
        self._names = names
        row = LedgerRows(ledgers).find(marked)
        rows = pa.table([pa.array(row), marked["bookie"], marked["txn"]], schema=COPIES_SEEN).filter(pa.array(row >= 0))
        self._marked = self._number(rows)
        self._wiped = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        self._missing: list[tuple[int, KeyedGroups]] = []
        self.marks_overruled = 0
        if seen is not None:
            valid = _overrule(rows, seen.sound)
            self.marks_overruled = rows.num_rows - valid.num_rows
            self._marked = self._number(valid)
            self._take_missing(seen)

    def _take_missing(self, seen: SeenCopies) -> None:
        self._wiped = self._number(seen.wiped)
        missing = seen.faults.missing
        groups = from_arrow(missing["groups"])
        row, bookie = missing["row"].to_numpy(), self._index(missing["bookie"])
        for number in np.unique(bookie[bookie >= 0]).tolist():
            own = bookie[groups.key] == number
            keyed = KeyedGroups(row[groups.key[own]], *(column[own] for column in groups[1:]))
            order = np.argsort(keyed.key, kind="stable")
            self._missing.append((number, KeyedGroups(*(column[order] for column in keyed))))

    def _index(self, names: pa.ChunkedArray) -> Ints:
        numbers: Ints = pc.fill_null(pc.index_in(names, value_set=self._names), -1).to_numpy().astype(np.int64)
        return numbers

    def _number(self, rows: pa.Table) -> tuple[Ints, Ints]:
        """Return the rows and numbers of bookies that are among the names."""
        bookie = self._index(rows["bookie"])
        return rows["row"].to_numpy()[bookie >= 0], bookie[bookie >= 0]

    def find_floors(self, segments: SegmentColumns) -> tuple[Ints, States]:
        """Return the segments with missing copies, and their floors for `judge`."""
        size, write = segments.shape.ensemble, segments.shape.write
        parts: list[tuple[Ints, Ints, Ints, CopyHealth]] = []
        for copies, state in ((self._marked, CopyHealth.DOWN), (self._wiped, CopyHealth.GONE)):
            position, segment = self._find_members(segments, *copies)
            parts += [(segment, (position - step) % size, np.full(len(segment), step), state) for step in range(write)]
        for number, groups in self._missing:
            parts.append((*_find_lacking(segments, number, groups), CopyHealth.GONE))
        rows = np.unique(np.concatenate([np.zeros(0, np.int64), *(part[0] for part in parts)]))
        floors = np.zeros((size, write, len(rows)), np.int8)
        for segment, residue, place, state in parts:
            np.maximum.at(floors, (residue, place, np.searchsorted(rows, segment)), np.int8(state))
        return rows, floors

    def _find_members(self, segments: SegmentColumns, row: Ints, bookie: Ints) -> tuple[Ints, Ints]:
        """Return (position, segment) of bookies in all segments of ledgers."""
        if not len(row):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        known = len(self._names) + 1
        wanted = row * known + bookie
        place = segments.ledger * known + segments.members
        position, segment = np.nonzero(np.isin(place, wanted) & (segments.members >= 0))
        return position, segment


def _overrule(marked: pa.Table, sound: pa.Table) -> pa.Table:
    """Return the marks that no later sight of the whole copy overrules; `COPIES_SEEN` in and out."""
    later = sound.rename_columns(["row", "bookie", "seen"])
    joined = marked.join(later, ["row", "bookie"], join_type="left outer")
    overruled = pc.fill_null(pc.less_equal(joined["txn"], joined["seen"]), fill_value=False)
    return joined.filter(pc.invert(overruled)).select(COPIES_SEEN.names)


def _find_lacking(segments: SegmentColumns, bookie: int, groups: KeyedGroups) -> tuple[Ints, Ints, Ints]:
    """Return (segment, residue, step) of the copies that a bookie lacks.

    Args:
        segments: of one shape.
        bookie: its number.
        groups: its missing entries; keys are rows of ledgers, ascending.
    """
    size, write = segments.shape.ensemble, segments.shape.write
    position, segment = np.nonzero(segments.members == bookie)
    order = np.argsort(segment, kind="stable")
    position, segment = position[order], segment[order]
    lacking = _count_by_residue(groups, segments, segment) > 0
    cells = []
    for step in range(write):
        residue = (position - step) % size
        rows = np.flatnonzero(lacking[np.arange(len(segment)), residue])
        cells.append((segment[rows], residue[rows], np.full(len(rows), step)))
    columns = [np.concatenate(column) for column in zip(*cells, strict=True)]
    return columns[0], columns[1], columns[2]


def _count_by_residue(groups: KeyedGroups, segments: SegmentColumns, segment: Ints) -> Ints:
    """Return how many entries of each residue groups have inside of segments: (segments, E).

    A group's runs are at equal distances: at most its first and its last inside a segment are cut. Where the distance
    is a multiple of E, all others count the same; else they are laid out.
    """
    size = segments.shape.ensemble
    ledger = segments.ledger[segment]
    low, high = (np.searchsorted(ledger, groups.key, side) for side in ("left", "right"))
    times = high - low
    group = np.repeat(np.arange(len(times)), times)
    row = np.arange(len(group)) - np.repeat(np.cumsum(times) - times, times) + low[group]
    begin, end = segments.first[segment[row]], segments.last[segment[row]]
    pairs = KeyedGroups(row, *(column[group] for column in groups[1:]))
    step = np.maximum(pairs.period, 1)
    runs = run_counts(pairs.first, pairs.last, pairs.period)
    first = np.clip(-((pairs.first + pairs.size - 1 - begin) // step), 0, runs)
    last = np.clip((end - pairs.first) // step, -1, runs - 1)
    reached = (first <= last) & (begin <= end)
    count = np.zeros((len(segment), size), np.int64)

    def add(rows: Ints, start: Ints, stop: Ints, weight: Ints) -> None:
        """Count entries from start to stop, both included."""
        valid = stop >= start
        for residue in range(size):
            inside = (stop - residue) // size - (start - 1 - residue) // size
            np.add.at(count[:, residue], rows[valid], (inside * weight)[valid])

    pairs = KeyedGroups(*(column[reached] for column in pairs))
    first, last, begin, end = first[reached], last[reached], begin[reached], end[reached]
    for edge in (first, np.where(last > first, last, -1)):
        exists = edge >= 0
        start = pairs.first + edge * pairs.period
        once = np.ones(int(exists.sum()), np.int64)
        stop = np.minimum(start + pairs.size - 1, end)
        add(pairs.key[exists], np.maximum(start, begin)[exists], stop[exists], once)
    inner = last - first - 1
    whole = inner > 0
    even = whole & (pairs.period % size == 0)
    start = pairs.first + (first + 1) * pairs.period
    add(pairs.key[even], start[even], (start + pairs.size - 1)[even], inner[even])
    odd = whole & ~even
    laid = to_runs(
        KeyedGroups(
            pairs.key[odd], start[odd], (start + (inner - 1) * pairs.period)[odd], pairs.size[odd], pairs.period[odd]
        )
    )
    add(laid.key, laid.first, laid.first + laid.size - 1, np.ones(len(laid.key), np.int64))
    return count


def find_incomplete(inventories: Sequence[Dataset]) -> dict[str, bool]:
    """Return the bookies of inventories, and whether each was read completely; over the wire: the ledgers asked for."""
    rows = [
        row
        for inventory in inventories
        for row in inventory.read("bookies", columns=["bookie", "complete", "mode"]).to_pylist()
    ]
    read: Mapping[str, bool] = {row["bookie"]: row["complete"] or row["mode"] == "wire" for row in rows}
    return dict(read)
