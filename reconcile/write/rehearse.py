"""A plan applied where it can do no harm: into a root that was absent and is marked as a rehearsal before all else.

    <root>/BKMETA_REHEARSAL    JSON: plan (hash), made (UTC), journal (name of its folder)
    <root>/BKMETA_SUBTREES     what the plan writes outside of its root

What is not marked is never written to and never removed. A root is refused, too, if it is the one that the plan is for,
if it stands inside a ledgers root, or if bookies are registered in it. The apply into it has its own journal, in the
plan's folder; the mark, and the removal of all that is below it, need none: the mark comes first and goes last, so
anybody who repeats either of them goes on with it.
"""

import json
import re
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from backends.protocols import MetadataStore, Versioned, Write
from reconcile.errors import Advice, GuardRefusedError, PartlyAppliedError, Remedy
from reconcile.plan.manifest import read_plan_manifest
from reconcile.plan.plan_reader import open_captured_store
from reconcile.write.guards import require_separate_root, require_unregistered
from reconcile.write.writer import BATCH_ROWS, RecordTarget, settle_changes
from recovery.codecs.store import COOKIES
from recovery.codecs.store_kind import KINDS
from recovery.dataset import Dataset

MARK: Final = "/BKMETA_REHEARSAL"
OUTSIDE: Final = "/BKMETA_SUBTREES"
"""What a plan writes outside of its root is rehearsed below this key of the rehearsal's."""
JOURNALS: Final = "rehearsals"
"""Folder in the plan's folder that the journals of rehearsals are written to."""
_MARKS_OF_ROOTS: Final = (*(kind.places.layout for kind in KINDS), COOKIES, MARK)
"""Keys that only a ledgers root has, or a rehearsal of one."""
_HOSTS: Final = re.compile(r"[^/:,;]+:\d+")


@dataclass(frozen=True, slots=True)
class Mark:
    """What a rehearsal's root says about itself."""

    plan: str
    made: str
    journal: str

    def encode(self) -> bytes:
        """Return the bytes of the node."""
        return json.dumps({"plan": self.plan, "made": self.made, "journal": self.journal}).encode()


