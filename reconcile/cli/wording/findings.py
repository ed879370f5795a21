"""Findings in words."""

from collections.abc import Mapping
from typing import Any


def describe_finding(row: Mapping[str, Any]) -> str:
    """Return a finding as one line; a row of FINDINGS in."""
    from recovery.model.ids import LedgerId

    about = row["subject"] if row["ledger"] is None else f"ledger {LedgerId(row['scope'], row['ledger'])}"
    evidence = "; ".join(f"{item['field']} {item['value']}" for item in row["evidence"] if item["value"])
    return f"{row['severity']} {row['category']} {about}: {evidence}"
