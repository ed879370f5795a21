"""Rows of many ledgers kept on disk, and read back one share of the ledgers at a time.

Rows are int64 matrices; the first column is the ledger (its key, see `scoped_ids`). The file has no name, so no end of
the process leaves anything behind.
"""

import os
import tempfile
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from recovery.collect.rows.scoped_ids import bucket_of
from recovery.model.ids import BUCKETS
from recovery.out_folder import disk_error

Rows = npt.NDArray[np.int64]

SHARES: Final = 64
"""Parts of the ledgers, by bucket; one part fits in memory."""
_HELD_BYTES: Final = 8 << 20
"""Kept in memory before rows are set aside."""
_ITEM: Final = 8


class Spool:
    """Accepts rows in any order; the rows of a ledger keep their order.

    Args:
        width: columns.
        folder: on the disk that has room.
        memory: bytes kept in memory.
        shares: parts that the ledgers fall into; a power of two, at most BUCKETS.
    """

    def __init__(self, width: int, folder: Path, *, memory: int = _HELD_BYTES, shares: int = SHARES) -> None:
        self._width = width
        self._shares = shares
        self._folder = folder
        self._limit = memory
        self._rows: list[Rows] = []
        self._bytes = 0
        self._runs: list[tuple[int, Rows]] = []
        self._file: int | None = None
        self._end = 0
        self.count = 0

    def add(self, rows: Rows) -> None:
        """Take rows."""
        if not len(rows):
            return
        self.count += len(rows)
        self._rows.append(rows)
        self._bytes += rows.nbytes
        if self._bytes > self._limit:
            self.set_aside()

    def set_aside(self) -> None:
        """Move the rows in memory to the disk, sorted by share."""
        if not self._rows:
            return
        rows = np.concatenate(self._rows)
        share = find_shares(rows[:, 0], self._shares)
        order = np.argsort(share, kind="stable")
        bounds = np.searchsorted(share[order], np.arange(self._shares + 1))
        data = memoryview(rows[order].tobytes())
        position = self._end
        try:
            if self._file is None:
                with tempfile.TemporaryFile(dir=self._folder) as file:
                    self._file = os.dup(file.fileno())
            while data:
                written = os.pwrite(self._file, data, position)
                position += written
                data = data[written:]
        except OSError as error:
            raise disk_error(self._folder, error) from error
        self._runs.append((self._end, bounds))
        self._end = position
        self._rows = []
        self._bytes = 0

    def share(self, number: int) -> Rows:
        """Return the rows of one part of the ledgers."""
        parts = [self._read(start, bounds[number], bounds[number + 1]) for start, bounds in self._runs]
        parts.extend(rows[find_shares(rows[:, 0], self._shares) == number] for rows in self._rows)
        return np.concatenate(parts) if parts else self._make_empty()

    def read_share(self, number: int | None) -> Rows:
        """Return the rows of one part of the ledgers; None: every row."""
        return self.read_all() if number is None else self.share(number)

    def read_all(self) -> Rows:
        """Return every row; only where they are few."""
        parts = [self._read(start, 0, bounds[-1]) for start, bounds in self._runs]
        parts.extend(self._rows)
        return np.concatenate(parts) if parts else self._make_empty()

    def _make_empty(self) -> Rows:
        return np.empty((0, self._width), np.int64)

    def _read(self, start: int, low: int, high: int) -> Rows:
        rows = np.empty((high - low, self._width), np.int64)
        if self._file is None or not len(rows):
            return rows
        into = rows.reshape(-1).view(np.uint8).data
        position = start + int(low) * self._width * _ITEM
        while into:
            got = os.preadv(self._file, [into], position)
            if not got:
                raise OSError("a temporary file lost its end")
            position += got
            into = into[got:]
        return rows

    def clear(self) -> None:
        """Forget every row."""
        self.close()
        self._rows, self._runs = [], []
        self._bytes = self._end = self.count = 0

    def close(self) -> None:
        """Free the space on disk."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def find_shares(ledger: Rows, shares: int = SHARES) -> Rows:
    """Return the share of each ledger, below `shares`."""
    return bucket_of(ledger) // (BUCKETS // shares)
