"""Journals: the entries that a bookie wrote ahead, and the start of a replay.

All journals that exist are read whole, also before the mark: fences and explicit LACs can be lost from the index over
a clean stop. The mark divides entries. Entries after it are replayed, and may be nowhere else, so a journal that is
missing or damaged after the mark hides entries of any ledger. An entry that is only before it is served by no bookie:
it was applied, so its ledger was deleted, or (before 4.16.2) the mark ran ahead of what was flushed.

    lastMark      the mark of the only journal folder, in every ledger folder; the largest counts
    lastMark.N    the same for journal folder number N of several

Ids grow by one, so a gap is a journal that is missing; but before 4.2, which wrote versions 1 to 3, each is the time at
which its journal was begun, and nothing tells of one that is missing behind the mark's.

Source: docs/formats/bookie-storage.md.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tenacity import retry, retry_if_exception, stop_after_attempt, wait_fixed

from backends.files import open_regular, read_bounded
from recovery.codecs import entry, journal
from recovery.codecs.framing import RECORD, Entries, find_written_end
from recovery.codecs.journal import (
    FenceRecord,
    LacRecordAt,
    LastMark,
    MasterKeyRecord,
    MetaRecord,
    journal_id_of,
)
from recovery.collect.disk.file_reader import Mapped, Meter
from recovery.collect.disk.folders import Place
from recovery.collect.incremental.collection import Incremental
from recovery.collect.incremental.records import SpecialFacts, TakesSpecial
from recovery.collect.rows.damage import DamageLog, Hides, UnreadPiece
from recovery.collect.rows.ledger_facts import make_stamp, read_explicit_lac
from recovery.collect.rows.source_copies import Ints, Mask, to_groups, to_rows
from recovery.collect.rows.spool import Spool
from recovery.collect.sources.entry_logs import list_folder
from recovery.collect.sources.entry_records import RecordFile, scan_file
from recovery.errors import Damage, FormatError, Reason

_START: Final = LastMark(0, 0)
_LARGEST_MARK: Final = 4 << 10
"""A mark has 16 bytes."""
_NAMED_BY_TIME: Final = 3
"""The last version of journals with times as ids."""
_BEING_WRITTEN: Final = (Reason.EMPTY, Reason.TRUNCATED)
_ATTEMPTS: Final = 8
_AGAIN_S: Final = 0.02
"""Seconds until a mark is read again; a bookie writes it within microseconds."""
_TORN: Final = 16 << 20
"""More than one batch of writes: no crash cuts off so much."""


@dataclass(frozen=True, slots=True)
class JournalFile:
    """A journal file.

    Attributes:
        file: path and size.
        journal_id: from its name.
        mark: where its replay would begin; -1: after its end, all of it was applied.
    """

    file: RecordFile
    journal_id: int
    mark: int

    def find_ahead(self, position: Ints) -> Mask:
        """Return which positions are ahead of the index: replay begins at or before them."""
        return (position >= self.mark) & (self.mark >= 0)


@dataclass(slots=True)
class JournalFacts:
    """The special records of ledgers (their keys, see `scoped_ids`), merged over all journals.

    Attributes:
        fenced: ledgers.
        keys: the last key of each ledger that is not empty, as `ledger_facts.make_stamp` has it.
        others: ledgers that had another key before.
        lacs: the largest explicit LAC of each ledger, with its record.
        behind_mark: an entry is after a mark, as after an unclean stop.
    """

    fenced: set[int] = field(default_factory=set)
    keys: dict[int, bytes] = field(default_factory=dict)
    others: set[int] = field(default_factory=set)
    lacs: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    behind_mark: bool = False

    def take_fence(self, ledger: int) -> None:
        """Receive a fence."""
        self.fenced.add(ledger)

    def take_key(self, ledger: int, key: bytes) -> None:
        """Receive a key; later keys replace earlier ones."""
        if self.keys.get(ledger, key) != key:
            self.others.add(ledger)
        if key:
            self.keys[ledger] = key

    def take_lac(self, ledger: int, lac: int, record: bytes) -> None:
        """Receive an explicit LAC."""
        if lac > self.lacs.get(ledger, (-2, b""))[0]:
            self.lacs[ledger] = lac, record


def find_journals(places: Sequence[Place], ledger_folders: Sequence[Path], damage: DamageLog) -> list[JournalFile]:
    """Return the journals of all folders in order of folder and id, and report missing ones."""
    journals: list[JournalFile] = []
    named = sum(place.number is not None for place in places)
    several = max(named, len(places)) > 1
    for order, place in enumerate(places):
        if place.folder is None or not place.folder.readable:
            continue
        folder = place.folder.path
        number = order if place.number is None else place.number
        mark = _read_mark(ledger_folders, f"lastMark.{number}" if several else "lastMark", damage)
        files = _list_files(folder, damage)
        known = dict(files)
        for low, high in _find_gaps(mark, sorted(known)):
            by_time = high + 1 in known and _is_named_by_time(known[high + 1])
            if by_time and low > mark.journal_id:
                continue
            name = f"{low:x}.txn" + (f" to {high:x}.txn" if high > low and not by_time else "")
            detail = "replay needs it: the mark is in it or before it"
            damage.add(UnreadPiece(str(folder / name), Reason.MISSING, Hides.EVERYTHING, detail=detail))
        for journal_id, file in files:
            offset = -1 if journal_id < mark.journal_id else mark.offset if journal_id == mark.journal_id else 0
            journals.append(JournalFile(file, journal_id, offset))
    return journals


def _list_files(folder: Path, damage: DamageLog) -> list[tuple[int, RecordFile]]:
    files = []
    with list_folder(folder, damage) as listing:
        for item in listing:
            journal_id = journal_id_of(item.name)
            if journal_id is not None:
                with suppress(FileNotFoundError):  # a running bookie trims them
                    status = item.stat()
                    if not stat.S_ISREG(status.st_mode):
                        detail = "not a regular file"
                        damage.add(UnreadPiece(item.path, Reason.UNREADABLE, Hides.EVERYTHING, detail=detail))
                        continue
                    files.append((journal_id, RecordFile(item.path, status.st_size)))
    return sorted(files, key=lambda pair: pair[0])


def _find_gaps(mark: LastMark, ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last id of each missing stretch from the mark's journal on; ids grow by one."""
    if mark.journal_id == 0:
        return
    expected = mark.journal_id
    for journal_id in ids:
        if journal_id >= expected:
            if journal_id > expected:
                yield expected, journal_id - 1
            expected = journal_id + 1
    if expected == mark.journal_id:
        yield expected, expected


