"""The choice that goes round: after N runs each entry of each position was asked for, in runs of neighbours."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.bookies.entry_choice import MOST, READ_AHEAD, Rotation, choose_entries, count_chosen, find_stretches
from recovery.model.groups import lay_out
from recovery.model.positions import Cells


@st.composite
def segments(draw: st.DrawFn) -> Cells:
    """All positions of one segment on which an entry belongs."""
    ensemble = draw(st.integers(1, 5))
    write = draw(st.integers(1, ensemble))
    low = draw(st.integers(0, 40))
    high = low + draw(st.integers(0, 1500))
    rows = []
    for position in range(ensemble):
        due = sum((position - entry) % ensemble < write for entry in range(low, high + 1))
        if due:
            rows.append((0, position, position, ensemble, write, low, high, due))
    return Cells(*np.array(rows, np.int64).T)


def take_run(cells: Cells, ledger: int, rotation: Rotation) -> dict[int, list[int]]:
    """Position → the entries that a run asks for."""
    stretches = find_stretches(cells, np.full(len(cells.ledger), ledger), rotation)
    choice = choose_entries(cells, stretches)
    place, entry = lay_out(choice.runs)
    asked: dict[int, list[int]] = {position: [] for position in cells.position.tolist()}
    for row, one in zip(place.tolist(), entry.tolist(), strict=True):
        asked[int(cells.position[row])].append(one)
    counted, cost = count_chosen(cells, stretches)
    assert counted.tolist() == [len(asked[position]) for position in cells.position.tolist()]
    assert (cost == choice.cost).all()
    assert ((cost >= counted) & (cost <= cells.due)).all()
    return asked


def list_due(cells: Cells, position: int) -> list[int]:
    """The entries that belong on a position, entry by entry."""
    ensemble, write = int(cells.ensemble[0]), int(cells.write[0])
    entries = range(int(cells.low[0]), int(cells.high[0]) + 1)
    return [entry for entry in entries if (position - entry) % ensemble < write]


@given(cells=segments(), ledger=st.integers(0, 1 << 62), runs=st.integers(1, 12), begin=st.integers(0, 1000))
def test_after_n_runs_each_entry_of_each_position_was_asked_for(
    cells: Cells, ledger: int, runs: int, begin: int
) -> None:
    """Whichever run is the first; the ends in each; nothing that does not belong there; each other entry once."""
    asked = [take_run(cells, ledger, Rotation(begin + number, runs)) for number in range(runs)]
    for position in cells.position.tolist():
        due = list_due(cells, position)
        for of_run in asked:
            assert {due[0], due[-1]} <= set(of_run[position]) <= set(due)
            # In runs of neighbours: what is asked for between the ends is one stretch without a hole.
            inner = [due.index(entry) for entry in of_run[position] if entry not in (due[0], due[-1])]
            assert not inner or inner == list(range(inner[0], inner[-1] + 1))
        inner_entries = [entry for of_run in asked for entry in of_run[position] if entry not in (due[0], due[-1])]
        assert sorted(inner_entries) == due[1:-1]


@given(cells=segments(), ledger=st.integers(0, 1 << 62), runs=st.integers(1, 12), run=st.integers(0, 1000))
def test_all_copies_of_an_entry_are_asked_for_in_the_same_run(cells: Cells, ledger: int, runs: int, run: int) -> None:
    """But for the ends of positions: an entry that no bookie has is seen to be lost, not to lack one copy."""
    asked = take_run(cells, ledger, Rotation(run, runs))
    ends = {entry for position in asked for entry in (list_due(cells, position)[0], list_due(cells, position)[-1])}
    for entry in {entry for entries in asked.values() for entry in entries} - ends:
        holders = {position for position in asked if entry in list_due(cells, position)}
        assert {position for position, entries in asked.items() if entry in entries} == holders


def make_cell(entries: int, ensemble: int = 1, write: int = 1) -> Cells:
    """The first position of a segment."""
    return Cells(*(np.array([value]) for value in (0, 0, 0, ensemble, write, 0, entries - 1, entries)))


@pytest.mark.parametrize("runs", [1, 7, 30])
def test_a_stretch_is_no_shorter_than_what_a_bookie_reads_ahead(runs: int) -> None:
    """A ledger of 250 entries is three stretches, however many runs there are: the other runs ask for its ends."""
    counts = [len(take_run(make_cell(250), 7, Rotation(run, runs))[0]) for run in range(runs)]
    stretches = [count for count in counts if count > 2]
    # Two of a hundred and one of fifty, each with the ends that it does not have itself.
    assert sorted(stretches) == ([250] if runs == 1 else [51, READ_AHEAD + 1, READ_AHEAD + 2])


def test_runs_of_many_ledgers_are_about_as_long_as_each_other() -> None:
    """The hash shifts: ledgers of one stretch are not all taken by the first run."""
    cells = Cells(*(np.full(3000, value) for value in (0, 0, 0, 1, 1, 0, 49, 50)))
    loads = []
    for run in range(10):
        stretches = find_stretches(cells, np.arange(3000), Rotation(run, 10))
        loads.append(int(count_chosen(cells, stretches)[0].sum()))
    assert sum(load - 2 * 3000 for load in loads) == 3000 * 48
    assert max(loads) < 1.3 * min(loads)


def test_a_record_with_an_end_far_above_all_fills_no_memory() -> None:
    """It takes more runs than others, and says so."""
    cells = make_cell(1 << 50)
    for run in range(3):
        stretches = find_stretches(cells, np.array([5]), Rotation(run, 30))
        assert int(stretches.runs[0]) == 1 << 30
        assert len(choose_entries(cells, stretches).runs.key) <= 3
        assert int(count_chosen(cells, stretches)[0][0]) <= MOST + 2


def test_the_round_begins_again_with_another_n() -> None:
    """A run goes on from the one before; the last of a round is followed by the first of the next."""
    rotation = Rotation(0, 3)
    numbers = []
    for _ in range(5):
        numbers.append(rotation.number)
        rotation = rotation.advance(3)
    assert numbers == [1, 2, 3, 1, 2]
    assert rotation.advance(4) == Rotation(0, 4)
