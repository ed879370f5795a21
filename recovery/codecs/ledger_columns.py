"""Columns of records of format 3 in the form that BookKeeper writes: field by field, of all records at once.

What is read here is read as `ledger_record.decode` reads it. A record that is not exactly of this form (another format,
fields in another order or absent, sizes that do not fit, values that a reader would question) is left to that codec.

    08 W  10 E  18 length  20 last entry  28 state
    32 size { 0a size member  …  10 first entry }  …
    38 digest type  42 size password  48 A
    50 creation time, 5a size { 0a size key  12 size value } …, 60 creator token: each or none

Source: apache/bookkeeper 9590a97, DataFormats.proto, LedgerMetadataFormat; LedgerMetadataSerDe.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recovery.codecs.ledger_record import MAGIC

FORMAT: Final = 3
"""The format that is read here."""
_HEAD: Final = np.frombuffer(MAGIC + b"%d\n" % FORMAT, np.uint8)
_MOST: Final = 1 << 31

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Byte strings inside the records, in the order of their records.

    Attributes:
        row: which record.
        group: which of its segments, or entries.
        start, size: of the place in each record.
    """

    row: Ints
    group: Ints
    start: Ints
    size: Ints

    def select(self, rows: Mask) -> "Parts":
        """Return the columns of some records, by a mask over all."""
        kept = rows[self.row]
        return Parts(self.row[kept], self.group[kept], self.start[kept], self.size[kept])

    def texts(self, data: npt.NDArray[np.uint8], kind: pa.DataType) -> pa.Array:
        """Return the bytes as an array of a binary type."""
        ends = np.concatenate([[0], np.cumsum(self.size)])
        taken = np.repeat(self.start - ends[:-1], self.size) + np.arange(ends[-1])
        buffers = [None, pa.py_buffer(ends.astype(np.int32).tobytes()), pa.py_buffer(data[taken].tobytes())]
        return pa.Array.from_buffers(kind, len(self.row), buffers)


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """The fields of the records; values of records that are not `good` mean nothing.

    Attributes:
        good: records of the form.
        data: all bytes.
        numbers: name to a column.
        has_ctime: whether the creation time is stored.
        segment_row, segment_first: the segments, in the order of their records.
        members: `group` is the number of the segment in its record.
        password: of each record.
        keys, values: of custom metadata.
    """

    good: Mask
    data: npt.NDArray[np.uint8]
    numbers: dict[str, Ints]
    has_ctime: Mask
    segment_row: Ints
    segment_first: Ints
    members: Parts
    password: Parts
    keys: Parts
    values: Parts


class _Reader:
    """A place in each record; a record that does not fit is marked as not good, and its place stays."""

    def __init__(self, data: npt.NDArray[np.uint8], position: Ints, end: Ints) -> None:
        # Ten bytes more: what looks beyond the end of the last record sees zeros.
        self._data = np.concatenate([data, np.zeros(16 + len(_HEAD), np.uint8)])
        self.at = position.copy()
        self.end = end
        self.good = np.ones(len(position), np.bool_)

    def is_next(self, tag: int, rows: Ints) -> Mask:
        fits: Mask = (self._data[self.at[rows]] == tag) & (self.at[rows] < self.end[rows])
        return fits

    def head(self, rows: Ints) -> None:
        window = self.at[rows][:, None] + np.arange(len(_HEAD))
        self.good[rows] &= (self._data[window] == _HEAD).all(axis=1)
        self.at[rows] += len(_HEAD)

    def tag(self, tag: int, rows: Ints) -> None:
        self.good[rows] &= self.is_next(tag, rows)
        self.at[rows] += self.good[rows]

    def number(self, rows: Ints) -> Ints:
        """Read a varint of each row, two's complement of 64 bits."""
        value = np.zeros(len(rows), np.uint64)
        rest = self.good[rows].copy()
        for byte in range(10):
            current = np.flatnonzero(rest)
            if not len(current):
                break
            read = self._data[self.at[rows[current]]]
            value[current] |= (read & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * byte)
            self.at[rows[current]] += 1
            goes_on = read >= 0x80
            if byte == 9:
                self.good[rows[current[read > 1]]] = False
            rest[current] = goes_on
        self.good[rows] &= self.at[rows] <= self.end[rows]
        self.at[rows] = np.minimum(self.at[rows], self.end[rows])
        return value.view(np.int64)

    def size(self, rows: Ints, end: Ints | None = None) -> Ints:
        """Read the size of the following field, which must end within its record or message."""
        size = self.number(rows)
        left = (self.end[rows] if end is None else end) - self.at[rows]
        self.good[rows] &= (size >= 0) & (size <= left)
        return np.where(self.good[rows], size, 0)

    def skip(self, rows: Ints, size: Ints) -> Ints:
        start = self.at[rows].copy()
        self.at[rows] += size
        return start


