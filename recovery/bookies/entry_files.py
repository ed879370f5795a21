"""Entries as files: what `export` and `archive read` give, each format in one place.

    format    file has
    raw       int32 size (big-endian), then the entry as its bookie stores it: `recovery/codecs/entry_frames.py`
    jsonl     JSON: ledger, entry, length, lac, digest, bookies (where they are known), payload (base64); where no
              digest proves where the payload begins, digest is null, and record (base64) has all bytes instead
    parquet   `ENTRIES`: the same as columns; payload or record is null
    pulsar    JSON, a line a message: topic, ledger, entry, batch, publish_time and event_time (ms since 1970),
              producer, sequence, key, properties, payload (base64); then what only some have

    a message that  has
    is encrypted    encrypted: names of the keys; sealed: the bytes, perhaps of a batch; payload null
    is a part       chunk: uuid, number, count, size of the whole; payload: the part, compressed where the whole is
    has no value    payload null, null_value true
    others          key_is_base64, ordering_key (base64), transaction, marker, compacted_out
    compression     of what `sealed`, or the whole that a part is of, still has

An entry that is no message of Pulsar is counted, and has no line.
"""

import base64
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, BinaryIO, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from recovery.codecs.entry_frames import EntryHeaders, join_frames, read_headers
from recovery.codecs.pulsar_message import PulsarMessage, unpack
from recovery.errors import FormatError
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest

