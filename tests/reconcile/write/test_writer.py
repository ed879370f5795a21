"""The writer settles every change, and says truly which of them it made."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from backends.errors import (
    OutcomeUnknownError,
    StoreFullError,
    TooLargeError,
    UnavailableError,
    VersionConflictError,
)
from backends.protocols import Versioned, Write
from reconcile.write.audit_journal import JOURNAL, AuditJournal, JournalLine, scan
from reconcile.write.journal_events import AclDone, AclIntent
from reconcile.write.writer import (
    BATCH_BYTES,
    ChangeOutcome,
    RecordTarget,
    Writer,
    WriteStep,
    cut_transactions,
    settle_changes,
)
from tests.support.failing_stores import Fault, FaultyStore
from tests.support.memory_store import TRANSACTION_BYTES, MemoryStore

ROOT = "/ledgers"
ROUNDS: Final = 10
"""Times that a write is tried."""


@dataclass(frozen=True, slots=True)
class Creation:
    """A key that is made, or removed where there is no value."""

    key: str
    value: bytes | None

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key) + len(self.value or b"")

    def is_made(self, stored: Versioned | None) -> bool:
        """Whether it is so."""
        return stored is None if self.value is None else stored is not None and stored.value == self.value

    def find_objection(self, stored: Versioned | None) -> str | None:
        """Only what is absent can be made."""
        return None if stored is None or self.value is None else "other bytes are there"


def make_target(store: MemoryStore | FaultyStore) -> RecordTarget[Creation]:
    """Return the values below a root."""

    def to_write(change: Creation, key: str, stored: Versioned | None) -> Write:
        return Write(key, change.value, None if stored is None else stored.version)

    return RecordTarget(store, ROOT, to_write)


def settle(
    store: MemoryStore | FaultyStore, changes: Sequence[Creation], *, is_whole: bool = False
) -> dict[str, ChangeOutcome]:
    """Read, and settle."""
    target = make_target(store)
    return settle_changes(target, changes, target.read(changes), is_whole=is_whole)


def test_what_is_there_and_what_differs_is_told_apart() -> None:
    """Made, there already, in conflict; the conflict of one key does not keep the others from being made."""
    store = MemoryStore()
    store.write([Write(f"{ROOT}/a", b"same"), Write(f"{ROOT}/b", b"other")])
    outcomes = settle(store, [Creation("/a", b"same"), Creation("/b", b"wanted"), Creation("/c", b"new")])
    assert outcomes == {
        "/a": ChangeOutcome(),
        "/b": ChangeOutcome(conflict="other bytes are there"),
        "/c": ChangeOutcome(version=0),
    }


@pytest.mark.parametrize(
    ("stored", "is_made"),
    [({}, True), ({"b": b"wanted"}, True), ({"b": b"other"}, False), ({"b": b"other", "c": b"there"}, False)],
)
def test_of_changes_that_belong_together_none_is_made_where_one_conflicts(
    stored: dict[str, bytes], is_made: bool
) -> None:
    """What is absent stays absent, whatever else is there already; without a conflict all are made."""
    store = MemoryStore()
    for key, value in stored.items():
        store.write([Write(f"{ROOT}/{key}", value)])
    changes = [Creation("/a", b"new"), Creation("/b", b"wanted"), Creation("/c", b"there")]
    outcomes = settle(store, changes, is_whole=True)
    assert (outcomes["/a"].conflict is None) == (outcomes["/b"].conflict is None) == is_made
    assert (store.get(f"{ROOT}/a") is not None) == is_made


def test_a_key_that_cannot_be_removed_is_left_and_the_others_go() -> None:
    """Something stands below one of them."""
    store = MemoryStore()
    store.write([Write(f"{ROOT}/a/child", b""), Write(f"{ROOT}/b", b"")])
    outcomes = settle(store, [Creation("/a", None), Creation("/b", None)])
    assert outcomes == {"/a": ChangeOutcome(conflict="there are nodes below it"), "/b": ChangeOutcome(version=-1)}


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("error", [OutcomeUnknownError("store", "cut"), StoreFullError("store", "no space")])
def test_a_lost_answer_is_told_by_reading(error: OutcomeUnknownError, after: bool) -> None:
    """Whether the write was made before its answer was lost or not: it is made once, and counted as made.

    Just so where the store says that it is full: etcd says it after it has made a write that came beside others.
    """
    store = MemoryStore()
    faulty = FaultyStore(store, {0: Fault(error, after=after)}.get)
    target = make_target(faulty)
    assert settle_changes(target, [Creation("/a", b"new")]) == {"/a": ChangeOutcome(version=0)}


def test_a_store_that_never_answers_is_not_available() -> None:
    """The run ends; nothing is said to be in conflict."""
    faulty = FaultyStore(
        MemoryStore(), lambda n: Fault(OutcomeUnknownError("store", "cut"), after=False) if n % 2 == 0 else None
    )
    with pytest.raises(UnavailableError, match="10 writes in a row"):
        settle_changes(make_target(faulty), [Creation("/a", b"new")])


def test_a_store_that_stays_full_is_said_to_be() -> None:
    """Not that it does not answer."""
    full = StoreFullError("store", "no space")
    faulty = FaultyStore(MemoryStore(), lambda n: Fault(full, after=False) if n % 2 == 0 else None)
    with pytest.raises(StoreFullError, match="no space"):
        settle_changes(make_target(faulty), [Creation("/a", b"new")])


def test_large_changes_are_cut_into_transactions() -> None:
    """Together they are more than a store takes; cut, they are all made; one that is too large is left."""
    store = MemoryStore()
    changes = [Creation(f"/k{n}", bytes(TRANSACTION_BYTES // 8)) for n in range(20)]
    with pytest.raises(TooLargeError):
        store.write([Write(ROOT + change.key, change.value) for change in changes])
    too_large = Creation("/large", bytes(TRANSACTION_BYTES + 1))
    outcomes: dict[str, ChangeOutcome] = {}
    for transaction in cut_transactions([*changes, too_large]):
        outcomes |= settle(store, transaction)
    assert outcomes.pop("/large").conflict == "it is larger than what the store takes"
    assert set(outcomes.values()) == {ChangeOutcome(version=0)}


def test_nothing_is_made_that_is_not_announced_before(tmp_path: Path) -> None:
    """Every step's lines stand in the journal when the first change is made; what became of it follows."""
    seen: list[list[str]] = []

    def read_events() -> list[str]:
        return [record.event for record in scan(tmp_path / JOURNAL) if isinstance(record, JournalLine)]

    def make() -> None:
        seen.append(read_events())

    steps = [WriteStep([AclIntent("freeze", "touch", key)], make, lambda _made: AclDone("/")) for key in ("/a", "/b")]
    with AuditJournal.open(
        tmp_path, {}, resume=False, now=lambda: datetime(2026, 1, 1, tzinfo=UTC), replay=lambda _record: None
    ) as journal:
        writer = Writer(journal)
        writer.carry_out(steps)
        assert writer.has_begun
    assert seen == [["begin", "intent", "intent"], ["begin", "intent", "intent", "done"]]
    assert read_events() == ["begin", "intent", "intent", "done", "done"]