def read(raws: pa.Array) -> Read:
    """Read records; no nulls."""
    offsets = np.frombuffer(raws.buffers()[1], np.int32, len(raws) + 1, raws.offset * 4).astype(np.int64)
    buffer = raws.buffers()[2]
    data = np.zeros(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)
    reader = _Reader(data, offsets[:-1], offsets[1:])
    rows = np.arange(len(raws))
    reader.head(rows)
    size = reader.size(rows)
    reader.good &= reader.at + size == reader.end
    numbers: dict[str, Ints] = {}
    for tag, name in (
        (0x08, "write_quorum"),
        (0x10, "ensemble_size"),
        (0x18, "length"),
        (0x20, "last_entry"),
        (0x28, "state"),
    ):
        reader.tag(tag, rows)
        numbers[name] = reader.number(rows)
    segment_row, segment_first, members = _segments(reader)
    reader.tag(0x38, rows)
    numbers["digest"] = reader.number(rows)
    reader.tag(0x42, rows)
    size = reader.size(rows)
    password = Parts(rows, np.zeros(len(rows), np.int64), reader.skip(rows, size), size)
    reader.tag(0x48, rows)
    numbers["ack_quorum"] = reader.number(rows)
    has_ctime = reader.good & reader.is_next(0x50, rows)
    numbers["ctime"] = np.zeros(len(rows), np.int64)
    timed = np.flatnonzero(has_ctime)
    reader.tag(0x50, timed)
    numbers["ctime"][timed] = reader.number(timed)
    keys, values = _entries(reader)
    marked = np.flatnonzero(reader.good & reader.is_next(0x60, rows))
    reader.tag(0x60, marked)
    reader.number(marked)
    good = reader.good & (reader.at == reader.end)
    for name in ("write_quorum", "ensemble_size", "ack_quorum"):
        good &= (numbers[name] > 0) & (numbers[name] < _MOST)
    good &= (numbers["ensemble_size"] >= numbers["write_quorum"]) & (numbers["write_quorum"] >= numbers["ack_quorum"])
    good &= (numbers["state"] >= 1) & (numbers["state"] <= 3) & (numbers["digest"] >= 1) & (numbers["digest"] <= 4)
    good &= np.bincount(segment_row, minlength=len(rows)) > 0
    behind = (segment_row[1:] == segment_row[:-1]) & (segment_first[1:] <= segment_first[:-1])
    good[segment_row[1:][behind]] = False
    return Read(good, data, numbers, has_ctime, segment_row, segment_first, members, password, keys, values)


def _segments(reader: _Reader) -> tuple[Ints, Ints, Parts]:
    """Read the segments of all records, the first of each at once, then the second."""
    everything = np.arange(len(reader.at))
    segments: list[tuple[Ints, Ints, Ints]] = []
    parts: list[tuple[Ints, Ints, Ints, Ints, Ints]] = []
    number = 0
    while len(rows := everything[reader.good & reader.is_next(0x32, everything)]):
        reader.tag(0x32, rows)
        size = reader.size(rows)
        end = np.zeros(len(everything), np.int64)
        end[rows] = reader.at[rows] + size
        inside = rows
        place = 0
        while len(
            inside := inside[reader.good[inside] & reader.is_next(0x0A, inside) & (reader.at[inside] < end[inside])]
        ):
            reader.tag(0x0A, inside)
            width = reader.size(inside, end[inside])
            start = reader.skip(inside, width)
            whole = np.full(len(inside), number)
            parts.append((inside, whole, np.full(len(inside), place), start, width))
            place += 1
        reader.good[rows] &= reader.at[rows] < end[rows]
        reader.tag(0x10, rows)
        first = reader.number(rows)
        reader.good[rows] &= reader.at[rows] == end[rows]
        segments.append((rows, np.full(len(rows), number), first))
        number += 1
    row, group, first = _join(segments, 3)
    order = np.lexsort((group, row))
    columns = _join(parts, 5)
    inner = np.lexsort((columns[2], columns[1], columns[0]))
    row_of, group_of, _, start_of, size_of = (column[inner] for column in columns)
    return row[order], first[order], Parts(row_of, group_of, start_of, size_of)


def _entries(reader: _Reader) -> tuple[Parts, Parts]:
    """Read the custom metadata of all records."""
    everything = np.arange(len(reader.at))
    keys: list[tuple[Ints, Ints, Ints, Ints]] = []
    values: list[tuple[Ints, Ints, Ints, Ints]] = []
    number = 0
    while len(rows := everything[reader.good & reader.is_next(0x5A, everything)]):
        reader.tag(0x5A, rows)
        size = reader.size(rows)
        end = reader.at[rows] + size
        whole = np.full(len(rows), number)
        for tag, parts in ((0x0A, keys), (0x12, values)):
            reader.good[rows] &= reader.at[rows] < end
            reader.tag(tag, rows)
            width = reader.size(rows, end)
            parts.append((rows, whole, reader.skip(rows, width), width))
        reader.good[rows] &= reader.at[rows] == end
        number += 1
    combined = []
    for parts in (keys, values):
        columns = _join(parts, 4)
        order = np.lexsort((columns[1], columns[0]))
        combined.append(Parts(*(column[order] for column in columns)))
    return combined[0], combined[1]


def _join(parts: Sequence[tuple[Ints, ...]], width: int) -> list[Ints]:
    if not parts:
        return [np.zeros(0, np.int64)] * width
    return [np.concatenate([part[column] for part in parts]) for column in range(width)]
