"""Bookies that hold the same ledgers twice: of scope 0, and spread over scopes.

    index     an index file a ledger, and an entry log with its map
    db        RocksDB of ledgers and locations, and the same log
    log       the log without a map, and no index: all of it is gone through
    journal   the records behind the mark, and before each ledger's first one its master key

Each below `0` and below `scoped`. Ten entries of a hundred bytes a ledger, ledgers in turns by hundreds.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import rocksdict

from benchmarks.data.inventories import identity
from benchmarks.data.ledgers import BOOKIES, PASSWORD, PAYLOAD
from recovery.codecs import cookie, entry, entry_log, index_file, journal, ledger_db
from recovery.codecs.entry import EntryHeader
from recovery.codecs.framing import SIZE_FIELD
from recovery.codecs.index_file import IndexHeader
from recovery.codecs.ledger_db import BookieLedgerRow
from recovery.model.ids import LedgerId
from recovery.model.metadata import DIGEST_SIZES, Digest

KINDS: Final = {
    "index": "index files",
    "db": "RocksDB",
    "log": "an entry log that no index names",
    "journal": "a journal that would be replayed",
}
SIDES: Final = ("0", "scoped")
LEDGERS: Final = "ledgers"
JOURNAL: Final = "journal"

_EACH: Final = 10
_TURNS: Final = 100
_PAGE: Final = 512
_SHARE: Final = 100
"""Ledgers of one scope."""
_SCOPE: Final = 0x9E37_79B9_7F4A_7C15
"""Scopes are numbers times this one: far apart."""


def write(folder: Path, ledgers: int) -> None:
    """Write the folders of bookies that have so many ledgers each."""
    for side in SIDES:
        ids = [_id(number, scoped=side != SIDES[0]) for number in range(ledgers)]
        for kind in KINDS:
            _write(folder / side / kind, kind, ids)


def _id(number: int, *, scoped: bool) -> LedgerId:
    scope = (1 + number // _SHARE) * _SCOPE % (1 << 64) if scoped else 0
    return LedgerId(struct.unpack(">q", scope.to_bytes(8))[0], 3 * number)


def _write(folder: Path, kind: str, ids: list[LedgerId]) -> None:
    for name in (LEDGERS, JOURNAL):
        current = folder / name / "current"
        current.mkdir(parents=True)
        (current / "VERSION").write_bytes(cookie.encode(identity(BOOKIES[0])))
    current = folder / LEDGERS / "current"
    if kind == "journal":
        (folder / JOURNAL / "current" / "1.txn").write_bytes(journal.encode(_journal(ids)))
        (current / "lastId").write_bytes(b"0\n")
        return
    (current / "0.log").write_bytes(entry_log.encode(_entries(ids), with_map=kind != "log"))
    if kind == "index":
        _index_files(current, ids)
    elif kind == "db":
        _databases(current, ids)


def _turns(ids: list[LedgerId]) -> Iterator[tuple[int, LedgerId]]:
    for low in range(0, len(ids), _TURNS):
        for number in range(_EACH):
            for one in ids[low : low + _TURNS]:
                yield number, one


def _record(number: int, one: LedgerId) -> bytes:
    front = EntryHeader(one.ledger, number, number - 1, (number + 1) * PAYLOAD, one.scope)
    return entry.encode(front, bytes(PAYLOAD), Digest.CRC32C)


def _entries(ids: list[LedgerId]) -> Iterator[bytes]:
    return (_record(number, one) for number, one in _turns(ids))


def _journal(ids: list[LedgerId]) -> Iterator[bytes]:
    key = entry.master_key(PASSWORD)
    for number, one in _turns(ids):
        if not number:
            yield journal.encode_master_key(one.ledger, key, scope=one.scope)
        yield _record(number, one)


def _locations(ids: list[LedgerId]) -> dict[LedgerId, list[int]]:
    found: dict[LedgerId, list[int]] = {one: [] for one in ids}
    header = entry.SCOPED_HEADER_SIZE if ids[0].scope else entry.HEADER_SIZE
    size = SIZE_FIELD + header + DIGEST_SIZES[Digest.CRC32C] + PAYLOAD
    for place, (_, one) in enumerate(_turns(ids)):
        found[one].append(entry_log.location(0, entry_log.HEADER_SIZE + place * size + SIZE_FIELD))
    return found


def _index_files(current: Path, ids: list[LedgerId]) -> None:
    header = IndexHeader(1, entry.master_key(PASSWORD), fenced=False, explicit_lac=None)
    made: set[str] = set()
    for one, places in _locations(ids).items():
        slots = np.zeros(_PAGE, np.int64)
        slots[:_EACH] = places
        path = index_file.path_of(one.ledger, one.scope)
        parent = path.rpartition("/")[0]
        if parent not in made:
            (current / parent).mkdir(parents=True)
            made.add(parent)
        # Not `Path.write_bytes`: this is done hundreds of thousands of times.
        file = os.open(current / path, os.O_WRONLY | os.O_CREAT, 0o644)
        os.write(file, index_file.encode(header, slots))
        os.close(file)


def _databases(current: Path, ids: list[LedgerId]) -> None:
    key = entry.master_key(PASSWORD)
    some: dict[str, list[tuple[bytes, bytes]]] = {"ledgers": [], "locations": []}
    for one, places in _locations(ids).items():
        some["ledgers"].append(
            ledger_db.encode_ledgers_row(BookieLedgerRow(one.ledger, fenced=False, master_key=key, scope=one.scope))
        )
        some["locations"] += (
            ledger_db.encode_location(one.ledger, number, place, scope=one.scope) for number, place in enumerate(places)
        )
    behind = "-scoped" if ids[0].scope else ""
    rows = {name + behind: found for name, found in some.items()}
    for name in {**dict.fromkeys(some), **rows}:
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)  # noqa: FBT003 - the library's signature
        database = rocksdict.Rdict(str(current / name), options)
        for at, value in rows.get(name, ()):
            database[at] = value
        database.compact_range(None, None)
        database.close()
