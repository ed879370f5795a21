"""What a service outlives: its store, its disk, its clock, its readers; and what does not outlive it.

`scripts/soak runs N` has N runs of the last test; `scripts/soak outage N` takes the stores away for N minutes.
"""

import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from kazoo.client import KazooClient

from reconcile.service.api.methods import METHODS, SERVICE, ApiError, Why
from reconcile.service.config import Config, read_config
from reconcile.service.server import start_service
from tests.support.disks import fill, may_mount, mounted
from tests.support.etcd_server import EtcdServer
from tests.support.processes import find_children, is_running
from tests.support.service import (
    HEALTH,
    PROGRAM,
    TOKEN,
    InstanceProcess,
    ask,
    fetch,
    held,
    make_context,
    read_log,
    write_config,
    write_findings,
)
from tests.support.waiting import until
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.long, pytest.mark.real]

RUNS: Final = int(os.environ.get("BKMETA_SOAK_RUNS", "15"))
OUTAGE_S: Final = 60.0 * float(os.environ.get("BKMETA_SOAK_OUTAGE", "0"))
LOOKS_S: Final = 15.0
"""Between looks at a service whose store is gone for long."""
EACH_SECOND: Final = '[jobs.capture]\nevery = "1s"\nretry = "1s"\n'


class Service:
    """An instance in a process of its own, on a store of its own."""

    def __init__(self, folder: Path, uri: str, jobs: str, session: str) -> None:
        self.fake = folder / "fake"
        self.fake.mkdir(parents=True)
        self._path = write_config(folder, uri, "one", folder / "data", jobs, session=session)
        self._log = folder / "log"
        self.config: Config = read_config(self._path)
        self.start()

    def start(self) -> None:
        """Start it."""
        self.running = InstanceProcess(self._path, self.fake, self._log)

    @property
    def grpc_port(self) -> int:
        """Where it is asked."""
        return int(self.config.listen.grpc.rpartition(":")[2])

    def fetch(self, path: str) -> tuple[int, str]:
        """Ask over HTTP; 0 where nobody answers."""
        try:
            listen = self.config.listen
            address = listen.health if path in HEALTH else listen.http
            return fetch(int(address.rpartition(":")[2]), path)
        except OSError as error:
            return 0, str(error)

    def read_job(self) -> Any:
        """Return what is known of its job."""
        [status] = ask(self.grpc_port, "get-status")
        return status.jobs[0]

    def await_runs(self, number: int) -> None:
        """Wait until so many runs were begun."""

        def began() -> bool:
            code, text = self.fetch("/v1/get-status")
            jobs = json.loads(text)["jobs"] if code == 200 else []
            return bool(jobs) and int(jobs[0].get("last", {"number": 0})["number"]) >= number

        until(began, f"{number} runs")


Make = Callable[..., Service]


@pytest.fixture
def make(tmp_path: Path, etcd_server: EtcdServer) -> Iterator[Make]:
    """Give a function that starts a service."""
    with ExitStack() as stack:

        def start(jobs: str = EACH_SECOND, uri: str = "", session: str = "30s") -> Service:
            uri = uri or f"etcd://{etcd_server.hosts}/{tmp_path.name}/ledgers"
            service = Service(tmp_path / uri.partition(":")[0], uri, jobs, session)
            stack.callback(service.running.kill)
            return service

        yield start


def read_figures(service: Service) -> dict[str, float]:
    """Return what a service says of its process and of its runs; those of all commands together."""
    text = service.fetch("/metrics")[1]
    return {
        name: sum(float(value) for value in re.findall(rf"(?m)^{name}\S* (\S+)$", text))
        for name in (
            "process_open_fds",
            "process_resident_memory_bytes",
            "process_threads",
            "bookkeeper_metadata_service_runs_total",
            "bookkeeper_metadata_service_missed_total",
            "bookkeeper_metadata_service_commands",
        )
    }


