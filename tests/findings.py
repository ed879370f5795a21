"""What a plan's findings say, for tests."""

from collections.abc import Mapping
from typing import Any

from recovery.dataset import Dataset


def found(plan: Dataset, category: str) -> dict[Any, dict[str, Any]]:
    """Findings of a category by ledger, or by subject: one of each."""
    rows = [row for row in plan.read("findings").to_pylist() if row["category"] == category]
    by = {row["subject"] if row["ledger"] is None else row["ledger"]: row for row in rows}
    assert len(by) == len(rows)
    return by


def said(finding: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """The evidence of a finding by side and field."""
    return {(one["side"], one["field"]): one["value"] for one in finding["evidence"]}
