"""The merge of one bookie's sources: each adds what the stronger ones lack, one share of ledgers at a time.

    index    confirmed in the entry logs
    journal  what the index lacks and replay would bring back
    log      what neither lists, in entry logs or before the mark of a journal: candidates, such as ledgers deleted on
             purpose

A single entry of an otherwise unknown ledger, with a digest that proves nothing, is damage and no ledger: one wrong bit
in an id looks like that. Headers of such ledgers are read anyway, so that costs nothing.

A dangling slot names an entry that only replay may still bring back; where it does not, the ledger is not complete.
Ledgers are keys (see `scoped_ids`) up to the rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from recovery.codecs import index_file
from recovery.codecs.entry import key_kind
from recovery.codecs.framing import SIZE_FIELD
from recovery.collect.rows.copies import NO_LAC, CopySource, Known, make_copies
from recovery.collect.rows.damage import DamageLog, Hides, UnreadPiece
from recovery.collect.rows.entry_headers import DIGEST_COLUMN
from recovery.collect.rows.index_slots import IndexRows
from recovery.collect.rows.ledger_facts import (
    FENCED,
    KEY,
    LAC,
    LEDGER,
    LIMBO,
    NONE,
    SOURCE,
    Interned,
    read_explicit_lac,
)
from recovery.collect.rows.source_copies import (
    Ints,
    are_members,
    find_starts,
    from_rows,
    join_groups,
    pick_groups,
    sort_groups,
    subtract_groups,
    to_groups,
    to_rows,
)
from recovery.collect.rows.spool import SHARES, Spool, find_shares
from recovery.collect.sources.index_database import LOCATIONS, SCOPED_LOCATIONS
from recovery.collect.sources.journals import JournalFacts
from recovery.errors import FormatError, Reason
from recovery.model.groups import KeyedGroups, count
from recovery.model.ids import LedgerId

_KEY_RANK: Final = {"absent": 0, "empty": 1, "zero": 2, "set": 3}
_SET: Final = 3
_MOST_LISTED: Final = 1024
"""Groups of entries that are listed with one piece of damage."""
_FEW: Final = 1 << 17
"""Rows of a spool that are merged at once."""


@dataclass(frozen=True, slots=True)
class IndexSource:
    """A folder of index files, or of databases."""

    path: Path
    is_database: bool

    def file_of(self, ledger: LedgerId) -> str:
        """Return the file, or the database, that a ledger's slots are in."""
        if self.is_database:
            return str(self.path / (SCOPED_LOCATIONS if ledger.scope else LOCATIONS))
        return str(self.path / index_file.path_of(ledger.ledger, ledger.scope))


@dataclass(slots=True)
class Totals:
    """Sums over all rows.

    Attributes:
        ledgers: with at least one row.
        entries: in index or journal.
        largest: ledger id of scope 0 of a row; -1 if there is none.
        limbo: some ledger is in limbo.
        leftover: ledgers that only logs list, or journals before the mark.
    """

    ledgers: int = 0
    entries: int = 0
    largest: int = -1
    limbo: bool = False
    leftover: int = 0


