"""Histories of whole clusters, drawn by class from the simulated protocol.

`make` takes a class, a seed and how many ledgers; it returns what is true (`protocol.World`), and what of it is scanned
(`inventories.View`). The same class, seed and number give the same history.
"""

from collections.abc import Collection, Sequence
from random import Random
from typing import Final

from recovery.model.metadata import Digest, LedgerState
from tests.simulation.inventories import View
from tests.simulation.profiles import Profile, Shape, Weights, profile_of
from tests.simulation.protocol import World

PASSWORD: Final = b"hunter2"
"""Known to anybody who recovers."""
SECRET: Final = b"nobody knows"


class _Life:
    """One ledger's writer, and what it has before it."""

    def __init__(self, rng: Random, world: World, ledger: int, profile: Profile, shape: Shape) -> None:
        self.rng, self.world, self.profile = rng, world, profile
        kind = _draw(rng, profile.kinds)
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
        self.ending = _draw(rng, profile.endings)
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
        count = max(1, round(self.left * share)) if self.left else 0
        while count > 0 and self.writer.is_open():
            self._replace_dead()
            if not self.writer.is_open():
                return
            run = count
            if self.points:
                run = min(run, max(0, self.points[0] - self.written))
            if run:
                self._write(run)
                self.left, self.written, count = self.left - run, self.written + run, count - run
            elif self.points:
                self.points.pop(0)
                self._fail()

    def add_few(self, count: int) -> None:
        """Write a few entries beside bookies that do not answer: one of them may be waited for, or given up."""
        writer, rng, bookies = self.writer, self.rng, self.world.bookies
        count = min(count, self.left)
        if writer.is_open():
            self._replace_dead()
        for size in self._sizes(count):
            if not writer.is_open():
                return
            writer.send(size, None)
            self.left, self.written = self.left - 1, self.written + 1
            while writer.is_open() and (names := [n for n in writer.queues if not bookies[n].is_hung]):
                self._deliver(rng.choice(names))
                if rng.random() < 0.1:
                    break
        hung = [name for name in writer.members if bookies[name].is_hung]
        if writer.is_open() and hung and rng.random() < 0.3:
            self.replaced += hung
            self.refused += hung
            writer.fail(hung)
            writer.change(self._choose, self.refused)

    def _sizes(self, count: int) -> list[int]:
        return [self.rng.randint(1, 300) for _ in range(count)]

    def _write(self, count: int) -> None:
        writer, rng = self.writer, self.rng
        fast = 0
        if not self.flight and not writer.queues and not writer.pending and self._takes():
            fast = count
        elif self.flight and count > 40 and not writer.record.adv:
            writer.deliver_all()
            fast = count - 40 if not writer.pending and self._takes() else 0
        if fast:
            writer.write(self._sizes(fast), lag=self.lag)
        if count > fast:
            self._send(self._sizes(count - fast))
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
            if self._change_while_pending() and not writer.is_open():
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
        if bookie.up and bookie.writable and shelf is not None and shelf.key == record.key:
            # Fenced: somebody else closes the ledger.
            self.writer.close()
            return
        self.refused.append(name)
        self.writer.fail([name])
        self._change_while_pending()

    def _change_while_pending(self) -> bool:
        return not self.writer.change(self._choose, self.refused)

    def _choose(self, names: Sequence[str]) -> str:
        back = [name for name in names if name in self.replaced]
        fresh = [name for name in names if name not in self.replaced]
        return self.rng.choice(back if back and (not fresh or self.rng.random() < 0.2) else fresh)

    def _replace_dead(self) -> None:
        writer = self.writer
        dead = [name for name in writer.members if not self.world.bookies[name].registered]
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
        self.world.recover(self.writer.ledger, self._shuffle, self.rng.choice, lag=self.rng.choice((0, 0, 2)))

    def _shuffle(self, names: list[str]) -> list[str]:
        order = list(names)
        self.rng.shuffle(order)
        return order

    def _drain(self, whole: float) -> None:
        """Let some of what is under way arrive; the rest never does."""
        for name in list(self.writer.queues):
            queue = self.writer.queues[name]
            count = len(queue) if self.rng.random() < whole else self.rng.randint(0, len(queue))
            for _ in range(count):
                self.writer.deliver(name, heard=False)
        self.writer.queues.clear()


