"""A database of a bookie read alone: its locations, ledgers or cached maps."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from backends.errors import BackendError
from backends.rocks import open_read_only
from recovery.codecs import entry, ledger_db
from recovery.errors import Damage, FormatError, InputError, Reason
from recovery.inspect.file_kinds import CURRENT, FileKind
from recovery.inspect.file_notes import (
    FileNotes,
    FileReport,
    Ints,
    LedgerIds,
    describe_key,
    describe_lac,
    describe_place,
    make_report,
    note_logs,
)
from recovery.model.ids import LedgerId


def read_database(folder: Path) -> FileReport:
    """Read every row of a database; nothing is written beside it.

    Raises:
        InputError: the folder holds no database.
        OSError: it cannot be read.
    """
    if not (folder / CURRENT).is_file():
        problem = "is a folder without a database"
        raise InputError(str(folder), problem, "name one of its files, or its locations or ledgers folder")
    notes = FileNotes()
    size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    kind = FileKind.LOCATIONS if folder.name.startswith("locations") else FileKind.LEDGERS
    scoped = folder.name.partition(".")[0].endswith("-scoped")
    if folder.name == "metadata-cache":
        kind = FileKind.CACHED_MAPS
    try:
        with open_read_only(folder) as database:
            if database.damage is not None:
                notes.add_damage(Damage(0, 0, Reason.BAD_VALUE, f"write-ahead log: {database.damage}"))
            batches = database.items()
            keys, values = next(batches, ([], []))
            if not folder.name.startswith(("locations", "ledgers", "metadata-cache")) and keys:
                kind = FileKind.LOCATIONS if (len(keys[0]), len(values[0])) == (16, 8) else FileKind.LEDGERS
            rows = _chain_batches(keys, values, batches)
            if kind is FileKind.CACHED_MAPS:
                _read_cached_maps(rows, notes)
            else:
                (_read_locations if kind is FileKind.LOCATIONS else _read_ledgers)(rows, notes, scoped=scoped)
    except BackendError as error:
        notes.add_damage(Damage(0, 0, Reason.UNREADABLE, str(error)))
    if not notes.counts["rows"]:
        notes.notes.append("no rows")
    return make_report(folder, kind, size, notes)


Batches = Iterator[tuple[list[bytes], list[bytes]]]


def _chain_batches(keys: list[bytes], values: list[bytes], rest: Batches) -> Batches:
    yield keys, values
    yield from rest


def _read_cached_maps(batches: Batches, notes: FileNotes) -> None:
    ledgers = LedgerIds()
    rows = 0
    for keys, values in batches:
        for key, value in zip(keys, values, strict=True):
            rows += 1
            try:
                listed = ledger_db.decode_cached_map(key, value)
            except FormatError as error:
                notes.add_damage(Damage(rows - 1, 0, error.reason, error.detail))
                continue
            ledgers.merge(np.fromiter(listed, np.int64, len(listed)))
            text = f"log {int.from_bytes(key):x}: {len(listed)} ledgers, {sum(listed.values())} bytes of entries"
            notes.first = notes.first or text
            notes.last = text
    notes.counts.update(rows=rows, ledgers=ledgers.count())
    notes.ranges += ledgers.spans()


def _read_locations(batches: Batches, notes: FileNotes, *, scoped: bool) -> None:
    ledgers = LedgerIds()
    logs: Ints = np.empty(0, np.int64)
    rows = 0
    for keys, values in batches:
        part = ledger_db.decode_locations(keys, values, scoped=scoped)
        for damage in part.damage:
            notes.add_damage(Damage(rows + damage.offset, 0, damage.reason, damage.detail))
        rows += len(keys)
        notes.counts.update(rows=len(keys), entries=len(part.ledger))
        if len(part.ledger):
            scope = np.zeros_like(part.ledger) if part.scope is None else part.scope
            ends = [
                f"ledger {LedgerId(int(scope[n]), int(part.ledger[n]))}, "
                f"{describe_place(int(part.entry[n]), int(part.location[n]))}"
                for n in (0, -1)
            ]
            notes.first = notes.first or ends[0]
            notes.last = ends[1]
            ledgers.merge(part.ledger, part.scope)
            logs = np.union1d(logs, part.location >> 32)
    notes.counts["ledgers"] = ledgers.count()
    notes.ranges += ledgers.spans()
    note_logs(logs, notes)


def _read_ledgers(batches: Batches, notes: FileNotes, *, scoped: bool) -> None:
    decode = ledger_db.decode_scoped_ledgers_row if scoped else ledger_db.decode_ledgers_row
    ledgers = LedgerIds()
    keys_seen: Counter[str] = Counter()
    rows = 0
    for keys, values in batches:
        for key, value in zip(keys, values, strict=True):
            rows += 1
            try:
                row = decode(key, value)
            except FormatError as error:
                notes.add_damage(Damage(rows - 1, 0, error.reason, error.detail))
                continue
            if isinstance(row, ledger_db.StorageFlags):
                notes.header["needs integrity check"] = "yes" if row.needs_integrity_check else "no"
            elif row is None:
                notes.counts["reserved"] += 1
            else:
                ledgers.add(row.ledger, row.scope)
                notes.counts.update(
                    fenced=row.fenced, limbo=bool(row.limbo), rebuilt=row.rebuilt, explicit_lacs=bool(row.explicit_lac)
                )
                keys_seen[entry.key_kind(row.master_key)] += 1
                name = LedgerId(row.scope, row.ledger)
                stored, lac = describe_key(row.master_key), describe_lac(row.explicit_lac)
                text = f"ledger {name}, master key {stored}, explicit LAC {lac}"
                notes.first = notes.first or text
                notes.last = text
    notes.counts.update(rows=rows, ledgers=ledgers.count())
    notes.counts.update({f"keys_{kind}": count for kind, count in keys_seen.items()})
    notes.ranges += ledgers.spans()
