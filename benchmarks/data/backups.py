"""A month of a backup, as `bkmeta backup follow` would have left it of made-up ledgers, by ZooKeeper's logs.

what                    how many, of N
the base                N/2 ledgers, closed
created, then closed    N ledgers, in the order of their ids, each a change of its folder, too
deleted                 all of the base

In the end there are N ledgers. The changes are sealed as they come, and merged as the backup's writer merges them.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.data import catalogs
from benchmarks.data.ledgers import CHUNK, INSTANCE, Ledgers, chunk
from benchmarks.data.plans import LAYOUT
from recovery.backup.chain import BackupWriter
from recovery.codecs.keys import ledger_keys
from recovery.codecs.store import OWN_ROOT
from recovery.dataset import DatasetWriter
from recovery.model import tables

ROOT: Final = "/ledgers"
_BEGAN: Final = datetime(2026, 1, 1, tzinfo=UTC)
_LASTS: Final = timedelta(days=30)
_BASE_TXN: Final = 1_000
_ABOVE: Final = 1 << 30
"""Added to the ids of the base's ledgers."""
_OPEN, _CLOSED = 20, 999
"""Places of ledgers that `catalogs` has as open, and as closed."""
_SEALED: Final = 10_000
"""Ledgers whose changes are sealed together."""
_SESSION: Final = 0x1_0000_0000_0007
_RIGHTS: Final = '[{"perms":31,"scheme":"world","id":"anyone"}]'


def write(folder: Path, ledgers: int) -> None:
    """Write the backup; so many ledgers are left at its end."""
    tops = [ROOT, ROOT + OWN_ROOT]
    binding = {"uri": f"zk://hosts{ROOT}", "root": ROOT, "layout": str(LAYOUT), "tops": tops, "means": "logs"}
    writer = BackupWriter(folder, binding)
    base = writer.begin_base()
    with DatasetWriter(base, "catalog", binding={"root": ROOT}, secret=True) as out:
        for number in range(-(-(ledgers // 2) // CHUNK)):
            out.append("ledgers", _record(_make_old(number, ledgers), _CLOSED))
        source: dict[str, Any] = {
            "kind": "zookeeper", "uri": binding["uri"], "instance_id": INSTANCE, "layout": str(LAYOUT),
            "txn": _BASE_TXN, "since_txn": None, "at": _BEGAN, "complete": True, "root": "present", "gaps": [],
            "notes": [],
        }  # fmt: skip
        out.append("sources", pa.Table.from_pylist([source], schema=tables.CATALOG_SOURCES))
        out.close(coverage={"complete": True, "layout": str(LAYOUT), "instance_id": INSTANCE})
    began_ms = int(_BEGAN.timestamp() * 1000)
    writer.add_base(base, _BASE_TXN, began_ms, began_ms)
    txn, done = _BASE_TXN, 0
    for number in range(-(-ledgers // CHUNK)):
        made, old = chunk(number, ledgers), _make_old(number, ledgers)
        for low in range(0, len(made.ledger), _SEALED):
            part = slice(low, low + _SEALED)
            done += len(made.ledger[part])
            now = _BEGAN + _LASTS * (done / ledgers)
            rows = _list_changes(_cut(made, part), _cut(old, part), txn, now)
            txn += rows.num_rows
            now_ms = int(now.timestamp() * 1000)
            writer.seal(rows, txn, now_ms, now_ms)


def _make_old(number: int, ledgers: int) -> Ledgers:
    """Make a chunk of the ledgers of the base."""
    made = chunk(number, ledgers // 2)
    return replace(made, ledger=made.ledger + _ABOVE)


def _cut(made: Ledgers, part: slice) -> Ledgers:
    return Ledgers(*(getattr(made, name)[part] for name in Ledgers.__slots__))


def _record(made: Ledgers, place: int) -> pa.Table:
    side = catalogs.EARLIER if place == _OPEN else catalogs.NOW
    return catalogs.records(made, np.full(len(made.ledger), place), side)


def _list_changes(made: Ledgers, old: Ledgers, after: int, now: datetime) -> pa.Table:
    """Return the changes of ledgers that are created and closed, and of others that are deleted."""
    begun, closed = (_record(made, place)["raw"] for place in (_OPEN, _CLOSED))
    keys = _name(made)
    folders = pa.array([key.rpartition("/")[0] for key in keys.to_pylist()])
    count = len(made.ledger)
    parts = [
        {"path": keys, "op": "created", "after": begun, "version": 0, "acl": _RIGHTS, "owner": 0},
        {"path": folders, "op": "children"},
        {"path": keys, "op": "changed", "before": begun, "after": closed, "version": 1},
        {"path": _name(old), "op": "deleted", "before": _record(old, _CLOSED)["raw"]},
    ]
    sizes = [count, count, count, len(old.ledger)]
    rows = pa.concat_tables([_fill(part, size, now) for part, size in zip(parts, sizes, strict=True)])
    # Each ledger's changes one after another: its creation with its folder's change, its end, another one's delete.
    order = np.argsort(np.concatenate([np.arange(size) for size in sizes]), kind="stable")
    rows = rows.take(pa.array(order))
    return rows.set_column(rows.column_names.index("txn"), "txn", pa.array(after + 1 + np.arange(rows.num_rows)))


def _name(made: Ledgers) -> pa.Array:
    keys = ledger_keys(LAYOUT, np.zeros(len(made.ledger), np.int64), made.ledger)
    return pa.array([ROOT + key for key in keys.to_pylist()])


def _fill(columns: dict[str, Any], rows: int, now: datetime) -> pa.Table:
    schema = tables.BACKUP_CHANGES.remove(0)
    known = {"at": now, "received_at": now, "session": _SESSION, "txn": 0, **columns}
    made = [
        value if isinstance(value := known.get(field.name), pa.Array | pa.ChunkedArray)
        else pa.repeat(pa.scalar(value, field.type), rows)
        for field in schema
    ]  # fmt: skip
    return pa.table(dict(zip(schema.names, made, strict=True))).cast(schema)
