"""Entry log: the append-only file in which a bookie keeps entries of many ledgers (``<hex id>.log``).

Big-endian. Offsets and sizes in bytes.

    at    size  field
    0     4     magic, b"BKLO"
    4     4     header version, int32: 0 or 1, the records are the same; 2: some are of ledgers of scopes
    8     8     offset of the first ledgers map, int64; 0: none written
    16    4     ledgers in the map, int32
    20    1004  zero
    1024        records: int32 n, then n bytes of an entry; n is at least 16

    ledgers map, a record of at most 10,000 ledgers; several may follow each other
    0     4     n = 20 + 16 c, int32
    4     8     -1, int64
    12    8     -2, int64
    20    4     c, int32
    24    16 c  int64 ledger id, int64 bytes of its records in this log, size fields included
          24 c  of header version 2, where n = 20 + 24 c: int64 scope, ledger id, bytes

Offset and number of the map hold anything in a log that was not rotated: BookKeeper before 4.16.7, 4.17.0 and 4.17.1 do
not clear the header's memory. So a map counts only where one is.

A location is ``log id << 32 | position``; the position is that of the entry, behind the size field.

A log of the direct I/O logger has a header of 4096 bytes (a filler record of ledger -1, entry 0 leads from 1024 to
4096), fills the rest of every block with 0xf0 up to a multiple of 4096, and ends in reserved zeros. What is at 1024
tells the two loggers apart. The default logger's file ends where its last record ends, or inside it after a crash; one
of no bytes is normal (the next log is made ahead of time).

Source: apache/bookkeeper 9590a97, bookie/DefaultEntryLogger, bookie/storage/directentrylogger, pull request 4607;
docs/formats/bookie-storage.md. No released BookKeeper writes header version 2.
"""

import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from recovery.codecs import entry
from recovery.codecs.framing import (
    RECORD,
    SIZE_FIELD,
    Entries,
    EntryRun,
    Key,
    Met,
    Walk,
    gap,
    is_entry,
    key_of,
    overrun,
    take_unusual,
    without_cut,
    zeros_end,
)
from recovery.errors import Damage, FormatError, Reason

HEADER_SIZE: Final = 1024
MAX_LOG_ID: Final = (1 << 31) - 1
_MAGIC: Final = b"BKLO"
_HEADER: Final = struct.Struct(">4siqi")
_SIZE: Final = struct.Struct(">i")
_MAP: Final = struct.Struct(">iqqi")
_MAP_IDS: Final = struct.pack(">qq", -1, -2)
MAP_FIELDS: Final = 8
_MAP_FIELDS_SIZE: Final = 12
_MAP_ENTRY: Final = 16
_SCOPED_MAP_ENTRY: Final = 24
SCOPED_VERSION: Final = 2
_ID: Final = 8
_MAP_LEDGERS: Final = 10_000
_NO_LEDGER: Final = -1
_MAP_ID: Final = -2
_BLOCK: Final = 4096
_FILLER: Final = _BLOCK - HEADER_SIZE - SIZE_FIELD
_SMALLEST_RECORD: Final = SIZE_FIELD + 16
_PADDING: Final = b"\xf0"
_NAME: Final = re.compile(r"([0-9a-fA-F]{1,8})\.log")
_LOCATION_LOW: Final = (1 << 32) - 1
UNCLEARED_HEADERS: Final = (
    "BookKeeper before 4.16.7, 4.17.0 and 4.17.1 leave such headers in logs that they did not finish; these bookies "
    "may have deleted entry logs that still had entries"
)
LARGEST: Final = (1 << 32) + (1 << 31)
"""Bytes of a log: a location has 32 bits for the position, an entry's size has 31. Bookies begin another at 1 GiB."""


@dataclass(frozen=True, slots=True)
class LogHeader:
    """The fields of a log's header.

    Attributes:
        version: 0, 1 or 2.
        map_offset: where the ledgers map begins; 0 if none was written.
        map_ledgers: how many ledgers it lists.
    """

    version: int
    map_offset: int
    map_ledgers: int


@dataclass(frozen=True, slots=True)
class EntryAt:
    """An entry in a log.

    Attributes:
        ledger: not negative in scope 0.
        entry: not negative.
        position: of the entry's first byte, as locations point to it.
        size: of the entry in bytes.
        scope: of the ledger.
    """

    ledger: int
    entry: int
    position: int
    size: int
    scope: int = 0


