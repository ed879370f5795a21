"""Findings of records of snapshots that bookies' bytes contradict: how grave each is, and both sides of it."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from reconcile.findings.table import FindingRun
from reconcile.rules import snapshot_findings
from reconcile.rules.sides import compare
from recovery.model import tables
from recovery.model.ids import LedgerId
from recovery.model.metadata import LedgerMetadata
from tests.reconcile.rules.test_sides import CLOSED, OPEN, catalog, happened

RUN: Final = FindingRun("r1", datetime(2026, 1, 1, tzinfo=UTC))


def finding(outcome: str, *fields: str) -> Mapping[str, Any]:
    """Return the only finding of a ledger whose record is contradicted in some fields, beside a ledger without any."""
    against = [{"field": field, "earlier": f"{field} of before", "bookies": f"{field} shown"} for field in fields]
    rows = [
        {"bucket": 1, "scope": 0, "ledger": 7, "outcome": outcome, "holders": ["a:3181"], "contradictions": against},
        {"bucket": 1, "scope": 0, "ledger": 8, "outcome": "held", "holders": [], "contradictions": None},
    ]
    table = pa.table({
        f.name: pa.array([row.get(f.name) for row in rows], f.type) for f in tables.RECONSTRUCTION
    })  # fmt: skip
    (found,) = snapshot_findings.find_contradicted(table, RUN, "before").to_pylist()
    return dict(found)


@pytest.mark.parametrize(
    ("outcome", "fields", "severity"),
    [
        ("held", ("segments",), "critical"),
        ("held", ("last_entry", "length"), "critical"),
        ("restored", ("segments", "last_entry"), "critical"),
        ("restored", ("segments",), "warning"),
    ],
)
def test_what_is_held_and_an_end_that_is_lost_are_grave(outcome: str, fields: tuple[str, ...], severity: str) -> None:
    """Members that moved are none; of what is restored it is known which of the two is right."""
    found = finding(outcome, *fields)
    assert (found["ledger"], found["severity"], found["bookies"]) == (7, severity, ["a:3181"])
    assert bool(found["unknowns"]) == (outcome == "held")
    assert [(one["side"], one["field"], one["value"], one["source"]) for one in found["evidence"]] == [
        row
        for field in fields
        for row in (
            ("earlier", field, f"{field} of before", "before"),
            ("bookies", field, f"{field} shown", "recover"),
        )
    ]


def shown(**outcomes: str) -> pa.Table:
    """RECONSTRUCTION of ledgers, `held` or `restored`; one whose name ends in _x is contradicted."""
    against = [{"field": "digest", "earlier": "a", "bookies": "b"}]
    rows = [
        {"bucket": LedgerId(0, int(name[1])).bucket, "scope": 0, "ledger": int(name[1]), "outcome": outcome,
         "contradictions": against if name.endswith("_x") else None}
        for name, outcome in outcomes.items()
    ]  # fmt: skip
    made = pa.table({f.name: pa.array([row.get(f.name) for row in rows], f.type) for f in tables.RECONSTRUCTION})
    return made.sort_by([(name, "ascending") for name in tables.KEY_COLUMNS])


def test_nobody_is_right_where_a_snapshot_is_contradicted_and_the_store_has_nothing() -> None:
    """Only where the ledger is held for it; else the same is right as before."""
    rows = shown(n1_x="held", n2_x="restored", n3="held", n4_x="held", n5_x="held")
    snapshot = catalog({LedgerId(0, number): CLOSED for number in (1, 2, 3, 4, 6)})
    stored = catalog({LedgerId(0, 4): CLOSED})
    joined = compare(
        rows.select(list(tables.KEY_COLUMNS)), stored, snapshot, np.full(5, -1), happened(), has_snapshot=True
    )
    marked = snapshot_findings.mark_doubted(joined, rows)
    right = dict(zip(marked.sides["ledger"].to_pylist(), marked.sides["right"].to_pylist(), strict=True))
    assert right == {1: "nobody", 2: "earlier", 3: "earlier", 4: "store", 5: "bookies", 6: "earlier"}
    assert marked.sides.drop_columns("right") == joined.sides.drop_columns("right")
    settled = shown(n1_x="restored", n3="held")
    assert snapshot_findings.mark_doubted(joined, settled) is joined


@pytest.mark.parametrize(
    ("record", "seen", "severity"),
    [
        (CLOSED, True, "critical"),
        (CLOSED, False, "warning"),
        (replace(CLOSED, last_entry=0, length=9), True, "critical"),
        (replace(CLOSED, last_entry=-1, length=0), True, None),
        (OPEN, True, "warning"),
        (OPEN, False, "warning"),
        (b"no record", True, "warning"),
    ],
)
def test_what_only_a_snapshot_has(record: LedgerMetadata | bytes, *, seen: bool, severity: str | None) -> None:
    """Lost, where it had entries and every bookie was looked at; an empty one is nothing."""
    proposed = shown(n8="held")
    rows = snapshot_findings.find_only_there(
        catalog({LedgerId(0, 7): record}), proposed, RUN, "before", looked_at=True, seen=seen
    ).to_pylist()
    assert [row["severity"] for row in rows] == ([severity] if severity else [])
    assert all(bool(row["unknowns"]) != seen for row in rows)


@pytest.mark.parametrize(("looked_at", "text"), [(True, "nothing"), (False, "not looked at")])
def test_what_becomes_of_what_only_a_snapshot_has_is_said(text: str, *, looked_at: bool) -> None:
    """The plan's outcome of those that have one; what bookies have, or that nobody looked."""
    records = catalog({LedgerId(0, number): CLOSED for number in (7, 8, 9)})
    rows = snapshot_findings.find_only_there(
        records, shown(n9="held", n8="restored", n5="held"), RUN, "before", looked_at=looked_at, seen=True
    ).to_pylist()
    told = {row["ledger"]: [(one["side"], one["field"], one["value"]) for one in row["evidence"]] for row in rows}
    assert told == {
        number: [
            ("earlier", "state", "CLOSED"),
            ("earlier", "last_entry", "9"),
            ("bookies", "last_entry", text),
            ("plan", "outcome", outcome),
        ]
        for number, outcome in ((7, "nothing"), (8, "restored"), (9, "held"))
    }
