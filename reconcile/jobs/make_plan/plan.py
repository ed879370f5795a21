"""A plan that brings the lost ledger metadata back, of inventories of bookies, the store and snapshots.

    pass 1   every bucket range: which (E, W) the cluster's own ledgers show → the prior; what was deleted on purpose
    pass 2   every bucket range: reconstruct → compare with the store and snapshots → actions and findings
    driver   generators, LAYOUT, instance id, cookies, what is beside the ledgers; the manifest with the plan's hash

Where a catalog has ids of other scopes, a pass before these looks for ledgers that share the lower half of their ids.
Without inventories the store and the snapshots are compared; records are proposed where the store has none.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from reconcile import clusters
from reconcile.compare import decide
from reconcile.compare.decide import Case
from reconcile.compare.evidence import BookieEvidence, Catalog, has_scopes, sort_newest_first
from reconcile.compare.renamed_bookies import propose_aliases
from reconcile.findings.table import FindingRun
from reconcile.jobs.make_plan.finish import finish_plan
from reconcile.jobs.make_plan.range_task import REFERENCES, RangeResult, RangeTasks
from reconcile.jobs.make_plan.request import PlanRequest, list_sources
from reconcile.plan.manifest import PlanManifest
from reconcile.plan.upper_layers.layer import UpperLayer
from reconcile.pulsar.layer import PULSAR
from reconcile.rules.segments.member_names import require_other_names
from recovery.dataset import SPILL, read_inventories, write_part
from recovery.infer.lost_disks import find_lost_bookies
from recovery.infer.reconstruct import InferOptions
from recovery.model.coverage import Coverage
from recovery.place import DatasetPlace, remove_tree
from recovery.spark import over_buckets

if TYPE_CHECKING:
    from recovery.spark import SparkSession


def make_plan(
    request: PlanRequest,
    out: DatasetPlace,
    spark: "SparkSession | None",
    *,
    now: Callable[[], datetime],
    progress: Callable[[int, int, str], None] = lambda _done, _all, _stage: None,
    layer: UpperLayer = PULSAR,
) -> PlanManifest:
    """Make a plan: a dataset of kind plan in the folder `out`, which `prepare` made ready.

    Args:
        request: what it is made of.
        out: the folder.
        spark: carries the tasks; None: this process does.
        now: the clock; aware.
        progress: is called with (tasks done, of all, stage).
        layer: that brought subtrees may be of.

    Raises:
        DatasetError: an inventory or catalog is damaged, or the plan cannot be written.
        InputError: two sources are of two clusters.
        SparkError: Spark failed.
    """
    started = now()
    bookies = read_inventories(request.inventories, "bookies")
    sources = list_sources(request, bookies)
    instances = sorted({i for i in bookies["instance_id"].to_pylist() if i is not None})
    # Where no bookie names a cluster, what else was put together with them does.
    instances = instances or sorted({source.instance_id for source in sources if source.instance_id is not None})
    # A source alone has nothing to be compared with.
    require_other_names(request.aliases, bookies["bookie"].to_pylist())
    coverage = _cover(request, bookies).with_nameless(clusters.nameless(sources) if len(sources) > 1 else [])
    coverage = coverage.without_lost(_find_lost(request, bookies, coverage))
    case = _make_case(request, bookies, coverage)
    aliases = propose_aliases(request.inventories, bookies, case.evidence, [disk.bookie for disk in request.lost])
    case = replace(case, evidence=case.evidence.with_proposed({alias.name: alias.bookie for alias in aliases}))
    tasks = RangeTasks(request, str(out.absolute()), case, FindingRun(started.isoformat(timespec="seconds"), started))
    ranges = decide.cut_ranges(case)
    if request.references is not None:
        write_part(out, SPILL, REFERENCES, [request.references.rows], secret=True)
    evidence = _with_collisions(tasks, spark, ranges, lambda done, total: progress(done, total, "scopes"))
    tasks = replace(tasks, case=replace(case, evidence=evidence))
    sampled = decide.sample_ranges(ranges, case.rows())
    counts = over_buckets(spark, tasks.count_shapes, sampled, done=lambda done, total: progress(done, total, "shapes"))
    case, prior = decide.prepare_case(tasks.case, counts)
    tasks = replace(tasks, case=case)
    answers = over_buckets(
        spark, partial(tasks.make_part, prior), ranges, done=lambda done, total: progress(done, total, "ledgers")
    )
    try:
        results = [msgspec.convert(answer, RangeResult, str_keys=True) for answer in answers]
        return finish_plan(tasks, prior, results, coverage, instances, aliases, layer=layer)
    finally:
        remove_tree(out / SPILL)


def _find_lost(request: PlanRequest, bookies: pa.Table, coverage: Coverage) -> tuple[str, ...]:
    """Return the bookies of which nothing will come back.

    Raises:
        InputError: a statement is of no bookie or folder that is missing.
    """
    if not request.lost:
        return ()
    damage = read_inventories(request.inventories, "damage")
    stated = [replace(disk, bookie=request.aliases.get(disk.bookie, disk.bookie)) for disk in request.lost]
    return find_lost_bookies(stated, bookies, damage, coverage.not_scanned)


def _make_case(request: PlanRequest, bookies: pa.Table, coverage: Coverage) -> Case:
    evidence = BookieEvidence(
        live=Catalog.read(request.live) if request.live else None,
        snapshots=sort_newest_first(request.snapshots),
        everywhere=coverage.is_whole,
        looked_at=bool(request.inventories),
        is_some_lost=bool(coverage.lost),
        aliases=request.aliases,
    )
    return Case(
        request.inventories,
        bookies,
        evidence,
        InferOptions(
            passwords=request.passwords.values,
            unscanned_bookies=coverage.not_scanned,
            lost_bookies=coverage.lost,
            tail=request.tail,
        ),
        request.layout,
        request.default_quorum,
        members_known=bool(coverage.members_known_from),
        stated_quorums=request.stated_quorums,
    )


def _with_collisions(
    tasks: RangeTasks, spark: "SparkSession | None", ranges: Sequence[range], done: Callable[[int, int], None]
) -> BookieEvidence:
    """Find ledgers of several scopes with the same lower half; costs nothing where all are of scope 0."""
    evidence = tasks.case.evidence
    if not has_scopes([*tasks.request.inventories, *evidence.datasets]):
        return evidence
    parts = over_buckets(spark, tasks.write_collisions, ranges, done=done)
    return replace(evidence, collisions=tuple(f"{tasks.out}/{part['file']}" for part in parts if part["rows"]))


def _cover(request: PlanRequest, bookies: pa.Table) -> Coverage:
    """Say which bookies were looked at, which were not, and what names the members."""
    scanned = {row["bookie"]: row["complete"] for row in bookies.select(["bookie", "complete"]).to_pylist()}
    named: dict[str, set[str]] = {}
    if request.expected is not None:
        named["expected by the operator"] = set(request.expected)
    for title, catalog in (("in the store", request.live), *(("in a snapshot", s) for s in request.snapshots)):
        if catalog is None:
            continue
        nodes = catalog.read("nodes", columns=["path", "kind"])
        cookies = nodes.filter(pc.equal(nodes["kind"], "cookie"))["path"].to_pylist()
        if cookies:
            named.setdefault(f"with a cookie {title}", set()).update(path.rsplit("/", 1)[-1] for path in cookies)
    by_id = {title: {request.aliases.get(name, name) for name in names} for title, names in sorted(named.items())}
    return Coverage.count(scanned, by_id)
