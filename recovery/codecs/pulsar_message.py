"""Messages of Pulsar, as the entries of a topic's ledgers have them.

Big-endian. Offsets and sizes in bytes; what a broker adds in front is there where it is set up to.

    at      size  field
    0       2     magic of a broker's metadata, 0x0E02
    2       4     size of that, int32
    6       n     that: of no use here
    6+n     2     magic, 0x0E01
    8+n     4     CRC32C of all that follows, uint32
    12+n    4     size of what follows, int32
    16+n    m     MessageMetadata (proto/recovery/codecs/_pb/pulsar_message.proto)
    16+n+m        what the client wrote: one message or several, perhaps compressed, then perhaps encrypted

    batch, without compression: of each message, one behind the other
    0       4     size of what follows, int32
    4       k     SingleMessageMetadata
    4+k     p     payload; its size is in the metadata

An entry without a checksum that agrees is taken for none of Pulsar's: cursors', schemas' and other layers' entries are
not mistaken for messages.

A chunk is a part of a message that is too large for an entry: the parts have one uuid, and are put together in the
order of their numbers before they are decompressed. Markers are the broker's own: no consumer gets them.

Source: apache/pulsar 4.0.7, org.apache.pulsar.common.protocol.Commands; ConsumerImpl.messageReceived.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import google_crc32c
from google.protobuf.message import DecodeError

from recovery.codecs._pb.pulsar_message_pb2 import MessageMetadata, SingleMessageMetadata
from recovery.codecs.pulsar_compression import decompress, name_kind
from recovery.errors import FormatError, Reason

LARGEST: Final = 128 << 20
"""Most bytes of an entry's messages without compression: brokers take 5 MiB by default."""
_NOUN: Final = "message of Pulsar"
_OF_BROKER: Final = 0x0E02
_CHECKED: Final = 0x0E01
_MAGIC: Final = struct.Struct(">H")
_BROKER_HEAD: Final = struct.Struct(">Hi")
_HEAD: Final = struct.Struct(">HI")
_SIZE: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class MessageHead:
    """The header of a message, or of a batch of messages.

    Attributes:
        producer: its name.
        sequence: number of the message at its producer; of a batch that of the first.
        last_sequence: of a batch that of the last.
        published_ms: by the producer's clock, ms since 1970.
    """

    producer: str
    sequence: int
    last_sequence: int
    published_ms: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Which part of a message that is too large for an entry.

    Attributes:
        uuid: of the message.
        number: of the part, from 0.
        count: of the parts.
        size: of the message as it was cut, in bytes.
    """

    uuid: str
    number: int
    count: int
    size: int


@dataclass(frozen=True, slots=True)
class PulsarMessage:
    """One message.

    Attributes:
        producer: its name.
        sequence: its number there.
        published_ms: by the producer's clock, ms since 1970; of a batch that of all.
        event_ms: time that the application set; None: none.
        key: None: none.
        is_key_base64: the key is bytes in base64.
        ordering_key: None: none.
        properties: of two of a name the later one.
        payload: bytes of the application; None if they are encrypted, or the message has no value.
        batch: place in its batch; None: it is in none.
        encrypted: names of the keys of an encrypted message; then `sealed` has the bytes.
        sealed: encrypted bytes, perhaps of a batch.
        chunk: that it is only a part; the payload of a part is not decompressed.
        compression: of `sealed`, or of the message that a part belongs to; empty: none.
        is_null: it has no value: a compacted topic takes it for a delete.
        compacted_out: compaction removed it; no consumer gets it.
        marker: kind of a broker's own entry; None: it is none.
        transaction: most and least bits; None: none.
    """

    producer: str
    sequence: int
    published_ms: int
    event_ms: int | None = None
    key: str | None = None
    is_key_base64: bool = False
    ordering_key: bytes | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    payload: bytes | None = None
    batch: int | None = None
    encrypted: tuple[str, ...] = ()
    sealed: bytes | None = None
    chunk: Chunk | None = None
    compression: str = ""
    is_null: bool = False
    compacted_out: bool = False
    marker: int | None = None
    transaction: tuple[int, int] | None = None


def decode(payload: bytes) -> MessageHead:
    """Return the header of the message of an entry.

    Args:
        payload: of the entry.

    Raises:
        FormatError: no message of Pulsar.
    """
    message, _ = _parse(payload)
    last = message.sequence_id + max(message.num_messages_in_batch, 1) - 1
    if message.HasField("highest_sequence_id"):
        last = max(last, message.highest_sequence_id)
    return MessageHead(message.producer_name, message.sequence_id, last, message.publish_time)


def unpack(payload: bytes) -> list[PulsarMessage]:
    """Return the messages of an entry: one, or all of its batch.

    Args:
        payload: of the entry.

    Raises:
        FormatError: no message of Pulsar, or one with bytes that do not match its header.
    """
    head, start = _parse(payload)
    body = payload[start:]
    common: dict[str, Any] = {"producer": head.producer_name, "published_ms": head.publish_time}
    if head.HasField("txnid_most_bits"):
        common["transaction"] = (head.txnid_most_bits, head.txnid_least_bits)
    whole = {**common, "sequence": head.sequence_id, **_read_fields(head)}
    if head.HasField("marker_type"):
        return [PulsarMessage(**whole, payload=body, marker=head.marker_type)]
    chunk = None
    if head.num_chunks_from_msg > 1:
        chunk = Chunk(head.uuid, head.chunk_id, head.num_chunks_from_msg, head.total_chunk_msg_size)
    if head.encryption_keys:
        keys = tuple(item.key for item in head.encryption_keys)
        return [
            PulsarMessage(**whole, encrypted=keys, sealed=body, chunk=chunk, compression=name_kind(head.compression))
        ]
    if chunk is not None:
        return [PulsarMessage(**whole, payload=body, chunk=chunk, compression=name_kind(head.compression))]
    if head.compression:
        if head.uncompressed_size > LARGEST:
            problem = f"{head.uncompressed_size} bytes without compression"
            raise FormatError(Reason.BAD_LENGTH, _NOUN, start, problem)
        body = decompress(body, head.compression, head.uncompressed_size, _NOUN, start)
    if not head.HasField("num_messages_in_batch"):
        return [PulsarMessage(**whole, payload=None if head.null_value else body, is_null=head.null_value)]
    return list(_unpack_batch(head, common, body))


def _unpack_batch(head: MessageMetadata, common: Mapping[str, Any], body: bytes) -> Iterator[PulsarMessage]:
    position = 0
    for number in range(head.num_messages_in_batch):
        begin = position + _SIZE.size
        if begin > len(body):
            raise FormatError(Reason.TRUNCATED, _NOUN, position, f"the batch ends before its message {number}")
        (size,) = _SIZE.unpack_from(body, position)
        if not 0 <= size <= len(body) - begin:
            raise FormatError(Reason.BAD_LENGTH, _NOUN, position, f"metadata of {size} bytes in a batch")
        single = SingleMessageMetadata()
        try:
            single.ParseFromString(body[begin : begin + size])
        except DecodeError as error:
            raise FormatError(Reason.BAD_VALUE, _NOUN, begin, "no protobuf of a message in a batch") from error
        begin += size
        position = begin + max(single.payload_size, 0)
        if position > len(body):
            raise FormatError(Reason.BAD_LENGTH, _NOUN, begin, f"a payload of {single.payload_size} bytes in a batch")
        yield PulsarMessage(
            **common,
            sequence=single.sequence_id if single.HasField("sequence_id") else head.sequence_id + number,
            **_read_fields(single),
            payload=None if single.null_value else body[begin:position],
            batch=number,
            is_null=single.null_value,
            compacted_out=single.compacted_out,
        )


def _read_fields(message: MessageMetadata | SingleMessageMetadata) -> dict[str, Any]:
    """Return the fields that a message has wherever its metadata are."""
    return {
        "event_ms": message.event_time or None,
        "key": message.partition_key if message.HasField("partition_key") else None,
        "is_key_base64": message.partition_key_b64_encoded,
        "ordering_key": message.ordering_key if message.HasField("ordering_key") else None,
        "properties": {item.key: item.value for item in message.properties},
    }


def _parse(payload: bytes) -> tuple[MessageMetadata, int]:
    """Return the header of a message, and where the client's own bytes begin."""
    start = 0
    if len(payload) >= _BROKER_HEAD.size and _MAGIC.unpack_from(payload)[0] == _OF_BROKER:
        _, size = _BROKER_HEAD.unpack_from(payload)
        start = _BROKER_HEAD.size + size
        if not _BROKER_HEAD.size <= start <= len(payload):
            raise FormatError(Reason.BAD_LENGTH, _NOUN, _MAGIC.size, f"a broker's metadata of {size} bytes")
    body = start + _HEAD.size
    if len(payload) < body + _SIZE.size:
        raise FormatError(Reason.TRUNCATED, _NOUN, start, f"{len(payload)} bytes")
    magic, checksum = _HEAD.unpack_from(payload, start)
    if magic != _CHECKED:
        raise FormatError(Reason.BAD_MAGIC, _NOUN, start, f"begins with {magic:#06x}")
    if google_crc32c.value(payload[body:]) != checksum:
        raise FormatError(Reason.DIGEST, _NOUN, start + _MAGIC.size, "its checksum does not agree")
    (size,) = _SIZE.unpack_from(payload, body)
    end = body + _SIZE.size + size
    if not body + _SIZE.size <= end <= len(payload):
        raise FormatError(Reason.BAD_LENGTH, _NOUN, body, f"metadata of {size} bytes")
    message = MessageMetadata()
    try:
        message.ParseFromString(payload[body + _SIZE.size : end])
    except DecodeError as error:
        raise FormatError(Reason.BAD_VALUE, _NOUN, body + _SIZE.size, "no protobuf of it") from error
    if not (message.producer_name and message.HasField("sequence_id") and message.HasField("publish_time")):
        raise FormatError(Reason.BAD_VALUE, _NOUN, body + _SIZE.size, "without a producer, a number or a time")
    return message, end
