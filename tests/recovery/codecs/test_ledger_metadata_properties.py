"""Ledger metadata: round trips, any bytes at all, and that columns and records agree."""

from dataclasses import replace

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from recovery.codecs import ledger_metadata as codec
from recovery.errors import FormatError
from recovery.model import tables
from recovery.model.ids import is_bookie_id
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment

I64 = st.integers(-(1 << 63), (1 << 63) - 1)
BOOKIES = st.one_of(
    st.builds("{}:{}".format, st.sampled_from(["10.0.0.1", "bk-3.example.com", "é".encode("punycode").decode()]), I64),
    st.text("abcXYZ019:;<=>?@[\\]^_.-", min_size=1, max_size=40).filter(is_bookie_id),
)
CUSTOM = st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=200)), max_size=3, unique_by=lambda entry: entry[0])
COLUMNS = pa.schema(
    [
        ("ensemble_size", pa.int32()),
        ("write_quorum", pa.int32()),
        ("ack_quorum", pa.int32()),
        ("state", pa.string()),
        ("last_entry", pa.int64()),
        ("length", pa.int64()),
        ("segments", tables.SEGMENTS),
        ("digest", pa.string()),
        ("password", pa.binary()),
        ("ctime", pa.int64()),
        ("custom", tables.CUSTOM),
    ]
)


@st.composite
def ledgers(draw: st.DrawFn, formats: tuple[int, ...] = (1, 2, 3)) -> LedgerMetadata:
    """Any record that BookKeeper takes, sound or not."""
    size = draw(st.integers(1, 4))
    starts = sorted(draw(st.sets(I64, min_size=1, max_size=3)))
    ensembles = st.lists(BOOKIES, min_size=size, max_size=size)
    state = draw(st.sampled_from(LedgerState))
    closed = state is LedgerState.CLOSED
    version = draw(st.sampled_from(formats))
    write_quorum = draw(st.integers(-1, size))
    # As the last entry of a closed ledger, format 1 takes this one for a mark of recovery.
    last_entry = draw(I64.filter(lambda entry: entry != -102)) if closed else None
    lines = version == 1
    secret = not lines and draw(st.integers(0, 9)) > 0
    return LedgerMetadata(
        format=version,
        ensemble_size=size,
        write_quorum=write_quorum,
        ack_quorum=write_quorum if lines else draw(st.integers(-2, write_quorum)),
        state=state,
        last_entry=last_entry,
        length=draw(I64) if closed else None,
        segments=tuple(Segment(start, tuple(draw(ensembles))) for start in starts),
        digest=draw(st.sampled_from(Digest)) if secret else None,
        password=draw(st.binary(max_size=150)) if secret else None,
        ctime=None if lines else draw(st.none() | I64),
        custom=() if lines else tuple(draw(CUSTOM)),
        creator_token=draw(st.none() | I64) if version == 3 else None,
        unknown=draw(st.sampled_from([b"", b"\x7a\x01x", b"\x68\x01\x7a\x00"])) if version == 3 else b"",
    )


@given(ledgers())
def test_what_is_written_reads_back_the_same(metadata: LedgerMetadata) -> None:
    """Every field survives each format that has a place for it, absent and empty told apart."""
    reading = codec.read(codec.encode(metadata))
    assert reading.metadata == metadata
    assert bool(reading.oddities) == bool(metadata.unknown)


def judge(raw: bytes) -> codec.RecordReading | FormatError:
    """What a record says, or why it is refused."""
    try:
        return codec.read(memoryview(raw))
    except FormatError as error:
        return error


@given(
    st.one_of(
        st.binary(max_size=200),
        st.builds(
            b"".join,
            st.tuples(st.just(codec.MAGIC), st.sampled_from([b"1\n", b"2\n", b"3\n", b""]), st.binary(max_size=200)),
        ),
    )
)
@example(codec.MAGIC + b"2\n" + b"{" * 3000)
@example(codec.MAGIC + b"2\n" + b"a:{" * 3000)
@example(codec.MAGIC + b"1\n" + b"9" * 5000 + b"\n1\n1\n0\ta\n")
def test_any_bytes_are_a_record_or_a_named_error(raw: bytes) -> None:
    """Nothing else comes out of bytes that are no record, and columns say the same as the record codec."""
    parsed = codec.decode_columns(pa.array([raw], pa.binary())).to_pylist()[0]
    judged = judge(raw)
    if isinstance(judged, FormatError):
        assert parsed["error"].startswith(judged.reason)
        assert set(parsed.values()) == {None, parsed["error"]}
    else:
        assert parsed["error"] is None


@given(ledgers(), st.data())
def test_a_changed_record_never_passes_in_silence(metadata: LedgerMetadata, data: st.DataObject) -> None:
    """Cut or changed anywhere, a record is refused, or re-encodes to its bytes, or says what is odd about it."""
    raw = bytearray(codec.encode(metadata))
    at = data.draw(st.integers(0, len(raw) - 1))
    match data.draw(st.sampled_from(["cut", "set", "insert"])):
        case "cut":
            del raw[at:]
        case "set":
            raw[at] = data.draw(st.integers(0, 255))
        case _:
            raw[at:at] = data.draw(st.binary(min_size=1, max_size=3))
    judged = judge(bytes(raw))
    if isinstance(judged, FormatError):
        assert 0 <= judged.offset <= len(raw)
    else:
        assert judged.oddities or codec.encode(judged.metadata) == bytes(raw)


@given(st.lists(ledgers((1, 3)), max_size=6))
def test_columns_are_encoded_as_records_are(metadata: list[LedgerMetadata]) -> None:
    """Row by row, a table gives the bytes of the record codec; rows without a password become format 1."""
    rows = [
        {
            **{name: getattr(one, name) for name in COLUMNS.names if name not in ("segments", "custom")},
            "segments": [{"first": part.first, "members": list(part.members)} for part in one.segments],
            "custom": [{"key": key, "value": value} for key, value in one.custom] or None,
        }
        for one in metadata
    ]
    expected = [
        codec.encode(replace(one, format=1 if one.password is None else 3, creator_token=0, unknown=b""))
        for one in metadata
    ]
    assert codec.encode_columns(pa.Table.from_pylist(rows, schema=COLUMNS)).to_pylist() == expected


@given(st.lists(ledgers(), max_size=6))
def test_columns_are_decoded_as_records_are(metadata: list[LedgerMetadata]) -> None:
    """What the catalog's columns say of a record is what the record codec says."""
    parsed = codec.decode_columns(pa.array([codec.encode(one) for one in metadata], pa.binary()))
    parsed.validate(full=True)
    for one, row in zip(metadata, parsed.to_pylist(), strict=True):
        plain = [field.name for field in tables.METADATA_FIELDS]
        assert {name: row[name] for name in plain} == {name: getattr(one, name) for name in plain}
        assert row["segments"] == [{"first": part.first, "members": list(part.members)} for part in one.segments]
        custom = [{"key": key, "value": value} for key, value in one.custom]
        assert row["custom"] == (None if one.format == 1 else custom)
        assert (row["password_hash"] is None) == (one.password is None)


@given(ledgers())
def test_problems_are_found_without_failing(metadata: LedgerMetadata) -> None:
    """Any record can be judged, and a sound one stays sound through its bytes."""
    assert codec.problems(codec.decode(codec.encode(metadata))) == codec.problems(metadata)
