"""What each byte of a bookie's files is, file by file and folder by folder, and how many bytes are not explained.

    in a folder                              is taken for
    a name or first bytes of a bookie's      that file: see `file_kinds`; what each of its bytes is: `byte_map`
    a folder of a RocksDB                    its files as RocksDB's, if RocksDB opens it and every row is of its format
    anything else                            not known: all of its bytes are left over

A folder of a RocksDB is known by its file CURRENT, or by its name where no file of a bookie's is in it: locations,
ledgers (with -scoped behind, or what an offline rebuild leaves: .BACKUP-, .PREV-, .TEMP-) and metadata-cache. Its own:

    CURRENT, IDENTITY, LOCK, LOG, LOG.old.<n>, MANIFEST-<n>, OPTIONS-<n>   by name
    <n>.log   write-ahead log    <n>.sst   table: the magic number at its end is looked at

Memory does not grow with a file: what a region consists of is summed up, and `LISTED` regions of a file are kept.

Source: docs/formats/bookie-storage.md; facebook/rocksdb 7.9, file/filename.cc, table/format.h.
"""

import re
import stat
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from os import walk
from pathlib import Path
from typing import Final

from backends.errors import BackendError
from backends.rocks import open_read_only
from recovery.codecs import ledger_db
from recovery.collect.disk.file_reader import Mapped, Meter
from recovery.errors import FormatError, InputError
from recovery.inspect import byte_map
from recovery.inspect.byte_map import ByteStretch
from recovery.inspect.file_kinds import CURRENT, HEAD, FileKind, is_too_large, kind_of
from recovery.inspect.file_notes import LISTED

ROCKSDB: Final = "RocksDB's"
UNKNOWN: Final = "not known"
_ACCOUNTS: Final[Mapping[FileKind, Callable[[memoryview], Iterator[ByteStretch]]]] = {
    FileKind.INDEX: byte_map.map_index,
    FileKind.LOG: byte_map.map_entry_log,
    FileKind.JOURNAL: byte_map.map_journal,
    FileKind.LAST_MARK: byte_map.map_last_mark,
    FileKind.LAST_ID: byte_map.map_last_id,
    FileKind.COOKIE: byte_map.map_cookie,
    FileKind.STATUS: byte_map.map_status,
    FileKind.DIRTY: byte_map.map_dirty,
}
_DATABASE: Final = re.compile(r"(locations|ledgers)(-scoped)?(\.(BACKUP|PREV|TEMP)-.*)?|metadata-cache")
_OWN: Final = re.compile(
    r"(CURRENT|IDENTITY|LOCK|LOG(\.old\.\d+)?|MANIFEST-\d+|OPTIONS-\d+(\.dbtmp)?|\d+\.(log|sst|blob|dbtmp))"
)
_A_BOOKIES: Final = re.compile(r"^(VERSION|lastId|lastMark.*)$", re.MULTILINE)
"""What no RocksDB has: before layout 3 a bookie's files was in its configured folder, perhaps called `ledgers`."""
_TABLE: Final = struct.Struct("<Q")
_TABLE_MAGICS: Final = frozenset({0x88E241B785F4CFF7, 0xDB4775248B80FB57})
_LEFT_OVER: Final = "not explained"


@dataclass(slots=True)
class Region:
    """Stretches of a file that belong together and follow each other.

    Attributes:
        offset: of its first byte.
        length: in bytes.
        name: header, records, slots, end, ...
        parts: what it consists of → (items, bytes); items are 0 where that is not a number of things.
        explained: False: nobody can say what it is.
    """

    offset: int
    length: int
    name: str
    parts: dict[str, tuple[int, int]]
    explained: bool = True


