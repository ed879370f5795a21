"""Where lost copies and writers may go: by counting, and by what the placement policy takes."""

import itertools
from random import Random

import numpy as np
import pytest

from reconcile.check.impact.bookies import BookieColumns, Sets
from reconcile.check.impact.destinations import Destinations
from reconcile.check.impact.names import CopyHealth, ImpactTarget
from reconcile.check.impact.segments.columns import NO_END, SegmentColumns, Shape
from reconcile.rules.segments.placement import PlacementPolicy, PlacementSettings

ENFORCED = PlacementSettings(policy=PlacementPolicy.RACK_AWARE, min_racks=2, enforce_min_racks=True)


def make_bookies(racks: list[str], down: set[int]) -> BookieColumns:
    """Bookies bk0, bk1, … on racks; some of them down."""
    names = tuple(f"bk{number}:3181" for number in range(len(racks)))
    states = [CopyHealth.DOWN if number in down else CopyHealth.READ_WRITE for number in range(len(racks))]
    return BookieColumns(names, np.array([*states, CopyHealth.DOWN], np.int8), np.ones(len(racks) + 1), tuple(racks))


def make_segment(shape: Shape, members: list[int]) -> SegmentColumns:
    """One open segment."""
    zero = np.zeros(1, np.int64)
    yes = np.ones(1, np.bool_)
    return SegmentColumns(shape, zero, zero, zero, zero + NO_END, np.array(members, np.int32)[:, None], yes, yes)


def ask(bookies: BookieColumns, shape: Shape, members: list[int], settings: PlacementSettings) -> bool:
    """Whether an ensemble lacks a bookie for those of its members that are down."""
    nothing = Sets.from_bookies(bookies, "none", (), ImpactTarget.DOWN)
    destinations = Destinations(bookies, nothing, settings)
    segment = make_segment(shape, members)
    states = bookies.states[segment.members]
    wanted = states != CopyHealth.READ_WRITE
    writable = (states == CopyHealth.READ_WRITE).sum(axis=0)
    return bool(destinations.find_lacking(segment, states, wanted, writable, np.full(1, -1))[0])


def is_legal(ensemble: list[int], racks: list[str], shape: Shape) -> bool:
    """Whether each write set is on two racks: the rule, entry by entry."""
    size, write = shape.ensemble, shape.write
    return all(
        len({racks[ensemble[(entry + i) % size]] for i in range(write)}) >= min(2, write) for entry in range(size)
    )


def test_counting_is_enough_where_nothing_is_demanded() -> None:
    """As many writable bookies outside the ensemble as it lost."""
    shape = Shape(3, 2, 2)
    plain = PlacementSettings()
    assert not ask(make_bookies(["/a"] * 4, {0}), shape, [0, 1, 2], plain)
    assert ask(make_bookies(["/a"] * 4, {0, 3}), shape, [0, 1, 2], plain)
    assert ask(make_bookies(["/a"] * 4, {0, 1}), shape, [0, 1, 2], plain)
    assert not ask(make_bookies(["/a"] * 5, {0, 1}), shape, [0, 1, 2], plain)


@pytest.mark.parametrize("seed", range(150))
def test_what_is_called_lacking_has_no_legal_replacement_and_the_rest_has(seed: int) -> None:
    """With racks enforced and one bookie lost: against every bookie tried in its place, by the rule that Java takes."""
    random = Random(f"destinations {seed}")
    racks = [f"/r{random.randrange(3)}" for _ in range(random.randint(4, 7))]
    size = random.randint(2, min(5, len(racks) - 1))
    shape = Shape(size, random.randint(2, size), 1)
    members = random.sample(range(len(racks)), size)
    gone = random.randrange(size)
    down = {members[gone]} | {n for n in range(len(racks)) if n not in members and random.random() < 0.3}
    lacking = ask(make_bookies(racks, down), shape, members, ENFORCED)
    others = {racks[member] for place, member in enumerate(members) if place != gone}
    takes = [
        bookie
        for bookie in range(len(racks))
        if bookie not in members
        and bookie not in down
        # BookKeeper takes the rack of the lost bookie, or one that no other member is in.
        and (racks[bookie] == racks[members[gone]] or racks[bookie] not in others)
    ]
    assert lacking == (not takes)


@pytest.mark.parametrize("seed", range(60))
def test_an_ensemble_is_found_where_there_is_one(seed: int) -> None:
    """New ledgers: against every ordered choice of bookies."""
    random = Random(f"ensembles {seed}")
    racks = [f"/r{random.choice((0, 0, 0, 1, 2))}" for _ in range(random.randint(3, 6))]
    size = random.randint(2, min(4, len(racks)))
    shape = Shape(size, random.randint(2, size), 1)
    bookies = make_bookies(racks, set())
    destinations = Destinations(bookies, Sets.from_bookies(bookies, "none", (), ImpactTarget.DOWN), ENFORCED)
    exists = any(is_legal(list(choice), racks, shape) for choice in itertools.permutations(range(len(racks)), size))
    assert destinations.finds_ensemble(shape, -1) == exists
