"""Placement: what a topology does not say fails nothing by itself, and is not taken for good either."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.rules.segments.placement import (
    NO_LOCATION,
    Ensembles,
    Placement,
    PlacementPolicy,
    PlacementSettings,
    find_replacements,
    judge,
    judge_write_sets,
    locate,
)

BOOKIES = [f"bk{n}:3181" for n in range(1, 6)]
PLACES = st.sampled_from([None, "/a/1", "/a/2", "/b/1", "/b/2", "/c/1"])


def judge_one(topology: dict[str, str], settings: PlacementSettings, write: int, ack: int = 1) -> list[Placement]:
    """The verdict of each write set of the ensemble of all bookies of the topology's hosts."""
    locations = locate(BOOKIES, topology, settings)
    sets = judge_write_sets(np.arange(len(BOOKIES))[None, :], write, ack, locations, settings)
    return [Placement(value) for value in sets[0].tolist()]


def fails(where: list[str], settings: PlacementSettings, ack: int) -> bool:
    """Brute force of the documented rules, of one write set with every location known."""
    if settings.policy is PlacementPolicy.RACK_AWARE:
        return len(set(where)) < min(len(where), settings.min_racks)
    if settings.policy is PlacementPolicy.REGION_AWARE:
        counts = Counter(place.split("/")[1] for place in where)
        return any(
            sum(counts[region] for region in some) >= ack
            for some in itertools.combinations([*counts, "-", "="], settings.min_regions - 1)
        )
    zones = [place.split("/")[1] for place in where]
    if len(set(zones)) < settings.min_zones:
        return True
    return any(
        zones.count(zone) > 1 and len({place for place in where if place.split("/")[1] == zone}) == 1 for zone in zones
    )


@given(
    where=st.lists(PLACES, min_size=5, max_size=5),
    policy=st.sampled_from([PlacementPolicy.RACK_AWARE, PlacementPolicy.REGION_AWARE, PlacementPolicy.ZONE_AWARE]),
    least=st.integers(2, 3),
    ack=st.integers(1, 5),
)
def test_a_bookie_without_location_decides_nothing_that_its_location_could_change(
    where: list[str | None], policy: PlacementPolicy, least: int, ack: int
) -> None:
    """Violated: wherever those without a location stand. Kept: likewise. Else undecided."""
    settings = PlacementSettings(
        policy=policy, min_racks=least, min_zones=least, min_regions=least, regions_to_write=("a", "b", "c")
    )
    topology = {bookie: place for bookie, place in zip(BOOKIES, where, strict=True) if place is not None}
    verdict = judge_one(topology, settings, write=5, ack=ack)[0]
    known = sorted({place for place in where if place is not None})
    anywhere = [*known, "/a/9", "/b/9", "/c/9", "/x/1", "/y/1", "/z/1"]
    missing = where.count(None)
    if missing > 2:
        return
    outcomes = {
        fails([place or next(put) for place in where], settings, ack)
        for chosen in itertools.product(anywhere, repeat=missing)
        for put in [iter(chosen)]
    }
    if verdict is Placement.VIOLATED:
        assert outcomes == {True}
    elif verdict in (Placement.KEPT, Placement.SOFT):
        assert outcomes == {False}
    elif policy is not PlacementPolicy.ZONE_AWARE:
        assert outcomes == {True, False}
    else:
        assert missing


def test_write_sets_are_named_by_the_residue_of_their_entries() -> None:
    """Of five bookies, bk2 and bk3 share a rack: only the entries 1, 6, 11, ... stand on both alone."""
    topology = {"bk1": "/a", "bk2": "/b", "bk3": "/b", "bk4": "/c", "bk5:3181": "/d"}
    kept, violated = Placement.KEPT, Placement.VIOLATED
    assert judge_one(topology, PlacementSettings(), write=2) == [kept, violated, kept, kept, kept]


def test_zones_that_are_wanted_and_not_had_are_soft() -> None:
    """Two zones of the three that are desired, with two upgrade domains each."""
    settings = PlacementSettings(policy=PlacementPolicy.ZONE_AWARE)
    topology = dict(zip(BOOKIES, ["/a/1", "/a/2", "/b/1", "/b/2", "/a/3"], strict=True))
    assert judge_one(topology, settings, write=5) == [Placement.SOFT] * 5


def test_the_default_rack_is_no_rack_only_where_racks_are_enforced() -> None:
    """Java counts it as one more rack otherwise."""
    topology = dict(zip(BOOKIES, ["/a", "/default-rack", "/a", "/b", "/b"], strict=True))
    assert judge_one(topology, PlacementSettings(min_racks=2), write=5)[0] is Placement.KEPT
    assert judge_one(topology, PlacementSettings(enforce_min_racks=True), write=5)[0] is Placement.VIOLATED


def test_regions_are_demanded_only_where_they_are_named() -> None:
    """BookKeeper enforces reppMinimumRegionsForDurability only beside reppRegionsToWrite."""
    topology = dict.fromkeys(BOOKIES, "/a/1")
    settings = PlacementSettings(policy=PlacementPolicy.REGION_AWARE)
    assert judge_one(topology, settings, write=3, ack=2)[0] is Placement.KEPT
    single = PlacementSettings(policy=PlacementPolicy.REGION_AWARE, regions_to_write=("a",), min_regions=1)
    assert judge_one({}, single, write=3, ack=2)[0] is Placement.KEPT
    three = PlacementSettings(policy=PlacementPolicy.REGION_AWARE, regions_to_write=("a",), min_regions=3)
    assert judge_one({}, three, write=1)[0] is Placement.VIOLATED, "one bookie is in one region, wherever it stands"
    named = PlacementSettings(policy=PlacementPolicy.REGION_AWARE, regions_to_write=("a", "b"))
    assert judge_one(topology, named, write=3, ack=2)[0] is Placement.VIOLATED


