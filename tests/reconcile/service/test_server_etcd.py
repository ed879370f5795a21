"""A service on a real store, with a program in the place of ours: what is asked of it over gRPC and HTTP."""

import json
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from backends.registry import open_store
from reconcile.service.api import grpc_server, http_server
from reconcile.service.api.methods import METHODS, SERVICE, ApiError, Why
from reconcile.service.config import read_config
from reconcile.service.runs import folders, leader
from reconcile.service.server import RunningService, start_service
from recovery.errors import InputError
from tests.support.command import run
from tests.support.etcd_server import EtcdServer
from tests.support.service import PROGRAM, TOKEN, ask, fetch, held, make_context, read_log, write_config
from tests.support.waiting import until

pytestmark = pytest.mark.real

JOBS = '[jobs.scrutinize]\nevery = "300d"\nshares = 2\n[jobs.capture]\nevery = "300d"\n'
ATTACKED = int(os.environ.get("BKMETA_SOAK_STRANGERS", "3"))
"""Rounds of questions during an attack."""
MORE = '[gates]\ncheck_every = "300d"\n[requests]\nat_once = 1\n'


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder that the fake program is told by."""
    folder = tmp_path_factory.mktemp("fake")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BKMETA_FAKE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def service(etcd_server: EtcdServer, fake: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A service that leads, and has run each of its jobs once."""
    folder = tmp_path_factory.mktemp("service")
    root = f"/{folder.name}/ledgers"
    etcd_server.put(f"{root}/layout", b"")
    uri = f"etcd://{etcd_server.hosts}{root}"
    config = read_config(write_config(folder, uri, "one", folder / "data", JOBS, MORE))
    with start_service(config, make_context(), PROGRAM) as running:
        until(lambda: len(read_log(fake)) == 2, "both jobs ran")
        until(lambda: all(job.HasField("last") for job in ask(running.grpc_port, "get-status")[0].jobs), "both ended")
        yield running


@pytest.fixture
def answer(fake: Path) -> Iterator[Path]:
    """What the fake program prints; removed afterwards."""
    path = fake / "answer"
    yield path
    path.unlink(missing_ok=True)


def test_jobs_are_run_with_the_words_of_their_commands(service: RunningService, fake: Path) -> None:
    """Each into a folder of its own; a scrutiny looks at one share."""
    said = {words[1]: words[2:] for words in read_log(fake)}
    config = service.instance.config
    for name, words in said.items():
        if name in config.jobs:
            assert words[:2] == ["--metadata", config.metadata]
            assert Path(words[words.index("--out") + 1]).is_relative_to(config.data / name)
    assert said["scrutinize"][said["scrutinize"].index("--buckets") + 1] in ("1/2", "2/2")


def test_a_job_goes_on_with_its_last_run(etcd_server: EtcdServer, fake: Path, tmp_path: Path) -> None:
    """Of orphans, too: a finding becomes grave with its age, and each run alone would see it for the first time."""
    uri = f"etcd://{etcd_server.hosts}/{tmp_path.name}/l"
    path = write_config(tmp_path, uri, "one", tmp_path / "data", '[jobs.orphans]\nevery = "300d"\n')

    def list_words() -> list[list[str]]:
        return [words[1:] for words in read_log(fake) if words[1] == "orphans" and uri in words]

    with start_service(read_config(path), make_context(), PROGRAM) as running:
        until(lambda: bool(running.instance.seen.state.job("orphans").latest), "it ran")
        ask(running.grpc_port, "run-now", job="orphans")
        until(lambda: len(list_words()) >= 2, "it ran again")
        first, second = list_words()[:2]
    assert "--since" not in first
    assert second[second.index("--since") + 1] == first[first.index("--out") + 1]


