"""A store in memory with ZooKeeper's semantics: for tests, rehearsals of plans, and as the reading of the contract.

A version is 0 after a create and counts up with each change; missing parents are made, empty; a removed and created key
starts at 0 again; the children ever created below a key are counted and never uncounted.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from backends.errors import AbsentKeyError, NotEmptyError, TooLargeError, UnavailableError, VersionConflictError
from backends.protocols import Acl, Versioned, Write, parents, parse_acl

WORLD: Final = "world:anyone:cdrwa"
"""The ACL of a key that is written without one."""
TRANSACTION_BYTES: Final = 1_000_000
"""The limit of a ZooKeeper."""


@dataclass(slots=True)
class _Node:
    value: bytes
    acl: str
    created_txn: int
    changed_txn: int
    created_ms: int
    changed_ms: int
    version: int = 0
    acl_version: int = 0
    owner: int = 0
    children_created: int = 0
    children_txn: int = 0
    children: set[str] = field(default_factory=set)


def _split(key: str) -> tuple[str, str]:
    if not key.startswith("/") or key == "/" or key.endswith("/") or "//" in key:
        raise ValueError(f"not an absolute key: {key!r}")
    parent, _, name = key.rpartition("/")
    return parent or "/", name


class MemoryStore:
    """A metadata store that lives as long as the object.

    Args:
        now_ms: the clock, in ms since 1970.
    """

    def __init__(self, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._now_ms = now_ms
        self._lock = threading.RLock()
        self._txn = 0
        self._closed = False
        self._nodes = {"/": _Node(b"", WORLD, 0, 0, 0, 0)}

    @property
    def uri(self) -> str:
        return "memory:"

    def _require_open(self) -> None:
        if self._closed:
            raise UnavailableError(self.uri, "it was closed")

    def get(self, key: str) -> Versioned | None:
        with self._lock:
            self._require_open()
            node = self._nodes.get(key)
            if node is None:
                return None
            return Versioned(
                value=node.value,
                version=node.version,
                created_txn=node.created_txn,
                changed_txn=node.changed_txn,
                created_ms=node.created_ms,
                changed_ms=node.changed_ms,
                owner=node.owner,
                children_created=node.children_created,
                children_txn=node.children_txn,
                acl=node.acl,
            )

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Versioned | None]]:
        for key in keys:
            node = self.get(key)
            yield key, None if node is None else replace(node, acl=None)

    def children(self, key: str) -> list[str] | None:
        with self._lock:
            self._require_open()
            node = self._nodes.get(key)
            return None if node is None else sorted(node.children)

    def write(self, changes: Sequence[Write]) -> list[int]:
        with self._lock:
            self._require_open()
            size = 0
            for change in changes:
                size += len(change.key) + len(change.value or b"")
                if size > TRANSACTION_BYTES:
                    raise TooLargeError(change.key, f"more than {TRANSACTION_BYTES} bytes")
            made: set[str] = set()
            for change in changes:
                if change.value is not None and change.expected is None:
                    for parent in parents(change.key):
                        if parent not in self._nodes and parent not in made:
                            self._txn += 1
                            self._create(parent, b"", change.acl)
                    made.add(change.key)
            previous = self._snapshot(changes)
            self._txn += 1
            try:
                return [self._apply(change) for change in changes]
            except (VersionConflictError, NotEmptyError):
                self._restore(previous)
                raise

    def raise_counter(self, key: str, beyond: int) -> int:
        with self._lock:
            self._require_open()
            if key not in self._nodes:
                self.write([Write(key, b"")])
            node = self._nodes[key]
            node.children_created = max(node.children_created, beyond + 1)
            return node.children_created

    def get_acl(self, key: str) -> Acl | None:
        with self._lock:
            self._require_open()
            node = self._nodes.get(key)
            return None if node is None else Acl(node.acl, node.acl_version)

    def get_acls(self, keys: Iterable[str]) -> Iterator[tuple[str, Acl | None]]:
        for key in keys:
            yield key, self.get_acl(key)

    def latest_txn(self) -> int:
        with self._lock:
            self._require_open()
            return self._txn

    def set_acl(self, key: str, acl: str, *, expected: int) -> int:
        parse_acl(acl)
        with self._lock:
            self._require_open()
            node = self._nodes.get(key)
            if node is None:
                raise AbsentKeyError(key)
            if node.acl_version != expected:
                raise VersionConflictError(key, f"its ACL has version {node.acl_version}")
            node.acl = acl
            node.acl_version += 1
            return node.acl_version

    def close(self) -> None:
        self._closed = True

    def put_ephemeral(self, key: str, value: bytes, owner: int) -> None:
        """Create a key that lives with a session, as a bookie's registration does."""
        with self._lock:
            self.write([Write(key, value)])
            self._nodes[key].owner = owner

    def dump(self) -> dict[str, bytes]:
        """Return every key but the root with its value."""
        with self._lock:
            return {key: node.value for key, node in sorted(self._nodes.items()) if key != "/"}

    def _apply(self, change: Write) -> int:
        node = self._nodes.get(change.key)
        if change.expected is None:
            if node is not None:
                raise VersionConflictError(change.key, "it exists")
            if change.value is None:
                raise ValueError(f"a removal names no version: {change.key}")
            self._create(change.key, change.value, change.acl)
            return 0
        if node is None:
            raise AbsentKeyError(change.key)
        if node.version != change.expected:
            raise VersionConflictError(change.key, f"it has version {node.version}")
        if change.value is None:
            if node.children:
                raise NotEmptyError(change.key)
            parent, name = _split(change.key)
            self._nodes[parent].children.discard(name)
            self._nodes[parent].children_txn = self._txn
            del self._nodes[change.key]
            return -1
        node.value = bytes(change.value)
        node.version += 1
        node.changed_txn = self._txn
        node.changed_ms = self._now_ms()
        return node.version

    def _create(self, key: str, value: bytes, acl: str | None) -> None:
        parent, name = _split(key)
        moment = self._now_ms()
        self._nodes[key] = _Node(bytes(value), acl or WORLD, self._txn, self._txn, moment, moment)
        self._nodes[parent].children.add(name)
        self._nodes[parent].children_created += 1
        self._nodes[parent].children_txn = self._txn

    def _snapshot(self, changes: Sequence[Write]) -> dict[str, _Node | None]:
        touched = {change.key for change in changes} | {_split(change.key)[0] for change in changes}
        nodes = {key: self._nodes.get(key) for key in touched}
        return {k: None if n is None else replace(n, children=set(n.children)) for k, n in nodes.items()}

    def _restore(self, previous: dict[str, _Node | None]) -> None:
        for key, node in previous.items():
            if node is None:
                self._nodes.pop(key, None)
            else:
                self._nodes[key] = node
