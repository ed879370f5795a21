"""Tables of one's own become inventories that say what the tables say, and no more."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recovery.bookies.listed_inventory import SCHEMA, write_listed
from recovery.dataset import open_dataset
from recovery.errors import InputError
from recovery.model.groups import expand, from_arrow

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROWS: list[dict[str, Any]] = [
    {"bookie": "bk1:3181", "ledger": 7, "entries": [[0, 9], [20, 20]]},
    {"bookie": "bk2:3181", "ledger": 7, "entries": [[0, 2], [1, 4]]},
    {"bookie": "bk1:3181", "ledger": 3, "entries": [[5, 6]]},
    {"bookie": "bk1:3181", "ledger": 7, "entries": [[8, 12]]},
    {"bookie": "bk2:3181", "ledger": 1 << 40, "entries": [[(1 << 63) - 2, (1 << 63) - 2]]},
    {"bookie": "bk2:3181", "ledger": 8, "entries": []},
]
HELD = {
    "bk1:3181": {3: [5, 6], 7: [*range(13), 20]},
    "bk2:3181": {7: [0, 1, 2, 3, 4], 1 << 40: [(1 << 63) - 2]},
}


def write_table(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows as JSON lines or as Parquet, by the name of the file."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path)
    return path


@pytest.mark.parametrize("name", ["listed.jsonl", "listed.parquet"])
def test_each_bookie_of_a_table_has_an_inventory(tmp_path: Path, name: str) -> None:
    """Ranges of several rows are one; no row and no bookie is complete, and nothing is known of keys or headers."""
    folders = write_listed(write_table(tmp_path / name, ROWS), tmp_path / "made", NOW)
    held = {}
    for folder in folders:
        inventory = open_dataset(folder, "inventory")
        [bookie] = inventory.read("bookies").to_pylist()
        copies = inventory.read("copies")
        rows = copies.to_pylist()
        entries: dict[int, list[int]] = {}
        for row, entry in zip(*(column.tolist() for column in expand(from_arrow(copies["groups"]))), strict=True):
            entries.setdefault(rows[row]["ledger"], []).append(entry)
        held[bookie["bookie"]] = entries
        assert (bookie["mode"], bookie["complete"], bookie["ledgers"]) == ("table", False, len(rows))
        assert bookie["entries"] == sum(row["entries"] for row in rows) == sum(map(len, entries.values()))
        assert bookie["max_ids"] == [{"scope": 0, "ledger": max(entries)}]
        assert {(row["complete"], row["key_kind"], len(row["headers"])) for row in rows} == {(False, "absent", 0)}
    assert held == HELD


def test_a_ledger_of_many_ranges_is_one_line(tmp_path: Path) -> None:
    """Every other entry of a long ledger: a line of more bytes than are read at once."""
    long = {"bookie": "bk1:3181", "ledger": 1, "entries": [[2 * n, 2 * n] for n in range(90_000)]}
    table = write_table(tmp_path / "listed.jsonl", [ROWS[2], long, ROWS[2]])
    assert table.stat().st_size > 1 << 20
    [folder] = write_listed(table, tmp_path / "made", NOW)
    rows = open_dataset(folder, "inventory").read("copies").to_pylist()
    assert {row["ledger"]: row["entries"] for row in rows} == {1: 90_000, 3: 2}


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"bookie": "bk 1", "ledger": 1, "entries": [[0, 1]]}, "row 2 of 2: has no bookie id"),
        ({"bookie": "bk1:1", "ledger": -1, "entries": [[0, 1]]}, "row 2 of 2: has no ledger's id"),
        ({"bookie": "bk1:1", "ledger": 1, "entries": [[1, 0]]}, "row 2: has a range that is none"),
        ({"bookie": "bk1:1", "ledger": 1, "entries": [[-1, 0]]}, "row 2: has a range that is none"),
        ({"bookie": "bk1:1", "ledger": 1, "entries": [[0, (1 << 63) - 1]]}, "row 2: has a range that is none"),
        ({"bookie": "bk1:1", "ledger": 1, "entries": [[0, 1, 2]]}, "row 2: has a range that is none"),
        ({"bookie": "bk1:1", "ledger": 1, "entries": [[0, None]]}, "row 2: has a range that is none"),
        ({"bookie": "bk1:1", "ledger": 1, "entries": [None]}, "row 2: has a range that is none"),
        ({"bookie": "bk1:1", "ledger": 1}, "row 2 of 2: has no entries"),
        ({"bookie": "bk1:1", "entries": []}, "row 2 of 2: has no ledger"),
        ({"ledger": 1, "entries": []}, "row 2 of 2: has no bookie"),
        ({"bookie": "bk1:1", "ledger": 1, "entries": [], "more": 1}, "is not a table of entries"),
        ({"bookie": "bk1:1", "ledger": "x", "entries": []}, "is not a table of entries"),
    ],
)
def test_a_row_that_cannot_be_is_named(tmp_path: Path, row: dict[str, Any], problem: str) -> None:
    """With its file and number, and nothing is written."""
    table = write_table(tmp_path / "listed.jsonl", [ROWS[0], row])
    with pytest.raises(InputError) as refused:
        write_listed(table, tmp_path / "made", NOW)
    assert problem in str(refused.value)
    assert str(table) in str(refused.value)
    assert not (tmp_path / "made").exists()


def test_what_is_no_table_is_named(tmp_path: Path) -> None:
    """A file of other bytes, a Parquet file of other columns, a file that is not there."""
    (tmp_path / "odd.parquet").write_bytes(b"no table")
    pq.write_table(pa.table({"ledger": [1]}), tmp_path / "other.parquet")
    (tmp_path / "odd.jsonl").write_text("no table\n")
    for name in ("odd.parquet", "other.parquet", "odd.jsonl", "gone.jsonl"):
        with pytest.raises(InputError, match=name):
            write_listed(tmp_path / name, tmp_path / "made", NOW)


@pytest.mark.parametrize("name", ["listed.parquet", "listed.jsonl"])
def test_a_table_without_rows_is_refused(tmp_path: Path, name: str) -> None:
    """It names no bookie: the one that it should stand for would be left out in silence."""
    table = write_table(tmp_path / name, [])
    if table.suffix == ".jsonl":
        table.write_text("\n")
    with pytest.raises(InputError, match="has no rows"):
        write_listed(table, tmp_path / "made", NOW)
