"""What an earlier record says and bookies' bytes contradict: settled by what is proved, else held, and always said."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pytest

from recovery.codecs import ledger_metadata
from recovery.infer.prior import Prior, ShapeCounts
from recovery.infer.reconstruct import InferOptions, reconstruct
from recovery.infer.refusal import Refusal
from recovery.infer.wiped_bookies import Kept
from recovery.model import tables
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.reconcile.rules.test_sides import catalog
from tests.recovery.infer.test_reconstruct import KNOWN, NAMES, SECRET, full, header, recover, row, striped
from tests.simulation import simulator

Row = dict[str, Any]
MEMBERS: Final = NAMES[:3]
TRUE: Final = LedgerMetadata(
    3, 3, 2, 2, LedgerState.CLOSED, 29, 300, (Segment(0, MEMBERS),), Digest.CRC32C, simulator.PASSWORD,
    ctime=5, custom=(("owner", b"me"),), creator_token=0,
)  # fmt: skip
OPEN: Final = replace(TRUE, state=LedgerState.OPEN, last_entry=None, length=None)


def compared(
    stored: LedgerMetadata,
    rows: Sequence[Row],
    *,
    options: InferOptions = SECRET,
    names: Iterable[str] = NAMES,
    prior: Prior = KNOWN,
    states: Mapping[str, object] | None = None,
) -> Row:
    """Reconstruct ledger 7 with an earlier record of it."""
    bookies = [bookie | {"ledgers": 9} | dict(states or {}) for bookie in simulator.bookies(names).to_pylist()]
    (found,) = reconstruct(
        pa.Table.from_pylist(list(rows), schema=tables.COPIES),
        pa.Table.from_pylist(bookies, schema=tables.BOOKIES),
        tables.DAMAGE.empty_table(),
        prior,
        options,
        catalog({LedgerId(0, 7): stored}),
    ).to_pylist()
    return dict(found)


def said(found: Row) -> dict[str, tuple[str, str]]:
    """Contradictions by field: the earlier record's side and the bookies'."""
    return {one["field"]: (one["earlier"], one["bookies"]) for one in found["contradictions"] or ()}


SHAPES: Final = {"striped": (striped(30), TRUE), "alike": (full(3, 30), replace(TRUE, write_quorum=3))}

CONTRADICTED: Final[Mapping[str, tuple[dict[str, Any], str, Refusal]]] = {
    "closed without entries": ({"last_entry": -1, "length": 0}, "last_entry", Refusal.TWO_HISTORIES),
    "closed below what was acknowledged": ({"last_entry": 10, "length": 110}, "last_entry", Refusal.TWO_HISTORIES),
    "closed one below the LAC": ({"last_entry": 27, "length": 280}, "last_entry", Refusal.TWO_HISTORIES),
    "closed far above all entries": ({"last_entry": 99, "length": 1000}, "last_entry", Refusal.LAC_BEYOND_END),
    "closed one above all entries": ({"last_entry": 30, "length": 310}, "last_entry", Refusal.LAC_BEYOND_END),
    "another digest": ({"digest": Digest.HMAC}, "digest", Refusal.DIGESTS_DIFFER),
    "another password": ({"password": b"another"}, "key", Refusal.TWO_KEYS),
    "a length one too small": ({"length": 299}, "length", Refusal.LENGTHS_DIFFER),
    "a length that falls": ({"last_entry": 99, "length": 299}, "length", Refusal.LENGTHS_DIFFER),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("case", CONTRADICTED)
def test_a_record_that_bytes_contradict_is_held_and_both_sides_are_said(case: str, shape: str) -> None:
    """Never restored as it says, never as bookies show alone: two ledgers may stand under the id."""
    changes, field, reason = CONTRADICTED[case]
    rows, true = SHAPES[shape]
    found = compared(replace(true, **changes), rows)
    assert (found["outcome"], found["reason"], found["raw"]) == ("held", reason, None)
    assert found["holders"] == list(MEMBERS)
    assert (found["missing"], found["extra"], found["alternatives"]) == (0, 0, [])
    earlier, shown = said(found)[field]
    assert earlier
    assert shown
    assert earlier != shown


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("end", [28, 29])
def test_a_record_that_bytes_bear_out_is_taken_byte_for_byte(end: int, shape: str) -> None:
    """From the last acknowledged entry to the last that anybody holds, with nothing said against it."""
    rows, true = SHAPES[shape]
    stored = replace(true, last_entry=end, length=10 * (end + 1))
    found = compared(stored, rows)
    assert (found["outcome"], found["raw"]) == ("restored", ledger_metadata.encode(stored))
    assert (found["contradictions"], found["alternatives"]) == (None, [])
    assert (found["missing"], found["acked_high"], found["last_entry"]) == (0, end, end)
    assert set(found["grades"].values()) == {"snapshot"}


def test_another_striping_than_the_seen_one_is_another_ledger() -> None:
    """E and W never change; where whole copies show them a record with others is held, open or closed."""
    for stored in (replace(TRUE, write_quorum=3, ack_quorum=2), replace(OPEN, write_quorum=3, ack_quorum=2)):
        found = compared(stored, striped(30))
        assert (found["reason"], said(found)) == (
            Refusal.TWO_HISTORIES, {"ensemble_size/write_quorum": ("3/3", "3/2")}
        )  # fmt: skip
    # Where nothing shows it, the record settles it.
    assert compared(replace(TRUE, write_quorum=3), full(3, 30))["outcome"] == "restored"


def test_lengths_that_only_some_writers_leave_are_no_contradiction() -> None:
    """Of DEFERRED_SYNC what was answered and never forced counts; a recovery that nobody answered counts nothing."""
    headers = [header(0, lac=-1), header(29, lac=20)]
    rows = [one | {"headers": headers} for one in full(3, 30)]
    deferred = replace(TRUE, write_quorum=3, last_entry=20, length=300)
    assert compared(deferred, rows)["raw"] == ledger_metadata.encode(deferred)
    empty = (*TRUE.segments, Segment(30, ("a:3181", "b:3181", "d:3181")))
    silent = replace(TRUE, length=0, segments=empty)
    assert compared(silent, striped(30))["raw"] == ledger_metadata.encode(silent)
    assert compared(replace(TRUE, length=0), striped(30))["reason"] == Refusal.LENGTHS_DIFFER


def test_what_a_loss_explains_is_restored_with_what_is_missing() -> None:
    """Entries above all that is held: lost, if each member that had them lacks others, too; or not looked at."""
    stored = replace(TRUE, last_entry=39, length=400)
    # None of the three has all of its share of what is held, so each may have lost the rest.
    shares = [[e for e in range(upto) if simulator.holds(p, e, 3, 2)] for p, upto in enumerate((13, 10, 10))]
    shares[0].remove(3)
    lossy = [row(name, own) for name, own in zip(MEMBERS, shares, strict=True)]
    found = compared(stored, lossy, states={"ledgers": 0})
    assert (found["outcome"], found["raw"]) == ("restored", ledger_metadata.encode(stored))
    assert found["missing"] == 80 - sum(one["entries"] for one in lossy)
    assert said(found) == {"last_entry": ("39", "no entry above 12")}
    unseen = compared(stored, striped(30), options=InferOptions(SECRET.passwords, unscanned_bookies=("z:3181",)))
    assert (unseen["outcome"], unseen["missing"]) == ("restored", 20)
    assert said(unseen) == {"last_entry": ("39", "no entry above 29")}
    assert compared(stored, striped(40))["missing"] == 0


def test_only_a_bookie_that_may_have_been_wiped_explains_that_it_has_nothing() -> None:
    """Of the members that a record names each is asked about itself, whatever others may have lost."""
    others = ("d:3181", "e:3181", "f:3181")
    later = replace(TRUE, last_entry=39, length=400, segments=(*TRUE.segments, Segment(30, others)))

    def with_kept(kept: Kept) -> Row:
        return compared(later, striped(30), names=(*MEMBERS, *others), prior=replace(KNOWN, kept=kept))

    # What is seen of a later ledger only, or of a ledger of another scope, says nothing of this one.
    for kept in ({}, {0: dict.fromkeys(others, 7)}, {1: dict.fromkeys(others, 6)}):
        found = with_kept(kept)
        assert (found["outcome"], said(found)["last_entry"]) == ("restored", ("39", "no entry above 29"))
    for name in others:
        found = with_kept({0: {name: 6}})
        assert (found["outcome"], found["reason"]) == ("held", Refusal.LAC_BEYOND_END)


def test_missing_copies_of_a_restored_record_are_counted_by_its_own_segments() -> None:
    """Not those of the reading that bookies alone gave."""
    stored = replace(TRUE, write_quorum=3)
    found = compared(stored, [*full(2, 30), row("d:3181", range(10))])
    assert (found["outcome"], found["missing"], found["extra"]) == ("restored", 30, 10)


def test_an_open_record_tells_what_was_acknowledged_before_its_last_segment() -> None:
    """A segment begins behind the last acknowledged entry: what bookies show is not closed below it."""
    later = replace(OPEN, segments=(*OPEN.segments, Segment(50, ("a:3181", "b:3181", "d:3181"))))
    found = compared(later, striped(30))
    assert (found["outcome"], found["reason"]) == ("held", Refusal.LAC_BEYOND_END)
    assert said(found)["last_entry"][1] == "29"
    fits = replace(OPEN, segments=(*OPEN.segments, Segment(30, ("a:3181", "b:3181", "d:3181"))))
    assert compared(fits, striped(30))["outcome"] == "restored"


def test_a_record_of_an_old_format_says_nothing_of_digest_and_password() -> None:
    """What it does not say is not contradicted: it is taken byte for byte."""
    old = replace(TRUE, format=1, digest=None, password=None, ctime=None, custom=(), creator_token=None)
    found = compared(old, striped(30))
    assert (found["outcome"], found["contradictions"]) == ("restored", None)
    assert found["raw"] == ledger_metadata.encode(old)


@pytest.mark.parametrize("changes", [{"digest": Digest.HMAC}, {"password": b"another"}])
def test_an_open_record_of_another_digest_or_key_is_held(changes: dict[str, Any]) -> None:
    """The bytes of bookies are not what its password and type would open."""
    assert compared(replace(OPEN, **changes), striped(30))["outcome"] == "held"


def test_members_that_wrote_and_are_not_in_the_record_are_said() -> None:
    """The bookies' segments are taken; a copy's mark explains them, names that changed do not."""
    away = replace(TRUE, segments=(Segment(0, tuple(f"gone-{name}" for name in MEMBERS)),))
    found = compared(away, striped(30))
    assert (found["outcome"], [s["members"] for s in found["segments"]]) == ("restored", [list(MEMBERS)])
    assert said(found) == {"segments": ("0:[gone-a:3181,gone-b:3181,gone-c:3181]", "0:[a:3181,b:3181,c:3181]")}
    copied = [one | {"headers": [header(one["last"], lac=29)]} for one in striped(30)]
    assert compared(away, copied)["contradictions"] is None


def test_a_record_of_others_that_ends_above_all_is_of_another_ledger() -> None:
    """Two things speak against it, whatever may be lost or hidden: who wrote, and where it ends."""
    away = tuple(f"gone-{name}" for name in MEMBERS)
    stored = replace(TRUE, last_entry=39, length=400, segments=(Segment(0, away),))
    unseen = InferOptions(SECRET.passwords, unscanned_bookies=("z:3181",))
    for options in (SECRET, unseen):
        found = compared(stored, striped(30), options=options)
        assert (found["outcome"], found["reason"]) == ("held", Refusal.LAC_BEYOND_END)
        assert said(found) == {
            "last_entry": ("39", "no entry above 29, and others than its members wrote what there is")
        }
    # Those that re-replication gave copies to did not write, and a member that may have lost its share did.
    copied = [one | {"headers": [header(one["last"], lac=39)]} for one in striped(30)]
    assert compared(stored, copied, options=unseen)["outcome"] == "restored"
    moved = replace(stored, segments=(Segment(0, (*MEMBERS[:2], away[2])),))
    assert compared(moved, striped(30), options=unseen)["outcome"] == "restored"


@pytest.mark.parametrize(("later", "outcome"), [("b:3181", "held"), ("e:3181", "restored")])
def test_who_joins_above_all_entries_is_a_member_and_no_copy_explains_what_it_has(later: str, outcome: str) -> None:
    """One copy of entry 2 is left, on a bookie that the record's first segment does not name, and its second may."""
    members = ("a:3181", "c:3181")
    stored = replace(
        TRUE, ensemble_size=2, write_quorum=2, ack_quorum=2, last_entry=59, length=600,
        segments=(Segment(0, members), Segment(43, (members[0], later))),
    )  # fmt: skip
    hidden = InferOptions(SECRET.passwords, unscanned_bookies=("y:3181", "z:3181"))
    found = compared(stored, [row("b:3181", [2], headers=[header(2, lac=2)])], options=hidden)
    assert found["outcome"] == outcome
    shown = "no entry above 2, and others than its members wrote what there is"
    assert (said(found)["last_entry"] == ("59", shown)) == (outcome == "held")


