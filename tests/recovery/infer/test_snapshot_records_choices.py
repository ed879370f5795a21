"""What becomes of an earlier record, choice by choice: each at both of its sides, beside one ledger's few copies."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pytest

from recovery.codecs import ledger_metadata
from recovery.infer import facts, search, snapshot_records
from recovery.infer.ledger_row import Alternative, LedgerRow, read_rows
from recovery.infer.prior import Prior
from recovery.infer.reconstruct import InferOptions, reconstruct
from recovery.infer.refusal import Refusal
from recovery.infer.search import Tail
from recovery.infer.segment_cases import NOBODY
from recovery.infer.snapshot_records import hold_by_members, restore_as_recorded
from recovery.model import tables
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.reconcile.rules.test_sides import catalog
from tests.recovery.infer.test_reconstruct import KNOWN, NAMES, SECRET, full, header, row, striped
from tests.recovery.infer.test_search_choices import solution_of
from tests.recovery.infer.test_snapshot_records import OPEN, TRUE, compared, said
from tests.simulation import simulator

Row = dict[str, Any]
A, B, C, D, E = NAMES
GONE: Final = tuple(f"gone-{name}" for name in NAMES[:3])


def beside(
    records: Sequence[LedgerMetadata | bytes],
    rows: Sequence[Row],
    *,
    last: Iterable[int] = (),
    options: InferOptions = SECRET,
    prior: Prior = KNOWN,
    ledgers: Sequence[int] = (7,),
) -> list[Row]:
    """Reconstruct ledgers beside a record of each; last: those whose record the store had last."""
    bookies = [bookie | {"ledgers": 9} for bookie in simulator.bookies(NAMES).to_pylist()]
    stored = catalog({LedgerId(0, ledger): record for ledger, record in zip(ledgers, records, strict=True)})
    alive = stored.filter(pa.array([ledger in set(last) for ledger in stored["ledger"].to_pylist()]))
    found = reconstruct(
        pa.Table.from_pylist(list(rows), schema=tables.COPIES),
        pa.Table.from_pylist(bookies, schema=tables.BOOKIES),
        tables.DAMAGE.empty_table(),
        prior,
        options,
        stored,
        None,
        alive.select(["bucket", "scope", "ledger", "raw"]),
    ).to_pylist()
    return sorted(found, key=lambda one: list(ledgers).index(one["ledger"]))


def left_open(record: LedgerMetadata, rows: Sequence[Row], **given: Any) -> Row:
    """Return the one ledger of some rows, whose record the store had last."""
    [found] = beside([record], rows, last=[7], **given)
    return found


# Ledgers without entries on the bookies that were read.


@pytest.mark.parametrize(
    ("looked_at", "hiding", "holders"),
    [
        ((), (), [A, B, C]),
        ((A, B, C), (), None),
        ((A, B), (), [C]),
        ((A, B, C), (D,), None),
        ((A, B), (D,), [C]),
        ((A, B, C), (D, E), [D, E]),
        ((A, B), (D, E), [C, D, E]),
    ],
)
def test_who_may_have_a_ledger_that_was_open(
    looked_at: Sequence[str], hiding: Sequence[str], holders: list[str] | None
) -> None:
    """Members that were not read; and, from A of them on, all bookies that may hide it. Without any, it is left out."""
    found = hold_by_members(catalog({LedgerId(0, 7): OPEN}), looked_at, hiding).to_pylist()
    if holders is None:
        assert found == []
        return
    [one] = found
    assert (one["outcome"], one["reason"], one["holders"]) == ("held", Refusal.SOURCE_INCOMPLETE, holders)
    assert (one["raw"], one["state"], one["segments"], one["missing"], one["extra"]) == (None, None, None, 0, 0)
    assert set(one["grades"].values()) == {"unknown"}


def test_a_record_alone_comes_back_byte_for_byte_and_all_its_copies_are_missing() -> None:
    """Of one without entries none is, closed or not; and of no records no row comes out."""
    records = [TRUE, replace(TRUE, last_entry=0, length=10), replace(TRUE, last_entry=-1, length=0), OPEN]
    stored = catalog({LedgerId(0, number): record for number, record in enumerate(records, 1)})
    found = {one["ledger"]: one for one in restore_as_recorded(stored).to_pylist()}
    for number, (record, missing) in enumerate(zip(records, (60, 2, 0, 0), strict=True), 1):
        one = found[number]
        assert one["raw"] == ledger_metadata.encode(record)
        assert (one["missing"], one["class"]) == (missing, "undecided" if missing else "clean")
        assert (one["outcome"], one["reading"], one["last_entry"]) == ("restored", "proved", record.last_entry)
        assert one["acked_high"] == record.last_entry
        assert one["segments"] == [{"first": 0, "first_low": 0, "members": [A, B, C], "assumed": [False] * 3}]
        assert (one["holders"], one["alternatives"], one["reason"]) == ([], [], None)
        assert set(one["grades"].values()) == {"snapshot"}
    assert restore_as_recorded(stored.slice(0, 0)).to_pylist() == []


# What was open.


def test_the_only_record_may_be_the_one_that_the_store_had_last() -> None:
    """It stays open; one of another state, or of other bytes, does not, nor one that is not the last."""
    rows = full(3, 30)
    record = replace(OPEN, write_quorum=3)
    assert left_open(record, rows)["raw"] == ledger_metadata.encode(record)
    assert beside([record], rows)[0]["state"] == "CLOSED"
    recovering = left_open(replace(record, state=LedgerState.IN_RECOVERY), rows)
    assert (recovering["state"], recovering["last_entry"]) == ("CLOSED", 29)
    # Of two ledgers, one has its last record there.
    both = [*rows, *(one | {"ledger": 8, "bucket": LedgerId(0, 8).bucket} for one in rows)]
    for last in (7, 8):
        found = {one["ledger"]: one["state"] for one in beside([record] * 2, both, last=[last], ledgers=(7, 8))}
        assert found == {7: "CLOSED", 8: "CLOSED", last: "OPEN"}


@pytest.mark.parametrize("entries", [1, 30])
def test_what_stays_open_is_as_its_record_has_it(entries: int) -> None:
    """Closed at the highest entry that is seen it would read the same; other shapes are not offered."""
    [plain] = beside([replace(OPEN, write_quorum=3)], full(3, entries))
    found = left_open(replace(OPEN, write_quorum=3), full(3, entries))
    assert (found["state"], found["class"], found["outcome"]) == ("OPEN", "clean", "restored")
    assert [other["field"] for other in found["alternatives"]] == ["last_entry"] * 2
    assert [other["value"] for other in found["alternatives"]] == [str(entries - 2), str(entries - 1)]
    assert plain["state"] == "CLOSED"
    assert (found["missing"], found["extra"], found["acked_high"]) == (0, 0, None)
    assert found["segments"][0]["assumed"] == [False] * 3


def test_the_last_segment_may_begin_at_the_last_entry() -> None:
    """Its members have that entry; who was replaced does not lack it."""
    rows = [row(A, range(20)), row(B, range(20)), row(C, range(19)), row(D, [19])]
    later = replace(OPEN, write_quorum=3, segments=(Segment(0, (A, B, C)), Segment(19, (A, B, D))))
    found = left_open(later, rows)
    assert (found["state"], found["missing"], found["extra"]) == ("OPEN", 0, 0)
    # A member that has nothing of its share is said to be assumed.
    silent = left_open(replace(later, segments=(Segment(0, (A, B, C)), Segment(19, (A, B, E)))), rows[:3])
    assert (silent["state"], silent["missing"]) == ("OPEN", 1)
    assert [segment["assumed"] for segment in silent["segments"]] == [[False] * 3, [False, False, True]]


def test_what_a_recovery_may_lose_is_not_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """No bookie has it, a bookie was not read, only acknowledged entries are wanted, or it is in too many pieces."""
    record = replace(OPEN, write_quorum=3)
    assert left_open(record, [row(A, [])])["state"] != "OPEN"
    hidden = InferOptions(SECRET.passwords, unscanned_bookies=("z:3181",))
    assert left_open(record, full(3, 30), options=hidden)["state"] == "CLOSED"
    asked = InferOptions(SECRET.passwords, tail=Tail.ACKNOWLEDGED)
    assert left_open(record, full(3, 30), options=asked)["state"] == "CLOSED"
    assert left_open(record, full(3, 30))["state"] == "OPEN"
    monkeypatch.setattr(snapshot_records, "MAX_RUNS", 2)
    assert left_open(record, full(3, 30))["state"] == "CLOSED"


def test_what_bookies_leave_open_has_what_its_earlier_record_has() -> None:
    """Custom metadata, creation time and the like are on no bookie; the record's other quorums close it at its end."""
    asked = InferOptions(SECRET.passwords, tail=Tail.OPEN)
    prior = replace(KNOWN, kept={0: dict.fromkeys(NAMES, 6)})
    stored = replace(OPEN, write_quorum=3, custom=(("application", b"pulsar"),), ctime=5)
    [found] = beside([stored], full(3, 30), options=asked, prior=prior)
    assert (found["state"], found["last_entry"], found["outcome"]) == ("OPEN", None, "restored")
    assert (found["custom"], found["ctime"]) == ([{"key": "application", "value": b"pulsar"}], 5)
    assert ledger_metadata.decode(found["raw"]) == replace(stored, segments=(Segment(0, (A, B, C)),))
    recovering = replace(stored, state=LedgerState.IN_RECOVERY)
    [again] = beside([recovering], full(3, 30), options=asked, prior=prior)
    assert again == found
    [narrow] = beside([replace(stored, write_quorum=2)], full(3, 30), options=asked, prior=prior)
    assert (narrow["state"], narrow["last_entry"], narrow["length"], narrow["write_quorum"]) == ("CLOSED", 29, 300, 2)
    assert narrow["custom"] == found["custom"]
    # One copy of each entry is too many then.
    assert (narrow["missing"], narrow["extra"]) == (0, 30)


