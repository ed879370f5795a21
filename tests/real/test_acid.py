"""Real disks, nothing left in ZooKeeper, the program as its user runs it, and the real Java client as the judge."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.golden.cases import case_dir, operator, truth
from tests.real import acid
from tests.real.cluster import of_case

pytestmark = pytest.mark.real


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is true, what the program said, and what came back."""

    truth: dict[str, Any]
    recovered: acid.Recovered
    judgement: acid.Judgement


@pytest.fixture(scope="module")
def outcome(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    """One case brought back; the whole root of the ledgers was lost."""
    case: str = request.param
    work: Path = tmp_path_factory.mktemp(case)
    facts = truth(case)
    with of_case(case_dir(case), work / "home") as cluster:
        cluster.start_zookeeper("zookeeper", facts["root"])
        cluster("zk_wipe", paths=[facts["root"]])
        passwords = [text.encode() for text in operator(case)["passwords"]]
        recovered = acid.recover(cluster, facts, passwords, work / "operator")
        yield Outcome(facts, recovered, acid.judge(cluster, facts))


CLEAN = pytest.mark.parametrize("outcome", ["c01", "c02", "c03"], indirect=True)
ALL = pytest.mark.parametrize("outcome", ["c01", "c02", "c03", "c04"], indirect=True)


@CLEAN
def test_every_ledger_of_a_clean_cluster_is_readable(outcome: Outcome) -> None:
    """All ledgers that have an entry open, and every entry is right; none is held."""
    ledgers, entries = outcome.judgement.ledgers, outcome.judgement.entries
    assert outcome.judgement.problems == []
    assert ledgers.readable == ledgers.expected - ledgers.empty_expected
    assert (ledgers.held, ledgers.unparseable, ledgers.open_errors) == (0, 0, 0)
    assert entries.read == entries.expected


@CLEAN
@pytest.mark.parametrize("field", ["state", "last", "length", "digest", "password", "segments_readable"])
def test_what_disks_and_passwords_show_is_equal_to_the_truth(outcome: Outcome, field: str) -> None:
    """The fields that a clean cluster's disks decide are those of the lost records, for every ledger."""
    compared = outcome.judgement.fields[field]
    assert len(compared) == outcome.judgement.ledgers.present
    assert outcome.judgement.unequal(field) == set()


@CLEAN
@pytest.mark.parametrize("field", ["E", "W", "segments_equivalent"])
def test_shapes_are_equal_to_the_truth_unless_nothing_shows_them(outcome: Outcome, field: str) -> None:
    """Quorums and write sets differ from the lost records only where a position of the ensemble got no entry."""
    hidden = {row["ledger"] for row in outcome.truth["ledgers"] if acid.hidden(row)}
    assert outcome.judgement.unequal(field) <= hidden


@ALL
def test_every_ledger_is_right_or_held_intact(outcome: Outcome) -> None:
    """No ledger with an entry is lost: it is readable, or a hold keeps every entry of it."""
    judgement = outcome.judgement
    assert judgement.problems == []
    assert judgement.back == judgement.ledgers.expected - judgement.ledgers.empty_expected
    assert judgement.entries.read + judgement.entries.held == judgement.entries.expected
    lost = (judgement.entries.corrupt, judgement.entries.missing, judgement.entries.acknowledged_lost)
    assert (*lost, judgement.entries.beyond_end) == (0, 0, 0, 0)


@ALL
def test_every_hold_has_its_reason(outcome: Outcome) -> None:
    """The plan lists exactly the ledgers that are held, each with why."""
    said = {ledger: row["reason"] for ledger, row in outcome.recovered.plan.items() if row["outcome"] == "held"}
    assert set(said) == outcome.judgement.held
    assert all(said.values())


@ALL
def test_what_is_called_observed_or_verified_is_true(outcome: Outcome) -> None:
    """A grade is a promise: a field that differs from the truth is never graded as seen."""
    assert outcome.judgement.overstated(outcome.recovered.plan) == {}


@ALL
def test_the_cluster_is_itself_again(outcome: Outcome) -> None:
    """Layout, instance id and every cookie are the lost ones, so that every bookie starts."""
    assert outcome.judgement.layout
    assert outcome.judgement.instance_id
    assert set(outcome.judgement.cookies.values()) == {True}
    assert outcome.judgement.bookies_failed == {}


@ALL
def test_nothing_comes_back_that_was_not_there(outcome: Outcome) -> None:
    """No ledger is invented or resurrected, and a new one gets an id that was never used."""
    assert (outcome.judgement.invented, outcome.judgement.resurrected) == ([], [])
    assert outcome.judgement.new_ledger is not None
    assert outcome.judgement.new_ledger > max(outcome.recovered.plan)


@ALL
def test_no_disk_is_touched(outcome: Outcome) -> None:
    """Collecting leaves every file on the bookies' disks as it was, and adds none."""
    assert outcome.recovered.untouched
