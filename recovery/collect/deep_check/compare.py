"""Index, entry logs and journals of one bookie compared entry by entry, and the digest of every copy checked.

Every source has one row on disk for each entry (`entry_rows`). The rows are compared one share of the entries at a
time, so memory depends neither on the number of entries nor on the size of a ledger.

Two things are normal, and only counted: several copies with the same payload (compaction, recovery and re-replication
write an entry again, with another LAC and so another digest), and entries that are only in a journal after the mark.

Source: docs/formats/bookie-storage.md.
"""

import struct
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import Final

import google_crc32c
import numpy as np

from recovery.codecs import entry as entry_codec
from recovery.codecs import journal
from recovery.codecs.framing import SIZE_FIELD, Entries
from recovery.collect.deep_check.counts import DeepCounts
from recovery.collect.deep_check.entry_rows import (
    AHEAD,
    APPLIED,
    ENTRY,
    FILE,
    INDEX,
    KIND_SHIFT,
    LEDGER_ID,
    LOG,
    LOG_SHIFT,
    MIX,
    POSITION,
    SCOPED_SHIFT,
    SIZE,
    SIZE_BITS,
    TAG,
    VERDICT,
    VERDICT_SHIFT,
    WIDTH,
    EntryShare,
    find_stretches,
    read_parts,
)
from recovery.collect.deep_check.moved_entries import MovedEntries
from recovery.collect.deep_check.stray_records import BELIEVED, NAMED, WRONG, StrayRecords
from recovery.collect.disk.file_reader import Mapped, Meter
from recovery.collect.rows.damage import Hides, TakesDamage, UnreadPiece
from recovery.collect.rows.entry_headers import DIGESTS
from recovery.collect.rows.index_slots import IndexPiece
from recovery.collect.rows.ledger_facts import LEDGER
from recovery.collect.rows.scoped_ids import Scopes
from recovery.collect.rows.source_copies import Ints, find_starts
from recovery.collect.rows.spool import SHARES, Spool
from recovery.collect.sources.entry_records import RecordFile, scan_file
from recovery.collect.sources.journals import JournalFile
from recovery.errors import FormatError, Reason
from recovery.model.ids import BUCKETS, to_signed
from recovery.model.metadata import DIGEST_SIZES, Digest

_CHUNK_BITS: Final = 20
"""Entries of one ledger, as a power of two, that are compared together at most."""
_SHARE_BYTES: Final = 32 << 20
_RECORD_BYTES: Final = 128
"""Nearly every entry is larger; the number of shares is estimated from this size."""
_HELD_PER_SHARE: Final = 64 << 10
"""Rows kept in memory for each share before they go to the disk, so later reads have this size."""
_TYPES_HELD: Final = 1 << 16
_PROVEN_HELD: Final = 1 << 20
_UNINDEXED, _DIFFERS = range(2)
_CRC_WIDTHS: Final = (DIGEST_SIZES[Digest.CRC32], DIGEST_SIZES[Digest.CRC32C])