def test_a_folder_keeps_the_runs_of_one_cluster(
    service: RunningService, etcd_server: EtcdServer, tmp_path: Path
) -> None:
    """Captures of one would go by the rules of another: an instance of another never leads there, and says why."""
    data = service.instance.config.data
    kept = sorted(path.name for path in (data / "capture").iterdir())
    etcd_server.put("/other/ledgers/layout", b"")
    uri = f"etcd://{etcd_server.hosts}/other/ledgers"
    config = read_config(write_config(tmp_path, uri, "other", data, JOBS, MORE))
    with start_service(config, make_context(), PROGRAM) as running:
        until(lambda: "name another folder as `data`" in running.instance.seen.problem, "it says why")
        [status] = ask(running.grpc_port, "get-status", token="")
        assert (status.leads, status.epoch) == (False, 0)
    assert sorted(path.name for path in (data / "capture").iterdir()) == kept
    etcd_server.put("/other/ledgers-bkmeta", b"somebody's")
    config = read_config(write_config(tmp_path, uri, "other", tmp_path / "data", JOBS, MORE))
    with start_service(config, make_context(), PROGRAM) as running:
        until(lambda: "was not made by this program" in running.instance.seen.problem, "it writes below nobody's key")


def test_a_cluster_that_got_an_instance_id_is_still_the_same(tmp_path: Path) -> None:
    """And with another one it is another cluster; a file that says nothing is an error."""
    folders.claim(tmp_path / "data", "/ledgers", "")
    folders.claim(tmp_path / "data", "/ledgers", "one")
    folders.claim(tmp_path / "data", "/ledgers", "")
    folders.claim(tmp_path / "data", "/ledgers", "one")
    with pytest.raises(InputError, match=r"instance one.* instance two"):
        folders.claim(tmp_path / "data", "/ledgers", "two")
    with pytest.raises(InputError, match="/elsewhere"):
        folders.claim(tmp_path / "data", "/elsewhere", "one")
    (tmp_path / "data" / "cluster.json").write_text("[]")
    with pytest.raises(InputError, match="does not say"):
        folders.claim(tmp_path / "data", "/ledgers", "one")


def test_status_is_the_same_by_grpc_and_http(service: RunningService) -> None:
    """Nothing needs a token that changes nothing."""
    [status] = ask(service.grpc_port, "get-status", token="")
    assert (status.leads, status.leader, status.epoch, status.problem) == (True, "one", 1, "")
    code, text = fetch(service.http_port, "/v1/get-status")
    said = json.loads(text)
    assert code == 200
    assert (said["leads"], said["leader"], said["epoch"]) == (True, "one", "1")
    assert [job["last"]["verdict"] for job in said["jobs"]] == ["did capture", "did scrutinize"]


@pytest.mark.parametrize("method", [method for method in METHODS if method.acts], ids=lambda method: method.path)
@pytest.mark.parametrize("token", ["", "another-token-entirely"])
def test_nothing_is_done_without_a_known_token(service: RunningService, fake: Path, method: object, token: str) -> None:
    """By neither way."""
    before = read_log(fake)
    with pytest.raises(ApiError) as refused:
        ask(service.grpc_port, method.path, token=token)  # type: ignore[attr-defined]  # a Method
    assert refused.value.why is Why.NO_TOKEN
    code, text = fetch(service.http_port, f"/v1/{method.path}", {}, token=token)  # type: ignore[attr-defined] # a Method
    assert code == 401
    assert TOKEN not in text
    assert read_log(fake) == before


def test_what_acts_is_not_done_by_get(service: RunningService) -> None:
    """A link cannot ask for a delete."""
    code, text = fetch(service.http_port, "/v1/run-now?job=capture", token=TOKEN)
    assert (code, "POST" in text) == (400, True)


def test_a_run_is_asked_for_and_the_record_says_by_whom(service: RunningService) -> None:
    """The next share of a scrutiny is looked at, against the last run of that share."""
    [before] = ask(service.grpc_port, "get-status")
    number = {job.name: job.last.number for job in before.jobs}
    assert fetch(service.http_port, "/v1/run-now", {"job": "scrutinize"}, token=TOKEN)[0] == 200
    ask(service.grpc_port, "run-now", job="capture")

    def ran() -> bool:
        [status] = ask(service.grpc_port, "get-status")
        return all(job.last.number == number[job.name] + 1 for job in status.jobs)

    until(ran, "both ran again")
    [status] = ask(service.grpc_port, "get-status")
    assert [job.last.by for job in status.jobs] == ["ops", "ops"]
    assert {run.share for run in next(job for job in status.jobs if job.name == "scrutinize").latest} == {1, 2}
    with pytest.raises(ApiError, match="no job 'apply'"):
        ask(service.grpc_port, "run-now", job="apply")


