"""A store's catalog and an earlier one, as `bkmeta capture` would write them of made-up ledgers.

of              what happened since the snapshot
2 of 1,000      created
5 of 1,000      re-replicated: the bookie at the first position is another one
5 of 1,000      closed
1 of 1,000      gone from the store
all others      nothing
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.data.ledgers import BOOKIES, CHUNK, ENSEMBLE, INSTANCE, PASSWORD, PAYLOAD, WRITE, Ledgers, chunk
from recovery.codecs.ledger_metadata import decode_columns, encode_columns
from recovery.dataset import DatasetWriter
from recovery.model import tables
from recovery.model.ids import buckets
from recovery.model.metadata import Digest, LedgerState

NOW: Final = "now"
EARLIER: Final = "earlier"
_AT: Final = {NOW: datetime(2026, 1, 2, tzinfo=UTC), EARLIER: datetime(2026, 1, 1, tzinfo=UTC)}
_TXN: Final = {NOW: 20_000_000, EARLIER: 10_000_000}
_EACH: Final = 1000
_CREATED: Final = (1, 2)
_MOVED: Final = range(10, 15)
_CLOSED: Final = range(20, 25)
_GONE: Final = (30,)


def write(folder: Path, ledgers: int) -> None:
    """Write both catalogs, of so many ledgers in all."""
    for side in (NOW, EARLIER):
        with DatasetWriter(folder / side, "catalog", binding={}, secret=True) as writer:
            for number in range(-(-ledgers // CHUNK)):
                made = chunk(number, ledgers)
                place = (number * CHUNK + np.arange(len(made.ledger))) % _EACH
                there = ~np.isin(place, _GONE if side == NOW else _CREATED)
                writer.append("ledgers", records(made, place, side).filter(pa.array(there)))
            source: dict[str, Any] = {
                "kind": "zookeeper", "uri": f"zk://{side}/ledgers", "instance_id": INSTANCE, "layout": None,
                "txn": _TXN[side], "since_txn": None, "at": _AT[side], "complete": True, "root": "present", "gaps": [],
                "notes": [],
            }  # fmt: skip
            writer.append("sources", pa.Table.from_pylist([source], schema=tables.CATALOG_SOURCES))
            writer.close(coverage={"complete": True})


def records(made: Ledgers, place: "np.ndarray[Any, np.dtype[np.int64]]", side: str) -> pa.Table:
    """Return the rows of CATALOG_LEDGERS of a chunk, as one side has them."""
    rows = len(made.ledger)
    before = np.full(rows, side == EARLIER)
    members = made.members.copy()
    moved = np.isin(place, _MOVED) & ~before
    members[moved, 0] = made.newcomer[moved]
    two = made.change > 0
    later = members.copy()
    later[:, 1] = made.newcomer
    count = 1 + two.astype(np.int64)
    begin = np.append(0, np.cumsum(count))
    who, first = np.repeat(members, count, axis=0), np.zeros(begin[-1], np.int64)
    who[begin[:-1][two] + 1], first[begin[:-1][two] + 1] = later[two], made.change[two]
    names = pa.ListArray.from_arrays(
        pa.array(np.arange(len(who) + 1, dtype=np.int32) * ENSEMBLE),
        pa.array(BOOKIES).take(pa.array(who.ravel())),
        type=tables.SEGMENTS.value_type.field("members").type,
    )
    segments = pa.ListArray.from_arrays(
        pa.array(begin.astype(np.int32)),
        pa.StructArray.from_arrays([pa.array(first), names], fields=list(tables.SEGMENTS.value_type)),
        type=tables.SEGMENTS,
    )
    open_then = before & np.isin(place, _CLOSED)
    closed = pa.array(~open_then)
    last = pa.array(made.entries - 1, mask=open_then)
    record = pa.table(
        {
            **_same({"ensemble_size": ENSEMBLE, "write_quorum": WRITE, "ack_quorum": WRITE}, pa.int32(), rows),
            "state": pa.array([str(LedgerState.OPEN), str(LedgerState.CLOSED)]).take(closed.cast(pa.int64())),
            "last_entry": last,
            "length": pa.array(made.entries * PAYLOAD, mask=open_then),
            "segments": segments,
            **_same({"digest": str(Digest.CRC32C)}, pa.string(), rows),
            **_same({"password": PASSWORD}, pa.binary(), rows),
            "ctime": pa.array(1_700_000_000_000 + made.ledger),
            "custom": pa.nulls(rows, tables.CUSTOM),
        }
    )
    raw = encode_columns(record)
    parsed = decode_columns(raw)
    scope = np.zeros(rows, np.int64)
    changed = np.where(moved | (np.isin(place, _CLOSED) & ~before), 1, 0)
    at = _AT[EARLIER] - timedelta(days=1)
    columns = {
        "bucket": pa.array(buckets(scope, made.ledger)),
        "scope": pa.array(scope),
        "ledger": pa.array(made.ledger),
        "raw": raw,
        "version": pa.array(changed + 1),
        "acl": pa.nulls(rows, pa.string()),
        "created_txn": pa.array(made.ledger + 100),
        "changed_txn": pa.array(made.ledger + 101 + changed * _TXN[EARLIER]),
        **_same({"created_at": at, "changed_at": at}, pa.timestamp("us", "UTC"), rows),
        **{name: parsed[name] for name in parsed.column_names},
    }
    return pa.table([columns[name] for name in tables.CATALOG_LEDGERS.names], schema=tables.CATALOG_LEDGERS)


def _same(values: Mapping[str, object], kind: pa.DataType, rows: int) -> dict[str, pa.Array]:
    none = pa.array(np.zeros(rows, np.int64))
    return {name: pa.array([value], kind).take(none) for name, value in values.items()}
