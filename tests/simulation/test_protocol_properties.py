"""The simulated protocol keeps what BookKeeper promises, whatever arrives when; and is the same for the same seed."""

from random import Random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.model.metadata import LedgerState
from tests.simulation import histories, inventories, judge
from tests.simulation.profiles import CLASSES
from tests.simulation.protocol import BATCH, Record, World, Writer

pytestmark = pytest.mark.long

NAMES: Final = tuple(f"b{n}" for n in range(9))
_shapes = st.integers(1, 5).flatmap(
    lambda e: st.integers(1, e).flatmap(lambda w: st.integers(1, w).map(lambda a: (e, w, a)))
)


def holders(world: World, ledger: int, entry: int) -> list[str]:
    """Return the bookies that serve an entry."""
    return [n for n, b in world.bookies.items() if ledger in b.shelves and b.shelves[ledger].get(entry) is not None]


def written(seed: int, shape: tuple[int, int, int], many: int) -> tuple[World, Writer]:
    """Write a ledger with adds under way, in whatever order they arrive, and bookies that fail."""
    rng = Random(seed)
    world = World(NAMES)
    writer = world.create(1, shape, rng.sample(NAMES, shape[0]))
    for _ in range(many):
        writer.send(rng.randint(1, 50))
        while writer.queues and rng.random() < 0.7:
            writer.deliver(rng.choice(list(writer.queues)))
        if rng.random() < 0.1:
            failed = rng.choice(writer.members)
            arrived = {failed: rng.randint(0, len(writer.queues.get(failed, ())))}
            writer.fail([failed], arrived)
            assert writer.change(rng.choice)
    return world, writer


def check_acknowledged(world: World, record: Record, last: int) -> None:
    """Every entry up to the last that is safe is on A bookies of its write set at least."""
    for entry in range(last + 1):
        own = set(record.write_set(entry))
        assert len(own & set(holders(world, 1, entry))) >= record.ack


@given(st.integers(0, 1 << 32), _shapes, st.integers(0, 40))
def test_what_is_acknowledged_is_stored(seed: int, shape: tuple[int, int, int], many: int) -> None:
    """Acknowledged entries are on A bookies of their write sets; a header's LAC is below its entry, and was true."""
    world, writer = written(seed, shape, many)
    check_acknowledged(world, writer.record, writer.lac)
    for bookie in world.bookies.values():
        for shelf in bookie.shelves.values():
            for entry, copy in shelf.list_served().items():
                assert copy.lac < entry
                assert copy.lac <= writer.lac
                assert copy.length == sum(writer.record.sizes[e] for e in range(entry + 1))
    firsts = [first for first, _ in writer.record.segments]
    assert firsts == sorted(set(firsts))
    assert firsts[0] == 0
    assert all(len(set(members)) == shape[0] for _, members in writer.record.segments)


@given(st.integers(0, 1 << 32), _shapes, st.integers(0, 40), st.booleans())
def test_a_closed_ledger_ends_where_its_writer_was_told(
    seed: int, shape: tuple[int, int, int], many: int, waits: bool
) -> None:
    """A close ends at the LAC, with the length up to it; adds that were not waited for do not count."""
    world, writer = written(seed, shape, many)
    if waits:
        writer.deliver_all()
        assert writer.lac == many - 1
    writer.close()
    record = world.records[1]
    assert (record.state, record.last) == (LedgerState.CLOSED, writer.lac)
    assert record.length == sum(record.sizes[e] for e in range(writer.lac + 1))


@given(st.integers(0, 1 << 32), _shapes, st.integers(0, 40))
def test_a_recovery_loses_nothing_acknowledged(seed: int, shape: tuple[int, int, int], many: int) -> None:
    """With all bookies there, a recovery in any order of answers ends at or above what was acknowledged, on all W."""
    world, writer = written(seed, shape, many)
    rng = Random(seed)
    assert world.recover(1, lambda names: rng.sample(names, len(names)), rng.choice)
    record = world.records[1]
    assert record.state is LedgerState.CLOSED
    assert record.last is not None
    assert record.last >= writer.lac
    check_acknowledged(world, record, record.last)
    # Its writer is fenced off: nothing that it still has under way counts.
    for name in list(writer.queues):
        if name in record.segments[-1][1]:
            assert not writer.deliver(name)


def test_what_was_deleted_cannot_be_recovered() -> None:
    """Who opens it is told that there is no such ledger; no bookie hears of that."""
    world, _ = written(5, (3, 2, 2), 8)
    world.delete(1)
    assert not world.recover(1, list, lambda names: names[0])
    assert not any(shelf.fenced for bookie in world.bookies.values() for shelf in bookie.shelves.values())


