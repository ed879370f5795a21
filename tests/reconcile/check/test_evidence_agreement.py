"""Scrutiny, impact check, maintenance, `explain` and `delete verify` say the same of the same damaged ledgers.

`scripts/soak agreement N` asks them of N others.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from reconcile.check.evidence import RECORD_COLUMNS, CopyEvidence, ScrutinyRun
from reconcile.check.impact.names import ImpactTarget
from reconcile.cli.commands.check_impact import make_result
from reconcile.deletes.verification.durability import judge_copies
from reconcile.deletes.verification.wanted import WantedLedgers
from reconcile.jobs.diagnose.explain import ExplainRequest, explain
from reconcile.jobs.impact.question import Taken
from reconcile.plan.actions import Passwords
from recovery.dataset import Dataset, open_dataset
from recovery.infer.search import Tail
from recovery.model import tables
from recovery.model.groups import from_arrow, to_runs
from recovery.model.ids import LedgerId
from tests.support.damaged_ledgers import CREATED, TXN, Damaged, damage_ledgers, write_lists, write_run
from tests.support.impact_judge import Ledger
from tests.support.impact_question import ask, make_context
from tests.support.impacts import AT
from tests.support.inventories import fill_row

pytestmark = pytest.mark.long

LEDGERS = int(os.environ.get("BKMETA_SOAK_AGREEMENT", "100"))
SEED = os.environ.get("BKMETA_SOAK_SEED", "1")
Missing = set[tuple[int, str, int]]


@pytest.fixture(scope="module")
def damaged() -> Damaged:
    """A hundred ledgers; some of their copies lack entries, or everything."""
    return damage_ledgers(Random(f"agreement {SEED}"), LEDGERS)


@pytest.fixture(scope="module")
def run(damaged: Damaged, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scrutiny that every bookie answered."""
    folder = tmp_path_factory.mktemp("agreement") / "run"
    write_run(folder, damaged, damaged.bookies)
    return folder


def read_missing(rows: pa.Table, ledgers: list[int]) -> Missing:
    """Return (ledger, bookie, entry) of a table of groups."""
    runs = to_runs(from_arrow(rows["groups"]))
    names = rows["bookie"].to_pylist()
    return {
        (ledgers[key], names[key], entry)
        for key, first, size in zip(*(column.tolist() for column in runs), strict=True)
        for entry in range(first, first + size)
    }


def list_lost(damaged: Damaged, missing: Missing) -> set[int]:
    """Return the ledgers with a write set of which each copy lacks an entry: what an impact check counts as lost."""
    lost = set()
    for ledger in damaged.ledgers:
        ensemble, write, _ = ledger.quorum
        ends = [first for first, _ in ledger.segments[1:]] + [(ledger.last or 0) + 1]
        for (first, members), end in zip(ledger.segments, ends, strict=True):
            for residue in {entry % ensemble for entry in range(first, end)}:
                lacking = [
                    any((ledger.number, members[(residue + i) % ensemble], e) in missing
                        for e in range(first, end) if e % ensemble == residue)
                    for i in range(write)
                ]  # fmt: skip
                if all(lacking):
                    lost.add(ledger.number)
    return lost


def list_breached(damaged: Damaged, missing: Missing) -> set[int]:
    """Return the ledgers with an entry of fewer copies than acknowledge it."""
    return {
        ledger.number
        for ledger in damaged.ledgers
        for entry in range((ledger.last or 0) + 1)
        if ledger.quorum[1] - sum((ledger.number, name, entry) in missing for name in damaged.bookies)
        < ledger.quorum[2]
    }


def explain_ledger(store: Dataset, run: Path, ledger: int, **more: Any) -> Any:
    """Explain a ledger by the store and a scrutiny."""
    fields: Mapping[str, Any] = {
        "ledger": LedgerId(0, ledger), "inventories": (), "uri": f"catalog://{store.path}", "snapshots": (),
        "plan": None, "passwords": Passwords.from_candidates([]), "expected": None, "default_quorum": None,
        "references": (), "tail": next(iter(Tail)), "layout": None, "runs": (run,), **more,
    }  # fmt: skip
    return explain(ExplainRequest(**fields), make_context())


