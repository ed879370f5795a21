"""Upper layers' records against real disks: Pulsar's topics supply ends, check them, and say what they let go of.

The disks are those of bookies that Pulsar's own code wrote to; all was killed, and what BookKeeper knew is lost.
"""

import functools
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from backends.protocols import ScannableStore
from backends.registry import OpenStore
from reconcile.clusters import open_inventories
from reconcile.jobs.make_plan.plan import make_plan
from reconcile.jobs.make_plan.request import PlanRequest
from reconcile.plan import plan_reader
from reconcile.plan.actions import LEAVE, Passwords
from reconcile.plan.edits import Edits, edit_plan
from reconcile.references import References, of_store, read
from reconcile.stores import open_store
from reconcile.write import apply as engine
from recovery.codecs import ledger_metadata, store
from recovery.codecs.store import Layout
from recovery.collect.options import CollectOptions
from recovery.collect.pipeline import collect
from recovery.dataset import Dataset, open_dataset, prepare
from recovery.model.ids import LedgerId
from recovery.spark import session
from tests.recovery.codecs.test_managed_ledger_golden import truth
from tests.support.cases import pulsar_dir
from tests.support.findings import found, said
from tests.support.memory_store import MemoryStore
from tests.support.scannable_store import ScannableMemory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROOT = "/ledgers"
NAMES = tuple(f"10.0.0.{n}:3181" for n in (1, 2, 3, 4))
Recover = Callable[..., Dataset]


def now() -> datetime:
    """The tests' clock."""
    return datetime(2030, 1, 1, tzinfo=UTC)


def wanted() -> dict[int, tuple[int | None, int | None]]:
    """Each ledger that a topic has, with its last entry and length as Pulsar knew them."""
    topics = [said for name, said in truth().items() if "/" in name]
    rows = [one for said in topics for one in said.get("ledgers", ())]
    return {one["ledger"]: (one.get("last_entry"), one.get("length")) for one in rows}


def let_go() -> set[int]:
    """The ledgers that a topic had, and has no more."""
    topics = [said for name, said in truth().items() if "/" in name]
    return {one["ledger"] for said in topics for one in said.get("before", ())} - wanted().keys()


@pytest.fixture(scope="module")
def spark() -> "Iterator[SparkSession]":
    """One session for this module."""
    with session("local[1]") as running:
        yield running


@pytest.fixture(scope="module")
def inventories(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, ...]:
    """The disks of the four bookies."""
    folder = tmp_path_factory.mktemp("inventories")
    for number, name in enumerate(NAMES):
        disks = pulsar_dir() / "bookies" / f"b{number}"
        given = CollectOptions((disks / "ledgers",), (), (disks / "journal",), bookie_id=name)
        collect(given, folder / str(number), now=now, progress=lambda _: None)
    return open_inventories([str(path) for path in sorted(folder.iterdir())])


@functools.cache
def of_pulsar(at: str | None = None) -> References:
    """What ZooKeeper's files have of Pulsar."""
    with open_store(f"zkfiles://{pulsar_dir()}/zookeeper", at=at) as opened:
        return of_store(opened)


@pytest.fixture
def recovered(spark: "SparkSession", inventories: tuple[Dataset, ...], tmp_path: Path) -> Recover:
    """Gives the plan of the inventories and references."""

    def made(name: str, references: References | None, **changes: Any) -> Dataset:
        values: dict[str, Any] = {
            "inventories": inventories,
            "live": None,
            "snapshots": (),
            "layout": Layout.HIERARCHICAL,
            "root": ROOT,
            "passwords": Passwords.from_candidates([]),
            "expected": NAMES,
            "default_quorum": (3, 2, 2),
            "references": references,
        }
        prepare(tmp_path / name, "plan", secret=True)
        make_plan(PlanRequest(**{**values, **changes}), tmp_path / name, spark, now=now)
        return open_dataset(tmp_path / name, "plan")

    return made


def test_every_ledger_of_a_topic_is_matched_and_what_nothing_names_stands_apart(recovered: Recover) -> None:
    """All come back with the end that Pulsar knows; no owner is made up for what no record names."""
    plan = recovered("plan", of_pulsar())
    rows = {row["ledger"]: row for row in plan.read("reconstruction").to_pylist()}
    for ledger, (last, length) in wanted().items():
        row = rows[ledger]
        assert row["outcome"] == "restored", (ledger, row["reason"])
        if last is not None:
            assert (row["last_entry"], row["grades"]["last_entry"]) == (last, "reference")
        if length is not None:
            assert row["length"] == length
    sides = {row["ledger"]: row for row in plan.read("sides").to_pylist()}
    unreferenced = {ledger for ledger, row in sides.items() if not row["referenced"]}
    assert unreferenced == {truth()["unreferenced"]}
    assert [sides[ledger]["owner"] for ledger in unreferenced] == [None]
    assert sides[min(wanted())]["owner"] == "public/default/persistent/kept-none"
    assert sides[truth()["schema"]]["owner"] == "schema of public/default/kept-none"
    references = plan.manifest["references"]
    assert references["referenced_not_found"] == references["unreadable"] == 0
    assert references["unreferenced"] == 1
    [alone] = references["some_unreferenced"]
    assert alone["ledger"] == truth()["unreferenced"]
    assert alone["neighbours"] == [f"schema of public/default/kept-none ({truth()['schema']})"]
    assert found(plan, "REFERENCE_DIFFERS") == found(plan, "REFERENCE_NOT_FOUND") == {}


