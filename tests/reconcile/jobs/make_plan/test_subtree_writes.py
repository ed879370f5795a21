"""Nodes of upper layers planned from a snapshot, written by the one writer, and taken back."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from backends.protocols import Write
from reconcile.compare.evidence import sort_newest_first
from reconcile.jobs.make_plan import subtree_writes
from reconcile.jobs.make_plan.request import PlanRequest
from reconcile.jobs.make_plan.subtree_writes import SubtreeWrites, write_subtrees
from reconcile.plan.actions import Passwords
from reconcile.plan.edits import Edits, edit_plan
from reconcile.plan.manifest import PlanBinding, PlanCounts, PlanManifest, SubtreeCounts, write_plan_manifest
from reconcile.plan.plan_hash import Hashes, ledger_hashes
from reconcile.plan.plan_reader import overview, require_whole
from reconcile.plan.views.differences import compare_plans
from reconcile.plan.views.topics import list_topics_back
from reconcile.plan.waves import parse_waves, split_plan
from reconcile.pulsar.candidates import Candidates, Sources, write_candidates
from reconcile.pulsar.producers import ReadHeads
from reconcile.pulsar.topic_records import read_topic_records
from reconcile.write import apply, undo
from reconcile.write.apply_results import Applied
from recovery.capture.live import capture
from recovery.capture.subtrees import SubtreeChoice
from recovery.codecs.store import Layout
from recovery.codecs.store_kind import ETCD, ZOOKEEPER
from recovery.dataset import Dataset, DatasetWriter, open_dataset, prepare, write_part
from recovery.errors import InputError
from recovery.model import tables
from tests.support.failing_stores import CrashError
from tests.support.memory_store import MemoryStore
from tests.support.plan_folder import Ledger
from tests.support.scannable_store import ScannableMemory

pytestmark = pytest.mark.long

AT = datetime(2030, 1, 1, tzinfo=UTC)
OPEN = "world:anyone:cdrwa"
CLOSED = "digest:broker:abc:cdrwa,world:anyone:cdrwa"
NODES = {
    "/admin": b"",
    "/admin/clusters": b"",
    "/admin/clusters/here": b'{"serviceUrl": "http://b"}',
    "/admin/policies/public/default": b'{"bundles": 4}',
    "/counters/producer-name": b"",
    "/managed-ledgers/public/default/persistent/events": b"\x08\x07",
    "/managed-ledgers/public/default/persistent/events/late": b"\x10\x01",
    "/namespace/public/default/0x0_0x1": b"a broker",
    "/loadbalance/brokers": b"",
}
EPHEMERAL = "/managed-ledgers/public/default/persistent/lock"


def fill(store: MemoryStore) -> MemoryStore:
    """Write a small Pulsar, with what must never come back."""
    store.write([Write("/ledgers/LAYOUT", b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1")])
    for key, value in NODES.items():
        held = store.get(key)
        store.write([Write(key, value, None if held is None else held.version, CLOSED)])
    store.put_ephemeral(EPHEMERAL, b"mine", 7)
    store.raise_counter("/counters/producer-name", 41)
    return store


def take(store: MemoryStore, folder: Path, *paths: str, pulsar: bool = False, root: str = "/ledgers") -> Dataset:
    """Capture a store with subtrees."""
    tops = SubtreeChoice(paths, pulsar).resolve(root, ZOOKEEPER, "the store")
    binding = {"root": root, "subtrees": list(tops)}
    with DatasetWriter(folder, "catalog", binding=binding, secret=True) as out:
        summary = capture(store, root, Layout.HIERARCHICAL, out, clock=lambda: AT, subtrees=tops)
    assert summary.complete
    return open_dataset(folder, "catalog")


def request_of(
    snapshot: Dataset, live: Dataset | None, *paths: str, pulsar: bool = False, others: tuple[Dataset, ...] = ()
) -> PlanRequest:
    """Ask for a plan of nothing but subtrees, of one snapshot; others show ledgers alone."""
    return PlanRequest(
        inventories=(),
        live=live,
        snapshots=(snapshot, *others),
        layout=Layout.HIERARCHICAL,
        root="/ledgers",
        passwords=Passwords.from_candidates([]),
        expected=None,
        default_quorum=None,
        subtrees=SubtreeChoice(paths, pulsar),
    )


def make_plan(
    folder: Path,
    request: PlanRequest,
    ledgers: Sequence[Ledger] = (),
    made: datetime | None = None,
    heads: ReadHeads | None = None,
) -> Dataset:
    """Write a plan of subtrees, as `finish_plan` does, in which ledgers are reconstructed, and none is written."""
    prepare(folder, "plan", secret=True)
    written = write_subtrees(request, folder)
    parts = {
        name: [write_part(folder, name, "none", [schema.empty_table()], secret=True)]
        for name, schema in tables.PLAN.items()
    }
    by_key = [(name, "ascending") for name in tables.KEY_COLUMNS]
    rows = pa.Table.from_pylist([ledger.row() for ledger in ledgers], schema=tables.RECONSTRUCTION).sort_by(by_key)
    parts["reconstruction"] = [write_part(folder, "reconstruction", "all", [rows], secret=True)]
    sides = [{**ledger.side(), "referenced": ledger.owner is not None} for ledger in ledgers]
    side_rows = pa.Table.from_pylist(sides, schema=tables.SIDES).sort_by(by_key)
    parts["sides"] = [write_part(folder, "sides", "all", [side_rows], secret=True)]
    candidates = Candidates((), {})
    if written.source is not None and ledgers:
        catalogs = sort_newest_first([*request.snapshots, *([] if request.live is None else [request.live])])
        issued = written.source.find_issued(Layout.HIERARCHICAL)
        records = read_topic_records(written.source.dataset)
        sources = Sources(written.source, catalogs, issued, records, folder, read_heads=heads)
        candidates = write_candidates(sources, [(parts["reconstruction"][0], parts["sides"][0])])
        parts["candidates"] = list(candidates.parts)
    parts["actions"] = [*written.parts, *parts["actions"]]
    counts = PlanCounts(actions=sum(part.rows for part in written.parts), left_alone=written.left)
    binding = PlanBinding(layout="hierarchical", root="/ledgers", made=None if made is None else made.isoformat())
    manifest = PlanManifest(binding, counts=counts, subtrees=written.counts, candidates=candidates.counts)
    write_plan_manifest(folder, manifest, parts, Hashes(written.hashes, ledger_hashes(rows)))
    plan = open_dataset(folder, "plan")
    require_whole(plan)
    return plan


def write(plan: Dataset, store: MemoryStore, journal: Path, outside: str = "") -> Applied:
    """Apply a plan, small transactions at a time."""
    options = apply.ApplyOptions(
        plan_hash=str(plan.manifest["hash"]), resume=journal.exists(), batch_rows=2, outside=outside
    )
    return apply.apply(lambda: plan.batches("actions"), store, "/ledgers", journal, options, now=lambda: AT)


@pytest.fixture(params=[MemoryStore, ScannableMemory], ids=["live", "files"])
def snapshot(request: pytest.FixtureRequest, tmp_path: Path) -> Dataset:
    """What Pulsar had, of a live store and of one that is scanned."""
    return take(fill(request.param()), tmp_path / "snapshot", pulsar=True)


def test_all_that_pulsar_keeps_is_written_and_taken_back(snapshot: Dataset, tmp_path: Path) -> None:
    """Values, rights and counters come back; nothing of sessions, load or ownership does; undo leaves nothing."""
    plan = make_plan(tmp_path / "plan", request_of(snapshot, None, pulsar=True))
    store = MemoryStore()
    assert write(plan, store, tmp_path / "journal").exit_code == 0
    kept = {key: value for key, value in NODES.items() if not key.startswith(("/namespace", "/loadbalance"))}
    assert kept.items() <= store.dump().items()
    above = {"/managed-ledgers/public", "/managed-ledgers", "/admin/policies", "/counters"}
    assert above <= store.dump().keys()
    assert not {EPHEMERAL, "/namespace", "/loadbalance"} & store.dump().keys()
    for key in kept:
        node = store.get(key)
        assert node is not None
        assert node.acl == CLOSED, key
    counter = store.get("/counters/producer-name")
    assert counter is not None
    assert counter.children_created == 42
    assert write(plan, store, tmp_path / "again").exit_code == 0  # all of it is there
    undone = undo.undo(undo.propose(tmp_path / "journal", store, "/ledgers"), store, "/ledgers", now=lambda: AT)
    assert not undone.left
    assert not [key for key in store.dump() if key.startswith(("/admin", "/managed-ledgers", "/counters"))]


def test_what_the_store_has_stays_until_a_person_says_so(snapshot: Dataset, tmp_path: Path) -> None:
    """The same bytes cost no write; others are left; nodes of the store alone stay; `replace below` replaces others."""
    store = MemoryStore()
    other, same = "/admin/clusters/here", "/admin/policies/public/default"
    newer = "/admin/clusters/there"
    store.write([Write(other, b"changed"), Write(same, NODES[same]), Write(newer, b"new")])
    live = take(store, tmp_path / "live", "/admin")
    plan = make_plan(tmp_path / "plan", request_of(snapshot, live, "/admin"))
    ops = {row["key"]: row["op"] for row in plan.read("actions").to_pylist()}
    assert ops == {f"/{other}": "leave"}
    counts = SubtreeCounts(**plan.manifest["subtrees"][0])
    assert (counts.nodes, counts.created, counts.differing, counts.newer) == (6, 0, 1, 1)
    assert write(plan, store, tmp_path / "journal").exit_code == 0
    assert store.dump()[other] == b"changed"
    edited_manifest = edit_plan(plan, Edits(replace_below=frozenset({"/admin/clusters"})), tmp_path / "edited")
    edited = open_dataset(tmp_path / "edited", "plan")
    require_whole(edited)
    assert edited_manifest.counts.left_alone == 0
    [difference] = compare_plans(plan, edited)
    assert difference.fields[0] == ("op", "leave", "replace")
    assert write(edited, store, tmp_path / "journal-2").exit_code == 0
    assert {other: NODES[other], newer: b"new"}.items() <= store.dump().items()
    undo.undo(undo.propose(tmp_path / "journal-2", store, "/ledgers"), store, "/ledgers", now=lambda: AT)
    assert store.dump()[other] == b"changed"


def test_a_node_that_somebody_changed_meanwhile_is_a_conflict(snapshot: Dataset, tmp_path: Path) -> None:
    """Nothing is written over it, and the rest goes on."""
    plan = make_plan(tmp_path / "plan", request_of(snapshot, None, "/admin"))
    store = MemoryStore()
    store.write([Write("/admin/clusters/here", b"a broker was faster")])
    applied = write(plan, store, tmp_path / "journal")
    assert [(conflict.kind, conflict.key) for conflict in applied.conflicts] == [("subtree", "//admin/clusters/here")]
    assert store.dump()["/admin/clusters/here"] == b"a broker was faster"
    assert store.dump()["/admin/policies/public/default"] == NODES["/admin/policies/public/default"]


class _Dying(MemoryStore):
    """Ends the program after so many writes, once before the write takes effect and once after."""

    def __init__(self, writes: int, *, after: bool) -> None:
        super().__init__()
        self._left = writes
        self._after = after

    def write(self, changes: Sequence[Write]) -> list[int]:
        self._left -= 1
        if self._left == 0 and self._after:
            super().write(changes)
        if self._left == 0:
            raise CrashError
        return super().write(changes)


@pytest.mark.parametrize("after", [False, True])
def test_a_run_that_was_killed_at_any_write_is_gone_on_with(snapshot: Dataset, tmp_path: Path, *, after: bool) -> None:
    """All nodes are there then, each written once, and all of them are taken back."""
    plan = make_plan(tmp_path / "plan", request_of(snapshot, None, pulsar=True))
    killed = 0
    for writes in range(1, 100):
        store, journal = _Dying(writes, after=after), tmp_path / str(writes)
        try:
            write(plan, store, journal)
            break
        except CrashError:
            killed += 1
        assert write(plan, store, journal).exit_code == 0
        nodes = [store.get(row["key"][1:]) for row in plan.read("actions").to_pylist() if row["op"] == "create"]
        assert all(node is not None and node.version == 0 for node in nodes)
        undone = undo.undo(undo.propose(journal, store, "/ledgers"), store, "/ledgers", now=lambda: AT)
        assert (undone.left, undone.there) == ({}, {})
        assert set(store.dump()) <= {"/ledgers"}
    assert killed > len(NODES) / 2


def test_a_rehearsal_writes_nothing_where_brokers_read(snapshot: Dataset, tmp_path: Path) -> None:
    """All nodes are put below the key that is named."""
    plan = make_plan(tmp_path / "plan", request_of(snapshot, None, pulsar=True))
    store = MemoryStore()
    assert write(plan, store, tmp_path / "journal", outside="/rehearsal").exit_code == 0
    assert all(key.startswith("/rehearsal") for key in store.dump())
    assert store.dump()["/rehearsal/admin/clusters/here"] == NODES["/admin/clusters/here"]


def test_a_plan_is_the_same_however_it_was_cut_and_in_waves(
    snapshot: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces and spilled files change neither actions nor hashes; the last wave has all nodes."""
    request = request_of(snapshot, None, pulsar=True)
    whole = make_plan(tmp_path / "plan", request)
    monkeypatch.setattr(subtree_writes, "_PIECE_ROWS", 2)
    monkeypatch.setattr(subtree_writes, "_SPILL_ROWS", 1)
    cut = make_plan(tmp_path / "cut", request)
    assert len(cut.parts("actions")) > len(whole.parts("actions"))
    assert cut.read("actions").equals(whole.read("actions"))
    assert cut.manifest["hash"] == whole.manifest["hash"]
    split_plan(cut, parse_waves("50%,rest"), tmp_path / "waves")
    waves = open_dataset(tmp_path / "waves", "plan")
    require_whole(waves)
    assert set(waves.read("actions")["wave"].to_pylist()) == {2}
    assert overview(waves, shown=0).waves == {2: whole.rows("actions")}


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/", "is not a path"),
        ("admin", "is not a path"),
        ("/admin/", "is not a path"),
        ("/admin/../x", "is not a path"),
        ("/ledgers", "holds /ledgers"),
        ("/ledgers/cookies", "inside"),
        ("/ledgers-bkmeta", "ledgers-bkmeta"),
        ("/zookeeper", "/zookeeper"),
        ("/namespace", "make them again"),
        ("/loadbalance", "make them again"),
        ("/loadbalance/bundle-data", "make them again"),
    ],
)
def test_what_is_no_subtree_of_an_upper_layer_is_refused(path: str, words: str) -> None:
    """Each by its name, with a remedy."""
    with pytest.raises(InputError, match=words):
        SubtreeChoice((path,)).resolve("/ledgers", ZOOKEEPER, "zk://h")


