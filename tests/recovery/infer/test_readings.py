"""Readings: ledgers of which something may be hidden are readable all the same, entry by entry."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from recovery.codecs import ledger_metadata
from recovery.infer.prior import PriorShape, ShapeSource
from recovery.infer.readings import find_readings
from recovery.infer.reconstruct import InferOptions, reconstruct
from recovery.infer.refusal import CODES, REFUSALS, Refusal
from recovery.infer.shape_fit import CLEAN, UNDECIDED
from recovery.model import tables
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.reconcile.rules.test_sides import catalog
from tests.recovery.infer.test_reconstruct import (
    HELD,
    KNOWN,
    NAMES,
    SECRET,
    Row,
    _changed,
    full,
    header,
    recover,
    row,
    striped,
)
from tests.recovery.infer.test_reconstruct_rules import explained_of
from tests.recovery.infer.test_search_choices import read
from tests.simulation import simulator


def entries_of(copy: Row) -> set[int]:
    """Return the entries of a row's groups."""
    return {
        entry
        for g in copy["groups"]
        for start in range(g["first"], g["last"] + 1, g["period"] or 1)
        for entry in range(start, start + g["size"])
    }


GUARDED: Final[Mapping[str, tuple[Refusal, list[Row]]]] = {
    "nothing before an entry that nobody was told of": (
        Refusal.NOT_FROM_ZERO,
        [row(bookie, [1], headers=[header(1, lac=-1)]) for bookie in NAMES[:3]],
    ),
    "entries that no history leaves there": (
        Refusal.TWO_HISTORIES,
        [*striped(30), row("d:3181", [7, 8, 12, 13, 14])],
    ),
    "no header of the last entry": (Refusal.NO_LAST_HEADER, full(headers=[header(18)])),
    "a length that falls": (Refusal.TWO_HISTORIES, full(headers=[header(18, length=777), header(19)])),
    "a header's LAC above all": (Refusal.LAC_BEYOND_END, _changed(full(), explicit_lac=20)),
    "limbo": (Refusal.LIMBO, _changed(full(), limbo=True)),
    "no key": (Refusal.NO_KEY, full(key_kind="absent", key=None)),
    "entries in logs alone": (Refusal.LOG_ONLY_COPIES, [*full(), row(NAMES[0], [20], source="log")]),
    "nothing held": (Refusal.NO_ENTRIES, [row("a:3181", [])]),
}
"""What may not be all of a ledger, and is of one ledger."""


def test_every_reason_is_reached() -> None:
    """Each refusal is shown by some test of this module, so none is dead."""
    elsewhere = {Refusal.SOURCE_INCOMPLETE, Refusal.DAMAGE, Refusal.FRAGMENTED, Refusal.RAGGED_TAIL}
    # By what an earlier store had, or an upper layer knows.
    others = {Refusal.DELETED_OUTSIDE, Refusal.MASS_DELETION, Refusal.SCOPE_COLLISION}
    others |= {
        Refusal.DELETED_BY_REFERENCE,
        Refusal.DELETED_BY_TOMBSTONE,
        Refusal.DELETED_BEFORE,
        Refusal.DELETED_SINCE,
    }
    assert {reason for reason, _ in (*HELD.values(), *GUARDED.values())} | elsewhere == set(REFUSALS) - others


@pytest.mark.parametrize("case", GUARDED)
def test_what_may_not_be_all_is_readable(case: str) -> None:
    """A closed record names a holder of each entry that is seen, up to the highest; nothing is claimed beyond."""
    reason, rows = GUARDED[case]
    found = recover(rows)
    assert (found["outcome"], found["reason"], found["state"]) == ("guarded", reason, "CLOSED")
    served = {r["bookie"]: entries_of(r) for r in rows if r["source"] != "log"}
    seen = set().union(*served.values())
    assert found["last_entry"] == max(seen, default=-1)
    size, write = found["ensemble_size"], found["write_quorum"]
    for entry in seen:
        members = [s["members"] for s in found["segments"] if s["first"] <= entry][-1]
        assert any(entry in served.get(members[(entry + i) % size], ()) for i in range(write)), entry
    assert {found["grades"][name] for name in ("last_entry", "segments")} <= {"inferred", "assumed"}
    assert found["acked_high"] is None
    holes = [e for g in found["holes"] for e in range(g["first"], g["first"] + g["size"])]
    assert holes == [e for e in range(found["last_entry"] + 1) if e not in seen]


