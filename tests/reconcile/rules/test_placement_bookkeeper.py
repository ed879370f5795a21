"""BookKeeper's own placement policies, on random ensembles and topologies: the same answer, the same choice."""

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reconcile.rules.segments.placement import (
    Ensembles,
    Placement,
    PlacementPolicy,
    PlacementSettings,
    find_replacements,
    judge,
    locate,
)
from tests.support import jars

pytestmark = pytest.mark.real

TOPOLOGIES = 300
ENSEMBLES = 50
WORDS = {"MEETS_STRICT": Placement.KEPT, "MEETS_SOFT": Placement.SOFT, "FAIL": Placement.VIOLATED}
CLASSES = {
    PlacementPolicy.RACK_AWARE: "RackawareEnsemblePlacementPolicy",
    PlacementPolicy.REGION_AWARE: "RegionAwareEnsemblePlacementPolicy",
    PlacementPolicy.ZONE_AWARE: "ZoneawareEnsemblePlacementPolicy",
    PlacementPolicy.DEFAULT: "DefaultEnsemblePlacementPolicy",
}
KEYS = {
    "min_racks": "minNumRacksPerWriteQuorum",
    "enforce_min_racks": "enforceMinNumRacksPerWriteQuorum",
    "min_regions": "reppMinimumRegionsForDurability",
    "min_zones": "minNumZonesPerWriteQuorum",
    "desired_zones": "desiredNumZonesPerWriteQuorum",
    "enforce_zones": "enforceStrictZoneawarePlacement",
}


def draw(rng: random.Random, policy: PlacementPolicy) -> tuple[PlacementSettings, dict[str, str]]:
    """Settings and the location of every bookie."""
    hosts = [f"10.0.0.{n}" for n in range(1, rng.randint(6, 16))]
    domains, inner = rng.randint(2, 5), rng.randint(1, 4)
    default = {PlacementPolicy.ZONE_AWARE: "/default-zone/default-upgradedomain", PlacementPolicy.REGION_AWARE: ""}.get(
        policy, "/default-rack"
    )
    topology = {
        host: default
        if default and rng.random() < 0.03
        else f"/r{rng.randrange(domains)}/u{rng.randrange(inner)}"
        if policy is not PlacementPolicy.RACK_AWARE
        else f"/k{rng.randrange(domains)}"
        for host in hosts
    }
    desired = rng.randint(2, 4)
    settings = PlacementSettings(
        policy=policy,
        min_racks=rng.randint(1, 4),
        enforce_min_racks=policy is PlacementPolicy.RACK_AWARE and rng.random() < 0.5,
        regions_to_write=tuple(f"r{n}" for n in range(domains)) if rng.random() < 0.8 else (),
        min_regions=rng.randint(1, min(3, domains)),
        min_zones=rng.randint(1, desired),
        desired_zones=desired,
        enforce_zones=rng.random() < 0.7,
    )
    return settings, topology


def draw_case(rng: random.Random, policy: PlacementPolicy, hosts: list[str]) -> dict[str, Any]:
    """Draw an ensemble, its quorums, and the position that is to be replaced."""
    size = rng.randint(1, min(7, len(hosts)))
    # Java's region-aware policy tries a replacement as if it came last: only with W = E that is its own place.
    write = size if policy is PlacementPolicy.REGION_AWARE else rng.randint(1, size)
    return {
        "ensemble": rng.sample(hosts, size),
        "write": write,
        "ack": rng.randint(1, write),
        "position": rng.randrange(size),
    }


def ask_java(orders: list[dict[str, Any]], log: Path) -> list[list[dict[str, str | None]]]:
    """Return what Java says of each case of each order."""
    with log.open("w") as errors:
        done = subprocess.run(
            ["java", "-Xmx300m", "-XX:TieredStopAtLevel=1", "-cp", jars.class_path(), "PlacementPolicies"],
            input="".join(json.dumps(order) + "\n" for order in orders),
            stdout=subprocess.PIPE, stderr=errors, text=True, check=True,
        )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_java_s_policies_say_and_choose_the_same_of_random_ensembles(tmp_path: Path) -> None:
    """15,000 of them: adherence is equal, its choice is legal, and nobody is where it finds none."""
    rng = random.Random(17)
    drawn, orders = [], []
    for n in range(TOPOLOGIES):
        policy = list(CLASSES)[n % len(CLASSES)]
        settings, topology = draw(rng, policy)
        cases = [draw_case(rng, policy, sorted(topology)) for _ in range(ENSEMBLES)]
        conf = {key: str(getattr(settings, name)).lower() for name, key in KEYS.items()}
        if settings.regions_to_write:
            conf["reppRegionsToWrite"] = ";".join(settings.regions_to_write)
        drawn.append((settings, topology, cases))
        orders.append({"policy": CLASSES[policy], "conf": conf, "locations": topology, "cases": cases})
    answers = ask_java(orders, tmp_path / "java.log")
    assert len(answers) == TOPOLOGIES
    refused = dict.fromkeys(CLASSES, 0)
    for (settings, topology, cases), told in zip(drawn, answers, strict=True):
        bookies = [f"{host}:3181" for host in topology]
        place = {host: n for n, host in enumerate(topology)}
        locations = locate(bookies, topology, settings)
        sizes, write, ack, position = (
            np.array(column, np.int64)
            for column in zip(*((len(c["ensemble"]), c["write"], c["ack"], c["position"]) for c in cases), strict=True)
        )
        members = np.array([place[host] for case in cases for host in case["ensemble"]], np.int64)
        ensembles = Ensembles(members, sizes, write, ack)
        verdicts = judge(ensembles, locations, settings)
        legal = find_replacements(ensembles, position, locations, settings)
        for case, java, verdict, choices in zip(cases, told, verdicts.tolist(), legal, strict=True):
            if settings.policy in (PlacementPolicy.RACK_AWARE, PlacementPolicy.ZONE_AWARE):
                assert WORDS[str(java["adheres"])] == verdict, (settings, topology, case, java)
            if settings.policy is PlacementPolicy.DEFAULT:
                continue  # Java's keeps no order of what it may choose
            if "broken" in java:  # Java's, where a write quorum is too small for the zones that it is to have
                assert settings.policy is PlacementPolicy.ZONE_AWARE, java
                assert case["write"] < settings.min_zones, java
            elif java["chosen"] is None:
                refused[settings.policy] += 1
                assert not choices.any(), (settings, topology, case, java)
            else:
                assert choices[bookies.index(java["chosen"])], (settings, topology, case, java)
    assert all(
        refused[policy]
        for policy in (PlacementPolicy.RACK_AWARE, PlacementPolicy.REGION_AWARE, PlacementPolicy.ZONE_AWARE)
    )
