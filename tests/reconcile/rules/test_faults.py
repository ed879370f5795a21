"""Faults of ledgers that were laid out in parts, added up."""

from typing import Any, Final

import pyarrow as pa

from reconcile.rules.segments.faults import FAULTS, MOST_GROUPS, Fault, merge_faults


def group(first: int) -> dict[str, int]:
    """One entry."""
    return {"first": first, "last": first, "size": 1, "period": 0}


def fault(row: int, kind: Fault, first: int = 0, **known: Any) -> dict[str, Any]:
    """A fault of one entry that one bookie lacks."""
    usual: dict[str, Any] = {
        "entries": 1,
        "least": 1,
        "groups": [group(first)],
        "lacking": ["b:1"],
        "strays": [],
        "dark": [],
    }
    return {"row": row, "fault": int(kind), **usual, **known}


def merge(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of all parts, merged."""
    merged = merge_faults(pa.Table.from_pylist(list(rows), schema=FAULTS))
    assert merged.schema.equals(FAULTS)
    told: list[dict[str, Any]] = merged.to_pylist()
    return told


KINDS: Final = list(Fault)


def test_faults_that_stand_alone_are_put_in_order() -> None:
    """By ledger, and from harmless to grave; nothing of them is changed."""
    rows = [fault(row, kind) for row in (0, 1, 2) for kind in KINDS]
    assert merge(*rows[::-1]) == rows
    assert merge() == []


def test_parts_of_one_fault_are_one() -> None:
    """Entries added, the fewest copies, groups one after the other, bookies each once and in order."""
    parts = [
        fault(4, Fault.LOST, 1, entries=3, least=2, lacking=["c:1", "a:1"], strays=["x:1"], dark=["d:1"]),
        fault(4, Fault.LOST, 5, entries=4, least=0, lacking=["b:1", "a:1"], strays=["w:1"], dark=["d:1"]),
        fault(4, Fault.LOST, 9, entries=5, least=1, lacking=[], strays=[], dark=["c:1"]),
    ]
    others = [fault(4, Fault.MISPLACED, 7), fault(5, Fault.OVER_REPLICATED, 8), fault(3, Fault.LOST, 6)]
    merged = merge(parts[0], others[0], parts[1], others[1], parts[2], others[2])
    assert merged[0] == others[2]
    assert merged[1] == others[0]
    assert merged[3] == others[1]
    assert merged[2] == fault(
        4, Fault.LOST, entries=12, least=0, groups=[group(1), group(5), group(9)], lacking=["a:1", "b:1", "c:1"],
        strays=["w:1", "x:1"], dark=["c:1", "d:1"],
    )  # fmt: skip
    assert len(merged) == 4


def test_groups_of_a_fault_are_bounded() -> None:
    """However many parts it is of; the number of its entries is of all."""
    parts = [fault(0, Fault.LOST, entries=MOST_GROUPS, groups=[group(n) for n in range(MOST_GROUPS)])] * 2
    [row] = merge(*parts)
    assert (len(row["groups"]), row["entries"]) == (MOST_GROUPS, 2 * MOST_GROUPS)
    assert row["groups"][-1] == group(MOST_GROUPS - 1)
