"""Records of snapshots that bookies' bytes contradict: a finding with both sides; nobody is right where it is held."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings.categories import Category
from reconcile.findings.table import Finding, LedgerKey, Run, Statement, make_rows
from reconcile.rules.sides import ABSENT, Joined, Relation

NOBODY: str = "nobody"
"""In place of the side that is right."""


def findings(rows: pa.Table, run: Run, source: str) -> pa.Table:
    """Return a finding for each ledger whose record in a snapshot is contradicted.

    Args:
        rows: RECONSTRUCTION.
        run: this one.
        source: where records of snapshots are from.
    """
    contradicted = rows.filter(pc.is_valid(rows["contradictions"]))
    return make_rows((_make_finding(row, source) for row in contradicted.to_pylist()), run)


def mark_doubted(compared: Joined, rows: pa.Table) -> Joined:
    """Say that nobody is right where a ledger that the store lacks is held for what its snapshot's record says."""
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


def _make_finding(row: Mapping[str, Any], source: str) -> Finding:
    # What is restored in spite of it lacks copies, or has other members; what is held may be two ledgers.
    grave = row["outcome"] != "restored" or any(
        contradiction["field"] == "last_entry" for contradiction in row["contradictions"]
    )
    return Finding(
        category=Category.RECORD_CONTRADICTED,
        subject="record",
        statements=[
            Statement(side, contradiction["field"], contradiction[side], place)
            for contradiction in row["contradictions"]
            for side, place in (("earlier", source), ("bookies", "recover"))
        ],
        key=LedgerKey.from_row(row),
        severity=None if grave else "warning",
        bookies=row["holders"],
        unknowns=[] if row["outcome"] == "restored" else ["which of the two is the ledger that is wanted"],
    )
