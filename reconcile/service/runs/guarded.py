"""A command that ends with the process that started it, however that ends, and with its silence.

Arguments: the id of the process that starts it; the seconds of silence that the command outlives, 0 for any; the
command. Where it is not 0, standard input is a pipe, on which that process says again and again that it goes on. One
that is stopped (``kill -STOP``, a debugger, a frozen container) does not, and another leader may be in its place.

Linux sends the signal when the starting thread is gone, also after ``kill -9``. One check at the start covers a process
that was gone before.

Source: Linux, prctl(2), PR_SET_PDEATHSIG; it outlives execve(2).
"""

import ctypes
import os
import select
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_CHUNK: Final = 4096


def main() -> None:
    """Become the command."""
    parent, silence_s, command = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    if not _end_with(parent):
        return
    if silence_s:
        _start_listener(silence_s)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.execv(command[0], command)  # noqa: S606 - the service's own command, without a shell


def _end_with(parent: int) -> bool:
    """Make this process end with the one that started it; False: that one is gone already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


def _start_listener(silence_s: float) -> None:
    """Start a process that ends the group of this one after a silence."""
    command = os.getpid()
    if os.fork():
        return
    if _end_with(command):
        while select.select([0], [], [], silence_s)[0] and os.read(0, _CHUNK):
            pass
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main()
