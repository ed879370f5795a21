"""Entry: what a client sent and a bookie keeps as it is; its digest, the keys, and the explicit LAC record.

Big-endian. Offsets and sizes in bytes.

    at    size  field
    0     8     ledger id, int64
    8     8     entry id, int64, not negative
    16    8     last add confirmed that the writer knew when it sent the entry, int64; -1: none
    24    8     payload bytes of the ledger up to and including this entry, int64
    32    D     digest over bytes 0 to 31 and the payload
    32+D        payload

    digest   D   bytes
    CRC32    8   zero, zero, zero, zero, then the CRC (zlib)
    HMAC     20  HMAC-SHA1 with the key SHA-1("mac" + password)
    CRC32C   4   the CRC (Castagnoli)
    DUMMY    0

    explicit LAC record: int64 ledger id, int64 LAC, digest over these 16 bytes; its length tells the type
    master key: SHA-1("ledger" + password)

A ledger of a scope other than 0 has entries of version 2, which no released BookKeeper writes. Their first byte is 0x80
or more, and that of the others is less, wherever ids are in front: in entry logs, journals, explicit LAC records.

    at    size  field
    0     1     bit 7: set; bits 4 to 6: version, 2; bits 0 to 3: digest type, as ledger metadata number it
    1     8     scope, int64
    9     8     ledger id, int64
    17    8     entry id, int64
    25    8     last add confirmed, int64
    33    8     length, int64
    41    D     digest over bytes 0 to 40 and the payload
    41+D        payload

    explicit LAC record: bytes 0 to 16, int64 LAC, digest over these 25 bytes

Source: apache/bookkeeper 9590a97, proto/checksum/DigestManager and its subclasses; docs/formats/bookie-storage.md.
"""

import hashlib
import hmac
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

import google_crc32c

from recovery.errors import FormatError, Reason
from recovery.model.ids import LedgerId
from recovery.model.metadata import DIGEST_SIZES, NO_ENTRY, Digest

HEADER_SIZE: Final = 32
SCOPED_HEADER_SIZE: Final = 41
SCOPED: Final = 0x80
"""A first byte of at least this value is of version 2."""
VERSION_BITS: Final = 0xF0
VERSION_2: Final = 0xA0
"""Value of these bits of the first byte in version 2."""
_HEADER: Final = struct.Struct(">qqqq")
_SCOPED_HEADER: Final = struct.Struct(">Bqqqqq")
_PROVEN: Final = struct.Struct(">qqqqQ")
_SCOPED_PROVEN: Final = struct.Struct(">BqqqqqI")
_LAC: Final = struct.Struct(">qq")
PROVEN_SIZE: Final = HEADER_SIZE + DIGEST_SIZES[Digest.CRC32]
"""`find_proven` checks the CRC only of entries of version 1 with at least so many bytes."""
_CRC32C_END: Final = HEADER_SIZE + DIGEST_SIZES[Digest.CRC32C]
_U32_BITS: Final = 32
_U32_MAX: Final = (1 << _U32_BITS) - 1
_SCOPED_LAC: Final = struct.Struct(">Bqqq")
_LEDGER: Final = struct.Struct(">q")
_SCOPED_LEDGER: Final = struct.Struct(">Bqq")
_SCOPED_IDS: Final = struct.Struct(">qqq")
_VERSION: Final = 0x70
_DIGEST_NUMBER: Final = 0x0F
_NUMBERS: Final = {1: Digest.CRC32, 2: Digest.HMAC, 3: Digest.CRC32C, 4: Digest.DUMMY}
_NUMBER_OF: Final = {digest: number for number, digest in _NUMBERS.items()}
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")
_BY_SIZE: Final = {size: digest for digest, size in DIGEST_SIZES.items()}

KeyKind = Literal["absent", "empty", "zero", "set"]