@given(st.integers(0, 1 << 32), _shapes, st.integers(1, 80))
def test_a_repair_gives_all_that_a_position_needs(seed: int, shape: tuple[int, int, int], many: int) -> None:
    """After a repair the new bookie has every entry of the position, batches of others' beside them, and a late LAC."""
    rng = Random(seed)
    world = World(NAMES)
    writer = world.create(1, shape, rng.sample(NAMES, shape[0]))
    writer.write([10] * many)
    writer.close()
    bad = rng.choice(writer.members)
    world.bookies[bad].kill()
    before = list(writer.members)
    if not world.repair(1, bad, rng.choice):
        assert shape[1] == 1
        return
    record = world.records[1]
    target = record.segments[0][1][before.index(bad)]
    assert target not in before
    place = before.index(bad)
    own = [entry for entry in range(many) if (place - entry) % shape[0] < shape[1]]
    shelf = world.bookies[target].shelves.get(1)
    held = shelf.list_served() if shelf else {}
    assert set(own) <= held.keys()
    for begin in range(own[0] if own else 0, many, BATCH):
        batch = [entry for entry in own if begin <= entry < begin + BATCH]
        assert {entry for entry in held if begin <= entry < begin + BATCH} == set(
            range(batch[0], batch[-1] + 1) if batch else ()
        )
    assert all(copy.lac == many - 1 for copy in held.values())


def changed(world: World, members: tuple[str, ...], newcomer: str) -> Writer:
    """Write seven entries, lose the first member, go on beside a newcomer for two; all that answer have them."""
    writer = world.create(1, (len(members), len(members), 2), members)
    writer.write([5] * 7)
    world.bookies[members[0]].kill()
    writer.fail([members[0]])
    assert writer.change(lambda _: newcomer)
    for _ in range(2):
        writer.send(5)
        for name in [name for name in writer.queues if world.bookies[name].up]:
            writer.deliver(name)
    return writer


def test_auto_recovery_copies_the_closed_segment_of_an_open_ledger() -> None:
    """Copies carry the LAC of that moment, which is no end; the last segment is left alone; the writer goes on."""
    world = World(NAMES)
    writer = changed(world, NAMES[:3], "b3")
    assert world.tend(1, lambda _: "b4")
    assert writer.record.segments == [(0, ["b4", "b1", "b2"]), (7, ["b3", "b1", "b2"])]
    held = world.bookies["b4"].shelves[1].list_served()
    assert {entry: copy.lac for entry, copy in held.items()} == dict.fromkeys(range(7), 7)
    assert writer.lac == 8
    writer.write([5])
    assert not world.misses_members(1)
    world.bookies["b3"].kill()
    assert world.misses_members(1)
    assert not world.tend(1, lambda _: "b5")
    assert writer.record.segments[-1] == (7, ["b3", "b1", "b2"])


def test_auto_recovery_takes_a_newcomer_that_stored_nothing_and_one_that_is_read_only() -> None:
    """A newcomer that answered nothing leaves no trace of its segment; a read-only one takes copies alone."""
    world = World(NAMES)
    world.bookies["b3"].up = False
    writer = changed(world, NAMES[:3], "b3")
    assert writer.lac == 8
    world.bookies["b4"].writable = False
    assert not world.bookies["b4"].add(1, 9, world.bookies["b1"].shelves[1].list_served()[8], writer.record.key)
    assert world.tend(1, lambda _: "b4") is False
    assert writer.record.segments == [(0, ["b4", "b1", "b2"]), (7, ["b3", "b1", "b2"])]
    assert 1 not in world.bookies["b3"].shelves
    assert sorted(world.bookies["b4"].shelves[1].list_served()) == list(range(7))


def test_auto_recovery_leaves_a_segment_that_no_lac_has_reached() -> None:
    """Nothing was acknowledged since the change: no bookie knows that the segment before it has ended."""
    world = World(NAMES)
    writer = world.create(1, (2, 2, 2), NAMES[:2])
    writer.write([5] * 3)
    world.bookies["b0"].kill()
    writer.fail(["b0"])
    assert writer.change(lambda _: "b2")
    assert not world.tend(1, lambda _: "b3")
    assert not world.repair(1, "b0", lambda _: "b3")
    writer.write([5])
    assert world.repair(1, "b0", lambda _: "b3")


