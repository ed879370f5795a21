"""Ledgers of scopes as negative numbers, so that all code for ledger ids works for them.

    key       means
    0, 1, …   the ledger of scope 0 with that id, which is never negative on a disk
    -1        none
    -2, …     row ``(-2 - key) >> 12`` of `Scopes`, in bucket ``(-2 - key) & 4095``

Where there are no scopes nothing is looked up, and nothing is kept.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from recovery.codecs.framing import Entries, Key
from recovery.codecs.journal import MetaRecord
from recovery.errors import Damage
from recovery.model.ids import BUCKETS, LedgerId, buckets, distinct

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Names = npt.NDArray[np.bytes_]

_NONE: Final = -1
_BUCKET_BITS: Final = BUCKETS.bit_length() - 1
_NAME: Final = "S16"
"""Both halves, big-endian: in the order of unsigned ids. All are of that length, so zeros at the end are no matter."""
_GROWTH: Final = 4
"""Least ratio of a sorted part to the next one: large parts are moved seldom."""
_HELD_BYTES: Final = 1 << 22
"""For a journal: its special records get their keys together."""

Part = Entries | MetaRecord | Damage


class _Sorted(NamedTuple):
    names: Names
    keys: Ints

    def find(self, names: Names, keys: Ints) -> None:
        """Fill in the keys of names that are here; names ascend."""
        rows = np.searchsorted(self.names, names)
        is_known = rows < len(self.names)
        is_known[is_known] = self.names[rows[is_known]] == names[is_known]
        keys[is_known] = self.keys[rows[is_known]]

    def merge(self, other: "_Sorted") -> "_Sorted":
        rows = np.searchsorted(self.names, other.names)
        return _Sorted(np.insert(self.names, rows, other.names), np.insert(self.keys, rows, other.keys))


class Scopes:
    """The ledgers of scopes that were met, and their keys: up to 56 bytes each, and as many while they are moved."""

    def __init__(self) -> None:
        self._rows = np.empty((0, 2), np.int64)
        self._count = 0
        self._parts: list[_Sorted] = []

    def keys(self, scope: Ints | None, ledger: Ints) -> Ints:
        """Return the keys of ledgers; None: all are of scope 0."""
        if scope is None or not len(scoped := np.flatnonzero(scope)):
            return ledger
        keys = ledger.copy()
        keys[scoped] = self._make_keys(scope[scoped], ledger[scoped])
        return keys

    def are_known(self, scope: Ints, ledger: Ints) -> Mask:
        """Return which ledgers of scopes were met."""
        first, name_of = distinct(scope, ledger)
        return np.asarray(self._find(_make_names(scope[first], ledger[first])) != _NONE)[name_of]

    def key(self, scope: int, ledger: int) -> int:
        """Return the key of a ledger."""
        return int(self.keys(np.array([scope]), np.array([ledger]))[0]) if scope else ledger

    def _make_keys(self, scope: Ints, ledger: Ints) -> Ints:
        starts = np.flatnonzero(np.append(True, (scope[1:] != scope[:-1]) | (ledger[1:] != ledger[:-1]))[: len(scope)])
        keys = self._make_run_keys(scope[starts], ledger[starts])
        return np.repeat(keys, np.diff(np.append(starts, len(scope))))

    def _make_run_keys(self, scope: Ints, ledger: Ints) -> Ints:
        first, name_of = distinct(scope, ledger)
        scope, ledger = scope[first], ledger[first]
        names = _make_names(scope, ledger)
        keys = self._find(names)
        new = np.flatnonzero(keys == _NONE)
        if len(new):
            keys[new] = self._add(np.column_stack((scope[new], ledger[new])))
            order = new[np.argsort(names[new])]
            added = _Sorted(names[order], keys[order])
            while self._parts and len(self._parts[-1].keys) < _GROWTH * len(added.keys):
                added = self._parts.pop().merge(added)
            self._parts.append(added)
        run_keys: Ints = keys[name_of]
        return run_keys

    def _find(self, names: Names) -> Ints:
        keys = np.full(len(names), _NONE)
        if self._parts:
            order = np.argsort(names)
            sorted_keys = keys.copy()
            for part in self._parts:
                part.find(names[order], sorted_keys)
            keys[order] = sorted_keys
        return keys

    def _add(self, rows: Ints) -> Ints:
        end = self._count + len(rows)
        if end > len(self._rows):
            grown = np.empty((max(end, 2 * len(self._rows)), 2), np.int64)
            grown[: self._count] = self._rows[: self._count]
            self._rows = grown
        self._rows[self._count : end] = rows
        number = np.arange(self._count, end)
        self._count = end
        bucket = buckets(np.ascontiguousarray(rows[:, 0]), np.ascontiguousarray(rows[:, 1])).astype(np.int64)
        return -2 - (number << _BUCKET_BITS | bucket)

    def ids(self, key: Ints) -> tuple[Ints, Ints]:
        """Return scope and ledger of keys."""
        scope = np.zeros(len(key), np.int64)
        scoped = np.flatnonzero(key < _NONE)
        if not len(scoped):
            return scope, key
        ledger = key.copy()
        scope[scoped], ledger[scoped] = self._rows[(-2 - key[scoped]) >> _BUCKET_BITS].T
        return scope, ledger

    def id(self, key: int) -> LedgerId:
        """Return the ledger of a key."""
        if key >= _NONE:
            return LedgerId(0, key)
        scope, ledger = self._rows[(-2 - key) >> _BUCKET_BITS].tolist()
        return LedgerId(scope, ledger)

    def rows(self) -> Ints:
        """Return scope and ledger of all that were met, in the order of their keys' rows."""
        return self._rows[: self._count]

    def absorb(self, other: "Scopes") -> Ints:
        """Add the ledgers of other `Scopes`; return the key here of each of their rows, for `translate_keys`."""
        rows = other.rows()
        return self._make_keys(rows[:, 0], rows[:, 1])

    def to_codec_keys(self, key: Ints) -> list[Key]:
        """Return the codecs' names of the ledgers of keys."""
        names: list[Key] = key.tolist()
        scoped = np.flatnonzero(key < _NONE)
        scope, ledger = self.ids(key[scoped])
        for row, known in zip(scoped.tolist(), zip(scope.tolist(), ledger.tolist(), strict=True), strict=True):
            names[row] = known
        return names

    def from_codec_keys(self, known: Iterable[Key]) -> Ints:
        """Return the keys of ledgers as codecs know them."""
        pairs = [key if isinstance(key, tuple) else (0, key) for key in known]
        scope, ledger = np.array(pairs, np.int64).reshape(-1, 2).T
        return self.keys(scope, ledger)

    def find_largest(self) -> Iterator[LedgerId]:
        """Yield the largest id of every scope that was met, ascending; scope 0 is not among them."""
        ids = self._rows[: self._count].view(np.uint64)
        order = np.lexsort((ids[:, 1], ids[:, 0]))
        ids = ids[order]
        last = np.append(ids[1:, 0] != ids[:-1, 0], True)[: len(ids)]
        for scope, ledger in self._rows[order][last].tolist():
            yield LedgerId(scope, ledger)

    def replace_ids(self, parts: Iterable[Part]) -> Iterator[Part]:
        """Yield the records of a codec with keys in place of ids and scopes.

        Special records of scopes come later than their place, in their order.
        """
        waiting: list[MetaRecord] = []
        begin = 0
        for part in parts:
            if isinstance(part, Entries):
                yield (
                    part if part.scope is None else part._replace(ledger=self.keys(part.scope, part.ledger), scope=None)
                )
            elif isinstance(part, Damage) or not part.scope:
                yield part
            else:
                begin = begin if waiting else part.at
                waiting.append(part)
                if part.at - begin > _HELD_BYTES:
                    yield from self._replace_records(waiting)
                    waiting = []
        yield from self._replace_records(waiting)

    def _replace_records(self, records: Sequence[MetaRecord]) -> Iterator[MetaRecord]:
        ids = np.array([(record.scope, record.ledger) for record in records], np.int64)
        for record, key in zip(records, self.keys(*ids.reshape(-1, 2).T).tolist(), strict=True):
            yield replace(record, ledger=key, scope=0)


def _make_names(scope: Ints, ledger: Ints) -> Names:
    return np.frombuffer(np.column_stack((scope, ledger)).astype(">i8").tobytes(), _NAME)


def translate_keys(key: Ints, new_keys: Ints) -> Ints:
    """Translate keys of other `Scopes` into those that `Scopes.absorb` returned."""
    if not len(new_keys):
        return key
    return np.where(key < _NONE, new_keys[np.maximum(-2 - key, 0) >> _BUCKET_BITS], key)


def bucket_of(key: Ints) -> Ints:
    """Return the bucket of each key; above -2, the bucket of the ledger of scope 0."""
    bucket = buckets(np.zeros(len(key), np.int64), np.ascontiguousarray(key)).astype(np.int64)
    return np.where(key < _NONE, (-2 - key) & (BUCKETS - 1), bucket) if (key < _NONE).any() else bucket