@dataclass(slots=True)
class Beside:
    """The additional entries of a weaker source.

    Attributes:
        groups: rows of groups.
        heads: header rows, to be filled by the caller.
        places: (ledger, entry, file, position) of entries that no digest proves; the caller fills it.
        files: their numbers are in `places`.
        wanted: the entries with headers to read: the last of each ledger, the one before it, and the first.
    """

    groups: Spool
    heads: Spool
    places: Spool
    wanted: KeyedGroups
    files: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Merge:
    """The merge of one bookie's sources: first `subtract`, then, after the headers were read, `make_tables`.

    Attributes:
        index: the results of the index.
        journal, log: groups of entries to be replayed, and of written entries, in pieces that may overlap.
        facts: the journals' facts about ledgers.
        secrets: the byte strings that facts name by number.
        sources: their numbers are in `facts`.
        doubled: ledgers that are in several indexes, ascending.
        damage: receives dangling slots.
        from_journal, from_log: receive the additional entries of these sources.
    """

    index: IndexRows[Spool]
    journal: Spool
    log: Spool
    facts: JournalFacts
    secrets: Interned
    sources: Sequence[IndexSource]
    doubled: Ints
    damage: DamageLog
    from_journal: Beside
    from_log: Beside
    totals: Totals = field(default_factory=Totals)

    def _yield_shares(self) -> Iterator[int | None]:
        """Yield the shares that are taken one after the other; None for all ledgers at once, where they are few."""
        index = self.index
        spools = (index.groups, index.heads, index.facts, index.dangling, self.journal, self.log)
        if max(spool.count for spool in spools) <= _FEW:
            yield None
            return
        for spool in (*spools, *(s for b in (self.from_journal, self.from_log) for s in (b.groups, b.heads, b.places))):
            spool.set_aside()
        yield from range(SHARES)

    def subtract(self) -> None:
        """Find entries that only journal and logs list, and report dangling slots."""
        wanted: tuple[list[KeyedGroups], list[KeyedGroups]] = ([], [])
        for share in self._yield_shares():
            index = self._join_index(share)
            journal = sort_groups(from_rows(self.journal.read_share(share)))
            self._report_dangling(share, index, journal)
            added = subtract_groups(journal, index)
            log = subtract_groups(subtract_groups(sort_groups(from_rows(self.log.read_share(share))), index), journal)
            for beside, groups, ends in zip((self.from_journal, self.from_log), (added, log), wanted, strict=True):
                beside.groups.add(to_rows(groups))
                ends.append(_find_ends(groups))
        for beside, ends in zip((self.from_journal, self.from_log), wanted, strict=True):
            joined_groups = join_groups(ends)
            beside.wanted = pick_groups(joined_groups, np.lexsort((joined_groups.first, joined_groups.key)))

    def _join_index(self, share: int | None) -> KeyedGroups:
        groups = from_rows(self.index.groups.read_share(share))
        doubled = np.isin(groups.key, self.doubled)
        if doubled.any():
            groups = join_groups([pick_groups(groups, ~doubled), sort_groups(pick_groups(groups, doubled))])
        return pick_groups(groups, np.lexsort((groups.first, groups.key)))

    def _report_dangling(self, share: int | None, index: KeyedGroups, journal: KeyedGroups) -> None:
        dangling = subtract_groups(sort_groups(from_rows(self.index.dangling.read_share(share))), index)
        if not len(dangling.key):
            return
        facts = self.index.facts.read_share(share)
        folders = dict(zip(facts[:, LEDGER].tolist(), facts[:, SOURCE].tolist(), strict=True))
        lost = subtract_groups(dangling, journal)
        for groups, hides, where in (
            (subtract_groups(dangling, lost), Hides.NOTHING, "the journal has them"),
            (lost, Hides.LEDGER, "no journal brings them back either"),
        ):
            starts = find_starts(groups.key)
            if not len(starts):
                continue
            counts = np.add.reduceat(count(*groups[1:]), starts)
            ends = np.append(starts[1:], len(groups.key))
            for ledger, begin, end, entries in zip(
                groups.key[starts].tolist(), starts.tolist(), ends.tolist(), counts.tolist(), strict=True
            ):
                first = int(groups.first[begin])
                source = self.sources[folders.get(ledger, len(self.sources) - 1)]
                offset = None if source.is_database else index_file.HEADER_SIZE + first * index_file.SLOT
                detail = f"{entries} entries from {first} on are not where the index places them; {where}"
                file = source.file_of(self.damage.scopes.id(ledger))
                own = [column[begin:end].tolist() for column in groups[1:]]
                listed = tuple(zip(*own, strict=True)) if end - begin <= _MOST_LISTED else None
                self.damage.add(
                    UnreadPiece(file, Reason.DANGLING, hides, offset, ledger=ledger, detail=detail, entries=listed)
                )

    def make_tables(self, *, complete: bool) -> Iterator[pa.Table]:
        """Yield the rows of all ledgers.

        Args:
            complete: nothing hides entries of all ledgers.
        """
        special = np.array(sorted({*self.facts.fenced, *self.facts.keys, *self.facts.lacs}), np.int64)
        harmed = np.array(sorted(self.damage.ledgers), np.int64)
        shares = find_shares(special)
        for share in self._yield_shares():
            index = self._join_index(share)
            journal = from_rows(self.from_journal.groups.read_share(share))
            log = from_rows(self.from_log.groups.read_share(share))
            facts = self.index.facts.read_share(share)
            # What cannot be read is there nevertheless: left out, it would be left out of every plan, and deleted.
            named = harmed if share is None else harmed[find_shares(harmed) == share]
            in_index = np.union1d(np.union1d(facts[:, LEDGER], index.key), named)
            special_ledgers = special if share is None else special[shares == share]
            heads = [s.read_share(share) for s in (self.index.heads, self.from_journal.heads, self.from_log.heads)]
            doubtful = find_doubtful_ledgers(np.union1d(in_index, special_ledgers), (journal, log), heads[1:])
            if len(doubtful):
                self._report_doubtful(share, doubtful, journal, log)
                journal, log = (pick_groups(groups, ~np.isin(groups.key, doubtful)) for groups in (journal, log))
                heads = [rows[~np.isin(rows[:, 0], doubtful)] for rows in heads]
            ledgers = np.unique(np.concatenate([in_index, journal.key, log.key, special_ledgers]))
            known, other_keys = self._join_known(ledgers, facts, special_ledgers, complete=complete)
            # What special records say about a ledger is in any row of it.
            alone = np.setdiff1d(special_ledgers, np.union1d(in_index, log.key))
            in_journal = np.union1d(np.union1d(journal.key, alone), other_keys[:, 0])
            key = known.key.copy()
            key[np.searchsorted(ledgers, other_keys[:, 0])] = other_keys[:, 1]
            unsure = replace(known, complete=np.zeros(len(ledgers), np.bool_))
            yield self._make_copies(CopySource.INDEX, _select_known(known, in_index), index, heads[0])
            yield self._make_copies(
                CopySource.JOURNAL, _select_known(replace(known, key=key), in_journal), journal, heads[1]
            )
            yield self._make_copies(CopySource.LOG, _select_known(unsure, np.unique(log.key)), log, heads[2])
            self.totals.ledgers += len(ledgers)
            self.totals.leftover += len(np.setdiff1d(log.key, np.union1d(in_index, in_journal)))
            self.totals.largest = max(self.totals.largest, int(ledgers.max(initial=-1)))
            self.totals.limbo |= bool(known.limbo.any())
            self.totals.entries += int(count(*index[1:]).sum() + count(*journal[1:]).sum())

    def _report_doubtful(self, share: int | None, doubtful: Ints, journal: KeyedGroups, log: KeyedGroups) -> None:
        """Report the only entry of each otherwise unknown ledger; an entry that a replay restores hides more."""
        for groups, hides, beside, unread in (
            (journal, Hides.EVERYTHING, self.from_journal, "journals"),
            (log, Hides.NOTHING, self.from_log, "entry logs"),
        ):
            places = beside.places.read_share(share)
            places = places[np.isin(places[:, 0], doubtful)]
            place_of = {ledger: (beside.files[file], at) for ledger, _, file, at in places[::-1].tolist()}
            for row in np.flatnonzero(np.isin(groups.key, doubtful)).tolist():
                ledger = self.damage.scopes.id(int(groups.key[row]))
                # What the disk no longer gives has no place.
                file, position = place_of.get(int(groups.key[row]), (unread, None))
                offset = None if position is None else position - SIZE_FIELD
                detail = (
                    f"entry {groups.first[row]} of ledger {ledger}: its digest is none of any type, and nothing else "
                    "knows the ledger. Its id is wrong, or the ledger was deleted and its password is not given"
                )
                self.damage.add(UnreadPiece(file, Reason.DIGEST, hides, offset, detail=detail, is_doubtful=True))

    def _make_copies(self, source: CopySource, known: Known, groups: KeyedGroups, heads: Ints) -> pa.Table:
        return make_copies(source, known, groups, heads, self.damage.bookie, self.damage.incarnation)

    def _join_known(self, ledgers: Ints, facts: Ints, special: Ints, *, complete: bool) -> tuple[Known, Ints]:
        """Return the facts of ledgers; and ledgers with another key in the journal, with the number of that key."""
        rows = np.searchsorted(ledgers, facts[:, LEDGER])
        fenced, limbo = np.zeros(len(ledgers), np.bool_), np.zeros(len(ledgers), np.bool_)
        np.logical_or.at(fenced, rows, facts[:, FENCED] > 0)
        np.logical_or.at(limbo, rows, facts[:, LIMBO] > 0)
        rank = np.array([*(_KEY_RANK[key_kind(k)] for k in self.secrets.keys), 0], np.int64)
        key = np.full(len(ledgers), NONE)
        order = np.lexsort((-rank[facts[:, KEY]], rows))
        first = order[find_starts(rows[order])]
        key[rows[first]] = facts[first, KEY]
        lac = np.full(len(ledgers), NO_LAC)
        record: list[bytes | None] = [None] * len(ledgers)
        for n in np.flatnonzero(facts[:, LAC] != NONE).tolist():
            raw, ledger = self.secrets.lacs[int(facts[n, LAC])], int(facts[n, LEDGER])
            try:
                value = read_explicit_lac(raw, self.damage.scopes.id(ledger))
            except FormatError as error:
                file = self.sources[int(facts[n, SOURCE])].file_of(self.damage.scopes.id(ledger))
                self.damage.add(UnreadPiece(file, error.reason, Hides.NOTHING, ledger=ledger, detail=error.detail))
                continue
            if value > lac[rows[n]]:
                lac[rows[n]], record[rows[n]] = value, raw
        other_keys: list[tuple[int, int]] = []
        for n, ledger in zip(np.searchsorted(ledgers, special).tolist(), special.tolist(), strict=True):
            fenced[n] |= ledger in self.facts.fenced
            value, raw = self.facts.lacs.get(ledger, (NO_LAC, b""))
            if value > lac[n]:
                lac[n], record[n] = value, raw
            written = self.facts.keys.get(ledger)
            stored = self.secrets.keys[key[n]] if key[n] != NONE else None
            conflict = ledger in self.facts.others
            if written is not None:
                kinds = _KEY_RANK[key_kind(stored)], _KEY_RANK[key_kind(written)]
                if kinds == (_SET, _SET) and written != stored:
                    other_keys.append((ledger, self.secrets.add_stamp(written)))
                    conflict = True
                elif kinds[1] > kinds[0]:
                    key[n] = self.secrets.add_stamp(written)
            if conflict:
                detail = "the journal has another master key for it: one id, two ledgers"
                self.damage.add(UnreadPiece("journal", Reason.CONFLICT, Hides.NOTHING, ledger=ledger, detail=detail))
        whole = ~limbo & ~np.isin(ledgers, np.fromiter(self.damage.ledgers, np.int64, len(self.damage.ledgers)))
        keys, scopes = self.secrets.keys, self.damage.scopes
        known = Known(ledgers, whole & complete, fenced, limbo, key, keys, lac, record, scopes)
        return known, np.array(other_keys, np.int64).reshape(-1, 2)


