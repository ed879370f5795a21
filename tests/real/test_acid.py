"""Real disks, metadata lost, the program as its user runs it, and the real Java client as the judge."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest

from reconcile.check.records.drill import Class, DrillReason
from reconcile.jobs.records.drill import hold_against
from recovery.dataset import open_dataset
from tests.support import acid
from tests.support.acid import Loss
from tests.support.cases import NAMES, case_dir, operator, truth
from tests.support.cluster import of_case

pytestmark = pytest.mark.real

SOAK: Final = int(os.environ.get("BKMETA_SOAK_ACID", "0"))
"""So many draws of the ledgers that `some` loses, of every case with every snapshot; 0: the runs below."""
NONE: Final = "none"
EARLIER: Final = {NONE: None, "old": "zookeeper-old", "full": "zookeeper"}
"""What was kept of ZooKeeper's folder: nothing; an older copy; what it was in the end, with its logs."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run: what is lost of a case, what was kept, and the seed of a draw."""

    case: str
    loss: Loss = Loss.ALL
    earlier: str = NONE
    seed: int = 1

    def __str__(self) -> str:
        return f"{self.case}-{self.loss}-{self.earlier}-{self.seed}"


@dataclass(frozen=True, slots=True)
class Figures:
    """What is known of a case: ledgers with entries, their entries; the rest where nothing but bookies is left.

    Attributes:
        ledgers: with an entry.
        entries: that its disks can give.
        held: ledgers that nothing but a snapshot decides.
        held_entries: of these.
        beyond: entries past a closed ledger's end that come back: adds that a close dropped, and all bookies had.
        deleted: ledgers that somebody deleted, and that bookies have so much of that they are held.
        whole: deleted ledgers of which bookies have everything, so that nothing on them tells.
        unlike: ledgers that come back with another shape, though every position of it got an entry. In a cluster as
            young as these nothing shows that no bookie was wiped, so a larger shape of the cluster is as likely; the
            true one is among the alternatives, and every entry is read.
    """

    ledgers: int
    entries: int
    held: int = 0
    held_entries: int = 0
    beyond: int = 0
    deleted: int = 0
    whole: int = 0
    unlike: int = 0


