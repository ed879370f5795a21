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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from recovery.codecs import index_file
from recovery.codecs.index_file import IndexHeader, ledger_of
from recovery.collect.damage import DamageLog, Hides, Unread
from recovery.collect.facts import FACT_WIDTH, FENCED, KEY, LAC, LEDGER, LIMBO, NONE, SOURCE, Interned
from recovery.collect.holdings import Ints, Mask
from recovery.collect.index import Piece
from recovery.collect.reading import Meter
from recovery.errors import FormatError, Reason

_FOLDER: Final = re.compile(r"[0-9a-f]{1,2}")
_INDEX: Final = re.compile(r"([0-9a-f]{1,16})\.idx(\.rloc)?")
_HEAD: Final = index_file.HEADER_SIZE
_HEAD_WORDS: Final = _HEAD // 8
_SMALL: Final = 64 << 10
"""A file of this size or more is read block by block."""
_BUFFER: Final = 1 << 20
"""What stays in the processor's cache."""
_BLOCK: Final = 1 << 20
_PAGES: Final = (4096, 2048, 1024, 512)
"""A bookie writes whole pages behind the header; 8192 bytes unless it is configured otherwise."""

# The header as every released bookie writes it; see `codecs.index_file`.
_SHAPE: Final = 40
_MAGIC: Final = int.from_bytes(b"BKLE")
_KEY_SIZE: Final = 20
_KEY_AT: Final = slice(12, 12 + _KEY_SIZE)


@dataclass(frozen=True, slots=True)
class IndexFile:
    """An index file that is to be read: its path, its ledger, and the number of the index folder it is in."""

    path: str
    ledger: int
    folder: int


def find_files(folders: Sequence[Path], damage: DamageLog) -> Iterator[IndexFile]:
    """Yield the index file of each ledger, in no order but grouped by subfolder.

    Args:
        folders: the index folders in the bookie's order.
        damage: takes what is in the wrong place, double, or cannot be listed.
    """
    for high in _subfolders(folders, "", damage):
        for low in _subfolders(folders, high, damage):
            yield from _files_in(folders, f"{high}/{low}", damage)


def _subfolders(folders: Sequence[Path], inside: str, damage: DamageLog) -> list[str]:
    names: set[str] = set()
    for folder in folders:
        for item in _list(folder / inside, damage):
            if item.is_dir():
                if _FOLDER.fullmatch(item.name):
                    names.add(item.name)
            elif inside:
                _tell_stray(item, damage)
    return sorted(names)


def _list(folder: Path, damage: DamageLog) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as listing:
            return list(listing)
    except FileNotFoundError:
        return []
    except OSError as error:
        detail = error.strerror or "cannot be listed"
        damage.add(Unread(str(folder), Reason.UNREADABLE, Hides.UNLISTED, detail=detail))
        return []


def _tell_stray(item: "os.DirEntry[str]", damage: DamageLog) -> None:
    found = _INDEX.fullmatch(item.name)
    if found is None:
        damage.add(Unread(item.path, Reason.UNKNOWN_FILE, Hides.NOTHING))
        return
    ledger = int(found[1], 16)
    if ledger < 1 << 63:
        detail = f"the bookie looks for it at {index_file.path_of(ledger)}"
        damage.add(Unread(item.path, Reason.MISPLACED, Hides.LEDGER, ledger=ledger, detail=detail))


def _files_in(folders: Sequence[Path], inside: str, damage: DamageLog) -> Iterator[IndexFile]:
    whole: dict[int, IndexFile] = {}
    copies: dict[int, IndexFile] = {}
    for number, folder in enumerate(folders):
        for item in _list(folder / inside, damage):
            name = item.name
            is_copy = name.endswith(".rloc")
            ledger = ledger_of(f"{inside}/{name[:-5] if is_copy else name}")
            if ledger is None:
                _tell_stray(item, damage)
                continue
            target = copies if is_copy else whole
            if ledger in target and not is_copy:
                detail = f"the bookie takes {whole[ledger].path}"
                damage.add(Unread(item.path, Reason.CONFLICT, Hides.LEDGER, ledger=ledger, detail=detail))
            target.setdefault(ledger, IndexFile(item.path, ledger, number))
    yield from whole.values()
    yield from (file for ledger, file in copies.items() if ledger not in whole)


