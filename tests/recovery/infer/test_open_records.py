"""Records that were open when the store was lost: its last ones stay open where their recovery loses nothing."""

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recovery.codecs import ledger_metadata
from recovery.infer import facts, open_records
from recovery.infer.open_records import can_stay_open
from recovery.infer.prior import Prior, count_shapes
from recovery.infer.reconstruct import InferOptions, reconstruct
from recovery.infer.search import Tail
from recovery.infer.segment_cases import Copies
from recovery.model import tables
from recovery.model.metadata import LedgerMetadata, LedgerState, Segment
from tests.recovery.infer.test_search_open_repaired import (
    BEFORE,
    ORDINARY,
    SHAPES,
    Shape,
    copy_closed_segment,
    make_world,
    open_ledger,
    replace_dead,
    send_acknowledged,
)
from tests.simulation import evidence, histories, inventories, nasty, simulator
from tests.simulation.cluster_judge import ClusterJudge
from tests.simulation.evidence import Evidence
from tests.simulation.inventories import View
from tests.simulation.protocol import World, Writer
from tests.simulation.row_truth import PASSWORDS
from tests.simulation.simulator import copy_row

pytestmark = pytest.mark.long


def make_repaired(shape: Shape, count: int, silent: Sequence[str] = ()) -> tuple[World, Writer]:
    """Return a cluster with an open ledger whose closed segment auto-recovery copied; the dead bookie is back."""
    world = make_world(shape, shape[0] + 2)
    names = list(world.bookies)
    writer = open_ledger(world, shape, ORDINARY, names[: shape[0]])
    replace_dead(world, writer, names[0], names[-1])
    send_acknowledged(writer, count, silent=silent)
    copy_closed_segment(world, writer, names[0], names[-2])
    world.bookies[names[0]].start()
    return world, writer


def recover(
    world: World, view: View | None = None, *, is_last: bool = True, tail: Tail = Tail.INCLUSIVE
) -> dict[int, dict[str, Any]]:
    """Return the rows of all ledgers beside the store's records, as its own files have them last, or earlier."""
    inventory = inventories.inventory(world, view)
    last = Evidence(world.metadata())
    catalog = last.catalog()
    assert catalog is not None
    prior = Prior.build(
        count_shapes(inventory.copies, inventory.bookies), last.quorums(), unscanned=inventory.unscanned
    )
    options = InferOptions(passwords=PASSWORDS, unscanned_bookies=inventory.unscanned, tail=tail)
    alive = catalog.select(["bucket", "scope", "ledger", "raw"]) if is_last else None
    rows = reconstruct(
        inventory.copies, inventory.bookies, inventory.damage, prior, options, catalog, None, alive
    ).to_pylist()
    return {row["ledger"]: row for row in rows}


def as_was(world: World, ledger: int) -> bytes:
    """Return the bytes of a ledger's true record."""
    return ledger_metadata.encode(world.records[ledger].metadata())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("count", [1, 5])
def test_what_was_open_last_stays_open(shape: Shape, count: int) -> None:
    """Byte for byte, with nothing said against it; and its recovery loses nothing, in whatever order bookies answer."""
    world, writer = make_repaired(shape, count)
    acked = writer.record.acked
    row = recover(world)[ORDINARY]
    assert (row["outcome"], row["reading"], row["state"]) == ("restored", "proved", "OPEN")
    assert (row["raw"], row["contradictions"]) == (as_was(world, ORDINARY), None)
    assert (row["last_entry"], row["length"], row["grades"]["state"]) == (None, None, "snapshot")
    assert str(BEFORE + count - 1) in {other["value"] for other in row["alternatives"]}
    writer.abandon()
    rng = Random(7)
    assert world.recover(ORDINARY, lambda names: rng.sample(names, len(names)), lambda names: names[0])
    assert (world.records[ORDINARY].last or 0) >= acked


def test_a_newcomer_without_an_entry_is_no_reason_to_close() -> None:
    """The last ensemble has one that hung: all that was acknowledged is on the others, which is enough."""
    world = make_world((3, 3, 2), 5)
    names = list(world.bookies)
    world, _ = make_repaired((3, 3, 2), 5, silent=[names[-1]])
    row = recover(world)[ORDINARY]
    assert (row["outcome"], row["state"], row["raw"]) == ("restored", "OPEN", as_was(world, ORDINARY))
    assert row["missing"] > 0


def test_an_earlier_record_is_closed_where_bookies_end() -> None:
    """What was open earlier may have been closed since, or had other bookies: no recovery is left to it."""
    world, _ = make_repaired((3, 3, 2), 5)
    row = recover(world, is_last=False)[ORDINARY]
    assert (row["outcome"], row["state"], row["last_entry"]) == ("restored", "CLOSED", BEFORE + 4)
    asked = recover(world, tail=Tail.ACKNOWLEDGED)[ORDINARY]
    assert asked["state"] == "CLOSED"


def test_what_may_be_hidden_or_lost_is_closed() -> None:
    """A recovery would take the answer of a bookie that lost entries for the truth: then all that is seen is read."""
    world, writer = make_repaired((3, 3, 2), 5)
    assert recover(world, View(unscanned=(writer.members[1],)))[ORDINARY]["state"] == "CLOSED"
    # Entries that one member alone has: fewer than acknowledge one, because others lost theirs.
    for name in writer.members[:2]:
        shelf = world.bookies[name].shelves[ORDINARY]
        for shelved in (shelf.fresh, shelf.index):
            shelved.pop(BEFORE + 2, None)
    row = recover(world)[ORDINARY]
    assert (row["state"], row["last_entry"]) == ("CLOSED", BEFORE + 4)


