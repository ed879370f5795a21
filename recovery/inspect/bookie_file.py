"""One file of a bookie read alone: what kind it is, its header, what it counts and spans, and what of it is damaged.

    kind               by its name                      by its first bytes
    index file         <hex>.idx, <hex>.idx.rloc        BKLE
    entry log          <hex>.log, and what compactions  BKLO
                       leave of one
    journal            <hex>.txn                        BKLG; none in version 1
    replay mark        lastMark, lastMark.<n>           none
    newest log id      lastId                           none
    cookie             VERSION                          a number, then bookieHost in layouts 4 and 5
    bookie status      BOOKIE_STATUS                    none
    dirty marker       DIRTY                            none: no bytes
    locations, ledgers a folder with a file CURRENT;    the length of its first key
                       of scopes with -scoped behind
    cached maps        the folder metadata-cache        none
    ledger metadata    any                              BookieMetadataFormatVersion
    ZooKeeper log      any                              ZKLG
    its snapshot       any; snapshot.<zxid>.gz,         ZKSN; of gzip and snappy
                       snapshot.<zxid>.snappy

First bytes win over a name. Payload, passwords and master keys are never shown; a key is named by the first digits of
its SHA-256.

Source: bookie-storage §1.2, and the codecs of `recovery.codecs`.
"""

import hashlib
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from backends.errors import BackendError
from backends.rocks import open_read_only
from backends.zkfiles import snapshot, txnlog
from recovery.codecs import cookie, entry, entry_log, index_file, journal, ledger_db, ledger_metadata
from recovery.codecs.entry_log import EntryAt
from recovery.codecs.framing import Key, is_entry, zeros_end
from recovery.collect.disk.file_reader import Mapped, Meter
from recovery.collect.rows.source_copies import Grouper, runs_of
from recovery.errors import Damage, FormatError, InputError, Reason
from recovery.inspect import store_file
from recovery.inspect.store_file import Facts
from recovery.model.groups import KeyedGroups
from recovery.model.ids import LedgerId, unsigned

Ints = npt.NDArray[np.int64]

_PLAIN_INDEX: Final = re.compile(r"([0-9a-f]{1,16})\.idx", re.IGNORECASE)
LISTED: Final = 100
"""Pieces of damage, ranges and ledgers that are given one by one; all are counted."""
HASH_DIGITS: Final = 12
"""Of the SHA-256 of a master key: enough to tell two keys apart, and nothing to guess from."""
HEAD: Final = 1024
"""First bytes that a kind is told by."""
_MERGE: Final = 1 << 16
"""Ledger ids gathered before doubles are taken out."""
_SLICE: Final = 1 << 20
"""Slots of an index looked at at a time."""
CURRENT: Final = "CURRENT"
"""The file that makes a folder a RocksDB."""
_BOOKIE_STATUS: Final = re.compile(r"[0-9]+,(READ_WRITE|READ_ONLY),[0-9]+(,(true|false))?")
_SMALL: Final = re.compile(r"VERSION|lastMark(\.[0-9]+)?|lastId|BOOKIE_STATUS|DIRTY")
_LARGEST_SMALL: Final = 1 << 20
"""Bytes of a file of these names: the largest is the cookie, which lists folders."""
_LAST_ID: Final = re.compile(rb"([0-9a-fA-F]{1,8})\n?")
_COOKIE: Final = re.compile(rb"[0-9]{1,9}\n(bookieHost:|[^\x00-\x1f]+\n[^\x00-\x1f]+\n[0-9]+\t)")
_FOREIGN: Final = {
    b"PAR1": "a Parquet file; name the folder of the dataset to the command that reads it",
}


class Kind(StrEnum):
    """What a file is; stored in --json, so never renamed."""

    INDEX = "index file"
    LOG = "entry log"
    JOURNAL = "journal"
    LAST_MARK = "replay mark"
    LAST_ID = "newest log id"
    COOKIE = "cookie"
    STATUS = "bookie status"
    DIRTY = "dirty marker"
    LOCATIONS = "locations database"
    LEDGERS = "ledgers database"
    CACHED_MAPS = "cached maps database"
    METADATA = "ledger metadata"
    ZK_SNAPSHOT = "ZooKeeper snapshot"
    ZK_LOG = "ZooKeeper transaction log"


