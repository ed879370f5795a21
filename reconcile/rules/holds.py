"""Holds: records that keep a ledger's data and serve nobody. Their custom metadata says why."""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings.categories import Category
from reconcile.findings.table import Run, Said, of_ledgers
from recovery.model.tables import KEY_COLUMNS

HOLD_MARK: Final = "bkmeta.hold"
"""Key of the custom metadata that says why a record is a hold."""


def still_held(catalog: pa.Table) -> pa.Table:
    """Return the holds that a store has: the columns of a key, reason and holders, as RECONSTRUCTION has them."""
    lists = catalog["custom"].combine_chunks()
    marked = pc.equal(pc.struct_field(lists.flatten(), 0), HOLD_MARK)
    found = catalog.take(pc.unique(pc.list_parent_indices(lists).filter(marked)))
    customs = [{one["key"]: one["value"] for one in custom} for custom in found["custom"].to_pylist()]
    reasons = [custom[HOLD_MARK].decode(errors="replace") for custom in customs]
    holders = [sorted({m for s in segments or () for m in s["members"]}) for segments in found["segments"].to_pylist()]
    return (
        found.select(list(KEY_COLUMNS))
        .append_column("reason", pa.array(reasons, pa.string()))
        .append_column("holders", pa.array(holders, pa.list_(pa.string())))
    )


def is_hold(stored: pa.Table) -> npt.NDArray[np.bool_]:
    """Say which records of a store are holds of ours; CATALOG_LEDGERS in."""
    found = np.zeros(stored.num_rows, np.bool_)
    lists = stored["custom"].combine_chunks()
    marked = pc.equal(pc.struct_field(lists.flatten(), 0), HOLD_MARK)
    found[pc.list_parent_indices(lists).filter(marked).to_numpy()] = True
    return found


def findings(held: pa.Table, run: Run) -> pa.Table:
    """Return a finding for each ledger that is held: rows of RECONSTRUCTION, or as `still_held` returns them, in."""
    said = [Said("bookies", "reason", held["reason"])]
    return of_ledgers(Category.HELD, held, said, run, subject="reason", bookies=held["holders"])
