"""A real cluster and two instances of the real program, one fault after the other: no false alarm, no run lost.

`scripts/soak serve N` goes on for N minutes, a day where none are named, and prints a line for each fault.
"""

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from reconcile.service.api.methods import ApiError
from reconcile.service.config import read_config
from reconcile.service.runs.history import read_points
from tests.support.cluster import Cluster
from tests.support.disks import fill, may_mount, mounted
from tests.support.failing_stores import Proxy
from tests.support.processes import find_children
from tests.support.scrutinized_cluster import ScrutinizedCluster
from tests.support.service import HEALTH, REAL_PROGRAM, InstanceProcess, ask, fetch, write_config
from tests.support.waiting import until

pytestmark = pytest.mark.real

MINUTES: Final = float(os.environ.get("BKMETA_SOAK_SERVE", "0"))
SEED: Final = int(os.environ.get("BKMETA_SOAK_SEED", "7"))
JOBS: Final = (
    '[jobs.capture]\nevery = "10s"\nretry = "1s"\n[jobs.scrutinize]\nevery = "20s"\nretry = "1s"\nshares = 2\n'
    'arguments = ["--wire", "--recheck-after", "1s"]\n'
)
SHARES: Final = 2
PATIENCE_S: Final = 900.0
DISK_MIB: Final = 64
MOST_LEDGERS: Final = 120
JUMPS_S: Final = (3600, 86_400, -86_400, 3650 * 86_400, -3650 * 86_400)
_ALARMS: Final = (3, 4)
"""Exit codes of a scrutiny that found something, or was not sure."""


