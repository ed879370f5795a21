"""Entries below a place, and those of them that belong to a position: counted in groups as one by one."""

from random import Random

import numpy as np
import pytest

from recovery.infer.entry_counts import count_below
from recovery.model.groups import KeyedGroups, group_entries
from tests.simulation import simulator

ROWS, CELLS, LARGEST = 5, 12, 60


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("ensemble", "write"), [(3, 2), (3, 3), (5, 2), (4, 1), (1, 1)])
def test_entries_are_counted_by_row_and_position(ensemble: int, write: int, seed: int) -> None:
    """Stripes, runs and odd ones; where every position has every entry there is one position only."""
    rng = Random(seed)
    held = []
    for number in range(ROWS):
        entries = {e for e in range(LARGEST) if simulator.holds(number % ensemble, e, ensemble, write)}
        odd = rng.sample(range(LARGEST), rng.choice((0, 3)))
        held.append(sorted((entries ^ set(odd)) if rng.random() < 0.8 else set()))
    laid = [group_entries(np.array(entries, np.int64)) for entries in held]
    key = np.repeat(np.arange(ROWS), [len(group.first) for group in laid])
    columns = (np.concatenate([getattr(group, name) for group in laid]) for name in ("first", "last", "size", "period"))
    groups = KeyedGroups(key, *columns)
    row = np.array([[rng.randrange(ROWS) for _ in range(CELLS)] for _ in range(3)])
    place = np.array([rng.randrange(LARGEST + 5) for _ in range(CELLS)])
    counted, fits = count_below(groups, row, place, ensemble, write)
    positions = range(ensemble) if write < ensemble else range(1)
    below = [[[e for e in held[row[r, c]] if e < place[c]] for c in range(CELLS)] for r in range(3)]
    assert counted.tolist() == [[len(cell) for cell in line] for line in below]
    assert fits.tolist() == [
        [[sum(simulator.holds(p, e, ensemble, write) for e in cell) for cell in line] for p in positions]
        for line in below
    ]


def test_who_holds_nothing_is_counted_with_every_position() -> None:
    """One position where all hold everything."""
    none = KeyedGroups(*(np.zeros(0, np.int64) for _ in range(5)))
    row, place = np.zeros((1, 2), np.int64), np.array([3, 5])
    assert count_below(none, row, place, 3, 2)[1].tolist() == [[[0, 0]] * 3]
    assert count_below(none, row, place, 3, 3)[1].tolist() == [[[0, 0]]]
