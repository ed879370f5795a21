"""Ends that copies prove: re-replication leaves the LAC of whoever opened the ledger, which of a closed one is its end.

The last segment is only copied once the ledger is closed; an earlier one of an open ledger, too. So a copy of an entry
of the last segment whose LAC is the largest of all shows the end, and what bookies hold above it was dropped by the
close. That holds where nobody lost anything: a bookie that did may have been the last segment's.
"""

from dataclasses import replace

import numpy as np

from recovery.infer.copies import Ints, Mask
from recovery.infer.facts import Facts
from recovery.infer.shape_fit import UNDECIDED, Explained
from recovery.infer.snapshot_contradictions import UNPROVED


def prove_ends(known: Facts, explained: Explained, is_all_seen: Mask) -> Ints:
    """Return the end that copies prove of each ledger, else `UNPROVED`.

    Args:
        known: what bookies show.
        explained: with the segments of each ledger.
        is_all_seen: nothing of a ledger is hidden, and nobody can have lost any.
    """
    last = np.full(known.count, -1)
    np.maximum.at(last, explained.segments.ledger, explained.segments.first)
    proved = is_all_seen & (explained.path != UNDECIDED) & (known.closed_copy >= np.maximum(last, 0))
    return np.where(proved, known.lac, UNPROVED)


def undecide_dropped(known: Facts, explained: Explained, is_all_seen: Mask) -> Explained:
    """Leave ledgers to the search that were explained up to entries which their close dropped."""
    ends = prove_ends(known, explained, is_all_seen)
    longer = (ends != UNPROVED) & (explained.end > ends)
    if not longer.any():
        return explained
    is_kept = ~longer[explained.other_ledger]
    return replace(
        explained,
        path=np.where(longer, UNDECIDED, explained.path),
        segments=explained.segments.select(~longer[explained.segments.ledger]),
        other_ledger=explained.other_ledger[is_kept],
        other_shape=explained.other_shape[is_kept],
    )
