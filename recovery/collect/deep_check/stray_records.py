"""Records with a wrong digest, and slots with another entry at their place: the ledger of each, and its report.

A digest covers the ids as well, so a record with a wrong digest may be another ledger's. The digest may prove other
ids: those that the index has for its place, or ids that differ in one bit. Then the record is that entry. Else it is
the entry of its own ids, if another source on the bookie has that entry. Else its ledger is unknown.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from recovery.codecs import entry as entry_codec
from recovery.codecs.framing import SIZE_FIELD
from recovery.collect.deep_check.counts import DeepCounts
from recovery.collect.deep_check.entry_rows import (
    ENTRY,
    FILE,
    INDEX,
    KEY,
    KIND_SHIFT,
    LEDGER_ID,
    LENGTH,
    LOG_SHIFT,
    PLACE,
    SIZE,
    SIZE_BITS,
    TAG,
    WIDTH,
    EntryShare,
    find_stretches,
    read_parts,
)
from recovery.collect.disk.file_reader import Meter
from recovery.collect.rows.damage import DamageList, Hides, TakesDamage, UnreadPiece
from recovery.collect.rows.scoped_ids import Scopes
from recovery.collect.rows.source_copies import Ints
from recovery.collect.rows.spool import Spool
from recovery.collect.sources.entry_records import RecordFile, RecordFiles
from recovery.errors import FormatError, Reason
from recovery.model.ids import LedgerId

_NOBODY: Final = -1
_NAMED_AT_MOST: Final = 5
_BITS: Final = np.left_shift(1, np.arange(63))
"""Rows of an id that is not negative."""
WRONG, NAMED, BELIEVED = 1, 2, 4
"""Flags, in place of the length: the digest is wrong; the index names the record; its ids are no matter of doubt."""


class StrayRecords:
    """Keeps stray records and slots, and reports them when all is read.

    Args:
        files: entry logs and journals, by their numbers.
        log_ids: the id of each; -1 for a journal.
        passwords: candidates for HMACs.
        scratch: folder of the rows.
        scopes: names the ledgers.
        counts: receives the counts.
    """

    def __init__(
        self,
        files: Sequence[RecordFile],
        log_ids: Ints,
        passwords: tuple[bytes, ...],
        scratch: Path,
        scopes: Scopes,
        counts: DeepCounts,
    ) -> None:
        self._files = files
        self._log_ids = log_ids
        self._passwords = passwords
        self._scopes = scopes
        self._counts = counts
        self._rows = Spool(WIDTH, scratch)

    def close(self) -> None:
        """Free the space on disk."""
        self._rows.close()

    def keep(self, share: EntryShare, rows: Ints, flags: Ints) -> None:
        """Keep rows by their place in a log with that id; rows of journals have none."""
        file = share.file[rows]
        log_id = np.where(share.kind[rows] == INDEX, file, self._log_ids[np.minimum(file, len(self._log_ids) - 1)])
        key = np.where(log_id >= 0, (log_id << LOG_SHIFT) | share.position[rows], -2 - share.place[rows])
        columns = (share.ledger, share.entry, share.tag, share.place, flags, flags)
        self._rows.add(np.column_stack((key, *(column[rows] for column in columns))))

    def report(self, proven: Ints, meter: Meter, damage: TakesDamage) -> set[tuple[int, int]]:
        """Report records with a wrong digest, with their ledger, and the records in place of a slot's entry.

        Args:
            proven: ledgers with a right digest, ascending.
            meter: counts and paces the reads.
            damage: receives the damage.

        Returns:
            File and position of records with broken ids.
        """
        by_number = {number: [file] for number, file in enumerate(self._files)}
        reader = RecordFiles(by_number, meter, DamageList(), self._passwords, scopes=self._scopes)
        replaced: dict[int, _Replaced] = {}
        broken: set[tuple[int, int]] = set()
        for rows in read_parts(self._rows):
            is_slot = rows[:, TAG] >> KIND_SHIFT == INDEX
            slots, records = rows[is_slot], rows[~is_slot]
            renamed = self._check_slots(slots, reader, replaced, damage)
            renamed |= self._try_ids(records, renamed, proven, reader, damage)
            places = zip((records[:, TAG] & FILE).tolist(), (records[:, PLACE] >> SIZE_BITS).tolist(), strict=True)
            left = np.array([place not in renamed for place in places], np.bool_)
            broken |= renamed
            # In a record at the place of another entry, the ids may be broken, in any ledger.
            records[np.isin(records[:, KEY], slots[:, KEY]), LENGTH] &= ~BELIEVED
            self._report_wrong(records[left & (records[:, LENGTH] & WRONG > 0)], damage)
        for file, place in sorted(replaced.items()):
            detail = (
                f"records of other ids are where the index has {place.count} entries, the first here: {place.entry}"
            )
            offset = place.position - SIZE_FIELD
            damage.add(UnreadPiece(self._files[file].path, Reason.CONFLICT, Hides.NOTHING, offset, detail=detail))
            self._counts.replaced += place.count
        return broken

    def _check_slots(
        self, slots: Ints, reader: RecordFiles, replaced: dict[int, "_Replaced"], damage: TakesDamage
    ) -> set[tuple[int, int]]:
        """Read the places of dangling slots; return file and position of the records with broken ids."""
        of_log: dict[int, list[int]] = {}
        for number, log_id in enumerate(self._log_ids.tolist()):
            of_log.setdefault(log_id, []).append(number)
        named = (slots[:, TAG] & FILE).tolist()
        pairs = [(row, number) for row, log_id in enumerate(named) for number in of_log[log_id]]
        row_of, numbers = np.array(pairs, np.int64).reshape(-1, 2).T
        positions = slots[row_of, PLACE] >> SIZE_BITS
        renamed: set[tuple[int, int]] = set()
        for n, record in reader.records(numbers, positions):
            row, file, position = int(row_of[n]), int(numbers[n]), int(positions[n])
            key, entry = int(slots[row, LEDGER_ID]), int(slots[row, ENTRY])
            if self._fits_ids(record, key, entry):
                renamed.add((file, position))
                self._report_ids(file, position, record, key, entry, damage)
            elif len(of_log[named[row]]) == 1 and _is_other(record, self._scopes.id(key), entry):
                place = replaced.setdefault(file, _Replaced(position))
                place.count += 1
                if position <= place.position:
                    place.position, place.entry = position, f"entry {entry} of ledger {self._scopes.id(key)}"
        return renamed

    def _try_ids(
        self, records: Ints, renamed: Container[tuple[int, int]], proven: Ints, reader: RecordFiles, damage: TakesDamage
    ) -> set[tuple[int, int]]:
        """Try ids that differ in one bit; return file and position of the records with a digest that proves such ids.

        Args:
            records: records that no slot names are tried.
            renamed: file and position of records that have their ids already.
            proven: ledgers with a right digest.
            reader: reads them.
            damage: receives the damage.
        """
        unnamed = records[(records[:, LENGTH] & NAMED == 0) & (records[:, LEDGER_ID] >= 0)]
        files, positions = unnamed[:, TAG] & FILE, unnamed[:, PLACE] >> SIZE_BITS
        repaired: set[tuple[int, int]] = set()
        for n, record in reader.records(files, positions):
            ledger, entry = (int(unnamed[n, column]) for column in (LEDGER_ID, ENTRY))
            place = int(files[n]), int(positions[n])
            if place in renamed:
                continue
            candidates = [(other, entry) for other in np.intersect1d(ledger ^ _BITS, proven).tolist()]
            if len(np.intersect1d(ledger, proven)):
                candidates += [(ledger, other) for other in (entry ^ _BITS).tolist()]
            ids = next((ids for ids in candidates if self._fits_ids(record, *ids)), None)
            if ids is not None:
                repaired.add(place)
                self._report_ids(*place, record, *ids, damage)
        return repaired

    def _fits_ids(self, record: memoryview, key: int, entry: int) -> bool:
        """Whether a record's digest would be right if it had these ids, which it has not."""
        ledger = self._scopes.id(key)
        front = entry_codec.SCOPED_HEADER_SIZE if ledger.scope else entry_codec.HEADER_SIZE
        if entry_codec.is_of(record, ledger, entry) or len(record) < front:
            return False
        return entry_codec.find_digest(entry_codec.with_ids(record, ledger, entry), self._passwords) is not None

    def _report_ids(
        self, file: int, position: int, record: memoryview, key: int, entry: int, damage: TakesDamage
    ) -> None:
        self._counts.ids_damaged += 1
        detail = f"the ids in front of entry {entry} are broken; its digest proves which entry it is"
        offset, size, path = position - SIZE_FIELD, len(record) + SIZE_FIELD, self._files[file].path
        damage.add(UnreadPiece(path, Reason.DIGEST, Hides.NOTHING, offset, size, ledger=key, detail=detail))

    def _report_wrong(self, rows: Ints, damage: TakesDamage) -> None:
        """Report records with a wrong digest, once a ledger and file; without a known ledger, once a file."""
        file, flags = rows[:, TAG] & FILE, rows[:, LENGTH]
        owner = np.where(flags & BELIEVED > 0, rows[:, LEDGER_ID], _NOBODY)
        order = np.lexsort((rows[:, PLACE], file, owner))
        rows, file, owner, named = rows[order], file[order], owner[order], flags[order] & NAMED > 0
        fresh = np.append(True, (owner[1:] != owner[:-1]) | (file[1:] != file[:-1]))
        for low, high in find_stretches(np.cumsum(fresh)[: len(rows)]):
            ids = rows[low:high, ENTRY].tolist()
            if owner[low] == _NOBODY:
                ledgers = [str(self._scopes.id(key)) for key in rows[low:high, LEDGER_ID].tolist()]
                ids = [f"{ledger}/{entry}" for ledger, entry in zip(ledgers, ids, strict=True)]
                detail = f"{len(ids)} records do not match their digests, and nothing tells their ledger; their ids, "
                detail += f"which may be broken too: ledger/entry {_join_first(ids)}"
            else:
                detail = f"{len(ids)} entries are not what their digests say ({_join_first(ids)}); "
                detail += f"the index names {int(named[low:high].sum())} of these copies"
            place, ledger = int(rows[low, PLACE]), None if owner[low] == _NOBODY else int(owner[low])
            offset, size = (place >> SIZE_BITS) - SIZE_FIELD, (place & SIZE) + SIZE_FIELD
            path = self._files[int(file[low])].path
            damage.add(UnreadPiece(path, Reason.DIGEST, Hides.NOTHING, offset, size, ledger=ledger, detail=detail))


@dataclass(slots=True)
class _Replaced:
    """The place of the first record that is not the entry of the index, its entry, and the number of such records."""

    position: int
    entry: str = ""
    count: int = 0


def _is_other(record: memoryview, ledger: LedgerId, entry: int) -> bool:
    """Whether a record has the ids of another entry than this."""
    if entry_codec.is_of(record, ledger, entry):
        return False
    try:
        entry_codec.decode_header(record)
    except FormatError:
        return False
    return True


def _join_first(values: Sequence[object]) -> str:
    return ", ".join(map(str, values[:_NAMED_AT_MOST])) + (", …" if len(values) > _NAMED_AT_MOST else "")
