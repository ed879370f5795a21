"""The tree of a snapshot with transactions applied to it: only nodes that they touch become objects.

    record             node missing                node there                 parent
    create             made                        gets the ACL only          cversion and pzxid, if the record's
                                                                              cversion is higher
    delete             nothing                     goes, with all below it    pzxid is raised
    set data, ACL      nothing                     gets it and the version
    end of a session   its sessions's nodes go, the listed ones first

A snapshot is written while transactions are applied, so a record may find its work done, or undone by a later one;
after all that writing overlapped with, every path is right.

Source: docs/formats/zookeeper-files.md; Apache ZooKeeper 3.9, DataTree.processTxn.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np

from backends.zkfiles.records import (
    OPEN_ACL,
    Acl,
    Change,
    CloseSession,
    Create,
    Delete,
    OpenSession,
    SetAcl,
    SetData,
    Transaction,
    owner_of,
)
from backends.zkfiles.snapshot import Snapshot, SnapshotNode

EXISTS: Final = "exists"
NO_NODE: Final = "no node"
VOID: Final = "failed multi"

_EMPTY: Final = (b"", b"/zookeeper", b"/zookeeper/quota")
"""The tree of a server that never ran."""
_UNSIGNED: Final = (1 << 64) - 1


def parent_of(path: bytes) -> bytes:
    """Return the path above one that is not the root."""
    return path[: path.rfind(b"/")]


class Tree:
    """A tree that transactions change.

    Args:
        base: the tree before them; None: an empty tree.
        digest: whether the digest is kept up.
        loose: nodes are made although their parents are not known.

    Attributes:
        changed: existing nodes that were touched.
        hidden: rows of `base` that are gone, or among `changed`.
        sessions: timeout in ms of each.
        digest: of the tree; None: not asked for.
        results: how often a record's change was already done or impossible.
    """

    def __init__(self, base: Snapshot | None, *, digest: bool, loose: bool = False) -> None:
        self._base = base or Snapshot.empty()
        self._loose = loose
        self.hidden = np.zeros(self._base.nodes, np.bool_)
        self.changed: dict[bytes, SnapshotNode] = {}
        self.sessions = dict(self._base.sessions)
        self.digest = self._base.look(digest=True).digest if digest else None
        self.results: Counter[str] = Counter()
        self._children: dict[bytes, set[bytes]] = {}
        self._owned: dict[int, set[bytes]] = {}
        self._owned_rows: dict[int, list[int]] | None = None
        self._dropped: set[int] = set()
        self._acls: dict[Acl, Acl] = {}
        if base is None:
            for path in _EMPTY:
                self._add(path, SnapshotNode(b"", OPEN_ACL, 0, 0, 0, 0, 0, 0, 0, 0, 0))

    @property
    def base(self) -> Snapshot:
        """The tree that transactions are applied to."""
        return self._base

    def get(self, path: bytes) -> SnapshotNode | None:
        """Return a node as it is; not to be changed."""
        node = self.changed.get(path)
        if node is None:
            row = self._base.find(path)
            if row is not None and not self.hidden[row]:
                return self._base.node_at(row)
        return node

    def children(self, path: bytes) -> Iterator[bytes]:
        """Yield the paths directly below a node."""
        yield from self._children.get(path, ())
        prefix = path + b"/"
        row = self._base.find(path)
        # A row that is hidden may still have children that are not: of a snapshot that was not written whole.
        position, end = (0, 0) if row is None else (row + 1, self._base.below(row))
        while position < end:
            below = self._base.path_at(position)
            present = not self.hidden[position] or below in self.changed
            if present and parent_of(below) == path and below not in self._children.get(path, ()):
                yield below
            position = self._base.below(position) if below.startswith(prefix) else position + 1

    def apply(self, transaction: Transaction) -> None:
        """Apply one transaction."""
        if transaction.void:
            self.results[VOID] += 1
        for change in transaction.changes:
            self.change(change, transaction)

    def list_touched(self, change: Change, session: int) -> list[bytes]:
        """Return the paths of nodes that a change may change, create or remove, with their parents."""
        match change:
            case Create(path) | Delete(path):
                return [parent_of(path), path] if path else [path]
            case SetData(path) | SetAcl(path):
                return [path]
            case CloseSession(paths):
                ended = dict.fromkeys((*paths, *sorted(self._list_owned(session))))
                return [part for path in ended for part in (parent_of(path), path)]
            case OpenSession():
                return []

    def put(self, path: bytes, node: SnapshotNode | None) -> None:
        """Set a node as given, or remove it; its children stay."""
        current = self._touch(path)
        if current is not None:
            self._count(path, current, -1)
            del self.changed[path]
            if path:
                self._children.get(parent_of(path), set()).discard(path)
            if current.owner:
                self._owned.get(current.owner, set()).discard(path)
        if node is not None:
            self._add(path, node)

    def change(self, change: Change, transaction: Transaction) -> None:
        """Apply one change of a transaction."""
        match change:
            case Create():
                self._create(change, transaction)
            case Delete(path):
                if not self._delete(path, transaction.zxid):
                    self.results[NO_NODE] += 1
            case SetData(path, data, version):
                if (node := self._find(path)) is not None:
                    self._count(path, node, -1)
                    node.data, node.version, node.mzxid, node.mtime = data, version, transaction.zxid, transaction.at_ms
                    self._count(path, node, 1)
            case SetAcl(path, acl, version):
                if (node := self._find(path)) is not None:
                    self._count(path, node, -1)
                    node.acl, node.aversion = self._intern(acl), version
                    self._count(path, node, 1)
            case OpenSession(timeout_ms):
                self.sessions[transaction.session] = timeout_ms
            case CloseSession(paths):
                for path in (*paths, *sorted(self._list_owned(transaction.session))):
                    self._delete(path, transaction.zxid)
                self._owned.pop(transaction.session, None)
                self.sessions.pop(transaction.session, None)

    def _touch(self, path: bytes) -> SnapshotNode | None:
        """Return a node that may then be changed."""
        node = self.changed.get(path)
        if node is None:
            row = self._base.find(path)
            if row is None or self.hidden[row]:
                return None
            self.hidden[row] = True
            node = self.changed[path] = self._base.node_at(row)
            if node.owner:
                self._owned.setdefault(node.owner, set()).add(path)
        return node

    def _find(self, path: bytes) -> SnapshotNode | None:
        """Return the result of `_touch`, and count missing nodes."""
        node = self._touch(path)
        if node is None:
            self.results[NO_NODE] += 1
        return node

    def _raise(self, path: bytes, node: SnapshotNode, cversion: int, zxid: int) -> None:
        self._count(path, node, -1)
        node.cversion, node.pzxid = cversion, zxid
        self._count(path, node, 1)

    def _count(self, path: bytes, node: SnapshotNode, times: int) -> None:
        if self.digest is not None:
            self.digest = (self.digest + times * node.digest(path)) & _UNSIGNED

    def _add(self, path: bytes, node: SnapshotNode) -> None:
        self.changed[path] = node
        self._count(path, node, 1)
        if path:
            self._children.setdefault(parent_of(path), set()).add(path)
        if node.owner:
            self._owned.setdefault(node.owner, set()).add(path)

    def _intern(self, acl: Acl) -> Acl:
        """Return a shared object for equal ACLs: most nodes have the same one."""
        return self._acls.setdefault(acl, acl)

    def _create(self, change: Create, transaction: Transaction) -> None:
        path = change.path
        up = self._touch(parent_of(path)) if path else None
        if up is None and path and not self._loose:
            self.results[NO_NODE] += 1
            return
        if up is not None:
            cversion = up.cversion + 1 if change.parent_cversion == -1 else change.parent_cversion
            if cversion > up.cversion:
                self._raise(parent_of(path), up, cversion, transaction.zxid)
        node = self._touch(path)
        if node is not None:
            self.results[EXISTS] += 1
            node.acl = self._intern(change.acl)
            return
        owner = owner_of(change, transaction.session)
        zxid, ms = transaction.zxid, transaction.at_ms
        self._add(path, SnapshotNode(change.data, self._intern(change.acl), zxid, zxid, ms, ms, 0, 0, 0, owner, zxid))

    def _delete(self, path: bytes, zxid: int) -> bool:
        if not path:
            return False
        up = self._touch(parent_of(path))
        if up is not None and zxid > up.pzxid:
            self._raise(parent_of(path), up, up.cversion, zxid)
        if up is None and not self._loose:
            return False
        node = self._touch(path)
        if node is None:
            return False
        self._remove(path)
        return True

    def _remove(self, path: bytes) -> None:
        todo = [path]
        while todo:
            path = todo.pop()
            node = self.changed.pop(path, None)
            if node is None:
                continue
            self._count(path, node, -1)
            self._children.get(parent_of(path), set()).discard(path)
            if node.owner:
                self._owned.get(node.owner, set()).discard(path)
            todo += self._children.pop(path, ())
            row = self._base.find(path)
            if row is None or row in self._dropped:
                continue
            self._dropped.add(row)
            for start in range(row + 1, self._base.below(row)):
                below = self._base.path_at(start)
                if not self.hidden[start]:
                    self.hidden[start] = True
                    self._count(below, self._base.node_at(start), -1)
                else:
                    todo.append(below)

    def _list_owned(self, session: int) -> set[bytes]:
        """Return the paths of nodes that a session owns."""
        if self._owned_rows is None:
            self._owned_rows = {}
            for row in self._base.look(digest=False).owned.tolist():
                self._owned_rows.setdefault(self._base.node_at(row).owner, []).append(row)
        rows = self._owned_rows.get(session, [])
        return self._owned.get(session, set()) | {self._base.path_at(row) for row in rows if not self.hidden[row]}
