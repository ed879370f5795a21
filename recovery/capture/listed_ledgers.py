"""The ledgers that a listing named, so that what somebody else knows of can be held against it, piece by piece.

They are kept in the order of their buckets: a piece that is of some buckets is held against those alone.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recovery.model.ids import buckets

Ints = npt.NDArray[np.int64]
_LAST_NAME: Final = "/[^/]*$"
KEYS: Final = pa.schema([pa.field("scope", pa.int64()), pa.field("ledger", pa.int64())])


class ListedLedgers:
    """Ledgers by scope and id; first all are added, then pieces are held against them."""

    def __init__(self) -> None:
        """Begin with none."""
        self._parts: list[tuple[Ints, Ints]] = []
        self._bucket = np.zeros(0, np.int16)
        self._ids = KEYS.empty_table()

    def add(self, scope: Ints, ledger: Ints) -> None:
        """Take some that were listed."""
        self._parts.append((scope, ledger))

    def leave_out(self, rows: pa.Table) -> tuple[Ints, Ints]:
        """Return scope and ledger of those among rows that are not listed: each once, ascending."""
        self._sort_parts()
        ids = rows.select(KEYS.names).cast(KEYS).group_by(KEYS.names).aggregate([])
        if ids.num_rows and self._ids.num_rows:
            wanted = buckets(*(ids[name].to_numpy() for name in KEYS.names))
            low, high = np.searchsorted(self._bucket, [wanted.min(), wanted.max() + 1]).tolist()
            ids = ids.join(self._ids.slice(low, high - low), KEYS.names, join_type="left anti")
        ids = ids.sort_by([(name, "ascending") for name in KEYS.names])
        scope, ledger = (ids[name].to_numpy() for name in KEYS.names)
        return scope, ledger

    def _sort_parts(self) -> None:
        if not self._parts:
            return
        added = [self._ids, *(pa.table(part, schema=KEYS) for part in self._parts)]
        ids = pa.concat_tables(added).combine_chunks()
        bucket = buckets(*(ids[name].to_numpy() for name in KEYS.names))
        order = np.argsort(bucket, kind="stable")
        self._bucket, self._ids, self._parts = bucket[order], ids.take(pa.array(order)), []


def have_folders(keys: pa.Array, are_there: Callable[[Sequence[str]], Iterable[bool]]) -> npt.NDArray[np.bool_]:
    """Say of which keys the folder may be there: below one that is not stands nothing, and none need be asked for.

    Args:
        keys: of ledgers.
        are_there: says it of folders; asked only where they are few beside the keys.
    """
    folders = pc.replace_substring_regex(keys, _LAST_NAME, "").dictionary_encode()
    names = folders.dictionary.to_pylist()
    if 2 * len(names) > len(keys):
        return np.ones(len(keys), np.bool_)
    there = np.fromiter(are_there(names), np.bool_, len(names))
    return np.asarray(there[folders.indices.to_numpy()])
