"""Records that changed after one of their bookies was read: its missing entries prove nothing."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.rules.segments.copies import Sight

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_NEVER = np.iinfo(np.int64).max


def find_newer(stored: pa.Table, sight: Sight) -> Mask:
    """Mark records that are newer than the inventory of a running bookie that they name.

    A client writes a ledger's record before it sends the bookies anything, so such a ledger may have been created, or
    written on, since. A record without a known time of change may be newer.

    Args:
        stored: CATALOG_LEDGERS.
        sight: of the bookies.
    """
    mask = np.zeros(stored.num_rows, np.bool_)
    by_time = {name: at for name, at in sight.since.items() if at is not None and name not in sight.as_of}
    segments = stored["segments"].combine_chunks()
    members = pc.struct_field(pc.list_flatten(segments), "members")
    row_of = pc.list_parent_indices(segments).take(pc.list_parent_indices(members)).to_numpy(zero_copy_only=False)
    coded = pc.list_flatten(members).dictionary_encode()
    names, number = coded.dictionary.to_pylist(), coded.indices.to_numpy(zero_copy_only=False)
    for looked, column in ((sight.as_of, stored["changed_txn"]), (by_time, pc.cast(stored["changed_at"], pa.int64()))):
        changed = pc.fill_null(column, _NEVER).to_numpy()
        mask[row_of[_find_limits(looked, names, number) < changed[row_of]]] = True
    return mask


def _find_limits(looked: Mapping[str, int], names: list[str], number: Ints) -> Ints:
    """Return the time when each member was read; `_NEVER`: not known, or it cannot have newer entries."""
    limits = np.array([looked.get(name, _NEVER) for name in names], np.int64)
    return limits[number] if len(limits) else np.empty(0, np.int64)
