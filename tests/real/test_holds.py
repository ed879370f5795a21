"""Holds on real bookies: whatever collection, autorecovery and clients do, they keep the data and serve nobody."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from backends.protocols import Write
from backends.zookeeper.store import ZooKeeperStore
from reconcile.plan.actions import Passwords, make_ledger_actions
from reconcile.rules.holds import HOLD_PASSWORD_SIZE
from recovery.codecs.store import Layout
from recovery.model import tables
from tests.support.auto_recovery import auto_recovery
from tests.support.cluster import Bookie, Cluster, encoded
from tests.support.kept_bytes import Kept, Place, kept, less
from tests.support.plan_folder import Ledger
from tests.support.waiting import until

pytestmark = pytest.mark.real

ROOT: Final = "/ledgers"
ENTRIES: Final = 5
PASSWORD: Final = b"secret"
HOLDERS: Final = (("interleaved", False), ("sorted", True), ("db", False), ("db", True))
"""Storage and verifyMetadataOnGC of the bookies that hold the ledgers."""
SPARE: Final = len(HOLDERS)
"""A bookie that comes when one of them is lost."""
PROPS: Final = {"gcWaitTime": "1000", "flushInterval": "500", "gcOverreplicatedLedgerWaitTime": "1000"}


class Held:
    """Four bookies of every storage, ledgers that were closed and one that was abandoned, and holds in their place."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.cluster = Cluster(work / "home")
        self.log = work / "home.log"
        self.cluster.start_zookeeper("zookeeper", ROOT)
        self.cluster("format", layout="hierarchical")
        self.bookies = [
            Bookie(
                n,
                f"10.0.0.{n + 1}:3181",
                storage,
                [f"b{n}/journal"],
                [f"b{n}/ledgers"],
                props=PROPS | {"verifyMetadataOnGC": str(verify).lower()},
            )
            for n, (storage, verify) in enumerate([*HOLDERS, ("sorted", False)])
        ]
        for bookie in self.bookies[:SPARE]:
            self.cluster.start(bookie)
        size = len(HOLDERS)
        self.closed = [self._ledger(size, digest) for digest in ("CRC32C", "MAC")]
        self.striped = self._ledger(2, "CRC32C")
        self.abandoned = self._ledger(size, "CRC32C", close=False)
        self.normal = self._ledger(size, "CRC32C")
        self.digests = {self.closed[0]: "CRC32C", self.closed[1]: "MAC"}
        self.held = [*self.closed, self.striped, self.abandoned]
        for bookie in self.bookies[:SPARE]:
            self.restart(bookie.n)
        self.store = ZooKeeperStore(self.cluster.zookeeper)
        self.rows = self.cluster.ledgers()
        self.true = {ledger: self.record(ledger) for ledger in (*self.held, self.normal)}
        self.before = self.kept()

    def _ledger(self, write: int, digest: str, *, close: bool = True) -> int:
        known = {"digest": digest, "password": encoded(PASSWORD), "custom": {}}
        ledger: int = self.cluster("create", E=len(HOLDERS), W=write, A=write, **known)
        self.cluster("add", ledger=ledger, sizes=[100] * ENTRIES, ids=None)
        if close:
            self.cluster("close", ledger=ledger)
        return ledger

    def restart(self, n: int) -> None:
        """Stop a bookie cleanly, and start it again: what it had in memory is on its disk then."""
        self.cluster("bookie_stop", n=n)
        self.cluster.start(self.bookies[n])

    def record(self, ledger: int) -> tuple[bytes, int]:
        """Return bytes and version of a ledger's record."""
        held = self.store.get(self.rows[ledger]["path"])
        assert held is not None
        return held.value, held.version

    def replace(self, ledger: int, value: bytes) -> None:
        """Write a record over the one that is there."""
        self.store.write([Write(self.rows[ledger]["path"], value, self.record(ledger)[1])])

    def place(self) -> None:
        """Put the holds that a plan proposes where the true records stand."""
        rows = []
        for ledger in self.held:
            members = [member for _, all_of in self.rows[ledger]["segments"] for member in all_of]
            rows.append(Ledger(ledger, [(0, sorted(set(members)))], reason="ragged_tail").row())
        table = pa.Table.from_pylist(rows, schema=tables.RECONSTRUCTION)
        secrets = bytes(range(256))[: HOLD_PASSWORD_SIZE * len(rows)]
        actions = make_ledger_actions(table, Layout.HIERARCHICAL, Passwords.from_candidates(()), secrets)
        for row in actions.to_pylist():
            assert row["op"] == "hold"
            self.replace(row["ledger"], row["value"])
        self.holds = {ledger: self.record(ledger) for ledger in self.held}

    def kept(self) -> dict[Place, Kept]:
        """Return what the holders have of the ledgers that are held, and of one that is not, on their disks."""
        mine = {*self.held, self.normal}
        found = kept(self.cluster.home, self.bookies[:SPARE])
        return {place: has for place, has in found.items() if place[1] in mine}

    def read(self, ledger: int, password: bytes = PASSWORD, *, recovery: bool = False) -> Any:
        """Open and read as a client does."""
        digest = self.digests.get(ledger, "CRC32C")
        return self.cluster("read", ledger=ledger, digest=digest, password=encoded(password), recovery=recovery)

    def marked(self) -> set[int]:
        """Return the ledgers that the auditor has marked as under-replicated."""
        nodes = self.cluster.nodes(f"{ROOT}/underreplication/ledgers")
        return {int(path.rpartition("/urL")[2]) for path in nodes if "/urL" in path}

    def passes(self, running: int = SPARE) -> None:
        """Wait until so many bookies have ended two passes of garbage collection, each with what goes on its disk."""
        self.cluster.collect_garbage(running)


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    """One cluster for all tests of this module, which go on with it in their order."""
    made = Held(tmp_path_factory.mktemp("held"))
    try:
        made.place()
        yield made
    finally:
        made.store.close()
        made.cluster.__exit__(None, None, None)


