"""The simulator keeps BookKeeper's protocol: the same histories, played on both, leave the same inventories.

All histories are free of races: each step has ended before the next one begins, and who is chosen is told.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
import pytest

from recovery.collect.options import CollectOptions
from recovery.collect.pipeline import collect
from recovery.dataset import open_dataset
from recovery.model.metadata import Digest
from tests.simulation import inventories
from tests.simulation.protocol import World, Writer
from tests.support.cluster import Cluster, History, encoded

pytestmark = pytest.mark.real

STORAGES: Final = ("sorted", "sorted", "sorted", "interleaved", "interleaved", "interleaved", "db", "db", "db")
NAMES: Final = tuple(f"10.0.0.{n + 1}:3181" for n in range(len(STORAGES)))
FIRST_DEAD, SECOND_DEAD, MUTE = 8, 2, 5
"""Bookies that are killed while ledgers are written; the last answers nothing before, and comes back."""
SIZE: Final = 20
CLOSED: Final = (
    "plain", "changed", "told", "repaired", "deleted", "adv", "deferred", "reused", "wiped", "copied", "own-copied",
    "copied-twice",
)  # fmt: skip
"""Kinds of histories whose writers close their ledgers in the end, when no bookie is mute any more."""
JAVA: Final = {Digest.CRC32C: "CRC32C", Digest.CRC32: "CRC32", Digest.HMAC: "MAC", Digest.DUMMY: "DUMMY"}
Shape = tuple[int, int, int]


class Stage(Protocol):
    """What histories are played on; ledgers and bookies by number."""

    def create(
        self,
        shape: Shape,
        members: Sequence[int],
        *,
        digest: Digest,
        password: bytes,
        kind: str = "",
        again: int | None = None,
    ) -> int:
        """Create a ledger on these bookies and return its number; `again`: with this id.

        Kinds beside the plain one: told (explicit LACs), adv, deferred.
        """

    def add(self, ledger: int, many: int, *, told: bool = False) -> None:
        """Add entries one by one; `told`: wait after each for its explicit LAC."""

    def add_backwards(self, ledger: int, many: int) -> None:
        """Add entries of LedgerHandleAdv three at a time, the last of each three first; wait after each three."""

    def leave_out(self, ledger: int, many: int) -> None:
        """Send entries of LedgerHandleAdv behind one that is never sent."""

    def force(self, ledger: int) -> None:
        """Have everything synced that was acknowledged (DEFERRED_SYNC)."""

    def lose(self, ledger: int) -> None:
        """Lose a ledger's record, as a bad restore does."""

    def wipe(self, bookie: int) -> None:
        """Take the disks of a bookie that is down."""

    def send(self, ledger: int, many: int) -> None:
        """Send entries that the mute bookie does not answer."""

    def instead(self, old: int, new: int) -> None:
        """Say who replaces whom from here on."""

    def close(self, ledger: int) -> None:
        """Close as the writer."""

    def mute(self, bookie: int) -> None:
        """Let a bookie answer nothing any more."""

    def kill(self, bookie: int) -> None:
        """Kill a bookie."""

    def start(self, bookie: int) -> None:
        """Start a bookie that was killed."""

    def stop(self, bookie: int) -> None:
        """Stop a bookie cleanly."""

    def recover(self, ledger: int) -> None:
        """Open with recovery."""

    def repair(self, ledger: int, bad: int) -> None:
        """Copy what a bookie should have to the one that replaces it."""

    def delete(self, ledger: int) -> None:
        """Delete a ledger."""

    def collect(self, bookie: int, ledger: int) -> None:
        """Let a bookie find that a ledger is deleted."""


def threes(first: int, many: int) -> Iterator[Sequence[int]]:
    """Yield ids three at a time, each three backwards: until the lowest arrives, none of them is told."""
    for start in range(first, first + many, 3):
        yield range(min(start + 3, first + many) - 1, start - 1, -1)


