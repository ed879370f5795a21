"""The impact check and the placement rule of scrutiny on the same topology: two views of one thing."""

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from reconcile.check.impact.bookies import BookieColumns, Sets
from reconcile.check.impact.destinations import Destinations
from reconcile.check.impact.hits import NOW, ImpactCluster, list_hits
from reconcile.check.impact.names import OF_SEGMENTS, CopyHealth, DomainLevel, Impact, ImpactTarget
from reconcile.check.impact.segments.columns import read_records
from reconcile.rules.segments.placement import Ensembles, Placement, PlacementSettings, judge, locate
from tests.support.impact_judge import Ledger
from tests.support.impacts import make_records


@pytest.mark.parametrize("seed", range(20))
def test_a_segment_against_the_rack_rule_is_one_that_a_rack_takes_away(seed: int) -> None:
    """With two racks demanded, a write set is against the rule where one rack has all its copies, and lost with it."""
    random = Random(f"placement {seed}")
    names = tuple(f"bk{number:02}:3181" for number in range(10))
    topology = {name: f"/r{random.randrange(4)}" for name in names}
    ledgers = []
    for number in range(60):
        size = random.randint(2, 5)
        members = tuple(random.sample(names, size))
        quorum = (size, random.randint(2, size), 1)
        ledgers.append(Ledger(number, quorum, "CLOSED", 99, ((0, members),)))
    settings = PlacementSettings(min_racks=2)
    ensembles = Ensembles(
        np.array([names.index(member) for ledger in ledgers for member in ledger.segments[0][1]]),
        *(np.array([ledger.quorum[place] for ledger in ledgers]) for place in range(3)),
    )
    verdicts = judge(ensembles, locate(names, topology, settings), settings)
    against = {
        ledger.number for ledger, verdict in zip(ledgers, verdicts, strict=True) if verdict == Placement.VIOLATED
    }

    states = np.array([CopyHealth.READ_WRITE] * len(names) + [CopyHealth.DOWN], np.int8)
    bookies = BookieColumns(names, states, np.ones(len(names) + 1), tuple(topology[name] for name in names))
    racks = Sets.from_domains(bookies, DomainLevel.RACK, ImpactTarget.DOWN)
    rows = make_records(ledgers)
    lost = set()
    for segments in read_records(rows, pa.array(names)).groups:
        hits = list_hits(segments, ImpactCluster(bookies, racks, Destinations(bookies, racks, settings)))
        unread = hits.row[(hits.impact == OF_SEGMENTS.index(Impact.READ_AVAILABILITY_LOSS)) & (hits.set != NOW)]
        lost |= {rows["ledger"][int(segments.ledger[row])].as_py() for row in unread}
    assert lost == against
    assert 0 < len(against) < len(ledgers)
