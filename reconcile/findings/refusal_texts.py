"""Reasons why a ledger is not restored, in words, and the evidence that would settle each."""

from collections.abc import Mapping
from typing import Final

from recovery.infer.refusal import Refusal

REASONS: Final[Mapping[Refusal, tuple[str, str]]] = {
    Refusal.RAGGED_TAIL: (
        "entries near the end are on no bookie, and later ones are: the missing ones may have been acknowledged",
        "your choice of the last entry, or an upper layer that knows it",
    ),
    Refusal.SOURCE_INCOMPLETE: (
        "copies are missing, and a bookie that may have them was not scanned, or not completely",
        "the complete inventory of every bookie; or a snapshot, or --default-quorum if all ledgers have these quorums",
    ),
    Refusal.NOT_FROM_ZERO: (
        "no bookie holds entry 0, and nothing shows that it was ever acknowledged",
        "the bookie that has the ledger's beginning, or an upper layer that knows that it was empty",
    ),
    Refusal.NO_LAST_HEADER: (
        "the header of the last entry was not read, so the length is not known",
        "the entry log that holds it: collect that bookie again",
    ),
    Refusal.LENGTHS_DIFFER: (
        "copies of one entry disagree in the length up to it: two histories under one id",
        "your choice of the history",
    ),
    Refusal.DIGESTS_DIFFER: (
        "entries have two digest types: two histories under one id",
        "your choice of the history",
    ),
    Refusal.LAC_BEYOND_END: (
        "an acknowledged entry is above all entries on bookies: entries are lost",
        "the bookie that has them; or your decision to accept their loss",
    ),
    Refusal.DAMAGE: (
        "damage hides entries of this ledger, or may hide some",
        "an undamaged copy of those disks",
    ),
    Refusal.LIMBO: (
        "a bookie itself does not know whether it lost entries of this ledger",
        "that bookie's own integrity check, or its old disks",
    ),
    Refusal.NO_KEY: (
        "no bookie knows the master key: nothing shows that these are copies of one ledger",
        "a bookie with the key in its index or journal",
    ),
    Refusal.TWO_KEYS: ("two master keys: two histories under one id", "your choice of the history"),
    Refusal.TWO_HISTORIES: (
        "entries or their lengths do not fit one ledger's history: two ledgers may have had this id",
        "a snapshot; or your comparison of the entries",
    ),
    Refusal.TWO_INCARNATIONS: (
        "two sets of disks have the same bookie id, and both have this ledger",
        "the inventory of the right set only",
    ),
    Refusal.LOG_ONLY_COPIES: (
        "a bookie has entries in its logs or old journals that its index lacks: it would not serve them",
        "a rebuild of that bookie's index, then its inventory again",
    ),
    Refusal.DELETED_SOMEWHERE: (
        "a bookie has the ledger in its logs or old journals, and not in its index: possibly deleted there",
        "references or tombstones that say whether it was deleted",
    ),
    Refusal.LOGS_OR_JOURNALS_ONLY: (
        "no index has an entry, only logs or old journals: possibly deleted",
        "references or tombstones that say whether it was deleted",
    ),
    Refusal.NO_ENTRIES: (
        "bookies know the ledger, and none holds an entry of it",
        "a snapshot, or an upper layer that knows that it was empty",
    ),
    Refusal.FRAGMENTED: (
        "its entries are in more pieces than one task can process",
        "your decision with plan edit; until then the data is kept",
    ),
    Refusal.CONTRADICTION: (
        "the inventory contradicts itself",
        "a new inventory of the bookie; if it contradicts itself again, report that",
    ),
    Refusal.DELETED_OUTSIDE: (
        "the store's own history shows who deleted it, and when",
        "your decision: if it was a mistake, the plan's alternative restores the last record",
    ),
    Refusal.DELETED_BEFORE: (
        "its id was given out before a snapshot that has no record of it: deleted before that snapshot",
        "your knowledge that it was deleted, or that it was created under a chosen id",
    ),
    Refusal.DELETED_SINCE: (
        "probably deleted since the snapshot, by retention or a client: no bookie serves an entry of it",
        "your decision to accept its loss, if it was deleted; or the disks that still have it",
    ),
    Refusal.DELETED_BY_REFERENCE: (
        "an upper layer reports that it deleted the ledger",
        "your choice for this ledger",
    ),
    Refusal.DELETED_BY_TOMBSTONE: (
        "bkmeta purged it by a certificate, as its tombstone says",
        "your choice for this ledger alone; a choice for many ledgers does not bring it back",
    ),
    Refusal.MASS_DELETION: (
        "so many ledgers were deleted that the deletes may be the mistake itself",
        "your decision: a capture from before the deletes (capture --at) as --snapshot, or alternatives one by one",
    ),
    Refusal.SCOPE_COLLISION: (
        "a ledger of another scope has the same lower half: programs without scopes mix both",
        "your knowledge of which bookies and clients use scopes",
    ),
    Refusal.ID_OUT_OF_RANGE: ("an id that no store can name", "your decision: no BookKeeper could have made it"),
}
"""Refusal → its meaning, and the evidence that would settle it."""


def describe_reason(reason: str) -> str:
    """Return the meaning of a stored reason; the reason itself if this version does not know it."""
    known = reason in set(Refusal)
    return REASONS[Refusal(reason)][0] if known else reason


def describe_remedy(reason: str) -> str:
    """Return the evidence that would settle a stored reason; empty if this version does not know it."""
    known = reason in set(Refusal)
    return REASONS[Refusal(reason)][1] if known else ""
