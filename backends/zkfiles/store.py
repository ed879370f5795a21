"""The files of ZooKeeper servers as a read-only store that shows one point in time.

Of several servers, the one is shown that a new leader would follow: the latest epoch, then the highest zxid. Records of
the others fill holes of its logs; where servers disagree, that is reported.

Source: docs/formats/zookeeper-files.md.
"""

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backends.errors import CorruptStoreError, ReadOnlyStoreError, UnavailableError, UnsupportedStoreError
from backends.protocols import KEYS, StorePoint, Versioned, Write
from backends.zkfiles import servers, snapshot, txnlog
from backends.zkfiles.changes import changes
from backends.zkfiles.records import CONTAINER, LATEST, OPEN_ACL, OPEN_KEY, Acl, acl_text, session_of, time_of
from backends.zkfiles.restore import NothingToShowError, Restored, restore
from backends.zkfiles.servers import History, Server
from backends.zkfiles.snapshot import NodeWindow, Snapshot, SnapshotNode, column, texts
from backends.zkfiles.tree import Tree

_COUNTER: Final = 0x7FFF_FFFF
_ROWS: Final = 1 << 14
_NUMBER: Final = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]+")
_TTL_TOP: Final = 0xFF0000
_NOTED: Final = 50


@dataclass(frozen=True, slots=True)
class At:
    """A point in time that was asked for: a zxid, or ms since 1970."""

    zxid: int | None = None
    ms: int | None = None


def parse_at(text: str) -> At:
    """Return the point in time that a text names: a zxid, decimal or 0x…, or an ISO 8601 time, by default in UTC.

    Raises:
        ValueError: it is neither.
    """
    if _NUMBER.fullmatch(text):
        zxid = int(text, 0) if text[1:2] in ("x", "X") else int(text)
        if zxid >= 1 << 63:
            raise ValueError(f"not a zxid, which has 63 bits: {text}")
        return At(zxid=zxid)
    try:
        time = datetime.fromisoformat(text)
        return At(ms=int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise ValueError(f"neither a zxid (decimal or 0x…) nor an ISO 8601 time: {text!r}") from None


class ZooKeeperFiles:
    """The keys in the files of ZooKeeper servers at one point in time; safe to use from several threads.

    Args:
        path: a folder with the folders of servers in it, one folder of files, or one file.
        point: the point in time; None: the latest.
        shown: a state that was made already, of files that are there or were; it has no history.

    Raises:
        NoSuchStoreError: there are no such files.
        UnavailableError: a folder cannot be read.
    """

    def __init__(self, path: Path, *, point: At | None = None, shown: Restored | None = None) -> None:
        self._name = f"zkfiles://{servers.format_path(path.absolute())}"
        self._at = point
        self._servers = servers.find(path) if shown is None else []
        self._lock = threading.Lock()
        self._shown = None if shown is None else _Shown(shown, servers.history_of([])[0], (), ())
        self._closed = False

    @property
    def uri(self) -> str:
        # A root that is put behind it makes it a URI that can be opened.
        return f"{self._name}?root="

    def close(self) -> None:
        self._closed = True
        self._shown = None

    def point(self) -> StorePoint:
        shown = self._decide_once()
        at_ms = shown.restored.at_ms
        return StorePoint(
            shown.restored.txn, None if at_ms is None else time_of(at_ms), tuple(shown.restored.gaps), shown.notes
        )

    @property
    def restored(self) -> Restored:
        """The sources of the shown state."""
        return self._decide_once().restored

    def scan(self, root: str) -> Iterator[pa.RecordBatch]:
        tree = self._decide_once().restored.tree
        wanted = _path_of(root)
        names = _Names(tree.base)
        for window in _windows_of(tree, wanted):
            yield _keys_of_window(window, tree, names)
        nodes = (
            (path, node) for path, node in tree.changed.items() if _is_below(path, wanted) and snapshot.is_text(path)
        )
        named: dict[Acl, str] = {}
        while chunk := list(islice(nodes, _ROWS)):
            yield _keys_of_nodes(chunk, named)

    def history(self, root: str) -> Iterator[pa.RecordBatch]:
        shown = self._decide_once()
        until = shown.restored.txn
        if until is None:
            return iter(())
        return changes(shown.history, shown.snapshots, shown.restored.tree.base, _path_of(root), until)

    def get(self, key: str) -> Versioned | None:
        node = self._decide_once().restored.tree.get(_path_of(key))
        return None if node is None else _make_versioned(node)

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Versioned | None]]:
        for key in keys:
            yield key, self.get(key)

    def children(self, key: str) -> list[str] | None:
        tree = self._decide_once().restored.tree
        path = _path_of(key)
        if tree.get(path) is None:
            return None
        names = (below[len(path) + 1 :] for below in tree.children(path))
        return sorted(name.decode() for name in names if snapshot.is_text(name))

    def write(self, changes: Sequence[Write]) -> list[int]:
        raise ReadOnlyStoreError(self._name, f"{len(changes)} changes were asked for")

    def raise_counter(self, key: str, beyond: int) -> int:
        raise ReadOnlyStoreError(self._name, f"{key} was to be raised beyond {beyond}")

    def _decide_once(self) -> "_Shown":
        with self._lock:
            if self._closed:
                raise UnavailableError(self._name, "it was closed")
            if self._shown is None:
                try:
                    shown = _decide(self._servers, self._at)
                    # Makes the index of paths, before there can be two that make it.
                    shown.restored.tree.base.find(b"")
                    self._shown = shown
                except NothingToShowError as error:
                    if self._at is None:
                        raise CorruptStoreError(self._name, f"nothing can be shown: {error}") from error
                    problem = f"the files do not show that point in time: {error}"
                    raise UnsupportedStoreError(self._name, problem) from error
                except OSError as error:
                    raise UnavailableError(self._name, str(error)) from error
            return self._shown


