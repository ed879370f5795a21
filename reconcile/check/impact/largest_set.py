"""The largest set of bookies that may be taken at once: the limits of each segment, and a search.

Of each group of copies only so many may go: all but one of the readable copies of an entry, and fewer than A of the
bookies that a recovery asks together, those that do not answer already included. Groups that are the same in several
ledgers count once. A bookie of an ensemble needs another one outside: so no set that has it may be larger than what is
then left to be written to. Which bookies may go together is a search of every choice, up to a number of steps.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from reconcile.check.impact.names import CopyHealth, ImpactTarget
from reconcile.check.impact.segments.columns import Ints, Mask, SegmentColumns
from reconcile.check.impact.segments.judgement import States, judge

_MOST: Final = 1 << 62
_STEPS: Final = 20_000
"""Choices that are tried: some seconds."""


class Limits:
    """Groups of bookies with a limit of how many may go, gathered from segments.

    Args:
        states: of bookies, as they are now.
        target: the action on the taken bookies.
    """

    def __init__(self, states: States, target: ImpactTarget) -> None:
        self._states = states
        self._stops = target is not ImpactTarget.READ_ONLY
        self._pool = int((states == CopyHealth.READ_WRITE).sum())
        self._groups: dict[tuple[int, ...], int] = {}
        self._largest = np.full(len(states), self._pool, np.int64)
        self._overall = self._pool

    def add(self, segments: SegmentColumns, floors: States | None) -> None:
        """Add the limits of segments; a segment that is hit already has none."""
        size, write, ack = segments.shape.ensemble, segments.shape.write, segments.shape.ack
        states = self._states[segments.members]
        occurs = segments.find_residues()
        judgement = judge(segments, occurs, states, floors)
        self._limit_sizes(segments, states, judgement.copied, judgement.replaced, occurs)
        if not self._stops:
            return
        answering = states <= CopyHealth.READ_ONLY
        for residue in range(size):
            place = [(residue + step) % size for step in range(write)]
            readable = answering[place]
            if floors is not None:
                readable = np.maximum(states[place], floors[residue]) <= CopyHealth.READ_ONLY
            asked = np.flatnonzero(occurs[residue] & (judgement.copies[residue] > 0))
            self._gather(segments.members[place][:, asked], readable[:, asked], readable[:, asked].sum(axis=0) - 1)
            asked = np.flatnonzero(segments.final & (judgement.uncovered == 0))
            free = answering[place][:, asked]
            self._gather(segments.members[place][:, asked], free, ack - 1 - (write - free.sum(axis=0)))

    def _limit_sizes(
        self, segments: SegmentColumns, states: States, copied: Mask, replaced: Mask, occurs: Mask
    ) -> None:
        """Add a limit on sets with one of the members: another bookie must remain for each of them."""
        wants = np.broadcast_to(segments.open, states.shape)
        if self._stops:
            holds = np.zeros(states.shape, np.bool_)
            for step in range(segments.shape.write):
                holds |= np.roll(occurs, step, axis=0)
            wants = wants | holds
        # Each needs a bookie, itself or another one; where a member needs none, more may be allowed than this says.
        room = self._pool - (wants & (states != CopyHealth.READ_ONLY)).sum(axis=0)
        position, segment = np.nonzero(wants & (states < CopyHealth.DOWN))
        np.minimum.at(self._largest, segments.members[position, segment], room[segment])
        waiting = np.flatnonzero((copied.any(axis=0) | replaced.any(axis=0)) & (room >= 0))
        self._overall = min([self._overall, *room[waiting].tolist()])

    def _gather(self, members: npt.NDArray[np.int32], counted: npt.NDArray[np.bool_], limit: Ints) -> None:
        """Add groups: of the counted members of each column, only a given number may go."""
        rows = np.vstack([np.sort(np.where(counted, members, -1), axis=0), limit]).astype(np.int64)
        for *group, most in _list_different(rows, len(self._states)):
            key = tuple(member for member in group if member >= 0)
            self._groups[key] = min(most, self._groups.get(key, most))

    def search(self, candidates: Sequence[int], most: int) -> tuple[list[int], bool]:
        """Return the largest allowed set of candidates, up to a size; and whether no larger one exists for sure."""
        is_exact = True
        for size in range(min(most, len(candidates), self._overall), 0, -1):
            able = [bookie for bookie in candidates if self._largest[bookie] >= size]
            if len(able) < size:
                continue
            chosen, is_sure = _Search(self._groups, able, size).run()
            if len(chosen) == size:
                return chosen, is_exact
            is_exact &= is_sure
        return [], is_exact


class _Search:
    """Candidates with their groups; `left` is how many of each group may still go."""

    def __init__(self, groups: dict[tuple[int, ...], int], candidates: Sequence[int], most: int) -> None:
        wanted = set(candidates)
        kept = [(members, limit) for members, limit in groups.items() if len(wanted.intersection(members)) > limit]
        self._left = np.array([limit for _, limit in kept], np.int64)
        numbers_of: dict[int, list[int]] = {bookie: [] for bookie in candidates}
        for number, (members, _) in enumerate(kept):
            for bookie in wanted.intersection(members):
                numbers_of[bookie].append(number)
        self._of = {bookie: np.array(numbers, np.int64) for bookie, numbers in numbers_of.items()}
        self._most = most
        self._best: list[int] = []
        self._steps = _STEPS

    def run(self) -> tuple[list[int], bool]:
        """Return the best set, and whether no larger one exists for sure."""
        order = sorted(self._of, key=lambda bookie: (len(self._of[bookie]), bookie))
        self._extend([], [bookie for bookie in order if self._allows(bookie)])
        return sorted(self._best), self._steps > 0 or len(self._best) >= self._most

    def _allows(self, bookie: int) -> bool:
        return bool((self._left[self._of[bookie]] > 0).all())

    def _extend(self, taken: list[int], candidates: list[int]) -> None:
        if len(taken) > len(self._best):
            self._best = list(taken)
        while candidates and self._steps > 0:
            if len(self._best) >= self._most or len(taken) + len(candidates) <= len(self._best):
                return
            self._steps -= 1
            bookie, candidates = candidates[0], candidates[1:]
            self._left[self._of[bookie]] -= 1
            # Those that stay possible beside it; the ones that share most with it come first.
            self._extend([*taken, bookie], [other for other in candidates if self._allows(other)])
            self._left[self._of[bookie]] += 1


def _list_different(rows: Ints, bookies: int) -> list[list[int]]:
    """Return the different columns of numbers from -1 to the number of bookies."""
    base = bookies + 2
    different: list[list[int]]
    if base ** len(rows) >= _MOST:
        different = np.unique(rows, axis=1).T.tolist()
        return different
    code = np.zeros(rows.shape[1], np.int64)
    for row in rows:
        code = code * base + row + 1
    code = np.unique(code)
    columns = []
    for _ in range(len(rows)):
        columns.append(code % base - 1)
        code //= base
    different = np.stack(columns[::-1], axis=1).tolist()
    return different