_NAMES: Final = (
    (Kind.INDEX, re.compile(r"[0-9a-f]{1,16}\.idx(\.rloc)?")),
    (Kind.LOG, re.compile(r"[0-9a-fA-F]{1,8}\.log(\.compacting|\.[0-9a-fA-F]{1,8}\.compacted)?")),
    (Kind.JOURNAL, re.compile(r"[0-9a-f]{1,16}\.txn")),
    (Kind.LAST_MARK, re.compile(r"lastMark(\.\d+)?")),
    (Kind.LAST_ID, re.compile(r"lastId")),
    (Kind.COOKIE, re.compile(r"VERSION")),
    (Kind.STATUS, re.compile(r"BOOKIE_STATUS")),
    (Kind.DIRTY, re.compile(r"DIRTY")),
    (Kind.ZK_SNAPSHOT, snapshot.NAME),
)
_MAGICS: Final = (
    (Kind.INDEX, re.compile(rb"BKLE")),
    (Kind.LOG, re.compile(rb"BKLO")),
    (Kind.JOURNAL, re.compile(rb"BKLG")),
    (Kind.METADATA, re.compile(re.escape(ledger_metadata.MAGIC))),
    (Kind.COOKIE, _COOKIE),
    (Kind.ZK_SNAPSHOT, re.compile(re.escape(snapshot.MAGIC))),
    (Kind.ZK_LOG, re.compile(re.escape(txnlog.MAGIC))),
)


@dataclass(frozen=True, slots=True)
class Looked:
    """What one file is and holds.

    Attributes:
        path: as it was given.
        kind: what it was read as.
        size: in bytes; of all files of a database.
        header: what stands at its front, or all of a small file.
        counts: what was counted.
        first, last: the first and the last thing in it, in words.
        ranges: what it spans, in words.
        damage: the first `LISTED` pieces.
        damaged: how many there are.
        notes: what is odd and no damage.
    """

    path: Path
    kind: Kind
    size: int
    header: dict[str, str]
    counts: dict[str, int]
    first: str
    last: str
    ranges: tuple[str, ...]
    damage: tuple[Damage, ...]
    damaged: int
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Notes:
    """What is gathered while a file is read."""

    header: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    first: str = ""
    last: str = ""
    ranges: list[str] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    damaged: int = 0
    notes: list[str] = field(default_factory=list)

    def broken(self, found: Damage) -> None:
        self.damaged += 1
        if len(self.damage) < LISTED:
            self.damage.append(found)

    def take(self, facts: Facts) -> None:
        """Take what the reader of another store's file found."""
        self.header |= facts.header
        self.counts.update(facts.counts)
        self.first, self.last = facts.first, facts.last
        self.ranges += facts.ranges
        self.notes += facts.notes
        for one in facts.damage:
            self.broken(one)

    def refused(self, error: FormatError, base: int = 0) -> None:
        self.broken(Damage(base + error.offset, 0, error.reason, error.detail))