def test_subtrees_are_those_of_the_chroot_and_only_of_zookeeper() -> None:
    """`--pulsar` stands where the ledgers root does; settings of load balancing may be named; etcd is refused."""
    assert "/east/managed-ledgers" in SubtreeChoice(pulsar=True).resolve("/east/ledgers", ZOOKEEPER, "zk://h")
    settings = "/loadbalance/settings"
    assert SubtreeChoice((settings, "/a/b", "/a")).resolve("/ledgers", ZOOKEEPER, "zk://h") == ("/a", settings)
    with pytest.raises(InputError, match="etcd, which has no nodes of upper layers"):
        SubtreeChoice(pulsar=True).resolve("/ledgers", ETCD, "etcd://h")


def test_a_snapshot_without_the_subtree_is_refused(snapshot: Dataset, tmp_path: Path) -> None:
    """One that was not captured with it, and one that has no such node, are two errors."""
    bare = take(fill(MemoryStore()), tmp_path / "bare")
    with pytest.raises(InputError, match="captured without /admin"):
        write_subtrees(request_of(bare, None, "/admin"), tmp_path)
    empty = take(MemoryStore(), tmp_path / "empty", "/admin", pulsar=True)
    with pytest.raises(InputError, match="has no /managed-ledgers"):
        write_subtrees(request_of(empty, None, pulsar=True), tmp_path)
    assert write_subtrees(request_of(snapshot, None), tmp_path) == SubtreeWrites()


