"""etcd keeps every promise of a store, also while its connection is troubled; and what is particular to it."""

import logging
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backends.errors import (
    AccessDeniedError,
    CompactedError,
    NotEmptyError,
    ReadOnlyStoreError,
    TooLargeError,
    UnavailableError,
    UnsupportedStoreError,
)
from backends.etcd import pages, rpc
from backends.etcd.store import EtcdStore
from backends.pace import Pace
from backends.protocols import MetadataStore, StoreTls, WatchableStore, Write
from backends.registry import open_store
from recovery.capture.live import capture
from recovery.capture.summary import CaptureSummary
from recovery.codecs.store import Layout
from recovery.dataset import DatasetWriter
from tests.support.certificates import authority, signed
from tests.support.etcd_server import EtcdServer
from tests.support.failing_stores import Proxy
from tests.support.store_contracts import FaultContract, MetadataStoreContract, Troubled, WatchableStoreContract

pytestmark = pytest.mark.real


class TestEtcd(MetadataStoreContract):
    """A real etcd."""

    CHILDREN_COUNT = False

    @pytest.fixture
    def store(self, etcd_server: EtcdServer) -> Iterator[MetadataStore]:
        """Return an empty store."""
        etcd_server.wipe()
        opened = EtcdStore(etcd_server.hosts, session_s=10)
        yield opened
        opened.close()


class TestEtcdWatched(WatchableStoreContract):
    """A real etcd."""

    @pytest.fixture
    def store(self, etcd_server: EtcdServer) -> Iterator[WatchableStore]:
        """Return an empty store."""
        etcd_server.wipe()
        opened = EtcdStore(etcd_server.hosts, session_s=10)
        yield opened
        opened.close()


class TestEtcdInTrouble(FaultContract):
    """A real etcd behind a line that fails."""

    @pytest.fixture
    def troubled(self, etcd_server: EtcdServer) -> Iterator[Troubled]:
        """Return an empty store on a line."""
        etcd_server.wipe()
        other = EtcdStore(etcd_server.hosts)
        with Proxy("127.0.0.1", etcd_server.port) as proxy:
            store = EtcdStore(proxy.hosts, patience_s=120)
            impatient = EtcdStore(proxy.hosts, patience_s=4)
            yield Troubled(store, proxy, other, impatient)
            impatient.close()
            store.close()
        other.close()


def id_key(number: int) -> str:
    """Return the key of a 128-bit id."""
    return f"/s/ledgers/{uuid.UUID(int=number)}"


