"""What bookies have of each ledger, counted in their files: of an index, and of entry logs. For bookies that run, too.

Entry logs are walked here, not by the program's own reader: this is what that is judged by.
"""

import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from backends.rocks import open_read_only
from recovery.codecs.ledger_db import BookieLedgerRow, decode_ledgers_row, decode_locations
from tests.support.cluster import Bookie

_HEADER: Final = 1024
_RECORD: Final = struct.Struct(">iqq")
"""Size of what follows the size, and the ledger and entry that it begins with."""

Place = tuple[str, int]
"""Bookie id and ledger id."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What one bookie has of one ledger.

    Attributes:
        index: bytes of its index file; of DbLedgerStorage its entries that have a location, and one for its own row.
        logs: bytes of its records in entry logs.
        entries: how many entries are in logs.
    """

    index: int
    logs: int
    entries: int = 0


def kept(home: Path, bookies: Sequence[Bookie]) -> dict[Place, Kept]:
    """Return what bookies have of every ledger, by bookie and ledger; folders are relative to `home`."""
    found: dict[Place, Kept] = {}
    for bookie in bookies:
        folders = [home / folder / "current" for folder in bookie.ledgers]
        index = Counter(dict(_indexed([home / folder / "current" for folder in bookie.indexes or bookie.ledgers])))
        logs: Counter[int] = Counter()
        seen: set[tuple[int, int]] = set()
        for folder in folders:
            for log in folder.glob("*.log"):
                for ledger, entry, size in _recorded(log.read_bytes()):
                    logs[ledger] += size
                    seen.add((ledger, entry))
        entries = Counter(ledger for ledger, _ in seen)
        for ledger in (index.keys() | logs.keys()) - {-1}:
            found[bookie.id, ledger] = Kept(index[ledger], logs[ledger], entries[ledger])
    return found


def less(before: Mapping[Place, Kept], after: Mapping[Place, Kept]) -> dict[Place, tuple[Kept, Kept]]:
    """Return where a bookie has less of a ledger than it had."""
    pairs = {place: (had, after.get(place, Kept(0, 0))) for place, had in before.items()}
    return {place: (had, has) for place, (had, has) in pairs.items() if has.index < had.index or has.logs < had.logs}


def _indexed(folders: Sequence[Path]) -> Iterator[tuple[int, int]]:
    rows: Counter[int] = Counter()
    known: set[int] = set()
    for folder in folders:
        for file in folder.glob("*/*/*.idx"):
            yield int(file.stem, 16), file.stat().st_size
        if (folder / "ledgers").is_dir():
            with open_read_only(folder / "ledgers") as ledgers:
                for keys, values in ledgers.items():
                    decoded = [decode_ledgers_row(key, value) for key, value in zip(keys, values, strict=True)]
                    known |= {row.ledger for row in decoded if isinstance(row, BookieLedgerRow)}
        if (folder / "locations").is_dir():
            with open_read_only(folder / "locations") as locations:
                for keys, values in locations.items():
                    ids, counts = np.unique(decode_locations(keys, values).ledger, return_counts=True)
                    rows.update(dict(zip(ids.tolist(), counts.tolist(), strict=True)))
    for ledger in known:
        yield ledger, rows[ledger] + 1


def _recorded(log: bytes) -> Iterator[tuple[int, int, int]]:
    at = _HEADER
    while at + _RECORD.size <= len(log):
        size, ledger, entry = _RECORD.unpack_from(log, at)
        if size <= 0:
            break
        yield ledger, entry, size
        at += 4 + size
