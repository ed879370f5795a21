"""What is due after a handover, in several clusters, and after the shares were divided anew."""

from reconcile.service.runs import schedule
from reconcile.service.runs.schedule import State, Timing

HOUR = 3_600_000
NOW = 1_000 * HOUR


def run_once(timing: Timing, state: State, now: int, code: int = 0) -> State:
    """Return the state after a run."""
    return schedule.end(schedule.start(state, timing, now), timing.name, now, code, "said", f"at-{now}")


def test_what_ran_lately_is_not_run_again_by_the_next_leader() -> None:
    """It goes by the record, and not by its own beginning."""
    timing = Timing("capture", HOUR)
    state = run_once(timing, schedule.take_over(State(), "a", "a:1", NOW), NOW)
    state = schedule.take_over(state, "b", "b:1", NOW + HOUR // 2)
    assert schedule.choose_next(state, {"capture": timing}, NOW + HOUR // 2) == ("capture", NOW + HOUR)


def test_clusters_do_not_all_begin_at_once() -> None:
    """Jitter is of the cluster, the job and the run; the same for whoever leads."""
    due = {
        schedule.find_due_ms(timing, run_once(timing, State(), NOW).job("capture"), NOW)
        for timing in (Timing("capture", HOUR, 0.5, cluster=f"etcd://c{number}") for number in range(20))
    }
    assert len(due) == 20
    assert all(NOW + HOUR <= at <= NOW + 1.5 * HOUR for at in due)
    again = Timing("capture", HOUR, 0.5, cluster="etcd://c0")
    assert schedule.find_due_ms(again, run_once(again, State(), NOW).job("capture"), NOW) in due


def test_shares_of_another_division_are_let_go() -> None:
    """They overlap with the new ones: what is found in both would be listed twice."""
    halves, thirds = (Timing("scrutinize", HOUR, shares=shares) for shares in (2, 3))
    state = run_once(halves, run_once(halves, State(), NOW), NOW)
    assert {run.shares for run in state.job("scrutinize").latest.values()} == {2}
    assert sorted(state.job("scrutinize").latest) == [1, 2]
    state = run_once(thirds, state, NOW)
    assert {run.shares for run in state.job("scrutinize").latest.values()} == {3}
    assert len(state.job("scrutinize").latest) == 1


def test_what_was_missed_is_counted_whoever_asked_meanwhile() -> None:
    """Once for each interval; a run that was asked for in time missed nothing."""
    timing = Timing("capture", HOUR)
    state = run_once(timing, State(), NOW)
    late = schedule.ask(state, "capture", "ops", NOW + 5 * HOUR)
    assert run_once(timing, late, NOW + 5 * HOUR).job("capture").missed == 4
    early = schedule.ask(state, "capture", "ops", NOW + 1)
    assert run_once(timing, early, NOW + 1).job("capture").missed == 0


def test_what_was_missed_is_counted_once_however_often_the_run_is_broken_off() -> None:
    """A store that was gone for five hours, and instances that come and go when it is back."""
    timing = Timing("capture", HOUR)
    state = run_once(timing, State(), NOW)
    for minutes in range(3):
        at = NOW + 5 * HOUR + minutes * HOUR // 60
        state = schedule.start(schedule.take_over(state, "a", "a:1", at), timing, at)
    state = schedule.take_over(state, "b", "b:1", NOW + 8 * HOUR)
    job = run_once(timing, state, NOW + 8 * HOUR).job("capture")
    assert (job.missed, job.broken_off) == (4 + 1, 3)


def test_a_failure_is_repeated_sooner_and_then_more_seldom() -> None:
    """Twice as long each time, at most the interval."""
    timing = Timing("capture", HOUR, retry_ms=HOUR // 8)
    state, waits = State(), []
    for _ in range(5):
        state = run_once(timing, state, NOW, code=1)
        waits.append(schedule.find_due_ms(timing, state.job("capture"), NOW) - NOW)
    assert waits == [HOUR // 8, HOUR // 4, HOUR // 2, HOUR, HOUR]
