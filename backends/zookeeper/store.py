"""A ZooKeeper ensemble as a metadata store that is written, too: a batch is a transaction (multi)."""

import threading
from collections.abc import Sequence
from typing import Final, NoReturn

from kazoo import exceptions as zk
from kazoo.security import ACL, OPEN_ACL_UNSAFE

from backends.errors import (
    AbsentKeyError,
    AccessDeniedError,
    NotEmptyError,
    OutcomeUnknownError,
    TooLargeError,
    UnavailableError,
    VersionConflictError,
)
from backends.protocols import Versioned, Write, parents
from backends.zookeeper.acl import make_acl
from backends.zookeeper.kazoo_client import Client
from backends.zookeeper.reader import REFUSED, ZooKeeperReader

_PAIRS: Final = 500
"""Children created and deleted in one transaction to raise a counter: some 60 kB of a server's limit of 1 MB."""
_RAISES_IN_FLIGHT: Final = 8
_TRANSACTION_BYTES: Final = 1_000_000
"""The server ends the connection of a client that sends more than jute.maxbuffer, by default 2^20 - 1 bytes."""
_OVERHEAD: Final = 120
"""Bytes of one operation in a transaction beside its key, value and rights, at most."""
_COUNTER_END: Final = (1 << 31) - 1
"""Sequential names are numbered by a signed 32-bit integer."""
_RAISED_CHILD: Final = "bkmeta-raise"
_ROLLED_BACK: Final = (zk.RolledBackError, zk.RuntimeInconsistency)


