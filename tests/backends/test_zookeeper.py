"""What is particular to ZooKeeper: rights, sessions, lost servers, counters as BookKeeper sees them."""

import itertools
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl_credential

from backends.errors import AccessDeniedError, OutcomeUnknownError, UnavailableError
from backends.pace import Pace
from backends.protocols import Write
from backends.registry import open_store
from backends.zookeeper import kazoo_client
from backends.zookeeper.store import ZooKeeperStore
from tests.support.zookeeper_server import ZooKeeperServer

_CHROOTS = itertools.count()

pytestmark = pytest.mark.real


@pytest.fixture
def chroot() -> str:
    """Return a part of the tree that no other test has."""
    return f"/particular-{next(_CHROOTS)}"


@pytest.fixture
def raw(zookeeper_server: ZooKeeperServer) -> Iterator[KazooClient]:
    """Return a plain client of another program."""
    client = KazooClient(zookeeper_server.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


def test_the_counter_is_what_a_sequential_child_gets(
    zookeeper_server: ZooKeeperServer, raw: KazooClient, chroot: str
) -> None:
    """A client of another program that asks for the next id gets the promised number, and then the one after it."""
    store = ZooKeeperStore(zookeeper_server.hosts, chroot=chroot)
    raw.create(f"{chroot}/idgen/ID-", sequence=True, ephemeral=True, makepath=True)
    assert store.raise_counter("/idgen", 12_345) == 12_346
    for number in (12_346, 12_347):
        assert raw.create(f"{chroot}/idgen/ID-", sequence=True).endswith(f"ID-{number:010d}")
    held = store.get("/idgen")
    assert held is not None
    assert held.children_created == 12_348
    store.close()


def test_a_counter_past_its_end_is_a_mistake(zookeeper_server: ZooKeeperServer, chroot: str) -> None:
    """Sequential names are 32-bit numbers; what cannot be reached is not begun."""
    store = ZooKeeperStore(zookeeper_server.hosts, chroot=chroot)
    with pytest.raises(ValueError, match="2147483646"):
        store.raise_counter("/idgen", (1 << 31) - 1)
    assert store.get("/idgen") is None
    store.close()


def test_a_registration_shows_its_owner(zookeeper_server: ZooKeeperServer, raw: KazooClient, chroot: str) -> None:
    """A node that lives with a session is told from a permanent one, and times and transactions are the server's."""
    raw.create(f"{chroot}/available/b1", b"info", ephemeral=True, makepath=True)
    store = ZooKeeperStore(zookeeper_server.hosts, chroot=chroot)
    held, parent = store.get("/available/b1"), store.get("/available")
    assert held is not None
    assert parent is not None
    assert held.owner == raw.client_id[0]
    assert parent.owner == 0
    _, stat = raw.get(f"{chroot}/available/b1")
    assert (held.created_txn, held.changed_txn) == (stat.czxid, stat.mzxid)
    assert (held.created_ms, held.changed_ms) == (stat.ctime, stat.mtime)
    store.close()


def test_rights_are_kept_and_obeyed(
    zookeeper_server: ZooKeeperServer, chroot: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What one principal made for itself another one cannot read, and the password is in no log line."""
    caplog.set_level(logging.DEBUG)
    spec = f"digest:{make_digest_acl_credential('bob', 'hunter2')}:cdrwa"
    bob = ZooKeeperStore(zookeeper_server.hosts, chroot=chroot, auth=("bob", "hunter2"))
    anyone = ZooKeeperStore(zookeeper_server.hosts, chroot=chroot)
    bob.write([Write("/secret/k", b"v", acl=spec)])
    held = bob.get("/secret/k")
    assert held is not None
    assert held.acl == spec
    with pytest.raises(AccessDeniedError) as refused:
        anyone.get("/secret/k")
    assert refused.value.key == "/secret/k"
    with pytest.raises(AccessDeniedError):
        list(anyone.get_many(["/secret/k"]))
    with pytest.raises(AccessDeniedError):
        anyone.write([Write("/open", b""), Write("/secret/other", b"")])
    with pytest.raises(AccessDeniedError):
        anyone.write([Write("/secret/k", b"x", 0)])
    with pytest.raises(AccessDeniedError):
        anyone.raise_counter("/secret", 7)
    assert anyone.get("/open") is None
    assert "hunter2" not in caplog.text
    bob.close()
    anyone.close()


def test_no_server_is_said_in_time(tmp_path: Path) -> None:
    """Where nobody listens the error comes after the patience that was asked for."""
    hosts = ZooKeeperServer(tmp_path).hosts
    with pytest.raises(UnavailableError, match=r"no session within 0\.3 s"):
        open_store(f"zk://{hosts}/ledgers", patience_s=0.3)


def test_who_waits_is_told_until_when(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Long before patience ends it is said, once, that a store does not answer."""
    hosts = ZooKeeperServer(tmp_path).hosts
    with pytest.raises(UnavailableError):
        open_store(f"zk://{hosts}/ledgers", patience_s=4)
    [said] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert re.fullmatch(rf"zk://{hosts} does not answer; trying until \d\d:\d\d:\d\d", said.getMessage())


def test_reads_outlive_a_restart_and_writes_say_that_they_do_not_know(tmp_path: Path) -> None:
    """While the server is away a write's outcome is unknown and is not tried again; reads wait for its return."""
    server = ZooKeeperServer(tmp_path)
    server.start()
    try:
        store = ZooKeeperStore(server.hosts, session_s=4, patience_s=60)
        store.write([Write(f"/k/{n}", b"%d" % n) for n in range(10)])
        pending = store.get_many([f"/k/{n}" for n in range(10)])
        assert next(pending)[0] == "/k/0"
        server.kill()
        with pytest.raises(OutcomeUnknownError):
            store.write([Write("/k/10", b"10")])
        server.start()
        assert store.children("/k") is not None
        held = store.get("/k/9")
        assert held is not None
        assert held.value == b"9"
        assert [key for key, _ in pending] == [f"/k/{n}" for n in range(1, 10)]
        store.close()
    finally:
        server.kill()


def test_a_server_that_reads_one_key_at_a_time(
    zookeeper_server: ZooKeeperServer, chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that does not know the request for many keys gets one for each, from then on."""
    monkeypatch.setattr(kazoo_client.MultiRead, "type", 77)
    store = ZooKeeperStore(zookeeper_server.hosts, chroot=chroot, session_s=4)
    store.write([Write(f"/k/{n}", b"%d" % n) for n in range(0, 500, 2)])
    for _ in range(2):
        found = [(key, held and held.value) for key, held in store.get_many(f"/k/{n}" for n in range(500))]
        assert found == [(f"/k/{n}", None if n % 2 else b"%d" % n) for n in range(500)]
    store.close()


def test_values_of_any_size_are_read_together(zookeeper_server: ZooKeeperServer, chroot: str) -> None:
    """No bytes and nearly a megabyte come back in one answer as they were written, each with its own version."""
    store = ZooKeeperStore(zookeeper_server.hosts, chroot=chroot)
    values = {f"/{size}": bytes(size) for size in (0, 1, 999, 900_000)}
    for key, value in values.items():
        store.write([Write(key, value)])
    store.write([Write("/1", b"2", 0)])
    found = {key: held and (held.value, held.version) for key, held in store.get_many([*values, "/none"])}
    assert found == {**{key: (value, 0) for key, value in values.items()}, "/1": (b"2", 1), "/none": None}
    store.close()


def test_who_closes_while_another_thread_closes_waits_for_it(zookeeper_server: ZooKeeperServer) -> None:
    """A thread that watches ends its connection just when the one that stops it does."""
    for _ in range(5):
        store = ZooKeeperStore(zookeeper_server.hosts, session_s=10)
        both = threading.Barrier(2)

        def close(store: ZooKeeperStore = store, both: threading.Barrier = both) -> None:
            both.wait()
            store.close()

        with ThreadPoolExecutor(2) as threads:
            for closing in [threads.submit(close) for _ in range(2)]:
                closing.result()


def test_a_limit_holds_for_every_kind_of_read(
    zookeeper_server: ZooKeeperServer, chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values, names and rights, one by one and many together; a limit that is kept takes its time."""
    counts: list[int] = []

    class CountingPace(Pace):
        def take(self, count: int) -> None:
            counts.append(count)
            super().take(count)

    monkeypatch.setattr("backends.zookeeper.reader.Pace", CountingPace)
    keys = [f"/key-{number:03d}" for number in range(50)]
    with closing(ZooKeeperStore(zookeeper_server.hosts, chroot=chroot, ops_s=1e9)) as store:
        store.write([Write(key, b"value") for key in keys])
        reads: list[tuple[Callable[[], object], int]] = [
            (lambda: store.get(keys[0]), 2),
            (lambda: list(store.get_many(keys)), 50),
            (lambda: store.children("/"), 1),
            (lambda: store.get_acl(keys[0]), 1),
            (lambda: list(store.get_acls(keys)), 50),
        ]
        for read, count in reads:
            counts.clear()
            read()
            assert sum(counts) == count
    with closing(ZooKeeperStore(zookeeper_server.hosts, chroot=chroot, ops_s=100)) as limited:
        began = time.monotonic()
        for _ in range(2):
            assert all(value is not None for _, value in limited.get_many(keys))
        assert time.monotonic() - began > 0.3
