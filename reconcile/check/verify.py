"""A plan's ledgers read back: records from the store, entries through those records from bookies or their disks.

    of a copy        is said where
    good             the entry is where the bookie would serve it from, and its digest is the record's
    unproven         the same, but the record has no digest type or password to check it with (format 1, HMAC)
    bad              an entry with these ids is there, and its header or digest is wrong
    absent           every place that could hold it was read, or the bookie answers that it has none
    not looked at    no disks of that bookie were given, or not all, or they could not be read; or it did not answer

    of an entry      its copies in the write set
    readable         one copy is good
    not checkable    none is good, but one is unproven or was not looked at
    corrupt          none of these, but one copy is bad
    missing          all are absent

A ledger is what the worst of its entries is: missing, corrupt, not checkable, readable; `length_differs` if all are
readable and some entry says that the ledger is longer than the record does. A record that is longer than its entries is
only counted: a writer that closes with adds pending leaves such a one.

Behind the end of a closed record the next entries are asked for, as far as they follow each other: no reader gets them,
and they may have been acknowledged. Of a record that the plan leaves open all entries are asked for so, from the first.

Source: docs/formats/bookie-storage.md; apache/bookkeeper 9590a97, RoundRobinDistributionSchedule, for write sets.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backends.errors import AccessDeniedError
from backends.protocols import MetadataStore
from reconcile.check.verify_results import (
    ABOVE_END,
    LISTED,
    Ints,
    ReadableCluster,
    RecordInStore,
    VerifyOutcome,
    VerifyProblem,
    VerifyResult,
)
from reconcile.plan.manifest import read_plan_manifest
from recovery.codecs import entry, ledger_metadata
from recovery.dataset import Dataset
from recovery.errors import FormatError
from recovery.model.groups import group_entries
from recovery.model.ids import LedgerId, bucket_ranges
from recovery.model.metadata import LedgerMetadata, LedgerState

Counts = npt.NDArray[np.int32]


Mask = npt.NDArray[np.bool_]


SEED_DIGITS: Final = 16
"""Part of the plan's hash that seeds a sample: the same plan gives the same sample."""


_PIECE: Final = 1 << 16
"""Entries of one ledger that are checked together."""


_BATCH: Final = 1 << 18
"""Copies that are located before they are read, so that reads ascend in each file."""


_READ: Final = 1000
"""Records read from the store at a time."""


_BEHIND: Final = 64
"""Factor of the next request for entries after an end, once all requested ones were there."""


_MOST_BEHIND: Final = 1 << 12
"""Entries after an end in one request: many ledgers may be open."""


_RANGES: Final = 5


class _Copy(IntEnum):
    ABSENT = 0
    UNSEEN = 1
    BAD = 2
    UNPROVEN = 3
    GOOD = 4


