"""`undo`: what an apply wrote, taken back by its journal."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.approval import approval_option, carry_approvals, take_approvals
from reconcile.cli.command import Command, Exit
from reconcile.cli.options import (
    FOLDER,
    make_context,
    make_output,
    output_options,
    quote_command,
    reason_option,
)
from reconcile.cli.output import Result
from reconcile.jobs.context import add_remedy
from reconcile.words import count_noun, is_or_are, printable

if TYPE_CHECKING:
    from reconcile.jobs.changes.undo import UndoOutcome
    from reconcile.write.undo import UndoProposal

_SHOWN: Final = 10


_TYPED: Final = 8
"""Digits of a hash that count as having read it."""


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "what the apply wrote is taken back",
        Exit.FAILED: "the store did not answer, or the journal's disk is full, before anything was written",
        Exit.USAGE: "a journal or a URI that cannot be used",
        Exit.REFUSED: "not confirmed or not approved; or records were created and the store is not frozen",
        Exit.PARTLY: "stopped midway, or keys that were changed since then were left",
    },
    epilog="Example: BKMETA_ZK_AUTH=bkmeta:secret bkmeta undo plan/journal --metadata zk+hierarchical://zk1:2181/ledgers",
)
@click.argument("journal", type=FOLDER)
@click.option("--metadata", "uri", required=True, metavar="URI", help="The store that the apply wrote to.")
@click.option("--confirm", metavar="HASH", help="Hash that a run without this option prints.")
@click.option("--replaced-only", is_flag=True, help="Put back what was replaced, and leave what was created.")
@approval_option
@reason_option
@output_options
def undo(
    journal: Path,
    uri: str,
    confirm: str | None,
    *,
    replaced_only: bool,
    reason: str | None,
    **shared: Any,  # noqa: ANN401 - the shared options
) -> None:
    """Take back what the apply of JOURNAL wrote. WRITES to the store.

    Records that it replaced are put back, those that it created are removed, where nobody changed them since. A created
    record is removed only while the store is frozen: from a thawed one the bookies would delete the ledger. Generators
    stay raised. Without --confirm it prints what it would do and its hash, and changes nothing.
    """
    from reconcile.jobs.changes import undo as job
    from reconcile.write.audit_journal import find_next_journal

    output, approvals = make_output(shared), take_approvals(shared)
    request = job.UndoApplyRequest(
        journal=journal, uri=uri, confirmed=confirm, replaced_only=replaced_only, reason=reason, approvals=approvals
    )
    with add_remedy(f"what was taken back is recorded in {journal}: run the same command again"):
        outcome = job.undo(request, make_context(output), _ask_for_hash)
    proposal, done = outcome.proposal, outcome.undone
    if done is None:
        more = [*(["--replaced-only"] if replaced_only else []), *(["--reason", reason] if reason else [])]
        more += carry_approvals(approvals.files)
        command = quote_command("bkmeta", "undo", journal, "--metadata", uri, *more)
        sys.exit(output.show(_make_waiting_result(outcome, command, journal)))
    taken, left = sum(done.done.values()) + sum(done.there.values()), sum(done.left.values())
    verdict = f"{taken} of {count_noun(taken + left, 'write')} {is_or_are(taken)} taken back"
    if left:
        verdict += f"; {left} {'was' if left == 1 else 'were'} left: their keys were changed since then"
    details = [
        f"{op}: {done.done.get(op, 0)} taken back, {done.there.get(op, 0)} were so already, {done.left.get(op, 0)} left"
        for op in sorted({*done.done, *done.there, *done.left})
    ]
    details += [f"left as it is: {conflict.key} ({conflict.reason})" for conflict in done.listed[:_SHOWN]]
    details.append("generators stay raised; empty folders stay")
    fresh = quote_command("--journal", find_next_journal(journal))
    details.append(f"this journal is closed now: to apply the plan again, add {fresh} to its command, without --resume")
    result = Result(
        "undo",
        verdict,
        done.exit_code,
        counts={"done": dict(done.done), "there": dict(done.there), "left": dict(done.left)},
        details=details,
        following=quote_command("bkmeta", "audit", "show", journal),
        facts={"hash": proposal.hash, "journal": str(journal), "left": [asdict(conflict) for conflict in done.listed]},
    )
    sys.exit(output.show(result))


def _ask_for_hash(proposal: "UndoProposal") -> str | None:
    """Show on a terminal what would be taken back, and return what is typed; None: there is no terminal."""
    if not sys.stdin.isatty():
        return None
    for line in _proposal_lines(proposal):
        click.echo(printable(line), err=True)
    typed: str = click.prompt(f"type the first {_TYPED} digits of the hash to continue", err=True)
    return typed


def _proposal_lines(proposal: "UndoProposal") -> list[str]:
    counts = _proposal_counts(proposal)
    return [*(f"{name}: {count} written by the apply" for name, count in counts.items()), f"hash {proposal.hash}"]


def _proposal_counts(proposal: "UndoProposal") -> dict[str, int]:
    return {f"{op} {kind}": count for (kind, op), count in sorted(proposal.writes.items())}


def _make_waiting_result(outcome: "UndoOutcome", command: str, journal: Path) -> Result:
    """Say that nothing was changed, and which command goes on."""
    proposal, confirmed = outcome.proposal, outcome.confirmed
    verdict = "nothing was changed: undo waits for its hash"
    if confirmed is not None:
        verdict = f"nothing was changed: the confirmed hash ({confirmed[:12]}) is not what would be written now"
    return Result(
        "undo",
        verdict,
        Exit.REFUSED,
        counts=_proposal_counts(proposal),
        details=_proposal_lines(proposal),
        following=f"{command} --confirm {proposal.hash}",
        facts={"hash": proposal.hash, "journal": str(journal)},
    )