UNDER_GUARD: Final[Mapping[str, tuple[list[Row], dict[str, Any], str, Refusal]]] = {
    "no entry, and a LAC": (
        [row("a:3181", [], explicit_lac=2)], {"last_entry": -1, "length": 0}, "guarded", Refusal.TWO_HISTORIES
    ),
    "a LAC above the end": (full(3, 30, explicit_lac=35), {}, "guarded", Refusal.TWO_HISTORIES),
    "in limbo": (full(3, 30, limbo=True), {}, "guarded", Refusal.LIMBO),
}  # fmt: skip


@pytest.mark.parametrize("case", UNDER_GUARD)
def test_a_record_that_says_what_is_under_a_guard_does_not_prove_it(case: str) -> None:
    """It has the same end and the same bookies; what put the ledger under a guard speaks against the record, too."""
    rows, changes, outcome, reason = UNDER_GUARD[case]
    alone = recover(rows)
    assert alone["outcome"] == outcome
    members = tuple(alone["segments"][0]["members"])
    stored = replace(
        TRUE, **changes, ensemble_size=alone["ensemble_size"], write_quorum=alone["write_quorum"],
        ack_quorum=alone["ack_quorum"], segments=(Segment(0, members),),
    )  # fmt: skip
    found = compared(stored, rows)
    assert (found["outcome"], found["reason"]) == ("held" if reason is Refusal.TWO_HISTORIES else outcome, reason)
    assert ("last_entry" in said(found)) == (reason is Refusal.TWO_HISTORIES)
    assert found["raw"] is None


