"""The index of a Db bookie: the RocksDB folders `ledgers` and `locations`, read without touching them.

Where there are ledgers of scopes, theirs are beside in `ledgers-scoped` and `locations-scoped`.

Ledger L belongs to ledger folder number L mod N. Its rows are in the index folder of the same number (before 4.16 in
the ledger folder itself), and its locations name logs of that ledger folder. Rows that are in another folder are
taken and reported: the bookie does not find them.

Source: docs/formats/bookie-storage.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from backends.errors import BackendError, NoSuchStoreError
from backends.rocks import RocksReader, open_read_only
from recovery.codecs import ledger_db
from recovery.codecs.ledger_db import BookieLedgerRow, StorageFlags
from recovery.collect.disk.file_reader import Meter
from recovery.collect.rows.damage import Hides, TakesDamage, UnreadPiece
from recovery.collect.rows.index_slots import IndexPiece
from recovery.collect.rows.ledger_facts import FACT_WIDTH, LEDGER, NONE, Interned
from recovery.collect.rows.scoped_ids import Scopes
from recovery.collect.rows.source_copies import Ints, find_starts
from recovery.errors import FormatError, Reason

LEDGERS: Final = "ledgers"
LOCATIONS: Final = "locations"
SCOPED_LEDGERS: Final = "ledgers-scoped"
SCOPED_LOCATIONS: Final = "locations-scoped"

_LEDGER_BYTES: Final = {LOCATIONS: 8, SCOPED_LOCATIONS: 16}
"""First bytes of a key, which name the ledger."""
_RANGE_KEYS: Final = 250_000
"""Rows of a range at least: about a tenth of a second."""
_RANGES: Final = 16


@dataclass(frozen=True, slots=True)
class Database:
    """The databases of one index folder.

    Attributes:
        folder: of the databases.
        source: the number that facts are marked with.
        number: its place among the bookie's index folders; None if that is not known.
        of: the number of parts.
    """

    folder: Path
    source: int
    number: int | None
    of: int

    def is_foreign(self, ledger: int) -> bool:
        """Whether a ledger belongs to another folder."""
        return self.number is not None and ledger_db.shard(ledger, self.of) != self.number


@dataclass(frozen=True, slots=True)
class LocationRange:
    """A part of a database of locations: all rows of a ledger are in one part.

    Attributes:
        database: of the part.
        name: of the folder in it.
        low, high: from which key on, and before which one; None: no bound.
    """

    database: Database
    name: str
    low: bytes | None = None
    high: bytes | None = None


def read_ledgers(database: Database, meter: Meter, damage: TakesDamage, secrets: Interned) -> Iterator[Ints]:
    """Yield rows of facts from the databases of ledgers of one folder."""
    for name in (LEDGERS, SCOPED_LEDGERS) if has_scopes(database.folder) else (LEDGERS,):
        for rows in _read_rows(database.folder / name, meter, damage):
            yield _decode_facts(rows, database, name, damage, secrets)


def has_scopes(folder: Path) -> bool:
    """Whether an index folder has a database of scopes: then it needs both."""
    return any((folder / name).is_dir() for name in (SCOPED_LEDGERS, SCOPED_LOCATIONS))


def _read_rows(folder: Path, meter: Meter, damage: TakesDamage) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Yield keys and values of a database; an error is damage that hides everything after it."""
    try:
        with open_read_only(folder) as reader:
            _report_passed_over(reader, damage)
            for keys, values in reader.items():
                meter.took(sum(map(len, keys)) + sum(map(len, values)))
                yield keys, values
    except BackendError as error:
        _report(folder, error, damage)


def _report(folder: Path, error: BackendError, damage: TakesDamage) -> None:
    reason = Reason.MISSING if isinstance(error, NoSuchStoreError) else Reason.UNREADABLE
    damage.add(UnreadPiece(str(folder), reason, Hides.EVERYTHING, detail=str(error)))


def _report_passed_over(reader: RocksReader, damage: TakesDamage) -> None:
    if reader.damage is not None:
        damage.add(UnreadPiece(str(reader.folder), Reason.BAD_VALUE, Hides.EVERYTHING, detail=reader.damage))


