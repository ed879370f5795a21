"""The one way in which a store is changed: announced, compared and set, read back.

    announce     the journal says what will be written, and is on the disk before anything is sent
    compare      a change is sent only where its key is as the change expects it, and names the version that it replaces
    read back    nothing counts as made before it was read; reading tells, too, what became of a write without an answer
    conflict     a key that is otherwise is left as it is, with the reason; the other changes go on
    record       the journal says what became of each change

A run that was ended anywhere is gone on with: what an earlier run announced may be in the store, and counts as
written by it.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from backends.errors import (
    NotEmptyError,
    OutcomeUnknownError,
    StoreFullError,
    TooLargeError,
    UnavailableError,
    VersionConflictError,
)
from backends.protocols import MetadataStore, Versioned, Write
from reconcile.write.audit_journal import AuditJournal
from reconcile.write.journal_events import Event, append_event
from recovery.codecs.store import place_key

BATCH_ROWS: Final = 100
"""Writes in a transaction: five times faster than single ones, and far below what a server takes."""
BATCH_BYTES: Final = 256 << 10
ABSENT: Final = -1
"""The version of a key that was removed, as journals write it."""
PATIENCE_S: Final = 60.0
"""Time that a run waits, all in all, for what others hold: most copies that a worker makes end by then."""
_PAUSE_S: Final = 0.25
"""Between two looks at what somebody else holds."""
_ROUNDS: Final = 10
"""Times that changes are sent: each settles at least one key unless somebody makes and removes it meanwhile."""

_NOT_WHOLE: Final = "another change of its transaction could not be made"


class StoredValue(Protocol):
    """What is at a key: its value, or its ACL."""

    @property
    def version(self) -> int:
        """The token that a change which replaces it must name."""
        ...


S_contra = TypeVar("S_contra", contravariant=True)


class KeyChange(Protocol[S_contra]):
    """What one key must be."""

    @property
    def key(self) -> str:
        """The key, below the root."""
        ...

    def is_made(self, stored: S_contra | None) -> bool:
        """Whether what is at the key is what the change wants."""
        ...

    def find_objection(self, stored: S_contra | None) -> str | None:
        """Return why what is at the key forbids the change; None if it can be made."""
        ...


C = TypeVar("C", bound=KeyChange[Any])
C_contra = TypeVar("C_contra", bound=KeyChange[Any], contravariant=True)
T = TypeVar("T")
ByKey = Mapping[str, Any]
"""Key below the root → what is there; None: nothing."""


class WriteTarget(Protocol[C_contra]):
    """Where changes of one sort are read and made."""

    def read(self, changes: Sequence[C_contra]) -> ByKey:
        """Return what is at the changes' keys."""
        ...

    def send(self, changes: Sequence[C_contra], stored: ByKey) -> None:
        """Make all changes in one transaction, each where the version is the one that was read."""
        ...

    def make_absolute(self, key: str) -> str:
        """Return the store's key of one below the root."""
        ...


class RecordTarget(Generic[C]):
    """The values below a root."""

    def __init__(
        self,
        store: MetadataStore,
        base: str,
        to_write: Callable[[C, str, Versioned | None], Write],
        outside: str = "",
    ) -> None:
        """Take a store.

        Args:
            store: writable.
            base: key of the root; empty: all of the store.
            to_write: gives the write of a change, from the store's key and what was read there, if it was.
            outside: what keys that are not below the root are put below; empty: they are where they say.
        """
        self._store = store
        self._base = base
        self._to_write = to_write
        self._outside = outside

    def make_absolute(self, key: str) -> str:
        """Return the store's key of one below the root."""
        return place_key(self._base, key, self._outside)

    def read(self, changes: Sequence[C]) -> dict[str, Versioned | None]:
        """Return what is at the changes' keys."""
        by_key = {self.make_absolute(change.key): change.key for change in changes}
        return {by_key[key]: stored for key, stored in self._store.get_many(by_key)}

    def send(self, changes: Sequence[C], stored: ByKey) -> None:
        """Make all changes in one transaction."""
        self._store.write(
            [self._to_write(change, self.make_absolute(change.key), stored.get(change.key)) for change in changes]
        )


class SizedChange(KeyChange[S_contra], Protocol[S_contra]):
    """A change of which it is known how many bytes it adds to a transaction."""

    @property
    def size(self) -> int:
        """Bytes of its key and value."""
        ...


