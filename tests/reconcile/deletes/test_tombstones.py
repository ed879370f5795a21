"""Which steps a delete may take: each bound, just inside and just outside."""

from dataclasses import replace

import pytest

from reconcile.deletes.tombstones import (
    CERTIFICATE_MS,
    DAY_MS,
    RETENTION_MS,
    SKEW_MS,
    SOAK_MS,
    DeleteState,
    DeleteVerdict,
    Holder,
    Sighting,
    StepRefusedError,
    StoredRecord,
    Tombstone,
    Verification,
    decommission,
    find_soak_end,
    find_state,
    is_due,
    is_expired,
    list_overdue,
    list_released,
    list_returned,
    list_waiting,
    name_certificate,
    purge,
    request_delete,
    require_purgeable,
    require_undoable,
    take_sightings,
    take_verification,
)
from recovery.model.ids import LedgerId

RECORD = StoredRecord(b"record", 4)
SOAK = 7 * DAY_MS
HOLDERS = (Holder("b1", 11, 100), Holder("b2", 12, 100))
SAFE = Verification(DeleteVerdict.SAFE, (), RECORD, ("b1", "b2"), HOLDERS, 90)
UNSAFE = Verification(DeleteVerdict.UNSAFE, ("OPEN: it is open",), RECORD, ("b1", "b2"), HOLDERS, 90)


def ask() -> Tombstone:
    """Return a delete that was asked for at 10."""
    return request_delete(LedgerId(0, 1), RECORD, ("b1", "b2"), 10, "op", soak_ms=SOAK)


def make_purgeable() -> Tombstone:
    """Return a delete that may be purged from 100 + SOAK on."""
    return name_certificate(
        take_verification(take_verification(ask(), SAFE, 100, "op"), SAFE, 100 + SOAK, "op"), "hash"
    )


def make_purged(at_ms: int = 200 + SOAK) -> Tombstone:
    """Return a delete whose record was removed."""
    return purge(make_purgeable(), RECORD, at_ms, "op")


def see(bookie: str, incarnation: int, at_ms: int, *, holds: bool = False, formatted_ms: int | None = None) -> Sighting:
    """Return a look."""
    return Sighting(bookie, incarnation, holds, at_ms, "inventory", formatted_ms)


def test_the_soak_begins_with_the_first_safe_verification() -> None:
    """Soaking until the very end; a look before it does not make it purgeable, the first one from then on does."""
    verified = take_verification(ask(), SAFE, 100, "op")
    assert find_state(verified, 99 + SOAK) is DeleteState.SOAKING
    assert find_state(verified, 100 + SOAK) is DeleteState.VERIFIED
    early = take_verification(verified, SAFE, 99 + SOAK, "op")
    assert early.state is DeleteState.VERIFIED
    assert take_verification(early, SAFE, 100 + SOAK, "op").state is DeleteState.PURGEABLE


def test_a_soak_of_nothing_still_needs_two_looks() -> None:
    """And as many as somebody asks for."""
    asked = replace(ask(), soak_ms=0)
    first = take_verification(asked, SAFE, 100, "op")
    assert first.state is DeleteState.VERIFIED
    second = take_verification(first, SAFE, 100, "op", looks=3)
    assert second.state is DeleteState.VERIFIED
    assert take_verification(second, SAFE, 100, "op", looks=3).state is DeleteState.PURGEABLE


@pytest.mark.parametrize("verdict", [DeleteVerdict.UNSAFE, DeleteVerdict.UNDECIDED])
def test_any_other_verdict_leads_back(verdict: DeleteVerdict) -> None:
    """With its reasons, without its certificate; the soak begins anew."""
    back = take_verification(make_purgeable(), replace(UNSAFE, verdict=verdict), 200 + SOAK, "op")
    assert (back.state, back.objections, back.certificate, back.safe_in_row) == (
        DeleteState.REQUESTED, ("OPEN: it is open",), "", 0
    )  # fmt: skip
    again = take_verification(back, SAFE, 300 + SOAK, "op")
    assert find_state(again, 299 + 2 * SOAK) is DeleteState.SOAKING


