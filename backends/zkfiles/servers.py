"""The folders of ZooKeeper servers: the files that belong together, and one history from their logs.

    found at               what
    version-2/snapshot.*   the tree, with the zxid in hex; may be in dataDir
    version-2/log.*        transactions; may be in dataLogDir, which then has no snapshots
    version-2/currentEpoch only of an ensemble: the last epoch that the server took part in

Every server of an ensemble writes the same record for a zxid, except for the parts of a multi that failed: records are
compared by their `mark`. A server logs a record before it is committed, so the last records of a crashed leader may be
in no history: if another server goes on with the next epoch from an earlier
zxid, the records between were never committed.

Source: docs/formats/zookeeper-files.md; Apache ZooKeeper 3.9, FileTxnSnapLog.
"""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from backends.errors import NoSuchStoreError, UnavailableError
from backends.zkfiles import snapshot, txnlog
from backends.zkfiles.records import REFUSED
from backends.zkfiles.txnlog import ENTRY, Log

Entries = npt.NDArray[np.void]

ROW: Final = np.dtype([*ENTRY.descr, ("log", "<i4"), ("cut", "?")])
"""A record of a history: an `ENTRY`, the number of its log, and whether the log before that one ends in damage."""
_EPOCH: Final = "currentEpoch"
_LOOK_ALIKE: Final = re.compile(r"(snapshot|log)\..*")
_COUNTER: Final = 0xFFFF_FFFF
_SHOWN: Final = 20


@dataclass(slots=True)
class Server:
    """The files of one server.

    Attributes:
        name: its folder, for people.
        snapshots: by zxid, ascending.
        logs: by zxid, ascending.
        epoch: the last one that it took part in; None: it does not say.
        notes: files there that are not read.
    """

    name: str
    snapshots: list[Path] = field(default_factory=list)
    logs: list[Path] = field(default_factory=list)
    epoch: int | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class History:
    """Records of one history, zxids ascending.

    Attributes:
        logs: `rows` point into these.
        rows: `ROW`.
        breaks: numbers of the rows that do not go on from the one before them.
    """

    logs: tuple[Log, ...]
    rows: Entries
    breaks: npt.NDArray[np.int64]

    def place(self, row: int) -> str:
        """Return the place of a record, for people."""
        entry = self.rows[row]
        return f"{self.logs[int(entry['log'])].path} at byte {int(entry['at'])}"

    def goes_on(self, previous: int, row: int) -> bool:
        """Whether a record can follow a zxid; after damage, only the very next number can."""
        return goes_on(previous, int(self.rows["zxid"][row]), cut=bool(self.rows["cut"][row]))


def follows(previous: int, following: int) -> bool:
    """Whether a zxid can follow another."""
    return following == previous + 1 or (following >> 32 > previous >> 32 and following & _COUNTER == 1)


def goes_on(previous: int, following: int, *, cut: bool) -> bool:
    """Whether a record can follow a zxid.

    Args:
        previous: zxid of the record before, or of a snapshot.
        following: of the record.
        cut: the log before ends in damage, or the record is the first one of a log with another name.
    """
    return following == previous + 1 or (not cut and follows(previous, following))


def find(path: Path) -> list[Server]:
    """Return the servers with files at or below a path; symbolic links below it are not followed.

    Raises:
        NoSuchStoreError: there are none.
        UnavailableError: a folder cannot be read.
    """
    try:
        if path.is_file():
            return [_of_file(path)]
    except OSError as error:
        raise UnavailableError(str(path), str(error)) from error
    return find_all([path])


def find_all(tops: Sequence[Path]) -> list[Server]:
    """Return the servers with files in or below some folders; symbolic links below them are not followed.

    Raises:
        NoSuchStoreError: there are none.
        UnavailableError: a folder cannot be read.
    """
    notes: list[str] = []
    folders = []
    for top in tops:
        try:
            if not top.is_dir():
                raise NoSuchStoreError(str(top), "no such folder")
            for folder in _walk(top, notes):
                server = _of_folder(folder, top, is_alone=len(tops) == 1)
                if server is not None:
                    folders.append(server)
        except OSError as error:
            raise UnavailableError(str(top), str(error)) from error
    servers = _pair(folders)
    if not servers:
        places = "neither it nor a folder below it has" if len(tops) == 1 else "none of them has"
        detail = f"{places} snapshots or logs of ZooKeeper{_join_notes(notes)}"
        raise NoSuchStoreError(", ".join(map(format_path, tops)), detail)
    servers[0].notes += notes
    return servers


def _join_notes(notes: Sequence[str]) -> str:
    return f"; {'; '.join(notes[:_SHOWN])}" if notes else ""


def _of_file(path: Path) -> Server:
    # Named by a person: a link is what it points to.
    path = path.resolve()
    with txnlog.open_file(path, buffering=0) as file:
        head = file.read(4)
    server = Server(str(path))
    if head == txnlog.MAGIC:
        server.logs.append(path)
    else:
        server.snapshots.append(path)
    return server


