"""Cheapest segments of one ledger, which may begin where some bookie begins or stops to hold entries.

The cheapest bookies of one segment are an assignment of bookies to positions, the cheapest cuts a dynamic programme:

    a segment                              1.5
    a copy that a member lacks             1, at most 3 a member and segment
    a copy that no position explains       0.9, at most 6 a bookie and segment; 0.05 and 0.5 for one that was copied to

A change therefore explains a bookie that stops where another begins, not a single entry that strayed or was lost; and a
bookie that lost much of its share stays a member. Many ledgers are weighed side by side, and of each only what may be
part of its cheapest history; the time that one may take is bounded. See `docs/design/0006-whole-method.md`.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from recovery.infer.assignment import linear_sum_assignment
from recovery.infer.copies import Holdings, Ints, Mask, heads, numbered, starts
from recovery.model.groups import KeyedGroups, KeyedRuns, count, group_runs, rank, run_counts, to_runs, within

Floats = npt.NDArray[np.float64]
NOBODY: Final = -1
SEGMENT: Final = 1.5
ABSENCE: Final = 1.0
ABSENCES: Final = 3.0
EXTRA: Final = 0.9
EXTRAS: Final = 6.0
COPIED_EXTRA: Final = 0.05
COPIED_EXTRAS: Final = 0.5
WIPED: Final = 2.0
"""So much less it costs that positions have no bookie where one may have lost it: less than an unsupported shape."""
_CUTS: Final = 160
"""Places where segments may begin: half as many squared are the intervals that are weighed."""
_WEIGHED: Final = 1 << 20
"""Cuts times bookies times positions that are weighed: some seconds."""
_ASSIGNMENTS: Final = 10_000
"""Assignments that one ledger and shape may take: half a second."""
_AT_ONCE: Final = 1 << 17
"""Intervals times bookies times positions that are weighed at a time: columns that stay beside the processor."""
_FIRST: Final = 8
"""Cuts that are weighed at a time."""
_STRETCH: Final = 64
"""Entries that are weighed first: most shapes cost too much there already."""
_TOGETHER: Final = 512
"""Problems that are weighed side by side."""
_PADDED: Final = (5, 7, 11, 15)
"""Rows that a problem is filled up to, where it has fewer."""
_MAIN: Final = 14
"""The likeliest cuts: what segments there cost, the cheapest ones need not exceed."""
_FEW: Final = 18
"""Cuts of which the likeliest are not looked at by themselves."""
_EXACT: Final = 1e-9
"""More than what the order of adding changes."""
_SMALL: Final = 256
"""Ensembles up to this size have their round counted once."""
_IN_PAIRS: Final = 8
"""Numbers side by side that NumPy adds up in pairs; fewer one after the other."""
_TINY: Final = 1e-3
"""Less than any difference in cost: a position that a bookie fits better in the whole ledger goes first."""


class Copies(NamedTuple):
    """One ledger: who holds what.

    Attributes:
        bookie: number of each row's bookie.
        copied: rows that re-replication made, at least in part.
        groups: their keys are row numbers; ascending and disjoint in a row.
    """

    bookie: Ints
    copied: Mask
    groups: KeyedGroups

    @classmethod
    def of(cls, held: Holdings, rows: slice, row_bookie: Ints, row_copied: Mask) -> "Copies":
        """Return one ledger's rows of a batch."""
        low, high = np.searchsorted(held.group_row, [rows.start, rows.stop])
        groups = KeyedGroups(
            held.group_row[low:high] - rows.start,
            *(column[low:high] for column in (held.first, held.last, held.size, held.period)),
        )
        return cls(row_bookie[rows], row_copied[rows], groups)

    @classmethod
    def each(cls, held: Holdings, bookie: Ints, copied: Mask) -> "list[Copies]":
        """Return each ledger of a batch, grouped as `until` does; bookie and copied are of its rows."""
        groups = KeyedGroups(held.group_row, held.first, held.last, held.size, held.period)
        # A group goes on with a run of its size where it has one only, or it keeps its distance.
        joins = (groups.key[1:] == groups.key[:-1]) & (groups.size[1:] == groups.size[:-1])
        joins &= (groups.period[:-1] == 0) | (groups.first[1:] - groups.last[:-1] == groups.period[:-1])
        anew = np.zeros(len(held.row_ledger), np.bool_)
        anew[groups.key[1:][joins]] = True
        anew = anew[groups.key]
        parts = KeyedGroups(*(c[~anew] for c in groups)), group_runs(to_runs(KeyedGroups(*(c[anew] for c in groups))))
        groups = KeyedGroups(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        groups = KeyedGroups(*(column[np.argsort(groups.key, kind="stable")] for column in groups))
        row = np.searchsorted(held.row_ledger, np.arange(held.ledgers + 1))
        ends = zip(
            itertools.pairwise(row.tolist()), itertools.pairwise(np.searchsorted(groups.key, row).tolist()), strict=True
        )
        return [
            cls(bookie[low:high], copied[low:high], KeyedGroups(groups.key[a:b] - low, *(c[a:b] for c in groups[1:])))
            for (low, high), (a, b) in ends
        ]

    @property
    def runs(self) -> int:
        """How many runs there are."""
        return int(run_counts(self.groups.first, self.groups.last, self.groups.period).sum())

    @property
    def entries(self) -> int:
        """How many copies there are."""
        return int(count(*self.groups[1:]).sum())

    def until(self, end: int) -> "Copies":
        """Return what there is up to an entry, grouped anew; rows that have nothing stay."""
        return self._replace(groups=group_runs(within(self.groups, 0, end)))


class Candidate(NamedTuple):
    """A shape that a ledger may have; `penalty` says how much speaks against it, `shown` that copies are striped so."""

    ensemble: int
    write: int
    penalty: float
    shown: bool = False


class Lost(Enum):
    """Why a bookie that a shape needs may be missing."""

    NOTHING = "nothing"
    """All bookies kept what they got."""
    WIPED = "wiped"
    """Some bookie may have lost all that it had."""
    UNSEEN = "unseen"
    """Some bookie was not scanned, or not completely."""


class Problem(NamedTuple):
    """One ledger and one shape that it may have.

    Attributes:
        number: of the ledger in `Cases`.
        copies: what bookies hold, none above the end.
        end: the last entry.
        candidate: the shape.
        limit: what is of no use if it costs more, the shape's penalty included.
        lost: why a bookie may be missing.
    """

    number: int
    copies: Copies
    end: int
    candidate: Candidate
    limit: float = np.inf
    lost: Lost = Lost.UNSEEN

    @property
    def left(self) -> float:
        """What segments may cost."""
        return self.limit - self.candidate.penalty + WIPED * (self.lost is Lost.WIPED)


class Path(NamedTuple):
    """The cheapest segments of one problem.

    Attributes:
        cost: without the penalty.
        first: of each segment.
        members: (segments, E): rows or NOBODY.
        shares: how many entries each row holds of each position: (segments, rows, E); of one where W = E.
    """

    cost: float
    first: Ints
    members: Ints
    shares: Ints


def cheapest(cases: "Cases", problems: Sequence[Problem]) -> list[Path | None]:
    """Find the cheapest segments of each problem; None where they cost, or would take, too much."""
    found: list[Path | None] = [None] * len(problems)
    alike: dict[tuple[int, int, int], list[int]] = {}
    for at in np.flatnonzero(_hopeful(cases, problems)).tolist():
        number, (ensemble, write) = problems[at].number, problems[at].candidate[:2]
        rows, cuts = len(problems[at].copies.bookie), int(cases.begin[number + 1] - cases.begin[number])
        if cuts * rows * (ensemble if write < ensemble else 1) <= _WEIGHED:
            # So many rows are added up in one order, so that empty ones beside them change nothing.
            few = next((n for n in _PADDED if rows <= n), rows)
            alike.setdefault((ensemble, write, few), []).append(at)
    for (ensemble, write, rows), some in alike.items():
        for low in range(0, len(some), _TOGETHER):
            part = some[low : low + _TOGETHER]
            limit = np.array([problems[at].left for at in part])
            ledgers = np.array([problems[at].number for at in part])
            paths = _Weighed.of(cases, ledgers, limit, ensemble, write, rows).cheapest()
            for at, path in zip(part, paths, strict=True):
                found[at] = path
    return found


def _hopeful(cases: "Cases", problems: Sequence[Problem]) -> Mask:
    """Say which problems may cost so little, as far as one stretch of entries shows, in which no segment begins.

    It lies in some segment, which holds no fewer entries and costs no less.
    """
    limit = np.array([problem.left for problem in problems])
    size = np.array([problem.candidate.ensemble for problem in problems])
    hopeful: Mask = np.isinf(limit) | (size > _STRETCH)
    tried = np.flatnonzero(~hopeful)
    if not len(tried):
        return hopeful
    tried = tried[np.argsort(size[tried])]
    length = np.append(np.diff(cases.cuts), 0)
    length[cases.begin[1:] - 1] = -1
    widest = np.maximum.reduceat(length, cases.begin[:-1])
    at = np.flatnonzero(length == np.repeat(widest, np.diff(cases.begin)))
    at = at[heads(np.searchsorted(cases.begin, at, "right"))]
    low, width = cases.cuts[at], np.minimum(widest, _STRETCH)
    of_row = np.repeat(np.arange(len(low)), np.diff(cases.row))
    groups = cases.groups
    shift = low[of_row[groups.key]]
    moved = groups._replace(first=groups.first - shift, last=groups.last - shift)
    holds = laid_out(within(moved, 0, _STRETCH - 1), len(of_row), _STRETCH)
    entry = np.arange(_STRETCH)
    holds &= entry < width[of_row, None]
    step = max(1, 8 * _AT_ONCE // (_STRETCH * max(int(np.diff(cases.row).max(initial=1)), _STRETCH)))
    for part in np.split(tried, range(step, len(tried), step)):
        ledger = np.array([problems[at].number for at in part.tolist()], np.int64)
        shape = np.array([problems[at].candidate[:2] for at in part.tolist()], np.int64).reshape(-1, 2)
        ensemble, write = shape[:, 0], shape[:, 1]
        position = np.arange(ensemble.max(initial=1))
        row, own = cases.rows_of(ledger, int(np.diff(cases.row)[ledger].max(initial=1)))
        residue = (low[ledger, None] + entry) % ensemble[:, None]
        due = (position - residue[:, :, None]) % ensemble[:, None, None] < write[:, None, None]
        due &= (position < ensemble[:, None])[:, None] & (entry < width[ledger, None])[:, :, None]
        held = holds[row] & own[:, :, None]
        fits = held.astype(np.float32) @ due.astype(np.float32)
        count, absent = held.sum(axis=2), np.minimum(ABSENCE * due.sum(axis=1), ABSENCES)
        each, most = cases.extras(row, write[:, None], ensemble[:, None])
        alone = np.minimum(each * count, most)
        gain = absent[:, None] - np.minimum(ABSENCE * (due.sum(axis=1)[:, None] - fits), ABSENCES) + alone[:, :, None]
        gain -= np.minimum(each[:, :, None] * (count[:, :, None] - fits), most[:, :, None])
        gain[fits <= 0] = 0.0
        saved = np.minimum(gain.max(axis=1).sum(axis=1), gain.max(axis=2).sum(axis=1))
        cost = SEGMENT + alone.sum(axis=1) + absent.sum(axis=1) - saved
        hopeful[part] = cost <= limit[part] + _TINY * ensemble + _EXACT
    return hopeful


class Cases(NamedTuple):
    """Ledgers that are solved together: who holds what, and where segments may begin.

    Attributes:
        row: of each ledger, its first row; the last one is the number of rows.
        copied: rows that re-replication made, at least in part.
        beside: rows of ledgers that have such a row.
        longest: of each row, its longest run.
        groups: of all rows; keys are their numbers.
        begin: of each ledger, its first cut; the last one is the number of cuts.
        cuts: ascending from 0 to the place behind the last entry.
        main: the likeliest cuts.
    """

    row: Ints
    copied: Mask
    beside: Mask
    longest: Ints
    groups: KeyedGroups
    begin: Ints
    cuts: Ints
    main: Mask

    @classmethod
    def of(cls, copies: Sequence[Copies], end: Sequence[int]) -> "Cases":
        """Take some ledgers and their last entries: a segment may begin where some bookie comes or goes."""
        row = np.append(0, np.cumsum([len(some.bookie) for some in copies]))
        groups = KeyedGroups(
            *(np.concatenate(column) for column in zip(*(some.groups for some in copies), strict=True))
        )
        groups = groups._replace(key=groups.key + np.repeat(row[:-1], [len(some.groups.key) for some in copies]))
        longest = np.zeros(row[-1], np.int64)
        np.maximum.at(longest, groups.key, groups.size)
        copied = np.concatenate([some.copied for some in copies])
        beside = np.repeat([bool(some.copied.any()) for some in copies], np.diff(row))
        ledger = np.repeat(np.arange(len(copies)), np.diff(row))[groups.key]
        return cls(row, copied, beside, longest, groups, *_cuts(groups, ledger, np.array(end)))

    def rows_of(self, ledgers: Ints, most: int) -> tuple[Ints, Mask]:
        """Return the rows of some ledgers, and where there are fewer, which are none: (ledgers, most)."""
        begin, behind = self.row[ledgers, None], self.row[ledgers + 1, None]
        row = begin + np.arange(most)
        return np.minimum(row, behind - 1), row < behind

    def extras(self, row: Ints, write: Ints | int, ensemble: Ints | int) -> tuple[Floats, Floats]:
        """Return what a copy of each of some rows costs that is not explained, and at most."""
        # What was copied while the ledger was open has a lower LAC, and shows by its width alone.
        wide = (self.longest[row] > write) & np.less(write, ensemble)
        marked = self.beside[row] & (self.copied[row] | wide)
        return np.where(marked, COPIED_EXTRA, EXTRA), np.where(marked, COPIED_EXTRAS, EXTRAS)


def _cuts(groups: KeyedGroups, ledger: Ints, end: Ints) -> tuple[Ints, Ints, Mask]:
    """Return where segments may begin, as `Cases` has it: where some bookie comes or goes, the longest away first."""
    # Inside a group of equal distances nobody comes or goes; two runs are at equal distances by chance.
    few = run_counts(groups.first, groups.last, groups.period) == 2
    begin = np.concatenate([groups.first, groups.last[few]])
    behind = np.concatenate([groups.last + groups.size, (groups.first + groups.size)[few]])
    head = heads(groups.key)
    tail = np.append(head[1:], True)[: len(head)]
    gap = np.where(head, end[ledger] + 1, groups.first - np.append(0, behind[: len(head)][:-1])[: len(head)])
    after = np.where(tail, end[ledger] + 1, np.append(gap[1:], 0)[: len(gap)])
    places = np.concatenate([begin, behind])
    weight = np.concatenate([gap, gap[few], after, gap[few]])
    of = np.concatenate([ledger, ledger[few], ledger, ledger[few]])
    inside = np.flatnonzero((places > 0) & (places <= end[of]))
    inside = inside[np.lexsort((-weight[inside], of[inside]))]
    nth = numbered(of[inside])
    inside, nth = inside[nth < _CUTS], nth[nth < _CUTS]
    every = np.arange(len(end))
    of = np.concatenate([every, every, of[inside]])
    places = np.concatenate([np.zeros(len(end), np.int64), end + 1, places[inside]])
    likely = np.append(np.ones(2 * len(end), np.bool_), nth < _MAIN)
    order = np.lexsort((places, of))
    first = np.flatnonzero(heads(of[order], places[order]))
    main = np.logical_or.reduceat(likely[order], first)
    chosen = order[first]
    return np.searchsorted(of[chosen], np.arange(len(end) + 1)), places[chosen], main


class _Known(NamedTuple):
    """What is known of the cells of `_Weighed` so far.

    Attributes:
        best: the cost up to each, inf where that is no use.
        came: the cell that its last segment begins at.
        left: assignments that each problem may still take; below 0 it is given up.
        assigned: members by cell, where they had to be assigned.
    """

    best: Floats
    came: Ints
    left: Ints
    assigned: dict[int, Ints]

    @classmethod
    def of(cls, begin: Ints) -> "_Known":
        """Begin with nothing but the first cell of each problem."""
        best = np.full(begin[-1], np.inf)
        best[begin[:-1]] = 0.0
        return cls(best, np.zeros(begin[-1], np.int64), np.full(len(begin) - 1, _ASSIGNMENTS), {})


@dataclass(frozen=True, slots=True)
class _Weighed:
    """Counts of copies below each cut, from which intervals between two cuts are weighed; of problems of one shape.

    All have as many rows; what a problem has fewer are rows without entries. A cell is a cut of a problem; those of one
    problem follow each other.

    Attributes:
        ensemble, write: the shape.
        begin: of each problem, its first cell; the last one is the number of cells.
        rows: of each problem.
        limit: of each problem, what is of no use if it costs more.
        cuts, main: of each cell.
        held: (rows, cells): entries of each row.
        fits: (rows, E, cells): entries of each row that belong to each position; (rows, 1, cells) where W = E.
        due: (positions as in fits, cells): entries that belong to each position.
        taste: (rows, positions, problems): how well a row fits a position in the whole ledger, far below any cost.
        each, most: (rows, problems): what a copy that is not explained costs, and at most.
    """

    ensemble: int
    write: int
    begin: Ints
    rows: Ints
    limit: Floats
    cuts: Ints
    main: Mask
    held: Ints
    fits: Ints
    due: Ints
    taste: Floats
    each: Floats
    most: Floats

    @classmethod
    def of(cls, cases: Cases, ledgers: Ints, limit: Floats, ensemble: int, write: int, rows: int) -> "_Weighed":
        """Count the copies of some ledgers below each cut; none of them has more than so many rows."""
        striped = write < ensemble
        count = np.diff(cases.begin)[ledgers]
        begin = np.append(0, np.cumsum(count))
        cells = np.repeat(cases.begin[ledgers] - begin[:-1], count) + np.arange(begin[-1])
        cuts = cases.cuts[cells]
        row, own = cases.rows_of(ledgers, rows)
        held, fits = below(cases.groups, np.repeat(row.T, count, axis=1), cuts, ensemble, write)
        there = np.repeat(own.T, count, axis=1)
        held *= there
        fits *= there[:, None]
        due = np.ascontiguousarray(ranks(cuts[:, None], ensemble, write).T) if striped else cuts[None]
        last = begin[1:] - 1
        taste = _TINY * fits[:, :, last] / np.maximum(held[:, last], 1)[:, None]
        each, most = cases.extras(row.T, write, ensemble)
        return cls(
            ensemble, write, begin, np.diff(cases.row)[ledgers], limit, cuts, cases.main[cells], held, fits, due,
            taste, each, most,
        )  # fmt: skip

    def cheapest(self) -> list[Path | None]:
        """Return the cheapest segments of each problem, None where they cost or take too much."""
        of = np.repeat(np.arange(len(self.limit)), np.diff(self.begin))
        ends = self._ends(of)
        free = np.isinf(self.limit)
        # One segment, or two, are no cheaper than the cheapest: they say which cuts need not be looked at.
        ceiling = np.where(free, np.minimum.reduceat(ends[2] + ends[3], self.begin[:-1]), self.limit)
        near = ends[0] + ends[1] <= self._highest(ceiling)[of]
        large = free & (np.bincount(of[near], minlength=len(free)) > _FEW)
        if large.any():
            # Neither are segments at the likeliest cuts.
            cells = np.flatnonzero(near & self.main & large[of])
            main = self._only(cells)
            known = main.paths(ceiling[large], ends[:, cells])
            cost = np.where(known.left < 0, np.inf, known.best[main.begin[1:] - 1])
            ceiling[large] = np.minimum(ceiling[large], cost)
            near &= ends[0] + ends[1] <= self._highest(ceiling)[of]
        cells = np.flatnonzero(near | np.isin(np.arange(len(of)), [self.begin[:-1], self.begin[1:] - 1]))
        few = self._only(cells)
        known = few.paths(ceiling, ends[:, cells])
        solved = np.flatnonzero((known.best[few.begin[1:] - 1] <= self.limit) & (known.left >= 0))
        found: list[Path | None] = [None] * len(ceiling)
        for at, path in zip(solved.tolist(), few.followed(solved, known), strict=True):
            found[at] = path
        return found

    def _highest(self, ceiling: Floats) -> Floats:
        """Return what costs too much; more entries never cost less, but for the taste."""
        highest: Floats = ceiling + 3 * _TINY * self.ensemble + _EXACT
        return highest

    def _ends(self, of: Ints) -> Floats:
        """Weigh the intervals up to each cell, and from it to the end; of: the problem that it is of.

        Returns:
            What comes before it, and what follows it, costs at least: one segment, or two or more; and what one segment
            up to it, and one from it, costs: inf where that is not known. (4, cells).
        """
        cells, last = np.arange(len(of)), self.begin[1:] - 1
        bound, sure = np.zeros((2, len(of))), np.ones((2, len(of)), np.bool_)
        for low in range(0, len(of), step := max(1, _AT_ONCE // self.fits[:, :, 0].size)):
            part = slice(low, low + step)
            mine = of[part]
            for side, (begins, ends) in enumerate(((self.begin[mine], cells[part]), (cells[part], last[mine]))):
                base, gain = self._weigh(mine, begins, ends)
                saved, sure[side, part] = self._bound(gain)
                bound[side, part] = base - saved
        bound[0, self.begin[:-1]] = bound[1, last] = 0.0
        two = 2 * (SEGMENT - _TINY * self.ensemble)
        return np.concatenate([np.minimum(bound, two), np.where(sure, bound, np.inf)])

    def _only(self, cells: Ints) -> "_Weighed":
        """Return the problems that some cells are of, with these alone."""
        of = np.searchsorted(self.begin, cells, "right") - 1
        begin = np.append(np.flatnonzero(heads(of)), len(cells))
        some = of[begin[:-1]]
        return replace(
            self,
            begin=begin,
            rows=self.rows[some],
            limit=self.limit[some],
            cuts=self.cuts[cells],
            main=self.main[cells],
            held=self.held[:, cells],
            fits=self.fits[:, :, cells],
            due=self.due[:, cells],
            taste=self.taste[:, :, some],
            each=self.each[:, some],
            most=self.most[:, some],
        )

    def paths(self, ceiling: Floats, bounds: Floats) -> "_Known":
        """Weigh the intervals that may be part of what costs no more than a ceiling.

        More entries never cost less, but for the taste: an interval that costs too much is not made longer.

        Args:
            ceiling: of each problem.
            bounds: as `_ends` gives them.
        """
        count = np.diff(self.begin)
        known = _Known.of(self.begin)
        best, highest = known.best, self._highest(ceiling)
        one = SEGMENT - _TINY * self.ensemble
        before, after, first, final = bounds
        alive = np.arange(len(count))
        of, start = alive[:0], alive[:0]
        behind = 1
        while len(alive):
            room = _AT_ONCE // (self.fits[:, :, 0].size * (len(of) + len(alive)))
            steps = max(1, min(_FIRST, room))
            # Cells that the intervals of this turn may begin at, beside those that may be made longer.
            fresh = self.begin[alive][:, None] + np.arange(behind - 1, behind - 1 + steps)
            useful = fresh < self.begin[alive + 1][:, None] - 1
            fresh[~useful] = 0
            reach = before[fresh]
            reach[:, 0] = best[fresh[:, 0]]
            useful &= reach + after[fresh] <= highest[alive][:, None]
            of = np.append(of, np.repeat(alive, useful.sum(axis=1)))
            start = np.append(start, fresh[useful])
            order = np.argsort(of, kind="stable")
            of, start = of[order], start[order]
            ends = self.begin[of][:, None] + np.arange(behind, behind + steps)
            valid = (ends > start[:, None]) & (ends < self.begin[of + 1][:, None])
            ends = np.where(valid, ends, start[:, None])
            reach = np.where(best[start] < np.inf, best[start], before[start])
            valid &= (reach + one)[:, None] + after[ends] <= highest[of][:, None]
            # Where one segment from the very first entry costs no more, or one up to the end, two need not be weighed.
            valid &= ((reach + one)[:, None] < first[ends]) | (start == self.begin[of])[:, None]
            valid &= (one + after[ends] < final[start, None]) | (ends == self.begin[of + 1][:, None] - 1)
            now = np.flatnonzero(valid.any(axis=1))
            lowest = np.full(len(of), -np.inf)
            head = np.append(starts(of[now]), len(now))
            base, gain = self._weigh(of[now, None], start[now, None], ends[now])
            bound, sure = self._bound(gain)
            for step in range(steps if len(now) else 0):
                end, cost = ends[now, step], best[start[now]] + base[:, step]
                least = np.where(valid[now, step], cost - bound[:, step], -np.inf)
                cheap = np.where(valid[now, step] & (least + after[end] <= highest[of[now]]), least, np.inf)
                self._settle(known, head, start[now], end, base[:, step], cheap, sure[:, step], gain[..., step])
                lowest[now] = np.maximum(lowest[now], least)
            behind += steps
            kept = (lowest <= highest[of]) & (count[of] > behind) & (known.left[of] >= 0)
            kept &= best[start] + after[start] <= highest[of]
            of, start = of[kept], start[kept]
            alive = alive[(count[alive] > behind) & (known.left[alive] >= 0)]
            more = best[self.begin[alive] + behind - 1] + one <= highest[alive]
            alive = alive[more | np.isin(alive, of)]
        return known

    def _settle(
        self,
        known: "_Known",
        head: Ints,
        start: Ints,
        ends: Ints,
        base: Floats,
        lowest: Floats,
        sure: Mask,
        gain: Floats,
    ) -> None:
        """Choose the cheapest of the intervals that end at one cell of each problem; head: where each one's begin."""
        # Of equals, the earlier one: a newcomer holds nothing from before it came.
        least = np.minimum.reduceat(lowest, head[:-1]) if len(lowest) else lowest
        hit = np.flatnonzero(lowest == np.repeat(np.where(least < np.inf, least, np.nan), np.diff(head)))
        owner = np.searchsorted(head, hit, "right") - 1
        new = heads(owner)
        hit, owner = hit[new], owner[new]
        clear = sure[hit]
        known.best[ends[hit[clear]]], known.came[ends[hit[clear]]] = lowest[hit[clear]], start[hit[clear]]
        for low, high in zip(head[owner[~clear]].tolist(), head[owner[~clear] + 1].tolist(), strict=True):
            problem = int(np.searchsorted(self.begin, start[low], "right")) - 1
            for one in (low + np.argsort(lowest[low:high], kind="stable")).tolist():
                cell = int(ends[one])
                if not lowest[one] < known.best[cell]:
                    break
                cost, who = float(lowest[one]), None
                if not sure[one]:
                    known.left[problem] -= 1
                    if known.left[problem] < 0:
                        break
                    value, who = self._assign(gain[: self.rows[problem], :, one])
                    cost = float(known.best[start[one]] + base[one] - value)
                if cost < known.best[cell]:
                    known.best[cell], known.came[cell] = cost, start[one]
                    known.assigned.pop(cell, None)
                    if who is not None:
                        known.assigned[cell] = who

    def followed(self, some: Ints, known: "_Known") -> list[Path]:
        """Name the members of the cheapest segments of some problems."""
        parts: list[list[int]] = []
        for begin, end in zip(self.begin[some].tolist(), (self.begin[some + 1] - 1).tolist(), strict=True):
            cells = [end]
            while cells[-1] > begin:
                cells.append(int(known.came[cells[-1]]))
            parts.append(cells[::-1])
        of = np.repeat(some, [len(cells) - 1 for cells in parts])
        start, end = (
            np.array([cell for cells in parts for cell in cells[low:high]], np.int64)
            for low, high in ((0, -1), (1, None))
        )
        members = self._best(self._weigh(of, start, end)[1])
        for at, cell in enumerate(end.tolist()):
            if cell in known.assigned:
                members[at] = known.assigned[cell]
        shares = np.moveaxis(self.fits[:, :, end] - self.fits[:, :, start], 2, 0)
        found, at = [], 0
        for own in parts:
            mine = slice(at, at + len(own) - 1)
            at = mine.stop
            found.append(Path(float(known.best[own[-1]]), self.cuts[own[:-1]], members[mine], shares[mine]))
        return found

    def _weigh(self, of: Ints, begins: Ints, ends: Ints) -> tuple[Floats, Floats]:
        """Return, of intervals between two cells, the cost with nobody, and what each row saves at each position.

        Returns:
            As the intervals; (rows, positions, and as these). An interval without entries says nothing.
        """
        held = self.held.take(ends, axis=1)
        held -= self.held.take(begins, axis=1)
        fits = self.fits.take(ends, axis=2)
        fits -= self.fits.take(begins, axis=2)
        due = self.due.take(ends, axis=1)
        due -= self.due.take(begins, axis=1)
        each, most = self.each.take(of, axis=1), self.most.take(of, axis=1)
        alone = np.minimum(each * held, most)
        absent = np.minimum(ABSENCE * due, ABSENCES)
        none = fits <= 0
        gain = np.minimum(ABSENCE * (due - fits), ABSENCES)
        np.subtract(absent, gain, out=gain)
        gain += alone[:, None]
        over = np.subtract(held[:, None], fits, out=fits) * each[:, None]
        gain -= np.minimum(over, most[:, None], out=over)
        gain += self.taste.take(of, axis=2)
        np.copyto(gain, 0.0, where=none)
        positions = self.ensemble if len(self.due) == 1 else 1
        return SEGMENT + _sum(alone) + positions * _sum(absent), gain

    def _bound(self, gain: Floats) -> tuple[Floats, Mask]:
        """Return what the best rows for each position save together, and whether these are not one for two of them."""
        if gain.shape[1] == 1:
            # All positions hold the same: the best rows, in any order.
            value = np.sort(-gain[:, 0], axis=0)[: self.ensemble]
            return -_sum(value), np.ones(value.shape[1:], np.bool_)
        value, top = gain[0].copy(), np.zeros(gain.shape[1:], np.int64)
        for row in range(1, len(gain)):
            better = gain[row] > value
            top[better] = row
            np.maximum(value, gain[row], out=value)
        # Nobody is as good at one place as at the other.
        nobody = -1 - np.arange(len(value)).reshape(-1, *[1] * (value.ndim - 1))
        apart = np.sort(np.where(value > 0, top, nobody), axis=0)
        return _sum(value), (apart[1:] != apart[:-1]).all(axis=0)

    def _best(self, gain: Floats) -> Ints:
        """Return the best row of each position, or NOBODY: (rows, positions, intervals) → (intervals, E)."""
        if gain.shape[1] == 1:
            order = np.argsort(-gain[:, 0], axis=0, kind="stable")[: self.ensemble]
            members = np.full((gain.shape[2], self.ensemble), NOBODY)
            saved = np.take_along_axis(gain[:, 0], order, axis=0)
            members[:, : len(order)] = np.where(saved > 0, order, NOBODY).T
            return members
        top = gain.argmax(axis=0)
        return np.where(np.take_along_axis(gain, top[None], axis=0)[0] > 0, top, NOBODY).T

    def _assign(self, gain: Floats) -> tuple[float, Ints]:
        row, position = linear_sum_assignment(gain, maximize=True)
        value = gain[row, position]
        members = np.full(self.ensemble, NOBODY)
        members[position] = np.where(value > 0, row, NOBODY)
        return float(value.sum()), members


def _sum(columns: Floats) -> Floats:
    """Add up along the first axis, many in pairs: what comes to the same stays equal, whatever it is beside."""
    few = len(columns) < _IN_PAIRS
    added: Floats = columns.sum(axis=0) if few else np.moveaxis(columns, 0, -1).copy().sum(axis=-1)
    return added


def _taken(groups: KeyedGroups, some: Ints | Mask) -> KeyedGroups:
    return KeyedGroups(*(column[some] for column in groups))


def below(groups: KeyedGroups, row: Ints, place: Ints, ensemble: int, write: int) -> tuple[Ints, Ints]:
    """Return how many entries below a place a row has, and how many of these belong to each position.

    Args:
        groups: ascending by row.
        row: (rows, cells).
        place: of each cell.
        ensemble: E.
        write: W.

    Returns:
        (rows, cells), and (rows, positions, cells); there is one position where W = E.
    """
    striped = write < ensemble
    wanted = np.zeros(int(max(groups.key.max(initial=-1), row.max(initial=-1))) + 1, np.bool_)
    wanted[row] = True
    groups = _taken(groups, wanted[groups.key])
    if not len(groups.key):
        return np.zeros_like(row), np.zeros((len(row), ensemble if striped else 1, row.shape[1]), np.int64)
    if striped:
        # Where a group goes on at another distance than the positions do, each run is one of its own.
        odd = (groups.last > groups.first) & (groups.period % ensemble != 0)
        if odd.any():
            runs = to_runs(_taken(groups, odd))
            laid = KeyedGroups(runs.key, runs.first, runs.first, runs.size, np.zeros(len(runs.key), np.int64))
            both = KeyedGroups(*(np.append(a[~odd], b) for a, b in zip(groups, laid, strict=True)))
            groups = _taken(both, np.lexsort((both.first, both.key)))
    count = run_counts(groups.first, groups.last, groups.period)
    # The last group of the row that begins below the place.
    known, code = np.unique(groups.first, return_inverse=True)
    at = np.searchsorted(groups.key * len(known) + code, row * len(known) + np.searchsorted(known, place)) - 1
    begin = np.searchsorted(groups.key, np.arange(len(wanted)))[row]
    there = at >= begin
    at = np.maximum(at, 0)
    runs_below = np.minimum((place - 1 - groups.first[at]) // np.maximum(groups.period, 1)[at] + 1, count[at])
    reach = groups.first[at] + (runs_below - 1) * groups.period[at] + groups.size[at]
    over = np.maximum(reach - place, 0) * there
    sums = np.append(0, np.cumsum(count * groups.size))
    held = (sums[at] - sums[begin] + runs_below * groups.size[at]) * there - over
    if not striped:
        return held, held[:, None]
    each = ranks(groups.first[:, None] + groups.size[:, None], ensemble, write) - ranks(
        groups.first[:, None], ensemble, write
    )
    sums = np.append(np.zeros((1, ensemble), np.int64), np.cumsum(each * count[:, None], axis=0), axis=0)
    fits = (sums[at] - sums[begin] + runs_below[..., None] * each[at]) * there[..., None]
    cut = np.nonzero(over)
    fits[cut] -= ranks(reach[cut][:, None], ensemble, write) - ranks(place[cut[1], None], ensemble, write)
    return held, np.ascontiguousarray(np.moveaxis(fits, 2, 1))


def ranks(below: Ints, ensemble: int, write: int) -> Ints:
    """Return how many entries below each of a column of them belong to each position."""
    if ensemble > _SMALL:
        return rank(below, np.arange(ensemble), np.array(ensemble), np.array(write))
    rounds, rest = np.divmod(below[:, 0], ensemble)
    counted: Ints = (rounds * write)[:, None] + _round(ensemble, write)[rest]
    return counted


@lru_cache(maxsize=256)
def _round(ensemble: int, write: int) -> Ints:
    """Return how many entries below n belong to each position, for each n < E: (E, E)."""
    return rank(np.arange(ensemble)[:, None], np.arange(ensemble), np.array(ensemble), np.array(write))


def laid_out(runs: KeyedRuns, rows: int, entries: int) -> Mask:
    """Return which of so many entries each row holds: (rows, entries)."""
    change = np.zeros((rows, entries + 1), np.int8)
    np.add.at(change, (runs.key, runs.first), 1)
    np.add.at(change, (runs.key, runs.first + runs.size), -1)
    laid: Mask = np.cumsum(change[:, :-1], axis=1, dtype=np.int8) > 0
    return laid
