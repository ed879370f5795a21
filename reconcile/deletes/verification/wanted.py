"""Some ledgers of many: which rows of tables are theirs, found in columns."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recovery.dataset import Dataset
from recovery.model.ids import LedgerId, bucket_ranges, buckets

Ints = npt.NDArray[np.int64]

_PAIR: Final = np.dtype([("scope", np.int64), ("ledger", np.int64)])
_ROWS: Final = 1 << 14
"""Rows of a table that are read at a time, about."""


class WantedLedgers:
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
        self._buckets = np.sort(buckets(self.scope, self.ledger))

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
        """Yield the rows of wanted ledgers of one of a dataset's tables, with the number of each, in parts.

        Raises:
            DatasetError: a file is gone or damaged.
        """
        names = list(dict.fromkeys(("scope", "ledger", *columns)))
        if not len(self.ledgers):
            return
        for part in bucket_ranges(dataset.rows(name), rows_per_task=_ROWS):
            first, end = np.searchsorted(self._buckets, [part.start, part.stop]).tolist()
            if first == end:
                continue
            rows, numbers = self.select(dataset.read(name, buckets=part, columns=names))
            if rows.num_rows:
                yield rows.combine_chunks(), numbers
