"""A store that fails where it is told to: lost answers, refusals, and the death of the process."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from backends.errors import BackendError
from backends.protocols import MetadataStore, Versioned, Write

T = TypeVar("T")


class CrashError(BaseException):
    """The process dies here: like a kill, it passes every handler of errors."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens at one call.

    Attributes:
        error: is raised.
        after: whether the call has had its effect by then.
    """

    error: BaseException
    after: bool


class FaultyStore:
    """A store whose calls are counted from 0, each key of a pipelined read as one, and fail by their number.

    Attributes:
        calls: how many there were.
    """

    def __init__(self, store: MetadataStore, faults: Callable[[int], Fault | None]) -> None:
        self._store = store
        self._faults = faults
        self.calls = 0

    def _call(self, call: Callable[[], T]) -> T:
        fault = self._faults(self.calls)
        self.calls += 1
        if fault is None:
            return call()
        if fault.after:
            with suppress(BackendError):
                call()
        raise fault.error

    @property
    def uri(self) -> str:
        return self._store.uri

    def get(self, key: str) -> Versioned | None:
        return self._call(lambda: self._store.get(key))

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Versioned | None]]:
        for found in self._store.get_many(keys):
            yield self._call(lambda found=found: found)  # type: ignore[misc]  # mypy cannot infer a default's type

    def children(self, key: str) -> list[str] | None:
        return self._call(lambda: self._store.children(key))

    def write(self, changes: Sequence[Write]) -> list[int]:
        return self._call(lambda: self._store.write(changes))

    def raise_counter(self, key: str, beyond: int) -> int:
        return self._call(lambda: self._store.raise_counter(key, beyond))

    def close(self) -> None:
        self._store.close()
