"""Segments that leave nothing unreadable: what each change has to do, and what it may not."""

from collections.abc import Sequence
from random import Random
from typing import Final

import numpy as np
import pytest

from recovery.infer import solve
from recovery.infer.segment_cases import NOBODY, Cases, ShapeProblem, TriedShape
from recovery.infer.segment_costs import find_cheapest
from recovery.infer.solve import PlacedCopies, Solution
from tests.recovery.infer.test_clean import decide_one, lay_out
from tests.recovery.infer.test_search_choices import copies_of
from tests.simulation.simulator import holds


def reads(ensemble: Sequence[int], entry: int, write: int, held: Sequence[Sequence[int]]) -> bool:
    """Say whether a member of the write set of an entry holds it."""
    members = [ensemble[(entry + i) % len(ensemble)] for i in range(write)]
    return any(member != NOBODY and entry in held[member] for member in members)


@pytest.mark.parametrize("block", [4096, 3, 1])
def test_segments_are_added_only_where_nothing_else_reads_an_entry(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every held entry is readable; the bookie that holds most comes in, and goes once it is not needed."""
    monkeypatch.setattr(solve, "_BLOCK", block)
    monkeypatch.setattr(solve, "_CELLS", 1)
    rng = Random(block)
    changes = 0
    for _ in range(120):
        size = rng.randint(1, 4)
        write, count = rng.randint(1, size), rng.randint(1, 5)
        low, high = rng.randint(0, 4), rng.randint(5, 14)
        held = [sorted(rng.sample(range(high), rng.randint(1, high - 1))) for _ in range(count)]
        given = rng.sample([*range(count), *[NOBODY] * size], size)
        found = solve._patch(copies_of(*held), (low, high), np.array(given), write, 99)
        segments = [(first, members.tolist()) for first, members in found]
        # As many as are allowed are all that there are.
        again = solve._patch(copies_of(*held), (low, high), np.array(given), write, len(found))
        assert [(first, members.tolist()) for first, members in again] == segments
        # One less is too few, and that shows.
        if len(found) > 1:
            assert len(solve._patch(copies_of(*held), (low, high), np.array(given), write, len(found) - 1)) == len(
                found
            )
        case = (held, given, write, low, high, segments)
        starts = [first for first, _ in segments]
        assert (starts[0], starts) == (low, sorted(set(starts))), case
        current = given
        for entry in range(low, high):
            before, current = current, dict(segments).get(entry, current)
            holders = [row for row in range(count) if entry in held[row]]
            assert not holders or reads(current, entry, write, held), case
            if current == before:
                continue
            changes += 1
            assert not reads(before, entry, write, held), case
            if reads(given, entry, write, held):
                assert current == given, case
                continue
            changed = [place for place in range(size) if current[place] != given[place]]
            write_set = [(entry + i) % size for i in range(write)]
            [place] = [place for place in changed if place in write_set and current[place] in holders]
            # Only an empty place is filled, if there is one; a member that comes in leaves its own.
            assert given[place] == NOBODY or all(given[other] != NOBODY for other in write_set), case
            newcomer = current[place]
            assert sorted(current) == sorted(given) if newcomer in given else len(changed) == 1, case

            lasts = {row: next(e for e in range(entry, high + 1) if e == high or e not in held[row]) for row in holders}
            assert block < 4096 or lasts[newcomer] == max(lasts.values()), case
    assert changes > 60


def test_what_takes_too_long_to_look_through_is_not_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry that no member of its write set has makes it so, too; one that no bookie has does not."""
    first, members = np.array([0]), np.array([[0, 1]])

    def is_readable(*held: Sequence[int]) -> bool:
        return PlacedCopies.sum_up(copies_of(*held), 9, 1, first, members).readable

    striped = [range(0, 10, 2), range(1, 10, 2)]
    assert is_readable(*striped)
    assert is_readable([0, 2, 4, 6, 8], [1, 3, 7, 9])
    assert not is_readable([0, 2, 4, 6, 8], [1, 3, 7, 9], [5])
    monkeypatch.setattr(solve, "_LOOKED_THROUGH", 9)
    assert is_readable(*striped)
    assert not is_readable([0, 2, 4, 6, 8], [1, 3, 7, 9])


def solve_one(shape: tuple[int, int], *held: Sequence[int]) -> Solution:
    """Return the cheapest history of one shape."""
    copies, end = copies_of(*held), max(map(max, held))
    cases, problems = Cases.build([copies], [end]), [ShapeProblem(0, copies, end, TriedShape(*shape, 0.0))]
    [solution] = solve.solve_problems(cases, problems, find_cheapest(cases, problems))
    assert solution is not None
    return solution


@pytest.mark.parametrize(("entries", "lacking"), [(1, 0), (2, 1), (3, 1)])
def test_a_position_that_no_entry_belongs_to_lacks_nobody(entries: int, lacking: int) -> None:
    """Two bookies of three: the first entry is on both, and none of the third's."""
    solution = solve_one((3, 2), *([e for e in range(entries) if e % 3 != n] for n in (1, 2)))
    assert len(solution.first) == 1
    assert (solution.thin, solution.lacking.tolist()) == (lacking, [lacking])
    assert solution.unnamed == solution.missing == entries - 1


@pytest.mark.parametrize(("entries", "hasty"), [(3, True), (4, False), (5, False)])
def test_two_entries_a_segment_are_enough_for_full_copies(entries: int, *, hasty: bool) -> None:
    """With fewer a change with every entry costs as much as stripes that look like it."""
    solution = solve_one((2, 2), [0, 1], range(entries), range(2, entries))
    assert (len(solution.first), solution.missing, solution.extra) == (2, 0, 0)
    assert (solution.cost > solve.HASTE) == hasty


EVENS: Final = [0, 2, 4]
ODDS: Final = [1, 3, 5]


@pytest.mark.parametrize(
    ("held", "copied", "members", "wanted"),
    [
        # A whole copy goes before the bookie that it was made for, in each segment; one that was begun does not.
        ([EVENS, ODDS, EVENS], [2], [[0, 1]], [[2, 1]]),
        ([EVENS, ODDS, [0, 2]], [2], [[0, 1]], [[0, 1]]),
        ([EVENS, ODDS, EVENS], [], [[0, 1]], [[0, 1]]),
        ([EVENS, ODDS, EVENS, ODDS], [2, 3], [[0, 1]], [[2, 3]]),
        ([range(6), range(6)], [1], [[0]], [[1]]),
        # Which of two it was made for cannot be told; nor whose place one takes that is a member already.
        ([EVENS, ODDS, range(6)], [2], [[0, 1]], [[0, 1]]),
        ([EVENS, ODDS, range(6)], [2], [[2, 1]], [[2, 1]]),
        # It takes no copy's place, nor an empty one.
        ([EVENS, ODDS, EVENS, EVENS], [2, 3], [[3, 1]], [[3, 1]]),
        ([EVENS, ODDS, EVENS], [2], [[NOBODY, 1]], [[NOBODY, 1]]),
        # Nor one that no entry belongs to.
        ([[0], [1], [0], [9]], [2], [[0, 1, 3]], [[2, 1, 3]]),
    ],
)
def test_a_whole_copy_takes_the_one_place_that_it_fits(
    held: Sequence[Sequence[int]], copied: Sequence[int], members: Sequence[Sequence[int]], wanted: list[list[int]]
) -> None:
    """Of an ensemble whose entries are on one bookie each."""
    copies, first = copies_of(*held, copied=copied), np.array([0])
    end = 1 if len(members[0]) == 3 else 5
    shares = solve._count_shares(copies, first, end, len(members[0]), 1)
    assert solve._prefer_newest(copies, first, np.array(members), end, 1, shares).tolist() == wanted


def test_a_copy_of_one_segment_takes_its_place_there_alone() -> None:
    """What it was made of was closed; the one after it is none of its."""
    copies = copies_of([0, 1, 2, 3, 4, 5], [0, 1, 2], copied=[1])
    first = np.array([0, 3])
    shares = solve._count_shares(copies, first, 5, 1, 1)
    assert solve._prefer_newest(copies, first, np.array([[0], [0]]), 5, 1, shares).tolist() == [[1], [0]]


@pytest.mark.parametrize(("size", "write"), [(3, 2), (4, 2), (3, 1), (2, 1), (2, 2), (3, 3)])
def test_a_change_is_dated_as_far_as_stripes_show_it(size: int, write: int) -> None:
    """Between the last entry of whoever left and the first one of the newcomer, as the common path dates it."""
    for change in range(2 * size, 4 * size):
        shares = [[e for e in range(6 * size) if holds(p, e, size, write)] for p in range(size)]
        rows = [*shares[1:], [e for e in shares[0] if e < change], [e for e in shares[0] if e >= change]]
        solution, decision = solve_one((size, write), *rows), decide_one(lay_out(*rows), size, write)
        assert (solution.first.tolist(), solution.low.tolist()) == (decision.first.tolist(), decision.low.tolist())
        assert solution.low[1] <= change <= solution.first[1]


@pytest.mark.parametrize(
    ("last", "end", "dated"),
    [
        # The fourth position has nothing before entry 3, the first one nothing before entry 4.
        ([5, 1, 2, 4], 9, [0, 3, 4]),
        ([5, 1, 2, 4], 4, [0, 3, 4]),
        # A change behind the end is none.
        ([5, 1, 2, 4], 3, [0, 1, 2]),
        # Both changes at one entry: then neither is dated.
        ([0, 1, 2, 5], 9, [0, 1, 2]),
        # Nor where the later one would come first.
        ([0, 1, 5, 4], 9, [0, 1, 2]),
    ],
)
def test_segments_are_dated_in_order_or_not_at_all(last: Sequence[int], end: int, dated: Sequence[int]) -> None:
    """A takeover is dated to the first entry of its position, as long as each segment keeps an entry of its own."""
    first = np.array([0, 1, 2])
    members = np.array([[0, 1, 2, 3], [0, 1, 2, 4], last])
    segments = solve._Segments(np.zeros(3, np.int64), first, np.array([1, 2, end + 1]), members)
    assert solve._join(segments, np.array([end]), 1)[0].first.tolist() == dated


def test_segments_of_one_ensemble_are_joined_and_others_stay_apart() -> None:
    """Also those that share no bookie; and the same ensemble in another history is another one."""
    members = np.array([[0, 1], [0, 1], [2, 3], [2, 3]])
    segments = solve._Segments(np.array([0, 0, 0, 1]), np.array([0, 3, 6, 0]), np.array([3, 6, 10, 5]), members)
    joined, _ = solve._join(segments, np.array([9, 4]), 2)
    assert (joined.history.tolist(), joined.first.tolist()) == ([0, 0, 1], [0, 6, 0])
    assert (joined.behind.tolist(), joined.members.tolist()) == ([6, 10, 5], [[0, 1], [2, 3], [2, 3]])
