"""`capture --at` as it is typed: what a store was at a transaction that it remembers."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backends.zkfiles.store import ZooKeeperFiles
from recovery.codecs import store
from recovery.codecs.store import Layout
from recovery.dataset import open_dataset
from recovery.model.ids import LedgerId
from tests.support import cases
from tests.support.command import run
from tests.support.etcd_server import EtcdServer


def records(catalog: Path) -> dict[LedgerId, bytes]:
    """Return the raw record of each ledger."""
    table = open_dataset(catalog, "catalog").read("ledgers")
    return {
        LedgerId(row["scope"], row["ledger"]): row["raw"]
        for row in table.select(["scope", "ledger", "raw"]).to_pylist()
    }


def _iso(ms: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)).isoformat()


def test_files_of_zookeeper(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before the transaction that deleted a ledger it is there with its record, from it on it is not."""
    folder = cases.case_dir("c07") / "zookeeper"
    changes = [row for batch in ZooKeeperFiles(folder).history("/ledgers") for row in batch.to_pylist()]
    gone = next(
        row
        for row in changes
        if row["op"] == "deleted" and store.ledger_of(Layout.HIERARCHICAL, row["key"].removeprefix("/ledgers"))
    )
    ledger = store.ledger_of(Layout.HIERARCHICAL, gone["key"].removeprefix("/ledgers"))
    assert ledger is not None

    def captured(name: str, at: str) -> dict[LedgerId, bytes]:
        words = ["--metadata", f"zkfiles://{folder}", "--at", at, "--out", tmp_path / name]
        done = run(capsys, "capture", *words, "--json")
        assert done.code == 0, done.out
        assert done.result["coverage"]["txn"] <= gone["txn"]
        return records(tmp_path / name)

    assert captured("before", hex(gone["txn"] - 1))[ledger] == gone["before"]
    assert ledger not in captured("after", hex(gone["txn"]))
    assert ledger in captured("decimal", str(gone["txn"] - 1))
    deleted_ms = gone["at_ms"]
    assert ledger in captured("a moment before", _iso(deleted_ms - 1))
    assert ledger not in captured("at that time", _iso(deleted_ms))
    for words, said in ((["--at", "yesterday"], "yesterday"), (["--at", "1970-01-01"], "")):
        done = run(capsys, "capture", "--metadata", f"zkfiles://{folder}", *words, "--out", tmp_path / "refused")
        assert done.code == 2
        assert said in done.err


@pytest.mark.real
def test_etcd_live_and_its_snapshot(
    etcd_server: EtcdServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both show the revision that is asked for; one that is compacted or has not come is refused: exit 2."""
    etcd_server.wipe()
    values = [b"a", b"b"]
    key = "/at" + store.ledger_key(Layout.ETCD, LedgerId(0, 5))
    etcd_server.put("/at/layout", store.layout_bytes(Layout.ETCD))
    etcd_server.put("/at")
    revisions = [etcd_server.put(key, value) for value in values]
    deleted = etcd_server.delete(key)
    etcd_server.etcdctl("snapshot", "save", str(tmp_path / "snap.db"))
    uris = (f"etcd://{etcd_server.hosts}/at", f"etcdfile://{tmp_path / 'snap.db'}?root=/at")
    for number, uri in enumerate(uris):
        found = []
        for revision in (*revisions, deleted):
            out = tmp_path / f"{number}-{revision}"
            done = run(capsys, "capture", "--metadata", uri, "--at", str(revision), "--out", out, "--json")
            assert (done.code, done.result["coverage"]["txn"]) == (0, revision)
            found.append(records(out))
        assert found == [{LedgerId(0, 5): values[0]}, {LedgerId(0, 5): values[1]}, {}]
        for at in (str(deleted + 1000), "2026-01-01"):
            assert run(capsys, "capture", "--metadata", uri, "--at", at, "--out", tmp_path / "refused").code == 2
    etcd_server.compact(deleted)
    done = run(capsys, "capture", "--metadata", uris[0], "--at", str(revisions[0]), "--out", tmp_path / "refused")
    assert done.code == 2
    assert "compacted" in done.err
