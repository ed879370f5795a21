"""What a store's history says was deleted, by session."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from reconcile.plan.manifest import HistorySource, PlanManifest
from reconcile.plan.views.deletions import SessionDeletions, find_capture_before, group_by_session
from recovery.dataset import sort_by_key
from recovery.model import tables
from recovery.model.ids import LedgerId

AT = datetime(2026, 1, 2, tzinfo=UTC)


@dataclass(frozen=True)
class Plan:
    """The tables of a plan, read as a dataset is."""

    tables: Mapping[str, pa.Table]
    manifest: Mapping[str, Any] = field(default_factory=dict)
    path: str = "plan"

    def rows(self, name: str) -> int:
        """Return how many rows a table has."""
        count: int = self.tables[name].num_rows
        return count

    def read(self, name: str, *, buckets: range, columns: Sequence[str]) -> pa.Table:
        """Return the rows of some buckets."""
        bucket = pc.field("bucket")
        wanted = (bucket >= buckets.start) & (bucket < buckets.stop)
        return self.tables[name].filter(wanted).select(list(columns))


def table(schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows of ledgers in the order of a plan; what is not said is null."""
    keyed = [{"bucket": LedgerId(0, row["ledger"]).bucket, "scope": 0, **row} for row in rows]
    free = pa.schema([pa.field(field.name, field.type) for field in schema])
    return sort_by_key(pa.Table.from_pylist(keyed, schema=free))


def test_sessions_are_counted_with_what_nobody_decided() -> None:
    """Of each session: ledgers, those on bookies, and of these the ones held; other holds do not count."""
    deleted = {1: 7, 2: 7, 3: 9, 4: 9, 5: 9}
    sides = [
        {
            "ledger": ledger,
            "relation": "deleted",
            "on_bookies": ledger != 5,
            "deleted_txn": 100 + ledger,
            "deleted_at": AT,
            "deleted_session": session,
        }
        for ledger, session in deleted.items()
    ]
    sides += [{"ledger": ledger, "relation": "bookies_only", "on_bookies": True} for ledger in range(6, 40)]
    outcomes = {1: "held", 2: "restored", 3: "deleted", 4: "waiting"} | dict.fromkeys(range(6, 40), "held")
    plan = Plan(
        {
            "sides": table(tables.SIDES, sides),
            "reconstruction": table(
                tables.RECONSTRUCTION, [{"ledger": n, "outcome": outcome} for n, outcome in outcomes.items()]
            ),
            "actions": tables.ACTIONS.empty_table(),
        }
    )
    assert group_by_session(plan) == (  # type: ignore[arg-type]  # what of a dataset is read
        SessionDeletions(7, 2, 2, 1, 101, 102, AT, AT),
        SessionDeletions(9, 3, 2, 2, 103, 105, AT, AT),
    )


@pytest.mark.parametrize(("purged_in", "is_advised"), [(99, True), (100, False), (150, False)])
def test_no_capture_of_a_moment_before_a_purge_is_advised(purged_in: int, is_advised: bool) -> None:
    """The state at transaction 99 has the record of what was purged later, and not its tombstone."""
    told = {"relation": "deleted", "on_bookies": True, "deleted_at": AT}
    sides = [
        {"ledger": 1, **told, "deleted_txn": 100, "deleted_session": 7},
        {"ledger": 2, **told, "deleted_txn": purged_in, "deleted_session": 7, "tombstone": "purged by bkmeta"},
    ]
    held = [{"ledger": n, "outcome": outcome} for n, outcome in ((1, "held"), (2, "deleted"))]
    read = {
        "sides": table(tables.SIDES, sides),
        "reconstruction": table(tables.RECONSTRUCTION, held),
        "actions": tables.ACTIONS.empty_table(),
    }
    manifest = PlanManifest(histories=(HistorySource("zkfiles:///copy", 200, chosen=False),))
    written = {"binding": manifest.binding.to_json(), "coverage": manifest.coverage.to_json(), **manifest.to_json()}
    plan = Plan(read, written)
    [session] = group_by_session(plan)  # type: ignore[arg-type]  # what of a dataset is read
    assert (session.ledgers, session.undecided, session.purged) == (2, 1, 1)
    of_mistake = replace(session, first_txn=100)
    advice = find_capture_before(plan, of_mistake)  # type: ignore[arg-type]  # what of a dataset is read
    assert (advice is not None) == is_advised
