"""What each byte of a bookie's file is, from its first to its last.

A map names the stretches that a format accounts for, in file order. What lies between them, or behind the last one, is
not explained. Where a bookie was killed, its files may end inside a record: the map says so, and that is explained.

    file         regions
    entry log    header; records: entries, ledgers maps, padding; end: reserved space, a record that was not finished
    journal      header; records: entries, master keys, fences, explicit LACs, padding; end: the same
    index file   header; slots: places, empty ones
    small files  themselves

Source: docs/formats/bookie-storage.md, and the codecs of each format.
"""

import re
import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np

from recovery.codecs import cookie, entry_log, index_file, journal
from recovery.codecs.framing import SIZE_FIELD, Entries, zeros_end
from recovery.errors import Damage, FormatError, Reason

_SLOTS: Final = 1 << 20
"""Slots of an index that are looked at at a time."""
_LOG_FIELDS: Final = 20
_JOURNAL_FIELDS: Final = 8
_INDEX_FIELDS: Final = 12
_MARK: Final = 16
_I32: Final = 4
_PADDING: Final = struct.pack(">i", -256)
_PADDING_FRONT: Final = 8
_COOKIE_LARGEST: Final = 1 << 20
"""Far more than the names of all folders take."""
_LAST_ID: Final = re.compile(rb"[0-9a-fA-F]{1,8}\n?")
_STATUS: Final = re.compile(rb"[0-9]+,(READ_WRITE|READ_ONLY),[0-9]+(,(true|false))?\n?")
_OLD_LAYOUT: Final = re.compile(rb"[12]\r?\n?")
_COOKIE_LINE: Final = re.compile(rb"(bookieHost|journalDir|ledgerDirs|instanceId|indexDirs): \"[^\r\n]*\"\r?\n?")


class ByteStretch(NamedTuple):
    """A stretch of a file, and what it is.

    Attributes:
        offset: of its first byte.
        length: in bytes.
        region: what it belongs to.
        content: what it is, in the plural.
        items: how many of these there are; 0: that is not a number of things.
        explained: False: what it holds is not what the format says.
    """

    offset: int
    length: int
    region: str
    content: str
    items: int = 0
    explained: bool = True


Between = Callable[[memoryview, int, int], Iterator[tuple[int, int, str]]]


def map_entry_log(log: memoryview) -> Iterator[ByteStretch]:
    """Map an entry log of either logger, finished, active, or left by a compaction."""
    rotated = False
    try:
        rotated = entry_log.decode_header(log[: entry_log.HEADER_SIZE]).map_offset > 0
        yield ByteStretch(0, _LOG_FIELDS, "header", "fields")
    except FormatError as error:
        if zeros_end(log, 0) == len(log):
            yield ByteStretch(0, len(log), "end", "zeros, never written")
            return
        if error.reason in (Reason.EMPTY, Reason.TRUNCATED):
            yield from _map_cut_front(log, entry_log.encode_header(entry_log.LogHeader(1, 0, 0)))
            return
    yield from _map_zeros(log, _LOG_FIELDS, entry_log.HEADER_SIZE, "header")
    end = min(entry_log.HEADER_SIZE, len(log))
    for part in entry_log.scan_columns(log):
        if isinstance(part, Damage):
            yield from _map_specials(entry_log.between, log, end, part.offset)
            yield _map_damage(part, len(log), may_end=not rotated)
            end = part.offset + part.length if part.length else len(log)
        else:
            for stretch in _map_entries(part):
                yield from _map_specials(entry_log.between, log, end, stretch.offset)
                yield stretch
                end = stretch.offset + stretch.length
    yield from _map_specials(entry_log.between, log, end, len(log))