class ZooKeeperStore(ZooKeeperReader):
    """A metadata store on a ZooKeeper ensemble: a `ZooKeeperReader` that writes, too."""

    _client_class = Client

    def _prepare(self) -> None:
        self._parents: set[str] = set()
        self._parents_lock = threading.Lock()

    def write(self, changes: Sequence[Write]) -> list[int]:
        if not changes:
            return []
        self._require_fitting(changes)
        try:
            self._retrying(self._make_parents, changes)
            return self._transact(changes)
        except _NoParentError:
            # Another client removed a parent that we knew; nothing was written.
            with self._parents_lock:
                self._parents.clear()
            try:
                self._retrying(self._make_parents, changes)
                return self._transact(changes)
            except _NoParentError as error:
                raise VersionConflictError(changes[0].key, "its parents were removed meanwhile") from error

    def raise_counter(self, key: str, beyond: int) -> int:
        if beyond >= _COUNTER_END:
            raise ValueError(f"sequential names end at {_COUNTER_END - 1}: {beyond}")
        return self._retrying(self._raise_counter, key, beyond)

    def _raise_counter(self, key: str, beyond: int) -> int:
        while True:
            node = self._get_data(key)
            if node is None:
                try:
                    self.write([Write(key, b"")])
                except VersionConflictError:
                    continue
                node = Versioned(b"", 0, children_created=0)
            count = node.children_created or 0
            if count > beyond:
                return count
            child = f"{self._path(key)}/{_RAISED_CHILD}"
            steps = range(count, beyond + 1, _PAIRS)[:_RAISES_IN_FLIGHT]
            flying = []
            for step in steps:
                transaction = self._client.transaction()
                for _ in range(min(_PAIRS, beyond + 1 - step)):
                    transaction.create(child)
                    transaction.delete(child)
                flying.append(self._send(transaction.commit_async))
            for answer in flying:
                for result in self._answer(key, answer):
                    if isinstance(result, Exception) and not isinstance(result, _ROLLED_BACK):
                        self._refuse(Write(key, b"", expected=0), result)

    def set_acl(self, key: str, acl: str, *, expected: int) -> int:
        entries = make_acl(acl)
        try:
            sent = self._send(self._client.set_acls_async, self._path(key), entries, expected)
            return int(self._answer(key, sent).aversion)
        except zk.BadVersionError as error:
            raise VersionConflictError(key, f"its ACL does not have version {expected}") from error
        except zk.NoNodeError as error:
            raise AbsentKeyError(key) from error
        except UnavailableError as error:
            raise self._outcome_unknown(error) from error

    def _require_fitting(self, changes: Sequence[Write]) -> None:
        size = 0
        for change in changes:
            size += _OVERHEAD + len(self._chroot) + 4 * len(change.key) + len(change.value or b"")
            size += len(change.acl or "")
            if size > _TRANSACTION_BYTES:
                raise TooLargeError(change.key, f"more than {_TRANSACTION_BYTES} bytes")

    def _make_parents(self, changes: Sequence[Write]) -> None:
        wanted: dict[str, str | None] = {}
        own: set[str] = set()
        for change in changes:
            if change.value is not None and change.expected is None:
                for parent in parents(self._path(change.key)):
                    if parent not in self._parents and parent not in own:
                        wanted.setdefault(parent, change.acl)
                own.add(self._path(change.key))
        seen = [(parent, self._send(self._client.exists_async, parent)) for parent in wanted]
        absent = [parent for parent, answer in seen if self._answer(parent, answer) is None]
        # One client's requests are carried out in order, so a child's creation may follow its parent's unanswered.
        made = [(p, self._send(self._client.create_async, p, b"", self._acl(wanted[p]))) for p in absent]
        for parent, answer in made:
            try:
                self._answer(parent, answer)
            except zk.NodeExistsError:
                pass  # another client was faster
            except zk.NoNodeError as error:
                raise _NoParentError from error
        with self._parents_lock:
            self._parents.update(wanted)

    @staticmethod
    def _acl(text: str | None) -> list[ACL]:
        return OPEN_ACL_UNSAFE if text is None else make_acl(text)

    def _transact(self, changes: Sequence[Write]) -> list[int]:
        transaction = self._client.transaction()
        for change in changes:
            node = self._path(change.key)
            if change.expected is None:
                if change.value is None:
                    raise ValueError(f"a removal names no version: {change.key}")
                transaction.create(node, bytes(change.value), self._acl(change.acl))
            elif change.value is None:
                transaction.delete(node, change.expected)
            else:
                transaction.set_data(node, bytes(change.value), change.expected)
        try:
            results = self._answer(changes[0].key, self._send(transaction.commit_async))
        except UnavailableError as error:
            raise self._outcome_unknown(error) from error
        for change, result in zip(changes, results, strict=True):
            if isinstance(result, Exception) and not isinstance(result, _ROLLED_BACK):
                self._refuse(change, result)
        return [
            -1 if change.value is None else 0 if change.expected is None else int(result.version)
            for change, result in zip(changes, results, strict=True)
        ]

    def _outcome_unknown(self, error: UnavailableError) -> UnavailableError:
        """Return the error of a write with a lost answer; through a closed store it was never sent."""
        if self._closed:
            return error
        self._behind = True
        return OutcomeUnknownError(error.store, error.detail)

    def _refuse(self, change: Write, error: Exception) -> NoReturn:
        """Raise our error for the one operation that made a transaction fail."""
        if isinstance(error, zk.NoNodeError) and change.expected is None:
            raise _NoParentError from error
        if isinstance(error, zk.NodeExistsError):
            raise VersionConflictError(change.key, "it exists") from error
        if isinstance(error, zk.BadVersionError):
            raise VersionConflictError(change.key, f"it does not have version {change.expected}") from error
        if isinstance(error, zk.NoNodeError):
            raise AbsentKeyError(change.key) from error
        if isinstance(error, zk.NotEmptyError):
            raise NotEmptyError(change.key) from error
        if isinstance(error, REFUSED):
            raise AccessDeniedError(change.key, type(error).__name__) from error
        raise UnavailableError(self._uri, f"{type(error).__name__} {error}".rstrip()) from error


class _NoParentError(Exception):
    """A creation found its parent gone."""
