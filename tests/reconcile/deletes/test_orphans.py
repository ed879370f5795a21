"""Orphans by tables alone: one ledger that is just a candidate, and one for each reason that is none."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reconcile.deletes.orphans import TOMBSTONES, Orphans, Sides, find_orphans
from reconcile.deletes.verification.evidence import ReferenceListing
from reconcile.findings.table import FindingRun
from reconcile.jobs.orphans.last_writes import LAST_WRITES
from reconcile.references import References
from recovery.dataset import sort_by_key
from recovery.infer.references import SCHEMA
from recovery.model import tables
from recovery.model.ids import LedgerId
from tests.support.inventories import fill_row

AT = datetime(2026, 3, 1, tzinfo=UTC)
RUN = FindingRun("now", AT)
DAY_MS = 86_400_000
LISTED_MS = int(AT.timestamp() * 1000)
OLD_MS = LISTED_MS - 20 * DAY_MS
MADE_BY = [{"key": "application", "value": b"pulsar"}, {"key": "component", "value": b"managed-ledger"}]
KEYS = pa.schema(tables.KEY)


def make_key(ledger: int, scope: int = 0) -> dict[str, int]:
    """Return the key columns of a ledger."""
    return {"bucket": LedgerId(scope, ledger).bucket, "scope": scope, "ledger": ledger}


def make_rows(schema: pa.Schema, rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Return rows of a table in key order."""
    return sort_by_key(pa.Table.from_pylist([fill_row(schema, row) for row in rows], schema=schema))


def make_record(ledger: int, *, born: int | None = OLD_MS, **more: Any) -> dict[str, Any]:
    """Return a row of CATALOG_LEDGERS."""
    return {**make_key(ledger), "raw": b"r", "version": 3, "state": "CLOSED", "ctime": born, "custom": MADE_BY, **more}


def make_copy(ledger: int, bookie: str, source: str = "index") -> dict[str, Any]:
    """Return a row of COPIES."""
    return {**make_key(ledger), "bookie": bookie, "source": source, "entries": 4, "complete": True}


def make_deletion(ledger: int, **more: Any) -> dict[str, Any]:
    """Return a row of CATALOG_HISTORY that deletes a ledger."""
    return {**make_key(ledger), "txn": 9, "at": AT, "session": 77, "op": "deleted", "before": b"r", **more}


@dataclass
class Case:
    """One bucket range that is everything: the store, before and after, and what else is known."""

    stored: Sequence[dict[str, Any]] = field(default_factory=lambda: [make_record(1)])
    last_writes: Sequence[dict[str, Any]] = ()
    first: Sequence[dict[str, Any]] | None = None
    named: tuple[Sequence[int], Sequence[int]] = ((), ())
    deleted: Sequence[int] = ()
    listed: tuple[int, int] = (LISTED_MS, LISTED_MS + 1)
    problem: str = ""
    has_references: bool = True
    copies: Sequence[dict[str, Any]] = ()
    earlier: Sequence[dict[str, Any]] = ()
    history: Sequence[dict[str, Any]] = ()
    tombstones: Sequence[tuple[int, bool]] = ()
    known: Sequence[int] = ()
    lists_all: bool = True
    has_earlier: bool = True

    def find(self) -> Orphans:
        """Return what is found."""
        sides, listings = self.gather()
        return find_orphans(sides, listings, DAY_MS, RUN, lists_all=self.lists_all, has_earlier=self.has_earlier)

    def gather(self) -> tuple[Sides, tuple[ReferenceListing, ReferenceListing]]:
        """Return what is looked at."""
        stored, first = (
            make_rows(tables.CATALOG_LEDGERS, rows)
            for rows in (self.stored, self.stored if self.first is None else self.first)
        )
        earlier = make_rows(tables.CATALOG_LEDGERS, self.earlier)
        sides = Sides(
            (first, stored),
            make_rows(tables.COPIES, self.copies),
            (earlier, np.full(earlier.num_rows, 5)),
            make_rows(tables.CATALOG_HISTORY, self.history),
            make_rows(TOMBSTONES, [{**make_key(n), "removed": removed} for n, removed in self.tombstones]),
            make_rows(KEYS, [make_key(n) for n in self.known]),
            make_rows(LAST_WRITES, self.last_writes),
        )
        before, after = (self.list_references(place) for place in range(2))
        return sides, (before, after)

    def list_references(self, place: int) -> ReferenceListing:
        """Return one of the two listings."""
        rows = [{**make_key(n), "owner": f"topic {n}"} for n in self.named[place]]
        rows += [{**make_key(n), "deleted": True} for n in self.deleted]
        references = References(make_rows(SCHEMA, rows)) if self.has_references else None
        return ReferenceListing(references, self.listed[place], self.problem, is_stated=False)


