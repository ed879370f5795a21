"""The problems of `segment_costs`: copies of a ledger, its possible shapes, possible beginnings of its segments."""

import itertools
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from recovery.infer.copies import CopyColumns, Ints, Mask, heads, number_within
from recovery.model.groups import KeyedGroups, count, group_runs, run_counts, to_runs, within

Floats = npt.NDArray[np.float64]
NOBODY: Final = -1
_CUTS: Final = 160
"""Places where segments may begin: the cost of half their square, in intervals, is computed."""
_MAIN: Final = 14
"""The likeliest cuts: the cost of segments at these is an upper bound."""


class Copies(NamedTuple):
    """One ledger: its holders.

    Attributes:
        bookie: number of each row's bookie.
        copied: rows that re-replication made, at least in part.
        groups: their keys are row numbers; ascending and disjoint in a row.
    """

    bookie: Ints
    copied: Mask
    groups: KeyedGroups

    @classmethod
    def from_columns(cls, columns: CopyColumns, rows: slice, row_bookie: Ints, row_copied: Mask) -> "Copies":
        """Return one ledger's rows of a batch."""
        low, high = np.searchsorted(columns.group_row, [rows.start, rows.stop])
        groups = KeyedGroups(
            columns.group_row[low:high] - rows.start,
            *(column[low:high] for column in (columns.first, columns.last, columns.size, columns.period)),
        )
        return cls(row_bookie[rows], row_copied[rows], groups)

    @classmethod
    def split(cls, columns: CopyColumns, bookie: Ints, copied: Mask) -> "list[Copies]":
        """Return each ledger of a batch, grouped as `cut_at` does; bookie and copied are of its rows."""
        groups = KeyedGroups(columns.group_row, columns.first, columns.last, columns.size, columns.period)
        # A group goes on with a run of its size where it has one only, or it keeps its distance.
        joins = (groups.key[1:] == groups.key[:-1]) & (groups.size[1:] == groups.size[:-1])
        joins &= (groups.period[:-1] == 0) | (groups.first[1:] - groups.last[:-1] == groups.period[:-1])
        anew = np.zeros(len(columns.row_ledger), np.bool_)
        anew[groups.key[1:][joins]] = True
        anew = anew[groups.key]
        parts = KeyedGroups(*(c[~anew] for c in groups)), group_runs(to_runs(KeyedGroups(*(c[anew] for c in groups))))
        groups = KeyedGroups(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        groups = KeyedGroups(*(column[np.argsort(groups.key, kind="stable")] for column in groups))
        row = np.searchsorted(columns.row_ledger, np.arange(columns.ledgers + 1))
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

    def cut_at(self, end: int) -> "Copies":
        """Return the copies up to an entry, grouped again; rows without entries stay."""
        return self._replace(groups=group_runs(within(self.groups, 0, end)))


class TriedShape(NamedTuple):
    """A possible shape of a ledger; `penalty`: its cost; `shown`: the stripes of copies show it."""

    ensemble: int
    write: int
    penalty: float
    shown: bool = False


class Lost(Enum):
    """Reasons why a bookie that a shape needs may be missing."""

    NOTHING = "nothing"
    """All bookies kept their entries."""
    WIPED = "wiped"
    """Some bookie may have lost all that it had."""
    UNSEEN = "unseen"
    """Some bookie was not scanned, or not completely."""


class ShapeProblem(NamedTuple):
    """One ledger and one of its possible shapes.

    Attributes:
        number: of the ledger in `Cases`.
        copies: entries on bookies, none above the end.
        end: the last entry.
        shape: a possible shape of the ledger.
        limit: largest useful cost, with the shape's penalty.
        lost: why a bookie may be missing.
    """

    number: int
    copies: Copies
    end: int
    shape: TriedShape
    limit: float = np.inf
    lost: Lost = Lost.UNSEEN


class Cases(NamedTuple):
    """Ledgers that are solved together: their holders, and possible beginnings of segments.

    Attributes:
        row: of each ledger, its first row; the last one is the number of rows.
        copied: rows that re-replication made, at least in part.
        beside: rows of ledgers that have such a row.
        longest: of each row, its longest run.
        groups: of all rows; keys are their numbers.
        begin: of each ledger, its first cut; the last one is the number of cuts.
        cuts: ascending from 0 to the place after the last entry.
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
    def build(cls, copies: Sequence[Copies], end: Sequence[int]) -> "Cases":
        """Build from some ledgers and their last entries: a segment may begin where some bookie comes or goes."""
        row = np.append(0, np.cumsum([len(own.bookie) for own in copies]))
        groups = KeyedGroups(*(np.concatenate(column) for column in zip(*(own.groups for own in copies), strict=True)))
        groups = groups._replace(key=groups.key + np.repeat(row[:-1], [len(own.groups.key) for own in copies]))
        longest = np.zeros(row[-1], np.int64)
        np.maximum.at(longest, groups.key, groups.size)
        copied = np.concatenate([own.copied for own in copies])
        beside = np.repeat([bool(own.copied.any()) for own in copies], np.diff(row))
        ledger = np.repeat(np.arange(len(copies)), np.diff(row))[groups.key]
        return cls(row, copied, beside, longest, groups, *_find_cuts(groups, ledger, np.array(end)))

    def select_rows(self, ledgers: Ints, width: int) -> tuple[Ints, Mask]:
        """Return the rows of some ledgers, filled up, and a mask of the filled places: (ledgers, most)."""
        begin, behind = self.row[ledgers, None], self.row[ledgers + 1, None]
        row = begin + np.arange(width)
        return np.minimum(row, behind - 1), row < behind


def _find_cuts(groups: KeyedGroups, ledger: Ints, end: Ints) -> tuple[Ints, Ints, Mask]:
    """Return possible beginnings of segments, as in `Cases`: where a bookie comes or goes, longest absence first."""
    # Inside a group of equal distances no bookie comes or goes; two runs are at equal distances by chance.
    is_pair = run_counts(groups.first, groups.last, groups.period) == 2
    begin = np.concatenate([groups.first, groups.last[is_pair]])
    behind = np.concatenate([groups.last + groups.size, (groups.first + groups.size)[is_pair]])
    head = heads(groups.key)
    tail = np.append(head[1:], True)[: len(head)]
    gap = np.where(head, end[ledger] + 1, groups.first - np.append(0, behind[: len(head)][:-1])[: len(head)])
    gap_after = np.where(tail, end[ledger] + 1, np.append(gap[1:], 0)[: len(gap)])
    places = np.concatenate([begin, behind])
    weight = np.concatenate([gap, gap[is_pair], gap_after, gap[is_pair]])
    owner = np.concatenate([ledger, ledger[is_pair], ledger, ledger[is_pair]])
    inside = np.flatnonzero((places > 0) & (places <= end[owner]))
    inside = inside[np.lexsort((-weight[inside], owner[inside]))]
    nth = number_within(owner[inside])
    inside, nth = inside[nth < _CUTS], nth[nth < _CUTS]
    ledgers = np.arange(len(end))
    owner = np.concatenate([ledgers, ledgers, owner[inside]])
    places = np.concatenate([np.zeros(len(end), np.int64), end + 1, places[inside]])
    likely = np.append(np.ones(2 * len(end), np.bool_), nth < _MAIN)
    order = np.lexsort((places, owner))
    first = np.flatnonzero(heads(owner[order], places[order]))
    main = np.logical_or.reduceat(likely[order], first)
    chosen = order[first]
    return np.searchsorted(owner[chosen], np.arange(len(end) + 1)), places[chosen], main