def _decode_facts(
    rows: tuple[list[bytes], list[bytes]], database: Database, name: str, damage: TakesDamage, secrets: Interned
) -> Ints:
    file = str(database.folder / name)
    decode = ledger_db.decode_scoped_ledgers_row if name == SCOPED_LEDGERS else ledger_db.decode_ledgers_row
    facts: list[tuple[int, ...]] = []
    scopes: list[int] = []
    # Most ledgers share their value with many others, of the same password; those with an explicit LAC do not.
    alike: dict[bytes, tuple[int, ...]] = {}
    for key, value in zip(*rows, strict=True):
        if value in alike and (ledger := ledger_db.read_plain_key(key)) is not None:
            facts.append((ledger, *alike[value]))
            scopes.append(0)
            continue
        try:
            row = decode(key, value)
        except FormatError as error:
            damage.add(UnreadPiece(file, error.reason, Hides.NOTHING, detail=f"row {key.hex()}: {error.detail}"))
            continue
        if isinstance(row, BookieLedgerRow):
            # A rebuild enters every ledger of every journal into every folder: in a foreign one it says nothing.
            if not (row.rebuilt and database.is_foreign(row.ledger)):
                facts.append(_make_fact(row, database, secrets))
                scopes.append(row.scope)
                if row.explicit_lac is None:
                    alike[value] = facts[-1][1:]
        elif isinstance(row, StorageFlags) and row.needs_integrity_check:
            detail = "the bookie's own flags say that entries may be missing (NEEDS_INTEGRITY_CHECK)"
            damage.add(UnreadPiece(file, Reason.CONFLICT, Hides.EVERYTHING, detail=detail))
    rows_of_facts = np.array(facts, np.int64).reshape(-1, FACT_WIDTH)
    rows_of_facts[:, LEDGER] = secrets.scopes.keys(np.array(scopes, np.int64), rows_of_facts[:, LEDGER])
    return rows_of_facts


def _make_fact(row: BookieLedgerRow, database: Database, secrets: Interned) -> tuple[int, ...]:
    lac = NONE if row.explicit_lac is None else secrets.add_lac(row.explicit_lac)
    return row.ledger, database.source, int(row.fenced), int(row.limbo or False), secrets.add_key(row.master_key), lac


def read_locations(database: Database, meter: Meter, damage: TakesDamage, scopes: Scopes) -> Iterator[IndexPiece]:
    """Yield the rows of the databases of locations of one folder."""
    for part in split_ranges(database, damage):
        yield from read_range(part, meter, damage, scopes)


def split_ranges(database: Database, damage: TakesDamage) -> list[LocationRange]:
    """Return the databases of locations of one folder in parts of about equal time; none if one is missing."""
    ranges: list[LocationRange] = []
    for name in (LOCATIONS, SCOPED_LOCATIONS) if has_scopes(database.folder) else (LOCATIONS,):
        try:
            with open_read_only(database.folder / name) as reader:
                _report_passed_over(reader, damage)
                cuts = reader.shares(_RANGE_KEYS, _RANGES, _LEDGER_BYTES[name])
        except BackendError as error:
            _report(database.folder / name, error, damage)
            continue
        ranges += [LocationRange(database, name, *bounds) for bounds in pairwise([None, *cuts, None])]
    return ranges


def read_range(part: LocationRange, meter: Meter, damage: TakesDamage, scopes: Scopes) -> Iterator[IndexPiece]:
    """Yield a part of the rows of a database of locations; skipped parts were reported at its opening."""
    folder = part.database.folder / part.name
    last_reported: int | None = None
    try:
        with open_read_only(folder) as reader:
            for keys, values in reader.items(low=part.low, high=part.high):
                meter.took(len(keys) * (len(keys[0]) + len(values[0])))
                locations = ledger_db.decode_locations(keys, values, scoped=part.name == SCOPED_LOCATIONS)
                for bad in locations.damage:
                    damage.add(UnreadPiece(str(folder), bad.reason, Hides.EVERYTHING, detail=bad.detail))
                piece = IndexPiece(
                    scopes.keys(locations.scope, locations.ledger),
                    locations.entry,
                    locations.location,
                    np.empty((0, FACT_WIDTH), np.int64),
                )
                last_reported = _report_foreign(part, piece.ledger, damage, scopes, last_reported)
                yield piece
    except BackendError as error:
        _report(folder, error, damage)


def _report_foreign(
    part: LocationRange, keys: Ints, damage: TakesDamage, scopes: Scopes, last_reported: int | None
) -> int | None:
    """Report ledgers of other folders, except the one that was reported last; return the last one."""
    database = part.database
    if database.number is None or database.of == 1:
        return last_reported
    keys = keys[find_starts(keys)]
    _, ledgers = scopes.ids(keys)
    own = ledgers % database.of
    for key, folder in zip(keys[own != database.number].tolist(), own[own != database.number].tolist(), strict=True):
        if key != last_reported:
            detail = f"belongs to folder {folder} of {database.of}; the bookie does not find it"
            where = str(database.folder / part.name)
            damage.add(UnreadPiece(where, Reason.MISPLACED, Hides.NOTHING, ledger=key, detail=detail))
        last_reported = key
    return last_reported
