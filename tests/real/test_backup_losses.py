"""A total loss of the store at a random moment, under load: what was sealed comes back byte for byte."""

import base64
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from backends.etcd import rpc
from recovery.backup.chain import open_backup
from recovery.codecs import ledger_metadata, store
from recovery.codecs.store import Layout
from recovery.dataset import open_dataset
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.support.cases import case_dir, truth
from tests.support.command import ROOT, run
from tests.support.etcd_server import EtcdServer
from tests.support.waiting import until

CASE = "c01-clean-sorted"
COUNT = int(os.environ.get("BKMETA_SOAK_BACKUP", "1"))
SEED = int(os.environ.get("BKMETA_SOAK_SEED", "1"))
PROGRAM = (sys.executable, "-m", "reconcile.cli")
FIRST = 1_000
"""Id of the first ledger that is made under load: etcd's counter takes a write for each id below it to come back."""
PAUSE_S = 0.0 if "BKMETA_SOAK_BACKUP" in os.environ else 0.003
"""Between two changes of the load: as fast as the server answers, it takes a core from all other tests."""
RATE, TOGETHER = 2_000, 20
"""Changes a second while the age of a backup's end is measured; changes of a transaction."""

pytestmark = [pytest.mark.real, pytest.mark.spark, pytest.mark.timeout(1800)]


@dataclass
class Load:
    """Ledgers of a root that are made and deleted, some hundred a second; in a soak as fast as the server answers.

    Attributes:
        revisions: of each key's values, in their order; None: deleted.
    """

    server: EtcdServer
    root: str
    chance: random.Random
    revisions: dict[str, list[tuple[int, bytes | None]]] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)

    def put(self, key: str, value: bytes, lease: int = 0) -> None:
        """Write a key."""
        self.revisions.setdefault(key, []).append((self.server.put(self.root + key, value, lease), value))

    def run(self) -> None:
        """Make closed, empty ledgers, and delete some of them, until it is ended."""
        bookies = tuple(bookie["id"] for bookie in truth(CASE)["bookies"])
        number = FIRST
        while not self.ended.wait(PAUSE_S):
            number += 1
            segment = Segment(0, tuple(self.chance.sample(bookies, 2)))
            made = LedgerMetadata(
                3, 2, 2, 2, LedgerState.CLOSED, -1, 0, (segment,), Digest.CRC32, b"pw", creator_token=number
            )
            self.put(store.ledger_key(Layout.ETCD, LedgerId(0, number)), ledger_metadata.encode(made))
            if self.chance.random() < 0.3:
                key = store.ledger_key(Layout.ETCD, LedgerId(0, self.chance.randint(FIRST + 1, number)))
                if self.revisions[key][-1][1] is not None:
                    self.revisions[key].append((self.server.delete(self.root + key), None))

    def state_at(self, revision: int) -> dict[str, bytes]:
        """Return the ledgers as they were at a revision."""
        last = {key: [value for at, value in values if at <= revision][-1:] for key, values in self.revisions.items()}
        return {key: values[0] for key, values in last.items() if values and values[0] is not None}


@contextmanager
def loaded(load: Load) -> Iterator[None]:
    """Write beside what is done."""
    thread = threading.Thread(target=load.run)
    thread.start()
    try:
        yield
    finally:
        load.ended.set()
        thread.join()