Z = TypeVar("Z", bound=SizedChange[Any])


def cut_transactions(changes: Iterable[Z], rows: int = BATCH_ROWS) -> Iterator[list[Z]]:
    """Cut changes, in their order, into transactions that any server takes: each key once, few rows, few bytes.

    One that is larger by itself is alone in its transaction, and the store says whether it takes it.
    """
    batch: list[Z] = []
    taken: set[str] = set()
    size = 0
    for change in changes:
        if batch and (len(batch) >= rows or size + change.size > BATCH_BYTES or change.key in taken):
            yield batch
            batch, taken, size = [], set(), 0
        batch.append(change)
        taken.add(change.key)
        size += change.size
    if batch:
        yield batch


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """What became of a change.

    Attributes:
        version: that the key has, where this tool wrote it; `ABSENT` where it removed it; None: it was so already.
        conflict: why it could not be made; None: the key is as it must be.
    """

    version: int | None = None
    conflict: str | None = None


def find_version(stored: StoredValue | None) -> int:
    """Return the version of what is at a key, as journals write it."""
    return ABSENT if stored is None else stored.version


def settle_changes(
    target: WriteTarget[C],
    changes: Sequence[C],
    stored: ByKey | None = None,
    *,
    announced_before: Collection[str] = (),
    is_whole: bool = False,
) -> dict[str, ChangeOutcome]:
    """Bring every change to its end; nothing counts as made before it was read back.

    Args:
        target: where.
        changes: of different keys, for one transaction.
        stored: what is at the keys; None: it was not read, and the changes are sent first.
        announced_before: keys that an earlier run announced: where they are as they must be, it wrote them.
        is_whole: make all of them or none: a conflict of one is a conflict of all that are not made yet.

    Returns:
        The outcome of each key.

    Raises:
        UnavailableError: no answer came, however often the changes were sent, or the store is full.
        BackendError: the store failed otherwise than by a conflict.
    """
    outcomes: dict[str, ChangeOutcome] = {}
    announced = set(announced_before)
    remaining = list(changes)
    lost: OutcomeUnknownError | None = None
    for _ in range(_ROUNDS):
        if stored is not None:
            remaining = _sort_out(remaining, stored, announced, outcomes)
        if is_whole and any(outcome.conflict is not None for outcome in outcomes.values()):
            outcomes.update((change.key, ChangeOutcome(conflict=_NOT_WHOLE)) for change in remaining)
            return outcomes
        if not remaining:
            return outcomes
        lost, is_sent = None, False
        try:
            target.send(remaining, stored or {})
            is_sent = True
        except OutcomeUnknownError as error:
            lost = error
        except (TooLargeError, NotEmptyError) as error:
            reason = "it is larger than what the store takes"
            if isinstance(error, NotEmptyError):
                reason = "there are nodes below it"
            refused = [change for change in remaining if target.make_absolute(change.key) == error.key]
            if not refused:
                raise
            outcomes.update((change.key, ChangeOutcome(conflict=reason)) for change in refused)
            remaining = [change for change in remaining if change not in refused]
            continue
        except VersionConflictError:
            pass  # the reading shows which of them are otherwise
        if lost is not None:
            # What is as it must be from here on was written by this run: nobody else has this plan.
            announced |= {change.key for change in remaining}
        stored = target.read(remaining)
        if is_sent:
            for change in remaining:
                outcomes[change.key] = _judge_sent(change, stored[change.key])
            return outcomes
    if stored is not None:
        remaining = _sort_out(remaining, stored, announced, outcomes)
    if isinstance(lost, StoreFullError) and remaining:
        raise lost
    if lost is not None and remaining:
        raise UnavailableError(lost.store, f"{_ROUNDS} writes in a row had no answer") from lost
    for change in remaining:
        outcomes[change.key] = ChangeOutcome(conflict="another program changes it all the time")
    return outcomes


class Patience:
    """Time that may be spent on waiting, used up by all who wait; several threads wait one after the other."""

    def __init__(self, seconds: float) -> None:
        """Take how long, all in all."""
        self._left_s = seconds
        self._lock = threading.Lock()

    def wait(self) -> bool:
        """Wait a little; return whether there was time for it."""
        with self._lock:
            pause = min(_PAUSE_S, self._left_s)
            self._left_s -= pause
            if pause > 0:
                time.sleep(pause)
            return pause > 0


