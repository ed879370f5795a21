"""Bookies that were wiped and are in use again: what they may have had is not taken for what never was."""

import json
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Final

import numpy as np
import pyarrow as pa
import pytest

from recovery.infer import facts, wiped_bookies
from recovery.infer.prior import Prior, ShapeCounts, count_shapes
from recovery.infer.reconstruct import InferOptions, reconstruct
from recovery.infer.refusal import Refusal
from recovery.infer.search import Tail
from recovery.infer.wiped_bookies import SAMPLED, Sample, count_losers, find_kept, forget_lost
from recovery.model import tables
from tests.recovery.infer.test_reconstruct import KNOWN, NAMES, Row, full, header, recover, row, striped
from tests.simulation import judge, simulator
from tests.simulation.inventories import inventory
from tests.simulation.profiles import Shape
from tests.simulation.protocol import World
from tests.simulation.simulator import copy_row

LEDGERS: Final = 200
KEPT: Final = {0: dict.fromkeys(NAMES, 6)}
"""All bookies are seen to have kept what they got from ledger 6 on."""
SEEN: Final = replace(KNOWN, kept=KEPT)
IN_USE: Final = {"ledgers": 9}


def wiped(shape: Shape, *, bookies: int = 8, lengths: tuple[int, ...] = (1, 3, 9, 30)) -> tuple[World, str]:
    """Return a cluster one of whose bookies was wiped after half of the ledgers, and its name."""
    rng, world = Random(1), World([f"10.0.0.{number}:3181" for number in range(bookies)])
    names = list(world.bookies)
    for ledger in range(2 * LEDGERS):
        if ledger == LEDGERS:
            world.bookies[names[3]].wipe()
        writer = world.create(ledger, shape, rng.sample(names, shape[0]))
        writer.write([10] * rng.choice(lengths))
        writer.close()
    for bookie in world.bookies.values():
        bookie.stop()
    return world, names[3]


@pytest.mark.parametrize("shape", [(3, 3, 2), (2, 2, 2), (3, 2, 2), (5, 3, 2)])
def test_a_wiped_bookie_in_use_again_makes_no_shape_smaller(shape: Shape) -> None:
    """Ledgers that lost their copy on it keep their shape, say what is missing, and the true shape is always listed."""
    world, name = wiped(shape)
    text, right, ledgers = f"{shape[0]}/{shape[1]}", 0, 0
    for found in judge.reconstruct_alone(inventory(world)).to_pylist():
        record = world.records[found["ledger"]]
        if found["ledger"] >= LEDGERS or name not in record.members(0):
            continue
        ledgers += 1
        assert found["outcome"] == "restored"
        same = (found["ensemble_size"], found["write_quorum"]) == shape[:2]
        right += same
        assert same or text in [other["value"] for other in found["alternatives"]]
        if same:
            promised = sum(name in record.write_set(entry) for entry in range(found["last_entry"] + 1))
            assert found["missing"] == promised
    assert ledgers > 40
    assert right >= 0.9 * ledgers


def test_stripes_show_a_member_that_is_gone() -> None:
    """Two of three members of a long 3/2 ledger: one is missing, wherever it went; nothing else is striped so."""
    for prior in (KNOWN, SEEN, Prior.build(ShapeCounts(full={2: 50})), replace(Prior(()), kept=KEPT)):
        found = recover(striped(30_000)[:2], prior=prior, states=IN_USE)
        assert (found["ensemble_size"], found["write_quorum"], found["missing"]) == (3, 2, 20_000)


def test_shapes_of_the_cluster_are_listed_where_a_copy_may_be_lost() -> None:
    """Two full copies are 2/2 or what is left of 3/3; not of striped ledgers, for each bookie holds all."""
    prior = Prior.build(ShapeCounts(), {(2, 2, 2): 10, (3, 3, 2): 5, (3, 2, 2): 5, (9, 9, 2): 1})

    def shapes(copies: int, entries: int) -> list[str]:
        found = recover(full(copies, entries), prior=prior)
        return [other["value"] for other in found["alternatives"] if "/" in other["value"]]

    assert shapes(2, 20) == ["3/3"]
    assert shapes(3, 20) == []
    assert sorted(shapes(2, 2)) == ["3/2", "3/3"]


def served_behind_a_hole(bookie: str = "b:3181") -> list[Row]:
    """Return a 3/2 ledger with LAC 10: newcomers took 11 and were wiped, 12 stands on one member."""
    rows = [r | {"explicit_lac": 10} for r in striped(11)]
    at = NAMES.index(bookie)
    own = [e for e in range(11) if simulator.holds(at, e, 3, 2)]
    rows[at] = row(bookie, [*own, 12], headers=[header(12, lac=10)], explicit_lac=10)
    return rows


