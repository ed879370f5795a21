"""I-18: what was deleted on purpose does not walk back in when a store is rebuilt from disks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from backends.protocols import Write
from backends.registry import open_store
from reconcile.cli.options import make_context
from reconcile.cli.output import Output
from reconcile.jobs.deletes.resurrection import read_deleted
from recovery.codecs.store import Layout, ledger_key
from recovery.dataset import open_dataset
from recovery.model.ids import LedgerId
from tests.support.command import run
from tests.support.deletes import Ledger, fill_store, fill_zookeeper, name_looks, write_looks, write_references
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.real, pytest.mark.spark]

LEDGERS = tuple(Ledger(LedgerId(0, number)) for number in range(20))


def test_a_rebuilt_store_has_no_deleted_ledger(
    zookeeper_server: ZooKeeperServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A bookie that was away has the ledger still; all records are lost; the tombstone, found or named, wins."""
    monkeypatch.chdir(tmp_path)
    uri = fill_zookeeper(zookeeper_server, "/rebuilt/ledgers", LEDGERS)

    def bkmeta(*words: object, code: int = 0) -> None:
        done = run(capsys, *words, "--json")
        assert done.code == code, done.out + done.err

    looks = name_looks(write_looks(tmp_path / "looks", LEDGERS))
    bkmeta("delete", "request", 3, "--metadata", uri, "--soak", "0s", "--reason", "T-7")
    for _ in range(2):
        refs = write_references(tmp_path / "refs.jsonl", [])
        words = ("--due", *looks, "--references", refs, "--min-age", "0s", "--certificate", "c.json")
        bkmeta("delete", "verify", "--metadata", uri, *words)
    bkmeta("delete", "purge", "--metadata", uri, "--certificate", "c.json")
    with open_store(uri, writable=True) as opened:
        for ledger in LEDGERS:
            key = "/rebuilt/ledgers" + ledger_key(Layout.HIERARCHICAL, ledger.id)
            held = opened.store.get(key)
            if held is not None:
                opened.store.write([Write(key, None, held.version)])
    done = run(capsys, "recover", *looks, "--metadata", uri, "--out", tmp_path / "plan", "--json")
    assert done.code in (0, 3, 4), done.out
    # Tombstones name deleted ledgers only: they say of no other that nobody refers to it.
    assert not done.result["references"]
    plan = open_dataset(tmp_path / "plan", "plan")
    rows = {row["ledger"]: row for row in plan.read("reconstruction").to_pylist()}
    assert (rows[3]["outcome"], rows[3]["reason"]) == ("deleted", "deleted_by_tombstone")
    assert {row["outcome"] for number, row in rows.items() if number != 3} <= {"restored", "guarded", "held"}
    assert not [row for row in plan.read("actions").to_pylist() if row["ledger"] == 3 and row["op"] != "leave"]
    [named] = read_deleted([uri], make_context(Output(as_json=True, progress="none")))
    [row] = named.rows.to_pylist()
    assert (row["ledger"], row["deleted"], row["owner"], "T-7" in row["tombstone"]) == (3, True, None, True)


def test_no_advice_and_no_choice_of_many_brings_a_purged_ledger_back(
    zookeeper_server: ZooKeeperServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All is lost but ZooKeeper's files: sessions are listed, and what bkmeta purged comes back by its name alone."""
    monkeypatch.chdir(tmp_path)
    root = "/advised/ledgers"
    uri = f"zk+hierarchical://{zookeeper_server.hosts}{root}"

    def remove(numbers: range) -> None:
        with open_store(uri, writable=True) as opened:
            for number in numbers:
                key = root + ledger_key(Layout.HIERARCHICAL, LedgerId(0, number))
                held = opened.store.get(key)
                if held is not None:
                    opened.store.write([Write(key, None, held.version)])

    def bkmeta(*words: object, codes: tuple[int, ...] = (0,)) -> Mapping[str, Any]:
        done = run(capsys, *words, "--json")
        assert done.code in codes, done.out + done.err
        return done.result

    with open_store(uri, writable=True) as opened:
        fill_store(opened.store, root, Layout.HIERARCHICAL, LEDGERS)
    remove(range(2))
    looks = name_looks(write_looks(tmp_path / "looks", LEDGERS))
    bkmeta("delete", "request", 3, "--metadata", uri, "--soak", "0s", "--reason", "T-7")
    for _ in range(2):
        refs = write_references(tmp_path / "refs.jsonl", [])
        words = ("--due", *looks, "--references", refs, "--min-age", "0s", "--certificate", "c.json")
        bkmeta("delete", "verify", "--metadata", uri, *words)
    bkmeta("delete", "purge", "--metadata", uri, "--certificate", "c.json")
    remove(range(4, 20))
    files = f"zkfiles://{zookeeper_server.data_dir}?root={root}"
    known = ("--snapshot", files, "--layout", "hierarchical", "--out", tmp_path / "plan")
    made = bkmeta("recover", *looks, *known, codes=(0, 3, 4))
    early, purging, late = made["deletions"]
    assert [one["purged"] for one in (early, purging, late)] == [0, 1, 0]
    assert purging["undecided"] == 0
    shown = run(capsys, "plan", "show", tmp_path / "plan").out
    assert f"--restore-deleted-by {early['session']}" in shown
    assert purging["session"] not in shown.replace(f"session {purging['session']}", "")
    # The state before the first session's deletes has the purged ledger's record, and no tombstone that keeps it.
    assert f"capture --metadata {files} --at {early['first_txn'] - 1}" not in shown.replace("'", "")
    assert f"--at {late['first_txn'] - 1}" in shown
    edit = ("plan", "edit", tmp_path / "plan")
    refused = run(capsys, *edit, "--restore-deleted-by", purging["session"], "--out", tmp_path / "refused")
    assert refused.code == 2, refused.out + refused.err
    assert "bkmeta purged" in refused.err
    every = [word for one in (early, late) for word in ("--restore-deleted-by", one["session"])]
    bkmeta(*edit, *every, "--out", tmp_path / "back")
    written = {
        row["ledger"]
        for row in open_dataset(tmp_path / "back", "plan").read("actions").to_pylist()
        if row["op"] != "leave"
    }
    assert written >= {0, 1, *range(4, 20)}
    assert 3 not in written
    bkmeta(*edit, "--choose", "3=restore", "--out", tmp_path / "named")
    explained = run(capsys, "explain", "3", *looks, "--snapshot", files, "--layout", "hierarchical").out
    assert "its tombstone says: bkmeta purged" in explained
    assert "tombstone: purged" in explained
    assert "upper layer reports that it deleted" not in explained
