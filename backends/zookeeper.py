"""ZooKeeper as a metadata store; the only module that knows kazoo.

    promise of `MetadataStore`   here
    version                      the node's data version: 0 after create, +1 a change
    children_created             (cversion + children) / 2: the counter behind sequential names, never lowered
    children_txn                 pzxid: the transaction that last created or removed a child
    transaction                  multi
    acl                          scheme:id:perms of every entry, in the server's order
    latest_txn                   zxid of the answer to a sync

A `ZooKeeperReader` has no writing method, and its client refuses every request that is none of the reading ones, at the
one place that all of them pass.

Source: bookkeeper-metadata §2.4 and §2.6; Apache ZooKeeper 3.9, Stat and multi.
"""

import logging
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Final, NoReturn, TypeVar

from kazoo import exceptions as zk
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import stat_struct
from kazoo.protocol.states import KeeperState, ZnodeStat
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id, make_digest_acl_credential
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from backends.errors import (
    AccessDeniedError,
    NotEmptyError,
    OutcomeUnknownError,
    ReadOnlyStoreError,
    TooLargeError,
    UnavailableError,
    VersionConflictError,
)
from backends.pace import Pace
from backends.protocols import Rights, Tls, Versioned, Write, parents, parse_rights
from backends.zookeeper_rights import RightsStream

T = TypeVar("T")

_READS: Final = 100
"""Keys that are read by one request: five times faster than one each."""
_READS_IN_FLIGHT: Final = 10
"""Enough to hide a round trip of some ms, few enough for the server's request queue."""
_RIGHTS: Final = 500
"""Requests for rights that are sent at once; two such lots are in flight."""
_PAIRS: Final = 500
"""Children created and deleted in one transaction to raise a counter: some 60 kB of the 1 MB that a server takes."""
_RAISES_IN_FLIGHT: Final = 8
_SILENT_S: Final = 1.0
"""Whoever waits longer for a session is told so."""
_RECONNECT_S: Final = 2.0
"""Longest pause between two attempts to reach a server; kazoo's own would be a minute."""
_TRANSACTION_BYTES: Final = 1_000_000
"""The server ends the connection of a client that sends more than jute.maxbuffer, by default 2^20 - 1 bytes."""
_OVERHEAD: Final = 120
"""Bytes of one operation in a transaction beside its key, value and rights, at most."""
_COUNTER_END: Final = (1 << 31) - 1
"""Sequential names are numbered by a signed 32-bit integer."""
_RAISED_CHILD: Final = "bkmeta-raise"

_LOST: Final = (
    zk.ConnectionLoss,
    zk.OperationTimeoutError,
    zk.SessionExpiredError,
    zk.SessionMovedError,
    zk.RequestTimeoutError,
    zk.ConnectionDropped,
    zk.CancelledError,
    zk.ThrottledOpError,
    KazooTimeoutError,
)
_REFUSED: Final = (zk.NoAuthError, zk.AuthFailedError, zk.InvalidACLError, zk.SessionClosedRequireSaslError)
_ROLLED_BACK: Final = (zk.RolledBackError, zk.RuntimeInconsistency)

_MULTI_READ: Final = 22
_READING: Final = frozenset({3, 4, 6, 8, 9, 12, _MULTI_READ, 100})
"""Kinds of requests that change nothing: exists, value, rights, names (twice), sync, many values; and who one is."""
_NO_NODE: Final = -101

_HEADER: Final = struct.Struct(">iBi")
_LENGTH: Final = struct.Struct(">i")
_GET: Final = 4

# kazoo logs requests at its lowest level, credentials included; what fails is raised, and needs no second line.
_LOG: Final = logging.getLogger(__name__)
_QUIET: Final = logging.getLogger(f"{__name__}.kazoo")
_QUIET.setLevel(logging.ERROR)

_PERMS: Final = {"c": 4, "d": 8, "r": 1, "w": 2, "a": 16}


def parse_acl(text: str) -> list[ACL]:
    """Return the rights that a text form names.

    Raises:
        ValueError: the text is not ``scheme:id:perms`` joined with commas.
    """
    return [ACL(sum(_PERMS[p] for p in set(right.perms)), Id(right.scheme, right.name)) for right in parse_rights(text)]


