"""Why ledgers are not safe to delete, each reason with its ledger; and the verdicts that these give."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.deletes.tombstones import DeleteVerdict

Ints = npt.NDArray[np.int64]


class UnsafeReason(StrEnum):
    """Why a ledger is not safe to delete; values are stored."""

    NO_RECORD = "NO_RECORD"
    TOO_LARGE = "TOO_LARGE"
    OPEN = "OPEN"
    IN_RECOVERY = "IN_RECOVERY"
    IN_QUARANTINE = "IN_QUARANTINE"
    UNPARSABLE = "UNPARSABLE"
    CHANGED = "CHANGED"
    UNDER_REPLICATED = "UNDER_REPLICATED"
    LOCKED = "LOCKED"
    REFERENCED = "REFERENCED"
    REFERENCES_UNKNOWN = "REFERENCES_UNKNOWN"
    MAKER_UNLISTED = "MAKER_UNLISTED"
    TOO_YOUNG = "TOO_YOUNG"
    NOT_ARCHIVED = "NOT_ARCHIVED"
    ARCHIVE_UNREADABLE = "ARCHIVE_UNREADABLE"
    ENTRIES_BEYOND_END = "ENTRIES_BEYOND_END"
    HOLDER_UNSEEN = "HOLDER_UNSEEN"
    INCARNATION_UNPROVEN = "INCARNATION_UNPROVEN"
    DURABILITY_BREACH = "DURABILITY_BREACH"
    BREAKER = "BREAKER"
    LISTING_INCOMPLETE = "LISTING_INCOMPLETE"
    MASS_ABSENCE = "MASS_ABSENCE"


UNSAFE = frozenset(
    {
        UnsafeReason.NO_RECORD,
        UnsafeReason.TOO_LARGE,
        UnsafeReason.OPEN,
        UnsafeReason.IN_RECOVERY,
        UnsafeReason.IN_QUARANTINE,
        UnsafeReason.UNDER_REPLICATED,
        UnsafeReason.LOCKED,
        UnsafeReason.REFERENCED,
        UnsafeReason.NOT_ARCHIVED,
        UnsafeReason.ENTRIES_BEYOND_END,
        UnsafeReason.DURABILITY_BREACH,
        UnsafeReason.BREAKER,
    }
)
"""Reasons that were seen; the others say that something could not be seen."""


@dataclass(slots=True)
class Objections:
    """Reasons against deletes, gathered check by check.

    Attributes:
        count: ledgers that are judged.
    """

    count: int
    _rows: list[Ints] = field(default_factory=list)
    _reasons: list[UnsafeReason] = field(default_factory=list)
    _unsafe: list[npt.NDArray[np.bool_]] = field(default_factory=list)
    _texts: list[pa.Array] = field(default_factory=list)

    def add(self, rows: Ints, reason: UnsafeReason, detail: str | Sequence[str]) -> None:
        """Object to some ledgers.

        Args:
            rows: their numbers.
            reason: why.
            detail: in words; one for all, or one each.
        """
        if not len(rows):
            return
        details = pa.array([detail] * len(rows) if isinstance(detail, str) else detail, pa.string())
        self._rows.append(np.asarray(rows, np.int64))
        self._reasons.append(reason)
        self._unsafe.append(np.full(len(rows), reason in UNSAFE))
        self._texts.append(pc.binary_join_element_wise(reason.value, details, ": "))

    def add_all(self, reason: UnsafeReason, detail: str) -> None:
        """Object to every ledger."""
        self.add(np.arange(self.count), reason, detail)

    def list_rows(self, reason: UnsafeReason) -> set[int]:
        """Return the numbers of the ledgers that have been objected to for a reason."""
        return {
            row for rows, own in zip(self._rows, self._reasons, strict=True) if own is reason for row in rows.tolist()
        }

    def judge(self) -> tuple[list[DeleteVerdict], list[tuple[str, ...]]]:
        """Return the verdict of each ledger, and its reasons in the order of the alphabet."""
        verdicts = [DeleteVerdict.SAFE] * self.count
        reasons: list[tuple[str, ...]] = [()] * self.count
        if not self._rows:
            return verdicts, reasons
        table = pa.table(
            {
                "row": np.concatenate(self._rows),
                "unsafe": np.concatenate(self._unsafe),
                "text": pa.concat_arrays(self._texts),
            }
        )
        grouped = table.group_by("row").aggregate([("unsafe", "max"), ("text", "distinct")])
        for row, unsafe, texts in zip(
            *(grouped[name].to_pylist() for name in ("row", "unsafe_max", "text_distinct")), strict=True
        ):
            verdicts[row] = DeleteVerdict.UNSAFE if unsafe else DeleteVerdict.UNDECIDED
            reasons[row] = tuple(sorted(texts))
        return verdicts, reasons
