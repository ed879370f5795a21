"""Ledgers appended to topics of a plan: only with their ends, only behind the topic's last one."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from backends.memory import MemoryStore
from backends.protocols import Write
from reconcile.errors import PlanError
from reconcile.jobs.plans.adoption import append_adopted, name_topic
from reconcile.plan.edits import Edits, edit_plan
from reconcile.plan.plan_reader import demand_whole
from recovery.codecs.managed_ledger import Listed, ManagedLedger, append_ledgers, decode
from recovery.dataset import Dataset, open_dataset
from recovery.model.ids import LedgerId
from tests.reconcile.jobs.make_plan.test_subtree_writes import make_plan, request_of, take
from tests.support.plan_folder import Ledger

AT = datetime(2030, 1, 1, tzinfo=UTC)
TOP = "/managed-ledgers/public/default/persistent"
MEMBERS = ((0, ("b1", "b2", "b3")),)
LEDGERS = (
    Ledger(7, MEMBERS, last=4, length=400),
    Ledger(8, MEMBERS, last=9, length=900),
    Ledger(9, MEMBERS, reason="LAST_ENTRY_UNKNOWN"),
    Ledger(10, MEMBERS, state="OPEN", last=None, length=None),
    Ledger(11, MEMBERS, last=1, length=20),
    Ledger(12, MEMBERS, last=1, length=20, owner="schema of x"),
)
TOPIC = append_ledgers(b"", [Listed(3, 2, 30)], 5) + b"\x0a\x02\x08\x07"
"""A topic with a closed ledger, and one that it wrote to."""


@pytest.fixture
def plan(tmp_path: Path) -> Dataset:
    """A plan of two topics and a subscription, and of ledgers of which one is held and one is open."""
    store = MemoryStore()
    nodes = {"events": TOPIC, "new": b"", "events/late": b"\x08\x01", "held": b"\x0a\x02\x08\x09"}
    for name, raw in nodes.items():
        store.write([Write(f"{TOP}/{name}", raw)])
    snapshot = take(store, tmp_path / "snapshot", pulsar=True)
    return make_plan(tmp_path / "plan", request_of(snapshot, None, pulsar=True), LEDGERS, made=AT)


def ids(*numbers: int, topic: str = "persistent://public/default/events") -> dict[LedgerId, str]:
    """Adopt ledgers by one topic."""
    return {LedgerId(0, number): topic for number in numbers}


def test_a_topic_gets_what_it_adopts_and_the_end_of_its_last_ledger(plan: Dataset, tmp_path: Path) -> None:
    """In the order of ids, in a plan with a hash of its own that differs in the records alone; an empty topic, too."""
    adopted = ids(11, 8) | ids(7, topic="public/default/persistent/new")
    records = append_adopted(plan, adopted)
    assert decode(records[f"{TOP}/events"]) == ManagedLedger(
        (Listed(3, 2, 30), Listed(7, 4, 400), Listed(8, 9, 900), Listed(11, 1, 20))
    )
    assert decode(records[f"{TOP}/new"]) == ManagedLedger((Listed(7, 4, 400),))
    made = edit_plan(plan, Edits(adopt=adopted, records=records), tmp_path / "edited")
    edited = open_dataset(tmp_path / "edited", "plan")
    demand_whole(edited)
    assert made.hash != plan.manifest["hash"]
    assert any("appended to persistent://public/default/events" in edit for edit in made.binding.edits)
    before, after = ({row["key"]: row["value"] for row in p.read("actions").to_pylist()} for p in (plan, edited))
    assert {key: value for key, value in after.items() if before[key] != value} == {
        f"/{path}": record for path, record in records.items()
    }


@pytest.mark.parametrize(
    ("adopted", "words"),
    [
        (ids(9), "is held"),
        (ids(10), "is OPEN"),
        (ids(99), "neither on the bookies nor in the store"),
        (ids(7), "one of the topic's already"),
        (ids(12), "is named by schema of x"),
        (ids(8, topic="public/default/persistent/absent"), "not written by the plan"),
        (ids(8, topic="public/default/persistent/events/late"), "is a subscription"),
        (ids(11, topic="public/default/persistent/held"), "is held"),
    ],
)
def test_what_cannot_be_appended_is_refused(plan: Dataset, adopted: dict[LedgerId, str], words: str) -> None:
    """A ledger without an end, one that is not behind the last, a topic that is not written: each by its name."""
    with pytest.raises(PlanError, match=words):
        append_adopted(plan, adopted)


def test_topics_are_named_as_clients_and_as_nodes_name_them() -> None:
    """As Java's URLEncoder has it."""
    assert name_topic("persistent://a/b/c d~é") == "a/b/persistent/c+d%7E%C3%A9"
    assert name_topic("/a/b/persistent/c") == "a/b/persistent/c"