def test_a_shape_that_nobody_knows_is_read_by_who_holds_what() -> None:
    """Pieces on three bookies that no history leaves so: one segment, all of them, each entry asked of each."""
    held = {"a:3181": [0, 1, 5, 9, 20], "b:3181": [2, 3, 5, 11], "c:3181": [1, 4, 20]}
    rows = [row(bookie, own, limbo=True) for bookie, own in held.items()]
    found = recover(rows)
    assert (found["outcome"], found["reading"], found["class"]) == ("guarded", "universal", "undecided")
    assert (found["ensemble_size"], found["write_quorum"], found["ack_quorum"]) == (3, 3, 1)
    assert [(s["first"], s["members"]) for s in found["segments"]] == [(0, ["a:3181", "c:3181", "b:3181"])]
    assert (found["last_entry"], found["missing"]) == (20, 3 * 21 - 12)
    assert found["grades"]["ensemble_size"] == found["grades"]["ack_quorum"] == "assumed"


def test_who_may_have_a_missing_entry_is_named_behind_the_holders() -> None:
    """Readers of what nobody shows wait for the bookie that was not looked at; without such an entry nobody waits."""
    options = InferOptions(passwords=SECRET.passwords, unscanned_bookies=("x:3181", "z:3181"))
    torn = recover([row("a:3181", [0, 1, 3], limbo=True), row("b:3181", [0, 3])], options=options)
    assert torn["segments"][0]["members"] == ["a:3181", "b:3181", "x:3181", "z:3181"]
    assert torn["holes"] == [{"first": 2, "last": 2, "size": 1, "period": 0}]
    whole = recover([row("a:3181", [0, 1, 2, 3], limbo=True), row("b:3181", [0, 3])], options=options)
    assert whole["segments"][0]["members"] == ["a:3181", "b:3181"]


def test_two_entries_that_share_bytes_are_not_read_as_one_ledger() -> None:
    """Lengths cross where a writer sends ids out of order; but each entry has bytes of its own."""
    crossing = [header(3, length=50), header(4, length=40)]
    assert recover(full(headers=[*crossing, header(19)]))["outcome"] == "guarded"
    sharing = [header(3, length=45), header(4, length=40)]
    assert recover(full(headers=[*sharing, header(19)]))["outcome"] == "held"


def test_a_ledger_that_the_store_had_last_was_not_deleted() -> None:
    """What one bookie has in its logs alone is no deletion where the store's own files have the record to their end."""
    rows = [*full(), row("d:3181", [3], source="log")]
    copies = pa.Table.from_pylist(rows, schema=tables.COPIES)
    listed = pa.Table.from_pylist(simulator.bookies(NAMES).to_pylist(), schema=tables.BOOKIES)
    given = (copies, listed, tables.DAMAGE.empty_table(), KNOWN, SECRET)
    assert reconstruct(*given)["reason"].to_pylist() == [Refusal.DELETED_SOMEWHERE]
    for ledger, outcome in ((7, "restored"), (8, "held")):
        alive = pa.table({"bucket": [0], "scope": [0], "ledger": [ledger]})
        assert reconstruct(*given, alive=alive)["outcome"].to_pylist() == [outcome]


