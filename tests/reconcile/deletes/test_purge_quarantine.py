"""Quarantines in memory: what a hold is, what ends one, what does not, and what an undo puts back."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from backends.protocols import Write
from reconcile.deletes.own_root import make_own_root, open_log
from reconcile.deletes.purge import Purged, PurgeRequest, Quarantine, count_lately, end_quarantines, purge_ledgers
from reconcile.deletes.tombstones import (
    DAY_MS,
    DeleteState,
    DeleteStep,
    Holder,
    Tombstone,
    find_quarantine_end,
    list_holders,
)
from reconcile.errors import GuardRefusedError
from recovery.codecs.ledger_record import decode
from recovery.codecs.store import mark_key
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest, LedgerState
from tests.reconcile.deletes.test_purge import BEGIN, BEGIN_MS, BOOKIE, LEDGERS, RIGHTS, ROOT, House, see

DAY = timedelta(days=1)
FIRST, SECOND, THIRD = LEDGERS[:3]


@pytest.fixture
def house(tmp_path: Path) -> House:
    """A cluster whose ledgers may all be purged."""
    return House(tmp_path / "journal")


def purge(house: House, *, room: int = 99, is_ended: bool = False, batch: int | None = None, days: int = 1) -> Purged:
    """Purge by the certificate, with a quarantine."""
    asked = PurgeRequest(
        certificate=house.certificate, by="op", name_owners=house.name_owners, batch=batch,
        quarantine=Quarantine(days * DAY_MS, room),
        is_ended=is_ended,
    )  # fmt: skip
    with open_log(house.folder, house.store, ROOT, lambda: house.now) as log:
        own = make_own_root(house.store, ROOT, log)
        return purge_ledgers(asked, house.cluster, own, log, now=lambda: house.now)


def read(house: House, ledger: LedgerId) -> Tombstone:
    """Return a tombstone."""
    return house.open().tombstones.read_some([ledger])[ledger]


def test_a_hold_takes_the_place_of_each_record(house: House) -> None:
    """In recovery, HMAC, one copy acknowledges, of the holders alone; it says why, and until when; the rights stay."""
    house.change(lambda _, known: known and replace(known, reason="T-5"), [FIRST])
    assert sorted(purge(house).quarantined) == LEDGERS
    for ledger in LEDGERS:
        node, tombstone = house.get(ledger), read(house, ledger)
        assert node is not None
        assert (node.value, node.acl) == (tombstone.hold, RIGHTS)
        assert (tombstone.state, tombstone.record.raw) == (DeleteState.QUARANTINED, b"record %d" % ledger.ledger)
        hold = decode(node.value)
        assert (hold.state, hold.digest, hold.ack_quorum) == (LedgerState.IN_RECOVERY, Digest.HMAC, 1)
        assert (hold.ensemble_size, hold.write_quorum, len(hold.password or b"")) == (1, 1, 20)
        assert [(segment.first, segment.members) for segment in hold.segments] == [(0, (BOOKIE,))]
        why = f"in quarantine until 2026-01-02T00:00:00+00:00, before its delete{': T-5' * (ledger == FIRST)}"
        assert dict(hold.custom) == {
            "bkmeta.hold": why.encode(), "bkmeta.quarantine": b"2026-01-02T00:00:00+00:00",
        }  # fmt: skip
    assert len({read(house, ledger).hold for ledger in LEDGERS}) == len(LEDGERS)


@pytest.mark.parametrize("batch", [1, 2, None])
def test_so_many_are_in_quarantine_at_a_time(house: House, batch: int | None) -> None:
    """The others stay as they are, and a later run takes as many as have room by then."""
    first = purge(house, room=3, batch=batch)
    assert (len(first.quarantined), len(first.beyond), first.purged) == (3, 2, [])
    states = list(house.list_states().values())
    assert (states.count(DeleteState.QUARANTINED), states.count(DeleteState.PURGEABLE)) == (3, 2)
    again = purge(house, room=1, batch=batch)
    assert (len(again.waiting), len(again.quarantined), len(again.beyond)) == (3, 1, 1)
    full = purge(house, room=0, batch=batch)
    assert (len(full.waiting), len(full.quarantined), len(full.beyond)) == (4, 0, 1)


def test_it_ends_on_the_millisecond_though_the_certificate_ended(house: House) -> None:
    """Not a moment before; another policy by then neither prolongs nor shortens it."""
    purge(house, room=3)
    held = {ledger for ledger, state in house.list_states().items() if state is DeleteState.QUARANTINED}
    house.now = BEGIN + DAY - timedelta(milliseconds=1)
    early = purge(house, room=0, days=9)
    assert early.waiting == dict.fromkeys(held, BEGIN_MS + DAY_MS)
    assert early.purged == []
    house.now = BEGIN + DAY
    done = purge(house, is_ended=True, batch=1)
    assert (set(done.purged), done.waiting, done.quarantined, done.left_out) == (held, {}, [], {})
    assert set(house.left) == set(LEDGERS) - held
    assert {read(house, ledger).state for ledger in held} == {DeleteState.PURGED}
    assert {read(house, ledger).record.raw for ledger in held} == {b"record %d" % one.ledger for one in held}
    assert sorted(purge(house, is_ended=True).earlier) == sorted(held)


def test_what_speaks_against_a_removal_leaves_it_out(house: House) -> None:
    """A reference, or another record in the hold's place; a mark or a lock does not: BookKeeper marks every hold."""
    purge(house)
    house.now = BEGIN + DAY
    house.owners[FIRST] = "topic a"
    node = house.get(SECOND)
    assert node is not None
    house.store.write([Write(house.cluster.make_key(SECOND), b"another", node.version)])
    house.mark(mark_key(THIRD))
    done = purge(house, is_ended=True)
    assert sorted(done.purged) == LEDGERS[2:]
    assert done.left_out[FIRST] == "topic a refers to it now"
    assert done.left_out[SECOND].startswith("another program changed the hold")
    assert {read(house, ledger).state for ledger in (FIRST, SECOND)} == {DeleteState.QUARANTINED}
    house.owners[FIRST] = "topic b"
    again = purge(house, is_ended=True)
    assert (len(again.earlier), again.purged, len(again.left_out)) == (3, [], 2)


