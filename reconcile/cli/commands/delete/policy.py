"""`delete policy`: what holds for all deletes and restores of a cluster, shown and set."""

import re
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.approval import approval_option, take_approvals
from reconcile.cli.command import Command, Exit
from reconcile.cli.option_groups.deletes import metadata_option, show_time, take_target, target_options, to_ms
from reconcile.cli.options import DURATION, make_context, make_output, output_options, quote_command
from reconcile.cli.output import Result
from reconcile.words import count_noun

if TYPE_CHECKING:
    from reconcile.deletes.policy import DeletePolicy

_NAME: Final = re.compile(r"[A-Za-z0-9_.@+\-]{1,64}")
_HOUR_MS: Final = 3_600_000


@click.group(epilog="Example: bkmeta delete policy show --metadata zk+hierarchical://zk1:2181/ledgers")
def policy() -> None:
    """Show or set what holds for all deletes and restores of a cluster, whatever the options of a command are."""


@policy.command(
    cls=Command,
    exits={
        Exit.DONE: "the policy is shown; perhaps there is none",
        Exit.FAILED: "the store did not answer",
        Exit.USAGE: "a URI that cannot be used",
        Exit.REFUSED: "the policy cannot be read: a later version wrote it",
    },
    epilog="Example: bkmeta delete policy show --metadata zk+hierarchical://zk1:2181/ledgers",
)
@metadata_option
@output_options
def show(uri: str, **shared: Any) -> None:  # noqa: ANN401 - the shared options
    """Show the policy of a cluster. Nothing is written."""
    from reconcile.deletes.policy import NO_POLICY
    from reconcile.jobs.deletes.policy import show_policy

    output = make_output(shared)
    stored = show_policy(uri, make_context(output))
    policy = NO_POLICY if stored is None else stored.policy
    verdict = "no policy is set" if stored is None else f"set by {stored.by} at {show_time(stored.at_ms)}"
    result = Result(
        "delete-policy-show",
        verdict,
        Exit.DONE,
        details=list(_describe(policy)),
        facts={
            "policy": None if stored is None else policy.to_json(),
            "by": None if stored is None else stored.by,
            "at": None if stored is None else show_time(stored.at_ms),
        },
    )
    sys.exit(output.show(result))


def _parse_approvers(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, Path]:
    """Read NAME=FILE."""
    files: dict[str, Path] = {}
    for value in values:
        name, equals, path = value.partition("=")
        if not equals or not _NAME.fullmatch(name) or not path or name in files:
            raise click.BadParameter(f"{value!r}: write NAME=FILE, each name once: letters, digits and _ . @ + -")
        files[name] = Path(path)
    return files


@policy.command(
    "set",
    cls=Command,
    exits={
        Exit.DONE: "the policy is set",
        Exit.FAILED: "the store did not answer, or the journal's disk is full",
        Exit.USAGE: "a key, a name, a URI or a journal that cannot be used, or a policy that cannot be met",
        Exit.REFUSED: "it asks for less than the policy before, and too few approved that; it was set by another "
        "process meanwhile; or bkmeta's own root is not ours",
        Exit.PARTLY: "stopped midway: run the same command again",
    },
    epilog="Example: bkmeta delete policy set --metadata zk+hierarchical://zk1:2181/ledgers --archived required "
    "--approvals 1 --approver ann=ann.pub.pem --approver bob=bob.pub.pem",
)
@target_options
@click.option("--archived", type=click.Choice(["required", "ignored"]), help="Whether a delete needs an archive mark.")
@click.option("--least-soak", type=DURATION, help="Least soak of each delete.")
@click.option("--least-age", type=DURATION, help="Age that a ledger must have when references are listed, at least.")
@click.option(
    "--breaker", type=click.IntRange(0), metavar="N", help="Ledgers that may be purged in a day without a confirmation."
)
@click.option(
    "--quarantine",
    type=DURATION,
    help="How long a hold keeps the data before a purge removes the record; 0s: no quarantine.",
)
@click.option(
    "--quarantine-most", type=click.IntRange(1), metavar="N", help="Ledgers that may be in quarantine at a time."
)
@click.option(
    "--approvals",
    "people",
    type=click.IntRange(0, 16),
    metavar="N",
    help="People who must approve what one person made: a plan, a certificate, a thaw, an undo, a loss.",
)
@click.option(
    "--approver",
    "approvers",
    multiple=True,
    metavar="NAME=FILE",
    callback=_parse_approvers,
    help="A person who may approve, and the PEM of their public Ed25519 key.",
)
@click.option(
    "--without-approver", "without", multiple=True, metavar="NAME", help="A person who may no longer approve."
)
@approval_option
@output_options
def set_policy(
    archived: str | None,
    least_soak: timedelta | None,
    least_age: timedelta | None,
    breaker: int | None,
    quarantine: timedelta | None,
    quarantine_most: int | None,
    people: int | None,
    approvers: dict[str, Path],
    without: tuple[str, ...],
    **shared: Any,  # noqa: ANN401 - the shared options
) -> None:
    """Set what holds for all deletes and restores of a cluster. WRITES beside the ledgers root.

    What is not named stays as it is. A policy that asks for less than the one before needs the approvals that the one
    before asks for. A person who may write to the store can change the policy past this program: the journal shows
    what was set here.
    """
    from reconcile.jobs.deletes import policy as job

    output, approvals = make_output(shared), take_approvals(shared)
    target = take_target(shared)
    change = job.PolicyChange(
        None if archived is None else archived == "required",
        None if least_soak is None else to_ms(least_soak),
        None if least_age is None else to_ms(least_age),
        breaker,
        people,
        approvers,
        without,
        None if quarantine is None else to_ms(quarantine),
        quarantine_most,
    )
    if change == job.PolicyChange():
        raise click.UsageError("name at least one option to change")
    done = job.set_policy(job.PolicyRequest(target=target, change=change, approvals=approvals), make_context(output))
    verdict = "the policy is set"
    if done.loosened:
        verdict += f"; it asks for less than before: {'; '.join(done.loosened)}"
    result = Result(
        "delete-policy-set",
        verdict,
        Exit.DONE,
        details=[*_describe(done.policy), f"journal {target.folder}"],
        following=quote_command("bkmeta", "delete", "policy", "show", "--metadata", target.uri),
        facts={"policy": done.policy.to_json(), "loosened": list(done.loosened), "journal": str(target.folder)},
    )
    sys.exit(output.show(result))


def _describe(policy: "DeletePolicy") -> Iterator[str]:
    """Say what a policy asks for."""
    yield f"archive mark: {'required' if policy.archived else 'as the command says'}"
    yield f"least soak: {policy.soak_ms / _HOUR_MS:g} hours; least age: {policy.min_age_ms / _HOUR_MS:g} hours"
    yield f"breaker: {policy.most_in_a_day} ledgers a day"
    if policy.quarantine_ms:
        most = count_noun(policy.quarantine_most, "ledger")
        yield f"quarantine: {policy.quarantine_ms / _HOUR_MS:g} hours, {most} at a time"
    else:
        yield "quarantine: none"
    names = ", ".join(sorted(approver.name for approver in policy.approvers)) or "no person"
    if policy.approvals:
        yield (f"approvals: {count_noun(policy.approvals, 'person', 'people')} besides the maker, who signs, too")
    else:
        yield "approvals: none are asked for"
    yield f"may approve: {names}"
