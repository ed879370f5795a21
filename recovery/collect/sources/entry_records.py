"""Entries in entry logs and journals, read at known places.

Both kinds of files frame an entry alike: int32 size, then the entry. A place is (file, position), the position being
the entry's first byte. Reads are grouped by file and ascend in it; neighbouring entries are read at once.
"""

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise, repeat
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from recovery.codecs import entry as entry_codec
from recovery.codecs import entry_log
from recovery.codecs.entry import find_crc
from recovery.codecs.entry_log import log_id_of
from recovery.codecs.framing import SCOPED_IDS, Entries
from recovery.codecs.journal import MetaRecord
from recovery.collect.disk.file_reader import Mapped, Meter
from recovery.collect.rows.damage import Hides, TakesDamage, UnreadPiece
from recovery.collect.rows.entry_headers import HEAD_WIDTH, NUMBER_OF_DIGEST, SIZE_COLUMN, make_head
from recovery.collect.rows.scoped_ids import Scopes
from recovery.collect.rows.source_copies import Ints, Mask, are_members
from recovery.errors import Damage, FormatError, Reason
from recovery.model.groups import KeyedGroups
from recovery.model.ids import LedgerId
from recovery.model.metadata import NO_ENTRY

_SIZE: Final = 4
_IDS: Final = 16
_FRONT: Final = _SIZE + _IDS
_FIELDS: Final = np.dtype(
    [("size", ">i4"), *((name, ">i8") for name in ("ledger", "entry", "lac", "length")), ("stored", ">u8")]
)
"""Bytes of an entry of version 1 after its size, up to the end of the widest CRC."""
_WORTH_COLUMNS: Final = 32
"""With so many neighbouring entries or more, their fields are taken as columns."""
_SCOPED_FRONT: Final = _SIZE + SCOPED_IDS
_GAP: Final = 32 << 10
"""Bytes that are cheaper read than jumped over."""
_WINDOW: Final = 1 << 20
_GUESS: Final = 4096
"""Bytes read for an entry of unknown size."""

_DENSE: Final = 1 << 20
"""Up to this range of file numbers, a table has the size of each: ids of entry logs grow by one."""
_CHUNK: Final = 1 << 18
"""Entries gathered before they are grouped."""


@dataclass(frozen=True, slots=True)
class RecordFile:
    """A file of records.

    Attributes:
        path: of the file.
        size: when it was found.
        misnamed: it has another file's name; entries read from it are reported once.
    """

    path: str
    size: int
    misnamed: bool = False


