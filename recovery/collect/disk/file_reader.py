"""Reading a bookie's files gently: at no more than a rate, with progress, and with errors of the disk as values.

Files are read, not only mapped: a bad sector is an `OSError` to a read and the end of the process to a mapping. Where
a codec wants a whole file it gets a mapping whose bytes were read just before (`Mapped.load`), so that touching them
is safe and paced.

Where there is a rate, somebody else needs the disk and the page cache: nothing is read ahead of the rate, and of whole
files what was not in the page cache before does not stay there.
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

_C: Final = ctypes.CDLL(None)
_WINDOW: Final = 8 << 20
"""Bytes that the disk is asked for ahead."""
_PIECE: Final = 2 << 20
"""Bytes read at a time: what stays in the processor's cache."""
_BLOCK: Final = 4096
"""Smallest stretch given up around a bad sector."""
_STEPS: Final = 200
"""Progress events a stage at most, roughly."""
_PATIENCE_S: Final = 1.0
"""For the others who share a rate: one who was killed may never give it back."""
_AHEAD_S: Final = 0.25
"""Seconds of the rate that may be read before they are counted."""


@dataclass(frozen=True, slots=True)
class Progress:
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
    """Counts what is read, holds it back to a rate, and tells how far it is.

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
        progress: Callable[[Progress], None],
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
        self._now = Progress("", 0, 0, 0, 0)
        self._told = 0
        self.read = 0
        self.files = 0

    def begin(self, stage: str, files: int = 0, size: int = 0) -> None:
        """Start a stage of so many files and bytes."""
        self._now = Progress(stage, 0, files, 0, size)
        self._told = 0
        self._progress(self._now)

    def took(self, size: int, files: int = 0) -> None:
        """Count bytes that were just read and whole files that are done; wait until the rate allows more."""
        self.count(size, files)
        if self.rate is not None:
            now = self.clock()
            due = self._until(now, size / self.rate)
            if due > now:
                self._sleep(due - now)

    def _until(self, now: float, seconds: float) -> float:
        if self.shared is None:
            self._due = max(self._due, now) + seconds
            return self._due
        lock = self.shared.get_lock()
        taken = lock.acquire(timeout=_PATIENCE_S)
        try:
            self.shared.value = due = max(self.shared.value, now) + seconds
        finally:
            if taken:
                lock.release()
        return due

    def at_once(self, size: int, most: int) -> int:
        """Return how many reads of a size may be under way before any of them is counted."""
        return most if self.rate is None else max(1, min(most, int(self.rate * _AHEAD_S / size)))

    def count(self, size: int, files: int) -> None:
        """Count what another process read, which kept to its rate itself."""
        self.read += size
        self.files += files
        at = self._now
        self._now = Progress(at.stage, at.files + files, at.files_total, at.bytes + size, at.bytes_total)
        step = max(at.bytes_total // _STEPS, _WINDOW)
        if self._now.bytes - self._told >= step:
            self._told = self._now.bytes
            self._progress(self._now)

    def end(self) -> None:
        """Tell where the stage ended."""
        self._progress(self._now)


class Mapped:
    """A whole file as bytes, of which only what was asked for by `load` or `spot` may be touched.

    Args:
        path: of a regular file.
        meter: counts and paces the reads.
        most: bytes that are looked at; None: all.

    Attributes:
        view: the bytes.
        size: of the file when it was opened, or `most`.
        unreadable: stretches that the disk refused, as (offset, length); `view` holds zeros there.
    """

    def __init__(self, path: Path, meter: Meter, most: int | None = None) -> None:
        self._meter = meter
        self._fd = open_regular(path)
        self.size = min(os.fstat(self._fd).st_size, sys.maxsize if most is None else most)
        self._map = mmap.mmap(self._fd, self.size, prot=mmap.PROT_READ) if self.size else None
        self.view = memoryview(self._map or b"")
        self.unreadable: list[tuple[int, int]] = []
        self._let_go = 0
        self._ours: list[int] = []
        self._scratch = memoryview(bytearray(min(_PIECE, self.size)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; the mapping goes when the last view of it does."""
        if self._map is not None and self._ours:
            self._map.madvise(mmap.MADV_DONTNEED)  # what is mapped stays in the page cache
        for at in self._ours:
            os.posix_fadvise(self._fd, at, _PIECE, os.POSIX_FADV_DONTNEED)
        os.close(self._fd)
        self.view, self._map = memoryview(b""), None

    def load(self) -> None:
        """Make the whole file safe to touch: read it once, and where the disk refuses put zeros in a private copy."""
        at = 0
        if self._meter.rate is not None and self._map is not None:
            self._ours = _not_cached(self._map)
        try:
            while at < self.size:
                if at % _WINDOW < _PIECE and self._meter.rate is None:
                    os.posix_fadvise(self._fd, at, 2 * _WINDOW, os.POSIX_FADV_WILLNEED)
                at += self._read(self._scratch, at)
        except OSError:
            self._patch()

    def spot(self, start: int, end: int) -> None:
        """Make one stretch safe to touch.

        Raises:
            OSError: the disk refuses some of it.
        """
        at = max(start, 0)
        while at < min(end, self.size):
            at += self._read(self._scratch[: end - at], at)

    def release(self, end: int) -> None:
        """Give back the memory up to a position; it can still be touched."""
        if self._map is not None and end - self._let_go >= _WINDOW:
            start, self._let_go = self._let_go, end - end % mmap.PAGESIZE
            self._map.madvise(mmap.MADV_DONTNEED, start, self._let_go - start)

    def _read(self, into: memoryview, at: int) -> int:
        got = os.preadv(self._fd, [into], at)
        if got <= 0:
            raise OSError(f"the file ends at {at}, and had {self.size} bytes when it was opened")
        self._meter.took(got)
        return got

    def _patch(self) -> None:
        copy = memoryview(mmap.mmap(-1, self.size))
        at = 0
        while at < self.size:
            length = min(_WINDOW, self.size - at)
            if not self._copy(copy, at, length):
                for small in range(at, at + length, _BLOCK):
                    cut = min(_BLOCK, at + length - small)
                    if not self._copy(copy, small, cut):
                        self._refused(small, cut)
            at += length
        self.view, self._map = copy, None

    def _copy(self, target: memoryview, at: int, length: int) -> bool:
        end = at + length
        try:
            while at < end:
                at += self._read(target[at:end], at)
        except OSError:
            return False
        return True

    def _refused(self, at: int, length: int) -> None:
        if self.unreadable and sum(self.unreadable[-1]) == at:
            start, before = self.unreadable.pop()
            self.unreadable.append((start, before + length))
        else:
            self.unreadable.append((at, length))


def _not_cached(file: mmap.mmap) -> list[int]:
    """Return where the pieces of a file begin of which nothing is in the page cache; none if that is not told."""
    page = np.zeros(-(-len(file) // mmap.PAGESIZE), np.uint8)
    at, into = (ctypes.c_void_p(np.frombuffer(of, np.uint8).ctypes.data) for of in (file, page))
    if _C.mincore(at, ctypes.c_size_t(len(file)), into):
        return []
    starts = np.arange(0, len(page), _PIECE // mmap.PAGESIZE)
    cached = np.maximum.reduceat(page & 1, starts) > 0
    found: list[int] = (starts[~cached] * mmap.PAGESIZE).tolist()
    return found