def test_topics_are_those_of_the_newest_snapshot_that_has_any(tmp_path: Path) -> None:
    """A copy that was made after the loss is newer, and has none: what was there before comes back."""
    snapshot = take(fill(ScannableMemory(lambda: 1_000)), tmp_path / "snapshot", pulsar=True)
    store = ScannableMemory(lambda: 2_000)
    fill(store)
    store.put("/admin/clusters/here", b"changed")
    for key in ("/managed-ledgers/public/default/persistent/events/late", EPHEMERAL):
        store.put(key, None)
    store.put("/managed-ledgers/public/default/persistent/events", None)
    for name in ("/persistent", "/default", "/public"):
        key = "/managed-ledgers/public/default/persistent".partition(name)[0] + name
        store.put(key, None)
    wiped = take(store, tmp_path / "wiped", pulsar=True)
    assert next(iter(sort_newest_first([wiped, snapshot]))).dataset.path == wiped.path
    plan = make_plan(tmp_path / "plan", request_of(wiped, None, pulsar=True, others=(snapshot,)))
    values = {row["key"]: row["value"] for row in plan.read("actions").to_pylist()}
    topic = "/managed-ledgers/public/default/persistent/events"
    assert values[f"/{topic}"] == NODES[topic]
    back = list_topics_back(plan, 10)
    assert [(one.url, one.node, one.subscriptions) for one in back.topics] == [
        ("persistent://public/default/events", "created", ["late"])
    ]
    assert list_topics_back(plan, 0).total == 1
