"""A limit of operations a second, for a store that serves others too."""

import threading
import time
from collections.abc import Callable
from typing import Final

_BURST_S: Final = 0.1
"""Unused operations are kept for so long only: no flood follows a pause."""


class Pace:
    """Limits operations a second, over all callers; safe to use from several threads.

    Args:
        ops_s: operations a second; None: as many as come.
        clock: the clock, in seconds.
        wait: waits for so many seconds; None: until then or `stop`.
    """

    def __init__(
        self,
        ops_s: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        if ops_s is not None and ops_s <= 0:
            raise ValueError(f"not a number of operations a second: {ops_s}")
        self._ops_s = ops_s
        self._lock = threading.Lock()
        self._free_at = float("-inf")
        self._stopped = threading.Event()
        self._now = clock
        self._wait = wait or self._stopped.wait

    def take(self, count: int) -> None:
        """Wait until so many further operations are allowed."""
        if self._ops_s is None:
            return
        with self._lock:
            moment = self._now()
            begins = max(self._free_at, moment - _BURST_S)
            self._free_at = begins + count / self._ops_s
        if begins > moment:
            self._wait(begins - moment)

    def stop(self) -> None:
        """End all waiting, now and from now on."""
        self._stopped.set()
