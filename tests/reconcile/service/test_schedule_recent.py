"""What is due after a handover, in several clusters, and after the shares were divided anew."""

import pytest

from reconcile.service.runs import schedule
from reconcile.service.runs.schedule import ServiceState, Timing

HOUR = 3_600_000
NOW = 1_000 * HOUR


def run_once(timing: Timing, state: ServiceState, now: int, code: int = 0) -> ServiceState:
    """Return the state after a run."""
    return schedule.end(schedule.start(state, timing, now), timing.name, now, code, "said", f"at-{now}")


def test_what_ran_lately_is_not_run_again_by_the_next_leader() -> None:
    """It goes by the record, and not by its own beginning."""
    timing = Timing("capture", HOUR)
    state = run_once(timing, schedule.take_over(ServiceState(), "a", "a:1", NOW), NOW)
    state = schedule.take_over(state, "b", "b:1", NOW + HOUR // 2)
    assert schedule.choose_next(state, {"capture": timing}, NOW + HOUR // 2) == ("capture", NOW + HOUR)


def test_clusters_do_not_all_begin_at_once() -> None:
    """Jitter is of the cluster, the job and the run; the same for whoever leads."""
    due = {
        schedule.find_due_ms(timing, run_once(timing, ServiceState(), NOW).job("capture"), NOW)
        for timing in (Timing("capture", HOUR, 0.5, cluster=f"etcd://c{number}") for number in range(20))
    }
    assert len(due) == 20
    assert all(NOW + HOUR <= at <= NOW + 1.5 * HOUR for at in due)
    again = Timing("capture", HOUR, 0.5, cluster="etcd://c0")
    assert schedule.find_due_ms(again, run_once(again, ServiceState(), NOW).job("capture"), NOW) in due


def test_shares_of_another_division_are_let_go() -> None:
    """They overlap with the new ones: what is found in both would be listed twice."""
    halves, thirds = (Timing("scrutinize", HOUR, shares=shares) for shares in (2, 3))
    state = run_once(halves, run_once(halves, ServiceState(), NOW), NOW)
    assert {run.shares for run in state.job("scrutinize").latest.values()} == {2}
    assert sorted(state.job("scrutinize").latest) == [1, 2]
    state = run_once(thirds, state, NOW)
    assert {run.shares for run in state.job("scrutinize").latest.values()} == {3}
    assert len(state.job("scrutinize").latest) == 1


def test_what_was_missed_is_counted_whoever_asked_meanwhile() -> None:
    """Once for each interval; a run that was asked for in time missed nothing."""
    timing = Timing("capture", HOUR)
    state = run_once(timing, ServiceState(), NOW)
    late = schedule.ask(state, "capture", "ops", NOW + 5 * HOUR)
    assert run_once(timing, late, NOW + 5 * HOUR).job("capture").missed == 4
    early = schedule.ask(state, "capture", "ops", NOW + 1)
    assert run_once(timing, early, NOW + 1).job("capture").missed == 0


def test_what_was_missed_is_counted_once_however_often_the_run_is_broken_off() -> None:
    """A store that was gone for five hours, and instances that come and go when it is back."""
    timing = Timing("capture", HOUR)
    state = run_once(timing, ServiceState(), NOW)
    for minutes in range(3):
        at = NOW + 5 * HOUR + minutes * HOUR // 60
        state = schedule.start(schedule.take_over(state, "a", "a:1", at), timing, at)
    state = schedule.take_over(state, "b", "b:1", NOW + 8 * HOUR)
    job = run_once(timing, state, NOW + 8 * HOUR).job("capture")
    assert (job.missed, job.broken_off) == (4 + 1, 3)


def test_a_failure_is_repeated_sooner_and_then_more_seldom() -> None:
    """Twice as long each time, at most the interval."""
    timing = Timing("capture", HOUR, retry_ms=HOUR // 8)
    state, waits = ServiceState(), []
    for _ in range(5):
        state = run_once(timing, state, NOW, code=1)
        waits.append(schedule.find_due_ms(timing, state.job("capture"), NOW) - NOW)
    assert waits == [HOUR // 8, HOUR // 4, HOUR // 2, HOUR, HOUR]


NIGHT = ((22 * 60, 6 * 60),)
MIDNIGHT = NOW - NOW % (24 * HOUR)
MINUTE = 60_000


@pytest.mark.parametrize(
    ("windows", "due", "begins"),
    [
        (NIGHT, 5 * 60, 5 * 60),
        (NIGHT, 6 * 60 - 1, 6 * 60 - 1),
        (NIGHT, 6 * 60, 22 * 60),
        (NIGHT, 21 * 60 + 59, 22 * 60),
        (NIGHT, 22 * 60, 22 * 60),
        (NIGHT, 23 * 60, 23 * 60),
        (((60, 120), (13 * 60, 14 * 60)), 3 * 60, 13 * 60),
        (((60, 120), (13 * 60, 14 * 60)), 15 * 60, 25 * 60),
        ((), 12 * 60, 12 * 60),
    ],
)
def test_the_schedule_begins_runs_at_their_times_of_the_day(
    windows: tuple[tuple[int, int], ...], due: int, begins: int
) -> None:
    """In minutes of a day: what is due outside of the windows begins with the next one, over midnight, too."""
    timing = Timing("capture", HOUR, windows=windows)
    at = MIDNIGHT + due * MINUTE
    state = run_once(Timing("capture", HOUR), ServiceState(), at - HOUR)
    assert schedule.choose_next(state, {"capture": timing}, at) == ("capture", MIDNIGHT + begins * MINUTE)


def test_what_a_caller_asks_for_begins_at_any_time_of_the_day() -> None:
    """What the schedule had begun and a handover broke off waits for the next window."""
    timing, noon = Timing("capture", HOUR, windows=NIGHT), MIDNIGHT + 12 * HOUR
    night = MIDNIGHT + 22 * HOUR
    assert schedule.choose_next(schedule.ask(ServiceState(), "capture", "ops", noon), {"capture": timing}, noon) == (
        "capture",
        noon,
    )
    broken_off = schedule.take_over(schedule.start(ServiceState(), timing, noon), "b", "b:1", noon)
    assert schedule.choose_next(broken_off, {"capture": timing}, noon) == ("capture", night)
    assert schedule.choose_next(broken_off, {"capture": timing}, night + 5) == ("capture", night + 5)
