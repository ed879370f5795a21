"""A store that shows all its keys at one point in time, into the tables of a catalog: columns in, columns out.

Ledgers are known by the form of their keys, and history goes along. Inner nodes of the ledgers' tree without a value
are not kept.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backends.errors import AccessDeniedError, CorruptStoreError
from backends.protocols import ScannableStore
from recovery.capture.summary import CaptureSummary, choose_layout, close_catalog
from recovery.codecs.keys import are_folders, kinds_of, ledgers_of
from recovery.codecs.ledger_metadata import decode_columns
from recovery.codecs.store import OWN_ROOT, ROOT, Layout, decode_instance_id
from recovery.codecs.store import places as store_places
from recovery.dataset import DatasetWriter
from recovery.errors import FormatError
from recovery.model import tables
from recovery.model.ids import buckets

_BATCH: Final = 16_384
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class StoreScan:
    """What a scan wrote.

    Attributes:
        ledgers, nodes, changes: rows of these tables.
        unparsable: ledgers whose record cannot be read.
        gap: why not all could be read; None: it could.
        note: what a person should know of the history.
    """

    ledgers: int
    unparsable: int
    nodes: int
    changes: int
    gap: str | None
    note: str | None = None


def capture_scan(
    store: ScannableStore,
    root: str,
    named: Layout | None,
    out: DatasetWriter,
    started: datetime,
    progress: Callable[[int, int], None],
    beside: Sequence[str] = (),
    *,
    with_own_root: bool = True,
    with_history: bool = True,
) -> CaptureSummary:
    """Capture a store that shows one point in time, and close the catalog.

    Args:
        store: only read.
        root: key of the ledgers root without a slash at its end; empty: the store's own root.
        named: the layout that somebody named; None: what LAYOUT says.
        out: a catalog.
        started: now.
        progress: called with how many ledgers were found; how many there are is not known.
        beside: gaps of what was read before.
        with_own_root: bkmeta's own root, too.
        with_history: what the store remembers, too.

    Raises:
        InputError: no layout was named and LAYOUT names none; or the two contradict each other.
        UnavailableError: the store stopped answering.
    """
    point = store.point()
    places = store_places(named)
    keys = (ROOT, places.layout, places.instance_id)
    nodes = {key: store.get(root + key if key != ROOT else root or ROOT) for key in keys}
    raw = {key: node.value for key, node in nodes.items() if node is not None}
    present = ROOT in raw
    layout, instance_id = named, None
    scanned = StoreScan(0, 0, 0, 0, None)
    if not present and with_history:
        # What deleted the root may be in the history, and the layout with it.
        deleted = last_seen(store, root + places.layout, root)
        raw |= {places.layout: deleted} if deleted is not None else {}
    if present or places.layout in raw or named is not None:
        layout = choose_layout(raw.get(places.layout), root + places.layout, named)
        scanned = scan(store, root, layout, out, progress, with_history=with_history)
    gap = _copy_own_root(store, root, layout, out) if root and with_own_root else None
    if places.instance_id in raw:
        with suppress(FormatError):
            instance_id = decode_instance_id(raw[places.instance_id])
    progress(scanned.ledgers, scanned.ledgers)
    gaps = tuple(dict.fromkeys((*point.gaps, *beside, *filter(None, (scanned.gap, gap)))))
    notes = (*point.notes, *([scanned.note] if scanned.note else []))
    if point.at_ms is None:
        notes = (*notes, "the source keeps no times: the time is that of its reading")
    summary = CaptureSummary(
        layout=None if layout is None else str(layout),
        instance_id=instance_id,
        # Keys of etcd need none above them: what is below a root that is gone is not nothing.
        root="present" if present or scanned.ledgers or scanned.nodes else "missing",
        complete=not gaps,
        gaps=gaps,
        ledgers=scanned.ledgers,
        unparsable=scanned.unparsable,
        nodes=scanned.nodes,
        subtree_nodes=out.rows["subtrees"],
        vanished=0,
        changes=scanned.changes,
        txn=point.txn,
        since_txn=None,
        at=started if point.at_ms is None else _EPOCH + timedelta(milliseconds=point.at_ms),
        notes=notes,
    )
    close_catalog(out, summary, store.uri, root)
    return summary


def scan(
    store: ScannableStore,
    root: str,
    layout: Layout,
    out: DatasetWriter,
    progress: Callable[[int, int], None],
    *,
    with_history: bool = True,
) -> StoreScan:
    """Write ledgers, nodes and history of a store.

    Args:
        store: only read.
        root: key of the ledgers root without a slash at its end; empty: the store's own root.
        layout: of the store.
        out: a catalog.
        progress: called with how many ledgers were found; how many there are is not known.
        with_history: what the store remembers of ledgers, too.

    Raises:
        UnavailableError: the store stopped answering.
    """
    ledgers = unparsable = nodes = 0
    gap = None
    try:
        for rows in _even(store.scan(root or ROOT)):
            ledgers_found = ledgers_of(layout, _below(rows["key"], root))
            taken = _ledgers(rows.take(pa.array(ledgers_found.rows)), ledgers_found.scope, ledgers_found.ledger)
            out.append("ledgers", taken)
            ledgers += taken.num_rows
            unparsable += taken.num_rows - taken["error"].null_count
            kept = _nodes(rows, _select_others(rows.num_rows, ledgers_found.rows), root, layout)
            out.append("nodes", kept)
            nodes += kept.num_rows
            progress(ledgers, 0)
    except CorruptStoreError as error:
        gap = str(error)
    changes, note = 0, None if with_history else "its history was not asked for, and is not in here"
    try:
        for rows in _history(store, root, layout) if with_history else ():
            out.append("history", rows)
            changes += rows.num_rows
    except CorruptStoreError as error:
        gap = gap or str(error)
    except AccessDeniedError as error:
        note = f"history is not in it, or not all: {error}"
    return StoreScan(ledgers, unparsable, nodes, changes, gap, note)


def _copy_own_root(store: ScannableStore, root: str, layout: Layout | None, out: DatasetWriter) -> str | None:
    """Write the nodes of bkmeta's own root beside a ledgers root; return why not all could be read."""
    try:
        for batch in store.scan(root + OWN_ROOT):
            out.append("own_root", _nodes(batch, pa.array(np.arange(batch.num_rows)), root, layout))
    except CorruptStoreError as error:
        return str(error)
    return None


