"""Journals: which bytes are which damage, and where the normal end is."""

import struct

import pytest

from recovery.codecs import entry, journal
from recovery.codecs.entry import EntryHeader
from recovery.codecs.journal import JournalEntry, LastMark, MasterKeyRecord
from recovery.errors import Damage, FormatError, Reason
from recovery.model.metadata import Digest


def record(ledger: int, number: int, digest: Digest = Digest.CRC32C, payload: bytes = b"some text") -> bytes:
    """Return an entry."""
    return entry.encode(EntryHeader(ledger, number, number - 1, len(payload) * (number + 1)), payload, digest, b"pw")


BODIES = [record(5, 0), record(7, 0), record(5, 1)]
RAW = journal.encode(BODIES)
ENTRIES = [JournalEntry(516, 45, 5, 0), JournalEntry(565, 45, 7, 0), JournalEntry(614, 45, 5, 1)]
SECOND = slice(561, 610)


@pytest.mark.parametrize("version", [0, 1, 7, -1])
def test_a_version_that_is_not_known_is_refused(version: int) -> None:
    """The magic with another version is a journal that nobody here can read."""
    with pytest.raises(FormatError) as refused:
        list(journal.scan(b"BKLG" + struct.pack(">i", version) + RAW[8:]))
    assert refused.value.reason is Reason.BAD_VERSION


def test_a_journal_without_a_header_is_of_version_1() -> None:
    """Records begin at once."""
    raw = journal.encode(BODIES, 1)
    assert raw == journal.encode(BODIES, 2)[8:]
    assert journal.header_of(raw) == (1, 0)
    assert list(journal.scan(raw)) == [JournalEntry(e.at - 512, e.size, e.ledger, e.entry) for e in ENTRIES]
    with pytest.raises(ValueError, match="version 7"):
        journal.encode(BODIES, 7)


@pytest.mark.parametrize("size", [0, 8, 100, 512])
def test_a_journal_without_records_has_no_damage(size: int) -> None:
    """A journal that was just begun holds nothing, whether or not space is reserved."""
    assert list(journal.scan(RAW[:size])) == []
    assert list(journal.scan(RAW[:512] + bytes(size))) == []


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (bytes(49), Reason.ZEROS),
        (b"\xf0" * 49, Reason.BAD_LENGTH),
        (struct.pack(">i", 15) + BODIES[1], Reason.BAD_LENGTH),
        (struct.pack(">i", 1 << 20) + BODIES[1], Reason.BAD_LENGTH),
        (struct.pack(">ii", -256, 41) + b"x" * 41, Reason.BAD_LENGTH),
        (struct.pack(">i", 45) + b"\xa3" + BODIES[1][1:], Reason.BAD_VALUE),
        (struct.pack(">iqqi", 45, 7, -0x1000, 26) + bytes(25), Reason.BAD_LENGTH),
        (struct.pack(">iqqi", 45, 7, -0x8000, -1) + bytes(25), Reason.BAD_LENGTH),
    ],
)
def test_damage_in_the_middle_is_one_gap_with_its_reason(new: bytes, reason: Reason) -> None:
    """What cannot be a record is told as one stretch, and the records around it are read; zeros are no end here."""
    first, gap, last = journal.scan(RAW[: SECOND.start] + new + RAW[SECOND.stop :])
    assert (first, last) == (ENTRIES[0], ENTRIES[2])
    assert isinstance(gap, Damage)
    assert (gap.offset, gap.length, gap.reason) == (SECOND.start, 49, reason)


def test_padding_before_version_5_is_damage() -> None:
    """A version that has no padding has no negative size either."""
    raw = journal.encode(BODIES[:1], 4) + struct.pack(">ii", -256, 0)
    *_, damage = journal.scan(raw)
    assert isinstance(damage, Damage)
    assert damage.offset == 8 + 49


def test_an_entry_of_more_than_64_bits_at_the_end_is_one_damage() -> None:
    """Its frame is still right, so only it is not taken."""
    raw = journal.encode([BODIES[0], b"\xa3" + BODIES[1][1:]], 4)
    assert next(journal.scan(raw)) == JournalEntry(12, 45, 5, 0)
    [damage] = [part for part in journal.scan(raw) if isinstance(part, Damage)]
    assert (damage.offset, damage.length, damage.reason) == (57, 49, Reason.BAD_VALUE)