def test_all_of_them_say_what_is_true(damaged: Damaged, run: Path, tmp_path: Path) -> None:
    """Which entries are missing where, which ledgers lost entries, and which have fewer copies than acknowledged."""
    store = open_dataset(run / "store", "catalog")
    truth = damaged.list_missing()
    assert len({ledger for ledger, _, _ in truth}) > LEDGERS // 4

    found = open_dataset(run, "scrutiny").read("missing")
    assert read_missing(found, found["ledger"].to_pylist()) == truth, "scrutinize"

    answer = ask(store, evidence=(run,), out=tmp_path / "impact")
    rows = open_dataset(tmp_path / "impact", "impact").read("impacts").to_pylist()
    lost = list_lost(damaged, truth)
    assert {row["ledger"] for row in rows if row["impact"] == "DATA_LOSS"} == lost, "check-impact"
    assert answer.evidence is not None
    covered = answer.evidence.covered
    assert (covered.missing, covered.judged) == (len({(ledger, name) for ledger, name, _ in truth}), covered.positions)
    assert answer.evidence.runs[0].age_s == 60
    said = make_result(answer, "catalog://", "down", None, asked=False)
    facts: Any = said.facts
    assert facts["evidence"]["copies"] == covered.positions

    records = store.read("ledgers", columns=list(RECORD_COLUMNS))
    seen = CopyEvidence.gather((), (ScrutinyRun.open(run),), store).see(records)
    numbers = records["ledger"].to_pylist()
    assert read_missing(seen.faults.missing, [numbers[row] for row in seen.faults.missing["row"].to_pylist()]) == truth
    breached = list_breached(damaged, truth)
    wanted = WantedLedgers([LedgerId(0, ledger.number) for ledger in damaged.ledgers])
    disks = [
        write_lists(tmp_path / "disks" / f"{n}", damaged, name, mode="disks", as_of=TXN)
        for n, name in enumerate(damaged.bookies)
    ]
    for lists, runs in (((), (ScrutinyRun.open(run),)), (disks, ())):
        found_by = judge_copies(wanted, store, lists, runs, {})
        assert {wanted.ledgers[row].ledger for row in found_by.breaches} == breached, "delete verify"
        assert not found_by.undecided

    grave = open_dataset(run, "scrutiny").read("findings").to_pylist()
    marked = {ledger.number for ledger in damaged.ledgers if ledger.marked}
    called = {row["ledger"] for row in grave if row["category"] in ("ENTRY_LOST", "BELOW_ACK_QUORUM")}
    assert called == breached - marked, "scrutinize passes marked ledgers over"

    for ledger in damaged.ledgers[:: max(1, LEDGERS // 25)]:
        explained = explain_ledger(store, run, ledger.number)
        lacking = {name for number, name, _ in truth if number == ledger.number}
        assert {line.partition(" ")[0] for line in explained.seen if "lacks entries" in line} == lacking, "explain"
        below = any(text.startswith("BELOW_ACK_QUORUM") for text in explained.disagreements)
        assert below == (ledger.number in breached), explained.disagreements


def test_marks_of_copies_that_were_seen_since_count_for_nothing(damaged: Damaged, run: Path) -> None:
    """A marked copy is there if the bookie was seen to have it after it was marked."""
    store = open_dataset(run / "store", "catalog")
    # The marks of these catalogs have no transaction: nothing shows that they are older, so they count.
    answer = ask(store, evidence=(run,))
    assert answer.evidence is not None
    assert answer.evidence.covered.overruled == 0
    promised = {
        (ledger.number, name) for ledger in damaged.ledgers for name in ledger.marked if damaged.list_due(ledger, name)
    }
    lacking = {(ledger, name) for ledger, name, _ in damaged.list_missing()}
    records = store.read("ledgers", columns=list(RECORD_COLUMNS))
    there = CopyEvidence.gather((), (ScrutinyRun.open(run),), store).see(records).sound
    numbers = records["ledger"].to_pylist()
    shown = {(numbers[row["row"]], row["bookie"]) for row in there.to_pylist()}
    assert {pair for pair in promised if pair in shown} == promised - lacking
    assert set(there["txn"].to_pylist()) == {TXN}


def make_wiped(bookie: str, before_txn: int) -> pa.Table:
    """Return WIPED with one bookie."""
    row = {"bookie": bookie, "before_txn": before_txn, "evidence": "cookie", "since": AT, "ledgers": 1}
    return pa.Table.from_pylist([fill_row(tables.WIPED, row)], schema=tables.WIPED)


def test_the_neighbour_of_a_wiped_bookie_is_not_spared(tmp_path: Path) -> None:
    """Records promise two copies; the scrutiny knows that one bookie is empty. Without it the answer is SAFE."""
    names = tuple(f"bk{number}:3181" for number in range(7))
    members = ((0, names[:2]),)
    ledgers = (
        Ledger(0, (2, 2, 2), "OPEN", None, members),
        *(Ledger(number, (2, 2, 2), "CLOSED", 5, members) for number in range(1, 30)),
    )
    held = {(n, name): frozenset(range(6) if name in names[:2] else ()) for n in range(30) for name in names}
    damaged = Damaged(names, ledgers, held)
    # The wiped bookie did not answer: that it is empty is known from the run before.
    write_run(tmp_path / "run", damaged, names[1:], make_wiped(names[0], CREATED + 1))
    store = open_dataset(tmp_path / "run" / "store", "catalog")
    taken = Taken(((names[1],),), target=ImpactTarget.DOWN)
    assert str(ask(store, taken=taken, most_unavailable=100).verdict) == "SAFE"
    answer = ask(store, taken=taken, most_unavailable=100, evidence=(tmp_path / "run",))
    assert str(answer.verdict) == "UNSAFE"
    assert answer.sets[0].impacts["READ_AVAILABILITY_LOSS"].ledgers == len(ledgers)
    assert answer.evidence is not None
    assert answer.evidence.runs[0].wiped == (names[0],)
    explained = explain_ledger(store, tmp_path / "run", 7)
    assert any(line.startswith(f"{names[0]} lacks entries 0 to 5") for line in explained.seen), explained.seen
    # A record that changed since, and one that was wiped before it was written, are believed.
    write_run(tmp_path / "older", damaged, names[1:], make_wiped(names[0], CREATED))
    later = ask(store, taken=taken, most_unavailable=100, evidence=(tmp_path / "older",))
    assert str(later.verdict) == "SAFE"


def test_an_inventory_that_is_younger_is_believed_before_a_scrutiny(tmp_path: Path) -> None:
    """What `collect` read of the bookie after it was wiped: it has all. One without a date shows nothing of today."""
    whole = damage_ledgers(Random("younger"), 20)
    damaged = Damaged(
        whole.bookies, whole.ledgers, {key: whole.list_due(whole.ledgers[key[0]], key[1]) for key in whole.held}
    )
    write_run(tmp_path / "run", damaged, damaged.bookies[1:], make_wiped(damaged.bookies[0], CREATED + 1))
    store = open_dataset(tmp_path / "run" / "store", "catalog")
    records = store.read("ledgers", columns=list(RECORD_COLUMNS))
    runs = (ScrutinyRun.open(tmp_path / "run"),)
    assert CopyEvidence.gather((), runs, store).see(records).faults.missing.num_rows > 0
    for as_of, is_believed in ((None, False), (CREATED, False), (TXN, True)):
        collected = write_lists(tmp_path / f"collected-{as_of}", damaged, damaged.bookies[0], mode="disks", as_of=as_of)
        missing = CopyEvidence.gather((collected,), runs, store).see(records).faults.missing
        assert (missing.num_rows == 0) == is_believed, as_of
