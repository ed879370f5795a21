"""Journal: the write-ahead log of a bookie (``<hex id>.txn``), and the mark from which a bookie would replay it.

Big-endian. Offsets and sizes in bytes.

    version  header  new
    1        0       records only
    2        8       magic, version
    3        8       master keys
    4        8       fences
    5        512     padding
    6        512     explicit LACs

    at    size  field
    0     4     magic, b"BKLG"; anything else, or fewer than 8 bytes in all: version 1
    4     4     version, int32
    8           zero, up to the header's size
                records: int32 n, then n bytes of an entry, or of a special record:

    entry id   body behind int64 ledger id and int64 entry id; of a scope behind flags, scope, ledger id and entry id
    -0x1000    master key: int32 size, key
    -0x2000    fence: nothing
    -0x8000    explicit LAC: int32 size, record (see `entry`)
    other < 0  not known

    padding, version 5 and 6: int32 -256, int32 p, then p zeros; it ends at a multiple of the alignment (512 by default,
    not stored) behind each batch that was synced

    lastMark: int64 journal id, int64 offset in that journal

Source: apache/bookkeeper 9590a97, bookie/Journal, JournalChannel, LastLogMark, BookieImpl.METAENTRY_ID_*;
docs/formats/bookie-storage.md.
"""

import re
import struct
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from recovery.codecs import entry
from recovery.codecs.framing import (
    IDS,
    RECORD,
    SCOPED_IDS,
    SIZE_FIELD,
    Entries,
    EntryRun,
    Key,
    Met,
    Successor,
    Walk,
    gap,
    ids_of,
    is_entry,
    is_scoped,
    key_of,
    overrun,
    take_unusual,
    without_cut,
    zeros_end,
)
from recovery.errors import Damage, FormatError, Reason
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest

MASTER_KEY_ID: Final = -0x1000
FENCE_ID: Final = -0x2000
LAC_ID: Final = -0x8000
_FORCE_ID: Final = -0x4000
ALIGNMENT: Final = 512
_LEAST_ID: Final = -0x10000
"""The least id of special records, known and unknown ones."""
_MAGIC: Final = b"BKLG"
_BARE: Final = 1
"""The version without a header."""
_HEADERS: Final = {2: 8, 3: 8, 4: 8, 5: 512, 6: 512}
_PADDED: Final = 5
_PADDING: Final = -256
_START: Final = struct.Struct(">4si")
_SIZE: Final = struct.Struct(">i")
_PAD: Final = struct.Struct(">ii")
_IDS: Final = struct.Struct(">qq")
_SCOPED_IDS: Final = struct.Struct(">Bqqq")
_MARK: Final = struct.Struct(">qq")
_NAME: Final = re.compile(r"([0-9a-f]{1,16})\.txn")


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """An entry; its bytes are ``journal[at : at + size]``."""

    at: int
    size: int
    ledger: int
    entry: int
    scope: int = 0


@dataclass(frozen=True, slots=True)
class MasterKeyRecord:
    """The master key of a ledger, repeated before its first entry of each run of the bookie."""

    at: int
    ledger: int
    key: bytes = field(repr=False)
    scope: int = 0


@dataclass(frozen=True, slots=True)
class FenceRecord:
    """The ledger was fenced on this bookie."""

    at: int
    ledger: int
    scope: int = 0


@dataclass(frozen=True, slots=True)
class LacRecordAt:
    """An explicit LAC, as the client sent it: see `entry.decode_lac_record`."""

    at: int
    ledger: int
    raw: bytes
    scope: int = 0


@dataclass(frozen=True, slots=True)
class UnknownRecord:
    """A special record of a kind that is not known."""

    at: int
    ledger: int
    entry: int
    scope: int = 0


MetaRecord = MasterKeyRecord | FenceRecord | LacRecordAt | UnknownRecord
Record = JournalEntry | MetaRecord


@dataclass(frozen=True, slots=True, order=True)
class LastMark:
    """The start of a replay; ordered, because the bookie takes the maximum over its ledger folders."""

    journal_id: int
    offset: int


def header_of(journal: bytes | memoryview) -> tuple[int, int]:
    """Return version and header size.

    Raises:
        FormatError: the magic, with a version that is not known.
    """
    if len(journal) < _START.size or journal[: len(_MAGIC)] != _MAGIC:
        return _BARE, 0
    (version,) = _SIZE.unpack_from(journal, len(_MAGIC))
    if version not in _HEADERS:
        raise FormatError(Reason.BAD_VERSION, "journal", len(_MAGIC), f"version {version}")
    return version, _HEADERS[version]


