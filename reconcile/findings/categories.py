"""What a finding can say: its category, how grave that is, and what it suggests to do."""

from enum import StrEnum
from typing import Final


class Category(StrEnum):
    """What a finding says; stored, so never renamed."""

    HELD = "HELD"
    """Not restored: a record that keeps the data and serves nobody is proposed instead."""
    GUARDED = "GUARDED"
    """Readable by a record that may not be the last word; every copy is kept until it is settled."""
    LEFT_OVER = "LEFT_OVER"
    """A ledger comes back as what is left of it: disks that may have had more are stated to be gone for good."""
    READERS_MUST_REOPEN = "READERS_MUST_REOPEN"
    """A settled record has fewer members: readers that opened it without recovery fail until they reopen it."""
    METADATA_UNPARSABLE = "METADATA_UNPARSABLE"
    """The store has a record that no BookKeeper can read."""
    ENTRIES_BEYOND_LAST_ENTRY = "ENTRIES_BEYOND_LAST_ENTRY"
    """Bookies hold entries above the last entry of a closed ledger."""
    ENTRIES_MISSING = "ENTRIES_MISSING"
    """A closed ledger's last entry is above everything that bookies hold."""
    QUORUM_DIFFERS = "QUORUM_DIFFERS"
    """The striping that bookies show is not the record's."""
    NOT_ON_BOOKIES = "NOT_ON_BOOKIES"
    """The store has a ledger with entries of which no bookie that was looked at knows."""
    DELETED_OUTSIDE = "DELETED_OUTSIDE"
    """The store's own history shows that somebody deleted the ledger."""
    ID_REUSE = "ID_REUSE"
    """One id, two ledgers: another password, digest or creation time than in a snapshot."""
    STORE_WENT_BACK = "STORE_WENT_BACK"
    """The store has an older record of the ledger than it had."""
    ONLY_IN_EARLIER = "ONLY_IN_EARLIER"
    """A snapshot has a ledger with entries of which neither the store nor any bookie knows."""
    RECORD_CONTRADICTED = "RECORD_CONTRADICTED"
    """A snapshot's record says of the ledger what its entries on bookies do not: another digest, length, end or key."""
    SCOPE_COLLISION = "SCOPE_COLLISION"
    """Ledgers of different scopes share the lower half of their ids: what knows no scopes takes one for the other."""
    REFERENCE_DIFFERS = "REFERENCE_DIFFERS"
    """An upper layer knows another end or length of the ledger than bookies or the store show."""
    REFERENCE_NOT_FOUND = "REFERENCE_NOT_FOUND"
    """An upper layer names a ledger that neither the store nor any bookie has."""
    DELETED_BY_OWNER = "DELETED_BY_OWNER"
    """An upper layer deleted the ledger, and the store or bookies still have it."""
    REFERENCE_UNREADABLE = "REFERENCE_UNREADABLE"
    """A record of an upper layer cannot be read: what it names counts as not referenced."""
    STALE_UR_MARK = "STALE_UR_MARK"
    """A ledger is marked as under-replicated and is not in the store."""
    DEAD_LOCK = "DEAD_LOCK"
    """A replication worker's lock that no session holds: nobody will ever take it away."""
    DEAD_REGISTRATION = "DEAD_REGISTRATION"
    """A bookie's registration that no session holds: it is shown as alive for ever."""
    EPHEMERAL_NOT_RESTORED = "EPHEMERAL_NOT_RESTORED"
    """A registration, lock or vote of a snapshot; it lived with a session and is never written again."""
    COOKIE_WITHOUT_BOOKIE = "COOKIE_WITHOUT_BOOKIE"
    """The store has a cookie of a bookie that is not registered, and that no inventory is of."""
    BOOKIE_WITHOUT_COOKIE = "BOOKIE_WITHOUT_COOKIE"
    """A bookie has data or is registered, and the store has no cookie of it: it will refuse to start."""
    COOKIE_DIFFERS = "COOKIE_DIFFERS"
    """The store's cookie of a bookie is not that of its disks, or not that of the snapshot."""
    GENERATOR_BEHIND = "GENERATOR_BEHIND"
    """A generator of ids may give one that is used."""
    ID_FAR_ABOVE = "ID_FAR_ABOVE"
    """Bookies alone name an id far above all others: perhaps a wrong bit, so no generator is raised past it."""
    LAYOUT_DIFFERS = "LAYOUT_DIFFERS"
    """The store's layout is not that of the snapshot."""
    INSTANCE_ID_DIFFERS = "INSTANCE_ID_DIFFERS"
    """The cluster's instance id is not the same on all sides."""
    ENTRY_LOST = "ENTRY_LOST"
    """An entry of a closed ledger is on no bookie, and every bookie was looked at."""
    BELOW_ACK_QUORUM = "BELOW_ACK_QUORUM"
    """An entry of a closed ledger has fewer copies where readers ask than acknowledge one."""
    BELOW_WRITE_QUORUM = "BELOW_WRITE_QUORUM"
    """An entry of a closed ledger has fewer copies than its write quorum, and enough to be acknowledged."""
    ENTRIES_MISPLACED = "ENTRIES_MISPLACED"
    """Bookies that the record names for entries lack them, and others have them."""
    OVER_REPLICATED = "OVER_REPLICATED"
    """Bookies have copies of a closed ledger's entries that its record does not ask for."""
    ONE_COPY = "ONE_COPY"
    """A ledger is written to one bookie at a time: no failure of one is survived."""
    PLACEMENT_VIOLATED = "PLACEMENT_VIOLATED"
    """A write set of a segment stands against the placement policy."""
    PLACEMENT_SOFT = "PLACEMENT_SOFT"
    """A write set of a segment lacks what the placement policy would rather have."""
    UNDER_REPLICATED_OVERDUE = "UNDER_REPLICATED_OVERDUE"
    """A ledger is marked as under-replicated for longer than the grace."""
    RECOVERY_STUCK = "RECOVERY_STUCK"
    """A ledger is in recovery, and its record has not changed for longer than the grace."""
    BOOKIE_SILENT = "BOOKIE_SILENT"
    """A bookie is registered, and answered in no look."""
    AUDITOR_UNAWARE = "AUDITOR_UNAWARE"
    """A bookie is not registered, its ledgers are not marked, and nobody will mark them, or would have by now."""
    ALIAS_UNRESOLVED = "ALIAS_UNRESOLVED"
    """Records name a bookie of which the store has neither a registration nor a cookie."""
    ENTRIES_OF_DELETED_LEDGER = "ENTRIES_OF_DELETED_LEDGER"
    """Bookies have entries of a ledger that was deleted with bkmeta, and had been seen without them."""
    INCARNATION_CHANGED = "INCARNATION_CHANGED"
    """A bookie was started anew without its data, and records from before that name it."""
    INDEX_INCOMPLETE = "INDEX_INCOMPLETE"
    """A bookie has logs, and not all of its index was seen: with a new one it deletes from its logs what that lacks."""
    SUSPECT_DISK = "SUSPECT_DISK"
    """Many files of one folder of a bookie are damaged."""
    OPEN_FRAGMENT_PENDING = "OPEN_FRAGMENT_PENDING"
    """The segment that a ledger is written to lacks a bookie, and waits to be repaired for longer than the grace."""
    RETURNED_WRITER = "RETURNED_WRITER"
    """A bookie that was replaced has entries from after that, and they are not those of its replacement."""
    UNREFERENCED = "UNREFERENCED"
    """No upper layer names the ledger, as two complete listings say."""
    DATA_WITHOUT_RECORD = "DATA_WITHOUT_RECORD"
    """Bookies hold a ledger that the store does not list."""
    STORES_DIFFER = "STORES_DIFFER"
    """Two stores of one cluster say different things of the ledger, or one of them nothing."""
    LISTING_INCOMPLETE = "LISTING_INCOMPLETE"
    """Parts of the store could not be listed, or so many ledgers are gone at once that nobody may have deleted them."""
    ROOT_MISSING = "ROOT_MISSING"
    """The store has no ledgers root: bookies that run may delete all that they hold."""
    STORE_EMPTY = "STORE_EMPTY"
    """The store lists no ledger: bookies that run, and hold some, delete them."""
    STORE_INCOMPLETE = "STORE_INCOMPLETE"
    """A node that every cluster has is missing, or cannot be read."""
    STORE_MADE_ANEW = "STORE_MADE_ANEW"
    """A node of the store is younger than the bookies: a restore made it, or somebody initialised the cluster again."""
    LAST_COPY = "LAST_COPY"
    """Entries that only one registered bookie has."""
    REPLICATION_ENABLED = "REPLICATION_ENABLED"
    """Auto-recovery runs while the store lacks ledgers, or cannot be listed."""
    PARTLY_FROZEN = "PARTLY_FROZEN"
    """Bookies can list a part of a store that was frozen."""


