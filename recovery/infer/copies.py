"""The copies of many ledgers as flat columns, for decisions on whole batches."""

from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import numpy.typing as npt

from recovery.model.groups import KeyedGroups, run_counts, to_runs

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

LOST: Final = "lost"
"""Source of rows that are put back after a disk lost them: a bookie had the entries, and no longer serves them."""
_FEW_GAPS: Final = 256
"""Most gaps of a ledger that may come from bookies that were away; more have another cause."""


@dataclass(frozen=True, slots=True)
class CopyColumns:
    """Rows of (ledger, bookie) that hold at least one entry, each with its groups; sorted by both.

    Attributes:
        ledgers: how many there are; a ledger is a number below it, and may have no row.
        end: the highest entry of each ledger that any row holds; -1 without a row.
        row_ledger: ascending.
        lo, hi, count: of each row, its first and last entry, and how many it holds.
        last_start, last_size: of each row's last run.
        single: the last run is the row's only one.
        group_row: ascending.
        first, last, size, period: of each group, ascending and disjoint in its row.
    """

    ledgers: int
    end: Ints
    row_ledger: Ints
    lo: Ints
    hi: Ints
    count: Ints
    last_start: Ints
    last_size: Ints
    single: Mask
    group_row: Ints
    first: Ints
    last: Ints
    size: Ints
    period: Ints

    @classmethod
    def sum_up(
        cls, ledgers: int, row_ledger: Ints, group_row: Ints, first: Ints, last: Ints, size: Ints, period: Ints
    ) -> "CopyColumns":
        """Sum up rows of groups; every row has at least one."""
        head = starts(group_row)
        tail = np.append(head[1:], len(group_row))[: len(head)] - 1
        runs = run_counts(first, last, period)
        hi = last[tail] + size[tail] - 1
        end = np.full(ledgers, -1)
        np.maximum.at(end, row_ledger, hi)
        count = np.add.reduceat(runs * size, head) if len(head) else np.zeros(0, np.int64)
        single = (head == tail) & (runs[tail] == 1)
        return cls(
            ledgers, end, row_ledger, first[head], hi, count, last[tail], size[tail], single,
            group_row, first, last, size, period,
        )  # fmt: skip

    def pick(self, ledgers: Ints) -> "tuple[CopyColumns, Ints]":
        """Return the rows of some ledgers, ascending, renumbered; and which rows these were."""
        number = np.full(self.ledgers, -1)
        number[ledgers] = np.arange(len(ledgers))
        rows = np.flatnonzero(number[self.row_ledger] >= 0)
        new_row = np.full(len(self.row_ledger), -1)
        new_row[rows] = np.arange(len(rows))
        groups = np.flatnonzero(new_row[self.group_row] >= 0)
        picked = {name: getattr(self, name)[rows] for name in _ROW_FIELDS}
        picked["row_ledger"] = number[picked["row_ledger"]]
        grouped = {name: getattr(self, name)[groups] for name in _GROUP_FIELDS}
        grouped["group_row"] = new_row[grouped["group_row"]]
        return CopyColumns(ledgers=len(ledgers), end=self.end[ledgers], **picked, **grouped), rows

    def count_runs(self) -> Ints:
        """Return how many runs each ledger has."""
        counts = np.zeros(self.ledgers, np.int64)
        np.add.at(counts, self.row_ledger[self.group_row], run_counts(self.first, self.last, self.period))
        return counts

    def find_largest_runs(self) -> Ints:
        """Return how many entries the longest run of each ledger has."""
        largest = np.zeros(self.ledgers, np.int64)
        np.maximum.at(largest, self.row_ledger[self.group_row], self.size)
        return largest

    def has_few_runs(self) -> Mask:
        """Mark ledgers with few enough runs to process one by one."""
        return self.count_runs() - np.bincount(self.row_ledger, minlength=self.ledgers) <= _FEW_GAPS

    def split_stays(self) -> "tuple[CopyColumns, Ints]":
        """Return one row a run instead of one a bookie, and the original row of each.

        Where all positions hold everything, a gap is a time in which the bookie was in no ensemble.
        """
        runs = to_runs(KeyedGroups(self.group_row, self.first, self.last, self.size, self.period))
        if len(runs.key) == len(self.row_ledger):
            return self, runs.key
        single, number = np.zeros(len(runs.key), np.int64), np.arange(len(runs.key))
        ledger = self.row_ledger[runs.key]
        return CopyColumns.sum_up(self.ledgers, ledger, number, runs.first, runs.first, runs.size, single), runs.key


_NAMES = [field.name for field in fields(CopyColumns)]
_ROW_FIELDS = _NAMES[_NAMES.index("row_ledger") : _NAMES.index("group_row")]
_GROUP_FIELDS = _NAMES[_NAMES.index("group_row") :]


def heads(*keys: Ints) -> Mask:
    """Mark places with any key that differs from the place before; the first place is marked."""
    head = np.ones(len(keys[0]), np.bool_)
    head[1:] = False
    for key in keys:
        head[1:] |= key[1:] != key[:-1]
    return head


def starts(*keys: Ints) -> Ints:
    """Return where each stretch of equal keys begins."""
    return np.flatnonzero(heads(*keys))


def number_within(key: Ints) -> Ints:
    """Number the values inside each stretch of equal values, from 0."""
    head = starts(key)
    return np.arange(len(key)) - np.repeat(head, np.diff(np.append(head, len(key))))
