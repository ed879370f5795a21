"""Ids of 128 bits on the whole way: bookies' rows, plan, a real ZooKeeper and a real etcd, and catalogs of both."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from reconcile.clusters import open_inventories
from reconcile.jobs.make_plan.plan import make_plan
from reconcile.jobs.make_plan.request import PlanRequest
from reconcile.plan.actions import Passwords
from reconcile.plan.edits import Edits, edit_plan
from reconcile.stores import open_store
from reconcile.write import apply as engine
from recovery.capture.live import capture
from recovery.codecs import ledger_metadata
from recovery.codecs.store import Layout
from recovery.dataset import Dataset, DatasetWriter, open_dataset, prepare
from recovery.model import tables
from recovery.model.ids import LedgerId, buckets, to_signed
from recovery.spark import session
from tests.simulation import simulator
from tests.support.command import process
from tests.support.etcd_server import EtcdServer
from tests.support.zookeeper_server import ZooKeeperServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.real]

CLUSTER = simulator.Cluster(shapes=((3, 2),), bookies=4, lengths=(20,), changes=(0,))
SCOPES = (0, 7, to_signed((1 << 64) - 1))
PLAIN = [LedgerId(0, number) for number in range(20)]
SCOPED = [LedgerId(7, 1000 + number) for number in range(20)] + [LedgerId(-1, -1 - number) for number in range(20)]


def now() -> datetime:
    """The tests' clock."""
    return datetime(2030, 1, 1, tzinfo=UTC)


def inventories(ledgers: list[LedgerId], folder: Path) -> tuple[Dataset, ...]:
    """Inventories of four bookies that hold simulated ledgers of these ids."""
    rng = Random(3)
    copies = simulator.copies([simulator.history(rng, number, CLUSTER) for number in range(len(ledgers))])
    which = copies["ledger"].to_numpy()
    scope = np.array([one.scope for one in ledgers], np.int64)[which]
    ledger = np.array([one.ledger for one in ledgers], np.int64)[which]
    for name, values in (("bucket", buckets(scope, ledger)), ("scope", scope), ("ledger", ledger)):
        at = tables.COPIES.get_field_index(name)
        copies = copies.set_column(at, tables.COPIES.field(at), pa.array(values))
    for name in CLUSTER.names:
        with DatasetWriter(folder / name.replace(":", "_"), "inventory", binding={}) as out:
            out.append("copies", copies.filter(pc.equal(copies["bookie"], name)))
            out.append("bookies", simulator.bookies([name]))
            out.close(coverage={})
    return open_inventories([str(path) for path in sorted(folder.iterdir())])


@pytest.fixture(scope="module")
def spark() -> "Iterator[SparkSession]":
    """One session for this module."""
    with session("local[1]") as running:
        yield running


def plan_of(
    given: tuple[Dataset, ...], layout: Layout, root: str, out: Path, spark: "SparkSession", **more: Any
) -> Dataset:
    """The plan that brings these ledgers into an empty store."""
    values: dict[str, Any] = {"live": None, "snapshots": (), "default_quorum": None, **more}
    request = PlanRequest(
        inventories=given,
        layout=layout,
        root=root,
        passwords=Passwords.from_candidates([simulator.PASSWORD]),
        expected=CLUSTER.names,
        **values,
    )
    prepare(out, "plan", secret=True)
    make_plan(request, out, spark, now=now)
    return open_dataset(out, "plan")


def restored(plan: Dataset, uri: str, folder: Path) -> Dataset:
    """Apply a plan to a store, and capture what is there then."""
    with open_store(uri, writable=True) as opened:
        options = engine.ApplyOptions(plan_hash=plan.manifest["hash"], accept_unfrozen=True)
        done = engine.apply(
            lambda: plan.batches("actions"), opened.store, opened.root, folder / "journal", options, now=now
        )
        assert done.exit_code == 0
    with open_store(uri) as opened:
        named = Layout(opened.layout_hint) if opened.layout_hint else None
        with DatasetWriter(folder / "catalog", "catalog", binding={"root": opened.root}, secret=True) as out:
            capture(opened.store, opened.root, named, out, clock=now)
    return open_dataset(folder / "catalog", "catalog")


