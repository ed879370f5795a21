"""Bookies of every storage, by each ledger manager and by Pulsar's driver: frozen, they keep everything."""

import base64
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from backends.protocols import Write
from backends.zookeeper.store import ZooKeeperStore
from reconcile.write.freezing import freeze_state
from recovery.codecs import ledger_metadata
from recovery.codecs.store import Layout, layout_bytes
from recovery.model.metadata import Segment
from tests.support import pulsar
from tests.support.cluster import Bookie, Cluster, ClusterError, encoded
from tests.support.command import run
from tests.support.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.real]

ROOT: Final = "/ledgers"
AUTH: Final = ("tool", "secret")
MANAGERS: Final = ("flat", "pulsar", "longhierarchical", "hierarchical", "legacy")
"""The last two are frozen like the third, and by other tests; all are run where more time is given."""
SOAKED: Final = int(os.environ.get("BKMETA_SOAK_LAYOUTS", "3"))
STORAGES: Final = ("interleaved", "sorted", "db")
ENTRIES: Final = 3
FAILED: Final = "Exception when iterating over the metadata"
PROPS: Final = {"gcWaitTime": "1000", "flushInterval": "500", "gcOverreplicatedLedgerWaitTime": "1000"}


class Frozen:
    """A bookie of each storage with ledgers on all, by one ledger manager.

    Args:
        work: a folder.
        manager: one of `MANAGERS`.
        apart: whether bookies have a JVM of their own, which can be stopped while ZooKeeper goes on.
    """

    def __init__(self, work: Path, manager: str, *, apart: bool = False) -> None:
        of_pulsar = manager == "pulsar"
        extra = {"class_path": pulsar.class_path(), "options": pulsar.options(work)} if of_pulsar else {}
        self.layout = "hierarchical" if of_pulsar else manager
        self.cluster = Cluster(work / "home", **extra)  # type: ignore[arg-type]  # either nothing or both
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
        self.jvm = self.cluster
        if apart:
            self.jvm = Cluster(work / "bookies", **extra)  # type: ignore[arg-type]  # as above
            # It has one of its own that nobody uses: its bookies are told where the other is.
            self.jvm.start_zookeeper("zookeeper", ROOT)
        self.log = Path(f"{self.jvm.home}.log")
        named = {"metadataServiceUri": f"{kind}://{self.cluster.zookeeper}{ROOT}"} if apart else {}
        named |= {"metadataServiceUri": self.uri} if of_pulsar else {}
        # Without a root that check, which runs once a day, ends a pass before anything is listed and deleted.
        props = PROPS | named | ({"gcOverreplicatedLedgerWaitTime": "86400000"} if apart else {})
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
            self.jvm.start(bookie)
        self.ledgers = [self._ledger() for _ in range(3)]
        # A stop writes to the disk what the bookie has in memory only.
        self.restart()
        self.store = ZooKeeperStore(self.cluster.zookeeper, auth=AUTH)
        rows = self.cluster.ledgers()
        self.keys = {ledger: rows[ledger]["path"] for ledger in self.ledgers}
        self.records = {ledger: self._value(key) for ledger, key in self.keys.items()}

    def restart(self) -> None:
        """Stop every bookie cleanly, and start it again."""
        for bookie in self.bookies:
            self.jvm("bookie_stop", n=bookie.n)
            self.jvm.start(bookie)

    def end(self) -> None:
        """Leave nothing running."""
        self.store.close()
        for jvm in {self.jvm, self.cluster}:
            jvm.__exit__(None, None, None)

    def _ledger(self, **named: int) -> int:
        size = len(self.bookies)
        known = {"digest": "CRC32C", "password": encoded(b""), "custom": {}}
        ledger: int = self.cluster("create", E=size, W=size, A=size, **known, **named)
        self.cluster("add", ledger=ledger, sizes=[100] * ENTRIES, ids=list(range(ENTRIES)) if named else None)
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
        current = self.jvm.home / self.bookies[n].ledgers[0] / "current"
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


