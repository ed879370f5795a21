"""What a finding can say: its category, how grave that is, and what it suggests to do."""

from collections.abc import Mapping
from dataclasses import dataclass
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
    LAC_BEYOND_LAST_ENTRY = "LAC_BEYOND_LAST_ENTRY"
    """A bookie has an explicit LAC above the last entry of a closed ledger, and no bookie has an entry there."""
    LEDGER_IN_LIMBO = "LEDGER_IN_LIMBO"
    """A bookie lost data, and does not yet say which entries of a closed ledger it has."""
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
    DELETED_SINCE = "DELETED_SINCE"
    """A snapshot has a ledger with entries that was probably deleted since: its bookies kept other data, not its."""
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
    CURSOR_BEYOND_END = "CURSOR_BEYOND_END"
    """A subscription stands beyond what is left of its topic: it goes on behind the position that remains."""
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
    """A bookie has data or is registered, and the store has no cookie of it: it refuses, or starts empty."""
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
    REPLICATION_STALLED = "REPLICATION_STALLED"
    """Marks of closed ledgers neither fell nor changed for long: no replication worker makes progress."""
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


@dataclass(frozen=True, slots=True)
class Traits:
    """What follows from a finding of a category; each run reads it here.

    Attributes:
        severity: where nothing makes it another.
        remedy: what to do about it.
        sides_agree: of a ledger, and does not say that the store and the bookies differ: `recover` counts it among no
            disagreements.
        of_absence: something is not there. `recover` calls it critical only where every bookie was looked at.
        of_records_alone: nothing that happens on bookies changes it, so the second look of `scrutinize` asks
            none: it reads the record and the mark again.
        of_copies: how far copies are from what a record asks for, which may change between two looks of `scrutinize`.
        sought_everywhere: entries are looked for on every bookie before `scrutinize` says it.
        of_share: it is of no ledger, and the ledgers of a share decide it: another share's scrutiny says nothing of it.
        shell_repairs: the shell's `recover` mends it, so `scrutinize` writes that command. What is lost or stands
            elsewhere no shell mends; copies too many need no mending.
    """

    severity: str
    remedy: str
    sides_agree: bool = False
    of_absence: bool = False
    of_records_alone: bool = False
    of_copies: bool = False
    sought_everywhere: bool = False
    of_share: bool = False
    shell_repairs: bool = False


