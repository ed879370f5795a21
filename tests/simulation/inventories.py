"""Inventories of simulated clusters: the tables that `collect` would make of their disks, and what bookies serve."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa

from recovery.codecs.entry import encode_lac_record
from recovery.collect.rows.copies import NO_LAC, CopySource, Known, make_copies
from recovery.collect.rows.entry_headers import DIGESTS
from recovery.collect.rows.ledger_facts import make_stamp
from recovery.collect.rows.source_copies import to_groups
from recovery.model import tables
from recovery.model.groups import group_entries
from recovery.model.metadata import DIGEST_SIZES, NO_ENTRY, Digest
from tests.simulation.protocol import Record, World
from tests.simulation.simulated_bookie import Bookie, Copy, Shelf

_HEADER_SIZE: Final = 32
_TIME: Final = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class View:
    """How disks were scanned.

    Attributes:
        unscanned: bookies that no inventory is of.
        incomplete: bookies of which a folder was not given; what stood there, by ledger.
        damaged: bookies with damage, the ledgers that it names, and entries that it hides, by ledger.
        unindexed: incomplete ones that miss an index folder: what is not seen there stands in the logs.
    """

    unscanned: tuple[str, ...] = ()
    incomplete: Mapping[str, Mapping[int, frozenset[int]]] = field(default_factory=dict)
    damaged: Mapping[str, tuple[tuple[int | None, int, frozenset[int]], ...]] = field(default_factory=dict)
    unindexed: frozenset[str] = frozenset()

    def hidden(self, name: str) -> dict[int, frozenset[int]]:
        """Return the entries of a bookie that its scan did not see, by ledger."""
        marks = dict(self.incomplete.get(name, {}))
        for _, ledger, entries in self.damaged.get(name, ()):
            marks[ledger] = marks.get(ledger, frozenset()) | entries
        return marks


# ---------------------------------------------------------------------------------------------------- inventories


@dataclass(frozen=True, slots=True)
class Inventory:
    """What scans give.

    Attributes:
        copies, bookies, damage: the tables.
        served: entries that each scanned bookie has in its index, or will have after its start, by ledger and bookie;
            only what the scan saw.
        leftovers: ledgers that each scanned bookie has in logs or old journals only.
        unscanned: members that no inventory is of.
    """

    copies: pa.Table
    bookies: pa.Table
    damage: pa.Table
    served: dict[int, dict[str, dict[int, Copy]]]
    leftovers: dict[int, list[str]]
    unscanned: tuple[str, ...]


def inventory(world: World, view: View | None = None) -> Inventory:
    """Return what `collect` would make of the bookies' disks; those that still run are read as if they were killed."""
    view = view or View()
    parts: list[pa.Table] = []
    served: dict[int, dict[str, dict[int, Copy]]] = {}
    leftovers: dict[int, list[str]] = {}
    rows, harms = [], []
    for name, bookie in world.bookies.items():
        if name in view.unscanned:
            continue
        damage = view.damaged.get(name, ())
        hidden = view.hidden(name)
        complete = name not in view.incomplete and not any(ledger is None for ledger, _, _ in damage)
        taken = _BookieRows(world, bookie, complete=complete)
        named = {ledger for ledger, _, _ in damage if ledger is not None}
        for ledger in sorted({*bookie.shelves, *bookie.dropped}):
            dead, shelf = bookie.dropped.get(ledger), bookie.shelves.get(ledger)
            shelf_or_dropped = shelf or dead
            if shelf_or_dropped is None:
                continue
            taken.take(
                ledger,
                shelf_or_dropped,
                hidden.get(ledger, frozenset()),
                named=ledger in named,
                logged=name in view.unindexed,
            )
            own = {**shelf_or_dropped.index, **({} if bookie.clean else shelf_or_dropped.fresh)}
            own = {entry: copy for entry, copy in own.items() if entry not in hidden.get(ledger, ())}
            if own:
                served.setdefault(ledger, {})[name] = own
            elif shelf_or_dropped.left:
                leftovers.setdefault(ledger, []).append(name)
        parts += taken.tables()
        folders = [_folder_row("ledger", complete=complete), _folder_row("index", complete=name not in view.incomplete)]
        rows.append(_bookie_row(bookie, taken, complete=complete and not named, damaged=len(damage), folders=folders))
        harms += [_damage_row(bookie, ledger, entries) for ledger, _, entries in damage]
    return Inventory(
        pa.concat_tables(parts) if parts else tables.COPIES.empty_table(),
        pa.Table.from_pylist(rows, schema=tables.BOOKIES),
        pa.Table.from_pylist(harms, schema=tables.DAMAGE),
        served,
        leftovers,
        view.unscanned,
    )