@dataclass(frozen=True, slots=True)
class EntryHeader:
    """The header of an entry, before its digest.

    Attributes:
        ledger: not negative in scope 0.
        entry: not negative.
        lac: last add confirmed that the writer of this copy knew; NO_ENTRY if none.
        length: payload bytes of the ledger up to and including this entry.
        scope: 0 in version 1, never in version 2.
    """

    ledger: int
    entry: int
    lac: int
    length: int
    scope: int = 0


@dataclass(frozen=True, slots=True)
class LacRecord:
    """An explicit LAC as a client sent it; the digest type is known by its length."""

    ledger: int
    lac: int
    digest: Digest
    scope: int = 0


def header_size(record: bytes | memoryview) -> int:
    """Return the size of an entry's header, from its first byte."""
    return SCOPED_HEADER_SIZE if len(record) and record[0] >= SCOPED else HEADER_SIZE


def digest_named(flags: int) -> Digest | None:
    """Return the digest type that the first byte of version 2 names; None if its number is not known."""
    return _NUMBERS.get(flags & _DIGEST_NUMBER)


def decode_header(record: bytes | memoryview) -> EntryHeader:
    """Return the header of an entry.

    Raises:
        FormatError: too few bytes, a version that is not known, or a field that no writer gives.
    """
    size = header_size(record)
    if len(record) < size:
        raise FormatError(Reason.TRUNCATED, "entry", len(record), f"a header takes {size} bytes")
    if size == HEADER_SIZE:
        header, first = EntryHeader(*_HEADER.unpack_from(record)), 0
    else:
        _require_version_2(record[0], "entry")
        _, scope, ledger, number, lac, length = _SCOPED_HEADER.unpack_from(record)
        header, first = EntryHeader(ledger, number, lac, length, scope), size - HEADER_SIZE
        if scope == 0:
            raise FormatError(Reason.BAD_VALUE, "entry", 1, "version 2 in scope 0")
    if header.entry < 0:
        raise FormatError(Reason.BAD_VALUE, "entry", first + 8, f"entry id {header.entry}")
    if header.lac < NO_ENTRY:
        raise FormatError(Reason.BAD_VALUE, "entry", first + 16, f"last add confirmed {header.lac}")
    if header.length < 0:
        raise FormatError(Reason.BAD_VALUE, "entry", first + 24, f"length {header.length}")
    return header


def _require_version_2(flags: int, source: str) -> None:
    if flags & VERSION_BITS != VERSION_2:
        raise FormatError(Reason.BAD_VERSION, source, 0, f"first byte {flags:#x}: version {(flags & _VERSION) >> 4}")


def encode(header: EntryHeader, payload: bytes, digest: Digest, password: bytes = b"") -> bytes:
    """Return the bytes of an entry."""
    fields = (header.ledger, header.entry, header.lac, header.length)
    front = _SCOPED_HEADER.pack(flags_of(digest), header.scope, *fields) if header.scope else _HEADER.pack(*fields)
    return front + _digest(front + payload, digest, password) + payload


def ids_of(record: bytes | memoryview) -> tuple[int, int]:
    """Return scope and ledger of an entry or special record, from its first bytes.

    Raises:
        struct.error: it ends inside them.
    """
    if record and record[0] & VERSION_BITS == VERSION_2:
        _, scope, ledger = _SCOPED_LEDGER.unpack_from(record)
        return scope, ledger
    return 0, _LEDGER.unpack_from(record)[0]


def is_of(record: bytes | memoryview, ledger: LedgerId, number: int) -> bool:
    """Whether the ids in front of an entry are these."""
    if not ledger.scope:
        return record[: _LAC.size] == _LAC.pack(ledger.ledger, number)
    ids = _SCOPED_IDS.pack(ledger.scope, ledger.ledger, number)
    return len(record) > 0 and record[0] & VERSION_BITS == VERSION_2 and record[1 : 1 + len(ids)] == ids


