"""What is asked of an impact check, and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from reconcile.check.impact.names import DomainLevel, ImpactTarget, ImpactVerdict
from reconcile.check.impact.ranges import Covered, Tallies
from reconcile.check.impact.sample import SegmentImpact
from reconcile.check.impact.segments.columns import Shape
from reconcile.jobs.impact.cache import LossStatement
from reconcile.references import References
from reconcile.rules.segments.placement import PlacementSettings
from recovery.dataset import Dataset
from recovery.model.ids import LedgerId
from recovery.place import DatasetPlace


@dataclass(frozen=True, slots=True)
class Taken:
    """What may be taken away: sets of bookies, each alone; or all of some domains, or hosts, together.

    Attributes:
        sets: of bookie ids.
        domains: locations, or the beginning of locations.
        hosts: patterns, as a shell has them.
        target: what is done to them.
    """

    sets: tuple[tuple[str, ...], ...] = ()
    domains: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    target: ImpactTarget = ImpactTarget.DOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpactRequest:
    """What is asked.

    Attributes:
        uri: the store, a copy of one, or a capture.
        cache: folder of captures that are used again.
        max_age: of such a capture.
        taken: what may be taken away.
        topology: bookie or host to location; None: the store's rack information, if it has one.
        placement: what clients demand.
        weights: capacity of bookies; others have 1.
        default_quorum: of new ledgers; None: those of the last day, and of ledgers that nothing dates.
        ledgers: only these; None: all.
        references: what an upper layer knows.
        inventories: what bookies hold.
        evidence: folders of scrutinies: what they know of copies.
        most_unavailable: per cent of the weight that may be lost.
        margin: what else may go afterwards.
        most: how many bookies a largest set is searched for of; None: it is not.
        drill: failure domains that are taken one by one.
        stable_for: how many captures in a row must be safe.
        unrecoverable: what a person declares.
        zookeeper: hosts of the ensemble's servers.
        aliases: other names of bookies in records and marks → ids.
        master: Spark's; None: this host, and only where there are very many ledgers.
        out: a new folder for the dataset.
    """

    uri: str
    cache: Path
    max_age: timedelta = timedelta(minutes=10)
    taken: Taken = field(default_factory=Taken)
    topology: Mapping[str, str] | None = None
    placement: PlacementSettings = field(default_factory=PlacementSettings)
    weights: Mapping[str, float] = field(default_factory=dict)
    default_quorum: Shape | None = None
    ledgers: tuple[LedgerId, ...] | None = None
    references: References | None = None
    inventories: tuple[Dataset, ...] = ()
    evidence: tuple[DatasetPlace, ...] = ()
    most_unavailable: float = 25.0
    margin: DomainLevel | None = None
    most: int | None = None
    drill: DomainLevel | None = None
    stable_for: int = 1
    unrecoverable: tuple[LossStatement, ...] = ()
    zookeeper: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    master: str | None = None
    out: DatasetPlace | None = None


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
