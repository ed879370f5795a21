"""Waiting for what real servers do by themselves."""

import errno
import secrets
import socket
import time
from collections.abc import Callable
from typing import Final

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay

PATIENCE_S: Final = 150.0
"""On a machine that does much else."""
_PAUSE_S: Final = 0.1
_PAUSES: Final = 4
"""Times as long as asking took is waited before the next time, where that is longer."""
_PORTS: Final = range(11_000, 32_000)
_CLAIMED_AT: Final = "127.0.0.2"
"""No server is there, not even one that listens to UDP, as the one of Kerberos does."""
_claims: list[socket.socket] = []


def until(condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait until a condition holds, and leave the core to others for longer than asking took."""
    asked_s = 0.0

    def ask() -> bool:
        nonlocal asked_s
        began = time.thread_time()
        held = condition()
        asked_s = time.thread_time() - began
        return held

    asking = Retrying(
        retry=retry_if_result(lambda held: not held),
        stop=stop_after_delay(patience_s),
        wait=lambda _: max(_PAUSE_S, _PAUSES * asked_s),
    )
    try:
        asking(ask)
    except RetryError:
        raise AssertionError(f"not within {patience_s} s: {what}") from None


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody has until this process ends, though its server goes down and comes back.

    The system gives none of these to whoever connects. Who takes one holds the same port of UDP elsewhere.
    """
    while True:
        port = secrets.choice(_PORTS)
        claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            claim.bind((_CLAIMED_AT, port))
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError as error:
            claim.close()
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            _claims.append(claim)
            return port