class Soak:
    """Two instances, each with a line of its own to the store, that share a disk of their own; and what went wrong.

    Args:
        folder: for all of it.
        there: the cluster.
        stack: ends what is begun.
    """

    def __init__(self, folder: Path, there: ScrutinizedCluster, stack: ExitStack) -> None:
        self.there = there
        self.dice = random.Random(SEED)
        self.orders = folder / "orders"
        self.orders.mkdir()
        self.data = folder / "data"
        self.has_disk = may_mount()
        if self.has_disk:
            stack.enter_context(mounted(self.data, mib=DISK_MIB))
        host, port = there.cluster.zookeeper.split(":")
        self._folder = folder
        self._lines = {name: stack.enter_context(Proxy(host, int(port))) for name in ("one", "two")}
        self._configs = {
            name: write_config(folder, f"zk+hierarchical://{line.hosts}/ledgers", name, self.data, JOBS, session="10s")
            for name, line in self._lines.items()
        }
        self._listens = {name: read_config(path).listen for name, path in self._configs.items()}
        self._running: dict[str, InstanceProcess] = {}
        stack.callback(self._close)
        self.alarms: list[object] = []
        self.seen = 0
        self._written: list[int] = []
        for name in self._lines:
            self._start(name)

    def _start(self, name: str) -> None:
        log = self._folder / f"{name}.log"
        self._running[name] = InstanceProcess(self._configs[name], self.orders, log, REAL_PROGRAM)

    def _close(self) -> None:
        for running in self._running.values():
            running.kill()

    # What is asked

    def ask(self, name: str, method: str, **fields: Any) -> list[Any]:
        """Ask an instance; nothing, where it does not answer, or refuses."""
        with suppress(ApiError):
            port = int(self._listens[name].grpc.rpartition(":")[2])
            return ask(port, method, deadline_s=60.0, **fields)
        return []

    def fetch(self, name: str, path: str) -> tuple[int, str]:
        """Fetch from an instance; 0 where nobody answers."""
        with suppress(OSError):
            listen = self._listens[name]
            address = listen.health if path in HEALTH else listen.http
            return fetch(int(address.rpartition(":")[2]), path)
        return 0, ""

    def list_leaders(self) -> list[str]:
        """Return who says that it leads."""
        return [name for name in self._running for status in self.ask(name, "get-status") if status.leads]

    def await_leader(self, *names: str) -> str:
        """Wait until one instance leads, of some or of both."""
        leaders: list[str] = []

        def leads() -> bool:
            leaders[:] = self.list_leaders()
            return len(leaders) == 1 and leaders[0] in (names or self._running)

        self.until(leads, "one leads")
        return leaders[0]

    def read_job(self, name: str) -> Any:
        """Return what the leader knows of a job."""
        statuses: list[Any] = []

        def answers() -> bool:
            statuses[:] = self.ask(self.await_leader(), "get-status")
            return bool(statuses)

        self.until(answers, "the leader answers")
        return next(job for job in statuses[0].jobs if job.name == name)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait, on a machine that may do much else, and where every session may be lost meanwhile."""
        until(condition, what, PATIENCE_S)

    # What happens to them

    def work(self) -> None:
        """Write, leave open and delete ledgers, as clients of a healthy cluster do."""
        there = self.there
        self._written += [there.write((3, 2, 2), 5), there.write((2, 2, 2), 5), there.write((3, 3, 2), 3, close=False)]
        while len(self._written) > MOST_LEDGERS:
            there.cluster("delete", ledger=self._written.pop(0))

    def look(self, kind: str) -> None:
        """Have every ledger looked at from now on: whatever is said of a healthy cluster is a false alarm."""
        job = self.read_job("scrutinize")
        before = max(job.last.number, job.running.number)
        runs: list[Any] = []

        def have_looked() -> bool:
            job = self.read_job("scrutinize")
            runs[:] = [run for run in job.latest if run.number > before]
            if len(runs) < SHARES and not job.asked and not job.HasField("running"):
                self.ask(self.await_leader(), "run-now", job="scrutinize")
            return len(runs) == SHARES

        self.until(have_looked, "each share was looked at")
        self.alarms += [(kind, run.share, run.exit_code, run.verdict) for run in runs if run.exit_code != 0]
        self.alarms += [(kind, one.category, one.ledger_id) for one in self.ask(self.await_leader(), "list-findings")]

    def list_alarms(self, kind: str) -> None:
        """Count what scrutinies by the schedule said since the last look at them."""
        points = read_points(self.data / "scrutinize", 10**6)
        self.alarms += [(kind, point.verdict) for point in points[self.seen :] if point.exit_code in _ALARMS]
        self.seen = len(points)

    def kill(self) -> None:
        """The leader is killed; the other one leads."""
        leader = self.await_leader()
        self._running[leader].kill()
        self.await_other(leader)
        self._start(leader)

    def stop(self) -> None:
        """The leader is told to end."""
        leader = self.await_leader()
        self._running[leader].stop()
        self.await_other(leader)
        self._start(leader)

    def freeze(self) -> None:
        """The leader stands still."""
        leader = self.await_leader()
        self._running[leader].freeze()
        try:
            self.await_other(leader, frozen=True)
        finally:
            self._running[leader].thaw()

    def cut(self) -> None:
        """The leader's line to the store is cut."""
        leader = self.await_leader()
        self._lines[leader].down()
        self.await_other(leader)
        self._lines[leader].up()

    def await_other(self, leader: str, *, frozen: bool = False) -> None:
        """Wait until the other instance leads."""
        [other] = self._running.keys() - {leader}
        if frozen:
            self.until(lambda: any(status.leads for status in self.ask(other, "get-status")), f"{other} leads")
        else:
            self.await_leader(other)

    def store(self) -> None:
        """Nobody reaches the store, until both say so."""
        for line in self._lines.values():
            line.down()
        for name in self._running:
            self.until(lambda name=name: self.fetch(name, "/readyz")[0] == 503, "it is not ready")  # type: ignore[misc] # mypy types no default here
            assert self.fetch(name, "/healthz")[0] == 200
        for line in self._lines.values():
            line.up()
        for name in self._running:
            self.until(lambda name=name: self.fetch(name, "/readyz")[0] == 200, "it is ready")  # type: ignore[misc] # mypy types no default here

    def bookie(self) -> None:
        """A bookie is stopped or killed, a scrutiny comes to its verdict, and it starts again."""
        bookie = self.dice.choice(self.there.bookies)
        self.there.cluster(self.dice.choice(["bookie_stop", "bookie_kill"]), n=bookie.n)
        before = self.read_job("scrutinize").last.number

        def came_to_verdict() -> bool:
            job = self.read_job("scrutinize")
            if not job.asked and job.last.number <= before + 1:
                self.ask(self.await_leader(), "run-now", job="scrutinize")
            return any(run.number > before + 1 for run in job.latest)

        self.until(came_to_verdict, "a scrutiny without a bookie has a verdict")
        self.there.cluster.start(bookie)

    def disk(self) -> None:
        """The disk is full until runs fail."""
        filler = self.data / "filler"
        fill(filler)
        self.until(lambda: self.read_job("capture").failures > 0, "a run failed")
        assert all(self.fetch(name, "/healthz")[0] == 200 for name in self._running)
        filler.unlink()
        self.until(lambda: self.read_job("capture").failures == 0, "a run came to its verdict")

    def jvm(self) -> None:
        """Spark's JVM is killed."""
        (self.orders / "spark").touch()
        killed: list[int] = []

        def is_there() -> bool:
            job = self.read_job("scrutinize")
            if not job.asked and not job.HasField("running"):
                self.ask(self.await_leader(), "run-now", job="scrutinize")
            for running in self._running.values():
                killed.extend(find_children(running.process.pid, name="java", deep=True))
            for pid in killed:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return bool(killed)

        self.until(is_there, "Spark's JVM is killed")
        (self.orders / "spark").unlink()
        self.until(lambda: self.read_job("scrutinize").failures == 0, "a scrutiny came to its verdict")

    def clock(self) -> None:
        """The services' clock is set, and after a look back again."""
        (self.orders / "ahead").write_text(str(self.dice.choice(JUMPS_S)))
        self.look("clock")
        (self.orders / "ahead").write_text("0")

    def read_figures(self) -> dict[str, dict[str, int]]:
        """Return memory, files and threads of each instance."""
        figures: dict[str, dict[str, int]] = {}
        for name in self._running:
            for line in self.fetch(name, "/metrics")[1].splitlines():
                key, _, value = line.partition(" ")
                if key.startswith("process_"):
                    figures.setdefault(name, {})[key.removeprefix("process_")] = int(float(value))
        return figures


