"""`rescue` where it does not go on: hosts that cannot be read, answers that are none, stops that do nothing."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pyarrow as pa
import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from backends.protocols import Write
from backends.registry import open_store
from reconcile.check.left_out_copies import LeftOut
from reconcile.cli.command import Exit
from reconcile.cli.incident import read_values
from reconcile.cli.options import now
from reconcile.cli.output import Output
from reconcile.cli.rescue import questions
from reconcile.cli.rescue.collect import collect, collect_all
from reconcile.cli.rescue.conductor import conclude, conduct
from reconcile.cli.rescue.copies import FetchedBookie, Gap, SavedLedgers, collect_bookie, copy_server, export_ledgers
from reconcile.cli.rescue.freezes import freeze, name_thaw, thaw
from reconcile.cli.rescue.hosts import BookieHost, BookieTable, Host, ServerTable, Transport, read_hosts
from reconcile.cli.rescue.left_out import LEFT_OUT, settle_left_out
from reconcile.cli.rescue.look import list_other_roots, read_history, require_lost
from reconcile.cli.rescue.open_rescue import OpenRescue
from reconcile.cli.rescue.own_commands import Ran, run_own
from reconcile.cli.rescue.record import RescuePhase, RescueQuestion, RescueRecord, read_answers, read_record
from reconcile.cli.rescue.recover import OLDER, settle_older, settle_topics
from reconcile.cli.rescue.restore import restore
from reconcile.cli.rescue.rights import answer_rights, choose_rights
from reconcile.cli.rescue.saved_ledgers import save_ledgers
from reconcile.cli.rescue.scripts import Process, build_kill, build_start, build_stop, parse_processes
from reconcile.cli.rescue.start import start, start_bookie
from reconcile.cli.rescue.stop import stop, stop_bookies
from reconcile.cli.rescue.transports import HostError, make_command, require_done, run_script
from reconcile.cli.rescue.undelete import undelete
from reconcile.deletes.approvals import Approvable, Subject, make_approval
from reconcile.errors import GuardRefusedError
from reconcile.estimates import EstimatedStep
from reconcile.jobs.approvals import write_approval
from recovery.codecs.store import Layout
from recovery.errors import InputError
from recovery.model import tables
from recovery.model.ids import LedgerId
from tests.support.command import PROGRAM, environment, process, run
from tests.support.deletes import Ledger, fill_store
from tests.support.inventories import fill_row, write_inventory
from tests.support.plan_folder import Ledger as PlanLedger
from tests.support.plan_folder import write_plan
from tests.support.signing import make_person
from tests.support.waiting import free_port, until
from tests.support.zookeeper_server import ZooKeeperServer

LOCAL = Host("here", Transport.LOCAL, "", "")
BOOKIE = '[[bookie]]\nname = "bk1"\ntransport = "local"\nconf = "/etc/bk.conf"\n'


@contextmanager
def fake_bookie(folder: Path, *before: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that looks like a bookie's: named java, with its configuration in its command line."""
    program = folder / "java"
    shutil.copy(shutil.which("sh") or "/bin/sh", program)
    running = subprocess.Popen([*before, str(program), "-c", "while :; do sleep 1; done", str(folder / "bk.conf")])
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def write_hosts(folder: Path, text: str = BOOKIE) -> Path:
    """Write a file of hosts."""
    path = folder / "hosts.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name = ", "is not TOML"),
        ("", "names no bookie"),
        ("[[bookie]]\ntransport = 'local'\nconf = '/c'\n", "bookie[0].name: is missing"),
        (BOOKIE + BOOKIE, "has the name 'bk1' twice"),
        (BOOKIE.replace("local", "telnet"), "the transports are local, ssh, kubectl, command"),
        (BOOKIE.replace("local", "ssh"), "has no host"),
        (BOOKIE.replace("local", "ssh") + "host = '-oProxyCommand=x'\n", "does not begin with a dash"),
        (BOOKIE.replace("local", "command") + "command = 'docker exec bk1 sh'\n", "has a command without {script}"),
        (BOOKIE + "port = 22\n", "bookie[0].port: is unknown"),
        (BOOKIE + "start = ''\n", "bookie[0].start: is not text of one line"),
        ("[incident]\nstore = 'zk://h/l'\n" + BOOKIE, "has store in [incident]"),
        ("[incident]\nquorum = '3/2/2'\n" + BOOKIE, "has a key 'quorum'"),
        ("bookie = 3\n", "bookie: expected a list, got a whole number"),
        (
            BOOKIE + "[[server]]\nname = 'zk1'\ntransport = 'local'\nfolders = []\n",
            "server[0].folders: expected a list of length >= 1",
        ),
        (BOOKIE.replace('"bk1"', '"../x"'), "is not a name"),
    ],
)
def test_a_file_of_hosts_says_what_is_wrong(text: str, said: str, tmp_path: Path) -> None:
    """One clear error, with the file, the place and the remedy."""
    with pytest.raises(InputError) as error:
        read_hosts(write_hosts(tmp_path, text))
    assert said in str(error.value)
    assert "hosts.toml" in str(error.value)


def test_hosts_have_their_defaults(tmp_path: Path) -> None:
    """A bookie is told by its configuration; paths are relative to the file."""
    hosts = read_hosts(write_hosts(tmp_path, "[incident]\npasswords = 'p.txt'\n" + BOOKIE + "copy = 'bkmeta'\n"))
    [bookie] = hosts.bookies
    assert (bookie.process, bookie.program, bookie.start, bookie.bookie) == ("/etc/bk.conf", "bkmeta", None, None)
    assert bookie.copy == tmp_path / "bkmeta"
    assert hosts.incident == {"passwords": str(tmp_path / "p.txt")}


def test_each_transport_gives_a_script_as_one_word() -> None:
    """Whatever is in it: quotes, spaces, dollars."""
    script = """echo "$HOME" 'it'"""
    ssh = make_command(Host("a", Transport.SSH, "op@bk1", ""), script)
    assert (ssh[0], ssh[-3:-1]) == ("ssh", ["--", "op@bk1"])
    assert subprocess.run(["sh", "-c", ssh[-1]], capture_output=True, check=True).stdout.strip().endswith(b"it")
    pod = make_command(Host("a", Transport.KUBECTL, "pulsar/bk-0/bookie", ""), script)
    assert pod == ["kubectl", "-n", "pulsar", "exec", "-i", "bk-0", "-c", "bookie", "--", "sh", "-c", script]
    bare = make_command(Host("a", Transport.KUBECTL, "pulsar/bk-0", ""), script)
    assert "-c" not in bare[:6]
    own = Host("a", Transport.COMMAND, "", "sh -c {script}")
    assert run_script(own, script).out == run_script(LOCAL, script).out


def test_a_script_that_fails_says_where_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the host's name; a transport that is not there, too."""
    with pytest.raises(HostError, match=r"here: its start failed with code 3: no such disk"):
        require_done(LOCAL, run_script(LOCAL, "echo no such disk >&2; exit 3"), "its start")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match="a: kubectl cannot be run here"):
        run_script(Host("a", Transport.KUBECTL, "n/p", ""), "true")


