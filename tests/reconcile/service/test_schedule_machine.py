"""The schedule in any order of events, with clocks that jump: nothing runs twice at once, nothing asked for is lost."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from reconcile.service.runs import schedule
from reconcile.service.runs.record import decode_state, encode_state
from reconcile.service.runs.schedule import ServiceState, Timing

MINUTE = 60_000
TIMINGS = {
    "scrutinize": Timing("scrutinize", 60 * MINUTE, jitter=0.2, retry_ms=MINUTE, shares=3),
    "capture": Timing("capture", 10 * MINUTE, retry_ms=MINUTE),
}
NAMES = st.sampled_from(sorted(TIMINGS))


class Scheduling(RuleBasedStateMachine):
    """An elected service whose leader changes, and whose clock does not only go on."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000 * MINUTE
        self.state = schedule.take_over(ServiceState(), "a", "a:1", self.now)
        self.asked: dict[str, int] = {}
        self.began: dict[str, int] = dict.fromkeys(TIMINGS, 0)
        self.ended: dict[str, int] = dict.fromkeys(TIMINGS, 0)
        self.broken: dict[str, int] = dict.fromkeys(TIMINGS, 0)

    @rule(minutes=st.integers(0, 300))
    def go_on(self, minutes: int) -> None:
        """Time passes."""
        self.now += minutes * MINUTE

    @rule(days=st.sampled_from([-3650, -1, 1, 3650]))
    def jump(self, days: int) -> None:
        """Somebody sets the clock."""
        self.now = max(0, self.now + days * 1440 * MINUTE)

    @rule(name=NAMES)
    def ask(self, name: str) -> None:
        """Somebody wants a run now."""
        self.state = schedule.ask(self.state, name, "ops", self.now)

    @rule(instance=st.sampled_from("ab"))
    def take_over(self, instance: str) -> None:
        """The leader is gone, whatever it did."""
        running = self.state.running
        epoch = self.state.epoch
        self.state = schedule.take_over(self.state, instance, f"{instance}:1", self.now)
        assert self.state.epoch == epoch + 1
        if running is not None:
            self.broken[running] += 1
            chosen = schedule.choose_next(self.state, TIMINGS, self.now)
            assert chosen is not None
            assert chosen[1] <= self.now, "what was broken off is due at once"

    @precondition(lambda self: self.state.running is None)
    @rule()
    def work(self) -> None:
        """The leader starts what is due."""
        chosen = schedule.choose_next(self.state, TIMINGS, self.now)
        assert chosen is not None
        name, due = chosen
        waiting = [name for name, job in self.state.jobs.items() if job.asked is not None]
        if waiting:
            assert name in waiting
        if due <= self.now:
            self.state = schedule.start(self.state, TIMINGS[name], self.now)
            self.began[name] += 1
            job = self.state.job(name)
            assert job.asked is None
            assert job.running is not None
            assert job.running.share <= TIMINGS[name].shares

    @precondition(lambda self: self.state.running is not None)
    @rule(code=st.sampled_from([0, 1, 3, 4, -9]))
    def finish(self, code: int) -> None:
        """The run ends."""
        name = self.state.running
        assert name is not None
        share = self.state.job(name).next_share
        self.state = schedule.end(self.state, name, self.now, code, "said", "folder")
        self.ended[name] += 1
        job = self.state.job(name)
        assert (job.failures == 0) == (code in (0, 3, 4))
        assert (job.next_share != share) == (code in (0, 3, 4) and TIMINGS[name].shares > 1)

    @invariant()
    def every_run_became_one_thing(self) -> None:
        """A run that was begun has ended, was broken off, or is under way; at most one is."""
        under_way = [name for name, job in self.state.jobs.items() if job.running is not None]
        assert len(under_way) <= 1
        for name in TIMINGS:
            job = self.state.job(name)
            assert job.number == self.began[name]
            assert job.broken_off == self.broken[name]
            assert self.began[name] == self.ended[name] + self.broken[name] + (name in under_way)

    @invariant()
    def nothing_waits_longer_than_two_intervals(self) -> None:
        """Whatever the clock did."""
        if self.state.running is None:
            for name, timing in TIMINGS.items():
                due = schedule.find_due_ms(timing, self.state.job(name), self.now)
                assert due - self.now <= (2 + timing.jitter) * timing.every_ms
                then = max(due, self.now)
                assert schedule.find_due_ms(timing, self.state.job(name), then) <= then, "it is due when that comes"

    @invariant()
    def the_record_holds_all_of_it(self) -> None:
        """What is read back is what was written."""
        assert decode_state(encode_state(self.state)) == self.state


TestScheduling = Scheduling.TestCase
TestScheduling.settings = settings(stateful_step_count=40)
