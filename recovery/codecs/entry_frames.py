"""Consecutive entries, as exports and archives keep them: each after its size, as its bookie has it.

Big-endian.

    at  size  field
    0   4     n, int32: bytes of the entry
    4   n     the entry: header, digest, payload (see `entry`)

The fields of a header are read of all entries at once; whether a digest agrees only its own bytes can tell.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from recovery.codecs import entry
from recovery.errors import FormatError, Reason
from recovery.model.ids import LedgerId

Ints = npt.NDArray[np.int64]

SIZE_FIELD: Final = 4
_SIZE: Final = struct.Struct(">i")
_NOUN: Final = "entries"
_LEAST: Final = entry.HEADER_SIZE
_FIELDS: Final = 4
_FIELD_BYTES: Final = 8


class EntryHeaders(NamedTuple):
    """The headers of entries, as arrays of equal length; fields as `entry.EntryHeader` has them."""

    ledger: Ints
    entry: Ints
    lac: Ints
    length: Ints


def join_frames(records: Sequence[bytes]) -> bytes:
    """Return entries, each after its size."""
    sizes = np.array([len(record) for record in records], ">i4").tobytes()
    parts: list[bytes] = [b""] * (2 * len(records))
    parts[::2] = [sizes[begin : begin + SIZE_FIELD] for begin in range(0, len(sizes), SIZE_FIELD)]
    parts[1::2] = records
    return b"".join(parts)


def split_frames(data: bytes, offset: int = 0) -> tuple[list[bytes], int]:
    """Return the whole entries in some bytes, and the position after the last one.

    Args:
        data: begins with a frame; may end inside one.
        offset: of the bytes in their file, for errors.

    Raises:
        FormatError: a size that no entry has.
    """
    records: list[bytes] = []
    position, end = 0, len(data)
    unpack = _SIZE.unpack_from
    while position + SIZE_FIELD <= end:
        (size,) = unpack(data, position)
        if size < _LEAST:
            raise FormatError(Reason.BAD_LENGTH, _NOUN, offset + position, f"an entry of {size} bytes")
        behind = position + SIZE_FIELD + size
        if behind > end:
            break
        records.append(data[position + SIZE_FIELD : behind])
        position = behind
    return records, position


def read_headers(records: Sequence[bytes], ledger: LedgerId) -> EntryHeaders:
    """Return the headers of entries of one ledger, unchecked.

    Args:
        records: of `entry.HEADER_SIZE` bytes at least, of a scope of `entry.SCOPED_HEADER_SIZE`.
        ledger: which; that of a scope has longer headers.

    Raises:
        FormatError: an entry ends inside its header, or has a scope where the ledger has none, or none where it has.
    """
    size = entry.SCOPED_HEADER_SIZE if ledger.scope else entry.HEADER_SIZE
    if any(len(record) < size for record in records):
        raise FormatError(Reason.TRUNCATED, _NOUN, 0, f"a header takes {size} bytes")
    heads = np.frombuffer(b"".join([record[:size] for record in records]), np.uint8).reshape(-1, size)
    if ((heads[:, 0] >= entry.SCOPED) != bool(ledger.scope)).any():
        raise FormatError(Reason.BAD_VERSION, _NOUN, 0, "a scope" if not ledger.scope else "an entry without a scope")
    fields = np.ascontiguousarray(heads[:, size - _FIELDS * _FIELD_BYTES :]).view(">i8").astype(np.int64)
    return EntryHeaders(*(np.ascontiguousarray(column) for column in fields.T))
