"""What the sides of one ledger disagree in, in words: from the rules, and from the findings of a plan."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.compare.single_ledger import StoredLedger, is_of
from reconcile.findings.categories import Category
from reconcile.findings.table import FindingRun
from reconcile.findings.view import FindingView
from reconcile.rules import diff, entries_beyond_end, id_reuse, reference_checks, snapshot_findings
from reconcile.rules.segments import copy_findings
from reconcile.rules.segments.copies import CopyFaults
from recovery.dataset import Dataset
from recovery.model import tables
from recovery.model.ids import LedgerId

_RUN: Final = FindingRun("explain", datetime(1970, 1, 1, tzinfo=UTC))


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One disagreement of the sides: the category of its finding, and what it says."""

    category: str
    text: str


def compare_with_store(
    row: Mapping[str, Any] | None, live: StoredLedger | None, *, looked_at: bool, is_newer: bool = False
) -> tuple[Disagreement, ...]:
    """Say in what the store's record and the bookies disagree.

    Args:
        row: of RECONSTRUCTION; None: nothing shows the ledger.
        live: what the store has of it; None: no store was given.
        looked_at: at least one bookie was; where none was, a record that none shows says nothing.
        is_newer: the record is newer than what was seen of its bookies.
    """
    if live is None or not live.row.num_rows:
        return ()
    rows = _as_rows(row)
    return tuple(
        Disagreement(
            disagreement["category"],
            f"{disagreement['category']}: {disagreement['field']} is {disagreement['stored']} in the store, "
            f"{disagreement['held']} on bookies",
        )
        for disagreement in diff.disagreements(
            rows, live.row, diff.match(rows, live.row), np.full(live.row.num_rows, is_newer)
        ).to_pylist()
        if looked_at or disagreement["category"] != Category.NOT_ON_BOOKIES
    )


def apply_rules(
    row: Mapping[str, Any] | None,
    copies: pa.Table,
    stored: pa.Table,
    references: pa.Table | None,
    *,
    looked_at: bool,
    seen: bool,
) -> Iterator[Disagreement]:
    """Say what the rules find beside the records.

    Args:
        row: of RECONSTRUCTION; None: nothing shows the ledger.
        copies: COPIES of the ledger.
        stored: CATALOG_LEDGERS of the store.
        references: what upper layers know of the ledger; None: none was asked.
        looked_at: at least one bookie was.
        seen: everything that may know the ledger was looked at.
    """
    rows = _as_rows(row)
    parts = [
        entries_beyond_end.findings(copies, stored, _RUN, seen=seen),
        id_reuse.findings(copies, stored, rows, _RUN),
        snapshot_findings.find_contradicted(rows, _RUN, ""),
    ]
    if references is not None:
        parts.append(reference_checks.findings(references, rows, copies, stored, _RUN, looked_at=looked_at, seen=seen))
    for finding in pa.concat_tables(parts).to_pylist():
        yield _as_disagreement(finding)


def describe_faults(stored: pa.Table, faults: CopyFaults) -> Iterator[Disagreement]:
    """Say what a scrutiny would report of the copies of a ledger, notes left out.

    Args:
        stored: CATALOG_LEDGERS of the ledger.
        faults: of its copies.
    """
    rows = copy_findings.findings(stored, faults, _RUN, everywhere=False)
    for finding in rows.filter(pc.not_equal(rows["severity"], "info")).to_pylist():
        yield _as_disagreement(finding)


def read_plan_findings(plan: Dataset, ledger: LedgerId) -> Iterator[Disagreement]:
    """Say what a plan found of the ledger, but for its hold, which is the outcome itself."""
    findings = plan.read("findings")
    of_it = pc.fill_null(is_of(findings, ledger), fill_value=False)
    for finding in findings.filter(of_it).to_pylist():
        if finding["category"] != Category.HELD:
            yield _as_disagreement(finding, " in the plan")


def _as_disagreement(row: Mapping[str, Any], where: str = "") -> Disagreement:
    view = FindingView.from_row(row)
    return Disagreement(view.category, f"{view.category} ({view.severity}){where}: {view.says} {view.evidence}")


def _as_rows(row: Mapping[str, Any] | None) -> pa.Table:
    return pa.Table.from_pylist([] if row is None else [dict(row)], schema=tables.RECONSTRUCTION)