def test_an_unsafe_maintenance_is_blocked_until_it_is_safe_or_somebody_answers_for_it(
    service: RunningService, fake: Path, answer: Path
) -> None:
    """A check releases it, and takes that back; a statement is kept with who made it."""
    unsafe = {"verdict": "UNSAFE", "summary": "2 segments would be lost", "exit_code": 3, "lost": [{"ledger": "7"}]}
    answer.write_text(json.dumps(unsafe))
    [opened] = ask(service.grpc_port, "open-maintenance", id="reboot-7", bookies=["--json"], target="down")
    assert (opened.state, opened.verdict, opened.opened_by) == (
        "BLOCKED_UNTIL_SAFE", "2 segments would be lost", "ops")  # fmt: skip
    assert "--bookies=--json" in read_log(fake)[-1], "a name is never an option"
    code, text = fetch(service.http_port, "/v1/get-maintenance?id=reboot-7")
    assert (code, json.loads(text)["result"]["lost"]) == (200, [{"ledger": "7"}]), "the check is kept whole"
    [status] = ask(service.grpc_port, "get-status")
    assert not status.maintenances[0].HasField("result")
    answer.write_text('{"verdict": "SAFE", "summary": "nothing is lost", "exit_code": 0}')
    gate = service.instance.seen.state.gates["reboot-7"]
    state = service.instance.check_gate(gate, service.instance.children)
    assert state.gates["reboot-7"].state.value == "SAFE"
    [shown] = ask(service.grpc_port, "get-maintenance", token="", id="reboot-7")
    assert (shown.state, shown.result["summary"]) == ("SAFE", "nothing is lost")
    with pytest.raises(ApiError, match="already"):
        ask(service.grpc_port, "open-maintenance", id="reboot-7", bookies=["b:1"])
    with pytest.raises(ApiError, match="statement"):
        ask(service.grpc_port, "release-maintenance", id="reboot-7")
    [released] = ask(service.grpc_port, "release-maintenance", id="reboot-7", statement="ticket 12")
    assert (released.state, released.statement) == ("RELEASED", "ops: ticket 12")
    assert released.result["summary"] == "nothing is lost"
    ask(service.grpc_port, "close-maintenance", id="reboot-7")
    with pytest.raises(ApiError, match="no maintenance"):
        ask(service.grpc_port, "get-maintenance", id="reboot-7")


def test_a_ledger_has_its_scope_in_every_question(service: RunningService, fake: Path) -> None:
    """A scope that is missing is 0."""
    fetch(service.http_port, "/v1/explain-ledger?ledger_id=7")
    assert read_log(fake)[-1][1:3] == ["explain", "7"]
    fetch(service.http_port, "/v1/explain-ledger", {"ledger_id": 7, "ledger_scope_id": 3})
    assert read_log(fake)[-1][1:3] == ["explain", "3:7"]


@pytest.mark.parametrize(
    ("method", "body", "said"),
    [
        ("request-deletes", {"ledgers": [{}]}, "ledger_id is missing"),
        ("explain-ledger", {"ledger_scope_id": 3}, "ledger_id is missing"),
        ("request-deletes", {"ledgers": [{"ledger_id": 7}], "reason": "\0"}, "one line"),
        ("request-deletes", {"ledgers": [{"ledger_id": 7}], "reason": "x" * 100_000}, "one line"),
        ("verify-deletes", {"confirm_count": -3}, "confirm_count"),
        ("request-deletes", {"ledgers": [{"ledger_id": 7}], "soak": "7"}, "write soak as"),
        ("purge-deletes", {}, "certificate"),
        ("purge-deletes", {"certificate": "AAAA", "confirm_hash": "--journal=/x"}, "hexadecimal"),
        ("check-impact", {}, "name bookies"),
        ("check-impact", {"bookies": ["a:1,b:1"]}, "no name of a bookie"),
        ("check-impact", {"bookies": ["a:1"], "target": "away"}, "target is one of"),
        ("open-maintenance", {"id": "x", "bookies": ["a:1\0"]}, "no name of a bookie"),
        ("open-maintenance", {"id": "x", "domains": [""]}, "no name of a domain"),
        ("open-maintenance", {"id": "../x", "bookies": ["a:1"]}, "write an id"),
        ("list-findings", {"category": "WORSE"}, "no category"),
        ("list-findings", {"severity": "worse"}, "severity is one of"),
        ("get-deletes", {"ledgers": [{"ledger_id": 7}] * 1001}, "at most 1000"),
        ("run-now", [1], "not a RunRequest"),
        ("get-deletes", {"ledger": 7}, "; its fields are ledgers"),
    ],
)
def test_what_cannot_be_asked_is_said_and_nothing_is_run(
    service: RunningService, fake: Path, method: str, body: Mapping[str, object], said: str
) -> None:
    """Before a command gets it as a word, or the record keeps it."""
    before = read_log(fake)
    code, text = fetch(service.http_port, f"/v1/{method}", body, token=TOKEN)
    assert (code, said in text) == (400, True), text
    assert read_log(fake) == before
    assert service.instance.seen.state.gates == {}


