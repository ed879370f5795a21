"""Guarded ledgers in a store and in a plan: which they are, and what is said of them."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from reconcile.findings.categories import Category
from reconcile.findings.table import FindingRun
from reconcile.rules import holds
from recovery.codecs.replication_lock import encode_guard, lock_key
from recovery.model import tables
from recovery.model.ids import LedgerId

RUN = FindingRun("now", datetime(2026, 1, 1, tzinfo=UTC))


def row(ledger: int, **changes: object) -> dict[str, Any]:
    """Return a ledger of two bookies, ten entries, each on both; `changes` win."""
    nothing: dict[str, Any] = dict.fromkeys(tables.RECONSTRUCTION.names)
    return nothing | {
        "bucket": LedgerId(0, ledger).bucket, "scope": 0, "ledger": ledger, "class": "clean", "outcome": "guarded",
        "reason": "source_incomplete", "reading": "universal", "state": "CLOSED", "ensemble_size": 2,
        "write_quorum": 2, "ack_quorum": 1, "last_entry": 9, "grades": dict.fromkeys(tables.GRADED, "assumed"),
        "lac_low": 8, "missing": 0, "extra": 0, "holes": [], "holders": ["a:1", "b:1"], "alternatives": [],
    } | changes  # fmt: skip


def table(*rows: dict[str, Any]) -> pa.Table:
    """Return rows as RECONSTRUCTION."""
    return pa.Table.from_pylist(list(rows), schema=tables.RECONSTRUCTION)


def holes(first: int, size: int) -> list[dict[str, int]]:
    """Return one run as GROUPS."""
    return [{"first": first, "last": first, "size": size, "period": 0}]


def evidence(finding: dict[str, Any]) -> dict[str, str]:
    """Return what a finding says, by field."""
    return {item["field"]: item["value"] for item in finding["evidence"]}


def test_a_guard_is_a_lock_that_stays_and_is_ours() -> None:
    """A worker's lock, one with a session, and a mark guard nothing."""
    key, value = lock_key(LedgerId(0, 7)), encode_guard("ab" * 32)
    worker = b'bookieId: "10.0.0.1:3181"\n'
    nodes = [
        {"path": key, "kind": "lock", "raw": value, "owner": None},
        {"path": lock_key(LedgerId(0, 8)), "kind": "lock", "raw": worker, "owner": None},
        {"path": lock_key(LedgerId(0, 9)), "kind": "lock", "raw": value, "owner": 5},
        {"path": lock_key(LedgerId(0, 10)), "kind": "mark", "raw": value, "owner": None},
        {"path": "/underreplication/locks/x", "kind": "lock", "raw": value, "owner": None},
    ]
    found = holds.list_guarded(pa.Table.from_pylist(nodes))
    assert found == {LedgerId(0, 7)}
    keys = pa.table({"scope": [0, 1, 0], "ledger": [7, 7, 8]})
    assert holds.mark_guarded(keys, found).tolist() == [True, False, False]
    assert holds.mark_guarded(keys, frozenset()).tolist() == [False] * 3


def test_a_guarded_ledger_says_what_it_is_read_by_and_what_that_costs() -> None:
    """The reason, requests an entry, entries that nobody has, copies that are not named, and which entries."""
    rows = table(row(7), row(8, write_quorum=3, missing=12, extra=4, holes=holes(3, 2)), row(9, holes=None))
    found = holds.find_guarded(rows, RUN).to_pylist()
    assert {one["category"] for one in found} == {Category.GUARDED}
    assert evidence(found[0]) == {
        "reading": "universal",
        "reason": "source_incomplete",
        "requests an entry, about": "1",
        "entries that nobody serves": "0",
        "copies that the record does not name": "0",
    }
    # Eighteen copies of eight entries on three members: 4 / (2.25 + 1).
    assert evidence(found[1])["requests an entry, about"] == "1.2"
    assert evidence(found[1])["entries that nobody serves"] == "2"
    assert [one["entries"] for one in found] == [[], holes(3, 2), []]
    assert found[0]["bookies"] == ["a:1", "b:1"]


def test_entries_that_are_lost_are_listed_and_what_may_be_lost_is_said() -> None:
    """A hole, or a LAC above the end of a ledger whose loss was stated; else only that more may be gone."""
    rows = table(
        row(7, outcome="restored", reason=None, reading="proved"),
        row(8, outcome="restored", reason=None, holes=holes(3, 2)),
        row(9, outcome="restored", reason="lac_beyond_end", lac_low=12),
        row(10, outcome="restored", reason="ragged_tail"),
    )
    found = holds.find_lost(rows, RUN).to_pylist()
    assert [(one["ledger"], one["category"]) for one in found] == [
        (8, Category.ENTRY_LOST),
        (9, Category.ENTRY_LOST),
        (10, Category.LEFT_OVER),
    ]
    assert [one["entries"] for one in found] == [holes(3, 2), [], []]
    assert evidence(found[1])["acknowledged entries above the end"] == "3"
    assert {one["severity"] for one in found[:2]} == {"critical"}


