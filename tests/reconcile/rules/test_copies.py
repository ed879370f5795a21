"""What is not seen is not called lost: each way in which a bookie's silence proves nothing."""

import tracemalloc
from collections.abc import Collection
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from reconcile.rules.segments import copies as rule
from reconcile.rules.segments.copies import CopyFaults, Sight, UndecidedReason, find_faults
from reconcile.rules.segments.faults import MOST_GROUPS, Fault
from recovery.model import tables
from recovery.model.positions import FAR
from tests.reconcile.rules.test_copies_properties import NOTHING_HIDDEN, Ledger, make_copies, make_stored

LACKS = Ledger(2, 2, 9, [(0, ["bk0", "bk1"])], {"bk0": set(range(10))})
CHANGED = datetime(2026, 1, 1, tzinfo=UTC)
CHANGED_TXN = 100
CHANGED_US = int(CHANGED.timestamp() * 1_000_000)


def hidden(bookie: str, ledger: int) -> pa.Table:
    """What a bookie may have of a ledger, and was not seen."""
    return pa.table({"scope": pa.array([0]), "ledger": pa.array([ledger]), "bookie": pa.array([bookie])})


def judge(
    sight: Sight, copies: pa.Table | None = None, *, txn: int | None = CHANGED_TXN, time: datetime | None = CHANGED
) -> CopyFaults:
    """Of a ledger whose second bookie shows nothing; its record changed at `CHANGED`, or at another time."""
    stored = make_stored([LACKS])
    where = stored.schema.get_field_index("changed_at")
    stored = stored.set_column(where, stored.schema.field(where), pa.array([time], pa.timestamp("us", "UTC")))
    where = stored.schema.get_field_index("changed_txn")
    stored = stored.set_column(where, stored.schema.field(where), pa.array([txn], pa.int64()))
    return find_faults(stored, make_copies([LACKS]) if copies is None else copies, sight)


@pytest.mark.parametrize(
    ("sight", "sure"),
    [
        (Sight({"bk0": None, "bk1": None}, frozenset(), NOTHING_HIDDEN), True),
        (Sight({"bk0": None}, frozenset(), NOTHING_HIDDEN), False),
        (Sight({"bk0": None, "bk1": None}, frozenset(["bk1"]), NOTHING_HIDDEN), False),
        (Sight({"bk0": None, "bk1": None}, frozenset(), hidden("bk1", 0)), False),
        (Sight({"bk0": None, "bk1": None}, frozenset(), hidden("bk1", 5)), True),
        (Sight({"bk0": None, "bk1": None}, frozenset(), hidden("bk9", 0)), True),
        (Sight({"bk0": None, "bk1": CHANGED_US}, frozenset(), NOTHING_HIDDEN), True),
        (Sight({"bk0": None, "bk1": CHANGED_US - 1}, frozenset(), NOTHING_HIDDEN), False),
        (Sight({"bk0": None, "bk1": CHANGED_US - 1}, frozenset(), NOTHING_HIDDEN, as_of={"bk1": CHANGED_TXN}), True),
        (Sight({"bk0": None, "bk1": CHANGED_US}, frozenset(), NOTHING_HIDDEN, as_of={"bk1": CHANGED_TXN - 1}), False),
    ],
)
def test_a_negative_counts_only_from_whom_was_seen(sight: Sight, sure: bool) -> None:
    """Not looked at, not completely, damage hides this ledger, read before the record changed."""
    faults = judge(sight)
    kinds = faults.faults["fault"].to_pylist()
    assert kinds == ([Fault.BELOW_ACK_QUORUM] if sure else [])
    assert faults.undecided.tolist() == ([] if sure else [0])
    assert (faults.positions, faults.judged) == (20, 20 if sure else 10)


def test_a_ledger_of_another_scope_is_not_lost_over_the_wire() -> None:
    """No bookie was asked for it; of disks, which have it under its scope, nothing else is said than of others."""
    stored = make_stored([LACKS])
    scoped = stored.set_column(stored.schema.get_field_index("scope"), "scope", pa.array([7]))
    for wire, kinds in ((frozenset(["bk0", "bk1"]), []), (frozenset[str](), [Fault.LOST])):
        sight = Sight({"bk0": None, "bk1": None}, frozenset(), NOTHING_HIDDEN, unscoped=wire)
        faults = find_faults(scoped, make_copies([]), sight)
        assert faults.faults["fault"].to_pylist() == kinds
        assert (faults.undecided.tolist(), faults.judged) == (([0], 0) if wire else ([], 20))
        whole = find_faults(stored, make_copies([LACKS]), sight)
        assert whole.faults["fault"].to_pylist() == [Fault.BELOW_ACK_QUORUM]


