"""The entries of a source: sequence groups of many ledgers, made of pieces, and compared with another source.

Keys are ledger ids. Memory is bounded however many entries a ledger has: entries are laid out a slice at a time.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from recovery.model.groups import KeyedGroups, KeyedRuns, count, group_runs, regroup, run_counts, union

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

GROUP_WIDTH: Final = len(KeyedGroups._fields)
"""Columns of groups as a matrix."""
_SLICE: Final = 1 << 20
"""Runs or entries that are laid out at a time."""
_SETTLED: Final = 4
"""After so many runs at one distance, earlier runs do not affect the grouping of the rest."""
_LOOKED_AT: Final = 512
"""Fewest elements that show a pattern."""
PATTERNS: Final = 8
"""Most patterns in one array; with more, runs one by one cost less."""


def pick_groups(groups: KeyedGroups, rows: slice | Ints | Mask) -> KeyedGroups:
    """Return some of the groups."""
    return KeyedGroups(*(column[rows] for column in groups))


def to_rows(groups: KeyedGroups) -> Ints:
    """Return groups as a matrix, the ledger first."""
    return np.column_stack(groups)


def from_rows(rows: Ints) -> KeyedGroups:
    """Return the groups of a matrix; further columns are left out."""
    return KeyedGroups(*(np.ascontiguousarray(rows[:, n]) for n in range(GROUP_WIDTH)))


def join_groups(parts: Sequence[KeyedGroups]) -> KeyedGroups:
    """Return all parts, concatenated."""
    columns = zip(*(parts or (from_rows(np.empty((0, GROUP_WIDTH), np.int64)),)), strict=True)
    return KeyedGroups(*(np.concatenate(column) for column in columns))


NO_GROUPS: Final = join_groups([])


def find_starts(values: Ints) -> Ints:
    """Mark elements that differ from the one before; the first one is marked."""
    return np.flatnonzero(np.append(True, values[1:] != values[:-1])) if len(values) else np.empty(0, np.int64)


class Grouper:
    """Groups runs that arrive piece by piece as if they had come all at once.

    A ledger's runs come together and ascending; the first of a piece may begin where the one before it ended.
    """

    def __init__(self) -> None:
        self._open = KeyedRuns(*(np.empty(0, np.int64) for _ in range(3)))
        self._first = 0

    def feed(self, runs: KeyedRuns) -> KeyedGroups:
        """Add runs; return the groups that are complete."""
        return self._take(runs, end=False)

    def feed_groups(self, groups: KeyedGroups) -> KeyedGroups:
        """Add the runs of groups, as `feed` does, at a cost independent of their number.

        Args:
            groups: their runs as `feed` takes them; the groups need not be those that the rule would make.
        """
        parts = []
        for key, first, last, size, period in zip(*(column.tolist() for column in groups), strict=True):
            first_runs = 0
            if not self._continues(key, first, size, period):
                first_runs = min((last - first) // max(period, 1) + 1, _SETTLED)
                starts = first + np.arange(first_runs) * period
                parts.append(self.feed(KeyedRuns(np.full(first_runs, key), starts, np.full(first_runs, size))))
            # Only the last three are held: two of the open group, and one that may still grow. The others just follow.
            rest = last - first - (first_runs - 1) * period
            if rest:
                self._open = self._open._replace(first=self._open.first + rest)
        return join_groups(parts) if parts else NO_GROUPS

    def _continues(self, key: int, first: int, size: int, period: int) -> bool:
        """Whether a run is the next one of the open group, which has three or more."""
        keys, firsts, sizes = (column.tolist() for column in self._open)
        firsts_expected = [first - 3 * period, first - 2 * period, first - period]
        return period > 0 and (keys, firsts, sizes) == ([key] * 3, firsts_expected, [size] * 3)

    def end(self) -> KeyedGroups:
        """Return the remaining groups."""
        return self._take(KeyedRuns(*(column[:0] for column in self._open)), end=True)

    def _take(self, runs: KeyedRuns, *, end: bool) -> KeyedGroups:
        carried = len(self._open.key)
        joined_runs = KeyedRuns(*(np.concatenate(pair) for pair in zip(self._open, runs, strict=True)))
        joined_runs = _join_runs(joined_runs, carried)
        # The last run may go on, so it is held back. Of the open group before it the last two runs say all that the
        # rule asks; where the group really began is remembered.
        ready = KeyedRuns(*(column if end else column[:-1] for column in joined_runs))
        starts, first, last, size, period = regroup(*ready)
        if len(starts) and carried > 1:
            first[0] = self._first
        groups = KeyedGroups(ready.key[starts], first, last, size, period)
        if end:
            self._open = KeyedRuns(*(column[:0] for column in joined_runs))
            return groups
        if not len(starts):
            self._open = joined_runs
            return groups
        self._first = int(first[-1])
        keep = max(int(starts[-1]), len(ready.key) - 2)
        self._open = KeyedRuns(*(column[keep:] for column in joined_runs))
        return pick_groups(groups, slice(-1))


def _join_runs(runs: KeyedRuns, row: int) -> KeyedRuns:
    """Return the runs with the one at a place joined to the one before it, if they are consecutive."""
    if not 0 < row < len(runs.key):
        return runs
    key, first, size = runs
    if key[row] != key[row - 1] or first[row] != first[row - 1] + size[row - 1]:
        return runs
    size[row - 1] += size[row]
    return KeyedRuns(np.delete(key, row), np.delete(first, row), np.delete(size, row))


def sort_groups(groups: KeyedGroups) -> KeyedGroups:
    """Return the same entries as one sorted list of groups a ledger: without doubles, neighbours joined."""
    order = np.lexsort((groups.first, groups.key))
    groups = pick_groups(groups, order)
    starts = find_starts(groups.key)
    several = np.diff(np.append(starts, len(groups.key))) > 1
    if not several.any():
        return groups
    alone = np.repeat(~several, np.diff(np.append(starts, len(groups.key))))
    parts = [pick_groups(groups, alone)]
    rest = pick_groups(groups, ~alone)
    starts = find_starts(rest.key)
    runs = np.cumsum(np.add.reduceat(run_counts(rest.first, rest.last, rest.period), starts)) // _SLICE
    edges = [*starts[find_starts(runs)].tolist(), len(rest.key)]
    parts.extend(union(pick_groups(rest, slice(low, high))) for low, high in pairwise(edges))
    all_groups = join_groups(parts)
    return pick_groups(all_groups, np.lexsort((all_groups.first, all_groups.key)))


def list_entries(groups: KeyedGroups, limit: int = _SLICE) -> Iterator[tuple[Ints, Ints]]:
    """Yield (ledger, entry) of every entry in the order of the groups, in pieces."""
    counts = count(*groups[1:])
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    for low in range(0, total, limit):
        high = min(low + limit, total)
        rows = slice(int(np.searchsorted(ends, low, "right")), int(np.searchsorted(ends, high)) + 1)
        base = ends[rows] - counts[rows]
        group_of = np.repeat(np.arange(rows.start, rows.stop), np.minimum(ends[rows], high) - np.maximum(base, low))
        item = np.arange(low, high) - base[group_of - rows.start]
        size = groups.size[group_of]
        yield groups.key[group_of], groups.first[group_of] + item // size * groups.period[group_of] + item % size


def are_members(groups: KeyedGroups, ledger: Ints, entry: Ints) -> Mask:
    """Return which (ledger, entry) pairs the groups have; canonical groups, pairs in any order."""
    low = np.searchsorted(groups.key, ledger, "left")
    high = np.searchsorted(groups.key, ledger, "right")
    start = low
    if not len(groups.key):
        return np.zeros(len(ledger), np.bool_)
    while (seeking := low < high).any():
        middle = (low + high) // 2
        below = seeking & (groups.first[np.minimum(middle, len(groups.key) - 1)] <= entry)
        low = np.where(below, middle + 1, low)
        high = np.where(seeking & ~below, middle, high)
    row = np.maximum(low - 1, 0)
    behind = entry - groups.first[row]
    in_run = np.where(groups.period[row] > 0, behind % np.maximum(groups.period[row], 1), behind)
    return (low > start) & (in_run < groups.size[row]) & (entry - groups.last[row] < groups.size[row])


def subtract_groups(groups: KeyedGroups, without: KeyedGroups) -> KeyedGroups:
    """Return the groups of the entries that the first has and the second has not; both canonical."""
    shared = np.isin(groups.key, without.key)
    if not shared.any():
        return groups
    grouper = Grouper()
    parts = [pick_groups(groups, ~shared)]
    for ledger, entry in list_entries(pick_groups(groups, shared)):
        kept = ~are_members(without, ledger, entry)
        parts.append(grouper.feed(make_runs(ledger[kept], entry[kept])))
    parts.append(grouper.end())
    all_groups = join_groups(parts)
    return pick_groups(all_groups, np.lexsort((all_groups.first, all_groups.key)))


def make_runs(ledger: Ints, entry: Ints) -> KeyedRuns:
    """Return the runs of entries that ascend within each ledger; a ledger's are together, doubles count once."""
    begins = np.ones(len(entry), np.bool_)
    np.greater(entry[1:] - entry[:-1], 1, out=begins[1:])
    begins[1:] |= ledger[1:] != ledger[:-1]
    starts = np.flatnonzero(begins)
    last = entry[np.append(starts[1:], len(entry))[: len(starts)] - 1]
    return KeyedRuns(ledger[starts], entry[starts], last - entry[starts] + 1)


