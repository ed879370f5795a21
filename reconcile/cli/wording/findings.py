"""Findings in words."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reconcile.check.scrutiny.run_differences import GoneFinding


def name_subject(row: Mapping[str, Any]) -> str:
    """Return what a finding is about: a ledger, a path or a bookie; a row of FINDINGS in."""
    from recovery.model.ids import LedgerId

    return str(row["subject"]) if row["ledger"] is None else f"ledger {LedgerId(row['scope'], row['ledger'])}"


def describe_finding(row: Mapping[str, Any]) -> str:
    """Return a finding as one line; a row of FINDINGS in."""
    evidence = "; ".join(f"{item['field']} {item['value']}" for item in row["evidence"] if item["value"])
    return f"{row['severity']} {row['category']} {name_subject(row)}: {evidence}"


def describe_gone(finding: "GoneFinding") -> str:
    """Return a finding that is gone as one line, with what resolved it."""
    first = finding.row["first_seen"].isoformat(timespec="seconds")
    about = f"{finding.row['severity']} {finding.row['category']} {name_subject(finding.row)}"
    return f"{'resolved' if finding.is_resolved else 'gone'}: {about}, seen since {first}: {finding.why}"
