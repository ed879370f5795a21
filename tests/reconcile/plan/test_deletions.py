"""What a store's history says was deleted, by session."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.plan.views.deletions import SessionDeletions, group_by_session
from recovery.dataset import sort_by_key
from recovery.model import tables
from recovery.model.ids import LedgerId

AT = datetime(2026, 1, 2, tzinfo=UTC)


@dataclass(frozen=True)
class Plan:
    """The tables of a plan, read as a dataset is."""

    tables: Mapping[str, pa.Table]

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
