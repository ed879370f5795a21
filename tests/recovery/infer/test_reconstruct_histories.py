"""What the reconstruction guarantees, on histories of all classes, seen whole and in part; its judge sees faults.

`scripts/soak histories` takes more of each; `python -m tests.simulation.judge` prints the tables.
"""

import os
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pytest

from recovery.infer import segment_costs
from recovery.infer.search import Tail
from recovery.model import tables
from recovery.model.metadata import LedgerState
from tests.simulation import judge, sensitivity
from tests.simulation.cluster_judge import Quorums
from tests.simulation.evidence import Evidence
from tests.simulation.inventories import Inventory
from tests.simulation.profiles import CLASSES, SCANS
from tests.simulation.tally import Tally

pytestmark = pytest.mark.long

COUNT: Final = int(os.environ.get("BKMETA_SOAK_HISTORIES", "15"))
"""Histories of each class, and of each class with each scan a third of it."""
FIRST: Final = int(os.environ.get("BKMETA_SOAK_SEED", "0"))
"""Seed of the first cluster: `scripts/soak` draws another one each time. Violations name theirs."""


def said(tally: Tally) -> str:
    """Say what is broken, a few of each guarantee."""
    shown: dict[str, list[str]] = {}
    for violation in tally.violations:
        shown.setdefault(violation.guarantee, []).append(str(violation))
    return "\n".join(text for some in shown.values() for text in some[:3])


@pytest.mark.parametrize("name", CLASSES)
def test_every_guarantee_holds(name: str) -> None:
    """Nothing served is unreadable or cut off, no hold leaves a bookie out, no sure grade is wrong, truth is listed."""
    tally = judge.run(name, COUNT, seed=FIRST)
    assert not tally.violations, said(tally)
    assert tally.readable == tally.entries
    assert sum(tally.paths.values()) == tally.ledgers > COUNT // 2


