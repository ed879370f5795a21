"""What the common path promises, on simulated histories and on garbage; a slow model per ledger is the judge."""

import os
import pickle
from collections import Counter
from itertools import pairwise
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recovery.infer.prior import Prior, ShapeCounts, count_shapes
from recovery.infer.reconstruct import InferOptions, reconstruct
from recovery.model import tables
from tests.simulation import simulator
from tests.simulation.simulator import Cluster, Harm, History, Scan

pytestmark = pytest.mark.long

HISTORIES: Final = int(os.environ.get("BKMETA_HISTORIES", "1000"))
"""Histories of the bounded test; give more for a longer look."""

NO_DAMAGE: Final = tables.DAMAGE.empty_table()
PASSWORDS: Final = InferOptions(passwords=(b"", simulator.PASSWORD))
CLEAN: Final = (Harm.NONE,)
SHAPES: Final = tuple((e, w) for e in range(1, 8) for w in range(1, e + 1))

Row = dict[str, Any]


def lives(seed: int, count: int, cluster: Cluster) -> list[History]:
    """Make up ledgers with ids from 0."""
    rng = Random(seed)
    return [simulator.history(rng, number, cluster) for number in range(count)]


def told(histories: list[History]) -> Prior:
    """Return a prior that a snapshot with the true quorums gives."""
    quorums = Counter((past.ensemble, past.write, past.ack) for past in histories)
    return Prior.build(ShapeCounts(), quorums)


def recovered(
    histories: list[History], cluster: Cluster, prior: Prior | None = None, scan: Scan | None = None
) -> list[tuple[History, Row]]:
    """Reconstruct all ledgers; return each history with its row."""
    copies, bookies = simulator.copies(histories, scan, Random(1)), simulator.bookies(cluster.names, scan)
    prior = prior or Prior.build(count_shapes(copies, bookies))
    options = InferOptions(passwords=PASSWORDS.passwords, unscanned_bookies=tuple(scan.unscanned) if scan else 0)
    rows = reconstruct(copies, bookies, NO_DAMAGE, prior, options).to_pylist()
    return [(histories[row["ledger"]], row) for row in rows]


def members_at(row: Row, entry: int) -> list[str]:
    """Return the bookies that a proposal has for an entry."""
    members = next(s["members"] for s in reversed(row["segments"]) if s["first"] <= entry)
    return [members[(entry + i) % row["ensemble_size"]] for i in range(row["write_quorum"])]


def judge(row: Row, held: dict[str, frozenset[int]]) -> None:
    """Check a proposal against what bookies hold, entry by entry.

    What is clean has every copy that it promises. All else is readable: whatever some bookie holds has a holder in its
    write set, and what is missing or too much is counted.
    """
    size, end = row["ensemble_size"], row["last_entry"]
    assert 1 <= row["ack_quorum"] <= row["write_quorum"] <= size
    highest = max(max(own, default=-1) for own in held.values())
    assert end == highest if row["class"] == "clean" else end <= highest
    firsts = [segment["first"] for segment in row["segments"]]
    assert firsts[0] == 0
    assert all(one < other for one, other in pairwise([*firsts, end + 1]))
    for segment in row["segments"]:
        assert segment["first_low"] <= segment["first"]
        assert len(segment["members"]) == len(segment["assumed"]) == size == len(set(segment["members"]))
    named = {
        member
        for segment in row["segments"]
        for member, assumed in zip(segment["members"], segment["assumed"], strict=True)
        if assumed
    }
    shown = set().union(*held.values())
    found = 0
    for entry in range(end + 1):
        holders = [bookie for bookie in members_at(row, entry) if entry in held.get(bookie, ())]
        found += len(holders)
        assert holders or entry not in shown, f"entry {entry} cannot be read"
    copies = sum(entry <= end for own in held.values() for entry in own)
    assert row["missing"] == row["write_quorum"] * (end + 1) - found
    assert row["extra"] == copies - found
    if row["class"] == "clean":
        assert row["missing"] == 0
        assert not any(held.get(member) for member in named)
    assert row["lac_low"] <= end
    assert set(row["holders"]) == {bookie for bookie, own in held.items() if own}


