"""Hashes of a backup's chain: each seal has that of its rows and of the seal before it.

The hash of rows is of what they say, not of a file: it stays what it is when files are merged or written again.

    rows    SHA-256 of column after column of BACKUP_CHANGES without `seal`: one byte a row, 1 where there is a value;
            then of numbers and times their 8 bytes, little-endian, of the rows that have one; of texts and bytes the
            8 bytes of each one's length, and all of them joined
    seal    SHA-256 of the hash before it, the number of the seal (8 bytes, little-endian) and the hash of its rows
"""

import hashlib
import json
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recovery.model.tables import BACKUP_CHANGES

START: Final = hashlib.sha256(b"bkmeta backup").hexdigest()
"""Hash that the first link of a backup follows."""
_SEAL: Final = "seal"


def hash_rows(rows: pa.Table) -> bytes:
    """Return the hash of changes in their order; `seal` is left out."""
    digest = hashlib.sha256()
    for field in BACKUP_CHANGES:
        if field.name == _SEAL:
            continue
        column = rows[field.name].combine_chunks()
        digest.update(column.is_valid().cast(pa.uint8()).to_numpy(zero_copy_only=False).tobytes())
        values = column.drop_null()
        if pa.types.is_string(field.type) or pa.types.is_binary(field.type):
            raw = values.cast(pa.binary())
            digest.update(pc.binary_length(raw).cast(pa.int64()).to_numpy(zero_copy_only=False).tobytes())
            digest.update(_join(raw))
        else:
            digest.update(values.cast(pa.int64()).to_numpy(zero_copy_only=False).astype("<i8").tobytes())
    return digest.digest()


def _join(texts: pa.Array) -> memoryview:
    """Return all bytes of an array without nulls, one after another."""
    _, offsets, data = texts.buffers()
    if not len(texts) or data is None:
        return memoryview(b"")
    ends = np.frombuffer(offsets, np.int32, len(texts) + 1, texts.offset * 4)
    return memoryview(data)[int(ends[0]) : int(ends[-1])]


def hash_seal(previous: str, number: int, rows: pa.Table) -> str:
    """Return the hash of a seal with its rows behind another hash."""
    return hashlib.sha256(previous.encode() + number.to_bytes(8, "little") + hash_rows(rows)).hexdigest()


def hash_base(previous: str, txn: int, digest: str) -> str:
    """Return the hash of a base behind another hash."""
    return _hash_words(previous, "base", txn, digest)


def hash_gap(previous: str, begin: int, until: int, why: str) -> str:
    """Return the hash of a gap behind another hash."""
    return _hash_words(previous, "gap", begin, until, why)


def _hash_words(*words: Any) -> str:  # noqa: ANN401 - texts and numbers
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()
