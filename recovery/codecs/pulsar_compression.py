"""Pulsar's compression, of its records in stores and of its clients' messages.

    kind   bytes
    0      as they are
    1      one LZ4 block
    2      a ZLIB stream
    3      ZSTD frames
    4      one Snappy block

Source: apache/pulsar 4.0.7, org.apache.pulsar.common.compression.
"""

import zlib
from typing import Final

import pyarrow as pa

from recovery.errors import FormatError, Reason

_NONE: Final = 0
_ZLIB: Final = 2
_CODECS: Final = {1: "lz4_raw", 3: "zstd", 4: "snappy"}
_NAMES: Final = {_NONE: "", 1: "LZ4", _ZLIB: "ZLIB", 3: "ZSTD", 4: "SNAPPY"}


def name_kind(kind: int) -> str:
    """Return the name of a kind, as Pulsar's clients have it; empty: not compressed."""
    return _NAMES.get(kind, str(kind))


def decompress(body: bytes, kind: int, whole: int, noun: str, offset: int) -> bytes:
    """Return bytes as they were before they were compressed.

    Args:
        body: compressed.
        kind: see the module's table.
        whole: size without compression; a caller bounds it.
        noun: name of the bytes, for errors.
        offset: of the bytes, for errors.

    Raises:
        FormatError: an unknown compression, or damaged bytes.
    """
    plain = _decompress(body, kind, whole, noun, offset)
    if len(plain) != whole:
        problem = f"{len(plain)} bytes without compression, {whole} are promised"
        raise FormatError(Reason.BAD_LENGTH, noun, offset, problem)
    return plain


def _decompress(body: bytes, kind: int, whole: int, noun: str, offset: int) -> bytes:
    if kind == _NONE:
        return body
    if kind != _ZLIB and kind not in _CODECS:
        raise FormatError(Reason.BAD_VERSION, noun, offset, f"compression {kind}")
    try:
        if kind == _ZLIB:
            return zlib.decompressobj().decompress(body, whole + 1)
        plain: bytes = pa.Codec(_CODECS[kind]).decompress(body, whole, asbytes=True)
    except (zlib.error, OSError, pa.ArrowException) as error:
        raise FormatError(Reason.BAD_VALUE, noun, offset, f"cannot be decompressed: {error}") from error
    return plain
