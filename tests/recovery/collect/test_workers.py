"""Several processes that read the index of one real bookie: its files, or ranges of its databases."""

import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import rocksdict

from backends.rocks import open_read_only
from recovery.collect.disk.folders import survey
from recovery.collect.options import CollectOptions
from recovery.collect.pipeline import collect
from recovery.dataset import Dataset, open_dataset
from tests.recovery.collect.test_pipeline_golden import options
from tests.support.bookie_files import index_files
from tests.support.cases import case_dir

pytestmark = pytest.mark.long

CASES = ("c02-clean-interleaved", "c04-ensemble-changes", "c06-rereplicated")
DATABASES = ("c03-clean-db", "c09-mixed-db-sorted")
LATER = timedelta(minutes=10)
"""Files of the cases are older than a collection that begins then, so that their times are believed."""


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other processes start with the first file, however few there are."""
    monkeypatch.setattr("recovery.collect.workers._WORTH_S", -1.0)


def taken(asked: CollectOptions, out: Path) -> Dataset:
    """Return the inventory that was asked for."""
    collect(asked, out, now=lambda: datetime.now(UTC), progress=lambda _: None)
    return open_dataset(out, "inventory")


def rows(inventory: Dataset, name: str) -> list[str]:
    """Return the rows of a table as text, sorted."""
    return sorted(map(repr, inventory.read(name).to_pylist()))


@pytest.mark.parametrize("case", CASES)
def test_more_processes_give_the_same_inventory(case: str, tmp_path: Path) -> None:
    """Copies, damage and what is said of folders do not depend on how many processes read, nor on a rate."""
    root = tmp_path / "case"
    shutil.copytree(case_dir(case), root)
    asked = options(case, 0, root)
    current = survey(asked.ledger_dirs, asked.index_dirs, asked.journal_dirs, None).places
    inside = [p.folder.path for p in current if p.folder]
    files = [root / f.relative_to(case_dir(case)) for f in index_files(case)]
    files = [f for f in files if any(f.is_relative_to(folder) for folder in inside)]
    files[0].write_bytes(b"")
    files[1].write_bytes(files[1].read_bytes()[:1030])
    files[2].rename(files[2].with_suffix(".idx.other"))
    alone = taken(asked, tmp_path / "alone")
    assert alone.rows("damage") >= len(files[:3])
    for name, more in (("three", {"processes": 3}), ("slow", {"processes": 2, "max_mb_s": 500.0})):
        several = taken(replace(asked, **more), tmp_path / name)
        for table in ("copies", "damage"):
            assert rows(several, table) == rows(alone, table)
        (ours,), (theirs,) = (d.read("bookies").to_pylist() for d in (several, alone))
        assert ours["dirs"] == theirs["dirs"]
        assert (ours["complete"], ours["entries"]) == (theirs["complete"], theirs["entries"])


def change(root: Path) -> None:
    """Let an index lose a ledger; write another, or all that a database has, anew."""
    for gone, same in zip(*[iter(sorted(root.rglob("*.idx")))] * 2, strict=False):
        gone.unlink()
        same.write_bytes(same.read_bytes())
        break
    for folder in root.rglob("locations"):
        database = rocksdict.Rdict(str(folder), rocksdict.Options(raw_mode=True))
        del database[next(iter(database.keys()))]
        database.flush()
        database.close()


@pytest.mark.parametrize("case", [CASES[-1], *DATABASES])
def test_what_changed_is_read_by_several_processes(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept, taken over, changed: by three processes, and from what three kept, the inventory is that of one."""
    monkeypatch.setattr("recovery.collect.sources.index_database._RANGE_KEYS", 20)
    root = tmp_path / "case"
    shutil.copytree(case_dir(case), root)
    asked = replace(options(case, 0, root), keep=True)
    earlier: Path | None = None
    for n, happens in enumerate((None, None, change)):
        if happens is not None:
            happens(root)
        alone, several = tmp_path / f"{n}-alone", tmp_path / f"{n}-several"
        whole = taken(replace(asked, keep=False), tmp_path / f"{n}-whole")
        seen = {}
        for out, processes in ((alone, 1), (several, 3)):
            more = replace(asked, since=earlier, processes=processes)
            seen[processes] = collect(more, out, now=lambda: datetime.now(UTC) + LATER, progress=lambda _: None)
            for table in ("copies", "damage"):
                assert rows(open_dataset(out, "inventory"), table) == rows(whole, table)
        assert seen[1] == seen[3]
        reused = seen[3].reused
        assert earlier is None or (reused is not None and reused.ledgers > 0)
        assert n != 1 or seen[3].bytes_read == 0
        earlier = several


@pytest.mark.parametrize("case", DATABASES)
def test_ranges_of_databases_give_the_same_inventory(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a database is read as a whole or in ranges, by one process or by three: the same copies and damage."""
    root = tmp_path / "case"
    shutil.copytree(case_dir(case), root)
    for folder in root.rglob("locations"):
        database = rocksdict.Rdict(str(folder), rocksdict.Options(raw_mode=True))
        database.flush()
        database.close()
    asked = options(case, 0, root)
    whole = taken(asked, tmp_path / "whole")
    monkeypatch.setattr("recovery.collect.sources.index_database._RANGE_KEYS", 20)
    with open_read_only(next(root.rglob("locations"))) as reader:
        assert reader.shares(20, 2, 8)
    for processes in (1, 3):
        parts = taken(replace(asked, processes=processes), tmp_path / f"by-{processes}")
        for table in ("copies", "damage"):
            assert rows(parts, table) == rows(whole, table)
