"""Indexes read only where they, or the entry logs that they name, are not as they were; see `again`."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np

from recovery.collect.again import Again
from recovery.collect.damage import Noted, TakesDamage
from recovery.collect.db import (
    LEDGERS,
    LOCATIONS,
    SCOPED_LEDGERS,
    SCOPED_LOCATIONS,
    Database,
    read_database,
    read_locations,
)
from recovery.collect.facts import FACT_WIDTH, LEDGER, Interned
from recovery.collect.holdings import Ints
from recovery.collect.index import Found, IndexTaker, Piece
from recovery.collect.interleaved import IndexFile, IndexReader, Level, Pages, find_files, first_level, slots_size
from recovery.collect.reading import Meter
from recovery.collect.spool import Spool

_AT_ONCE: Final = 4096
"""Files that are looked at at a time."""

MakesTaker = Callable[[TakesDamage], IndexTaker]
"""Makes what confirms the slots of an index, and tells that of its damage."""


@dataclass(frozen=True, slots=True)
class FilesRead:
    """What reading index files gave beside their rows.

    Attributes:
        known: ledgers with at least one confirmed entry, ascending.
        bytes, files: of each index folder, by its number.
    """

    known: Ints
    bytes: dict[int, int]
    files: dict[int, int]


def read_files(
    folders: Sequence[Path],
    found: Found[Spool],
    again: Again,
    maker: MakesTaker,
    meter: Meter,
    damage: TakesDamage,
    secrets: Interned,
) -> FilesRead:
    """Read the index files that changed, and take the others over.

    Args:
        folders: the index folders in the bookie's order.
        found: takes what the files say.
        again: what an earlier collection read.
        maker: makes the taker of slots.
        meter: counts and paces the reads.
        damage: takes what cannot be read.
        secrets: numbers of keys and LACs; its scopes name the ledgers.
    """
    levels = first_level(folders, damage)
    count: dict[int, int] = {}
    for files in _some(find_files(levels, damage, secrets.scopes)):
        again.fingerprints(_fingerprints(files))
        for file in files:
            count[file.folder] = count.get(file.folder, 0) + 1
    kept = again.kept(range(len(folders)), found, facts=True)
    watch = again.watching(damage)
    reader, taker = IndexReader(meter, watch, secrets), maker(watch)
    # The sizes of those that are not read, too, tell the size of pages.
    for piece in again.noticing(reader.read(_not_kept(levels, kept.ledgers, reader.pages, reader.bytes, secrets))):
        taker.take(piece)
    taker.end()
    reader.pages.tell_cut(watch)
    return FilesRead(np.union1d(kept.holding, taker.known()), reader.bytes, count)


def _some(files: Iterator[IndexFile]) -> Iterator[list[IndexFile]]:
    while some := list(islice(files, _AT_ONCE)):
        yield some


def _fingerprints(files: Sequence[IndexFile]) -> Ints:
    rows = []
    for file in files:
        try:
            found = os.stat(file.path)  # noqa: PTH116  # a Path for each of a million files takes longer than this
        except OSError:
            continue  # told when it is read
        rows.append((file.ledger, file.folder, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))
    return np.array(rows, np.int64).reshape(-1, 6)


def _not_kept(
    levels: Sequence[Level], kept: Ints, pages: Pages, read: dict[int, int], secrets: Interned
) -> Iterator[IndexFile]:
    for files in _some(find_files(levels, Noted(), secrets.scopes)):
        same = np.isin(np.array([file.ledger for file in files], np.int64), kept)
        sizes = []
        for n in np.flatnonzero(same).tolist():
            size, slots = slots_size(files[n].path)
            sizes.append(size)
            read[files[n].folder] = read.get(files[n].folder, 0) + slots
        pages.take([files[n] for n in np.flatnonzero(same).tolist()], np.array(sizes, np.int64))
        for n in np.flatnonzero(~same).tolist():
            yield files[n]


def read_changed(
    database: Database,
    found: Found[Spool],
    again: Again,
    maker: MakesTaker,
    meter: Meter,
    damage: TakesDamage,
    secrets: Interned,
) -> Ints:
    """Read the ledgers of a database that changed, and take the others over; return those that hold entries.

    A database that is as it was is not opened. One that changed is read, but what its slots name only where these
    changed.
    """
    watch = again.watching(damage)
    taker = maker(watch)
    files = [again.see(path, "database", id=database.source) for path in _database_files(database.folder)]
    unchanged = again.is_unchanged(files)
    if unchanged:
        again.recall(database.source)
    elif not again.usable:
        for piece in again.noticing(read_database(database, meter, watch, secrets), database.source):
            taker.take(piece)
        taker.end()
        return taker.known()
    else:
        for piece in again.noticing(read_database(database, meter, watch, secrets), database.source):
            found.facts.add(piece.rows().facts)
    kept = again.kept(range(database.source, database.source + 1), found, facts=unchanged)
    if kept.rest:
        pieces = (
            again.noticing(read_database(database, meter, watch, secrets))
            if unchanged
            else read_locations(database, meter, Noted(), secrets.scopes)
        )
        for piece in pieces:
            taker.take(_without(piece.rows(), kept.ledgers, facts=unchanged))
    taker.end()
    return np.union1d(kept.holding, taker.known())


def _without(piece: Piece, ledgers: Ints, *, facts: bool) -> Piece:
    slots = ~np.isin(piece.ledger, ledgers)
    said = piece.facts[~np.isin(piece.facts[:, LEDGER], ledgers)] if facts else np.empty((0, FACT_WIDTH), np.int64)
    return Piece(piece.ledger[slots], piece.entry[slots], piece.location[slots], said)


def _database_files(folder: Path) -> Iterator[str]:
    """Yield the files of databases; RocksDB's own log of what it does and its lock say nothing."""
    for name in (LEDGERS, LOCATIONS, SCOPED_LEDGERS, SCOPED_LOCATIONS):
        try:
            with os.scandir(folder / name) as listing:
                yield from sorted(item.path for item in listing if item.name != "LOCK" and item.name[:3] != "LOG")
        except OSError:
            continue  # told when it is read
