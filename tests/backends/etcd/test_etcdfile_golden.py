"""The keys of a real cluster on etcd: read from its snapshot, written by us, and shown by etcd's own tools."""

import base64
import functools
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from backends.errors import CorruptStoreError, NoSuchStoreError, ReadOnlyStoreError, UnsupportedStoreError
from backends.etcd.etcdfile import EtcdFile
from backends.etcd.store import EtcdStore
from backends.protocols import CHANGES, KEYS, ScannableStore, Write
from backends.registry import open_store
from recovery.capture.live import capture
from recovery.codecs import cookie, ledger_record, store
from recovery.codecs.store import Layout
from recovery.dataset import DatasetWriter, open_dataset
from recovery.model.ids import LedgerId
from tests.support import paths
from tests.support.etcd_server import EtcdServer, etcdutl, lines_of

DATA = paths.DATA / "etcd"
SNAPSHOT = DATA / "final.db"
ROOT = "/bk/c1"
REVISION = 676


def keys_of(opened: ScannableStore) -> dict[str, tuple[Any, ...]]:
    """Return what a scan shows of each key."""
    table = pa.Table.from_batches(opened.scan(ROOT), schema=KEYS)
    columns = ("key", "value", "created_txn", "changed_txn", "version", "children_created", "owner")
    rows = list(zip(*(table[name].to_pylist() for name in columns), strict=True))
    assert len({row[0] for row in rows}) == len(rows), "a key comes twice"
    return {row[0]: row[1:] for row in rows}


def history_of(opened: ScannableStore) -> list[dict[str, Any]]:
    """Return what is remembered."""
    return list(pa.Table.from_batches(opened.history(ROOT), schema=CHANGES).to_pylist())


@functools.cache
def dumped(name: str) -> dict[str, tuple[Any, ...]]:
    """Return the lines of a dump as a scan shows them."""
    return {
        line["key"]: (
            base64.b64decode(line["value"]),
            line["create_revision"],
            line["mod_revision"],
            line["mod_revision"],
            line["version"] + 1,
            line["lease"],
        )
        for line in lines_of(DATA / f"{name}.jsonl")
    }


def etcd_keys(server: EtcdServer, prefix: str, revision: int = 0) -> dict[str, tuple[Any, ...]]:
    """Return the keys with a prefix as etcd's own client shows them."""
    at = [f"--rev={revision}"] if revision else []
    found = json.loads(server.etcdctl("get", "--prefix", prefix, "-w", "json", *at)).get("kvs", ())
    return {
        base64.b64decode(kv["key"]).decode(): (
            base64.b64decode(kv.get("value", "")),
            kv["create_revision"],
            kv["mod_revision"],
            kv["mod_revision"],
            kv["version"] + 1,
            kv.get("lease", 0),
        )
        for kv in found
    }


def test_the_snapshot_is_the_dump() -> None:
    """Every key of the cluster with value, revisions, writes and lease; nothing else."""
    opened = EtcdFile(SNAPSHOT)
    assert opened.point().txn == REVISION
    assert opened.point().gaps == ()
    assert keys_of(opened) == dumped("final")


def test_the_snapshot_remembers_the_beginning() -> None:
    """At revision 2 it shows exactly what initialising the cluster had made."""
    assert keys_of(EtcdFile(SNAPSHOT, revision=2)) == dumped("after-init")


def test_history_leads_to_what_is_there() -> None:
    """All writes in order, from nothing, give the keys and values at the end; what came before each is known."""
    now: dict[str, bytes] = {}
    last = 0
    for change in history_of(EtcdFile(SNAPSHOT)):
        assert change["txn"] >= last
        last = change["txn"]
        assert change["before"] == now.get(change["key"])
        assert (change["op"] == "created") == (change["key"] not in now)
        if change["op"] == "deleted":
            del now[change["key"]]
        else:
            now[change["key"]] = change["after"]
    assert now == {key: row[0] for key, row in dumped("final").items()}


def test_a_snapshot_is_opened_by_its_uri() -> None:
    """The root is found where there is one cluster, or named; writes raise, and what cannot be shown is refused."""
    with open_store(f"etcdfile://{SNAPSHOT}") as opened:
        assert (opened.root, opened.layout_hint) == (ROOT, "etcd")
        assert opened.store.children(ROOT + "/bookies/writable") == ["127.0.0.1:25006", "127.0.0.1:25007"]
        assert opened.store.children("/nowhere") is None
        held = opened.store.get(f"{ROOT}/instanceid")
        assert held is not None
        assert held.value == dumped("final")[f"{ROOT}/instanceid"][0]
        with pytest.raises(ReadOnlyStoreError):
            opened.store.write([Write(f"{ROOT}/x", b"")])
    with open_store(f"etcdfile://{SNAPSHOT}?root=/other", at="5") as opened:
        assert (opened.root, opened.store.get("/other")) == ("/other", None)
    for uri, at, word in (
        (f"etcdfile://{SNAPSHOT}", "677", "it holds 1 to 676"),
        (f"etcdfile://{SNAPSHOT}", "2026-01-01", "no times"),
        (f"etcdfile://{SNAPSHOT}?layout=flat", None, "unknown option"),
        ("etcdfile://relative.db", None, "absolute"),
    ):
        with pytest.raises(UnsupportedStoreError, match=word):
            open_store(uri, at=at)
    with pytest.raises(UnsupportedStoreError, match="only read"):
        open_store(f"etcdfile://{SNAPSHOT}", writable=True)