def decode_header(head: bytes | memoryview) -> LogHeader:
    """Return the header of a log.

    A log with a refused header can still be scanned: records do not depend on the header.

    Args:
        head: the first bytes of the log; 20 are read.

    Raises:
        FormatError: no bytes, too few, another magic, or a version that is not known.
    """
    if not head:
        raise FormatError(Reason.EMPTY, "entry log", 0)
    if len(head) < _HEADER.size:
        raise FormatError(Reason.TRUNCATED, "entry log", len(head), "the header is cut")
    magic, version, map_offset, map_ledgers = _HEADER.unpack_from(head)
    if magic != _MAGIC:
        raise FormatError(Reason.BAD_MAGIC, "entry log", 0)
    if version not in (0, 1, SCOPED_VERSION):
        raise FormatError(Reason.BAD_VERSION, "entry log", 4, f"header version {version}")
    return LogHeader(version, map_offset, map_ledgers)


def encode_header(header: LogHeader) -> bytes:
    """Return the 1024 bytes of a header."""
    return _HEADER.pack(_MAGIC, header.version, header.map_offset, header.map_ledgers).ljust(HEADER_SIZE, b"\0")


def location(log_id: int, position: int) -> int:
    """Return the location of an entry."""
    return log_id << 32 | position


def split_location(value: int) -> tuple[int, int]:
    """Return log id and position; a log id below 0 is one of no log."""
    return value >> 32, value & _LOCATION_LOW


