"""Processes with a network of their own, whose line to a server can be cut: nothing is refused then, nothing arrives.

    here                          there, in a namespace
    server at 0.0.0.0:port  <───  10.213.N.2, the line that is cut
    test                    ───>  10.213.N.6, where the process is asked; it stays

It needs root. Source: ip-netns(8), veth(4).
"""

import os
import re
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Final, Self

NEEDED: Final = "network namespaces need root, and the program ip"


@cache
def may_make() -> bool:
    """Whether namespaces can be made here, by who runs this; not in every container of root's."""
    name = f"bkmeta{os.getpid()}-0"
    try:
        _remove_left()
        _ip("netns", "add", name)
        _ip("netns", "del", name)
    except (OSError, AssertionError):
        return False
    return True


class Namespace:
    """A network of its own, with a line to a server here.

    Args:
        number: of it, 1 to 200; no two at a time have the same.
        port: of the server, which listens at every address of this host.
    """

    def __init__(self, number: int, port: int) -> None:
        self._name = f"bkmeta{os.getpid()}-{number}"
        self._line, self._way = (f"bk{os.getpid() % 10**7}{kind}{number}" for kind in "lw")
        self._net = ""
        self._port = port

    def __enter__(self) -> Self:
        used = re.findall(r"10\.213\.(\d+)\.", _ip("-o", "-4", "address"))
        self._net = next(f"10.213.{free}" for free in range(1, 255) if str(free) not in used)
        _ip("netns", "add", self._name)
        with ExitStack() as undone:
            undone.callback(self.__exit__)
            _ip("-n", self._name, "link", "set", "lo", "up")
            for device, first in ((self._line, 1), (self._way, 5)):
                _ip("link", "add", device, "type", "veth", "peer", "name", f"{device[:-1]}p", "netns", self._name)
                _ip("address", "add", f"{self._net}.{first}/30", "dev", device)
                _ip("-n", self._name, "address", "add", f"{self._net}.{first + 1}/30", "dev", f"{device[:-1]}p")
                _ip("-n", self._name, "link", "set", f"{device[:-1]}p", "up")
                _ip("link", "set", device, "up")
            undone.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        # The devices end with it, as soon as no process is in it.
        for device in (self._line, self._way):
            subprocess.run(["ip", "link", "del", device], check=False, capture_output=True)
        _ip("netns", "del", self._name)

    @property
    def hosts(self) -> str:
        """What a client in it connects to."""
        return f"{self._net}.1:{self._port}"

    @property
    def address(self) -> str:
        """Where a process in it is asked."""
        return f"{self._net}.6"

    @property
    def before(self) -> Sequence[str]:
        """What a command is started by, to run in it."""
        return ("ip", "netns", "exec", self._name)

    def down(self) -> None:
        """Cut the line: what is sent is lost."""
        _ip("link", "set", self._line, "down")

    def up(self) -> None:
        """Mend the line; connections that both ends still know go on."""
        _ip("link", "set", self._line, "up")


def _remove_left() -> None:
    """Remove what a run left that was killed: its addresses would take the packets of this one's."""
    for made in _ip("netns", "list").splitlines():
        name = made.split()[0]
        pid = re.fullmatch(r"bkmeta(\d+)-\d+", name)
        if pid is not None and not Path("/proc", pid[1]).exists():
            _ip("netns", "del", name)
    for line in _ip("-o", "link", "show", "type", "veth").splitlines():
        device = re.match(r"\d+: (bk(\d+)[lw]\d+)@", line)
        if device is not None and not Path("/proc", device[2]).exists():
            # It may have ended with its namespace meanwhile.
            subprocess.run(["ip", "link", "del", device[1]], check=False, capture_output=True)


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
