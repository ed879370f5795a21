"""Runs one command and reports what it cost; a program of its own, with nothing but the standard library.

    python -I -S launch.py FD COMMAND...      writes {"code", "seconds", "cpu_s", "peak"} as JSON to the descriptor FD

CPU and peak memory are of the command and of all that it started, waited for or not; the peak is that of the largest.
What it left behind (Java ends after the program that started it) is waited for; the seconds end with the command.
A process begins with the peak of what started it, so what measures must be small: this program is.
"""

import ctypes
import json
import os
import sys
import time

_SET_CHILD_SUBREAPER = 36
"""Of prctl(2): whoever loses its parent becomes a child of this process."""


def main() -> None:
    """Run the command that the arguments name."""
    report, *command = sys.argv[1:]
    os.set_inheritable(int(report), False)  # noqa: FBT003 - the system's signature
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    began = time.perf_counter()
    process = os.posix_spawnp(command[0], command, os.environ)
    used = []
    status, seconds = 0, 0.0
    while True:
        try:
            ended, how, taken = os.wait3(0)
        except ChildProcessError:
            break
        used.append(taken)
        if ended == process:
            status, seconds = how, time.perf_counter() - began
    found = {
        "seconds": seconds,
        "code": os.waitstatus_to_exitcode(status),
        "cpu_s": sum(each.ru_utime + each.ru_stime for each in used),
        "peak": max(each.ru_maxrss for each in used) * 1024,
    }
    with os.fdopen(int(report), "w") as sink:
        json.dump(found, sink)


if __name__ == "__main__":
    main()