def test_transactions_are_cut_at_their_bounds() -> None:
    """As many bytes as are allowed go together, one more does not; what is larger by itself is alone, never nothing."""
    half = BATCH_BYTES // 2 - 2
    fits = [Creation("/a", bytes(half)), Creation("/b", bytes(BATCH_BYTES - half - 4))]
    assert sum(change.size for change in fits) == BATCH_BYTES
    assert list(cut_transactions(fits)) == [fits]
    larger = [fits[0], Creation("/b", bytes(BATCH_BYTES - half - 3))]
    assert list(cut_transactions(larger)) == [larger[:1], larger[1:]]
    huge = [Creation("/huge", bytes(2 * BATCH_BYTES)), Creation("/c", b"")]
    assert list(cut_transactions(huge)) == [huge[:1], huge[1:]]
    small = [Creation(f"/{number}", b"") for number in range(5)]
    assert [len(batch) for batch in cut_transactions(small, 2)] == [2, 2, 1]
    assert list(cut_transactions([small[0], small[0], small[1]])) == [[small[0]], [small[0], small[1]]]
    assert list(cut_transactions([])) == []


class Troubled(MemoryStore):
    """A store each of whose writes fails; the last that is tried has its effect all the same."""

    def __init__(self, error: Exception, *, is_last_made: bool) -> None:
        super().__init__()
        self._error, self._is_last_made, self.tries = error, is_last_made, 0

    def write(self, changes: Sequence[Write]) -> list[int]:
        self.tries += 1
        if self._is_last_made and self.tries == ROUNDS:
            super().write(changes)
        raise self._error


LOST: Final = OutcomeUnknownError("store", "cut")
FULL: Final = StoreFullError("store", "no space")


@pytest.mark.parametrize("error", [LOST, FULL, VersionConflictError("/ledgers/a")])
def test_the_last_try_is_read_as_well(error: Exception) -> None:
    """What it made is made, though no answer said so."""
    store = Troubled(error, is_last_made=True)
    version = None if isinstance(error, VersionConflictError) else 0
    assert settle(store, [Creation("/a", b"new")]) == {"/a": ChangeOutcome(version=version)}
    assert store.tries == ROUNDS


@pytest.mark.parametrize(("error", "raised"), [(LOST, UnavailableError), (FULL, StoreFullError)])
def test_what_no_try_made_is_no_outcome(error: Exception, raised: type[Exception]) -> None:
    """A store without answers is not available, a full one is full; a conflict each time is somebody else's doing."""
    with pytest.raises(raised):
        settle(Troubled(error, is_last_made=False), [Creation("/a", b"new")])
    store = Troubled(VersionConflictError("/ledgers/a"), is_last_made=False)
    assert settle(store, [Creation("/a", b"new")]) == {
        "/a": ChangeOutcome(conflict="another program changes it all the time")
    }
