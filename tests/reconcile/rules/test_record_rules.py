"""What records say by themselves: one copy, recoveries that stand still, segments against the placement policy."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reconcile.findings.table import FindingRun
from reconcile.rules.segments.placement import PlacementPolicy, PlacementSettings
from reconcile.rules.segments.record_rules import (
    PlacementCounts,
    find_misplaced_segments,
    find_single_copies,
    find_stuck_recoveries,
)
from recovery.model import tables
from tests.support.inventories import fill_row

AT = datetime(2030, 1, 2, tzinfo=UTC)
RUN = FindingRun("run", AT)
RACKS = {"a:1": "/east/r1", "b:1": "/east/r1", "c:1": "/east/r2", "d:1": "/east/r2"}
STRICT = PlacementSettings(min_racks=2)
ZONES = {"a:1": "/z1/u1", "b:1": "/z1/u2", "c:1": "/z2/u1", "d:1": "/z3/u1"}
Segments = Sequence[tuple[int, Sequence[str]]]


def make_records(*records: dict[str, Any]) -> pa.Table:
    """Return CATALOG_LEDGERS with these fields, in the order that was given."""
    rows = []
    for number, record in enumerate(records):
        usual = {"bucket": 0, "scope": 0, "ledger": number, "raw": b"", "version": 0, "state": "CLOSED"}
        usual |= {"ensemble_size": 2, "write_quorum": 2, "ack_quorum": 2, "last_entry": 99}
        rows.append(fill_row(tables.CATALOG_LEDGERS, usual | record))
    return pa.Table.from_pylist(rows, schema=tables.CATALOG_LEDGERS)


def lay_out(segments: Segments, **fields: Any) -> dict[str, Any]:
    """Return the fields of a record with these segments."""
    parts = [{"first": first, "members": list(members)} for first, members in segments]
    return {"segments": parts, "ensemble_size": len(segments[0][1]), **fields}


def said(row: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the evidence of a finding: fields and values."""
    return [(one["field"], one["value"]) for one in row["evidence"]]


def test_only_ledgers_with_one_copy_are_named() -> None:
    """By their write quorum; of a record that nobody can read it is not known."""
    stored = make_records({"write_quorum": 1}, {"write_quorum": 2}, {"write_quorum": None}, {"write_quorum": 1})
    found = find_single_copies(stored, RUN).to_pylist()
    assert [(row["category"], row["ledger"], row["severity"]) for row in found] == [
        ("ONE_COPY", 0, "info"), ("ONE_COPY", 3, "info"),
    ]  # fmt: skip
    assert said(found[0]) == [("write quorum", "1")]


@pytest.mark.parametrize(
    ("state", "fenced", "age_s", "is_stuck"),
    [
        ("IN_RECOVERY", False, 3600, False),
        ("IN_RECOVERY", False, 3601, True),
        ("IN_RECOVERY", True, 3601, True),
        ("IN_RECOVERY", False, None, False),
        ("OPEN", False, 3601, False),
        ("OPEN", True, 3601, True),
        ("OPEN", True, 3600, False),
        ("CLOSED", True, 3601, False),
        (None, True, 3601, False),
    ],
)
def test_a_recovery_is_stuck_past_the_grace(
    state: str | None, age_s: int | None, *, fenced: bool, is_stuck: bool
) -> None:
    """Not at its end; nor where nobody knows when the record changed. An open one that is fenced was recovered, too."""
    changed = None if age_s is None else AT - timedelta(seconds=age_s)
    records = make_records({"state": "OPEN", "changed_at": changed}, {"state": state, "changed_at": changed})
    found = find_stuck_recoveries(records, np.array([False, fenced]), RUN, 3600).to_pylist()
    assert [(row["category"], row["ledger"]) for row in found] == [("RECOVERY_STUCK", 1)] * is_stuck
    for row in found:
        assert [field for field, _ in said(row)] == ["state", "record changed at", "fenced"]
        assert (said(row)[0][1], said(row)[2][1]) == (state, "yes" if fenced else "not seen")


def test_each_segment_is_held_against_the_policy() -> None:
    """Those against it are named with their write sets, places and bookies; the others only counted."""
    stored = make_records(
        lay_out([(0, ("a:1", "c:1")), (50, ("a:1", "b:1"))], ack_quorum=1),
        lay_out([(0, ("a:1", "c:1"))]),
        {"segments": None},
        lay_out([(0, ("a:1", "z:1"))]),
        lay_out([(0, ("a:1", "b:1", "c:1"))]),
    )
    found, counts = find_misplaced_segments(stored, RACKS, STRICT, RUN)
    assert counts == PlacementCounts(kept=2, soft=0, undecided=1, violated=2)
    rows = found.to_pylist()
    assert [(row["category"], row["ledger"], row["bookies"]) for row in rows] == [
        ("PLACEMENT_VIOLATED", 0, ["a:1", "b:1"]), ("PLACEMENT_VIOLATED", 4, ["a:1", "b:1", "c:1"]),
    ]  # fmt: skip
    assert said(rows[0]) == [
        ("policy", "rack-aware"),
        (
            "segment from entry 50",
            "entries 0 mod 2: a:1 /east/r1, b:1 /east/r1; entries 1 mod 2: b:1 /east/r1, a:1 /east/r1",
        ),
    ]
    # Of three only the write set of the first and the second is bad.
    assert said(rows[1])[1] == ("segment from entry 0", "entries 0 mod 3: a:1 /east/r1, b:1 /east/r1")
    assert {row["severity"] for row in rows} == {"warning"}


