"""A purge with a quarantine on real bookies: they keep the data, no client opens it, and each way out of it."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from backends.protocols import Write
from backends.registry import open_store
from recovery.codecs.ledger_record import decode
from recovery.codecs.store import Layout, ledger_key, mark_key
from recovery.dataset import Dataset, open_dataset
from recovery.model.ids import LedgerId
from recovery.model.metadata import LedgerState
from tests.support.cluster import Bookie, Cluster, encoded
from tests.support.command import Done, run
from tests.support.deletes import write_references

pytestmark = [pytest.mark.real, pytest.mark.spark, pytest.mark.timeout(600)]

STORAGES: Final = ("sorted", "interleaved", "db")
ENTRIES: Final = 7
QUARANTINE_S: Final = 4
WIRE: Final = ("--wire", "--deadline", "30")


class Site:
    """Three bookies with closed ledgers, and a policy that asks for a quarantine."""

    def __init__(self, cluster: Cluster, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.cluster, self.home, self.capsys = cluster, home, capsys
        cluster.start_zookeeper("zookeeper", "/ledgers")
        cluster("format", layout="hierarchical")
        self.bookies = [
            Bookie(n, f"quarantine-{n}", storage, [f"b{n}/journal"], [f"b{n}/ledgers"])
            for n, storage in enumerate(STORAGES)
        ]
        for bookie in self.bookies:
            cluster.start(bookie)
        self.uri = f"zk+hierarchical://{cluster.zookeeper}/ledgers"
        self.ledgers = [self.make_ledger() for _ in range(5)]

    def make_ledger(self) -> int:
        """Make a closed ledger of every bookie."""
        ledger = int(self.cluster("create", E=3, W=3, A=2, digest="CRC32C", password=encoded(b""), custom={}))
        self.cluster("add", ledger=ledger, sizes=[40] * ENTRIES, ids=None)
        self.cluster("close", ledger=ledger)
        return ledger

    def bkmeta(self, *words: object, code: int = 0) -> dict[str, Any]:
        """Run a command on the cluster."""
        done: Done = run(self.capsys, *words, "--metadata", self.uri, "--json")
        assert done.code == code, done.out + done.err
        return done.result

    def make_purgeable(self, ledgers: list[int], certificate: str) -> None:
        """Bring ledgers as far as a certificate; each bookie is collected, for not every storage lists its entries."""
        self.bkmeta("delete", "request", *ledgers, "--soak", "0s", "--reason", "T-1")
        for _ in range(2):
            refs = write_references(self.home / "refs.jsonl", [])
            self.bkmeta(
                "delete", "verify", *ledgers, *self.collect(), "--references", refs, "--min-age", "0s",
                "--certificate", certificate,
            )  # fmt: skip

    def collect(self) -> list[object]:
        """Collect every bookie from its folders while it is stopped; return the options that name the inventories."""
        words: list[object] = []
        for bookie in self.bookies:
            self.cluster("bookie_stop", n=bookie.n)
            out = self.home / f"inventory-{bookie.n}-{time.monotonic_ns()}"
            folders = [word for d in (*bookie.ledgers, *bookie.journals) for word in ("--ledger-dir", self.home / d)]
            assert run(self.capsys, "collect", *folders, "--out", out).code == 0
            self.cluster.start(bookie)
            words += ["--inventory", out]
        return words

    def read_record(self, ledger: int) -> bytes | None:
        """Return a ledger's record."""
        with open_store(self.uri) as opened:
            stored = opened.store.get("/ledgers" + ledger_key(Layout.HIERARCHICAL, LedgerId(0, ledger)))
        return None if stored is None else stored.value

    def read_entries(self, ledger: int) -> Any:
        """Let the Java client open and read a ledger."""
        return self.cluster("read", ledger=ledger, digest="CRC32C", password=encoded(b""), recovery=False)

    def recover(self, out: Path) -> Dataset:
        """Make a plan from inventories of every bookie, and the store."""
        done = run(self.capsys, "recover", "--metadata", self.uri, *self.collect(), "--out", out, "--json")
        assert done.code in (0, 3), done.out + done.err
        return open_dataset(out, "plan")

    def scrutinize(self, out: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Scrutinize by inventories; return the findings, and the verdicts."""
        words = ("--out", out, *self.collect(), "--recheck-after", "0s", "--grace", "1s")
        done = run(self.capsys, "scrutinize", "--metadata", self.uri, *words, "--json")
        assert done.code in (0, 3, 4), done.out + done.err
        dataset = open_dataset(out, "scrutiny")
        return dataset.read("findings").to_pylist(), dataset.read("verdicts").to_pylist()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Site]:
    """A cluster of three storages."""
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "cluster"
    home.mkdir()
    with Cluster(home) as cluster:
        yield Site(cluster, home, capsys)


def test_a_quarantine_keeps_the_data_and_ends_in_each_way(site: Site, tmp_path: Path) -> None:
    """A hold takes the record's place; undone it is back byte for byte; a bookie leaves; at its end the record goes."""
    true = {ledger: site.read_record(ledger) for ledger in site.ledgers}
    shown = site.bkmeta("delete", "policy", "set", "--quarantine", f"{QUARANTINE_S}s", "--quarantine-most", 4)
    assert (shown["policy"]["quarantine_ms"], shown["policy"]["quarantine_most"]) == (str(QUARANTINE_S * 1000), "4")
    site.make_purgeable(site.ledgers, "c.json")
    done = site.bkmeta("delete", "purge", "--certificate", "c.json", code=3)
    assert (done["counts"]["quarantined"], done["counts"]["beyond"], done["counts"]["purged"]) == (4, 1, 0)
    in_quarantine = {int(item["ledger"]) for item in done["ledgers"] if item["state"] == "QUARANTINED"}
    assert len(in_quarantine) == 4
    held = sorted(in_quarantine)
    [other] = set(site.ledgers) - in_quarantine
    undone, left, gone, altered = held
    for ledger in held:
        raw = site.read_record(ledger)
        assert raw is not None
        hold = decode(raw)
        assert hold.state is LedgerState.IN_RECOVERY
        assert {key for key, _ in hold.custom} == {"bkmeta.hold", "bkmeta.quarantine"}
        assert set(hold.segments[0].members) == {bookie.id for bookie in site.bookies}
    # Whatever bookies collect, they keep what is held; no client opens it.
    site.cluster.collect_garbage(len(STORAGES))
    assert "wrong password" in site.read_entries(undone)["open_error"]
    assert len(site.read_entries(other)["entries"]) == ENTRIES
    with open_store(site.uri, writable=True) as opened:
        opened.store.write([Write("/ledgers" + mark_key(LedgerId(0, left)), b'missingReplica: "quarantine-0"\n')])
    found, verdicts = site.scrutinize(tmp_path / "scrutiny")
    assert {row["reason"] for row in verdicts if row["ledger"] in held} == {"quarantined"}
    assert [row for row in found if row["severity"] in ("warning", "critical")] == []
    # A restore leaves holds of deletes alone, though bookies show what stood there.
    plan = site.recover(tmp_path / "plan")
    ops = {row["op"] for row in plan.read("actions").to_pylist() if row["ledger"] in held}
    assert ops == {"leave"}
    assert not [row for row in plan.read("findings").to_pylist() if row["ledger"] in held]
    # Undone, the record is back as it was, and every entry is read.
    back = site.bkmeta("delete", "undo", undone)
    assert (back["put_back"], back["lost_copies"]) == ([str(undone)], {})
    assert site.read_record(undone) == true[undone]
    assert len(site.read_entries(undone)["entries"]) == ENTRIES
    # A hold that another program wrote over is not touched.
    key = "/ledgers" + ledger_key(Layout.HIERARCHICAL, LedgerId(0, altered))
    with open_store(site.uri, writable=True) as opened:
        stored = opened.store.get(key)
        assert stored is not None
        opened.store.write([Write(key, b"another", stored.version)])
    assert str(altered) in site.bkmeta("delete", "undo", altered, code=5)["refused"]
    time.sleep(QUARANTINE_S)
    # A bookie leaves, and the ledger is marked for repair: its record is back, and its delete begins anew.
    site.cluster("bookie_stop", n=0)
    ended = site.bkmeta("delete", "purge", "--certificate", "c.json", code=3)
    assert list(ended["ended_early"]) == [str(left)]
    assert site.read_record(left) == true[left]
    assert [int(item["ledger"]) for item in ended["ledgers"] if item["state"] == "PURGED"] == [gone]
    assert site.read_record(gone) is None
    assert str(altered) in ended["left_out"]
    states = {int(item["ledger"]): item["state"] for item in site.bkmeta("delete", "status")["ledgers"]}
    assert states[left] == "REQUESTED"
    assert (states[gone], states[altered]) == ("PURGED", "QUARANTINED")
    site.cluster.start(site.bookies[0])
    site.cluster.collect_garbage(len(STORAGES))
    assert site.bkmeta("delete", "confirm", *site.collect())["confirmed"] == [str(gone)]