def test_what_topics_let_go_of_stays_deleted_unless_somebody_chooses_it(recovered: Recover, tmp_path: Path) -> None:
    """Trimmed, or its topic deleted: with transaction, time and session; a choice brings back what bookies show."""
    plan = recovered("plan", of_pulsar())
    deleted = found(plan, "DELETED_BY_OWNER")
    assert deleted.keys() == let_go()
    assert len(deleted) == 2
    for finding in deleted.values():
        text = said(finding)["reference", "deleted"]
        assert "in transaction" in text
        assert "by session 0x" in text
    rows = {row["ledger"]: row for row in plan.read("actions").to_pylist() if row["kind"] == "ledger"}
    assert {ledger for ledger, row in rows.items() if row["op"] == LEAVE} == let_go()
    chosen = min(let_go())
    edit_plan(plan, Edits(choose={LedgerId(0, chosen): "from bookies"}), tmp_path / "chosen")
    edited = open_dataset(tmp_path / "chosen", "plan")
    assert plan_reader.overview(edited, shown=0).problems == ()
    target = MemoryStore()
    options = engine.ApplyOptions(plan_hash=edited.manifest["hash"])
    engine.apply(lambda: edited.batches("actions"), target, ROOT, tmp_path / "journal", options, now=now)
    held = target.get(ROOT + store.ledger_key(Layout.HIERARCHICAL, LedgerId(0, chosen)))
    assert held is not None
    assert ledger_metadata.decode(held.value).last_entry == 4
    for other in let_go() - {chosen}:
        assert target.get(ROOT + store.ledger_key(Layout.HIERARCHICAL, LedgerId(0, other))) is None


def test_topics_that_are_all_gone_are_the_catastrophe_itself(recovered: Recover) -> None:
    """Somebody removed Pulsar's records, too: its history lets go of everything, and everything is held."""
    with open_store(f"zkfiles://{pulsar_dir()}/zookeeper") as opened:
        assert isinstance(opened.store, ScannableStore)
        batches = list(opened.store.scan("/managed-ledgers"))
    keys = {
        key: raw
        for batch in batches
        for key, raw in zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
    }
    emptied = ScannableMemory()
    for key, raw in keys.items():
        emptied.put(key, raw)
    for key in sorted(keys, key=len, reverse=True):
        if key != "/managed-ledgers":
            emptied.put(key, None)
    references = of_store(OpenStore(emptied, ROOT, None, "memory://"))
    plan = recovered("plan", references)
    assert plan.manifest["mass_let_go"]
    assert plan.manifest["counts"]["deleted"] == 0
    rows = {row["ledger"]: row for row in plan.read("reconstruction").to_pylist()}
    assert all(rows[ledger]["reason"] == "mass_deletion" for ledger in wanted())


def test_each_disagreement_with_a_reference_is_a_finding(recovered: Recover, tmp_path: Path) -> None:
    """An end above all that is held, one below an acknowledged entry, another length, and a ledger that nothing has."""
    first, second, third, *_ = sorted(ledger for ledger, (_, length) in wanted().items() if length is not None)
    lines = [
        {"ledger": first, "last_entry": 9, "owner": "one"},
        {"ledger": second, "last_entry": 1, "owner": "two"},
        {"ledger": third, "last_entry": 4, "length": 7, "owner": "three"},
        {"ledger": 4711, "last_entry": 4, "owner": "four"},
        {"ledger": 4712, "owner": "five"},
        {"ledger": 4713, "deleted": True},
    ]
    (tmp_path / "given.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    plan = recovered("plan", References(read(tmp_path / "given.jsonl"), (("a record", "is none"),)))
    differing = found(plan, "REFERENCE_DIFFERS")
    assert {ledger: row["severity"] for ledger, row in differing.items()} == {
        first: "critical",
        second: "critical",
        third: "warning",
    }
    evidence = said(differing[first])
    assert evidence["reference", "owner"] == "one"
    assert (evidence["reference", "last_entry"], evidence["bookies", "last entry held"]) == ("9", "4")
    rows = {row["ledger"]: row for row in plan.read("reconstruction").to_pylist()}
    assert (rows[first]["outcome"], rows[first]["reason"]) == ("guarded", "lac_beyond_end")
    assert rows[second]["last_entry"] == 4
    absent = found(plan, "REFERENCE_NOT_FOUND")
    assert {ledger: row["severity"] for ledger, row in absent.items()} == {4711: "critical", 4712: "warning"}
    assert said(found(plan, "REFERENCE_UNREADABLE")["a record"])["reference", "record"] == "is none"
    unseen = recovered("unseen", References(read(tmp_path / "given.jsonl")), expected=(*NAMES, "10.0.0.9:3181"))
    assert found(unseen, "REFERENCE_NOT_FOUND")[4711]["severity"] == "warning"
    assert found(unseen, "REFERENCE_NOT_FOUND")[4711]["unknowns"]
