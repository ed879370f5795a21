"""A Spark cluster whose hosts share nothing but an object store: a worker or the driver is killed in mid-job.

Master and workers are processes of their own. Workers find this checkout empty, and the driver's folders, too: the
program comes with the session, its libraries with a packed environment, datasets by the store.
"""

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from recovery.dataset import MANIFEST, Dataset, open_dataset
from recovery.errors import DatasetError
from tests.support import command
from tests.support.cases import cache_home, case_dir, operator
from tests.support.object_store import SECRET, Fault, FaultyProxy, ObjectStore, started_store
from tests.support.packed import pack_environment
from tests.support.processes import find_connected
from tests.support.spark_cluster import SparkCluster, spark_cluster
from tests.support.waiting import until

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.geteuid() != 0, reason="hosts that see other folders need the right to mount"),
]

CASE: Final = "c03"


@dataclass(slots=True)
class Watch:
    """What a proxy does when a task of a plan stores a part.

    Attributes:
        plan: key of the plan's folder; empty: nothing is waited for.
        writers: sessions of the processes that stored parts of it: each is a worker's.
        kill: ends somebody, before the first part is stored; takes its writer.
    """

    plan: str = ""
    writers: list[int] = field(default_factory=list)
    kill: Callable[[int], None] | None = None

    def expect(self, plan: str, kill: Callable[[int], None] | None = None) -> None:
        """Wait for another plan."""
        self.plan, self.writers, self.kill = plan, [], kill

    def choose(self, method: str, path: str, port: int) -> Fault | None:
        """Kill somebody, where that is wanted; the upload is cut then, as it is when a host is gone."""
        if not (self.plan and method in ("PUT", "POST") and f"/{self.plan}/actions/buckets" in path):
            return None
        self.writers.append(os.getsid(find_connected(port)))
        if self.kill is None or len(self.writers) > 1:
            return None
        self.kill(self.writers[0])
        return Fault.CUT_UPLOAD


@dataclass(frozen=True, slots=True)
class Room:
    """A store with inventories, a cluster, and what a driver needs.

    Attributes:
        store: has inventories below `inv`.
        environment: of the driver.
        watch: of the proxy before the store.
        cluster: two workers.
        secrets: file of passwords.
        packed: what executors run as their Python.
    """

    store: ObjectStore
    environment: dict[str, str]
    watch: Watch
    cluster: SparkCluster
    secrets: Path
    packed: Path

    def word(self, plan: str, *where: str) -> list[str]:
        """Return the command that makes a plan; `where` names who carries its tasks."""
        top, secrets = self.store.uri, str(self.secrets)
        known = ["--layout", "hierarchical", "--inventory-dir", f"{top}/inv", "--passwords", secrets]
        return ["recover", *known, *where, "--out", f"{top}/{plan}"]

    @property
    def there(self) -> list[str]:
        """Options that have the cluster carry tasks."""
        return ["--master", self.cluster.master, "--executor-python", str(self.packed)]

    def open(self, plan: str) -> Dataset:
        """Return a plan, whole."""
        found = open_dataset(f"{self.store.uri}/{plan}", "plan")
        found.verify()
        return found


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """A store with inventories that were collected into it, and a cluster that sees nothing else."""
    packed = pack_environment()
    driver = tmp_path_factory.mktemp("driver")
    secrets = driver / "passwords"
    secrets.write_text("\n".join(operator(CASE)["passwords"]) + "\n")
    secrets.chmod(0o600)
    watch = Watch()
    with started_store() as store, FaultyProxy(store, watch.choose) as proxy:
        environment = command.environment(**proxy.environment, SPARK_LOCAL_IP="127.0.0.1")
        for bookie in operator(CASE)["bookies"]:
            folders = [f"--ledger-dir={case_dir(CASE) / folder}" for folder in bookie["ledgers"]]
            folders += [f"--journal-dir={case_dir(CASE) / folder}" for folder in bookie["journals"]]
            out = f"{store.uri}/inv/{bookie['id'].replace(':', '-')}"
            done = command.process("collect", *folders, "--out", out, env=environment)
            assert done.code == 0, done.err
        # Unpacking takes long: once a machine, not once a test.
        of_workers = {**proxy.environment, "PEX_ROOT": str(cache_home() / "pex")}
        folder = tmp_path_factory.mktemp("cluster") / "spark"
        hidden = (command.ROOT, driver)
        with (
            pytest.MonkeyPatch.context() as patched,
            spark_cluster(folder, workers=2, cores=1, environment=of_workers, hidden=hidden) as cluster,
        ):
            for name, value in store.environment().items():
                patched.setenv(name, value)
            yield Room(store, environment, watch, cluster, secrets, packed)


@pytest.fixture(scope="module")
def calm(room: Room) -> Dataset:
    """The plan that one process makes without Spark, with nobody killed and nothing before the store."""
    done = command.process(*room.word("calm"), patience_s=900)
    assert done.code == 0, done.out + done.err
    return room.open("calm")


def test_a_driver_and_then_a_worker_are_killed_and_the_plan_is_the_same(room: Room, calm: Dataset) -> None:
    """Each dies while a task stores a part, in the middle of an upload.

    Without its driver there is no manifest; the same command clears that, loses a worker, whose task the other one
    repeats, and makes the plan. Every part comes from a worker, which sees nothing of the driver; neither their logs
    nor the store have the secret that both were given.
    """
    gone = room.cluster.count_removed()
    words = room.word("plan", *room.there)
    with command.started(*words, env=room.environment) as running:
        room.watch.expect("plan", lambda _: os.killpg(running.pid, signal.SIGKILL))
        running.wait()
    assert room.watch.writers
    with pytest.raises(DatasetError, match=MANIFEST):
        open_dataset(f"{room.store.uri}/plan", "plan")
    until(lambda: room.cluster.count_removed() > gone, "the master knows that the driver is gone")
    workers = set(room.cluster.workers)
    room.watch.expect("plan", room.cluster.kill_worker)
    done = command.process(*words, env=room.environment, patience_s=900)
    assert done.code == 0, done.out + done.err
    plan = room.open("plan")
    assert calm.rows("actions")
    for table in ("actions", "reconstruction", "sides"):
        assert plan.read(table).equals(calm.read(table)), table
    assert len(set(room.watch.writers)) > 1
    assert set(room.watch.writers) <= workers
    logs = [path for path in room.cluster.log.parent.rglob("*") if path.suffix == ".log" or path.name == "stderr"]
    assert logs
    assert not [path for path in logs if SECRET.encode() in path.read_bytes()]
    assert not [key for key in room.store.list_keys() if SECRET.encode() in room.store.read(key)]