def map_journal(data: memoryview) -> Iterator[ByteStretch]:
    """Map a journal of any version."""
    try:
        _, end = journal.header_of(data)
    except FormatError:
        return
    if end:
        yield ByteStretch(0, _JOURNAL_FIELDS, "header", "fields")
        yield from _map_zeros(data, _JOURNAL_FIELDS, end, "header")
    end = min(end, len(data))
    for part in journal.scan_columns(data):
        stretches = _map_entries(part) if isinstance(part, Entries) else [_map_other(data, part)]
        for stretch in stretches:
            yield from _map_specials(journal.between, data, end, stretch.offset)
            yield stretch
            end = stretch.offset + stretch.length
    yield from _map_specials(journal.between, data, end, len(data))


def map_index(data: memoryview) -> Iterator[ByteStretch]:
    """Map an index file of either version."""
    try:
        header = index_file.decode_header(data[: index_file.HEADER_SIZE])
        key, lac = len(header.master_key), len(header.explicit_lac or b"")
        yield ByteStretch(0, _INDEX_FIELDS, "header", "fields")
        yield ByteStretch(_INDEX_FIELDS, key, "header", "master key")
        end = _INDEX_FIELDS + key
        if end < len(data):
            known = not any(data[end : end + _I32 - 1]) and data[end + _I32 - 1] <= 1
            yield ByteStretch(end, _I32, "header", "state", explained=known)
            end += _I32
        if header.version:
            yield ByteStretch(end, _I32 + lac, "header", "explicit LAC")
            end += _I32 + lac
        yield from _map_zeros(data, end, index_file.HEADER_SIZE, "header")
    except FormatError:
        pass
    size = len(data)
    for low in range(index_file.HEADER_SIZE, size - index_file.SLOT + 1, _SLOTS * index_file.SLOT):
        body = data[low : min(low + _SLOTS * index_file.SLOT, size)]
        yield from _map_slots(low, index_file.slots(body))
    torn = max(size - index_file.HEADER_SIZE, 0) % index_file.SLOT
    if torn:
        yield ByteStretch(size - torn, torn, "slots", "a slot that the end cuts")


