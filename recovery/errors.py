"""The errors of `recovery`, and the reasons that are stored with damage.

    RecoveryError
      FormatError     bytes at a known place are not what their format says
      DatasetError    a dataset folder is missing, half written, of a newer schema, or altered
        DiskError     the disk is full, or failed while a dataset was written
      InputError      what the operator named cannot be used as it is
      SparkError      Spark failed while it worked

Damage is data, not an exception: a scan that goes on yields `Damage`; only what makes the whole source useless raises.
"""

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why bytes were not taken; stored in datasets, so a value is never renamed."""

    TRUNCATED = "truncated"
    """The source ends inside a structure."""
    BAD_MAGIC = "bad_magic"
    BAD_VERSION = "bad_version"
    """A format version that no known program writes."""
    BAD_LENGTH = "bad_length"
    """A length that cannot be: negative, too small for its structure, or past the end."""
    BAD_VALUE = "bad_value"
    """A field holds what the format does not allow."""
    ZEROS = "zeros"
    """Zero bytes where a record belongs."""
    EMPTY = "empty"
    """A file of no bytes where a header belongs."""
    DANGLING = "dangling"
    """An index names a place where the entry is not."""
    MISPLACED = "misplaced"
    """A file or row stands where its id does not belong."""
    MISSING = "missing"
    """A folder or file that another one names is not there."""
    UNREADABLE = "unreadable"
    """The operating system refused to read."""
    UNKNOWN_FILE = "unknown_file"
    """A file whose name matches no format."""
    DIGEST = "digest"
    """The digest over the bytes does not agree with any type that the length allows."""
    CONFLICT = "conflict"
    """Two sources of one bookie contradict each other."""
    UNINDEXED = "unindexed"
    """Entries are in an entry log, and the index of their ledger lacks them."""
    SUSPECT_DISK = "suspect_disk"
    """Many files of one folder are damaged."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A stretch of a source that could not be taken.

    Attributes:
        offset: first byte, counted from the start of the source.
        length: bytes that were passed over; 0 where that is not known.
        reason: the stored cause.
        detail: for people; never holds payload or a password.
    """

    offset: int
    length: int
    reason: Reason
    detail: str = ""


class RecoveryError(Exception):
    """Root of the errors of this package."""


class FormatError(RecoveryError):
    """Bytes at a known place are not what the format says.

    Attributes:
        reason: the machine-readable cause.
        source: file path or store key; a codec that was given bare bytes says what they were meant to be.
        offset: first byte that is wrong, counted from the start of the source.
        detail: for people.
    """

    def __init__(self, reason: Reason, source: str, offset: int, detail: str = "") -> None:
        super().__init__(reason, source, offset, detail)
        self.reason = reason
        self.source = source
        self.offset = offset
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.source} at byte {self.offset}: {self.reason}" + (f" ({self.detail})" if self.detail else "")

    def at(self, source: str) -> "FormatError":
        """Return the same error with the source that only the caller knows."""
        return FormatError(self.reason, source, self.offset, self.detail)


class DatasetError(RecoveryError):
    """A dataset folder cannot be used.

    Attributes:
        path: the folder or the file in it.
        problem: what is wrong.
        remedy: what to do next.
    """

    def __init__(self, path: str, problem: str, remedy: str) -> None:
        super().__init__(path, problem, remedy)
        self.path = path
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}; {self.remedy}"


class DiskError(DatasetError):
    """The disk is full, or failed while a dataset was written; without its manifest that is not a dataset yet."""


class SparkError(RecoveryError):
    """Spark failed while it worked.

    Attributes:
        problem: what it said.
        remedy: what to do next.
    """

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem, remedy)
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"Spark failed: {self.problem}; {self.remedy}"


class ProcessLostError(RecoveryError):
    """A process that worked for this one was killed."""

    def __str__(self) -> str:
        return (
            "a process that read index files was killed, perhaps because memory ran out; run it again in "
            "one process, or where there is more memory"
        )


class InputError(RecoveryError):
    """What the operator named cannot be used as it is.

    Attributes:
        subject: the file, folder or option.
        problem: what is wrong.
        remedy: what to do next.
    """

    def __init__(self, subject: str, problem: str, remedy: str) -> None:
        super().__init__(subject, problem, remedy)
        self.subject = subject
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.subject}: {self.problem}; {self.remedy}"