TRAITS: Final[Mapping[Category, Traits]] = {
    Category.HELD: Traits("warning", "see what would settle it: bkmeta explain LEDGER --plan PLAN", sides_agree=True),
    Category.GUARDED: Traits(
        "warning",
        "bring back what was not looked at, collect it and recover again; if it is gone for good: recover "
        "again with --lost BOOKIE",
        sides_agree=True,
    ),
    Category.LEFT_OVER: Traits(
        "warning",
        "tell the ledger's owner that its last entries may be lost",
        sides_agree=True,
    ),
    Category.READERS_MUST_REOPEN: Traits(
        "warning",
        "restart readers that have had the ledger open since before, or have them reopen it",
        sides_agree=True,
    ),
    Category.METADATA_UNPARSABLE: Traits(
        "critical",
        "compare the record with what bookies show (bkmeta explain); its bytes are in the plan's store/ "
        "catalog; the plan's alternative replaces it",
    ),
    Category.ENTRIES_BEYOND_LAST_ENTRY: Traits(
        "critical",
        "never trim them; find out why they were written: bkmeta explain LEDGER",
    ),
    Category.LAC_BEYOND_LAST_ENTRY: Traits(
        "critical",
        "look for bookies and old disks that have the entries; find out who closed the ledger: bkmeta explain LEDGER",
    ),
    Category.LEDGER_IN_LIMBO: Traits(
        "info",
        "none, while the bookie's data integrity check copies it; else see what the bookie logs",
    ),
    Category.ENTRIES_MISSING: Traits(
        "critical",
        "look for the bookie that has them: its disks, or the wiped bookie's old ones",
        of_absence=True,
    ),
    Category.QUORUM_DIFFERS: Traits("critical", "a person compares both: bkmeta explain LEDGER", of_copies=True),
    Category.NOT_ON_BOOKIES: Traits(
        "critical",
        "look for bookies that were not collected, and for wiped ones' old disks",
        of_absence=True,
        of_copies=True,
    ),
    Category.DELETED_OUTSIDE: Traits(
        "warning",
        "ask whose session it was; if it was a mistake, choose the alternative that restores it",
        sides_agree=True,
    ),
    Category.ID_REUSE: Traits(
        "critical",
        "restore nothing under this id before a person has compared both: bkmeta explain LEDGER",
        of_records_alone=True,
    ),
    Category.STORE_WENT_BACK: Traits(
        "critical",
        "find out which backup was put back; the snapshot has the newer record",
        of_records_alone=True,
    ),
    Category.ONLY_IN_EARLIER: Traits("critical", "look for bookies that were not collected; else its entries are lost"),
    Category.DELETED_SINCE: Traits(
        "warning",
        "none, if retention or a client deleted it; else look for disks that were not collected",
        sides_agree=True,
    ),
    Category.RECORD_CONTRADICTED: Traits(
        "critical",
        "a person compares both: bkmeta explain LEDGER; two ledgers may have had this id",
        sides_agree=True,
    ),
    Category.SCOPE_COLLISION: Traits(
        "critical",
        "name which of them is to be restored; keep clients and bookies without scopes away",
    ),
    Category.REFERENCE_DIFFERS: Traits(
        "warning",
        "a person compares both: bkmeta explain LEDGER --references …",
        sides_agree=True,
    ),
    Category.REFERENCE_NOT_FOUND: Traits(
        "warning",
        "look for bookies that were not collected; else its entries are lost",
        sides_agree=True,
    ),
    Category.DELETED_BY_OWNER: Traits(
        "warning",
        "none, if that was wanted; else choose the alternative that restores it",
        sides_agree=True,
    ),
    Category.REFERENCE_UNREADABLE: Traits(
        "warning",
        "look at the record; what it names stands among the ledgers that nothing references",
        of_share=True,
    ),
    Category.CURSOR_BEYOND_END: Traits(
        "warning",
        "look for bookies that were not collected; else tell its consumers that messages up to its position are gone",
    ),
    Category.STALE_UR_MARK: Traits(
        "info",
        "none: a replication worker removes it when it finds no ledger",
        sides_agree=True,
    ),
    Category.DEAD_LOCK: Traits("warning", "delete this node by hand when no replication worker runs"),
    Category.DEAD_REGISTRATION: Traits(
        "critical",
        "delete this node by hand: the bookie registers anew when it starts",
    ),
    Category.EPHEMERAL_NOT_RESTORED: Traits("info", "none: a bookie or client that lives makes it anew"),
    Category.COOKIE_WITHOUT_BOOKIE: Traits("warning", "collect that bookie, or decommission it"),
    Category.BOOKIE_WITHOUT_COOKIE: Traits("warning", "its cookie is in the plan, unless ledgers wait for a person"),
    Category.COOKIE_DIFFERS: Traits("critical", "find out whether its disks were wiped or moved before it starts"),
    Category.GENERATOR_BEHIND: Traits(
        "critical", "let no client create ledgers before the generator is past them", of_share=True
    ),
    Category.ID_FAR_ABOVE: Traits(
        "warning",
        "look at the ledger (bkmeta explain); if it is one: recover again with --raise-past ID",
    ),
    Category.LAYOUT_DIFFERS: Traits(
        "critical",
        "do not start a bookie: under another layout it deletes what it does not find",
    ),
    Category.INSTANCE_ID_DIFFERS: Traits("critical", "do not mix clusters: find out which of them this store is of"),
    Category.ENTRY_LOST: Traits(
        "critical",
        "look for bookies and disks that were not looked at; stop what wipes or decommissions bookies",
        of_absence=True,
        of_copies=True,
        sought_everywhere=True,
    ),
    Category.BELOW_ACK_QUORUM: Traits(
        "critical",
        "replicate it before another bookie fails: bookkeeper shell recover -l LEDGER BOOKIE",
        of_copies=True,
        sought_everywhere=True,
        shell_repairs=True,
    ),
    Category.BELOW_WRITE_QUORUM: Traits(
        "warning",
        "replicate it: bookkeeper shell recover -l LEDGER BOOKIE, of what lacks entries",
        of_copies=True,
        shell_repairs=True,
    ),
    Category.ENTRIES_MISPLACED: Traits(
        "warning",
        "a person compares record and bookies: bkmeta explain LEDGER; wipe none of them",
        of_copies=True,
    ),
    Category.OVER_REPLICATED: Traits("info", "none: copies that ensemble changes and re-replication leave behind"),
    Category.ONE_COPY: Traits("info", "none, if that is wanted: write such ledgers with W = 2 or more"),
    Category.PLACEMENT_VIOLATED: Traits(
        "warning",
        "see that clients know the racks; bookkeeper shell recover moves closed ledgers",
        of_records_alone=True,
    ),
    Category.PLACEMENT_SOFT: Traits(
        "info",
        "none, or more bookies in the zones that are missing",
        of_records_alone=True,
    ),
    Category.UNDER_REPLICATED_OVERDUE: Traits(
        "warning",
        "see that auto-recovery runs: bookkeeper shell listunderreplicated",
    ),
    Category.RECOVERY_STUCK: Traits(
        "warning",
        "open it with a client, which ends the recovery; find out why the last one did not",
    ),
    Category.BOOKIE_SILENT: Traits(
        "critical",
        "look at its process: it hangs, or the network between it and this host does",
    ),
    Category.AUDITOR_UNAWARE: Traits(
        "warning",
        "see that auto-recovery runs and is enabled; bookkeeper shell whoisauditor, triggeraudit",
        of_share=True,
    ),
    Category.REPLICATION_STALLED: Traits(
        "warning",
        "see that replication workers run, and what they log: bookkeeper shell listunderreplicated",
        of_share=True,
    ),
    Category.ALIAS_UNRESOLVED: Traits(
        "warning",
        "if it is another name of a bookie: --aliases, before anything is applied, for a cookie that comes back under "
        "the old name makes the renamed bookie refuse to start; else collect its disks",
    ),
    Category.ENTRIES_OF_DELETED_LEDGER: Traits(
        "critical",
        "find out which disks came back; the ledger stays deleted: bkmeta delete confirm says when they are without it",
    ),
    Category.INCARNATION_CHANGED: Traits(
        "critical",
        "keep its old disks; let no other bookie be wiped before its ledgers are replicated: bookkeeper "
        "shell recover BOOKIE",
        of_share=True,
    ),
    Category.INDEX_INCOMPLETE: Traits(
        "critical",
        "stop this bookie first, and do not start it with an empty index: no guard keeps what its logs have; "
        "copy its logs, then rebuild its index (bookkeeper shell rebuild-db-ledgers-index and "
        "rebuild-db-ledger-locations-index; index files are copied back)",
    ),
    Category.SUSPECT_DISK: Traits(
        "warning",
        "collect its disks with --deep; replace it, and let the ledgers of its bookie be replicated",
    ),
    Category.OPEN_FRAGMENT_PENDING: Traits(
        "warning",
        "see whether its writer lives; a client that opens the ledger ends the segment",
    ),
    Category.RETURNED_WRITER: Traits(
        "critical",
        "keep both bookies as they are; a person compares the entries: bkmeta explain LEDGER",
    ),
    Category.UNREFERENCED: Traits(
        "warning",
        "ask whose it was; then bkmeta delete request --from candidates.jsonl, and verify",
    ),
    Category.DATA_WITHOUT_RECORD: Traits(
        "info",
        "none, if it was deleted: bookies collect it; else bkmeta freeze, and recover it",
    ),
    Category.STORES_DIFFER: Traits(
        "critical",
        "keep clients on the old store; move the ledger again, or find who still writes to it",
    ),
    Category.LISTING_INCOMPLETE: Traits(
        "critical",
        "stop bookies' garbage collection (bkmeta freeze) until it is known what happened",
        of_share=True,
    ),
    Category.ROOT_MISSING: Traits(
        "critical",
        "stop the bookies (kill -STOP); see whether the URI is right; else bring the store back",
    ),
    Category.STORE_EMPTY: Traits(
        "critical",
        "stop the bookies (kill -STOP); see whether the URI is right; else bring the store back",
    ),
    Category.STORE_INCOMPLETE: Traits(
        "warning",
        "start no bookie before it is back: it is in the plan of bkmeta recover",
    ),
    Category.STORE_MADE_ANEW: Traits("warning", "find out who made it, and when; do not mix clusters"),
    Category.LAST_COPY: Traits(
        "warning",
        "stop no other bookie before these ledgers are replicated: bookkeeper shell recover",
    ),
    Category.REPLICATION_ENABLED: Traits("warning", "disable it before anything else is tried: bkmeta freeze does"),
    Category.PARTLY_FROZEN: Traits("warning", "run the same freeze again"),
}
