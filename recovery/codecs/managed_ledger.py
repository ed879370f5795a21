"""Pulsar's records of the ledgers that it uses: managed ledgers, their cursors, schemas.

Binary protobuf (proto/recovery/codecs/_pb/managed_ledger.proto), or compressed with a header, big-endian:

    at    size  field
    0     2     magic, 0x4778
    2     4     size of what follows, int32: at most what is left
    6     n     CompressedInfo: kind (0 none, 1 LZ4 block, 2 ZLIB, 3 ZSTD, 4 Snappy), size without compression
    6+n         the record, compressed

Users name cursors, so a key does not tell a managed ledger's record from a cursor's. The first byte does: a message
begins the record of a managed ledger, a number that of a cursor.

    record           names
    ManagedLedger    each ledger: entries and size once it was closed, where it was offloaded to and deleted here; of a
                     terminated one the last entry
    Cursor           the ledger that it keeps its own state in, -1: none; of compaction and of delayed delivery those
                     that their properties name, as far as they stand in this record
    Schema           the ledger of each version
    Position         an entry of a cursor's own ledger: of compaction the ledger that its properties name

Source: apache/pulsar 4.0.7, managed-ledger: impl/MetaStoreImpl, impl/ManagedLedgerImpl; pulsar-broker:
BookkeeperSchemaStorage, CompactedTopic, delayed/bucket/Bucket.
"""

import fnmatch
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from google.protobuf.message import DecodeError, Message

from recovery.codecs._pb.managed_ledger_pb2 import (
    CompressedInfo,
    ManagedCursorInfo,
    ManagedLedgerInfo,
    PositionInfo,
    SchemaLocator,
)
from recovery.codecs.pulsar_compression import decompress
from recovery.errors import FormatError, Reason

MAGIC: Final = 0x4778
_HEADER: Final = struct.Struct(">Hi")
LARGEST: Final = 32 << 20
"""Most bytes of a record without compression: ZooKeeper's own limit is a megabyte after compression."""
_CURSOR_TAG: Final = 0x08
_LEDGER_TAGS: Final = frozenset({0x0A, 0x12, 0x1A})
_COMPACTED: Final = "CompactedTopicLedger"
_DELAYED: Final = "#pulsar.internal.delayed.bucket"
_IDS: Final = range(1 << 63)


@dataclass(frozen=True, slots=True)
class Listed:
    """One ledger of a managed ledger.

    Attributes:
        ledger: its id.
        last_entry: -1: it was closed empty; None: it was open when the record was written.
        length: up to that entry; None: not said.
        deleted: its entries were offloaded, and it was deleted from the bookies.
        closed_ms: when it was closed, ms since 1970; None: not said.
    """

    ledger: int
    last_entry: int | None = None
    length: int | None = None
    deleted: bool = False
    closed_ms: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ManagedLedger:
    """The ledgers of a topic, in their order.

    Attributes:
        ledgers: each once.
        is_ended: the topic was ended: it takes no messages.
    """

    ledgers: tuple[Listed, ...]
    is_ended: bool = False


@dataclass(frozen=True, slots=True)
class Cursor:
    """The ledgers that a subscription needs besides its topic's, and its position.

    Attributes:
        ledgers: ids, each once, with its purpose.
        position: ledger and entry up to which all is acknowledged; at least, where its state is in a ledger of its own.
            None: not said.
    """

    ledgers: tuple[tuple[int, str], ...]
    position: tuple[int, int] | None = None


def decode(raw: bytes) -> ManagedLedger | Cursor:
    """Return the record of a managed ledger or of a cursor; no bytes are a managed ledger without any ledger.

    Raises:
        FormatError: neither.
    """
    plain = _decompress(raw)
    if not plain:
        return ManagedLedger(())
    if plain[0] == _CURSOR_TAG:
        return _cursor(plain)
    if plain[0] not in _LEDGER_TAGS:
        raise FormatError(Reason.BAD_MAGIC, "managed ledger", 0, f"begins with {plain[0]:#04x}")
    return _parse_ledger(plain)


def append_ledgers(raw: bytes, closed: Sequence[Listed], at_ms: int) -> bytes:
    """Return a managed ledger's record with the end of its last ledger, and further ledgers after it; not compressed.

    A broker deletes a ledger without entries in this record, unless it is the last. So the former last one gets its end
    too. Fields that this module does not know stay in the record.

    Args:
        raw: the record.
        closed: the record's last ledger, if it has one, then those that are appended, ascending; each with its end.
        at_ms: when they were closed, as far as known: ms since 1970.

    Raises:
        FormatError: no managed ledger's record.
        ValueError: the topic was ended, a ledger does not come after the last one, or has no end.
    """
    plain = _decompress(raw)
    message = ManagedLedgerInfo()
    _parse(message, plain, "managed ledger")
    if message.HasField("terminatedPosition"):
        raise ValueError("the topic was ended, and no longer takes messages")
    infos = {info.ledgerId: info for info in message.ledgerInfo}
    last = max(infos, default=-1)
    for ledger in closed:
        if ledger.last_entry is None or ledger.length is None:
            raise ValueError(f"ledger {ledger.ledger} has no end")
        if ledger.ledger < last or (ledger.ledger in infos and ledger.ledger != last):
            raise ValueError(f"ledger {ledger.ledger} does not come after the topic's last one, {last}")
        info = infos.get(ledger.ledger) or message.ledgerInfo.add(ledgerId=ledger.ledger)
        info.entries, info.size = ledger.last_entry + 1, ledger.length
        if not info.HasField("timestamp"):
            info.timestamp = at_ms
    return message.SerializeToString()


