"""Which bookies were started anew: by their cookies, and by whether they have anything from before."""

from typing import Any

import pyarrow as pa
import pytest

from reconcile.check.scrutiny.incarnations import (
    count_older_records,
    find_with_older_data,
    list_changed,
    read_cookies,
)
from recovery.model import tables
from recovery.model.ids import LedgerId
from tests.support.inventories import fill_row


def stored(*ledgers: tuple[int, int]) -> pa.Table:
    """CATALOG_LEDGERS of (ledger, transaction of its last change), on bk1 and bk2."""
    rows: list[dict[str, Any]] = [
        {"ledger": n, "bucket": LedgerId(0, n).bucket, "raw": b"", "changed_txn": txn,
         "segments": [{"first": 0, "members": ["bk1", "bk2"]}]}
        for n, txn in ledgers
    ]  # fmt: skip
    return pa.Table.from_pylist([fill_row(tables.CATALOG_LEDGERS, row) for row in rows], schema=tables.CATALOG_LEDGERS)


@pytest.mark.parametrize(
    ("changed", "holds", "found"),
    [
        (99, "bk1", {"bk1"}),
        (100, "bk1", set()),
        (99, "bk9", set()),
    ],
)
def test_data_of_older_records_shows_that_a_bookie_was_not_started_anew(
    changed: int, holds: str, found: set[str]
) -> None:
    """After a restore every cookie is new, and so is none of the bookies. A record that changed since shows nothing."""
    copies = pa.table({"scope": [0], "ledger": [7], "bookie": [holds]})
    assert find_with_older_data(stored((7, changed)), copies, {"bk1": 100, "bk2": 100}) == found


def test_older_records_are_those_that_did_not_change_since_the_cookie() -> None:
    """One just before it, one with it, one after; of a bookie that no record names there are none."""
    records = stored((1, 99), (2, 100), (3, 101))
    assert count_older_records(records, {"bk1": 100, "bk3": 100}) == {"bk1": 1, "bk3": 0}


def test_only_bookies_that_older_records_name_are_told() -> None:
    """A new bookie that took an old one's name, and that nobody knows yet, harms nobody."""
    found = list(list_changed({"bk1": 9, "bk2": 9}, {"bk1": 3, "bk2": 3}, {"bk1": 2, "bk2": 0}))
    assert [(one.subject, one.severity) for one in found] == [("bk1", None)]


def test_cookies_are_read_from_their_own_nodes() -> None:
    """Of other nodes nothing is taken, nor of a store that tells no transactions."""
    nodes: list[dict[str, Any]] = [
        {"path": "/cookies/bk1:3181", "kind": "cookie", "created_txn": 5, "raw": b""},
        {"path": "/cookies/bk2:3181", "kind": "cookie", "created_txn": None, "raw": b""},
        {"path": "/available/bk1:3181", "kind": "registration", "created_txn": 6, "raw": b""},
    ]
    rows = [fill_row(tables.CATALOG_NODES, node) for node in nodes]
    assert read_cookies(pa.Table.from_pylist(rows, schema=tables.CATALOG_NODES)) == {"bk1:3181": 5}