def test_what_is_accepted_is_sound() -> None:
    """Whatever happened: each entry of what is accepted has its W copies, none is cut, a seen E and W are true."""
    accepted = 0
    for seed in range(max(1, HISTORIES // 1000)):
        for returning in (0.0, 0.5):
            cluster = Cluster(returning=returning)
            for past, row in recovered(lives(seed, 500, cluster), cluster, scan=Scan(split=0.2)):
                if row["outcome"] != "restored":
                    assert row["reason"]
                    assert row["outcome"] == "guarded" or row["segments"] is row["last_entry"] is None
                    continue
                accepted += 1
                judge(row, dict(past.held))
                assert row["length"] == sum(past.payloads[: row["last_entry"] + 1])
                assert row["digest"] == "CRC32C"
                assert row["grades"]["password"] == row["grades"]["digest"] == "verified"
                if row["grades"]["ensemble_size"] == "observed":
                    assert (row["ensemble_size"], row["write_quorum"]) == (past.ensemble, past.write)
                if past.harm in (Harm.NONE, Harm.BEHIND):
                    assert row["last_entry"] == past.acked
    assert accepted > HISTORIES // 3


@settings(max_examples=20)
@given(st.integers(0, 1 << 32), st.sampled_from(SHAPES))
def test_an_unharmed_ledger_of_one_segment_is_restored(seed: int, shape: tuple[int, int]) -> None:
    """If its shape is known, it is accepted, in one segment, with each entry's true write set."""
    cluster = Cluster(shapes=[shape], changes=(0,), harms=CLEAN)
    histories = lives(seed, 30, cluster)
    for past, row in recovered(histories, cluster, told(histories)):
        assert row["outcome"] == "restored", row["reason"]
        assert len(row["segments"]) == 1
        assert (row["ensemble_size"], row["write_quorum"]) == shape
        for entry in range(past.acked + 1):
            assert set(members_at(row, entry)) == set(past.write_set(entry))


@settings(max_examples=20)
@given(st.integers(0, 1 << 32), st.sampled_from(SHAPES))
def test_an_unharmed_ledger_with_changes_far_apart_is_restored(seed: int, shape: tuple[int, int]) -> None:
    """If its shape is known, it is accepted; without an overhang, with each entry's true write set."""
    cluster = Cluster(shapes=[shape], changes=(1, 2, 3), harms=CLEAN, lengths=(60, 100, 200), apart=22)
    histories = lives(seed, 30, cluster)
    for past, row in recovered(histories, cluster, told(histories)):
        assert row["outcome"] == "restored", row["reason"]
        judge(row, dict(past.held))
        assert len(row["segments"]) <= len(past.segments)
        if past.overhang:
            continue
        assert row["extra"] == 0
        for entry in range(past.acked + 1):
            assert set(members_at(row, entry)) == set(past.write_set(entry))


@settings(max_examples=20)
@given(st.integers(0, 1 << 32), st.integers(1, 7))
def test_any_changes_without_overhang_are_restored_where_all_have_all(seed: int, size: int) -> None:
    """With W = E, changes may come every fourth entry and bookies come back: each entry's true copies are named."""
    changes = (1, 2, 3, 4)
    cluster = Cluster([(size, size)], harms=CLEAN, lengths=(20, 60), changes=changes, apart=4, returning=0.5)
    histories = [past for past in lives(seed, 40, cluster) if not past.overhang]
    renumbered = [
        History(n, p.ensemble, p.write, p.ack, p.acked, p.segments, p.held, payloads=p.payloads)
        for n, p in enumerate(histories)
    ]
    for past, row in recovered(renumbered, cluster, told(renumbered)):
        assert row["outcome"] == "restored", row["reason"]
        for entry in range(past.acked + 1):
            assert set(members_at(row, entry)) == set(past.write_set(entry))


@settings(max_examples=6)
@given(st.integers(0, 1 << 32))
def test_what_is_called_certain_is_certain_with_bookies_unseen(seed: int) -> None:
    """Where acknowledged entries are said to end, they end, though bookies were not scanned, or only in part."""
    rng = Random(seed)
    cluster = Cluster(bookies=8, harms=(Harm.NONE, Harm.BEHIND, Harm.TAIL))
    histories = lives(seed, 150, cluster)
    unseen = frozenset(rng.sample(cluster.names, rng.randint(0, 2)))
    incomplete = frozenset(rng.sample(cluster.names, rng.randint(0, 1)))
    seen = []
    for past in histories:
        held = {
            bookie: frozenset(e for e in own if e <= past.acked - 2) if bookie in incomplete else own
            for bookie, own in past.held.items()
        }
        seen.append(
            History(
                past.ledger, past.ensemble, past.write, past.ack, past.acked, past.segments, held,
                past.harm, past.copied, past.lag, past.payloads,
            )
        )  # fmt: skip
    scan = Scan(unscanned=unseen, incomplete=incomplete)
    for past, row in recovered(seen, cluster, told(histories), scan):
        if row["outcome"] == "restored":
            judge(row, {bookie: own for bookie, own in past.held.items() if bookie not in unseen})
            if row["acked_high"] is not None:
                assert past.acked <= row["acked_high"] == row["last_entry"]
            elif unseen or incomplete:
                assert row["grades"]["last_entry"] == "inferred"
        elif unseen or incomplete:
            assert row["reason"] not in ("hole", "ragged_tail", "too_few_positions", "not_from_zero")


@settings(max_examples=5)
@given(st.integers(0, 1 << 32))
@example(seed=6097)
def test_order_and_division_of_rows_do_not_matter(seed: int) -> None:
    """Rows shuffled, in many tables, and split over index and journal give the same; so does each ledger alone."""
    cluster = Cluster(returning=0.2)
    histories = lives(seed, 40, cluster)
    bookies = simulator.bookies(cluster.names)
    plain = simulator.copies(histories)
    prior = Prior.build(count_shapes(plain, bookies))
    want = reconstruct(plain, bookies, NO_DAMAGE, prior, PASSWORDS)
    shuffled = simulator.copies(histories, Scan(split=1.0), Random(seed))
    parts = [shuffled.slice(at, 7) for at in range(0, shuffled.num_rows, 7)]
    assert reconstruct(pa.concat_tables(parts), bookies, NO_DAMAGE, prior, PASSWORDS).equals(want)
    buckets = plain["bucket"].to_numpy()
    half = [plain.filter(pa.array(side)) for side in (buckets < 2048, buckets >= 2048)]
    halves = [reconstruct(part, bookies, NO_DAMAGE, prior, PASSWORDS) for part in half]
    known = set(plain["bookie"].to_pylist())
    assert known <= set(cluster.names)
    assert pa.concat_tables(halves).to_pylist() == want.to_pylist()
    key = [want[name].to_pylist() for name in tables.KEY_COLUMNS]
    assert list(zip(*key, strict=True)) == sorted(zip(*key, strict=True))


@settings(max_examples=15)
@given(st.integers(0, 1 << 32))
def test_counted_shapes_add_up(seed: int) -> None:
    """Counts of two halves of a cluster are the counts of the whole, also by way of JSON and pickles."""
    cluster = Cluster()
    histories = lives(seed, 60, cluster)
    bookies = simulator.bookies(cluster.names)
    one, other = (count_shapes(simulator.copies(part), bookies) for part in (histories[:25], histories[25:]))
    whole = count_shapes(simulator.copies(histories), bookies)
    assert ShapeCounts.from_json(one.to_json()) + pickle.loads(pickle.dumps(other)) == whole  # noqa: S301 - ours
    assert ShapeCounts() + whole == whole


_small = st.integers(-2, 12)
_any = st.one_of(_small, st.integers(-(1 << 63), (1 << 63) - 1), st.sampled_from([1 << 60, (1 << 63) - 1]))
_group = st.fixed_dictionaries(dict.fromkeys(("first", "last", "size", "period"), _any))
_good_group = st.builds(
    lambda first, size, gap, runs: {
        "first": first, "last": first + (runs - 1) * (size + gap), "size": size, "period": size + gap if runs > 1 else 0
    },
    st.integers(0, 9), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4),
)  # fmt: skip
_header = st.fixed_dictionaries(
    {
        "entry": _any,
        "lac": _any,
        "length": _any,
        "size": _any,
        "digest": st.sampled_from([None, "CRC32", "CRC32C", "HMAC", "DUMMY"]),
    }
)
_fine_header = st.builds(
    lambda entry: {"entry": entry, "lac": entry - 1, "length": 10 * (entry + 1), "size": 46, "digest": "CRC32C"},
    st.integers(0, 30),
)
_row = st.fixed_dictionaries(
    {
        "ledger": st.integers(-1, 3),
        "bookie": st.sampled_from(["a:1", "b:1", "c:1", "d:1", "e:1"]),
        "incarnation": st.sampled_from([1, 1, 1, 2]),
        "source": st.sampled_from(["index", "index", "index", "journal", "log", "wire", "elsewhere"]),
        "groups": st.lists(st.one_of(_good_group, _good_group, _group), max_size=4),
        "headers": st.lists(st.one_of(_fine_header, _header), max_size=3),
        "complete": st.booleans(),
        "limbo": st.sampled_from([False, False, False, True]),
        "key_kind": st.sampled_from(["set", "set", "set", "absent", "zero", "empty"]),
        "key": st.sampled_from([b"k" * 32, b"k" * 32, b"k" * 32, None, b"other"]),
        "explicit_lac": st.one_of(st.none(), _any),
        "lac_record": st.one_of(st.none(), st.binary(max_size=40)),
    }
)


def entries_of(groups: list[dict[str, int]]) -> set[int]:
    """Return the entries of possible groups."""
    return {
        start + i
        for group in groups
        for start in range(group["first"], group["last"] + 1, group["period"] or 1)
        for i in range(group["size"])
    }


@given(st.lists(_row, max_size=12), st.lists(st.sampled_from(SHAPES), max_size=4), st.booleans())
def test_any_rows_end_in_one_row_a_ledger(rows: list[Row], shapes: list[tuple[int, int]], clean: bool) -> None:
    """Whatever the inventory says, there is one row a ledger, in bounded time; what is accepted is sound."""
    copies = pa.Table.from_pylist(
        [simulator.copy_row(row["ledger"], row["bookie"], ()) | row for row in rows], schema=tables.COPIES
    )
    bookies = simulator.bookies(["a:1", "b:1", "f:1", "g:1", "h:1", "i:1", "j:1"])
    if clean:
        flags = pa.array([False] * bookies.num_rows)
        bookies = bookies.set_column(bookies.schema.get_field_index("dirty"), bookies.schema.field("dirty"), flags)
    count_shapes(copies, bookies)
    prior = Prior.build(ShapeCounts(), {(e, w, w): 1 for e, w in shapes})
    found = reconstruct(copies, bookies, NO_DAMAGE, prior, InferOptions(max_groups=40)).to_pylist()
    assert sorted(row["ledger"] for row in found) == sorted({row["ledger"] for row in rows})
    for proposal in found:
        if proposal["outcome"] == "restored":
            mine = [
                row for row in rows if row["ledger"] == proposal["ledger"] and row["source"] not in ("log", "elsewhere")
            ]
            served = [
                row for row in mine if row["source"] != "journal" or not (clean and row["bookie"] in ("a:1", "b:1"))
            ]
            held: dict[str, set[int]] = {}
            for row in served:
                held.setdefault(row["bookie"], set()).update(entries_of(row["groups"]))
            judge(proposal, {bookie: frozenset(own) for bookie, own in held.items()})


def test_many_takeovers_of_one_ledger_are_taken_in_stride() -> None:
    """A ledger that moved from bookie to bookie hundreds of times is decided, or held, without a long wait."""
    names = [f"b{n}:3181" for n in range(600)]
    rows = [simulator.copy_row(1, name, range(4 * n, 4 * n + 4)) for n, name in enumerate(names)]
    rows[-1]["headers"] = [{"entry": 2399, "lac": 2398, "length": 2400, "size": 40, "digest": None}]
    copies = pa.Table.from_pylist(rows, schema=tables.COPIES)
    prior = Prior.build(ShapeCounts(), {(1, 1, 1): 1})
    (row,) = reconstruct(copies, simulator.bookies(names), NO_DAMAGE, prior, InferOptions()).to_pylist()
    assert [s["first"] for s in row["segments"]] == [4 * n for n in range(600)]


@pytest.mark.parametrize("shape", SHAPES)
def test_positions_hold_what_the_schedule_gives_them(shape: tuple[int, int]) -> None:
    """The judge's own schedule is BookKeeper's: write set of entry e = positions (e + i) mod E, i < W."""
    size, write = shape
    for entry in range(3 * size):
        positions = {(entry + i) % size for i in range(write)}
        assert positions == {p for p in range(size) if simulator.holds(p, entry, size, write)}
    assert np.arange(size).size == size
