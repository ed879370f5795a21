"""Entries: what is refused, by its reason and place, and what stored keys say."""

import struct
import zlib

import pytest

from recovery.codecs import entry
from recovery.codecs.entry import EntryHeader
from recovery.errors import FormatError, Reason
from recovery.model.metadata import Digest

RAW = entry.encode(EntryHeader(5, 3, 2, 11), b"hello world", Digest.CRC32C)


def with_field(at: int, value: int) -> bytes:
    """Return the entry with one of its four fields replaced."""
    return RAW[:at] + value.to_bytes(8, "big", signed=True) + RAW[at + 8 :]


@pytest.mark.parametrize(
    ("raw", "reason", "offset"),
    [
        (b"", Reason.TRUNCATED, 0),
        (RAW[:31], Reason.TRUNCATED, 31),
        (with_field(0, -1) + bytes(9), Reason.BAD_VERSION, 0),
        (b"\xa3" + RAW[1:], Reason.BAD_VALUE, 33),
        (b"\xa3" + RAW[1:40], Reason.TRUNCATED, 40),
        (b"\xa3" + b"\1" * 16 + with_field(0, -1), Reason.BAD_VALUE, 17),
        (with_field(8, -0x1000), Reason.BAD_VALUE, 8),
        (with_field(16, -2), Reason.BAD_VALUE, 16),
        (with_field(24, -1), Reason.BAD_VALUE, 24),
    ],
)
def test_a_header_that_no_writer_gives_is_refused(raw: bytes, reason: Reason, offset: int) -> None:
    """The reason and the place of what is wrong are told; an id of more than 64 bits is not read as one of 64."""
    with pytest.raises(FormatError) as refused:
        entry.decode_header(raw)
    assert (refused.value.reason, refused.value.offset) == (reason, offset)


def test_a_payload_that_cannot_begin_is_refused() -> None:
    """An entry too short for its digest has no payload; one that ends behind it has an empty one."""
    with pytest.raises(FormatError, match="truncated"):
        entry.payload_of(RAW[:35], Digest.CRC32C)
    assert bytes(entry.payload_of(RAW[:36], Digest.CRC32C)) == b""


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (bytes(15), Reason.BAD_LENGTH),
        (bytes(17), Reason.BAD_LENGTH),
        (b"\xff" * 16, Reason.BAD_LENGTH),
        (b"\xff" * 25, Reason.BAD_VERSION),
        (b"\xa4" + bytes(24), Reason.BAD_VALUE),
        (bytes(8) + b"\xff" * 7 + b"\xfe", Reason.BAD_VALUE),
    ],
)
def test_an_explicit_lac_that_no_client_sends_is_refused(raw: bytes, reason: Reason) -> None:
    """No digest has such a length, or the ids cannot be."""
    with pytest.raises(FormatError) as refused:
        entry.decode_lac_record(raw)
    assert refused.value.reason is reason


@pytest.mark.parametrize(
    ("stored", "kind"), [(None, "absent"), (b"", "empty"), (bytes(20), "zero"), (entry.master_key(b""), "set")]
)
def test_what_a_stored_key_says(stored: bytes | None, kind: str) -> None:
    """Only a set key can be compared with one that a password makes."""
    assert entry.key_kind(stored) == kind


def test_the_empty_password_is_always_tried() -> None:
    """An HMAC of the empty password is proven without a password being given."""
    raw = entry.encode(EntryHeader(5, 3, 2, 11), b"hello world", Digest.HMAC)
    assert entry.find_digest(raw) == (Digest.HMAC, b"")


def test_a_crc32_has_four_zero_bytes_in_front() -> None:
    """A digest whose upper half is not zero is none of CRC32, even if the lower half is right."""
    raw = bytearray(entry.encode(EntryHeader(5, 3, 2, 11), b"hello world", Digest.CRC32))
    raw[33] = 1
    assert not entry.digest_agrees(bytes(raw), Digest.CRC32)


def test_an_entry_of_another_scope() -> None:
    """Byte for byte as the format says: flags, scope, ids, LAC, length, a CRC over these 41 bytes and the payload."""
    front = bytes([0b1_010_0001]) + struct.pack(">qqqqq", 7, -2, 3, 2, 11)
    expected = front + bytes(4) + struct.pack(">I", zlib.crc32(front + b"hello world")) + b"hello world"
    assert entry.encode(EntryHeader(-2, 3, 2, 11, scope=7), b"hello world", Digest.CRC32) == expected
    assert entry.decode_header(expected) == EntryHeader(-2, 3, 2, 11, scope=7)
    assert entry.find_digest(expected) == (Digest.CRC32, None)


def test_an_unknown_digest_of_another_scope_is_listed_and_not_verified() -> None:
    """The header is read; no digest agrees."""
    raw = entry.encode(EntryHeader(5, 3, 2, 11, scope=7), b"hello world", Digest.CRC32)
    raw = bytes([raw[0] & 0xF0 | 9]) + raw[1:]
    assert entry.decode_header(raw).scope == 7
    assert entry.find_digest(raw) is None


def test_an_explicit_lac_of_another_scope() -> None:
    """Flags, scope, ledger and LAC stand in front of the digest."""
    front = bytes([0b1_010_0001]) + struct.pack(">qqq", 7, 5, 3)
    raw = front + bytes(4) + struct.pack(">I", zlib.crc32(front))
    assert entry.encode_lac_record(5, 3, Digest.CRC32, scope=7) == raw
    assert entry.decode_lac_record(raw) == entry.LacRecord(5, 3, Digest.CRC32, scope=7)
    assert entry.lac_record_agrees(raw)
