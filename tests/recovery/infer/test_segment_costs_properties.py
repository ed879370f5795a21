"""What is not weighed could not have been part of the cheapest segments: they cost what weighing everything says."""

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from recovery.infer import segment_cases, segment_costs
from recovery.infer.copies import Ints
from recovery.model.groups import group_entries
from tests.simulation import simulator

pytestmark = pytest.mark.long

ENTRIES = 40


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, int]:
    """E and W."""
    ensemble = draw(st.integers(1, 4))
    return ensemble, draw(st.integers(1, ensemble))


@st.composite
def copies(draw: st.DrawFn) -> list[list[int]]:
    """What bookies hold: stretches of striped entries, and single ones; somebody holds the last."""
    ensemble, write = draw(shapes())
    rows = []
    for _ in range(draw(st.integers(1, 6))):
        low, high, position = (draw(st.integers(0, ENTRIES)) for _ in range(3))
        own = {entry for entry in range(low, high) if (position - entry) % ensemble < write}
        rows.append(sorted(own ^ draw(st.sets(st.integers(0, ENTRIES - 1), max_size=3))))
    rows[0] = sorted({*rows[0], ENTRIES - 1})
    return rows


def cheapest(rows: Sequence[Sequence[int]], copied: Sequence[bool], cuts: Ints, ensemble: int, write: int) -> float:
    """Weigh every interval between two cuts, with the best bookie at each position."""

    def cost(begin: int, end: int) -> float:
        own = [[entry for entry in row if begin <= entry < end] for row in rows]
        place = np.arange(ensemble)
        due = ((place - np.arange(begin, end)[:, None]) % ensemble < write).sum(axis=0)
        fits = np.array([((place - np.array(row, np.int64)[:, None]) % ensemble < write).sum(axis=0) for row in own])
        wide = [any(set(range(e, e + write + 1)) <= set(row) for e in row) and write < ensemble for row in rows]
        marked = np.array([any(copied) and (flag or w) for flag, w in zip(copied, wide, strict=True)])
        each = np.where(marked, segment_costs.COPIED_EXTRA, segment_costs.EXTRA)
        most = np.where(marked, segment_costs.COPIED_EXTRAS, segment_costs.EXTRAS)
        held = np.array([len(row) for row in own])
        alone = np.minimum(each * held, most)
        absent = np.minimum(segment_costs.ABSENCE * due, segment_costs.ABSENCES)
        member = np.minimum(segment_costs.ABSENCE * (due - fits), segment_costs.ABSENCES)
        member += np.minimum(each[:, None] * (held[:, None] - fits), most[:, None])
        saved = np.maximum(absent + alone[:, None] - member, 0.0)
        return float(segment_costs.SEGMENT + alone.sum() + absent.sum() - saved[linear_sum_assignment(-saved)].sum())

    best = [0.0] + [math.inf] * (len(cuts) - 1)
    for end in range(1, len(cuts)):
        best[end] = min(best[begin] + cost(int(cuts[begin]), int(cuts[end])) for begin in range(end))
    return best[-1]


@settings(max_examples=25)
@given(copies(), st.lists(st.booleans(), min_size=6, max_size=6), shapes())
def test_the_cheapest_segments_are_found(rows: list[list[int]], copied: list[bool], shape: tuple[int, int]) -> None:
    """Cuts and intervals are left out only if they cannot matter: the cost is that of weighing all of them."""
    keys = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    groups = group_entries(np.concatenate([np.array(row, np.int64) for row in rows]), keys)
    held = segment_cases.Copies(np.arange(len(rows)), np.array(copied[: len(rows)]), groups)
    cases = segment_cases.Cases.build([held], [ENTRIES - 1])
    [path] = segment_costs.find_cheapest(
        cases, [segment_cases.ShapeProblem(0, held, ENTRIES - 1, segment_cases.TriedShape(*shape, 0.0))]
    )
    assert path is not None
    least = cheapest(rows, copied[: len(rows)], cases.cuts, *shape)
    # A bookie that fits a position better in the whole ledger is preferred by up to a thousandth.
    assert least - 0.001 * shape[0] * len(path.first) - 1e-6 <= path.cost <= least + 1e-6
    assert len(path.first) == len(path.members) == len(path.shares)
    limited = segment_cases.ShapeProblem(
        0, held, ENTRIES - 1, segment_cases.TriedShape(*shape, 0.0), limit=path.cost + 1e-6
    )
    assert segment_costs.find_cheapest(cases, [limited])[0] is not None


