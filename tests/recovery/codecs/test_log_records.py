"""Records of DistributedLog's streams and Pravega's logs: real ones, and others as their sources write them."""

import base64
import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.codecs.log_records import decode_allocation, decode_log, decode_segment
from recovery.errors import FormatError


def write_long(number: int) -> bytes:
    """Return a compact long, as RevisionDataOutputStream.writeCompactLong has it."""
    if number > 0x3FFF_FFFF:
        return struct.pack(">Q", number | 0xC000_0000_0000_0000)
    if number > 0x3FFF:
        return struct.pack(">I", number | 0x8000_0000)
    return struct.pack(">H", number | 0x4000) if number > 0x3F else bytes([number])


def write_int(number: int) -> bytes:
    """Return a compact int, as writeCompactInt has it."""
    if number > 0x3FFF:
        return struct.pack(">I", number | 0xC000_0000)
    return struct.pack(">H", number | 0x8000) if number > 0x7F else bytes([number])


def write_log(ledgers: Sequence[int], *, more: bytes = b"") -> bytes:
    """Return LogMetadata: enabled, epoch 5, truncated at sequence 3 of ledger 1, then the ledgers."""
    body = b"\1" + write_long(5) + write_long(3) + write_long(1) + write_int(len(ledgers))
    for number, ledger in enumerate(ledgers):
        body += write_long(ledger) + write_int(number + 1) + b"\2"
    return b"\0\0" + bytes([1 + bool(more)]) + b"\0" + struct.pack(">i", len(body)) + body + more


IDS = st.one_of(
    st.sampled_from([0, 0x3F, 0x40, 0x3FFF, 0x4000, 0x3FFF_FFFF, 0x4000_0000]), st.integers(0, (1 << 62) - 1)
)


@given(st.lists(IDS, max_size=200, unique=True))
def test_a_log_names_its_ledgers_in_their_order(ledgers: list[int]) -> None:
    """Of each width that a number may have; a later revision behind it changes nothing."""
    assert decode_log(write_log(ledgers)) == tuple(ledgers)
    later = b"\1" + struct.pack(">i", 3) + b"abc"
    assert decode_log(write_log(ledgers, more=later)) == tuple(ledgers)


@pytest.mark.parametrize(
    ("raw", "ledgers"),
    [
        ("AAABAAAAAA4BAwAAAwABAgECAgIDAA==", (0, 1, 2)),
        ("AAABAAAAABgBBMAAAAEAAAAEAwQDAQIEAgIFAwIGBAA=", (3, 4, 5, 6)),
        ("AAABAAAAAA4BAwAAAwcBAggCAgkDAA==", (7, 8, 9)),
    ],
)
def test_logs_of_pravega_0_13(raw: str, ledgers: tuple[int, ...]) -> None:
    """What its segment store wrote (tests/support/java/pravega/Logs.java); the second one was truncated."""
    assert decode_log(base64.b64decode(raw)) == ledgers


def test_a_log_that_is_cut_or_of_another_version_is_refused() -> None:
    """At whatever byte; nothing of it is taken for a ledger."""
    whole = write_log([7, 70_000, 1 << 40])
    for size in range(len(whole)):
        with pytest.raises(FormatError):
            decode_log(whole[:size])
    for odd in (b"\1" + whole[1:], whole[:1] + b"\1" + whole[2:], whole[:3] + b"\1" + whole[4:], b"\0\0\0"):
        with pytest.raises(FormatError):
            decode_log(odd)


@pytest.mark.parametrize(
    ("raw", "ledger"),
    [
        (b"1;7;100", 7),
        (b"2;8;100;3", 8),
        (b"4;9;100;3;0;0", 9),
        (b"5;10;100;3;0;0;0", 10),
        # What Pulsar's function worker wrote (tests/support/java/pulsar-packages/Packages.java).
        (b"38654705669;3;1024;9223372036854775807;1795830114754;1;2;0;0;0;0", 3),
        (b"21474836485;123456789012;1;20;1700000000000;2;4;0;-1;-1;0", 123456789012),
    ],
)
def test_a_segment_names_its_ledger(raw: bytes, ledger: int) -> None:
    """In each version, in progress and completed; the number of records is above the version."""
    assert decode_segment(raw) == ledger


@pytest.mark.parametrize(
    "raw", [b"", b"5", b"5;x;1", b"6;7;100", b"0;7;100", b"5;-1;100", b"5;7;" + b"9" * 30, b"\xff"]
)
def test_what_is_no_segment_is_refused(raw: bytes) -> None:
    """Too few numbers, an unknown version, an id that is none."""
    with pytest.raises(FormatError):
        decode_segment(raw)


def test_an_allocation_names_a_ledger_or_none() -> None:
    """Text, or nothing."""
    assert (decode_allocation(b"42"), decode_allocation(b"")) == (42, None)
    for odd in (b"-1", b"x", b"9" * 20):
        with pytest.raises(FormatError):
            decode_allocation(odd)
