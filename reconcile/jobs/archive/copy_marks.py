"""Marks of copies that an archive has: written where its objects are there, removed where it has no such copy any more.

a ledger that the index names     its mark
is in objects that are there      is written; one of another place is left as it is
of it an object is gone, or ends  is removed if it names this archive: what has a mark may be deleted
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from reconcile.deletes.own_root import OwnRoot
from reconcile.deletes.packed import ChangeLog, PackedDecision
from reconcile.deletes.records import ArchiveMark
from recovery.archive.reader import find_lacking
from recovery.model.ids import LedgerId
from recovery.place import DatasetPlace

_ROWS = 500
"""Marks in a transaction."""


@dataclass(frozen=True, slots=True)
class MarkedCopies:
    """What became of marks.

    Attributes:
        marked: ledgers whose mark was written.
        elsewhere: those that keep the mark of another place.
        unmarked: those whose mark was removed.
        lacking: ledgers with an object that is gone.
    """

    marked: int
    elsewhere: int
    unmarked: int
    lacking: tuple[LedgerId, ...]


@dataclass(frozen=True, slots=True)
class CopyMarks:
    """The marks of a store, as far as they are of one archive.

    Attributes:
        own: bkmeta's own root.
        log: by which it is changed.
        by: who runs this.
        place: of the archive.
    """

    own: OwnRoot
    log: ChangeLog
    by: str
    place: DatasetPlace

    def write(self, rows: pa.Table, at_ms: int) -> MarkedCopies:
        """Mark ledgers.

        Args:
            rows: scope, ledger, sha256 and pieces, of ARCHIVED.
            at_ms: now, ms since 1970.

        Raises:
            DatasetError: the archive cannot be read.
        """
        is_lacking = find_lacking(self.place, rows)
        lacking = list_ids(rows.filter(pa.array(is_lacking)))
        present = rows.filter(pa.array(~is_lacking))
        checksums = present["sha256"].to_pylist()
        sums = {ledger: f"sha256:{digest}" for ledger, digest in zip(list_ids(present), checksums, strict=True)}
        where = str(self.place)
        marked, elsewhere = set[LedgerId](), set[LedgerId]()

        def decide(ledger: LedgerId, mark: ArchiveMark | None) -> PackedDecision[ArchiveMark] | None:
            if mark is not None and mark.place != where:
                elsewhere.add(ledger)
            if mark is not None and (mark.place != where or mark.checksum == sums[ledger]):
                return None
            marked.add(ledger)
            return PackedDecision(ArchiveMark(ledger, self.by, where, sums[ledger], at_ms))

        if sums:
            self.own.archive.change(tuple(sums), decide, self.log, rows=_ROWS)
        return MarkedCopies(len(marked), len(elsewhere), self.remove(lacking), lacking)

    def remove(self, ledgers: Sequence[LedgerId]) -> int:
        """Remove the marks of ledgers that name this archive; return how many there were."""
        removed = set[LedgerId]()

        def decide(ledger: LedgerId, mark: ArchiveMark | None) -> PackedDecision[ArchiveMark] | None:
            if mark is None or mark.place != str(self.place):
                return None
            removed.add(ledger)
            return PackedDecision(None)

        if ledgers:
            self.own.archive.change(tuple(ledgers), decide, self.log, rows=_ROWS)
        return len(removed)


def list_ids(rows: pa.Table) -> tuple[LedgerId, ...]:
    """Return the ids of rows that have scope and ledger."""
    halves = zip(rows["scope"].to_pylist(), rows["ledger"].to_pylist(), strict=True)
    return tuple(LedgerId(*ids) for ids in halves)
