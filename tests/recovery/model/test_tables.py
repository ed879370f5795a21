"""Every column says what it is, in the schemas and in the files."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recovery.dataset import write_part
from recovery.model import tables

SHOWN = sorted(tables.KINDS.keys() - {"again"})
"""Kinds of datasets that people read; `again` is what the next collection keeps for itself."""


@pytest.mark.parametrize("kind", SHOWN)
def test_every_column_has_a_comment(kind: str) -> None:
    """A reader of the Parquet files alone is told what each column holds."""
    silent = [
        f"{name}.{column.name}"
        for name, schema in tables.KINDS[kind].items()
        for column in schema
        if not (column.metadata or {}).get(tables.COMMENT)
    ]
    assert silent == []


@pytest.mark.parametrize("kind", SHOWN)
def test_comments_are_in_the_footer_of_each_file(kind: str, tmp_path: Path) -> None:
    """Whatever made the rows: comments are those of the table, and other columns stay as they are."""
    for name, schema in tables.KINDS[kind].items():
        bare = pa.schema([pa.field(c.name, c.type, c.nullable) for c in schema]).empty_table()
        part = write_part(tmp_path, name, "part", [bare])
        written = pq.read_schema(tmp_path / part.file)
        assert [c.metadata[tables.COMMENT] for c in written] == [c.metadata[tables.COMMENT] for c in schema]


def test_a_table_of_ones_own_is_written_as_it_is(tmp_path: Path) -> None:
    """Spilled runs and files that are no table of a dataset get no comment."""
    part = write_part(tmp_path, "copies", "part", [pa.table({"bucket": [1]})])
    assert pq.read_schema(tmp_path / part.file).field("bucket").metadata is None
