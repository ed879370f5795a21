"""Ledgers that topics made after the snapshot: whose each is, by ZooKeeper's files that Pulsar wrote to.

The files have every transaction: a topic begins a third ledger, then a subscription its own, then other topics come.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from reconcile.plan.views.candidates import list_candidates
from reconcile.pulsar.adoption import select_adoptable
from reconcile.report.pages import plan_page
from recovery.codecs.managed_ledger import Listed, ManagedLedger, decode
from recovery.dataset import Dataset, open_dataset
from recovery.model.ids import LedgerId
from tests.reconcile.jobs.make_plan.test_subtree_writes import make_plan, request_of
from tests.support.cases import pulsar_dir
from tests.support.command import run
from tests.support.plan_folder import Ledger

AT = datetime(2030, 1, 1, tzinfo=UTC)
TOPICS = "public/default/persistent/"
CLOSED_SECOND, BEGUN_THIRD, LATER = "0x69", "0x6b", "0x70"
"""Transactions: a topic's second ledger is closed; the third is there, and no node names it; a cursor has one."""
MEMBERS = ((0, ("b1", "b2", "b3")),)
LEDGERS = (
    *(Ledger(n, MEMBERS, last=4, length=35) for n in (*range(5), 6, 7, 10, 11)),
    Ledger(12, MEMBERS, last=1, length=14),
    Ledger(13, MEMBERS, state="OPEN", last=None, length=None),
    Ledger(14, MEMBERS, reason="LAST_ENTRY_UNKNOWN"),
    Ledger(15, MEMBERS, owner="somebody else"),
)


class Desk:
    """A folder that captures and plans are made in."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.capsys = capsys

    def take(self, moment: str | None, *options: str) -> Dataset:
        """Capture ZooKeeper's files as they were."""
        out = self.folder / f"then-{moment}-{len(options)}"
        at = () if moment is None else ("--at", moment)
        uri = f"zkfiles://{pulsar_dir()}/zookeeper?root=/ledgers"
        done = run(self.capsys, "capture", "--metadata", uri, *at, *options, "--out", out)
        assert done.code == 0, done.out + done.err
        return open_dataset(out, "catalog")

    def plan(self, snapshots: Sequence[Dataset], ledgers: Sequence[Ledger] = LEDGERS) -> Dataset:
        """Make a plan of all that Pulsar has, of the first snapshot; and of ledgers."""
        request = request_of(snapshots[0], None, pulsar=True, others=tuple(snapshots[1:]))
        return make_plan(self.folder / "plan", request, ledgers, made=AT)


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    """An empty one."""
    return Desk(tmp_path, capsys)


def told(plan: Dataset) -> dict[int, set[tuple[str | None, str, str]]]:
    """Return topic, use and evidence of each ledger."""
    rows: dict[int, set[tuple[str | None, str, str]]] = {}
    for line in list_candidates(plan, 99):
        topic = None if line.topic is None else line.topic.removeprefix(TOPICS)
        rows.setdefault(line.ledger.ledger, set()).add((topic, line.use, line.evidence))
    return rows


def test_a_record_names_the_topic_and_order_says_the_rest(desk: Desk) -> None:
    """A newer capture of ledgers alone has records that name topics; else every topic that still grows may be meant.

    What something else uses, what topics name and what was there before is none.
    """
    plan = desk.plan([desk.take(CLOSED_SECOND, "--pulsar"), desk.take(LATER)])
    assert told(plan) == {
        12: {("kept-lz4", "topic", "record")},
        13: {("kept-lz4", "cursor subscription", "record")},
        14: {(name, "topic", "order") for name in ("kept-none", "trimmed", "kept-lz4")},
    }
    assert plan.manifest["candidates"] == {"ledgers": 3, "record": 2, "order": 1}


def test_a_ledger_that_a_topic_was_about_to_name_is_a_candidate(desk: Desk) -> None:
    """The snapshot has its record, and not its topic's: the broker wrote on after it."""
    plan = desk.plan([desk.take(BEGUN_THIRD, "--pulsar")])
    assert told(plan)[12] == {("kept-lz4", "topic", "record")}


def test_history_names_the_topic_of_a_ledger_that_has_no_record_any_more(desk: Desk) -> None:
    """Its creation is remembered; a ledger of nobody's stays nobody's."""
    ledgers = [Ledger(9, MEMBERS, last=4, length=35), Ledger(0, MEMBERS, last=4, length=35)]
    plan = desk.plan([desk.take("0x57", "--pulsar"), desk.take(None)], ledgers)
    assert told(plan) == {9: {("deleted", "topic", "record")}}
    [line] = list_candidates(plan, 1)
    assert line.detail == "custom metadata of its history, transaction 0x59"


def test_what_was_deleted_before_the_snapshot_is_none(desk: Desk) -> None:
    """By its history, and by its id where it has no history: what was trimmed, and what went with its topic."""
    ledgers = [Ledger(number, MEMBERS, last=4, length=35) for number in (5, 9, 10)]
    then = desk.take("0x6f", "--pulsar")
    assert told(desk.plan([then, desk.take(None)], ledgers)) == {}
    shutil.rmtree(desk.folder / "plan")
    assert told(desk.plan([then], ledgers)) == {}