@dataclass(frozen=True, slots=True)
class _Shown:
    """The chosen state."""

    restored: Restored
    history: History
    snapshots: tuple[Path, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Candidate:
    server: Server
    history: History
    notes: tuple[str, ...]

    @property
    def reach(self) -> tuple[int, int]:
        """Its epoch and the last zxid that it has anything of: the order in which leaders are elected."""
        begun = [snapshot.zxid_of(path.name) or 0 for path in self.server.snapshots]
        logged = int(self.history.rows["zxid"][-1]) if len(self.history.rows) else 0
        last = max([logged, *begun])
        return max(self.server.epoch or 0, last >> 32), last


def _decide(folders: Sequence[Server], point: At | None) -> _Shown:
    candidates = sorted((_candidate(server) for server in folders), key=lambda candidate: candidate.reach, reverse=True)
    best: tuple[Restored, _Candidate, History] | None = None
    notes: list[str] = []
    failed: list[str] = []
    for candidate in candidates:
        history = servers.unite(
            candidate.server, candidate.history, [(o.server, o.history) for o in candidates if o is not candidate]
        )
        try:
            until = _until(candidate.server, history, point)
            restored = restore(candidate.server.snapshots, history, until)
            restored.gaps += _not_reached(restored, history, point)
        except NothingToShowError as error:
            failed.append(f"{candidate.server.name}: {error}" if len(folders) > 1 else str(error))
            continue
        if best is None or (
            best[0].gaps and not restored.gaps and servers.are_related(best[1].history, candidate.history)
        ):
            best = restored, candidate, history
        if not best[0].gaps:
            break
        if restored.gaps:
            notes.append(f"{candidate.server.name} has gaps: {restored.gaps[0]}")
    if best is None:
        raise NothingToShowError("; ".join(failed))
    restored, chosen, history = best
    if len(folders) == 1:
        notes = []
    notes = [*failed, *notes, *_make_notes(restored, chosen, candidates, history)]
    snapshots = tuple(path for candidate in [chosen, *candidates] for path in candidate.server.snapshots)
    return _Shown(restored, history, tuple(dict.fromkeys(snapshots)), _shorten(notes))


def _shorten(notes: list[str]) -> tuple[str, ...]:
    rest = [f"and {len(notes) - _NOTED} more notes"] if len(notes) > _NOTED else []
    return (*notes[:_NOTED], *rest)


def _candidate(server: Server) -> _Candidate:
    logs = []
    notes = list(server.notes)
    for path in server.logs:
        log = txnlog.survey(path)
        logs.append(log)
        if log.damage is not None:
            notes.append(str(log.damage))
        elif log.why in (txnlog.LogEnd.TORN_MARK, txnlog.LogEnd.TORN_SIZE):
            notes.append(f"{path} at byte {log.end}: {log.why}, as a crash leaves it")
        elif not len(log.entries):
            notes.append(f"{path} has no transaction ({log.size} bytes), as a crash leaves it")
        if log.version != txnlog.VERSION:
            notes.append(f"{path} is of version {log.version}, where {txnlog.VERSION} is known")
    history, repeated = servers.history_of(logs)
    return _Candidate(server, history, (*notes, *repeated))


def _until(server: Server, history: History, point: At | None) -> int | None:
    """Return the last zxid that is wanted."""
    if point is None or point.ms is None:
        return None if point is None else point.zxid
    zxids = history.rows["zxid"]
    early = np.flatnonzero(history.rows["ms"] <= point.ms)
    # Before the first record and behind the last one only snapshots tell the time.
    if len(early) and early[-1] < len(zxids) - 1:
        return int(zxids[early[-1]])
    for path in reversed(server.snapshots):
        begun = snapshot.zxid_of(path.name)
        if begun is None or (len(early) and begun <= int(zxids[-1])) or (len(zxids) > len(early) and begun >= zxids[0]):
            continue
        try:
            image = snapshot.read(path)
        except OSError:
            continue  # what is done without it says so
        if image.damage is None and image.ends == begun and 0 < image.look(digest=False).ms <= point.ms:
            return begun
    if not len(early):
        raise NothingToShowError("everything in them is later")
    return int(zxids[-1])


def _not_reached(restored: Restored, history: History, point: At | None) -> list[str]:
    """Report that no record shows the changes up to a time, if none is later."""
    last = restored.at_ms or 0
    if point is None or point.ms is None or last >= point.ms or bool((history.rows["ms"] > point.ms).any()):
        return []
    gap_s = (point.ms - last) / 1000
    return [f"that time was not reached: the files end at zxid {restored.txn or 0:#x}, {gap_s:.3f} s before"]


def _make_notes(restored: Restored, chosen: _Candidate, candidates: list[_Candidate], history: History) -> list[str]:
    """Return notes for people about the choice of the state."""
    notes: list[str] = []
    if len(candidates) > 1:
        names = ", ".join(candidate.server.name for candidate in candidates if candidate is not chosen)
        notes.append(f"the history of {chosen.server.name} is shown; also there: {names}")
    notes += restored.notes
    for candidate in candidates:
        notes += candidate.notes
        notes += servers.differences(chosen.server, history, candidate.server, candidate.history, restored.txn or 0)
    if chosen.server.epoch is not None and len(candidates) == 1 and restored.applied:
        notes.append("one server of an ensemble cannot tell whether its last transactions were ever committed")
    for row in history.breaks.tolist():
        previous, following = (int(history.rows["zxid"][number]) for number in (row - 1, row))
        doubt = f", and the last transactions up to {previous:#x} may never have been committed"
        notes.append(
            f"the logs go on from zxid {previous:#x} with {following:#x} ({history.place(row)}): "
            "what is between is not here" + ("" if history.rows["cut"][row] else doubt)
        )
    if len(history.rows):
        first = int(history.rows["zxid"][0])
        notes.append(f"history begins with zxid {first:#x} ({history.place(0)})")
    else:
        notes.append("there are no transactions: no history")
    return [*notes, *_orphans(restored.tree)]


def _orphans(tree: Tree) -> list[str]:
    """Report ephemeral nodes of sessions that are not there: a server removes them when it starts."""
    rows = tree.base.look(digest=False).owned
    rows = rows[~tree.hidden[rows]]
    nodes = [(tree.base.path_at(row), tree.base.node_at(row).owner) for row in rows.tolist()]
    nodes += [(path, node.owner) for path, node in tree.changed.items() if node.owner]
    lost = [path for path, owner in nodes if session_of(owner) and owner not in tree.sessions]
    if not lost:
        return []
    return [f"{len(lost)} ephemeral nodes are of sessions that are not there, {lost[0].decode('utf-8', 'replace')}"]


def _path_of(key: str) -> bytes:
    if not key.startswith("/"):
        raise ValueError(f"not an absolute key: {key!r}")
    return b"" if key == "/" else key.encode()


def _is_below(path: bytes, root: bytes) -> bool:
    return path == root or path.startswith(root + b"/")


def _windows_of(tree: Tree, root: bytes) -> Iterator[NodeWindow]:
    base: Snapshot = tree.base
    row = base.find(root) if root else 0
    if row is not None and base.nodes:
        yield from base.windows(row, base.below(row))


def _keys_of_window(window: NodeWindow, tree: Tree, names: "_Names") -> pa.RecordBatch:
    """Return the unchanged nodes of a window, as `KEYS`."""
    shown = ~tree.hidden[window.first : window.first + len(window.tail)]
    not_text = tree.base.look(digest=False).not_text - window.first
    shown[not_text[(not_text >= 0) & (not_text < len(shown))]] = False
    path, data, tail = window.path, window.data, window.tail
    if not shown.all():
        kept = np.flatnonzero(shown)
        path, data, tail = path.take(column(kept)), data.take(column(kept)), tail[kept]
    key = path.cast(pa.string())
    if window.first == 0 and len(shown) and shown[0]:
        key = pa.concat_arrays([texts(["/"]), key[1:]])
    stat = {name: tail[name].astype(tail.dtype[name].newbyteorder("=")) for name in tail.dtype.names or ()}
    owner = stat["owner"]
    apart = (owner == CONTAINER) | ((owner >> 40) & 0xFFFFFF == _TTL_TOP)
    columns = [
        key,
        data,
        column(stat["version"].astype(np.int64)),
        names.of(stat["acl"]),
        column(stat["czxid"]),
        column(stat["mzxid"]),
        *(column(stat[name], (stat[name] < 0) | (stat[name] > LATEST)) for name in ("ctime", "mtime")),
        column(np.where(apart, 0, owner)),
        column(stat["cversion"].astype(np.int64) & _COUNTER),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=KEYS)


class _Names:
    """The ACLs of a snapshot as text, by key."""

    def __init__(self, base: Snapshot) -> None:
        self._keys = column(np.array([OPEN_KEY, *base.acl], np.int64))
        self._texts = texts([acl_text(acl) for acl in (OPEN_ACL, *base.acl.values())])

    def of(self, keys: npt.NDArray[np.int64]) -> pa.Array:
        """Return the ACLs of keys; null: the file does not have it."""
        return self._texts.take(pc.index_in(column(keys), self._keys))


def _keys_of_nodes(pairs: Sequence[tuple[bytes, SnapshotNode]], named: dict[Acl, str]) -> pa.RecordBatch:
    nodes = [node for _, node in pairs]
    for node in nodes:
        if node.acl is not None and node.acl not in named:
            named[node.acl] = acl_text(node.acl)
    columns = [
        [path.decode() or "/" for path, _ in pairs],
        [node.data or b"" for node in nodes],
        [node.version for node in nodes],
        [None if node.acl is None else named[node.acl] for node in nodes],
        [node.czxid for node in nodes],
        [node.mzxid for node in nodes],
        [time_of(node.ctime) for node in nodes],
        [time_of(node.mtime) for node in nodes],
        [session_of(node.owner) for node in nodes],
        [node.cversion & _COUNTER for node in nodes],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, KEYS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=KEYS)


def _make_versioned(node: SnapshotNode) -> Versioned:
    return Versioned(
        value=node.data or b"",
        version=node.version,
        created_txn=node.czxid,
        changed_txn=node.mzxid,
        created_ms=time_of(node.ctime),
        changed_ms=time_of(node.mtime),
        owner=session_of(node.owner),
        children_created=node.cversion & _COUNTER,
        acl=None if node.acl is None else acl_text(node.acl),
    )