def _is_named_by_time(file: RecordFile) -> bool:
    """Whether a bookie of before 4.2 wrote a journal: of version 2 or 3, or of 1 where it begins with an entry."""
    with suppress(OSError, FormatError), os.fdopen(open_regular(file.path), "rb") as opened:
        head = opened.read(RECORD.size)
        version, _ = journal.header_of(head)
        if version > 1 or len(head) < RECORD.size:
            return 1 < version <= _NAMED_BY_TIME
        size, ledger, number = RECORD.unpack(head)
        return bool(entry.HEADER_SIZE <= size < file.size and min(ledger, number) >= 0)
    return False


def _read_mark(ledger_folders: Sequence[Path], name: str, damage: DamageLog) -> LastMark:
    best = _START
    for folder in ledger_folders:
        path = folder / name
        try:
            best = max(best, _read_written_mark(path))
        except FileNotFoundError:
            continue
        except FormatError as error:
            damage.add(UnreadPiece(str(path), error.reason, Hides.NOTHING, error.offset, detail=error.detail))
        except OSError as error:
            damage.add(UnreadPiece(str(path), Reason.UNREADABLE, Hides.NOTHING, detail=error.strerror or ""))
    return best


@retry(
    retry=retry_if_exception(lambda error: isinstance(error, FormatError) and error.reason in _BEING_WRITTEN),
    stop=stop_after_attempt(_ATTEMPTS),
    wait=wait_fixed(_AGAIN_S),
    reraise=True,
)
def _read_written_mark(path: Path) -> LastMark:
    """Return the mark of a file that a running bookie may just be writing: it empties the file first."""
    return journal.decode_last_mark(read_bounded(path, _LARGEST_MARK))


def read_journals(
    journals: Sequence[JournalFile],
    groups: Spool,
    applied: Spool,
    meter: Meter,
    damage: DamageLog,
    incremental: Incremental | None = None,
) -> JournalFacts:
    """Read journals whole.

    Args:
        journals: in order of folder and id.
        groups: receives entries that a replay would bring back, those of a ledger in pieces that may overlap.
        applied: receives entries before the mark, in the same way.
        meter: counts and paces the reads.
        damage: receives unreadable parts.
        incremental: takes over unchanged journals, and keeps the results of the others.
    """
    facts = JournalFacts()
    newest = {str(Path(journal_file.file.path).parent): journal_file.file.path for journal_file in journals}
    newest_paths = set(newest.values())
    seen = [
        incremental.files.see_file(
            journal_file.file.path, "journal", mark=journal_file.mark, is_newest=journal_file.file.path in newest_paths
        )
        for journal_file in journals
        if incremental is not None
    ]
    given = set() if incremental is None else incremental.journals.take_over(seen, groups, applied)
    for journal_file in journals:
        is_newest = journal_file.file.path in newest_paths
        if journal_file.file.path in given:
            meter.took(0, 1)
            continue
        damaged = damage.count
        sink = _Sink(journal_file, groups, applied, facts, incremental)
        try:
            with Mapped(Path(journal_file.file.path), meter) as data:
                data.load()
                _read_journal(journal_file, data, sink, damage, is_newest=is_newest)
                for offset, length in data.unreadable:
                    damage.add(
                        UnreadPiece(
                            journal_file.file.path,
                            Reason.UNREADABLE,
                            _weigh_damage(journal_file, offset + length),
                            offset,
                            length,
                        )
                    )
        except FormatError as error:
            hides = _weigh_damage(journal_file, journal_file.file.size)
            damage.add(
                UnreadPiece(
                    journal_file.file.path,
                    error.reason,
                    hides,
                    error.offset,
                    journal_file.file.size,
                    detail=error.detail,
                )
            )
        except OSError as error:
            hides = _weigh_damage(journal_file, journal_file.file.size)
            detail = error.strerror or "cannot be read"
            damage.add(
                UnreadPiece(journal_file.file.path, Reason.UNREADABLE, hides, 0, journal_file.file.size, detail=detail)
            )
        finally:
            sink.end()
            if incremental is not None:
                incremental.get_file(journal_file.file.path).sound = damage.count == damaged
        meter.took(0, 1)
    if incremental is not None:
        incremental.journals.pass_specials(facts)
    facts.behind_mark = groups.count > 0
    return facts


