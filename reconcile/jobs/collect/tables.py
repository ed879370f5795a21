"""Inventories from tables of one's own, which take the place of bookies that cannot be collected."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from recovery.bookies.listed_inventory import write_listed
from recovery.place import DatasetPlace, is_remote


def list_folders(paths: Sequence[str]) -> tuple[str, ...]:
    """Return those of the paths that are no tables."""
    return tuple(path for path in paths if not _is_table(path))


def take_tables(paths: Sequence[str], out: DatasetPlace, now: datetime) -> tuple[str, ...]:
    """Return folders of inventories: those that are given, and those made, below `out`, of what is a table of entries.

    Raises:
        InputError: a table cannot be read, or says what cannot be.
        DatasetError: an inventory cannot be written.
    """
    folders: list[str] = []
    for number, path in enumerate(paths):
        made = write_listed(Path(path), out / str(number), now) if _is_table(path) else [path]
        folders += map(str, made)
    return tuple(folders)


@contextmanager
def with_tables(paths: Sequence[str], now: datetime) -> Iterator[tuple[str, ...]]:
    """Give folders of inventories as `take_tables` does; those that are made are removed afterwards.

    Raises:
        InputError: a table cannot be read, or says what cannot be.
        DatasetError: an inventory cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="bkmeta-tables-") as made:
        yield take_tables(paths, Path(made), now)


def _is_table(path: str) -> bool:
    # What is in a store is a dataset: tables are of this machine.
    return not is_remote(path) and Path(path).is_file()
