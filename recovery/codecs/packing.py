"""Byte matrices to Arrow arrays: how columns of records are encoded without a loop per row.

A field of n records is a matrix of n rows, as wide as its longest value, and the number of bytes that count in each row
(from the left). Fields are laid side by side, and what does not count is left out.

A varint is protobuf's: seven bits a byte, least significant first, bit 7 set on all but the last; a negative number has
ten bytes.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa


@dataclass(frozen=True, slots=True, eq=False)
class PackedField:
    """The bytes of one field of many records.

    Attributes:
        matrix: (records, widest), uint8; or (1, width) for a constant.
        sizes: bytes that count in each row, (records,); None where all of them do.
    """

    matrix: npt.NDArray[np.uint8]
    sizes: npt.NDArray[np.int64] | None = None


def constant(value: bytes) -> PackedField:
    """Return the field that holds the same bytes in every record."""
    return PackedField(np.frombuffer(value, np.uint8)[None, :])


def varint_sizes(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return how many bytes each number takes as a varint."""
    bits = values.view(np.uint64)
    sizes = np.ones(len(bits), np.int64)
    for byte in range(1, 10):
        rest = bits >= np.uint64(1 << 7 * byte)
        if not rest.any():
            break
        sizes += rest
    return sizes


def varints(values: npt.NDArray[np.int64]) -> PackedField:
    """Return the field that holds each number as a varint."""
    bits = values.view(np.uint64)
    sizes = varint_sizes(values)
    matrix = np.empty((len(bits), int(sizes.max(initial=1))), np.uint8)
    for byte in range(matrix.shape[1]):
        septet = (bits >> np.uint64(7 * byte)).astype(np.uint8) & np.uint8(0x7F)
        matrix[:, byte] = septet | ((sizes > byte + 1).astype(np.uint8) << np.uint8(7))
    return PackedField(matrix, sizes)


def pack(count: int, *fields: PackedField, kind: pa.DataType | None = None) -> pa.Array:
    """Return one array of the fields laid side by side.

    Args:
        count: records.
        fields: in their order.
        kind: binary (the default) or string; the bytes of a string must be UTF-8.
    """
    widths = [field.matrix.shape[1] for field in fields]
    matrix = np.empty((count, sum(widths)), np.uint8)
    sizes = np.zeros(count, np.int64)
    whole = True
    position = 0
    for field, width in zip(fields, widths, strict=True):
        matrix[:, position : position + width] = field.matrix
        position += width
        whole = whole and field.sizes is None
        sizes += width if field.sizes is None else field.sizes
    if not whole:
        keep = np.ones(matrix.shape, np.bool_)
        position = 0
        for field, width in zip(fields, widths, strict=True):
            if field.sizes is not None:
                keep[:, position : position + width] = np.arange(width) < field.sizes[:, None]
            position += width
        matrix = matrix[keep]
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return pa.Array.from_buffers(
        kind or pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(matrix))]
    )