def scan(journal: bytes | memoryview, *, known: Iterable[Key] = ()) -> Iterator[Record | Damage]:
    """Yield every record of a journal and every stretch that could not be taken, in file order.

    The end of a journal:

    - Reserved zeros up to the end of the file, or the end of the file itself, are its normal end: nothing is yielded.
    - A last record that runs past the end of the file, or is zero from inside its header on, was cut by a crash: one
      Damage TRUNCATED up to the end of the file. Nothing of it was acknowledged.
    - An entry that was cut inside its payload, with reserved zeros after it, looks whole here. So does an entry that is
      only a header. Check the digest of the last entry.

    All other Damage lies before records that were found again (zeros in the middle included), or hides what was not.

    No version of a journal says that it has records of scopes. An entry of one is taken if its CRC is right, if a
    record before it is of its ledger, or, where its digest is no CRC, if several records follow it.

    Args:
        journal: the whole file.
        known: ledgers that this bookie has; see `entry_log.scan`.

    Raises:
        FormatError: as `header_of`.
    """
    for part in _walk(memoryview(journal), Met(known)):
        if isinstance(part, EntryRun | Entries):
            ledger, number, position, size, *scope = part.lists() if isinstance(part, Entries) else part.columns()
            yield from map(JournalEntry, position, size, ledger, number, *scope)
        else:
            yield part


def scan_columns(journal: bytes | memoryview, *, known: Iterable[Key] = ()) -> Iterator[Entries | MetaRecord | Damage]:
    """Like `scan`, but yield entries as arrays of bounded length."""
    for part in _walk(memoryview(journal), Met(known)):
        yield part.arrays() if isinstance(part, EntryRun) else part


def _walk(journal: memoryview, known: Met) -> Iterator[EntryRun | Entries | MetaRecord | Damage]:
    version, start = header_of(journal)
    padded = version >= _PADDED

    def successor(position: int) -> int | None:
        return _successor(journal, position, known, padded=padded)

    behind: int | None
    walk = Walk(journal, known, successor, scoped=True, sure=False)
    while True:
        start, settled = walk.go_on(start)
        if settled is not None or (start > walk.plain_end and not is_scoped(journal, start)):
            yield from settled or ()
            continue  # an entry of scope 0 may follow
        walk.pause()
        if padded and (behind := _find_padding_end(journal, start)) is not None:
            start = behind
            continue
        part: MetaRecord | Damage | None
        part, behind = _meta(journal, start, known, chained=True)
        if part is None and take_unusual(journal, start, walk.run, known, successor):
            start = walk.run.end()
            continue
        run = walk.run
        known.update(run.keys())
        if part is None:
            run, part, behind = _broken(journal, start, run, known, successor)
        elif not isinstance(part, Damage):
            known.add(key_of(part.scope, part.ledger))
        if run.size:
            yield run
        if part is not None:
            yield part
        if behind is None:
            return
        walk.run, start = EntryRun.empty(), behind


def _find_padding_end(journal: memoryview, position: int) -> int | None:
    if position + _PAD.size > len(journal):
        return None
    mark, size = _PAD.unpack_from(journal, position)
    behind: int = position + _PAD.size + size
    if mark != _PADDING or size < 0 or behind > len(journal):
        return None
    return behind if bytes(journal[position + _PAD.size : behind]) == bytes(size) else None


def between(journal: bytes | memoryview, start: int, stop: int) -> Iterator[tuple[int, int, str]]:
    """Yield begin, end and name of each padding, and of the reserved space at the end; as `entry_log.between`."""
    journal = memoryview(journal)
    version, _ = header_of(journal)
    while start < stop:
        behind = _find_padding_end(journal, start) if version >= _PADDED else None
        name = "padding"
        if behind is None:
            if zeros_end(journal, start) < len(journal):
                return
            behind, name = len(journal), "reserved space"
        yield start, behind, name
        start = behind


def _meta(
    journal: memoryview, position: int, known: Container[Key], *, chained: bool
) -> tuple[MetaRecord | Damage | None, int | None]:
    """Return the special record at `position` and the position after it, or None for both."""
    if position + RECORD.size > len(journal):
        return None, None
    size, key, number = ids_of(journal, position, scoped=True)
    scope, ledger = key if isinstance(key, tuple) else (0, key)
    ids = SCOPED_IDS if isinstance(key, tuple) else IDS
    body = position + SIZE_FIELD
    behind = body + size
    if size < ids or behind > len(journal) or not _LEAST_ID <= number < 0:
        return None, None
    if not (_is_scoped_meta(size, scope, number) or key in known) if isinstance(key, tuple) else ledger < 0:
        return None, None
    if number == FENCE_ID and size == ids:
        return FenceRecord(body, ledger, scope), behind
    if number not in (MASTER_KEY_ID, FENCE_ID, LAC_ID):
        # Behind damage, bytes that only look like one would hide the records inside them.
        if not chained and number != _FORCE_ID and key not in known:
            return None, None
        return UnknownRecord(body, ledger, number, scope), behind
    front = ids + _SIZE.size
    inner = int(_SIZE.unpack_from(journal, body + ids)[0]) if size >= front else -1
    if number == FENCE_ID or inner != size - front:
        noun = {MASTER_KEY_ID: "master key", FENCE_ID: "fence", LAC_ID: "explicit LAC"}[number]
        detail = f"ledger {LedgerId(scope, ledger)}: {noun} in a record of {size} bytes"
        return Damage(position, behind - position, Reason.BAD_LENGTH, detail), behind
    raw = bytes(journal[body + front : behind])
    return (MasterKeyRecord if number == MASTER_KEY_ID else LacRecordAt)(body, ledger, raw, scope), behind