def test_what_is_no_snapshot_is_refused_by_name(tmp_path: Path) -> None:
    """A missing, empty or foreign file is one clear error; a changed one says that its sum is wrong."""
    with pytest.raises(NoSuchStoreError):
        EtcdFile(tmp_path / "missing.db")
    for name, content in (("empty", b""), ("foreign", b"x" * 9000)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CorruptStoreError):
            EtcdFile(tmp_path / name)
    raw = bytearray(SNAPSHOT.read_bytes())
    raw[-1] ^= 1
    (tmp_path / "changed.db").write_bytes(raw)
    opened = EtcdFile(tmp_path / "changed.db")
    assert "SHA-256" in opened.point().gaps[0]
    assert keys_of(opened) == dumped("final")


def test_a_copied_database_says_what_it_may_lack(tmp_path: Path) -> None:
    """Without the sum behind it a file is a member's own, whose log may know more."""
    (tmp_path / "db").write_bytes(SNAPSHOT.read_bytes()[:-32])
    opened = EtcdFile(tmp_path / "db")
    assert keys_of(opened) == dumped("final")
    assert any("write-ahead log" in note for note in opened.point().notes)
    assert opened.point().gaps == ()


def test_what_we_write_are_bookkeepers_bytes() -> None:
    """Keys, records, cookies, layout and instance id, decoded and made again, are those of the real cluster."""
    lines = {key.removeprefix(ROOT): row[0] for key, row in dumped("final").items()}
    ledgers = {key: store.ledger_of(Layout.ETCD, key) for key in lines if key.startswith("/ledgers/")}
    assert [key for key, ledger in ledgers.items() if ledger is None] == ["/ledgers/zzz"]
    for key, ledger in ledgers.items():
        assert ledger is None or store.ledger_key(Layout.ETCD, ledger) == key
    raws = [lines[key] for key, ledger in ledgers.items() if ledger is not None]
    assert [ledger_record.encode(ledger_record.read(raw).metadata) for raw in raws] == raws
    cookies = [raw for key, raw in lines.items() if store.kind_of(key) == "cookie"]
    assert len(cookies) == 2
    assert [cookie.encode(cookie.decode(raw)) for raw in cookies] == cookies
    where = store.places(Layout.ETCD)
    assert store.layout_bytes(Layout.ETCD) == lines[where.layout]
    assert store.layout_of(lines[where.layout]) is Layout.ETCD
    assert store.encode_instance_id(store.decode_instance_id(lines[where.instance_id])) == lines[where.instance_id]


def test_a_capture_of_the_snapshot_has_everything(tmp_path: Path) -> None:
    """Ledgers of both scopes parsed, what is no record among the other nodes, and who deleted what when."""
    with (
        open_store(f"etcdfile://{SNAPSHOT}") as opened,
        DatasetWriter(tmp_path / "out", "catalog", binding={}, secret=True) as out,
    ):
        summary = capture(opened.store, opened.root, Layout.ETCD, out, clock=lambda: datetime.now(UTC))
    assert (summary.complete, summary.ledgers, summary.unparsable, summary.layout) == (True, 9, 0, "etcd")
    assert summary.txn == REVISION
    dataset = open_dataset(tmp_path / "out", "catalog")
    captured = {row["path"]: row["raw"] for row in dataset.read("nodes").to_pylist()}
    ids = set()
    for row in dataset.read("ledgers").to_pylist():
        ids.add((row["scope"], row["ledger"]))
        captured[store.ledger_key(Layout.ETCD, LedgerId(row["scope"], row["ledger"]))] = row["raw"]
    assert captured == {key.removeprefix(ROOT) or "/": row[0] for key, row in dumped("final").items()}
    assert {(1, 5), (0, (1 << 63) - 1), (0, 105 << 56 | 6)} <= ids
    kinds = {row["path"]: row["kind"] for row in dataset.read("nodes").to_pylist()}
    assert kinds["/ledgers/zzz"] == "other"
    assert kinds["/buckets/014"] == "generator"
    assert kinds["/bookies/writable/127.0.0.1:25006"] == "registration"


