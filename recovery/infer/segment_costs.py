"""Cheapest segments of one ledger, which may begin where some bookie begins or stops to hold entries.

The cheapest bookies of one segment are an assignment of bookies to positions, the cheapest cuts a dynamic programme:

    a segment                              1.5
    a copy that a member lacks             1, at most 3 a member and segment
    a copy that no position explains       0.9, at most 6 a bookie and segment; 0.05 and 0.5 for one that was copied to

A change therefore explains a bookie that stops where another begins, not a single entry that strayed or was lost. A
bookie that lost much of its share stays a member. Work for a ledger is bounded: `docs/internals/reconstruction.md`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from recovery.infer.assignment import assign_best
from recovery.infer.copies import Ints, Mask, heads, starts
from recovery.infer.entry_counts import count_below, lay_out, rank_positions
from recovery.infer.segment_cases import NOBODY, Cases, Floats, Lost, ShapeProblem
from recovery.model.groups import within

SEGMENT: Final = 1.5
ABSENCE: Final = 1.0
ABSENCES: Final = 3.0
EXTRA: Final = 0.9
EXTRAS: Final = 6.0
COPIED_EXTRA: Final = 0.05
COPIED_EXTRAS: Final = 0.5
WIPED: Final = 2.0
"""Less cost for positions without a bookie, if one may have lost its copies: less than an unsupported shape costs."""
_MAX_COSTS: Final = 1 << 20
"""Most costs that are computed (cuts times bookies times positions): some seconds."""
_ASSIGNMENTS: Final = 10_000
"""Most assignments for one ledger and shape: half a second."""
_AT_ONCE: Final = 1 << 17
"""Costs that are computed at a time (intervals times bookies times positions): they fit into the cache."""
_FIRST: Final = 8
"""Cuts that are weighed at a time."""
_STRETCH: Final = 64
"""Entries that are weighed first: most shapes cost too much there already."""
_TOGETHER: Final = 512
"""Problems that are weighed side by side."""
_PADDED: Final = (5, 7, 11, 15)
"""Rows that a problem is filled up to, where it has fewer."""
_FEW: Final = 18
"""With so few cuts, the likeliest are not weighed first."""
_EXACT: Final = 1e-9
"""More than the order of additions changes."""
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
        shares: how many entries of each position each row holds: (segments, rows, E); of one position where W = E.
    """

    cost: float
    first: Ints
    members: Ints
    shares: Ints


def find_cheapest(cases: Cases, problems: Sequence[ShapeProblem]) -> list[Path | None]:
    """Find the cheapest segments of each problem; None if they cost too much, or the search would."""
    results: list[Path | None] = [None] * len(problems)
    alike: dict[tuple[int, int, int], list[int]] = {}
    for place in np.flatnonzero(_mark_hopeful(cases, problems)).tolist():
        number, (ensemble, write) = problems[place].number, problems[place].shape[:2]
        rows, cuts = len(problems[place].copies.bookie), int(cases.begin[number + 1] - cases.begin[number])
        if cuts * rows * (ensemble if write < ensemble else 1) <= _MAX_COSTS:
            # So many rows are added up in one order, so that empty ones beside them change nothing.
            padded = next((n for n in _PADDED if rows <= n), rows)
            alike.setdefault((ensemble, write, padded), []).append(place)
    for (ensemble, write, rows), places in alike.items():
        for low in range(0, len(places), _TOGETHER):
            part = places[low : low + _TOGETHER]
            limit = np.array([allowance(problems[place]) for place in part])
            ledgers = np.array([problems[place].number for place in part])
            paths = _CostTable.build(cases, ledgers, limit, ensemble, write, rows).find_cheapest()
            for place, path in zip(part, paths, strict=True):
                results[place] = path
    return results


def allowance(problem: ShapeProblem) -> float:
    """Return the largest allowed cost of a problem's segments."""
    return problem.limit - problem.shape.penalty + WIPED * (problem.lost is Lost.WIPED)


