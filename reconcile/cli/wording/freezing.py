"""What `freeze` and `thaw` share: the identity, the question for the hash, and the result that waits for it."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from reconcile.cli.access import (
    AUTH_FILE_VARIABLE,
    AUTH_VARIABLE,
    BOOKIE_AUTH_VARIABLE,
    EnvironmentAccess,
    make_identity,
)
from reconcile.cli.command import Exit
from reconcile.cli.incident import incident_file
from reconcile.cli.output import Result
from reconcile.words import printable
from recovery.errors import InputError

if TYPE_CHECKING:
    from reconcile.jobs.changes.freeze import FreezeRequest, Waiting
    from reconcile.write.freezing.freeze import FreezeProposal


_IDENTITY: Final = "bkmeta-identity"
"""A file beside the incident file, or else beside the journal: whom a freeze was made as."""


def take_identity(uri: str, journal: Path | None, *, makes: bool) -> Path | None:
    """Return the file that the identity of a freeze is in; None: the environment names an identity.

    Args:
        uri: of the store.
        journal: of the freeze; None: where it is by default.
        makes: whether a file is made where there is none.

    Raises:
        GuardRefusedError: the store has no rights.
        InputError: no identity is named and no file is there, or it is that of the bookies.
    """
    from reconcile.jobs.changes.freeze import default_journal, require_access_control

    require_access_control(uri)
    access, kept = EnvironmentAccess(), None
    if access.digest is None:
        incident = incident_file(click.get_current_context())
        beside = journal or default_journal(uri) if incident is None else Path(incident)
        kept = beside.absolute().parent / _IDENTITY
        if not kept.exists():
            if not makes:
                raise InputError(
                    AUTH_VARIABLE,
                    f"is not set, and there is no {kept}; a thaw needs the identity of the freeze",
                    f"export {AUTH_FILE_VARIABLE}=FILE with the file that freeze made, or {AUTH_VARIABLE}",
                )
            make_identity(kept)
        access = EnvironmentAccess(kept)
    if access.digest == access.bookie_digest:
        raise InputError(BOOKIE_AUTH_VARIABLE, f"is the same as {AUTH_VARIABLE}", "freeze with another identity")
    return kept


def describe_identity(kept: Path | None) -> list[str]:
    """Say where the identity of a freeze is; nothing where the environment names one."""
    if kept is None:
        return []
    command = f"export {AUTH_FILE_VARIABLE}={shlex.quote(str(kept))}"
    return [f"the identity of the freeze is in {kept}: keep it, and before any other command: {command}"]


def ask_for_hash(proposal: "FreezeProposal") -> str | None:
    """Show the changes on a terminal, and return what is typed; None: there is no terminal."""
    from reconcile.jobs.changes.freeze import TYPED

    if not sys.stdin.isatty():
        return None
    for line in change_lines(proposal):
        click.echo(printable(line), err=True)
    typed: str = click.prompt(f"type the first {TYPED} digits of the hash to continue", err=True)
    return typed


def change_lines(proposal: "FreezeProposal") -> list[str]:
    """Return the changes, a line each, and their hash."""
    first = [] if proposal.disable is None else ["/underreplication/disable: made, so that replication stops"]
    return [*first, *map(str, proposal.changes), *proposal.notes, f"hash {proposal.hash}"]


def change_facts(proposal: "FreezeProposal", root: str, identity: str, journal: Path) -> dict[str, object]:
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


def make_waiting_result(
    waiting: "Waiting", request: "FreezeRequest", kept: Path | None, options: Sequence[str]
) -> Result:
    """Say that nothing was changed, and which command goes on.

    Args:
        waiting: what waits.
        request: what was asked.
        kept: the file that the identity is in; None: the environment names it.
        options: that the command was given, but its journal, its reason and the hash.
    """
    proposal = waiting.proposal
    verdict = f"nothing was changed: {proposal.kind} waits for its hash"
    if waiting.confirmed is not None:
        verdict = f"nothing was changed: what was confirmed ({waiting.confirmed[:12]}) is not what would be done now"
    words = ["bkmeta", proposal.kind, *options, "--journal", str(request.journal)]
    words += ["--reason", request.reason] if request.reason else []
    return Result(
        proposal.kind,
        verdict,
        Exit.REFUSED,
        counts={"changes": len(proposal.changes), **waiting.counts},
        details=[*change_lines(proposal), *describe_identity(kept)],
        following=shlex.join([*words, "--confirm", proposal.hash]),
        facts={
            **change_facts(proposal, waiting.root, waiting.identity, request.journal),
            "identity_file": None if kept is None else str(kept),
        },
    )