@pytest.mark.parametrize("shape", [(3, 3, 2), (3, 2, 2), (4, 3, 2)], ids=str)
@pytest.mark.parametrize("end", ["closed", "dropped"])
def test_a_true_record_is_never_contradicted_by_a_copy(shape: Shape, end: str) -> None:
    """Closed above, or below, what copies of the open ledger have as LAC: byte for byte, nothing held, nothing said."""
    world, writer = make_repaired(shape, 3)
    if end == "dropped":
        for _ in range(2):
            writer.send(10)
        for name in list(writer.queues):
            while name in writer.queues:
                writer.deliver(name, heard=False)
    writer.close()
    assert world.records[ORDINARY].state is LedgerState.CLOSED
    for is_last in (True, False):
        row = recover(world, is_last=is_last)[ORDINARY]
        assert (row["outcome"], row["raw"]) == ("restored", as_was(world, ORDINARY))
        assert row["contradictions"] is None


def test_only_the_bytes_that_the_store_had_last_stay_open() -> None:
    """A record of an earlier snapshot, where that of the last one is unreadable, is closed."""
    world, _ = make_repaired((3, 3, 2), 5)
    inventory = inventories.inventory(world)
    last = Evidence(world.metadata())
    catalog = last.catalog()
    assert catalog is not None
    alive = catalog.select(["bucket", "scope", "ledger", "raw"])
    alive = alive.set_column(3, "raw", pa.array([b"?"] * alive.num_rows, pa.binary()))
    prior = Prior.build(count_shapes(inventory.copies, inventory.bookies), last.quorums())
    rows = reconstruct(
        inventory.copies,
        inventory.bookies,
        inventory.damage,
        prior,
        InferOptions(passwords=PASSWORDS),
        catalog,
        None,
        alive,
    ).to_pylist()
    assert [row["state"] for row in rows if row["ledger"] == ORDINARY] == ["CLOSED"]


@pytest.mark.parametrize(
    ("name", "seed"), [("abandoned", 500), ("tight", 500), ("late", 500), ("lost-copies", 501), ("lost-copies", 502)]
)
def test_no_order_of_answers_loses_what_is_left_open(name: str, seed: int) -> None:
    """Each open ledger of a class is recovered by the simulator, four times; copies lost without a trace included."""
    make = nasty.make if name in nasty.NASTY else histories.make
    world, view = make(name, seed, 150)
    truth = evidence.make("now", name, seed, world, lambda: world)
    rows = list(recover(world, view).values())
    judged = ClusterJudge(f"{name}@now", seed, world, inventories.inventory(world, view), Tail.OPEN, truth, {})
    tally = judged.judge_rows(rows)
    assert not tally.violations, "\n".join(map(str, tally.violations[:3]))
    assert tally.opened > 0


@pytest.mark.parametrize(
    ("ends", "lac", "first", "stays"),
    [
        # Three full copies of an ensemble whose A is 2: as long as two hold each entry from the LAC on.
        ((9, 9, 9), 8, 0, True),
        ((9, 9, 4), 8, 0, True),
        ((9, 4, 4), 8, 0, False),
        ((9, 9, 9), 9, 0, True),
        # A LAC above what anybody holds: what was acknowledged is gone.
        ((9, 9, 9), 10, 0, False),
        # Before the last segment a recovery looks at nothing; its first entry is asked for all the same.
        ((9, 9, 9), -1, 5, True),
        ((9, 4, 4), -1, 9, False),
        ((9, 4, 4), -1, 10, True),
        ((9, 4, 4), 9, 5, False),
        # Nothing of the last segment is held, and the LAC is where it begins, or no bookie has all before it.
        ((9, 9, 9), -1, 10, True),
        ((9, 9, 9), -1, 11, False),
    ],
)
def test_which_entries_a_recovery_has_to_read(ends: tuple[int, ...], lac: int, first: int, *, stays: bool) -> None:
    """From the last segment on, or from behind the LAC: each on as many members as acknowledge one."""
    names = ["a:3181", "b:3181", "c:3181"]
    rows = [
        copy_row(
            7,
            name,
            range(end + 1),
            headers=[{"entry": end, "lac": min(lac, 8), "length": 9, "size": 46, "digest": None}],
        )
        | {"explicit_lac": lac if lac >= 0 else None}
        for name, end in zip(names, ends, strict=True)
    ]
    known = facts.read(pa.Table.from_pylist(rows, schema=tables.COPIES), simulator.bookies(names))
    segments = (Segment(0, tuple(names)),) if first == 0 else (Segment(0, tuple(names)), Segment(first, tuple(names)))
    stored = LedgerMetadata(3, 3, 3, 2, LedgerState.OPEN, None, None, segments)
    copies = Copies.from_columns(known.copies, slice(0, 3), known.row_bookie, known.row_copied)
    assert can_stay_open(known, 0, stored, copies, np.arange(3)) == stays


@pytest.mark.parametrize(("tail", "stays"), [(6, True), (5, False)])
def test_only_so_many_entries_behind_the_lac_are_looked_through(
    tail: int, monkeypatch: pytest.MonkeyPatch, *, stays: bool
) -> None:
    """With more of them the ledger is closed."""
    monkeypatch.setattr(open_records, "TAIL", tail)
    names = ["a:3181", "b:3181"]
    head = {"entry": 9, "lac": 3, "length": 9, "size": 46, "digest": None}
    rows = [copy_row(7, name, range(10), headers=[head]) for name in names]
    known = facts.read(pa.Table.from_pylist(rows, schema=tables.COPIES), simulator.bookies(names))
    stored = LedgerMetadata(3, 2, 2, 2, LedgerState.OPEN, None, None, (Segment(0, tuple(names)),))
    copies = Copies.from_columns(known.copies, slice(0, 2), known.row_bookie, known.row_copied)
    assert can_stay_open(known, 0, stored, copies, np.arange(2)) == stays
