"""Three servers log what a leader proposes, die, are elected, cut back and given snapshots, in any order.

The judge keeps what most servers had logged. Whatever a feed of their logs gives is committed, exactly; and when two
servers of three run, all that is committed is given, whatever happened to them before.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from backends.errors import UnavailableError
from backends.protocols import FeedGap, Followed, ScannableStore
from backends.zkfiles.feed import ZooKeeperLogFeed
from tests.support.zookeeper_logs import (
    EMPTY,
    MS,
    LogFolder,
    Node,
    Op,
    State,
    apply,
    digest_of,
    encode,
    refuse,
    write_snapshot,
)

TOP: Final = "/ledgers"
SESSION: Final = 0x1001
NUMBERS: Final = (1, 2, 3)
CONFIG: Final = b"".join(b"server.%d=127.0.0.1:1:2:participant\n" % number for number in NUMBERS)
BEGUN: Final[State] = {**EMPTY, "/zookeeper/config": Node(CONFIG)}
LOOKS: Final = 150
"""More than a feed takes to turn to another server, or to read one again that broke."""


@dataclass(frozen=True, slots=True)
class Proposed:
    """A transaction that a leader proposed."""

    zxid: int
    payload: bytes
    state: State
    fails: bool


@dataclass(slots=True)
class Peer:
    """A server: `records` is what it has, from a log or a snapshot."""

    log: LogFolder
    records: list[Proposed] = field(default_factory=list)
    epoch: int = 0
    runs: bool = True
    follows: bool = False

    def append(self, record: Proposed, *, applied: bool) -> None:
        """Log a transaction; `applied`: it was applied before that."""
        self.log.append(record.zxid, refuse(record.payload) if applied and record.fails else record.payload)
        self.records.append(record)

    def take_part(self, epoch: int) -> None:
        """Write the epoch down."""
        self.epoch, self.follows = epoch, True
        (self.log.folder / "currentEpoch").write_text(f"{epoch}\n")

    @property
    def last(self) -> int:
        """The zxid of its last transaction."""
        return self.records[-1].zxid if self.records else 0


def _shown(state: State) -> dict[str, bytes]:
    return {path: node.data for path, node in state.items() if path.startswith(TOP)}


class _Door:
    """What clients are shown."""

    def __init__(self, machine: "Ensemble") -> None:
        self._machine = machine

    def take(self) -> tuple[int | None, list[tuple[int, int]]]:
        zxid = self._machine.door_shows
        return zxid, [(MS, zxid)]

    def close(self) -> None:
        """Nothing is open."""


class Ensemble(RuleBasedStateMachine):
    """Three servers, what was committed, and a feed that reads the logs of two of them or three."""

    @initialize(
        read=st.sampled_from([(1, 2, 3), (1, 2, 3), (1, 2), (2, 3)]), asks=st.sampled_from([False, False, True])
    )
    def begin(self, read: tuple[int, ...], asks: bool) -> None:
        """An ensemble whose first leader has proposed the node that all are below."""
        self.made = tempfile.TemporaryDirectory()
        self.peers = [self._make(number) for number in NUMBERS]
        self.read = read
        self.history: list[Proposed] = []
        self.committed: dict[int, State] = {0: BEGUN}
        self.harmless: set[int] = set()
        self.done = self.epoch = self.counter = self.ticks = self.door_shows = 0
        self.values: dict[str, bytes] = {}
        self.through = -1
        self.steps: Iterator[Followed | FeedGap] | None = None
        self.told: list[str] = []
        folders = [self.peers[number - 1].log.folder.parent for number in read]
        self.feed = ZooKeeperLogFeed(
            "zk", folders, [TOP], shown=_Door(self) if asks else None, clock_ms=self._clock, pause_s=0
        )
        self._elect(list(self.peers))
        self._propose([Op("create", TOP)])
        self._log_all()

    def _make(self, number: int) -> Peer:
        folder = Path(self.made.name, str(number), "data", "version-2")
        folder.mkdir(parents=True)
        (folder.parent / "myid").write_text(f"{number}\n")
        write_snapshot(folder / "snapshot.0", BEGUN, (0, digest_of(BEGUN)))
        return Peer(LogFolder(folder))

    def _clock(self) -> int:
        self.ticks += 5_000
        return MS + self.ticks

    @property
    def members(self) -> list[Peer]:
        """The servers that follow the leader, and the leader."""
        return [peer for peer in self.peers if peer.follows]

    @property
    def end(self) -> int:
        """The last transaction that is committed."""
        return max(self.committed)

    def _propose(self, ops: list[Op], *, fails: bool = False) -> None:
        before = self.history[-1].state if self.history else BEGUN
        self.counter += 1
        zxid = (self.epoch << 32) + self.counter
        payload = encode(before, zxid, SESSION, ops, digests=True, fails=fails)
        state = before if fails else apply(before, zxid, SESSION, ops)
        self.history.append(Proposed(zxid, payload, state, fails))

    def _log_next(self, peer: Peer, *, applied: bool = False) -> None:
        place = len(peer.records)
        if place < len(self.history):
            peer.append(self.history[place], applied=applied and place < self.done)
            self._commit(sorted(len(member.records) for member in self.members)[-2])

    def _log_all(self) -> None:
        for peer in self.members:
            while len(peer.records) < len(self.history):
                self._log_next(peer)

    def _commit(self, count: int) -> None:
        for record in self.history[self.done : count]:
            self.committed[record.zxid] = record.state
        self.done = max(self.done, count)

    @precondition(lambda self: self.members)
    @rule(name=st.sampled_from("abc"), value=st.binary(max_size=3), fails=st.booleans())
    def propose(self, name: str, value: bytes, fails: bool) -> None:
        """The leader proposes a change."""
        path = f"{TOP}/{name}"
        there = path in self.history[-1].state
        kind = "create" if not there else "delete" if value == b"" else "set"
        self._propose([Op(kind, path, value)], fails=fails)

    @precondition(lambda self: self.members)
    @rule(data=st.data(), count=st.integers(1, 4), applied=st.booleans())
    def log(self, data: st.DataObject, count: int, applied: bool) -> None:
        """A server logs what was proposed."""
        peer = data.draw(st.sampled_from(self.members))
        for _ in range(count):
            self._log_next(peer, applied=applied)

    @precondition(lambda self: self.members)
    @rule()
    def log_all(self) -> None:
        """All servers that follow have logged all."""
        self._log_all()

    @rule(data=st.data())
    def take_snapshot(self, data: st.DataObject) -> None:
        """A server writes a snapshot of what it has of the committed."""
        self._take_snapshot(data.draw(st.sampled_from(self.peers)))

    def _take_snapshot(self, peer: Peer) -> None:
        known = [record for record in peer.records if record.zxid in self.committed]
        if known:
            zxid, state = known[-1].zxid, known[-1].state
            write_snapshot(peer.log.folder / f"snapshot.{zxid:x}", state, (zxid, digest_of(state)))

    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        """A server dies; without most servers, or without the leader, no server follows."""
        self._kill(data.draw(st.sampled_from(self.peers)))

    def _kill(self, peer: Peer) -> None:
        was_leader = peer.follows and peer is self.leader
        peer.runs = peer.follows = False
        peer.log.roll()
        if was_leader or len(self.members) < 2:
            for other in self.peers:
                other.follows = False

    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        """A server comes back, and joins where there is a leader."""
        peer = data.draw(st.sampled_from(self.peers))
        how = data.draw(st.sampled_from(["diff", "diff", "snapshot"]))
        peer.runs = True
        if self.members and not peer.follows:
            self._join(peer, how)

    @precondition(lambda self: not self.members and sum(peer.runs for peer in self.peers) > 1)
    @rule(data=st.data())
    def elect(self, data: st.DataObject) -> None:
        """Two servers that run, or three, have a leader again."""
        running = [peer for peer in self.peers if peer.runs]
        chosen = data.draw(st.permutations(running))[: data.draw(st.integers(2, len(running)))]
        self._elect(chosen)

    def _elect(self, chosen: list[Peer]) -> None:
        self.leader = max(chosen, key=lambda peer: (peer.epoch, peer.last))
        kept = {record.zxid for record in self.leader.records}
        # What the leader lacks is never committed: a multi that failed and is not committed changes nothing.
        self.harmless |= {record.zxid for record in self.history if record.fails} - kept
        self.history = list(self.leader.records)
        self.epoch, self.counter = self.epoch + 1, 0
        self._commit(len(self.history))
        self.leader.take_part(self.epoch)
        for peer in chosen:
            if peer is not self.leader:
                self._join(peer, "diff")

    def _join(self, peer: Peer, how: str) -> None:
        """Give a server what it lacks, cut off what it has more, or give it the whole state."""
        common = next(
            (n for n, (own, other) in enumerate(zip(peer.records, self.history, strict=False)) if own != other),
            min(len(peer.records), len(self.history)),
        )
        cut = peer.records[common:]
        crosses = bool(cut) and (not common or cut[0].zxid >> 32 != peer.records[common - 1].zxid >> 32)
        known = self.history[: self.done]
        if (how == "snapshot" and common < len(known)) or crosses:
            zxid, state = (known[-1].zxid, known[-1].state) if known else (0, BEGUN)
            write_snapshot(peer.log.folder / f"snapshot.{zxid:x}", state, (zxid, digest_of(state)))
            peer.log.places = [place for place in peer.log.places if place[0] <= zxid]
            peer.log.roll()
            peer.records = list(known)
        else:
            if cut:
                peer.log.truncate(peer.records[common - 1].zxid)
                del peer.records[common:]
            for record in known[common:]:
                peer.append(record, applied=True)
        peer.take_part(self.epoch)

    @rule(looks=st.sampled_from([1, 2, 30]))
    def follow(self, looks: int) -> None:
        """The feed reads the logs."""
        self._look(looks)

    @rule()
    def ask(self) -> None:
        """Clients are shown what is committed."""
        self.door_shows = self.end

    def _look(self, looks: int) -> None:
        for _ in range(looks):
            if self.steps is None and not self._open_base():
                return
            assert self.steps is not None
            step = next(self.steps)
            if isinstance(step, FeedGap):
                assert step.after == self.through
                self.told.append(step.why)
                self.steps = None
                continue
            for row in step.rows.to_pylist():
                assert row["txn"] in self.committed
                if row["op"] == "deleted":
                    assert self.values.pop(row["key"]) == row["before"]
                elif row["op"] in ("created", "changed"):
                    assert self.values.get(row["key"]) == row["before"]
                    self.values[row["key"]] = row["after"]
            self.through = step.through
            assert self.values == _shown(self._state_at(self.through))

    def _open_base(self) -> bool:
        try:
            base = self.feed.open_base()
        except UnavailableError as error:
            self.told.append(str(error))
            return False
        assert isinstance(base, ScannableStore)
        txn = base.point().txn or 0
        assert txn >= self.through
        self.values = {row["key"]: row["value"] for batch in base.scan(TOP) for row in batch.to_pylist()}
        assert self.values == _shown(self._state_at(txn))
        self.through = txn
        self.steps = iter(self.feed.follow(txn))
        return True

    def _state_at(self, zxid: int) -> State:
        assert zxid in self.committed or zxid in self.harmless
        return self.committed[max(number for number in self.committed if number <= zxid)]

    def teardown(self) -> None:
        """All are back; one is away for a moment, then another dies: what two of three have is given all the same."""
        if not hasattr(self, "made"):
            return
        try:
            self._settle()
        finally:
            self.feed.close()
            self.made.cleanup()

    def _settle(self) -> None:
        for peer in self.peers:
            peer.runs = True
            if self.members and not peer.follows:
                self._join(peer, "diff")
        if not self.members:
            self._elect(self.peers)
        self._propose([Op("set", TOP, b"all are back")])
        self._log_all()
        self._look(LOOKS)
        for peer in self.peers:
            self._take_snapshot(peer)
        if len(self.read) == len(NUMBERS):
            away, dies = (peer for peer in self.peers if peer is not self.leader)
            self._kill(away)
            self._propose([Op("set", TOP, b"never")], fails=True)
            self._log_all()
            away.runs = True
            self._join(away, "diff")
            self._kill(dies)
        self._propose([Op("set", TOP, b"last")])
        self._log_all()
        for _ in range(3):
            self._look(LOOKS)
        assert self.through == self.end, (f"{self.through:#x}", f"{self.end:#x}", self.told[-3:])


Ensemble.TestCase.settings = settings(
    max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestEnsemble = pytest.mark.long(Ensemble.TestCase)
