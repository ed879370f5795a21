"""What the reconstruction guarantees, on histories of all classes, seen whole and in part; its judge sees faults.

`scripts/soak histories` takes more of each; `python -m recovery.testing.judge` prints the tables.
"""

import os
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pytest

from recovery.infer.search import Tail
from recovery.model import tables
from recovery.testing import judge
from recovery.testing.histories import CLASSES, SCANS, Inventory
from recovery.testing.judge import Quorums

COUNT: Final = int(os.environ.get("BKMETA_SOAK_HISTORIES", "150"))
"""Histories of each class, and of each class with each scan a third of it."""


def said(tally: judge.Tally) -> str:
    """Say what is broken, a few of each guarantee."""
    shown: dict[str, list[str]] = {}
    for violation in tally.violations:
        shown.setdefault(violation.guarantee, []).append(str(violation))
    return "\n".join(text for some in shown.values() for text in some[:3])


@pytest.mark.parametrize("name", CLASSES)
def test_every_guarantee_holds(name: str) -> None:
    """Nothing served is unreadable or cut off, no hold leaves a bookie out, no sure grade is wrong, truth is listed."""
    tally = judge.run(name, COUNT)
    assert not tally.violations, said(tally)
    assert tally.readable == tally.entries
    assert sum(tally.paths.values()) == tally.ledgers > COUNT // 2


@pytest.mark.parametrize("scan", SCANS)
def test_every_guarantee_holds_where_less_is_seen(scan: str) -> None:
    """The same with bookies not scanned, folders missing, damage, and in clusters of a few ledgers."""
    for name in CLASSES:
        tally = judge.run(f"{name}/{scan}", COUNT // 10 + 1, seed=1000)
        assert not tally.violations, said(tally)


@pytest.mark.parametrize("tail", list(Tail))
def test_every_guarantee_holds_by_every_policy(tail: Tail) -> None:
    """With a snapshot's quorums: what is left open, BookKeeper's own recovery closes without a loss, in any order."""
    opened = 0
    for name in CLASSES:
        tally = judge.run(name, COUNT // 5, seed=2000, tail=tail, told=True)
        assert not tally.violations, said(tally)
        opened += tally.opened
    assert (opened > 0) == (tail is Tail.OPEN)


def test_what_nothing_happened_to_comes_back() -> None:
    """Of clean histories, all are restored, equal to the lost metadata."""
    tally = judge.run("clean", COUNT)
    assert tally.outcomes == {"restored": tally.ledgers}


Change = Callable[[dict[str, Any]], None]


def sabotaged(change: Change) -> judge.Reconstruct:
    """Return a reconstruction that claims something else."""

    def reconstruct(inventory: Inventory, *, tail: Tail = Tail.INCLUSIVE, quorums: Quorums | None = None) -> pa.Table:
        rows = judge.reconstructed(inventory, tail=tail, quorums=quorums).to_pylist()
        for row in rows:
            change(row)
        return pa.Table.from_pylist(rows, schema=tables.RECONSTRUCTION)

    return reconstruct


def shorten(row: dict[str, Any]) -> None:
    """Cut the last entry off."""
    if row["outcome"] == "restored" and row["last_entry"] > 0:
        row["last_entry"] -= 1
        row["acked_high"] = None


def misplace(row: dict[str, Any]) -> None:
    """Name bookies that hold nothing."""
    for segment in row["segments"] or ():
        segment["members"] = [f"10.0.9.{n}:3181" for n in range(len(segment["members"]))]


def boast(row: dict[str, Any]) -> None:
    """Call a wrong ack quorum observed."""
    if row["outcome"] == "restored":
        row["ack_quorum"] = row["ack_quorum"] % row["write_quorum"] + 1
        row["grades"]["ack_quorum"] = "observed"


def forget(row: dict[str, Any]) -> None:
    """Leave a holder out."""
    row["holders"] = row["holders"][1:]


def hide(row: dict[str, Any]) -> None:
    """Say nothing of other ends and lengths."""
    row["alternatives"] = []


def hold(row: dict[str, Any]) -> None:
    """Restore nothing."""
    row["outcome"], row["class"], row["reason"] = "held", "undecided", "hole"


@pytest.mark.parametrize(
    ("change", "name", "guarantee"),
    [
        (shorten, "clean", "G2"),
        (misplace, "clean", "G1"),
        (boast, "storm", "grade"),
        (forget, "storm", "hold"),
        (hide, "pending", "G5"),
        (hold, "clean", "clean"),
    ],
)
def test_the_judge_sees_a_fault(change: Change, name: str, guarantee: str) -> None:
    """Whatever is claimed wrongly is found, with the history, seed and ledger that bring it back."""
    found = judge.judge(name, 3, 150, reconstruct=sabotaged(change)).violations
    mine = [violation for violation in found if violation.guarantee == guarantee]
    assert mine
    assert all((violation.history, violation.seed) == (name, 3) for violation in mine)
    assert str(mine[0]).startswith(f"{guarantee}: {name} seed 3 ledger {mine[0].ledger}:")


def test_a_ledger_that_is_left_out_is_seen() -> None:
    """A ledger of the inventory without a row breaks the promise that all are accounted for."""

    def reconstruct(inventory: Inventory, *, tail: Tail = Tail.INCLUSIVE, quorums: Quorums | None = None) -> pa.Table:
        return judge.reconstructed(inventory, tail=tail, quorums=quorums).slice(1)

    found = judge.judge("clean", 1, 40, reconstruct=reconstruct).violations
    assert [violation.guarantee for violation in found] == ["rows"]
