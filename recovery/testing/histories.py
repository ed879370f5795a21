"""Histories of whole clusters, drawn by class from the simulated protocol, and the inventories that they leave.

    make      class, seed, how many ledgers → what is true (`protocol.World`) and what is scanned of it (`View`)
    inventory the tables that `collect` would make of those disks, and what each bookie serves

Same class, seed and number: same history.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa

from recovery.codecs.entry import encode_lac_record
from recovery.collect.rows.copies import NO_LAC, Known, Source, copies
from recovery.collect.rows.ledger_facts import stamp
from recovery.collect.rows.source_copies import to_groups
from recovery.collect.sources.entry_records import DIGESTS
from recovery.model import tables
from recovery.model.metadata import DIGEST_SIZES, NO_ENTRY, Digest, State
from recovery.testing.protocol import Bookie, Copy, Record, Shelf, World

PASSWORD: Final = b"hunter2"
"""Known to whoever recovers."""
SECRET: Final = b"nobody knows"
_HEADER_SIZE: Final = 32
_AT: Final = datetime(2026, 1, 1, tzinfo=UTC)

Shape = tuple[int, int, int]
Weights = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Profile:
    """How ledgers of a class live. Sequences are drawn from: what stands in them more often is likelier.

    Attributes:
        shapes: (E, W, A).
        bookies: how many there are.
        lengths: entries of a ledger.
        changes: failures that one writer meets, beside those of bookies that die.
        at_once: bookies that fail together.
        early: the share of ledgers whose first failure comes before any answer.
        near: the share of failures that come within a few entries of the one before.
        flight: the share of ledgers that are written with adds under way, out of order.
        endings: closed, pending (closed with adds under way), abandoned, recovered, zombie (recovered under a writer).
        kinds: plain, adv, deferred.
        digests: names.
        secret: the share of ledgers whose password nobody knows.
        explicit: the share whose writers send explicit LACs.
        ledgers: of one cluster.
        waves: rounds of the cluster's life.
        crashes: the chance that a bookie dies in a wave.
        wiped: the share of dead bookies that come back empty.
        back: the chance that a dead bookie comes back in a wave.
        repaired: the chance that what a dead or wiped bookie should have is repaired.
        reopened: the chance that an abandoned ledger is opened with recovery in a wave, whatever has happened since.
        flushed: the chance that a bookie has a checkpoint in a wave.
        restarted: the chance that a bookie is stopped cleanly and started in a wave.
        deleted: the share of closed ledgers that is deleted in a wave.
        collected: the chance that a bookie collects garbage in a wave.
        compacted: the chance that logs and journals of deleted ledgers are gone in a wave.
        reused: the share of ledgers whose record is lost, and their id given out again.
        holes: the share of ledgers of which a bookie lost an entry.
        lost: the share of ledgers that a bookie lost all of.
        settled: the share of bookies that have a checkpoint when all is written.
        killed: the share of bookies that end as `kill -9` ends them.
        journals: the share of those whose journal is lost.
        unscanned, incomplete, damaged: how many bookies are not scanned, miss a folder, have damage that hides entries.
        named: the share of damage that names its ledger.
    """

    shapes: Sequence[Shape] = ((3, 2, 2), (3, 2, 2), (3, 3, 2), (2, 2, 2), (5, 3, 2), (4, 2, 1))
    bookies: int = 12
    lengths: Sequence[int] = (1, 2, 3, 5, 8, 13, 20, 30, 60, 100)
    changes: Sequence[int] = (0,)
    at_once: Sequence[int] = (1, 1, 1, 2)
    early: float = 0.0
    near: float = 0.0
    flight: float = 0.0
    endings: Weights = field(default_factory=lambda: {"closed": 1.0})
    kinds: Weights = field(default_factory=lambda: {"plain": 1.0})
    digests: Sequence[str] = ("CRC32C",)
    secret: float = 0.0
    explicit: float = 0.0
    ledgers: int = 500
    waves: int = 4
    crashes: float = 0.0
    wiped: float = 0.0
    back: float = 0.5
    repaired: float = 0.0
    reopened: float = 0.0
    flushed: float = 0.3
    restarted: float = 0.0
    deleted: float = 0.0
    collected: float = 0.0
    compacted: float = 0.0
    reused: float = 0.0
    holes: float = 0.0
    lost: float = 0.0
    settled: float = 0.6
    killed: float = 0.5
    journals: float = 0.0
    unscanned: Sequence[int] = (0,)
    incomplete: Sequence[int] = (0,)
    damaged: Sequence[int] = (0,)
    named: float = 0.5


_STRIPED: Final = ((3, 2, 2), (3, 2, 2), (4, 2, 2), (5, 3, 2), (5, 2, 1), (4, 3, 3))
_FULL: Final = ((3, 3, 2), (3, 3, 3), (2, 2, 1), (1, 1, 1), (2, 2, 2))
_LONG: Final = (20, 30, 60, 100, 200)
_FIRST: Final = Profile()
CLASSES: Final[Mapping[str, Profile]] = {
    "clean": Profile(lengths=_LONG, settled=1.0),
    "short": Profile(lengths=(1, 1, 2, 2, 3, 4, 5)),
    "full": Profile(shapes=_FULL, changes=(0, 0, 1, 2), flight=0.5),
    "changes": Profile(lengths=_LONG, changes=(1, 1, 2, 3), flight=0.5),
    "long": Profile(lengths=(300, 500, 1000), changes=(0, 0, 1, 3, 10), flight=0.3, ledgers=100),
    "few": Profile(ledgers=6, changes=(0, 0, 0, 1), flight=0.3, settled=0.8),
    "storm": Profile(changes=(2, 3, 5, 8), at_once=(1, 1, 2, 2, 3), early=0.3, near=0.5, flight=0.8),
    "pending": Profile(changes=(0, 0, 1), flight=1.0, endings={"closed": 0.2, "pending": 0.8}),
    "abandoned": Profile(changes=(0, 0, 1), flight=0.8, endings={"abandoned": 1.0}),
    "explicit": Profile(
        changes=(0, 0, 1), flight=0.5, explicit=1.0, endings={"closed": 0.5, "pending": 0.2, "abandoned": 0.3},
        restarted=0.3,
    ),
    "recovered": Profile(
        changes=(0, 0, 1), flight=0.8, endings={"recovered": 0.7, "zombie": 0.3}, crashes=0.3, restarted=0.2
    ),
    "reopened": Profile(
        changes=(0, 0, 1), flight=0.5, endings={"abandoned": 1.0}, reopened=0.4, crashes=0.9, wiped=0.7, back=0.8,
        waves=6,
    ),
    "rereplicated": Profile(
        shapes=_STRIPED + _FULL, changes=(0, 0, 1), flight=0.3, crashes=0.9, repaired=1.0, back=0.3, waves=5,
        collected=0.2,
    ),
    "wiped": Profile(changes=(0, 0, 1), flight=0.3, crashes=0.7, wiped=1.0, back=0.8, repaired=0.4),
    "killed": Profile(changes=(0, 1), flight=0.5, killed=1.0, journals=0.15, flushed=0.5, crashes=0.3),
    "deleted": Profile(
        deleted=0.3, crashes=0.6, collected=0.6, compacted=0.3, back=0.5, restarted=0.2, waves=5,
    ),
    "reused": Profile(reused=0.4, collected=0.1, waves=4, secret=0.3, changes=(0, 0, 1)),
    "adv": Profile(
        kinds={"adv": 1.0}, changes=(0, 0, 1), flight=1.0, endings={"closed": 0.4, "pending": 0.4, "abandoned": 0.2}
    ),
    "deferred": Profile(kinds={"deferred": 1.0}, changes=(0, 0, 0, 1), flight=0.3, explicit=0.3),
    "holes": Profile(holes=0.5, lost=0.2, changes=(0, 0, 1), flight=0.3),
    "secrets": Profile(digests=("CRC32C", "CRC32", "HMAC", "DUMMY"), secret=0.4, explicit=0.3, changes=(0, 0, 1)),
    "unscanned": Profile(
        unscanned=(1, 1, 2), changes=(0, 0, 1), flight=0.5, endings={"closed": 0.6, "pending": 0.2, "abandoned": 0.2}
    ),
    "damaged": Profile(
        incomplete=(0, 1, 1), damaged=(0, 1, 2), changes=(0, 0, 1), flight=0.3,
        endings={"closed": 0.7, "abandoned": 0.3},
    ),
    "mixed": Profile(
        shapes=_STRIPED + _FULL, lengths=(*_FIRST.lengths, 200), changes=(0, 0, 1, 1, 2, 4), early=0.1, near=0.2,
        flight=0.6, explicit=0.2,
        endings={"closed": 0.5, "pending": 0.15, "abandoned": 0.15, "recovered": 0.15, "zombie": 0.05},
        kinds={"plain": 0.85, "adv": 0.1, "deferred": 0.05}, digests=("CRC32C", "CRC32C", "CRC32", "HMAC"), secret=0.1,
        waves=6, crashes=0.6, wiped=0.2, repaired=0.5, reopened=0.1, restarted=0.1, deleted=0.05,
        collected=0.2, compacted=0.2, reused=0.02, holes=0.03, lost=0.02, journals=0.05,
        unscanned=(0, 0, 0, 1), incomplete=(0, 0, 0, 1), damaged=(0, 0, 0, 1),
    ),
}  # fmt: skip
"""What can happen, a class at a time, and all of it together."""


@dataclass(frozen=True, slots=True)
class View:
    """How disks were scanned.

    Attributes:
        unscanned: bookies that no inventory is of.
        incomplete: bookies of which a folder was not given; what stood there, by ledger.
        damaged: bookies with damage, the ledgers that it names, and entries that it hides, by ledger.
        unindexed: incomplete ones that miss an index folder: what is not seen there stands in the logs.
    """

    unscanned: tuple[str, ...] = ()
    incomplete: Mapping[str, Mapping[int, frozenset[int]]] = field(default_factory=dict)
    damaged: Mapping[str, tuple[tuple[int | None, int, frozenset[int]], ...]] = field(default_factory=dict)
    unindexed: frozenset[str] = frozenset()

    def hidden(self, name: str) -> dict[int, frozenset[int]]:
        """Return the entries of a bookie that its scan did not see, by ledger."""
        found = dict(self.incomplete.get(name, {}))
        for _, ledger, entries in self.damaged.get(name, ()):
            found[ledger] = found.get(ledger, frozenset()) | entries
        return found

    @property
    def sees_all(self) -> bool:
        """Whether everything was seen."""
        return not (self.unscanned or self.incomplete or self.damaged)


class _Life:
    """One ledger's writer, and what it has before it."""

    def __init__(self, rng: Random, world: World, ledger: int, profile: Profile, shape: Shape) -> None:
        self.rng, self.world, self.profile = rng, world, profile
        kind = _drawn(rng, profile.kinds)
        password = SECRET if rng.random() < profile.secret else rng.choice((PASSWORD, b""))
        free = world.available(())
        quorum = shape if shape[0] <= len(free) else (min(2, len(free)),) * 3
        self.writer = world.create(
            ledger,
            quorum,
            rng.sample(free, quorum[0]),
            digest=Digest(rng.choice(profile.digests)),
            password=password,
            adv=kind == "adv",
            deferred=kind == "deferred",
        )
        self.left = rng.choice(profile.lengths)
        self.flight = rng.random() < profile.flight or kind == "adv"
        self.window = rng.choice((1, 2, 4, 8))
        self.lag = rng.choice((0, 0, 1, 3, 10))
        self.explicit = rng.random() < profile.explicit
        self.ending = _drawn(rng, profile.endings)
        self.points = self._failures(self.left)
        self.replaced: list[str] = []
        self.refused: list[str] = []
        self.written = 0

    def _failures(self, length: int) -> list[int]:
        rng, points = self.rng, []
        for number in range(rng.choice(self.profile.changes)):
            if number == 0 and rng.random() < self.profile.early:
                points.append(0)
            elif points and rng.random() < self.profile.near:
                points.append(min(length - 1, points[-1] + rng.randint(0, 3)))
            else:
                points.append(rng.randrange(length))
        return sorted(points)

    def step(self, share: float) -> None:
        """Write a share of what is left."""
        many = max(1, round(self.left * share)) if self.left else 0
        while many > 0 and self.writer.is_open():
            self._replace_dead()
            if not self.writer.is_open():
                return
            run = many
            if self.points:
                run = min(run, max(0, self.points[0] - self.written))
            if run:
                self._write(run)
                self.left, self.written, many = self.left - run, self.written + run, many - run
            elif self.points:
                self.points.pop(0)
                self._fail()

    def _sizes(self, many: int) -> list[int]:
        return [self.rng.randint(1, 300) for _ in range(many)]

    def _write(self, many: int) -> None:
        writer, rng = self.writer, self.rng
        fast = 0
        if not self.flight and not writer.queues and not writer.pending and self._takes():
            fast = many
        elif self.flight and many > 40 and not writer.record.adv:
            writer.deliver_all()
            fast = many - 40 if not writer.pending and self._takes() else 0
        if fast:
            writer.write(self._sizes(fast), lag=self.lag)
        if many > fast:
            self._send(self._sizes(many - fast))
        if self.explicit and rng.random() < 0.5 and writer.is_open():
            writer.tell_lac()
        if writer.record.deferred and rng.random() < 0.5:
            writer.force()

    def _takes(self) -> bool:
        record = self.writer.record
        for name in self.writer.members:
            bookie = self.world.bookies[name]
            shelf = bookie.shelves.get(self.writer.ledger)
            if not bookie.up or (shelf is not None and (shelf.fenced or shelf.key != record.key)):
                return False
        return True

    def _send(self, sizes: Sequence[int]) -> None:
        """Send entries one by one, while others are under way."""
        writer, rng = self.writer, self.rng
        order = [writer.next + n for n in range(len(sizes))]
        if writer.record.adv:
            # Ids are handed out in order, and sent by threads that overtake each other.
            order.sort(key=lambda entry: entry + rng.randint(0, 5))
        slow = rng.choice(writer.members) if rng.random() < 0.5 else None
        for entry, size in zip(order, sizes, strict=True):
            if not writer.is_open():
                return
            if self._pending_change() and not writer.is_open():
                return
            writer.send(size, entry)
            while writer.queues and writer.is_open() and (writer.pending > self.window or rng.random() < 0.6):
                names = list(writer.queues)
                name = rng.choice(names)
                if name == slow and len(names) > 1 and rng.random() < 0.8:
                    name = rng.choice(names)
                self._deliver(name)
            if not self.flight:
                while writer.queues and writer.is_open():
                    self._deliver(next(iter(writer.queues)))

    def _deliver(self, name: str) -> None:
        if self.writer.deliver(name):
            return
        bookie, record = self.world.bookies[name], self.writer.record
        shelf = bookie.shelves.get(self.writer.ledger)
        if bookie.up and shelf is not None and shelf.key == record.key:
            # Fenced: somebody else closes the ledger.
            self.writer.close()
            return
        self.refused.append(name)
        self.writer.fail([name])
        self._pending_change()

    def _pending_change(self) -> bool:
        return not self.writer.change(self._choose, self.refused)

    def _choose(self, names: Sequence[str]) -> str:
        back = [name for name in names if name in self.replaced]
        fresh = [name for name in names if name not in self.replaced]
        return self.rng.choice(back if back and (not fresh or self.rng.random() < 0.2) else fresh)

    def _replace_dead(self) -> None:
        writer = self.writer
        dead = [name for name in writer.members if not self.world.bookies[name].up]
        if dead:
            self.replaced += dead
            writer.fail(dead)
            writer.change(self._choose, self.refused)

    def _fail(self) -> None:
        writer, rng = self.writer, self.rng
        members = writer.members
        names = rng.sample(members, min(len(members), rng.choice(self.profile.at_once)))
        if self.flight and not writer.queues:
            for size in self._sizes(min(self.left, rng.randint(0, 4))):
                writer.send(size)
                self.left -= 1
                self.written += 1
        arrived = {name: rng.randint(0, len(queue)) for name, queue in writer.queues.items() if rng.random() < 0.7}
        self.replaced += names
        writer.fail(names, arrived)
        writer.change(self._choose, self.refused)

    def end(self) -> None:
        """Close, abandon or recover."""
        writer, rng = self.writer, self.rng
        if writer.is_open():
            self._replace_dead()
        if self.ending == "closed":
            while writer.queues and writer.is_open():
                self._deliver(next(iter(writer.queues)))
        if not writer.is_open():
            self._drain(0.5)
            return
        if writer.record.deferred and rng.random() < 0.5:
            writer.force()
        if self.ending in ("closed", "pending"):
            writer.close()
            self._drain(0.3)
            return
        if self.ending == "zombie":
            self.recover()
            self._drain(0.9)
            writer.close()
            return
        self._drain(0.5)
        writer.abandon()
        if self.ending == "recovered":
            self.recover()

    def recover(self) -> None:
        """Let somebody open the ledger."""
        self.world.recover(self.writer.ledger, self._shuffled, self.rng.choice, lag=self.rng.choice((0, 0, 2)))

    def _shuffled(self, names: list[str]) -> list[str]:
        order = list(names)
        self.rng.shuffle(order)
        return order

    def _drain(self, whole: float) -> None:
        """Let some of what is under way arrive; the rest never does."""
        for name in list(self.writer.queues):
            queue = self.writer.queues[name]
            many = len(queue) if self.rng.random() < whole else self.rng.randint(0, len(queue))
            for _ in range(many):
                self.writer.deliver(name, heard=False)
        self.writer.queues.clear()