def writes_of(lines: Sequence[dict[str, Any]]) -> Iterator[list[Write]]:
    """Return the keys of a dump that a restore writes, in batches."""
    some = [line for line in lines if "/buckets/" not in line["key"] and line["key"] != ROOT]
    for at in range(0, len(some), 20):
        yield [Write(line["key"], base64.b64decode(line["value"])) for line in some[at : at + 20]]


@pytest.mark.real
class TestAgainstEtcd:
    """The same, with a real server and etcd's own tools as judges."""

    def test_what_we_write_is_the_dump(self, etcd_server: EtcdServer) -> None:
        """Written through the adapter, all keys, values and bucket versions are those of the real cluster."""
        etcd_server.wipe()
        lines = lines_of(DATA / "final.jsonl")
        opened = EtcdStore(etcd_server.hosts, top=ROOT)
        for batch in writes_of(lines):
            opened.write([change for change in batch if opened.get(change.key) is None])
        for line in lines:
            if "/buckets/" in line["key"]:
                assert opened.raise_counter(line["key"], line["version"]) == line["version"] + 1
        opened.close()
        shown = etcd_keys(etcd_server, "/")
        assert {key: row[0] for key, row in shown.items()} == {key: row[0] for key, row in dumped("final").items()}
        buckets = {key: row[4] for key, row in dumped("final").items() if "/buckets/" in key}
        assert {key: row[4] for key, row in shown.items() if "/buckets/" in key} == buckets

    def test_a_bucket_goes_on_after_the_dump(self, etcd_server: EtcdServer) -> None:
        """The next client's write of a raised bucket gives an id that no ledger has."""
        etcd_server.wipe()
        opened = EtcdStore(etcd_server.hosts, top=ROOT)
        key = ROOT + store.bucket_key(105)
        assert opened.raise_counter(key, 6) == 7
        etcd_server.put(key)
        assert etcd_keys(etcd_server, key)[key][4] - 1 == 7
        opened.close()

    def test_the_snapshot_is_what_etcd_restores_of_it(self, tmp_path: Path) -> None:
        """What etcd's own tool restores, its server and client show as our reader does, at every revision."""
        etcdutl("snapshot", "restore", str(SNAPSHOT), "--data-dir", str(tmp_path / "restored"), "--name", "one",
                "--initial-cluster", "one=http://localhost:2380",
                "--initial-advertise-peer-urls", "http://localhost:2380")  # fmt: skip
        server = EtcdServer(tmp_path, "--force-new-cluster", data=tmp_path / "restored")
        server.start()
        try:
            for revision in (2, 3, 12, 22, 100, 400, REVISION):
                assert keys_of(EtcdFile(SNAPSHOT, revision=revision)) == etcd_keys(server, ROOT, revision)
            live = EtcdStore(server.hosts, top=ROOT, revision=REVISION)
            assert keys_of(live) == dumped("final")
            assert history_of(live) == history_of(EtcdFile(SNAPSHOT))
            live.close()
        finally:
            server.kill()

    def test_a_compacted_and_torn_snapshot_is_what_etcd_shows(self, etcd_server: EtcdServer, tmp_path: Path) -> None:
        """Many pages, deleted keys, large values and a compacted past: the same keys, and the same history."""
        etcd_server.wipe()
        live = EtcdStore(etcd_server.hosts, top=ROOT)
        for at in range(0, 3_000, 100):
            live.write([Write(f"{ROOT}/ledgers/{n:08d}", b"%d" % n * (n % 50)) for n in range(at, at + 100)])
        live.write([Write(f"{ROOT}/ledgers/large", bytes(1_000_000))])
        gone = [f"{ROOT}/ledgers/{n:08d}" for n in range(0, 3_000, 60)]
        live.write([Write(key, None, held.version) for key, held in live.get_many(gone) if held is not None])
        middle = etcd_server.put(f"{ROOT}/middle")
        etcd_server.compact(middle)
        live.write([Write(gone[0], b"again"), Write(f"{ROOT}/late", b"x")])
        live.close()
        etcd_server.etcdctl("snapshot", "save", str(tmp_path / "s.db"))
        ours, live = EtcdFile(tmp_path / "s.db"), EtcdStore(etcd_server.hosts, top=ROOT)
        assert keys_of(ours) == keys_of(live) == etcd_keys(etcd_server, ROOT)
        assert len(keys_of(ours)) > 2_900
        assert history_of(ours) == history_of(live)
        assert [row["key"] for row in history_of(ours)] == [gone[0], f"{ROOT}/late"]
        assert ours.point() == live.point() or ours.point().txn == live.point().txn
        with pytest.raises(UnsupportedStoreError, match=f"it holds {middle} to"):
            EtcdFile(tmp_path / "s.db", revision=middle - 1)
        with pytest.raises(UnsupportedStoreError, match="compacted"):
            EtcdStore(etcd_server.hosts, revision=middle - 1)
        live.close()