def _walk(top: Path, notes: list[str]) -> Iterable[Path]:
    def fail(error: OSError) -> None:
        raise error

    for folder, names, files in os.walk(top, onerror=fail):
        names.sort()
        links = [name for name in names if Path(folder, name).is_symlink()]
        notes += [f"{format_path(Path(folder, name))} is a symbolic link, and not followed" for name in links]
        if files:
            yield Path(folder)


def format_path(path: Path) -> str:
    """Return a printable form of a path with any bytes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _of_folder(folder: Path, top: Path, *, is_alone: bool) -> Server | None:
    server = Server(format_path(folder.relative_to(top)) if folder != top and is_alone else format_path(folder))
    snapshots: list[tuple[int, Path]] = []
    logs: list[tuple[int, Path]] = []
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        begun, first = snapshot.zxid_of(entry.name), txnlog.first_of(entry.name)
        if begun is None and first is None:
            if _LOOK_ALIKE.fullmatch(entry.name):
                server.notes.append(f"{format_path(folder / entry.name)} is not read: no server gives such a name")
            continue
        if begun is not None:
            snapshots.append((begun, folder / entry.name))
        elif first is not None:
            logs.append((first, folder / entry.name))
    server.snapshots = [path for _, path in sorted(snapshots)]
    server.logs = [path for _, path in sorted(logs)]
    server.epoch = _epoch(folder / _EPOCH)
    return server if snapshots or logs or server.notes else None


def _epoch(path: Path) -> int | None:
    try:
        with txnlog.open_file(path, buffering=0) as file:
            text = file.read(32).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if re.fullmatch(r"[0-9]{1,10}", text) else None


def _pair(folders: list[Server]) -> list[Server]:
    """Unite folders of snapshots with the folders of the same servers' logs."""
    trees = [server for server in folders if server.snapshots and not server.logs]
    logs = [server for server in folders if server.logs and not server.snapshots]
    whole = [
        server for server in folders if (server.snapshots and server.logs) or not (server.snapshots or server.logs)
    ]
    for log in logs:
        near = [(_count_shared(log.name, tree.name), tree) for tree in trees]
        nearest = [tree for share, tree in near if share == max(share for share, _ in near)]
        if not nearest:
            whole.append(log)
            continue
        if len(nearest) > 1:
            # As many of both, side by side: in the order of their names.
            place = logs.index(log)
            nearest = [trees[place % len(trees)]] if len(logs) == len(trees) else nearest[:1]
        tree = nearest[0]
        tree.notes.append(f"the logs in {log.name} are taken for those of the server in {tree.name}")
        tree.notes += log.notes
        tree.logs = sorted([*tree.logs, *log.logs], key=lambda path: txnlog.first_of(path.name) or 0)
        tree.epoch = log.epoch if tree.epoch is None else tree.epoch
    usable = [server for server in (*trees, *whole) if server.snapshots or server.logs]
    rest = [note for server in whole if not (server.snapshots or server.logs) for note in server.notes]
    if usable:
        usable[0].notes += rest
    return sorted(usable, key=lambda server: server.name)


def _count_shared(path: str, other: str) -> int:
    pairs = zip(Path(path).parts, Path(other).parts, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(Path(path).parts), len(Path(other).parts)))


def history_of(logs: Sequence[Log]) -> tuple[History, list[str]]:
    """Return the records of one server's logs as one history, and the records that contradict it.

    Logs are put in the order of their first records: one that has another name than its own hides none of the others.
    Whether it goes on from the one before is not believed then, but for the very next zxid.
    """
    logs = sorted(logs, key=lambda log: log.first)
    parts = []
    damaged = False
    for number, log in enumerate(logs):
        part = np.zeros(len(log.entries), ROW)
        for name in ENTRY.names or ():
            part[name] = log.entries[name]
        part["log"] = number
        part["cut"][:1] = damaged or log.is_misnamed
        damaged = log.damage is not None or (damaged and not len(part))
        parts.append(part)
    rows = np.concatenate([np.empty(0, ROW), *parts])
    notes = [
        f"{log.path} has another log's name: its first transaction is {log.first:#x}; its records tell its place"
        for log in logs
        if log.is_misnamed
    ]
    if len(rows):
        highest = np.maximum.accumulate(rows["zxid"])
        kept = np.append(True, rows["zxid"][1:] > highest[:-1])
        repeated, rows = rows[~kept], rows[kept]
        if len(repeated):
            row = np.minimum(np.searchsorted(rows["zxid"], repeated["zxid"]), len(rows) - 1)
            # Servers number the refusal of a request that they cannot parse as the transaction before it.
            equal = (repeated["kind"] == REFUSED) | (rows["zxid"][row] == repeated["zxid"]) & (
                rows["mark"][row] == repeated["mark"]
            )
            notes += [
                f"{logs[int(entry['log'])].path} at byte {int(entry['at'])}: zxid {int(entry['zxid']):#x} again, with "
                "other bytes; the first one is taken"
                for entry in repeated[~equal]
            ]
    return History(tuple(logs), rows, _breaks(rows)), notes


