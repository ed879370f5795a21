"""Deletes over time: wide enough to be few, fine enough to show a mistake."""

import numpy as np
import pyarrow as pa
import pytest

from reconcile.jobs.undelete.histogram import DeletesBar, SessionDeletes, count_sessions, draw_bars

SECOND_MS = 1_000
HOUR_MS = 3_600 * SECOND_MS
BEGUN_MS = 1_767_225_600_000
"""2026-01-01T00:00Z."""


def draw(*at_ms: int | None, chosen: int = 0) -> tuple[DeletesBar, ...]:
    """Return the bars of some deletes, of which so many, from the last, are inside the window."""
    mask = np.arange(len(at_ms)) >= len(at_ms) - chosen
    return draw_bars(pa.chunked_array([pa.array(at_ms, pa.int64())]), mask)


def test_a_mistake_of_seconds_is_drawn_in_seconds() -> None:
    """Spans begin at whole seconds, and those without a delete are left out."""
    bars = draw(BEGUN_MS, BEGUN_MS + 5, BEGUN_MS + 20 * SECOND_MS, chosen=1)
    assert bars == (DeletesBar(BEGUN_MS, SECOND_MS, 2, 0), DeletesBar(BEGUN_MS + 20 * SECOND_MS, SECOND_MS, 1, 1))


@pytest.mark.parametrize(("count", "width"), [(24, SECOND_MS), (25, 10 * SECOND_MS)])
def test_there_are_no_more_than_two_dozen_bars(count: int, width: int) -> None:
    """One more second makes the spans wider."""
    bars = draw(*(BEGUN_MS + number * SECOND_MS for number in range(count)))
    assert {bar.width_ms for bar in bars} == {width}
    assert sum(bar.count for bar in bars) == count


def test_weeks_of_retention_are_drawn_in_the_widest_spans() -> None:
    """However long they took."""
    bars = draw(*(BEGUN_MS + number * 100 * 24 * HOUR_MS for number in range(60)))
    assert {bar.width_ms for bar in bars} == {28 * 24 * HOUR_MS}


def test_deletes_without_times_are_not_drawn() -> None:
    """As of etcd; those that have one are."""
    assert draw(None, None) == ()
    assert draw(None, BEGUN_MS, chosen=2) == (DeletesBar(BEGUN_MS, SECOND_MS, 1, 1),)


def test_sessions_are_listed_by_what_they_deleted() -> None:
    """Most first; without sessions, as on etcd, all are one."""
    columns = {
        "session": pa.array([7, 8, 8, None], pa.int64()),
        "txn": pa.array([4, 1, 3, 2], pa.int64()),
        "at_ms": pa.array([40, 10, 30, None], pa.int64()),
    }
    assert count_sessions(pa.table(columns)) == (
        SessionDeletes(8, 2, 1, 3, 10, 30),
        SessionDeletes(None, 1, 2, 2, None, None),
        SessionDeletes(7, 1, 4, 4, 40, 40),
    )
