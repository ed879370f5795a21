"""Index files of an interleaved or sorted bookie: found, and read many at a time.

Small files are read into one buffer and looked at in one NumPy pass; large ones block by block, their holes skipped.
Headers are read column-wise where they have the shape that every released bookie writes, else by the codec; a property
test says that both agree.

    X.idx               the index
    X.idx.rloc          a copy that was being made in another folder: read only where X.idx is nowhere
    X.idx twice         the bookie takes the one in the folder that comes first

Source: spec bookie-storage §2.
"""

import errno
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from backends.files import open_regular
from recovery.codecs import index_file
from recovery.codecs.index_file import IndexHeader, ledgers_in
from recovery.collect.disk.file_reader import Meter
from recovery.collect.disk.folders import stray
from recovery.collect.rows.damage import Hides, TakesDamage, Unread
from recovery.collect.rows.ledger_facts import FACT_WIDTH, FENCED, KEY, LAC, LEDGER, LIMBO, NONE, SOURCE, Interned
from recovery.collect.rows.scoped_ids import Scopes
from recovery.collect.rows.source_copies import Ints, Mask
from recovery.collect.sources.index import Block, Piece, block_of
from recovery.errors import FormatError, Reason
from recovery.model import ids

_FOLDER: Final = re.compile(r"[0-9a-f]{1,2}")
_SCOPED_FOLDER: Final = re.compile(r"[0-9a-f]{8}")
_FIRST_LEVEL: Final = re.compile(r"[0-9a-f]{1,2}|[0-9a-f]{8}")
_INDEX: Final = re.compile(r"([0-9a-f]{1,16})\.idx(\.rloc)?")
_COPY: Final = ".rloc"
_HEAD: Final = index_file.HEADER_SIZE
_HEAD_WORDS: Final = _HEAD // 8
_NAMED: Final = 1024
"""Ledgers of scopes that get their keys together."""
_SMALL: Final = 64 << 10
"""A file of this size or more is read block by block."""
_BUFFER: Final = 2 << 20
"""Little enough for the processor's cache, and enough that a pass costs little a file."""
_BATCH: Final = 224
"""Files of one page and their headers that fill the buffer."""
_BLOCK: Final = 30_240 * index_file.SLOT
"""Read of a large file at a time: little enough for the cache, and for memory that is used again without being asked
for again. A multiple of most sizes of ensembles, so that their patterns are not cut."""
_IN_FLIGHT: Final = 16
"""Batches, and folders, that wait for a cold disk at a time; threads cost more than they give where nothing waits."""
_WAITS: Final = 200e-6
"""Seconds of waiting for a file that tell a cold disk; work does not count."""
_COLD_BATCHES: Final = 128
"""After so many, one batch is timed alone again."""
_PAGES: Final = (4096, 2048, 1024, 512)
"""A bookie writes whole pages behind the header; 8192 bytes unless it is configured otherwise."""

# The header as every released bookie writes it; see `codecs.index_file`.
_SHAPE: Final = 40
_MAGIC: Final = int.from_bytes(b"BKLE")
_KEY_SIZE: Final = 20
_KEY_AT: Final = slice(12, 12 + _KEY_SIZE)


class IndexFile(NamedTuple):
    """An index file that is to be read: its path, its ledger's key, and the number of the index folder it is in."""

    path: str
    ledger: int
    folder: int


@dataclass(frozen=True, slots=True)
class Level:
    """A subfolder.

    Attributes:
        name: of it.
        above: the path of each folder that has it, by the number of the index folder.
    """

    name: str
    above: Mapping[int, str]

    @property
    def paths(self) -> dict[int, str]:
        """Its path in each index folder that has it, by their numbers."""
        return {number: f"{folder}/{self.name}" for number, folder in self.above.items()}


def first_level(folders: Sequence[Path], damage: TakesDamage) -> list[Level]:
    """Return the subfolders of index folders, by name; all index files of a ledger are in one of them.

    Args:
        folders: the index folders in the bookie's order.
        damage: takes what cannot be listed.
    """
    return [*_subfolders(dict(enumerate(map(str, folders))), "", _FIRST_LEVEL, damage)]


