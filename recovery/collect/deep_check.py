"""Index, entry logs and journals of one bookie compared entry by entry, and the digest of every copy checked.

What every source says of an entry is a row on disk, and the rows are compared a share of the entries at a time: memory
depends neither on how many entries there are nor on how many one ledger has. A row is seven int64:

    KEY      mixed of ledger and the upper bits of the entry id; rows of one entry share it
    LEDGER   id
    ENTRY    id
    WHAT     kind << 48 | scoped << 40 | verdict << 32 | number of the file; of the index: the log id that it names
    PLACE    position << 31 | size; of the index: size 0
    LENGTH   the cumulative length in the entry's header
    CONTENT  CRC32C of the payload, so that copies can be told apart; if its begin is not known, of what is behind the
             widest digest, and << 32 of everything behind the header

Legitimate, and only counted: several copies with the same payload (compaction, recovery and re-replication write an
entry again, with another LAC and so another digest), entries that stand in a journal behind the mark and nowhere else.

A digest covers the ids as well, so a record whose digest is wrong may be another ledger's: it is the entry that its
digest proves, be it with the ids that the index has for its place or with ids of which one bit differs; else that of
its own ids, if anything else on the bookie has that entry; else nobody's.

Source: spec bookie-storage §3.7, §4.5, §4.7.
"""

import struct
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import google_crc32c
import numpy as np

from recovery.codecs import entry as entry_codec
from recovery.codecs import journal
from recovery.codecs.framing import SIZE_FIELD, Entries
from recovery.collect.disk.file_reader import Mapped, Meter
from recovery.collect.rows.damage import Hides, Noted, TakesDamage, Unread
from recovery.collect.rows.ledger_facts import LEDGER
from recovery.collect.rows.scoped_ids import Scopes
from recovery.collect.rows.source_copies import Ints, Mask, starts_of
from recovery.collect.rows.spool import SHARES, Spool
from recovery.collect.sources.entry_records import DIGESTS, RecordFile, RecordFiles, gathered
from recovery.collect.sources.index import Piece
from recovery.collect.sources.journals import Journal
from recovery.errors import FormatError, Reason
from recovery.model.ids import BUCKETS, LedgerId, signed
from recovery.model.metadata import DIGEST_SIZES, Digest

_WIDTH: Final = 7
_KEY, _LEDGER, _ENTRY, _WHAT, _PLACE, _LENGTH, _CONTENT = range(_WIDTH)
_LOG, _APPLIED, _AHEAD, _INDEX = range(4)
"""Kinds: a record of an entry log, of a journal before and behind the mark, a slot of the index."""
_KIND_SHIFT: Final = 48
_SCOPED_SHIFT: Final = 40
_VERDICT_SHIFT: Final = 32
_FILE: Final = (1 << _VERDICT_SHIFT) - 1
_VERDICT: Final = 0xFF
_SIZE_BITS: Final = 31
_SIZE: Final = (1 << _SIZE_BITS) - 1
_LOG_SHIFT: Final = 32
_POSITION: Final = (1 << _LOG_SHIFT) - 1
_CHUNK_BITS: Final = 20
"""Entries of one ledger, as a power of two, that are compared together at most."""
_MIX: Final = 0x9E3779B97F4A7C15 - (1 << 64)
_SHARE_BYTES: Final = 32 << 20
_RECORD_BYTES: Final = 128
"""An entry takes more than that, nearly always: what the number of shares is guessed from."""
_HELD_PER_SHARE: Final = 64 << 10
"""Kept in memory for each share before rows are set aside, so that they come back in reads of that size."""
_TYPES_HELD: Final = 1 << 16
_PROVEN_HELD: Final = 1 << 20
_FEW: Final = 1 << 18
"""Records that nobody vouches for which are looked at at once."""
_WRONG, _NAMED, _BELIEVED = 1, 2, 4
"""Flags, in place of the length: the digest is wrong; the index names the record; its ids are no matter of doubt."""
_UNINDEXED, _DIFFERS = range(2)
_NOBODY: Final = -1
_NAMED_AT_MOST: Final = 5
_BITS: Final = np.left_shift(1, np.arange(63))
"""Those of an id that is not negative."""
_WIDTHS: Final = np.array([0, *(DIGEST_SIZES[digest] for digest in DIGESTS)])
_CRC_WIDTHS: Final = (DIGEST_SIZES[Digest.CRC32], DIGEST_SIZES[Digest.CRC32C])


