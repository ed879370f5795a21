"""What a backup of a store says of its past: deletes of ledgers; and whether it is a backup of that store at all.

Clusters are told apart by their instance ids. Where one of the two has none, the transactions that made what both have
decide: LAYOUT, cookies, and a share of the ledgers. In another store hardly one of them is the same.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.clusters import InstanceSource, list_named, require_of_cluster
from reconcile.stores import is_backup, name_backup, split_backup
from recovery.backup.chain import Backup, open_backup
from recovery.codecs.keys import ledgers_of
from recovery.codecs.store import ROOT, Layout
from recovery.dataset import Dataset
from recovery.errors import InputError
from recovery.model.ids import BUCKETS, bucket_ranges

_SHARE: Final = BUCKETS // 16
"""Buckets whose ledgers are compared."""
_PERMANENT: Final = pa.array(["layout", "cookie"])
_OURS: Final = 0.5
"""Of what both have, made by the same transactions: with fewer it is another store."""
DELETES: Final = pa.schema(
    [
        pa.field("scope", pa.int64()),
        pa.field("ledger", pa.int64()),
        pa.field("txn", pa.int64()),
        pa.field("at_ms", pa.int64()),
    ]
)
"""The last delete of each ledger; its time, or when it was received, ms since 1970."""


def open_history(uri: str, catalog: Dataset) -> Backup:
    """Open a backup of the store that a catalog is of.

    Raises:
        DatasetError: no backup, or a damaged one.
        InputError: the URI names something else, or a moment, or the backup is of another store.
    """
    if not is_backup(uri):
        raise InputError(uri, "is no backup: it cannot say what the store held by which time", "name backup:PLACE")
    place, moment = split_backup(uri)
    if moment is not None:
        problem = f"names the moment {moment}, but all of a backup's changes are its history"
        raise InputError(uri, problem, f"name {name_backup(place)}")
    backup = open_backup(place)
    instance_id = backup.manifest.binding.get("instance_id")
    require_of_cluster(catalog, str(catalog.path), others=[InstanceSource(uri, instance_id)])
    if (instance_id is None or not list_named(catalog)) and not _is_same_store(backup, catalog):
        problem = f"is of another store than {catalog.path}: what both have was made by other transactions"
        raise InputError(uri, problem, "leave it out, or name the one of this cluster")
    return backup


def _is_same_store(backup: Backup, catalog: Dataset) -> bool:
    """Say whether what a backup's newest base and a store both have was made by the same transactions."""
    if not backup.manifest.bases:
        return True
    with backup.open_base(backup.manifest.bases[-1]) as base:
        made = pa.concat_tables([_list_made(base), _list_made(catalog)])
    by_key = made.group_by("key").aggregate([("txn", "count_distinct"), ("txn", "count")])
    shared = by_key.filter(pc.equal(by_key["txn_count"], 2))
    agreeing = pc.sum(pc.cast(pc.equal(shared["txn_count_distinct"], 1), pa.int64())).as_py() or 0
    return not shared.num_rows or agreeing >= _OURS * shared.num_rows


def _list_made(catalog: Dataset) -> pa.Table:
    """Return the keys that are made once, each with the transaction that made it."""
    nodes = catalog.read("nodes", columns=["path", "kind", "created_txn"])
    nodes = nodes.filter(pc.is_in(nodes["kind"], value_set=_PERMANENT))
    ledgers = catalog.read("ledgers", buckets=range(_SHARE), columns=["scope", "ledger", "created_txn"])
    names = pc.binary_join_element_wise(
        pc.cast(ledgers["scope"], pa.string()), pc.cast(ledgers["ledger"], pa.string()), ":"
    )
    keys = pa.chunked_array([*nodes["path"].chunks, *names.chunks], pa.string())
    txns = pa.chunked_array([*nodes["created_txn"].chunks, *ledgers["created_txn"].chunks], pa.int64())
    made = pa.table({"key": keys, "txn": txns})
    return made.filter(pc.is_valid(made["txn"]))


def read_deletes(
    backup: Backup, catalog: Dataset, *, after_txn: int | None = None, since_ms: int | None = None
) -> pa.Table:
    """Return `DELETES` of the ledgers that were deleted since, and that were not made again, by ascending transaction.

    Args:
        backup: result of `open_history`.
        catalog: of the store: what came after it says nothing of it; what it has was made again, if only in a gap.
        after_txn: only deletes after this transaction; None: by their time.
        since_ms: only deletes since this time, and of ledgers that were made before it; None: by their transaction.

    Raises:
        DatasetError: a file of the backup is gone or damaged.
    """
    binding, until = backup.manifest.binding, catalog.manifest["coverage"]["txn"]
    root, layout = str(binding.get("root", "")).rstrip("/"), Layout(binding.get("layout") or Layout.HIERARCHICAL)
    links = [
        link
        for link in backup.manifest.segments
        if (after_txn is None or link.through > after_txn) and (since_ms is None or link.until_ms >= since_ms)
    ]
    parts = [pa.table({**{field.name: pa.array([], field.type) for field in DELETES}, "op": pa.array([], pa.string())})]
    for rows in backup.read_changes(links, ["path", "txn", "at", "received_at", "op"]):
        wanted = pc.and_(
            pc.is_in(rows["op"], value_set=pa.array(["created", "deleted"])), pc.starts_with(rows["path"], f"{root}/")
        )
        if after_txn is not None:
            wanted = pc.and_(wanted, pc.greater(rows["txn"], after_txn))
        if until is not None:
            wanted = pc.and_(wanted, pc.less_equal(rows["txn"], until))
        parts.append(_take_ledgers(rows.filter(wanted), root, layout))
    changes = pa.concat_tables(parts)
    if since_ms is not None:
        changes = changes.filter(pc.greater_equal(changes["at_ms"], since_ms))
    keys = ["scope", "ledger"]
    changes = changes.sort_by("txn")
    last = changes.group_by(keys, use_threads=False).aggregate(
        [("txn", "last"), ("at_ms", "last"), ("op", "last"), ("op", "first")]
    )
    last = last.filter(pc.equal(last["op_last"], "deleted"))
    if since_ms is not None:
        last = last.filter(pc.equal(last["op_first"], "deleted"))
    deletes = last.rename_columns([*keys, "txn", "at_ms", "op", "first"]).select(DELETES.names)
    for span in bucket_ranges(catalog.rows("ledgers")):
        listed = catalog.read("ledgers", buckets=span, columns=keys)
        deletes = deletes.join(listed, keys, join_type="left anti")
    return deletes.cast(DELETES).sort_by("txn")


def _take_ledgers(rows: pa.Table, root: str, layout: Layout) -> pa.Table:
    """Return scope, ledger, txn, at_ms and op of the changes of ledgers."""
    names = pc.utf8_slice_codeunits(rows["path"], len(root)) if root else rows["path"]
    ledgers = ledgers_of(layout, pc.if_else(pc.equal(names, ""), ROOT, names).combine_chunks())
    rows = rows.take(pa.array(ledgers.rows))
    times = pc.coalesce(rows["at"], rows["received_at"]).cast(pa.timestamp("ms", "UTC"), safe=False)
    return pa.table(
        {
            "scope": pa.array(np.asarray(ledgers.scope, np.int64)),
            "ledger": pa.array(np.asarray(ledgers.ledger, np.int64)),
            "txn": rows["txn"].cast(pa.int64()),
            "at_ms": times.cast(pa.int64()),
            "op": rows["op"].cast(pa.string()),
        }
    )
