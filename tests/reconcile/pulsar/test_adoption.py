"""Ledgers appended to topics of a plan: only with their ends, only behind the topic's last one."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from backends.protocols import Write
from reconcile.errors import PlanError
from reconcile.plan.edits import Edits, edit_plan
from reconcile.plan.manifest import read_plan_manifest
from reconcile.plan.plan_reader import require_whole
from reconcile.pulsar.adoption import append_adopted, name_topic
from reconcile.write import undo
from recovery.codecs.managed_ledger import Cursor, Listed, ManagedLedger, append_ledgers, decode
from recovery.dataset import Dataset, open_dataset
from recovery.model.ids import LedgerId
from tests.reconcile.jobs.make_plan.test_subtree_writes import make_plan, request_of, take, write
from tests.support.memory_store import MemoryStore
from tests.support.plan_folder import Ledger

pytestmark = pytest.mark.long

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
RIGHTS = "digest:broker:abc:cdrwa"
ADMIN = {
    "/admin/policies/public/default": b"{}",
    "/admin/partitioned-topics/public/default/persistent/parted": b'{"partitions":3}',
}


@pytest.fixture
def snapshot() -> MemoryStore:
    """What there was: topics and a subscription, a namespace, a topic with partitions."""
    store = MemoryStore()
    nodes = {"events": TOPIC, "new": b"", "events/late": b"\x08\x01", "held": b"\x0a\x02\x08\x09"}
    for name, raw in nodes.items():
        store.write([Write(f"{TOP}/{name}", raw, None, RIGHTS)])
    for path, raw in ADMIN.items():
        store.write([Write(path, raw)])
    return store


def plan_of(folder: Path, snapshot: MemoryStore, live: MemoryStore | None = None) -> Dataset:
    """Make a plan of a snapshot, for a store."""
    then = take(snapshot, folder / "snapshot", pulsar=True)
    now = None if live is None else take(live, folder / "live", pulsar=True)
    plan = make_plan(folder / "plan", request_of(then, now, pulsar=True), LEDGERS, made=AT)
    if live is not None:
        (folder / "live").rename(folder / "plan" / "store")
    return plan


@pytest.fixture
def plan(snapshot: MemoryStore, tmp_path: Path) -> Dataset:
    """A plan for an empty store."""
    return plan_of(tmp_path, snapshot)


def ids(*numbers: int, topic: str = "persistent://public/default/events") -> dict[LedgerId, str]:
    """Adopt ledgers by one topic."""
    return {LedgerId(0, number): topic for number in numbers}


def test_a_topic_gets_what_it_adopts_and_the_end_of_its_last_ledger(plan: Dataset, tmp_path: Path) -> None:
    """In the order of ids, in a plan with a hash of its own that differs in the records alone; an empty topic, too."""
    adopted = ids(11, 8) | ids(7, topic="public/default/persistent/new")
    nodes = append_adopted(plan, adopted)
    records = {path: node.value for path, node in nodes.items()}
    assert decode(records[f"{TOP}/events"]) == ManagedLedger(
        (Listed(3, 2, 30), Listed(7, 4, 400), Listed(8, 9, 900), Listed(11, 1, 20))
    )
    assert decode(records[f"{TOP}/new"]) == ManagedLedger((Listed(7, 4, 400),))
    made = edit_plan(plan, Edits(adopt=adopted, nodes=nodes), tmp_path / "edited")
    edited = open_dataset(tmp_path / "edited", "plan")
    require_whole(edited)
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
        (ids(8, topic="persistent://public/none/new"), "neither the plan nor the store has"),
        (ids(8, topic="public/default/non-persistent/new"), "is no topic"),
        (ids(8, topic="public/default/persistent/a/b"), "is no topic"),
        (ids(8, topic="persistent://public/default/parted"), "is a topic with partitions"),
        (ids(8, topic="persistent://public/default/parted-partition-3"), "is a topic with 3 partitions"),
        (ids(8, topic="persistent://public/default/events-partition-0"), "is no topic with partitions"),
        (ids(8, topic="public/default/persistent/events/late"), "is a subscription"),
        (ids(11, topic="public/default/persistent/held"), "is held"),
    ],
)
def test_what_cannot_be_appended_is_refused(plan: Dataset, adopted: dict[LedgerId, str], words: str) -> None:
    """A ledger without an end, one that is not behind the last, a topic that is not written: each by its name."""
    with pytest.raises(PlanError, match=words):
        append_adopted(plan, adopted)


def edit(plan: Dataset, folder: Path, edits: Edits) -> Dataset:
    """Edit a plan, and see that it is whole."""
    edit_plan(plan, edits, folder)
    edited = open_dataset(folder, "plan")
    require_whole(edited)
    return edited


def write_nodes(plan: Dataset, store: MemoryStore, folder: Path) -> int:
    """Write a plan; return the exit code."""
    return write(plan, store, folder / "journal").exit_code


@pytest.mark.parametrize("topic", ["younger", "parted-partition-2"])
def test_a_topic_that_no_snapshot_has_is_made(plan: Dataset, topic: str, tmp_path: Path) -> None:
    """With a subscription at its beginning, which keeps its messages, and the rights of what is above; and undone."""
    adopted = ids(8, 11, topic=f"persistent://public/default/{topic}")
    nodes = append_adopted(plan, adopted)
    assert set(nodes) == {f"{TOP}/{topic}", f"{TOP}/{topic}/bkmeta-adopted"}
    edited = edit(plan, tmp_path / "edited", Edits(adopt=adopted, nodes=nodes))
    [counts] = [c for c in read_plan_manifest(edited).subtrees if c.path == "/managed-ledgers"]
    assert counts.added == 2
    store = MemoryStore()
    assert write_nodes(edited, store, tmp_path) == 0
    made = store.get(f"{TOP}/{topic}")
    assert made is not None
    assert decode(made.value) == ManagedLedger((Listed(8, 9, 900), Listed(11, 1, 20)))
    keeper = store.get(f"{TOP}/{topic}/bkmeta-adopted")
    assert keeper is not None
    assert decode(keeper.value) == Cursor((), (8, -1))
    undone = undo.undo(undo.propose(tmp_path / "journal", store, "/ledgers"), store, "/ledgers", now=lambda: AT)
    assert (undone.left, store.get(f"{TOP}/{topic}")) == ({}, None)


def test_what_is_above_a_new_topic_is_made_with_it(snapshot: MemoryStore, tmp_path: Path) -> None:
    """A namespace that had no topic yet; its nodes stand in the order of the plan."""
    snapshot.write([Write("/admin/local-policies/public/fresh", b"{}")])
    plan = plan_of(tmp_path, snapshot)
    adopted = ids(8, topic="persistent://public/fresh/new")
    edited = edit(plan, tmp_path / "edited", Edits(adopt=adopted, nodes=append_adopted(plan, adopted)))
    store = MemoryStore()
    assert write_nodes(edited, store, tmp_path) == 0
    assert store.children("/managed-ledgers/public/fresh/persistent") == ["new"]
    rows = edited.read("actions").to_pylist()
    assert [row["seq"] for row in rows] == sorted(row["seq"] for row in rows)
    assert {key: store.get(key) is not None for key in ("/managed-ledgers/public/fresh", f"{TOP}/events")} == {
        "/managed-ledgers/public/fresh": True,
        f"{TOP}/events": True,
    }


def test_a_topic_that_stands_in_the_store_is_replaced_by_its_version(snapshot: MemoryStore, tmp_path: Path) -> None:
    """With other bytes than the snapshot's, and one that only the store has; a later change of it is a conflict."""
    live = MemoryStore()
    more = append_ledgers(TOPIC, [Listed(7, 4, 400)], 6)
    for name, raw in {"events": more, "new": b"", "own": b"\x0a\x02\x08\x07"}.items():
        live.write([Write(f"{TOP}/{name}", raw, None, RIGHTS)])
    plan = plan_of(tmp_path, snapshot, live)
    adopted = ids(8) | ids(11, topic="persistent://public/default/own")
    edited = edit(plan, tmp_path / "edited", Edits(adopt=adopted, nodes=append_adopted(plan, adopted)))
    rows = {row["key"][1:]: row for row in edited.read("actions").to_pylist()}
    assert {name: rows[f"{TOP}/{name}"]["op"] for name in ("events", "own")} == {"events": "replace", "own": "replace"}
    assert f"{TOP}/new" not in rows
    assert write_nodes(edited, live, tmp_path) == 0
    events = live.get(f"{TOP}/events")
    assert events is not None
    assert decode(events.value) == ManagedLedger((Listed(3, 2, 30), Listed(7, 4, 400), Listed(8, 9, 900)))
    was = live.get(f"{TOP}/own")
    assert was is not None
    live.write([Write(f"{TOP}/own", b"changed", was.version)])
    (tmp_path / "journal").rename(tmp_path / "first")
    assert write_nodes(edited, live, tmp_path) == 6
    assert live.dump()[f"{TOP}/own"] == b"changed"


