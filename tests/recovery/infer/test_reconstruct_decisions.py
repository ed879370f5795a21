"""All that is said of ledgers in which one rule decides, by each way to reconstruct them.

`python -m tests.recovery.infer.test_reconstruct_decisions` writes the file anew: read what it changes.
"""

from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from recovery.infer.prior import Prior, count_shapes
from recovery.infer.reconstruct import InferOptions, reconstruct
from recovery.infer.search import Tail
from tests.simulation import judge
from tests.simulation.cluster_judge import Quorums
from tests.simulation.evidence import Evidence
from tests.simulation.inventories import Inventory
from tests.simulation.row_truth import PASSWORDS
from tests.support import decided_ledgers
from tests.support.decided_ledgers import Cluster

pytestmark = pytest.mark.long

FILE: Final = Path(__file__).with_name("decisions.jsonl")


def reconstruct_doubted(
    inventory: Inventory,
    *,
    tail: Tail = Tail.INCLUSIVE,
    quorums: Quorums | None = None,
    evidence: Evidence = judge.NOTHING,
) -> pa.Table:
    """Reconstruct where a person takes what would be held for its content."""
    prior = Prior.build(count_shapes(inventory.copies, inventory.bookies), quorums, unscanned=inventory.unscanned)
    options = InferOptions(PASSWORDS, unscanned_bookies=inventory.unscanned, tail=tail, is_doubt_accepted=True)
    known = (evidence.catalog(), evidence.reference_table())
    return reconstruct(inventory.copies, inventory.bookies, inventory.damage, prior, options, *known)


WAYS: Final = {"alone": judge.reconstruct_alone, "rest": judge.reconstruct_rest, "doubted": reconstruct_doubted}
KEPT: Final = decided_ledgers.load(FILE)


@pytest.mark.parametrize("cluster", KEPT, ids=lambda cluster: cluster.name)
def test_each_rule_decides_as_it_did(cluster: Cluster) -> None:
    """Every column of each ledger is as it was."""
    assert decided_ledgers.decide(cluster, KEPT[cluster].shown, WAYS) == KEPT[cluster]


if __name__ == "__main__":
    decided_ledgers.rewrite(FILE, WAYS)
