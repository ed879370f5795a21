"""The history that would break each rule that cuts, if the statement of the protocol that it rests on were false.

Rules and statements are in `docs/internals/rules-that-cut.md`. Each test has both sides: what must be kept is kept,
what may be cut is cut.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from recovery.infer.prior import Prior, count_shapes
from recovery.infer.reconstruct import InferOptions, reconstruct
from recovery.infer.refusal import Refusal
from recovery.infer.search import Tail
from recovery.model.metadata import LedgerState
from tests.recovery.infer.test_search_open_repaired import (
    BEFORE,
    ORDINARY,
    copy_closed_segment,
    find_ends,
    lists_ends,
    make_world,
    open_ledger,
    replace_dead,
)
from tests.simulation import inventories
from tests.simulation.cluster_judge import ClusterJudge
from tests.simulation.evidence import Evidence, Reference
from tests.simulation.inventories import View
from tests.simulation.judge import NOTHING, reconstruct_alone
from tests.simulation.protocol import World, Writer
from tests.simulation.row_truth import PASSWORDS

Row = dict[str, Any]
SHAPES: Final = ((3, 3, 2), (3, 2, 2), (4, 3, 2))


def judged(
    world: World, shape: tuple[int, int, int] | None, *, tail: Tail = Tail.INCLUSIVE, evidence: Evidence = NOTHING
) -> Row:
    """Return what is made of the ledger, all bookies scanned whole, once no guarantee of the judge is broken."""
    inventory = inventories.inventory(world)
    quorums = {} if shape is None else {shape: len(world.records)}
    rows = reconstruct_alone(inventory, tail=tail, quorums=quorums or None, evidence=evidence).to_pylist()
    judge = ClusterJudge("census", 0, world, inventory, tail, evidence, Counter(quorums))
    tally = judge.judge_rows(rows)
    assert not tally.violations, "\n".join(map(str, tally.violations[:5]))
    return dict(next(row for row in rows if row["ledger"] == ORDINARY))


def deliver(writer: Writer, names: Sequence[str], *, heard: bool) -> None:
    """Let all that is under way to some bookies arrive; the rest never does."""
    for name in names:
        while name in writer.queues:
            writer.deliver(name, heard=heard)
    writer.queues.clear()


def collect_by(world: World, row: Row) -> None:
    """Write the record into the store, and let all bookies collect what it does not name."""
    record = world.records[ORDINARY]
    record.ensemble, record.write = row["ensemble_size"], row["write_quorum"]
    record.segments = [(segment["first"], list(segment["members"])) for segment in row["segments"]]
    record.state, record.last, record.length = LedgerState(row["state"]), row["last_entry"], row["length"]
    for name, bookie in world.bookies.items():
        if not bookie.up:
            bookie.start()
        world.collect_garbage(name)


def count_copies(world: World, entry: int) -> int:
    """Return how many bookies of its write set serve an entry."""
    shelves = [world.bookies[name].shelves.get(ORDINARY) for name in world.records[ORDINARY].write_set(entry)]
    return sum(shelf is not None and shelf.get(entry) is not None for shelf in shelves)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_killed_bookies_journal_is_a_copy(shape: tuple[int, int, int]) -> None:
    """Its index has nothing of the ledger yet; a bookie that was stopped cleanly has all in its index."""
    for end in ("kill", "stop"):
        world = make_world(shape, shape[0] + 2)
        open_ledger(world, shape, ORDINARY, list(world.bookies)[: shape[0]]).abandon()
        for bookie in world.bookies.values():
            getattr(bookie, end)()
        row = judged(world, shape)
        assert (row["outcome"], row["last_entry"], row["missing"]) == ("restored", BEFORE - 1, 0)


@pytest.mark.parametrize("stated", [False, True], ids=["A unknown", "A stated"])
def test_an_entry_that_no_bookie_got_ends_the_ledger(*, stated: bool) -> None:
    """Entries 11 and 12 stand on one bookie, 10 on none, and all bookies kept what they got: listed, and cut."""
    shape = (3, 2, 2)
    world = make_world(shape, 5)
    members = list(world.bookies)[:3]
    writer = open_ledger(world, shape, ORDINARY, members)
    for _ in range(3):
        writer.send(10)
    deliver(writer, members[:1], heard=True)
    assert sorted(world.bookies[members[0]].shelves[ORDINARY].list_served())[-2:] == [11, 12]
    assert writer.record.acked == 9
    row = judged(world, shape if stated else None)
    assert (row["outcome"], row["state"], row["last_entry"]) == ("restored", "CLOSED", 9)
    assert find_ends(row)[0].endswith("..12")


def test_a_length_that_a_recovery_counted_above_the_end_is_listed() -> None:
    """The same, and a recovery closed it: with the length beside the largest LAC, which entry 12 has, two above."""
    shape = (3, 2, 2)
    world = make_world(shape, 5)
    members = list(world.bookies)[:3]
    writer = open_ledger(world, shape, ORDINARY, members)
    for _ in range(3):
        writer.send(10)
    deliver(writer, members[:1], heard=True)
    assert world.recover(ORDINARY, list, lambda names: names[0])
    row = judged(world, shape)
    assert (row["outcome"], row["last_entry"], row["length"]) == ("restored", BEFORE - 1, 10 * BEFORE)
    assert writer.record.length == 10 * BEFORE + 30
    # The header of entry 11 was read, too, and has the same LAC.
    assert [a["value"] for a in row["alternatives"] if a["field"] == "length"] == ["120", "130"]


@pytest.mark.parametrize("stated", [False, True], ids=["A unknown", "A stated"])
def test_an_entry_that_wiped_newcomers_had_does_not(*, stated: bool) -> None:
    """The same rows, but entry 10 was acknowledged by two newcomers, which were wiped since: 11 is kept."""
    shape = (3, 2, 2)
    world = make_world(shape, 5)
    members, newcomers = list(world.bookies)[:3], list(world.bookies)[3:]
    writer = open_ledger(world, shape, ORDINARY, members)
    choices = iter(newcomers)
    writer.fail(members[1:])
    assert writer.change(lambda _: next(choices))
    for _ in range(2):
        writer.send(10)
    writer.deliver_all()
    assert writer.record.acked == 11
    for name in newcomers:
        world.bookies[name].wipe()
    assert max(world.bookies[members[0]].shelves[ORDINARY].list_served()) == 11
    row = judged(world, shape if stated else None)
    assert (row["outcome"], row["reason"], row["last_entry"]) == ("guarded", Refusal.RAGGED_TAIL, 11)


@pytest.mark.parametrize("wiped", [False, True])
def test_what_fewer_than_the_ack_quorum_took_is_cut_where_that_was_asked_for(*, wiped: bool) -> None:
    """One bookie has entry 10: never acknowledged, unless another one that took it was wiped since."""
    shape = (3, 3, 2)
    world = make_world(shape, 5)
    members = list(world.bookies)[:3]
    writer = open_ledger(world, shape, ORDINARY, members)
    writer.send(10)
    deliver(writer, members[: 2 if wiped else 1], heard=True)
    assert writer.record.acked == (BEFORE if wiped else BEFORE - 1)
    if wiped:
        world.bookies[members[1]].wipe()
    row = judged(world, shape, tail=Tail.ACKNOWLEDGED)
    assert row["last_entry"] == writer.record.acked
    assert judged(world, shape)["last_entry"] == BEFORE


@pytest.mark.parametrize("begun", [False, True], ids=["whole", "begun"])
@pytest.mark.parametrize("changed", [False, True], ids=["one segment", "two segments"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_bookie_is_dropped_only_where_its_entries_have_all_their_copies(
    shape: tuple[int, int, int], *, changed: bool, begun: bool
) -> None:
    """A member was copied and came back, another was replaced with adds under way: what is collected was spare."""
    world = make_world(shape, shape[0] + 3)
    names = list(world.bookies)
    members, (newcomer, target, _) = names[: shape[0]], names[shape[0] :]
    writer = open_ledger(world, shape, ORDINARY, members)
    late = members[-1]
    if changed:
        for _ in range(4):
            writer.send(10)
        # What arrives at the bookie that is replaced stays there, above the segment that it is a member of.
        writer.fail([late], {late: 2})
        assert writer.change(lambda found: newcomer if newcomer in found else found[0])
        writer.deliver_all()
    writer.close()
    dead = world.records[ORDINARY].segments[0][1][0]
    world.bookies[dead].kill()
    if begun:
        had = world.bookies[target].shelf(ORDINARY, writer.record.key)
        assert writer.record.last is not None
        record = replace(writer.record, segments=[(first, list(own)) for first, own in writer.record.segments])
        assert world.repair(ORDINARY, dead, lambda found: target if target in found else found[0])
        writer.record.segments = record.segments
        for entry in [entry for entry in had.fresh if entry > BEFORE // 2]:
            del had.fresh[entry]
    else:
        assert world.repair(ORDINARY, dead, lambda found: target if target in found else found[0])
    world.bookies[dead].start()
    true_last = writer.record.last
    row = judged(world, shape)
    assert (row["outcome"], row["last_entry"], row["missing"]) == ("restored", true_last, 0)
    collect_by(world, row)
    assert {count_copies(world, entry) for entry in range(row["last_entry"] + 1)} == {shape[1]}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_begun_copy_drops_no_bookie(shape: tuple[int, int, int]) -> None:
    """All other copies of some entries are gone, and a copy ends before them: who has them stays a member."""
    world = make_world(shape, shape[0] + 2)
    names = list(world.bookies)
    members, target = names[: shape[0]], names[shape[0]]
    writer = open_ledger(world, shape, ORDINARY, members)
    writer.close()
    dead = members[0]
    world.bookies[dead].kill()
    assert world.repair(ORDINARY, dead, lambda found: target if target in found else found[0])
    writer.record.segments = [(0, members)]
    copied = world.bookies[target].shelf(ORDINARY, writer.record.key)
    for entry in [entry for entry in copied.fresh if entry > BEFORE // 2]:
        del copied.fresh[entry]
    world.bookies[dead].start()
    only = [entry for entry in world.bookies[dead].shelves[ORDINARY].list_served() if entry > BEFORE // 2]
    for name in members[1:]:
        shelf = world.bookies[name].shelves[ORDINARY]
        for entry in only:
            shelf.fresh.pop(entry, None)
            shelf.index.pop(entry, None)
    row = judged(world, shape)
    assert row["last_entry"] == writer.record.last
    collect_by(world, row)
    for entry in only:
        assert count_copies(world, entry) > 0, entry


def test_a_ledger_that_bookies_know_and_hold_nothing_of_is_guarded() -> None:
    """All members were wiped, and a reader fenced them since: their answers are no proof that it was empty."""
    shape = (3, 3, 2)
    world = make_world(shape, 5)
    members = list(world.bookies)[:3]
    writer = open_ledger(world, shape, ORDINARY, members)
    for name in members:
        world.bookies[name].wipe()
        world.bookies[name].fence(ORDINARY, writer.record.key)
    row = judged(world, shape)
    assert (row["outcome"], row["reason"], row["last_entry"]) == ("guarded", Refusal.NO_ENTRIES, -1)
    assert row["holders"] == members


def test_an_upper_layers_end_cuts_nothing_that_a_lac_shows() -> None:
    """Adds that a close dropped are cut where the upper layer says so; an end from before the LAC cuts nothing."""
    shape = (3, 3, 2)
    world = make_world(shape, 5)
    members = list(world.bookies)[:3]
    writer = open_ledger(world, shape, ORDINARY, members)
    for _ in range(3):
        writer.send(10)
    deliver(writer, members, heard=False)
    writer.close()
    true = writer.record
    row = judged(world, shape, evidence=Evidence(references={ORDINARY: Reference(true.last, true.length)}))
    assert (row["last_entry"], row["length"]) == (BEFORE - 1, true.length)
    stale = Evidence(references={ORDINARY: Reference(5, 60)}, is_honest=False)
    row = judged(world, shape, evidence=stale)
    assert row["last_entry"] == BEFORE + 2
    assert "5" in find_ends(row)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_closed_record_ends_the_ledger_and_an_open_one_does_not(shape: tuple[int, int, int]) -> None:
    """Above the end of a closed record all was dropped; above the segments of an open one all is kept."""
    world = make_world(shape, shape[0] + 2)
    names = list(world.bookies)
    members, newcomer = names[: shape[0]], names[shape[0]]
    writer = open_ledger(world, shape, ORDINARY, members)
    opened = world.metadata()[ORDINARY]
    replace_dead(world, writer, members[0], newcomer)
    changed = world.metadata()[ORDINARY]
    assert changed.segments[-1].first == BEFORE
    writer.write([10] * 4)
    for _ in range(3):
        writer.send(10)
    deliver(writer, writer.members, heard=False)
    writer.close()
    world.bookies[members[0]].start()
    closed = world.metadata()[ORDINARY]
    assert closed.last_entry == BEFORE + 3
    row = judged(world, shape, evidence=Evidence({ORDINARY: closed}))
    assert (row["outcome"], row["last_entry"], row["length"]) == ("restored", BEFORE + 3, closed.length)
    for stale in (opened, changed):
        row = judged(world, shape, evidence=Evidence({ORDINARY: stale}))
        assert (row["outcome"], row["last_entry"]) == ("restored", BEFORE + 6)
    # Closed below what a LAC shows to be acknowledged: not of this ledger, or by bookies that had lost it.
    below = replace(closed, last_entry=3, length=40)
    row = judged(world, shape, evidence=Evidence({ORDINARY: below}, is_honest=False))
    assert (row["outcome"], row["reason"], row["raw"]) == ("held", Refusal.TWO_HISTORIES, None)
    assert set(members) <= set(row["holders"])


def test_a_member_that_had_no_entry_of_its_segment_shows_a_deletion() -> None:
    """The record names it for entry 0, which its position leaves out; it collects entry 1, which others have, too."""
    shape = (3, 2, 2)
    world = make_world(shape, 5)
    members = list(world.bookies)[:3]
    writer = world.create(ORDINARY, shape, members)
    writer.write([10])
    writer.send(10)
    assert writer.deliver(members[2])
    writer.fail([members[2]])
    assert writer.change(lambda names: names[0])
    writer.deliver_all()
    writer.write([10] * 11)
    writer.close()
    assert [first for first, _ in world.records[ORDINARY].segments] == [0, 1]
    for bookie in world.bookies.values():
        bookie.flush()
    world.delete(ORDINARY)
    world.collect_garbage(members[2])
    row = judged(world, shape)
    assert (row["outcome"], row["reason"]) == ("held", Refusal.DELETED_SOMEWHERE)


@pytest.mark.parametrize("deleted", [False, True], ids=["moved", "deleted"])
def test_a_bookie_that_let_go_of_a_moved_ledger_shows_no_deletion(*, deleted: bool) -> None:
    """Its copies were made elsewhere, and it has logs alone; so has a bookie that collected a deleted ledger."""
    shape = (3, 2, 2)
    world = make_world(shape, 5)
    members, target = list(world.bookies)[:3], list(world.bookies)[3]
    writer = open_ledger(world, shape, ORDINARY, members)
    writer.write([10] * 20)
    writer.close()
    for bookie in world.bookies.values():
        bookie.flush()
    if deleted:
        world.delete(ORDINARY)
    else:
        world.bookies[members[0]].kill()
        assert world.repair(ORDINARY, members[0], lambda _: target)
        world.bookies[members[0]].start()
    world.collect_garbage(members[0])
    assert ORDINARY in world.bookies[members[0]].dropped
    row = judged(world, shape)
    if deleted:
        assert (row["outcome"], row["reason"]) == ("held", Refusal.DELETED_SOMEWHERE)
        return
    assert (row["outcome"], row["last_entry"], row["missing"]) == ("restored", BEFORE + 19, 0)
    assert [segment["members"] for segment in row["segments"]] == [[target, *members[1:]]]


@pytest.mark.parametrize("lost", [False, True])
def test_a_member_that_lost_an_entry_denies_none(*, lost: bool) -> None:
    """Entry 10 is on no bookie, and later ones on one: cut, unless a member lost an entry that it had before."""
    shape = (3, 2, 2)
    world = make_world(shape, 5)
    members = list(world.bookies)[:3]
    writer = open_ledger(world, shape, ORDINARY, members)
    for _ in range(3):
        writer.send(10)
    if lost:
        # All was acknowledged, and two members lost what they had of the tail, one of them an earlier entry, too.
        writer.deliver_all()
        for name in members[1:]:
            for entry in (4, 10, 11, 12):
                world.bookies[name].shelves[ORDINARY].fresh.pop(entry, None)
    else:
        deliver(writer, members[:1], heard=True)
    row = judged(world, shape)
    if lost:
        assert writer.record.acked == row["last_entry"] == BEFORE + 2
        assert (row["outcome"], row["reason"]) == ("guarded", Refusal.RAGGED_TAIL)
    else:
        assert row["last_entry"] == writer.record.acked == BEFORE - 1


def test_an_end_that_a_recovery_found_on_who_had_lost_the_rest_is_listed() -> None:
    """One newcomer was wiped, the other away: the recovery closed before both, and all that was acknowledged is back.

    One bookie has all entries, as in ledgers of W = 1, and others the first of them: more holders than W.
    """
    world = make_world((1, 1, 1), 4)
    names = list(world.bookies)
    writer = open_ledger(world, (2, 2, 2), ORDINARY, names[:2])
    world.bookies[names[1]].kill()
    writer.fail(names[:2])
    newcomers = iter(names[2:])
    assert writer.change(lambda _: next(newcomers))
    writer.write([10] * 20)
    copy_closed_segment(world, writer, names[1], names[2])
    world.bookies[names[1]].start()
    world.bookies[names[3]].wipe()
    world.bookies[names[2]].up = False
    assert world.recover(ORDINARY, list, lambda found: found[0])
    world.bookies[names[2]].up = True
    assert (writer.record.last, writer.record.acked) == (BEFORE - 1, BEFORE + 19)
    row = judged(world, None)
    assert (row["outcome"], row["write_quorum"], row["last_entry"]) == ("restored", 1, BEFORE + 19)
    assert lists_ends(row, BEFORE - 1, BEFORE + 18)


def test_an_end_that_a_recovery_found_on_who_lost_its_tail_is_listed() -> None:
    """It lost the end of what it had, and no trace of that is left; the other member was away."""
    world = make_world((2, 2, 2), 4)
    names = list(world.bookies)
    writer = open_ledger(world, (2, 2, 2), ORDINARY, names[:2])
    writer.write([10] * 20)
    lost = world.bookies[names[1]].shelves[ORDINARY].fresh
    for entry in [entry for entry in lost if entry > BEFORE]:
        del lost[entry]
    world.bookies[names[0]].kill()
    assert world.recover(ORDINARY, list, lambda found: found[0])
    world.bookies[names[0]].start()
    assert (writer.record.last, writer.record.acked) == (BEFORE, BEFORE + 19)
    row = judged(world, (2, 2, 2))
    assert row["last_entry"] == BEFORE + 19
    assert lists_ends(row, BEFORE, BEFORE + 18)


@pytest.mark.parametrize("stated", [False, True], ids=["A unknown", "A stated"])
def test_a_bookie_that_lost_a_folder_denies_nothing(*, stated: bool) -> None:
    """Two newcomers lost one folder of two for good, with entry 10. That they have half of the ledgers is no proof.

    Had they kept all that they got, no bookie ever got entry 10, and 11 would be left over.
    """
    shape = (3, 2, 2)
    world = make_world(shape, 5)
    members, newcomers = list(world.bookies)[:3], list(world.bookies)[3:]
    writer = open_ledger(world, shape, ORDINARY, members)
    choices = iter(newcomers)
    writer.fail(members[1:])
    assert writer.change(lambda _: next(choices))
    for _ in range(2):
        writer.send(10)
    writer.deliver_all()
    assert writer.record.acked == BEFORE + 1
    for bookie in world.bookies.values():
        bookie.flush()
    lost = {
        name: {
            ledger: frozenset(shelf.index) for ledger, shelf in world.bookies[name].shelves.items() if ledger % 2 == 0
        }
        for name in newcomers
    }
    inventory = inventories.inventory(world, View(incomplete=lost))
    shapes = count_shapes(inventory.copies, inventory.bookies)
    assert shapes.sample.holders
    prior = Prior.build(shapes, {shape: len(world.records)} if stated else None)
    assert set(newcomers) <= prior.kept[0].keys()
    options = InferOptions(passwords=PASSWORDS, lost_bookies=tuple(newcomers))
    rows = reconstruct(inventory.copies, inventory.bookies, inventory.damage, prior, options).to_pylist()
    [row] = [row for row in rows if row["ledger"] == ORDINARY]
    assert (row["outcome"], row["last_entry"], row["reason"]) == ("restored", BEFORE + 1, Refusal.RAGGED_TAIL)
    assert row["acked_high"] is None
