"""Ledger metadata, one record at a time (`ledger_record`, which has the formats) or columns of many.

The record codec is what is right; the columns are what is quick. A property test says that they agree.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recovery.codecs import ledger_columns
from recovery.codecs.entry import master_key
from recovery.codecs.ledger_record import (
    CLOSED_LINE,
    DIGEST_NUMBERS,
    MAGIC,
    RECOVERING,
    STATE_NUMBERS,
    RecordReading,
    decode,
    encode,
    problems,
    read,
)
from recovery.codecs.packing import PackedField, constant, pack, varint_sizes, varints
from recovery.errors import FormatError
from recovery.model import tables
from recovery.model.ids import is_bookie_id
from recovery.model.metadata import NO_ENTRY, WRITTEN_FORMAT, Digest, LedgerState

__all__ = ["MAGIC", "RecordReading", "decode", "decode_columns", "encode", "encode_columns", "problems", "read"]

_SLICE: Final = 65_536
"""Rows encoded at a time: their pieces fit into the processor's cache."""
_NONE: Final = b""


def encode_columns(table: pa.Table) -> pa.Array:
    """Return the bytes of one record a row, as `encode` returns them.

    A row without a password becomes format 1, every other one `WRITTEN_FORMAT` with the creator token 0, as every
    record has it that was ever updated.

    Args:
        table: ensemble_size, write_quorum, ack_quorum, state; last_entry and length (read where closed); segments (list
            of struct with first and members; more fields are passed over); digest and password (both or neither); ctime
            (null: not stored); custom (list of struct with key and value, or null).

    Returns:
        Binary, in the order of the rows, less than 2 GiB in all.

    Raises:
        ValueError: a null where none is named above, no segment, or a state or digest type that is not one.
    """
    parts = [pa.array([], pa.binary())]
    for start in range(0, table.num_rows, _SLICE):
        rows = table.slice(start, _SLICE)
        lacks = pc.is_null(rows["password"]).to_numpy()
        old, new = np.flatnonzero(lacks), np.flatnonzero(~lacks)
        if len(old) and len(new):
            combined = pa.concat_arrays([_encode_lines(rows.take(old)), _encode_messages(rows.take(new))])
            parts.append(combined.take(pa.array(np.argsort(np.concatenate((old, new))))))
        else:
            parts.append(_encode_lines(rows) if len(old) else _encode_messages(rows))
    return pa.concat_arrays(parts)


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """The columns that both formats need; one number a row, except in `first`, `sizes` and `members`.

    Attributes:
        state: number of the state.
        last_entry, length: as they are written.
        segments: segments of each row.
        first, sizes: first entry and members of each segment.
        members: of all segments in their order.
    """

    ensemble_size: pa.Array
    write_quorum: pa.Array
    ack_quorum: pa.Array
    state: npt.NDArray[np.int64]
    last_entry: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    segments: npt.NDArray[np.int64]
    first: pa.Array
    sizes: npt.NDArray[np.int64]
    members: pa.Array


def _columns(rows: pa.Table) -> _Columns:
    state = _numbers(rows["state"], STATE_NUMBERS, "a state")
    closed = state == STATE_NUMBERS[LedgerState.CLOSED]
    ends = []
    for name, other in (("last_entry", NO_ENTRY), ("length", 0)):
        column = rows[name].cast(pa.int64())
        ends.append(_present(pc.if_else(pa.array(closed), column, other), f"{name} of a closed ledger").to_numpy())
    segments = _present(rows["segments"], "segments")
    counts = pc.list_value_length(segments).to_numpy().astype(np.int64)
    if not counts.all():
        raise ValueError("a record without a segment")
    flat = pc.list_flatten(segments)
    members = _present(pc.struct_field(flat, "members"), "members")
    ensemble_size, write_quorum, ack_quorum = (
        _present(rows[name], name).cast(pa.int64()) for name in ("ensemble_size", "write_quorum", "ack_quorum")
    )
    return _Columns(
        ensemble_size,
        write_quorum,
        ack_quorum,
        state,
        ends[0],
        ends[1],
        counts,
        _present(pc.struct_field(flat, "first"), "first"),
        pc.list_value_length(members).to_numpy().astype(np.int64),
        _present(pc.list_flatten(members), "a member").cast(pa.string()),
    )


def _present(column: pa.Array | pa.ChunkedArray, noun: str) -> pa.Array:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if array.null_count:
        raise ValueError(f"null: {noun}")
    return array