def test_a_record_that_changed_begins_anew() -> None:
    """What was verified was another record."""
    changed = replace(SAFE, record=StoredRecord(b"other", 5))
    again = take_verification(make_purgeable(), changed, 200 + SOAK, "op")
    assert (again.state, again.safe_in_row, again.certificate) == (DeleteState.VERIFIED, 1, "")
    assert find_state(again, 201 + SOAK) is DeleteState.SOAKING


def test_who_may_be_purged() -> None:
    """Only what is purgeable, by the certificate that names it, at the version that it names, after its soak."""
    good = make_purgeable()
    assert require_purgeable(good, "hash", 4, 100 + SOAK) is good
    refused = (
        (None, "hash", 4, 100 + SOAK),
        (take_verification(ask(), SAFE, 100, "op"), "hash", 4, 100 + SOAK),
        (good, "other", 4, 100 + SOAK),
        (good, "hash", 5, 100 + SOAK),
        (good, "hash", 4, 99 + SOAK),
    )
    for arguments in refused:
        with pytest.raises(StepRefusedError):
            require_purgeable(*arguments)
    for record in (StoredRecord(b"record", 5), StoredRecord(b"other", 4)):
        with pytest.raises(StepRefusedError, match="not the one"):
            purge(good, record, 100 + SOAK, "op")


def test_a_holder_is_released_only_by_its_own_life() -> None:
    """Not by a look from before the purge, nor by a wiped bookie; by the same disks, or the same incarnation."""
    purged = make_purged(1000 + SOAK)
    at = 1000 + SOAK
    for look in (
        see("b1", 11, at - 1),
        see("b1", 99, at),
        see("b1", 99, at, formatted_ms=100),
        see("b2", 11, at),
    ):
        assert list_waiting(take_sightings(purged, [look], at, "op")) == ("b1", "b2"), look
    for look in (see("b1", 11, at), see("b1", 99, at, formatted_ms=99), see("b1", 11, at + SKEW_MS)):
        assert list_waiting(take_sightings(purged, [look], at, "op")) == ("b2",), look


def test_a_look_of_a_time_to_come_releases_nobody() -> None:
    """Another clock says so, perhaps of a look from before the purge; that it was seen counts whenever that was."""
    purged = make_purged(1000 + SOAK)
    at = 1000 + SOAK
    ahead = at + SKEW_MS + 1
    looks = [see("b1", 11, ahead), see("b9", 9, ahead, holds=True)]
    assert list_waiting(take_sightings(purged, looks, at, "op")) == ("b1", "b2", "b9")


def test_all_released_is_confirmed_and_data_that_come_back_are_not() -> None:
    """Whoever is seen with it is a holder again, also one that never was."""
    at = 1000 + SOAK
    confirmed = take_sightings(make_purged(), [see("b1", 11, at), see("b2", 12, at)], at, "op")
    assert confirmed.state is DeleteState.CONFIRMED
    for look in (see("b1", 11, at + 1, holds=True), see("b9", 9, at + 1, holds=True)):
        back = take_sightings(confirmed, [look], at + 1, "op")
        assert (back.state, list_waiting(back)) == (DeleteState.PURGED, (look.bookie,))


def test_a_tombstone_goes_after_the_retention_and_never_before_all_confirmed() -> None:
    """The retention is counted from the purge."""
    purged = make_purged(5000 + SOAK)
    at = 5000 + SOAK
    confirmed = take_sightings(purged, [see("b1", 11, at), see("b2", 12, at)], at, "op")
    assert not is_expired(confirmed, at + RETENTION_MS - 1)
    assert is_expired(confirmed, at + RETENTION_MS)
    assert not is_expired(purged, at + 10 * RETENTION_MS)
    assert list_overdue(purged, at + RETENTION_MS - 1) == ()
    assert list_overdue(purged, at + RETENTION_MS) == ("b1", "b2")


def test_a_decommissioned_bookie_counts_as_released() -> None:
    """Also a member that nobody ever looked at; others wait still."""
    purged = replace(make_purged(), members=("b1", "b2", "b3"))
    assert list_waiting(purged) == ("b1", "b2", "b3")
    assert list_waiting(decommission(purged, "b3", 1, "op")) == ("b1", "b2")
    one = decommission(decommission(purged, "b3", 1, "op"), "b2", 1, "op")
    assert decommission(one, "b1", 1, "op").state is DeleteState.CONFIRMED


