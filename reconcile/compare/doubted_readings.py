"""Held ledgers as they would be read if a person accepted the doubt of their content: what a plan offers instead."""

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recovery.infer.copies import heads
from recovery.infer.refusal import Refusal
from recovery.model import tables

_ID: Final = ["scope", "ledger"]


def read_doubted(
    rows: pa.Table, copies: pa.Table, reconstruct: Callable[[pa.Table], pa.Table]
) -> tuple[pa.Table, pa.Table]:
    """Return RECONSTRUCTION of held ledgers by what bookies alone show, whatever speaks against their content.

    Args:
        rows: RECONSTRUCTION.
        copies: COPIES of these ledgers, or of more.
        reconstruct: of the copies of whole ledgers, their RECONSTRUCTION, doubts accepted.

    Returns:
        All that can be read; of ledgers with two keys by the one that more bookies have, and by the other one.
    """
    held = rows.filter(pc.equal(rows["outcome"], "held"))
    places = _find_rows(copies, held) if held.num_rows else np.empty(0, np.int64)
    if not len(places):
        empty = tables.RECONSTRUCTION.empty_table()
        return empty, empty
    own = copies.take(pa.array(places))
    two = _find_rows(own, held.filter(pc.equal(held["reason"], str(Refusal.TWO_KEYS))))
    is_other = np.zeros(own.num_rows, np.bool_)
    is_other[two] = _mark_other_keys(own.take(pa.array(two)))
    both = np.zeros(own.num_rows, np.bool_)
    both[two] = True
    readings = [reconstruct(own.filter(pa.array(part))) for part in (~is_other, both & is_other)]
    first, other = (part.filter(pc.is_in(part["outcome"], pa.array(["restored", "guarded"]))) for part in readings)
    return first, other


def _find_rows(rows: pa.Table, ledgers: pa.Table) -> npt.NDArray[np.int64]:
    """Return which rows are of some ledgers."""
    numbered = rows.select(_ID).append_column("place", pa.array(np.arange(rows.num_rows)))
    return np.sort(numbered.join(ledgers.select(_ID), _ID, join_type="left semi")["place"].to_numpy())


def _mark_other_keys(copies: pa.Table) -> npt.NDArray[np.bool_]:
    """Say which rows have another key than most of their ledger's rows; rows without one go with most."""
    scope, ledger = (copies[name].to_numpy() for name in _ID)
    key = pc.fill_null(copies["key"].combine_chunks().dictionary_encode().indices, -1).to_numpy().astype(np.int64)
    order = np.lexsort((key, ledger, scope))
    scope, ledger, ordered = scope[order], ledger[order], key[order]
    starts = np.flatnonzero(heads(scope, ledger, ordered))
    counts = np.diff(np.append(starts, len(order))) * (ordered[starts] >= 0)
    by_count = np.lexsort((-counts, ledger[starts], scope[starts]))
    most = by_count[heads(scope[starts][by_count], ledger[starts][by_count])]
    number = np.cumsum(heads(scope, ledger)) - 1
    is_other = np.zeros(len(order), np.bool_)
    is_other[order] = (ordered >= 0) & (ordered != ordered[starts][most][number])
    return is_other