def _breaks(rows: Entries) -> npt.NDArray[np.int64]:
    previous, following = rows["zxid"][:-1], rows["zxid"][1:]
    next_epoch = (following >> 32 > previous >> 32) & (following & _COUNTER == 1) & ~rows["cut"][1:]
    return np.flatnonzero(~((following == previous + 1) | next_epoch)) + 1


def _never_committed(server: Server, history: History) -> set[tuple[int, int]]:
    """Return ranges of zxids, ends apart, that a server passes over where it goes on with the next epoch.

    A server that was given a whole snapshot in between proves nothing: it has no log of what it missed.
    """
    begun = [zxid for path in server.snapshots if (zxid := snapshot.zxid_of(path.name)) is not None]
    zxids = history.rows["zxid"]
    places = np.flatnonzero(zxids[1:] >> 32 > zxids[:-1] >> 32).tolist()
    steps = [
        (int(zxids[position]), int(zxids[position + 1]))
        for position in places
        if history.goes_on(int(zxids[position]), position + 1)
    ]
    return {(a, b) for a, b in steps if not any(a < zxid < b for zxid in begun)}


def unite(server: Server, own: History, rest: Sequence[tuple[Server, History]]) -> History:
    """Return a server's history without uncommitted records; other servers fill its breaks and its beginning.

    Only servers with equal records, and none that contradict, are of the same ensemble.
    """
    equal = [(other, history) for other, history in rest if _agree(own.rows, history.rows)]
    void = sorted(set[tuple[int, int]]().union(*(_never_committed(*item) for item in ((server, own), *equal))))
    logs = list(own.logs)
    rows = _without(own.rows, void)
    for _, other in equal:
        extra = _without(other.rows, void)
        extra = extra[~np.isin(extra["zxid"], rows["zxid"])]
        broken = np.zeros(len(rows) + 1, np.bool_)
        broken[0] = True
        broken[_breaks(rows)] = True
        extra = extra[broken[np.searchsorted(rows["zxid"], extra["zxid"])]]
        extra["log"] += len(logs)
        logs += other.logs
        rows = np.concatenate([rows, extra])
        rows = rows[np.argsort(rows["zxid"], kind="stable")]
        # What was cut here goes on there, and all before it has been filled in.
        rows["cut"] &= ~np.isin(rows["zxid"], other.rows["zxid"][~other.rows["cut"]])
    return History(tuple(logs), rows, _breaks(rows))


def are_related(own: History, foreign: History) -> bool:
    """Whether another history can be of the same ensemble: their records agree, or one has none."""
    return not len(own.rows) or not len(foreign.rows) or _agree(own.rows, foreign.rows)


def _agree(own: Entries, other: Entries) -> bool:
    _, own_rows, other_rows = np.intersect1d(own["zxid"], other["zxid"], return_indices=True)
    return len(own_rows) > 0 and bool((own["mark"][own_rows] == other["mark"][other_rows]).all())


def _without(rows: Entries, void: Sequence[tuple[int, int]]) -> Entries:
    kept = np.ones(len(rows), np.bool_)
    for low, high in void:
        kept &= ~((rows["zxid"] > low) & (rows["zxid"] < high))
    return rows[kept]


def differences(chosen: Server, own: History, other: Server, foreign: History, until: int) -> list[str]:
    """Return how another server's logs differ from the history that was chosen, up to its end and beyond."""
    notes: list[str] = []
    combined, selected, its = np.intersect1d(own.rows["zxid"], foreign.rows["zxid"], return_indices=True)
    differ = combined[own.rows["mark"][selected] != foreign.rows["mark"][its]]
    if len(differ):
        names = f"in {chosen.name} and {other.name}"
        return [
            f"{len(differ)} transactions are not the same {names}: {ranges(differ)}; nothing of the latter is taken"
        ]
    if not len(combined) and len(own.rows) and len(foreign.rows):
        return [f"{other.name} has no transaction in common with {chosen.name}: nothing of it is taken"]
    missing = foreign.rows["zxid"][~np.isin(foreign.rows["zxid"], own.rows["zxid"])]
    inside = missing[(missing > int(own.rows["zxid"][0])) & (missing <= until)] if len(own.rows) else missing[:0]
    beyond = missing[missing > until]
    for part, reason in ((inside, "they were never committed"), (beyond, "they were never committed, or lost")):
        if len(part):
            notes.append(
                f"{other.name} has {len(part)} transactions that the chosen history passes over: {ranges(part)}; "
                f"{reason}"
            )
    return notes


def ranges(zxids: npt.NDArray[np.int64]) -> str:
    """Return zxids as ranges, the first few."""
    if not len(zxids):
        return "none"
    starts = np.flatnonzero(np.append(True, zxids[1:] != zxids[:-1] + 1))
    ends = np.append(starts[1:], len(zxids)) - 1
    pairs = zip(zxids[starts[:_SHOWN]].tolist(), zxids[ends[:_SHOWN]].tolist(), strict=True)
    text = ", ".join(f"{low:#x}" if low == high else f"{low:#x} to {high:#x}" for low, high in pairs)
    return text + (", …" if len(starts) > _SHOWN else "")
