"""When ledgers were written last, at the latest, by the times of the files that have their entries.

An inventory made with --incremental keeps those of each file. What an index file names was there when it was written;
what a database names, or no index, is no younger than the logs and journals that have it. A file that was written when
it was collected tells no more than that; so does a ledger of which nothing was kept.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recovery.dataset import AGAIN, Dataset, open_dataset
from recovery.model.tables import KEY, KEY_COLUMNS
from recovery.place import to_place

LAST_WRITES: Final = pa.schema([*KEY, pa.field("last_write", pa.string())])
"""Of each ledger: an ISO 8601 time, or that it is not known, and why."""
_KEYS: Final = list(KEY_COLUMNS)
_BOUNDS: Final = pa.schema([*KEY, pa.field("at", pa.int64())])
_SILENT: Final = pa.schema([*KEY, pa.field("bookie", pa.string())])
_SECOND_NS: Final = 1_000_000_000


def read_last_writes(inventories: Sequence[Dataset], part: range) -> pa.Table:
    """Return `LAST_WRITES` of the ledgers that inventories have in a bucket range."""
    known, silent = [_BOUNDS.empty_table()], [_SILENT.empty_table()]
    for inventory in inventories:
        copies = inventory.read("copies", buckets=part, columns=[*_KEYS, "bookie", "source"])
        kept = to_place(inventory.path) / AGAIN
        if kept.exists():
            known.append(_read_bounds(inventory, open_dataset(kept, "again"), copies, part))
        else:
            silent.append(copies.select(_SILENT.names).cast(_SILENT))
    bounds = pa.concat_tables(known).group_by(_KEYS).aggregate([("at", "max")])
    unknown = pa.concat_tables(silent).group_by(_KEYS).aggregate([("bookie", "min")])
    rows = bounds.join(unknown, _KEYS, join_type="full outer")
    times = pa.array(rows["at_max"].to_numpy() // _SECOND_NS, pa.int64(), mask=pc.is_null(rows["at_max"]).to_numpy())
    texts = pc.strftime(pc.cast(times, pa.timestamp("s", "UTC")), "%Y-%m-%dT%H:%M:%S+00:00")
    why = pc.binary_join_element_wise("not known: the inventory of", rows["bookie_min"], "keeps no times", " ")
    return pa.table({**{name: rows[name] for name in _KEYS}, "last_write": pc.coalesce(why, texts)}).cast(LAST_WRITES)


def _read_bounds(inventory: Dataset, kept: Dataset, copies: pa.Table, part: range) -> pa.Table:
    """Return key columns and `at`, ns since 1970, of the ledgers that an inventory has."""
    [ended] = inventory.read("bookies", columns=["ended"])["ended"].to_pylist()
    ended_ns = int(ended.timestamp() * _SECOND_NS)
    files = kept.read("files", columns=["number", "kind", "id", "mtime"])
    times = pc.if_else(pc.less(files["mtime"], 0), ended_ns, files["mtime"])
    of_file = pa.table({"file": files["number"], "at": times})
    of_log = pa.table({"log": files["id"], "at": times}).filter(pc.equal(files["kind"], "log"))
    index = kept.read("ledgers", buckets=part, columns=[*_KEYS, "mtime"]).rename_columns([*_KEYS, "at"])
    index = index.filter(pc.greater(index["at"], 0))
    slots = kept.read("slots", buckets=part, columns=[*_KEYS, "log"]).join(index, _KEYS, join_type="left anti")
    beside = copies.filter(pc.not_equal(copies["source"], "index"))
    lines = kept.read("held", buckets=part, columns=[*_KEYS, "file"]).join(beside, _KEYS, join_type="left semi")
    bounds = [_fit(index), _fit(slots.join(of_log, "log", join_type="inner"))]
    bounds.append(_fit(lines.join(of_file, "file", join_type="inner")))
    bounded = pa.concat_tables(bounds)
    ledgers = copies.group_by(_KEYS).aggregate([])
    rest = ledgers.join(bounded.group_by(_KEYS).aggregate([]), _KEYS, join_type="left anti")
    return pa.concat_tables([bounded, _fit(rest.append_column("at", pa.array(np.full(rest.num_rows, ended_ns))))])


def _fit(rows: pa.Table) -> pa.Table:
    return rows.select(_BOUNDS.names).cast(_BOUNDS)
