"""What a look for orphans is asked, and what it answers."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.deletes.verification.verdicts import MIN_AGE_MS
from reconcile.findings.categories import SEVERITY_ORDER, Category
from recovery.place import DatasetPlace

CANDIDATES: Final = "candidates.jsonl"
_SHOWN: Final = 20
"""Findings that a result shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphansRequest:
    """What is looked at.

    Attributes:
        uri: the store.
        out: a new folder.
        references: files and URIs of what upper layers refer to; Pulsar's records beside the store are read unasked.
        inventories: of bookies; none: data without a record is not searched for.
        earlier: URIs of earlier copies of the store: captures, ZooKeeper's files, etcd's snapshots.
        since: folder of the run before.
        min_age_ms: of a ledger that is called unreferenced, and of data without a record that is a warning.
        settings: of the run, each with where it came from, for the manifest.
    """

    uri: str
    out: DatasetPlace
    references: tuple[str, ...] = ()
    inventories: tuple[str, ...] = ()
    earlier: tuple[str, ...] = ()
    since: DatasetPlace | None = None
    min_age_ms: int = MIN_AGE_MS
    settings: Mapping[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class FoundOrphans:
    """What was found.

    Attributes:
        listed: ledgers of the store.
        candidates: of these, those whose delete may be asked for.
        left_out: why others are none → how many.
        found: category → severity → findings.
        undecided: what could not be looked at.
        worst: the first findings, the gravest first.
    """

    listed: int = 0
    candidates: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    found: dict[str, Counter[str]] = field(default_factory=dict)
    undecided: list[str] = field(default_factory=list)
    worst: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def failing(self) -> int:
        """Findings that are more than notes."""
        return sum(
            count for counted in self.found.values() for severity, count in counted.items() if severity != "info"
        )

    def take(self, findings: pa.Table) -> None:
        """Count findings, and keep the first of the gravest."""
        for row in findings.group_by(["category", "severity"]).aggregate([([], "count_all")]).to_pylist():
            self.found.setdefault(row["category"], Counter())[row["severity"]] += row["count_all"]
        for severity in SEVERITY_ORDER[:2]:
            grave = findings.filter(pc.equal(findings["severity"], severity))
            self.worst += grave.slice(0, _SHOWN).to_pylist()
        self.worst.sort(key=lambda row: SEVERITY_ORDER.index(row["severity"]))
        del self.worst[_SHOWN:]

    def count(self, category: Category) -> int:
        """Return how many findings of a category there are."""
        return self.found.get(category, Counter()).total()