SEVERITY_ORDER: Final = ("critical", "warning", "info")
"""The gravest first."""

SEVERITIES: Final[dict[Category, str]] = {
    Category.HELD: "warning",
    Category.GUARDED: "warning",
    Category.LEFT_OVER: "warning",
    Category.READERS_MUST_REOPEN: "warning",
    Category.METADATA_UNPARSABLE: "critical",
    Category.ENTRIES_BEYOND_LAST_ENTRY: "critical",
    Category.ENTRIES_MISSING: "critical",
    Category.QUORUM_DIFFERS: "critical",
    Category.NOT_ON_BOOKIES: "critical",
    Category.DELETED_OUTSIDE: "warning",
    Category.ID_REUSE: "critical",
    Category.STORE_WENT_BACK: "critical",
    Category.ONLY_IN_EARLIER: "critical",
    Category.RECORD_CONTRADICTED: "critical",
    Category.SCOPE_COLLISION: "critical",
    Category.REFERENCE_DIFFERS: "warning",
    Category.REFERENCE_NOT_FOUND: "warning",
    Category.DELETED_BY_OWNER: "warning",
    Category.REFERENCE_UNREADABLE: "warning",
    Category.STALE_UR_MARK: "info",
    Category.DEAD_LOCK: "warning",
    Category.DEAD_REGISTRATION: "critical",
    Category.EPHEMERAL_NOT_RESTORED: "info",
    Category.COOKIE_WITHOUT_BOOKIE: "warning",
    Category.BOOKIE_WITHOUT_COOKIE: "warning",
    Category.COOKIE_DIFFERS: "critical",
    Category.GENERATOR_BEHIND: "critical",
    Category.ID_FAR_ABOVE: "warning",
    Category.LAYOUT_DIFFERS: "critical",
    Category.INSTANCE_ID_DIFFERS: "critical",
    Category.ENTRY_LOST: "critical",
    Category.BELOW_ACK_QUORUM: "critical",
    Category.BELOW_WRITE_QUORUM: "warning",
    Category.ENTRIES_MISPLACED: "warning",
    Category.OVER_REPLICATED: "info",
    Category.ONE_COPY: "info",
    Category.PLACEMENT_VIOLATED: "warning",
    Category.PLACEMENT_SOFT: "info",
    Category.UNDER_REPLICATED_OVERDUE: "warning",
    Category.RECOVERY_STUCK: "warning",
    Category.BOOKIE_SILENT: "critical",
    Category.AUDITOR_UNAWARE: "warning",
    Category.ALIAS_UNRESOLVED: "warning",
    Category.ENTRIES_OF_DELETED_LEDGER: "critical",
    Category.INCARNATION_CHANGED: "critical",
    Category.INDEX_INCOMPLETE: "critical",
    Category.SUSPECT_DISK: "warning",
    Category.OPEN_FRAGMENT_PENDING: "warning",
    Category.RETURNED_WRITER: "critical",
    Category.UNREFERENCED: "warning",
    Category.DATA_WITHOUT_RECORD: "info",
    Category.STORES_DIFFER: "critical",
    Category.LISTING_INCOMPLETE: "critical",
    Category.ROOT_MISSING: "critical",
    Category.STORE_EMPTY: "critical",
    Category.STORE_INCOMPLETE: "warning",
    Category.STORE_MADE_ANEW: "warning",
    Category.LAST_COPY: "warning",
    Category.REPLICATION_ENABLED: "warning",
    Category.PARTLY_FROZEN: "warning",
}

