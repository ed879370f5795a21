"""What BookKeeper's own offline tools leave on disks of real bookies: rebuilt databases and indexes, limbo, doubt."""

import shutil
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from reconcile.findings.table import FindingRun
from reconcile.rules.entries_beyond_end import find_limbo
from recovery.codecs import entry
from recovery.collect.options import CollectOptions
from recovery.collect.pipeline import collect
from recovery.dataset import open_dataset
from recovery.inspect.bookie_file import look
from recovery.inspect.byte_account import account_for
from tests.recovery.collect.test_pipeline_golden import held, options
from tests.support import jars
from tests.support.cases import case_dir, operator
from tests.support.collecting import Seen
from tests.support.command import run

pytestmark = pytest.mark.real

CASE: Final = "c09-mixed-db-sorted"
DB, INTERLEAVED = 1, 4
"""A bookie of two journals, two ledger folders and two index folders; one with one folder of each."""


class Worked:
    """A copy of a bookie that tools work on.

    Attributes:
        asked: for the copy.
        before: what was collected of it.
    """

    def __init__(self, tmp_path: Path, bookie: int) -> None:
        self._out = tmp_path / "out"
        root = tmp_path / "disks"
        known = operator(CASE)["bookies"][bookie]
        for folder in dict.fromkeys(f for role in ("ledgers", "indexes", "journals") for f in known[role] or ()):
            shutil.copytree(case_dir(CASE) / folder, root / folder)
        self.asked: CollectOptions = options(CASE, bookie, root)
        self.before = self.collected()

    def run(self, what: str, *ledgers: int) -> None:
        """Let BookKeeper's tool work."""
        asked = self.asked
        folders = (asked.journal_dirs, asked.ledger_dirs, asked.index_dirs or asked.ledger_dirs)
        lists = [",".join(map(str, some)) for some in folders]
        command = ["java", "-XX:TieredStopAtLevel=1", "-cp", jars.class_path()]
        name = "org.apache.bookkeeper.bookie.storage.ldb.Offline"
        subprocess.run([*command, name, what, *lists, *map(str, ledgers)], capture_output=True, check=True)

    def collected(self) -> Seen:
        """Collect the copy anew."""
        shutil.rmtree(self._out, ignore_errors=True)
        now = lambda: datetime.now(UTC)  # noqa: E731 - the clock of one call
        collect(replace(self.asked), self._out, now=now, progress=lambda _: None)
        return Seen(self._out)

    def read_copies(self) -> pa.Table:
        """Return COPIES of what was collected last."""
        return open_dataset(self._out, "inventory").read("copies")

    def indexed(self) -> set[tuple[int, int]]:
        """What the rows of indexes list, of what was collected last."""
        return held(open_dataset(self._out, "inventory"), "index")

    def left_over(self) -> list[str]:
        """Files that are not wholly explained."""
        folders = dict.fromkeys((*self.asked.ledger_dirs, *self.asked.index_dirs, *self.asked.journal_dirs))
        return [str(file.path) for file in account_for(list(folders)).odd]


def test_rebuilt_databases_are_read(tmp_path: Path) -> None:
    """Keys of sixteen bytes, all fenced and without a key, in every folder; what was there before is passed over."""
    worked = Worked(tmp_path, DB)
    indexed = worked.indexed()
    assert worked.before.bookie["complete"]
    worked.run("rebuild")
    seen = worked.collected()
    assert indexed <= worked.indexed()
    assert {row["fenced"] for row in seen.copies if row["source"] == "index"} == {True}
    for folder in worked.asked.index_dirs:
        rows = look(folder / "current" / "ledgers").counts
        assert rows["rebuilt"] == rows["fenced"] == rows["keys_empty"] == rows["rows"] > 0
    assert (seen.damage, seen.bookie["complete"]) == ([], True)
    left = {
        path.name.partition("-")[0] for folder in worked.asked.index_dirs for path in (folder / "current").iterdir()
    }
    assert {"ledgers.PREV", "locations.BACKUP"} <= left
    assert worked.left_over() == []


def test_limbo_and_doubt_are_believed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A bookie that does not know what it lost: of one ledger, then of all."""
    worked = Worked(tmp_path, DB)
    source = f"zkfiles://{case_dir(CASE) / 'zookeeper'}?root=/ledgers"
    assert run(capsys, "capture", "--metadata", source, "--out", tmp_path / "captured").code in (0, 4)
    records = open_dataset(tmp_path / "captured", "catalog").read("ledgers")
    closed = records.filter(pc.equal(records["state"], "CLOSED"))
    indexed = {row["ledger"] for row in worked.before.copies if row["source"] == "index" and row["ledger"] % 2 == 0}
    ledger = min(indexed.intersection(closed["ledger"].to_pylist()))
    worked.run("limbo", ledger)
    seen = worked.collected()
    assert {row["ledger"] for row in seen.copies if not row["complete"]} == {ledger}
    assert not seen.bookie["complete"]
    # A scrutiny names it where its record is closed.
    copies = worked.read_copies()
    [row] = find_limbo(copies, closed, FindingRun("now", datetime.now(UTC))).to_pylist()
    assert (row["category"], row["ledger"], row["bookies"]) == ("LEDGER_IN_LIMBO", ledger, [seen.bookie["bookie"]])
    assert (
        find_limbo(
            copies, closed.filter(pc.not_equal(closed["ledger"], ledger)), FindingRun("now", datetime.now(UTC))
        ).num_rows
        == 0
    )
    worked.run("doubt")
    doubted = worked.collected()
    assert ("conflict", None, True) in doubted.reasons()
    assert not any(row["complete"] for row in doubted.copies if row["source"] == "index")
    assert worked.left_over() == []


def test_a_regenerated_index_is_read(tmp_path: Path) -> None:
    """Fenced, with the key of the password that the tool was given, and every entry of the logs."""
    worked = Worked(tmp_path, INTERLEAVED)
    indexed = worked.indexed()
    ledger = min(ledger for ledger, _ in indexed)
    [path] = (worked.asked.ledger_dirs[0] / "current").glob(f"*/*/{ledger:x}.idx")
    path.unlink()  # of one that is there the header stays
    worked.run("regenerate", ledger)
    seen = worked.collected()
    assert {pair for pair in indexed if pair[0] == ledger} <= worked.indexed()
    row = seen.row(ledger)
    assert (row["fenced"], row["key_kind"]) == (True, "set")
    # The journals have the true key: one of the two is not this ledger's, and nobody can say which.
    assert (worked.before.damage, seen.reasons()) == ([], {("conflict", ledger, False)})
    assert path.read_bytes()[12:32] == entry.master_key(b"")
    assert worked.left_over() == []
