"""The prior: which shapes are believed where copies are silent, in which order, and which ack quorum they have."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recovery.infer import facts
from recovery.infer.copies import CopyColumns
from recovery.infer.prior import (
    LARGEST,
    Prior,
    ShapeCounts,
    ShapeSource,
    count_shapes,
    find_striped,
    list_supported,
    read_shapes,
)
from recovery.model import tables
from tests.simulation import simulator
from tests.simulation.simulator import copy_row

MANY = frozenset(f"b{n}:3181" for n in range(10))


def shapes(full: dict[int, int], members: dict[int, dict[str, int]] | None = None) -> ShapeCounts:
    """Return counts of full copies; every bookie takes part now and then if it is not said who does."""
    evenly = {copies: dict.fromkeys(MANY, max(1, count // 3)) for copies, count in full.items()}
    return ShapeCounts({}, full, evenly if members is None else evenly | members, MANY)


def of_prior(prior: Prior) -> list[tuple[int, int, ShapeSource]]:
    """Return the order in which shapes are tried."""
    return [(h.ensemble, h.write, h.source) for h in prior.shapes]


def test_the_cluster_goes_before_a_snapshot_before_the_operators_word() -> None:
    """Each shape stands once, at the first source that knows it; BookKeeper's default only where nothing else is."""
    counts = ShapeCounts({(3, 2): 5}, {2: 9}, {2: {"a": 9, "b": 9}}, frozenset({"a", "b"}))
    prior = Prior.build(counts, {(5, 3, 2): 4, (3, 2, 2): 9}, (4, 4, 3))
    assert of_prior(prior) == [
        (2, 2, ShapeSource.CLUSTER),
        (3, 2, ShapeSource.CLUSTER),
        (5, 3, ShapeSource.SNAPSHOT),
        (4, 4, ShapeSource.DEFAULT_QUORUM),
    ]
    assert of_prior(Prior.build(ShapeCounts())) == [(3, 2, ShapeSource.BOOKKEEPER_DEFAULT)]
    assert of_prior(Prior.build(ShapeCounts(), {}, (2, 2, 1))) == [(2, 2, ShapeSource.DEFAULT_QUORUM)]
    assert [round(h.weight, 2) for h in prior.shapes] == [0.64, 0.36, 0.31, 0.0]


def test_impossible_quorums_of_a_catalog_are_passed_over() -> None:
    """A damaged record cannot make a hypothesis."""
    assert of_prior(Prior.build(ShapeCounts(), {(2, 3, 2): 1, (3, 0, 0): 1, (3, 2, 3): 1})) == [
        (3, 2, ShapeSource.BOOKKEEPER_DEFAULT)
    ]


def test_the_ack_quorum_is_the_most_frequent_stored_one() -> None:
    """Then the operator's, for its own shape; then W, as BookKeeper reads a record without it."""
    prior = Prior.build(ShapeCounts(), {(3, 3, 2): 9, (3, 3, 3): 1}, (4, 3, 2))
    assert prior.ack_quorum(3, 3) == (2, ShapeSource.SNAPSHOT)
    assert prior.ack_quorum(4, 3) == (2, ShapeSource.DEFAULT_QUORUM)
    assert prior.ack_quorum(5, 3) == (3, ShapeSource.WRITE_QUORUM)
    assert Prior.build(ShapeCounts()).ack_quorum(3, 2) == (2, ShapeSource.BOOKKEEPER_DEFAULT)
    assert (prior.surely_acked(3, 3), prior.surely_acked(4, 3), prior.surely_acked(5, 3)) == (2, 2, 1)


def test_one_leftover_or_a_few_are_no_shape() -> None:
    """One ledger is never enough; nor is a share that one bookie's misfortune gives in a large cluster."""
    assert list_supported(shapes({3: 9, 4: 1})) == [3]
    assert list_supported(shapes({3: 10_000, 2: 150, 4: 3})) == [3]
    assert list_supported(shapes({3: 10_000, 2: 500})) == [2, 3]
    assert list_supported(shapes({1: 4, 2: 2, 3: 3})) == [1, 2, 3]