def find_files(
    levels: Iterable[Level], damage: TakesDamage, scopes: Scopes, ahead: Callable[[], int] = lambda: 1
) -> Iterator[IndexFile]:
    """Yield the index file of each ledger, in no order but grouped by subfolder.

    Args:
        levels: subfolders of the first level.
        damage: takes what is in the wrong place, double, or cannot be listed.
        scopes: names the ledgers.
        ahead: how many folders to list at a time, for now.
    """
    for is_scoped, some in groupby(levels, lambda level: _SCOPED_FOLDER.fullmatch(level.name) is not None):
        if not is_scoped:
            for level in some:
                lows = [*_subfolders(level.paths, level.name, _FOLDER, damage)]
                listed = _listed([path for low in lows for path in low.paths.values()], ahead())
                for low in lows:
                    yield from _files_in(low.paths, f"{level.name}/{low.name}", listed, damage)
            continue
        found = _scoped_files(some, damage, scopes)
        while files := list(islice(found, _NAMED)):
            names = np.frombuffer(bytes.fromhex("".join(name for _, name, _ in files)), ">i8").astype(np.int64)
            keys = scopes.keys(names[::2], names[1::2]).tolist()
            for (path, _, number), key in zip(files, keys, strict=True):
                yield IndexFile(path, key, number)


def _subfolders(
    folders: Mapping[int, str], inside: str, named: re.Pattern[str], damage: TakesDamage
) -> Iterator[Level]:
    """Yield the subfolders of a name, by their names."""
    having: dict[str, tuple[int, ...]] = {}
    above: dict[tuple[int, ...], Mapping[int, str]] = {}
    for number, folder in folders.items():
        try:
            with os.scandir(folder) as listing:
                for item in listing:
                    if item.is_dir() and named.fullmatch(item.name):
                        numbers = (*having.get(item.name, ()), number)
                        above.setdefault(numbers, {n: folders[n] for n in numbers})
                        having[item.name] = numbers
                    elif inside:
                        _tell_stray(item.path, item.name, inside, damage)
        except OSError as error:
            _tell_unlisted(folder, error, damage)
    for name in sorted(having):
        yield Level(name, above[having[name]])


def _tell_unlisted(folder: str, error: OSError, damage: TakesDamage) -> None:
    detail = error.strerror or "cannot be listed"
    damage.add(Unread(folder, Reason.UNREADABLE, Hides.UNLISTED, detail=detail))


def _tell_stray(path: str, name: str, inside: str, damage: TakesDamage) -> None:
    """Report what is no index file of a ledger where it stands; of the first level that was told already."""
    is_dir = os.path.isdir(path)  # noqa: PTH112  # all here are strings
    found = _INDEX.fullmatch(name)
    ledger = -1 if found is None or is_dir or _SCOPED_FOLDER.match(inside) else int(found[1], 16)
    if not 0 <= ledger < 1 << 63:
        damage.add(stray(path, name, is_dir=is_dir))
        return
    detail = f"the bookie looks for it at {index_file.path_of(ledger)}"
    damage.add(Unread(path, Reason.MISPLACED, Hides.LEDGER, ledger=ledger, detail=detail))


def _idle() -> float:
    """Return a clock that stands still while this thread works: what passes, it waited."""
    return time.monotonic() - time.thread_time()


def _listed(folders: Iterable[str], at_once: int) -> Iterator[list[str] | OSError]:
    """Yield the names in each folder, or why it cannot be listed."""
    if at_once == 1:
        yield from map(_names_in, folders)
        return
    with ThreadPoolExecutor(at_once) as pool:
        yield from pool.map(_names_in, folders)


def _names_in(folder: str) -> list[str] | OSError:
    try:
        return os.listdir(folder)  # noqa: PTH208  # names alone, of up to 65,536 folders
    except OSError as error:
        return error


def _files_in(
    folders: Mapping[int, str], inside: str, listed: Iterator[list[str] | OSError], damage: TakesDamage
) -> Iterator[IndexFile]:
    whole: dict[int, IndexFile] = {}
    copies: dict[int, IndexFile] = {}
    for number, folder in folders.items():
        names = next(listed)
        if isinstance(names, OSError):
            _tell_unlisted(folder, names, damage)
            continue
        for name, ledger in zip(names, ledgers_in(inside, [n.removesuffix(_COPY) for n in names]), strict=True):
            path = f"{folder}/{name}"
            if ledger is None:
                _tell_stray(path, name, inside, damage)
            elif name.endswith(_COPY):
                copies.setdefault(ledger, IndexFile(path, ledger, number))
            elif ledger in whole:
                _tell_double(path, ledger, whole[ledger].path, damage)
            else:
                whole[ledger] = IndexFile(path, ledger, number)
    yield from whole.values()
    for ledger, file in copies.items():
        if ledger not in whole:
            yield file


