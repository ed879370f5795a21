"""Formats of ledgers of scopes: what is written is read, by those who wrote it and by others; damage and any bytes."""

import struct
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from recovery.codecs import entry, entry_log, index_file, journal, ledger_db
from recovery.codecs.entry import EntryHeader
from recovery.codecs.entry_log import EntryAt, LogHeader
from recovery.codecs.framing import Entries, key_of
from recovery.codecs.journal import FenceRecord, JournalEntry, LacRecordAt, MasterKeyRecord, UnknownRecord
from recovery.codecs.ledger_db import BookieLedgerRow
from recovery.collect.rows.scoped_ids import Scopes, bucket_of, translate_keys
from recovery.errors import Damage, FormatError, Reason
from recovery.model.ids import LedgerId, buckets
from recovery.model.metadata import Digest
from tests.simulation.bookie_dir_scoped import Held
from tests.support.mangling import mangled

SIZE = 4
I64 = st.one_of(st.integers(-3, 3), st.integers(-(1 << 63), (1 << 63) - 1))
SCOPED = st.builds(LedgerId, I64.filter(bool), I64)
LEDGERS = st.one_of(SCOPED, st.builds(LedgerId, st.just(0), st.integers(0, 5)))
CRCS = (Digest.CRC32, Digest.CRC32C)


@st.composite
def records(
    draw: st.DrawFn, ledgers: st.SearchStrategy[LedgerId] = LEDGERS, digests: Sequence[Digest] = tuple(Digest)
) -> bytes:
    """One entry of a ledger of any scope."""
    payload = draw(st.binary(max_size=30))
    ledger, length = draw(ledgers), len(payload) + draw(st.integers(0, 1 << 40))
    number, lac = draw(st.integers(0, 300)), draw(st.integers(-1, 300))
    header = EntryHeader(ledger.ledger, number, lac, length, ledger.scope)
    return entry.encode(header, payload, draw(st.sampled_from(digests)), b"")


def named(raw: bytes, found: EntryAt | JournalEntry) -> bool:
    """Whether what was found has the ids that its bytes say."""
    at = found.position if isinstance(found, EntryAt) else found.at
    return entry.is_of(raw[at : at + found.size], LedgerId(found.scope, found.ledger), found.entry)


# Written by two, equal


@given(SCOPED, st.integers(0, 20), st.sampled_from(list(Digest)), st.sampled_from([b"", b"secret"]))
def test_an_entry_is_what_others_write(ledger: LedgerId, number: int, digest: Digest, password: bytes) -> None:
    """Header, digest and payload, and the explicit LAC, byte for byte; both are read and agree with their digests."""
    held = Held(ledger, digest=digest, password=password)
    header = EntryHeader(ledger.ledger, number, number - 1, held.length(number), ledger.scope)
    record = entry.encode(header, held.payload(number), digest, password)
    assert record == held.record(number)
    assert entry.decode_header(record) == header
    assert bytes(entry.payload_of(record, digest)) == held.payload(number)
    assert entry.digest_agrees(record, digest, password)
    lac = entry.encode_lac_record(ledger.ledger, number, digest, password, scope=ledger.scope)
    assert lac == held.lac_record(number)
    assert entry.lac_record_agrees(lac, password)


@given(SCOPED, st.binary(max_size=30))
def test_special_records_are_what_others_write(ledger: LedgerId, key: bytes) -> None:
    """But for the digest type in their first byte, which says nothing of a record without a digest."""
    held = Held(ledger, digest=Digest.DUMMY)
    size = struct.pack(">i", len(key))
    ids = {"scope": ledger.scope}
    assert journal.encode_master_key(ledger.ledger, key, **ids) == held.special(journal.MASTER_KEY_ID, size + key)
    assert journal.encode_fence(ledger.ledger, **ids) == held.special(journal.FENCE_ID)
    assert journal.encode_lac(ledger.ledger, key, **ids) == held.special(journal.LAC_ID, size + key)


