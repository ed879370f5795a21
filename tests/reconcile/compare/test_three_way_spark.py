"""Bookies, the store, and what it held earlier, compared on real bytes: who is right, and what is never brought back.

The cluster's disks and its ZooKeeper's files are those of real servers: nine ledgers were deleted by the Java client,
and only two of five bookies had collected them.
"""

import base64
import dataclasses
import functools
import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pytest

from backends.protocols import Write
from reconcile.cli.commands.recover import make_result
from reconcile.cli.options import quote_command
from reconcile.cli.output import Result
from reconcile.cli.wording.plans import deletion_lines
from reconcile.clusters import open_inventories
from reconcile.compare.knowledge import Knowledge
from reconcile.errors import PlanError
from reconcile.explain.ledger import explain
from reconcile.jobs.diagnose.explain import read_catalog
from reconcile.jobs.make_plan.plan import make_plan
from reconcile.jobs.make_plan.request import PlanRequest
from reconcile.jobs.recover import Recovered
from reconcile.plan import plan_reader
from reconcile.plan.actions import LEAVE, Passwords
from reconcile.plan.edits import Edits, edit_plan
from reconcile.plan.manifest import read_plan_manifest
from reconcile.plan.views import deletions
from reconcile.references import References, read
from reconcile.report import pages
from reconcile.rules.holds import HOLD_MARK
from reconcile.stores import open_store
from reconcile.write import apply as engine
from recovery.capture.live import capture
from recovery.codecs import ledger_metadata, store
from recovery.codecs.store import Layout
from recovery.collect.pipeline import collect
from recovery.dataset import Dataset, DatasetWriter, open_dataset, prepare
from recovery.errors import InputError
from recovery.infer.search import Tail
from recovery.model.ids import LedgerId
from recovery.model.metadata import NO_ENTRY, Digest, LedgerMetadata, LedgerState, Segment
from recovery.spark import session
from tests.recovery.collect.test_pipeline_golden import options
from tests.simulation import simulator
from tests.support.cases import case_dir, operator, truth
from tests.support.command import run
from tests.support.findings import found
from tests.support.memory_store import MemoryStore
from tests.support.scannable_store import ScannableMemory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CASE = "c07-deletes"
ROOT = "/ledgers"
DELETED = {one["ledger"] for one in truth(CASE)["deleted"]}
Recover = Callable[..., Dataset]


def now() -> datetime:
    """The tests' clock."""
    return datetime(2030, 1, 1, tzinfo=UTC)


def captured(
    source: Any, folder: Path, layout: Layout | None = Layout.HIERARCHICAL, *, at: str | None = None
) -> Dataset:
    """Capture an open store, or the store of a URI; `at` is the point in time that a person named."""
    binding = {"root": ROOT} | ({} if at is None else {"at": at})
    with DatasetWriter(folder, "catalog", binding=binding, secret=True) as out:
        if isinstance(source, str):
            with open_store(source) as opened:
                capture(opened.store, ROOT, None, out, clock=now)
        else:
            capture(source, ROOT, layout, out, clock=now)
    return open_dataset(folder, "catalog")


def files(name: str) -> str:
    """The URI of a ZooKeeper's files of the case."""
    return f"zkfiles://{case_dir(CASE)}/{name}"


def show_plan(plan: Dataset) -> Result:
    """Return what `recover` shows of a plan, whose root the store has."""
    return make_result(Recovered(plan, read_plan_manifest(plan), None))


@pytest.fixture(scope="module")
def spark() -> "Iterator[SparkSession]":
    """One session for this module."""
    with session("local[1]") as running:
        yield running


@pytest.fixture(scope="module")
def inventories(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, ...]:
    """The disks of the five bookies."""
    folder = tmp_path_factory.mktemp("inventories")
    for number in range(len(operator(CASE)["bookies"])):
        collect(options(CASE, number), folder / str(number), now=now, progress=lambda _: None)
    return open_inventories([str(path) for path in sorted(folder.iterdir())])


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Dataset]:
    """Gives the catalog of a ZooKeeper's files of the case."""

    @functools.cache
    def made(name: str) -> Dataset:
        return captured(files(name), tmp_path_factory.mktemp("catalog") / name)

    return made


