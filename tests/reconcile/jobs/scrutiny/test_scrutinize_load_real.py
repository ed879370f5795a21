"""A healthy cluster that is written to, loses bookies for seconds and repairs itself: scrutiny finds nothing to act on.

`scripts/soak scrutiny` looks so many times; the suite twice.
"""

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from recovery.dataset import open_dataset
from tests.support import jars
from tests.support.cluster import JVM, Cluster, ClusterError
from tests.support.command import Done, process
from tests.support.scrutinized_cluster import ScrutinizedCluster
from tests.support.waiting import until

LOOKS = int(os.environ.get("BKMETA_SOAK_SCRUTINY", "2"))
pytestmark = [pytest.mark.real, pytest.mark.timeout(300 + 60 * LOOKS)]

AUTORECOVERY = """metadataServiceUri=zk+hierarchical://{zookeeper}/ledgers
bookieId=autorecovery-0
allowLoopback=true
advertisedAddress=127.0.0.1
lostBookieRecoveryDelay=0
auditorPeriodicBookieCheckInterval=2
openLedgerRereplicationGracePeriod=1000
zkTimeout=10000
httpServerEnabled=false
"""


class Load:
    """What clients and operators do to the cluster, one step after another."""

    def __init__(self, there: ScrutinizedCluster, seed: int) -> None:
        self.there = there
        self.rng = random.Random(seed)
        self.open: list[int] = []
        self.closed: list[int] = []
        self.down: int | None = None
        self.steps: Counter[str] = Counter()

    def step(self) -> None:
        """Do one thing; what the client cannot do while a bookie is away it does not do."""
        kind = self.rng.choices(["create", "add", "close", "delete", "flap"], [5, 8, 4, 1, 1])[0]
        try:
            getattr(self, f"_{kind}")()
            self.steps[kind] += 1
        except ClusterError:
            self.steps[f"{kind}, refused"] += 1
            self.open.clear()

    def _create(self) -> None:
        quorum = self.rng.choice([(3, 2, 2), (3, 3, 2), (2, 2, 1)])
        self.open.append(self.there.write(quorum, self.rng.randint(0, 20), close=False))

    def _add(self) -> None:
        if self.open:
            ledger = self.rng.choice(self.open)
            self.there.cluster("add", ledger=ledger, sizes=[30] * self.rng.randint(1, 30), ids=None)

    def _close(self) -> None:
        if self.open:
            ledger = self.open.pop(self.rng.randrange(len(self.open)))
            self.there.cluster("close", ledger=ledger)
            self.closed.append(ledger)

    def _delete(self) -> None:
        if len(self.closed) > 3:
            self.there.cluster("delete", ledger=self.closed.pop(self.rng.randrange(len(self.closed))))

    def _flap(self) -> None:
        if self.down is None:
            self.down = self.rng.randrange(len(self.there.bookies))
            self.there.cluster("bookie_stop", n=self.down)
        else:
            self.there.cluster.start(self.there.bookies[self.down])
            self.down = None


@pytest.fixture
def there(tmp_path: Path) -> Iterator[ScrutinizedCluster]:
    """Four bookies, and auto-recovery in a process of its own."""
    with Cluster(tmp_path / "cluster") as cluster:
        running = ScrutinizedCluster(cluster)
        conf = tmp_path / "autorecovery.conf"
        conf.write_text(AUTORECOVERY.format(zookeeper=cluster.zookeeper))
        command = ["java", *JVM, "-cp", jars.class_path(), "org.apache.bookkeeper.replication.AutoRecoveryMain"]
        with (tmp_path / "autorecovery.log").open("wb") as log:
            auditor = subprocess.Popen([*command, "--conf", str(conf)], stdout=log, stderr=subprocess.STDOUT)
        votes = "/ledgers/underreplication/auditorelection"
        try:
            until(lambda: any("/V_" in path for path in cluster.nodes(votes)), "an auditor is elected")
            yield running
        finally:
            auditor.kill()
            auditor.wait()


def test_a_healthy_cluster_under_load_has_no_finding_above_info(there: ScrutinizedCluster, tmp_path: Path) -> None:
    """Writes, ensemble changes, closes, deletes, flapping bookies, re-replication: what is seen once is not said."""
    seed = int(os.environ.get("BKMETA_SOAK_SEED", "17"))
    load = Load(there, seed)
    for _ in range(30):
        load.step()
    done: list[Done] = []
    totals: Counter[str] = Counter()
    with ThreadPoolExecutor(1) as beside:
        for number in range(LOOKS):
            look = beside.submit(
                process, "scrutinize", "--metadata", there.uri, "--out", tmp_path / f"run-{number}",
                "--recheck-after", "12s", "--deadline", "5", "--json",
            )  # fmt: skip
            while not look.done():
                load.step()
            done.append(look.result())
            found = open_dataset(tmp_path / f"run-{number}", "scrutiny").read("findings").to_pylist()
            loud = [row for row in found if row["severity"] != "info"]
            assert loud == [], (seed, number, load.steps)
            totals.update({key: done[-1].result["counts"][key] for key in ("listed", "clean", "rechecked")})
    assert {one.code for one in done} <= {0, 4}, [one.result["verdict"] for one in done]
    assert totals["clean"] > 0
    sys.stdout.write(f"seed {seed}: {LOOKS} scrutinies, {dict(totals)}, {dict(load.steps)}\n")
