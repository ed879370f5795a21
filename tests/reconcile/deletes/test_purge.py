"""Purges in memory: what each ledger's last look stops, what a second run passes over, what an undo puts back."""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from backends.protocols import Versioned, Write
from reconcile.deletes.certificate import Certificate, CertifiedLedger, make_certificate
from reconcile.deletes.cluster import Cluster, read_records
from reconcile.deletes.own_root import OwnRoot, make_own_root, open_log
from reconcile.deletes.packed import Decide, PackedDecision, find_places
from reconcile.deletes.purge import Purged, PurgeRequest, count_lately, count_since, purge_ledgers, undo_deletes
from reconcile.deletes.records import ArchiveMark
from reconcile.deletes.tombstones import (
    DAY_MS,
    DeleteState,
    DeleteStep,
    Holder,
    Sighting,
    StoredRecord,
    Tombstone,
    name_certificate,
    purge,
    request_delete,
)
from reconcile.errors import GuardRefusedError, PartlyAppliedError
from reconcile.write.audit_journal import JOURNAL
from reconcile.write.journal_events import AnnouncedWrite
from recovery.codecs.replication_lock import lock_key
from recovery.codecs.store import Layout, mark_key
from recovery.model.ids import LedgerId
from tests.support.memory_store import MemoryStore
from tests.support.restores import Recorder

ROOT = "/ledgers"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
BEGIN_MS = int(BEGIN.timestamp() * 1000)
LEDGERS = [LedgerId(0, number) for number in range(1, 6)]
RIGHTS = "digest:own:abc=:cdrwa"
BOOKIE = "bk1:3181"


class Raced(MemoryStore):
    """A store in which somebody else does something right before each of the next writes."""

    strikes: Sequence[Callable[[], None]] = ()

    def write(self, changes: Sequence[Write]) -> list[int]:
        """Let the rival in first; it is left alone meanwhile."""
        if self.strikes:
            [strike, *rest], self.strikes = self.strikes, ()
            strike()
            self.strikes = rest
        return super().write(changes)


