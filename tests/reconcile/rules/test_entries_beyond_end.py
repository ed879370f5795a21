"""Entries above a closed end: what is critical, what is not, and what each finding says."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.rules import entries_beyond_end
from recovery.model import metadata as md
from recovery.model import tables
from recovery.model.ids import LedgerId
from tests.reconcile.rules.test_id_reuse import LAST, NAMES, RUN, copies, stored
from tests.support.inventories import fill_row


@given(st.dictionaries(st.sampled_from(NAMES), st.sets(st.integers(0, 14), min_size=1), min_size=1), st.booleans())
def test_what_as_many_hold_as_acknowledge_is_a_warning(held: dict[str, set[int]], seen: bool) -> None:
    """Else it is what a close drops; which entries, and on which bookies, is what the bookies hold."""
    found = entries_beyond_end.findings(copies(held), stored(), RUN, seen=seen).to_pylist()
    above = {name: {one for one in entries if one > LAST} for name, entries in held.items()}
    entries = sorted(set().union(*above.values()))
    assert len(found) == bool(entries)
    for one in found:
        most = max(sum(entry in mine for mine in above.values()) for entry in entries)
        assert one["severity"] == ("info" if seen and most < 2 else "warning")
        assert one["bookies"] == sorted(name for name, mine in above.items() if mine)
        runs = [range(run["first"], run["last"] + run["size"]) for run in one["entries"]]
        assert sorted(entry for run in runs for entry in run) == entries


def test_what_a_lac_shows_is_critical_on_a_single_bookie() -> None:
    """The LAC of a later entry says that one above the end was acknowledged."""
    [found] = entries_beyond_end.findings(copies({"a:1": {11}}, lac=10), stored(), RUN, seen=True).to_pylist()
    assert (found["severity"], found["unknowns"]) == ("critical", [])
    assert entries_beyond_end.findings(copies({"a:1": {9}}), stored(), RUN, seen=True).num_rows == 0
    open_one = stored(state=md.LedgerState.OPEN, last_entry=None, length=None)
    assert entries_beyond_end.findings(copies({"a:1": {11}}), open_one, RUN, seen=True).num_rows == 0


@pytest.mark.parametrize(
    ("held", "most"), [({"a:1": {10, 12}, "b:1": {12}}, 2), ({"a:1": {10}, "b:1": {11}}, 1), ({"a:1": {10, 12, 14}}, 1)]
)
def test_how_many_copies_one_entry_above_the_end_has(held: dict[str, set[int]], most: int) -> None:
    """Of the entry that most have, not of all together, and not of the first."""
    [found] = entries_beyond_end.findings(copies(held), stored(), RUN, seen=True).to_pylist()
    evidence = {one["field"]: one["value"] for one in found["evidence"]}
    assert evidence["copies of one entry, at most"] == str(most)
    assert found["severity"] == ("warning" if most >= 2 else "info")
    assert found["unknowns"] == ["whether they were acknowledged to a writer"]


def test_in_a_cluster_that_lives_only_what_goes_on_is_more_than_a_note() -> None:
    """What a close drops, or a bookie that hung stores late, comes once; an end that moved begins anew."""

    def look(highest: int, past: entries_beyond_end.Past, last: int = LAST) -> tuple[str, entries_beyond_end.Past, int]:
        held = copies({name: set(range(highest + 1)) for name in ("a:1", "b:1")})
        found = entries_beyond_end.findings(held, stored(last_entry=last), RUN, seen=True, heights=past)
        [severity] = found["severity"].to_pylist()
        return severity, entries_beyond_end.read_heights(found), entries_beyond_end.list_unproven(found, past).num_rows

    severity, past, unproven = look(LAST + 2, {})
    assert (severity, unproven) == ("info", 1)
    severity, past, unproven = look(LAST + 2, past)
    assert (severity, unproven) == ("info", 0)
    severity, late, unproven = look(LAST + 3, past)
    assert (severity, unproven) == ("info", 1)
    assert look(LAST + 3, late)[0] == "info"
    assert look(LAST + 4, late)[0] == "critical"
    assert look(LAST + 4, late, last=LAST + 1)[0] == "info"
    held = copies({"a:1": {LAST + 1}}, lac=LAST + 1)
    [severity] = entries_beyond_end.findings(held, stored(), RUN, seen=True, heights=past)["severity"].to_pylist()
    assert severity == "critical"


def test_a_striped_writer_that_goes_on_for_long_is_still_seen_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its runs only some are laid out; the highest entry is that of all of them."""
    monkeypatch.setattr(entries_beyond_end, "_RUNS", 3)
    past: entries_beyond_end.Past = {}
    severities = []
    for count in (10, 20, 30):
        held = copies({"a:1": {LAST + 2 * n for n in range(1, count)}})
        found = entries_beyond_end.findings(held, stored(), RUN, seen=True, heights=past)
        past = entries_beyond_end.read_heights(found)
        severities += found["severity"].to_pylist()
    assert severities == ["info", "info", "critical"]


