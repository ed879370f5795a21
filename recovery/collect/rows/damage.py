"""Unreadable parts of a bookie's disks: counted, written as rows, and judged by what they hide."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path, PurePath
from typing import Final, Protocol

import pyarrow as pa

from recovery.collect.rows.scoped_ids import Scopes
from recovery.dataset import DatasetWriter
from recovery.errors import Reason
from recovery.model import tables

_SPOILING: Final = frozenset(
    {
        Reason.TRUNCATED,
        Reason.BAD_MAGIC,
        Reason.BAD_VERSION,
        Reason.BAD_LENGTH,
        Reason.BAD_VALUE,
        Reason.ZEROS,
        Reason.EMPTY,
        Reason.UNREADABLE,
        Reason.DIGEST,
    }
)
"""Reasons that a failing disk causes; programs and people cause the others."""
_KINDS: Final = {".log": "entry logs", ".compacted": "entry logs", ".txn": "journals", ".idx": "index files"}
_GROUP: Final = ("first", "last", "size", "period")
_SUSPECT: Final = 3
"""From so many damaged files of one folder on, it is no accident."""
_SUSPECT_SHARE: Final = 1000
"""At least one in so many files."""
_BATCH: Final = 8192
"""Rows held before they are written."""


class Hides(Enum):
    """Which entries the stretch may hold that no other source lists."""

    NOTHING = "nothing"
    LEDGER = "ledger"
    """Entries of the ledger that the damage names."""
    UNLISTED = "unlisted"
    """Ledgers that no index and no journal lists; listed ledgers are not affected."""
    EVERYTHING = "everything"
    """Entries of any ledger: a missing entry on this bookie proves nothing."""


@dataclass(frozen=True, slots=True)
class UnreadPiece:
    """One piece of damage where it was found.

    Attributes:
        file: path of the file or folder.
        reason: the stored cause.
        hides: what may be there unseen.
        offset, length: the stretch, if the cause has one.
        ledger: the ledger that it belongs to, if that is known (its key, see `scoped_ids`).
        detail: for people; never holds payload or a password.
        entries: first, last, size and period of groups: all hidden entries of its ledger; None: there may be more.
        is_vanished: it was there when it was listed, and its folder is still.
        is_doubtful: there may be no damage, so it proves nothing about the disk.
    """

    file: str
    reason: Reason
    hides: Hides
    offset: int | None = None
    length: int | None = None
    ledger: int | None = None
    detail: str = ""
    entries: tuple[tuple[int, int, int, int], ...] | None = None
    is_vanished: bool = False
    is_doubtful: bool = False


class TakesDamage(Protocol):
    """Receives pieces of damage, in any order."""

    def add(self, piece: UnreadPiece) -> None:
        """Take one piece."""
        ...


@dataclass(slots=True)
class DamageList:
    """Keeps damage until it is taken.

    Attributes:
        pieces: in the order in which it came.
    """

    pieces: list[UnreadPiece] = field(default_factory=list)

    def add(self, piece: UnreadPiece) -> None:
        """Take one piece."""
        self.pieces.append(piece)


def _make_row(piece: UnreadPiece, bookie: str, incarnation: int, scopes: Scopes) -> dict[str, object]:
    groups = None if piece.entries is None else [dict(zip(_GROUP, group, strict=True)) for group in piece.entries]
    ledger = None if piece.ledger is None else scopes.id(piece.ledger)
    return {
        "bookie": bookie,
        "incarnation": incarnation,
        "file": piece.file,
        "offset": piece.offset,
        "length": piece.length,
        "reason": piece.reason.value,
        "scope": None if ledger is None else ledger.scope,
        "ledger": None if ledger is None else ledger.ledger,
        "hides_entries": piece.hides is not Hides.NOTHING,
        "detail": piece.detail or None,
        "hides": piece.hides.value,
        "entries": groups,
    }


def make_damage_table(pieces: Iterable[UnreadPiece], bookie: str, incarnation: int) -> pa.Table:
    """Return rows of DAMAGE; ledgers are of scope 0."""
    rows = [_make_row(piece, bookie, incarnation, Scopes()) for piece in pieces]
    return pa.Table.from_pylist(rows, schema=tables.DAMAGE)


@dataclass(slots=True)
class DamageLog:
    """Receives damage in any order, and decides at the end which absences are proven.

    Attributes:
        count: rows taken.
        hiding: some damage hides entries.
        everything: some damage hides entries of any ledger.
        unlisted: some damage hides ledgers that nothing lists.
        ledgers: ledgers that damage hides entries of.
        scopes: names the ledgers.
        files: bytes passed over in each, and whether that hides entries.
        spoiled: files that are damaged as a disk that fails damages them.
        vanished_ledgers, vanished_logs: index files and entry logs that went while they were collected.
        dangling: places of ledgers without the entry that the index names.
    """

    writer: DatasetWriter
    bookie: str
    incarnation: int
    count: int = 0
    hiding: bool = False
    everything: bool = False
    unlisted: bool = False
    ledgers: set[int] = field(default_factory=set)
    scopes: Scopes = field(default_factory=Scopes)
    files: dict[str, tuple[int, bool]] = field(default_factory=dict)
    spoiled: set[str] = field(default_factory=set)
    vanished_ledgers: int = 0
    vanished_logs: int = 0
    dangling: int = 0
    _rows: list[dict[str, object]] = field(default_factory=list)

    def add(self, piece: UnreadPiece) -> None:
        """Take one piece."""
        hides = piece.hides is not Hides.NOTHING
        self.count += 1
        self.hiding |= hides
        self.everything |= piece.hides is Hides.EVERYTHING
        self.unlisted |= piece.hides is Hides.UNLISTED
        if piece.hides is Hides.LEDGER and piece.ledger is not None:
            self.ledgers.add(piece.ledger)
        unread, hid = self.files.get(piece.file, (0, False))
        self.files[piece.file] = unread + (piece.length or 0), hid or hides
        if piece.is_vanished:
            self.vanished_ledgers += piece.ledger is not None
            self.vanished_logs += piece.ledger is None
        self.dangling += piece.reason is Reason.DANGLING and hides
        if piece.reason in _SPOILING and not piece.is_doubtful:
            self.spoiled.add(piece.file)
        self._rows.append(_make_row(piece, self.bookie, self.incarnation, self.scopes))
        if len(self._rows) >= _BATCH:
            self.flush()

    @property
    def deleted(self) -> int:
        """Ledgers that went meanwhile. A log that goes alone was compacted: only with its entries it counts."""
        return self.vanished_ledgers + (self.dangling if self.vanished_logs else 0)

    def flush(self) -> None:
        """Pass the held rows to the writer."""
        if self._rows:
            self.writer.append("damage", pa.Table.from_pylist(self._rows, schema=tables.DAMAGE))
            self._rows = []


def find_suspect_disk(folder: Path, spoiled: Iterable[str], files: Mapping[str, int]) -> UnreadPiece | None:
    """Return the report of a folder with many damaged files; None if they are few.

    Args:
        folder: of the files.
        spoiled: files that are damaged, of any folder.
        files: how many files the folder has of each kind: entry logs, journals, index files.
    """
    bad: dict[str, int] = {}
    for file in spoiled:
        kind = _KINDS.get(PurePath(file).suffix)
        if kind is not None and PurePath(file).is_relative_to(folder):
            bad[kind] = bad.get(kind, 0) + 1
    if sum(bad.values()) < max(_SUSPECT, sum(files.values()) // _SUSPECT_SHARE):
        return None
    counts = " and ".join(f"{count} of {files.get(kind, 0)} {kind}" for kind, count in sorted(bad.items()))
    detail = (
        f"{counts} are damaged: suspect this disk. Stop the bookie, copy the disk sector by sector before anything "
    )
    detail += "else reads it, collect the copy, and replace the disk"
    return UnreadPiece(str(folder), Reason.SUSPECT_DISK, Hides.NOTHING, detail=detail)