def list_found(orphans: Orphans) -> dict[tuple[str, int], str]:
    """Return the severity of each finding."""
    return {(row["category"], row["ledger"]): row["severity"] for row in orphans.findings.to_pylist()}


def list_evidence(orphans: Orphans) -> dict[str, str]:
    """Return what the only finding says."""
    [row] = orphans.findings.to_pylist()
    return {item["field"]: item["value"] for item in row["evidence"]}


def test_a_ledger_that_nobody_names_is_a_candidate() -> None:
    """Its evidence says what it is, when it was made, who made it, and who holds it."""
    # What only logs have counts for no more than that.
    found = Case(copies=[make_copy(1, "b1"), {**make_copy(1, "b2", "log"), "entries": 9}]).find()
    assert found.candidates.to_pylist() == [make_key(1)]
    assert list_found(found) == {("UNREFERENCED", 1): "warning"}
    assert found.left_out == {}
    said = list_evidence(found)
    assert (said["state"], said["made by"], said["created"]) == (
        "CLOSED",
        "managed-ledger",
        "2026-02-09T00:00:00+00:00",
    )
    assert (said["entries on one of them, at most"], said["listed twice"]) == ("4", "yes")
    assert list_evidence(Case().find())["entries on one of them, at most"] == "nothing"


def test_an_earlier_copy_of_the_store_says_whether_data_had_a_record() -> None:
    """Yes, none, or that none was asked."""
    for earlier, said in (([make_record(77)], "yes"), ([make_record(5)], "none"), ([], "not asked")):
        found = Case(stored=[], copies=[make_copy(77, "b1")], earlier=earlier, has_earlier=bool(earlier)).find()
        [row] = [one for one in found.findings.to_pylist() if one["category"] == "DATA_WITHOUT_RECORD"]
        assert {one["value"] for one in row["evidence"] if one["side"] == "earlier"} == {said}


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (Case(named=((1,), ())), "REFERENCED"),
        (Case(named=((), (1,))), "REFERENCED"),
        (Case(stored=[make_record(1, born=LISTED_MS - DAY_MS + 1)]), "TOO_YOUNG"),
        (Case(stored=[make_record(1, created_at=AT)]), "TOO_YOUNG"),
        (Case(stored=[make_record(1, born=None)]), "TOO_YOUNG"),
        (Case(stored=[make_record(1, custom=[*MADE_BY[:1], {"key": "component", "value": b"x"}])]), "MAKER_UNLISTED"),
        (Case(stored=[make_record(1, custom=[])]), "MAKER_UNLISTED"),
        (Case(stored=[make_record(1, error="not a record")]), "UNPARSABLE"),
        (Case(first=[make_record(1, version=2)]), "CHANGED"),
        (Case(first=[]), "CHANGED"),
        (Case(tombstones=[(1, False)]), "DELETE_REQUESTED"),
        (Case(problem="a topic cannot be read"), "REFERENCES_UNKNOWN"),
        (Case(has_references=False), "REFERENCES_UNKNOWN"),
    ],
)
def test_every_reason_leaves_one_out(case: Case, reason: str) -> None:
    """It is counted by that reason alone, and is no finding."""
    found = case.find()
    assert found.left_out == {reason: 1}
    assert found.candidates.num_rows == found.findings.num_rows == 0


def test_one_listing_is_none() -> None:
    """The same listing twice is a note; the run before makes it two; a ledger is just old enough at its bound."""
    once = Case(listed=(LISTED_MS, LISTED_MS), stored=[make_record(1, born=LISTED_MS - DAY_MS)])
    found = once.find()
    assert (found.left_out, found.candidates.num_rows) == ({"LISTED_ONCE": 1}, 0)
    assert list_found(found) == {("UNREFERENCED", 1): "info"}
    assert list_evidence(found)["listed twice"] == "not yet"
    once.known = (1,)
    assert once.find().candidates.to_pylist() == [make_key(1)]
    once.known = (2,)
    assert once.find().candidates.num_rows == 0


def test_a_reference_that_says_deleted_names_nobody() -> None:
    """The layer let go of it: what it says so of may even be of a maker whom no listing shows."""
    assert Case(deleted=(1,), stored=[make_record(1, custom=[])]).find().candidates.to_pylist() == [make_key(1)]