def _drawn(rng: Random, weights: Weights) -> str:
    return rng.choices(list(weights), list(weights.values()))[0]


SCANS: Final[Mapping[str, Mapping[str, Any]]] = {
    "unscanned": {"unscanned": (1, 1, 2)},
    "incomplete": {"incomplete": (1, 1, 2)},
    "damaged": {"damaged": (1, 1, 2)},
    "few": {"ledgers": 6},
}
"""What any class can be combined with: less is seen of it, or of its cluster."""


def profile_of(name: str) -> Profile:
    """Return the profile of a class, or of a class and a scan: ``storm``, ``storm/unscanned``."""
    own, _, scan = name.partition("/")
    return replace(CLASSES[own], **SCANS[scan]) if scan else CLASSES[own]


def make(name: str, seed: int, ledgers: int, profile: Profile | None = None) -> tuple[World, View]:
    """Live through a cluster's history of a class, or of a profile instead of the class's; ids count from 0."""
    rng = Random(f"{name} {seed}")
    profile = profile or profile_of(name)
    names = [f"10.0.0.{number}:3181" for number in range(1, profile.bookies + 1)]
    world = World(names, database=[name for name in names if rng.random() < 0.3])
    lives: list[_Life] = []
    bounds = [ledgers * wave // profile.waves for wave in range(profile.waves + 1)]
    for wave in range(profile.waves):
        ids = list(range(bounds[wave], bounds[wave + 1]))
        if wave and profile.reused:
            ids += _forget(rng, world, profile)
        lives += [_Life(rng, world, ledger, profile, rng.choice(profile.shapes)) for ledger in ids]
        for life in lives:
            life.step(rng.random())
        if rng.random() < profile.crashes:
            up = [name for name in names if world.bookies[name].up]
            if len(up) > profile.bookies // 2:
                world.bookies[rng.choice(up)].kill()
        going = []
        for life in lives:
            if wave + 1 < profile.waves and rng.random() < 0.25:
                life.step(rng.random())
                going.append(life)
            else:
                life.step(1.0)
                life.end()
        lives = going
        world.past.append(world.metadata())
        _upkeep(rng, world, profile, {life.writer.ledger for life in lives})
    _harm(rng, world, profile)
    for bookie in world.bookies.values():
        if bookie.up:
            if rng.random() < profile.settled:
                bookie.flush()
            if rng.random() < profile.killed:
                bookie.kill()
            else:
                bookie.stop(journals_kept=rng.random() < 0.5)
    lost = [name for name in names if not world.bookies[name].clean and rng.random() < profile.journals]
    return world, _view(rng, world, profile, lost)


def _forget(rng: Random, world: World, profile: Profile) -> list[int]:
    """Lose records as a restore from too old a state does; return their ids, which are given out again."""
    closed = [n for n, record in world.records.items() if record.state is State.CLOSED and n not in world.forgotten]
    lost = [ledger for ledger in closed if rng.random() < profile.reused]
    for ledger in lost:
        world.forgotten[ledger] = world.records.pop(ledger)
    return lost


def _upkeep(rng: Random, world: World, profile: Profile, written: Collection[int]) -> None:
    """What happens to bookies, and to ledgers that nobody writes, between two waves."""
    for bookie in world.bookies.values():
        if not bookie.up and rng.random() < profile.back:
            if rng.random() < profile.wiped:
                bookie.wipe()
            bookie.start()
        elif bookie.up and rng.random() < profile.restarted:
            bookie.stop(journals_kept=rng.random() < 0.5)
            bookie.start()
        elif bookie.up and rng.random() < profile.flushed:
            bookie.flush()
    if profile.reopened:
        for ledger, record in world.records.items():
            if record.state is not State.CLOSED and ledger not in written and rng.random() < profile.reopened:
                world.recover(ledger, lambda names: rng.sample(names, len(names)), rng.choice, lag=rng.choice((0, 2)))
    if profile.repaired:
        _repair(rng, world, profile)
    for ledger in [n for n, record in world.records.items() if record.state is State.CLOSED]:
        if profile.deleted and rng.random() < profile.deleted:
            world.delete(ledger)
    for name, bookie in world.bookies.items():
        if bookie.up and rng.random() < profile.collected:
            world.collect_garbage(name)
        if bookie.up and rng.random() < profile.compacted:
            bookie.compact()


def _repair(rng: Random, world: World, profile: Profile) -> None:
    """Re-replicate closed ledgers of bookies that are down, or that lost entries."""
    down = {name for name, bookie in world.bookies.items() if not bookie.registered}
    empty = {name for name, bookie in world.bookies.items() if bookie.registered and bookie.incarnation > 1}
    for ledger, record in world.records.items():
        if record.state is not State.CLOSED or (record.last or 0) < 0:
            continue
        named = dict.fromkeys(name for _, members in record.segments for name in members)
        bad = [name for name in named if name in down or (name in empty and ledger not in world.bookies[name].shelves)]
        for name in bad:
            if rng.random() < profile.repaired:
                world.repair(ledger, name, rng.choice)


def _harm(rng: Random, world: World, profile: Profile) -> None:
    """Lose single entries and single ledgers without a trace."""
    for ledger in world.records:
        holders = [bookie for bookie in world.bookies.values() if ledger in bookie.shelves]
        if holders and rng.random() < profile.holes:
            shelf = rng.choice(holders).shelves[ledger]
            held = sorted(shelf.served())
            for entry in rng.sample(held, min(len(held), rng.choice((1, 1, 1, 2, 5)))):
                shelf.index.pop(entry, None)
                shelf.fresh.pop(entry, None)
        if holders and rng.random() < profile.lost:
            rng.choice(holders).shelves.pop(ledger)


def _view(rng: Random, world: World, profile: Profile, lost: Sequence[str]) -> View:
    names = list(world.bookies)
    rng.shuffle(names)
    many = [rng.choice(some) for some in (profile.unscanned, profile.incomplete, profile.damaged)]
    unscanned, rest = names[: many[0]], names[many[0] :]
    folders, harmed = rest[: many[1]], rest[many[1] : many[1] + many[2]]
    incomplete: dict[str, dict[int, frozenset[int]]] = {}
    for name in folders:
        # A folder of two: what stood there is not seen.
        shelves = world.bookies[name].shelves
        incomplete[name] = {
            ledger: frozenset(entry for entry in shelf.index if rng.random() < 0.5)
            if rng.random() < 0.5
            else frozenset(shelf.index)
            for ledger, shelf in shelves.items()
            if rng.random() < 0.5
        }
    for name in lost:
        if name not in unscanned:
            shelves = world.bookies[name].shelves
            gone = {ledger: frozenset(shelf.fresh) for ledger, shelf in shelves.items()}
            before = incomplete.get(name, {})
            for ledger, entries in gone.items():
                gone[ledger] = entries | before.get(ledger, frozenset())
            world.bookies[name].lose_journal()
            incomplete[name] = before
    damaged: dict[str, tuple[tuple[int | None, int, frozenset[int]], ...]] = {}
    for name in harmed:
        rows: list[tuple[int | None, int, frozenset[int]]] = []
        by_name = rng.random() < profile.named
        for ledger, shelf in world.bookies[name].shelves.items():
            if shelf.index and rng.random() < 0.1:
                first = rng.choice(sorted(shelf.index))
                some = frozenset(entry for entry in shelf.index if first <= entry < first + rng.randint(1, 4))
                rows.append((ledger if by_name else None, ledger, some))
        damaged[name] = tuple(rows)
    damaged = {name: rows for name, rows in damaged.items() if rows}
    unindexed = frozenset(name for name in folders if rng.random() < 0.5)
    return View(tuple(sorted(unscanned)), incomplete, damaged, unindexed)


# ---------------------------------------------------------------------------------------------------- inventories


@dataclass(frozen=True, slots=True)
class Inventory:
    """What scans give.

    Attributes:
        copies, bookies, damage: the tables.
        served: entries that each scanned bookie has in its index, or will have after its start, by ledger and bookie;
            only what the scan saw.
        leftovers: ledgers that each scanned bookie has in logs or old journals only.
        unscanned: members that no inventory is of.
    """

    copies: pa.Table
    bookies: pa.Table
    damage: pa.Table
    served: dict[int, dict[str, dict[int, Copy]]]
    leftovers: dict[int, list[str]]
    unscanned: tuple[str, ...]


def inventory(world: World, view: View | None = None) -> Inventory:
    """Return what `collect` would make of the bookies' disks; those that still run are read as if they were killed."""
    view = view or View()
    parts: list[pa.Table] = []
    served: dict[int, dict[str, dict[int, Copy]]] = {}
    leftovers: dict[int, list[str]] = {}
    rows, harms = [], []
    for name, bookie in world.bookies.items():
        if name in view.unscanned:
            continue
        damage = view.damaged.get(name, ())
        hidden = view.hidden(name)
        complete = name not in view.incomplete and not any(ledger is None for ledger, _, _ in damage)
        taken = _Taken(world, bookie, complete=complete)
        named = {ledger for ledger, _, _ in damage if ledger is not None}
        for ledger in sorted({*bookie.shelves, *bookie.dropped}):
            dead, shelf = bookie.dropped.get(ledger), bookie.shelves.get(ledger)
            both = shelf or dead
            if both is None:
                continue
            taken.take(
                ledger, both, hidden.get(ledger, frozenset()), named=ledger in named, logged=name in view.unindexed
            )
            own = {**both.index, **({} if bookie.clean else both.fresh)}
            own = {entry: copy for entry, copy in own.items() if entry not in hidden.get(ledger, ())}
            if own:
                served.setdefault(ledger, {})[name] = own
            elif both.left:
                leftovers.setdefault(ledger, []).append(name)
        parts += taken.tables()
        rows.append(_bookie_row(bookie, taken, complete=complete and not named, damaged=len(damage)))
        harms += [_damage_row(bookie, ledger, entries) for ledger, _, entries in damage]
    return Inventory(
        pa.concat_tables(parts) if parts else tables.COPIES.empty_table(),
        pa.Table.from_pylist(rows, schema=tables.BOOKIES),
        pa.Table.from_pylist(harms, schema=tables.DAMAGE),
        served,
        leftovers,
        view.unscanned,
    )


class _Taken:
    """Columns of one bookie's rows, gathered ledger by ledger, as `recovery.collect.merge` puts them together."""

    def __init__(self, world: World, bookie: Bookie, *, complete: bool) -> None:
        self._world, self._bookie, self._complete = world, bookie, complete
        self._entries: dict[Source, tuple[list[int], list[int]]] = {source: ([], []) for source in Source}
        self._heads: dict[Source, list[tuple[int, ...]]] = {source: [] for source in Source}
        self._rows: dict[Source, list[int]] = {source: [] for source in Source}
        self._known: dict[int, tuple[bool, bool, int, int, bytes | None]] = {}
        self._keys: dict[bytes, int] = {}
        self.entries = 0

    def take(self, ledger: int, shelf: Shelf, hidden: Collection[int], *, named: bool, logged: bool) -> None:
        """Take what a bookie has of one ledger."""
        known = self._known_records(ledger)
        record = next((record for record in known if record.key == shelf.key), known[0])
        index = _without(shelf.index, hidden)
        journal = {entry: copy for entry, copy in shelf.fresh.items() if entry not in shelf.index}
        log = {e: copy for e, copy in shelf.left.items() if e not in shelf.index and e not in shelf.fresh}
        if logged:
            log |= {entry: copy for entry, copy in shelf.index.items() if entry in hidden}
        if self._bookie.clean:
            log, journal = {**log, **journal}, {}
        listed = bool(index) or (shelf.listed and not (logged and hidden)) or named
        for source, held in ((Source.INDEX, index), (Source.JOURNAL, journal), (Source.LOG, log)):
            ledgers, entries = self._entries[source]
            ledgers.extend([ledger] * len(held))
            entries.extend(held)
            if held:
                self._heads[source] += _heads(ledger, held, known, every=source is not Source.INDEX)
        if listed:
            self._rows[Source.INDEX].append(ledger)
        if journal or (not listed and not log and shelf.said):
            self._rows[Source.JOURNAL].append(ledger)
        if log:
            self._rows[Source.LOG].append(ledger)
        self.entries += len(index) + len(journal)
        explicit = shelf.explicit if shelf.explicit > NO_ENTRY - 1 else NO_LAC
        raw = encode_lac_record(ledger, explicit, record.digest, record.password) if explicit != NO_LAC else None
        key = self._keys.setdefault(shelf.key, len(self._keys)) if shelf.keyed or shelf.listed else -1
        self._known[ledger] = (self._complete and not named, shelf.fence_stored, key, explicit, raw)

    def _known_records(self, ledger: int) -> list[Record]:
        """Return the records that an id has and had, the present one first."""
        world = self._world
        some = (world.records.get(ledger), world.deleted.get(ledger), world.forgotten.get(ledger))
        return [record for record in some if record is not None]

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows."""
        for source in Source:
            ledgers = self._rows[source]
            if not ledgers:
                continue
            key, entries = (np.array(column, np.int64) for column in self._entries[source])
            known = [self._known[ledger] for ledger in ledgers]
            whole = [row[0] and source is not Source.LOG for row in known]
            facts = Known(
                np.array(ledgers, np.int64),
                np.array(whole, np.bool_),
                np.array([row[1] for row in known], np.bool_),
                np.zeros(len(known), np.bool_),
                np.array([row[2] for row in known], np.int64),
                [stamp(key) for key in self._keys],
                np.array([row[3] for row in known], np.int64),
                [row[4] for row in known],
            )
            heads = np.array(self._heads[source], np.int64).reshape(-1, 6)
            yield copies(source, facts, to_groups(key, entries), heads, self._bookie.name, self._bookie.incarnation)

    @property
    def ledgers(self) -> int:
        """How many ledgers have a row."""
        return len(self._known)


def _without(held: dict[int, Copy], hidden: Collection[int]) -> dict[int, Copy]:
    return {entry: copy for entry, copy in held.items() if entry not in hidden} if hidden else held


def _heads(
    ledger: int, held: Mapping[int, Copy], records: Sequence[Record], *, every: bool
) -> Iterator[tuple[int, ...]]:
    """Yield the headers that are read: of the first entry and the last; of one more where that tells no digest."""
    by_life = {record.life: record for record in reversed(records)}
    first, last = min(held), max(held)

    def told(copy: Copy) -> bool:
        record = by_life.get(copy.life, records[0])
        return record.digest in (Digest.CRC32, Digest.CRC32C) or (record.digest is Digest.HMAC and not record.password)

    for entry in dict.fromkeys((last, last - 1, first) if every or not told(held[last]) else (last, first)):
        copy = held.get(entry)
        if copy is not None:
            digest = by_life.get(copy.life, records[0]).digest
            size = copy.size + _HEADER_SIZE + DIGEST_SIZES[digest]
            yield ledger, entry, copy.lac, copy.length, size, DIGESTS.index(digest) if told(copy) else -1


def _bookie_row(bookie: Bookie, taken: _Taken, *, complete: bool, damaged: int) -> dict[str, Any]:
    return {
        "bookie": bookie.name,
        "incarnation": bookie.incarnation,
        "incarnation_evidence": [],
        "version_files": [],
        "storage": "db" if bookie.database else "interleaved",
        "mode": "disks",
        "dirty": not bookie.clean,
        "started": _AT,
        "ended": _AT,
        "complete": complete,
        "dirs": [],
        "journals": [],
        "max_ids": [],
        "ledgers": taken.ledgers,
        "entries": taken.entries,
        "damaged": damaged,
    }


def _damage_row(bookie: Bookie, ledger: int | None, entries: Collection[int]) -> dict[str, Any]:
    return {
        "bookie": bookie.name,
        "incarnation": bookie.incarnation,
        "file": "0.log",
        "offset": 1024,
        "length": 100,
        "reason": "bad_length",
        "scope": None if ledger is None else 0,
        "ledger": ledger,
        "hides_entries": True,
        "detail": f"{len(entries)} entries",
    }