COMPARED: Final = {
    "ensemble_size": "E",
    "write_quorum": "W",
    "ack_quorum": "A",
    "state": "state",
    "last_entry": "last",
    "length": "length",
    "custom": "custom",
    "segments": "segments_exact",
}
"""Fields that a drill compares, and the judge's names for them."""
FIGURES: Final = {
    "c01": Figures(27, 1174),
    "c02": Figures(27, 1175),
    "c03": Figures(27, 1175),
    "c04": Figures(18, 824, unlike=1),
    "c05": Figures(24, 471, beyond=9, unlike=3),
    "c06": Figures(26, 523, unlike=1),
    "c07": Figures(19, 475, deleted=8, whole=1),
    "c08": Figures(15, 231),
    "c08b": Figures(13, 124, unlike=3),
    "c09": Figures(16, 1496, deleted=5, whole=1),
}
RUNS: Final = (
    *(Run(case) for case in FIGURES),
    Run("c07", Loss.LEDGERS, "full"),
    Run("c05", Loss.SOME, "old"),
    Run("c09", Loss.SOME, "full"),
)
EVERY: Final = tuple(
    Run(case, loss, earlier, seed)
    for case, loss, earlier, seed in product(FIGURES, Loss, EARLIER, range(1, SOAK + 1))
    if loss is Loss.SOME or seed == 1
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is true, what was lost, what the program said, and what came back."""

    run: Run
    truth: dict[str, Any]
    lost: set[int]
    recovered: acid.Recovered
    judgement: acid.Judgement
    work: Path

    @property
    def only_bookies(self) -> bool:
        """Nothing is left but what bookies have."""
        return self.run.earlier == NONE and self.run.loss is not Loss.SOME


def _params() -> list[Any]:
    """Return every run, each a group that one process of several takes."""
    return [pytest.param(run, id=str(run), marks=pytest.mark.xdist_group(str(run))) for run in EVERY or RUNS]


@pytest.fixture(scope="module", params=_params())
def outcome(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    """One case brought back."""
    run: Run = request.param
    work: Path = tmp_path_factory.mktemp(run.case)
    facts, folder = truth(run.case), case_dir(run.case)
    kept = EARLIER[run.earlier]
    with of_case(folder, work / "home") as cluster:
        cluster.start_zookeeper("zookeeper", facts["root"])
        lost = acid.lose(cluster, facts, run.loss, run.seed)
        passwords = [text.encode() for text in operator(run.case)["passwords"]]
        snapshot = folder / kept if kept else None
        # Spark carries the tasks of one run: that it carries them is tested elsewhere, too.
        first = run == RUNS[0]
        recovered = acid.recover(cluster, facts, passwords, work / "operator", snapshot, with_spark=first)
        yield Outcome(run, facts, lost, recovered, acid.judge(cluster, facts, lost, collecting=True), work / "operator")


def test_every_case_is_tried() -> None:
    """The table of figures has all cases that there are."""
    assert {name.split("-")[0] for name in NAMES} == set(FIGURES)


def test_every_ledger_is_right_or_held_intact(outcome: Outcome) -> None:
    """No ledger with an entry is lost: it is readable, or a hold keeps every entry of it."""
    judgement, figures = outcome.judgement, FIGURES[outcome.run.case]
    ledgers, entries = judgement.ledgers, judgement.entries
    assert entries.expected == figures.entries
    assert ledgers.expected - ledgers.empty_expected == figures.ledgers
    assert judgement.back - ledgers.empty_present == figures.ledgers
    assert (ledgers.unparseable, ledgers.open_errors) == (0, 0)
    assert entries.read + entries.held == entries.expected
    assert (entries.corrupt, entries.missing, entries.acknowledged_lost) == (0, 0, 0)


def test_only_what_nothing_tells_is_held_or_too_long(outcome: Outcome) -> None:
    """Ledgers held and entries past the end are as few as known of the case; of those that a store closed, none."""
    figures, entries = FIGURES[outcome.run.case], outcome.judgement.entries
    if outcome.only_bookies:
        assert (outcome.judgement.ledgers.held, entries.held) == (figures.held, figures.held_entries)
        assert entries.beyond_end == figures.beyond
    assert outcome.judgement.ledgers.held <= figures.held
    assert entries.beyond_end <= figures.beyond
    if outcome.run.earlier == "full":
        states = {row["ledger"]: row["state"] for row in outcome.truth["ledgers"]}
        assert not [ledger for ledger in outcome.judgement.held if states[ledger] == "CLOSED"]
        assert entries.beyond_end == 0


def test_what_was_deleted_stays_deleted_where_something_tells(outcome: Outcome) -> None:
    """With the logs of the store that was lost none comes back; without, those that bookies have the whole of do."""
    figures, judgement = FIGURES[outcome.run.case], outcome.judgement
    assert judgement.invented == []
    if outcome.run.earlier == "full":
        assert (judgement.resurrected, judgement.held_deleted) == ([], [])
    if outcome.run.earlier == NONE:
        assert len(judgement.resurrected) == figures.whole
        assert len(judgement.held_deleted) == figures.deleted


def test_bookies_delete_nothing_afterwards(outcome: Outcome) -> None:
    """Two passes of garbage collection, over-replicated copies included: no byte goes that a record has a use for.

    What goes are copies of bookies that the record does not name, of ledgers whose every entry is read all the same.
    """
    named = {row["ledger"]: row["holders"] for row in outcome.recovered.plan.values()}
    assert outcome.judgement.collected == {} or outcome.run.case == "c06"
    for bookie, ledger in outcome.judgement.collected:
        true = next(row for row in outcome.truth["ledgers"] if row["ledger"] == ledger)
        assert bookie not in {member for _, members in true["segments"] for member in members}
        assert bookie in named[ledger]


def test_every_hold_has_its_reason(outcome: Outcome) -> None:
    """The plan lists exactly the ledgers that are held, each with why."""
    said = {ledger: row["reason"] for ledger, row in outcome.recovered.plan.items() if row["outcome"] == "held"}
    judgement = outcome.judgement
    assert {*said} & outcome.lost == judgement.held
    assert {*judgement.held_deleted} <= {*said}
    assert all(said.values())


def test_records_that_were_not_lost_are_as_they_were(outcome: Outcome) -> None:
    """Byte for byte."""
    assert outcome.judgement.changed == set()


def test_the_drill_says_what_comes_back(outcome: Outcome, tmp_path: Path) -> None:
    """The plan held against the store of the good day: ledgers, entries and fields are as Java finds them."""
    if not outcome.only_bookies or outcome.run.loss is not Loss.ALL:
        return
    truth_of = f"zkfiles://{case_dir(outcome.run.case) / 'zookeeper'}?root={outcome.truth['root']}"
    acid.run("capture", "--metadata", truth_of, "--out", tmp_path / "store")
    inventories = [open_dataset(path, "inventory") for path in sorted(outcome.work.glob("inventory-*"))]
    plan, store = open_dataset(outcome.work / "plan", "plan"), open_dataset(tmp_path / "store", "catalog")
    said = [judged for _, judged in hold_against(plan, store, inventories, {})]
    rows = {row["ledger"]: row for judged in said for row in judged.rows.to_pylist()}
    judgement = outcome.judgement
    assert rows.keys() == {row["ledger"] for row in outcome.truth["ledgers"]}
    lost = {ledger: row["reason"] for ledger, row in rows.items() if row["class"] == "lost"}
    assert lost.keys() == rows.keys() - judgement.fields["E"].keys() - judgement.held
    assert set(lost.values()) <= {DrillReason.EMPTY}
    assert {ledger for ledger, row in rows.items() if row["class"] == "held"} == judgement.held
    entries = {name: sum(judged.entries[name] for judged in said) for name in Class}
    assert entries[Class.EXACT] + entries[Class.READABLE] == judgement.entries.read
    assert (entries[Class.HELD], entries[Class.LOST], entries[Class.UNDECIDED]) == (judgement.entries.held, 0, 0)
    for column, field in COMPARED.items():
        differs = {ledger for ledger in judgement.fields[field] if column in rows[ledger]["differs"]}
        assert differs == judgement.unequal(field), column
    exact = {ledger for ledger, row in rows.items() if row["class"] == "exact"}
    assert not [field for field in judgement.fields if exact & judgement.unequal(field)]
    returned = sum((Counter(judged.returned) for judged in said), Counter())
    assert returned["held"] == len(judgement.held_deleted)
    assert returned["restored"] + returned["guarded"] == len(judgement.resurrected)


@pytest.mark.parametrize("field", ["state", "last", "length", "digest", "password", "segments_readable"])
def test_what_disks_and_passwords_show_is_equal_to_the_truth(outcome: Outcome, field: str) -> None:
    """The fields that a clean cluster's disks decide are those of the lost records, for every ledger."""
    if outcome.run.case in ("c01", "c02", "c03", "c04", "c06", "c07", "c09"):
        assert outcome.judgement.unequal(field) == set()


@pytest.mark.parametrize("field", ["E", "W", "segments_equivalent"])
def test_shapes_are_equal_to_the_truth_unless_nothing_shows_them(outcome: Outcome, field: str) -> None:
    """Quorums and write sets differ from the lost records where a position of the ensemble got no entry, or W is E."""
    hidden = {row["ledger"] for row in outcome.truth["ledgers"] if acid.hidden(row)}
    unlike = outcome.judgement.unequal(field) - hidden
    assert len(unlike) <= FIGURES[outcome.run.case].unlike
    assert all(row["E"] == row["W"] for row in outcome.truth["ledgers"] if row["ledger"] in unlike)


def test_what_is_called_observed_or_verified_is_true(outcome: Outcome) -> None:
    """A grade is a promise: a field that differs from the truth is never graded as seen."""
    assert outcome.judgement.overstated(outcome.recovered.plan) == {}


def test_the_cluster_is_itself_again(outcome: Outcome) -> None:
    """Layout, instance id and every cookie are the lost ones, so that every bookie starts."""
    assert outcome.judgement.layout
    assert outcome.judgement.instance_id
    assert set(outcome.judgement.cookies.values()) == {True}
    assert outcome.judgement.bookies_failed == {}


def test_a_new_ledger_gets_an_id_that_was_never_used(outcome: Outcome) -> None:
    """Also none of a ledger that somebody deleted, as far as anything has it."""
    used = {row["ledger"] for row in outcome.truth["ledgers"]}
    assert outcome.judgement.new_ledger not in used | {*outcome.recovered.plan}


def test_no_disk_is_touched(outcome: Outcome) -> None:
    """Collecting leaves every file on the bookies' disks as it was, and adds none."""
    assert outcome.recovered.untouched