class DeepCheck:
    """Collects the rows of the sources for each entry, and compares them at the end.

    Args:
        logs: the entry logs, with the ids that locations name them by.
        journals: the journals.
        passwords: candidates for HMACs; the empty one is always tried.
        scratch: folder of the rows.
        scopes: names the ledgers, which are keys everywhere here.
    """

    def __init__(
        self,
        logs: Sequence[tuple[int, RecordFile]],
        journals: Sequence[JournalFile],
        passwords: Sequence[bytes],
        scratch: Path,
        scopes: Scopes,
    ) -> None:
        self._scopes = scopes
        self._journals = journals
        self._files = [file for _, file in logs] + [journal_file.file for journal_file in journals]
        self._log_ids = np.array([*(log_id for log_id, _ in logs), *(-1 for _ in journals)], np.int64)
        self._number = {file.path: n for n, file in enumerate(self._files)}
        self._passwords = tuple(passwords)
        self._types: dict[int, tuple[Digest, bytes]] = {}
        rows = sum(file.size for file in self._files) // _RECORD_BYTES
        self._shares = SHARES
        while self._shares < BUCKETS and rows * WIDTH * 8 > self._shares * _SHARE_BYTES:
            self._shares *= 2
        self._rows = Spool(WIDTH, scratch, memory=self._shares * _HELD_PER_SHARE, shares=self._shares)
        self._proven = [np.empty(0, np.int64)]
        self._indexed = [np.empty(0, np.int64)]
        self._pending = Spool(WIDTH, scratch)
        self._counts = DeepCounts()
        self._strays = StrayRecords(self._files, self._log_ids, self._passwords, scratch, scopes, self._counts)
        self._moved = MovedEntries(self._files, self._log_ids, self._counts)

    def close(self) -> None:
        """Free the space on disk."""
        self._rows.close()
        self._strays.close()
        self._pending.close()

    def take_slots(self, piece: IndexPiece) -> None:
        """Add a piece of an index."""
        self._indexed.append(piece.facts[:, LEDGER])
        tag = (INDEX << KIND_SHIFT) | (piece.location >> LOG_SHIFT) & FILE
        place = (piece.location & POSITION) << SIZE_BITS
        nothing = np.zeros(len(place), np.int64)
        self._add(piece.ledger, piece.entry, tag, place, nothing, nothing)

    def take_log(self, file: RecordFile, data: Mapped, part: Entries) -> None:
        """Take records of an entry log; its bytes can be read meanwhile."""
        self._take(file, data, part, np.full(len(part.ledger), LOG))

    def read_journals(self, meter: Meter) -> None:
        """Read the journals again; unreadable parts were reported the first time."""
        for journal_file in self._journals:
            try:
                with Mapped(Path(journal_file.file.path), meter) as data:
                    data.load()
                    for part in scan_file(data, journal.scan_columns(data.view), self._scopes):
                        if isinstance(part, Entries):
                            kind = np.where(journal_file.find_ahead(part.position), AHEAD, APPLIED)
                            self._take(journal_file.file, data, part, kind)
            except (OSError, FormatError):
                continue

    def _take(self, file: RecordFile, data: Mapped, part: Entries, kind: Ints) -> None:
        verdict = np.zeros(len(part.ledger), np.int64)
        length, content = np.zeros_like(verdict), np.zeros_like(verdict)
        view = data.view
        for row, (ledger, position, size) in enumerate(
            zip(part.ledger.tolist(), part.position.tolist(), part.size.tolist(), strict=True)
        ):
            verdict[row], length[row], content[row] = self._check_record(ledger, view[position : position + size])
        self._proven.append(np.unique(part.ledger[verdict & VERDICT > 0]))
        if sum(map(len, self._proven[1:])) > max(_PROVEN_HELD, len(self._proven[0])):
            self._merge_proven()
        tag = (kind << KIND_SHIFT) | (verdict << VERDICT_SHIFT) | self._number[file.path]
        self._add(part.ledger, part.entry, tag, (part.position << SIZE_BITS) | part.size, length, content)

    def _merge_proven(self) -> Ints:
        """Return the ledgers with a right digest, ascending."""
        self._proven = [np.unique(np.concatenate(self._proven))]
        return self._proven[0]

    def _add(self, ledger: Ints, entry: Ints, tag: Ints, place: Ints, length: Ints, content: Ints) -> None:
        key = ledger ^ ((entry >> _CHUNK_BITS) * MIX)
        self._rows.add(np.column_stack((key, ledger, entry, tag, place, length, content)))

    def _check_record(self, ledger: int, record: memoryview) -> tuple[int, int, int]:
        """Return verdict (with the scoped bit), cumulative length and the payload's CRC of an entry."""
        front = entry_codec.header_size(record)
        if len(record) < front:
            return 0, 0, 0
        scoped = int(front != entry_codec.HEADER_SIZE) << (SCOPED_SHIFT - VERDICT_SHIFT)
        (length,) = struct.unpack_from(">q", record, front - 8)
        # Nearly every entry is of its ledger's type: one digest is made, not five.
        usual = self._types.get(ledger)
        if usual is not None and entry_codec.digest_agrees(record, *usual):
            digest = usual[0]
        else:
            proven = entry_codec.find_digest(record, self._passwords)
            if proven is None:
                behind = google_crc32c.value(bytes(record[front + max(DIGEST_SIZES.values()) :]))
                return scoped, length, to_signed(google_crc32c.value(bytes(record[front:])) << 32 | behind)
            digest = proven[0]
            if len(self._types) >= _TYPES_HELD:
                self._types.clear()
            self._types[ledger] = digest, proven[1] or b""
        payload = google_crc32c.value(bytes(record[front + DIGEST_SIZES[digest] :]))
        return scoped | (1 + DIGESTS.index(digest)), length, payload

    def compare(self, known: Ints, meter: Meter, damage: TakesDamage) -> DeepCounts:
        """Compare the collected rows.

        Args:
            known: ledgers with entries, a header or a row in the index.
            meter: counts and paces the reads.
            damage: receives the damage.
        """
        self._merge_proven()
        known = np.unique(np.concatenate((known, *self._indexed)))
        unsure = [np.empty(0, np.int64)]
        for number in range(self._shares):
            rows = self._rows.share(number)
            if len(rows):
                rows = rows[np.lexsort((rows[:, TAG], rows[:, ENTRY], rows[:, LEDGER_ID]))]
                share = EntryShare(rows, self._log_ids)
                unsure.append(self._judge_digests(share, damage))
                self._count_slots(share)
                self._compare_sources(share, known)
        self._counts.ledgers_not_checkable = len(np.unique(np.concatenate(unsure)))
        self._moved.report(damage)
        broken = self._strays.report(self._proven[0], meter, damage)
        self._report_pending(broken, damage)
        return self._counts

    def _judge_digests(self, share: EntryShare, damage: TakesDamage) -> Ints:
        """Judge the digests; return the uncheckable ledgers."""
        record = share.kind != INDEX
        sound = record & (share.verdict > 0)
        ledgers = share.ledger_number
        types = np.zeros((int(ledgers[-1]) + 1, len(DIGESTS)), np.int64)
        np.add.at(types, (ledgers[sound], share.verdict[sound] - 1), 1)
        proven = np.isin(share.ledger[find_starts(ledgers)], self._proven[0])
        # A width of 4 or 8 bytes is that of a CRC, which needs no password: it would agree.
        widths = share.measure_digests(record & ~sound)
        wrong = record & ~sound & (proven | np.isin(widths, _CRC_WIDTHS))[ledgers]
        share.bare |= (widths == 0)[ledgers]
        unsure = record & ~sound & ~wrong
        self._counts.digests_right += int(sound.sum())
        self._counts.digests_wrong += int(wrong.sum())
        self._counts.not_checkable += int(unsure.sum())
        share.doubted |= wrong
        # A single uncheckable record of a ledger may be another ledger's, with a broken ledger id.
        lone = unsure & (np.bincount(ledgers) == 1)[ledgers]
        # Ids that zeros overwrote are those of an entry that many bookies have.
        zeros = (share.ledger == 0) & (share.entry == 0) & ~share.matched
        share.believed = ~wrong | (share.find_vouched() & ~zeros)
        flags = wrong * WRONG | share.matched * NAMED | share.believed * BELIEVED
        self._strays.keep(share, np.flatnonzero(wrong | lone), flags)
        mixed = (types > 0).sum(axis=1) > 1
        for number in np.flatnonzero(mixed).tolist():
            rows = np.flatnonzero(sound & (ledgers == number))
            usual = int(types[number].argmax())
            other = int(rows[share.verdict[rows] - 1 != usual][0])
            detail = ", ".join(f"{n} entries of {DIGESTS[t]}" for t, n in enumerate(types[number].tolist()) if n)
            row = np.array([column[other] for column in (share.ledger, share.entry, share.file, share.place)])
            self._report(row, Reason.CONFLICT, f"{detail}: one id, two ledgers", damage)
        return np.unique(share.ledger[unsure])

    def _report(self, row: Ints, reason: Reason, detail: str, damage: TakesDamage) -> None:
        """Report a row of ledger, entry, file and place."""
        ledger, _, file, place = row[:4].tolist()
        offset, size = (place >> SIZE_BITS) - SIZE_FIELD, (place & SIZE) + SIZE_FIELD
        damage.add(
            UnreadPiece(self._files[file].path, reason, Hides.NOTHING, offset, size, ledger=ledger, detail=detail)
        )

    def _count_slots(self, share: EntryShare) -> None:
        """Count slots without their entry at the named place, and find the files that have the entry."""
        index = share.kind == INDEX
        lost = np.flatnonzero(index & ~share.matched)
        self._counts.in_index += int(index.sum())
        self._counts.dangling += len(lost)
        named = lost[np.isin(share.file[lost], self._log_ids)]
        self._strays.keep(share, named, np.zeros(len(index), np.int64))
        self._moved.add(share, lost)

    def _compare_sources(self, share: EntryShare, known: Ints) -> None:
        """Compare the sources' lists, and the copies of each entry."""
        counts = self._counts
        logs, applied, ahead, index = (
            share.count_in_pairs(share.kind == kind) for kind in (LOG, APPLIED, AHEAD, INDEX)
        )
        counts.in_logs += int(logs.sum())
        counts.in_journals += int((applied + ahead).sum())
        counts.shadowed += int(np.maximum(logs - 1, 0).sum())
        waiting = (ahead > 0) & (index == 0)
        counts.replayed += int(waiting.sum())
        counts.journal_only += int((waiting & (logs == 0)).sum())
        first = find_starts(share.pair)
        believed = share.count_in_pairs((share.kind == LOG) & share.believed)
        lost = (believed > 0) & (index == 0) & (ahead == 0) & np.isin(share.ledger[first], known)
        # Of a pair the record of an entry log comes first. Nothing is reported before the records with broken ids are
        # known.
        self._keep_pending(share, first[lost], first[lost], _UNINDEXED)
        self._keep_pending(share, *share.find_differing(), _DIFFERS)

    def _keep_pending(self, share: EntryShare, rows: Ints, other_rows: Ints, finding: int) -> None:
        columns = (share.ledger, share.entry, share.file, share.place)
        other_place = (share.file[other_rows], share.place[other_rows], np.full(len(rows), finding))
        self._pending.add(np.column_stack((*(column[rows] for column in columns), *other_place)))

    def _report_pending(self, broken: Container[tuple[int, int]], damage: TakesDamage) -> None:
        """Report entries missing in the index and differing copies, once a ledger, without records of broken ids."""
        for part in read_parts(self._pending):
            firsts, seconds = (
                zip(part[:, n].tolist(), (part[:, n + 1] >> SIZE_BITS).tolist(), strict=True) for n in (2, 4)
            )
            sound = [
                first not in broken and second not in broken for first, second in zip(firsts, seconds, strict=True)
            ]
            rows = part[np.array(sound, np.bool_)]
            rows = rows[np.lexsort((rows[:, 1], rows[:, 0], rows[:, 6]))]
            unindexed, different = rows[rows[:, 6] == _UNINDEXED], rows[rows[:, 6] == _DIFFERS]
            self._counts.unindexed += len(unindexed)
            self._counts.conflicts += len(different)
            for low, high in find_stretches(unindexed[:, 0]):
                detail = f"{high - low} entries that the index lacks, from {unindexed[low, 1]} on"
                self._report(unindexed[low], Reason.UNINDEXED, detail, damage)
            for low, high in find_stretches(different[:, 0]):
                path, offset = (
                    self._files[int(different[low, 4])].path,
                    (int(different[low, 5]) >> SIZE_BITS) - SIZE_FIELD,
                )
                detail = (
                    f"{high - low} entries differ in payload or length between two places, from "
                    f"{different[low, 1]} on; the copy in {path} at byte {offset} is another one: one id, two ledgers, "
                    "or damage to either"
                )
                self._report(different[low], Reason.CONFLICT, detail, damage)


def list_logs(folders: Iterable[dict[int, list[RecordFile]]]) -> list[tuple[int, RecordFile]]:
    """Return the entry logs of all folders with their ids."""
    return [(log_id, file) for logs in folders for log_id, files in logs.items() for file in files]