def encode_cursor(first: int, state: int = -1) -> bytes:
    """Return the record of a subscription at its topic's beginning, or at the position in a ledger of its own.

    Args:
        first: ledger that the topic begins with.
        state: ledger of its own; -1: none.
    """
    return ManagedCursorInfo(cursorsLedgerId=state, markDeleteLedgerId=first, markDeleteEntryId=-1).SerializeToString()


def decode_schema(raw: bytes) -> tuple[int, ...]:
    """Return the ledgers of a schema's versions, ascending, each once.

    Raises:
        FormatError: no record of a schema.
    """
    message = SchemaLocator()
    _parse(message, raw, "schema")
    ledgers = {entry.position.ledgerId for entry in (message.info, *message.index)}
    return tuple(sorted(_id(ledger, "schema") for ledger in ledgers))


def decode_compacted(raw: bytes) -> int | None:
    """Return the ledger of a compacted topic that an entry of its `__compaction` names; None: it names none.

    Args:
        raw: what the broker wrote into the cursor's own ledger.

    Raises:
        FormatError: no position of a cursor.
    """
    message = PositionInfo()
    _parse(message, raw, "position of a cursor")
    named = [number.value for number in message.properties if number.name == _COMPACTED]
    return _id(named[-1], "position of a cursor") if named else None


def _parse_ledger(plain: bytes) -> ManagedLedger:
    message = ManagedLedgerInfo()
    _parse(message, plain, "managed ledger")
    ended = message.terminatedPosition if message.HasField("terminatedPosition") else None
    ledgers: dict[int, Listed] = {}
    for info in message.ledgerInfo:
        ledger = _id(info.ledgerId, "managed ledger")
        last = info.entries - 1 if info.HasField("entries") else None
        length = info.size if last is not None and info.HasField("size") else None
        if (last is not None and last < -1) or (length is not None and length < 0):
            raise FormatError(Reason.BAD_VALUE, "managed ledger", 0, f"ledger {ledger} has fewer than no entries")
        if last is None and ended is not None and ended.ledgerId == ledger and ended.entryId >= -1:
            last = ended.entryId
        # Of a ledger that is named again the last one counts, as a broker reads the record.
        closed_ms = info.timestamp if info.timestamp > 0 else None
        ledgers[ledger] = Listed(ledger, last, length, info.offloadContext.bookkeeperDeleted, closed_ms)
    return ManagedLedger(tuple(ledgers.values()), ended is not None)


def _cursor(plain: bytes) -> Cursor:
    message = ManagedCursorInfo()
    _parse(message, plain, "cursor")
    properties: dict[int, str] = {}
    if message.cursorsLedgerId != -1:
        properties[_id(message.cursorsLedgerId, "cursor")] = "cursor"
    for number in message.properties:
        if number.name == _COMPACTED:
            properties.setdefault(_id(number.value, "cursor"), "compacted topic of")
    for text in message.cursorProperties:
        if text.name.startswith(_DELAYED) and text.value.isascii() and text.value.isdigit():
            properties.setdefault(_id(int(text.value), "cursor"), "delayed delivery of")
    position = (message.markDeleteLedgerId, message.markDeleteEntryId)
    is_said = message.HasField("markDeleteLedgerId") and position[0] >= 0
    return Cursor(tuple(properties.items()), position if is_said else None)


def _id(ledger: int, owner: str) -> int:
    if ledger not in _IDS:
        raise FormatError(Reason.BAD_VALUE, owner, 0, f"ledger id {ledger}")
    return ledger


def _parse(message: Message, raw: bytes, noun: str) -> None:
    try:
        message.ParseFromString(raw)
    except (DecodeError, RecursionError) as error:
        raise FormatError(Reason.BAD_VALUE, noun, 0, "no protobuf of it") from error


def _decompress(raw: bytes) -> bytes:
    if len(raw) < _HEADER.size or not raw.startswith(MAGIC.to_bytes(2, "big")):
        return raw
    _, size = _HEADER.unpack_from(raw)
    rest = raw[_HEADER.size :]
    if not 0 <= size <= len(rest):
        raise FormatError(Reason.BAD_LENGTH, "managed ledger", 2, f"a header of {size} bytes, {len(rest)} are left")
    header = CompressedInfo()
    _parse(header, rest[:size], "managed ledger")
    body, whole = rest[size:], header.uncompressedSize
    if not 0 <= whole <= LARGEST:
        raise FormatError(Reason.BAD_LENGTH, "managed ledger", _HEADER.size, f"{whole} bytes without compression")
    return decompress(body, header.compressionType, whole, "managed ledger", _HEADER.size + size)


def fits_name(name: str, pattern: str) -> bool:
    """Whether the name of a managed ledger fits a pattern with * and ?, plain or in Pulsar's encoding."""
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(unquote(name), pattern)
