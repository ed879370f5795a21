"""Guarded ledgers on real bookies: a bookie is gone, clients read, and when it is back nothing was deleted.

The records are made by hand from what the bookies that are left hold, so that they judge the writing, and nothing else.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pytest

from backends.protocols import Write
from recovery.codecs.store import REPLICATION_DISABLED
from tests.support.guarded_cluster import LOST, ROOT, SPARE, GuardedCluster
from tests.support.kept_bytes import Place, less
from tests.support.waiting import until

pytestmark = pytest.mark.real

ROUNDS: Final = int(os.environ.get("BKMETA_SOAK_GUARDS", "1"))
"""Clusters: each has its storages on other bookies, so that another one is the lost bookie's; then another manager."""
MANAGERS: Final = ("hierarchical", "longhierarchical", "flat", "pulsar")
STORAGES: Final = ("db", "interleaved", "sorted")
NODES: Final = (1, 2, 0)
"""Workers of auto-recovery in processes of their own; 0: each bookie has one in it."""
SHAPES: Final = (((0, 1, 3), 2), ((1, 2, 3), 3), ((3, 0), 1), ((0, 1, 2, 3), 2), ((2, 3), 2), ((0, 1, 2), 2))
"""Bookies of a ledger, and W."""
ALL: Final = (0, 1, 2, 3)


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
        self.named = there.write((0, 1, 3), 2)
        self.control = there.write((0, 3), 2)
        self.normal = there.write((0, 1), 2)
        there.lose()
        self.before = there.kept()
        written = there.written
        # Of some ledgers the record names one of four bookies: then each storage has copies that only the lock keeps.
        named = {ledger: {narrow[ledger]} if ledger in narrow else there.seen for ledger in self.guarded}
        plan = [replace(written[n].universal_record(named[n]), guard="lock") for n in self.guarded]
        everybody = {*there.seen, there.bookies[LOST].id}
        plan.append(replace(written[self.named].universal_record(everybody), guard="named"))
        plan += [written[self.control].universal_record(there.seen), written[self.normal].true_record()]
        self.applied = there.apply("guards", plan)
        self.records = there.records()

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
    """Without the lost bookie, with it back, with another one gone and back, auto-recovery at work: all copies stay.

    Collection and the over-replicated check run each second. The ledger without a lock is the control: the bookie that
    comes back deletes its copy, which the record does not name. A guard by names alone holds while replication is
    disabled; afterwards a worker puts another bookie in the place of one that lacks entries, whose copy then goes.
    """
    there, cluster = loss.there, loss.there.cluster
    assert loss.applied.exit_code == 0
    assert there.locks() == set(loss.guarded)
    for n in (0, 1, 2, SPARE):
        cluster.start(there.bookies[n])
    for ledger in loss.guarded:
        assert there.read(ledger) == there.written[ledger].seen(there.seen), ledger
    if loss.nodes:
        there.store.write([Write(ROOT + REPLICATION_DISABLED, b"")])
    with there.autorecovery(loss.nodes) as workers:
        cluster.start(there.bookies[LOST])
        there.check(0, 1, 2, LOST, SPARE)
        lost = there.bookies[LOST].id
        until(lambda: (lost, loss.control) in loss.less(), "the copy that nothing guards is deleted")
        assert loss.less() == {(lost, loss.control)}

        there.store.write([Write(ROOT + REPLICATION_DISABLED, None, 0)])
        cluster("bookie_stop", n=0)
        spare = [there.bookies[n].id for n in (2, LOST, SPARE)]
        until(
            lambda: any(name in str(cluster.ledgers()[loss.normal]["segments"]) for name in spare),
            "the ledger without a guard is copied to another bookie",
        )
        assert [worker.poll() for worker in workers] == [None] * loss.nodes
        cluster.start(there.bookies[0])
        there.check(0, 1, 2, LOST, SPARE)
    guarded = {ledger: loss.records[ledger] for ledger in loss.guarded}
    assert {ledger: raw for ledger, raw in there.records().items() if ledger in guarded} == guarded
    assert there.locks() == set(loss.guarded)
    # What was copied is its old bookie's no more; of the named guard, of any member that lacks an entry.
    moved = {(there.bookies[0].id, loss.normal), *((there.bookies[n].id, loss.named) for n in ALL)}
    assert loss.less() <= {(lost, loss.control), *moved}
    for ledger in (*loss.guarded, loss.named):
        assert set(there.read(ledger)) >= set(there.written[ledger].seen(there.seen)), ledger


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
    plan = [replace(there.written[n].true_record(), guard="release") for n in loss.guarded]
    assert there.apply("settled", plan, replaces=True).exit_code == 0
    assert there.locks() == set()
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
