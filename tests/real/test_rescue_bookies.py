"""`rescue` on real bookies, each a process of its own: a store lost or put back, deletes of one session, a topic.

Hosts are reached over ssh on loopback, by what stands in for a container's shell, and as this machine.
"""

import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
from kazoo.client import KazooClient

from reconcile.plan.views.open_points import count_unopened
from reconcile.plan.views.topics import list_topics_back
from recovery.codecs.managed_ledger import encode_cursor
from recovery.dataset import open_dataset
from scripts.walkthrough import wipe
from tests.reconcile.jobs.undelete.test_topics import make_schema
from tests.reconcile.test_references_pulsar import topic as make_topic
from tests.support import jars
from tests.support.acid import read_ledger
from tests.support.bookie_processes import BookieProcess, running
from tests.support.cases import case_dir, truth
from tests.support.cluster import JVM, Bookie, Cluster, ClusterError, bookies_of, encoded
from tests.support.command import PROGRAM, Done, process, started
from tests.support.etcd_server import EtcdServer
from tests.support.waiting import free_port, until

pytestmark = [pytest.mark.real, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

KILLS: Final = int(os.environ.get("BKMETA_SOAK_RESCUE", "0"))
BASE: Final = int(os.environ.get("BKMETA_SOAK_SEED", "0"))
FAULTS: Final = 12
"""Faults of one run, at most: then it is left alone."""
CASE: Final = "c01-clean-sorted"
ROOT: Final = "/ledgers"
ON_ETCD: Final = ("-Dbookkeeper.metadata.bookie.drivers=Etcd$BookieDriver",)
"""Where BookKeeper's own main program finds a driver of etcd."""
KNOWN: Final[Mapping[str, Any]] = {"digest": "CRC32C", "password": encoded(b"pw"), "custom": {}}
"""Of the ledgers that a test writes."""
SSHD: Final = """Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/client.pub
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
"""
SSH: Final = """Host *.example
  HostName 127.0.0.1
  Port {port}
  IdentityFile {folder}/client
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known
  StrictHostKeyChecking accept-new
"""


class SshServer:
    """A real sshd on loopback; `ssh` of PATH finds every host of .example there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        if self._running is not None:
            return
        server = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
        assert server is not None
        with (self._folder / "log").open("wb") as log:
            command = [server, "-D", "-e", "-f", str(self._folder / "sshd_config")]
            self._running = subprocess.Popen(command, stdout=log, stderr=log)
        until(lambda: b"listening" in (self._folder / "log").read_bytes(), "sshd listens")

    def cut(self, *, stays_down: bool) -> None:
        """End every connection that is open now; what runs behind it goes on, as on a host that lost its network."""
        assert self._running is not None
        for child in psutil.Process(self._running.pid).children(recursive=True):
            # One may end by itself meanwhile.
            with suppress(psutil.NoSuchProcess):
                if "sshd" in child.name():
                    child.kill()
        if stays_down:
            self.stop()

    def stop(self) -> None:
        """End it."""
        if self._running is not None:
            self._running.terminate()
            self._running.wait()
            self._running = None


@contextmanager
def ssh_server(folder: Path) -> Iterator[SshServer]:
    """Give a server that runs."""
    folder.mkdir()
    port = free_port()
    for name in ("host", "client"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "sshd_config").write_text(SSHD.format(port=port, folder=folder))
    (folder / "ssh_config").write_text(SSH.format(port=port, folder=folder))
    (folder / "bin").mkdir()
    (folder / "bin" / "ssh").write_text(
        f'#!/bin/sh\necho "$@" >> {folder}/reached\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n'
    )
    (folder / "bin" / "ssh").chmod(0o755)
    Path("/run/sshd").mkdir(exist_ok=True)
    server = SshServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@dataclass
class Site:
    """A cluster that runs, with the Java client beside ZooKeeper."""

    work: Path
    cluster: Cluster
    bookies: list[BookieProcess]
    uri: str
    incident: str = 'passwords = "passwords.txt"'
    has_files: bool = True
    with_id: int | None = None

    @property
    def out(self) -> Path:
        """The incident's folder."""
        return self.work / "incident"

    def write_hosts(self, *, transport: str, command: str = "") -> Path:
        """Write the file of hosts."""
        lines = [f"[incident]\n{self.incident}\n"]
        if (files := self.work / "home" / "zookeeper").exists() and self.has_files:
            lines.append(f'[[server]]\nname = "zk1"\ntransport = "local"\nfolders = [{json.dumps(str(files))}]\n')
        for bookie in self.bookies:
            options = shlex.join((*JVM, *ON_ETCD))
            start = f"cd {self.work / 'home'} && setsid nohup java {options} -cp '{jars.class_path()}'"
            start += f" org.apache.bookkeeper.server.Main --conf {bookie.conf} > {bookie.conf}.log 2>&1 &"
            lines.append(
                f'[[bookie]]\nname = "host{bookie.bookie.n}"\ntransport = "{transport}"\n'
                + (f'host = "bk{bookie.bookie.n}.example"\n' if transport == "ssh" else "")
                + (f"command = {json.dumps(command)}\n" if transport == "command" else "")
                + f"conf = {json.dumps(str(bookie.conf))}\nstart = {json.dumps(start)}\n"
                + (f"id = {json.dumps(bookie.bookie.id)}\n" if bookie.bookie.n == self.with_id else "")
                # One of the hosts has no program of its own.
                + (
                    'copy = "bkmeta"\n'
                    if bookie.bookie.n == 1
                    else f"program = {json.dumps(str(self.work / 'bkmeta'))}\n"
                )
            )
        path = self.work / "hosts.toml"
        path.write_text("".join(lines))
        return path

    def word(self, *, transport: str = "local", hosts: Path | None = None) -> list[object]:
        """Return the options of the command."""
        hosts = self.write_hosts(transport=transport) if hosts is None else hosts
        return ["--metadata", self.uri, "--hosts", hosts, "--out", self.out]

    def rescue(
        self, *, transport: str = "local", answers: dict[str, str] | None = None, topic: str | None = None
    ) -> Done:
        """Run it to its end, or to where it waits."""
        (self.work / "answers.json").write_text(json.dumps(answers or {}))
        words = [*self.word(transport=transport), "--answers", self.work / "answers.json"]
        words += [] if topic is None else ["--topic", topic]
        return process("rescue", *words, "--json", patience_s=600)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Disks and ZooKeeper data that BookKeeper wrote, started again."""
    was, case = truth(CASE), case_dir(CASE)
    home = tmp_path / "home"
    shutil.copytree(case / "zookeeper", home / "zookeeper")
    shutil.copytree(case / "bookies", home / "bookies")
    # Folders of the case are named from there.
    monkeypatch.chdir(home)
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(home))
        cluster.start_zookeeper("zookeeper", ROOT)
        stack.callback(end_bookies, tmp_path)
        uri = f"zk+hierarchical://{cluster.zookeeper}{ROOT}"
        processes = [
            BookieProcess(bookie, home, tmp_path / f"bk{bookie.n}.conf", uri, {}) for bookie in bookies_of(was)
        ]
        stack.enter_context(running(processes))
        until(lambda: len(cluster.nodes(f"{ROOT}/available")) == len(processes) + 2, "bookies run")
        (tmp_path / "passwords.txt").touch(0o600)
        (tmp_path / "passwords.txt").write_text("".join(f"{password}\n" for password in was["passwords"]))
        # Of another host's shell nobody knows the folder.
        (tmp_path / "bkmeta").write_text(f'#!/bin/sh\ncd {home} && exec {PROGRAM} "$@"\n')
        (tmp_path / "bkmeta").chmod(0o755)
        yield Site(tmp_path, cluster, processes, uri)


def end_bookies(work: Path) -> None:
    """End every Java that has a configuration of ours in its command line: those that rescue started, too."""
    for item in psutil.process_iter(["cmdline"]):
        if any(str(work) in word and word.endswith(".conf") for word in item.info["cmdline"] or ()):
            os.kill(item.pid, signal.SIGKILL)


def read_all(site: Site) -> tuple[int, int]:
    """Read every closed ledger by the Java client; return how many entries are as they were written, of how many."""
    good = total = 0
    for row in truth(CASE)["ledgers"]:
        if row["state"] == "CLOSED":
            entries = read_ledger(site.cluster, row, recovery=False)["entries"]
            good += sum(entry in row["entries"] for entry in entries)
            total += len(row["entries"])
    return good, total


def test_a_wiped_store_comes_back_by_one_command(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over ssh; it waits where it must be told, refuses another hash, and goes on where it was killed."""
    monkeypatch.setenv("PATH", f"{site.work / 'ssh' / 'bin'}:{os.environ['PATH']}")
    left = set(Path("/tmp").glob("bkmeta-rescue-*"))
    with ssh_server(site.work / "ssh"):
        wipe(site.cluster.zookeeper, ROOT)
        with started("rescue", *site.word(transport="ssh"), "--json") as running:
            until((site.out / "inv" / "host1").exists, "a bookie is collected")
            running.kill()
            running.communicate()
        asked = site.rescue(transport="ssh")
        [session] = asked.result["questions"]
        assert (asked.code, session["recommended"], "0x" in session["text"]) == (4, "later", True), asked.err
        waiting = site.rescue(transport="ssh", answers={session["id"]: "mistake"})
        assert (waiting.code, [one["id"] for one in waiting.result["questions"]]) == (4, ["confirm"]), waiting.err
        digest = json.loads((site.out / "rescue.json").read_text())["phases"]["decide"]["hash"]
        status = process("rescue", "status", "--out", site.out, "--json").result
        assert [phase for phase, at in status["phases"].items() if at is None] == ["review", "restore", "start"]
        wrong = site.rescue(transport="ssh", answers={"confirm": "0" * 8})
        assert (wrong.code, digest in wrong.result["verdict"]) == (5, True), wrong.err
        done = site.rescue(transport="ssh", answers={"confirm": digest[:8]})
        assert (done.code, done.result["kind"], done.result["may_not_start"]) == (0, "lost", {}), done.out + done.err
        good, total = read_all(site)
        assert (good, total > 0) == (total, True)
        reached = (site.work / "ssh" / "reached").read_text()
        assert all(f"bk{n}.example" in reached for n in range(len(site.bookies)))
        assert set(Path("/tmp").glob("bkmeta-rescue-*")) <= left
        # Each command stands in the record, and none is run again.
        ran = json.loads((site.out / "rescue.json").read_text())["commands"]
        assert site.rescue(transport="ssh").code == 0
        assert json.loads((site.out / "rescue.json").read_text())["commands"] == ran
        names = [row["command"].split()[1] for row in ran]
        assert [name for name in names if name in ("apply", "thaw")] == ["apply", "thaw", "thaw"]


@pytest.mark.skipif(not KILLS, reason="faults at random, some minutes each: scripts/soak rescue")
@pytest.mark.parametrize("seed", range(max(KILLS, 1)))
def test_whatever_fails_it_comes_to_the_same_end(site: Site, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rescue is killed, connections are cut, hosts are not reached, again and again, whatever it was doing.

    The same command comes to the end: every entry is read, and every record is what the single commands give of copies
    of the disks.
    """
    rng, answers = random.Random(BASE + seed), {"confirm": "any"}
    monkeypatch.setenv("PATH", f"{site.work / 'ssh' / 'bin'}:{os.environ['PATH']}")
    wipe(site.cluster.zookeeper, ROOT)
    faults: dict[str, int] = dict.fromkeys(("rescue", "connection", "host"), 0)
    with ssh_server(site.work / "ssh") as server:
        for number in range(100):
            (site.work / "answers.json").write_text(json.dumps(answers))
            words = [*site.word(transport="ssh"), "--answers", site.work / "answers.json", "--json"]
            fault = rng.choice(sorted(faults)) if number < FAULTS else ""
            with started("rescue", *words) as running:
                try:
                    out, err = running.communicate(timeout=rng.uniform(0.5, 30.0) if fault else 600)
                except subprocess.TimeoutExpired:
                    faults[fault] += 1
                    if fault == "rescue":
                        running.kill()
                    else:
                        server.cut(stays_down=fault == "host")
                    out, err = running.communicate(timeout=600)
                    server.start()
            if running.returncode == -signal.SIGKILL:
                continue
            result = json.loads(out.splitlines()[-1])
            # 1: a host was not reached; it is named, and the same command goes on.
            assert running.returncode in (0, 1, 4, 5), out + err
            assert running.returncode not in (1, 5) or fault in ("connection", "host"), out + err
            # That a host is gone for good nobody says here: the same is asked again.
            asked = [one["id"] for one in result.get("questions", ())]
            answers |= {name: "mistake" for name in asked if name.startswith("session ")}
            if running.returncode == 0:
                break
    print(f"seed {BASE + seed}: {faults}")  # noqa: T201 - a soak shows its figures
    good, total = read_all(site)
    assert good == total
    # Of the disks as the case has them: what the bookies had when the store was wiped. LAYOUT is wiped, too.
    logs = f"zkfiles://{site.out / 'servers'}?layout=hierarchical"
    copies = single_commands(site, case_dir(CASE) / "bookies", "--snapshot", logs)
    records = site.cluster.ledgers()
    assert len(copies) > total // 100
    with zookeeper_client(site) as client:
        assert {key: client.get(f"{ROOT}{key}")[0] for key in copies} == copies
    assert {row["path"].removeprefix(ROOT) for row in records.values()} >= copies.keys()


def single_commands(site: Site, disks: Path, *evidence: object) -> dict[str, bytes]:
    """Return the records that collect, recover and plan edit give, run one by one: key → bytes; without holds.

    Args:
        site: of the cluster.
        disks: the bookies' folders when the store was wiped; they are copied.
        evidence: options of recover: snapshots, and what is lost.
    """
    home = site.work / "single"
    shutil.copytree(disks, home / "bookies")
    for bookie in site.bookies:
        if not (disks / f"b{bookie.bookie.n}").exists():
            continue
        conf = home / bookie.conf.name
        conf.write_text(bookie.conf.read_text())
        words = ["--bookie-conf", str(conf), "--passwords", str(site.work / "passwords.txt"), "--json"]
        out = str(home / "inv" / conf.stem)
        done = subprocess.run([PROGRAM, "collect", *words, "--out", out], cwd=home, capture_output=True, check=False)
        assert done.returncode in (0, 3, 4), done.stderr
    made = process(
        *("recover", "--inventory-dir", home / "inv", "--layout", "hierarchical", "--json"),
        *("--passwords", site.work / "passwords.txt", *evidence, "--out", home / "plan"),
        patience_s=600,
    )
    assert made.code in (0, 3), made.err
    plan = home / "plan"
    if words := [word for row in made.result["deletions"] for word in ("--restore-deleted-by", row["session"])]:
        edited = process("plan", "edit", plan, *words, "--out", home / "edited", "--json")
        assert edited.code == 0, edited.err
        plan = home / "edited"
    actions = open_dataset(plan, "plan").read("actions", columns=["kind", "op", "key", "value"]).to_pylist()
    return {row["key"]: row["value"] for row in actions if row["kind"] == "ledger" and row["op"] == "create"}


def test_a_wiped_store_with_a_bookie_and_a_folder_gone(site: Site) -> None:
    """With a snapshot of before, one command and five answers give the records that the single commands give.

    Every entry is read that was written to bookies which are left, also of ledgers younger than the snapshot.
    """
    site.has_files, yesterday, home = False, site.work / "yesterday", site.work / "home"
    captured = process("capture", "--metadata", site.uri, "--out", yesterday)
    assert captured.code == 0, captured.err
    site.incident += f"\nsnapshots = [{json.dumps(str(yesterday))}]"
    with (site.work / "passwords.txt").open("a") as file:
        file.write("pw\n")
    members = [bookie.bookie.id for bookie in site.bookies[:2]]
    younger = []
    for _ in range(3):
        younger.append(site.cluster("create", E=2, W=2, A=2, members=members, **KNOWN))
        site.cluster("add", ledger=younger[-1], sizes=[60] * 7, ids=None)
        site.cluster("close", ledger=younger[-1])
    wipe(site.cluster.zookeeper, ROOT)
    part, gone = site.bookies[2], site.bookies[3]
    for bookie in (part, gone):
        bookie.kill()
    shutil.rmtree(home / "bookies" / "b3")
    (home / part.bookie.ledgers[0]).rename(site.work / "away")
    site.with_id = 3
    first = site.rescue()
    assert [one["id"] for one in first.result["questions"]] == ["bookies off"], first.err
    shutil.copytree(home / "bookies", site.work / "disks")
    asked = site.rescue(answers={"bookies off": "off"})
    names = [one["id"] for one in asked.result["questions"]]
    [folder] = [name for name in names if name.startswith("folder ") and name.endswith(" of host2")]
    assert set(names) == {folder, "disks of host3"}, asked.err
    answers = {"disks of host3": "gone", folder: "gone", "confirm": "any", "wire read": "yes"}
    done = site.rescue(answers=answers)
    assert done.code in (0, 3), done.out + done.err
    record = json.loads((site.out / "rescue.json").read_text())
    assert len(record["answers"]) <= 5, record["answers"]
    lost = tomllib.loads((site.out / "incident.toml").read_text())["lost"]
    assert lost == [gone.bookie.id, f"{part.bookie.id}={folder.split()[1]}"]
    words = [word for text in lost for word in ("--lost", text.replace(str(home), str(site.work / "single")))]
    copies = single_commands(site, site.work / "disks", "--snapshot", f"catalog://{yesterday}", *words)
    assert len(copies) > len(truth(CASE)["ledgers"]) // 2
    with zookeeper_client(site) as client:
        assert {key: client.get(f"{ROOT}{key}")[0] for key in copies} == copies
    for ledger in younger:
        assert count_read(site.cluster, ledger) == 7
    good, total = read_all(site)
    assert good > total // 2


def test_a_bookie_that_is_gone_is_asked_about(site: Site) -> None:
    """Its disks are away, and may come back: nothing is given up, and everything that the others have is read."""
    wipe(site.cluster.zookeeper, ROOT)
    gone = site.bookies[3]
    gone.kill()
    shutil.rmtree(site.work / "home" / "bookies" / "b3")
    unseen = site.rescue()
    assert [one["id"] for one in unseen.result["questions"]] == ["bookies off"], unseen.err
    waiting = site.rescue(answers={"bookies off": "off"})
    assert [one["id"] for one in waiting.result["questions"]] == ["disks of host3"], waiting.err
    again = site.rescue(answers={"disks of host3": "back"})
    assert [one["id"] for one in again.result["questions"]] == ["id of host3"], again.err
    answers = {"disks of host3": "back", "id of host3": gone.bookie.id, "confirm": "any"}
    [session] = site.rescue(answers=answers).result["questions"]
    done = site.rescue(answers={**answers, session["id"]: "mistake"})
    assert done.code == 3, done.out + done.err
    # What the others have is read, whatever only that one had; it may come back, and is expected.
    good, total = read_all(site)
    assert good > total * 0.9
    assert gone.bookie.id in (site.out / "incident.toml").read_text()


def test_deletes_of_one_session_are_taken_back(site: Site) -> None:
    """Nothing is stopped: frozen, undeleted from the servers' own files, thawed; each record is back byte for byte."""
    rows = [row for row in truth(CASE)["ledgers"] if row["state"] == "CLOSED" and row["entries"]][:6]
    client = KazooClient(site.cluster.zookeeper)
    client.start()
    before = {row["path"]: client.get(row["path"])[0] for row in rows}
    for path in before:
        client.delete(path)
    client.stop()
    client.close()
    waiting = site.rescue(answers={"kind": "deletes", "freeze": "freeze"})
    assert waiting.code == 4, waiting.out + waiting.err
    [question] = waiting.result["questions"]
    assert (waiting.code, "deleted 6 ledgers" in question["text"]) == (4, True), waiting.err
    done = site.rescue(answers={"kind": "deletes", "freeze": "freeze", question["id"]: "mistake", "confirm": "any"})
    assert done.code == 0, done.out + done.err
    assert done.result["kind"] == "deletes"
    client = KazooClient(site.cluster.zookeeper)
    client.start()
    assert {path: client.get(path)[0] for path in before} == before
    client.stop()
    client.close()
    assert all(psutil.Process(bookie.pid).status() != psutil.STATUS_STOPPED for bookie in site.bookies)
    good, total = read_all(site)
    assert good == total


def test_a_topic_comes_back_with_its_ledgers(site: Site) -> None:
    """Of a store that is whole: its record, subscription, schema and policies, and only its ledgers, byte for byte."""
    rows = [row for row in truth(CASE)["ledgers"] if row["state"] == "CLOSED" and row["entries"]][:4]
    ledgers = [row["ledger"] for row in rows]
    with zookeeper_client(site) as client:
        nodes = {
            "/admin/policies/shop": b'{"adminRoles":["ann"]}',
            "/admin/policies/shop/orders": b'{"replication_clusters":["c1"]}',
            "/managed-ledgers/shop/orders/persistent/new": make_topic(*ledgers[:3]),
            "/managed-ledgers/shop/orders/persistent/new/reader": encode_cursor(ledgers[0]),
            "/schemas/shop/orders/new": make_schema(ledgers[3]),
        }
        for path, value in nodes.items():
            client.ensure_path(path)
            client.set(path, value)
        before = nodes | {row["path"]: client.get(row["path"])[0] for row in rows}
        other = next(row for row in truth(CASE)["ledgers"] if row["state"] == "CLOSED" and row["ledger"] not in ledgers)
        for path in sorted((*before, other["path"]), key=len, reverse=True):
            client.delete(path)
    unlike = site.rescue(topic="persistent://shop/orders/old", answers={"freeze": "freeze"})
    assert (unlike.code, "no history has" in unlike.result["verdict"]) == (5, True), unlike.out
    assert "end the freeze: BKMETA_ZK_AUTH_FILE=" in unlike.result["verdict"]
    done = site.rescue(topic="persistent://shop/orders/new", answers={"confirm": "any"})
    assert done.code == 0, done.out + done.err
    with zookeeper_client(site) as client:
        assert {path: client.get(path)[0] for path in before} == before
        assert client.exists(other["path"]) is None
    [plan] = site.out.glob("plan-*")
    back = list_topics_back(open_dataset(plan, "plan"), 10)
    [topic] = back.topics
    assert (topic.url, topic.ledgers, topic.subscriptions) == ("persistent://shop/orders/new", 3, ["reader"])
    assert topic.entries == sum(len(row["entries"]) for row in rows[:3])
    assert "persistent://shop/orders/new" in (plan / "report.html").read_text()


def test_a_store_that_was_put_back_gave_ids_again(site: Site) -> None:
    """What only disks have of the older ledgers is saved before a bookie starts; later ledgers come back, too."""
    # Of a store that was put back no log says what came after.
    site.has_files = False
    known = {"digest": "CRC32C", "password": encoded(b"pw"), "custom": {}}
    with (site.work / "passwords.txt").open("a") as file:
        file.write("pw\n")
    ids = [bookie.bookie.id for bookie in site.bookies]

    def write(members: list[str], entries: int, **named: int) -> int:
        ledger: int = site.cluster("create", E=2, W=2, A=2, members=members, **named, **known)
        site.cluster("add", ledger=ledger, sizes=[60] * entries, ids=list(range(entries)) if named else None)
        site.cluster("close", ledger=ledger)
        return ledger

    reused, later = [write(ids[:2], 9), write(ids[:2], 8)], write(ids[2:4], 7)
    rows = site.cluster.ledgers()
    site.cluster("zk_wipe", paths=[rows[ledger]["path"] for ledger in (*reused, later)])
    for ledger in reused:
        write(ids[2:4], 3, id=ledger)
    answers = {"kind": "lost", "older ledgers": "export", "quorums": "unknown", "confirm": "any"}
    waiting = site.rescue(answers={"kind": "lost"})
    asked = {one["id"]: one for one in waiting.result["questions"]}
    assert asked["older ledgers"]["text"].startswith("2 ids of two ledgers"), waiting.err
    done = site.rescue(answers=answers)
    assert done.code == 0, done.out + done.err
    for host in ("host0", "host1"):
        saved = [path for path in (site.out / "older" / host).rglob("*") if path.is_file()]
        assert {ledger for ledger in reused if any(f"{ledger}" in path.name for path in saved)} == set(reused)
    record = json.loads((site.out / "rescue.json").read_text())
    assert record["phases"]["decide"]["ended"] < record["phases"]["start"]["ended"]
    for ledger, entries in ((reused[0], 3), (reused[1], 3), (later, 7)):
        found = site.cluster("read", ledger=ledger, recovery=False, digest="CRC32C", password=known["password"])
        assert len(found["entries"]) == entries, (ledger, found)


@contextmanager
def zookeeper_client(site: Site) -> Iterator[KazooClient]:
    """Give a client of its own session."""
    client = KazooClient(site.cluster.zookeeper)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def can_write(cluster: Cluster, known: Mapping[str, Any]) -> bool:
    """Say whether the client finds three bookies."""
    try:
        cluster("close", ledger=cluster("create", E=3, W=3, A=3, **known))
    except ClusterError:
        return False
    return True


@pytest.fixture
def site_on_etcd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Site, EtcdServer]]:
    """Three bookies on etcd, that the Java client has found."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    with ExitStack() as stack:
        server = EtcdServer(tmp_path)
        stack.callback(server.kill)
        server.start()
        uri = f"etcd://{server.hosts}/cluster/c1"
        cluster = stack.enter_context(Cluster(home))
        cluster("etcd", uri=uri)
        stack.callback(end_bookies, tmp_path)
        processes = []
        for n in range(3):
            port = free_port()
            bookie = Bookie(n, f"127.0.0.1:{port}", "db", [f"b{n}/journal"], [f"b{n}/ledgers"], port=port)
            processes.append(BookieProcess(bookie, home, tmp_path / f"bk{n}.conf", uri, {}, options=ON_ETCD))
        stack.enter_context(running(processes))
        until(lambda: can_write(cluster, KNOWN), "the client knows all bookies")
        (tmp_path / "passwords.txt").touch(0o600)
        (tmp_path / "bkmeta").write_text(f'#!/bin/sh\ncd {home} && exec {PROGRAM} "$@"\n')
        (tmp_path / "bkmeta").chmod(0o755)
        yield Site(tmp_path, cluster, processes, uri), server


def write_ledger(cluster: Cluster, quorum: int = 3) -> int:
    """Write a closed ledger of twelve entries."""
    ledger: int = cluster("create", E=3, W=quorum, A=2, **KNOWN)
    cluster("add", ledger=ledger, sizes=[50] * 12, ids=None)
    cluster("close", ledger=ledger)
    return ledger


def count_read(cluster: Cluster, ledger: int) -> int:
    """Return how many entries the Java client reads of a ledger."""
    found = cluster("read", ledger=ledger, recovery=False, digest="CRC32C", password=KNOWN["password"])
    return len(found["entries"])


def test_deletes_on_etcd_are_taken_back_with_the_bookies_stopped(site_on_etcd: tuple[Site, EtcdServer]) -> None:
    """Nothing of etcd's can be frozen: bookies are stopped, and started again when all is back; it asks before."""
    site, _ = site_on_etcd
    ledgers = [write_ledger(site.cluster) for _ in range(4)]
    for ledger in ledgers[1:]:
        site.cluster("delete", ledger=ledger)
    asked = site.rescue(answers={"kind": "deletes"})
    [question] = asked.result["questions"]
    assert (asked.code, question["id"], question["recommended"]) == (4, "stop", "stop"), asked.err
    assert all(psutil.Process(bookie.pid).status() != psutil.STATUS_STOPPED for bookie in site.bookies)
    waiting = site.rescue(answers={"stop": "stop"})
    [session] = waiting.result["questions"]
    assert "deleted 3 ledgers" in session["text"], waiting.err
    assert all(psutil.Process(bookie.pid).status() == psutil.STATUS_STOPPED for bookie in site.bookies)
    done = site.rescue(answers={session["id"]: "mistake", "confirm": "any"})
    assert (done.code, done.result["kind"]) == (0, "deletes"), done.out + done.err
    assert [count_read(site.cluster, ledger) for ledger in ledgers] == [12] * 4
    record = json.loads((site.out / "rescue.json").read_text())
    assert sorted(record["phases"]["start"]["started"].values()) == sorted(b.bookie.id for b in site.bookies)
    [apply] = [row["command"] for row in record["commands"] if row["command"].startswith("bkmeta apply")]
    assert "--accept-unfrozen" not in apply


