"""The faults of copies: their kinds, from harmless to grave, and the table of faults of many ledgers."""

from enum import IntEnum, auto
from typing import Any, Final

import numpy as np
import pyarrow as pa

from recovery.model import tables

MOST_GROUPS: Final = 100
"""Most groups of entries that are kept for one fault; its numbers count all."""


class Fault(IntEnum):
    """The faults of an entry, from harmless to grave."""

    OVER_REPLICATED = auto()
    BELOW_WRITE_QUORUM = auto()
    MISPLACED = auto()
    MISPLACED_ALL = auto()
    BELOW_ACK_QUORUM = auto()
    LOST = auto()


FAULTS: Final = pa.schema(
    [
        pa.field("row", pa.int64()),
        pa.field("fault", pa.int8()),
        pa.field("entries", pa.int64()),
        pa.field("least", pa.int64()),
        pa.field("groups", pa.list_(pa.field("item", tables.GROUPS.value_type, nullable=False))),
        pa.field("lacking", pa.list_(pa.string())),
        pa.field("strays", pa.list_(pa.string())),
        pa.field("dark", pa.list_(pa.string())),
    ]
)


def merge_faults(faults: pa.Table) -> pa.Table:
    """Add up the faults of ledgers that were laid out in parts; rows by ledger and fault."""
    order = faults.sort_by([("row", "ascending"), ("fault", "ascending")])
    keys = order["row"].to_numpy() * (len(Fault) + 1) + order["fault"].to_numpy()
    if len(np.unique(keys)) == len(keys):
        return order
    merged: list[dict[str, Any]] = []
    for key, row in zip(keys.tolist(), order.to_pylist(), strict=True):
        if merged and merged[-1]["key"] == key:
            last = merged[-1]
            last["entries"] += row["entries"]
            last["least"] = min(last["least"], row["least"])
            last["groups"] = (last["groups"] + row["groups"])[:MOST_GROUPS]
            for name in ("lacking", "strays", "dark"):
                last[name] = sorted({*last[name], *row[name]})
        else:
            merged.append({"key": key, **row})
    return pa.Table.from_pylist([{n: row[n] for n in FAULTS.names} for row in merged], schema=FAULTS)
