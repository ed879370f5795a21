"""What is noted while a file is read, and how its keys, entries, places and ranges are written in words.

Payload, passwords and master keys are never shown; a key is named by the first digits of its SHA-256.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from recovery.codecs import entry, entry_log
from recovery.codecs.framing import Key
from recovery.collect.rows.source_copies import Grouper, make_runs
from recovery.errors import Damage, FormatError, Reason
from recovery.inspect.file_kinds import FileKind
from recovery.model.groups import KeyedGroups
from recovery.model.ids import LedgerId, to_unsigned

Ints = npt.NDArray[np.int64]
LISTED: Final = 100
"""Pieces of damage, ranges and ledgers that are given one by one; all are counted."""
HASH_DIGITS: Final = 12
"""Of the SHA-256 of a master key: enough to tell two keys apart, and nothing to guess from."""
_MERGE: Final = 1 << 16
"""Ledger ids gathered before doubles are taken out."""


@dataclass(frozen=True, slots=True)
class FileReport:
    """What one file is and holds.

    Attributes:
        path: as it was given.
        kind: what it was read as.
        size: in bytes; of all files of a database.
        header: what is at its front, or all of a small file.
        counts: what was counted.
        first, last: the first and the last thing in it, in words.
        ranges: what it spans, in words.
        damage: the first `LISTED` pieces.
        damaged: how many there are.
        notes: what is odd and no damage.
    """

    path: Path
    kind: FileKind
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
class FileNotes:
    """What is gathered while a file is read."""

    header: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    first: str = ""
    last: str = ""
    ranges: list[str] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    damaged: int = 0
    notes: list[str] = field(default_factory=list)

    def add_damage(self, damage: Damage) -> None:
        self.damaged += 1
        if len(self.damage) < LISTED:
            self.damage.append(damage)

    def add_error(self, error: FormatError) -> None:
        self.add_damage(Damage(error.offset, 0, error.reason, error.detail))


class LedgerIds:
    """Distinct ledger ids of each scope, in memory that grows with them only."""

    def __init__(self) -> None:
        self._known: dict[int, Ints] = {}
        self._fresh: dict[int, list[int]] = {}

    def add(self, ledger: int, scope: int = 0) -> None:
        """Take one id."""
        fresh = self._fresh.setdefault(scope, [])
        fresh.append(ledger)
        if len(fresh) >= _MERGE:
            self._merge_fresh()

    def merge(self, ledgers: Ints, scopes: Ints | None = None) -> None:
        """Take many ids; without scopes all are of scope 0."""
        for scope in (0,) if scopes is None else np.unique(scopes).tolist():
            added = ledgers if scopes is None else ledgers[scopes == scope]
            self._known[scope] = np.union1d(self._known.get(scope, added[:0]), added)

    def _merge_fresh(self) -> dict[int, Ints]:
        for scope, fresh in self._fresh.items():
            self._known[scope] = np.union1d(self._known.get(scope, np.empty(0, np.int64)), np.array(fresh, np.int64))
        self._fresh.clear()
        return self._known

    def count(self) -> int:
        """Return how many there are."""
        return sum(map(len, self._merge_fresh().values()))

    def keys(self) -> set[Key]:
        """Return them as codecs name ledgers."""
        known = self._merge_fresh()
        return {(scope, ledger) if scope else ledger for scope, ids in known.items() for ledger in ids.tolist()}

    def spans(self) -> list[str]:
        """Return ids as ranges, a line a scope."""
        scopes = sorted(self._merge_fresh().items(), key=lambda item: to_unsigned(item[0]))
        rest = [f"and ledgers of {len(scopes) - LISTED} more scopes"] if len(scopes) > LISTED else []
        return [line for scope, ids in scopes[:LISTED] for line in _list_spans(ids, scope)] + rest


def make_report(path: Path, kind: FileKind, size: int, notes: FileNotes) -> FileReport:
    """Return what was noted of a file."""
    return FileReport(
        path,
        kind,
        size,
        notes.header,
        dict(notes.counts),
        notes.first,
        notes.last,
        tuple(notes.ranges),
        tuple(notes.damage),
        notes.damaged,
        tuple(notes.notes),
    )


def describe_key(stored: bytes) -> str:
    """Return a stored master key in words; of one that is set only a part of its hash."""
    kind = entry.key_kind(stored)
    return f"set, SHA-256 {hashlib.sha256(stored).hexdigest()[:HASH_DIGITS]}…" if kind == "set" else kind


def describe_lac(raw: bytes | None) -> str:
    """Return an explicit LAC's record in words."""
    if raw is None:
        return "none"
    try:
        record = entry.decode_lac_record(raw)
    except FormatError as error:
        return f"not readable ({error.reason})"
    agrees = entry.lac_record_agrees(raw)
    return f"{record.lac}, {record.digest}" + (", digest agrees" if agrees else "")


