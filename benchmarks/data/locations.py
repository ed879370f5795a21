"""A `locations` database: a hundred entries for each ledger, E = 3, W = 2, the bookie at position 0."""

from pathlib import Path
from typing import Final

import rocksdict

from benchmarks.data.ledgers import ENSEMBLE, WRITE
from recovery.codecs import entry_log, ledger_db

EACH: Final = 100
_TABLE_FORMAT: Final = 5
"""The newest that the floor's library reads."""


def write(folder: Path, ledgers: int) -> None:
    """Write the database, compacted."""
    tables = rocksdict.BlockBasedOptions()
    tables.set_format_version(_TABLE_FORMAT)
    options = rocksdict.Options(raw_mode=True)
    options.set_block_based_table_factory(tables)
    options.create_if_missing(True)  # noqa: FBT003 - the library's signature
    database = rocksdict.Rdict(str(folder), options)
    entries = [number for number in range(EACH) if number % ENSEMBLE < WRITE]
    for ledger in range(ledgers):
        for number in entries:
            key, value = ledger_db.encode_location(ledger, number, entry_log.location(0, 1028 + number))
            database[key] = value
    database.compact_range(None, None)
    database.close()
