"""Headers of entries as rows of numbers: what an entry says of its ledger, and which digest proves it."""

from collections.abc import Sequence
from typing import Final

from recovery.codecs import entry as entry_codec
from recovery.errors import FormatError
from recovery.model.metadata import Digest

DIGESTS: Final = tuple(Digest)
NUMBER_OF_DIGEST: Final = {digest: number for number, digest in enumerate(DIGESTS)}
HEAD_WIDTH: Final = 6
"""Columns of a header row: ledger, entry, LAC, length, size, index in DIGESTS (-1: none verified)."""
LENGTH_COLUMN: Final = 3
SIZE_COLUMN: Final = 4
DIGEST_COLUMN: Final = 5


def make_head(record: bytes | memoryview, passwords: Sequence[bytes]) -> tuple[int, ...]:
    """Return a header row of an entry; all zero where its header cannot be read."""
    try:
        head = entry_codec.decode_header(record)
    except FormatError:
        return (0,) * HEAD_WIDTH
    proven = entry_codec.find_digest(record, passwords)
    digest = -1 if proven is None else DIGESTS.index(proven[0])
    return head.ledger, head.entry, head.lac, head.length, len(record), digest