def find_patterns(is_stored: Mask, key: int, first: int) -> KeyedGroups | None:
    """Return the entries as few groups, in order; None if they have too many patterns.

    Their runs are all there is, but where one pattern ends and the next begins two of them may touch.

    Args:
        is_stored: whether each entry is.
        key: of all.
        first: the entry of the first element.
    """
    patterns: list[tuple[int, int, int, int, int]] = []
    position, end = 0, len(is_stored)
    while True:
        position += int(is_stored[position:].argmax()) if position < end else 0
        if position >= end or not is_stored[position]:
            return from_rows(np.array(patterns, np.int64).reshape(-1, GROUP_WIDTH))
        if len(patterns) == PATTERNS:
            return None
        front = is_stored[position : position + _LOOKED_AT]
        edges = np.flatnonzero(front[1:] != front[:-1])[:2] + 1
        if len(edges) < 2:  # one run; its end may not be seen yet
            size = int(edges[0]) if len(edges) else _measure_run(is_stored[position:])
            patterns.append((key, first + position, first + position, size, 0))
            position += size
            continue
        size, period = edges.tolist()
        repeats = _measure_run(is_stored[position + period :] == is_stored[position:-period])
        runs = (period + repeats - size) // period + 1
        last = position + (runs - 1) * period
        patterns.append((key, first + position, first + last, size, period if runs > 1 else 0))
        position = last + size


def _measure_run(values: Mask) -> int:
    """Return how many elements from the first on are true."""
    stop = int(values.argmin())
    return len(values) if values[stop] else stop


def to_groups(ledger: Ints, entry: Ints) -> KeyedGroups:
    """Return the groups of pairs in any order, doubles once."""
    order = np.lexsort((entry, ledger))
    return group_runs(make_runs(ledger[order], entry[order]))