@dataclass(slots=True)
class DeepCounts:
    """What comparing everything gave.

    Attributes:
        in_index, in_logs, in_journals: slots of the index, records of entry logs, entries of journals.
        shadowed: records of entry logs beside the one that counts.
        dangling: slots whose entry is not there.
        elsewhere: of these, entries that stand in another log.
        unindexed: entries in logs that the index of their ledger lacks, and no journal would bring back.
        replayed: entries behind the mark of a journal that the index lacks.
        journal_only: of these, entries that no entry log has either.
        digests_right, digests_wrong: records whose digest was checked.
        not_checkable: records of ledgers whose password is not known, or that carry no digest.
        ledgers_not_checkable: how many ledgers these are.
        conflicts: entries that stand there with different payloads.
        ids_damaged: records whose digest is right under other ids than those that they have.
        replaced: slots at whose place the whole record of another entry stands.
    """

    in_index: int = 0
    in_logs: int = 0
    in_journals: int = 0
    shadowed: int = 0
    dangling: int = 0
    elsewhere: int = 0
    unindexed: int = 0
    replayed: int = 0
    journal_only: int = 0
    digests_right: int = 0
    digests_wrong: int = 0
    not_checkable: int = 0
    ledgers_not_checkable: int = 0
    conflicts: int = 0
    ids_damaged: int = 0
    replaced: int = 0


