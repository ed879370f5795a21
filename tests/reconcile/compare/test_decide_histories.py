"""What `recover` decides of histories: as the reconstruction, and with deletions, ids given out, and records alone."""

import os
from typing import Final

import pyarrow as pa
import pytest

from reconcile.compare import decide
from reconcile.compare.decide import Case
from reconcile.compare.evidence import BookieEvidence as Known
from reconcile.compare.evidence import KnownTables, select_last
from recovery.codecs.store import Layout
from recovery.infer.prior import Prior, count_shapes
from recovery.infer.reconstruct import InferOptions
from recovery.infer.search import Tail
from recovery.model import tables
from tests.recovery.infer.test_reconstruct_histories import FIRST, said
from tests.simulation import judge
from tests.simulation.cluster_judge import Quorums
from tests.simulation.evidence import Evidence
from tests.simulation.inventories import Inventory
from tests.simulation.row_truth import PASSWORDS

pytestmark = pytest.mark.long

COUNT: Final = int(os.environ.get("BKMETA_SOAK_DECISIONS", "25"))
"""Histories of each class with each kind of evidence."""
CLASSES: Final = ("clean", "short", "reopened", "rereplicated", "wiped", "deleted", "reused", "mixed")
KINDS: Final = ("now", "stale", "lacking", "references", "both", "deletions", "elsewhere", "counter")


def decided(
    inventory: Inventory,
    *,
    tail: Tail = Tail.INCLUSIVE,
    quorums: Quorums | None = None,
    evidence: Evidence = judge.NOTHING,
) -> pa.Table:
    """Decide as `recover` and `explain` do, with all bookies known."""
    is_whole = not inventory.unscanned and all(inventory.bookies["complete"].to_pylist())
    known = Known(live=None, snapshots=(), everywhere=is_whole, looked_at=True)
    options = InferOptions(passwords=PASSWORDS, unscanned_bookies=inventory.unscanned, tail=tail)
    case = Case((), inventory.bookies, known, options, Layout.HIERARCHICAL, None, members_known=True)
    catalog = evidence.catalog()
    beside = KnownTables(
        tables.CATALOG_LEDGERS.empty_table(),
        () if catalog is None else ((catalog, 0),),
        evidence.history(),
        tables.CATALOG_LEDGERS.empty_table().select(list(tables.KEY_COLUMNS)),
        evidence.reference_table(),
        select_last(catalog) if catalog is not None and evidence.is_last else None,
    )
    shapes = count_shapes(inventory.copies, inventory.bookies)
    prior = Prior.build(shapes, quorums, unscanned=inventory.unscanned)
    return decide.decide_range(case, prior, inventory.copies, beside, evidence.issued).outcomes()


@pytest.mark.parametrize("kind", KINDS)
def test_every_guarantee_holds_of_what_is_decided(kind: str) -> None:
    """Nothing that lives is taken for deleted; what somebody says was deleted does not come back."""
    for name in CLASSES:
        tally = judge.run(f"{name}@{kind}", COUNT, seed=FIRST + 4000, reconstruct=decided)
        assert not tally.violations, said(tally)
        assert tally.ledgers > 0


@pytest.mark.parametrize(("name", "seed"), [("mixed@elsewhere", 764443929), ("reused@elsewhere", 764443930)])
def test_decisions_that_once_broke_a_guarantee(name: str, seed: int) -> None:
    """Deletions of another cluster: stripes of another E and W, and bookies that know two keys, neither its own."""
    tally = judge.judge(name, seed, 500, reconstruct=decided)
    assert not tally.violations, said(tally)
    assert tally.outcomes["deleted"] > 0