def test_a_shape_without_any_copy_to_place_leaves_the_row_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is held of the ledger, or it is in too many pieces: other quorums in a record change nothing."""
    [found] = beside([OPEN], [row(A, [])])
    assert (found["outcome"], found["ensemble_size"], found["raw"]) == ("guarded", 1, None)
    [taken] = beside([OPEN], full(3, 30))
    assert (taken["write_quorum"], taken["state"], taken["extra"]) == (2, "CLOSED", 30)
    monkeypatch.setattr(snapshot_records, "MAX_RUNS", 2)
    [left] = beside([OPEN], full(3, 30))
    assert (left["write_quorum"], left["raw"]) == (3, None)


# What was closed.


@pytest.mark.parametrize("segments", [1, 2])
@pytest.mark.parametrize(("last", "outcome"), [(C, "held"), (D, "restored")])
def test_a_copy_is_missing_where_a_bookie_has_it_in_its_logs(last: str, outcome: str, segments: int) -> None:
    """The record names the bookie that let go of it: it deleted the ledger; or the one that it was moved to."""
    a, b, own = striped(30)
    copy = row(D, range(1, 30), headers=[header(1, lac=29), header(29, lac=29)])
    left = own | {"source": "log", "headers": [header(1, lac=0), header(29)]}
    stored = replace(TRUE, segments=tuple(Segment(first, (A, B, last)) for first in (0, 15)[:segments]))
    found = compared(stored, [a, b, copy, left])
    assert (found["outcome"], found["raw"] is None) == (outcome, outcome == "held")
    assert found["reason"] == (Refusal.DELETED_SOMEWHERE if outcome == "held" else None)


@pytest.mark.parametrize("entries", [1, 30])
def test_a_closed_ledger_of_other_members_gets_those_that_have_it(entries: int) -> None:
    """However few entries it has; the record's own members, who may have moved, are listed, and its fields are kept."""
    stored = replace(
        TRUE, write_quorum=3, last_entry=entries - 1, length=10 * entries, segments=(Segment(0, GONE),)
    )  # fmt: skip
    found = compared(stored, full(3, entries))
    assert (found["outcome"], found["class"], found["state"]) == ("restored", "solved", "CLOSED")
    assert [segment["members"] for segment in found["segments"]] == [[A, B, C]]
    assert [a["value"] for a in found["alternatives"] if a["field"] == "segments"] == [f"0:[{','.join(GONE)}]"]
    grades = found["grades"]
    assert grades.pop("segments") != "snapshot"
    assert set(grades.values()) == {"snapshot"}


