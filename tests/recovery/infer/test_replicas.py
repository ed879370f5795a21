"""Re-replicated ledgers of one ensemble: as trying every assignment of bookies to positions finds them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import permutations
from random import Random
from typing import Final

import numpy as np
import pyarrow as pa
import pytest

from recovery.infer import facts, replicas
from recovery.infer.copies import CopyColumns
from recovery.infer.facts import LedgerFacts
from recovery.infer.prior import LARGEST, PriorShape, ShapeSource
from recovery.infer.replicas import Fitting, fit_ensembles
from recovery.model import tables
from recovery.model.groups import group_entries
from tests.recovery.infer.test_reconstruct import NAMES, header
from tests.simulation import simulator
from tests.simulation.simulator import copy_row, groups_of

Held = Mapping[str, Sequence[int]]
SHAPES: Final = ((3, 2), (2, 2), (3, 3), (2, 1), (1, 1), (6, 2), (5, 2))
PRIOR: Final = tuple(PriorShape(*shape, 0.2, ShapeSource.CLUSTER) for shape in SHAPES)
FIRST: Final = 4
"""Number of the first shape: those before it are what ledgers show by themselves."""


def read_copies(*ledgers: tuple[Held, str]) -> LedgerFacts:
    """Return what is known of ledgers 0, 1, … by who holds what; copied: who has copies of re-replication."""
    rows = [
        copy_row(number, f"{name}:3181", own, headers=[header(own[-1], lac=own[-1] - (name not in copied))])
        for number, (held, copied) in enumerate(ledgers)
        for name, own in held.items()
    ]
    return facts.read(pa.Table.from_pylist(rows, schema=tables.COPIES), simulator.bookies(NAMES))


def share(position: int, end: int, ensemble: int, write: int) -> set[int]:
    """Return the entries up to the end whose write set has a position."""
    return {entry for entry in range(end + 1) if position in [(entry + i) % ensemble for i in range(write)]}


def show_shape(held: Held, copied: str) -> tuple[int, int] | None:
    """Return the shape that three runs or more of whoever wrote have, if all show one."""
    groups = [group for name, own in held.items() if name not in copied for group in groups_of(list(own))]
    shown = {
        (group["period"], group["size"])
        for group in groups
        if group["size"] < group["period"] and group["last"] - group["first"] >= 2 * group["period"]
    }
    return shown.pop() if len(shown) == 1 else None


def count_wider(held: Held, copied: str, members: Sequence[str | None], shares: Sequence[set[int]]) -> int:
    """Return how many members that wrote have more than the share of their position."""
    own = [(name, share) for name, share in zip(members, shares, strict=True) if name and name not in copied]
    return sum(set(held[name]) > share for name, share in own)


def fit_by_hand(
    held: Held, copied: str, tolerances: Sequence[int], elsewhere: int
) -> list[tuple[int, int, set[tuple[str | None, ...]], bool]]:
    """Return extra copies and number of each shape that fits, the best ensembles, and whether stripes show it."""
    end, shown = max(own[-1] for own in held.values()), show_shape(held, copied)
    found = []
    for number, (ensemble, write) in enumerate(SHAPES):
        if (elsewhere > tolerances[number] if shown is None else shown != (ensemble, write)) or ensemble > len(NAMES):
            continue
        shares = [share(position, end, ensemble, write) for position in range(ensemble)]
        wanted = [position for position in range(ensemble) if shares[position]]
        worths: dict[tuple[str | None, ...], float] = {}
        for rows in permutations(held, len(wanted)):
            if all(shares[position] <= set(held[name]) for name, position in zip(rows, wanted, strict=True)):
                members: list[str | None] = [None] * ensemble
                for name, position in zip(rows, wanted, strict=True):
                    members[position] = name
                exact = sum(
                    set(held[name]) == shares[position] for name, position in zip(rows, wanted, strict=True)
                )  # fmt: skip
                worths[tuple(members)] = 10 * sum(name in copied for name in rows) + exact
        if worths and len(held) - len(wanted) <= sum(name in copied for name in held):
            best = {members for members, worth in worths.items() if worth == max(worths.values())}
            if any(count_wider(held, copied, members, shares) > 1 for members in best):
                continue
            extra = sum(map(len, held.values())) - sum(map(len, shares))
            found.append((extra, number, best, shown == (ensemble, write)))
    return found


def draw(rng: Random) -> tuple[dict[str, list[int]], str]:
    """Draw what each bookie of an ensemble holds; some were copied, gone, back, or lost an entry."""
    ensemble, write = rng.choice(SHAPES[:5])
    end = rng.choice([0, 1, 2, 5, 8])
    names = iter(rng.sample("abcde", 5))
    held: dict[str, list[int]] = {}
    copied = ""
    for position in range(ensemble):
        own = share(position, end, ensemble, write)
        if not own:
            continue
        if rng.random() < 0.5:
            held[next(names)] = sorted(own)
        if rng.random() < 0.6 and (name := next(names, None)):
            more = {entry for entry in range(end + 1) if rng.random() < rng.choice([0.0, 0.5, 1.0])}
            held[name] = sorted(own | more)
            copied += name if rng.random() < 0.8 else ""
    if held and rng.random() < 0.2:
        harmed = held[rng.choice(list(held))]
        if len(harmed) > 1:
            harmed.remove(rng.choice(harmed))
    return held, copied


def test_ensembles_are_those_that_every_assignment_gives() -> None:
    """The fewest copies too many, the shape of the prior that comes first of equals; then copies before originals."""
    rng = Random(3)
    drawn = [one for one in (draw(rng) for _ in range(150)) if one[0]]
    known = read_copies(*drawn)
    seen: Counter[str] = Counter()
    for place, ledger in enumerate(known.ledger.tolist()):
        held, copied = drawn[ledger]
        tolerances, elsewhere = [rng.randint(0, 2) for _ in SHAPES], rng.randint(0, 2)
        fitting = fit_ensembles(known, np.array([place]), PRIOR, FIRST, tolerances, elsewhere)
        wanted = fit_by_hand(held, copied, tolerances, elsewhere)
        case = (held, copied, tolerances, elsewhere)
        if not wanted:
            assert (fitting.shape[place], fitting.members, fitting.alternatives.tolist()) == (-1, {}, []), case
            seen["none"] += 1
            continue
        extra, number, best, is_shown = min(wanted, key=lambda one: one[0])
        members = tuple(None if n < 0 else known.bookies[n].as_py()[0] for n in fitting.members[place].tolist())
        assert (fitting.shape[place], fitting.extra[place]) == (FIRST + number, extra), case
        assert members in best, case
        others = [[place, FIRST + other[1]] for other in wanted if other[1] != number]
        assert fitting.alternatives.tolist() == others, case
        end = max(own[-1] for own in held.values())
        shares = [share(position, end, *SHAPES[number]) for position in range(len(members))]
        fits = [
            sum(bool(own) and own <= set(held[name]) for own in shares) for name in members if name and name in copied
        ]
        assert bool(fitting.sure[place]) == (is_shown and all(count == 1 for count in fits)), case
        assert fitting.segments.size.tolist() == [len(members)], case
        seen.update(["sure" if fitting.sure[place] else "fits", f"{len(wanted)} fit"])
    assert min(seen[name] for name in ("none", "sure", "fits", "2 fit")) > 4, seen


def test_nothing_to_fit_fits_nothing() -> None:
    """No ledgers, or none that a shape of the prior may have."""
    known = read_copies(({"a": [0, 1], "b": [0, 1]}, ""))
    for ledgers, shapes in ((0, PRIOR), (1, PRIOR[5:6]), (1, ())):
        fitting = fit_ensembles(known, np.arange(ledgers), shapes, 0, [2] * 7, 0)
        assert (fitting.shape.tolist(), len(fitting.alternatives), len(fitting.segments.ledger)) == ([-1], 0, 0)


@pytest.mark.parametrize(
    ("added", "number", "alternatives"),
    [([(5, 0)], 0, []), ([(5, 0), (5, 1)], 0, [1]), ([(5, 0), (4, 1)], 1, [0]), ([(4, 0), (5, 1)], 0, [1])],
)
def test_the_fewest_copies_left_over_explain_a_ledger(
    added: Sequence[tuple[int, int]], number: int, alternatives: Sequence[int]
) -> None:
    """The earliest of equals, and the first whatever it leaves over."""
    fitting = Fitting(2)
    for extra, shape in added:
        fitting.add(1, shape, extra, np.array([shape]), sure=shape == 1)
    assert fitting.shape.tolist() == [-1, number]
    assert (fitting.members[1].tolist(), bool(fitting.sure[1])) == ([number], number == 1)
    assert fitting.alternatives.tolist() == [[1, other] for other in alternatives]


@pytest.mark.parametrize(
    ("held", "copied", "number"),
    [
        # Four full copies, one of them made by re-replication: 3/2 names two that wrote and have too much.
        (dict.fromkeys("abcd", range(9)), "d", -1),
        (dict.fromkeys("abcd", range(9)), "cd", FIRST),
        # One that was copied to later need not show it.
        ({"a": [*range(9)], "b": sorted(share(1, 8, 3, 2)), "c": [*range(9)]}, "c", FIRST),
    ],
)
def test_two_that_wrote_more_than_their_share_show_another_shape(held: Held, copied: str, number: int) -> None:
    """Of a striped ledger nobody was sent all."""
    fitting = fit_ensembles(read_copies((held, copied)), np.array([0]), PRIOR[:1], FIRST, [2], 0)
    assert fitting.shape.tolist() == [number]


@pytest.mark.parametrize(
    ("held", "copied", "shown"),
    [
        ({"a": [0, 2, 4], "b": [1, 3, 5]}, "", (2, 1)),
        ({"a": [0, 2], "b": [1, 3]}, "", None),
        ({"a": [0, 2, 4], "b": [1, 3, 5]}, "b", (2, 1)),
        ({"a": [0, 2, 4], "b": [1, 3, 5]}, "ab", None),
        ({"a": [0, 2, 4], "b": [0, 3, 6]}, "", None),
        ({"a": [0, 2, 4], "b": [0, 3, 6]}, "b", (2, 1)),
        ({"a": [*range(9)], "b": [0, 3, 6]}, "", (3, 1)),
        ({"a": [*range(9)], "b": [*range(9)]}, "", None),
    ],
)
def test_which_shape_shows(held: Held, copied: str, shown: tuple[int, int] | None) -> None:
    """Three runs of whoever wrote, and no other pattern; copies show none."""
    found = replicas._read_shown_shapes(read_copies((held, copied)), np.zeros(1, np.int64))
    assert found.tolist() == [0 if shown is None else shown[0] * LARGEST + shown[1]]
    assert (show_shape(held, copied)) == shown


def test_shares_are_counted_as_the_schedule_gives_them() -> None:
    """Of each row and position, however the rows are grouped."""
    rng = Random(4)
    for _ in range(100):
        rows = [sorted(rng.sample(range(24), rng.randint(1, 20))), [*range(rng.randint(0, 3), 24, rng.randint(1, 5))]]
        groups = group_entries(np.concatenate(rows), np.repeat([0, 1], [*map(len, rows)]))
        columns = CopyColumns.sum_up(1, np.zeros(2, np.int64), *groups)
        end = max(map(max, rows))
        for ensemble, write in SHAPES:
            matches, due = replicas._count_matches(columns, ensemble, write)
            shares = [share(position, end, ensemble, write) for position in range(ensemble)]
            assert due.tolist() == [[len(own) for own in shares]]
            assert matches.tolist() == [[len(own & set(row)) for own in shares] for row in rows]
