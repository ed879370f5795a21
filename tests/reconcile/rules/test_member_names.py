"""Other names of bookies in records: replaced by ids in columns and in bytes, and nothing else of a record changes."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from backends.protocols import Versioned
from reconcile.compare.single_ledger import as_catalog_row
from reconcile.rules.segments.member_names import name_any, rename_members, rename_records, require_other_names
from recovery.codecs import ledger_metadata
from recovery.errors import InputError
from recovery.model import metadata as md
from recovery.model import tables
from recovery.model.ids import LedgerId

ALIASES = {"old:1": "a:1", "older:1": "a:1"}


def make_rows(*ledgers: list[tuple[str, ...]] | None) -> pa.Table:
    """Return CATALOG_LEDGERS with these segments; None: a record that nobody can read."""
    rows = [tables.CATALOG_LEDGERS.empty_table()]
    for number, segments in enumerate(ledgers):
        raw = b"nothing"
        if segments is not None:
            raw = ledger_metadata.encode(
                md.LedgerMetadata(
                    state=md.LedgerState.CLOSED, ensemble_size=2, write_quorum=2, ack_quorum=1,
                    last_entry=99, length=990,
                    digest=md.Digest.CRC32C, password=b"pw", format=3, ctime=7, custom=(("k", b"v"),),
                    segments=tuple(md.Segment(10 * at, members) for at, members in enumerate(segments)),
                )
            )  # fmt: skip
        rows.append(as_catalog_row(Versioned(raw, 4, created_ms=1, changed_ms=2), LedgerId(0, number)))
    return pa.concat_tables(rows)


def list_members(rows: pa.Table) -> list[list[list[str]] | None]:
    """Return the members of each segment of each record."""
    listed = rows["segments"].to_pylist()
    return [None if segments is None else [segment["members"] for segment in segments] for segments in listed]


STORED = make_rows([("old:1", "b:1"), ("b:1", "older:1")], None, [("b:1", "c:1")], [("a:1", "old:1")])


def test_names_are_replaced_in_every_segment_and_nowhere_else() -> None:
    """Records that cannot be read, and all other columns, stay as they are."""
    renamed = rename_members(STORED, ALIASES)
    assert list_members(renamed) == [
        [["a:1", "b:1"], ["b:1", "a:1"]],
        None,
        [["b:1", "c:1"]],
        [["a:1", "a:1"]],
    ]
    firsts = [None if one is None else [part["first"] for part in one] for one in renamed["segments"].to_pylist()]
    assert firsts == [[0, 10], None, [0], [0]]
    others = [name for name in STORED.column_names if name != "segments"]
    assert renamed.select(others).equals(STORED.select(others))
    assert renamed.schema == STORED.schema
    # A slice has its rows and no others.
    assert list_members(rename_members(STORED.slice(2), ALIASES)) == [[["b:1", "c:1"]], [["a:1", "a:1"]]]


def test_without_names_or_records_nothing_is_done() -> None:
    """The very same table comes back."""
    assert rename_members(STORED, {}) is STORED
    assert rename_records(STORED, {}) is STORED
    assert rename_records(STORED, {"nobody:1": "a:1"}) is STORED
    assert rename_members(STORED.slice(0, 0), ALIASES).num_rows == 0


def test_bytes_read_as_the_columns_do() -> None:
    """Only those of records that name another name are written anew, and keep all else of the record."""
    renamed = rename_records(STORED, ALIASES)
    assert list_members(renamed) == list_members(rename_members(STORED, ALIASES))
    before, after = STORED["raw"].to_pylist(), renamed["raw"].to_pylist()
    assert [old == new for old, new in zip(before, after, strict=True)] == [False, True, True, False]
    old, new = ledger_metadata.decode(before[0]), ledger_metadata.decode(after[0])
    assert [segment.members for segment in new.segments] == [("a:1", "b:1"), ("b:1", "a:1")]
    assert replace(new, segments=()) == replace(old, segments=())
    others = [name for name in STORED.column_names if name not in ("segments", "raw")]
    assert renamed.select(others).equals(STORED.select(others))


@pytest.mark.parametrize(
    ("names", "rows"), [({"c:1"}, [2]), ({"old:1", "c:1"}, [0, 2, 3]), ({"nobody:1"}, []), (set(), [])]
)
def test_which_records_name_some_bookies(names: set[str], rows: list[int]) -> None:
    """In any of their segments."""
    assert np.flatnonzero(name_any(STORED, frozenset(names))).tolist() == rows
    assert name_any(STORED.slice(0, 0), frozenset(names)).tolist() == []


def test_a_bookie_that_was_looked_at_is_no_other_name() -> None:
    """But its own name may stand in the list."""
    require_other_names({"old:1": "a:1", "a:1": "a:1"}, ["a:1", "b:1"])
    with pytest.raises(InputError, match=r"alias b:1.*alias of a:1"):
        require_other_names({"b:1": "a:1"}, ["a:1", "b:1"])