@pytest.fixture
def recovered(spark: "SparkSession", tmp_path: Path) -> Recover:
    """Gives the plan of inventories, a store and snapshots."""

    def made(
        name: str,
        inventories: tuple[Dataset, ...],
        *,
        live: Dataset | None = None,
        snapshots: tuple[Dataset, ...] = (),
        **changes: Any,
    ) -> Dataset:
        values: dict[str, Any] = {
            "layout": Layout.HIERARCHICAL,
            "root": ROOT,
            "passwords": Passwords.from_candidates([one.encode() for one in operator(CASE)["passwords"]]),
            "expected": tuple(one["id"] for one in operator(CASE)["bookies"]),
            "default_quorum": None,
        }
        request = PlanRequest(inventories=inventories, live=live, snapshots=snapshots, **{**values, **changes})
        prepare(tmp_path / name, "plan", secret=True)
        make_plan(request, tmp_path / name, spark, now=now)
        return open_dataset(tmp_path / name, "plan")

    return made


def adds_up(plan: Dataset) -> None:
    """Every ledger that was looked at is in one class, and the manifest's sums say so."""
    counts = plan.manifest["counts"]
    assert sum(counts[name] for name in ("clean", "skipped", "undecided", "with_findings")) == counts["looked_at"]
    assert sum(plan.manifest["sides"].values()) == counts["looked_at"] == plan.rows("sides")
    assert plan_reader.overview(plan, shown=0).problems == ()


def applied(plan: Dataset, target: MemoryStore, journal: Path) -> None:
    """Write a plan into a store."""
    options_ = engine.ApplyOptions(plan_hash=plan.manifest["hash"])
    engine.apply(lambda: plan.batches("actions"), target, ROOT, journal, options_, now=now)


def said(finding: dict[str, Any]) -> dict[str, str]:
    """The evidence of a finding by field."""
    return {one["field"]: one["value"] for one in finding["evidence"]}


def test_deleted_ledgers_stay_deleted_and_a_choice_brings_one_back_byte_for_byte(
    inventories: tuple[Dataset, ...], catalog: Callable[[str], Dataset], recovered: Recover, tmp_path: Path
) -> None:
    """Each of the nine is named with transaction, session and time; none is restored; the rest come back.

    A choice writes the record as it stood right before the deletion: that of the files up to the transaction before.
    """
    past = catalog("zookeeper")
    plan = recovered("plan", inventories, snapshots=(past,))
    adds_up(plan)
    deleted = found(plan, "DELETED_OUTSIDE")
    assert deleted.keys() == DELETED
    for finding in deleted.values():
        facts = said(finding)
        assert facts["deleted by session"].startswith("0x")
        assert facts["deleted at"].startswith("2026-11-21 07:18")
        assert finding["suggested"]
    assert show_plan(plan).exit_code == 3
    page = pages.plan_page(plan, inventories, verdict="a verdict", made=now())
    assert page.count("DELETED_OUTSIDE") == len(DELETED) + 1
    assert "deleted by session" in page
    actions = {row["ledger"]: row for row in plan.read("actions").to_pylist() if row["kind"] == "ledger"}
    assert {ledger for ledger, row in actions.items() if row["op"] == LEAVE} == DELETED
    assert {ledger for ledger, row in actions.items() if row["op"] != LEAVE}.isdisjoint(DELETED)
    assert plan.manifest["counts"]["deleted"] == len(DELETED)
    # The transaction that deleted it is the one after which the files no longer have it.
    ledger = min(DELETED)
    txn = int(said(deleted[ledger])["deleted in transaction"].split()[0])
    key = ROOT + store.ledger_key(Layout.HIERARCHICAL, LedgerId(0, ledger))
    with (
        open_store(files("zookeeper"), at=str(txn - 1)) as before,
        open_store(files("zookeeper"), at=str(txn)) as after,
    ):
        last = before.store.get(key)
        assert last is not None
        assert after.store.get(key) is None
    chosen = edit_plan(plan, Edits(choose={LedgerId(0, ledger): "restore"}), tmp_path / "chosen")
    assert chosen.counts.deleted == len(DELETED) - 1
    edited = open_dataset(tmp_path / "chosen", "plan")
    assert plan_reader.overview(edited, shown=0).problems == ()
    target = MemoryStore()
    applied(edited, target, tmp_path / "journal")
    held = target.get(key)
    assert held is not None
    assert held.value == last.value
    for other in DELETED - {ledger}:
        assert target.get(ROOT + store.ledger_key(Layout.HIERARCHICAL, LedgerId(0, other))) is None


