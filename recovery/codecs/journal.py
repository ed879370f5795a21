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

    entry id   body behind int64 ledger id and int64 entry id
    -0x1000    master key: int32 size, key
    -0x2000    fence: nothing
    -0x8000    explicit LAC: int32 size, record (see `entry`)
    other < 0  not known

    padding, version 5 and 6: int32 -256, int32 p, then p zeros; it ends at a multiple of the alignment (512 by default,
    not stored) behind each batch that was synced

    lastMark: int64 journal id, int64 offset in that journal

Source: apache/bookkeeper 9590a97, bookie/Journal, JournalChannel, LastLogMark, BookieImpl.METAENTRY_ID_*;
bookie-storage §6.
"""

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from recovery.codecs.framing import IDS, RECORD, SIZE_FIELD, Successor, find, is_entry, is_proven, zeros_end
from recovery.errors import Damage, FormatError, Reason

MASTER_KEY_ID: Final = -0x1000
FENCE_ID: Final = -0x2000
LAC_ID: Final = -0x8000
ALIGNMENT: Final = 512
_MAGIC: Final = b"BKLG"
_HEADERS: Final = {2: 8, 3: 8, 4: 8, 5: 512, 6: 512}
_PADDED: Final = 5
_PADDING: Final = -256
_START: Final = struct.Struct(">4si")
_SIZE: Final = struct.Struct(">i")
_PAD: Final = struct.Struct(">ii")
_META: Final = struct.Struct(">qqi")
_HEADER: Final = struct.Struct(">qqqq")
_MARK: Final = struct.Struct(">qq")
_WIDEST_DIGEST: Final = 20
_NAME: Final = re.compile(r"([0-9a-f]{1,16})\.txn")


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """An entry; its bytes are ``journal[at : at + size]``."""

    at: int
    size: int
    ledger: int
    entry: int


@dataclass(frozen=True, slots=True)
class MasterKeyRecord:
    """The master key of a ledger, repeated before its first entry of each run of the bookie."""

    at: int
    ledger: int
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class FenceRecord:
    """The ledger was fenced on this bookie."""

    at: int
    ledger: int


@dataclass(frozen=True, slots=True)
class LacRecordAt:
    """An explicit LAC, as the client sent it: see `entry.decode_lac_record`."""

    at: int
    ledger: int
    raw: bytes


@dataclass(frozen=True, slots=True)
class UnknownRecord:
    """A special record of a kind that is not known."""

    at: int
    ledger: int
    entry: int


Record = JournalEntry | MasterKeyRecord | FenceRecord | LacRecordAt | UnknownRecord


@dataclass(frozen=True, slots=True, order=True)
class LastMark:
    """Where replay would start; ordered as the bookie takes the maximum over its ledger folders."""

    journal_id: int
    offset: int


def header_of(journal: bytes | memoryview) -> tuple[int, int]:
    """Return version and header size.

    Raises:
        FormatError: the magic, with a version that is not known.
    """
    if len(journal) < _START.size or journal[: len(_MAGIC)] != _MAGIC:
        return 1, 0
    (version,) = _SIZE.unpack_from(journal, len(_MAGIC))
    if version not in _HEADERS:
        raise FormatError(Reason.BAD_VERSION, "journal", len(_MAGIC), f"version {version}")
    return version, _HEADERS[version]


def scan(journal: bytes | memoryview, *, known: Iterable[int] = ()) -> Iterator[Record | Damage]:
    """Yield every record of a journal and every stretch that could not be taken, in file order.

    The end of a journal:

    - Reserved zeros up to the end of the file, or the end of the file itself, are its normal end: nothing is yielded.
    - A last record that runs past the end of the file, or is zero from inside its header on, was cut by a crash: one
      Damage TRUNCATED up to the end of the file. Nothing of it was acknowledged.
    - A record that was cut inside its payload, with reserved zeros behind, cannot be told from a whole one here: check
      the digest of the last entry.

    All other Damage lies before records that were found again (zeros in the middle included), or hides what was not.

    Args:
        journal: the whole file.
        known: ledgers that this bookie has; see `entry_log.scan`.

    Raises:
        FormatError: as `header_of`.
    """
    journal = memoryview(journal)
    version, at = header_of(journal)
    padded = version >= _PADDED
    seen = {*known}
    end = len(journal)
    last: JournalEntry | None = None

    def successor(position: int) -> int | None:
        return _behind(journal, position, padded=padded)

    while at < end:
        record, behind = _record(journal, at, padded=padded)
        if behind is not None:
            if last is not None:
                yield last
                last = None
            if isinstance(record, JournalEntry):
                last = record
            elif record is not None:
                yield record
            if isinstance(record, Record):
                seen.add(record.ledger)
            at = behind
            continue
        begin, damage, behind = _gap(journal, at, last, seen, successor)
        if last is not None and begin > last.at:
            yield last
        last = None
        if damage is not None:
            yield damage
        if behind is None:
            return
        at = behind
    if last is not None:
        begin = last.at - SIZE_FIELD
        cut = not is_proven(journal, begin) and _is_cut(journal, last)
        yield Damage(begin, end - begin, Reason.TRUNCATED) if cut else last


def _record(journal: memoryview, at: int, *, padded: bool) -> tuple[Record | Damage | None, int | None]:
    """Return what stands at `at` (None: padding) and the position behind it; the position is None if nothing does."""
    rest = len(journal) - at - SIZE_FIELD
    if rest < 0:
        return None, None
    (size,) = _SIZE.unpack_from(journal, at)
    if size < IDS or size > rest:
        return None, _padding_end(journal, at) if padded and size == _PADDING else None
    _, ledger, number = RECORD.unpack_from(journal, at)
    if ledger < 0:
        return None, None
    body = at + SIZE_FIELD
    behind = body + size
    if number >= 0:
        return JournalEntry(body, size, ledger, number), behind
    if number == FENCE_ID:
        return FenceRecord(body, ledger), behind
    if number not in (MASTER_KEY_ID, LAC_ID):
        return UnknownRecord(body, ledger, number), behind
    inner = _META.unpack_from(journal, body)[2] if size >= _META.size else -1
    if not 0 <= inner <= size - _META.size:
        what = "master key" if number == MASTER_KEY_ID else "explicit LAC"
        return Damage(at, behind - at, Reason.BAD_LENGTH, f"ledger {ledger}: {what} of {inner} bytes"), behind
    raw = bytes(journal[body + _META.size : body + _META.size + inner])
    return (MasterKeyRecord if number == MASTER_KEY_ID else LacRecordAt)(body, ledger, raw), behind


def _padding_end(journal: memoryview, at: int) -> int | None:
    if at + _PAD.size > len(journal):
        return None
    size: int = _PAD.unpack_from(journal, at)[1]
    behind = at + _PAD.size + size
    if size < 0 or behind > len(journal) or zeros_end(journal[:behind], at + _PAD.size) != behind:
        return None
    return behind


def _behind(journal: memoryview, at: int, *, padded: bool) -> int | None:
    """Return the position behind what surely stands at `at`; reserved zeros reach to the end."""
    if zeros_end(journal, at) == len(journal):
        return len(journal)
    record, behind = _record(journal, at, padded=padded)
    if isinstance(record, JournalEntry):
        return behind if is_entry(journal, at) else None
    return None if isinstance(record, Damage | UnknownRecord) else behind


def _is_cut(journal: memoryview, last: JournalEntry) -> bool:
    """Whether the last record of a journal is zero from inside its header on."""
    if last.size <= _HEADER.size or journal[last.at + last.size - 1]:
        return False
    _, _, lac, length = _HEADER.unpack_from(journal, last.at)
    if lac < -1 or length < last.size - _HEADER.size - _WIDEST_DIGEST:
        return True
    return zeros_end(journal[: last.at + last.size], last.at + IDS) == last.at + last.size


def _gap(
    journal: memoryview, at: int, last: JournalEntry | None, known: set[int], successor: Successor
) -> tuple[int, Damage | None, int | None]:
    """Return from where on bytes are not taken, what is wrong there, and where the next record stands.

    The first is before `at` if the record before, `last`, is wrong.
    """
    rest = len(journal) - at
    zeros = zeros_end(journal, at)
    if last is not None and not is_proven(journal, last.at - SIZE_FIELD):
        begin = last.at - SIZE_FIELD
        # Nothing fits behind the last record. If records begin inside it, then it is its size that is wrong.
        inside = find(journal, last.at + IDS, at, known, successor)
        if inside is not None:
            return begin, Damage(begin, inside - begin, Reason.BAD_LENGTH, "a size runs over the next record"), inside
        if zeros == len(journal) and _is_cut(journal, last):
            return begin, Damage(begin, len(journal) - begin, Reason.TRUNCATED), None
    if zeros == len(journal):
        return at, None, None
    if rest < SIZE_FIELD:
        return at, Damage(at, rest, Reason.TRUNCATED), None
    (size,) = _SIZE.unpack_from(journal, at)
    detail, cut = f"size {size}", False
    if size == 0:
        reason = Reason.ZEROS
    elif size < IDS:
        reason, cut = Reason.BAD_LENGTH, size == _PADDING and rest < _PAD.size + ALIGNMENT
    elif size > rest - SIZE_FIELD:
        reason, cut = Reason.BAD_LENGTH, True
    else:
        _, ledger, number = RECORD.unpack_from(journal, at)
        reason, detail = Reason.BAD_VALUE, f"ledger {ledger}, entry {number}: not of a 64-bit ledger id"
        behind = at + SIZE_FIELD + size
        if behind == len(journal) or successor(behind) is not None:
            return at, Damage(at, behind - at, reason, detail), behind
    found = find(journal, max(at + 1, zeros - SIZE_FIELD + 1), len(journal), known, successor)
    if found is None:
        return at, Damage(at, rest, Reason.TRUNCATED if cut else reason, detail), None
    return at, Damage(at, found - at, reason, detail), found


def encode(records: Iterable[bytes], version: int = 6, *, alignment: int = ALIGNMENT) -> bytes:
    """Return a journal of one batch: the bodies of entries and special records, with padding where the version has it.

    Raises:
        ValueError: versions 2 to 6 are written.
    """
    if version not in _HEADERS:
        raise ValueError(f"journal version {version}")
    out = bytearray(_START.pack(_MAGIC, version).ljust(_HEADERS[version], b"\0"))
    for record in records:
        out += _SIZE.pack(len(record)) + record
    left = -len(out) % alignment
    if version >= _PADDED and left:
        size = left - _PAD.size if left >= _PAD.size else left - _PAD.size + alignment
        out += _PAD.pack(_PADDING, size) + bytes(size)
    return bytes(out)


def encode_master_key(ledger: int, key: bytes) -> bytes:
    """Return the body of a master key record."""
    return _META.pack(ledger, MASTER_KEY_ID, len(key)) + key


def encode_fence(ledger: int) -> bytes:
    """Return the body of a fence record."""
    return _MARK.pack(ledger, FENCE_ID)


def encode_lac(ledger: int, raw: bytes) -> bytes:
    """Return the body of an explicit LAC record."""
    return _META.pack(ledger, LAC_ID, len(raw)) + raw


def journal_id_of(name: str) -> int | None:
    """Return the id of a journal from its file name, or None if the name is not one of a journal."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    journal_id = int(found[1], 16)
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
