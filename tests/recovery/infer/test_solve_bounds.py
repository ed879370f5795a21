"""One ledger takes no more than so much work, however it was made; what would take more is held, and says so."""

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from recovery.infer import search, segment_cases, segment_costs, solve
from recovery.infer.assignment import assign_best
from recovery.infer.prior import Prior, PriorShape, ShapeSource
from recovery.infer.reconstruct import InferOptions, reconstruct
from recovery.model import tables
from recovery.model.groups import KeyedGroups
from tests.simulation import simulator

pytestmark = pytest.mark.long

SHAPES: Final = ((3, 2), (5, 3), (3, 3))
PRIOR: Final = Prior(tuple(PriorShape(*shape, 1 / len(SHAPES), ShapeSource.CLUSTER) for shape in SHAPES))
OTHERS: Final = 7
"""Shapes that a search tries beside those of the prior: three that stripes show, four by the number of copies."""
NAMES: Final = tuple(f"10.0.0.{number}:3181" for number in range(1, 13))


def noise(random: Random, entries: int) -> Mapping[str, list[int]]:
    """Each bookie holds entries by chance: no history explains that."""
    return {name: [e for e in range(entries) if random.random() < 0.4] for name in NAMES[:8]}


def alike(_: Random, entries: int) -> Mapping[str, list[int]]:
    """All bookies hold all: any of them may be at any place."""
    return {name: list(range(entries)) for name in NAMES}


def shifting(random: Random, entries: int) -> Mapping[str, list[int]]:
    """Every few entries the ensemble changes."""
    held: dict[str, list[int]] = {name: [] for name in NAMES}
    members = list(NAMES[:5])
    for entry in range(entries):
        if random.random() < 0.2:
            members[random.randrange(5)] = random.choice([name for name in NAMES if name not in members])
        for i in range(3):
            held[members[(entry + i) % 5]].append(entry)
    return {name: own for name, own in held.items() if own}


def crumbs(random: Random, entries: int) -> Mapping[str, list[int]]:
    """Striped, with single entries lost and single ones astray everywhere."""
    return {
        name: [e for e in range(entries) if ((at - e) % 3 < 2) != (random.random() < 0.1)]
        for at, name in enumerate(NAMES[:3])
    }


def row_of(held: Mapping[str, list[int]]) -> dict[str, Any]:
    """Return what becomes of one ledger, whose entries have ten bytes each."""
    rows = []
    for name, own in held.items():
        header = {"entry": own[-1], "lac": -1, "length": 10 * (own[-1] + 1), "size": 46, "digest": "CRC32C"}
        rows.append(simulator.copy_row(7, name, own, headers=[header]))
    copies = pa.Table.from_pylist(rows, schema=tables.COPIES)
    bookies = simulator.bookies(NAMES)
    [row] = reconstruct(copies, bookies, tables.DAMAGE.empty_table(), PRIOR, InferOptions()).to_pylist()
    return dict(row)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count what the solver does: shapes, costs of intervals, assignments, entries that are laid out."""
    done: Counter[str] = Counter()
    cost, assign = segment_costs._CostTable._cost_intervals, assign_best
    lay, solve_problems = solve.mark_held, solve.solve_problems

    def weighed(self: Any, *intervals: Any) -> Any:
        found = cost(self, *intervals)
        done["costs"] += found[1].size
        return found

    def assigned(*given: Any, **others: Any) -> Any:
        done["assignments"] += 1
        return assign(*given, **others)

    def laid(copies: Any, low: int, high: int) -> Any:
        done["entries"] += high - low
        return lay(copies, low, high)

    def solved(cases: Any, problems: Any, *others: Any) -> Any:
        done["shapes"] += len(problems)
        return solve_problems(cases, problems, *others)

    monkeypatch.setattr(segment_costs._CostTable, "_cost_intervals", weighed)
    monkeypatch.setattr("recovery.infer.segment_costs.assign_best", assigned)
    monkeypatch.setattr(solve, "mark_held", laid)
    monkeypatch.setattr("recovery.infer.search.solve_problems", solved)
    return done


@pytest.mark.parametrize("kind", [noise, alike, shifting, crumbs])
@pytest.mark.parametrize("entries", [300, 3_000, 30_000])
def test_work_does_not_grow_with_the_ledger(kind: Any, entries: int, work: Counter[str]) -> None:
    """Whatever a ledger looks like, each shape is weighed, assigned and looked through so often at most."""
    row = row_of(kind(Random(entries), entries))
    assert row["outcome"] in ("restored", "guarded")
    assert row["outcome"] == "restored" or row["reason"]
    # A shorter end is searched once more.
    shapes = 2 * (len(SHAPES) + OTHERS)
    cuts = segment_cases._CUTS + 2
    assert work["shapes"] <= shapes
    assert work["costs"] <= shapes * cuts * min(segment_costs._MAX_COSTS, cuts * len(NAMES) ** 2)
    assert work["assignments"] <= shapes * (segment_costs._ASSIGNMENTS + 1)
    assert work["entries"] <= shapes * solve._LOOKED_THROUGH


def test_costs_are_not_weighed_where_they_would_be_too_many(work: Counter[str]) -> None:
    """A ledger on very many bookies with very many cuts is not begun with shapes that would take too long."""
    none, plain = np.zeros(900, np.int64), np.zeros(900, np.bool_)
    copies = segment_cases.Copies(np.arange(900), plain, KeyedGroups(*np.zeros((5, 0), np.int64)))
    cuts = np.cumsum(np.append(0, np.random.default_rng(1).integers(2, 5, 161)))
    cases = segment_cases.Cases(
        np.array([0, 900]), plain, plain, none, copies.groups, np.array([0, 162]), cuts, np.ones(162, np.bool_)
    )
    problem = segment_cases.ShapeProblem(0, copies, int(cuts[-1]) - 1, segment_cases.TriedShape(12, 3, 0.0))
    assert segment_costs.find_cheapest(cases, [problem]) == [None]
    assert not work


@pytest.mark.parametrize(
    ("module", "bound", "value", "kind"),
    [
        (segment_costs, "_ASSIGNMENTS", 0, alike),
        (segment_costs, "_MAX_COSTS", 8, noise),
        (solve, "_PATCHES", 0, noise),
        (solve, "_LOOKED_THROUGH", 10, noise),
        (search, "MAX_RUNS", 10, noise),
    ],
)
def test_what_would_take_too_much_is_read_by_who_holds_what(
    module: Any, bound: str, value: int, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each bound the ledger is guarded as fragmented, by all who hold it: nothing is guessed to save time."""
    monkeypatch.setattr(module, bound, value)
    monkeypatch.setattr(search._CopyPattern, "list_shapes", lambda *_: [segment_cases.TriedShape(5, 3, 0.0)])
    held = kind(Random(2), 400)
    row = row_of(held)
    assert (row["outcome"], row["reason"], row["class"]) == ("guarded", "fragmented", "undecided")
    assert sorted(row["holders"]) == sorted(held)
    assert (row["reading"], len(row["segments"]), row["ensemble_size"]) == ("universal", 1, len(held))
