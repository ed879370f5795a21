"""Journals: what is written is read, what a crash cuts costs what it cuts, and any bytes at all."""

import struct
from collections.abc import Iterable

from hypothesis import assume, example, given
from hypothesis import strategies as st

from recovery.codecs import entry, journal
from recovery.codecs.journal import (
    FenceRecord,
    JournalEntry,
    LacRecordAt,
    LastMark,
    MasterKeyRecord,
    Record,
    UnknownRecord,
)
from recovery.errors import Damage, FormatError, Reason
from recovery.model.metadata import Digest
from tests.support import bookie_files
from tests.support.entries import LEDGERS, USUAL, records
from tests.support.mangling import mangled

SIZE = 4
VERSIONS = st.sampled_from([2, 3, 4, 5, 6])
METAS = st.one_of(
    st.builds(journal.encode_master_key, LEDGERS, st.binary(max_size=24)),
    st.builds(journal.encode_fence, LEDGERS),
    st.builds(journal.encode_lac, LEDGERS, st.binary(max_size=36)),
    st.builds(lambda ledger: struct.pack(">qq", ledger, -0x4000), LEDGERS),
)
BODIES = st.one_of(records(), METAS)
PROVABLE = records((Digest.CRC32, Digest.CRC32C), USUAL)
TORN = records(entry_ids=USUAL).filter(lambda record: len(record) > entry.HEADER_SIZE)
REAL = bookie_files.journals("c05")[0].read_bytes()[:9_000]


def joined(batches: Iterable[list[bytes]], version: int) -> bytes:
    """Return a journal of several batches, each padded."""
    out = journal.encode([], version)
    header = len(out)
    for batch in batches:
        out += journal.encode(batch, version)[header:]
    return out


def body(raw: bytes, record: Record) -> bytes:
    """Return the bytes of a record."""
    size = int.from_bytes(raw[record.at - SIZE : record.at], "big")
    return raw[record.at : record.at + size]


def whole(raw: bytes) -> list[Record]:
    """Return the records of a journal that has no damage."""
    found = list(journal.scan(raw))
    assert not any(isinstance(part, Damage) for part in found)
    return [part for part in found if not isinstance(part, Damage)]


@given(st.lists(st.lists(BODIES, max_size=4), max_size=4), VERSIONS, st.integers(0, 2))
def test_what_is_written_is_read(batches: list[list[bytes]], version: int, reserved: int) -> None:
    """Every record of every kind comes back in order with its own bytes; padding and reserved space are nothing."""
    raw = joined(batches, version) + bytes(512 * reserved)
    bodies = [item for batch in batches for item in batch]
    assert journal.header_of(raw) == (version, 512 if version >= 5 else 8)
    found = whole(raw)
    assert [body(raw, record) for record in found] == bodies
    for record, item in zip(found, bodies, strict=True):
        ledger, number = struct.unpack_from(">qq", item)
        match record:
            case JournalEntry():
                assert (record.ledger, record.entry, record.size) == (ledger, number, len(item))
            case MasterKeyRecord():
                assert (record.ledger, record.key) == (ledger, item[20:])
            case FenceRecord():
                assert (record.ledger, number) == (ledger, -0x2000)
            case LacRecordAt():
                assert (record.ledger, record.raw) == (ledger, item[20:])
            case UnknownRecord():
                assert (record.ledger, record.entry) == (ledger, -0x4000)


@given(st.lists(st.one_of(records(entry_ids=USUAL), METAS), min_size=1, max_size=6), VERSIONS, st.data())
def test_a_cut_file_costs_only_the_record_it_cuts(bodies: list[bytes], version: int, data: st.DataObject) -> None:
    """Cut anywhere inside the last record: all before are read, then at most one TRUNCATED up to the end."""
    raw = joined([bodies], version)
    found = whole(raw)
    last = found[-1].at - SIZE
    cut = data.draw(st.integers(last, last + SIZE + len(bodies[-1]) - 1))
    *before, end = [*journal.scan(raw[:cut]), None]
    if cut > last and any(raw[last:cut]):
        *before, end = before
        assert isinstance(end, Damage)
        assert (end.offset, end.length, end.reason) == (last, cut - last, Reason.TRUNCATED)
    assert before == found[:-1]


@given(st.lists(TORN, min_size=1, max_size=4), st.data())
def test_a_torn_batch_in_reserved_space_yields_no_false_entry(bodies: list[bytes], data: st.DataObject) -> None:
    """Bytes that never reached the disk read as zeros: what is cut is TRUNCATED, or an entry whose digest is wrong."""
    raw = joined([bodies], 6)
    found = whole(raw)
    cut = data.draw(st.integers(512, found[-1].at + len(bodies[-1])))
    torn = raw[:cut] + bytes(2048)
    for part in journal.scan(torn):
        if isinstance(part, Damage):
            assert part.reason is Reason.TRUNCATED
            assert part.offset + part.length == len(torn)
        else:
            assert part in found
            record = body(torn, part)
            kinds = [kind for kind in Digest if entry.digest_agrees(body(raw, part), kind, b"secret")]
            if record != body(raw, part) and Digest.DUMMY not in kinds[:1]:
                assert not any(
                    entry.digest_agrees(record, kind, b"secret") for kind in kinds if kind is not Digest.DUMMY
                )