def test_ensembles_of_many_shapes_are_judged_in_their_own_order() -> None:
    """Shapes are judged together, and each verdict comes back to its row."""
    topology = {"bk1": "/a", "bk2": "/a", "bk3": "/b"}
    locations = locate(BOOKIES, topology, PlacementSettings())
    ensembles = Ensembles(
        members=np.array([0, 1, 0, 1, 2, 2, 0, 2, 3]),
        sizes=np.array([2, 3, 2, 2]),
        write=np.array([2, 3, 2, 2]),
        ack=np.array([1, 2, 2, 1]),
    )
    verdicts = [Placement(value) for value in judge(ensembles, locations, PlacementSettings()).tolist()]
    assert verdicts == [Placement.VIOLATED, Placement.KEPT, Placement.KEPT, Placement.UNDECIDED]


def test_a_member_is_never_its_own_replacement() -> None:
    """Anybody who is in the ensemble is not legal, whatever the policy demands."""
    for policy in PlacementPolicy:
        settings = PlacementSettings(policy=policy, enforce_zones=False)
        locations = locate(BOOKIES, {}, settings)
        three = np.array([3])
        legal = find_replacements(
            Ensembles(np.array([4, 0, 2]), three, three, three), np.array([1]), locations, settings
        )
        assert legal.tolist() == [[False, True, False, True, False]]


def test_a_write_quorum_that_cannot_be_is_named() -> None:
    """Such a record is unparsable for BookKeeper; the caller leaves it out."""
    locations = locate(BOOKIES, {}, PlacementSettings())
    one = np.array([1])
    for write in (one + 1, one - 1):
        with pytest.raises(ValueError, match="no write quorum"):
            judge(Ensembles(np.array([0]), one, write, one), locations, PlacementSettings())


def test_a_client_that_configures_nothing_demands_what_bookkeeper_s_does() -> None:
    """Defaults of ClientConfiguration and of the policies, the places that these know as none, and what is worse."""
    assert PlacementSettings() == PlacementSettings(
        policy=PlacementPolicy.RACK_AWARE,
        min_racks=2,
        enforce_min_racks=False,
        regions_to_write=(),
        min_regions=2,
        enforce_regions_in_replace=True,
        min_zones=2,
        desired_zones=3,
        enforce_zones=True,
    )
    assert [int(one) for one in (Placement.KEPT, Placement.SOFT, Placement.UNDECIDED, Placement.VIOLATED)] == [
        0,
        1,
        2,
        3,
    ]
    assert [str(policy) for policy in PlacementPolicy] == ["rack-aware", "region-aware", "zone-aware", "default"]
    unplaced = {
        PlacementPolicy.RACK_AWARE: "/default-rack",
        PlacementPolicy.REGION_AWARE: "/default-region/default-rack",
        PlacementPolicy.ZONE_AWARE: "/default-zone/default-upgradedomain",
    }
    for policy, place in unplaced.items():
        settings = PlacementSettings(policy)
        known = locate(BOOKIES[:3], {BOOKIES[0]: place, "bk2": "/a/1", BOOKIES[2]: "/a/1"}, settings)
        assert known.unplaced.tolist() == [True, False, False]
        assert known.rack[1] == known.rack[2] != known.rack[0]
    assert [settings.demanded_regions for settings in (
        PlacementSettings(min_regions=3), PlacementSettings(min_regions=3, regions_to_write=("a", "b")),
        PlacementSettings(min_regions=-1, regions_to_write=("a",)),
    )] == [0, 3, 0]  # fmt: skip


def test_where_bookies_stand_is_read_as_their_policy_reads_it() -> None:
    """What names no place in one policy may be a place like others in another; a zone has two parts."""
    places = ["/default-region/default-rack", "/a", "/a/1/x", "/a/1/"]
    topology = dict(zip(BOOKIES, places, strict=False))
    of_zones = locate(BOOKIES, topology, PlacementSettings(PlacementPolicy.ZONE_AWARE))
    assert of_zones.unplaced.tolist() == [False, True, True, False, False]
    assert of_zones.domain.tolist() == [1, 0, 0, 0, NO_LOCATION]
    assert of_zones.upgrade.tolist() == [1, NO_LOCATION, 0, 0, NO_LOCATION]
    assert of_zones.texts == ("/default-region/default-rack", "/a", "/a/1/x", "/a/1", None)
    of_regions = locate(BOOKIES, topology, PlacementSettings(PlacementPolicy.REGION_AWARE))
    assert of_regions.unplaced.tolist() == [True, False, False, False, False]
    assert of_regions.domain.tolist() == [NO_LOCATION, 0, 0, 0, NO_LOCATION]
    assert locate(BOOKIES, topology, PlacementSettings()).rack.tolist() == [3, 0, 2, 1, NO_LOCATION]
