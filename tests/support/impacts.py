"""Made-up clusters as catalogs, for the impact check."""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from recovery.dataset import sort_by_key
from recovery.model import tables
from recovery.model.ids import buckets
from tests.support.impact_judge import Ledger


def make_records(ledgers: Iterable[Ledger]) -> pa.Table:
    """Return CATALOG_LEDGERS of ledgers, sorted by key, with the columns that the check reads."""
    made = list(ledgers)
    number = np.array([ledger.number for ledger in made], np.int64)
    scope = np.zeros(len(made), np.int64)
    columns = {
        "bucket": pa.array(buckets(scope, number)),
        "scope": pa.array(scope),
        "ledger": pa.array(number),
        "state": pa.array([ledger.state for ledger in made], pa.string()),
        **{
            name: pa.array([ledger.quorum[place] for ledger in made], pa.int32())
            for place, name in enumerate(("ensemble_size", "write_quorum", "ack_quorum"))
        },
        "last_entry": pa.array([ledger.last for ledger in made], pa.int64()),
        "segments": pa.array(
            [[{"first": first, "members": list(members)} for first, members in ledger.segments] for ledger in made],
            tables.SEGMENTS,
        ),
    }
    schema = tables.CATALOG_LEDGERS
    full = {name: columns.get(name, pa.nulls(len(made), schema.field(name).type)) for name in schema.names}
    return sort_by_key(pa.table(full))


def make_marks(ledgers: Sequence[Ledger]) -> pa.Table:
    """Return CATALOG_NODES with the marks of ledgers."""
    rows = []
    for ledger in ledgers:
        if ledger.marked:
            text = "".join(f'replica: "{bookie}"\n' for bookie in sorted(ledger.marked)) + "ctime: 1700000000000\n"
            path = f"/underreplication/ledgers/0000/0000/0000/{ledger.number:04x}/urL{ledger.number:010d}"
            rows.append({"path": path, "kind": "mark", "raw": text.encode(), "version": 0})
    return pa.Table.from_pylist(rows, schema=tables.CATALOG_NODES)