@pytest.mark.timeout(600)
def test_garbage_collection_keeps_what_is_held(there: Held) -> None:
    """Passes and over-replicated checks every second, verified against the store or not: no byte of a hold goes."""
    placed = {
        (name, ledger) for ledger in there.held for _, members in there.rows[ledger]["segments"] for name in members
    }
    assert placed < {place for place, has in there.before.items() if has.index and has.logs}
    there.passes()
    assert less(there.before, there.kept()) == {}
    assert {ledger: there.record(ledger) for ledger in there.held} == there.holds


def test_clients_are_refused_and_change_nothing(there: Held) -> None:
    """With the true and with an empty password, with recovery and without: refused; record and version stay."""
    for ledger in there.held:
        for password in (PASSWORD, b""):
            for recovery in (False, True):
                found = there.read(ledger, password, recovery=recovery)
                assert "wrong password" in found.get("open_error", "")
                assert found["entries"] == []
    assert {ledger: there.record(ledger) for ledger in there.held} == there.holds


@pytest.mark.timeout(600)
def test_autorecovery_leaves_holds_alone_when_a_holder_is_lost(there: Held) -> None:
    """A holder gone, a bookie new, auditor and replicator at work: others are copied, holds are not touched."""
    there.cluster.start(there.bookies[SPARE])
    there.cluster("bookie_stop", n=3)
    with auto_recovery(there.cluster.zookeeper, there.work) as [auditor]:
        spare = there.bookies[SPARE].id
        until(
            lambda: spare in str(there.cluster.ledgers()[there.normal]["segments"]),
            "the ledger without a hold is copied",
        )
        until(lambda: set(there.held) <= there.marked() | {there.striped}, "holds that lost a holder are marked")
        there.passes(len(HOLDERS))  # one is gone, one is new
        assert auditor.poll() is None
        assert {ledger: there.record(ledger) for ledger in there.held} == there.holds
    there.cluster.start(there.bookies[3])
    there.passes(len(HOLDERS) + 1)
    assert {ledger for _, ledger in less(there.before, there.kept())} <= {there.normal}


@pytest.mark.timeout(600)
def test_the_true_record_reads_every_entry(there: Held) -> None:
    """Written over the hold by its version, after all that: every entry is read, the abandoned ledger recovered."""
    for ledger in there.held:
        there.replace(ledger, there.true[ledger][0])
    for ledger in there.held:
        found = there.read(ledger, recovery=ledger == there.abandoned)
        assert "open_error" not in found, found
        assert [size for size, _ in found["entries"]] == [100] * ENTRIES
    # And from each holder alone, of those that were written to all.
    for alone in range(len(HOLDERS)):
        for n in range(len(HOLDERS) + 1):
            if n != alone:
                there.cluster("bookie_stop", n=n)
        for ledger in there.closed:
            assert [size for size, _ in there.read(ledger)["entries"]] == [100] * ENTRIES
        for n in range(len(HOLDERS) + 1):
            if n != alone:
                there.cluster.start(there.bookies[n])