def test_segments_behind_all_entries_are_kept_and_one_at_the_last_entry_is_not_doubled() -> None:
    """An entry that no bookie has may be where the record has it."""
    away = replace(TRUE, write_quorum=3, segments=(Segment(0, GONE), Segment(29, GONE)))
    found = compared(away, full(3, 30))
    assert [segment["first"] for segment in found["segments"]] == [0]
    unseen = InferOptions(SECRET.passwords, unscanned_bookies=("z:3181",))
    copied = [one | {"headers": [header(one["last"], lac=39)]} for one in full(3, 30)]
    later = replace(
        TRUE, write_quorum=3, last_entry=39, length=400,
        segments=(Segment(0, GONE), Segment(29, GONE), Segment(30, (D, E, "z:3181")), Segment(35, GONE)),
    )  # fmt: skip
    found = compared(later, copied, options=unseen)
    assert [(segment["first"], segment["members"][0]) for segment in found["segments"]] == [
        (0, A),
        (30, D),
        (35, GONE[0]),
    ]
    assert found["missing"] == 30


def test_a_ledger_closed_without_entries_needs_no_member_that_has_any() -> None:
    """What one bookie got was never acknowledged: the record is taken as it is."""
    empty = replace(TRUE, last_entry=-1, length=0, segments=(Segment(0, GONE),))
    found = compared(empty, [row(A, [0], headers=[header(0, lac=-1)])])
    assert (found["outcome"], found["raw"], found["extra"]) == ("restored", ledger_metadata.encode(empty), 0)


