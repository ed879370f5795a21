"""A live ZooKeeper that changes, fails and restarts while it is captured, and that nothing is written to by it."""

import itertools
import re
import subprocess
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl_credential

from backends.errors import ReadOnlyStoreError
from backends.protocols import Write
from backends.registry import OpenStore, open_store
from backends.zookeeper.store import ZooKeeperStore
from recovery.capture.live import capture
from recovery.capture.summary import CaptureSummary
from recovery.codecs import store
from recovery.codecs.store import Layout
from recovery.dataset import Dataset, DatasetWriter, open_dataset
from recovery.model.ids import LedgerId
from tests.recovery.capture.test_live import RECORD
from tests.support.failing_stores import Proxy
from tests.support.plans import clock
from tests.support.zookeeper_server import ZooKeeperServer, _jars, ensemble

pytestmark = [pytest.mark.long, pytest.mark.real]

_ROOTS = itertools.count()
COUNT = 30_000


@pytest.fixture
def root() -> str:
    """Return a root that no other test has."""
    return f"/capture-{next(_ROOTS)}/ledgers"


@pytest.fixture
def raw(zookeeper_server: ZooKeeperServer) -> Iterator[KazooClient]:
    """Return a plain client of another program."""
    client = KazooClient(zookeeper_server.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


def filled(hosts: str, root: str, ids: Iterable[int], layout: Layout = Layout.LONGHIERARCHICAL) -> None:
    """Write a cluster with ledgers."""
    made = ZooKeeperStore(hosts)
    if made.get(root + store.LAYOUT) is None:
        values = {store.LAYOUT: store.layout_bytes(layout), store.INSTANCE_ID: b"some-id"}
        made.write([Write(root + key, value) for key, value in values.items()])
    for some in _batched(ids, 500):
        made.write([Write(root + store.ledger_key(layout, LedgerId(0, n)), RECORD) for n in some])
    made.close()


def _batched(ids: Iterable[int], size: int) -> Iterator[tuple[int, ...]]:
    waiting = iter(ids)
    while some := tuple(itertools.islice(waiting, size)):
        yield some


def run(
    opened: OpenStore, folder: Path, known: list[pa.Table] | None = None, *, with_rights: bool = True
) -> tuple[CaptureSummary, Dataset]:
    """Capture an open store."""
    with opened, DatasetWriter(folder, "catalog", binding={}, secret=True) as out:
        named = Layout(opened.layout_hint) if opened.layout_hint else None
        summary = capture(
            opened.store, opened.root, named, out, clock=clock(), known=known or (), with_rights=with_rights
        )
    return summary, open_dataset(folder, "catalog")


def ids_of(dataset: Dataset) -> list[int]:
    """Return the ledgers of a catalog."""
    return sorted(dataset.read("ledgers", columns=["ledger"])["ledger"].to_pylist())


def test_a_capture_outlives_cuts_and_a_session(zookeeper_server: ZooKeeperServer, root: str, tmp_path: Path) -> None:
    """Answers that are cut at many places, and a session that the server forgets in the middle: nothing is missing."""
    filled(zookeeper_server.hosts, root, range(COUNT))
    with Proxy("127.0.0.1", zookeeper_server.port) as line:
        opened = open_store(f"zk://{line.hosts}{root}", session_s=10, patience_s=120)
        line.cut_answers([10_000, 7, 300_000, 1_000_000, 60_000, 500_000, 0, 90_000])
        summary, dataset = run(opened, tmp_path / "out")
        assert line.cuts > 8
    assert summary.complete
    assert ids_of(dataset) == list(range(COUNT))


def test_a_capture_outlives_a_restart(tmp_path: Path) -> None:
    """A server that is killed in the middle and comes back: the capture goes on where it was."""
    server = ZooKeeperServer(tmp_path / "server")
    server.start()
    try:
        filled(server.hosts, "/ledgers", range(COUNT))
        opened = open_store(f"zk://{server.hosts}/ledgers", session_s=10, patience_s=300)
        again = threading.Event()

        def restart(done: int, _total: int) -> None:
            if done > COUNT // 4 and not again.is_set():
                again.set()
                server.kill()
                server.start()

        with opened, DatasetWriter(tmp_path / "out", "catalog", binding={}, secret=True) as out:
            summary = capture(opened.store, "/ledgers", None, out, clock=clock(), progress=restart)
    finally:
        server.kill()
    assert again.is_set()
    assert summary.complete
    assert ids_of(open_dataset(tmp_path / "out", "catalog")) == list(range(COUNT))


def test_folders_that_come_and_go_end_no_listing(
    zookeeper_server: ZooKeeperServer, root: str, raw: KazooClient, tmp_path: Path
) -> None:
    """Empty folders, and ones that somebody tidies away while they are listed, cost no ledger of another folder."""
    ids = [n * 10_000 + k for n in range(300) for k in range(3)]
    filled(zookeeper_server.hosts, root, iter(ids))
    empty = [f"{root}/000/0000/0099/{n:04d}" for n in range(200)]
    for path in empty:
        raw.ensure_path(path)
    stop = threading.Event()

    def tidy() -> None:
        while not stop.is_set():
            for path in empty:
                raw.delete(path)
            for path in empty:
                raw.create(path)

    tidying = threading.Thread(target=tidy)
    tidying.start()
    try:
        summary, dataset = run(open_store(f"zk://{zookeeper_server.hosts}{root}"), tmp_path / "out")
    finally:
        stop.set()
        tidying.join()
    assert ids_of(dataset) == sorted(ids)
    assert summary.since_txn is not None
    assert summary.txn is not None
    assert summary.since_txn < summary.txn
    assert not [gap for gap in summary.gaps if "/0099" not in gap]


def test_ledgers_that_are_made_while_it_is_read(zookeeper_server: ZooKeeperServer, root: str, tmp_path: Path) -> None:
    """What was there before is all there; what comes meanwhile is in it or not, between the transactions it names."""
    filled(zookeeper_server.hosts, root, range(0, COUNT, 2))
    opened = open_store(f"zk://{zookeeper_server.hosts}{root}")
    writer = ZooKeeperStore(zookeeper_server.hosts)
    odd = iter(range(1, COUNT, 2))

    def more(_done: int, _total: int) -> None:
        keys = [root + store.ledger_key(Layout.LONGHIERARCHICAL, LedgerId(0, n)) for n in itertools.islice(odd, 50)]
        writer.write([Write(key, RECORD) for key in keys])

    with opened, DatasetWriter(tmp_path / "out", "catalog", binding={}, secret=True) as out:
        summary = capture(opened.store, opened.root, None, out, clock=clock(), progress=more)
    writer.close()
    assert summary.complete
    found = open_dataset(tmp_path / "out", "catalog").read("ledgers").to_pylist()
    assert {row["ledger"] for row in found} >= set(range(0, COUNT, 2))
    assert len({row["ledger"] for row in found}) == len(found)
    assert summary.since_txn is not None
    assert summary.txn is not None
    made = [row["created_txn"] for row in found if row["ledger"] % 2]
    assert all(summary.since_txn < txn <= summary.txn for txn in made)


def test_what_bookies_know_is_asked_for(zookeeper_server: ZooKeeperServer, root: str, tmp_path: Path) -> None:
    """A ledger that is there and that no listing names is in the catalog, and the listing is not believed."""
    filled(zookeeper_server.hosts, root, range(100))
    opened = open_store(f"zk://{zookeeper_server.hosts}{root}")
    hidden = root + "/000/0000/0000/0000"
    listed = opened.store.children

    def children(key: str) -> list[str] | None:
        names = listed(key)
        return names[:40] if key == hidden and names else names

    opened.store.children = children  # type: ignore[method-assign]  # a server whose listing ends early
    known = pa.table({"scope": pa.array([0] * 120), "ledger": pa.array(range(120))})
    summary, dataset = run(opened, tmp_path / "out", [known, known])
    assert ids_of(dataset) == list(range(100))
    assert not summary.complete
    assert len(summary.gaps) == 60
    assert (
        summary.gaps[0] == "/000/0000/0000/0000/L0040: is there, and no listing named it: what else a listing left "
        "out is not known"
    )


def test_below_a_folder_that_is_absent_nothing_is_asked_for(
    zookeeper_server: ZooKeeperServer, root: str, tmp_path: Path
) -> None:
    """One question answers for all of a folder that is not there; one that no listing names is looked into."""
    filled(zookeeper_server.hosts, root, [*range(100), *range(10_000, 10_010)])
    opened = open_store(f"zk://{zookeeper_server.hosts}{root}")
    above, listed, read = root + "/000/0000/0000", opened.store.children, opened.store.get_many
    asked: list[str] = []

    def children(key: str) -> list[str] | None:
        names = listed(key)
        return [name for name in names if name != "0001"] if key == above and names else names

    def get_many(keys: Iterable[str]) -> Iterator[tuple[str, Any]]:
        asked.extend(wanted := [*keys])
        return read(wanted)

    opened.store.children = children  # type: ignore[method-assign]  # a server whose listing leaves a folder out
    opened.store.get_many = get_many  # type: ignore[method-assign]  # counts what is asked for
    known = pa.table({"scope": pa.array([0] * 20_000), "ledger": pa.array([*range(5_000), *range(10_000, 25_000)])})
    summary, dataset = run(opened, tmp_path / "out", [known])
    assert ids_of(dataset) == [*range(100), *range(10_000, 10_010)]
    assert len(summary.gaps) == 10
    folders = Counter(key.rpartition("/L")[0] for key in asked if "/L" in key and key.startswith(above))
    assert folders == {f"{above}/0000": 5_000, f"{above}/0001": 10_000}


def test_rights_of_every_ledger_are_kept(
    zookeeper_server: ZooKeeperServer, root: str, raw: KazooClient, tmp_path: Path
) -> None:
    """Rights come as anybody who owns them sees them; to others a server shows no digest, and then none is kept."""
    mine = f"digest:{make_digest_acl_credential('bob', 'pw')}:cdrwa"
    filled(zookeeper_server.hosts, root, range(50))
    owner = ZooKeeperStore(zookeeper_server.hosts, auth=("bob", "pw"))
    for n in range(50, 60):
        key = root + store.ledger_key(Layout.LONGHIERARCHICAL, LedgerId(0, n))
        owner.write([Write(key, RECORD, acl=f"{mine},world:anyone:r")])
    owner.close()
    uri = f"zk://{zookeeper_server.hosts}{root}"
    summary, dataset = run(open_store(uri, auth=("bob", "pw")), tmp_path / "mine")
    rights = {row["ledger"]: row["acl"] for row in dataset.read("ledgers").to_pylist()}
    assert rights == {n: "world:anyone:cdrwa" if n < 50 else f"{mine},world:anyone:r" for n in range(60)}
    assert not summary.notes
    summary, dataset = run(open_store(uri), tmp_path / "theirs")
    rights = {row["ledger"]: row["acl"] for row in dataset.read("ledgers").to_pylist()}
    assert rights == {n: "world:anyone:cdrwa" if n < 50 else None for n in range(60)}
    assert any("ACLs of 10 records" in note for note in summary.notes)
    assert summary.complete
    summary, dataset = run(open_store(uri, auth=("bob", "pw")), tmp_path / "without", with_rights=False)
    assert dataset.read("ledgers")["acl"].null_count == dataset.rows("ledgers") == 60
    assert summary.notes == ("the ACLs of ledgers were not asked for",)
    assert {row["acl"] for row in dataset.read("nodes").to_pylist()} == {"world:anyone:cdrwa"}


def test_nothing_is_written_and_nothing_can_be(tmp_path: Path) -> None:
    """By the server's own log a capture opens and closes sessions, no more; its client refuses to write."""
    server = ZooKeeperServer(tmp_path / "server")
    server.start()
    try:
        filled(server.hosts, "/ledgers", range(1_000))
        opened = open_store(f"zk://{server.hosts}/ledgers")
        summary, _ = run(opened, tmp_path / "out")
        assert summary.since_txn is not None
        again = open_store(f"zk://{server.hosts}/ledgers")
        _require_no_way_to_write(again)
        again.store.close()
        made = _logged(server, summary.since_txn - 2)  # its own two sessions are opened just before
    finally:
        server.kill()
    assert set(made) <= {"createSession", "closeSession"}
    assert made


def _require_no_way_to_write(opened: OpenStore) -> None:
    """Look at everything that can be reached from a store that was opened for reading."""
    seen: set[int] = set()
    todo: list[object] = [opened.store]
    clients = []
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        assert not isinstance(one, ZooKeeperStore)
        if isinstance(one, KazooClient):
            clients.append(one)
        if type(one).__module__.partition(".")[0] in ("backends", "kazoo"):
            todo += list(vars(one).values()) if hasattr(one, "__dict__") else []
    assert clients
    for client in clients:
        changes: list[Any] = [
            lambda c=client: c.create("/written", b""),
            lambda c=client: c.set("/ledgers", b""),
            lambda c=client: c.delete("/ledgers"),
            lambda c=client: c.set_acls("/ledgers", []),
            lambda c=client: c.transaction().commit(),
        ]
        for change in changes:
            with pytest.raises(ReadOnlyStoreError):
                change()
    for change in (
        lambda: opened.store.write([Write("/written", b"")]),
        lambda: opened.store.raise_counter("/ledgers", 7),
    ):
        with pytest.raises(ReadOnlyStoreError):
            change()


def _logged(server: ZooKeeperServer, after: int) -> list[str]:
    """Return the kinds of transactions in a server's log after one, as ZooKeeper's own tool names them."""
    found = []
    for log in sorted((server.data_dir / "version-2").glob("log.*")):
        command = [
            "java",
            "-cp",
            f"{_jars()}/*",
            "org.apache.zookeeper.server.persistence.TxnLogToolkit",
            "-d",
            str(log),
        ]
        shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        for zxid, kind in re.findall(r"zxid 0x([0-9a-f]+) (\w+)", shown):
            if int(zxid, 16) > after:
                found.append(kind)
    return found


def test_scopes_stand_where_the_pages_say(
    zookeeper_server: ZooKeeperServer, root: str, raw: KazooClient, tmp_path: Path
) -> None:
    """Records below the documented keys are captured with their ids; what is written here stands at the same keys."""
    documented = {
        LedgerId(7, 9_999): "/scoped/0000/0000/0000/0007/0000/0000/0000/L270f",
        LedgerId(-1, -1): "/scoped/ffff/ffff/ffff/ffff/ffff/ffff/ffff/Lffff",
        LedgerId(0, 9_999): "/000/0000/0000/0000/L9999",
    }
    for below in documented.values():
        raw.create(root + below, RECORD, makepath=True)
    raw.create(root + store.LAYOUT, store.layout_bytes(Layout.LONGLONGHIERARCHICAL))
    raw.set(root + "/scoped", b"1\nlonglonghierarchical:hex4x8")
    for uri in (f"zk+longlonghierarchical://{zookeeper_server.hosts}{root}", f"zk://{zookeeper_server.hosts}{root}"):
        summary, dataset = run(open_store(uri), tmp_path / uri.partition(":")[0])
        assert summary.complete
        found = {LedgerId(row["scope"], row["ledger"]) for row in dataset.read("ledgers").to_pylist()}
        assert found == set(documented)
    other = f"{root}-written"
    with open_store(f"zk+longlonghierarchical://{zookeeper_server.hosts}{other}", writable=True) as opened:
        keys = [other + store.ledger_key(Layout.LONGLONGHIERARCHICAL, ledger) for ledger in documented]
        opened.store.write([Write(key, RECORD) for key in keys])
    assert all(raw.get(other + below)[0] == RECORD for below in documented.values())


def test_containers_and_nodes_with_a_life_are_kept(tmp_path: Path) -> None:
    """Folders that are containers are folders, and a node that lives for a time is in the catalog."""
    server = ZooKeeperServer(tmp_path / "server", options=["-Dzookeeper.extendedTypesEnabled=true"])
    server.start()
    try:
        filled(server.hosts, "/ledgers", range(3))
        main = ["java", "-cp", f"{_jars()}/*", "org.apache.zookeeper.ZooKeeperMain", "-server", server.hosts]
        orders = "create -c /ledgers/001\ncreate -c /ledgers/box\ncreate -t 100000000 /ledgers/box/brief\nquit\n"
        subprocess.run(main, input=orders, text=True, check=True, capture_output=True)
        filled(server.hosts, "/ledgers", range(10**16, 10**16 + 3))
        summary, dataset = run(open_store(f"zk://{server.hosts}/ledgers"), tmp_path / "out")
    finally:
        server.kill()
    assert summary.complete
    assert ids_of(dataset) == [0, 1, 2, *range(10**16, 10**16 + 3)]
    kinds = {row["path"]: row["kind"] for row in dataset.read("nodes").to_pylist()}
    assert (kinds["/box"], kinds["/box/brief"]) == ("other", "other")


def test_an_ensemble_that_loses_its_leader(tmp_path: Path) -> None:
    """Three servers, one of which dies in the middle: another one answers, and nothing is missing."""
    with ensemble(tmp_path) as servers:
        hosts = ",".join(server.hosts for server in servers)
        filled(hosts, "/ledgers", range(COUNT))
        opened = open_store(f"zk+longhierarchical://{hosts}/ledgers", session_s=10, patience_s=300)
        killed = threading.Event()

        def kill(done: int, _total: int) -> None:
            if done > COUNT // 4 and not killed.is_set():
                killed.set()
                servers[0].kill()
                servers[1].kill()
                servers[1].start()

        with opened, DatasetWriter(tmp_path / "out", "catalog", binding={}, secret=True) as out:
            summary = capture(opened.store, "/ledgers", None, out, clock=clock(), progress=kill)
    assert killed.is_set()
    assert summary.complete
    assert ids_of(open_dataset(tmp_path / "out", "catalog")) == list(range(COUNT))