class _Ledgers:
    """Distinct ledger ids of each scope, in memory that grows with them only."""

    def __init__(self) -> None:
        self._known: dict[int, Ints] = {}
        self._fresh: dict[int, list[int]] = {}

    def add(self, ledger: int, scope: int = 0) -> None:
        fresh = self._fresh.setdefault(scope, [])
        fresh.append(ledger)
        if len(fresh) >= _MERGE:
            self._settle()

    def merge(self, ledgers: Ints, scope: Ints | None = None) -> None:
        for one in (0,) if scope is None else np.unique(scope).tolist():
            added = ledgers if scope is None else ledgers[scope == one]
            self._known[one] = np.union1d(self._known.get(one, added[:0]), added)

    def _settle(self) -> dict[int, Ints]:
        for scope, fresh in self._fresh.items():
            self._known[scope] = np.union1d(self._known.get(scope, np.empty(0, np.int64)), np.array(fresh, np.int64))
        self._fresh.clear()
        return self._known

    def count(self) -> int:
        return sum(map(len, self._settle().values()))

    def keys(self) -> set[Key]:
        return {(scope, one) if scope else one for scope, known in self._settle().items() for one in known.tolist()}

    def spans(self) -> list[str]:
        """Return ids as ranges, a line a scope."""
        found = sorted(self._settle().items(), key=lambda item: unsigned(item[0]))
        more = [f"and ledgers of {len(found) - LISTED} more scopes"] if len(found) > LISTED else []
        return [line for scope, known in found[:LISTED] for line in _span(known, scope)] + more


def look(path: Path) -> Looked:
    """Read one file, or the folder of a database; nothing is written beside it.

    Raises:
        InputError: it is missing, cannot be read, or is no file of a bookie that is known.
    """
    remedy = "name a file of a bookie, or its locations or ledgers folder"
    try:
        if path.is_dir():
            return _look_at_database(path)
        if not path.is_file():
            problem = "is not a regular file" if path.exists() else "no such file"
            raise InputError(str(path), problem, remedy)
        if is_too_large(path, path.stat().st_size):
            raise InputError(str(path), "has more bytes than any file of this name", remedy)
        with Mapped(path, Meter(None, lambda _progress: None)) as content:
            content.load()
            kind, notes = kind_of(path, bytes(content.view[:HEAD]))
            found = _Notes(notes=notes)
            for at, length in content.unreadable:
                found.broken(Damage(at, length, Reason.UNREADABLE, "the disk refuses; read as zeros"))
            _READERS[kind](path, content.view, found)
            return _result(path, kind, content.size, found)
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror})", "mend the rights or the disk") from error


def is_too_large(path: Path, size: int) -> bool:
    """Tell whether a file is larger than its name allows; it need not be read then, which may never end."""
    return size > _LARGEST_SMALL and _SMALL.fullmatch(path.name) is not None


def _result(path: Path, kind: Kind, size: int, found: _Notes) -> Looked:
    return Looked(
        path,
        kind,
        size,
        found.header,
        dict(found.counts),
        found.first,
        found.last,
        tuple(found.ranges),
        tuple(found.damage),
        found.damaged,
        tuple(found.notes),
    )


def kind_of(path: Path, head: bytes) -> tuple[Kind, list[str]]:
    """Tell what a file is by its first `HEAD` bytes and its name, and what is odd about its name.

    Raises:
        InputError: it is nothing that is known.
    """
    named = next((kind for kind, pattern in _NAMES if pattern.fullmatch(path.name)), None)
    marked = next((kind for kind, pattern in _MAGICS if pattern.match(head)), None)
    if marked is not None:
        odd = named is not None and named is not marked
        return marked, [f"its name is that of another kind: {named}"] if odd else []
    for magic, what in _FOREIGN.items():
        if head.startswith(magic):
            raise InputError(str(path), f"is {what}", "name a file of a bookie")
    if named is not None and named not in (Kind.INDEX, Kind.LOG, Kind.COOKIE):
        return named, []
    if (path.parent / CURRENT).is_file() and named in (None, Kind.LOG):
        raise InputError(str(path), "is one file of a RocksDB", f"name its folder: {path.parent}")
    if named is not None:
        return named, []
    problem = "has neither the name nor the first bytes of any file of a bookie"
    raise InputError(str(path), problem, "give it the name that it had on the bookie")


def _key(stored: bytes) -> str:
    kind = entry.key_kind(stored)
    return f"set, SHA-256 {hashlib.sha256(stored).hexdigest()[:HASH_DIGITS]}…" if kind == "set" else kind