def test_the_same_ledgers_in_zookeeper_and_in_etcd_are_one_catalog(
    spark: "SparkSession", zookeeper_server: ZooKeeperServer, etcd_server: EtcdServer, tmp_path: Path
) -> None:
    """From bookies' rows through a plan into both stores: equal ids, bytes and parsed fields, and those of the plan."""
    given = inventories(PLAIN + SCOPED, tmp_path / "inventories")
    etcd_server.wipe()
    uris = {
        Layout.LONGLONGHIERARCHICAL: f"zk+longlonghierarchical://{zookeeper_server.hosts}/scopes/ledgers",
        Layout.ETCD: f"etcd://{etcd_server.hosts}/scopes",
    }
    found = {}
    for layout, uri in uris.items():
        plan = plan_of(
            given, layout, uri.split("/", 3)[-1] and "/" + uri.split("/", 3)[-1], tmp_path / str(layout), spark
        )
        counts = plan.manifest["counts"]
        assert (counts["restored"], counts["looked_at"]) == (len(PLAIN + SCOPED), len(PLAIN + SCOPED))
        actions = plan.read("actions").filter(pc.equal(plan.read("actions")["kind"], "ledger"))
        wanted = {LedgerId(row["scope"], row["ledger"]): row["value"] for row in actions.to_pylist()}
        assert wanted.keys() == {*PLAIN, *SCOPED}
        catalog = restored(plan, uri, tmp_path / f"{layout}-store")
        names = [name for name in tables.CATALOG_LEDGERS.names if name not in ("version", "acl") and "_txn" not in name]
        rows = catalog.read("ledgers", columns=[name for name in names if not name.endswith("_at")])
        assert {LedgerId(row["scope"], row["ledger"]): row["raw"] for row in rows.to_pylist()} == wanted
        found[layout] = rows
    assert found[Layout.ETCD].equals(found[Layout.LONGLONGHIERARCHICAL])
    uri = uris[Layout.LONGLONGHIERARCHICAL]
    for words in (["7:1005"], ["0x7:0x3ed"], [LedgerId(7, 1005).qualified_name], ["1005", "--ledger-scope-id", "7"]):
        done = process("explain", *words, "--metadata", uri, "--json")
        assert (done.code, done.result["ledger"]) == (0, "7:1005")
        assert done.result["stored"]["state"] == "CLOSED"


def test_ledgers_that_share_the_lower_half_are_held_and_named(spark: "SparkSession", tmp_path: Path) -> None:
    """One of scope 0 and one of scope 7: neither comes back by itself, both are findings; the others come back."""
    twins = [LedgerId(0, 5), LedgerId(7, 5)]
    given = inventories([*PLAIN, LedgerId(7, 5), LedgerId(7, 1000)], tmp_path / "inventories")
    plan = plan_of(given, Layout.LONGLONGHIERARCHICAL, "/ledgers", tmp_path / "plan", spark)
    findings = [row for row in plan.read("findings").to_pylist() if row["category"] == "SCOPE_COLLISION"]
    assert {LedgerId(row["scope"], row["ledger"]) for row in findings} == set(twins)
    rows = plan.read("reconstruction").to_pylist()
    held = {LedgerId(row["scope"], row["ledger"]): row["reason"] for row in rows if row["outcome"] == "held"}
    assert held == dict.fromkeys(twins, "scope_collision")
    counts = plan.manifest["counts"]
    assert sum(counts[name] for name in ("clean", "skipped", "undecided", "with_findings")) == counts["looked_at"]
    assert not (Path(plan.path) / ".spill").exists()
    # A person who knows the bookies can have either; its record is in the plan.
    edit_plan(plan, Edits(choose={twins[1]: "from bookies"}), tmp_path / "chosen")
    ops = {row["ledger"]: row["op"] for row in plan.read("actions").to_pylist() if row["kind"] == "ledger"}
    chosen = open_dataset(tmp_path / "chosen", "plan").read("actions").to_pylist()
    (row,) = [row for row in chosen if (row["scope"], row["ledger"]) == (7, 5) and row["kind"] == "ledger"]
    assert (ops[5], row["op"], ledger_metadata.decode(row["value"]).state) == ("hold", "create", "CLOSED")