def _numbers(
    names: pa.ChunkedArray, numbers: Mapping[LedgerState, int] | Mapping[Digest, int], noun: str
) -> npt.NDArray[np.int64]:
    indexes = pc.index_in(names.cast(pa.string()), value_set=pa.array(list(numbers), pa.string()))
    chosen: npt.NDArray[np.int64] = np.array(list(numbers.values()), np.int64)[
        _present(indexes, f"not {noun}").to_numpy()
    ]
    return chosen


def _sizes(column: pa.Array) -> npt.NDArray[np.int64]:
    lengths: npt.NDArray[np.int64] = pc.binary_length(column).to_numpy().astype(np.int64)
    return lengths


def _runs_joined(pieces: pa.Array, counts: npt.NDArray[np.int64]) -> pa.Array:
    """Join the first counts[0] pieces, the next counts[1], …: the same bytes, with fewer offsets."""
    _, offsets, data = pieces.buffers()
    whole = np.frombuffer(offsets, np.int32)[pieces.offset : pieces.offset + len(pieces) + 1]
    kept = whole[np.concatenate(([0], np.cumsum(counts)))]
    return pa.Array.from_buffers(pieces.type, len(counts), [None, pa.py_buffer(kept), data or pa.py_buffer(_NONE)])


def _each_once(column: pa.Array, change: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Change a column of repeated values, one value at a time."""
    coded = column.dictionary_encode()
    return change(coded.dictionary).take(coded.indices)


def _encode_lines(rows: pa.Table) -> pa.Array:
    columns = _columns(rows)
    text = pa.string()
    members = _each_once(columns.members, lambda names: pc.binary_join_element_wise("\t", names, ""))
    lines = pc.binary_join_element_wise(columns.first.cast(text), _runs_joined(members, columns.sizes), "\n", "")
    ends = pc.binary_join_element_wise(pa.array(columns.last_entry).cast(text), f"\t{CLOSED_LINE}", "")
    ends = pc.if_else(pa.array(columns.state == STATE_NUMBERS[LedgerState.OPEN]), "", ends)
    recovering = pa.array(columns.state == STATE_NUMBERS[LedgerState.IN_RECOVERY])
    return pc.binary_join_element_wise(
        MAGIC.decode() + "1\n",
        columns.write_quorum.cast(text),
        "\n",
        columns.ensemble_size.cast(text),
        "\n",
        pa.array(columns.length).cast(text),
        "\n",
        _runs_joined(lines, columns.segments),
        pc.if_else(recovering, f"{RECOVERING}\t{CLOSED_LINE}", ends),
        "",
    ).cast(pa.binary())


def _encode_messages(rows: pa.Table) -> pa.Array:
    count = rows.num_rows
    columns = _columns(rows)
    password = rows["password"].combine_chunks()
    digest = _numbers(rows["digest"], DIGEST_NUMBERS, "a digest type")
    head = pack(
        count,
        constant(b"\x08"),
        varints(columns.write_quorum.to_numpy()),
        constant(b"\x10"),
        varints(columns.ensemble_size.to_numpy()),
        constant(b"\x18"),
        varints(columns.length),
        constant(b"\x20"),
        varints(columns.last_entry),
        constant(b"\x28"),
        varints(columns.state),
    )
    secret = pack(count, constant(b"\x38"), varints(digest), constant(b"\x42"), varints(_sizes(password)))
    ctime = rows["ctime"].combine_chunks()
    stored = ctime.is_valid().to_numpy(zero_copy_only=False)
    times = ctime.fill_null(0).to_numpy()
    tail = pack(
        count,
        constant(b"\x48"),
        varints(columns.ack_quorum.to_numpy()),
        PackedField(np.full((count, 1), 0x50, np.uint8), stored.astype(np.int64)),
        PackedField(varints(times).matrix, np.where(stored, varint_sizes(times), 0)),
    )
    parts = [head, _encode_segments(columns), secret, password, tail, *_encode_custom(rows["custom"])]
    token = b"\x60\x00"
    length = sum((_sizes(part) for part in parts), np.full(count, len(token), np.int64))
    start = pack(count, constant(MAGIC + b"%d\n" % WRITTEN_FORMAT), varints(length))
    return pc.binary_join_element_wise(start, *parts, token, _NONE)


def _encode_segments(columns: _Columns) -> pa.Array:
    def add_tags(names: pa.Array) -> pa.Array:
        raw = names.cast(pa.binary())
        return pc.binary_join_element_wise(pack(len(raw), constant(b"\x0a"), varints(_sizes(raw))), raw, _NONE)

    members = _runs_joined(_each_once(columns.members, add_tags), columns.sizes)
    count = len(members)
    end = pack(count, constant(b"\x10"), varints(columns.first.to_numpy()))
    start = pack(count, constant(b"\x32"), varints(_sizes(members) + _sizes(end)))
    return _runs_joined(pc.binary_join_element_wise(start, members, end, _NONE), columns.segments)


def _encode_custom(column: pa.ChunkedArray) -> list[pa.Array]:
    lists = column.combine_chunks()
    counts = pc.list_value_length(lists).fill_null(0).to_numpy().astype(np.int64)
    if not counts.any():
        return []
    entries = pc.list_flatten(lists)
    count = len(entries)
    key = _present(pc.struct_field(entries, "key"), "key").cast(pa.binary())
    value = _present(pc.struct_field(entries, "value"), "value").cast(pa.binary())
    key_start = pack(count, constant(b"\x0a"), varints(_sizes(key)))
    value_start = pack(count, constant(b"\x12"), varints(_sizes(value)))
    length = sum(map(_sizes, (key_start, key, value_start, value)), np.zeros(count, np.int64))
    start = pack(count, constant(b"\x5a"), varints(length))
    return [_runs_joined(pc.binary_join_element_wise(start, key_start, key, value_start, value, _NONE), counts)]


_PARSED: Final = pa.schema(list(tables.CATALOG_LEDGERS)[tables.CATALOG_LEDGERS.get_field_index("error") :])
_PLAIN: Final = tuple(field.name for field in tables.METADATA_FIELDS)
_MEMBERS: Final = tables.SEGMENTS.value_type.field("members")


@cache
def _list_names(kind: type[LedgerState] | type[Digest]) -> pa.Array:
    """Return the names of states or of digests at their numbers; made once, and not where this module is loaded."""
    numbers: Mapping[LedgerState, int] | Mapping[Digest, int] = STATE_NUMBERS if kind is LedgerState else DIGEST_NUMBERS
    return pa.array([None, *(str(name) for name, _ in sorted(numbers.items(), key=lambda item: item[1]))])


def decode_columns(raws: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return the columns of CATALOG_LEDGERS from ``error`` on for each record.

    A record that cannot be read gives its error and nulls. `password_hash` is the SHA-256 of the master key.

    Args:
        raws: binary, one record a row; null is an error like any other.
    """
    whole = raws.combine_chunks() if isinstance(raws, pa.ChunkedArray) else raws
    if whole.type != pa.binary():
        whole = whole.cast(pa.binary())
    good, quick = _decode_messages(ledger_columns.read(pc.fill_null(whole, _NONE)))
    rest = np.flatnonzero(~good)
    if not len(rest):
        return quick
    combined = pa.concat_tables([quick, _decode_each(whole.take(pa.array(rest)))])
    return combined.take(pa.array(np.argsort(np.concatenate((np.flatnonzero(good), rest)))))


def _decode_messages(messages: ledger_columns.Read) -> tuple[npt.NDArray[np.bool_], pa.Table]:
    """Return which records are of the usual form, and their columns."""
    good = messages.good.copy()
    # Each name once: which bookies there are is soon said.
    names = messages.members.texts(messages.data, pa.binary()).dictionary_encode()
    known = np.array([is_bookie_id(name.decode(errors="replace")) for name in names.dictionary.to_pylist()], np.bool_)
    wrong = ~known[names.indices.to_numpy()] if len(known) else np.zeros(0, np.bool_)
    good[messages.members.row[wrong]] = False
    keys = messages.keys.texts(messages.data, pa.binary()).dictionary_encode()
    plain = np.array([name.isascii() for name in keys.dictionary.to_pylist()], np.bool_)
    odd = ~plain[keys.indices.to_numpy()] if len(plain) else np.zeros(0, np.bool_)
    good[messages.keys.row[odd]] = False
    new_row = np.ones(len(messages.segment_row), np.bool_)
    new_row[1:] = messages.segment_row[1:] != messages.segment_row[:-1]
    starts = np.flatnonzero(new_row)
    place = np.arange(len(messages.segment_row)) - np.repeat(
        starts, np.diff(np.append(starts, len(messages.segment_row)))
    )
    limit = int(place.max(initial=0)) + 1
    of_segment = np.searchsorted(
        messages.segment_row * limit + place, messages.members.row * limit + messages.members.group
    )
    counts = np.bincount(of_segment, minlength=len(messages.segment_row))
    good[messages.segment_row[counts != messages.numbers["ensemble_size"][messages.segment_row]]] = False
    rows = np.flatnonzero(good)
    new = np.cumsum(good) - 1
    numbers = {name: column[rows] for name, column in messages.numbers.items()}
    closed = numbers["state"] == STATE_NUMBERS[LedgerState.CLOSED]
    segments = good[messages.segment_row]
    members = messages.members.select(good)
    lists = pa.StructArray.from_arrays(
        [
            pa.array(messages.segment_first[segments]),
            _lists(_ends(counts[segments]), members.texts(messages.data, pa.string()), _MEMBERS.type),
        ],
        fields=list(tables.SEGMENTS.value_type),
    )
    entries = messages.keys.select(good)
    custom = pa.StructArray.from_arrays(
        [entries.texts(messages.data, pa.string()), messages.values.select(good).texts(messages.data, pa.binary())],
        fields=list(tables.CUSTOM.value_type),
    )
    passwords = messages.password.select(good).texts(messages.data, pa.binary()).dictionary_encode()
    hashes = pa.array([_key_hash(password) for password in passwords.dictionary.to_pylist()], pa.binary())
    columns: dict[str, pa.Array] = {
        "error": pa.nulls(len(rows), pa.string()),
        "format": pa.array(np.full(len(rows), ledger_columns.FORMAT, np.int8)),
        "state": _list_names(LedgerState).take(pa.array(numbers["state"])),
        "digest": _list_names(Digest).take(pa.array(numbers["digest"])),
        "last_entry": pa.array(numbers["last_entry"], mask=~closed),
        "length": pa.array(numbers["length"], mask=~closed),
        "ctime": pa.array(numbers["ctime"], mask=~messages.has_ctime[rows]),
        "password_hash": hashes.take(passwords.indices),
        "segments": _lists(_ends(_per_row(new[messages.segment_row[segments]], len(rows))), lists, tables.SEGMENTS),
        "custom": _lists(_ends(_per_row(new[entries.row], len(rows))), custom, tables.CUSTOM),
        **{name: pa.array(numbers[name].astype(np.int32)) for name in ("ensemble_size", "write_quorum", "ack_quorum")},
    }
    return good, pa.table([columns[name] for name in _PARSED.names], schema=_PARSED)


def _per_row(row: npt.NDArray[np.int64], rows: int) -> npt.NDArray[np.int64]:
    return np.bincount(row, minlength=rows)


def _ends(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(counts)])


