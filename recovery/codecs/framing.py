"""Records after their size, as in entry logs and journals, and the search for them after damage.

Big-endian.

    at  size  field
    0   4     n, int32: bytes that follow
    4   n     body: int64 ledger id, int64 entry id, ... (an entry), or a special record with negative ids
              of a scope: flags, int64 scope, int64 ledger id, int64 entry id, ... (see `entry`)

A record has no magic and no checksum but the entry's own digest. So after damage a position counts as a record in two
cases only: it is an entry with a right CRC; or it is a special record or of a known ledger, and several more records
follow it. A false record would be invented data; a record that is skipped is reported as damage.

Records of scopes are read only where a caller says `scoped`: what no released BookKeeper writes must change nothing of
how its files are read.

In one module because reading ahead, reading each alone and searching behind damage must agree on what a record is.
"""

import struct
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from recovery.codecs import entry
from recovery.errors import Damage, Reason
from recovery.model.ids import distinct
from recovery.model.metadata import DIGEST_SIZES, NO_ENTRY, Digest

Ints = npt.NDArray[np.int64]

SIZE_FIELD: Final = 4
IDS: Final = 16
"""The least that a body holds: two ids."""
RECORD: Final = struct.Struct(">iqq")
_SIZE: Final = struct.Struct(">i")
_I32: Final = np.dtype(">i4")
_I64: Final = np.dtype(">i8")
_BYTE: Final = np.dtype(np.uint8)
_FIRST: Final = 4
"""Where a record's body begins, and in scope 0 its ledger."""
_ENTRY_AT: Final = 12
_SCOPED_AT: Final = (5, 13, 21)
"""Scope, ledger and entry in _SCOPED_RECORD."""
SCOPED_IDS: Final = 25
"""Flags, scope and two ids."""
_SCOPED_RECORD: Final = struct.Struct(">iBqqq")
RUN: Final = 65_536
"""Entries that are gathered before they are yielded."""
FEW: Final = 256
"""Entries that are read one by one before the reader looks ahead."""
_AHEAD: Final = (2048, 8)
"""Entries that are checked together at first, and the factor by which that number grows while all are usual."""
_ALIKE: Final = 16
"""Records of one size that suggest a longer stretch of them."""
_MET: Final = 1 << 20
"""Ledgers that are kept in a list before they become a set."""
_ENTRY: Final = struct.Struct(">iqqqq")
_SCOPED_ENTRY: Final = struct.Struct(">iBqqqqq")
_STATE: Final = struct.Struct(">qq")
"""Last add confirmed and length, at the end of an entry's header."""

_CHUNKS: Final = (1 << 12, 1 << 20)
"""Bytes searched at a time, first and at most: most gaps are short, some are not."""
_CHAIN: Final = 3
"""Records that must follow a record with an uncheckable digest."""
DOUBTED: Final = 16
"""Records before damage that may be wrong themselves."""
_WIDEST_DIGEST: Final = max(DIGEST_SIZES.values())
_USUAL_IDS: Final = 1 << 48
"""Entry ids from here on need more evidence, and reading does not start at them after damage."""
_LENGTHS: Final = 1 << 56
_CRCS: Final = (Digest.CRC32, Digest.CRC32C)
_CHECKED: Final = 1 << 24
"""The digests of larger entries are not tried at every position."""

Key = int | tuple[int, int]
"""The key of a ledger: its id; in another scope than 0, scope and id."""

Successor = Callable[[int], int | None]
"""Returns the position after the record or padding at a position, or None without one."""


