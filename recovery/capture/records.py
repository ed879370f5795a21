"""Records, marks and other nodes read again from an open store, as they are now."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backends.protocols import MetadataStore, Versioned
from recovery.capture.scan import times
from recovery.codecs.keys import ledger_keys, mark_keys
from recovery.codecs.ledger_metadata import decode_columns
from recovery.codecs.store import Layout, kind_of
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
    return _read_nodes(store, root, mark_keys(scope, ledger))


def read_nodes_again(store: MetadataStore, root: str, nodes: pa.Table, paths: Iterable[str]) -> pa.Table:
    """Return CATALOG_NODES, those at some paths as they are now; rows of nodes that are gone are left out.

    Args:
        store: it is open.
        root: of the ledgers.
        nodes: CATALOG_NODES as they were captured.
        paths: below the root, with their leading slash; nodes there may be new.

    Raises:
        BackendError: the store does not answer, or refuses.
    """
    asked = sorted(set(paths))
    unasked = nodes.filter(pc.invert(pc.is_in(nodes["path"], value_set=pa.array(asked, pa.string()))))
    return pa.concat_tables([unasked.cast(tables.CATALOG_NODES), _read_nodes(store, root, asked)])


def _read_nodes(store: MetadataStore, root: str, paths: Sequence[str]) -> pa.Table:
    prefix = root.rstrip("/")
    read = _read(store, [prefix + path for path in paths])
    present = [path for path in paths if prefix + path in read]
    nodes = [read[prefix + path] for path in present]
    own = {
        "path": pa.array(present, pa.string()),
        "kind": pa.array([kind_of(path) for path in present], pa.string()),
        "raw": pa.array([node.value for node in nodes], pa.binary()),
        "version": pa.array([node.version for node in nodes], pa.int64()),
        "changed_at": times(pa.array([node.changed_ms for node in nodes], pa.int64())),
        "owner": pa.array([node.owner or None for node in nodes], pa.int64()),
        "children_created": pa.array([node.children_created for node in nodes], pa.int64()),
    }
    columns = [own[f.name] if f.name in own else pa.nulls(len(nodes), f.type) for f in tables.CATALOG_NODES]
    return pa.table(columns, schema=tables.CATALOG_NODES)


def _read(store: MetadataStore, keys: Sequence[str]) -> dict[str, Versioned]:
    pairs: Iterable[tuple[str, Versioned | None]] = store.get_many(keys)
    return {key: node for key, node in pairs if node is not None}