def log_id_of(name: str) -> int | None:
    """Return the id of a log from its file name, or None if the name is not one of an entry log."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    log_id = int(match[1], 16)
    return log_id if log_id <= MAX_LOG_ID else None


def encode(records: Iterable[bytes], *, with_map: bool) -> bytes:
    """Return a log of the default logger; of header version 2 if a record is of a ledger of a scope.

    Args:
        records: the bytes of entries.
        with_map: end with a ledgers map, as a log does that was rotated.
    """
    parts = [b""]
    sizes: dict[tuple[int, int], int] = {}
    position = HEADER_SIZE
    for record in records:
        parts += _SIZE.pack(len(record)), record
        position += SIZE_FIELD + len(record)
        ids = entry.ids_of(record)
        sizes[ids] = sizes.get(ids, 0) + SIZE_FIELD + len(record)
    scoped = any(scope for scope, _ in sizes)
    listed = list(sizes.items()) if with_map else []
    for first in range(0, len(listed), _MAP_LEDGERS):
        batch = listed[first : first + _MAP_LEDGERS]
        rows = [(*ids, size) if scoped else (ids[1], size) for ids, size in batch]
        body = np.array(rows, ">i8").tobytes()
        parts += _MAP.pack(_MAP.size - SIZE_FIELD + len(body), _NO_LEDGER, _MAP_ID, len(batch)), body
    parts[0] = encode_header(LogHeader(SCOPED_VERSION if scoped else 1, position if listed else 0, len(listed)))
    return b"".join(parts)


def read_map(log: bytes | memoryview, header: LogHeader) -> dict[Key, int] | None:
    """Return the bytes of each ledger's records in a log, from its map; None if it has no valid map.

    The map tells what was written, not what is still alive. A log that was rotated before its first record has a place
    for the map, at its end, and no map: nothing is listed.
    """
    position = header.map_offset
    if position == len(log) == HEADER_SIZE and not header.map_ledgers:
        return {}
    if not HEADER_SIZE <= position < len(log):
        return None
    log = memoryview(log)
    widths = _map_widths(header.version)
    sizes: dict[Key, int] = {}
    listed = 0
    while position + SIZE_FIELD <= len(log) and _SIZE.unpack_from(log, position)[0] > 0:
        behind = _map_end(log, position, widths)
        if behind is None:
            return None
        rows = np.frombuffer(log[position + _MAP.size : behind], ">i8").reshape(-1, widths[0] // _ID)
        of_zero = rows[:, :-2].any(axis=1) == 0
        if (rows[of_zero, -2] < 0).any() or (rows[:, -1] < 0).any():
            return None
        ledgers: list[Key] = rows[:, -2].tolist()
        for at_row in np.flatnonzero(~of_zero).tolist():
            ledgers[at_row] = key_of(int(rows[at_row, 0]), int(rows[at_row, 1]))
        sizes.update(zip(ledgers, rows[:, -1].tolist(), strict=True))
        listed += len(rows)
        position = behind
    return sizes if listed == header.map_ledgers == len(sizes) else None


def lists_all(log: bytes | memoryview, header: LogHeader, listed: Mapping[Key, int]) -> bool:
    """Whether a log's map lists the bytes of all records before it; else the log must be read whole.

    They are not where an earlier map is there, which is rare. What the direct I/O logger pads is nowhere counted:
    of its logs only a map that lists nothing is doubted.
    """
    size = sum(listed.values())
    return size > 0 if is_direct(log) else size == header.map_offset - HEADER_SIZE


def find_map_fault(log: bytes | memoryview, header: LogHeader) -> Damage | None:
    """Return the damage of the place and size of the ledgers map in a header; None: they are right, or there is no map.

    Returns:
        BAD_VALUE over these fields: no map was ever there. TRUNCATED at the log's end, with no length: the map may have
        been behind it, for the fields fit a larger log. Then the log lost its end, unless its last record ends there.
    """
    position, listed = header.map_offset, header.map_ledgers
    fields = f"its header names a ledgers map at byte {position}, of {listed} ledgers"
    if (position, listed) == (0, 0) or (position == len(log) == HEADER_SIZE and not listed):
        return None
    if HEADER_SIZE <= position < len(log):
        ids = bytes(log[position + SIZE_FIELD : position + SIZE_FIELD + len(_MAP_IDS)])
        if _MAP_IDS.startswith(ids):  # the end may cut it
            return None
    elif len(log) <= position <= LARGEST and 0 < listed <= (position - HEADER_SIZE) // _SMALLEST_RECORD:
        return Damage(len(log), 0, Reason.TRUNCATED, fields)
    return Damage(MAP_FIELDS, _MAP_FIELDS_SIZE, Reason.BAD_VALUE, fields)


def _map_widths(version: int | None) -> tuple[int, ...]:
    """Return the bytes that a row of a map may have; None: a header that cannot be read."""
    if version is None:
        return _MAP_ENTRY, _SCOPED_MAP_ENTRY
    return (_SCOPED_MAP_ENTRY,) if version == SCOPED_VERSION else (_MAP_ENTRY,)


def scan(log: bytes | memoryview, start: int = HEADER_SIZE, *, known: Iterable[Key] = ()) -> Iterator[EntryAt | Damage]:
    """Yield every entry of a log and every stretch that could not be taken, in file order.

    Ledgers maps, fillers, padding and reserved space are skipped. No content of the bytes raises an error. After damage
    the scan goes on at the next position with a proven record, and the gap is one Damage.

    The place of a Damage tells the end of a log from damage. A crash leaves TRUNCATED (the last record is cut) or ZEROS
    up to the end of the log, and the bookie still has the journal with the same entries. Every other Damage is in the
    middle, or hides records that the scan could not find again.

    Records of scopes are taken from a log of header version 2; where the header cannot be read, only with proof.

    Args:
        log: the whole file.
        start: where to begin; the position of a record.
        known: ledgers that this bookie has. Behind damage, a record without a CRC to confirm it is only taken if its
            ledger is among them, or was met before in this log, or is in the log's map.
    """
    for part in _walk(memoryview(log), start, Met(known)):
        if isinstance(part, Damage):
            yield part
        else:
            yield from map(EntryAt, *(part.lists() if isinstance(part, Entries) else part.columns()))


def scan_columns(
    log: bytes | memoryview, start: int = HEADER_SIZE, *, known: Iterable[Key] = ()
) -> Iterator[Entries | Damage]:
    """Like `scan`, but yield entries as arrays of bounded length."""
    for part in _walk(memoryview(log), start, Met(known)):
        yield part.arrays() if isinstance(part, EntryRun) else part


def _walk(log: memoryview, start: int, known: Met) -> Iterator[EntryRun | Entries | Damage]:
    version = _version(log)
    scoped, sure = version is None or version >= SCOPED_VERSION, version is not None
    widths = _map_widths(version)
    direct = is_direct(log)
    asked = False

    def successor(position: int) -> int | None:
        if direct and zeros_end(log, position) == len(log):
            return len(log)
        return _special_end(log, position, widths, direct=direct) or _entry_end(log, position, scoped=scoped)

    damage: Damage | None
    walk = Walk(log, known, successor, scoped=scoped, sure=sure)
    while True:
        start, settled = walk.go_on(start)
        if settled is not None or start > walk.plain_end:
            yield from settled or ()
            continue
        walk.pause()
        if start >= len(log):
            run, damage = without_cut(log, start, walk.run, scoped=scoped)
            yield run
            if damage is not None:
                yield damage
            return
        behind = _special_end(log, start, widths, direct=direct)
        if behind is not None:
            start = behind
            continue
        if take_unusual(log, start, walk.run, known, successor, scoped=scoped and sure):
            start = walk.run.end()
            continue
        run = walk.run
        known.update(run.keys())
        if not asked:
            known.update(_list_keys(log))
            asked = True
        if (wrong := overrun(log, start, run, known, successor, scoped=scoped)) is not None:
            index, damage = wrong
            run, behind = run.split(index)[0], damage.offset + damage.length
        elif direct and zeros_end(log, start) == len(log):
            damage, behind = None, None
        else:
            damage, behind = gap(log, start, known, successor, scoped=scoped)
            damage = _of_version(log, damage) if scoped and sure else damage
        if behind is None and (damage is None or damage.reason is Reason.ZEROS):
            run, cut = without_cut(log, start, run, scoped=scoped)
            damage = cut or damage
        yield run
        if damage is not None:
            yield damage
        if behind is None:
            return
        walk.run, start = EntryRun.empty(), behind


def between(log: bytes | memoryview, start: int, stop: int) -> Iterator[tuple[int, int, str]]:
    """Yield begin, end and name of each thing from `start` on that is neither entry nor damage.

    It ends at `stop`, or at the first entry or damage.
    """
    log = memoryview(log)
    widths, direct = _map_widths(_version(log)), is_direct(log)
    while start < stop:
        behind = _special_end(log, start, widths, direct=direct)
        name = "padding"
        if behind is None:
            if not direct or zeros_end(log, start) < len(log):
                return
            behind, name = len(log), "reserved space"
        elif direct and start == HEADER_SIZE:
            name = "filler"
            behind = behind if zeros_end(log, start + RECORD.size) >= behind else start + RECORD.size
        elif _map_end(log, start, widths) is not None:
            name = "ledgers maps"
        yield start, behind, name
        start = behind


def is_direct(log: bytes | memoryview) -> bool:
    """Whether a log was begun by the direct I/O logger."""
    return len(log) >= HEADER_SIZE + SIZE_FIELD + 8 and struct.unpack_from(">iq", log, HEADER_SIZE) == (
        _FILLER,
        _NO_LEDGER,
    )


def _version(log: memoryview) -> int | None:
    try:
        return decode_header(log).version
    except FormatError:
        return None


def _of_version(log: memoryview, damage: Damage) -> Damage:
    """Return damage if the first byte of an entry names an unknown version."""
    first = log[damage.offset + SIZE_FIELD] if damage.reason is Reason.BAD_VALUE else 0
    if first < entry.SCOPED or first & entry.VERSION_BITS in (entry.VERSION_2, entry.VERSION_BITS):
        return damage
    return replace(damage, reason=Reason.BAD_VERSION, detail=f"an entry of version {first >> 4 & 7}")


def _list_keys(log: memoryview) -> Iterable[Key]:
    try:
        return read_map(log, decode_header(log)) or ()
    except FormatError:
        return ()


def _map_end(log: memoryview, position: int, widths: tuple[int, ...]) -> int | None:
    if position + _MAP.size > len(log):
        return None
    size, ledger, number, count = _MAP.unpack_from(log, position)
    behind = position + SIZE_FIELD + size
    if (ledger, number) != (_NO_LEDGER, _MAP_ID) or count < 0 or behind > len(log):
        return None
    return behind if any(behind == position + _MAP.size + width * count for width in widths) else None


def _special_end(log: memoryview, position: int, widths: tuple[int, ...], *, direct: bool) -> int | None:
    """Return the position after the map, filler or padding at `position`, or None if there is none."""
    if direct and position == HEADER_SIZE and len(log) >= _BLOCK:
        return _BLOCK
    if direct and position % _BLOCK and position < len(log) and log[position] == _PADDING[0]:
        behind = min(position + -position % _BLOCK, len(log))
        return behind if bytes(log[position:behind]).count(_PADDING) == behind - position else None
    return _map_end(log, position, widths)


def _entry_end(log: memoryview, position: int, *, scoped: bool) -> int | None:
    return (
        position + SIZE_FIELD + _SIZE.unpack_from(log, position)[0] if is_entry(log, position, scoped=scoped) else None
    )
