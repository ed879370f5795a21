"""Ledgers that nothing references: counted, listed, and hinted at; never given an owner."""

import pyarrow as pa

from reconcile.plan.manifest import UnreferencedLedger
from reconcile.plan.reference_counts import add_neighbours
from recovery.infer.references import SCHEMA


def test_hints_of_what_nothing_names_make_up_no_owner() -> None:
    """The owners of the nearest ids of the same scope, and the key's digits; no more."""
    rows = pa.Table.from_pylist(
        [{"bucket": 0, "scope": s, "ledger": n, "owner": o} for s, n, o in ((0, 1, "a"), (0, 9, None), (7, 5, "x"))],
        schema=SCHEMA,
    )
    unreferenced = [UnreferencedLedger(0, 5, "ab" * 32), UnreferencedLedger(3, 5, None)]
    assert add_neighbours(rows, unreferenced) == (
        UnreferencedLedger(0, 5, "abababababab", ("a (1)", "unnamed (9)")),
        UnreferencedLedger(3, 5, None, ()),
    )
