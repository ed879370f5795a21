"""Two instances and one store, the leader taken away again and again: one writer, no run lost, no finding twice.

`scripts/soak handovers N` has N handovers on each store, by each kind of line; here are a few.
"""

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from kazoo.client import KazooClient

from reconcile.service.api.methods import ApiError, Why
from reconcile.service.config import read_config
from reconcile.service.runs.history import read_points
from tests.support import waiting
from tests.support.etcd_server import EtcdServer
from tests.support.failing_stores import Proxy
from tests.support.namespaces import NEEDED, Namespace, may_make
from tests.support.service import InstanceProcess, ask, read_log, write_config, write_findings
from tests.support.waiting import PATIENCE_S, free_port
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.real

COUNT: Final = int(os.environ.get("BKMETA_SOAK_HANDOVERS", "1"))
SESSION: Final = "3s" if COUNT == 1 else "6s"
"""A soak runs where much else does: there a short one is lost again and again."""
KINDS: Final = ("kill", "cut", "freeze", "stop")
FIRST: Final = {"zookeeper": "cut", "etcd": "freeze"}
LINES: Final = {"zookeeper": "network", "etcd": "proxy"}
"""Whose line is cut how: by a network of its own for each instance, or by a relay that closes connections."""
PAIRS: Final = [
    f"{store}-{line}" for store in FIRST for line in ("network", "proxy") if COUNT > 1 or LINES[store] == line
]
JOBS: Final = '[jobs.capture]\nevery = "1s"\nretry = "1s"\n[jobs.scrutinize]\nevery = "1s"\nretry = "1s"\nshares = 2\n'
FOUND: Final = {1: [4, 8], 2: [15]}
"""Share → ledgers that something is wrong with."""


