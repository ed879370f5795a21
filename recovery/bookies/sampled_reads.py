"""Single entries asked of running bookies that give no lists: read without fencing, in runs of neighbours, at a pace.

    a bookie answers            so
    with a record               it has the entry
    ENOENTRY                    it lacks the entry
    ENOLEDGER                   it lacks all entries of the ledger; it is not asked for more of them
    anything else, or nothing   nothing is known of the entry

Of each ledger one entry is asked for before all others: then a bookie that does not know the ledger is asked no more.

A bookie reads from its disk what it gives, and up to `READ_AHEAD` entries behind it, which push out of its cache what
readers that follow a writer need: the budget of bytes a second counts both. It is spent in steps of a quarter of a
second; the next step waits until the one before is paid for. A step without a single answer is asked again, `_AGAIN`
times with the client's patience between: a run takes hours, and a bookie that restarts is back within minutes.

Source: docs/formats/wire.md.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backends.bookie import frames
from backends.bookie.client import BookieConnection, BookieOptions, BookieWire
from backends.bookie.frames import BookieAnswer, RequestOutcome, Status
from recovery.bookies.entry_choice import Rotation, choose_entries, count_chosen, find_stretches
from recovery.bookies.recorded_members import cut_batches
from recovery.bookies.wire_results import SCOPE, Ints
from recovery.bookies.wire_task import WireTarget
from recovery.dataset import Dataset, sort_by_key, write_part
from recovery.model.groups import KeyedRuns, group_runs, lay_out, to_arrow, union_runs
from recovery.model.ids import buckets as find_buckets
from recovery.model.positions import FAR, Cells, find_closed, lay_out_cells
from recovery.model.tables import SAMPLES
from recovery.place import to_place

TABLE: Final = "samples"
_STEP_S: Final = 0.25
"""Seconds' worth of bytes that are asked for together."""
_AT_ONCE: Final = 256
"""Entries that are asked for together, at most."""
_SLICE: Final = 1 << 17
"""Entries of one bookie whose answers are held before they are grouped, more only of one position."""
_BOOKIES_AT_ONCE: Final = 32
"""Bookies that a task asks at the same time: most of it is waiting for the budget."""
_AGAIN: Final = 6
"""Times that a bookie is asked again that answered nothing of a step; once it was, it is not waited for any more."""
_OVERHEAD: Final = 64
"""Bytes that an entry takes beside what the client wrote, about."""
_READ: Final = ("bucket", "scope", "ledger", "state", "segments", "write_quorum", "last_entry", "length")
_HELD, _LACKS, _NO_LEDGER = 1, 2, 3
"""What a bookie said about an entry; 0: nothing."""


class ByteBudget:
    """Bytes a second: what was read is paid for before more is read.

    Args:
        rate: bytes a second.
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.patience = _AGAIN
        """How often its bookie is asked again when it answers nothing."""
        self._free_at = 0.0

    def find_wait(self, moment: float) -> float:
        """Return the seconds until more may be read."""
        return max(0.0, self._free_at - moment)

    def spend(self, moment: float, count: float) -> None:
        """Note that so many bytes were read from this moment on."""
        self._free_at = max(self._free_at, moment) + count / self.rate


@dataclass(frozen=True, slots=True)
class BookieSample:
    """What came of asking one bookie for single entries.

    Attributes:
        bookie: its id.
        asked: entries.
        held: of these, those that it gave.
        lacking: those that it said it has not; of a ledger that it does not know, all that would have been asked for.
        failed: those of which it said neither.
        bytes: that came.
        why: the first thing that came in place of an answer.
    """

    bookie: str
    asked: int = 0
    held: int = 0
    lacking: int = 0
    failed: int = 0
    bytes: int = 0
    why: str = ""

    def add(self, other: "BookieSample") -> "BookieSample":
        """Return both together."""
        return BookieSample(
            self.bookie,
            self.asked + other.asked,
            self.held + other.held,
            self.lacking + other.lacking,
            self.failed + other.failed,
            self.bytes + other.bytes,
            self.why or other.why,
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as it travels to the driver."""
        return asdict(self)