def _even(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches that are neither small nor large; an error comes after all before it."""
    waiting: list[pa.RecordBatch] = []
    failed = None
    try:
        for batch in batches:
            for start in range(0, batch.num_rows, _BATCH):
                waiting.append(batch.slice(start, _BATCH))
                if sum(rows.num_rows for rows in waiting) >= _BATCH:
                    yield _join(waiting)
                    waiting = []
    except CorruptStoreError as error:
        failed = error
    if waiting:
        yield _join(waiting)
    if failed is not None:
        raise failed


def _join(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    [batch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return batch


def _below(keys: pa.Array, root: str) -> pa.Array:
    """Return keys as they are below the root, which itself is `ROOT`."""
    if not root:
        return keys
    names = pc.utf8_slice_codeunits(keys, len(root))
    return pc.if_else(pc.equal(names, ""), ROOT, names)


def _select_others(count: int, rows: Any) -> pa.Array:  # noqa: ANN401 - a NumPy array
    mask = np.ones(count, np.bool_)
    mask[rows] = False
    return pa.array(np.flatnonzero(mask))


def _ledgers(rows: pa.RecordBatch, scope: Any, ledger: Any) -> pa.Table:  # noqa: ANN401 - NumPy arrays
    parsed = decode_columns(rows["value"])
    return pa.table(
        {
            "bucket": pa.array(buckets(scope, ledger)),
            "scope": pa.array(scope),
            "ledger": pa.array(ledger),
            "raw": rows["value"],
            **_stamps(rows),
            **{name: parsed[name] for name in parsed.column_names},
        }
    )


def _stamps(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    return {
        **{name: rows[name] for name in ("version", "acl", "created_txn", "changed_txn")},
        "created_at": times(rows["created_ms"]),
        "changed_at": times(rows["changed_ms"]),
    }


def times(milliseconds: pa.Array) -> pa.Array:
    """Return ms since 1970 as the tables have times."""
    return milliseconds.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))


def make_nodes(rows: pa.RecordBatch, kind: str) -> pa.Table:
    """Return keys of a store as CATALOG_NODES of one kind, with the store's paths."""
    owner = rows["owner"]
    return pa.table(
        {
            "path": rows["key"],
            "kind": pa.array([kind] * rows.num_rows, pa.string()),
            "raw": rows["value"],
            **_stamps(rows),
            "owner": pc.if_else(pc.equal(owner, 0), pa.scalar(None, pa.int64()), owner),
            "children_created": rows["children_created"],
        },
        schema=tables.CATALOG_NODES,
    )


def _nodes(batch: pa.RecordBatch, rest: pa.Array, root: str, layout: Layout | None) -> pa.Table:
    rows = batch.take(rest)
    paths = _below(rows["key"], root)
    if layout is not None:
        empty = pc.equal(pc.binary_length(rows["value"]), 0)
        kept = pc.invert(pc.and_(empty, are_folders(layout, paths)))
        rows, paths = rows.filter(kept), paths.filter(kept)
    made = make_nodes(rows, "")
    return made.set_column(0, "path", paths).set_column(1, "kind", kinds_of(paths)).cast(tables.CATALOG_NODES)


def _history(store: ScannableStore, root: str, layout: Layout) -> Iterator[pa.Table]:
    for batch in store.history(root or ROOT):
        ledgers = ledgers_of(layout, _below(batch["key"], root))
        rows = batch.take(pa.array(ledgers.rows))
        columns = {
            "bucket": pa.array(buckets(ledgers.scope, ledgers.ledger)),
            "scope": pa.array(ledgers.scope),
            "ledger": pa.array(ledgers.ledger),
            "at": times(rows["at_ms"]),
            **{name: rows[name] for name in ("txn", "session", "op", "before", "after")},
        }
        yield pa.table(columns).select(tables.CATALOG_HISTORY.names)


def last_seen(store: ScannableStore, key: str, root: str) -> bytes | None:
    """Return the bytes that a key had before it was deleted, as far as the store's history knows."""
    last = None
    with suppress(AccessDeniedError):
        for batch in store.history(root or ROOT):
            own = batch.filter(pc.and_(pc.equal(batch["key"], key), pc.equal(batch["op"], "deleted")))
            for value in own["before"].to_pylist():
                last = value if value is not None else last
    return last
