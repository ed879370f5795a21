"""Entry logs: which bytes are which damage, and which maps are believed."""

import struct

import pytest

from recovery.codecs import entry, entry_log
from recovery.codecs.entry import EntryHeader
from recovery.codecs.entry_log import EntryAt, LogHeader
from recovery.errors import Damage, FormatError, Reason
from recovery.model.metadata import Digest


def record(ledger: int, number: int, digest: Digest = Digest.CRC32C) -> bytes:
    """Return an entry."""
    return entry.encode(EntryHeader(ledger, number, number - 1, 9), b"some text", digest, b"pw")


BODIES = [record(5, 0), record(7, 0), record(5, 1)]
LOG = entry_log.encode(BODIES, with_map=True)
ENTRIES = [EntryAt(5, 0, 1028, 45), EntryAt(7, 0, 1077, 45), EntryAt(5, 1, 1126, 45)]
HEADER = entry_log.decode_header(LOG)
SECOND = slice(1073, 1122)


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"", Reason.EMPTY),
        (LOG[:19], Reason.TRUNCATED),
        (b"BKLE" + LOG[4:], Reason.BAD_MAGIC),
        (LOG[:7] + b"\3" + LOG[8:], Reason.BAD_VERSION),
        (LOG[:4] + b"\xff" + LOG[5:], Reason.BAD_VERSION),
    ],
)
def test_a_header_that_is_none_is_refused(head: bytes, reason: Reason) -> None:
    """The reason is told; the records behind can be scanned all the same."""
    with pytest.raises(FormatError) as refused:
        entry_log.decode_header(head)
    assert refused.value.reason is reason
    if len(head) > 1024:
        assert list(entry_log.scan(head)) == ENTRIES


def test_header_versions_0_and_1_are_read_alike() -> None:
    """Both give their fields and their records."""
    old = entry_log.encode_header(LogHeader(0, 0, 0)) + LOG[1024:]
    assert entry_log.decode_header(old) == LogHeader(0, 0, 0)
    assert list(entry_log.scan(old)) == ENTRIES


@pytest.mark.parametrize("size", [0, 100, 1023, 1024])
def test_a_log_without_records_has_no_damage(size: int) -> None:
    """A log that was made ahead of time, or of which only a part of the header was flushed, holds nothing."""
    assert list(entry_log.scan(LOG[:size])) == []


def replaced(place: slice, new: bytes) -> bytes:
    """Return the log with some bytes replaced by as many others."""
    assert len(new) == place.stop - place.start
    return LOG[: place.start] + new + LOG[place.stop :]


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (bytes(49), Reason.ZEROS),
        (b"\xf0" * 49, Reason.BAD_LENGTH),
        (struct.pack(">i", 15) + BODIES[1], Reason.BAD_LENGTH),
        (struct.pack(">i", 1 << 20) + BODIES[1], Reason.BAD_LENGTH),
        (struct.pack(">i", 45) + b"\xa3" + BODIES[1][1:], Reason.BAD_VALUE),
        (struct.pack(">iqq", 45, 7, -5) + BODIES[1][16:], Reason.BAD_VALUE),
        (struct.pack(">iqq", 45, -1, -3) + BODIES[1][16:], Reason.BAD_VALUE),
        (struct.pack(">iqq", 31, 7, 3) + bytes(29), Reason.BAD_LENGTH),
        (struct.pack(">iqqqq", 45, 7, 1 << 60, -2, 9) + bytes(13), Reason.BAD_VALUE),
    ],
)
def test_damage_in_the_middle_is_one_gap_with_its_reason(new: bytes, reason: Reason) -> None:
    """What cannot be a record is told as one stretch, and the records around it are read."""
    first, gap, last = entry_log.scan(replaced(SECOND, new))
    assert (first, last) == (ENTRIES[0], ENTRIES[2])
    assert isinstance(gap, Damage)
    assert (gap.offset, gap.length, gap.reason) == (SECOND.start, 49, reason)


def test_a_record_too_short_for_an_entry_is_damage() -> None:
    """Nobody could read an entry without a header; where its frame is right, only it is not taken."""
    log = entry_log.encode([BODIES[0], BODIES[1][:20], BODIES[2]], with_map=False)
    first, damage, last = entry_log.scan(log)
    assert damage == Damage(1073, 24, Reason.BAD_LENGTH, "size 20, ledger 7, entry 0")
    assert [part.ledger for part in (first, last) if isinstance(part, EntryAt)] == [5, 5]


def test_an_unusually_large_entry_id_is_read() -> None:
    """A client may choose any id; one that nothing else supports is still read where records lead to it."""
    numbers = [0, 1 << 48, (1 << 63) - 1, 2]
    for digest in Digest:
        log = entry_log.encode([record(5, number, digest) for number in numbers], with_map=False)
        assert [part.entry for part in entry_log.scan(log) if isinstance(part, EntryAt)] == numbers


def test_several_gaps_are_several_damages() -> None:
    """Each gap is told at its own place."""
    log = bytearray(entry_log.encode([record(5, n) for n in range(7)], with_map=False))
    for at in (1024 + 49, 1024 + 4 * 49):
        log[at : at + 49] = bytes(49)
    found = list(entry_log.scan(bytes(log)))
    assert [part.offset for part in found if isinstance(part, Damage)] == [1073, 1220]
    assert [part.entry for part in found if isinstance(part, EntryAt)] == [0, 2, 3, 5, 6]


