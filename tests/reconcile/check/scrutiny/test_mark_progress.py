"""Marks over runs: what falls is progress, what is added is none, and only what stands for long is told."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pyarrow as pa
import pytest

from reconcile.check.scrutiny.mark_progress import RUNS, MarkProgress, follow_marks, list_stalled
from reconcile.check.scrutiny.replication import MARKS, StoredReplication
from tests.reconcile.check.scrutiny.test_replication import around

AT = datetime(2026, 1, 10, tzinfo=UTC)
DAY = timedelta(days=1)
DAY_S = 86_400.0
STOOD = MarkProgress(2, AT - 3 * DAY, 0, 0.0, AT - 2 * DAY, 4)


def make_marks(*marks: tuple[int, str]) -> pa.Table:
    """`MARKS`: ledger and content, each a day older than the one before."""
    rows = [
        {"bucket": 0, "scope": 0, "ledger": n, "since": AT - (place + 1) * DAY, "path": f"/urL{n}", "raw": raw.encode()}
        for place, (n, raw) in enumerate(marks)
    ]
    return pa.Table.from_pylist(rows, schema=MARKS)


@pytest.mark.parametrize(
    ("before", "now", "runs"),
    [
        ([(1, "a"), (2, "a")], [(1, "a"), (2, "a")], 5),
        ([(1, "a"), (2, "a")], [(1, "a"), (2, "a"), (3, "a")], 5),
        ([(1, "a"), (2, "a")], [(1, "a"), (3, "a")], 1),
        ([(1, "a"), (2, "a")], [(1, "a"), (2, "b")], 1),
        ([], [(1, "a")], 1),
    ],
)
def test_a_mark_that_is_gone_or_changed_is_progress(
    before: list[tuple[int, str]], now: list[tuple[int, str]], runs: int
) -> None:
    """One more is none: the auditor adds marks whether workers run or not."""
    progress = follow_marks(make_marks(*now), AT, make_marks(*before), STOOD, AT - DAY / 2)
    assert (progress.same_runs, progress.number) == (runs, len(now))
    assert progress.same_since == (AT if runs == 1 else STOOD.same_since)
    assert (progress.change, progress.per_day) == (len(now) - len(before), 2.0 * (len(now) - len(before)))
    assert progress.oldest == AT - len(now) * DAY
    assert msgspec.convert(progress.to_json(), MarkProgress) == progress


def test_the_first_run_knows_no_rate() -> None:
    """Nor has a run whose run before is of a version that did not count them: it counts from now on."""
    first = follow_marks(make_marks((1, "a")), AT, None, None, AT)
    assert (first.change, first.per_day, first.same_runs) == (None, None, 1)
    again = follow_marks(make_marks((1, "a")), AT, make_marks((1, "a")), None, AT - DAY)
    assert (again.change, again.same_runs) == (0, 1)


@pytest.mark.parametrize(
    ("number", "runs", "lasts", "told"),
    [
        (1, RUNS, timedelta(hours=1), True),
        (1, RUNS - 1, timedelta(hours=47), False),
        (1, 2, timedelta(hours=48), True),
        (1, 1, timedelta(hours=48), False),
        (0, RUNS, 4 * DAY, False),
    ],
)
def test_marks_that_stand_for_ten_runs_or_two_windows_are_told(
    number: int, runs: int, lasts: timedelta, *, told: bool
) -> None:
    """Two windows of a grace of a day; where there is no mark there is nothing to do."""
    progress = MarkProgress(number, AT - 3 * DAY, 0, 0.0, AT - lasts, runs)
    found = list(list_stalled(progress, around([]), DAY_S, AT))
    assert [one.subject for one in found] == (["underreplication"] if told else [])
    if found:
        assert {str(one.value) for one in found[0].statements} >= {
            str(runs),
            "not known: no worker runs, or each fails",
        }


@pytest.mark.parametrize(
    ("replication", "why"),
    [
        (around([]), "not known: no worker runs, or each fails"),
        (around([], auditor=False), "no auditor is elected"),
        (replace(around([], auditor=False), disabled="since then"), "since then"),
    ],
)
def test_why_nothing_moves_is_said_where_the_store_shows_it(replication: StoredReplication, why: str) -> None:
    """That somebody disabled it comes before that nobody is elected; and since when the oldest mark stands."""
    for oldest in (AT - 3 * DAY, None):
        progress = MarkProgress(1, oldest, 0, 0.0, AT - 3 * DAY, RUNS)
        [found] = list_stalled(progress, replication, DAY_S, AT)
        said = {one.field: one.value for one in found.statements}
        assert (said["why"], said["oldest since"]) == (why, None if oldest is None else oldest.isoformat())
