"""Small bookie folders made with our own encoders, to be broken by tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from recovery.codecs import cookie, entry, entry_log, index_file, journal
from recovery.codecs.cookie import Cookie
from recovery.codecs.entry import EntryHeader
from recovery.codecs.index_file import IndexHeader
from recovery.codecs.journal import LastMark
from recovery.model.metadata import Digest

BOOKIE = "10.0.0.1:3181"
INSTANCE = "11111111-2222-3333-4444-555555555555"
PAYLOAD = b"payload"


@dataclass(frozen=True, slots=True)
class BookieDir:
    """The folders of one bookie, each with its `current/`.

    Attributes:
        ledger_dirs, index_dirs, journal_dirs: as they would be configured; without index folders of their own the
            index is in the ledger folders.
    """

    ledger_dirs: tuple[Path, ...]
    index_dirs: tuple[Path, ...]
    journal_dirs: tuple[Path, ...]

    @property
    def all_dirs(self) -> tuple[Path, ...]:
        """Every folder once."""
        return tuple(dict.fromkeys((*self.ledger_dirs, *self.index_dirs, *self.journal_dirs)))

    def log(self, number: int = 0, folder: int = 0) -> Path:
        """Return the path of an entry log."""
        return self.ledger_dirs[folder] / "current" / f"{number:x}.log"

    def index(self, ledger: int) -> Path:
        """Return the path of a ledger's index file."""
        folders = self.index_dirs or self.ledger_dirs
        return folders[ledger % len(folders)] / "current" / index_file.path_of(ledger)

    def journal(self, journal_id: int, folder: int = 0) -> Path:
        """Return the path of a journal."""
        return self.journal_dirs[folder] / "current" / f"{journal_id:x}.txn"


def record(ledger: int, number: int, digest: Digest = Digest.CRC32C, password: bytes = b"") -> bytes:
    """Return the bytes of an entry of a ledger whose entries all have the same payload."""
    header = EntryHeader(ledger, number, number - 1, len(PAYLOAD) * (number + 1))
    return entry.encode(header, PAYLOAD, digest, password)


def make_bookie(
    root: Path,
    stored: Mapping[int, Sequence[int]],
    *,
    bookie: str = BOOKIE,
    instance: str | None = INSTANCE,
    ledger_dirs: int = 1,
    index_dirs: int = 0,
    journal_dirs: int = 1,
    digest: Digest = Digest.CRC32C,
    password: bytes = b"",
    rotated: bool = False,
    dirty: bool = False,
    layout: int = 5,
) -> BookieDir:
    """Make a bookie with interleaved storage, stopped cleanly.

    All entries are in log 0 of its first ledger folder. Without index folders the index is in the ledger folders. A
    rotated log ends with its ledgers map. `held` has the entries of each ledger, ascending; `digest` and `password` are
    those of all of them.
    """
    made = BookieDir(
        tuple(root / f"ledgers{n}" for n in range(ledger_dirs)),
        tuple(root / f"index{n}" for n in range(index_dirs)),
        tuple(root / f"journal{n}" for n in range(journal_dirs)),
    )
    version = cookie.encode(
        Cookie(
            layout,
            bookie,
            tuple(map(str, made.journal_dirs)),
            tuple(map(str, made.ledger_dirs)),
            tuple(map(str, made.index_dirs)) or None,
            instance,
        )
    )
    for folder in made.all_dirs:
        (folder / "current").mkdir(parents=True)
        (folder / "current" / "VERSION").write_bytes(version)
    for folder in made.ledger_dirs if dirty else ():
        (folder / "current" / "DIRTY").touch()
    pairs = [(ledger, number) for ledger, numbers in stored.items() for number in numbers]
    write_log(made, 0, pairs, digest=digest, password=password, rotated=rotated)
    for ledger, numbers in stored.items():
        write_index(made, ledger, locations(made, 0, ledger), password=password, size=max(numbers, default=-1) + 1)
    return made


def write_log(
    made: BookieDir,
    number: int,
    pairs: Sequence[tuple[int, int]],
    *,
    folder: int = 0,
    digest: Digest = Digest.CRC32C,
    password: bytes = b"",
    rotated: bool = False,
) -> None:
    """Write an entry log of some (ledger, entry) pairs."""
    records = [record(ledger, entry_id, digest, password) for ledger, entry_id in pairs]
    made.log(number, folder).write_bytes(entry_log.encode(records, with_map=rotated))


def locations(made: BookieDir, number: int, ledger: int, folder: int = 0) -> dict[int, int]:
    """Return where the entries of a ledger stand in a log."""
    return {
        places.entry: entry_log.location(number, places.position)
        for places in entry_log.scan(made.log(number, folder).read_bytes())
        if isinstance(places, entry_log.EntryAt) and places.ledger == ledger
    }


def write_index(
    made: BookieDir,
    ledger: int,
    slots: Mapping[int, int],
    *,
    password: bytes = b"",
    fenced: bool = False,
    size: int | None = None,
    page: int = 8192,
) -> None:
    """Write the index file of a ledger, in whole pages, with the given locations by entry."""
    count = max(slots, default=-1) + 1 if size is None else size
    per_page = page // index_file.SLOT
    filled = np.zeros(-(-count // per_page) * per_page, np.int64)
    for number, location in slots.items():
        filled[number] = location
    path = made.index(ledger)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(index_file.encode(IndexHeader(1, entry.master_key(password), fenced, None), filled))


def write_journal(
    made: BookieDir, journal_id: int, records: Sequence[bytes], *, folder: int = 0, version: int = 6
) -> None:
    """Write a journal of entries and special records, with reserved zeros behind."""
    made.journal(journal_id, folder).write_bytes(journal.encode(records, version) + bytes(4096))


def write_mark(made: BookieDir, journal_id: int, offset: int, *, folder: int = 0) -> None:
    """Write the replay mark of a journal folder into all ledger folders."""
    name = "lastMark" if len(made.journal_dirs) == 1 else f"lastMark.{folder}"
    for path in made.ledger_dirs:
        (path / "current" / name).write_bytes(journal.encode_last_mark(LastMark(journal_id, offset)))
