"""Did many ledgers go since the store was listed last? Of what stood then, what stands now.

A ledger counts by when it was made, as its record or the store says: what was made since neither hides what went nor
counts as gone. One of which nothing says when counts as if it always stood.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow.compute as pc

from reconcile.deletes.records import LastListing
from reconcile.deletes.tombstones import DAY_MS
from reconcile.deletes.verification.unreferenced import read_times
from recovery.dataset import Dataset
from recovery.model.ids import BUCKETS

FEW: Final = 10
"""So many a day trip nothing, whatever share of a small cluster they are."""
MOST_SHARE: Final = 0.05
"""Of all ledgers that may go in a day."""
MOST_EVER: Final = 0.5
"""Of all ledgers that may go between two verifications, however far apart."""
_STEP: Final = 512
"""Buckets read at a time."""


@dataclass(frozen=True, slots=True)
class Absence:
    """What went since the store was listed last.

    Attributes:
        since_ms: when that was, ms since 1970.
        listed: ledgers that stood then.
        gone: of these, how many are not there, and were not purged by us, nor deleted as a backup of the store has it.
        explained: of these, how many were deleted as a backup of the store has it, by us or by others.
        limit: how many may go in that time without a question.
    """

    since_ms: int
    listed: int
    gone: int
    limit: int
    explained: int = 0

    @property
    def is_mass(self) -> bool:
        """Whether so many went that the listing is not believed."""
        return self.gone > self.limit


def count_born(capture: Dataset, until_ms: int) -> int:
    """Return how many ledgers of a capture were made before a time.

    Raises:
        DatasetError: it is damaged.
    """
    count = 0
    for low in range(0, BUCKETS, _STEP):
        rows = capture.read("ledgers", buckets=range(low, low + _STEP), columns=["created_at", "ctime"])
        stored, own = read_times(rows["created_at"]), pc.fill_null(rows["ctime"], -1).to_numpy()
        # A record that was put back is younger, by the store, than its ledger.
        born = np.where((stored >= 0) & (own >= 0), np.minimum(stored, own), np.maximum(stored, own))
        count += int((born <= until_ms).sum())
    return count


def measure_absence(capture: Dataset, earlier: LastListing, purged: int, now_ms: int, explained: int = 0) -> Absence:
    """Return what went since a verification listed the store.

    Args:
        capture: of the store now.
        earlier: what was listed then.
        purged: ledgers that we purged since.
        now_ms: the time, ms since 1970.
        explained: ledgers that were there then, and were deleted since, as a backup of the store has it: purges, too.

    Raises:
        DatasetError: the capture is damaged.
    """
    days = max((now_ms - earlier.at_ms) / DAY_MS, 1)
    limit = max(FEW, int(earlier.ledgers * min(days * MOST_SHARE, MOST_EVER)))
    gone = max(earlier.ledgers - count_born(capture, earlier.at_ms) - max(purged, explained), 0)
    return Absence(earlier.at_ms, earlier.ledgers, gone, limit, explained)