@pytest.fixture(autouse=True)
def _identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our identity in the environment, and a working folder for journals."""
    monkeypatch.setenv("BKMETA_ZK_AUTH", ":".join(AUTH))
    monkeypatch.delenv("BKMETA_ZK_BOOKIE_AUTH", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(params=MANAGERS[:SOAKED])
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Frozen]:
    """One cluster a ledger manager."""
    made = Frozen(tmp_path, request.param)
    try:
        yield made
    finally:
        made.end()


def confirmed(capsys: pytest.CaptureFixture[str], *arguments: object) -> int:
    """Run a command twice: to see its hash, and to confirm it."""
    offered = run(capsys, *arguments, "--json").result
    return run(capsys, *arguments, "--confirm", offered["hash"]).code


def thawed(capsys: pytest.CaptureFixture[str], there: Frozen) -> int:
    """Thaw without inventories: all bookies are accepted as not looked at."""
    bookies = there.store.children(f"{ROOT}/cookies")
    assert bookies
    return confirmed(capsys, "thaw", "--metadata", there.uri, "--accept-unseen", len(bookies))


@pytest.mark.timeout(600)
def test_nothing_is_deleted_while_frozen(there: Frozen, capsys: pytest.CaptureFixture[str]) -> None:
    """Over an empty, a partial and a wrong root every bookie fails its passes and keeps every ledger; then all is read.

    The over-replicated check runs every second, too. The control: thawed, a ledger without a record goes.
    """
    first, second, third = there.ledgers
    assert confirmed(capsys, "freeze", "--metadata", there.uri) == 0
    assert freeze_state.read_freeze_state(there.store, ROOT).frozen
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
    assert thawed(capsys, there) == 0
    there.remove(first)
    until(lambda: first not in there.on_disk(0) | there.on_disk(1), "the control is deleted")
    assert [there.on_disk(n) for n in (0, 1)] == [{second, third}] * 2
    # Every copy by itself: the bookie of the third storage alone has what is asked for.
    for n in (0, 1):
        there.jvm("bookie_stop", n=n)
    assert [there.readable(ledger) for ledger in (second, third)] == [ENTRIES] * 2


@pytest.mark.timeout(600)
@pytest.mark.parametrize("manager", sorted(MANAGERS, key="pulsar".__ne__)[: 1 if len(MANAGERS) > SOAKED else None])
def test_clients_go_on_while_only_deletes_are_frozen(
    manager: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The real client creates, adds, closes, reads and deletes; bookies fail their passes, and keep what it deletes.

    It deletes all that there is, so each folder becomes empty. The control: thawed, what has no record goes.
    """
    there = Frozen(tmp_path, manager)
    try:
        assert confirmed(capsys, "freeze", "--metadata", there.uri, "--deletes-only") == 0
        assert freeze_state.read_freeze_state(there.store, ROOT).state is freeze_state.FreezeExtent.DELETES
        first, second, third = there.ledgers
        for ledger in there.ledgers:
            there.cluster("delete", ledger=ledger)
        assert there.store.get(there.keys[first]) is None
        # One is in a folder that is made for it.
        made = [there._ledger(), there._ledger(id=30_001)]
        there.cluster("new_ledger")
        there.some_passes()
        assert [there.on_disk(n) for n in (0, 1)] == [set(there.ledgers)] * 2
        there.put(first)
        there.put(third)
        assert [there.readable(ledger) for ledger in (first, third, *made)] == [ENTRIES] * 4
        assert thawed(capsys, there) == 0
        assert freeze_state.read_freeze_state(there.store, ROOT).state is freeze_state.FreezeExtent.THAWED
        until(lambda: second not in there.on_disk(0) | there.on_disk(1), "the control is deleted")
        assert [there.on_disk(n) for n in (0, 1)] == [{first, third}] * 2
    finally:
        there.end()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("manager", ["pulsar", "longhierarchical"][: 1 + (len(MANAGERS) <= SOAKED)])
def test_a_root_that_is_gone_deletes_nothing_once_it_was_made_frozen(
    manager: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the managers that take a missing root for one without ledgers: stopped, frozen, gone on, and nothing goes.

    Bookies are stopped as the first ten minutes have it (kill -STOP), the root is gone, and is made frozen. The
    control: thawed, they delete what has no record.
    """
    there = Frozen(tmp_path, manager, apart=True)
    try:
        nodes = {
            path: base64.b64decode(node["data"] or "")
            for path, node in there.cluster.nodes(ROOT).items()
            if not node["ephemeral"] and path not in there.keys.values()
        }
        os.kill(there.jvm.pid, signal.SIGSTOP)
        everything = {**there.cluster.nodes(ROOT)}
        for path in sorted(everything, reverse=True):
            held = there.store.get(path)
            assert held is not None
            there.store.write([Write(path, None, held.version)])
        assert there.store.get(ROOT) is None
        assert confirmed(capsys, "freeze", "--metadata", there.uri) == 0
        os.kill(there.jvm.pid, signal.SIGCONT)
        there.some_passes()
        assert [there.on_disk(n) for n in (0, 1)] == [set(there.ledgers)] * 2
        for path, value in sorted(nodes.items()):
            if there.store.get(path) is None:
                there.store.write([Write(path, value)])
        for ledger in there.ledgers:
            there.put(ledger)
        there.restart()
        there.some_passes()
        assert [there.readable(ledger) for ledger in there.ledgers] == [ENTRIES] * 3
        assert thawed(capsys, there) == 0
        first, *rest = there.ledgers
        there.remove(first)
        until(lambda: first not in there.on_disk(0) | there.on_disk(1), "the control is deleted")
        assert [there.on_disk(n) for n in (0, 1)] == [set(rest)] * 2
    finally:
        os.kill(there.jvm.pid, signal.SIGCONT)
        there.end()