def format_acl(entries: Iterable[ACL]) -> str:
    """Return the text form of rights."""
    return ",".join(
        f"{entry.id.scheme}:{entry.id.id}:{''.join(p for p, bit in _PERMS.items() if entry.perms & bit)}"
        for entry in entries
    )


def digest_principal(auth: tuple[str, str]) -> str:
    """Return how rights name whoever knows a user's password: ``digest:user:hash``."""
    return f"digest:{make_digest_acl_credential(*auth)}"


def _versioned(value: bytes | None, stat: Any, acl: str | None) -> Versioned:  # noqa: ANN401  # kazoo has no types
    return Versioned(
        value=value or b"",  # a node may have been created with null
        version=stat.version,
        created_txn=stat.czxid,
        changed_txn=stat.mzxid,
        created_ms=stat.ctime,
        changed_ms=stat.mtime,
        owner=stat.ephemeralOwner,
        children_created=_next_child(stat),
        children_txn=stat.pzxid,
        acl=acl,
    )


def _encrypted(tls: Tls) -> dict[str, Any]:
    return {
        "use_ssl": True,
        "ca": tls.ca,
        "certfile": tls.cert,
        "keyfile": tls.key,
        "keyfile_password": tls.key_password,
        "verify_certs": True,
        "check_hostname": True,
    }


def _next_child(stat: Any) -> int:  # noqa: ANN401  # kazoo has no types
    # cversion is a signed 32-bit integer that wraps.
    return int((stat.cversion + stat.numChildren) & 0xFFFF_FFFF) // 2


class _ReadingClient(KazooClient):  # type: ignore[misc]  # kazoo has no types
    """A client that cannot ask for a change."""

    def _call(self, request: Any, async_object: Any) -> Any:  # noqa: ANN401  # kazoo has no types
        if request.type not in _READING:
            raise ReadOnlyStoreError(str(self.hosts), f"a request of kind {request.type}")
        return super()._call(request, async_object)


