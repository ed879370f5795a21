"""Why a ledger is not restored: the reasons that are stored with a hold."""

from enum import StrEnum
from typing import Final


class Refusal(StrEnum):
    """Why a ledger is held; stored in plans and in records, so a value is never renamed.

    Nothing that is refused is lost: it is held, with all bookies that have it.
    """

    RAGGED_TAIL = "ragged_tail"
    """Entries near the end are on no bookie, and later ones are: the missing ones may have been acknowledged."""

    SOURCE_INCOMPLETE = "source_incomplete"
    """Copies are missing, and a bookie that may have them was not scanned, or not completely."""
    NOT_FROM_ZERO = "not_from_zero"
    """No bookie holds entry 0, and nothing shows that it was ever acknowledged: the ledger may be empty."""
    NO_LAST_HEADER = "no_last_header"
    """The header of the last entry was not read, so the length is not known."""
    LENGTHS_DIFFER = "lengths_differ"
    """Copies of one entry disagree in the length up to it: two histories under one id."""
    DIGESTS_DIFFER = "digests_differ"
    """Entries of two digest types: two histories under one id."""
    LAC_BEYOND_END = "lac_beyond_end"
    """An entry above all that is held was acknowledged: entries are lost."""
    DAMAGE = "damage"
    """Damage hides entries of this ledger, or may."""
    LIMBO = "limbo"
    """A bookie does not know itself whether it lost entries of this ledger."""
    NO_KEY = "no_key"
    """No bookie knows the master key: nothing shows that these are copies of one ledger."""
    TWO_KEYS = "two_keys"
    """Two master keys: two histories under one id."""
    TWO_HISTORIES = "two_histories"
    """A bookie holds entries that no history of one ledger leaves there, or the length up to an entry leaves no room
    for it behind an earlier one: maybe of another ledger under the same id, or of a writer that sent ids out of order.
    """
    TWO_INCARNATIONS = "two_incarnations"
    """Two sets of disks have one bookie id, and both have this ledger."""
    LOG_ONLY_COPIES = "log_only_copies"
    """A bookie has entries in its logs or old journals that its index lacks: it would not serve them."""
    DELETED_SOMEWHERE = "deleted_somewhere"
    """A bookie has the ledger in its logs or old journals, and not in its index: possibly deleted there."""
    LOGS_OR_JOURNALS_ONLY = "logs_or_journals_only"
    """No index or journal has an entry, only logs or old journals: possibly deleted."""
    NO_ENTRIES = "no_entries"
    """Bookies know the ledger, and none holds an entry of it."""
    FRAGMENTED = "fragmented"
    """Its entries are in so many pieces that no history was found in the time that one ledger may take."""
    CONTRADICTION = "contradiction"
    """The inventory contradicts itself: impossible groups, or a header of an entry above all that are listed."""
    ID_OUT_OF_RANGE = "id_out_of_range"
    """An id that no store of the scope can name."""
    DELETED_OUTSIDE = "deleted_outside"
    """The store's own history shows its deletion: not restored unless a person chooses that."""
    DELETED_BEFORE = "deleted_before"
    """Its id was given out before a snapshot was taken, which has no record of it: deleted before that."""
    DELETED_SINCE = "deleted_since"
    """A snapshot has it with entries, and bookies that kept their data hold logs of it at most: probably deleted."""
    DELETED_BY_REFERENCE = "deleted_by_reference"
    """An upper layer says that it deleted it; only a choice that names the ledger restores it."""
    DELETED_BY_TOMBSTONE = "deleted_by_tombstone"
    """bkmeta purged it by a certificate, as its tombstone says: only a choice that names it restores it."""
    MASS_DELETION = "mass_deletion"
    """Deleted with so many others that it may be the catastrophe itself."""
    SCOPE_COLLISION = "scope_collision"
    """A ledger of another scope has the same lower half: programs without scopes mix both."""


REFUSALS: Final = tuple(Refusal)
CODES: Final = {refusal: number + 1 for number, refusal in enumerate(REFUSALS)}
"""Small numbers for columns, 0: not refused."""

GUARDABLE: Final = frozenset(
    {
        Refusal.RAGGED_TAIL,
        Refusal.SOURCE_INCOMPLETE,
        Refusal.NOT_FROM_ZERO,
        Refusal.NO_LAST_HEADER,
        Refusal.LAC_BEYOND_END,
        Refusal.DAMAGE,
        Refusal.LIMBO,
        Refusal.NO_KEY,
        Refusal.TWO_HISTORIES,
        Refusal.LOG_ONLY_COPIES,
        Refusal.NO_ENTRIES,
        Refusal.FRAGMENTED,
    }
)
"""Reasons that do not doubt the seen entries, only their completeness: such a ledger can be read."""

DOUBTED: Final = frozenset(
    {
        Refusal.CONTRADICTION,
        Refusal.TWO_HISTORIES,
        Refusal.TWO_KEYS,
        Refusal.TWO_INCARNATIONS,
        Refusal.LENGTHS_DIFFER,
        Refusal.DIGESTS_DIFFER,
        Refusal.DELETED_SOMEWHERE,
    }
)
"""Reasons to doubt the content of served entries: only a person can make such a ledger readable."""

ENDED_BY_LOSS: Final = frozenset(
    {
        Refusal.RAGGED_TAIL,
        Refusal.SOURCE_INCOMPLETE,
        Refusal.NOT_FROM_ZERO,
        Refusal.NO_LAST_HEADER,
        Refusal.LAC_BEYOND_END,
        Refusal.DAMAGE,
        Refusal.LOG_ONLY_COPIES,
        Refusal.NO_ENTRIES,
        Refusal.FRAGMENTED,
    }
)
"""Reasons that are final once everything missing is stated to be gone: the rest is the ledger."""

NEEDS_MORE: Final = frozenset({Refusal.RAGGED_TAIL, Refusal.NOT_FROM_ZERO})
"""Reasons that entries of another bookie could remove."""