@pytest.mark.parametrize("state", LedgerState)
def test_the_shape_that_bookies_show_is_listed_beside_the_records(state: LedgerState) -> None:
    """Whoever takes the record's E and W can go back to what bookies alone give, and is offered no shape twice."""
    alone = recover(full(3, 30))
    assert (alone["ensemble_size"], alone["write_quorum"]) == (3, 3)
    away = (Segment(0, ("x:3181", "y:3181")),)
    stored = replace(
        TRUE if state is LedgerState.CLOSED else OPEN, state=state, ensemble_size=2, write_quorum=2, segments=away
    )
    found = compared(stored, full(3, 30))
    assert (found["outcome"], found["ensemble_size"], found["write_quorum"]) == ("restored", 2, 2)
    shapes = [other["value"] for other in found["alternatives"] if other["field"] == "ensemble_size/write_quorum"]
    assert "3/3" in shapes
    assert "2/2" not in shapes
    assert len(shapes) == len(set(shapes))


def test_a_copys_lac_proves_no_end() -> None:
    """What A bookies hold above the LAC of a copy may have been acknowledged since; a record of either end is believed.

    What fewer have than an A that a person states was never acknowledged, where all is seen and no bookie lost any: it
    is left out, and listed.
    """
    old = [row(name, range(53), headers=[header(0), header(52, lac=49)]) for name in NAMES[:2]]
    short = row(NAMES[1], range(51), headers=[header(0), header(50, lac=49)])
    copy = row("c:3181", range(51), headers=[header(0, lac=50), header(50, lac=50)])
    unsure = Prior.build(ShapeCounts(full={3: 50}), {(3, 3, 2): 50})
    prior = replace(unsure, kept={0: dict.fromkeys(NAMES, 6)}, default=(3, 3, 2))
    stored = replace(TRUE, write_quorum=3, last_entry=50, length=510, segments=(Segment(0, tuple(NAMES[:3])),))
    for rows, end, others in (([*old, copy], 52, "49..51"), ([old[0], short, copy], 50, "49..52")):
        alone = recover(rows, prior=prior, states={"ledgers": 9})
        assert (alone["outcome"], alone["last_entry"], alone["length"]) == ("restored", end, 10 * end + 10)
        assert others in {other["value"] for other in alone["alternatives"] if other["field"] == "last_entry"}
        # Where a bookie may have lost what it had, or no person states A, one copy is enough.
        for less in (replace(unsure, default=(3, 3, 2)), replace(prior, default=None)):
            assert recover(rows, prior=less, states={"ledgers": 9})["last_entry"] == 52
        for true in (stored, replace(stored, last_entry=52, length=530)):
            found = compared(true, rows, prior=prior)
            assert (found["raw"], found["contradictions"]) == (ledger_metadata.encode(true), None)