def _decode_each(raws: pa.Array) -> pa.Table:
    """Return the same columns by the record codec, one record at a time."""
    errors: list[str | None] = []
    values: dict[str, list[object]] = {name: [] for name in _PLAIN}
    hashes: list[bytes | None] = []
    firsts: list[int] = []
    members: list[str] = []
    member_ends = [0]
    segment_ends = [0]
    keys: list[str] = []
    entries: list[bytes] = []
    custom_ends = [0]
    without_custom: list[bool] = []
    for raw in raws.to_pylist():
        record, error = None, "absent"
        if raw is not None:
            try:
                record = decode(raw)
            except FormatError as refusal:
                error = f"{refusal.reason}: {refusal.detail}"
        errors.append(None if record else error)
        for name, column in values.items():
            column.append(getattr(record, name, None))
        hashes.append(None if record is None or record.password is None else _key_hash(record.password))
        if record:
            for segment in record.segments:
                firsts.append(segment.first)
                members += segment.members
                member_ends.append(len(members))
            for key, value in record.custom:
                keys.append(key)
                entries.append(value)
        segment_ends.append(len(firsts))
        custom_ends.append(len(keys))
        without_custom.append(record is None or record.format == 1)
    of_segments = pa.StructArray.from_arrays(
        [pa.array(firsts, pa.int64()), _lists(member_ends, pa.array(members, pa.string()), _MEMBERS.type)],
        fields=list(tables.SEGMENTS.value_type),
    )
    of_custom = pa.StructArray.from_arrays(
        [pa.array(keys, pa.string()), pa.array(entries, pa.binary())], fields=list(tables.CUSTOM.value_type)
    )
    failed = [error is not None for error in errors]
    plain = [pa.array(column, _PARSED.field(name).type) for name, column in values.items()]
    return pa.Table.from_arrays(
        [
            pa.array(errors, pa.string()),
            *plain,
            pa.array(hashes, pa.binary()),
            _lists(segment_ends, of_segments, tables.SEGMENTS, failed),
            _lists(custom_ends, of_custom, tables.CUSTOM, without_custom),
        ],
        schema=_PARSED,
    )


def _lists(
    ends: list[int] | npt.NDArray[np.int64], values: pa.Array, kind: pa.DataType, null: list[bool] | None = None
) -> pa.Array:
    mask = None if null is None else pa.array(null, pa.bool_())
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values, type=kind, mask=mask)


@lru_cache(maxsize=1024)
def _key_hash(password: bytes) -> bytes:
    return hashlib.sha256(master_key(password)).digest()