def test_an_undo_after_the_purge_needs_every_holder() -> None:
    """Seen with it since the purge, and not seen without it in between."""
    purged = make_purged()
    at = purged.since_ms
    both = {bookie: see(bookie, 11, at, holds=True) for bookie in ("b1", "b2")}
    require_undoable(purged, both, at - SKEW_MS)
    require_undoable(make_purgeable(), None, at)
    late = take_sightings(purged, [see("b1", 11, at)], at, "op")
    for tombstone, looks in (
        (purged, None),
        (purged, {"b1": both["b1"]}),
        (purged, both | {"b2": see("b2", 12, at - 1, holds=True)}),
        (purged, both | {"b2": see("b2", 12, at)}),
    ):
        with pytest.raises(StepRefusedError):
            require_undoable(tombstone, looks, at)
    with pytest.raises(StepRefusedError, match="bookie b1 was seen without it since"):
        require_undoable(late, both, at)
    with pytest.raises(StepRefusedError, match="bookie b1 was read later than now"):
        require_undoable(purged, both, at - SKEW_MS - 1)


def test_a_clock_that_was_set_back_purges_nothing() -> None:
    """What was verified later than now was verified by another clock; five minutes are nothing."""
    ready = make_purgeable()
    late = replace(ready, steps=(*ready.steps[:-1], replace(ready.steps[-1], at_ms=ready.since_ms + 300_000)))
    assert require_purgeable(late, "hash", 4, ready.since_ms) is late
    with pytest.raises(StepRefusedError, match="later than now"):
        require_purgeable(late, "hash", 4, ready.since_ms - 1)


def test_the_times_are_those_of_the_contract() -> None:
    """A soak of seven days, a retention of thirty; REQUESTED is one step, however often a look is not safe."""
    assert (DAY_MS, SOAK_MS, RETENTION_MS) == (86_400_000, 7 * 86_400_000, 30 * 86_400_000)
    twice = take_verification(take_verification(ask(), UNSAFE, 20, "op"), UNSAFE, 30, "op")
    assert [step.state for step in twice.steps] == [DeleteState.REQUESTED]
    back = take_verification(take_verification(ask(), SAFE, 20, "op"), UNSAFE, 30, "op")
    assert [step.state for step in back.steps] == [DeleteState.REQUESTED, DeleteState.VERIFIED, DeleteState.REQUESTED]


def test_only_what_was_released_before_can_return() -> None:
    """Who was never seen without the ledger has it still; who was, or anybody after the confirmation, is back."""
    purged = make_purged()
    at_ms = purged.since_ms
    # Both have it still: nothing came back.
    still = take_sightings(purged, [see("b1", 11, at_ms + 1, holds=True)], at_ms + 1, "op")
    assert list_returned(purged, still) == ()
    one_left = take_sightings(still, [see("b1", 11, at_ms + 2)], at_ms + 2, "op")
    assert list_returned(still, one_left) == ()
    back = take_sightings(one_left, [see("b1", 11, at_ms + 3, holds=True)], at_ms + 3, "op")
    assert list_returned(one_left, back) == ("b1",)
    # Before all were seen without it a stranger is a holder that was not known.
    stranger = take_sightings(one_left, [see("b3", 13, at_ms + 3, holds=True)], at_ms + 3, "op")
    assert list_returned(one_left, stranger) == ()
    confirmed = take_sightings(one_left, [see("b2", 12, at_ms + 4)], at_ms + 4, "op")
    assert (confirmed.state, list_returned(one_left, confirmed)) == (DeleteState.CONFIRMED, ())
    stranger = take_sightings(confirmed, [see("b3", 13, at_ms + 5, holds=True)], at_ms + 5, "op")
    assert (stranger.state, list_returned(confirmed, stranger)) == (DeleteState.PURGED, ("b3",))
    # The step of the purge is not repeated: its time is that of the removal.
    assert [step.state for step in stranger.steps].count(DeleteState.PURGED) == 1
    # Who is seen without it is not back.
    assert list_returned(stranger, take_sightings(stranger, [see("b3", 13, at_ms + 6)], at_ms + 6, "op")) == ()
    # Looked at again it is the same: it is said once.
    same = take_sightings(stranger, [see("b1", 11, at_ms + 6)], at_ms + 6, "op")
    assert list_returned(stranger, same) == ()


