"""The index files of an interleaved or sorted bookie: for each ledger the one that the bookie reads.

    X.idx               the index
    X.idx.rloc          a copy that a move between folders left unfinished: read only where X.idx is nowhere
    X.idx twice         the bookie reads the one in the folder that comes first

Source: docs/formats/bookie-storage.md.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby, islice
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from recovery.codecs import index_file
from recovery.codecs.index_file import ledgers_in
from recovery.collect.disk.folders import describe_stray
from recovery.collect.rows.damage import Hides, TakesDamage, UnreadPiece
from recovery.collect.rows.scoped_ids import Scopes
from recovery.errors import Reason
from recovery.model import ids

_FOLDER: Final = re.compile(r"[0-9a-f]{1,2}")
_SCOPED_FOLDER: Final = re.compile(r"[0-9a-f]{8}")
_FIRST_LEVEL: Final = re.compile(r"[0-9a-f]{1,2}|[0-9a-f]{8}")
_INDEX: Final = re.compile(r"([0-9a-f]{1,16})\.idx(\.rloc)?")
_COPY: Final = ".rloc"
_NAMED: Final = 1024
"""Ledgers of scopes that get their keys together."""


class IndexFile(NamedTuple):
    """An index file to read: its path, its ledger's key, and the number of its index folder."""

    path: str
    ledger: int
    folder: int


class FolderLevel(NamedTuple):
    """A subfolder.

    Attributes:
        name: of the subfolder.
        above: the path of each folder that has it, by the number of the index folder.
    """

    name: str
    above: Mapping[int, str]

    @property
    def paths(self) -> dict[int, str]:
        """Its path in each index folder that has it, by their numbers."""
        return {number: f"{folder}/{self.name}" for number, folder in self.above.items()}


def find_first_level(folders: Sequence[Path], damage: TakesDamage) -> list[FolderLevel]:
    """Return the subfolders of index folders, by name; all index files of a ledger are in one of them.

    Args:
        folders: the index folders in the bookie's order.
        damage: receives folders that cannot be listed.
    """
    return [*_find_subfolders(dict(enumerate(map(str, folders))), "", _FIRST_LEVEL, damage)]


def find_files(
    levels: Iterable[FolderLevel], damage: TakesDamage, scopes: Scopes, ahead: Callable[[], int] = lambda: 1
) -> Iterator[IndexFile]:
    """Yield the index file of each ledger, in no order but grouped by subfolder.

    Args:
        levels: subfolders of the first level.
        damage: receives misplaced and double files, and folders that cannot be listed.
        scopes: names the ledgers.
        ahead: how many folders to list at a time, for now.
    """
    for is_scoped, levels_of_kind in groupby(levels, lambda level: _SCOPED_FOLDER.fullmatch(level.name) is not None):
        if not is_scoped:
            for level in levels_of_kind:
                lows = [(low.name, low.paths) for low in _find_subfolders(level.paths, level.name, _FOLDER, damage)]
                listed = _list_names([path for _, paths in lows for path in paths.values()], ahead())
                for name, paths in lows:
                    yield from _find_files_in(paths, f"{level.name}/{name}", listed, damage)
            continue
        scoped_files = _find_scoped_files(levels_of_kind, damage, scopes)
        while files := list(islice(scoped_files, _NAMED)):
            names = np.frombuffer(bytes.fromhex("".join(name for _, name, _ in files)), ">i8").astype(np.int64)
            keys = scopes.keys(names[::2], names[1::2]).tolist()
            for (path, _, number), key in zip(files, keys, strict=True):
                yield IndexFile(path, key, number)


def _find_subfolders(
    folders: Mapping[int, str], inside: str, named: re.Pattern[str], damage: TakesDamage
) -> Iterator[FolderLevel]:
    """Yield the subfolders of a name, by their names."""
    having: dict[str, tuple[int, ...]] = {}
    above: dict[tuple[int, ...], Mapping[int, str]] = {}
    for number, folder in folders.items():
        try:
            with os.scandir(folder) as listing:
                for item in listing:
                    if item.is_dir() and named.fullmatch(item.name):
                        numbers = (*having.get(item.name, ()), number)
                        if numbers not in above:
                            above[numbers] = {n: folders[n] for n in numbers}
                        having[item.name] = numbers
                    elif inside:
                        _report_stray(item.path, item.name, inside, damage)
        except OSError as error:
            _report_unlisted(folder, error, damage)
    for name in sorted(having):
        yield FolderLevel(name, above[having[name]])


def _report_unlisted(folder: str, error: OSError, damage: TakesDamage) -> None:
    detail = error.strerror or "cannot be listed"
    damage.add(UnreadPiece(folder, Reason.UNREADABLE, Hides.UNLISTED, detail=detail))