def require_patience(service: Service) -> None:
    """Demand that a service whose store is gone answers, says so, and runs nothing."""
    assert service.running.process.poll() is None
    assert service.fetch("/healthz")[0] == 200
    code, text = service.fetch("/readyz")
    assert code == 503
    assert len(text) > len("not ready: \n"), "it says why"
    [status] = ask(service.grpc_port, "get-status")
    assert (status.leads, status.jobs[0].last.exit_code) == (False, 0)
    assert status.problem
    with pytest.raises(ApiError) as refused:
        ask(service.grpc_port, "run-now", job="capture")
    assert refused.value.why is Why.NOT_LEADER
    assert read_figures(service)["bookkeeper_metadata_service_commands"] == 0


def await_time(seconds: float) -> None:
    """Wait."""
    end = time.monotonic() + seconds
    until(lambda: time.monotonic() >= end, "time passes", patience_s=seconds + 60)


def test_a_store_that_is_gone_is_said_and_what_was_missed_is_counted(make: Make, tmp_path: Path) -> None:
    """The service answers with what it saw last; when the store is back it leads again, without anybody's help."""
    zookeeper, etcd = ZooKeeperServer(tmp_path / "servers-zookeeper"), EtcdServer(tmp_path / "servers-etcd")
    etcd.folder.mkdir()
    servers: dict[str, ZooKeeperServer | EtcdServer] = {"zk+hierarchical": zookeeper, "etcd": etcd}
    with ExitStack() as stack:
        for server in servers.values():
            server.start()
            stack.callback(server.kill)
        services = [make(uri=f"{scheme}://{server.hosts}/ledgers", session="3s") for scheme, server in servers.items()]
        client = KazooClient(zookeeper.hosts)
        client.start()
        client.ensure_path("/ledgers")
        client.stop()
        client.close()
        for service in services:
            service.await_runs(1)
        for server in servers.values():
            server.kill()
        began = time.monotonic()
        for service in services:
            until(lambda at=service: at.fetch("/readyz")[0] == 503, "it says that it is not ready")  # type: ignore[misc] # mypy types no default here
            require_patience(service)
        before = [(service.read_job().last.number, read_figures(service)) for service in services]
        while time.monotonic() < began + OUTAGE_S:
            await_time(min(LOOKS_S, max(0.1, began + OUTAGE_S - time.monotonic())))
            for service in services:
                require_patience(service)
        gone_s = time.monotonic() - began
        for server in servers.values():
            server.start()
        for service, (number, figures) in zip(services, before, strict=True):
            service.await_runs(number + 1)
            assert service.fetch("/readyz")[0] == 200
            after = read_figures(service)
            assert after["bookkeeper_metadata_service_missed_total"] >= gone_s * 0.8, "each second one was due"
            assert after["process_open_fds"] <= figures["process_open_fds"] + 12
            assert after["process_threads"] <= figures["process_threads"] + 12
            print(json.dumps({"minutes": round(gone_s / 60, 1), "gone": figures, "back": after}))  # noqa: T201 - figures of a soak


@pytest.mark.skipif(not may_mount(), reason="a disk of its own is mounted by root only")
def test_a_full_disk_makes_runs_fail_and_not_the_service(make: Make, tmp_path: Path) -> None:
    """It goes on leading, answers, says that runs fail, and goes on when there is space again."""
    data = tmp_path / "etcd" / "data"
    with mounted(data, mib=8):
        service = make()
        service.await_runs(1)
        filler = data / "filler"
        fill(filler)
        until(lambda: service.read_job().failures > 1, "runs failed")
        [status] = ask(service.grpc_port, "get-status")
        assert (status.leads, status.epoch) == (True, 1)
        assert "No space left" in status.jobs[0].last.verdict
        code, text = service.fetch("/v1/explain-ledger?ledger_id=1")
        assert code in (200, 503), text
        assert code == 200 or "o space" in text, "a question is answered, or refused with the reason"
        assert service.fetch("/")[0] == 200
        filler.unlink()
        until(lambda: service.read_job().failures == 0, "a run came to its verdict")
        assert service.read_job().last.verdict == "did capture"
        service.running.kill()


