"""Indexes taken by several processes, in units: some subfolders of the first level, or a range of a database.

A unit has all that an index says about its ledgers, so one process does for them everything that `sources.index`
describes. What an earlier collection kept (see `incremental`) is compared in units, too; units leave out what is taken
over. This process works, too. The others start only when there is more to do than starting them costs.
"""

import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.sharedctypes import Synchronized
from typing import Final

import numpy as np

from recovery.collect.disk.file_reader import Meter
from recovery.collect.incremental.records import FINGERPRINT_WIDTH, LOG_WIDTH
from recovery.collect.incremental.row_sets import find_logs_of, hash_slots
from recovery.collect.rows.damage import DamageList, UnreadPiece
from recovery.collect.rows.entry_headers import HEAD_WIDTH
from recovery.collect.rows.index_slots import Block, IndexPiece, IndexRows
from recovery.collect.rows.ledger_facts import FACT_WIDTH, KEY, LAC, LEDGER, NONE, Interned
from recovery.collect.rows.scoped_ids import Scopes, translate_keys
from recovery.collect.rows.source_copies import GROUP_WIDTH, Ints, Mask
from recovery.collect.sources.entry_logs import read_decimal
from recovery.collect.sources.entry_records import RecordFile, RecordFiles
from recovery.collect.sources.index import IndexTaker
from recovery.collect.sources.index_database import LocationRange, read_range
from recovery.collect.sources.index_files import IndexReader, Pages
from recovery.collect.sources.index_folders import FolderLevel, IndexFile, find_files
from recovery.errors import ProcessLostError

_UNITS: Final = 16
"""Units of subfolders: few, so that the reads of a unit are close together in each entry log."""
_WORTH_S: Final = 1.0
"""Other processes start if more seconds of work than this remain: a process takes half as long to start."""
_STOPPING: Final = (signal.SIGINT, signal.SIGTERM)
_AT_ONCE: Final = 4096
"""Files that are examined at a time."""


class IndexTask(Enum):
    """The kinds of work on an index."""

    READ = auto()
    """The index is read."""
    KEEP = auto()
    """The index is read, and its fingerprints are taken for the next collection."""
    COMPARE = auto()
    """Only fingerprints are taken."""
    REST = auto()
    """The changed parts of the index are read; fingerprints were taken before."""
    AGAIN = auto()
    """Only named parts are read, a second time."""


