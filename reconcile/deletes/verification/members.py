"""The bookies that records of closed ledgers name, in columns; a ledger and a bookie as one number."""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]

_SHIFT: Final = 32
"""Bits of a key below the ledger's number: the number of the bookie."""


class EnsembleMembers(NamedTuple):
    """Members of ensembles, flat: a ledger's bookie may stand here several times.

    Attributes:
        row: number of the ledger.
        bookie: number of the bookie.
        names: of bookies.
    """

    row: Ints
    bookie: Ints
    names: list[str]


def list_members(rows: Ints, segments: pa.Array) -> EnsembleMembers:
    """Return the members of all segments of ledgers.

    Args:
        rows: numbers of ledgers, one a record.
        segments: as `recovery.model.tables.SEGMENTS`, none null.
    """
    members = segments.flatten().field("members")
    record = np.repeat(np.arange(len(rows)), segments.value_lengths().to_numpy(zero_copy_only=False))
    sizes = members.value_lengths().to_numpy(zero_copy_only=False)
    names = members.flatten().dictionary_encode()
    numbers = names.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return EnsembleMembers(rows[np.repeat(record, sizes)], numbers, names.dictionary.to_pylist())


def make_keys(row: Ints, bookie: Ints) -> Ints:
    """Return one number for a ledger and a bookie."""
    return (row << _SHIFT) | bookie


def split_keys(keys: Ints) -> tuple[Ints, Ints]:
    """Return the numbers of ledgers and of bookies that `make_keys` made keys of."""
    return keys >> _SHIFT, keys & ((1 << _SHIFT) - 1)
