"""An incremental collection: results taken over from the earlier one, and results kept for the next."""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from recovery.collect.incremental.headers import take_over_headers
from recovery.collect.incremental.indexes import IndexReuse
from recovery.collect.incremental.journals import JournalReuse
from recovery.collect.incremental.logs import LogReuse
from recovery.collect.incremental.previous import Previous
from recovery.collect.incremental.records import ReadsHeaders, Reused, SeenFile, Terms
from recovery.collect.incremental.state import CollectedState
from recovery.collect.incremental.writing import KeptWriter
from recovery.collect.rows.index_slots import IndexRows
from recovery.collect.rows.ledger_facts import Interned
from recovery.collect.rows.source_copies import Ints
from recovery.collect.rows.spool import Spool
from recovery.model.groups import KeyedGroups
from recovery.place import DatasetPlace


class Incremental:
    """Takes over results of an earlier collection, and keeps those of this one.

    Args:
        terms: of this collection.
        since: folder of the earlier inventory; None: there is none.
        scratch: folder for rows.
        started: when this collection began.
        interned: the numbers of byte strings; its scopes name the ledgers.

    Attributes:
        reused: counts of files and ledgers that were not read.
        files: the files that were seen.
        journals, logs, indexes: their taken-over and kept results.

    Raises:
        InputError: the earlier inventory is not there, not whole, or another bookie's.
        DatasetError: it is damaged.
    """

    def __init__(
        self, terms: Terms, since: DatasetPlace | None, scratch: Path, started: datetime, interned: Interned
    ) -> None:
        previous = Previous(terms, since, interned.scopes)
        self.reused: Reused = previous.reused
        self.files = CollectedState(previous, scratch, started, interned)
        self.journals = JournalReuse(self.files)
        self.logs = LogReuse(self.files)
        self.indexes = IndexReuse(self.files)
        self._writer = KeptWriter(self.files, self.indexes, terms, started)

    def close(self) -> None:
        """Free the space on disk."""
        self.files.close()

    def get_file(self, path: str) -> SeenFile:
        """Return a file that was seen."""
        return self.files.files[path]

    def take_over_headers(
        self, paths: Sequence[str], wanted: KeyedGroups, read: ReadsHeaders, take: Callable[[Ints], None]
    ) -> KeyedGroups:
        """Pass on the wanted headers in some files; see `headers`."""
        return take_over_headers(self.files, paths, wanted, read, take)

    def write(self, folder: DatasetPlace, index: IndexRows[Spool], doubled: Ints) -> str:
        """Write the results for the next collection; see `KeptWriter.write`."""
        return self._writer.write(folder, index, doubled)
