"""Reading a bookie's files gently: at no more than a rate, with progress, and with errors of the disk as values.

Files are read, not only mapped: a bad sector is an `OSError` to a read and the end of the process to a mapping. A codec
that wants a whole file gets a mapping of bytes that were just read (`Mapped.load`), so access is safe and paced. A
running bookie goes on writing to its newest journal and log, from front to back, where zeros were
reserved: a codec that met these zeros would find a record there at its next look, and take it for damage. So the
mapping is cut loose from the file behind the last byte that is not zero.

With a rate, a bookie needs the disk and the page cache. So nothing is read ahead of the rate, and pages of whole files
stay in the page cache only if they were there before.
"""

import ctypes
import mmap
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Final, Self

import numpy as np

from backends.files import open_regular
from recovery.codecs.framing import find_written_end

_C: Final = ctypes.CDLL(None, use_errno=True)
_map_pages: Final = _C.mmap
_map_pages.restype = ctypes.c_void_p
_map_pages.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
_MAP_FIXED: Final = 0x10
"""Of Linux and macOS, which Python does not name."""
_WINDOW: Final = 8 << 20
"""Bytes that the disk is asked for ahead."""
_PIECE: Final = 2 << 20
"""Bytes read at a time: they fit into the processor's cache."""
_BLOCK: Final = 4096
"""Smallest unreadable stretch around a bad sector."""
_STEPS: Final = 200
"""Most progress events of a stage, roughly."""
_PATIENCE_S: Final = 1.0
"""How long a process waits for the lock of the rate: a killed process never releases it."""
_AHEAD_S: Final = 0.25
"""Seconds of the rate that may be read ahead of the count."""


@dataclass(frozen=True, slots=True)
class ReadProgress:
    """How far a stage is; totals are 0 where they cannot be known before.

    Attributes:
        stage: folders, index, journals, logs, inventory.
        files, files_total: files done.
        bytes, bytes_total: bytes done.
    """

    stage: str
    files: int
    files_total: int
    bytes: int
    bytes_total: int