def _mark_hopeful(cases: Cases, problems: Sequence[ShapeProblem]) -> Mask:
    """Mark problems that may stay within their limit, judged by one stretch of entries without a cut.

    It lies in some segment, which holds no fewer entries and costs no less.
    """
    limit = np.array([allowance(problem) for problem in problems])
    size = np.array([problem.shape.ensemble for problem in problems])
    hopeful: Mask = np.isinf(limit) | (size > _STRETCH)
    tried = np.flatnonzero(~hopeful)
    if not len(tried):
        return hopeful
    tried = tried[np.argsort(size[tried])]
    length = np.append(np.diff(cases.cuts), 0)
    length[cases.begin[1:] - 1] = -1
    widest = np.maximum.reduceat(length, cases.begin[:-1])
    widest_cut = np.flatnonzero(length == np.repeat(widest, np.diff(cases.begin)))
    widest_cut = widest_cut[heads(np.searchsorted(cases.begin, widest_cut, "right"))]
    low, width = cases.cuts[widest_cut], np.minimum(widest, _STRETCH)
    of_row = np.repeat(np.arange(len(low)), np.diff(cases.row))
    groups = cases.groups
    shift = low[of_row[groups.key]]
    moved = groups._replace(first=groups.first - shift, last=groups.last - shift)
    holds = lay_out(within(moved, 0, _STRETCH - 1), len(of_row), _STRETCH)
    entry = np.arange(_STRETCH)
    holds &= entry < width[of_row, None]
    step = max(1, 8 * _AT_ONCE // (_STRETCH * max(int(np.diff(cases.row).max(initial=1)), _STRETCH)))
    for part in np.split(tried, range(step, len(tried), step)):
        ledger = np.array([problems[place].number for place in part.tolist()], np.int64)
        shape = np.array([problems[place].shape[:2] for place in part.tolist()], np.int64).reshape(-1, 2)
        ensemble, write = shape[:, 0], shape[:, 1]
        position = np.arange(ensemble.max(initial=1))
        row, own = cases.select_rows(ledger, int(np.diff(cases.row)[ledger].max(initial=1)))
        residue = (low[ledger, None] + entry) % ensemble[:, None]
        due = (position - residue[:, :, None]) % ensemble[:, None, None] < write[:, None, None]
        due &= (position < ensemble[:, None])[:, None] & (entry < width[ledger, None])[:, :, None]
        present = holds[row] & own[:, :, None]
        fits = present.astype(np.float32) @ due.astype(np.float32)
        count, absent = present.sum(axis=2), np.minimum(ABSENCE * due.sum(axis=1), ABSENCES)
        unit, cap = _extra_costs(cases, row, write[:, None], ensemble[:, None])
        alone = np.minimum(unit * count, cap)
        gain = absent[:, None] - np.minimum(ABSENCE * (due.sum(axis=1)[:, None] - fits), ABSENCES) + alone[:, :, None]
        gain -= np.minimum(unit[:, :, None] * (count[:, :, None] - fits), cap[:, :, None])
        gain[fits <= 0] = 0.0
        saved = np.minimum(gain.max(axis=1).sum(axis=1), gain.max(axis=2).sum(axis=1))
        cost = SEGMENT + alone.sum(axis=1) + absent.sum(axis=1) - saved
        hopeful[part] = cost <= limit[part] + _TINY * ensemble + _EXACT
    return hopeful


def _extra_costs(cases: Cases, row: Ints, write: Ints | int, ensemble: Ints | int) -> tuple[Floats, Floats]:
    """Return the cost of an unexplained copy for each of some rows, and the most for a row."""
    # What was copied while the ledger was open has a lower LAC, and shows by its width alone.
    wide = (cases.longest[row] > write) & np.less(write, ensemble)
    marked = cases.beside[row] & (cases.copied[row] | wide)
    return np.where(marked, COPIED_EXTRA, EXTRA), np.where(marked, COPIED_EXTRAS, EXTRAS)


class _Reached(NamedTuple):
    """The results so far for the cells of a `_CostTable`.

    Attributes:
        best: the cost up to each cell; inf: too expensive.
        came: the cell where the last segment of the cheapest path begins.
        left: assignments that each problem may still take; below 0 it is given up.
        assigned: members by cell, where they had to be assigned.
    """

    best: Floats
    came: Ints
    left: Ints
    assigned: dict[int, Ints]

    @classmethod
    def start(cls, begin: Ints) -> "_Reached":
        """Begin with the first cell of each problem alone."""
        best = np.full(begin[-1], np.inf)
        best[begin[:-1]] = 0.0
        return cls(best, np.zeros(begin[-1], np.int64), np.full(len(begin) - 1, _ASSIGNMENTS), {})


@dataclass(frozen=True, slots=True)
class _CostTable:
    """Counts of copies below each cut, for problems of one shape: they give the cost of an interval between two cuts.

    All problems have equally many rows; a smaller problem is filled up with rows without entries. A cell is a cut of a
    problem; the cells of one problem are consecutive.

    Attributes:
        ensemble, write: the shape.
        begin: of each problem, its first cell; the last one is the number of cells.
        rows: of each problem.
        limit: largest useful cost of each problem.
        cuts, main: of each cell.
        entries: (rows, cells): entries of each row.
        fits: (rows, E, cells): entries of each row that belong to each position; (rows, 1, cells) where W = E.
        due: (positions as in fits, cells): entries that belong to each position.
        preference: (rows, positions, problems): how well a row fits a position in the whole ledger, far below any cost.
        unit_cost, cost_cap: (rows, problems): cost of an unexplained copy, and the most for a row.
    """

    ensemble: int
    write: int
    begin: Ints
    rows: Ints
    limit: Floats
    cuts: Ints
    main: Mask
    entries: Ints
    fits: Ints
    due: Ints
    preference: Floats
    unit_cost: Floats
    cost_cap: Floats

    @classmethod
    def build(cls, cases: Cases, ledgers: Ints, limit: Floats, ensemble: int, write: int, rows: int) -> "_CostTable":
        """Count the copies of some ledgers below each cut; no ledger has more rows than the table."""
        striped = write < ensemble
        count = np.diff(cases.begin)[ledgers]
        begin = np.append(0, np.cumsum(count))
        cells = np.repeat(cases.begin[ledgers] - begin[:-1], count) + np.arange(begin[-1])
        cuts = cases.cuts[cells]
        row, own = cases.select_rows(ledgers, rows)
        entries, fits = count_below(cases.groups, np.repeat(row.T, count, axis=1), cuts, ensemble, write)
        has_row = np.repeat(own.T, count, axis=1)
        entries *= has_row
        fits *= has_row[:, None]
        due = np.ascontiguousarray(rank_positions(cuts[:, None], ensemble, write).T) if striped else cuts[None]
        last = begin[1:] - 1
        preference = _TINY * fits[:, :, last] / np.maximum(entries[:, last], 1)[:, None]
        unit_cost, cost_cap = _extra_costs(cases, row.T, write, ensemble)
        return cls(
            ensemble, write, begin, np.diff(cases.row)[ledgers], limit, cuts, cases.main[cells], entries, fits, due,
            preference, unit_cost, cost_cap,
        )  # fmt: skip

    def find_cheapest(self) -> list[Path | None]:
        """Return the cheapest segments of each problem; None if they cost too much, or the search would."""
        problem = np.repeat(np.arange(len(self.limit)), np.diff(self.begin))
        ends = self._bound_ends(problem)
        free = np.isinf(self.limit)
        # One segment, or two, are no cheaper than the cheapest: they show which cuts need no check.
        ceiling = np.where(free, np.minimum.reduceat(ends[2] + ends[3], self.begin[:-1]), self.limit)
        near = ends[0] + ends[1] <= self._highest(ceiling)[problem]
        large = free & (np.bincount(problem[near], minlength=len(free)) > _FEW)
        if large.any():
            # Neither are segments at the likeliest cuts.
            cells = np.flatnonzero(near & self.main & large[problem])
            main = self._select(cells)
            known = main.find_paths(ceiling[large], ends[:, cells])
            cost = np.where(known.left < 0, np.inf, known.best[main.begin[1:] - 1])
            ceiling[large] = np.minimum(ceiling[large], cost)
            near &= ends[0] + ends[1] <= self._highest(ceiling)[problem]
        cells = np.flatnonzero(near | np.isin(np.arange(len(problem)), [self.begin[:-1], self.begin[1:] - 1]))
        narrow = self._select(cells)
        known = narrow.find_paths(ceiling, ends[:, cells])
        solved = np.flatnonzero((known.best[narrow.begin[1:] - 1] <= self.limit) & (known.left >= 0))
        paths: list[Path | None] = [None] * len(ceiling)
        for place, path in zip(solved.tolist(), narrow.follow(solved, known), strict=True):
            paths[place] = path
        return paths

    def _highest(self, ceiling: Floats) -> Floats:
        """Return the cost that is too much; more entries never cost less, except for the preference."""
        highest: Floats = ceiling + 3 * _TINY * self.ensemble + _EXACT
        return highest

    def _bound_ends(self, problem: Ints) -> Floats:
        """Compute the costs of the intervals up to each cell, and from it to the end; problem: of the cell.

        Returns:
            What comes before it, and what follows it, costs at least: one segment, or two or more; and what one segment
            up to it, and one from it, costs: inf where that is not known. (4, cells).
        """
        cells, last = np.arange(len(problem)), self.begin[1:] - 1
        bound, sure = np.zeros((2, len(problem))), np.ones((2, len(problem)), np.bool_)
        for low in range(0, len(problem), step := max(1, _AT_ONCE // self.fits[:, :, 0].size)):
            part = slice(low, low + step)
            owners = problem[part]
            for side, (begins, ends) in enumerate(((self.begin[owners], cells[part]), (cells[part], last[owners]))):
                base, gain = self._cost_intervals(owners, begins, ends)
                saved, sure[side, part] = self._bound(gain)
                bound[side, part] = base - saved
        bound[0, self.begin[:-1]] = bound[1, last] = 0.0
        two = 2 * (SEGMENT - _TINY * self.ensemble)
        return np.concatenate([np.minimum(bound, two), np.where(sure, bound, np.inf)])

    def _select(self, cells: Ints) -> "_CostTable":
        """Return the problems that some cells are of, with these alone."""
        problem = np.searchsorted(self.begin, cells, "right") - 1
        begin = np.append(np.flatnonzero(heads(problem)), len(cells))
        problems = problem[begin[:-1]]
        return replace(
            self,
            begin=begin,
            rows=self.rows[problems],
            limit=self.limit[problems],
            cuts=self.cuts[cells],
            main=self.main[cells],
            entries=self.entries[:, cells],
            fits=self.fits[:, :, cells],
            due=self.due[:, cells],
            preference=self.preference[:, :, problems],
            unit_cost=self.unit_cost[:, problems],
            cost_cap=self.cost_cap[:, problems],
        )

    def find_paths(self, ceiling: Floats, bounds: Floats) -> "_Reached":
        """Compute the cost of the intervals that may be part of a history within a ceiling.

        More entries never cost less, but for the preference: an interval that costs too much is not made longer.

        Args:
            ceiling: of each problem.
            bounds: as `_bound_ends` gives them.
        """
        count = np.diff(self.begin)
        known = _Reached.start(self.begin)
        best, highest = known.best, self._highest(ceiling)
        least_segment = SEGMENT - _TINY * self.ensemble
        bound_before, bound_behind, first, final = bounds
        alive = np.arange(len(count))
        problem, start = alive[:0], alive[:0]
        behind = 1
        while len(alive):
            room = _AT_ONCE // (self.fits[:, :, 0].size * (len(problem) + len(alive)))
            steps = max(1, min(_FIRST, room))
            # Cells that the intervals of this turn may begin at, beside those that may be made longer.
            fresh = self.begin[alive][:, None] + np.arange(behind - 1, behind - 1 + steps)
            useful = fresh < self.begin[alive + 1][:, None] - 1
            fresh[~useful] = 0
            reach = bound_before[fresh]
            reach[:, 0] = best[fresh[:, 0]]
            useful &= reach + bound_behind[fresh] <= highest[alive][:, None]
            problem = np.append(problem, np.repeat(alive, useful.sum(axis=1)))
            start = np.append(start, fresh[useful])
            order = np.argsort(problem, kind="stable")
            problem, start = problem[order], start[order]
            ends = self.begin[problem][:, None] + np.arange(behind, behind + steps)
            valid = (ends > start[:, None]) & (ends < self.begin[problem + 1][:, None])
            ends = np.where(valid, ends, start[:, None])
            reach = np.where(best[start] < np.inf, best[start], bound_before[start])
            valid &= (reach + least_segment)[:, None] + bound_behind[ends] <= highest[problem][:, None]
            # Where one segment from the very first entry costs no more, or one up to the end, two are not tried.
            valid &= ((reach + least_segment)[:, None] < first[ends]) | (start == self.begin[problem])[:, None]
            valid &= (least_segment + bound_behind[ends] < final[start, None]) | (
                ends == self.begin[problem + 1][:, None] - 1
            )
            valid_rows = np.flatnonzero(valid.any(axis=1))
            lowest = np.full(len(problem), -np.inf)
            head = np.append(starts(problem[valid_rows]), len(valid_rows))
            base, gain = self._cost_intervals(problem[valid_rows, None], start[valid_rows, None], ends[valid_rows])
            bound, sure = self._bound(gain)
            for step in range(steps if len(valid_rows) else 0):
                end, cost = ends[valid_rows, step], best[start[valid_rows]] + base[:, step]
                least = np.where(valid[valid_rows, step], cost - bound[:, step], -np.inf)
                cheap = np.where(
                    valid[valid_rows, step] & (least + bound_behind[end] <= highest[problem[valid_rows]]), least, np.inf
                )
                self._settle(known, head, start[valid_rows], end, base[:, step], cheap, sure[:, step], gain[..., step])
                lowest[valid_rows] = np.maximum(lowest[valid_rows], least)
            behind += steps
            kept = (lowest <= highest[problem]) & (count[problem] > behind) & (known.left[problem] >= 0)
            kept &= best[start] + bound_behind[start] <= highest[problem]
            problem, start = problem[kept], start[kept]
            alive = alive[(count[alive] > behind) & (known.left[alive] >= 0)]
            is_open = best[self.begin[alive] + behind - 1] + least_segment <= highest[alive]
            alive = alive[is_open | np.isin(alive, problem)]
        return known

    def _settle(
        self,
        known: "_Reached",
        head: Ints,
        start: Ints,
        ends: Ints,
        base: Floats,
        lowest: Floats,
        sure: Mask,
        gain: Floats,
    ) -> None:
        """Choose the cheapest interval that ends at one cell of each problem; head: the first interval of each."""
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
            for interval in (low + np.argsort(lowest[low:high], kind="stable")).tolist():
                cell = int(ends[interval])
                if not lowest[interval] < known.best[cell]:
                    break
                cost, members = float(lowest[interval]), None
                if not sure[interval]:
                    known.left[problem] -= 1
                    if known.left[problem] < 0:
                        break
                    value, members = _assign(gain[: self.rows[problem], :, interval])
                    cost = float(known.best[start[interval]] + base[interval] - value)
                if cost < known.best[cell]:
                    known.best[cell], known.came[cell] = cost, start[interval]
                    known.assigned.pop(cell, None)
                    if members is not None:
                        known.assigned[cell] = members

    def follow(self, problems: Ints, known: "_Reached") -> list[Path]:
        """Name the members of the cheapest segments of some problems."""
        parts: list[list[int]] = []
        for begin, end in zip(self.begin[problems].tolist(), (self.begin[problems + 1] - 1).tolist(), strict=True):
            cells = [end]
            while cells[-1] > begin:
                cells.append(int(known.came[cells[-1]]))
            parts.append(cells[::-1])
        problem = np.repeat(problems, [len(cells) - 1 for cells in parts])
        start, end = (
            np.array([cell for cells in parts for cell in cells[low:high]], np.int64)
            for low, high in ((0, -1), (1, None))
        )
        members = self._choose_best(self._cost_intervals(problem, start, end)[1])
        for place, cell in enumerate(end.tolist()):
            if cell in known.assigned:
                members[place] = known.assigned[cell]
        shares = np.moveaxis(self.fits[:, :, end] - self.fits[:, :, start], 2, 0)
        paths, place = [], 0
        for own in parts:
            part = slice(place, place + len(own) - 1)
            place = part.stop
            paths.append(Path(float(known.best[own[-1]]), self.cuts[own[:-1]], members[part], shares[part]))
        return paths

    def _cost_intervals(self, problem: Ints, begins: Ints, ends: Ints) -> tuple[Floats, Floats]:
        """Return the cost of intervals between two cells without members, and what each row saves at each position.

        Returns:
            As the intervals; (rows, positions, and as these). An interval without entries says nothing.
        """
        entries = self.entries.take(ends, axis=1)
        entries -= self.entries.take(begins, axis=1)
        fits = self.fits.take(ends, axis=2)
        fits -= self.fits.take(begins, axis=2)
        due = self.due.take(ends, axis=1)
        due -= self.due.take(begins, axis=1)
        unit, cap = self.unit_cost.take(problem, axis=1), self.cost_cap.take(problem, axis=1)
        alone = np.minimum(unit * entries, cap)
        absent = np.minimum(ABSENCE * due, ABSENCES)
        none = fits <= 0
        gain = np.minimum(ABSENCE * (due - fits), ABSENCES)
        np.subtract(absent, gain, out=gain)
        gain += alone[:, None]
        over = np.subtract(entries[:, None], fits, out=fits) * unit[:, None]
        gain -= np.minimum(over, cap[:, None], out=over)
        gain += self.preference.take(problem, axis=2)
        np.copyto(gain, 0.0, where=none)
        positions = self.ensemble if len(self.due) == 1 else 1
        return SEGMENT + _sum(alone) + positions * _sum(absent), gain

    def _bound(self, gain: Floats) -> tuple[Floats, Mask]:
        """Return what the best rows of the positions save together, and whether they are distinct."""
        if gain.shape[1] == 1:
            # All positions hold the same: the best rows, in any order.
            value = np.sort(-gain[:, 0], axis=0)[: self.ensemble]
            return -_sum(value), np.ones(value.shape[1:], np.bool_)
        value, top = gain[0].copy(), np.zeros(gain.shape[1:], np.int64)
        for row in range(1, len(gain)):
            better = gain[row] > value
            top[better] = row
            np.maximum(value, gain[row], out=value)
        # An empty position is as good at one place as at the other.
        nobody = -1 - np.arange(len(value)).reshape(-1, *[1] * (value.ndim - 1))
        apart = np.sort(np.where(value > 0, top, nobody), axis=0)
        return _sum(value), (apart[1:] != apart[:-1]).all(axis=0)

    def _choose_best(self, gain: Floats) -> Ints:
        """Return the best row of each position, or NOBODY: (rows, positions, intervals) → (intervals, E)."""
        if gain.shape[1] == 1:
            order = np.argsort(-gain[:, 0], axis=0, kind="stable")[: self.ensemble]
            members = np.full((gain.shape[2], self.ensemble), NOBODY)
            saved = np.take_along_axis(gain[:, 0], order, axis=0)
            members[:, : len(order)] = np.where(saved > 0, order, NOBODY).T
            return members
        top = gain.argmax(axis=0)
        return np.where(np.take_along_axis(gain, top[None], axis=0)[0] > 0, top, NOBODY).T


def _assign(gain: Floats) -> tuple[float, Ints]:
    """Return what the best rows save, and the row of each position, or NOBODY where none saves anything."""
    row, position = assign_best(gain)
    value = gain[row, position]
    members = np.full(gain.shape[1], NOBODY)
    members[position] = np.where(value > 0, row, NOBODY)
    return float(value.sum()), members


def _sum(columns: Floats) -> Floats:
    """Add up along the first axis, many in pairs: equal columns have equal sums, whatever columns are beside them."""
    is_small = len(columns) < _IN_PAIRS
    added: Floats = columns.sum(axis=0) if is_small else np.moveaxis(columns, 0, -1).copy().sum(axis=-1)
    return added
