"""The program's own commands, run in processes of their own.

The memory, files and JVM of a run end with it. It can be ended at any moment. Its result is the object that `--json`
prints (docs/operations/json.md).
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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
"""Bytes of the log that are searched for a verdict."""
_LONGEST_VERDICT: Final = 300
"""The record in the store has hundreds of them."""
_SPACE: Final = 1 << 20
"""Free bytes that a command needs to report an error."""
_EVENT: Final = '{"event"'
"""Begins a line of progress."""
_TIMES: Final = 5
"""Signs of life in the silence that a command outlives."""


class StoppedError(ReconcileError):
    """No command is started: this instance does not lead, or ends."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of a command.

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
    """The running commands; all of them can be ended at once, and then no other is started.

    Args:
        program: the program of a command, without arguments.
        silence_s: a command ends after so many seconds without a sign of life of this process; 0: never.
    """

    def __init__(self, program: Sequence[str] = PROGRAM, *, silence_s: float = 0.0) -> None:
        self._program = tuple(program)
        self._silence_s = silence_s
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def run(
        self, words: Sequence[str], folder: Path, *, timeout_s: float, given_up: threading.Event | None = None
    ) -> Finished:
        """Run a command to its end, its output in a folder.

        Args:
            words: arguments of the command, without output options.
            folder: an existing folder; it gets RESULT and LOG.
            timeout_s: the command is ended after it.
            given_up: set as soon as no caller wants the result any longer: the command is ended then too.

        Raises:
            StoppedError: `stop` was called, before or meanwhile.
            OSError: the folder cannot be written.
        """
        command = [*self._program, *words, *OUTPUT]
        about = [str(os.getpid()), str(self._silence_s)]
        guarded = [sys.executable, "-m", "reconcile.service.runs.guarded", *about, *command]
        with _speak(self._silence_s) as heard:
            with (folder / RESULT).open("wb") as result, (folder / LOG).open("wb") as log, self._lock:
                if self._stopped:
                    raise StoppedError("this instance runs nothing any more")
                child = subprocess.Popen(guarded, stdin=heard, stdout=result, stderr=log, start_new_session=True)
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


@contextmanager
def _speak(silence_s: float) -> Iterator[int]:
    """Yield the pipe with this process's signs of life for a command, several in the given seconds; 0: none."""
    if not silence_s:
        yield subprocess.DEVNULL
        return
    heard, said = os.pipe()
    os.set_blocking(said, False)
    ended = threading.Event()

    def speak() -> None:
        while not ended.wait(silence_s / _TIMES):
            # The command is gone, or its listener has enough to hear.
            with suppress(BrokenPipeError, BlockingIOError):
                os.write(said, b".")

    thread = threading.Thread(target=speak, name="pulse", daemon=True)
    thread.start()
    try:
        yield heard
    finally:
        ended.set()
        thread.join()
        os.close(heard)
        os.close(said)


def _await(child: subprocess.Popen[bytes], timeout_s: float, given_up: threading.Event | None) -> bool:
    """Wait for the end of a process; return whether it ended before its time was over and before it was given up."""
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
            text = (folder / LOG).read_bytes()[-_TAIL:].decode(errors="backslashreplace")
            lines = [line for line in text.strip().splitlines() if not line.startswith(_EVENT)]
            verdict = lines[-1] if lines else _describe_silence(folder, exit_code)
    # Names of files may have bytes that are no text; what is kept and sent is.
    verdict = verdict.encode(errors="backslashreplace").decode()
    return Finished(exit_code, result, verdict[:_LONGEST_VERDICT], timed_out)


def _describe_silence(folder: Path, exit_code: int) -> str:
    """Return why a failed command printed no result: how its process ended."""
    left = shutil.disk_usage(folder).free
    if left < _SPACE:
        return f"it ended with {exit_code}: No space left on the disk of {folder.parent} ({left} bytes): free some"
    if exit_code < 0:
        reasons = "for lack of memory, by a person, or because this service was stopped for a third of its session"
        return f"it was ended by {signal.Signals(-exit_code).name}: {reasons}"
    return f"it ended with {exit_code}, without a word"
