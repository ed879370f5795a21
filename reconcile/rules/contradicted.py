"""Earlier records that bookies' bytes contradict: a finding with both sides; nobody is right where that is a hold."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings.categories import SEVERITIES, SUGGESTED, Category
from reconcile.findings.table import Run, finding_id
from reconcile.rules.sides import ABSENT, Compared, Relation
from recovery.model import tables

NOBODY: str = "nobody"
"""In place of the side that is right."""


def findings(rows: pa.Table, run: Run, source: str) -> pa.Table:
    """Return a finding for each ledger whose earlier record is contradicted.

    Args:
        rows: RECONSTRUCTION.
        run: this one.
        source: where earlier records are from.
    """
    contradicted = rows.filter(pc.is_valid(rows["contradictions"]))
    return pa.Table.from_pylist(
        [_finding(row, run, source) for row in contradicted.to_pylist()], schema=tables.FINDINGS
    )


def doubted(compared: Compared, rows: pa.Table) -> Compared:
    """Say that nobody is right where a ledger that the store lacks is held for what its earlier record says."""
    is_doubted = pc.and_(pc.is_valid(rows["contradictions"]), pc.equal(rows["outcome"], "held")).to_numpy()
    if not is_doubted.any():
        return compared
    at = compared.where(Relation.GONE)
    held = compared.held[at]
    nobody = np.zeros(compared.sides.num_rows, np.bool_)
    nobody[at[(held != ABSENT) & is_doubted[held]]] = True
    column = compared.sides.schema.get_field_index("right")
    right = pc.if_else(pa.array(nobody), NOBODY, compared.sides["right"])
    return replace(compared, sides=compared.sides.set_column(column, "right", right))


def _finding(row: Mapping[str, Any], run: Run, source: str) -> dict[str, Any]:
    # What is restored in spite of it lacks copies, or has other members; what is held may be two ledgers.
    grave = row["outcome"] != "restored" or any(one["field"] == "last_entry" for one in row["contradictions"])
    return {
        "id": finding_id(Category.RECORD_CONTRADICTED, row["scope"], row["ledger"], "record"),
        **{name: row[name] for name in tables.KEY_COLUMNS},
        "category": str(Category.RECORD_CONTRADICTED),
        "severity": SEVERITIES[Category.RECORD_CONTRADICTED] if grave else "warning",
        "entries": [],
        "bookies": row["holders"],
        "evidence": list(_evidence(row["contradictions"], source)),
        "unknowns": [] if row["outcome"] == "restored" else ["which of the two is the ledger that is wanted"],
        "run": run.name,
        "first_seen": run.at,
        "last_seen": run.at,
        "status": "open",
        "suggested": SUGGESTED[Category.RECORD_CONTRADICTED],
    }


def _evidence(contradictions: list[Mapping[str, str]], source: str) -> Iterator[dict[str, str]]:
    for one in contradictions:
        for side, place in (("earlier", source), ("bookies", "recover")):
            yield {"side": side, "field": one["field"], "value": one[side], "source": place}