class Deep:
    """Takes what the sources say of each entry, and compares it at the end.

    Args:
        logs: the entry logs, with the ids that locations name them by.
        journals: the journals.
        passwords: that may have made an HMAC; the empty one is always tried.
        scratch: folder of the rows.
        scopes: names the ledgers, which are keys everywhere here.
    """

    def __init__(
        self,
        logs: Sequence[tuple[int, RecordFile]],
        journals: Sequence[Journal],
        passwords: Sequence[bytes],
        scratch: Path,
        scopes: Scopes,
    ) -> None:
        self._scopes = scopes
        self._journals = journals
        self._files = [file for _, file in logs] + [one.file for one in journals]
        self._log_ids = np.array([*(log_id for log_id, _ in logs), *(-1 for _ in journals)], np.int64)
        self._number = {file.path: n for n, file in enumerate(self._files)}
        self._passwords = tuple(passwords)
        self._types: dict[int, tuple[Digest, bytes]] = {}
        rows = sum(file.size for file in self._files) // _RECORD_BYTES
        self._shares = SHARES
        while self._shares < BUCKETS and rows * _WIDTH * 8 > self._shares * _SHARE_BYTES:
            self._shares *= 2
        self._rows = Spool(_WIDTH, scratch, held=self._shares * _HELD_PER_SHARE, shares=self._shares)
        self._proven = [np.empty(0, np.int64)]
        self._indexed = [np.empty(0, np.int64)]
        self._strays, self._pending = (Spool(_WIDTH, scratch) for _ in range(2))
        self._served: dict[int, int] = {}
        self._moved: dict[tuple[int, int], list[int]] = {}
        self._counts = DeepCounts()

    def close(self) -> None:
        """Give back the room that was taken on disk."""
        self._rows.close()
        self._strays.close()
        self._pending.close()

    def take_slots(self, piece: Piece) -> None:
        """Take a piece of an index."""
        self._indexed.append(piece.facts[:, LEDGER])
        what = (_INDEX << _KIND_SHIFT) | (piece.location >> _LOG_SHIFT) & _FILE
        place = (piece.location & _POSITION) << _SIZE_BITS
        nothing = np.zeros(len(place), np.int64)
        self._add(piece.ledger, piece.entry, what, place, nothing, nothing)

    def take_log(self, file: RecordFile, data: Mapped, part: Entries) -> None:
        """Take records of an entry log, whose bytes can be touched."""
        self._take(file, data, part, np.full(len(part.ledger), _LOG))

    def read_journals(self, meter: Meter) -> None:
        """Read the journals again; what cannot be read was told the first time."""
        for one in self._journals:
            try:
                with Mapped(Path(one.file.path), meter) as data:
                    data.load()
                    for part in gathered(journal.scan_columns(data.view), self._scopes):
                        if isinstance(part, Entries):
                            ahead = (part.position >= one.mark) & (one.mark >= 0)
                            self._take(one.file, data, part, np.where(ahead, _AHEAD, _APPLIED))
                            data.done(int(part.position.max(initial=0)))
            except (OSError, FormatError):
                continue

    def _take(self, file: RecordFile, data: Mapped, part: Entries, kind: Ints) -> None:
        verdict = np.zeros(len(part.ledger), np.int64)
        length, content = np.zeros_like(verdict), np.zeros_like(verdict)
        view = data.view
        for row, (ledger, position, size) in enumerate(
            zip(part.ledger.tolist(), part.position.tolist(), part.size.tolist(), strict=True)
        ):
            verdict[row], length[row], content[row] = self._look(ledger, view[position : position + size])
        self._proven.append(np.unique(part.ledger[verdict & _VERDICT > 0]))
        if sum(map(len, self._proven[1:])) > max(_PROVEN_HELD, len(self._proven[0])):
            self._settle_proven()
        what = (kind << _KIND_SHIFT) | (verdict << _VERDICT_SHIFT) | self._number[file.path]
        self._add(part.ledger, part.entry, what, (part.position << _SIZE_BITS) | part.size, length, content)

    def _settle_proven(self) -> Ints:
        """Return the ledgers of which a digest was right, ascending."""
        self._proven = [np.unique(np.concatenate(self._proven))]
        return self._proven[0]

    def _add(self, ledger: Ints, entry: Ints, what: Ints, place: Ints, length: Ints, content: Ints) -> None:
        key = ledger ^ ((entry >> _CHUNK_BITS) * _MIX)
        self._rows.add(np.column_stack((key, ledger, entry, what, place, length, content)))

    def _look(self, ledger: int, record: memoryview) -> tuple[int, int, int]:
        """Return verdict (with the scoped bit), cumulative length and the payload's CRC of an entry."""
        front = entry_codec.header_size(record)
        if len(record) < front:
            return 0, 0, 0
        scoped = int(front != entry_codec.HEADER_SIZE) << (_SCOPED_SHIFT - _VERDICT_SHIFT)
        (length,) = struct.unpack_from(">q", record, front - 8)
        # Nearly every entry is of its ledger's type: one digest is made, not five.
        usual = self._types.get(ledger)
        if usual is not None and entry_codec.digest_agrees(record, *usual):
            digest = usual[0]
        else:
            found = entry_codec.find_digest(record, self._passwords)
            if found is None:
                behind = google_crc32c.value(bytes(record[front + max(DIGEST_SIZES.values()) :]))
                return scoped, length, signed(google_crc32c.value(bytes(record[front:])) << 32 | behind)
            digest = found[0]
            if len(self._types) >= _TYPES_HELD:
                self._types.clear()
            self._types[ledger] = digest, found[1] or b""
        payload = google_crc32c.value(bytes(record[front + DIGEST_SIZES[digest] :]))
        return scoped | (1 + DIGESTS.index(digest)), length, payload

    def compare(self, known: Ints, meter: Meter, damage: TakesDamage) -> DeepCounts:
        """Compare what was taken.

        Args:
            known: ledgers whose index has entries; those of which it only has a header or a row are known, too.
            meter: counts and paces the reads.
            damage: takes what is wrong.
        """
        self._settle_proven()
        known = np.unique(np.concatenate((known, *self._indexed)))
        unsure = [np.empty(0, np.int64)]
        for number in range(self._shares):
            rows = self._rows.share(number)
            if len(rows):
                rows = rows[np.lexsort((rows[:, _WHAT], rows[:, _ENTRY], rows[:, _LEDGER]))]
                share = _Share(rows, self._log_ids)
                unsure.append(self._digests(share, damage))
                self._placed(share)
                self._sources(share, known)
        self._counts.ledgers_not_checkable = len(np.unique(np.concatenate(unsure)))
        self._tell_moved(damage)
        broken = self._tell_strays(meter, damage)
        self._tell_pending(broken, damage)
        return self._counts

    def _digests(self, share: "_Share", damage: TakesDamage) -> Ints:
        """Judge the digests; return the ledgers that nothing can be said of."""
        record = share.kind != _INDEX
        sound = record & (share.verdict > 0)
        ledgers = share.ledger_number
        many = int(ledgers[-1]) + 1
        types = np.zeros((many, len(DIGESTS)), np.int64)
        np.add.at(types, (ledgers[sound], share.verdict[sound] - 1), 1)
        proven = np.isin(share.ledger[starts_of(ledgers)], self._proven[0])
        # A width of 4 or 8 bytes is that of a CRC, which needs no password: it would agree.
        widths = share.widths(record & ~sound)
        wrong = record & ~sound & (proven | np.isin(widths, _CRC_WIDTHS))[ledgers]
        share.bare |= (widths == 0)[ledgers]
        unsure = record & ~sound & ~wrong
        self._counts.digests_right += int(sound.sum())
        self._counts.digests_wrong += int(wrong.sum())
        self._counts.not_checkable += int(unsure.sum())
        share.doubted |= wrong
        # A record alone in its ledger, of which nothing can be said, may be another's whose ledger id broke.
        lone = unsure & (np.bincount(ledgers) == 1)[ledgers]
        # Where zeros were written over ids they are those of an entry that many bookies have.
        zeros = (share.ledger == 0) & (share.entry == 0) & ~share.matched
        share.believed = ~wrong | (share.vouched() & ~zeros)
        flags = wrong * _WRONG | share.matched * _NAMED | share.believed * _BELIEVED
        self._keep_strays(share, np.flatnonzero(wrong | lone), flags)
        mixed = (types > 0).sum(axis=1) > 1
        for number in np.flatnonzero(mixed).tolist():
            at = np.flatnonzero(sound & (ledgers == number))
            usual = int(types[number].argmax())
            other = int(at[share.verdict[at] - 1 != usual][0])
            detail = ", ".join(f"{n} entries of {DIGESTS[t]}" for t, n in enumerate(types[number].tolist()) if n)
            row = np.array([column[other] for column in (share.ledger, share.entry, share.file, share.place)])
            self._tell(row, Reason.CONFLICT, f"{detail}: one id, two ledgers", damage)
        return np.unique(share.ledger[unsure])

    def _keep_strays(self, share: "_Share", rows: Ints, flags: Ints) -> None:
        """Keep rows by their place in a log of that id; those of journals are of none."""
        file = share.file[rows]
        log_id = np.where(share.kind[rows] == _INDEX, file, self._log_ids[np.minimum(file, len(self._log_ids) - 1)])
        key = np.where(log_id >= 0, (log_id << _LOG_SHIFT) | share.position[rows], -2 - share.place[rows])
        columns = (share.ledger, share.entry, share.what, share.place, flags, flags)
        self._strays.add(np.column_stack((key, *(column[rows] for column in columns))))

    def _tell_strays(self, meter: Meter, damage: TakesDamage) -> set[tuple[int, int]]:
        """Say whose the records are whose digest is wrong, and what stands where a slot's entry does not.

        Returns:
            File and position of records whose ids are broken.
        """
        by_number = {number: [file] for number, file in enumerate(self._files)}
        reader = RecordFiles(by_number, meter, Noted(), self._passwords, scopes=self._scopes)
        replaced: dict[int, _Replaced] = {}
        broken: set[tuple[int, int]] = set()
        for rows in _parts(self._strays):
            slots, records = (rows[(rows[:, _WHAT] >> _KIND_SHIFT == _INDEX) == of] for of in (True, False))
            told = self._at_slots(slots, reader, replaced, damage)
            told |= self._owned(records, told, reader, damage)
            places = zip((records[:, _WHAT] & _FILE).tolist(), (records[:, _PLACE] >> _SIZE_BITS).tolist(), strict=True)
            left = np.array([place not in told for place in places], np.bool_)
            broken |= told
            # Of what stands where the index has another entry, the ids may be what broke, whoever has such an entry.
            records[np.isin(records[:, _KEY], slots[:, _KEY]), _LENGTH] &= ~_BELIEVED
            self._tell_wrong(records[left & (records[:, _LENGTH] & _WRONG > 0)], damage)
        for file, found in sorted(replaced.items()):
            at = found.position - SIZE_FIELD
            detail = (
                f"records of other ids stand where the index has {found.many} entries, the first here: {found.entry}"
            )
            damage.add(Unread(self._files[file].path, Reason.CONFLICT, Hides.NOTHING, at, detail=detail))
            self._counts.replaced += found.many
        return broken

    def _at_slots(
        self, slots: Ints, reader: RecordFiles, replaced: dict[int, "_Replaced"], damage: TakesDamage
    ) -> set[tuple[int, int]]:
        """Look at the places of slots that dangle; return file and position of the records whose ids are broken."""
        of_log: dict[int, list[int]] = {}
        for number, log_id in enumerate(self._log_ids.tolist()):
            of_log.setdefault(log_id, []).append(number)
        named = (slots[:, _WHAT] & _FILE).tolist()
        pairs = [(row, number) for row, log_id in enumerate(named) for number in of_log[log_id]]
        row_of, numbers = np.array(pairs, np.int64).reshape(-1, 2).T
        position = slots[row_of, _PLACE] >> _SIZE_BITS
        told: set[tuple[int, int]] = set()
        for n, record in reader.records(numbers, position):
            row, file, at = int(row_of[n]), int(numbers[n]), int(position[n])
            key, entry = int(slots[row, _LEDGER]), int(slots[row, _ENTRY])
            if self._is_that(record, key, entry):
                told.add((file, at))
                self._tell_ids(file, at, record, key, entry, damage)
            elif len(of_log[named[row]]) == 1 and _is_other(record, self._scopes.id(key), entry):
                found = replaced.setdefault(file, _Replaced(at))
                found.many += 1
                if at <= found.position:
                    found.position, found.entry = at, f"entry {entry} of ledger {self._scopes.id(key)}"
        return told

    def _owned(
        self, records: Ints, told: Container[tuple[int, int]], reader: RecordFiles, damage: TakesDamage
    ) -> set[tuple[int, int]]:
        """Try ids of which one bit differs; return file and position of the records that are those of them."""
        at = records[:, _PLACE] >> _SIZE_BITS
        asked = np.flatnonzero((records[:, _LENGTH] & _NAMED == 0) & (records[:, _LEDGER] >= 0))
        file = records[asked, _WHAT] & _FILE
        found: set[tuple[int, int]] = set()
        for n, record in reader.records(file, at[asked]):
            ledger, entry = (int(records[asked[n], column]) for column in (_LEDGER, _ENTRY))
            place = int(file[n]), int(at[asked[n]])
            ledgers = np.intersect1d(ledger ^ _BITS, self._proven[0])
            others = [(other, entry) for other in ledgers.tolist()]
            if len(np.intersect1d(ledger, self._proven[0])):
                others += [(ledger, other) for other in (entry ^ _BITS).tolist()]
            whose = next((ids for ids in others if self._is_that(record, *ids)), None) if place not in told else None
            if whose is not None:
                found.add(place)
                self._tell_ids(*place, record, *whose, damage)
        return found

    def _is_that(self, record: memoryview, key: int, entry: int) -> bool:
        """Whether a record is an entry whose ids were right if they were these."""
        ledger = self._scopes.id(key)
        front = entry_codec.SCOPED_HEADER_SIZE if ledger.scope else entry_codec.HEADER_SIZE
        if entry_codec.is_of(record, ledger, entry) or len(record) < front:
            return False
        return entry_codec.find_digest(entry_codec.with_ids(record, ledger, entry), self._passwords) is not None

    def _tell_ids(self, file: int, at: int, record: memoryview, key: int, entry: int, damage: TakesDamage) -> None:
        self._counts.ids_damaged += 1
        detail = f"the ids in front of entry {entry} are broken; its digest proves whose it is"
        size = len(record) + SIZE_FIELD
        path = self._files[file].path
        damage.add(Unread(path, Reason.DIGEST, Hides.NOTHING, at - SIZE_FIELD, size, ledger=key, detail=detail))

    def _tell_wrong(self, rows: Ints, damage: TakesDamage) -> None:
        """Report records whose digest is wrong, once for each ledger and file; of nobody's once for each file."""
        file, flags = rows[:, _WHAT] & _FILE, rows[:, _LENGTH]
        whose = np.where(flags & _BELIEVED > 0, rows[:, _LEDGER], _NOBODY)
        order = np.lexsort((rows[:, _PLACE], file, whose))
        rows, file, whose, served = rows[order], file[order], whose[order], flags[order] & _NAMED > 0
        fresh = np.append(True, (whose[1:] != whose[:-1]) | (file[1:] != file[:-1]))
        for low, high in _stretches(np.cumsum(fresh)[: len(rows)]):
            ids = rows[low:high, _ENTRY].tolist()
            if whose[low] == _NOBODY:
                ledgers = [str(self._scopes.id(key)) for key in rows[low:high, _LEDGER].tolist()]
                ids = [f"{ledger}/{entry}" for ledger, entry in zip(ledgers, ids, strict=True)]
                detail = (
                    f"{len(ids)} records are not what their digests say, and nothing tells whose they are; their ids, "
                )
                detail += f"which may be broken too: ledger/entry {_first(ids)}"
            else:
                detail = f"{len(ids)} entries are not what their digests say ({_first(ids)}); "
                detail += f"the index names {int(served[low:high].sum())} of these copies"
            place, ledger = int(rows[low, _PLACE]), None if whose[low] == _NOBODY else int(whose[low])
            at, size = (place >> _SIZE_BITS) - SIZE_FIELD, (place & _SIZE) + SIZE_FIELD
            path = self._files[int(file[low])].path
            damage.add(Unread(path, Reason.DIGEST, Hides.NOTHING, at, size, ledger=ledger, detail=detail))

    def _tell(self, row: Ints, reason: Reason, detail: str, damage: TakesDamage) -> None:
        """Report a row of ledger, entry, file and place."""
        ledger, _, file, place = row[:4].tolist()
        at, size = (place >> _SIZE_BITS) - SIZE_FIELD, (place & _SIZE) + SIZE_FIELD
        damage.add(Unread(self._files[file].path, reason, Hides.NOTHING, at, size, ledger=ledger, detail=detail))

    def _placed(self, share: "_Share") -> None:
        """Count slots whose entry is not where they say, and find the files in which it stands."""
        index = share.kind == _INDEX
        for log_id, many in zip(*np.unique(share.file[index & share.matched], return_counts=True), strict=True):
            self._served[int(log_id)] = self._served.get(int(log_id), 0) + int(many)
        lost = np.flatnonzero(index & ~share.matched)
        self._counts.in_index += int(index.sum())
        self._counts.dangling += len(lost)
        if not len(lost):
            return
        self._keep_strays(share, lost[np.isin(share.file[lost], self._log_ids)], np.zeros(len(index), np.int64))
        logs = np.flatnonzero((share.kind == _LOG) & np.isin(share.pair, share.pair[lost]))
        lost = lost[np.isin(share.pair[lost], share.pair[logs])]
        self._counts.elsewhere += len(lost)
        if not len(lost):
            return
        # Of several records the one in the log that is named, else that at the same place of another, else the first.
        stands = logs[np.searchsorted(share.pair[logs], share.pair[lost])]
        base, wanted = share.pair[logs] << _LOG_SHIFT, share.pair[lost] << _LOG_SHIFT
        at, same = _places(base | share.position[logs], wanted | share.position[lost])
        stands[same] = logs[at[same]]
        at, own = _places(base | self._log_ids[share.file[logs]], wanted | share.file[lost])
        stands[own] = logs[at[own]]
        hit = same & ~own
        shift = share.position[stands] - share.position[lost]
        pairs, of = np.unique(np.column_stack((share.file[lost], share.file[stands])), axis=0, return_inverse=True)
        for n, (log_id, file) in enumerate(pairs.tolist()):
            some = of.reshape(-1) == n
            found = self._moved.setdefault((log_id, file), [0, 0, _SIZE, -_SIZE])
            found[0] += int(some.sum())
            found[1] += int((some & hit).sum())
            found[2:] = min(found[2], int(shift[some].min())), max(found[3], int(shift[some].max()))

    def _tell_moved(self, damage: TakesDamage) -> None:
        """Report where entries stand that are not where the index says, once for each log named and each file."""
        for (log_id, file), (many, same, least, most) in sorted(self._moved.items()):
            reason, detail = Reason.DANGLING, f"{many} entries that the index places in log {log_id:x} stand here"
            if same == many > max(self._served.get(named, 0) for named in (log_id, int(self._log_ids[file]))):
                reason = Reason.MISPLACED
                detail += ", at the same places: put each file back under its own name"
            elif self._log_ids[file] != log_id:
                detail += " instead: they are not lost"
            elif least == most:
                detail += f", {abs(least)} bytes {'further on' if least > 0 else 'before'}: they are not lost"
            else:
                detail += ", at other places: they are not lost"
            damage.add(Unread(self._files[file].path, reason, Hides.NOTHING, detail=detail))

    def _sources(self, share: "_Share", known: Ints) -> None:
        """Compare what the sources list, and what copies of one entry say."""
        counts = self._counts
        logs, applied, ahead, index = (share.times(share.kind == kind) for kind in (_LOG, _APPLIED, _AHEAD, _INDEX))
        counts.in_logs += int(logs.sum())
        counts.in_journals += int((applied + ahead).sum())
        counts.shadowed += int(np.maximum(logs - 1, 0).sum())
        waiting = (ahead > 0) & (index == 0)
        counts.replayed += int(waiting.sum())
        counts.journal_only += int((waiting & (logs == 0)).sum())
        first = starts_of(share.pair)
        believed = share.times((share.kind == _LOG) & share.believed)
        lost = (believed > 0) & (index == 0) & (ahead == 0) & np.isin(share.ledger[first], known)
        # Of a pair the record of an entry log comes first. Nothing is said before it is known whose ids are broken.
        self._wait(share, first[lost], first[lost], _UNINDEXED)
        self._wait(share, *share.differing(), _DIFFERS)

    def _wait(self, share: "_Share", rows: Ints, others: Ints, what: int) -> None:
        columns = (share.ledger, share.entry, share.file, share.place)
        another = (share.file[others], share.place[others], np.full(len(rows), what))
        self._pending.add(np.column_stack((*(column[rows] for column in columns), *another)))

    def _tell_pending(self, broken: Container[tuple[int, int]], damage: TakesDamage) -> None:
        """Report what the index lacks and copies that differ, once for each ledger, but for records of broken ids."""
        for part in _parts(self._pending):
            places = [zip(part[:, n].tolist(), (part[:, n + 1] >> _SIZE_BITS).tolist(), strict=True) for n in (2, 4)]
            sound = [one not in broken and other not in broken for one, other in zip(*places, strict=True)]
            kept = part[np.array(sound, np.bool_)]
            rows = kept[np.lexsort((kept[:, 1], kept[:, 0], kept[:, 6]))]
            unindexed, differ = (rows[rows[:, 6] == what] for what in (_UNINDEXED, _DIFFERS))
            self._counts.unindexed += len(unindexed)
            self._counts.conflicts += len(differ)
            for low, high in _stretches(unindexed[:, 0]):
                detail = f"{high - low} entries that the index lacks, from {unindexed[low, 1]} on"
                self._tell(unindexed[low], Reason.UNINDEXED, detail, damage)
            for low, high in _stretches(differ[:, 0]):
                second, position = (
                    self._files[int(differ[low, 4])].path,
                    (int(differ[low, 5]) >> _SIZE_BITS) - SIZE_FIELD,
                )
                detail = (
                    f"{high - low} entries stand there with different payloads or lengths, from {differ[low, 1]} on, "
                )
                detail += f"of which {second} has another at byte {position}: one id, two ledgers, or damage to either"
                self._tell(differ[low], Reason.CONFLICT, detail, damage)


