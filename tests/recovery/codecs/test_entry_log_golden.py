"""Entry logs: the worked example byte for byte, and every log of the real disks."""

from collections import Counter

import pytest

from recovery.codecs import entry_log
from recovery.codecs.entry_log import EntryAt, LogHeader
from recovery.errors import Damage, FormatError
from tests.support import bookie_files
from tests.support.cases import NAMES

RECORD = bytes.fromhex(
    "0000000000000005 0000000000000003 0000000000000002 000000000000000b 5e82cfb2 68656c6c6f20776f726c64"
)
EXAMPLE = (
    bytes.fromhex("424b4c4f 00000001 0000000000000433 00000001").ljust(1024, b"\0")
    + bytes.fromhex("0000002f")
    + RECORD
    + bytes.fromhex("00000024 ffffffffffffffff fffffffffffffffe 00000001 0000000000000005 0000000000000033")
)


def test_the_worked_example() -> None:
    """A rotated log of one entry is made and read: header, record, ledgers map."""
    assert len(EXAMPLE) == 1115
    assert entry_log.encode([RECORD], with_map=True) == EXAMPLE
    header = entry_log.decode_header(EXAMPLE)
    assert header == LogHeader(version=1, map_offset=0x433, map_ledgers=1)
    assert entry_log.read_map(EXAMPLE, header) == {5: 51}
    assert list(entry_log.scan(EXAMPLE)) == [EntryAt(5, 3, position=1028, size=47)]
    assert entry_log.location(0x1F, 1028) == 0x0000001F00000404
    assert entry_log.split_location(0x0000001F00000404) == (0x1F, 1028)


@pytest.mark.parametrize("case", NAMES)
def test_every_real_log_is_whole(case: str) -> None:
    """No real log has damage; its header and, where it has one, its ledgers map agree with its records.

    The log of a bookie that was killed can be empty, and one that only the header of was flushed has no entry.
    """
    logs = bookie_files.entry_logs(case)
    assert logs
    for path in logs:
        raw = path.read_bytes()
        if not raw:
            with pytest.raises(FormatError, match="empty"):
                entry_log.decode_header(raw)
            continue
        header = entry_log.decode_header(raw)
        assert entry_log.encode_header(header) == raw[: entry_log.HEADER_SIZE]
        found = list(entry_log.scan(raw))
        sizes: Counter[int] = Counter()
        for at in found:
            assert isinstance(at, EntryAt)
            sizes[at.ledger] += at.size + 4
        if header.map_offset:
            assert entry_log.read_map(raw, header) == sizes
            again = entry_log.encode((raw[at.position : at.position + at.size] for at in found), with_map=False)  # type: ignore[union-attr]  # no damage, just shown
            assert again[1024:] == raw[1024 : header.map_offset]


def test_some_real_logs_have_a_map() -> None:
    """The case with small logs covers rotated logs, so the test above compares maps."""
    headers = [entry_log.decode_header(path.read_bytes()) for path in bookie_files.entry_logs("c09")]
    assert sum(header.map_offset > 0 for header in headers) >= 5


@pytest.mark.parametrize("case", ["c01", "c09"])
def test_columns_say_what_records_say(case: str) -> None:
    """The columnar scan of a real log is the record scan, transposed."""
    for path in bookie_files.entry_logs(case):
        raw = path.read_bytes()
        rows = [
            EntryAt(*(int(value) for value in row))
            for part in entry_log.scan_columns(raw)
            if not isinstance(part, Damage)
            for row in zip(*part.columns(), strict=True)
        ]
        assert rows == list(entry_log.scan(raw))


def test_behind_damage_the_rest_of_a_real_log_is_found() -> None:
    """Zeros, noise or a wrong size over one record in the middle cost that record and, without a CRC, few more."""
    [path, *_] = bookie_files.entry_logs("c09")
    raw = path.read_bytes()
    whole = [at for at in entry_log.scan(raw) if isinstance(at, EntryAt)]
    victim = whole[len(whole) // 2]
    begin, end = victim.position - 4, victim.position + victim.size
    for bytes_there in (bytes(end - begin), b"\x5a" * (end - begin), b"\x00\x00\x10\x00" + raw[begin + 4 : end]):
        found = list(entry_log.scan(raw[:begin] + bytes_there + raw[end:]))
        [damage] = [part for part in found if isinstance(part, Damage)]
        assert damage.offset == begin
        kept = [part for part in found if isinstance(part, EntryAt)]
        assert set(kept) <= set(whole)
        lost = {at.position for at in whole} - {at.position for at in kept}
        assert all(damage.offset <= at < damage.offset + damage.length for at in lost)
        assert len(lost) <= 3
