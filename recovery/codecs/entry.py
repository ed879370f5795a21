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

Source: apache/bookkeeper 9590a97, proto/checksum/DigestManager and its subclasses; bookie-storage §4.
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
from recovery.model.metadata import DIGEST_SIZES, NO_ENTRY, Digest

HEADER_SIZE: Final = 32
_HEADER: Final = struct.Struct(">qqqq")
_LAC: Final = struct.Struct(">qq")
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")
_BY_SIZE: Final = {size: digest for digest, size in DIGEST_SIZES.items()}

KeyKind = Literal["absent", "empty", "zero", "set"]


@dataclass(frozen=True, slots=True)
class EntryHeader:
    """The first 32 bytes of an entry.

    Attributes:
        ledger: not negative.
        entry: not negative.
        lac: last add confirmed known to whoever wrote this copy; NO_ENTRY if none.
        length: payload bytes of the ledger up to and including this entry.
    """

    ledger: int
    entry: int
    lac: int
    length: int


@dataclass(frozen=True, slots=True)
class LacRecord:
    """An explicit LAC as a client sent it; the digest type is told by its length."""

    ledger: int
    lac: int
    digest: Digest


def decode_header(record: bytes | memoryview) -> EntryHeader:
    """Return the header of an entry.

    Raises:
        FormatError: fewer than 32 bytes, or a field that no writer gives; a first byte of 0x80 or more is not the
            header of an entry with a 64-bit ledger id.
    """
    if len(record) < HEADER_SIZE:
        raise FormatError(Reason.TRUNCATED, "entry", len(record), f"a header takes {HEADER_SIZE} bytes")
    header = EntryHeader(*_HEADER.unpack_from(record))
    if header.ledger < 0:
        raise FormatError(Reason.BAD_VALUE, "entry", 0, f"first byte {record[0]:#x} is not of a 64-bit ledger id")
    if header.entry < 0:
        raise FormatError(Reason.BAD_VALUE, "entry", 8, f"entry id {header.entry}")
    if header.lac < NO_ENTRY:
        raise FormatError(Reason.BAD_VALUE, "entry", 16, f"last add confirmed {header.lac}")
    if header.length < 0:
        raise FormatError(Reason.BAD_VALUE, "entry", 24, f"length {header.length}")
    return header


def encode(header: EntryHeader, payload: bytes, digest: Digest, password: bytes = b"") -> bytes:
    """Return the bytes of an entry."""
    front = _HEADER.pack(header.ledger, header.entry, header.lac, header.length)
    return front + _digest(front + payload, digest, password) + payload


def payload_of(record: bytes | memoryview, digest: Digest) -> memoryview:
    """Return the payload of an entry whose digest has that type.

    Raises:
        FormatError: the entry ends before its payload could begin.
    """
    start = HEADER_SIZE + DIGEST_SIZES[digest]
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
    """Whether the digest that stands behind `front` bytes is the one over all others."""
    end = front + DIGEST_SIZES[digest]
    if len(record) < end:
        return False
    if digest is Digest.CRC32 and any(record[front : front + 4]):
        return False
    covered = b"".join((record[:front], record[end:]))
    return hmac.compare_digest(_digest(covered, digest, password), bytes(record[front:end]))


def digest_agrees(record: bytes | memoryview, digest: Digest, password: bytes = b"") -> bool:
    """Whether an entry carries the right digest of that type; DUMMY has nothing that could disagree."""
    return _agrees(record, HEADER_SIZE, digest, password)


def find_digest(record: bytes | memoryview, passwords: Iterable[bytes] = ()) -> tuple[Digest, bytes | None] | None:
    """Return the digest type that the bytes of one entry prove, and for HMAC the password that made it.

    Tried are CRC32, CRC32C, then HMAC with the empty password and those given. A CRC32C agrees by chance once in 2^32:
    confirm it on a second entry. None means HMAC with another password, DUMMY, or damage.

    Source:
        bookie-storage §4.5, points 1 to 3.
    """
    for digest in (Digest.CRC32, Digest.CRC32C):
        if digest_agrees(record, digest):
            return digest, None
    for password in dict.fromkeys((b"", *passwords)):
        if digest_agrees(record, Digest.HMAC, password):
            return Digest.HMAC, password
    return None


def master_key(password: bytes) -> bytes:
    """Return the key that a client with this password shows to bookies."""
    return hashlib.sha1(b"ledger" + password, usedforsecurity=False).digest()


def key_kind(stored: bytes | None) -> KeyKind:
    """Return what a stored master key says: only a `set` one can be compared; the others mean unknown."""
    if stored is None:
        return "absent"
    if not stored:
        return "empty"
    return "set" if any(stored) else "zero"


def decode_lac_record(raw: bytes | memoryview) -> LacRecord:
    """Return an explicit LAC; its digest is not checked.

    Raises:
        FormatError: no digest type has that length, or a field that no writer gives.
    """
    digest = _BY_SIZE.get(len(raw) - _LAC.size)
    if digest is None:
        raise FormatError(Reason.BAD_LENGTH, "explicit LAC", 0, f"{len(raw)} bytes")
    ledger, lac = _LAC.unpack_from(raw)
    if ledger < 0:
        raise FormatError(Reason.BAD_VALUE, "explicit LAC", 0, f"ledger id {ledger}")
    if lac < NO_ENTRY:
        raise FormatError(Reason.BAD_VALUE, "explicit LAC", 8, f"last add confirmed {lac}")
    return LacRecord(ledger, lac, digest)


def encode_lac_record(ledger: int, lac: int, digest: Digest, password: bytes = b"") -> bytes:
    """Return the bytes of an explicit LAC."""
    front = _LAC.pack(ledger, lac)
    return front + _digest(front, digest, password)


def lac_record_agrees(raw: bytes | memoryview, password: bytes = b"") -> bool:
    """Whether an explicit LAC carries the right digest; the password matters for HMAC only."""
    digest = _BY_SIZE.get(len(raw) - _LAC.size)
    return digest is not None and _agrees(raw, _LAC.size, digest, password)
