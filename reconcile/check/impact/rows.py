"""Rows of several tables that are of the same ledger, found by columns."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reconcile.check.impact.segments import Ints

_PAIR = np.dtype([("scope", np.int64), ("ledger", np.int64)])


class LedgerRows:
    """The rows of a table that has each ledger once."""

    def __init__(self, rows: pa.Table) -> None:
        keys = _join(rows)
        self._order = np.argsort(keys, order=("scope", "ledger")) if len(keys) else np.zeros(0, np.int64)
        self._keys = keys[self._order]

    def find(self, rows: pa.Table) -> Ints:
        """Return the row of each ledger of another table; -1: it has none."""
        wanted = _join(rows)
        if not len(self._keys):
            return np.full(len(wanted), -1)
        place = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        row: Ints = np.where(self._keys[place] == wanted, self._order[place], -1)
        return row


def _join(rows: pa.Table) -> npt.NDArray[np.void]:
    keys = np.empty(rows.num_rows, _PAIR)
    keys["scope"], keys["ledger"] = (rows[name].to_numpy() for name in ("scope", "ledger"))
    return keys