@pytest.mark.parametrize("how", ["kill", "freeze"])
def test_a_command_ends_with_the_instance_that_started_it(make: Make, how: str) -> None:
    """Killed, or standing still for a third of the session: nothing goes on that a new leader does not know of."""
    service = make(session="6s")
    service.await_runs(1)
    with held(service.fake):
        until(lambda: bool(find_children(service.running.process.pid)), "a command runs")
        commands = find_children(service.running.process.pid)
        if how == "kill":
            service.running.process.kill()
        else:
            service.running.freeze()
        until(lambda: not any(map(is_running, commands)), "it is gone")
    if how == "freeze":
        service.running.thaw()
        broken = service.read_job().last.number
        service.await_runs(broken + 1)


class Clock:
    """A clock that somebody sets."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        """Return the time."""
        return datetime.now(UTC) + self.ahead


@pytest.mark.parametrize("jump", [timedelta(days=3650), timedelta(days=-3650)])
def test_a_clock_that_jumps_stops_nothing(
    etcd_server: EtcdServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: timedelta
) -> None:
    """What is due next is due within two intervals, by the new clock; and is run."""
    monkeypatch.setenv("BKMETA_FAKE", str(tmp_path))
    clock = Clock()
    jobs = '[jobs.capture]\nevery = "1h"\n[jobs.orphans]\nevery = "1h"\n'
    path = write_config(tmp_path, f"etcd://{etcd_server.hosts}/{tmp_path.name}/l", "one", tmp_path / "data", jobs)
    with start_service(read_config(path), make_context(clock), PROGRAM) as running:

        def count() -> int:
            return sum(words[1] == "capture" for words in read_log(tmp_path))

        until(lambda: len(read_log(tmp_path)) == 2, "both ran")
        until(lambda: running.instance.seen.state.running is None, "both ended")
        for _ in range(2):
            clock.ahead += jump
            [status] = ask(running.grpc_port, "get-status")
            now_ms = clock().timestamp() * 1000
            assert all(job.due_ms <= now_ms + 2.2 * 3_600_000 for job in status.jobs)
            before = count()
            clock.ahead += timedelta(hours=3)
            ask(running.grpc_port, "run-now", job="orphans")  # or it would look at the clock within 30 s
            until(lambda before=before: count() > before, "it ran after the jump")  # type: ignore[misc] # mypy types no default here


@contextmanager
def reading(port: int) -> Iterator["grpc.Channel"]:
    """Give a connection of a reader of its own."""
    options = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        yield channel


def test_readers_that_stand_still_keep_nobody_else_from_an_answer(make: Make) -> None:
    """So many of them, and no more, may read findings; when they are gone there are places again."""
    service = make('[jobs.scrutinize]\nevery = "300d"\n')
    write_findings(service.fake / "findings-1", range(12_000))
    service.await_runs(1)
    method = next(method for method in METHODS if method.name == "ListFindings")
    with ExitStack() as stack:
        calls = []
        for _ in range(8):
            channel = stack.enter_context(reading(service.grpc_port))
            call: Any = channel.unary_stream(
                f"/{SERVICE}/{method.name}",
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.response.FromString,
            )(method.request(), timeout=300)
            next(call)
            calls.append(call)
        with pytest.raises(ApiError, match="ask again") as refused:
            ask(service.grpc_port, "list-findings", token="")
        assert refused.value.why is Why.TOO_MANY
        assert ask(service.grpc_port, "list-findings", ledger_id=7), "callers with a token have places of their own"
        assert service.fetch("/v1/list-findings")[0] == 429
        assert ask(service.grpc_port, "get-status")[0].leads
        for call in calls:
            call.cancel()

    def is_free() -> bool:
        try:
            return len(ask(service.grpc_port, "list-findings", token="", ledger_id=7)) == 1
        except ApiError:
            return False

    until(is_free, "there is a place again")


def test_a_reader_that_is_too_slow_is_told_that_it_was_not_all(
    etcd_server: EtcdServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By gRPC's status; by the last line over HTTP."""
    monkeypatch.setenv("BKMETA_FAKE", str(tmp_path))
    write_findings(tmp_path / "findings-1", range(25_000))
    uri = f"etcd://{etcd_server.hosts}/{tmp_path.name}/l"
    jobs = '[jobs.scrutinize]\nevery = "300d"\n'
    path = write_config(tmp_path, uri, "one", tmp_path / "data", jobs, '[requests]\ndeadline = "1s"\n')
    with start_service(read_config(path), make_context(), PROGRAM) as running:
        until(lambda: bool(running.instance.seen.state.job("scrutinize").latest), "it ran")
        method = next(method for method in METHODS if method.name == "ListFindings")
        calls: list[Any] = []
        answers: list[tuple[bytes, socket.socket]] = []
        with reading(running.grpc_port) as channel, ExitStack() as lines:
            # An answer may not begin within a second beside what else the machine does: then it is asked for again.
            def begins() -> bool:
                call = channel.unary_stream(
                    f"/{SERVICE}/{method.name}",
                    request_serializer=method.request.SerializeToString,
                    response_deserializer=method.response.FromString,
                )(method.request(), timeout=60)
                try:
                    next(call)
                except grpc.RpcError:
                    return False
                calls.append(call)
                return True

            def begins_over_http() -> bool:
                line = lines.enter_context(socket.socket())
                line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 13)
                line.settimeout(60)
                line.connect(("127.0.0.1", running.http_port))
                line.sendall(b"GET /v1/list-findings HTTP/1.0\r\n\r\n")
                answers.append((line.recv(100), line))
                return answers[-1][0].startswith(b"HTTP/1.1 200")

            until(begins, "an answer begins")
            until(begins_over_http, "an answer begins over HTTP")
            await_time(2.0)
            began, line = answers[-1]
            rest = began + b"".join(iter(lambda: line.recv(1 << 20), b""))
            assert "not all" in json.loads(rest.splitlines()[-1])["error"], "what comes late comes after the status"
            with pytest.raises(grpc.RpcError) as ended:
                list(calls[-1])
            assert ended.value.code().name in ("CANCELLED", "DEADLINE_EXCEEDED")


