"""What would break the rules by which a ledger is called deleted, or left out; see `test_reconstruct_census`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from reconcile.compare.decide import Case, decide_range
from reconcile.compare.deleted_since import mark_deleted
from reconcile.compare.evidence import BookieEvidence as Known
from reconcile.compare.evidence import KnownTables
from recovery.codecs.ledger_metadata import encode
from recovery.codecs.store import Layout
from recovery.infer.prior import Prior, count_shapes
from recovery.infer.reconstruct import InferOptions
from recovery.infer.refusal import Refusal
from recovery.model import tables
from recovery.model.metadata import LedgerMetadata, LedgerState
from tests.recovery.infer.test_search_open_repaired import ORDINARY, make_world, open_ledger
from tests.simulation import inventories
from tests.simulation.evidence import Evidence, Reference
from tests.simulation.inventories import View
from tests.simulation.protocol import World
from tests.simulation.row_truth import PASSWORDS

SHAPE = (3, 3, 2)


def decide(
    world: World,
    record: LedgerMetadata | None,
    unscanned: Sequence[str] = (),
    reference: Reference | None = None,
    deletion: LedgerMetadata | None = None,
    issued: int = 0,
    *,
    is_mass: bool = False,
    is_last: bool = False,
) -> dict[str, Any] | None:
    """Return what becomes of the ledger beside its record in a snapshot, or the one that was deleted; None: nothing."""
    inventory = inventories.inventory(world, View(unscanned=tuple(unscanned)))
    evidence = Evidence(
        {} if record is None else {ORDINARY: record},
        {} if reference is None else {ORDINARY: reference},
        {} if deletion is None else {ORDINARY: deletion},
    )
    catalog = evidence.catalog()
    known = Known(live=None, snapshots=(), everywhere=not unscanned, looked_at=True, mass_deletion=is_mass)
    options = InferOptions(passwords=PASSWORDS, unscanned_bookies=tuple(unscanned))
    case = Case((), inventory.bookies, known, options, Layout.HIERARCHICAL, None, members_known=True)
    prior = Prior.build(count_shapes(inventory.copies, inventory.bookies), {SHAPE: 9}, unscanned=tuple(unscanned))
    beside = KnownTables(
        tables.CATALOG_LEDGERS.empty_table(),
        () if catalog is None else ((catalog, 0),),
        evidence.history(),
        tables.CATALOG_LEDGERS.empty_table().select(list(tables.KEY_COLUMNS)),
        evidence.reference_table(),
        catalog.select([*tables.KEY_COLUMNS, "raw"]) if is_last and catalog is not None else None,
    )
    rows = decide_range(case, prior, inventory.copies, beside, issued).outcomes().to_pylist()
    return next((row for row in rows if row["ledger"] == ORDINARY), None)


def move_away(world: World, members: Sequence[str], targets: Sequence[str]) -> None:
    """Re-replicate each member's copies of a closed ledger to another bookie, and let the member collect its own."""
    choices = iter(targets)
    for dead in members:
        world.bookies[dead].kill()
        assert world.repair(ORDINARY, dead, lambda _: next(choices))
        world.bookies[dead].start()
    for bookie in world.bookies.values():
        bookie.flush()
    for name in members:
        world.collect_garbage(name)
        assert ORDINARY not in world.bookies[name].shelves


def test_a_ledger_that_moved_to_bookies_nobody_looked_at_is_not_called_deleted() -> None:
    """Its first members have logs of it and kept their data: the over-replicated check lets go of a ledger, too."""
    world = make_world(SHAPE, 6)
    members, targets = list(world.bookies)[:3], list(world.bookies)[3:]
    open_ledger(world, SHAPE, ORDINARY, members).close()
    record = world.metadata()[ORDINARY]
    move_away(world, members, targets)
    row = decide(world, record, unscanned=targets)
    assert row is not None
    assert (row["outcome"], row["reason"]) == ("held", Refusal.LOGS_OR_JOURNALS_ONLY)
    # One bookie that nobody looked at cannot have it: two others would have a copy. So it was deleted.
    world.delete(ORDINARY)
    for name in targets:
        world.collect_garbage(name)
    for unscanned in (targets[:1], ()):
        row = decide(world, record, unscanned=unscanned)
        assert row is not None
        assert (row["outcome"], row["reason"]) == ("held", Refusal.DELETED_SINCE)


