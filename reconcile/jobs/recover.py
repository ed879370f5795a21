"""A plan from what there is: disks collected, the store and snapshots captured, references read; and its report."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from reconcile.check.listing import list_known_ledgers
from reconcile.clusters import InstanceSource, list_named, of_bookies, open_inventories, require_one
from reconcile.compare.knowledge import StatedQuorums
from reconcile.deletes.approvals import name_loss
from reconcile.deletes.own_root import read_policy
from reconcile.deletes.policy import NO_POLICY
from reconcile.estimates import EstimatedStep, is_short
from reconcile.jobs.approvals import NO_APPROVALS, Approvals
from reconcile.jobs.capture import capture_store
from reconcile.jobs.collect.disks import collect_all, see
from reconcile.jobs.collect.tables import list_folders, take_tables
from reconcile.jobs.context import Context, choose_spark, connect, start_spark, throttle
from reconcile.jobs.deletes.resurrection import find_deleted, read_deleted
from reconcile.jobs.make_plan.plan import make_plan
from reconcile.jobs.make_plan.request import PlanRequest
from reconcile.jobs.references import read_references
from reconcile.plan.actions import Passwords
from reconcile.plan.manifest import PlanManifest
from reconcile.plan.plan_reader import STORE
from reconcile.pulsar.layer import PULSAR, PulsarLayer
from reconcile.references import References
from reconcile.report.pages import plan_page, write_page
from reconcile.report.plan_verdict import describe_plan
from reconcile.snapshots import find_snapshots
from reconcile.stores import catalog_path, of_catalog, require_store_uri
from recovery.capture.subtrees import NO_SUBTREES, SubtreeChoice
from recovery.codecs.store import Layout
from recovery.dataset import COLLECTED, SNAPSHOTS, Dataset, open_dataset, prepare
from recovery.errors import InputError
from recovery.infer.lost_disks import LostDisk
from recovery.infer.search import Tail
from recovery.place import DatasetPlace
from recovery.spark import require_spark

if TYPE_CHECKING:
    from reconcile.pulsar.producers import ReadHeads

_TABLES: Final = "tables"
"""Folder below the collected inventories: those that were made of tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverRequest:
    """What a plan is made of, wherever that still has to be read.

    Attributes:
        out: a new folder for the plan; it will hold passwords.
        inventories: folders of inventories, and tables of entries; each bookie once.
        disks: folders of bookies that are collected first, mounted wherever a task may run.
        uri: the store that is to be repaired; None: a plan for an empty one.
        layout: of the store to be written, where no URI is given.
        snapshots: what the store held earlier, as `reconcile.snapshots` takes it.
        passwords: candidates.
        expected: bookies that the cluster has, as the operator says; None: not said.
        default_quorum: (E, W, A) where nothing else decides.
        quorums: file that states (E, W, A) of some ledgers; None: there is none.
        references: files and URIs of what upper layers know.
        tombstones: stores, or copies of them, with tombstones; those beside the store and its snapshots are found.
        tail: where ledgers are closed whose last entries may not have been acknowledged.
        lost: disks that are gone for good, as the operator states.
        raise_past: ids up to this one are used, as the operator says.
        aliases: other names of bookies in records → ids.
        subtrees: of upper layers, which are brought back from a snapshot.
        reads_payload: what is in front of messages is read from the disks, where no node names their ledger.
        master: Spark's, as `spark-submit --master` takes it; None: this host, and only where the work is long.
        python: what executors run as their Python; None: what they have.
        settings: of the run, each with where it came from, for the manifest.
        approvals: of the loss that is stated.
    """

    out: DatasetPlace
    inventories: tuple[str, ...] = ()
    disks: Mapping[str, Sequence[Path]] = field(default_factory=dict)
    uri: str | None = None
    layout: Layout | None = None
    snapshots: tuple[str, ...] = ()
    passwords: Passwords
    expected: tuple[str, ...] | None = None
    default_quorum: tuple[int, int, int] | None = None
    references: tuple[str, ...] = ()
    tail: Tail = Tail.INCLUSIVE
    lost: tuple[LostDisk, ...] = ()
    raise_past: int | None = None
    master: str | None = None
    python: Path | None = None
    tombstones: tuple[str, ...] = ()
    quorums: Path | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    subtrees: SubtreeChoice = NO_SUBTREES
    reads_payload: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    approvals: Approvals = NO_APPROVALS


