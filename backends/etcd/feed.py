"""Changes of keys of an etcd as they happen: a watch with previous values, from any kept revision.

    a revision comes whole     a server sends all of a revision's events of one watch in one answer
    nothing is missing up to   the last revision that the watch gave; where the store's revision is the same, that is
                               all there is. Where it is a later one, of other keys, a short watch of all keys shows it:
                               answers to requests for progress say too much before 3.5.8 and 3.4.25
    compacted away             a gap; the next base shows what is there
    who made a change, when    etcd keeps neither: the time is that of receipt, the session the lease of the key

Source: etcd-io/etcd v3.5, server/mvcc/watchable_store.go; issue 15220 of etcd-io/etcd; run against 3.5.1.
"""

import logging
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from backends.errors import AccessDeniedError, CorruptStoreError, UnavailableError
from backends.etcd import columns, pages, rpc
from backends.etcd.channel import Channel
from backends.etcd.store import EtcdStore
from backends.protocols import FOLLOWED, FeedGap, Followed, StoreTls

MEANS: Final = "watch"
_LOG: Final = logging.getLogger(__name__)
_TICK_S: Final = 0.5
"""Between two reads of the store's revision."""
_WAITING: Final = 64
"""Most waiting answers of the watch: the server keeps later ones."""
_PROOF_S: Final = 5.0
_AGAIN_S: Final = 0.5
_PERMANENT: Final = 0


@dataclass(frozen=True, slots=True)
class _Seen:
    """The store's revision at a time."""

    revision: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class _Compacted:
    """The watch begins before the kept revisions."""

    revision: int


_Item: TypeAlias = pa.Table | _Seen | _Compacted | Exception


class EtcdFeed:
    """Changes of keys of an etcd cluster.

    Args:
        hosts: ``host:port`` joined with commas, all of one cluster.
        tops: keys that are followed, with all below them.
        auth: user and password.
        tls: None: not encrypted.
        session_s: the longest wait for one answer.
        patience_s: how long a read of the base is tried again.
    """

    def __init__(
        self,
        hosts: str,
        tops: Sequence[str],
        *,
        auth: tuple[str, str] | None = None,
        tls: StoreTls | None = None,
        session_s: float = 30.0,
        patience_s: float = 60.0,
    ) -> None:
        self._hosts = hosts
        self._uri = f"etcd://{hosts}"
        self._tops = tuple(tops)
        self._low = min(tops).encode()
        self._high = max(pages.end_of(f"{top}/".encode()) for top in tops)
        self._auth, self._tls = auth, tls
        self._waits = session_s, patience_s
        self._channel = Channel(hosts, uri=self._uri, auth=auth, tls=tls, answer_s=session_s)
        self._patient = Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, UnavailableError) and not self._channel.closed),
            stop=stop_after_delay(patience_s),
            wait=wait_random_exponential(multiplier=0.1, max=5),
            reraise=True,
        )
        self._may_see_all = True

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def means(self) -> str:
        return MEANS

    def close(self) -> None:
        self._channel.close()

    def identify(self) -> str:
        # A server that is restored from a snapshot is of another cluster.
        return f"{int(self._patient(self._look).cluster_id):x}"

    def _look(self) -> Any:  # noqa: ANN401 - a message
        request = rpc.RangeRequest(key=self._low, keys_only=True)
        asked = self._channel.send(lambda client: client.kvstub.Range, request)
        return self._channel.answer(asked, self._tops[0]).header

    def open_base(self) -> EtcdStore:
        session_s, patience_s = self._waits
        options: dict[str, Any] = {"auth": self._auth, "tls": self._tls}
        options |= {"top": self._tops[0], "session_s": session_s, "patience_s": patience_s}
        latest = EtcdStore(self._hosts, **options)
        try:
            revision = latest.point().txn
        finally:
            latest.close()
        return EtcdStore(self._hosts, **options, revision=revision)

    def follow(self, after: int) -> Iterator[Followed | FeedGap]:
        through, until_ms, problem_before = after, 0, ""
        while not self._channel.closed:
            begun = through
            connection = _Connection(self._channel, self._low, self._high, begun + 1)
            try:
                latest: _Seen | None = None
                previous: _Item | None = None
                while not self._channel.closed:
                    item = connection.take()
                    if isinstance(item, AccessDeniedError):
                        raise item
                    if isinstance(item, Exception):
                        if str(item) != problem_before:
                            _LOG.warning("changes after revision %d are waited for: %s", through, item)
                        problem_before = str(item)
                        break
                    if isinstance(item, _Compacted):
                        yield FeedGap(through, f"etcd compacted its history up to revision {item.revision - 1}")
                        return
                    rows = FOLLOWED.empty_table()
                    if isinstance(item, _Seen):
                        latest, problem_before = item, ""
                        # It may have been read before the last changes came.
                        if item.revision < begun:
                            problem = f"its revision is {item.revision}, and changes up to {begun} were given before"
                            raise CorruptStoreError(self._uri, f"{problem}: it was restored, or is another cluster")
                        if item.revision > through and isinstance(previous, _Seen):
                            through = self._prove(through, item.revision)
                    elif item is not None:
                        through = max(through, pc.max(item["txn"]).as_py())
                        rows = self._select(item)
                    if latest is not None and latest.revision <= through:
                        until_ms = latest.at_ms
                    previous = item
                    yield Followed(rows, through, until_ms)
            finally:
                connection.close()
            yield Followed(FOLLOWED.empty_table(), through, until_ms)
            time.sleep(_AGAIN_S)

    def _select(self, rows: pa.Table) -> pa.Table:
        """Return the rows of followed keys: other keys may be between them."""
        wanted = np.zeros(rows.num_rows, np.bool_)
        for top in self._tops:
            below = pc.or_(pc.equal(rows["key"], top), pc.starts_with(rows["key"], f"{top}/"))
            wanted |= below.to_numpy()
        return rows.filter(pa.array(wanted))

    def _prove(self, through: int, revision: int) -> int:
        """Return the later of two revisions if no followed key changed between them; else the first."""
        if not self._may_see_all:
            return through
        try:
            client = self._channel.client()
        except UnavailableError:
            return through
        ended = threading.Event()
        create = rpc.WatchCreateRequest(key=b"\0", range_end=b"\0", start_revision=through + 1)

        def requests() -> Iterator[Any]:
            yield rpc.WatchRequest(create_request=create)
            ended.wait()

        call = rpc.WatchStub(client.channel).WatchPage(requests(), metadata=client.metadata, timeout=_PROOF_S)
        try:
            for response in call:
                if response.canceled:
                    self._may_see_all = bool(response.compact_revision)
                    return through
                if not response.events:
                    continue
                keys = columns.read_events(response.events).keys
                if any(self._low <= key < self._high for key in keys.key.to_pylist()):
                    return through
                if int(keys.modified.max()) >= revision:
                    return revision
        except grpc.RpcError:
            """The main watch reports the error."""
        finally:
            ended.set()
            call.cancel()
        return through


