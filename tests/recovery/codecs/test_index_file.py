"""Ledger indexes: which headers are refused, and why."""

import struct

import pytest

from recovery.codecs import index_file
from recovery.codecs.index_file import IndexHeader
from recovery.errors import FormatError, Reason

KEY = bytes(range(20))


def head(*fields: int, magic: bytes = b"BKLE", key: bytes = KEY, tail: bytes = bytes(988)) -> bytes:
    """Return a header of version, key size, then key and further int32 fields."""
    version, key_size, *rest = fields
    return magic + struct.pack(">ii", version, key_size) + key + struct.pack(f">{len(rest)}i", *rest) + tail


@pytest.mark.parametrize(
    ("raw", "reason", "offset"),
    [
        (b"", Reason.EMPTY, 0),
        (b"BKLE", Reason.TRUNCATED, 4),
        (head(1, 20, 0, 0, magic=b"BKLO"), Reason.BAD_MAGIC, 0),
        (head(2, 20, 0, 0), Reason.BAD_VERSION, 4),
        (head(-1, 20, 0, 0), Reason.BAD_VERSION, 4),
        (head(1, -1, 0, 0), Reason.BAD_LENGTH, 12),
        (head(1, 1013, 0, 0), Reason.BAD_LENGTH, 12),
        (head(1, 1012, 0, 0), Reason.BAD_LENGTH, 1024),
        (head(1, 20, 0, 15), Reason.BAD_LENGTH, 36),
        (head(1, 20, 0, -1), Reason.BAD_LENGTH, 36),
        (head(1, 20, 0, 985), Reason.BAD_LENGTH, 40),
        (head(1, 20, 0, 20, tail=bytes(19)), Reason.TRUNCATED, 59),
        (head(1, 20, key=KEY[:10], tail=b""), Reason.TRUNCATED, 22),
        (head(0, 20, tail=b"\0"), Reason.TRUNCATED, 33),
        (head(1, 20, tail=b""), Reason.TRUNCATED, 32),
        (head(1, 20, 0, tail=b""), Reason.TRUNCATED, 36),
    ],
)
def test_a_header_that_is_none_is_refused(raw: bytes, reason: Reason, offset: int) -> None:
    """The reason and the place are told."""
    with pytest.raises(FormatError) as refused:
        index_file.decode_header(raw)
    assert (refused.value.reason, refused.value.offset) == (reason, offset)


def test_a_short_file_may_hold_its_whole_header() -> None:
    """A crash can leave fewer than 1024 bytes; what is there is read."""
    assert index_file.decode_header(head(1, 20, 1, 0, tail=b"")) == IndexHeader(1, KEY, fenced=True, explicit_lac=None)
    assert index_file.decode_header(head(0, 20, 1, tail=b"")) == IndexHeader(0, KEY, fenced=True, explicit_lac=None)


def test_what_a_header_cannot_hold_is_not_written() -> None:
    """Version 0 has no explicit LAC, and all fields stand in 1024 bytes."""
    with pytest.raises(ValueError, match="version 0"):
        index_file.encode_header(IndexHeader(0, KEY, fenced=False, explicit_lac=bytes(20)))
    with pytest.raises(ValueError, match="1033 bytes"):
        index_file.encode_header(IndexHeader(0, bytes(1017), fenced=False, explicit_lac=None))


def test_a_key_is_not_shown() -> None:
    """What is printed of a header does not hold the master key."""
    assert "kkk" not in repr(IndexHeader(1, b"k" * 20, fenced=False, explicit_lac=None))


@pytest.mark.parametrize(
    "path", ["0/5/05.idx", "0/6/5.idx", "0/5/5.idx.rloc", "5.idx", "f/ff/ffffffffffffffff.idx", "0/A/a.idx"]
)
def test_other_paths_are_no_indexes(path: str) -> None:
    """A file counts only where its bookie would look for it."""
    assert index_file.ledger_of(path) is None