@pytest.mark.parametrize(
    ("txn", "time", "sight", "doubt"),
    [
        (
            CHANGED_TXN,
            CHANGED,
            Sight({"bk0": None, "bk1": CHANGED_US - 1}, frozenset(), NOTHING_HIDDEN),
            UndecidedReason.CHANGED,
        ),
        (
            CHANGED_TXN,
            None,
            Sight({"bk0": None, "bk1": CHANGED_US}, frozenset(), NOTHING_HIDDEN),
            UndecidedReason.UNDATED,
        ),
        (
            None,
            None,
            Sight({"bk1": 0}, frozenset(), NOTHING_HIDDEN, as_of={"bk1": CHANGED_TXN}),
            UndecidedReason.UNDATED,
        ),
        (CHANGED_TXN, None, Sight({"bk1": 0}, frozenset(), NOTHING_HIDDEN, as_of={"bk1": 1}), UndecidedReason.CHANGED),
        (
            CHANGED_TXN,
            None,
            Sight({"bk1": 0}, frozenset(["bk1"]), NOTHING_HIDDEN, as_of={"bk1": 1}),
            UndecidedReason.NOT_SEEN,
        ),
        (CHANGED_TXN, None, Sight({"bk0": None}, frozenset(), NOTHING_HIDDEN), UndecidedReason.NOT_SEEN),
    ],
)
def test_no_time_is_never_old(txn: int | None, time: datetime | None, sight: Sight, doubt: UndecidedReason) -> None:
    """Of a record that cannot be placed before what is known of a bookie, nothing is said; and why is told."""
    faults = judge(sight, txn=txn, time=time)
    assert faults.faults.num_rows == 0
    assert (faults.undecided.tolist(), faults.doubts.tolist()) == ([0], [doubt])


def test_a_list_that_changed_while_it_was_read_proves_nothing() -> None:
    """Such a row is not complete."""
    half = Ledger(2, 2, 9, LACKS.segments, {"bk0": set(range(10)), "bk1": set(range(5))})
    copies = make_copies([half])
    complete = pa.array([True, False])
    copies = copies.set_column(tables.COPIES.get_field_index("complete"), tables.COPIES.field("complete"), complete)
    sight = Sight({"bk0": None, "bk1": None}, frozenset(), NOTHING_HIDDEN)
    faults = judge(sight, copies)
    assert (faults.faults.num_rows, faults.undecided.tolist()) == (0, [0])


@pytest.mark.parametrize(("stopped", "lost"), [(frozenset[str](), False), (frozenset(["bk1"]), True)])
def test_a_journal_counts_where_it_is_read_again(stopped: frozenset[str], lost: bool) -> None:
    """After a crash a bookie reads its journals; after a clean stop it does not, and what only they have is gone."""
    whole = Ledger(2, 2, 9, LACKS.segments, {"bk0": set(range(10)), "bk1": set(range(10))})
    copies = make_copies([whole])
    sources = pa.array(["index", "journal"])
    copies = copies.set_column(tables.COPIES.get_field_index("source"), tables.COPIES.field("source"), sources)
    faults = judge(Sight({"bk0": None, "bk1": None}, frozenset(), NOTHING_HIDDEN, stopped), copies)
    assert bool(faults.faults.num_rows) == lost


def test_a_record_that_ends_beyond_all_ledgers_stops_nothing() -> None:
    """A last entry near 2^63, or more runs than are laid out: undecided, at once."""
    sight = Sight({"bk0": None, "bk1": None}, frozenset(), NOTHING_HIDDEN)
    for last in (FAR, (1 << 63) - 1):
        far = make_stored([Ledger(2, 2, last, LACKS.segments, {}), LACKS])
        faults = find_faults(far, make_copies([Ledger(2, 2, 9, LACKS.segments, {}), LACKS]), sight)
        assert (faults.faults["row"].to_pylist(), faults.undecided.tolist()) == ([1], [0])
    many = make_stored([Ledger(2, 2, 1 << 40, [(0, ["bk0", "bk1", "bk2"])], {})])
    faults = find_faults(many, make_copies([]), Sight({"bk0": None, "bk1": None}, frozenset(), NOTHING_HIDDEN))
    assert (faults.faults.num_rows, faults.undecided.tolist()) == (0, [0])
    everybody = Sight({"bk0": None, "bk1": None, "bk2": None}, frozenset(), NOTHING_HIDDEN)
    faults = find_faults(many, make_copies([]), everybody)
    assert (faults.undecided.tolist(), faults.positions > 1 << 40, faults.judged) == ([0], True, 0)
    assert rule._TOO_MANY < 1 << 40


