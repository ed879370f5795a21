"""Bookies against a store: which records are missing, which are on no bookie, and what the others disagree in."""

from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.findings.categories import Category
from reconcile.findings.table import FindingRun
from reconcile.rules import diff
from recovery.model import tables
from recovery.model.ids import LedgerId
from tests.support.inventories import fill_row

RUN: Final = FindingRun("r", datetime(2026, 1, 1, tzinfo=UTC))
IDS: Final = st.lists(st.builds(LedgerId, st.sampled_from([0, 7]), st.integers(0, 9)), unique=True, max_size=8)


def key(ledger: LedgerId) -> dict[str, int]:
    """The key columns of a ledger."""
    return {"bucket": ledger.bucket, "scope": ledger.scope, "ledger": ledger.ledger}


def record(number: int = 7, **known: Any) -> dict[str, Any]:
    """A closed record of the store: 3/2, ten entries."""
    usual = {"state": "CLOSED", "raw": b"", "last_entry": 9, "ensemble_size": 3, "write_quorum": 2}
    return fill_row(tables.CATALOG_LEDGERS, key(LedgerId(0, number)) | usual | known)


def shown(number: int = 7, grade: str = "observed", **known: Any) -> dict[str, Any]:
    """What bookies show of the same."""
    usual = {"outcome": "restored", "last_entry": 9, "ensemble_size": 3, "write_quorum": 2}
    grades = dict.fromkeys(tables.GRADED, "assumed") | {"ensemble_size": grade}
    return fill_row(tables.RECONSTRUCTION, key(LedgerId(0, number)) | usual | {"grades": grades} | known)


def hold(rows: list[dict[str, Any]], records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The findings of both sides."""
    one = pa.Table.from_pylist(rows, schema=tables.RECONSTRUCTION)
    two = pa.Table.from_pylist(records, schema=tables.CATALOG_LEDGERS)
    told: list[dict[str, Any]] = diff.findings(diff.disagreements(one, two, diff.match(one, two)), RUN).to_pylist()
    return told


@given(IDS, IDS)
def test_each_ledger_is_matched_by_its_scope_and_id(left: list[LedgerId], right: list[LedgerId]) -> None:
    """Those of both sides side by side, all in the order of their keys."""
    left, right = (sorted(ids, key=lambda n: tuple(key(n).values())) for ids in (left, right))
    one, two = (pa.Table.from_pylist([key(n) for n in ids], schema=pa.schema(tables.KEY)) for ids in (left, right))
    matched = diff.match(one, two)
    assert [left[n] for n in matched.held_rows] == [right[n] for n in matched.stored_rows]
    assert [left[n] for n in matched.held_rows] == [ledger for ledger in left if ledger in right]
    assert [left[n] for n in matched.missing] == [ledger for ledger in left if ledger not in right]
    assert [right[n] for n in matched.unheld] == [ledger for ledger in right if ledger not in left]


@pytest.mark.parametrize(
    ("of_bookies", "of_store", "told"),
    [
        ({}, {}, []),
        ({}, {"last_entry": 10}, [("ENTRIES_MISSING", "last_entry", "10", "9")]),
        ({}, {"last_entry": 8}, []),
        ({"last_entry": None}, {}, []),
        ({"outcome": "held"}, {"last_entry": 10, "ensemble_size": 4}, []),
        ({}, {"last_entry": 10, "ensemble_size": 4, "state": "OPEN"}, []),
        ({}, {"ensemble_size": 4}, [("QUORUM_DIFFERS", "ensemble_size/write_quorum", "4/2", "3/2")]),
        ({}, {"write_quorum": 3}, [("QUORUM_DIFFERS", "ensemble_size/write_quorum", "3/3", "3/2")]),
        ({"grade": "verified"}, {"write_quorum": 3}, [("QUORUM_DIFFERS", "ensemble_size/write_quorum", "3/3", "3/2")]),
        ({"grade": "inferred"}, {"write_quorum": 3}, []),
        ({}, {"state": None, "error": "cut short"}, [("METADATA_UNPARSABLE", "raw", "cut short", "nothing")]),
    ],
)
def test_what_both_sides_disagree_in(
    of_bookies: dict[str, Any], of_store: dict[str, Any], told: list[tuple[str, ...]]
) -> None:
    """An end that no bookie reaches, quorums that were seen to be others, bytes that are no record; else nothing."""
    # Beside a ledger that agrees, and one that the store lacks: rows are not mixed up.
    rows = [shown(3), shown(**of_bookies), shown(5, last_entry=1)]
    found = hold(rows, [record(**of_store), record(3)])
    assert [
        (row["category"], row["evidence"][0]["field"], *(one["value"] for one in row["evidence"])) for row in found
    ] == told
    assert all(row["ledger"] == 7 and row["bucket"] == LedgerId(0, 7).bucket for row in found)
    assert all([one["side"] for one in row["evidence"]] == ["store", "bookies"] for row in found)


@pytest.mark.parametrize(
    ("known", "told"),
    [
        ({}, [(Category.NOT_ON_BOOKIES, "9")]),
        ({"last_entry": 0}, [(Category.NOT_ON_BOOKIES, "0")]),
        ({"last_entry": -1}, []),
        ({"last_entry": None, "state": "OPEN"}, []),
        ({"state": "OPEN"}, []),
        ({"state": None, "last_entry": None, "error": "cut short"}, [(Category.METADATA_UNPARSABLE, "cut short")]),
    ],
)
def test_what_no_bookie_shows(known: dict[str, Any], told: list[tuple[str, str]]) -> None:
    """A closed ledger with entries; of one that is open or empty nobody can say."""
    found = hold([shown(3)], [record(3), record(**known)])
    assert [(row["category"], row["evidence"][0]["value"]) for row in found] == told
    assert all(row["evidence"][1]["value"] == "nothing" for row in found)
