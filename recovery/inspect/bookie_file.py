"""One file of a bookie or a store read alone: its header, what it counts and spans, and what of it is damaged.

`file_kinds` tells what a file is. Here are the readers of index files, entry logs and journals.

Source: docs/formats/bookie-storage.md, and the codecs of `recovery.codecs`.
"""

import re
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from recovery.codecs import entry_log, index_file, journal
from recovery.codecs.entry_log import EntryAt
from recovery.codecs.framing import Key, is_entry, zeros_end
from recovery.collect.disk.file_reader import Mapped, Meter
from recovery.errors import Damage, FormatError, InputError, Reason
from recovery.inspect import store_file
from recovery.inspect.database import read_database
from recovery.inspect.file_kinds import HEAD, FileKind, is_too_large, kind_of
from recovery.inspect.file_notes import (
    LISTED,
    EntryRanges,
    FileNotes,
    FileReport,
    Ints,
    LedgerIds,
    describe_entry,
    describe_key,
    describe_lac,
    describe_place,
    make_report,
    note_damage,
    note_logs,
)
from recovery.inspect.small_files import (
    read_cookie,
    read_dirty,
    read_last_id,
    read_last_mark,
    read_metadata,
    read_status,
)
from recovery.model.ids import LedgerId

_PLAIN_INDEX: Final = re.compile(r"([0-9a-f]{1,16})\.idx", re.IGNORECASE)
_SLICE: Final = 1 << 20
"""Slots of an index looked at at a time."""


def look(path: Path) -> FileReport:
    """Read one file, or the folder of a database; nothing is written beside it.

    Raises:
        InputError: it is missing, cannot be read, or is not a file of a bookie that is known.
    """
    remedy = "name a file of a bookie, or its locations or ledgers folder"
    try:
        if path.is_dir():
            return read_database(path)
        if not path.is_file():
            problem = "is not a regular file" if path.exists() else "no such file"
            raise InputError(str(path), problem, remedy)
        if is_too_large(path, path.stat().st_size):
            raise InputError(str(path), "has more bytes than any file of this name", remedy)
        with Mapped(path, Meter(None, lambda _progress: None)) as content:
            content.load()
            kind, odd = kind_of(path, bytes(content.view[:HEAD]))
            notes = FileNotes(notes=odd)
            for offset, length in content.unreadable:
                notes.add_damage(Damage(offset, length, Reason.UNREADABLE, "the disk refuses; read as zeros"))
            _READERS[kind](path, content.view, notes)
            return make_report(path, kind, content.size, notes)
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror})", "fix the rights or the disk") from error