def test_where_the_snapshot_s_topic_replaces_the_store_s_that_is_appended_to(
    snapshot: MemoryStore, tmp_path: Path
) -> None:
    """A broker that began the topic anew has higher ids: without the replacement there is no place."""
    live = MemoryStore()
    live.write([Write(f"{TOP}/events", append_ledgers(b"", [Listed(11, 1, 20)], 6))])
    plan = plan_of(tmp_path, snapshot, live)
    with pytest.raises(PlanError, match="does not come after the topic's last one") as caught:
        append_adopted(plan, ids(8))
    assert "replace it by the snapshot's" in str(caught.value.remedy)
    nodes = append_adopted(plan, ids(8), [TOP])
    edits = Edits(adopt=ids(8), nodes=nodes, replace_below=frozenset([TOP]))
    edited = edit(plan, tmp_path / "edited", edits)
    assert write_nodes(edited, live, tmp_path) == 0
    events = live.get(f"{TOP}/events")
    assert events is not None
    assert decode(events.value) == ManagedLedger((Listed(3, 2, 30), Listed(7, 4, 400), Listed(8, 9, 900)))


def test_topics_are_named_as_clients_and_as_nodes_name_them() -> None:
    """As Java's URLEncoder has it."""
    assert name_topic("persistent://a/b/c d~é") == "a/b/persistent/c+d%7E%C3%A9"
    assert name_topic("/a/b/persistent/c") == "a/b/persistent/c"