def test_a_bookie_without_its_index_shows_no_deletion() -> None:
    """All that it has stands in its logs: guarded by who serves it; of one that was seen whole it is a deletion."""
    left = row("d:3181", range(20), source="log")
    partly = [*({"bookie": name, "complete": name != "d:3181"} for name in NAMES)]
    listed = [one | half for one, half in zip(simulator.bookies(NAMES).to_pylist(), partly, strict=True)]
    copies = pa.Table.from_pylist([*full(), left], schema=tables.COPIES)
    given = (tables.DAMAGE.empty_table(), KNOWN, SECRET)
    (found,) = reconstruct(copies, pa.Table.from_pylist(listed, schema=tables.BOOKIES), *given).to_pylist()
    assert (found["outcome"], found["reason"], found["last_entry"]) == ("guarded", Refusal.SOURCE_INCOMPLETE, 19)
    assert recover([*full(), left])["reason"] == Refusal.DELETED_SOMEWHERE
    # It knows the ledger, and the places of its entries are gone: three copies elsewhere may not be all there are.
    idle = row("d:3181", [])
    copies = pa.Table.from_pylist([*full(), left, idle], schema=tables.COPIES)
    (found,) = reconstruct(copies, pa.Table.from_pylist(listed, schema=tables.BOOKIES), *given).to_pylist()
    assert (found["outcome"], found["last_entry"]) == ("guarded", 19)


def _list_bookies(folders: Mapping[str, bool], name: str = "d:3181") -> pa.Table:
    """Return BOOKIES: all seen completely but one, of whose folders some were."""
    rows = simulator.bookies(NAMES).to_pylist()
    seen = [{"path": role, "role": role, "complete": whole, "bytes": 0, "unread": 0} for role, whole in folders.items()]
    half = {"complete": False, "dirs": seen}
    return pa.Table.from_pylist([one | half if one["bookie"] == name else one for one in rows], schema=tables.BOOKIES)


UNREAD: Final[Mapping[str, bool]] = {"ledger": True, "index": False, "journal": True}


def test_what_only_logs_without_their_index_have_is_guarded() -> None:
    """Nobody serves it until the index is rebuilt: its end is that of the logs, so that no reader finds it empty."""
    copies = pa.Table.from_pylist([row("d:3181", range(20), source="log")], schema=tables.COPIES)
    harm = tables.DAMAGE.empty_table()
    (found,) = reconstruct(copies, _list_bookies(UNREAD), harm, KNOWN, SECRET).to_pylist()
    assert (found["outcome"], found["reason"], found["last_entry"]) == ("guarded", Refusal.LOG_ONLY_COPIES, 19)
    assert found["holes"] == [{"first": 0, "last": 0, "size": 20, "period": 0}]
    assert {name for segment in found["segments"] for name in segment["members"]} == {"d:3181"}
    lost = InferOptions(passwords=SECRET.passwords, lost_bookies=("d:3181",))
    (rest,) = reconstruct(copies, _list_bookies(UNREAD), harm, KNOWN, lost).to_pylist()
    assert (rest["outcome"], rest["last_entry"], rest["holes"]) == ("restored", 19, found["holes"])


@pytest.mark.parametrize(
    ("lac", "reason"), [(29, Refusal.SOURCE_INCOMPLETE), (30, Refusal.LAC_BEYOND_END)], ids=["an entry", "a LAC"]
)
def test_what_logs_show_above_the_end_is_not_hidden(lac: int, reason: Refusal) -> None:
    """Stripes that others hold whole may go on where the index was not seen: its entries above are kept."""
    shown = [*striped(30), row("d:3181", [31], source="log", headers=[header(31, lac=lac)])]
    copies = pa.Table.from_pylist(shown, schema=tables.COPIES)
    given = (_list_bookies(UNREAD), tables.DAMAGE.empty_table(), KNOWN, SECRET)
    (found,) = reconstruct(copies, *given).to_pylist()
    assert (found["outcome"], found["reason"], found["last_entry"]) == ("guarded", reason, 29)
    below = copies.filter(pc.not_equal(copies["source"], "log"))
    assert reconstruct(below, *given)["outcome"].to_pylist() == ["restored"]