@dataclass(slots=True)
class House:
    """A cluster whose ledgers are all named by one certificate; `now` is its clock."""

    folder: Path
    store: Raced = field(default_factory=lambda: Raced(lambda: BEGIN_MS))
    now: datetime = BEGIN
    owners: dict[LedgerId, str] = field(default_factory=dict)
    certificate: Certificate = field(init=False)

    def __post_init__(self) -> None:
        """Make the ledgers, and bring each as far as its certificate."""
        for ledger in LEDGERS:
            self.store.write([Write(self.cluster.make_key(ledger), b"record %d" % ledger.ledger, None, RIGHTS)])
        self.certificate = self.certify(LEDGERS)

    @property
    def cluster(self) -> Cluster:
        """Where its records are."""
        return Cluster(self.store, ROOT, Layout.HIERARCHICAL)

    @property
    def left(self) -> list[LedgerId]:
        """The ledgers that have a record."""
        return [ledger for ledger in LEDGERS if self.get(ledger) is not None]

    def get(self, ledger: LedgerId) -> Versioned | None:
        """Return the node of a ledger."""
        return self.store.get(self.cluster.make_key(ledger))

    def mark(self, key: str) -> None:
        """Make a node below the ledgers root."""
        self.store.write([Write(ROOT + key, b"")])

    def change(
        self, change: Callable[[LedgerId, Tombstone | None], Tombstone | None], ledgers: Sequence[LedgerId]
    ) -> None:
        """Give ledgers other tombstones."""
        with open_log(self.folder, self.store, ROOT, lambda: self.now) as log:
            own = make_own_root(self.store, ROOT, log)
            own.tombstones.change(ledgers, lambda ledger, known: PackedDecision(change(ledger, known)), log, rows=99)

    def certify(self, ledgers: Sequence[LedgerId]) -> Certificate:
        """Return a certificate that the tombstones of these ledgers name."""
        records = read_records(ledgers, self.cluster)
        rows = [CertifiedLedger(one, record.version, "") for one, record in records.items() if record is not None]
        certificate = make_certificate("", ROOT, rows, {}, {}, self.now)

        def ripen(ledger: LedgerId, _known: Tombstone | None) -> Tombstone | None:
            record = records[ledger]
            assert record is not None
            asked = request_delete(ledger, record, [BOOKIE], BEGIN_MS, "op", soak_ms=0)
            steps = (
                *asked.steps,
                DeleteStep(DeleteState.VERIFIED, BEGIN_MS, "op"),
                DeleteStep(DeleteState.PURGEABLE, BEGIN_MS, "op"),
            )
            return name_certificate(replace(asked, state=DeleteState.PURGEABLE, steps=steps), certificate.hash)

        self.change(ripen, ledgers)
        return certificate

    def open(self) -> OwnRoot:
        """Return our own root."""
        with open_log(self.folder, self.store, ROOT, lambda: self.now) as log:
            return make_own_root(self.store, ROOT, log)

    def purge(
        self,
        *,
        archived: bool = False,
        soak_ms: int = 0,
        batch: int | None = None,
        steps: list[tuple[int, int]] | None = None,
    ) -> Purged:
        """Purge by the certificate."""
        asked = PurgeRequest(
            certificate=self.certificate,
            by="op",
            name_owners=self.name_owners,
            archived=archived,
            soak_ms=soak_ms,
            batch=batch,
        )
        with open_log(self.folder, self.store, ROOT, lambda: self.now) as log:
            own = make_own_root(self.store, ROOT, log)
            report = (lambda done, total: steps.append((done, total))) if steps is not None else lambda *_: None
            return purge_ledgers(asked, self.cluster, own, log, now=lambda: self.now, progress=report)

    def undo(
        self, ledgers: Sequence[LedgerId], sightings: Mapping[LedgerId, Mapping[str, Sighting]]
    ) -> dict[LedgerId, str]:
        """Take deletes back."""
        with open_log(self.folder, self.store, ROOT, lambda: self.now) as log:
            own = make_own_root(self.store, ROOT, log)
            return undo_deletes(ledgers, self.cluster, own, log, sightings, int(self.now.timestamp() * 1000))

    def name_owners(self, ledgers: Sequence[LedgerId]) -> dict[LedgerId, str]:
        """Return who names ledgers now."""
        return {ledger: owner for ledger, owner in self.owners.items() if ledger in ledgers}

    def change_beside(self, decide: Decide[Tombstone], ledger: LedgerId) -> None:
        """Change a tombstone as another process does, with a journal of its own."""
        with open_log(self.folder.with_name("rival"), self.store, ROOT, lambda: self.now) as log:
            make_own_root(self.store, ROOT, log).tombstones.change([ledger], decide, log, rows=1)

    def remove_beside(self, ledger: LedgerId) -> None:
        """Purge a ledger by the same certificate."""

        def decide(_ledger: LedgerId, known: Tombstone | None) -> PackedDecision[Tombstone] | None:
            assert known is not None
            removal = Write(self.cluster.make_key(ledger), None, 0)
            return PackedDecision(purge(known, known.record, BEGIN_MS, "rival"), (removal,), (known.record.raw,))

        self.change_beside(decide, ledger)

    def touch_beside(self, ledger: LedgerId) -> None:
        """Write a tombstone again as it is."""
        self.change_beside(lambda _, known: PackedDecision(known), ledger)

    def list_states(self) -> dict[LedgerId, DeleteState]:
        """Return the state of each tombstone."""
        return {one.ledger: one.state for one in self.open().tombstones.read_sorted([])}


@pytest.fixture
def house(tmp_path: Path) -> House:
    """A cluster whose ledgers may all be purged."""
    return House(tmp_path / "journal")


def test_every_ledger_of_the_certificate_goes_and_leaves_its_record_behind(house: House) -> None:
    """The record with its rights is in the tombstone, its bytes in the journal; progress comes to all of them."""
    steps: list[tuple[int, int]] = []
    purged = house.purge(batch=2, steps=steps)
    assert (sorted(purged.purged), purged.earlier, house.left) == (LEDGERS, [], [])
    assert [done for done, _ in steps] == [2, 4, 5]
    assert {total for _, total in steps} == {5}
    for one in house.open().tombstones.read_sorted(LEDGERS):
        assert (one.state, one.record) == (
            DeleteState.PURGED,
            StoredRecord(b"record %d" % one.ledger.ledger, 0, BEGIN_MS, RIGHTS),
        )
    lines = [json.loads(line) for line in (house.folder / JOURNAL).read_text().splitlines()]
    announced = [AnnouncedWrite(*row) for line in lines if line["event"] == "intent" for row in line["writes"]]
    kept = {row.key: base64.b64decode(row.replaced or "") for row in announced if row.op == "remove"}
    assert kept == {house.cluster.make_key(one): b"record %d" % one.ledger for one in LEDGERS}