def with_ids(record: bytes | memoryview, ledger: LedgerId, number: int) -> bytes:
    """Return an entry with other ids in front; of a ledger of a scope the first byte stays.

    Raises:
        FormatError: it ends inside its ids.
    """
    ids = _LAC.pack(ledger.ledger, number)
    if ledger.scope:
        ids = bytes(record[:1]) + _SCOPED_IDS.pack(ledger.scope, ledger.ledger, number)
    if len(record) < len(ids):
        raise FormatError(Reason.TRUNCATED, "entry", len(record), "the ids are cut")
    return ids + bytes(record[len(ids) :])


def flags_of(digest: Digest) -> int:
    """Return the first byte of version 2."""
    return VERSION_2 | _NUMBER_OF[digest]


def payload_of(record: bytes | memoryview, digest: Digest) -> memoryview:
    """Return the payload of an entry with a digest of that type.

    Raises:
        FormatError: the entry ends before its payload could begin.
    """
    start = header_size(record) + DIGEST_SIZES[digest]
    if len(record) < start:
        raise FormatError(Reason.TRUNCATED, "entry", len(record), f"header and {digest} take {start} bytes")
    return memoryview(record)[start:]


def _digest(covered: bytes, digest: Digest, password: bytes) -> bytes:
    match digest:
        case Digest.CRC32:
            return _U64.pack(zlib.crc32(covered))
        case Digest.CRC32C:
            return _U32.pack(google_crc32c.value(covered))
        case Digest.HMAC:
            return hmac.digest(hashlib.sha1(b"mac" + password, usedforsecurity=False).digest(), covered, "sha1")
        case Digest.DUMMY:
            return b""


def _agrees(record: bytes | memoryview, front: int, digest: Digest, password: bytes) -> bool:
    """Whether the digest after `front` bytes is right for all other bytes."""
    end = front + DIGEST_SIZES[digest]
    if len(record) < end:
        return False
    if digest is Digest.CRC32 and any(record[front : front + 4]):
        return False
    covered = b"".join((record[:front], record[end:]))
    return hmac.compare_digest(_digest(covered, digest, password), bytes(record[front:end]))


def digest_agrees(record: bytes | memoryview, digest: Digest, password: bytes = b"") -> bool:
    """Whether an entry carries the right digest of that type; with DUMMY always.

    An entry of version 2 that names another type does not.
    """
    front = header_size(record)
    if front == SCOPED_HEADER_SIZE and digest_named(record[0]) is not digest:
        return False
    return _agrees(record, front, digest, password)


def find_digest(record: bytes | memoryview, passwords: Iterable[bytes] = ()) -> tuple[Digest, bytes | None] | None:
    """Return the digest type that the bytes of one entry prove, and for HMAC the password that made it.

    Tried are CRC32, CRC32C, then HMAC with the empty password and those given. A CRC32C agrees by chance once in 2^32:
    confirm it on a second entry. None means HMAC with another password, DUMMY, or damage.

    Source:
        docs/formats/bookie-storage.md.
    """
    for digest in (Digest.CRC32, Digest.CRC32C):
        if digest_agrees(record, digest):
            return digest, None
    for password in dict.fromkeys((b"", *passwords)):
        if digest_agrees(record, Digest.HMAC, password):
            return Digest.HMAC, password
    return None


def find_proven(record: bytes | memoryview) -> tuple[EntryHeader, Digest] | None:
    """Return the header of an entry, and the type of its digest, if that is a CRC that agrees.

    The same as `decode_header` and `find_digest` say, in a fraction of the time; None: ask them.
    """
    if len(record) < PROVEN_SIZE:
        return None
    if record[0] >= SCOPED:
        return _find_proven_scoped(record)
    ledger, number, lac, length, stored = _PROVEN.unpack_from(record)
    if number < 0 or lac < NO_ENTRY or length < 0:
        return None
    digest = find_crc(record, 0, len(record), stored)
    return None if digest is None else (EntryHeader(ledger, number, lac, length), digest)


