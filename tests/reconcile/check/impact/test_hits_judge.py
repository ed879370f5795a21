"""The columns of the impact check against a judge that places every entry, on random clusters."""

import os
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from reconcile.check.impact.bookies import BookieColumns, Sets
from reconcile.check.impact.destinations import Destinations
from reconcile.check.impact.hits import NOW, ImpactCluster, list_hits
from reconcile.check.impact.names import OF_SEGMENTS, CopyHealth, DomainLevel, ImpactTarget
from reconcile.check.impact.segments.columns import read_records
from reconcile.check.impact.segments.copies import Missing, read_marked_copies
from reconcile.rules.segments.placement import PlacementSettings
from tests.support import impact_judge as judge
from tests.support.impacts import make_marks, make_records

pytestmark = pytest.mark.long

CLUSTERS = int(os.environ.get("BKMETA_SOAK_IMPACT", "250"))
CHUNK = 250
Found = dict[tuple[int, int, str], int]


def make_bookies(world: judge.World) -> BookieColumns:
    """The cluster's bookies as columns."""
    names = tuple(sorted(world.states))
    states = [CopyHealth[world.states[name].upper().replace("-", "_")] for name in names]
    racks = tuple(world.racks[name] for name in names)
    return BookieColumns(names, np.array([*states, CopyHealth.DOWN], np.int8), np.ones(len(names) + 1), racks)


def ask(world: judge.World, sets: Sets) -> list[Found]:
    """What the columns say is hit: now, and then for each set."""
    bookies = make_bookies(world)
    margin = bookies.code_domains(DomainLevel.RACK)[1]
    cluster = ImpactCluster(bookies, sets, Destinations(bookies, sets, PlacementSettings()), margin)
    rows = make_records(world.ledgers)
    ids = rows["ledger"].to_pylist()
    names = pa.array(bookies.names)
    missing = Missing(rows, names, read_marked_copies(make_marks(world.ledgers), {}).rows)
    found: list[Found] = [{} for _ in range(len(sets.labels) + 1)]
    changes = []
    for group in read_records(rows, names).groups:
        irregular, floors = missing.find_floors(group)
        regular = np.setdiff1d(np.arange(len(group)), irregular)
        for segments, own in ((group.select(regular), None), (group.select(irregular), floors)):
            hits = list_hits(segments, cluster, own)
            for row, number, impact, change, entries in zip(
                *(column.tolist() for column in (hits.row, hits.set, hits.impact, hits.change, hits.entries)),
                strict=True,
            ):
                key = (ids[segments.ledger[row]], int(segments.number[row]), str(OF_SEGMENTS[impact]))
                changes.append((number, key, change, entries))
    for number, key, _, entries in changes:
        if number == NOW:
            for one in found:
                one[key] = entries
    for number, key, change, entries in changes:
        if number != NOW:
            found[number + 1][key] = found[number + 1].get(key, 0) + entries
            if change < 0:
                del found[number + 1][key]
    return found


@pytest.mark.parametrize("begin", range(0, CLUSTERS, CHUNK))
def test_columns_and_every_entry_placed_agree(begin: int) -> None:
    """Every impact of every segment, and the entries that it hits: now, for a set, and for every rack and bookie."""
    for seed in range(begin, min(begin + CHUNK, CLUSTERS)):
        random = Random(f"impact {seed}")
        world = judge.make_world(random)
        target = random.choice(list(ImpactTarget))
        bookies = make_bookies(world)
        taken = random.sample(bookies.names, random.randint(0, len(bookies.names)))
        level = random.choice((DomainLevel.RACK, DomainLevel.BOOKIE))
        for sets in (Sets.from_bookies(bookies, "these", taken, target), Sets.from_domains(bookies, level, target)):
            found = ask(world, sets)
            assert found[0] == judge.judge(world).entries, (seed, "now")
            for number, label in enumerate(sets.labels):
                then = judge.take(world, sets.list_members(bookies, number), str(target))
                assert found[number + 1] == judge.judge(then).entries, (seed, label, target)