def test_what_is_shown_counts_as_judged_whoever_it_is_shown_by() -> None:
    """A bookie that was not seen completely, and has all that it should: nothing of the ledger is undecided."""
    whole = Ledger(2, 2, 9, LACKS.segments, {"bk0": set(range(10)), "bk1": set(range(10))})
    sight = Sight({"bk0": None, "bk1": None}, frozenset(["bk1"]), NOTHING_HIDDEN)
    faults = judge(sight, make_copies([whole]))
    assert (faults.faults.num_rows, faults.undecided.tolist(), faults.judged) == (0, [], 20)


@pytest.mark.parametrize("last", [0, 1, 2, 3, 7, 8, 9])
@pytest.mark.parametrize("change", [None, 1, 4])
@pytest.mark.parametrize("write", [1, 2])
def test_whole_stripes_are_judged_whoever_shows_them(write: int, change: int | None, last: int) -> None:
    """Each position has its own entries, in steps or in one piece: none of them is in doubt."""
    segments = [(0, ["bk0", "bk1", "bk2"])]
    if change is not None and change <= last:
        segments.append((change, ["bk3", "bk4", "bk5"]))
    held: dict[str, set[int]] = {}
    for entry in range(last + 1):
        members = next(names for first, names in reversed(segments) if first <= entry)
        for place in range(write):
            held.setdefault(members[(entry + place) % 3], set()).add(entry)
    ledger = Ledger(write, write, last, segments, held)
    faults = find_faults(make_stored([ledger]), make_copies([ledger]), Sight({}, frozenset(), NOTHING_HIDDEN))
    copies = write * (last + 1)
    assert (faults.faults.num_rows, faults.undecided.tolist()) == (0, [])
    assert (faults.positions, faults.judged) == (copies, copies)


def test_ledgers_that_nobody_was_asked_about_cost_nothing() -> None:
    """Where bookies are dark and nothing else is odd, no entry is laid out, so such a comparison is small."""
    stored = make_stored([Ledger(2, 2, 1 << 20, [(0, ["bk0", "bk1", "bk2"])], {}) for _ in range(4)])
    copies, sight = make_copies([]), Sight({"bk2": None}, frozenset(["bk2"]), NOTHING_HIDDEN)
    tracemalloc.start()
    try:
        faults = find_faults(stored, copies, sight)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (faults.faults.num_rows, faults.undecided.tolist(), faults.judged) == (0, [0, 1, 2, 3], 0)
    assert peak < 1 << 20


def test_a_ledger_of_one_entry_is_judged_and_a_record_that_nobody_can_read_is_not() -> None:
    """Nor is an empty one, nor one that is written to."""
    one, empty = Ledger(2, 2, 0, LACKS.segments, {}), Ledger(2, 2, -1, LACKS.segments, {})
    stored = make_stored([one, empty, one, one]).to_pylist()
    stored[3].update(state="OPEN", last_entry=None)
    stored[2].update(dict.fromkeys(("state", "last_entry", "segments", "write_quorum", "ack_quorum")))
    table = pa.Table.from_pylist(stored, schema=tables.CATALOG_LEDGERS)
    faults = find_faults(table, make_copies([]), Sight({"bk0": None, "bk1": None}, frozenset(), NOTHING_HIDDEN))
    assert faults.faults.select(["row", "fault", "entries"]).to_pylist() == [
        {"row": 0, "fault": int(Fault.LOST), "entries": 1}
    ]
    assert (faults.positions, faults.undecided.tolist()) == (2, [])
    none = find_faults(table.slice(1), make_copies([]), Sight({"bk0": None}, frozenset(), NOTHING_HIDDEN))
    assert (none.faults.num_rows, none.positions, none.judged) == (0, 0, 0)


def test_positions_are_those_of_every_segment() -> None:
    """Each entry once on each bookie of its write set, whichever segment it is in."""
    two = Ledger(2, 2, 9, [(0, ["bk0", "bk1", "bk2"]), (4, ["bk0", "bk1", "bk3"]), (12, ["bk0", "bk1", "bk4"])], {})
    sight = Sight({"bk0": None, "bk1": None}, frozenset(), NOTHING_HIDDEN)
    faults = find_faults(make_stored([two]), make_copies([]), sight)
    # Ten entries, two copies each; bk2 and bk3 were not seen, on which 1, 2, 4, 5, 7 and 8 stand.
    assert (faults.positions, faults.judged) == (20, 14)


def find_kinds(ledger: Ledger, *seen: str) -> dict[Fault, int]:
    """The faults of a ledger whose bookies were looked at, or some of them, and how many entries have each."""
    names = seen or [name for _, members in ledger.segments for name in members]
    sight = Sight(dict.fromkeys(names), frozenset(), NOTHING_HIDDEN)
    faults = find_faults(make_stored([ledger]), make_copies([ledger]), sight).faults.to_pylist()
    return {Fault(row["fault"]): row["entries"] for row in faults}