class ZooKeeperReader:
    """What can be read of a ZooKeeper ensemble.

    Opening waits until the session stands, and then until the server has seen every write that ended before.

    Args:
        hosts: ``host:port`` joined with commas.
        chroot: put before every key; made like any parent.
        auth: user and password of the digest scheme.
        sasl: user and password for SASL with DIGEST-MD5.
        tls: None: not encrypted.
        ops_s: reads of a node, its names or its rights that are asked for a second, at most; None: no limit.
        session_s: the session's life without the server hearing from us; also the longest wait for one answer.
        patience_s: how long a read is tried again, and the making of parents. A write is never tried again.

    Raises:
        UnavailableError: no session within `patience_s`.
        AccessDeniedError: the server does not take us for whom we say we are.
    """

    _client_class: ClassVar[type[Any]] = _ReadingClient

    def __init__(
        self,
        hosts: str,
        *,
        chroot: str = "",
        auth: tuple[str, str] | None = None,
        sasl: tuple[str, str] | None = None,
        tls: Tls | None = None,
        ops_s: float | None = None,
        session_s: float = 30.0,
        patience_s: float = 60.0,
    ) -> None:
        if chroot and (not chroot.startswith("/") or chroot.endswith("/")):
            raise ValueError(f"not a chroot: {chroot!r}")
        self._chroot = chroot
        self._uri = f"zk://{hosts}{chroot}"
        self._answer_s = session_s
        self._retrying = Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, UnavailableError) and not self._closed),
            before_sleep=lambda state: self._say_waiting(patience_s - (state.seconds_since_start or 0)),
            stop=stop_after_delay(patience_s),
            wait=wait_random_exponential(multiplier=0.1, max=5),
            reraise=True,
        )
        self._closed = False
        self._said_until = float("-inf")
        self._pace = Pace(ops_s)
        self._reads_many = True
        self._behind = True
        self._rights: RightsStream | None = None
        self._rights_lock = threading.Lock()
        self._options: dict[str, Any] = {
            "hosts": hosts,
            "timeout": session_s,
            "auth_data": [("digest", f"{auth[0]}:{auth[1]}")] if auth else None,
            "sasl_options": {"mechanism": "DIGEST-MD5", "username": sasl[0], "password": sasl[1]} if sasl else None,
            "connection_retry": {"max_tries": -1, "max_delay": _RECONNECT_S},
            "logger": _QUIET,
            **(_encrypted(tls) if tls else {}),
        }
        self._client = self._client_class(**self._options)
        waiting = threading.Timer(_SILENT_S, self._say_waiting, [patience_s - _SILENT_S])
        waiting.daemon = True
        waiting.start()
        try:
            self._client.start(timeout=patience_s)
            self._catch_up()
        except (KazooTimeoutError, UnavailableError, AccessDeniedError) as error:
            refused = self._client._state == KeeperState.AUTH_FAILED  # noqa: SLF001  # kazoo tells it nowhere else
            self.close()
            if refused or isinstance(error, AccessDeniedError):
                raise AccessDeniedError(self._uri, "user and password were refused") from error
            raise UnavailableError(self._uri, f"no session within {patience_s:g} s") from error
        finally:
            waiting.cancel()

    def _say_waiting(self, for_s: float) -> None:
        """Say that there is no answer and until when one is waited for; once, however many wait."""
        now = time.monotonic()
        if self._closed or now < self._said_until:
            return
        self._said_until = now + for_s
        until = time.strftime("%H:%M:%S", time.localtime(time.time() + for_s))
        _LOG.warning("%s does not answer; trying until %s", self._uri, until)

    @property
    def uri(self) -> str:
        return self._uri

    def close(self) -> None:
        self._closed = True
        self._pace.stop()
        self._drop_rights()
        self._client.stop()
        self._client.close()

    def _catch_up(self) -> None:
        """Have the server see every write that ended before, also those that another server took."""
        if self._behind:
            self._answer("/", self._send(self._client.sync_async, "/"))
            self._behind = False

    def get(self, key: str) -> Versioned | None:
        return self._retrying(self._get, key)

    def _get(self, key: str) -> Versioned | None:
        self._catch_up()
        node = self._at(key)
        self._pace.take(2)
        # One after the other on one connection: sent together, answered in order.
        data, acl = self._send(self._client.get_async, node), self._send(self._client.get_acls_async, node)
        try:
            value, stat = self._answer(key, data)
            entries, _ = self._answer(key, acl)
        except zk.NoNodeError:
            return None
        return _versioned(value, stat, format_acl(entries))

    def _get_data(self, key: str) -> Versioned | None:
        self._catch_up()
        self._pace.take(1)
        found = self._found_one(key, self._send(self._client.get_async, self._at(key)))
        return None if isinstance(found, Exception) else _versioned(*found, None)

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Versioned | None]]:
        self._retrying(self._catch_up)
        flying: deque[tuple[list[str], _Asked]] = deque()
        ask = iter(keys)
        while chunk := list(islice(ask, _READS)):
            flying.append((chunk, self._ask(chunk)))
            if len(flying) >= _READS_IN_FLIGHT:
                yield from self._landed(*flying.popleft())
        while flying:
            yield from self._landed(*flying.popleft())

    def _ask(self, keys: Sequence[str]) -> "_Asked":
        self._pace.take(len(keys))
        if not self._reads_many:
            return _Asked(None, [self._send(self._client.get_async, self._at(key)) for key in keys])
        answer = self._client.handler.async_result()
        request = _Read(tuple(self._at(key).encode() for key in keys))
        self._send(self._client._call, request, answer)  # noqa: SLF001  # as kazoo's own transactions are sent
        return _Asked(answer, [])

    def _found(self, keys: Sequence[str], asked: "_Asked") -> Sequence[tuple[bytes, Any] | Exception]:
        """Return value and stat, or the error, of each key."""
        if asked.together is not None:
            try:
                found: list[tuple[bytes, Any] | Exception] = self._answer(keys[0], asked.together)
            except zk.UnimplementedError:
                # A server before 3.6; it ends the session too, so what else is in flight is asked for again.
                self._reads_many = False
                return self._found(keys, self._ask(keys))
            return found
        return [self._found_one(key, answer) for key, answer in zip(keys, asked.each, strict=True)]

    def _found_one(self, key: str, answer: Any) -> tuple[bytes, Any] | Exception:  # noqa: ANN401  # kazoo has no types
        try:
            value, stat = self._answer(key, answer)
        except zk.NoNodeError as error:
            absent: Exception = error
            return absent
        return value, stat

    def _landed(self, keys: list[str], asked: "_Asked") -> Iterator[tuple[str, Versioned | None]]:
        try:
            found = self._found(keys, asked)
        except UnavailableError:
            found = self._retrying(lambda: self._found(keys, self._ask(keys)))
        for key, one in zip(keys, found, strict=True):
            if isinstance(one, zk.NoNodeError):
                yield key, None
            elif isinstance(one, _REFUSED):
                raise AccessDeniedError(key, type(one).__name__) from one
            elif isinstance(one, Exception):
                raise UnavailableError(self._uri, f"{type(one).__name__} for {key}") from one
            else:
                value, stat = one
                yield key, _versioned(value, stat, None)

    def children(self, key: str) -> list[str] | None:
        return self._retrying(self._children, key)

    def _children(self, key: str) -> list[str] | None:
        self._catch_up()
        self._pace.take(1)
        try:
            names: list[str] = self._answer(key, self._send(self._client.get_children_async, self._at(key)))
        except zk.NoNodeError:
            return None
        return sorted(names)

    def get_acl(self, key: str) -> Rights | None:
        return self._retrying(self._get_acl, key)

    def _get_acl(self, key: str) -> Rights | None:
        self._catch_up()
        self._pace.take(1)
        try:
            entries, stat = self._answer(key, self._send(self._client.get_acls_async, self._at(key)))
        except zk.NoNodeError:
            return None
        return Rights(format_acl(entries), stat.aversion)

    def get_acls(self, keys: Iterable[str]) -> Iterator[tuple[str, Rights | None]]:
        with self._rights_lock:
            flying: deque[list[str]] = deque()
            ask = iter(keys)
            try:
                for chunk in iter(lambda: list(islice(ask, _RIGHTS)), []):
                    self._pace.take(len(chunk))
                    flying.append(chunk)
                    self._ask_rights(flying, 1)
                    if len(flying) > 1:
                        yield from self._landed_rights(flying)
                while flying:
                    yield from self._landed_rights(flying)
            finally:
                if flying:
                    # Answers that nobody waits for any more must not be taken for those to other keys.
                    self._drop_rights()

    def _ask_rights(self, flying: Sequence[list[str]], last: int) -> None:
        """Send for the last of what is to be in flight; on a connection that is lost or new for all of it."""
        try:
            if self._rights is None:
                raise ConnectionError("there is no connection yet")
            for chunk in list(flying)[-last:]:
                self._rights.ask([self._at(key) for key in chunk])
        except OSError:
            self._retrying(self._ask_rights_anew, flying)

    def _ask_rights_anew(self, flying: Iterable[list[str]]) -> None:
        if self._closed:
            raise UnavailableError(self._uri, "it was closed")
        self._drop_rights()
        try:
            self._rights = RightsStream(self._connection())
            self._rights.catch_up("/")
            for chunk in flying:
                self._rights.ask([self._at(key) for key in chunk])
        except (OSError, *_LOST) as error:
            raise UnavailableError(self._uri, f"{type(error).__name__} {error}".rstrip()) from error
        except _REFUSED as error:
            raise AccessDeniedError(self._uri, type(error).__name__) from error

    def _connection(self) -> Any:  # noqa: ANN401  # a socket, or its encrypted kind
        """Return a connection of its own: opened, encrypted and authenticated by kazoo, and spoken to without it."""
        dialler = self._client_class(**self._options)._connection  # noqa: SLF001 - kazoo opens none on its own
        failed: Exception = UnavailableError(self._uri, "no server's name is known")
        for place in dialler._expand_client_hosts():  # noqa: SLF001 - as above
            try:
                dialler._connect(*place)  # noqa: SLF001 - as above
            except (OSError, *_LOST) as error:
                failed = error
                if dialler._socket is not None:  # noqa: SLF001 - as above
                    dialler._socket.close()  # noqa: SLF001 - as above
            else:
                dialler._socket.settimeout(self._answer_s)  # noqa: SLF001 - as above
                return dialler._socket  # noqa: SLF001 - as above
        raise failed

    def _landed_rights(self, flying: deque[list[str]]) -> Iterator[tuple[str, Rights | None]]:
        keys = flying[0]

        def landed() -> list[Rights | int]:
            try:
                if self._rights is None:
                    raise ConnectionError("it was lost")
                return self._rights.answers(len(keys))
            except OSError as error:
                self._ask_rights_anew(flying)
                raise UnavailableError(self._uri, f"{type(error).__name__} {error}") from error

        found = self._retrying(landed)
        flying.popleft()
        for key, rights in zip(keys, found, strict=True):
            if isinstance(rights, Rights):
                yield key, rights
            elif rights == _NO_NODE:
                yield key, None
            else:
                error = zk.EXCEPTIONS[rights]()
                self._drop_rights()
                if isinstance(error, _REFUSED):
                    raise AccessDeniedError(key, type(error).__name__) from error
                raise UnavailableError(self._uri, f"{type(error).__name__} for {key}") from error

    def _drop_rights(self) -> None:
        if self._rights is not None:
            self._rights.close()
            self._rights = None

    def latest_txn(self) -> int:
        def asked() -> int:
            self._behind = True
            self._catch_up()
            return int(self._client.last_zxid)

        return self._retrying(asked)

    def _at(self, key: str) -> str:
        if not key.startswith("/"):
            raise ValueError(f"not an absolute key: {key!r}")
        return self._chroot + key if key != "/" else self._chroot or "/"

    def _send(self, call: Callable[..., T], *arguments: Any) -> T:  # noqa: ANN401  # kazoo has no types
        if self._closed:
            raise UnavailableError(self._uri, "it was closed")
        return call(*arguments)

    def _answer(self, key: str, answer: Any) -> Any:  # noqa: ANN401  # kazoo has no types
        """Wait for one answer; `NoNodeError` and what a transaction returns are left to the caller."""
        try:
            return answer.get(timeout=self._answer_s)
        except _LOST as error:
            raise UnavailableError(self._uri, f"{type(error).__name__} {error}".rstrip()) from error
        except _REFUSED as error:
            raise AccessDeniedError(key, type(error).__name__) from error


