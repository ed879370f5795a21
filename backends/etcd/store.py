"""etcd as a metadata store.

    promise of `MetadataStore`   here
    keys in a tree               keys are flat: a name with something below it is listed whether or not it is a key
    version                      the key's mod_revision: never the same twice, also after a removal and a creation
    children_created             writes of the key since its creation, and one: BookKeeper takes ids from that number
    transaction                  one transaction; it compares each key's mod_revision, and that its parents are there
    transaction numbers          revisions of the whole store; etcd keeps no times
    owner                        the lease
    acl                          none: etcd gives rights to users, on ranges of keys
    one point in time            a revision, for as long as it is not compacted

Nothing is read by transactions: a server before 3.5.5 or 3.4.20 dies if the client disconnects during a transaction
that only reads. A write over a broken connection may still be on its way when its result is read. If it is sent again,
it is a conflict, not a second write.

Source: docs/formats/etcd.md; etcd-io/etcd v3.5, API version 3, run against 3.5.1.

In one module because reads and writes share the revision that is shown, and how requests are repeated.
"""

import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import Any, Final

import grpc
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from backends.errors import (
    AbsentKeyError,
    AccessDeniedError,
    CompactedError,
    CorruptStoreError,
    NotEmptyError,
    OutcomeUnknownError,
    ReadOnlyStoreError,
    StoreFullError,
    TooLargeError,
    UnavailableError,
    UnsupportedStoreError,
    VersionConflictError,
)
from backends.etcd import columns, pages, rpc
from backends.etcd.channel import Channel, NeverSentError, PendingCall, StaleTokenError
from backends.pace import Pace
from backends.protocols import StorePoint, StoreTls, Versioned, Write, parents

_READS_IN_FLIGHT: Final = 256
_RANGE: Final = "Range"
_RANGE_PAGE: Final = "RangePage"
"""As `Range`; the answer is not decoded key by key."""
_FIRST: Final = 2
"""The first revision that a write makes: an empty store has revision 1."""
_MADE: Final = 60
"""Most parents in one request: each is a transaction inside it, which counts too."""
_PUTS_IN_FLIGHT: Final = 256
"""To raise a counter: each is a write of its own, and the server syncs many at once."""
_TRANSACTION_BYTES: Final = 1_500_000
"""The server's --max-request-bytes is 1.5 MiB by default."""
_OVERHEAD: Final = 60
"""Bytes of one change in a transaction beside its keys and its value."""
_COUNTER_END: Final = (1 << 56) - 1
"""An id has its bucket in its highest 8 bits and the number in the others."""
_WATCH_S: Final = 60.0
"""A watch is set again after so long, to notice a connection that died silently."""
_TOKENS: Final = 2
"""Tries of a write that is refused because the user's token is old: nothing was done."""