def test_what_newcomers_lost_does_not_end_a_ledger() -> None:
    """Entry 12 was acknowledged, and 11 on two newcomers that were wiped: knowing A = 2 does not cut it off."""
    rows = served_behind_a_hole()
    found = recover(rows, states=IN_USE)
    assert (found["outcome"], found["reason"]) == ("guarded", Refusal.RAGGED_TAIL)
    assert recover(rows, states=IN_USE, prior=Prior.build(ShapeCounts()))["reason"] == Refusal.RAGGED_TAIL
    # One that may have lost it is not enough for A = 2; nor is any where all are seen to have kept what they got.
    for prior in (SEEN, replace(KNOWN, kept={0: {**KEPT[0], "d:3181": 7}})):
        assert recover(rows, states=IN_USE, prior=prior)["last_entry"] == 10
    ack_1 = Prior.build(ShapeCounts(), {(3, 2, 1): 9})
    lost = replace(ack_1, kept={0: {**KEPT[0], "d:3181": 7}})
    assert recover(rows, states=IN_USE, prior=lost)["reason"] == Refusal.RAGGED_TAIL


def test_what_may_have_been_acknowledged_is_not_cut_off() -> None:
    """`--tail acknowledged`: an entry on one bookie stays if another that may have had it was maybe wiped."""
    rows = [r | {"explicit_lac": 10} for r in striped(11)]
    own = [e for e in range(12) if simulator.holds(2, e, 3, 2)]
    rows[2] = row(NAMES[2], own, headers=[header(11, lac=10)], explicit_lac=10)
    options = InferOptions(tail=Tail.ACKNOWLEDGED)
    assert recover(rows, states=IN_USE, options=options)["last_entry"] == 11
    assert recover(rows, states=IN_USE, options=options, prior=SEEN)["last_entry"] == 10


def test_a_ledger_is_left_open_only_where_no_bookie_was_wiped() -> None:
    """`--tail open`: a bookie that lost its entries would tell a recovery that there are none."""
    options = InferOptions(tail=Tail.OPEN)
    assert recover(striped(30), states=IN_USE, options=options)["state"] == "CLOSED"
    assert recover(striped(30), states=IN_USE, options=options, prior=SEEN)["state"] == "OPEN"


@pytest.mark.parametrize("changed", [7, 8])
def test_a_ledger_whose_last_ensemble_is_partly_guessed_is_closed(changed: int) -> None:
    """One entry behind a change of the ensemble shows two of its three members; the ledger beside it is left open."""
    names = (*NAMES[:3], "d:3181", "e:3181", "f:3181")
    rows = [
        copy_row(ledger, names[position], own, headers=[header(own[-1])])
        for ledger in (7, 8)
        for position in range(3)
        if (own := [e for e in range(20) if simulator.holds(position, e, 3, 2)])
    ]
    rows += [copy_row(changed, name, [20], headers=[header(20)]) for name in ("d:3181", "f:3181")]
    bookies = [bookie | IN_USE for bookie in simulator.bookies(names).to_pylist()]
    found = reconstruct(
        pa.Table.from_pylist(rows, schema=tables.COPIES),
        pa.Table.from_pylist(bookies, schema=tables.BOOKIES),
        tables.DAMAGE.empty_table(),
        replace(KNOWN, kept={0: dict.fromkeys(names, 6)}),
        InferOptions(tail=Tail.OPEN),
    ).to_pylist()
    assert {row["ledger"]: (row["state"], row["missing"], sum(row["segments"][-1]["assumed"])) for row in found} == {
        changed: ("CLOSED", 0, 1),
        15 - changed: ("OPEN", 0, 0),
    }


@pytest.mark.parametrize(
    ("bookies", "ack", "grade"), [(3, 1, "observed"), (4, 2, "observed"), (4, 1, "inferred"), (5, 2, "inferred")]
)
def test_an_end_is_observed_only_where_newcomers_cannot_have_lost_more(bookies: int, ack: int, grade: str) -> None:
    """As many bookies without the ledger as acknowledge an entry: they may have taken it over, and been wiped since."""
    rows = [r | {"explicit_lac": 10} for r in striped(11)]
    prior = replace(Prior.build(ShapeCounts(), {(3, 2, ack): 9}), kept=KEPT)
    found = recover(rows, names=NAMES[:bookies], prior=prior, states=IN_USE)
    assert found["grades"]["last_entry"] == grade
    assert found["acked_high"] == (10 if grade == "observed" else None)


def rows_of(members: Mapping[int, tuple[int, ...]], **others: object) -> pa.Table:
    """Return COPIES of three entries of each ledger on the numbered bookies."""
    rows = [
        copy_row(ledger, f"b{n}:3181", range(3), headers=[header(0), header(2)], **others)
        for ledger, names in members.items()
        for n in names
    ]
    return pa.Table.from_pylist(rows, schema=tables.COPIES)


def sample(members: Mapping[int, tuple[int, ...]], **others: object) -> Sample:
    """Return the sample of such ledgers."""
    return count_shapes(rows_of(members, **others), tables.BOOKIES.empty_table()).sample