class IndexReader:
    """Reads index files.

    Attributes:
        bytes: read of each folder, by its number.
    """

    def __init__(self, meter: Meter, damage: DamageLog, secrets: Interned) -> None:
        self._meter = meter
        self._damage = damage
        self._secrets = secrets
        self._buffer = bytearray(_BUFFER + _SMALL)
        self._cut: list[tuple[IndexFile, int]] = []
        self._off_page = np.zeros(len(_PAGES), np.int64)
        self._whole = 0
        self.bytes: dict[int, int] = {}

    def read(self, files: Iterable[IndexFile]) -> Iterator[Piece]:
        """Yield what the files say. A file that cannot be read whole is damage, and gives what could be read."""
        view = memoryview(self._buffer)
        batch: list[IndexFile] = []
        sizes: list[int] = []
        at = 0
        for file in files:
            try:
                fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                self._tell_unreadable(file, error)
                continue
            try:
                # One call reads a small file: a local file system gives fewer bytes only at its end.
                got = os.readv(fd, [view[at : at + _SMALL]])
                if got == _SMALL:
                    yield from self._read_large(file, fd)
                    continue
            except OSError as error:
                self._tell_unreadable(file, error)
                continue
            finally:
                os.close(fd)
            batch.append(file)
            sizes.append(got)
            at += (got + 7) & -8
            if at >= _BUFFER:
                yield self._read_small(batch, sizes)
                batch, sizes, at = [], [], 0
        if batch:
            yield self._read_small(batch, sizes)

    def _read_small(self, files: list[IndexFile], sizes: list[int]) -> Piece:
        size = np.array(sizes, np.int64)
        word = np.cumsum((size + 7) // 8)
        total = int(word[-1])
        word -= (size + 7) // 8
        ledger = np.array([f.ledger for f in files], np.int64)
        folder = np.array([f.folder for f in files], np.int64)
        facts, good = self._headers(files, word * 8, size, ledger, folder)
        words = np.frombuffer(self._buffer, ">i8", total)
        filled = words != 0
        filled[(word[good, None] + np.arange(_HEAD_WORDS)).ravel()] = False
        filled[(word + size // 8)[size % 8 > 0]] = False
        for n in np.flatnonzero(~good).tolist():
            filled[word[n] : word[n] + (sizes[n] + 7) // 8] = False
        for n in self._count_pages(size, good):
            self._cut.append((files[n], sizes[n]))
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
            self.bytes[number] = self.bytes.get(number, 0) + int(size[folder == number].sum())
        self._meter.took(int(size.sum()), len(size))

    def _headers(
        self, files: list[IndexFile], begin: Ints, size: Ints, ledger: Ints, folder: Ints
    ) -> tuple[Ints, Mask]:
        """Return the facts of the headers that can be read, and which these are."""
        data = np.frombuffer(self._buffer, np.uint8)
        front = data[begin[:, None] + np.arange(_SHAPE)]
        number = front.view(">i4")
        usual = (size >= _HEAD) & (number[:, 0] == _MAGIC) & (number[:, 2] == _KEY_SIZE)
        usual &= (number[:, 1] == 0) | ((number[:, 1] == 1) & (number[:, 9] == 0))
        good, known = usual.copy(), usual.copy()
        facts = np.empty((len(files), FACT_WIDTH), np.int64)
        facts[:, LEDGER], facts[:, SOURCE], facts[:, FENCED] = ledger, folder, number[:, 8] & 1
        facts[:, LIMBO], facts[:, LAC] = 0, NONE
        keys, of = np.unique(np.ascontiguousarray(front[:, _KEY_AT]).view(f"V{_KEY_SIZE}")[:, 0], return_inverse=True)
        facts[:, KEY] = np.array([self._secrets.key(key.tobytes()) for key in keys], np.int64)[of]
        for n in np.flatnonzero(~usual).tolist():
            start = int(begin[n])
            fact = self._decode(files[n], memoryview(self._buffer)[start : start + min(int(size[n]), _HEAD)])
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
        if len(head) < _HEAD:
            detail = "the header is shorter than its 1024 bytes"
            self._damage.add(
                Unread(file.path, Reason.TRUNCATED, Hides.LEDGER, len(head), ledger=file.ledger, detail=detail)
            )
        return self._fact(file, header)

    def _fact(self, file: IndexFile, header: IndexHeader) -> tuple[int, ...]:
        lac = NONE if header.explicit_lac is None else self._secrets.lac(header.explicit_lac)
        return file.ledger, file.folder, int(header.fenced), 0, self._secrets.key(header.master_key), lac

    def _read_large(self, file: IndexFile, fd: int) -> Iterator[Piece]:
        size = os.fstat(fd).st_size
        head = bytearray(_HEAD)
        os.preadv(fd, [head], 0)
        fact = self._decode(file, memoryview(head))
        if fact is None:
            return
        if self._count_pages(np.array([size]), np.ones(1, np.bool_)):
            self._cut.append((file, size))
        none = np.empty(0, np.int64)
        yield Piece(none, none, none, np.array([fact], np.int64))
        read = 0
        for start, end in _data(fd, _HEAD, size - (size - _HEAD) % 8):
            for at in range(start, end, _BLOCK):
                view = memoryview(self._buffer)[: min(_BLOCK, end - at)]
                got = os.preadv(fd, [view], at)
                words = np.frombuffer(self._buffer, ">i8", got // 8)
                filled = np.flatnonzero(words)
                self._meter.took(got)
                read += got
                yield Piece(
                    np.full(len(filled), file.ledger),
                    filled + (at - _HEAD) // 8,
                    words[filled].astype(np.int64),
                    np.empty((0, FACT_WIDTH), np.int64),
                )
        self.bytes[file.folder] = self.bytes.get(file.folder, 0) + read
        self._meter.took(0, 1)

    def _tell_unreadable(self, file: IndexFile, error: OSError) -> None:
        detail = error.strerror or "cannot be read"
        self._damage.add(Unread(file.path, Reason.UNREADABLE, Hides.LEDGER, ledger=file.ledger, detail=detail))

    def _count_pages(self, size: Ints, good: Mask) -> list[int]:
        """Count the files whose end is no page's, for each size that pages may have; return those for the largest."""
        body = size[good] - _HEAD
        self._whole += len(body)
        for n, page in enumerate(_PAGES):
            self._off_page[n] += int((body % page > 0).sum())
        return [int(n) for n in np.flatnonzero(good & ((size - _HEAD) % _PAGES[0] > 0))]

    def tell_cut(self) -> None:
        """Report the files that end inside a page: their bookie wrote more. Call it when all files were read.

        The size of pages is stored nowhere; the largest that most files agree with is taken.
        """
        fits = (page for page, off in zip(_PAGES, self._off_page.tolist(), strict=True) if 2 * off <= self._whole)
        page = next(fits, 8)
        for file, size in self._cut:
            if (size - _HEAD) % page:
                detail = f"ends inside a page of {page} bytes"
                self._damage.add(
                    Unread(file.path, Reason.TRUNCATED, Hides.LEDGER, size, ledger=file.ledger, detail=detail)
                )


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
