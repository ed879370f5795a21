"""Collecting is stopped: at once, with one message, whatever other processes do just then."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from recovery.collect import workers
from recovery.collect.workers import hold_signals
from tests.support.command import PATIENCE_S
from tests.support.waiting import until


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


def test_a_process_that_waits_for_the_rate_is_stopped_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the rate is: the others do not sleep on until it allows them the next byte."""
    monkeypatch.setattr(workers, "_contexts", [])
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    workers._begin_process((), 1.0, context.Value("d", 0.0), stop)
    (here,) = workers._contexts
    stopping = threading.Timer(0.2, stop.set)
    stopping.start()
    with pytest.raises(workers._StoppedError):
        here.meter.took(20)
    stopping.join()
