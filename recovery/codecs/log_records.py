"""DistributedLog's and Pravega's records in ZooKeeper, and the ledgers that they name.

DistributedLog (Pulsar's function packages, BookKeeper's table service) keeps a node for each segment of a stream, whose
parent is named `ledgers`: decimal numbers as text, joined with semicolons:

    place  says
    0      version in its low 8 bits (1 to 5); above them status, region and the number of records
    1      ledger id
    2 …    transactions, end and positions, as many as the version and the state have

and a node `allocation` for a ledger that is made and not used yet: its id as text, or nothing.

Pravega keeps a record for each container's log, big-endian, with lengths in front (its VersionedSerializer):

    at  size  field
    0   1     0: format of the serializer
    1   1     0: version of the record
    2   1     number of revisions; of each:
    0   1     its number: 0 is the first
    1   4     its length
    5   n     what it says

    revision 0 of LogMetadata, in order
    enabled: boolean (1 byte) · epoch: compact long · truncated up to: two compact longs (sequence, ledger)
    ledgers: compact int how many, then of each: id (compact long), sequence (compact int), status (1 byte)

    compact long: the two highest bits say how many bytes it has (00: 1, 01: 2, 10: 4, 11: 8), the others are the number
    compact int:  0…: 1 byte of 7 bits, 10…: 2 bytes of 14 bits, 11…: 4 bytes of 30 bits

Source: apache/bookkeeper 4.17, stream/distributedlog: LogSegmentMetadata, bk/SimpleLedgerAllocator; pravega 0.13,
common/io/serialization: VersionedSerializer, RevisionDataOutputStream; bookkeeper/LogMetadata. Records that
Pulsar 4.0.7's function worker and Pravega 0.13's segment store wrote are in tests.
"""

import struct
from typing import Final

from recovery.errors import FormatError, Reason

SEGMENTS: Final = "ledgers"
"""Name of the node above a stream's segments."""
ALLOCATION: Final = "allocation"
_VERSIONS: Final = range(1, 6)
_VERSION_MASK: Final = 0xFF
_IDS: Final = range(1 << 63)
_LONGEST: Final = 4096
"""Bytes of a segment's record: eleven numbers."""
_LONG_BYTES: Final = (1, 2, 4, 8)
_DLOG: Final = "log segment"
_PRAVEGA: Final = "Pravega's log"


def decode_segment(raw: bytes) -> int:
    """Return the ledger of a stream's segment.

    Raises:
        FormatError: no record of a segment.
    """
    parts = raw[:_LONGEST].split(b";")
    if len(parts) < 3 or not all(part.removeprefix(b"-").isdigit() and len(part) < 21 for part in parts):
        raise FormatError(Reason.BAD_VALUE, _DLOG, 0, "no numbers with semicolons between them")
    version, ledger = int(parts[0]) & _VERSION_MASK, int(parts[1])
    if version not in _VERSIONS:
        raise FormatError(Reason.BAD_VERSION, _DLOG, 0, f"version {version}")
    if ledger not in _IDS:
        raise FormatError(Reason.BAD_VALUE, _DLOG, 0, f"ledger id {ledger}")
    return ledger


def decode_allocation(raw: bytes) -> int | None:
    """Return the ledger that is made and not used yet; None: there is none.

    Raises:
        FormatError: no id.
    """
    if not raw:
        return None
    if not raw.isdigit() or len(raw) > 19 or int(raw) not in _IDS:
        raise FormatError(Reason.BAD_VALUE, "ledger allocation", 0, "no ledger id")
    return int(raw)


def decode_log(raw: bytes) -> tuple[int, ...]:
    """Return the ledgers of a Pravega log, in their order, each once.

    Raises:
        FormatError: no record of one, or one of a later version.
    """
    if len(raw) < 3 or raw[0] != 0:
        raise FormatError(Reason.BAD_MAGIC, _PRAVEGA, 0, "no format 0 of its serializer")
    if raw[1] != 0:
        raise FormatError(Reason.BAD_VERSION, _PRAVEGA, 1, f"version {raw[1]}")
    # Later revisions add fields behind this one, and change none of it.
    if not raw[2] or len(raw) < 8 or raw[3] != 0:
        raise FormatError(Reason.BAD_VALUE, _PRAVEGA, 2, "no revision 0")
    (length,) = struct.unpack_from(">i", raw, 4)
    if not 0 <= length <= len(raw) - 8:
        raise FormatError(Reason.BAD_LENGTH, _PRAVEGA, 4, f"{length} bytes, {len(raw) - 8} are left")
    reader = _Reader(raw[8 : 8 + length])
    reader.take(1)
    for _ in range(3):
        reader.read_long()
    ledgers = []
    for _ in range(reader.read_int()):
        ledgers.append(reader.read_long())
        reader.read_int()
        reader.take(1)
    if reader.left:
        raise FormatError(Reason.BAD_LENGTH, _PRAVEGA, 4, f"{reader.left} bytes after its ledgers")
    return tuple(dict.fromkeys(ledgers))


class _Reader:
    """Reads consecutive compact numbers."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    @property
    def left(self) -> int:
        """Bytes that were not read."""
        return len(self._raw) - self._at

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise FormatError(Reason.TRUNCATED, _PRAVEGA, self._at, f"{size} bytes, {self.left} are left")
        self._at += size
        return self._raw[self._at - size : self._at]

    def read_long(self) -> int:
        first = self.take(1)[0]
        size = _LONG_BYTES[first >> 6]
        return int.from_bytes(bytes([first & 0x3F]) + self.take(size - 1))

    def read_int(self) -> int:
        first = self.take(1)[0]
        if first < 0x80:
            return first
        size = 2 if first < 0xC0 else 4
        return int.from_bytes(bytes([first & 0x3F]) + self.take(size - 1))
