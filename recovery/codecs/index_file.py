"""Ledger index of interleaved storage: where one bookie keeps the entries of one ledger (``<hex>/<hex>/<hex id>.idx``).

Big-endian. Offsets and sizes in bytes.

    at      size  field
    0       4     magic, b"BKLE"
    4       4     version, int32: 0 or 1
    8       4     K, int32
    12      K     master key
    12+K    4     state bits, int32; bit 0: fenced. BookKeeper 4.0 has none: until it writes slots, a file ends here
    16+K    4     X, int32, version 1 only: 0 or at least 16
    20+K    X     explicit LAC, version 1 only (see `entry`)
            to 1023: zero
    1024          slots, int64 each: location of entry 0, 1, ...; 0: none (see `entry_log.location`)

A slot is a claim: it may point past the end of a log, or to another entry. The ledger id is in the path only:

    scope 0        aa/bb/id.idx                              second lowest and lowest byte of the id, and the id itself,
                                                             in hex without leading zeros
    other scopes   ssssssss/ssssssss/llllllll/llllllll.idx   the halves of scope and id, eight hex digits each

Source: apache/bookkeeper 9590a97, bookie/FileInfo, IndexPersistenceMgr, LedgerEntryPage;
docs/formats/bookie-storage.md.
"""

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from recovery.errors import FormatError, Reason
from recovery.model import ids
from recovery.model.ids import LedgerId

HEADER_SIZE: Final = 1024
SLOT: Final = 8
_MAGIC: Final = b"BKLE"
_START: Final = struct.Struct(">4sii")
_I32: Final = struct.Struct(">i")
_FENCED: Final = 1
_LAC_MIN: Final = 16
_SUFFIX: Final = ".idx"
_SCOPED_PATH: Final = re.compile(r"([0-9a-f]{8})/([0-9a-f]{8})/([0-9a-f]{8})/([0-9a-f]{8})\.idx")


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The header of an index file.

    Attributes:
        version: 0 or 1.
        master_key: as stored; see `entry.key_kind`.
        fenced: False proves nothing: a clean stop can lose a fence.
        explicit_lac: as stored; None if there is none, as always in version 0.
    """

    version: int
    master_key: bytes = field(repr=False)
    fenced: bool
    explicit_lac: bytes | None


def decode_header(head: bytes | memoryview) -> IndexHeader:
    """Return the header of an index file.

    Args:
        head: the first 1024 bytes, or all of a shorter file.

    Raises:
        FormatError: the header is cut, or not one.
    """
    head = memoryview(head)[:HEADER_SIZE]
    if not head:
        raise FormatError(Reason.EMPTY, "index file", 0)
    if len(head) < _START.size:
        raise FormatError(Reason.TRUNCATED, "index file", len(head), "the header is cut")
    magic, version, key_size = _START.unpack_from(head)
    if magic != _MAGIC:
        raise FormatError(Reason.BAD_MAGIC, "index file", 0)
    if version not in (0, 1):
        raise FormatError(Reason.BAD_VERSION, "index file", 4, f"header version {version}")
    key, position = _take(head, _START.size, key_size, "master key")
    state = 0
    if version or position < len(head):
        state, position = _int(head, position)
    lac: memoryview | None = None
    if version:
        lac_size, position = _int(head, position)
        if lac_size and lac_size < _LAC_MIN:
            raise FormatError(
                Reason.BAD_LENGTH, "index file", position - _I32.size, f"explicit LAC of {lac_size} bytes"
            )
        lac, position = _take(head, position, lac_size, "explicit LAC")
    return IndexHeader(version, bytes(key), bool(state & _FENCED), bytes(lac) if lac else None)


def is_first_header(head: bytes | memoryview, header: IndexHeader) -> bool:
    """Whether a file that is shorter than a header is whole: BookKeeper 4.0 wrote so much until it wrote slots."""
    return header.version == 0 and len(head) == _START.size + len(header.master_key)


def _int(head: memoryview, position: int) -> tuple[int, int]:
    raw, behind = _take(head, position, _I32.size, "field")
    return int(_I32.unpack(raw)[0]), behind


def _take(head: memoryview, position: int, size: int, noun: str) -> tuple[memoryview, int]:
    if size < 0 or position + size > HEADER_SIZE:
        raise FormatError(Reason.BAD_LENGTH, "index file", position, f"{noun} of {size} bytes")
    if position + size > len(head):
        raise FormatError(Reason.TRUNCATED, "index file", len(head), "the header is cut")
    return head[position : position + size], position + size


def encode_header(header: IndexHeader) -> bytes:
    """Return the 1024 bytes of a header.

    Raises:
        ValueError: the fields do not fit into the header, or version 0 has no place for an explicit LAC.
    """
    if header.version == 0 and header.explicit_lac is not None:
        raise ValueError("version 0 has no explicit LAC")
    raw = _START.pack(_MAGIC, header.version, len(header.master_key)) + header.master_key
    raw += _I32.pack(_FENCED if header.fenced else 0)
    if header.version:
        lac = header.explicit_lac or b""
        raw += _I32.pack(len(lac)) + lac
    if len(raw) > HEADER_SIZE:
        raise ValueError(f"a header of {len(raw)} bytes")
    return raw.ljust(HEADER_SIZE, b"\0")


def encode(header: IndexHeader, locations: npt.NDArray[np.int64]) -> bytes:
    """Return an index file; ``locations[e]`` is its slot `e`."""
    return encode_header(header) + locations.astype(">i8").tobytes()


def slots(body: bytes | memoryview) -> npt.NDArray[np.int64]:
    """Return the slots of an index file from its bytes after the header, in native byte order.

    A partial slot at the end is ignored.
    """
    return np.frombuffer(body, ">i8", len(body) // SLOT).astype(np.int64)


def path_of(ledger: int, scope: int = 0) -> str:
    """Return the path of a ledger's index below an index folder's ``current``."""
    if scope:
        name = LedgerId(scope, ledger).qualified_name
        return f"{name[:8]}/{name[8:16]}/{name[16:24]}/{name[24:]}.idx"
    return f"{ledger >> 8 & 0xFF:x}/{ledger & 0xFF:x}/{ledger:x}.idx"


def ledger_of(path: str) -> int | None:
    """Return the ledger of scope 0 that has its index at a path below ``current``, or None."""
    folder, _, name = path.rpartition("/")
    return next(ledgers_in(folder, [name]))


def ledgers_in(folder: str, names: Iterable[str]) -> Iterator[int | None]:
    """Yield the result of `ledger_of` for each file of a folder below ``current``."""
    low = None
    for name in names:
        try:
            ledger = int(name.removesuffix(_SUFFIX), 16)
        except ValueError:
            yield None
            continue
        if ledger & 0xFFFF != low and path_of(ledger) == f"{folder}/{name}":
            low = ledger & 0xFFFF
        # The folder was seen to be that of this low half, so the name alone decides.
        yield ledger if ledger & 0xFFFF == low and 0 <= ledger < 1 << 63 and f"{ledger:x}{_SUFFIX}" == name else None


def parse_scoped_name(path: str) -> str | None:
    """Return the qualified name of the ledger of another scope that has its index at a path, or None."""
    match = _SCOPED_PATH.fullmatch(path)
    return "".join(match.groups()) if match is not None and (match[1] + match[2]).strip("0") else None


def parse_scoped_ledger(path: str) -> LedgerId | None:
    """Return the ledger of another scope that has its index at a path below ``current``, or None."""
    name = parse_scoped_name(path)
    return None if name is None else ids.parse(name)
