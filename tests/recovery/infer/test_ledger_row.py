"""Rows of RECONSTRUCTION as typed values, and back."""

from dataclasses import replace
from typing import Any

import pyarrow as pa

from recovery.infer.ledger_row import ContradictionRow, SegmentRow, read_rows, write_rows
from recovery.model import tables
from recovery.model.metadata import Segment

GRADES = dict.fromkeys(tables.GRADED, "observed")
CLOSED: dict[str, Any] = {
    "bucket": 7, "scope": 1, "ledger": 9, "class": "clean", "outcome": "restored", "reason": None, "reading": "proved",
    "format": 3, "state": "CLOSED", "ensemble_size": 3, "write_quorum": 2, "ack_quorum": 2, "last_entry": 41,
    "length": 420, "digest": "CRC32C", "ctime": 1_700_000_000_000, "key": b"\x00\xff",
    "segments": [
        {"first": 0, "first_low": 0, "members": ["a:1", "b:1", "c:1"], "assumed": [False, False, True]},
        {"first": 20, "first_low": 18, "members": ["a:1", "d:1", "c:1"], "assumed": [False, False, False]},
    ],
    "custom": [{"key": "k", "value": b"\x80"}], "grades": GRADES, "lac_low": 40, "acked_high": 41, "missing": 3,
    "extra": 1, "holes": [{"first": 5, "last": 5, "size": 2, "period": 0}], "holders": ["a:1"], "highest": None,
    "alternatives": [{"field": "last_entry", "value": "40", "reads_as": "shorter", "weight": 0.25}], "raw": b"\x01",
    "contradictions": [{"field": "length", "earlier": "1", "bookies": "420"}],
}  # fmt: skip
HELD: dict[str, Any] = dict.fromkeys(tables.RECONSTRUCTION.names) | {
    "bucket": 8, "scope": 0, "ledger": 10, "class": "undecided", "outcome": "held", "reason": "limbo",
    "grades": GRADES, "missing": 0, "extra": 0, "holders": [], "highest": 7, "alternatives": [],
}  # fmt: skip


def test_rows_that_nothing_changes_are_written_as_they_were_read() -> None:
    """Every column, null or not, is the same after it was read and written."""
    base = pa.Table.from_pylist([CLOSED, HELD], schema=tables.RECONSTRUCTION)
    written = write_rows(base, read_rows(base))
    assert written.to_pylist() == [CLOSED, HELD]
    assert written.schema.equals(tables.RECONSTRUCTION, check_metadata=True)
    assert write_rows(base.slice(0, 0), []).num_rows == 0


def test_what_is_changed_is_written_and_nothing_else() -> None:
    """The changed columns of one row are written; its other columns and the other row stay."""
    base = pa.Table.from_pylist([HELD, CLOSED], schema=tables.RECONSTRUCTION)
    held, closed = read_rows(base)
    assert (held.list_segments(), closed.list_segments()[1]) == ((), Segment(20, ("a:1", "d:1", "c:1")))
    segment = SegmentRow(4, 2, ("e:1",), (True,))
    changed = replace(
        held, class_="solved", segments=(segment,), contradictions=(ContradictionRow("digest", "MAC", "DUMMY"),)
    )
    assert write_rows(base, [changed, closed]).to_pylist() == [
        HELD
        | {
            "class": "solved",
            "segments": [{"first": 4, "first_low": 2, "members": ["e:1"], "assumed": [True]}],
            "contradictions": [{"field": "digest", "earlier": "MAC", "bookies": "DUMMY"}],
        },
        CLOSED,
    ]
