"""The bytes of ledgers, their estimated bytes on bookies, and the time of their last entries there.

An entry says how long its ledger is up to it. So the last entry that is held tells the ledger's bytes. A bookie that
holds a part of the entries is taken to hold the same part of the bytes.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings.table import FindingStatement
from reconcile.rules.sides import ABSENT, unite
from recovery.model.tables import KEY_COLUMNS

_KEYS: Final = list(KEY_COLUMNS)


def measure_bytes(copies: pa.Table) -> pa.Table:
    """Return key columns, `length` and `bytes` of ledgers, each once; null where no header of an entry was read.

    Args:
        copies: COPIES, with the key columns, `entries`, `last` and `headers` at least.
    """
    headers = (
        copies["headers"].combine_chunks() if copies.num_rows else pa.array([], copies.schema.field("headers").type)
    )
    of_row = pc.list_parent_indices(headers).to_numpy()
    lengths = np.full(copies.num_rows, -1, np.int64)
    np.maximum.at(lengths, of_row, pc.struct_field(pc.list_flatten(headers), "length").to_numpy())
    columns = {name: copies[name] for name in _KEYS}
    rows = pa.table(
        {
            **columns,
            "length": pa.array(lengths, mask=lengths < 0),
            "entries": copies["entries"],
            "count": pc.add(copies["last"], 1),
        }
    )
    sums = rows.group_by(_KEYS).aggregate([("length", "max"), ("entries", "sum"), ("count", "max")])
    share = pc.divide(pc.cast(sums["entries_sum"], pa.float64()), pc.cast(sums["count_max"], pa.float64()))
    amounts = pc.round(pc.multiply(pc.cast(sums["length_max"], pa.float64()), share))
    return pa.table(
        {
            **{name: sums[name] for name in _KEYS},
            "length": sums["length_max"],
            "bytes": pc.cast(pc.if_else(pc.is_finite(amounts), amounts, None), pa.int64()),
        }
    )


def state_bytes(ledgers: pa.Table, copies: pa.Table) -> list[FindingStatement]:
    """Return the evidence of how many bytes ledgers have, a value for each row; not known where no header was read.

    Args:
        ledgers: key columns.
        copies: COPIES of these ledgers; of others, too.
    """
    sums = measure_bytes(copies)
    places, measured = unite([ledgers, sums]).rows
    rows = np.full(ledgers.num_rows, ABSENT)
    rows[places[places != ABSENT]] = measured[places != ABSENT]
    taken = pa.array(rows, mask=rows == ABSENT)
    return [
        FindingStatement("bookies", words, pc.fill_null(pc.cast(sums[name].take(taken), pa.string()), "not known"))
        for words, name in (
            ("bytes, up to the last entry that is held", "length"),
            ("bytes on bookies, about", "bytes"),
        )
    ]


def state_last_writes(ledgers: pa.Table, last_writes: pa.Table) -> FindingStatement:
    """Return the evidence of when ledgers were written last, a value for each row.

    Args:
        ledgers: key columns.
        last_writes: key columns of ledgers, and `last_write`, text.
    """
    places, told = unite([ledgers, last_writes]).rows
    rows = np.full(ledgers.num_rows, ABSENT)
    rows[places[places != ABSENT]] = told[places != ABSENT]
    texts = last_writes["last_write"].take(pa.array(rows, mask=rows == ABSENT))
    return FindingStatement(
        "bookies", "written last, at the latest", pc.fill_null(texts, "not known: no bookie has it")
    )
