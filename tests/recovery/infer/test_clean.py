"""The common path alone: what nothing happened to is tiled by its own positions, however short it is."""

import itertools

import numpy as np
import pytest

from recovery.infer.clean import Decision, decide
from recovery.infer.copies import CopyColumns
from recovery.model.groups import group_entries
from tests.simulation.simulator import holds

SHAPES = [(size, write) for size in range(1, 7) for write in range(1, size + 1)]


def lay_out(*rows: list[int]) -> CopyColumns:
    """Return the rows of one ledger; every row has an entry."""
    entries, key = np.concatenate(rows), np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    groups = group_entries(entries.astype(np.int64), key)
    return CopyColumns.sum_up(1, np.zeros(len(rows), np.int64), *groups)


def decide_one(copies: CopyColumns, size: int, write: int) -> Decision:
    """Try a shape on one ledger."""
    return decide(copies, np.array([size]), np.array([write]))


@pytest.mark.parametrize(("size", "write"), SHAPES)
def test_a_ledger_of_any_length_is_tiled_by_its_own_positions(size: int, write: int) -> None:
    """One segment, each bookie at its own position; of less than W entries any order of those that hold all will do."""
    for entries in range(1, 4 * size):
        shares = [[e for e in range(entries) if holds(position, e, size, write)] for position in range(size)]
        used = [position for position in range(size) if shares[position]]
        decision = decide_one(lay_out(*(shares[position] for position in used)), size, write)
        assert decision.accepted.tolist() == [True], (size, write, entries)
        assert (decision.first.tolist(), decision.extra.tolist()) == ([0], [0])
        members = [used[n] if n >= 0 else None for n in decision.members.tolist()]
        assert len(members) == size
        for entry in range(entries):
            have = {members[(entry + n) % size] for n in range(write)}
            assert have == {position for position in used if entry in shares[position]}, (size, write, entries)


@pytest.mark.parametrize(("size", "write"), [shape for shape in SHAPES if shape[0] > shape[1]])
def test_no_other_shape_explains_a_long_striped_ledger(size: int, write: int) -> None:
    """What is laid out by one E and W is accepted by no other one as a ledger of one segment."""
    shares = [[e for e in range(6 * size) if holds(position, e, size, write)] for position in range(size)]
    copies = lay_out(*shares)
    for other in SHAPES:
        decision = decide_one(copies, *other)
        if other != (size, write) and decision.accepted[0]:
            assert len(decision.first) > 1


@pytest.mark.parametrize(("size", "write"), [shape for shape in SHAPES if shape[0] > shape[1] > 0])
def test_a_replaced_bookie_begins_a_segment(size: int, write: int) -> None:
    """A newcomer takes over a position; the change was at any entry since the last copy of whoever it replaced."""
    entries = 6 * size
    for position, change in itertools.product(range(size), range(2 * size, 4 * size)):
        shares = [[e for e in range(entries) if holds(p, e, size, write)] for p in range(size)]
        old = [e for e in shares[position] if e < change]
        new = [e for e in shares[position] if e >= change]
        decision = decide_one(lay_out(*shares[:position], old, *shares[position + 1 :], new), size, write)
        assert decision.accepted.tolist() == [True], (size, write, position, change)
        assert len(decision.first) == 2
        assert decision.low[1] <= change <= decision.first[1]
        members = decision.members.reshape(2, size).tolist()
        assert members[0] == list(range(size))
        assert members[1] == [size if p == position else p for p in range(size)]