def test_a_bookie_is_stopped_where_it_is_and_killed(tmp_path: Path) -> None:
    """Only the one that has the text; its state is seen; a start that fails says why."""
    with fake_bookie(tmp_path) as running:
        text = str(tmp_path / "bk.conf")
        assert parse_processes(run_script(LOCAL, build_stop(f"{text}x")).out) == []
        [stopped] = parse_processes(run_script(LOCAL, build_stop(text)).out)
        assert (stopped.pid, stopped.state) == (running.pid, "T")
        assert Path(f"/proc/{running.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        assert parse_processes(run_script(LOCAL, build_kill(text)).out) == []
        assert running.wait() < 0
    started = run_script(LOCAL, build_start(f"touch {tmp_path}/up; sleep 60 >/dev/null 2>&1 &"))
    assert (started.code, (tmp_path / "up").exists()) == (0, True)
    failed = run_script(LOCAL, build_start("echo no disk; exit 2"))
    assert (failed.code, failed.err) == (1, "no disk")


INSIDE = ("unshare", "--fork", "--pid", "--mount-proc", "--kill-child")
"""Runs a command as the first process of a container."""


def require_containers() -> None:
    """Skip a test where this machine makes no namespace of processes."""
    if subprocess.run([*INSIDE, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine lets no process make a namespace of processes")


def put_kubectl(folder: Path, running: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a kubectl onto PATH that runs the words behind -- in a container, as the real one does."""
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    until(lambda: bool(children.read_text().split()), "the container runs")
    kubectl = folder / "kubectl"
    kubectl.write_text(
        '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift\n'
        f'exec nsenter -t {children.read_text().split()[0]} -p -m "$@"\n'
    )
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.real
def test_a_stop_from_inside_a_container_is_not_believed(
    zookeeper_server: ZooKeeperServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first process ignores STOP from inside: that is seen, and nothing is collected; the way out is said."""
    require_containers()
    with fake_bookie(tmp_path, *INSIDE) as running:
        put_kubectl(tmp_path, running, monkeypatch)
        text = BOOKIE.replace("local", "kubectl").replace("/etc/bk.conf", str(tmp_path / "bk.conf"))
        hosts = write_hosts(tmp_path, text + 'host = "pulsar/bk-0"\n')
        uri = f"zk+hierarchical://{zookeeper_server.hosts}/nothing/ledgers"
        (tmp_path / "bk.conf").write_text(f"metadataServiceUri={uri}\n")
        refused = process("rescue", "--metadata", uri, "--hosts", hosts, "--out", tmp_path / "out", "--json")
        assert refused.code == 5, refused.out + refused.err
        assert "bk1: process 1 is in state S after kill -STOP" in refused.result["verdict"]
        assert "from its node" in refused.result["verdict"]
        assert not (tmp_path / "out" / "inv").exists()


def test_a_bookie_that_is_not_a_containers_first_process_is_stopped_from_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a pod whose containers share their processes."""
    require_containers()
    with fake_bookie(tmp_path, *INSIDE, "sh", "-c", '"$0" "$@" & wait') as running:
        put_kubectl(tmp_path, running, monkeypatch)
        text, pod = str(tmp_path / "bk.conf"), Host("bk1", Transport.KUBECTL, "pulsar/bk-0/rescue", "")
        until(lambda: bool(parse_processes(run_script(pod, build_stop(text)).out)), "the bookie runs")
        assert [item.state for item in parse_processes(run_script(pod, build_stop(text)).out)] == ["T"]
        assert parse_processes(run_script(pod, build_kill(text)).out) == []


LATE = 'kill() { (sleep 0.5; command kill "$@") & }'
"""A kill that arrives late: a busy host's process is not stopped when the command that stops it has ended."""
UNHEARD = "kill() { :; }"


def read_loop() -> str:
    """Return the loop of the Kubernetes page; it looks as often, in less time."""
    page = (Path(__file__).resolve().parents[3] / "docs/operations/kubernetes.md").read_text()
    [loop] = [line.strip() for line in page.splitlines() if line.strip().startswith("for p in")]
    assert "sleep 1;" in loop
    return loop.replace("sleep 1;", "sleep 0.1;")


@pytest.mark.parametrize(("kill", "state"), [("", "T"), (LATE, "T"), (UNHEARD, "S")])
def test_the_loop_of_the_kubernetes_page_waits_for_the_state_that_it_shows(
    kill: str, state: str, tmp_path: Path
) -> None:
    """It shows T however late the STOP arrives, within its bound; what is not stopped then is shown as it is."""
    require_containers()
    loop, java = read_loop(), tmp_path / "java"
    shutil.copy(shutil.which("sh") or "/bin/sh", java)
    node = (
        f"{java} -c 'while :; do sleep 5; done' org.apache.bookkeeper.server.Main &\n"
        f"{kill}\nuntil pgrep -x java >/dev/null; do sleep 0.1; done\n{loop}\n"
    )
    done = subprocess.run([*INSIDE, "sh", "-c", node], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split()[:2] == ["State:", state], done.stdout + done.stderr


@pytest.mark.parametrize("is_stopped", [True, False])
def test_the_loop_of_the_kubernetes_page_stops_a_containers_first_process(tmp_path: Path, *, is_stopped: bool) -> None:
    """From the node. Then a TERM, as the kubelet sends it, begins no clean stop; without the loop it does."""
    require_containers()
    loop = read_loop()
    java, clean, up = tmp_path / "java", tmp_path / "clean", tmp_path / "up"
    shutil.copy(shutil.which("sh") or "/bin/sh", java)
    bookie = f"trap 'touch {clean}' TERM; touch {up}; while :; do sleep 0.1; done"
    node = (
        f'{shlex.join(INSIDE)} {java} -c "{bookie}" org.apache.bookkeeper.server.Main &\n'
        f"while [ ! -e {up} ]; do sleep 0.1; done\n{loop if is_stopped else 'true'}\nkill -TERM $(pgrep -x java)\n"
        f"{'' if is_stopped else f'while [ ! -e {clean} ]; do sleep 0.1; done'}\nkill -KILL $(pgrep -x java)\nwait\n"
    )
    done = subprocess.run([*INSIDE, "sh", "-c", node], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.split() == ["State:", "T", "(stopped)"], clean.exists()) == (is_stopped, not is_stopped)


@pytest.mark.real
def test_a_host_that_cannot_be_reached_ends_the_run(
    zookeeper_server: ZooKeeperServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its name and what was said; a person may say that its bookie is off, and nothing else lets it go on."""
    (tmp_path / "ssh").write_text("#!/bin/sh\necho connection refused >&2; exit 255\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    hosts = write_hosts(tmp_path, BOOKIE.replace("local", "ssh") + 'host = "bk1"\n')
    uri = f"zk+hierarchical://{zookeeper_server.hosts}/nothing/ledgers"
    words = ["rescue", "--metadata", uri, "--hosts", hosts, "--out", tmp_path / "out", "--json"]
    answers = tmp_path / "answers.json"
    # What the bookie's configuration names cannot be read either.
    answers.write_text('{"store": "lost"}')
    asked = process(*words, "--answers", answers)
    [question] = asked.result["questions"]
    assert (asked.code, question["id"], question["recommended"]) == (4, "host bk1", "no"), asked.err
    assert "bk1: kill -STOP failed with code 255: connection refused" in question["text"]
    for _ in range(2):
        answers.write_text('{"host bk1": "no"}')
        failed = process(*words, "--answers", answers)
        assert (failed.code, "connection refused" in failed.result["verdict"]) == (1, True), failed.err
    status = process("rescue", "status", "--out", tmp_path / "out", "--json").result
    assert (status["phases"]["look"] is not None, status["phases"]["stop"]) == (True, None)
    answers.write_text('{"host bk1": "down"}')
    waiting = process(*words, "--answers", answers)
    assert [one["id"] for one in waiting.result["questions"]] == ["disks of bk1", "id of bk1"], waiting.err


@pytest.mark.real
def test_a_bookie_that_was_not_found_is_not_taken_for_off(zookeeper_server: ZooKeeperServer, tmp_path: Path) -> None:
    """It may run under another command line, and delete: nothing is collected until a person says that it is off."""
    hosts = write_hosts(tmp_path, BOOKIE.replace("/etc/bk.conf", str(tmp_path / "other.conf")))
    uri = f"zk+hierarchical://{zookeeper_server.hosts}/nothing/ledgers"
    words = ["rescue", "--metadata", uri, "--hosts", hosts, "--out", tmp_path / "out", "--json"]
    answers = tmp_path / "answers.json"
    (tmp_path / "other.conf").write_text(f"metadataServiceUri={uri}\n")
    with fake_bookie(tmp_path) as running:
        asked = process(*words)
        [question] = asked.result["questions"]
        assert (asked.code, question["id"], question["recommended"]) == (4, "bookies off", "no"), asked.err
        assert "no process of the bookie was found on 1 host: bk1" in question["text"]
        answers.write_text('{"bookies off": "no"}')
        for _ in range(2):
            refused = process(*words, "--answers", answers)
            assert (refused.code, "correct `process`" in refused.result["verdict"]) == (5, True), refused.err
        assert not (tmp_path / "out" / "inv").exists()
        assert psutil.Process(running.pid).status() != psutil.STATUS_STOPPED
        # With the right text it is found, and nothing is asked.
        write_hosts(tmp_path, BOOKIE.replace("/etc/bk.conf", str(tmp_path / "bk.conf")))
        found = process(*words)
        assert [one["id"] for one in found.result["questions"]] == ["disks of bk1", "id of bk1"], found.err
        assert psutil.Process(running.pid).status() == psutil.STATUS_STOPPED


@pytest.mark.real
def test_a_person_is_asked_on_a_terminal(zookeeper_server: ZooKeeperServer, tmp_path: Path) -> None:
    """With what is known and what each answer costs; what is no answer is asked again; who answered is kept."""
    uri = f"zk+hierarchical://{zookeeper_server.hosts}/asked/ledgers"
    with open_store(uri, writable=True) as opened:
        fill_store(opened.store, "/asked/ledgers", Layout.HIERARCHICAL, [Ledger(LedgerId(0, 1))])
    here, there = os.openpty()
    words = ("--metadata", uri, "--hosts", str(write_hosts(tmp_path)), "--out", str(tmp_path / "out"))
    command = [str(PROGRAM), "rescue", *words]
    with subprocess.Popen(command, stdin=there, stdout=there, stderr=there, env=environment()) as running:
        os.close(there)
        shown = read_until(here, b"kind: ")
        os.write(here, b"nonsense\nlost\n")
        shown += read_until(here, b"bookies off [")
        os.write(here, b"off\n")
        shown += read_until(here, b"disks of bk1 [")
        os.write(here, b"\x04")
        assert running.wait() == Exit.INTERRUPTED
    os.close(here)
    for text in (
        b"what happened?",
        b"known: the store lists 1 ledger",
        b"by mistake: they come back",
        b"is not one of",
    ):
        assert text in shown, shown
    # What a command says is a line of its own, and not behind a bar.
    assert re.search(rb"(\x1b\[2K|\n)THE FIRST TEN MINUTES", shown), shown
    record = read_record(tmp_path / "out")
    assert record is not None
    assert record["answers"]["kind"]["answer"] == "lost"
    assert "@" in record["answers"]["kind"]["by"]


def read_until(terminal: int, words: bytes) -> bytes:
    """Return what a terminal shows until it shows some words."""
    shown = b""
    while words not in shown:
        shown += os.read(terminal, 65_536)
    return shown


def test_a_command_of_a_rescue_asks_no_person_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a terminal, too, where `freeze` alone asks for the hash: its question would not be seen."""
    ask = "import json, sys; print(json.dumps({'verdict': str(sys.stdin.isatty()), 'exit_code': 0}))"
    monkeypatch.setattr(
        "reconcile.cli.rescue.own_commands.make_own_command", lambda *_words: [sys.executable, "-c", ask]
    )
    output = Output(as_json=True, progress="none")
    leader, terminal = os.openpty()
    before = os.dup(0)
    os.dup2(terminal, 0)
    try:
        ran = run_own(("freeze",), os.environ, output, is_told=False)
    finally:
        os.dup2(before, 0)
        for handle in (leader, terminal, before):
            os.close(handle)
    assert (ran.code, ran.result["verdict"]) == (0, "False")


def test_answers_and_records_are_checked(tmp_path: Path) -> None:
    """An answer that is no choice, a file that is no object, a record of another store or kind."""
    (tmp_path / "a.json").write_text("[1]")
    with pytest.raises(InputError, match=r"a\.json: expected a table, got a list"):
        read_answers(tmp_path / "a.json")
    record = RescueRecord.open(tmp_path, "zk://a/l", now)
    record.end(RescuePhase.LOOK)
    assert (tmp_path / "rescue.json").stat().st_mode & 0o077 == 0
    with pytest.raises(InputError, match="is a rescue of zk://a/l"):
        RescueRecord.open(tmp_path, "zk://b/l", now)
    assert RescueRecord.open(tmp_path, "zk://a/l", now).is_done(RescuePhase.LOOK)
    (tmp_path / "rescue.json").write_text('{"schema": "other"}')
    with pytest.raises(InputError, match="is not a record of a rescue"):
        read_record(tmp_path)


@pytest.mark.parametrize(
    ("answer", "is_one"), [("world:anyone:cdrwa", True), ("cdrwa", False), ("from-snapshot", False)]
)
def test_rights_that_are_none_are_asked_for_again(answer: str, is_one: bool, tmp_path: Path) -> None:
    """Apply would refuse them each time: the answer is forgotten before anything is confirmed."""
    record = RescueRecord.open(tmp_path, "zk://a/l", now)
    question = questions.ask_for_rights(5, 2, {}, "")

    def ask(asked: Sequence[RescueQuestion]) -> None:
        record.take_answer(asked[0], answer)

    hosts = read_hosts(write_hosts(tmp_path))
    rescue = OpenRescue(hosts, "zk://a/l", record, Output(as_json=True, progress="none"), lambda _: None, ask)
    if is_one:
        assert answer_rights(rescue, question) == record.find_answer("rights") == answer
        return
    with pytest.raises(GuardRefusedError, match=f"'{answer}', which is not scheme:id:perms"):
        answer_rights(rescue, question)
    assert record.find_answer("rights") is None


def test_only_older_ledgers_of_ids_in_the_store_are_given_up(tmp_path: Path) -> None:
    """If the store has neither ledger of an id, it stays held; without a lock there is nothing to give up."""
    whole = [(0, ["b1", "b2", "b3"])]
    rows = [
        fill_row(
            tables.FINDINGS,
            {"id": b"", "bucket": ledger.bucket, "scope": 0, "ledger": ledger.ledger, "category": "ID_REUSE"},
        )
        for ledger in sorted((LedgerId(0, n) for n in (7, 8, 9)), key=lambda ledger: ledger.bucket)
    ]
    findings = pa.Table.from_pylist(rows, schema=tables.FINDINGS)
    plan = write_plan(
        tmp_path / "plan", [PlanLedger(7, whole, reason="two_keys")], findings=findings, reused=[LedgerId(0, 9)]
    )
    record = RescueRecord.open(tmp_path, "zk://a/l", now)
    record.take_answer(questions.ask_for_older_ledgers(1), "lost")
    output = Output(as_json=True, progress="none")
    rescue = OpenRescue(read_hosts(write_hosts(tmp_path)), "zk://a/l", record, output, lambda _: None, lambda _: None)
    words = list(settle_older(rescue, {"plan": str(plan.path), "counts": plan.manifest["counts"]}))
    assert words == ["--accept-loss-of", str(tmp_path / "older-lost.txt")]
    assert Path(words[1]).read_text() == "9\n"
    assert record.find_phase(RescuePhase.DECIDE)["older"] == sorted("89", key=lambda n: LedgerId(0, int(n)).bucket)


@pytest.mark.parametrize(
    ("problem", "answer", "gone"),
    [("", None, ""), ("no cookie", "yes", ""), ("no cookie", "no", ""), ("no cookie", None, "/disk2")],
)
def test_older_ledgers_that_may_not_all_be_saved_are_asked_about(
    problem: str, answer: str | None, gone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bookie whose disks may have more stops it, unless a person says to go on; one that was saved whole does not."""
    record = RescueRecord.open(tmp_path, "zk://a/l", now)
    record.find_phase(RescuePhase.COLLECT).update(bookies={"bk1": "b1:3181"}, disks={"b1:3181": ["/disk"]})
    question = questions.ask_for_unsaved(OLDER, [f"bk1: {problem}"])
    if gone:
        # It was said before that what was not looked at is gone.
        record.find_phase(RescuePhase.COLLECT)["gaps"] = {"bk1": [gone]}
        folder = FetchedBookie("bk1", "b1:3181", is_complete=False, verdict="half")
        record.take_answer(questions.ask_for_folder(folder, Gap(gone, is_missing=True)), "gone")
    if answer is not None:
        record.take_answer(question, answer)
    asked: list[object] = []

    def save(*words: object) -> SavedLedgers:
        asked.append(words)
        return SavedLedgers("written", problem)

    monkeypatch.setattr("reconcile.cli.rescue.saved_ledgers.export_ledgers", save)
    output = Output(as_json=True, progress="none")
    rescue = OpenRescue(read_hosts(write_hosts(tmp_path)), "zk://a/l", record, output, lambda _: None, lambda _: None)
    if answer == "no":
        with pytest.raises(GuardRefusedError, match="may not be all: bk1: no cookie"):
            save_ledgers(rescue, ["8"], OLDER)
        assert record.find_answer(question.id) is None
    else:
        save_ledgers(rescue, ["8"], OLDER)
        save_ledgers(rescue, ["8"], OLDER)
    # What was saved whole is not saved again.
    assert len(asked) == (2 if answer == "yes" else 1)


@pytest.mark.real
def test_a_store_that_does_not_answer_is_not_taken_for_lost(tmp_path: Path) -> None:
    """It is asked about before any bookie is stopped."""
    uri = f"zk+hierarchical://127.0.0.1:{free_port()}/ledgers"
    hosts = write_hosts(tmp_path, BOOKIE.replace("/etc/bk.conf", str(tmp_path / "bk.conf")))
    with fake_bookie(tmp_path) as running:
        asked = process("rescue", "--metadata", uri, "--hosts", hosts, "--out", tmp_path / "out", "--json")
        [question] = asked.result["questions"]
        assert (asked.code, question["id"], question["recommended"]) == (4, "store", "no"), asked.err
        assert psutil.Process(running.pid).status() != psutil.STATUS_STOPPED


EMPTY = {
    "verdict": "it is empty",
    "root": "present",
    "counts": {"ledgers_listed": 0},
    "coverage": {"listed_whole": True},
}


@pytest.mark.parametrize(
    ("seen", "answer", "said"),
    [
        (EMPTY, None, None),
        (EMPTY | {"root": "missing", "coverage": {"listed_whole": False}}, None, None),
        (EMPTY | {"coverage": {"listed_whole": False}}, "no", "was not seen: it is empty"),
        ({"verdict": "silent", "counts": {}, "coverage": {"store": "not available"}}, "no", "was not seen: silent"),
        ({"verdict": "silent", "counts": {}, "coverage": {"store": "not available"}}, "lost", None),
    ],
)
def test_only_a_store_that_was_seen_empty_counts_as_lost(
    seen: dict[str, object], answer: str | None, said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of any other a person says so; no ends the run, and is asked again."""
    monkeypatch.setattr("reconcile.cli.rescue.look.list_other_roots", lambda _: None)
    rescue, asked = open_rescue(tmp_path, {} if answer is None else {"store": answer})
    if said is None:
        require_lost(rescue, seen)
    else:
        with pytest.raises(GuardRefusedError, match=said):
            require_lost(rescue, seen)
        assert read_record(tmp_path)["answers"] == {}  # type: ignore[index]  # it is there
    assert asked == ([] if answer is None else ["store"])
    with pytest.raises(GuardRefusedError, match="leave --topic out"):
        require_lost(open_rescue(tmp_path / "topic", {}, topic="persistent://a/b/c")[0], seen)


@pytest.mark.parametrize(
    ("conf", "named"),
    [
        ("metadataServiceUri=zk+hierarchical://zk1:2181,zk2:2181/l\n", None),
        ("zkServers=zk1:2181\nzkLedgersRootPath=/l\n", None),
        ("metadataServiceUri=zk://zk1:2181/ledgers\n", "names the root /ledgers"),
        ("zkServers=zk1:2181\n", "names the root /ledgers"),
        ("metadataServiceUri=${elsewhere}\n", "could not be read, or names no store"),
        ("bookiePort=3181\n", "could not be read, or names no store"),
        (None, "could not be read, or names no store"),
    ],
)
def test_an_empty_store_that_may_not_be_that_of_these_bookies_is_asked_about(
    conf: str | None, named: str | None, tmp_path: Path
) -> None:
    """A slip in the URI stops no bookie: their configuration names their root; another URI may be named then."""
    path = tmp_path / "bk.conf"
    if conf is not None:
        path.write_text(conf)
    rescue, asked = open_rescue(tmp_path, {"store": "no"}, text=BOOKIE.replace("/etc/bk.conf", str(path)))
    others = list_other_roots(rescue)
    assert others == (None if named is None else (f"bk1: {path} {named}",))
    if named is None:
        require_lost(rescue, EMPTY)
        return
    with pytest.raises(GuardRefusedError, match="may not be that of these bookies: it is empty; name it as"):
        require_lost(rescue, EMPTY)
    assert asked == ["store"]
    assert RescueRecord.open(tmp_path, "zk://a/ledgers", now).values["metadata"] == "zk://a/ledgers"


def open_rescue(
    folder: Path, answers: dict[str, str], *, uri: str = "zk://a/l", topic: str | None = None, text: str = BOOKIE
) -> tuple[OpenRescue, list[str]]:
    """Return a rescue that is answered so, and what it has asked so far; a question without an answer is an error."""
    folder.mkdir(exist_ok=True)
    record, asked = RescueRecord.open(folder, uri, now, topic=topic), list[str]()

    def ask(questions: Sequence[RescueQuestion]) -> None:
        for question in questions:
            asked.append(question.id)
            record.take_answer(question, answers[question.id])

    output = Output(as_json=True, progress="none")
    return OpenRescue(read_hosts(write_hosts(folder, text)), uri, record, output, lambda _: None, ask, topic), asked


@pytest.mark.parametrize(("answer", "words"), [("yes", ["--adopt-candidates"]), ("no", [])])
def test_ledgers_after_the_snapshot_are_adopted_if_a_person_says_so(
    answer: str, words: list[str], tmp_path: Path
) -> None:
    """It is asked only where records name their topics."""
    rescue, asked = open_rescue(tmp_path, {"adopt": answer})
    assert (list(settle_topics(rescue, {})), asked) == ([], [])
    assert (list(settle_topics(rescue, {"candidates": {"record": 3}})), asked) == (words, ["adopt"])


def test_older_ledgers_that_a_person_saved_are_neither_exported_nor_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thaw knows them all the same."""
    findings = pa.Table.from_pylist(
        [fill_row(tables.FINDINGS, {"id": b"", "bucket": 0, "scope": 0, "ledger": 9, "category": "ID_REUSE"})],
        schema=tables.FINDINGS,
    )
    segments = [(0, ["b1", "b2", "b3"])]
    plan = write_plan(tmp_path / "plan", [PlanLedger(7, segments)], findings=findings, reused=[LedgerId(0, 9)])
    monkeypatch.setattr("reconcile.cli.rescue.saved_ledgers.export_ledgers", pytest.fail)
    rescue, asked = open_rescue(tmp_path, {"older ledgers": "saved"})
    assert not list(settle_older(rescue, {"plan": str(plan.path), "counts": {"ids_reused": 1}}))
    assert asked == ["older ledgers"]
    assert rescue.record.find_phase(RescuePhase.DECIDE)["older"] == ["9"]


@pytest.mark.parametrize(
    ("of_folder", "of_bookie", "lost"),
    [
        ("gone", "back", ["b1:3181=/disk2"]),
        ("back", "gone", ["b2:3181"]),
        ("gone", "gone", ["b2:3181", "b1:3181=/disk2"]),
        ("back", "back", None),
    ],
)
def test_what_is_gone_is_given_up_by_name(
    of_folder: str, of_bookie: str, lost: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder, a bookie, or both are given to the commands as lost; what may come back is not."""
    collected = {
        "bk1": FetchedBookie("bk1", "b1:3181", False, "half", (Gap("/disk2", True),), ("/disk1", "/disk2")),
        "bk2": FetchedBookie("bk2", None, is_complete=False, verdict="not collected"),
    }
    monkeypatch.setattr("reconcile.cli.rescue.collect.collect_bookie", lambda bookie, *_: collected[bookie.name])
    answers = {"folder /disk2 of bk1": of_folder, "disks of bk2": of_bookie, "id of bk2": "b2:3181"}
    rescue, asked = open_rescue(tmp_path, answers, text=BOOKIE + BOOKIE.replace("bk1", "bk2"))
    rescue.record.find_phase(RescuePhase.LOOK)["kind"] = "lost"
    collect(rescue)
    assert sorted(asked) == sorted(answers)
    rescue.write_incident()
    written = tomllib.loads((tmp_path / "incident.toml").read_text())
    assert (written["bookies"], written.get("lost")) == (["b1:3181", "b2:3181"], lost)
    assert rescue.build_disk_options("all") == ["--sample", "all", "--disk", "b1:3181=/disk1"]


@pytest.mark.parametrize(("program", "recommended"), [("nowhere", "again"), ("false", "back")])
def test_a_bookie_that_was_not_collected_is_collected_again_if_a_person_says_so(
    program: str, recommended: str, tmp_path: Path
) -> None:
    """Which is recommended where its host has no such program: its disks may be whole. Nothing else is asked then."""
    text = BOOKIE.replace("local", "command") + f"command = 'sh -c {{script}}'\nprogram = '{program}'\nid = 'b1:3181'\n"
    rescue, asked = open_rescue(tmp_path, {"disks of bk1": "again"}, text=text)
    rescue.record.find_phase(RescuePhase.LOOK)["kind"] = "lost"
    [item] = collect_all(rescue)
    assert questions.ask_for_disks(item).recommended == recommended
    for _ in range(2):
        with pytest.raises(GuardRefusedError, match="disks of bk1: were not read; give its host the program"):
            collect(rescue)
    assert asked == ["disks of bk1"] * 2
    assert rescue.record.find_answer("disks of bk1") is None


def _collect_one_of_two(
    folder: Path, monkeypatch: pytest.MonkeyPatch, recorded: set[str], answers: dict[str, str]
) -> tuple[OpenRescue, list[RescueQuestion]]:
    """Return a rescue of a bookie that was collected and of one without disks, and the questions that it asks."""
    collected = {
        "bk1": FetchedBookie("bk1", "b1:3181", is_complete=True, verdict="whole"),
        "bk2": FetchedBookie("bk2", None, is_complete=False, verdict="not collected"),
    }
    monkeypatch.setattr("reconcile.cli.rescue.collect.collect_bookie", lambda bookie, *_: collected[bookie.name])
    monkeypatch.setattr("reconcile.cli.rescue.collect.list_recorded_bookies", lambda *_: frozenset(recorded))
    text = BOOKIE + BOOKIE.replace("bk1", "bk2")
    rescue, _ = open_rescue(folder, answers, text=text)
    asked: list[RescueQuestion] = []

    def ask(listed: Sequence[RescueQuestion]) -> None:
        asked.extend(listed)
        for question in listed:
            rescue.record.take_answer(question, answers[question.id])

    monkeypatch.setattr(rescue, "ask", ask)
    rescue.record.find_phase(RescuePhase.LOOK)["kind"] = "lost"
    return rescue, asked


@pytest.mark.parametrize("recorded", [{"b1:3181", "b2:3181"}, {"b1:3181", "b2:3181", "b3:3181"}, {"b1:3181"}])
def test_the_id_of_a_bookie_without_disks_is_asked_for(
    recorded: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the ids that snapshots name and no other bookie has; the only one is recommended, and not just taken."""
    answers = {"disks of bk2": "gone", "id of bk2": "b2:3181"}
    rescue, asked = _collect_one_of_two(tmp_path, monkeypatch, recorded, answers)
    collect(rescue)
    assert [question.id for question in asked] == list(answers)
    [question] = asked[1:]
    left = sorted(recorded - {"b1:3181"})
    assert list(question.choices) == ([*left, "none"] if left else [])
    assert question.recommended == (left[0] if len(left) == 1 else None)
    assert all(name in question.known[0] for name in left)
    assert all(question.choices.values())
    rescue.write_incident()
    written = tomllib.loads((tmp_path / "incident.toml").read_text())
    assert (written["lost"], written["bookies"]) == (["b2:3181"], ["b1:3181", "b2:3181"])


@pytest.mark.parametrize(("answer", "said"), [("none", "is not known"), ("b1:3181", "which another bookie has")])
def test_no_bookie_gets_an_id_that_is_not_its_own(
    answer: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of hosts may lack the bookie whose id is left: nothing of that one is given up for another."""
    recorded = {"b1:3181", "b9:3181"} if answer == "none" else {"b1:3181"}
    answers = {"disks of bk2": "gone", "id of bk2": answer}
    rescue, asked = _collect_one_of_two(tmp_path, monkeypatch, recorded, answers)
    with pytest.raises(GuardRefusedError, match=f"id of bk2: .*{said}.*write the `id`"):
        collect(rescue)
    # It is asked again, and no longer where the file names the id.
    assert rescue.record.find_answer("id of bk2") is None
    write_hosts(tmp_path, BOOKIE + BOOKIE.replace("bk1", "bk2") + 'id = "b2:3181"\n')
    rescue.hosts = read_hosts(tmp_path / "hosts.toml")
    asked.clear()
    collect(rescue)
    assert asked == []
    rescue.write_incident()
    assert tomllib.loads((tmp_path / "incident.toml").read_text())["lost"] == ["b2:3181"]


@pytest.mark.real
@pytest.mark.parametrize("has_crashed", [True, False])
def test_a_bookie_that_crashed_after_its_start_is_started_again(
    zookeeper_server: ZooKeeperServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_crashed: bool
) -> None:
    """It is registered until its session ends; one that answers is left alone."""
    uri = f"zk+hierarchical://{zookeeper_server.hosts}/crashed-{has_crashed}/ledgers"
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = listening.getsockname()[1]
        if has_crashed:
            listening.close()
        else:
            stack.enter_context(answering(listening))
        opened = stack.enter_context(open_store(uri, writable=True))
        registered = f"/crashed-{has_crashed}/ledgers/available/127.0.0.1:{port}"
        opened.store.write([Write(registered, b"")])
        text = BOOKIE + f"start = {json.dumps(f'touch {tmp_path}/up')}\n"
        rescue, _ = open_rescue(tmp_path, {}, uri=uri, text=text)
        name = f"127.0.0.1:{port}"
        rescue.record.find_phase(RescuePhase.START)["started"] = {"bk1": name}
        awaited: list[str] = []

        def wait(is_so: Callable[[], bool], what_came: str) -> None:
            awaited.append(what_came)
            assert not is_so()
            if "ended" in what_came:
                opened.store.write([Write(registered, None, 0)])
            else:
                opened.store.write([Write(registered, b"")])
            assert is_so()

        monkeypatch.setattr(rescue, "wait_until", wait)
        [bookie] = rescue.hosts.bookies
        start_bookie(rescue, bookie, name)
    assert ((tmp_path / "up").exists(), len(awaited)) == ((True, 2) if has_crashed else (False, 0))


@contextmanager
def answering(listening: socket.socket) -> Iterator[None]:
    """Answer whoever connects with a frame of a bookie's protocol."""

    def answer() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection:
                    connection.recv(64)
                    connection.sendall((4).to_bytes(4) + b"\0" * 4)

    thread = Thread(target=answer, daemon=True)
    thread.start()
    try:
        yield
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


@pytest.mark.real
def test_rights_of_a_secured_store_are_asked_for(zookeeper_server: ZooKeeperServer, tmp_path: Path) -> None:
    """Where the plan names none for some keys; an open store asks nothing."""
    plan = write_plan(tmp_path / "plan", [PlanLedger(7, [(0, ["b1", "b2", "b3"])])])
    rights = "digest:bookkeeper:aGFzaA==:cdrwa"
    client = KazooClient(zookeeper_server.hosts)
    client.start()
    client.create("/open-rights/ledgers", makepath=True)
    secured = [make_acl("world", "anyone", read=True), make_acl("digest", "bookkeeper:aGFzaA==", all=True)]
    client.create("/secured-rights")
    client.create("/secured-rights/ledgers", acl=secured)
    client.stop()
    client.close()
    for name, answers, given in (("open", {}, None), ("secured", {"rights": rights}, rights)):
        uri = f"zk+hierarchical://{zookeeper_server.hosts}/{name}-rights/ledgers"
        rescue, asked = open_rescue(tmp_path / name, answers, uri=uri)
        assert (choose_rights(rescue, plan), asked) == (given, list(answers))


@pytest.mark.real
@pytest.mark.parametrize("answer", ["freeze", "no"])
def test_deletes_are_taken_back_frozen_or_not(
    answer: str, zookeeper_server: ZooKeeperServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is stopped. After the answer no, nothing is frozen or thawed either, and apply gets `--accept-unfrozen`.

    What the commands themselves do is tried on real bookies, in tests/real.
    """
    plan = write_plan(tmp_path / "plan", [PlanLedger(7, [(0, ["b1", "b2", "b3"])])])
    session = {"session": "0x1", "ledgers": 1, "first_at": "a", "last_at": "b", "first_txn": 5, "last_txn": 6}
    results: dict[str, tuple[int, dict[str, object]]] = {
        "preflight": (3, {"counts": {"ledgers_listed": 5}, "bookies": [{"id": "b1", "answers": True}], "level": "ok"}),
        "freeze": (0, {"exit_code": 0}),
        "undelete": (0, {"plan": str(plan.path), "hash": "a" * 64, "topics": []}),
        "plan": (0, {}),
        "apply": (0, {"bookies": []}),
        "verify": (0, {"exit_code": 0}),
        "thaw": (0, {"exit_code": 0, "replication_disabled": False}),
    }
    commands: list[list[str]] = []

    def run_own(words: tuple[object, ...], *_: object, **__: object) -> Ran:
        commands.append(list(map(str, words)))
        if words[0] == "undelete" and "--session" not in words:
            return Ran(2, {"verdict": "sessions", "sessions": [session]}, 0.1)
        if words[0] == "freeze" and "--confirm" not in words:
            return Ran(5, {"verdict": "it waits", "exit_code": 5, "hash": "f" * 64}, 0.1)
        code, result = results[str(words[0])]
        return Ran(code, {"verdict": "done", **result}, 0.1)

    monkeypatch.setattr("reconcile.cli.rescue.open_rescue.run_own", run_own)
    with open_store(uri := f"zk+hierarchical://{zookeeper_server.hosts}/{answer}/ledgers", writable=True) as opened:
        fill_store(opened.store, f"/{answer}/ledgers", Layout.HIERARCHICAL, [Ledger(LedgerId(0, 1))])
    answers = {"kind": "deletes", "freeze": answer, "session 0x1": "mistake", "confirm": "aaaaaaaa"}
    rescue, asked = open_rescue(tmp_path / "out", answers, uri=uri)
    ended = conduct(rescue)
    assert (ended.kind, ended.is_read, asked) == ("deletes", True, list(answers))
    names = [words[0] for words in commands]
    middle = ["undelete", "undelete", "plan", "apply", "verify"]
    freezes, thaws = (["freeze"] * 2, ["thaw"]) if answer == "freeze" else ([], [])
    assert names == ["preflight", *freezes, *middle, *thaws]
    assert all("--deletes-only" in words for words in commands if words[0] == "freeze")
    [apply] = [words for words in commands if words[0] == "apply"]
    assert ("--accept-unfrozen" in apply) == (answer == "no")
    # All was read, so replication goes on again, where the freeze had disabled it.
    assert all("--enable-replication" in words for words in commands if words[0] == "thaw")
    assert not any("autorecovery -enable" in line for line in ended.left)


def test_more_older_ledgers_than_an_argument_takes_are_saved(tmp_path: Path) -> None:
    """Their ids go to the host as a file: 128 KB are all that one argument holds."""
    program = tmp_path / "bkmeta"
    # What real bookies have is exported in tests/real: this one keeps what it is given.
    program.write_text(
        '#!/bin/sh\nwhile [ $# -gt 0 ]; do case "$1" in --from) ids=$2;; --out) out=$2;; esac; shift; done\n'
        'mkdir "$out" && cp "$ids" "$out/ids" && echo \'{"verdict": "kept", "counts": {"unreadable": 0}, '
        '"coverage": {"incomplete": {}}}\'\n'
    )
    program.chmod(0o755)
    text = BOOKIE + f"program = {json.dumps(str(program))}\n"
    [bookie] = read_hosts(write_hosts(tmp_path, text)).bookies
    ids = [str(number) for number in range(1_000_000_000, 1_000_012_000)]
    assert len(" ".join(ids)) > 131_072
    saved = export_ledgers(bookie, "b1:3181", ["/disk"], ids, tmp_path / "older", None)
    assert (saved.unread + saved.unreadable, saved.verdict.endswith(": kept")) == ("", True)
    assert (tmp_path / "older" / "bk1" / "ids").read_text().split() == ids


def test_a_dry_run_prints_every_step_and_makes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is connected to; what has not begun has no status."""
    hosts, out = write_hosts(tmp_path), tmp_path / "out"
    words = ["rescue", "--metadata", "zk+hierarchical://nowhere.invalid:1/ledgers", "--hosts", hosts, "--out", out]
    shown = run(capsys, *words, "--dry-run")
    assert (shown.code, out.exists()) == (0, False)
    steps = ("0 look", "1 stop", "2 collect", "3 decide", "4 review", "5 restore", "6 start")
    assert all(step in shown.out for step in (*steps, "bkmeta rehearse", "bkmeta thaw"))
    # What is done for deletes is not stopping.
    assert all(step in shown.out.partition("instead of steps")[2] for step in ("--deletes-only", "bkmeta undelete"))
    status = run(capsys, "rescue", "status", "--out", out, "--json")
    assert (status.code, "has no rescue" in status.result["verdict"]) == (0, True)
    assert json.loads(status.out)["schema"] == "bkmeta.rescue/1"
    assert run(capsys, "rescue", "--out", out).code == 2


def _conduct(
    folder: Path, monkeypatch: pytest.MonkeyPatch, answers: dict[str, dict[str, Any]], approvals: Sequence[Path] = ()
) -> tuple[OpenRescue, list[list[str]]]:
    """Return a rescue of deletes that is decided, and the commands that it runs, each with the result that is named."""
    record = RescueRecord.open(folder, "zk://a/l", now)
    record.find_phase(RescuePhase.LOOK)["bookies"] = []
    record.find_phase(RescuePhase.DECIDE).update(plan=str(folder / "plan"), hash="ab")
    output, hosts = Output(as_json=True, progress="none"), read_hosts(write_hosts(folder))
    rescue = OpenRescue(hosts, "zk://a/l", record, output, lambda _: None, lambda _: None, approvals=approvals)
    ran: list[list[str]] = []

    def keep(*words: object, codes: object) -> dict[str, Any]:
        ran.append([str(word) for word in words])
        return answers.get(ran[-1][0], {})

    monkeypatch.setattr(rescue, "run", keep)
    monkeypatch.setattr(OpenRescue, "count_writes", lambda _: 1)
    monkeypatch.setattr(OpenRescue, "kind", "deletes")
    monkeypatch.setattr(OpenRescue, "is_frozen", True)
    monkeypatch.setattr(OpenRescue, "is_stopped", False)
    return rescue, ran


def test_each_command_is_given_the_approvals_of_what_it_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would refuse others: apply gets what approves the plan, thaw what approves the thaw."""
    ann = make_person(tmp_path, "ann")
    files = {kind: tmp_path / f"{kind}.json" for kind in Approvable}
    for kind, path in files.items():
        write_approval(make_approval(Subject(kind, "ab" * 32), now(), timedelta(days=1), ann.private), path)
    waiting = {"exit_code": Exit.REFUSED, "verdict": "thaw waits for its hash", "hash": "cd"}
    rescue, ran = _conduct(tmp_path, monkeypatch, {"thaw": waiting}, list(files.values()))
    restore(rescue)
    thaw(rescue)
    given = {(words[0], words[place + 1]) for words in ran for place, word in enumerate(words) if word == "--approval"}
    assert given == {("apply", str(files[Approvable.PLAN])), ("thaw", str(files[Approvable.THAW]))}
    assert str(files[Approvable.THAW]) in name_thaw(rescue)


def test_an_approval_that_is_none_is_named_before_anything_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not in the middle of a rescue."""
    (tmp_path / "none.json").write_text("{}")
    words = ("--metadata", "zk://127.0.0.1:1/l", "--hosts", write_hosts(tmp_path), "--out", tmp_path / "out")
    done = run(capsys, "rescue", *words, "--approval", tmp_path / "none.json")
    assert (done.code, "none.json: is not an approval" in done.err) == (2, True), done.err


def test_what_a_step_takes_is_said_by_what_it_took_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this incident, on these machines; before it ran here, by what was measured elsewhere."""
    rescue, _ = _conduct(tmp_path, monkeypatch, {})
    said: list[str] = []
    monkeypatch.setattr(rescue, "say", said.append)
    rescue.expect(EstimatedStep.APPLY, 1_000_000)
    rescue.record.add_command("bkmeta rehearse", 0, "done", 120.0)
    rescue.measure(EstimatedStep.APPLY, 1_000)
    rescue.expect(EstimatedStep.APPLY, 2_000)
    assert said == [
        "  apply takes about 13 minutes, by what was measured on two cores",
        "  apply takes about 4 minutes, by what it took here",
    ]


def test_a_freeze_that_is_refused_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no hash then that could be confirmed."""
    refused = {"exit_code": Exit.REFUSED, "verdict": "/ledgers/00: you have no ADMIN", "next": ""}
    rescue, ran = _conduct(tmp_path, monkeypatch, {"freeze": refused})
    with pytest.raises(GuardRefusedError, match="you have no ADMIN"):
        freeze(rescue)
    assert [words[0] for words in ran] == ["freeze"]


@pytest.mark.parametrize(
    ("level", "is_whole", "sessions", "recommended"),
    [
        ("ok", True, 1, "deletes"),
        ("ok", False, 1, None),
        ("ok", True, 0, None),
        ("critical", True, 0, "lost"),
    ],
)
def test_undelete_is_proposed_where_history_has_every_record(
    level: str, is_whole: bool, sessions: int, recommended: str | None
) -> None:
    """With who deleted what; a history with a gap may lack some, and then a person says what happened."""
    row = {"session": "0x1", "ledgers": 100, "first_at": "10:00", "last_at": "10:01"}
    history = {"sessions": [row] * sessions, "coverage": {"complete": is_whole}}
    question = questions.ask_what_happened(5, {"verdict": "v", "level": level}, history, can_freeze=True)
    assert question.recommended == recommended
    said = "by the history session 0x1 deleted 100 ledgers from 10:00 to 10:01"
    assert (said in question.known) == bool(sessions)


def test_history_that_cannot_be_read_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the question it is only said; where deletes are to be taken back the rescue ends with it."""
    text = BOOKIE + "[incident]\nsnapshots = ['catalog:///nowhere']\n"
    rescue, _ = open_rescue(tmp_path, {}, text=text)
    monkeypatch.setattr(rescue, "run", lambda *_, **__: {"verdict": "catalog:///nowhere: no such folder", "next": ""})
    assert "sessions" not in read_history(rescue)
    with pytest.raises(GuardRefusedError, match="nowhere: no such folder"):
        undelete(rescue)


def test_what_is_waited_for_in_vain_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With how long, and what to do."""
    rescue, _ = _conduct(tmp_path, monkeypatch, {})
    monkeypatch.setattr("reconcile.cli.rescue.open_rescue.PATIENCE_S", -1)
    with pytest.raises(GuardRefusedError, match="this is not so yet: bk1: it is registered; read the bookie's log"):
        rescue.wait_until(lambda: False, "bk1: it is registered")


@pytest.mark.parametrize(
    ("layout", "waiting", "names"),
    [
        ("flat", "", ["freeze", "thaw", "bookies start", "thaw --enable-replication"]),
        ("flat", "guarded", ["freeze", "thaw", "bookies start"]),
        ("hierarchical", "", ["freeze", "bookies start", "thaw --enable-replication"]),
        ("hierarchical", "guarded", ["freeze", "bookies start", "thaw"]),
        ("hierarchical", "held", ["freeze", "bookies start", "thaw"]),
        ("hierarchical", "left out", ["freeze", "bookies start", "thaw"]),
        ("hierarchical", "a bookie", ["freeze", "bookies start", "thaw"]),
        ("hierarchical", "unread", ["freeze", "bookies start", "thaw"]),
    ],
)
def test_replication_is_off_from_before_a_bookie_starts_until_nothing_waits(
    layout: str, waiting: str, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By freeze and thaw. Bookies of the flat layout do not start frozen: the thaw comes before, and refuses losses."""
    is_disabled = "--enable-replication" not in names[-1]
    thawed = {"exit_code": Exit.DONE, "replication_disabled": is_disabled}
    rescue, ran = _conduct(tmp_path, monkeypatch, {"freeze": {"exit_code": Exit.DONE}, "thaw": thawed})
    monkeypatch.setattr(OpenRescue, "kind", "lost")
    monkeypatch.setattr(OpenRescue, "is_stopped", True)
    monkeypatch.setattr(rescue, "read_layout", lambda: Layout(layout))
    monkeypatch.setattr(rescue, "read_counts", lambda: {waiting: 1} if waiting in ("guarded", "held") else {})
    monkeypatch.setattr("reconcile.cli.rescue.left_out.list_left_out", lambda *_: [])
    monkeypatch.setattr("reconcile.cli.rescue.start.start_bookies", lambda _: ran.append(["bookies start"]))
    code = Exit.UNDECIDABLE if waiting == "unread" else Exit.DONE
    monkeypatch.setattr(rescue, "read_back", lambda *_: {"verdict": "", "exit_code": code})
    rescue.record.find_phase(RescuePhase.COLLECT)["bookies"] = {"bk1": "b1:3181"}
    row = {"bookie": "b1:3181", "may_start": waiting != "a bookie", "reason": "its disks are another's"}
    rescue.record.find_phase(RescuePhase.RESTORE)["starts"] = [row]
    rescue.record.find_phase(RescuePhase.DECIDE)["left_out"] = ["8"] if waiting == "left out" else []
    start(rescue)
    shown = [" ".join(word for word in words if word == words[0] or word == "--enable-replication") for words in ran]
    assert shown == names
    assert any("autorecovery -enable" in line for line in conclude(rescue).left) == is_disabled


@pytest.mark.real
@pytest.mark.parametrize(
    ("node", "ledgers", "code", "names"),
    [
        ("/underreplication", 0, Exit.DONE, ["freeze", "freeze", "stop"]),
        ("/underreplication", 0, Exit.REFUSED, ["freeze", "stop"]),
        ("", 5, Exit.DONE, ["freeze", "freeze", "stop"]),
        ("", 0, Exit.DONE, ["stop"]),
        (None, 0, Exit.DONE, ["stop"]),
    ],
)
def test_a_store_that_is_not_gone_is_frozen_before_any_bookie_is_stopped(
    node: str | None,
    ledgers: int,
    code: Exit,
    names: list[str],
    zookeeper_server: ZooKeeperServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which disables replication. Where it is refused, or the store is gone, bookies are stopped all the same."""
    root = f"/early-{'none' if node is None else len(node)}-{ledgers}-{code}/ledgers"
    uri = f"zk+hierarchical://{zookeeper_server.hosts}{root}"
    if node is not None:
        with open_store(uri, writable=True) as opened:
            opened.store.write([Write(f"{root}{node}", b"")])
    rescue, _ = open_rescue(tmp_path, {}, uri=uri)
    rescue.record.find_phase(RescuePhase.LOOK).update(
        kind="lost", ledgers=ledgers, root="missing" if node is None else "present"
    )
    ran: list[str] = []

    def keep(*words: object, codes: object) -> dict[str, Any]:
        ran.append(str(words[0]))
        if "--confirm" in words:
            return {"exit_code": Exit.DONE}
        return {"exit_code": Exit.REFUSED, "verdict": "?", "next": "", **({} if code else {"hash": "ab"})}

    monkeypatch.setattr(rescue, "run", keep)
    monkeypatch.setattr("reconcile.cli.rescue.stop.stop_bookies", lambda _: ran.append("stop"))
    stop(rescue)
    assert ran == names
    # The commands take what they are given, though no bookie is known by its id yet.
    assert read_values(rescue.incident, tomllib.loads(rescue.incident.read_text()))["store"] == uri
    shown = process("rescue", "status", "--out", tmp_path, "--json").result
    assert shown["replication_disabled"] == (True if len(names) == 3 else None)


@pytest.mark.parametrize("answer", ["export", "saved", "lost"])
def test_copies_that_records_leave_out_are_asked_about_before_the_plan_is_confirmed(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what they are; the thaw is told their number, and asks about those alone that came since."""
    rescue, asked = open_rescue(tmp_path, {"left out": answer})
    copies = [LeftOut(LedgerId(0, 8), "b1:3181", 2, 1), LeftOut(LedgerId(0, 9), "b1:3181", 1, 0)]
    monkeypatch.setattr("reconcile.cli.rescue.left_out.list_left_out", lambda *_: copies)
    saved: list[object] = []
    monkeypatch.setattr("reconcile.cli.rescue.left_out.save_ledgers", lambda _, *words: saved.append(words))
    rescue.record.find_phase(RescuePhase.DECIDE)["older"] = ["9"]
    assert settle_left_out(rescue, tmp_path / "plan") == 2
    assert (asked, saved) == (["left out"], [(["8"], "left-out")] if answer == "export" else [])
    assert settle_left_out(rescue, None) == 2
    copies.append(LeftOut(LedgerId(0, 10), "b2:3181", 1, 0))
    rescue.record.find_phase(RescuePhase.LOOK)["kind"] = "lost"
    ran: list[tuple[object, ...]] = []

    def keep(*words: object, codes: object) -> dict[str, Any]:
        ran.append(words)
        return {"exit_code": Exit.DONE}

    monkeypatch.setattr(rescue, "run", keep)
    thaw(rescue)
    assert asked == ["left out", "left out"]
    assert ran[0][-2:] == ("--accept-left-out", "3")
    assert rescue.record.find_phase(RescuePhase.DECIDE)["left_out"] == ["8", "10"]


@pytest.mark.parametrize(("source", "costs"), [("wire", "the thaw is made"), ("disks", "bookies start")])
def test_what_could_not_be_read_is_asked_about(
    source: str, costs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With who was not asked, and what comes next; no is recommended, ends it, and is asked again."""
    rescue, ran = _conduct(tmp_path, monkeypatch, {"verify": UNREAD})
    asked: list[RescueQuestion] = []
    answers = iter(["no", "yes"])

    def ask(listed: Sequence[RescueQuestion]) -> None:
        asked.extend(listed)
        rescue.record.take_answer(listed[0], next(answers))

    monkeypatch.setattr(rescue, "ask", ask)
    monkeypatch.setattr(rescue, "read_counts", dict)
    with pytest.raises(GuardRefusedError, match="what was read: is not all: 1 unchecked; make the bookies answer"):
        rescue.read_back(source, ["verify"])
    assert rescue.read_back(source, ["verify"])["exit_code"] == Exit.UNDECIDABLE
    assert [(one.id, one.recommended) for one in asked] == [(f"{source} unread", "no")] * 2
    assert {"1 unchecked", "b1:3181 cannot be asked", "b2:3181: no address"} == set(asked[0].known)
    assert asked[0].choices["yes"].startswith(costs)
    # Of what was said to be gone it is known that it cannot be read.
    monkeypatch.setattr(rescue, "list_given_up", lambda: [("b1:3181", None), ("b2:3181", "/disk")])
    rescue.forget(f"{source} unread")
    assert rescue.read_back(source, ["verify"])["exit_code"] == Exit.UNDECIDABLE
    assert (len(asked), len(ran)) == (2, 3)


def test_the_store_is_copied_before_any_bookie_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the copies no bookie that is stopped takes anything away, and a copy that fails stops nothing."""
    server = "[[server]]\nname = 'zk1'\ntransport = 'local'\nfolders = ['/var/lib/zookeeper']\n"
    rescue, _ = open_rescue(tmp_path, {"bookies off": "off"}, text=BOOKIE + server)
    rescue.record.find_phase(RescuePhase.LOOK)["kind"] = "lost"
    done: list[str] = []
    monkeypatch.setattr(
        "reconcile.cli.rescue.open_rescue.copy_server", lambda server, *_, **__: done.append(server.host.name)
    )

    def stop_it(bookie: BookieHost) -> tuple[str, list[Process]]:
        done.append(bookie.name)
        return bookie.name, []

    monkeypatch.setattr("reconcile.cli.rescue.stop.stop_bookie", stop_it)
    monkeypatch.setattr(rescue, "run", lambda *_, **__: {"bookies": []})
    stop(rescue)
    assert done == ["zk1", "bk1"]

    def fail(*_: object, **__: object) -> None:
        raise HostError("zk1: no route to host")

    done.clear()
    monkeypatch.setattr("reconcile.cli.rescue.open_rescue.copy_server", fail)
    with pytest.raises(HostError, match="zk1: no route"):
        stop(rescue)
    assert done == []


def test_a_connection_that_ends_while_an_inventory_comes_lets_nothing_be_collected_again(tmp_path: Path) -> None:
    """The next try brings what the host has kept, whole; what came in part is thrown away."""
    program, cut = tmp_path / "bkmeta", tmp_path / "cut"
    inventory = write_inventory(tmp_path / "inventory", "b1:3181", (5, 7), instance="ours")
    # What real bookies have is collected in tests/real: this one has its inventory ready.
    program.write_text(
        f'#!/bin/sh\necho run >> {tmp_path}/runs\nwhile [ $# -gt 0 ]; do [ "$1" = --out ] && out=$2; shift; done\n'
        f'cp -r {inventory} "$out" && echo \'{{"verdict": "collected"}}\'\n'
    )
    program.chmod(0o755)
    # A connection that lets through the head of what `tar` writes.
    half = tmp_path / "half"
    half.write_text(
        f'#!/bin/sh\ncase "$1" in *"tar -C"*) [ -e {cut} ] && {{ sh -c "$1" | head -c 700; exit 255; }};; esac\n'
    )
    half.write_text(half.read_text() + 'exec sh -c "$1"\n')
    half.chmod(0o755)
    text = BOOKIE.replace("local", "command") + f"command = '{half} {{script}}'\nprogram = {json.dumps(str(program))}\n"
    [bookie] = read_hosts(write_hosts(tmp_path, text)).bookies
    cut.touch()
    ended = collect_bookie(bookie, tmp_path / "inv", None)
    assert (ended.bookie, "tar ended with 255" in ended.verdict) == (None, True), ended
    assert not (tmp_path / "inv" / "bk1").exists()
    cut.unlink()
    done = collect_bookie(bookie, tmp_path / "inv", None)
    assert (done.bookie, (tmp_path / "runs").read_text()) == ("b1:3181", "run\n"), done


def test_an_inventory_that_arrives_otherwise_than_it_was_sent_is_not_taken(tmp_path: Path) -> None:
    """Its files have the hashes of its manifest, or it does not count as collected."""
    program = tmp_path / "bkmeta"
    inventory = write_inventory(tmp_path / "inventory", "b1:3181", (5, 7), instance="ours")
    part = next(path for path in sorted(inventory.rglob("*.parquet")))
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    program.write_text(
        '#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" = --out ] && out=$2; shift; done\n'
        f'cp -r {inventory} "$out" && echo \'{{"verdict": "collected"}}\'\n'
    )
    program.chmod(0o755)
    text = BOOKIE.replace("local", "command") + f"command = 'sh -c {{script}}'\nprogram = {json.dumps(str(program))}\n"
    [bookie] = read_hosts(write_hosts(tmp_path, text)).bookies
    damaged = collect_bookie(bookie, tmp_path / "inv", None)
    assert (damaged.bookie, damaged.is_complete) == (None, False)
    assert not (tmp_path / "inv" / "bk1").exists()


PAGE = Path(__file__).resolve().parents[3] / "docs/operations/rescue.md"


def read_rows(heading: str) -> dict[str, str]:
    """Return the rows of the first table below a heading of the page: what is in backticks first → the rest."""
    below = PAGE.read_text().partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    rows = (line.strip("| ").split(" | ") for line in below.splitlines() if line.startswith("| `"))
    return {name: " | ".join(cells[1:]) for cells in rows for name in re.findall(r"`([^`]+)`", cells[0])}


UNREAD = {
    "verdict": "1 unchecked",
    "exit_code": Exit.UNDECIDABLE,
    "coverage": {"without_disks": {"b1:3181": 3}, "unresolved": {"b2:3181": "no address"}, "incomplete": {}},
}
"""What verify says where a ledger could not be read."""


def list_questions() -> Iterator[RescueQuestion]:
    """Yield one of each kind, of a rescue that has everything to ask."""
    folder = FetchedBookie("bk1", "b1:3181", False, "half", (Gap("/disk2", True),), ("/disk1", "/disk2"))
    session = {"session": "0x1", "ledgers": 1, "first_at": "a", "last_at": "b", "on_bookies": 1}
    prior = [{"ensemble": 3, "write": 2, "weight": 0.9}]
    yield questions.ask_what_happened(5, {"verdict": "v", "level": "critical"}, {}, can_freeze=True)
    yield questions.ask_whether_lost("v", ())
    yield questions.ask_whether_lost("v", ("bk1: /etc/bk.conf names the root /other",))
    yield questions.ask_to_freeze(5)
    yield questions.ask_to_stop(3, 3)
    yield questions.ask_for_host("bk1", HostError("bk1: no route"))
    yield questions.ask_for_the_silent(["bk1"])
    yield questions.ask_for_disks(folder)
    yield questions.ask_for_disks(FetchedBookie("bk1", None, is_complete=False, verdict="none", is_unread=True))
    yield questions.ask_for_folder(folder, folder.gaps[0])
    yield questions.ask_for_id("bk1", ["b1:3181"], is_only=True)
    yield questions.ask_for_session(session)
    yield questions.ask_for_passwords(1, 1, "passwords.txt")
    quorums = questions.ask_for_quorums({"reasons": {"source_incomplete": 1}, "doubts": {}, "prior": prior})
    assert quorums is not None
    yield quorums
    yield questions.ask_for_older_ledgers(1)
    yield questions.ask_for_unsaved(OLDER, ["bk1: no cookie"])
    yield questions.ask_for_unsaved(LEFT_OUT, ["bk1: no cookie"])
    yield questions.ask_for_left_out(["ledger 11 on b1:3181: entry 1"], 1)
    yield questions.ask_for_adoption(1)
    yield questions.ask_for_rights(5, 2, {"world:anyone:r": 3}, "secured")
    yield questions.ask_to_go_on("wire read", "v")
    yield questions.ask_to_go_on_unread("wire unread", UNREAD, is_last=True)
    yield questions.ask_to_go_on_unread("disks unread", UNREAD, is_last=False)


def test_the_page_has_every_question_with_its_answers() -> None:
    """Each has what is known or says it in its text, what each answer costs, and a recommendation among them."""
    rows, named = read_rows("## Questions"), set()
    general = {"NAME": "bk1", "DIR": "/disk2", "0x…": "0x1"}
    kinds = {re.sub("|".join(general), lambda found: general[found[0]], name): name for name in rows}
    for question in list_questions():
        row = kinds[question.id]
        named.add(row)
        words = set(re.findall(r"`([^`]+)`", rows[row]))
        fixed = [choice for choice in question.choices if not re.fullmatch(r"\d/\d/\d|b1:3181", choice)]
        said_above = row.startswith("folder ")
        assert said_above or set(fixed) <= words, (row, fixed)
        assert all(question.choices.values())
        assert question.recommended is None or question.recommended in question.choices or row == "rights"
        assert question.text.rstrip().endswith("?")
        assert set(question.to_json()) == {"id", "text", "known", "choices", "recommended"}
    # These are asked by the steps themselves; `disks read` is the same question as `wire read`.
    assert named | {"confirm", "started NAME", "disks read"} == set(rows)


def test_the_page_has_every_key_of_hosts_and_every_step() -> None:
    """And no other: what is written there is the contract."""
    page = PAGE.read_text()
    steps = [f"{number} {phase.value}" for number, phase in enumerate(RescuePhase)]
    assert re.findall(r"^\| (\d \w+) \|", page, re.MULTILINE) == steps
    keys = set(read_rows("## hosts.toml"))
    example = tomllib.loads(page.partition("## hosts.toml")[2].partition("```toml")[2].partition("```")[0])
    shown = {key for bookie in example["bookie"] for key in bookie}
    assert keys | shown == set(BookieTable.__struct_fields__)
    assert {key for server in example["server"] for key in server} == {*ServerTable.__struct_fields__} - {"command"}
    assert all(transport in read_rows("## hosts.toml")["transport"] for transport in Transport)


@pytest.mark.parametrize("is_calm", [True, False])
def test_a_copied_file_has_its_hash(is_calm: bool, tmp_path: Path) -> None:
    """A file that is another one each time that it is copied ends it: nothing is taken for a copy that is none."""
    data, away = tmp_path / "data", tmp_path / "server"
    data.mkdir()
    (data / "snapshot.5").write_bytes(b"all that is")
    # A host on which the file changes as soon as it was read.
    changes = "" if is_calm else f'case "$1" in *"tar -cf"*) echo more >> {data}/snapshot.5;; esac\n'
    away.write_text(f'#!/bin/sh\nsh -c "$1"; code=$?\n{changes}exit $code\n')
    away.chmod(0o755)
    server = f"[[server]]\nname = 'zk1'\ntransport = 'command'\ncommand = '{away} {{script}}'\nfolders = ['{data}']\n"
    [host] = read_hosts(write_hosts(tmp_path, BOOKIE + server)).servers
    if is_calm:
        copy_server(host, tmp_path / "servers")
        (data / "snapshot.6").write_bytes(b"later")
        copy_server(host, tmp_path / "servers")
        assert [path.name for path in sorted((tmp_path / "servers" / "zk1" / "0").iterdir())] == ["snapshot.5"]
        copy_server(host, tmp_path / "servers", again=True)
        assert (tmp_path / "servers" / "zk1" / "0" / "snapshot.6").read_bytes() == b"later"
        return
    with pytest.raises(HostError, match=r"zk1: .*snapshot\.5 is another file each time that it is copied"):
        copy_server(host, tmp_path / "servers")
    assert not (tmp_path / "servers" / "zk1").exists()


def test_a_bookie_that_answers_though_none_is_seen_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of hosts may lack it: it deletes, whatever was stopped."""
    rescue, _ = open_rescue(tmp_path, {"bookies off": "off"})
    monkeypatch.setattr("reconcile.cli.rescue.stop.stop_bookie", lambda bookie: (bookie.name, []))
    monkeypatch.setattr(rescue, "run", lambda *_, **__: {"bookies": [{"id": "b9:3181", "answers": True}]})
    with pytest.raises(GuardRefusedError, match="b9:3181 still answers; name every bookie in the file of hosts"):
        stop_bookies(rescue)
