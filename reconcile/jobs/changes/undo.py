"""What an apply wrote, taken back by its journal."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backends.registry import parse_store_uri
from reconcile.deletes.approvals import Approvable, Subject
from reconcile.jobs.approvals import NO_APPROVALS, Approvals
from reconcile.jobs.context import Context, connect, throttle
from reconcile.write import undo as engine

TYPED: Final = 8
"""Digits of the hash that count as having read it."""

Ask = Callable[[engine.UndoProposal], str | None]
"""Shows a proposal to a person; returns the hash that the person confirms, None where nobody can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoApplyRequest:
    """What is undone.

    Attributes:
        journal: folder of the apply's journal.
        uri: the store that the apply wrote to.
        confirmed: hash of what is confirmed; None: nobody confirmed anything yet.
        replaced_only: put back what was replaced, and leave what was created.
        reason: why, for the journal.
        approvals: that were given.
    """

    journal: Path
    uri: str
    confirmed: str | None = None
    replaced_only: bool = False
    reason: str | None = None
    approvals: Approvals = NO_APPROVALS


@dataclass(frozen=True, slots=True)
class UndoOutcome:
    """What came of it.

    Attributes:
        proposal: what was to be undone.
        confirmed: the hash that was given; None: none was.
        undone: what was undone; None: it was not confirmed, and nothing was changed.
    """

    proposal: engine.UndoProposal
    confirmed: str | None
    undone: engine.Undone | None


def undo(request: UndoApplyRequest, context: Context, ask: Ask) -> UndoOutcome:
    """Take back what an apply wrote, where that is confirmed.

    Raises:
        GuardRefusedError: records were created, and the store is not frozen; or it is not approved.
        JournalError: the journal is not of an apply, or of another store.
        PartlyAppliedError: the store stopped answering midway.
        UnavailableError: the store does not answer.
    """
    parse_store_uri(request.uri)
    with connect(request.uri, context, writable=True) as opened:
        proposal = engine.propose(request.journal, opened.store, opened.root, replaced_only=request.replaced_only)
        confirmed = ask(proposal) if request.confirmed is None else request.confirmed
        if confirmed is None or len(confirmed) < TYPED or not proposal.hash.startswith(confirmed.lower()):
            return UndoOutcome(proposal, confirmed, None)
        policy = request.approvals.find_policy(opened.store, opened.root)
        approvals = request.approvals.require(policy, Subject(Approvable.UNDO, proposal.hash), context.now())
        with context.reporter.progress("taking back", "batches") as progress:
            undone = engine.undo(
                proposal,
                opened.store,
                opened.root,
                now=context.now,
                progress=throttle(progress),
                reason=request.reason,
                approvals=approvals,
            )
    return UndoOutcome(proposal, confirmed, undone)