def test_a_release_stays_what_it_was() -> None:
    """A later look at a holder that was seen without the ledger changes neither when nor by what it was released."""
    purged = make_purged()
    first = take_sightings(purged, [see("b1", 11, purged.since_ms + 1)], purged.since_ms + 1, "op")
    later = take_sightings(first, [see("b1", 11, purged.since_ms + 9)], purged.since_ms + 9, "op")
    assert later == first


def test_looks_before_a_purge_say_nothing() -> None:
    """A ledger that was never purged has no receipts; not even after an undo left the time of an earlier purge."""
    ready = make_purgeable()
    assert take_sightings(ready, [see("b1", 11, 10**15, holds=True)], 10**15, "op") is ready
    odd = replace(ready, steps=(*make_purged().steps, replace(ready.steps[-1], at_ms=ready.since_ms)))
    assert take_sightings(odd, [see("b1", 11, 10**15)], 10**15, "op") is odd


def test_a_record_that_is_gone_leaves_what_was_known_of_it() -> None:
    """Who verifies a ledger that somebody else removed keeps its record: it may be needed to put it back."""
    assert take_verification(ask(), replace(UNSAFE, record=None), 20, "op").record == RECORD


def test_a_decommissioned_holder_is_no_second_one() -> None:
    """Only a member of which no life is known becomes a holder by that."""
    gone = decommission(make_purged(), "b1", 10**13, "op")
    assert [(holder.bookie, holder.incarnation) for holder in gone.holders] == [("b1", 11), ("b2", 12)]


def test_what_is_due() -> None:
    """What was asked for, and what soaked; not what soaks still, nor what only a purge takes further.

    What no certificate names any more is due again: when the one that does has ended, or a verification made none.
    """
    verified = take_verification(ask(), SAFE, 100, "op")
    assert is_due(ask(), 10)
    assert not is_due(verified, 99 + SOAK)
    assert is_due(verified, 100 + SOAK)
    assert not is_due(make_purged(), 10 * SOAK)
    ready = replace(make_purgeable(), listed_ms=50 + SOAK)
    assert not is_due(ready, 50 + SOAK + CERTIFICATE_MS)
    assert is_due(ready, 51 + SOAK + CERTIFICATE_MS)
    assert is_due(replace(ready, certificate=""), 100 + SOAK)
    # One that tells no time of its references became purgeable when its certificate was made.
    timeless = replace(ready, listed_ms=None)
    assert not is_due(timeless, 100 + SOAK + CERTIFICATE_MS)
    assert is_due(timeless, 101 + SOAK + CERTIFICATE_MS)


def test_only_what_is_verified_soaks() -> None:
    """Before that its soak is told as if it were verified at once; after that its state is what it is."""
    assert (find_state(ask(), 11), find_soak_end(ask())) == (DeleteState.REQUESTED, 10 + SOAK)
    assert find_soak_end(take_verification(ask(), SAFE, 100, "op")) == 100 + SOAK
    for tombstone in (make_purgeable(), make_purged()):
        assert find_state(tombstone, 50) is tombstone.state


def test_an_older_look_releases_nobody() -> None:
    """Who was seen with the ledger since has it, whatever an inventory of before says that comes in late."""
    purged = make_purged()
    at_ms = purged.since_ms
    seen = take_sightings(purged, [see("b1", 11, at_ms + 5, holds=True)], at_ms + 5, "op")
    late = take_sightings(seen, [see("b1", 11, at_ms + 4)], at_ms + 6, "op")
    assert list_waiting(late) == ("b1", "b2")
    assert list_waiting(take_sightings(seen, [see("b1", 11, at_ms + 5)], at_ms + 6, "op")) == ("b2",)


def test_looks_count_in_the_order_of_their_times() -> None:
    """However they are handed over: the last one says what is."""
    purged = make_purged()
    at_ms = purged.since_ms
    both = [see("b1", 11, at_ms + 2), see("b1", 11, at_ms + 1, holds=True)]
    for looks in (both, both[::-1]):
        assert list_waiting(take_sightings(purged, looks, at_ms + 3, "op")) == ("b2",)


