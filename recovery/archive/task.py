"""Ledgers of a bucket range copied into an archive: chosen, read from bookies, written, and then listed in an index."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recovery.archive import choice as choices
from recovery.archive.bookies import Source
from recovery.archive.choice import ArchiveChoice, choose, list_topics, measure_frames
from recovery.archive.copies import COLUMNS, AskableBookies, ClosedLedgers, CopyState, UnusedCopies, lay_out, read_batch
from recovery.archive.objects import (
    MOST,
    RUNS,
    TARGET,
    UNUSED,
    ArchiveIndex,
    ObjectWriter,
    draw_name,
    list_indexes,
    write_index,
)
from recovery.archive.reader import read_known
from recovery.bookies.recorded_members import cut_batches
from recovery.bookies.sampled_reads import ByteBudget
from recovery.dataset import Dataset, write_part
from recovery.model.ids import LedgerId
from recovery.model.tables import ARCHIVED
from recovery.place import to_place

Ints = npt.NDArray[np.int64]

_BATCH_BYTES: Final = 48 << 20
"""Of entries that are in memory together, about."""
_BATCH_ENTRIES: Final = 1 << 17
_STEP_S: Final = 0.25
"""Seconds' worth of bytes that are read together under a cap."""
_LEAST_BATCH: Final = 256 << 10
_NAMED: Final = 20
"""Ledgers that a task names one by one; all are counted."""
_READ: Final = tuple(dict.fromkeys((*COLUMNS, *choices.COLUMNS)))


