"""Collecting is stopped: at once, with one message, whatever other processes do just then."""

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from recovery.collect import workers
from recovery.collect.disk.file_reader import Meter
from recovery.collect.rows.damage import DamageList
from recovery.collect.sources.index_folders import find_first_level
from recovery.collect.workers import Setup, Unit, UnitResult, hold_signals, make_units, run_units
from recovery.errors import ProcessLostError
from tests.simulation.bookie_dir import make_bookie
from tests.support.command import PATIENCE_S
from tests.support.waiting import until

pytestmark = pytest.mark.long

FILE_SIZE = 9216 + 100
"""Bytes of an index file, and a margin: that much later is the next byte due only when two processes have read one."""


class _StoppedError(Exception):
    """What the handler of the test raises."""


def _raise_stopped(_number: int, _frame: FrameType | None) -> None:
    raise _StoppedError


@contextmanager
def _stopped_by(number: signal.Signals) -> Iterator[None]:
    before = signal.signal(number, _raise_stopped)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_process_is_started_is_heard_when_it_has_started(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The other process gets all that it reads at its start: it does not end with a traceback of its own."""
    real = multiprocessing.util.spawnv_passfds
    heard: list[bool] = []

    def start(*arguments: Any) -> Any:
        pid = real(*arguments)
        # The main thread blocks it, so that another one gets it; what is behind here would be the place to be stopped.
        os.kill(os.getpid(), number)
        until(lambda: not signal.sigpending() & {number}, "the signal is taken")
        heard.append(True)
        return pid

    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    context = multiprocessing.get_context("spawn")
    context.Event()  # starts the process that looks after what is shared, which is not the one that is stopped
    pool = ProcessPoolExecutor(1, context)
    monkeypatch.setattr("multiprocessing.util.spawnv_passfds", start)
    futures = []
    try:
        with _stopped_by(number), pytest.raises(_StoppedError), hold_signals():
            futures.append(pool.submit(int, "7"))
        assert heard == [True]
        assert [future.result(PATIENCE_S) for future in futures] == [7]
    finally:
        done.set()
        other.join()
        pool.shutdown()
    assert "Traceback" not in capfd.readouterr().err


@pytest.fixture
def several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Generator[UnitResult], list[int]]]:
    """Three processes that read a bookie, of which two wait for the rate for ever; the numbers of those two."""
    monkeypatch.setattr(workers, "_WORTH_S", -1.0)
    made = make_bookie(tmp_path, {ledger << 8: [0] for ledger in range(16)})
    meter = Meter(1.0, lambda _: None)
    pids: list[int] = []

    def wait_for_the_others(unit: Unit, setups: Sequence[Setup], _meter: Meter) -> UnitResult:
        until(lambda: meter.shared is not None and meter.shared.value > meter.clock() + FILE_SIZE, "both wait")
        pids.extend(child.pid for child in multiprocessing.active_children() if child.pid is not None)
        return real(replace(unit, part=()), setups, Meter(None, lambda _: None))

    real = workers._run_unit
    monkeypatch.setattr(workers, "_run_unit", wait_for_the_others)
    units = make_units(0, find_first_level([folder / "current" for folder in made.ledger_dirs], DamageList()))[:3]
    results = run_units(units, [Setup({}, (), confirms_all=False)], meter, 3)
    next(results)
    yield results, pids
    results.close()


def test_processes_that_wait_for_the_rate_are_stopped_at_once(
    several: tuple[Generator[UnitResult], list[int]],
) -> None:
    """However slow the rate is: they do not sleep on until it allows them the next byte."""
    results, pids = several
    assert len(pids) == 2
    results.close()
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("which", [0, 1])
def test_a_process_that_is_killed_while_it_waits_ends_all(
    which: int, several: tuple[Generator[UnitResult], list[int]]
) -> None:
    """Whatever it shared with the others is not missed by them: the end is said at once, and nobody is left."""
    results, pids = several
    os.kill(pids[which], signal.SIGKILL)
    with pytest.raises(ProcessLostError):
        next(results)
    assert multiprocessing.active_children() == []


def test_what_goes_wrong_in_another_process_is_raised_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """With where it happened there: in tracebacks, not in what is printed for the user."""
    monkeypatch.setattr(workers, "_WORTH_S", -1.0)
    units = [Unit(7, ()), Unit(0, ())]  # there is no seventh setup
    with pytest.raises(IndexError) as caught:
        list(run_units(units, [Setup({}, (), confirms_all=False)], Meter(None, lambda _: None), 2))
    assert "in _help" in "".join(traceback.format_exception(caught.value))
    assert not hasattr(caught.value, "__notes__")
    assert multiprocessing.active_children() == []


def test_a_process_that_is_killed_with_the_lock_of_the_rate_stops_nobody() -> None:
    """Who waits for it goes on after a moment, and keeps to the rate."""
    context = multiprocessing.get_context("spawn")
    shared = context.Value("d", 0.0)
    taker = context.Process(target=_take_and_die, args=(shared,))
    taker.start()
    taker.join()
    slept: list[float] = []
    meter = Meter(100.0, lambda _: None, clock=lambda: 1000.0, sleep=slept.append)
    meter.shared = shared
    meter.took(50)
    meter.took(50)
    assert slept == [0.5, 1.0]
    assert not shared.get_lock().acquire(block=False)


def _take_and_die(shared: Any) -> None:
    shared.get_lock().acquire()
    os.kill(os.getpid(), signal.SIGKILL)