class ZooKeeperStore(ZooKeeperReader):
    """A metadata store on a ZooKeeper ensemble: a `ZooKeeperReader` that writes, too."""

    _client_class = KazooClient

    def __init__(
        self,
        hosts: str,
        *,
        chroot: str = "",
        auth: tuple[str, str] | None = None,
        sasl: tuple[str, str] | None = None,
        tls: Tls | None = None,
        ops_s: float | None = None,
        session_s: float = 30.0,
        patience_s: float = 60.0,
    ) -> None:
        self._parents: set[str] = set()
        self._parents_lock = threading.Lock()
        super().__init__(
            hosts,
            chroot=chroot,
            auth=auth,
            sasl=sasl,
            tls=tls,
            ops_s=ops_s,
            session_s=session_s,
            patience_s=patience_s,
        )

    def write(self, changes: Sequence[Write]) -> list[int]:
        if not changes:
            return []
        self._demand_fitting(changes)
        try:
            self._retrying(self._make_parents, changes)
            return self._transact(changes)
        except _NoParentError:
            # Somebody removed a parent that we knew; nothing was written.
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
            held = self._get_data(key)
            if held is None:
                try:
                    self.write([Write(key, b"")])
                except VersionConflictError:
                    continue
                held = Versioned(b"", 0, children_created=0)
            at = held.children_created or 0
            if at > beyond:
                return at
            child = f"{self._at(key)}/{_RAISED_CHILD}"
            steps = range(at, beyond + 1, _PAIRS)[:_RAISES_IN_FLIGHT]
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
        entries = parse_acl(acl)
        try:
            sent = self._send(self._client.set_acls_async, self._at(key), entries, expected)
            return int(self._answer(key, sent).aversion)
        except zk.BadVersionError as error:
            raise VersionConflictError(key, f"its rights do not have version {expected}") from error
        except zk.NoNodeError as error:
            raise VersionConflictError(key, "it is absent") from error
        except UnavailableError as error:
            raise self._outcome_unknown(error) from error

    def _demand_fitting(self, changes: Sequence[Write]) -> None:
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
                for parent in parents(self._at(change.key)):
                    if parent not in self._parents and parent not in own:
                        wanted.setdefault(parent, change.acl)
                own.add(self._at(change.key))
        seen = [(parent, self._send(self._client.exists_async, parent)) for parent in wanted]
        absent = [parent for parent, answer in seen if self._answer(parent, answer) is None]
        # One client's requests are carried out in order, so a child's creation may follow its parent's unanswered.
        made = [(p, self._send(self._client.create_async, p, b"", self._acl(wanted[p]))) for p in absent]
        for parent, answer in made:
            try:
                self._answer(parent, answer)
            except zk.NodeExistsError:
                pass  # somebody else was faster
            except zk.NoNodeError as error:
                raise _NoParentError from error
        with self._parents_lock:
            self._parents.update(wanted)

    @staticmethod
    def _acl(text: str | None) -> list[ACL]:
        return OPEN_ACL_UNSAFE if text is None else parse_acl(text)

    def _transact(self, changes: Sequence[Write]) -> list[int]:
        transaction = self._client.transaction()
        for change in changes:
            node = self._at(change.key)
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
        """Return what a write raises when its answer is lost; through a closed store it was never sent."""
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
            raise VersionConflictError(change.key, "it is absent") from error
        if isinstance(error, zk.NotEmptyError):
            raise NotEmptyError(change.key) from error
        if isinstance(error, _REFUSED):
            raise AccessDeniedError(change.key, type(error).__name__) from error
        raise UnavailableError(self._uri, f"{type(error).__name__} {error}".rstrip()) from error


