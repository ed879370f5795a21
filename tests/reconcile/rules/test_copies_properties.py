"""Copies against records, for any small cluster: what entry by entry in plain Python says, and nothing else."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.rules.segments import copies as rule
from reconcile.rules.segments.copies import Sight, UndecidedReason, find_faults
from reconcile.rules.segments.faults import Fault
from reconcile.rules.segments.sampled_copies import list_held
from recovery.model import tables
from recovery.model.groups import group_entries, to_arrow
from recovery.model.ids import buckets
from tests.support.inventories import fill_row

pytestmark = pytest.mark.long

AT = datetime(2026, 1, 2, tzinfo=UTC)
BOOKIES = [f"bk{n}" for n in range(6)]
NOTHING_HIDDEN = pa.table(
    {"scope": pa.array([], pa.int64()), "ledger": pa.array([], pa.int64()), "bookie": pa.array([], pa.string())}
)


@dataclass(frozen=True)
class Ledger:
    """A closed ledger, and what bookies hold of it."""

    write: int
    ack: int
    last: int
    segments: list[tuple[int, list[str]]]
    held: Mapping[str, set[int]]


def make_stored(ledgers: list[Ledger]) -> pa.Table:
    """CATALOG_LEDGERS: the ledger's number is its id."""
    rows: list[dict[str, Any]] = []
    for number, ledger in enumerate(ledgers):
        members = ledger.segments[0][1]
        given = {
            "ledger": number, "state": "CLOSED", "last_entry": ledger.last, "ensemble_size": len(members),
            "bucket": int(buckets(np.zeros(1, np.int64), np.array([number]))[0]),
            "write_quorum": ledger.write, "ack_quorum": ledger.ack, "raw": b"",
            "segments": [{"first": first, "members": names} for first, names in ledger.segments],
        }  # fmt: skip
        rows.append(fill_row(tables.CATALOG_LEDGERS, given))
    return pa.Table.from_pylist(rows, schema=tables.CATALOG_LEDGERS)


def make_copies(ledgers: list[Ledger]) -> pa.Table:
    """COPIES, grouped as inventories have them."""
    rows: list[dict[str, Any]] = []
    entries: list[int] = []
    keys: list[int] = []
    for number, ledger in enumerate(ledgers):
        for bookie, held in ledger.held.items():
            entries += sorted(held)
            keys += [len(rows)] * len(held)
            given = {"ledger": number, "bookie": bookie, "source": "index", "complete": True, "key_kind": "absent"}
            rows.append(fill_row(tables.COPIES, given))
    table = pa.Table.from_pylist(rows, schema=tables.COPIES)
    groups = to_arrow(group_entries(np.array(entries, np.int64), np.array(keys, np.int64)), len(rows))
    return table.set_column(tables.COPIES.get_field_index("groups"), tables.COPIES.field("groups"), groups)


def judge_entry(ledger: Ledger, entry: int, dark: set[str]) -> tuple[Fault | None, int, bool]:
    """The fault of one entry, its right copies, and whether something dark decides."""
    members = [names for first, names in ledger.segments if first <= entry][-1]
    write_set = {members[(entry + i) % len(members)] for i in range(ledger.write)}
    holders = {bookie for bookie, held in ledger.held.items() if entry in held}
    right, strays = write_set & holders, holders - write_set
    gone, unseen = (write_set - holders) - dark, (write_set - holders) & dark
    if not gone:
        return (Fault.OVER_REPLICATED if strays else None), len(right), bool(unseen)
    if strays:
        fault = Fault.MISPLACED if right or unseen else Fault.MISPLACED_ALL
    elif not right and not unseen:
        fault = Fault.LOST
    elif len(right) + len(unseen) < ledger.ack:
        fault = Fault.BELOW_ACK_QUORUM
    else:
        fault = Fault.BELOW_WRITE_QUORUM
    return fault, len(right), bool(unseen)


def judge_all(ledgers: list[Ledger], dark: set[str]) -> tuple[dict[tuple[int, int], tuple[set[int], int]], set[int]]:
    """Of each ledger and fault its entries and least copies; and the ledgers that are undecided."""
    faults: dict[tuple[int, int], tuple[set[int], int]] = defaultdict(lambda: (set(), 1 << 30))
    undecided = set()
    for number, ledger in enumerate(ledgers):
        for entry in range(ledger.last + 1):
            fault, right, is_open = judge_entry(ledger, entry, dark)
            if fault is not None:
                entries, least = faults[number, int(fault)]
                faults[number, int(fault)] = (entries | {entry}, min(least, right))
            if is_open:
                undecided.add(number)
    return dict(faults), undecided


