"""The tree of a ZooKeeper, and the changes of each transaction, as rows of `FOLLOWED`.

A transaction's rows are in the order of its changes. What a session's end removes are rows with that session and the
owner that the node had, which is the same. A transaction that failed, and one that opens a session, has none.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from backends.protocols import FOLLOWED
from backends.zkfiles import snapshot
from backends.zkfiles.changes import CHANGED, CREATED, DELETED
from backends.zkfiles.records import (
    Acl,
    Change,
    CloseSession,
    Create,
    Delete,
    OpenSession,
    SetAcl,
    SetData,
    Transaction,
    acl_text,
    owner_of,
    session_of,
    time_of,
)
from backends.zkfiles.snapshot import SnapshotNode
from backends.zkfiles.tail import Logged
from backends.zkfiles.tree import EXISTS, NO_NODE, Tree, parent_of

RIGHTS: Final = "rights"
CHILDREN: Final = "children"
_COUNTER: Final = 0x7FFF_FFFF


class Mismatch(Exception):  # noqa: N818 - no failure of a caller: what the logs say contradicts the tree
    """A transaction does not go on from the tree.

    Attributes:
        zxid: of the transaction.
        problem: in words.
    """

    def __init__(self, zxid: int, problem: str) -> None:
        super().__init__(zxid, problem)
        self.zxid = zxid
        self.problem = problem


class Tops:
    """Which paths are wanted: some keys and all below them."""

    def __init__(self, keys: Sequence[str]) -> None:
        tops = [b"" if key == "/" else key.encode() for key in keys]
        self._equal = frozenset(tops)
        self._below = tuple(top + b"/" for top in tops)

    def have(self, path: bytes) -> bool:
        """Whether a path is wanted, and can be written as text."""
        return (path in self._equal or path.startswith(self._below)) and snapshot.is_text(path)


class FollowedTree:
    """A tree that transactions are applied to one after another.

    Args:
        tree: of a snapshot; kept up from here on.
        passed: transactions up to this zxid become no rows.
        tops: which paths become rows.

    Attributes:
        zxid: of the last transaction that was applied, or of the snapshot.
        at_ms: when that was, by the leader's clock; None: not known.
        agreed: number of right digests of the tree.
    """

    def __init__(self, tree: Tree, passed: int, tops: Tops) -> None:
        base = tree.base
        self.tree = tree
        self.zxid = base.begun or 0
        self.at_ms: int | None = base.look(digest=False).ms or None
        self.agreed = 0
        self._passed = passed
        self._exact_from = base.ends
        self._stated = base.digest
        self._tops = tops
        self._acls: dict[Acl, str] = {}
        self._rows: list[tuple[Any, ...]] = []
        self._counters: dict[bytes, tuple[Any, ...]] = {}
        self.bytes_held = 0
        self._check_snapshot()

    @property
    def is_exact(self) -> bool:
        """Whether all that the snapshot may have a part of was applied."""
        return self.zxid >= self._exact_from

    @property
    def ends(self) -> int:
        """Zxid from which on the tree is exact."""
        return self._exact_from

    @property
    def rows_held(self) -> int:
        """How many rows there are that were not taken."""
        return len(self._rows) + len(self._counters)

    def read_config(self) -> bytes | None:
        """Return the value of ``/zookeeper/config``."""
        node = self.tree.get(b"/zookeeper/config")
        return None if node is None else node.data

    def apply(self, record: Logged, received_ms: int) -> None:
        """Apply a transaction, and hold its rows.

        Raises:
            Mismatch: the tree after it differs from the server's; the transaction has no rows.
        """
        transaction = record.transaction
        exact = self.is_exact
        wanted = exact and transaction.zxid > self._passed
        count = len(self._rows)
        results = self.tree.results
        results.clear()
        for change in () if transaction.void else transaction.changes:
            if wanted:
                self._note(change, transaction, received_ms)
            self.tree.change(change, transaction)
        problem = ""
        if exact and (results[NO_NODE] or results[EXISTS]):
            problem = "it changes a node that is not there, or makes one that is"
        elif transaction.digest is not None and transaction.zxid >= self._exact_from:
            self.agreed += 1
            if transaction.digest != self.tree.digest:
                problem = "the digest of the tree after it is not the one that the server had"
        if problem:
            del self._rows[count:]
            self._counters = {path: row for path, row in self._counters.items() if row[1] != transaction.zxid}
            raise Mismatch(record.zxid, problem)
        self.zxid, self.at_ms = transaction.zxid, transaction.at_ms
        self._check_snapshot()

    def _check_snapshot(self) -> None:
        """Compare the tree with the digest that the snapshot has of itself, where the tree is at that transaction."""
        if self._stated is not None and self._stated[0] == self.zxid and self.is_exact:
            if self._stated[1] != self.tree.digest:
                raise Mismatch(self.zxid, f"the digest in {self.tree.base.path} is not that of the tree")
            self.agreed += 1
            self._stated = None

    def take_rows(self) -> pa.Table:
        """Return the rows that are held, as `FOLLOWED`, and hold none."""
        rows = sorted([*self._rows, *self._counters.values()], key=lambda row: row[1])
        self._rows, self._counters, self.bytes_held = [], {}, 0
        if not rows:
            return FOLLOWED.empty_table()
        columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
        columns[0] = [path.decode() or "/" for path in columns[0]]
        return pa.Table.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, FOLLOWED, strict=True)], schema=FOLLOWED
        )

    def judge(self, ended: Sequence[Logged], following: Sequence[Logged]) -> int | None:
        """Return how many of some transactions belong before others that end with a digest; None: no number fits."""
        if not self.is_exact:
            return None
        digest = following[-1].transaction.digest
        taken_back: list[list[Callable[[], None]]] = [self._try(record.transaction) for record in ended]
        try:
            for count in range(len(ended), -1, -1):
                tried = [self._try(record.transaction) for record in following]
                agrees = self.tree.digest == digest
                for steps in reversed(tried):
                    _take_back(steps)
                if agrees:
                    return count
                if taken_back:
                    _take_back(taken_back.pop())
            return None
        finally:
            while taken_back:
                _take_back(taken_back.pop())

    def _try(self, transaction: Transaction) -> list[Callable[[], None]]:
        """Apply a transaction; return the steps that undo it, last step first."""
        steps: list[Callable[[], None]] = []
        tree = self.tree
        results = tree.results.copy()
        for change in () if transaction.void else transaction.changes:
            for path in tree.list_touched(change, transaction.session):
                node = tree.get(path)
                steps.append(_restore_node(tree, path, None if node is None else node.copy()))
            timeout = tree.sessions.get(transaction.session)
            if isinstance(change, OpenSession | CloseSession):
                steps.append(_restore_session(tree, transaction.session, timeout))
            tree.change(change, transaction)
        tree.results = results
        return steps[::-1]

    def _note(self, change: Change, transaction: Transaction, received_ms: int) -> None:
        """Hold the rows of a change that is going to be applied."""
        match change:
            case Create(path) if path:
                self._create(change, transaction, received_ms)
            case SetData(path, data, version) if self._tops.have(path):
                node = self.tree.get(path)
                previous = None if node is None else node.data or b""
                self._hold(path, transaction, received_ms, (CHANGED, previous, data or b"", version, *(None,) * 5))
            case SetAcl(path, acl) if self._tops.have(path):
                rights = (None, None, None, self._text(acl), *(None,) * 4)
                self._hold(path, transaction, received_ms, (RIGHTS, *rights))
            case Delete(path):
                self._delete(path, transaction, received_ms)
            case CloseSession():
                for path in self.tree.list_touched(change, transaction.session)[1::2]:
                    self._delete(path, transaction, received_ms)
            case _:
                pass

    def _create(self, change: Create, transaction: Transaction, received_ms: int) -> None:
        parent, zxid, ms = parent_of(change.path), transaction.zxid, time_of(transaction.at_ms)
        if self._tops.have(change.path):
            owner = session_of(owner_of(change, transaction.session))
            row = (CREATED, None, change.data or b"", 0, self._text(change.acl), zxid, ms, owner, 0)
            self._hold(change.path, transaction, received_ms, row)
        if self._tops.have(parent) and (up := self.tree.get(parent)) is not None:
            counter = up.cversion + 1 if change.parent_cversion == -1 else change.parent_cversion
            if counter > up.cversion:
                columns = (CHILDREN, *(None,) * 7, counter & _COUNTER)
                self._counters[parent] = (parent, zxid, ms, received_ms, transaction.session, *columns)

    def _delete(self, path: bytes, transaction: Transaction, received_ms: int) -> None:
        self._counters.pop(path, None)
        node = self.tree.get(path) if self._tops.have(path) else None
        if node is not None:
            owner = session_of(node.owner) or None
            self._hold(path, transaction, received_ms, (DELETED, node.data or b"", *(None,) * 5, owner, None))

    def _hold(self, path: bytes, transaction: Transaction, received_ms: int, row: tuple[Any, ...]) -> None:
        at_ms = time_of(transaction.at_ms)
        self._rows.append((path, transaction.zxid, at_ms, received_ms, transaction.session, *row))
        self.bytes_held += len(path) + len(row[1] or b"") + len(row[2] or b"")

    def _text(self, acl: Acl) -> str:
        text = self._acls.get(acl)
        if text is None:
            text = self._acls[acl] = acl_text(acl)
        return text


def _restore_node(tree: Tree, path: bytes, node: SnapshotNode | None) -> Callable[[], None]:
    return lambda: tree.put(path, node)


def _restore_session(tree: Tree, session: int, timeout_ms: int | None) -> Callable[[], None]:
    def put() -> None:
        if timeout_ms is None:
            tree.sessions.pop(session, None)
        else:
            tree.sessions[session] = timeout_ms

    return put


def _take_back(steps: Sequence[Callable[[], None]]) -> None:
    for step in steps:
        step()
