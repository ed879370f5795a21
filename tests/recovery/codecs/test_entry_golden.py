"""Entries: the worked examples byte for byte, and every entry of the real disks."""

import hashlib
from collections.abc import Iterator

import pytest

from recovery.codecs import entry, entry_log, journal
from recovery.codecs.entry import EntryHeader, LacRecord
from recovery.model.metadata import NO_ENTRY, Digest
from tests.support import bookie_files
from tests.support.cases import NAMES, truth

HEADER = EntryHeader(ledger=5, entry=3, lac=2, length=11)
PAYLOAD = b"hello world"
FRONT = "000000000000000500000000000000030000000000000002000000000000000b"
TEXT = "68656c6c6f20776f726c64"

ENTRIES = [
    (Digest.HMAC, b"", "b6dceaf7041d7213cc6c2e3a0cc3961cc21ab0db"),
    (Digest.HMAC, b"secret", "12788a91ba88683615295f2e09b5439fbbb9c80b"),
    (Digest.CRC32, b"secret", "000000008ae652ff"),
    (Digest.CRC32C, b"", "5e82cfb2"),
    (Digest.DUMMY, b"", ""),
]
LAC_RECORDS = [
    (Digest.HMAC, b"", "506151f26799d723d3e4a865df4557c69daa84e1"),
    (Digest.HMAC, b"secret", "3a411aa4064bcb2bdef433c704932961075c97bb"),
    (Digest.CRC32, b"", "0000000048226f36"),
    (Digest.CRC32C, b"", "89bafe66"),
    (Digest.DUMMY, b"", ""),
]


@pytest.mark.parametrize(("digest", "password", "middle"), ENTRIES)
def test_the_worked_entries(digest: Digest, password: bytes, middle: str) -> None:
    """Each example is made, read, and its digest type found, as a Java client has it."""
    raw = bytes.fromhex(FRONT + middle + TEXT)
    assert entry.encode(HEADER, PAYLOAD, digest, password) == raw
    assert entry.decode_header(raw) == HEADER
    assert entry.payload_of(raw, digest) == PAYLOAD
    assert entry.digest_agrees(raw, digest, password)
    proven = None if digest is Digest.DUMMY else (digest, password if digest is Digest.HMAC else None)
    assert entry.find_digest(raw, [b"secret"]) == proven


@pytest.mark.parametrize(("digest", "password", "end"), LAC_RECORDS)
def test_the_worked_explicit_lacs(digest: Digest, password: bytes, end: str) -> None:
    """Each example is made and read; its length tells the digest type."""
    raw = bytes.fromhex("00000000000000050000000000000002" + end)
    assert entry.encode_lac_record(5, 2, digest, password) == raw
    assert entry.decode_lac_record(raw) == LacRecord(5, 2, digest)
    assert entry.lac_record_agrees(raw, password)


def test_the_worked_master_keys() -> None:
    """The key that a bookie stores comes from the password, the empty one too."""
    assert entry.master_key(b"").hex() == "850bf1071c5e3d8c24235676f8816ae0cbe2f14f"
    assert entry.master_key(b"secret").hex() == "e793cbc379107648537183605cd361d3bb789a39"


def found(case: str) -> Iterator[bytes]:
    """Yield the bytes of every entry in the logs and journals of a case."""
    for path in bookie_files.entry_logs(case):
        raw = path.read_bytes()
        for at in entry_log.scan(raw):
            assert isinstance(at, entry_log.EntryAt)
            yield raw[at.position : at.position + at.size]
    for path in bookie_files.journals(case):
        raw = path.read_bytes()
        for record in journal.scan(raw):
            if isinstance(record, journal.JournalEntry):
                yield raw[record.at : record.at + record.size]


@pytest.mark.parametrize("case", NAMES)
def test_every_real_entry_is_what_its_writer_sent(case: str) -> None:
    """Digest, digest type, password, payload and header of each copy agree with what is known of the writer.

    Every entry that a client could read at the end is found on some disk.
    """
    writers = {row["ledger"]: row for row in truth(case)["ledgers"]}
    seen: dict[int, set[int]] = {}
    for raw in found(case):
        header = entry.decode_header(raw)
        row = writers.get(header.ledger)
        if row is None:
            continue  # deleted on purpose, or never came to be
        digest = Digest(row["writer"]["digest"].replace("MAC", "HMAC"))
        password = row["writer"]["password"].encode()
        assert entry.digest_agrees(raw, digest, password)
        proven = None if digest is Digest.DUMMY else (digest, password if digest is Digest.HMAC else None)
        assert entry.find_digest(raw, [password]) == proven
        payload = entry.payload_of(raw, digest)
        assert [len(payload), hashlib.sha256(payload).hexdigest()] == row["entries"][header.entry]
        assert header.lac >= NO_ENTRY
        assert header.length >= len(payload)
        seen.setdefault(header.ledger, set()).add(header.entry)
    for ledger, row in writers.items():
        assert seen.get(ledger, set()) >= set(range(row["client_saw"]["readable"])), f"ledger {ledger}"
