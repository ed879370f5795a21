"""The errors of `reconcile`, with the exit code that each stands for (docs/operations/exit-codes.md).

ReconcileError          1
  PlanError             2  a plan cannot be applied as it is
  JournalError          2  a journal cannot be gone on with, or was altered
    JournalDiskError    1  a journal cannot be written: its disk is full, or failed
  GuardRefusedError     5  a guard refused; nothing was written
  PartlyAppliedError    6  stopped midway; resume
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class Advice(StrEnum):
    """What somebody can do next. The value says it to who calls a job; the command line names its own options."""

    CONFIRM = "review it, then confirm its hash {value}"
    SEE_WAVES = "see the plan's waves; splitting it makes some"
    APPLY_AT_OWN_ROOT = "apply it there; to try it elsewhere, rehearse it"
    RECOVER_OR_ACCEPT_UNSEEN = "collect them and recover again, or accept that {value} are unseen"
    ACCEPT_NONE_UNSEEN = "accept no unseen bookies"
    NAME_ACL = "name them: edit the plan, or apply it with an ACL"
    NAME_FREEZE_JOURNAL = "name the folder of the freeze's journal"
    SHOW_THAT_NONE_IS_STORED = "show with an inventory of each bookie that they hold none; else restore first"
    RESTORE = "restore or hold them"
    RESTORE_OR_ACCEPT_ABSENT = "restore or hold them, or accept that {value} absent ledgers go"
    ACCEPT_NONE_ABSENT = "accept no absent ledgers"
    COLLECT_OR_ACCEPT_UNSEEN = "collect them and restore or hold that, or accept that {value} unseen bookies delete it"
    INVENTORIES_OR_ACCEPT_UNSEEN = "give each bookie's inventory, or accept that {value} bookies were not read"
    RESTORE_OR_ACCEPT_LEFT_OUT = "hold or restore the ledgers with those bookies, or accept that {value} copies go"
    ACCEPT_NONE_LEFT_OUT = "accept no copies that are left out"
    MAKE_PLAN_FOR_STORE = "make a plan for this store"
    NAME_NO_ACL = "name no ACL"
    MEND_AND_RESUME = "fix that, then go on with the journal"
    RESUME = "go on with the journal"
    NAME_OTHER_JOURNAL = "name another folder for the journal"
    SEE_WHAT_IS_LEFT = "run it again without a confirmation, and see what is left"
    STOP_OR_ACCEPT_UNFROZEN = "stop them until apply has ended, or accept that they run"
    FREEZE_OR_ACCEPT_UNFROZEN = "stop them or freeze first, or accept that they run"
    COUNT_LOCKS_AGAIN = "make the plan again with this store: it counts the locks that are there"
    NAME_ACL_OF_LEDGERS = "name one, as ledgers of this cluster have it"
    FREEZE_ALL = "freeze all, new ids too"
    FREEZE_OR_UNDO_REPLACED = "freeze it first (a store without ACLs cannot be), or put back only what was replaced"
    END_UNDO = "end the undo of {value}; then apply with a journal of its own"
    APPLY_WITH_NEW_JOURNAL = "to apply again, name a new journal, and do not go on with this one: {value}"
    APPLY_WAVES_BEFORE = "apply them first, in their order; go on with one that was begun"
    SCRUTINIZE_WAVE = "go on with wave {value}, and name inventories or ask running bookies: it is scrutinized again"
    FIX_OR_ACCEPT_FINDINGS = "fix them and go on with their wave, which is scrutinized again; or accept that: {value}"
    WAIT_FOR_REPLICATION = (
        "wait until they are re-replicated, which a freeze does not let happen; or accept that {value} are marked"
    )
    REMOVE_REHEARSAL = "remove it, or name another root"
    END_APPLY = "let it come to its end first: go on with the apply"
    RECOVER_WITH_STORE = "make a plan with the store, then edit that"
    APPROVE = "have each of them sign {value}, and give what they signed"
    SIGN_CERTIFICATE = "sign it with a key that the policy names; showing the policy lists them"
    NAME_ACL_ENTRIES = "name an ACL, as scheme:id:perms,…"


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to do next, without a word of the command line.

    Attributes:
        advice: what.
        value: the number or the hash that it needs; empty: none.
    """

    advice: Advice
    value: str | int = ""

    def __str__(self) -> str:
        return self.advice.value.format(value=self.value)


class ReconcileError(Exception):
    """Root of the errors of this package."""

    exit_code: ClassVar[int] = 1


class _RemediedError(ReconcileError):
    """What is wrong with something, and what to do next."""

    def __init__(self, subject: str, problem: str, remedy: str | Remedy) -> None:
        super().__init__(subject, problem, remedy)
        self.subject = subject
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.subject}: {self.problem}; {self.remedy}"


class PlanError(_RemediedError):
    """A plan cannot be applied as it is.

    Attributes:
        subject: the action, by its key.
        problem: what is wrong.
        remedy: what to do next.
    """

    exit_code = 2


class JournalError(_RemediedError):
    """A journal belongs to something else, is in use, or was altered.

    Attributes:
        subject: the file.
        problem: what is wrong.
        remedy: what to do next.
    """

    exit_code = 2


class JournalDiskError(JournalError):
    """The disk of a journal is full, or failed: nothing is written to a store that is not announced there first."""

    exit_code = 1


class GuardRefusedError(_RemediedError):
    """A guard refused; nothing was written.

    Attributes:
        subject: what the guard looked at.
        problem: what it saw.
        remedy: what to do next.
    """

    exit_code = 5


class PartlyAppliedError(_RemediedError):
    """The store stopped answering midway; what was written is in the journal.

    Attributes:
        subject: the journal's folder.
        problem: what happened.
        remedy: what to do next.
    """

    exit_code = 6
