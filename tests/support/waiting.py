"""Waiting for what real servers do by themselves."""

import socket
from collections.abc import Callable
from typing import Final

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

PATIENCE_S: Final = 150.0
"""On a machine that does much else."""


def until(condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait until a condition holds."""
    asking = Retrying(
        retry=retry_if_result(lambda held: not held), stop=stop_after_delay(patience_s), wait=wait_fixed(0.1)
    )
    try:
        asking(condition)
    except RetryError:
        raise AssertionError(f"not within {patience_s} s: {what}") from None


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
