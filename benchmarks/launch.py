"""Runs one command and reports what it cost; a program of its own, with nothing but the standard library.

    python -I -S launch.py FD COMMAND...      writes {"code", "seconds", "cpu_s", "peak"} as JSON to the descriptor FD

CPU and peak memory are of the command and of all that it started, waited for or not; the peak is that of the largest.
The system forgets what a process used whose parent ignores that it ends, as Spark's Python workers': it is looked up in
/proc (proc(5)) while they run, to a second.
What it left behind (Java ends after the program that started it) is waited for; the seconds end with the command.
A process begins with the peak of what started it, so what measures must be small: this program is.
"""

import ctypes
import json
import os
import sys
import threading
import time
from pathlib import Path

_SET_CHILD_SUBREAPER = 36
"""Of prctl(2): whoever loses its parent becomes a child of this process."""
_LOOK_S = 0.5
"""Between two looks at what runs."""
_SIGCHLD = 1 << 16
"""Its bit in `SigIgn` of /proc/PID/status."""
_TICKS = os.sysconf("SC_CLK_TCK")


def look(seen: dict[int, float]) -> None:
    """Note the CPU seconds of each process below this one whose parent ignores its children's end: {pid: seconds}."""
    parents = {}
    used = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        pid = int(folder.name)
        parents[pid] = int(fields[1])
        used[pid] = (int(fields[11]) + int(fields[12])) / _TICKS
    below = {os.getpid()}
    while grown := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= grown
    for parent in {parents[pid] for pid in below if pid in parents}:
        if parent in below and ignores(parent):
            seen.update((pid, used[pid]) for pid in below if parents.get(pid) == parent)


def ignores(pid: int) -> bool:
    """Say whether a process ignores that its children end."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    masks = [line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:")]
    return any(int(mask, 16) & _SIGCHLD for mask in masks)


def main() -> None:
    """Run the command that the arguments name."""
    report, *command = sys.argv[1:]
    os.set_inheritable(int(report), False)  # noqa: FBT003 - the system's signature
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    began = time.perf_counter()
    process = os.posix_spawnp(command[0], command, os.environ)
    used = []
    unreported: dict[int, float] = {}
    over = threading.Event()

    def keep_looking() -> None:
        while not over.wait(_LOOK_S):
            look(unreported)

    looking = threading.Thread(target=keep_looking)
    looking.start()
    status, seconds = 0, 0.0
    while True:
        try:
            ended, how, taken = os.wait3(0)
        except ChildProcessError:
            break
        used.append((ended, taken))
        if ended == process:
            status, seconds = how, time.perf_counter() - began
    over.set()
    looking.join()
    for pid, _ in used:
        unreported.pop(pid, None)
    found = {
        "seconds": seconds,
        "code": os.waitstatus_to_exitcode(status),
        "cpu_s": sum(each.ru_utime + each.ru_stime for _, each in used) + sum(unreported.values()),
        "peak": max(each.ru_maxrss for _, each in used) * 1024,
    }
    with os.fdopen(int(report), "w") as sink:
        json.dump(found, sink)


if __name__ == "__main__":
    main()