def read_mark(store: MetadataStore, root: str) -> Mark | None:
    """Return the mark of a root; None if it has none, or one that no rehearsal wrote."""
    stored = store.get(root + MARK)
    if stored is None:
        return None
    try:
        fields = json.loads(stored.value)
        return Mark(str(fields["plan"]), str(fields["made"]), str(fields["journal"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def begin(dataset: Dataset, plan_hash: str, store: MetadataStore, root: str, *, now: Callable[[], datetime]) -> Mark:
    """Make sure that a root is a rehearsal of this plan: mark an absent one, take up a marked one.

    Args:
        dataset: the plan.
        plan_hash: made from its actions.
        store: writable.
        root: key of the ledgers root to rehearse in.
        now: the clock; aware.

    Raises:
        GuardRefusedError: the root is neither absent nor marked, is another plan's rehearsal, is the plan's own root,
            or stands inside a ledgers root.
    """
    _require_elsewhere(dataset, store, root)
    if store.get(root) is not None:
        return _take_up(plan_hash, store, root)
    require_separate_root(store, root, _MARKS_OF_ROOTS)
    mark = Mark(plan_hash, now().isoformat(timespec="seconds"), secrets.token_hex(8))
    marking = _Marking(mark.encode())
    # Writing the mark makes the root.
    outcome = settle_changes(RecordTarget(store, root, _Marking.to_write), [marking])[marking.key]
    # Somebody made the root meanwhile: perhaps another rehearsal of this plan.
    return mark if outcome.conflict is None else _take_up(plan_hash, store, root)


@dataclass(frozen=True, slots=True)
class _Marking:
    """The writing of a mark."""

    value: bytes
    key: str = MARK

    def is_made(self, stored: Versioned | None) -> bool:
        """Whether the mark is there; no other one is the same."""
        return stored is not None and stored.value == self.value

    def find_objection(self, stored: Versioned | None) -> str | None:
        """Return why the mark cannot be written."""
        return None if stored is None else "another mark is there"

    def to_write(self, key: str, _stored: Versioned | None) -> Write:
        """Return the write of an absent mark."""
        return Write(key, self.value)


def _take_up(plan_hash: str, store: MetadataStore, root: str) -> Mark:
    mark = read_mark(store, root)
    if mark is None:
        problem = "exists, and is not marked as a rehearsal"
        raise GuardRefusedError(root, problem, "name a root that does not exist, e.g. /bkmeta-rehearsal/ledgers")
    if mark.plan != plan_hash:
        problem = f"is the rehearsal of another plan, {mark.plan}"
        raise GuardRefusedError(root, problem, Remedy(Advice.REMOVE_REHEARSAL))
    return mark


def _require_elsewhere(dataset: Dataset, store: MetadataStore, root: str) -> None:
    """Refuse the root that the plan is for, unless the store is seen to be another one."""
    if root != read_plan_manifest(dataset).binding.root:
        return
    catalog = open_captured_store(dataset)
    if catalog is not None:
        hosts = {
            host for uri in catalog.read("sources", columns=["uri"])["uri"].to_pylist() for host in _HOSTS.findall(uri)
        }
        own_hosts = set(_HOSTS.findall(store.uri))
        if hosts and own_hosts and not hosts & own_hosts:
            return
    problem = "is the root that the plan is for"
    raise GuardRefusedError(root, problem, "rehearse in another root, e.g. /bkmeta-rehearsal/ledgers")


def remove(store: MetadataStore, root: str, *, progress: Callable[[int, int], None]) -> int:
    """Remove a rehearsal with all that is in it, its mark last, so that it can be repeated; return how many keys.

    Raises:
        GuardRefusedError: the root is not marked, or bookies are registered in it.
        PartlyAppliedError: somebody writes in it.
    """
    if store.get(root) is None:
        return 0
    if read_mark(store, root) is None:
        raise GuardRefusedError(root, "is not marked as a rehearsal", "only what bkmeta rehearse made is removed by it")
    require_unregistered(store, root)
    removed = 0
    batch: list[str] = []
    for key in _list_below(store, root):
        if key == root + MARK:
            continue
        batch.append(key)
        if len(batch) >= BATCH_ROWS:
            removed += _remove(store, root, batch)
            progress(removed, removed + 1)
            batch = []
    removed += _remove(store, root, [*batch, root + MARK, root])
    progress(removed, removed)
    return removed


def _list_below(store: MetadataStore, root: str) -> Iterator[str]:
    """Yield every key below a root, what is below a key before it."""
    open_keys: deque[tuple[str, bool]] = deque((f"{root}/{name}", False) for name in store.children(root) or ())
    while open_keys:
        key, is_emptied = open_keys.pop()
        names = None if is_emptied else store.children(key)
        if names:
            open_keys.append((key, True))
            open_keys.extend((f"{key}/{name}", False) for name in names)
        else:
            yield key


@dataclass(frozen=True, slots=True)
class _Removal:
    """The removal of a key, whatever is there: all of a rehearsal goes."""

    key: str

    def is_made(self, stored: Versioned | None) -> bool:
        """Whether the key is gone."""
        return stored is None

    def find_objection(self, stored: Versioned | None) -> str | None:  # noqa: ARG002 - as of every change
        """Object to nothing."""
        return None

    def to_write(self, key: str, stored: Versioned | None) -> Write:
        """Return the write that removes what was read."""
        return Write(key, None, None if stored is None else stored.version)


def _remove(store: MetadataStore, root: str, batch: list[str]) -> int:
    """Remove keys, those below others first; return how many were there."""
    target = RecordTarget(store, "", _Removal.to_write)
    removals = [_Removal(key) for key in batch]
    stored = target.read(removals)
    outcomes = settle_changes(target, removals, stored)
    for key, outcome in outcomes.items():
        if outcome.conflict is not None:
            raise PartlyAppliedError(root, f"{key} was not removed: {outcome.conflict}", "run the same command again")
    return sum(node is not None for node in stored.values())
