"""The names below some nodes after each change: watches of ZooKeeper, set again after each one that fired.

A watch fires once. kazoo fires each of them when the connection is doubted, too: what happened meanwhile is read then.
A node that is absent is watched until it is there.

Source: docs of ZooKeeper, "ZooKeeper Watches"; kazoo, KazooClient._reset_watchers.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from kazoo import exceptions as zk


class NamesWatch:
    """Names below nodes.

    Args:
        client: of kazoo.
        answer: waits for the result of kazoo's asynchronous calls; a key and a result in.
        paths: key of each node → its path.
    """

    def __init__(
        self,
        client: Any,  # noqa: ANN401  # kazoo has no types
        answer: Callable[[str, Any], Any],
        paths: Mapping[str, str],
    ) -> None:
        self._client = client
        self._answer = answer
        self._paths = paths
        self._fired = threading.Event()

    def read(self) -> frozenset[str]:
        """Return the keys below all of the nodes now; a change after this fires."""
        self._fired.clear()
        found: set[str] = set()
        for key, path in self._paths.items():
            try:
                names = self._answer(key, self._client.get_children_async(path, watch=self._fire))
            except zk.NoNodeError:
                if self._answer(key, self._client.exists_async(path, watch=self._fire)) is not None:
                    self._fired.set()
                continue
            found.update(f"{key}/{name}" for name in names)
        return frozenset(found)

    def wait(self, seconds: float) -> bool:
        """Wait until something changed; False: it did not within so many seconds."""
        return self._fired.wait(seconds)

    def _fire(self, _event: object) -> None:
        self._fired.set()