def test_the_worked_example() -> None:
    """An entry of ledger 7:12345, a log of it, its index path and its keys, byte by byte."""
    header = EntryHeader(12_345, 3, 2, 11, scope=7)
    record = entry.encode(header, b"hello world", Digest.CRC32C)
    front = bytes.fromhex("a3 0000000000000007 0000000000003039 0000000000000003 0000000000000002 000000000000000b")
    assert record[:41] == front
    assert record[45:] == b"hello world"
    log = entry_log.encode([record], with_map=True)
    assert log[:20] == bytes.fromhex("424b4c4f 00000002 000000000000043c 00000001")
    assert log[1024:1028] == len(record).to_bytes(4)
    assert log[1028 + len(record) :] == bytes.fromhex(
        "0000002c ffffffffffffffff fffffffffffffffe 00000001 0000000000000007 0000000000003039 000000000000003c"
    )
    assert entry_log.read_map(log, LogHeader(2, 1084, 1)) == {(7, 12_345): 60}
    assert list(entry_log.scan(log)) == [EntryAt(12_345, 3, 1028, 56, scope=7)]
    assert index_file.path_of(12_345, 7) == "00000000/00000007/00000000/00003039.idx"
    row = ledger_db.encode_ledgers_row(BookieLedgerRow(12_345, fenced=False, master_key=b"", scope=7))
    assert row[0] == bytes.fromhex("0000000000000007 0000000000003039")
    key, value = ledger_db.encode_location(12_345, 3, 1028, scope=7)
    assert (key, value) == (bytes.fromhex("0000000000000007 0000000000003039 0000000000000003"), (1028).to_bytes(8))


# Entry logs


@given(st.lists(records(), max_size=8), st.booleans())
def test_a_log_comes_back(bodies: list[bytes], with_map: bool) -> None:
    """Every record in its order with its own bytes, of scope 0 and others in turns; the map says what each takes."""
    log = entry_log.encode(bodies, with_map=with_map)
    found = list(entry_log.scan(log))
    assert [log[at.position : at.position + at.size] for at in found if isinstance(at, EntryAt)] == bodies
    assert all(isinstance(at, EntryAt) and named(log, at) for at in found)
    header = entry_log.decode_header(log)
    assert header.version == (2 if any(at.scope for at in found if isinstance(at, EntryAt)) else 1)
    sizes: dict[object, int] = {}
    for at in found:
        if isinstance(at, EntryAt):
            sizes[key_of(at.scope, at.ledger)] = sizes.get(key_of(at.scope, at.ledger), 0) + at.size + SIZE
    assert entry_log.read_map(log, header) == (sizes if with_map and bodies else None)


@given(st.lists(records(digests=CRCS), min_size=3, max_size=8), st.data())
def test_damage_costs_what_it_hits(bodies: list[bytes], data: st.DataObject) -> None:
    """A record whose size is wrong is passed over, and reading goes on behind it, whatever its neighbours' scopes."""
    log = bytearray(entry_log.encode(bodies, with_map=False))
    whole = [at for at in entry_log.scan(bytes(log)) if isinstance(at, EntryAt)]
    victim = data.draw(st.sampled_from(whole[:-1]))
    log[victim.position - SIZE : victim.position] = data.draw(st.sampled_from([b"\xff\0\0\0", bytes(4), b"\0\0\0\5"]))
    found = list(entry_log.scan(bytes(log)))
    assert [part for part in found if isinstance(part, EntryAt)] == [at for at in whole if at != victim]
    assert any(isinstance(part, Damage) for part in found)


@given(st.lists(records(digests=CRCS), min_size=2, max_size=6), st.sampled_from([0, 1]))
def test_a_log_of_an_older_header_holds_none(bodies: list[bytes], version: int) -> None:
    """Whatever stands in it, no entry of a scope comes out; those of scope 0 do."""
    made = entry_log.encode(bodies, with_map=False)
    log = entry_log.encode_header(LogHeader(version, 0, 0)) + made[entry_log.HEADER_SIZE :]
    plain = [at for at in entry_log.scan(made) if isinstance(at, EntryAt) and not at.scope]
    known = [7, *(key_of(*entry.ids_of(body)) for body in bodies)]
    assert [part for part in entry_log.scan(log, known=known) if isinstance(part, EntryAt)] == plain
    if any(entry.ids_of(body)[0] for body in bodies):
        assert any(isinstance(part, Damage) for part in entry_log.scan(log))


@given(st.lists(records(digests=CRCS), min_size=1, max_size=6))
def test_a_log_whose_header_is_gone_needs_proof(bodies: list[bytes]) -> None:
    """Records of scopes are taken from it by their CRC."""
    made = entry_log.encode(bodies, with_map=True)
    whole = [at for at in entry_log.scan(made) if isinstance(at, EntryAt)]
    assert [at for at in entry_log.scan(bytes(8) + made[8:]) if isinstance(at, EntryAt)] == whole


