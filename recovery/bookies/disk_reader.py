"""Single entries read from one bookie's disks, as the bookie would serve them after its next start.

    an entry is served from     if
    the journal                 it is behind the replay mark: replay puts it in place of what the index says
    the entry log               the index of its ledger names a place, and the entry is there

No bookie serves what stands only in an entry log, or only before the mark: `add_leftovers` finds that, too. Index and
logs are read ledger by ledger, so a sample costs what it reads. What lies behind the marks of the journals is read
once, and its places are kept: 32 bytes an entry, and no more than a bookie leaves unflushed.

Source: docs/formats/bookie-storage.md.
"""

import os
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import numpy as np
import numpy.typing as npt

from backends.errors import BackendError
from backends.files import open_regular
from backends.rocks import RocksReader, open_read_only
from recovery.bookies.entry_places import EntryPlaces, FoundPlaces
from recovery.codecs import entry_log, index_file, journal, ledger_db
from recovery.codecs.framing import Entries
from recovery.collect.disk.file_reader import Mapped, Meter
from recovery.collect.disk.folders import Disks, Folder, FolderRole, list_folders_in, survey
from recovery.collect.rows.damage import DamageLog, Hides, UnreadPiece
from recovery.collect.sources.entry_logs import find_logs, read_decimal
from recovery.collect.sources.entry_records import scan_file
from recovery.collect.sources.index_database import LOCATIONS, SCOPED_LOCATIONS, has_scopes
from recovery.collect.sources.journals import JournalFile, find_journals
from recovery.dataset import DatasetWriter
from recovery.errors import Damage, FormatError, Reason
from recovery.model.ids import LedgerId

Ints = npt.NDArray[np.int64]

_CURRENT: Final = "current"
_VERSION: Final = "VERSION"
_SIZE: Final = struct.Struct(">i")
_LOCATION: Final = struct.Struct(">q")
_LEAST: Final = 16
"""Bytes of an entry at least: two ids."""
_BUFFER: Final = 64 << 10
"""Read at once: what stands close together costs one read, and a sample does not cost much more than itself."""
_LISTED: Final = 20
"""Problems that are named one by one."""
_NONE: Final = np.empty(0, np.int64)
_SLOTS_AT_ONCE: Final = 1 << 20
_LAST_ENTRY: Final = (1 << 63) - 1
T = TypeVar("T")


class ProblemLog(DamageLog):
    """Keeps the first pieces of damage in words."""

    __slots__ = ("problems",)

    def __init__(self, writer: DatasetWriter, bookie: str, incarnation: int) -> None:
        super().__init__(writer, bookie, incarnation)
        self.problems: list[str] = []

    def add(self, piece: UnreadPiece) -> None:
        super().add(piece)
        if piece.hides is not Hides.NOTHING and len(self.problems) < _LISTED:
            self.problems.append(f"{piece.file}: {piece.reason}" + (f" ({piece.detail})" if piece.detail else ""))


@dataclass(frozen=True, slots=True)
class _Shard:
    """The locations of one index folder of a Db bookie, and the number of its space of log ids.

    Attributes:
        rows: of scope 0.
        scoped: of other scopes; None: there are none.
        number: of the folder; None if that is not known.
        space: of log ids.
    """

    rows: RocksReader
    scoped: RocksReader | None
    number: int | None
    space: int


