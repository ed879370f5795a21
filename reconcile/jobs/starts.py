"""Which bookies of a plan may start, by what the store has now."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from backends.protocols import MetadataStore
from backends.registry import OpenStore
from reconcile.jobs.described_bookies import describe_bookies, is_own
from reconcile.plan.bookie_starts import BookieStart, KnownBookie, decide_start
from reconcile.plan.manifest import PlanManifest
from reconcile.write.freezing.freeze_state import read_freeze_state
from recovery.codecs.store import COOKIES, Layout
from recovery.codecs.store_kind import kind_of
from recovery.dataset import Dataset, read_inventories
from recovery.infer.lost_disks import LostDisk, find_lost_bookies

_FROZEN: Final = {
    "may_start": False,
    "reason": "the root is frozen, and no bookie can read a frozen root of the flat layout: thaw first",
    "is_kept_out": True,
    "keeping": "Its start fails until the thaw",
}


@dataclass(frozen=True, slots=True)
class BookieStarts:
    """Which bookies may start.

    Attributes:
        bookies: each that is known, those that must not start first.
        after_thaw: none starts before: the store is frozen, and its ledgers are in the root itself.
    """

    bookies: tuple[BookieStart, ...] = ()
    after_thaw: bool = False

    def to_json(self) -> list[dict[str, Any]]:
        """Return them as ``--json`` has them: as they may start now."""
        waits = _FROZEN if self.after_thaw else {}
        return [{**start.to_json(), **(waits if start.may_start else {})} for start in self.bookies]


def decide_starts_now(manifest: PlanManifest, opened: OpenStore, unfinished: str = "") -> BookieStarts:
    """Return which bookies of a plan may start, by the cookies that a store has now.

    Args:
        manifest: of the plan; it may know no bookies.
        opened: the store.
        unfinished: why no bookie may start; empty: only what the plan itself leaves open.

    Raises:
        UnavailableError: the store does not answer.
    """
    if not manifest.bookies:
        return BookieStarts()
    is_flat = manifest.binding.layout == Layout.FLAT
    folder = opened.root.rstrip("/") + kind_of(opened.layout_hint).places.cookies
    stored = _read_cookies(opened.store, folder, [known.bookie for known in manifest.bookies])
    starts = manifest.decide_starts(stored, unfinished)
    return BookieStarts(tuple(starts), is_flat and read_freeze_state(opened.store, opened.root).frozen)


def list_known(
    store: MetadataStore, root: str, inventories: Sequence[Dataset], lost: Sequence[LostDisk]
) -> tuple[KnownBookie, ...]:
    """Return the bookies that inventories are of, that have a cookie in a store of ZooKeeper's, or that are lost.

    Raises:
        InputError: a statement of what is lost is of a bookie that was read whole, or of a folder that is not missing.
        UnavailableError: the store does not answer.
    """
    bookies = read_inventories(inventories, "bookies")
    named = {*(store.children(root + COOKIES) or ()), *(disk.bookie for disk in lost)}
    unseen = sorted(named - {*bookies["bookie"].to_pylist()})
    gone = find_lost_bookies(lost, bookies, read_inventories(inventories, "damage"), unseen)
    stored = _read_cookies(store, root + COOKIES, sorted(named))
    recorded = {name: raw for name, raw in stored.items() if raw is not None and is_own(raw, name)}
    return tuple(found.known for found in describe_bookies(inventories, bookies, named, gone, recorded))


def decide_starts_of(
    known: Sequence[KnownBookie], store: MetadataStore, root: str, *, after_thaw: bool
) -> BookieStarts:
    """Return which of some bookies may start, by the cookies that a store of ZooKeeper's has now.

    Raises:
        UnavailableError: the store does not answer.
    """
    stored = _read_cookies(store, root + COOKIES, [bookie.bookie for bookie in known])
    starts = [decide_start(bookie, bookie.compare(stored.get(bookie.bookie))) for bookie in known]
    return BookieStarts(tuple(sorted(starts, key=lambda start: (start.may_start, start.bookie))), after_thaw)


def _read_cookies(store: MetadataStore, folder: str, bookies: Iterable[str]) -> dict[str, bytes | None]:
    keys = {f"{folder}/{bookie}": bookie for bookie in bookies}
    return {keys[key]: None if stored is None else stored.value for key, stored in store.get_many(iter(keys))}
