"""What a run costs: of a command that ends, or of a program that stays and is told when to run.

A run that prints a JSON object with `seconds`, or `cpu_s`, as its last line has timed itself, and left the start of its
interpreter or virtual machine apart. Memory is always the whole process's.

    file in /proc/PID   read for
    stat                parent, and CPU in ticks: fields 4 and 14 to 17
    status              VmHWM: the peak of the memory in use, in KiB
    clear_refs          "5" makes what is in use now the peak

Source: proc(5).
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
"""The checkout: where stages run."""

SERVERS: Final = "servers_cpu_s"
"""Said of a run: what the servers used that it asked."""
BUSIEST: Final = "servers_busiest_thread_s"
"""Likewise, their busiest thread: however many cores there are, a run takes as long."""

_LAUNCH: Final = Path(__file__).with_name("launch.py")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
# Fields of stat count from 1; the first two stand before the last parenthesis.
_PARENT: Final = 4 - 3
_CPU: Final = slice(14 - 3, 18 - 3)
_OWN_CPU: Final = slice(14 - 3, 16 - 3)
_HIGHEST: Final = "VmHWM:"
_SHOWN: Final = 4000


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run took.

    Attributes:
        seconds: of the work.
        cpu_s: user and system, of all processes.
        peaks: bytes of memory of the largest process of each kind.
        said: the run's own facts.
    """

    seconds: float
    cpu_s: float
    peaks: Mapping[str, int]
    said: Mapping[str, Any]


class RunFailedError(Exception):
    """A run of a stage or of its floor ended badly, so there is nothing to compare."""


def python(module: str, *arguments: object) -> list[str]:
    """Return the command that runs a module of this project."""
    return [sys.executable, "-m", module, *map(str, arguments)]


def bkmeta(*words: object) -> list[str]:
    """Return the command that runs the product with these words, by its own door, whether installed or not."""
    return python("reconcile.cli", *words)


def run(command: Sequence[str], *, codes: Sequence[int] = (0,)) -> Cost:
    """Run a command to its end.

    Args:
        command: program and arguments.
        codes: exit codes that are not a failure.

    Raises:
        RunFailedError: it ended with another one.
    """
    reading, writing = os.pipe()
    with os.fdopen(reading) as report:
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-S", str(_LAUNCH), str(writing), *command],
                cwd=ROOT,
                pass_fds=[writing],
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            os.close(writing)
        found = json.loads(report.read() or '{"code": "unknown"}')
    if found["code"] not in codes:
        raise RunFailedError(f"{command[0]} ended with {found['code']}:\n{(done.stdout + done.stderr)[-_SHOWN:]}")
    said = _said(done.stdout)
    seconds, cpu_s = (said.get(name, found[name]) for name in ("seconds", "cpu_s"))
    return Cost(seconds, cpu_s, {"": found["peak"]}, said)


def _said(output: str) -> dict[str, Any]:
    last = output.rstrip().rpartition("\n")[2]
    return dict(json.loads(last)) if last.startswith("{") else {}


class Staying:
    """A program that was started once, and runs its stage each time that it is told to."""

    def __init__(self, process: "subprocess.Popen[str]", orders: IO[str], answers: IO[str]) -> None:
        self._process = process
        self._orders = orders
        self._answers = answers

    def run(self) -> Cost:
        """Have it run once.

        Raises:
            RunFailedError: it ended instead.
        """
        before = _tree(self._process.pid)
        for process in before:
            _forget_peak(process)
        self._orders.write("run\n")
        self._orders.flush()
        said = self.answer()
        after = _tree(self._process.pid)
        peaks: dict[str, int] = {}
        for process in after:
            kind, peak = _peak(process)
            # Those below it of the same program do its tasks: Spark's Python workers.
            kind = "worker" if kind == "python" and process != self._process.pid else kind
            if peak:
                peaks[kind] = max(peaks.get(kind, 0), peak)
        return Cost(said["seconds"], sum(after.values()) - sum(before.values()), peaks, said)

    def answer(self) -> dict[str, Any]:
        """Wait for the next JSON object that it prints.

        Raises:
            RunFailedError: it ended instead.
        """
        for line in self._answers:
            if line.startswith("{"):
                return dict(json.loads(line))
        raise RunFailedError(f"{self._process.args!r} ended with {self._process.wait()}")


@contextmanager
def staying(command: Sequence[str], checkout: Path = ROOT) -> Iterator[Staying]:
    """Start a program of a checkout that stays, wait until it is ready, and end it afterwards."""
    with subprocess.Popen(command, cwd=checkout, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - both are pipes
        stays = Staying(process, process.stdin, process.stdout)
        try:
            stays.answer()
            yield stays
        finally:
            process.stdin.close()
            process.wait()


def count_cpu(root: int) -> float:
    """Return the CPU seconds that a process and all below it have used."""
    return sum(_tree(root).values())


def beside_servers(processes: Sequence[int], work: Callable[[], Cost]) -> Cost:
    """Do some work; its cost says what servers, processes and all below them, used of the same cores meanwhile."""
    before, threads = sum(map(count_cpu, processes)), _threads(processes)
    cost = work()
    busiest = max(cpu_s - threads.get(thread, 0.0) for thread, cpu_s in _threads(processes).items())
    return replace(cost, said={**cost.said, SERVERS: sum(map(count_cpu, processes)) - before, BUSIEST: busiest})


def _tree(root: int) -> dict[int, float]:
    """Return a process and all below it, each with its CPU seconds and those of its children that ended."""
    children: dict[int, list[int]] = {}
    cpu: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        children.setdefault(int(fields[_PARENT]), []).append(int(entry.name))
        cpu[int(entry.name)] = sum(int(n) for n in fields[_CPU]) / _TICKS
    found = [root]
    for process in found:
        found += children.get(process, [])
    return {process: cpu.get(process, 0.0) for process in found}


def _threads(processes: Sequence[int]) -> dict[str, float]:
    """Return the threads of processes, each with its CPU seconds."""
    cpu: dict[str, float] = {}
    for task in (task for process in processes for task in Path(f"/proc/{process}/task").glob("*/stat")):
        with suppress(OSError):  # it ended meanwhile
            fields = task.read_text().rpartition(")")[2].split()
            cpu[task.parent.name] = sum(int(n) for n in fields[_OWN_CPU]) / _TICKS
    return cpu


def _forget_peak(process: int) -> None:
    try:
        Path(f"/proc/{process}/clear_refs").write_text("5")
    except OSError:
        return  # it ended meanwhile


def _peak(process: int) -> tuple[str, int]:
    try:
        name = Path(f"/proc/{process}/comm").read_text().strip()
        status = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return "", 0
    kib = next((int(line.split()[1]) for line in status if line.startswith(_HIGHEST)), 0)
    return "python" if name.startswith("python") else name, kib * 1024
