"""Stores that fail where they are told to: calls that fail by their number, and a line to a server that is cut or slow.

what                    works on                 fails at
`FaultyStore`           any store                calls, by their number
`Proxy`                 any server over TCP      bytes: cut before or after a request, cut, split or held answers
`MemoryLine`            the store in memory      the same, where a store has no connection
"""

import select
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol, Self, TypeVar

from backends.errors import BackendError, OutcomeUnknownError, UnavailableError, VersionConflictError
from backends.protocols import Acl, MetadataStore, Versioned, Write
from tests.support.memory_store import MemoryStore

T = TypeVar("T")

_CHUNK: Final = 1 << 16
_POLL_S: Final = 0.01
_SEEN_S: Final = 120.0
"""How long a write may take to show on a machine under load."""


class CrashError(BaseException):
    """The process dies here: like a kill, it passes every handler of errors."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens at one call.

    Attributes:
        error: is raised.
        after: whether the call has had its effect by then.
    """

    error: BaseException
    after: bool


class FaultyStore:
    """A store whose calls are counted from 0, each key of a pipelined read as one, and fail by their number.

    Attributes:
        calls: how many there were.
    """

    def __init__(self, store: MetadataStore, faults: Callable[[int], Fault | None]) -> None:
        self._store = store
        self._faults = faults
        self.calls = 0

    def _call(self, call: Callable[[], T]) -> T:
        fault = self._faults(self.calls)
        self.calls += 1
        if fault is None:
            return call()
        if fault.after:
            with suppress(BackendError):
                call()
        raise fault.error

    @property
    def uri(self) -> str:
        return self._store.uri

    def get(self, key: str) -> Versioned | None:
        return self._call(lambda: self._store.get(key))

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Versioned | None]]:
        for nodes in self._store.get_many(keys):
            yield self._call(lambda nodes=nodes: nodes)  # type: ignore[misc]  # mypy cannot infer a default's type

    def children(self, key: str) -> list[str] | None:
        return self._call(lambda: self._store.children(key))

    def write(self, changes: Sequence[Write]) -> list[int]:
        return self._call(lambda: self._store.write(changes))

    def raise_counter(self, key: str, beyond: int) -> int:
        return self._call(lambda: self._store.raise_counter(key, beyond))

    def close(self) -> None:
        self._store.close()


class Line(Protocol):
    """What is between a store and its server. Every order counts from now on, and for anybody who connects later."""

    def cut_before(self, marker: bytes) -> None:
        """Cut the connection that carries the next request with these bytes in it; the server never sees it."""
        ...

    def cut_after(self, marker: bytes, seen: Callable[[], bool]) -> None:
        """Let the next request with these bytes pass, and cut once `seen` says that it took effect; no answer comes."""
        ...

    def cut_answers(self, sizes: Sequence[int]) -> None:
        """Cut what is connected; the next connections are each cut after so many bytes of answers, later ones never."""
        ...

    def split_answers(self, size: int, pause_s: float = 0.0) -> None:
        """Have answers arrive in pieces of so many bytes, with a pause after each."""
        ...

    def down(self) -> None:
        """Cut what is connected, and let nobody connect."""
        ...

    def up(self) -> None:
        """Let clients connect again."""
        ...


@dataclass(frozen=True, slots=True)
class _Order:
    """A cut at a request: before the server has it, or (with `seen`) when it took effect."""

    marker: bytes
    seen: Callable[[], bool] | None


