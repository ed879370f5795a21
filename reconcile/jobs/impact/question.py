"""What is asked of an impact check, and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from reconcile.check.impact.answer import LossStatement
from reconcile.check.impact.names import DomainLevel, ImpactTarget
from reconcile.check.impact.segments.columns import Shape
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
