"""The tasks of a bucket range: what Spark runs for each, and what each says to the driver."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa

from reconcile.compare import decide
from reconcile.compare.decide import Case
from reconcile.compare.evidence import find_collisions
from reconcile.findings.table import FindingRun
from reconcile.jobs.make_plan.request import PlanRequest
from reconcile.plan.manifest import ReferenceCounts
from reconcile.plan.plan_hash import Hashes
from reconcile.plan.range_counts import RangeCounts
from reconcile.plan.range_plan import RangeSettings, plan_range
from reconcile.rules.used_ids import UsedNumbers
from recovery.dataset import SPILL, read_part, write_part
from recovery.infer.prior import Prior
from recovery.infer.references import SCHEMA
from recovery.manifest import Part
from recovery.place import to_place

REFERENCES: Final = "references"
"""Name of the part, beside those of the plan, that every task reads references from."""


@dataclass(frozen=True, slots=True)
class RangeResult:
    """What a bucket range became.

    Attributes:
        parts: table → its file.
        hashes: of the buckets.
        counts: of its ledgers, findings and actions.
        references: how references and its ledgers agree; None: none were given.
        used: what its ids say of the generators.
    """

    parts: Mapping[str, Part]
    hashes: Hashes
    counts: RangeCounts
    references: ReferenceCounts | None
    used: UsedNumbers

    def to_json(self) -> dict[str, Any]:
        """Return it as a task gives it to the driver."""
        return {
            "parts": {name: asdict(part) for name, part in self.parts.items()},
            # A hash of every bucket: `asdict` would copy each.
            "hashes": {"actions": self.hashes.actions, "settled": self.hashes.settled},
            "counts": asdict(self.counts),
            "references": None if self.references is None else asdict(self.references),
            "used": asdict(self.used),
        }


@dataclass(frozen=True, slots=True)
class RangeTasks:
    """The tasks of a bucket range, and everything that they need; small, and picklable.

    Attributes:
        request: what the plan is made of.
        out: folder of the plan.
        case: what all ranges are decided from.
        run: of the findings.
    """

    request: PlanRequest
    out: str
    case: Case
    run: FindingRun

    def count_shapes(self, buckets: range) -> dict[str, Any]:
        """Return what a range says of all the others."""
        return decide.count_range(self.case, buckets, self._read_references(buckets))

    def write_collisions(self, part: range) -> dict[str, Any]:
        """Write the ledgers of a range of lower halves that stand in several scopes; return the part."""
        rows = find_collisions([*self.request.inventories, *self.case.evidence.datasets], part)
        return asdict(write_part(to_place(self.out), SPILL, f"collisions-{part.start:04d}", [rows], secret=True))

    def make_part(self, prior: Prior, buckets: range) -> dict[str, Any]:
        """Write a range's part of the plan; return its `RangeResult` as JSON.

        Args:
            prior: of all ranges.
            buckets: the range.
        """
        request = self.request
        # Tombstones name deleted ledgers only: of the others they say nothing.
        names_all = request.references is not None and request.references.names_all
        settings = RangeSettings(request.layout, request.passwords, self.run, names_all=names_all)
        planned = plan_range(self.case, prior, buckets, self._read_references(buckets), settings, os.urandom)
        name = f"buckets-{buckets.start:04d}-{buckets.stop - 1:04d}"
        parts = {
            table: write_part(to_place(self.out), table, name, [content], secret=True)
            for table, content in planned.tables.items()
        }
        hashes = Hashes()
        hashes.add(planned.tables["actions"], planned.tables["reconstruction"])
        return RangeResult(parts, hashes, planned.counts, planned.references, planned.used).to_json()

    def _read_references(self, buckets: range) -> pa.Table | None:
        """Return the references of a range, which the driver wrote where every task reads them."""
        if self.request.references is None:
            return None
        wanted = [("bucket", ">=", buckets.start), ("bucket", "<", buckets.stop)]
        return read_part(to_place(self.out), f"{SPILL}/{REFERENCES}.parquet", filters=wanted, schema=SCHEMA)
