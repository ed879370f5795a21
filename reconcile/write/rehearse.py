"""A plan applied where it can do no harm: into a root that was absent and is marked as a rehearsal before all else.

    <root>/BKMETA_REHEARSAL    JSON: plan (hash), made (UTC), journal (name of its folder)

What is not marked is never written to and never removed. A root is refused, too, if it is the one that the plan is for,
if it stands inside a ledgers root, or if bookies are registered in it.
"""

import json
import re
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from backends.errors import VersionConflictError
from backends.protocols import MetadataStore, Write, parents
from reconcile.errors import GuardRefusedError
from reconcile.plan.plan_reader import captured_store
from recovery.codecs import store as keys
from recovery.dataset import Dataset

MARK: Final = "/BKMETA_REHEARSAL"
JOURNALS: Final = "rehearsals"
"""Folder in the plan's folder that the journals of rehearsals are written to."""
_BATCH: Final = 100
"""Keys removed in a transaction."""
_INSIDE: Final = (keys.ON_ZOOKEEPER.layout, keys.ON_ETCD.layout, keys.COOKIES, MARK)
"""What tells a ledgers root, or a rehearsal of one."""
_HOSTS: Final = re.compile(r"[^/:,;]+:\d+")


@dataclass(frozen=True, slots=True)
class Mark:
    """What a rehearsal's root says of itself."""

    plan: str
    made: str
    journal: str

    def encode(self) -> bytes:
        """Return the bytes of the node."""
        return json.dumps({"plan": self.plan, "made": self.made, "journal": self.journal}).encode()


def read_mark(store: MetadataStore, root: str) -> Mark | None:
    """Return the mark of a root; None if it has none, or one that is not ours."""
    held = store.get(root + MARK)
    if held is None:
        return None
    try:
        found = json.loads(held.value)
        return Mark(str(found["plan"]), str(found["made"]), str(found["journal"]))
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
    _demand_elsewhere(dataset, store, root)
    if store.get(root) is not None:
        return _taken_up(plan_hash, store, root)
    for above in parents(root):
        for name in _INSIDE:
            if store.get(above + name) is not None:
                problem = f"stands inside {above}, which is a ledgers root"
                raise GuardRefusedError(root, problem, "name a root of its own, e.g. /bkmeta-rehearsal/ledgers")
    mark = Mark(plan_hash, now().isoformat(timespec="seconds"), secrets.token_hex(8))
    try:
        store.write([Write(root + MARK, mark.encode())])  # which makes the root
    except VersionConflictError:
        # Somebody made the root meanwhile: perhaps another rehearsal of this plan.
        return _taken_up(plan_hash, store, root)
    return mark


def _taken_up(plan_hash: str, store: MetadataStore, root: str) -> Mark:
    mark = read_mark(store, root)
    if mark is None:
        problem = "exists, and is not marked as a rehearsal"
        raise GuardRefusedError(root, problem, "name a root that does not exist, e.g. /bkmeta-rehearsal/ledgers")
    if mark.plan != plan_hash:
        problem = f"is the rehearsal of another plan, {mark.plan}"
        raise GuardRefusedError(root, problem, "remove it with --remove, or name another root")
    return mark


def _demand_elsewhere(dataset: Dataset, store: MetadataStore, root: str) -> None:
    """Refuse the root that the plan is for, unless the store is seen to be another one."""
    own = str(dataset.manifest["binding"].get("root") or "")
    if root != own:
        return
    catalog = captured_store(dataset)
    if catalog is not None:
        hosts = {
            host for uri in catalog.read("sources", columns=["uri"])["uri"].to_pylist() for host in _HOSTS.findall(uri)
        }
        here = set(_HOSTS.findall(store.uri))
        if hosts and here and not hosts & here:
            return
    problem = "is the root that the plan is for"
    raise GuardRefusedError(root, problem, "rehearse in another root, e.g. /bkmeta-rehearsal/ledgers")


def remove(store: MetadataStore, root: str, *, progress: Callable[[int, int], None]) -> int:
    """Remove a rehearsal with all that is in it, its mark last, so that it can be repeated; return how many keys.

    Raises:
        GuardRefusedError: the root is not marked, or bookies are registered in it.
    """
    if store.get(root) is None:
        return 0
    if read_mark(store, root) is None:
        raise GuardRefusedError(root, "is not marked as a rehearsal", "only what bkmeta rehearse made is removed by it")
    for folder in keys.REGISTRATIONS:
        running = [name for name in store.children(root + folder) or () if f"{folder}/{name}" != keys.READ_ONLY]
        if running:
            problem = f"bookies are registered in it: {', '.join(running[:5])}"
            raise GuardRefusedError(root + folder, problem, "stop them first")
    removed = 0
    batch: list[str] = []
    for key in _below(store, root):
        if key == root + MARK:
            continue
        batch.append(key)
        if len(batch) >= _BATCH:
            removed += _remove(store, batch)
            progress(removed, removed + 1)
            batch = []
    removed += _remove(store, [*batch, root + MARK, root])
    progress(removed, removed)
    return removed


def _below(store: MetadataStore, root: str) -> Iterator[str]:
    """Yield every key below a root, what is below a key before it."""
    open_keys: deque[tuple[str, bool]] = deque((f"{root}/{name}", False) for name in store.children(root) or ())
    while open_keys:
        key, emptied = open_keys.pop()
        names = [] if emptied else store.children(key) or []
        if names:
            open_keys.append((key, True))
            open_keys.extend((f"{key}/{name}", False) for name in names)
        else:
            yield key


def _remove(store: MetadataStore, batch: list[str]) -> int:
    held = [(key, found) for key, found in store.get_many(batch) if found is not None]
    store.write([Write(key, None, found.version) for key, found in held])
    return len(held)
