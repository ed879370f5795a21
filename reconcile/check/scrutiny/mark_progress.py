"""Marks of closed ledgers over runs: their number, their age, and whether any is removed.

A replication worker that copies a ledger removes its mark; one that copies a part of it changes the mark. Where no mark
that was there is gone or changed, for `RUNS` runs or two windows of the grace, no worker makes progress. Marks that are
added say nothing of workers. Open ledgers do not count: a worker waits until they are closed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.check.scrutiny.replication import StoredReplication
from reconcile.findings.categories import Category
from reconcile.findings.table import Finding, FindingStatement

RUNS: Final = 10
_WINDOWS: Final = 2
_DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class MarkProgress:
    """The progress of the marks of closed ledgers up to this run.

    Attributes:
        number: of marks.
        oldest: creation of the oldest mark; None: no mark, or without a time.
        change: increase since the run before; None: there is no such run.
        per_day: the change as a rate.
        same_since: begin of the first run after which no mark fell or changed.
        same_runs: runs from that one to this one.
    """

    number: int
    oldest: datetime | None
    change: int | None
    per_day: float | None
    same_since: datetime
    same_runs: int

    def to_json(self) -> dict[str, Any]:
        """Return it as a manifest keeps it."""
        return {
            "number": self.number,
            "oldest": None if self.oldest is None else self.oldest.isoformat(),
            "change": self.change,
            "per_day": self.per_day,
            "same_since": self.same_since.isoformat(),
            "same_runs": self.same_runs,
        }


def follow_marks(
    marks: pa.Table, begun: datetime, earlier_marks: pa.Table | None, earlier: MarkProgress | None, earlier_at: datetime
) -> MarkProgress:
    """Return the progress of marks since the run before.

    Args:
        marks: `MARKS` of closed ledgers.
        begun: begin of this run.
        earlier_marks: the marks of the run before; None: there is no such run.
        earlier: the progress up to then; None: not known.
        earlier_at: begin of that run.
    """
    oldest = pc.min(marks["since"]).as_py()
    if earlier_marks is None:
        return MarkProgress(marks.num_rows, oldest, None, None, begun, 1)
    change = marks.num_rows - earlier_marks.num_rows
    per_day = round(change * _DAY_S / max((begun - earlier_at).total_seconds(), 1.0), 1)
    now = set(zip(marks["path"].to_pylist(), marks["raw"].to_pylist(), strict=True))
    none_fell = now.issuperset(zip(earlier_marks["path"].to_pylist(), earlier_marks["raw"].to_pylist(), strict=True))
    if not none_fell or not earlier_marks.num_rows or earlier is None:
        return MarkProgress(marks.num_rows, oldest, change, per_day, begun, 1)
    return MarkProgress(marks.num_rows, oldest, change, per_day, earlier.same_since, earlier.same_runs + 1)


def list_stalled(
    progress: MarkProgress, replication: StoredReplication, grace_s: float, begun: datetime
) -> Iterator[Finding]:
    """Yield a finding where no replication worker makes progress."""
    lasts = begun - progress.same_since
    if not progress.number or (
        progress.same_runs < RUNS and (progress.same_runs < 2 or lasts < timedelta(seconds=_WINDOWS * grace_s))
    ):
        return
    why = replication.disabled or (None if replication.auditor else "no auditor is elected")
    statements = [
        FindingStatement("store", "marks of closed ledgers", progress.number, "underreplication"),
        FindingStatement(
            "store", "oldest since", None if progress.oldest is None else progress.oldest.isoformat(), "marks"
        ),
        FindingStatement(
            "store", "no mark fell or changed since", progress.same_since.isoformat(timespec="seconds"), "runs"
        ),
        FindingStatement("store", "runs that saw it", progress.same_runs, "runs"),
        FindingStatement("store", "why", why or "not known: no worker runs, or each fails", "underreplication"),
    ]
    yield Finding(Category.REPLICATION_STALLED, "underreplication", statements)
