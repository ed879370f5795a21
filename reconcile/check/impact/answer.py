"""What an impact check answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from reconcile.check.impact.names import ImpactVerdict
from reconcile.check.impact.ranges import Covered, Tallies
from reconcile.check.impact.sample import SegmentImpact


@dataclass(frozen=True, slots=True)
class LossStatement:
    """A person's word that a bookie has lost its data for good."""

    at: str
    by: str
    reason: str
    bookie: str


@dataclass(frozen=True, slots=True)
class Capacity:
    """Per cent of the weight that cannot be written to."""

    before: float
    after: float
    most: float


@dataclass(frozen=True, slots=True)
class Quorum:
    """Servers of the ensemble that remain, and how many are needed."""

    servers: int
    left: int
    needs: int


@dataclass(frozen=True, slots=True)
class SetAnswer:
    """What becomes of the cluster when one set is taken.

    Attributes:
        label: its name.
        bookies: of it.
        verdict: for it alone.
        impacts: all that is then hit, what is hit already included.
        caused: those of them that the set brings about or makes worse.
        capacity: that cannot be written to.
        new_ledgers: E/W/A that then find no ensemble.
        quorum: of the ensemble's servers; None: it was not asked for, or none is on these hosts.
    """

    label: str
    bookies: tuple[str, ...]
    verdict: ImpactVerdict
    impacts: Tallies
    caused: tuple[str, ...]
    capacity: Capacity
    new_ledgers: tuple[str, ...] = ()
    quorum: Quorum | None = None


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest set that may be taken; `is_exact`: no larger one exists, up to `asked` bookies."""

    asked: int
    bookies: tuple[str, ...]
    is_exact: bool


@dataclass(frozen=True, slots=True)
class ReplicationState:
    """What re-replicates.

    Attributes:
        disabled: nothing does.
        auditor: the bookie whose auto-recovery is; None: none is, or it is not known.
        marked: ledgers.
        candidates: bookies whose auto-recovery would be auditor.
    """

    disabled: bool
    auditor: str | None
    marked: int
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CacheState:
    """The records that the answer is about.

    Attributes:
        path: of the catalog.
        at: when the store was so.
        age_s: how long ago that is.
        txn: the store's transaction; None: not known.
        is_fresh: captured for this question.
        alive: registrations are of running bookies.
    """

    path: str
    at: datetime
    age_s: float
    txn: int | None
    is_fresh: bool
    alive: bool


@dataclass(frozen=True, slots=True)
class RunState:
    """A scrutiny that the answer goes by.

    Attributes:
        path: of the run.
        at: when the store was as it saw it.
        age_s: how long ago that is.
        share: (n, of how many): the part of the ledgers that it looked at.
        wiped: bookies that it found without their data.
    """

    path: str
    at: datetime
    age_s: float
    share: tuple[int, int]
    wiped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EvidenceState:
    """What is known of copies besides their records.

    Attributes:
        runs: scrutinies.
        inventories: of how many bookies there are inventories.
        covered: how much of the copies is known.
    """

    runs: tuple[RunState, ...]
    inventories: int
    covered: Covered


@dataclass(frozen=True, slots=True)
class ImpactAnswer:
    """The answer.

    Attributes:
        verdict: of all sets.
        undecided: why something could not be told.
        now: nothing taken.
        sets: those that were named, each alone.
        together: all of them at once, where there are several.
        drill: by failure domain.
        largest: where it was asked for.
        sample: the first segments that are hit.
        ledgers, segments: that were looked at.
        unreadable: ledgers whose record cannot be read.
        unreadable_sample: the first of them.
        shapes: of new ledgers, for which ensembles were searched.
        undated: ledgers that may be of the last day or not: their shapes count as those of new ledgers.
        states: how many bookies are in each state now.
        unplaced: bookies without a location.
        replication: what re-replicates.
        cache: the records that this is about.
        stable: how many captures in a row were safe.
        declared: earlier statements about bookies that this question does not repeat.
        spread: whether Spark was used.
        evidence: what is known of copies besides their records; None: nothing was given.
    """

    verdict: ImpactVerdict
    undecided: tuple[str, ...]
    now: SetAnswer
    sets: tuple[SetAnswer, ...]
    together: SetAnswer | None
    drill: tuple[SetAnswer, ...]
    largest: Largest | None
    sample: tuple[SegmentImpact, ...]
    ledgers: int
    segments: int
    unreadable: int
    unreadable_sample: tuple[str, ...]
    shapes: tuple[str, ...]
    undated: int
    states: Mapping[str, int]
    unplaced: tuple[str, ...]
    replication: ReplicationState
    cache: CacheState
    stable: int
    declared: tuple[LossStatement, ...]
    spread: bool
    evidence: EvidenceState | None = None
