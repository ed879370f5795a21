"""A folder of ZooKeeper files with one snapshot of made-up ledgers, as a 3.9 server writes it, and no log.

version-2/snapshot.<zxid>   hierarchical layout; the digest of the tree and the last zxid are in it
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import numpy as np
import pyarrow as pa

from benchmarks.data.ledgers import CHUNK, ENSEMBLE, INSTANCE, PASSWORD, WRITE, chunk
from recovery.codecs.keys import ledger_keys
from recovery.codecs.ledger_metadata import encode_columns
from recovery.codecs.store import INSTANCE_ID, LAYOUT, Layout, layout_bytes
from recovery.model.metadata import Digest, LedgerState

ROOT: Final = "/ledgers"
FOLDER: Final = "version-2"
_HEAD: Final = struct.Struct(">4siqii")
_END: Final = b"\0\0\0\x01/"
_SIZE: Final = struct.Struct(">i")
_TAIL: Final = struct.Struct(">qqqqqiiiqq")
_DIGESTED: Final = struct.Struct(">qqqqqiiiq")
_TIME: Final = 1_795_000_000_000
_ENTRY_SIZE: Final = 136
"""Of every entry, in the lengths of ledgers."""


class _Sink:
    """Nodes and seals, one after the other."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._checksum = 1
        self.digest = 0
        self.zxid = 0

    def put(self, data: bytes) -> None:
        """Write bytes."""
        self._checksum = zlib.adler32(data, self._checksum)
        self._file.write(data)

    def node(self, key: str, value: bytes, children: int = 0) -> None:
        """Write a node that was created by the next transaction."""
        self.zxid += 1
        path, zxid, ms = key.encode(), self.zxid, _TIME + self.zxid
        tail = _TAIL.pack(-1, zxid, zxid, ms, ms, 0, children, 0, 0, zxid)
        self.put(_SIZE.pack(len(path)) + path + _SIZE.pack(len(value)) + value + tail)
        stat = _DIGESTED.pack(zxid, zxid, zxid, ms, ms, 0, children, 0, 0)
        self.digest = (self.digest + zlib.crc32(path + value + stat)) % (1 << 64)

    def seal(self) -> None:
        """Write the checksum of all so far."""
        self.put(struct.pack(">q", self._checksum) + _END)


def write(folder: Path, ledgers: int) -> None:
    """Write a snapshot of so many ledgers."""
    (folder / FOLDER).mkdir()
    unnamed = folder / FOLDER / "unfinished"
    with unnamed.open("wb") as file:
        sink = _Sink(file)
        sink.put(_HEAD.pack(b"ZKSN", 2, -1, 0, 0))
        sink.node("", b"", 1)
        sink.node(ROOT, b"", 100)
        sink.node(ROOT + LAYOUT, layout_bytes(Layout.HIERARCHICAL))
        sink.node(ROOT + INSTANCE_ID, INSTANCE.encode())
        above: list[str] = []
        for key, value in _records(ledgers):
            parts = key.split("/")[1:-1]
            for depth, part in enumerate(parts, 1):
                if above[:depth] != parts[:depth]:
                    above = [*above[: depth - 1], part]
                    sink.node("/".join((ROOT, *above)), b"", 10_000)
            sink.node(ROOT + key, value)
        sink.put(_END)
        sink.seal()
        sink.put(struct.pack(">qiQ", sink.zxid, 2, sink.digest))
        sink.seal()
        sink.put(struct.pack(">q", sink.zxid))
        sink.seal()
    unnamed.rename(unnamed.with_name(f"snapshot.{sink.zxid:x}"))


def _records(ledgers: int) -> Iterator[tuple[str, bytes]]:
    for number in range(-(-ledgers // CHUNK)):
        made = chunk(number, ledgers)
        count = len(made.ledger)
        segments = [
            [{"first": first, "members": members} for first, members in made.segments(at)] for at in range(count)
        ]
        same = {"ensemble_size": ENSEMBLE, "write_quorum": WRITE, "ack_quorum": WRITE}
        table = pa.table(
            {
                **{name: pa.array(np.full(count, value), pa.int32()) for name, value in same.items()},
                "state": [str(LedgerState.CLOSED)] * count,
                "last_entry": made.entries - 1,
                "length": made.entries * _ENTRY_SIZE,
                "segments": segments,
                "digest": [str(Digest.CRC32C)] * count,
                "password": [PASSWORD] * count,
                "ctime": pa.array(_TIME + made.ledger),
                "custom": pa.nulls(count, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
            }
        )
        keys = ledger_keys(Layout.HIERARCHICAL, np.zeros(count, np.int64), made.ledger)
        yield from zip(keys.to_pylist(), encode_columns(table).to_pylist(), strict=True)
