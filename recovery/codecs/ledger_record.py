"""One ledger's metadata: the bytes that a metadata store holds for one ledger, in BookKeeper's formats 1, 2 and 3.

    at    size  field
    0     27    "BookieMetadataFormatVersion"
    27    1     TAB
    28    1-9   format, decimal digits
          1     LF
                body

    format  body
    1       lines: W, E, length; for each segment the first entry and its members, TAB-separated, each line ended by
            LF; then "<last entry> TAB CLOSED" of a closed ledger, "-102 TAB CLOSED" of one in recovery, without LF
    2       protobuf text of LedgerMetadataFormat (`_pb/ledger_metadata.proto`)
    3       varint length, then that many bytes of protobuf LedgerMetadataFormat

Reading takes what any BookKeeper from 4.9 on takes, and `read` says what was odd about it. Writing gives the bytes that
BookKeeper's Java client writes. Columns of many records: `ledger_metadata`.

Source: apache/bookkeeper 9590a97 and 4.17.2, org.apache.bookkeeper.meta.LedgerMetadataSerDe; text as printed by
protobuf-java's TextFormat.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from recovery.codecs._pb.ledger_metadata_pb2 import LedgerMetadataFormat
from recovery.errors import FormatError, Reason
from recovery.model.ids import is_bookie_id
from recovery.model.metadata import NO_ENTRY, Digest, LedgerMetadata, LedgerState, Segment

MAGIC: Final = b"BookieMetadataFormatVersion\t"
_DIGITS: Final = 9
"""The number of the format must end within ten bytes."""
RECOVERING: Final = -102
"""Format 1's last entry of a ledger in recovery."""
CLOSED_LINE: Final = "CLOSED"
_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_NUMBER: Final = re.compile(r"[+-]?\d+")
_ESCAPED: Final = re.compile(r"\\([4-7][0-7]{2}|.)", re.DOTALL)
_JAVA_ESCAPES: Final = frozenset("01234567abfnrtv\\'\"xuU")
_I32: Final = 31
_I64: Final = 63

_STATES: Final = {getattr(LedgerMetadataFormat, state): state for state in LedgerState}
_DIGESTS: Final = {getattr(LedgerMetadataFormat, digest): digest for digest in Digest}
STATE_NUMBERS: Final = {state: number for number, state in _STATES.items()}
DIGEST_NUMBERS: Final = {digest: number for number, digest in _DIGESTS.items()}
_FIELDS: Final = tuple(LedgerMetadataFormat.DESCRIPTOR.fields_by_name)

_ESCAPES: Final = [chr(byte) if 0x20 <= byte <= 0x7E else f"\\{byte:03o}" for byte in range(256)]
for _byte, _letter in zip(b"\a\b\t\n\v\f\r\"'\\", "abtnvfr\"'\\", strict=True):
    _ESCAPES[_byte] = "\\" + _letter


@dataclass(frozen=True, slots=True)
class RecordReading:
    """The metadata of one record, and its oddities.

    Attributes:
        metadata: the record as BookKeeper would take it.
        oddities: what was taken although BookKeeper does not write it so; empty iff encoding `metadata` gives the same
            bytes again. For people; never holds a password.
    """

    metadata: LedgerMetadata
    oddities: tuple[str, ...]


def decode(raw: bytes | memoryview) -> LedgerMetadata:
    """Return the metadata that a stored record holds.

    Raises:
        FormatError: every BookKeeper from 4.9 on refuses these bytes too.
    """
    return _decode(bytes(raw), lambda _: None)


def read(raw: bytes | memoryview) -> RecordReading:
    """Return the metadata of a stored record, with its oddities.

    Raises:
        FormatError: every BookKeeper from 4.9 on refuses these bytes too.
    """
    raw = bytes(raw)
    oddities: list[str] = []
    metadata = _decode(raw, oddities.append)
    if not oddities and encode(metadata) != raw:
        oddities.append("written in another way than BookKeeper writes it")
    return RecordReading(metadata, tuple(oddities))


