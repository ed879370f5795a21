"""Clusters that `rescue` is tried on: bookies that are processes, hosts that a real sshd reaches and that fail."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, chdir, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
from kazoo.client import KazooClient

from backends.registry import open_store
from reconcile.cli.output import Output
from reconcile.cli.rescue.own_commands import Ran
from reconcile.write.guards import list_registered
from recovery.dataset import open_dataset
from tests.support import jars
from tests.support.acid import read_ledger
from tests.support.bookie_processes import BookieProcess, running
from tests.support.cases import case_dir, truth
from tests.support.cluster import JVM, Bookie, Cluster, ClusterError, bookies_of, encoded
from tests.support.command import PROGRAM, Done, call, process
from tests.support.etcd_server import EtcdServer
from tests.support.waiting import free_port, until

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
CLIENT: Final = """#!/bin/sh
echo "$@" >> {folder}/reached
for word in "$@"; do
  [ ! -e "{folder}/down/$word" ] || {{ echo "ssh: connect to host $word port 22: No route to host" >&2; exit 255; }}
done
exec {ssh} -F {folder}/ssh_config "$@"
"""


class SshServer:
    """A real sshd on loopback; `ssh` of PATH finds every host of .example there, unless that is down."""

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

    def cut(self) -> int:
        """End every connection that is open now, and return how many; what runs behind them goes on."""
        assert self._running is not None
        cut = 0
        for child in psutil.Process(self._running.pid).children(recursive=True):
            # One may end by itself meanwhile.
            with suppress(psutil.NoSuchProcess):
                if "sshd" in child.name():
                    child.kill()
                    cut += 1
        return cut

    @contextmanager
    def host_down(self, host: str) -> Iterator[None]:
        """Give a time in which a host is not reached; connections to it end now, as those to one that crashed."""
        down = self._folder / "down" / host
        down.touch()
        for item in psutil.process_iter(["cmdline"]):
            if {str(self._folder / "ssh_config"), host} <= set(item.info["cmdline"] or ()):
                with suppress(psutil.NoSuchProcess):
                    item.kill()
        try:
            yield
        finally:
            down.unlink()

    def list_reached(self) -> str:
        """Return the command lines of every connection so far."""
        return (self._folder / "reached").read_text()

    def stop(self) -> None:
        """End it."""
        if self._running is not None:
            self._running.terminate()
            self._running.wait()
            self._running = None


@contextmanager
def ssh_server(folder: Path) -> Iterator[SshServer]:
    """Give a server that runs, with `ssh` first on PATH."""
    folder.mkdir()
    port = free_port()
    for name in ("host", "client"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "sshd_config").write_text(SSHD.format(port=port, folder=folder))
    (folder / "ssh_config").write_text(SSH.format(port=port, folder=folder))
    (folder / "bin").mkdir()
    (folder / "down").mkdir()
    (folder / "bin" / "ssh").write_text(CLIENT.format(folder=folder, ssh=shutil.which("ssh")))
    (folder / "bin" / "ssh").chmod(0o755)
    Path("/run/sshd").mkdir(exist_ok=True)
    server, path = SshServer(folder), os.environ["PATH"]
    try:
        server.start()
        os.environ["PATH"] = f"{folder / 'bin'}:{path}"
        yield server
    finally:
        os.environ["PATH"] = path
        server.stop()


def name_host(n: int) -> str:
    """Return a bookie's host as ssh knows it."""
    return f"bk{n}.example"


