"""The committed changes of a ZooKeeper, out of its servers' logs while they are written.

A base is the newest snapshot that serves, with the committed transactions after it. What follows comes from the tree
of the last snapshot before it, so each row has the bytes before, and a session's end the nodes that went with it.

    what happens                                               becomes
    a record is written, and proven committed                  rows
    logs are deleted before they were read, or do not go on    a gap
    a server is given a whole snapshot                         a gap, or another server's log is read
    the tree's digest is not the server's                      a gap
    transactions turn out never to have been committed         nothing; they had no rows

Source: docs/formats/zookeeper-files.md.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from backends.errors import BackendError, CorruptStoreError, NoSuchStoreError, UnavailableError
from backends.protocols import FOLLOWED, FeedGap, Followed, MetadataStore
from backends.zkfiles import servers, snapshot, txnlog
from backends.zkfiles.committed import CommittedLog, LogRole, Void, epoch_of, find_role
from backends.zkfiles.followed_tree import FollowedTree, Mismatch, Tops
from backends.zkfiles.restore import Restored
from backends.zkfiles.servers import Server
from backends.zkfiles.store import ZooKeeperFiles
from backends.zkfiles.tail import Broken, Logged
from backends.zkfiles.tree import Tree

_LOG: Final = logging.getLogger(__name__)
_PAUSE_S: Final = 0.3
"""Between two reads of the logs."""
_ROWS: Final = 1 << 13
_BYTES: Final = 8 << 20
_BASE_S: Final = 30.0
"""How long a base waits for the proof of its snapshot's transactions."""
_SAMPLES: Final = 1 << 12

Clock = Callable[[], int]


class Shown(Protocol):
    """The state of an ensemble that clients see."""

    def take(self) -> tuple[int | None, list[tuple[int, int]]]:
        """Return the zxid of the last state that clients saw (None: not known), and the states since the last call.

        Returns:
            The zxid; of each answer the time of its question, ms since 1970, and its zxid.
        """
        ...

    def close(self) -> None:
        """Ask no longer."""
        ...


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000