@pytest.mark.parametrize(
    ("state", "hiding", "marked"),
    [
        (LedgerState.CLOSED, 0, True),
        (LedgerState.CLOSED, 2, True),
        (LedgerState.CLOSED, 3, False),
        (LedgerState.CLOSED, None, False),
        (LedgerState.OPEN, 1, True),
        (LedgerState.OPEN, 2, False),
    ],
)
def test_what_may_have_moved_is_not_marked_deleted(state: LedgerState, hiding: int | None, *, marked: bool) -> None:
    """A closed ledger to as many bookies as its members; an open one, before its first entry, to an ack quorum."""
    world = make_world(SHAPE, 6)
    members = list(world.bookies)[:3]
    writer = open_ledger(world, SHAPE, ORDINARY, members)
    if state is LedgerState.CLOSED:
        writer.close()
    catalog = Evidence({ORDINARY: world.metadata()[ORDINARY]}).catalog()
    assert isinstance(catalog, pa.Table)
    assert mark_deleted(catalog, members, hiding).tolist() == [marked]
    # With two of the three wiped nothing says so.
    assert mark_deleted(catalog, members[:1], hiding).tolist() == [False]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_an_open_record_is_held_where_newcomers_that_nobody_looked_at_may_have_it(count: int) -> None:
    """All its members were replaced in place before the first entry; fewer newcomers than A acknowledge nothing."""
    world = make_world(SHAPE, 6)
    members, newcomers = list(world.bookies)[:3], list(world.bookies)[3:]
    writer = world.create(ORDINARY, SHAPE, members)
    record = world.metadata()[ORDINARY]
    choices = iter(newcomers)
    writer.fail(members)
    assert writer.change(lambda _: next(choices))
    writer.write([10] * 5)
    assert writer.record.segments == [(0, newcomers)]
    unscanned = newcomers[:count]
    row = decide(world, record, unscanned=unscanned)
    if count < 3:
        # The third one shows it.
        assert row is not None
        return
    assert row is not None
    assert (row["outcome"], row["holders"]) == ("held", newcomers)
    # A ledger that never had an entry is left out where too few bookies are unseen to acknowledge one.
    empty = make_world(SHAPE, 6)
    empty.create(ORDINARY, SHAPE, members)
    assert decide(empty, record, unscanned=newcomers[:1]) is None


def test_a_record_that_an_upper_layer_disputes_is_left_out() -> None:
    """Its bookies were not looked at, so it comes back as it was; not one that was deleted, or has a later end."""
    world = make_world(SHAPE, 6)
    members = list(world.bookies)[3:]
    open_ledger(world, SHAPE, ORDINARY, members).close()
    record = world.metadata()[ORDINARY]
    row = decide(world, record, unscanned=members)
    assert row is not None
    assert (row["outcome"], row["last_entry"]) == ("restored", record.last_entry)
    assert decide(world, record, members, Reference(None, None, deleted=True)) is None
    assert decide(world, record, members, Reference(99, 1000)) is None
    assert decide(world, record, members, Reference(record.last_entry, record.length)) is not None


def test_what_a_client_deleted_stays_deleted_and_what_another_cluster_deleted_is_kept() -> None:
    """Bookies still serve it: the record that was deleted is its own, or has another key, or ends below a LAC."""
    world = make_world(SHAPE, 6)
    members = list(world.bookies)[:3]
    open_ledger(world, SHAPE, ORDINARY, members).close()
    own = world.metadata()[ORDINARY]
    row = decide(world, None, deletion=own)
    assert row is not None
    assert (row["outcome"], row["reason"]) == ("deleted", Refusal.DELETED_OUTSIDE)
    for other in (replace(own, password=b"another"), replace(own, last_entry=2, length=30)):
        row = decide(world, None, deletion=other)
        assert row is not None
        assert (row["outcome"], row["reason"], row["holders"]) == ("held", Refusal.TWO_HISTORIES, members)
    # So many deletions that they may be the catastrophe: nothing is let go of.
    row = decide(world, None, deletion=own, is_mass=True)
    assert row is not None
    assert (row["outcome"], row["reason"], row["holders"]) == ("held", Refusal.MASS_DELETION, members)


def test_an_id_that_was_given_out_before_is_held_and_not_deleted() -> None:
    """A client may choose a low id after the snapshot was taken: what bookies have of it is kept."""
    world = make_world(SHAPE, 6)
    members = list(world.bookies)[:3]
    open_ledger(world, SHAPE, ORDINARY, members).close()
    for issued, outcome in ((ORDINARY, "restored"), (ORDINARY + 1, "held")):
        row = decide(world, None, issued=issued)
        assert row is not None
        assert (row["outcome"], row["holders"]) == (outcome, members)


def test_a_record_that_no_bookie_shows_is_left_out_only_where_all_were_looked_at() -> None:
    """Its members lost all they had of it, or are not looked at: then it comes back as it was."""
    world = make_world(SHAPE, 6)
    members = list(world.bookies)[3:]
    open_ledger(world, SHAPE, ORDINARY, members).close()
    record = world.metadata()[ORDINARY]
    row = decide(world, record, unscanned=members)
    assert row is not None
    assert (row["outcome"], row["last_entry"]) == ("restored", record.last_entry)
    for name in members:
        world.bookies[name].wipe()
    assert decide(world, record) is None
    assert decide(world, record, unscanned=members[:1]) is not None


@pytest.mark.parametrize(("unscanned", "is_last", "outcome"), [((), True, "restored"), ((), False, None)])
def test_a_ledger_that_was_opened_and_got_no_entry_stays_open_where_the_store_had_it_last(
    unscanned: Sequence[str], outcome: str | None, *, is_last: bool
) -> None:
    """Its record is what it was, byte for byte; one of an earlier state may be of a ledger that is gone since."""
    world = make_world(SHAPE, 4)
    world.create(ORDINARY, SHAPE, list(world.bookies)[:3], password=PASSWORDS[0])
    record = world.metadata()[ORDINARY]
    assert record.state is LedgerState.OPEN
    row = decide(world, record, unscanned, is_last=is_last)
    assert (None if row is None else row["outcome"]) == outcome
    if row is not None:
        assert (row["state"], row["raw"]) == ("OPEN", encode(record))
