"""A store that shows all its keys at one point in time, into the tables of a catalog: columns in, columns out.

Ledgers are told from other keys by their form, history goes along, and records are parsed by other processes where
they are many. Inner nodes of the ledgers' tree without a value are not kept.
"""

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backends.errors import AccessDeniedError, CorruptStoreError
from backends.protocols import ScannableStore
from recovery.codecs.keys import are_folders, kinds_of, ledgers_of
from recovery.codecs.ledger_metadata import decode_columns
from recovery.codecs.store import ROOT, Layout
from recovery.dataset import DatasetWriter
from recovery.model import tables
from recovery.model.ids import buckets

PROCESSES: Final = 2
"""That parse: their work is the larger part of a capture."""
_BATCH: Final = 16_384
_ALONE: Final = 65_536
"""Records that are parsed here before it is worth to start processes."""
_AHEAD: Final = 4
"""Batches of records under way: they bound the memory."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """What a scan wrote.

    Attributes:
        ledgers, unparsable, nodes, changes: rows; the second of the first.
        gap: why not all could be read; None: it could.
        note: what a person should know of the history.
    """

    ledgers: int
    unparsable: int
    nodes: int
    changes: int
    gap: str | None
    note: str | None = None


def scan(
    store: ScannableStore, root: str, layout: Layout, out: DatasetWriter, progress: Callable[[int, int], None]
) -> Scanned:
    """Write ledgers, nodes and history of a store.

    Args:
        store: only read.
        root: key of the ledgers root without a slash at its end; empty: the store's own root.
        layout: of the store.
        out: a catalog.
        progress: told how many ledgers were found; how many there are is not known.

    Raises:
        UnavailableError: the store stopped answering.
    """
    ledgers = nodes = 0
    gap = None
    with _Parsed(out) as parsed:
        try:
            for batch in store.scan(root or ROOT):
                for at in range(0, batch.num_rows, _BATCH):
                    rows = batch.slice(at, _BATCH)
                    found = ledgers_of(layout, _below(rows["key"], root))
                    parsed.add(_ledgers(rows.take(pa.array(found.rows)), found.scope, found.ledger))
                    ledgers += len(found.rows)
                    kept = _nodes(rows, _others(rows.num_rows, found.rows), root, layout)
                    out.append("nodes", kept)
                    nodes += kept.num_rows
                    progress(ledgers, 0)
        except CorruptStoreError as error:
            gap = str(error)
    changes, note = 0, None
    try:
        for rows in _history(store, root, layout):
            out.append("history", rows)
            changes += rows.num_rows
    except CorruptStoreError as error:
        gap = gap or str(error)
    except AccessDeniedError as error:
        note = f"history is not in it, or not all: {error}"
    return Scanned(ledgers, parsed.unparsable, nodes, changes, gap, note)


class _Parsed:
    """Rows of ledgers on their way into a catalog: parsed here while they are few, by processes when they are many."""

    def __init__(self, out: DatasetWriter) -> None:
        self._out = out
        self._seen = 0
        self._pool: ProcessPoolExecutor | None = None
        self._under_way: deque[tuple[pa.Table, Future[pa.Table]]] = deque()
        self.unparsable = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            while self._under_way and kind is None:
                self._take()
        finally:
            if self._pool is not None:
                self._pool.shutdown(cancel_futures=True)

    def add(self, rows: pa.Table) -> None:
        """Take rows without what is in their records."""
        if not rows.num_rows:
            return
        self._seen += rows.num_rows
        raws = rows["raw"].combine_chunks()
        if self._seen <= _ALONE:
            self._write(rows, decode_columns(raws))
            return
        if self._pool is None:
            # Not forked: threads of the store's client may hold locks.
            self._pool = ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn"))
        self._under_way.append((rows, self._pool.submit(decode_columns, raws)))
        if len(self._under_way) > _AHEAD:
            self._take()

    def _take(self) -> None:
        rows, answer = self._under_way.popleft()
        self._write(rows, answer.result())

    def _write(self, rows: pa.Table, parsed: pa.Table) -> None:
        self.unparsable += parsed.num_rows - parsed["error"].null_count
        for name in parsed.column_names:
            rows = rows.append_column(name, parsed[name])
        self._out.append("ledgers", rows)


def _below(keys: pa.Array, root: str) -> pa.Array:
    """Return keys as they are below the root, which itself is `ROOT`."""
    if not root:
        return keys
    names = pc.utf8_slice_codeunits(keys, len(root))
    return pc.if_else(pc.equal(names, ""), ROOT, names)


def _others(count: int, rows: Any) -> pa.Array:  # noqa: ANN401 - a NumPy array
    mask = np.ones(count, np.bool_)
    mask[rows] = False
    return pa.array(np.flatnonzero(mask))


def _ledgers(rows: pa.RecordBatch, scope: Any, ledger: Any) -> pa.Table:  # noqa: ANN401 - NumPy arrays
    return pa.table(
        {
            "bucket": pa.array(buckets(scope, ledger)),
            "scope": pa.array(scope),
            "ledger": pa.array(ledger),
            "raw": rows["value"],
            **_stamps(rows),
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


def _nodes(batch: pa.RecordBatch, others: pa.Array, root: str, layout: Layout) -> pa.Table:
    rows = batch.take(others)
    paths = _below(rows["key"], root)
    empty = pc.equal(pc.binary_length(rows["value"]), 0)
    kept = pc.invert(pc.and_(empty, are_folders(layout, paths)))
    rows, paths = rows.filter(kept), paths.filter(kept)
    owner = rows["owner"]
    return pa.table(
        {
            "path": paths,
            "kind": kinds_of(paths),
            "raw": rows["value"],
            **_stamps(rows),
            "owner": pc.if_else(pc.equal(owner, 0), pa.scalar(None, pa.int64()), owner),
            "children_created": rows["children_created"],
        },
        schema=tables.CATALOG_NODES,
    )


def _history(store: ScannableStore, root: str, layout: Layout) -> Iterator[pa.Table]:
    for batch in store.history(root or ROOT):
        found = ledgers_of(layout, _below(batch["key"], root))
        rows = batch.take(pa.array(found.rows))
        columns = {
            "bucket": pa.array(buckets(found.scope, found.ledger)),
            "scope": pa.array(found.scope),
            "ledger": pa.array(found.ledger),
            "at": times(rows["at_ms"]),
            **{name: rows[name] for name in ("txn", "session", "op", "before", "after")},
        }
        yield pa.table(columns).select(tables.CATALOG_HISTORY.names)


def last_seen(store: ScannableStore, key: str, root: str) -> bytes | None:
    """Return the bytes that a key had before it was deleted, as far as the store's history knows."""
    found = None
    with suppress(AccessDeniedError):
        for batch in store.history(root or ROOT):
            mine = batch.filter(pc.and_(pc.equal(batch["key"], key), pc.equal(batch["op"], "deleted")))
            for value in mine["before"].to_pylist():
                found = value if value is not None else found
    return found
