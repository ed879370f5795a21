"""What `freeze` and `thaw` share: the identity, the question for the hash, and the result that waits for it."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconcile.cli.access import AUTH_VARIABLE, BOOKIE_AUTH_VARIABLE, EnvironmentAccess
from reconcile.cli.command import Exit
from reconcile.cli.output import Result
from reconcile.words import printable
from recovery.errors import InputError

if TYPE_CHECKING:
    from reconcile.jobs.changes.freeze import FreezeRequest, Waiting
    from reconcile.write.freezing.freeze import Proposal


def demand_identity(uri: str) -> None:
    """Check that the environment names an identity that a freeze can be made as.

    Raises:
        GuardRefusedError: the store has no rights.
        InputError: no identity is named, or that of the bookies.
    """
    from reconcile.jobs.changes.freeze import demand_access_control

    demand_access_control(uri)
    access = EnvironmentAccess()
    digest = access.digest
    if digest is None:
        raise InputError(
            AUTH_VARIABLE,
            "is not set, and a freeze needs an identity that no bookie has",
            f"export {AUTH_VARIABLE}=bkmeta:<a password of your own>, and keep it: apply and thaw need the same",
        )
    if digest == access.bookie_digest:
        raise InputError(BOOKIE_AUTH_VARIABLE, f"is the same as {AUTH_VARIABLE}", "freeze as somebody else")


def ask_for_hash(proposal: "Proposal") -> str | None:
    """Show the changes on a terminal, and return what is typed; None: there is no terminal."""
    from reconcile.jobs.changes.freeze import TYPED

    if not sys.stdin.isatty():
        return None
    for line in change_lines(proposal):
        click.echo(printable(line), err=True)
    typed: str = click.prompt(f"type the first {TYPED} digits of the hash to go on", err=True)
    return typed


def change_lines(proposal: "Proposal") -> list[str]:
    """Return the changes, a line each, and their hash."""
    first = [] if proposal.disable is None else ["/underreplication/disable: made, so that replication stops"]
    return [*first, *map(str, proposal.changes), *proposal.notes, f"hash {proposal.hash}"]


def change_facts(proposal: "Proposal", root: str, identity: str, journal: Path) -> dict[str, object]:
    """Return the changes for programs."""
    return {
        "hash": proposal.hash,
        "root": root,
        "identity": identity,
        "journal": str(journal),
        "replication_to_be_disabled": proposal.disable is not None,
        "changes": [{"key": c.key, "before": c.before, "after": c.after} for c in proposal.changes],
        "notes": list(proposal.notes),
    }


def make_waiting_result(waiting: "Waiting", request: "FreezeRequest", options: Sequence[str] = ()) -> Result:
    """Say that nothing was changed, and which command goes on.

    Args:
        waiting: what waits.
        request: what was asked.
        options: that the command was given besides.
    """
    proposal = waiting.proposal
    verdict = f"nothing was changed: {proposal.kind} waits for its hash"
    if waiting.confirmed is not None:
        verdict = f"nothing was changed: what was confirmed ({waiting.confirmed[:12]}) is not what would be done now"
    words = ["bkmeta", proposal.kind, "--metadata", request.uri, "--journal", str(request.journal), *options]
    words += ["--reason", request.reason] if request.reason else []
    return Result(
        proposal.kind,
        verdict,
        Exit.REFUSED,
        counts={"changes": len(proposal.changes), **waiting.counts},
        details=change_lines(proposal),
        following=shlex.join([*words, "--confirm", proposal.hash]),
        facts=change_facts(proposal, waiting.root, waiting.identity, request.journal),
    )