ENTRIES: Final = pa.schema(
    [
        pa.field("scope", pa.int64(), nullable=False),
        pa.field("ledger", pa.int64(), nullable=False),
        pa.field("entry", pa.int64(), nullable=False),
        pa.field("lac", pa.int64(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
        pa.field("digest", pa.string()),
        pa.field("bookies", pa.list_(pa.string())),
        pa.field("payload", pa.binary()),
        pa.field("record", pa.binary()),
    ]
)
_ROW_GROUP_BYTES: Final = 32 << 20


class EntryFormat(StrEnum):
    """A format; see the module's table."""

    RAW = "raw"
    JSONL = "jsonl"
    PARQUET = "parquet"
    PULSAR = "pulsar"

    @property
    def ending(self) -> str:
        """What the name of a file of it ends with."""
        return _ENDINGS[self]


MESSAGE_COUNTS: Final = ("messages", "not_messages", "encrypted", "chunks")
"""What is counted where Pulsar's messages are asked for."""
_ENDINGS: Final = {
    EntryFormat.RAW: ".entries",
    EntryFormat.JSONL: ".jsonl",
    EntryFormat.PARQUET: ".parquet",
    EntryFormat.PULSAR: ".messages.jsonl",
}


@dataclass(frozen=True, slots=True, eq=False)
class EntryBatch:
    """Entries of one ledger.

    Attributes:
        ledger: which.
        records: as bookies store them.
        digests: of each the type that its bytes prove; None: none.
        starts: of each where its payload begins; of no use where no digest is proven.
        bookies: of each those that have it; None: nobody knows.
    """

    ledger: LedgerId
    records: Sequence[bytes]
    digests: Sequence[Digest | None]
    starts: Sequence[int]
    bookies: Sequence[tuple[str, ...]] | None = None

    def read_headers(self) -> EntryHeaders:
        """Return the headers of the entries."""
        return read_headers(self.records, self.ledger)

    def list_payloads(self) -> list[bytes | None]:
        """Return what the client wrote in each; None where nothing proves where it begins."""
        rows = zip(self.records, self.starts, self.digests, strict=True)
        return [None if digest is None else record[start:] for record, start, digest in rows]


class EntryWriter(Protocol):
    """Writes entries of one ledger in a format.

    Attributes:
        counts: of what a format knows more of than that they are entries.
    """

    counts: "Counter[str]"

    def write(self, batch: EntryBatch) -> None:
        """Write more entries."""
        ...

    def close(self) -> None:
        """End what was written; the file itself stays open."""
        ...


def make_writer(kind: EntryFormat, sink: BinaryIO, topic: str | None = None) -> EntryWriter:
    """Return what writes entries into a file.

    Args:
        kind: the format.
        sink: the file.
        topic: whose messages they are; None: nothing says so.
    """
    match kind:
        case EntryFormat.RAW:
            return _RawWriter(sink)
        case EntryFormat.JSONL:
            return _LineWriter(sink)
        case EntryFormat.PARQUET:
            return _TableWriter(sink)
        case EntryFormat.PULSAR:
            return _MessageWriter(sink, topic)


class _RawWriter:
    def __init__(self, sink: BinaryIO) -> None:
        self.counts: Counter[str] = Counter()
        self._sink = sink

    def write(self, batch: EntryBatch) -> None:
        self._sink.write(join_frames(batch.records))

    def close(self) -> None:
        """Nothing is held back."""


class _LineWriter(_RawWriter):
    def write(self, batch: EntryBatch) -> None:
        self._sink.write(_dump(_make_line(batch, *row) for row in _list_rows(batch)))


def _list_rows(batch: EntryBatch) -> Iterable[tuple[int, tuple[int, int, int], bytes | None]]:
    """Yield the place of each entry, its id, LAC and length, and its payload."""
    headers = batch.read_headers()
    fields = zip(headers.entry.tolist(), headers.lac.tolist(), headers.length.tolist(), strict=True)
    payloads = zip(fields, batch.list_payloads(), strict=True)
    return ((row, own, payload) for row, (own, payload) in enumerate(payloads))


def _make_line(
    batch: EntryBatch, row: int, fields: tuple[int, int, int], payload: bytes | None
) -> Mapping[str, object]:
    digest, (number, lac, length) = batch.digests[row], fields
    return {
        "ledger": str(batch.ledger),
        "entry": number,
        "length": length,
        "lac": lac,
        "digest": None if digest is None else str(digest),
        **({} if batch.bookies is None else {"bookies": list(batch.bookies[row])}),
        **({"record": _encode(batch.records[row])} if payload is None else {"payload": _encode(payload)}),
    }


class _TableWriter:
    def __init__(self, sink: BinaryIO) -> None:
        self.counts: Counter[str] = Counter()
        self._writer = pq.ParquetWriter(sink, ENTRIES, compression="zstd", write_page_checksum=True)
        self._waiting: list[pa.Table] = []
        self._bytes = 0

    def write(self, batch: EntryBatch) -> None:
        headers, payloads = batch.read_headers(), batch.list_payloads()
        count = len(batch.records)
        columns = {
            "scope": pa.repeat(batch.ledger.scope, count),
            "ledger": pa.repeat(batch.ledger.ledger, count),
            "entry": headers.entry,
            "lac": headers.lac,
            "length": headers.length,
            "digest": [None if digest is None else str(digest) for digest in batch.digests],
            "bookies": [None] * count if batch.bookies is None else [list(names) for names in batch.bookies],
            "payload": payloads,
            "record": [
                record if payload is None else None for record, payload in zip(batch.records, payloads, strict=True)
            ],
        }
        self._waiting.append(pa.table([columns[name] for name in ENTRIES.names], schema=ENTRIES))
        self._bytes += sum(map(len, batch.records))
        if self._bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            rows = pa.concat_tables(self._waiting)
            self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._waiting, self._bytes = [], 0

    def close(self) -> None:
        self._flush()
        self._writer.close()


class _MessageWriter:
    def __init__(self, sink: BinaryIO, topic: str | None) -> None:
        self.counts = Counter(dict.fromkeys(MESSAGE_COUNTS, 0))
        self._sink = sink
        self._topic = topic

    def write(self, batch: EntryBatch) -> None:
        for _, fields, payload in _list_rows(batch):
            try:
                messages = [] if payload is None else unpack(payload)
            except FormatError:
                messages = []
            if not messages:
                self.counts["not_messages"] += 1
            self.counts["messages"] += len(messages)
            self.counts["encrypted"] += sum(bool(message.encrypted) for message in messages)
            self.counts["chunks"] += sum(message.chunk is not None for message in messages)
            # One entry at a time: what some bytes of a batch are without compression may fill the memory.
            self._sink.write(_dump(_make_message(item, self._topic, batch.ledger, fields[0]) for item in messages))

    def close(self) -> None:
        """Nothing is held back."""


def _make_message(message: PulsarMessage, topic: str | None, ledger: LedgerId, number: int) -> Mapping[str, object]:
    line: dict[str, Any] = {
        "topic": topic,
        "ledger": str(ledger),
        "entry": number,
        "batch": message.batch,
        "publish_time": message.published_ms,
        "event_time": message.event_ms,
        "producer": message.producer,
        "sequence": message.sequence,
        "key": message.key,
        "properties": dict(message.properties),
        "payload": None if message.payload is None else _encode(message.payload),
    }
    if message.is_key_base64:
        line["key_is_base64"] = True
    if message.ordering_key is not None:
        line["ordering_key"] = _encode(message.ordering_key)
    if message.is_null:
        line["null_value"] = True
    if message.encrypted:
        line |= {"encrypted": list(message.encrypted), "sealed": _encode(message.sealed or b"")}
    if message.chunk is not None:
        chunk = message.chunk
        line["chunk"] = {"uuid": chunk.uuid, "number": chunk.number, "count": chunk.count, "size": chunk.size}
    if message.compression:
        line["compression"] = message.compression
    if message.transaction is not None:
        line["transaction"] = "({},{})".format(*message.transaction)
    if message.marker is not None:
        line["marker"] = message.marker
    if message.compacted_out:
        line["compacted_out"] = True
    return line


def _encode(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _dump(lines: Iterable[Mapping[str, object]]) -> bytes:
    return "".join([json.dumps(line, separators=(",", ":")) + "\n" for line in lines]).encode()
