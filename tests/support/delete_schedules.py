"""Random histories of deletes: requests, verifications, purges, undos, receipts; crashes, rivals, bookies that go.

A schedule is drawn from a seed. The world keeps its own truth: which life of which bookie holds what, what is
referenced, which certificates were given. Every write that takes effect is judged by that truth, never by
tombstones.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from backends.errors import UnavailableError, VersionConflictError
from backends.protocols import MetadataStore, Write
from reconcile.deletes.certificate import Certificate, CertifiedLedger, make_certificate
from reconcile.deletes.cluster import Cluster
from reconcile.deletes.own_root import OwnRoot, make_own_root, open_log, open_own_root
from reconcile.deletes.packed import ChangeLog, PackedDecision
from reconcile.deletes.purge import PurgeRequest, Quarantine, end_quarantines, purge_ledgers, undo_deletes
from reconcile.deletes.tombstones import (
    DAY_MS,
    DeleteState,
    DeleteVerdict,
    Holder,
    Sighting,
    StoredRecord,
    Tombstone,
    Verification,
    decommission,
    is_expired,
    name_certificate,
    request_delete,
    take_sightings,
    take_verification,
)
from reconcile.errors import GuardRefusedError, PartlyAppliedError
from recovery.codecs.store import Layout, ledger_key, mark_key
from recovery.model.ids import LedgerId
from tests.support.failing_stores import CrashError
from tests.support.restores import Recorder

LEDGERS: Final = tuple(LedgerId(0 if n % 3 else 7, n) for n in range(1, 7))
BOOKIES: Final = ("b1", "b2", "b3")
SOAK_MS: Final = 2 * DAY_MS
BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
STOPS: Final = (CrashError, UnavailableError, PartlyAppliedError, GuardRefusedError)


@dataclass(slots=True)
class Life:
    """One life of a bookie: its disks from a format to the next."""

    bookie: str
    incarnation: int
    formatted_ms: int
    holds: set[LedgerId]
    is_up: bool = True
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate as the world remembers it."""

    certificate: Certificate
    versions: dict[LedgerId, int]
    until_ms: int


@dataclass(slots=True)
class Truth:
    """What the world knows of one ledger: safe looks in a row, since when, and at which version of its record."""

    first_safe_ms: int | None = None
    safe_in_row: int = 0
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """A ledger in quarantine: its record, the hold in its place, and until when."""

    record: bytes
    hold: bytes
    until_ms: int