def test_a_smaller_ensemble_is_told_to_who_reads() -> None:
    """An open reader fails where the record that it follows loses members, and in no other case."""
    rows = table(row(7, ensemble_size=2), row(8, ensemble_size=3), row(9, ensemble_size=4))
    released = rows.append_column("ensemble_before", pa.array([3, 3, 3], pa.int32()))
    found = holds.find_reopening(released, RUN).to_pylist()
    assert [(one["ledger"], one["category"]) for one in found] == [(7, Category.READERS_MUST_REOPEN)]


def test_a_guarded_record_is_not_compared_as_if_it_were_the_true_one() -> None:
    """What it says of the end and the quorums is to be settled; findings of others and other findings stay."""
    kinds = [Category.QUORUM_DIFFERS, Category.QUORUM_DIFFERS, Category.ID_REUSE]
    findings = pa.table({"category": [str(kind) for kind in kinds], "scope": [0, 0, 0], "ledger": [7, 8, 7]})
    stored = pa.table({"scope": [0, 1, 0], "ledger": [6, 8, 7]})
    left = holds.drop_compared(findings, stored, np.array([False, True, True]))
    assert left["ledger"].to_pylist() == [8, 7]
    assert holds.drop_compared(findings, stored, np.zeros(3, np.bool_)) is findings


def test_a_bookie_with_logs_and_without_its_index_is_found() -> None:
    """What it would delete no guard keeps; without logs it has nothing to delete, and what is given up is a warning."""

    def folder(role: str, *, whole: bool, size: int = 9) -> dict[str, Any]:
        return {"path": f"/d/{role}", "role": role, "complete": whole, "bytes": size, "unread": 0}

    rows = [
        {"bookie": "whole:1", "dirs": [folder("ledger", whole=True), folder("index", whole=True)]},
        {"bookie": "torn:1", "dirs": [folder("ledger", whole=False), folder("index", whole=True)]},
        {"bookie": "bare:1", "dirs": [folder("ledger", whole=True), folder("index", whole=False)]},
        {"bookie": "gone:1", "dirs": [folder("ledger", whole=False, size=0), folder("index", whole=False)]},
    ]
    unhurt = tables.DAMAGE.empty_table()
    (found,) = holds.find_without_index(rows, unhurt)
    assert (found.category, found.bookies, found.severity) == (Category.INDEX_INCOMPLETE, ["bare:1"], None)
    assert "/d/index" in str(found.statements[0].value)
    assert [one.severity for one in holds.find_without_index(rows, unhurt, ["bare:1"])] == ["warning"]


def test_a_damaged_index_file_is_graded_by_the_ledgers_that_it_is_of() -> None:
    """Its bookie goes on knowing which ledgers it has: a warning with their number; of a database nobody can say."""
    folders = [
        {"path": "/d/current", "role": role, "complete": role != "index", "bytes": 9, "unread": 0}
        for role in ("ledger", "index")
    ]
    rows = [{"bookie": "bk:1", "dirs": folders}]

    def grade(*harms: tuple[str, int | None]) -> tuple[str | None, bool]:
        made = [
            {"bookie": "bk:1", "incarnation": 1, "file": file, "reason": "zeros", "ledger": ledger}
            | {"scope": None if ledger is None else 0, "hides_entries": True}
            for file, ledger in harms
        ]
        (found,) = holds.find_without_index(rows, pa.Table.from_pylist(made, schema=tables.DAMAGE))
        return found.severity, "2 ledgers may be incomplete" in str(found.statements[0].value)

    file, other = ("/d/current/0/1/7.idx", 7), ("/d/current/0/1/8.idx", 8)
    assert grade(file, other, file) == ("warning", True)
    assert grade(file, other, ("/d/current/0.log", None)) == ("warning", True)
    assert grade(file, other, ("/d/current/ledgers", None)) == (None, False)
    assert grade(("/elsewhere/7.idx", 7)) == (None, False)


def test_a_table_of_what_requests_cost() -> None:
    """Of n members that k of have an entry, (n + 1) / (k + 1); never more than all, never fewer than one."""
    rows = table(
        row(1, write_quorum=3, missing=0),
        row(2, write_quorum=3, missing=10),
        row(3, write_quorum=3, missing=20),
        row(4, write_quorum=3, missing=29),
        row(5, write_quorum=3, missing=20, holes=holes(5, 5)),
        row(6, write_quorum=None, last_entry=None, missing=0),
        row(7, write_quorum=2, last_entry=-1, missing=0),
        row(8, write_quorum=2, last_entry=0, missing=0, holes=holes(0, 1)),
    )
    told = [evidence(one)["requests an entry, about"] for one in holds.find_guarded(rows, RUN).to_pylist()]
    assert told == ["1", "1.3", "2", "2", "1.3", "1", "1.5", "1"]