class Pair:
    """Two instances in processes of their own, each with a line of its own to the store; they share their data.

    Args:
        folder: for all of it.
        lines: to the store.
        uri: of the store, by way of hosts.
    """

    def __init__(self, folder: Path, lines: Mapping[str, Proxy | Namespace], uri: Callable[[str], str]) -> None:
        self.fake = folder / "fake"
        self.fake.mkdir()
        (self.fake / "pace").write_text("0.3")
        for share, ledgers in FOUND.items():
            write_findings(self.fake / f"findings-{share}", ledgers)
        self.data = folder / "data"
        self.lines = lines
        self._configs = {
            name: write_config(folder, uri(line.hosts), name, self.data, JOBS, session=SESSION, host=_address(line))
            for name, line in lines.items()
        }
        self._addresses = {name: read_config(path).listen.grpc for name, path in self._configs.items()}
        self._folder = folder
        self._running: dict[str, InstanceProcess] = {}
        for name in lines:
            self.start(name)

    def start(self, name: str) -> None:
        """Start an instance."""
        line, log = self.lines[name], self._folder / f"{name}.log"
        before = line.before if isinstance(line, Namespace) else ()
        self._running[name] = InstanceProcess(self._configs[name], self.fake, log, before=before)

    def close(self) -> None:
        """End both."""
        for running in self._running.values():
            running.kill()

    def ask(self, name: str, method: str, **fields: Any) -> list[Any]:
        """Ask an instance; nothing, where it does not answer."""
        with suppress(ApiError):
            return ask(self._addresses[name], method, deadline_s=5.0, **fields)
        return []

    def find_leader(self) -> str | None:
        """Return who says that it leads; None: nobody does, or not one alone."""
        leading = [name for name in self._running for status in self.ask(name, "get-status") if status.leads]
        return leading[0] if len(leading) == 1 else None

    def await_leader(self) -> str:
        """Wait until somebody leads."""
        found: list[str | None] = [None]

        def leads() -> bool:
            found[0] = self.find_leader()
            return found[0] is not None

        until(leads, "one leads")
        assert found[0] is not None
        return found[0]

    def hand_over(self, kind: str) -> None:
        """Take the leader away; what somebody asked of it is run by the other one."""
        leader = self.await_leader()
        other = next(name for name in self.lines if name != leader)
        until(lambda: bool(self.ask(leader, "run-now", job="capture")), "it takes a request")
        asked = self._job(leader, "capture")
        number = max(asked.last.number, asked.running.number if asked.running.by else 0)
        was = self._running[leader]
        match kind:
            case "kill":
                was.kill()
            case "stop":
                was.stop()
            case "freeze":
                was.freeze()
            case "cut":
                self.lines[leader].down()
        until(lambda: any(status.leads for status in self.ask(other, "get-status")), f"{other} leads after {kind}")
        match kind:
            case "kill" | "stop":
                self.start(leader)
            case "freeze":
                was.thaw()
            case "cut":
                assert not any(status.leads for status in self.ask(leader, "get-status"))
                self.lines[leader].up()

        def is_run() -> bool:
            job = self._job(other, "capture")
            return bool(job.last.number >= number and not job.asked)

        until(is_run, "what was asked for was run")

    def require_follower(self) -> None:
        """Demand that the other instance answers what changes nothing as the leader does, and names it for the rest."""
        texts: list[str] = []

        def follows() -> bool:
            # Where a machine does much else, the lead may be lost at any moment: then all of it is asked again.
            leader = self.await_leader()
            other = next(name for name in self.lines if name != leader)
            seen = [[one.id for one in self.list_findings(name)] for name in (leader, other)]
            try:
                ask(self._addresses[other], "run-now", job="capture")
            except ApiError as error:
                texts.append(error.text)
                named = error.why is Why.NOT_LEADER and f"{leader} leads, at {self._addresses[leader]}" in error.text
                return named and seen[0] == seen[1]
            return False

        until(follows, f"it sees what the leader sees, and names it: {texts}")

    def list_findings(self, name: str) -> list[Any]:
        """Return the findings that an instance knows, by ledger; runs that are let go meanwhile are asked for again."""
        found: list[Any] = []

        def are_listed() -> bool:
            found[:] = self.ask(name, "list-findings")
            return bool(found)

        until(are_listed, "findings are listed")
        return sorted(found, key=lambda one: int(one.ledger_id))

    def _job(self, name: str, job: str) -> Any:
        found: list[Any] = []

        def answers() -> bool:
            found[:] = self.ask(name, "get-status")
            return bool(found)

        until(answers, f"{name} answers")
        return next(one for one in found[0].jobs if one.name == job)

    def read_status(self) -> Any:
        """Return the status by who leads."""
        [status] = self.ask(self.await_leader(), "get-status")
        return status


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait, and in a soak for longer."""
    waiting.until(condition, what, PATIENCE_S if COUNT == 1 else 6 * PATIENCE_S)


def _address(line: Proxy | Namespace) -> str:
    return line.address if isinstance(line, Namespace) else "127.0.0.1"


@contextmanager
def serving(kind: str, folder: Path) -> Iterator[int]:
    """Give the port of a server of either kind, that listens at every address of this host."""
    port = free_port()
    server: ZooKeeperServer | EtcdServer
    if kind == "zookeeper":
        server = ZooKeeperServer(folder / kind, port, settings="clientPortAddress=0.0.0.0")
    else:
        (folder / kind).mkdir()
        server = EtcdServer(folder / kind, "--listen-client-urls", f"http://0.0.0.0:{port}")
        server.port = port
    server.start()
    try:
        yield port
    finally:
        server.kill()


@pytest.fixture(params=PAIRS)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    """Two instances on a store of either kind, by lines of either kind."""
    kind, _, line = request.param.partition("-")
    is_network = line == "network" and may_make()
    if line == "network" and not is_network and COUNT > 1:
        pytest.skip(NEEDED)
    root = f"/{tmp_path.name}"
    scheme = "zk+hierarchical" if kind == "zookeeper" else "etcd"
    with ExitStack() as stack:
        port = stack.enter_context(serving(kind, tmp_path))
        if kind == "zookeeper":
            client = KazooClient(f"127.0.0.1:{port}")
            client.start()
            client.ensure_path(f"{root}/ledgers")
            client.stop()
            client.close()
        lines: dict[str, Proxy | Namespace] = {}
        for number, name in enumerate(("one", "two"), 1):
            lines[name] = (
                stack.enter_context(Namespace(number, port))
                if is_network
                else stack.enter_context(Proxy("127.0.0.1", port))
            )
        pair = Pair(tmp_path, lines, lambda by: f"{scheme}://{by}{root}/ledgers")
        stack.callback(pair.close)
        yield pair


def list_begun(pair: Pair, job: str) -> Counter[int]:
    """Return number of run → how often its command was begun."""
    begun: Counter[int] = Counter()
    for line in read_log(pair.fake):
        if line != "OVERLAP" and line[1] == job:
            begun[int(Path(line[line.index("--out") + 1]).parent.name.rpartition("-")[2])] += 1
    return begun


def test_handovers_have_one_writer_lose_no_run_and_show_no_finding_twice(
    pair: Pair, request: pytest.FixtureRequest
) -> None:
    """By kill -9, by SIGTERM, by a process that stands still, by a cut line."""
    dice = random.Random(int(os.environ.get("BKMETA_SOAK_SEED", "7")))
    kinds: Counter[str] = Counter()
    for number in range(COUNT):
        kind = dice.choice(KINDS) if number else FIRST[request.node.callspec.params["pair"].partition("-")[0]]
        kinds[kind] += 1
        pair.hand_over(kind)
        leader = pair.await_leader()

        def has_looked(leader: str = leader) -> bool:
            status = pair.ask(leader, "get-status")
            return any(job.name == "scrutinize" and len(job.latest) == len(FOUND) for one in status for job in one.jobs)

        until(has_looked, "each share was looked at")
        found = pair.list_findings(leader)
        assert [one.ledger_id for one in found] == [4, 8, 15], "each once"
        assert "OVERLAP" not in read_log(pair.fake), f"two writers, at handover {number}, {kind}"
        pair.require_follower()
    status = pair.read_status()
    jobs = {job.name: job for job in status.jobs}
    said: dict[str, object] = {"handovers": dict(kinds), "epoch": status.epoch}
    for name, job in jobs.items():
        begun = list_begun(pair, name)
        assert max(begun.values()) == 1, "no run was begun twice"
        ended = job.last.number
        lacking = [number for number in range(1, ended + 1) if number not in begun]
        assert len(lacking) <= job.broken_off, "a run that was never begun was broken off"
        points = len(read_points(pair.data / name, 10**6))
        said[name] = {"runs": ended, "broken_off": job.broken_off, "missed": job.missed, "in_history": points}
    assert status.epoch > COUNT
    print(json.dumps(said))  # noqa: T201 - figures of a soak
