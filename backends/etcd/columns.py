"""Keys as etcd sends and stores them, as columns: field by field, of all keys at once.

What is read here is read as the generated messages read it; a page with a key that is not of this form (fields in
another order, twice, or unknown) is left to them.

    KeyValue  0a size key, 10 creation, 18 modification, 20 version, 2a size value, 30 lease
    Event     08 type, 12 size KeyValue, 1a size KeyValue before

A field that is 0 or empty is not written.

Source: etcd-io/etcd v3.5, api/mvccpb/kv.proto; a server writes fields in the order of their numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backends.etcd import rpc

Ints = npt.NDArray[np.int64]

_VARINT: Final = 10
_TEXT: Final = 2
_KEY, _CREATED, _MODIFIED, _VERSION, _VALUE, _LEASE = 0x0A, 0x10, 0x18, 0x20, 0x2A, 0x30
_KEY_VALUE: Final = (_KEY, _CREATED, _MODIFIED, _VERSION, _VALUE, _LEASE)
_TYPE, _KV, _BEFORE = 0x08, 0x12, 0x1A
_EVENT: Final = (_TYPE, _KV, _BEFORE)


@dataclass(frozen=True, slots=True, eq=False)
class PageKeys:
    """Keys of a page, one a row.

    Attributes:
        key, value: binary.
        created, modified, version, lease: int64.
    """

    key: pa.Array
    value: pa.Array
    created: Ints
    modified: Ints
    version: Ints
    lease: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """The events of a watch, one write a row.

    Attributes:
        keys: after the write; of a removal only `key` and `modified`.
        deleted: (rows,), bool.
        before: binary, the value that was there; null where none is said.
        lease_before: int64, of the key that was there; 0: none, or not said.
    """

    keys: PageKeys
    deleted: npt.NDArray[np.bool_]
    before: pa.Array
    lease_before: Ints


def read_keys(raws: Sequence[bytes]) -> PageKeys:
    """Read serialised `KeyValue` messages.

    Raises:
        DecodeError: one is no valid message.
    """
    data, start, end = _lay_out(raws)
    columns = _keys(data, start, end)
    if columns is not None:
        return columns
    return _keys_of([rpc.KeyValue.FromString(raw) for raw in raws])


def read_events(raws: Sequence[bytes]) -> Events:
    """Read serialised `Event` messages.

    Raises:
        DecodeError: one is no valid message.
    """
    data, start, end = _lay_out(raws)
    fields = _fields(data, start, end, _EVENT)
    if fields is not None:
        keys = _keys(data, fields[_KV].start, fields[_KV].end)
        previous = _keys(data, fields[_BEFORE].start, fields[_BEFORE].end)
        types = fields[_TYPE].number
        if keys is not None and previous is not None and bool(np.isin(types, (0, 1)).all()):
            text = pa.array(fields[_BEFORE].there)
            before = pc.if_else(text, previous.value, pa.scalar(None, pa.binary()))
            return Events(keys, types == 1, before, previous.lease)
    events = [rpc.Event.FromString(raw) for raw in raws]
    return Events(
        _keys_of([event.kv for event in events]),
        np.array([event.type == rpc.Event.DELETE for event in events], np.bool_),
        pa.array([e.prev_kv.value if e.HasField("prev_kv") else None for e in events], pa.binary()),
        np.array([event.prev_kv.lease for event in events], np.int64),
    )


def _keys_of(kvs: Sequence[Any]) -> PageKeys:
    names = ("create_revision", "mod_revision", "version", "lease")
    return PageKeys(
        pa.array([kv.key for kv in kvs], pa.binary()),
        pa.array([kv.value for kv in kvs], pa.binary()),
        *(np.array([getattr(kv, name) for kv in kvs], np.int64) for name in names),
    )


def _lay_out(raws: Sequence[bytes]) -> tuple[npt.NDArray[np.uint8], Ints, Ints]:
    """Return all bytes, and the begin and end of each message in them."""
    ends = np.cumsum(np.fromiter(map(len, raws), np.int64, len(raws)))
    # What looks beyond the end of the last message sees zeros.
    data = np.frombuffer(b"".join((*raws, bytes(_VARINT + 1))), np.uint8)
    return data, np.concatenate([[0], ends[:-1]]).astype(np.int64)[: len(raws)], ends


def _keys(data: npt.NDArray[np.uint8], start: Ints, end: Ints) -> PageKeys | None:
    fields = _fields(data, start, end, _KEY_VALUE)
    if fields is None:
        return None
    return PageKeys(
        fields[_KEY].texts(data),
        fields[_VALUE].texts(data),
        *(fields[tag].number for tag in (_CREATED, _MODIFIED, _VERSION, _LEASE)),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Field:
    """One field of all messages.

    Attributes:
        there: whether it is written.
        number: its value; of bytes their size; 0 where it is not there.
        start, end: of bytes; empty where it is not there.
    """

    there: npt.NDArray[np.bool_]
    number: Ints
    start: Ints
    end: Ints

    def texts(self, data: npt.NDArray[np.uint8]) -> pa.Array:
        """Return the bytes; one byte between each two is left out."""
        offsets = np.stack([self.start, self.end], axis=1).astype(np.int32).ravel()
        count = max(len(offsets) - 1, 0)
        whole = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
        return whole.take(pa.array(np.arange(0, count, 2)))


def _fields(data: npt.NDArray[np.uint8], start: Ints, end: Ints, tags: Sequence[int]) -> dict[int, _Field] | None:
    """Read messages field by field; None: not all are of the form."""
    position = start.copy()
    fields = {}
    for tag in tags:
        present = (data[position] == tag) & (position < end)
        rows = np.flatnonzero(present)
        position[rows] += 1
        number = np.zeros(len(position), np.int64)
        read = _varints(data, position, rows)
        if read is None:
            return None
        number[rows] = read
        first = position
        if tag % 8 == _TEXT:
            if bool(((number < 0) | (number > end - position)).any()):
                return None
            position = position + number
        fields[tag] = _Field(present, number, first, position)
        position = position.copy()
    return fields if bool((position == end).all()) else None


def _varints(data: npt.NDArray[np.uint8], position: Ints, rows: Ints) -> Ints | None:
    """Read a number at the place of each of some rows, and move the place; None: a number is too long."""
    value = np.zeros(len(rows), np.uint64)
    left = np.arange(len(rows))
    for byte in range(_VARINT):
        places = rows[left]
        read = data[position[places]]
        value[left] |= (read & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * byte)
        position[places] += 1
        if byte == _VARINT - 1 and bool((read > 1).any()):
            return None
        left = left[read >= 0x80]
        if not len(left):
            break
    return value.view(np.int64)
