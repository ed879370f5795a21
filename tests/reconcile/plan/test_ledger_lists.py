"""Ledgers of a plan, list by list."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from reconcile.plan.views.ledger_lists import (
    HeldChoice,
    LedgerFilter,
    list_guarded_by,
    list_ledgers,
    list_reuse_locked,
    select_held,
)
from recovery.codecs import ledger_metadata
from recovery.dataset import Dataset
from recovery.model import tables
from recovery.model.ids import BUCKETS, LedgerId
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.support.plan_folder import Ledger, write_plan

NAMES = ["b1", "b2", "b3"]
WHOLE = [(0, NAMES)]
CHANGED = [(0, NAMES), (5, ["b1", "b2", "b4"])]
OFFER = ledger_metadata.encode(
    LedgerMetadata(3, 3, 2, 2, LedgerState.CLOSED, 0, 1, (Segment(0, tuple(NAMES)),), Digest.CRC32C, b"")
)


def find(ledger: int, bookies: list[str], category: str = "LACKS_COPIES") -> dict[str, object]:
    """Return a finding of a ledger."""
    free = dict.fromkeys(field.name for field in tables.FINDINGS)
    return free | {"bucket": LedgerId(0, ledger).bucket, "scope": 0, "ledger": ledger, "category": category,
                   "bookies": bookies}  # fmt: skip


@pytest.fixture
def made(tmp_path: Path) -> Dataset:
    """A plan of ledgers of all kinds."""
    ledgers = [
        Ledger(1, WHOLE, owner="topic-1"),
        Ledger(2, WHOLE, missing=1, verdict="undecided", owner="topic-2"),
        Ledger(3, CHANGED, guard="lock", missing=1),
        Ledger(4, WHOLE, guard="lock"),
        Ledger(5, CHANGED, guard="named"),
        Ledger(6, WHOLE, reason="hole", offers={"restore": OFFER}),
        Ledger(7, [(0, ["b1", "b2", "b4"])], reason="damage"),
        replace(Ledger(8, CHANGED, guard="lock"), scope=3),
    ]
    free = pa.schema([pa.field(field.name, field.type) for field in tables.FINDINGS])
    found = [find(2, ["b1"]), find(3, []), find(7, ["b4"], "OTHER"), find(9, ["b9"])]
    findings = pa.Table.from_pylist(found, schema=free).sort_by("bucket")
    return write_plan(tmp_path / "plan", ledgers, findings=findings, reused=[LedgerId(0, 20), LedgerId(4, 21)])


@pytest.mark.parametrize(
    ("choice", "ledgers"),
    [
        (LedgerFilter(), {1, 2, 3, 4, 5, 6, 7, 8}),
        (LedgerFilter(outcome="restored"), {1, 2}),
        (LedgerFilter(outcome="held"), {6, 7}),
        (LedgerFilter(outcome="held", reason="hole"), {6}),
        (LedgerFilter(reason="damage"), {7}),
        (LedgerFilter(has_few_copies=True), {2}),
        (LedgerFilter(is_undecided=True), {2}),
        (LedgerFilter(category="LACKS_COPIES"), {2, 3, 9}),
        (LedgerFilter(category="NONE"), set()),
        (LedgerFilter(outcome="waiting"), set()),
    ],
)
def test_what_is_not_said_chooses_nothing(made: Dataset, choice: LedgerFilter, ledgers: set[int]) -> None:
    """A list has the ledgers of what is said, and all where nothing is."""
    assert {line.ledger.ledger for line in list_ledgers(made, choice)} == ledgers


def test_a_line_names_the_topic_and_the_bookies(made: Dataset) -> None:
    """Of a ledger that is restored, one that could not be judged, and of findings, those of no other ledger too."""
    lines = {line.ledger.ledger: line for line in list_ledgers(made, LedgerFilter(outcome="restored"))}
    assert (lines[1].topic, lines[1].holders, lines[1].last_entry, lines[2].missing_copies) == (
        "topic-1", tuple(NAMES), 0, 1
    )  # fmt: skip
    (line,) = list_ledgers(made, LedgerFilter(is_undecided=True))
    assert (line.topic, line.reason, line.outcome) == ("topic-2", "bookies_only", None)
    lines = {line.ledger.ledger: line for line in list_ledgers(made, LedgerFilter(category="LACKS_COPIES"))}
    assert {n: (line.topic, line.reason, line.holders) for n, line in lines.items()} == {
        2: ("topic-2", "LACKS_COPIES", ("b1",)),
        3: (None, "LACKS_COPIES", ()),
        9: (None, "LACKS_COPIES", ("b9",)),
    }


@pytest.mark.parametrize(
    ("choice", "ledgers"),
    [
        (HeldChoice(), {6, 7}),
        (HeldChoice(reason="hole"), {6}),
        (HeldChoice(reason="none"), set()),
        (HeldChoice(reason="none", bookie="b1"), set()),
        (HeldChoice(bookie="b1"), {6, 7}),
        (HeldChoice(bookie="b4"), {7}),
        (HeldChoice(bookie="b9"), set()),
        (HeldChoice(label="restore"), {6}),
        (HeldChoice(reason="damage", label="restore"), set()),
        (HeldChoice(reason="none", label="restore"), set()),
        (HeldChoice(among=frozenset({LedgerId(0, 1), LedgerId(0, 7)})), {7}),
    ],
)
def test_held_ledgers_are_chosen_by_all_that_is_said(made: Dataset, choice: HeldChoice, ledgers: set[int]) -> None:
    """Reason, bookie, list and alternative: a ledger must have all that is named."""
    assert {ledger.ledger for ledger in select_held(made, choice)} == ledgers


@pytest.mark.parametrize(("bookie", "ledgers"), [("b1", [3, 4]), ("b3", [3, 4]), ("b4", [3]), ("b9", [])])
def test_a_lock_keeps_workers_from_what_any_segment_names(made: Dataset, bookie: str, ledgers: list[int]) -> None:
    """One segment is enough; records that name everybody need no lock, and those of other scopes are not listed."""
    assert sorted(ledger.ledger for ledger in list_guarded_by(made, bookie)) == ledgers


def test_ids_that_two_ledgers_have_are_locked(made: Dataset) -> None:
    """Those of scope 0 that a plan keeps; no other action of ledgers."""
    assert list(list_reuse_locked(made)) == [LedgerId(0, 20)]


class Actions:
    """The actions of a plan, and what reads them."""

    def __init__(self, *rows: tuple[int, int, str, str]) -> None:
        names = ("scope", "ledger", "kind", "op")
        types = (pa.int64(), pa.int64(), pa.string(), pa.string())
        self.table = pa.table(
            {
                name: pa.array(column, kind)
                for name, kind, column in zip(names, types, zip(*rows, strict=True), strict=True)
            }
        )

    def rows(self, _name: str) -> int:
        """Return how many there are."""
        return int(self.table.num_rows)

    def read(self, _name: str, *, buckets: range, columns: list[str]) -> pa.Table:
        """Return them all."""
        assert buckets == range(BUCKETS)
        return self.table.select(columns)


def test_a_lock_of_an_id_is_the_plans_or_one_that_it_leaves() -> None:
    """Not one that is removed; and what is left of records is no lock."""
    plan = Actions(
        (0, 1, "reuse_lock", "keep"),
        (0, 2, "reuse_lock", "leave"),
        (0, 3, "reuse_lock", "remove"),
        (0, 4, "ledger", "leave"),
        (5, 6, "reuse_lock", "keep"),
    )
    assert list(list_reuse_locked(plan)) == [LedgerId(0, 1), LedgerId(0, 2)]  # type: ignore[arg-type]  # what is read of it