@pytest.mark.parametrize("scan", SCANS)
def test_every_guarantee_holds_where_less_is_seen(scan: str) -> None:
    """The same with bookies not scanned, folders missing, damage, and in clusters of a few ledgers."""
    for name in CLASSES:
        tally = judge.run(f"{name}/{scan}", COUNT // 10 + 1, seed=FIRST + 1000)
        assert not tally.violations, said(tally)


@pytest.mark.parametrize("tail", list(Tail))
def test_every_guarantee_holds_by_every_policy(tail: Tail) -> None:
    """With a snapshot's quorums: what is left open, BookKeeper's own recovery closes without a loss, in any order."""
    opened = 0
    for name in CLASSES:
        tally = judge.run(name, COUNT // 5, seed=FIRST + 2000, tail=tail, is_snapshot_known=True)
        assert not tally.violations, said(tally)
        opened += tally.opened
    assert (opened > 0) == (tail is Tail.OPEN)


@pytest.mark.parametrize("kind", ["now", "stale", "lacking", "references", "both"])
def test_every_guarantee_holds_beside_true_evidence(kind: str) -> None:
    """The same with an earlier store's records, and the ends of an upper layer, that were true at their time."""
    for name in ("clean", "changes", "reopened", "reused", "deleted", "mixed"):
        tally = judge.run(f"{name}@{kind}", COUNT // 3, seed=FIRST + 3000)
        assert not tally.violations, said(tally)
        assert tally.misled == 0 or name in ("reused", "mixed")


@pytest.mark.parametrize("kind", ["contradicting", "misreferences", "foreign"])
def test_every_guarantee_holds_beside_what_is_not_true(kind: str) -> None:
    """The same with records and ends that are wrong: what bookies contradict is not followed."""
    for name in ("clean", "short", "changes", "reopened", "rereplicated", "wiped", "reused", "mixed", "mixed/damaged"):
        tally = judge.run(f"{name}@{kind}", COUNT // 3, seed=FIRST + 5000)
        assert not tally.violations, said(tally)


def test_a_length_that_no_recovery_counted_is_no_contradiction() -> None:
    """A record of another cluster says 0, as a recovery leaves it that no member of an empty last segment answered."""
    tally = judge.judge("mixed@foreign", 0, 500)
    assert not tally.violations, said(tally)
    assert 0 < tally.misled < tally.ledgers // 20


@pytest.mark.parametrize(
    ("name", "seed", "ledgers"),
    [
        ("long@foreign", 16, 100),
        ("rereplicated@foreign", 2, 500),
        ("mixed/unscanned@both", 4, 500),
        ("wiped@contradicting", 10, 500),
        ("mixed@contradicting", 3000, 500),
        ("mixed@contradicting", 764443939, 500),
        ("holes", 71001004, 500),
        ("holes", 71001013, 500),
        ("reopened", 71001008, 500),
        ("tight@contradicting", 3111004, 100),
        ("tended@contradicting", 3110002, 500),
        ("tight", 61014009, 100),
        ("tight", 61020022, 100),
        ("reopened/tight", 61151004, 500),
        ("reopened/tight", 27113026, 500),
        ("denied", 80029, 500),
        ("tended@contradicting", 84006000, 200),
        ("clean/tight", 84017001, 500),
        ("deferred/tight", 84017004, 500),
        ("mixed/tight@foreign", 88001366, 250),
        ("mixed/tended@stale", 89000205, 250),
        ("denied@misreferences", 93002323, 250),
        ("lost-copies@stale", 98000862, 100),
    ],
)
def test_histories_that_once_broke_a_guarantee(name: str, seed: int, ledgers: int) -> None:
    """An end above what others wrote; W = 1 with three copies; a hidden shape; a LAC without entry; copied stripes.

    An end before a gap that one shape explains and others do not; one that a recovery found by asking who had lost all.
    A ledger that is guarded for its length alone, and whose end all bookies show. A copy that was deleted where another
    one is served: it hides nothing. A bookie that takes part in no ledger with full copies. Ends below a LAC that a
    recovery found by asking a member that had lost all, where bookies that were replaced have full copies above it.
    A record of another shape than copies repeat; four full copies taken for stripes, as one bookie is in all ledgers;
    a full copy of a bookie that was replaced before anything was acknowledged. An end above all of another ledger's
    record, which names who has the one copy for later entries; a writer's ledger that was deleted before its recovery;
    an upper layer's length below that of an earlier entry; two entries of which all copies are lost, and one member
    alone shows that it lost any.
    """
    tally = judge.judge(name, seed, ledgers)
    assert not tally.violations, said(tally)


def test_a_deletion_shows_where_the_rest_is_stated_to_be_lost() -> None:
    """Ledger 191 was deleted, and its first member, which had no share of the only entry of its segment, collected."""
    tally = judge.judge("mixed/incomplete", 89000007, 250, reconstruct=judge.reconstruct_rest)
    assert not tally.violations, said(tally)


def test_a_record_of_another_shape_than_copies_repeat_keeps_all_copies() -> None:
    """Two bookies repeat 2 of 3 entries, and both have copies: the record, 4/3, is not followed without a word."""
    lived = judge.live("tended@contradicting", 84006000, 200)
    rows = judge.reconstruct_alone(lived.inventory, quorums=lived.quorums, evidence=lived.evidence).to_pylist()
    [row] = [row for row in rows if row["ledger"] == 52]
    assert (row["outcome"], row["reason"], row["reading"]) == ("guarded", "two_histories", "likeliest")
    said = [(c["field"], c["earlier"], c["bookies"]) for c in row["contradictions"]]
    assert said == [("ensemble_size/write_quorum", "4/3", "3/2")]
    offered = {(other["field"], other["value"]): other["reads_as"] for other in row["alternatives"]}
    assert offered["ensemble_size/write_quorum", "3/2"].startswith("as bookies alone show it")


def test_what_a_bookie_collected_that_no_record_names_shows_no_deletion() -> None:
    """Ledger 346 was deleted, and only one that its writer had replaced before any answer has dropped its entry."""
    tally = judge.judge("mixed/damaged", 12, 500)
    assert not tally.violations, said(tally)
    assert tally.resurrected > 0


def test_what_a_reconstruction_never_hears_of_is_not_judged(capsys: pytest.CaptureFixture[str]) -> None:
    """A store's deletions are for `recover` to decide on: the command says where that is judged."""
    with pytest.raises(SystemExit):
        judge.main(["mixed@deletions"])
    assert "mixed@deletions; what `recover` decides" in capsys.readouterr().err


def test_a_record_of_others_is_found_where_not_all_was_seen() -> None:
    """That nobody in a write set has an entry which others wrote speaks against an end above all, too."""
    found = judge.judge("clean/unscanned@foreign", 3, 150, reconstruct=believing).violations
    assert any("nobody has an entry above" in v.what and "have" in v.what for v in found if v.guarantee == "earlier")


def test_a_record_brings_back_nothing_that_a_member_deleted() -> None:
    """A stale record of a ledger that one member serves a part of, and another one has in its logs only."""
    tally = judge.judge("mixed@stale", 1, 500)
    assert not tally.violations, said(tally)


def test_what_nothing_happened_to_comes_back() -> None:
    """Of clean histories, all are restored, equal to the lost metadata."""
    tally = judge.run("clean", COUNT, seed=FIRST)
    assert tally.outcomes == {"restored": tally.ledgers}


Change = Callable[[dict[str, Any]], None]


def sabotaged(change: Change) -> judge.Reconstruct:
    """Return a reconstruction that claims something else."""

    def reconstruct(
        inventory: Inventory,
        *,
        tail: Tail = Tail.INCLUSIVE,
        quorums: Quorums | None = None,
        evidence: Evidence = judge.NOTHING,
    ) -> pa.Table:
        rows = judge.reconstruct_alone(inventory, tail=tail, quorums=quorums, evidence=evidence).to_pylist()
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


def narrow(row: dict[str, Any]) -> None:
    """Leave the last position out where all bookies hold all."""
    if row["outcome"] == "restored" and row["ensemble_size"] == row["write_quorum"] > 1:
        row["ensemble_size"] = row["write_quorum"] = row["write_quorum"] - 1
        row["ack_quorum"] = 1
        for name in ("ensemble_size", "write_quorum", "segments"):
            row["grades"][name] = "inferred"
        for segment in row["segments"]:
            segment["members"], segment["assumed"] = segment["members"][:-1], segment["assumed"][:-1]


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
        (hide, "late", "told"),
        (narrow, "clean", "shape"),
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


def believing(
    inventory: Inventory,
    *,
    tail: Tail = Tail.INCLUSIVE,
    quorums: Quorums | None = None,
    evidence: Evidence = judge.NOTHING,
) -> pa.Table:
    """Reconstruct what bookies show, and take whatever a closed record or a reference says instead."""
    rows = judge.reconstruct_alone(inventory, tail=tail, quorums=quorums).to_pylist()
    for row in rows:
        record, reference = evidence.records.get(row["ledger"]), evidence.references.get(row["ledger"])
        if row["outcome"] == "restored" and record is not None and record.state is LedgerState.CLOSED:
            row.update(last_entry=record.last_entry, length=record.length, digest=str(record.digest), alternatives=[])
            row["grades"].update(dict.fromkeys(("last_entry", "length", "digest"), "snapshot"))
        if row["outcome"] == "restored" and reference is not None and reference.last_entry is not None:
            row.update(last_entry=reference.last_entry, alternatives=[])
            row["grades"]["last_entry"] = "reference"
    return pa.Table.from_pylist(rows, schema=tables.RECONSTRUCTION)


@pytest.mark.parametrize(
    ("name", "guarantees"),
    [
        ("clean@contradicting", {"earlier", "G2", "G5"}),
        ("clean@foreign", {"earlier", "G2", "G5"}),
        ("clean@misreferences", {"earlier", "G2", "G5"}),
        ("deleted@references", {"law7"}),
    ],
)
def test_the_judge_sees_who_believes_anything(name: str, guarantees: set[str]) -> None:
    """Anybody who follows a record that bookies contradict, or passes over a reference that says deleted, is found."""
    tally = judge.judge(name, 3, 150, reconstruct=believing)
    assert guarantees <= {violation.guarantee for violation in tally.violations}


def test_what_nothing_contradicts_is_counted_and_not_blamed() -> None:
    """A record that says another end, which bookies allow, misleads anybody."""
    tally = judge.judge("short@contradicting", 3, 300, reconstruct=believing)
    assert 0 < tally.misled < tally.ledgers // 4


def test_a_ledger_that_is_left_out_is_seen() -> None:
    """A ledger of the inventory without a row breaks the promise that all are accounted for."""

    def reconstruct(
        inventory: Inventory,
        *,
        tail: Tail = Tail.INCLUSIVE,
        quorums: Quorums | None = None,
        evidence: Evidence = judge.NOTHING,
    ) -> pa.Table:
        return judge.reconstruct_alone(inventory, tail=tail, quorums=quorums, evidence=evidence).slice(1)

    found = judge.judge("clean", 1, 40, reconstruct=reconstruct).violations
    assert [violation.guarantee for violation in found] == ["rows"]


def test_a_constant_is_changed_and_put_back(capsys: pytest.CaptureFixture[str]) -> None:
    """Segments that cost twice as much make other rows; afterwards all is as it was."""
    assert all(hasattr(owner, name) for owner, names in sensitivity.DECIDING.items() for name in names)
    stood = segment_costs.SEGMENT
    assert sensitivity.main(["segment_costs.SEGMENT", "--count", "40", "--classes", "storm"]) == 0
    first, half, double = capsys.readouterr().out.splitlines()[2:]
    assert [cell.strip() for cell in double.split("|")[1:4]] == ["segment_costs.SEGMENT", "1.5", "3"]
    assert int(double.split("|")[4]) > 0 == int(first.split("|")[4])
    assert half != double
    assert stood == segment_costs.SEGMENT