class Simulated:
    """The simulator."""

    def __init__(self) -> None:
        self.world = World(NAMES, database=[n for n, storage in zip(NAMES, STORAGES, strict=True) if storage == "db"])
        self._writers: dict[int, Writer] = {}
        self._instead: dict[str, str] = {}
        self._mute: set[str] = set()
        self._next = 0

    def create(
        self,
        shape: Shape,
        members: Sequence[int],
        *,
        digest: Digest,
        password: bytes,
        kind: str = "",
        again: int | None = None,
    ) -> int:
        ledger = self._next if again is None else again
        self._next += again is None
        names = [NAMES[n] for n in members]
        self._writers[ledger] = self.world.create(
            ledger,
            shape,
            names,
            digest=digest,
            password=password,
            adv=kind == "adv" or again is not None,
            deferred=kind == "deferred",
        )
        return ledger

    def add(self, ledger: int, many: int, *, told: bool = False) -> None:
        writer = self._writers[ledger]
        for _ in range(many):
            writer.send(SIZE)
            self._deliver(writer)
            if told:
                writer.tell_lac()

    def _deliver(self, writer: Writer) -> None:
        while waiting := [name for name in writer.queues if name not in self._mute]:
            name = waiting[0]
            if not writer.deliver(name):
                writer.fail([name])
                new = self._instead[name]
                writer.change(lambda _, new=new: new)  # type: ignore[misc]  # mypy sees no default's type

    def add_backwards(self, ledger: int, many: int) -> None:
        writer = self._writers[ledger]
        for entries in threes(writer.next, many):
            for entry in entries:
                writer.send(SIZE, entry)
            self._deliver(writer)

    def leave_out(self, ledger: int, many: int) -> None:
        writer = self._writers[ledger]
        first = writer.next + 1
        for entry in range(first, first + many):
            writer.send(SIZE, entry)
        self._deliver(writer)

    def force(self, ledger: int) -> None:
        assert self._writers[ledger].force()

    def lose(self, ledger: int) -> None:
        self.world.forgotten[ledger] = self.world.records.pop(ledger)

    def wipe(self, bookie: int) -> None:
        self.world.bookies[NAMES[bookie]].wipe()

    def send(self, ledger: int, many: int) -> None:
        for _ in range(many):
            self._writers[ledger].send(SIZE)
        self._deliver(self._writers[ledger])

    def instead(self, old: int, new: int) -> None:
        self._instead[NAMES[old]] = NAMES[new]

    def close(self, ledger: int) -> None:
        self._writers[ledger].close()

    def mute(self, bookie: int) -> None:
        self._mute.add(NAMES[bookie])

    def kill(self, bookie: int) -> None:
        self._mute.discard(NAMES[bookie])
        self.world.bookies[NAMES[bookie]].kill()

    def start(self, bookie: int) -> None:
        self.world.bookies[NAMES[bookie]].start()

    def stop(self, bookie: int) -> None:
        self.world.bookies[NAMES[bookie]].stop()

    def recover(self, ledger: int) -> None:
        assert self.world.recover(ledger, list, lambda names: names[0])

    def repair(self, ledger: int, bad: int) -> None:
        assert self.world.repair(ledger, NAMES[bad], lambda _: self._instead[NAMES[bad]])

    def delete(self, ledger: int) -> None:
        self.world.delete(ledger)

    def collect(self, bookie: int, ledger: int) -> None:
        # What is closed and does not name the bookie goes once a day.
        self.world.collect_garbage(NAMES[bookie], surplus=False)
        assert ledger not in self.world.bookies[NAMES[bookie]].shelves


