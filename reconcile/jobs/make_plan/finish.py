"""What the driver adds to the ranges of a plan: what stands beside the ledgers, the sums, the manifest, the hash."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.compare import range_findings
from reconcile.compare.decide import Case
from reconcile.compare.renamed_bookies import ProposedAlias
from reconcile.findings.categories import TRAITS, Category
from reconcile.findings.table import FindingRun, make_rows
from reconcile.jobs.make_plan.known_bookies import list_wanted_cookies
from reconcile.jobs.make_plan.range_task import RangeResult, RangeTasks
from reconcile.jobs.make_plan.request import PlanRequest
from reconcile.jobs.make_plan.subtree_writes import write_subtrees
from reconcile.jobs.make_plan.system_writes import SystemWrites, list_system_writes
from reconcile.plan.actions import LEAVE, PlanPhase, SystemWrite, make_system_actions, phase_of
from reconcile.plan.entry_shares import SHARES
from reconcile.plan.manifest import (
    HistorySource,
    InputDataset,
    PlanBinding,
    PlanCounts,
    PlanManifest,
    write_plan_manifest,
)
from reconcile.plan.plan_hash import Hashes, bucket_hashes
from reconcile.plan.range_counts import RangeCounts, count_values
from reconcile.plan.reference_counts import sum_references
from reconcile.plan.upper_layers.layer import LayerPart, LayerSources, UpperLayer
from reconcile.rules import reference_checks, used_ids
from reconcile.rules.holds import find_without_index
from reconcile.rules.nodes import list_far_ids
from reconcile.rules.used_ids import RaiseTargets, UsedNumbers
from recovery.dataset import read_inventories, write_part
from recovery.infer.prior import Prior
from recovery.manifest import Part
from recovery.model import tables
from recovery.model.coverage import Coverage
from recovery.place import to_place

_SETTLED: Final = ("restored", "guarded", "held", "accepted_loss", "deleted")


def finish_plan(
    tasks: RangeTasks,
    prior: Prior,
    results: Sequence[RangeResult],
    coverage: Coverage,
    instances: Sequence[str],
    aliases: Sequence[ProposedAlias] = (),
    *,
    layer: UpperLayer,
) -> PlanManifest:
    """Write what is of no bucket range, and the manifest; return it.

    Args:
        tasks: that all ranges were made by; the folder has their parts.
        prior: of all ranges.
        results: of the ranges, in their order.
        coverage: which bookies were looked at.
        instances: instance ids of the cluster.
        aliases: other names of bookies that the evidence suggests.
        layer: that subtrees may be of.
    """
    request, out, case, run = tasks.request, to_place(tasks.out), tasks.case, tasks.run
    sums = sum((result.counts for result in results), RangeCounts())
    counters = used_ids.numbers(request.layout, used_ids.of_counters(case.evidence.read_counters(request.layout)))
    of_bookies = used_ids.numbers(request.layout, used_ids.gather_ids_of_bookies(case.bookies))
    raises = used_ids.decide_raises([counters, of_bookies, *(result.used for result in results)], request.raise_past)
    unsettled = sums.ledgers - sums.present - sum(sums.outcomes.get(name, 0) for name in _SETTLED)
    proposes = bool(request.inventories or sums.ledgers)
    cookies = list_wanted_cookies(request, case.bookies, coverage, next(iter(instances), None)) if proposes else []
    of_system = SystemWrites([], ())
    if proposes:
        of_system = list_system_writes(request, case.bookies, raises.taken, cookies, with_cookies=unsettled == 0)
    writes = of_system.writes
    actions = make_system_actions(writes)
    subtrees = write_subtrees(request, out)
    beside = _find_beside_ledgers(request, case, raises, writes, run)
    beside = pa.concat_tables([beside, make_rows([alias.make_finding() for alias in aliases], run)])
    of_layer = LayerPart()
    if subtrees.source is not None and layer.owns(subtrees.counts):
        sources = LayerSources(
            snapshot=subtrees.source,
            catalogs=case.evidence.catalogs,
            issued=subtrees.source.find_issued(request.layout),
            ranges=[(result.parts["reconstruction"], result.parts["sides"]) for result in results],
            out=out,
            live=request.live,
        )
        of_layer = layer.plan(sources)
        beside = pa.concat_tables([beside, make_rows(list(of_layer.findings), run)])
    parts = {name: [result.parts[name] for result in results] for name in tables.PLAN if name != "candidates"}
    parts["candidates"] = list(of_layer.candidates)
    parts["findings"].append(write_part(out, "findings", "beside", [beside], secret=True))
    split = sum(phase_of(seq) < PlanPhase.LEDGERS for seq in actions["seq"].to_pylist())
    parts["actions"].insert(0, write_part(out, "actions", "system-first", [actions.slice(0, split)], secret=True))
    parts["actions"] += subtrees.parts
    parts["actions"].append(write_part(out, "actions", "system-last", [actions.slice(split)], secret=True))
    references = request.references
    counts = _count(sums, beside, actions, parts["actions"], raises, counters, [result.used for result in results])
    manifest = PlanManifest(
        binding=_bind(request, case, instances, run, cookies_held_back=unsettled > 0),
        coverage=coverage,
        counts=replace(counts, left_alone=counts.left_alone + subtrees.left),
        reasons=sums.reasons,
        doubts=sums.doubts,
        sides=sums.relations,
        found=_add(sums.findings, count_values(beside["category"])),
        references=(
            None
            if references is None or not references.names_all
            else sum_references(
                [r.references for r in results if r.references is not None],
                references.rows,
                unreadable=len(references.unreadable),
                gaps=len(references.gaps),
            )
        ),
        mass_deletion=case.evidence.mass_deletion,
        mass_let_go=case.evidence.mass_let_go,
        prior=prior.shapes,
        histories=_list_histories(case),
        subtrees=subtrees.counts,
        candidates=of_layer.counts,
        bookies=of_system.bookies,
        settings=request.settings,
    )
    hashes = Hashes(bucket_hashes(actions) | subtrees.hashes)
    for result in results:
        hashes.actions.update(result.hashes.actions)
        hashes.settled.update(result.hashes.settled)
    return write_plan_manifest(out, manifest, parts, hashes)


def _find_beside_ledgers(
    request: PlanRequest, case: Case, raises: RaiseTargets, writes: Sequence[SystemWrite], run: FindingRun
) -> pa.Table:
    """Return the findings of no bucket range: of nodes, ids far above, bookies without index, references."""
    findings = range_findings.find_beside_ledgers(
        case.evidence,
        case.bookies,
        run,
        layout=request.layout,
        taken=raises.taken,
        raised=frozenset(write.key for write in writes if write.op == "raise"),
    )
    damage = read_inventories(request.inventories, "damage")
    lost = case.options.lost_bookies
    rows = [*list_far_ids(raises), *find_without_index(case.bookies.to_pylist(), damage, lost)]
    if request.references is not None:
        rows += reference_checks.unreadable(request.references.unreadable, request.references.gaps)
    return pa.concat_tables([findings, make_rows(rows, run)])


def _bind(
    request: PlanRequest, case: Case, instances: Sequence[str], run: FindingRun, *, cookies_held_back: bool
) -> PlanBinding:
    bookies = zip(case.bookies["bookie"].to_pylist(), case.bookies["incarnation"].to_pylist(), strict=True)
    options: dict[str, Any] = {
        "tail": str(request.tail),
        "default_quorum": request.default_quorum,
        "passwords": len(request.passwords.values),
        "expected_bookies": None if request.expected is None else sorted(request.expected),
    }
    if request.stated_quorums.statements:
        options["quorums"] = list(map(str, request.stated_quorums.statements))
    if request.lost:
        options["lost"] = sorted(map(str, request.lost))
    if request.raise_past is not None:
        options["raise_past"] = request.raise_past
    return PlanBinding(
        instance_ids=tuple(instances),
        layout=str(request.layout),
        root=request.root,
        bookies=tuple(sorted(bookies)),
        cookies_held_back=cookies_held_back,
        made=run.name,
        inputs=_list_inputs(request),
        options=options,
    )


def _count(
    sums: RangeCounts,
    beside: pa.Table,
    actions: pa.Table,
    parts: Sequence[Part],
    raises: RaiseTargets,
    counters: UsedNumbers,
    used: Sequence[UsedNumbers],
) -> PlanCounts:
    """Return the counts of a plan.

    Args:
        sums: of all ranges.
        beside: findings of no range.
        actions: of no range.
        parts: of all actions.
        raises: how far generators are raised.
        counters: what the last ids that generators gave say of them.
        used: what the ids of each range do.
    """
    findings = _add(sums.findings, count_values(beside["category"]))
    critical = _add(sums.proven, count_values(beside.filter(pc.equal(beside["severity"], "critical"))["category"]))
    no_disagreements = sum(findings.get(category, 0) for category, traits in TRAITS.items() if traits.sides_agree)
    return PlanCounts(
        ledgers=sums.ledgers,
        restored=sums.outcomes.get("restored", 0),
        guarded=sums.outcomes.get("guarded", 0),
        held=sums.outcomes.get("held", 0),
        waiting=sums.outcomes.get("waiting", 0),
        deleted=sums.outcomes.get("deleted", 0),
        in_store_already=sums.present,
        in_store=sums.stored,
        in_store_not_on_bookies=sums.unheld,
        newer_than_inventories=sums.newer,
        held_in_store=sums.still_held,
        guarded_in_store=sums.still_guarded,
        released=sums.released,
        settled=sums.settled,
        guarded_by_names=sums.named,
        beyond_end=sums.beyond,
        disagreements=sum(findings.values()) - no_disagreements - sums.short - sums.beyond - beside.num_rows,
        critical=sum(critical.values()),
        looked_at=sums.looked_at,
        clean=sums.verdicts.get("clean", 0),
        skipped=sums.verdicts.get("skipped", 0),
        undecided=sums.verdicts.get("undecided", 0),
        with_findings=sum(count for name, count in sums.verdicts.items() if name in set(Category)),
        findings=sum(findings.values()),
        left_alone=sums.left + actions["op"].to_pylist().count(LEAVE),
        actions=sum(part.rows for part in parts),
        ids_above_short_generator=sum(part.above_short for part in used),
        ids_not_raised_past=sum(part.above_raise - part.above_short for part in used),
        ids_far_above=len(raises.far_above),
        counters_not_raised_past=counters.above_raise - counters.above_short,
        ids_reused=sums.reused,
        reuse_locks=sums.reuse_locks,
        **{f"entries_{name}": sums.entries.get(name, 0) for name in SHARES},
    )


def _add(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted((Counter(first) + Counter(second)).items()))


def _list_inputs(request: PlanRequest) -> tuple[InputDataset, ...]:
    """Say what the plan is made of: each dataset by its digest, references by that of their rows."""
    datasets = [("inventory", dataset) for dataset in request.inventories]
    datasets += [("store", dataset) for dataset in (request.live,) if dataset is not None]
    datasets += [("snapshot", dataset) for dataset in request.snapshots]
    inputs = [InputDataset(kind, dataset.path, dataset.digest) for kind, dataset in datasets]
    if request.references is not None:
        rows = pa.BufferOutputStream()
        with pa.ipc.new_stream(rows, request.references.rows.schema) as stream:
            stream.write_table(request.references.rows.combine_chunks())
        inputs.append(InputDataset("references", "", hashlib.sha256(rows.getvalue()).hexdigest()))
    return tuple(inputs)


def _list_histories(case: Case) -> tuple[HistorySource, ...]:
    return tuple(
        HistorySource(
            str(catalog.dataset.manifest["binding"].get("uri") or catalog.source), catalog.txn, catalog.is_chosen
        )
        for catalog in case.evidence.catalogs
        if catalog.dataset.rows("history")
    )