def describe_entry(record: memoryview, ledger: LedgerId, number: int, position: int) -> str:
    """Return an entry in words: whose it is, where it stands, what its header says."""
    text = f"ledger {ledger}, entry {number}, at byte {position}, {len(record)} bytes"
    try:
        header = entry.decode_header(record)
    except FormatError:
        return f"{text}, without the header of an entry"
    proven = entry.find_digest(record)
    digest = f"{proven[0]} agrees" if proven else "no digest agrees without a password"
    return f"{text}, LAC {header.lac}, length {header.length}, {digest}"


def _list_spans(ledgers: Ints, scope: int) -> list[str]:
    """Return ids as ranges, the first few and how many more there are."""
    if not len(ledgers):
        return []
    ledgers = np.sort(ledgers.view(np.uint64))
    starts = np.flatnonzero(np.append(True, ledgers[1:] != ledgers[:-1] + np.uint64(1)))
    ends = np.append(starts[1:], len(ledgers)) - 1
    pairs = list(zip(ledgers[starts[:LISTED]].tolist(), ledgers[ends[:LISTED]].tolist(), strict=True))
    shown = [str(low) if low == high else f"{low} to {high}" for low, high in pairs]
    rest = [f"and {len(starts) - LISTED} more ranges"] if len(starts) > LISTED else []
    return [(f"ledgers of scope {to_unsigned(scope)}: " if scope else "ledgers ") + ", ".join([*shown, *rest])]


class EntryRanges:
    """The first groups of ascending entries in words, and how many there are, in bounded memory."""

    def __init__(self) -> None:
        self._grouper = Grouper()
        self._words: list[str] = []
        self._count = 0

    def add(self, entries: Ints) -> None:
        self._keep(self._grouper.feed(make_runs(np.zeros(len(entries), np.int64), entries)))

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
        left = self._count - len(self._words)
        return self._words + ([f"and {left} more ranges"] if left else [])


def describe_place(number: int, location: int) -> str:
    """Return in words where an index says that an entry stands."""
    log_id, position = entry_log.split_location(location)
    return f"entry {number} in log {log_id:x} at byte {position}"


def note_logs(logs: Ints, notes: FileNotes) -> None:
    """Note the logs that an index names."""
    distinct = np.unique(logs)
    notes.counts["logs"] = len(distinct)
    if len(distinct):
        shown = ", ".join(f"{log:x}" for log in distinct[:LISTED].tolist())
        notes.ranges.append(f"in logs {shown}" + (", …" if len(distinct) > LISTED else ""))


def note_damage(part: Damage, size: int, notes: FileNotes) -> None:
    """Note damage. What a crash leaves at the very end is none: the journal still has it."""
    if part.reason in (Reason.TRUNCATED, Reason.ZEROS) and part.offset + part.length >= size:
        tail = "zeros" if part.reason is Reason.ZEROS else "a record that was not finished"
        notes.notes.append(f"ends with {tail}, from byte {part.offset} on: normal where it was being written")
    else:
        notes.add_damage(part)
