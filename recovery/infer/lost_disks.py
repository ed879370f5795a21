"""Disks that are stated to be gone for good: their unread parts hide nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recovery.errors import InputError, Reason


@dataclass(frozen=True, slots=True, order=True)
class LostDisk:
    """A bookie, or one folder of it, that will not come back.

    Attributes:
        bookie: its id.
        folder: as its cookie or its inventory names it; empty: all of the bookie that was not collected.
    """

    bookie: str
    folder: str = ""

    @classmethod
    def parse(cls, text: str) -> "LostDisk":
        """Read ``BOOKIE`` or ``BOOKIE=DIR``."""
        bookie, _, folder = text.partition("=")
        return cls(bookie, folder.rstrip("/"))

    def __str__(self) -> str:
        return f"{self.bookie}={self.folder}" if self.folder else self.bookie


def mark_index_seen(bookies: pa.Table) -> npt.NDArray[np.bool_]:
    """Mark bookies with a readable index and journal (a journal has what the index will get); BOOKIES in."""

    def is_seen(row: Mapping[str, Any]) -> bool:
        roles = {folder["role"] for folder in row["dirs"]}
        missed = {folder["role"] for folder in row["dirs"] if not folder["complete"]}
        return row["complete"] or ("index" in roles and not missed & {"index", "journal"})

    return np.array([is_seen(row) for row in bookies.select(["complete", "dirs"]).to_pylist()], np.bool_)


def list_bounded(bookies: pa.Table, damage: pa.Table) -> list[str]:
    """Return the bookies that were read whole, except for entries of ledgers that damage names.

    Args:
        bookies: BOOKIES.
        damage: DAMAGE that hides entries.
    """
    unbounded = {*damage.filter(pc.is_null(damage["ledger"]))["bookie"].to_pylist()}
    return [name for name in list_explained(bookies, damage) if name not in unbounded]


def list_explained(bookies: pa.Table, damage: pa.Table) -> list[str]:
    """Return the bookies that were not read completely, if each unread folder has listed damage.

    Args:
        bookies: BOOKIES.
        damage: DAMAGE that hides entries.
    """
    files: dict[str, list[str]] = {}
    for row in damage.select(["bookie", "file"]).to_pylist():
        files.setdefault(row["bookie"], []).append(row["file"])
    partly = bookies.filter(pc.invert(bookies["complete"])).select(["bookie", "dirs"]).to_pylist()
    return [
        row["bookie"]
        for row in partly
        if row["bookie"] in files
        and all(
            folder["complete"] or any(_is_inside(f, folder["path"]) for f in files[row["bookie"]])
            for folder in row["dirs"]
        )
    ]


def find_lost_bookies(
    stated: Sequence[LostDisk], bookies: pa.Table, damage: pa.Table, members: Sequence[str]
) -> tuple[str, ...]:
    """Return the bookies that can show nothing more than was read.

    A bookie with one folder that is stated to be lost is among them if nothing else of it is missing.

    Args:
        stated: the statements of the operator.
        bookies: BOOKIES of all inventories.
        damage: DAMAGE of all inventories.
        members: bookies of the cluster without an inventory.

    Raises:
        InputError: a statement names an unknown bookie, or a folder that is not missing.
    """
    rows = {row["bookie"]: row for row in bookies.to_pylist()}
    harms: dict[str, list[tuple[str, str]]] = {}
    for row in damage.select(["bookie", "file", "reason", "hides_entries"]).to_pylist():
        if row["hides_entries"]:
            harms.setdefault(row["bookie"], []).append((row["file"], row["reason"]))
    lost = []
    for bookie in sorted({disk.bookie for disk in stated}):
        folders = {disk.folder for disk in stated if disk.bookie == bookie}
        row = rows.get(bookie)
        if row is None:
            if bookie not in members:
                known = ", ".join(sorted({*rows, *members})) or "none"
                raise InputError(
                    bookie, f"is not a bookie of this cluster (known: {known})", "name it as its cookie does"
                )
            if "" not in folders:
                problem = f"is a folder of {bookie}: nothing of it was collected, so its other folders may exist"
                raise InputError(min(folders), problem, "collect those, or state that all of the bookie is gone")
            lost.append(bookie)
        elif row["complete"] and bookie not in harms:
            problem = "was read whole, so nothing of it is missing"
            raise InputError(bookie, problem, "leave it out, or name the bookie that lost its disks")
        elif "" in folders or _is_rest_seen(row, harms.get(bookie, []), folders):
            lost.append(bookie)
    return tuple(lost)


def _is_rest_seen(row: Mapping[str, Any], harms: Sequence[tuple[str, str]], folders: set[str]) -> bool:
    """Whether a bookie misses only lost folders, and entries of logs that were in these.

    Args:
        row: of BOOKIES.
        harms: files of the bookie with damage that hides entries, each with the reason.
        folders: folders that are stated to be lost.
    """
    missing = [(entry["path"], entry["role"]) for entry in row["dirs"] if not entry["complete"]]
    for folder in sorted(folders):
        if not any(_is_same(path, folder) for path, _ in missing):
            listed = ", ".join(sorted({path for path, _ in missing})) or "none"
            problem = f"is not a folder of {row['bookie']} that is missing or damaged (these are: {listed})"
            raise InputError(folder, problem, "name it as the inventory does")
    lost = {path for path, _ in missing if any(_is_same(path, folder) for folder in folders)}
    are_logs_missing = any(role == "ledger" for _, role in missing)
    # Indexes of the other folders name places in logs that were in the lost one.
    dangling = [file for file, reason in harms if are_logs_missing and reason == Reason.DANGLING]
    rest = [file for file, _ in harms if file not in dangling and not any(_is_inside(file, path) for path in lost)]
    left = [
        path
        for path, role in missing
        if path not in lost and not (role == "index" and any(_is_inside(file, path) for file in dangling))
    ]
    return not left and not rest


def _is_same(path: str, folder: str) -> bool:
    """Whether two names mean the same folder, with or without its `current`."""
    return _strip(path) == _strip(folder)


def _is_inside(file: str, folder: str) -> bool:
    return _is_same(file, folder) or file.startswith(f"{_strip(folder)}/")


def _strip(folder: str) -> str:
    return folder.rstrip("/").removesuffix("/current")
