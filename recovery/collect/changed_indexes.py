"""All indexes of a bookie read by several processes: whole, or where they and the logs that they name have changed.

What changed is told by `again`, from what is compared of all that there is now with what was kept.
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
from recovery.collect.rows.damage import Hides, Noted, TakesDamage, Unread
from recovery.collect.rows.index_slots import IndexRows, Piece
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
    ranges_of,
    read_ledgers,
)
from recovery.collect.sources.index_files import Pages
from recovery.collect.sources.index_folders import first_level
from recovery.collect.workers import Setup, TakenOver, Task, Unit, take_all, units_of
from recovery.errors import Reason

Logs = Mapping[int, Sequence[RecordFile]]


class Indexes:
    """Reads indexes.

    Args:
        found: takes what they say.
        again: what an earlier collection read, and what the next one need not; None: neither is asked for.
        meter: counts and paces the reads.
        damage: takes what cannot be read.
        secrets: numbers of keys and LACs; its scopes name the ledgers.
        processes: at most so many read at a time.

    Attributes:
        known: of the files, and of each database, the ledgers with at least one confirmed entry, ascending.
        bytes, files: of index files in each index folder, by its number.
    """

    def __init__(
        self,
        found: IndexRows[Spool],
        again: IndexReuse | None,
        meter: Meter,
        damage: TakesDamage,
        secrets: Interned,
        processes: int,
    ) -> None:
        self._found = found
        self._again = again
        self._meter = meter
        self._damage = damage
        self._secrets = secrets
        self._processes = processes
        self._told: set[Unread] = set()
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
        every: bool,
    ) -> None:
        """Read all that there is.

        Args:
            folders: of index files, in the bookie's order.
            databases: with the logs that their locations name.
            logs: that index files name.
            passwords: that may have made an HMAC.
            moved: tells whether logs were made or deleted since they were listed.
            every: all locations are confirmed.
        """
        setups = [Setup(logs, passwords, every)]
        setups += [Setup(named, passwords, every, database.source) for database, named in databases]
        self.known = [np.empty(0, np.int64)] * len(setups)
        files = units_of(0, first_level(folders, self._damage))
        same = [self._is_unchanged(database) for database, _ in databases]
        again = self._again
        task = Task.READ if again is None else Task.COMPARE if again.can_reuse else Task.KEEP
        units = list(files)
        for n, (database, _) in enumerate(databases, 1):
            if not same[n - 1]:
                units += self._units(n, database)
        self._take(units, [replace(setup, task=task) for setup in setups])
        if again is not None and task is Task.COMPARE:
            self._read_rest(again, len(folders), files, databases, same, setups)
        if moved():
            self._look_again(files, databases, setups)

    def _read_rest(
        self,
        again: IndexReuse,
        folders: int,
        files: list[Unit],
        databases: Sequence[tuple[Database, Logs]],
        same: Sequence[bool],
        setups: list[Setup],
    ) -> None:
        units = files  # those that are taken over as well: their sizes tell the size of pages
        setups[0] = self._rest(0, setups[0], again.take_over(range(folders), self._found, facts=True))
        for n, (database, _) in enumerate(databases, 1):
            if same[n - 1]:
                again.keep_old_fingerprints(database.source)
            kept = again.take_over(range(database.source, database.source + 1), self._found, facts=same[n - 1])
            setups[n] = self._rest(n, replace(setups[n], told=not same[n - 1]), kept)
            if kept.has_rest and same[n - 1]:
                units = units + self._units(n, database, setups[n].kept)
            elif kept.has_rest:
                units = units + [Unit(n, part) for part in ranges_of(database, Noted())]
        self._take(units, setups)

    def _look_again(
        self, files: list[Unit], databases: Sequence[tuple[Database, Logs]], setups: Sequence[Setup]
    ) -> None:
        """Read once more what names places where nothing is: a bookie that runs may have moved or deleted it since."""
        dangling = np.concatenate([np.unique(self._found.dangling.share(n)[:, 0]) for n in range(SHARES)])
        if not len(dangling):
            return
        self._found.dangling.clear()
        if self._again is not None:
            for ledger in dangling.tolist():
                self._again.mark_damaged(ledger)
        these = self._taken_over(np.sort(dangling))
        parts = [Unit(n, part) for n, (db, _) in enumerate(databases, 1) for part in ranges_of(db, Noted())]
        self._take(files + parts, [replace(setup, task=Task.AGAIN, kept=these, told=True) for setup in setups])

    def _rest(self, n: int, setup: Setup, kept: KeptLedgers) -> Setup:
        self.known[n] = kept.with_entries
        return replace(setup, task=Task.REST, kept=self._taken_over(kept.ledgers))

    def _taken_over(self, keys: Ints) -> TakenOver:
        scoped = Scopes()
        scoped.keys(*self._secrets.scopes.ids(keys[keys < NONE]))
        return TakenOver(keys[keys > NONE], scoped)

    def _is_unchanged(self, database: Database) -> bool:
        if self._again is None:
            return False
        files = [self._again.see_database(path, database.source) for path in _files(database.folder)]
        return self._again.is_unchanged(files)

    def _units(self, n: int, database: Database, kept: TakenOver | None = None) -> list[Unit]:
        """Take the facts of a database, but of what is taken over, and return the parts of its locations."""
        damage = Noted()
        for facts in read_ledgers(database, self._meter, damage, self._secrets):
            if kept is not None:
                self._found.facts.add(facts[~kept.has(facts[:, LEDGER], self._secrets.scopes)])
                continue
            self._found.facts.add(facts)
            if self._again is not None:
                none = facts[:0, LEDGER]
                self._again.keep_fingerprints(hash_slots(Piece(none, none, none, facts), database.source))
        units = [Unit(n, part) for part in ranges_of(database, damage)]
        self._tell(damage.found)
        return units

    def _take(self, units: Sequence[Unit], setups: Sequence[Setup]) -> None:
        pages = Pages()
        known: list[list[Ints]] = [[one] for one in self.known]
        for unit in take_all(units, setups, self._meter, self._processes):
            task, taken = setups[unit.setup].task, unit.named_by(self._secrets.scopes)
            self._found.groups.add(taken.found.groups.all())
            self._found.heads.add(taken.found.heads.all())
            if task is not Task.AGAIN:
                self._found.facts.add(taken.facts(self._secrets))
            self._found.dangling.add(taken.found.dangling.all())
            if self._again is not None:
                self._again.keep_fingerprints(taken.fingerprints, taken.logs)
            known[taken.setup].append(taken.known)
            if task is not Task.AGAIN:
                pages.absorb(taken.pages)
                _add(self.bytes, taken.bytes)
            if task not in (Task.REST, Task.AGAIN):
                _add(self.files, taken.counts)
                self._tell(taken.listed, harm=False)
            self._tell(taken.damage)
        cut = Noted()
        pages.tell_cut(cut)
        self._tell(cut.found)
        self.known = [np.unique(np.concatenate(parts)) for parts in known]

    def _tell(self, damage: Iterable[Unread], *, harm: bool = True) -> None:
        """Report damage; `harm`: what it touches is read again the next time."""
        for one in damage:
            # Ledgers whose entries were in a log that is gone by now dangle, and are read again for that.
            if harm and self._again is not None and (one.reason, one.hides) != (Reason.MISSING, Hides.NOTHING):
                self._again.mark_damaged(one.ledger)
            # What is wrong with an entry log, or a database, is seen once in every unit.
            if one.ledger is None and one in self._told:
                continue
            self._damage.add(one)
            if one.ledger is None:
                self._told.add(one)


def _add(sums: dict[int, int], more: Mapping[int, int]) -> None:
    for number, many in more.items():
        sums[number] = sums.get(number, 0) + many


def _files(folder: Path) -> Iterator[str]:
    """Yield the files of databases; RocksDB's own log of what it does and its lock say nothing."""
    for name in (LEDGERS, LOCATIONS, SCOPED_LEDGERS, SCOPED_LOCATIONS):
        try:
            with os.scandir(folder / name) as listing:
                yield from sorted(item.path for item in listing if item.name != "LOCK" and item.name[:3] != "LOG")
        except OSError:
            continue  # told when it is read
