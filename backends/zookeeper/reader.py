"""What can be read of a ZooKeeper ensemble.

    promise of `MetadataStore`   here
    version                      the node's data version: 0 after create, +1 a change
    children_created             (cversion + children) / 2: the counter behind sequential names, never lowered
    children_txn                 pzxid: the transaction that last created or removed a child
    acl                          scheme:id:perms of every entry, in the server's order
    latest_txn                   zxid of the answer to a sync

A `ZooKeeperReader` has no writing method, and its client refuses every request that is none of the reading ones, at the
one place that all of them pass.

Source: Apache ZooKeeper 3.9, Stat and multi.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Final, TypeVar

from kazoo import exceptions as zk
from kazoo.handlers.threading import KazooTimeoutError
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from backends.errors import AccessDeniedError, UnavailableError
from backends.pace import Pace
from backends.protocols import Acl, Sasl, StoreTls, Versioned
from backends.zookeeper.acl import format_acl
from backends.zookeeper.acl_stream import AclStream
from backends.zookeeper.kazoo_client import LOST, ReadingClient, open_connection, send_reads
from backends.zookeeper.sasl import describe_refusal, make_sasl_options
from backends.zookeeper.watch import NamesWatch

T = TypeVar("T")

_READS: Final = 100
"""Keys in one request: five times faster than one key a request."""
_READS_IN_FLIGHT: Final = 10
"""Enough to hide a round trip of some ms, few enough for the server's request queue."""
_ACLS: Final = 500
"""Requests for ACLs that are sent at once; two such batches are in flight."""
_SILENT_S: Final = 1.0
"""A warning follows after so many seconds without a session."""
_RECONNECT_S: Final = 2.0
"""Longest pause between two attempts to reach a server; kazoo's own would be a minute."""
REFUSED: Final = (zk.NoAuthError, zk.AuthFailedError, zk.InvalidACLError, zk.SessionClosedRequireSaslError)
_NO_NODE: Final = -101
_CLOSED_S: Final = 0.5
"""Between looks whether a store that is watched was closed."""

# kazoo logs requests at its lowest level, credentials included; what fails is raised, and needs no second line.
_LOG: Final = logging.getLogger(__name__)
_QUIET: Final = logging.getLogger(f"{__name__}.kazoo")
_QUIET.setLevel(logging.ERROR)


def _make_versioned(value: bytes | None, stat: Any, acl: str | None) -> Versioned:  # noqa: ANN401  # kazoo has no types
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


def _tls_options(tls: StoreTls) -> dict[str, Any]:
    return {
        "use_ssl": True,
        "ca": tls.ca,
        "certfile": tls.cert,
        "keyfile": tls.key,
        "keyfile_password": tls.key_password,
        "verify_certs": True,
        "check_hostname": True,
    }


def make_options(
    hosts: str,
    *,
    auth: tuple[str, str] | None,
    sasl: Sasl | None,
    tls: StoreTls | None,
    session_s: float,
) -> dict[str, Any]:
    """Return the settings of kazoo's client for `ZooKeeperReader`; it tries to connect for ever."""
    return {
        "hosts": hosts,
        "timeout": session_s,
        "auth_data": [("digest", f"{auth[0]}:{auth[1]}")] if auth else None,
        "sasl_options": make_sasl_options(sasl),
        "connection_retry": {"max_tries": -1, "max_delay": _RECONNECT_S},
        "logger": _QUIET,
        **(_tls_options(tls) if tls else {}),
    }


def _next_child(stat: Any) -> int:  # noqa: ANN401  # kazoo has no types
    # cversion is a signed 32-bit integer that wraps.
    return int((stat.cversion + stat.numChildren) & 0xFFFF_FFFF) // 2


