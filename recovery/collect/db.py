"""The index of a Db bookie: the RocksDB folders `ledgers` and `locations`, read without touching them.

Where there are ledgers of scopes, theirs stand beside in `ledgers-scoped` and `locations-scoped`.

Ledger L belongs to ledger folder number L mod N. Its rows are in the index folder of the same number (before 4.16 in
the ledger folder itself), and its locations name logs of that ledger folder. Rows that stand in another folder are
taken and reported: the bookie does not find them.

Source: spec bookie-storage §5, scoped-ids.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from backends.errors import BackendError, NoSuchStoreError
from backends.rocks import open_read_only
from recovery.codecs import ledger_db
from recovery.codecs.ledger_db import LedgerRow, StorageFlags
from recovery.collect.damage import Hides, TakesDamage, Unread
from recovery.collect.facts import FACT_WIDTH, NONE, Interned
from recovery.collect.index import Piece
from recovery.collect.reading import Meter
from recovery.collect.scopes import Scopes
from recovery.errors import FormatError, Reason

LEDGERS: Final = "ledgers"
LOCATIONS: Final = "locations"
SCOPED_LEDGERS: Final = "ledgers-scoped"
SCOPED_LOCATIONS: Final = "locations-scoped"


@dataclass(frozen=True, slots=True)
class Database:
    """The databases of one index folder.

    Attributes:
        folder: that holds them.
        source: the number that facts are marked with.
        number: its place among the bookie's index folders; None if that is not known.
        of: how many there are.
    """

    folder: Path
    source: int
    number: int | None
    of: int

    def is_foreign(self, ledger: int) -> bool:
        """Whether a ledger belongs to another folder."""
        return self.number is not None and ledger_db.shard(ledger, self.of) != self.number


def read_database(database: Database, meter: Meter, damage: TakesDamage, secrets: Interned) -> Iterator[Piece]:
    """Yield what the databases of one folder say."""
    none = np.empty(0, np.int64)
    scoped = has_scopes(database.folder)
    for name in (LEDGERS, SCOPED_LEDGERS) if scoped else (LEDGERS,):
        for rows in _read(database.folder / name, meter, damage):
            facts = _facts(rows, database, name, damage, secrets)
            yield Piece(none, none, none, np.array(facts, np.int64).reshape(-1, FACT_WIDTH))
    yield from read_locations(database, meter, damage, secrets.scopes)


def has_scopes(folder: Path) -> bool:
    """Whether an index folder has databases of scopes: both, then, or one is missing."""
    return any((folder / name).is_dir() for name in (SCOPED_LEDGERS, SCOPED_LOCATIONS))


def _read(folder: Path, meter: Meter, damage: TakesDamage) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Yield keys and values of a database; what goes wrong is damage that hides everything behind it."""
    try:
        with open_read_only(folder) as reader:
            if reader.damage is not None:
                damage.add(Unread(str(folder), Reason.BAD_VALUE, Hides.EVERYTHING, detail=reader.damage))
            for keys, values in reader.items():
                meter.took(sum(map(len, keys)) + sum(map(len, values)))
                yield keys, values
    except NoSuchStoreError as error:
        damage.add(Unread(str(folder), Reason.MISSING, Hides.EVERYTHING, detail=str(error)))
    except BackendError as error:
        damage.add(Unread(str(folder), Reason.UNREADABLE, Hides.EVERYTHING, detail=str(error)))


def _facts(
    rows: tuple[list[bytes], list[bytes]], database: Database, name: str, damage: TakesDamage, secrets: Interned
) -> list[tuple[int, ...]]:
    file = str(database.folder / name)
    decode = ledger_db.decode_scoped_ledgers_row if name == SCOPED_LEDGERS else ledger_db.decode_ledgers_row
    facts: list[tuple[int, ...]] = []
    for key, value in zip(*rows, strict=True):
        try:
            row = decode(key, value)
        except FormatError as error:
            damage.add(Unread(file, error.reason, Hides.NOTHING, detail=f"row {key.hex()}: {error.detail}"))
            continue
        if isinstance(row, LedgerRow):
            # A rebuild enters every ledger of every journal into every folder: in a foreign one it says nothing.
            if not (row.rebuilt and database.is_foreign(row.ledger)):
                facts.append(_fact(row, database, secrets))
        elif isinstance(row, StorageFlags) and row.needs_integrity_check:
            detail = "the bookie's own flags say that entries may be missing (NEEDS_INTEGRITY_CHECK)"
            damage.add(Unread(file, Reason.CONFLICT, Hides.EVERYTHING, detail=detail))
    return facts


def _fact(row: LedgerRow, database: Database, secrets: Interned) -> tuple[int, ...]:
    lac = NONE if row.explicit_lac is None else secrets.lac(row.explicit_lac)
    ledger = secrets.scopes.key(row.scope, row.ledger)
    return ledger, database.source, int(row.fenced), int(row.limbo or False), secrets.key(row.master_key), lac


def read_locations(database: Database, meter: Meter, damage: TakesDamage, scopes: Scopes) -> Iterator[Piece]:
    """Yield what the databases of locations of one folder say."""
    yield from _read_locations(database, LOCATIONS, meter, damage, scopes)
    if has_scopes(database.folder):
        yield from _read_locations(database, SCOPED_LOCATIONS, meter, damage, scopes)


def _read_locations(
    database: Database, name: str, meter: Meter, damage: TakesDamage, scopes: Scopes
) -> Iterator[Piece]:
    folder = database.folder / name
    told: int | None = None
    for keys, values in _read(folder, meter, damage):
        found = ledger_db.decode_locations(keys, values, scoped=name == SCOPED_LOCATIONS)
        key = scopes.keys(found.scope, found.ledger)
        for bad in found.damage:
            damage.add(Unread(str(folder), bad.reason, Hides.EVERYTHING, detail=bad.detail))
        if database.number is not None:
            for ledger in np.unique(key[found.ledger % database.of != database.number]).tolist():
                if ledger != told:
                    own = scopes.id(ledger).ledger % database.of
                    detail = f"belongs to folder {own} of {database.of}; the bookie does not find it"
                    damage.add(Unread(str(folder), Reason.MISPLACED, Hides.NOTHING, ledger=ledger, detail=detail))
                told = ledger
        yield Piece(key, found.entry, found.location, np.empty((0, FACT_WIDTH), np.int64))