@pytest.mark.parametrize("bookies", [4, 10, 100])
def test_one_wiped_bookie_does_not_make_smaller_ensembles(bookies: int) -> None:
    """All ledgers are 3/3, one bookie lost its disks: its ledgers have two copies, and none of them is on it."""
    rows = []
    for ledger in range(600):
        members = [(ledger + step) % bookies for step in (0, 1, 3 if bookies > 3 else 2)]
        rows += [copy_row(ledger, f"b{m}:3181", range(5)) for m in members if m != 0]
    counts = count_shapes(pa.Table.from_pylist(rows, schema=tables.COPIES), simulator.bookies(["b0:3181"]))
    assert counts.full[2] > 0
    assert list_supported(counts) == [3]


def test_a_bookie_that_takes_part_in_all_ledgers_of_a_shape_takes_none_away() -> None:
    """Two of four bookies were down for long, one after the other: each 3/3 ledger is on the other two."""
    rows = []
    for ledger in range(100):
        size = 2 + ledger % 2
        members = {0, 1, 2 + ledger // 50} if size == 3 else {ledger % 3, 3}
        rows += [copy_row(ledger, f"b{m}:3181", range(9)) for m in members]
    counts = count_shapes(pa.Table.from_pylist(rows, schema=tables.COPIES), tables.BOOKIES.empty_table())
    assert (counts.full, counts.members[3]["b0:3181"]) == ({2: 50, 3: 50}, 50)
    assert list_supported(counts) == [2, 3]


def test_an_even_mixture_of_a_small_cluster_is_believed() -> None:
    """Sizes 1, 2 and 3 on four bookies, all taking part: each is a shape, though each could be damage of another."""
    rows = []
    for ledger in range(300):
        size = ledger % 3 + 1
        rows += [copy_row(ledger, f"b{(ledger // 3 + i) % 4}:3181", range(9)) for i in range(size)]
    counts = count_shapes(pa.Table.from_pylist(rows, schema=tables.COPIES), tables.BOOKIES.empty_table())
    assert counts.full == {1: 100, 2: 100, 3: 100}
    assert list_supported(counts) == [1, 2, 3]


def test_only_what_no_striping_could_hide_counts() -> None:
    """Two copies of two entries may be part of a 3/2 ledger: evidence needs more entries than copies."""
    rows = [copy_row(1, f"b{n}:3181", range(2)) for n in range(2)]
    rows += [copy_row(2, f"b{n}:3181", range(3)) for n in range(2)]
    rows += [copy_row(3, f"b{n}:3181", range(3 + n)) for n in range(2)]
    counts = count_shapes(pa.Table.from_pylist(rows, schema=tables.COPIES), tables.BOOKIES.empty_table())
    assert counts.full == {2: 1}


@pytest.mark.parametrize(
    "doubt",
    [
        {"limbo": True},
        {"key": b"x" * 32},
        {"headers": [{"entry": 8, "lac": 8, "length": 9, "size": 9, "digest": None}]},
    ],
)
def test_doubtful_ledgers_do_not_count(doubt: dict[str, object]) -> None:
    """Limbo, two keys and copies of re-replication are no evidence of how ledgers are written."""
    rows = [copy_row(1, f"b{n}:3181", range(9)) for n in range(3)]
    rows[0] |= doubt
    counts = count_shapes(pa.Table.from_pylist(rows, schema=tables.COPIES), tables.BOOKIES.empty_table())
    assert counts.full == {}


def test_a_striped_ledger_needs_all_its_bookies_to_count() -> None:
    """A period is seen on one bookie already; a ledger that lost the others is no evidence."""
    held = [[e for e in range(30) if simulator.holds(p, e, 4, 2)] for p in range(4)]
    rows = [copy_row(1, f"b{p}:3181", own) for p, own in enumerate(held)]
    rows += [copy_row(2, f"b{p}:3181", own) for p, own in enumerate(held[:3])]
    counts = count_shapes(pa.Table.from_pylist(rows, schema=tables.COPIES), tables.BOOKIES.empty_table())
    assert counts.striped == {(4, 2): 1}


def test_a_bookie_that_was_not_scanned_is_like_a_wiped_one() -> None:
    """What is missing on a known member does not make smaller ensembles; where nobody knows of it, it does."""
    rows, rng = [], Random(1)
    for ledger in range(600):
        members = rng.sample(range(10), 3)
        rows += [copy_row(ledger, f"b{m}:3181", range(5)) for m in members if m != 0]
    counts = count_shapes(pa.Table.from_pylist(rows, schema=tables.COPIES), tables.BOOKIES.empty_table())
    assert [h.ensemble for h in Prior.build(counts, unscanned=["b0:3181"]).shapes] == [3]
    assert [h.ensemble for h in Prior.build(counts).shapes] == [3, 2]


def test_changes_with_as_many_copies_throughout_are_evidence() -> None:
    """Every entry has two copies, no matter who holds them; a ledger where one has one or three says nothing."""
    exact = [(0, range(20)), (1, range(10)), (2, range(10, 20))]
    short = [(0, range(20)), (1, range(10)), (2, range(11, 20))]
    more = [(0, range(20)), (1, range(11)), (2, range(10, 20))]
    rows = [copy_row(n, f"b{b}:3181", own) for n, held in enumerate((exact, short, more)) for b, own in held]
    counts = count_shapes(pa.Table.from_pylist(rows, schema=tables.COPIES), tables.BOOKIES.empty_table())
    assert counts.full == {2: 1}
    assert set(counts.members[2]) == {"b0:3181", "b1:3181", "b2:3181"}


def test_bookkeepers_own_default_gives_an_ack_quorum_only_where_nobody_says_any() -> None:
    """A snapshot's records or the operator's word, of whatever shape, show that clients say their own."""
    told = (2, ShapeSource.WRITE_QUORUM)
    assert Prior.build(ShapeCounts(), {(4, 4, 3): 1}).ack_quorum(3, 2) == told
    assert Prior.build(ShapeCounts(), None, (4, 4, 3)).ack_quorum(3, 2) == told


def test_an_unseen_bookie_is_tolerated_up_to_the_next_wider_shape_that_is_stated() -> None:
    """The nearest of them counts, stated by a snapshot or by the operator; what nobody states tolerates none."""
    prior = Prior.build(ShapeCounts(), {(2, 2, 2): 1, (4, 4, 2): 1}, (7, 7, 4))
    assert [prior.count_tolerated(n, n) for n in (2, 3, 4)] == [1, 0, 2]
    assert prior.count_tolerated(7, 7) > 1000


def test_an_ack_quorum_is_stated_of_the_operators_shape_alone() -> None:
    """Records of a snapshot are of other ledgers, and the operator's word is of one shape."""
    prior = Prior.build(ShapeCounts(), {(3, 3, 2): 9}, (4, 4, 3))
    assert [prior.is_ack_stated(n, n) for n in (3, 4)] == [False, True]
    assert not Prior.build(ShapeCounts(), {(3, 3, 2): 9}).is_ack_stated(3, 3)


def test_a_shape_needs_two_in_a_hundred() -> None:
    """Just so many are enough, one less is not."""
    assert list_supported(shapes({3: 98, 2: 2})) == [2, 3]
    assert list_supported(shapes({3: 99, 2: 2})) == [3]


@pytest.mark.parametrize(
    ("full", "without", "wanted"),
    [
        # On ten bookies, 3/3 and one bookie lost: 7 in 30 of 3/3 had it, so up to SLACK * 4 / 7 as many have two left.
        ({3: 112, 2: 60}, 2, [3]),
        ({3: 112, 2: 61}, 2, [2, 3]),
        # Of a hundred each bookie of a shape takes part; of fewer it may be chance that one does not.
        ({3: 97, 2: 3}, 2, [3]),
        ({3: 96, 2: 3}, 2, [2, 3]),
        ({3: 60, 2: 32}, 2, [3]),
    ],
)
def test_how_many_one_lost_bookie_explains(full: dict[int, int], without: int, wanted: list[int]) -> None:
    """Ledgers of two copies, none of them on one of ten bookies."""
    members = {without: dict.fromkeys(MANY - {"b0:3181"}, 1)}
    assert list_supported(shapes(full, members)) == wanted


def test_stripes_need_three_runs() -> None:
    """Two runs are at some distance by chance; E stays below what a shape can say."""

    def shape_of(first: int, last: int, size: int, period: int) -> tuple[int, int]:
        one = [np.array([n]) for n in (0, first, last, size, period)]
        columns = CopyColumns.sum_up(1, np.array([0]), *one)
        ensemble, write = (int(column[0]) for column in read_shapes(columns))
        assert find_striped(columns)[0] == (ensemble > 0)
        return ensemble, write

    assert shape_of(0, 6, 2, 3) == (3, 2)
    assert shape_of(0, 3, 2, 3) == (0, 0)
    assert shape_of(0, 2 * (LARGEST - 1), 2, LARGEST - 1) == (LARGEST - 1, 2)
    assert shape_of(0, 2 * LARGEST, 2, LARGEST) == (0, 0)


@pytest.mark.parametrize(
    "doubt",
    [
        {"groups": [{"first": 5, "last": 2, "size": 1, "period": 1}]},
        {"source": "log", "bookie": "b9:3181"},
        {"source": "log"},
        {"incarnation": 2, "source": "journal"},
    ],
    ids=["impossible groups", "a leftover", "entries beside", "two incarnations"],
)
def test_a_row_too_many_takes_a_ledgers_word_away(doubt: dict[str, object]) -> None:
    """A row beside three full copies that says something odd: the ledger is no evidence of how ledgers are written."""
    rows = [copy_row(ledger, f"b{n}:3181", range(9)) for n in range(3) for ledger in (1, 2)]
    rows.append({**rows[0], "bookie": "b0:3181", **doubt})
    counts = count_shapes(pa.Table.from_pylist(rows, schema=tables.COPIES), simulator.bookies(["b9:3181", "b0:3181"]))
    assert counts.full == {3: 1}
    assert counts.members == {3: dict.fromkeys(("b0:3181", "b1:3181", "b2:3181"), 1)}


def test_what_begins_late_or_has_gaps_shows_no_full_copies() -> None:
    """All that is held begins at entry 1; a bookie lacks one in the middle, and nobody came for it; two of them do."""
    rows = [copy_row(1, f"b{n}:3181", range(1, 9)) for n in range(2)]
    rows += [copy_row(2, "b0:3181", range(9)), copy_row(2, "b1:3181", {*range(9)} - {4})]
    rows += [copy_row(3, f"b{n}:3181", {*range(9)} - {4}) for n in range(2)]
    counts = count_shapes(pa.Table.from_pylist(rows, schema=tables.COPIES), tables.BOOKIES.empty_table())
    assert counts.full == {}


def test_a_bookie_that_takes_part_in_none_shows_a_loss_only_beside_larger_ones() -> None:
    """Of ledgers of three copies on three of four bookies none lost a fourth, where there are none of four."""
    names = frozenset("abcd")
    members = {3: dict.fromkeys("abc", 50)}
    assert list_supported(ShapeCounts({}, {3: 50}, members, names)) == [3]
    members |= {4: dict.fromkeys("abcd", 50)}
    assert list_supported(ShapeCounts({}, {3: 50, 4: 50}, members, names)) == [4]


FLAGS = ("broken", "fragmented", "limbo", "copied", "leftover", "unindexed", "unlisted", "reincarnated")


@pytest.mark.parametrize("flag", ["", *FLAGS])
def test_only_ledgers_that_nothing_speaks_against_are_counted(flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One doubt is enough."""
    rows = [copy_row(7, f"b{n}:3181", range(20)) for n in range(3)]
    known = facts.read(pa.Table.from_pylist(rows, schema=tables.COPIES), tables.BOOKIES.empty_table())
    flags: dict[str, Any] = {name: np.array([name == flag]) for name in FLAGS}
    known = replace(known, **flags)
    monkeypatch.setattr(facts, "read", lambda *_: known)
    counted = count_shapes(tables.COPIES.empty_table(), tables.BOOKIES.empty_table())
    assert counted.full == ({} if flag else {3: 1})
    assert set(counted.members) == ({3} if not flag else set())


@pytest.mark.parametrize(
    ("rows", "copies"),
    [
        ([range(10), range(10)], 2),
        # Bookies that came when others went, with nothing left over; and with copies left over.
        ([range(10), range(5), range(5, 10)], 2),
        ([range(10), range(6), range(5, 10)], 0),
        # An entry is missing, at the end, at the beginning, or in between.
        ([range(10), range(9)], 0),
        ([range(10), range(1, 10)], 0),
        ([range(10), [*range(5), *range(6, 10)]], 0),
        ([range(1, 10), range(1, 10)], 0),
        # So few that striping could hide: no more entries than copies.
        ([range(2), range(2)], 0),
        ([range(3), range(3)], 2),
    ],
)
def test_full_copies_are_as_many_of_each_entry(rows: list[Sequence[int]], copies: int) -> None:
    """Else the ledger says nothing of how many there are of others; beside it stands one of three."""
    table = [copy_row(7, f"b{n}:3181", own) for n, own in enumerate(rows)]
    table += [copy_row(8, f"b{n}:3181", range(20)) for n in range(3)]
    counted = count_shapes(pa.Table.from_pylist(table, schema=tables.COPIES), tables.BOOKIES.empty_table())
    assert counted.full == ({3: 1, copies: 1} if copies else {3: 1})
