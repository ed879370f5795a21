"""The judge is tested before it is believed: truth is worth everything, nothing is worth nothing, faults are found."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support import acid
from tests.support.cases import case_dir, truth
from tests.support.cluster import of_case

pytestmark = pytest.mark.real


def hold_of(row: Mapping[str, Any]) -> bytes:
    """Write a hold on the bookies of a ledger's first segment, as metadata format 2."""
    members = row["segments"][0][1]
    named = "".join(f'  ensembleMember: "{member}"\n' for member in members)
    return (
        f"BookieMetadataFormatVersion\t2\nquorumSize: {len(members)}\nensembleSize: {len(members)}\nlength: 0\n"
        f"state: IN_RECOVERY\nsegment {{\n{named}  firstEntryId: 0\n}}\n"
        f'digestType: HMAC\npassword: "nobody knows"\nackQuorumSize: 1\n'
    ).encode()


@pytest.mark.parametrize("case", ["c01", "c02", "c03", "c04"])
def test_the_truth_put_back_is_worth_everything(case: str, tmp_path: Path) -> None:
    """With the true records back, every entry of every ledger is read, and every field is equal."""
    facts = truth(case)
    with of_case(case_dir(case), tmp_path / "home") as cluster:
        cluster.start_zookeeper("zookeeper", facts["root"])
        cluster("zk_wipe", paths=[facts["root"]])
        acid.restore_truth(cluster, facts)
        judgement = acid.judge(cluster, facts)
    ledgers, entries = judgement.ledgers, judgement.entries
    assert judgement.problems == []
    assert ledgers.readable == ledgers.present == ledgers.expected == len(facts["ledgers"])
    assert entries.read == entries.expected == sum(len(row["entries"]) for row in facts["ledgers"])
    assert (entries.corrupt, entries.missing, entries.beyond_end, ledgers.held) == (0, 0, 0, 0)
    assert not any(judgement.unequal(name) for name in judgement.fields)
    assert judgement.layout
    assert judgement.instance_id
    assert all(judgement.cookies.values())
    assert judgement.bookies_failed == {}
    assert judgement.new_ledger == facts["largest_id_ever"] + 1


def test_nothing_put_back_is_worth_nothing(tmp_path: Path) -> None:
    """With an empty store no ledger is present, and every acknowledged entry counts as lost."""
    facts = truth("c02")
    with of_case(case_dir("c02"), tmp_path / "home") as cluster:
        cluster.start_zookeeper("zookeeper", facts["root"])
        cluster("zk_wipe", paths=[facts["root"]])
        judgement = acid.judge(cluster, facts)
    assert (judgement.ledgers.present, judgement.ledgers.readable, judgement.entries.read) == (0, 0, 0)
    assert judgement.entries.acknowledged_lost == judgement.entries.missing == judgement.entries.expected > 0
    assert not judgement.layout
    assert not judgement.instance_id
    assert not any(judgement.cookies.values())
    assert judgement.new_ledger is None


def test_every_fault_is_found(tmp_path: Path) -> None:
    """A removed record, a wrong bookie, an invented ledger and a resurrected one are each named, nothing else is."""
    facts = truth("c07")
    with of_case(case_dir("c07"), tmp_path / "home") as cluster:
        cluster.start_zookeeper("zookeeper", facts["root"])
        cluster("zk_wipe", paths=[facts["root"]])
        acid.restore_truth(cluster, facts)
        faults = acid.sabotage(cluster, facts)
        judgement = acid.judge(cluster, facts)
    assert judgement.ledgers.present == judgement.ledgers.expected - 1
    assert [line.split(":")[0] for line in judgement.problems if line.endswith("absent")] == [str(faults.removed)]
    assert judgement.unequal("segments_equivalent") == {faults.misplaced}
    assert judgement.invented == [faults.invented]
    assert judgement.resurrected == [faults.resurrected]


def test_a_hold_counts_by_what_it_keeps(tmp_path: Path) -> None:
    """A hold on true holders is intact; it is neither read nor lost."""
    facts = truth("c01")
    row = max(facts["ledgers"], key=lambda ledger: len(ledger["entries"]))
    with of_case(case_dir("c01"), tmp_path / "home") as cluster:
        cluster.start_zookeeper("zookeeper", facts["root"])
        cluster("zk_put", nodes=[{"path": row["path"], "data": base64.b64encode(hold_of(row)).decode()}])
        judgement = acid.judge(cluster, facts)
    assert judgement.held == {row["ledger"]}
    assert (judgement.ledgers.held, judgement.ledgers.held_intact) == (1, 1)
    assert judgement.entries.held == len(row["entries"])
    assert judgement.entries.read == judgement.entries.expected - judgement.entries.held
    assert judgement.entries.acknowledged_lost == 0