def _tell_double(path: str, ledger: int, taken: str, damage: TakesDamage) -> None:
    damage.add(Unread(path, Reason.CONFLICT, Hides.LEDGER, ledger=ledger, detail=f"the bookie takes {taken}"))


def _scoped_files(levels: Iterable[Level], damage: TakesDamage, scopes: Scopes) -> Iterator[tuple[str, str, int]]:
    """Yield path, qualified name and number of the index folder of each ledger's file."""
    for level in levels:
        for low in _subfolders(level.paths, level.name, _SCOPED_FOLDER, damage):
            scope = f"{level.name}/{low.name}"
            for high in _subfolders(low.paths, scope, _SCOPED_FOLDER, damage):
                yield from _scoped_files_in(high.paths, f"{scope}/{high.name}", damage, scopes)


def _scoped_files_in(
    folders: Mapping[int, str], inside: str, damage: TakesDamage, scopes: Scopes
) -> Iterator[tuple[str, str, int]]:
    # All ledgers of a scope may be in one folder, so nothing is kept of what was listed: the few other places that a
    # file may stand in are looked at.
    for number, folder in folders.items():
        others = [(n, f) for n, f in folders.items() if n != number]
        try:
            with os.scandir(folder) as listing:
                for item in listing:
                    whole = item.name.removesuffix(_COPY)
                    name = index_file.scoped_name_of(f"{inside}/{whole}")
                    if name is None:
                        _tell_stray(item.path, item.name, inside, damage)
                        continue
                    if item.name == whole:
                        before = next((f for n, f in others if n < number and _is_there(f"{f}/{whole}")), None)
                        if before is None:
                            yield item.path, name, number
                            continue
                        ledger = ids.parse(name)
                        _tell_double(item.path, scopes.key(ledger.scope, ledger.ledger), f"{before}/{whole}", damage)
                    elif not (
                        any(_is_there(f"{f}/{whole}") for f in folders.values())
                        or any(n < number and _is_there(f"{f}/{item.name}") for n, f in others)
                    ):
                        yield item.path, name, number
        except OSError as error:
            _tell_unlisted(folder, error, damage)


def _is_there(path: str) -> bool:
    return os.path.lexists(path)  # a Path for each of a million files takes longer than this


