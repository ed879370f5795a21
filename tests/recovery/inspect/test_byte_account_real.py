"""Fresh bookies of every storage and option: each byte that they write is explained, and each entry is collected."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from recovery.codecs import entry_log, index_file, journal
from recovery.collect.options import CollectOptions
from recovery.collect.pipeline import collect
from recovery.dataset import open_dataset
from recovery.inspect.byte_account import ROCKSDB, UNKNOWN, Account, account_for
from recovery.inspect.file_kinds import FileKind
from recovery.model.groups import expand, from_arrow
from tests.support.cluster import Bookie, Cluster

pytestmark = pytest.mark.real


@dataclass(frozen=True, slots=True)
class Kept:
    """A bookie's storage and options, by what they change on its disks."""

    storage: str
    props: Mapping[str, str] = field(default_factory=dict)
    folders: int = 1
    journals: int = 1
    indexes: bool = False


OLD: Final = {"journalFormatVersionToWrite": "5", "fileInfoFormatVersionToWrite": "0"}
MIXED: Final = (
    Kept("sorted", {**OLD, "journalFormatVersionToWrite": "4"}),
    Kept("interleaved", {"entryLogPerLedgerEnabled": "true"}, folders=2, journals=2, indexes=True),
    Kept(
        "db",
        {
            "gcEntryLogMetadataCacheEnabled": "true",
            "entryLogFilePreallocationEnabled": "true",
        },
        folders=2,
        journals=2,
        indexes=True,
    ),
    Kept("db", {"dbStorage_directIOEntryLogger": "true"}),
    Kept("interleaved", {**OLD, "useTransactionalCompaction": "true", "entryLogFilePreallocationEnabled": "true"}),
    Kept("db", {"journalWriteData": "false", "useTransactionalCompaction": "true", "journalPreAllocSizeMB": "16"}),
)
KILLED: Final = (0, 1, 3, 4)
IN_FLIGHT: Final = (3,)
"""Where deletes were not yet carried out when the bookie was killed."""
ENTRIES: Final = {0: [700] * 900, 1: [3000] * 400, 2: [0, 1, 40] * 50, 3: [900] * 700}
"""By the number of a ledger: the sizes of its entries; more than one log holds."""


class Written:
    """Bookies that were written to, collected from, and killed or stopped.

    Attributes:
        home: the cluster's folder.
        bookies: by their place in `MIXED`.
        running: what was accounted for while they ran, by bookie.
        gone: the ledger that was deleted.
        ledgers: the others, and how many entries each has.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.bookies = [
            Bookie(
                n,
                f"10.0.0.{n + 1}:3181",
                kept.storage,
                tuple(f"bookies/b{n}/journal{k}" for k in range(kept.journals)),
                tuple(f"bookies/b{n}/ledgers{k}" for k in range(kept.folders)),
                tuple(f"bookies/b{n}/index{k}" for k in range(kept.folders)) if kept.indexes else None,
                kept.props,
            )
            for n, kept in enumerate(MIXED)
        ]
        self.ledgers: dict[int, int] = {}
        with Cluster(home) as cluster:
            cluster.start_zookeeper("zookeeper", "/ledgers")
            cluster("format", layout="hierarchical")
            for bookie in self.bookies:
                cluster.start(bookie)
            made = [self._write(cluster, sizes) for sizes in ENTRIES.values()]
            # Every other entry of the first logs goes with it, so that a pass has logs to compact.
            self.gone = made[0]
            for bookie in self.bookies:
                cluster("bookie_stop", n=bookie.n)
                cluster.start(bookie)
            cluster("delete", ledger=self.gone)
            for bookie in self.bookies:
                cluster("collect", n=bookie.n, ledger=self.gone)
            del self.ledgers[self.gone]
            late = self._write(cluster, [500] * 300)
            self.running = [account_for([self.home / "bookies" / f"b{n}"]) for n in range(len(MIXED))]
            cluster("close", ledger=late)
            for n in range(len(MIXED)):
                cluster("bookie_kill" if n in KILLED else "bookie_stop", n=n)

    def _write(self, cluster: Cluster, sizes: list[int]) -> int:
        size = len(MIXED)
        ledger: int = cluster("create", E=size, W=size, A=size, digest="CRC32C", password="", adv=False, custom={})
        self.ledgers[ledger] = len(cluster("add", ledger=ledger, sizes=sizes, ids=None))
        return ledger

    def accounted(self, n: int) -> Account:
        """Return the account of a bookie that has ended."""
        return account_for([self.home / "bookies" / f"b{n}"])

    def files(self, n: int, pattern: str) -> list[Path]:
        """Return files of a bookie, RocksDB's not among them."""
        found = sorted((self.home / "bookies" / f"b{n}").rglob(pattern))
        return [path for path in found if not (path.parent / "CURRENT").exists()]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """One cluster of all of `MIXED`, ended."""
    return Written(tmp_path_factory.mktemp("mixed") / "cluster")