class Real:
    """BookKeeper."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.history = History(cluster)
        for n, storage in enumerate(STORAGES):
            self.history.bookie(n, storage)
        self._ledgers: dict[int, dict[str, Any]] = {}
        self._mute: set[int] = set()

    def create(
        self,
        shape: Shape,
        members: Sequence[int],
        *,
        digest: Digest,
        password: bytes,
        kind: str = "",
        again: int | None = None,
    ) -> int:
        names = [NAMES[n] for n in members]
        known = {"digest": JAVA[digest], "password": encoded(password)}
        ledger: int = self.cluster(
            "create",
            E=shape[0],
            W=shape[1],
            A=shape[2],
            members=names,
            explicit=kind == "told",
            adv=kind == "adv",
            deferred=kind == "deferred",
            id=again,
            custom={},
            **known,
        )
        assert again in (None, ledger)
        self._ledgers[ledger] = {"write": shape[1], "members": names, "next": 0, **known}
        return ledger

    def add(self, ledger: int, many: int, *, told: bool = False) -> None:
        about = self._ledgers[ledger]
        for _ in range(many):
            self.cluster("add", ledger=ledger, sizes=[SIZE])
            if told:
                self.cluster("told", ledger=ledger, lac=about["next"], bookies=self._write_set(about))
            about["next"] += 1

    def add_backwards(self, ledger: int, many: int) -> None:
        about = self._ledgers[ledger]
        for entries in threes(about["next"], many):
            self.cluster("add", ledger=ledger, sizes=[SIZE] * len(entries), ids=list(entries))
        about["next"] += many

    def leave_out(self, ledger: int, many: int) -> None:
        about = self._ledgers[ledger]
        about["next"] += 1
        self._send(ledger, many, ids=[about["next"] + n for n in range(many)])

    def force(self, ledger: int) -> None:
        self.cluster("force", ledger=ledger)

    def lose(self, ledger: int) -> None:
        self.cluster("delete", ledger=ledger)

    def wipe(self, bookie: int) -> None:
        self.history.wipe(bookie)

    @staticmethod
    def _write_set(about: Mapping[str, Any]) -> list[str]:
        members = about["members"]
        return [members[(about["next"] + i) % len(members)] for i in range(about["write"])]

    def send(self, ledger: int, many: int) -> None:
        self._send(ledger, many)

    def _send(self, ledger: int, many: int, ids: Sequence[int] | None = None) -> None:
        about = self._ledgers[ledger]
        arrive: dict[str, int] = {}
        mute = {NAMES[n] for n in self._mute}
        for _ in range(many):
            arrive |= {name: about["next"] for name in self._write_set(about) if name not in mute}
            about["next"] += 1
        self.cluster("send", ledger=ledger, sizes=[SIZE] * many, arrive=arrive, ids=ids)

    def instead(self, old: int, new: int) -> None:
        self.cluster("instead", old=NAMES[old], new=NAMES[new])

    def close(self, ledger: int) -> None:
        self.cluster("close", ledger=ledger)

    def mute(self, bookie: int) -> None:
        self._mute.add(bookie)
        self.cluster("mute", n=bookie)

    def kill(self, bookie: int) -> None:
        self.history.down(bookie, "killed")

    def start(self, bookie: int) -> None:
        self.history.up(bookie)

    def stop(self, bookie: int) -> None:
        self.history.down(bookie)

    def recover(self, ledger: int) -> None:
        about = self._ledgers[ledger]
        self.cluster("recover", ledger=ledger, digest=about["digest"], password=about["password"])

    def repair(self, ledger: int, bad: int) -> None:
        self.cluster("repair", ledger=ledger, bad=NAMES[bad])

    def delete(self, ledger: int) -> None:
        self.cluster("delete", ledger=ledger)

    def collect(self, bookie: int, ledger: int) -> None:
        self.cluster("collect", n=bookie, ledger=ledger)


@dataclass(frozen=True, slots=True)
class Script:
    """One ledger's history.

    Attributes:
        kind: what happens to it, see `play`.
        members: bookies of its first ensemble.
        before, after: entries before that happens, and after it.
    """

    kind: str
    shape: Shape
    members: Sequence[int]
    before: int
    after: int = 0
    digest: Digest = Digest.CRC32C
    password: bytes = b""


SCRIPTS: Final = """
plain 1/1/1 0 5; plain 2/2/2 1,4 7; plain 3/3/2 0,3,6 9; plain 3/2/2 1,4,7 11; plain 3/2/1 7,0,4 12
plain 4/2/2 0,1,3,4 13; plain 5/3/2 0,3,6,1,4 17; plain 4/3/3 6,7,0,1 1; plain 5/1/1 0,1,3,4,6 8
plain 6/4/2 0,1,3,4,6,7 25; plain 2/1/1 3,6 0; plain 3/2/2 1,3,7 2; plain 3/2/2 0,4,7 6 CRC32
plain 3/2/2 0,4,7 6 HMAC pw; plain 3/2/2 0,4,7 6 HMAC; plain 3/2/2 0,4,7 6 DUMMY x
changed 3/2/2 8,1,3 7+6; changed 3/2/2 1,8,3 0+5; changed 3/3/3 1,4,8 4+4; changed 2/2/2 8,0 1+1
changed 4/2/2 0,3,8,6 9+9; changed 5/3/3 8,0,1,3,4 12+3; changed 1/1/1 8 3+2; changed 3/2/2 0,8,4 5+9
changed 4/4/4 0,1,3,8 2+20; changed 5/2/2 0,1,3,4,8 11+1; changed 3/3/3 2,8,0 3+4; changed 3/2/2 8,2,1 6+7
changed 4/2/2 2,0,8,1 5+8; changed 2/2/2 2,8 0+3; changed 5/3/3 0,2,1,8,3 10+10
pending 3/2/2 0,5,1 6+4; pending 3/3/3 5,1,4 3+2; pending 2/2/2 0,5 5+1; pending 4/2/2 5,0,1,3 8+5
pending 5/3/3 0,5,1,3,4 9+6
left-pending 3/2/2 1,5,3 6+3; left-pending 3/3/3 5,0,4 4+2
behind 3/3/2 0,1,5 4+3; behind 2/2/1 5,4 3+2
left-behind 3/2/1 5,1,7 4+4
recovered-behind 2/2/1 5,1 3+1; recovered-behind 3/3/2 0,5,4 4+1
abandoned 3/2/2 0,4,6 8; abandoned 3/3/2 1,3,7 5; abandoned 1/1/1 6 4; abandoned 4/3/2 0,1,3,6 1
recovered 3/2/2 0,3,6 7; recovered 3/3/3 1,4,7 5; recovered 2/2/1 0,4 3; recovered 5/3/2 0,1,3,6,7 11
recovered 3/2/2 1,4,6 0; recovered 4/2/2 0,3,4,7 2
told 3/2/2 0,4,6 6 CRC32C p; told 2/2/2 1,3 4 HMAC p; told 3/3/2 1,3,7 3 CRC32 p; told 4/2/2 0,3,6,7 1 DUMMY p
repaired 3/2/2 8,0,3 35; repaired 3/2/2 0,8,3 34; repaired 4/2/2 1,0,8,4 47; repaired 3/3/2 8,1,4 12
repaired 5/2/2 0,1,3,4,8 63; repaired 2/1/1 0,8 1; repaired 5/3/2 0,8,1,3,4 21
deleted 3/2/2 0,3,6 7; deleted 3/3/3 1,4,7 5; deleted 2/2/2 0,4 3
adv 3/2/2 0,4,7 9; adv 3/3/2 1,3,6 7 CRC32 p; adv 2/2/1 4,6 5; adv 4/2/2 0,1,3,7 13
left-out 3/2/2 0,4,1 5+3; left-out 3/3/2 1,3,0 0+4; left-out 2/2/2 3,4 3+1
deferred 3/2/2 0,3,7 6+0; deferred 2/2/2 1,6 5+0; deferred 4/2/2 0,1,4,7 8+3; deferred 3/3/2 1,4,6 2+5
left-deferred 3/2/2 0,4,7 4+3; left-deferred 2/2/2 3,6 0+2
reused 3/2/2 0,3,6 9+4; reused 2/2/2 3,6 3+6; reused 3/3/3 4,3,6 5+5; reused 3/3/2 1,3,6 7+2 CRC32 p
wiped 3/2/2 8,0,3 9; wiped 3/3/2 1,8,6 5; wiped 2/2/2 8,7 4; wiped 1/1/1 8 3; wiped 4/2/1 0,1,8,4 10
newer 3/2/2 8,1,4 7; newer 2/2/2 0,8 5; newer 3/3/2 3,7,8 1
copied 3/3/3 8,0,3 7+2; copied 2/2/2 0,8 25+1; copied 3/2/2 1,8,4 12+3; copied 4/3/3 0,8,3,6 11+2
left-copied 3/3/3 4,8,1 6+1; left-copied 2/2/2 8,3 13+2; left-copied 3/2/2 0,1,8 9+4
own-copied 3/3/3 8,0,4 5+1; own-copied 4/2/2 6,8,0,1 12+3; left-own-copied 3/3/3 1,8,3 8+1
copied-twice 3/3/3 8,2,0 6+2; copied-twice 4/4/4 2,0,8,3 11+1
kept-copied 3/3/2 8,0,3 6+2; kept-copied 3/3/2 8,1,4 15+1
"""
"""What happens, E/W/A, bookies of the first ensemble, entries before that + entries after it, digest, password."""


def scripts() -> Iterator[Script]:
    """Yield the histories."""
    for text in re.split("[;\n]", SCRIPTS.strip()):
        kind, shape, members, entries, *more = text.split()
        digest, password = more[0] if more else "CRC32C", more[1] if len(more) > 1 else ""
        ensemble, write, ack = map(int, shape.split("/"))
        before, _, after = entries.partition("+")
        yield Script(
            kind,
            (ensemble, write, ack),
            [int(n) for n in members.split(",")],
            int(before),
            int(after or 0),
            Digest(digest),
            password.encode(),
        )


def play(stage: Stage) -> dict[int, Script]:
    """Play all histories; return which ledger is whose."""
    played: dict[int, Script] = {}
    for script in scripts():
        if script.kind == "newer":
            continue  # once the bookie that was wiped is back
        told = script.kind == "told"
        ledger = stage.create(
            script.shape,
            script.members,
            digest=script.digest,
            password=script.password,
            kind={"left-out": "adv", "left-deferred": "deferred"}.get(script.kind, script.kind),
        )
        played[ledger] = script
        if script.kind in ("adv", "left-out"):
            stage.add_backwards(ledger, script.before)
        else:
            stage.add(ledger, script.before, told=told)
    of = {kind: [n for n, script in played.items() if script.kind == kind] for kind in {s.kind for s in scripts()}}
    for ledger in of["left-out"]:
        stage.leave_out(ledger, played[ledger].after)
        stage.close(ledger)
    for ledger in of["deferred"] + of["left-deferred"]:
        if played[ledger].before:
            stage.force(ledger)
        stage.add(ledger, played[ledger].after)

    def free(ledger: int) -> list[int]:
        """Bookies that are up, and not in the ensemble."""
        return [n for n in (0, 1, 3, 4, 6, 7) if n not in played[ledger].members]

    stage.kill(FIRST_DEAD)
    stage.kill(SECOND_DEAD)
    for ledger in of["changed"]:
        stage.instead(FIRST_DEAD, free(ledger)[0])
        stage.instead(SECOND_DEAD, free(ledger)[1])
        stage.add(ledger, played[ledger].after)
    for kind in ("copied", "left-copied", "own-copied", "left-own-copied", "copied-twice"):
        # While the ledger is open, and its writer goes on.
        for ledger in of[kind]:
            own, second = free(ledger)[0], free(ledger)[1]
            stage.instead(FIRST_DEAD, own)
            stage.instead(SECOND_DEAD, second)
            stage.add(ledger, played[ledger].after)
            if "own" not in kind:
                stage.instead(FIRST_DEAD, free(ledger)[2])
            stage.repair(ledger, FIRST_DEAD)
            stage.add(ledger, played[ledger].after)
            if kind == "copied-twice":
                stage.repair(ledger, SECOND_DEAD)
    stage.mute(MUTE)
    for ledger in of["kept-copied"]:
        # The newcomer stores nothing.
        stage.instead(FIRST_DEAD, MUTE)
        stage.add(ledger, played[ledger].after)
        stage.instead(FIRST_DEAD, free(ledger)[0])
        stage.repair(ledger, FIRST_DEAD)
        stage.close(ledger)
    for ledger in of["pending"] + of["left-pending"]:
        stage.send(ledger, played[ledger].after)
    for ledger in of["behind"] + of["left-behind"] + of["recovered-behind"]:
        stage.add(ledger, played[ledger].after)
    for ledger in of["pending"] + of["behind"]:
        stage.close(ledger)
    stage.kill(MUTE)
    stage.start(MUTE)
    for kind in CLOSED:
        for ledger in of[kind]:
            stage.close(ledger)
    for ledger in of["recovered"] + of["recovered-behind"]:
        stage.recover(ledger)
    for ledger in of["repaired"]:
        stage.instead(FIRST_DEAD, free(ledger)[0])
        stage.repair(ledger, FIRST_DEAD)
    for ledger in of["reused"]:
        # The same key, on bookies of which some have the ledger that was forgotten.
        about = played[ledger]
        stage.lose(ledger)
        members = [*about.members[1:], free(ledger)[0]]
        stage.create(about.shape, members, digest=about.digest, password=about.password, again=ledger)
        stage.add_backwards(ledger, about.after)
        stage.close(ledger)
    stage.wipe(FIRST_DEAD)
    stage.start(FIRST_DEAD)
    for script in scripts():
        if script.kind == "newer":
            ledger = stage.create(script.shape, script.members, digest=script.digest, password=script.password)
            stage.add(ledger, script.before)
            stage.close(ledger)
            played[ledger] = script
    for ledger in of["deleted"]:
        stage.delete(ledger)
        for bookie in played[ledger].members[1:]:
            stage.collect(bookie, ledger)
    for bookie in (0, 3, 6):
        stage.stop(bookie)
    for bookie in (1, 4, 7, MUTE, FIRST_DEAD):
        stage.kill(bookie)
    return played


def scanned(folder: Path, out: Path) -> pa.Table:
    """Collect one bookie's disks."""
    options = CollectOptions((folder / "ledgers0",), (), (folder / "journal0",))
    collect(options, out, now=lambda: datetime.now(UTC), progress=lambda _: None)
    return open_dataset(out, "inventory").read("copies")


