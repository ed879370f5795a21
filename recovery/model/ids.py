"""Ledger ids of 128 bits: (scope, ledger), and the bucket that each falls into.

Both halves are kept as signed 64-bit integers that hold the bit pattern, as Java, Arrow and Spark see them; they are
compared and printed as unsigned. Scope 0 is today's cluster.

    form             example
    short            12345                               scope 0
    pair             7:12345, 0x7:0x3039                 each half decimal or 0x hex, unsigned
    qualified name   00000000000000070000000000003039    32 hex digits, scope first; dashes as in a UUID are accepted
"""

import itertools
import re
from dataclasses import dataclass
from typing import Final, NewType

import numpy as np
import numpy.typing as npt

BookieId = NewType("BookieId", str)
EntryId = NewType("EntryId", int)

BUCKETS: Final = 4096
"""Buckets that every ledger-keyed dataset is sorted by."""

ROWS_PER_TASK: Final = 250_000
"""Rows of copies that one task should see: some 100 MB of Arrow with ordinary groups."""

_MASK: Final = (1 << 64) - 1
_HALF: Final = re.compile(r"0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20}")
_QUALIFIED: Final = re.compile(r"[0-9a-fA-F]{32}")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
_BOOKIE_ID: Final = re.compile(r"[a-zA-Z0-9:-_.\-]+")


def to_signed(value: int) -> int:
    """Return the signed 64-bit integer with the bits of an unsigned one."""
    return value - (1 << 64) if value >> 63 else value


def to_unsigned(value: int) -> int:
    """Return the unsigned 64-bit integer with the bits of a signed one."""
    return value & _MASK


@dataclass(frozen=True, slots=True)
class LedgerId:
    """One ledger of one scope; both halves signed 64-bit patterns."""

    scope: int
    ledger: int

    def __post_init__(self) -> None:
        if not (-(1 << 63) <= self.scope < 1 << 63 and -(1 << 63) <= self.ledger < 1 << 63):
            raise ValueError(f"not two signed 64-bit halves: {self.scope}, {self.ledger}")

    def __str__(self) -> str:
        """The shortest text form: short in scope 0, else the pair."""
        if self.scope == 0:
            return str(to_unsigned(self.ledger))
        return f"{to_unsigned(self.scope)}:{to_unsigned(self.ledger)}"

    def __lt__(self, other: "LedgerId") -> bool:
        return self.unsigned_key < other.unsigned_key

    @property
    def unsigned_key(self) -> tuple[int, int]:
        """The sort key of ids."""
        return to_unsigned(self.scope), to_unsigned(self.ledger)

    @property
    def qualified_name(self) -> str:
        """32 lower-case hex digits, scope first."""
        return f"{to_unsigned(self.scope):016x}{to_unsigned(self.ledger):016x}"

    @property
    def bucket(self) -> int:
        """The bucket in [0, BUCKETS) that rows of this ledger are in."""
        return int(buckets(np.array([self.scope], np.int64), np.array([self.ledger], np.int64))[0])


def _half(text: str) -> int:
    if not _HALF.fullmatch(text):
        raise ValueError(f"neither decimal nor 0x hex: {text!r}")
    value = int(text, 16 if text[:2] in ("0x", "0X") else 10)
    if value > _MASK:
        raise ValueError(f"more than 64 bits: {text}")
    return to_signed(value)


def parse(text: str) -> LedgerId:
    """Return the ledger that a text form names.

    32 digits without a prefix are always a qualified name.

    Raises:
        ValueError: none of the three forms, or a half of more than 64 bits.
    """
    text = text.strip()
    if _QUALIFIED.fullmatch(text) or _UUID.fullmatch(text):
        digits = text.replace("-", "")
        return LedgerId(to_signed(int(digits[:16], 16)), to_signed(int(digits[16:], 16)))
    scope, colon, ledger = text.partition(":")
    return LedgerId(_half(scope), _half(ledger)) if colon else LedgerId(0, _half(text))


def is_short(text: str) -> bool:
    """Whether a text that `parse` accepts is a number alone, without a scope."""
    return _HALF.fullmatch(text.strip()) is not None


def is_bookie_id(text: str) -> bool:
    """Whether BookKeeper accepts the text as a bookie id, and a store as the name of its cookie.

    The character class holds the range ``:`` to ``_``. ZooKeeper takes no ``.`` and
    ``..`` for names, so no bookie has these.
    """
    return _BOOKIE_ID.fullmatch(text) is not None and text.lower() not in ("readonly", ".", "..")


def _splitmix64(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    z = value + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def mix(scope: npt.NDArray[np.int64], ledger: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Return a hash of each id: ``splitmix64(ledger ^ splitmix64(scope))``.

    Source: S. Vigna, splitmix64.c (public domain): state advance and output mix of one step.
    """
    return _splitmix64(ledger.view(np.uint64) ^ _splitmix64(scope.view(np.uint64)))


def buckets(scope: npt.NDArray[np.int64], ledger: npt.NDArray[np.int64]) -> npt.NDArray[np.int16]:
    """Return the bucket of each id: the lowest bits of its hash."""
    return (mix(scope, ledger) & np.uint64(BUCKETS - 1)).astype(np.int16)


def bucket_ranges(rows: int, *, at_least: int = 1, rows_per_task: int = ROWS_PER_TASK) -> list[range]:
    """Cut all buckets into contiguous ranges of about equal size, as many as the number of rows needs."""
    count = min(BUCKETS, max(at_least, -(-rows // rows_per_task), 1))
    edges = [BUCKETS * i // count for i in range(count + 1)]
    return [range(low, high) for low, high in itertools.pairwise(edges)]


def distinct(
    scope: npt.NDArray[np.int64], ledger: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the first place of each id, ascending; and for each element the number of its id."""
    import pyarrow as pa  # noqa: PLC0415 - who decodes one entry loads no Arrow

    raw = pa.py_buffer(np.column_stack((scope, ledger)))
    codes = pa.Array.from_buffers(pa.binary(16), len(scope), [None, raw]).dictionary_encode().indices.to_numpy()
    codes = codes.astype(np.int64)
    first = np.empty(int(codes.max(initial=-1)) + 1, np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    return first, codes
