"""The tree of a layout's ledgers in a live store: the folders that lead to the ledgers, several listed at a time.

A listing is not believed alone. A folder that its parent names and nobody can list is looked up again, and reported if
it stays so. On request a folder is listed again where the transaction that last changed its children is another one
after the listing than before it.
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from backends.errors import AccessDeniedError
from backends.protocols import LiveStore, MetadataStore, Versioned
from recovery.codecs.store import ROOT, Layout, folder_patterns, is_special

LISTINGS_IN_FLIGHT: Final = 16
"""Enough to hide round trips, and few enough names to keep: a folder has at most 65,536."""
MOST_LISTINGS: Final = 3
"""Listings of one folder at most; one that changes all the time is left at what was seen."""
_FLAT_KEYS: Final = 8_192
"""Keys of the flat layout in one piece."""


class Unlisted(StrEnum):
    """Why a folder could not be listed."""

    DENIED = "access denied, not listed"
    LOST = "named by the folder above it, and not to be found when listed"


@dataclass(frozen=True, slots=True)
class TreePiece:
    """Keys that stand where ledgers do, and those that do not fit on the way there.

    Attributes:
        keys: below the root.
        share: of the whole tree, that is listed with it.
    """

    keys: Sequence[str]
    share: float


@dataclass(frozen=True, slots=True)
class RootNames:
    """Keys right below the root.

    Attributes:
        folders: tops of the ledgers' trees.
        ledgers: where the flat layout has its ledgers.
        rest: all else.
    """

    folders: tuple[str, ...]
    ledgers: tuple[str, ...]
    rest: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Folder:
    """An inner node of the ledgers' tree, to be listed, or (with `names`) to be looked at again.

    Attributes:
        key: of the node.
        patterns: of the names of inner nodes below it, level by level; empty: ledgers are below it.
        share: of all there is to list.
        names: what was listed there.
        stamp: the transaction that had last changed its children, before it was listed.
        listings: how often it was listed.
    """

    key: str
    patterns: Sequence[re.Pattern[str]]
    share: float
    names: frozenset[str] | None = None
    stamp: int | None = None
    listings: int = 0


class LedgerTree:
    """Ledgers of one store, listed; keys are below the root.

    Args:
        store: only read.
        root: key of the ledgers root; a slash at its end is left out.
        pool: lists several folders at a time.
        report: called with the key of each folder that could not be listed, and why.
        most_listings: how often a folder that changes is listed.
    """

    def __init__(
        self,
        store: MetadataStore,
        root: str,
        pool: ThreadPoolExecutor,
        report: Callable[[str, Unlisted], None],
        *,
        most_listings: int = 1,
    ) -> None:
        self._store = store
        self._watches = isinstance(store, LiveStore) and most_listings > 1
        self._root = root.rstrip("/")
        self._pool = pool
        self._report = report
        self._most_listings = most_listings
        self.changed = 0
        """Folders that changed while they were listed, or were removed before."""
        self.is_late = False
        """Whether the time ran out before all was listed."""

    def store_key(self, key: str) -> str:
        """Return the store's own key of a key below the root."""
        return self._root + key if key != ROOT else self._root or ROOT

    def list_root(self) -> list[str]:
        """Return the names below the root, of as many listings as it takes; none where there is no root.

        Raises:
            AccessDeniedError: it may not be listed.
        """
        names: dict[str, None] = {}
        for _ in range(self._most_listings):
            [stamp] = self._read_stamps([ROOT])
            names |= dict.fromkeys(self._store.children(self.store_key(ROOT)) or ())
            if not self._watches or self._read_stamps([ROOT]) == [stamp]:
                break
            self.changed += 1
        return list(names)

    def walk(self, layout: Layout, names: RootNames, *, within_s: float = float("inf")) -> Iterator[TreePiece]:
        """List all below a root, for so many seconds at most.

        Raises:
            UnavailableError: the store does not answer.
        """
        end = time.monotonic() + within_s
        tops = len(names.folders) + bool(names.ledgers)
        for start in range(0, len(names.ledgers), _FLAT_KEYS):
            keys = names.ledgers[start : start + _FLAT_KEYS]
            yield TreePiece(keys, len(keys) / len(names.ledgers) / tops)
        trees = _compile_trees(layout)
        patterns = [next(tree for tree in trees if tree[0].fullmatch(key[1:])) for key in names.folders]
        stack = [_Folder(key, tree[1:], 1 / tops) for key, tree in zip(names.folders, patterns, strict=True)][::-1]
        while stack and not self.is_late:
            folders = [stack.pop() for _ in range(min(LISTINGS_IN_FLIGHT, len(stack)))]
            repeated = [folder for folder in folders if folder.names is not None]
            folders = [folder for folder in folders if folder.names is None] + self._find_changed(repeated)
            below: list[_Folder] = []
            stamps = self._read_stamps([folder.key for folder in folders])
            listings = self.list_folders([folder.key for folder in folders])
            for folder, listed, stamp in zip(folders, listings, stamps, strict=True):
                new = [name for name in listed if folder.names is None or name not in folder.names]
                inner = [name for name in new if folder.patterns and folder.patterns[0].fullmatch(name)]
                deeper = frozenset(inner)
                yield TreePiece(
                    [f"{folder.key}/{name}" for name in new if name not in deeper], 0.0 if inner else folder.share
                )
                share = folder.share / max(1, len(inner))
                below += [_Folder(f"{folder.key}/{name}", folder.patterns[1:], share) for name in inner]
                if stamp is not None and folder.listings + 1 < self._most_listings:
                    # The second look at a folder comes when all below it was read.
                    seen = frozenset(listed) | (folder.names or frozenset())
                    below.append(replace(folder, share=0.0, names=seen, stamp=stamp, listings=folder.listings + 1))
            stack += reversed(below)
            self.is_late = bool(stack) and time.monotonic() > end

    def list_folders(self, keys: Sequence[str]) -> Iterator[list[str]]:
        """Yield the names below each key, in the given order; what cannot be listed is reported."""

        def list_folder(key: str) -> list[str] | AccessDeniedError | None:
            try:
                return self._store.children(self.store_key(key))
            except AccessDeniedError as error:
                return error

        for key, names in zip(keys, self._pool.map(list_folder, keys), strict=True):
            if isinstance(names, AccessDeniedError):
                self._report(key, Unlisted.DENIED)
                yield []
            else:
                yield names if names is not None else self._list_vanished(key)

    def _list_vanished(self, key: str) -> list[str]:
        """Return the names below a key that was named and not found: removed meanwhile, or made again, or lost."""
        parent, _, name = key.rpartition("/")
        reason = Unlisted.LOST
        for _ in range(MOST_LISTINGS):
            try:
                siblings = self._store.children(self.store_key(parent or ROOT))
                if siblings is None or name not in siblings:
                    self.changed += 1
                    return []
                names = self._store.children(self.store_key(key))
            except AccessDeniedError:
                reason = Unlisted.DENIED
                break
            if names is not None:
                return names
        self._report(key, reason)
        return []

    def _read_stamps(self, keys: Sequence[str]) -> list[int | None]:
        """Return the transaction that last changed the children of each key; None where the store does not say."""
        if not self._watches or not keys:
            return [None] * len(keys)
        nodes = self._read_readable([self.store_key(key) for key in keys])
        return [None if node is None else node.children_txn for node in nodes]

    def _read_readable(self, keys: Sequence[str]) -> list[Versioned | None]:
        """Return what is at keys; None also where that may not be read: listing it says so."""
        try:
            return [node for _, node in self._store.get_many(keys)]
        except AccessDeniedError:
            nodes: list[Versioned | None] = []
            for key in keys:
                try:
                    nodes.append(self._store.get(key))
                except AccessDeniedError:
                    nodes.append(None)
            return nodes

    def _find_changed(self, folders: Sequence[_Folder]) -> list[_Folder]:
        """Return the folders whose children changed since they were listed."""
        stamps = self._read_stamps([folder.key for folder in folders])
        changed = [f for f, stamp in zip(folders, stamps, strict=True) if stamp is not None and stamp != f.stamp]
        self.changed += len(changed)
        return changed


def sort_root_names(layout: Layout, names: Sequence[str]) -> RootNames:
    """Tell the tops of the ledgers' trees from what else stands right below a root."""
    tops = [tree[0] for tree in _compile_trees(layout)]
    folders, ledgers, rest = [], [], []
    for name in names:
        if any(top.fullmatch(name) for top in tops):
            folders.append(f"/{name}")
        elif layout is Layout.FLAT and not is_special(name):
            ledgers.append(f"/{name}")
        else:
            rest.append(f"/{name}")
    return RootNames(tuple(folders), tuple(ledgers), tuple(rest))


def _compile_trees(layout: Layout) -> list[list[re.Pattern[str]]]:
    return [[re.compile(name) for name in names] for names in folder_patterns(layout)]
