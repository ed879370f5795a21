"""Entries as files: what is written at a time does not grow with the number of entries that come together."""

import io
import json
import struct
from typing import Any

import google_crc32c
import pyarrow as pa

from recovery.bookies.entry_files import EntryBatch, EntryFormat, make_writer
from recovery.codecs import entry
from recovery.codecs._pb.pulsar_message_pb2 import MessageMetadata
from recovery.codecs.entry import HEADER_SIZE, EntryHeader
from recovery.model.ids import LedgerId
from recovery.model.metadata import DIGEST_SIZES, Digest

LEDGER = LedgerId(0, 7)
WHOLE = 1 << 20


class Watched(io.BytesIO):
    """A file that knows the most bytes that it got at once."""

    most = 0

    def write(self, data: Any, /) -> int:
        """Take bytes."""
        self.most = max(self.most, len(data))
        return super().write(data)


def make_entry(number: int) -> bytes:
    """Return an entry with a message of zeros, which are very few bytes compressed."""
    body = pa.compress(bytes(WHOLE), "zstd", asbytes=True)
    head = MessageMetadata(producer_name="p", sequence_id=number, publish_time=2)
    head.compression, head.uncompressed_size = 3, WHOLE
    front = head.SerializeToString()
    checked = struct.pack(">i", len(front)) + front + body
    payload = struct.pack(">HI", 0x0E01, google_crc32c.value(checked)) + checked
    return entry.encode(EntryHeader(7, number, number - 1, (number + 1) * len(payload)), payload, Digest.CRC32C)


def test_messages_are_decompressed_one_entry_at_a_time() -> None:
    """A block of an archive may have thousands of entries that are a thousand times as large without compression."""
    records = [make_entry(number) for number in range(16)]
    assert sum(map(len, records)) < WHOLE / 16
    start = HEADER_SIZE + DIGEST_SIZES[Digest.CRC32C]
    batch = EntryBatch(LEDGER, records, [Digest.CRC32C] * len(records), [start] * len(records))
    sink = Watched()
    writer = make_writer(EntryFormat.PULSAR, sink, "t")
    writer.write(batch)
    writer.close()
    assert writer.counts == {"messages": 16, "not_messages": 0, "encrypted": 0, "chunks": 0}
    assert [json.loads(line)["entry"] for line in sink.getvalue().splitlines()] == list(range(16))
    assert sink.most < 2 * WHOLE