class Meter:
    """Counts reads, limits them to a rate, and reports the progress.

    The rate holds over the whole run: what was not used is not saved up for a burst.

    Attributes:
        rate: bytes in a second at most; None: as fast as it goes.
        clock: seconds that only grow, the same for all processes.
        shared: when the next byte is due, where several processes share one rate.
        read: bytes so far.
        files: whole files so far.
    """

    def __init__(
        self,
        rate: float | None,
        progress: Callable[[ReadProgress], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.rate = rate
        self._progress = progress
        self.clock = clock
        self._sleep = sleep
        self.shared: Synchronized[float] | None = None
        self._due = 0.0
        self._current = ReadProgress("", 0, 0, 0, 0)
        self._reported_bytes = 0
        self.read = 0
        self.files = 0

    def begin(self, stage: str, files: int = 0, size: int = 0) -> None:
        """Start a stage with its numbers of files and bytes."""
        self._current = ReadProgress(stage, 0, files, 0, size)
        self._reported_bytes = 0
        self._progress(self._current)

    def took(self, size: int, files: int = 0) -> None:
        """Count bytes that were just read and files that are finished; wait until the rate allows more."""
        self.count(size, files)
        if self.rate is not None:
            current_s = self.clock()
            due = self._find_due(current_s, size / self.rate)
            if due > current_s:
                self._sleep(due - current_s)

    def _find_due(self, current_s: float, seconds: float) -> float:
        if self.shared is None:
            self._due = max(self._due, current_s) + seconds
            return self._due
        lock, number = self.shared.get_lock(), self.shared.get_obj()  # `shared.value` would wait for the lock for ever
        taken = lock.acquire(timeout=_PATIENCE_S)
        try:
            number.value = due = max(number.value, current_s) + seconds
        finally:
            if taken:
                lock.release()
        return due

    def at_once(self, size: int, limit: int) -> int:
        """Return how many reads of a size may be in flight before any of them is counted."""
        return limit if self.rate is None else max(1, min(limit, int(self.rate * _AHEAD_S / size)))

    def count(self, size: int, files: int) -> None:
        """Count reads of another process, which kept to the rate itself."""
        self.read += size
        self.files += files
        current = self._current
        self._current = ReadProgress(
            current.stage, current.files + files, current.files_total, current.bytes + size, current.bytes_total
        )
        step = max(current.bytes_total // _STEPS, _WINDOW)
        if self._current.bytes - self._reported_bytes >= step:
            self._reported_bytes = self._current.bytes
            self._progress(self._current)

    def end(self) -> None:
        """Report where the stage ended."""
        self._progress(self._current)


class Mapped:
    """A whole file as bytes. Only bytes that `load` or `spot` read may be accessed.

    Args:
        path: of a regular file.
        meter: counts and paces the reads.
        limit: bytes that are read; None: all.

    Attributes:
        view: the bytes.
        size: of the file when it was opened, or `limit`.
        unreadable: stretches that the disk refused, as (offset, length); `view` holds zeros there.
    """

    def __init__(self, path: Path, meter: Meter, limit: int | None = None) -> None:
        self._meter = meter
        self._fd = open_regular(path)
        self.size = min(os.fstat(self._fd).st_size, sys.maxsize if limit is None else limit)
        self._map = mmap.mmap(self._fd, self.size, prot=mmap.PROT_READ) if self.size else None
        self.view = memoryview(self._map or b"")
        self.unreadable: list[tuple[int, int]] = []
        self._released = 0
        self._of_file = self.size
        self._not_cached: list[int] = []
        self._scratch = memoryview(bytearray(min(_PIECE, self.size)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the mapping ends with the last view of it."""
        if self._map is not None and self._not_cached:
            # What is mapped stays in the page cache; what is held apart from the file would be lost.
            self._map.madvise(mmap.MADV_DONTNEED, 0, self._of_file)
        for start in self._not_cached:
            os.posix_fadvise(self._fd, start, _PIECE, os.POSIX_FADV_DONTNEED)
        os.close(self._fd)
        self.view, self._map = memoryview(b""), None

    def load(self) -> None:
        """Read the whole file once; then the view may be read. It has zeros where the disk refuses.

        What is written behind the end of what the file has by then, into zeros that were reserved, is not seen.
        """
        position = 0
        if self._meter.rate is not None and self._map is not None:
            self._not_cached = _find_not_cached(self._map)
        try:
            while position < self.size:
                if position % _WINDOW < _PIECE and self._meter.rate is None:
                    os.posix_fadvise(self._fd, position, 2 * _WINDOW, os.POSIX_FADV_WILLNEED)
                position += self._read(self._scratch, position)
            self._hold_zeros(find_written_end(self.view))
        except OSError:
            self._patch()

    def spot(self, start: int, end: int) -> None:
        """Read one stretch from the disk; then the view may be read there.

        Raises:
            OSError: the disk refuses some of it.
        """
        position = max(start, 0)
        while position < min(end, self.size):
            position += self._read(self._scratch[: end - position], position)

    def release(self, end: int) -> None:
        """Release the memory up to a position; it can still be read."""
        end = min(end, self._of_file)
        if self._map is not None and end - self._released >= _WINDOW:
            start, self._released = self._released, end - end % mmap.PAGESIZE
            self._map.madvise(mmap.MADV_DONTNEED, start, self._released - start)

    def _read(self, into: memoryview, position: int) -> int:
        got = os.preadv(self._fd, [into], position)
        if got <= 0:
            raise OSError(f"the file ends at {position}, and had {self.size} bytes when it was opened")
        self._meter.took(got)
        return got

    def _hold_zeros(self, end: int) -> None:
        """Lay zeros of our own over the mapping from a position on."""
        if self._map is None or end == self.size:
            return
        page = end - end % mmap.PAGESIZE
        begun = bytes(self.view[page:end])
        address = np.frombuffer(self._map, np.uint8).ctypes.data + page
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
        made = _map_pages(address, self.size - page, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        if made != address:
            raise OSError(ctypes.get_errno(), "no memory for the end of a file")
        self._of_file = page
        ctypes.memmove(address, begun, len(begun))

    def _patch(self) -> None:
        copy = memoryview(mmap.mmap(-1, self.size))
        position = 0
        while position < self.size:
            length = min(_WINDOW, self.size - position)
            if not self._copy(copy, position, length):
                for small in range(position, position + length, _BLOCK):
                    cut = min(_BLOCK, position + length - small)
                    if not self._copy(copy, small, cut):
                        self._add_unreadable(small, cut)
            position += length
        self.view, self._map = copy, None

    def _copy(self, target: memoryview, position: int, length: int) -> bool:
        end = position + length
        try:
            while position < end:
                position += self._read(target[position:end], position)
        except OSError:
            return False
        return True

    def _add_unreadable(self, start: int, length: int) -> None:
        if self.unreadable and sum(self.unreadable[-1]) == start:
            start, known = self.unreadable.pop()
            self.unreadable.append((start, known + length))
        else:
            self.unreadable.append((start, length))


def _find_not_cached(file: mmap.mmap) -> list[int]:
    """Return the beginnings of the pieces of a file without a page in the page cache; none if that is not known."""
    page = np.zeros(-(-len(file) // mmap.PAGESIZE), np.uint8)
    address, into = (ctypes.c_void_p(np.frombuffer(buffer, np.uint8).ctypes.data) for buffer in (file, page))
    if _C.mincore(address, ctypes.c_size_t(len(file)), into):
        return []
    starts = np.arange(0, len(page), _PIECE // mmap.PAGESIZE)
    cached = np.maximum.reduceat(page & 1, starts) > 0
    pieces: list[int] = (starts[~cached] * mmap.PAGESIZE).tolist()
    return pieces
