"""Index files of an interleaved or sorted bookie, read many at a time; `index_folders` finds them.

Small files are read into one buffer and decoded in one NumPy pass; large ones block by block, their holes skipped.
Headers are decoded column-wise where they have the shape that every released bookie writes, else by the codec; a
property test compares both.

Source: docs/formats/bookie-storage.md.
"""

import errno
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Final

import numpy as np

from backends.files import open_regular
from recovery.codecs import index_file
from recovery.codecs.index_file import IndexHeader
from recovery.collect.disk.file_reader import Meter
from recovery.collect.rows.damage import Hides, TakesDamage, UnreadPiece
from recovery.collect.rows.index_slots import Block, IndexPiece, make_block
from recovery.collect.rows.ledger_facts import FACT_WIDTH, FENCED, KEY, LAC, LEDGER, LIMBO, NONE, SOURCE, Interned
from recovery.collect.rows.source_copies import Ints, Mask
from recovery.collect.sources.index_folders import IndexFile
from recovery.errors import FormatError, Reason

_HEAD: Final = index_file.HEADER_SIZE
_HEAD_WORDS: Final = _HEAD // 8
_SMALL: Final = 64 << 10
"""A file of this size or more is read block by block."""
_BUFFER: Final = 2 << 20
"""Little enough for the processor's cache, and enough that a pass costs little a file."""
_BATCH: Final = 224
"""Files of one page, with headers, that fill the buffer."""
_BLOCK: Final = 30_240 * index_file.SLOT
"""Bytes of a large file that are read at a time: they fit into the cache, and into memory that is reused. A multiple of
most ensemble sizes, so patterns are not cut."""
_IN_FLIGHT: Final = 16
"""Batches, and folders, that wait for a cold disk at a time; without waits, threads cost more than they save."""
_WAITS: Final = 200e-6
"""From so many seconds of waiting for a file on, the disk is cold; work does not count."""
_SCHEDULED: Final = Path("/proc/thread-self/schedstat")
_COLD_BATCHES: Final = 128
"""After so many batches, one batch is timed alone again."""
_PAGES: Final = (4096, 2048, 1024, 512)
"""A bookie writes whole pages after the header; 8192 bytes by default."""

# The header as every released bookie writes it; see `codecs.index_file`.
_SHAPE: Final = 40
_MAGIC: Final = int.from_bytes(b"BKLE")
_KEY_SIZE: Final = 20
_KEY_AT: Final = slice(12, 12 + _KEY_SIZE)


def _read_idle_clock() -> float:
    """Return a clock of this thread's waits: it stops while the thread works, or waits only for a free processor.

    Else a busy machine would look like a slow disk, as it does where the system does not tell. Source: Linux,
    Documentation/scheduler/sched-stats.rst: what `schedstat` has second are nanoseconds on a run queue.
    """
    queued = 0
    with suppress(OSError, ValueError, IndexError):
        queued = int(_SCHEDULED.read_bytes().split()[1])
    return time.monotonic() - time.thread_time() - queued * 1e-9


@dataclass(frozen=True, slots=True)
class _Loaded:
    """Small files in one buffer, each at a multiple of eight bytes.

    Attributes:
        buffer: holds `files`, of `sizes`.
        large: files that are read apart.
        rest: files that found no room.
        failed: files that cannot be read.
    """

    buffer: bytearray
    files: list[IndexFile]
    sizes: list[int]
    large: list[IndexFile]
    rest: list[IndexFile]
    failed: list[tuple[IndexFile, OSError]]