@pytest.mark.parametrize("copied", [0, 1, 3])
def test_one_copy_that_was_moved_explains_other_members(copied: int) -> None:
    """Without any, others wrote than the record says, and both are said."""
    rows = [
        one | ({"headers": [header(29, lac=29)]} if place < copied else {}) for place, one in enumerate(full(3, 30))
    ]
    found = compared(replace(TRUE, write_quorum=3, segments=(Segment(0, GONE),)), rows)
    assert (found["outcome"], found["contradictions"] is None) == ("restored", copied > 0)


def test_all_that_speaks_against_a_guarded_record_is_said() -> None:
    """Others wrote than its members, and its length is above all that were read."""
    stored = replace(TRUE, write_quorum=3, length=9999, segments=(Segment(0, GONE),))
    found = compared(stored, [one | {"headers": [header(29)]} for one in full(3, 30)])
    assert (found["outcome"], found["reason"]) == ("guarded", Refusal.TWO_HISTORIES)
    assert set(said(found)) == {"segments", "length"}


@pytest.mark.parametrize(
    ("rows", "changes", "field", "reads_as"),
    [
        (
            [one | {"headers": [header(one["last"], lac=29)]} for one in striped(30)],
            {"ensemble_size": 4, "write_quorum": 3, "segments": (Segment(0, (A, B, C, D)),)},
            "ensemble_size/write_quorum",
            "as bookies alone show it: the same entries; checks and repairs would count other copies",
        ),
        (
            [one | {"headers": [header(29)]} for one in full(3, 30)],
            {"write_quorum": 3, "length": 9999},
            "length",
            "the same entries; the length as the header of the last one has it",
        ),
    ],
    ids=["shape", "length"],
)
def test_what_bookies_show_instead_of_a_guarded_record_is_offered(
    rows: list[Row], changes: dict[str, Any], field: str, reads_as: str
) -> None:
    """And how it would read: stripes of another shape in copies, or another length at the end."""
    found = compared(replace(TRUE, **changes), rows)
    assert (found["outcome"], found["reason"]) == ("guarded", Refusal.TWO_HISTORIES)
    assert found["alternatives"][-1]["field"] == field
    assert found["alternatives"][-1]["reads_as"] == reads_as


