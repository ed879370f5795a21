"""Indexes taken by several processes, in units: some subfolders of the first level, or a range of a database.

Every process does whole what `index` describes, for its ledgers: all that an index says of one is in one unit.
This process works, too, and the others start only once there is more to do than starting them costs.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from multiprocessing import connection
from multiprocessing.synchronize import Event
from typing import Final

import numpy as np

from recovery.collect.damage import Noted, Unread
from recovery.collect.db import Range, read_range
from recovery.collect.facts import FACT_WIDTH, KEY, LAC, LEDGER, NONE, Interned
from recovery.collect.holdings import GROUP_WIDTH, Ints
from recovery.collect.index import Block, Found, IndexTaker, Piece
from recovery.collect.interleaved import IndexReader, Level, Pages, find_files
from recovery.collect.logs import decimal_name
from recovery.collect.reading import Meter, Progress
from recovery.collect.records import HEAD_WIDTH, RecordFile, RecordFiles
from recovery.collect.scopes import Scopes, translated
from recovery.errors import ProcessLostError

_UNITS: Final = 16
"""Units that the subfolders are dealt into: few, so that the reads of a unit are close together in each entry log."""
_WORTH_S: Final = 0.5
"""Seconds of work after which others are called in: each takes about as long to start."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What is the same for all units of an index.

    Attributes:
        logs: the entry logs by id.
        passwords: that may have made an HMAC.
        every: all locations are confirmed, not only where there is doubt.
    """

    logs: Mapping[int, Sequence[RecordFile]]
    passwords: tuple[bytes, ...] = field(repr=False)
    every: bool


@dataclass(slots=True)
class _Kept:
    """Keeps rows."""

    width: int
    rows: list[Ints] = field(default_factory=list)

    def add(self, rows: Ints) -> None:
        self.rows.append(rows)

    def all(self) -> Ints:
        return np.concatenate([np.empty((0, self.width), np.int64), *self.rows])

    def rename(self, column: int, ours: Ints) -> None:
        rows = self.all()
        rows[:, column] = translated(rows[:, column], ours)
        self.rows = [rows]


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """What one unit gave.

    Attributes:
        setup: the number of its `Setup`.
        found: rows; the numbers of keys and LACs in its facts are those of `secrets`.
        known: ledgers with at least one confirmed entry.
        damage: what could not be taken.
        secrets: keys and LACs.
        pages: what the sizes of the files say.
        folders: bytes of index files read of each index folder.
        read, files: bytes and files in all, of another process; 0: counted already.
    """

    setup: int
    found: Found[_Kept]
    known: Ints
    damage: tuple[Unread, ...]
    secrets: Interned
    pages: Pages
    folders: Mapping[int, int]
    read: int
    files: int

    def facts(self, secrets: Interned) -> Ints:
        """Return the rows of facts with the numbers of other `Interned`; see `named_by` for the ledgers."""
        facts = self.found.facts.all()
        for column, numbers in (
            (KEY, [secrets.stamped(key) for key in self.secrets.keys]),
            (LAC, [secrets.lac(lac) for lac in self.secrets.lacs]),
        ):
            facts[:, column] = np.array([*numbers, NONE], np.int64)[facts[:, column]]
        return facts

    def named_by(self, scopes: Scopes) -> "Taken":
        """Return the same with keys of other `Scopes` for the ledgers."""
        ours = scopes.absorb(self.secrets.scopes)
        if not len(ours):
            return self
        for kept, column in ((self.found.groups, 0), (self.found.heads, 0), (self.found.dangling, 0)):
            kept.rename(column, ours)
        self.found.facts.rename(LEDGER, ours)
        cut = [(replace(file, ledger=_named(file.ledger, ours)), size) for file, size in self.pages.cut]
        damage = (one if one.ledger is None else replace(one, ledger=_named(one.ledger, ours)) for one in self.damage)
        known = np.unique(translated(self.known, ours))
        return replace(self, known=known, damage=tuple(damage), pages=replace(self.pages, cut=cut))


def _named(key: int, ours: Ints) -> int:
    return int(translated(np.array([key]), ours)[0])


@dataclass(frozen=True, slots=True)
class Unit:
    """What one process takes at a time.

    Attributes:
        setup: the number of its `Setup`.
        part: subfolders of the first level, or a range of a database.
    """

    setup: int
    part: Sequence[Level] | Range


def units_of(setup: int, levels: Sequence[Level]) -> list[Unit]:
    """Deal subfolders of the first level into units."""
    return [Unit(setup, levels[n::_UNITS]) for n in range(min(_UNITS, len(levels)))]


def take_all(units: Iterable[Unit], setups: Sequence[Setup], meter: Meter, processes: int) -> Iterator[Taken]:
    """Yield what every unit gave, in no order.

    Args:
        units: what is to be taken.
        setups: that units name by number.
        meter: counts and paces; its rate is shared among the processes.
        processes: at most so many, this one included.

    Raises:
        ProcessLostError: another process was killed.
    """
    todo = deque(units)
    begun = meter.clock()
    while todo and (processes == 1 or meter.clock() - begun < _WORTH_S):
        yield _take(todo.popleft(), setups, meter)
    if not todo:
        return
    rate = meter.rate
    meter.rate = None if rate is None else rate / processes
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    pool = ProcessPoolExecutor(processes - 1, context, _begin, (setups, meter.rate, stop))
    running: set[Future[Taken]] = set()
    try:
        while todo or running:
            while todo and len(running) < processes - 1:
                running.add(pool.submit(_take_elsewhere, todo.popleft()))
            if todo:
                yield _take(todo.popleft(), setups, meter)
            done, running = wait(running, 0 if todo else None, FIRST_COMPLETED)
            for one in done:
                taken = one.result()
                meter.count(taken.read, taken.files)
                yield taken
    except BrokenProcessPool as error:
        raise ProcessLostError from error
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)
        meter.rate = rate


def _take(unit: Unit, setups: Sequence[Setup], meter: Meter) -> Taken:
    setup = setups[unit.setup]
    damage, secrets = Noted(), Interned()
    found = Found(*(_Kept(width) for width in (GROUP_WIDTH, HEAD_WIDTH, FACT_WIDTH, GROUP_WIDTH)))
    scopes = secrets.scopes
    logs = RecordFiles(setup.logs, meter, damage, setup.passwords, decimal_name, scopes=scopes)
    taker, reader = IndexTaker(logs, found, every=setup.every), IndexReader(meter, damage, secrets)
    pieces: Iterator[Piece | Block] = (
        read_range(unit.part, meter, damage, scopes)
        if isinstance(unit.part, Range)
        else reader.read(find_files(unit.part, damage, scopes))
    )
    for piece in pieces:
        taker.take(piece)
    taker.end()
    return Taken(unit.setup, found, taker.known(), tuple(damage.found), secrets, reader.pages, reader.bytes, 0, 0)


class _StoppedError(Exception):
    """The process that asked for the work does not want it any more."""


@dataclass(frozen=True, slots=True)
class _Elsewhere:
    """What another process keeps from one unit to the next."""

    setups: Sequence[Setup]
    meter: Meter


_elsewhere: list[_Elsewhere] = []


def _begin(setups: Sequence[Setup], rate: float | None, stop: Event) -> None:
    """Make another process ready; it ends with the one that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def outlive() -> None:
        if parent is not None:
            connection.wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=outlive, daemon=True).start()

    def check(_: Progress) -> None:
        if stop.is_set():
            raise _StoppedError

    _elsewhere.append(_Elsewhere(setups, Meter(rate, check)))


def _take_elsewhere(unit: Unit) -> Taken:
    (here,) = _elsewhere
    read, files = here.meter.read, here.meter.files
    taken = _take(unit, here.setups, here.meter)
    return replace(taken, read=here.meter.read - read, files=here.meter.files - files)
