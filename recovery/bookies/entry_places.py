"""Where a bookie has the entries of a ledger: what its disks and what its wire answer."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class EntryPlaces(NamedTuple):
    """Where entries of one ledger stand; ascending by entry, each at most once.

    `file` is a number that only the bookie's disks understand.
    """

    entry: Ints
    file: Ints
    position: Ints


@dataclass(frozen=True, slots=True)
class FoundPlaces:
    """What a bookie has of a stretch of one ledger.

    Attributes:
        journal, index: places, the journal's to be tried first.
        sure: an entry without a place is not served; False: something that could hold it was not looked at.
    """

    journal: EntryPlaces
    index: EntryPlaces
    sure: bool