def _lac(raw: bytes | None) -> str:
    if raw is None:
        return "none"
    try:
        found = entry.decode_lac_record(raw)
    except FormatError as error:
        return f"not readable ({error.reason})"
    agrees = entry.lac_record_agrees(raw)
    return f"{found.lac}, {found.digest}" + (", digest agrees" if agrees else "")


def _entry(record: memoryview, ledger: LedgerId, number: int, at: int) -> str:
    text = f"ledger {ledger}, entry {number}, at byte {at}, {len(record)} bytes"
    try:
        header = entry.decode_header(record)
    except FormatError:
        return f"{text}, without the header of an entry"
    proven = entry.find_digest(record)
    digest = f"{proven[0]} agrees" if proven else "no digest agrees without a password"
    return f"{text}, LAC {header.lac}, length {header.length}, {digest}"


def _span(ledgers: Ints, scope: int) -> list[str]:
    """Return ids as ranges, the first few and how many more there are."""
    if not len(ledgers):
        return []
    ledgers = np.sort(ledgers.view(np.uint64))
    starts = np.flatnonzero(np.append(True, ledgers[1:] != ledgers[:-1] + np.uint64(1)))
    ends = np.append(starts[1:], len(ledgers)) - 1
    pairs = list(zip(ledgers[starts[:LISTED]].tolist(), ledgers[ends[:LISTED]].tolist(), strict=True))
    shown = [str(low) if low == high else f"{low} to {high}" for low, high in pairs]
    more = [f"and {len(starts) - LISTED} more ranges"] if len(starts) > LISTED else []
    return [(f"ledgers of scope {unsigned(scope)}: " if scope else "ledgers ") + ", ".join([*shown, *more])]


