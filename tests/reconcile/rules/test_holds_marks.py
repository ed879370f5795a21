"""Holds in a store: which records they are, why they are held, and who has their data."""

from dataclasses import replace
from datetime import UTC, datetime

from reconcile.findings.categories import Category
from reconcile.findings.table import FindingRun
from reconcile.rules import holds
from reconcile.rules.holds import HOLD_MARK, NAMED_MARK
from recovery.model.ids import LedgerId
from recovery.model.metadata import Segment
from tests.reconcile.rules.test_sides import CLOSED, OPEN, catalog

HELD = replace(
    OPEN,
    segments=(Segment(0, ("b2", "b1")), Segment(5, ("b3", "b1"))),
    custom=(("application", b"x"), (HOLD_MARK, b"two\xffkeys")),
)
RECORDS = catalog({
    LedgerId(0, 1): CLOSED,
    LedgerId(0, 2): HELD,
    LedgerId(3, 2): replace(HELD, custom=((HOLD_MARK, b"hole"),)),
    LedgerId(0, 4): replace(CLOSED, custom=((NAMED_MARK, b"named"), ("a", HOLD_MARK.encode()))),
    LedgerId(0, 5): b"no record",
})  # fmt: skip


def test_a_hold_says_why_and_who_has_it() -> None:
    """All members of all of its segments; bytes that are no text do not stop it."""
    found = {(one["scope"], one["ledger"]): one for one in holds.find_holds(RECORDS).to_pylist()}
    assert {key: (one["reason"], one["holders"]) for key, one in found.items()} == {
        (0, 2): ("two\ufffdkeys", ["b1", "b2", "b3"]),
        (3, 2): ("hole", ["b1", "b2", "b3"]),
    }
    assert all(one["bucket"] == LedgerId(*key).bucket for key, one in found.items())
    assert holds.find_holds(RECORDS.slice(0, 0)).num_rows == 0


def test_holds_and_named_guards_are_known_by_their_marks() -> None:
    """Not by a value that reads like one."""
    ids = list(zip(RECORDS["scope"].to_pylist(), RECORDS["ledger"].to_pylist(), strict=True))
    assert {key for key, held in zip(ids, holds.is_hold(RECORDS).tolist(), strict=True) if held} == {(0, 2), (3, 2)}
    assert {key for key, named in zip(ids, holds.is_named(RECORDS).tolist(), strict=True) if named} == {(0, 4)}


def test_each_hold_is_a_finding() -> None:
    """With its reason, and who has it."""
    run = FindingRun("r", datetime(2026, 1, 1, tzinfo=UTC))
    rows = holds.findings(holds.find_holds(RECORDS), run).to_pylist()
    assert {row["category"] for row in rows} == {Category.HELD}
    assert {(row["evidence"][0]["field"], row["evidence"][0]["value"]) for row in rows} == {
        ("reason", "two\ufffdkeys"),
        ("reason", "hole"),
    }
    assert all(row["bookies"] == ["b1", "b2", "b3"] for row in rows)