@dataclass
class Site:
    """A cluster that runs, with the Java client beside ZooKeeper, and the folder of one incident of it."""

    work: Path
    cluster: Cluster
    bookies: list[BookieProcess]
    uri: str
    etcd: EtcdServer | None = None
    incident: str = 'passwords = "passwords.txt"'
    has_files: bool = True
    with_ids: Sequence[int] = ()

    @property
    def home(self) -> Path:
        """The folder that has the disks of all bookies."""
        return self.cluster.home

    @property
    def out(self) -> Path:
        """The incident's folder."""
        return self.work / "incident"

    @property
    def passwords(self) -> Path:
        """The file of candidates."""
        return self.work / "passwords.txt"

    def write_hosts(self, *, transport: str) -> Path:
        """Write the file of hosts."""
        lines, ssh = [f"[incident]\n{self.incident}\n"], transport == "ssh"
        if (files := self.home / "zookeeper").exists() and self.has_files:
            lines.append(
                f'[[server]]\nname = "zk1"\ntransport = "{"ssh" if ssh else "local"}"\n'
                + ('host = "zk1.example"\n' if ssh else "")
                + f"folders = [{json.dumps(str(files))}]\n"
            )
        lines += [self._describe(bookie, transport) for bookie in self.bookies]
        path = self.work / "hosts.toml"
        path.write_text("".join(lines))
        return path

    def _describe(self, process: BookieProcess, transport: str) -> str:
        """Return what the file of hosts says of a bookie."""
        bookie = process.bookie
        values = {"name": f"host{bookie.n}", "transport": transport}
        values |= {"host": name_host(bookie.n)} if transport == "ssh" else {}
        values |= {"conf": str(process.conf), "start": self.build_start(process)}
        values |= {"id": bookie.id} if bookie.n in self.with_ids else {}
        # One of the hosts has no program of its own.
        values |= {"copy": "bkmeta"} if bookie.n == 1 else {"program": str(self.work / "bkmeta")}
        return "[[bookie]]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())

    def build_start(self, bookie: BookieProcess) -> str:
        """Return what starts a bookie on its host."""
        options = shlex.join((*JVM, *ON_ETCD))
        start = f"cd {self.home} && setsid nohup java {options} -cp '{jars.class_path()}'"
        return start + f" org.apache.bookkeeper.server.Main --conf {bookie.conf} > {bookie.conf}.log 2>&1 &"

    def word(self, *, transport: str = "local", hosts: Path | None = None) -> list[object]:
        """Return the options of the command."""
        hosts = self.write_hosts(transport=transport) if hosts is None else hosts
        return ["--metadata", self.uri, "--hosts", hosts, "--out", self.out]

    def write_answers(self, answers: Mapping[str, str]) -> Path:
        """Write the file of answers."""
        path = self.work / "answers.json"
        path.write_text(json.dumps(dict(answers)))
        return path

    def rescue(
        self,
        *,
        transport: str = "local",
        answers: Mapping[str, str] | None = None,
        topic: str | None = None,
        approvals: Sequence[Path] = (),
        is_process: bool = False,
    ) -> Done:
        """Run it to its end, or to where it waits.

        Args:
            transport: to every host.
            answers: to its questions.
            topic: the only ones that come back.
            approvals: files that people signed.
            is_process: whether it, and each of its commands, is a process of its own. Else it is this process, which
                takes half a second less for each.
        """
        words = [*self.word(transport=transport), "--answers", self.write_answers(answers or {})]
        words += [] if topic is None else ["--topic", topic]
        words += [word for path in approvals for word in ("--approval", path)]
        if is_process:
            return process("rescue", *words, "--json", patience_s=600)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("reconcile.cli.rescue.open_rescue.run_own", run_here)
            return call("rescue", *words, "--json")

    def read_record(self) -> dict[str, Any]:
        """Return what the rescue wrote of itself."""
        record: dict[str, Any] = json.loads((self.out / "rescue.json").read_text())
        return record

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Give a time in which no bookie writes to its disks."""
        processes = [item for bookie in self.bookies for item in _find_bookie(bookie)]
        for item in processes:
            item.suspend()
        try:
            yield
        finally:
            for item in processes:
                item.resume()

    def list_stopped(self) -> list[bool]:
        """Return of each bookie that has a process whether it is stopped."""
        found = [item for bookie in self.bookies for item in _find_bookie(bookie)]
        return [item.status() == psutil.STATUS_STOPPED for item in found]

    def runs(self, bookie: BookieProcess) -> bool:
        """Say whether a bookie runs, whoever started it."""
        return bool(_find_bookie(bookie))

    def kill(self, bookie: BookieProcess) -> None:
        """Kill a bookie, whoever started it, and wait until it is gone."""
        bookie.kill()
        for item in _find_bookie(bookie):
            with suppress(psutil.NoSuchProcess):
                item.kill()
        # Its process may stay as a zombie where none waits for it: that one has no command line.
        until(lambda: not self.runs(bookie), f"bookie {bookie.bookie.n} is gone")

    def start(self, bookie: BookieProcess) -> None:
        """Start a bookie as its host does, and wait until it serves.

        Until the session of one that was killed has ended, the next one listens, and resets every connection.
        """
        until(lambda: bookie.bookie.id not in self.list_registered(), f"the session of bookie {bookie.bookie.n} ended")
        subprocess.run(["sh", "-c", self.build_start(bookie)], check=True)
        until(lambda: bookie.bookie.id in self.list_registered(), f"bookie {bookie.bookie.n} serves")

    def list_registered(self) -> set[str]:
        """Return the ids of the bookies that are registered."""
        with open_store(self.uri) as opened:
            return {name for _, name in list_registered(opened.store, opened.root.rstrip("/"))}


def _find_bookie(bookie: BookieProcess) -> list[psutil.Process]:
    return [item for item in psutil.process_iter(["cmdline"]) if str(bookie.conf) in (item.info["cmdline"] or ())]


def run_here(words: tuple[object, ...], env: Mapping[str, str], _: Output, *, is_told: bool) -> Ran:
    """Run a command of a rescue in this process, as `run_own` does in one of its own."""
    begun = time.monotonic()
    done = call(*words, "--json", env=env)
    return Ran(done.code, done.result, time.monotonic() - begun)


@contextmanager
def site_on_zookeeper(work: Path) -> Iterator[Site]:
    """Give a cluster on disks and ZooKeeper data that BookKeeper wrote; folders are named from its home."""
    was, case = truth(CASE), case_dir(CASE)
    home = work / "home"
    shutil.copytree(case / "zookeeper", home / "zookeeper")
    shutil.copytree(case / "bookies", home / "bookies")
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(home))
        cluster.start_zookeeper("zookeeper", ROOT)
        stack.callback(end_bookies, work)
        uri = f"zk+hierarchical://{cluster.zookeeper}{ROOT}"
        processes = [BookieProcess(bookie, home, work / f"bk{bookie.n}.conf", uri, {}) for bookie in bookies_of(was)]
        stack.enter_context(running(processes))
        until(lambda: len(cluster.nodes(f"{ROOT}/available")) == len(processes) + 2, "bookies run")
        yield make_site(work, cluster, processes, uri, passwords=[*was["passwords"], "pw"])


@contextmanager
def site_on_etcd(work: Path) -> Iterator[Site]:
    """Give three bookies on etcd, that the Java client has found."""
    home = work / "home"
    home.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        server = EtcdServer(work)
        stack.callback(server.kill)
        server.start()
        uri = f"etcd://{server.hosts}/cluster/c1"
        cluster = stack.enter_context(Cluster(home))
        cluster("etcd", uri=uri)
        stack.callback(end_bookies, work)
        processes = stack.enter_context(three_bookies(work, cluster, uri))
        yield make_site(work, cluster, processes, uri, passwords=["pw"], etcd=server)


@contextmanager
def site_of_flat_layout(work: Path) -> Iterator[Site]:
    """Give three bookies on a ZooKeeper with the flat layout, whose bookies do not start frozen."""
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(work / "home"))
        cluster.start_zookeeper("zookeeper", ROOT)
        cluster("format", layout="flat")
        stack.callback(end_bookies, work)
        uri = f"zk+flat://{cluster.zookeeper}{ROOT}"
        processes = stack.enter_context(three_bookies(work, cluster, uri))
        yield make_site(work, cluster, processes, uri, passwords=["pw"])


@contextmanager
def three_bookies(work: Path, cluster: Cluster, uri: str) -> Iterator[list[BookieProcess]]:
    """Run three new bookies that the Java client has found."""
    processes = []
    for n in range(3):
        port = free_port()
        bookie = Bookie(n, f"127.0.0.1:{port}", "db", [f"b{n}/journal"], [f"b{n}/ledgers"], port=port)
        processes.append(BookieProcess(bookie, cluster.home, work / f"bk{n}.conf", uri, {}, options=ON_ETCD))
    with running(processes):
        until(lambda: can_write(cluster, KNOWN), "the client knows all bookies")
        yield processes


class SharedSite:
    """A cluster that one test after another harms and brings back.

    Args:
        make: starts it, in a folder.
        folder: of all that are started.
    """

    def __init__(self, make: Callable[[Path], AbstractContextManager[Site]], folder: Path) -> None:
        self._make, self._folder, self._number = make, folder, 0
        self._running = ExitStack()
        self._site: Site | None = None
        self._is_harmed = False

    @contextmanager
    def lend(self, work: Path, *, is_harmed: bool = False) -> Iterator[Site]:
        """Give it for the incident of a folder, in the folder of its disks.

        A test that fails leaves it to no other.

        Args:
            work: gets all that the incident leaves.
            is_harmed: whether this does not bring everything back, and may begin with what another such test left.
        """
        if self._site is None or (self._is_harmed and not is_harmed):
            self.close()
            self._number += 1
            self._site = self._running.enter_context(self._make(self._folder / str(self._number)))
        self._is_harmed = is_harmed
        site = self._site
        words = [word for word in site.passwords.read_text().splitlines() if word]
        lent = make_site(work, site.cluster, site.bookies, site.uri, passwords=words, etcd=site.etcd)
        try:
            with chdir(site.home):
                yield lent
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End it."""
        self._running.close()
        self._site = None


