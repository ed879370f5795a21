"""BookKeeper's protocol on simulated bookies: what writers, recoveries, repairs and losses leave, and what is true.

    writer      sends entry e to W positions of the last ensemble; complete at A answers, told in order (LAC)
    failure     failed positions are replaced from LAC + 1 on, in a new segment, or in place if it would begin where the
                last one does; pending entries are sent again, to the new ones
    close       last entry = LAC; pending adds are dropped, and stay where they arrived
    recovery    fences the last ensemble, takes the largest LAC that answers show, reads on until W - A + 1 say no,
                writes what it read to all W
    repair      batches of entries go to the new bookie, more than its position needs; one segment at a time. A segment
                of an open ledger is copied once another one follows it and the LAC, as bookies tell it, has reached
                it; copies carry the LAC that whoever copies knows, of a closed ledger its last entry
    collection  what the store does not name is deleted; so is what is closed and does not name the bookie

Sizes are bytes of payload. Nothing here has a clock or chance of its own: the caller decides what arrives. Source:
apache/bookkeeper 4.17.2; `tests/simulation/test_simulator_real.py` compares it with one.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from recovery.codecs.entry import master_key
from recovery.model.metadata import NO_ENTRY, Digest, LedgerMetadata, LedgerState, Segment
from tests.simulation.simulated_bookie import Bookie, Copy

BATCH: Final = 10
"""Entries that a repair copies at a time."""

Order = Callable[[list[str]], list[str]]
"""Says in which order bookies answer."""
Choose = Callable[[Sequence[str]], str]
"""Picks a bookie among candidates."""


@dataclass(slots=True)
class Record:
    """A ledger's metadata in the store, and what is true beside it.

    Attributes:
        life: number of the ledger's life; another one may have had its id.
        acked: the last entry that a writer was told is safe, with all before it.
        sizes: payload bytes by entry, of all that were ever sent.
    """

    ensemble: int
    write: int
    ack: int
    digest: Digest
    password: bytes
    segments: list[tuple[int, list[str]]]
    life: int = 0
    state: LedgerState = LedgerState.OPEN
    last: int | None = None
    length: int | None = None
    acked: int = NO_ENTRY
    adv: bool = False
    deferred: bool = False
    key: bytes = field(default=b"", repr=False)
    sizes: dict[int, int] = field(default_factory=dict, repr=False)

    def write_set(self, entry: int) -> list[str]:
        """Return the bookies that the metadata has for an entry."""
        members = self.members(entry)
        return [members[(entry + i) % self.ensemble] for i in range(self.write)]

    def members(self, entry: int) -> list[str]:
        """Return the ensemble of an entry."""
        for first, members in reversed(self.segments):
            if first <= entry:
                return members
        return self.segments[0][1]

    def metadata(self) -> LedgerMetadata:
        """Return the record as a value."""
        closed = self.state is LedgerState.CLOSED
        return LedgerMetadata(
            3,
            self.ensemble,
            self.write,
            self.ack,
            self.state,
            self.last if closed else None,
            self.length if closed else None,
            tuple(Segment(first, tuple(members)) for first, members in self.segments),
            self.digest,
            self.password,
        )

    def replace(self, start: int, members: list[str]) -> None:
        """Begin a segment, in place of the last one if that begins there."""
        if self.segments[-1][0] == start:
            self.segments.pop()
        self.segments.append((start, members))


class World:
    """A cluster: the store and its bookies.

    Attributes:
        records: the store.
        deleted: records that were removed on purpose, by ledger; the last one of an id.
        forgotten: records that a bad restore lost, by ledger: their ids were given out again.
        past: what the store held at earlier times, the oldest first.
    """

    def __init__(self, names: Iterable[str], *, database: Iterable[str] = ()) -> None:
        databases = set(database)
        self.bookies = {name: Bookie(name, database=name in databases) for name in names}
        self.records: dict[int, Record] = {}
        self.deleted: dict[int, Record] = {}
        self.forgotten: dict[int, Record] = {}
        self.past: list[dict[int, LedgerMetadata]] = []
        self._lives = 0

    def create(
        self,
        ledger: int,
        quorum: tuple[int, int, int],
        members: Sequence[str],
        *,
        digest: Digest = Digest.CRC32C,
        password: bytes = b"",
        adv: bool = False,
        deferred: bool = False,
    ) -> "Writer":
        """Create a ledger with (E, W, A) on these bookies."""
        self._lives += 1
        self.records[ledger] = Record(
            *quorum,
            digest,
            password,
            [(0, list(members))],
            life=self._lives,
            adv=adv,
            deferred=deferred,
            key=master_key(password),
        )
        return Writer(self, ledger)

    def available(self, without: Iterable[str]) -> list[str]:
        """Return the bookies that a client may choose."""
        besides = set(without)
        return [name for name, bookie in self.bookies.items() if bookie.registered and name not in besides]

    def metadata(self) -> dict[int, LedgerMetadata]:
        """Return what the store holds."""
        return {ledger: record.metadata() for ledger, record in self.records.items()}

    def delete(self, ledger: int) -> None:
        """Remove a record on purpose; bookies notice when they collect."""
        self.deleted[ledger] = self.records.pop(ledger)

    def collect_garbage(self, name: str, *, surplus: bool = True) -> None:
        """Let a bookie delete what the store does not name; `surplus`: and what is closed without naming the bookie."""
        bookie = self.bookies[name]
        for ledger in list(bookie.shelves):
            record = self.records.get(ledger)
            if record is None or (
                surplus
                and record.state is LedgerState.CLOSED
                and not any(name in members for _, members in record.segments)
            ):
                bookie.delete(ledger)

    def recover(self, ledger: int, order: Order, choose: Choose, *, lag: int = 0) -> bool:
        """Open a ledger with recovery; return whether it was closed. What was deleted meanwhile cannot be opened.

        Args:
            ledger: not closed yet.
            order: in which bookies answer.
            choose: a bookie for a position that fails.
            lag: how far the LAC in what it writes is behind.
        """
        record = self.records.get(ledger)
        if record is None:
            return False
        record.state = LedgerState.IN_RECOVERY
        size, write, ack = record.ensemble, record.write, record.ack
        start, members = record.segments[-1]
        answers = {name: self.bookies[name].fence(ledger, record.key) for name in members}
        for position in range(size):
            if sum(answers[members[(position + i) % size]] is None for i in range(write)) >= ack:
                return False
        lac, length = NO_ENTRY, 0
        for name in members:
            shelf = answers[name]
            entries = shelf.list_served() if shelf is not None else {}
            if entries and entries[max(entries)].lac > lac:
                lac, length = entries[max(entries)].lac, entries[max(entries)].length
        lac = max(lac, start - 1)
        current = list(members)
        pending: dict[int, list[str]] = {}
        entry = lac + 1
        while True:
            copy, refused = self._recovery_read(record, ledger, entry, order)
            if copy is None:
                if not refused:
                    return False
                break
            entry, length = entry + 1, copy.length
            copy = copy._replace(lac=max(lac, entry - 2 - lag))
            for i in range(write):
                place = (entry - 1 + i) % size
                if self.bookies[current[place]].add(ledger, entry - 1, copy, record.key, recovery=True):
                    continue
                spare = self.available(current)
                if not spare:
                    return False
                if entry - 1 not in pending:
                    pending[entry - 1] = list(current)
                current[place] = choose(spare)
                self.bookies[current[place]].add(ledger, entry - 1, copy, record.key, recovery=True)
                pending[entry - 1] = list(current)
        for first, ensemble in sorted(pending.items()):
            record.replace(first, ensemble)
        record.last, record.state = entry - 1, LedgerState.CLOSED
        record.length = length
        return True

    def _recovery_read(self, record: Record, ledger: int, entry: int, order: Order) -> tuple[Copy | None, bool]:
        """Return the first copy that answers, or None and whether enough bookies said that there is none."""
        refused = 0
        for name in order(record.write_set(entry)):
            bookie = self.bookies[name]
            if not bookie.up:
                continue
            shelf = bookie.shelves.get(ledger)
            copy = shelf.get(entry) if shelf is not None and shelf.key == record.key else None
            if copy is not None:
                return copy, False
            refused += 1
            if refused > record.write - record.ack:
                return None, True
        return None, False

    def repair(self, ledger: int, bad: str, choose: Choose, order: Order = list) -> bool:
        """Re-replicate what a bookie should have, as an administrator does; return whether all of it could be.

        A ledger that is not closed, and has the bookie in its last ensemble, has to be recovered first.
        """
        record, lac = self.records[ledger], self._read_lac(ledger, order)
        if lac is None or (record.state is not LedgerState.CLOSED and bad in record.segments[-1][1]):
            return False
        done = True
        for number, (_, members) in enumerate(record.segments):
            if bad in members:
                copied = self._replace(ledger, number, [members.index(bad)], choose, lac)
                if copied is None:
                    done = False
                else:
                    lac = copied
        return done

    def tend(self, ledger: int, choose: Choose, order: Order = list) -> bool:
        """Let auto-recovery check a ledger and re-replicate what bookies do not serve; return whether it is done with.

        Of each segment it reads each member's first and last entry. It copies no segment that may still grow: where
        one misses a bookie, the ledger is recovered after a while (`misses_members`).
        """
        lac = self._read_lac(ledger, order)
        if lac is None:
            return False
        record, done = self.records[ledger], True
        for number, (first, members) in enumerate(record.segments):
            behind = self._find_end(record, number, lac)
            bad = [
                position
                for position, name in enumerate(members)
                if not self._serves(ledger, record, name, self._list_own(record, position, first, behind))
            ]
            if bad:
                copied = self._replace(ledger, number, bad, choose, lac)
                if copied is None:
                    done = False
                else:
                    lac = copied
        return done

    def misses_members(self, ledger: int) -> bool:
        """Whether a ledger that is not closed has a bookie in its last ensemble that is gone."""
        record = self.records[ledger]
        return record.state is not LedgerState.CLOSED and not all(
            self.bookies[name].registered for name in record.segments[-1][1]
        )

    def _read_lac(self, ledger: int, order: Order) -> int | None:
        """Return the LAC that whoever opens a ledger without recovery reads; None: too few bookies answer.

        The last ensemble is asked, until no ack quorum can be without an answer.
        """
        record = self.records[ledger]
        if record.state is LedgerState.CLOSED:
            return record.last
        members, size, lac = record.segments[-1][1], record.ensemble, NO_ENTRY
        answered: set[str] = set()
        for name in order(list(members)):
            bookie = self.bookies[name]
            if not bookie.up:
                continue
            answered.add(name)
            shelf = bookie.shelves.get(ledger)
            served = shelf.list_served() if shelf is not None and shelf.key == record.key else {}
            if shelf is not None and served:
                lac = max(lac, served[max(served)].lac, shelf.explicit)
            if all(
                sum(members[(position + i) % size] not in answered for i in range(record.write)) < record.ack
                for position in range(size)
            ):
                return lac
        return None

    @staticmethod
    def _find_end(record: Record, number: int, lac: int) -> int:
        """Return the entry behind a segment's last one."""
        return record.segments[number + 1][0] if number + 1 < len(record.segments) else lac + 1

    @staticmethod
    def _list_own(record: Record, position: int, first: int, behind: int) -> list[int]:
        return [entry for entry in range(first, behind) if (position - entry) % record.ensemble < record.write]

    def _serves(self, ledger: int, record: Record, name: str, own: Sequence[int]) -> bool:
        """Whether a bookie is there and serves the first and the last of its entries."""
        bookie = self.bookies[name]
        if not bookie.registered:
            return False
        if not own:
            return True
        shelf = bookie.shelves.get(ledger) if bookie.up else None
        return (
            shelf is not None
            and shelf.key == record.key
            and all(shelf.get(entry) is not None for entry in (own[0], own[-1]))
        )

    def _replace(self, ledger: int, number: int, bad: Sequence[int], choose: Choose, lac: int) -> int | None:
        """Copy what positions of a segment should have to other bookies; return the LAC then known, None: not done."""
        record = self.records[ledger]
        first, members = record.segments[number]
        start, last = record.segments[-1]
        if record.state is not LedgerState.CLOSED and (members == last or lac < start - 1):
            return None
        behind = self._find_end(record, number, lac)
        targets: dict[int, str] = {}
        for position in bad:
            spare = self.available([*members, *targets.values()])
            if not spare:
                return None
            targets[position] = choose(spare)
        own = sorted({entry for position in bad for entry in self._list_own(record, position, first, behind)})
        copied = self._copy(record, ledger, members, own, list(targets.values()), lac)
        if copied is not None:
            record.segments[number] = (first, [targets.get(n, name) for n, name in enumerate(members)])
        return copied

    def _copy(
        self, record: Record, ledger: int, members: Sequence[str], own: Sequence[int], targets: Sequence[str], lac: int
    ) -> int | None:
        """Copy the batches that entries are in to bookies; return the LAC that is known then, None: not all is copied.

        Each bookie that is read from tells the LAC that it knows, too.
        """
        if not own:
            return lac
        wanted, known = set(own), dict[str, int]()
        for begin in range(own[0], own[-1] + 1, BATCH):
            batch = [entry for entry in range(begin, min(begin + BATCH, own[-1] + 1)) if entry in wanted]
            if not batch:
                continue
            for entry in range(batch[0], batch[-1] + 1):
                copy = None
                for i in range(record.write):
                    name = members[(entry + i) % record.ensemble]
                    bookie = self.bookies[name]
                    shelf = bookie.shelves.get(ledger) if bookie.up else None
                    copy = shelf.get(entry) if shelf is not None else None
                    if shelf is not None and copy is not None:
                        if record.state is not LedgerState.CLOSED:
                            if name not in known:
                                known[name] = shelf.find_lac()
                            lac = max(lac, known[name])
                        break
                if copy is None:
                    return None
                stamped = copy._replace(lac=lac)
                # Each is sent its copy, whatever the others answer.
                taken = [self.bookies[name].add(ledger, entry, stamped, record.key, recovery=True) for name in targets]
                if not all(taken):
                    return None
        return lac