class BookieDisks:
    """The disks of one bookie, open for reading; made by `open_disks`."""

    def __init__(
        self,
        disks: Disks,
        damage: ProblemLog,
        shards: Sequence[_Shard],
        index_folders: Sequence[Path],
        files: dict[int, str],
        journals: Sequence[JournalFile],
    ) -> None:
        self.bookie = disks.bookie
        self._disks = disks
        self._damage = damage
        self._shards = shards
        self._database_count = sum(p.role is FolderRole.INDEX and p.number is not None for p in disks.places)
        self._index_folders = index_folders
        self._files = files
        self._journals = journals
        self._scopes = damage.scopes
        self._journalled = self._read_journals()
        self._left = _NONE.reshape(0, 4)

    @property
    def complete(self) -> bool:
        """Whether every folder of the bookie was given, and nothing in them hides entries of any ledger."""
        return self._disks.complete and not self._damage.everything

    @property
    def problems(self) -> tuple[str, ...]:
        """What could not be looked at, the first few."""
        missing = [f"{p.role} folder {p.name} was not given" for p in self._disks.places if p.folder is None]
        return tuple([*missing, *self._damage.problems][:_LISTED])

    def _read_journals(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Return ledger (its key), entry, file and position of what would be replayed, ordered by the first two."""
        parts = [_NONE.reshape(0, 4)]
        for number, file in enumerate(self._journals):
            self._files[_join_number(_JOURNALS, number)] = file.file.path
            if file.mark >= 0:
                parts += self._read_journal(file, _join_number(_JOURNALS, number))
        rows = np.concatenate(parts)
        # Of an entry that stands several times the last one is what replay leaves.
        order = np.lexsort((np.arange(len(rows)), rows[:, 1], rows[:, 0]))
        rows = rows[order]
        last = np.append((rows[1:, :2] != rows[:-1, :2]).any(axis=1), True)[: len(rows)]
        rows = rows[last]
        return rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3]

    def _read_journal(self, file: JournalFile, number: int) -> Iterator[Ints]:
        path = file.file.path
        try:
            with Mapped(Path(path), Meter(None, lambda _progress: None)) as data:
                data.load()
                for offset, length in data.unreadable:
                    self._damage.add(UnreadPiece(path, Reason.UNREADABLE, Hides.EVERYTHING, offset, length))
                for part in scan_file(data, journal.scan_columns(data.view), self._scopes):
                    if isinstance(part, Entries):
                        rows = file.find_ahead(part.position)
                        numbers = np.full(int(rows.sum()), number)
                        yield np.column_stack((part.ledger[rows], part.entry[rows], numbers, part.position[rows]))
                    elif isinstance(part, Damage) and part.offset >= file.mark and part.reason is not Reason.TRUNCATED:
                        self._damage.add(UnreadPiece(path, part.reason, Hides.EVERYTHING, part.offset, part.length))
        except FormatError as error:
            self._damage.add(UnreadPiece(path, error.reason, Hides.EVERYTHING, error.offset, detail=error.detail))
        except OSError as error:
            self._damage.add(UnreadPiece(path, Reason.UNREADABLE, Hides.EVERYTHING, detail=error.strerror or ""))

    def find(self, ledger: LedgerId, wanted: Ints) -> FoundPlaces:
        """Return where some entries of a ledger stand; the entries ascend and are each there once."""
        index, sure = (
            self._find_in_databases(ledger, wanted) if self._shards else self._find_in_index_file(ledger, wanted)
        )
        return FoundPlaces(self._find_in_journals(ledger, wanted), index, sure and self.complete)

    def add_leftovers(self, ledgers: Sequence[LedgerId]) -> None:
        """Find what entry logs and old journals have of some ledgers, whether an index names it or not; reads all."""
        keys = np.array([self._scopes.key(ledger.scope, ledger.ledger) for ledger in ledgers], np.int64)
        logs = {path: number for number, path in self._files.items() if number >> 32 != _JOURNALS}
        parts = [_NONE.reshape(0, 4)]
        for path, number in sorted(logs.items()):
            parts += self._scan(path, number, entry_log.scan_columns, keys)
        for number, file in enumerate(self._journals):
            parts += self._scan(file.file.path, _join_number(_JOURNALS, number), journal.scan_columns, keys)
        self._left = np.concatenate(parts)

    def _scan(self, path: str, number: int, read: Callable[[memoryview], Any], keys: Ints) -> Iterator[Ints]:
        """Yield ledger (its key), entry, file and position of some ledgers' records in a log or a journal."""
        try:
            with Mapped(Path(path), Meter(None, lambda _progress: None)) as data:
                data.load()
                for part in scan_file(data, read(data.view), self._scopes):
                    if isinstance(part, Entries):
                        rows = np.isin(part.ledger, keys)
                        files = np.full(int(rows.sum()), number)
                        yield np.column_stack((part.ledger[rows], part.entry[rows], files, part.position[rows]))
                    elif isinstance(part, Damage):
                        self._damage.add(UnreadPiece(path, part.reason, Hides.UNLISTED, part.offset, part.length))
        except FormatError as error:
            self._damage.add(UnreadPiece(path, error.reason, Hides.UNLISTED, error.offset, detail=error.detail))
        except OSError as error:
            self._damage.add(UnreadPiece(path, Reason.UNREADABLE, Hides.UNLISTED, detail=error.strerror or ""))

    def find_leftovers(self, ledger: LedgerId, wanted: Ints) -> EntryPlaces:
        """Return where `add_leftovers` found some entries of a ledger; an entry may be at several places."""
        is_own = self._left[:, 0] == self._scopes.key(ledger.scope, ledger.ledger)
        rows = self._left[is_own & np.isin(self._left[:, 1], wanted)]
        return EntryPlaces(rows[:, 1], rows[:, 2], rows[:, 3])

    def list_entries(self, ledger: LedgerId) -> tuple[Ints, bool]:
        """Return the entries of a ledger that the bookie says it has, ascending, and whether these are surely all."""
        ledgers, journalled, _, _ = self._journalled
        key = self._scopes.key(ledger.scope, ledger.ledger)
        low, high = np.searchsorted(ledgers, key, "left"), np.searchsorted(ledgers, key, "right")
        indexed, sure = self._list_in_databases(ledger) if self._shards else self._list_in_index_file(ledger)
        left = self._left[self._left[:, 0] == key, 1]
        return np.union1d(np.append(journalled[low:high], left), indexed), sure and self.complete

    def _list_in_databases(self, ledger: LedgerId) -> tuple[Ints, bool]:
        own = self._choose_shards(ledger)
        parts = [_NONE]
        for shard in own:
            rows = shard.scoped if ledger.scope else shard.rows
            if rows is None:
                continue
            low, high = (ledger_db.location_key(ledger.ledger, entry, ledger.scope) for entry in (0, _LAST_ENTRY))
            try:
                for keys, values in rows.items(low=low, high=high):
                    parts.append(ledger_db.decode_locations(keys, values, scoped=bool(ledger.scope)).entry)
            except BackendError as error:
                self._add_unread(rows.folder, Reason.UNREADABLE, ledger, detail=str(error))
                return np.unique(np.concatenate(parts)), False
        return np.unique(np.concatenate(parts)), bool(own)

    def _list_in_index_file(self, ledger: LedgerId) -> tuple[Ints, bool]:
        return self._open_index_file(ledger, _list_slots, _NONE)

    def _find_in_journals(self, ledger: LedgerId, wanted: Ints) -> EntryPlaces:
        ledgers, entries, files, positions = self._journalled
        key = self._scopes.key(ledger.scope, ledger.ledger)
        low, high = np.searchsorted(ledgers, key, "left"), np.searchsorted(ledgers, key, "right")
        if low == high:
            return EntryPlaces(_NONE, _NONE, _NONE)
        rows = low + np.searchsorted(entries[low:high], wanted)
        is_there = rows < high
        is_there[is_there] = entries[rows[is_there]] == wanted[is_there]
        return EntryPlaces(wanted[is_there], files[rows[is_there]], positions[rows[is_there]])

    def _find_in_databases(self, ledger: LedgerId, wanted: Ints) -> tuple[EntryPlaces, bool]:
        """Ask the databases; a bookie looks in the folder that the ledger's id chooses, and in no other."""
        own = self._choose_shards(ledger)
        places: list[tuple[int, int, int]] = []
        for shard in own:
            rows = shard.scoped if ledger.scope else shard.rows
            if rows is None:
                continue
            try:
                for entry in wanted.tolist():
                    raw = rows.get(ledger_db.location_key(ledger.ledger, entry, ledger.scope))
                    location = _LOCATION.unpack(raw)[0] if raw is not None and len(raw) == _LOCATION.size else 0
                    if location > 0:
                        log_id, position = entry_log.split_location(location)
                        places.append((entry, _join_number(shard.space, log_id), position))
            except BackendError as error:
                self._add_unread(rows.folder, Reason.UNREADABLE, ledger, detail=str(error))
                return _sort_places(places), False
        return _sort_places(places), bool(own)

    def _choose_shards(self, ledger: LedgerId) -> list[_Shard]:
        number = ledger_db.shard(ledger.ledger, max(self._database_count, 1))
        return [shard for shard in self._shards if shard.number is None or number == shard.number]

    def _add_unread(
        self, file: Path, reason: Reason, ledger: LedgerId, offset: int | None = None, detail: str = ""
    ) -> None:
        key = self._scopes.key(ledger.scope, ledger.ledger)
        self._damage.add(UnreadPiece(str(file), reason, Hides.LEDGER, offset, ledger=key, detail=detail))

    def _find_in_index_file(self, ledger: LedgerId, wanted: Ints) -> tuple[EntryPlaces, bool]:
        """Ask the index file."""
        return self._open_index_file(ledger, partial(_read_slots, wanted=wanted), EntryPlaces(_NONE, _NONE, _NONE))

    def _open_index_file(self, ledger: LedgerId, read: Callable[[Path], T], nothing: T) -> tuple[T, bool]:
        """Read the index file; it is found by its path alone, a half-way copy only where there is no whole one."""
        name = index_file.path_of(ledger.ledger, ledger.scope)
        for suffix in ("", ".rloc"):
            for folder in self._index_folders:
                path = folder / (name + suffix)
                try:
                    return read(path), True
                except FileNotFoundError:
                    continue
                except FormatError as error:
                    self._add_unread(path, error.reason, ledger, error.offset)
                except OSError as error:
                    self._add_unread(path, Reason.UNREADABLE, ledger, detail=error.strerror or "cannot be read")
                return nothing, False
        return nothing, bool(self._index_folders)

    def read(self, file: Ints, position: Ints) -> Iterator[tuple[int, bytes]]:
        """Yield (row, bytes) of what is framed at each place, file by file; rows where nothing is are left out.

        Nothing here says that it is the entry that was searched for.
        """
        order = np.lexsort((position, file))
        numbers = file[order]
        starts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1])[: len(order)])
        for low, high in pairwise([*starts.tolist(), len(order)]):
            path = self._path(int(numbers[low]))
            if path is not None:
                yield from _read_records(Path(path), order[low:high], position)

    def each(self, file: Ints, position: Ints, take: Callable[[int, bytes | None], None]) -> None:
        """Hand on what `read` yields."""
        for row, record in self.read(file, position):
            take(row, record)

    def _path(self, number: int) -> str | None:
        if number in self._files or number >> 32 == _JOURNALS:
            return self._files.get(number)
        # A compaction that did not end may have left a log under the decimal digits of its id.
        return self._files.get(_join_number(number >> 32, read_decimal(number & 0xFFFFFFFF)))


