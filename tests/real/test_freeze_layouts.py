"""Bookies of every storage, by each ledger manager and by Pulsar's driver: frozen, they keep everything."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from backends.protocols import Write
from backends.zookeeper import ZooKeeperStore
from reconcile import frozen
from recovery.codecs import ledger_metadata
from recovery.codecs.store import Layout, layout_bytes
from recovery.model.metadata import Segment
from tests.command import run
from tests.real import pulsar
from tests.real.cluster import Bookie, Cluster, ClusterError, encoded

pytestmark = pytest.mark.real

ROOT: Final = "/ledgers"
AUTH: Final = ("tool", "secret")
MANAGERS: Final = ("flat", "pulsar", "longhierarchical", "hierarchical", "legacy")
"""The last two are frozen like the third, and by other tests; all are run where more time is given."""
STORAGES: Final = ("interleaved", "sorted", "db")
ENTRIES: Final = 3
FAILED: Final = "Exception when iterating over the metadata"
PATIENCE_S: Final = 120.0
PROPS: Final = {"gcWaitTime": "1000", "flushInterval": "500", "gcOverreplicatedLedgerWaitTime": "1000"}


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that real servers do by themselves."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.1)


class Frozen:
    """A bookie of each storage with ledgers on all, by one ledger manager."""

    def __init__(self, work: Path, manager: str) -> None:
        of_pulsar = manager == "pulsar"
        extra = {"class_path": pulsar.class_path(), "options": pulsar.options(work)} if of_pulsar else {}
        self.layout = "hierarchical" if of_pulsar else manager
        self.cluster = Cluster(work / "home", **extra)  # type: ignore[arg-type]  # either nothing or both
        self.log = work / "home.log"
        self.cluster.start_zookeeper("zookeeper", ROOT)
        self.cluster("format", layout="hierarchical" if self.layout == "legacy" else self.layout)
        if self.layout == "legacy":
            # No URI names it: clusters that have it say so in LAYOUT.
            layout = {"path": f"{ROOT}/LAYOUT", "data": encoded(layout_bytes(Layout.LEGACY))}
            self.cluster("zk_put", nodes=[layout])
        kind = {"legacy": "zk+legacyhierarchical"}.get(self.layout, f"zk+{self.layout}")
        self.uri = (
            f"metadata-store:zk:{self.cluster.zookeeper}" if of_pulsar else f"{kind}://{self.cluster.zookeeper}{ROOT}"
        )
        props = PROPS | ({"metadataServiceUri": f"metadata-store:zk:{self.cluster.zookeeper}"} if of_pulsar else {})
        self.bookies = [
            Bookie(
                n,
                f"10.0.0.{n + 1}:3181",
                storage,
                [f"b{n}/journal"],
                [f"b{n}/ledgers"],
                props=props | {"verifyMetadataOnGC": str(n == 1).lower()},
            )
            for n, storage in enumerate(STORAGES)
        ]
        for bookie in self.bookies:
            self.cluster.start(bookie)
        self.ledgers = [self._ledger() for _ in range(3)]
        # A stop writes to the disk what the bookie has in memory only.
        for bookie in self.bookies:
            self.cluster("bookie_stop", n=bookie.n)
            self.cluster.start(bookie)
        self.store = ZooKeeperStore(self.cluster.zookeeper, auth=AUTH)
        rows = self.cluster.ledgers()
        self.keys = {ledger: rows[ledger]["path"] for ledger in self.ledgers}
        self.records = {ledger: self._value(key) for ledger, key in self.keys.items()}

    def _ledger(self) -> int:
        size = len(self.bookies)
        known = {"digest": "CRC32C", "password": encoded(b""), "custom": {}}
        ledger: int = self.cluster("create", E=size, W=size, A=size, **known)
        self.cluster("add", ledger=ledger, sizes=[100] * ENTRIES, ids=None)
        self.cluster("close", ledger=ledger)
        return ledger

    def _value(self, key: str) -> bytes:
        held = self.store.get(key)
        assert held is not None
        return held.value

    def remove(self, ledger: int) -> None:
        """Take a record away."""
        held = self.store.get(self.keys[ledger])
        if held is not None:
            self.store.write([Write(self.keys[ledger], None, held.version)])

    def put(self, ledger: int, *members: str) -> None:
        """Put a record back, as it was or with other members."""
        self.remove(ledger)
        record = ledger_metadata.decode(self.records[ledger])
        if members:
            record = replace(record, segments=tuple(Segment(s.first, members) for s in record.segments))
        self.store.write([Write(self.keys[ledger], ledger_metadata.encode(record))])

    def on_disk(self, n: int) -> set[int]:
        """Return the ledgers that an interleaved or sorted bookie has an index of on its disk."""
        current = self.cluster.home / self.bookies[n].ledgers[0] / "current"
        return {int(path.stem, 16) for path in current.glob("*/*/*.idx")} & set(self.ledgers)

    def some_passes(self) -> None:
        """Wait until every bookie has failed two passes from now on, as far as their number tells."""

        def failed() -> int:
            return self.log.read_text(errors="replace").count(FAILED)

        before = failed()
        until(lambda: failed() >= before + 2 * len(self.bookies), "failed passes")

    def readable(self, ledger: int) -> int:
        """Return how many entries the real client reads."""
        found = self.cluster("read", ledger=ledger, digest="CRC32C", password=encoded(b""), recovery=False)
        assert "open_error" not in found, found
        return sum(size is not None for size, _ in found["entries"])


@pytest.fixture(params=MANAGERS[: int(os.environ.get("BKMETA_SOAK_LAYOUTS", "3"))])
def there(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Frozen]:
    """One cluster a ledger manager."""
    monkeypatch.setenv("BKMETA_ZK_AUTH", ":".join(AUTH))
    monkeypatch.delenv("BKMETA_ZK_BOOKIE_AUTH", raising=False)
    monkeypatch.chdir(tmp_path)
    made = Frozen(tmp_path, request.param)
    try:
        yield made
    finally:
        made.store.close()
        made.cluster.__exit__(None, None, None)


def confirmed(capsys: pytest.CaptureFixture[str], *arguments: object) -> int:
    """Run a command twice: to see its hash, and to confirm it."""
    offered = run(capsys, *arguments, "--json").result
    return run(capsys, *arguments, "--confirm", offered["hash"]).code


@pytest.mark.timeout(600)
def test_nothing_is_deleted_while_frozen(there: Frozen, capsys: pytest.CaptureFixture[str]) -> None:
    """Over an empty, a partial and a wrong root every bookie fails its passes and keeps every ledger; then all is read.

    The over-replicated check runs every second, too. The control: thawed, a ledger without a record goes.
    """
    first, second, third = there.ledgers
    assert confirmed(capsys, "freeze", "--metadata", there.uri) == 0
    assert frozen.is_frozen(there.store, ROOT).frozen
    with pytest.raises(ClusterError):
        there.cluster("new_ledger")
    for ledger in there.ledgers:
        there.remove(ledger)
    there.some_passes()
    there.put(first)
    there.put(second, "10.0.0.3:3181", "10.0.0.8:3181", "10.0.0.9:3181")
    layout, instance = (there.store.get(f"{ROOT}/{name}") for name in ("LAYOUT", "INSTANCEID"))
    assert layout is not None
    assert instance is not None
    there.store.write([Write(f"{ROOT}/INSTANCEID", b"another", instance.version)])
    there.some_passes()
    assert [there.on_disk(n) for n in (0, 1)] == [set(there.ledgers)] * 2
    there.store.write([Write(f"{ROOT}/INSTANCEID", instance.value, instance.version + 1)])
    there.put(second)
    there.put(third)
    assert [there.readable(ledger) for ledger in there.ledgers] == [ENTRIES] * 3
    assert confirmed(capsys, "thaw", "--metadata", there.uri) == 0
    there.remove(first)
    until(lambda: first not in there.on_disk(0) | there.on_disk(1), "the control is deleted")
    assert [there.on_disk(n) for n in (0, 1)] == [{second, third}] * 2
    # Every copy by itself: the bookie of the third storage alone has what is asked for.
    for n in (0, 1):
        there.cluster("bookie_stop", n=n)
    assert [there.readable(ledger) for ledger in (second, third)] == [ENTRIES] * 2
