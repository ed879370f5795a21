"""Marks of a backup application: which ledgers it has, where, and what of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reconcile.deletes.packed import PackedDecision
from reconcile.deletes.records import ArchiveMark
from reconcile.jobs.context import Context, connect, now_ms
from reconcile.jobs.deletes.clusters import DeleteTarget, open_deletes, read_own_root
from recovery.model.ids import LedgerId

_ROWS = 500
"""Marks that are written to a node at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkRequest:
    """Which ledgers a backup application has.

    Attributes:
        target: the store.
        copies: ledger → where its copy is, and the copy's checksum; empty: none is known.
        by: the application; empty: who runs this.
    """

    target: DeleteTarget
    copies: Mapping[LedgerId, tuple[str, str]]
    by: str = ""


def mark_archived(request: MarkRequest, context: Context) -> int:
    """Write a mark for each ledger, over an earlier one; return how many were written.

    Raises:
        GuardRefusedError: what is at the key of our own root is not ours.
        UnavailableError: the store does not answer.
    """
    with open_deletes(request.target, context) as target:
        at_ms, by = now_ms(context), request.by or target.by

        def decide(ledger: LedgerId, _mark: ArchiveMark | None) -> PackedDecision[ArchiveMark]:
            return PackedDecision(ArchiveMark(ledger, by, *request.copies[ledger], at_ms))

        target.own.archive.change(tuple(request.copies), decide, target.log, rows=_ROWS)
        target.log.end({"marked": len(request.copies)}, 0)
    return len(request.copies)


def unmark_archived(target: DeleteTarget, ledgers: Sequence[LedgerId], context: Context) -> int:
    """Remove the marks of ledgers; return how many there were.

    Raises:
        GuardRefusedError: what is at the key of our own root is not ours.
        UnavailableError: the store does not answer.
    """
    with open_deletes(target, context) as opened:
        known = opened.own.archive.read_some(ledgers)

        def decide(_ledger: LedgerId, mark: ArchiveMark | None) -> PackedDecision[ArchiveMark] | None:
            return None if mark is None else PackedDecision(None)

        opened.own.archive.change(list(known), decide, opened.log, rows=_ROWS)
        opened.log.end({"unmarked": len(known)}, 0)
    return len(known)


def read_marks(uri: str, ledgers: Sequence[LedgerId], context: Context) -> list[ArchiveMark]:
    """Return the marks of ledgers, or all if none is named, in the order of their ids; the store is only read.

    Raises:
        FormatError: a node is not ours to read.
        GuardRefusedError: what is at the key of our own root is not ours.
        UnavailableError: the store does not answer.
    """
    with connect(uri, context) as opened:
        own = read_own_root(opened)
        return [] if own is None else own.archive.read_sorted(ledgers)