def test_numbers_that_a_double_does_not_hold_come_through(service: RunningService, answer: Path) -> None:
    """As strings; the others as the command printed them."""
    answer.write_text(json.dumps({"exact": 7, "half": 0.5, "ledgers": [{"ledger": str(2**62 + 1), "at": 2**62 + 1}]}))
    code, text = fetch(service.http_port, "/v1/explain-ledger?ledger_id=1")
    result = json.loads(text)["result"]
    assert (code, result["ledgers"][0]["at"], result["half"]) == (200, str(2**62 + 1), 0.5)
    assert type(result["exact"]) is int
    assert result["exact"] == 7
    [deletes] = ask(service.grpc_port, "get-deletes", token="")
    assert ask(service.grpc_port, "list-deletes", token="") == list(deletes.ledgers)
    assert deletes.ledgers[0].ledger_id == 2**62 + 1
    code, text = fetch(service.http_port, "/v1/list-deletes?ledgers=7&ledgers=3:7")
    assert (code, json.loads(text)["ledger_id"]) == (200, str(2**62 + 1))


def test_what_takes_longer_than_its_deadline_is_ended_and_more_than_may_run_is_refused(
    service: RunningService, fake: Path
) -> None:
    """The place that it had is free again."""
    with held(fake):
        slow: list[ApiError] = []

        def run() -> None:
            try:
                ask(service.grpc_port, "explain-ledger", ledger_id=1, deadline_s=2.0)
            except ApiError as error:
                slow.append(error)

        before = len(read_log(fake))
        thread = threading.Thread(target=run)
        thread.start()
        until(lambda: len(read_log(fake)) > before, "the first is under way")
        with pytest.raises(ApiError, match=r"1 requests are under way|Deadline") as refused:
            ask(service.grpc_port, "explain-ledger", ledger_id=1, deadline_s=0.5)
        assert refused.value.why in (Why.TOO_MANY, Why.TOO_LATE)
        thread.join()
        assert slow[0].why is Why.TOO_LATE
        until(lambda: service.instance.children.number == 0, "it was ended")
    until(lambda: fetch(service.http_port, "/v1/explain-ledger?ledger_id=1")[0] == 200, "there is a place again")


def test_an_answer_that_was_given_up_ends_its_command(service: RunningService, fake: Path) -> None:
    """Who goes away leaves nothing that runs."""
    method = next(method for method in METHODS if method.name == "ExplainLedger")
    with held(fake), grpc.insecure_channel(f"127.0.0.1:{service.grpc_port}") as channel:
        before = len(read_log(fake))
        call = channel.unary_unary(
            f"/{SERVICE}/{method.name}",
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        ).future(method.request(ledger_id=1))
        until(lambda: len(read_log(fake)) > before, "it is under way")
        call.cancel()
        until(lambda: not list((service.instance.config.data / "requests").iterdir()), "its folder is gone")


