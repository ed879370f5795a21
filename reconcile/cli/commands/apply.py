"""`apply`: a plan into the store that it is for."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.approval import approval_option, carry_approvals, take_approvals
from reconcile.cli.command import Command, Exit
from reconcile.cli.option_groups.wire import take_wire, wire_options
from reconcile.cli.options import (
    FOLDER,
    PLACE,
    build_argv_disks,
    carry_options,
    inventory_options,
    make_context,
    make_output,
    output_options,
    quote_command,
    read_aliases,
    reason_option,
)
from reconcile.cli.output import Result
from reconcile.jobs.context import add_remedy
from reconcile.words import count_noun, count_released_holds, printable
from recovery.place import DatasetPlace

if TYPE_CHECKING:
    from reconcile.jobs.changes.apply import AppliedAndJudged, Confirmation, Review
    from reconcile.jobs.changes.touched import Touched
    from reconcile.plan.manifest import PlanCounts
    from reconcile.write.apply_results import AppliedTally

from reconcile.words import list_names

_SHOWN: Final = 10


_FROM_SNAPSHOT: Final = "from-snapshot"
_LOCKS: Final = {("lock", "lock"): "locks of guarded ledgers", ("lock", "release"): "locks of settled ledgers, removed"}
"""Kind and op of writes → what they are for people."""


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "all was written and read back",
        Exit.FAILED: "the store did not answer, or the journal's disk is full, before anything was written",
        Exit.USAGE: "a plan, a journal or a URI that cannot be used",
        Exit.FOUND: "all was written; its scrutiny has findings that the plan does not have, so the next wave waits",
        Exit.REFUSED: "refused: not confirmed, or not approved as the cluster's policy asks; another cluster's root; "
        "bookies run or were not read; no ACL is given; an earlier wave has findings, marked ledgers or no scrutiny; "
        "replication is enabled, and ledgers are guarded by names alone",
        Exit.PARTLY: "stopped midway, or keys were left as they are: run it again with --resume",
    },
    epilog="Example: bkmeta apply plan --metadata zk+hierarchical://zk1:2181/ledgers --confirm 3f9a61c07b2e\n\n"
    "The hash is printed by `bkmeta recover` and `bkmeta plan show`; its first 8 digits are enough.",
)
@click.argument("plan", type=PLACE)
@click.option("--metadata", "uri", required=True, metavar="URI", help="The store to be written.")
@click.option("--confirm", metavar="HASH", help="The plan's hash; asked for on a terminal if it is not given.")
@click.option(
    "--acl",
    metavar="SPEC|from-snapshot",
    help="ACL of created keys, scheme:id:perms,…; or those that the plan names. [default: open where the store is]",
)
@click.option(
    "--accept-unseen",
    type=int,
    default=0,
    metavar="N",
    help="Number of bookies that you know were not read. What only they hold is deleted.",
)
@click.option("--accept-unfrozen", is_flag=True, help="Write although bookies are registered in this root.")
@click.option("--wave", type=click.IntRange(1), metavar="N", help="Only this wave of a plan that was split; in order.")
@inventory_options(
    "Inventory by which the written records are judged. [default: the inventories that the plan was made from]"
)
@click.option("--wire", is_flag=True, help="Also ask the running bookies about the written ledgers.")
@click.option(
    "--accept-findings",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Number of findings of earlier waves that you accept.",
)
@click.option(
    "--accept-marked",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Number of ledgers of earlier waves that may be marked for re-replication.",
)
@click.option("--journal", type=FOLDER, help="Where every write is recorded. [default: PLAN/journal]")
@click.option("--resume", is_flag=True, help="Continue with the existing journal.")
@approval_option
@reason_option
@wire_options
@output_options
def apply(
    plan: DatasetPlace,
    uri: str,
    confirm: str | None,
    acl: str | None,
    accept_unseen: int,
    accept_unfrozen: bool,  # noqa: FBT001 - click's option
    wave: int | None,
    inventories: tuple[str, ...],
    wire: bool,  # noqa: FBT001 - click's option
    accept_findings: int,
    accept_marked: int,
    journal: Path | None,
    resume: bool,  # noqa: FBT001 - click's option
    reason: str | None,
    **shared: Any,  # noqa: ANN401 - click's options
) -> None:
    """Write what PLAN proposes, and nothing over anything. WRITES to the store.

    What is absent is created; what is at a key already is left as it is and listed. Every write is journalled
    before and after, and read back; a run that was stopped is gone on with by --resume.

    At the end the rules of `scrutinize` judge each record that was written, by the plan's inventories and by what
    running bookies answer. A wave waits until the one before was judged, nothing was found that the plan lacks, and
    none of its ledgers is marked for re-replication.
    """
    from reconcile.jobs.changes import apply as job
    from reconcile.plan.manifest import read_plan_manifest

    output, approvals = make_output(shared), take_approvals(shared)
    request = job.ApplyRequest(
        plan=plan,
        uri=uri,
        acl=None if acl == _FROM_SNAPSHOT else acl,
        has_acl=acl == _FROM_SNAPSHOT,
        accept_unfrozen=accept_unfrozen,
        wave=wave,
        journal=journal,
        resume=resume,
        reason=reason,
        approvals=approvals,
        inventories=inventories,
        aliases=read_aliases(shared["aliases"]),
        wire=take_wire(shared, wire=wire, without=frozenset({"aliases"})),
        accept_findings=accept_findings,
        accept_marked=accept_marked,
    )
    review = job.review(request)
    confirmation = job.Confirmation(confirm, accept_unseen)
    if confirm is None and sys.stdin.isatty():
        confirmation = _ask_for_confirmation(review, accept_unseen)
    more = carry_options("--metadata", "--inventory", "--inventory-dir", "--aliases")
    more += ["--wire"] if wire else []
    more += [] if wave is None else ["--wave", str(wave)]
    more += ["--journal", str(journal)] if journal else []
    more += ["--acl", acl] if acl else []
    more += ["--accept-unseen", str(confirmation.unseen)] if confirmation.unseen else []
    more += ["--accept-unfrozen"] if accept_unfrozen else []
    more += ["--accept-findings", str(accept_findings)] if accept_findings else []
    more += ["--accept-marked", str(accept_marked)] if accept_marked else []
    more += ["--reason", reason] if reason else []
    more += [*carry_approvals(approvals.files), "--confirm", review.hash]
    command = quote_command("bkmeta", "apply", plan, *more)
    with add_remedy(
        f"every write so far is recorded in {job.journal_folder(request)}; to continue: {command} --resume"
    ):
        done = job.apply(request, review, confirmation, make_context(output))
    manifest = read_plan_manifest(review.plan)
    sys.exit(output.show(_make_result(done, plan, command, manifest.counts)))


def _ask_for_confirmation(review: "Review", accept_unseen: int) -> "Confirmation":
    """Ask on the terminal for the hash, and for the number of bookies that were not looked at."""
    from reconcile.jobs.changes.apply import TYPED, Confirmation

    guarded = f", {review.guarded} under a guard," if review.guarded else ""
    promise = f"{count_noun(review.restored, 'record')}{guarded} and {count_noun(review.held, 'hold')} will be created"
    if review.released:
        promise += f", {count_released_holds(review.released)}"
    click.echo(f"{promise}; hash {review.hash}", err=True)
    typed = click.prompt(f"type the first {TYPED} digits of the hash to continue", err=True)
    if len(typed) < TYPED:
        raise click.Abort
    if review.unseen and not accept_unseen:
        names = printable(list_names(review.unseen))
        click.echo(f"not read, and what only these bookies hold will be deleted: {names}", err=True)
        accept_unseen = click.prompt("to continue, type the number of bookies that were not read", type=int, err=True)
    return Confirmation(typed, accept_unseen)


def _describe_tally(tally: "AppliedTally") -> str:
    """Say what became of the writes of one kind: what is none of them is not said."""
    parts = (
        (tally.written, "written"),
        (tally.there, "there already"),
        (tally.conflicts, "left: the key exists with another value"),
        (tally.withheld, "withheld"),
    )
    return ", ".join(f"{count} {noun}" for count, noun in parts if count) or "none"


def _describe_scrutiny(touched: "Touched") -> list[str]:
    """Say what the scrutiny of what was written found, and what it could not judge."""
    from reconcile.findings.view import FindingView

    pct = 100 * touched.judged / touched.positions if touched.positions else 100.0
    seen = count_noun(touched.inventories, "inventory", "inventories") + " and running bookies" * touched.asked
    skipped, undecided = sum(touched.skipped.values()), sum(touched.undecided.values())
    lines = [
        (
            f"scrutiny of {count_noun(touched.ledgers, 'ledger')} that were written, by {seen}: {touched.clean} clean, "
            f"{skipped} skipped, {undecided} undecided, {touched.with_findings} with findings"
        ),
        f"copies judged: {touched.judged} of {touched.positions} ({pct:.1f} %)",
    ]
    if touched.expected:
        lines.append(f"the plan has these findings, too: {touched.expected}")
    if touched.absent:
        lines.append(f"not used, because it is gone or has changed: {list_names(touched.absent)}; give --inventory")
    return lines + [line for row in touched.worst for line in FindingView.from_row(row).lines]


def _make_result(done: "AppliedAndJudged", plan: DatasetPlace, command: str, counts: "PlanCounts") -> Result:
    from reconcile.cli.wording.plans import describe_reuse
    from reconcile.cli.wording.starts import AFTER_THAW, list_starts
    from reconcile.jobs.starts import BookieStarts

    applied, touched = done.applied, done.touched
    tallies = applied.tallies
    created = sum(t.written for (kind, op), t in tallies.items() if kind == "ledger" and op in ("create", "hold"))
    changed = sum(t.written for (kind, op), t in tallies.items() if kind == "ledger" and op in ("replace", "remove"))
    there = sum(t.there for (kind, _), t in tallies.items() if kind == "ledger")
    conflicts = sum(t.conflicts for t in tallies.values())
    was = "was" if there == 1 else "were"
    verdict = f"{count_noun(created, 'ledger record')} written and read back, {there} {was} there already"
    if changed:
        verdict += f", {changed} replaced or removed"
    if conflicts:
        keys = "1 key holds" if conflicts == 1 else f"{conflicts} keys hold"
        verdict += f"; {keys} something else: left as found"
    if touched.unexpected:
        verdict += f"; its scrutiny has {count_noun(touched.unexpected, 'finding')} that the plan does not have"
    if applied.changed_count:
        keys = "1 key no longer holds" if applied.changed_count == 1 else f"{applied.changed_count} keys no longer hold"
        verdict = f"{keys} what was written: another program writes here. {verdict}"
    details = [
        f"{_LOCKS.get((kind, op), f'{op} {kind}')}: {_describe_tally(t)}" for (kind, op), t in sorted(tallies.items())
    ]
    details += [f"left as it is: {c.key} ({c.reason})" for c in applied.conflicts[:_SHOWN]]
    details += [f"changed since: {key}" for key in applied.changed[:_SHOWN]]
    if applied.cookies_withheld:
        details.append(f"no cookies were written: {applied.cookies_withheld}")
    if tallies.get(("lock", "lock")):
        details.append(
            "verify again in five minutes: a worker whose session ends by then may remove a lock of a ledger"
        )
    if counts.ids_reused:
        verdict += f"; {count_noun(counts.ids_reused, 'id')} of two ledgers (ID_REUSE)"
        details += describe_reuse(str(plan), counts.ids_reused, counts.reuse_locks)
    details += _describe_scrutiny(touched)
    if done.ids is not None:
        details.append(f"the ledgers with these findings: {done.ids}; export --from takes it")
    elif done.ids_problem:
        details.append(f"the ledgers with these findings could not be written into a file: {done.ids_problem}")
    details.append(f"every write is recorded in {applied.journal}")
    details += list_starts(applied.bookies, AFTER_THAW if applied.starts_after_thaw else "now")
    code = applied.exit_code or (Exit.FOUND if touched.unexpected else Exit.DONE)
    disks = build_argv_disks([start.bookie for start in applied.bookies])
    following = quote_command("bkmeta", "verify", plan, *carry_options("--metadata"), "--sample", "all", *disks)
    return Result(
        "apply",
        verdict,
        code,
        counts={f"{op} {kind}": asdict(tally) for (kind, op), tally in sorted(tallies.items())},
        coverage={"read_back": applied.checked, "changed": applied.changed_count},
        details=details,
        following=following
        if not code
        else f"look into the {'conflicts' if applied.exit_code else 'findings'} above, then: {command} --resume",
        facts={
            "journal": str(applied.journal),
            "conflicts": [asdict(conflict) for conflict in applied.conflicts],
            "cookies_withheld": applied.cookies_withheld,
            "bookies": BookieStarts(applied.bookies, applied.starts_after_thaw).to_json(),
            "scrutiny": touched.to_json(),
            "ids": None if done.ids is None else str(done.ids),
        },
    )
