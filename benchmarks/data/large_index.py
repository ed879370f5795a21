"""An index folder of a bookie with large ledgers: one file for each twenty of the ledgers that are asked for.

Files of 64 KiB to 2 MiB, log-uniform. E = 3, W = 2, the bookie at position 0; all slots name one place in log 0.
"""

from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.data.ledgers import ENSEMBLE, PASSWORD, WRITE
from recovery.codecs import entry, entry_log, index_file
from recovery.codecs.index_file import IndexHeader

SHARE: Final = 20
_SEED: Final = 20_260_103
_SIZES: Final = (64 << 10, 2 << 20)
_PAGE: Final = 8192


def write(folder: Path, ledgers: int) -> None:
    """Write the index files."""
    random = np.random.default_rng(_SEED)
    low, high = np.log(_SIZES)
    header = IndexHeader(1, entry.master_key(PASSWORD), fenced=False, explicit_lac=None)
    place = entry_log.location(0, entry_log.HEADER_SIZE + 4)
    for ledger in range(max(1, ledgers // SHARE)):
        slots = int(np.exp(random.uniform(low, high))) // _PAGE * _PAGE // index_file.SLOT
        held = np.arange(slots) % ENSEMBLE < WRITE
        path = folder / index_file.path_of(ledger)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(index_file.encode(header, np.where(held, place, 0)))