@dataclass(frozen=True, slots=True)
class Recovered:
    """A plan that was made.

    Attributes:
        plan: the dataset.
        manifest: what it says about itself.
        absent_root: ledgers root key that the store does not have; None: it has it, or no store was given.
    """

    plan: Dataset
    manifest: PlanManifest
    absent_root: str | None


@dataclass(frozen=True, slots=True)
class _Target:
    """The store that a plan is for: its catalog, ledgers root key and layout."""

    layout: Layout
    live: Dataset | None = None
    root: str = ""
    has_root: bool = True


def recover(request: RecoverRequest, context: Context) -> Recovered:
    """Make a plan and its report; nothing but the plan's folder is written.

    Raises:
        DatasetError: an inventory or catalog is damaged, or the plan cannot be written.
        GuardRefusedError: too few people approved that disks are lost, where the policy asks for that.
        InputError: no Java or Spark, files that cannot be used, a store that could not be read whole, or two clusters.
        SparkError: Spark failed.
        UnsupportedStoreError: a URI is malformed, or of a store that is not read.
        UnavailableError: a store does not answer.
    """
    with find_snapshots(request.snapshots, request.uri) as snapshots:
        return _recover(replace(request, snapshots=snapshots), context)


def _recover(request: RecoverRequest, context: Context) -> Recovered:
    """Make them; snapshots are URIs."""
    out = request.out
    # What can fail soon is tried first.
    with context.reporter.progress("looking at what was given", "inventories"):
        for uri in (*([] if request.uri is None else [request.uri]), *request.snapshots):
            require_store_uri(uri)
        wants_spark = bool(request.disks) or request.master is not None
        if wants_spark:
            require_spark(request.master, request.python)
        stated = StatedQuorums.read_for(request.quorums, has_references=bool(request.references))
        inventories = open_inventories(list_folders(request.inventories))
        if not wants_spark and not is_short(EstimatedStep.RECOVER, _count_rows(inventories, ())):
            require_spark(None, request.python)
        see(request.disks)
    listed = read_references(request.references, context)
    known = [*([] if listed is None else [listed]), *read_deleted(request.tombstones, context)]
    require_one([*_name_clusters(inventories), *(source for references in known for source in references.stores)])
    prepare(out, "plan", secret=True)
    folders = take_tables(request.inventories, out / COLLECTED / _TABLES, context.now())
    inventories = open_inventories(folders)
    with ExitStack() as stack:
        # Collecting needs Spark at once; else it starts after the stores were read, which may fail.
        spark = stack.enter_context(start_spark(request.master, request.python, context)) if request.disks else None
        if spark is not None:
            with context.reporter.progress("collecting", "bookies") as progress:
                collected = collect_all(
                    request.disks,
                    request.passwords,
                    out / COLLECTED,
                    spark,
                    now=context.now,
                    progress=throttle(progress),
                )
            inventories = open_inventories((*folders, *collected))
        snapshots = tuple(
            _open_snapshot(uri, out / SNAPSHOTS / str(number), context, inventories, known, request.subtrees)
            for number, uri in enumerate(request.snapshots, 1)
        )
        target = _capture_target(request, inventories, context, known)
        _require_approved_loss(request, inventories, target, snapshots, context)
        rows = _count_rows(inventories, [*([] if target.live is None else [target.live]), *snapshots])
        context.reporter.expect(EstimatedStep.RECOVER, rows)
        spark = spark or stack.enter_context(
            choose_spark(EstimatedStep.RECOVER, rows, request.master, request.python, context)
        )
        made_of = PlanRequest(
            inventories=inventories,
            live=target.live,
            snapshots=snapshots,
            layout=target.layout,
            root=target.root,
            passwords=request.passwords,
            expected=request.expected,
            default_quorum=request.default_quorum,
            stated_quorums=stated,
            tail=request.tail,
            references=References.unite(known),
            lost=request.lost,
            raise_past=request.raise_past,
            aliases=request.aliases,
            subtrees=request.subtrees,
            settings=request.settings,
        )
        layer = PulsarLayer(_open_heads(request, context, stack)) if request.reads_payload else PULSAR
        with context.reporter.progress("reconstructing", "parts") as progress:
            manifest = make_plan(made_of, out, spark, now=context.now, progress=throttle(progress), layer=layer)
    plan = open_dataset(out, "plan")
    with context.reporter.progress("writing the report", "pages"):
        verdict = describe_plan(manifest)
        write_page(out, lambda: plan_page(plan, inventories, verdict=verdict, made=context.now()))
    return Recovered(plan, manifest, None if target.has_root else target.root)


