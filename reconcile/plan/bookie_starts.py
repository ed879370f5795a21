"""Which bookies may start, which must not and why; and the cookie that keeps a bookie from starting empty.

What BookKeeper makes of a cookie in the store, as real bookies of 4.17.2 were seen to do (docs/operations/bookies.md):

    store has        folders                    it starts, and where
    its own          all hold it                always
    its own          a journal folder lacks it  allowStorageExpansion is on: the folder is stamped
    its own          another one lacks it       never
    none             some lack it               always: what lacks it is taken for new, and all are stamped
    none             all hold it                never
    a blocking one   any                        never

Where dataIntegrityChecking and dataIntegrityStampMissingCookies are on, it starts with any cookie in the store, and
writes its own there; without one, only where no folder holds any.

Source: apache/bookkeeper 9590a97, bookie/LegacyCookieValidation, bookie/datainteg/DataIntegrityCookieValidation.
"""

import hashlib
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from reconcile.words import count_noun, list_names
from recovery.codecs.blocking_cookie import is_blocking, make_blocking

_EXPANDS: Final = "allowStorageExpansion"
_STAMPS: Final = "dataIntegrityStampMissingCookies"


class StoredCookie(StrEnum):
    """What a store has as the cookie of a bookie; values are stored."""

    OWN = "own"
    """Its folders hold it, or held it."""
    NONE = "none"
    BLOCKING = "blocking"
    """One of `make_blocking`."""
    OTHER = "other"


class BookieSource(StrEnum):
    """What a bookie is known from; values are stored."""

    DISKS = "disks"
    WIRE = "wire"
    """It was asked while it ran."""
    NAME = "name"
    """An operator, a store or a snapshot names it, and there is no inventory of it."""


@dataclass(frozen=True, slots=True)
class KnownBookie:
    """What is known of a bookie that a cluster has, as far as its start depends on it.

    Attributes:
        bookie: its id.
        source: what it is known from.
        complete: all of it was read.
        lost: what was not seen of it is gone for good, as an operator states.
        missing: its folders that are missing, empty, or without the cookie.
        is_only_journals: all of these are journal folders.
        is_index_gone: of a part of its index nothing tells which ledgers it has.
        hiding: places of damage that hide entries.
        expands_storage, stamps_cookies: as its configuration says; None: not read.
        cookie: SHA-256 of its own cookie, in hex; None: not known.
        stored: what the store had of it when the plan was made.
        planned: what the store has of it when the plan is written, cookies and all.
    """

    bookie: str
    source: BookieSource = BookieSource.NAME
    complete: bool = False
    lost: bool = False
    missing: tuple[str, ...] = ()
    is_only_journals: bool = False
    is_index_gone: bool = False
    hiding: int = 0
    expands_storage: bool | None = None
    stamps_cookies: bool | None = None
    cookie: str | None = None
    stored: StoredCookie = StoredCookie.NONE
    planned: StoredCookie = StoredCookie.NONE

    def to_json(self) -> dict[str, Any]:
        """Return it as manifests have it."""
        return asdict(self)

    @property
    def protected_by_own(self) -> bool:
        """Whether its own cookie in the store keeps it from starting, unless a setting that was not read undoes it."""
        return bool(self.missing) and not (self.is_only_journals and self.expands_storage)

    @property
    def starts_empty(self) -> bool:
        """Whether it would start without some of what it had, and not know it."""
        return bool(self.missing) or (self.is_index_gone and not self.lost)

    def compare(self, stored: bytes | None) -> StoredCookie:
        """Return what the cookie is that a store has of it; None: it has none."""
        if stored is None:
            return StoredCookie.NONE
        if is_blocking(stored):
            return StoredCookie.BLOCKING
        return StoredCookie.OWN if hash_cookie(stored) == self.cookie else StoredCookie.OTHER


@dataclass(frozen=True, slots=True)
class BookieStart:
    """Whether a bookie may start now.

    Attributes:
        bookie: its id.
        may_start: it may; else it must not.
        reason: why it must not; empty where it may.
        is_kept_out: it must not, and it refuses to start by itself.
        keeping: what keeps it from starting, or that nothing does; empty where it may.
    """

    bookie: str
    may_start: bool
    reason: str = ""
    is_kept_out: bool = False
    keeping: str = ""

    def __str__(self) -> str:
        return f"{self.bookie} may start" if self.may_start else f"{self.bookie} must not start: {self.why}"

    @property
    def why(self) -> str:
        """Why it must not start, and what keeps it from that; empty where it may."""
        return "" if self.may_start else f"{self.reason}. {self.keeping}"

    def to_json(self) -> dict[str, Any]:
        """Return it as ``--json`` has it."""
        return asdict(self)


