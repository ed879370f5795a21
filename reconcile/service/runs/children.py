"""The program's own commands, run in processes of their own.

Whatever a run takes, memory, files, a JVM, is gone with it; it can be ended at any moment, and its result is the object
that `--json` prints (docs/operations/json.md).
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from reconcile.errors import ReconcileError
from reconcile.service.runs.commands import OUTPUT

PROGRAM: Final = (sys.executable, "-m", "reconcile.cli")
RESULT: Final = "result.json"
LOG: Final = "log.txt"
_GRACE_S: Final = 10.0
"""Seconds that a command has to end by itself."""
_TAIL: Final = 2000
"""Bytes of the log that are told."""


class StoppedError(ReconcileError):
    """Nothing is run any more: this instance does not lead, or ends."""


@dataclass(frozen=True, slots=True)
class Finished:
    """What came of a command.

    Attributes:
        exit_code: below 0: the signal that ended it.
        result: the object that it printed; empty: none.
        verdict: one line.
        timed_out: it was ended, for it took too long.
    """

    exit_code: int
    result: Mapping[str, Any]
    verdict: str
    timed_out: bool = False


class Children:
    """Commands that are under way; all of them can be ended at once, and then none is begun any more.

    Args:
        program: what runs a command, without its words.
    """

    def __init__(self, program: Sequence[str] = PROGRAM) -> None:
        self._program = tuple(program)
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def run(
        self, words: Sequence[str], folder: Path, *, timeout_s: float, given_up: threading.Event | None = None
    ) -> Finished:
        """Run a command to its end, its output in a folder.

        Args:
            words: of the command, without those that say how it prints.
            folder: that is there; it gets RESULT and LOG.
            timeout_s: after which it is ended.
            given_up: set as soon as nobody wants the result any more: it is ended then, too.

        Raises:
            StoppedError: `stop` was called, before or meanwhile.
            OSError: the folder cannot be written.
        """
        command = [*self._program, *words, *OUTPUT]
        guarded = [sys.executable, "-m", "reconcile.service.runs.guarded", str(os.getpid()), *command]
        with (folder / RESULT).open("wb") as result, (folder / LOG).open("wb") as log, self._lock:
            if self._stopped:
                raise StoppedError("this instance runs nothing any more")
            child = subprocess.Popen(
                guarded, stdin=subprocess.DEVNULL, stdout=result, stderr=log, start_new_session=True
            )
            self._running.add(child)
        timed_out = not _await(child, timeout_s, given_up)
        if timed_out:
            _end(child)
        with self._lock:
            self._running.discard(child)
            stopped = self._stopped
        if stopped:
            raise StoppedError("this instance was stopped meanwhile")
        return _read(folder, child.returncode, timed_out=timed_out)

    def stop(self) -> None:
        """End every command at once, and begin none any more."""
        with self._lock:
            self._stopped = True
            for child in self._running:
                _kill(child)

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped

    @property
    def number(self) -> int:
        """How many are under way."""
        return len(self._running)


def _await(child: subprocess.Popen[bytes], timeout_s: float, given_up: threading.Event | None) -> bool:
    """Wait for the end of a process; return whether it came before the time was over, or it was given up."""
    if given_up is None:
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout_s)
        return child.returncode is not None

    def tell_end() -> None:
        child.wait()
        given_up.set()

    threading.Thread(target=tell_end, daemon=True).start()
    given_up.wait(timeout_s)
    return child.poll() is not None


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a process, and after a while its group."""
    with suppress(ProcessLookupError):
        child.terminate()
    with suppress(subprocess.TimeoutExpired):
        child.wait(_GRACE_S)
    _kill(child)
    child.wait()


def _kill(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


def _read(folder: Path, exit_code: int, *, timed_out: bool) -> Finished:
    result: Mapping[str, Any] = {}
    with suppress(OSError, ValueError, IndexError):
        read = json.loads((folder / RESULT).read_bytes().splitlines()[-1])
        result = read if isinstance(read, dict) else {}
    verdict = str(result.get("summary") or result.get("verdict") or "")
    if timed_out:
        verdict = "it took too long, and was ended"
    elif not verdict:
        with suppress(OSError):
            lines = (folder / LOG).read_bytes()[-_TAIL:].decode(errors="backslashreplace").strip().splitlines()
            verdict = lines[-1] if lines else f"it ended with {exit_code}, without a word"
    return Finished(exit_code, result, verdict, timed_out)
