"""What is counted in a bucket range of a plan, and in all of them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class RangeCounts:
    """What was counted in a bucket range, or in several.

    Attributes:
        ledgers: on bookies.
        present: of these, in the store.
        stored: records of the store.
        unheld: of these, on no bookie that was looked at.
        newer: records of the store that are newer than what was seen of their bookies.
        still_held: holds of an earlier plan in the store.
        still_guarded: guarded records of an earlier plan in the store that stay guarded.
        released: of holds and guarded records, replaced.
        settled: of these, guarded records whose guard ends.
        named: guarded by names alone, without a lock.
        short: lost ledgers that come back without entries that are lost.
        beyond: lost ledgers that come back with an end above which bookies hold entries.
        looked_at: ledgers of any side.
        left: actions that write nothing until a person chooses.
        reused: ids in the store that two ledgers have.
        reuse_locks: of these, those whose older copies a lock keeps for a time.
        outcomes: of lost ledgers, each with how many there are.
        entries: of lost ledgers, by outcome; lost: those that no bookie serves, of ledgers that come back.
        reasons: of holds; doubts: of guarded ledgers.
        findings: by category.
        proven: critical ones that were shown, by category.
        relations: of bookies, store and snapshots.
        verdicts: of ledgers.
    """

    ledgers: int = 0
    present: int = 0
    stored: int = 0
    unheld: int = 0
    newer: int = 0
    still_held: int = 0
    still_guarded: int = 0
    released: int = 0
    settled: int = 0
    named: int = 0
    short: int = 0
    beyond: int = 0
    looked_at: int = 0
    left: int = 0
    reused: int = 0
    reuse_locks: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    entries: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)
    doubts: Mapping[str, int] = field(default_factory=dict)
    findings: Mapping[str, int] = field(default_factory=dict)
    proven: Mapping[str, int] = field(default_factory=dict)
    relations: Mapping[str, int] = field(default_factory=dict)
    verdicts: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: "RangeCounts") -> "RangeCounts":
        """Return both as one; counts by name are in the order of their names."""
        sums: dict[str, Any] = {}
        for name in self.__slots__:
            mine, its = getattr(self, name), getattr(other, name)
            sums[name] = mine + its if isinstance(mine, int) else dict(sorted((Counter(mine) + Counter(its)).items()))
        return RangeCounts(**sums)


def count_values(column: pa.ChunkedArray) -> dict[str, int]:
    """Return each value of a column, and how many rows have it; rows without one are not counted."""
    return {str(row["values"]): row["counts"] for row in pc.value_counts(column.drop_null()).to_pylist()}
