"""`plan show`: what a plan would write, and what it holds back."""

import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.chosen_settings import list_chosen
from reconcile.cli.command import Command, Exit
from reconcile.cli.options import PLACE, build_argv_disks, make_output, output_options
from reconcile.cli.output import Result
from reconcile.estimates import EstimatedStep, estimate_s
from reconcile.estimates import in_words as time_in_words
from reconcile.findings.refusal_texts import describe_reason
from reconcile.words import count_noun, count_released_holds, is_or_are, list_names
from recovery.place import DatasetPlace

if TYPE_CHECKING:
    from recovery.model.coverage import Coverage


_SHOWN: Final = 10


_HASH: Final = 12
"""Digits of a hash that a line for people shows where the whole one stands elsewhere."""


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "the plan is whole",
        Exit.FAILED: "INVALID: the plan does not match its hash",
        Exit.USAGE: "no plan, or not a whole one",
    },
    epilog="Example: bkmeta plan show plan --first 20",
)
@click.argument("path", metavar="PLAN", type=PLACE)
@click.option("--first", "shown", type=click.IntRange(0), default=_SHOWN, show_default=True, help="Lines of each list.")
@click.option("--every-row", is_flag=True, help="Hash every row of a large plan, too, as apply does: 5 µs each.")
@output_options
def show(path: DatasetPlace, shown: int, *, every_row: bool, **shared: Any) -> None:  # noqa: ANN401 - click's options
    """Say what PLAN would write, what it holds back and why, and whether its files are what its hash was made of."""
    from reconcile.cli.wording.plans import (
        count_candidates,
        deletion_lines,
        describe_reuse,
        describe_subtrees,
        rehearsal_root,
    )
    from reconcile.cli.wording.starts import list_starts
    from reconcile.jobs.plans.review import show_plan
    from reconcile.plan.actions import LEAVE, PlanPhase
    from reconcile.report.plan_verdict import describe_shares

    output = make_output(shared)
    plan = show_plan(path, shown, every_row=every_row)
    dataset, overview, manifest, deletions = plan.plan, plan.overview, plan.manifest, plan.deletions
    counts, binding = manifest.counts, manifest.binding
    left = sum(ops.get(LEAVE, 0) for ops in overview.phases.values())
    total = sum(sum(ops.values()) for ops in overview.phases.values()) - left
    back = "1 ledger comes back" if counts.restored == 1 else f"{counts.restored} ledgers come back"
    verdict = f"{count_noun(total, 'write')}: {back}, {counts.held} {is_or_are(counts.held)} held"
    if counts.guarded:
        verdict += f", {counts.guarded} can be read and {is_or_are(counts.guarded)} guarded"
    if counts.released:
        verdict += f", {count_released_holds(counts.released)}"
    if manifest.coverage.not_scanned:
        unseen = len(manifest.coverage.not_scanned)
        verdict += f"; {count_noun(unseen, 'bookie')} {'was' if unseen == 1 else 'were'} not read"
    if overview.problems:
        verdict = f"INVALID, {overview.problems[0]}"
    details = [
        *overview.problems[1:],
        f"hash {overview.hash}, {'not ' if overview.problems else ''}as the manifest says",
    ]
    if not overview.is_whole:
        rows = dataset.rows("actions") + dataset.rows("reconstruction")
        details.append(
            f"its files are those of its manifest, and what is listed here was hashed; of the {rows:,} rows the others "
            "are hashed by apply before it writes, and by --every-row"
        )
    details += [f"made {binding.made} for {binding.root or 'a store without a known root'}"]
    details += [f"layout {binding.layout}, instance {', '.join(binding.instance_ids) or 'unknown'}"]
    details.append(f"to write it takes {time_in_words(estimate_s(EstimatedStep.APPLY, total))}")
    details.append(describe_shares(counts))
    details += _describe_coverage(manifest.coverage)
    starts = manifest.decide_starts()
    details += list_starts(starts, "when the plan is written")
    inputs = binding.inputs or ()
    details += [f"made of the {given.kind} {given.name} {given.digest[:_HASH]}" for given in inputs[:_SHOWN]]
    details += [f"and of {len(inputs) - _SHOWN} more"] if len(inputs) > _SHOWN else []
    details += [f"made with {one.name} {one.value} ({one.origin})" for one in list_chosen(manifest.settings)]
    details += [f"edited: {text}" for text in binding.edits]
    details += ["", "phases, in their order:"]
    details += [
        f"  {1 + list(PlanPhase).index(phase)} {phase.name.lower():<12} "
        + ", ".join(f"{count} {op}" for op, count in sorted(ops.items()))
        for phase, ops in overview.phases.items()
    ]
    if left:
        details.append(f"  'leave' writes nothing, unless you choose: bkmeta plan edit --choose; {left} of the actions")
    details += describe_subtrees(manifest.subtrees)
    if manifest.candidates:
        details += ["", *count_candidates(manifest.candidates), *(f"  {line}" for line in plan.candidates)]
    if set(overview.waves) - {0}:
        details += [
            "",
            "waves:",
            *(f"  {wave}: {count_noun(count, 'write')}" for wave, count in overview.waves.items()),
        ]
    if overview.first:
        details += [
            "",
            f"the first {len(overview.first)} of {count_noun(total, 'write')}, phase by phase, by ledger:",
            *(f"  {line}" for line in overview.first),
        ]
    if counts.guarded:
        details += ["", f"guarded by this plan, {counts.guarded}: readable, every copy is kept until they are settled:"]
        doubts = sorted(manifest.doubts.items(), key=lambda item: -item[1])
        details += [f"  {count}, {describe_reason(reason)} ({reason})" for reason, count in doubts]
    if counts.held:
        details += ["", f"held by this plan, {counts.held}:"]
        reasons = sorted(manifest.reasons.items(), key=lambda item: -item[1])
        details += [f"  {count}, {describe_reason(reason)} ({reason})" for reason, count in reasons]
    if since := manifest.found.get("DELETED_SINCE", 0):
        listed = "bkmeta plan ledgers --category DELETED_SINCE"
        details += ["", f"{count_noun(since, 'ledger')} on no bookie, probably deleted since the snapshot: {listed}"]
    if counts.held_in_store:
        left_held = f"held by records of an earlier plan, which this one leaves as they are: {counts.held_in_store}"
        details += ["", left_held]
    if counts.ids_reused:
        verdict += f"; {count_noun(counts.ids_reused, 'id')} of two ledgers (ID_REUSE)"
        details += ["", *describe_reuse(str(path), counts.ids_reused, counts.reuse_locks)]
    if deletions:
        details += ["", *deletion_lines(dataset, deletions)]
    if overview.holds:
        details += ["", "held, and not settled by the evidence:"]
        details += [
            f"  {hold.ledger}{f' {hold.topic}' if hold.topic else ''} ({hold.reason}) on {', '.join(hold.holders)}"
            for hold in overview.holds
        ]
    unused = rehearsal_root(dataset)
    disks = build_argv_disks(manifest.coverage.scanned)
    following = shlex.join(["bkmeta", "rehearse", str(path), "--metadata", unused, *disks])
    result = Result(
        "plan-show",
        verdict,
        Exit.FAILED if overview.problems else 0,
        counts={**counts.to_json(), "writes": total, "altered": overview.altered},
        coverage=manifest.coverage.to_json(),
        details=details,
        following="do not apply it: make the plan again" if overview.problems else following,
        facts={
            "plan": str(path),
            "hash": overview.hash,
            "hash_in_manifest": manifest.hash,
            "problems": list(overview.problems),
            "every_row": overview.is_whole,
            "binding": binding.to_json(),
            "bookies": [start.to_json() for start in starts],
            "phases": {phase.name.lower(): dict(ops) for phase, ops in overview.phases.items()},
            "waves": {str(wave): count for wave, count in overview.waves.items()},
            "first": [
                {"seq": line.seq, "op": line.op, "kind": line.kind, "key": line.key, "expects": line.expects}
                for line in overview.first
            ],
            "held": [
                {"ledger": str(hold.ledger), "reason": hold.reason, "topic": hold.topic, "holders": list(hold.holders)}
                for hold in overview.holds
            ],
            "reasons": dict(manifest.reasons),
            "doubts": dict(manifest.doubts),
            "deletions": [one.to_json() for one in deletions],
            "subtrees": manifest.to_json()["subtrees"],
            "candidates": {**manifest.candidates, "listed": [line.to_json() for line in plan.candidates]},
        },
    )
    sys.exit(output.show(result))


def _describe_coverage(coverage: "Coverage") -> Iterator[str]:
    yield f"bookies read: {len(coverage.scanned)}"
    for names, text in ((coverage.not_scanned, "not read"), (coverage.not_complete, "not read completely")):
        if names:
            yield f"{text}: {list_names(names)}"
    if not coverage.members_known_from:
        yield "nothing says which bookies the cluster has"