def _read_index(path: Path, content: memoryview, found: _Notes) -> None:
    name = path.name.removesuffix(".rloc")
    scoped = index_file.scoped_ledger_of("/".join([*path.absolute().parts[-4:-1], name]))
    ledger = int(plain[1], 16) if (plain := _PLAIN_INDEX.fullmatch(name)) is not None else None
    if scoped is not None:
        found.header["ledger"] = str(scoped)
    elif ledger is not None:
        found.header["ledger"] = str(ledger)
        belongs = index_file.path_of(ledger)
        if "/".join([*path.absolute().parts[-3:-1], name]) != belongs:
            found.notes.append(f"a bookie looks for this ledger's index at {belongs}")
    try:
        header = index_file.decode_header(content[: index_file.HEADER_SIZE])
        found.header |= {
            "version": str(header.version),
            "master key": _key(header.master_key),
            "fenced": "yes" if header.fenced else "no (which proves nothing)",
            "explicit LAC": _lac(header.explicit_lac),
        }
    except FormatError as error:
        found.refused(error)
    body = content[index_file.HEADER_SIZE :]
    torn = len(body) % index_file.SLOT
    if torn:
        found.broken(Damage(len(content) - torn, torn, Reason.TRUNCATED, "a slot"))
    groups = _Ranges()
    logs: Ints = np.empty(0, np.int64)
    for low in range(0, len(body) // index_file.SLOT, _SLICE):
        slots = index_file.slots(body[low * index_file.SLOT : (low + _SLICE) * index_file.SLOT])
        taken = np.flatnonzero(slots)
        places, entries = slots[taken], taken + low
        found.counts.update(slots=len(slots), entries=len(taken))
        groups.add(entries)
        for slot in entries[places < 0].tolist():
            where = index_file.HEADER_SIZE + slot * index_file.SLOT
            found.broken(Damage(where, index_file.SLOT, Reason.BAD_VALUE, f"a place of no log for entry {slot}"))
        if len(taken):
            found.first = found.first or _place(int(entries[0]), int(places[0]))
            found.last = _place(int(entries[-1]), int(places[-1]))
            logs = np.union1d(logs, places[places > 0] >> 32)
    found.ranges += groups.end()
    _log_range(logs, found)


class _Ranges:
    """The first groups of ascending entries in words, and how many there are, in bounded memory."""

    def __init__(self) -> None:
        self._grouper = Grouper()
        self._words: list[str] = []
        self._count = 0

    def add(self, entries: Ints) -> None:
        self._keep(self._grouper.feed(runs_of(np.zeros(len(entries), np.int64), entries)))

    def _keep(self, groups: KeyedGroups) -> None:
        left = LISTED - len(self._words)
        for first, last, size, period in zip(*(column[:left].tolist() for column in groups[1:]), strict=True):
            if period:
                self._words.append(f"entries {first} to {last + size - 1}: {size} of every {period}")
            else:
                self._words.append(f"entries {first} to {last + size - 1}" if size > 1 else f"entry {first}")
        self._count += len(groups.key)

    def end(self) -> list[str]:
        self._keep(self._grouper.end())
        more = self._count - len(self._words)
        return self._words + ([f"and {more} more ranges"] if more else [])


def _place(number: int, location: int) -> str:
    log_id, position = entry_log.split_location(location)
    return f"entry {number} in log {log_id:x} at byte {position}"


def _log_range(logs: Ints, found: _Notes) -> None:
    distinct = np.unique(logs)
    found.counts["logs"] = len(distinct)
    if len(distinct):
        shown = ", ".join(f"{log:x}" for log in distinct[:LISTED].tolist())
        found.ranges.append(f"in logs {shown}" + (", …" if len(distinct) > LISTED else ""))


def _goes_on(log: memoryview, map_offset: int) -> bool:
    """Whether a map stands at a place in a log, and an entry behind it."""
    if not entry_log.HEADER_SIZE <= map_offset < len(log):
        return False
    behind = max((end for _, end, _ in entry_log.between(log, map_offset, len(log))), default=0)
    return is_entry(log, behind)


def _read_log(path: Path, content: memoryview, found: _Notes) -> None:
    log_id = entry_log.log_id_of(path.name)
    if log_id is not None:
        found.header["log id"] = f"{log_id:x}"
    if not content:
        found.notes.append("no bytes: made ahead of time, or its writer was killed before its first flush")
        return
    listed: dict[Key, int] | None = None
    try:
        header = entry_log.decode_header(content[: entry_log.HEADER_SIZE])
        found.header |= {
            "version": str(header.version),
            "written by": "the direct I/O logger" if entry_log.is_direct(content) else "the default logger",
        }
        if header.map_offset:
            listed = entry_log.read_map(content, header)
            found.header["ledgers map"] = f"at byte {header.map_offset}, {header.map_ledgers} ledgers"
            if listed is None and _goes_on(content, header.map_offset):
                found.notes.append("records follow the ledgers map, so it does not count: no next log could be made")
            elif listed is None:
                found.broken(Damage(header.map_offset, 0, Reason.BAD_VALUE, "the ledgers map is not valid"))
        else:
            found.header["ledgers map"] = "none: the log was never rotated"
    except FormatError as error:
        if zeros_end(content, 0) < len(content):
            found.refused(error)
    ledgers = _Ledgers()
    first: EntryAt | None = None
    last: EntryAt | None = None
    entries = size = 0
    for part in entry_log.scan(content):
        if isinstance(part, Damage):
            _tail_or_damage(part, len(content), found)
            continue
        first = first or part
        last = part
        entries += 1
        size += part.size
        ledgers.add(part.ledger, part.scope)
    found.counts.update(entries=entries, entry_bytes=size, ledgers=ledgers.count())
    for at, name in ((first, "first"), (last, "last")):
        if at is not None:
            record = content[at.position : at.position + at.size]
            setattr(found, name, _entry(record, LedgerId(at.scope, at.ledger), at.entry, at.position))
    found.ranges += ledgers.spans()
    if listed is not None:
        other = set(listed) ^ ledgers.keys()
        if other:
            first_of = min((LedgerId(*key) if isinstance(key, tuple) else LedgerId(0, key)) for key in other)
            found.notes.append(f"the map and the records differ in {len(other)} ledgers, ledger {first_of} first")


def _tail_or_damage(part: Damage, size: int, found: _Notes) -> None:
    """What a crash leaves at the very end is no damage: the journal still has it."""
    if part.reason in (Reason.TRUNCATED, Reason.ZEROS) and part.offset + part.length >= size:
        what = "zeros" if part.reason is Reason.ZEROS else "a record that was not finished"
        found.notes.append(f"ends with {what}, from byte {part.offset} on: normal where it was being written")
    else:
        found.broken(part)


def _read_journal(path: Path, content: memoryview, found: _Notes) -> None:
    journal_id = journal.journal_id_of(path.name)
    if journal_id is not None:
        found.header["journal id"] = f"{journal_id:x}"
    try:
        version, header_size = journal.header_of(content)
    except FormatError as error:
        found.refused(error)
        return
    found.header |= {"version": str(version), "header": f"{header_size} bytes"}
    ledgers = _Ledgers()
    keys: set[str] = set()
    ends: deque[tuple[int, str]] = deque(maxlen=1)
    entry_bytes = 0
    for part in journal.scan(content):
        if isinstance(part, Damage):
            _tail_or_damage(part, len(content), found)
            continue
        kind, text = _journal_record(part)
        found.counts[kind] += 1
        ledgers.add(part.ledger, part.scope)
        if isinstance(part, journal.JournalEntry):
            entry_bytes += part.size
        if isinstance(part, journal.MasterKeyRecord) and len(keys) < LISTED:
            keys.add(_key(part.key))
        if not found.first:
            found.first = _entry_of(part, content) or text
        ends.append((part.at, _entry_of(part, content) or text))
    found.counts.update(entry_bytes=entry_bytes, ledgers=ledgers.count())
    if ends:
        found.last = ends[-1][1]
    if keys:
        found.header["master keys"] = "; ".join(sorted(keys))
    found.ranges += ledgers.spans()


def _journal_record(part: journal.Record) -> tuple[str, str]:
    ledger = LedgerId(part.scope, part.ledger)
    match part:
        case journal.JournalEntry():
            return "entries", ""
        case journal.MasterKeyRecord():
            return "master_keys", f"master key of ledger {ledger}, at byte {part.at}: {_key(part.key)}"
        case journal.FenceRecord():
            return "fences", f"fence of ledger {ledger}, at byte {part.at}"
        case journal.LacRecordAt():
            return "explicit_lacs", f"explicit LAC of ledger {ledger}, at byte {part.at}: {_lac(part.raw)}"
        case journal.UnknownRecord():
            return "unknown", f"record of unknown kind {part.entry:#x} of ledger {ledger}, at byte {part.at}"


def _entry_of(part: journal.Record, content: memoryview) -> str:
    if not isinstance(part, journal.JournalEntry):
        return ""
    return _entry(content[part.at : part.at + part.size], LedgerId(part.scope, part.ledger), part.entry, part.at)


def _read_last_mark(_path: Path, content: memoryview, found: _Notes) -> None:
    try:
        mark = journal.decode_last_mark(content)
    except FormatError as error:
        found.refused(error)
        return
    found.header |= {"replay starts in": f"{mark.journal_id:x}.txn", "at byte": str(mark.offset)}


def _read_last_id(_path: Path, content: memoryview, found: _Notes) -> None:
    text = _LAST_ID.fullmatch(content[:HEAD])
    if text is None:
        found.broken(Damage(0, len(content), Reason.BAD_VALUE, "not a log id in hex"))
        return
    found.header["newest log allocated"] = f"{int(text[1], 16):x}"


def _read_cookie(_path: Path, content: memoryview, found: _Notes) -> None:
    try:
        read = cookie.decode(content)
    except FormatError as error:
        found.refused(error)
        return
    found.header |= {
        "layout version": str(read.layout_version),
        "bookie id": read.bookie_id,
        "instance id": read.instance_id or "none",
        "journal folders": ", ".join(read.journal_dirs),
        "ledger folders": ", ".join(read.ledger_dirs),
        "index folders": ", ".join(read.index_dirs) if read.index_dirs else "the ledger folders",
    }


def _read_status(_path: Path, content: memoryview, found: _Notes) -> None:
    try:
        text = bytes(content[:HEAD]).decode("ascii").strip()
    except UnicodeDecodeError:
        text = ""
    if not _BOOKIE_STATUS.fullmatch(text):
        found.broken(Damage(0, len(content), Reason.BAD_VALUE, "not version, mode and time"))
        return
    found.header |= dict(zip(("version", "mode", "since (ms)", "set by hand"), text.split(","), strict=False))


def _read_dirty(_path: Path, content: memoryview, found: _Notes) -> None:
    found.header["says"] = "the bookie runs, or was not stopped cleanly"
    if content:
        found.notes.append("it has bytes, which no bookie writes")


def _read_metadata(_path: Path, content: memoryview, found: _Notes) -> None:
    try:
        read = ledger_metadata.decode(content)
    except FormatError as error:
        found.refused(error)
        return
    password = {None: "none in the record", b"": "empty"}.get(read.password, "set, not shown")
    found.header |= {
        "format": str(read.format),
        "state": str(read.state),
        "E/W/A": f"{read.ensemble_size}/{read.write_quorum}/{read.ack_quorum}",
        "last entry": "open" if read.last_entry is None else str(read.last_entry),
        "length": "open" if read.length is None else str(read.length),
        "digest": str(read.digest) if read.digest else "none in the record",
        "password": password,
        "ctime": "not stored" if read.ctime is None else str(read.ctime),
        "custom": ", ".join(f"{key} ({len(value)} bytes)" for key, value in read.custom) or "none",
    }
    found.counts["segments"] = len(read.segments)
    shown = [f"from entry {segment.first}: {', '.join(segment.members)}" for segment in read.segments[:LISTED]]
    found.ranges += shown + ([f"and {len(read.segments) - LISTED} more"] if len(read.segments) > LISTED else [])
    found.notes += ledger_metadata.problems(read)


def _read_zk_snapshot(path: Path, _content: memoryview, found: _Notes) -> None:
    found.take(store_file.zookeeper_snapshot(path))


def _read_zk_log(path: Path, _content: memoryview, found: _Notes) -> None:
    found.take(store_file.zookeeper_log(path))


_READERS: Final[dict[Kind, Callable[[Path, memoryview, _Notes], None]]] = {
    Kind.INDEX: _read_index,
    Kind.LOG: _read_log,
    Kind.JOURNAL: _read_journal,
    Kind.LAST_MARK: _read_last_mark,
    Kind.LAST_ID: _read_last_id,
    Kind.COOKIE: _read_cookie,
    Kind.STATUS: _read_status,
    Kind.DIRTY: _read_dirty,
    Kind.METADATA: _read_metadata,
    Kind.ZK_SNAPSHOT: _read_zk_snapshot,
    Kind.ZK_LOG: _read_zk_log,
}


def _look_at_database(folder: Path) -> Looked:
    if not (folder / CURRENT).is_file():
        problem = "is a folder without a database"
        raise InputError(str(folder), problem, "name one of its files, or its locations or ledgers folder")
    found = _Notes()
    size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    kind = Kind.LOCATIONS if folder.name.startswith("locations") else Kind.LEDGERS
    scoped = folder.name.partition(".")[0].endswith("-scoped")
    if folder.name == "metadata-cache":
        kind = Kind.CACHED_MAPS
    try:
        with open_read_only(folder) as database:
            if database.damage is not None:
                found.broken(Damage(0, 0, Reason.BAD_VALUE, f"write-ahead log: {database.damage}"))
            batches = database.items()
            keys, values = next(batches, ([], []))
            if not folder.name.startswith(("locations", "ledgers", "metadata-cache")) and keys:
                kind = Kind.LOCATIONS if (len(keys[0]), len(values[0])) == (16, 8) else Kind.LEDGERS
            rows = _chained(keys, values, batches)
            if kind is Kind.CACHED_MAPS:
                _read_cached_maps(rows, found)
            else:
                (_read_locations if kind is Kind.LOCATIONS else _read_ledgers)(rows, found, scoped=scoped)
    except BackendError as error:
        found.broken(Damage(0, 0, Reason.UNREADABLE, str(error)))
    if not found.counts["rows"]:
        found.notes.append("no rows")
    return _result(folder, kind, size, found)


_Rows = Iterator[tuple[list[bytes], list[bytes]]]


def _chained(keys: list[bytes], values: list[bytes], rest: _Rows) -> _Rows:
    yield keys, values
    yield from rest


def _read_cached_maps(batches: _Rows, found: _Notes) -> None:
    ledgers = _Ledgers()
    rows = 0
    for keys, values in batches:
        for key, value in zip(keys, values, strict=True):
            rows += 1
            try:
                listed = ledger_db.decode_cached_map(key, value)
            except FormatError as error:
                found.broken(Damage(rows - 1, 0, error.reason, error.detail))
                continue
            ledgers.merge(np.fromiter(listed, np.int64, len(listed)))
            text = f"log {int.from_bytes(key):x}: {len(listed)} ledgers, {sum(listed.values())} bytes of entries"
            found.first = found.first or text
            found.last = text
    found.counts.update(rows=rows, ledgers=ledgers.count())
    found.ranges += ledgers.spans()


def _read_locations(batches: _Rows, found: _Notes, *, scoped: bool) -> None:
    ledgers = _Ledgers()
    logs: Ints = np.empty(0, np.int64)
    rows = 0
    for keys, values in batches:
        part = ledger_db.decode_locations(keys, values, scoped=scoped)
        for damage in part.damage:
            found.broken(Damage(rows + damage.offset, 0, damage.reason, damage.detail))
        rows += len(keys)
        found.counts.update(rows=len(keys), entries=len(part.ledger))
        if len(part.ledger):
            scope = np.zeros_like(part.ledger) if part.scope is None else part.scope
            ends = [
                f"ledger {LedgerId(int(scope[n]), int(part.ledger[n]))}, "
                f"{_place(int(part.entry[n]), int(part.location[n]))}"
                for n in (0, -1)
            ]
            found.first = found.first or ends[0]
            found.last = ends[1]
            ledgers.merge(part.ledger, part.scope)
            logs = np.union1d(logs, part.location >> 32)
    found.counts["ledgers"] = ledgers.count()
    found.ranges += ledgers.spans()
    _log_range(logs, found)


def _read_ledgers(batches: _Rows, found: _Notes, *, scoped: bool) -> None:
    decode = ledger_db.decode_scoped_ledgers_row if scoped else ledger_db.decode_ledgers_row
    ledgers = _Ledgers()
    keys_seen: Counter[str] = Counter()
    rows = 0
    for keys, values in batches:
        for key, value in zip(keys, values, strict=True):
            rows += 1
            try:
                row = decode(key, value)
            except FormatError as error:
                found.broken(Damage(rows - 1, 0, error.reason, error.detail))
                continue
            if isinstance(row, ledger_db.StorageFlags):
                found.header["needs integrity check"] = "yes" if row.needs_integrity_check else "no"
            elif row is None:
                found.counts["reserved"] += 1
            else:
                ledgers.add(row.ledger, row.scope)
                found.counts.update(
                    fenced=row.fenced, limbo=bool(row.limbo), rebuilt=row.rebuilt, explicit_lacs=bool(row.explicit_lac)
                )
                keys_seen[entry.key_kind(row.master_key)] += 1
                name = LedgerId(row.scope, row.ledger)
                text = f"ledger {name}, master key {_key(row.master_key)}, explicit LAC {_lac(row.explicit_lac)}"
                found.first = found.first or text
                found.last = text
    found.counts.update(rows=rows, ledgers=ledgers.count(), **{f"keys_{k}": n for k, n in keys_seen.items()})
    found.ranges += ledgers.spans()
