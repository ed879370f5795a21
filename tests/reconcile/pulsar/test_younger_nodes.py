"""Nodes of subscriptions and schemas that no snapshot has, made of their own ledgers; ZooKeeper's files are real."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from reconcile.pulsar.producers import Head, ReadHeads
from recovery.codecs._pb.managed_ledger_pb2 import LedgerPosition, SchemaEntry, SchemaInfo, SchemaVersion
from recovery.codecs.managed_ledger import Cursor, decode, decode_schema
from recovery.codecs.pulsar_schema import decode_entry
from recovery.dataset import Dataset, open_dataset
from recovery.model.ids import LedgerId
from tests.reconcile.jobs.make_plan.test_subtree_writes import make_plan, request_of
from tests.reconcile.pulsar.test_candidates import AT, LATER, LEDGERS, MEMBERS, TOPICS, Desk
from tests.support.command import Done, run
from tests.support.plan_folder import Ledger

BEFORE_SUBSCRIPTION = "0x62"
"""Transaction: the topic kept-lz4 is there, and its subscription not yet."""
SCHEMA = "public/default/kept-none"


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    """An empty one."""
    return Desk(tmp_path, capsys)


def adopt(desk: Desk, plan: Dataset, name: str = "edited") -> Done:
    """Adopt all that says itself whose it is."""
    out = desk.folder / name
    return run(desk.capsys, "plan", "edit", plan.path, "--adopt-candidates", "--out", out, "--json")


def read_values(folder: Path) -> dict[str, bytes]:
    """Return what a plan writes, by path."""
    return {row["key"][1:]: row["value"] for row in open_dataset(folder, "plan").read("actions").to_pylist()}


def test_a_subscription_is_made_with_the_ledger_of_its_state(desk: Desk) -> None:
    """At the beginning of its topic, from where a broker goes on to what stands in the ledger; no candidate is left."""
    ledgers = [ledger for ledger in LEDGERS if ledger.ledger not in (14, 15)]
    plan = desk.plan([desk.take(BEFORE_SUBSCRIPTION, "--pulsar"), desk.take(LATER)], ledgers)
    done = adopt(desk, plan)
    assert done.result["not_adopted"] == {}
    lines = [f"ledger {n} appended to {TOPICS}kept-lz4" for n in (11, 12)]
    assert done.result["edits"] == [*lines, f"ledger 13 named by the subscription subscription of {TOPICS}kept-lz4"]
    node = read_values(desk.folder / "edited")[f"/managed-ledgers/{TOPICS}kept-lz4/subscription"]
    assert decode(node) == Cursor(((13, "cursor"),), (10, -1))
    assert "candidates" not in open_dataset(desk.folder / "edited", "plan").manifest
    done = adopt(desk, open_dataset(desk.folder / "edited", "plan"), "twice")
    assert (done.code, "has no ledger that came after the snapshot" in done.out) == (2, True)


def test_a_subscription_that_stands_already_stays(desk: Desk) -> None:
    """It goes on where the snapshot had it, though a newer ledger of it came back."""
    plan = desk.plan([desk.take("0x69", "--pulsar"), desk.take(LATER)])
    before = read_values(Path(plan.path))
    assert adopt(desk, plan).result["not_adopted"] == {}
    path = f"/managed-ledgers/{TOPICS}kept-lz4/subscription"
    assert read_values(desk.folder / "edited")[path] == before[path]


def test_of_a_ledger_that_does_not_come_back_nothing_is_made(desk: Desk) -> None:
    """A node that names it would keep the topic from being loaded."""
    ledgers = [ledger for ledger in LEDGERS if ledger.ledger not in (13, 14, 15)]
    ledgers.append(Ledger(13, MEMBERS, reason="LAST_ENTRY_UNKNOWN"))
    plan = desk.plan([desk.take(BEFORE_SUBSCRIPTION, "--pulsar"), desk.take(LATER)], ledgers)
    assert adopt(desk, plan).result["not_adopted"] == {"13": "needs ledger 13, which does not come back"}


def make_entry(name: str, definition: bytes, before: Sequence[tuple[int, bytes]]) -> bytes:
    """Return the entry of a version of a schema, as a broker writes it."""
    info = SchemaInfo(schema_id=name.encode(), schema=definition, deleted=False)
    places = [(ledger, 0, hashlib.sha256(raw).digest()) for ledger, raw in before]
    index = [
        SchemaVersion(version=number, position=LedgerPosition(ledgerId=ledger, entryId=entry), hash=digest)
        for number, (ledger, entry, digest) in enumerate(places or [(-1, -1, hashlib.sha256(definition).digest())])
    ]
    return SchemaEntry(schema_data=info.SerializeToString(), index=index).SerializeToString()


def serve(entries: Mapping[int, bytes]) -> ReadHeads:
    """Give what entries of schemas say; others have nothing."""

    def read(wanted: Iterable[tuple[LedgerId, Sequence[int]]]) -> Iterator[tuple[LedgerId, Mapping[int, Head]]]:
        for ledger, _ in wanted:
            raw = entries.get(ledger.ledger)
            yield ledger, {} if raw is None else {0: decode_entry(raw, ledger.ledger, 0)}

    return read


def plan_schemas(desk: Desk, entries: Mapping[int, bytes], *held: int) -> Dataset:
    """Plan a snapshot's nodes, and ledgers with entries of schemas."""
    ledgers = [
        Ledger(number, MEMBERS, last=0, length=9, reason="LAST_ENTRY_UNKNOWN" if number in held else None)
        for number in entries
    ]
    request = request_of(desk.take(None, "--pulsar"), None, pulsar=True)
    return make_plan(desk.folder / "plan", request, ledgers, made=AT, heads=serve(entries))