@dataclass(frozen=True, slots=True)
class _Loaded:
    """Small files one behind the other in a buffer, each at a multiple of eight bytes.

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
    """What the sizes of index files say of the size of pages, which is stored nowhere.

    Attributes:
        off: files whose end is not a page's, for each size that pages may have.
        files: that were looked at.
        cut: files whose end is not a page's for the largest, and their sizes.
    """

    off: list[int] = field(default_factory=lambda: [0] * len(_PAGES))
    files: int = 0
    cut: list[tuple[IndexFile, int]] = field(default_factory=list)

    def take(self, files: Sequence[IndexFile], size: Ints) -> None:
        """Look at files that have slots, and at their sizes in bytes."""
        body = size - _HEAD
        self.files += len(body)
        self.off = [off + int((body % page > 0).sum()) for off, page in zip(self.off, _PAGES, strict=True)]
        self.cut += [(files[n], int(size[n])) for n in np.flatnonzero(body % _PAGES[0] > 0).tolist()]

    def absorb(self, other: "Pages") -> None:
        """Take what another process looked at."""
        self.off = [ours + theirs for ours, theirs in zip(self.off, other.off, strict=True)]
        self.files += other.files
        self.cut += other.cut

    def tell_cut(self, damage: TakesDamage) -> None:
        """Report the files that end inside a page: their bookie wrote more. Call it when all files were read.

        The largest size that most files agree with is taken.
        """
        page = next((page for page, off in zip(_PAGES, self.off, strict=True) if 2 * off <= self.files), 8)
        for file, size in self.cut:
            if (size - _HEAD) % page:
                detail = f"ends inside a page of {page} bytes"
                damage.add(Unread(file.path, Reason.TRUNCATED, Hides.LEDGER, size, ledger=file.ledger, detail=detail))


class IndexReader:
    """Reads index files.

    Attributes:
        bytes, files: of each folder, by its number: bytes of headers and slots, and how many files there are.
        pages: what the sizes of the files say.
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

    def read(self, files: Iterable[IndexFile]) -> Iterator[Piece | Block]:
        """Yield what the files say. A file that cannot be read whole is damage, and gives what could be read."""
        for loaded in self._loads(iter(files)):
            self.count(loaded.large)
            for file, error in loaded.failed:
                self.count([file])
                self._tell_unreadable(file, error)
            if loaded.files:
                yield self._read_small(loaded)
            self._buffers.append(loaded.buffer)
            for file in loaded.large:
                yield from self._read_large(file)
            self.pages.take([file for file, _ in self._ends], np.array([size for _, size in self._ends], np.int64))
            self._ends.clear()

    def _loads(self, todo: Iterator[IndexFile]) -> Iterator[_Loaded]:
        """Load batches one by one while none waits, else several at a time: a cold disk is slow by waiting."""
        running: deque[Future[_Loaded]] = deque()
        with ThreadPoolExecutor(self._in_flight) as pool:
            while True:
                while self._cold and len(running) < self._in_flight and (batch := list(islice(todo, _BATCH))):
                    running.append(pool.submit(_load, batch, self._buffer()))
                    self._cold -= 1
                if running:
                    loaded = running.popleft().result()
                elif batch := list(islice(todo, _BATCH)):
                    begun = _idle()
                    loaded = _load(batch, self._buffer())
                    self._cold = _COLD_BATCHES if _idle() - begun > _WAITS * len(batch) else 0
                else:
                    return
                yield loaded
                if loaded.rest:
                    todo = chain(loaded.rest, todo)

    def ahead(self) -> int:
        """Return how many folders to list at a time: several while files wait for the disk."""
        return self._in_flight if self._cold else 1

    def count(self, files: Iterable[IndexFile]) -> None:
        """Count files that are there."""
        for file in files:
            self.files[file.folder] = self.files.get(file.folder, 0) + 1

    def pass_over(self, files: Sequence[IndexFile]) -> None:
        """Take of files that need not be read what their sizes say."""
        sizes = []
        for file in files:
            size, slots = _slots_size(file.path)
            sizes.append(size)
            self.bytes[file.folder] = self.bytes.get(file.folder, 0) + slots
        self.pages.take(files, np.array(sizes, np.int64))

    def _buffer(self) -> bytearray:
        return self._buffers.pop() if self._buffers else bytearray(_BUFFER + _SMALL)

    def _read_small(self, loaded: _Loaded) -> Piece:
        files, sizes = loaded.files, loaded.sizes
        size = np.array(sizes, np.int64)
        word = np.cumsum((size + 7) // 8)
        total = int(word[-1])
        word -= (size + 7) // 8
        ledger = np.array([f.ledger for f in files], np.int64)
        folder = np.array([f.folder for f in files], np.int64)
        facts, good = self._headers(loaded, word * 8, size, ledger, folder)
        words = np.frombuffer(loaded.buffer, ">i8", total)
        filled = words.view(np.int64) != 0
        filled[(word[good, None] + np.arange(_HEAD_WORDS)).ravel()] = False
        filled[(word + size // 8)[size % 8 > 0]] = False
        for n in np.flatnonzero(~good).tolist():
            filled[word[n] : word[n] + (sizes[n] + 7) // 8] = False
        self.pages.take(files if good.all() else [files[n] for n in np.flatnonzero(good).tolist()], size[good])
        at = np.flatnonzero(filled)
        counts = np.diff(np.append(np.searchsorted(at, word), len(at)))
        self._count(folder, size)
        return Piece(
            np.repeat(ledger, counts),
            at - np.repeat(word + _HEAD_WORDS, counts),
            words[at].astype(np.int64),
            facts,
        )

    def _count(self, folder: Ints, size: Ints) -> None:
        for number in np.unique(folder).tolist():
            inside = folder == number
            self.bytes[number] = self.bytes.get(number, 0) + int(size[inside].sum())
            self.files[number] = self.files.get(number, 0) + int(inside.sum())
        self._meter.took(int(size.sum()), len(size))

    def _headers(self, loaded: _Loaded, begin: Ints, size: Ints, ledger: Ints, folder: Ints) -> tuple[Ints, Mask]:
        """Return the facts of the headers that can be read, and which files have slots behind one."""
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
            facts[:, KEY] = self._secrets.key(keys[0].tobytes())
        else:
            distinct, of = np.unique(keys.view(f"V{_KEY_SIZE}")[:, 0], return_inverse=True)
            facts[:, KEY] = np.array([self._secrets.key(key.tobytes()) for key in distinct], np.int64)[of]
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
                Unread(file.path, error.reason, Hides.LEDGER, error.offset, ledger=file.ledger, detail=error.detail)
            )
            return None
        if len(head) < _HEAD and not index_file.is_first_header(head, header):
            detail = "the header is shorter than its 1024 bytes"
            self._damage.add(
                Unread(file.path, Reason.TRUNCATED, Hides.LEDGER, len(head), ledger=file.ledger, detail=detail)
            )
        return self._fact(file, header)

    def _fact(self, file: IndexFile, header: IndexHeader) -> tuple[int, ...]:
        lac = NONE if header.explicit_lac is None else self._secrets.lac(header.explicit_lac)
        return file.ledger, file.folder, int(header.fenced), 0, self._secrets.key(header.master_key), lac

    def _read_large(self, file: IndexFile) -> Iterator[Piece | Block]:
        try:
            fd = open_regular(file.path)
            try:
                yield from self._read_blocks(file, fd)
            finally:
                os.close(fd)
        except OSError as error:
            self._tell_unreadable(file, error)

    def _read_blocks(self, file: IndexFile, fd: int) -> Iterator[Piece | Block]:
        size = os.fstat(fd).st_size
        fact = self._decode(file, memoryview(os.pread(fd, _HEAD, 0)))
        if fact is None:
            return
        self._ends.append((file, size))
        none = np.empty(0, np.int64)
        yield Piece(none, none, none, np.array([fact], np.int64))
        read = 0
        for start, end in _data(fd, _HEAD, size - (size - _HEAD) % 8):
            for at in range(start, end, _BLOCK):
                slots = np.empty(min(_BLOCK, end - at) // 8, ">i8")
                got = os.preadv(fd, [slots.view(np.uint8).data], at)
                self._meter.took(got)
                read += got
                yield block_of(file.ledger, (at - _HEAD) // 8, slots[: got // 8])
                if got < slots.nbytes:
                    raise OSError(errno.ENODATA, "became shorter while it was read")
        self.bytes[file.folder] = self.bytes.get(file.folder, 0) + read
        self._meter.took(0, 1)

    def _tell_unreadable(self, file: IndexFile, error: OSError) -> None:
        detail = error.strerror or "cannot be read"
        found = Unread(file.path, Reason.UNREADABLE, Hides.LEDGER, ledger=file.ledger, detail=detail)
        if not os.path.lexists(file.path) and Path(file.path).parent.is_dir():
            detail = "the bookie deleted it while it was collected, and the ledger with it"
            found = Unread(
                file.path, Reason.MISSING, Hides.NOTHING, ledger=file.ledger, detail=detail, is_vanished=True
            )
        self._damage.add(found)


def _load(files: list[IndexFile], buffer: bytearray) -> _Loaded:
    loaded = _Loaded(buffer, [], [], [], [], [])
    view = memoryview(buffer)
    at = 0
    for number, file in enumerate(files):
        if at >= _BUFFER:
            loaded.rest.extend(files[number:])
            break
        try:
            # What is no regular file gives nothing, at once, or so much that it is looked at as a large one.
            fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                # One call reads a small file: a local file system gives fewer bytes only at its end.
                got = os.readv(fd, [view[at : at + _SMALL]])
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
        at += (got + 7) & -8
    return loaded


def _slots_size(path: str) -> tuple[int, int]:
    """Return a file's size, and how much of it would be read for its slots; none of it is read."""
    try:
        size = os.stat(path).st_size  # noqa: PTH116  # a Path for each of a million files takes longer than this
        if size < _SMALL:
            return size, size
        fd = open_regular(path)
    except OSError:
        return _HEAD, 0
    try:
        return size, sum(stop - start for start, stop in _data(fd, _HEAD, size - (size - _HEAD) % 8))
    finally:
        os.close(fd)


def _data(fd: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the stretches of a file that are no holes, in whole slots."""
    at = start
    while at < end:
        try:
            begin = max(os.lseek(fd, at, os.SEEK_DATA), at)
            stop = min(os.lseek(fd, begin, os.SEEK_HOLE), end)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return  # only a hole is left
            yield at, end  # this file system does not tell
            return
        begin -= (begin - start) % 8
        stop += -(stop - start) % 8
        yield begin, min(stop, end)
        at = stop