@dataclass(slots=True)
class _Replaced:
    """Where the first record stands that is not the entry that the index has there, which one that is, and how many."""

    position: int
    entry: str = ""
    many: int = 0


class _Share:
    """Rows that are compared together, sorted by ledger, entry and kind; columns of the same length.

    Attributes:
        ledger, entry, kind, verdict, file, place, position: of each row.
        pair: number of the (ledger, entry) pair, ascending.
        ledger_number: number of the ledger, ascending.
        matched: a slot whose entry is there; a record that a slot names.
        what: kind, verdict and file.
        doubted: the digest is wrong.
        believed: the ids are no matter of doubt.
        bare: the ledger has no digests.
    """

    def __init__(self, rows: Ints, log_ids: Ints) -> None:
        self.ledger, self.entry, self.what, self.place = (rows[:, n] for n in (_LEDGER, _ENTRY, _WHAT, _PLACE))
        self.kind = self.what >> _KIND_SHIFT
        self.verdict = (self.what >> _VERDICT_SHIFT) & _VERDICT
        self.file = self.what & _FILE
        self.position = self.place >> _SIZE_BITS
        self._front = np.where(self.what >> _SCOPED_SHIFT & 1, entry_codec.SCOPED_HEADER_SIZE, entry_codec.HEADER_SIZE)
        self._length, self._content = rows[:, _LENGTH], rows[:, _CONTENT]
        fresh = np.append(True, self.ledger[1:] != self.ledger[:-1])
        self.ledger_number = np.cumsum(fresh) - 1
        fresh[1:] |= self.entry[1:] != self.entry[:-1]
        self.pair = np.cumsum(fresh) - 1
        self.doubted, self.believed = np.zeros(len(rows), np.bool_), np.ones(len(rows), np.bool_)
        self.bare = np.zeros(len(rows), np.bool_)
        self.matched = self._match(log_ids)

    def _match(self, log_ids: Ints) -> Mask:
        matched = np.zeros(len(self.pair), np.bool_)
        rows = np.flatnonzero((self.kind == _INDEX) | (self.kind == _LOG))
        slot = self.kind[rows] == _INDEX
        log_id = np.where(slot, self.file[rows], log_ids[np.where(slot, 0, self.file[rows])] if len(log_ids) else -1)
        _, address = np.unique((log_id << _LOG_SHIFT) | self.position[rows], return_inverse=True)
        order = np.lexsort((slot, address, self.pair[rows]))
        rows, slot, address = rows[order], slot[order], address[order]
        starts = np.flatnonzero(
            np.append(True, (address[1:] != address[:-1]) | (self.pair[rows[1:]] != self.pair[rows[:-1]]))
        )
        if not len(rows):
            return matched
        size = np.diff(np.append(starts, len(rows)))
        slots = np.add.reduceat(slot.astype(np.int64), starts)
        matched[rows] = np.repeat((slots > 0) & (slots < size), size)
        return matched

    def times(self, rows: Mask) -> Ints:
        """Return how many of some rows each pair has."""
        return np.bincount(self.pair[rows], minlength=int(self.pair[-1]) + 1)

    def vouched(self) -> Mask:
        """Return the rows of which something that is not doubted has the ids, too."""
        there: Mask = (self.times(~self.doubted) > 0)[self.pair]
        return there

    def widths(self, rows: Mask) -> Ints:
        """Return the width of each ledger's digest as the lengths of some of its entries tell; -1 where none does."""
        at = np.flatnonzero(rows)
        at = at[starts_of(self.pair[at])]
        body = (self.place[at] & _SIZE) - self._front[at]
        before = np.append(0, self._length[at[:-1]]) if len(at) else at
        follows = np.zeros(len(at), np.bool_)
        follows[1:] = (np.diff(self.ledger_number[at]) == 0) & (np.diff(self.entry[at]) == 1)
        tells = follows | (self.entry[at] == 0)
        width = body - (self._length[at] - np.where(follows, before, 0))
        found = np.full(int(self.ledger_number[-1]) + 1, -1, np.int64)
        found[self.ledger_number[at[tells]][::-1]] = width[tells][::-1]
        return found

    def differing(self) -> tuple[Ints, Ints]:
        """Return two rows of each pair that has copies, none known to be damaged, which differ."""
        rows = np.flatnonzero((self.kind != _INDEX) & ~self.doubted)
        payload = (self.place[rows] & _SIZE) - self._front[rows] - _WIDTHS[self.verdict[rows]]
        content = np.where(self.bare[rows] & (self.verdict[rows] == 0), self._content[rows] >> 32, self._content[rows])
        sign = (content << _LOG_SHIFT) ^ (payload * _MIX) ^ (self._length[rows] * (_MIX | 2))
        starts = starts_of(self.pair[rows])
        first = np.repeat(starts, np.diff(np.append(starts, len(rows))))
        other = np.flatnonzero(sign != sign[first])
        other = other[starts_of(first[other])]
        return rows[first[other]], rows[other]