def test_nothing_that_can_go_is_refused(house: House) -> None:
    """Where nothing was done and nothing waits, the run is refused with the first reason."""
    purge(house, room=1)
    house.now = BEGIN + DAY
    house.owners |= dict.fromkeys(LEDGERS, "topic a")
    with pytest.raises(GuardRefusedError, match="topic a refers to it now"):
        purge(house, is_ended=True)


def test_a_hold_that_came_back_after_its_end_is_no_quarantine(house: House) -> None:
    """A purge is done: no record takes the place of what another program wrote."""
    purge(house)
    hold = read(house, FIRST).hold
    house.now = BEGIN + DAY
    purge(house, is_ended=True)
    house.store.write([Write(house.cluster.make_key(FIRST), hold, None)])
    with open_log(house.folder, house.store, ROOT, lambda: house.now) as log:
        end_quarantines({FIRST: "bk1 left"}, house.cluster, make_own_root(house.store, ROOT, log), log, 5, "op")
    node = house.get(FIRST)
    assert node is not None
    assert (node.value, read(house, FIRST).state) == (hold, DeleteState.PURGED)


def test_a_hold_that_is_gone_is_a_purge(house: House) -> None:
    """Whoever removed it, the record is gone: what is left is to see that the bookies let go."""
    purge(house)
    node = house.get(FIRST)
    assert node is not None
    house.store.write([Write(house.cluster.make_key(FIRST), None, node.version)])
    house.now = BEGIN + DAY
    assert sorted(purge(house, is_ended=True).purged) == LEDGERS
    assert set(house.list_states().values()) == {DeleteState.PURGED}


def test_an_undo_puts_the_record_back_byte_for_byte(house: House) -> None:
    """Whatever bookies have; where the hold is gone they must have the ledger since; over another record never."""
    purge(house)
    assert house.undo([FIRST], {}) == {}
    node = house.get(FIRST)
    assert node is not None
    assert (node.value, node.acl) == (b"record 1", RIGHTS)
    for ledger, value in ((SECOND, None), (THIRD, b"another")):
        node = house.get(ledger)
        assert node is not None
        house.store.write([Write(house.cluster.make_key(ledger), value, node.version)])
    refused = house.undo([SECOND, THIRD], {})
    assert refused[SECOND] == f"its record was removed, and bookie {BOOKIE} was not read since"
    assert refused[THIRD].startswith("another program changed the hold")
    earlier = {name: replace(look, at_ms=BEGIN_MS - 1) for name, look in see(house).items()}
    assert house.undo([SECOND], {SECOND: earlier})[SECOND] == refused[SECOND]
    assert house.undo([SECOND], {SECOND: see(house)}) == {}
    node = house.get(SECOND)
    assert node is not None
    assert (node.value, node.acl) == (b"record 2", RIGHTS)
    assert sorted(house.list_states()) == LEDGERS[2:]