class _Asked(NamedTuple):
    """Entries of some ledgers that one bookie is asked for: runs keyed by the ledger's place."""

    ledgers: Ints
    runs: KeyedRuns
    size: npt.NDArray[np.float64]
    """Of each ledger, about how many bytes an entry has."""
    weight: npt.NDArray[np.float64]
    """Of each ledger, how many entries its bookie reads for each that it is asked for."""


class OwnCells(NamedTuple):
    """Positions of closed ledgers that are on given bookies; `cells.bookie` is the place of the bookie."""

    cells: Cells
    ledgers: Ints
    """Of each position, the ledger's id."""
    size: npt.NDArray[np.float64]
    """Likewise, about how many bytes an entry has."""


def find_cells(stored: pa.Table, targets: Sequence[WireTarget]) -> OwnCells:
    """Return the positions of ledgers that are on some bookies.

    Args:
        stored: CATALOG_LEDGERS, in key order.
        targets: the bookies.
    """
    closed = find_closed(stored)
    rows = stored.take(pa.array(closed))
    sane = pc.and_(pc.equal(rows["scope"], SCOPE), pc.less(rows["last_entry"], FAR)).to_numpy()
    closed, rows = closed[sane], rows.filter(pa.array(sane))
    names, cells = lay_out_cells(stored, closed)
    number = {name: place for place, target in enumerate(targets) for name in (target.bookie, *target.names)}
    own = np.array([number.get(name, -1) for name in names], np.int64)[cells.bookie]
    cells = cells._replace(bookie=own).select(own >= 0)
    length = np.maximum(pc.fill_null(rows["length"], 0).to_numpy(), 0)
    size = length / (rows["last_entry"].to_numpy() + 1.0) + _OVERHEAD
    return OwnCells(cells, rows["ledger"].to_numpy()[cells.ledger], size[cells.ledger])


def read_cells(catalog: Dataset, buckets: range, targets: Sequence[WireTarget]) -> Iterator[tuple[int, OwnCells]]:
    """Yield the positions on some bookies of the ledgers of a bucket range, some at a time, each with its bucket."""
    for batch in cut_batches(catalog, buckets):
        yield batch.start, find_cells(catalog.read("ledgers", buckets=batch, columns=list(_READ)), targets)


@dataclass(frozen=True, slots=True)
class SampleTask:
    """Asks bookies for the entries that a run takes of the ledgers of a bucket range, and writes what they answer.

    Attributes:
        catalog: lists the ledgers.
        out: the folder of the dataset.
        targets: the bookies.
        options: this task's share of the caps in them.
        rotation: which entries.
        bytes_s: this task's share of the bytes a second and a bookie.
    """

    catalog: Dataset
    out: str
    targets: tuple[WireTarget, ...]
    options: BookieOptions
    rotation: Rotation
    bytes_s: float

    def __call__(self, buckets: range) -> dict[str, Any]:
        """Ask them; return the parts that were written, and what came of each bookie."""
        parts = []
        samples = {target.bookie: BookieSample(target.bookie) for target in self.targets}
        with Sampler(self.targets, self.options, self.bytes_s) as sampler:
            for low, own in read_cells(self.catalog, buckets, self.targets):
                rows, answered = sampler.read_chosen(own, self.rotation)
                if rows.num_rows:
                    parts.append(asdict(write_part(to_place(self.out), TABLE, f"part-{low:04d}", [rows], secret=True)))
                for sample in answered:
                    samples[sample.bookie] = samples[sample.bookie].add(sample)
        return {"parts": parts, "bookies": [sample.to_json() for sample in samples.values()]}


