"""Locks that guard ledgers, read again: without its lock, bookies delete copies that a record leaves out.

    of a guarded ledger with the planned record
    kept          a guard's lock exists
    gone          there is no lock, or another owner's
    released      it was settled, and no guard's lock exists
    unreleased    it was settled, and a guard's lock still exists: no worker repairs it
    named         it needs none: its record names every possible holder, and protects while replication is disabled
    exposed       the same, and replication is enabled where bookies run

    of an id that two ledgers have, and that the plan locks for a time
    reuse_kept    its lock exists, and its end is to come
    reuse_gone    no such lock exists: the over-replicated check may delete the older copies
    reuse_over    its lock exists past its end: no worker repairs the younger ledger

A worker that lost its session removes its lock of a ledger by path, even if ours has taken the place. So a lock that
was read within `SETTLED_S` of its creation is read again.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from backends.protocols import AccessControl, MetadataStore
from reconcile.plan.actions import KEEP, Guard
from recovery.codecs.replication_lock import is_guard, lock_key, read_reuse_end
from recovery.codecs.store import LOCKS, READ_ONLY, REGISTRATIONS, REPLICATION_DISABLED
from recovery.dataset import Dataset
from recovery.model.ids import LedgerId, bucket_ranges

SETTLED_S: Final = 300
"""Age of a lock past which no former holder removes it any more."""
LISTED: Final = 100
"""Most ledgers that are named; all are counted."""
_READ: Final = 1000


@dataclass(frozen=True, slots=True)
class GuardsSeen:
    """The state of the guards of a plan.

    Attributes:
        kept, gone, released, unreleased, named, exposed: ledgers, as this module's head has them.
        replaced: ledgers without the planned record, or with an unwritten release.
        reuse_kept, reuse_gone, reuse_over: ids that two ledgers have, as this module's head has them.
        listed: the first gone ones and the first unreleased ones, each with the observed lock.
        youngest_ms: creation of the youngest lock, ms since 1970; None: no lock, or the store keeps no times.
    """

    kept: int = 0
    gone: int = 0
    released: int = 0
    unreleased: int = 0
    named: int = 0
    exposed: int = 0
    replaced: int = 0
    reuse_kept: int = 0
    reuse_gone: int = 0
    reuse_over: int = 0
    listed: tuple[tuple[LedgerId, str], ...] = ()
    youngest_ms: int | None = None

    @property
    def wrong(self) -> int:
        """Ledgers with a guard in a wrong state."""
        return self.gone + self.unreleased + self.exposed + self.reuse_gone + self.reuse_over

    def is_early(self, now_ms: int) -> bool:
        """Whether a former holder may still remove a lock."""
        return self.youngest_ms is not None and now_ms - self.youngest_ms < SETTLED_S * 1000


def look_at_guards(plan: Dataset, store: MetadataStore, root: str, now_ms: int | None = None) -> GuardsSeen:
    """Read every lock that a plan made or ended, not only those of a sample.

    Args:
        plan: the plan.
        store: only read.
        root: key of the ledgers root.
        now_ms: ms since 1970, by which locks have ended; None: none has.

    Raises:
        DatasetError: a file of the plan is gone or damaged.
        BackendError: the store does not answer.
    """
    base = root.rstrip("/")
    kept = gone = released = unreleased = named = replaced = 0
    is_enabled = _is_replicating(store, base)
    listed: list[tuple[LedgerId, str]] = []
    youngest: int | None = None
    for rows in _batches(plan):
        by_name = rows.filter(pc.equal(rows["guard"], Guard.NAMED)).to_pylist()
        stored = [node for _, node in store.get_many([base + row["key"] for row in by_name])]
        stand = sum(node is not None and node.value == row["value"] for row, node in zip(by_name, stored, strict=True))
        named += stand
        replaced += len(by_name) - stand
        locking = rows.filter(pc.not_equal(rows["guard"], Guard.NAMED)).to_pylist()
        ledgers = [LedgerId(row["scope"], row["ledger"]) for row in locking]
        locks = [node for _, node in store.get_many([base + lock_key(ledger) for ledger in ledgers])]
        records = [node for _, node in store.get_many([base + row["key"] for row in locking])]
        for row, ledger, lock, record in zip(locking, ledgers, locks, records, strict=True):
            is_ours = lock is not None and is_guard(lock.value, lock.owner)
            if record is None or record.value != row["value"]:
                replaced += 1
            elif row["guard"] == Guard.RELEASE and not is_ours:
                released += 1
            elif row["guard"] == Guard.RELEASE:
                unreleased += 1
                _list(listed, ledger, "it is settled, and its lock still exists: no worker repairs it")
            elif is_ours:
                kept += 1
                made = lock.created_ms if lock is not None else None
                youngest = made if youngest is None or (made or 0) > youngest else youngest
            else:
                gone += 1
                _list(listed, ledger, "its lock is gone: copies that its record leaves out may be deleted")
    exposed = named if is_enabled else 0
    reuse = Counter(_look_at_reuse_locks(plan, store, base, now_ms, listed))
    return GuardsSeen(
        kept,
        gone,
        released,
        unreleased,
        named,
        exposed,
        replaced,
        **reuse,
        listed=tuple(listed),
        youngest_ms=youngest,
    )


def _look_at_reuse_locks(
    plan: Dataset, store: MetadataStore, base: str, now_ms: int | None, listed: list[tuple[LedgerId, str]]
) -> Iterator[str]:
    """Yield the state of each lock of an id with two ledgers, and list the locks in a wrong state."""
    for buckets in bucket_ranges(plan.rows("actions")):
        rows = plan.read("actions", buckets=buckets, columns=["scope", "ledger", "key", "op"])
        planned = rows.filter(pc.equal(rows["op"], KEEP)).to_pylist()
        for row, (_, node) in zip(planned, store.get_many([base + row["key"] for row in planned]), strict=True):
            ledger = LedgerId(row["scope"], row["ledger"])
            end = None if node is None else read_reuse_end(node.value, node.owner)
            if end is None:
                yield "reuse_gone"
                _list(listed, ledger, "its lock is gone: the copies of the id's older ledger may be deleted")
            elif now_ms is not None and end.timestamp() * 1000 <= now_ms:
                yield "reuse_over"
                _list(
                    listed,
                    ledger,
                    "its lock is past its end: no worker repairs the ledger until it is removed",
                )
            else:
                yield "reuse_kept"


def _is_replicating(store: MetadataStore, base: str) -> bool:
    """Whether workers may put bookies in the place of others: replication is not disabled, and bookies run.

    BookKeeper has no replication on etcd.
    """
    if not isinstance(store, AccessControl) or store.get(base + REPLICATION_DISABLED) is not None:
        return False
    registered = (name for folder in REGISTRATIONS for name in store.children(base + folder) or ())
    return any(f"{REGISTRATIONS[0]}/{name}" != READ_ONLY for name in registered)


def _batches(plan: Dataset) -> Iterator[pa.Table]:
    columns = ["scope", "ledger", "key", "value", "guard"]
    for buckets in bucket_ranges(plan.rows("actions")):
        rows = plan.read("actions", buckets=buckets, columns=columns)
        guarded = rows.filter(pc.is_valid(rows["guard"]))
        for low in range(0, guarded.num_rows, _READ):
            yield guarded.slice(low, _READ)


def _list(listed: list[tuple[LedgerId, str]], ledger: LedgerId, words: str) -> None:
    if len(listed) < LISTED:
        listed.append((ledger, words))


def count_guards(store: MetadataStore, root: str) -> int:
    """Return how many ledgers a store's locks guard.

    Raises:
        BackendError: the store does not answer.
    """
    base = root.rstrip("/")
    names = [f"{base}{LOCKS}/{name}" for name in store.children(base + LOCKS) or ()]
    return sum(node is not None and is_guard(node.value, node.owner) for _, node in store.get_many(names))


def select_guarded(store: MetadataStore, root: str, ledgers: Iterable[LedgerId]) -> set[LedgerId]:
    """Return the ledgers that a lock guards, among some.

    Raises:
        BackendError: the store does not answer.
    """
    by_key = {root.rstrip("/") + lock_key(ledger): ledger for ledger in ledgers}
    return {
        by_key[key] for key, node in store.get_many(by_key) if node is not None and is_guard(node.value, node.owner)
    }
