"""Which bookies lost their data: by their cookies, by having nothing, and as long as their ledgers are not repaired."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from reconcile.check.scrutiny.incarnations import (
    BY_COOKIE,
    EMPTY,
    MANY,
    Traces,
    Wiped,
    count_lacking,
    find_beginnings,
    find_wiped,
    list_changed,
    make_wiped_rows,
    read_cookies,
    read_wiped,
    trace_bookies,
)
from recovery.model import tables
from recovery.model.ids import LedgerId
from tests.support.inventories import fill_row

AT = datetime(2026, 1, 2, tzinfo=UTC)
EARLIER = AT - timedelta(days=1)
KNOWN = Wiped("bk1", 100, 100, 3, BY_COOKIE, EARLIER, 2)


def make_pairs(*rows: tuple[int, int | None, str, bool, bool]) -> pa.Table:
    """Ledger, transaction of its record, bookie, whether it has anything, whether it was asked."""
    names = ["ledger", "changed_txn", "bookie", "holds", "known"]
    columns = zip(*rows, strict=True)
    return pa.table({name: list(column) for name, column in zip(names, columns, strict=True)})


def make_missing(*rows: tuple[int, int | None]) -> pa.Table:
    """MISSING of bk1: ledger, transaction of its record."""
    of = {"scope": 0, "bookie": "bk1", "entries": 3, "groups": [], "seen": AT}
    filled = [{**of, "ledger": n, "bucket": LedgerId(0, n).bucket, "record_txn": txn} for n, txn in rows]
    return pa.Table.from_pylist(filled, schema=tables.MISSING)


def test_traces_part_records_at_the_transaction_of_the_cookie() -> None:
    """One just before it, one with it, one after, one of unknown age; of another bookie nothing is counted."""
    pairs = make_pairs(
        (1, 99, "bk1", True, True), (2, 99, "bk1", False, True), (3, 99, "bk1", False, False),
        (4, 100, "bk1", True, True), (5, 101, "bk1", False, True), (6, None, "bk1", False, True),
        (7, 5, "bk2", True, True),
    )  # fmt: skip
    traces = trace_bookies(pairs, {"bk1": 100})
    assert traces["bk1"] == Traces(older=2, older_held=1, older_unseen=1, asked=5, holding=2)
    assert (traces["bk2"].older, traces["bk2"].asked) == (0, 1)
    assert traces["bk1"] + traces["bk2"] == Traces(2, 1, 1, 6, 3)


@pytest.mark.parametrize(
    ("seen", "evidence"),
    [
        (Traces(older=1, asked=1), BY_COOKIE),
        (Traces(older=2, older_held=1, asked=2, holding=1), None),
        (Traces(older=1, asked=5, holding=4), BY_COOKIE),
        (Traces(older_unseen=9, asked=3, holding=3), None),
        (Traces(asked=MANY), EMPTY),
        (Traces(asked=MANY - 1), None),
        (Traces(asked=MANY, holding=1), None),
    ],
)
def test_a_wiped_bookie_is_found_without_a_run_before(seen: Traces, evidence: str | None) -> None:
    """It has nothing that is older than its cookie; or nothing at all of many ledgers."""
    found = find_wiped({"bk1": seen}, {"bk1": 100}, {}, {}, 500, AT)
    assert [one.evidence for one in found] == ([] if evidence is None else [evidence])
    if found:
        assert (found[0].before_txn, found[0].since) == (100 if evidence == BY_COOKIE else 501, AT)
        assert found[0].earlier_cookie_txn is None


def test_the_cookie_of_the_run_before_is_named_where_it_was_another_one() -> None:
    """After a restore of the store each cookie is new, too: by itself it says nothing."""
    wiped, kept = Traces(older=1, asked=1), Traces(older=1, older_held=1, asked=1, holding=1)
    cookies, earlier = {"bk1": 100, "bk2": 100}, {"bk1": 3, "bk2": 3}
    [found] = find_wiped({"bk1": wiped, "bk2": kept}, cookies, earlier, {}, 500, AT)
    assert (found.bookie, found.earlier_cookie_txn) == ("bk1", 3)


@pytest.mark.parametrize(
    ("cookies", "seen", "stays"),
    [
        ({"bk1": 100}, Traces(older=1, older_held=1, asked=1, holding=1), True),
        ({"bk1": 100}, Traces(older_unseen=1), True),
        ({"bk1": 100}, Traces(asked=5, holding=5), False),
        ({}, Traces(older=1), True),
        ({"bk1": 400}, Traces(older=1, older_held=1, asked=1, holding=1), True),
    ],
)
def test_a_wiped_bookie_is_passed_on_while_older_records_name_it(
    cookies: dict[str, int], seen: Traces, *, stays: bool
) -> None:
    """Some of its data is back, it does not answer, its cookie is gone or new: none of these repairs its ledgers."""
    found = find_wiped({"bk1": seen}, cookies, {}, {"bk1": KNOWN}, 500, AT)
    assert [one.since for one in found] == ([EARLIER] if stays else [])


def test_a_bookie_that_was_wiped_again_lost_what_it_had_got_since_then_too() -> None:
    """Its cookie is another one than the wiped bookie had, and it has nothing older than that: it is known anew."""
    [found] = find_wiped({"bk1": Traces(older=1, asked=1)}, {"bk1": 400}, {}, {"bk1": KNOWN}, 500, AT)
    assert (found.before_txn, found.cookie_txn, found.since) == (400, 400, AT)
    # With some of its data back it is the loss that was known; with nothing older to ask for there is none.
    some = Traces(older=2, older_held=1, asked=2, holding=1)
    [passed_on] = find_wiped({"bk1": some}, {"bk1": 400}, {}, {"bk1": KNOWN}, 500, AT)
    assert passed_on == Wiped("bk1", 400, 400, None, BY_COOKIE, EARLIER)
    assert find_wiped({"bk1": Traces(asked=5, holding=5)}, {"bk1": 400}, {}, {"bk1": KNOWN}, 500, AT) == []


def test_what_tells_no_transaction_shows_no_wiped_bookie() -> None:
    """Neither a bookie without a cookie that none knew, nor an empty one beside a store that counts nothing."""
    assert find_wiped({"bk1": Traces(older=1, asked=1)}, {}, {}, {}, 500, AT) == []
    assert find_wiped({"bk1": Traces(asked=MANY)}, {"bk1": 100}, {}, {}, None, AT) == []


def test_what_an_empty_bookie_had_lost_stays_known_when_it_gets_new_ledgers() -> None:
    """Its cookie is as old as before: the run that saw it empty says which records are older."""
    empty = Wiped("bk1", 501, 3, None, EMPTY, EARLIER)
    known = read_wiped(make_wiped_rows([empty]))
    assert known == {"bk1": empty}
    assert find_beginnings({"bk1": 3, "bk2": 4}, known) == {"bk1": 501, "bk2": 4}
    assert find_beginnings({"bk1": 600}, known) == {"bk1": 600}
    assert find_beginnings({}, known) == {"bk1": 501}


def test_only_records_that_are_older_count_as_not_repaired() -> None:
    """Two rows of one ledger are one; what a record asks of it since then is another loss."""
    counted = count_lacking([KNOWN], make_missing((1, 99), (1, 99), (2, 100), (3, None), (4, 7)))
    assert counted == {"bk1": 2}


def test_the_finding_says_since_when_and_how_much_is_left() -> None:
    """And that its old disks may have it."""
    [found] = list_changed([KNOWN], {"bk1": Traces(older=5, older_held=3, older_unseen=1)})
    said = {one.field: str(one.value) for one in found.statements}
    assert (found.subject, found.bookies, found.unknowns) == ("bk1", ["bk1"], ["the content of its old disks"])
    assert said["of these, ledgers of which it lacks entries"] == "2"
    assert said["seen like this since"] == EARLIER.isoformat(timespec="seconds")
    cookies = [(one.side, one.value) for one in found.statements if one.field == "cookie made in transaction"]
    assert cookies == [("earlier", 3), ("store", 100)]
    assert said["of these, not asked for in this run"] == "1"
    [other] = list_changed([replace(KNOWN, earlier_cookie_txn=None)], {"bk1": Traces(older=5)})
    fields = [(one.side, one.field) for one in other.statements]
    assert ("earlier", "cookie made in transaction") not in fields
    assert ("bookies", "of these, not asked for in this run") not in fields


def test_cookies_are_read_from_their_own_nodes() -> None:
    """Nothing is taken of other nodes, nor of a store that tells no transactions."""
    nodes: list[dict[str, Any]] = [
        {"path": "/cookies/bk1:3181", "kind": "cookie", "created_txn": 5, "raw": b""},
        {"path": "/cookies/bk2:3181", "kind": "cookie", "created_txn": None, "raw": b""},
        {"path": "/available/bk1:3181", "kind": "registration", "created_txn": 6, "raw": b""},
    ]
    rows = [fill_row(tables.CATALOG_NODES, node) for node in nodes]
    assert read_cookies(pa.Table.from_pylist(rows, schema=tables.CATALOG_NODES)) == {"bk1:3181": 5}
