"""Deletes on real bookies: asked over the wire, garbage collected, one of them away and back, the store lost."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.registry import open_store
from recovery.codecs.store import Layout, ledger_key
from recovery.dataset import open_dataset
from recovery.model.ids import LedgerId
from tests.support.cluster import Bookie, Cluster
from tests.support.command import Done, run
from tests.support.deletes import write_references

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

STORAGES = ("sorted", "interleaved", "sorted")


class Site:
    """Three bookies with twelve closed ledgers."""

    def __init__(self, cluster: Cluster, home: Path) -> None:
        self.cluster, self.home = cluster, home
        cluster.start_zookeeper("zookeeper", "/ledgers")
        cluster("format", layout="hierarchical")
        self.bookies = [
            Bookie(n, f"del-{n}", storage, [f"b{n}/journal"], [f"b{n}/ledgers"]) for n, storage in enumerate(STORAGES)
        ]
        for bookie in self.bookies:
            cluster.start(bookie)
        self.uri = f"zk+hierarchical://{cluster.zookeeper}/ledgers"
        self.ledgers = []
        for _ in range(12):
            ledger = cluster("create", E=3, W=2, A=2, digest="CRC32C", password="", custom={})
            cluster("add", ledger=ledger, sizes=[40] * 7, ids=None)
            cluster("close", ledger=ledger)
            self.ledgers.append(int(ledger))

    def bkmeta(self, capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> dict[str, Any]:
        """Run a command on the cluster."""
        done: Done = run(capsys, *words, "--metadata", self.uri, "--json")
        assert done.code == code, done.out + done.err
        return done.result

    def verify(self, capsys: pytest.CaptureFixture[str], *more: object, code: int = 0) -> dict[str, Any]:
        """Verify what is due, by asking the bookies."""
        refs = write_references(self.home / "refs.jsonl", [])
        words = ("delete", "verify", "--due", "--wire", "--deadline", "30", "--references", refs, "--min-age", "0s")
        return self.bkmeta(capsys, *words, *more, code=code)

    def scrutinize(self, capsys: pytest.CaptureFixture[str], out: Path) -> dict[int, list[str]]:
        """Scrutinize by asking the bookies; return the deleted ledgers that came back, with their bookies."""
        words = ("--out", out, "--deadline", "20", "--recheck-after", "0s", "--json")
        done = run(capsys, "scrutinize", "--metadata", self.uri, *words)
        assert done.code in (0, 3), done.out + done.err
        rows = open_dataset(out, "scrutiny").read("findings").to_pylist()
        back = [row for row in rows if row["category"] == "ENTRIES_OF_DELETED_LEDGER"]
        assert all(row["severity"] == "critical" for row in back)
        assert not back or done.code == 3
        return {row["ledger"]: row["bookies"] for row in back}

    def has_record(self, ledger: int) -> bool:
        """Whether the store has a ledger's record."""
        with open_store(self.uri) as opened:
            return opened.store.get("/ledgers" + ledger_key(Layout.HIERARCHICAL, LedgerId(0, ledger))) is not None


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One cluster for all."""
    home = tmp_path_factory.mktemp("cluster")
    with Cluster(home) as cluster:
        yield Site(cluster, home)


def test_from_request_to_expiry_on_real_bookies(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the wire says is enough for a purge; after the collection of garbage each bookie is seen without them."""
    monkeypatch.chdir(tmp_path)
    first, second, *_, last = site.ledgers
    site.bkmeta(capsys, "delete", "request", first, second, "--soak", "0s")
    assert site.verify(capsys)["verdicts"]["SAFE"] == 2
    site.verify(capsys, "--certificate", "c.json")
    site.bkmeta(capsys, "delete", "purge", "--certificate", "c.json")
    assert (site.has_record(first), site.has_record(last)) == (False, True)
    wire = ("--wire", "--deadline", "30")
    assert set(site.bkmeta(capsys, "delete", "confirm", *wire, code=4)["waiting"]) == {str(first), str(second)}
    site.cluster.collect_garbage(len(STORAGES))
    assert site.bkmeta(capsys, "delete", "confirm", *wire)["confirmed"] == [str(first), str(second)]
    assert site.bkmeta(capsys, "tombstones", "expire", "--retention", "0s")["expired"] == [str(first), str(second)]