@dataclass(frozen=True, slots=True)
class CopyTask:
    """Copies the chosen ledgers of a bucket range.

    Attributes:
        catalog: of the store.
        place: of the archive.
        run: that writes.
        known: indexes that were there before.
        choice: which ledgers.
        source: bookies.
        bytes_s: this task's share of the bytes a second; None: as fast as it goes.
    """

    catalog: Dataset
    place: str
    run: str
    known: tuple[ArchiveIndex, ...]
    choice: ArchiveChoice
    source: Source
    bytes_s: float | None = None

    def __repr__(self) -> str:
        """Without what could be secret: a value may land in a log."""
        return f"CopyTask(catalog={self.catalog.path!r}, place={self.place!r}, run={self.run!r})"

    def __call__(self, buckets: range) -> dict[str, Any]:
        """Copy them; return counts, the indexes that were written, and what was bad: the first ones, all by bookie."""
        place = to_place(self.place)
        # What an earlier try of this task copied is there, and is not copied again.
        own = [index for index in list_indexes(place, [self.run]) if index not in self.known]
        indexes = [index.file for index in own if _overlaps(index, buckets)]
        failed: list[dict[str, Any]] = []
        damaged: list[dict[str, Any]] = []
        unused: dict[str, Counter[str]] = {}
        counts: Counter[str] = Counter()
        with self.source.open() as bookies:
            for batch in cut_batches(self.catalog, buckets):
                stored = self.catalog.read("ledgers", buckets=batch, columns=list(_READ))
                known = read_known(place, [*self.known, *own], batch)
                chosen = choose(stored, known, self.choice)
                for rows in _cut_objects(stored, chosen.rows):
                    copied = self._copy_object(stored.take(pa.array(rows)), bookies)
                    counts.update(copied.counts)
                    failed += copied.failed[: _NAMED - len(failed)]
                    indexes += [copied.index] if copied.index else []
                    damaged += copied.damaged[: _NAMED - len(damaged)]
                    for row in copied.unused:
                        unused.setdefault(row["bookie"], Counter())[row["problem"]] += row["entries_sum"]
        return {
            "counts": dict(counts),
            "indexes": indexes,
            "failed": failed,
            "damaged": damaged,
            "unused": {bookie: dict(problems) for bookie, problems in unused.items()},
        }

    def _copy_object(self, rows: pa.Table, bookies: AskableBookies) -> "_Copied":
        place = to_place(self.place)
        bucket = rows["bucket"].to_numpy()
        name = draw_name(int(bucket[0]), int(bucket[-1]))
        problems = UnusedCopies()
        ledgers = lay_out(rows)
        sizes = measure_frames(rows)
        budget = None if self.bytes_s is None else ByteBudget(self.bytes_s)
        written: dict[int, dict[str, Any]] = {}
        failed: dict[int, tuple[int, CopyState]] = {}
        # One ledger that is larger than an object is cut into about equal parts.
        total = int(sizes.sum())
        with ObjectWriter(place, self.run, name, -(-total // max(1, -(-total // MOST)))) as writer:
            for batch in _cut_batches(rows["last_entry"].to_numpy(), sizes, self.bytes_s):
                left = [stretch for stretch in batch if stretch[0] not in failed]
                got = _read(ledgers, left, bookies, problems, budget)
                for (row, low, high, is_last), (records, lost) in zip(left, got, strict=True):
                    if row in failed:
                        continue
                    if low == 0:
                        writer.begin()
                    if lost is not None:
                        failed[row] = lost
                        writer.drop()
                        continue
                    if high >= low:
                        writer.add(records, low)
                    if is_last:
                        written[row] = writer.end()
            writer.finish()
        unused = problems.make_table()
        folder = place / RUNS / self.run
        if unused.num_rows:
            write_part(folder, UNUSED, name, [unused], secret=True)
        index = ""
        if written:
            index = write_index(place, self.run, name, _make_index(rows, written))
        counts = Counter(
            copied=len(written),
            entries=int((rows["last_entry"].to_numpy()[list(written)] + 1).sum()) if written else 0,
            bytes=sum(row["size"] for row in written.values()),
        )
        for _, worst in failed.values():
            counts[f"not_copied_{worst.name.lower()}"] += 1
        named = [
            {"ledger": str(ledgers.ids[row]), "entry": entry, "problem": worst.name.lower()}
            for row, (entry, worst) in sorted(failed.items())
        ]
        sums = unused.group_by(["bookie", "problem"]).aggregate([("entries", "sum")]).to_pylist()
        damaged = (
            unused.filter(pc.equal(unused["problem"], CopyState.DAMAGED.name.lower())).slice(0, _NAMED).to_pylist()
        )
        return _Copied(counts, index, named, [_name_damage(row) for row in damaged], sums)


@dataclass(frozen=True, slots=True)
class _Copied:
    counts: Counter[str]
    index: str
    failed: list[dict[str, Any]]
    damaged: list[dict[str, Any]]
    unused: list[dict[str, Any]]


_Stretch = tuple[int, int, int, bool]
"""Place of a ledger, its first and last entry that are read together, and whether its last entry is among them."""


def _overlaps(index: ArchiveIndex, buckets: range) -> bool:
    return index.first < buckets.stop and index.last >= buckets.start


def _cut_objects(stored: pa.Table, rows: Ints) -> Iterator[Ints]:
    """Cut ledgers so that those of a part are one object: of about `TARGET` bytes, a very large ledger by itself."""
    if not len(rows):
        return
    sizes = measure_frames(stored.take(pa.array(rows)))
    large = sizes > MOST
    small = rows[~large]
    if len(small):
        sizes_before = np.cumsum(sizes[~large]) - sizes[~large]
        total = int(sizes[~large].sum())
        count = max(1, round(total / TARGET))
        part = np.minimum(sizes_before * count // max(total, 1), count - 1)
        yield from np.split(small, np.flatnonzero(np.diff(part)) + 1)
    yield from rows[large].reshape(-1, 1)


def _cut_batches(last_entry: Ints, sizes: Ints, bytes_s: float | None) -> Iterator[list[_Stretch]]:
    """Yield stretches of ledgers, in their order, so many at a time as may be in memory."""
    most = _BATCH_BYTES if bytes_s is None else int(min(max(bytes_s * _STEP_S, _LEAST_BATCH), _BATCH_BYTES))
    batch: list[_Stretch] = []
    size = entries = 0
    for row, (last, of_ledger) in enumerate(zip(last_entry.tolist(), sizes.tolist(), strict=True)):
        mean = of_ledger / (last + 1) if last >= 0 else 0.0
        low = 0
        while True:
            room = min((most - size) / mean if mean else _BATCH_ENTRIES, _BATCH_ENTRIES - entries)
            high = min(last, low + max(int(room), 1) - 1)
            batch.append((row, low, high, high == last))
            size, entries = size + int(mean * (high - low + 1)), entries + high - low + 1
            if size >= most or entries >= _BATCH_ENTRIES or high < last or len(batch) >= _BATCH_ENTRIES:
                yield batch
                batch, size, entries = [], 0, 0
            low = high + 1
            if high == last:
                break
    if batch:
        yield batch


def _read(
    ledgers: ClosedLedgers,
    part: Sequence[_Stretch],
    bookies: AskableBookies,
    problems: UnusedCopies,
    budget: ByteBudget | None,
) -> Iterator[tuple[list[bytes], tuple[int, CopyState] | None]]:
    """Yield of each stretch its entries; or the first entry that no copy gives, and what was in the way."""
    counts = np.array([high - low + 1 for _, low, high, _ in part], np.int64)
    row = np.repeat(np.array([stretch[0] for stretch in part], np.int64), counts)
    begin = np.cumsum(counts) - counts
    low = np.array([stretch[1] for stretch in part], np.int64)
    number = np.arange(int(counts.sum())) - np.repeat(begin - low, counts)
    if budget is not None:
        time.sleep(budget.find_wait(time.monotonic()))
    moment = time.monotonic()
    got = read_batch(ledgers, row, number, bookies, problems)
    if budget is not None:
        budget.spend(moment, sum(len(record) for record in got.records if record))
    lost = np.array(sorted(got.worst), np.int64)
    for begin_at, count in zip(begin.tolist(), counts.tolist(), strict=True):
        first = int(np.searchsorted(lost, begin_at))
        if first < len(lost) and lost[first] < begin_at + count:
            place = int(lost[first])
            worst = min(got.worst[n] for n in lost[first : int(np.searchsorted(lost, begin_at + count))].tolist())
            yield [], (int(number[place]), worst)
        else:
            yield [record for record in got.records[begin_at : begin_at + count] if record is not None], None


def _make_index(rows: pa.Table, written: Mapping[int, Mapping[str, Any]]) -> pa.Table:
    own = rows.take(pa.array(sorted(written)))
    facts = [written[row] for row in sorted(written)]
    columns = {
        **{name: own[name] for name in ARCHIVED.names if name in own.schema.names},
        "record": own["raw"],
        "topic": list_topics(own["custom"]),
        **{name: [fact[name] for fact in facts] for name in ("size", "sha256", "pieces")},
    }
    return pa.table([pa.chunked_array([_cast(columns[f.name], f.type)]) for f in ARCHIVED], schema=ARCHIVED)


def _cast(column: Any, kind: pa.DataType) -> pa.Array:  # noqa: ANN401 - a list, or a column of Arrow
    if isinstance(column, list):
        return pa.array(column, kind)
    return (column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column).cast(kind)


def _name_damage(row: Mapping[str, Any]) -> dict[str, Any]:
    ledger = str(LedgerId(row["scope"], row["ledger"]))
    return {"ledger": ledger, **{name: row[name] for name in ("bookie", "first", "last", "entries")}}
