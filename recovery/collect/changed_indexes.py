"""All indexes of a bookie, read by several processes: whole, or only where they or the logs that they name changed.

`incremental.indexes` finds what changed: it compares fingerprints of all that there is with those that were kept.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from recovery.collect.disk.file_reader import Meter
from recovery.collect.incremental.indexes import IndexReuse
from recovery.collect.incremental.records import KeptLedgers
from recovery.collect.incremental.row_sets import hash_slots
from recovery.collect.rows.damage import DamageList, Hides, TakesDamage, UnreadPiece
from recovery.collect.rows.index_slots import IndexPiece, IndexRows
from recovery.collect.rows.ledger_facts import LEDGER, NONE, Interned
from recovery.collect.rows.scoped_ids import Scopes
from recovery.collect.rows.source_copies import Ints
from recovery.collect.rows.spool import SHARES, Spool
from recovery.collect.sources.entry_records import RecordFile
from recovery.collect.sources.index_database import (
    LEDGERS,
    LOCATIONS,
    SCOPED_LEDGERS,
    SCOPED_LOCATIONS,
    Database,
    read_ledgers,
    split_ranges,
)
from recovery.collect.sources.index_files import Pages
from recovery.collect.sources.index_folders import find_first_level
from recovery.collect.workers import IndexTask, KeptKeys, Setup, Unit, make_units, run_units
from recovery.errors import Reason

Logs = Mapping[int, Sequence[RecordFile]]


class Indexes:
    """Reads indexes.

    Args:
        index: receives the rows of indexes.
        reuse: results of an earlier collection and for the next one; None: neither is wanted.
        meter: counts and paces the reads.
        damage: receives unreadable parts.
        secrets: numbers of keys and LACs; its scopes name the ledgers.
        processes: at most so many read at a time.

    Attributes:
        known: of the files, and of each database, the ledgers with at least one confirmed entry, ascending.
        bytes, files: of index files in each index folder, by its number.
    """

    def __init__(
        self,
        index: IndexRows[Spool],
        reuse: IndexReuse | None,
        meter: Meter,
        damage: TakesDamage,
        secrets: Interned,
        processes: int,
    ) -> None:
        self._index = index
        self._reuse = reuse
        self._meter = meter
        self._damage = damage
        self._secrets = secrets
        self._processes = processes
        self._reported: set[UnreadPiece] = set()
        self.known: list[Ints] = []
        self.bytes: dict[int, int] = {}
        self.files: dict[int, int] = {}

    def read(
        self,
        folders: Sequence[Path],
        databases: Sequence[tuple[Database, Logs]],
        logs: Logs,
        passwords: tuple[bytes, ...],
        moved: Callable[[], bool],
        *,
        confirms_all: bool,
    ) -> None:
        """Read all that there is.

        Args:
            folders: of index files, in the bookie's order.
            databases: each with the logs that its locations name.
            logs: named by index files.
            passwords: candidates for HMACs.
            moved: tells whether logs were made or deleted since they were listed.
            confirms_all: all locations are confirmed.
        """
        setups = [Setup(logs, passwords, confirms_all)]
        setups += [Setup(named, passwords, confirms_all, database.source) for database, named in databases]
        self.known = [np.empty(0, np.int64)] * len(setups)
        files = make_units(0, find_first_level(folders, self._damage))
        is_unchanged = [self._is_unchanged(database) for database, _ in databases]
        reuse = self._reuse
        task = IndexTask.READ if reuse is None else IndexTask.COMPARE if reuse.can_reuse else IndexTask.KEEP
        units = list(files)
        for n, (database, _) in enumerate(databases, 1):
            if not is_unchanged[n - 1]:
                units += self._make_units(n, database)
        self._run_units(units, [replace(setup, task=task) for setup in setups])
        if reuse is not None and task is IndexTask.COMPARE:
            self._read_rest(reuse, len(folders), files, databases, is_unchanged, setups)
        if moved():
            self._reread_dangling(files, databases, setups)

    def _read_rest(
        self,
        reuse: IndexReuse,
        folders: int,
        files: list[Unit],
        databases: Sequence[tuple[Database, Logs]],
        is_unchanged: Sequence[bool],
        setups: list[Setup],
    ) -> None:
        units = files  # those that are taken over as well: their sizes tell the size of pages
        setups[0] = self._make_rest(0, setups[0], reuse.take_over(range(folders), self._index, facts=True))
        for n, (database, _) in enumerate(databases, 1):
            if is_unchanged[n - 1]:
                reuse.keep_old_fingerprints(database.source)
            kept = reuse.take_over(range(database.source, database.source + 1), self._index, facts=is_unchanged[n - 1])
            setups[n] = self._make_rest(n, replace(setups[n], is_reported=not is_unchanged[n - 1]), kept)
            if kept.has_rest and is_unchanged[n - 1]:
                units = units + self._make_units(n, database, setups[n].kept)
            elif kept.has_rest:
                units = units + [Unit(n, part) for part in split_ranges(database, DamageList())]
        self._run_units(units, setups)

    def _reread_dangling(
        self, files: list[Unit], databases: Sequence[tuple[Database, Logs]], setups: Sequence[Setup]
    ) -> None:
        """Read ledgers with slots for empty places again: a running bookie may have moved or deleted entries."""
        dangling = np.concatenate([np.unique(self._index.dangling.share(n)[:, 0]) for n in range(SHARES)])
        if not len(dangling):
            return
        self._index.dangling.clear()
        if self._reuse is not None:
            for ledger in dangling.tolist():
                self._reuse.mark_damaged(ledger)
        dangling_ledgers = self._choose_ledgers(np.sort(dangling))
        parts = [Unit(n, part) for n, (db, _) in enumerate(databases, 1) for part in split_ranges(db, DamageList())]
        self._run_units(
            files + parts,
            [replace(setup, task=IndexTask.AGAIN, kept=dangling_ledgers, is_reported=True) for setup in setups],
        )

    def _make_rest(self, n: int, setup: Setup, kept: KeptLedgers) -> Setup:
        self.known[n] = kept.with_entries
        return replace(setup, task=IndexTask.REST, kept=self._choose_ledgers(kept.ledgers))

    def _choose_ledgers(self, keys: Ints) -> KeptKeys:
        scoped = Scopes()
        scoped.keys(*self._secrets.scopes.ids(keys[keys < NONE]))
        return KeptKeys(keys[keys > NONE], scoped)

    def _is_unchanged(self, database: Database) -> bool:
        if self._reuse is None:
            return False
        files = [self._reuse.see_database(path, database.source) for path in _list_database_files(database.folder)]
        return self._reuse.is_unchanged(files)

    def _make_units(self, n: int, database: Database, kept: KeptKeys | None = None) -> list[Unit]:
        """Take the facts of a database, except for taken-over ledgers, and return the parts of its locations."""
        damage = DamageList()
        for facts in read_ledgers(database, self._meter, damage, self._secrets):
            if kept is not None:
                self._index.facts.add(facts[~kept.has(facts[:, LEDGER], self._secrets.scopes)])
                continue
            self._index.facts.add(facts)
            if self._reuse is not None:
                none = facts[:0, LEDGER]
                self._reuse.keep_fingerprints(hash_slots(IndexPiece(none, none, none, facts), database.source))
        units = [Unit(n, part) for part in split_ranges(database, damage)]
        self._report(damage.pieces)
        return units

    def _run_units(self, units: Sequence[Unit], setups: Sequence[Setup]) -> None:
        pages = Pages()
        known: list[list[Ints]] = [[ledgers] for ledgers in self.known]
        for unit in run_units(units, setups, self._meter, self._processes):
            task, result = setups[unit.setup].task, unit.rename_ledgers(self._secrets.scopes)
            self._index.groups.add(result.index.groups.read_all())
            self._index.heads.add(result.index.heads.read_all())
            if task is not IndexTask.AGAIN:
                self._index.facts.add(result.facts(self._secrets))
            self._index.dangling.add(result.index.dangling.read_all())
            if self._reuse is not None:
                self._reuse.keep_fingerprints(result.fingerprints, result.logs)
            known[result.setup].append(result.known)
            if task is not IndexTask.AGAIN:
                pages.absorb(result.pages)
                _add_counts(self.bytes, result.bytes)
            if task not in (IndexTask.REST, IndexTask.AGAIN):
                _add_counts(self.files, result.counts)
                self._report(result.listed, harm=False)
            self._report(result.damage)
        cut = DamageList()
        pages.report_cut(cut)
        self._report(cut.pieces)
        self.known = [np.unique(np.concatenate(parts)) for parts in known]

    def _report(self, damage: Iterable[UnreadPiece], *, harm: bool = True) -> None:
        """Report damage; `harm`: its ledgers and files are read again the next time."""
        for piece in damage:
            # Slots that name a log that is gone by now dangle; their ledgers are read again.
            if harm and self._reuse is not None and (piece.reason, piece.hides) != (Reason.MISSING, Hides.NOTHING):
                self._reuse.mark_damaged(piece.ledger)
            # What is wrong with an entry log, or a database, is seen once in every unit.
            if piece.ledger is None and piece in self._reported:
                continue
            self._damage.add(piece)
            if piece.ledger is None:
                self._reported.add(piece)


def _add_counts(sums: dict[int, int], counts: Mapping[int, int]) -> None:
    for number, count in counts.items():
        sums[number] = sums.get(number, 0) + count


def _list_database_files(folder: Path) -> Iterator[str]:
    """Yield the files of databases, without RocksDB's own log and its lock."""
    for name in (LEDGERS, LOCATIONS, SCOPED_LEDGERS, SCOPED_LOCATIONS):
        try:
            with os.scandir(folder / name) as listing:
                yield from sorted(item.path for item in listing if item.name != "LOCK" and item.name[:3] != "LOG")
        except OSError:
            continue  # reported when it is read
