"""Records of snapshots: those that bookies' bytes contradict, and those of ledgers that only a snapshot has."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings.categories import TRAITS, Category
from reconcile.findings.table import Finding, FindingRun, FindingStatement, LedgerKey, make_ledger_findings, make_rows
from reconcile.rules.sides import ABSENT, Joined, Relation, unite

_UNKNOWN = ("the entries of bookies that were not scanned, or not completely",)
NOBODY: str = "nobody"
"""In place of the side that is right."""


def find_contradicted(rows: pa.Table, run: FindingRun, source: str) -> pa.Table:
    """Return a finding for each ledger with a contradicted record in a snapshot.

    Args:
        rows: RECONSTRUCTION.
        run: this one.
        source: of the snapshots' records.
    """
    contradicted = rows.filter(pc.is_valid(rows["contradictions"]))
    return make_rows((_make_finding(row, source) for row in contradicted.to_pylist()), run)


def mark_doubted(compared: Joined, rows: pa.Table) -> Joined:
    """Set no side as right for a ledger that the store lacks and that its snapshot's record puts on hold."""
    is_doubted = pc.and_(pc.is_valid(rows["contradictions"]), pc.equal(rows["outcome"], "held")).to_numpy()
    if not is_doubted.any():
        return compared
    places = compared.where(Relation.GONE)
    shown = compared.shown[places]
    nobody = np.zeros(compared.sides.num_rows, np.bool_)
    nobody[places[(shown != ABSENT) & is_doubted[shown]]] = True
    column = compared.sides.schema.get_field_index("right")
    right = pc.if_else(pa.array(nobody), NOBODY, compared.sides["right"])
    return replace(compared, sides=compared.sides.set_column(column, "right", right))


def find_only_there(
    records: pa.Table,
    proposed: pa.Table,
    run: FindingRun,
    source: str,
    *,
    looked_at: bool,
    seen: bool,
    deleted: npt.NDArray[np.bool_] | None = None,
) -> pa.Table:
    """Return a finding for each ledger that only a snapshot has, unless it was closed without entries.

    DELETED_SINCE where the ledger was probably deleted since, else ONLY_IN_EARLIER.

    Args:
        records: CATALOG_LEDGERS of ledgers that neither the store nor a bookie has.
        proposed: RECONSTRUCTION of those with a proposal.
        run: this one.
        source: of the snapshots' records.
        looked_at: at least one bookie was.
        seen: every bookie was, completely.
        deleted: which of them were probably deleted since; None: none.
    """
    empty = pc.and_(pc.equal(records["state"], "CLOSED"), pc.less(records["last_entry"], 0))
    has_entries = pc.invert(pc.fill_null(empty, fill_value=False)).to_numpy()
    since = np.zeros(len(has_entries), np.bool_) if deleted is None else deleted
    parts = []
    for mask, category in ((~since, Category.ONLY_IN_EARLIER), (since, Category.DELETED_SINCE)):
        rows = records.filter(pa.array(has_entries & mask))
        recorded, proposed_rows = unite([rows, proposed]).rows
        places = np.full(rows.num_rows, ABSENT)
        places[recorded[recorded != ABSENT]] = proposed_rows[recorded != ABSENT]
        statements = [
            FindingStatement("earlier", "state", rows["state"], source),
            FindingStatement("earlier", "last_entry", rows["last_entry"], source),
            FindingStatement("bookies", "last_entry", "nothing" if looked_at else "not looked at"),
            FindingStatement("plan", "outcome", proposed["outcome"].take(pa.array(places, mask=places == ABSENT))),
        ]
        # An open ledger may have had no entry yet, and an unscanned bookie may have all of them.
        lost = pc.and_(pc.fill_null(pc.greater_equal(rows["last_entry"], 0), fill_value=False), seen)
        grave = pc.if_else(lost, TRAITS[category].severity, "warning")
        unknowns = () if seen else _UNKNOWN
        how: dict[str, Any] = {"subject": "last_entry", "severity": grave, "unknowns": unknowns}
        parts.append(make_ledger_findings(category, rows, statements, run, **how))
    return pa.concat_tables(parts)


def _make_finding(row: Mapping[str, Any], source: str) -> Finding:
    # What is restored in spite of it lacks copies, or has other members; what is held may be two ledgers.
    grave = row["outcome"] != "restored" or any(
        contradiction["field"] == "last_entry" for contradiction in row["contradictions"]
    )
    return Finding(
        category=Category.RECORD_CONTRADICTED,
        subject="record",
        statements=[
            FindingStatement(side, contradiction["field"], contradiction[side], place)
            for contradiction in row["contradictions"]
            for side, place in (("earlier", source), ("bookies", "recover"))
        ],
        key=LedgerKey.from_row(row),
        severity=None if grave else "warning",
        bookies=row["holders"],
        unknowns=[] if row["outcome"] == "restored" else ["which of the two is the ledger that is wanted"],
    )