def _count_rows(inventories: Sequence[Dataset], catalogs: Sequence[Dataset]) -> int:
    copies = sum(inventory.rows("copies") for inventory in inventories)
    return copies + sum(catalog.rows(name) for catalog in catalogs for name in ("ledgers", "history"))


def _require_approved_loss(
    request: RecoverRequest,
    inventories: Sequence[Dataset],
    target: "_Target",
    snapshots: Sequence[Dataset],
    context: Context,
) -> None:
    """Refuse to give up what only lost disks had, where the policy asks for approvals and too few people approved it.

    The policy is the store's; of a store without one, the one of its snapshots that was set last, else this host's.
    """
    if not request.lost:
        return
    live = () if target.live is None else (target.live,)
    policy = request.approvals.local or NO_POLICY
    for catalogs in (live, snapshots):
        opened = [of_catalog(catalog, str(catalog.path)) for catalog in catalogs]
        stored = [read_policy(source.store, source.root) for source in opened]
        latest = max((policy for policy in stored if policy is not None), key=lambda policy: policy.at_ms, default=None)
        if latest is not None:
            policy = latest.policy
            break
    clusters = {cluster for catalog in (*live, *snapshots) for cluster in _list_instances(inventories, catalog)}
    request.approvals.require(policy, name_loss(clusters, [str(disk) for disk in request.lost]), context.now())


def _open_heads(request: RecoverRequest, context: Context, stack: ExitStack) -> "ReadHeads":
    """Return what gives what entries have of Pulsar, of the disks that were named."""
    # Loaded where disks are read.
    from reconcile.jobs.verify import open_disks_of  # noqa: PLC0415 - see above
    from reconcile.pulsar.producers import decode_head  # noqa: PLC0415 - see above
    from recovery.bookies.ledger_entries import decode_payloads  # noqa: PLC0415 - see above

    disks = stack.enter_context(open_disks_of(request.disks, context))
    return lambda wanted: decode_payloads(disks, wanted, request.passwords.values, decode_head)


def _capture_target(
    request: RecoverRequest, inventories: Sequence[Dataset], context: Context, known: list[References]
) -> _Target:
    """Capture the store to be repaired beside the plan, and add what its tombstones name; without one, its layout."""
    if request.uri is None:
        if request.layout is None:
            raise InputError("the plan", "is for no store, and for no layout", "name the store, or the layout")
        return _Target(request.layout)
    folder = request.out / STORE
    with connect(request.uri, context) as opened:
        # What bookies hold and no listing names is asked for before anybody calls it lost.
        listed = list_known_ledgers(inventories)
        summary = capture_store(opened, folder, context, listed, subtrees=request.subtrees)
        root = opened.root
    catalog = open_dataset(folder, "catalog")
    known += find_deleted(of_catalog(catalog, request.uri), _list_instances(inventories, catalog))
    if not summary.complete:
        problem = f"could not be read whole ({summary.gaps[0]})"
        raise InputError(
            request.uri, problem, "a record that was not read would be taken for lost: fix the access first"
        )
    if summary.layout is None:
        raise InputError(request.uri, "has no root, and names no layout", "name it in the URI, e.g. zk+hierarchical://")
    return _Target(Layout(summary.layout), open_dataset(folder, "catalog"), root, summary.root == "present")


def _open_snapshot(
    uri: str,
    out: DatasetPlace,
    context: Context,
    inventories: Sequence[Dataset],
    known: list[References],
    subtrees: SubtreeChoice,
) -> Dataset:
    """Return what a store held earlier as a catalog: a capture as it is, anything else captured beside the plan.

    A catalog with gaps is taken: what it lacks counts as not known, not as absent. What tombstones beside it name is
    added to what is known.
    """
    path = catalog_path(uri)
    if path is None:
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        with connect(uri, context) as opened:
            capture_store(opened, out, context, subtrees=subtrees)
    catalog = open_dataset(out if path is None else path, "catalog")
    known += find_deleted(of_catalog(catalog, uri), _list_instances(inventories, catalog))
    return catalog


def _name_clusters(inventories: Sequence[Dataset]) -> list[InstanceSource]:
    tables = [inventory.read("bookies", columns=["bookie", "instance_id"]) for inventory in inventories]
    return [source for table in tables for source in of_bookies(table)]


def _list_instances(inventories: Sequence[Dataset], catalog: Dataset) -> Collection[str]:
    """Return the instance ids of the cluster: those of its bookies; where these name none, those of a catalog."""
    named = {source.instance_id for source in _name_clusters(inventories) if source.instance_id is not None}
    return named or list_named(catalog)