def test_auto_recovery_replaces_who_lacks_the_first_or_the_last_entry() -> None:
    """A member that serves neither is replaced, although it is there; a closed ledger's copies carry its end."""
    world = World(NAMES)
    writer = world.create(1, (3, 3, 2), NAMES[:3])
    for _ in range(3):
        writer.send(5)
    for name in NAMES[:2]:
        while name in writer.queues:
            writer.deliver(name)
    writer.close()
    assert world.tend(1, lambda _: "b3")
    assert writer.record.segments == [(0, ["b0", "b1", "b3"])]
    assert [copy.lac for copy in world.bookies["b3"].shelves[1].list_served().values()] == [2, 2, 2]


def test_the_last_forced_entry_is_the_end_of_a_deferred_ledger() -> None:
    """DEFERRED_SYNC: eight entries of 20 bytes, forced after the fifth, end at 4 with a length of 160, as seen live."""
    world = World(NAMES)
    writer = world.create(1, (3, 2, 2), NAMES[:3], deferred=True)
    writer.write([20] * 5)
    assert writer.force()
    writer.write([20] * 3)
    writer.close()
    assert (world.records[1].last, world.records[1].length) == (4, 160)


def test_a_fence_is_lost_over_a_clean_stop_of_a_bookie_with_nothing_to_write() -> None:
    """The bookie takes adds again; a fence that came with recovery's writes stays."""
    for dirty in (False, True):
        world = World(NAMES)
        writer = world.create(1, (1, 1, 1), NAMES[:1])
        writer.write([5, 5])
        bookie = world.bookies[NAMES[0]]
        if not dirty:
            bookie.flush()
        bookie.fence(1, writer.record.key)
        bookie.stop()
        bookie.start()
        writer.send(5)
        assert writer.deliver(NAMES[0]) is not dirty


def test_what_was_deleted_stays_in_logs_and_comes_back_with_a_journal() -> None:
    """Collection forgets the index; after a kill the journal brings back what no checkpoint had."""
    world = World(NAMES)
    for ledger in (1, 2):
        writer = world.create(ledger, (1, 1, 1), NAMES[:1])
        writer.write([5, 5])
        writer.close()
        if ledger == 1:
            world.bookies[NAMES[0]].flush()
    world.delete(1)
    world.delete(2)
    world.collect_garbage(NAMES[0])
    bookie = world.bookies[NAMES[0]]
    assert not bookie.shelves
    assert {ledger: sorted(shelf.left) for ledger, shelf in bookie.dropped.items()} == {1: [0, 1], 2: []}
    bookie.kill()
    bookie.start()
    assert sorted(bookie.shelves[2].list_served()) == [0, 1]
    assert 1 not in bookie.shelves


@pytest.mark.parametrize(
    "name", [*CLASSES, "storm/unscanned", "killed/damaged", "mixed/incomplete", "full/few", "full/tight/few"]
)
def test_the_same_seed_is_the_same_history(name: str) -> None:
    """Twice the same records, rows and damage; another seed gives others."""
    one, other, third = (inventories.inventory(*histories.make(name, seed, 20)) for seed in (5, 5, 6))
    assert one.copies.equals(other.copies)
    assert one.damage.equals(other.damage)
    assert one.served == other.served
    assert not one.copies.equals(third.copies)


def test_what_is_served_is_what_the_rows_say() -> None:
    """Index rows, and journal rows of bookies that were not stopped cleanly, list exactly what bookies serve."""
    for name in CLASSES:
        found = inventories.inventory(*histories.make(name, 2, 60))
        clean = {row["bookie"] for row in found.bookies.to_pylist() if not row["dirty"]}
        listed: dict[tuple[int, str], set[int]] = {}
        for row in found.copies.to_pylist():
            if row["source"] == "index" or (row["source"] == "journal" and row["bookie"] not in clean):
                entries = listed.setdefault((row["ledger"], row["bookie"]), set())
                for group in row["groups"]:
                    for start in range(group["first"], group["last"] + 1, group["period"] or 1):
                        entries.update(range(start, start + group["size"]))
        served = {(ledger, b): set(held) for ledger, some in found.served.items() for b, held in some.items()}
        assert {place: entries for place, entries in listed.items() if entries} == served


def test_tallies_add_up() -> None:
    """Judged in two parts or in one, a class has the same figures."""
    whole, parts = judge.run("few", 24, 7), judge.run("few", 12, 7)
    parts.add(judge.run("few", 12, 9))
    assert (whole.ledgers, whole.paths, whole.entries) == (parts.ledgers, parts.paths, parts.entries)
    assert whole.grades == parts.grades
