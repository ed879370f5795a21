"""Real ZooKeepers are followed under load, lost, and shown by their backup as they were: by logs, by polling."""

import os
import random
import shutil
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError

from backends.protocols import ScannableStore
from reconcile.cli.output import Output
from reconcile.jobs.backup.follow import FollowRequest, FollowStatus, follow_store
from reconcile.jobs.backup.verify import verify_backup
from reconcile.jobs.context import Context
from reconcile.stores import NOBODY, open_store
from recovery.backup.chain import open_backup
from recovery.capture.subtrees import SubtreeChoice
from recovery.codecs.store import LAYOUT, Layout, layout_bytes, ledger_key
from recovery.dataset import open_dataset
from recovery.model.ids import LedgerId
from tests.support.command import run
from tests.support.waiting import until
from tests.support.zookeeper_server import ZooKeeperServer, ensemble

pytestmark = pytest.mark.real

CONTEXT = Context(NOBODY, Output(as_json=True, progress="none"), lambda: datetime.now(UTC))
SOON = timedelta(milliseconds=300)
ROOT, UPPER = "/ledgers", "/managed-ledgers"
COUNT = int(os.environ.get("BKMETA_SOAK_BACKUP", "1"))
SEED = int(os.environ.get("BKMETA_SOAK_SEED", "1"))


def _key(number: int) -> str:
    return ROOT + ledger_key(Layout.HIERARCHICAL, LedgerId(0, number))


@dataclass
class Load:
    """Who writes ledgers, each together with the node of an upper layer that names it, in one transaction.

    Attributes:
        acknowledged: when each transaction was, and its number; ms since 1970.
        states: what each ledger's key held from a transaction on; None: nothing.
    """

    hosts: str
    chance: random.Random
    acknowledged: list[tuple[int, int]] = field(default_factory=list)
    states: dict[str, list[tuple[int, bytes | None]]] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)
    client: KazooClient | None = None

    def end(self) -> None:
        """End it; what was sent and not answered is given up."""
        self.ended.set()
        if self.client is not None:
            # Who else calls stop meanwhile returns at once, so it is closed here alone.
            self.client.stop()
            self.client.close()

    def begin(self, client: KazooClient) -> None:
        """Make the root and the folders."""
        client.ensure_path(UPPER)
        client.ensure_path(_key(1).rpartition("/")[0])
        client.create(ROOT + LAYOUT, layout_bytes(Layout.HIERARCHICAL))

    def run(self) -> None:
        """Write until it is ended, whatever the servers do meanwhile."""
        client = self.client = KazooClient(self.hosts, connection_retry={"max_tries": -1, "max_delay": 0.5})
        client.start(timeout=120)
        while not self.ended.is_set():
            self._write(client)

    def _write(self, client: KazooClient) -> None:
        number = self.chance.randrange(300)
        key, upper, value = _key(number), f"{UPPER}/{number}", self.chance.randbytes(150)
        transaction = client.transaction()
        held = self.states.get(key, [(0, None)])[-1][1]
        if held is None:
            transaction.create(key, value)
            transaction.create(upper, value)
        elif self.chance.random() < 0.3:
            transaction.delete(key)
            transaction.delete(upper)
            value = b""
        else:
            transaction.set_data(key, value)
            transaction.set_data(upper, value)
        try:
            results = transaction.commit()
            failed = any(isinstance(result, Exception) for result in results)
        except KazooException:
            failed = True
        if not failed:
            txn, now_ms = client.last_zxid, time.time_ns() // 1_000_000
            self.states.setdefault(key, []).append((txn, value or None))
            self.acknowledged.append((now_ms, txn))
            return
        # It may have been made all the same: what stands there is read.
        while not self.ended.is_set():
            try:
                client.sync("/")
                data, stat = client.get(key)
                self.states.setdefault(key, []).append((stat.mzxid, data))
            except NoNodeError:
                self.states.setdefault(key, []).append((client.last_zxid, None))
            except KazooException:
                client.handler.sleep_func(0.1)
                continue
            return


@dataclass
class Following:
    """A follower in a thread."""

    place: Path
    status: FollowStatus = field(default_factory=FollowStatus)
    errors: list[Exception] = field(default_factory=list)


@contextmanager
def _following(uri: str, place: Path, logs: Sequence[Path]) -> Iterator[Following]:
    made, ended = Following(place), threading.Event()
    choice = SubtreeChoice(paths=(UPPER,))
    request = FollowRequest(uri, place, logs=tuple(map(str, logs)), subtrees=choice, seal_after=SOON)

    def follow() -> None:
        try:
            made.status = follow_store(request, CONTEXT, ended, lambda _status: None)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            made.errors.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        until(lambda: bool(made.errors or (place / "head.json").exists()), "a base")
        yield made
    finally:
        ended.set()
        thread.join()
        assert not made.errors, made.errors


def _show(place: Path, root: str) -> dict[str, bytes]:
    with open_store(f"backup:{place}") as opened:
        assert isinstance(opened.store, ScannableStore)
        rows = [row for batch in opened.store.scan(root) for row in batch.to_pylist()]
    return {row["key"]: row["value"] for row in rows}


def _is_leader(server: ZooKeeperServer) -> bool:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(b"srvr")
        answer = b""
        while part := connection.recv(1 << 12):
            answer += part
    return b"Mode: leader" in answer