class _BookieRows:
    """Columns of one bookie's rows, gathered ledger by ledger, as `recovery.collect.merge` puts them together."""

    def __init__(self, world: World, bookie: Bookie, *, complete: bool) -> None:
        self._world, self._bookie, self._complete = world, bookie, complete
        self._entries: dict[CopySource, tuple[list[int], list[int]]] = {source: ([], []) for source in CopySource}
        self._heads: dict[CopySource, list[tuple[int, ...]]] = {source: [] for source in CopySource}
        self._rows: dict[CopySource, list[int]] = {source: [] for source in CopySource}
        self._known: dict[int, tuple[bool, bool, int, int, bytes | None]] = {}
        self._keys: dict[bytes, int] = {}
        self.entries = 0

    def take(self, ledger: int, shelf: Shelf, hidden: Collection[int], *, named: bool, logged: bool) -> None:
        """Take what a bookie has of one ledger."""
        known = self._list_records(ledger)
        record = next((record for record in known if record.key == shelf.key), known[0])
        index = _leave_out(shelf.index, hidden)
        journal = {entry: copy for entry, copy in shelf.fresh.items() if entry not in shelf.index}
        log = {e: copy for e, copy in shelf.left.items() if e not in shelf.index and e not in shelf.fresh}
        if logged:
            log |= {entry: copy for entry, copy in shelf.index.items() if entry in hidden}
        if self._bookie.clean:
            log, journal = {**log, **journal}, {}
        listed = bool(index) or (shelf.listed and not (logged and hidden)) or named
        for source, copies_of in ((CopySource.INDEX, index), (CopySource.JOURNAL, journal), (CopySource.LOG, log)):
            ledgers, entries = self._entries[source]
            ledgers.extend([ledger] * len(copies_of))
            entries.extend(copies_of)
            if copies_of:
                self._heads[source] += _yield_headers(ledger, copies_of, known, is_each=source is not CopySource.INDEX)
        if listed:
            self._rows[CopySource.INDEX].append(ledger)
        if journal or (not listed and not log and shelf.said):
            self._rows[CopySource.JOURNAL].append(ledger)
        if log:
            self._rows[CopySource.LOG].append(ledger)
        self.entries += len(index) + len(journal)
        explicit = shelf.explicit if shelf.explicit > NO_ENTRY - 1 else NO_LAC
        raw = encode_lac_record(ledger, explicit, record.digest, record.password) if explicit != NO_LAC else None
        key = self._keys.setdefault(shelf.key, len(self._keys)) if shelf.keyed or shelf.listed else -1
        self._known[ledger] = (self._complete and not named, shelf.fence_stored, key, explicit, raw)

    def _list_records(self, ledger: int) -> list[Record]:
        """Return the records that an id has and had, the present one first."""
        world = self._world
        records = (world.records.get(ledger), world.deleted.get(ledger), world.forgotten.get(ledger))
        return [record for record in records if record is not None]

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows."""
        for source in CopySource:
            ledgers = self._rows[source]
            if not ledgers:
                continue
            key, entries = (np.array(column, np.int64) for column in self._entries[source])
            known = [self._known[ledger] for ledger in ledgers]
            whole = [row[0] and source is not CopySource.LOG for row in known]
            facts = Known(
                np.array(ledgers, np.int64),
                np.array(whole, np.bool_),
                np.array([row[1] for row in known], np.bool_),
                np.zeros(len(known), np.bool_),
                np.array([row[2] for row in known], np.int64),
                [make_stamp(key) for key in self._keys],
                np.array([row[3] for row in known], np.int64),
                [row[4] for row in known],
            )
            heads = np.array(self._heads[source], np.int64).reshape(-1, 6)
            yield make_copies(
                source, facts, to_groups(key, entries), heads, self._bookie.name, self._bookie.incarnation
            )

    @property
    def ledgers(self) -> int:
        """How many ledgers have a row."""
        return len(self._known)


def _leave_out(copies_of: dict[int, Copy], hidden: Collection[int]) -> dict[int, Copy]:
    return {entry: copy for entry, copy in copies_of.items() if entry not in hidden} if hidden else copies_of


def _yield_headers(
    ledger: int, copies_of: Mapping[int, Copy], records: Sequence[Record], *, is_each: bool
) -> Iterator[tuple[int, ...]]:
    """Yield the headers that are read: of the first entry and the last; of one more where that tells no digest."""
    by_life = {record.life: record for record in reversed(records)}
    first, last = min(copies_of), max(copies_of)

    def shows_digest(copy: Copy) -> bool:
        record = by_life.get(copy.life, records[0])
        return record.digest in (Digest.CRC32, Digest.CRC32C) or (record.digest is Digest.HMAC and not record.password)

    for entry in dict.fromkeys(
        (last, last - 1, first) if is_each or not shows_digest(copies_of[last]) else (last, first)
    ):
        copy = copies_of.get(entry)
        if copy is not None:
            digest = by_life.get(copy.life, records[0]).digest
            size = copy.size + _HEADER_SIZE + DIGEST_SIZES[digest]
            yield ledger, entry, copy.lac, copy.length, size, DIGESTS.index(digest) if shows_digest(copy) else -1


def _folder_row(role: str, *, complete: bool) -> dict[str, Any]:
    return {"path": role, "role": role, "complete": complete, "bytes": 0, "unread": 0}


def _bookie_row(
    bookie: Bookie, taken: _BookieRows, *, complete: bool, damaged: int, folders: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    return {
        "bookie": bookie.name,
        "incarnation": bookie.incarnation,
        "incarnation_evidence": [],
        "version_files": [],
        "storage": "db" if bookie.database else "interleaved",
        "mode": "disks",
        "dirty": not bookie.clean,
        "started": _TIME,
        "ended": _TIME,
        "complete": complete,
        "dirs": folders,
        "journals": [],
        "max_ids": [],
        "ledgers": taken.ledgers,
        "entries": taken.entries,
        "damaged": damaged,
    }


def _list_groups(entries: Collection[int]) -> list[dict[str, int]]:
    groups = group_entries(np.array(sorted(entries), np.int64))
    columns = zip(*(column.tolist() for column in groups[1:]), strict=True)
    return [dict(zip(("first", "last", "size", "period"), group, strict=True)) for group in columns]


def _damage_row(bookie: Bookie, ledger: int | None, entries: Collection[int]) -> dict[str, Any]:
    return {
        "bookie": bookie.name,
        "incarnation": bookie.incarnation,
        "file": "0.log",
        "offset": 1024,
        "length": 100,
        "reason": "bad_length",
        "scope": None if ledger is None else 0,
        "ledger": ledger,
        "hides_entries": True,
        "detail": f"{len(entries)} entries",
        # Half of it as an index has it that lists what a torn log had; the other half as of a damaged index file.
        "hides": "unlisted" if ledger is None else "ledger",
        "entries": _list_groups(entries) if ledger is not None and ledger % 2 else None,
    }