@dataclass(slots=True)
class Pages:
    """The size of pages, which is stored nowhere, estimated from the sizes of index files.

    Attributes:
        off: files that do not end with a page, for each possible size of pages.
        files: that were examined.
        cut: files that do not end with a page of the largest size, and their sizes.
    """

    off: list[int] = field(default_factory=lambda: [0] * len(_PAGES))
    files: int = 0
    cut: list[tuple[IndexFile, int]] = field(default_factory=list)

    def take(self, files: Sequence[IndexFile], size: Ints) -> None:
        """Examine files that have slots, and their sizes in bytes."""
        body = size - _HEAD
        self.files += len(body)
        self.off = [off + int((body % page > 0).sum()) for off, page in zip(self.off, _PAGES, strict=True)]
        self.cut += [(files[n], int(size[n])) for n in np.flatnonzero(body % _PAGES[0] > 0).tolist()]

    def absorb(self, other: "Pages") -> None:
        """Take the results of another process."""
        self.off = [own + added for own, added in zip(self.off, other.off, strict=True)]
        self.files += other.files
        self.cut += other.cut

    def report_cut(self, damage: TakesDamage) -> None:
        """Report the files that end inside a page: their bookie wrote more. Call it when all files were read.

        The largest size that most files agree with is taken.
        """
        page = next((page for page, off in zip(_PAGES, self.off, strict=True) if 2 * off <= self.files), 8)
        for file, size in self.cut:
            if (size - _HEAD) % page:
                detail = f"ends inside a page of {page} bytes"
                damage.add(
                    UnreadPiece(file.path, Reason.TRUNCATED, Hides.LEDGER, size, ledger=file.ledger, detail=detail)
                )