class Writer:
    """A client that writes one ledger. What it sends waits in `queues`, by bookie, until `deliver` lets it arrive.

    Attributes:
        lac: the last entry that it was told is safe.
        next: the entry that it sends next.
    """

    def __init__(self, world: World, ledger: int) -> None:
        self.world = world
        self.ledger = ledger
        self.record = world.records[ledger]
        self.lac = self.next = NO_ENTRY
        self.next = 0
        self._open = True
        self.queues: dict[str, deque[tuple[int, Copy]]] = {}
        self._pending: dict[int, tuple[Copy, set[str]]] = {}
        self._length = 0
        self._total: dict[int, int] = {}
        self._forced = NO_ENTRY
        self._broken: list[str] = []

    def is_open(self) -> bool:
        """Whether it may send."""
        return self._open

    @property
    def members(self) -> list[str]:
        """The ensemble that it writes to."""
        return self.record.segments[-1][1]

    def send(self, size: int, entry: int | None = None) -> None:
        """Send an entry of so many bytes; LedgerHandleAdv chooses its id."""
        if self._broken:
            raise AssertionError("a failure waits to be handled: call `change` first")
        record = self.record
        if entry is None:
            entry = self.next
        self.next = max(self.next, entry + 1)
        self._length += size
        copy = Copy(self._forced if record.deferred else self.lac, self._length, size, record.life)
        record.sizes[entry] = size
        self._pending[entry] = (copy, set())
        members = self.members
        for i in range(record.write):
            name = members[(entry + i) % record.ensemble]
            self.queues.setdefault(name, deque()).append((entry, copy))

    def deliver(self, name: str, *, heard: bool = True) -> bool:
        """Let the next message to a bookie arrive; `heard`: its answer, too. False: it was refused."""
        queue = self.queues[name]
        entry, copy = queue.popleft()
        if not queue:
            del self.queues[name]
        if not self.world.bookies[name].add(self.ledger, entry, copy, self.record.key):
            return False
        if heard:
            pending = self._pending.get(entry)
            if pending is not None:
                pending[1].add(name)
                self._advance()
        return True

    def _advance(self) -> None:
        while (head := self._pending.get(self.lac + 1)) is not None and len(head[1]) >= self.record.ack:
            self.lac += 1
            self._total[self.lac] = (self._total[self.lac - 1] if self.lac else 0) + head[0].size
            del self._pending[self.lac]
        self.record.acked = max(self.record.acked, self.lac)

    def deliver_all(self) -> None:
        """Let everything arrive that is under way."""
        while self.queues:
            for name in list(self.queues):
                while name in self.queues:
                    self.deliver(name)

    def write(self, sizes: Sequence[int], *, lag: int = 0) -> None:
        """Send entries that all arrive in order, with a LAC that is so far behind; nothing may be under way."""
        if self.queues or self._pending or self._broken:
            raise AssertionError("entries are under way")
        record, members = self.record, self.members
        shelves = [self.world.bookies[name].shelf(self.ledger, record.key) for name in members]
        for name, shelf in zip(members, shelves, strict=True):
            if not self.world.bookies[name].up or shelf.fenced or shelf.key != record.key:
                raise AssertionError(f"{name} takes no entry")
        size_of = record.sizes
        ensemble, quorum, life = record.ensemble, range(record.write), record.life
        known = self.lac if not record.deferred else self._forced
        entry = self.next
        for size in sizes:
            self._length += size
            lac = known if record.deferred else max(known, entry - 1 - lag)
            copy = Copy(lac, self._length, size, life)
            size_of[entry] = size
            self._total[entry] = (self._total[entry - 1] if entry else 0) + size
            for i in quorum:
                shelves[(entry + i) % ensemble].fresh[entry] = copy
            entry += 1
        for shelf in shelves:
            shelf.keyed |= bool(shelf.fresh)
        self.next = entry
        self.lac = entry - 1
        record.acked = max(record.acked, self.lac)

    def force(self) -> bool:
        """Make sure that all acknowledged entries are synced (DEFERRED_SYNC)."""
        if not all(self.world.bookies[name].up for name in self.members):
            return False
        self._forced = self.lac
        return True

    def tell_lac(self) -> None:
        """Send an explicit LAC to the write set of the entry that it names."""
        if self.lac < 0:
            return
        record = self.record
        for i in range(record.write):
            bookie = self.world.bookies[self.members[(self.lac + i) % record.ensemble]]
            if bookie.up:
                shelf = bookie.shelf(self.ledger, record.key)
                if shelf.key == record.key:
                    shelf.explicit = max(shelf.explicit, self._forced if record.deferred else self.lac)

    def fail(self, names: Sequence[str], arrived: Mapping[str, int] | None = None) -> None:
        """Take these bookies for failed; of what is under way to each so much arrives, without an answer."""
        for name in names:
            queue = self.queues.pop(name, deque())
            for entry, copy in list(queue)[: (arrived or {}).get(name, 0)]:
                self.world.bookies[name].add(self.ledger, entry, copy, self.record.key)
            if name in self.members and name not in self._broken:
                self._broken.append(name)

    def change(self, choose: Choose, besides: Iterable[str] = ()) -> bool:
        """Replace what failed, from the first entry on that was not told safe; False: the writer closed instead."""
        broken, self._broken = self._broken, []
        if not broken:
            return True
        record = self.record
        if record.state is not LedgerState.OPEN or self.world.records.get(self.ledger) is not record:
            self._open = False
            return False
        if record.deferred:
            self.close()
            return False
        members = list(self.members)
        replaced = []
        for name in broken:
            spare = self.world.available([*members, *broken, *besides])
            if not spare:
                self.close()
                return False
            place = members.index(name)
            members[place] = choose(spare)
            replaced.append((place, name))
        record.replace(self.lac + 1, members)
        places = dict(replaced)
        for entry in sorted(self._pending):
            copy, answers = self._pending[entry]
            for i in range(record.write):
                place = (entry + i) % record.ensemble
                if place in places:
                    answers.discard(places[place])
                    self.queues.setdefault(members[place], deque()).append((entry, copy))
        return True

    @property
    def pending(self) -> int:
        """How many entries it was not told of."""
        return len(self._pending)

    def close(self) -> None:
        """Close the ledger where its LAC is; what is under way is not waited for."""
        self._open = False
        record = self.record
        if record.state is not LedgerState.OPEN or self.world.records.get(self.ledger) is not record:
            return
        record.state = LedgerState.CLOSED
        record.last = self._forced if record.deferred else self.lac
        record.length = self._total.get(self.lac, 0)

    def abandon(self) -> None:
        """Die."""
        self._open = False