class AskedStore(Protocol):
    """A store that is asked for its last transaction."""

    def latest_txn(self) -> int:
        """Return the number of the last transaction; every later read has the writes that ended before this call."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


class ShownState:
    """The last transaction of a state that clients are shown, asked for again and again in a thread.

    Args:
        connect: opens the store; it is opened again when it failed.
        clock_ms: ms since 1970.
    """

    def __init__(self, connect: Callable[[], AskedStore], clock_ms: Clock = _clock_ms) -> None:
        self._connect = connect
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._shown: int | None = None
        self._samples: deque[tuple[int, int]] = deque(maxlen=_SAMPLES)
        self._failure: Exception | None = None
        self._closed = threading.Event()
        self._store: AskedStore | None = None
        self._thread = threading.Thread(target=self._run, name="zookeeper-shown-state", daemon=True)
        self._thread.start()

    def take(self) -> tuple[int | None, list[tuple[int, int]]]:
        with self._lock:
            if self._failure is not None:
                raise self._failure
            samples = list(self._samples)
            self._samples.clear()
            return self._shown, samples

    def close(self) -> None:
        self._closed.set()
        store = self._store
        if store is not None:
            # An answer that is waited for never comes where the servers are gone.
            store.close()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                with closing(self._connect()) as store:
                    self._store = store
                    while not self._closed.is_set():
                        self._ask(store)
                        self._closed.wait(_PAUSE_S)
            except BackendError as error:
                # Servers that are gone have logs all the same.
                _LOG.info("clients cannot ask what is shown: %s", error)
                self._closed.wait(_PAUSE_S)
            except Exception as error:  # noqa: BLE001 - who takes the state raises it
                with self._lock:
                    self._failure = error
                return

    def _ask(self, store: AskedStore) -> None:
        asked_ms = self._clock_ms()
        shown = store.latest_txn()
        with self._lock:
            self._shown = shown
            self._samples.append((asked_ms, shown))


@dataclass(slots=True)
class _Begun:
    """A state to continue from: the tree, and the log after it."""

    tree: FollowedTree
    log: CommittedLog
    server: Server


class ZooKeeperLogFeed:
    """Changes from the files of one server, or of several servers of one ensemble.

    Args:
        uri: of the ensemble.
        logs: folders of servers: dataDir and dataLogDir, or above them.
        tops: keys that are followed, with all below them.
        shown: what clients are shown; None: no client can ask, so of a participant only what most logs have, or what a
            later epoch goes on from, is proven.
        clock_ms: ms since 1970.
        pause_s: between two reads of the logs.
    """

    def __init__(
        self,
        uri: str,
        logs: Sequence[Path],
        tops: Sequence[str],
        *,
        shown: Shown | None = None,
        clock_ms: Clock = _clock_ms,
        pause_s: float = _PAUSE_S,
    ) -> None:
        self._uri = uri
        self._logs = tuple(logs)
        self._tops = Tops(tops)
        self._clock_ms = clock_ms
        self._closed = threading.Event()
        self._pause_s = pause_s
        self._state = shown
        self._shown: int | None = None
        self._samples: deque[tuple[int, int]] = deque(maxlen=_SAMPLES)
        self._until_ms = 0
        # A base must lie behind the gap that it is for.
        self._gap_after: int | None = None

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def means(self) -> str:
        try:
            roles = {find_role(server) for server in servers.find_all(self._logs)}
        except BackendError:
            roles = set()
        return "observer" if roles == {LogRole.OBSERVER} else "logs"

    def identify(self) -> str | None:
        return None

    def close(self) -> None:
        self._closed.set()
        if self._state is not None:
            self._state.close()

    def open_base(self) -> MetadataStore:
        problems: list[str] = []
        for server in self._find():
            for path in reversed(server.snapshots):
                begun = self._begin_at(server, path, None, problems)
                if begun is not None:
                    try:
                        if self._reach_proven(begun, problems):
                            if self._gap_after is None or begun.tree.zxid > self._gap_after:
                                return self._show(begun)
                            reached = f"{path} and the logs reach {begun.tree.zxid:#x}"
                            problems.append(f"{reached}; changes are missing after {self._gap_after:#x}")
                    finally:
                        begun.log.close()
        raise UnavailableError(self._uri, f"no snapshot serves as a base yet: {'; '.join(problems[-3:]) or 'none'}")

    def follow(self, after: int) -> Iterator[Followed | FeedGap]:
        while not self._closed.is_set():
            try:
                begun = self._begin_behind(after)
            except UnavailableError as error:
                _LOG.warning("%s", error)
                yield self._make_idle(after)
                self._closed.wait(self._pause_s)
                continue
            if isinstance(begun, FeedGap):
                self._gap_after = begun.after
                yield begun
                return
            try:
                yield from self._follow(begun, after)
            finally:
                begun.log.close()
            return

    def _find(self) -> list[Server]:
        """Return the servers; the first is the one that would be elected."""
        try:
            listed = servers.find_all(self._logs)
        except NoSuchStoreError as error:
            raise UnavailableError(self._uri, str(error)) from error

        def reach(server: Server) -> tuple[int, int]:
            begun = [snapshot.zxid_of(path.name) or 0 for path in server.snapshots]
            logged = [txnlog.first_of(path.name) or 0 for path in server.logs]
            return server.epoch or 0, max([*begun, *logged], default=0)

        return sorted(listed, key=reach, reverse=True)

    def _begin_at(self, server: Server, path: Path, until: int | None, problems: list[str]) -> _Begun | None:
        """Return the state of a snapshot; None if it has something later than `until`, or is of no use."""
        begun = snapshot.zxid_of(path.name)
        if begun is None or (until is not None and begun > until):
            return None
        try:
            image = snapshot.read(path)
        except OSError as error:
            problems.append(f"{path} cannot be read ({error.strerror})")
            return None
        if image.damage is not None:
            problems.append(f"{image.damage}")
            return None
        if until is not None and image.ends > until:
            problems.append(f"{path} has effects up to {image.ends:#x}")
            return None
        try:
            tree = FollowedTree(Tree(image, digest=True), begun if until is None else until, self._tops)
        except Mismatch as error:
            problems.append(error.problem)
            return None
        rest = [other for other in self._find() if other.name != server.name]
        return _Begun(tree, CommittedLog([server, *rest], begun, tree.judge, tree.read_config), server)

    def _begin_behind(self, through: int) -> _Begun | FeedGap:
        """Return the state after a transaction."""
        problems: list[str] = []
        for server in self._find():
            for path in reversed(server.snapshots):
                begun = self._begin_at(server, path, through, problems)
                if begun is None:
                    continue
                try:
                    self._advance(begun, through)
                    if begun.tree.zxid >= through and begun.tree.is_exact:
                        return begun
                    problems.append(f"{path} and the logs reach {begun.tree.zxid:#x}")
                except Mismatch as error:
                    problems.append(f"{path}: transaction {error.zxid:#x}: {error.problem}")
                except OSError as error:
                    begun.log.close()
                    raise UnavailableError(self._uri, str(error)) from error
                begun.log.close()
        self._look_at_state()
        if self._shown is not None and self._shown < through:
            problem = (
                f"clients are shown transaction {self._shown:#x}, where {through:#x} was followed: another history"
            )
            raise CorruptStoreError(self._uri, problem)
        if not self._has_later(through):
            raise UnavailableError(self._uri, f"no file has transaction {through:#x} yet: {'; '.join(problems[-3:])}")
        why = "; ".join(problems[-3:]) or "no snapshot is as old"
        return FeedGap(through, f"the servers' files do not show the state after transaction {through:#x}: {why}")

    def _has_later(self, zxid: int) -> bool:
        """Whether a snapshot or a log begins after a transaction."""
        paths = [path for server in self._find() for path in (*server.snapshots, *server.logs)]
        return any(max(snapshot.zxid_of(path.name) or 0, txnlog.first_of(path.name) or 0) > zxid for path in paths)

    def _advance(self, begun: _Begun, until: int) -> None:
        """Apply the committed transactions up to one that is known to be committed."""
        while begun.tree.zxid < until:
            reached = begun.tree.zxid
            for item in begun.log.read(until):
                if isinstance(item, Logged):
                    begun.tree.apply(item, 0)
                    if item.zxid >= until:
                        return
            if begun.tree.zxid == reached:
                return

    def _reach_proven(self, begun: _Begun, problems: list[str]) -> bool:
        """Apply all committed transactions; return whether the state is then proven."""
        first, deadline = begun.tree.zxid, self._clock_ms() + _BASE_S * 1000
        known = epoch_of(first)
        proven = begun.log.role is LogRole.STANDALONE
        try:
            while not self._closed.is_set():
                self._look_at_state()
                for item in begun.log.read(self._shown):
                    if isinstance(item, Broken):
                        problems.append(item.why)
                        return proven and begun.tree.is_exact
                    if isinstance(item, Logged):
                        begun.tree.apply(item, 0)
                        proven |= epoch_of(item.zxid) == known or begun.tree.agreed > 0
                shown = self._shown
                proven |= begun.log.goes_on
                proven |= shown is not None and epoch_of(shown) == known and shown >= first
                if proven and begun.tree.is_exact:
                    return True
                if self._clock_ms() > deadline:
                    break
                self._closed.wait(self._pause_s)
        except Mismatch as error:
            problems.append(f"{begun.tree.tree.base.path}: transaction {error.zxid:#x}: {error.problem}")
            return False
        except OSError as error:
            raise UnavailableError(self._uri, str(error)) from error
        problems.append(f"nothing proves {begun.tree.tree.base.path}, up to {begun.tree.ends:#x}, yet")
        return False

    def _show(self, begun: _Begun) -> MetadataStore:
        tree = begun.tree
        path = tree.tree.base.path
        restored = Restored(tree.tree, tree.zxid or None, tree.at_ms, path, tree.ends)
        return ZooKeeperFiles(path.parent, shown=restored)

    def _look_at_state(self) -> None:
        if self._state is not None:
            self._shown, samples = self._state.take()
            self._samples += samples

    def _follow(self, begun: _Begun, through: int) -> Iterator[Followed | FeedGap]:
        tree, log = begun.tree, begun.log
        self._gap_after = None
        yield self._make_idle(through)
        while not self._closed.is_set():
            began_ms = self._clock_ms()
            self._look_at_state()
            shown = through if tree.zxid < through else self._shown
            gap = None
            try:
                for item in log.read(shown):
                    match item:
                        case Logged():
                            tree.apply(item, began_ms)
                            if tree.rows_held >= _ROWS or tree.bytes_held >= _BYTES:
                                yield Followed(tree.take_rows(), tree.zxid, self._until_ms)
                        case Void(first, last):
                            _LOG.warning("transactions %#x to %#x were never committed", first, last)
                        case Broken(why=why):
                            gap = why
            except Mismatch as error:
                gap = f"transaction {error.zxid:#x}: {error.problem}"
            except OSError as error:
                _LOG.warning("%s: %s", self._uri, error)
            else:
                self._look_until(begun, began_ms)
            yield Followed(tree.take_rows(), tree.zxid, self._until_ms)
            if gap is not None:
                self._gap_after = tree.zxid
                yield FeedGap(tree.zxid, gap)
                return
            self._closed.wait(self._pause_s)

    def _make_idle(self, through: int) -> Followed:
        return Followed(FOLLOWED.empty_table(), through, self._until_ms)

    def _look_until(self, begun: _Begun, began_ms: int) -> None:
        """Find the time up to which every committed change was read."""
        tree, log = begun.tree, begun.log
        if log.role is LogRole.STANDALONE and not log.waiting:
            self._until_ms = began_ms
            return
        while self._samples and self._is_reached(self._samples[0][1], begun):
            self._until_ms = max(self._until_ms, self._samples.popleft()[0])
        if self._state is None and tree.at_ms is not None:
            self._until_ms = max(self._until_ms, tree.at_ms)

    @staticmethod
    def _is_reached(shown: int, begun: _Begun) -> bool:
        """Whether everything up to a state that clients saw was read.

        An epoch in which nothing was written yet has no record: a server that takes part in it was given all before.
        """
        tree, log = begun.tree, begun.log
        if shown <= tree.zxid:
            return True
        if shown & 0xFFFF_FFFF or log.waiting or log.epoch != epoch_of(shown):
            return False
        folders = {path.parent for path in begun.server.snapshots}
        listed = [path.name for folder in folders for path in folder.iterdir()]
        return not any((snapshot.zxid_of(name) or 0) > tree.zxid for name in listed)