def _read_slots(path: Path, wanted: Ints) -> EntryPlaces:
    with os.fdopen(open_regular(path), "rb") as file:
        index_file.decode_header(file.read(index_file.HEADER_SIZE))
        if not len(wanted):
            return EntryPlaces(_NONE, _NONE, _NONE)
        first = int(wanted[0])
        file.seek(index_file.HEADER_SIZE + first * index_file.SLOT)
        slots = index_file.slots(file.read((int(wanted[-1]) - first + 1) * index_file.SLOT))
    stored = wanted[wanted - first < len(slots)]
    location = slots[stored - first]
    taken = location > 0
    log_id, position = location[taken] >> 32, location[taken] & 0xFFFFFFFF
    return EntryPlaces(stored[taken], log_id + _join_number(_ALL_LOGS, 0), position)


def _list_slots(path: Path) -> Ints:
    """Return the entries that an index file has a place for."""
    parts, first = [_NONE], 0
    with os.fdopen(open_regular(path), "rb") as file:
        index_file.decode_header(file.read(index_file.HEADER_SIZE))
        while body := file.read(_SLOTS_AT_ONCE * index_file.SLOT):
            slots = index_file.slots(body)
            parts.append(np.flatnonzero(slots > 0) + first)
            first += len(slots)
    return np.concatenate(parts)


