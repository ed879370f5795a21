"""Faults of copies as findings: the gravest of each family, its severity, what is said of it; how bookies were seen."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reconcile.findings.table import FindingRun
from reconcile.rules.segments.copies import COVERAGE, MISSING_ROWS, PAIRS, CopyFaults, find_faults
from reconcile.rules.segments.copy_findings import CLOCK_SKEW, findings, list_running, see_bookies
from reconcile.rules.segments.faults import FAULTS, MOST_GROUPS, Fault, merge_faults
from recovery.model import tables
from tests.reconcile.rules.test_copies_properties import Ledger, make_copies, make_stored
from tests.support.inventories import fill_row

STARTED = datetime(2030, 1, 1, tzinfo=UTC)
RUN = FindingRun("run", datetime(2030, 1, 2, tzinfo=UTC))
STORED = make_stored([Ledger(3, 2, 9, [(0, ["a:1", "b:1", "c:1"])], {}) for _ in range(4)])


def fault(row: int, kind: Fault, **changes: Any) -> dict[str, Any]:
    """Return a row of FAULTS."""
    groups = [{"first": 0, "last": 9, "size": 10, "period": 0}]
    usual = {"row": row, "fault": int(kind), "entries": 10, "least": 1, "groups": groups}
    return {**usual, "lacking": ["a:1"], "strays": ["x:1"], "dark": ["d:1"], **changes}


def list_findings(*rows: dict[str, Any], everywhere: bool = True) -> list[dict[str, Any]]:
    """Return the findings of these faults, by ledger."""
    table = pa.Table.from_pylist(list(rows), schema=FAULTS)
    nothing = MISSING_ROWS.empty_table(), PAIRS.empty_table()
    faults = CopyFaults(*nothing, table, np.empty(0, np.int64), np.empty(0, np.int8), COVERAGE.empty_table())
    made = findings(STORED, faults, RUN, everywhere=everywhere)
    return sorted(made.to_pylist(), key=lambda row: (row["ledger"], row["category"]))


@pytest.mark.parametrize(
    ("kind", "everywhere", "category", "severity", "bookies", "unknown"),
    [
        (Fault.LOST, True, "ENTRY_LOST", "critical", ["a:1"], False),
        (Fault.LOST, False, "BELOW_ACK_QUORUM", "critical", ["a:1"], True),
        (Fault.BELOW_ACK_QUORUM, True, "BELOW_ACK_QUORUM", "critical", ["a:1"], False),
        (Fault.BELOW_ACK_QUORUM, False, "BELOW_ACK_QUORUM", "critical", ["a:1"], False),
        (Fault.BELOW_WRITE_QUORUM, True, "BELOW_WRITE_QUORUM", "warning", ["a:1"], False),
        (Fault.MISPLACED_ALL, True, "ENTRIES_MISPLACED", "critical", ["a:1"], False),
        (Fault.MISPLACED, False, "ENTRIES_MISPLACED", "warning", ["a:1"], False),
        (Fault.OVER_REPLICATED, True, "OVER_REPLICATED", "info", ["x:1"], False),
    ],
)
def test_each_fault_has_its_category(
    kind: Fault, category: str, severity: str, bookies: list[str], *, everywhere: bool, unknown: bool
) -> None:
    """What is on no bookie is lost only where every one was seen; copies too many are of those that nobody named."""
    [row] = list_findings(fault(2, kind), everywhere=everywhere)
    assert (row["category"], row["severity"], row["ledger"], row["bookies"]) == (category, severity, 2, bookies)
    assert bool(row["unknowns"]) == unknown
    assert [(group["first"], group["size"]) for group in row["entries"]] == [(0, 10)]
    said = {one["field"]: one["value"] for one in row["evidence"]}
    assert said["ensemble, write quorum, ack quorum"] == "/".join(
        str(STORED[name][2].as_py()) for name in ("ensemble_size", "write_quorum", "ack_quorum")
    )
    assert said["last entry"] == "9"
    assert said["copies of the worst entry where readers ask"] == "1"
    assert said["lack entries"] == "a:1"
    assert said["have them, and are not named for them"] == "x:1"
    assert said["may have them: not seen"] == "d:1"


def test_of_each_family_the_gravest_is_said_once() -> None:
    """Too few copies, in the wrong place, too many: three findings of one ledger, and none of what is less grave."""
    rows = [
        fault(0, Fault.OVER_REPLICATED), fault(0, Fault.BELOW_WRITE_QUORUM), fault(0, Fault.MISPLACED),
        fault(0, Fault.MISPLACED_ALL), fault(0, Fault.BELOW_ACK_QUORUM), fault(0, Fault.LOST),
        fault(1, Fault.BELOW_WRITE_QUORUM), fault(3, Fault.BELOW_WRITE_QUORUM), fault(3, Fault.BELOW_ACK_QUORUM),
    ]  # fmt: skip
    assert [(row["ledger"], row["category"], row["severity"]) for row in list_findings(*rows)] == [
        (0, "ENTRIES_MISPLACED", "critical"), (0, "ENTRY_LOST", "critical"), (0, "OVER_REPLICATED", "info"),
        (1, "BELOW_WRITE_QUORUM", "warning"), (3, "BELOW_ACK_QUORUM", "critical"),
    ]  # fmt: skip
    assert list_findings() == []


def test_faults_of_a_ledger_that_was_laid_out_in_parts_are_added_up() -> None:
    """Entries are summed, the fewest copies and every bookie kept, groups up to a bound; others are as they were."""
    many = [{"first": n, "last": n, "size": 1, "period": 0} for n in range(MOST_GROUPS)]
    parts = [
        fault(1, Fault.LOST, entries=3, least=2, lacking=["b:1"], strays=["y:1"], dark=["e:1"]),
        fault(0, Fault.LOST, entries=5),
        fault(1, Fault.LOST, entries=4, least=1, groups=many),
        fault(1, Fault.MISPLACED, entries=2),
        fault(1, Fault.OVER_REPLICATED, entries=1),
    ]
    merged = merge_faults(pa.Table.from_pylist(parts, schema=FAULTS))
    rows = merged.to_pylist()
    assert [(row["row"], row["fault"], row["entries"]) for row in rows] == [
        (0, Fault.LOST, 5), (1, Fault.OVER_REPLICATED, 1), (1, Fault.MISPLACED, 2), (1, Fault.LOST, 7),
    ]  # fmt: skip
    both = rows[3]
    assert (both["least"], len(both["groups"])) == (1, MOST_GROUPS)
    assert (both["lacking"], both["strays"], both["dark"]) == (["a:1", "b:1"], ["x:1", "y:1"], ["d:1", "e:1"])
    assert merged.schema == FAULTS
    assert merge_faults(pa.Table.from_pylist(parts[1:2], schema=FAULTS)).to_pylist() == parts[1:2]


def test_how_bookies_were_seen_follows_from_their_inventories() -> None:
    """Disks of a bookie that runs count up to when they were read; not all, or not this ledger: nothing is proven."""

    def make_bookie(name: str, mode: str, *, complete: bool, dirty: bool | None, **more: Any) -> dict[str, Any]:
        given = {"bookie": name, "mode": mode, "complete": complete, "started": STARTED, "dirty": dirty}
        return fill_row(tables.BOOKIES, given | more)

    bookies = pa.Table.from_pylist(
        [
            make_bookie("runs:1", "disks", complete=True, dirty=True),
            make_bookie("stands:1", "disks", complete=True, dirty=False),
            make_bookie("torn:1", "disks", complete=False, dirty=None),
            make_bookie("asked:1", "wire", complete=False, dirty=None),
            make_bookie("hurt:1", "disks", complete=True, dirty=False),
            make_bookie("listed:1", "table", complete=False, dirty=None),
            make_bookie("torn:2", "disks", complete=False, dirty=None, gaps_named=False),
            make_bookie("known:1", "disks", complete=False, dirty=None, gaps_named=True),
            make_bookie("hurt:2", "disks", complete=False, dirty=None, gaps_named=True),
        ],
        schema=tables.BOOKIES,
    )
    harm: list[dict[str, Any]] = [
        {"bookie": "hurt:1", "ledger": None, "hides_entries": True},
        {"bookie": "hurt:2", "ledger": None, "hides_entries": True},
        {"bookie": "asked:1", "ledger": None, "hides_entries": False},
        {"bookie": "stands:1", "scope": 3, "ledger": 7, "hides_entries": True},
        {"bookie": "runs:1", "scope": None, "ledger": 8, "hides_entries": True},
        {"bookie": "runs:1", "scope": 0, "ledger": 9, "hides_entries": False},
    ]
    damage = pa.Table.from_pylist([fill_row(tables.DAMAGE, row) for row in harm], schema=tables.DAMAGE)
    outdated = list_running(bookies, ["runs:1", "asked:1"])
    assert outdated == {"runs:1": None}
    sight = see_bookies(bookies, damage, outdated | {"asked:1": 12})
    started = int((STARTED - CLOCK_SKEW).timestamp() * 1_000_000)
    assert sight.since == {
        "runs:1": started, "stands:1": None, "torn:1": None, "asked:1": started, "hurt:1": None, "listed:1": None,
        "torn:2": None, "known:1": None, "hurt:2": None,
    }  # fmt: skip
    assert sight.blind == {"torn:1", "hurt:1", "listed:1", "torn:2", "hurt:2"}
    assert sight.stopped == {"stands:1", "hurt:1"}
    assert sight.hidden.to_pylist() == [
        {"scope": 3, "ledger": 7, "bookie": "stands:1"}, {"scope": 0, "ledger": 8, "bookie": "runs:1"},
    ]  # fmt: skip
    assert sight.as_of == {"asked:1": 12}


def test_what_copies_show_becomes_findings() -> None:
    """From copies to findings: one ledger lacks a copy of its odd entries."""
    ledger = Ledger(2, 2, 9, [(0, ["bk0", "bk1"])], {"bk0": set(range(10)), "bk1": set(range(0, 10, 2))})
    stored = make_stored([ledger])
    seen = see_bookies(
        pa.Table.from_pylist(
            [
                fill_row(tables.BOOKIES, {"bookie": name, "mode": "wire", "complete": True, "started": STARTED})
                for name in ("bk0", "bk1")
            ],
            schema=tables.BOOKIES,
        ),
        tables.DAMAGE.empty_table(),
        {},
    )
    [row] = findings(stored, find_faults(stored, make_copies([ledger]), seen), RUN, everywhere=True).to_pylist()
    assert (row["bookies"], row["ledger"]) == (["bk1"], 0)
    said = {one["field"]: one["value"] for one in row["evidence"]}
    assert [value for field, value in said.items() if field.startswith("entries")] == ["5"]