@pytest.mark.parametrize(
    ("rows", "logged", "outcome"),
    [
        # Stripes are seen, or a copy of them is: all of the write set have each entry up to the end.
        (striped(30), [5], "restored"),
        (striped(30), [29], "restored"),
        (striped(30), [30], "guarded"),
        (
            [*striped(30)[:2], row("e:3181", range(1, 30), headers=[header(1, lac=29), header(29, lac=29)])],
            [29],
            "restored",
        ),
        # Of full copies it is open how many there were.
        (full(3, 30), [5], "guarded"),
        (full(3, 30), [], "restored"),
    ],
)
def test_logs_whose_index_was_not_seen_may_be_of_a_member_only_where_stripes_are_not(
    rows: list[Row], logged: list[int], outcome: str
) -> None:
    """Up to the end that others show; above it they are of one that went on."""
    logs = [row("d:3181", logged, source="log", headers=[header(logged[0], lac=-1)])] if logged else []
    copies = pa.Table.from_pylist([*rows, *logs], schema=tables.COPIES)
    bookies = _list_bookies(UNREAD) if logged else simulator.bookies(NAMES)
    (found,) = reconstruct(copies, bookies, tables.DAMAGE.empty_table(), KNOWN, SECRET).to_pylist()
    assert (found["outcome"], found["last_entry"]) == (outcome, 29)


@pytest.mark.parametrize(
    "folders", [{"ledger": False, "index": True, "journal": True}, {}], ids=["index seen", "not known"]
)
def test_what_only_logs_have_is_held_where_the_index_was_seen(folders: Mapping[str, bool]) -> None:
    """An index that lacks the ledger shows a deletion, whatever else of the bookie was not seen."""
    copies = pa.Table.from_pylist([row("d:3181", range(20), source="log")], schema=tables.COPIES)
    outcome = "held" if folders else "guarded"
    given = (tables.DAMAGE.empty_table(), KNOWN, SECRET)
    assert reconstruct(copies, _list_bookies(folders), *given)["outcome"].to_pylist() == [outcome]
    both = pa.Table.from_pylist(
        [row("d:3181", range(20), source="log"), row("a:3181", [1], source="log")], schema=tables.COPIES
    )
    (found,) = reconstruct(both, _list_bookies(UNREAD), *given).to_pylist()
    assert (found["outcome"], found["reason"]) == ("held", Refusal.LOGS_OR_JOURNALS_ONLY)


def test_a_ledger_that_only_logs_have_can_be_read_where_somebody_wants_it() -> None:
    """Held, for an index that was seen lacks it; accepted, copies in logs are its reading, all entries holes."""
    left = [row("d:3181", range(20), source="log"), row("a:3181", range(5), source="log")]
    held = recover(left)
    accepted = recover(left, options=replace(SECRET, is_doubt_accepted=True))
    assert (held["outcome"], held["reason"]) == ("held", Refusal.LOGS_OR_JOURNALS_ONLY)
    assert (accepted["outcome"], accepted["last_entry"]) == ("guarded", 19)
    assert accepted["holes"] == [{"first": 0, "last": 0, "size": 20, "period": 0}]
    assert {name for segment in accepted["segments"] for name in segment["members"]} >= {"a:3181", "d:3181"}
    # What somebody serves beside it is the ledger, as before.
    served = recover([*left, *full(entries=3)], options=replace(SECRET, is_doubt_accepted=True))
    assert served["last_entry"] == 2


def test_an_inventory_that_contradicts_itself_can_be_read_where_somebody_wants_it() -> None:
    """What its possible groups have is read; a header of an entry above all that are listed is no entry."""
    odd = _changed(full(), headers=[header(25)])
    assert recover(odd)["reason"] == Refusal.CONTRADICTION
    accepted = recover(odd, options=replace(SECRET, is_doubt_accepted=True))
    assert (accepted["outcome"], accepted["reading"], accepted["last_entry"]) == ("guarded", "universal", 19)


