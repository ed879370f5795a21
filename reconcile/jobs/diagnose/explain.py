"""Everything about one ledger, from bookies, a store, snapshots, a plan and upper layers."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from backends.protocols import ScannableStore
from reconcile.check.evidence import STORE, CopyEvidence, ScrutinyRun, SeenCopies
from reconcile.check.guard_locks import select_guarded
from reconcile.clusters import decode_named, list_named, of_catalog, open_inventories
from reconcile.compare.knowledge import Knowledge, StatedQuorums
from reconcile.compare.single_ledger import StoredLedger, as_catalog_row, as_history_rows, read_only_ledger
from reconcile.explain import ledger as engine
from reconcile.explain.ledger import Explanation
from reconcile.explain.ledger_copies import describe_seen
from reconcile.jobs.capture import capture_store
from reconcile.jobs.collect.tables import with_tables
from reconcile.jobs.context import Context, connect
from reconcile.jobs.deletes.resurrection import find_one_deleted
from reconcile.jobs.references import read_references
from reconcile.plan.actions import Passwords
from reconcile.plan.manifest import read_plan_manifest
from reconcile.references import References
from reconcile.rules.segments.member_names import rename_members
from reconcile.snapshots import find_snapshots
from reconcile.stores import catalog_path, is_backup, is_live
from reconcile.stores import of_catalog as open_catalog
from reconcile.words import describe_age
from recovery.codecs import store
from recovery.codecs.replication_lock import is_guard, ledger_of_lock
from recovery.codecs.store import Layout
from recovery.codecs.store_kind import kind_of
from recovery.dataset import Dataset, open_dataset
from recovery.errors import InputError
from recovery.infer.lost_disks import LostDisk
from recovery.infer.search import Tail
from recovery.model import tables
from recovery.model.ids import LedgerId
from recovery.place import DatasetPlace

_NODES: Final = tables.CATALOG_NODES


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainRequest:
    """Which ledger, and what may know something of it.

    Attributes:
        ledger: its id.
        inventories: folders of inventories; each bookie once.
        uri: the store; None: it is not asked.
        snapshots: what the store held earlier, as `reconcile.snapshots` takes it.
        plan: folder of a plan; None: what recover would decide is computed.
        passwords: candidates.
        expected: bookies that the cluster has, as the operator says; None: not said.
        default_quorum: (E, W, A) where nothing else decides.
        references: files and URIs of what upper layers know.
        tail: where ledgers are closed whose last entries may not have been acknowledged.
        layout: of the store, where nothing else names it.
        aliases: other names of bookies in records → ids.
        quorums: file that states (E, W, A) of some ledgers; None: there is none.
        lost: disks of which nothing will come back.
        runs: folders of scrutinies: what they know of copies.
    """

    ledger: LedgerId
    inventories: tuple[str, ...] = ()
    uri: str | None = None
    snapshots: tuple[str, ...] = ()
    plan: DatasetPlace | None = None
    passwords: Passwords
    expected: tuple[str, ...] | None = None
    default_quorum: tuple[int, int, int] | None = None
    references: tuple[str, ...] = ()
    tail: Tail = Tail.INCLUSIVE
    layout: Layout | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    quorums: Path | None = None
    lost: tuple[LostDisk, ...] = ()
    runs: tuple[DatasetPlace, ...] = ()


@dataclass(frozen=True, slots=True)
class _Side:
    """What a store has of the ledger, the layout that it names, what its tombstone says, and its bookies' cookies."""

    stored: StoredLedger
    layout: str | None
    deleted: tuple[References, ...] = ()
    cookies: pa.Table | None = None