def test_a_bookie_that_was_away_is_caught(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It keeps the tombstone alive; back again it holds the ledger still; its disks show when it does not any more."""
    monkeypatch.chdir(tmp_path)
    ledger = site.ledgers[4]
    site.bkmeta(capsys, "delete", "request", ledger, "--soak", "0s")
    site.verify(capsys)
    site.verify(capsys, "--certificate", "c.json")
    away = site.bookies[1]
    site.cluster("bookie_stop", n=away.n)
    shutil.copytree(site.home / f"b{away.n}", tmp_path / "old-disks")
    site.bkmeta(capsys, "delete", "purge", "--certificate", "c.json")
    site.cluster.collect_garbage(len(STORAGES) - 1)
    wire = ("--wire", "--deadline", "5", "--patience", "3")
    name = site.bkmeta(capsys, "delete", "confirm", *wire, code=4)["waiting"][str(ledger)]
    assert name == [away.id]
    site.cluster.start(away)
    assert site.bkmeta(capsys, "delete", "confirm", *wire, code=4)["waiting"][str(ledger)] == [away.id]
    site.cluster.collect_garbage(len(STORAGES))
    # Over the wire it could be another bookie at the same address: only its disks show that it is not.
    assert site.bkmeta(capsys, "delete", "confirm", *wire, code=4)["waiting"][str(ledger)] == [away.id]
    disks = [word for d in (*away.ledgers, *away.journals) for word in ("--ledger-dir", site.home / d)]
    assert run(capsys, "collect", *disks, "--out", tmp_path / "disks").code == 0
    site.bkmeta(capsys, "delete", "confirm", "--inventory", tmp_path / "disks")
    assert site.scrutinize(capsys, tmp_path / "quiet") == {}
    # Somebody puts the disks back as they were: what bkmeta had seen to be gone is there again.
    site.bkmeta(capsys, "capture", "--out", tmp_path / "captured")
    site.cluster("bookie_stop", n=away.n)
    shutil.rmtree(site.home / f"b{away.n}")
    shutil.copytree(tmp_path / "old-disks", site.home / f"b{away.n}")
    site.cluster.start(away)
    for run_name in ("first", "again"):
        assert site.scrutinize(capsys, tmp_path / run_name) == {ledger: [away.id]}
        back = site.bkmeta(capsys, "delete", "confirm", *wire, code=3)
        assert back["returned"] == {str(ledger): [away.id]}


@pytest.mark.spark
def test_a_store_that_is_lost_whole_is_rebuilt_without_what_was_deleted(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of disks that hold a purged ledger still, and a capture, everything comes back but that one."""
    monkeypatch.chdir(tmp_path)
    ledger, kept = site.ledgers[6], site.ledgers[7]
    bookie = site.bookies[0]
    site.cluster("bookie_stop", n=bookie.n)
    folders = [word for d in (*bookie.ledgers, *bookie.journals) for word in ("--ledger-dir", site.home / d)]
    assert run(capsys, "collect", *folders, "--out", tmp_path / "disks").code == 0
    site.cluster.start(bookie)
    site.bkmeta(capsys, "delete", "request", ledger, "--soak", "0s", "--reason", "T-8")
    site.verify(capsys)
    site.verify(capsys, "--certificate", "c.json")
    site.bkmeta(capsys, "delete", "purge", "--certificate", "c.json")
    site.bkmeta(capsys, "capture", "--out", tmp_path / "captured")
    lost = f"zk+hierarchical://{site.cluster.zookeeper}/all/is/lost"
    line = ("--snapshot", f"catalog://{tmp_path / 'captured'}", "--metadata", lost, "--out", tmp_path / "plan")
    done = run(capsys, "recover", "--inventory", tmp_path / "disks", *line, "--json")
    assert done.code in (0, 3, 4), done.out + done.err
    plan = open_dataset(tmp_path / "plan", "plan")
    rows = {row["ledger"]: row for row in plan.read("reconstruction").to_pylist()}
    assert (rows[ledger]["outcome"], rows[ledger]["reason"]) == ("deleted", "deleted_by_tombstone")
    assert rows[kept]["outcome"] == "restored"
    written = {row["ledger"] for row in plan.read("actions").to_pylist() if row["op"] != "leave"}
    assert (ledger in written, kept in written) == (False, True)