class EtcdStore:
    """A metadata store on an etcd cluster; a scan is of one revision.

    Args:
        hosts: ``host:port`` joined with commas, all of one cluster.
        top: the highest key that is made as a parent; empty: all are. BookKeeper makes none above its root.
        auth: user and password.
        tls: None: not encrypted.
        revision: the revision that all reads show, and nothing is written; None: scans show that of the first look.
        ops_s: keys, and changes of the past, that are read a second, at most; None: no limit.
        session_s: the longest wait for one answer.
        patience_s: how long a read is tried again; a write only while no connection is open to send it.

    Raises:
        UnavailableError: no answer within `patience_s`.
        AccessDeniedError: the user is not let in.
        UnsupportedStoreError: the revision to be scanned is compacted, or has not come yet.
    """

    def __init__(
        self,
        hosts: str,
        *,
        top: str = "",
        auth: tuple[str, str] | None = None,
        tls: StoreTls | None = None,
        revision: int | None = None,
        ops_s: float | None = None,
        session_s: float = 30.0,
        patience_s: float = 60.0,
    ) -> None:
        self._pace = Pace(ops_s)
        self._uri = f"etcd://{hosts}"
        self._top = top
        self._channel = Channel(hosts, uri=self._uri, auth=auth, tls=tls, answer_s=session_s)
        self._retrying = Retrying(
            retry=retry_if_exception(
                lambda error: (
                    isinstance(error, UnavailableError)
                    and not isinstance(error, CompactedError)
                    and not self._channel.closed
                )
            ),
            stop=stop_after_delay(patience_s),
            wait=wait_random_exponential(multiplier=0.1, max=5),
            reraise=True,
        )
        self._sending = self._retrying.copy(
            retry=retry_if_exception(lambda error: isinstance(error, NeverSentError) and not self._channel.closed)
        )
        self._answer_s = session_s
        self._patience_s = patience_s
        self._parents: set[bytes] = set()
        self._lock = threading.Lock()
        self._point: StorePoint | None = None
        self._shown = revision or 0
        self._compacted: int | None = None
        with ExitStack() as broken_off:
            broken_off.callback(self.close)
            try:
                self._retrying(self._look, revision or 0)
            except CompactedError as error:
                raise UnsupportedStoreError(
                    self._uri, f"revision {revision} cannot be shown: {error.detail}"
                ) from error
            broken_off.pop_all()

    @property
    def uri(self) -> str:
        return self._uri

    def close(self) -> None:
        self._pace.stop()
        self._channel.close()

    def _look(self, revision: int = 0) -> int:
        """Return the store's revision; it must be able to show the given one."""
        key = self._top or "/"
        request = rpc.RangeRequest(key=_key(key), revision=revision, count_only=True)
        return int(self._range(request).header.revision)

    # Reading

    def get(self, key: str) -> Versioned | None:
        return self._retrying(self._get, key)

    def _get(self, key: str) -> Versioned | None:
        kvs = self._range(rpc.RangeRequest(key=_key(key), revision=self._shown)).kvs
        return pages.make_versioned(kvs[0]) if kvs else None

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Versioned | None]]:
        flying: deque[tuple[str, Any, PendingCall | UnavailableError]] = deque()

        def receive() -> tuple[str, Versioned | None]:
            key, request, asked = flying.popleft()
            kvs = self._wait_for(request, asked).kvs
            return key, pages.make_versioned(kvs[0]) if kvs else None

        for key in keys:
            request = rpc.RangeRequest(key=_key(key), revision=self._shown)
            flying.append((key, request, self._ask(request)))
            if len(flying) >= _READS_IN_FLIGHT:
                yield receive()
        while flying:
            yield receive()

    def _ask(self, request: Any, method: str = _RANGE) -> PendingCall | UnavailableError:  # noqa: ANN401 - a message
        self._pace.take(request.limit or 1)
        try:
            return self._channel.send(lambda client: getattr(client.kvstub, method), request)
        except UnavailableError as error:
            return error  # it is sent again when its turn comes

    def _wait_for(self, request: Any, asked: PendingCall | UnavailableError, method: str = _RANGE) -> Any:  # noqa: ANN401 - messages
        """Wait for the answer to one of many reads in flight; a lost read is sent again."""
        try:
            if isinstance(asked, PendingCall):
                return self._answer(asked, request)
        except CompactedError:
            raise
        except UnavailableError:
            pass
        return self._retrying(self._range, request, method)

    def children(self, key: str) -> list[str] | None:
        return self._retrying(self._children, key)

    def _children(self, key: str) -> list[str] | None:
        prefix = b"/" if key == "/" else _key(key) + b"/"
        end = pages.end_of(prefix)
        names: set[bytes] = set()
        position, revision = prefix, self._shown
        while True:
            request = rpc.RangeRequest(key=position, range_end=end, limit=pages.PAGE, keys_only=True, revision=revision)
            response = self._range(request)
            revision = revision or response.header.revision
            below = [kv.key[len(prefix) :] for kv in response.kvs]
            names.update(name.partition(b"/")[0] for name in below)
            if not response.more:
                break
            name, slash, _ = below[-1].partition(b"/")
            # What else is below the same name need not be read.
            position = prefix + name + b"0" if slash else prefix + name + b"\0"
        names.discard(b"")
        if not names and key != "/" and not self._range(rpc.RangeRequest(key=_key(key), revision=revision)).kvs:
            return None
        return sorted(name.decode(errors="backslashreplace") for name in names)

    def watch_names(self, keys: Sequence[str]) -> Iterator[frozenset[str]]:
        seen: frozenset[str] | None = None
        while not self._channel.closed:
            revision, names = self._retrying(self._read_names, keys)
            if names != seen:
                seen = names
                yield names
            self._await_change(keys, revision + 1)

    def _read_names(self, keys: Sequence[str]) -> tuple[int, frozenset[str]]:
        """Return the keys below some keys, and a revision that shows them."""
        revision = self._look()
        names = {f"{key}/{name}" for key in keys for name in self._children(key) or ()}
        return revision, frozenset(names)

    def _await_change(self, keys: Sequence[str], start: int) -> None:
        """Wait until something below some keys changed in a revision from `start` on; or for some time."""
        client = self._channel.client()
        ended = threading.Event()

        def requests() -> Iterator[Any]:
            for key in keys:
                prefix = _key(key) + b"/"
                create = rpc.WatchCreateRequest(key=prefix, range_end=pages.end_of(prefix), start_revision=start)
                yield rpc.WatchRequest(create_request=create)
            ended.wait()

        call = rpc.WatchStub(client.channel).Watch(requests(), metadata=client.metadata, timeout=_WATCH_S)
        try:
            for response in call:
                self._channel.check(response.header)
                if response.canceled and not response.compact_revision:
                    raise AccessDeniedError(keys[0], response.cancel_reason)
                if response.canceled or response.events:
                    return
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                # The names are read again, which says if there is no answer.
                self._channel.failure(error, client, keys[0])
        finally:
            ended.set()
            call.cancel()

    def _range(self, request: Any, method: str = _RANGE) -> Any:  # noqa: ANN401 - messages
        self._pace.take(request.limit or 1)
        return self._answer(self._channel.send(lambda client: getattr(client.kvstub, method), request), request)

    def _answer(self, asked: PendingCall, request: Any) -> Any:  # noqa: ANN401 - messages
        return self._channel.answer(asked, request.key.decode(errors="backslashreplace"))

    # One point in time

    def point(self) -> StorePoint:
        with self._lock:
            if self._point is None:
                moment = self._retrying(self._look)
                self._compacted = self._retrying(self._read_compaction)
                notes = []
                if self._compacted is not None:
                    notes.append(
                        "history is whole: nothing was compacted"
                        if not self._compacted
                        else f"history begins after revision {self._compacted}: earlier changes are compacted"
                    )
                if not self._shown:
                    notes.append("single keys are read as they are now")
                self._point = StorePoint(self._shown or moment, None, notes=tuple(notes))
            return self._point

    def _read_compaction(self) -> int | None:
        """Return the revision up to which the history is gone; 0: it is complete; None: the user may not read it."""
        with closing(self._watch(1)) as watched:
            try:
                next(watched)
                self._look(1)
            except AccessDeniedError:
                return None
            except _PastGoneError as error:
                return error.revision
            except CompactedError:
                try:
                    next(watched)
                except _PastGoneError as error:
                    return error.revision
        return 0

    def scan(self, root: str) -> Iterator[pa.RecordBatch]:
        revision = self.point().txn or 0
        above = _key(root) if root != "/" else b""
        try:
            if above:
                request = rpc.RangeRequest(key=above, revision=revision)
                kvs = self._retrying(self._range, request, _RANGE_PAGE).kvs
                if kvs:
                    yield pages.batch(columns.read_keys(kvs))
            for response in pages.read(
                pages.ranges(above),
                revision,
                partial(self._ask, method=_RANGE_PAGE),
                partial(self._wait_for, method=_RANGE_PAGE),
            ):
                yield pages.batch(columns.read_keys(response.kvs))
        except DecodeError as error:
            raise CorruptStoreError(self._uri, "an answer cannot be read") from error

    def history(self, root: str) -> Iterator[pa.RecordBatch]:
        until = self.point().txn or 0
        start = max((self._compacted or 0) + 1, _FIRST)
        progress = time.monotonic()
        while start <= until:
            previous = start
            try:
                with closing(self._watch(start)) as watched:
                    for response in watched:
                        if not response.events:
                            continue
                        newest = start
                        for raws in pages.cut(response.events):
                            # What is not taken from the stream yet, the server does not send.
                            self._pace.take(len(raws))
                            events = columns.read_events(raws)
                            newest = max(newest, int(events.keys.modified.max()) + 1)
                            rows = pages.below(pages.changes(events), root)
                            rows = rows.filter(pc.less_equal(rows["txn"], until))
                            if rows.num_rows:
                                yield rows
                        # The events of one revision come together.
                        start = newest
                        if start > until:
                            return
            except DecodeError as error:
                raise CorruptStoreError(self._uri, "an answer about the past cannot be read") from error
            except CompactedError:
                raise
            except UnavailableError:
                if start > previous:
                    progress = time.monotonic()
                elif time.monotonic() > progress + self._patience_s:
                    raise
                self._retrying(self._look)

    def _watch(self, start: int) -> Generator[Any]:
        """Yield the answers of a watch of all keys from a revision on; the first one proves the right to watch.

        All keys, since only they show the end: every revision changed one of them.
        """
        client = self._channel.client()
        create = rpc.WatchCreateRequest(key=b"\0", range_end=b"\0", start_revision=start, prev_kv=True)
        ended = threading.Event()

        def requests() -> Iterator[Any]:
            yield rpc.WatchRequest(create_request=create)
            ended.wait()  # the watch ends with its requests

        call = rpc.WatchStub(client.channel).WatchPage(requests(), metadata=client.metadata, timeout=self._answer_s)
        try:
            for response in call:
                self._channel.check(response.header)
                if response.canceled and not response.compact_revision:
                    raise AccessDeniedError("all keys, to read their history", response.cancel_reason)
                if response.compact_revision:
                    raise _PastGoneError(self._uri, response.compact_revision)
                yield response
        except grpc.RpcError as error:
            raise self._channel.failure(error, client, "all keys, to read their history") from error
        finally:
            ended.set()
            call.cancel()

    # Writing

    def write(self, changes: Sequence[Write]) -> list[int]:
        if self._shown:
            raise ReadOnlyStoreError(self._uri, f"it shows revision {self._shown}")
        if not changes:
            return []
        _require_proper(changes)
        self._require_fitting(changes)
        parents_of = self._parents_of(changes)
        self._make_parents(parents_of - self._parents)
        try:
            return self._transact(changes, parents_of)
        except _NoParentError:
            # Another client removed a parent that we knew; nothing was written.
            with self._lock:
                self._parents.clear()
            self._make_parents(parents_of)
            try:
                return self._transact(changes, parents_of)
            except _NoParentError as error:
                raise VersionConflictError(changes[0].key, "its parents were removed meanwhile") from error

    def _parents_of(self, changes: Sequence[Write]) -> set[bytes]:
        """Return the parents that must exist, except those that an earlier change makes."""
        wanted: set[bytes] = set()
        own: set[str] = set()
        for change in changes:
            if change.value is not None and change.expected is None:
                for parent in parents(change.key):
                    inside = not self._top or parent == self._top or parent.startswith(self._top + "/")
                    if inside and parent not in own:
                        wanted.add(parent.encode())
                own.add(change.key)
        return wanted

    def _make_parents(self, wanted: set[bytes]) -> None:
        names = sorted(wanted)
        for start in range(0, len(names), _MADE):
            chunk = names[start : start + _MADE]
            made = [
                rpc.RequestOp(
                    request_txn=rpc.TxnRequest(
                        compare=[_compare_created(key, present=False)],
                        success=[rpc.RequestOp(request_put=rpc.PutRequest(key=key))],
                    )
                )
                for key in chunk
            ]
            absent = rpc.TxnRequest(compare=[_compare_created(key, present=True) for key in chunk], failure=made)
            self._commit(absent, chunk[0].decode())
        with self._lock:
            self._parents.update(wanted)

    def _transact(self, changes: Sequence[Write], parents_of: set[bytes]) -> list[int]:
        compare, success, failure = [], [], []
        for change in changes:
            key = change.key.encode()
            failure.append(_read(key))
            if change.expected is None:
                compare.append(_compare_created(key, present=False))
            else:
                compare.append(rpc.Compare(result="EQUAL", target="MOD", key=key, mod_revision=change.expected))
            if change.value is None:
                success.append(rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key)))
            else:
                success.append(rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=bytes(change.value))))
        compare += [self._childless(change, changes) for change in changes if change.value is None]
        for key in sorted(parents_of):
            compare.append(_compare_created(key, present=True))
            failure.append(_read(key))
        response = self._commit(rpc.TxnRequest(compare=compare, success=success, failure=failure), changes[0].key)
        if response.succeeded:
            revision = int(response.header.revision)
            return [-1 if change.value is None else revision for change in changes]
        raise self._refusal(changes, [item.response_range.kvs for item in response.responses])

    def _childless(self, change: Write, changes: Sequence[Write]) -> Any:  # noqa: ANN401 - a message
        """Return the comparison that a key has no children except those removed with it."""
        below = change.key.encode() + b"/"
        end = pages.end_of(below)
        own = [other for other in changes if other.key.startswith(f"{change.key}/")]
        if not own:
            return rpc.Compare(result="EQUAL", target="CREATE", key=below, range_end=end, create_revision=0)
        request = rpc.RangeRequest(key=below, range_end=end, limit=len(own) + 1, keys_only=True)
        seen = self._retrying(self._range, request)
        removed = {other.key.encode() for other in own if other.value is None}
        if len(removed) < len(own) or any(kv.key not in removed for kv in seen.kvs):
            raise NotEmptyError(change.key)
        # Nothing else was there, and nothing may have come since.
        following = seen.header.revision + 1
        return rpc.Compare(result="LESS", target="MOD", key=below, range_end=end, mod_revision=following)

    def _refusal(self, changes: Sequence[Write], node: Sequence[Any]) -> Exception:
        """Return the error for the first expectation that failed; `node` are the changes' keys, then the parents'."""
        for change, kvs in zip(changes, node, strict=False):
            if change.expected is None:
                if kvs:
                    return VersionConflictError(change.key, "it exists")
            elif not kvs:
                return AbsentKeyError(change.key)
            elif kvs[0].mod_revision != change.expected:
                return VersionConflictError(change.key, f"it does not have version {change.expected}")
        if not all(node):
            missing = [change.key for change, kvs in zip(changes, node, strict=False) if not kvs]
            created = sum(change.expected is None for change in changes)
            if len(missing) == created and not all(node[len(changes) :]):
                return _NoParentError()
        return NotEmptyError(next(change.key for change in changes if change.value is None))

    def _commit(self, request: Any, key: str) -> Any:  # noqa: ANN401 - messages
        """Carry a transaction out; an unsent one is sent again. Where an answer is lost, the result is unknown."""
        return self._sending(self._commit_once, request, key)

    def _commit_once(self, request: Any, key: str) -> Any:  # noqa: ANN401 - messages
        for tries in range(_TOKENS):
            try:
                return self._channel.answer(self._channel.send(lambda client: client.kvstub.Txn, request), key)
            except StaleTokenError:
                if tries + 1 == _TOKENS:
                    raise
            except (NeverSentError, StoreFullError):
                raise
            except UnavailableError as error:
                if self._channel.closed:
                    raise
                raise OutcomeUnknownError(error.store, error.detail) from error
        raise AssertionError("unreachable")

    def _require_fitting(self, changes: Sequence[Write]) -> None:
        size = 0
        for change in changes:
            size += _OVERHEAD + 3 * len(change.key.encode()) + len(change.value or b"")
            if size > _TRANSACTION_BYTES:
                raise TooLargeError(change.key, f"more than {_TRANSACTION_BYTES} bytes")

    def raise_counter(self, key: str, beyond: int) -> int:
        if beyond >= _COUNTER_END:
            raise ValueError(f"numbers end at {_COUNTER_END}: {beyond}")
        return self._retrying(self._raise_counter, key, beyond)

    def _raise_counter(self, key: str, beyond: int) -> int:
        while True:
            node = self._get(key)
            if node is None:
                with suppress(VersionConflictError):  # another client was faster
                    self.write([Write(key, b"")])
                continue
            number = node.children_created or 0
            if number > beyond:
                return number
            # Only the number of writes counts: the value and the lease stay as they are.
            put = rpc.PutRequest(key=_key(key), ignore_value=True, ignore_lease=True)
            puts = rpc.TxnRequest(
                compare=[_compare_created(_key(key), present=True)], success=[rpc.RequestOp(request_put=put)]
            )
            count = min(beyond + 1 - number, _PUTS_IN_FLIGHT)
            flying = [self._channel.send(lambda client: client.kvstub.Txn, puts) for _ in range(count)]
            for asked in flying:
                self._channel.answer(asked, key)


