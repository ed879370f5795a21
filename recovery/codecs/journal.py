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

from recovery.codecs.entry import HEADER_SIZE
from recovery.codecs.framing import (
    DOUBTED,
    IDS,
    RECORD,
    SIZE_FIELD,
    Entries,
    Run,
    Successor,
    chain,
    gap,
    is_entry,
    is_proven,
    overrun,
    take_unusual,
    zeros_end,
)
from recovery.errors import Damage, FormatError, Reason
from recovery.model.metadata import DIGEST_SIZES, NO_ENTRY

MASTER_KEY_ID: Final = -0x1000
FENCE_ID: Final = -0x2000
LAC_ID: Final = -0x8000
ALIGNMENT: Final = 512
_LEAST_ID: Final = -0x10000
"""Ids of special records, known or not, are not below."""
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


MetaRecord = MasterKeyRecord | FenceRecord | LacRecordAt | UnknownRecord
Record = JournalEntry | MetaRecord


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
    - An entry that was cut inside its payload, with reserved zeros behind, cannot be told from a whole one here, nor
      one that is nothing but a header: check the digest of the last entry.

    All other Damage lies before records that were found again (zeros in the middle included), or hides what was not.

    Args:
        journal: the whole file.
        known: ledgers that this bookie has; see `entry_log.scan`.

    Raises:
        FormatError: as `header_of`.
    """
    for part in _walk(memoryview(journal), {*known}):
        if isinstance(part, Run):
            for ledger, entry, position, size in zip(*part, strict=True):
                yield JournalEntry(position, size, ledger, entry)
        else:
            yield part


def scan_columns(journal: bytes | memoryview, *, known: Iterable[int] = ()) -> Iterator[Entries | MetaRecord | Damage]:
    """Yield what `scan` yields, entries as arrays of bounded length."""
    for part in _walk(memoryview(journal), {*known}):
        yield part.arrays() if isinstance(part, Run) else part


def _walk(journal: memoryview, known: set[int]) -> Iterator[Run | MetaRecord | Damage]:
    version, at = header_of(journal)
    padded = version >= _PADDED

    def successor(position: int) -> int | None:
        return _successor(journal, position, padded=padded)

    run = Run.empty()
    while True:
        at = chain(journal, at, run)
        if run.full():
            # Keep the last ones: whether they can be believed shows in what follows.
            done, run = run.split(-DOUBTED)
            known.update(done.ledger)
            yield done
            continue
        behind = _padding_end(journal, at) if padded else None
        if behind is not None:
            at = behind
            continue
        part: MetaRecord | Damage | None
        part, behind = _meta(journal, at)
        if part is None and take_unusual(journal, at, run, known, successor):
            at = run.end()
            continue
        known.update(run.ledger)
        if part is None:
            run, part, behind = _broken(journal, at, run, known, successor)
        elif not isinstance(part, Damage):
            known.add(part.ledger)
        yield run
        if part is not None:
            yield part
        if behind is None:
            return
        run, at = Run.empty(), behind


def _padding_end(journal: memoryview, at: int) -> int | None:
    if at + _PAD.size > len(journal):
        return None
    mark, size = _PAD.unpack_from(journal, at)
    behind: int = at + _PAD.size + size
    if mark != _PADDING or size < 0 or behind > len(journal):
        return None
    return behind if bytes(journal[at + _PAD.size : behind]) == bytes(size) else None


def _meta(journal: memoryview, at: int) -> tuple[MetaRecord | Damage | None, int | None]:
    """Return the special record at `at` and the position behind it, or None for both."""
    if at + RECORD.size > len(journal):
        return None, None
    size, ledger, number = RECORD.unpack_from(journal, at)
    body = at + SIZE_FIELD
    behind = body + size
    if size < IDS or behind > len(journal) or ledger < 0 or not _LEAST_ID <= number < 0:
        return None, None
    if number == FENCE_ID and size == IDS:
        return FenceRecord(body, ledger), behind
    if number not in (MASTER_KEY_ID, FENCE_ID, LAC_ID):
        return UnknownRecord(body, ledger, number), behind
    inner = _META.unpack_from(journal, body)[2] if size >= _META.size else -1
    if number == FENCE_ID or inner != size - _META.size:
        what = {MASTER_KEY_ID: "master key", FENCE_ID: "fence", LAC_ID: "explicit LAC"}[number]
        return Damage(
            at, behind - at, Reason.BAD_LENGTH, f"ledger {ledger}: {what} in a record of {size} bytes"
        ), behind
    raw = bytes(journal[body + _META.size : body + _META.size + inner])
    return (MasterKeyRecord if number == MASTER_KEY_ID else LacRecordAt)(body, ledger, raw), behind


def _successor(journal: memoryview, at: int, *, padded: bool) -> int | None:
    """Return the position behind what surely stands at `at`; reserved zeros reach to the end."""
    if is_entry(journal, at):
        return at + SIZE_FIELD + int(_SIZE.unpack_from(journal, at)[0])
    part, behind = _meta(journal, at)
    if part is not None:
        return None if isinstance(part, Damage) else behind
    if padded and (behind := _padding_end(journal, at)) is not None:
        return behind
    return len(journal) if zeros_end(journal, at) == len(journal) else None


def _broken(
    journal: memoryview, at: int, run: Run, known: set[int], successor: Successor
) -> tuple[Run, Damage | None, int | None]:
    """Return the entries that can be believed, what is wrong at `at` or before, and where the next record stands."""
    if at < len(journal) and (wrong := overrun(journal, at, run, known, successor)) is not None:
        index, damage = wrong
        return run.split(index)[0], damage, damage.offset + damage.length
    rest = len(journal) - at
    if zeros_end(journal, at) < len(journal):
        padding = bytes(journal[at : at + SIZE_FIELD]) == _SIZE.pack(_PADDING) and rest < _PAD.size + ALIGNMENT
        return run, *gap(journal, at, known, successor, cut=padding)
    if run.size and run.end() == at:
        begin = run.position[-1] - SIZE_FIELD
        if not is_proven(journal, begin) and _is_cut(journal[run.position[-1] : at]):
            return run.split(-1)[0], Damage(begin, len(journal) - begin, Reason.TRUNCATED), None
    return run, None, None


def _is_cut(record: memoryview) -> bool:
    """Whether an entry that reserved zeros follow is zero itself from inside its header on."""
    if len(record) <= HEADER_SIZE or record[-1]:
        return False
    _, _, lac, length = _HEADER.unpack_from(record)
    impossible: bool = lac < NO_ENTRY or length < len(record) - HEADER_SIZE - max(DIGEST_SIZES.values())
    return impossible or zeros_end(record, IDS) == len(record)


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
