"""The options of a collection, and its summary of the bookie."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from recovery.collect.deep_check.counts import DeepCounts
from recovery.collect.incremental.records import Reused
from recovery.place import DatasetPlace


@dataclass(frozen=True, slots=True)
class CollectOptions:
    """The options of a collection.

    Attributes:
        ledger_dirs, index_dirs, journal_dirs: the bookie's folders, with or without their `current/`. What is in a
            folder counts, whichever of the three names it.
        bookie_id: the bookie of the folders; None: the one that their cookie names. Only needed where no cookie can be
            read, or where two name different bookies.
        instance_id: of their cluster; None: from their cookie. Only needed where cookies disagree or are wrong.
        configured_id: from the bookie's configuration; the cookie counts before it.
        may_lack: a missing folder is reported; else it is refused. If all are missing, they are refused.
        passwords: candidates for HMACs; the empty one is always tried.
        max_mb_s: at most so many million bytes are read in a second; None: as fast as it goes.
        deep: confirm every location, read every entry log, and compare index, logs and journals for each entry, with
            its digest; not only where there is doubt.
        processes: most processes that read indexes at the same time.
        keep: keep what the next collection of the bookie need not read again.
        since: folder of an earlier inventory of the bookie with kept results: unchanged ones are taken over; this
            collection keeps its results too.
        as_of: the store's last transaction or revision before the collection began; None: not known.
        expands_storage, stamps_cookies: as the bookie's configuration says; None: it was not read.
        settings: settings of the run with their sources, for the manifest.
    """

    ledger_dirs: tuple[Path, ...]
    index_dirs: tuple[Path, ...] = ()
    journal_dirs: tuple[Path, ...] = ()
    bookie_id: str | None = None
    instance_id: str | None = None
    configured_id: str | None = None
    may_lack: bool = False
    passwords: tuple[bytes, ...] = ()
    max_mb_s: float | None = None
    deep: bool = False
    processes: int = 1
    keep: bool = False
    since: DatasetPlace | None = None
    as_of: int | None = None
    expands_storage: bool | None = None
    stamps_cookies: bool | None = None
    settings: Mapping[str, object] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Without the passwords: a value may land in a log."""
        return (
            f"CollectOptions(ledger_dirs={self.ledger_dirs}, index_dirs={self.index_dirs}, "
            f"journal_dirs={self.journal_dirs}, bookie_id={self.bookie_id!r}, instance_id={self.instance_id!r}, "
            f"configured_id={self.configured_id!r}, may_lack={self.may_lack}, max_mb_s={self.max_mb_s}, "
            f"deep={self.deep}, processes={self.processes}, keep={self.keep}, since={self.since}, as_of={self.as_of})"
        )


@dataclass(frozen=True, slots=True)
class CollectSummary:
    """The summary of a collection.

    Attributes:
        bookie, incarnation: the bookie of these disks.
        storage: interleaved (Sorted writes the same files), db, mixed or none.
        complete: absence on this bookie may be believed.
        dirty: the bookie runs or was killed; None: not known.
        ledgers: on the bookie, in any source.
        entries: in index or journal.
        damaged: rows of damage.
        hiding: some damage hides entries.
        missing: folders of the cookie that were not given, and given ones that are not there.
        bytes_read: from the disks.
        deleted: ledgers that went while they were collected, as far as that was seen: the bookie deletes.
        deep: counts of the deep check; None: it was not asked for.
        reused: counts of results from an earlier collection; None: none was named.
        disputed: fields in which cookies disagree, and that no statement settles: `bookie`, `instance`.
        leftover: ledgers that are only in entry logs, or in journals before the mark: candidates, no copies.
    """

    bookie: str
    incarnation: int
    storage: str
    complete: bool
    dirty: bool | None
    ledgers: int
    entries: int
    damaged: int
    hiding: bool
    missing: tuple[str, ...]
    bytes_read: int
    deleted: int = 0
    deep: DeepCounts | None = None
    reused: Reused | None = None
    leftover: int = 0
    disputed: tuple[str, ...] = ()
