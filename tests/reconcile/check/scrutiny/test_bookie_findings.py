"""Findings of bookies: what names each, and what is counted."""

from dataclasses import replace

import pyarrow as pa
import pytest

from reconcile.check.scrutiny.bookie_findings import (
    LOST_BOOKIE_DELAY,
    count_naming,
    list_listing_doubts,
    list_silent,
    list_suspect_disks,
    list_unaware,
    list_unresolved,
    read_lost_bookie_delay,
)
from reconcile.check.scrutiny.replication import StoredReplication
from recovery.errors import Reason
from recovery.model import tables
from tests.reconcile.check.scrutiny.test_replication import around, node, stored
from tests.support.inventories import fill_row


def test_a_silent_bookie_is_named_with_the_error_that_was_seen() -> None:
    """Each once, in their order."""
    found = list(list_silent(["bk2", "bk1"], {"bk1": "connection refused"}))
    assert [one.subject for one in found] == ["bk1", "bk2"]
    assert [one.statements[1].value for one in found] == ["connection refused", "none"]


def test_a_name_of_nobody_is_told_with_the_reason() -> None:
    """One finding a name."""
    [found] = list_unresolved({"old:3181": "no cookie"})
    assert (found.subject, found.bookies, found.statements[0].value) == ("old:3181", ["old:3181"], "no cookie")


def test_a_folder_is_suspect_where_its_damage_says_so() -> None:
    """Another kind of damage is none of a disk."""
    rows = [
        fill_row(tables.DAMAGE, {"bookie": "bk1", "file": file, "reason": reason.value, "detail": "3 of 4"})
        for file, reason in (("/a", Reason.SUSPECT_DISK), ("/b", Reason.MISSING))
    ]
    [found] = list_suspect_disks(pa.Table.from_pylist(rows, schema=tables.DAMAGE))
    assert (found.subject, [one.value for one in found.statements]) == ("bk1 /a", ["/a", "3 of 4"])


@pytest.mark.parametrize(("gaps", "named", "more"), [(0, 0, None), (1, 1, None), (12, 12, None), (13, 12, 1)])
def test_parts_that_were_not_read_are_named_and_beyond_a_dozen_counted(gaps: int, named: int, more: int | None) -> None:
    """Where all was read and few went there is nothing to be doubted."""
    found = list(list_listing_doubts([f"/{n}" for n in range(gaps)], 100, 1000))
    said = [(one.field, one.value) for finding in found for one in finding.statements]
    assert [value for field, value in said if field == "not read"] == [f"/{n}" for n in range(named)]
    assert dict(said).get("more parts that were not read") == more
    [mass] = list_listing_doubts([], 101, 1000)
    assert [one.value for one in mass.statements] == ["101 of 1000"]


@pytest.mark.parametrize(("raw", "seconds"), [(b"180", 180.0), (b" 7\n", 7.0), (b"x", 0.0), (b"", 0.0), (b"-1", 0.0)])
def test_the_auditors_delay_is_what_the_store_says(raw: bytes, seconds: float) -> None:
    """What is no number is none; so it is where the store has no such node."""
    delay = fill_row(tables.CATALOG_NODES, {**node(LOST_BOOKIE_DELAY, "other"), "raw": raw})
    other = fill_row(tables.CATALOG_NODES, {**node("/underreplication/other", "other"), "raw": b"99"})
    table = pa.Table.from_pylist([other, delay], schema=tables.CATALOG_NODES)
    assert read_lost_bookie_delay(table) == seconds
    assert read_lost_bookie_delay(table.slice(0, 1)) == 0.0


def test_a_ledger_that_names_a_bookie_counts_once() -> None:
    """Of each bookie that was asked about; those that are left out do not count."""
    records = stored(1, 2, 3, members=("bk1", "bk2", "bk1"))
    assert count_naming(records, ["bk1", "bk9"]) == {"bk1": 3}
    assert count_naming(records, ["bk1", "bk2"], records.slice(0, 1)) == {"bk1": 2, "bk2": 2}
    assert count_naming(records, []) == count_naming(records.slice(0, 0), ["bk1"]) == {}


@pytest.mark.parametrize(
    ("replication", "why"),
    [
        (around([], auditor=False), "no auditor is elected"),
        (replace(around([], auditor=False), disabled="replication is disabled"), "replication is disabled"),
    ],
)
def test_why_nobody_marks_is_what_the_store_shows_however_long_it_lasts(
    replication: StoredReplication, why: str
) -> None:
    """That nobody is elected, or that somebody disabled it, comes before how long the bookie is gone."""
    for waited_s in (0.0, 1e6):
        [found] = list_unaware({"bk1": 3}, replication, 10.0, {"bk1": waited_s})
        assert (found.subject, [one.value for one in found.statements]) == ("bk1", ["none", 3, why])
