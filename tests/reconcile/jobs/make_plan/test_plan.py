"""The recover job on Spark: the same plan however the work is cut, complete, and bound to what it was made of."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from reconcile import references
from reconcile.clusters import open_inventories
from reconcile.compare import decide
from reconcile.compare.knowledge import StatedQuorums
from reconcile.jobs.make_plan.plan import make_plan
from reconcile.jobs.make_plan.request import PlanRequest
from reconcile.plan import plan_reader
from reconcile.plan.actions import LEAVE, Passwords
from reconcile.plan.manifest import read_plan_manifest
from reconcile.plan.views.differences import compare_plans
from reconcile.report import pages
from recovery.codecs import ledger_metadata
from recovery.codecs.replication_lock import encode_guard, lock_key
from recovery.codecs.store import Layout
from recovery.dataset import Dataset, DatasetWriter, open_dataset, prepare, sort_by_key
from recovery.errors import DatasetError, InputError
from recovery.infer.search import Tail
from recovery.model import tables
from recovery.model.ids import BUCKETS, LedgerId, bucket_ranges, buckets
from recovery.model.metadata import LedgerState
from recovery.spark import over_buckets, session
from tests.simulation import simulator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CLUSTER = simulator.Cluster(shapes=((3, 2), (3, 3), (4, 2)), bookies=6, lengths=(5, 20, 60, 200), changes=(0, 0, 0, 1))
LEDGERS = 400


@pytest.fixture(scope="module")
def spark() -> "Iterator[SparkSession]":
    """One session for this module."""
    with session("local[2]") as running:
        yield running


@pytest.fixture(scope="module")
def inventories(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, ...]:
    """Inventories of six bookies that hold four hundred simulated ledgers."""
    folder = tmp_path_factory.mktemp("inventories")
    rng = Random(7)
    histories = [simulator.history(rng, ledger, CLUSTER) for ledger in range(LEDGERS)]
    copies = simulator.copies(histories)
    for name in CLUSTER.names:
        with DatasetWriter(folder / name.replace(":", "_"), "inventory", binding={}) as out:
            out.append("copies", copies.filter(pc.equal(copies["bookie"], name)))
            out.append("bookies", simulator.bookies([name]))
            out.close(coverage={})
    return open_inventories([str(path) for path in sorted(folder.iterdir())])


def request_of(inventories: tuple[Dataset, ...], live: Dataset | None = None, **changes: Any) -> PlanRequest:
    """A request with the simulator's password."""
    values: dict[str, Any] = {
        "inventories": inventories,
        "live": live,
        "snapshots": (),
        "layout": Layout.HIERARCHICAL,
        "root": "/ledgers",
        "passwords": Passwords.from_candidates([simulator.PASSWORD]),
        "expected": CLUSTER.names,
        "default_quorum": None,
    }
    return PlanRequest(**{**values, **changes})


def make(request: PlanRequest, out: Path, spark: "SparkSession") -> Dataset:
    """Run the job into a new plan."""
    prepare(out, "plan", secret=True)
    make_plan(request, out, spark, now=lambda: datetime(2030, 1, 1, tzinfo=UTC))
    return open_dataset(out, "plan")


