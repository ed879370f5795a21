"""Ledgers that nothing references: counted, listed, and hinted at; never given an owner."""

from typing import Any

import pyarrow as pa

from reconcile.plan.manifest import UnreferencedLedger
from reconcile.plan.reference_counts import add_neighbours, count_references
from recovery.infer.references import SCHEMA
from recovery.model.ids import LedgerId
from tests.reconcile.rules.test_sides import CLOSED, catalog, keys


def test_hints_of_what_nothing_names_make_up_no_owner() -> None:
    """The owners of the nearest ids of the same scope, and the key's digits; no more."""
    rows = pa.Table.from_pylist(
        [{"bucket": 0, "scope": s, "ledger": n, "owner": o} for s, n, o in ((0, 1, "a"), (0, 9, None), (7, 5, "x"))],
        schema=SCHEMA,
    )
    unreferenced = [UnreferencedLedger(*one) for one in ((0, 5, "ab" * 32), (3, 5, None), (0, 0, None), (0, 10, None))]
    assert add_neighbours(rows, unreferenced) == (
        UnreferencedLedger(0, 5, "abababababab", ("a (1)", "unnamed (9)")),
        UnreferencedLedger(3, 5, None, ()),
        UnreferencedLedger(0, 0, None, ("a (1)",)),
        UnreferencedLedger(0, 10, None, ("unnamed (9)",)),
    )


BOTH, BOOKIES, STORE, NEITHER, ALONE, LOST = (LedgerId(0, number) for number in range(1, 7))


def test_what_references_name_and_what_they_do_not() -> None:
    """On bookies or in the store is found; what was deleted is not looked for; on bookies without a name is counted."""

    def reference(ledger: LedgerId, *, deleted: bool | None) -> dict[str, Any]:
        return {"bucket": ledger.bucket, "scope": ledger.scope, "ledger": ledger.ledger, "deleted": deleted}

    named = [reference(ledger, deleted=None) for ledger in (BOTH, BOOKIES, STORE, NEITHER)]
    named.append(reference(LOST, deleted=True))
    references = pa.Table.from_pylist(named, schema=SCHEMA).sort_by(
        [(name, "ascending") for name in ("bucket", "ledger")]
    )
    on_bookies = keys(BOTH, BOOKIES, ALONE, LedgerId(0, 7))
    digests = [None if ledger == 7 else b"ab" for ledger in on_bookies["ledger"].to_pylist()]
    rows = on_bookies.append_column("key", pa.array(digests, pa.binary()))
    found = count_references(references, rows, catalog(dict.fromkeys((BOTH, STORE), CLOSED)))
    assert (found.referenced, found.unreferenced, found.referenced_not_found) == (3, 2, 1)
    assert set(found.some_unreferenced) == {
        UnreferencedLedger(0, ALONE.ledger, b"ab".hex()), UnreferencedLedger(0, 7, None)
    }  # fmt: skip
    assert found.some_not_found == (NEITHER,)