@st.composite
def ledgers_of_any_kind(draw: st.DrawFn) -> Ledger:
    """Segments, and holders that mostly have what belongs on them."""
    size = draw(st.integers(1, 5))
    write = draw(st.integers(1, size))
    last = draw(st.integers(-1, 30))
    starts = sorted({0, *draw(st.lists(st.integers(1, 35), max_size=3))})
    segments = [(start, draw(st.permutations(BOOKIES))[:size]) for start in starts]
    ledger = Ledger(write, draw(st.integers(1, write)), last, segments, {})
    held: dict[str, set[int]] = {}
    for entry in range(last + 1):
        members = [names for first, names in segments if first <= entry][-1]
        for i in range(write):
            held.setdefault(members[(entry + i) % size], set()).add(entry)
    for _ in range(draw(st.integers(0, 4))):
        bookie = draw(st.sampled_from(BOOKIES))
        low = draw(st.integers(0, 32))
        some = set(range(low, draw(st.integers(low, 36)), draw(st.sampled_from([1, 1, size]))))
        mine = held.setdefault(bookie, set())
        held[bookie] = mine - some if draw(st.booleans()) else mine | some
    return Ledger(write, ledger.ack, last, segments, held)


def require_equal(ledgers: list[Ledger], dark: set[str]) -> None:
    """See that the rule says what the judge says."""
    sight = Sight(dict.fromkeys(set(BOOKIES) - dark), frozenset(), NOTHING_HIDDEN)
    found = find_faults(make_stored(ledgers), make_copies(ledgers), sight)
    wanted, undecided = judge_all(ledgers, dark)
    told = {(row["row"], row["fault"]): row for row in found.faults.to_pylist()}
    assert {key: (row["entries"], row["least"]) for key, row in told.items()} == {
        key: (len(entries), least) for key, (entries, least) in wanted.items()
    }
    for key, row in told.items():
        listed = {
            entry
            for group in row["groups"]
            for start in range(group["first"], group["last"] + 1, group["period"] or 1)
            for entry in range(start, start + group["size"])
        }
        assert listed == wanted[key][0]
    assert set(found.undecided.tolist()) == undecided


CRITICAL = [int(fault) for fault in (Fault.LOST, Fault.BELOW_ACK_QUORUM, Fault.MISPLACED_ALL)]


def date_records(ledgers: list[Ledger], txn: int) -> pa.Table:
    """CATALOG_LEDGERS that changed last in a transaction."""
    stored = make_stored(ledgers)
    where = stored.schema.get_field_index("changed_txn")
    return stored.set_column(where, stored.schema.field(where), pa.array([txn] * len(ledgers), pa.int64()))


def make_missing(stored: pa.Table, rows: pa.Table) -> pa.Table:
    """MISSING, as a run keeps what its looks saw."""
    keys = stored.select([*tables.KEY_COLUMNS, "changed_txn"]).take(rows["row"]).to_pylist()
    named = rows.select(["bookie", "entries", "groups"]).to_pylist()
    pairs = zip(keys, named, strict=True)
    return pa.Table.from_pylist(
        [{**key, **row, "record_txn": key["changed_txn"], "seen": AT} for key, row in pairs], schema=tables.MISSING
    )


def list_lacking(rows: pa.Table) -> dict[tuple[int, str], set[int]]:
    """Entries that each bookie lacks of each ledger."""
    lacking: dict[tuple[int, str], set[int]] = defaultdict(set)
    for row in rows.to_pylist():
        for group in row["groups"]:
            for start in range(group["first"], group["last"] + 1, group["period"] or 1):
                lacking[row["row"], row["bookie"]] |= set(range(start, start + group["size"]))
    return dict(lacking)


@given(
    st.lists(ledgers_of_any_kind(), min_size=1, max_size=4),
    st.sets(st.sampled_from(BOOKIES)),
    st.sets(st.sampled_from(BOOKIES)),
)
def test_who_sees_more_judges_no_less(ledgers: list[Ledger], given_bookies: set[str], listed: set[str]) -> None:
    """Lists beside inventories: no ledger becomes undecided by them, and of none are fewer copies judged."""
    seen = {}
    for names in (given_bookies, given_bookies | listed):
        held = [replace(one, held={name: of for name, of in one.held.items() if name in names}) for one in ledgers]
        sight = Sight(dict.fromkeys(names), frozenset(), NOTHING_HIDDEN)
        seen[frozenset(names)] = find_faults(make_stored(ledgers), make_copies(held), sight)
    alone, both = seen[frozenset(given_bookies)], seen[frozenset(given_bookies | listed)]
    assert set(both.undecided.tolist()) <= set(alone.undecided.tolist())
    judged = [
        dict(zip(*(part.coverage[name].to_pylist() for name in ("row", "judged")), strict=True))
        for part in (alone, both)
    ]
    assert all(count <= judged[1][row] for row, count in judged[0].items())
    assert (alone.positions, sum(judged[1].values())) == (both.positions, both.judged)