@pytest.mark.parametrize("runs", [1, entries_beyond_end.LISTED, entries_beyond_end.LISTED + 1])
def test_many_ranges_are_counted(runs: int) -> None:
    """Twelve are listed, and how many more there are is said."""
    [found] = entries_beyond_end.findings(
        copies({"a:1": {10 + 2 * n for n in range(runs)}}), stored(), RUN, seen=True
    ).to_pylist()
    [text] = [one["value"] for one in found["evidence"] if one["field"] == "held by a:1"]
    assert text.startswith("10")
    more = runs - entries_beyond_end.LISTED
    assert text.endswith(f", and {more} more ranges") == (more > 0)
    assert len(found["entries"]) == min(runs, entries_beyond_end.LISTED)


def of_ledger(number: int, table: pa.Table) -> pa.Table:
    """The same of another ledger."""
    key = LedgerId(0, number)
    for name, value in (("bucket", key.bucket), ("ledger", number)):
        place = table.schema.get_field_index(name)
        table = table.set_column(
            place, table.schema.field(name), pa.array([value] * len(table), table.field(name).type)
        )
    return table


def test_all_that_is_said_of_entries_above_the_end() -> None:
    """The end, the largest LAC, the copies, what each bookie has, what each header there says, and the runs of all."""
    header = {"lac": 11, "length": 120, "size": 46}
    held: list[dict[str, Any]] = copies({"b:1": {8, 9, 10, 11, 14}, "a:1": {10, 12, 13}}).to_pylist()
    heads: list[list[tuple[int, str | None]]] = [[(9, "CRC32C"), (10, "CRC32C"), (14, None)], [(12, "CRC32")]]
    for row, headers in zip(held, heads, strict=True):
        row["headers"] = [header | {"entry": entry, "digest": digest} for entry, digest in headers]
    held[1]["explicit_lac"] = 13
    table = pa.Table.from_pylist(held, schema=tables.COPIES)
    [row] = entries_beyond_end.findings(table, stored(), RUN, seen=True).to_pylist()
    assert [(one["side"], one["field"], one["value"]) for one in row["evidence"]] == [
        ("store", "last_entry", "9"),
        ("bookies", "largest LAC", "13"),
        ("bookies", "copies of one entry, at most", "2"),
        ("bookies", "held by a:1", "10, 12 to 13"),
        ("bookies", "held by b:1", "10 to 11, 14"),
        ("bookies", "entry 10 on b:1", "LAC 11, length 120, CRC32C agrees"),
        ("bookies", "entry 14 on b:1", "LAC 11, length 120, no digest agrees"),
        ("bookies", "entry 12 on a:1", "LAC 11, length 120, CRC32 agrees"),
    ]
    assert row["entries"] == [{"first": 10, "last": 10, "size": 5, "period": 0}]
    assert (row["bookies"], row["severity"], row["unknowns"]) == (["a:1", "b:1"], "critical", [])
    for row in held:
        row.update(headers=[], explicit_lac=None)
    table = pa.Table.from_pylist(held, schema=tables.COPIES)
    [row] = entries_beyond_end.findings(table, stored(), RUN, seen=True).to_pylist()
    assert row["evidence"][1]["value"] == "-1"
    assert (row["severity"], row["unknowns"]) == ("warning", ["whether they were acknowledged to a writer"])


def test_each_ledger_is_judged_by_its_own_copies() -> None:
    """Among those that only bookies have, that only the store has, that end where their copies do."""
    beyond = [of_ledger(number, copies({"a:1": {number}, "b:1": {number}})) for number in (10, 12, 7, 30)]
    records = [of_ledger(number, stored()) for number in (7, 8, 12, 10)]
    for table in (beyond, beyond[::-1]):
        rows = entries_beyond_end.findings(pa.concat_tables(table), pa.concat_tables(records), RUN, seen=True)
        told = {row["ledger"]: row for row in rows.to_pylist()}
        assert {number: row["evidence"][3]["value"] for number, row in told.items()} == {10: "10", 12: "12"}
        assert {row["bucket"] for row in told.values()} == {LedgerId(0, 10).bucket, LedgerId(0, 12).bucket}
    assert entries_beyond_end.findings(pa.concat_tables(beyond).slice(0, 0), records[0], RUN, seen=True).num_rows == 0


