"""Data that benchmarks run on, made once and kept.

A folder's name has the number of ledgers and a hash of the sources that made it, so nothing old is ever taken.
"""

import hashlib
import inspect
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Final

from benchmarks.data import ledgers as made_up
from recovery.model import tables

_DIGITS: Final = 12


def default_home() -> Path:
    """Return where data is kept if nothing is said."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bkmeta" / "bench"


def kept(home: Path, make: Callable[[Path, int], None], ledgers: int, *others: ModuleType) -> Path:
    """Return the folder that a maker made for so many ledgers; have it made if it is not there.

    Args:
        home: where folders are kept.
        make: makes everything in an empty folder that it is given.
        ledgers: how many.
        others: modules that the maker takes from, beside made-up ledgers and the tables.
    """
    module = Path(inspect.getfile(make))
    sources = sorted({module, *(Path(inspect.getfile(source)) for source in (made_up, tables, *others))})
    content = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:_DIGITS]
    stem = f"{module.stem}-{ledgers}"
    folder = home / f"{stem}-{content}"
    if folder.exists():
        return folder
    home.mkdir(parents=True, exist_ok=True)
    for old in home.glob(f"{stem}-*"):
        shutil.rmtree(old)
    print(f"making {stem} …", file=sys.stderr, flush=True)
    unfinished = home / f"{stem}-unfinished"
    unfinished.mkdir()
    make(unfinished, ledgers)
    unfinished.replace(folder)
    return folder
