"""Whom a policy takes in a member's place: what plain Python says of each candidate, for random ensembles."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
import pytest

from reconcile.rules.segments.placement import (
    Ensembles,
    Placement,
    PlacementPolicy,
    PlacementSettings,
    find_replacements,
    judge_write_sets,
    locate,
)

BOOKIES: Final = tuple(f"bk{n}:3181" for n in range(9))
UNPLACED: Final = {
    PlacementPolicy.RACK_AWARE: "/default-rack",
    PlacementPolicy.REGION_AWARE: "/default-region/default-rack",
    PlacementPolicy.ZONE_AWARE: "/default-zone/default-upgradedomain",
}
Place = str | None


def split(place: Place, settings: PlacementSettings) -> tuple[Place, Place]:
    """Domain and upgrade domain of a place; none of one that stands for no place."""
    if place is None or (settings.policy is PlacementPolicy.REGION_AWARE and place == UNPLACED[settings.policy]):
        return None, None
    parts = place.split("/")
    return parts[1], parts[2] if len(parts) > 2 else None


def list_sets(members: Sequence[Place], write: int, position: int) -> list[list[int]]:
    """The positions of each write set that a position is in."""
    size = len(members)
    sets = [[(residue + i) % size for i in range(write)] for residue in range(size)]
    return [one for one in sets if position in one]


def breaks(regions: Sequence[Place], ack: int, wanted: int) -> bool:
    """Whether fewer regions than wanted may acknowledge an entry."""
    largest = Counter(region for region in regions if region is not None).most_common(wanted - 1)
    return sum(count for _, count in largest) >= ack


def takes(
    members: Sequence[Place], position: int, candidate: Place, write: int, ack: int, settings: PlacementSettings
) -> bool:
    """Whether a policy takes a bookie of this place."""
    unplaced = candidate == UNPLACED.get(settings.policy)
    rest = [place for number, place in enumerate(members) if number != position]
    sets = list_sets(members, write, position)
    if settings.policy is PlacementPolicy.RACK_AWARE and settings.enforce_min_racks:
        return candidate is not None and not unplaced and (candidate == members[position] or candidate not in rest)
    if settings.policy is PlacementPolicy.REGION_AWARE:
        if unplaced and settings.enforce_min_racks:
            return False
        wanted = settings.min_regions if settings.regions_to_write else 0
        if wanted <= 1 or not settings.enforce_regions_in_replace:
            return True
        region = split(candidate, settings)[0]
        without = [[split(members[p], settings)[0] for p in one if p != position] for one in sets]
        whole = [
            [split(members[p], settings)[0] for p in one]
            for one in ([(n + i) % len(members) for i in range(write)] for n in range(len(members)))
            if position not in one
        ]
        if region is not None and region == split(members[position], settings)[0]:
            return True
        if any(breaks(regions, ack, wanted) for regions in [*without, *whole]):
            return True
        outcomes = [judge_regions([*regions, region], ack, wanted) for regions in without]
        return all(outcomes)
    if settings.policy is PlacementPolicy.ZONE_AWARE and settings.enforce_zones:
        zone, domain = split(candidate, settings)
        if zone is None or domain is None or unplaced:
            return False
        for one in sets:
            around = [split(members[p], settings) for p in one if p != position]
            zones = {zone for zone, _ in around if zone is not None}
            if len(zones) < settings.min_zones and zone in zones:
                return False
            domains = {other for place, other in around if place == zone}
            if domains == {domain}:
                return False
    return True


def judge_regions(regions: Sequence[Place], ack: int, wanted: int) -> bool:
    """Whether regions are kept wherever those stand that nobody can place."""
    known = [region for region in regions if region is not None]
    unknown = len(regions) - len(known)
    largest = sum(count for _, count in Counter(known).most_common(wanted - 1))
    return largest + unknown < ack


@pytest.mark.parametrize("policy", list(PlacementPolicy))
def test_whom_a_policy_takes(policy: PlacementPolicy) -> None:
    """Ensembles of many shapes at once, with places that nobody knows, and places that stand for none."""
    rng = random.Random(f"choices {policy}")
    for _ in range(60):
        inner = rng.randint(1, 3)
        places: list[Place] = [
            rng.choice([None, UNPLACED.get(policy, "/a")]) if rng.random() < 0.15
            else f"/d{rng.randrange(4)}" if policy is PlacementPolicy.RACK_AWARE
            else f"/d{rng.randrange(4)}/u{rng.randrange(inner)}"
            for _ in BOOKIES
        ]  # fmt: skip
        settings = PlacementSettings(
            policy, enforce_min_racks=rng.random() < 0.5, regions_to_write=("d0", "d1") if rng.random() < 0.8 else (),
            min_regions=rng.randint(1, 3), enforce_regions_in_replace=rng.random() < 0.8, min_zones=rng.randint(1, 3),
            enforce_zones=rng.random() < 0.8,
        )  # fmt: skip
        shapes = [(size, rng.randint(1, size)) for size in (rng.randint(1, 6) for _ in range(8))]
        acks = [rng.randint(1, write) for _, write in shapes]
        ensembles = [rng.sample(range(len(BOOKIES)), size) for size, _ in shapes]
        positions = [rng.randrange(size) for size, _ in shapes]
        known = {bookie: place for bookie, place in zip(BOOKIES, places, strict=True) if place is not None}
        locations = locate(BOOKIES, known, settings)
        columns = ([number for one in ensembles for number in one], *zip(*shapes, strict=True), acks)
        legal = find_replacements(Ensembles(*map(np.array, columns)), np.array(positions), locations, settings)
        for row, (_, write) in enumerate(shapes):
            members = [places[number] for number in ensembles[row]]
            wanted = [
                number not in ensembles[row]
                and takes(members, positions[row], places[number], write, acks[row], settings)
                for number in range(len(BOOKIES))
            ]
            assert legal[row].tolist() == wanted, (settings, members, positions[row], write, acks[row], places)


@pytest.mark.parametrize(
    ("size", "write", "least", "verdict"),
    [
        (4, 2, 1, Placement.KEPT),
        (4, 2, 2, Placement.VIOLATED),
        (4, 3, 2, Placement.VIOLATED),
        (3, 3, 2, Placement.KEPT),
        (3, 3, 3, Placement.VIOLATED),
    ],
)
def test_zones_ask_for_ensembles_that_write_quorums_divide(
    size: int, write: int, least: int, verdict: Placement
) -> None:
    """And for more writes than zones; else every write set is against the policy, wherever bookies stand."""
    settings = PlacementSettings(PlacementPolicy.ZONE_AWARE, min_zones=least, desired_zones=least)
    locations = locate(BOOKIES[:size], {f"bk{n}": f"/z{n}/u{n}" for n in range(size)}, settings)
    sets = judge_write_sets(np.arange(size)[None, :], write, 1, locations, settings)
    assert sets.shape == (1, size)
    assert set(sets.ravel().tolist()) == {verdict}


@pytest.mark.parametrize(
    ("places", "least", "verdict"),
    [
        (["/r1", "/r2", "/r3"], 3, Placement.KEPT),
        (["/r1", "/r1", "/r3"], 3, Placement.VIOLATED),
        (["/r1", "/r2", "/r3"], 4, Placement.KEPT),
        (["/r1", "/default-rack", "/r3"], 3, Placement.VIOLATED),
        (["/r1", None, "/r3"], 2, Placement.UNDECIDED),
        (["/r1", None, "/r3"], 3, Placement.UNDECIDED),
        (["/r1", None, "/r1"], 3, Placement.VIOLATED),
    ],
)
def test_enforced_racks(places: list[Place], least: int, verdict: Placement) -> None:
    """As many racks as the write quorum has bookies are the most that is asked for; nobody may be nowhere."""
    settings = PlacementSettings(min_racks=least, enforce_min_racks=True)
    known = {f"bk{n}": place for n, place in enumerate(places) if place is not None}
    sets = judge_write_sets(np.arange(3)[None, :], 3, 2, locate(BOOKIES[:3], known, settings), settings)
    assert set(sets.ravel().tolist()) == {verdict}


def test_no_more_racks_are_asked_for_than_an_entry_has_copies() -> None:
    """However many the ensemble has."""
    settings = PlacementSettings(min_racks=3, enforce_min_racks=True)
    locations = locate(BOOKIES[:4], {"bk0": "/r0", "bk1": "/r1", "bk2": "/r0", "bk3": "/default-rack"}, settings)
    sets = judge_write_sets(np.arange(4)[None, :], 2, 2, locations, settings)
    kept, violated = Placement.KEPT, Placement.VIOLATED
    assert sets.tolist() == [[kept, kept, violated, violated]]


@pytest.mark.parametrize(
    ("places", "write", "least", "desired", "verdict"),
    [
        (["/a/1", "/a/1", "/b/2"], 3, 2, 2, Placement.VIOLATED),
        (["/a/1", "/a/2", "/b/2"], 3, 2, 2, Placement.KEPT),
        (["/a/1", "/a/2", "/b/2"], 3, 2, 3, Placement.SOFT),
        (["/a/1", "/a/2", "/a/3"], 3, 2, 2, Placement.VIOLATED),
        (["/a/1", "/b/2", "/c"], 3, 2, 2, Placement.VIOLATED),
        (["/a/1", "/b/1", "/a/2", "/b/2"], 2, 1, 3, Placement.KEPT),
    ],
)
def test_zones_of_a_write_set(places: list[str], write: int, least: int, desired: int, verdict: Placement) -> None:
    """Those of one zone stand in more than one upgrade domain; as many zones are desired as an entry has copies."""
    settings = PlacementSettings(PlacementPolicy.ZONE_AWARE, min_zones=least, desired_zones=desired)
    names = BOOKIES[: len(places)]
    locations = locate(names, {f"bk{n}": place for n, place in enumerate(places)}, settings)
    sets = judge_write_sets(np.arange(len(places))[None, :], write, 1, locations, settings)
    assert set(sets.ravel().tolist()) == {verdict}