def by_row(copies: pa.Table) -> dict[tuple[int, str, str], dict[str, Any]]:
    """Return what is the same on both, by ledger, bookie and source."""
    rows = {}
    for row in copies.to_pylist():
        key = (row.pop("ledger"), row.pop("bookie"), row.pop("source"))
        row.pop("incarnation")
        rows[key] = row
    return rows


def differences(true: Mapping[Any, Any], found: Mapping[Any, Any], played: Mapping[int, Script]) -> Iterable[str]:
    """Say what is not the same."""
    for key in sorted({*true, *found}):
        one, other = true.get(key), found.get(key)
        if one != other:
            names = [name for name in one if one[name] != other[name]] if one and other else []
            yield (
                f"{key} {played[key[0]].kind} {played[key[0]].shape}: "
                + (
                    ", ".join(f"{n}: real {one[n]}, simulated {other[n]}" for n in names)
                    if one and other
                    else f"only {'real' if one else 'simulated'}: {one or other}"
                )
            )


def test_the_simulator_leaves_what_bookkeeper_leaves(tmp_path: Path) -> None:
    """Of more than 50 histories, all columns of all copies are the same, on all storages, stopped and killed."""
    simulated = Simulated()
    played = play(simulated)
    assert len(played) >= 50
    found = by_row(inventories.inventory(simulated.world).copies)
    with Cluster(tmp_path / "home") as cluster:
        real = Real(cluster)
        assert play(real) == played
        records = cluster.ledgers()
        # Folders are complete once their bookies have ended.
        parts = [scanned(tmp_path / f"home/bookies/b{n}", tmp_path / f"b{n}") for n in range(len(STORAGES))]
    wrong = list(differences(by_row(pa.concat_tables(parts)), found, played))
    assert not wrong, "\n".join(wrong)
    for ledger, record in simulated.world.records.items():
        row, metadata = records[ledger], record.metadata()
        assert [(s.first, list(s.members)) for s in metadata.segments] == [tuple(s) for s in row["segments"]], ledger
        assert (metadata.state.value, metadata.last_entry, metadata.length) == (
            row["state"],
            row["last"],
            row["length"],
        )
    assert records.keys() == simulated.world.records.keys()