class World:
    """One cluster, and what happens to it."""

    def __init__(self, store: MetadataStore, root: str, folder: Path, seed: int, layout: Layout) -> None:
        self.random = random.Random(seed)
        self.store, self.root, self.folder, self.layout = store, root, folder, layout
        self.now_ms = int(BEGIN.timestamp() * 1000)
        self.recorder = Recorder(store)
        self.recorder.interfere = self.meddle
        self.key_of = {ledger: root + ledger_key(layout, ledger) for ledger in LEDGERS}
        self.lives = [Life(bookie, 100 + n, self.now_ms - DAY_MS, set(LEDGERS)) for n, bookie in enumerate(BOOKIES)]
        self.referenced: set[LedgerId] = set()
        self.issued: list[Issued] = []
        self.truths: dict[LedgerId, Truth] = {}
        self.looked: dict[LedgerId, Truth] = {}
        self.purged: set[LedgerId] = set()
        self.expired: set[LedgerId] = set()
        self.held: dict[LedgerId, Held] = {}
        self.quarantine_ms = self.random.choice((0, DAY_MS // 2, 3 * DAY_MS))
        self.quarantine_most = self.random.randint(1, 4)
        self.counts: Counter[str] = Counter()
        self.judged = 0
        store.write([Write(f"{root}/available/readonly", b"")])
        store.write([Write(key, b"record of %d" % ledger.ledger) for ledger, key in self.key_of.items()])

    # What people do

    def request(self) -> None:
        """Ask for the delete of some ledgers."""
        chosen = self.random.sample(LEDGERS, self.random.randint(1, 4))
        with self.open() as (own, log):
            records = {ledger: self.read(ledger) for ledger in chosen}

            def decide(ledger: LedgerId, tombstone: Tombstone | None) -> PackedDecision[Tombstone] | None:
                record = records[ledger]
                if tombstone is not None or record is None:
                    return None
                return PackedDecision(request_delete(ledger, record, BOOKIES, self.now_ms, "op", soak_ms=SOAK_MS))

            own.tombstones.change(chosen, decide, log, rows=2)

    def verify(self) -> None:
        """Look at everything; give a certificate of what may be purged."""
        with self.open() as (own, log):
            known = {one.ledger: one for node in own.tombstones.read_all() for one in node}
            changed = {
                ledger: take_verification(tombstone, self.look(ledger), self.now_ms, "op")
                for ledger, tombstone in known.items()
            }
            ready = [one for one in changed.values() if one.state is DeleteState.PURGEABLE]
            issued = None
            for one in ready:
                truth = self.looked[one.ledger]
                assert truth.safe_in_row >= 2, f"{one.ledger} was not found safe twice in a row"
                assert truth.first_safe_ms is not None
                assert self.now_ms >= truth.first_safe_ms + SOAK_MS, f"the soak of {one.ledger} was not over"
                assert one.record.version == truth.version
            if ready:
                certificate = self.certify(ready)
                issued = Issued(
                    certificate,
                    {one.ledger: one.record.version for one in ready},
                    self.now_ms + DAY_MS,
                )
                for one in ready:
                    changed[one.ledger] = name_certificate(one, certificate.hash)

            def decide(ledger: LedgerId, tombstone: Tombstone | None) -> PackedDecision[Tombstone] | None:
                return PackedDecision(changed[ledger]) if tombstone == known[ledger] else None

            if issued is not None:
                self.issued.append(issued)
            try:
                own.tombstones.change(list(changed), decide, log, rows=2)
            finally:
                self.record_looks(changed)

    def record_looks(self, changed: Mapping[LedgerId, Tombstone]) -> None:
        """Count the looks whose result stands in the store: who looks and dies says nothing."""
        own = open_own_root(self.store, self.root)
        assert own is not None
        stored = own.tombstones.read_some(list(changed))
        for ledger, tombstone in changed.items():
            if stored.get(ledger) == tombstone:
                self.truths[ledger] = self.looked[ledger]
                if not self.truths[ledger].safe_in_row:
                    for issued in self.issued:
                        issued.versions.pop(ledger, None)

    def purge(self) -> None:
        """Purge by a certificate, perhaps an old one."""
        if not self.issued:
            return
        issued = self.random.choice((self.issued[-1], self.random.choice(self.issued)))
        with self.open() as (own, log):
            room = self.quarantine_most - len(self.list_quarantined(own))
            request = PurgeRequest(
                certificate=issued.certificate,
                by="op",
                name_owners=self.name_owners,
                batch=self.random.randint(1, 3),
                quarantine=Quarantine(self.quarantine_ms, room) if self.quarantine_ms else None,
                is_ended=self.now_ms > issued.until_ms,
            )
            cluster = Cluster(self.recorder, self.root, self.layout)
            purge_ledgers(request, cluster, own, log, now=self.read_clock)

    def leave(self) -> None:
        """See that a bookie left, and put the records of what is in quarantine back."""
        with self.open() as (own, log):
            cluster = Cluster(self.recorder, self.root, self.layout)
            reasons = {one.ledger: "b1 left" for one in self.list_quarantined(own)}
            end_quarantines(reasons, cluster, own, log, self.now_ms, "op")

    def list_quarantined(self, own: OwnRoot) -> list[Tombstone]:
        """Return the tombstones of what is in quarantine."""
        return [one for node in own.tombstones.read_all() for one in node if one.state is DeleteState.QUARANTINED]

    def undo(self) -> None:
        """Take one delete back; before the purge that is exact."""
        ledger = self.random.choice(sorted(self.held) or LEDGERS)
        # Before anything is read: somebody else may write between any two calls.
        meddled = self.counts["meddled"]
        stood = self.read(ledger)
        with self.open() as (own, log):
            known = own.tombstones.read_some([ledger])
            cluster = Cluster(self.recorder, self.root, self.layout)
            sightings = {ledger: {one.bookie: one for one in self.see(ledger)}}
            refused = undo_deletes([ledger], cluster, own, log, sightings, int(self.read_clock().timestamp() * 1000))
            is_altered = ledger in self.held and (stood is None or stood.raw != self.held[ledger].hold)
            if ledger in known and ledger not in self.purged and not is_altered and meddled == self.counts["meddled"]:
                assert not refused, refused
                now = self.read(ledger)
                if ledger in self.held:
                    assert now is not None
                    assert now.raw == self.held[ledger].record, "an undo in quarantine put another record back"
                else:
                    assert now == stood, "an undo before the purge changed a record"
                assert not own.tombstones.read_some([ledger])

    def confirm(self) -> None:
        """Look at bookies for what was purged."""
        with self.open() as (own, log):
            known = [one.ledger for node in own.tombstones.read_all() for one in node]

            def decide(ledger: LedgerId, tombstone: Tombstone | None) -> PackedDecision[Tombstone] | None:
                if tombstone is None:
                    return None
                changed = take_sightings(tombstone, self.see(ledger), self.now_ms, "op")
                return None if changed == tombstone else PackedDecision(changed)

            own.tombstones.change(known, decide, log, rows=2)

    def expire(self) -> None:
        """Let tombstones go that may."""
        with self.open() as (own, log):
            known = [one.ledger for node in own.tombstones.read_all() for one in node]

            def decide(_ledger: LedgerId, tombstone: Tombstone | None) -> PackedDecision[Tombstone] | None:
                return PackedDecision(None) if tombstone and is_expired(tombstone, self.now_ms) else None

            own.tombstones.change(known, decide, log, rows=2)

    def decommission(self) -> None:
        """Throw a dead bookie's disks away, and say so."""
        down = [life for life in self.lives if not life.is_up and not life.is_gone]
        if not down:
            return
        bookie = self.random.choice(down).bookie
        for life in self.lives:
            if life.bookie == bookie:
                life.is_gone, life.is_up = True, False
                life.holds.clear()
        with self.open() as (own, log):
            known = [one.ledger for node in own.tombstones.read_all() for one in node]

            def decide(_ledger: LedgerId, tombstone: Tombstone | None) -> PackedDecision[Tombstone] | None:
                changed = None if tombstone is None else decommission(tombstone, bookie, self.now_ms, "op")
                return None if changed is None or changed == tombstone else PackedDecision(changed)

            own.tombstones.change(known, decide, log, rows=2)

    # What happens

    def pass_time(self) -> None:
        """Let time pass, hours or weeks."""
        self.now_ms += self.random.choice((DAY_MS // 24, DAY_MS // 2, DAY_MS, 3 * DAY_MS, 40 * DAY_MS))

    def soak(self) -> None:
        """Let a soak pass."""
        self.now_ms += SOAK_MS + DAY_MS

    def retain(self) -> None:
        """Let the retention pass."""
        self.now_ms += 40 * DAY_MS

    def trouble(self) -> None:
        """Let something happen to a bookie, mostly."""
        kinds = (self.lose_bookie, self.wipe_bookie, self.return_bookie, self.collect_garbage)
        self.random.choice(kinds)()

    def lose_bookie(self) -> None:
        """Stop a bookie."""
        self.random.choice(self.lives).is_up = False

    def return_bookie(self) -> None:
        """Start a bookie again, with the disks that it had."""
        life = self.random.choice(self.lives)
        if not life.is_gone and not any(one.is_up for one in self.lives if one.bookie == life.bookie):
            life.is_up = True

    def wipe_bookie(self) -> None:
        """Give a bookie new disks; the old ones lie in a drawer, and may come back."""
        old = self.random.choice(self.lives)
        if old.is_gone or any(one.is_gone for one in self.lives if one.bookie == old.bookie):
            return
        for life in self.lives:
            if life.bookie == old.bookie:
                life.is_up = False
        self.lives.append(Life(old.bookie, 1000 + len(self.lives), self.now_ms, set()))

    def collect_garbage(self) -> None:
        """Let each running bookie delete what the store does not list."""
        for life in self.lives:
            if life.is_up:
                life.holds -= {ledger for ledger in LEDGERS if self.read(ledger) is None}

    def refer(self) -> None:
        """Let an upper layer refer to a ledger, or let go of it."""
        self.referenced ^= {self.random.choice(LEDGERS)}

    def meddle(self) -> None:
        """Let somebody else change a record, or mark it for replication."""
        ledger = self.random.choice(LEDGERS)
        self.counts["meddled"] += 1
        held = self.store.get(self.key_of[ledger])
        with suppress(VersionConflictError):
            if held is not None and ledger in self.held and self.random.random() < 0.1:
                self.store.write([Write(self.key_of[ledger], None, held.version)])
            elif held is not None and self.random.random() < 0.5:
                value = b"changed %d" % self.random.randrange(10**9)
                self.store.write([Write(self.key_of[ledger], value, held.version)])
            else:
                key = self.root + mark_key(ledger)
                mark = self.store.get(key)
                self.store.write([Write(key, b"")] if mark is None else [Write(key, None, mark.version)])

    # How it is seen

    @contextmanager
    def open(self) -> Iterator[tuple[OwnRoot, ChangeLog]]:
        """Give our own root, and the log."""
        with open_log(self.folder, self.recorder, self.root, self.read_clock) as log:
            yield make_own_root(self.recorder, self.root, log), log

    def read_clock(self) -> datetime:
        """Return the world's time."""
        return datetime.fromtimestamp(self.now_ms / 1000, UTC)

    def read(self, ledger: LedgerId) -> StoredRecord | None:
        """Return a ledger's record as it stands."""
        held = self.store.get(self.key_of[ledger])
        return None if held is None else StoredRecord(held.value, held.version, held.created_ms)

    def look(self, ledger: LedgerId) -> Verification:
        """Return what a verification would see: the members that run, references, marks."""
        record, running = self.read(ledger), [life for life in self.lives if life.is_up]
        holders = tuple(Holder(one.bookie, one.incarnation, self.now_ms) for one in running)
        all_there = {one.bookie for one in running if ledger in one.holds} == set(BOOKIES)
        marked = self.store.get(self.root + mark_key(ledger)) is not None
        if record is None or ledger in self.referenced or marked:
            verdict = DeleteVerdict.UNSAFE
        else:
            verdict = DeleteVerdict.SAFE if all_there else DeleteVerdict.UNDECIDED
        truth = self.looked[ledger] = replace(self.truths.get(ledger, Truth()))
        if verdict is DeleteVerdict.SAFE and record is not None:
            is_same = record.version == truth.version
            truth.first_safe_ms = truth.first_safe_ms if is_same and truth.safe_in_row else self.now_ms
            truth.safe_in_row = truth.safe_in_row + 1 if is_same else 1
            truth.version = record.version
        else:
            truth.safe_in_row, truth.first_safe_ms = 0, None
        reasons = () if verdict is DeleteVerdict.SAFE else ("no",)
        return Verification(verdict, reasons, record, BOOKIES, holders, self.now_ms)

    def name_owners(self, ledgers: Sequence[LedgerId]) -> dict[LedgerId, str]:
        """Return who names ledgers now."""
        return {ledger: "a topic" for ledger in ledgers if ledger in self.referenced}

    def see(self, ledger: LedgerId) -> list[Sighting]:
        """Return what the running bookies say of a ledger."""
        return [
            Sighting(one.bookie, one.incarnation, ledger in one.holds, self.now_ms, "look", one.formatted_ms)
            for one in self.lives
            if one.is_up
        ]

    def certify(self, ready: Sequence[Tombstone]) -> Certificate:
        """Return a certificate of some ledgers."""
        ledgers = [CertifiedLedger(one.ledger, one.record.version, "") for one in ready]
        return make_certificate("", self.root, ledgers, {"rules": {"archived": False}}, {}, self.read_clock())

    # What must hold

    def judge(self, action: str) -> None:
        """Look at every write that took effect since the last time, and at all tombstones."""
        effects = self.recorder.effects[self.judged :]
        self.judged = len(self.recorder.effects)
        ledger_of = {key: ledger for ledger, key in self.key_of.items()}
        for effect in effects:
            ledger = ledger_of.get(effect.key)
            if ledger is None:
                continue
            held = self.held.get(ledger)
            if held is not None and effect.before == held.hold:
                self.judge_end(ledger, held, effect.after, action)
            elif effect.after is None:
                self.judge_removal(ledger, action)
            elif action == "purge":
                self.judge_rights(ledger, action)
                assert self.quarantine_ms, f"{ledger} was put into a quarantine that nobody asked for"
                assert effect.before is not None
                self.held[ledger] = Held(effect.before, effect.after, self.now_ms + self.quarantine_ms)
                assert effect.before not in effect.after
                self.counts["held"] += 1
            else:
                assert action == "undo", f"{action} wrote the record of {ledger}"
                assert all(ledger in one.holds for one in self.lives if one.is_up), f"{ledger} is not everywhere"
                assert {one.bookie for one in self.lives if one.is_up} == set(BOOKIES)
                self.purged.discard(ledger)
        own = open_own_root(self.store, self.root)
        known = {} if own is None else {one.ledger: one for node in own.tombstones.read_all() for one in node}
        quarantined = {ledger for ledger, one in known.items() if one.state is DeleteState.QUARANTINED}
        assert quarantined <= self.held.keys()
        assert len(quarantined) <= self.quarantine_most
        for ledger in self.held.keys() - quarantined:
            # Its hold was removed by somebody else: what is left of its delete is the tombstone.
            stands = self.read(ledger)
            assert stands is None or stands.raw != self.held[ledger].hold, f"{action} forgot the hold of {ledger}"
            del self.held[ledger]
        for ledger in set(self.purged):
            if ledger in known:
                assert known[ledger].state in (DeleteState.PURGED, DeleteState.CONFIRMED)
                continue
            assert action == "expire", f"{action} lost the tombstone of {ledger}"
            holding = [one for one in self.lives if ledger in one.holds and not one.is_gone]
            assert not holding, f"the tombstone of {ledger} expired while {holding} holds it"
            self.purged.discard(ledger)
            self.counts["expired"] += 1

    def judge_removal(self, ledger: LedgerId, action: str) -> None:
        """See that a record was removed by a purge that had every right to, and at once only where that is the rule."""
        self.judge_rights(ledger, action)
        assert not self.quarantine_ms, f"{ledger} was purged without its quarantine"
        self.purged.add(ledger)
        self.counts["purged"] += 1

    def judge_end(self, ledger: LedgerId, held: Held, after: bytes | None, action: str) -> None:
        """See that a hold went at its end, or that the record took its place again, byte for byte."""
        del self.held[ledger]
        if after is not None:
            assert action in ("undo", "leave"), f"{action} wrote in the place of the hold of {ledger}"
            assert after == held.record, f"{action} put another record of {ledger} back"
            self.counts["put back"] += 1
            return
        assert action == "purge", f"{action} removed the hold of {ledger}"
        assert self.now_ms >= held.until_ms, f"the quarantine of {ledger} was not over"
        assert ledger not in self.referenced, f"{ledger} was purged while an upper layer named it"
        self.purged.add(ledger)
        self.counts["purged"] += 1
        self.counts["held to the end"] += 1

    def judge_rights(self, ledger: LedgerId, action: str) -> None:
        """See that the record of a ledger went by a purge with a certificate that held."""
        assert action == "purge", f"{action} removed the record of {ledger}"
        named = [one for one in self.issued if ledger in one.versions and self.now_ms <= one.until_ms]
        assert named, f"no certificate that holds named {ledger}"
        assert ledger not in self.referenced, f"{ledger} was purged while an upper layer named it"

    def run(self, steps: int) -> None:
        """Play a schedule, and judge each step."""
        people = (self.request, self.verify, self.verify, self.purge, self.undo, self.leave, self.confirm, self.expire)
        world = (
            self.pass_time, self.pass_time, self.pass_time, self.lose_bookie, self.return_bookie, self.return_bookie,
            self.wipe_bookie, self.collect_garbage, self.refer, self.meddle, self.decommission,
        )  # fmt: skip
        # Most schedules go the whole way, with something in between.
        way = (self.request, self.verify, self.soak, self.verify, self.purge,
               self.random.choice((self.soak, self.soak, self.undo, self.leave)), self.purge, self.trouble,
               self.collect_garbage, self.confirm, self.retain, self.trouble, self.confirm, self.expire,
               self.return_bookie)  # fmt: skip
        straight = self.random.random() < 0.7
        for step in range(steps):
            action = way[step % len(way)] if straight else self.random.choice((*people, *world))
            if straight and self.random.random() < 0.2:
                action = self.random.choice((*people, *world))
            self.recorder.draw = self.draw_faults() if self.random.random() < 0.3 else lambda: None
            name = action.__name__
            with suppress(*STOPS):
                action()
                self.counts[name] += 1
            self.recorder.draw = lambda: None
            self.judge(name)

    def draw_faults(self) -> Callable[[], str | None]:
        """Return what strikes at each call to the store."""
        kinds = ("rival", "die before", "die after", "cut before", "cut after")
        struck = {self.random.randrange(12): self.random.choice(kinds)}
        calls = iter(range(10**9))
        return lambda: struck.get(next(calls))
