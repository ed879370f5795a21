"""What a scrutiny is asked, and what comes of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import msgspec

from reconcile.check.scrutiny.coverage import find_covered_pct, list_not_judged
from reconcile.check.scrutiny.judge import Demands
from reconcile.check.scrutiny.lifecycle import Suppression
from reconcile.check.scrutiny.run_differences import GoneFinding
from reconcile.jobs.context import WireOptions
from recovery.model.ids import BUCKETS
from recovery.place import DatasetPlace


@dataclass(frozen=True, slots=True)
class SampleReads:
    """That single entries are read from bookies that give no lists.

    Attributes:
        runs: after so many runs, each of which goes on from the one before, each entry was asked for.
        bytes_s: that a bookie reads for it in a second, at most.
    """

    runs: int
    bytes_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrutinyRequest:
    """What a scrutiny is asked.

    Attributes:
        uri: the store.
        out: a new folder for the run.
        inventories: of bookies that do not answer lists; or of all of them.
        wire: how the other bookies are asked; None: they are not.
        demands: what is demanded of the cluster.
        share: (n, of how many): the part of all ledgers that this run looks at, from 1.
        fail_on: the lightest severity that makes the run fail.
        min_coverage: percent of copies that must have been judged.
        recheck_after_s: seconds until bookies that did not answer are asked again.
        rechecks: how often.
        since: an earlier run, which says what is new, and what is resolved; None: none.
        suppressions: of findings that do not make the run fail.
        metrics: file for the run's figures, as Prometheus reads them; None: only the run's own.
        master: Spark's; None: this host, and only where there are many ledgers.
        python: what executors run as their Python; None: what they have.
        settings: of the run, each with where it came from, for the manifest.
        aliases: other names of bookies in records → ids.
        references: files and URIs of what upper layers know.
        is_kept: a later run can go on from the folder.
        captures: folder of captures; one that is young enough is taken in place of a new one. None: none is kept.
        max_age: of such a capture.
        sample_reads: how entries are read from bookies that give no lists; None: they are not.
        ops_s: reads of a live store a second, at most, of a new capture and of second looks; None: no limit.
        history: URI of a backup of the store, which says what it had when an inventory began; None: there is none.
    """

    uri: str
    out: DatasetPlace
    inventories: tuple[str, ...] = ()
    wire: WireOptions | None = None
    demands: Demands
    share: tuple[int, int] = (1, 1)
    fail_on: str = "warning"
    min_coverage: float = 99.0
    recheck_after_s: float = 600.0
    rechecks: int = 1
    since: DatasetPlace | None = None
    suppressions: tuple[Suppression, ...] = ()
    metrics: Path | None = None
    master: str | None = None
    python: Path | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    references: tuple[str, ...] = ()
    is_kept: bool = True
    captures: Path | None = None
    max_age: timedelta = timedelta(minutes=10)
    sample_reads: SampleReads | None = None
    ops_s: float | None = None
    history: str | None = None

    @property
    def buckets(self) -> range:
        """The buckets of its share."""
        number, of = self.share
        return range(BUCKETS * (number - 1) // of, BUCKETS * number // of)


@dataclass(frozen=True, slots=True)
class ClusterFinding:
    """A finding that is of no ledger.

    Attributes:
        id: as FINDINGS has it, in hexadecimal digits.
        category: of it.
        severity: of it.
        fails: it makes the run fail.
    """

    id: str
    category: str
    severity: str
    fails: bool


@dataclass(frozen=True, slots=True)
class Scrutinized:
    """What came of a scrutiny.

    Attributes:
        listed: ledgers of its share.
        clean: of these, those that nothing is wrong with.
        skipped: reason → ledgers that were not judged.
        undecided: reason → ledgers that could not be judged.
        with_findings: the others.
        found: category → findings.
        by_severity: severity → findings.
        rechecked: ledgers that were looked at again.
        coverage: bookies and copies that were looked at, and those that were not.
        worst: the first findings at or above `fail_on`, as rows of FINDINGS.
        failing: how many there are.
        suppressed: findings that somebody answers for.
        new: findings that the earlier run did not have; None: there is none.
        resolved: findings of the earlier run that were searched for again and are gone; None: there is none.
        not_looked_for: findings of the earlier run that this run did not look for; None likewise.
        gone: those that are gone, each with what resolved it, or why it was not searched for.
        carried: why not → findings that were not searched for and count as before.
        of_cluster: the findings that are of no ledger.
    """

    listed: int
    clean: int
    skipped: Mapping[str, int]
    undecided: Mapping[str, int]
    with_findings: int
    found: Mapping[str, int]
    by_severity: Mapping[str, int]
    rechecked: int
    coverage: Mapping[str, Any]
    worst: tuple[Mapping[str, Any], ...]
    failing: int
    suppressed: int
    new: int | None
    resolved: int | None
    not_looked_for: int | None = None
    gone: tuple[GoneFinding, ...] = ()
    carried: Mapping[str, int] = field(default_factory=dict)
    of_cluster: tuple[ClusterFinding, ...] = ()

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Return what a manifest keeps of a run.

        Raises:
            ValueError: a run of another version.
        """
        return msgspec.convert({**fields, "worst": ()}, cls)

    @property
    def adds_up(self) -> bool:
        """Whether every ledger that is listed became one thing."""
        parts = self.clean + sum(self.skipped.values()) + sum(self.undecided.values()) + self.with_findings
        return parts == self.listed

    def is_covered(self, min_coverage: float) -> bool:
        """Whether so many percent of the copies were judged that findings that are not there say something."""
        return self.covered_pct >= min_coverage

    @property
    def passed_over(self) -> int:
        """Findings that are more than notes, and that nobody has to act on: suppressed, or lighter than asked for."""
        return self.by_severity.get("critical", 0) + self.by_severity.get("warning", 0) - self.failing

    @property
    def looked_at(self) -> int:
        """Ledgers that were judged by what bookies hold: all that were not skipped."""
        return self.listed - sum(self.skipped.values())

    @property
    def not_judged(self) -> dict[str, int]:
        """Copies that records of closed ledgers ask for and that were not judged, by reason."""
        return list_not_judged(self.coverage)

    @property
    def covered_pct(self) -> float:
        """Percent of the copies that were judged."""
        return find_covered_pct(self.coverage)
