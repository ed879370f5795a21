"""Guarded ledgers on real bookies: a bookie is gone, clients read, and when it is back nothing was deleted.

The records are made by hand from what the bookies that are left hold, so that they judge the writing, and nothing else.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pytest

from backends.protocols import Write
from recovery.codecs.store import REPLICATION_DISABLED
from tests.support.cluster import ClusterError
from tests.support.guarded_cluster import LOST, ROOT, SPARE, GuardedCluster
from tests.support.kept_bytes import Place, less
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.real

ROUNDS: Final = int(os.environ.get("BKMETA_SOAK_GUARDS", "1"))
"""Clusters: each has its storages on other bookies, so that another one is the lost bookie's; then another manager."""
MANAGERS: Final = ("hierarchical", "longhierarchical", "flat", "legacy", "pulsar")
STORAGES: Final = ("db", "interleaved", "sorted")
NODES: Final = (1, 2, 0)
"""Workers of auto-recovery in processes of their own; 0: each bookie has one in it."""
SHAPES: Final = (((0, 1, 3), 2), ((1, 2, 3), 3), ((3, 0), 1), ((0, 1, 2, 3), 2), ((2, 3), 2), ((0, 1, 2), 2))
"""Bookies of a ledger, and W."""
ALL: Final = (0, 1, 2, 3)
FEW: Final = 20
NAMED: Final = FEW if ROUNDS == 1 else 1000
"""Ledgers that are guarded by names alone; few of them while replication is enabled: a worker tries one by one."""
INTEGRITY: Final = {"dataIntegrityChecking": "true", "dataIntegrityStampMissingCookies": "true"}
"""Of a bookie that fills itself from what records name it for, after its disks were lost; DbLedgerStorage alone can."""


class Loss:
    """A cluster without its records and one bookie, restored by guards."""

    def __init__(self, there: GuardedCluster, nodes: int) -> None:
        self.there = there
        self.nodes = nodes
        self.guarded = [there.write(on, write) for on, write in SHAPES]
        self.guarded.append(there.write((0, 1, 3), 2, digest="MAC"))
        self.guarded.append(there.write((3, 1, 2), 2, 12, change=6))
        narrow = {there.write(ALL, len(ALL)): there.bookies[n].id for n in range(LOST)}
        self.guarded += narrow
        self.shrinking = there.write((1, 2), 2)
        self.guarded.append(self.shrinking)
        self.named = [there.write((0, 1, 3), 2), *there.fill(NAMED)]
        self.tail = there.write((1, LOST), 2, 12, change=6)
        self.lone = there.write((0, 1), 1)
        self.control = there.write((0, 3), 2)
        self.normal = there.write((0, 1), 2)
        there.lose()
        self.before = there.kept()
        written = there.written
        # Of some ledgers the record names one of four bookies: then each storage has copies that only the lock keeps.
        named = {ledger: {narrow[ledger]} if ledger in narrow else there.seen for ledger in self.guarded}
        plan = [
            replace(written[n].universal_record(named[n], there.seen if n == self.shrinking else None), guard="lock")
            for n in self.guarded
        ]
        lost, other = there.bookies[LOST].id, there.bookies[0].id
        plan += [replace(written[n].universal_record(there.seen, {lost}), guard="named") for n in self.named]
        # Of this one nobody has seen what two bookies have, last entries among it.
        plan.append(replace(written[self.tail].universal_record(there.seen - {other}, {lost, other}), guard="named"))
        plan.append(replace(written[self.lone].universal_record(there.seen), guard="named"))
        plan += [written[self.control].universal_record(there.seen), written[self.normal].true_record()]
        self.applied = there.apply("guards", plan)
        self.records = there.records()

    def drop_named(self, few: int) -> None:
        """Delete all but a few of the ledgers that are guarded by names alone."""
        dropped = self.named[few:]
        for ledger in dropped:
            self.there.cluster("delete", ledger=ledger)
        self.named = self.named[:few]
        self.before = {place: has for place, has in self.before.items() if place[1] not in dropped}

    def less(self) -> set[Place]:
        """Return where a bookie has less than it had before the loss."""
        return set(less(self.before, self.there.kept()))


