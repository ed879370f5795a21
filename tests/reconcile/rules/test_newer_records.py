"""A record that is newer than what was seen of a bookie that it names: what the bookie lacks of it says nothing."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reconcile.rules import diff
from reconcile.rules.segments.copies import Sight
from reconcile.rules.segments.newer_records import find_newer
from recovery.model import tables
from tests.support.inventories import fill_row

AT = datetime(2026, 1, 2, tzinfo=UTC)
MICROSECONDS = int(AT.timestamp() * 1_000_000)
NOTHING_HIDDEN = pa.schema([("scope", pa.int64()), ("ledger", pa.int64()), ("bookie", pa.string())]).empty_table()


def make_stored(*records: dict[str, Any]) -> pa.Table:
    """CATALOG_LEDGERS: closed ledgers of ten entries on two ensembles of two, as given else."""
    segments = [{"first": 0, "members": ["bk1", "bk2"]}, {"first": 5, "members": ["bk2", "bk3"]}]
    rows = [
        fill_row(tables.CATALOG_LEDGERS, {
            "ledger": number, "state": "CLOSED", "last_entry": 9, "raw": b"", "segments": segments, **record,
        })
        for number, record in enumerate(records)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=tables.CATALOG_LEDGERS)


def make_sight(since: dict[str, int | None], as_of: dict[str, int] | None = None) -> Sight:
    """Bookies that were looked at."""
    return Sight(since, frozenset(), NOTHING_HIDDEN, as_of=as_of or {})


@pytest.mark.parametrize(
    ("sight", "newer"),
    [
        (make_sight({"bk1": 0, "bk2": 0, "bk3": 0}, {"bk1": 9, "bk2": 9, "bk3": 7}), [False, True, True, False, False]),
        (make_sight({"bk3": 0}, {"bk3": 8}), [False, False, True, False, False]),
        (make_sight({"bk3": None, "bk4": 0}, {"bk4": 1}), [False] * 5),
        (make_sight({"bk2": MICROSECONDS}), [False, False, True, False, False]),
        (make_sight({"bk2": MICROSECONDS - 1}), [False, True, True, False, False]),
        (make_sight({"bk2": MICROSECONDS - 1}, {"bk2": 8}), [False, False, True, False, False]),
        (make_sight({}), [False] * 5),
    ],
)
def test_a_record_that_changed_after_a_running_member_was_looked_at_is_newer(sight: Sight, newer: list[bool]) -> None:
    """By the transaction, where one was read before the bookie; else by the time. Of any segment; of no stranger."""
    stored = make_stored(
        {"changed_txn": 7, "changed_at": AT - timedelta(seconds=9)},
        {"changed_txn": 8, "changed_at": AT},
        {"changed_txn": None, "changed_at": None},
        {"changed_txn": 99, "segments": []},
        {"changed_txn": 99, "segments": None},
    )
    assert find_newer(stored, sight).tolist() == newer


def test_nothing_is_found_of_no_record() -> None:
    """An empty range."""
    assert find_newer(make_stored(), make_sight({"bk1": 0}, {"bk1": 1})).tolist() == []


def test_what_is_newer_is_neither_missing_nor_too_short() -> None:
    """Of two records that nobody shows, and two of which bookies show less, only the older ones are told."""
    stored = make_stored({}, {}, {}, {})
    shown = [
        fill_row(tables.RECONSTRUCTION, {"ledger": number, "outcome": "restored", "last_entry": 5, "grades": {}})
        for number in (2, 3)
    ]
    rows = pa.Table.from_pylist(shown, schema=tables.RECONSTRUCTION)
    matched = diff.match(rows, stored)
    told = {
        (row["ledger"], row["category"])
        for row in diff.disagreements(rows, stored, matched, np.array([False, True, False, True])).to_pylist()
    }
    assert told == {(0, "NOT_ON_BOOKIES"), (2, "ENTRIES_MISSING")}
    assert diff.disagreements(rows, stored, matched).num_rows == 4