@pytest.mark.parametrize("write", [1, 2])
@pytest.mark.parametrize("shift", [1, 2])
@pytest.mark.parametrize("wrong", [(0,), (1,), (2,), (0, 1, 2)])
def test_as_many_entries_of_another_position_are_not_its_own(wrong: Collection[int], shift: int, write: int) -> None:
    """Of six entries each position has as many: counting alone would show nothing."""
    members = ["bk0", "bk1", "bk2"]
    due = [{e for e in range(6) if (place - e) % 3 < write} for place in range(3)]
    held = [due[(place + shift) % 3] if place in wrong else due[place] for place in range(3)]
    kinds = find_kinds(Ledger(write, 1, 5, [(0, members)], dict(zip(members, held, strict=True))))
    kinds.pop(Fault.OVER_REPLICATED, None)
    lacking = set().union(*(due[place] - held[place] for place in wrong))
    assert sum(kinds.values()) == len(lacking) > 0


def test_as_many_entries_in_another_step_are_not_its_own() -> None:
    """Each second entry of a bookie that has each third one: as many of either."""
    held = {"bk0": {0, 2, 4, 6}, "bk1": {1, 4, 7, 10}, "bk2": {2, 5, 8, 11}}
    assert find_kinds(Ledger(1, 1, 11, [(0, ["bk0", "bk1", "bk2"])], held)) == {Fault.LOST: 2, Fault.OVER_REPLICATED: 2}


@pytest.mark.parametrize(
    ("last", "due", "held"), [(5, {0, 3}, {1, 3}), (5, {0, 3}, {0, 2}), (11, {0, 4, 8}, {0, 2, 4})]
)
def test_a_step_whose_ends_are_right_is_not_right_between(last: int, due: set[int], held: set[int]) -> None:
    """As many entries as are due, one end of them or both where it belongs."""
    width = 4 if last == 11 else 3
    copies = {f"bk{n}": set(range(n, last + 1, width)) for n in range(1, width)} | {"bk0": held}
    kinds = find_kinds(Ledger(1, 1, last, [(0, [f"bk{n}" for n in range(width)])], copies))
    assert kinds == {Fault.LOST: len(due - held), Fault.OVER_REPLICATED: len(held - due)}


def test_an_entry_behind_the_end_is_not_one_before_it() -> None:
    """Ten entries of ten; the first is not among them."""
    held = {"bk0": set(range(10)), "bk1": set(range(1, 11))}
    assert find_kinds(Ledger(2, 1, 9, [(0, ["bk0", "bk1"])], held)) == {Fault.BELOW_WRITE_QUORUM: 1}


def test_who_was_not_seen_counts_as_one_that_has_it() -> None:
    """One copy, one that may be there, one that is gone: two of two that must be."""
    ledger = Ledger(3, 2, 9, [(0, ["bk0", "bk1", "bk2"])], {"bk0": set(range(10))})
    assert find_kinds(ledger, "bk0", "bk2") == {Fault.BELOW_WRITE_QUORUM: 10}
    assert find_kinds(ledger) == {Fault.BELOW_ACK_QUORUM: 10}
    elsewhere = Ledger(3, 2, 9, ledger.segments, {"bk0": set(range(10)), "bk9": set(range(10))})
    assert find_kinds(elsewhere, "bk0", "bk2", "bk9") == {Fault.MISPLACED: 10}


@pytest.mark.parametrize("runs", [1, 2, 3, 4])
def test_faults_are_the_same_however_few_runs_are_laid_out_together(runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a ledger of three runs: two positions, and one group that a bookie has."""
    monkeypatch.setattr(rule, "_RUNS", runs)
    assert find_kinds(LACKS) == {Fault.BELOW_ACK_QUORUM: 10}


def test_so_many_places_are_listed_of_each_ledger() -> None:
    """Of two ledgers that lack entries ever further apart, which are in no step."""
    last = 40_000
    gaps = {n * (n + 1) // 2 for n in range(280)}
    torn = Ledger(2, 1, last, [(0, ["bk0", "bk1"])], {"bk0": set(range(last + 1)), "bk1": set(range(last + 1)) - gaps})
    sight = Sight({"bk0": None, "bk1": None}, frozenset(), NOTHING_HIDDEN)
    faults = find_faults(make_stored([torn, torn]), make_copies([torn, torn]), sight).faults.to_pylist()
    assert [(row["entries"], len(row["groups"])) for row in faults] == [(len(gaps), MOST_GROUPS)] * 2