def test_data_without_a_record() -> None:
    """Only what neither listing of the store, nor a purge of ours, accounts for; logs alone are what was collected."""
    case = Case(
        stored=[],
        first=[make_record(2)],
        copies=[
            *(make_copy(n, "b1") for n in (1, 2, 3, 4, 5)),
            make_copy(6, "b1", "log"),
            make_copy(7, "b1", "journal"),
        ],
        tombstones=[(3, True), (4, False)],
        named=((), (5,)),
    )
    found = case.find()
    assert list_found(found) == {
        ("DATA_WITHOUT_RECORD", 1): "info",
        ("DATA_WITHOUT_RECORD", 4): "info",
        ("DATA_WITHOUT_RECORD", 5): "critical",
        ("DATA_WITHOUT_RECORD", 7): "info",
    }
    case.lists_all = False
    assert case.find().findings.num_rows == 0


def test_records_that_went() -> None:
    """By an earlier copy, or by history; not what stands again, what bkmeta purged, or what only bookies know."""
    case = Case(
        stored=[make_record(2)],
        named=((2,), (2, 5)),
        copies=[make_copy(8, "b1"), make_copy(1, "b1")],
        earlier=[make_record(n) for n in (1, 2, 3, 4, 5)],
        history=[make_deletion(4), make_deletion(6), make_deletion(2)],
        tombstones=[(3, True)],
    )
    found = case.find()
    outside = {
        row["ledger"]: {"severity": row["severity"], **{item["field"]: item["value"] for item in row["evidence"]}}
        for row in found.findings.to_pylist()
        if row["category"] == "DELETED_OUTSIDE"
    }
    assert {ledger: row["severity"] for ledger, row in outside.items()} == {
        1: "warning",
        4: "warning",
        5: "critical",
        6: "warning",
    }
    assert (outside[4]["deleted in transaction"], outside[4]["deleted by session"]) == ("9 (0x9)", "0x4d")
    assert outside[4]["deleted at"].startswith("2026-03-01 00:00:00")
    assert outside[1]["deleted in transaction"].startswith("unknown")
    assert (outside[1]["have it"], outside[4]["have it"]) == ("yes", "no")
    assert (outside[5]["named by"], outside[4]["named by"]) == ("topic 5", "nothing")
    case.copies = ()
    [unlooked] = [row for row in case.find().findings.to_pylist() if row["ledger"] == 1]
    assert {item["field"]: item["value"] for item in unlooked["evidence"]}["have it"] == "not looked at"
    case.copies = [make_copy(8, "b1"), make_copy(1, "b1")]
    case.has_earlier = False
    assert {category for category, _ in list_found(case.find())} == {"DATA_WITHOUT_RECORD"}
    case.has_earlier, case.lists_all = True, False
    assert case.find().findings.num_rows == 0


def test_a_record_is_stated_as_it_stands() -> None:
    """Born at the beginning of time is a time; nothing known is nothing; entries are those of the bookie with most."""
    born = Case(stored=[make_record(1, born=0)], copies=[make_copy(1, "b1")])
    assert list_evidence(born.find())["created"] == "1970-01-01T00:00:00+00:00"
    never = Case(stored=[make_record(1, born=None)])
    orphans = find_orphans(*never.gather(), 0, RUN, lists_all=True, has_earlier=True)
    assert orphans.candidates.to_pylist() == [make_key(1)]
    assert list_evidence(orphans)["created"] == "nothing"
    orphans = find_orphans(*never.gather(), 1, RUN, lists_all=True, has_earlier=True)
    assert orphans.left_out == {"TOO_YOUNG": 1}


def test_each_ledger_is_left_out_for_its_own_reason() -> None:
    """Beside others of every reason, one stays a candidate, and each of the others is counted once."""
    case = Case(
        stored=[
            *(make_record(n) for n in (1, 2, 3, 4)), make_record(5, error="no record"), make_record(6, born=LISTED_MS),
            make_record(7, custom=[]), make_record(8, version=4),
        ],
        first=[
            *(make_record(n) for n in (1, 2, 3, 4)), make_record(5, error="no record"), make_record(6, born=LISTED_MS),
            make_record(7, custom=[]), make_record(8, version=3),
        ],
        named=((2,), (3,)),
        tombstones=[(4, False), (3, True)],
    )  # fmt: skip
    found = case.find()
    assert found.candidates.to_pylist() == [make_key(1)]
    assert found.left_out == {
        "REFERENCED": 2, "DELETE_REQUESTED": 1, "UNPARSABLE": 1, "CHANGED": 1, "TOO_YOUNG": 1, "MAKER_UNLISTED": 1,
    }  # fmt: skip


def test_an_earlier_copy_tells_whether_a_ledger_was_ever_recorded() -> None:
    """Data that an earlier copy lists had a record; without an earlier copy nobody knows."""
    alone = Case(stored=[], copies=[make_copy(1, "b1")], has_earlier=False)
    told = list_evidence(alone.find())
    alone.earlier = [make_record(2)]
    assert list_evidence(alone.find()) != told
