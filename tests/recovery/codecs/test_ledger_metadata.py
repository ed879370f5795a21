"""Ledger metadata: BookKeeper's test vectors, what a reader takes, what it refuses, and what a repair may write."""

from dataclasses import replace

import pyarrow as pa
import pytest

from recovery.codecs import ledger_metadata as codec
from recovery.codecs._pb.ledger_metadata_pb2 import LedgerMetadataFormat
from recovery.errors import FormatError, Reason
from recovery.model import tables
from recovery.model.metadata import WRITTEN_FORMAT, Digest, LedgerMetadata, LedgerState, Segment

MEMBERS = ("10.0.0.1:3181", "10.0.0.2:3181", "bk-3.example.com:3181")
CHANGED = ("10.0.0.1:3181", "bookie_four", "bk-3.example.com:3181")
CLOSED = LedgerMetadata(
    format=3,
    ensemble_size=3,
    write_quorum=2,
    ack_quorum=2,
    state=LedgerState.CLOSED,
    last_entry=149,
    length=150000,
    segments=(Segment(0, MEMBERS), Segment(100, CHANGED)),
    digest=Digest.CRC32C,
    password=b"s3cr3t",
    ctime=1700000000000,
    custom=(("application", b"pulsar"), ("component", b"\x00\xff\x22")),
    creator_token=0x1122334455667788,
)
TEXT = replace(CLOSED, format=2, creator_token=None)
LINES = replace(TEXT, format=1, digest=None, password=None, ctime=None, custom=())

HEADER_3 = "426f6f6b69654d65746164617461466f726d617456657273696f6e09330a"
SEGMENTS_3 = (
    "3237 0a0d31302e302e302e313a33313831 0a0d31302e302e302e323a33313831"
    "0a15626b2d332e6578616d706c652e636f6d3a33313831 1000"
    "3235 0a0d31302e302e302e313a33313831 0a0b626f6f6b69655f666f7572"
    "0a15626b2d332e6578616d706c652e636f6d3a33313831 1064"
)
SECRET_3 = "3803 4206733363723374 4802"
NO_ENTRY_3 = "20ffffffffffffffffff01"


def raw_3(body: str) -> bytes:
    """A record of format 3 from hex."""
    return bytes.fromhex(HEADER_3 + body.replace(" ", ""))


