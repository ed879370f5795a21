"""The shared state of an incremental collection: files seen now and earlier, and rows kept for the next one."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

import numpy as np

from recovery.collect.incremental.previous import Previous
from recovery.collect.incremental.records import FILE_COLUMN, SeenFile
from recovery.collect.incremental.row_sets import name_columns, renumber
from recovery.collect.rows.ledger_facts import Interned
from recovery.collect.rows.source_copies import Ints, Mask
from recovery.collect.rows.spool import SHARES, Spool

_TICK_NS: Final = 2_000_000_000
"""The coarsest clock of a file system (FAT); clocks of other machines should be off by less."""
_FEW: Final = 1 << 17
"""Rows of a table that are compared at once."""
SPECIAL_WIDTH: Final = 5
"""Columns of rows of special records: ledger, file, kind, number of a byte string, LAC."""


class CollectedState:
    """Files and rows.

    Args:
        previous: results of an earlier collection.
        scratch: folder for rows.
        started: when this collection began.
        interned: the numbers of byte strings; its scopes name the ledgers.

    Attributes:
        previous, scratch, interned: as given.
        limit: time in ns from which on a file's times do not count.
        files: seen files, by path.
        spools: rows by their table's name, except `specials`.
        specials: rows of special records of journals.
    """

    def __init__(self, previous: Previous, scratch: Path, started: datetime, interned: Interned) -> None:
        self.previous = previous
        self.scratch = scratch
        self.interned = interned
        self.limit = int(started.timestamp() * 1_000_000) * 1000 - _TICK_NS
        self.files: dict[str, SeenFile] = {}
        self.spools: dict[str, Spool] = {
            name: Spool(1 + len(name_columns(name)), scratch)
            for name in ("ledgers", "slots", "held", "listed", "file_heads")
        }
        self.specials = Spool(SPECIAL_WIDTH, scratch)

    def close(self) -> None:
        """Free the space on disk."""
        for spool in (*self.spools.values(), self.specials):
            spool.close()

    def shares(self, *names: str) -> Iterator[int | None]:
        """Yield the shares of the ledgers that are taken one after the other; None: all at once, where they are few.

        Args:
            names: tables of the earlier collection that are read with them.
        """
        counts = [spool.count for spool in (*self.spools.values(), self.specials)]
        counts += [self.previous.count(name) for name in names]
        if max(counts) <= _FEW:
            yield None
        else:
            yield from range(SHARES)

    def read_spool(self, name: str, share: int | None) -> Ints:
        """Return rows of a table that are kept for the next collection."""
        return self.spools[name].read_share(share)

    def see_file(self, path: str, kind: str, *, number: int = -1, mark: int = -1, is_newest: bool = False) -> SeenFile:
        """Take the fingerprint of a file before it is read.

        Args:
            path: of the file.
            kind: log, journal or database.
            number: id of a log, or number of a database.
            mark: of a journal, where replay of it would begin.
            is_newest: a journal is the newest of its folder.
        """
        try:
            status = Path(path).stat()
            fingerprint = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        except OSError:
            fingerprint = (-1,) * 4
        file = SeenFile(len(self.files), path, kind, fingerprint, number, mark, is_newest)
        self.files[path] = file
        return file

    def find_unchanged(self, file: SeenFile) -> SeenFile | None:
        """Return the earlier collection's record of a file if the file is unchanged; else None."""
        old = self.previous.files.get(file.path)
        is_same = old is not None and old.kind == file.kind and old.fingerprint == file.fingerprint
        return old if is_same and file.fingerprint[0] >= 0 else None

    def keep_groups(self, file: SeenFile, groups: Ints, *, ahead: bool = False) -> None:
        """Keep rows of groups of a file; a journal's rows after the mark are ahead of the index."""
        file.read = True
        file.met = max(file.met, int(groups[:, 0].max(initial=-1)))
        front = np.tile(np.array([[file.number, int(ahead)]]), (len(groups), 1))
        self.spools["held"].add(np.column_stack((groups[:, :1], front, groups[:, 1:])))

    def take_over_rows(self, name: str, share: int | None, kept: Mapping[int, SeenFile]) -> Ints:
        """Keep again the rows of some files, and return them with the files' numbers of now.

        Args:
            name: of the table.
            share: of the ledgers.
            kept: the files, by their earlier number.
        """
        rows = self.previous.read_rows(name, share)
        rows = rows[np.isin(rows[:, FILE_COLUMN], list(kept))]
        rows[:, FILE_COLUMN] = renumber(rows[:, FILE_COLUMN], {old: file.number for old, file in kept.items()})
        self.spools[name].add(rows)
        return rows

    def take_over_groups(self, kept: Mapping[int, SeenFile], take: Callable[[Ints, Mask], None]) -> None:
        """Take over the groups of entries of some files.

        Args:
            kept: the files, by their earlier number.
            take: receives rows of groups, with a mask of those after the mark.
        """
        for share in self.shares("held") if kept else ():
            rows = self.take_over_rows("held", share, kept)
            take(np.delete(rows, (1, 2), axis=1), rows[:, 2] > 0)
