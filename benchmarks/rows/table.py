"""All rows, in the order in which they are run."""

from typing import Final

from benchmarks.rows import bookie_files, reconstruction, stores, wire

ROWS: Final = (*bookie_files.ROWS, *reconstruction.ROWS, *stores.ROWS, *wire.ROWS)