SUGGESTED: Final = {
    Category.HELD: "see what would settle it: bkmeta explain LEDGER --plan PLAN",
    Category.GUARDED: "bring back what was not looked at, collect it and recover again; if it is gone for "
    "good: recover again with --lost BOOKIE",
    Category.LEFT_OVER: "tell the ledger's owner that its last entries may be lost",
    Category.READERS_MUST_REOPEN: "restart readers that have had the ledger open since before, or have them reopen it",
    Category.METADATA_UNPARSABLE: "compare the record with what bookies show (bkmeta explain); its bytes are in the "
    "plan's store/ catalog; the plan's alternative replaces it",
    Category.ENTRIES_BEYOND_LAST_ENTRY: "never trim them; find out why they were written: bkmeta explain LEDGER",
    Category.ENTRIES_MISSING: "look for the bookie that has them: its disks, or the wiped bookie's old ones",
    Category.QUORUM_DIFFERS: "a person compares both: bkmeta explain LEDGER",
    Category.NOT_ON_BOOKIES: "look for bookies that were not collected, and for wiped ones' old disks",
    Category.DELETED_OUTSIDE: "ask whose session it was; if it was a mistake, choose the alternative that restores it",
    Category.ID_REUSE: "restore nothing under this id before a person has compared both: bkmeta explain LEDGER",
    Category.STORE_WENT_BACK: "find out which backup was put back; the snapshot has the newer record",
    Category.ONLY_IN_EARLIER: "look for bookies that were not collected; else its entries are lost",
    Category.RECORD_CONTRADICTED: "a person compares both: bkmeta explain LEDGER; two ledgers may have had this id",
    Category.SCOPE_COLLISION: "name which of them is to be restored; keep clients and bookies without scopes away",
    Category.REFERENCE_DIFFERS: "a person compares both: bkmeta explain LEDGER --references …",
    Category.REFERENCE_NOT_FOUND: "look for bookies that were not collected; else its entries are lost",
    Category.DELETED_BY_OWNER: "none, if that was wanted; else choose the alternative that restores it",
    Category.REFERENCE_UNREADABLE: "look at the record; what it names stands among the ledgers that nothing references",
    Category.STALE_UR_MARK: "none: a replication worker removes it when it finds no ledger",
    Category.DEAD_LOCK: "delete this node by hand when no replication worker runs",
    Category.DEAD_REGISTRATION: "delete this node by hand: the bookie registers anew when it starts",
    Category.EPHEMERAL_NOT_RESTORED: "none: a bookie or client that lives makes it anew",
    Category.COOKIE_WITHOUT_BOOKIE: "collect that bookie, or decommission it",
    Category.BOOKIE_WITHOUT_COOKIE: "its cookie is in the plan once all its ledgers are settled",
    Category.COOKIE_DIFFERS: "find out whether its disks were wiped or moved before it starts",
    Category.GENERATOR_BEHIND: "let no client create ledgers before the generator is past them",
    Category.ID_FAR_ABOVE: "look at the ledger (bkmeta explain); if it is one: recover again with --raise-past ID",
    Category.LAYOUT_DIFFERS: "do not start a bookie: under another layout it deletes what it does not find",
    Category.INSTANCE_ID_DIFFERS: "do not mix clusters: find out which of them this store is of",
    Category.ENTRY_LOST: "look for bookies and disks that were not looked at; stop what wipes or decommissions bookies",
    Category.BELOW_ACK_QUORUM: "replicate it before another bookie fails: bookkeeper shell recover -l LEDGER BOOKIE",
    Category.BELOW_WRITE_QUORUM: "replicate it: bookkeeper shell recover -l LEDGER BOOKIE, of what lacks entries",
    Category.ENTRIES_MISPLACED: "a person compares record and bookies: bkmeta explain LEDGER; wipe none of them",
    Category.ONE_COPY: "none, if that is wanted: write such ledgers with W = 2 or more",
    Category.PLACEMENT_VIOLATED: "see that clients know the racks; bookkeeper shell recover moves closed ledgers",
    Category.PLACEMENT_SOFT: "none, or more bookies in the zones that are missing",
    Category.UNDER_REPLICATED_OVERDUE: "see that auto-recovery runs: bookkeeper shell listunderreplicated",
    Category.BOOKIE_SILENT: "look at its process: it hangs, or the network between it and this host does",
    Category.AUDITOR_UNAWARE: "see that auto-recovery runs and is enabled; bookkeeper shell whoisauditor, triggeraudit",
    Category.ENTRIES_OF_DELETED_LEDGER: "find out which disks came back; the ledger stays deleted: "
    "bkmeta delete confirm says when they are without it",
    Category.INCARNATION_CHANGED: "keep its old disks; let no other bookie be wiped before its ledgers are replicated: "
    "bookkeeper shell recover BOOKIE",
    Category.INDEX_INCOMPLETE: "stop this bookie first, and do not start it with an empty index: no guard keeps "
    "what its logs have; copy its logs, then rebuild its index (bookkeeper shell rebuild-db-ledgers-index and "
    "rebuild-db-ledger-locations-index; index files are copied back)",
    Category.SUSPECT_DISK: "collect its disks with --deep; replace it, and let the ledgers of its bookie be replicated",
    Category.OPEN_FRAGMENT_PENDING: "see whether its writer lives; a client that opens the ledger ends the segment",
    Category.RETURNED_WRITER: "keep both bookies as they are; a person compares the entries: bkmeta explain LEDGER",
    Category.UNREFERENCED: "ask whose it was; then bkmeta delete request --from candidates.jsonl, and verify",
    Category.DATA_WITHOUT_RECORD: "none, if it was deleted: bookies collect it; else bkmeta freeze, and recover it",
    Category.STORES_DIFFER: "keep clients on the old store; move the ledger again, or find who still writes to it",
    Category.LISTING_INCOMPLETE: "stop bookies' garbage collection (bkmeta freeze) until it is known what happened",
    Category.ROOT_MISSING: "stop the bookies (kill -STOP); see whether the URI is right; else bring the store back",
    Category.STORE_EMPTY: "stop the bookies (kill -STOP); see whether the URI is right; else bring the store back",
    Category.STORE_INCOMPLETE: "start no bookie before it is back: it is in the plan of bkmeta recover",
    Category.STORE_MADE_ANEW: "find out who made it, and when; do not mix clusters",
    Category.LAST_COPY: "stop no other bookie before these ledgers are replicated: bookkeeper shell recover",
    Category.REPLICATION_ENABLED: "disable it before anything else is tried: bkmeta freeze does",
    Category.PARTLY_FROZEN: "run the same freeze again",
    Category.ALIAS_UNRESOLVED: "if it is another name of a bookie: --aliases; else collect its disks",
    Category.RECOVERY_STUCK: "open it with a client, which ends the recovery; find out why the last one did not",
    Category.OVER_REPLICATED: "none: copies that ensemble changes and re-replication leave behind",
}
"""Category → what to do about it."""