def test_the_bookies_whose_index_dropped_a_deleted_ledger_are_named(
    inventories: tuple[Dataset, ...], catalog: Callable[[str], Dataset], recovered: Recover
) -> None:
    """Those that have it in entry logs and not in their index, as their own inventories say: they need a new index."""
    plan = recovered("plan", inventories, snapshots=(catalog("zookeeper"),))
    rows = [row for inventory in inventories for row in inventory.read("copies").to_pylist()]
    indexed, logged = (
        {(row["ledger"], row["bookie"]) for row in rows if row["source"] == source} for source in ("index", "log")
    )
    named = {(ledger, name) for ledger, row in found(plan, "DELETED_OUTSIDE").items() for name in row["bookies"]}
    assert named == {one for one in logged - indexed if one[0] in DELETED}
    assert named


def test_without_the_log_a_deletion_is_not_made_up(
    inventories: tuple[Dataset, ...], catalog: Callable[[str], Dataset], recovered: Recover
) -> None:
    """With a backup from before the deletions nothing calls a ledger deleted, and none is left alone."""
    plan = recovered("plan", inventories, snapshots=(catalog("zookeeper-old"),))
    adds_up(plan)
    assert found(plan, "DELETED_OUTSIDE") == {}
    assert plan.manifest["counts"]["deleted"] == plan.manifest["counts"]["left_alone"] == 0


def test_deletions_of_most_ledgers_are_a_catastrophe_and_everything_is_held(
    inventories: tuple[Dataset, ...], recovered: Recover, tmp_path: Path
) -> None:
    """Somebody removed the whole tree: its log says so of every ledger, and none is left to be deleted by bookies."""
    source = ScannableMemory()
    source.put(ROOT + store.LAYOUT, store.layout_bytes(Layout.HIERARCHICAL))
    records = {one["ledger"]: one for one in truth(CASE)["ledgers"]}
    for ledger in records:
        source.put(ROOT + store.ledger_key(Layout.HIERARCHICAL, LedgerId(0, ledger)), b"any")
    for ledger in records:
        source.put(ROOT + store.ledger_key(Layout.HIERARCHICAL, LedgerId(0, ledger)), None)
    plan = recovered("plan", inventories, snapshots=(captured(source, tmp_path / "emptied", None),))
    adds_up(plan)
    assert plan.manifest["mass_deletion"]
    assert plan.manifest["counts"]["deleted"] == 0
    rows = {row["ledger"]: row for row in plan.read("reconstruction").to_pylist()}
    assert all(rows[ledger]["reason"] == "mass_deletion" for ledger in records if ledger in rows)
    assert all(row["outcome"] == "held" for ledger, row in rows.items() if ledger in records)


