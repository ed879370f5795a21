"""The disk of one bookie with interleaved storage: an index file a ledger, and one entry log.

    ledgers/current/H/L/ID.idx   header, and one page of slots: 9,216 bytes
    ledgers/current/0.log        the first entry of each ledger that the bookie holds, then the last of each; a map
    journal/current              no journal: the bookie was stopped cleanly

All other slots name the same place, which is inside the log. E = 3, W = 2; the bookie is at another
position for every ledger, and in one of a hundred it was replaced half-way. 10 to 1,000 entries, log-normal.
"""

import os
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.data.inventories import identity
from benchmarks.data.ledgers import BOOKIES, ENSEMBLE, PASSWORD, PAYLOAD, WRITE, Ints
from recovery.codecs import cookie, entry, entry_log, index_file
from recovery.codecs.entry import EntryHeader
from recovery.codecs.framing import SIZE_FIELD
from recovery.codecs.index_file import IndexHeader
from recovery.model.groups import holds
from recovery.model.metadata import DIGEST_SIZES, Digest

LEDGERS: Final = "ledgers"
JOURNAL: Final = "journal"
BOOKIE: Final = BOOKIES[0]

_SEED: Final = 20_260_102
_PAGE: Final = 1024
_CHANGED: Final = 100
_RECORD: Final = entry.HEADER_SIZE + DIGEST_SIZES[Digest.CRC32C] + PAYLOAD


def write(folder: Path, ledgers: int) -> None:
    """Write the folders of a bookie that has so many ledgers."""
    for name in (LEDGERS, JOURNAL):
        current = folder / name / "current"
        current.mkdir(parents=True)
        (current / "VERSION").write_bytes(cookie.encode(identity(BOOKIE)))
    random = np.random.default_rng(_SEED)
    entries = np.clip(random.lognormal(4.6, 1.1, ledgers), 10, 1000).astype(np.int64)
    current = folder / LEDGERS / "current"
    header = IndexHeader(1, entry.master_key(PASSWORD), fenced=False, explicit_lac=None)
    ends: tuple[list[bytes], list[bytes]] = ([], [])
    made: set[str] = set()
    for ledger, total in enumerate(entries.tolist()):
        kept = total // 2 if ledger % _CHANGED == 0 else total
        own = np.flatnonzero(holds(np.arange(kept), _one(ledger), _one(ENSEMBLE), _one(WRITE)))
        slots = np.zeros(_PAGE, np.int64)
        slots[own] = entry_log.location(0, entry_log.HEADER_SIZE + SIZE_FIELD)
        for records, number, before in zip(ends, own[[0, -1]].tolist(), (ledger, ledgers + ledger), strict=True):
            # Where the entry's bytes begin: behind the log's header, all records before, and the size of its own.
            position = entry_log.HEADER_SIZE + before * (SIZE_FIELD + _RECORD) + SIZE_FIELD
            slots[number] = entry_log.location(0, position)
            front = EntryHeader(ledger, number, number - 1, (number + 1) * PAYLOAD)
            records.append(entry.encode(front, bytes(PAYLOAD), Digest.CRC32C))
        path = index_file.path_of(ledger)
        parent = path.rpartition("/")[0]
        if parent not in made:
            (current / parent).mkdir(parents=True)
            made.add(parent)
        # Not `Path.write_bytes`: this is done hundreds of thousands of times.
        file = os.open(current / path, os.O_WRONLY | os.O_CREAT, 0o644)
        os.write(file, index_file.encode(header, slots))
        os.close(file)
    (current / "0.log").write_bytes(entry_log.encode([*ends[0], *ends[1]], with_map=True))
    (current / "lastId").write_bytes(b"0\n")


def _one(value: int) -> Ints:
    return np.array([value], np.int64)
