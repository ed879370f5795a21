"""Findings of records of snapshots that bookies' bytes contradict: how grave each is, and both sides of it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pytest

from reconcile.findings.table import Run
from reconcile.rules import snapshot_findings
from recovery.model import tables

RUN: Final = Run("r1", datetime(2026, 1, 1, tzinfo=UTC))


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
