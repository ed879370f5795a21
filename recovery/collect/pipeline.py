"""One bookie's disks into an inventory dataset.

The journals are read first: if a running bookie flushes entries from them later, the index then shows these. Nothing is
    ever
written, created or locked below the bookie's folders.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from recovery.codecs import entry_log, journal
from recovery.collect.changed_indexes import Indexes
from recovery.collect.deep_check.compare import DeepCheck, list_logs
from recovery.collect.deep_check.counts import DeepCounts
from recovery.collect.disk.file_reader import Meter, ReadProgress
from recovery.collect.disk.folders import Disks, Folder, FolderRole, Place, Statements, survey
from recovery.collect.disk.vanished_files import count_vanished
from recovery.collect.incremental.collection import Incremental
from recovery.collect.incremental.records import Reused, Terms
from recovery.collect.merge import Beside, IndexSource, Merge
from recovery.collect.options import CollectOptions, CollectSummary
from recovery.collect.rows.bookies import BookieRow, FolderRow, JournalRow, LifeEvidence, bind_inventory
from recovery.collect.rows.damage import DamageList, DamageLog, find_suspect_disk
from recovery.collect.rows.entry_headers import HEAD_WIDTH, PLACE_WIDTH, SIZE_COLUMN, place_heads, split_placed
from recovery.collect.rows.index_slots import IndexPiece, IndexRows
from recovery.collect.rows.ledger_facts import FACT_WIDTH, Interned
from recovery.collect.rows.source_copies import GROUP_WIDTH, Ints, join_groups, subtract_groups, to_groups, to_rows
from recovery.collect.rows.spool import Spool
from recovery.collect.sources.entry_logs import LogScan, find_logs, scan_unlisted
from recovery.collect.sources.entry_records import RecordFile, RecordFiles, ScansBytes, locate_entries
from recovery.collect.sources.index_database import (
    LEDGERS,
    LOCATIONS,
    SCOPED_LEDGERS,
    SCOPED_LOCATIONS,
    Database,
    read_ledgers,
    read_locations,
)
from recovery.collect.sources.index_files import IndexReader
from recovery.collect.sources.index_folders import find_files, find_first_level
from recovery.collect.sources.journals import JournalFacts, JournalFile, find_journals, read_journals
from recovery.dataset import DatasetWriter
from recovery.errors import InputError
from recovery.model.groups import KeyedGroups
from recovery.model.ids import LedgerId
from recovery.place import DatasetPlace

_MEGABYTE: Final = 1_000_000


def collect(
    options: CollectOptions, out: DatasetPlace, *, now: Callable[[], datetime], progress: Callable[[ReadProgress], None]
) -> CollectSummary:
    """Read one bookie's disks into an inventory dataset.

    Args:
        options: of the collection.
        out: a new folder, not below one of the bookie's.
        now: the clock, with a time zone.
        progress: is called with how far each stage is.

    Raises:
        InputError: the folders do not exist, or are not those of one bookie.
        DatasetError: the dataset cannot be written.
    """
    started = now()
    _require_apart(options, out)
    meter = Meter(None if options.max_mb_s is None else options.max_mb_s * _MEGABYTE, progress)
    meter.begin("folders")
    statements = Statements(options.instance_id, options.configured_id, options.may_lack)
    disks = survey(options.ledger_dirs, options.index_dirs, options.journal_dirs, options.bookie_id, statements)
    binding = bind_inventory(disks.bookie, disks.incarnation, disks.instance_id, disks.cookie_bytes)
    with DatasetWriter(out, "inventory", binding=binding, settings=options.settings) as writer:
        damage = DamageLog(writer, disks.bookie, disks.incarnation)
        for unread in disks.damage:
            damage.add(unread)
        run = _Run(disks, options, meter, damage, writer.scratch, started)
        try:
            for table in run.make_tables():
                writer.append("copies", table)
            kept = run.write_kept(out)
        finally:
            run.close()
        run.report_suspects()
        damage.flush()
        row = run.make_row(started, now())
        writer.append("bookies", row.to_table())
        writer.close(coverage={**_make_coverage(row, run.deep, run.reused), "again": kept})
    missing = tuple(p.name for p in disks.places if p.folder is None)
    return CollectSummary(
        disks.bookie,
        disks.incarnation,
        row.storage,
        row.complete,
        disks.dirty,
        row.ledgers,
        row.entries,
        row.damaged,
        damage.hiding,
        missing,
        meter.read,
        run.deleted,
        run.deep,
        run.reused,
        run.leftover,
        disks.disputed,
    )


def _require_apart(options: CollectOptions, out: DatasetPlace) -> None:
    given = [*options.ledger_dirs, *options.index_dirs, *options.journal_dirs]
    if not given:
        raise InputError("no folder", "nothing to collect from", "name the bookie's folders or its bk_server.conf")
    for folder in given:
        if isinstance(out, Path) and out.resolve().is_relative_to(folder.resolve()):
            problem = f"is inside the bookie's folder {folder}"
            raise InputError(str(out), problem, "name a folder elsewhere: nothing is written below a bookie's")


def _make_coverage(row: BookieRow, deep: DeepCounts | None, reused: Reused | None) -> dict[str, object]:
    coverage = row.to_coverage("bookie", "incarnation", "complete", "storage", "dirs", "ledgers", "entries", "damaged")
    if deep is not None:
        coverage["deep"] = asdict(deep)
    if reused is not None:
        coverage["reused"] = asdict(reused)
    return {**coverage, "started": row.started.isoformat(), "ended": row.ended.isoformat(), "as_of": row.as_of}


class _Run:
    """One collection: its stages in their order, and their shared data."""

    def __init__(
        self,
        disks: Disks,
        options: CollectOptions,
        meter: Meter,
        damage: DamageLog,
        scratch: Path,
        started: datetime,
    ) -> None:
        self._disks = disks
        self._options = options
        self._meter = meter
        self._damage = damage
        self._scratch = scratch
        self._secrets = Interned(damage.scopes)
        self._spools: list[Spool] = []
        self._journals: list[JournalFile] = []
        self._journal_facts = JournalFacts()
        self._scanned = LogScan((), -1)
        self._sources: list[IndexSource] = []
        self.deep: DeepCounts | None = None
        self._merge: Merge | None = None
        self._vanished = 0
        self._ledger_folders = _list_folders(disks, FolderRole.LEDGER)
        self._index_folders = _list_folders(disks, FolderRole.INDEX)
        self._incremental = None
        if options.keep or options.since is not None:
            self._incremental = Incremental(_make_terms(disks, options), options.since, scratch, started, self._secrets)
        self._logs = {folder.path: find_logs(folder, damage) for folder in self._ledger_folders}
        self._index = IndexRows(*(self._make_spool(w) for w in (GROUP_WIDTH, HEAD_WIDTH, FACT_WIDTH, GROUP_WIDTH)))
        reuse = None if self._incremental is None else self._incremental.indexes
        self._indexes = Indexes(self._index, reuse, meter, damage, self._secrets, options.processes)

    def _make_spool(self, width: int) -> Spool:
        self._spools.append(Spool(width, self._scratch))
        return self._spools[-1]

    def _make_beside(self) -> Beside:
        groups, heads, places = (self._make_spool(width) for width in (GROUP_WIDTH, HEAD_WIDTH, PLACE_WIDTH))
        return Beside(groups, heads, places, join_groups([]))

    def close(self) -> None:
        """Free the space on disk."""
        for spool in self._spools:
            spool.close()
        if self._incremental is not None:
            self._incremental.close()

    @property
    def deleted(self) -> int:
        """Ledgers that were seen to go meanwhile; when `make_tables` has ended."""
        return self._damage.deleted + self._vanished

    @property
    def leftover(self) -> int:
        """Ledgers that only logs and old journals know; when `make_tables` has ended."""
        return 0 if self._merge is None else self._merge.totals.leftover

    @property
    def reused(self) -> Reused | None:
        """Counts of taken-over results; None: no earlier inventory was named."""
        return None if self._incremental is None or self._options.since is None else self._incremental.reused

    def write_kept(self, out: DatasetPlace) -> str | None:
        """Write the results for the next collection, if asked to; after `make_tables`.

        Returns:
            The hash of the written results; None: none were asked for.
        """
        return None if self._incremental is None else self._incremental.write(out, self._index, self._find_doubled())

    def make_tables(self) -> Iterator[pa.Table]:
        """Read everything, and yield the rows of copies."""
        journal_groups, log_groups = self._make_spool(GROUP_WIDTH), self._make_spool(GROUP_WIDTH)
        self._read_journals(journal_groups, log_groups)
        self._read_index()
        self._scan_logs(log_groups)
        self._meter.begin("inventory")
        merge = Merge(
            self._index,
            journal_groups,
            log_groups,
            self._journal_facts,
            self._secrets,
            self._sources,
            self._find_doubled(),
            self._damage,
            from_journal=self._make_beside(),
            from_log=self._make_beside(),
        )
        self._merge = merge
        merge.subtract()
        journals = [j.file for j in self._journals]
        self._read_heads(journals, journal.scan_columns, merge.from_journal)
        self._read_heads(self._scanned.files, entry_log.scan_columns, merge.from_log)
        self._read_heads(journals, journal.scan_columns, merge.from_log)
        yield from merge.make_tables(complete=self._disks.complete and not self._damage.everything)
        if self._disks.dirty is not False and not any(folder.databases for folder in self._index_folders):
            known = np.concatenate(self._indexes.known)
            self._vanished = count_vanished(known, [folder.path for folder in self._index_folders])
        self._meter.end()

    def _read_journals(self, groups: Spool, applied: Spool) -> None:
        places = self._disks.list_places(FolderRole.JOURNAL)
        self._journals = find_journals(places, [f.path for f in self._ledger_folders], self._damage)
        files = [j.file for j in self._journals]
        self._meter.begin("journals", len(files), sum(f.size for f in files))
        self._journal_facts = read_journals(
            self._journals, groups, applied, self._meter, self._damage, self._incremental
        )
        self._meter.end()

    def _read_index(self) -> None:
        dirty = self._disks.dirty
        unclean = dirty or (dirty is None and self._journal_facts.behind_mark)
        confirms_all = bool(unclean or self._options.deep)
        self._meter.begin("index")
        folders = [folder.path for folder in self._index_folders]
        self._sources = [IndexSource(path, is_database=False) for path in folders]
        logs = self._join_logs(self._ledger_folders)
        if self._incremental is not None:
            for log_id, files in logs.items():
                for file in files:
                    self._incremental.files.see_file(file.path, "log", number=log_id)
            self._incremental.indexes.begin(confirms_all=confirms_all)
        databases = []
        for database, named in self._list_databases():
            self._sources.append(IndexSource(database.folder, is_database=True))
            databases.append((database, self._join_logs(named)))
        self._indexes.read(
            folders, databases, logs, self._options.passwords, self._has_moved, confirms_all=confirms_all
        )
        self._meter.end()

    def _has_moved(self) -> bool:
        """Whether a bookie that may run has made or deleted entry logs since they were listed."""
        current = {folder.path: find_logs(folder, DamageList()).keys() for folder in self._ledger_folders}
        return self._disks.dirty is not False and current != {path: logs.keys() for path, logs in self._logs.items()}

    def _list_databases(self) -> Iterator[tuple[Database, Sequence[Folder]]]:
        """Yield the databases, with the ledger folders that their locations may lie in, the likeliest first."""
        numbers = {
            place.folder.path: place.number for place in self._disks.list_places(FolderRole.LEDGER) if place.folder
        }
        numbers |= {
            place.folder.path: place.number for place in self._disks.list_places(FolderRole.INDEX) if place.folder
        }
        cookie = self._disks.cookie
        count = len(cookie.ledger_dirs) if cookie else 1
        for folder in dict.fromkeys([*self._index_folders, *self._ledger_folders]):
            if not folder.databases:
                continue
            number = numbers.get(folder.path) if cookie else None
            paired = {
                p.folder for p in self._disks.list_places(FolderRole.LEDGER) if p.number == number or p.folder == folder
            }
            logs = sorted(self._ledger_folders, key=lambda f: f not in paired)
            yield Database(folder.path, len(self._sources), number, count), logs

    def _join_logs(self, folders: Sequence[Folder]) -> dict[int, list[RecordFile]]:
        files: dict[int, list[RecordFile]] = {}
        for folder in folders:
            for log_id, logs in self._logs[folder.path].items():
                files.setdefault(log_id, []).extend(logs)
        return files

    def _find_doubled(self) -> Ints:
        ledgers, times = np.unique(np.concatenate(self._indexes.known), return_counts=True)
        return ledgers[times > 1]

    def _scan_logs(self, groups: Spool) -> None:
        files = [file for logs in self._logs.values() for named in logs.values() for file in named]
        files.sort(key=lambda file: file.path)
        hidden = np.fromiter(self._damage.ledgers, np.int64, len(self._damage.ledgers))
        known = np.setdiff1d(np.concatenate(self._indexes.known), hidden)
        self._meter.begin("logs", len(files), sum(file.size for file in files))

        def take_groups(named: KeyedGroups) -> None:
            groups.add(to_rows(named))

        if not self._options.deep:
            self._scanned = scan_unlisted(
                files, known, self._meter, self._damage, take_groups, incremental=self._incremental
            )
            self._meter.end()
            return
        passwords, scopes = self._options.passwords, self._damage.scopes
        deep = DeepCheck(list_logs(self._logs.values()), self._journals, passwords, self._scratch, scopes)
        try:
            self._scanned = scan_unlisted(
                files, known, self._meter, self._damage, take_groups, take_records=deep.take_log
            )
            self._meter.end()
            self._meter.begin("comparing")
            deep.read_journals(self._meter)
            for piece in self._read_slots_again():
                deep.take_slots(piece)
            self.deep = deep.compare(np.unique(known), self._meter, self._damage)
            self._meter.end()
        finally:
            deep.close()

    def _read_slots_again(self) -> Iterator[IndexPiece]:
        """Yield the slots of all indexes again; their damage was reported the first time."""
        read_damage = DamageList()
        scopes = self._damage.scopes
        none = np.empty(0, np.int64)
        reader = IndexReader(self._meter, read_damage, Interned(scopes))
        levels = find_first_level([f.path for f in self._index_folders], read_damage)
        for piece in reader.read(find_files(levels, read_damage, scopes, reader.ahead)):
            yield piece.to_piece()
        for database, _ in self._list_databases():
            for facts in read_ledgers(database, self._meter, read_damage, Interned(scopes)):
                yield IndexPiece(none, none, none, facts)
            yield from read_locations(database, self._meter, read_damage, scopes)

    def report_suspects(self) -> None:
        """Report folders with many damaged files."""
        for folder in dict.fromkeys(p.folder for p in self._disks.places if p.folder is not None):
            kinds = (
                ("entry logs", len(self._logs.get(folder.path, {}))),
                ("journals", sum(Path(j.file.path).parent == folder.path for j in self._journals)),
                (
                    "index files",
                    sum(self._indexes.files.get(n, 0) for n, f in enumerate(self._index_folders) if f == folder),
                ),
            )
            piece = find_suspect_disk(folder.path, self._damage.spoiled, dict(kinds))
            if piece is not None:
                self._damage.add(piece)

    def _read_heads(self, files: Sequence[RecordFile], scan: ScansBytes, beside: Beside) -> None:
        """Read the wanted headers that are in these files; the other headers stay wanted."""
        if not len(beside.wanted.key):
            return
        passwords, scopes = self._options.passwords, self._damage.scopes
        before = len(beside.files)
        beside.files += [file.path for file in files]

        def take(rows: Ints) -> None:
            heads, unproven = split_placed(rows)
            beside.heads.add(heads)
            unproven[:, 2] += before
            beside.places.add(unproven)

        def read(places: Sequence[int]) -> tuple[Ints, Ints]:
            chosen, damage_count = [files[n] for n in places], self._damage.count
            ledger, entry, file, position = locate_entries(chosen, scan, beside.wanted, self._meter, scopes)
            by_number = {n: [f] for n, f in enumerate(chosen)}
            records = RecordFiles(by_number, self._meter, self._damage, passwords, scopes=scopes)
            _, heads = records.fetch(ledger, entry, file, position)
            if self._incremental is not None and self._damage.count > damage_count:
                for found in chosen:
                    self._incremental.get_file(found.path).sound = False
            good = heads[:, SIZE_COLUMN] > 0
            placed = place_heads(heads[good], np.array(places, np.int64)[file[good]], position[good])
            return placed, np.column_stack((ledger, entry))

        if self._incremental is not None:
            paths = [file.path for file in files]
            beside.wanted = self._incremental.take_over_headers(paths, beside.wanted, read, take)
            return
        rows, stand = read(range(len(files)))
        take(rows)
        beside.wanted = subtract_groups(beside.wanted, to_groups(stand[:, 0], stand[:, 1]))

    def make_row(self, started: datetime, ended: datetime) -> BookieRow:
        """Return the row of the bookie; when `make_tables` has ended."""
        if self._merge is None:
            raise AssertionError("nothing was read yet")
        disks, totals = self._disks, self._merge.totals
        damaged = max(self._damage.ledgers, default=-1)
        largest = max(totals.largest, self._scanned.largest, damaged)
        return BookieRow(
            bookie=disks.bookie,
            incarnation=disks.incarnation,
            incarnation_evidence=[LifeEvidence(kind, value) for kind, value in disks.evidence],
            instance_id=disks.instance_id,
            cookie=disks.cookie_bytes,
            version_files=disks.version_files,
            storage=self._name_storage(),
            mode="disks",
            dirty=disks.dirty,
            started=started,
            ended=ended,
            as_of=self._options.as_of,
            complete=disks.complete and not self._damage.hiding and not totals.limbo and not self.deleted,
            dirs=[self._make_folder_row(place) for place in disks.places],
            journals=[JournalRow(j.journal_id, j.mark) for j in self._journals],
            max_ids=list(self._list_largest(largest)),
            ledgers=totals.ledgers,
            entries=totals.entries,
            damaged=self._damage.count,
            expands_storage=self._options.expands_storage,
            stamps_cookies=self._options.stamps_cookies,
            gaps_named=disks.complete and not self._damage.everything and not self._damage.unlisted,
        )

    def _list_largest(self, of_zero: int) -> Iterator[LedgerId]:
        """Yield the largest id of each scope; -1: none of scope 0."""
        if of_zero >= 0:
            yield LedgerId(0, of_zero)
        yield from self._damage.scopes.find_largest()

    def _name_storage(self) -> str:
        databases = any(folder.databases for folder in self._index_folders)
        if databases:
            return "mixed" if self._indexes.bytes else "db"
        return "interleaved" if self._indexes.bytes else "none"

    def _make_folder_row(self, place: Place) -> FolderRow:
        folder = place.folder
        if folder is None:
            return FolderRow(place.name, place.role.value, complete=False, bytes=0, unread=0)
        inside = [
            status
            for file, status in self._damage.files.items()
            if Path(file).is_relative_to(folder.path) and _role_of(Path(file)) is place.role
        ]
        return FolderRow(
            str(folder.path),
            place.role.value,
            complete=folder.readable and folder.version is not None and not any(hides for _, hides in inside),
            bytes=self._count_bytes(place.role, folder),
            unread=sum(unread for unread, _ in inside),
        )

    def _count_bytes(self, role: FolderRole, folder: Folder) -> int:
        match role:
            case FolderRole.JOURNAL:
                return sum(j.file.size for j in self._journals if Path(j.file.path).parent == folder.path)
            case FolderRole.LEDGER:
                return sum(file.size for files in self._logs.get(folder.path, {}).values() for file in files)
            case FolderRole.INDEX:
                number = next((n for n, f in enumerate(self._index_folders) if f == folder), -1)
                names = (LEDGERS, LOCATIONS, SCOPED_LEDGERS, SCOPED_LOCATIONS)
                rows = [folder.path / name for name in names] if folder.databases else []
                return self._indexes.bytes.get(number, 0) + sum(map(_measure_folder, rows))


def _make_terms(disks: Disks, options: CollectOptions) -> Terms:
    places = [f"{p.role} {p.number} {None if p.folder is None else p.folder.path}" for p in disks.places]
    cookie = hashlib.sha256(disks.cookie_bytes or b"").hexdigest()
    return Terms(disks.bookie, disks.incarnation, (cookie, *places), options.passwords)


def _list_folders(disks: Disks, role: FolderRole) -> list[Folder]:
    return [place.folder for place in disks.list_places(role) if place.folder is not None]


def _measure_folder(folder: Path) -> int:
    try:
        return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    except OSError:
        return 0


def _role_of(file: Path) -> FolderRole:
    if file.suffix == ".txn":
        return FolderRole.JOURNAL
    return (
        FolderRole.INDEX if file.suffix in (".idx", ".rloc", "") and file.name[:8] != "lastMark" else FolderRole.LEDGER
    )