def require_whole(found: Account) -> None:
    """Every file known, every byte explained, every byte counted."""
    assert [(str(file.path), file.why, file.regions) for file in found.odd] == []
    assert (found.unexplained, found.files[UNKNOWN]) == (0, 0)
    assert {kind: sum(found.parts[kind].values()) for kind in found.files} == dict(found.bytes)


@pytest.mark.parametrize("n", range(len(MIXED)))
def test_no_byte_of_a_bookie_is_left_over(written: Written, n: int) -> None:
    """While it runs and after it was killed or stopped: options of storage, journals, loggers, compaction."""
    require_whole(written.running[n])
    require_whole(written.accounted(n))


@pytest.mark.parametrize("n", range(len(MIXED)))
def test_every_entry_of_a_bookie_is_collected(written: Written, tmp_path: Path, n: int) -> None:
    """All that was acknowledged is in the inventory of each, which is complete; nothing else is."""
    bookie = written.bookies[n]
    ledgers, indexes, journals = (
        tuple(written.home / name for name in names or ())
        for names in (bookie.ledgers, bookie.indexes, bookie.journals)
    )
    out = tmp_path / "inventory"
    summary = collect(
        CollectOptions(ledgers, indexes, journals), out, now=lambda: datetime.now(UTC), progress=lambda _: None
    )
    rows = open_dataset(out, "inventory").read("copies")
    rows = rows.filter(pc.is_in(rows["source"], pa.array(["index", "journal"])))
    row, entry = expand(from_arrow(rows["groups"]))
    held = set(zip(rows["ledger"].to_numpy()[row].tolist(), entry.tolist(), strict=True))
    expected = {(ledger, entry) for ledger, count in written.ledgers.items() for entry in range(count)}
    assert expected <= held
    assert {ledger for ledger, _ in held} <= {*written.ledgers, written.gone}
    damage = open_dataset(out, "inventory").read("damage").to_pylist()
    hiding = {(row["ledger"], row["reason"]) for row in damage if row["hides_entries"]}
    assert summary.complete == (not hiding)
    # The ledger's log goes with it at once, its rows of the database at the next checkpoint, which a kill prevents.
    assert hiding <= ({(written.gone, "dangling")} if n in IN_FLIGHT else set())
    # A kill may come when slots are written, and what they point to is not: the journal has it.
    assert {row["reason"] for row in damage} <= ({"dangling"} if n in KILLED else set())


def test_each_option_left_its_mark(written: Written) -> None:
    """The options were obeyed: versions, the direct logger's padding, a ledger a log, no data in a journal, caches."""
    versions = {
        n: {journal.header_of(path.read_bytes())[0] for path in written.files(n, "*.txn")} for n in range(len(MIXED))
    }
    assert (versions[0], versions[4], versions[1]) == ({4}, {5}, {6})
    for n, version in ((0, 0), (1, 1), (4, 0)):
        assert {index_file.decode_header(path.read_bytes()[:1024]).version for path in written.files(n, "*.idx")} == {
            version
        }
    logs = [path.read_bytes() for path in written.files(3, "*.log")]
    assert any(entry_log.is_direct(log) for log in logs)
    parts = written.accounted(3).parts[FileKind.LOG]
    assert parts["filler"]
    assert parts["padding"]
    one_each = [entry_log.scan(path.read_bytes()) for path in written.files(1, "*.log")]
    assert any(len({part.ledger for part in found if isinstance(part, entry_log.EntryAt)}) == 1 for found in one_each)
    assert not written.accounted(5).parts[FileKind.JOURNAL]["entries"]
    assert written.files(2, "metadata-cache")
    assert ROCKSDB in written.accounted(2).files
    assert any(written.accounted(n).parts[FileKind.LOG]["ledgers maps"] for n in range(len(MIXED)))