def test_a_version_of_entries_that_nobody_knows_is_named() -> None:
    """Bits 4 to 6 of the first byte say which; what follows is read."""
    bodies = [Held(LedgerId(7, 5)).record(number) for number in range(4)]
    bodies[1] = b"\xb3" + bodies[1][1:]
    log = entry_log.encode(bodies, with_map=False)
    first, damage, *rest = entry_log.scan(log)
    assert isinstance(damage, Damage)
    assert (damage.reason, damage.detail) == (Reason.BAD_VERSION, "an entry of version 3")
    assert [part.entry for part in (first, *rest) if isinstance(part, EntryAt)] == [0, 2, 3]
    with pytest.raises(FormatError, match="version 3"):
        entry.decode_header(bodies[1])


def test_a_digest_that_nobody_knows_costs_no_entry() -> None:
    """Its number stands in the first byte; the entry is listed, and nothing proves its digest."""
    body = Held(LedgerId(7, 5)).record(0)
    odd = b"\xa9" + body[1:]
    (found,) = entry_log.scan(entry_log.encode([odd], with_map=False))
    assert found == EntryAt(5, 0, 1028, len(odd), scope=7)
    assert entry.find_digest(odd) is None
    assert entry.digest_named(odd[0]) is None


# Journals


def meta(scopes: st.SearchStrategy[LedgerId] = LEDGERS) -> st.SearchStrategy[bytes]:
    """One special record."""
    return st.one_of(
        st.builds(
            lambda of, key: journal.encode_master_key(of.ledger, key, scope=of.scope), scopes, st.binary(max_size=20)
        ),
        st.builds(lambda of: journal.encode_fence(of.ledger, scope=of.scope), scopes),
        st.builds(lambda of, raw: journal.encode_lac(of.ledger, raw, scope=of.scope), scopes, st.binary(max_size=36)),
    )


@given(st.lists(st.one_of(records(digests=CRCS), meta()), max_size=8), st.integers(2, 6))
def test_a_journal_comes_back(bodies: list[bytes], version: int) -> None:
    """Entries and special records, of scope 0 and others in turns, with reserved zeros behind."""
    assume(not bodies or bodies[-1][-1:] != b"\0")
    raw = journal.encode(bodies, version) + bytes(512)
    again: list[bytes] = []
    for part in journal.scan(raw):
        match part:
            case JournalEntry():
                assert named(raw, part)
                again.append(raw[part.at : part.at + part.size])
            case MasterKeyRecord():
                again.append(journal.encode_master_key(part.ledger, part.key, scope=part.scope))
            case FenceRecord():
                again.append(journal.encode_fence(part.ledger, scope=part.scope))
            case LacRecordAt():
                again.append(journal.encode_lac(part.ledger, part.raw, scope=part.scope))
            case UnknownRecord() | Damage():
                raise AssertionError(part)
    assert again == bodies


def entries_in(bodies: Iterable[bytes], known: Iterable[LedgerId] = ()) -> list[int]:
    """The ids of the entries that a journal of these records gives."""
    keys = [key_of(ledger.scope, ledger.ledger) for ledger in known]
    found = journal.scan(journal.encode(bodies) + bytes(512), known=keys)
    return [part.entry for part in found if isinstance(part, JournalEntry)]


@pytest.mark.parametrize("digest", CRCS)
def test_a_journal_believes_no_entry_of_a_scope_without_reason(digest: Digest) -> None:
    """A wrong CRC is taken where the ledger is known: by the caller, its master key, or a right entry before it."""
    held = Held(LedgerId(7, 5), digest=digest)
    wrong = held.record(1)[:-1] + b"\xff"
    assert entries_in([wrong, held.record(2), held.record(3)]) == [2, 3]
    assert entries_in([wrong], [held.id]) == [1]
    assert entries_in([held.special(journal.MASTER_KEY_ID, struct.pack(">i", 0)), wrong]) == [1]
    assert entries_in([held.record(0), wrong]) == [0, 1]
    assert entries_in([Held(LedgerId(8, 5)).record(0), wrong]) == [0]


@pytest.mark.parametrize("digest", [Digest.HMAC, Digest.DUMMY])
def test_what_no_crc_can_prove_leads_on_to_more(digest: Digest) -> None:
    """Entries of a journal whose master key stood in an earlier one."""
    held = Held(LedgerId(-7, -5), digest=digest, password=b"secret")
    assert entries_in(held.record(number) for number in range(6)) == [0, 1, 2, 3, 4, 5]


# Databases and paths


