"""What stands in front of a message in an entry that a Pulsar topic has: who sent it, its number, and when.

Big-endian. Offsets and sizes in bytes; what a broker adds in front is there where it is set up to.

    at      size  field
    0       2     magic of a broker's metadata, 0x0E02
    2       4     size of that, int32
    6       n     that: of no use here
    6+n     2     magic, 0x0E01
    8+n     4     CRC32C of all that follows, uint32
    12+n    4     size of what follows, int32
    16+n    m     MessageMetadata (proto/recovery/codecs/_pb/pulsar_message.proto)
    16+n+m        what the client wrote: one message or several, perhaps compressed or encrypted; never looked at

An entry without a checksum that agrees is taken for none of Pulsar's: cursors', schemas' and other layers' entries are
not mistaken for messages.

Source: apache/pulsar 4.0.7, org.apache.pulsar.common.protocol.Commands.
"""

import struct
from dataclasses import dataclass
from typing import Final

import google_crc32c
from google.protobuf.message import DecodeError

from recovery.codecs._pb.pulsar_message_pb2 import MessageMetadata
from recovery.errors import FormatError, Reason

_NOUN: Final = "message of Pulsar"
_OF_BROKER: Final = 0x0E02
_CHECKED: Final = 0x0E01
_MAGIC: Final = struct.Struct(">H")
_BROKER_HEAD: Final = struct.Struct(">Hi")
_HEAD: Final = struct.Struct(">HI")
_SIZE: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class MessageHead:
    """What stands in front of a message, or of a batch of them.

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


def decode(payload: bytes) -> MessageHead:
    """Return what stands in front of the message of an entry.

    Args:
        payload: of the entry.

    Raises:
        FormatError: no message of Pulsar.
    """
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
    last = message.sequence_id + max(message.num_messages_in_batch, 1) - 1
    if message.HasField("highest_sequence_id"):
        last = max(last, message.highest_sequence_id)
    return MessageHead(message.producer_name, message.sequence_id, last, message.publish_time)
