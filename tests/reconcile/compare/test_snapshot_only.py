"""Ledgers that a snapshot alone has: what comes back, what is held, and what speaks against it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from reconcile.compare.evidence import BookieEvidence, Catalog
from reconcile.compare.snapshot_only import propose_rows
from reconcile.compare.three_way import join_sides
from recovery.dataset import DatasetWriter, open_dataset, sort_by_key
from recovery.infer.references import SCHEMA
from recovery.model import tables
from recovery.model.metadata import NO_ENTRY, LedgerState, Segment
from tests.reconcile.compare.test_deleted_since import CLOSED, MEMBERS, OPEN, A, B, C, D, known

EMPTY: Final = replace(CLOSED, last_entry=NO_ENTRY, length=0)
LONGER: Final = replace(OPEN, segments=(Segment(0, (A, B, C)), Segment(5, (A, B, D))))
RECORDS: Final = (CLOSED, EMPTY, OPEN, LONGER, replace(OPEN, state=LedgerState.IN_RECOVERY))
WHOLE: Final = BookieEvidence(live=None, snapshots=(), everywhere=True, looked_at=True)
IN_PART: Final = replace(WHOLE, everywhere=False)
ALONE: Final = replace(IN_PART, looked_at=False)


def propose(
    evidence: BookieEvidence,
    looked_at: Sequence[str] = (),
    hiding: Sequence[str] = (),
    *,
    alive: Sequence[int] = (),
    references: pa.Table | None = None,
    collided: Sequence[int] = (),
    deleted: Sequence[int] = (),
) -> dict[int, tuple[str, list[str]]]:
    """Return outcome and holders of each ledger of `RECORDS` that is proposed."""
    beside = replace(known(*RECORDS, alive=alive), references=references)
    part = join_sides(tables.RECONSTRUCTION.empty_table(), beside)
    ledgers = part.compared.sides["ledger"].to_numpy()
    part = replace(part, collided=np.isin(ledgers, collided), deleted_since=np.flatnonzero(np.isin(ledgers, deleted)))
    rows = propose_rows(evidence, part, beside, looked_at, hiding).to_pylist()
    return {row["ledger"]: (row["outcome"], row["holders"]) for row in rows}


RESTORED: Final = ("restored", list[str]())


def test_where_every_bookie_was_looked_at_only_what_had_no_entry_comes_back() -> None:
    """Closed without one; open without one, in one segment, where the store had it last."""
    assert propose(WHOLE) == {2: RESTORED}
    assert propose(WHOLE, MEMBERS, alive=[1, 2, 3, 4, 5]) == {2: RESTORED, 3: RESTORED}
    assert propose(WHOLE, MEMBERS, alive=[2, 4, 5]) == {2: RESTORED}


@pytest.mark.parametrize(
    "evidence", [IN_PART, replace(WHOLE, is_some_lost=True), replace(WHOLE, looked_at=False), ALONE]
)
def test_else_closed_ledgers_come_back_and_others_are_held(evidence: BookieEvidence) -> None:
    """By members that were not looked at; by all who may hide one where these are as many as an ack quorum."""
    closed = {1: RESTORED, 2: RESTORED}
    assert propose(evidence, MEMBERS) == closed
    held = {3: ("held", [C]), 4: ("held", [C, D]), 5: ("held", [C])}
    assert propose(evidence, [A, B], alive=[3]) == closed | held
    assert propose(evidence, [A, B, C], ["x:1"]) == closed | {4: ("held", [D])}
    both = ("held", ["x:1", "y:1"])
    assert propose(evidence, [A, B, C], ["x:1", "y:1"]) == closed | {3: both, 4: ("held", [D, *both[1]]), 5: both}


def test_without_bookies_a_store_with_ledgers_speaks_against_all(tmp_path: Path) -> None:
    """Another store may be the right one; an empty one is not, and bookies that were looked at decide."""
    with DatasetWriter(tmp_path, "catalog", binding={}) as out:
        out.close(coverage={})
    store = Catalog(open_dataset(tmp_path, "catalog"), "store", None, 0.0, 3)
    assert propose(replace(ALONE, live=store)) == {}
    assert propose(replace(ALONE, live=replace(store, ledgers=0)), MEMBERS) == {1: RESTORED, 2: RESTORED}
    assert propose(replace(IN_PART, live=store), MEMBERS) == {1: RESTORED, 2: RESTORED}


def test_what_collides_is_left_out_and_so_is_what_was_probably_deleted() -> None:
    """The latter only where every bookie was looked at: else copies may be where nobody did."""
    assert propose(IN_PART, MEMBERS, collided=[2], deleted=[1]) == {1: RESTORED}
    lost = replace(WHOLE, is_some_lost=True)
    assert propose(lost, MEMBERS, deleted=[1]) == {2: RESTORED}
    assert propose(replace(lost, looked_at=False), MEMBERS, deleted=[1]) == {1: RESTORED, 2: RESTORED}
    assert propose(WHOLE, collided=[1, 2, 3, 4, 5]) == {}


@pytest.mark.parametrize(
    ("reference", "is_left"),
    [
        ({}, True),
        ({"deleted": False, "last_entry": 9}, True),
        ({"last_entry": 10}, False),
        ({"last_entry": 3}, True),
        ({"deleted": True}, False),
        ({"deleted": True, "last_entry": 9}, False),
        ({"deleted": False, "last_entry": 10}, False),
    ],
)
def test_what_an_upper_layer_disputes_is_left_out(reference: dict[str, Any], *, is_left: bool) -> None:
    """It deleted the ledger, or knows a later end; references to others, or to open ledgers, dispute nothing."""
    key = {name: known(CLOSED).snapshots[0][0][name][0].as_py() for name in tables.KEY_COLUMNS}
    rows = known(*RECORDS).snapshots[0][0].select(list(tables.KEY_COLUMNS)).to_pylist()
    beside = [{**row, "last_entry": 5} for row in rows if row["ledger"] == 3]
    table = sort_by_key(pa.Table.from_pylist([{**key, **reference}, *beside], schema=SCHEMA))
    expected = {1: RESTORED, 2: RESTORED} if is_left else {2: RESTORED}
    found = propose(IN_PART, [A, B], references=table)
    assert {ledger: row for ledger, row in found.items() if ledger < 3} == expected
    assert sorted(found) == [*expected, 3, 4, 5]
