"""Records of some ledgers read again from an open store, and whether each is marked as under-replicated now."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from backends.protocols import MetadataStore, Versioned
from recovery.capture.scan import times
from recovery.codecs.keys import ledger_keys, mark_keys
from recovery.codecs.ledger_metadata import decode_columns
from recovery.codecs.store import Layout
from recovery.model import tables
from recovery.model.ids import buckets

Ints = npt.NDArray[np.int64]


def read_records(store: MetadataStore, root: str, layout: Layout, scope: Ints, ledger: Ints) -> pa.Table:
    """Return CATALOG_LEDGERS of some ledgers, as they are now; those that are gone are left out.

    Raises:
        BackendError: the store does not answer, or refuses.
    """
    prefix = root.rstrip("/")
    keys = [prefix + key for key in ledger_keys(layout, scope, ledger).to_pylist()]
    read = _read(store, keys)
    present = np.array([row for row, key in enumerate(keys) if key in read], np.int64)
    nodes = [read[keys[row]] for row in present.tolist()]
    raws = pa.array([node.value for node in nodes], pa.binary())
    parsed = decode_columns(raws)
    own = {
        "bucket": pa.array(buckets(scope[present], ledger[present])),
        "scope": pa.array(scope[present]),
        "ledger": pa.array(ledger[present]),
        "raw": raws,
        "version": pa.array([node.version for node in nodes], pa.int64()),
        "created_txn": pa.array([node.created_txn for node in nodes], pa.int64()),
        "changed_txn": pa.array([node.changed_txn for node in nodes], pa.int64()),
        "created_at": times(pa.array([node.created_ms for node in nodes], pa.int64())),
        "changed_at": times(pa.array([node.changed_ms for node in nodes], pa.int64())),
        **{name: parsed[name] for name in parsed.column_names},
    }
    columns = [own[f.name] if f.name in own else pa.nulls(len(nodes), f.type) for f in tables.CATALOG_LEDGERS]
    return pa.table(columns, schema=tables.CATALOG_LEDGERS)


def read_marks(store: MetadataStore, root: str, scope: Ints, ledger: Ints) -> pa.Table:
    """Return CATALOG_NODES of the marks of some ledgers, as they are now.

    Raises:
        BackendError: the store does not answer, or refuses.
    """
    prefix = root.rstrip("/")
    keys = mark_keys(scope, ledger)
    read = _read(store, [prefix + key for key in keys])
    present = [key for key in keys if prefix + key in read]
    nodes = [read[prefix + key] for key in present]
    own = {
        "path": pa.array(present, pa.string()),
        "kind": pa.array(["mark"] * len(present), pa.string()),
        "raw": pa.array([node.value for node in nodes], pa.binary()),
        "version": pa.array([node.version for node in nodes], pa.int64()),
        "changed_at": times(pa.array([node.changed_ms for node in nodes], pa.int64())),
    }
    columns = [own[f.name] if f.name in own else pa.nulls(len(nodes), f.type) for f in tables.CATALOG_NODES]
    return pa.table(columns, schema=tables.CATALOG_NODES)


def _read(store: MetadataStore, keys: Sequence[str]) -> dict[str, Versioned]:
    pairs: Iterable[tuple[str, Versioned | None]] = store.get_many(keys)
    return {key: node for key, node in pairs if node is not None}