@given(st.lists(st.tuples(LEDGERS, st.integers(0, 1 << 50), st.integers(1, 1 << 50)), max_size=8))
def test_rows_of_databases_come_back(rows: list[tuple[LedgerId, int, int]]) -> None:
    """Locations and rows of ledgers, those of scopes from their own databases."""
    for scoped in (False, True):
        mine = [row for row in rows if bool(row[0].scope) is scoped]
        pairs = [ledger_db.encode_location(of.ledger, number, place, scope=of.scope) for of, number, place in mine]
        found = ledger_db.decode_locations([key for key, _ in pairs], [value for _, value in pairs], scoped=scoped)
        scope = np.zeros(len(mine), np.int64) if found.scope is None else found.scope
        assert list(map(LedgerId, scope.tolist(), found.ledger.tolist())) == [of for of, _, _ in mine]
        assert found.entry.tolist() == [number for _, number, _ in mine]
        assert found.location.tolist() == [place for _, _, place in mine]
        assert not found.damage
    for of, _, _ in rows:
        row = BookieLedgerRow(of.ledger, fenced=True, master_key=b"k", scope=of.scope)
        read = ledger_db.decode_scoped_ledgers_row if of.scope else ledger_db.decode_ledgers_row
        assert read(*ledger_db.encode_ledgers_row(row)) == row


@given(st.lists(st.tuples(st.binary(max_size=26), st.binary(max_size=9)), max_size=4))
def test_any_rows_are_rows_or_damage(rows: list[tuple[bytes, bytes]]) -> None:
    """Every row is taken, is damage, or holds no entry; a row of scope 0 does not belong there."""
    found = ledger_db.decode_locations([key for key, _ in rows], [value for _, value in rows], scoped=True)
    assert len(found.ledger) + len(found.damage) <= len(rows)
    assert found.scope is not None
    assert found.scope.all()
    for key, value in rows:
        try:
            assert ledger_db.decode_scoped_ledgers_row(key, value).scope
        except FormatError as error:
            assert error.reason  # noqa: PT017  # both ways are right


@given(SCOPED)
def test_a_path_names_its_ledger(ledger: LedgerId) -> None:
    """Four names of eight digits, which no path of scope 0 has; nothing else does."""
    path = index_file.path_of(ledger.ledger, ledger.scope)
    assert path.replace("/", "") == f"{ledger.qualified_name}.idx"
    assert index_file.parse_scoped_ledger(path) == ledger
    assert index_file.ledger_of(path) is None
    assert index_file.parse_scoped_ledger(index_file.path_of(5)) is None
    assert index_file.parse_scoped_ledger(f"00000000/00000000/{path[18:]}") is None


# Any bytes


REAL = entry_log.encode(
    [
        Held(LedgerId(scope, 5), digest=digest).record(number)
        for number in range(6)
        for scope in (0, 7, -7)
        for digest in Digest
    ],
    with_map=True,
)
JOURNAL = journal.encode(
    [
        body
        for number in range(6)
        for scope in (0, 7, -7)
        for body in (
            journal.encode_master_key(5, b"k" * 20, scope=scope),
            Held(LedgerId(scope, 5)).record(number),
            journal.encode_fence(5, scope=scope),
        )
    ]
) + bytes(600)


@given(st.one_of(mangled(REAL), st.binary(max_size=200).map(lambda raw: REAL[:1024] + raw)))
def test_any_log_is_entries_and_damage(raw: bytes) -> None:
    """Whatever the bytes: parts ascend and do not overlap, ids are those of the bytes, columns say the same."""
    at = entry_log.HEADER_SIZE
    parts = list(entry_log.scan(raw))
    for part in parts:
        begin = part.offset if isinstance(part, Damage) else part.position - SIZE
        assert begin >= min(at, begin)
        at = begin + (part.length if isinstance(part, Damage) else part.size + SIZE)
        assert at <= len(raw)
        assert isinstance(part, Damage) or named(raw, part)
    columns: list[EntryAt | Damage] = []
    for some in entry_log.scan_columns(raw):
        rows = [] if isinstance(some, Damage) else zip(*(column.tolist() for column in some.columns()), strict=True)
        columns += [some] if isinstance(some, Damage) else [EntryAt(*row) for row in rows]
    assert columns == parts
    try:
        entry_log.read_map(raw, entry_log.decode_header(raw))
    except FormatError as error:
        assert error.reason  # noqa: PT017  # both ways are right