@pytest.mark.parametrize(("batch", "transactions"), [(1, 5), (2, 3), (None, 1), (1000, 1)])
def test_so_many_go_together(house: House, batch: int | None, transactions: int) -> None:
    """As many as was said, and never more than the store takes."""
    before = house.store.latest_txn()
    house.purge(batch=batch)
    assert house.store.latest_txn() - before == transactions
    assert house.cluster.most_removals == 200


def test_a_second_run_passes_over_what_the_first_removed(house: House) -> None:
    """Nothing is removed twice, even after the certificate's end."""
    house.purge()
    house.now = BEGIN + timedelta(days=3)
    again = house.purge()
    assert (again.purged, sorted(again.earlier)) == ([], LEDGERS)


@pytest.mark.parametrize("batch", [1, None])
def test_a_ledger_that_is_referenced_again_is_left_out_and_the_others_go(house: House, batch: int | None) -> None:
    """It is named with its owner and keeps its record and its tombstone; a later run takes it, and no other twice."""
    house.owners[LEDGERS[2]] = "topic a"
    steps: list[tuple[int, int]] = []
    done = house.purge(batch=batch, steps=steps)
    rest = [one for one in LEDGERS if one is not LEDGERS[2]]
    assert (sorted(done.purged), done.left_out) == (rest, {LEDGERS[2]: "topic a refers to it now"})
    assert [count for count, _ in steps][-1] == 5
    assert house.left == [LEDGERS[2]]
    assert house.list_states()[LEDGERS[2]] is DeleteState.PURGEABLE
    house.owners.clear()
    again = house.purge(batch=batch)
    assert (again.purged, sorted(again.earlier), again.left_out) == ([LEDGERS[2]], rest, {})
    assert house.left == []


