"""Which entries of closed ledgers a run reads from bookies that give no lists: a choice that goes round.

    of each position of each segment      in
    the first and the last entry          every run
    the entries within one stretch        one run of N: after N runs each entry was asked for

A segment is cut into at most N stretches of neighbouring entries, and each run takes one stretch, or none: the same
one for all positions, so that all copies of an entry are asked for in the same run. Which one, a hash of ledger and
segment shifts, so that runs are about as long as each other. A stretch is as long as what a bookie reads ahead, or
longer: a shorter one would cost the bookie as much. Stretches are cut by a record's own numbers, so they stay the same
as long as the segment does, whoever its bookies are.

A bookie that has to read from its disk reads up to `READ_AHEAD` entries more into the cache that tailing readers use
(of DbLedgerStorage: dbStorage_readAheadCacheBatchSize): `cost` counts them.

Pure functions of their arguments.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from recovery.model.groups import KeyedRuns, rank, union_runs
from recovery.model.ids import mix
from recovery.model.positions import Cells, find_ends, lay_out_due

Ints = npt.NDArray[np.int64]

READ_AHEAD: Final = 100
"""Entries that a bookie reads ahead at a miss, by default."""
MOST: Final = 1 << 20
"""Entries of one stretch, at most: a record that names an end far above all that is held must not fill the memory."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """Where the choice stands.

    Attributes:
        run: number of this run, from 0 on; it may go beyond `runs`: then the second round has begun.
        runs: N: after so many runs each entry was asked for.
    """

    run: int
    runs: int

    @property
    def number(self) -> int:
        """The number of the run in its round, from 1."""
        return self.run % self.runs + 1

    def advance(self, runs: int) -> Self:
        """Return the turn of the next run; with another N a new round begins."""
        return type(self)(self.run + 1 if runs == self.runs else 0, runs)


class Stretches(NamedTuple):
    """The stretch that this run takes of each position's segment, and how many runs it takes until all were taken.

    Where `begin` is above `end` it takes none.
    """

    begin: Ints
    end: Ints
    runs: Ints


class EntryChoice(NamedTuple):
    """What is asked for: runs of neighbouring entries, keyed by the place of the position; `cost` one a position."""

    runs: KeyedRuns
    cost: Ints


def find_stretches(cells: Cells, ledgers: Ints, rotation: Rotation) -> Stretches:
    """Return the stretch of each position's segment.

    Args:
        cells: positions.
        ledgers: of each position, the ledger's id.
        rotation: where the choice stands.
    """
    length = cells.high - cells.low + 1
    least = -(-READ_AHEAD * cells.ensemble // cells.write)
    step = np.minimum(np.maximum(least, -(-length // rotation.runs)), MOST)
    count = -(-length // step)
    runs = np.maximum(count, rotation.runs)
    shift = (mix(cells.low.copy(), ledgers) % runs.astype(np.uint64)).astype(np.int64)
    number = (shift + rotation.run) % runs
    begin = cells.low + number * step
    taken = number < count
    return Stretches(np.where(taken, begin, 1), np.where(taken, np.minimum(begin + step - 1, cells.high), 0), runs)


def count_chosen(cells: Cells, stretches: Stretches) -> tuple[Ints, Ints]:
    """Return how many entries of each position are asked for, and how many its bookie reads for that, at most.

    Nothing is laid out: this takes as long for a ledger of many entries as for one of few.
    """
    first, last = find_ends(cells)
    inside = _count_due(cells, stretches.begin, stretches.end)
    in_stretch = [(end >= stretches.begin) & (end <= stretches.end) for end in (first, last)]
    chosen = inside + ~in_stretch[0] + ((first != last) & ~in_stretch[1])
    misses = (inside > 0).astype(np.int64) + 1
    return chosen, np.minimum(cells.due, chosen + READ_AHEAD * misses)


def choose_entries(cells: Cells, stretches: Stretches) -> EntryChoice:
    """Return the entries that are asked for of each position."""
    ends = find_ends(cells)
    place = np.arange(len(cells.ledger))
    one = np.ones(len(place), np.int64)
    parts = [lay_out_due(cells, stretches.begin, stretches.end), *(KeyedRuns(place, end, one) for end in ends)]
    runs = union_runs(KeyedRuns(*(np.concatenate(column) for column in zip(*parts, strict=True))))
    return EntryChoice(runs, count_chosen(cells, stretches)[1])


def _count_due(cells: Cells, begin: Ints, end: Ints) -> Ints:
    """Return how many entries of a stretch belong on each position; of none where its ends cross."""
    shape = (cells.position, cells.ensemble, cells.write)
    return np.where(begin <= end, rank(end + 1, *shape) - rank(np.minimum(begin, end + 1), *shape), 0)