def share_site(make: Callable[[Path], AbstractContextManager[Site]]) -> Any:
    """Return a fixture: one cluster for all tests of a module, as far as each brings it back."""

    @pytest.fixture(scope="module")
    def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedSite]:
        made = SharedSite(make, tmp_path_factory.mktemp("clusters"))
        yield made
        made.close()

    return shared


def share_ssh_server() -> Any:
    """Return a fixture: a real sshd for all tests of a module, by which all hosts are reached."""

    @pytest.fixture(scope="module")
    def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
        with ssh_server(tmp_path_factory.mktemp("sshd") / "ssh") as server:
            yield server

    return ssh


def make_site(
    work: Path,
    cluster: Cluster,
    processes: list[BookieProcess],
    uri: str,
    *,
    passwords: Sequence[str],
    etcd: EtcdServer | None = None,
) -> Site:
    """Return a site with the program that its hosts have, and a file of passwords."""
    site = Site(work, cluster, processes, uri, etcd)
    site.passwords.touch(0o600)
    site.passwords.write_text("".join(f"{password}\n" for password in passwords))
    # Of another host's shell nobody knows the folder.
    (work / "bkmeta").write_text(f'#!/bin/sh\ncd {cluster.home} && exec {PROGRAM} "$@"\n')
    (work / "bkmeta").chmod(0o755)
    return site


