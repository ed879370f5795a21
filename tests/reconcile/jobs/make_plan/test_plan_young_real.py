"""Ledgers that are just being created, written and closed, while disks are collected and a plan is made.

A client writes a ledger's record before its first entry, and the store is read after the disks: what a disk shows has a
record then. So a plan for a store that lives needs no least age, and takes none: with a store that was lost, or with
what an old copy has of it, such a rule would leave out what was written last.
"""

import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from recovery.dataset import open_dataset
from tests.support.cluster import Cluster
from tests.support.command import run
from tests.support.etcd_server import EtcdServer
from tests.support.scrutinized_cluster import ScrutinizedCluster
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.spark, pytest.mark.timeout(600)]
STORAGES = ("sorted", "db", "interleaved")


@pytest.fixture(params=["zookeeper", "etcd"])
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ScrutinizedCluster]:
    """Bookies of each storage."""
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(tmp_path / "cluster"))
        hosts = None
        if request.param == "etcd":
            server = EtcdServer(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bkmeta-etcd-"))))
            stack.callback(server.kill)
            server.start()
            hosts = server.hosts
        yield ScrutinizedCluster(cluster, STORAGES, 3, etcd=hosts)


class Writing:
    """Ledgers that a client creates, one after another: some of them stay open."""

    def __init__(self, there: ScrutinizedCluster) -> None:
        self.there = there
        self.written: list[int] = []
        self.ended = threading.Event()

    def go_on(self) -> None:
        """Write until it is ended."""
        try:
            while not self.ended.is_set():
                number = len(self.written)
                self.written.append(self.there.write((3, 2, 2), 1 + number % 7, close=number % 5 > 0))
        finally:
            self.ended.set()

    def wait_for(self, count: int) -> None:
        """Wait until so many ledgers are written, or the client has failed."""
        until(lambda: len(self.written) >= count or self.ended.is_set(), f"{count} ledgers are written")

    @contextmanager
    def running(self) -> Iterator[None]:
        """Write meanwhile; a failure of the client is raised at the end."""
        with ThreadPoolExecutor(1) as pool:
            result = pool.submit(self.go_on)
            try:
                yield
            finally:
                self.ended.set()
                result.result()


def test_no_ledger_that_was_just_created_is_taken_for_lost(
    there: ScrutinizedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is to be written, and nothing is said of ledgers that are younger than what was collected."""
    writing = Writing(there)
    home = there.cluster.home
    with writing.running():
        writing.wait_for(10)
        for bookie in there.bookies:
            folders = ["--journal-dir", home / bookie.journals[0], "--ledger-dir", home / bookie.ledgers[0]]
            how = ["--metadata", there.uri, "--out", tmp_path / "inventories" / str(bookie.n), "--json"]
            assert run(capsys, "collect", *folders, *how).code in (0, 3, 4)
        writing.wait_for(len(writing.written) + 3)
        done = run(
            capsys, "recover", "--metadata", there.uri, "--inventory-dir", tmp_path / "inventories",
            "--out", tmp_path / "plan", "--json",
        )  # fmt: skip
    plan = open_dataset(tmp_path / "plan", "plan")
    shown = {row["ledger"] for row in plan.read("reconstruction").to_pylist()}
    store = open_dataset(tmp_path / "plan" / "store", "catalog")
    stored = {row["ledger"] for row in store.read("ledgers").to_pylist()}
    # Ledgers were created all the while.
    assert shown
    assert stored - shown
    assert shown <= stored
    assert [row["key"] for row in plan.read("actions").to_pylist() if row["ledger"] is not None] == []
    assert [row["category"] for row in plan.read("findings").to_pylist() if row["ledger"] is not None] == []
    counts = done.result["counts"]
    assert counts["newer_than_inventories"] >= len(stored - shown)
    assert counts["undecided"] > 0
