"""Bookies that collect garbage every second, frozen over an emptied root: nothing is deleted until after the thaw."""

from dataclasses import replace
from pathlib import Path

import pytest

from backends.protocols import Versioned, Write
from backends.zookeeper.store import ZooKeeperStore
from recovery.codecs import ledger_metadata
from recovery.codecs.store import Layout, ledger_key
from recovery.model.ids import LedgerId
from recovery.model.metadata import Segment
from tests.support.cluster import Bookie, Cluster, ClusterError, encoded
from tests.support.command import run
from tests.support.waiting import until

pytestmark = pytest.mark.real

ROOT = "/ledgers"
PASSES = 4
"""Failed passes that are waited for, of both bookies together, after each change."""
ENTRIES = 5
PROPS = {"gcWaitTime": "1000", "flushInterval": "500", "gcOverreplicatedLedgerWaitTime": "1000"}
FAILED = "Exception when iterating over the metadata"


def key_of(ledger: int) -> str:
    """Return where a ledger's record stands."""
    return ROOT + ledger_key(Layout.HIERARCHICAL, LedgerId(0, ledger))


class Frozen:
    """Two bookies with ledgers on both, and what stands in their store."""

    def __init__(self, cluster: Cluster, auth: tuple[str, str]) -> None:
        self.cluster = cluster
        cluster.start_zookeeper("zookeeper", ROOT)
        cluster("format", layout="hierarchical")
        self.bookies = [
            Bookie(n, f"10.0.0.{n + 1}:3181", storage, [f"b{n}/journal"], [f"b{n}/ledgers"], props=PROPS)
            for n, storage in enumerate(("sorted", "db"))
        ]
        for bookie in self.bookies:
            cluster.start(bookie)
        self.ledgers = [self._ledger() for _ in range(4)]
        self.store = ZooKeeperStore(cluster.zookeeper, auth=auth)
        self.uri = f"zk+hierarchical://{cluster.zookeeper}{ROOT}"
        self.records = {ledger: self._record(ledger) for ledger in self.ledgers}

    def _ledger(self) -> int:
        ledger: int = self.cluster("create", E=2, W=2, A=2, digest="CRC32C", password=encoded(b""), custom={})
        self.cluster("add", ledger=ledger, sizes=[100] * ENTRIES, ids=None)
        self.cluster("close", ledger=ledger)
        return ledger

    def _record(self, ledger: int) -> Versioned:
        held = self.store.get(key_of(ledger))
        assert held is not None
        return held

    def restart(self, n: int) -> None:
        """Stop a bookie cleanly, and start it again."""
        self.cluster("bookie_stop", n=n)
        self.cluster.start(self.bookies[n])

    def remove(self, *ledgers: int) -> None:
        """Take records away."""
        self.store.write([Write(key_of(ledger), None, self._record(ledger).version) for ledger in ledgers])

    def put(self, *ledgers: int) -> None:
        """Put records back, as a restore does."""
        self.store.write([Write(key_of(ledger), self.records[ledger].value) for ledger in ledgers])

    def put_of_others(self, ledger: int) -> None:
        """Put a record back that names the second bookie and a stranger, and not the first."""
        true = ledger_metadata.decode(self.records[ledger].value)
        others = (self.bookies[1].id, "10.0.0.9:3181")
        wrong = replace(true, segments=tuple(Segment(segment.first, others) for segment in true.segments))
        self.store.write([Write(key_of(ledger), ledger_metadata.encode(wrong))])

    def readable(self, ledger: int) -> int:
        """Return how many entries the real client reads."""
        found = self.cluster("read", ledger=ledger, digest="CRC32C", password=encoded(b""), recovery=False)
        return sum(size is not None for size, _ in found["entries"])

    def index_files(self) -> set[int]:
        """Return the ledgers that the sorted bookie has an index of on its disk."""
        current = self.cluster.home / self.bookies[0].ledgers[0] / "current"
        return {int(path.stem, 16) for path in current.glob("*/*/*.idx")}

    def failed_passes(self) -> int:
        """Return how many passes have failed so far."""
        return self.cluster.home.with_name(f"{self.cluster.home.name}.log").read_text(errors="replace").count(FAILED)

    def some_passes(self) -> None:
        """Wait until bookies have failed some passes from now on."""
        before = self.failed_passes()
        until(lambda: self.failed_passes() >= before + PASSES, "failed passes")


def test_nothing_is_deleted_while_frozen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Emptied, half restored, with records of other bookies and a bookie restarted, frozen bookies keep everything.

    The controls: thawed, a ledger whose record is taken away goes, and so does a copy that its record does not name.
    """
    monkeypatch.setenv("BKMETA_ZK_AUTH", "tool:secret")
    monkeypatch.delenv("BKMETA_ZK_BOOKIE_AUTH", raising=False)
    monkeypatch.chdir(tmp_path)
    with Cluster(tmp_path / "home") as cluster:
        frozen = Frozen(cluster, ("tool", "secret"))
        first, second, *rest = frozen.ledgers
        # A stop writes to the disk what the bookie has in memory only.
        frozen.restart(0)
        assert frozen.index_files() == set(frozen.ledgers)

        offered = run(capsys, "freeze", "--metadata", frozen.uri, "--json").result
        assert run(capsys, "freeze", "--metadata", frozen.uri, "--confirm", offered["hash"]).code == 0
        with pytest.raises(ClusterError):
            cluster("new_ledger")
        frozen.remove(*frozen.ledgers)
        frozen.some_passes()
        frozen.restart(1)
        frozen.put(first)
        frozen.put_of_others(second)
        frozen.some_passes()
        assert frozen.index_files() == set(frozen.ledgers)
        frozen.put(*rest)
        assert [frozen.readable(ledger) for ledger in (first, *rest)] == [ENTRIES] * 3

        thaw = ("thaw", "--metadata", frozen.uri, "--accept-unseen", "2")
        offered = run(capsys, *thaw, "--json").result
        assert run(capsys, *thaw, "--confirm", offered["hash"]).code == 0
        frozen.remove(first)
        until(lambda: frozen.index_files() == set(rest), "the controls are deleted")
        assert [frozen.readable(ledger) for ledger in rest] == [ENTRIES] * 2
        frozen.store.close()