class Entries(NamedTuple):
    """Entries of a source as arrays of equal length, in its order.

    `position` is that of the entry's first byte, behind the size field; `size` is the entry's; `scope` is None where
    all are of scope 0.
    """

    ledger: Ints
    entry: Ints
    position: Ints
    size: Ints
    scope: Ints | None = None

    def columns(self) -> Sequence[Ints]:
        """Return ledger, entry, position and size, and scope where some are of another than 0."""
        return self[:-1] if self.scope is None else (*self[:-1], self.scope)

    def lists(self) -> Sequence[Sequence[int]]:
        """Return the columns as `EntryRun` has them."""
        return [column.tolist() for column in self.columns()]

    def end(self) -> int:
        """Return the position behind the last entry."""
        return int(self.position[-1] + self.size[-1])

    def cut(self, start: int) -> "Entries":
        """Return the entries before an index."""
        ledger, number, position, size = (column[:start] for column in self[:-1])
        return Entries(ledger, number, position, size, None if self.scope is None else self.scope[:start])

    @classmethod
    def join(cls, parts: Sequence["Entries"]) -> "Entries":
        """Return the entries of all parts; at least one part is needed."""
        if len(parts) == 1:
            return parts[0]
        scope = None
        if any(part.scope is not None for part in parts):
            scope = np.concatenate([np.zeros_like(p.ledger) if p.scope is None else p.scope for p in parts])
        columns = zip(*(part[:-1] for part in parts), strict=True)
        ledger, number, position, size = (np.concatenate(column) for column in columns)
        return cls(ledger, number, position, size, scope)


class EntryRun(NamedTuple):
    """Entries while they are gathered, as `Entries`; `scope` may be shorter: the rest is of scope 0."""

    ledger: list[int]
    entry: list[int]
    position: list[int]
    size: list[int]
    scope: list[int]

    @classmethod
    def empty(cls) -> "EntryRun":
        """Return a run of no entries."""
        return cls([], [], [], [], [])

    def add(self, key: Key, entry: int, position: int, size: int) -> None:
        """Add an entry."""
        scope, ledger = key if isinstance(key, tuple) else (0, key)
        if scope:
            self.scope.extend([0] * (len(self.size) - len(self.scope)))
            self.scope.append(scope)
        for column, value in zip(self, (ledger, entry, position, size), strict=False):
            column.append(value)

    def end(self) -> int:
        """Return the position behind the last entry."""
        return self.position[-1] + self.size[-1]

    def split(self, position: int) -> tuple["EntryRun", "EntryRun"]:
        """Return the entries before an index and those from it on; a negative index counts from the end."""
        position = max(position + len(self.size), 0) if position < 0 else position
        return EntryRun(*(column[:position] for column in self)), EntryRun(*(column[position:] for column in self))

    def full(self) -> bool:
        """Whether enough entries are gathered to yield them."""
        return len(self.size) >= RUN

    def columns(self) -> Sequence[Sequence[int]]:
        """Return the columns; `scope` whole, or left out where all are of scope 0."""
        return [*self[:-1], self._scopes()] if self.scope else self[:-1]

    def keys(self, last: int | None = None) -> Sequence[Key]:
        """Return the keys of the ledgers of all entries, or of so many at the end."""
        ledgers = self.ledger if last is None else self.ledger[-last:]
        if not self.scope:
            return ledgers
        return [key_of(scope, ledger) for scope, ledger in zip(self._scopes()[-len(ledgers) :], ledgers, strict=True)]

    def _scopes(self) -> list[int]:
        return self.scope + [0] * (len(self.size) - len(self.scope))

    def arrays(self) -> Entries:
        """Return the entries as arrays."""
        ledger, entry, position, size = (np.array(column, np.int64) for column in self[:-1])
        scope = np.array(self._scopes(), np.int64) if self.scope else None
        return Entries(ledger, entry, position, size, scope)


def key_of(scope: int, ledger: int) -> Key:
    """Return the key of a ledger."""
    return (scope, ledger) if scope else ledger


class Met:
    """Ledgers that were met. They become a set only when damage needs it."""

    __slots__ = ("_fresh", "_keys", "_many")

    def __init__(self, known: Iterable[Key]) -> None:
        self._keys = set(known)
        self._fresh: list[tuple[Ints, Ints | None]] = []
        self._many = 0

    def __contains__(self, key: object) -> bool:
        if self._fresh:
            self._settle()
        return key in self._keys

    def add(self, key: Key) -> None:
        """Take a ledger."""
        self._keys.add(key)

    def update(self, keys: Iterable[Key]) -> None:
        """Take ledgers."""
        self._keys.update(keys)

    def later(self, entries: Entries, *, sure: bool) -> None:
        """Take the ledgers of entries that `ahead` found; if it was not `sure`, it has added those of scopes itself."""
        ledger, scope = entries.ledger, entries.scope
        self._fresh.append((ledger, scope) if sure or scope is None else (ledger[scope == 0], None))
        self._many += len(ledger)
        if self._many > _MET:
            self._settle()

    def _settle(self) -> None:
        for ledger, scope in self._fresh:
            if scope is None:
                self._keys.update(ledger.tolist())
                continue
            first, _ = distinct(scope, ledger)
            self._keys.update(map(key_of, scope[first].tolist(), ledger[first].tolist()))
        self._fresh, self._many = [], 0


