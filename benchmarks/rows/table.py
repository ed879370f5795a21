"""All rows, in the order in which they are run."""

from typing import Final

from benchmarks.rows import (
    archive,
    bookie_files,
    commands,
    deletes,
    impact,
    reconstruction,
    scrutiny,
    stores,
    whole,
    wire,
)

ROWS: Final = (
    *bookie_files.ROWS,
    *reconstruction.ROWS,
    *commands.ROWS,
    *impact.ROWS,
    *stores.ROWS,
    *wire.ROWS,
    *archive.ROWS,
    *deletes.ROWS,
    *scrutiny.ROWS,
    *whole.ROWS,
)