def decide_start(known: KnownBookie, stored: StoredCookie, unfinished: str = "") -> BookieStart:
    """Return whether a bookie may start.

    Args:
        known: what is known of it.
        stored: what the store has of it when it starts.
        unfinished: why no bookie may start, whatever is known of it; empty: nothing is unfinished.
    """
    reasons = [*_list_gaps(known), *([unfinished] if unfinished else _list_odd_cookies(known, stored))]
    if not reasons:
        return BookieStart(known.bookie, may_start=True)
    undone = _list_undoing(known, stored)
    if undone:
        keeping = f"Keep it stopped yourself: {' and '.join(undone)}"
    elif stored is StoredCookie.NONE:
        keeping = "It refuses to start as long as the store has no cookie of it"
    else:
        keeping = "Its cookie in the store keeps it from starting"
    return BookieStart(
        known.bookie, may_start=False, reason=", ".join(reasons), is_kept_out=not undone, keeping=keeping
    )


def _list_gaps(known: KnownBookie) -> list[str]:
    """Say what of a bookie was not seen and is not given up."""
    if known.source is BookieSource.NAME:
        return ["its disks are stated to be lost" if known.lost else "it was not collected"]
    if known.source is BookieSource.WIRE:
        return ["its disks were not read, it was asked over the wire only"]
    gaps = []
    if known.missing:
        gaps.append(f"folders of it are missing, empty or without VERSION ({list_names(known.missing)})")
    if known.lost:
        return gaps
    if known.is_index_gone:
        gaps.append("a part of its index is gone, so it would take entries in its logs for garbage")
    elif known.hiding:
        gaps.append(f"{count_noun(known.hiding, 'damaged place')} of its disks may hide entries")
    return gaps or ([] if known.complete else ["it was not read completely"])


def _list_odd_cookies(known: KnownBookie, stored: StoredCookie) -> list[str]:
    """Say what is wrong with the cookie of a bookie that may start by all else."""
    match stored:
        case StoredCookie.OWN:
            return []
        case StoredCookie.NONE:
            return ["the store has no cookie of it"]
        case StoredCookie.BLOCKING:
            return [] if _list_gaps(known) else ["the store has a cookie of it that no folder matches"]
        case StoredCookie.OTHER:
            return ["the store has another cookie of it than its folders hold"]


def _list_undoing(known: KnownBookie, stored: StoredCookie) -> list[str]:
    """Return what lets a bookie start that must not; nothing: it refuses."""
    undoing = []
    if stored is StoredCookie.NONE:
        if known.source is not BookieSource.DISKS:
            return ["the store has no cookie of it, so it starts if a folder is missing or empty"]
        if known.missing:
            return ["the store has no cookie of it, so it starts empty"]
        return []
    if stored is StoredCookie.OWN:
        if known.source is not BookieSource.DISKS:
            return ["it starts if its folders are all there"]
        if not known.missing:
            return ["nothing in the store keeps it from starting"]
        if known.is_only_journals:
            undoing += _name_setting(_EXPANDS, known.expands_storage)
    elif stored is StoredCookie.OTHER:
        undoing += _name_setting(_EXPANDS, known.expands_storage)
    return undoing + _name_setting(_STAMPS, known.stamps_cookies)


def _name_setting(name: str, value: bool | None) -> list[str]:  # noqa: FBT001 - a value of three
    if value is False:
        return []
    return [f"{name} is on" if value else f"{name} of its bk_server.conf was not read"]


def hash_cookie(raw: bytes) -> str:
    """Return what tells a cookie from another one: SHA-256 in hex."""
    return hashlib.sha256(raw).hexdigest()


def choose_cookie(known: KnownBookie, own: bytes | None, instance_id: str | None) -> bytes:
    """Return the cookie that a store is to have of a bookie, so that it does not start without what it had.

    Its own, where that keeps it from starting or where nothing of its folders is missing; else a blocking one.
    """
    if own is None or (known.starts_empty and not known.protected_by_own):
        return make_blocking(known.bookie, instance_id, own)
    return own