def test_reads_keep_to_a_limit(etcd_server: EtcdServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each key counts: of single reads, of a scan's pages, and of what is remembered of the past."""
    etcd_server.wipe()
    counts: list[int] = []

    class CountingPace(Pace):
        def take(self, count: int) -> None:
            counts.append(count)
            super().take(count)

    monkeypatch.setattr("backends.etcd.store.Pace", CountingPace)
    with closing(EtcdStore(etcd_server.hosts, session_s=10, ops_s=1e9)) as store:
        keys = [f"/ledgers/key-{number:03d}" for number in range(50)]
        store.write([Write(key, b"value") for key in keys])
        for read, least in (
            (lambda: [value for _, value in store.get_many(keys)], 50),
            (lambda: list(store.scan("/ledgers")), 51),
            (lambda: list(store.history("/ledgers")), 51),
        ):
            counts.clear()
            read()
            assert sum(counts) >= least
    limited = EtcdStore(etcd_server.hosts, session_s=10, ops_s=100)
    began = time.monotonic()
    assert all(value is not None for _, value in limited.get_many(keys))
    assert time.monotonic() - began > 0.3
    limited.close()


def test_windows_of_ids_meet_every_key_once(etcd_server: EtcdServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dense ids, thin ones, other scopes, the last id of all, and names that are no ids: each is scanned once."""
    monkeypatch.setattr(pages, "PAGE", 16)
    etcd_server.wipe()
    store = EtcdStore(etcd_server.hosts)
    numbers = [
        *range(100),
        *(b << 56 | n for b in (3, 4, 127) for n in range(1, 40)),
        *(n * n << 40 for n in range(50)),
    ]
    numbers += [
        (1 << 63) - 1,
        1 << 63,
        (1 << 64) - 1,
        1 << 64 | 5,
        *(7 << 64 | n * 1000 for n in range(60)),
        (1 << 128) - 1,
    ]
    strays = [
        "/s",
        "/s/cookies/b1",
        "/s/ledgers",
        "/s/ledgers-x",
        "/s/ledgers/",
        "/s/ledgers/zzz",
        "/s/ledgers/00",
        "/s0",
    ]
    strays += [f"{id_key(50)}x", f"{id_key(3 << 56 | 39)}/below", f"{id_key((1 << 128) - 1)}~", "/s/layout", "/sx/y"]
    wanted = sorted({*map(id_key, numbers), *strays})
    for at in range(0, len(wanted), 60):
        for key in wanted[at : at + 60]:
            etcd_server.put(key, key.encode())
    found = [key for batch in store.scan("/s") for key in batch["key"].to_pylist()]
    assert sorted(found) == [key for key in wanted if key == "/s" or key.startswith("/s/")]
    assert sorted(store.children("/s/ledgers") or ()) == sorted(
        {key.split("/")[3] for key in wanted if key.startswith("/s/ledgers/")} - {""}
    )
    store.close()


def test_large_values_beside_the_ledgers_come_a_few_at_a_time(etcd_server: EtcdServer) -> None:
    """A node of tombstones has half a MiB: no answer has more than 32 of them, while ledgers come by thousands."""
    etcd_server.wipe()
    store = EtcdStore(etcd_server.hosts)
    large, small = [f"/s/tombstones/t{n:04}" for n in range(70)], [id_key(n) for n in range(100)]
    for at in range(0, 70, 35):
        store.write([Write(key, b"x") for key in large[at : at + 35]])
    store.write([Write(key, b"x") for key in small[:50]])
    store.write([Write(key, b"x") for key in small[50:]])
    batches = [batch["key"].to_pylist() for batch in store.scan("/s")]
    assert {*small, *large} <= {key for batch in batches for key in batch}
    assert max(len(batch) for batch in batches if {*batch} & {*large}) == 32
    assert [len(batch) for batch in batches if batch[0] in small] == [100]
    store.close()


@pytest.mark.parametrize(("size", "most"), [(500, 22), (0, 160), (8_000, 10)])
def test_pages_hold_as_many_bytes_as_the_first_one_tells(
    size: int, most: int, etcd_server: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small records come by more keys at once than large ones, within bounds, and each comes once."""
    monkeypatch.setattr(pages, "PAGE", 40)
    monkeypatch.setattr(pages, "PAGE_BYTES", 12_000)
    etcd_server.wipe()
    store = EtcdStore(etcd_server.hosts)
    for at in range(0, 400, 50):
        store.write([Write(id_key(n), b"x" * size) for n in range(at, at + 50)])
    first, *others = [batch["key"].to_pylist() for batch in store.scan("/s") if batch["key"][0].as_py() >= id_key(0)]
    assert sorted([*first, *(key for batch in others for key in batch)]) == [id_key(n) for n in range(400)]
    assert len(first) == 40
    assert most // 2 < max(map(len, others)) <= most
    store.close()


def test_what_is_written_during_a_scan_is_not_in_it(etcd_server: EtcdServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan shows one revision: what was deleted meanwhile is there, what was created is not."""
    monkeypatch.setattr(pages, "PAGE", 8)
    etcd_server.wipe()
    store = EtcdStore(etcd_server.hosts)
    for n in range(100):
        etcd_server.put(id_key(n))
    point = store.point()
    scan = store.scan("/s")
    first = next(scan)
    etcd_server.delete(id_key(99))
    etcd_server.put(id_key(100))
    found = {key for batch in [first, *scan] for key in batch["key"].to_pylist()}
    assert found == {id_key(n) for n in range(100)}
    assert store.point() == point
    assert store.get(id_key(99)) is None
    store.close()


def test_a_compaction_during_a_scan_is_said(etcd_server: EtcdServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan or a history whose revision is gone ends with an error of its own, never with another revision's keys."""
    monkeypatch.setattr(pages, "PAGE", 8)
    etcd_server.wipe()
    for n in range(100):
        etcd_server.put(id_key(n))
    store = EtcdStore(etcd_server.hosts)
    scan = store.scan("/s")
    next(scan)
    etcd_server.compact(etcd_server.put("/s/later"))
    with pytest.raises(CompactedError):
        list(scan)
    with pytest.raises(CompactedError):
        list(store.history("/s"))
    store.close()
    again = EtcdStore(etcd_server.hosts)
    assert sum(batch.num_rows for batch in again.scan("/s")) == 101
    assert list(again.history("/s")) == []
    assert any("compacted" in note for note in again.point().notes)
    again.close()


def test_a_scan_and_its_history_outlive_their_connection(
    etcd_server: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both go on after cuts where they were: every key and every change once, at the same revision."""
    monkeypatch.setattr(pages, "PAGE", 50)
    etcd_server.wipe()
    base = EtcdStore(etcd_server.hosts)
    for at in range(0, 2_000, 100):
        base.write([Write(id_key(n), b"x" * 500) for n in range(at, at + 100)])
    base.close()
    with Proxy("127.0.0.1", etcd_server.port) as proxy:
        store = EtcdStore(proxy.hosts, patience_s=120)
        since = store.point().txn
        scan = store.scan("/s/ledgers")
        found = [next(scan)]
        proxy.cut_answers([0, 5_000, 30_000])
        found += scan
        names = [key for batch in found for key in batch["key"].to_pylist()]
        assert sorted(names) == ["/s/ledgers", *map(id_key, range(2_000))]
        proxy.cut_answers([0, 3_000, 40_000])
        changes = [key for batch in store.history("/s/ledgers") for key in batch["key"].to_pylist()]
        assert set(changes[-2_001:]) == set(names)
        assert changes.count(id_key(1_999)) == changes[:-2_001].count(id_key(1_999)) + 1
        assert store.point().txn == since
        store.close()


def test_an_answer_about_the_past_is_read_in_parts(etcd_server: EtcdServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large values, several changes of one revision among them: every change once, in its order, however it is cut."""
    etcd_server.wipe()
    with closing(EtcdStore(etcd_server.hosts)) as store:
        versions: list[int | None] = [None] * 9
        for number in range(5):
            values = [bytes([number]) * 70_000] * 9
            versions = list(store.write([Write(id_key(n), values[n], versions[n]) for n in range(9)]))
        store.write([Write(id_key(n), None, versions[n]) for n in range(4)])
        whole = list(store.history("/s"))
        monkeypatch.setattr(pages, "_PART_BYTES", 100_000)
        parts = list(store.history("/s"))
    read = [row for batch in parts for row in batch.to_pylist()]
    assert read == [row for batch in whole for row in batch.to_pylist()]
    assert [row["op"] for row in read].count("changed") == 4 * 9
    assert len(parts) > len(whole)
    assert max(batch.nbytes for batch in parts) < 500_000 < max(batch.nbytes for batch in whole)


def test_a_registration_shows_its_lease(etcd_server: EtcdServer) -> None:
    """A key that lives with a lease is told from a permanent one, and goes with it."""
    etcd_server.wipe()
    lease = etcd_server.call("Lease", "LeaseGrant", rpc.LeaseGrantRequest(TTL=600)).ID
    etcd_server.put("/s/bookies/writable/b1:3181", lease=lease)
    store = EtcdStore(etcd_server.hosts)
    held = store.get("/s/bookies/writable/b1:3181")
    assert held is not None
    assert held.owner == lease
    assert store.raise_counter("/s/bookies/writable/b1:3181", 5) == 6
    held = store.get("/s/bookies/writable/b1:3181")
    assert held is not None
    assert held.owner == lease
    etcd_server.call("Lease", "LeaseRevoke", rpc.LeaseRevokeRequest(ID=lease))
    assert store.get("/s/bookies/writable/b1:3181") is None
    store.close()


def test_nothing_is_made_above_the_top(etcd_server: EtcdServer) -> None:
    """BookKeeper makes no key above its root, and neither do we."""
    etcd_server.wipe()
    store = EtcdStore(etcd_server.hosts, top="/bk/c1")
    store.write([Write("/bk/c1/ledgers/x", b"")])
    assert sorted(etcd_server.dump("/")) == ["/bk/c1", "/bk/c1/ledgers", "/bk/c1/ledgers/x"]
    assert (store.get("/bk"), store.children("/bk")) == (None, ["c1"])
    store.close()


def test_more_than_a_transaction_holds_is_refused_by_name(etcd_server: EtcdServer) -> None:
    """More changes than the server takes at once are one clear error, and nothing is written."""
    etcd_server.wipe()
    store = EtcdStore(etcd_server.hosts)
    with pytest.raises(TooLargeError):
        store.write([Write(f"/many/{n}", b"") for n in range(200)])
    assert store.children("/many") in ([], None)
    store.close()


def test_children_are_removed_with_their_parent(etcd_server: EtcdServer) -> None:
    """One transaction takes a tree, unless somebody put something into it meanwhile."""
    etcd_server.wipe()
    store = EtcdStore(etcd_server.hosts)
    versions = store.write([Write("/p", b""), Write("/p/a", b""), Write("/p/b", b"")])
    tree = [Write(key, None, v) for key, v in zip(("/p/a", "/p/b", "/p"), versions, strict=True)]
    etcd_server.put("/p/c")
    with pytest.raises(NotEmptyError):
        store.write(tree)
    etcd_server.delete("/p/c")
    with pytest.raises(NotEmptyError):
        store.write([*tree, Write("/p/new", b"")])
    assert store.write(tree) == [-1, -1, -1]
    assert etcd_server.dump("/") == {}
    store.close()


def test_ledgers_below_a_root_that_is_gone_are_not_lost(etcd_server: EtcdServer, tmp_path: Path) -> None:
    """Keys are flat: without the root's own key a capture still has what stands below it, and never says empty."""
    etcd_server.wipe()
    for n in range(3):
        etcd_server.put(id_key(n), b"no record")
    with (
        open_store(f"etcd://{etcd_server.hosts}/s") as opened,
        DatasetWriter(tmp_path / "out", "catalog", binding={}, secret=True) as out,
    ):
        summary = capture(opened.store, opened.root, Layout.ETCD, out, clock=lambda: datetime.now(UTC))
    assert (summary.root, summary.ledgers, summary.unparsable) == ("present", 3, 3)


def test_another_endpoint_is_asked_where_one_is_away(etcd_server: EtcdServer) -> None:
    """Of several endpoints one that answers is enough."""
    etcd_server.wipe()
    with Proxy("127.0.0.1", etcd_server.port) as proxy:
        store = EtcdStore(f"{proxy.hosts},{etcd_server.hosts}", patience_s=120)
        [version] = store.write([Write("/k", b"v")])
        proxy.down()
        held = store.get("/k")
        assert held is not None
        assert held.version == version
        store.close()


def test_endpoints_of_two_clusters_are_refused(etcd_server: EtcdServer, tmp_path: Path) -> None:
    """Keys of two clusters are never mixed: the second one's answers are an error."""
    other = EtcdServer(tmp_path, "--initial-cluster-token", "another")
    other.start()
    try:
        with Proxy("127.0.0.1", etcd_server.port) as proxy:
            store = EtcdStore(f"{proxy.hosts},{other.hosts}")
            proxy.down()
            with pytest.raises(AccessDeniedError, match="two clusters"):
                store.get("/k")
            store.close()
    finally:
        other.kill()


def test_who_does_not_answer_is_named(etcd_server: EtcdServer) -> None:
    """A server that is not there, or that speaks something else, is one clear error."""
    with socket.create_server(("127.0.0.1", 0)) as unheard:
        port = unheard.getsockname()[1]
        with pytest.raises(UnavailableError, match=str(port)):
            EtcdStore(f"127.0.0.1:{port}", session_s=0.2, patience_s=0.2)
    with pytest.raises(UnsupportedStoreError, match="future revision"):
        EtcdStore(etcd_server.hosts, revision=1 << 60)


def test_the_past_is_only_shown(etcd_server: EtcdServer) -> None:
    """A store at a revision shows what was there then by every read, and writes nothing."""
    etcd_server.wipe()
    at = etcd_server.put("/s/old", b"1")
    etcd_server.put("/s/old", b"2")
    etcd_server.put("/s/new")
    store = EtcdStore(etcd_server.hosts, revision=at)
    held = store.get("/s/old")
    assert held is not None
    assert (held.value, store.children("/s"), store.point().txn) == (b"1", ["old"], at)
    assert [key for key, held in store.get_many(["/s/old", "/s/new"]) if held] == ["/s/old"]
    assert [key for batch in store.scan("/s") for key in batch["key"].to_pylist()] == ["/s/old"]
    with pytest.raises(ReadOnlyStoreError):
        store.write([Write("/s/x", b"")])
    with pytest.raises(ReadOnlyStoreError):
        store.raise_counter("/s/x", 1)
    store.close()


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[tuple[EtcdServer, Path]]:
    """A server that wants client certificates and users, and the folder of certificates."""
    for name in ("ca", "foreign"):
        authority(tmp_path, name)
    for name in ("server", "client"):
        signed(tmp_path, name, "ca")
    options = ["--cert-file", "server.crt", "--key-file", "server.key", "--trusted-ca-file", "ca.crt"]
    options = [str(tmp_path / option) if not option.startswith("--") else option for option in options]
    server = EtcdServer(tmp_path, *options, "--client-cert-auth", scheme="https")
    server.start()
    try:
        yield server, tmp_path
    finally:
        server.kill()


def test_tls_and_users(secured: tuple[EtcdServer, Path], caplog: pytest.LogCaptureFixture) -> None:
    """Who has no right certificate or password is refused by name; rights are obeyed; nothing is logged."""
    server, folder = secured
    tls = StoreTls(ca=str(folder / "ca.crt"), cert=str(folder / "client.crt"), key=str(folder / "client.key"))
    files = ("--cacert", tls.ca, "--cert", tls.cert, "--key", tls.key)

    def etcdctl(*words: str) -> None:
        server.etcdctl(*[str(one) for one in files], *words)

    etcdctl("user", "add", "root:toor")
    etcdctl("user", "grant-role", "root", "root")
    etcdctl("user", "add", "bob:hunter2")
    etcdctl("role", "add", "bk")
    etcdctl("role", "grant-permission", "bk", "--prefix=true", "readwrite", "/bk")
    etcdctl("user", "grant-role", "bob", "bk")
    etcdctl("auth", "enable")
    caplog.set_level(logging.DEBUG)
    bob = EtcdStore(server.hosts, top="/bk/c1", tls=tls, auth=("bob", "hunter2"), session_s=10)
    [version] = bob.write([Write("/bk/c1/k", b"v")])
    assert [key for batch in bob.scan("/bk/c1") for key in batch["key"].to_pylist()] == ["/bk/c1", "/bk/c1/k"]
    with pytest.raises(AccessDeniedError) as refused:
        bob.get("/secret")
    assert refused.value.key == "/secret"
    with pytest.raises(AccessDeniedError):
        list(bob.history("/bk/c1"))
    assert not any("history" in note for note in bob.point().notes)
    with pytest.raises(AccessDeniedError):
        bob.write([Write("/bk/c1/k", b"w", version), Write("/secret", b"")])
    # A change of users makes every token old.
    etcdctl("--user", "root:toor", "user", "add", "eve:x")
    assert bob.write([Write("/bk/c1/k", b"w", version)]) > [version]
    held = bob.get("/bk/c1/k")
    assert held is not None
    assert held.value == b"w"
    bob.close()
    root = EtcdStore(server.hosts, tls=tls, auth=("root", "toor"), session_s=10)
    assert sum(batch.num_rows for batch in root.history("/bk/c1")) == 3
    root.close()
    with pytest.raises(AccessDeniedError):
        EtcdStore(server.hosts, tls=tls, auth=("bob", "wrong"), session_s=5, patience_s=5)
    with pytest.raises(AccessDeniedError):
        EtcdStore(server.hosts, top="/bk/c1", tls=tls, session_s=5, patience_s=5)
    foreign = StoreTls(ca=str(folder / "foreign.crt"), cert=tls.cert, key=tls.key)
    for wrong in (None, foreign, StoreTls(ca=tls.ca)):
        with pytest.raises(UnavailableError):
            EtcdStore(server.hosts, tls=wrong, auth=("bob", "hunter2"), session_s=1, patience_s=1)
    with pytest.raises(AccessDeniedError, match="cannot be read"):
        EtcdStore(server.hosts, tls=StoreTls(ca=str(folder / "missing.pem")))
    assert "hunter2" not in caplog.text


def test_who_may_read_one_prefix_captures_all_but_the_past(tmp_path: Path) -> None:
    """Only who may read every key is shown the past: a capture by another one is whole, and says so in a note."""
    server = EtcdServer(tmp_path)
    server.start()
    try:
        server.put("/bk/c1")
        for n in range(3):
            server.put(f"/bk/c1{id_key(n)[2:]}", b"no record")
        for words in (
            "user add root:toor",
            "user grant-role root root",
            "user add bob:hunter2",
            "role add bk",
            "role grant-permission bk --prefix=true read /bk/c1",
            "user grant-role bob bk",
            "auth enable",
        ):
            server.etcdctl(*words.split())

        def captured(name: str, auth: tuple[str, str]) -> CaptureSummary:
            store = EtcdStore(server.hosts, top="/bk/c1", auth=auth)
            with (
                closing(store),
                DatasetWriter(tmp_path / name, "catalog", binding={}, secret=True) as out,
            ):
                return capture(store, "/bk/c1", Layout.ETCD, out, clock=lambda: datetime.now(UTC))

        limited = captured("limited", ("bob", "hunter2"))
        assert (limited.complete, limited.ledgers, limited.changes, limited.gaps) == (True, 3, 0, ())
        assert any("history is not in it" in note for note in limited.notes)
        assert not any("whole" in note for note in limited.notes)
        whole = captured("whole", ("root", "toor"))
        assert (whole.ledgers, whole.changes, whole.txn) == (3, 3, limited.txn)
        assert any("history is whole" in note for note in whole.notes)
        # What was compacted is past, too.
        server.etcdctl("--user", "root:toor", "compact", str(limited.txn))
        again = captured("compacted", ("bob", "hunter2"))
        assert (again.complete, again.ledgers, again.notes) == (True, 3, limited.notes)
    finally:
        server.kill()
