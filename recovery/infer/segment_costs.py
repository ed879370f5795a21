"""Cheapest segments of one ledger, which may begin where some bookie begins or stops to hold entries.

The cheapest bookies of one segment are an assignment of bookies to positions, the cheapest cuts a dynamic programme:

    a segment                              1.5
    a copy that a member lacks             1, at most 3 a member and segment
    a copy that no position explains       0.9, at most 6 a bookie and segment; 0.05 and 0.5 for one that was copied to

A change therefore explains a bookie that stops where another begins, not a single entry that strayed or was lost; and a
bookie that lost much of its share stays a member. Many ledgers are weighed side by side, and of each only what may be
part of its cheapest history; the time that one may take is bounded. See `docs/design/0006-whole-method.md`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from recovery.infer.assignment import linear_sum_assignment
from recovery.infer.copies import Ints, Mask, heads, starts
from recovery.infer.entry_counts import below, laid_out, ranks
from recovery.infer.segment_cases import NOBODY, Cases, Floats, Lost, Problem
from recovery.model.groups import within

SEGMENT: Final = 1.5
ABSENCE: Final = 1.0
ABSENCES: Final = 3.0
EXTRA: Final = 0.9
EXTRAS: Final = 6.0
COPIED_EXTRA: Final = 0.05
COPIED_EXTRAS: Final = 0.5
WIPED: Final = 2.0
"""So much less it costs that positions have no bookie where one may have lost it: less than an unsupported shape."""
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
_FEW: Final = 18
"""Cuts of which the likeliest are not looked at by themselves."""
_EXACT: Final = 1e-9
"""More than what the order of adding changes."""
_IN_PAIRS: Final = 8
"""Numbers side by side that NumPy adds up in pairs; fewer one after the other."""
_TINY: Final = 1e-3
"""Less than any difference in cost: a position that a bookie fits better in the whole ledger goes first."""


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


def cheapest(cases: Cases, problems: Sequence[Problem]) -> list[Path | None]:
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
            limit = np.array([allowance(problems[at]) for at in part])
            ledgers = np.array([problems[at].number for at in part])
            paths = _Weighed.of(cases, ledgers, limit, ensemble, write, rows).cheapest()
            for at, path in zip(part, paths, strict=True):
                found[at] = path
    return found


def allowance(problem: Problem) -> float:
    """Return what the segments of a problem may cost."""
    return problem.limit - problem.candidate.penalty + WIPED * (problem.lost is Lost.WIPED)


def _hopeful(cases: Cases, problems: Sequence[Problem]) -> Mask:
    """Say which problems may cost so little, as far as one stretch of entries shows, in which no segment begins.

    It lies in some segment, which holds no fewer entries and costs no less.
    """
    limit = np.array([allowance(problem) for problem in problems])
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
        each, most = _extra_costs(cases, row, write[:, None], ensemble[:, None])
        alone = np.minimum(each * count, most)
        gain = absent[:, None] - np.minimum(ABSENCE * (due.sum(axis=1)[:, None] - fits), ABSENCES) + alone[:, :, None]
        gain -= np.minimum(each[:, :, None] * (count[:, :, None] - fits), most[:, :, None])
        gain[fits <= 0] = 0.0
        saved = np.minimum(gain.max(axis=1).sum(axis=1), gain.max(axis=2).sum(axis=1))
        cost = SEGMENT + alone.sum(axis=1) + absent.sum(axis=1) - saved
        hopeful[part] = cost <= limit[part] + _TINY * ensemble + _EXACT
    return hopeful


def _extra_costs(cases: Cases, row: Ints, write: Ints | int, ensemble: Ints | int) -> tuple[Floats, Floats]:
    """Return what a copy of each of some rows costs that is not explained, and at most."""
    # What was copied while the ledger was open has a lower LAC, and shows by its width alone.
    wide = (cases.longest[row] > write) & np.less(write, ensemble)
    marked = cases.beside[row] & (cases.copied[row] | wide)
    return np.where(marked, COPIED_EXTRA, EXTRA), np.where(marked, COPIED_EXTRAS, EXTRAS)


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
        each, most = _extra_costs(cases, row.T, write, ensemble)
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