def test_a_snapshots_record_is_taken_for_what_only_logs_without_their_index_have() -> None:
    """Its content is not in doubt, so the record of a complete snapshot is the last word."""
    members = ("d:3181", *NAMES[:2])
    record = LedgerMetadata(
        3, 3, 3, 2, LedgerState.CLOSED, 19, 200, (Segment(0, members),), Digest.CRC32C, simulator.PASSWORD
    )  # fmt: skip
    copies = pa.Table.from_pylist([row("d:3181", range(20), source="log")], schema=tables.COPIES)
    given = (_list_bookies(UNREAD), tables.DAMAGE.empty_table(), KNOWN, SECRET, catalog({LedgerId(0, 7): record}))
    (found,) = reconstruct(copies, *given).to_pylist()
    assert (found["outcome"], found["raw"]) == ("restored", ledger_metadata.encode(record))


@pytest.mark.parametrize(
    ("refusal", "path", "length", "crossed", "wanted"),
    [
        # What is restored, and what is read up to an end of its own, has the length that was found for it.
        (None, CLEAN, 60, False, 60),
        (None, CLEAN, 60, True, 60),
        (None, CLEAN, -1, False, -1),
        (Refusal.RAGGED_TAIL, CLEAN, 60, False, 60),
        (Refusal.RAGGED_TAIL, CLEAN, 0, False, 0),
        # Where none was, or ids were sent out of order, the longest that a header has serves readers.
        (Refusal.NO_LAST_HEADER, CLEAN, -1, False, 100),
        (Refusal.TWO_HISTORIES, CLEAN, 60, True, 100),
        (Refusal.FRAGMENTED, UNDECIDED, 60, False, 90),
        (Refusal.FRAGMENTED, UNDECIDED, 60, True, 100),
        (Refusal.TWO_KEYS, CLEAN, 60, True, 60),
    ],
)
def test_which_length_a_reading_has(
    refusal: Refusal | None, path: int, length: int, wanted: int, *, crossed: bool
) -> None:
    """Of a universal one it is that at the last entry."""
    known = read([{"a": [*range(9)], "b": [*range(9)]}], a=[header(4, length=100), header(8)], b=[header(8)])
    known = replace(known, crossed=np.array([crossed]))
    explained = explained_of(known, [PriorShape(2, 2, 1.0, ShapeSource.CLUSTER)], path=path, end=5, length=length)
    code = np.array([0 if refusal is None else CODES[refusal]])
    found = find_readings(known, explained, code, np.zeros(len(known.bookies), np.bool_))
    assert found.explained.length.tolist() == [wanted]
    is_guarded = refusal not in (None, Refusal.TWO_KEYS)
    assert (bool(found.guarded[0]), bool(found.universal[0])) == (is_guarded, path == UNDECIDED)


def test_who_only_knows_a_ledger_holds_none_of_it() -> None:
    """Beside bookies with entries it is not named; alone, and in limbo, there is no bookie to read from."""
    held = {"a:3181": [0, 1, 5, 9, 20], "b:3181": [2, 3, 5, 11], "c:3181": [1, 4, 20]}
    rows = [row(bookie, own, limbo=True) for bookie, own in held.items()]
    found = recover([*rows, row("d:3181", [])])
    assert (found["reading"], found["segments"][0]["members"]) == ("universal", ["a:3181", "c:3181", "b:3181"])
    alone = recover([row("a:3181", [], limbo=True)])
    assert (alone["outcome"], alone["reason"], alone["segments"]) == ("held", Refusal.LIMBO, None)
    empty = recover([row("a:3181", [])])
    assert (empty["outcome"], empty["segments"][0]["members"]) == ("guarded", ["a:3181"])