def verify(
    dataset: Dataset,
    store: MetadataStore,
    root: str,
    disks: ReadableCluster,
    *,
    sample: int | None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> VerifyResult:
    """Read a plan's ledgers back.

    Args:
        dataset: the plan.
        store: only read.
        root: key of the ledgers root.
        disks: bookie → its disks, or the bookie itself over the wire.
        sample: number of ledgers, and of holds, drawn by the plan's hash; None: all of them.
        progress: called with the numbers of checked ledgers and of all.

    Raises:
        DatasetError: a file of the plan is gone or damaged.
        BackendError: the store does not answer.
    """
    run = _Run(dataset, store, root.rstrip("/"), disks, progress)
    return run.all(sample)


@dataclass(slots=True)
class _Ledger:
    """One ledger while its pieces are checked."""

    id: LedgerId
    record: LedgerMetadata
    changed: bool
    left: int = 0
    """Pieces that are not settled."""
    entries: Counter[str] = field(default_factory=Counter)
    good: int = 0
    largest: int = 0
    """Length of the ledger from its entries."""
    above: int = 0
    """Entries directly after the end of its record."""
    lac: int = -1
    """The largest LAC that these have."""
    behind: VerifyOutcome = VerifyOutcome.READABLE
    """What follows these entries: nothing; or an entry that is corrupt or was not looked at."""

    @property
    def end(self) -> int:
        """The last entry of its record; -1 for an open one."""
        return -1 if self.record.last_entry is None else self.record.last_entry

    bad_entries: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """A stretch of a ledger: for each entry, how many copies are good, unproven, bad, absent, not looked at.

    Attributes:
        is_above: after the end of its record, which promises none of these.
    """

    ledger: _Ledger
    low: int
    is_above: bool
    good: Counts
    unproven: Counts
    bad: Counts
    unseen: Counts


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """The entries of a piece that one bookie should hold, and (offset of entry, file, position) of each place."""

    piece: _Piece
    offsets: Ints
    sure: bool
    at: Ints
    file: Ints
    position: Ints


_DENIED: Final = "the store does not show its record to us: give an identity that may read it"


def _ledger_of(row: Mapping[str, object]) -> LedgerId:
    scope, number = row["scope"], row["ledger"]
    assert isinstance(scope, int)  # noqa: S101 - ledger actions have both
    assert isinstance(number, int)  # noqa: S101 - as above
    return LedgerId(scope, number)


class _Run:
    def __init__(
        self,
        dataset: Dataset,
        store: MetadataStore,
        base: str,
        disks: ReadableCluster,
        progress: Callable[[int, int], None],
    ) -> None:
        self._dataset = dataset
        self._store = store
        self._base = base
        self._disks = disks
        self._progress = progress
        self._asked: dict[str, list[_Asked]] = {}
        self._open: list[_Piece] = []
        self._waiting = 0
        self._total = 0
        self._outcomes: Counter[VerifyOutcome] = Counter()
        self._full = 0
        self._longer = 0
        self._above: Counter[str] = Counter()
        self._records: Counter[RecordInStore] = Counter()
        self._holds: Counter[RecordInStore] = Counter()
        self._entries: Counter[str] = Counter()
        self._copies: Counter[str] = Counter()
        self._problems: list[VerifyProblem] = []
        self._without: Counter[str] = Counter()

    def all(self, sample: int | None) -> VerifyResult:
        restored, holds = self._count()
        seed = read_plan_manifest(self._dataset).hash[:SEED_DIGITS]
        self._total = restored if sample is None else min(sample, restored)
        drawn = [_draw_sample(count, sample, seed) for count in (restored, holds)]
        for rows in self._choose(*drawn):
            for row, stored in rows:
                self._take(row, stored)
        while self._open:
            self._settle()
        self._progress(self._total, self._total)
        return VerifyResult(
            ledgers=restored,
            held=holds,
            drawn=(self._total, holds if sample is None else min(sample, holds)),
            seed=seed if sample is not None and sample < max(restored, holds) else "",
            outcomes=self._outcomes,
            full=self._full,
            longer=self._longer,
            above=self._above,
            records=self._records,
            holds=self._holds,
            entries=self._entries,
            copies=self._copies,
            problems=tuple(self._problems),
            without_disks=self._without,
            incomplete={name: disks.problems for name, disks in self._disks.items() if not disks.complete},
        )

    def _count(self) -> tuple[int, int]:
        """Return how many ledgers the plan restores, and how many it holds."""
        counts = [0, 0]
        for buckets in bucket_ranges(self._dataset.rows("actions")):
            ops = self._dataset.read("actions", buckets=buckets, columns=["op"])
            for number, mask in enumerate(_masks(ops)):
                counts[number] += int(mask.sum())
        return counts[0], counts[1]

    def _choose(
        self, restored: Ints | None, holds: Ints | None
    ) -> Iterator[Iterator[tuple[Mapping[str, object], bytes | None]]]:
        """Yield batches of (action, stored bytes) of the sample."""
        names = ["scope", "ledger", "op", "kind", "key", "value"]
        passed = [0, 0]
        for buckets in bucket_ranges(self._dataset.rows("actions")):
            actions = self._dataset.read("actions", buckets=buckets, columns=names)
            keep = np.zeros(actions.num_rows, np.bool_)
            for number, (mask, chosen) in enumerate(zip(_masks(actions), (restored, holds), strict=True)):
                rows = np.flatnonzero(mask)
                among = np.ones(len(rows), np.bool_)
                if chosen is not None:
                    among = np.isin(np.arange(passed[number], passed[number] + len(rows)), chosen)
                keep[rows[among]] = True
                passed[number] += len(rows)
            wanted = actions.filter(pa.array(keep))
            for low in range(0, wanted.num_rows, _READ):
                yield self._with_stored(wanted.slice(low, _READ).to_pylist())

    def _with_stored(self, rows: Sequence[Mapping[str, object]]) -> Iterator[tuple[Mapping[str, object], bytes | None]]:
        keys = [f"{self._base}{row['key']}" for row in rows]
        try:
            read = [stored for _, stored in self._store.get_many(keys)]
        except AccessDeniedError:
            # Rare: one record with rights of its own must not cost all others.
            for row, key in zip(rows, keys, strict=True):
                try:
                    versioned = self._store.get(key)
                except AccessDeniedError:
                    self._take_denied(row)
                else:
                    yield row, None if versioned is None else versioned.value
            return
        for row, stored in zip(rows, read, strict=True):
            yield row, None if stored is None else stored.value

    def _take_denied(self, row: Mapping[str, object]) -> None:
        ledger = _ledger_of(row)
        if row["op"] == "hold":
            self._holds[RecordInStore.DENIED] += 1
            self._tell(ledger, f"hold_{RecordInStore.DENIED}", _DENIED)
            return
        self._records[RecordInStore.DENIED] += 1
        self._end(ledger, VerifyOutcome.UNCHECKED, _DENIED)

    def _take(self, row: Mapping[str, object], raw: bytes | None) -> None:
        ledger = _ledger_of(row)
        stored = (
            RecordInStore.ABSENT
            if raw is None
            else RecordInStore.PLANNED
            if raw == row["value"]
            else RecordInStore.CHANGED
        )
        record: LedgerMetadata | None = None
        if raw is not None:
            try:
                record = ledger_metadata.decode(raw)
            except FormatError:
                stored = RecordInStore.UNPARSABLE
        if row["op"] == "hold":
            self._holds[stored] += 1
            if stored is not RecordInStore.PLANNED:
                self._tell(ledger, f"hold_{stored}", "the record that keeps its data is not the planned one")
            return
        self._records[stored] += 1
        if record is None:
            words = "the store has no record" if raw is None else "the store's record cannot be read"
            self._end(ledger, VerifyOutcome.NO_RECORD, words)
            return
        changed = stored is RecordInStore.CHANGED
        broken = ledger_metadata.problems(record)
        if broken:
            self._end(
                ledger, VerifyOutcome.NO_RECORD, f"the store's record cannot be used: {broken[0]}", changed=changed
            )
        elif record.state is LedgerState.OPEN and not changed:
            opened = _Ledger(ledger, record, changed, left=1)
            self._ask(opened, 0, 1, is_above=True)
        elif record.state is not LedgerState.CLOSED or record.last_entry is None:
            self._end(
                ledger, VerifyOutcome.UNCHECKED, f"its record is {record.state}: its end is not known", changed=changed
            )
        else:
            self._ask_all(_Ledger(ledger, record, changed))

    def _end(self, ledger: LedgerId, outcome: VerifyOutcome, detail: str, *, changed: bool = False) -> None:
        self._outcomes[outcome] += 1
        if changed:
            detail = "; ".join(filter(None, ["the store's record is not the planned one", detail]))
        if changed or outcome is not VerifyOutcome.READABLE:
            self._tell(ledger, outcome, detail)
        self._progress(sum(self._outcomes.values()), self._total)

    def _tell(self, ledger: LedgerId, outcome: str, detail: str) -> None:
        # What reads well leaves room for what does not.
        if len(self._problems) < (LISTED // 2 if outcome == ABOVE_END else LISTED):
            self._problems.append(VerifyProblem(ledger, str(outcome), detail))

    # Asking

    def _ask_all(self, ledger: _Ledger) -> None:
        last = ledger.end
        lows = range(0, last + 1, _PIECE)
        ledger.left = len(lows) + 1
        for low in lows:
            self._ask(ledger, low, min(last + 1, low + _PIECE))
            if self._waiting >= _BATCH:
                self._settle()
        self._ask(ledger, last + 1, last + 2, is_above=True)

    def _ask(self, ledger: _Ledger, low: int, high: int, *, is_above: bool = False) -> None:
        count = high - low
        piece = _Piece(ledger, low, is_above, *(np.zeros(count, np.int32) for _ in range(4)))
        self._open.append(piece)
        segments = ledger.record.segments
        ends = [segment.first for segment in segments[1:]] + [high]
        for segment, end in zip(segments, ends, strict=True):
            entries = np.arange(max(low, segment.first), min(high, end), dtype=np.int64)
            if not len(entries):
                continue
            size, quorum = ledger.record.ensemble_size, ledger.record.write_quorum
            for position, bookie in enumerate(segment.members):
                own_entries = entries[(position - entries) % size < quorum]
                if len(own_entries):
                    self._ask_bookie(piece, bookie, own_entries)

    def _ask_bookie(self, piece: _Piece, bookie: str, entries: Ints) -> None:
        self._waiting += len(entries)
        promised = 0 if piece.is_above else len(entries)
        self._copies["promised"] += promised
        disks = self._disks.get(bookie)
        if disks is None:
            if promised:
                self._without[bookie] += promised
            self._copies["not_looked_at"] += promised
            piece.unseen[entries - piece.low] += 1
            return
        found_places = disks.find(piece.ledger.id, entries)
        places = (found_places.journal, found_places.index)
        self._asked.setdefault(bookie, []).append(
            _Asked(
                piece,
                entries - piece.low,
                found_places.sure,
                *(np.concatenate([place[column] for place in places]) for column in range(3)),
            )
        )

    # Reading

    def _settle(self) -> None:
        """Read the requested entries, and end every piece; requests that these make are left for later."""
        asked_for, pieces = self._asked, self._open
        self._asked, self._open, self._waiting = {}, [], 0
        for bookie, asked in asked_for.items():
            self._read(bookie, asked)
        for piece in pieces:
            if piece.is_above:
                self._end_above(piece)
            else:
                self._end_piece(piece)

    def _read(self, bookie: str, asked: Sequence[_Asked]) -> None:
        disks = self._disks.get(bookie)
        if disks is None:
            raise AssertionError("it was there when it was asked where")
        ends = np.cumsum([0, *(len(lookup.at) for lookup in asked)])
        state = np.zeros(ends[-1], np.int8)
        at, file, position = (
            np.concatenate([getattr(lookup, name) for lookup in asked]) for name in ("at", "file", "position")
        )
        ledger_number = np.repeat(np.arange(len(asked)), np.diff(ends))

        def take(row: int, record: bytes | None) -> None:
            piece = asked[ledger_number[row]].piece
            state[row] = _Copy.UNSEEN if record is None else _judge(piece, int(at[row]), record)

        disks.each(file, position, take)
        for lookup, (low, high) in zip(asked, pairwise(ends.tolist()), strict=True):
            piece = lookup.piece
            # A copy has a place in the journal and one in the index at most: the better one is served.
            best = np.zeros(len(piece.good), np.int8)
            np.maximum.at(best, lookup.at - piece.low, state[low:high])
            own_results = best[lookup.offsets]
            absent = lookup.offsets[own_results == _Copy.ABSENT]
            if not lookup.sure:
                piece.unseen[absent] += 1
            unseen = lookup.offsets[own_results == _Copy.UNSEEN]
            piece.unseen[unseen] += 1
            for counts, copy in ((piece.good, _Copy.GOOD), (piece.unproven, _Copy.UNPROVEN), (piece.bad, _Copy.BAD)):
                counts[lookup.offsets[own_results == copy]] += 1
            if piece.is_above:
                continue
            self._copies["absent" if lookup.sure else "not_looked_at"] += len(absent)
            self._copies["not_looked_at"] += len(unseen)
            for copy in (_Copy.GOOD, _Copy.UNPROVEN, _Copy.BAD):
                self._copies[copy.name.lower()] += int((own_results == copy).sum())

    def _end_above(self, piece: _Piece) -> None:
        """Count the entries that follow an end; ask for more while all are there."""
        ledger = piece.ledger
        present = np.append((piece.good > 0) | (piece.unproven > 0), False)
        found = int(present.argmin())
        ledger.above += found
        if found == len(piece.good):
            low = piece.low + found
            self._ask(ledger, low, low + min(_MOST_BEHIND, found * _BEHIND), is_above=True)
            return
        if piece.unseen[found]:
            ledger.behind = VerifyOutcome.UNCHECKED
        elif piece.bad[found]:
            ledger.behind = VerifyOutcome.CORRUPT
        ledger.left -= 1
        if not ledger.left:
            self._end_ledger(ledger)

    def _end_piece(self, piece: _Piece) -> None:
        ledger = piece.ledger
        good = piece.good > 0
        unchecked = ~good & ((piece.unproven > 0) | (piece.unseen > 0))
        corrupt = ~good & ~unchecked & (piece.bad > 0)
        missing = ~good & ~unchecked & ~corrupt
        ledger.entries.update(looked_at=len(good), readable=int(good.sum()))
        for name, mask in (
            (VerifyOutcome.MISSING, missing),
            (VerifyOutcome.CORRUPT, corrupt),
            (VerifyOutcome.UNCHECKED, unchecked),
        ):
            if mask.any():
                ledger.entries[name] += int(mask.sum())
                bad_ranges = ledger.bad_entries.setdefault(name, [])
                bad_ranges += _ranges(np.flatnonzero(mask) + piece.low, _RANGES + 1 - len(bad_ranges))
        ledger.good += int(piece.good.sum())
        ledger.left -= 1
        if not ledger.left:
            self._end_ledger(ledger)

    def _end_ledger(self, ledger: _Ledger) -> None:
        if ledger.record.state is LedgerState.OPEN:
            self._above.update(open_ledgers=1, open_entries=ledger.above)
            words = {VerifyOutcome.CORRUPT: "is corrupt", VerifyOutcome.UNCHECKED: "was not looked at"}.get(
                ledger.behind
            )
            self._end(ledger.id, ledger.behind, f"its record is OPEN; entry {ledger.above} {words}" if words else "")
            return
        if ledger.above:
            self._above.update(ledgers=1, entries=ledger.above)
            self._tell(ledger.id, ABOVE_END, _describe_above(ledger))
        self._entries.update(ledger.entries)
        worst = next(
            (o for o in (VerifyOutcome.MISSING, VerifyOutcome.CORRUPT, VerifyOutcome.UNCHECKED) if ledger.entries[o]),
            VerifyOutcome.READABLE,
        )
        record = ledger.record
        promised = ledger.entries["looked_at"] * record.write_quorum
        detail = "; ".join(
            f"{ledger.entries[name]} of {ledger.entries['looked_at']} entries {name.replace('_', ' ')}: "
            + ", ".join(bad_ranges[:_RANGES])
            + (", …" if len(bad_ranges) > _RANGES else "")
            for name, bad_ranges in ledger.bad_entries.items()
        )
        if worst is VerifyOutcome.READABLE:
            length = record.length or 0
            if promised and length < ledger.largest:
                worst = VerifyOutcome.LENGTH
                detail = f"its record says {length} bytes, its entries {ledger.largest}"
            else:
                self._full += ledger.good == promised
                self._longer += length > ledger.largest
        self._end(ledger.id, worst, detail, changed=ledger.changed)


def _describe_above(ledger: _Ledger) -> str:
    """Report the entries after the end of a ledger."""
    first, last = ledger.end + 1, ledger.end + ledger.above
    entries = f"entry {first}" if first == last else f"entries {first} to {last}"
    shown = (
        f"a LAC of {ledger.lac} shows that they were acknowledged"
        if ledger.lac > ledger.end
        else ("nothing shows whether they were acknowledged")
    )
    return f"bookies have {entries} above its end {ledger.end}, which no reader gets; {shown}"


def _judge(piece: _Piece, number: int, record: bytes) -> _Copy:
    """Classify the bytes at a place; an entry with other ids means that the wanted one is not there."""
    ledger = piece.ledger
    if not entry.is_of(record, ledger.id, number):
        return _Copy.ABSENT
    try:
        header = entry.decode_header(record)
    except FormatError:
        return _Copy.BAD
    metadata = ledger.record
    if ledger.id.scope and entry.digest_named(record[0]) is None:
        copy = _Copy.UNPROVEN
    elif metadata.digest is None:
        copy = _Copy.GOOD if entry.find_digest(record) else _Copy.UNPROVEN
    else:
        agrees = entry.digest_agrees(record, metadata.digest, metadata.password or b"")
        copy = _Copy.GOOD if agrees else _Copy.BAD
    if piece.is_above:
        ledger.lac = max(ledger.lac, header.lac)
    elif copy is _Copy.GOOD:
        ledger.largest = max(ledger.largest, header.length)
    return copy


def _masks(actions: pa.Table) -> tuple[Mask, Mask]:
    """Return which actions write a ledger's record, and which a hold."""
    written, holds = (pc.is_in(actions["op"], pa.array(ops)).to_numpy() for ops in (["create", "replace"], ["hold"]))
    return written, holds


def _draw_sample(count: int, sample: int | None, seed: str) -> Ints | None:
    """Return numbers below `count`, ascending and each once; None: all of them."""
    if sample is None or sample >= count:
        return None
    drawn: Ints = np.random.default_rng(int(seed, 16)).choice(count, sample, replace=False)
    return np.sort(drawn)


def _ranges(entries: Ints, most: int) -> list[str]:
    groups = group_entries(entries)
    columns = (groups.first, groups.last, groups.size, groups.period)
    texts = []
    for first, last, size, period in zip(*(column[: max(most, 0)].tolist() for column in columns), strict=True):
        end = last + size - 1
        texts.append(
            str(first) if first == end else f"{first} to {end}" + (f", {size} of every {period}" if period else "")
        )
    return texts