@pytest.fixture
def soak(tmp_path: Path) -> Iterator[Soak]:
    """Four bookies that have all that their records ask for, and two instances."""
    with Cluster(tmp_path / "cluster") as cluster, ExitStack() as stack:
        there = ScrutinizedCluster(cluster)
        for _ in range(4):
            there.write((3, 2, 2), 10)
        made = Soak(tmp_path, there, stack)
        made.await_leader()
        yield made


def test_one_fault_after_the_other_gives_no_false_alarm_and_loses_no_run(soak: Soak) -> None:
    """After each fault every ledger is looked at; between faults the schedule's own runs count, too."""
    faults = {
        "kill": soak.kill, "store": soak.store, "bookie": soak.bookie, "jvm": soak.jvm, "clock": soak.clock,
        "freeze": soak.freeze, "cut": soak.cut, "stop": soak.stop,
    }  # fmt: skip
    if soak.has_disk:
        faults["disk"] = soak.disk
    began, done, slowest = time.monotonic(), Counter[str](), Counter[str]()
    if MINUTES:
        soak.look("at first")
    order = list(faults)
    while not done or time.monotonic() < began + 60 * MINUTES:
        kind = order[done.total() % len(order)]
        if kind == order[0] and done:
            soak.dice.shuffle(order)
            kind = order[0]
        since = time.monotonic()
        soak.work()
        faults[kind]()
        if kind == "bookie":
            soak.seen = len(read_points(soak.data / "scrutinize", 10**6))
        soak.look(kind)
        soak.list_alarms(kind)
        done[kind] += 1
        slowest[kind] = max(slowest[kind], round(time.monotonic() - since))
        said = {"minutes": round((time.monotonic() - began) / 60, 1), "fault": kind, "alarms": len(soak.alarms)}
        print(json.dumps({**said, **soak.read_figures()}), flush=True)  # noqa: T201 - figures of a soak
    [status] = soak.ask(soak.await_leader(), "get-status")
    runs: dict[str, object] = {}
    for job in status.jobs:
        codes = Counter(point.exit_code for point in read_points(soak.data / job.name, 10**6))
        number = max(job.last.number, job.running.number)
        ended = number - job.broken_off - job.HasField("running")
        runs[job.name] = {
            "begun": number, "broken_off": job.broken_off, "missed": job.missed, "in_history": codes.total(),
            "exit_codes": dict(codes), "ended": ended,
        }  # fmt: skip
        assert codes.total() <= ended, "a run counted twice"
    figures = {
        "minutes": round((time.monotonic() - began) / 60, 1), "seed": SEED, "faults": done, "slowest_s": slowest,
        "epoch": status.epoch, "runs": runs, "ledgers": len(soak.there.cluster.ledgers()), "alarms": soak.alarms,
    }  # fmt: skip
    print(json.dumps(figures), flush=True)  # noqa: T201 - figures of a soak
    assert soak.alarms == []