def test_holes_are_listed_up_to_the_end_of_what_is_guarded_by_a_record() -> None:
    """Beside a ledger that bookies alone guard, whose holes stay as they are, and one that is restored."""
    longer = replace(TRUE, write_quorum=3, length=9999)
    own = [*range(12), *range(13, 30)]
    holed = [row(name, own, headers=[header(29)]) for name in NAMES[:3]]
    limbo = [one | {"ledger": 8, "bucket": LedgerId(0, 8).bucket, "limbo": True} for one in holed]
    whole = [one | {"ledger": 9, "bucket": LedgerId(0, 9).bucket} for one in full(3, 30)]
    found = beside(
        [longer, replace(TRUE, write_quorum=3), replace(TRUE, write_quorum=3)],
        [*holed, *limbo, *whole],
        ledgers=(7, 8, 9),
    )
    hole = [{"first": 12, "last": 12, "size": 1, "period": 0}]
    assert [(one["outcome"], one["raw"] is None) for one in found] == [
        ("guarded", False), ("guarded", True), ("restored", False),
    ]  # fmt: skip
    assert [one["holes"] for one in found] == [hole, hole, []]


def test_what_bookies_alone_would_cut_off_is_a_hole_below_a_guarded_records_end() -> None:
    """No bookie has entry 9, which would end the ledger; the record ends behind it."""
    stored = replace(TRUE, write_quorum=3, last_entry=10, length=9999)
    rows = [row(name, [*range(9), *([10] if name == A else [])]) for name in NAMES[:3]]
    rows = [one | {"headers": [header(one["last"], lac=-1)]} for one in rows]
    prior = replace(KNOWN, kept={0: dict.fromkeys(NAMES, 6)})
    # Beside one whose record is taken, though it has a segment more than bookies show.
    beside_it = [one | {"ledger": 8, "bucket": LedgerId(0, 8).bucket} for one in full(3, 30)]
    other = replace(TRUE, write_quorum=3, segments=(Segment(0, NAMES[:3]), Segment(15, NAMES[:3])))
    found, whole = beside([stored, other], [*rows, *beside_it], prior=prior, ledgers=(7, 8))
    assert (found["outcome"], found["last_entry"], found["raw"]) == ("guarded", 10, ledger_metadata.encode(stored))
    assert [(hole["first"], hole["last"]) for hole in found["holes"]] == [(9, 9)]
    assert (whole["raw"], whole["holes"]) == (ledger_metadata.encode(other), [])


def test_copies_are_counted_where_all_segments_of_the_record_place_them() -> None:
    """A bookie that came at 10 took over at 15 by the record: what it has from before is left over."""
    rows = [row(A, range(30)), row(B, range(30)), row(C, range(15)), row(D, range(10, 30))]
    stored = replace(TRUE, write_quorum=3, segments=(Segment(0, (A, B, C)), Segment(15, (A, B, D))))
    found = compared(stored, rows)
    assert (found["raw"], found["missing"], found["extra"]) == (ledger_metadata.encode(stored), 0, 5)


def test_a_ledger_is_of_the_class_that_explained_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing did, the record does: it is whole as it was, or it is left open."""
    odd = [row(A, [*range(12), *range(13, 30)]), *full(3, 30)[1:]]
    stored = replace(TRUE, write_quorum=3, segments=(Segment(0, NAMES[:3]), Segment(15, NAMES[:3])))
    assert compared(stored, odd)["class"] == "solved"
    assert compared(stored, full(3, 30))["class"] == "clean"
    last = replace(OPEN, write_quorum=3)
    assert [left_open(last, rows)["class"] for rows in (odd, full(3, 30))] == ["solved", "clean"]
    # In too many pieces to be searched.
    monkeypatch.setattr(search, "MAX_RUNS", 2)
    assert compared(stored, odd)["class"] == "clean"
    found = left_open(last, odd)
    assert (found["class"], found["state"]) == ("solved", "OPEN")
    [alone] = beside([b"?"], odd)
    assert (alone["class"], alone["outcome"]) == ("undecided", "guarded")


# Rows by themselves.


def row_of(copies: Sequence[Row]) -> tuple[facts.LedgerFacts, LedgerRow]:
    """Return what is known of one ledger, and what is made of it without a record."""
    table = pa.Table.from_pylist(list(copies), schema=tables.COPIES)
    bookies = simulator.bookies(NAMES)
    [found] = read_rows(reconstruct(table, bookies, tables.DAMAGE.empty_table(), KNOWN, SECRET))
    return facts.read(table, bookies), found


@pytest.mark.parametrize(
    ("recorded", "members", "wanted"),
    [
        ((A, B, C), (0, 1, NOBODY), (A, B, C)),
        ((A, B, "x"), (0, 1, NOBODY), (A, B, "x")),
        # The record's member of that position is at another one now: the first of the others, the record's before all.
        (("x", B, A), (0, 1, NOBODY), (A, B, "x")),
        ((D, B, A), (0, 1, NOBODY), (A, B, D)),
        ((B, C, A), (0, 1, NOBODY), (A, B, C)),
        (("x", A, B), (0, NOBODY, NOBODY), (A, "x", B)),
        (("x", "y", A), (0, NOBODY, NOBODY), (A, "y", "x")),
    ],
)
def test_who_takes_a_position_that_nobody_shows(
    recorded: Sequence[str], members: Sequence[int], wanted: Sequence[str]
) -> None:
    """The record's member of that position, unless it has another one; no member has two."""
    known, found = row_of(full(2, 10))
    stored = replace(TRUE, segments=(Segment(0, tuple(recorded)),))
    solution = solution_of((3, 2), [0], [members], missing=5, extra=4)
    made = snapshot_records._with_segments(known, 0, found, solution, stored)
    assert made.segments is not None
    assert made.segments[0].members == tuple(wanted)
    assert made.segments[0].assumed == tuple(member == NOBODY for member in members)
    assert (made.ensemble_size, made.write_quorum, made.missing, made.extra) == (3, 2, 5, 4)