def _map_slots(low: int, slots: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Iterator[ByteStretch]:
    """Group slots by what they are; a place that no log has is not explained."""
    if not slots.any():  # a hole of a sparse file, mostly
        yield ByteStretch(low, len(slots) * index_file.SLOT, "slots", "empty", len(slots))
        return
    log, position = slots >> 32, slots & 0xFFFFFFFF
    right = (log >= 0) & (position >= entry_log.HEADER_SIZE + SIZE_FIELD) & (position <= entry_log.MAX_LOG_ID)
    kind = np.where(slots == 0, 0, np.where(right, 1, 2))
    edges = np.flatnonzero(np.diff(kind)) + 1
    for first, last in zip([0, *edges.tolist()], [*edges.tolist(), len(slots)], strict=True):
        if last == first:
            continue
        content = ("empty", "places", "places in no log")[kind[first]]
        begin, length = low + first * index_file.SLOT, (last - first) * index_file.SLOT
        yield ByteStretch(begin, length, "slots", content, last - first, explained=bool(kind[first] < 2))


def map_last_mark(data: memoryview) -> Iterator[ByteStretch]:
    """Map a replay mark."""
    if len(data) >= _MARK:
        yield ByteStretch(0, _MARK, "mark", "fields")


def map_last_id(data: memoryview) -> Iterator[ByteStretch]:
    """Map the newest log id."""
    if _LAST_ID.fullmatch(data):
        yield ByteStretch(0, len(data), "id", "text")


def map_status(data: memoryview) -> Iterator[ByteStretch]:
    """Map a bookie's status."""
    if _STATUS.fullmatch(data):
        yield ByteStretch(0, len(data), "status", "text")


def map_dirty(_data: memoryview) -> Iterator[ByteStretch]:
    """Map a mark that has no bytes."""
    yield from ()


def map_cookie(data: memoryview) -> Iterator[ByteStretch]:
    """Map a cookie: the line of each field, of any layout."""
    raw = bytes(data[: _COOKIE_LARGEST + 1])
    if len(raw) > _COOKIE_LARGEST:
        return
    if _OLD_LAYOUT.fullmatch(raw):
        yield ByteStretch(0, len(raw), "cookie", "layout version")
        return
    try:
        decoded = cookie.decode(raw)
    except FormatError:
        return
    if decoded.layout_version == cookie.RAW_LAYOUT:
        # Three lines, and nothing behind the end of the last.
        end = len(b"\n".join(raw.split(b"\n")[:4])) + 1
        yield ByteStretch(0, min(end, len(raw)), "cookie", "lines", 4)
        return
    position = 0
    for line in raw.splitlines(keepends=True):
        if position == 0 or _COOKIE_LINE.fullmatch(line):
            yield ByteStretch(position, len(line), "cookie", "lines", 1)
        position += len(line)


def _map_cut_front(data: memoryview, whole: bytes) -> Iterator[ByteStretch]:
    """Map a file that ends inside its header."""
    size = len(data)
    if size and bytes(data[:_JOURNAL_FIELDS]) == whole[: min(size, _JOURNAL_FIELDS)]:
        yield ByteStretch(0, size, "header", "fields that the end cuts")


def _map_zeros(data: memoryview, start: int, stop: int, region: str) -> Iterator[ByteStretch]:
    end = min(zeros_end(data[:stop], start), stop) if start < len(data) else start
    if end > start:
        yield ByteStretch(start, end - start, region, "zeros")


def _map_entries(part: Entries) -> Iterator[ByteStretch]:
    """Yield entries that follow each other as one stretch."""
    if not len(part.position):
        return
    begin, end = part.position - SIZE_FIELD, part.position + part.size
    edges = np.flatnonzero(begin[1:] != end[:-1]) + 1
    for first, last in zip([0, *edges.tolist()], [*edges.tolist(), len(begin)], strict=True):
        yield ByteStretch(int(begin[first]), int(end[last - 1] - begin[first]), "records", "entries", last - first)


def _map_specials(between: Between, data: memoryview, start: int, stop: int) -> Iterator[ByteStretch]:
    for begin, end, name in between(data, start, stop):
        region = {"reserved space": "end", "filler": "header"}.get(name, "records")
        yield ByteStretch(begin, end - begin, region, name, int(name.endswith("maps")))


def _map_other(data: memoryview, part: journal.MetaRecord | Damage) -> ByteStretch:
    if isinstance(part, Damage):
        front = part.offset + _PADDING_FRONT
        size = int.from_bytes(data[front - _I32 : front])
        # Padding that is all there, and not all zeros, is not a record that the end cuts.
        whole = bytes(data[part.offset : front - _I32]) == _PADDING and front + size <= len(data)
        return _map_damage(part, len(data), may_end=not whole)
    begin = part.at - SIZE_FIELD
    length = SIZE_FIELD + int.from_bytes(data[begin : part.at])
    match part:
        case journal.MasterKeyRecord():
            content = "master keys"
        case journal.FenceRecord():
            content = "fences"
        case journal.LacRecordAt():
            content = "explicit LACs"
        case _:
            return ByteStretch(begin, length, "records", f"special records {part.entry:#x}", 1, explained=False)
    return ByteStretch(begin, length, "records", content, 1)


def _map_damage(part: Damage, size: int, *, may_end: bool) -> ByteStretch:
    """What a crash leaves at the end is explained by that; the journal, or nobody, has what was not finished."""
    length = part.length or size - part.offset
    if may_end and part.offset + length >= size and part.reason in (Reason.TRUNCATED, Reason.ZEROS):
        content = "zeros, never written" if part.reason is Reason.ZEROS else "a record that was not finished"
        return ByteStretch(part.offset, length, "end", content)
    detail = f" ({part.detail})" if part.detail else ""
    return ByteStretch(part.offset, length, "records", f"{part.reason}{detail}", explained=False)
