"""Ledgers that came after a snapshot: whose each may be, shown, counted and chosen."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from reconcile.plan.views.candidates import (
    Candidate,
    OwnLedger,
    count_best,
    list_candidates,
    list_own,
    select_recorded,
    sum_counts,
)
from recovery.model import tables
from recovery.model.ids import LedgerId


class Plan:
    """The candidates of a plan, file by file."""

    def __init__(self, *files: Sequence[dict[str, Any]]) -> None:
        self.files = [table(file) for file in files]

    def batches(self, _table: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield them, or some of their columns."""
        yield from (file if columns is None else file.select(columns) for file in self.files)


def table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Return rows of CANDIDATES."""
    base = {"bucket": 0, "scope": 0, "use": "topic", "evidence": "record", "detail": "d"}
    return pa.Table.from_pylist([base | row for row in rows], schema=tables.CANDIDATES)


@pytest.mark.parametrize(
    ("candidate", "text"),
    [
        (("t", "topic", "record", "/a", "says so"), "7 t: record: says so, /a"),
        (("t", "schema", "entry", None, "says so"), "7 t (schema): entry: says so"),
        ((None, "topic", "none", None, "nothing"), "7 nobody knows whose: none: nothing"),
    ],
)
def test_a_candidate_says_whose_and_why(candidate: Sequence[Any], text: str) -> None:
    """What it is for, unless it is for messages; and where that stands, where it does."""
    assert str(Candidate(LedgerId(0, 7), *candidate)) == text


def test_candidates_of_the_smallest_ids_are_listed() -> None:
    """All of each ledger, over all files; none where none are shown, or there are none."""
    plan = Plan([{"ledger": 9}, {"ledger": 3}], [{"ledger": 5}, {"ledger": 3, "topic": "t"}], [])
    listed = list_candidates(plan, 2)  # type: ignore[arg-type]  # what of a dataset is read
    assert [(one.ledger.ledger, one.topic) for one in listed] == [(3, None), (3, "t"), (5, None)]
    assert list_candidates(plan, 0) == ()  # type: ignore[arg-type]  # likewise
    assert list_candidates(Plan(), 2) == ()  # type: ignore[arg-type]  # likewise


def test_a_record_that_names_one_topic_is_believed() -> None:
    """Not one of two topics, not of something else than messages, not what is only likely."""
    plan = Plan(
        [
            {"ledger": 1, "topic": "a"},
            {"ledger": 1, "topic": "a"},
            {"ledger": 1, "topic": "b", "evidence": "order"},
            {"ledger": 2, "topic": "a"},
            {"ledger": 2, "topic": "b"},
            {"ledger": 3, "topic": "a", "use": "schema"},
            {"ledger": 4, "topic": "a", "evidence": "entry"},
            {"ledger": 5, "topic": "a"},
            {"ledger": 5, "topic": "a", "use": "schema"},
        ]
    )
    assert select_recorded(plan) == {LedgerId(0, 1): "a"}  # type: ignore[arg-type]  # what of a dataset is read


def test_ledgers_are_counted_by_the_best_that_is_known() -> None:
    """Each once; the surest first."""
    rows = [(1, "order"), (1, "record"), (2, "none"), (3, "order"), (3, "producers"), (4, "entry"), (5, "none")]
    counts = count_best(table([{"ledger": ledger, "evidence": evidence} for ledger, evidence in rows]))
    assert counts == Counter(record=1, none=2, producers=1, entry=1)
    assert list(sum_counts(counts).items()) == [
        ("ledgers", 5), ("record", 1), ("entry", 1), ("producers", 1), ("none", 2)
    ]  # fmt: skip
    assert (count_best(table([])), sum_counts(count_best(table([])))) == (Counter(), {})


def test_ledgers_of_subscriptions_and_schemas_are_listed() -> None:
    """With what each is of; topics' own are not among them."""
    plan = Plan(
        [
            {"ledger": 1, "topic": "t", "use": "cursor sub", "node": b"n"},
            {"ledger": 2, "topic": "s", "use": "schema", "node": b"n"},
            {"ledger": 3, "topic": "t"},
        ]
    )
    assert list(list_own(plan)) == [  # type: ignore[arg-type]  # what of a dataset is read
        OwnLedger(LedgerId(0, 1), "t", "sub", b"n"),
        OwnLedger(LedgerId(0, 2), "s", None, b"n"),
    ]