def test_etcd_is_gone_and_yesterdays_snapshot_is_there(site_on_etcd: tuple[Site, EtcdServer]) -> None:
    """Nothing can be frozen: bookies stay stopped until all is written; what came after the snapshot is inferred.

    A password that was forgotten is asked for, and the plan made again with it.
    """
    (site, server), snapshot = site_on_etcd, site_on_etcd[0].work / "yesterday.db"
    written = []
    for number in range(8):
        if number == 4:
            server.etcdctl("snapshot", "save", str(snapshot))
        written.append(write_ledger(site.cluster, quorum=3 if number % 2 else 2))
    server.kill()
    shutil.rmtree(server.data)
    server.start()
    site.incident = f'passwords = "passwords.txt"\nsnapshots = [{json.dumps(str(snapshot))}]'
    answers = {"confirm": "any", "quorums": "unknown"}
    waiting = site.rescue(answers=answers)
    [question] = waiting.result["questions"]
    assert question["text"].startswith("4 ledgers open with none of the known passwords"), waiting.err
    assert any("1 password" in line for line in question["known"])
    (site.work / "passwords.txt").write_text("pw\n")
    done = site.rescue(answers={**answers, "passwords": "added"})
    assert done.code == 0, done.out + done.err
    record = json.loads((site.out / "rescue.json").read_text())
    assert count_unopened(open_dataset(Path(record["phases"]["decide"]["plan"]), "plan")).ledgers == 0
    assert [count_read(site.cluster, ledger) for ledger in written] == [12] * 8
    assert "freeze" not in [row["command"].split()[1] for row in record["commands"]]