def _check(place: Path, load: Load) -> None:
    """Compare a backup with what was written: each ledger at its last transaction, the upper layer's node with it."""
    manifest = open_backup(place).manifest
    ledgers = {_key(number): number for number in range(300)}
    shown = {key: value for key, value in _show(place, ROOT).items() if key in ledgers}
    upper = _show(place, UPPER)
    for key, states in load.states.items():
        [*_, (_, value)] = [(0, None), *((txn, held) for txn, held in states if txn <= manifest.through)]
        assert shown.get(key) == value, (key, states)
        assert upper.get(f"{UPPER}/{ledgers[key]}") == value
    assert verify_backup(place, None, CONTEXT).problems == []


@pytest.mark.parametrize("number", range(COUNT))
@pytest.mark.parametrize("means", ["logs", "polling"])
def test_a_server_that_is_lost_under_load_is_in_its_backup(number: int, means: str, tmp_path: Path) -> None:
    """Its folder is wiped at a random moment: what was sealed is there byte for byte, upper layers' nodes with it."""
    chance = random.Random(SEED + number)
    server = ZooKeeperServer(tmp_path / "server", settings="snapCount=400\npreAllocSize=64")
    server.start()
    load = Load(server.hosts, chance)
    client = KazooClient(server.hosts)
    client.start()
    load.begin(client)
    writing = threading.Thread(target=load.run)
    try:
        place = tmp_path / "backup"
        uri = f"zk+hierarchical://{server.hosts}{ROOT}"
        with _following(uri, place, [server.data_dir] if means == "logs" else []) as follower:
            writing.start()
            wanted = open_backup(place).manifest.seals + chance.randint(3, 6)
            until(
                lambda: bool(follower.errors or (load.states and open_backup(place).manifest.seals >= wanted)),
                "changes are sealed",
            )
            server.kill()
            shutil.rmtree(server.data_dir)
            load.end()
        manifest = open_backup(place).manifest
        assert manifest.binding["means"] == means
        assert follower.status.gaps == 0
        assert follower.status.changes > 0
        if means == "logs":
            _check(place, load)
    finally:
        load.end()
        server.kill()
        writing.join()
        client.stop()
        client.close()


@pytest.mark.parametrize("number", range(COUNT))
def test_an_ensemble_that_is_lost_after_its_leader_is_in_its_backup(number: int, tmp_path: Path) -> None:
    """The leader is killed under load, later all is lost: one participant's log is enough, nothing is invented."""
    chance = random.Random(SEED + number)
    with ensemble(tmp_path / "servers") as servers:
        hosts = ",".join(server.hosts for server in servers)
        load = Load(hosts, chance)
        client = KazooClient(hosts)
        client.start()
        load.begin(client)
        client.stop()
        client.close()
        leader = next(server for server in servers if _is_leader(server))
        followed = next(server for server in servers if server is not leader)
        place, uri = tmp_path / "backup", f"zk+hierarchical://{hosts}{ROOT}"
        writing = threading.Thread(target=load.run)
        with _following(uri, place, [followed.data_dir]) as follower:
            writing.start()

            def await_seals() -> None:
                until(lambda: bool(load.acknowledged), "a transaction is acknowledged")
                wanted = load.acknowledged[-1][1] + chance.randint(1, 40)
                until(
                    lambda: bool(follower.errors or open_backup(place).manifest.through > wanted),
                    "changes are sealed",
                )

            await_seals()
            leader.kill()
            await_seals()
            for server in servers:
                server.kill()
            load.end()
        assert follower.status.gaps == 0
        writing.join()
        _check(place, load)


def test_what_a_session_deleted_is_there_before_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Others write meanwhile: all commands show the store as it was right before the session's first delete."""
    server = ZooKeeperServer(tmp_path / "server")
    server.start()
    broker, other = (KazooClient(server.hosts) for _ in range(2))
    try:
        for client in (broker, other):
            client.start()
        Load(server.hosts, random.Random(SEED)).begin(other)
        other.create(UPPER + "/kept")
        uri, place = f"zk+hierarchical://{server.hosts}{ROOT}", tmp_path / "backup"
        with _following(uri, place, [server.data_dir]) as follower:
            for number in range(20):
                broker.create(_key(number), b"%d" % number)
            for number in range(3):
                other.delete(_key(number))
            before = server_states(other)
            for number in range(3, 12):
                broker.delete(_key(number))
                other.create(_key(100 + number), b"later")
            broker.delete(UPPER + "/kept")
            last = other.exists(_key(111))
            assert last is not None
            until(
                lambda: bool(follower.errors or open_backup(place).manifest.through >= last.czxid + 1), "all is sealed"
            )
        session, _ = broker.client_id
    finally:
        for client in (broker, other):
            client.stop()
            client.close()
        server.end()
    at = ("--at", f"before:{session:#x}")
    captured = run(capsys, "capture", "--metadata", f"backup:{place}", *at, "--out", tmp_path / "then", "--json")
    assert (captured.code, captured.result["counts"]["ledgers"]) == (0, len(before))
    rows = open_dataset(tmp_path / "then", "catalog").read("ledgers", columns=["ledger", "raw"]).to_pylist()
    assert {_key(row["ledger"]): row["raw"] for row in rows} == before
    with open_store(f"backup:{place}?at=before:{session:#x}") as opened:
        assert opened.store.get(UPPER + "/kept") is not None
    told = run(capsys, "explain", 5, "--metadata", f"backup:{place}", "--json").result["timeline"]
    for event in ("created", "deleted"):
        assert any(f"{event} in transaction" in line and f"session {session:#x}" in line for line in told), told


def server_states(client: KazooClient) -> dict[str, bytes]:
    """Return the ledgers that a server has, and their values."""
    return {_key(number): client.get(_key(number))[0] for number in range(300) if client.exists(_key(number))}
