"""A capture of made-up ledgers, of a cluster whose bookies have cookies: two on each rack."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.data import catalogs
from benchmarks.data.ledgers import BOOKIES, CHUNK, INSTANCE, chunk
from recovery.codecs.store import COOKIES
from recovery.dataset import DatasetWriter
from recovery.model import tables

CATALOG: Final = "catalog"
RACKS: Final = {bookie: f"/r{number // 2}" for number, bookie in enumerate(BOOKIES)}
AT: Final = datetime(2026, 1, 2, tzinfo=UTC)


def write(folder: Path, ledgers: int) -> None:
    """Write it, of so many ledgers."""
    cookies = [{"path": f"{COOKIES}/{name}", "kind": "cookie", "raw": b"", "version": 0} for name in BOOKIES]
    source: dict[str, Any] = {
        "kind": "zookeeper", "uri": "zk://now/ledgers", "instance_id": INSTANCE, "at": AT, "complete": True,
        "root": "present", "gaps": [],
    }  # fmt: skip
    with DatasetWriter(folder / CATALOG, "catalog", binding={}, secret=True) as writer:
        for number in range(-(-ledgers // CHUNK)):
            made = chunk(number, ledgers)
            writer.append("ledgers", catalogs.records(made, np.zeros(len(made.ledger), np.int64), catalogs.NOW))
        writer.append("nodes", pa.Table.from_pylist(cookies, schema=tables.CATALOG_NODES))
        writer.append("sources", pa.Table.from_pylist([source], schema=tables.CATALOG_SOURCES))
        writer.close(coverage={"complete": True})