def find_doubtful_ledgers(known: Ints, groups: Sequence[KeyedGroups], heads: Sequence[Ints]) -> Ints:
    """Return the ledgers with one entry in all and a digest that proves nothing: such ledgers may not exist.

    One wrong bit in an id makes such a ledger; two entries of a ledger that is not there it does not make.

    Args:
        known: ledgers that something else knows: an index, a special record of a journal, or damage.
        groups: of the entries.
        heads: header rows of these.
    """
    joined_groups = join_groups(groups)
    if not len(joined_groups.key):
        return joined_groups.key
    ledgers, ledger_of = np.unique(joined_groups.key, return_inverse=True)
    entries = np.bincount(ledger_of, count(*joined_groups[1:]), len(ledgers))
    proven = np.concatenate([rows[rows[:, DIGEST_COLUMN] >= 0, 0] for rows in heads])
    alone: Ints = ledgers[(entries == 1) & ~np.isin(ledgers, known) & ~np.isin(ledgers, proven)]
    return alone


def _select_known(known: Known, ledgers: Ints) -> Known:
    """Return the facts of some ledgers."""
    rows = np.searchsorted(known.ledger, ledgers)
    return Known(
        ledgers,
        known.complete[rows],
        known.fenced[rows],
        known.limbo[rows],
        known.key[rows],
        known.keys,
        known.lac[rows],
        [known.lac_record[n] for n in rows.tolist()],
        known.scopes,
    )


def _find_ends(groups: KeyedGroups) -> KeyedGroups:
    """Return the last entry of each ledger, the one before it and the first, if the groups have them."""
    starts = find_starts(groups.key)
    end = np.append(starts[1:], len(groups.key))[: len(starts)] - 1
    ledger, last = groups.key[end], groups.last[end] + groups.size[end] - 1
    ledgers = np.concatenate([ledger, ledger, ledger])
    entries = np.concatenate([last, last - 1, groups.first[starts]])
    is_stored = are_members(groups, ledgers, entries)
    return to_groups(ledgers[is_stored], entries[is_stored])