def test_a_bookie_is_seen_to_have_kept_what_stands_on_it() -> None:
    """What came, or was wiped, after half of the ledgers is sure only of later ones; what left is sure of all."""
    members = {ledger: ((0, 1, 2) if ledger < 50 else (1, 2, 3))[:3] for ledger in range(100)}
    kept = find_kept(sample(members))[0]
    assert kept == {"b0:3181": 5, "b1:3181": 5, "b2:3181": 5, "b3:3181": 55}
    assert find_kept(Sample()) == {}
    # Ledgers that began late, a few of many, show nothing.
    few = {ledger: (0, 1, 2, *([4] if ledger % 20 == 0 else [])) for ledger in range(200)}
    assert "b4:3181" not in find_kept(sample(few))[0]
    assert find_kept(sample(dict.fromkeys(range(5), (0, 1)))) == {}


def test_copies_of_re_replication_show_nothing() -> None:
    """What was copied to a wiped bookie was not kept there."""
    copied = [copy_row(n, "b9:3181", range(3), headers=[header(0, lac=2), header(2, lac=2)]) for n in range(50)]
    both = pa.concat_tables(
        [rows_of(dict.fromkeys(range(50), (0, 1))), pa.Table.from_pylist(copied, schema=tables.COPIES)]
    )
    kept = find_kept(count_shapes(both, tables.BOOKIES.empty_table()).sample)
    assert sorted(kept[0]) == ["b0:3181", "b1:3181"]
    known = facts.read(both, tables.BOOKIES.empty_table())
    lost = count_losers(known, np.arange(50), kept, np.zeros(len(known.bookies), np.bool_))
    # The copier's own ledgers may have been lost there; who has entries of a ledger has not lost it.
    assert lost.tolist() == [1] * 50


def test_who_may_have_lost_a_ledger_is_counted_by_scope() -> None:
    """Ids of one scope say nothing of another's; bookies that were not looked at are counted elsewhere."""
    members = {ledger: ((0, 1) if ledger < 50 else (1, 2)) for ledger in range(100)}
    table = pa.concat_tables([rows_of(members), rows_of({60: (1, 2)}, scope=9)])
    known = facts.read(table, tables.BOOKIES.empty_table())
    kept = find_kept(count_shapes(rows_of(members), tables.BOOKIES.empty_table()).sample)
    nobody = np.zeros(len(known.bookies), np.bool_)
    lost = count_losers(known, np.arange(known.count), kept, nobody).tolist()
    by_id = {(s, n): many for s, n, many in zip(known.scope.tolist(), known.ledger.tolist(), lost, strict=True)}
    assert [by_id[0, 3], by_id[0, 20], by_id[0, 52], by_id[0, 70], by_id[9, 60]] == [1, 1, 0, 0, 1]
    besides = np.array([name == "b2:3181" for name in known.bookies.to_pylist()])
    some = np.flatnonzero((known.scope == 0) & (known.ledger == 20))
    assert count_losers(known, some, kept, besides).tolist() == [0]


@pytest.mark.parametrize(("last", "shown"), [(17, True), (18, False)])
def test_first_entries_in_a_row_are_not_many_times_thinner_than_those_of_others(last: int, *, shown: bool) -> None:
    """Six of them, among at most twice as many that a bookie has on average."""
    thin = {0, 1, 2, 3, 4, last}
    holders = {(0, n): ("often", "seldom") if n in thin else ("often",) for n in range(20)}
    kept = find_kept(Sample(holders))[0]
    assert kept == {"often": 5} | ({"seldom": last} if shown else {})


def test_a_bookie_that_lost_a_part_is_seen_to_have_kept_nothing() -> None:
    """In no scope; what others kept stays."""
    kept = {0: {"a": 5, "b": 6}, 9: {"b": 7}}
    assert forget_lost(kept, ()) == kept
    assert forget_lost(kept, ("b", "c")) == {0: {"a": 5}, 9: {}}


@pytest.mark.parametrize(("most", "chosen"), [(5, 4), (4, 4), (3, 3)])
def test_all_ledgers_are_chosen_where_there_are_no_more_than_a_sample_has(
    most: int, chosen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order of their places."""
    monkeypatch.setattr(wiped_bookies, "SAMPLED", most)
    places = wiped_bookies._choose_least(np.zeros(4, np.int64), np.arange(4)).tolist()
    assert places == sorted(places)
    assert len(places) == chosen


def test_samples_of_parts_are_the_sample_of_the_whole() -> None:
    """However a cluster is cut, the same ledgers are chosen; as JSON, too."""
    ledgers = [ledger * 7 for ledger in range(2 * SAMPLED)]
    parts = [Sample({(0, ledger): ("a", "b") for ledger in ledgers[at::3]}) for at in range(3)]
    whole = parts[0] + parts[1] + parts[2]
    assert len(whole.holders) == SAMPLED
    assert whole == parts[2] + (parts[1] + parts[0])
    # They are of all ids alike.
    assert 0.4 < sum(ledger < ledgers[SAMPLED] for _, ledger in whole.holders) / SAMPLED < 0.6
    counts = ShapeCounts(bookies=frozenset({"a", "b", "c"}), sample=whole)
    assert ShapeCounts.from_json(json.loads(json.dumps(counts.to_json()))) == counts