def _is_scoped_meta(size: int, scope: int, number: int) -> bool:
    """Whether a special record of an otherwise unknown ledger has fields that damage cannot make by chance."""
    exact = size == SCOPED_IDS if number in (FENCE_ID, _FORCE_ID) else number in (MASTER_KEY_ID, LAC_ID)
    return bool(scope) and exact


def _successor(journal: memoryview, position: int, known: Container[Key], *, padded: bool) -> int | None:
    """Return the position after the proven record at `position`; reserved zeros reach to the end."""
    if is_entry(journal, position, scoped=True):
        return position + SIZE_FIELD + int(_SIZE.unpack_from(journal, position)[0])
    part, behind = _meta(journal, position, known, chained=False)
    if part is not None:
        return None if isinstance(part, Damage) else behind
    if padded and (behind := _find_padding_end(journal, position)) is not None:
        return behind
    return len(journal) if zeros_end(journal, position) == len(journal) else None


def _broken(
    journal: memoryview, position: int, run: EntryRun, known: Met, successor: Successor
) -> tuple[EntryRun, Damage | None, int | None]:
    """Return the entries to believe, the damage at `position` or before, and the position of the next record."""
    if (
        position < len(journal)
        and (wrong := overrun(journal, position, run, known, successor, scoped=True)) is not None
    ):
        index, damage = wrong
        return run.split(index)[0], damage, damage.offset + damage.length
    rest = len(journal) - position
    if zeros_end(journal, position) < len(journal):
        padding = (
            bytes(journal[position : position + SIZE_FIELD]) == _SIZE.pack(_PADDING) and rest < _PAD.size + ALIGNMENT
        )
        return run, *gap(journal, position, known, successor, cut=padding, scoped=True)
    return *without_cut(journal, position, run, scoped=True), None


def encode(records: Iterable[bytes], version: int = 6, *, alignment: int = ALIGNMENT) -> bytes:
    """Return a journal of one batch: the bodies of entries and special records, with padding where the version has it.

    Raises:
        ValueError: another version than 1 to 6.
    """
    if version not in (_BARE, *_HEADERS):
        raise ValueError(f"journal version {version}")
    out = bytearray(_START.pack(_MAGIC, version).ljust(_HEADERS[version], b"\0") if version != _BARE else b"")
    for record in records:
        out += _SIZE.pack(len(record)) + record
    left = -len(out) % alignment
    if version >= _PADDED and left:
        size = left - _PAD.size if left >= _PAD.size else left - _PAD.size + alignment
        out += _PAD.pack(_PADDING, size) + bytes(size)
    return bytes(out)


def _ids(scope: int, ledger: int, number: int) -> bytes:
    if scope:
        return _SCOPED_IDS.pack(entry.flags_of(Digest.DUMMY), scope, ledger, number)
    return _IDS.pack(ledger, number)


def encode_master_key(ledger: int, key: bytes, *, scope: int = 0) -> bytes:
    """Return the body of a master key record."""
    return _ids(scope, ledger, MASTER_KEY_ID) + _SIZE.pack(len(key)) + key


def encode_fence(ledger: int, *, scope: int = 0) -> bytes:
    """Return the body of a fence record."""
    return _ids(scope, ledger, FENCE_ID)


def encode_lac(ledger: int, raw: bytes, *, scope: int = 0) -> bytes:
    """Return the body of an explicit LAC record."""
    return _ids(scope, ledger, LAC_ID) + _SIZE.pack(len(raw)) + raw


def journal_id_of(name: str) -> int | None:
    """Return the id of a journal from its file name, or None if the name is not one of a journal."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    journal_id = int(match[1], 16)
    return journal_id if journal_id < 1 << 63 else None


def decode_last_mark(raw: bytes | memoryview) -> LastMark:
    """Return a replay mark.

    Raises:
        FormatError: fewer than 16 bytes (a bookie passes such a file over), or a negative field.
    """
    if len(raw) < _MARK.size:
        raise FormatError(Reason.TRUNCATED if raw else Reason.EMPTY, "lastMark", len(raw))
    mark = LastMark(*_MARK.unpack_from(raw))
    if mark.journal_id < 0 or mark.offset < 0:
        raise FormatError(Reason.BAD_VALUE, "lastMark", 0, f"{mark}")
    return mark


def encode_last_mark(mark: LastMark) -> bytes:
    """Return the 16 bytes of a replay mark."""
    return _MARK.pack(mark.journal_id, mark.offset)