def test_what_a_wipe_would_explain_may_cost_so_much_more() -> None:
    """Where a bookie may have lost all; not where none can have, nor where one was not looked at."""
    held = segment_cases.Copies(np.arange(1), np.zeros(1, np.bool_), group_entries(np.arange(3)))
    allowed = {
        lost: segment_costs.allowance(
            segment_cases.ShapeProblem(0, held, 2, segment_cases.TriedShape(1, 1, 0.5), 7.0, lost)
        )
        for lost in segment_cases.Lost
    }
    assert allowed == {
        segment_cases.Lost.NOTHING: 6.5,
        segment_cases.Lost.WIPED: 6.5 + segment_costs.WIPED,
        segment_cases.Lost.UNSEEN: 6.5,
    }


@pytest.mark.parametrize("together", [1, 3, 512])
def test_a_limit_leaves_out_what_costs_more_and_nothing_else(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of histories in one batch, long and short, striped and not, each found at its own cost, and not below it."""
    monkeypatch.setattr(segment_costs, "_TOGETHER", together)
    rng, cluster = random.Random(5), simulator.Cluster(lengths=(1, 2, 5, 20, 60, 200), changes=(0, 1, 3))
    made = [simulator.history(rng, number, cluster) for number in range(12)]
    copies, ends = [], []
    for history in made:
        rows = [sorted(entries) for entries in history.held.values() if entries]
        keys = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
        groups = group_entries(np.concatenate([np.array(row, np.int64) for row in rows]), keys)
        copies.append(segment_cases.Copies(np.arange(len(rows)), np.zeros(len(rows), np.bool_), groups))
        ends.append(max(row[-1] for row in rows))
    cases = segment_cases.Cases.build(copies, ends)
    shapes = {*((history.ensemble, history.write) for history in made), (1, 1), (70, 2), (3, 3)}
    free = [
        segment_cases.ShapeProblem(number, copies[number], ends[number], segment_cases.TriedShape(*shape, 0.0))
        for number in range(len(made))
        for shape in sorted(shapes)
    ]
    paths = segment_costs.find_cheapest(cases, free)
    assert all(path is not None for path in paths)
    costs = [path.cost for path in paths if path is not None]
    for more, is_found in ((1e-6, True), (-0.2, False)):
        limited = [problem._replace(limit=cost + more) for problem, cost in zip(free, costs, strict=True)]
        found = segment_costs.find_cheapest(cases, limited)
        assert [path is not None for path in found] == [is_found] * len(free)
        if is_found:
            assert [path.cost for path in found if path is not None] == pytest.approx(costs)


@pytest.mark.parametrize("shape", [(70, 2), (3, 2), (2, 2), (1, 1)])
@pytest.mark.parametrize("low", [0, 1, 2])
def test_what_costs_too_much_without_a_cut_is_left_out_beside_others(shape: tuple[int, int], low: int) -> None:
    """Three ledgers of one shape, two of them held by whole bookies: the one whose limit is too low has no segments."""
    made = [[[*range(10)]] * 2, [[*range(20)], [*range(7)], [*range(9, 20)]], [[*range(30)]] * 2]
    held = []
    for rows in made:
        groups = group_entries(np.concatenate(rows), np.repeat(np.arange(len(rows)), [len(row) for row in rows]))
        held.append(segment_cases.Copies(np.arange(len(rows)), np.zeros(len(rows), np.bool_), groups))
    cases = segment_cases.Cases.build(held, [9, 19, 29])
    free = [
        segment_cases.ShapeProblem(number, held[number], 10 * number + 9, segment_cases.TriedShape(*shape, 0.0))
        for number in range(3)
    ]
    alone = [segment_costs.find_cheapest(cases, [problem])[0] for problem in free]
    costs = [path.cost for path in alone if path is not None]
    limits = [min(cost - 0.5, 2.0) if number == low else cost + 0.01 for number, cost in enumerate(costs)]
    limited = [problem._replace(limit=limit) for problem, limit in zip(free, limits, strict=True)]
    found = segment_costs.find_cheapest(cases, limited)
    wanted = [None if number == low else cost for number, cost in enumerate(costs)]
    assert [path and path.cost for path in found] == wanted


@pytest.mark.parametrize("count", [1, 7, 8, 9, 40, 300])
def test_equal_columns_have_equal_sums(count: int) -> None:
    """To the last bit, whatever is beside them: a history costs in a batch what it costs alone."""
    column = np.random.default_rng(3).random((count, 1))
    [alone] = segment_costs._sum(column).tolist()
    assert segment_costs._sum(np.tile(column, (1, 50))).tolist() == [alone] * 50
    assert alone == pytest.approx(math.fsum(column[:, 0].tolist()), rel=1e-12)


def test_a_row_that_saves_nothing_at_a_position_is_no_member() -> None:
    """Rows are assigned to as many positions as there can be; nobody is said of the others."""
    value, members = segment_costs._assign(np.array([[3.0, 0.0], [0.0, 0.0], [1.0, 0.0]]))
    assert (value, members.tolist()) == (3.0, [0, segment_cases.NOBODY])
