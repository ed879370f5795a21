"""A bookie that was renamed, and nobody said so: the alias is proposed, and its ledgers are guarded until then."""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from recovery.collect.pipeline import collect
from recovery.dataset import Dataset, open_dataset
from tests.recovery.collect.test_pipeline_golden import options
from tests.support.cases import case_dir
from tests.support.command import process

pytestmark = pytest.mark.spark

CASE: Final = "c01-clean-sorted"
OLD: Final = "10.0.0.1:3181"
NEW: Final = "renamed-0.example:3181"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inventories of a real cluster whose first bookie has another name in its VERSION files than in records."""
    root = tmp_path_factory.mktemp("renamed")
    shutil.copytree(case_dir(CASE), root / "case")
    for version in (root / "case" / "bookies" / "b0").rglob("VERSION"):
        version.write_bytes(version.read_bytes().replace(OLD.encode(), NEW.encode()))
    for number in range(4):
        out = root / "inventories" / f"b{number}"
        collect(options(CASE, number, root / "case"), out, now=lambda: datetime.now(UTC), progress=lambda _: None)
    return root


def recover(made: Path, name: str, *more: object) -> tuple[str, Dataset]:
    """What recover says, and its plan, of all metadata lost and the last snapshot there."""
    out = made / name
    snapshot = f"zkfiles://{made / 'case' / 'zookeeper'}"
    given = ["--inventory-dir", made / "inventories", "--snapshot", snapshot, "--layout", "hierarchical"]
    done = process("recover", *given, "--out", out, *more)
    assert done.code in (0, 3, 4), done.err
    return done.out, open_dataset(out, "plan")


def members(row: dict[str, Any]) -> set[str]:
    """The bookies that a proposed record names."""
    return {name for segment in row["segments"] or () for name in segment["members"]}


def test_the_alias_is_proposed_and_its_ledgers_are_guarded(made: Path) -> None:
    """No record names the dead id, every ledger of its is guarded and listed; the finding has the line to add."""
    said, plan = recover(made, "unknown")
    rows = plan.read("reconstruction").to_pylist()
    assert len(rows) == 33
    assert not any(OLD in members(row) for row in rows)
    of_renamed = {row["ledger"] for row in rows if NEW in members(row)}
    guarded = {row["ledger"] for row in rows if row["outcome"] == "guarded"}
    assert of_renamed == guarded
    assert len(guarded) > 15
    findings = plan.read("findings").to_pylist()
    assert {row["ledger"] for row in findings if row["category"] == "GUARDED"} == guarded
    [proposed] = [row for row in findings if row["category"] == "ALIAS_UNRESOLVED"]
    assert f"{OLD} {NEW}" in proposed["suggested"]
    assert f"{OLD} {NEW}" in said


def test_with_the_line_that_was_proposed_everything_comes_back(made: Path) -> None:
    """No guard and no such finding; the records are those of before, with the new name."""
    (made / "aliases").write_text(f"{OLD} {NEW}\n")
    said, plan = recover(made, "known", "--aliases", made / "aliases")
    rows = plan.read("reconstruction").to_pylist()
    assert {row["outcome"] for row in rows} == {"restored"}
    assert not any(OLD in members(row) for row in rows)
    assert "RENAMED?" not in said


def test_a_bookie_that_is_stated_to_be_lost_is_nobodys_old_name(made: Path) -> None:
    """Where its disks are gone nothing is proposed."""
    (made / "members").write_text(f"{OLD}\n{NEW}\n10.0.0.2:3181\n10.0.0.3:3181\n10.0.0.4:3181\n")
    said, _ = recover(made, "lost", "--expect-bookies", made / "members", "--lost", OLD)
    assert "RENAMED?" not in said