@given(st.one_of(mangled(JOURNAL), st.binary(max_size=200).map(lambda raw: JOURNAL[:512] + raw)))
def test_any_journal_is_records_and_damage(raw: bytes) -> None:
    """Whatever the bytes: parts ascend and do not overlap, and ids are those of the bytes."""
    try:
        parts = list(journal.scan(raw))
    except FormatError as error:
        assert error.reason is Reason.BAD_VERSION  # noqa: PT017  # both ways are right
        return
    at = 0
    for part in parts:
        begin = part.offset if isinstance(part, Damage) else part.at - SIZE
        assert at <= begin < len(raw)
        at = begin + (part.length if isinstance(part, Damage) else SIZE)
        assert not isinstance(part, JournalEntry) or named(raw, part)


# Keys


@given(st.lists(st.lists(LEDGERS, max_size=6), max_size=5), st.lists(LEDGERS, max_size=6))
def test_keys_stand_for_their_ledgers(pieces: list[list[LedgerId]], others: list[LedgerId]) -> None:
    """One ledger has one key, whatever the order; keys give ids and buckets back; those of others are translated."""
    scopes, theirs = Scopes(), Scopes()
    keys: dict[LedgerId, int] = {}
    for piece in pieces:
        ids = np.array([(of.scope, of.ledger) for of in piece], np.int64).reshape(-1, 2)
        for of, key in zip(piece, scopes.keys(ids[:, 0], ids[:, 1]).tolist(), strict=True):
            assert keys.setdefault(of, key) == key
            assert key == of.ledger if of.scope == 0 else key < -1
    assert len(set(keys.values())) == len(keys)
    every = np.array(list(keys.values()), np.int64)
    scope, ledger = scopes.ids(every)
    assert (
        list(map(LedgerId, scope.tolist(), ledger.tolist())) == list(keys) == [scopes.id(key) for key in every.tolist()]
    )
    assert bucket_of(every).tolist() == buckets(scope, ledger).tolist()
    assert scopes.from_codec_keys(scopes.to_codec_keys(every)).tolist() == every.tolist()
    largest: dict[int, LedgerId] = {}
    for of in keys:
        if of.scope:
            largest[of.scope] = max(of, largest.get(of.scope, of))
    assert list(scopes.find_largest()) == sorted(largest.values())
    elsewhere = np.array([theirs.key(of.scope, of.ledger) for of in others], np.int64)
    ours = translate_keys(elsewhere, scopes.absorb(theirs)).tolist()
    assert [scopes.id(key) for key in ours] == others


def test_many_ledgers_keep_their_keys() -> None:
    """More than 2^20 scopes, met in pieces of very different sizes and asked for again in another order."""
    scopes, random = Scopes(), np.random.default_rng(7)
    ids = random.integers(-(1 << 63), (1 << 63) - 1, ((1 << 20) + 9_999, 2))
    ids[::3, 0] = -1
    ids[1::3, 1] = ids[1, 1]
    cuts = [*range(0, 3_000, 3), 10_000, 10_001, 400_000, 400_100, 1_000_000, len(ids)]
    keys = [scopes.keys(piece[:, 0], piece[:, 1]) for piece in map(ids.__getitem__, map(slice, cuts, cuts[1:]))]
    every = np.concatenate(keys)
    assert len(np.unique(every)) == len(ids)
    assert np.array_equal(np.column_stack(scopes.ids(every)), ids)
    order = random.permutation(len(ids))[: 1 << 16]
    assert scopes.keys(ids[order, 0], ids[order, 1]).tolist() == every[order].tolist()
    assert scopes.are_known(ids[order, 0], ids[order, 1]).all()
    assert not scopes.are_known(ids[order, 0], ids[order, 1] ^ 1).any()


def test_keys_take_the_place_of_ids() -> None:
    """Of what codecs found; what is of scope 0 is not touched."""
    scopes = Scopes()
    ledger, number, position, size = (np.array(column) for column in ([5, 5], [0, 1], [4, 50], [40, 40]))
    plain = Entries(ledger, number, position, size)
    mixed = plain._replace(scope=np.array([0, 7]))
    parts: list[Entries | FenceRecord | Damage] = [
        plain,
        mixed,
        FenceRecord(3, 5, 7),
        FenceRecord(3, 5),
        Damage(1, 2, Reason.ZEROS),
    ]
    first, second, other, damage, fence = scopes.replace_ids(parts)
    assert (first, other, damage) == (plain, parts[3], parts[4])
    key = scopes.key(7, 5)
    assert isinstance(second, Entries)
    assert (second.ledger.tolist(), second.scope) == ([5, key], None)
    assert fence == FenceRecord(3, key)