@pytest.mark.parametrize("written", [4, 8, 12, 20, 27, 34])
def test_an_entry_cut_inside_its_header_is_the_torn_end(written: int) -> None:
    """Behind the cut are reserved zeros: the size is there, the rest is not, and no entry is made of it."""
    raw = journal.encode([record(5, 0), record(5, 300, Digest.HMAC, b"x" * 100)])
    begin = 512 + 49
    torn = raw[: begin + written] + bytes(4000)
    first, damage = journal.scan(torn)
    assert first == ENTRIES[0]
    assert damage == Damage(begin, len(torn) - begin, Reason.TRUNCATED)


def test_an_entry_cut_inside_its_payload_shows_in_its_digest() -> None:
    """It cannot be told from a whole one by its form."""
    raw = journal.encode([record(5, 0, payload=b"x" * 100)])
    torn = raw[: 512 + 4 + 60] + bytes(4000)
    [last] = journal.scan(torn)
    assert isinstance(last, JournalEntry)
    assert not entry.digest_agrees(torn[last.at : last.at + last.size], Digest.CRC32C)


def test_an_entry_of_zeros_is_an_entry() -> None:
    """Entry 0 of ledger 0 with an empty payload is nearly all zeros, and whole."""
    body = entry.encode(EntryHeader(0, 0, -1, 0), b"", Digest.DUMMY)
    assert list(journal.scan(journal.encode([body]) + bytes(512))) == [JournalEntry(516, 32, 0, 0)]


def test_a_key_is_not_shown() -> None:
    """What is printed of a master key record does not hold the key."""
    [found] = journal.scan(journal.encode([journal.encode_master_key(5, b"k" * 20)]))
    assert isinstance(found, MasterKeyRecord)
    assert found.key == b"k" * 20
    assert "kkk" not in repr(found)


def test_behind_damage_special_records_are_found() -> None:
    """A master key record, which no digest proves, is found by its form and by what follows it."""
    key = journal.encode_master_key(9, b"k" * 20)
    raw = bytearray(journal.encode([record(5, 0), key, *(record(9, n, Digest.HMAC) for n in range(4))]))
    raw[512:532] = b"\xff" * 20
    damage, *rest = journal.scan(bytes(raw))
    assert isinstance(damage, Damage)
    assert damage.length == 49
    assert [type(part) for part in rest] == [MasterKeyRecord, *[JournalEntry] * 4]


def test_other_alignments_are_read() -> None:
    """The alignment is not stored; padding says its own size."""
    raw = journal.encode(BODIES, alignment=4096)
    assert len(raw) == 4096
    assert list(journal.scan(raw)) == ENTRIES


@pytest.mark.parametrize(
    ("raw", "reason"),
    [(b"", Reason.EMPTY), (bytes(15), Reason.TRUNCATED), (b"\xff" * 16, Reason.BAD_VALUE)],
)
def test_a_mark_that_is_none_is_refused(raw: bytes, reason: Reason) -> None:
    """Too few bytes, as a bookie sees it too, or a place that cannot be."""
    with pytest.raises(FormatError) as refused:
        journal.decode_last_mark(raw)
    assert refused.value.reason is reason
    assert journal.decode_last_mark(bytes(16)) == LastMark(0, 0)


@pytest.mark.parametrize("name", ["8000000000000000.txn", ".txn", "1.log", "1.txn.bak", "x.txn", "1A.txn"])
def test_other_names_are_no_journals(name: str) -> None:
    """Only hex digits as bookies write them, of a positive id, and the ending."""
    assert journal.journal_id_of(name) is None


def test_many_records_are_read_in_runs() -> None:
    """More entries than are gathered at a time: nothing is lost or doubled, with and without padding between."""
    body = record(5, 0)
    raw = journal.encode([body] * (65_536 + 2))
    assert sum(1 for _ in journal.scan(raw + raw[512:])) == 2 * (65_536 + 2)


def test_behind_damage_ids_and_a_first_lac_are_no_special_record() -> None:
    """Entry 0 of ledger 1 begins as a record of an unknown kind would, five bytes late; that one ends with the file."""
    first = entry.encode(EntryHeader(1, 0, -1, 0), b"", Digest.CRC32C, b"pw")
    payload = bytes([112]) * (9 + 256 - 2 * len(first) - 4)
    raw = bytearray(journal.encode([first, record(0, 0, payload=payload)], 4))
    whole = list(journal.scan(bytes(raw)))
    assert len(whole) == 2
    raw[8:12] = bytes(4)
    damage, kept = journal.scan(bytes(raw))
    assert isinstance(damage, Damage)
    assert kept == whole[1]
