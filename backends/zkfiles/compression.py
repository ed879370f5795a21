"""The uncompressed bytes of a snapshot's file (gzip or snappy), bounded, as far as they can be read."""

import io
import os
import struct
import zlib
from contextlib import suppress
from typing import IO, Final

import pyarrow as pa

from backends.zkfiles.records import MalformedError

_GZIP: Final = b"\x1f\x8b"
_SNAPPY: Final = b"\x82SNAPPY\0"
_SNAPPY_HEAD: Final = 16
_SNAPPY_AGAIN: Final = int.from_bytes(_SNAPPY[:4], "big", signed=True)
_SNAPPY_RATIO: Final = 64
"""A raw block never grows by more."""
_GZIP_RATIO: Final = 100
"""Nodes differ in their paths, times and transactions: a snapshot shrinks to a tenth, hardly ever to a fiftieth."""
_GZIP_FREE: Final = 64 << 20
"""Most uncompressed bytes of any file."""
_PIECE: Final = 8 << 20
_BLOCK: Final = 4096
_I32: Final = struct.Struct(">i")


def read_image(file: IO[bytes]) -> tuple[str, bytes, MalformedError | None]:
    """Return the content of a file, and the damage of its compression or of the disk."""
    head = file.read(len(_SNAPPY))
    file.seek(0)
    kind, inflate = "plain", _copy
    if head.startswith(_GZIP):
        kind, inflate = "gzip", _gunzip
    elif head == _SNAPPY:
        kind, inflate = "snappy", _unsnap
    sink = io.BytesIO()
    try:
        if kind == "plain":
            with suppress(OSError):
                return kind, file.read(), None
            file.seek(0)
        inflate(file, sink)
    except MalformedError as error:
        return kind, sink.getvalue(), error
    except OSError as error:
        return kind, sink.getvalue(), MalformedError(sink.tell(), f"the disk refuses ({error.strerror})")
    return kind, sink.getvalue(), None


def _copy(file: IO[bytes], sink: io.BytesIO) -> None:
    """Copy up to where the disk refuses."""
    while piece := file.read(_BLOCK):
        sink.write(piece)


def _gunzip(file: IO[bytes], sink: io.BytesIO) -> None:
    inflater = zlib.decompressobj(wbits=31)
    size = os.fstat(file.fileno()).st_size
    limit = max(_GZIP_FREE, _GZIP_RATIO * size)
    try:
        while not inflater.eof:
            piece = inflater.unconsumed_tail or file.read(_PIECE)
            if not piece:
                raise MalformedError(sink.tell(), "the compressed file ends too early")
            sink.write(inflater.decompress(piece, _PIECE))
            if sink.tell() > limit:
                problem = f"{size} bytes become more than {limit}, which no snapshot's do"
                raise MalformedError(sink.tell(), f"cannot be decompressed: {problem}")
    except zlib.error as error:
        raise MalformedError(sink.tell(), f"cannot be decompressed ({error})") from error
    if inflater.unused_data or file.read(1):
        raise MalformedError(sink.tell(), "bytes after the compressed ones")


def _unsnap(file: IO[bytes], sink: io.BytesIO) -> None:
    codec = pa.Codec("snappy")
    size_of_file = os.fstat(file.fileno()).st_size
    file.seek(_SNAPPY_HEAD)
    while head := file.read(_I32.size):
        position = file.tell()
        size = _I32.unpack(head)[0] if len(head) == _I32.size else -1
        if size == _SNAPPY_AGAIN:
            file.seek(position + _SNAPPY_HEAD - _I32.size)
            continue
        if not 0 < size <= size_of_file - position:
            raise MalformedError(sink.tell(), f"the compressed file is cut off, or wrong at byte {position}")
        block = file.read(size)
        whole = _varint(block)
        if whole is None or whole > size * _SNAPPY_RATIO:
            raise MalformedError(sink.tell(), f"cannot be decompressed: a block of impossible size at byte {position}")
        try:
            sink.write(codec.decompress(block, decompressed_size=whole))
        except (pa.ArrowInvalid, OSError) as error:
            raise MalformedError(sink.tell(), f"cannot be decompressed at byte {position}") from error


def _varint(block: bytes) -> int | None:
    value = 0
    for place, byte in enumerate(block[:5]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value
    return None