def _weigh_damage(journal_file: JournalFile, end: int) -> Hides:
    """Entries before the mark are in the index and the logs, so damage there hides nothing."""
    return Hides.NOTHING if journal_file.mark < 0 or end <= journal_file.mark else Hides.EVERYTHING


@dataclass(slots=True)
class _Sink:
    """Receives the records of one journal.

    Attributes:
        journal: it.
        groups, applied: receive entries after and before the mark.
        facts: of all journals.
        incremental: keeps the journal's records, and passes them to `facts` when all journals are read.
    """

    journal: JournalFile
    groups: Spool
    applied: Spool
    facts: JournalFacts
    incremental: Incremental | None
    special_facts: SpecialFacts = field(default_factory=SpecialFacts)

    def take_entries(self, part: Entries) -> None:
        behind = self.journal.find_ahead(part.position)
        for spool, rows_of_spool in ((self.groups, behind), (self.applied, ~behind)):
            rows = to_rows(to_groups(part.ledger[rows_of_spool], part.entry[rows_of_spool]))
            spool.add(rows)
            if self.incremental is not None:
                self.incremental.files.keep_groups(
                    self.incremental.get_file(self.journal.file.path), rows, ahead=spool is self.groups
                )

    def take_special(self, part: MetaRecord, damage: DamageLog) -> None:
        taker: TakesSpecial = self.facts if self.incremental is None else self.special_facts
        if isinstance(part, FenceRecord):
            taker.take_fence(part.ledger)
        elif isinstance(part, MasterKeyRecord):
            taker.take_key(part.ledger, make_stamp(part.key))
        elif isinstance(part, LacRecordAt):
            try:
                lac = read_explicit_lac(part.raw, damage.scopes.id(part.ledger))
            except FormatError as error:
                self._report(part, error.reason, error.detail, damage)
                return
            taker.take_lac(part.ledger, lac, part.raw)
        else:
            self._report(part, Reason.BAD_VALUE, f"special record {part.entry:#x}", damage)

    def _report(self, part: MetaRecord, reason: Reason, detail: str, damage: DamageLog) -> None:
        damage.add(
            UnreadPiece(self.journal.file.path, reason, Hides.NOTHING, part.at, ledger=part.ledger, detail=detail)
        )

    def end(self) -> None:
        if self.incremental is not None:
            self.incremental.journals.keep_specials(
                self.incremental.get_file(self.journal.file.path), self.special_facts
            )


def _read_journal(journal_file: JournalFile, data: Mapped, sink: _Sink, damage: DamageLog, *, is_newest: bool) -> None:
    if data.size < journal_file.mark:
        detail = f"ends before the mark, {journal_file.mark}"
        damage.add(UnreadPiece(journal_file.file.path, Reason.TRUNCATED, Hides.EVERYTHING, data.size, detail=detail))
    for part in scan_file(data, journal.scan_columns(data.view), damage.scopes):
        if isinstance(part, Entries):
            sink.take_entries(part)
        elif isinstance(part, Damage):
            end = part.offset + part.length
            # Reserved zeros reach from there to the end of the file.
            written = end if end < data.size else find_written_end(data.view, part.offset)
            hides = _weigh_damage(journal_file, written)
            if not _is_torn(part, data.size, written, hides, is_newest=is_newest):
                piece = UnreadPiece(
                    journal_file.file.path, part.reason, hides, part.offset, part.length, detail=part.detail
                )
                damage.add(piece)
        else:
            sink.take_special(part, damage)


def _is_torn(part: Damage, size: int, written: int, hides: Hides, *, is_newest: bool) -> bool:
    """Whether damage is the last record, cut by a crash and never acknowledged."""
    at_end = part.reason is Reason.TRUNCATED and part.offset + part.length >= size and written - part.offset <= _TORN
    return at_end and (is_newest or hides is Hides.NOTHING)