def test_many_that_are_left_out_stop_a_purge(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """What went stays gone, and the run can be repeated; one fewer is no reason to stop."""
    order = [LEDGERS[n] for n in np.argsort(find_places(LEDGERS))]
    monkeypatch.setattr("reconcile.deletes.purge._FEW_LEFT_OUT", 2)
    house.owners |= dict.fromkeys(order[1:4], "topic a")
    stopped = r"stopped after 1 of 5 ledgers: 3 ledgers may not be purged now, more than 2 of 5; .* topic a refers"
    with pytest.raises(PartlyAppliedError, match=stopped):
        house.purge(batch=1)
    assert house.left == sorted(order[1:])
    del house.owners[order[1]]
    again = house.purge(batch=1)
    assert (sorted(again.purged), again.earlier, len(again.left_out)) == (sorted([order[1], order[4]]), order[:1], 2)


def test_a_purge_of_which_no_ledger_may_go_is_refused(house: House) -> None:
    """It is no purge that did what it was asked for."""
    house.owners |= dict.fromkeys(LEDGERS, "topic a")
    with pytest.raises(GuardRefusedError, match="topic a refers to it now"):
        house.purge()
    assert house.left == LEDGERS


def test_what_another_certificate_removed_is_not_passed_over(house: House) -> None:
    """It stops the run: whoever made this certificate did not know of that purge."""
    house.purge()
    house.certificate = make_certificate(
        "", ROOT, [CertifiedLedger(one, 0, "other") for one in LEDGERS], {}, {}, house.now
    )
    with pytest.raises(GuardRefusedError, match="it is PURGED, not PURGEABLE"):
        house.purge()


def test_a_soak_that_is_asked_for_by_now_counts_whatever_the_tombstone_says(house: House) -> None:
    """Until its very end; nothing goes before."""
    with pytest.raises(GuardRefusedError, match="soak"):
        house.purge(soak_ms=3_600_000)
    house.now = BEGIN + timedelta(hours=1, milliseconds=-1)
    with pytest.raises(GuardRefusedError, match="soak"):
        house.purge(soak_ms=3_600_000)
    assert set(house.list_states().values()) == {DeleteState.PURGEABLE}
    house.now = BEGIN + timedelta(hours=1)
    assert set(house.purge(soak_ms=3_600_000).purged) == set(LEDGERS)


def test_a_second_run_with_nothing_left_but_what_may_not_go_is_no_refusal(house: House) -> None:
    """It names that ledger again; the others went by the same certificate."""
    house.owners = {LEDGERS[2]: "topic t"}
    assert LEDGERS[2] in house.purge().left_out
    again = house.purge()
    assert (again.purged, len(again.earlier), list(again.left_out)) == ([], len(LEDGERS) - 1, [LEDGERS[2]])


def test_a_certificate_ends(house: House) -> None:
    """To its last moment it holds, after that nothing is removed by it."""
    house.now = house.certificate.not_after + timedelta(milliseconds=1)
    with pytest.raises(GuardRefusedError, match="the certificate ended"):
        house.purge()
    assert house.left == LEDGERS
    house.now = house.certificate.not_after
    assert len(house.purge().purged) == 5


@pytest.mark.parametrize(
    ("key", "text"),
    [(mark_key, "it is marked for replication now"), (lock_key, "another program holds its replication lock now")],
)
def test_a_ledger_under_replication_stays(house: House, key: Callable[[LedgerId], str], text: str) -> None:
    """A mark or a lock that came after the verification keeps its ledger out of the purge."""
    house.mark(key(LEDGERS[2]))
    assert house.purge().left_out == {LEDGERS[2]: text}
    assert house.left == [LEDGERS[2]]


def test_the_mark_of_another_ledger_is_nothing(house: House) -> None:
    """Each ledger is judged by its own nodes."""
    house.mark(mark_key(LedgerId(0, 99)))
    house.owners[LedgerId(0, 99)] = "topic"
    assert len(house.purge().purged) == 5


def test_archive_marks_are_asked_for_again_where_the_rule_is_on(house: House) -> None:
    """One that was taken back keeps its ledger out; without the rule none is asked for."""
    own = house.open()
    with open_log(house.folder, house.store, ROOT, lambda: house.now) as log:
        own.archive.change(
            LEDGERS[1:], lambda one, _: PackedDecision(ArchiveMark(one, "b", "s3://b", "", 1)), log, rows=9
        )
    assert house.purge(archived=True).left_out == {LEDGERS[0]: "it has no archive mark now"}
    assert house.left == LEDGERS[:1]
    with open_log(house.folder, house.store, ROOT, lambda: house.now) as log:
        own.archive.change(
            LEDGERS[:1], lambda one, _: PackedDecision(ArchiveMark(one, "b", "s3://b", "", 1)), log, rows=9
        )
    assert house.purge(archived=True).purged == LEDGERS[:1]


def test_unmarked_ledgers_go_where_the_rule_is_off(house: House) -> None:
    """Nobody archives in this cluster."""
    assert len(house.purge(archived=False).purged) == 5


def test_a_record_that_another_client_removed_is_left_out(house: House) -> None:
    """It is not counted as ours."""
    house.store.write([Write(house.cluster.make_key(LEDGERS[0]), None, 0)])
    done = house.purge()
    assert (len(done.purged), done.left_out) == (4, {LEDGERS[0]: "its record is gone: another program removed it"})


def test_a_record_that_changed_is_left_out(house: House) -> None:
    """Its version is not the certificate's any more."""
    house.store.write([Write(house.cluster.make_key(LEDGERS[0]), b"record 1", 0)])
    assert house.purge().left_out == {LEDGERS[0]: "its record is not the one that was verified"}
    assert house.left == LEDGERS[:1]


def test_what_was_undone_since_is_not_purged(house: House) -> None:
    """Its tombstone is gone: the certificate alone is nothing."""
    house.undo(LEDGERS[:1], {})
    assert house.purge().left_out == {LEDGERS[0]: "no delete was requested, or it was undone"}
    assert house.left == LEDGERS[:1]


def test_two_that_purge_by_one_certificate_share_the_work(house: House) -> None:
    """What the other one removed meanwhile counts as its, once, however often the rest is tried again."""
    house.store.strikes = [lambda: house.remove_beside(LEDGERS[0]), lambda: house.touch_beside(LEDGERS[1])]
    purged = house.purge()
    assert (sorted(purged.purged), purged.earlier, house.left) == (LEDGERS[1:], LEDGERS[:1], [])


def test_purges_of_a_day_are_counted(house: House) -> None:
    """Those of the last 24 hours, to the millisecond; what was only asked for is no purge."""
    house.purge()
    house.change(lambda one, _: request_delete(one, StoredRecord(b"", 0), (), BEGIN_MS, "op"), [LedgerId(0, 9)])
    own = house.open()
    assert count_lately(own.tombstones.read_all(), BEGIN_MS + DAY_MS - 1) == 5
    assert count_lately(own.tombstones.read_all(), BEGIN_MS + DAY_MS) == 0
    assert count_since(own.tombstones.read_all(), BEGIN_MS - 1) == 5
    assert count_since(own.tombstones.read_all(), BEGIN_MS) == 0


def test_records_of_a_store_without_rights_have_none(house: House) -> None:
    """As etcd's: none, which is not rights without a letter."""
    [ledger] = LEDGERS[:1]
    plain = Cluster(Recorder(house.store), ROOT, Layout.HIERARCHICAL)
    assert read_records([ledger, LedgerId(0, 99)], plain) == {
        ledger: StoredRecord(b"record 1", 0, BEGIN_MS),
        LedgerId(0, 99): None,
    }


def see(house: House, *, holds: bool = True) -> dict[str, Sighting]:
    """Return a look at the only bookie, right after the purge."""
    return {BOOKIE: Sighting(BOOKIE, 1, holds, int(house.now.timestamp() * 1000), "look")}


def test_before_the_purge_an_undo_takes_back_the_word_only(house: House) -> None:
    """Records keep bytes and version; what nobody asked for is said."""
    stood = [house.get(one) for one in LEDGERS]
    assert house.undo([LEDGERS[0], LedgerId(0, 99)], {}) == {
        LedgerId(0, 99): "no delete was requested, or it was undone"
    }
    assert [house.get(one) for one in LEDGERS] == stood
    assert sorted(house.list_states()) == LEDGERS[1:]


def test_after_the_purge_the_record_is_put_back_while_all_hold_it(house: House) -> None:
    """With its bytes and its rights, and the tombstone goes in the same transaction."""
    house.purge()
    before = house.store.latest_txn()
    assert house.undo(LEDGERS[:2], {one: see(house) for one in LEDGERS[:2]}) == {}
    assert house.store.latest_txn() - before == 1
    for one in LEDGERS[:2]:
        node = house.get(one)
        assert node is not None
        assert (node.value, node.acl) == (b"record %d" % one.ledger, RIGHTS)
    assert sorted(house.list_states()) == LEDGERS[2:]


def test_nothing_is_put_back_that_a_bookie_may_have_lost(house: House) -> None:
    """Nobody looked, or the bookie does not have it: the tombstone stays, and why is said."""
    house.purge()
    refused = house.undo(LEDGERS[:2], {LEDGERS[1]: see(house, holds=False)})
    assert refused == {
        LEDGERS[0]: f"its record was removed, and bookie {BOOKIE} was not read since",
        LEDGERS[1]: f"its record was removed, and bookie {BOOKIE} does not hold it any more",
    }
    assert house.left == []
    assert set(house.list_states().values()) == {DeleteState.PURGED}


def test_a_record_that_is_there_again_is_not_written_over(house: House) -> None:
    """Somebody restored it, or made it anew."""
    house.purge()
    house.store.write([Write(house.cluster.make_key(LEDGERS[0]), b"another")])
    assert house.undo(LEDGERS[:1], {LEDGERS[0]: see(house)}) == {LEDGERS[0]: "the store has a record of it again"}
    node = house.get(LEDGERS[0])
    assert node is not None
    assert node.value == b"another"
    assert len(house.list_states()) == 5


def test_a_holder_that_came_later_is_asked_too(house: House) -> None:
    """Members are not all: whoever was seen with entries must be seen again."""

    def add_holder(_ledger: LedgerId, known: Tombstone | None) -> Tombstone | None:
        assert known is not None
        return replace(known, holders=(Holder("bk9:3181", 4, BEGIN_MS),))

    house.purge()
    house.change(add_holder, LEDGERS[:1])
    refused = house.undo(LEDGERS[:1], {LEDGERS[0]: see(house)})
    assert refused == {LEDGERS[0]: "its record was removed, and bookie bk9:3181 was not read since"}