def _draw(rng: Random, weights: Weights) -> str:
    return rng.choices(list(weights), list(weights.values()))[0]


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
            ids += _forget_records(rng, world, profile)
        lives += [_Life(rng, world, ledger, profile, rng.choice(profile.shapes)) for ledger in ids]
        for life in lives:
            life.step(rng.random())
        if rng.random() < profile.crashes:
            up = [name for name in names if world.bookies[name].up]
            if len(up) > profile.bookies // 2:
                world.bookies[rng.choice(up)].kill()
        if profile.tended:
            _tend(rng, world, profile, lives)
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


def _forget_records(rng: Random, world: World, profile: Profile) -> list[int]:
    """Lose records as a restore from too old a state does; return their ids, which are given out again."""
    closed = [
        n for n, record in world.records.items() if record.state is LedgerState.CLOSED and n not in world.forgotten
    ]
    lost = [ledger for ledger in closed if rng.random() < profile.reused]
    for ledger in lost:
        world.forgotten[ledger] = world.records.pop(ledger)
    return lost


def _tend(rng: Random, world: World, profile: Profile, lives: Sequence[_Life]) -> None:
    """Let auto-recovery act while ledgers are written, bookies come and go, and some of them do not answer."""

    def shuffle(names: list[str]) -> list[str]:
        return rng.sample(names, len(names))

    for _ in range(rng.choice((1, 1, 2, 3))):
        up = [bookie for bookie in world.bookies.values() if bookie.up]
        if len(up) > 1 and rng.random() < profile.crashes:
            rng.choice(up).kill()
        deaf = [bookie for bookie in world.bookies.values() if bookie.up and rng.random() < profile.deaf]
        for bookie in deaf:
            if rng.random() < 0.5:
                bookie.up = False
            else:
                bookie.writable = False
        for life in lives:
            if rng.random() < 0.8:
                life.add_few(rng.choice((0, 1, 1, 2, 3, 5)))
        for bookie in deaf:
            if rng.random() < 0.5:
                bookie.up = bookie.writable = True
        for ledger in list(world.records):
            if rng.random() < profile.tended:
                world.tend(ledger, rng.choice, shuffle)
            # Auto-recovery opens with recovery what has missed a bookie for longer than it waits.
            if rng.random() < profile.tended / 10 and world.misses_members(ledger):
                world.recover(ledger, shuffle, rng.choice, lag=rng.choice((0, 2)))
        for bookie in deaf:
            bookie.up = bookie.writable = True
        for bookie in world.bookies.values():
            if not bookie.up and rng.random() < profile.back:
                bookie.start()
        for life in lives:
            if rng.random() < 0.4:
                life.add_few(rng.choice((1, 1, 2, 4)))


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
            if record.state is not LedgerState.CLOSED and ledger not in written and rng.random() < profile.reopened:
                world.recover(ledger, lambda names: rng.sample(names, len(names)), rng.choice, lag=rng.choice((0, 2)))
    if profile.repaired:
        _repair(rng, world, profile)
    for ledger in [n for n, record in world.records.items() if record.state is LedgerState.CLOSED]:
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
        if record.state is not LedgerState.CLOSED or (record.last or 0) < 0:
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
            stored = sorted(shelf.list_served())
            for entry in rng.sample(stored, min(len(stored), rng.choice((1, 1, 1, 2, 5)))):
                shelf.index.pop(entry, None)
                shelf.fresh.pop(entry, None)
        if holders and rng.random() < profile.lost:
            rng.choice(holders).shelves.pop(ledger)


def _view(rng: Random, world: World, profile: Profile, lost: Sequence[str]) -> View:
    names = list(world.bookies)
    rng.shuffle(names)
    counts = [rng.choice(some) for some in (profile.unscanned, profile.incomplete, profile.damaged)]
    unscanned, rest = names[: counts[0]], names[counts[0] :]
    folders, harmed = rest[: counts[1]], rest[counts[1] : counts[1] + counts[2]]
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
            hidden = incomplete.get(name, {})
            for ledger, entries in gone.items():
                gone[ledger] = entries | hidden.get(ledger, frozenset())
            world.bookies[name].lose_journal()
            incomplete[name] = hidden
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
