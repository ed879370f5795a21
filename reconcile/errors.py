"""The errors of `reconcile`, with the exit code that each stands for (docs/operations/exit-codes.md).

ReconcileError          1
  PlanError             2  a plan cannot be applied as it is
  JournalError          2  a journal cannot be gone on with, or was altered
    JournalDiskError    1  a journal cannot be written: its disk is full, or failed
  GuardRefusedError     5  a guard refused; nothing was written
  PartlyAppliedError    6  stopped midway; resume
"""

from typing import ClassVar


class ReconcileError(Exception):
    """Root of the errors of this package."""

    exit_code: ClassVar[int] = 1


class _RemediedError(ReconcileError):
    """What is wrong with something, and what to do next."""

    def __init__(self, subject: str, problem: str, remedy: str) -> None:
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