def test_records_behind_a_map_are_read() -> None:
    """A log can go on behind its map, and get a second one, which then counts."""
    more = entry_log.encode([*BODIES, record(7, 1)], with_map=True)
    log = LOG + more[1171:]
    assert [part.entry for part in entry_log.scan(log) if isinstance(part, EntryAt)] == [0, 0, 1, 1]
    header = LogHeader(1, len(LOG) + 49, 2)
    assert entry_log.read_map(log, header) == {5: 98, 7: 98}


def test_a_map_of_many_ledgers_has_several_records() -> None:
    """At most 10,000 ledgers stand in one record; all are read."""
    log = entry_log.encode([record(ledger, 0) for ledger in range(10_001)], with_map=True)
    header = entry_log.decode_header(log)
    assert entry_log.read_map(log, header) == dict.fromkeys(range(10_001), 49)
    assert header.map_ledgers == 10_001
    cut = len(log) - 24 - 16
    assert entry_log.read_map(log[:cut], header) is None
    assert sum(1 for part in entry_log.scan(log) if isinstance(part, Damage)) == 0


@pytest.mark.parametrize(
    ("log", "header"),
    [
        (LOG, LogHeader(1, 0, 0)),
        (LOG, LogHeader(1, HEADER.map_offset, 3)),
        (LOG, LogHeader(1, HEADER.map_offset + 1, 2)),
        (LOG, LogHeader(1, -5, 2)),
        (LOG, LogHeader(1, 1 << 40, 2)),
        (LOG[:-1], HEADER),
        (LOG[:-16], HEADER),
        (LOG + struct.pack(">iqqi", 20, -1, -3, 0), HEADER),
        (LOG[:-16] + struct.pack(">qq", -7, 49), HEADER),
        (LOG[:-16] + struct.pack(">qq", 5, 49), HEADER),
    ],
)
def test_a_map_that_is_not_whole_is_not_believed(log: bytes, header: LogHeader) -> None:
    """No map, a wrong count, a wrong place, a cut, something behind, a ledger that cannot be or comes twice."""
    assert entry_log.read_map(log, header) is None


def test_a_map_may_be_followed_by_padding() -> None:
    """The direct I/O logger pads behind the map, and may have reserved space there."""
    assert entry_log.read_map(LOG + b"\xf0" * 100, HEADER) == {5: 98, 7: 49}
    assert entry_log.read_map(LOG + bytes(100), HEADER) == {5: 98, 7: 49}


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("behind", [0, 3, 8192])
@pytest.mark.parametrize("written", range(4, 36))
def test_an_entry_cut_inside_its_header_by_zeros_is_none(written: int, behind: int, *, direct: bool) -> None:
    """After a loss of power the size may be there, and the rest not: no entry of ledger 0 is made of it."""
    whole = entry_log.encode([record(5, 0), record(5, 1)], with_map=False)
    filler = struct.pack(">iq", 3068, -1).ljust(3072, b"\0") if direct else b""
    log = whole[:1024] + filler + whole[1024:]
    last = len(log) - len(record(5, 1)) - 4
    parts = list(entry_log.scan(log[: last + written] + bytes(len(log) - last - written + behind)))
    assert [(part.ledger, part.entry) for part in parts if isinstance(part, EntryAt)] == [(5, 0)]
    assert parts[1:] == [Damage(last, len(log) - last + behind, Reason.TRUNCATED)]


def test_a_scan_can_start_at_any_record() -> None:
    """From the position of a record on, the rest is read."""
    assert list(entry_log.scan(LOG, SECOND.start)) == ENTRIES[1:]


@pytest.mark.parametrize("name", ["1.log.compacting", "3.log.1.compacted", "g.log", ".log", "80000000.log", "lastId"])
def test_other_names_are_no_logs(name: str) -> None:
    """Only hex digits of an id below 2^31, and the ending."""
    assert entry_log.log_id_of(name) is None


def test_many_records_are_read_in_runs() -> None:
    """More entries than are gathered at a time, with damage at a seam: nothing is lost or doubled."""
    count = 65_536 * 2 + 3
    body = record(5, 0)
    log = bytearray(entry_log.encode([body] * count, with_map=False))
    assert sum(1 for _ in entry_log.scan(bytes(log))) == count
    at = 1024 + 65_536 * 49
    log[at : at + 4] = b"\xff" * 4
    found = list(entry_log.scan(bytes(log)))
    assert [(part.offset, part.length) for part in found if isinstance(part, Damage)] == [(at, 49)]
    assert len(found) == count


@pytest.mark.parametrize("digest", [Digest.CRC32C, Digest.CRC32, Digest.HMAC, Digest.DUMMY])
def test_no_wrong_size_hides_or_invents_an_entry(digest: Digest) -> None:
    """Every size that one record may wrongly have, and every record: the others are read, and nothing else is.

    Records without a CRC whose size leads into another one are found if others of known ledgers follow.
    """
    bodies = [entry.encode(EntryHeader(5, n, n - 1, 900), bytes(range(7 * n)), digest, b"pw") for n in range(9)]
    log = entry_log.encode(bodies, with_map=False)
    whole = [part for part in entry_log.scan(log) if isinstance(part, EntryAt)]
    ends = {at.position + at.size for at in whole}
    for victim in whole[:5]:
        for size in range(-3, len(log) - 1000):
            if victim.position + size in ends:
                continue  # a log of fewer records, one of them with a wrong digest
            raw = log[: victim.position - 4] + struct.pack(">i", size) + log[victim.position :]
            found = [part for part in entry_log.scan(raw, known=[5]) if isinstance(part, EntryAt)]
            assert [at for at in found if at.position != victim.position] == [at for at in whole if at != victim]