def test_a_deadline_is_kept_over_http_and_who_goes_away_leaves_nothing(service: RunningService, fake: Path) -> None:
    """Of a header that says nothing of use nothing is made."""
    path = "/v1/explain-ledger?ledger_id=1"
    with held(fake):
        code, text = fetch(service.http_port, path, headers={"Request-Timeout": "0.5"})
        assert (code, "deadline" in text) == (504, True)
        before = len(read_log(fake))
        with socket.create_connection(("127.0.0.1", service.http_port), timeout=60) as line:
            line.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            until(lambda: len(read_log(fake)) > before, "it is under way")
        until(lambda: not list((service.instance.config.data / "requests").iterdir()), "its command was ended")
    for useless in ("0", "-1", "1e3", "soon", "nan"):
        assert fetch(service.http_port, path, headers={"Request-Timeout": useless})[0] == 400
    assert fetch(service.http_port, path, headers={"Request-Timeout": "60"})[0] == 200


def test_who_sends_a_byte_now_and_then_does_not_keep_a_connection(
    service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is that of the whole question."""
    monkeypatch.setattr(http_server, "_SILENT_S", 0.5)
    with socket.create_connection(("127.0.0.1", service.http_port), timeout=60) as line:
        line.sendall(b"GET / HTTP/1.0\r\nX: ")
        line.setblocking(False)

        def is_ended() -> bool:
            try:
                line.send(b"x")
                return line.recv(1) == b""
            except BlockingIOError:
                return False
            except OSError:
                return True

        until(is_ended, "it is ended")


@pytest.mark.parametrize("code", [0, 3, 4, 5, 6])
def test_ask_ends_as_the_command_that_was_run(
    service: RunningService,
    answer: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    code: int,
) -> None:
    """With its verdict, and its whole result; without a token it is refused."""
    answer.write_text(json.dumps({"verdict": "as it is", "exit_code": code, "facts": [1]}))
    service_at = f"127.0.0.1:{service.grpc_port}"
    monkeypatch.setenv("BKMETA_SERVICE_TOKEN", TOKEN)
    done = run(capsys, "ask", "request-deletes", "ledgers=7", "ledgers=3:7", "--service", service_at, "--json")
    assert (done.code, done.result["verdict"]) == (code, "as it is")
    assert done.result["answer"]["result"]["facts"] == [1]
    assert "without encryption" not in done.out
    far = run(capsys, "ask", "get-status", "--service", f"0.0.0.0:{service.grpc_port}")
    assert (far.code, "the token was sent without encryption" in far.out) == (0, True)
    monkeypatch.setenv("BKMETA_SERVICE_TOKEN", "not-the-token-at-all")
    refused = run(capsys, "ask", "run-now", "job=capture", "--service", service_at)
    assert (refused.code, "token" in refused.out) == (5, True)


def test_health_and_reflection_answer(service: RunningService) -> None:
    """As tools of others ask."""
    with grpc.insecure_channel(f"127.0.0.1:{service.grpc_port}") as channel:
        health = health_pb2_grpc.HealthStub(channel)
        until(lambda: health.Check(health_pb2.HealthCheckRequest(service=SERVICE)).status == 1, "SERVING")
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        [listed] = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
        assert SERVICE in {one.name for one in listed.list_services_response.service}


def test_who_asks_what_there_is_and_says_nothing_more_keeps_nobody_from_an_answer(
    service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some at a time, and each for a while; then there are places again."""
    monkeypatch.setattr(grpc_server, "_REFLECTION_S", 2.0)
    ended = threading.Event()

    def say_nothing() -> Iterator[reflection_pb2.ServerReflectionRequest]:
        ended.wait(60)
        yield from ()

    with grpc.insecure_channel(f"127.0.0.1:{service.grpc_port}") as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        monkeypatch.setattr(grpc_server, "_MOST_REFLECTIONS", 4)
        calls = [stub.ServerReflectionInfo(say_nothing()) for _ in range(20)]
        assert ask(service.grpc_port, "get-status", deadline_s=30)[0].leads
        codes = {call.code().name for call in calls}  # when each has ended
        ended.set()
        assert codes == {"RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}
        [listed] = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
        assert listed.list_services_response.service


def test_a_maintenance_takes_the_place_of_a_request(service: RunningService, fake: Path) -> None:
    """Where none is free in time, nothing is opened."""
    with held(fake):
        before = len(read_log(fake))
        slow = threading.Thread(target=lambda: fetch(service.http_port, "/v1/explain-ledger?ledger_id=1", token=TOKEN))
        slow.start()
        until(lambda: len(read_log(fake)) > before, "a request is under way")
        with pytest.raises(ApiError) as refused:
            ask(service.grpc_port, "open-maintenance", id="too-many", bookies=["bk1:3181"], deadline_s=1.0)
        assert refused.value.why in (Why.TOO_MANY, Why.TOO_LATE)
    slow.join()
    assert "too-many" not in {gate.id for gate in ask(service.grpc_port, "get-status")[0].maintenances}


def test_strangers_keep_neither_probes_nor_callers_with_a_token_from_an_answer(
    service: RunningService, fake: Path
) -> None:
    """A thousand idle connections, half of them in the middle of a header, and a hundred greedy readers by each way."""
    refused: list[object] = []
    greedy: Counter[str] = Counter()
    slowest_s = 0.0
    ended = threading.Event()

    def read_greedily(number: int) -> None:
        while not ended.is_set():
            if number % 2:
                code = fetch(service.http_port, "/v1/explain-ledger?ledger_id=1")[0]
                greedy["answered" if code == 200 else "refused"] += 1
            else:
                try:
                    ask(service.grpc_port, "explain-ledger", token="", ledger_id=1)
                    greedy["answered"] += 1
                except ApiError:
                    greedy["refused"] += 1
            ended.wait(0.05)

    with ExitStack() as stack:
        for number in range(1000):
            line = stack.enter_context(socket.create_connection(("127.0.0.1", service.http_port), timeout=60))
            if number % 2:
                line.sendall(b"GET / HTTP/1.1\r\nX: ")
        # Calls that never send their message.
        channel = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{service.grpc_port}"))
        silent: Any = channel.stream_unary(f"/{SERVICE}/ExplainLedger")
        waiting = [silent.future(wait_for(ended)) for _ in range(100)]
        readers = [threading.Thread(target=read_greedily, args=(number,)) for number in range(100)]
        for reader in readers:
            reader.start()
        try:
            for number in range(ATTACKED):
                began = time.monotonic()
                codes = [fetch(service.health_port, path)[0] for path in ("/healthz", "/readyz", "/metrics")]
                codes.append(fetch(service.http_port, "/v1/explain-ledger?ledger_id=2", token=TOKEN)[0])
                refused += [code for code in codes if code != 200]
                ask(service.grpc_port, "open-maintenance", id=f"gate-{number}", bookies=["bk1:3181"])
                ask(service.grpc_port, "get-maintenance", id=f"gate-{number}")
                ask(service.grpc_port, "close-maintenance", id=f"gate-{number}")
                slowest_s = max(slowest_s, time.monotonic() - began)
        finally:
            ended.set()
            for reader in readers:
                reader.join()
            for call in waiting:
                call.cancel()
    asked = f"{ATTACKED} rounds of a gate, health and a question with a token: {len(refused)} refused"
    print(f"{asked}, the slowest {slowest_s:.1f} s; strangers: {dict(greedy)}")  # noqa: T201 - figures of a soak
    assert refused == []
    assert any(words[1:3] == ["explain", "2"] for words in read_log(fake))


def test_a_long_request_is_a_task_that_goes_on_without_its_caller(service: RunningService, fake: Path) -> None:
    """By both ways: who and why, what it does, its result; a cancelled one ends its command; of others nothing runs."""
    begin = {"method": "explain-ledger", "request": {"ledger_id": "7", "ledger_scope_id": 3}, "why": "ticket 12"}
    earlier = len(read_log(fake))
    assert fetch(service.http_port, "/v1/start-task", begin)[0] == 401
    with held(fake):
        code, text = fetch(service.http_port, "/v1/start-task", begin, token=TOKEN)
        begun = json.loads(text)
        assert (code, begun["state"], begun["by"], begun["why"]) == (200, "RUNNING", "ops", "ticket 12")
        get = f"/v1/get-task?id={begun['id']}"

        def progress() -> str:
            return str(json.loads(fetch(service.http_port, get)[1])["progress"])

        until(lambda: progress() == "waiting: 1 of 2 holds", "it says what it does")
        [second] = ask(service.grpc_port, "start-task", method="explain-ledger", request={"ledger_id": 8.0})
        [cancelled] = ask(service.grpc_port, "cancel-task", id=second.id)
        assert cancelled.state == "CANCELLED"
        until(lambda: ask(service.grpc_port, "get-task", id=second.id)[0].HasField("ended_ms"), "it ended")
    until(lambda: ask(service.grpc_port, "get-task", id=begun["id"])[0].state == "DONE", "it is done")
    [done] = ask(service.grpc_port, "get-task", id=begun["id"])
    assert done.result["verdict"] == "did explain"
    assert [words[1:3] for words in read_log(fake)[earlier:] if words[2] in ("3:7", "8")] == [["explain", "3:7"]]
    [listed] = ask(service.grpc_port, "list-tasks")
    assert [(task.id, task.state) for task in listed.tasks[:2]] == [(second.id, "CANCELLED"), (begun["id"], "DONE")]
    for wrong in (
        {"method": "list-findings"},
        {"method": "start-task"},
        {"method": "explain-ledger", "request": {"x": 1}},
    ):
        assert fetch(service.http_port, "/v1/start-task", wrong, token=TOKEN)[0] in (400, 404)
    [refused] = ask(service.grpc_port, "start-task", method="explain-ledger")
    until(lambda: ask(service.grpc_port, "get-task", id=refused.id)[0].state == "REFUSED", "it is refused")
    assert "ledger_id is missing" in ask(service.grpc_port, "get-task", id=refused.id)[0].error
    assert fetch(service.http_port, "/v1/get-task?id=none")[0] == 404


def test_a_maintenance_ends_with_its_time(service: RunningService) -> None:
    """From then on it is not safe, whoever reads it; the leader closes it at its next check."""
    [opened] = ask(service.grpc_port, "open-maintenance", id="short", bookies=["b:1"], ttl="1s", why="kernel")
    assert (opened.state, opened.why, opened.until_ms - opened.opened_ms) == ("SAFE", "kernel", 1000)
    until(lambda: "is over" in ask(service.grpc_port, "get-maintenance", id="short")[0].verdict, "its time is over")
    assert ask(service.grpc_port, "get-maintenance", id="short")[0].state == "BLOCKED_UNTIL_SAFE"
    ask(service.grpc_port, "close-maintenance", id="short")
    with pytest.raises(ApiError, match="write ttl as"):
        ask(service.grpc_port, "open-maintenance", id="short", bookies=["b:1"], ttl="soon")
    ask(service.grpc_port, "run-now", job="capture", why="after the upgrade")

    def read_by() -> str:
        last = service.instance.seen.state.job("capture").last
        return "" if last is None else last.by

    until(lambda: read_by() == "ops: after the upgrade", "it ran")


def wait_for(ended: threading.Event) -> Iterator[bytes]:
    """Send nothing until the end."""
    ended.wait(120)
    yield from ()


def test_a_request_for_another_host_is_refused(service: RunningService) -> None:
    """A page of a stranger that leads a browser here by a name of its own reads nothing; health has no secrets."""
    code, text = fetch(service.http_port, "/", headers={"Host": "evil.example:8480"})
    assert (code, "listen.names" in text) == (421, True)
    for host in ("localhost:1", "LOCALHOST", "127.0.0.1:8480", "one"):
        assert fetch(service.http_port, "/", headers={"Host": host})[0] == 200
    assert fetch(service.health_port, "/healthz", headers={"Host": "10.0.0.7:8482"})[0] == 200


def test_without_a_token_only_health_is_answered(etcd_server: EtcdServer, fake: Path, tmp_path: Path) -> None:
    """By default: the findings of a cluster are not for strangers."""
    uri = f"etcd://{etcd_server.hosts}/{tmp_path.name}/l"
    path = write_config(tmp_path, uri, "one", tmp_path / "data")
    path.write_text(path.read_text().replace('anonymous = "read"\n', ""))
    with start_service(read_config(path), make_context(), PROGRAM) as running:
        assert fetch(running.health_port, "/healthz")[0] == 200
        for port, at in (
            (running.health_port, "/metrics"),
            (running.http_port, "/"),
            (running.http_port, "/v1/get-status"),
        ):
            assert (fetch(port, at)[0], fetch(port, at, token=TOKEN)[0]) == (401, 200)
        with pytest.raises(ApiError) as refused:
            ask(running.grpc_port, "get-status", token="")
        assert refused.value.why is Why.NO_TOKEN


def test_pages_and_figures_are_there(service: RunningService) -> None:
    """Ready, while the store is seen."""
    assert fetch(service.health_port, "/healthz")[0] == 200
    assert fetch(service.health_port, "/readyz")[0] == 200
    assert fetch(service.http_port, "/nothing")[0] == 404
    with urlopen(Request(f"http://127.0.0.1:{service.health_port}/healthz", method="HEAD"), timeout=60) as headed:
        assert (headed.status, headed.headers["Content-Length"], headed.read()) == (200, "3", b"")
    code, text = fetch(service.health_port, "/metrics")
    assert code == 200
    assert "bookkeeper_metadata_service_leads 1" in text
    assert 'bookkeeper_metadata_service_failures{command="capture"} 0' in text
    code, text = fetch(service.http_port, "/")
    assert code == 200
    assert "did capture" in text


def test_what_is_sent_is_read_only_of_who_may_send_it(service: RunningService) -> None:
    """A body is held in memory: of a stranger a mebibyte, and nothing of what only a token may ask for."""
    for path, code in (("check-impact", "400"), ("request-deletes", "401")):
        with socket.create_connection(("127.0.0.1", service.http_port), timeout=60) as line:
            line.sendall(f"POST /v1/{path} HTTP/1.0\r\nContent-Length: {8 << 20}\r\n\r\n".encode())
            line.sendall(b" " * (1 << 20))
            head, _, body = b"".join(iter(lambda: line.recv(1 << 16), b"")).decode().partition("\r\n\r\n")
            assert head.startswith(f"HTTP/1.1 {code}"), "it does not wait for the rest"
            assert ("www-authenticate: bearer" in head.lower()) == (code == "401")
            assert "token" in json.loads(body)["error"]
    known = {"Authorization": f"bearer {TOKEN}", "Content-Length": str(2 << 20)}
    url = f"http://127.0.0.1:{service.http_port}/v1/get-status"
    with urlopen(Request(url, data=b"{}".ljust(2 << 20), headers=known), timeout=60) as taken:
        assert (taken.status, taken.headers["X-Content-Type-Options"]) == (200, "nosniff")


def test_a_fault_of_ours_is_an_answer_and_in_the_log(
    service: RunningService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Who asks is not left without a word; what was sent is not in the log."""

    def fail(_instance: object) -> str:
        raise LookupError("what nobody thought of")

    monkeypatch.setattr(http_server, "make_page", fail)
    code, text = fetch(service.http_port, f"/?token={TOKEN}")
    assert (code, json.loads(text)["code"]) == (500, "INTERNAL")
    assert "what nobody thought of" in caplog.text
    assert TOKEN not in caplog.text


def test_an_instance_goes_on_after_a_fault_of_ours(
    etcd_server: EtcdServer, fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so, and leads at the next try: a thread that ends would leave one that looks well and does nothing."""
    claim = folders.claim
    faults = [LookupError("what nobody thought of")]

    def fail_first(*words: object) -> None:
        if faults:
            raise faults.pop()
        claim(*words)  # type: ignore[arg-type]  # as the service calls it

    monkeypatch.setattr(folders, "claim", fail_first)
    monkeypatch.setattr(leader, "_AGAIN_S", 0.05)
    uri = f"etcd://{etcd_server.hosts}/{tmp_path.name}/l"
    with start_service(
        read_config(write_config(tmp_path, uri, "one", tmp_path / "data")), make_context(), PROGRAM
    ) as running:
        until(lambda: running.instance.leads, "it leads")
    assert not faults


def test_the_record_is_in_our_own_root(service: RunningService) -> None:
    """Beside the ledgers root; nothing in it was written."""
    config = service.instance.config
    with open_store(config.metadata) as opened:
        own = opened.root + "-bkmeta"
        assert opened.store.children(opened.root) == ["layout"]
        names = opened.store.children(own)
        assert names is not None
        assert {"leader", "service"} <= set(names)
        assert len((opened.store.get(f"{own}/service") or pytest.fail("no record")).value) < 5_000