def test_memory_and_files_stay_what_they_are_over_many_runs(make: Make) -> None:
    """After a tenth of the runs the service has all that it ever needs."""
    names = ("capture", "orphans", "drill", "scrutinize")
    jobs = "".join(f'[jobs.{name}]\nevery = "1s"\njitter = 0\nretry = "1s"\n' for name in names)
    service = make(jobs)

    def await_total(number: int) -> dict[str, float]:
        until(
            lambda: read_figures(service)["bookkeeper_metadata_service_runs_total"] >= number,
            f"{number} runs",
            patience_s=150 + 3 * number,
        )
        # A run holds files while it is under way, so that both times one is.
        with held(service.fake):
            until(lambda: read_figures(service)["bookkeeper_metadata_service_commands"] == 1, "a command waits")
            until(lambda: bool(find_children(service.running.process.pid)), "it was begun")
            return read_figures(service)

    early = await_total(max(5, RUNS // 10))
    late = await_total(RUNS)
    print(json.dumps({"early": early, "late": late}))  # noqa: T201 - figures of a soak
    assert late["process_open_fds"] <= early["process_open_fds"] + 3
    assert late["process_threads"] <= early["process_threads"] + 2
    assert late["process_resident_memory_bytes"] <= early["process_resident_memory_bytes"] * 1.2
    for name in names:
        assert len(list((service.config.data / name).glob("2*"))) <= service.config.jobs[name].keep.runs + 2
    assert TOKEN not in (service.config.data.parent / "log").read_text()