FIRST, SECOND = 100, 200


@pytest.fixture
def versions() -> dict[int, bytes]:
    """Two versions of the schema of a topic that has none."""
    name = "public/default/kept-zstd"
    return {FIRST: make_entry(name, b"one", []), SECOND: make_entry(name, b"two", [(FIRST, b"one")])}


def test_a_schema_is_made_with_all_its_versions(desk: Desk, versions: dict[int, bytes]) -> None:
    """By the entry of the last one; no ledger of them is left without a node."""
    plan = plan_schemas(desk, versions)
    assert plan.manifest["candidates"] == {"ledgers": 2, "entry": 2}
    done = adopt(desk, plan)
    assert done.result["edits"] == [f"ledger {n} named by the schema of public/default/kept-zstd" for n in versions]
    values = read_values(desk.folder / "edited")
    assert decode_schema(values["/schemas/public/default/kept-zstd"]) == (FIRST, SECOND)
    assert "candidates" not in open_dataset(desk.folder / "edited", "plan").manifest


def test_a_schema_whose_earlier_version_is_held_is_not_made(desk: Desk, versions: dict[int, bytes]) -> None:
    """A broker reads the first one before it takes another."""
    done = adopt(desk, plan_schemas(desk, versions, FIRST))
    assert done.result["not_adopted"] == {str(SECOND): f"needs ledger {FIRST}, which does not come back"}


def test_a_schema_of_a_topic_that_is_not_there_is_left(desk: Desk) -> None:
    """Its topic was deleted, or is not adopted."""
    done = adopt(desk, plan_schemas(desk, {FIRST: make_entry("public/default/nowhere", b"", [])}))
    assert done.result["not_adopted"] == {str(FIRST): "is of a topic that neither the plan nor the store has"}


def test_another_schema_of_a_topic_is_left(desk: Desk) -> None:
    """The node's own versions must be the first ones."""
    plan = plan_schemas(desk, {FIRST: make_entry(SCHEMA, b"other", [])})
    assert adopt(desk, plan).result["not_adopted"] == {str(FIRST): "is a schema of a topic that has another one"}
