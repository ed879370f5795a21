"""Changes of a ZooKeeper as its clients can see them: the tree is read again and again, and compared.

    what is read in a pass        every node with its numbers, 100 a request; names below a node where its pzxid or its
                                  count of children changed
    a row's transaction           czxid of a created node, mzxid of a changed one; of a removal the pzxid of the parent,
                                  which may be of a later one
    what a pass cannot know       who made a change; what was made and removed between two passes, and all states of a
                                  node but the last; changes of rights: only new nodes' rights are read. The next base
                                  has the rights of all

All up to the transaction before a pass is in it. What it saw of later ones is held back until the next pass.
The values of all keys are kept in memory.

Source: Apache ZooKeeper, "ZooKeeper Stat Structure".
"""

import logging
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from backends.errors import CorruptStoreError, ReadOnlyStoreError, UnavailableError
from backends.protocols import FOLLOWED, KEYS, FeedGap, Followed, StorePoint, Versioned, Write
from backends.zookeeper.reader import ZooKeeperReader

MEANS: Final = "polling"
_LOG: Final = logging.getLogger(__name__)
_PAUSE_S: Final = 1.0
"""Between two passes; also the longest time without a word to the caller."""
_CHUNK: Final = 1000
"""Keys that are asked for together, between two words to the caller."""
_ROWS: Final = 1 << 14
_NOTES: Final = (
    "polled: the tree was read node by node; it may have parts of transactions that ended while it was read",
    "polled: who made a change, what was made and removed between two passes, and changes of rights are not seen",
)

Row = tuple[Any, ...]
"""The columns of `FOLLOWED`."""


@dataclass(slots=True)
class _Tree:
    """The nodes that a pass read.

    Attributes:
        through: all up to this transaction is in it.
        at_ms: when that was asked for, ms since 1970.
        nodes: by key; each with its ACL.
        names: keys directly below a key, where there are any.
    """

    through: int
    at_ms: int
    nodes: dict[str, Versioned] = field(default_factory=dict)
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)


class PolledTree:
    """The keys that one pass read, as a store; it never changes."""

    def __init__(self, uri: str, nodes: dict[str, Versioned], point: StorePoint) -> None:
        self._uri = uri
        self._nodes = nodes
        self._point = point

    @property
    def uri(self) -> str:
        return self._uri

    def point(self) -> StorePoint:
        return self._point

    def scan(self, root: str) -> Iterator[pa.RecordBatch]:
        below = f"{root.rstrip('/')}/"
        keys = (key for key in self._nodes if key == root or key.startswith(below))
        while chunk := list(islice(keys, _ROWS)):
            rows = [{"key": key, **{name: getattr(self._nodes[key], name) for name in KEYS.names[1:]}} for key in chunk]
            yield pa.RecordBatch.from_pylist(rows, KEYS)

    def history(self, root: str) -> Iterator[pa.RecordBatch]:
        del root
        return iter(())

    def get(self, key: str) -> Versioned | None:
        return self._nodes.get(key)

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Versioned | None]]:
        for key in keys:
            yield key, self.get(key)

    def children(self, key: str) -> list[str] | None:
        if key not in self._nodes:
            return None
        below = f"{key.rstrip('/')}/"
        names = (other[len(below) :] for other in self._nodes if other.startswith(below))
        return sorted(name for name in names if "/" not in name)

    def write(self, changes: Sequence[Write]) -> list[int]:
        raise ReadOnlyStoreError(self._uri, f"{len(changes)} changes were asked for")

    def raise_counter(self, key: str, beyond: int) -> int:
        raise ReadOnlyStoreError(self._uri, f"{key} was to be raised beyond {beyond}")

    def close(self) -> None:
        """Do nothing: nothing is open."""