@dataclass(frozen=True, slots=True)
class _Asked:
    """Answers that will come: one for all keys, or one for each."""

    together: Any
    each: Sequence[Any]


@dataclass(frozen=True, slots=True)
class _Read:
    """Many keys read by one request, which kazoo lacks; the server has it from 3.6 on.

    request   per key: header, int32 length of the path, path, byte 0 (no watch); then a header that ends it
    answer    per key: header, then int32 length, value, stat; or where the header's kind is -1 an int32 error code
    header    int32 kind (4: a value and its stat), byte 1 at the end, int32 error code

    Source: Apache ZooKeeper 3.9, MultiOperationRecord and MultiResponse.
    """

    type: ClassVar = _MULTI_READ
    paths: tuple[bytes, ...]

    def serialize(self) -> bytes:
        """Return the request's bytes, as kazoo asks for them."""
        reads = [_HEADER.pack(_GET, 0, -1) + _LENGTH.pack(len(path)) + path + b"\0" for path in self.paths]
        return b"".join(reads) + _HEADER.pack(-1, 1, -1)

    @staticmethod
    def deserialize(answer: bytes, offset: int) -> list[tuple[bytes, Any] | Exception]:
        """Return value and stat, or the error, of each key."""
        found: list[tuple[bytes, Any] | Exception] = []
        while True:
            kind, done, _ = _HEADER.unpack_from(answer, offset)
            offset += _HEADER.size
            if done:
                return found
            (number,) = _LENGTH.unpack_from(answer, offset)
            offset += _LENGTH.size
            if kind == _GET:
                end = offset + max(number, 0)
                found.append((bytes(answer[offset:end]), ZnodeStat._make(stat_struct.unpack_from(answer, end))))
                offset = end + stat_struct.size
            else:
                found.append(zk.EXCEPTIONS[number]())


class _NoParentError(Exception):
    """A creation found its parent gone."""