def test_records_are_put_back_where_a_bookie_left(house: House) -> None:
    """Of what is in quarantine, and has its hold still; the delete begins anew, and says why."""
    purge(house, room=3)
    states = house.list_states()
    held, others = (
        [one for one in LEDGERS if (states[one] is DeleteState.QUARANTINED) is kind] for kind in (True, False)
    )
    node = house.get(held[1])
    assert node is not None
    house.store.write([Write(house.cluster.make_key(held[1]), b"another", node.version)])
    node = house.get(held[2])
    assert node is not None
    house.store.write([Write(house.cluster.make_key(held[2]), None, node.version)])
    with open_log(house.folder, house.store, ROOT, lambda: house.now) as log:
        own = make_own_root(house.store, ROOT, log)
        stranger = LedgerId(0, 98)
        house.store.write([Write(house.cluster.make_key(stranger), b"not asked for", None)])
        reasons = dict.fromkeys((*LEDGERS, stranger, LedgerId(0, 99)), "bk1 left")
        end_quarantines(reasons, house.cluster, own, log, BEGIN_MS + 5, "op")
    back = read(house, held[0])
    assert (back.state, back.objections, back.hold, back.certificate) == (DeleteState.REQUESTED, ("bk1 left",), b"", "")
    assert (back.since_ms, back.safe_in_row) == (BEGIN_MS + 5, 0)
    node = house.get(held[0])
    assert node is not None
    assert (node.value, node.acl) == (b"record %d" % held[0].ledger, RIGHTS)
    assert {read(house, one).state for one in held[1:]} == {DeleteState.QUARANTINED}
    assert {read(house, one).state for one in others} == {DeleteState.PURGEABLE}
    assert not {stranger, LedgerId(0, 99)} & house.list_states().keys()
    node = house.get(stranger)
    assert node is not None
    assert node.value == b"not asked for"


def test_holders_are_those_that_have_entries(house: House) -> None:
    """Those that have none are not named, for a recovery would make the ledger there; unless no bookie has any."""
    tombstone = read(house, FIRST)
    lives = (
        Holder("has", 1, BEGIN_MS, entries=4), Holder("unknown", 1, BEGIN_MS), Holder("none", 1, BEGIN_MS, entries=0),
        Holder("released", 1, BEGIN_MS, released_ms=BEGIN_MS, entries=4),
    )  # fmt: skip
    assert list_holders(replace(tombstone, holders=lives)) == ("has", "unknown")
    assert list_holders(replace(tombstone, holders=lives[2:])) == (BOOKIE,)


def test_a_quarantine_counts_when_it_begins(house: House) -> None:
    """Once, and not again when it ends; what is undone does not count."""
    purge(house)
    house.undo([FIRST], {})
    at = BEGIN_MS + DAY_MS
    assert count_lately(house.open().tombstones.read_all(), at - 1) == 4
    house.now = BEGIN + DAY
    purge(house, is_ended=True)
    assert count_lately(house.open().tombstones.read_all(), at) == 0


def test_another_certificate_ends_no_quarantine(house: House) -> None:
    """Not even one that names the ledger: what was put there by another one is left out."""
    purge(house)
    house.now = BEGIN + DAY
    house.change(lambda _, known: known and replace(known, certificate="another"), [FIRST])
    done = purge(house)
    assert (sorted(done.purged), list(done.left_out)) == (LEDGERS[1:], [FIRST])
    assert done.left_out[FIRST] == "it is QUARANTINED, not PURGEABLE"


def test_a_quarantine_ends_while_the_certificate_is_refused_for_others(house: House) -> None:
    """By a run that did not know that the certificate had ended: what waits in quarantine is not stopped by that."""
    purge(house, days=2)
    house.now = BEGIN + 2 * DAY
    assert sorted(purge(house).purged) == LEDGERS


def test_a_run_that_only_waits_or_finds_no_room_is_no_refusal(house: House) -> None:
    """Refused is only one that did nothing, for reasons that it names."""
    assert len(purge(house, room=0).beyond) == 5
    house.owners[FIRST] = "topic a"
    first = purge(house)
    assert (len(first.quarantined), list(first.left_out)) == (4, [FIRST])
    again = purge(house)
    assert (len(again.waiting), list(again.left_out)) == (4, [FIRST])


def test_the_last_quarantine_counts(house: House) -> None:
    """Of a ledger that came out of one and went into another."""
    steps = [
        (DeleteState.QUARANTINED, 1),
        (DeleteState.REQUESTED, 5),
        (DeleteState.PURGEABLE, 90),
        (DeleteState.QUARANTINED, 100),
    ]
    tombstone = replace(
        read(house, FIRST), quarantine_ms=7, steps=tuple(DeleteStep(state, at_ms, "op") for state, at_ms in steps)
    )
    assert find_quarantine_end(tombstone) == 107


def test_a_look_from_the_quarantine_is_none_from_after_the_purge(house: House) -> None:
    """Bookies collect from the purge on: what they had before it shows nothing."""
    purge(house)
    house.now = BEGIN + DAY
    purge(house)
    early = {name: replace(look, at_ms=BEGIN_MS + 5) for name, look in see(house).items()}
    assert house.undo([FIRST], {FIRST: early})[FIRST].endswith("was not read since")
    assert house.undo([FIRST], {FIRST: see(house)}) == {}
