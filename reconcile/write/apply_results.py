"""What came of an apply."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reconcile.errors import PartlyAppliedError
from reconcile.plan.bookie_starts import BookieStart

LISTED: Final = 100
"""Conflicts and changed keys that a result names; all are counted, and all are in the journal."""


@dataclass(frozen=True, slots=True)
class AppliedTally:
    """What became of the actions of one kind and op; the last four add up to the first."""

    planned: int
    written: int
    there: int
    conflicts: int
    withheld: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """An action that was not carried out."""

    kind: str
    op: str
    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class Applied:
    """What came of a plan.

    Attributes:
        tallies: by kind and op, earlier runs of the same journal included.
        conflicts: the first `LISTED`; their number is in the tallies.
        checked: keys that were read back once more after all were written, those of earlier waves too.
        changed: keys among them that no longer hold what was written, the first `LISTED`.
        changed_count: all of them.
        cookies_withheld: why, where they were; else empty.
        journal: the file.
        bookies: that the cluster is known to have, and whether each may start now.
        starts_after_thaw: none of them starts before a thaw.
    """

    tallies: Mapping[tuple[str, str], AppliedTally]
    conflicts: tuple[Conflict, ...]
    checked: int
    changed: tuple[str, ...]
    changed_count: int
    cookies_withheld: str
    journal: Path
    bookies: tuple[BookieStart, ...] = ()
    starts_after_thaw: bool = False

    @property
    def exit_code(self) -> int:
        """0: every action is done; 6: partly applied."""
        undone = any(tally.conflicts or tally.withheld for tally in self.tallies.values())
        return PartlyAppliedError.exit_code if undone or self.changed_count else 0