def test_what_is_lost_is_counted() -> None:
    """Holes; what a LAC shows above the end, where a loss was stated; nothing where no end or no LAC is known."""
    usual: dict[str, Any] = {"outcome": "restored", "holders": ["a:1"]}
    rows = table(
        row(7, **usual, reason="ragged_tail", lac_low=9),
        row(8, **usual, reason="lac_beyond_end", lac_low=10),
        row(9, **usual, reason=None, lac_low=12),
        row(10, **usual, reason="lac_beyond_end", lac_low=0, last_entry=None),
        row(11, **usual, reason="ragged_tail", lac_low=None, holes=holes(0, 1)),
        row(12, **usual, reason="ragged_tail", lac_low=None, last_entry=None),
    )
    found = holds.find_lost(rows, RUN).to_pylist()
    fields = ("entries that nobody serves", "acknowledged entries above the end", "reason")
    lost = [(one["ledger"], *map(evidence(one).get, fields)) for one in found if one["category"] == Category.ENTRY_LOST]
    assert lost == [
        (8, "0", "1", "lac_beyond_end"),
        (10, "0", "1", "lac_beyond_end"),
        (11, "1", "0", "ragged_tail"),
    ]
    rest = [(one["ledger"], evidence(one)) for one in found if one["category"] == Category.LEFT_OVER]
    assert rest == [
        (7, {"reason": "ragged_tail", "last_entry": "9"}),
        (12, {"reason": "ragged_tail", "last_entry": "nothing"}),
    ]
    assert {str(one["bookies"]) for one in found} == {"['a:1']"}


def test_what_is_said_of_a_smaller_ensemble() -> None:
    """Before and now."""
    rows = table(row(7, ensemble_size=2)).append_column("ensemble_before", pa.array([3], pa.int32()))
    [found] = holds.find_reopening(rows, RUN).to_pylist()
    assert [(one["side"], one["value"]) for one in found["evidence"]] == [("store", "3"), ("bookies", "2")]


def test_nodes_and_other_scopes_stay_where_guarded_ledgers_are_left_out() -> None:
    """What is found of no ledger has no id."""
    kinds = ["QUORUM_DIFFERS", "QUORUM_DIFFERS", "ENTRY_LOST", "QUORUM_DIFFERS"]
    findings = pa.table({"category": kinds, "scope": pa.array([0, 9, 0, None]), "ledger": pa.array([7, 7, 7, None])})
    stored = pa.table({"scope": [0, 0], "ledger": [7, 8]})
    left = holds.drop_compared(findings, stored, np.array([True, True]))
    assert left.to_pylist() == [findings.to_pylist()[1], findings.to_pylist()[3]]
    assert holds.drop_compared(findings.slice(0, 0), stored, np.array([True, True])).num_rows == 0


def test_folders_that_hold_no_index_do_not_count() -> None:
    """All that is gone is named, in order; damage of other bookies and damage that hides nothing are passed over."""
    dirs = [
        {"path": path, "role": role, "complete": whole, "bytes": size, "unread": 0}
        for path, role, whole, size in (
            ("/d/b", "index", False, 9), ("/d/a", "index", False, 9), ("/d/c", "index", True, 9),
            ("/d/j", "journal", False, 9), ("/d/l", "ledger", True, 9), ("/d/m", "ledger", True, 0),
        )
    ]  # fmt: skip
    harms = [
        {"bookie": bookie, "incarnation": 1, "file": file, "reason": "zeros", "ledger": ledger, "scope": scope,
         "hides_entries": hides}
        for bookie, file, ledger, scope, hides in (
            ("bk:1", "/d/a/7.idx", 7, None, True), ("bk:1", "/d/b/7.idx", 7, 1, True),
            ("bk:2", "/d/a/9.idx", 9, 0, True), ("bk:1", "/d/a/8.idx", 8, 0, False),
            ("bk:1", "/d/a/x.compacted", None, None, True), ("bk:1", "/d/a/x.txn", None, None, True),
        )
    ]  # fmt: skip
    damage = pa.Table.from_pylist(harms, schema=tables.DAMAGE)
    (found,) = holds.find_without_index([{"bookie": "bk:1", "dirs": dirs}], damage)
    text = "bk:1 has logs, and of its index 2 ledgers may be incomplete: /d/a, /d/b"
    assert [(one.side, one.field, one.value) for one in found.statements] == [("bookies", "index", text)]
    assert (found.subject, found.severity) == ("index of bk:1", "warning")
    assert "put back the index files" in str(found.suggested)
    (found,) = holds.find_without_index([{"bookie": "bk:1", "dirs": dirs}], damage.slice(0, 1))
    assert (found.severity, found.suggested) == (None, None)
    assert found.statements[0].value == "bk:1 has logs, and of its index not all was seen: /d/a, /d/b"
