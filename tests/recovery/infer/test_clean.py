"""The common path alone: what nothing happened to is tiled by its own positions, however short it is."""

import itertools
from random import Random

import numpy as np
import pytest

from recovery.infer.clean import HypothesisDecision, decide
from recovery.infer.copies import CopyColumns
from recovery.model.groups import group_entries
from tests.simulation.simulator import holds

SHAPES = [(size, write) for size in range(1, 7) for write in range(1, size + 1)]


def lay_out(*rows: list[int]) -> CopyColumns:
    """Return the rows of one ledger; every row has an entry."""
    entries, key = np.concatenate(rows), np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    groups = group_entries(entries.astype(np.int64), key)
    return CopyColumns.sum_up(1, np.zeros(len(rows), np.int64), *groups)


def decide_one(copies: CopyColumns, size: int, write: int) -> HypothesisDecision:
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


def lay_out_all(*ledgers: list[list[int]]) -> CopyColumns:
    """Return the rows of some ledgers."""
    rows = [row for held in ledgers for row in held]
    groups = group_entries(
        np.array([entry for row in rows for entry in row], np.int64), np.repeat(np.arange(len(rows)), [*map(len, rows)])
    )
    owner = np.repeat(np.arange(len(ledgers)), [*map(len, ledgers)])
    return CopyColumns.sum_up(len(ledgers), owner, *groups)


def draw(rng: Random) -> tuple[list[list[int]], int, int]:
    """Draw the rows of a ledger whose bookies were replaced, maybe with a copy more or less; and its shape."""
    size = rng.randint(1, 4)
    write, entries = rng.randint(1, size), rng.randint(1, 10)
    rows = []
    for position in range(size):
        own = [entry for entry in range(entries) if holds(position, entry, size, write)]
        while own and rng.random() < 0.4:
            cut = rng.randint(1, len(own))
            rows.append(own[: cut + rng.choice([0, 0, 1])])
            own = own[cut:]
        rows.append(own)
    for _ in range(rng.choice([0, 0, 1, 2])):
        row, entry = rng.choice(rows), rng.randrange(entries)
        row.remove(entry) if entry in row else row.append(entry)
    rows = [sorted(row) for row in rows if row]
    rng.shuffle(rows)
    return rows, size, write


def test_what_is_accepted_is_proved_and_decided_as_alone() -> None:
    """Each entry has all its copies where the ensembles say; whatever other ledgers a batch has."""
    rng, accepted = Random(11), 0
    for _ in range(120):
        drawn = [one for one in (draw(rng) for _ in range(3)) if one[0]]
        if rng.random() < 0.3:
            drawn = [(rows, *rng.choice([(3, 2), (2, 2), (2, 1)])) for rows, *_ in drawn]
        together = decide(
            lay_out_all(*(rows for rows, *_ in drawn)), *(np.array([d[n] for d in drawn]) for n in (1, 2))
        )
        first_row, cells = 0, 0
        for number, (rows, size, write) in enumerate(drawn):
            alone = decide_one(lay_out_all(rows), size, write)
            own = together.segment_ledger == number
            assert together.accepted[number] == alone.accepted[0], drawn
            assert own.sum() == len(alone.first)
            if alone.accepted[0]:
                accepted += 1
                members = together.members[cells : cells + size * own.sum()]
                assert np.where(members < 0, -1, members - first_row).tolist() == alone.members.tolist()
                assert together.first[own].tolist() == alone.first.tolist()
                assert together.extra[number] == alone.extra[0]
                check(rows, size, write, alone)
            cells += size * own.sum()
            first_row += len(rows)
    assert accepted > 80


def check(rows: list[list[int]], size: int, write: int, decision: HypothesisDecision) -> None:
    """Check that each entry has all its copies, and how many there are besides."""
    ensembles = decision.members.reshape(-1, size).tolist()
    end, due = max(map(max, rows)), 0
    for entry in range(end + 1):
        ensemble = ensembles[int(np.searchsorted(decision.first, entry, "right")) - 1]
        for i in range(write):
            member = ensemble[(entry + i) % size]
            assert member >= 0, (rows, size, write)
            assert entry in rows[member], (rows, size, write)
            due += 1
    assert decision.extra.tolist() == [sum(map(len, rows)) - due], (rows, size, write)
    assert decision.first.tolist() == sorted(set(decision.first.tolist()))
    assert (decision.low <= decision.first).all()


@pytest.mark.parametrize(
    ("rows", "size", "write", "accepted"),
    [
        ([[0, 1, 2]], 1, 1, True),
        # No ensemble has such quorums, and nothing is proved of a ledger without entries.
        ([[0, 1, 2]], 1, 0, False),
        ([[0, 1, 2]], 1, 2, False),
        ([], 2, 1, False),
        ([], 1, 1, False),
    ],
)
def test_what_is_no_shape_explains_nothing(rows: list[list[int]], size: int, write: int, *, accepted: bool) -> None:
    """Nor does any shape explain what has no copies."""
    assert decide_one(lay_out_all(rows), size, write).accepted.tolist() == [accepted]


@pytest.mark.parametrize(
    ("segments", "end", "hasty"), [(1, 0, False), (2, 2, True), (2, 3, False), (3, 4, True), (3, 5, False)]
)
def test_two_entries_a_segment_are_no_haste(segments: int, end: int, *, hasty: bool) -> None:
    """Nor is one segment, however short."""
    none = np.zeros(0, np.int64)
    decision = HypothesisDecision(np.ones(1, np.bool_), none, np.zeros(segments, np.int64), none, none, none)
    assert decision.hasty(np.array([end])).tolist() == [hasty]


@pytest.mark.parametrize(("size", "write"), [(2, 1), (3, 1), (3, 2), (4, 2)])
def test_a_copy_of_another_entry_is_no_copy_of_this_one(size: int, write: int) -> None:
    """One copy of an unharmed ledger is of another entry: as many as are due, but nothing shows that all are there.

    Unless there is an ensemble for each entry, of bookies that have it.
    """
    entries = 5 * size
    shares = [[e for e in range(entries) if holds(position, e, size, write)] for position in range(size)]
    ledgers = []
    for position, own in enumerate(shares):
        for old, new in itertools.product(own, sorted({*range(entries)} - {*own})):
            ledgers.append([*shares[:position], sorted({*own, new} - {old}), *shares[position + 1 :]])
    shape = np.full(len(ledgers), size), np.full(len(ledgers), write)
    for number in np.flatnonzero(decide(lay_out_all(*ledgers), *shape).accepted).tolist():
        check(ledgers[number], size, write, decide_one(lay_out_all(ledgers[number]), size, write))


@pytest.mark.parametrize(("last", "accepted", "extra"), [(8, False, 0), (9, False, 0), (10, True, 5), (11, True, 5)])
def test_a_newcomer_ends_behind_whom_it_replaced(last: int, extra: int, *, accepted: bool) -> None:
    """A bookie without an entry that the other lacks has not replaced it, though both end at once."""
    decision = decide_one(lay_out([*range(10)], [*range(5, last + 1)]), 1, 1)
    assert decision.accepted.tolist() == [accepted]
    if accepted:
        assert (decision.first.tolist(), decision.extra.tolist()) == ([0, 5], [extra])
