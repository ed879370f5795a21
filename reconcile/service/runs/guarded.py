"""A command that ends with the process that started it, however that ends.

Arguments: the id of the process that starts it, and the command. Linux sends the signal when the starting thread is
gone, also after ``kill -9``; that the process was gone before is looked at once.

Source: Linux, prctl(2), PR_SET_PDEATHSIG; it outlives execve(2).
"""

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Become the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == parent:
        os.execv(command[0], command)  # noqa: S606 - the service's own command, without a shell


if __name__ == "__main__":
    main()