def test_bookies_that_fail_in_turn_leave_what_striping_leaves() -> None:
    """A 1/1 ledger that went to and fro is not called 2/1 by observation, and 1/1 is among the other readings."""
    rows = [row(name, range(at, 30, 2)) for at, name in enumerate(NAMES[:2])]
    found = recover(rows, prior=Prior.build(ShapeCounts(), {(1, 1, 1): 9}), states={"ledgers": 9})
    assert (found["ensemble_size"], found["write_quorum"]) == (2, 1)
    assert {found["grades"][name] for name in ("ensemble_size", "write_quorum", "last_entry")} == {"inferred"}
    assert found["acked_high"] is None
    assert "1/1" in {other["value"] for other in found["alternatives"]}


def test_the_length_of_ids_sent_out_of_order_is_that_of_what_was_sent_last() -> None:
    """LedgerHandleAdv sent 29 before 28: a header of 28 has the ledger's length, and no other is right."""
    headers = [header(28, lac=20, length=300), header(29, lac=20, length=290)]
    rows = [one | {"headers": headers} for one in full(3, 30)]
    stored = replace(TRUE, write_quorum=3)
    found = compared(stored, rows)
    assert (found["raw"], found["contradictions"]) == (ledger_metadata.encode(stored), None)
    for length in (290, 299):
        other = compared(replace(stored, length=length), rows)
        assert (other["outcome"], other["reason"]) == ("held", Refusal.LENGTHS_DIFFER)
    # Each entry has bytes of its own, in whatever order they are sent: 285 to 295 and 290 to 300 are of two ledgers.
    sharing = [header(28, lac=20, length=300), header(29, lac=20, length=295)]
    shared = compared(stored, [one | {"headers": sharing} for one in full(3, 30)])
    assert (shared["outcome"], shared["reason"]) == ("held", Refusal.LENGTHS_DIFFER)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_length_above_all_that_were_read_is_guarded(shape: str) -> None:
    """LedgerHandleAdv may have sent last an entry whose header was not read: nothing else of the record is in doubt.

    With an entry behind the end it may as well be the record of another ledger, which would cut that one off.
    """
    rows, true = SHAPES[shape]
    stored = replace(true, length=9999)
    found = compared(stored, [one | {"headers": [header(29)]} for one in rows])
    assert (found["outcome"], found["reason"], found["reading"]) == ("guarded", Refusal.TWO_HISTORIES, "likeliest")
    # Nor where bookies alone would show what was acknowledged: others may have what this record's writer sent last.
    whole = compared(stored, [one | {"headers": [header(29)]} for one in rows], names=MEMBERS)
    assert (whole["outcome"], whole["acked_high"]) == ("guarded", None)
    assert (found["raw"], found["last_entry"], found["holes"]) == (ledger_metadata.encode(stored), 29, [])
    assert [(a["field"], a["value"]) for a in found["alternatives"]] == [("length", "300")]
    assert said(found)["length"] == ("9999", "300, as a header of entry 29 or of the one behind it has it")
    shorter = compared(replace(stored, last_entry=28), [one | {"headers": [header(28)]} for one in rows])
    assert (shorter["outcome"], shorter["reason"]) == ("held", Refusal.LENGTHS_DIFFER)


def test_a_length_above_that_of_a_later_entry_is_none_of_this_ledger() -> None:
    """Running lengths never fall, wherever the header that was read stands."""
    rows = [one | {"headers": [header(29, lac=10)]} for one in full(3, 30)]
    stored = replace(TRUE, write_quorum=3, last_entry=20)
    assert compared(replace(stored, length=299), rows)["outcome"] == "restored"
    found = compared(replace(stored, length=301), rows)
    assert (found["reason"], said(found)) == (Refusal.LENGTHS_DIFFER, {"length": ("301", "300 at entry 29")})


def test_a_closed_record_of_a_ledger_that_bookies_know_and_hold_nothing_of_is_taken() -> None:
    """All its copies are missing, and that is said; of one without entries none is."""
    rows = [row("a:3181", [])]
    found = compared(TRUE, rows, states={"ledgers": 0})
    assert (found["outcome"], found["missing"], found["raw"]) == ("restored", 60, ledger_metadata.encode(TRUE))
    assert said(found) == {"last_entry": ("29", "no entry")}
    empty = compared(replace(TRUE, last_entry=-1, length=0), rows)
    assert (empty["outcome"], empty["missing"], empty["contradictions"]) == ("restored", 0, None)
