"""A server's logs grow, tear, roll, are purged and cut, and elections make of proposals what never was, in any order.

The judge keeps every committed state by itself (`tests.support.zookeeper_logs`). Whatever the feed gives must be a
committed state, exactly: each base, and each base with the rows behind it. What was never committed is in none of them.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from backends.errors import UnavailableError
from backends.protocols import FeedGap, Followed, ScannableStore
from backends.zkfiles.feed import ZooKeeperLogFeed
from tests.support.zookeeper_logs import EMPTY, MS, LogFolder, Op, State, apply, digest_of, encode, write_snapshot

TOP: Final = "/ledgers"
NAMES: Final = ("a", "b", "c")
SESSIONS: Final = (0x1001, 0x1002)
ACLS: Final = {-1: "world:anyone:cdrwa", 2: "world:anyone:r"}
COUNTER: Final = 0xFFFF_FFFF

Row = tuple[bytes, int, str, int, int, int, int, int, int]
"""Value, version, ACL, creation and change with their times, owner, children that were created."""


@dataclass(frozen=True, slots=True)
class Proposed:
    """A transaction that stands in the log."""

    zxid: int
    state: State


def _shown(state: State) -> dict[str, Row]:
    return {
        path: (n.data, n.version, ACLS[n.acl], n.czxid, n.ctime, n.mzxid, n.mtime, n.owner, n.cversion)
        for path, n in state.items()
        if path == TOP or path.startswith(f"{TOP}/")
    }


class _Door:
    """What clients are shown of the model."""

    def __init__(self, machine: "Logs") -> None:
        self._machine = machine

    def take(self) -> tuple[int | None, list[tuple[int, int]]]:
        zxid = self._machine.door_shows
        return zxid, [(MS, zxid)]

    def close(self) -> None:
        """Nothing is open."""


class Logs(RuleBasedStateMachine):
    """One server's files, what was committed, and a feed that reads them."""

    @initialize(
        mode=st.sampled_from(["standalone", "observer", "door", "door", "alone"]),
        digests=st.sampled_from([True, True, True, False]),
        begun=st.integers(0, 3),
    )
    def begin(self, mode: str, digests: bool, begun: int) -> None:
        """A server that has run for a while."""
        self.mode, self.digests = mode, digests
        self.made = tempfile.TemporaryDirectory()
        self.folder = Path(self.made.name, "data", "version-2")
        self.folder.mkdir(parents=True)
        self.log = LogFolder(self.folder)
        self.epoch = 0 if mode == "standalone" else 1
        self.counter = 0
        self.committed: dict[int, State] = {0: EMPTY}
        self.end = 0
        self.proposed: list[Proposed] = []
        self.harmless: set[int] = set()
        self.door_shows = 0
        self.ticks = 0
        self.through: int | None = None
        self.folded: dict[str, Row] = {}
        self.steps: Iterator[Followed | FeedGap] | None = None
        self.gaps: list[str] = []
        self.refused = ""
        write_snapshot(self.folder / "snapshot.0", EMPTY, (0, 0) if digests else None)
        self._write_epoch()
        if mode == "observer":
            (self.folder.parents[1] / "zoo.cfg").write_text("peerType=observer\n")
        shown = _Door(self) if mode in ("door", "observer") else None
        self.feed = ZooKeeperLogFeed(
            "zk", [self.folder.parents[1]], [TOP], shown=shown, clock_ms=self._clock, pause_s=0
        )
        self._propose([Op("create", TOP)], SESSIONS[0])
        for name in NAMES[:begun]:
            self._propose([Op("create", f"{TOP}/{name}", b"0")], SESSIONS[0])
        self._commit(len(self.proposed))

    def _clock(self) -> int:
        self.ticks += 5_000
        return MS + self.ticks

    def _write_epoch(self) -> None:
        if self.mode != "standalone":
            (self.folder / "currentEpoch").write_text(f"{self.epoch}\n")

    @property
    def logged(self) -> State:
        """The state after all that stands in the log."""
        return self.proposed[-1].state if self.proposed else self.committed[self.end]

    def _next(self) -> int:
        return (self.epoch << 32) + self.counter + 1

    def _propose(self, ops: list[Op], session: int, *, fails: bool = False, torn: int | None = None) -> None:
        before, zxid = self.logged, self._next()
        payload = encode(before, zxid, session, ops, digests=self.digests, fails=fails)
        if torn is not None:
            self.log.tear(zxid, payload, torn)
        self.log.append(zxid, payload)
        self.counter += 1
        self.proposed.append(Proposed(zxid, before if fails else apply(before, zxid, session, ops)))
        if self.mode in ("standalone", "observer"):
            self._commit(len(self.proposed))

    def _commit(self, count: int) -> None:
        for _ in range(count):
            done = self.proposed.pop(0)
            self.committed[done.zxid] = done.state
            self.end = done.zxid

    def _choose(self, data: st.DataObject, state: State, session: int) -> list[Op]:
        """Return operations that can be carried out, one or a few."""
        ops: list[Op] = []
        for _ in range(data.draw(st.sampled_from([1, 1, 1, 2, 3]))):
            path = f"{TOP}/{data.draw(st.sampled_from(NAMES))}"
            inner = f"{path}/x"
            value = data.draw(st.binary(max_size=3))
            options = [Op("set", TOP, value)]
            if path not in state:
                options += [Op("create", path, value), Op("ephemeral", path, value)]
            else:
                options += [Op("set", path, value), Op("acl", path)]
                if inner in state:
                    options.append(Op("delete", inner))
                elif not state[path].owner:
                    options += [Op("create", inner, value), Op("ephemeral", inner)]
                if inner not in state:
                    options.append(Op("delete", path))
            op = data.draw(st.sampled_from(options))
            ops.append(op)
            state = apply(state, self._next(), session, [op])
        return ops

    @rule(data=st.data(), session=st.sampled_from(SESSIONS), torn=st.none() | st.integers(1, 80))
    def write(self, data: st.DataObject, session: int, torn: int | None) -> None:
        """A client changes something; the server may die meanwhile, and write it once more."""
        self._propose(self._choose(data, self.logged, session), session, torn=torn)

    @rule(data=st.data(), session=st.sampled_from(SESSIONS))
    def refuse(self, data: st.DataObject, session: int) -> None:
        """A transaction fails: it is in the log, and changes nothing."""
        if data.draw(st.booleans()):
            self._propose(self._choose(data, self.logged, session), session, fails=True)
        else:
            self._propose([Op("error")], session)

    @rule(session=st.sampled_from(SESSIONS), kind=st.sampled_from(["open", "close"]))
    def change_session(self, session: int, kind: str) -> None:
        """A session begins or ends, and its nodes with it."""
        ends = [path for path, node in self.logged.items() if node.owner == session]
        if kind == "open" or all(f"{path}/x" not in self.logged for path in ends):
            self._propose([Op(kind)], session)

    @rule(count=st.integers(1, 4))
    def commit(self, count: int) -> None:
        """Most servers have the next transactions."""
        self._commit(min(count, len(self.proposed)))

    @rule()
    def show(self) -> None:
        """A client asks what there is."""
        self.door_shows = self.end

    @rule()
    def roll(self) -> None:
        """The next record begins a log."""
        self.log.roll()

    @rule(back=st.integers(0, 3))
    def take_snapshot(self, back: int) -> None:
        """A snapshot was begun some transactions ago, and has all that was committed since."""
        zxids = sorted(self.committed)
        same = [zxid for zxid in zxids if zxid >> 32 == self.end >> 32]
        begun = same[max(len(same) - 1 - back, 0)]
        state = self.committed[self.end]
        write_snapshot(
            self.folder / f"snapshot.{begun:x}", state, (self.end, digest_of(state)) if self.digests else None
        )

    @rule()
    def purge(self) -> None:
        """Only the three newest snapshots and their logs are kept, the fewest that autopurge keeps."""
        begun = sorted(int(path.name[9:], 16) for path in self.folder.glob("snapshot.*"))
        self.log.purge(begun[-3:][0])

    @precondition(lambda self: self.mode in ("door", "alone", "observer"))
    @rule(data=st.data(), kept=st.integers(0, 3), how=st.sampled_from(["cut", "snapshot", "ahead"]))
    def elect(self, data: st.DataObject, kept: int, how: str) -> None:
        """Another leader has only some of the proposals; this server is cut back, or given a whole snapshot."""
        kept = min(kept, len(self.proposed))
        self._commit(kept)
        dropped, self.proposed = self.proposed, []
        self.harmless |= {one.zxid for one in dropped if one.state == self.committed[self.end]}
        if how == "cut" or (how == "snapshot" and not dropped):
            if dropped:
                self.log.truncate(self.end)
        elif how == "ahead":
            self._commit_elsewhere(data)
        self.epoch, self.counter = self.epoch + 1, 0
        self._write_epoch()
        if how == "ahead" and data.draw(st.booleans()):
            self._commit_elsewhere(data)
        if how != "cut":
            state = self.committed[self.end]
            stated = (self.end, digest_of(state)) if self.digests else None
            write_snapshot(self.folder / f"snapshot.{self.end:x}", state, stated)
            self.log.places = [place for place in self.log.places if place[0] <= self.end]
            if data.draw(st.booleans()):
                self.log.roll()

    def _commit_elsewhere(self, data: st.DataObject) -> None:
        """Commit transactions that this server's log never has."""
        for _ in range(data.draw(st.integers(1, 2))):
            state, zxid = self.committed[self.end], self._next()
            self.counter += 1
            self.committed[zxid] = apply(state, zxid, SESSIONS[0], [Op("set", TOP, b"elsewhere")])
            self.end = zxid

    @rule(looks=st.integers(1, 3))
    def follow(self, looks: int) -> None:
        """The feed looks at the logs."""
        self._look(looks)

    def _look(self, looks: int) -> None:
        if self.steps is None:
            self._open_base()
        for _ in range(looks):
            if self.steps is None:
                return
            step = next(self.steps)
            if isinstance(step, FeedGap):
                assert step.after == self.through
                self.gaps.append(step.why)
                self.steps = None
                return
            for row in step.rows.to_pylist():
                self._fold(row)
            self.through = step.through
            assert self.folded == _shown(self._state_at(step.through))

    def _open_base(self) -> None:
        try:
            store = self.feed.open_base()
        except UnavailableError as error:
            self.refused = str(error)
            return
        assert isinstance(store, ScannableStore)
        txn = store.point().txn or 0
        self.folded = {
            row["key"]: (
                row["value"], row["version"], row["acl"], row["created_txn"], row["created_ms"], row["changed_txn"],
                row["changed_ms"], row["owner"], row["children_created"],
            )
            for batch in store.scan(TOP)
            for row in batch.to_pylist()
        }  # fmt: skip
        assert self.folded == _shown(self._state_at(txn))
        assert self.through is None or txn >= self.through
        self.through = txn
        self.steps = iter(self.feed.follow(txn))

    def _state_at(self, zxid: int) -> State:
        """Return the committed state of a zxid; a phantom that changes no node, as a session's begin, is as good."""
        assert zxid in self.committed or zxid in self.harmless
        return self.committed[max(number for number in self.committed if number <= zxid)]

    def _fold(self, row: dict[str, Any]) -> None:
        key, txn, ms = row["key"], row["txn"], row["at_ms"]
        assert self.through is not None
        assert self.through < txn <= self.end
        assert txn in self.committed
        assert ms == MS + txn
        assert row["session"] in SESSIONS
        held = self.folded.get(key)
        match row["op"]:
            case "created":
                assert held is None
                created = (row["created_txn"], row["created_ms"])
                self.folded[key] = (
                    row["after"], row["version"], row["acl"], *created, txn, ms, row["owner"], row["children_created"],
                )  # fmt: skip
            case "changed":
                assert held is not None
                assert row["before"] == held[0]
                self.folded[key] = (row["after"], row["version"], *held[2:5], txn, ms, *held[7:])
            case "rights":
                assert held is not None
                self.folded[key] = (*held[:2], row["acl"], *held[3:])
            case "children":
                assert held is not None
                self.folded[key] = (*held[:8], row["children_created"])
            case "deleted":
                assert held is not None
                assert row["before"] == held[0]
                assert row["owner"] == (held[7] or None)
                del self.folded[key]
            case op:
                raise AssertionError(op)

    @invariant()
    def gaps_are_named(self) -> None:
        """Every gap says what happened, in words."""
        assert all(len(why) > 20 for why in self.gaps)

    def teardown(self) -> None:
        """All that was committed is given in the end, or is in a base behind a gap."""
        if not hasattr(self, "made"):
            return
        try:
            if self.mode != "alone" or self.digests:
                self._settle()
        finally:
            self.feed.close()
            self.made.cleanup()

    def _settle(self) -> None:
        self._commit(len(self.proposed))
        self._look(8)
        # A snapshot of the epoch that goes on: without digests no other one is proven.
        self._propose([Op("set", TOP, b"first")], SESSIONS[0])
        self._commit(len(self.proposed))
        self.take_snapshot(0)
        if self.mode == "alone":
            # A later epoch proves what stands before it.
            self.epoch, self.counter = self.epoch + 1, 0
            self._write_epoch()
        reached = self.end
        self._propose([Op("set", TOP, b"last")], SESSIONS[0])
        self._commit(len(self.proposed))
        self.door_shows = self.end
        for _ in range(12):
            self._look(4)
        assert self.through is not None
        wanted = reached if self.mode == "alone" else self.end
        assert self.through >= wanted, (f"{self.through:#x}", f"{wanted:#x}", self.refused, self.gaps)


Logs.TestCase.settings = settings(
    max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLogs = pytest.mark.long(Logs.TestCase)