def settle_patiently(
    target: WriteTarget[C],
    changes: Sequence[C],
    stored: ByKey | None,
    patience: Patience,
    *,
    announced_before: Collection[str] = (),
) -> dict[str, ChangeOutcome]:
    """Bring every change to its end as `settle_changes` does, and try those in conflict again while there is time."""
    outcomes = settle_changes(target, changes, stored, announced_before=announced_before)
    while True:
        waiting = [change for change in changes if outcomes[change.key].conflict is not None]
        if not waiting or not patience.wait():
            return outcomes
        outcomes |= settle_changes(target, waiting, target.read(waiting), announced_before=announced_before)


def _sort_out(
    changes: Sequence[C], stored: ByKey, announced: Collection[str], outcomes: dict[str, ChangeOutcome]
) -> list[C]:
    """Settle what a reading settles; return the changes that can still be made."""
    remaining = []
    for change in changes:
        node = stored[change.key]
        objection = change.find_objection(node)
        if change.is_made(node):
            outcomes[change.key] = ChangeOutcome(version=find_version(node) if change.key in announced else None)
        elif objection is not None:
            outcomes[change.key] = ChangeOutcome(conflict=objection)
        else:
            remaining.append(change)
    return remaining


def _judge_sent(change: KeyChange[Any], stored: StoredValue | None) -> ChangeOutcome:
    if change.is_made(stored):
        return ChangeOutcome(version=find_version(stored))
    return ChangeOutcome(conflict="another program changed it right after it was written")


@dataclass(frozen=True, slots=True)
class WriteStep(Generic[T]):
    """Changes that are announced together.

    Attributes:
        announcements: lines that say what will be written.
        make: makes the changes, and returns what became of them.
        report: takes that up, and returns the line that says it; None: no line does.
    """

    announcements: Sequence[Event]
    make: Callable[[], T]
    report: Callable[[T], Event | None]


class Writer:
    """Changes a store step by step, each by the journal.

    Attributes:
        has_begun: whether anything may have been written.
    """

    def __init__(self, journal: AuditJournal) -> None:
        """Take a journal that is open for writing."""
        self.has_begun = False
        self._journal = journal
        self._under_way: list[tuple[WriteStep[Any], Future[Any]]] = []

    def carry_out(self, steps: Sequence[WriteStep[T]], pool: ThreadPoolExecutor | None = None) -> None:
        """Announce steps together, make them, and record what became of each.

        Args:
            steps: without a key in common if there is a pool.
            pool: makes them at once; what ended is recorded though another fails. None: one after the other.

        Raises:
            BackendError: the store failed.
            JournalError: the journal cannot be written.
        """
        self.finish()
        if pool is not None and len(steps) > 1:
            self.begin(steps, pool)
            self.finish()
            return
        self._announce(steps)
        for step in steps:
            self._record(step, step.make())

    def begin(self, steps: Sequence[WriteStep[Any]], pool: ThreadPoolExecutor) -> None:
        """Announce steps together and have them made, while those that were begun before still are; record these.

        Args:
            steps: without a key in common, also with those that were begun before.
            pool: makes them.

        Raises:
            BackendError: the store failed at an earlier step.
            JournalError: the journal cannot be written.
        """
        if steps:
            self._announce(steps)
        earlier, self._under_way = self._under_way, [(step, pool.submit(step.make)) for step in steps]
        self._take_up(earlier)

    def finish(self) -> None:
        """Wait for what was begun, and record what became of it, also where another one failed.

        Raises:
            BackendError: the store failed.
            JournalError: the journal cannot be written.
        """
        begun, self._under_way = self._under_way, []
        self._take_up(begun)

    def _announce(self, steps: Sequence[WriteStep[Any]]) -> None:
        for step in steps:
            for announcement in step.announcements:
                append_event(self._journal, announcement)
        self._journal.sync()
        self.has_begun = True

    def _take_up(self, begun: Sequence[tuple[WriteStep[Any], Future[Any]]]) -> None:
        wait([answer for _, answer in begun])
        failure: BaseException | None = None
        for step, answer in begun:
            error = answer.exception()
            if error is None:
                self._record(step, answer.result())
            failure = failure or error
        if failure is not None:
            raise failure

    def _record(self, step: WriteStep[T], result: T) -> None:
        line = step.report(result)
        if line is not None:
            append_event(self._journal, line)
