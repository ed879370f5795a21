"""Which bookies of a plan may start, by what the store has now."""

from collections.abc import Iterable
from dataclasses import dataclass

from backends.registry import OpenStore
from reconcile.plan.bookie_starts import BookieStart, KnownBookie
from reconcile.plan.manifest import PlanManifest
from reconcile.write.freezing.freeze_state import read_freeze_state
from recovery.codecs.store import Layout
from recovery.codecs.store_kind import kind_of


@dataclass(frozen=True, slots=True)
class BookieStarts:
    """Which bookies may start.

    Attributes:
        bookies: each that the plan knows, those that must not start first.
        after_thaw: none starts before: the store is frozen, and its ledgers are in the root itself.
    """

    bookies: tuple[BookieStart, ...] = ()
    after_thaw: bool = False


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
    starts = manifest.decide_starts(_read_cookies(opened, manifest.bookies), unfinished)
    return BookieStarts(tuple(starts), is_flat and read_freeze_state(opened.store, opened.root).frozen)


def _read_cookies(opened: OpenStore, bookies: Iterable[KnownBookie]) -> dict[str, bytes | None]:
    folder = f"{opened.root.rstrip('/')}{kind_of(opened.layout_hint).places.cookies}"
    keys = {f"{folder}/{known.bookie}": known.bookie for known in bookies}
    return {keys[key]: None if stored is None else stored.value for key, stored in opened.store.get_many(iter(keys))}
