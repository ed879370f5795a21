"""How old an inventory is beside a store's records: what says it, and what is left where nothing does."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from reconcile.check.scrutiny.evidence_age import Moment, find_ages, find_latest
from recovery.model import tables
from tests.support.inventories import fill_row

BEGAN = datetime(2026, 1, 1, 12, tzinfo=UTC)
MOMENTS = [Moment(txn, BEGAN + timedelta(seconds=at)) for txn, at in ((30, 1), (20, -3), (10, -60))]


def find(*, as_of: int | None, mode: str = "disks", dirty: bool | None = True, registered: bool = True,
         newest: int | None = 100, moments: list[Moment] = MOMENTS) -> dict[str, int | None]:  # fmt: skip
    """The age of one bookie's inventory."""
    given = {"bookie": "bk1", "mode": mode, "dirty": dirty, "started": BEGAN, "as_of": as_of}
    rows = pa.Table.from_pylist([fill_row(tables.BOOKIES, given)], schema=tables.BOOKIES)
    return find_ages(rows, ["bk1"] if registered else [], moments, newest)


def test_what_the_inventory_says_counts() -> None:
    """It is from before the collection, whatever earlier runs know, and of lists over the wire, too."""
    assert find(as_of=50) == find(as_of=50, mode="wire") == {"bk1": 50}


def test_without_it_the_newest_transaction_that_is_surely_older() -> None:
    """One that a run had read a moment before, by another clock, may be newer."""
    assert find(as_of=None) == {"bk1": 20}
    assert find(as_of=None, moments=[*MOMENTS, Moment(25, find_latest(BEGAN))]) == {"bk1": 25}
    just_later = Moment(25, find_latest(BEGAN) + timedelta(microseconds=1))
    assert find(as_of=None, moments=[*MOMENTS, just_later]) == {"bk1": 20}


def test_a_transaction_that_the_store_never_had_is_of_another_past() -> None:
    """The store was put back since: what was current then tells nothing now."""
    assert find(as_of=101) == {"bk1": 20}
    assert find(as_of=100) == find(as_of=100, newest=None) == {"bk1": 100}


@pytest.mark.parametrize(
    ("registered", "dirty", "counts"), [(False, False, False), (False, True, True), (True, False, True)]
)
def test_a_bookie_that_was_stopped_may_have_run_since(registered: bool, dirty: bool, counts: bool) -> None:
    """It may have been started, have got entries, and be down again; only where nothing dates it, it counts as new."""
    assert find(as_of=5, dirty=dirty, registered=registered) == {"bk1": 5}
    assert bool(find(as_of=None, dirty=dirty, registered=registered)) is counts


def test_a_table_is_never_old() -> None:
    """Nothing of it is believed to be missing."""
    assert find(as_of=None, mode="table") == {}