def find_crc(data: bytes | memoryview, start: int, end: int, stored: int) -> Digest | None:
    """Return the type of the CRC of an entry of version 1 that is in some bytes, if it agrees.

    Args:
        data: the bytes that contain the entry.
        start: of the entry.
        end: of the entry, at least `PROVEN_SIZE` bytes after its start.
        stored: the eight bytes after its header.
    """
    front = start + HEADER_SIZE
    if stored <= _U32_MAX and stored == zlib.crc32(data[start + PROVEN_SIZE : end], zlib.crc32(data[start:front])):
        return Digest.CRC32
    covered = b"".join((data[start:front], data[start + _CRC32C_END : end]))
    return Digest.CRC32C if stored >> _U32_BITS == google_crc32c.value(covered) else None


def _find_proven_scoped(record: bytes | memoryview) -> tuple[EntryHeader, Digest] | None:
    if len(record) < _SCOPED_PROVEN.size:
        return None
    flags, scope, ledger, number, lac, length, stored = _SCOPED_PROVEN.unpack_from(record)
    if flags & VERSION_BITS != VERSION_2 or not scope or number < 0 or lac < NO_ENTRY or length < 0:
        return None
    digest = digest_named(flags)
    if digest is Digest.CRC32C:
        covered = b"".join((record[:SCOPED_HEADER_SIZE], record[SCOPED_HEADER_SIZE + _U32.size :]))
        agrees = stored == google_crc32c.value(covered)
    else:
        agrees = digest is Digest.CRC32 and _agrees(record, SCOPED_HEADER_SIZE, digest, b"")
    return (EntryHeader(ledger, number, lac, length, scope), digest) if digest is not None and agrees else None


def master_key(password: bytes) -> bytes:
    """Return the key that a client with this password shows to bookies."""
    return hashlib.sha1(b"ledger" + password, usedforsecurity=False).digest()


def key_kind(stored: bytes | None) -> KeyKind:
    """Return the kind of a stored master key: only a `set` key can be compared; the other kinds mean unknown."""
    if stored is None:
        return "absent"
    if not stored:
        return "empty"
    return "set" if any(stored) else "zero"


def _lac_size(raw: bytes | memoryview) -> int:
    return _SCOPED_LAC.size if len(raw) and raw[0] >= SCOPED else _LAC.size


def decode_lac_record(raw: bytes | memoryview) -> LacRecord:
    """Return an explicit LAC; its digest is not checked.

    Raises:
        FormatError: no digest type has that length, or a field that no writer gives.
    """
    size = _lac_size(raw)
    digest = _BY_SIZE.get(len(raw) - size)
    if digest is None:
        raise FormatError(Reason.BAD_LENGTH, "explicit LAC", 0, f"{len(raw)} bytes")
    scope = 0
    if size == _LAC.size:
        ledger, lac = _LAC.unpack_from(raw)
    else:
        _require_version_2(raw[0], "explicit LAC")
        _, scope, ledger, lac = _SCOPED_LAC.unpack_from(raw)
        if scope == 0:
            raise FormatError(Reason.BAD_VALUE, "explicit LAC", 1, "version 2 in scope 0")
    if lac < NO_ENTRY:
        raise FormatError(Reason.BAD_VALUE, "explicit LAC", size - 8, f"last add confirmed {lac}")
    return LacRecord(ledger, lac, digest, scope)


def encode_lac_record(ledger: int, lac: int, digest: Digest, password: bytes = b"", *, scope: int = 0) -> bytes:
    """Return the bytes of an explicit LAC."""
    front = _SCOPED_LAC.pack(flags_of(digest), scope, ledger, lac) if scope else _LAC.pack(ledger, lac)
    return front + _digest(front, digest, password)


def lac_record_agrees(raw: bytes | memoryview, password: bytes = b"") -> bool:
    """Whether an explicit LAC carries the right digest; the password matters for HMAC only."""
    size = _lac_size(raw)
    digest = _BY_SIZE.get(len(raw) - size)
    return digest is not None and _agrees(raw, size, digest, password)