class PollingFeed:
    """Changes of keys of a live ZooKeeper, by reading them again and again.

    Args:
        reader: of the ensemble; closed with the feed.
        tops: keys that are followed, with all below them.
        pause_s: between two passes.
        clock_ms: ms since 1970.
    """

    def __init__(
        self,
        reader: ZooKeeperReader,
        tops: Sequence[str],
        *,
        pause_s: float = _PAUSE_S,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._reader = reader
        self._tops = tuple(top for top in tops if not any(top.startswith(f"{other}/") for other in tops))
        self._pause_s = pause_s
        self._clock_ms = clock_ms
        self._tree: _Tree | None = None
        self._closed = threading.Event()

    @property
    def uri(self) -> str:
        return self._reader.uri

    @property
    def means(self) -> str:
        return MEANS

    def identify(self) -> str | None:
        return None

    def close(self) -> None:
        self._closed.set()
        self._reader.close()

    def open_base(self) -> PolledTree:
        tree = None
        for step in self._read(None):
            tree = step
        if tree is None:
            raise UnavailableError(self.uri, "it was closed")
        self._tree = tree
        keys = {key: node for key, node in tree.nodes.items() if any(_is_below(key, top) for top in self._tops)}
        return PolledTree(self.uri, keys, StorePoint(tree.through, tree.at_ms, (), _NOTES))

    def follow(self, after: int) -> Iterator[Followed | FeedGap]:
        held: list[Row] = []
        through, until_ms = after, 0
        tree = self._tree if self._tree is not None and self._tree.through <= after else None
        while not self._closed.is_set():
            try:
                read = None
                for step in self._read(tree):
                    read = step
                    yield Followed(FOLLOWED.empty_table(), through, until_ms)
            except UnavailableError as error:
                _LOG.warning("%s", error)
                yield Followed(FOLLOWED.empty_table(), through, until_ms)
                self._closed.wait(self._pause_s)
                continue
            if read is None:
                return
            if read.through < after:
                problem = f"it is at transaction {read.through:#x}, where {after:#x} was followed: another history"
                raise CorruptStoreError(self.uri, problem)
            if tree is None and any(_latest_of(node) > after for node in read.nodes.values()):
                self._tree = read
                yield FeedGap(after, "polling began again, and keys have changed since: removals since are not known")
                return
            rows = [] if tree is None else _compare(tree, read, self._clock_ms())
            held = sorted([*held, *rows], key=lambda row: row[1])
            ready = [row for row in held if row[1] <= read.through]
            held = held[len(ready) :]
            self._tree = tree = read
            while len(ready) > _ROWS:
                # A transaction is never split, and that of the last row may have more.
                split = bisect_left(ready, ready[_ROWS][1], key=lambda row: row[1])
                split = split or bisect_right(ready, ready[0][1], key=lambda row: row[1])
                part, ready = ready[:split], ready[split:]
                through = max(through, part[-1][1])
                yield Followed(_make_table(part), through, until_ms)
            through, until_ms = max(through, read.through), read.at_ms
            yield Followed(_make_table(ready), through, until_ms)
            self._closed.wait(self._pause_s)

    def _read(self, known: _Tree | None) -> Iterator[_Tree | None]:
        """Read the tree once; yield it at last, None meanwhile."""
        asked_ms = self._clock_ms()
        tree = _Tree(self._reader.latest_txn(), asked_ms)
        level = list(self._tops)
        while level and not self._closed.is_set():
            below: list[str] = []
            for start in range(0, len(level), _CHUNK):
                if self._closed.is_set():
                    return
                yield None
                below += self._read_keys(tree, level[start : start + _CHUNK], known)
            level = below
        if not self._closed.is_set():
            yield tree

    def _read_keys(self, tree: _Tree, keys: Sequence[str], known: _Tree | None) -> list[str]:
        """Read some nodes; return the keys below them."""
        made: list[str] = []
        below: list[str] = []
        for key, node in self._reader.get_many(keys):
            if node is None:
                continue
            old = None if known is None else known.nodes.get(key)
            if old is not None and old.created_txn == node.created_txn:
                tree.nodes[key] = replace(node, acl=old.acl)
            else:
                old = None
                made.append(key)
                tree.nodes[key] = node
            # Its pzxid says less: one transaction may have made the node and nodes below it.
            if not node.children_created:
                continue
            if old is None or known is None or old.children_txn != node.children_txn:
                names = self._reader.children(key) or []
                tree.names[key] = tuple(f"{key.rstrip('/')}/{name}" for name in names)
            else:
                tree.names[key] = known.names.get(key, ())
            below += tree.names[key]
        for key, acl in self._reader.get_acls(made):
            if acl is None:
                del tree.nodes[key]
            else:
                tree.nodes[key] = replace(tree.nodes[key], acl=acl.text)
        return below


def _is_below(key: str, top: str) -> bool:
    return key == top or key.startswith(f"{top.rstrip('/')}/")


def _latest_of(node: Versioned) -> int:
    return max(node.created_txn or 0, node.changed_txn or 0, node.children_txn or 0)


def _compare(old: _Tree, new: _Tree, received_ms: int) -> list[Row]:
    """Return the changes between two passes; within a transaction, removals first, children before parents."""
    removed = [
        key for key, node in old.nodes.items() if key not in new.nodes or new.nodes[key].created_txn != node.created_txn
    ]
    rows = [_make_removal(old, new, key, received_ms) for key in sorted(removed, key=len, reverse=True)]
    for key, node in new.nodes.items():
        before = old.nodes.get(key)
        if before is None or before.created_txn != node.created_txn:
            rows.append(_make_creation(key, node, received_ms))
            continue
        if before.changed_txn != node.changed_txn:
            columns = (node.changed_txn, node.changed_ms, received_ms, None, "changed", before.value, node.value)
            rows.append((key, *columns, node.version, *(None,) * 5))
        if before.children_created != node.children_created:
            counted = (node.children_txn, None, received_ms, None, "children", *(None,) * 7)
            rows.append((key, *counted, node.children_created))
    return rows


def _make_removal(old: _Tree, new: _Tree, key: str, received_ms: int) -> Row:
    """Return the row of a removal: its transaction is at most that of its parent, or of what has its key now."""
    node, now = old.nodes[key], new.nodes.get(key)
    txn = None if now is None else now.created_txn
    place = key
    while txn is None and place:
        place = place.rpartition("/")[0]
        parent = new.nodes.get(place)
        txn = None if parent is None else parent.children_txn
    owner = node.owner or None
    txn = new.through if txn is None or txn <= old.through else txn
    return (key, txn, None, received_ms, None, "deleted", node.value, *(None,) * 5, owner, None)


def _make_creation(key: str, node: Versioned, received_ms: int) -> Row:
    # It may have changed since: the row has the state that was seen, at the transaction that made that.
    txn, ms = node.changed_txn, node.changed_ms
    columns = (txn, ms, received_ms, None, "created", None, node.value, node.version, node.acl)
    return (key, *columns, node.created_txn, node.created_ms, node.owner, node.children_created)


def _make_table(rows: Sequence[Row]) -> pa.Table:
    if not rows:
        return FOLLOWED.empty_table()
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, item.type) for column, item in zip(columns, FOLLOWED, strict=True)]
    return pa.Table.from_arrays(arrays, schema=FOLLOWED)