def test_deletions_are_shown_by_session_and_undone_by_session(
    inventories: tuple[Dataset, ...], recovered: Recover, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Retention deleted eleven ledgers, then one session eight by mistake: each with its transactions and times.

    The command that is printed restores the eight byte for byte and nothing else. With the store as it was before them
    the eleven are still held, but nobody is sent to an even earlier capture.
    """
    records = {one["ledger"]: base64.b64decode(one["raw"]) for one in truth(CASE)["ledgers"]}
    held = {
        row for inventory in inventories for row in inventory.read("copies", columns=["ledger"])["ledger"].to_pylist()
    }
    by_retention, by_mistake = sorted(records)[:11], sorted(records)[11:19]
    source = ScannableMemory()
    source.put(ROOT + store.LAYOUT, store.layout_bytes(Layout.HIERARCHICAL))
    for ledger in DELETED:
        source.put(ROOT + store.ledger_key(Layout.HIERARCHICAL, LedgerId(0, ledger)), b"kept")
    for ledger, raw in records.items():
        source.put(ROOT + store.ledger_key(Layout.HIERARCHICAL, LedgerId(0, ledger)), raw)
    source.session = 0x200
    for ledger in by_retention:
        source.put(ROOT + store.ledger_key(Layout.HIERARCHICAL, LedgerId(0, ledger)), None)
    chosen = source.point().txn
    assert chosen is not None
    before = captured(source, tmp_path / "before", None, at=str(chosen))
    source.session = -5
    for ledger in by_mistake:
        source.put(ROOT + store.ledger_key(Layout.HIERARCHICAL, LedgerId(0, ledger)), None)
    plan = recovered("plan", inventories, snapshots=(captured(source, tmp_path / "after", None),))
    assert plan.manifest["mass_deletion"]
    sessions = deletions.group_by_session(plan)
    assert [(one.name, one.ledgers, one.on_bookies, one.undecided) for one in sessions] == [
        ("0x200", 11, len(held & set(by_retention)), len(held & set(by_retention))),
        ("0xfffffffffffffffb", 8, len(held & set(by_mistake)), len(held & set(by_mistake))),
    ]
    assert sessions[1].first_txn == chosen + 1
    assert sessions[1].last_txn == chosen + 8
    said = show_plan(plan)
    assert f"  session 0xfffffffffffffffb: 8 ledgers ({sessions[1].on_bookies} on bookies), " in "\n".join(said.details)
    printed = quote_command("bkmeta", "capture", "--metadata", source.uri + ROOT, "--at", chosen, "--out", "")
    assert printed.removesuffix("''") in "\n".join(said.details)
    shown = run(capsys, "plan", "show", plan.path)
    printed = next(line for line in shown.out.splitlines() if "--restore-deleted-by 0xfffffffffffffffb" in line)
    words = shlex.split(printed.partition(": bkmeta ")[2])
    assert run(capsys, *words, "--accept-deleted-by", "0x200").code == 0
    edited = open_dataset(tmp_path / "plan-2", "plan")
    assert plan_reader.overview(edited, shown=0).problems == ()
    assert not any("bkmeta" in line for line in deletion_lines(edited, deletions.group_by_session(edited)))
    target = MemoryStore()
    applied(edited, target, tmp_path / "journal")
    for ledger in held & set(by_mistake):
        stored = target.get(ROOT + store.ledger_key(Layout.HIERARCHICAL, LedgerId(0, ledger)))
        assert stored is not None
        assert stored.value == records[ledger]
    for ledger in by_retention:
        assert target.get(ROOT + store.ledger_key(Layout.HIERARCHICAL, LedgerId(0, ledger))) is None
    again = recovered("again", inventories, snapshots=(before,))
    [retention] = deletions.group_by_session(again)
    assert retention.ledgers == 11
    lines = "\n".join(show_plan(again).details)
    assert "session 0x200: 11 ledgers" in lines
    assert "bkmeta capture" not in lines
    assert "--accept-deleted-by 0x200" in lines


def test_empty_ledgers_that_a_session_deleted_come_back_too(
    inventories: tuple[Dataset, ...], recovered: Recover, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a ledger without entries no bookie has anything: its record comes back as the others', and the sums hold.

    A ledger on no bookie whose record names entries stays deleted: they are gone.
    """
    records = {one["ledger"]: base64.b64decode(one["raw"]) for one in truth(CASE)["ledgers"]}
    held = sorted(
        {row for inventory in inventories for row in inventory.read("copies", columns=["ledger"])["ledger"].to_pylist()}
    )
    ensemble = (Segment(0, ("b1", "b2", "b3")),)
    closed = LedgerMetadata(
        3, 3, 2, 2, LedgerState.CLOSED, NO_ENTRY, 0, ensemble, Digest.CRC32C, b"pw", creator_token=0
    )
    empty = ledger_metadata.encode(closed)
    gone = ledger_metadata.encode(dataclasses.replace(closed, last_entry=3, length=4))
    by_mistake = {held[0]: records[held[0]], 900001: empty, 900002: empty, 900003: gone}
    source = ScannableMemory()
    source.put(ROOT + store.LAYOUT, store.layout_bytes(Layout.HIERARCHICAL))
    for ledger, raw in {**records, **by_mistake}.items():
        source.put(ROOT + store.ledger_key(Layout.HIERARCHICAL, LedgerId(0, ledger)), raw)
    source.session = 7
    for ledger in by_mistake:
        source.put(ROOT + store.ledger_key(Layout.HIERARCHICAL, LedgerId(0, ledger)), None)
    plan = recovered("plan", inventories, snapshots=(captured(source, tmp_path / "after", None),))
    ended = run(capsys, "plan", "edit", plan.path, "--restore-deleted-by", "0x7", "--out", tmp_path / "edited")
    assert ended.code == 0
    edited = open_dataset(tmp_path / "edited", "plan")
    assert read_plan_manifest(edited).counts.add_up
    target = MemoryStore()
    applied(edited, target, tmp_path / "journal")
    stored = {n: target.get(ROOT + store.ledger_key(Layout.HIERARCHICAL, LedgerId(0, n))) for n in by_mistake}
    assert {n: None if node is None else node.value for n, node in stored.items()} == {**by_mistake, 900003: None}


def test_a_session_that_deleted_nothing_is_no_edit(
    inventories: tuple[Dataset, ...], catalog: Callable[[str], Dataset], recovered: Recover, tmp_path: Path
) -> None:
    """A wrong session is said to be wrong, instead of a plan that is the same as before."""
    plan = recovered("plan", inventories, snapshots=(catalog("zookeeper"),))
    with pytest.raises(PlanError, match="session 0x1 deleted"):
        deletions.select_deleted_by(plan, [1], restorable=False)
    every = {one.session for one in deletions.group_by_session(plan)}
    assert deletions.select_deleted_by(plan, sorted(every, key=str), restorable=True) == {
        LedgerId(0, n) for n in DELETED
    }


def test_sessions_of_an_earlier_catalog_are_named_and_never_written(
    inventories: tuple[Dataset, ...], catalog: Callable[[str], Dataset], recovered: Recover, tmp_path: Path
) -> None:
    """A backup taken while bookies ran has their registrations: findings, and none of them in the restored root."""
    empty = captured(MemoryStore(), tmp_path / "empty")
    plan = recovered("plan", inventories, live=empty, snapshots=(catalog("zookeeper-old"),))
    names = [one["id"] for one in operator(CASE)["bookies"]]
    assert found(plan, "EPHEMERAL_NOT_RESTORED").keys() == {f"{store.AVAILABLE}/{name}" for name in names}
    target = MemoryStore()
    applied(plan, target, tmp_path / "journal")
    assert target.children(ROOT + store.AVAILABLE) == ["readonly"]
    assert target.children(ROOT + store.READ_ONLY) == []
    assert target.children(ROOT + store.LOCKS) is None


def test_registrations_that_somebody_restored_as_permanent_are_critical(
    inventories: tuple[Dataset, ...], recovered: Recover, tmp_path: Path
) -> None:
    """A permanent registration, a permanent lock, a mark without its ledger, cookies that are not the bookies' own."""
    names = [one["id"] for one in operator(CASE)["bookies"]]
    made = MemoryStore()
    marked = f"{store.MARKS}/0000/0000/0000/03e7/urL0000000999"
    for path, value in {
        store.LAYOUT: store.layout_bytes(Layout.LONGHIERARCHICAL),
        store.INSTANCE_ID: b"another",
        f"{store.COOKIES}/{names[0]}": b'5\nbookieHost: "elsewhere"\n',
        f"{store.COOKIES}/gone:3181": b"5\n",
        f"{store.AVAILABLE}/{names[0]}": b"",
        f"{store.LOCKS}/urL0000000001": b'bookieId: "worker"\n',
        marked: b"",
    }.items():
        made.write([Write(ROOT + path, value)])
    made.put_ephemeral(f"{ROOT}{store.AVAILABLE}/{names[1]}", b"", 7)
    live = captured(made, tmp_path / "live", Layout.LONGHIERARCHICAL)
    plan = recovered("plan", inventories, live=live, layout=Layout.LONGHIERARCHICAL)
    adds_up(plan)
    assert found(plan, "DEAD_REGISTRATION").keys() == {f"{store.AVAILABLE}/{names[0]}"}
    assert found(plan, "DEAD_LOCK").keys() == {f"{store.LOCKS}/urL0000000001"}
    assert found(plan, "COOKIE_DIFFERS").keys() == {f"{store.COOKIES}/{names[0]}"}
    assert found(plan, "COOKIE_WITHOUT_BOOKIE").keys() == {f"{store.COOKIES}/gone:3181"}
    assert found(plan, "BOOKIE_WITHOUT_COOKIE").keys() == {f"{store.COOKIES}/{name}" for name in names[1:]}
    assert found(plan, "INSTANCE_ID_DIFFERS").keys() == {store.INSTANCE_ID}
    assert found(plan, "STALE_UR_MARK").keys() == {999}
    assert plan.manifest["counts"]["critical"] >= 3
    again = recovered("again", inventories, live=live, layout=Layout.LONGHIERARCHICAL)
    ids = [sorted(row["id"] for row in one.read("findings").to_pylist()) for one in (plan, again)]
    assert ids[0] == ids[1]


def test_the_store_and_earlier_catalogs_are_compared_without_bookies(
    catalog: Callable[[str], Dataset], recovered: Recover
) -> None:
    """Live against earlier alone: deletions with their proof, what was created since; nothing is proposed."""
    now_, past = catalog("zookeeper"), catalog("zookeeper-old")
    plan = recovered("plan", (), live=now_, snapshots=(past,), expected=None)
    adds_up(plan)
    assert [row["op"] for row in plan.read("actions").to_pylist() if row["op"] != LEAVE] == []
    had = {row["ledger"]: row["raw"] for row in past.read("ledgers").to_pylist()}
    has = {row["ledger"]: row["raw"] for row in now_.read("ledgers").to_pylist()}
    sides = {row["ledger"]: row for row in plan.read("sides").to_pylist()}
    assert {ledger for ledger, row in sides.items() if row["relation"] == "deleted"} == DELETED
    assert {ledger for ledger, row in sides.items() if row["relation"] == "created"} == has.keys() - had.keys()
    assert {ledger for ledger, row in sides.items() if row["relation"] == "equal"} == {
        ledger for ledger in had.keys() & has.keys() if had[ledger] == has[ledger]
    }
    assert found(plan, "NOT_ON_BOOKIES") == {}


def test_three_records_that_nobody_can_read_are_three_findings_and_the_rest_is_looked_at(
    recovered: Recover, tmp_path: Path
) -> None:
    """Empty, cut, of an unknown version, among four hundred: their bytes are kept, and what bookies show is offered."""
    cluster = simulator.Cluster(shapes=((3, 2),), bookies=4, lengths=(5, 20))
    rng = Random(5)
    histories = [simulator.history(rng, ledger, cluster) for ledger in range(400)]
    copies = simulator.copies(histories)
    for name in cluster.names:
        with DatasetWriter(tmp_path / "inventories" / name.replace(":", "_"), "inventory", binding={}) as out:
            out.append("copies", copies.filter(pc.equal(copies["bookie"], name)))
            out.append("bookies", simulator.bookies([name]))
            out.close(coverage={})
    inventories = open_inventories([str(path) for path in sorted((tmp_path / "inventories").iterdir())])
    common: dict[str, Any] = {"passwords": Passwords.from_candidates([simulator.PASSWORD]), "expected": cluster.names}
    whole = recovered("whole", inventories, **common)
    created = [row for row in whole.read("actions").to_pylist() if (row["op"], row["kind"]) == ("create", "ledger")]
    records = {row["ledger"]: row["value"] for row in created}
    broken = (b"", records[min(records)][:40], b"BookieMetadataFormatVersion\t9\nx")
    bad = dict(zip(sorted(records)[:3], broken, strict=True))
    live = ScannableMemory()
    live.put(ROOT + store.LAYOUT, store.layout_bytes(Layout.HIERARCHICAL))
    for ledger, value in {**records, **bad}.items():
        live.put(ROOT + store.ledger_key(Layout.HIERARCHICAL, LedgerId(0, ledger)), value)
    source = captured(live, tmp_path / "live", None)
    plan = recovered("plan", inventories, live=source, **common)
    adds_up(plan)
    assert found(plan, "METADATA_UNPARSABLE").keys() == bad.keys()
    # Their histories have tails on fewer bookies than acknowledge an entry: records that close behind them show it; and
    # torn ends, with entries behind a gap: records that close before it or behind it show that.
    findings = plan.read("findings")
    critical = findings.filter(pc.equal(findings["severity"], "critical")).to_pylist()
    torn = {"BELOW_ACK_QUORUM", "ENTRY_LOST", "ENTRIES_MISSING"}
    short = [row["ledger"] for row in critical if row["category"] in torn]
    assert not bad.keys() & {*short}
    assert plan.manifest["counts"]["critical"] == 3 + len(short)
    raws = {row["ledger"]: row["raw"] for row in source.read("ledgers").to_pylist() if row["error"] is not None}
    assert raws == bad
    offered = {row["ledger"]: row for row in plan.read("actions").to_pylist() if row["op"] == LEAVE}
    assert offered.keys() == bad.keys()
    choice = {LedgerId(0, ledger): "from bookies" for ledger in bad}
    edit_plan(plan, Edits(choose=choice), tmp_path / "edited")
    made = open_dataset(tmp_path / "edited", "plan")
    assert plan_reader.overview(made, shown=0).problems == ()
    applied(made, live, tmp_path / "journal")
    for ledger in bad:
        held = live.get(ROOT + store.ledger_key(Layout.HIERARCHICAL, LedgerId(0, ledger)))
        assert held is not None
        assert held.value == records[ledger]
        assert not ledger_metadata.problems(ledger_metadata.decode(held.value))


@pytest.mark.parametrize("evidence", ["alone", "history", "older", "tail", "unnamed", "references"])
def test_an_explanation_is_what_the_plan_decides(
    evidence: str,
    inventories: tuple[Dataset, ...],
    catalog: Callable[[str], Dataset],
    recovered: Recover,
    tmp_path: Path,
) -> None:
    """From the same evidence it has the same outcome, reason, fields, grades and other readings, without the plan."""
    snapshots: tuple[Dataset, ...] = ()
    changes: dict[str, Any] = {}
    knowledge: dict[str, Any] = {"expected": tuple(one["id"] for one in operator(CASE)["bookies"])}
    if evidence in ("history", "older", "references"):
        snapshots = (catalog("zookeeper" if evidence == "history" else "zookeeper-old"),)
    if evidence == "tail":
        changes = {"tail": Tail.ACKNOWLEDGED, "default_quorum": (3, 2, 2)}
        knowledge |= changes
    if evidence == "unnamed":
        changes = {"expected": None}
        knowledge |= changes
    if evidence == "references":
        lines = [{"ledger": one["ledger"], "last_entry": one["last"]} for one in truth(CASE)["ledgers"][::2]]
        lines += [{"ledger": one["ledger"], "deleted": True} for one in truth(CASE)["ledgers"][1::4]]
        (tmp_path / "known.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        given = References(read(tmp_path / "known.jsonl"))
        changes, knowledge["references"] = {"references": given}, given.rows
    plan = recovered("plan", inventories, snapshots=snapshots, **changes)
    adds_up(plan)
    known = Knowledge(
        passwords=Passwords.from_candidates([one.encode() for one in operator(CASE)["passwords"]]).values,
        layout=Layout.HIERARCHICAL,
        **knowledge,
    )
    rows = {row["ledger"]: row for row in plan.read("reconstruction").to_pylist()}
    # Three of each outcome: each explanation counts all shapes anew.
    kinds: dict[tuple[str, str | None], list[int]] = {}
    for number in sorted(plan.read("sides")["ledger"].to_pylist()):
        row = rows.get(number, {"outcome": "", "reason": None})
        kinds.setdefault((row["outcome"], row["reason"]), []).append(number)
    ledgers = [number for numbers in kinds.values() for number in numbers[:3]]
    assert len(ledgers) >= 3
    for number in ledgers:
        ledger = LedgerId(0, number)
        stored = [read_catalog(one.path, one, ledger) for one in snapshots]
        planned = explain(ledger, inventories, stored, plan, known, has_store=False)
        made = explain(ledger, inventories, stored, None, known, has_store=False)
        assert (made.outcome, made.reason) == (planned.outcome, planned.reason), number
        assert made.fields == planned.fields, number
        assert made.grid == planned.grid
        assert made.alternatives[: len(planned.alternatives)] == planned.alternatives


def test_with_the_aliases_records_of_other_names_are_what_they_are_with_ids(
    inventories: tuple[Dataset, ...], catalog: Callable[[str], Dataset], recovered: Recover, tmp_path: Path
) -> None:
    """A bookie's old name in the store, in what it held earlier, in the list of bookies: the same plan as with its id.

    Without the aliases it is a bookie that nobody looked at, and records that name it are contradicted. One ledger of
    the plan is explained as the plan has it.
    """
    name, old = operator(CASE)["bookies"][0]["id"], "old.example:3181"
    rows = catalog("zookeeper").read("ledgers").to_pylist()
    lost = [row for row in rows if name in str(row["segments"]) and row["state"] == "CLOSED"][:3]

    def hold(folder: str, called: str, left_out: Sequence[dict[str, Any]]) -> Dataset:
        """Return a capture of a store whose records call the bookie so, without some of them."""
        kept = MemoryStore()
        for row in rows:
            record = ledger_metadata.decode(row["raw"])
            segments = tuple(
                dataclasses.replace(one, members=tuple(called if member == name else member for member in one.members))
                for one in record.segments
            )
            key = ROOT + store.ledger_key(Layout.HIERARCHICAL, LedgerId(row["scope"], row["ledger"]))
            value = ledger_metadata.encode(dataclasses.replace(record, segments=segments))
            if row not in left_out:
                kept.write([Write(key, value)])
        return captured(kept, tmp_path / folder)

    by_id = hold("live-id", name, lost), (hold("earlier-id", name, []),)
    by_name = hold("live-name", old, lost), (hold("earlier-name", old, []),)
    bookies = tuple(one["id"] for one in operator(CASE)["bookies"])
    listed = tuple(old if one == name else one for one in bookies)
    same, alias = (
        recovered("id", inventories, live=by_id[0], snapshots=by_id[1]),
        recovered("alias", inventories, live=by_name[0], snapshots=by_name[1], expected=listed, aliases={old: name}),
    )
    unknown = recovered("unknown", inventories, live=by_name[0], snapshots=by_name[1], expected=listed)
    for table in ("sides", "reconstruction"):
        assert alias.read(table).equals(same.read(table)), table
    # The passwords of holds are drawn anew; of all else what is written is the same.
    written = [
        {row["key"]: row["value"] for row in plan.read("actions").to_pylist() if HOLD_MARK.encode() not in row["value"]}
        for plan in (alias, same)
    ]
    assert written[0] == written[1]
    assert {row["ledger"] for row in lost} <= {row["ledger"] for row in same.read("actions").to_pylist()}
    assert alias.manifest["found"] == same.manifest["found"]
    assert alias.manifest["coverage"]["not_scanned"] == same.manifest["coverage"]["not_scanned"] == []
    assert unknown.manifest["coverage"]["not_scanned"] == [old]
    assert unknown.manifest["found"] != same.manifest["found"]
    ledger = LedgerId(0, lost[0]["ledger"])
    values = Passwords.from_candidates([one.encode() for one in operator(CASE)["passwords"]]).values
    known = Knowledge(passwords=values, expected=listed, layout=Layout.HIERARCHICAL, aliases={old: name})
    stored = [read_catalog(one.path, one, ledger) for one in (by_name[0], *by_name[1])]
    explained = explain(ledger, inventories, stored, None, known, has_store=True)
    assert explained.grid == explain(ledger, inventories, stored, same, known, has_store=True).grid
    assert explained.outcome == "restored"
    with pytest.raises(InputError, match="looked at, and an alias"):
        recovered("wrong", inventories, live=by_id[0], aliases={name: bookies[1]})