def test_a_decommissioned_bookie_has_a_release_that_says_so() -> None:
    """A release of before stays what it was; a bookie that never had the ledger becomes no holder; nobody is before."""
    purged = replace(make_purged(), members=("b1", "b2", "b3"))
    at_ms = purged.since_ms
    seen = take_sightings(purged, [see("b1", 11, at_ms)], at_ms, "op")
    assert decommission(seen, "b1", at_ms + 1, "op") == seen
    assert decommission(seen, "b9", at_ms + 1, "op") == seen
    asked = ask()
    assert decommission(asked, "b1", 20, "op") is asked
    assert decommission(seen, "b3", at_ms + 1, "op").holders[-1] == Holder(
        "b3", 0, at_ms + 1, at_ms + 1, "decommissioned by op"
    )
    assert decommission(seen, "b2", at_ms + 1, "op").holders[-1] == Holder(
        "b2", 12, 100, at_ms + 1, "decommissioned by op"
    )


def test_only_what_waits_is_overdue() -> None:
    """Once all were seen without it nobody is; before the purge nobody is either."""
    purged = make_purged()
    at_ms = purged.since_ms
    late_ms = at_ms + 2 * RETENTION_MS
    confirmed = take_sightings(purged, [see("b1", 11, at_ms), see("b2", 12, at_ms)], at_ms, "op")
    assert (list_overdue(confirmed, late_ms), list_overdue(make_purgeable(), late_ms)) == ((), ())
    assert not is_expired(make_purgeable(), late_ms)
    # Whatever a tombstone's state says: who may hold data keeps it.
    assert not is_expired(replace(purged, state=DeleteState.CONFIRMED), late_ms)
    assert is_expired(confirmed, late_ms)
    assert is_expired(confirmed, at_ms + 5, retention_ms=5)
    assert not is_expired(confirmed, at_ms + 4, retention_ms=5)


def test_a_holder_that_was_released_and_is_seen_again_waits_again() -> None:
    """Its old release is gone; the same look once more changes nothing."""
    purged = make_purged()
    at_ms = purged.since_ms
    confirmed = take_sightings(purged, [see("b1", 11, at_ms), see("b2", 12, at_ms)], at_ms, "op")
    back = take_sightings(confirmed, [see("b1", 11, at_ms + 1, holds=True)], at_ms + 1, "op")
    assert back.holders[0] == Holder("b1", 11, at_ms + 1)
    assert take_sightings(back, [see("b1", 11, at_ms + 1, holds=True)], at_ms + 1, "op") == back
    again = take_sightings(back, [see("b1", 11, at_ms + 2)], at_ms + 2, "op")
    assert [step.state for step in again.steps][-2:] == [DeleteState.CONFIRMED, DeleteState.CONFIRMED]


def test_a_verification_of_what_was_removed_changes_nothing() -> None:
    """Its tombstone is what is left of the ledger."""
    for tombstone in (make_purged(), replace(make_purged(), state=DeleteState.CONFIRMED)):
        assert take_verification(tombstone, SAFE, 10**14, "op") is tombstone


def test_who_is_seen_without_it_for_the_first_time_is_released() -> None:
    """Once: a later look names nobody again; another life of the same bookie counts for itself."""
    purged = make_purged()
    at_ms = purged.since_ms
    first = take_sightings(purged, [see("b1", 11, at_ms)], at_ms, "op")
    assert [(holder.bookie, holder.incarnation) for holder in list_released(purged, first)] == [("b1", 11)]
    second = take_sightings(first, [see("b1", 11, at_ms + 1), see("b2", 12, at_ms + 1)], at_ms + 1, "op")
    assert [(holder.bookie, holder.incarnation) for holder in list_released(first, second)] == [("b2", 12)]
    assert list_released(second, second) == ()
    other = replace(second, holders=(*second.holders, Holder("b1", 13, at_ms, at_ms + 2, "inventory")))
    assert [(holder.bookie, holder.incarnation) for holder in list_released(second, other)] == [("b1", 13)]
