"""Headers of entries as rows of numbers: an entry's fields, and the digest type that proves them."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from recovery.codecs import entry as entry_codec
from recovery.collect.rows.source_copies import Ints
from recovery.errors import FormatError
from recovery.model.metadata import Digest

DIGESTS: Final = tuple(Digest)
NUMBER_OF_DIGEST: Final = {digest: number for number, digest in enumerate(DIGESTS)}
HEAD_WIDTH: Final = 6
"""Columns of a header row: ledger, entry, LAC, length, size, index in DIGESTS (-1: none verified)."""
PLACE_WIDTH: Final = 4
"""Columns of a place: ledger, entry, number of the file, position."""
LENGTH_COLUMN: Final = 3
SIZE_COLUMN: Final = 4
DIGEST_COLUMN: Final = 5


def place_heads(heads: Ints, file: Ints, position: Ints) -> Ints:
    """Return header rows in the form of `file_heads`: the number of the file after the ledger, the position last."""
    return np.column_stack((heads[:, 0], file, heads[:, 1:], position))


def split_placed(rows: Ints) -> tuple[Ints, Ints]:
    """Return the header rows of placed headers; and (ledger, entry, file, position) of those that no digest proves."""
    heads = np.delete(rows, (1, -1), axis=1)
    return heads, rows[heads[:, DIGEST_COLUMN] < 0][:, (0, 2, 1, -1)]


def make_head(record: bytes | memoryview, passwords: Sequence[bytes]) -> tuple[int, ...]:
    """Return a header row of an entry; all zero where its header cannot be read."""
    try:
        head = entry_codec.decode_header(record)
    except FormatError:
        return (0,) * HEAD_WIDTH
    proven = entry_codec.find_digest(record, passwords)
    digest = -1 if proven is None else DIGESTS.index(proven[0])
    return head.ledger, head.entry, head.lac, head.length, len(record), digest
