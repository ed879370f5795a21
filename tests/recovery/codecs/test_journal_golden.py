"""Journals and replay marks: the worked example byte for byte, and every one of the real disks."""

import pytest

from recovery.codecs import entry, journal
from recovery.codecs.journal import (
    FenceRecord,
    JournalEntry,
    LacRecordAt,
    LastMark,
    MasterKeyRecord,
)
from recovery.errors import Damage
from tests.support import bookie_files
from tests.support.cases import NAMES, truth

KEY = bytes.fromhex("850bf1071c5e3d8c24235676f8816ae0cbe2f14f")
LAC = bytes.fromhex("0000000000000005 0000000000000002 89bafe66")
ENTRY = bytes.fromhex(
    "0000000000000005 0000000000000003 0000000000000002 000000000000000b 5e82cfb2 68656c6c6f20776f726c64"
)
EXAMPLE = (
    bytes.fromhex("424b4c47 00000006").ljust(512, b"\0")
    + bytes.fromhex("00000028 0000000000000005 fffffffffffff000 00000014 850bf1071c5e3d8c24235676f8816ae0cbe2f14f")
    + bytes.fromhex("0000002f")
    + ENTRY
    + bytes.fromhex("00000010 0000000000000005 ffffffffffffe000")
    + bytes.fromhex("00000028 0000000000000005 ffffffffffff8000 00000014 0000000000000005 0000000000000002 89bafe66")
    + bytes.fromhex("ffffff00 00000159")
    + bytes(345)
)


def test_the_worked_example() -> None:
    """A journal of version 6 with one record of each kind is made and read."""
    bodies = [journal.encode_master_key(5, KEY), ENTRY, journal.encode_fence(5), journal.encode_lac(5, LAC)]
    assert len(EXAMPLE) == 1024
    assert journal.encode(bodies, 6) == EXAMPLE
    assert journal.header_of(EXAMPLE) == (6, 512)
    records = [
        MasterKeyRecord(516, 5, KEY),
        JournalEntry(560, 47, 5, 3),
        FenceRecord(611, 5),
        LacRecordAt(631, 5, LAC),
    ]
    assert list(journal.scan(EXAMPLE)) == records
    assert list(journal.scan(EXAMPLE + bytes(512))) == records, "reserved space"


@pytest.mark.parametrize(("end", "zeros"), [(504, 0), (503, 1), (505, 511), (508, 508), (1, 503)])
def test_the_worked_paddings(end: int, zeros: int) -> None:
    """A batch is padded to the next boundary that has room for the padding's own eight bytes."""
    body = ENTRY.ljust(512 + end - 4, b"\0")
    made = journal.encode([body], 6)
    assert made[1024 + end :] == (-256).to_bytes(4, "big", signed=True) + zeros.to_bytes(4, "big") + bytes(zeros)
    assert len(made) % 512 == 0


def test_the_worked_mark() -> None:
    """A replay mark is made and read, and names its journal."""
    raw = bytes.fromhex("0000018bcfe56801 0000000000001400")
    assert journal.decode_last_mark(raw) == LastMark(1700000000001, 5120)
    assert journal.encode_last_mark(LastMark(1700000000001, 5120)) == raw
    assert journal.journal_id_of("18bcfe56801.txn") == 1700000000001


@pytest.mark.parametrize("case", NAMES)
def test_every_real_journal_is_whole(case: str) -> None:
    """No real journal has damage; explicit LACs and keys are those of the ledger's writer; marks lead to a journal."""
    writers = {row["ledger"]: row["writer"] for row in truth(case)["ledgers"]}
    journals = bookie_files.journals(case)
    assert journals
    for path in journals:
        for record in journal.scan(path.read_bytes()):
            assert not isinstance(record, Damage | journal.UnknownRecord)
            if record.ledger not in writers:
                continue
            password = writers[record.ledger]["password"].encode()
            if isinstance(record, MasterKeyRecord):
                assert record.key == entry.master_key(password)
            elif isinstance(record, LacRecordAt):
                assert entry.decode_lac_record(record.raw).ledger == record.ledger
                assert entry.lac_record_agrees(record.raw, password)
    for path in bookie_files.last_marks(case):
        raw = path.read_bytes()
        mark = journal.decode_last_mark(raw)
        assert journal.encode_last_mark(mark) == raw


@pytest.mark.parametrize("case", NAMES)
def test_a_real_journal_is_made_again_from_its_records(case: str) -> None:
    """Batch by batch, the bytes up to the reserved space come from the records, padding included."""
    for path in bookie_files.journals(case):
        raw = memoryview(path.read_bytes())
        version, at = journal.header_of(raw)
        made = bytes(journal.encode([], version))
        assert made == raw[:at]
        batch: list[bytes] = []
        for record in journal.scan(raw):
            assert not isinstance(record, Damage)
            if record.at - 4 != at:
                made = _with_batch(made, batch, version)
                batch = []
                assert len(made) == record.at - 4
            size = int.from_bytes(raw[record.at - 4 : record.at], "big")
            batch.append(bytes(raw[record.at : record.at + size]))
            at = record.at + size
        made = _with_batch(made, batch, version)
        assert made == raw[: len(made)]
        assert not any(raw[len(made) :])


def _with_batch(made: bytes, batch: list[bytes], version: int) -> bytes:
    """Return a journal with one more padded batch; what `encode` pads depends on the position modulo 512 only."""
    header = journal.header_of(made)[1]
    return made + journal.encode(batch, version)[header:]


def test_the_cases_have_every_kind_of_record() -> None:
    """Fences and explicit LACs are among what is read above, and journals of version 5 and 6."""
    kinds = {type(record) for path in bookie_files.journals("c05") for record in journal.scan(path.read_bytes())}
    assert kinds == {JournalEntry, MasterKeyRecord, FenceRecord, LacRecordAt}
    versions = {journal.header_of(path.read_bytes())[0] for path in bookie_files.journals("c08b")}
    assert versions == {5, 6}