def ahead(
    data: memoryview, position: int, known: Met, successor: Successor, *, scoped: bool = False, sure: bool = True
) -> Entries | None:
    """Return the entries that `chain` would find from `position` on, some RUN at most, without the last DOUBTED.

    None: there are few.

    Args:
        data: the whole source.
        position: of a possible record.
        known: as for `chain_scoped`.
        successor: as for `chain_scoped`.
        scoped: those that it would find, too.
        sure: as for `chain_scoped`.
    """
    parts: list[Entries] = []
    count, (step, growth) = 0, _AHEAD
    while count < RUN:
        step = min(step, RUN - count)
        part = _usual(data, _starts(data, position, step), scoped=scoped)
        if part.scope is not None and not sure:
            part = part.cut(_find_unbelieved(data, part, part.scope, known, successor))
        parts.append(part)
        count += len(part.size)
        if len(part.size) < step:
            break
        position, step = part.end(), step * growth
    return Entries.join(parts).cut(count - DOUBTED) if count - DOUBTED >= FEW else None


def _usual(data: memoryview, starts: Ints, *, scoped: bool) -> Entries:
    """Return the entries at some places, up to the first one with unusual fields."""

    def field(kind: "np.dtype[Any]", offset: int, chunk: slice | Ints = slice(None)) -> Ints:
        # Every byte may begin a number.
        whole = np.ndarray((len(data) - kind.itemsize + 1,), kind, data, 0, (1,))
        return whole[starts[chunk] + offset].astype(np.int64)

    if not len(starts):
        return Entries(starts, starts, starts, starts)
    size, ledger, number = field(_I32, 0), field(_I64, _FIRST), field(_I64, _ENTRY_AT)
    scope, good = None, ledger >= 0
    # A first byte of version 2 makes what would be the ledger negative.
    rest = np.flatnonzero(~good) if scoped else starts[:0]
    rest = rest[field(_BYTE, _FIRST, rest) & entry.VERSION_BITS == entry.VERSION_2]
    if len(rest):
        scope = np.zeros(len(starts), np.int64)
        scope[rest], ledger[rest], number[rest] = (field(_I64, offset, rest) for offset in _SCOPED_AT)
        good[rest] = (scope[rest] != 0) & (size[rest] >= entry.SCOPED_HEADER_SIZE)
    good &= (number >= 0) & (number < _USUAL_IDS)
    usual = Entries(ledger, number, starts + SIZE_FIELD, size, scope)
    return usual if good.all() else usual.cut(int(good.argmin()))


def _find_unbelieved(data: memoryview, entries: Entries, scope: Ints, known: Met, successor: Successor) -> int:
    """Return the first entry of a scope that is not to be taken; their number where all are. See `chain_scoped`."""
    first, _ = distinct(scope, entries.ledger)
    first = first[scope[first] != 0]
    keys = zip(scope[first].tolist(), entries.ledger[first].tolist(), strict=True)
    for row, key in enumerate(keys):
        if key not in known:
            if not _is_believed(data, int(entries.position[first[row]]) - SIZE_FIELD, successor):
                return int(first[row])
            known.add(key)
    return len(entries.size)


