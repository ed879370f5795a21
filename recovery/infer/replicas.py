"""Re-replicated ledgers of one ensemble, in columns: each position has a bookie with its whole share, or more.

A copy that re-replication made holds, with W < E, nearly everything: its row is no position's pattern, but it contains
one. So for every row and position it is counted how much of the position's share the row holds; a position is filled by
a row that holds all of it, and whether rows can fill all positions is an assignment. Rows that are left over are
bookies that were replaced and came back, or copies that were begun in vain.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from recovery.infer.assignment import assign_best
from recovery.infer.copies import CopyColumns, Ints, starts
from recovery.infer.facts import LedgerFacts
from recovery.infer.prior import LARGEST, PriorShape
from recovery.infer.shape_fit import LedgerSegments
from recovery.model.groups import KeyedGroups, rank, run_counts, to_runs

_PERIODIC: Final = 3
_COPIED: Final = 0.1
"""The preference of a copy over the bookie that it replaced."""
_EXACT: Final = 0.01
"""The preference of a row that holds nothing else."""


class Fitting:
    """Ledgers that one ensemble of re-replicated copies explains.

    Attributes:
        shape: of each ledger tried, the number of the hypothesis that leaves the fewest copies over, or -1.
        extra: copies that its ensemble does not need.
        sure: its stripes are seen, and each copy fits one position only: it was made for that.
        members: the ensemble of each explained ledger.
    """

    def __init__(self, ledgers: int) -> None:
        self.shape = np.full(ledgers, -1)
        self.extra = np.zeros(ledgers, np.int64)
        self.sure = np.zeros(ledgers, np.bool_)
        self.members: dict[int, Ints] = {}
        self._fits: list[tuple[int, int]] = []

    def add(self, ledger: int, number: int, extra: int, members: Ints, *, sure: bool) -> None:
        """Add an explanation; the one with the fewest leftover copies is kept, of equals the earliest."""
        self._fits.append((ledger, number))
        if self.shape[ledger] < 0 or extra < self.extra[ledger]:
            self.shape[ledger], self.extra[ledger], self.members[ledger] = number, extra, members
            self.sure[ledger] = sure

    @property
    def segments(self) -> LedgerSegments:
        """One segment a ledger."""
        ledgers = sorted(self.members)
        zero = np.zeros(len(ledgers), np.int64)
        size = np.array([len(self.members[ledger]) for ledger in ledgers], np.int64)
        parts = [self.members[ledger] for ledger in ledgers]
        return LedgerSegments(np.array(ledgers, np.int64), zero, zero, size, np.concatenate([zero[:0], *parts]))

    @property
    def alternatives(self) -> Ints:
        """Ledgers, and other shapes that explain them."""
        beside = [fit for fit in self._fits if self.shape[fit[0]] != fit[1]]
        return np.array(beside, np.int64).reshape(-1, 2)


def fit_ensembles(
    known: LedgerFacts,
    ledgers: Ints,
    shapes: Sequence[PriorShape],
    first_number: int,
    tolerances: Sequence[int],
    elsewhere: int,
) -> Fitting:
    """Try one ensemble of each shape on some ledgers.

    Args:
        known: the batch.
        ledgers: ledgers, ascending.
        shapes: in the order of the prior.
        first_number: the number of the first hypothesis.
        tolerances: of each hypothesis, as `shape_fit.explain` takes it.
        elsewhere: the same.
    """
    fitting = Fitting(known.count)
    columns, rows = known.copies.pick(ledgers)
    if not len(ledgers):
        return fitting
    shown = _read_shown_shapes(known, ledgers)
    for number, shape in enumerate(shapes, first_number):
        pair = shape.ensemble * LARGEST + shape.write
        if shape.ensemble > len(known.bookies):
            continue
        tried = np.flatnonzero(((shown == 0) & (elsewhere <= tolerances[number - first_number])) | (shown == pair))
        part, of_part = columns.pick(tried)
        matches, due = _count_matches(part, shape.ensemble, shape.write)
        full = (matches == due[part.row_ledger]) & (due[part.row_ledger] > 0)
        copied = known.row_copied[rows[of_part]]
        worth = full * (1 + _COPIED * copied[:, None] + _EXACT * (part.count[:, None] == matches))
        begin = starts(part.row_ledger)
        behind = np.append(begin[1:], len(part.row_ledger))
        wanted = (due > 0).sum(axis=1)
        # Without a row for each position there is nothing to assign.
        possible = np.add.reduceat(full, begin, axis=0) > 0
        able = np.flatnonzero(possible.sum(axis=1) == wanted[part.row_ledger[begin]])
        total = np.add.reduceat(part.count, begin)
        for low, high, copies in zip(begin[able].tolist(), behind[able].tolist(), total[able].tolist(), strict=True):
            ledger = int(part.row_ledger[low])
            row, position = assign_best(worth[low:high])
            filled = full[low + row, position]
            # Each row that is left over is a copy, or was replaced by one.
            if filled.sum() != wanted[ledger] or high - low - filled.sum() > copied[low:high].sum():
                continue
            # Who wrote sent a bookie its share alone; one that was copied to later need not show it.
            named = low + row[filled]
            if (~copied[named] & (part.count[named] > matches[named, position[filled]])).sum() > 1:
                continue
            members = np.full(shape.ensemble, -1)
            members[position[filled]] = known.row_bookie[rows[of_part[named]]]
            extra = copies - int(due[ledger].sum())
            sure = shown[tried[ledger]] == pair and (full[named].sum(axis=1)[copied[named]] == 1).all()
            fitting.add(int(ledgers[tried[ledger]]), number, extra, members, sure=bool(sure))
    return fitting


def _read_shown_shapes(known: LedgerFacts, ledgers: Ints) -> Ints:
    """Return the shape that rows without a copy's mark show, as one number a ledger; 0 without one."""
    copies = known.copies
    runs = run_counts(copies.first, copies.last, copies.period)
    periodic = (runs >= _PERIODIC) & (copies.size < copies.period) & (copies.period < LARGEST)
    periodic &= ~known.row_copied[copies.group_row]
    shape = copies.period[periodic] * LARGEST + copies.size[periodic]
    ledger = copies.row_ledger[copies.group_row[periodic]]
    lowest, highest = np.full(copies.ledgers, 1 << 62), np.full(copies.ledgers, -1)
    np.minimum.at(lowest, ledger, shape)
    np.maximum.at(highest, ledger, shape)
    return np.where(lowest == highest, highest, 0)[ledgers]


def _count_matches(copies: CopyColumns, ensemble: int, write: int) -> tuple[Ints, Ints]:
    """Return how much of each position's share each row holds, and the size of the share: (rows, E), (ledgers, E)."""
    position, size, quorum = np.arange(ensemble), np.array(ensemble), np.array(write)
    groups = KeyedGroups(copies.group_row, copies.first, copies.last, copies.size, copies.period)
    odd = (groups.period % ensemble != 0) & (write < ensemble)
    runs = to_runs(KeyedGroups(*(column[odd] for column in groups)))
    row = np.append(groups.key[~odd], runs.key)
    first = np.append(groups.first[~odd], runs.first)[:, None]
    count = np.append(groups.size[~odd], runs.size)[:, None]
    times = np.append(
        run_counts(*(column[~odd] for column in (groups.first, groups.last, groups.period))), runs.size**0
    )
    per_run = rank(first + count, position, size, quorum) - rank(first, position, size, quorum)
    matches = np.zeros((len(copies.row_ledger), ensemble), np.int64)
    np.add.at(matches, row, per_run * times[:, None])
    return matches, rank(copies.end[:, None] + 1, position, size, quorum)
