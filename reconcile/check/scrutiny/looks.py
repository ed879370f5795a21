"""The second look: no finding is reported after a single look.

    a look at a suspect says                      after a look that found the same record   another record
    the record is gone                            skipped: gone                             skipped: gone
    it is marked, guarded or open now             skipped: that                             skipped: that
    a bookie that decides did not answer          waits; in the end undecided: no answer    likewise
    nothing is wrong                              clean                                     clean
    likewise, and not all entries were asked for  undecided: sampled                        undecided: sampled
    likewise, and it is newer than an inventory   undecided: changed                        undecided: changed
    something that was wrong before, too          confirmed: that, and what explains it     looked at again
    only other things                             looked at again                           looked at again

A suspect whose record changes, or whose findings do, is looked at again `MOST_CHANGES` times; then it is undecided:
changing. A store alone may be looked at again where lists are not: then the lists are as old as the first look, and a
record that changed since is undecided: changed.

One ledger at a time, and no clock: who calls it waits and asks.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from reconcile.findings.categories import Category

MOST_CHANGES: Final = 3
EXPLAINING: Final = frozenset({str(Category.QUORUM_DIFFERS)})
"""Findings that explain others, from later looks only: they count where another one is confirmed."""

LEFT: Final = frozenset({"sampled", "changed", "undated"})
"""Why a ledger is undecided although all its bookies answered: only some entries were asked for, and these are there;
or its record is, or may be, newer than the inventory of a bookie."""


class SuspectKind(StrEnum):
    """What becomes of a suspect."""

    CONFIRMED = "confirmed"
    CLEAN = "clean"
    SKIPPED = "skipped"
    UNDECIDED = "undecided"
    AGAIN = "again"
    WAITS = "waits"


@dataclass(frozen=True, slots=True)
class LedgerLook:
    """The result of one look at a ledger.

    Attributes:
        version: of its record; None: no record.
        skipped: why it is not judged now; None: it is.
        findings: categories of its problems, without notes.
        unseen: a bookie that may have the missing entries did not answer, and nothing is proven wrong.
        is_fresh: bookies were asked for their lists again; else only the store was read.
        left: one of `LEFT`, if nothing seen is wrong and no bookie is awaited; else None.
    """

    version: int | None
    skipped: str | None = None
    findings: frozenset[str] = frozenset()
    unseen: bool = False
    is_fresh: bool = True
    left: str | None = None


@dataclass(frozen=True, slots=True)
class Suspect:
    """A ledger between two looks.

    Attributes:
        last: the last look.
        changes: looks that found another record, or other findings, than the one before.
        waits: looks in which a bookie did not answer.
    """

    last: LedgerLook
    changes: int = 0
    waits: int = 0


@dataclass(frozen=True, slots=True)
class SuspectOutcome:
    """What becomes of a suspect.

    Attributes:
        kind: the kind of outcome.
        reason: why it is skipped or undecided.
        findings: kinds that are confirmed.
        suspect: its state for the next look.
    """

    kind: SuspectKind
    reason: str | None = None
    findings: frozenset[str] = frozenset()
    suspect: Suspect | None = None


def look_again(suspect: Suspect, look: LedgerLook, *, rechecks: int) -> SuspectOutcome:
    """Decide the outcome of a suspect.

    Args:
        suspect: as the looks before left it.
        look: the newest.
        rechecks: how often a silent bookie is asked again.
    """
    if look.version is None:
        return SuspectOutcome(SuspectKind.SKIPPED, "gone")
    if look.skipped is not None:
        return SuspectOutcome(SuspectKind.SKIPPED, look.skipped)
    same_record = look.version == suspect.last.version
    if not look.is_fresh:
        known = suspect.last.findings
        return (
            SuspectOutcome(SuspectKind.CONFIRMED, findings=known)
            if same_record
            else SuspectOutcome(SuspectKind.UNDECIDED, "changed")
        )
    if not look.findings:
        if look.left is not None:
            return SuspectOutcome(SuspectKind.UNDECIDED, look.left)
        if not look.unseen:
            return SuspectOutcome(SuspectKind.CLEAN)
        if suspect.waits >= rechecks:
            return SuspectOutcome(SuspectKind.UNDECIDED, "no answer")
        return SuspectOutcome(SuspectKind.WAITS, suspect=replace(suspect, last=look, waits=suspect.waits + 1))
    confirmed = look.findings & suspect.last.findings
    if same_record and confirmed:
        return SuspectOutcome(SuspectKind.CONFIRMED, findings=confirmed | look.findings & EXPLAINING)
    if suspect.changes >= MOST_CHANGES:
        return SuspectOutcome(SuspectKind.UNDECIDED, "changing")
    return SuspectOutcome(SuspectKind.AGAIN, suspect=replace(suspect, last=look, changes=suspect.changes + 1))
