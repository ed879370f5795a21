"""Ledgers with entries, or open ones, that only a snapshot has: what is lost, and what may be elsewhere."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings import table
from reconcile.findings.categories import TRAITS, Category
from reconcile.findings.table import Run, Statement
from reconcile.rules.sides import ABSENT, unite

_UNKNOWN = ("what bookies have that were not looked at, or not completely",)


def findings(records: pa.Table, proposed: pa.Table, run: Run, source: str, *, looked_at: bool, seen: bool) -> pa.Table:
    """Return a finding for each, but for those that were closed without entries.

    Args:
        records: CATALOG_LEDGERS of ledgers that neither the store nor a bookie has.
        proposed: RECONSTRUCTION of those of them that something becomes of.
        run: this one.
        source: where records of snapshots are from.
        looked_at: at least one bookie was.
        seen: every bookie was, completely.
    """
    empty = pc.and_(pc.equal(records["state"], "CLOSED"), pc.less(records["last_entry"], 0))
    rows = records.filter(pc.invert(pc.fill_null(empty, fill_value=False)))
    recorded, proposed_rows = unite([rows, proposed]).rows
    places = np.full(rows.num_rows, ABSENT)
    places[recorded[recorded != ABSENT]] = proposed_rows[recorded != ABSENT]
    statements = [
        Statement("earlier", "state", rows["state"], source),
        Statement("earlier", "last_entry", rows["last_entry"], source),
        Statement("bookies", "last_entry", "nothing" if looked_at else "not looked at"),
        Statement("plan", "outcome", proposed["outcome"].take(pa.array(places, mask=places == ABSENT))),
    ]
    # What was open may have had no entry yet, and what was not looked at may have them all.
    lost = pc.and_(pc.fill_null(pc.greater_equal(rows["last_entry"], 0), fill_value=False), seen)
    grave = pc.if_else(lost, TRAITS[Category.ONLY_IN_EARLIER].severity, "warning")
    return table.make_ledger_findings(
        Category.ONLY_IN_EARLIER,
        rows,
        statements,
        run,
        subject="last_entry",
        severity=grave,
        unknowns=() if seen else _UNKNOWN,
    )
