"""Collections of real bookies: beside clients that write and read, and each from the one before, whatever happens."""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from recovery.collect.options import CollectOptions, CollectSummary
from recovery.collect.pipeline import collect
from recovery.dataset import open_dataset
from tests.recovery.collect.test_pipeline_golden import held
from tests.support.cluster import Bookie, Cluster, encoded

pytestmark = [pytest.mark.long, pytest.mark.real]

ROOT: Final = "/ledgers"
STORAGES: Final = ("interleaved", "sorted", "db")
PROPS: Final = {
    "gcWaitTime": "1000",
    "gcOverreplicatedLedgerWaitTime": "1000",
    "flushInterval": "500",
    "logSizeLimit": "65536",
    "minorCompactionInterval": "2",
    "minorCompactionThreshold": "0.5",
}
SOURCES: Final = ("index", "journal", "log")
LATER: Final = timedelta(minutes=10)


class Bookies:
    """A bookie of each storage, every ledger on all of them."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.cluster = Cluster(work / "home")
        self.cluster.start_zookeeper("zookeeper", ROOT)
        self.cluster("format", layout="hierarchical")
        self.bookies = [
            Bookie(n, f"10.0.0.{n + 1}:3181", storage, [f"b{n}/journal"], [f"b{n}/ledgers"], props=PROPS)
            for n, storage in enumerate(STORAGES)
        ]
        self.ledgers: list[int] = []
        self.round = 0
        self.earlier: dict[int, Path] = {}
        self.start()

    def start(self) -> None:
        """Start all."""
        for bookie in self.bookies:
            self.cluster.start(bookie)

    def stop(self, how: str = "bookie_stop") -> None:
        """Stop all."""
        for bookie in self.bookies:
            self.cluster(how, n=bookie.n)

    def write(self, ledgers: int, size: int = 100) -> None:
        """Write ledgers."""
        for _ in range(ledgers):
            shape = {"E": 3, "W": 3, "A": 3}
            ledger = self.cluster("create", **shape, digest="CRC32C", password=encoded(b""), custom={})
            self.cluster("add", ledger=ledger, sizes=[size + n for n in range(30)], ids=None)
            self.cluster("close", ledger=ledger)
            self.ledgers.append(ledger)

    def delete(self, ledgers: int) -> None:
        """Delete the oldest ledgers, and wait until the bookies collected them."""
        for _ in range(ledgers):
            self.cluster("delete", ledger=self.ledgers.pop(0))
        self.ledgers.append(self.cluster.collect_garbage(len(self.bookies)))

    def options(self, n: int) -> CollectOptions:
        """What is collected of a bookie."""
        bookie, home = self.bookies[n], self.work / "home"
        return CollectOptions(
            tuple(home / folder for folder in bookie.ledgers), (), tuple(home / folder for folder in bookie.journals)
        )

    def collected(self, n: int) -> CollectSummary:
        """Collect a bookie from its earlier inventory, compare with a whole collection, and return what was read."""
        self.round += 1
        out = self.work / "inventories" / str(self.round)
        earlier = self.earlier.get(n)
        files = shapes(self.options(n))
        seen = taken(replace(self.options(n), since=earlier, keep=earlier is None), out)
        taken(self.options(n), out.with_name(f"{self.round}-whole"))
        assert shapes(self.options(n)) == files
        assert told(out) == told(out.with_name(f"{self.round}-whole")), (STORAGES[n], self.round)
        self.earlier[n] = out
        return seen


def taken(options: CollectOptions, out: Path) -> CollectSummary:
    """Collect, when the times of files are long over."""
    return collect(options, out, now=lambda: datetime.now(UTC) + LATER, progress=lambda _: None)


def shapes(options: CollectOptions) -> dict[Path, tuple[int, ...]]:
    """What would show that a file or folder of a bookie was made, written to, or replaced."""
    found: dict[Path, tuple[int, ...]] = {}
    for folder in (*options.ledger_dirs, *options.journal_dirs):
        for path in (folder, *folder.rglob("*")):
            status = path.stat()
            found[path] = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode)
    return found


def told(out: Path) -> tuple[object, ...]:
    """All that an inventory says, but when it was made; damage in any order."""
    dataset = open_dataset(out, "inventory")
    (bookie,) = dataset.read("bookies").to_pylist()
    del bookie["started"], bookie["ended"]
    return dataset.read("copies").to_pylist(), sorted(map(repr, dataset.read("damage").to_pylist())), bookie


@pytest.fixture(scope="module")
def bookies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bookies]:
    """Three running bookies."""
    made = Bookies(tmp_path_factory.mktemp("since"))
    with made.cluster:
        yield made


def test_bookies_at_work_are_not_disturbed(bookies: Bookies, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three processes collect each bookie at a rate, twice, while clients write, read and delete, and bookies compact.

    No client meets an error, what is read is what was written, the rate holds, and all that was closed before is found,
    or it is said that something is missing. Of a bookie that works nothing is taken for a disk that fails.
    """
    monkeypatch.setattr("recovery.collect.workers._WORTH_S", -1.0)
    monkeypatch.setattr("recovery.collect.sources.index_database._RANGE_KEYS", 20)
    written: dict[int, list[list[object]]] = {}

    def write(size: int) -> None:
        ledger = bookies.cluster("create", E=3, W=3, A=3, digest="CRC32C", password=encoded(b""), custom={})
        rows = bookies.cluster("add", ledger=ledger, sizes=[size + n for n in range(20)], ids=None)
        bookies.cluster("close", ledger=ledger)
        written[ledger] = [row[1:] for row in rows]

    def read(ledger: int) -> None:
        seen = bookies.cluster("read", ledger=ledger, digest="CRC32C", password=encoded(b""))
        assert seen["entries"] == written[ledger]

    for _ in range(2):
        for _ in range(8):
            write(2000)
        # Index files of the next ledgers stand in another folder of the first level, so another process takes them.
        bookies.cluster("zk_raise", path=f"{ROOT}/idgen", next=256)
    gone = sorted(written)[::3]
    rate = 10.0

    def collect_all(earlier: int) -> list[tuple[Path, CollectSummary, float]]:
        found = []
        for n in range(len(STORAGES)):
            out = bookies.work / "beside" / f"{n}-{earlier + 1}"
            since = out.with_name(f"{n}-{earlier}") if earlier else None
            asked = replace(bookies.options(n), max_mb_s=rate, processes=3, keep=True, since=since)
            begun = time.monotonic()
            found.append((out, taken(asked, out), time.monotonic() - begun))
        return found

    with ThreadPoolExecutor(1) as pool:
        for earlier in range(2):
            closed = list(written)
            running: Future[list[tuple[Path, CollectSummary, float]]] = pool.submit(collect_all, earlier)
            while not running.done():
                if len(written) < 60 * (earlier + 1):
                    write(500)
                read(list(written)[len(written) // 2])
                if gone:
                    bookies.cluster("delete", ledger=gone[-1])
                    del written[gone.pop()]
            for out, summary, seconds in running.result():
                assert seconds >= summary.bytes_read / (rate * 1_000_000)
                inventory = open_dataset(out, "inventory")
                reasons = {row["reason"] for row in inventory.read("damage").to_pylist()}
                assert reasons <= {"missing", "dangling"}
                if summary.complete:
                    assert {(ledger, n) for ledger in closed if ledger in written for n in range(20)} <= held(
                        inventory, *SOURCES
                    )
    for ledger in written:
        read(ledger)
    bookies.ledgers += written


def test_each_collection_from_the_one_before_is_a_whole_one(bookies: Bookies) -> None:
    """Writes, deletes, compaction, clean stops and kills in between; where nothing happened no byte is read."""
    every = range(len(STORAGES))
    bookies.write(12, size=3000)
    bookies.stop()
    first = [bookies.collected(n) for n in every]
    assert all(seen.complete and seen.ledgers >= 12 for seen in first)
    for n in every:
        seen = bookies.collected(n)
        assert seen.bytes_read == 0
        assert seen.reused is not None
        assert seen.reused.ledgers > 0

    # A restart alone: another journal, and whatever the bookie compacts meanwhile.
    bookies.start()
    bookies.stop()
    for n in every:
        bookies.collected(n)

    bookies.start()
    bookies.write(4)
    bookies.delete(6)
    bookies.stop()
    for n in every:
        bookies.collected(n)

    bookies.start()
    bookies.write(3)
    bookies.stop("bookie_kill")
    for n in every:
        assert bookies.collected(n).dirty
    for n in every:
        assert bookies.collected(n).bytes_read == 0

    # Damage to what was taken over: a bit of a log, the end of another file.
    for n in every:
        folder = bookies.options(n).ledger_dirs[0] / "current"
        log = max(folder.glob("*.log"), key=lambda path: path.stat().st_size)
        data = bytearray(log.read_bytes())
        data[len(data) // 2 : len(data) // 2 + 500] = bytes(500)
        log.write_bytes(data)
        assert bookies.collected(n).bytes_read > 0
        journal = max((bookies.options(n).journal_dirs[0] / "current").glob("*.txn"))
        journal.write_bytes(journal.read_bytes()[:700])
        bookies.collected(n)