def _read_index(path: Path, content: memoryview, notes: FileNotes) -> None:
    name = path.name.removesuffix(".rloc")
    scoped = index_file.parse_scoped_ledger("/".join([*path.absolute().parts[-4:-1], name]))
    ledger = int(plain[1], 16) if (plain := _PLAIN_INDEX.fullmatch(name)) is not None else None
    if scoped is not None:
        notes.header["ledger"] = str(scoped)
    elif ledger is not None:
        notes.header["ledger"] = str(ledger)
        belongs = index_file.path_of(ledger)
        if "/".join([*path.absolute().parts[-3:-1], name]) != belongs:
            notes.notes.append(f"a bookie looks for this ledger's index at {belongs}")
    try:
        header = index_file.decode_header(content[: index_file.HEADER_SIZE])
        notes.header |= {
            "version": str(header.version),
            "master key": describe_key(header.master_key),
            "fenced": "yes" if header.fenced else "no (which proves nothing)",
            "explicit LAC": describe_lac(header.explicit_lac),
        }
    except FormatError as error:
        notes.add_error(error)
    body = content[index_file.HEADER_SIZE :]
    torn = len(body) % index_file.SLOT
    if torn:
        notes.add_damage(Damage(len(content) - torn, torn, Reason.TRUNCATED, "a slot"))
    groups = EntryRanges()
    logs: Ints = np.empty(0, np.int64)
    for low in range(0, len(body) // index_file.SLOT, _SLICE):
        slots = index_file.slots(body[low * index_file.SLOT : (low + _SLICE) * index_file.SLOT])
        taken = np.flatnonzero(slots)
        places, entries = slots[taken], taken + low
        notes.counts.update(slots=len(slots), entries=len(taken))
        groups.add(entries)
        for slot in entries[places < 0].tolist():
            where = index_file.HEADER_SIZE + slot * index_file.SLOT
            notes.add_damage(Damage(where, index_file.SLOT, Reason.BAD_VALUE, f"a place of no log for entry {slot}"))
        if len(taken):
            notes.first = notes.first or describe_place(int(entries[0]), int(places[0]))
            notes.last = describe_place(int(entries[-1]), int(places[-1]))
            logs = np.union1d(logs, places[places > 0] >> 32)
    notes.ranges += groups.end()
    note_logs(logs, notes)


def _is_continued(log: memoryview, map_offset: int) -> bool:
    """Whether a map is at a place in a log, and an entry behind it."""
    if not entry_log.HEADER_SIZE <= map_offset < len(log):
        return False
    behind = max((end for _, end, _ in entry_log.between(log, map_offset, len(log))), default=0)
    return is_entry(log, behind)


def _read_log(path: Path, content: memoryview, notes: FileNotes) -> None:
    log_id = entry_log.log_id_of(path.name)
    if log_id is not None:
        notes.header["log id"] = f"{log_id:x}"
    if not content:
        notes.notes.append("no bytes: made ahead of time, or its writer was killed before its first flush")
        return
    listed: dict[Key, int] | None = None
    try:
        header = entry_log.decode_header(content[: entry_log.HEADER_SIZE])
        notes.header |= {
            "version": str(header.version),
            "written by": "the direct I/O logger" if entry_log.is_direct(content) else "the default logger",
        }
        if header.map_offset:
            listed = entry_log.read_map(content, header)
            notes.header["ledgers map"] = f"at byte {header.map_offset}, {header.map_ledgers} ledgers"
            if listed is None and _is_continued(content, header.map_offset):
                notes.notes.append("records follow the ledgers map, so it does not count: no next log could be made")
            elif listed is None:
                notes.add_damage(Damage(header.map_offset, 0, Reason.BAD_VALUE, "the ledgers map is not valid"))
                if entry_log.find_map_fault(content, header) is not None:
                    notes.notes.append(f"no ledgers map is at that byte. {entry_log.UNCLEARED_HEADERS}")
        else:
            notes.header["ledgers map"] = "none: the log was never rotated"
    except FormatError as error:
        if zeros_end(content, 0) < len(content):
            notes.add_error(error)
    ledgers = LedgerIds()
    first: EntryAt | None = None
    last: EntryAt | None = None
    entries = size = 0
    for part in entry_log.scan(content):
        if isinstance(part, Damage):
            note_damage(part, len(content), notes)
            continue
        first = first or part
        last = part
        entries += 1
        size += part.size
        ledgers.add(part.ledger, part.scope)
    notes.counts.update(entries=entries, entry_bytes=size, ledgers=ledgers.count())
    for end, name in ((first, "first"), (last, "last")):
        if end is not None:
            record = content[end.position : end.position + end.size]
            setattr(notes, name, describe_entry(record, LedgerId(end.scope, end.ledger), end.entry, end.position))
    notes.ranges += ledgers.spans()
    if listed is not None:
        other = set(listed) ^ ledgers.keys()
        if other:
            first_of = min((LedgerId(*key) if isinstance(key, tuple) else LedgerId(0, key)) for key in other)
            notes.notes.append(f"the map and the records differ in {len(other)} ledgers, ledger {first_of} first")


def _read_journal(path: Path, content: memoryview, notes: FileNotes) -> None:
    journal_id = journal.journal_id_of(path.name)
    if journal_id is not None:
        notes.header["journal id"] = f"{journal_id:x}"
    try:
        version, header_size = journal.header_of(content)
    except FormatError as error:
        notes.add_error(error)
        return
    notes.header |= {"version": str(version), "header": f"{header_size} bytes"}
    ledgers = LedgerIds()
    keys: set[str] = set()
    ends: deque[tuple[int, str]] = deque(maxlen=1)
    entry_bytes = 0
    for part in journal.scan(content):
        if isinstance(part, Damage):
            note_damage(part, len(content), notes)
            continue
        kind, text = _journal_record(part)
        notes.counts[kind] += 1
        ledgers.add(part.ledger, part.scope)
        if isinstance(part, journal.JournalEntry):
            entry_bytes += part.size
        if isinstance(part, journal.MasterKeyRecord) and len(keys) < LISTED:
            keys.add(describe_key(part.key))
        if not notes.first:
            notes.first = _entry_of(part, content) or text
        ends.append((part.at, _entry_of(part, content) or text))
    notes.counts.update(entry_bytes=entry_bytes, ledgers=ledgers.count())
    if ends:
        notes.last = ends[-1][1]
    if keys:
        notes.header["master keys"] = "; ".join(sorted(keys))
    notes.ranges += ledgers.spans()


def _journal_record(part: journal.Record) -> tuple[str, str]:
    ledger = LedgerId(part.scope, part.ledger)
    match part:
        case journal.JournalEntry():
            return "entries", ""
        case journal.MasterKeyRecord():
            return "master_keys", f"master key of ledger {ledger}, at byte {part.at}: {describe_key(part.key)}"
        case journal.FenceRecord():
            return "fences", f"fence of ledger {ledger}, at byte {part.at}"
        case journal.LacRecordAt():
            return "explicit_lacs", f"explicit LAC of ledger {ledger}, at byte {part.at}: {describe_lac(part.raw)}"
        case journal.UnknownRecord():
            return "unknown", f"record of unknown kind {part.entry:#x} of ledger {ledger}, at byte {part.at}"


def _entry_of(part: journal.Record, content: memoryview) -> str:
    if not isinstance(part, journal.JournalEntry):
        return ""
    return describe_entry(
        content[part.at : part.at + part.size], LedgerId(part.scope, part.ledger), part.entry, part.at
    )


def _read_zk_snapshot(path: Path, _content: memoryview, notes: FileNotes) -> None:
    store_file.read_zookeeper_snapshot(path, notes)


def _read_zk_log(path: Path, _content: memoryview, notes: FileNotes) -> None:
    store_file.read_zookeeper_log(path, notes)


def _read_etcd(path: Path, _content: memoryview, notes: FileNotes) -> None:
    store_file.read_etcd_database(path, notes)


_READERS: Final[dict[FileKind, Callable[[Path, memoryview, FileNotes], None]]] = {
    FileKind.INDEX: _read_index,
    FileKind.LOG: _read_log,
    FileKind.JOURNAL: _read_journal,
    FileKind.LAST_MARK: read_last_mark,
    FileKind.LAST_ID: read_last_id,
    FileKind.COOKIE: read_cookie,
    FileKind.STATUS: read_status,
    FileKind.DIRTY: read_dirty,
    FileKind.METADATA: read_metadata,
    FileKind.ZK_SNAPSHOT: _read_zk_snapshot,
    FileKind.ZK_LOG: _read_zk_log,
    FileKind.ETCD: _read_etcd,
}
