"""Entries below a place, and those of them that belong to a position: counted in groups as one by one."""

from random import Random

import numpy as np
import pytest

from recovery.infer import entry_counts
from recovery.infer.copies import CopyColumns
from recovery.infer.entry_counts import count_below, find_thin
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


@pytest.mark.parametrize("seed", range(20))
def test_the_first_entry_with_too_few_copies(seed: int) -> None:
    """Whole copies, stripes, holes and late beginnings; a ledger that nobody holds has none."""
    rng = Random(seed)
    held: list[list[set[int]]] = []
    for _ in range(12):
        end = rng.randrange(1, 30)
        whole = set(range(end + 1))
        kinds = (whole, {e for e in whole if e % 3}, whole - {rng.randint(0, end)}, set(range(end // 2, end + 1)))
        held.append([own for _ in range(rng.randint(0, 4)) if (own := rng.choice(kinds))])
    rows = [(ledger, sorted(own)) for ledger, bookies in enumerate(held) for own in bookies]
    laid = [group_entries(np.array(own, np.int64)) for _, own in rows]
    groups = np.repeat(np.arange(len(rows)), [len(group.first) for group in laid])
    columns = (np.concatenate([getattr(group, name) for group in laid]) for name in ("first", "last", "size", "period"))
    copies = CopyColumns.sum_up(len(held), np.array([ledger for ledger, _ in rows]), groups, *columns)
    wanted = np.array([rng.randint(0, 4) for _ in held])
    expected = []
    for bookies, fewest in zip(held, wanted.tolist(), strict=True):
        end = max((max(own) for own in bookies), default=-1)
        counts = [sum(entry in own for own in bookies) for entry in range(end + 1)]
        expected.append(next((entry for entry, count in enumerate(counts) if count < fewest), end + 1))
    assert find_thin(copies, wanted).tolist() == expected


def test_who_holds_nothing_is_counted_with_every_position() -> None:
    """One position where all hold everything."""
    none = KeyedGroups(*(np.zeros(0, np.int64) for _ in range(5)))
    row, place = np.zeros((1, 2), np.int64), np.array([3, 5])
    assert count_below(none, row, place, 3, 2)[1].tolist() == [[[0, 0]] * 3]
    assert count_below(none, row, place, 3, 3)[1].tolist() == [[[0, 0]]]


@pytest.mark.parametrize(("runs", "most", "first"), [(3, 3, 9), (3, 2, 9), (2, 3, 0), (2, 2, 0)])
def test_a_ledger_of_very_many_runs_may_lack_any(
    runs: int, most: int, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless enough bookies hold all of it: entry 8 is the last one; whole copies, and one with gaps."""
    monkeypatch.setattr(entry_counts, "_MOST_RUNS", most)
    whole, gaps = [0, 0, 9, 0], [0, 8, 1, 8 // max(runs - 1, 1)]
    rows = [whole, whole, gaps] if first else [whole, gaps]
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    copies = CopyColumns.sum_up(1, np.zeros(len(rows), np.int64), np.arange(len(rows)), *columns)
    expected = {9: 9, 0: 1 if 1 + runs <= most else 0}[first]
    assert find_thin(copies, np.array([2])).tolist() == [expected]
