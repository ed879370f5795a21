"""Holds: records that keep a ledger's data and serve nobody. Their custom metadata says why."""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings.categories import Category
from reconcile.findings.table import Run, Statement, make_ledger_findings
from recovery.model.tables import KEY_COLUMNS

HOLD_MARK: Final = "bkmeta.hold"
"""Key of the custom metadata that says why a record is a hold."""


def find_holds(catalog: pa.Table) -> pa.Table:
    """Return the holds that a store has: the columns of a key, reason and holders, as RECONSTRUCTION has them."""
    lists = catalog["custom"].combine_chunks()
    marked = pc.equal(pc.struct_field(lists.flatten(), 0), HOLD_MARK)
    records = catalog.take(pc.unique(pc.list_parent_indices(lists).filter(marked)))
    customs = [{item["key"]: item["value"] for item in custom} for custom in records["custom"].to_pylist()]
    reasons = [custom[HOLD_MARK].decode(errors="replace") for custom in customs]
    holders = [
        sorted({m for s in segments or () for m in s["members"]}) for segments in records["segments"].to_pylist()
    ]
    return (
        records.select(list(KEY_COLUMNS))
        .append_column("reason", pa.array(reasons, pa.string()))
        .append_column("holders", pa.array(holders, pa.list_(pa.string())))
    )


def is_hold(stored: pa.Table) -> npt.NDArray[np.bool_]:
    """Say which records of a store are holds of ours; CATALOG_LEDGERS in."""
    mask = np.zeros(stored.num_rows, np.bool_)
    lists = stored["custom"].combine_chunks()
    marked = pc.equal(pc.struct_field(lists.flatten(), 0), HOLD_MARK)
    mask[pc.list_parent_indices(lists).filter(marked).to_numpy()] = True
    return mask


def findings(rows: pa.Table, run: Run) -> pa.Table:
    """Return a finding for each ledger that is held: rows of RECONSTRUCTION, or as `find_holds` returns them, in."""
    statements = [Statement("bookies", "reason", rows["reason"])]
    return make_ledger_findings(Category.HELD, rows, statements, run, subject="reason", bookies=rows["holders"])