@given(st.lists(ledgers_of_any_kind(), min_size=1, max_size=4), st.sets(st.sampled_from(BOOKIES), max_size=3))
def test_a_second_failure_softens_nothing(ledgers: list[Ledger], silent: set[str]) -> None:
    """What bookies lack is exact; those that fall silent later still lack it, and what was critical stays critical."""
    everyone = Sight(dict.fromkeys(BOOKIES), frozenset(), NOTHING_HIDDEN)
    stored, copies = date_records(ledgers, 7), make_copies(ledgers)
    before = find_faults(stored, copies, everyone)
    wanted: dict[tuple[int, str], set[int]] = defaultdict(set)
    for number, ledger in enumerate(ledgers):
        for entry in range(ledger.last + 1):
            members = [names for first, names in ledger.segments if first <= entry][-1]
            for place in range(ledger.write):
                bookie = members[(entry + place) % len(members)]
                if entry not in ledger.held.get(bookie, set()):
                    wanted[number, bookie].add(entry)
    assert list_lacking(before.missing) == wanted
    missing = make_missing(stored, before.missing)
    left = Sight(dict.fromkeys(set(BOOKIES) - silent), frozenset(), NOTHING_HIDDEN)
    shown = make_copies(
        [replace(one, held={name: held for name, held in one.held.items() if name not in silent}) for one in ledgers]
    )
    after = find_faults(stored, shown, left, missing)
    lacking = list_lacking(after.missing)
    assert all(lacking[key] == entries for key, entries in wanted.items())
    critical = [{row["row"] for row in of.faults.to_pylist() if row["fault"] in CRITICAL} for of in (before, after)]
    assert critical[0] <= critical[1]
    # A record that changed since says nothing of before.
    again = find_faults(date_records(ledgers, 8), shown, left, missing)
    assert again.faults.equals(find_faults(stored, shown, left).faults)


@given(st.lists(ledgers_of_any_kind(), max_size=4), st.sets(st.sampled_from(BOOKIES), max_size=2))
def test_copies_are_judged_as_entry_by_entry(ledgers: list[Ledger], dark: set[str]) -> None:
    """Faults, their entries, the copies of the worst one, and what stays undecided."""
    require_equal(ledgers, dark)


@given(st.lists(ledgers_of_any_kind(), max_size=3), st.sets(st.sampled_from(BOOKIES), max_size=2), st.integers(3, 40))
def test_ledgers_laid_out_in_parts_say_the_same(ledgers: list[Ledger], dark: set[str], runs: int) -> None:
    """Small bounds cut ledgers into windows of entries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rule, "_RUNS", runs)
        require_equal(ledgers, dark)


@st.composite
def samples_of_any_kind(draw: st.DrawFn) -> tuple[Ledger, dict[str, set[int]]]:
    """A ledger, and for some bookies the entries that they were asked for: of those that belong on them."""
    ledger = draw(ledgers_of_any_kind())
    asked = {}
    for bookie in draw(st.sets(st.sampled_from(BOOKIES), max_size=4)):
        due = [entry for entry in range(ledger.last + 1) if bookie in list_write_set(ledger, entry)]
        asked[bookie] = set(due) if draw(st.booleans()) else {entry for entry in due if draw(st.booleans())}
    return ledger, asked


def list_write_set(ledger: Ledger, entry: int) -> set[str]:
    """The bookies on which an entry belongs."""
    members = [names for first, names in ledger.segments if first <= entry][-1]
    return {members[(entry + i) % len(members)] for i in range(ledger.write)}


@given(samples_of_any_kind())
def test_entries_that_were_asked_for_are_judged_one_by_one(sampled: tuple[Ledger, dict[str, set[int]]]) -> None:
    """What a bookie was not asked for may be there; what it lacks is missing; coverage counts what it said."""
    ledger, asked = sampled
    seen = set(BOOKIES) - asked.keys()
    held = {name: mine & asked[name] if name in asked else mine for name, mine in ledger.held.items()}
    rows = []
    for bookie, entries in asked.items():
        lacks = entries - ledger.held.get(bookie, set())
        parts = [np.array(sorted(some), np.int64) for some in (entries - lacks, lacks)]
        groups = [to_arrow(group_entries(part), 1)[0].as_py() for part in parts]
        rows.append(
            {"ledger": 0, "scope": 0, "bookie": bookie, "held": groups[0], "entries": len(entries - lacks)}
            | {"lacks": groups[1], "lacking": len(lacks), "failed": 0, "no_ledger": False, "bucket": 0}
        )
    samples = pa.Table.from_pylist(rows, schema=tables.SAMPLES)
    by_list = {name: held[name] for name in seen & held.keys()}
    listed = make_copies([replace(ledger, held=by_list)])
    sight = Sight(dict.fromkeys(seen), frozenset(), NOTHING_HIDDEN, samples=samples)
    found = find_faults(make_stored([ledger]), pa.concat_tables([listed, list_held(samples)]), sight)
    wanted: dict[int, set[int]] = defaultdict(set)
    is_open, positions, judged = False, 0, 0
    for entry in range(ledger.last + 1):
        dark = {name for name in asked if entry not in asked[name] and name in list_write_set(ledger, entry)}
        fault, _, open_here = judge_entry(replace(ledger, held=held), entry, dark)
        is_open |= open_here
        positions += ledger.write
        judged += ledger.write - len(dark)
        if fault is not None:
            wanted[int(fault)].add(entry)
    assert {row["fault"]: row["entries"] for row in found.faults.to_pylist()} == {
        fault: len(entries) for fault, entries in wanted.items()
    }
    assert (len(found.undecided) > 0) == is_open
    assert set(found.doubts.tolist()) <= {UndecidedReason.SAMPLED}
    assert (found.positions, found.judged) == (positions, judged)