def _report_stray(path: str, name: str, inside: str, damage: TakesDamage) -> None:
    """Report files that are no index file of a ledger at their place, below the first level."""
    is_dir = os.path.isdir(path)  # noqa: PTH112  # all here are strings
    match = _INDEX.fullmatch(name)
    ledger = -1 if match is None or is_dir or _SCOPED_FOLDER.match(inside) else int(match[1], 16)
    if not 0 <= ledger < 1 << 63:
        damage.add(describe_stray(path, name, is_dir=is_dir))
        return
    detail = f"the bookie looks for it at {index_file.path_of(ledger)}"
    damage.add(UnreadPiece(path, Reason.MISPLACED, Hides.LEDGER, ledger=ledger, detail=detail))


def _list_names(folders: Iterable[str], at_once: int) -> Iterator[list[str] | OSError]:
    """Yield the names in each folder, or why it cannot be listed."""
    if at_once == 1:
        yield from map(_list_names_of, folders)
        return
    with ThreadPoolExecutor(at_once) as pool:
        yield from pool.map(_list_names_of, folders)


def _list_names_of(folder: str) -> list[str] | OSError:
    try:
        return os.listdir(folder)  # noqa: PTH208  # names alone, of up to 65,536 folders
    except OSError as error:
        return error


def _find_files_in(
    folders: Mapping[int, str], inside: str, listed: Iterator[list[str] | OSError], damage: TakesDamage
) -> Iterator[IndexFile]:
    whole: dict[int, IndexFile] = {}
    copies: dict[int, IndexFile] = {}
    for number, folder in folders.items():
        names = next(listed)
        if isinstance(names, OSError):
            _report_unlisted(folder, names, damage)
            continue
        if len(folders) == 1:
            files = [
                IndexFile(f"{folder}/{name}", ledger, number)
                for name, ledger in zip(names, ledgers_in(inside, names), strict=True)
                if ledger is not None
            ]
            if len(files) == len(names):  # nearly always: there is nothing else in it, and no copy
                yield from files
                return
        for name, ledger in zip(names, ledgers_in(inside, [n.removesuffix(_COPY) for n in names]), strict=True):
            path = f"{folder}/{name}"
            if ledger is None:
                _report_stray(path, name, inside, damage)
            elif name.endswith(_COPY):
                copies.setdefault(ledger, IndexFile(path, ledger, number))
            elif ledger in whole:
                _report_double(path, ledger, whole[ledger].path, damage)
            else:
                whole[ledger] = IndexFile(path, ledger, number)
    yield from whole.values()
    for ledger, file in copies.items():
        if ledger not in whole:
            yield file


def _report_double(path: str, ledger: int, taken: str, damage: TakesDamage) -> None:
    damage.add(UnreadPiece(path, Reason.CONFLICT, Hides.LEDGER, ledger=ledger, detail=f"the bookie takes {taken}"))


def _find_scoped_files(
    levels: Iterable[FolderLevel], damage: TakesDamage, scopes: Scopes
) -> Iterator[tuple[str, str, int]]:
    """Yield path, qualified name and number of the index folder of each ledger's file."""
    for level in levels:
        for low in _find_subfolders(level.paths, level.name, _SCOPED_FOLDER, damage):
            scope = f"{level.name}/{low.name}"
            for high in _find_subfolders(low.paths, scope, _SCOPED_FOLDER, damage):
                yield from _find_scoped_files_in(high.paths, f"{scope}/{high.name}", damage, scopes)


def _find_scoped_files_in(
    folders: Mapping[int, str], inside: str, damage: TakesDamage, scopes: Scopes
) -> Iterator[tuple[str, str, int]]:
    # All ledgers of a scope may be in one folder, so nothing is kept of what was listed: the few other places that a
    # file may be in are listed.
    for number, folder in folders.items():
        other_folders = [(n, f) for n, f in folders.items() if n != number]
        try:
            with os.scandir(folder) as listing:
                for item in listing:
                    whole = item.name.removesuffix(_COPY)
                    name = index_file.parse_scoped_name(f"{inside}/{whole}")
                    if name is None:
                        _report_stray(item.path, item.name, inside, damage)
                        continue
                    if item.name == whole:
                        first_folder = next(
                            (f for n, f in other_folders if n < number and _exists(f"{f}/{whole}")), None
                        )
                        if first_folder is None:
                            yield item.path, name, number
                            continue
                        ledger = ids.parse(name)
                        _report_double(
                            item.path, scopes.key(ledger.scope, ledger.ledger), f"{first_folder}/{whole}", damage
                        )
                    elif not (
                        any(_exists(f"{f}/{whole}") for f in folders.values())
                        or any(n < number and _exists(f"{f}/{item.name}") for n, f in other_folders)
                    ):
                        yield item.path, name, number
        except OSError as error:
            _report_unlisted(folder, error, damage)


def _exists(path: str) -> bool:
    return os.path.lexists(path)  # a Path for each of a million files takes longer than this