class Proxy:
    """A relay on 127.0.0.1 in front of a server, that misbehaves when it is told to; a `Line`.

    Requests are told by bytes that they hold, so it knows no protocol: it works for every one that carries values as
    they are, neither compressed nor encrypted.

    Args:
        host, port: of the server.
    """

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._lock = threading.Lock()
        self._order: _Order | None = None
        self._settling = threading.Lock()
        self._sizes: list[int] = []
        self._piece: int | None = None
        self._pause_s = 0.0
        self._is_down = False
        self._closed = threading.Event()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._muted: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.cuts = 0
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    @property
    def hosts(self) -> str:
        """What a client connects to instead of the server."""
        return f"127.0.0.1:{self._listening.getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # or the accepting thread would wait on
        self._listening.close()
        self._cut_all()

    def cut_before(self, marker: bytes) -> None:
        self._order = _Order(marker, None)

    def cut_after(self, marker: bytes, seen: Callable[[], bool]) -> None:
        self._order = _Order(marker, seen)

    def cut_answers(self, sizes: Sequence[int]) -> None:
        with self._lock:
            self._sizes = list(sizes)
        self._cut_all()

    def split_answers(self, size: int, pause_s: float = 0.0) -> None:
        self._piece, self._pause_s = size, pause_s

    def down(self) -> None:
        self._is_down = True
        self._cut_all()

    def up(self) -> None:
        self._is_down = False

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            with self._settling:
                pass
            try:
                if self._is_down:
                    raise ConnectionRefusedError
                server = socket.create_connection(self._server)
            except OSError:
                client.close()
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                limit = self._sizes.pop(0) if self._sizes else None
                self._pairs.append((client, server))
            for relay, arguments in ((self._requests, ()), (self._answers, (limit,))):
                threading.Thread(
                    target=self._relay, args=(relay, client, server, *arguments), name="proxy", daemon=True
                ).start()

    def _relay(self, relay: Callable[..., None], client: socket.socket, server: socket.socket, *rest: object) -> None:
        with suppress(OSError):  # an end that was closed, by its peer or by us
            relay(client, server, *rest)
        self._cut(client, server)

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        previous = b""
        while data := client.recv(_CHUNK):
            order = self._order
            if order is not None and order.marker in previous + data:
                self._order = None
                if order.seen is None:
                    return
                # The answer must not overtake the cut, nor a new connection the request, which may come in pieces.
                with self._settling:
                    self._muted.add(client)
                    server.sendall(data)
                    self._await(order.seen, client, server)
                return
            server.sendall(data)
            previous = (previous + data)[-_CHUNK:]

    def _await(self, seen: Callable[[], bool], client: socket.socket, server: socket.socket) -> None:
        for _ in range(int(_SEEN_S / _POLL_S)):
            if seen() or self._closed.wait(_POLL_S):
                return
            if select.select([client], [], [], 0)[0] and (rest := client.recv(_CHUNK)):
                server.sendall(rest)

    def _answers(self, client: socket.socket, server: socket.socket, limit: int | None) -> None:
        while data := server.recv(_CHUNK):
            if client in self._muted:
                continue
            allowed = data if limit is None else data[:limit]
            size = self._piece or len(data)
            for start in range(0, len(allowed), size):
                client.sendall(allowed[start : start + size])
                if self._pause_s:
                    self._closed.wait(self._pause_s)
            if limit is not None:
                limit -= len(allowed)
                if limit <= 0:
                    return

    def _cut_all(self) -> None:
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            self._cut(*pair)

    def _cut(self, client: socket.socket, server: socket.socket) -> None:
        with self._lock:
            if (client, server) not in self._pairs:
                return
            self._pairs.remove((client, server))
            self.cuts += 1
        for end in (client, server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)  # wakes who is reading from it
            end.close()


class MemoryLine:
    """A store without a connection, that behaves as if it had one; itself both the store and its `Line`.

    Reads are tried again by an adapter until they are answered, so they show nothing of a cut.
    """

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._order: _Order | None = None
        self._is_down = False

    def cut_before(self, marker: bytes) -> None:
        self._order = _Order(marker, None)

    def cut_after(self, marker: bytes, seen: Callable[[], bool]) -> None:
        self._order = _Order(marker, seen)

    def cut_answers(self, sizes: Sequence[int]) -> None:
        """Nothing is on its way."""

    def split_answers(self, size: int, pause_s: float = 0.0) -> None:
        """Nothing is on its way."""

    def down(self) -> None:
        self._is_down = True

    def up(self) -> None:
        self._is_down = False

    @property
    def uri(self) -> str:
        return self._store.uri

    def _require_up(self) -> None:
        if self._is_down:
            raise UnavailableError(self.uri, "it is away")

    def _change(self, marked: bytes, change: Callable[[], T]) -> T:
        self._require_up()
        order = self._order
        if order is None or order.marker not in marked:
            return change()
        self._order = None
        if order.seen is not None:
            with suppress(VersionConflictError):
                change()
            order.seen()
        raise OutcomeUnknownError(self.uri, "the line was cut")

    def get(self, key: str) -> Versioned | None:
        self._require_up()
        return self._store.get(key)

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Versioned | None]]:
        self._require_up()
        return self._store.get_many(keys)

    def children(self, key: str) -> list[str] | None:
        self._require_up()
        return self._store.children(key)

    def write(self, changes: Sequence[Write]) -> list[int]:
        marked = b"".join(change.key.encode() + (change.value or b"") for change in changes)
        return self._change(marked, lambda: self._store.write(changes))

    def raise_counter(self, key: str, beyond: int) -> int:
        self._require_up()
        return self._store.raise_counter(key, beyond)

    def get_acl(self, key: str) -> Acl | None:
        self._require_up()
        return self._store.get_acl(key)

    def get_acls(self, keys: Iterable[str]) -> Iterator[tuple[str, Acl | None]]:
        self._require_up()
        return self._store.get_acls(keys)

    def latest_txn(self) -> int:
        self._require_up()
        return self._store.latest_txn()

    def set_acl(self, key: str, acl: str, *, expected: int) -> int:
        return self._change(key.encode() + acl.encode(), lambda: self._store.set_acl(key, acl, expected=expected))

    def close(self) -> None:
        self._store.close()