def _read_records(path: Path, rows: Ints, position: Ints) -> Iterator[tuple[int, bytes]]:
    with suppress(OSError), os.fdopen(open_regular(path), "rb", _BUFFER) as source:
        size = os.fstat(source.fileno()).st_size
        for row in rows.tolist():
            record = _read_record(source, int(position[row]), size)
            if record is not None:
                yield row, record


def _read_record(source: BinaryIO, position: int, size: int) -> bytes | None:
    if position < _SIZE.size or position + _LEAST > size:
        return None
    try:
        source.seek(position - _SIZE.size)
        head = source.read(_SIZE.size)
        length = _SIZE.unpack(head)[0] if len(head) == _SIZE.size else 0
        if not _LEAST <= length <= size - position:
            return None
        record = source.read(length)
    except OSError:  # a bad sector is as good as no entry
        return None
    return record if len(record) == length else None


_ALL_LOGS: Final = 0
"""Space of log ids of an interleaved bookie; a Db bookie has one a folder, from 2 on."""
_JOURNALS: Final = 1
_FIRST_SHARD: Final = 2


def _join_number(space: int, log_id: int) -> int:
    return space << 32 | log_id


def _sort_places(places: Sequence[tuple[int, int, int]]) -> EntryPlaces:
    """Return places in order, each entry once although several folders may have it."""
    rows = np.array(sorted(places), np.int64).reshape(-1, 3)
    rows = rows[np.append(True, rows[1:, 0] != rows[:-1, 0])[: len(rows)]]
    return EntryPlaces(rows[:, 0], rows[:, 1], rows[:, 2])


