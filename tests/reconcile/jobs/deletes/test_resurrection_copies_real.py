"""Tombstones are found in every copy of a store: a capture, ZooKeeper's own files, a snapshot of etcd."""

import shutil
from pathlib import Path

import pytest

from backends.protocols import Write
from backends.registry import open_store
from reconcile.cli.options import make_context
from reconcile.cli.output import Output
from reconcile.jobs.deletes.resurrection import find_deleted, read_deleted
from recovery.codecs.store import Layout
from recovery.errors import InputError
from recovery.model.ids import LedgerId
from tests.support.command import run
from tests.support.deletes import Ledger, fill_store, name_looks, write_looks, write_references
from tests.support.etcd_server import EtcdServer
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.real

LEDGERS = tuple(Ledger(LedgerId(scope, number)) for scope in (0, 9) for number in range(6))


@pytest.mark.parametrize("kind", ["zookeeper", "etcd"])
def test_every_copy_names_what_was_purged(
    kind: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The ledgers that were purged, with who and why, and none that is only asked for; damage is never passed over."""
    monkeypatch.chdir(tmp_path)
    root = "/copied/ledgers"
    server: EtcdServer | ZooKeeperServer = request.getfixturevalue(f"{kind}_server")
    if kind == "etcd":
        uri, layout, ledgers = f"etcd://{server.hosts}{root}", Layout.ETCD, LEDGERS[:6]
    else:
        uri, layout, ledgers = f"zk+longlonghierarchical://{server.hosts}{root}", Layout.LONGHIERARCHICAL, LEDGERS
    with open_store(uri, writable=True) as opened:
        fill_store(opened.store, root, layout, ledgers)

    def bkmeta(*words: object, code: int = 0) -> None:
        done = run(capsys, *words, "--metadata", uri, "--json")
        assert done.code == code, done.out + done.err

    purged = [ledgers[2].id, ledgers[-1].id]
    looks = name_looks(write_looks(tmp_path / "looks", ledgers))
    bkmeta("delete", "request", *map(str, purged), "--soak", "0s", "--reason", "T-7")
    for _ in range(2):
        refs = write_references(tmp_path / "refs.jsonl", [])
        words = ("--due", *looks, "--references", refs, "--min-age", "0s", "--certificate", "c.json")
        bkmeta("delete", "verify", *words)
    bkmeta("delete", "purge", "--certificate", "c.json")
    bkmeta("delete", "request", str(ledgers[1].id))
    bkmeta("capture", "--out", tmp_path / "captured")
    copies = [uri, f"catalog://{tmp_path / 'captured'}"]
    if isinstance(server, EtcdServer):
        server.etcdctl("snapshot", "save", str(tmp_path / "snapshot.db"))
        copies.append(f"etcdfile://{tmp_path / 'snapshot.db'}?root={root}")
    else:
        shutil.copytree(server.data_dir, tmp_path / "files")
        copies.append(f"zkfiles://{tmp_path / 'files'}?root={root}&layout=longlonghierarchical")
    context = make_context(Output(as_json=True, progress="none"))
    for copy in copies:
        [found] = read_deleted([copy], context)
        rows = found.rows.sort_by([("scope", "ascending"), ("ledger", "ascending")]).to_pylist()
        assert [LedgerId(row["scope"], row["ledger"]) for row in rows] == sorted(purged), copy
        assert all(row["deleted"] and "T-7" in row["tombstone"] for row in rows)
        assert not found.names_all
        # What recover would not restore, explain does not, either; the same ids of two scopes are held before.
        explained = run(capsys, "explain", purged[0], *looks, "--snapshot", copy, "--json").result
        assert any("purged" in line and "T-7" in line for line in explained["references"]), copy
        assert explained["outcome"] == ("deleted" if kind == "etcd" else "held"), copy
    with open_store(uri, writable=True) as opened:
        key = f"{root}-bkmeta/tombstones/t"
        held = opened.store.get(key)
        assert held is not None
        opened.store.write([Write(key, held.value[:-3], held.version)])
        [damaged] = find_deleted(opened, ())
        assert [where.rpartition(" ")[2] for where, _ in damaged.unreadable] == [key]
    with pytest.raises(InputError, match="cannot be read"):
        read_deleted([uri], context)