def test_of_no_topic_that_may_grow_nothing_is_known(desk: Desk) -> None:
    """Ids below every topic's last ledger are of none of them."""
    plan = desk.plan([desk.take("0x38", "--pulsar")], [Ledger(1 << 40, MEMBERS), *LEDGERS[:3]])
    assert told(plan) == {1 << 40: {("kept-none", "topic", "order")}}


def test_those_whose_record_names_a_topic_are_adopted_together(desk: Desk) -> None:
    """The others are listed with the reason; the plan, the page and the result have every candidate."""
    plan = desk.plan([desk.take(CLOSED_SECOND, "--pulsar"), desk.take(LATER)])
    done = run(desk.capsys, "plan", "show", plan.path, "--json")
    listed = done.result["candidates"]
    assert (listed["ledgers"], len(listed["listed"])) == (3, 5)
    assert f"12 {TOPICS}kept-lz4: record: custom metadata" in run(desk.capsys, "plan", "show", plan.path).out
    page = plan_page(plan, [], verdict="", made=AT)
    assert "Made after the snapshot" in page
    assert "cursor subscription" in page
    edited = desk.folder / "edited"
    done = run(desk.capsys, "plan", "edit", plan.path, "--adopt-candidates", "--out", edited, "--json")
    assert (done.code, done.result["edits"]) == (0, [f"ledger 12 appended to {TOPICS}kept-lz4"])
    assert done.result["not_adopted"] == {}
    actions = open_dataset(edited, "plan").read("actions").to_pylist()
    [record] = [row["value"] for row in actions if row["key"].endswith("kept-lz4")]
    assert decode(record) == ManagedLedger((Listed(10, 4, 35), Listed(11, 4, 35), Listed(12, 1, 14)))
    # What a topic has now is no candidate any more.
    done = run(desk.capsys, "plan", "show", edited, "--json")
    assert done.result["candidates"]["ledgers"] == 2
    assert {row["ledger"] for row in done.result["candidates"]["listed"]} == {"13", "14"}


def test_behind_one_that_cannot_be_adopted_none_is(desk: Desk) -> None:
    """Its place would be taken: a topic's ledgers are in the order of their ids."""
    ledgers = [Ledger(10, MEMBERS), Ledger(11, MEMBERS, last=4, length=35)]
    ledgers += [Ledger(14, MEMBERS), Ledger(15, MEMBERS, reason="LAST_ENTRY_UNKNOWN"), Ledger(16, MEMBERS)]
    plan = desk.plan([desk.take("0x72", "--pulsar"), desk.take("0x80")], ledgers)
    done = run(desk.capsys, "plan", "edit", plan.path, "--adopt-candidates", "--out", desk.folder / "edited", "--json")
    assert done.result["edits"] == [f"ledger 14 appended to {TOPICS}kept-zlib"]
    assert {ledger: "is held" in reason for ledger, reason in done.result["not_adopted"].items()} == {
        "15": True,
        "16": True,
    }


@dataclass(frozen=True, slots=True)
class Accepted(Ledger):
    """One whose loss was accepted in an edit before."""

    def row(self) -> dict[str, Any]:
        """Return its row."""
        return {**Ledger.row(self), "outcome": "accepted_loss"}


def test_what_stays_deleted_stands_in_nobody_s_way(desk: Desk) -> None:
    """A topic lets go of its first ledgers: a person accepts that before, or in the same edit."""
    snapshots = [desk.take("0x72", "--pulsar"), desk.take("0x80")]
    ledgers = [Ledger(10, MEMBERS), Ledger(11, MEMBERS, last=4, length=35), Ledger(15, MEMBERS, last=4, length=35)]
    plan = desk.plan(snapshots, [*ledgers, Ledger(14, MEMBERS, reason="MASS_DELETION")])
    assert {ledger.ledger for ledger in select_adoptable(plan, ()).left} == {14, 15}
    assert select_adoptable(plan, {LedgerId(0, 14)}).topics == {LedgerId(0, 15): f"{TOPICS}kept-zlib"}
    shutil.rmtree(desk.folder / "plan")
    adoptable = select_adoptable(desk.plan(snapshots, [*ledgers, Accepted(14, MEMBERS)]), ())
    assert (list(adoptable.topics), adoptable.left) == ([LedgerId(0, 15)], {})


def test_without_any_candidate_there_is_nothing_to_adopt(desk: Desk) -> None:
    """An edit that would change nothing is refused, and says where candidates are seen."""
    plan = desk.plan([desk.take(CLOSED_SECOND, "--pulsar")], LEDGERS[:3])
    assert "candidates" not in plan.manifest
    done = run(desk.capsys, "plan", "edit", plan.path, "--adopt-candidates", "--out", desk.folder / "edited")
    assert done.code == 2
    assert "has no ledger that came after the snapshot" in done.err
