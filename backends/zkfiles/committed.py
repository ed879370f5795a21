"""The committed transactions of a ZooKeeper, from growing logs of one or several servers.

A server writes a transaction down before it is committed; after an election some are never. A transaction is proven by:

    whose log                           it is committed when
    a standalone server's               it is in the log: the server applies all that is there when it starts
    an observer's                       it is in the log: an observer receives only committed ones
    a participant's, of epoch e         clients were shown a state of epoch e that is as late
                                        or the logs of most participants have it, all of them still in epoch e
                                        or a later epoch goes on from it, and the digest of the tree agrees with that

Within an epoch one leader numbers the transactions, so a zxid names one of them. The same zxid with another mark in two
servers' logs says that they are not of one ensemble. A record of an ended epoch was never committed if the digests of
the next epoch disagree with it, even if it is in the log.

Source: docs/formats/zookeeper-files.md; Apache ZooKeeper 3.9, SyncRequestProcessor, ObserverZooKeeperServer,
LearnerHandler.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice, takewhile
from pathlib import Path
from typing import Final

from backends.files import read_bounded
from backends.zkfiles import snapshot
from backends.zkfiles.servers import Server
from backends.zkfiles.tail import Broken, Logged, LogTail, TakenBack

_PENDING: Final = 1 << 17
"""Transactions that wait for a proof in memory, at most; the rest waits in the logs."""
_STALLED: Final = 20
"""After so many reads of a server without news, while another one has more, the other one is read."""
_REREAD: Final = 64
"""After so many reads, the log of another server that did not go on is read again."""
_LARGEST_SETTING: Final = 1 << 20
_SERVER_LINE: Final = re.compile(rb"^server\.([0-9]+)=(.*)$", re.MULTILINE)
_GROUPS: Final = re.compile(rb"^(group|weight)\.", re.MULTILINE)
_OBSERVES: Final = re.compile(rb"^\s*peerType\s*=\s*observer\s*$", re.MULTILINE)


class LogRole(Enum):
    """The kind of records in a server's log."""

    STANDALONE = "standalone"
    OBSERVER = "observer"
    PARTICIPANT = "participant"


@dataclass(frozen=True, slots=True)
class Void:
    """Transactions of a log that were never committed."""

    first: int
    last: int


def epoch_of(zxid: int) -> int:
    """Return the epoch of a zxid."""
    return zxid >> 32


def parse_voters(config: bytes | None) -> frozenset[int] | None:
    """Return the ids of the servers that vote, as the node ``/zookeeper/config`` names them.

    Returns:
        None: it does not say, or their votes differ in weight.
    """
    if not config or _GROUPS.search(config):
        return None
    lines = _SERVER_LINE.findall(config)
    voters = frozenset(int(number) for number, rest in lines if b"observer" not in rest.split(b";")[0].split(b":"))
    return voters or None


@dataclass(slots=True)
class LoggingServer:
    """One server with logs to read.

    Attributes:
        server: its files when it was found.
        folders: of its logs.
        role: the kind of records in its log.
        number: of the server in its ensemble; None: it does not say.
        waiting: mark of each record after the proven ones, by zxid.
        idle: how many reads in a row found nothing new.
    """

    server: Server
    folders: tuple[Path, ...]
    role: LogRole
    number: int | None
    tail: LogTail
    waiting: dict[int, int] = field(default_factory=dict)
    idle: int = 0

    @classmethod
    def open(cls, server: Server, begun: int) -> "LoggingServer":
        """Return a server with its records after a zxid."""
        trees = {path.parent for path in server.snapshots}
        folders = tuple(dict.fromkeys([*(path.parent for path in server.logs), *sorted(trees)]))
        return cls(server, folders, find_role(server), _read_number(trees), LogTail(folders, begun))

    def begin_again(self, begun: int, mark: int | None) -> None:
        """Read its records after a zxid again; `mark` is of the record of that zxid, as `LogTail` has it."""
        self.tail.close()
        self.tail = LogTail(self.folders, begun, mark)
        self.waiting.clear()
        self.idle = 0

    def find_snapshot(self, previous: int, following: int) -> Path | None:
        """Return a snapshot of a state between the last transaction of an epoch and the first one of a later epoch."""
        if epoch_of(previous) == epoch_of(following):
            return None
        listed = (path for folder in self.folders for path in folder.iterdir())
        return next((path for path in listed if previous < (snapshot.zxid_of(path.name) or 0) < following), None)

    def epoch(self) -> int | None:
        """Return the epoch of the server; None: not known."""
        return _read_epoch({path.parent for path in self.server.snapshots})


def find_role(server: Server) -> LogRole:
    """Return the kind of a server's log: an observer's ``zoo.cfg`` is at most two folders above its files."""
    trees = {path.parent for path in server.snapshots}
    for folder in trees:
        for above in folder.parents[:2]:
            if _OBSERVES.search(_read(above / "zoo.cfg")):
                return LogRole.OBSERVER
    if trees and _read_epoch(trees) is None:
        return LogRole.STANDALONE
    return LogRole.PARTICIPANT