def encode(metadata: LedgerMetadata) -> bytes:
    """Return the bytes that the Java client writes for this metadata.

    Format 1 has no place for the ack quorum, digest, password, creation time and custom metadata: they are lost, as in
    Java. Records without a password are written as the oldest clients wrote them.

    Raises:
        ValueError: closed without last entry or length; password without digest type, or the reverse; a format other
            than 1, 2 and 3.
    """
    closed = metadata.state is LedgerState.CLOSED
    last_entry, length = (metadata.last_entry, metadata.length) if closed else (NO_ENTRY, 0)
    if last_entry is None or length is None:
        raise ValueError("a closed ledger has a last entry and a length")
    header = MAGIC + b"%d\n" % metadata.format
    if metadata.format == 1:
        return header + _lines(metadata, last_entry, length).encode()
    if (metadata.digest is None) != (metadata.password is None):
        raise ValueError("digest type and password go together")
    if metadata.format == 2:
        return header + _text(metadata, last_entry, length).encode()
    if metadata.format != 3:
        raise ValueError(f"not a format of ledger metadata: {metadata.format}")
    message = _message(metadata, last_entry, length)
    return header + _varint(len(message)) + message


def problems(metadata: LedgerMetadata) -> tuple[str, ...]:
    """Return the rules that a record breaks, for a record that a repair may write; empty for a sound one.

    Stricter than BookKeeper, which takes some of these; a record that was read may break them. A closed ledger of
    entries without payload has length 0, and that is not a problem.

    Source: docs/formats/ledger-metadata.md.
    """
    flaws = []
    quorums = f"{metadata.ensemble_size}/{metadata.write_quorum}/{metadata.ack_quorum}"
    if not metadata.ensemble_size >= metadata.write_quorum >= metadata.ack_quorum >= 1:
        flaws.append(f"not E >= W >= A >= 1: {quorums}")
    if not metadata.segments or metadata.segments[0].first != 0:
        flaws.append("no segment starts at entry 0")
    starts = [segment.first for segment in metadata.segments]
    if any(later <= earlier for earlier, later in pairwise(starts)):
        flaws.append("segments do not ascend")
    for segment in metadata.segments:
        if len(segment.members) != metadata.ensemble_size:
            flaws.append(f"segment {segment.first} has {len(segment.members)} members")
        if len(set(segment.members)) != len(segment.members):
            flaws.append(f"segment {segment.first} names a bookie twice")
        flaws += [f"not a bookie id: {member!r}" for member in segment.members if not is_bookie_id(member)]
    if metadata.state is not LedgerState.CLOSED:
        if metadata.last_entry is not None or metadata.length is not None:
            flaws.append("last entry or length of a ledger that is not closed")
    elif metadata.last_entry is None or metadata.length is None:
        flaws.append("closed without last entry or length")
    else:
        if metadata.last_entry < NO_ENTRY or metadata.length < 0:
            flaws.append(f"last entry {metadata.last_entry}, length {metadata.length}")
        if metadata.last_entry == NO_ENTRY and metadata.length > 0:
            flaws.append(f"no entry, but length {metadata.length}")
        flaws += [f"segment {start} starts past the end" for start in starts if start > metadata.last_entry + 1]
    if metadata.format == 1:
        if metadata.password is not None or metadata.digest is not None:
            flaws.append("format 1 has neither digest type nor password")
    elif metadata.password is None or metadata.digest is None:
        flaws.append("digest type or password is absent: no Java client can update the record")
    return tuple(flaws)


# Reading


def _refuse(reason: Reason, offset: int, detail: str) -> FormatError:
    return FormatError(reason, "ledger metadata", offset, detail)