class IndexReader:
    """Reads index files.

    Attributes:
        bytes, files: of each folder, by its number: bytes of headers and slots, and how many files there are.
        pages: the page size, from the sizes of files.
    """

    def __init__(self, meter: Meter, damage: TakesDamage, secrets: Interned) -> None:
        self._meter = meter
        self._damage = damage
        self._secrets = secrets
        self._buffers: list[bytearray] = []
        self.bytes: dict[int, int] = {}
        self.files: dict[int, int] = {}
        self.pages = Pages()
        self._in_flight = meter.at_once(_BUFFER, _IN_FLIGHT)
        self._cold = 0
        self._ends: list[tuple[IndexFile, int]] = []

    def read(self, files: Iterable[IndexFile]) -> Iterator[IndexPiece | Block]:
        """Yield the content of the files. A file that cannot be read whole is damage; its readable part counts."""
        for loaded in self._load_batches(iter(files)):
            self.count(loaded.large)
            for file, error in loaded.failed:
                self.count([file])
                self._report_unreadable(file, error)
            if loaded.files:
                yield self._read_small(loaded)
            self._buffers.append(loaded.buffer)
            for file in loaded.large:
                yield from self._read_large(file)
            self.pages.take([file for file, _ in self._ends], np.array([size for _, size in self._ends], np.int64))
            self._ends.clear()

    def _load_batches(self, todo: Iterator[IndexFile]) -> Iterator[_Loaded]:
        """Load batches one by one while none waits, else several at a time, for a cold disk."""
        running: deque[Future[_Loaded]] = deque()
        with ThreadPoolExecutor(self._in_flight) as pool:
            while True:
                while self._cold and len(running) < self._in_flight and (batch := list(islice(todo, _BATCH))):
                    running.append(pool.submit(_load, batch, self._take_buffer()))
                    self._cold -= 1
                if running:
                    loaded = running.popleft().result()
                elif batch := list(islice(todo, _BATCH)):
                    begun = _read_idle_clock()
                    loaded = _load(batch, self._take_buffer())
                    self._cold = _COLD_BATCHES if _read_idle_clock() - begun > _WAITS * len(batch) else 0
                else:
                    return
                yield loaded
                if loaded.rest:
                    todo = chain(loaded.rest, todo)

    def ahead(self) -> int:
        """Return how many folders to list at a time: several while files wait for the disk."""
        return self._in_flight if self._cold else 1

    def count(self, files: Iterable[IndexFile]) -> None:
        """Count existing files."""
        for file in files:
            self.files[file.folder] = self.files.get(file.folder, 0) + 1

    def pass_over(self, files: Sequence[IndexFile]) -> None:
        """Use the sizes of files that need not be read."""
        sizes = []
        for file in files:
            size, slots = _measure_slots(file.path)
            sizes.append(size)
            self.bytes[file.folder] = self.bytes.get(file.folder, 0) + slots
        self.pages.take(files, np.array(sizes, np.int64))

    def _take_buffer(self) -> bytearray:
        return self._buffers.pop() if self._buffers else bytearray(_BUFFER + _SMALL)

    def _read_small(self, loaded: _Loaded) -> IndexPiece:
        files, sizes = loaded.files, loaded.sizes
        size = np.array(sizes, np.int64)
        word = np.cumsum((size + 7) // 8)
        total = int(word[-1])
        word -= (size + 7) // 8
        ledger = np.array([f.ledger for f in files], np.int64)
        folder = np.array([f.folder for f in files], np.int64)
        facts, good = self._read_headers(loaded, word * 8, size, ledger, folder)
        words = np.frombuffer(loaded.buffer, ">i8", total)
        filled = words.view(np.int64) != 0
        filled[(word[good, None] + np.arange(_HEAD_WORDS)).ravel()] = False
        filled[(word + size // 8)[size % 8 > 0]] = False
        for n in np.flatnonzero(~good).tolist():
            filled[word[n] : word[n] + (sizes[n] + 7) // 8] = False
        self.pages.take(files if good.all() else [files[n] for n in np.flatnonzero(good).tolist()], size[good])
        filled_at = np.flatnonzero(filled)
        counts = np.diff(np.append(np.searchsorted(filled_at, word), len(filled_at)))
        self._count(folder, size)
        return IndexPiece(
            np.repeat(ledger, counts),
            filled_at - np.repeat(word + _HEAD_WORDS, counts),
            words[filled_at].astype(np.int64),
            facts,
        )

    def _count(self, folder: Ints, size: Ints) -> None:
        for number in np.unique(folder).tolist():
            inside = folder == number
            self.bytes[number] = self.bytes.get(number, 0) + int(size[inside].sum())
            self.files[number] = self.files.get(number, 0) + int(inside.sum())
        self._meter.took(int(size.sum()), len(size))

    def _read_headers(self, loaded: _Loaded, begin: Ints, size: Ints, ledger: Ints, folder: Ints) -> tuple[Ints, Mask]:
        """Return the facts of the readable headers, and the files with slots after the header."""
        files, data = loaded.files, np.frombuffer(loaded.buffer, np.uint8)
        front = data[begin[:, None] + np.arange(_SHAPE)]
        number = front.view(">i4")
        usual = (size >= _HEAD) & (number[:, 0] == _MAGIC) & (number[:, 2] == _KEY_SIZE)
        usual &= (number[:, 1] == 0) | ((number[:, 1] == 1) & (number[:, 9] == 0))
        good, known = usual.copy(), usual.copy()
        facts = np.empty((len(files), FACT_WIDTH), np.int64)
        facts[:, LEDGER], facts[:, SOURCE], facts[:, FENCED] = ledger, folder, number[:, 8] & 1
        facts[:, LIMBO], facts[:, LAC] = 0, NONE
        keys = np.ascontiguousarray(front[:, _KEY_AT])
        if (keys == keys[0]).all():
            facts[:, KEY] = self._secrets.add_key(keys[0].tobytes())
        else:
            distinct, key_of = np.unique(keys.view(f"V{_KEY_SIZE}")[:, 0], return_inverse=True)
            facts[:, KEY] = np.array([self._secrets.add_key(key.tobytes()) for key in distinct], np.int64)[key_of]
        for n in np.flatnonzero(~usual).tolist():
            start = int(begin[n])
            fact = self._decode(files[n], memoryview(loaded.buffer)[start : start + min(int(size[n]), _HEAD)])
            if fact is not None:
                facts[n] = fact
                known[n] = True
                good[n] = int(size[n]) >= _HEAD
        return facts[known], good

    def _decode(self, file: IndexFile, head: memoryview) -> tuple[int, ...] | None:
        try:
            header = index_file.decode_header(head)
        except FormatError as error:
            self._damage.add(
                UnreadPiece(
                    file.path, error.reason, Hides.LEDGER, error.offset, ledger=file.ledger, detail=error.detail
                )
            )
            return None
        if len(head) < _HEAD and not index_file.is_first_header(head, header):
            detail = "the header is shorter than its 1024 bytes"
            self._damage.add(
                UnreadPiece(file.path, Reason.TRUNCATED, Hides.LEDGER, len(head), ledger=file.ledger, detail=detail)
            )
        return self._make_fact(file, header)

    def _make_fact(self, file: IndexFile, header: IndexHeader) -> tuple[int, ...]:
        lac = NONE if header.explicit_lac is None else self._secrets.add_lac(header.explicit_lac)
        return file.ledger, file.folder, int(header.fenced), 0, self._secrets.add_key(header.master_key), lac

    def _read_large(self, file: IndexFile) -> Iterator[IndexPiece | Block]:
        try:
            fd = open_regular(file.path)
            try:
                yield from self._read_blocks(file, fd)
            finally:
                os.close(fd)
        except OSError as error:
            self._report_unreadable(file, error)

    def _read_blocks(self, file: IndexFile, fd: int) -> Iterator[IndexPiece | Block]:
        size = os.fstat(fd).st_size
        fact = self._decode(file, memoryview(os.pread(fd, _HEAD, 0)))
        if fact is None:
            return
        self._ends.append((file, size))
        none = np.empty(0, np.int64)
        yield IndexPiece(none, none, none, np.array([fact], np.int64))
        read = 0
        for start, end in _find_data(fd, _HEAD, size - (size - _HEAD) % 8):
            for position in range(start, end, _BLOCK):
                slots = np.empty(min(_BLOCK, end - position) // 8, ">i8")
                got = os.preadv(fd, [slots.view(np.uint8).data], position)
                self._meter.took(got)
                read += got
                yield make_block(file.ledger, (position - _HEAD) // 8, slots[: got // 8])
                if got < slots.nbytes:
                    raise OSError(errno.ENODATA, "became shorter while it was read")
        self.bytes[file.folder] = self.bytes.get(file.folder, 0) + read
        self._meter.took(0, 1)

    def _report_unreadable(self, file: IndexFile, error: OSError) -> None:
        detail = error.strerror or "cannot be read"
        piece = UnreadPiece(file.path, Reason.UNREADABLE, Hides.LEDGER, ledger=file.ledger, detail=detail)
        if not os.path.lexists(file.path) and Path(file.path).parent.is_dir():
            detail = "the bookie deleted it while it was collected, and the ledger with it"
            piece = UnreadPiece(
                file.path, Reason.MISSING, Hides.NOTHING, ledger=file.ledger, detail=detail, is_vanished=True
            )
        self._damage.add(piece)


def _load(files: list[IndexFile], buffer: bytearray) -> _Loaded:
    loaded = _Loaded(buffer, [], [], [], [], [])
    view = memoryview(buffer)
    end = 0
    for number, file in enumerate(files):
        if end >= _BUFFER:
            loaded.rest.extend(files[number:])
            break
        try:
            # Anything but a regular file gives nothing, at once, or so much that it is read like a large file.
            fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                # One call reads a small file: a local file system gives fewer bytes only at its end.
                got = os.readv(fd, [view[end : end + _SMALL]])
            finally:
                os.close(fd)
        except OSError as error:
            loaded.failed.append((file, error))
            continue
        if got == _SMALL:
            loaded.large.append(file)
            continue
        loaded.files.append(file)
        loaded.sizes.append(got)
        end += (got + 7) & -8
    return loaded


def _measure_slots(path: str) -> tuple[int, int]:
    """Return a file's size, and how many bytes its slots need; nothing is read."""
    try:
        size = os.stat(path).st_size  # noqa: PTH116  # a Path for each of a million files takes longer than this
        if size < _SMALL:
            return size, size
        fd = open_regular(path)
    except OSError:
        return _HEAD, 0
    try:
        return size, sum(stop - start for start, stop in _find_data(fd, _HEAD, size - (size - _HEAD) % 8))
    finally:
        os.close(fd)


def _find_data(fd: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the stretches of a file that are no holes, in whole slots."""
    position = start
    while position < end:
        try:
            begin = max(os.lseek(fd, position, os.SEEK_DATA), position)
            stop = min(os.lseek(fd, begin, os.SEEK_HOLE), end)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return  # only a hole is left
            yield position, end  # this file system does not tell
            return
        begin -= (begin - start) % 8
        stop += -(stop - start) % 8
        yield begin, min(stop, end)
        position = stop