VECTORS = {
    "format 1, closed": (
        LINES,
        codec.MAGIC + b"1\n2\n3\n150000\n"
        b"0\t10.0.0.1:3181\t10.0.0.2:3181\tbk-3.example.com:3181\n"
        b"100\t10.0.0.1:3181\tbookie_four\tbk-3.example.com:3181\n"
        b"149\tCLOSED",
    ),
    "format 2, closed": (
        TEXT,
        b"""BookieMetadataFormatVersion\t2
quorumSize: 2
ensembleSize: 3
length: 150000
lastEntryId: 149
state: CLOSED
segment {
  ensembleMember: "10.0.0.1:3181"
  ensembleMember: "10.0.0.2:3181"
  ensembleMember: "bk-3.example.com:3181"
  firstEntryId: 0
}
segment {
  ensembleMember: "10.0.0.1:3181"
  ensembleMember: "bookie_four"
  ensembleMember: "bk-3.example.com:3181"
  firstEntryId: 100
}
digestType: CRC32C
password: "s3cr3t"
ackQuorumSize: 2
ctime: 1700000000000
customMetadata {
  key: "application"
  value: "pulsar"
}
customMetadata {
  key: "component"
  value: "\\000\\377\\""
}
""",
    ),
    "format 3, closed": (
        CLOSED,
        raw_3(
            f"c301 0802 1003 18f09309 209501 2803 {SEGMENTS_3} {SECRET_3} 5080d095ffbc31"
            "5a15 0a0b6170706c69636174696f6e 120670756c736172"
            "5a10 0a09636f6d706f6e656e74 120300ff22 6088ef99abc5e88c9111"
        ),
    ),
    "format 3, open": (
        replace(CLOSED, state=LedgerState.OPEN, last_entry=None, length=None, ctime=None, custom=(), creator_token=7),
        raw_3(f"9101 0802 1003 1800 {NO_ENTRY_3} 2801 {SEGMENTS_3} {SECRET_3} 6007"),
    ),
    "format 3, in recovery": (
        replace(
            CLOSED, state=LedgerState.IN_RECOVERY, last_entry=None, length=None, ctime=None, custom=(), creator_token=0
        ),
        raw_3(f"9101 0802 1003 1800 {NO_ENTRY_3} 2802 {SEGMENTS_3} {SECRET_3} 6000"),
    ),
    "format 3, no entry, empty password": (
        LedgerMetadata(
            3, 1, 1, 1, LedgerState.CLOSED, -1, 0, (Segment(0, MEMBERS[:1]),), Digest.CRC32, b"", creator_token=0
        ),
        raw_3(f"2e 0801 1001 1800 {NO_ENTRY_3} 2803 3211 0a0d31302e302e302e313a33313831 1000 3801 4200 4801 6000"),
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_are_written_and_read(name: str) -> None:
    """The bytes that BookKeeper's Java classes give for these ledgers, both ways, with nothing odd about them."""
    metadata, raw = VECTORS[name]
    assert codec.encode(metadata).hex(" ") == raw.hex(" ")
    assert codec.read(raw) == codec.RecordReading(metadata, ())
    assert codec.decode(memoryview(raw)) == metadata


def message(**changes: object) -> LedgerMetadataFormat:
    """A sound message of one bookie, with fields changed; None leaves a field out."""
    fields: dict[str, object] = {
        "quorumSize": 1,
        "ensembleSize": 1,
        "length": 30,
        "lastEntryId": 2,
        "state": 3,
        "segment": [{"ensembleMember": [b"a"], "firstEntryId": 0}],
        "digestType": 1,
        "password": b"pw",
        "ackQuorumSize": 1,
        "cToken": 0,
    }
    made = LedgerMetadataFormat()
    for name, value in (fields | changes).items():
        if isinstance(value, list):
            for part in value:
                getattr(made, name).add(**part)
        elif value is not None:
            setattr(made, name, value)
    return made


def framed(body: bytes, size: int | None = None) -> bytes:
    """Put a body of less than 128 bytes behind header and length."""
    return codec.MAGIC + b"3\n" + bytes([len(body) if size is None else size]) + body


def record(**changes: object) -> bytes:
    """The bytes of `message`."""
    return framed(message(**changes).SerializeToString())


def segments(*starts: int, members: tuple[bytes, ...] = (b"a",)) -> list[dict[str, object]]:
    """Segments of a message, one for each start."""
    return [{"ensembleMember": list(members), "firstEntryId": start} for start in starts]


SOUND = message().SerializeToString()

TAKEN: dict[str, tuple[bytes, dict[str, object], str | None]] = {
    "bytes after the message": (framed(SOUND) + b"zz", {}, "bytes after the message: 2"),
    "announced longer than it is": (framed(SOUND, 120), {}, "announced 120 bytes"),
    "last entry absent, closed": (record(lastEntryId=None), {"last_entry": 0}, "taken as 0"),
    "last entry of an open one": (record(state=1), {"last_entry": None, "length": None}, "not closed: ignored"),
    "digest absent": (record(digestType=None), {"digest": Digest.CRC32}, "taken as CRC32"),
    "digest unknown": (framed(SOUND + b"\x38\x63\x38\x63"), {"digest": Digest.CRC32}, "unknown fields"),
    "password absent": (record(password=None), {"digest": None, "password": None}, "without a password: ignored"),
    "digest and password absent": (record(digestType=None, password=None), {"digest": None, "password": None}, None),
    "ack quorum absent": (record(ackQuorumSize=None), {"ack_quorum": 1}, "taken as the write quorum"),
    "quorums of zero": (record(quorumSize=0, ackQuorumSize=0), {"write_quorum": 0, "ack_quorum": 0}, None),
    "a bookie twice": (
        record(ensembleSize=2, segment=segments(0, members=(b"a", b"a"))),
        {"segments": (Segment(0, ("a", "a")),)},
        None,
    ),
    "first segment not at 0": (record(segment=segments(-3)), {"segments": (Segment(-3, ("a",)),)}, None),
    "segment past the end": (record(segment=segments(0, 9)), {"last_entry": 2}, None),
    "negative end": (record(lastEntryId=-5, length=-9), {"last_entry": -5, "length": -9}, None),
    "no creator token": (record(cToken=None), {"creator_token": None}, None),
    "a key twice": (
        record(customMetadata=[{"key": b"k", "value": b"1"}, {"key": b"k", "value": b"2"}]),
        {"custom": (("k", b"1"), ("k", b"2"))},
        "the later one counts",
    ),
    "unknown field": (framed(SOUND + b"\x7a\x01x"), {"unknown": b"\x7a\x01x"}, "unknown fields, kept: 3"),
    "unknown field in a segment": (
        framed(SOUND.replace(b"\x32\x05\x0a\x01a\x10\x00", b"\x32\x07\x0a\x01a\x10\x00\x18\x01")),
        {"unknown": b""},
        "inside a segment",
    ),
    "leading zeros in the format": (framed(SOUND).replace(b"\t3\n", b"\t000000003\n"), {}, "in another way"),
    "sign before the format": (framed(SOUND).replace(b"\t3\n", b"\t+3\n"), {}, "in another way"),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_any_bookkeeper_takes_is_taken_and_told(name: str) -> None:
    """Every tolerated oddity gives the value that BookKeeper gives, and is named unless it re-encodes to itself."""
    raw, expected, oddity = TAKEN[name]
    reading = codec.read(raw)
    assert {field: getattr(reading.metadata, field) for field in expected} == expected
    if oddity is None:
        assert reading.oddities == ()
        assert codec.encode(reading.metadata) == raw
    else:
        assert oddity in "; ".join(reading.oddities)


REFUSED = {
    "empty": (b"", Reason.EMPTY),
    "cut in the header": (codec.MAGIC[:9], Reason.TRUNCATED),
    "no header": (b"2\n3\n0\n0\ta\tb\tc\n", Reason.BAD_MAGIC),
    "blank for the tab": (framed(SOUND).replace(b"\t", b" "), Reason.BAD_MAGIC),
    "ten digits": (framed(SOUND).replace(b"\t3\n", b"\t0000000003\n"), Reason.BAD_VERSION),
    "carriage return": (framed(SOUND).replace(b"\t3\n", b"\t3\r\n"), Reason.BAD_VERSION),
    "format 0": (framed(SOUND).replace(b"\t3\n", b"\t0\n"), Reason.BAD_VERSION),
    "format 4": (framed(SOUND).replace(b"\t3\n", b"\t4\n"), Reason.BAD_VERSION),
    "no length": (codec.MAGIC + b"3\n", Reason.TRUNCATED),
    "endless length": (codec.MAGIC + b"3\n" + b"\xff" * 5 + b"\x01", Reason.BAD_LENGTH),
    "cut inside a field": (framed(SOUND)[:-3], Reason.TRUNCATED),
    "not a message": (framed(b"\x08"), Reason.BAD_VALUE),
    "no length prefix": (codec.MAGIC + b"3\n" + SOUND, Reason.BAD_VALUE),
    "quorumSize absent": (record(quorumSize=None), Reason.BAD_VALUE),
    "ensembleSize absent": (record(ensembleSize=None), Reason.BAD_VALUE),
    "length absent": (record(length=None), Reason.BAD_VALUE),
    "state absent": (record(state=None), Reason.BAD_VALUE),
    "state 9": (framed(message(state=None).SerializeToString() + b"\x28\x09"), Reason.BAD_VALUE),
    "no segment": (record(segment=[]), Reason.BAD_VALUE),
    "segment without a start": (record(segment=[{"ensembleMember": [b"a"]}]), Reason.BAD_VALUE),
    "segments not ascending": (record(segment=segments(5, 4)), Reason.BAD_VALUE),
    "one start twice": (record(segment=segments(5, 5)), Reason.BAD_VALUE),
    "too few members": (record(ensembleSize=2), Reason.BAD_VALUE),
    "not a bookie id": (record(segment=segments(0, members=(b"a/b",))), Reason.BAD_VALUE),
    "a bookie id that is no text": (record(segment=segments(0, members=(b"\xff",))), Reason.BAD_VALUE),
    "W above E": (record(quorumSize=2), Reason.BAD_VALUE),
    "A above W": (record(ackQuorumSize=2), Reason.BAD_VALUE),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_every_bookkeeper_refuses_is_refused_by_name(name: str) -> None:
    """Each refusal has a stored reason and the place in the record, and never shows the password."""
    raw, reason = REFUSED[name]
    with pytest.raises(FormatError) as refusal:
        codec.decode(raw)
    assert refusal.value.reason is reason
    assert 0 <= refusal.value.offset <= max(0, len(raw))
    assert "pw" not in str(refusal.value)


LINES_HEAD = codec.MAGIC + b"1\n1\n1\n30\n"


@pytest.mark.parametrize(
    ("body", "state", "last"),
    [
        (b"0\ta\n", LedgerState.OPEN, None),
        (b"0\ta", LedgerState.OPEN, None),
        (b"0\ta\n2\tCLOSED", LedgerState.CLOSED, 2),
        (b"0\ta\r\n2\tCLOSED\r\n", LedgerState.CLOSED, 2),
        (b"0\ta\r2\tCLOSED", LedgerState.CLOSED, 2),
        (b"0\ta\n2\tCLOSED\tx\nanything\n\n", LedgerState.CLOSED, 2),
        (b"0\ta\n-102\tCLOSED", LedgerState.IN_RECOVERY, None),
        (b"0\ta\t\t\n", LedgerState.OPEN, None),
    ],
)
def test_lines_are_read_as_java_reads_them(body: bytes, state: LedgerState, last: int | None) -> None:
    """All three line ends count, nothing after the end of a closed ledger does, -102 means recovery."""
    metadata = codec.decode(LINES_HEAD + body)
    assert (metadata.state, metadata.last_entry) == (state, last)
    assert metadata.length == (30 if state is LedgerState.CLOSED else None)
    assert metadata.segments == (Segment(0, ("a",)),)


@pytest.mark.parametrize(
    "raw",
    [
        LINES_HEAD + body
        for body in (
            b"",
            b"0\ta\n\n",
            b"0\n",
            b"0\t\n",
            b"0\t\ta\n",
            b"x\ta\n",
            b" 0\ta\n",
            b"2\tCLOSED",
            b"0\ta\nx\tCLOSED",
        )
    ]
    + [codec.MAGIC + b"1\n", codec.MAGIC + b"1\n1\n1\n", codec.MAGIC + b"1\n1\n1\nx\n0\ta\n"]
    + [codec.MAGIC + b"1\n3000000000\n1\n1\n0\ta\n", LINES_HEAD + b"0\ta\n9223372036854775808\tCLOSED"],
)
def test_broken_lines_are_refused(raw: bytes) -> None:
    """An empty line, a line without a second field, and numbers that are none or too wide."""
    with pytest.raises(FormatError):
        codec.decode(raw)


def test_format_1_drops_what_it_has_no_place_for() -> None:
    """Written as format 1, a ledger loses ack quorum, password, digest, creation time and custom metadata."""
    written = codec.encode(replace(CLOSED, format=1, ack_quorum=1))
    assert codec.decode(written) == LINES


TEXT_RECORD = (
    b'quorumSize: 1\nensembleSize: 1\nlength: 30\nlastEntryId: 2\nstate: CLOSED\nsegment {\n  ensembleMember: "a"\n'
    b'  firstEntryId: 0\n}\ndigestType: CRC32\npassword: "pw"\nackQuorumSize: 1\n'
)


@pytest.mark.parametrize(
    ("old", "new", "field", "expected"),
    [
        (b"", b"# said by hand\n", "last_entry", 2),
        (b"CLOSED", b"3", "state", LedgerState.CLOSED),
        (b'"pw"', b"'p' \"w\"", "password", b"pw"),
        (b'"pw"', rb'"\160\x77\a\v\?\777\400"', "password", b"pw\a\v?\xff\x00"),
        (b"{", b"<", "segments", (Segment(0, ("a",)),)),
        (b'"a"', b'["a"]', "segments", (Segment(0, ("a",)),)),
        (b"30\nlast", b"30;\nlast", "length", 30),
        (b"length: 30", b"length: 0x1E", "length", 30),
        (b"ackQuorumSize: 1", b"ackQuorumSize: 1 ackQuorumSize: 0", "ack_quorum", 0),
        (b"quorumSize: 1", b"writers { of: 4.19 } quorumSize: 1", "write_quorum", 1),
        (b"length: 30\n", b"", "length", None),
        (b'password: "pw"\n', b"", "password", None),
    ],
)
def test_text_is_read_as_tolerantly_as_java_reads_it(old: bytes, new: bytes, field: str, expected: object) -> None:
    """Comments, other brackets and quotes, lists, numbers for names, unknown names, repeated fields; all are told."""
    body = TEXT_RECORD.replace(old, new, -1 if old == b"{" else 1) if old else new + TEXT_RECORD
    if new == b"<":
        body = body.replace(b"}", b">")
    if field == "length" and expected is None:
        body = body.replace(b"CLOSED", b"OPEN")
    reading = codec.read(codec.MAGIC + b"2\n" + body)
    assert getattr(reading.metadata, field) == expected
    assert reading.oddities


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff\xfe", b"{", TEXT_RECORD.replace(b"CLOSED", b"DONE"), TEXT_RECORD.replace(b"30", b"x"), b"a{" * 5000],
)
def test_text_that_is_no_record_is_refused_without_quoting_it(body: bytes) -> None:
    """A refusal of text never repeats what stands there, since a password may."""
    with pytest.raises(FormatError) as refusal:
        codec.decode(codec.MAGIC + b"2\n" + body)
    assert "pw" not in str(refusal.value)


def test_a_creator_token_has_no_place_in_text() -> None:
    """Java reads it in format 2 and never writes it there; so it is passed over, and told."""
    reading = codec.read(codec.MAGIC + b"2\n" + TEXT_RECORD + b"cToken: 5\n")
    assert reading.metadata.creator_token is None
    assert reading.oddities == ("creator token in format 2: ignored",)


@pytest.mark.parametrize(
    "metadata",
    [
        replace(CLOSED, last_entry=None),
        replace(CLOSED, length=None),
        replace(CLOSED, password=None),
        replace(TEXT, digest=None),
        replace(CLOSED, format=4),
        replace(CLOSED, format=0),
    ],
)
def test_what_cannot_be_written_is_the_callers_mistake(metadata: LedgerMetadata) -> None:
    """A closed ledger without its end, half of digest and password, or a format that is none."""
    with pytest.raises(ValueError, match=r"closed ledger|go together|not a format"):
        codec.encode(metadata)


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        (replace(CLOSED, ack_quorum=0), "E >= W >= A >= 1"),
        (replace(CLOSED, write_quorum=4), "E >= W >= A >= 1"),
        (replace(CLOSED, segments=()), "no segment starts at entry 0"),
        (replace(CLOSED, segments=(Segment(1, MEMBERS),)), "no segment starts at entry 0"),
        (replace(CLOSED, segments=(Segment(0, MEMBERS), Segment(0, CHANGED))), "do not ascend"),
        (replace(CLOSED, segments=(Segment(0, MEMBERS[:2]),)), "has 2 members"),
        (replace(CLOSED, segments=(Segment(0, ("a", "a", "b")),)), "twice"),
        (replace(CLOSED, segments=(Segment(0, ("a", "b", "c/d")),)), "not a bookie id"),
        (replace(CLOSED, last_entry=98), "segment 100 starts past the end"),
        (replace(CLOSED, last_entry=-2), "last entry -2"),
        (replace(CLOSED, length=-1), "length -1"),
        (replace(CLOSED, last_entry=-1, segments=CLOSED.segments[:1]), "no entry, but length"),
        (replace(CLOSED, last_entry=None), "without last entry or length"),
        (replace(CLOSED, state=LedgerState.OPEN), "not closed"),
        (replace(CLOSED, password=None, digest=None), "no Java client can update"),
        (replace(LINES, password=b""), "format 1 has neither"),
    ],
)
def test_a_repair_may_not_write(metadata: LedgerMetadata, problem: str) -> None:
    """Each rule beyond Java's own is named when it is broken."""
    assert problem in "; ".join(codec.problems(metadata))


def test_the_vectors_are_sound() -> None:
    """Sound records have no problems, a closed one whose last segment is still empty included."""
    assert [codec.problems(metadata) for metadata, _ in VECTORS.values()] == [()] * len(VECTORS)
    assert codec.problems(replace(CLOSED, last_entry=99)) == ()


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


def row(metadata: LedgerMetadata) -> dict[str, object]:
    """One row of what `encode_columns` takes."""
    return {
        **{name: getattr(metadata, name) for name in COLUMNS.names if name not in ("segments", "custom")},
        "segments": [{"first": segment.first, "members": list(segment.members)} for segment in metadata.segments],
        "custom": [{"key": key, "value": value} for key, value in metadata.custom],
    }


def table(*rows: dict[str, object]) -> pa.Table:
    """What `encode_columns` takes."""
    return pa.Table.from_pylist(list(rows), schema=COLUMNS)


def test_columns_without_rows_give_no_records() -> None:
    """An empty table is no error, and decodes to an empty table of the catalog's columns."""
    assert codec.encode_columns(table()).to_pylist() == []
    parsed = codec.decode_columns(pa.array([], pa.binary()))
    assert parsed.num_rows == 0
    assert parsed.schema.names[0] == "error"


@pytest.mark.parametrize(
    "changes",
    [
        {"state": None},
        {"state": "DONE"},
        {"digest": None},
        {"digest": "MD5"},
        {"last_entry": None},
        {"length": None},
        {"ensemble_size": None},
        {"segments": None},
        {"segments": []},
    ],
)
def test_columns_that_are_no_record_are_the_callers_mistake(changes: dict[str, object]) -> None:
    """A null or an unknown name where a record needs a value stops the whole table; nothing is made up."""
    with pytest.raises(ValueError, match=r"null|without a segment"):
        codec.encode_columns(table(row(CLOSED), row(CLOSED) | changes))


def test_columns_are_written_in_the_format_that_plans_name() -> None:
    """The number in a plan's rows is that of the bytes."""
    assert codec.read(codec.encode_columns(table(row(CLOSED)))[0].as_py()).metadata.format == WRITTEN_FORMAT


def test_wider_segments_and_sliced_chunks_are_taken() -> None:
    """Columns as a reconstruction has them: more fields in a segment, several chunks, slices."""
    wide = pa.list_(pa.struct([("first", pa.int64()), ("first_low", pa.int64()), ("members", pa.list_(pa.string()))]))
    rows = [row(replace(CLOSED, last_entry=149 + n, creator_token=0)) for n in range(6)]
    whole = table(*rows)
    segment = [[{**part, "first_low": 0} for part in parts] for parts in whole["segments"].to_pylist()]
    whole = whole.set_column(6, "segments", pa.chunked_array([segment[:2], segment[2:]], wide))
    expected = [codec.encode(replace(CLOSED, last_entry=149 + n, creator_token=0)) for n in range(6)]
    assert codec.encode_columns(whole).to_pylist() == expected
    assert codec.encode_columns(whole.slice(1, 4)).to_pylist() == expected[1:5]


def test_a_bad_record_is_a_row_with_its_error() -> None:
    """Good and bad records side by side: the bad ones have an error and nulls, and hide nothing."""
    raws = [VECTORS["format 2, closed"][1], b"", None, VECTORS["format 1, closed"][1], b"garbage", framed(SOUND)]
    parsed = codec.decode_columns(pa.chunked_array([raws[:2], raws[2:]], pa.binary()))
    parsed.validate(full=True)
    assert [error is None for error in parsed["error"].to_pylist()] == [True, False, False, True, False, True]
    assert parsed["error"].to_pylist()[4] == "bad_magic: no header of ledger metadata"
    bad = parsed.slice(4, 1).drop_columns(["error"]).to_pylist()[0]
    assert set(bad.values()) == {None}
    first, lines = parsed.slice(0, 1).to_pylist()[0], parsed.slice(3, 1).to_pylist()[0]
    assert first["segments"] == [
        {"first": 0, "members": list(MEMBERS)},
        {"first": 100, "members": list(CHANGED)},
    ]
    assert first["custom"] == [{"key": key, "value": value} for key, value in CLOSED.custom]
    assert (first["state"], first["last_entry"], first["ctime"]) == ("CLOSED", 149, 1700000000000)
    assert (lines["format"], lines["password_hash"], lines["custom"], lines["digest"]) == (1, None, None, None)


def test_passwords_become_the_hash_of_their_master_key() -> None:
    """The catalog tells equal passwords, and holds none outside its raw records."""
    parsed = codec.decode_columns(pa.array([VECTORS["format 3, closed"][1], VECTORS["format 2, closed"][1]]))
    one, other = parsed["password_hash"].to_pylist()
    # SHA-256 of 6b9767bed0c7bff002f3132f3cfaf1edb3bbadd5, the master key of "s3cr3t".
    assert one == other == bytes.fromhex("0e8a1f4bbd441d72a15614e1a4c84153c3f466668efa1339ed7b61eb336b197b")
    assert "s3cr3t" not in str(parsed.drop_columns(["custom"]).to_pylist())
