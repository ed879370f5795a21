"""Entries, digests and explicit LACs: round trips, and any bytes at all."""

from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from recovery.codecs import entry
from recovery.codecs.entry import EntryHeader, LacRecord
from recovery.errors import FormatError
from recovery.model.metadata import Digest
from tests.support.entries import IDS, LEDGERS, PASSWORDS, SCOPES, records
from tests.support.mangling import mangled

HEADERS = st.builds(EntryHeader, LEDGERS, IDS, st.one_of(st.just(-1), IDS), IDS, SCOPES)
DIGESTS = st.sampled_from(Digest)
CHECKED = (Digest.CRC32, Digest.CRC32C, Digest.HMAC)
WORKED = entry.encode(EntryHeader(5, 3, 2, 11), b"hello world", Digest.CRC32C)


@given(HEADERS, st.binary(max_size=100), DIGESTS, PASSWORDS)
def test_an_entry_comes_back(header: EntryHeader, payload: bytes, digest: Digest, password: bytes) -> None:
    """Header and payload are what was encoded, and the digest agrees; from bytes and from a view alike."""
    raw = entry.encode(header, payload, digest, password)
    for record in (raw, memoryview(b"x" + raw)[1:]):
        assert entry.decode_header(record) == header
        assert entry.payload_of(record, digest) == payload
        assert entry.digest_agrees(record, digest, password)


@given(HEADERS, st.binary(max_size=100), st.sampled_from(CHECKED), PASSWORDS)
def test_the_digest_type_is_found(header: EntryHeader, payload: bytes, digest: Digest, password: bytes) -> None:
    """One entry proves its digest type, and an HMAC its password."""
    raw = entry.encode(header, payload, digest, password)
    expected = (digest, password if digest is Digest.HMAC else None)
    assert entry.find_digest(raw, [b"other", b"secret"]) == expected


@given(records(CHECKED), st.data())
def test_any_changed_byte_is_noticed(record: bytes, data: st.DataObject) -> None:
    """A checked entry with one byte changed anywhere no longer agrees with its digest."""
    [digest] = [kind for kind in CHECKED if any(entry.digest_agrees(record, kind, key) for key in (b"", b"secret"))]
    at = data.draw(st.integers(0, len(record) - 1))
    changed = bytearray(record)
    changed[at] ^= data.draw(st.integers(1, 255))
    assert not any(entry.digest_agrees(bytes(changed), digest, key) for key in (b"", b"secret"))


@given(records((Digest.HMAC,)), st.binary(max_size=10))
def test_a_wrong_password_is_noticed(record: bytes, password: bytes) -> None:
    """An HMAC agrees with the password that made it only."""
    assume(password not in (b"", b"secret"))
    assert not entry.digest_agrees(record, Digest.HMAC, password)


@given(LEDGERS, st.one_of(st.just(-1), IDS), DIGESTS, PASSWORDS, SCOPES)
def test_an_explicit_lac_comes_back(ledger: int, lac: int, digest: Digest, password: bytes, scope: int) -> None:
    """Ledger, LAC and digest type are what was encoded, and the digest agrees."""
    raw = entry.encode_lac_record(ledger, lac, digest, password, scope=scope)
    assert entry.decode_lac_record(raw) == LacRecord(ledger, lac, digest, scope)
    assert entry.lac_record_agrees(raw, password)


@pytest.mark.parametrize("parse", [entry.decode_header, entry.decode_lac_record])
@given(raw=st.one_of(st.binary(max_size=64), mangled(WORKED)))
def test_any_bytes_are_a_value_or_a_named_error(parse: Callable[[bytes], object], raw: bytes) -> None:
    """Nothing but FormatError comes out of bytes that are no entry; its place is inside them or at their end."""
    try:
        parse(raw)
    except FormatError as error:
        assert 0 <= error.offset <= len(raw)  # noqa: PT017  # both ways are right


@given(st.one_of(st.binary(max_size=64), mangled(WORKED)), DIGESTS)
def test_any_bytes_can_be_asked_for_their_digest(raw: bytes, digest: Digest) -> None:
    """Asking about digests and keys never fails, and what `find_digest` names agrees."""
    entry.digest_agrees(raw, digest)
    entry.lac_record_agrees(raw)
    assert entry.key_kind(raw) in ("empty", "zero", "set")
    found = entry.find_digest(raw, [b"secret"])
    assert found is None or entry.digest_agrees(raw, found[0], found[1] or b"")


@given(st.one_of(records(), records().flatmap(mangled), st.binary(max_size=64)))
def test_what_is_proven_is_what_the_codec_says(raw: bytes) -> None:
    """Whole, mangled or any bytes: header and digest type at once are those one by one; without a CRC, none."""
    proven = entry.find_proven(raw)
    try:
        header, found = entry.decode_header(raw), entry.find_digest(raw)
    except FormatError:
        assert proven is None
        return
    if proven is not None:
        assert (proven[0], (proven[1], None)) == (header, found)
    elif len(raw) >= entry.header_size(raw) + 8:
        assert found is None or found[0] is Digest.HMAC
