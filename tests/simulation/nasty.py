"""Histories that no class draws: each written for one way in which a reconstruction could go wrong.

    make    name, seed, how many ledgers → what is true and what is scanned of it, as `histories.make` gives it

A third of the ledgers of a cluster are ordinary, so that it has a prior. Same name, seed and number: same history.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from recovery.model.metadata import LedgerState
from tests.simulation.histories import PASSWORD
from tests.simulation.inventories import View
from tests.simulation.profiles import Shape
from tests.simulation.protocol import World, Writer

BOOKIES: Final = 9
_SHAPES: Final[Sequence[Shape]] = ((3, 2, 2), (3, 3, 2), (2, 2, 2), (5, 3, 2), (4, 2, 1), (3, 3, 3))


@dataclass(slots=True)
class Stage:
    """A cluster that a history is played on.

    Attributes:
        rng: all that is by chance.
        world: the cluster.
        next: the next ledger's id.
    """

    rng: Random
    world: World
    next: int = 0

    @property
    def names(self) -> list[str]:
        """The bookies."""
        return list(self.world.bookies)

    def open(
        self, shape: Shape, members: Sequence[str] | None = None, *, adv: bool = False, deferred: bool = False
    ) -> Writer:
        """Create the next ledger."""
        members = members or self.rng.sample(self.world.available(()), shape[0])
        self.next += 1
        return self.world.create(self.next - 1, shape, members, password=PASSWORD, adv=adv, deferred=deferred)

    def sizes(self, count: int) -> list[int]:
        """Return so many sizes of payloads."""
        return [self.rng.randint(1, 300) for _ in range(count)]

    def write(self, writer: Writer, count: int) -> None:
        """Write entries that all arrive, with a LAC that may be behind."""
        if count:
            writer.write(self.sizes(count), lag=self.rng.choice((0, 0, 1, 3)))

    def send(self, writer: Writer, count: int) -> None:
        """Send entries of which some arrive, in any order of bookies."""
        for size in self.sizes(count):
            writer.send(size)
            while writer.queues and self.rng.random() < 0.5:
                writer.deliver(self.rng.choice(list(writer.queues)))

    def fail(self, writer: Writer, names: Sequence[str], choose: Callable[[Sequence[str]], str] | None = None) -> bool:
        """Let bookies fail, after some of what is under way to them arrived; return whether the writer goes on."""
        arrived = {name: self.rng.randint(0, len(queue)) for name, queue in writer.queues.items()}
        writer.fail(names, arrived)
        return writer.change(choose or self.rng.choice)

    def end(self, writer: Writer) -> None:
        """Close with or without waiting, or leave it."""
        ending = self.rng.choice(("closed", "closed", "pending", "left", "recovered"))
        if ending == "closed":
            writer.deliver_all()
        if ending in ("closed", "pending"):
            writer.close()
        for name in list(writer.queues):
            for _ in range(self.rng.randint(0, len(writer.queues[name]))):
                writer.deliver(name, heard=False)
        writer.queues.clear()
        if ending == "recovered":
            writer.abandon()
            self.recover(writer.ledger)

    def recover(self, ledger: int) -> bool:
        """Let somebody open a ledger."""
        return self.world.recover(
            ledger, lambda names: self.rng.sample(names, len(names)), self.rng.choice, lag=self.rng.choice((0, 2))
        )

    def shape(self, *, striped: bool | None = None) -> Shape:
        """Draw a shape."""
        shapes = [s for s in _SHAPES if striped is None or (s[1] < s[0]) == striped]
        return self.rng.choice(shapes)


def _play_deferred(stage: Stage) -> View:
    """DEFERRED_SYNC: journals are lost with what was acknowledged and not forced."""
    rng, world = stage.rng, stage.world
    for _ in range(8):
        writer = stage.open(stage.shape(), deferred=True)
        for _ in range(rng.randint(1, 4)):
            stage.write(writer, rng.randint(0, 8))
            if rng.random() < 0.5:
                writer.force()
        if rng.random() < 0.6:
            writer.close()
    for name in rng.sample(stage.names, rng.choice((1, 1, 2, 3))):
        bookie = world.bookies[name]
        if rng.random() < 0.5:
            bookie.flush()
        bookie.kill()
        bookie.lose_journal()
        if rng.random() < 0.5:
            bookie.start()
    return View()


def _play_adv(stage: Stage) -> View:
    """LedgerHandleAdv: ids with holes, sent out of order, closed at a hole; then re-replicated."""
    rng, world = stage.rng, stage.world
    bad = rng.choice(stage.names)
    for _ in range(8):
        writer = stage.open(stage.shape(), adv=True)
        ids = list(range(rng.randint(2, 25)))
        hole = rng.choice(ids) if rng.random() < 0.6 else None
        if rng.random() < 0.6:
            ids.sort(key=lambda entry: entry + rng.randint(0, 4))
        for entry in ids:
            if entry == hole:
                continue
            writer.send(rng.randint(1, 300), entry)
            if rng.random() < 0.7:
                writer.deliver_all()
        stage.end(writer)
    world.bookies[bad].kill()
    _repair(stage, bad)
    if rng.random() < 0.5:
        world.bookies[bad].start()
    return View()


def _repair(stage: Stage, bad: str) -> None:
    """Re-replicate what a bookie should have."""
    for ledger, record in stage.world.records.items():
        if (
            record.state is LedgerState.CLOSED
            and (record.last or 0) >= 0
            and any(bad in members for _, members in record.segments)
        ):
            stage.world.repair(ledger, bad, stage.rng.choice)


def _play_returns(stage: Stage) -> View:
    """Two changes within W entries, and the bookie that was replaced first comes in again, at another position."""
    rng = stage.rng
    for _ in range(8):
        writer = stage.open(stage.shape())
        stage.write(writer, rng.choice((0, 1, 2, 7, 20)))
        gone: list[str] = []

        def back(names: Sequence[str], gone: list[str] = gone) -> str:
            known = [name for name in names if name in gone[:-1]]
            return rng.choice(known or list(names))

        for _ in range(rng.randint(2, 4)):
            stage.send(writer, rng.randint(0, writer.record.write))
            failed = rng.choice(writer.members)
            gone.append(failed)
            if not stage.fail(writer, [failed], back):
                break
        if writer.is_open():
            writer.deliver_all()
            stage.write(writer, rng.choice((0, 1, 5, 20)))
            stage.end(writer)
    return View()


def _play_turnover(stage: Stage) -> View:
    """All bookies of an ensemble are replaced at once, or one after the other, with little or nothing between."""
    rng = stage.rng
    for _ in range(8):
        writer = stage.open(stage.shape())
        for _ in range(rng.randint(1, 3)):
            stage.send(writer, rng.randint(0, 4))
            names = list(writer.members)[: rng.choice((writer.record.ensemble, 2, 1))]
            if not stage.fail(writer, names):
                break
        if writer.is_open():
            stage.send(writer, rng.randint(0, 6))
            stage.end(writer)
    return View()


def _play_wiped(stage: Stage) -> View:
    """A bookie comes back empty while its ledgers are written, and gets their next stripes; writers notice nothing."""
    rng, world = stage.rng, stage.world
    writers = [stage.open(stage.shape()) for _ in range(8)]
    for writer in writers:
        stage.write(writer, rng.choice((0, 1, 3, 9, 30)))
    name = rng.choice(stage.names)
    world.bookies[name].kill()
    world.bookies[name].wipe()
    world.bookies[name].start()
    for writer in writers:
        stage.write(writer, rng.choice((0, 1, 2, 9, 30)))
        if rng.random() < 0.5:
            stage.send(writer, rng.randint(0, 3))
        stage.end(writer)
    if rng.random() < 0.5:
        for ledger, record in world.records.items():
            if record.state is LedgerState.CLOSED and (record.last or 0) >= 0 and rng.random() < 0.5:
                world.repair(ledger, name, rng.choice) if any(
                    name in members for _, members in record.segments
                ) else None
    return View()


def _play_reused(stage: Stage) -> View:
    """An id is given out again after a bad restore: both ledgers have one key, and the same bookies, or some."""
    rng, world = stage.rng, stage.world
    for _ in range(8):
        shape = stage.shape()
        first = stage.open(shape)
        stage.write(first, rng.choice((1, 2, 5, 20)))
        first.close()
        if rng.random() < 0.5:
            for name in stage.names:
                world.bookies[name].flush()
        world.forgotten[first.ledger] = world.records.pop(first.ledger)
        second = shape if rng.random() < 0.5 else stage.shape()
        old = list(first.members)
        rest = [name for name in stage.names if name not in old]
        limit = min(len(old), second[0])
        shared = limit if rng.random() < 0.3 else rng.randint(max(0, second[0] - len(rest)), limit)
        members = rng.sample(old, shared) + rng.sample(rest, second[0] - shared)
        if rng.random() < 0.5:
            members.sort(key=(old + rest).index)
        writer = world.create(first.ledger, second, members, password=PASSWORD)
        stage.write(writer, rng.choice((0, 1, 1, 2, 5, 20)))
        stage.end(writer)
    return View()


def _play_unscanned(stage: Stage) -> View:
    """E = W = A, and a bookie that is known was not scanned."""
    rng = stage.rng
    for _ in range(10):
        size = rng.choice((2, 3, 4))
        writer = stage.open((size, size, size))
        stage.write(writer, rng.choice((0, 1, 5, 20)))
        if rng.random() < 0.5:
            stage.send(writer, rng.randint(0, 4))
        if rng.random() < 0.3:
            stage.fail(writer, [rng.choice(writer.members)])
        if writer.is_open():
            stage.end(writer)
    return View(unscanned=tuple(rng.sample(stage.names, rng.choice((1, 1, 2)))))


def _play_collected(stage: Stage) -> View:
    """Re-replicated, the old bookie back, then deleted: some bookies noticed, others did not."""
    rng, world = stage.rng, stage.world
    writers = [stage.open(stage.shape()) for _ in range(8)]
    for writer in writers:
        if rng.random() < 0.4:
            stage.send(writer, rng.randint(0, 3))
            stage.fail(writer, [rng.choice(writer.members)])
            writer.deliver_all()
        stage.write(writer, rng.choice((0, 1, 3, 9, 30)))
        writer.close()
    for _ in range(rng.choice((1, 1, 2))):
        bad = rng.choice(stage.names)
        world.bookies[bad].kill()
        _repair(stage, bad)
        world.bookies[bad].start()
    if rng.random() < 0.5:
        world.collect_garbage(rng.choice(stage.names))
    for writer in writers:
        if rng.random() < 0.5:
            world.delete(writer.ledger)
    for name in stage.names:
        if rng.random() < 0.4:
            world.collect_garbage(name, surplus=rng.random() < 0.5)
        if rng.random() < 0.1:
            world.bookies[name].compact()
    return View()


def _play_late(stage: Stage) -> View:
    """A bookie is away while its ledgers are recovered, not fenced, and has or gets entries above their ends."""
    rng, world = stage.rng, stage.world
    writers = [stage.open(stage.shape()) for _ in range(8)]
    for writer in writers:
        stage.write(writer, rng.choice((0, 1, 3, 9)))
        stage.send(writer, rng.randint(1, 6))
    away = rng.sample(stage.names, 2)
    for name in away:
        world.bookies[name].up = False
    for writer in writers:
        if rng.random() < 0.8:
            stage.recover(writer.ledger)
    for name in away:
        world.bookies[name].up = True
    for writer in writers:
        for name in list(writer.queues):
            while name in writer.queues and rng.random() < 0.7:
                writer.deliver(name, heard=rng.random() < 0.5)
        writer.queues.clear()
        if rng.random() < 0.5:
            writer.close()
    return View()


def _play_lost(stage: Stage) -> View:
    """Every copy of some entries is gone, or those of one bookie: the first, some in the middle, the last, stripes."""
    rng, world = stage.rng, stage.world
    for _ in range(8):
        writer = stage.open(stage.shape())
        stage.write(writer, rng.choice((2, 5, 20)))
        if rng.random() < 0.5:
            stage.send(writer, rng.randint(0, 4))
        stage.end(writer)
        last = max(writer.next - 1, 0)
        low = rng.choice((0, rng.randint(0, last), last, max(0, last - 2)))
        entries = (
            set(range(low, low + rng.choice((1, 1, 2, 5)))) if rng.random() < 0.7 else set(range(low, last + 1, 3))
        )
        holders = [bookie for bookie in world.bookies.values() if writer.ledger in bookie.shelves]
        for bookie in holders if rng.random() < 0.8 else rng.sample(holders, min(1, len(holders))):
            shelf = bookie.shelves[writer.ledger]
            for entry in entries:
                shelf.index.pop(entry, None)
                shelf.fresh.pop(entry, None)
    return View()


def _play_tended(stage: Stage) -> View:
    """Auto-recovery copies what open ledgers had on a dead bookie, to their writers' newcomers, too; it comes back.

    Some newcomers answer nothing, so that no bookie shows the segment that begins with them.
    """
    rng, world = stage.rng, stage.world
    writers = [stage.open(stage.shape()) for _ in range(8)]
    for writer in writers:
        stage.write(writer, rng.choice((0, 1, 2, 5, 12, 30)))
    for _ in range(rng.choice((1, 1, 2))):
        up = [name for name in stage.names if world.bookies[name].up]
        dead = rng.choice(up)
        world.bookies[dead].kill()
        hung = rng.sample([name for name in up if name != dead], rng.choice((0, 1, 3)))
        for name in hung:
            world.bookies[name].up = False
        for writer in writers:
            # In a cluster that is one bookie larger than the ensemble, all have the same newcomer.
            newcomer = rng.choice([*hung, *up])

            def choose(names: Sequence[str], newcomer: str = newcomer) -> str:
                return newcomer if newcomer in names else rng.choice(list(names))

            if writer.is_open() and dead in writer.members:
                stage.fail(writer, [dead], choose)
            if writer.is_open():
                _send_few(stage, writer, rng.choice((0, 1, 1, 2, 4)))
            if rng.random() < 0.8:
                world.tend(writer.ledger, choose, lambda names: rng.sample(names, len(names)))
            if writer.is_open():
                _send_few(stage, writer, rng.choice((0, 0, 1, 3)))
        for name in hung:
            world.bookies[name].up = True
        if rng.random() < 0.8:
            world.bookies[dead].start()
    for writer in writers:
        if writer.is_open():
            if rng.random() < 0.3:
                writer.abandon()
            elif rng.random() < 0.3:
                writer.close()
            else:
                stage.end(writer)
    return View()


def _send_few(stage: Stage, writer: Writer, count: int) -> None:
    """Send entries that reach every bookie that answers."""
    for size in stage.sizes(count):
        writer.send(size)
        for name in [name for name in writer.queues if stage.world.bookies[name].up]:
            while name in writer.queues:
                writer.deliver(name)


NASTY: Final[Mapping[str, Callable[[Stage], View]]] = {
    "deferred-lost": _play_deferred,
    "adv-holes": _play_adv,
    "returns": _play_returns,
    "turnover": _play_turnover,
    "wiped-writing": _play_wiped,
    "reused-same": _play_reused,
    "full-unscanned": _play_unscanned,
    "collected": _play_collected,
    "late": _play_late,
    "lost-copies": _play_lost,
    "open-tended": _play_tended,
}
"""By name."""


def make(name: str, seed: int, ledgers: int) -> tuple[World, View]:
    """Play a history until there are so many ledgers; ids count from 0."""
    rng = Random(f"{name} {seed}")
    names = [f"10.0.0.{number}:3181" for number in range(1, BOOKIES + 1)]
    stage = Stage(rng, World(names, database=[name for name in names if rng.random() < 0.3]))
    for _ in range(ledgers // 3):
        writer = stage.open(stage.shape())
        stage.write(writer, rng.choice((1, 5, 20, 40)))
        writer.close()
    view = View()
    while stage.next < ledgers:
        if not all(stage.world.bookies[name].up for name in names):
            for bookie in stage.world.bookies.values():
                if not bookie.up:
                    bookie.start()
        stage.world.past.append(stage.world.metadata())
        view = NASTY[name](stage)
    for bookie in stage.world.bookies.values():
        if bookie.up:
            if rng.random() < 0.5:
                bookie.flush()
            if rng.random() < 0.5:
                bookie.kill()
            else:
                bookie.stop(journals_kept=rng.random() < 0.5)
    return stage.world, view