def _read(path: Path) -> bytes:
    try:
        return read_bounded(path, _LARGEST_SETTING)
    except OSError:
        return b""


def _read_number(folders: set[Path]) -> int | None:
    return next((int(text) for folder in folders if (text := _read(folder.parent / "myid").strip()).isdigit()), None)


def _read_epoch(folders: set[Path]) -> int | None:
    return next((int(text) for folder in folders if (text := _read(folder / "currentEpoch").strip()).isdigit()), None)


class CommittedLog:
    """Committed transactions after a zxid, in order.

    Attributes:
        goes_on: whether a digest proved that a later epoch continued from its own first state.

    Args:
        servers: of one ensemble; the first one is read, the others prove its transactions and replace it if
            need be.
        begun: zxid of the state that they come after.
        judge: tells how many of some transactions belong before later ones, by the digests of the tree that all before
            them made; None: no number of them does.
        read_config: returns the value of the node ``/zookeeper/config``.
    """

    def __init__(
        self,
        servers: Sequence[Server],
        begun: int,
        judge: Callable[[Sequence[Logged], Sequence[Logged]], int | None],
        read_config: Callable[[], bytes | None],
    ) -> None:
        self._servers = [LoggingServer.open(server, begun) for server in servers]
        self._through = begun
        self._kept: Logged | None = None
        self._pending: deque[Logged] = deque()
        self._judge = judge
        self._read_config = read_config
        self._broken: Broken | None = None
        self.goes_on = False

    @property
    def through(self) -> int:
        """Zxid of the last transaction that was yielded."""
        return self._through

    @property
    def waiting(self) -> int:
        """How many transactions wait for a proof."""
        return len(self._pending)

    @property
    def role(self) -> LogRole:
        """The kind of the log that is read."""
        return self._servers[0].role

    @property
    def epoch(self) -> int | None:
        """The epoch of the server that wrote the log; None: not known."""
        return self._servers[0].epoch()

    def close(self) -> None:
        """Close the files."""
        for source in self._servers:
            source.tail.close()

    def read(self, shown: int | None) -> Iterator[Logged | Void | Broken]:
        """Yield the transactions that are proven now; apply each before asking for the next one.

        Args:
            shown: zxid of the last transaction in a state that clients were shown; None: not known.

        Raises:
            OSError: the logs cannot be read; a later call goes on.
        """
        self._read_logs()
        if self.role is not LogRole.PARTICIPANT:
            yield from self._give(len(self._pending))
        elif self._pending or self._broken:
            yield from self._give_proven(shown)
        if self._broken is not None and not self._pending and not self._replace_first(self._broken.last):
            yield Broken(self._through, self._broken.following, self._broken.why)

    def _read_logs(self) -> None:
        first, *rest = self._servers
        for source in rest:
            self._read_other(source)
        if len(self._pending) >= _PENDING or self._broken is not None:
            return
        reached = first.tail.last
        try:
            self._read_first(first)
        except OSError:
            if not self._replace_first(-1):
                raise
            return
        first.idle = first.idle + 1 if first.tail.last == reached else 0
        if first.idle >= _STALLED:
            first.idle = 0
            self._replace_first(first.tail.last)

    def _read_first(self, source: LoggingServer) -> None:
        previous = source.tail.last
        for item in islice(source.tail.read(), _PENDING):
            match item:
                case Logged():
                    given = source.find_snapshot(previous, item.zxid)
                    if given is not None:
                        # The digest is not a proof: what is between may have been written over since.
                        why = f"{given} was given to the server after {previous:#x}"
                        why += ": its logs lack the transactions between"
                        self._broken = Broken(previous, item.zxid, why)
                        return
                    previous = item.zxid
                    self._pending.append(item)
                    source.waiting[item.zxid] = item.mark
                    if source.role is LogRole.STANDALONE and epoch_of(item.zxid) != epoch_of(self._through):
                        source.role = find_role(source.server)
                case TakenBack():
                    self._pending.clear()
                    source.waiting.clear()
                case Broken():
                    self._broken = item

    def _read_other(self, source: LoggingServer) -> None:
        """Read the log of a server that only proves the records of another server."""
        if source.tail.is_broken:
            source.idle += 1
            if source.idle < _REREAD:
                return
            # What it lacks may be proven by others meanwhile: what comes then is a proof as before.
            source.begin_again(self._through, None)
        if len(source.waiting) >= _PENDING:
            # It is behind, or was: of what others proved first nothing is taken out.
            source.waiting = {zxid: mark for zxid, mark in source.waiting.items() if zxid > self._through}
            if len(source.waiting) >= _PENDING:
                return
        try:
            for item in islice(source.tail.read(), _PENDING):
                match item:
                    case Logged(zxid, mark):
                        source.waiting[zxid] = mark
                    case TakenBack() | Broken():
                        source.waiting.clear()
        except OSError:
            source.waiting.clear()

    def _replace_first(self, beyond: int) -> bool:
        """Read another server's log from the proven transactions on, if it has later ones; return whether one has."""
        for place, source in enumerate(self._servers[1:], 1):
            if source.tail.last > beyond and (self._kept is None or source.tail.last >= self._kept.zxid):
                first = self._servers[0]
                for server in (first, source):
                    server.begin_again(self._through, None if self._kept is None else self._kept.mark)
                self._servers[0], self._servers[place] = source, first
                self._pending.clear()
                self._broken = None
                return True
        return False

    def _give(self, count: int) -> Iterator[Logged]:
        for _ in range(count):
            record = self._pending.popleft()
            self._through, self._kept = record.zxid, record
            for source in self._servers:
                source.tail.keep(record)
                source.waiting.pop(record.zxid, None)
            yield record

    def _give_proven(self, shown: int | None) -> Iterator[Logged | Void | Broken]:
        while self._pending:
            epoch = epoch_of(self._pending[0].zxid)
            if self._kept is None and not self.goes_on and epoch > epoch_of(self._through):
                following = list(takewhile(lambda record: record.transaction.digest is None, self._pending))
                following = list(islice(self._pending, len(following) + 1))
                self.goes_on = following[-1].transaction.digest is not None and self._judge([], following) == 0
            yield from self._give(self._count_proven(epoch, shown))
            ended = [record for record in self._pending if epoch_of(record.zxid) == epoch]
            if ended and len(ended) == len(self._pending):
                self._give_up_late(epoch, shown)
                return
            if ended:
                following = list(islice(self._pending, len(ended), None))
                known = next((n for n, record in enumerate(following) if record.transaction.digest is not None), None)
                if known is None:
                    self._give_up_without_digest(ended, following)
                    return
                count = self._judge(ended, following[: known + 1])
                if count is None:
                    why = f"epoch {epoch_of(following[0].zxid)} does not go on from what the log has of epoch {epoch}"
                    self._broken = Broken(self._through, following[0].zxid, why)
                    self._pending.clear()
                    return
                yield from self._give(count)
                void = [self._pending.popleft() for _ in range(len(ended) - count)]
                if void:
                    yield Void(void[0].zxid, void[-1].zxid)
            elif not self._pending:
                return

    def _give_up_without_digest(self, ended: Sequence[Logged], following: Sequence[Logged]) -> None:
        """Give up if a log has no digests: before 3.6, or with digests switched off."""
        if self._broken is not None or any(record.transaction.changes for record in following):
            why = (
                f"nothing proves whether {len(ended)} transactions up to {ended[-1].zxid:#x} were committed before "
                f"epoch {epoch_of(following[0].zxid)} began: the log has no digests"
            )
            self._broken = Broken(self._through, following[0].zxid, why)
            self._pending.clear()

    def _give_up_late(self, epoch: int, shown: int | None) -> None:
        """Give up transactions that wait for a proof before a break, or if too many of an old epoch wait."""
        if len(self._pending) >= _PENDING and max(epoch_of(shown or 0), self.epoch or 0) > epoch:
            why = f"{len(self._pending)} transactions of epoch {epoch} wait for a proof, and a later epoch has begun"
            self._broken = Broken(self._through, self._pending[-1].zxid + 1, why)
        if self._broken is not None:
            self._pending.clear()

    def _count_proven(self, epoch: int, shown: int | None) -> int:
        """Return how many of the first records, all of one epoch, clients have seen or most logs have."""
        count = 0
        limit = shown if shown is not None and epoch_of(shown) == epoch else -1
        voting = self._list_voting(epoch)
        for record in self._pending:
            if epoch_of(record.zxid) != epoch:
                break
            if record.zxid > limit and not self._is_in_most(record, voting):
                break
            count += 1
        return count

    def _list_voting(self, epoch: int) -> tuple[int, list[LoggingServer]]:
        """Return how many logs are a majority, and the servers with counting logs: those still in an epoch."""
        voters = parse_voters(self._read_config())
        if voters is None or len(self._servers) <= len(voters) // 2:
            return 0, []
        counted: dict[int, LoggingServer] = {}
        for source in self._servers:
            # Asked after all logs were read: what is there still, was there when the last log was read.
            if source.number in voters and source.tail.is_unchanged() and source.epoch() == epoch:
                counted[source.number] = source
        return len(voters) // 2 + 1, list(counted.values())

    @staticmethod
    def _is_in_most(record: Logged, voting: tuple[int, list[LoggingServer]]) -> bool:
        most, servers = voting
        return 0 < most <= sum(source.waiting.get(record.zxid) == record.mark for source in servers)
