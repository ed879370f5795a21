"""Reading gently: the rate that holds, what is told on the way, disks that refuse."""

import errno
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from multiprocessing.context import SpawnProcess
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from recovery.collect.disk.file_reader import Mapped, Meter, ReadProgress
from recovery.collect.disk.folders import Disks, survey
from recovery.collect.options import CollectOptions
from recovery.collect.pipeline import collect
from recovery.collect.rows.damage import DamageList
from recovery.collect.rows.ledger_facts import Interned
from recovery.collect.sources import index_files
from recovery.collect.sources.index_files import IndexReader
from recovery.collect.sources.index_folders import find_files, find_first_level
from recovery.dataset import open_dataset
from tests.simulation.bookie_dir import (
    BookieDir,
    locations,
    make_bookie,
    record,
    write_index,
    write_journal,
    write_log,
)
from tests.support.bookie_files import index_files as bookie_index_files
from tests.support.cases import NAMES, cache_home
from tests.support.collecting import look

pytestmark = pytest.mark.long

BLOCK = 4096


MEGABYTE = 1 << 20

meters: list[Meter] = []


def keep_meter(rate: float, shared: "Synchronized[float]", ready: Barrier) -> None:
    """Make another process ready, when all are."""
    meters.append(Meter(rate, lambda _: None))
    meters[0].shared = shared
    ready.wait()


def take_often(size: int, times: int) -> list[float]:
    """Take as fast as the meter allows; return when."""
    taken = []
    for _ in range(times):
        taken.append(time.monotonic())
        meters[0].took(size)
    return taken


class Clock:
    """Time that passes only by sleeping, or as work is said to take."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        assert seconds > 0
        self.now += seconds


def test_no_stretch_of_time_sees_more_than_the_rate() -> None:
    """Whatever sizes are read: at most rate x time plus one read; a pause is not saved up for a burst."""
    clock = Clock()
    meter = Meter(1000, lambda _: None, clock=lambda: clock.now, sleep=clock.sleep)
    taken: list[tuple[float, int]] = []
    for size in (10, 500, 5000, 1, 1, 700):
        taken.append((clock.now, size))
        meter.took(size)
    clock.now += 3600
    for size in (800, 800, 800):
        taken.append((clock.now, size))
        meter.took(size)
    for start in range(len(taken)):
        for end in range(start + 1, len(taken)):
            waited = taken[end][0] - taken[start][0]
            assert sum(size for _, size in taken[start:end]) <= waited * 1000 + 1e-6


def test_without_a_rate_nothing_waits() -> None:
    """The clock is not even looked at."""

    def never() -> float:
        raise AssertionError

    Meter(None, lambda _: None, clock=never).took(1 << 40)


def test_a_slow_collection_takes_its_time(tmp_path: Path) -> None:
    """A real one, paced: the bytes that it says it read do not exceed rate x time by more than what is in flight."""
    made = make_bookie(tmp_path, {ledger: range(50) for ledger in range(20)})
    options = CollectOptions(made.ledger_dirs, (), made.journal_dirs, max_mb_s=1)
    begun = datetime.now(UTC)
    summary = collect(options, tmp_path / "out", now=lambda: datetime.now(UTC), progress=lambda _: None)
    took = (datetime.now(UTC) - begun).total_seconds()
    assert summary.bytes_read > 200_000
    assert took >= summary.bytes_read / 1_000_000 * 0.9


def test_one_rate_holds_over_several_processes() -> None:
    """Three processes that read as fast as they may: in no stretch of time do all of them together take more."""
    rate, size, many = 1_000_000, 5_000, 3
    context = multiprocessing.get_context("spawn")
    shared, ready = context.Value("d", 0.0), context.Barrier(many)
    with ProcessPoolExecutor(many, context, keep_meter, (rate, shared, ready)) as pool:
        asked = [pool.submit(take_often, size, 100) for _ in range(many)]
        taken = sorted(at for one in asked for at in one.result())
    assert len(taken) == 100 * many
    for start, begun in enumerate(taken):
        for end in range(start + 1, len(taken)):
            # Each process may have read once before it asks, and be held up between the two.
            assert (end - start - 2 * many) * size <= (taken[end] - begun) * rate


def test_several_processes_take_the_time_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real collection by three, paced: whatever each of them reads, together they keep to the rate."""
    begun_elsewhere: list[object] = []
    real = SpawnProcess.start

    def start(process: SpawnProcess) -> None:
        begun_elsewhere.append(process)
        real(process)

    monkeypatch.setattr("recovery.collect.workers._WORTH_S", -1.0)
    monkeypatch.setattr(SpawnProcess, "start", start)
    made = make_bookie(tmp_path, {ledger << 8: range(3) for ledger in range(256)})
    options = CollectOptions(made.ledger_dirs, (), made.journal_dirs, max_mb_s=0.5, processes=3)
    begun = time.monotonic()
    summary = collect(options, tmp_path / "out", now=lambda: datetime.now(UTC), progress=lambda _: None)
    assert len(begun_elsewhere) > 1
    assert summary.bytes_read > 256 * 9 * 1024
    assert time.monotonic() - begun >= summary.bytes_read / 500_000