def _decode(raw: bytes, odd: Callable[[str], None]) -> LedgerMetadata:
    if not raw.startswith(MAGIC):
        reason = Reason.EMPTY if not raw else Reason.TRUNCATED if MAGIC.startswith(raw) else Reason.BAD_MAGIC
        raise _refuse(reason, 0, "no header of ledger metadata")
    end = raw.find(b"\n", len(MAGIC), len(MAGIC) + _DIGITS + 1)
    if end < 0:
        raise _refuse(Reason.BAD_VERSION, len(MAGIC), "no line end after the format")
    number = raw[len(MAGIC) : end].decode(errors="replace")
    version = int(number) if _NUMBER.fullmatch(number) else None
    body = end + 1
    if version == 1:
        return _decode_lines(raw[body:].decode(errors="replace"), body, odd)
    if version == 2:
        return _decode_text(raw[body:].decode(errors="replace"), body, odd)
    if version == 3:
        return _decode_binary(raw, body, odd)
    raise _refuse(Reason.BAD_VERSION, len(MAGIC), f"format {number!r}")


def _decode_lines(text: str, position: int, odd: Callable[[str], None]) -> LedgerMetadata:
    def number(digits: str, bits: int) -> int:
        value = int(digits) if _NUMBER.fullmatch(digits) and len(digits) < 4000 else None
        if value is None or not -(1 << bits) <= value < 1 << bits:
            raise _refuse(Reason.BAD_VALUE, position, f"not a number of {bits + 1} bits: {digits[:40]!r}")
        return value

    lines = _LINE_END.split(text)
    if lines[-1] == "":
        lines.pop()
    if len(lines) < 3:
        raise _refuse(Reason.TRUNCATED, position, "fewer than three lines")
    write_quorum, ensemble_size, length = number(lines[0], _I32), number(lines[1], _I32), number(lines[2], _I64)
    state, last_entry = LedgerState.OPEN, None
    segments = []
    for index, line in enumerate(lines[3:], 4):
        start, *members = line.split("\t")
        while members and not members[-1]:
            members.pop()
        if not members:
            raise _refuse(Reason.BAD_VALUE, position, f"line {index} is neither a segment nor an end")
        if members[0] == CLOSED_LINE:
            last = number(start, _I64)
            state, last_entry = (LedgerState.IN_RECOVERY, None) if last == RECOVERING else (LedgerState.CLOSED, last)
            if index < len(lines):
                odd(f"lines after the end: {len(lines) - index}")
            break
        segments.append(Segment(number(start, _I64), tuple(members)))
    if state is not LedgerState.CLOSED and length != 0:
        odd(f"length {length} of a ledger that is not closed: ignored")
    _check(position, ensemble_size, write_quorum, write_quorum, segments)
    closed_length = length if state is LedgerState.CLOSED else None
    return LedgerMetadata(
        1, ensemble_size, write_quorum, write_quorum, state, last_entry, closed_length, tuple(segments)
    )


def _decode_text(text: str, position: int, odd: Callable[[str], None]) -> LedgerMetadata:
    message = LedgerMetadataFormat()
    try:
        text_format.Merge(_ESCAPED.sub(_as_java_reads, text), message, allow_unknown_field=True)
    except (text_format.ParseError, ValueError, RecursionError) as error:
        # The parser's own words quote the text, and a password may be there.
        raise _refuse(Reason.BAD_VALUE, position, f"not the text of a record: {type(error).__name__}") from None
    if message.HasField("cToken"):
        odd("creator token in format 2: ignored")
        message.ClearField("cToken")
    return _from_message(2, message, position, odd)


def _as_java_reads(escaped: re.Match[str]) -> str:
    """Rewrite escapes that Java and Python's parser read differently; refuse escapes that Java refuses."""
    if escaped[1] == "?":
        return "?"
    if escaped[1][0] not in _JAVA_ESCAPES:
        raise ValueError("no such escape")
    return f"\\{int(escaped[1], 8) & 0xFF:03o}" if len(escaped[1]) == 3 else escaped[0]