class RecordFiles:
    """Files by number, such as the entry logs of one id space.

    Args:
        files: a number may name several files; all of them are tried.
        meter: counts and paces the reads.
        damage: receives unreadable parts.
        passwords: candidates for HMACs.
        other_name: another number that a missing file may have.
        grow: the files are entry logs of a bookie that may run: it may have made others since, and written on.
        scopes: names the ledgers.
    """

    def __init__(
        self,
        files: Mapping[int, Sequence[RecordFile]],
        meter: Meter,
        damage: TakesDamage,
        passwords: Sequence[bytes],
        other_name: Callable[[int], int] | None = None,
        *,
        grow: bool = False,
        scopes: Scopes,
    ) -> None:
        self._scopes = scopes
        self._files = dict(files)
        self._folders = (
            {str(Path(f.path).parent) for some_files in files.values() for f in some_files} if grow else set[str]()
        )
        self._meter = meter
        self._damage = damage
        self._passwords = passwords
        self._other_name = other_name
        self._reported: set[str] = set()
        self._buffer = memoryview(bytearray(_WINDOW))
        self._measure()

    def _measure(self) -> None:
        files = self._files
        self._numbers = np.array(sorted(files) or [0], np.int64)
        self._sizes = np.array([max((f.size for f in files.get(n, ())), default=0) for n in self._numbers.tolist()])
        self._dense = np.empty(0, np.int64)
        if (span := int(self._numbers[-1] - self._numbers[0]) + 1) <= _DENSE:
            self._dense = np.zeros(span + 2, np.int64)
            self._dense[self._numbers - self._numbers[0] + 1] = self._sizes

    def inside(self, file: Ints, position: Ints) -> Mask:
        """Mark places within an existing file; nothing is read."""
        if len(self._dense):
            # Files beyond either end take the 0 that is there.
            size = self._dense.take(file - (self._numbers[0] - 1), mode="clip")
        else:
            row = np.minimum(np.searchsorted(self._numbers, file), len(self._numbers) - 1)
            size = np.where(self._numbers[row] == file, self._sizes[row], 0)
        inside: Mask = (position >= _SIZE) & (position + _IDS <= size)
        return inside

    def confirm(self, ledger: Ints, entry: Ints, file: Ints, position: Ints) -> Mask:
        """Return which entries are where they are said to be: size plausible, both ids equal."""
        is_confirmed = np.zeros(len(file), np.bool_)
        for source, rows in self._group_by_file(file, position):
            todo = rows[~is_confirmed[rows] & (position[rows] >= _SIZE) & (position[rows] + _IDS <= source.size)]
            if not len(todo):
                continue
            of_scope = ledger[todo] < 0
            if of_scope.any():
                is_confirmed[todo[of_scope]] = self._confirm_scoped(source, ledger, entry, position, todo[of_scope])
                todo = todo[~of_scope]
            front = self._read_fronts(source, position[todo] - _SIZE, _FRONT)
            size = front[:, :_SIZE].copy().view(">i4")[:, 0].astype(np.int64)
            ids = front[:, _SIZE:].copy().view(">i8")
            is_confirmed[todo] = (
                (size >= _IDS)
                & (position[todo] + size <= source.size)
                & (ids[:, 0] == ledger[todo])
                & (ids[:, 1] == entry[todo])
            )
            if source.misnamed and is_confirmed[rows].any():
                self._report_misnamed(source)
        return is_confirmed

    def _confirm_scoped(self, source: RecordFile, ledger: Ints, entry: Ints, position: Ints, rows: Ints) -> Mask:
        front = self._read_fronts(source, position[rows] - _SIZE, _SCOPED_FRONT)
        size = front[:, :_SIZE].copy().view(">i4")[:, 0].astype(np.int64)
        ids = front[:, _SIZE + 1 :].copy().view(">i8")
        is_present = (size >= SCOPED_IDS) & (position[rows] + size <= source.size) & (ids[:, 2] == entry[rows])
        is_present &= (front[:, _SIZE] & entry_codec.VERSION_BITS) == entry_codec.VERSION_2
        for column, wanted in enumerate(self._scopes.ids(ledger[rows])):
            is_present &= ids[:, column] == wanted
        return np.asarray(is_present)

    def fetch(self, ledger: Ints, entry: Ints, file: Ints, position: Ints) -> tuple[Mask, Ints]:
        """Read the headers of entries, and decide their digest types.

        Returns:
            Which are where they are said to be; and a row of HEAD_WIDTH for each, all zero where the header cannot be
            read.
        """
        is_found = np.zeros(len(file), np.bool_)
        heads = np.zeros((len(file), HEAD_WIDTH), np.int64)
        names: list[tuple[int, ...]] = []
        for source, rows in self._group_by_file(file, position):
            todo = rows[~is_found[rows] & (position[rows] >= _SIZE) & (position[rows] + _IDS <= source.size)]
            for low, high, start, data in self._read_windows(source, position[todo] - _SIZE, _GUESS):
                part = todo[low:high]
                if len(part) >= _WORTH_COLUMNS:
                    proven, proven_heads = _find_proven(data, position[part] - start, ledger[part], entry[part])
                    is_found[part[proven]], heads[part[proven]] = True, proven_heads
                    part = np.delete(part, proven)
                if len(part) and not names:
                    names = [*zip(*(c.tolist() for c in (ledger, *self._scopes.ids(ledger), entry)), strict=True)]
                for row, record in self._cut_entries(source, part, position[part], start, data):
                    head = self._make_head(record, *names[row])
                    if head is not None:
                        is_found[row], heads[row] = True, head
            if source.misnamed and is_found[todo].any():
                self._report_misnamed(source)
        return is_found, heads

    def records(self, file: Ints, position: Ints) -> Iterator[tuple[int, memoryview]]:
        """Yield the place and its bytes for each place with a size that fits into the file.

        The next ones take the place of the bytes: use them before going on.
        """
        for source, rows in self._group_by_file(file, position):
            todo = rows[(position[rows] >= _SIZE) & (position[rows] + _IDS <= source.size)]
            yield from self._read_entries(source, todo, position[todo])

    def _make_head(self, record: memoryview, key: int, scope: int, ledger: int, number: int) -> tuple[int, ...] | None:
        """Return the header row of a record, all zero if it is unreadable; None if it is another entry's."""
        if (proven := entry_codec.find_proven(record)) is not None:
            head, digest = proven
            if (head.scope, head.ledger, head.entry) != (scope, ledger, number):
                return None
            return key, number, head.lac, head.length, len(record), NUMBER_OF_DIGEST[digest]
        if not entry_codec.is_of(record, LedgerId(scope, ledger), number):
            return None
        row = make_head(record, self._passwords)
        return (key, *row[1:]) if row[SIZE_COLUMN] else row

    def _group_by_file(self, file: Ints, position: Ints) -> Iterator[tuple[RecordFile, Ints]]:
        """Yield each file with the rows that name it, ascending by position."""
        if not len(file):
            return
        if self._folders and not self.inside(file, position).all():
            self._list_again()
        order = np.lexsort((position, file))
        number = file[order]
        starts = np.flatnonzero(np.append(True, number[1:] != number[:-1])).tolist()
        for low, high in pairwise([*starts, len(order)]):
            for source in self._choose_files(int(number[low])):
                yield source, order[low:high]

    def _list_again(self) -> None:
        """Add what a running bookie has written to old and new files since they were listed."""
        for folder in self._folders:
            with suppress(OSError), os.scandir(folder) as listing:
                for item in listing:
                    log_id = log_id_of(item.name)
                    if log_id is not None:
                        known = {f.path: f for f in self._files.get(log_id, ())}
                        known[item.path] = RecordFile(item.path, item.stat().st_size)
                        self._files[log_id] = [*known.values()]
        self._measure()

    def _choose_files(self, number: int) -> Sequence[RecordFile]:
        if number in self._files or self._other_name is None or number < 0:
            return self._files.get(number, ())
        return [replace(f, misnamed=True) for f in self._files.get(self._other_name(number), ())]

    def _read_fronts(self, source: RecordFile, positions: Ints, width: int) -> npt.NDArray[np.uint8]:
        """Return the first bytes of the records at ascending positions; zeros where the disk refuses."""
        fronts = np.zeros((len(positions), width), np.uint8)
        taken = np.arange(width)
        for low, high, start, data in self._read_windows(source, positions, width):
            inside = (positions[low:high] - start)[:, None] + taken
            whole = inside[:, -1] < len(data)
            fronts[low:high][whole] = np.frombuffer(data, np.uint8)[inside[whole]]
        return fronts

    def _read_entries(self, source: RecordFile, rows: Ints, position: Ints) -> Iterator[tuple[int, memoryview]]:
        for low, high, start, data in self._read_windows(source, position - _SIZE, _GUESS):
            yield from self._cut_entries(source, rows[low:high], position[low:high], start, data)

    def _cut_entries(
        self, source: RecordFile, rows: Ints, position: Ints, start: int, data: memoryview
    ) -> Iterator[tuple[int, memoryview]]:
        """Yield the entries at places in a stretch that begins at `start`; entries beyond it are read."""
        for row, start_in_window in zip(rows.tolist(), (position - start).tolist(), strict=True):
            if start_in_window > len(data):
                continue
            (size,) = struct.unpack_from(">i", data, start_in_window - _SIZE)
            if size < _IDS or start + start_in_window + size > source.size:
                continue
            if start_in_window + size <= len(data):
                yield row, data[start_in_window : start_in_window + size]
            elif (rest := self._read(source, start + start_in_window, memoryview(bytearray(size)))) is not None:
                yield row, rest

    def _read_windows(
        self, source: RecordFile, positions: Ints, need: int
    ) -> Iterator[tuple[int, int, int, memoryview]]:
        """Yield (first row, end row, start, bytes) of stretches that cover `need` bytes at each ascending position.

        The next stretch takes the place of the bytes: use them before going on. They end early where the file does.
        """
        if not len(positions):
            return
        block = np.cumsum(np.append(0, np.diff(positions) > _GAP))
        piece = (positions - positions[np.searchsorted(block, block)]) // (_WINDOW // 2)
        cut = (block[1:] != block[:-1]) | (piece[1:] != piece[:-1])
        for low, high in pairwise([0, *(np.flatnonzero(cut) + 1).tolist(), len(positions)]):
            first = int(positions[low])
            length = min(int(positions[high - 1]) + need, source.size) - first
            data = self._read(source, first, self._buffer[:length], tell=high - low == 1)
            if data is not None:
                yield low, high, first, data
                continue
            for row in range(low, high if high - low > 1 else low):
                first = int(positions[row])
                data = self._read(source, first, self._buffer[: min(need, source.size - first)])
                if data is not None:
                    yield row, row + 1, first, data

    def _read(self, source: RecordFile, position: int, into: memoryview, *, tell: bool = True) -> memoryview | None:
        """Return bytes of a file; None, and damage, if the disk refuses."""
        try:
            fd = os.open(source.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                got = os.preadv(fd, [into], position)
            finally:
                os.close(fd)
        except OSError as error:
            if (gone := describe_vanished(source.path)) is not None:
                if source.path not in self._reported:
                    self._reported.add(source.path)
                    self._damage.add(gone)
            elif tell:
                detail = error.strerror or "cannot be read"
                self._damage.add(
                    UnreadPiece(source.path, Reason.UNREADABLE, Hides.NOTHING, position, len(into), detail=detail)
                )
            return None
        self._meter.took(got)
        return into[:got]

    def _report_misnamed(self, source: RecordFile) -> None:
        if source.path not in self._reported:
            self._reported.add(source.path)
            detail = "holds the log of another id, after a compaction that did not end; the bookie does not find it"
            self._damage.add(UnreadPiece(source.path, Reason.MISPLACED, Hides.NOTHING, detail=detail))


def _find_proven(data: memoryview, begin: Ints, ledger: Ints, entry: Ints) -> tuple[Ints, Ints]:
    """Return which entries of scope 0 lie in a stretch whole and are proven by a CRC, and their header rows.

    The other entries are checked one by one, by `entry.find_proven` first; a property test compares both.
    """
    near = np.flatnonzero((ledger >= 0) & (begin + entry_codec.PROVEN_SIZE <= len(data)))
    if not len(near):
        return near, np.empty((0, HEAD_WIDTH), np.int64)
    fronts = np.frombuffer(data, np.uint8)[(begin[near] - _SIZE)[:, None] + np.arange(_FIELDS.itemsize)]
    fields = fronts.view(_FIELDS)[:, 0]
    size = fields["size"].astype(np.int64)
    end = begin[near] + size
    good = (size >= entry_codec.PROVEN_SIZE) & (end <= len(data))
    good &= (fields["ledger"] == ledger[near]) & (fields["entry"] == entry[near])
    good &= (fields["entry"] >= 0) & (fields["lac"] >= NO_ENTRY) & (fields["length"] >= 0)
    crcs = map(find_crc, repeat(data), begin[near][good].tolist(), end[good].tolist(), fields["stored"][good].tolist())
    digest = np.array([-1 if crc is None else NUMBER_OF_DIGEST[crc] for crc in crcs], np.int64)
    rows = np.flatnonzero(good)[digest >= 0]
    columns = (fields["ledger"], fields["entry"], fields["lac"], fields["length"], size)
    return near[rows], np.column_stack((*(column[rows].astype(np.int64) for column in columns), digest[digest >= 0]))


def describe_vanished(path: str) -> UnreadPiece | None:
    """Return the report of an entry log that a running bookie deleted while it was read; None if it did not.

    What it holds was deleted, or is in another log: a folder that is gone, or a link to nowhere, is damage.
    """
    if os.path.lexists(path) or not Path(path).with_name("VERSION").exists():
        return None
    detail = "the bookie deleted it while it was collected: its ledgers are deleted, or their entries compacted"
    return UnreadPiece(path, Reason.MISSING, Hides.NOTHING, detail=detail, is_vanished=True)


ScansBytes = Callable[[memoryview], Iterable[Entries | MetaRecord | Damage]]
"""A codec's scan of a whole file."""


def scan_file(
    data: Mapped, parts: Iterable[Entries | MetaRecord | Damage], scopes: Scopes
) -> Iterator[Entries | MetaRecord | Damage]:
    """Yield the records of a mapped file in batches, with keys for ledgers; release the memory after each batch.

    Args:
        data: the file; what is behind a batch must not be touched again.
        parts: the codec's output for it.
        scopes: names the ledgers.
    """
    for part in gather_batches(parts, scopes):
        yield part
        if isinstance(part, Entries):
            data.release(int(part.position.max(initial=0)))


def gather_batches(
    parts: Iterable[Entries | MetaRecord | Damage], scopes: Scopes
) -> Iterator[Entries | MetaRecord | Damage]:
    """Yield the records with keys for ledgers (see `Scopes.replace_ids`), small batches joined."""
    return scopes.replace_ids(_join_batches(parts))


def _join_batches(parts: Iterable[Entries | MetaRecord | Damage]) -> Iterator[Entries | MetaRecord | Damage]:
    waiting: list[Entries] = []
    size = 0
    for part in parts:
        if not isinstance(part, Entries):
            yield part
            continue
        if not len(part.ledger):
            continue
        waiting.append(part)
        size += len(part.ledger)
        if size >= _CHUNK:
            yield Entries.join(waiting)
            waiting, size = [], 0
    if waiting:
        yield Entries.join(waiting)


def locate_entries(
    files: Sequence[RecordFile],
    scan: ScansBytes,
    wanted: KeyedGroups,
    meter: Meter,
    scopes: Scopes,
) -> tuple[Ints, Ints, Ints, Ints]:
    """Go through files again for the places of some entries.

    Returns:
        Ledger, entry, number of the file and position; an entry that occurs several times has several rows.
    """
    none = np.empty(0, np.int64)
    parts = [(none, none, none, none)]
    for number, file in enumerate(files):
        limit = None if log_id_of(Path(file.path).name) is None else entry_log.LARGEST
        with suppress(OSError, FormatError), Mapped(Path(file.path), meter, limit) as data:  # told in the first pass
            data.load()
            for part in scan_file(data, (part for part in scan(data.view) if isinstance(part, Entries)), scopes):
                if isinstance(part, Entries):
                    hit = np.flatnonzero(are_members(wanted, part.ledger, part.entry))
                    parts.append((part.ledger[hit], part.entry[hit], np.full(len(hit), number), part.position[hit]))
    ledger, entry, file_numbers, position = (np.concatenate(column) for column in zip(*parts, strict=True))
    return ledger, entry, file_numbers, position