def test_a_position_that_nobody_shows_is_as_the_record_of_that_time_has_it() -> None:
    """Each segment by the one of the record that has its first entry."""
    known, found = row_of(full(2, 10))
    stored = replace(TRUE, segments=(Segment(0, (A, B, "x")), Segment(5, (A, B, "y"))))
    solution = solution_of((3, 2), [0, 4, 5, 6], [[0, 1, NOBODY]] * 4)
    made = snapshot_records._with_segments(known, 0, found, solution, stored)
    assert made.segments is not None
    assert [segment.members[2] for segment in made.segments] == ["x", "x", "y", "y"]


@pytest.mark.parametrize(
    ("ensemble", "listed"),
    [(None, ["2/2", "29"]), (3, ["2/2", "29"]), (4, ["4/3", "29"])],
    ids=["no shape", "the same shape", "another shape"],
)
def test_the_shape_that_bookies_show_takes_the_place_of_the_records(ensemble: int | None, listed: list[str]) -> None:
    """A row that takes another shape offers its former one, and no longer the one that it takes."""
    _, found = row_of(full(3, 10))
    others = (Alternative("ensemble_size/write_quorum", "2/2", "", 0.5), Alternative("last_entry", "29", "", 0.0))
    found = replace(found, ensemble_size=ensemble, write_quorum=3, alternatives=others)
    shape = (2, 2) if ensemble == 4 else (3, 3)
    made = snapshot_records._list_shown_shape(found, *shape)
    assert [other.value for other in made] == listed


@pytest.mark.parametrize(
    ("record", "digest", "password"),
    [
        (TRUE, "CRC32C", "snapshot"),
        (
            replace(TRUE, format=1, digest=None, password=None, ctime=None, custom=(), creator_token=None),
            None,
            "verified",
        ),
        (replace(TRUE, digest=Digest.HMAC, password=b""), "HMAC", "snapshot"),
    ],
    ids=["all", "old", "empty password"],
)
def test_only_what_a_record_says_is_graded_by_it(record: LedgerMetadata, digest: str | None, password: str) -> None:
    """The password beside its key is the bookies', where a record has none."""
    _, found = row_of(full(3, 30))
    made = snapshot_records._take_record(found, record, ("state",))
    assert (made.digest, made.grades["password"]) == (digest, password)
    assert (made.grades["state"], made.grades["ack_quorum"]) == ("snapshot", found.grades["ack_quorum"])
    assert made.raw == ledger_metadata.encode(record)


def test_a_record_that_cannot_be_read_changes_nothing() -> None:
    """Beside one that can."""
    both = [*full(3, 30), *(one | {"ledger": 8, "bucket": LedgerId(0, 8).bucket} for one in full(3, 30))]
    torn, good = beside([b"?", replace(TRUE, write_quorum=3)], both, ledgers=(7, 8))
    assert (torn["outcome"], torn["raw"], torn["last_entry"], good["raw"] is None) == ("restored", None, 29, False)