@pytest.fixture
def disk() -> Iterator[Path]:
    """A folder on a disk, as other tests' may be in memory."""
    cache_home().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_home()) as folder:
        yield Path(folder)


def test_at_a_rate_nothing_stays_in_the_page_cache_that_was_not_there(disk: Path) -> None:
    """A whole file is read through it, and only what was there before is there afterwards."""
    path = disk / "file"

    def lets_go() -> bool:
        with let_go_of(path) as fd:
            return not any(in_page_cache(fd))

    if not any(lets_go() for _ in range(20)):
        pytest.skip("this file system is one in memory, or keeps what it is asked to let go of")
    seen = []
    for _ in range(50):  # the kernel may let go of anything at any time, and keep a page in spite of advice
        with let_go_of(path) as fd:
            os.pread(fd, BLOCK, 5 * MEGABYTE)
            with Mapped(path, Meter(1e12, lambda _: None)) as mapped:
                mapped.load()
                assert mapped.view[:256] == mapped.view[-256:] == bytes(range(256))
            there = in_page_cache(fd)
            if there[5] and not any(there[:4] + there[6:]):
                return
            seen.append(there)
    raise AssertionError(f"what was there before is gone, or more is there: {seen}")


@contextmanager
def let_go_of(path: Path) -> Iterator[int]:
    """Open a new file of eight megabytes, of which nothing is in the page cache."""
    path.unlink(missing_ok=True)
    path.write_bytes(bytes(range(256)) * (8 * MEGABYTE // 256))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        yield file.fileno()


def in_page_cache(fd: int) -> list[bool]:
    """Whether the first page of each megabyte of a file is in the page cache; asking may bring it there."""

    def is_there(at: int) -> bool:
        try:
            return os.preadv(fd, [bytearray(1)], at, os.RWF_NOWAIT) == 1
        except BlockingIOError:
            return False
        except OSError:  # it does not tell
            return True

    return [is_there(at) for at in range(0, os.fstat(fd).st_size, MEGABYTE)]


def test_progress_goes_through_the_stages_and_only_forward(tmp_path: Path) -> None:
    """Every stage begins, grows and ends; totals that are known are reached."""
    made = make_bookie(tmp_path, {5: [0, 1]})
    write_journal(made, 0x100, [record(5, 2)])
    told: list[ReadProgress] = []
    options = CollectOptions(made.ledger_dirs, (), made.journal_dirs)
    collect(options, tmp_path / "out", now=lambda: datetime.now(UTC), progress=told.append)
    stages = list(dict.fromkeys(one.stage for one in told))
    assert stages == ["folders", "journals", "index", "logs", "inventory"]
    for stage in stages:
        of_stage = [one for one in told if one.stage == stage]
        assert [one.bytes for one in of_stage] == sorted(one.bytes for one in of_stage)
    for stage in ("journals", "logs"):
        last = [one for one in told if one.stage == stage][-1]
        assert last.files == last.files_total == 1
        assert last.bytes >= last.bytes_total > 0


class BadDisk:
    """Refuses to read some stretches of a file, as a disk with bad sectors does."""

    def __init__(self, path: Path, bad: Sequence[range]) -> None:
        self._read = os.preadv
        self._path = path
        self._bad = bad

    def preadv(self, fd: int, buffers: Sequence[memoryview], at: int) -> int:
        """Stands for os.preadv."""
        size = sum(len(buffer) for buffer in buffers)
        if Path(f"/proc/self/fd/{fd}").readlink() == self._path:
            for bad in self._bad:
                if at < bad.stop and at + size > bad.start:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
        return self._read(fd, buffers, at)


@pytest.fixture
def made(tmp_path: Path) -> BookieDir:
    """A bookie whose log goes over many blocks."""
    return make_bookie(tmp_path / "bookie", {5: range(300), 6: range(300)})


def test_what_a_disk_refuses_is_zeros_in_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the blocks that cannot be read are lost, and they are told."""
    path = tmp_path / "file"
    raw = os.urandom(10 * BLOCK)
    path.write_bytes(raw)
    disk = BadDisk(path, [range(3 * BLOCK + 5, 3 * BLOCK + 6), range(7 * BLOCK, 9 * BLOCK)])
    monkeypatch.setattr(os, "preadv", disk.preadv)
    with Mapped(path, Meter(None, lambda _: None)) as file:
        file.load()
        assert file.unreadable == [(3 * BLOCK, BLOCK), (7 * BLOCK, 2 * BLOCK)]
        expected = bytearray(raw)
        for at, length in file.unreadable:
            expected[at : at + length] = bytes(length)
        assert bytes(file.view) == expected


def test_bad_sectors_of_a_log_cost_what_is_on_them(
    made: BookieDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scan goes on behind them; where entries cannot be read, the run goes on and says so."""
    disk = BadDisk(made.log(), [range(2 * BLOCK, 3 * BLOCK)])
    monkeypatch.setattr(os, "preadv", disk.preadv)
    seen = look(made, tmp_path, deep=True)
    held = seen.entries("index", 5) + seen.entries("index", 6)
    assert 450 < len(held) < 600
    assert ("unreadable", None, True) in seen.reasons()
    assert {("dangling", 5, True), ("dangling", 6, True)} & seen.reasons()
    assert not seen.bookie["complete"]
    assert [folder["unread"] > 0 for folder in seen.bookie["dirs"] if folder["role"] == "ledger"] == [True]


def test_a_last_entry_on_a_bad_sector_is_not_held(
    made: BookieDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one before it counts; nothing hangs."""
    size = made.log().stat().st_size
    disk = BadDisk(made.log(), [range(size - 60, size)])
    monkeypatch.setattr(os, "preadv", disk.preadv)
    seen = look(made, tmp_path)
    assert max(seen.entries("index", 6)) < 299
    assert max(seen.entries("index", 5)) == 299
    assert not seen.bookie["complete"]


def test_a_file_that_grows_or_goes_is_no_reason_to_stop(made: BookieDir, tmp_path: Path) -> None:
    """A log that is a link to nowhere: its entries dangle, the rest is read."""
    made.log().rename(tmp_path / "moved")
    made.log().symlink_to(tmp_path / "nowhere")
    seen = look(made, tmp_path)
    assert ("unreadable", None, True) in seen.reasons()
    assert {("dangling", 5, True), ("dangling", 6, True)} <= seen.reasons()
    assert open_dataset(tmp_path / "inventory", "inventory").rows("copies") == 2


class Meanwhile:
    """Lets something happen the first time that a file is opened."""

    def __init__(self, path: Path, happens: Callable[[], object]) -> None:
        self._open = os.open
        self._path = path
        self._happens: list[Callable[[], object]] = [happens]

    def open(self, path: str | Path, *more: int) -> int:
        """Stands for os.open."""
        if Path(path) == self._path and self._happens:
            self._happens.pop()()
        return self._open(path, *more)


@pytest.fixture
def compacted(tmp_path: Path) -> BookieDir:
    """A bookie that runs."""
    return make_bookie(tmp_path / "bookie", {5: range(9), 6: range(9)}, dirty=True, rotated=True)


def test_what_is_compacted_meanwhile_is_found_in_its_new_place(
    compacted: BookieDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index that was read, a log that is gone since, and one that is new: no entry is missed, no disk suspected."""
    made = compacted

    def compact() -> None:
        write_log(made, 1, [(ledger, n) for ledger in (5, 6) for n in range(9)])
        for ledger in (5, 6):
            write_index(made, ledger, locations(made, 1, ledger))
        made.log().unlink()

    monkeypatch.setattr(os, "open", Meanwhile(made.log(), compact).open)
    seen = look(made, tmp_path)
    assert [seen.entries("index", ledger) for ledger in (5, 6)] == [[*range(9)]] * 2
    assert seen.reasons() == {("missing", None, False)}
    assert seen.bookie["complete"]


def test_what_is_written_meanwhile_is_found(
    compacted: BookieDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index file that already names a log made, or gone on with, since the logs were listed."""
    made = compacted

    def write() -> None:
        write_log(made, 1, [(6, n) for n in range(9)], rotated=False)
        write_index(made, 6, locations(made, 1, 6))

    monkeypatch.setattr(os, "open", Meanwhile(made.index(5), write).open)
    seen = look(made, tmp_path)
    assert seen.entries("index", 6) == [*range(9)]
    assert seen.damage == []


@pytest.mark.parametrize("what", ["ledger", "folder"])
def test_a_ledger_that_is_deleted_meanwhile_hides_nothing_and_a_folder_that_goes_does(
    what: str, compacted: BookieDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends with an inventory; of neither it believes that nothing else was there."""
    folder = compacted.ledger_dirs[0] / "current"
    happens: dict[str, Callable[[], object]] = {
        "ledger": compacted.index(5).unlink,
        "folder": lambda: folder.rename(tmp_path / "gone"),
    }
    monkeypatch.setattr(os, "open", Meanwhile(compacted.index(5), happens[what]).open)
    seen = look(compacted, tmp_path)
    if what == "ledger":
        assert seen.reasons() == {("missing", 5, False)}
        assert seen.entries("index", 6) == [*range(9)]
    assert not seen.bookie["complete"]


@pytest.mark.parametrize("which", ["ledgers", "journal"])
def test_a_folder_that_goes_before_it_is_listed_is_damage(
    which: str, compacted: BookieDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was there when roles were told, and is not when its files are looked for: nothing is believed of it."""

    def looked_at(*given: Any) -> Disks:
        found = survey(*given)
        (folder,) = compacted.ledger_dirs if which == "ledgers" else compacted.journal_dirs
        folder.rename(tmp_path / "gone")
        return found

    monkeypatch.setattr("recovery.collect.pipeline.survey", looked_at)
    seen = look(compacted, tmp_path)
    assert ("unreadable", None, True) in seen.reasons()
    assert not seen.bookie["complete"]


@pytest.mark.parametrize("case", [name for name in NAMES if bookie_index_files(name)])
def test_what_is_asked_ahead_of_a_cold_disk_is_what_a_warm_one_gives(
    case: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Folders listed and files read several at a time give the same, in the same order, and the same damage."""
    tops = sorted({path.parents[2] for path in bookie_index_files(case)})
    links = [tmp_path / f"{number}" for number in range(len(tops))]
    for top, link in zip(tops, links, strict=True):
        link.mkdir()
        for level in top.iterdir():
            (link / level.name).symlink_to(level)
    # The same files are in two folders, and a file is where a folder should be.
    links.append(tmp_path / "again")
    (links[-1] / "0").mkdir(parents=True)
    (links[-1] / "0" / "0").write_bytes(b"no folder")

    ahead: list[int] = []

    def found() -> tuple[list[Any], list[Any]]:
        damage, secrets = DamageList(), Interned()
        reader = IndexReader(Meter(None, lambda _: None), damage, secrets)
        levels = find_first_level([*links, links[0]], damage)
        ahead.append(1)
        rows: list[Any] = []
        for file in find_files(levels, damage, secrets.scopes, reader.ahead):
            rows.append((file.path, file.ledger))
            rows += [
                (piece.to_piece().entry.tolist(), piece.to_piece().location.tolist()) for piece in reader.read([file])
            ]
            ahead.append(reader.ahead())
        return rows, damage.pieces

    monkeypatch.setattr(index_files, "_WAITS", float("inf"))
    warm = found()
    assert set(ahead) == {1}
    monkeypatch.setattr(index_files, "_WAITS", -1.0)
    assert found() == warm
    assert max(ahead) > 1
    assert warm[0]
    assert warm[1]


def test_a_disk_waits_and_a_busy_machine_does_not() -> None:
    """Of the time that does not work, what waits for a processor is not waiting for a disk; what waits for data is."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(own)})
    # It shares the one processor that this process is left.
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        begun, idle = time.monotonic() - time.thread_time(), index_files._read_idle_clock()
        while (queued := time.monotonic() - time.thread_time() - begun) < 0.05:
            pass
        assert index_files._read_idle_clock() - idle < queued / 2
    finally:
        busy.kill()
        busy.wait()
        os.sched_setaffinity(0, own)
    reading, writing = os.pipe()
    with subprocess.Popen([sys.executable, "-c", "import os; os.write(1, b'.')"], stdout=writing) as late:
        begun, idle = time.monotonic() - time.thread_time(), index_files._read_idle_clock()
        os.read(reading, 1)
        waited = time.monotonic() - time.thread_time() - begun
        assert index_files._read_idle_clock() - idle > waited / 2
        late.wait()
    os.close(reading)
    os.close(writing)
