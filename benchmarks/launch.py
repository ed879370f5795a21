"""Runs one command and reports what it cost; a program of its own, with nothing but the standard library.

    python -I -S launch.py FD COMMAND...      writes {"code", "seconds", "cpu_s", "peak"} as JSON to the descriptor FD

CPU and peak memory are of the command and of all that it started and waited for; the peak is that of the largest one.
A process begins with the peak of what started it, so what measures must be small: this program is.
"""

import json
import os
import sys
import time


def main() -> None:
    """Run the command that the arguments name."""
    report, *command = sys.argv[1:]
    os.set_inheritable(int(report), False)  # noqa: FBT003 - the system's signature
    began = time.perf_counter()
    process = os.posix_spawnp(command[0], command, os.environ)
    _, status, used = os.wait4(process, 0)
    found = {
        "seconds": time.perf_counter() - began,
        "code": os.waitstatus_to_exitcode(status),
        "cpu_s": used.ru_utime + used.ru_stime,
        "peak": used.ru_maxrss * 1024,
    }
    with os.fdopen(int(report), "w") as sink:
        json.dump(found, sink)


if __name__ == "__main__":
    main()