@dataclass(frozen=True, slots=True)
class KeptKeys:
    """Ledgers that are not read.

    Attributes:
        ledgers: of scope 0, ascending.
        scoped: the others.
    """

    ledgers: Ints = field(default_factory=lambda: np.empty(0, np.int64), repr=False)
    scoped: Scopes = field(default_factory=Scopes, repr=False)

    def has(self, keys: Ints, scopes: Scopes) -> Mask:
        """Return which ledgers are among them; `scopes` names `keys`."""
        rows = np.searchsorted(self.ledgers, keys)
        is_kept: Mask = rows < len(self.ledgers)
        is_kept[is_kept] = self.ledgers[rows[is_kept]] == keys[is_kept]
        if len(scoped := np.flatnonzero(keys < NONE)):
            is_kept[scoped] = self.scoped.are_known(*scopes.ids(keys[scoped]))
        return is_kept


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings that all units of an index share.

    Attributes:
        logs: the entry logs by id.
        passwords: candidates for HMACs.
        confirms_all: all locations are confirmed, not only where there is doubt.
        source: number of the database; index files have theirs.
        task: the kind of work.
        kept: taken-over ledgers; for `AGAIN` the ledgers to read.
        is_reported: the damage of the index was reported before.
    """

    logs: Mapping[int, Sequence[RecordFile]]
    passwords: tuple[bytes, ...] = field(repr=False)
    confirms_all: bool
    source: int = NONE
    task: IndexTask = IndexTask.READ
    kept: KeptKeys = field(default_factory=KeptKeys)
    is_reported: bool = False


@dataclass(slots=True)
class RowList:
    """Keeps rows."""

    width: int
    rows: list[Ints] = field(default_factory=list)

    def add(self, rows: Ints) -> None:
        self.rows.append(rows)

    def read_all(self) -> Ints:
        return np.concatenate([np.empty((0, self.width), np.int64), *self.rows])

    def rename(self, column: int, new_keys: Ints) -> None:
        rows = self.read_all()
        rows[:, column] = translate_keys(rows[:, column], new_keys)
        self.rows = [rows]


@dataclass(frozen=True, slots=True, eq=False)
class UnitResult:
    """The result of one unit.

    Attributes:
        setup: the number of its `Setup`.
        index: rows; the numbers of keys and LACs in its facts refer to `secrets`.
        known: ledgers with at least one confirmed entry.
        listed: damage in the places of index files.
        damage: other parts that could not be read.
        secrets: keys and LACs.
        pages: the page size, from the sizes of files.
        bytes, counts: of index files in each index folder: bytes of slots and headers, and how many there are.
        fingerprints, logs: for the next collection.
        read, files: bytes and files in all, of another process; 0: counted already.
    """

    setup: int
    index: IndexRows[RowList]
    known: Ints
    listed: tuple[UnreadPiece, ...]
    damage: tuple[UnreadPiece, ...]
    secrets: Interned
    pages: Pages
    bytes: Mapping[int, int]
    counts: Mapping[int, int]
    fingerprints: Ints
    logs: Ints
    read: int = 0
    files: int = 0

    def facts(self, secrets: Interned) -> Ints:
        """Return the rows of facts with the numbers of other `Interned`; see `rename_ledgers` for the ledgers."""
        facts = self.index.facts.read_all()
        for column, numbers in (
            (KEY, [secrets.add_stamp(key) for key in self.secrets.keys]),
            (LAC, [secrets.add_lac(lac) for lac in self.secrets.lacs]),
        ):
            facts[:, column] = np.array([*numbers, NONE], np.int64)[facts[:, column]]
        return facts

    def rename_ledgers(self, scopes: Scopes) -> "UnitResult":
        """Return the result with keys of other `Scopes` for the ledgers."""
        new_keys = scopes.absorb(self.secrets.scopes)
        if not len(new_keys):
            return self
        for kept, column in ((self.index.groups, 0), (self.index.heads, 0), (self.index.dangling, 0)):
            kept.rename(column, new_keys)
        self.index.facts.rename(LEDGER, new_keys)
        for rows in (self.fingerprints, self.logs):
            rows[:, 0] = translate_keys(rows[:, 0], new_keys)
        cut = [(file._replace(ledger=_translate_key(file.ledger, new_keys)), size) for file, size in self.pages.cut]
        listed, damage = (
            tuple(
                piece if piece.ledger is None else replace(piece, ledger=_translate_key(piece.ledger, new_keys))
                for piece in pieces
            )
            for pieces in (self.listed, self.damage)
        )
        known = np.unique(translate_keys(self.known, new_keys))
        return replace(self, known=known, listed=listed, damage=damage, pages=replace(self.pages, cut=cut))


def _translate_key(key: int, new_keys: Ints) -> int:
    return int(translate_keys(np.array([key]), new_keys)[0])


@dataclass(frozen=True, slots=True)
class Unit:
    """The work that one process takes at a time.

    Attributes:
        setup: the number of its `Setup`.
        part: subfolders of the first level, or a range of a database.
    """

    setup: int
    part: Sequence[FolderLevel] | LocationRange


def make_units(setup: int, levels: Sequence[FolderLevel]) -> list[Unit]:
    """Deal subfolders of the first level into units."""
    return [Unit(setup, levels[n::_UNITS]) for n in range(min(_UNITS, len(levels)))]


def run_units(units: Iterable[Unit], setups: Sequence[Setup], meter: Meter, processes: int) -> Generator[UnitResult]:
    """Yield the results of all units, in no order.

    Args:
        units: the units of work.
        setups: units name them by number.
        meter: counts and paces; all processes together keep to its rate.
        processes: at most so many, this one included.

    Raises:
        ProcessLostError: another process was killed.
    """
    todo = deque(units)
    begun, finished = meter.clock(), 0
    # What is left takes as long as what was done, a unit.
    while todo and (processes == 1 or (meter.clock() - begun) * len(todo) < _WORTH_S * max(finished, 1)):
        yield _run_unit(todo.popleft(), setups, meter)
        finished += 1
    if not todo:
        return
    helpers = min(processes, len(todo)) - 1
    if not helpers:
        yield _run_unit(todo.popleft(), setups, meter)
        return
    context = multiprocessing.get_context("spawn")
    meter.shared = context.Value("d", 0.0)
    idle: list[_Helper] = []
    running: list[_Helper] = []
    try:
        for _ in range(helpers):
            # Signals are held over both: one that has started is known to the last lines here.
            with hold_signals():
                idle.append(_start_helper(context, setups, meter))
        while todo or running:
            while todo and idle:
                running.append(idle.pop())
                running[-1].ask(todo.popleft())
            if todo:
                yield _run_unit(todo.popleft(), setups, meter)
            ready = wait([helper.channel for helper in running], 0 if todo else None)
            for helper in [helper for helper in running if helper.channel in ready]:
                result = helper.receive()
                running.remove(helper)
                idle.append(helper)
                meter.count(result.read, result.files)
                yield result
    finally:
        meter.shared = None
        with hold_signals():  # who is asked to stop a second time has killed them all, nevertheless
            for helper in (*idle, *running):
                helper.process.kill()
        for helper in (*idle, *running):
            helper.end()


@dataclass(frozen=True, slots=True)
class _Failure:
    """The error that ended a unit in another process, and its traceback, which may show secrets."""

    error: Exception
    traceback: str


class _ElsewhereError(Exception):
    """Shows the traceback of another process with that of this one."""


@dataclass(frozen=True, slots=True)
class _Helper:
    """Another process. It only reads, and no process waits for ever for its locks: it may be killed at any time.

    Attributes:
        process: the process.
        channel: it takes units, one at a time, and returns the result of each.
    """

    process: SpawnProcess
    channel: "Connection[Unit, UnitResult | _Failure]"

    def ask(self, unit: Unit) -> None:
        try:
            self.channel.send(unit)
        except OSError as error:
            raise ProcessLostError from error

    def receive(self) -> UnitResult:
        try:
            answer = self.channel.recv()
        except (EOFError, OSError) as error:
            raise ProcessLostError from error
        if isinstance(answer, _Failure):
            raise answer.error from _ElsewhereError(answer.traceback)
        return answer

    def end(self) -> None:
        self.process.join()
        self.channel.close()


def _start_helper(context: SpawnContext, setups: Sequence[Setup], meter: Meter) -> _Helper:
    ours, theirs = context.Pipe()
    process = context.Process(target=_help, args=(theirs, setups, meter.rate, meter.shared), daemon=True)
    try:
        process.start()
    except BrokenPipeError as error:  # it was killed before it had read what it is to do
        raise ProcessLostError from error
    finally:
        theirs.close()  # theirs alone: its end is the end of the channel
    return _Helper(process, ours)


@contextmanager
def hold_signals() -> Iterator[None]:
    """Hear SIGINT and SIGTERM only at the end; a process that is started meanwhile never hears them.

    Blocking them in this thread is for that process, which inherits it. Here it is not enough: the system then gives
    them to another thread, and Python runs the handler in the main one nevertheless.
    """
    came: list[int] = []
    old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.getsignal(number) for number in _STOPPING}
    try:
        for number in handlers:
            signal.signal(number, lambda number, _frame: came.append(number))
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for missed in came:
            signal.raise_signal(missed)


def _run_unit(unit: Unit, setups: Sequence[Setup], meter: Meter) -> UnitResult:
    setup = setups[unit.setup]
    listed, damage, secrets = DamageList(), DamageList(), Interned()
    index = IndexRows(*(RowList(width) for width in (GROUP_WIDTH, HEAD_WIDTH, FACT_WIDTH, GROUP_WIDTH)))
    scopes = secrets.scopes
    logs = RecordFiles(setup.logs, meter, damage, setup.passwords, read_decimal, grow=True, scopes=scopes)
    read_damage = DamageList() if setup.is_reported else damage
    taker, reader = IndexTaker(logs, index, confirms_all=setup.confirms_all), IndexReader(meter, read_damage, secrets)
    compared, named = RowList(FINGERPRINT_WIDTH), RowList(LOG_WIDTH)
    pieces: Iterator[IndexPiece | Block]
    if isinstance(unit.part, LocationRange):
        pieces = _choose_rows(unit.part, setup, compared, meter, read_damage, scopes)
    else:
        files = _choose_files(find_files(unit.part, listed, scopes, reader.ahead), setup, compared, reader, scopes)
        # Files that are only compared are not opened.
        pieces = reader.read(files)
    for piece in pieces:
        if setup.task in (IndexTask.KEEP, IndexTask.REST):
            named.add(find_logs_of(piece))
        taker.take(piece)
    taker.end()
    return UnitResult(
        unit.setup,
        index,
        taker.list_ledgers(),
        tuple(listed.pieces),
        tuple(damage.pieces),
        secrets,
        reader.pages,
        reader.bytes,
        reader.files,
        compared.read_all(),
        named.read_all(),
    )


def _choose_rows(
    part: LocationRange, setup: Setup, compared: RowList, meter: Meter, damage: DamageList, scopes: Scopes
) -> Iterator[IndexPiece | Block]:
    """Yield the wanted slots of a range; keep hashes of its slots on request."""
    for piece in read_range(part, meter, damage, scopes):
        if setup.task in (IndexTask.KEEP, IndexTask.COMPARE):
            compared.add(hash_slots(piece, setup.source))
        if setup.task is IndexTask.COMPARE:
            continue
        if setup.task not in (IndexTask.REST, IndexTask.AGAIN):
            yield piece
            continue
        rest = setup.kept.has(piece.ledger, scopes) == (setup.task is IndexTask.AGAIN)
        yield IndexPiece(piece.ledger[rest], piece.entry[rest], piece.location[rest], piece.facts)


def _choose_files(
    files: Iterator[IndexFile], setup: Setup, compared: RowList, reader: IndexReader, scopes: Scopes
) -> Iterator[IndexFile]:
    """Yield the files to read; keep fingerprints of all on request."""
    if setup.task is IndexTask.READ:
        yield from files
        return
    while batch := list(islice(files, _AT_ONCE)):
        if setup.task in (IndexTask.KEEP, IndexTask.COMPARE):
            compared.add(_take_fingerprints(batch))
            if setup.task is IndexTask.COMPARE:
                reader.count(batch)
                continue
            yield from batch
            continue
        kept = setup.kept.has(np.array([file.ledger for file in batch], np.int64), scopes)
        if setup.task is IndexTask.REST:
            reader.pass_over([batch[n] for n in np.flatnonzero(kept).tolist()])
        for n in np.flatnonzero(kept == (setup.task is IndexTask.AGAIN)).tolist():
            yield batch[n]


def _take_fingerprints(files: Sequence[IndexFile]) -> Ints:
    rows = []
    for file in files:
        try:
            status = os.stat(file.path)  # noqa: PTH116  # a Path for each of a million files takes longer than this
        except OSError:
            continue  # reported when it is read
        rows.append((file.ledger, file.folder, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    return np.array(rows, np.int64).reshape(-1, FINGERPRINT_WIDTH)


def _help(
    channel: "Connection[UnitResult | _Failure, Unit]",
    setups: Sequence[Setup],
    rate: float | None,
    shared: "Synchronized[float]",
) -> None:
    """Run the units that arrive, in another process; it ends with the process that started it."""
    parent = multiprocessing.parent_process()

    def outlive() -> None:
        if parent is not None:
            wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=outlive, daemon=True).start()
    meter = Meter(rate, lambda _: None)
    meter.shared = shared
    while True:
        try:
            unit = channel.recv()
        except EOFError:
            return
        read, files = meter.read, meter.files
        try:
            result = _run_unit(unit, setups, meter)
        except Exception as error:  # noqa: BLE001  # raised where the unit was asked for
            channel.send(_Failure(error, traceback.format_exc()))
        else:
            channel.send(replace(result, read=meter.read - read, files=meter.files - files))
