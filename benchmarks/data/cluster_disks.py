"""The disks of four bookies that were stopped, two with index files and two with RocksDB, of the same ledgers.

    bookie-N/ledgers/current    index files, or the databases `ledgers` and `locations`; a log for each 50,000 ledgers
    bookie-N/journal/current    no journal: the bookie was stopped cleanly

E = 3, W = 2; the three bookies of a ledger follow each other, and in one of a hundred the fourth one took the place of
the one at position 1 half-way. Ten entries of a hundred bytes a ledger.
"""

import os
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import numpy as np
import rocksdict

from benchmarks.data.inventories import identity
from benchmarks.data.ledgers import ENSEMBLE, PASSWORD, PAYLOAD, WRITE
from recovery.codecs import cookie, entry, entry_log, index_file, ledger_db
from recovery.codecs.entry import EntryHeader
from recovery.codecs.framing import SIZE_FIELD
from recovery.codecs.index_file import IndexHeader
from recovery.codecs.ledger_db import BookieLedgerRow
from recovery.model.metadata import DIGEST_SIZES, Digest

BOOKIES: Final = tuple(f"10.0.0.{number}:3181" for number in range(1, 5))
WITH_INDEX: Final = 2
"""Of the bookies, the first so many have index files."""
LEDGERS: Final = "ledgers"
JOURNAL: Final = "journal"
EACH: Final = 10
"""Entries of a ledger."""

_ID_STEP: Final = 3
_CHANGED: Final = 100
_MIDDLE: Final = 1
_LOG_LEDGERS: Final = 50_000
_PAGE: Final = 512
_RECORD: Final = SIZE_FIELD + entry.HEADER_SIZE + DIGEST_SIZES[Digest.CRC32C] + PAYLOAD


def folder_of(folder: Path, number: int) -> Path:
    """Return the folder of a bookie by its number."""
    return folder / f"bookie-{number}"


def write(folder: Path, ledgers: int) -> None:
    """Write the folders of all bookies, of so many ledgers together: each bookie's by a process of its own."""
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=get_context("spawn")) as pool:
        for written in [pool.submit(_write_bookie, folder, bookie, ledgers) for bookie in range(len(BOOKIES))]:
            written.result()


def _write_bookie(folder: Path, bookie: int, ledgers: int) -> None:
    current = _prepare(folder_of(folder, bookie), BOOKIES[bookie])
    databases = {} if bookie < WITH_INDEX else _open_databases(current)
    header = index_file.encode_header(IndexHeader(1, entry.master_key(PASSWORD), fenced=False, explicit_lac=None))
    for log_id, low in enumerate(range(0, ledgers, _LOG_LEDGERS)):
        records: list[bytes] = []
        for number in range(low, min(low + _LOG_LEDGERS, ledgers)):
            held = _share(number).get(bookie, [])
            if not held:
                continue
            ledger = number * _ID_STEP
            first = entry_log.HEADER_SIZE + len(records) * _RECORD + SIZE_FIELD
            places = {at: entry_log.location(log_id, first + place * _RECORD) for place, at in enumerate(held)}
            records += (_encode(ledger, at) for at in held)
            if databases:
                _put(databases, ledger, places)
            else:
                _write_index(current, ledger, header, places)
        (current / f"{log_id:x}.log").write_bytes(entry_log.encode(records, with_map=True))
        (current / "lastId").write_bytes(f"{log_id:x}\n".encode())
    for database in databases.values():
        database.compact_range(None, None)
        database.close()


def _prepare(folder: Path, name: str) -> Path:
    for part in (LEDGERS, JOURNAL):
        current = folder / part / "current"
        current.mkdir(parents=True)
        (current / "VERSION").write_bytes(cookie.encode(identity(name)))
    return folder / LEDGERS / "current"


def _share(number: int) -> Mapping[int, list[int]]:
    """Return which entries of a ledger, by its number, each bookie holds."""
    members = [(number + position) % len(BOOKIES) for position in range(ENSEMBLE)]
    newcomer = (number + ENSEMBLE) % len(BOOKIES)
    change = EACH // 2 if number % _CHANGED == 0 else EACH
    shares: dict[int, list[int]] = {}
    for at in range(EACH):
        for copy in range(WRITE):
            position = (at + copy) % ENSEMBLE
            bookie = newcomer if position == _MIDDLE and at >= change else members[position]
            shares.setdefault(bookie, []).append(at)
    return shares


def _encode(ledger: int, number: int) -> bytes:
    front = EntryHeader(ledger, number, number - 1, (number + 1) * PAYLOAD)
    return entry.encode(front, bytes(PAYLOAD), Digest.CRC32C)


def _write_index(current: Path, ledger: int, header: bytes, places: Mapping[int, int]) -> None:
    slots = np.zeros(_PAGE, ">i8")
    slots[list(places)] = list(places.values())
    path = current / index_file.path_of(ledger)
    flags = os.O_WRONLY | os.O_CREAT
    # Not `Path.write_bytes`: this is done hundreds of thousands of times.
    try:
        file = os.open(path, flags, 0o644)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, flags, 0o644)
    os.write(file, header + slots.tobytes())
    os.close(file)


def _open_databases(current: Path) -> dict[str, rocksdict.Rdict]:
    tables = rocksdict.BlockBasedOptions()
    # The newest that the floor's library reads.
    tables.set_format_version(5)
    options = rocksdict.Options(raw_mode=True)
    options.set_block_based_table_factory(tables)
    options.create_if_missing(True)  # noqa: FBT003 - the library's signature
    return {name: rocksdict.Rdict(str(current / name), options) for name in ("ledgers", "locations")}


def _put(databases: Mapping[str, rocksdict.Rdict], ledger: int, places: Mapping[int, int]) -> None:
    key, value = ledger_db.encode_ledgers_row(
        BookieLedgerRow(ledger, fenced=False, master_key=entry.master_key(PASSWORD), scope=0)
    )
    databases["ledgers"][key] = value
    for at, place in places.items():
        key, value = ledger_db.encode_location(ledger, at, place)
        databases["locations"][key] = value
