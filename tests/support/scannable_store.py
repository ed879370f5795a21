"""A memory store that shows all its keys at once and remembers what happened, as files of a store do."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from backends.errors import CorruptStoreError
from backends.protocols import CHANGES, KEYS, StorePoint, Write
from tests.support.memory_store import MemoryStore


class ScannableMemory(MemoryStore):
    """Scans in small batches; writes are remembered with a session."""

    session = 0x100

    def __init__(self, now_ms: Any = lambda: 1_700_000_000_123, *, torn: bool = False, at: bool = True) -> None:
        super().__init__(now_ms)
        self._changes: list[dict[str, Any]] = []
        self._torn = torn
        self._at = at

    def point(self) -> StorePoint:
        """Now."""
        return StorePoint(self._txn, self._now_ms() if self._at else None)

    def scan(self, root: str) -> Iterator[pa.RecordBatch]:
        """Yield seven keys at a time; a torn store ends with an error."""
        below = [key for key in self._nodes if key == root or key.startswith(root.rstrip("/") + "/")]
        for at in range(0, len(below), 7):
            rows = []
            for key in below[at : at + 7]:
                held = self.get(key)
                assert held is not None
                rows.append({"key": key, **{name: getattr(held, name) for name in KEYS.names[1:]}})
            yield pa.RecordBatch.from_pylist(rows, schema=KEYS)
        if self._torn:
            raise CorruptStoreError(self.uri, "torn")

    def history(self, root: str) -> Iterator[pa.RecordBatch]:
        """Yield what writes did."""
        rows = [c for c in self._changes if c["key"] == root or c["key"].startswith(root.rstrip("/") + "/")]
        yield pa.RecordBatch.from_pylist(rows, schema=CHANGES)

    def put(self, key: str, value: bytes | None) -> None:
        """Create, replace or remove a key."""
        held = self.get(key)
        self.write([Write(key, value, None if held is None else held.version)])

    def _apply(self, change: Write) -> int:
        before = self._nodes.get(change.key)
        value = None if before is None else before.value
        version = super()._apply(change)
        op = "deleted" if change.value is None else "created" if value is None else "changed"
        self._note(change.key, op, value, change.value)
        return version

    def _note(self, key: str, op: str, before: bytes | None, after: bytes | None) -> None:
        at = {"key": key, "txn": self._txn, "at_ms": self._now_ms(), "session": self.session}
        self._changes.append({**at, "op": op, "before": before, "after": after})
