"""Copies that are not there although a record promises them: marked ones, and those that inventories do not show.

A mark names bookies that are believed to lack entries of a ledger: their copies of it count as down. What an inventory
of a completely read bookie does not show is absent there: that copy counts as gone. Bookies without an inventory are
believed to hold what records promise.

A mark is text, `replica: "<bookie>"` a line, and perhaps when it was made.

Source: docs/operations/impact.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.check.impact.names import State
from reconcile.check.impact.segments.columns import NO_END, Ints, LedgerRows, Segments
from reconcile.check.impact.segments.judgement import States
from recovery.codecs.keys import read_marks
from recovery.dataset import Dataset, sort_by_key
from recovery.model import tables
from recovery.model.groups import KeyedGroups, from_arrow, run_counts, to_runs
from recovery.model.ids import buckets as buckets_of

MARKED: Final = pa.schema([*tables.KEY, pa.field("bookie", pa.string(), nullable=False)])
_REPLICA: Final = r'^\s*replica:\s*"([^"]*)"\s*$'
_TIME: Final = r"^\s*(ctime:\s*-?[0-9]+)?\s*$"
"""Of a mark's other lines: when it was made, or nothing."""


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
        nodes: path, kind and raw of CATALOG_NODES.
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
        }
    ).cast(MARKED)
    unreadable = marks.num_rows - len(ledgers.rows) + int(wrong.sum())
    return Marks(sort_by_key(rows), marks.num_rows, unreadable)


def _decode_texts(lines: pa.Array) -> pa.Array:
    try:
        return lines.cast(pa.string())
    except pa.ArrowInvalid:
        # Somebody wrote bytes that are not text: those lines are nothing that a mark says.
        return pa.array([line.decode(errors="replace") for line in lines.to_pylist()], pa.string())


class Missing:
    """Copies of some ledgers that are not there."""

    def __init__(self, ledgers: pa.Table, names: pa.Array) -> None:
        self._ledgers = LedgerRows(ledgers)
        self._names = names
        self._marked: list[tuple[Ints, Ints]] = []
        self._inventories: list[tuple[int, KeyedGroups]] = []

    def add_marks(self, marked: pa.Table) -> None:
        """Take marks: rows of `MARKED`."""
        row = self._ledgers.find(marked)
        bookie = pc.fill_null(pc.index_in(marked["bookie"], value_set=self._names), -1).to_numpy().astype(np.int64)
        known = (row >= 0) & (bookie >= 0)
        self._marked.append((row[known], bookie[known]))

    def add_inventory(self, inventory: Dataset, buckets: range) -> None:
        """Take what an inventory shows; of a bookie that was not read completely nothing is believed to be absent."""
        read = inventory.read("bookies", columns=["bookie", "complete"])
        for row in read.to_pylist():
            number = pc.index_in(pa.scalar(row["bookie"]), value_set=self._names).as_py()
            if not row["complete"] or number is None:
                continue
            copies = inventory.read("copies", buckets=buckets, columns=["scope", "ledger", "bookie", "groups"])
            copies = copies.filter(pc.equal(copies["bookie"], row["bookie"]))
            ledger = self._ledgers.find(copies)
            groups = from_arrow(copies["groups"])
            keyed = KeyedGroups(ledger[groups.key], *groups[1:])
            kept = keyed.key >= 0
            keyed = KeyedGroups(*(column[kept] for column in keyed))
            order = np.argsort(keyed.key, kind="stable")
            self._inventories.append((number, KeyedGroups(*(column[order] for column in keyed))))

    def find_floors(self, segments: Segments) -> tuple[Ints, States]:
        """Return the segments that miss copies, and their floors as `judge` takes them."""
        size, write = segments.shape.ensemble, segments.shape.write
        parts: list[tuple[Ints, Ints, Ints, State]] = []
        for row, bookie in self._marked:
            position, segment = self._find_members(segments, row, bookie)
            parts += [
                (segment, (position - step) % size, np.full(len(segment), step), State.DOWN) for step in range(write)
            ]
        for number, groups in self._inventories:
            parts.append((*_find_absent(segments, number, groups), State.GONE))
        rows = np.unique(np.concatenate([np.zeros(0, np.int64), *(part[0] for part in parts)]))
        floors = np.zeros((size, write, len(rows)), np.int8)
        for segment, residue, place, state in parts:
            np.maximum.at(floors, (residue, place, np.searchsorted(rows, segment)), np.int8(state))
        return rows, floors

    def _find_members(self, segments: Segments, row: Ints, bookie: Ints) -> tuple[Ints, Ints]:
        """Return (position, segment) of bookies in all segments of ledgers."""
        if not len(row):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        known = len(self._names) + 1
        wanted = row * known + bookie
        place = segments.ledger * known + segments.members
        position, segment = np.nonzero(np.isin(place, wanted) & (segments.members >= 0))
        return position, segment


def _find_absent(segments: Segments, bookie: int, groups: KeyedGroups) -> tuple[Ints, Ints, Ints]:
    """Return (segment, residue, step) of what a bookie should hold and does not; of segments that have ended.

    Args:
        segments: of one shape.
        bookie: its number.
        groups: what it holds; keys are rows of ledgers, ascending.
    """
    size, write = segments.shape.ensemble, segments.shape.write
    position, segment = np.nonzero((segments.members == bookie) & (segments.last != NO_END))
    order = np.argsort(segment, kind="stable")
    position, segment = position[order], segment[order]
    counted = _count_by_residue(groups, segments, segment)
    part = segments.select(segment)
    occurs = part.find_residues()
    absent = []
    for step in range(write):
        residue = (position - step) % size
        wanted = np.arange(size)[:, None] == residue
        due = part.count_entries(wanted & occurs)
        lacking = np.flatnonzero((counted[np.arange(len(segment)), residue] < due) & (due > 0))
        absent.append((segment[lacking], residue[lacking], np.full(len(lacking), step)))
    columns = [np.concatenate(column) for column in zip(*absent, strict=True)]
    return columns[0], columns[1], columns[2]


def _count_by_residue(groups: KeyedGroups, segments: Segments, segment: Ints) -> Ints:
    """Return how many entries of each residue groups have inside of segments: (segments, E).

    A group's runs stand at equal distances: at most its first and its last inside a segment are cut. Where the distance
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
    """Return the bookies of inventories, and whether each was read completely."""
    rows = [
        row
        for inventory in inventories
        for row in inventory.read("bookies", columns=["bookie", "complete"]).to_pylist()
    ]
    read: Mapping[str, bool] = {row["bookie"]: row["complete"] for row in rows}
    return dict(read)
