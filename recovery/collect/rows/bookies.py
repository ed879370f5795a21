"""The row of a bookie in its inventory: its id, what was read of it, and what it has."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

import pyarrow as pa

from recovery.model import tables
from recovery.model.ids import LedgerId


@dataclass(frozen=True, slots=True)
class LifeEvidence:
    """What tells one life of a bookie from another; see `docs/formats/inventory.md`."""

    kind: str
    value: str


@dataclass(frozen=True, slots=True)
class VersionFile:
    """A `VERSION` file as the file system has it."""

    path: str
    inode: int
    born: datetime | None
    mtime: datetime


@dataclass(frozen=True, slots=True)
class FolderRow:
    """One folder of a bookie in one of its roles.

    Attributes:
        path, role: of the folder.
        complete: it was read whole, and holds the bookie's cookie.
        bytes: in the files of this role.
        unread: skipped bytes among these.
    """

    path: str
    role: str
    complete: bool
    bytes: int
    unread: int


@dataclass(frozen=True, slots=True)
class JournalRow:
    """A journal: its id, and where its replay would begin; -1: after its end."""

    id: int
    mark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieRow:
    """The row of BOOKIES; the fields are its columns, see `tables.BOOKIES`. Fields from disks alone have a default."""

    bookie: str
    incarnation: int
    incarnation_evidence: Sequence[LifeEvidence]
    instance_id: str | None = None
    cookie: bytes | None = None
    version_files: Sequence[VersionFile] = ()
    storage: str
    mode: str
    dirty: bool | None = None
    started: datetime
    ended: datetime
    as_of: int | None = None
    complete: bool = False
    dirs: Sequence[FolderRow] = ()
    journals: Sequence[JournalRow] = ()
    max_ids: Sequence[LedgerId]
    ledgers: int
    entries: int
    damaged: int = 0
    expands_storage: bool | None = None
    stamps_cookies: bool | None = None
    gaps_named: bool | None = None

    def to_table(self) -> pa.Table:
        """Return the table of this one row."""
        return pa.Table.from_pylist([asdict(self)], schema=tables.BOOKIES)

    def to_coverage(self, *names: str) -> dict[str, object]:
        """Return some of the columns as the manifest has them."""
        columns = asdict(self)
        return {name: columns[name] for name in names}


def bind_inventory(bookie: str, incarnation: int, instance_id: str | None, cookie: bytes | None) -> dict[str, object]:
    """Return the binding in the manifest of an inventory."""
    return {
        "bookie": bookie,
        "incarnation": incarnation,
        "instance_id": instance_id,
        "cookie_sha256": hashlib.sha256(cookie).hexdigest() if cookie else None,
    }
