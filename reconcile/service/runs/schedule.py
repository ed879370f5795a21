"""The schedule of runs as a state machine: pure, over a given clock.

    ask ─────────────┐
    schedule ── due ─┴─> start ──> running ──> end ──> due again, later
                                     │
                     take_over ──────┘  broken off by another instance: due at once

A run is started by one instance in one epoch; each take-over begins a new one. The state survives the instance: it is
kept in the store (`record`), and every transition is written there before it is acted on.

Times are ms since 1970. A clock may jump: after a run of a future that is further away than the interval a job is due
at once, so that nothing waits for years; a run that is missed for long is made up for once, and what was missed is
counted.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

WHOLE: Final = 1
"""The share of a job without shares."""
_VERDICTS: Final = frozenset({0, 3, 4})
"""Exit codes of a run that came to its end (docs/operations/exit-codes.md)."""
_MOST_DOUBLED: Final = 20
_MINUTE_MS: Final = 60_000
_DAY: Final = 24 * 60
"""Minutes."""


class GateState(StrEnum):
    """The states of a maintenance."""

    BLOCKED = "BLOCKED_UNTIL_SAFE"
    SAFE = "SAFE"
    RELEASED = "RELEASED"


@dataclass(frozen=True, slots=True)
class Timing:
    """When a job is due.

    Attributes:
        name: of the job.
        every_ms: from the beginning of one run to that of the next.
        jitter: share of `every_ms` that is added at most, so that clusters do not all begin at once.
        retry_ms: until a failed run is repeated; doubled after each further failure, at most `every_ms`.
        shares: parts of the cluster that runs check in turn.
        cluster: its name; each cluster has another jitter.
        windows: begin and end, in minutes of the day (UTC), of when the schedule begins runs; none: at any time. What a
            caller asks for is begun at once.
    """

    name: str
    every_ms: int
    jitter: float = 0.0
    retry_ms: int = 300_000
    shares: int = 1
    cluster: str = ""
    windows: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Running:
    """A run that was begun.

    Attributes:
        number: of the job's runs.
        epoch: in which it was begun.
        instance: the running instance.
        since_ms: its beginning.
        share, shares: which, from 1, of how many.
        by: the requester; empty: the schedule.
    """

    number: int
    epoch: int
    instance: str
    since_ms: int
    share: int
    shares: int
    by: str = ""


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that has ended.

    Attributes:
        number, instance, since_ms, share, shares, by: as of `Running`.
        ended_ms: its end.
        exit_code: of the command; below 0: the signal that ended it.
        verdict: one line.
        folder: of the run, below the service's folder.
    """

    number: int
    instance: str
    since_ms: int
    share: int
    shares: int
    by: str
    ended_ms: int
    exit_code: int
    verdict: str
    folder: str

    @property
    def came_to_verdict(self) -> bool:
        """Whether the run came to its end, with any finding."""
        return self.exit_code in _VERDICTS


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of a job.

    Attributes:
        number: of the last run that was begun.
        running: the run under way.
        last: the run that ended last.
        latest: share → the last run of it that came to a verdict.
        asked: the requester of a run that has not begun yet, and when.
        next_share: the next share to check, from 1.
        failures: runs in a row without a verdict.
        missed: runs that were due, and not begun until the next was due, too.
        broken_off: runs that another instance began and did not end.
        begun_ms: when the last run was begun, whether it ended or not.
    """

    number: int = 0
    running: Running | None = None
    last: EndedRun | None = None
    latest: Mapping[int, EndedRun] = field(default_factory=dict)
    asked: tuple[str, int] | None = None
    next_share: int = WHOLE
    failures: int = 0
    missed: int = 0
    broken_off: int = 0
    begun_ms: int = 0


@dataclass(frozen=True, slots=True)
class Gate:
    """A maintenance that waits until it is safe.

    Attributes:
        id: its name.
        bookies, domains: to be taken away.
        target: the action on them.
        by: the person who opened it.
        opened_ms: when.
        state: what it may do.
        verdict: of the last check; one line.
        checked_ms: when that was; None: not yet.
        statement: why it was released without being safe; with who did.
        why: the reason that was given when it was opened.
        until_ms: when it is closed; None: when a caller closes it.
    """

    id: str
    bookies: tuple[str, ...]
    domains: tuple[str, ...]
    target: str
    by: str
    opened_ms: int
    state: GateState = GateState.BLOCKED
    verdict: str = ""
    checked_ms: int | None = None
    statement: str = ""
    why: str = ""
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ServiceState:
    """All that the service keeps.

    Attributes:
        epoch: one more with each take-over; 0: no instance ever led.
        leader: the instance that leads, or led last.
        address: of the leader.
        since_ms: when it took over.
        jobs: by name.
        gates: by id.
    """

    epoch: int = 0
    leader: str = ""
    address: str = ""
    since_ms: int = 0
    jobs: Mapping[str, JobState] = field(default_factory=dict)
    gates: Mapping[str, Gate] = field(default_factory=dict)

    def job(self, name: str) -> JobState:
        """Return the state of a job."""
        return self.jobs.get(name, JobState())

    def with_job(self, name: str, job: JobState) -> "ServiceState":
        """Return the state with another one of a job."""
        return replace(self, jobs={**self.jobs, name: job})

    @property
    def running(self) -> str | None:
        """The job that runs; None: none does."""
        return next((name for name, job in self.jobs.items() if job.running is not None), None)


def take_over(state: ServiceState, instance: str, address: str, now_ms: int) -> ServiceState:
    """Return the state after a take-over, by another instance or the same: jobs that were running are due at once."""
    jobs = {name: _break_off(job, now_ms) for name, job in state.jobs.items()}
    return replace(state, epoch=state.epoch + 1, leader=instance, address=address, since_ms=now_ms, jobs=jobs)


def _break_off(job: JobState, now_ms: int) -> JobState:
    if job.running is None:
        return job
    asked = job.asked or (job.running.by, now_ms)
    return replace(job, running=None, asked=asked, broken_off=job.broken_off + 1)


def find_due_ms(timing: Timing, job: JobState, now_ms: int) -> int:
    """Return when a job that is not running is due; an overdue job is due now."""
    return _move_into_window(timing, _find_wanted_ms(timing, job, now_ms), now_ms) if _waits(job) else now_ms


def _waits(job: JobState) -> bool:
    """Whether a job keeps to its windows: it does unless a caller asked for it."""
    return job.asked is None or not job.asked[0]


def _find_wanted_ms(timing: Timing, job: JobState, now_ms: int) -> int:
    """Return when a job is due, windows ignored."""
    if job.asked is not None or job.last is None:
        return now_ms
    last = job.last
    wait, since = timing.every_ms + _spread(timing, job.number), last.since_ms
    if job.failures:
        wait = min(timing.retry_ms << min(job.failures - 1, _MOST_DOUBLED), timing.every_ms)
        since = last.ended_ms
    # A time far ahead shows nothing: the clock was set back.
    return now_ms if since - now_ms > timing.every_ms else since + wait


def _move_into_window(timing: Timing, due_ms: int, now_ms: int) -> int:
    """Return when a run may begin that is due: then, or when the next window begins."""
    begins_ms = max(due_ms, now_ms)
    minute = begins_ms // _MINUTE_MS % _DAY
    waits = [
        0 if (minute - first) % _DAY < (last - first) % _DAY else (first - minute) % _DAY
        for first, last in timing.windows
    ]
    wait = min(waits, default=0)
    return begins_ms // _MINUTE_MS * _MINUTE_MS + wait * _MINUTE_MS if wait else due_ms


def _spread(timing: Timing, number: int) -> int:
    """Return the jitter of a run: the same on every instance."""
    digest = hashlib.sha256(f"{timing.cluster} {timing.name} {number}".encode()).digest()
    return int(timing.every_ms * timing.jitter * int.from_bytes(digest[:4], "big") / 2**32)


def choose_next(state: ServiceState, timings: Mapping[str, Timing], now_ms: int) -> tuple[str, int] | None:
    """Return the next job, and when it is due; None: a job is running, or there is none.

    What was asked for goes first, then what is due for longest.
    """
    if state.running is not None or not timings:
        return None
    waiting = {name: find_due_ms(timing, state.job(name), now_ms) for name, timing in timings.items()}
    asked = {
        name: asked[1]
        for name, due_ms in waiting.items()
        if (asked := state.job(name).asked) is not None and due_ms <= now_ms
    }
    if asked:
        name = min(asked, key=lambda name: (asked[name], name))
        return name, now_ms
    name = min(waiting, key=lambda name: (waiting[name], name))
    return name, waiting[name]


def start(state: ServiceState, timing: Timing, now_ms: int) -> ServiceState:
    """Return the state in which a job runs.

    Raises:
        ValueError: one is running; the caller's fault.
    """
    if state.running is not None:
        raise ValueError(f"{state.running} is running")
    job = state.job(timing.name)
    share = job.next_share if job.next_share <= timing.shares else WHOLE
    by = "" if job.asked is None else job.asked[0]
    running = Running(job.number + 1, state.epoch, state.leader, now_ms, share, timing.shares, by)
    # What a run that was broken off had missed is counted by then.
    due_ms = max(find_due_ms(timing, replace(job, asked=None), now_ms), job.begun_ms + timing.every_ms)
    missed = job.missed + max(0, (now_ms - due_ms) // timing.every_ms)
    changed = replace(job, number=running.number, running=running, asked=None, missed=missed, begun_ms=now_ms)
    return state.with_job(timing.name, changed)


def end(state: ServiceState, name: str, now_ms: int, exit_code: int, verdict: str, folder: str) -> ServiceState:
    """Return the state in which the run of a job has ended.

    Raises:
        ValueError: it is not running; the caller's fault.
    """
    job = state.job(name)
    run = job.running
    if run is None:
        raise ValueError(f"{name} is not running")
    began = (run.number, run.instance, run.since_ms, run.share, run.shares, run.by)
    ended = EndedRun(*began, now_ms, exit_code, verdict, folder)
    changed = replace(job, running=None, last=ended, failures=job.failures + 1)
    if ended.came_to_verdict:
        # Shares of another division overlap with these: a finding would be there twice.
        latest = {share: known for share, known in job.latest.items() if known.shares == run.shares}
        changed = replace(
            changed, latest={**latest, run.share: ended}, next_share=run.share % run.shares + 1, failures=0
        )
    return state.with_job(name, changed)


def ask(state: ServiceState, name: str, by: str, now_ms: int) -> ServiceState:
    """Return the state after a request for a run; a run that waits already is not requested twice."""
    job = state.job(name)
    return state if job.asked is not None else state.with_job(name, replace(job, asked=(by, now_ms)))


def is_over(gate: Gate, now_ms: int) -> bool:
    """Whether the time of an open gate is over."""
    return gate.until_ms is not None and now_ms >= gate.until_ms


def judge_gate(gate: Gate, now_ms: int, longest_ms: int) -> Gate:
    """Return a gate as it is now: blocked if its time is over, or its check is too old or in the future."""
    if is_over(gate, now_ms):
        return replace(gate, state=GateState.BLOCKED, verdict="its time is over: open another maintenance")
    is_checked = gate.checked_ms is not None and abs(now_ms - gate.checked_ms) <= longest_ms
    if gate.state is not GateState.SAFE or is_checked:
        return gate
    verdict = f"the last check was long ago; it said: {gate.verdict}"
    return replace(gate, state=GateState.BLOCKED, verdict=verdict)


def open_gate(state: ServiceState, gate: Gate) -> ServiceState:
    """Return the state with an additional gate.

    Raises:
        ValueError: there is one of that name.
    """
    if gate.id in state.gates:
        raise ValueError(f"there is a maintenance {gate.id!r} already")
    return replace(state, gates={**state.gates, gate.id: gate})


def take_check(state: ServiceState, gate_id: str, *, is_safe: bool, verdict: str, now_ms: int) -> ServiceState:
    """Return the state after a check of a gate: a check releases the gate or closes it again; a statement stays."""
    gate = state.gates.get(gate_id)
    if gate is None or gate.state is GateState.RELEASED:
        return state
    checked = replace(gate, state=GateState.SAFE if is_safe else GateState.BLOCKED, verdict=verdict, checked_ms=now_ms)
    return replace(state, gates={**state.gates, gate_id: checked})


def release_gate(state: ServiceState, gate_id: str, statement: str) -> ServiceState:
    """Return the state after a person released a gate by a statement.

    Raises:
        KeyError: there is none of that name.
    """
    gate = replace(state.gates[gate_id], state=GateState.RELEASED, statement=statement)
    return replace(state, gates={**state.gates, gate_id: gate})


def close_gate(state: ServiceState, gate_id: str) -> ServiceState:
    """Return the state without a gate; unchanged if there is no gate of that name."""
    return replace(state, gates={name: gate for name, gate in state.gates.items() if name != gate_id})
