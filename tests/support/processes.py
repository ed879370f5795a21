"""Other processes of this machine, which may end at any moment."""

from contextlib import suppress

import psutil


def is_running(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def find_children(parent: int, *, word: str = "", name: str | None = None, deep: bool = False) -> list[int]:
    """Return the running processes that a process started: with a word in their command line, or of a program's name.

    Args:
        parent: The process; one that has ended has no children.
        word: A part of one argument; "": any.
        name: The program's name, as the system shows it; None: any.
        deep: Also what the children started.
    """
    found = []
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(parent).children(recursive=deep):
            with suppress(psutil.NoSuchProcess):
                if (
                    child.status() != psutil.STATUS_ZOMBIE
                    and name in (None, child.name())
                    and (not word or any(word in argument for argument in child.cmdline()))
                ):
                    found.append(child.pid)
    return found


def find_connected(port: int) -> int:
    """Return the process of this machine that connects from a port."""
    return next(
        connection.pid
        for connection in psutil.net_connections("tcp")
        if connection.pid and connection.laddr and connection.laddr.port == port
    )