@given(st.lists(PROVABLE, min_size=3, max_size=8), st.data())
def test_behind_a_hole_every_provable_entry_is_found(bodies: list[bytes], data: st.DataObject) -> None:
    """One record in the middle overwritten by zeros or noise: the others are read, and one Damage is the hole."""
    raw = joined([bodies], 6)
    found = whole(raw)
    victim = data.draw(st.sampled_from(found[1:-1]))
    begin, end = victim.at - SIZE, victim.at + len(body(raw, victim))
    noise = data.draw(st.sampled_from([b"\0", b"Z"]))
    parts = list(journal.scan(raw[:begin] + noise * (end - begin) + raw[end:]))
    [damage] = [part for part in parts if isinstance(part, Damage)]
    assert (damage.offset, damage.length) == (begin, end - begin)
    assert [part for part in parts if part != damage] == [record for record in found if record != victim]


@given(st.lists(PROVABLE, min_size=3, max_size=8), st.data())
def test_a_wrong_size_costs_its_own_record(bodies: list[bytes], data: st.DataObject) -> None:
    """A size that is wrong, too small or running over other records, hides none of them."""
    raw = bytearray(joined([bodies], 4))
    found = whole(bytes(raw))
    victim = data.draw(st.sampled_from(found[:-1]))
    size = data.draw(st.one_of(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(0, len(raw))))
    ends = {record.at + len(body(bytes(raw), record)) for record in found}
    assume(victim.at + size not in ends)  # such a journal is one of fewer records, with a wrong digest
    raw[victim.at - SIZE : victim.at] = struct.pack(">i", size)
    parts = list(journal.scan(bytes(raw)))
    kept = [part for part in parts if isinstance(part, JournalEntry) and part.at != victim.at]
    assert kept == [record for record in found if record != victim]
    assert any(isinstance(part, Damage) for part in parts)


@given(
    st.one_of(
        st.binary(max_size=200),
        st.tuples(VERSIONS, st.binary(max_size=200)).map(lambda made: joined([], made[0]) + made[1]),
        mangled(REAL),
        st.lists(BODIES, max_size=4).map(lambda batch: joined([batch], 6)).flatmap(mangled),
    )
)
@example(b"")
@example(bytes(2000))
@example(b"BKLG")
def test_any_bytes_are_records_or_damage(raw: bytes) -> None:
    """Whatever the bytes: parts in order, inside the file; as rows and as columns; or the version is refused."""
    try:
        journal.header_of(raw)
    except FormatError as error:
        assert error.reason is Reason.BAD_VERSION  # noqa: PT017  # both ways are right
        return
    at = 0
    rows = list(journal.scan(raw))
    for part in rows:
        if isinstance(part, Damage):
            begin, end = part.offset, part.offset + part.length
        else:
            begin, end = part.at - SIZE, part.at + len(body(raw, part))
        assert at <= begin < end <= len(raw)
        at = end
    columns: list[Record | Damage] = []
    for chunk in journal.scan_columns(raw):
        if isinstance(chunk, tuple):
            for ledger, number, position, size in zip(*(column.tolist() for column in chunk.columns()), strict=True):
                columns.append(JournalEntry(position, size, ledger, number))
        else:
            columns.append(chunk)
    assert columns == rows


@given(st.binary(max_size=20))
def test_any_bytes_are_a_mark_or_a_named_error(raw: bytes) -> None:
    """Sixteen bytes are a mark, which comes back; fewer, or negative fields, are refused."""
    try:
        mark = journal.decode_last_mark(raw)
    except FormatError:
        assert len(raw) < 16 or min(struct.unpack_from(">qq", raw)) < 0
        return
    assert journal.encode_last_mark(mark) == raw[:16]


def test_marks_are_ordered_as_a_bookie_takes_their_maximum() -> None:
    """By journal, then by offset."""
    assert max(LastMark(1, 900), LastMark(2, 5), LastMark(2, 4)) == LastMark(2, 5)


@given(st.text("0123456789abcdefABx.-tn", max_size=22))
def test_any_name_is_a_journal_or_not(name: str) -> None:
    """A name is one of a journal only if it is hex digits and the ending."""
    journal_id = journal.journal_id_of(name)
    assert journal_id is None or (name.endswith(".txn") and int(name[:-4], 16) == journal_id)