def explain(request: ExplainRequest, context: Context) -> Explanation:
    """Say everything about one ledger; nothing is written.

    Raises:
        DatasetError: an inventory, a catalog or the plan is damaged.
        InputError: a file or a store cannot be used, or two sources are of two clusters.
        UnsupportedStoreError: a URI is malformed, or of a store that is not read.
        UnavailableError: a store does not answer.
    """
    with ExitStack() as stack:
        inventories = open_inventories(stack.enter_context(with_tables(request.inventories, context.now())))
        snapshots = stack.enter_context(find_snapshots(request.snapshots, request.uri))
        uris = [*([] if request.uri is None else [request.uri]), *snapshots]
        instances = _list_instances(inventories)
        sides = [_read_side(uri, request.ledger, instances, context, stack) for uri in uris]
        plan = None if request.plan is None else open_dataset(request.plan, "plan")
        named = read_references(request.references, context)
        deleted = [references for side in sides for references in side.deleted]
        references = References.unite([*([] if named is None else [named]), *deleted])
        knowledge = Knowledge(
            passwords=request.passwords.values,
            expected=request.expected,
            default_quorum=request.default_quorum,
            tail=request.tail,
            layout=_choose_layout(request, sides, plan),
            references=None if references is None else references.rows,
            aliases=request.aliases,
            stated_quorums=StatedQuorums.read_for(request.quorums, has_references=named is not None),
            lost=request.lost,
        )
        seen = _see_copies(request, sides[0], inventories) if request.runs and request.uri is not None else None
        return engine.explain(
            request.ledger,
            inventories,
            [side.stored for side in sides],
            plan,
            knowledge,
            has_store=request.uri is not None,
            references=references.stores if references is not None else (),
            faults=None if seen is None else seen.faults,
            seen=() if seen is None else _describe_seen(request, seen, context),
        )


def _see_copies(request: ExplainRequest, side: _Side, inventories: Sequence[Dataset]) -> SeenCopies:
    """Return what scrutinies and inventories know of the copies that the store's record asks for.

    Raises:
        InputError: a scrutiny is of another cluster.
    """
    stores = [open_dataset(place / STORE, "catalog") for place in request.runs]
    for store_of_run in stores:
        named, instance = list_named(store_of_run), side.stored.instance_id
        if named and instance is not None and instance not in named:
            problem = f"is of cluster instance {' and '.join(sorted(named))}, {request.uri} is of {instance}"
            raise InputError(store_of_run.path, problem, "leave it out, or name the one of this cluster")
    catalog = side.stored.catalog or stores[0]
    nodes = catalog.read("nodes", columns=["path", "kind", "created_txn"])
    if side.cookies is not None:
        nodes = nodes.filter(pc.not_equal(nodes["kind"], "cookie"))
        nodes = pa.concat_tables([nodes, side.cookies.cast(nodes.schema)])
    runs = tuple(map(ScrutinyRun.open, request.runs))
    record = rename_members(side.stored.row, request.aliases)
    return CopyEvidence.gather(inventories, runs, catalog, nodes).see(record)


def _describe_seen(request: ExplainRequest, seen: SeenCopies, context: Context) -> list[str]:
    lines = list(describe_seen(seen.faults.missing, seen.sound["bookie"].to_pylist()))
    lines += [f"{name} was wiped after the record changed last" for name in sorted(seen.wiped["bookie"].to_pylist())]
    for place in request.runs:
        run = ScrutinyRun.open(place)
        if request.ledger.bucket in run.share:
            age = describe_age((context.now() - run.at).total_seconds())
            lines.append(f"by the scrutiny of {run.at.isoformat(timespec='seconds')}, {age} ago: {place}")
    return lines or ["no given scrutiny checked this ledger"]


def _choose_layout(request: ExplainRequest, sides: list[_Side], plan: Dataset | None) -> Layout | None:
    """Return the layout that the operator names, else the first store, else the plan."""
    named = [request.layout, *(side.layout for side in sides)]
    named += [] if plan is None else [read_plan_manifest(plan).binding.layout]
    layout = next((layout for layout in named if layout), None)
    return None if layout is None else Layout(layout)


def _list_instances(inventories: Sequence[Dataset]) -> Collection[str]:
    rows = (inventory.read("bookies", columns=["instance_id"]) for inventory in inventories)
    return {instance for table in rows for instance in table["instance_id"].drop_null().to_pylist()}