def _starts(data: memoryview, position: int, limit: int) -> Ints:
    """Return the beginnings of consecutive records, by their sizes, up to a limit."""
    stretches: list[Ints] = []
    unpack, end, least = _SIZE.unpack_from, len(data), entry.HEADER_SIZE
    last, count = end - RECORD.size, 0
    while count < limit and position <= last:
        alike = _alike(data, position, limit - count)
        if len(alike):
            stretches.append(alike)
            count += len(alike)
            position = 2 * int(alike[-1]) - int(alike[-2])
            continue
        chunk: list[int] = []
        for _ in range(min(FEW, limit - count)):
            if position > last:
                break
            (size,) = unpack(data, position)
            behind = position + SIZE_FIELD + size
            if size < least or behind > end:
                break
            chunk.append(position)
            position = behind
        stretches.append(np.array(chunk, np.int64))
        count += len(chunk)
        if len(chunk) < FEW:
            break
    return np.concatenate([np.empty(0, np.int64), *stretches])


def _alike(data: memoryview, position: int, limit: int) -> Ints:
    """Return the beginnings of consecutive records with the size of the one at `position`; none if they are few."""
    (size,) = _SIZE.unpack_from(data, position)
    step = SIZE_FIELD + size
    count = min((len(data) - position) // step, limit) if size >= entry.HEADER_SIZE else 0
    width, alike = _ALIKE, 0
    while count >= _ALIKE:
        equal = np.ndarray((min(width, count),), ">i4", data, position, (step,)) == size
        alike = len(equal) if equal.all() else int(equal.argmin())
        if alike < width or width >= count:
            break
        width *= _ALIKE
    starts: Ints = position + np.arange(alike if alike >= _ALIKE else 0) * step
    return starts


def chain(data: memoryview, start: int, run: EntryRun) -> int:
    """Add the entries that follow each other from `start` on, up to FEW, or RUN in all; return the end."""
    ledgers, entries, positions, sizes = run.ledger.append, run.entry.append, run.position.append, run.size.append
    unpack, end, least, usual = RECORD.unpack_from, len(data), entry.HEADER_SIZE, _USUAL_IDS
    last = end - RECORD.size
    for _ in range(min(FEW, RUN - len(run.size))):
        if start > last:
            break
        size, ledger, number = unpack(data, start)
        if size < least or ledger < 0 or not 0 <= number < usual:
            break
        position = start + SIZE_FIELD
        if position + size > end:
            break
        ledgers(ledger)
        entries(number)
        positions(position)
        sizes(size)
        start = position + size
    return start


def chain_scoped(data: memoryview, start: int, run: EntryRun, known: Met, successor: Successor, *, sure: bool) -> int:
    """Add the entries of ledgers of scopes that follow each other from `start` on, as `chain` does.

    Args:
        data: the whole source.
        start: position of a possible record.
        run: takes the entries.
        known: ledgers; ledgers that an entry proves are added.
        successor: the format's own rule.
        sure: the source declares such entries. Else one is taken only if its ledger is known, or its CRC is right;
            if it says that its digest is no CRC, several records must follow.
    """
    last = len(data) - _SCOPED_RECORD.size
    if start > last or not is_scoped(data, start):
        return start
    run.scope.extend([0] * (len(run.size) - len(run.scope)))
    ledgers, entries, positions = run.ledger.append, run.entry.append, run.position.append
    sizes, scopes = run.size.append, run.scope.append
    unpack, end, least = _SCOPED_RECORD.unpack_from, len(data), entry.SCOPED_HEADER_SIZE
    bits, second, usual = entry.VERSION_BITS, entry.VERSION_2, _USUAL_IDS
    for _ in range(min(FEW, RUN - len(run.size))):
        if start > last:
            break
        size, flags, scope, ledger, number = unpack(data, start)
        position = start + SIZE_FIELD
        behind = position + size
        if flags & bits != second or size < least or behind > end or not scope or number < 0:
            break
        if sure:
            if number >= usual:
                break
        elif (key := (scope, ledger)) not in known:
            if not _is_believed(data, start, successor):
                break
            known.add(key)
        ledgers(ledger)
        entries(number)
        positions(position)
        sizes(size)
        scopes(scope)
        start = behind
    return start


class Walk:
    """Entries that follow one another from a position on, as far as each leads to the next.

    Attributes:
        run: entries that were not passed on yet.
        plain_end: where the entries of scope 0 ended in the last attempt, which was tried first.
    """

    def __init__(self, data: memoryview, known: Met, successor: Successor, *, scoped: bool, sure: bool) -> None:
        self.run = EntryRun.empty()
        self.plain_end = 0
        self._data, self._known, self._successor = data, known, successor
        self._scoped, self._sure = scoped, sure
        self._singly = 0
        """Entries that were read one by one since another record came between them."""

    def go_on(self, start: int) -> tuple[int, Sequence[EntryRun | Entries] | None]:
        """Take the entries from a position on.

        Returns:
            Their end, and the entries beyond doubt. None: no more entries can be taken in this way; else call it again.
        """
        counted = len(self.run.size)
        self.plain_end = end = chain(self._data, start, self.run)
        if self._scoped:
            end = chain_scoped(self._data, end, self.run, self._known, self._successor, sure=self._sure)
        self._singly += len(self.run.size) - counted
        if self._singly >= FEW and not self.run.full():
            self._singly = 0
            rest = ahead(self._data, end, self._known, self._successor, scoped=self._scoped, sure=self._sure)
            if rest is None:
                return end, ()
            # Enough records follow, so these are beyond doubt.
            self._known.update(self.run.keys())
            self._known.later(rest, sure=self._sure)
            settled, self.run = self.run, EntryRun.empty()
            return rest.end(), (settled, rest)
        if self.run.full():
            # Keep the last ones: whether they can be believed shows in what follows.
            settled, self.run = self.run.split(-DOUBTED)
            self._known.update(settled.keys())
            return end, (settled,)
        return end, None

    def pause(self) -> None:
        """There is another record than an entry here: count again."""
        self._singly = 0


def _is_believed(data: memoryview, position: int, successor: Successor) -> bool:
    """Whether an entry of a scope is taken although its ledger is unknown and the source does not declare scopes."""
    if entry.digest_named(data[position + SIZE_FIELD]) in _CRCS:
        return is_proven(data, position, scoped=True)
    return _leads_on(data, position, successor)


def is_scoped(data: memoryview, position: int) -> bool:
    """Whether the body of the record at a position begins like one of a ledger of a scope."""
    return position + SIZE_FIELD < len(data) and data[position + SIZE_FIELD] & entry.VERSION_BITS == entry.VERSION_2


def ids_of(data: memoryview, position: int, *, scoped: bool) -> tuple[int, Key, int]:
    """Return size, key and entry id of the record at a position, if it fits before the end."""
    if scoped and is_scoped(data, position) and position + _SCOPED_RECORD.size <= len(data):
        size, _, scope, ledger, number = _SCOPED_RECORD.unpack_from(data, position)
        return size, (scope, ledger), number
    size, ledger, number = RECORD.unpack_from(data, position)
    return size, ledger, number


def zeros_end(data: memoryview, position: int) -> int:
    """Return the position of the first byte from `position` on that is not zero, or the length."""
    for low, high in _chunks(position, len(data)):
        rows = np.flatnonzero(np.frombuffer(data[low:high], np.uint8))
        if rows.size:
            return low + int(rows[0])
    return len(data)


def find_written_end(data: memoryview, position: int = 0) -> int:
    """Return the position after the last non-zero byte from `position` on, or `position`."""
    for near, far in _chunks(0, len(data) - position):
        low = len(data) - far
        # A copy: a running bookie may write here meanwhile, which `flatnonzero` does not bear.
        rows = np.flatnonzero(np.frombuffer(bytes(data[low : len(data) - near]), np.uint8))
        if rows.size:
            return low + int(rows[-1]) + 1
    return position


def _chunks(start: int, stop: int) -> Iterator[tuple[int, int]]:
    size, largest = _CHUNKS
    while start < stop:
        end = min(start + size, stop)
        yield start, end
        start, size = end, min(2 * size, largest)


def is_entry(data: memoryview, position: int, *, scoped: bool = False) -> bool:
    """Whether a record at a position has the fields of an entry that a client would send; no digest is checked."""
    if scoped and is_scoped(data, position):
        return _is_scoped_entry(data, position)
    if position + _ENTRY.size > len(data):
        return False
    size, ledger, number, lac, length = _ENTRY.unpack_from(data, position)
    return bool(
        entry.HEADER_SIZE <= size <= len(data) - position - SIZE_FIELD
        and ledger >= 0
        and number >= 0
        and lac >= -1
        and max(0, size - entry.HEADER_SIZE - _WIDEST_DIGEST) <= length < _LENGTHS
    )


def _is_scoped_entry(data: memoryview, position: int) -> bool:
    if position + _SCOPED_ENTRY.size > len(data):
        return False
    size, _, scope, _, number, lac, length = _SCOPED_ENTRY.unpack_from(data, position)
    return bool(
        entry.SCOPED_HEADER_SIZE <= size <= len(data) - position - SIZE_FIELD
        and scope
        and number >= 0
        and lac >= -1
        and max(0, size - entry.SCOPED_HEADER_SIZE - _WIDEST_DIGEST) <= length < _LENGTHS
    )


def is_proven(data: memoryview, position: int, *, scoped: bool = False) -> bool:
    """Whether a position has an entry with a right CRC."""
    if not is_entry(data, position, scoped=scoped):
        return False
    (size,) = struct.unpack_from(">i", data, position)
    body = data[position + SIZE_FIELD : position + SIZE_FIELD + size]
    return size <= _CHECKED and any(entry.digest_agrees(body, kind) for kind in _CRCS)


def find(
    data: memoryview, start: int, stop: int, known: Container[Key], successor: Successor, *, scoped: bool = False
) -> int | None:
    """Return the first position in [start, stop) with a proven record.

    Args:
        data: the whole source.
        start: where to begin.
        stop: the first position that is no longer asked about.
        known: ledgers that an entry without a provable digest may have.
        successor: the format's own rule, which confirms special records and padding too.
        scoped: a record of a ledger of a scope is one, too.
    """
    for position in _candidates(data, start, stop, scoped=scoped):
        if is_proven(data, position, scoped=scoped):
            return position
        _, key, number = ids_of(data, position, scoped=scoped)
        if (key in known or number < 0) and _leads_on(data, position, successor):
            return position
    return None


def take_unusual(
    data: memoryview, position: int, run: EntryRun, known: Container[Key], successor: Successor, *, scoped: bool = False
) -> bool:
    """Add the entry at `position` if its id is unusually large.

    Its ledger must be known, its CRC right, or another record or the end of the source behind it.
    """
    if not is_entry(data, position, scoped=scoped):
        return False
    size, key, number = ids_of(data, position, scoped=scoped)
    behind = position + SIZE_FIELD + size
    met = key in known or key in run.keys(DOUBTED)
    if not met and behind < len(data) and not is_proven(data, position, scoped=scoped) and successor(behind) is None:
        return False
    run.add(key, number, position + SIZE_FIELD, size)
    return True


def overrun(
    data: memoryview, position: int, run: EntryRun, known: Container[Key], successor: Successor, *, scoped: bool = False
) -> tuple[int, Damage] | None:
    """Find which of the last entries is wrong, when no record fits at `position` after them.

    An entry with a wrong size hides the records that begin inside it, and can lead to bytes that only look like one.

    Returns:
        The index of the first entry that is not to be believed, and the damage up to the record that begins inside it;
        None if none is.
    """
    first = len(run.size)
    doubted = max(0, len(run.size) - DOUBTED)
    while first > doubted and not is_proven(data, run.position[first - 1] - SIZE_FIELD, scoped=scoped):
        first -= 1
    for index in range(first, len(run.size)):
        begin, end = run.position[index] - SIZE_FIELD, run.position[index] + run.size[index]
        inside = find(data, begin + RECORD.size, min(end, position), known, successor, scoped=scoped)
        if inside is not None:
            return index, Damage(begin, inside - begin, Reason.BAD_LENGTH, "a size runs over the next record")
    return None


def without_cut(
    data: memoryview, position: int, run: EntryRun, *, scoped: bool = False
) -> tuple[EntryRun, Damage | None]:
    """Return the entries before a tail of zeros, without the last one if a crash cut it; and that damage.

    It did where the entry is zero itself from inside its header on. Cut inside its payload, only its digest shows it.
    """
    if not run.size or run.end() != position or not _is_cut(data[run.position[-1] : position]):
        return run, None
    begin = run.position[-1] - SIZE_FIELD
    if is_proven(data, begin, scoped=scoped):
        return run, None
    return run.split(-1)[0], Damage(begin, len(data) - begin, Reason.TRUNCATED)


def _is_cut(record: memoryview) -> bool:
    header = entry.header_size(record)
    if len(record) <= header or record[-1]:
        return False
    lac, length = _STATE.unpack_from(record, header - _STATE.size)
    impossible: bool = lac < NO_ENTRY or length < len(record) - header - _WIDEST_DIGEST
    return impossible or zeros_end(record, header - _STATE.size) == len(record)


def gap(
    data: memoryview,
    position: int,
    known: Container[Key],
    successor: Successor,
    *,
    cut: bool = False,
    scoped: bool = False,
) -> tuple[Damage, int | None]:
    """Return the damage at `position`, which has no record, and the position of the next record.

    Args:
        data: the whole source.
        position: after the last record.
        known: as for `find`.
        successor: as for `find`.
        cut: the record at `position` runs past the end of the source.
        scoped: as for `find`.
    """
    rest = len(data) - position
    zeros = zeros_end(data, position)
    if zeros == len(data):
        return Damage(position, rest, Reason.ZEROS), None
    if rest < RECORD.size:
        return Damage(position, rest, Reason.TRUNCATED), None
    size, ledger, number = RECORD.unpack_from(data, position)
    behind = position + SIZE_FIELD + size
    detail = f"size {size}, ledger {ledger}, entry {number}"
    if size == 0:
        reason, detail = Reason.ZEROS, ""
    elif size < IDS or behind > len(data):
        reason, detail, cut = Reason.BAD_LENGTH, f"size {size}", cut or size >= IDS
    else:
        reason = Reason.BAD_LENGTH if size < entry.HEADER_SIZE and min(ledger, number) >= 0 else Reason.BAD_VALUE
        if behind == len(data) or successor(behind) is not None:
            return Damage(position, behind - position, reason, detail), behind
    end = find(data, max(position + 1, zeros - SIZE_FIELD + 1), len(data), known, successor, scoped=scoped)
    if end is None:
        return Damage(position, rest, Reason.TRUNCATED if cut else reason, detail), None
    return Damage(position, end - position, reason, detail), end


def _leads_on(data: memoryview, position: int, successor: Successor) -> bool:
    for _ in range(1 + _CHAIN):
        behind = successor(position)
        if behind is None:
            return False
        if behind >= len(data):
            break
        position = behind
    return True


def _candidates(data: memoryview, start: int, stop: int, *, scoped: bool) -> Iterator[int]:
    """Yield the positions that can hold a record: n of at least 16, and ids in the ranges that are searched for."""
    for low, high in _chunks(start, min(stop, len(data) - RECORD.size + 1)):
        count = high - low
        block = np.frombuffer(data[low : high + RECORD.size - 1], np.uint8)
        ledger, number, below = block[4 : 4 + count], block[12 : 12 + count], block[13 : 13 + count]
        likely = (ledger < 0x80) | (ledger == 0xFF)
        likely &= (number == below) & ((number == 0) | (number == 0xFF))
        if scoped:
            wide = np.frombuffer(data[low : high + _SCOPED_RECORD.size - 1], np.uint8)
            fits = min(count, max(0, len(wide) - _SCOPED_RECORD.size + 1))
            number, below = wide[21 : 21 + fits], wide[22 : 22 + fits]
            second = ledger[:fits] & entry.VERSION_BITS == entry.VERSION_2
            likely[:fits] |= second & (number == below) & ((number == 0) | (number == 0xFF))
        likely &= block[:count] < 0x80
        likely &= (block[:count] | block[1 : 1 + count] | block[2 : 2 + count] | (block[3 : 3 + count] >> 4)) != 0
        yield from (low + int(row) for row in np.flatnonzero(likely))