@pytest.fixture(scope="module")
def plan(inventories: tuple[Dataset, ...], spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A plan for an empty store."""
    return make(request_of(inventories), tmp_path_factory.mktemp("plan") / "p", spark)


def test_a_plan_is_bound_to_what_it_was_made_of(
    plan: Dataset, inventories: tuple[Dataset, ...], tmp_path: Path, spark: "SparkSession"
) -> None:
    """Inventories by their digests, the options, and how many passwords there were: other ones make another hash."""
    binding = plan.manifest["binding"]
    assert [one["digest"] for one in binding["inputs"]] == [one.digest for one in inventories]
    assert {one["kind"] for one in binding["inputs"]} == {"inventory"}
    assert binding["options"] == {
        "tail": "inclusive", "default_quorum": None, "passwords": 2, "expected_bookies": sorted(CLUSTER.names)
    }  # fmt: skip
    (tmp_path / "said.jsonl").write_text('{"ledger": 3, "owner": "a topic"}\n')
    known = references.References.unite([references.References(references.read(tmp_path / "said.jsonl"))])
    settings = {"--tail": {"value": "acknowledged", "from": "option"}}
    request = request_of(inventories, references=known, tail=Tail.ACKNOWLEDGED, settings=settings)
    other = make(request, tmp_path / "p", spark)
    assert other.manifest["settings"] == settings
    assert other.manifest["binding"]["options"]["tail"] == "acknowledged"
    assert [one["kind"] for one in other.manifest["binding"]["inputs"]][-1] == "references"


def test_an_id_far_above_all_others_raises_nothing_until_a_person_says_so(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    """In whatever range of buckets it is: it is counted, a finding, and restored; the option raises past it."""
    wrong, rng = 67_108_886, Random(11)
    copies = simulator.copies([simulator.history(rng, ledger, CLUSTER) for ledger in (*range(20), wrong)])
    for name in CLUSTER.names:
        with DatasetWriter(tmp_path / "inv" / name.replace(":", "_"), "inventory", binding={}) as out:
            out.append("copies", copies.filter(pc.equal(copies["bookie"], name)))
            out.append("bookies", simulator.bookies([name]))
            out.close(coverage={})
    opened = open_inventories([str(path) for path in sorted((tmp_path / "inv").iterdir())])
    for raise_past, raised, far in ((None, b"19", 1), (wrong, b"67108886", 0)):
        made = make(request_of(opened, raise_past=raise_past), tmp_path / f"plan-{far}", spark)
        [row] = made.read("actions").filter(pc.field("op") == "raise").to_pylist()
        found = made.read("findings").filter(pc.field("category") == "ID_FAR_ABOVE").to_pylist()
        assert (row["value"], made.manifest["counts"]["ids_far_above"], len(found)) == (raised, far, far)
        assert [("--raise-past" in one["suggested"], one["subject"]) for one in found] == [
            (True, f"/idgen {wrong}")
        ] * far
        assert made.manifest["counts"]["ledgers"] == 21
        assert made.manifest["binding"]["options"].get("raise_past") == raise_past


def test_every_ledger_ends_in_the_plan_and_the_sums_add_up(plan: Dataset) -> None:
    """Each ledger has one row and one write: a record that Java would take, or a hold; counts are of these."""
    counts = plan.manifest["counts"]
    rows = plan.read("reconstruction")
    assert sorted(rows["ledger"].to_pylist()) == list(range(LEDGERS))
    outcomes = Counter(rows["outcome"].to_pylist())
    assert (counts["restored"], counts["held"]) == (outcomes["restored"], outcomes["held"])
    assert counts["restored"] > LEDGERS // 2
    actions = plan.read("actions")
    ledgers = actions.filter(pc.equal(actions["kind"], "ledger"))
    assert sorted(ledgers["ledger"].to_pylist()) == list(range(LEDGERS))
    for raw in ledgers["value"].to_pylist():
        assert not ledger_metadata.problems(ledger_metadata.decode(raw))
    assert plan_reader.overview(plan, shown=0).problems == ()


def test_the_actions_are_read_in_the_order_of_a_restore(plan: Dataset) -> None:
    """Streamed from the parts, sequence numbers ascend over the whole plan: generator first, layout after ledgers."""
    seqs = [seq for batch in plan.batches("actions") for seq in batch["seq"].to_pylist()]
    assert seqs == sorted(set(seqs))
    kinds = [kind for batch in plan.batches("actions") for kind in batch["kind"].to_pylist()]
    assert kinds[0] == "generator"
    assert kinds[-1] != "ledger"
    (generator,) = plan.read("actions").filter(pc.equal(plan.read("actions")["kind"], "generator")).to_pylist()
    assert generator["value"] == str(LEDGERS - 1).encode()


def test_how_the_work_is_cut_changes_nothing_but_holds_random_passwords(
    inventories: tuple[Dataset, ...],
    plan: Dataset,
    spark: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One task or seven: the same rows, and the same writes but for the passwords of holds."""
    monkeypatch.setattr(decide, "bucket_ranges", lambda _rows, **_: bucket_ranges(0, at_least=7))
    other = make(request_of(inventories), tmp_path / "p", spark)
    assert len(other.parts("reconstruction")) == 7
    assert other.read("reconstruction").equals(plan.read("reconstruction"))
    assert [d for d in compare_plans(plan, other) if d.fields or d.first != d.second] == []


def test_what_the_store_has_is_not_proposed_again(
    inventories: tuple[Dataset, ...], spark: "SparkSession", tmp_path: Path
) -> None:
    """With records of every fourth ledger in the store, some under locks, exactly the others are proposed.

    They were made without one bookie. With its inventory, what is proved now takes the place of guarded records, by
    their version, and their locks go.
    """
    less = inventories[1:]
    actions = make(request_of(less), tmp_path / "less", spark).read("actions")
    ledgers = actions.filter(pc.equal(actions["kind"], "ledger"))
    present = ledgers.filter(pc.equal(pc.bit_wise_and(ledgers["ledger"], 3), 0))
    columns = {
        **{name: present[name] for name in tables.KEY_COLUMNS},
        "raw": present["value"],
        "version": pa.array([0] * present.num_rows),
    }
    parsed = ledger_metadata.decode_columns(present["value"].combine_chunks())
    columns |= {name: parsed[name] for name in parsed.column_names}
    missing = {f.name: pa.nulls(present.num_rows, f.type) for f in tables.CATALOG_LEDGERS if f.name not in columns}
    kept = {*present.filter(pc.equal(present["guard"], "lock"))["ledger"].to_pylist()}
    assert len(kept) > 10
    locks = [
        {"path": lock_key(LedgerId(0, n)), "kind": "lock", "raw": encode_guard("00" * 32), "version": 0} for n in kept
    ]
    with DatasetWriter(tmp_path / "live", "catalog", binding={}) as out:
        out.append("ledgers", sort_by_key(pa.table({**columns, **missing})))
        out.append("nodes", pa.Table.from_pylist(locks, schema=tables.CATALOG_NODES))
        out.close(coverage={})
    live = open_dataset(tmp_path / "live", "catalog")
    again = make(request_of(less, live), tmp_path / "p", spark)
    proposed = again.read("actions")
    wanted = {ledger for ledger in range(LEDGERS) if ledger % 4}
    new = proposed.filter(pc.is_in(proposed["op"], pa.array(["create", "hold"])))
    assert set(new["ledger"].drop_null().to_pylist()) == wanted
    assert again.manifest["counts"]["in_store_already"] == LEDGERS - len(wanted)
    assert again.manifest["counts"]["disagreements"] == 0
    # Shapes that the store's records have may tell what copies alone did not.
    told = {*proposed.filter(pc.equal(proposed["op"], "replace"))["ledger"].to_pylist()}
    assert told < kept
    assert again.manifest["counts"]["guarded_in_store"] == len(kept - told)

    whole = make(request_of(inventories, live), tmp_path / "whole", spark)
    assert whole.manifest["counts"]["settled"] > len(kept) // 2
    assert whole.manifest["counts"]["released"] + whole.manifest["counts"]["guarded_in_store"] == len(kept)
    replaced = whole.read("actions").filter(pc.equal(whole.read("actions")["op"], "replace"))
    assert {*replaced["ledger"].to_pylist()} <= kept
    assert {*replaced["expects"].to_pylist()} == {0}


def test_stated_quorums_are_those_of_their_ledgers(
    inventories: tuple[Dataset, ...], plan: Dataset, spark: "SparkSession", tmp_path: Path
) -> None:
    """Of ledgers whose copies show no shape, in its range and nowhere else; the statement is in the plan's hash."""
    quorums = tmp_path / "quorums"
    quorums.write_text("0..199 6/3/3\n")
    stated = StatedQuorums.read(quorums)
    other = make(request_of(inventories, stated_quorums=stated), tmp_path / "p", spark)
    assert other.manifest["binding"]["options"]["quorums"] == ["0..199 6/3/3"]
    assert other.manifest["hash"] != plan.manifest["hash"]
    before, after = ({row["ledger"]: row for row in made.read("reconstruction").to_pylist()} for made in (plan, other))
    assert before.keys() == after.keys()
    differing = {ledger for ledger in before if before[ledger] != after[ledger]}
    assert differing
    assert max(differing) < 200


def test_where_no_lock_is_everybody_is_named_and_settled_later(
    inventories: tuple[Dataset, ...], spark: "SparkSession", tmp_path: Path
) -> None:
    """A plan for etcd without one bookie names it and all who have anything; with its inventory records are final.

    The guarded records are known by their mark, and count as no evidence of shapes.
    """
    less, gone = inventories[1:], CLUSTER.names[0]
    first = make(request_of(less, layout=Layout.ETCD), tmp_path / "first", spark)
    counts, actions = first.manifest["counts"], first.read("actions")
    guarded = actions.filter(pc.is_valid(actions["guard"]))
    assert {*guarded["guard"].to_pylist()} == {"named"}
    assert counts["guarded_by_names"] == counts["guarded"] == guarded.num_rows > 10
    assert counts["held"] == 0
    holders = {row["ledger"]: {*row["holders"]} for row in first.read("reconstruction").to_pylist()}
    for copy in (copy for inventory in less for copy in inventory.read("copies").to_pylist()):
        holders[copy["ledger"]].add(copy["bookie"])
    for row in guarded.to_pylist():
        record = ledger_metadata.decode(row["value"])
        [segment] = record.segments
        assert {*segment.members} == {*holders[row["ledger"]], gone}
        assert record.ensemble_size == record.write_quorum == len(segment.members)
        assert (record.ack_quorum, record.state) == (1, LedgerState.CLOSED)
    ledgers = actions.filter(pc.equal(actions["kind"], "ledger"))
    columns = {name: ledgers[name] for name in tables.KEY_COLUMNS} | {"raw": ledgers["value"]}
    parsed = ledger_metadata.decode_columns(ledgers["value"].combine_chunks())
    columns |= {name: parsed[name] for name in parsed.column_names}
    columns["version"] = pa.array([3] * ledgers.num_rows)
    missing = {f.name: pa.nulls(ledgers.num_rows, f.type) for f in tables.CATALOG_LEDGERS if f.name not in columns}
    with DatasetWriter(tmp_path / "live", "catalog", binding={}) as out:
        out.append("ledgers", sort_by_key(pa.table({**columns, **missing})))
        out.close(coverage={})
    live = open_dataset(tmp_path / "live", "catalog")
    unchanged = make(request_of(less, live, layout=Layout.ETCD), tmp_path / "again", spark)
    told = unchanged.read("actions").filter(pc.equal(unchanged.read("actions")["op"], "replace"))
    assert unchanged.manifest["counts"]["guarded_in_store"] == guarded.num_rows - told.num_rows
    findings = unchanged.read("findings")
    differing = findings.filter(pc.is_in(findings["category"], pa.array(["QUORUM_DIFFERS", "OVER_REPLICATED"])))
    assert not {*differing["ledger"].to_pylist()} & {*guarded["ledger"].to_pylist()}
    whole = make(request_of(inventories, live, layout=Layout.ETCD), tmp_path / "whole", spark)
    final = whole.read("actions").filter(pc.equal(whole.read("actions")["op"], "replace")).to_pylist()
    assert whole.manifest["counts"]["settled"] == len(final) > guarded.num_rows // 2
    assert {(row["guard"], row["expects"]) for row in final} == {(None, 3)}
    assert {row["ledger"] for row in final} <= {*guarded["ledger"].to_pylist()}


def test_a_store_whose_ids_are_past_the_bookies_gets_no_raise(
    inventories: tuple[Dataset, ...], spark: "SparkSession", tmp_path: Path
) -> None:
    """Where nothing has to be written before the ledgers, as after a first restore, a plan is made all the same."""
    node = {"path": "/idgen", "kind": "generator", "raw": b"", "version": 0, "children_created": LEDGERS}
    with DatasetWriter(tmp_path / "live", "catalog", binding={}) as out:
        out.append("nodes", pa.Table.from_pylist([node], schema=tables.CATALOG_NODES))
        out.close(coverage={})
    again = make(request_of(inventories, open_dataset(tmp_path / "live", "catalog")), tmp_path / "p", spark)
    kinds = Counter(again.read("actions")["kind"].to_pylist())
    assert kinds["generator"] == 0
    assert kinds["ledger"] == LEDGERS
    assert plan_reader.overview(again, shown=0).problems == ()


@pytest.mark.parametrize("source", ["counter", "counter of the store", "history", "references"])
def test_the_generator_is_raised_past_every_id_that_any_source_names(
    inventories: tuple[Dataset, ...], spark: "SparkSession", tmp_path: Path, source: str
) -> None:
    """Ids of ledgers that are on no bookie: a counter gave them, history shows them, or an upper layer names them."""
    node = {"path": "/idgen", "kind": "generator", "raw": b"", "version": 0, "children_created": 60_000}
    bucket = int(buckets(np.zeros(1, np.int64), np.array([59_999], np.int64))[0])
    change = {"bucket": bucket, "scope": 0, "ledger": 59_999, "txn": 9, "op": "deleted"}
    with DatasetWriter(tmp_path / "catalog", "catalog", binding={}) as out:
        if source == "history":
            out.append("history", pa.Table.from_pylist([change], schema=tables.CATALOG_HISTORY))
        elif source != "references":
            out.append("nodes", pa.Table.from_pylist([node], schema=tables.CATALOG_NODES))
        out.close(coverage={})
    catalog = open_dataset(tmp_path / "catalog", "catalog")
    changes: dict[str, Any] = {"snapshots": (catalog,)}
    if source == "references":
        (tmp_path / "references.jsonl").write_text(json.dumps({"ledger": 59_999}) + "\n")
        changes = {"references": references.References(references.read(tmp_path / "references.jsonl"))}
    live = catalog if source == "counter of the store" else None
    made = make(request_of(inventories, live, **({} if live else changes)), tmp_path / "p", spark)
    raised = [row["value"] for row in made.read("actions").to_pylist() if row["op"] == "raise"]
    assert raised == ([] if live else [b"59999"])


def test_a_record_that_nobody_can_read_is_critical_and_absence_only_where_all_were_looked_at(
    inventories: tuple[Dataset, ...], spark: "SparkSession", tmp_path: Path
) -> None:
    """An unparsable record, and a ledger of which no bookie knows: both critical, the second if all were scanned."""
    bad = {"scope": 0, "ledger": LEDGERS + 1, "raw": b"?", "version": 0, "error": "no magic"}
    gone = {"scope": 0, "ledger": LEDGERS + 2, "raw": b"x", "version": 0, "state": "CLOSED", "last_entry": 3}
    ids = np.array([bad["ledger"], gone["ledger"]], np.int64)
    rows = [{**r, "bucket": int(b)} for r, b in zip((bad, gone), buckets(np.zeros(2, np.int64), ids), strict=True)]
    with DatasetWriter(tmp_path / "live", "catalog", binding={}) as out:
        out.append("ledgers", pa.Table.from_pylist(rows, schema=tables.CATALOG_LEDGERS))
        out.close(coverage={})
    live = open_dataset(tmp_path / "live", "catalog")
    whole = make(request_of(inventories, live), tmp_path / "p", spark).manifest
    # Entries that a LAC shows, and no bookie has, are critical, too.
    assert whole["counts"]["critical"] == 2 + whole["found"]["ENTRY_LOST"]
    assert make(request_of(inventories[1:], live), tmp_path / "q", spark).manifest["counts"]["critical"] == 1


def test_a_bookie_that_was_not_scanned_is_in_the_coverage(
    inventories: tuple[Dataset, ...], spark: "SparkSession", tmp_path: Path
) -> None:
    """An expected bookie without an inventory is named, and nothing grows more certain by its absence."""
    less = make(request_of(inventories[1:]), tmp_path / "p", spark)
    assert less.manifest["coverage"]["not_scanned"] == [CLUSTER.names[0]]
    grades = pc.struct_field(less.read("reconstruction")["grades"].combine_chunks(), "last_entry")
    assert "observed" not in grades.to_pylist()
    assert "verified" not in grades.to_pylist()


def test_a_task_that_meets_a_damaged_dataset_says_which(
    spark: "SparkSession", inventories: tuple[Dataset, ...], tmp_path: Path
) -> None:
    """The driver raises the task's own error, with the file, not Spark's."""
    broken = Dataset(str(tmp_path / "gone"), inventories[0].manifest)

    def read(wanted: range) -> dict[str, int]:
        return {"rows": broken.read("copies", buckets=wanted).num_rows}

    with pytest.raises(DatasetError, match="gone/copies"):
        over_buckets(spark, read, [range(BUCKETS)])


def test_one_bookie_twice_and_two_clusters_are_refused(inventories: tuple[Dataset, ...], tmp_path: Path) -> None:
    """Both folders are named."""
    path = inventories[0].path
    with pytest.raises(InputError, match="and so does"):
        open_inventories([path, path])
    paths = []
    for number, instance in enumerate(("one", "two")):
        rows = simulator.bookies([f"b{number}:1"]).to_pylist()
        with DatasetWriter(tmp_path / instance, "inventory", binding={}) as out:
            named = [{**row, "instance_id": instance} for row in rows]
            out.append("bookies", pa.Table.from_pylist(named, schema=tables.BOOKIES))
            out.close(coverage={})
        paths.append(str(tmp_path / instance))
    with pytest.raises(InputError, match="recover one cluster at a time"):
        open_inventories(paths)


def test_the_page_of_a_plan_names_its_verdict_and_every_reason(plan: Dataset, inventories: tuple[Dataset, ...]) -> None:
    """One file without scripts or links to a network, with the counts that the manifest has."""
    page = pages.plan_page(plan, inventories, verdict="a verdict", made=datetime(2030, 1, 1, tzinfo=UTC))
    assert "a verdict" in page
    assert "<script" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    for reason in plan.manifest["reasons"]:
        assert reason in page


def test_buckets_of_the_simulator_are_the_models() -> None:
    """What the simulator writes stands in the buckets that readers look in."""
    rows = simulator.copies([simulator.history(Random(1), 5, CLUSTER)])
    assert rows["bucket"].to_pylist() == buckets(rows["scope"].to_numpy(), rows["ledger"].to_numpy()).tolist()


def test_references_supply_and_are_counted(
    inventories: tuple[Dataset, ...], spark: "SparkSession", tmp_path: Path
) -> None:
    """A ledger that an upper layer deleted gets no record; what is in no reference is counted and listed apart."""
    lines = [{"ledger": 1, "deleted": True}, {"ledger": 10_000}, *({"ledger": ledger} for ledger in range(2, 300))]
    path = tmp_path / "references.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    prepare(tmp_path / "plan", "plan", secret=True)
    request = request_of(inventories, references=references.References(references.read(path)))
    made = make_plan(request, tmp_path / "plan", spark, now=lambda: datetime.now(UTC))
    counts = made.references
    assert counts is not None
    assert (counts.referenced, counts.unreferenced, counts.referenced_not_found) == (299, LEDGERS - 299, 1)
    assert counts.some_not_found == (LedgerId(0, 10_000),)
    assert {ledger.ledger for ledger in counts.some_unreferenced} <= {0, *range(300, LEDGERS)}
    assert made.counts.deleted == 1
    plan = open_dataset(tmp_path / "plan", "plan")
    assert read_plan_manifest(plan) == made
    actions = plan.read("actions").to_pylist()
    assert [row["op"] for row in actions if row["ledger"] == 1] == [LEAVE]
    assert not (tmp_path / "plan" / ".spill").exists()


def test_what_an_earlier_store_no_longer_had_is_held(
    inventories: tuple[Dataset, ...], spark: "SparkSession", tmp_path: Path
) -> None:
    """An id that was given out before a complete catalog without it is of a deleted ledger; later ids are new ones."""
    node = {"path": "/idgen", "kind": "generator", "raw": b"", "version": 0, "children_created": 300}
    source = {"kind": "zookeeper", "uri": "zk://x", "at": datetime(2029, 1, 1, tzinfo=UTC), "complete": True}
    with DatasetWriter(tmp_path / "earlier", "catalog", binding={}) as out:
        out.append("nodes", pa.Table.from_pylist([node], schema=tables.CATALOG_NODES))
        row = source | {"root": "present", "gaps": []}
        out.append("sources", pa.Table.from_pylist([row], schema=tables.CATALOG_SOURCES))
        out.close(coverage={"complete": True})
    earlier = open_dataset(tmp_path / "earlier", "catalog")
    rows = make(request_of(inventories, snapshots=(earlier,)), tmp_path / "p", spark).read("reconstruction").to_pylist()
    said = {row["ledger"]: row["reason"] for row in rows if row["outcome"] == "held"}
    assert {ledger for ledger, reason in said.items() if reason == "deleted_before"} == set(range(300))
    assert any(row["outcome"] == "restored" for row in rows if row["ledger"] >= 300)
