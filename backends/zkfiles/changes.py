"""Changes of keys from transaction logs: each with its session, its time, and the bytes before it.

The bytes before a key's first change are looked up in a snapshot that was begun before it, where there is one; a node
that such a snapshot has from a later transaction says nothing. Behind a break in the logs everything known is dropped.
ACLs are not part of it: they change no bytes.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from backends.errors import CorruptStoreError
from backends.protocols import CHANGES
from backends.zkfiles import snapshot
from backends.zkfiles.records import (
    CloseSession,
    Create,
    CreatedKind,
    Delete,
    MalformedError,
    SetData,
    Transaction,
    time_of,
)
from backends.zkfiles.servers import History, follows
from backends.zkfiles.snapshot import Snapshot
from backends.zkfiles.txnlog import Payloads

CREATED: Final = "created"
CHANGED: Final = "changed"
DELETED: Final = "deleted"
_ROWS: Final = 1 << 14
_BYTES: Final = 8 << 20

Row = tuple[bytes, int, int | None, int, str, bytes | None, bytes | None]
"""The columns of `CHANGES`."""


def changes(
    history: History, snapshots: Sequence[Path], read: Snapshot, root: bytes, until: int
) -> Iterator[pa.RecordBatch]:
    """Yield the changes at and below a path up to a zxid, in order.

    Args:
        history: the transactions.
        snapshots: for the states before them.
        read: one of these snapshots, if already parsed, or an empty one.
        root: the path; empty: all.
        until: the last zxid.

    Raises:
        CorruptStoreError: a log changed, or cannot be read any more.
    """
    rows: list[Row] = []
    size = 0
    for row in _rows(history, snapshots, read, root, until):
        rows.append(row)
        size += len(row[5] or b"") + len(row[6] or b"")
        if len(rows) >= _ROWS or size >= _BYTES:
            yield _batch(rows)
            rows, size = [], 0
    if rows:
        yield _batch(rows)


def _batch(rows: list[Row]) -> pa.RecordBatch:
    columns = [list(column) for column in zip(*rows, strict=True)]
    columns[0] = [path.decode() or "/" for path in columns[0]]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, CHANGES, strict=True)], schema=CHANGES
    )


def _rows(history: History, snapshots: Sequence[Path], read: Snapshot, root: bytes, until: int) -> Iterator[Row]:
    payloads = Payloads()
    breaks = {0, *history.breaks.tolist()}
    known = _Known(root, None)
    columns = (history.rows[name].tolist() for name in ("zxid", "log", "at", "size", "crc"))
    try:
        for number, (zxid, log, row, size, crc) in enumerate(zip(*columns, strict=True)):
            if zxid > until:
                return
            if number in breaks:
                known = _Known(root, _find_snapshot(history, number, snapshots, read))
            path = history.logs[log].path
            try:
                transaction = payloads.transaction(path, row, size, crc)
            except (MalformedError, OSError) as error:
                problem = error.problem if isinstance(error, MalformedError) else error.strerror
                raise CorruptStoreError(f"{path} at byte {row}", str(problem)) from error
            for key, op, previous, following in known.apply(transaction):
                if snapshot.is_text(key):
                    yield key, zxid, time_of(transaction.at_ms), transaction.session, op, previous, following
    finally:
        payloads.close()


def _find_snapshot(history: History, number: int, snapshots: Sequence[Path], read: Snapshot) -> Snapshot | None:
    """Return the snapshot with the state before the unbroken records from a row on."""
    zxids = history.rows["zxid"]
    first = int(zxids[number])
    later = history.breaks[history.breaks > number]
    last = int(zxids[int(later[0]) - 1 if len(later) else -1])
    begun = sorted((zxid, path) for path in snapshots if (zxid := snapshot.zxid_of(path.name)) is not None)
    previous = [(zxid, path) for zxid, path in reversed(begun) if zxid < first and (follows(zxid, first) or not zxid)]
    for _, path in (*previous, *((zxid, path) for zxid, path in begun if first <= zxid <= last)):
        try:
            image = read if path == read.path else snapshot.read(path)
        except OSError:
            continue
        if image.damage is None:
            return image
    return None


class _Known:
    """The known state of keys while records are read."""

    def __init__(self, root: bytes, base: Snapshot | None) -> None:
        self._root = root
        self._below = root + b"/"
        self._base = base
        self._begun = -1 if base is None or base.begun is None else base.begun
        self._held: dict[bytes, bytes | None] = {}
        self._owned: dict[int, set[bytes]] = {}
        if base is not None:
            for row in base.look(digest=False).owned.tolist():
                path = base.path_at(row)
                if self._wants(path):
                    self._owned.setdefault(base.node_at(row).owner, set()).add(path)

    def _wants(self, path: bytes) -> bool:
        return path == self._root or path.startswith(self._below)

    def _value(self, path: bytes, zxid: int) -> bytes | None:
        if path in self._held:
            return self._held[path]
        if self._base is None or zxid <= self._begun:
            return None
        row = self._base.find(path)
        if row is None:
            return None
        node = self._base.node_at(row)
        return (node.data or b"") if node.mzxid < zxid else None

    def apply(self, transaction: Transaction) -> Iterator[tuple[bytes, str, bytes | None, bytes | None]]:
        """Yield key, operation, bytes before and after, of the wanted keys that a transaction changes."""
        for change in transaction.changes:
            match change:
                case Create(path=path, data=data, kind=kind) if self._wants(path):
                    self._held[path] = data or b""
                    if kind is CreatedKind.EPHEMERAL:
                        self._owned.setdefault(transaction.session, set()).add(path)
                    yield path, CREATED, None, data or b""
                case SetData(path=path, data=data) if self._wants(path):
                    previous = self._value(path, transaction.zxid)
                    self._held[path] = data or b""
                    yield path, CHANGED, previous, data or b""
                case Delete(path=path) if self._wants(path):
                    yield self._delete(path, transaction.zxid)
                case CloseSession(paths=paths):
                    rest = self._owned.pop(transaction.session, set()).difference(paths)
                    present = (path for path in sorted(rest) if self._held.get(path, b"") is not None)
                    for path in (*filter(self._wants, paths), *present):
                        yield self._delete(path, transaction.zxid)

    def _delete(self, path: bytes, zxid: int) -> tuple[bytes, str, bytes | None, bytes | None]:
        previous = self._value(path, zxid)
        self._held[path] = None
        return path, DELETED, previous, None