@pytest.mark.parametrize(("headers", "told"), [(1, 1), (12, 12), (13, 12)])
def test_many_headers_are_cut(headers: int, told: int) -> None:
    """Twelve of them are said."""
    held = copies({"a:1": set(range(10, 10 + headers))}).to_pylist()
    held[0]["headers"] = [
        {"entry": 10 + n, "lac": 9, "length": 1, "size": 46, "digest": "CRC32C"} for n in range(headers)
    ]
    table = pa.Table.from_pylist(held, schema=tables.COPIES)
    [row] = entries_beyond_end.findings(table, stored(), RUN, seen=True).to_pylist()
    assert sum(one["field"].startswith("entry ") for one in row["evidence"]) == told


@pytest.mark.parametrize(
    ("group", "text"),
    [
        # First, last, size and period: what stands in the runs, and what of it is above the end.
        ((0, 30, 3, 10), "10 to 12, 20 to 22, 30 to 32"),
        ((5, 15, 5, 10), "15 to 19"),
        ((5, 15, 6, 10), "10, 15 to 20"),
        ((8, 8, 5, 0), "10 to 12"),
        ((2, 12, 2, 5), "12 to 13"),
        ((40, 50, 1, 10), "40, 50"),
    ],
)
def test_only_what_is_above_the_end_is_said(group: tuple[int, int, int, int], text: str) -> None:
    """Of runs that repeat, too: those that begin below it are cut."""
    held: dict[str, Any] = copies({"a:1": {10}}).to_pylist()[0]
    held["groups"] = [dict(zip(("first", "last", "size", "period"), group, strict=True))]
    held["last"] = group[1] + group[2] - 1
    table = pa.Table.from_pylist([held], schema=tables.COPIES)
    [row] = entries_beyond_end.findings(table, stored(), RUN, seen=True).to_pylist()
    assert row["evidence"][3]["value"] == text


def make_told(*rows: dict[str, Any]) -> pa.Table:
    """COPIES: what bookies tell of ledger 7."""
    given = {"bucket": 0, "ledger": 7, "source": "wire", "complete": True, "key_kind": "absent", "groups": []}
    return pa.Table.from_pylist([fill_row(tables.COPIES, {**given, **row}) for row in rows], schema=tables.COPIES)


def make_closed(last: int) -> pa.Table:
    """CATALOG_LEDGERS: ledger 7, which is closed."""
    row = {"bucket": 0, "ledger": 7, "raw": b"", "state": "CLOSED", "last_entry": last, "ack_quorum": 2}
    return pa.Table.from_pylist([fill_row(tables.CATALOG_LEDGERS, row)], schema=tables.CATALOG_LEDGERS)


@pytest.mark.parametrize(
    ("lac", "last", "end", "told"),
    [(10, 9, 9, True), (9, 9, 9, False), (10, 10, 9, False), (None, 9, 9, False), (10, None, 9, True)],
)
def test_an_explicit_lac_above_the_end_without_entries_there_is_told(
    lac: int | None, last: int | None, end: int, *, told: bool
) -> None:
    """One just above the end, one at it; where a bookie has entries there, the other finding says it."""
    copies = make_told({"bookie": "bk1", "explicit_lac": lac, "last": last}, {"bookie": "bk2", "last": 9})
    rows = entries_beyond_end.find_lacs_beyond(copies, make_closed(end), RUN).to_pylist()
    assert [(row["category"], row["severity"], row["bookies"]) for row in rows] == (
        [("LAC_BEYOND_LAST_ENTRY", "critical", ["bk1"])] if told else []
    )


def test_a_closed_ledger_in_limbo_is_told_with_its_bookies() -> None:
    """An open one is not: a bookie that lost data keeps it so until it is recovered."""
    copies = make_told({"bookie": "bk1", "limbo": True}, {"bookie": "bk2"})
    [row] = entries_beyond_end.find_limbo(copies, make_closed(9), RUN).to_pylist()
    assert (row["category"], row["severity"], row["bookies"]) == ("LEDGER_IN_LIMBO", "info", ["bk1"])
    assert entries_beyond_end.find_limbo(copies, make_closed(9).slice(0, 0), RUN).num_rows == 0
