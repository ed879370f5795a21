"""Some ledgers of many: which rows of tables are theirs, found in columns."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recovery.dataset import Dataset
from recovery.model.ids import BUCKETS, LedgerId, buckets

Ints = npt.NDArray[np.int64]

_PAIR: Final = np.dtype([("scope", np.int64), ("ledger", np.int64)])
_STEP: Final = 64
"""Buckets read at a time."""


class Wanted:
    """Ledgers that are looked at, each once; a ledger's number is its place here.

    Attributes:
        ledgers: in ascending order of the signed halves of their ids.
        scope, ledger: the same as columns.
    """

    def __init__(self, ledgers: Sequence[LedgerId]) -> None:
        pairs = np.array([(item.scope, item.ledger) for item in dict.fromkeys(ledgers)], _PAIR)
        self._pairs = np.sort(pairs, order=["scope", "ledger"])
        self.scope: Ints = np.ascontiguousarray(self._pairs["scope"])
        self.ledger: Ints = np.ascontiguousarray(self._pairs["ledger"])
        self.ledgers = [LedgerId(*pair) for pair in self._pairs.tolist()]
        self._steps = np.unique(buckets(self.scope, self.ledger) // _STEP) if len(pairs) else np.zeros(0, np.int16)

    def __len__(self) -> int:
        return len(self.ledgers)

    def find(self, scope: Ints, ledger: Ints) -> Ints:
        """Return the number of each id; -1 of one that is not wanted."""
        if not len(self.ledgers):
            return np.full(len(scope), -1)
        pairs = np.empty(len(scope), _PAIR)
        pairs["scope"], pairs["ledger"] = scope, ledger
        place = np.minimum(np.searchsorted(self._pairs, pairs), len(self.ledgers) - 1)
        return np.where(self._pairs[place] == pairs, place, -1).astype(np.int64)

    def find_rows(self, rows: pa.Table) -> Ints:
        """Return the number of each row's ledger; -1 of one that is not wanted, or of none."""
        scope = rows["scope"].to_numpy().astype(np.int64)
        return self.find(scope, rows["ledger"].to_numpy().astype(np.int64))

    def select(self, rows: pa.Table) -> tuple[pa.Table, Ints]:
        """Return the rows of wanted ledgers, and the number of each."""
        numbers = self.find_rows(rows)
        kept = numbers >= 0
        return rows.filter(pa.array(kept)), numbers[kept]

    def read(self, dataset: Dataset, name: str, columns: Sequence[str]) -> Iterator[tuple[pa.Table, Ints]]:
        """Yield the rows of wanted ledgers of one of a dataset's tables, with the number of each, bucket by bucket.

        Raises:
            DatasetError: a file is gone or damaged.
        """
        names = list(dict.fromkeys(("scope", "ledger", *columns)))
        for step in self._steps.tolist():
            low = step * _STEP
            rows, numbers = self.select(
                dataset.read(name, buckets=range(low, min(low + _STEP, BUCKETS)), columns=names)
            )
            if rows.num_rows:
                yield rows.combine_chunks(), numbers
