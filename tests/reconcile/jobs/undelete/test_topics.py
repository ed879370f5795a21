"""Topics whose ledgers somebody deleted: their records in history, and what of these comes back."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from backends.protocols import Write
from reconcile.jobs.undelete import topics
from reconcile.jobs.undelete.history import OpenHistory
from reconcile.plan import plan_reader
from recovery.codecs._pb.managed_ledger_pb2 import SchemaLocator
from recovery.codecs.managed_ledger import encode_cursor
from recovery.codecs.store import Layout
from recovery.dataset import open_dataset
from recovery.errors import InputError
from tests.reconcile.test_references_pulsar import topic as make_topic
from tests.support.command import run
from tests.support.memory_store import MemoryStore
from tests.support.paths import DATA
from tests.support.scannable_store import ScannableMemory

TOPIC = "/managed-ledgers/shop/orders/persistent/new%3Aold"
NAME = "shop/orders/persistent/new%3Aold"
PARTITIONED = "/admin/partitioned-topics/shop/orders/persistent/new%3Aold"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The files of a ZooKeeper in which Pulsar's own code trimmed one topic and deleted another."""
    folder = tmp_path_factory.mktemp("pulsar")
    with tarfile.open(DATA / "pulsar" / "disks.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return f"zkfiles://{folder / 'zookeeper'}"


def test_a_topic_that_pulsar_deleted_comes_back_with_its_record(
    files: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ledger and the node that names it; what retention deleted of another topic is named, and stays deleted."""
    pulsar = json.loads((DATA / "pulsar" / "truth.json").read_text())
    [deleted] = pulsar["public/default/persistent/deleted"]["before"]
    [trimmed] = [
        one["ledger"]
        for one in pulsar["public/default/persistent/trimmed"]["before"]
        if one not in pulsar["public/default/persistent/trimmed"]["ledgers"]
    ]
    words = ("undelete", "--metadata", files, "--topic", "persistent://public/default/*", "--out", tmp_path / "plan")
    done = run(capsys, *words, "--json")
    assert done.code == 3
    assert {ledger: kept["reason"] for ledger, kept in done.result["kept"].items()} == {str(trimmed): "trimmed"}
    plan = open_dataset(tmp_path / "plan", "plan")
    assert plan_reader.overview(plan, shown=0).problems == ()
    made = {row["key"]: row for row in plan.read("actions").to_pylist() if row["kind"] in ("ledger", "subtree")}
    node = "//managed-ledgers/public/default/persistent/deleted"
    assert len(made) == 2
    assert {row["ledger"] for row in made.values() if row["kind"] == "ledger"} == {deleted["ledger"]}
    assert topics.list_named(made[node]["value"]) == (deleted["ledger"],)
    assert done.result["unnamed"] == {}
    # It was open when it was deleted, so no record says how many entries it had.
    assert done.result["topics"] == [
        {
            "topic": "persistent://public/default/deleted",
            "node": "created",
            "ledgers": 1,
            "entries": 0,
            "not_closed": 1,
            "until": None,
            "to_the_end": True,
            "subscriptions": [],
            "unload": "if_served",
        }
    ]
    assert "persistent://public/default/deleted" in (tmp_path / "plan" / "report.html").read_text()
    assert plan.manifest["subtrees"][0]["created"] == 1

    one = run(capsys, "undelete", "--metadata", files, str(trimmed), "--out", tmp_path / "one", "--json")
    assert one.code == 0
    assert one.result["unnamed"] == {str(trimmed): "public/default/persistent/trimmed"}
    [topic] = one.result["topics"]
    assert (topic["topic"], topic["node"], topic["unload"]) == (
        "persistent://public/default/trimmed",
        "stands",
        "always",
    )
    shown = run(capsys, "undelete", "--metadata", files, str(trimmed), "--out", tmp_path / "two").out
    assert "pulsar-admin topics unload persistent://public/default/trimmed" in shown


class Clock:
    """A time that tests set."""

    now_ms = 1_767_225_600_000

    def __call__(self) -> int:
        """Return it."""
        return self.now_ms


def read(source: ScannableMemory, pattern: str) -> topics.EarlierNodes:
    """Return the nodes of topics in a store's history."""
    given = OpenHistory("memory://", source, "/ledgers", Layout.HIERARCHICAL, source.point())
    return topics.read_nodes([given], topics.make_match(topics.parse_pattern(pattern)))


def write(store: MemoryStore, earlier: topics.EarlierNodes, *names: str) -> dict[str, dict[str, Any]]:
    """Return what a plan writes of nodes, by their paths."""
    rows = topics.write_nodes(store, "/ledgers", earlier, names).actions.to_pylist()
    return {row["key"][1:]: row for row in rows}


@pytest.fixture
def history() -> ScannableMemory:
    """A topic that named three ledgers, and lost the first to retention; one subscription went long before it."""
    clock = Clock()
    source = ScannableMemory(clock)
    source.put("/admin/partitioned-topics/shop/orders/persistent", b"")
    for path in ("/managed-ledgers", "/managed-ledgers/shop", "/managed-ledgers/shop/orders"):
        source.put(path, b"")
    source.put("/managed-ledgers/shop/orders/persistent", b"")
    source.put(PARTITIONED, b'{"partitions":2}')
    source.put(TOPIC, make_topic(1, 2))
    source.put(TOPIC, make_topic(1, 2, 3))
    source.put(TOPIC, make_topic(2, 3))
    source.put(f"{TOPIC}/unsubscribed", encode_cursor(1))
    source.put(f"{TOPIC}/reader", encode_cursor(2, 4))
    source.put(f"{TOPIC}-2", make_topic(9))
    source.put(f"{TOPIC}/unsubscribed", None)
    clock.now_ms += 3_600_000
    source.put(f"{TOPIC}/reader", None)
    source.put(TOPIC, None)
    source.put(PARTITIONED, None)
    return source


def test_a_topic_comes_back_with_what_was_deleted_together_with_it(history: ScannableMemory) -> None:
    """Its last record, the subscription that it still had, the node of its partitions, and what is above."""
    earlier = read(history, "persistent://shop/orders/new:old")
    assert earlier.named == {1, 2, 3, 4}
    for path in ("/managed-ledgers/shop/orders/persistent", "/managed-ledgers/shop/orders"):
        assert history.get(path) is not None
    target = MemoryStore()
    target.write([Write("/managed-ledgers", b"")])
    made = write(target, earlier)
    assert {path: row["value"] for path, row in made.items() if row["value"]} == {
        TOPIC: make_topic(2, 3),
        f"{TOPIC}/reader": encode_cursor(2, 4),
        PARTITIONED: b'{"partitions":2}',
    }
    assert {path for path, row in made.items() if not row["value"]} == {
        *("/managed-ledgers/shop", "/managed-ledgers/shop/orders", "/managed-ledgers/shop/orders/persistent"),
        *("/admin", "/admin/partitioned-topics", "/admin/partitioned-topics/shop"),
        *("/admin/partitioned-topics/shop/orders", "/admin/partitioned-topics/shop/orders/persistent"),
    }
    places = [row["seq"] for row in sorted(made.values(), key=lambda row: row["key"].count("/"))]
    assert places == sorted(places)


def test_a_schema_and_policies_come_back_with_their_topic() -> None:
    """Of all its partitions, if it was deleted about when they were; policies only where the store lacks them."""
    clock = Clock()
    source = ScannableMemory(clock)
    for path in ("/managed-ledgers", "/managed-ledgers/shop", "/managed-ledgers/shop/orders", "/admin", "/schemas"):
        source.put(path, b"")
    source.put("/admin/policies/shop", b"tenant")
    source.put("/admin/policies/shop/orders", b"namespace")
    source.put("/admin/local-policies/shop/orders", b"local")
    source.put("/admin/policies/other", b"another tenant")
    partition = "/managed-ledgers/shop/orders/persistent/new-partition-0"
    source.put(partition, make_topic(1))
    source.put("/schemas/shop/orders/new", make_schema(5))
    source.put("/schemas/shop/orders/old", make_schema(6))
    source.put("/managed-ledgers/shop/orders/persistent/old", make_topic(2))
    source.put("/schemas/shop/orders/old", None)
    clock.now_ms += 3_600_000
    for path in ("/managed-ledgers/shop/orders/persistent/old", partition, "/schemas/shop/orders/new"):
        source.put(path, None)
    for path in ("/admin/local-policies/shop/orders", "/admin/policies/shop/orders", "/admin/policies/other"):
        source.put(path, None)
    earlier = read(source, "persistent://shop/orders/new")
    assert earlier.named == {1, 5}
    target = MemoryStore()
    target.write([Write("/managed-ledgers", b""), Write("/admin/policies", b"")])
    target.write([Write("/admin/policies/shop", b"changed since")])
    made = write(target, earlier)
    assert {path: row["value"] for path, row in made.items() if row["value"]} == {
        partition: make_topic(1),
        "/schemas/shop/orders/new": make_schema(5),
        "/admin/policies/shop/orders": b"namespace",
        "/admin/local-policies/shop/orders": b"local",
    }
    assert all(row["op"] == "create" for row in made.values())
    # A schema that went an hour before its topic stays away, with its ledger.
    assert "/schemas/shop/orders/old" not in write(MemoryStore(), read(source, "persistent://shop/orders/old"))


def make_schema(ledger: int) -> bytes:
    """Return the record of a schema with one version."""
    message = SchemaLocator()
    message.info.version, message.info.hash = 0, b"h"
    message.info.position.ledgerId, message.info.position.entryId = ledger, 0
    message.index.add().CopyFrom(message.info)
    return message.SerializeToString()


def test_a_topic_that_was_made_again_is_left_as_it_is(history: ScannableMemory) -> None:
    """A person may replace it, by the version that it has; what it names counts for the ledgers' owner."""
    history.put(TOPIC, make_topic(7))
    nodes = topics.write_nodes(history, "/ledgers", read(history, "shop/orders/*"), [NAME])
    rows = {row["key"][1:]: row for row in nodes.actions.to_pylist()}
    assert nodes.named[NAME] >= {7}
    assert nodes.named_before[NAME] >= {7}
    assert TOPIC not in rows


def test_a_topic_that_the_store_has_otherwise_than_history_is_left(history: ScannableMemory) -> None:
    """Its earlier record is offered, and written only where a person says so."""
    target = MemoryStore()
    for path in ("/managed-ledgers/shop/orders/persistent", TOPIC):
        target.write([Write(path, make_topic(7))])
    row = write(target, read(history, "shop/orders/*"))[TOPIC]
    assert (row["op"], row["value"], row["before"]) == ("leave", make_topic(2, 3), make_topic(7))


@pytest.mark.parametrize("text", ["orders", "shop/orders", "non-persistent://shop/orders/new", "a/b/c/d", "a//b", ""])
def test_what_is_no_topic_is_refused(text: str) -> None:
    """With what one looks like."""
    with pytest.raises(InputError, match="not a topic's name"):
        topics.parse_pattern(text)


@pytest.mark.parametrize(
    ("pattern", "is_meant"),
    [
        ("persistent://shop/orders/new:old", True),
        ("shop/orders/persistent/new%3Aold", True),
        ("shop/orders/new%3Aold", True),
        ("shop/orders/new*", True),
        ("shop/*/new*", True),
        ("shop/orders/old*", False),
    ],
)
def test_names_fit_as_they_are_typed_and_as_nodes_have_them(pattern: str, *, is_meant: bool) -> None:
    """Brokers encode names for their nodes."""
    assert topics.make_match(topics.parse_pattern(pattern))(NAME) is is_meant