def _read_side(uri: str, ledger: LedgerId, instances: Collection[str], context: Context, stack: ExitStack) -> _Side:
    """Return what a store has of the ledger.

    Catalogs are read where they are; copied files of stores are captured for as long as `stack` is open, as recover
    captures them. A live store is asked for this ledger only.
    """
    path = catalog_path(uri)
    if path is None and (is_backup(uri) or is_live(uri)):
        return _read_live(uri, ledger, instances, context)
    if path is None:
        path = f"{stack.enter_context(TemporaryDirectory(prefix='bkmeta-explain-'))}/catalog"
        with connect(uri, context) as opened:
            capture_store(opened, Path(path), context)
    catalog = open_dataset(path, "catalog")
    layouts = catalog.read("sources", columns=["layout"])["layout"].to_pylist()
    deleted = find_one_deleted(open_catalog(catalog, uri), instances or list_named(catalog), ledger)
    return _Side(read_catalog(uri, catalog, ledger), layouts[0] if layouts else None, tuple(deleted))


def _read_live(uri: str, ledger: LedgerId, instances: Collection[str], context: Context) -> _Side:
    """Read the ledger's record, its history where there is one, and who has a cookie, from a store."""
    with connect(uri, context) as opened:
        places = store.places(opened.layout_hint)
        stored_layout = opened.store.get(opened.root + places.layout)
        if opened.layout_hint:
            layout = Layout(opened.layout_hint)
        elif stored_layout is not None:
            layout = store.layout_of(stored_layout.value)
        else:
            problem = "neither the URI nor the store names a layout"
            raise InputError(uri, problem, "name the cluster's layout, e.g. zk+hierarchical://")
        try:
            key = opened.root + store.ledger_key(layout, ledger)
        except ValueError as error:
            raise InputError(str(ledger), str(error), "name a ledger that the layout has a place for") from error
        record = opened.store.get(key)
        is_guarded = bool(select_guarded(opened.store, opened.root, [ledger]))
        instance = opened.store.get(opened.root + places.instance_id)
        members = tuple(opened.store.children(opened.root + places.cookies) or ())
        paths = [f"{places.cookies}/{name}" for name in members]
        cookies = [
            {"path": path, "kind": "cookie", "created_txn": node.created_txn}
            for path, (_, node) in zip(
                paths, opened.store.get_many([opened.root + path for path in paths]), strict=True
            )
            if node is not None
        ]
        history, txn, is_complete = tables.CATALOG_HISTORY.empty_table(), None, True
        notes: tuple[str, ...] = ()
        if isinstance(opened.store, ScannableStore):
            point = opened.store.point()
            txn, is_complete, notes = point.txn, not point.gaps, point.notes
            history = as_history_rows(opened.store.history(key), key, ledger)
        cluster = decode_named(None if instance is None else instance.value)
        deleted = find_one_deleted(opened, instances or ([cluster] if cluster is not None else []), ledger)
    row = tables.CATALOG_LEDGERS.empty_table() if record is None else as_catalog_row(record, ledger)
    stored = StoredLedger(
        uri,
        row,
        history,
        txn,
        members,
        complete=is_complete,
        instance_id=cluster,
        is_guarded=is_guarded,
        keeps_times=kind_of(layout).keeps_times,
        notes=notes,
    )
    made = pa.Table.from_pylist(
        cookies, schema=pa.schema([_NODES.field(name) for name in ("path", "kind", "created_txn")])
    )
    return _Side(stored, str(layout), tuple(deleted), made)


def read_catalog(uri: str, catalog: Dataset, ledger: LedgerId) -> StoredLedger:
    """Read the ledger's record, its history, and who has a cookie, from a catalog."""
    nodes = catalog.read("nodes", columns=["path", "kind", "raw", "owner"])
    locks = nodes.filter(pc.equal(nodes["kind"], "lock")).to_pylist()
    cookies = nodes.filter(pc.equal(nodes["kind"], "cookie"))["path"].to_pylist()
    sources, layouts = (catalog.read("sources", columns=[name])[name].to_pylist() for name in ("txn", "layout"))
    return StoredLedger(
        uri,
        read_only_ledger(catalog, "ledgers", ledger),
        read_only_ledger(catalog, "history", ledger),
        sources[0] if sources else None,
        tuple(path.rsplit("/", 1)[-1] for path in cookies),
        complete=bool(catalog.manifest["coverage"].get("complete")),
        catalog=catalog,
        is_guarded=any(ledger_of_lock(n["path"]) == ledger and is_guard(n["raw"], n["owner"] or 0) for n in locks),
        instance_id=of_catalog(uri, catalog.read("sources"), nodes).instance_id,
        keeps_times=kind_of(layouts[0] if layouts else None).keeps_times,
    )
