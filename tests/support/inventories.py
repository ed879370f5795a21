"""Inventories of bookies that hold given ledgers, with what comparisons with a store read of them."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from recovery.dataset import DatasetWriter
from recovery.model import tables
from recovery.model.ids import buckets


def fill_row(schema: pa.Schema, given: Mapping[str, Any]) -> dict[str, Any]:
    """Put something into every column that may not be null."""
    row: dict[str, Any] = {}
    for field in schema:
        kind = field.type
        if not field.nullable:
            row[field.name] = (
                [] if pa.types.is_list(kind)
                else "" if pa.types.is_string(kind)
                else False if pa.types.is_boolean(kind)
                else datetime(2026, 1, 1, tzinfo=UTC) if pa.types.is_timestamp(kind)
                else 0
            )  # fmt: skip
    return row | dict(given)


def write_inventory(
    folder: Path,
    bookie: str,
    ledgers: Iterable[int],
    *,
    instance: str | None,
    formatted: Sequence[datetime] = (),
    ended: datetime = datetime(2026, 1, 1, tzinfo=UTC),
    last: int | None = None,
    entries: int = 0,
    dirs: Sequence[Mapping[str, Any]] = (),
    cookie: bytes | None = None,
) -> Path:
    """Write the inventory of one bookie; `formatted` are the times of its VERSION files, `entries` each ledger has."""
    ids = np.array(sorted(ledgers), np.int64)
    files = [
        {"path": f"/data/{n}/current/VERSION", "inode": n, "born": None, "mtime": at} for n, at in enumerate(formatted)
    ]
    about = {
        "bookie": bookie,
        "instance_id": instance,
        "version_files": files,
        "ledgers": len(ids),
        "ended": ended,
        "complete": True,
        "dirs": list(dirs),
        "cookie": cookie,
        "mode": "disks",
    }
    groups = [{"first": 0, "last": 0, "size": entries, "period": 0}] if entries else []
    row = fill_row(
        tables.COPIES,
        {
            "bookie": bookie,
            "key_kind": "absent",
            "source": "index",
            "complete": True,
            "last": last,
            "groups": groups,
        },
    )
    copies = pa.Table.from_pylist([row] * len(ids), schema=tables.COPIES)
    for name, values in (("bucket", buckets(np.zeros_like(ids), ids)), ("ledger", ids)):
        at = tables.COPIES.get_field_index(name)
        copies = copies.set_column(at, tables.COPIES.field(at), pa.array(values, tables.COPIES.field(at).type))
    with DatasetWriter(folder, "inventory", binding={}) as writer:
        writer.append("bookies", pa.Table.from_pylist([fill_row(tables.BOOKIES, about)], schema=tables.BOOKIES))
        writer.append("copies", copies)
        writer.close(coverage={})
    return folder