class _PastGoneError(CompactedError):
    """A watch was to begin in the past that is compacted, up to a revision."""

    def __init__(self, store: str, revision: int) -> None:
        super().__init__(store, f"revisions before {revision} are gone")
        self.revision = revision


class _NoParentError(Exception):
    """A creation found a parent gone."""


def _key(key: str) -> bytes:
    if not key.startswith("/"):
        raise ValueError(f"not an absolute key: {key!r}")
    return key.encode()


def _compare_created(key: bytes, *, present: bool) -> Any:  # noqa: ANN401 - a message
    return rpc.Compare(result="GREATER" if present else "EQUAL", target="CREATE", key=key, create_revision=0)


def _read(key: bytes) -> Any:  # noqa: ANN401 - a message
    return rpc.RequestOp(request_range=rpc.RangeRequest(key=key, keys_only=True))


def _require_proper(changes: Sequence[Write]) -> None:
    for change in changes:
        _key(change.key)
        if change.value is None and change.expected is None:
            raise ValueError(f"a removal names no version: {change.key}")
        if change.expected is not None and change.expected <= 0:
            raise VersionConflictError(change.key, f"it does not have version {change.expected}")
    if len({change.key for change in changes}) < len(changes):
        raise ValueError("a key comes twice in one transaction")