def follow(uri: str, place: Path) -> "subprocess.Popen[bytes]":
    """Start a follower."""
    words = ["backup", "follow", "--metadata", uri, "--to", str(place), "--seal-after", "1s"]
    return subprocess.Popen(
        [*PROGRAM, *words], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


@pytest.fixture(scope="module")
def inventories(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return options that name an inventory of each bookie."""
    folder = tmp_path_factory.mktemp("inventories")
    words: list[str] = []
    for bookie in truth(CASE)["bookies"]:
        disks, out = case_dir(CASE) / "bookies" / f"b{bookie['n']}", folder / f"b{bookie['n']}"
        dirs = ["--ledger-dir", disks / "ledgers", "--journal-dir", disks / "journal"]
        subprocess.run([*PROGRAM, "collect", *map(str, dirs), "--out", out], cwd=ROOT, check=True, capture_output=True)
        words += ["--inventory", str(out)]
    return words


@pytest.mark.parametrize("number", range(COUNT))
def test_what_was_sealed_comes_back_byte_for_byte(
    number: int, inventories: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The follower is killed and followed by another one; then the store's disk is gone, with the follower at work."""
    etcd_server = EtcdServer(tmp_path)
    etcd_server.start()
    try:
        lose_and_restore(number, etcd_server, inventories, tmp_path, capsys)
    finally:
        etcd_server.kill()


def lose_and_restore(
    number: int, etcd_server: EtcdServer, inventories: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Follow, lose, restore, compare."""
    chance = random.Random(SEED + number)
    root, place = f"/{tmp_path.name}-{number}/c1", tmp_path / "backup"
    uri = f"etcd://{etcd_server.hosts}{root}"
    load = Load(etcd_server, root, chance)
    etcd_server.put(root)
    etcd_server.put(root + "/layout", store.layout_bytes(Layout.ETCD))
    etcd_server.put(root + "/instanceid", truth(CASE)["instance_id"].encode())
    lease = etcd_server.call("Lease", "LeaseGrant", rpc.LeaseGrantRequest(TTL=600)).ID
    etcd_server.put(root + "/bookies/writable/b1:3181", b"", lease)
    followers = [follow(uri, place)]
    try:
        with loaded(load):
            key = ""
            for row in truth(CASE)["ledgers"]:
                if row["raw"]:
                    key = store.ledger_key(Layout.ETCD, LedgerId(0, row["ledger"]))
                    load.put(key, base64.b64decode(row["raw"]))
            known = load.revisions[key][-1][0]
            until(lambda: (place / "head.json").exists() and open_backup(place).manifest.through >= known, "it follows")
            os.killpg(followers[0].pid, signal.SIGKILL)
            followers[0].wait()
            followers.append(follow(uri, place))
            behind = open_backup(place).manifest.seals + chance.randint(1, 4)
            until(lambda: open_backup(place).manifest.seals >= behind, "the next one follows")
        lost_ms = time.time_ns() // 1_000_000
    finally:
        for follower in followers:
            if follower.poll() is None:
                os.killpg(follower.pid, signal.SIGKILL)
                follower.wait()
    etcd_server.kill()
    shutil.rmtree(etcd_server.data)
    etcd_server.start()

    manifest = open_backup(place).manifest
    assert manifest.gaps == []
    wanted = load.state_at(manifest.through)
    assert len(wanted) > len(truth(CASE)["ledgers"]) / 2
    with capsys.disabled():
        rpo_s = (lost_ms - manifest.until_ms) / 1000
        sys.stdout.write(f"\nloss {number}: RPO {rpo_s:.1f} s, {len(wanted)} ledgers\n")
    assert run(capsys, "backup", "verify", place, "--json").code == 0
    plan = tmp_path / "plan"
    made = run(
        capsys, "recover", *inventories, "--metadata", uri, "--snapshot", f"backup:{place}", "--out", plan, "--json"
    )
    assert made.code in (0, 3, 4), made.err + made.out
    digest = open_dataset(plan, "plan").manifest["hash"]
    applied = run(capsys, "apply", plan, "--metadata", uri, "--confirm", digest, "--json")
    assert applied.code == 0, applied.err + applied.out
    restored = {key.removeprefix(root): value for key, value in etcd_server.dump(root + "/ledgers/").items()}
    assert {key: value for key, value in restored.items() if key in wanted} == wanted
    assert restored.keys() == wanted.keys()
    assert not etcd_server.dump(root + "/bookies/writable/")


def measure_cpu_s(process: "subprocess.Popen[bytes]") -> float:
    """Return what a process has used of processors."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def write_steadily(server: EtcdServer, root: str, seconds: float) -> int:
    """Write `RATE` ledgers a second, as far as the server answers so fast, twenty in a transaction; return how many."""
    began, number, pause = time.monotonic(), 0, threading.Event()
    record = ledger_metadata.encode(
        LedgerMetadata(
            3, 1, 1, 1, LedgerState.CLOSED, -1, 0, (Segment(0, ("b1:3181",)),), Digest.CRC32, b"", creator_token=0
        )
    )
    with grpc.insecure_channel(server.hosts, options=[("grpc.enable_http_proxy", 0)]) as channel:
        stub = rpc.KVStub(channel)
        while (spent := time.monotonic() - began) < seconds:
            pause.wait(max(0.0, number / RATE - spent))
            keys = (root + store.ledger_key(Layout.ETCD, LedgerId(0, number + step)) for step in range(TOGETHER))
            puts = [rpc.RequestOp(request_put=rpc.PutRequest(key=key.encode(), value=record)) for key in keys]
            stub.Txn(rpc.TxnRequest(success=puts))
            number += TOGETHER
    return number


def test_the_end_of_a_backup_under_load_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two thousand changes a second, with the defaults: all of them are sealed; the soak prints how old the end was."""
    seconds = 30.0 if "BKMETA_SOAK_BACKUP" in os.environ else 3.0
    root, place = "/rpo", tmp_path / "backup"
    server = EtcdServer(tmp_path)
    server.start()
    server.put(root)
    server.put(root + "/layout", store.layout_bytes(Layout.ETCD))
    words = ["backup", "follow", "--metadata", f"etcd://{server.hosts}{root}", "--to", str(place)]
    follower = subprocess.Popen([*PROGRAM, *words], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ages: list[float] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.1):
            ages.append(time.time() - open_backup(place).manifest.until_ms / 1000)

    try:
        until(lambda: (place / "head.json").exists() and bool(open_backup(place).manifest.bases), "a base")
        cpu_s, watcher = measure_cpu_s(follower), threading.Thread(target=watch)
        watcher.start()
        began = time.monotonic()
        written = write_steadily(server, root, seconds)
        rate = written / (time.monotonic() - began)
        ended.set()
        watcher.join()
        last = server.put(root + "/end")
        until(lambda: open_backup(place).manifest.through >= last, "all is sealed")
        cpu_s = measure_cpu_s(follower) - cpu_s
    finally:
        ended.set()
        follower.kill()
        follower.wait()
        server.kill()
    assert sum(link.part.rows for link in open_backup(place).manifest.segments) == written + 1
    assert run(capsys, "backup", "verify", place, "--json").code == 0
    with capsys.disabled():
        ages.sort()
        sys.stdout.write(
            f"\n{rate:.0f} changes a second: RPO {ages[len(ages) // 2]:.1f} s in the middle, {ages[-1]:.1f} s at most; "
            f"{1e6 * cpu_s / written:.0f} µs of CPU a change\n"
        )