def _decode_binary(raw: bytes, position: int, odd: Callable[[str], None]) -> LedgerMetadata:
    size, start = _read_varint(raw, position)
    have = len(raw) - start
    if size > have:
        odd(f"announced {size} bytes, has {have}")
    elif size < have:
        odd(f"bytes after the message: {have - size}")
    body = raw[start : start + size]
    try:
        message = LedgerMetadataFormat.FromString(body)
    except DecodeError as error:
        reason = Reason.TRUNCATED if size > have else Reason.BAD_VALUE
        raise _refuse(reason, start, "not a message") from error
    unknown = b""
    whole = message.ByteSize()
    message.DiscardUnknownFields()
    if message.ByteSize() != whole:
        rest = LedgerMetadataFormat.FromString(body)
        for name in _FIELDS:
            rest.ClearField(name)
        unknown = rest.SerializeToString()
        odd(f"bytes of unknown fields, kept: {len(unknown)}")
        nested = whole - message.ByteSize() - len(unknown)
        if nested:
            odd("unknown fields inside a segment or a custom entry: ignored")
    return _from_message(3, message, start, odd, unknown)


def _from_message(
    version: int, message: LedgerMetadataFormat, position: int, odd: Callable[[str], None], unknown: bytes = b""
) -> LedgerMetadata:
    if not (message.HasField("quorumSize") and message.HasField("ensembleSize") and message.HasField("state")):
        raise _refuse(Reason.BAD_VALUE, position, "quorumSize, ensembleSize or state is absent")
    state = _STATES[message.state]
    closed = state is LedgerState.CLOSED
    if not message.HasField("length"):
        if version == 3 or closed:
            raise _refuse(Reason.BAD_VALUE, position, "length is absent")
        odd("length is absent")
    if closed:
        if not message.HasField("lastEntryId"):
            odd("last entry of a closed ledger is absent: taken as 0, as BookKeeper does")
    else:
        if message.length:
            odd(f"length {message.length} of a ledger that is not closed: ignored")
        if message.HasField("lastEntryId") and message.lastEntryId != NO_ENTRY:
            odd(f"last entry {message.lastEntryId} of a ledger that is not closed: ignored")
    ack_quorum = message.quorumSize
    if message.HasField("ackQuorumSize"):
        ack_quorum = message.ackQuorumSize
    else:
        odd("ack quorum is absent: taken as the write quorum")
    segments = []
    for segment in message.segment:
        if not segment.HasField("firstEntryId"):
            raise _refuse(Reason.BAD_VALUE, position, "a segment without a first entry")
        segments.append(Segment(segment.firstEntryId, tuple(map(_require_text, segment.ensembleMember))))
    _check(position, message.ensembleSize, message.quorumSize, ack_quorum, segments)
    digest, password = None, None
    if message.HasField("password"):
        password = message.password
        digest = _DIGESTS[message.digestType]
        if not message.HasField("digestType"):
            # The default of the absent field: CRC32.
            odd("digest type beside a password is absent or unknown: taken as CRC32, as BookKeeper up to 4.17 does")
    elif message.HasField("digestType"):
        odd("digest type without a password: ignored")
    custom = tuple((entry.key.decode(errors="replace"), entry.value) for entry in message.customMetadata)
    if len({key for key, _ in custom}) < len(custom):
        odd("custom metadata names a key twice: the later one counts")
    return LedgerMetadata(
        version,
        message.ensembleSize,
        message.quorumSize,
        ack_quorum,
        state,
        message.lastEntryId if closed else None,
        message.length if closed else None,
        tuple(segments),
        digest,
        password,
        message.ctime if message.HasField("ctime") else None,
        custom,
        message.cToken if message.HasField("cToken") else None,
        unknown,
    )


@lru_cache(maxsize=4096)
def _require_text(raw: bytes) -> str:
    return raw.decode(errors="replace")


_is_known = lru_cache(maxsize=4096)(is_bookie_id)