class _Connection:
    """A watch on one connection, and reads of the store's revision beside it, each in a thread of its own."""

    def __init__(self, channel: Channel, low: bytes, high: bytes, start: int) -> None:
        self._channel = channel
        self._range = low, high
        self._items: queue.Queue[_Item] = queue.Queue(_WAITING)
        self._ended = threading.Event()
        self._call: Any = None
        for target in (lambda: self._watch(start), self._look):
            threading.Thread(target=target, name="etcd-feed", daemon=True).start()

    def take(self) -> _Item | None:
        """Return the next answer; None: none came for a while."""
        try:
            return self._items.get(timeout=2 * _TICK_S)
        except queue.Empty:
            return None

    def close(self) -> None:
        """End both."""
        self._ended.set()
        if self._call is not None:
            self._call.cancel()
        with suppress(queue.Empty):
            while True:
                self._items.get_nowait()

    def _put(self, item: _Item) -> None:
        while not self._ended.is_set():
            with suppress(queue.Full):
                self._items.put(item, timeout=_TICK_S)
                return

    def _watch(self, start: int) -> None:
        try:
            client = self._channel.client()
        except Exception as error:  # noqa: BLE001 - the other thread raises it, or tries again
            self._put(error)
            return
        low, high = self._range
        create = rpc.WatchCreateRequest(key=low, range_end=high, start_revision=start, prev_kv=True)

        def requests() -> Iterator[Any]:
            yield rpc.WatchRequest(create_request=create)
            self._ended.wait()

        self._call = rpc.WatchStub(client.channel).WatchPage(requests(), metadata=client.metadata)
        try:
            for response in self._call:
                self._channel.check(response.header)
                if response.canceled and not response.compact_revision:
                    self._put(AccessDeniedError("the keys that are followed", response.cancel_reason))
                    return
                if response.compact_revision:
                    self._put(_Compacted(response.compact_revision))
                    return
                # The parts of an answer hold whole revisions only together.
                if response.events:
                    self._put(_make_rows(columns.read_events(response.events)))
            self._put(UnavailableError("etcd", "the watch ended"))
        except grpc.RpcError as error:
            self._put(self._channel.failure(error, client, "the keys that are followed"))
        except Exception as error:  # noqa: BLE001 - the other thread raises it, or tries again
            self._put(error)

    def _look(self) -> None:
        """Report the store's revision again and again."""
        request = rpc.RangeRequest(key=self._range[0], keys_only=True)
        while not self._ended.wait(_TICK_S):
            at_ms = time.time_ns() // 1_000_000
            try:
                asked = self._channel.send(lambda client: client.kvstub.Range, request)
                revision = int(self._channel.answer(asked, self._range[0].decode()).header.revision)
            except Exception as error:  # noqa: BLE001 - the other thread raises it, or tries again
                self._put(error)
                return
            self._put(_Seen(revision, at_ms))


def _make_rows(events: columns.Events) -> pa.Table:
    """Return the events of a watch as `FOLLOWED`."""
    changes = pages.changes(events)
    count = changes.num_rows
    keys, deleted = events.keys, pa.array(events.deleted)
    lease = np.where(events.deleted, events.lease_before, keys.lease)

    def unless_deleted(values: Any) -> pa.Array:  # noqa: ANN401 - a column
        return pc.if_else(deleted, pa.scalar(None, pa.int64()), pa.array(values, pa.int64()))

    known = {
        **{name: changes[name] for name in ("key", "txn", "op", "before", "after")},
        "received_ms": pa.array(np.full(count, time.time_ns() // 1_000_000)),
        "session": pc.if_else(pa.array(lease == _PERMANENT), pa.scalar(None, pa.int64()), pa.array(lease, pa.int64())),
        "version": unless_deleted(keys.modified),
        "created_txn": unless_deleted(keys.created),
        "owner": unless_deleted(keys.lease),
        "children_created": unless_deleted(keys.version + 1),
    }
    return pa.table({f.name: known.get(f.name, pa.nulls(count, f.type)) for f in FOLLOWED}, schema=FOLLOWED)
