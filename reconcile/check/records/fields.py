"""Which fields of two records of a ledger differ; columns in, masks out."""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.rules.sides import are_equal
from recovery.model import tables

Mask = npt.NDArray[np.bool_]

PASSWORD: Final = "password_hash"  # noqa: S105 - a column's name
FIELDS: Final = (*(field.name for field in tables.METADATA_FIELDS), PASSWORD, "segments", "custom")
"""The fields of a record, as columns of CATALOG_LEDGERS."""


def find_differing(left: pa.Table, right: pa.Table) -> dict[str, Mask]:
    """Return field → rows in which two tables differ there.

    Args:
        left: CATALOG_LEDGERS, or its columns from ``error`` on with ``raw``.
        right: likewise, row by row of the same ledgers.
    """
    masks = {name: np.zeros(left.num_rows, np.bool_) for name in FIELDS}
    # Records are the widest rows there are: of those that are equal nothing else is taken.
    rows = np.flatnonzero(~are_equal(left["raw"], right["raw"]))
    if len(rows):
        left_rows, right_rows = left.take(pa.array(rows)), right.take(pa.array(rows))
        for name in FIELDS:
            masks[name][rows] = ~are_equal(*(_say_nothing_once(side[name]) for side in (left_rows, right_rows)))
    return masks


def _say_nothing_once(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return lists with empty ones as null: a format without custom metadata equals one with empty metadata."""
    if not pa.types.is_list(column.type):
        return column
    return pc.if_else(pc.equal(pc.list_value_length(column), 0), pa.scalar(None, column.type), column)


def list_names(masks: dict[str, Mask]) -> pa.Array:
    """Return of each row the names of the fields that differ."""
    names = np.array(list(masks))
    matrix = np.column_stack(list(masks.values()))
    offsets = np.append(0, np.cumsum(matrix.sum(axis=1)))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(names[np.nonzero(matrix)[1]], pa.string()))