def _parts(spool: Spool) -> Iterable[Ints]:
    """Return the rows at once where they are few, else a share after the other."""
    return [spool.all()] if spool.count <= _FEW else map(spool.share, range(SHARES))


def _places(values: Ints, wanted: Ints) -> tuple[Ints, Mask]:
    """Return where each wanted value stands among some, and whether it does."""
    order = np.argsort(values, kind="stable")
    at = order[np.minimum(np.searchsorted(values[order], wanted), len(values) - 1)]
    return at, values[at] == wanted


def _is_other(record: memoryview, ledger: LedgerId, entry: int) -> bool:
    """Whether a record can be another entry than one."""
    if entry_codec.is_of(record, ledger, entry):
        return False
    try:
        entry_codec.decode_header(record)
    except FormatError:
        return False
    return True


def _first(values: Sequence[object]) -> str:
    return ", ".join(map(str, values[:_NAMED_AT_MOST])) + (", …" if len(values) > _NAMED_AT_MOST else "")


def _stretches(values: Ints) -> Iterable[tuple[int, int]]:
    """Return where each stretch of equal elements begins and ends."""
    return pairwise([*starts_of(values).tolist(), len(values)])


def numbered(folders: Iterable[dict[int, list[RecordFile]]]) -> list[tuple[int, RecordFile]]:
    """Return the entry logs of all folders with their ids."""
    return [(log_id, file) for logs in folders for log_id, files in logs.items() for file in files]