def _check(position: int, ensemble_size: int, write_quorum: int, ack_quorum: int, segments: list[Segment]) -> None:
    if not segments:
        raise _refuse(Reason.BAD_VALUE, position, "no segment")
    if not ensemble_size >= write_quorum >= ack_quorum:
        raise _refuse(Reason.BAD_VALUE, position, f"not E >= W >= A: {ensemble_size}/{write_quorum}/{ack_quorum}")
    previous = None
    for segment in segments:
        if previous is not None and segment.first <= previous:
            raise _refuse(Reason.BAD_VALUE, position, f"segment {segment.first} after segment {previous}")
        previous = segment.first
        if len(segment.members) != ensemble_size:
            raise _refuse(
                Reason.BAD_VALUE, position, f"{len(segment.members)} members in an ensemble of {ensemble_size}"
            )
        for member in segment.members:
            if not _is_known(member):
                raise _refuse(Reason.BAD_VALUE, position, f"not a bookie id: {member[:80]!r}")


def _read_varint(raw: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if position >= len(raw):
            raise _refuse(Reason.TRUNCATED, position, "no length of the message")
        value |= (raw[position] & 0x7F) << shift
        position += 1
        if raw[position - 1] < 0x80:
            return value, position
    raise _refuse(Reason.BAD_LENGTH, position, "the length of the message has more than five bytes")


# Writing


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _lines(metadata: LedgerMetadata, last_entry: int, length: int) -> str:
    lines = [str(metadata.write_quorum), str(metadata.ensemble_size), str(length)]
    lines += ["\t".join((str(segment.first), *segment.members)) for segment in metadata.segments]
    end = "" if metadata.state is LedgerState.OPEN else f"{last_entry}\t{CLOSED_LINE}"
    if metadata.state is LedgerState.IN_RECOVERY:
        end = f"{RECOVERING}\t{CLOSED_LINE}"
    return "\n".join((*lines, end))


def _quote(raw: bytes) -> str:
    return '"' + "".join([_ESCAPES[byte] for byte in raw]) + '"'


def _text(metadata: LedgerMetadata, last_entry: int, length: int) -> str:
    lines = [
        f"quorumSize: {metadata.write_quorum}",
        f"ensembleSize: {metadata.ensemble_size}",
        f"length: {length}",
        f"lastEntryId: {last_entry}",
        f"state: {metadata.state}",
    ]
    for segment in metadata.segments:
        members = [f"  ensembleMember: {_quote(member.encode())}" for member in segment.members]
        lines += ["segment {", *members, f"  firstEntryId: {segment.first}", "}"]
    if metadata.digest is not None and metadata.password is not None:
        lines += [f"digestType: {metadata.digest}", f"password: {_quote(metadata.password)}"]
    lines.append(f"ackQuorumSize: {metadata.ack_quorum}")
    if metadata.ctime is not None:
        lines.append(f"ctime: {metadata.ctime}")
    for key, value in metadata.custom:
        lines += ["customMetadata {", f"  key: {_quote(key.encode())}", f"  value: {_quote(value)}", "}"]
    return "\n".join(lines) + "\n"


def _message(metadata: LedgerMetadata, last_entry: int, length: int) -> bytes:
    message = LedgerMetadataFormat(
        quorumSize=metadata.write_quorum,
        ensembleSize=metadata.ensemble_size,
        length=length,
        lastEntryId=last_entry,
        state=STATE_NUMBERS[metadata.state],
        ackQuorumSize=metadata.ack_quorum,
    )
    for segment in metadata.segments:
        message.segment.add(ensembleMember=[member.encode() for member in segment.members], firstEntryId=segment.first)
    if metadata.digest is not None and metadata.password is not None:
        message.digestType = DIGEST_NUMBERS[metadata.digest]
        message.password = metadata.password
    if metadata.ctime is not None:
        message.ctime = metadata.ctime
    for key, value in metadata.custom:
        message.customMetadata.add(key=key.encode(), value=value)
    if metadata.creator_token is not None:
        message.cToken = metadata.creator_token
    return message.SerializeToString() + metadata.unknown