class ZooKeeperReader:
    """What can be read of a ZooKeeper ensemble.

    Opening waits until the session is open, and then until the server has seen every write that ended before.

    Args:
        hosts: ``host:port`` joined with commas.
        chroot: put before every key; made like any parent.
        auth: user and password of the digest scheme.
        sasl: user and password for SASL with DIGEST-MD5, or Kerberos.
        tls: None: not encrypted.
        ops_s: reads of a node, its names or its ACL that are asked for a second, at most; None: no limit.
        session_s: the session's life without the server hearing from us; also the longest wait for one answer.
        patience_s: how long a read is tried again, and the making of parents. A write is never tried again.

    Raises:
        UnavailableError: no session within `patience_s`.
        AccessDeniedError: the server refuses our identity.
    """

    _client_class: ClassVar[type[Any]] = ReadingClient

    def __init__(
        self,
        hosts: str,
        *,
        chroot: str = "",
        auth: tuple[str, str] | None = None,
        sasl: Sasl | None = None,
        tls: StoreTls | None = None,
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
        self._acl_stream: AclStream | None = None
        self._acl_lock = threading.Lock()
        self._closing = threading.Lock()
        self._prepare()
        self._options = make_options(hosts, auth=auth, sasl=sasl, tls=tls, session_s=session_s)
        self._client = self._client_class(**self._options)
        waiting = threading.Timer(_SILENT_S, self._say_waiting, [patience_s - _SILENT_S])
        waiting.daemon = True
        waiting.start()
        try:
            self._client.start(timeout=patience_s)
            self._catch_up()
        except (KazooTimeoutError, UnavailableError, AccessDeniedError) as error:
            refused = self._client.was_refused
            self.close()
            if refused or isinstance(error, AccessDeniedError):
                raise AccessDeniedError(self._uri, describe_refusal(self._options["sasl_options"])) from error
            raise UnavailableError(self._uri, f"no session within {patience_s:g} s") from error
        finally:
            waiting.cancel()

    def _prepare(self) -> None:
        """Make the additional state of a reader that also writes."""

    def _say_waiting(self, for_s: float) -> None:
        """Report that no answer came, and until when the reader waits; once for all callers."""
        moment = time.monotonic()
        if self._closed or moment < self._said_until:
            return
        self._said_until = moment + for_s
        until = time.strftime("%H:%M:%S", time.localtime(time.time() + for_s))
        _LOG.warning("%s does not answer; trying until %s", self._uri, until)

    @property
    def uri(self) -> str:
        return self._uri

    def close(self) -> None:
        self._closed = True
        self._pace.stop()
        with self._closing:  # kazoo refuses to close while another thread still stops
            self._drop_stream()
            self._client.stop()
            self._client.close()

    def _catch_up(self) -> None:
        """Wait until the server has seen every write that ended before, also through another server."""
        if self._behind:
            self._answer("/", self._send(self._client.sync_async, "/"))
            self._behind = False

    def get(self, key: str) -> Versioned | None:
        return self._retrying(self._get, key)

    def _get(self, key: str) -> Versioned | None:
        self._catch_up()
        node = self._path(key)
        self._pace.take(2)
        # One after the other on one connection: sent together, answered in order.
        data, acl = self._send(self._client.get_async, node), self._send(self._client.get_acls_async, node)
        try:
            value, stat = self._answer(key, data)
            entries, _ = self._answer(key, acl)
        except zk.NoNodeError:
            return None
        return _make_versioned(value, stat, format_acl(entries))

    def _get_data(self, key: str) -> Versioned | None:
        self._catch_up()
        self._pace.take(1)
        values = self._receive_value(key, self._send(self._client.get_async, self._path(key)))
        return None if isinstance(values, Exception) else _make_versioned(*values, None)

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Versioned | None]]:
        self._retrying(self._catch_up)
        flying: deque[tuple[list[str], _Asked]] = deque()
        ask = iter(keys)
        while chunk := list(islice(ask, _READS)):
            flying.append((chunk, self._ask(chunk)))
            if len(flying) >= _READS_IN_FLIGHT:
                yield from self._receive_nodes(*flying.popleft())
        while flying:
            yield from self._receive_nodes(*flying.popleft())

    def _ask(self, keys: Sequence[str]) -> "_Asked":
        self._pace.take(len(keys))
        if not self._reads_many:
            return _Asked(None, [self._send(self._client.get_async, self._path(key)) for key in keys])
        answer = self._send(send_reads, self._client, [self._path(key) for key in keys])
        return _Asked(answer, [])

    def _receive_values(self, keys: Sequence[str], asked: "_Asked") -> Sequence[tuple[bytes, Any] | Exception]:
        """Return value and stat, or the error, of each key."""
        if asked.together is not None:
            try:
                values: list[tuple[bytes, Any] | Exception] = self._answer(keys[0], asked.together)
            except zk.UnimplementedError:
                # A server before 3.6; it ends the session too, so what else is in flight is asked for again.
                self._reads_many = False
                return self._receive_values(keys, self._ask(keys))
            return values
        return [self._receive_value(key, answer) for key, answer in zip(keys, asked.each, strict=True)]

    def _receive_value(self, key: str, answer: Any) -> tuple[bytes, Any] | Exception:  # noqa: ANN401  # kazoo has no types
        try:
            value, stat = self._answer(key, answer)
        except zk.NoNodeError as error:
            absent: Exception = error
            return absent
        return value, stat

    def _receive_nodes(self, keys: list[str], asked: "_Asked") -> Iterator[tuple[str, Versioned | None]]:
        try:
            values = self._receive_values(keys, asked)
        except UnavailableError:
            values = self._retrying(lambda: self._receive_values(keys, self._ask(keys)))
        for key, answer in zip(keys, values, strict=True):
            if isinstance(answer, zk.NoNodeError):
                yield key, None
            elif isinstance(answer, REFUSED):
                raise AccessDeniedError(key, type(answer).__name__) from answer
            elif isinstance(answer, Exception):
                raise UnavailableError(self._uri, f"{type(answer).__name__} for {key}") from answer
            else:
                value, stat = answer
                yield key, _make_versioned(value, stat, None)

    def children(self, key: str) -> list[str] | None:
        return self._retrying(self._children, key)

    def _children(self, key: str) -> list[str] | None:
        self._catch_up()
        self._pace.take(1)
        try:
            names: list[str] = self._answer(key, self._send(self._client.get_children_async, self._path(key)))
        except zk.NoNodeError:
            return None
        return sorted(names)

    def watch_names(self, keys: Sequence[str]) -> Iterator[frozenset[str]]:
        watch = NamesWatch(self._client, self._answer, {key: self._path(key) for key in keys})
        seen: frozenset[str] | None = None
        while True:
            names = self._retrying(watch.read)
            if names != seen:
                seen = names
                yield names
            while not watch.wait(_CLOSED_S):
                if self._closed:
                    return

    def get_acl(self, key: str) -> Acl | None:
        return self._retrying(self._get_acl, key)

    def _get_acl(self, key: str) -> Acl | None:
        self._catch_up()
        self._pace.take(1)
        try:
            entries, stat = self._answer(key, self._send(self._client.get_acls_async, self._path(key)))
        except zk.NoNodeError:
            return None
        return Acl(format_acl(entries), stat.aversion)

    def get_acls(self, keys: Iterable[str]) -> Iterator[tuple[str, Acl | None]]:
        with self._acl_lock:
            flying: deque[list[str]] = deque()
            ask = iter(keys)
            try:
                for chunk in iter(lambda: list(islice(ask, _ACLS)), []):
                    self._pace.take(len(chunk))
                    flying.append(chunk)
                    self._ask_acls(flying, 1)
                    if len(flying) > 1:
                        yield from self._receive_acls(flying)
                while flying:
                    yield from self._receive_acls(flying)
            finally:
                if flying:
                    # Answers that no call waits for any longer must not be taken for answers to other keys.
                    self._drop_stream()

    def _ask_acls(self, flying: Sequence[list[str]], last: int) -> None:
        """Request the last of the wanted keys; on a lost or new connection, request all of them again."""
        try:
            if self._acl_stream is None:
                raise ConnectionError("there is no connection yet")
            for chunk in list(flying)[-last:]:
                self._acl_stream.ask([self._path(key) for key in chunk])
        except OSError:
            self._retrying(self._ask_acls_anew, flying)

    def _ask_acls_anew(self, flying: Iterable[list[str]]) -> None:
        if self._closed:
            raise UnavailableError(self._uri, "it was closed")
        self._drop_stream()
        try:
            self._acl_stream = AclStream(open_connection(self._client_class(**self._options), self._answer_s))
            self._acl_stream.catch_up("/")
            for chunk in flying:
                self._acl_stream.ask([self._path(key) for key in chunk])
        except (OSError, *LOST) as error:
            raise UnavailableError(self._uri, f"{type(error).__name__} {error}".rstrip()) from error
        except REFUSED as error:
            raise AccessDeniedError(self._uri, type(error).__name__) from error

    def _receive_acls(self, flying: deque[list[str]]) -> Iterator[tuple[str, Acl | None]]:
        keys = flying[0]

        def receive() -> list[Acl | int]:
            try:
                if self._acl_stream is None:
                    raise ConnectionError("it was lost")
                return self._acl_stream.answers(len(keys))
            except OSError as error:
                self._ask_acls_anew(flying)
                raise UnavailableError(self._uri, f"{type(error).__name__} {error}") from error

        values = self._retrying(receive)
        flying.popleft()
        for key, acl in zip(keys, values, strict=True):
            if isinstance(acl, Acl):
                yield key, acl
            elif acl == _NO_NODE:
                yield key, None
            else:
                error = zk.EXCEPTIONS[acl]()
                self._drop_stream()
                if isinstance(error, REFUSED):
                    raise AccessDeniedError(key, type(error).__name__) from error
                raise UnavailableError(self._uri, f"{type(error).__name__} for {key}") from error

    def _drop_stream(self) -> None:
        if self._acl_stream is not None:
            self._acl_stream.close()
            self._acl_stream = None

    def latest_txn(self) -> int:
        def read_zxid() -> int:
            self._behind = True
            self._catch_up()
            return int(self._client.last_zxid)

        return self._retrying(read_zxid)

    def _path(self, key: str) -> str:
        if not key.startswith("/"):
            raise ValueError(f"not an absolute key: {key!r}")
        return self._chroot + key if key != "/" else self._chroot or "/"

    def _send(self, call: Callable[..., T], *arguments: Any) -> T:  # noqa: ANN401  # kazoo has no types
        if self._closed:
            raise UnavailableError(self._uri, "it was closed")
        return call(*arguments)

    def _answer(self, key: str, answer: Any) -> Any:  # noqa: ANN401  # kazoo has no types
        """Wait for one answer; `NoNodeError` and a transaction's results are left to the caller."""
        try:
            return answer.get(timeout=self._answer_s)
        except LOST as error:
            raise UnavailableError(self._uri, f"{type(error).__name__} {error}".rstrip()) from error
        except REFUSED as error:
            raise AccessDeniedError(key, type(error).__name__) from error


@dataclass(frozen=True, slots=True)
class _Asked:
    """Expected answers: one for all keys, or one for each."""

    together: Any
    each: Sequence[Any]