def test_the_worst_segment_decides_which_are_named() -> None:
    """Beside one that violates, those that only lack what is wanted are not named; alone they are a note."""
    wanted = PlacementSettings(policy=PlacementPolicy.ZONE_AWARE, min_zones=2, desired_zones=3)
    soft, hard, kept = ("a:1", "b:1", "c:1"), ("a:1", "b:1", "b:1"), ("a:1", "c:1", "d:1")
    stored = make_records(
        lay_out([(0, soft), (9, hard)], write_quorum=3, ack_quorum=2),
        lay_out([(0, kept), (7, soft)], write_quorum=3, ack_quorum=2),
        lay_out([(0, kept)], write_quorum=3, ack_quorum=2),
        lay_out([(0, ("x:1", "y:1", "z:1")), (5, soft)], write_quorum=3, ack_quorum=2),
    )
    found, counts = find_misplaced_segments(stored, ZONES, wanted, RUN)
    assert [(row["category"], row["ledger"], row["severity"]) for row in found.to_pylist()] == [
        ("PLACEMENT_VIOLATED", 0, "warning"), ("PLACEMENT_SOFT", 1, "info"), ("PLACEMENT_SOFT", 3, "info"),
    ]  # fmt: skip
    named = [[field for field, _ in said(row) if field.startswith("segment")] for row in found.to_pylist()]
    assert named == [["segment from entry 9"], ["segment from entry 7"], ["segment from entry 5"]]
    assert counts == PlacementCounts(kept=2, soft=3, undecided=1, violated=1)


@pytest.mark.parametrize(("segments", "more"), [(12, None), (13, "1")])
def test_a_dozen_segments_are_written_out(segments: int, more: str | None) -> None:
    """Of the others how many there are; their bookies are named all the same."""
    bad = [(number, ("a:1", "b:1")) for number in range(segments - 1)] + [(99, ("c:1", "d:1"))]
    [row] = find_misplaced_segments(make_records(lay_out(bad)), RACKS, STRICT, RUN)[0].to_pylist()
    written = said(row)
    assert sum(field.startswith("segment") for field, _ in written) == 12
    assert dict(written).get("more segments") == more
    assert row["bookies"] == ["a:1", "b:1", "c:1", "d:1"]


def test_ledgers_side_by_side_keep_their_segments_apart() -> None:
    """Each finding has the segments and bookies of its own ledger."""
    stored = make_records(lay_out([(0, ("a:1", "b:1"))]), lay_out([(3, ("c:1", "d:1")), (8, ("d:1", "c:1"))]))
    rows = find_misplaced_segments(stored, RACKS, STRICT, RUN)[0].to_pylist()
    assert [row["bookies"] for row in rows] == [["a:1", "b:1"], ["c:1", "d:1"]]
    segments = [[field for field, _ in said(row) if field.startswith("segment")] for row in rows]
    assert segments == [["segment from entry 0"], ["segment from entry 3", "segment from entry 8"]]


def test_ensembles_that_no_policy_can_hold_are_undecided() -> None:
    """Fewer bookies than copies, none at all; a write quorum of nothing is passed over, and so is an empty table."""
    stored = make_records(
        lay_out([(0, ("a:1",))], write_quorum=2),
        lay_out([(0, ())], write_quorum=1),
        lay_out([(0, ("a:1", "b:1"))], write_quorum=0),
        lay_out([(0, ("a:1", "b:1"))]),
    )
    found, counts = find_misplaced_segments(stored, RACKS, STRICT, RUN)
    assert counts == PlacementCounts(kept=0, soft=0, undecided=2, violated=1)
    assert found["ledger"].to_pylist() == [3]
    none, nothing = find_misplaced_segments(stored.slice(2, 1), RACKS, STRICT, RUN)
    assert (none.num_rows, nothing) == (0, PlacementCounts(kept=0, soft=0, undecided=0, violated=0))
    assert find_misplaced_segments(stored.slice(0, 2), RACKS, STRICT, RUN)[1] == PlacementCounts(0, 0, 2, 0)
    assert none.schema == tables.FINDINGS
