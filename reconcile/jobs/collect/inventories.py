"""Inventories below a folder: all that were brought to one place, and none that is not whole passed over in silence."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from recovery.errors import InputError
from recovery.place import DatasetPlace, to_place

_MANIFEST: Final = "manifest.json"
"""`recovery.dataset.MANIFEST`, without the libraries that it needs."""
_INVENTORY: Final = "inventory"


def find_inventories(folders: Sequence[str], *, may_be_missing: bool = False) -> tuple[str, ...]:
    """Return the inventories in and below folders, in the order of their paths; other datasets are passed over.

    Args:
        folders: that they are in.
        may_be_missing: a folder that is not there, or is empty, has none yet.

    Raises:
        InputError: a folder cannot be read or has none; or one below it has none: what was begun there did not end.
    """
    paths: list[str] = []
    for name in folders:
        folder = to_place(name)
        if may_be_missing and (not folder.exists() or not any(folder.iterdir())):
            continue
        kind = read_kind(folder)
        in_folder = [str(folder)] if kind == _INVENTORY else [] if kind else list(_below(folder))
        if not in_folder:
            problem = f"is a {kind}" if kind else "holds no inventory"
            raise InputError(name, problem, "name the folder that the bookies' inventories are in")
        paths += in_folder
    return tuple(dict.fromkeys(paths))


def _below(folder: DatasetPlace) -> Iterator[str]:
    for child in _children(folder):
        kind = read_kind(child)
        if kind == _INVENTORY:
            yield str(child)
        elif kind is None:
            if not _has_inventory(child):
                problem = "holds no whole inventory: a bookie would be left out"
                raise InputError(str(child), problem, "collect it again, or move it out of this folder")
            yield from _below(child)


def _has_inventory(folder: DatasetPlace) -> bool:
    kind = read_kind(folder)
    return kind == _INVENTORY or (kind is None and any(_has_inventory(child) for child in _children(folder)))


def _children(folder: DatasetPlace) -> Sequence[DatasetPlace]:
    try:
        if not isinstance(folder, Path):
            return [place for place in folder.iterdir() if not place.name.startswith(".") and place.is_dir()]
        return sorted(
            Path(entry.path) for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith(".")
        )
    except OSError as error:
        raise InputError(
            str(folder), f"cannot be read ({error.strerror or error})", "name a folder that you can read"
        ) from error


def read_kind(folder: DatasetPlace) -> str | None:
    """Return what a folder's manifest says that it is; None: it has none."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{folder}/{_MANIFEST}", "cannot be read", "copy or make the dataset again") from error
    return str(manifest.get("kind")) if isinstance(manifest, dict) else "file of something else"
