"""Tables among the inventories of a command: made inventories beside the others, each bookie once."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from reconcile.clusters import open_inventories
from reconcile.jobs.collect.tables import list_folders, take_tables
from recovery.errors import InputError
from tests.support.inventories import write_inventory

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LINE = '{"bookie": "%s", "ledger": 1, "entries": [[0, 4]]}\n'


def test_tables_become_inventories_and_folders_stay(tmp_path: Path) -> None:
    """A table may name several bookies; two tables may stand beside each other."""
    folder = str(write_inventory(tmp_path / "bk1", "bk1", [1], instance=None))
    (tmp_path / "first.jsonl").write_text(LINE % "bk2" + LINE % "bk3")
    (tmp_path / "second.jsonl").write_text(LINE % "bk4")
    given = [str(tmp_path / "first.jsonl"), folder, str(tmp_path / "second.jsonl")]
    assert list_folders(given) == (folder,)
    taken = open_inventories(take_tables(given, tmp_path / "made", NOW))
    assert [row["bookie"] for i in taken for row in i.read("bookies").to_pylist()] == ["bk2", "bk3", "bk1", "bk4"]


def test_a_bookie_that_is_collected_needs_no_table(tmp_path: Path) -> None:
    """Both together are refused: nobody knows which of them is right."""
    folder = str(write_inventory(tmp_path / "bk1", "bk1", [1], instance=None))
    (tmp_path / "listed.jsonl").write_text(LINE % "bk1")
    taken = take_tables([folder, str(tmp_path / "listed.jsonl")], tmp_path / "made", NOW)
    with pytest.raises(InputError, match="holds bookie bk1, and so does"):
        open_inventories(taken)