@contextmanager
def open_disks(bookie: str, given: Sequence[Path]) -> Iterator[BookieDisks]:
    """Open the disks of one bookie; nothing is written on them.

    Args:
        bookie: its id, which must be the one in its cookie.
        given: its folders, with or without `current/`, in any order; or folders that these are in.

    Raises:
        InputError: a folder is missing, or is another bookie's.
    """
    disks = _survey_folders(bookie, given)
    with tempfile.TemporaryDirectory(prefix="bkmeta-disks-") as room, ExitStack() as stack:
        writer = stack.enter_context(DatasetWriter(Path(room) / "damage", "inventory", binding={}))
        damage = ProblemLog(writer, disks.bookie, disks.incarnation)
        for piece in disks.damage:
            damage.add(piece)
        files: dict[int, str] = {}
        ledger_places = disks.list_places(FolderRole.LEDGER)
        for place in ledger_places:
            _add_logs(files, _ALL_LOGS, place.folder, damage)
        shards: list[_Shard] = []
        index_places = disks.list_places(FolderRole.INDEX)
        for order, place in enumerate(index_places):
            if place.folder is None or not (place.folder.path / LOCATIONS).is_dir():
                continue
            rows = _open_database(place.folder.path / LOCATIONS, stack, damage)
            if rows is None:
                continue
            scoped = None
            if has_scopes(place.folder.path):
                scoped = _open_database(place.folder.path / SCOPED_LOCATIONS, stack, damage)
            space = _FIRST_SHARD + order
            own = [p for p in ledger_places if p.number == place.number and p.number is not None]
            own = own or [p for p in ledger_places if p.folder == place.folder] or ledger_places
            for ledger_place in own:
                _add_logs(files, space, ledger_place.folder, damage)
            shards.append(_Shard(rows, scoped, place.number, space))
        journals = find_journals(
            [p for p in disks.places if p.role is FolderRole.JOURNAL],
            [p.folder.path for p in ledger_places if p.folder is not None],
            damage,
        )
        folders = [p.folder.path for p in index_places if p.folder is not None]
        yield BookieDisks(disks, damage, shards, folders, files, journals)


def _open_database(folder: Path, stack: ExitStack, damage: DamageLog) -> RocksReader | None:
    try:
        rows = stack.enter_context(open_read_only(folder))
    except BackendError as error:
        damage.add(UnreadPiece(str(folder), Reason.UNREADABLE, Hides.EVERYTHING, detail=str(error)))
        return None
    if rows.damage is not None:
        damage.add(UnreadPiece(str(folder), Reason.BAD_VALUE, Hides.EVERYTHING, detail=rows.damage))
    return rows


def _add_logs(files: dict[int, str], space: int, folder: Folder | None, damage: DamageLog) -> None:
    if folder is not None:
        for log_id, named in find_logs(folder, damage).items():
            files.setdefault(_join_number(space, log_id), named[0].path)


def _survey_folders(bookie: str, given: Sequence[Path]) -> Disks:
    ledgers: list[Path] = []
    indexes: list[Path] = []
    journals: list[Path] = []
    for path in given:
        for folder in list_folders_in(path):
            inside = folder / _CURRENT
            names = [item.name for item in (inside if inside.is_dir() else folder).iterdir()]
            if any(entry_log.log_id_of(name) is not None or name.startswith("lastMark") for name in names):
                ledgers.append(folder)
            elif any(journal.journal_id_of(name) is not None for name in names):
                journals.append(folder)
            else:
                indexes.append(folder)
    return survey(ledgers, indexes, journals, bookie)