@pytest.fixture(scope="module", params=range(ROUNDS))
def loss(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loss]:
    """One cluster for all tests, which go on with it in their order."""
    turn = request.param % len(STORAGES)
    manager = MANAGERS[request.param // len(STORAGES) % len(MANAGERS)]
    nodes = NODES[turn]
    storages = STORAGES[turn:] + STORAGES[:turn]
    there = GuardedCluster(tmp_path_factory.mktemp("guards"), storages, manager, embedded=nodes == 0)
    try:
        yield Loss(there, nodes)
    finally:
        there.close()


@pytest.mark.timeout(600)
def test_clients_read_and_no_copy_goes(loss: Loss) -> None:
    """Without the lost bookie, with it back, all started anew, auto-recovery at work: all copies stay, named or locked.

    Collection and the over-replicated check run each second. The ledger without a lock is the control: the bookie that
    comes back deletes its copy, which the record does not name.
    """
    there, cluster = loss.there, loss.there.cluster
    assert loss.applied.exit_code == 0
    assert there.locks() == set(loss.guarded)
    for n in (0, 1, 2, SPARE):
        cluster.start(there.bookies[n])
    for ledger in (*loss.guarded, *loss.named):
        assert there.read(ledger) == there.written[ledger].seen(there.seen), ledger
    if loss.nodes:
        there.store.write([Write(ROOT + REPLICATION_DISABLED, b"")])
    with there.autorecovery(loss.nodes) as workers:
        cluster.start(there.bookies[LOST])
        for n in (0, 1, 2):
            there.restart(n)
        there.check(0, 1, 2, LOST, SPARE)
        lost = there.bookies[LOST].id
        until(lambda: (lost, loss.control) in loss.less(), "the copy that nothing guards is deleted")
        assert loss.less() == {(lost, loss.control)}
        assert [worker.poll() for worker in workers] == [None] * loss.nodes


@pytest.mark.timeout(600)
def test_replication_that_is_enabled_too_early(loss: Loss) -> None:
    """Locks hold all the same. By names alone, copies of a silent member go when it returns.

    A worker takes another bookie for it once it could read every entry up to the record's end: nothing that the record
    reads is lost, and what only silent members have above that end is (docs/operations/safety.md says so). A record of
    which only a silent member has an entry stays as it is.
    """
    there, cluster = loss.there, loss.there.cluster
    loss.drop_named(FEW)
    silent = {there.bookies[n].id for n in (0, LOST)}
    with there.autorecovery(loss.nodes) as workers:
        cluster("bookie_stop", n=0)
        cluster("bookie_stop", n=LOST)
        there.store.write([Write(ROOT + REPLICATION_DISABLED, None, 0)])

        def list_members(ledger: int) -> set[str]:
            return {name for _, names in cluster.ledgers()[ledger]["segments"] for name in names}

        until(lambda: not list_members(loss.normal) & silent, "the ledger without a guard is copied to another bookie")
        until(lambda: not list_members(loss.tail) & silent, "so is the one that is guarded by names alone")
        assert list_members(loss.lone) == {there.bookies[n].id for n in (0, 1)}
        assert [worker.poll() for worker in workers] == [None] * loss.nodes
        for n in (0, LOST):
            cluster.start(there.bookies[n])
        # A bookie whose collector hangs is started anew while they are checked: nobody is to take another for it.
        there.store.write([Write(ROOT + REPLICATION_DISABLED, b"")])
        there.check(0, 1, 2, LOST, SPARE)
    guarded = {ledger: loss.records[ledger] for ledger in loss.guarded}
    assert {ledger: raw for ledger, raw in there.records().items() if ledger in guarded} == guarded
    assert there.locks() == set(loss.guarded)
    # What was copied is its old bookie's no more; by names alone, of any member that lacks an entry.
    by_names = {(there.bookies[n].id, ledger) for ledger in (*loss.named, loss.lone) for n in ALL}
    copied = {(there.bookies[n].id, loss.normal) for n in ALL} | {(name, loss.tail) for name in silent}
    until(
        lambda: {(name, loss.tail) for name in silent} <= loss.less(),
        "copies of members that were silent go",
        2 * PATIENCE_S,
    )
    assert loss.less() <= {(there.bookies[LOST].id, loss.control), *copied, *by_names}
    for ledger in (*loss.guarded, *loss.named):
        assert set(there.read(ledger)) >= set(there.written[ledger].seen(there.seen)), ledger
    assert there.read(loss.lone) == list(range(8))
    assert there.read(loss.tail) == list(range(6))
    assert not any(cluster("has", bookie=name, ledger=loss.tail, entry=11) for name in silent)


@pytest.mark.timeout(600)
def test_a_lost_member_is_repaired_under_the_lock(loss: Loss) -> None:
    """As `plan ledgers --repair` has it done: another bookie gets copies; those of the lost one stay as well."""
    there, cluster = loss.there, loss.there.cluster
    ledger = loss.guarded[SHAPES.index(((0, 1, 2), 2))]
    gone = there.bookies[0].id
    cluster("bookie_stop", n=0)
    cluster("instead", old=gone, new=there.bookies[SPARE].id)
    cluster("repair", ledger=ledger, bad=gone)
    [(_, members)] = cluster.ledgers()[ledger]["segments"]
    assert gone not in members
    assert there.read(ledger) == list(range(there.written[ledger].entries))
    assert ledger in there.locks()
    cluster.start(there.bookies[0])
    there.check(0, 1, 2, LOST, SPARE)
    assert (gone, ledger) not in loss.less()


@pytest.mark.timeout(600)
def test_settled_every_entry_is_read(loss: Loss) -> None:
    """The true records replace the guarded ones while bookies run, then the locks go: nothing that they name does."""
    there = loss.there
    same = loss.guarded[SHAPES.index(((0, 1, 3), 2))]
    readers = {(n, way): there.open(n, recovery=way) for n in (same, loss.shrinking) for way in (False, True)}
    plan = [replace(there.written[n].true_record(), guard="release") for n in loss.guarded]
    assert there.apply("settled", plan, replaces=True).exit_code == 0
    assert there.locks() == set()
    # A reader without recovery follows the record, and does not survive an ensemble that got smaller.
    until(lambda: readers[loss.shrinking, False]() is not None, "the open reader takes the new record")
    assert [ways for ways, read_on in readers.items() if read_on() is not None] == [(loss.shrinking, False)]
    assert there.open(loss.shrinking, recovery=False)() is None
    there.check(0, 1, 2, LOST, SPARE)
    for ledger in loss.guarded:
        assert there.read(ledger) == list(range(there.written[ledger].entries)), ledger
    named = {
        (name, ledger)
        for ledger in loss.guarded
        for _, members in there.written[ledger].row["segments"]
        for name in members
    }
    assert named <= loss.before.keys()
    assert not named & loss.less()


@pytest.mark.timeout(600)
def test_a_bookie_that_fills_itself_deletes_nothing(loss: Loss) -> None:
    """In data-integrity mode a bookie with new disks copies what records name it for; guards and holds stay."""
    there, cluster = loss.there, loss.there.cluster
    if "metadata-store" in str(there.bookies[0].props):
        pytest.skip("a bookie is a client, too, in this mode, and the JVM knows Pulsar's driver of bookies alone")
    bookie = next(bookie for bookie in there.bookies[:LOST] if bookie.storage == "db")
    ids = {bookie.id for bookie in there.bookies[:SPARE]}
    full = [loss.guarded[SHAPES.index(shape)] for shape in (((1, 2, 3), 3), ((0, 1, 2, 3), 2), ((0, 1, 2), 2))]
    held, everybody = loss.guarded[-2], [bookie.id for bookie in there.bookies[:LOST]]
    plan = [replace(there.written[n].universal_record(ids, {bookie.id}), guard="lock") for n in full]
    plan.append(replace(there.written[held].true_record(), segments=[(0, everybody)], reason="ragged_tail"))
    assert there.apply("again", plan, replaces=True).exit_code == 0
    cluster("bookie_stop", n=bookie.n)
    for folder in (*bookie.ledgers, *bookie.journals):
        shutil.rmtree(cluster.home / folder)
    # What is in a log alone, the bookie had deleted before: when it compacts that log is its own affair.
    before, records = {place: has for place, has in there.kept().items() if has.index}, there.records()
    with pytest.raises(ClusterError, match="InvalidCookie"):
        cluster.start(bookie)
    cluster.start(replace(bookie, props={**bookie.props, **INTEGRITY}))
    last = {ledger: there.written[ledger].entries - 1 for ledger in full}
    until(
        lambda: all(cluster("has", bookie=bookie.id, ledger=n, entry=entry) for n, entry in last.items()),
        "what the records name it for is copied",
    )
    there.check(0, 1, 2, LOST, SPARE)
    assert less(before, there.kept()) == {}
    # Workers inside bookies repair meanwhile what nothing keeps from them: other records may name another bookie.
    now, stay = there.records(), {*full, held}
    assert {ledger: now[ledger] for ledger in stay} == {ledger: records[ledger] for ledger in stay}
    assert loss.nodes == 0 or now == records
    assert there.locks() == set(full)
    for ledger in full:
        assert there.read(ledger) == list(range(there.written[ledger].entries)), ledger
