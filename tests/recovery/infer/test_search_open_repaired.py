"""Auto-recovery copies segments of ledgers that are open: what a copy's LAC shows, and what it does not.

A bookie dies under a ledger, its writer goes on with a newcomer, auto-recovery copies the segment before, and stamps
the copies with the LAC that it read then. Bytes alone do not tell such a ledger from one that was closed at that LAC.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pytest

from recovery.infer.prior import Prior, count_shapes
from recovery.infer.reconstruct import InferOptions, reconstruct
from recovery.infer.search import Tail
from recovery.model.metadata import LedgerState
from tests.simulation import inventories
from tests.simulation.cluster_judge import ClusterJudge
from tests.simulation.histories import PASSWORD
from tests.simulation.inventories import Inventory, View
from tests.simulation.judge import NOTHING, Reconstruct, reconstruct_alone, reconstruct_rest
from tests.simulation.protocol import World, Writer
from tests.simulation.row_truth import PASSWORDS, is_within
from tests.simulation.tally import Tally

pytestmark = pytest.mark.long

SHAPES: Final = ((3, 3, 2), (3, 2, 2), (2, 2, 2), (3, 2, 1), (4, 3, 2))
ORDINARY: Final = 40
"""Closed ledgers beside those that are looked at: they show the shapes of the cluster, and which bookies kept all."""
BEFORE: Final = 10
"""Entries before the bookie died."""

Shape = tuple[int, int, int]
Choose = Callable[[Sequence[str]], str]


def make_world(shape: Shape, bookies: int) -> World:
    """Return a cluster of one shape, whose bookies all have first entries of many ledgers."""
    names = [f"10.0.0.{number}:3181" for number in range(1, bookies + 1)]
    world = World(names)
    for ledger in range(ORDINARY):
        members = [names[(ledger + i) % bookies] for i in range(shape[0])]
        writer = world.create(ledger, shape, members, password=PASSWORD)
        writer.write([10] * (12 + ledger % 5))
        writer.close()
    return world


def open_ledger(world: World, shape: Shape, ledger: int, members: Sequence[str]) -> Writer:
    """Return the writer of a ledger with the entries before."""
    writer = world.create(ledger, shape, members, password=PASSWORD)
    writer.write([10] * BEFORE)
    return writer


def replace_dead(world: World, writer: Writer, dead: str, newcomer: str) -> None:
    """Let a bookie die under a writer, which goes on with another one."""
    world.bookies[dead].kill()
    writer.fail([dead])
    assert writer.change(lambda names: newcomer if newcomer in names else names[0])


def copy_closed_segment(world: World, writer: Writer, dead: str, target: str, lac: int | None = None) -> None:
    """Let auto-recovery copy what the dead bookie had, with the LAC that it read; None: the last entry of it."""
    had = set(world.bookies[target].shelf(writer.ledger, writer.record.key).list_served())
    assert world.repair(writer.ledger, dead, lambda names: target if target in names else names[0])
    shelf = world.bookies[target].shelves[writer.ledger]
    for entry, copy in shelf.fresh.items():
        if entry not in had and lac is not None:
            shelf.fresh[entry] = copy._replace(lac=lac)


def send_acknowledged(writer: Writer, count: int, silent: Sequence[str] = ()) -> None:
    """Send entries, all before the first answer, that all but some bookies store: no header has a later LAC."""
    for _ in range(count):
        writer.send(10)
    for name in [name for name in writer.queues if name not in silent]:
        while name in writer.queues:
            writer.deliver(name)


def judge_world(
    world: World, shape: Shape | None, view: View | None = None, made: Reconstruct = reconstruct_alone
) -> tuple[Tally, dict[int, dict[str, Any]]]:
    """Judge what is made of the bookies, all of them scanned whole; the quorums are those that a snapshot states."""
    inventory = inventories.inventory(world, view)
    quorums = {} if shape is None else {shape: len(world.records)}
    rows = made(inventory, quorums=quorums or None).to_pylist()
    judge = ClusterJudge("open-repaired", 0, world, inventory, Tail.INCLUSIVE, NOTHING, Counter(quorums))
    return judge.judge_rows(rows), {row["ledger"]: row for row in rows}


def find_ends(row: dict[str, Any]) -> list[str]:
    """Return the other ends that a row lists."""
    return [other["value"] for other in row["alternatives"] if other["field"] == "last_entry"]


def lists_ends(row: dict[str, Any], low: int | None, high: int) -> bool:
    """Whether a row lists the other ends from one to another, and none above."""
    [ends] = find_ends(row)
    return low is not None and is_within(ends, low) and ends.endswith(f"..{high}")


ENDS: Final[dict[str, Callable[[World, Writer], object]]] = {
    "left open": lambda _, writer: writer.abandon(),
    "closed": lambda _, writer: writer.close(),
    "recovered": lambda world, writer: world.recover(writer.ledger, list, lambda names: names[0]),
}


@pytest.mark.parametrize("stated", [False, True], ids=["A unknown", "A stated"])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("spare", [1, 2, 3], ids=["E + 1", "E + 2", "E + 3"])
def test_what_a_newcomer_got_is_kept(spare: int, shape: Shape, end: str, *, stated: bool) -> None:
    """The dead bookie is copied while the ledger is open, and comes back: every acknowledged entry is readable."""
    world = make_world(shape, shape[0] + spare)
    names = list(world.bookies)
    for number in range(12):
        ledger = ORDINARY + number
        members = [names[(number + i) % len(names)] for i in range(shape[0])]
        others = [name for name in names if name not in members]
        writer = open_ledger(world, shape, ledger, members)
        dead = members[number % shape[0]]
        replace_dead(world, writer, dead, others[0])
        send_acknowledged(writer, 1 + number % 4)
        # In a cluster of E + 1 the copies go to the newcomer.
        lac = [None, BEFORE - 1 + number % 4][number % 2]
        copy_closed_segment(world, writer, dead, others[-1], lac)
        ENDS[end](world, writer)
        world.bookies[dead].start()
    tally, rows = judge_world(world, shape if stated else None)
    assert not tally.violations, "\n".join(map(str, tally.violations[:5]))
    for ledger, row in rows.items():
        assert row["outcome"] == "restored", row
        assert row["last_entry"] >= world.records[ledger].acked


@pytest.mark.parametrize("made", [reconstruct_alone, reconstruct_rest], ids=["gone", "stated to be lost"])
@pytest.mark.parametrize("stated", [False, True], ids=["A unknown", "A stated"])
@pytest.mark.parametrize("shape", [(3, 3, 2), (3, 2, 2), (2, 2, 2)], ids=str)
def test_what_is_seen_is_kept_where_a_bookie_is_gone(shape: Shape, made: Reconstruct, *, stated: bool) -> None:
    """One bookie after the other is missing: no acknowledged entry that another one has is above an end."""
    world = make_world(shape, shape[0] + 2)
    names = list(world.bookies)
    for number in range(8):
        members = names[number % 3 : number % 3 + shape[0]]
        others = [name for name in names if name not in members]
        writer = open_ledger(world, shape, ORDINARY + number, members)
        dead = members[number % shape[0]]
        replace_dead(world, writer, dead, others[0])
        send_acknowledged(writer, 1 + number % 4)
        copy_closed_segment(world, writer, dead, others[-1])
        if number % 2:
            writer.close()
        world.bookies[dead].start()
    for name in names:
        tally, rows = judge_world(world, shape if stated else None, View(unscanned=(name,)), made)
        # Whether all shapes are listed, of which one bookie in so few is gone, is asked elsewhere.
        broken = [violation for violation in tally.violations if violation.guarantee != "shape"]
        assert not broken, "\n".join(map(str, broken[:5]))
        assert {row["outcome"] for row in rows.values()} <= {"restored", "guarded"}


@pytest.mark.parametrize("stated", [False, True], ids=["A unknown", "A stated"])
@pytest.mark.parametrize("count", [1, 5, 50])
@pytest.mark.parametrize("shape", [(3, 3, 2), (2, 2, 1), (4, 3, 2)], ids=str)
def test_a_newcomer_that_stores_nothing_cuts_nothing_off(shape: Shape, count: int, *, stated: bool) -> None:
    """The newcomer hangs: nothing shows that a segment began, and all that the others acknowledged is kept."""
    world = make_world(shape, shape[0] + 2)
    names = list(world.bookies)
    members, (newcomer, target) = names[: shape[0]], names[shape[0] :]
    writer = open_ledger(world, shape, ORDINARY, members)
    replace_dead(world, writer, members[0], newcomer)
    send_acknowledged(writer, count, silent=[newcomer])
    acked = writer.record.acked
    assert acked >= BEFORE
    copy_closed_segment(world, writer, members[0], target)
    world.bookies[members[0]].start()
    tally, rows = judge_world(world, shape if stated else None)
    assert not tally.violations, "\n".join(map(str, tally.violations[:5]))
    row = rows[ORDINARY]
    assert (row["outcome"], row["state"]) == ("restored", "CLOSED")
    assert row["last_entry"] >= acked
    assert row["last_entry"] == BEFORE or lists_ends(row, BEFORE - 1, row["last_entry"] - 1)


@pytest.mark.parametrize("stated", [False, True], ids=["A unknown", "A stated"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_a_close_dropped_is_kept_where_all_have_it(shape: Shape, *, stated: bool) -> None:
    """A writer closes below adds that all W bookies stored: bytes show no end, so they are read; the end is listed."""
    world = make_world(shape, shape[0] + 2)
    names = list(world.bookies)
    members = names[: shape[0]]
    writer = open_ledger(world, shape, ORDINARY, members)
    for _ in range(3):
        writer.send(10)
    for name in list(writer.queues):
        while name in writer.queues:
            writer.deliver(name, heard=False)
    writer.close()
    world.bookies[members[0]].kill()
    assert world.repair(ORDINARY, members[0], lambda names: names[0])
    world.bookies[members[0]].start()
    tally, rows = judge_world(world, shape if stated else None)
    assert not tally.violations, "\n".join(map(str, tally.violations[:5]))
    row, true = rows[ORDINARY], world.records[ORDINARY]
    assert true.last == BEFORE - 1
    assert (row["outcome"], row["last_entry"]) == ("restored", BEFORE + 2)
    assert lists_ends(row, true.last, BEFORE + 1)


@pytest.mark.parametrize("shape", [(3, 3, 2), (3, 2, 2), (5, 3, 2)], ids=str)
def test_what_fewer_than_the_ack_quorum_have_ends_it_where_a_copy_has_a_lac_below(shape: Shape) -> None:
    """A recovery closes below adds that one bookie has, which was away: where A is stated, the row says what is cut."""
    world = make_world(shape, shape[0] + 2)
    names = list(world.bookies)
    members = names[: shape[0]]
    writer = open_ledger(world, shape, ORDINARY, members)
    for _ in range(3):
        writer.send(10)
    late = writer.members[BEFORE % shape[0]]
    while late in writer.queues:
        writer.deliver(late, heard=False)
    writer.queues.clear()
    world.bookies[late].up = False
    assert world.recover(ORDINARY, list, lambda names: names[0])
    true = world.records[ORDINARY]
    assert (true.state, true.last) == (LedgerState.CLOSED, BEFORE - 1)
    other = next(name for name in true.members(0) if name != late)
    world.bookies[late].up = True
    world.bookies[other].kill()
    assert world.repair(ORDINARY, other, lambda names: names[0])
    world.bookies[other].start()
    highest = max(world.bookies[late].shelves[ORDINARY].list_served())
    assert highest >= BEFORE

    def reconstruct_stated(inventory: Inventory, **_: object) -> pa.Table:
        prior = Prior.build(count_shapes(inventory.copies, inventory.bookies), None, shape)
        options = InferOptions(passwords=PASSWORDS)
        return reconstruct(inventory.copies, inventory.bookies, inventory.damage, prior, options)

    tally, rows = judge_world(world, None, made=reconstruct_stated)
    assert not tally.violations, "\n".join(map(str, tally.violations[:5]))
    row = rows[ORDINARY]
    assert (row["outcome"], row["last_entry"], row["length"]) == ("restored", true.last, true.length)
    # The longer ends are not hidden.
    assert lists_ends(row, true.last, highest)
    # Where no person states A, one copy may have been enough: records of other ledgers do not tell.
    for quorums in (None, shape):
        tally, rows = judge_world(world, quorums)
        assert not tally.violations, "\n".join(map(str, tally.violations[:5]))
        assert rows[ORDINARY]["last_entry"] >= BEFORE
        assert find_ends(rows[ORDINARY])


def test_records_of_other_ledgers_do_not_cut_one_that_needed_fewer_answers() -> None:
    """A = 1 in a cluster of A = 2: a newcomer does not answer, one member does, and the writer is told."""
    world = make_world((3, 3, 2), 4)
    names = list(world.bookies)
    writer = open_ledger(world, (3, 3, 1), ORDINARY, names[:3])
    replace_dead(world, writer, names[2], names[3])
    send_acknowledged(writer, 3, silent=[names[0], names[3]])
    assert writer.record.acked == BEFORE + 2
    copy_closed_segment(world, writer, names[2], names[3], lac=BEFORE - 1)
    world.bookies[names[2]].start()
    tally, rows = judge_world(world, (3, 3, 2))
    assert not tally.violations, "\n".join(map(str, tally.violations[:5]))
    assert rows[ORDINARY]["last_entry"] >= BEFORE + 2