@dataclass(slots=True)
class File:
    """One file, accounted for.

    Attributes:
        path: of it.
        kind: what it was taken for.
        size: in bytes.
        regions: the first `LISTED`, in order; those that are not explained come first where there are more.
        more: further regions.
        unexplained: bytes that nobody can explain.
        parts: what all of it consists of → bytes.
        why: why it is not known, or cannot be read; "" else.
        last: the region that the next stretch may belong to, whether or not it is kept.
    """

    path: Path
    kind: str
    size: int = 0
    regions: list[Region] = field(default_factory=list)
    more: int = 0
    unexplained: int = 0
    parts: Counter[str] = field(default_factory=Counter)
    why: str = ""
    last: Region | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it is known, and every byte of it explained."""
        return not self.unexplained and self.kind != UNKNOWN and not self.why


@dataclass(slots=True)
class Account:
    """Files, accounted for.

    Attributes:
        files, bytes: by kind.
        parts: by kind: what the files consist of → bytes.
        named: the files that were named one by one, with their regions.
        odd: the first `LISTED` of the files that are not known, or not wholly explained.
        odd_files: how many of these there are.
        unexplained: bytes of all.
    """

    files: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    parts: dict[str, Counter[str]] = field(default_factory=dict)
    named: list[File] = field(default_factory=list)
    odd: list[File] = field(default_factory=list)
    odd_files: int = 0
    unexplained: int = 0

    def add(self, file: File, *, named: bool) -> None:
        """Take a file in; one that was named is kept with its regions."""
        self.files[file.kind] += 1
        self.bytes[file.kind] += file.size
        self.parts.setdefault(file.kind, Counter()).update(file.parts)
        self.unexplained += file.unexplained
        if named:
            self.named.append(file)
        if not file.is_whole:
            self.odd_files += 1
            if len(self.odd) < LISTED:
                self.odd.append(file)


def account_for(paths: list[Path], progress: Callable[[int, int, str], None] = lambda *_: None) -> Account:
    """Account for files, and for every file in folders and below them; nothing is written anywhere.

    Args:
        paths: files of a bookie, or folders that hold such.
        progress: is called with files done, 0, and the folder.

    Raises:
        InputError: one is missing.
    """
    account = Account()
    for path in paths:
        try:
            mode = path.stat().st_mode
        except OSError as error:
            raise InputError(str(path), f"cannot be read ({error.strerror})", "name a file or folder") from error
        if not stat.S_ISDIR(mode):
            account.add(_account_file(path), named=True)
            continue
        for file in _account_below(path):
            account.add(file, named=False)
            progress(account.files.total(), 0, str(file.path.parent))
    return account


def _account_below(top: Path) -> Iterator[File]:
    refused: list[OSError] = []
    for place, folders, names in walk(top, onerror=refused.append):
        folder = Path(place)
        folders.sort()
        yield from (
            File(folder / name, UNKNOWN, why="a link is not followed")
            for name in folders
            if (folder / name).is_symlink()
        )
        named = _DATABASE.fullmatch(folder.name) and folder != top and not _A_BOOKIES.search("\n".join(names))
        if CURRENT in names or named:
            yield from _account_database(folder, names)
        else:
            yield from (_account_file(folder / name) for name in sorted(names))
    for error in refused:
        yield File(Path(str(error.filename)), UNKNOWN, why=f"it cannot be listed ({error.strerror})")


def _account_file(path: Path) -> File:
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            return File(path, UNKNOWN, why="it is not a regular file")
        if is_too_large(path, status.st_size):
            return _make_unknown(path, status.st_size, "it has more bytes than any file of this name")
        with Mapped(path, Meter(None, lambda _progress: None)) as content:
            content.load()
            try:
                kind, _ = kind_of(path, bytes(content.view[:HEAD]))
            except InputError as error:
                return _make_unknown(path, content.size, error.problem)
            if kind not in _ACCOUNTS:
                return _make_unknown(path, content.size, f"a {kind}, which no bookie keeps")
            file = File(path, _name_kind(kind, path), content.size)
            for stretch in _fill_gaps(_ACCOUNTS[kind](content.view), content.size, content.unreadable):
                _add_stretch(file, stretch)
                content.release(stretch.offset)
            return file
    except OSError as error:
        return File(path, UNKNOWN, why=f"it cannot be read ({error.strerror})")


def _name_kind(kind: FileKind, path: Path) -> str:
    """Return the kind to count a file as: unfinished copies and leftovers of compactions are kinds of their own."""
    if path.suffix == ".compacting":
        return f"{kind}, compaction broken off"
    if path.suffix == ".compacted":
        return f"{kind}, compaction not taken up"
    return f"{kind}, half moved" if path.suffix == ".rloc" else str(kind)


def _make_unknown(path: Path, size: int, why: str) -> File:
    file = File(path, UNKNOWN, size, why=why)
    if size:
        _add_stretch(file, ByteStretch(0, size, _LEFT_OVER, _LEFT_OVER, explained=False))
    return file


def _fill_gaps(stretches: Iterator[ByteStretch], size: int, unreadable: list[tuple[int, int]]) -> Iterator[ByteStretch]:
    """Fill what is not claimed, so that every byte is in one stretch; what the disk refuses is never explained."""
    end = 0
    for stretch in stretches:
        if stretch.offset > end:
            yield ByteStretch(end, stretch.offset - end, _LEFT_OVER, _LEFT_OVER, explained=False)
        if stretch.offset < end or stretch.offset + stretch.length > size:
            raise AssertionError(f"bytes accounted for twice, or not there: {stretch}, after {end} of {size}")
        yield from _cut_unreadable(stretch, unreadable)
        end = stretch.offset + stretch.length
    if end < size:
        yield ByteStretch(end, size - end, _LEFT_OVER, _LEFT_OVER, explained=False)


def _cut_unreadable(stretch: ByteStretch, unreadable: list[tuple[int, int]]) -> Iterator[ByteStretch]:
    start, end = stretch.offset, stretch.offset + stretch.length
    for low, length in unreadable:
        first, last = max(low, start), min(low + length, end)
        if first < last:
            yield stretch._replace(offset=start, length=first - start, items=0)
            yield ByteStretch(first, last - first, _LEFT_OVER, "the disk refuses", explained=False)
            start = last
    yield stretch if start == stretch.offset else stretch._replace(offset=start, length=end - start, items=0)


def _add_stretch(file: File, stretch: ByteStretch) -> None:
    if not stretch.length:
        return
    file.parts[stretch.content] += stretch.length
    if not stretch.explained:
        file.unexplained += stretch.length
    name = stretch.region if stretch.explained else _LEFT_OVER
    last = file.last
    if last is not None and last.name == name:
        items, length = last.parts.get(stretch.content, (0, 0))
        last.parts[stretch.content] = items + stretch.items, length + stretch.length
        last.length += stretch.length
        return
    parts = {stretch.content: (stretch.items, stretch.length)}
    file.last = Region(stretch.offset, stretch.length, name, parts, stretch.explained)
    if len(file.regions) >= LISTED:
        file.more += 1
        place = next((n for n, region in enumerate(file.regions) if region.explained), None)
        if stretch.explained or place is None:
            return
        del file.regions[place]
    file.regions.append(file.last)


def _account_database(folder: Path, names: list[str]) -> Iterator[File]:
    """Account for the files of a RocksDB, and for its rows."""
    problem = ""
    if CURRENT in names:
        try:
            problem = _check_rows(folder)
        except BackendError as error:
            problem = f"RocksDB does not open it: {error}"
    for name in sorted(names):
        path = folder / name
        try:
            size = path.lstat().st_size
            if not _OWN.fullmatch(name):
                yield _make_unknown(path, size, "no file of a RocksDB has that name")
            elif name.endswith(".sst") and not _is_table(path, size):
                yield _make_unknown(path, size, "no table of a RocksDB ends as it does")
            elif problem and name.endswith((".sst", ".log")):
                yield _make_unknown(path, size, problem)
            else:
                file = File(path, ROCKSDB, size)
                _add_stretch(file, ByteStretch(0, size, ROCKSDB, re.sub(r"\d+", "<n>", name)))
                yield file
        except OSError as error:
            yield File(path, UNKNOWN, why=f"it cannot be read ({error.strerror})")


def _is_table(path: Path, size: int) -> bool:
    with path.open("rb") as file:
        file.seek(max(size - _TABLE.size, 0))
        tail = file.read(_TABLE.size)
    return len(tail) == _TABLE.size and _TABLE.unpack(tail)[0] in _TABLE_MAGICS


def _check_rows(folder: Path) -> str:
    """Read every row; say what is wrong with the first that is not of the format, or "" if all are."""
    name = folder.name.partition(".")[0]
    scoped = name.endswith("-scoped")
    decode: Callable[[bytes, bytes], object] = ledger_db.decode_ledgers_row
    if name == "metadata-cache":
        decode = ledger_db.decode_cached_map
    elif scoped:
        decode = ledger_db.decode_scoped_ledgers_row
    with open_read_only(folder) as database:
        if database.damage is not None:
            return f"its write-ahead log is damaged: {database.damage}"
        for keys, values in database.items():
            try:
                if name.startswith("locations"):
                    damage = ledger_db.decode_locations(keys, values, scoped=scoped).damage
                    if damage:
                        return f"a row is not a location: {damage[0].detail}"
                    continue
                for key, value in zip(keys, values, strict=True):
                    decode(key, value)
            except FormatError as error:
                return f"a row is not what it should be: {error}"
    return ""
