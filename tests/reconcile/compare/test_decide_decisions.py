"""All that is said of ledgers in which one rule of `recover` decides.

`python -m tests.reconcile.compare.test_decide_decisions` writes the file anew: read what it changes.
"""

from pathlib import Path
from typing import Final

import pytest

from tests.reconcile.compare.test_decide_histories import decided
from tests.support import decided_ledgers
from tests.support.decided_ledgers import Cluster

FILE: Final = Path(__file__).with_name("decisions.jsonl")
WAYS: Final = {"decided": decided}
KEPT: Final = decided_ledgers.load(FILE)


@pytest.mark.parametrize("cluster", KEPT, ids=lambda cluster: cluster.name)
def test_each_rule_decides_as_it_did(cluster: Cluster) -> None:
    """Every column of each ledger is as it was."""
    assert decided_ledgers.decide(cluster, KEPT[cluster].shown, WAYS) == KEPT[cluster]


if __name__ == "__main__":
    decided_ledgers.rewrite(FILE, WAYS)
