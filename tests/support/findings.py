"""What a plan's findings say, for tests."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from recovery.dataset import Dataset
from recovery.model.ids import LedgerId
from tests.support.plan_folder import RUN

AT: Final = datetime(2026, 1, 1, tzinfo=UTC)


def found(plan: Dataset, category: str) -> dict[Any, dict[str, Any]]:
    """Findings of a category by ledger, or by subject: one of each."""
    rows = [row for row in plan.read("findings").to_pylist() if row["category"] == category]
    by = {row["subject"] if row["ledger"] is None else row["ledger"]: row for row in rows}
    assert len(by) == len(rows)
    return by


def said(finding: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """The evidence of a finding by side and field."""
    return {(one["side"], one["field"]): one["value"] for one in finding["evidence"]}


def finding(category: str, severity: str, ledger: int | None, **more: Any) -> dict[str, Any]:
    """Return a row of FINDINGS."""
    return {
        "id": b"",
        "bucket": None if ledger is None else LedgerId(0, ledger).bucket,
        "scope": None if ledger is None else 0,
        "ledger": ledger,
        "category": category,
        "severity": severity,
        "entries": [],
        "bookies": [],
        "evidence": [],
        "unknowns": [],
        "run": RUN,
        "first_seen": AT,
        "last_seen": AT,
        "status": "open",
        **more,
    }