class Sampler:
    """Bookies that are asked for single entries; a context manager that ends the connections.

    Args:
        targets: the bookies.
        options: how they are asked.
        bytes_s: that each of them may read for it in a second.
    """

    def __init__(self, targets: Sequence[WireTarget], options: BookieOptions, bytes_s: float) -> None:
        self.targets = targets
        self._budgets = [ByteBudget(bytes_s) for _ in targets]
        self._runner = asyncio.Runner()
        self._wire = BookieWire({target.bookie: target.address for target in targets}, options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._wire.close()
        self._runner.close()

    def read_chosen(self, own: OwnCells, rotation: Rotation) -> tuple[pa.Table, list[BookieSample]]:
        """Ask for what a run takes of some positions; return SAMPLES, and what came of each bookie."""
        parts: list[list[_Asked]] = []
        for place in range(len(self.targets)):
            is_own = own.cells.bookie == place
            parts.append(list(_cut(own.cells.select(is_own), own.ledgers[is_own], own.size[is_own], rotation)))
        return self._read_all(parts)

    def read_everywhere(
        self, ledgers: Ints, runs: KeyedRuns, size: npt.NDArray[np.float64]
    ) -> tuple[pa.Table, list[BookieSample]]:
        """Ask every bookie for the same entries; return SAMPLES, and what came of each bookie.

        Args:
            ledgers: ids of scope 0.
            runs: of entries, keyed by the place of the ledger.
            size: of each ledger, about how many bytes an entry has.
        """
        asked = _Asked(ledgers, runs, size, np.ones(len(ledgers)))
        return self._read_all([[asked] for _ in self.targets])

    def _read_all(self, parts: Sequence[Sequence[_Asked]]) -> tuple[pa.Table, list[BookieSample]]:
        tables = [SAMPLES.empty_table()]
        samples = []
        for target, answers in zip(self.targets, self._runner.run(self._ask_all(parts)), strict=True):
            total = BookieSample(target.bookie)
            for rows, sample in answers:
                tables.append(rows)
                total = total.add(sample)
            samples.append(total)
        return sort_by_key(pa.concat_tables(tables)), samples

    async def _ask_all(self, parts: Sequence[Sequence[_Asked]]) -> list[list[tuple[pa.Table, BookieSample]]]:
        room = asyncio.Semaphore(_BOOKIES_AT_ONCE)

        async def ask(place: int) -> list[tuple[pa.Table, BookieSample]]:
            target = self.targets[place]
            async with room:
                bookie = self._wire[target.bookie]
                return [
                    await _Reading(bookie, asked, self._budgets[place]).read(target.bookie) for asked in parts[place]
                ]

        return await asyncio.gather(*(ask(place) for place in range(len(parts))))


def _cut(cells: Cells, ledgers: Ints, size: npt.NDArray[np.float64], rotation: Rotation) -> Iterator[_Asked]:
    """Yield what a run takes of the positions of one bookie, so that few entries are held at a time."""
    stretches = find_stretches(cells, ledgers, rotation)
    chosen, cost = count_chosen(cells, stretches)
    # All positions of a ledger stay together: they become one row.
    new = np.flatnonzero(np.append(True, ledgers[1:] != ledgers[:-1])) if len(ledgers) else np.empty(0, np.int64)
    of_ledger = np.add.reduceat(chosen, new) if len(new) else new
    part = np.repeat(np.cumsum(of_ledger) // _SLICE, np.diff(np.append(new, len(ledgers))))
    for number in np.unique(part).tolist():
        rows = np.flatnonzero(part == number)
        distinct, place = np.unique(cells.ledger[rows], return_inverse=True)
        first = np.searchsorted(cells.ledger[rows], distinct)
        runs = choose_entries(cells.select(rows), type(stretches)(*(column[rows] for column in stretches))).runs
        weight = np.bincount(place, cost[rows]) / np.bincount(place, chosen[rows])
        # A record that names a bookie twice in a segment asks for entries twice.
        of_some = union_runs(runs._replace(key=place[runs.key]))
        yield _Asked(ledgers[rows][first], of_some, size[rows][first], weight)


class _Reading:
    """Some entries asked of one bookie; what it said about entry n is at place n."""

    def __init__(self, bookie: BookieConnection, asked: _Asked, budget: ByteBudget) -> None:
        self._bookie = bookie
        self._asked = asked
        self._budget = budget
        place, entry = lay_out(asked.runs)
        first = np.append(True, place[1:] != place[:-1])[: len(place)]
        order = np.argsort(~first, kind="stable")
        self._place, self._entry = place[order], entry[order]
        self._state = np.zeros(len(self._entry), np.int8)
        self._is_unknown = np.zeros(len(asked.ledgers), np.bool_)
        self._answers = 0
        self._bytes = 0
        self._spent = 0.0
        self._why = ""

    async def read(self, name: str) -> tuple[pa.Table, BookieSample]:
        """Ask for all of them; return SAMPLES, and what came of it."""
        loop = asyncio.get_running_loop()
        expected = np.append(0.0, np.cumsum((self._asked.size * self._asked.weight)[self._place]))
        begin, step = 0, self._budget.rate * _STEP_S
        while begin < len(self._entry):
            end = int(np.searchsorted(expected, expected[begin] + step, side="right")) - 1
            end = min(max(end, begin + 1), begin + _AT_ONCE, len(self._entry))
            wait = self._budget.find_wait(loop.time())
            if wait:
                await asyncio.sleep(wait)
            moment, self._spent, self._answers = loop.time(), 0.0, 0
            requests = self._list_requests(begin, end)
            await self._bookie.ask(requests, self._take)
            self._budget.spend(moment, self._spent)
            if requests and not self._answers and self._budget.patience:
                self._budget.patience -= 1
                await asyncio.sleep(self._bookie.options.patience_s)
                continue
            begin = end
        return self._make_rows(name), self._count(name)

    def _list_requests(self, begin: int, end: int) -> list[tuple[int, frames.BookieQuestion]]:
        places, entries = self._place[begin:end].tolist(), self._entry[begin:end].tolist()
        ledgers = self._asked.ledgers
        return [
            (begin + n, frames.read_entry(int(ledgers[place]), entry))
            for n, (place, entry) in enumerate(zip(places, entries, strict=True))
            if not self._is_unknown[place]
        ]

    def _take(self, n: int, answer: BookieAnswer) -> None:
        self._answers += answer.outcome is not RequestOutcome.NO_ANSWER
        if answer.outcome is RequestOutcome.ANSWER:
            self._state[n] = _HELD
            self._bytes += len(answer.body)
            self._spent += len(answer.body) * self._asked.weight[self._place[n]]
        elif answer.outcome is not RequestOutcome.NEGATIVE:
            self._why = self._why or answer.said
        elif answer.status == Status.ENOLEDGER:
            self._is_unknown[self._place[n]] = True
        else:
            self._state[n] = _LACKS

    def _finish(self) -> None:
        """Let what was not asked, or was asked too early, follow from a ledger that the bookie does not know."""
        # A ledger of which it gave an entry it knows: it was deleted meanwhile, or comes back.
        self._is_unknown[self._place[self._state == _HELD]] = False
        unsaid = self._is_unknown[self._place] & (self._state != _LACKS)
        self._state[unsaid] = _NO_LEDGER

    def _make_rows(self, name: str) -> pa.Table:
        self._finish()
        count = len(self._asked.ledgers)
        columns: dict[str, Any] = {}
        for column, number, states in (("held", "entries", (_HELD,)), ("lacks", "lacking", (_LACKS, _NO_LEDGER))):
            of_state = np.isin(self._state, states)
            single = np.ones(int(of_state.sum()), np.int64)
            runs = union_runs(KeyedRuns(self._place[of_state], self._entry[of_state], single))
            columns[column] = to_arrow(group_runs(runs), count)
            columns[number] = np.bincount(self._place[of_state], minlength=count)
        ledgers = self._asked.ledgers
        scope = np.full(count, SCOPE)
        columns |= {
            "bucket": find_buckets(scope, ledgers),
            "scope": scope,
            "ledger": ledgers,
            "bookie": pa.array([name] * count, pa.string()),
            "no_ledger": self._is_unknown,
            "failed": np.bincount(self._place[self._state == 0], minlength=count),
        }
        return pa.table({field: columns[field] for field in SAMPLES.names}, schema=SAMPLES)

    def _count(self, name: str) -> BookieSample:
        counts = np.bincount(self._state, minlength=_NO_LEDGER + 1).tolist()
        lacking = counts[_LACKS] + counts[_NO_LEDGER]
        return BookieSample(name, len(self._state), counts[_HELD], lacking, counts[0], self._bytes, self._why)