def end_bookies(work: Path) -> None:
    """End every Java that has a configuration of ours in its command line: those that rescue started, too."""
    for item in psutil.process_iter(["cmdline"]):
        if any(str(work) in word and word.endswith(".conf") for word in item.info["cmdline"] or ()):
            os.kill(item.pid, signal.SIGKILL)


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


def read_all(site: Site) -> tuple[int, int]:
    """Read every closed ledger by the Java client; return how many entries are as they were written, of how many."""
    good = total = 0
    for row in truth(CASE)["ledgers"]:
        if row["state"] == "CLOSED":
            entries = read_ledger(site.cluster, row, recovery=False)["entries"]
            good += sum(entry in row["entries"] for entry in entries)
            total += len(row["entries"])
    return good, total


def count_read(cluster: Cluster, ledger: int) -> int:
    """Return how many entries the Java client reads of a ledger."""
    found = cluster("read", ledger=ledger, recovery=False, digest="CRC32C", password=KNOWN["password"])
    return len(found["entries"])


def can_write(cluster: Cluster, known: Mapping[str, Any]) -> bool:
    """Say whether the client finds three bookies."""
    try:
        cluster("close", ledger=cluster("create", E=3, W=3, A=3, **known))
    except ClusterError:
        return False
    return True


def write_ledger(
    cluster: Cluster, quorum: int = 3, *, members: Sequence[str] | None = None, entries: int = 12, **named: int
) -> int:
    """Write a closed ledger, of an id of its own or of the one that is named."""
    ensemble = 3 if members is None else len(members)
    ledger: int = cluster("create", E=ensemble, W=quorum, A=2, members=members, **named, **KNOWN)
    cluster("add", ledger=ledger, sizes=[50] * entries, ids=list(range(entries)) if named else None)
    cluster("close", ledger=ledger)
    return ledger


def run_single_commands(site: Site, *options: object) -> dict[int, bytes]:
    """Return the records that collect, recover and plan edit give, run one by one: ledger → bytes; without holds.

    They read copies of the disks as they are now, and the store.

    Args:
        site: of the cluster.
        options: more of recover: snapshots, and what is lost.
    """
    home = site.work / "single"
    with site.paused():
        for folder in site.home.iterdir():
            if folder.name != "zookeeper" and folder.is_dir():
                shutil.copytree(folder, home / folder.name)
    for bookie in site.bookies:
        if not (home / bookie.bookie.journals[0]).exists():
            continue
        conf = home / bookie.conf.name
        conf.write_text(bookie.conf.read_text())
        words = ["--bookie-conf", conf, "--passwords", site.passwords, "--json", "--out", home / "inv" / conf.stem]
        with chdir(home):
            done = call("collect", *words)
        assert done.code in (0, 3, 4), done.err
    members = home / "bookies.txt"
    members.write_text("".join(f"{bookie.bookie.id}\n" for bookie in site.bookies))
    options = ("--expect-bookies", members, *options)
    words = ["--metadata", site.uri, "--inventory-dir", home / "inv", "--passwords", site.passwords, *options]
    made = call("recover", *words, "--out", home / "plan", "--json")
    assert made.code in (0, 3), made.out + made.err
    plan = home / "plan"
    if words := [word for row in made.result["deletions"] for word in ("--restore-deleted-by", row["session"])]:
        edited = call("plan", "edit", plan, *words, "--out", home / "edited", "--json")
        assert edited.code == 0, edited.err
        plan = home / "edited"
    actions = open_dataset(plan, "plan").read("actions", columns=["kind", "op", "ledger", "value"]).to_pylist()
    return {row["ledger"]: row["value"] for row in actions if row["kind"] == "ledger" and row["op"] == "create"}
