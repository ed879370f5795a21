"""The categories of findings: their severity, their sentence, and their remedy."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Category(StrEnum):
    """The category of a finding; stored, so never renamed. `TRAITS` has its words."""

    HELD = "HELD"
    GUARDED = "GUARDED"
    LEFT_OVER = "LEFT_OVER"
    READERS_MUST_REOPEN = "READERS_MUST_REOPEN"
    METADATA_UNPARSABLE = "METADATA_UNPARSABLE"
    ENTRIES_BEYOND_LAST_ENTRY = "ENTRIES_BEYOND_LAST_ENTRY"
    LAC_BEYOND_LAST_ENTRY = "LAC_BEYOND_LAST_ENTRY"
    LEDGER_IN_LIMBO = "LEDGER_IN_LIMBO"
    ENTRIES_MISSING = "ENTRIES_MISSING"
    QUORUM_DIFFERS = "QUORUM_DIFFERS"
    NOT_ON_BOOKIES = "NOT_ON_BOOKIES"
    DELETED_OUTSIDE = "DELETED_OUTSIDE"
    ID_REUSE = "ID_REUSE"
    STORE_WENT_BACK = "STORE_WENT_BACK"
    ONLY_IN_EARLIER = "ONLY_IN_EARLIER"
    DELETED_SINCE = "DELETED_SINCE"
    RECORD_CONTRADICTED = "RECORD_CONTRADICTED"
    SCOPE_COLLISION = "SCOPE_COLLISION"
    REFERENCE_DIFFERS = "REFERENCE_DIFFERS"
    REFERENCE_NOT_FOUND = "REFERENCE_NOT_FOUND"
    DELETED_BY_OWNER = "DELETED_BY_OWNER"
    REFERENCE_UNREADABLE = "REFERENCE_UNREADABLE"
    CURSOR_BEYOND_END = "CURSOR_BEYOND_END"
    STALE_UR_MARK = "STALE_UR_MARK"
    DEAD_LOCK = "DEAD_LOCK"
    DEAD_REGISTRATION = "DEAD_REGISTRATION"
    EPHEMERAL_NOT_RESTORED = "EPHEMERAL_NOT_RESTORED"
    COOKIE_WITHOUT_BOOKIE = "COOKIE_WITHOUT_BOOKIE"
    BOOKIE_WITHOUT_COOKIE = "BOOKIE_WITHOUT_COOKIE"
    COOKIE_DIFFERS = "COOKIE_DIFFERS"
    GENERATOR_BEHIND = "GENERATOR_BEHIND"
    ID_FAR_ABOVE = "ID_FAR_ABOVE"
    LAYOUT_DIFFERS = "LAYOUT_DIFFERS"
    INSTANCE_ID_DIFFERS = "INSTANCE_ID_DIFFERS"
    ENTRY_LOST = "ENTRY_LOST"
    BELOW_ACK_QUORUM = "BELOW_ACK_QUORUM"
    BELOW_WRITE_QUORUM = "BELOW_WRITE_QUORUM"
    ENTRIES_MISPLACED = "ENTRIES_MISPLACED"
    OVER_REPLICATED = "OVER_REPLICATED"
    ONE_COPY = "ONE_COPY"
    PLACEMENT_VIOLATED = "PLACEMENT_VIOLATED"
    PLACEMENT_SOFT = "PLACEMENT_SOFT"
    UNDER_REPLICATED_OVERDUE = "UNDER_REPLICATED_OVERDUE"
    REPLICATION_STALLED = "REPLICATION_STALLED"
    RECOVERY_STUCK = "RECOVERY_STUCK"
    BOOKIE_SILENT = "BOOKIE_SILENT"
    AUDITOR_UNAWARE = "AUDITOR_UNAWARE"
    ALIAS_UNRESOLVED = "ALIAS_UNRESOLVED"
    ENTRIES_OF_DELETED_LEDGER = "ENTRIES_OF_DELETED_LEDGER"
    INCARNATION_CHANGED = "INCARNATION_CHANGED"
    INDEX_INCOMPLETE = "INDEX_INCOMPLETE"
    SUSPECT_DISK = "SUSPECT_DISK"
    OPEN_FRAGMENT_PENDING = "OPEN_FRAGMENT_PENDING"
    RETURNED_WRITER = "RETURNED_WRITER"
    UNREFERENCED = "UNREFERENCED"
    DATA_WITHOUT_RECORD = "DATA_WITHOUT_RECORD"
    STORES_DIFFER = "STORES_DIFFER"
    LISTING_INCOMPLETE = "LISTING_INCOMPLETE"
    ROOT_MISSING = "ROOT_MISSING"
    STORE_EMPTY = "STORE_EMPTY"
    STORE_INCOMPLETE = "STORE_INCOMPLETE"
    STORE_MADE_ANEW = "STORE_MADE_ANEW"
    LAST_COPY = "LAST_COPY"
    REPLICATION_ENABLED = "REPLICATION_ENABLED"
    PARTLY_FROZEN = "PARTLY_FROZEN"


SEVERITY_ORDER: Final = ("critical", "warning", "info")
"""The gravest first."""


@dataclass(frozen=True, slots=True)
class Traits:
    """The properties of a category; each run reads them here.

    Attributes:
        severity: the default severity.
        says: the problem, in a sentence.
        remedy: what to do.
        sides_agree: of a ledger, and does not say that the store and the bookies differ: `recover` counts it among no
            disagreements.
        of_absence: something is not there. `recover` calls it critical only where every bookie was scanned.
        of_records_alone: nothing that happens on bookies changes it, so the second look of `scrutinize` asks
            none: it reads the record and the mark again.
        of_copies: how far copies are from what a record asks for, which may change between two looks of `scrutinize`.
        sought_everywhere: `scrutinize` searches every bookie for the entries before it reports the finding.
        of_share: it is of no ledger, and the ledgers of a share decide it: another share's scrutiny says nothing of it.
        shell_repairs: the shell's `recover` repairs it, so `scrutinize` writes that command. The shell repairs
            neither lost nor misplaced entries; surplus copies need no repair.
    """

    severity: str
    says: str
    remedy: str
    sides_agree: bool = False
    of_absence: bool = False
    of_records_alone: bool = False
    of_copies: bool = False
    sought_everywhere: bool = False
    of_share: bool = False
    shell_repairs: bool = False


TRAITS: Final[Mapping[Category, Traits]] = {
    Category.HELD: Traits(
        "warning",
        "Not restored: the plan proposes a hold, a record that keeps the data and that no client can open.",
        "see which evidence would settle it: bkmeta explain LEDGER --plan PLAN",
        sides_agree=True,
    ),
    Category.GUARDED: Traits(
        "warning",
        "Readable by a record that may not be final; every copy is kept until the ledger is settled.",
        "collect the bookies that were not scanned, and recover again; if one is gone for good: recover again with "
        "--lost BOOKIE",
        sides_agree=True,
    ),
    Category.LEFT_OVER: Traits(
        "warning",
        "A ledger comes back with the remaining entries: disks that may have had more are stated to be lost.",
        "tell the ledger's owner that its last entries may be lost",
        sides_agree=True,
    ),
    Category.READERS_MUST_REOPEN: Traits(
        "warning",
        "A settled record has fewer bookies: readers that opened the ledger without recovery fail until they reopen "
        "it.",
        "restart readers that have had the ledger open since before, or have them reopen it",
        sides_agree=True,
    ),
    Category.METADATA_UNPARSABLE: Traits(
        "critical",
        "The store has a record that no BookKeeper can read.",
        "compare the record with the bookies (bkmeta explain); its bytes are in the plan's store/ "
        "catalog; the plan's alternative replaces it",
    ),
    Category.ENTRIES_BEYOND_LAST_ENTRY: Traits(
        "critical",
        "Bookies hold entries above the last entry of a closed ledger.",
        "never trim them; find out why they were written: bkmeta explain LEDGER",
    ),
    Category.LAC_BEYOND_LAST_ENTRY: Traits(
        "critical",
        "A bookie has an explicit LAC above the last entry of a closed ledger, and no bookie has an entry there.",
        "look for bookies and old disks that have the entries; find out who closed the ledger: bkmeta explain LEDGER",
    ),
    Category.LEDGER_IN_LIMBO: Traits(
        "info",
        "A bookie lost data, and does not yet say which entries of a closed ledger it has.",
        "none, while the bookie's data integrity check copies it; else see what the bookie logs",
    ),
    Category.ENTRIES_MISSING: Traits(
        "critical",
        "A closed ledger's last entry is above everything that bookies hold.",
        "look for the bookie that has them: its disks, or the wiped bookie's old ones",
        of_absence=True,
    ),
    Category.QUORUM_DIFFERS: Traits(
        "critical",
        "The entries on bookies are striped otherwise than the record says.",
        "compare both: bkmeta explain LEDGER",
        of_copies=True,
    ),
    Category.NOT_ON_BOOKIES: Traits(
        "critical",
        "The store has a ledger with entries, and no scanned bookie knows it.",
        "look for bookies that were not collected, and for old disks of wiped bookies",
        of_absence=True,
        of_copies=True,
    ),
    Category.DELETED_OUTSIDE: Traits(
        "warning",
        "The store's own history shows that the ledger was deleted.",
        "find the client of the session; if it was a mistake, choose the alternative that restores it",
        sides_agree=True,
    ),
    Category.ID_REUSE: Traits(
        "critical",
        "Two ledgers have this id: password, digest or creation time differ from a snapshot.",
        "restore nothing under this id before you have compared both ledgers: bkmeta explain LEDGER",
        of_records_alone=True,
    ),
    Category.STORE_WENT_BACK: Traits(
        "critical",
        "The store's record of the ledger is older than the record that it had before.",
        "find out which backup was put back; the snapshot has the newer record",
        of_records_alone=True,
    ),
    Category.ONLY_IN_EARLIER: Traits(
        "critical",
        "A snapshot has a ledger with entries, and neither the store nor any bookie has the ledger.",
        "look for bookies that were not collected; else its entries are lost",
    ),
    Category.DELETED_SINCE: Traits(
        "warning",
        "A snapshot has a ledger that was probably deleted since: its bookies have other ledgers, and none of its "
        "entries.",
        "none, if retention or a client deleted it; else look for disks that were not collected",
        sides_agree=True,
    ),
    Category.RECORD_CONTRADICTED: Traits(
        "critical",
        "A snapshot's record differs from the ledger's entries on bookies in digest, length, end or key.",
        "compare both: bkmeta explain LEDGER; two ledgers may have had this id",
        sides_agree=True,
    ),
    Category.SCOPE_COLLISION: Traits(
        "critical",
        "Ledgers of different scopes share the lower half of their ids: programs without scopes mix them up.",
        "name the ledger to restore; keep clients and bookies without scopes away",
    ),
    Category.REFERENCE_DIFFERS: Traits(
        "warning",
        "An upper layer knows another end or length of the ledger than bookies or the store show.",
        "compare both: bkmeta explain LEDGER --references …",
        sides_agree=True,
    ),
    Category.REFERENCE_NOT_FOUND: Traits(
        "warning",
        "An upper layer names a ledger that neither the store nor any bookie has.",
        "look for bookies that were not collected; else its entries are lost",
        sides_agree=True,
    ),
    Category.DELETED_BY_OWNER: Traits(
        "warning",
        "An upper layer deleted the ledger, and the store or bookies still have it.",
        "none, if that was wanted; else choose the alternative that restores it",
        sides_agree=True,
    ),
    Category.REFERENCE_UNREADABLE: Traits(
        "warning",
        "A record of an upper layer cannot be read: its ledgers count as not referenced.",
        "read the record: its ledgers are listed as not referenced",
        of_share=True,
    ),
    Category.CURSOR_BEYOND_END: Traits(
        "warning",
        "A subscription is beyond the remaining entries of its topic, and continues after them.",
        "look for bookies that were not collected; else tell its consumers that messages up to its position are gone",
    ),
    Category.STALE_UR_MARK: Traits(
        "info",
        "A ledger is marked as under-replicated and is not in the store.",
        "none: a replication worker removes it when it finds no ledger",
        sides_agree=True,
    ),
    Category.DEAD_LOCK: Traits(
        "warning",
        "No session holds this replication worker's lock, so it will stay.",
        "delete this node by hand when no replication worker runs",
    ),
    Category.DEAD_REGISTRATION: Traits(
        "critical",
        "No session holds this bookie's registration, so the bookie will always look alive.",
        "delete this node by hand: the bookie registers again when it starts",
    ),
    Category.EPHEMERAL_NOT_RESTORED: Traits(
        "info",
        "A registration, lock or vote of a snapshot; it lived with a session and is never written again.",
        "none: a bookie or client that lives makes it again",
    ),
    Category.COOKIE_WITHOUT_BOOKIE: Traits(
        "warning",
        "The store has a cookie of a bookie that is not registered and has no inventory.",
        "collect that bookie, or decommission it",
    ),
    Category.BOOKIE_WITHOUT_COOKIE: Traits(
        "warning",
        "A bookie has data or is registered, and the store has no cookie of it: it refuses to start, or starts empty.",
        "its cookie is in the plan, unless ledgers are waiting for a decision",
    ),
    Category.COOKIE_DIFFERS: Traits(
        "critical",
        "The store's cookie of a bookie differs from the cookie on its disks, or in the snapshot.",
        "find out whether its disks were wiped or moved before it starts",
    ),
    Category.GENERATOR_BEHIND: Traits(
        "critical",
        "An id generator may give out an id that is in use.",
        "let no client create ledgers before the generator is raised",
        of_share=True,
    ),
    Category.ID_FAR_ABOVE: Traits(
        "warning",
        "Only bookies name this id, far above all others: perhaps a wrong bit, so no generator is raised past it.",
        "check the ledger (bkmeta explain); if it exists: recover again with --raise-past ID",
    ),
    Category.LAYOUT_DIFFERS: Traits(
        "critical",
        "The store's layout is not that of the snapshot.",
        "do not start a bookie: under another layout it deletes the ledgers that it does not find",
    ),
    Category.INSTANCE_ID_DIFFERS: Traits(
        "critical",
        "The cluster's instance id is not the same on all sides.",
        "do not mix clusters: find out to which cluster this store belongs",
    ),
    Category.ENTRY_LOST: Traits(
        "critical",
        "An entry of a closed ledger is on no bookie, and every bookie was scanned.",
        "search for bookies and disks that were not scanned; stop whatever wipes or decommissions bookies",
        of_absence=True,
        of_copies=True,
        sought_everywhere=True,
    ),
    Category.BELOW_ACK_QUORUM: Traits(
        "critical",
        "An entry of a closed ledger has fewer copies than its ack quorum where readers ask for it.",
        "replicate it before another bookie fails: bookkeeper shell recover -l LEDGER BOOKIE",
        of_copies=True,
        sought_everywhere=True,
        shell_repairs=True,
    ),
    Category.BELOW_WRITE_QUORUM: Traits(
        "warning",
        "An entry of a closed ledger has fewer copies than its write quorum, but as many as its ack quorum.",
        "replicate it: bookkeeper shell recover -l LEDGER BOOKIE, for each bookie that lacks entries",
        of_copies=True,
        shell_repairs=True,
    ),
    Category.ENTRIES_MISPLACED: Traits(
        "warning",
        "Bookies that the record names for entries lack them, and other bookies have them.",
        "compare the record with the bookies: bkmeta explain LEDGER; wipe no bookie",
        of_copies=True,
    ),
    Category.OVER_REPLICATED: Traits(
        "info",
        "Bookies have copies of a closed ledger's entries that its record does not ask for.",
        "none: ensemble changes and re-replication leave such copies behind",
    ),
    Category.ONE_COPY: Traits(
        "info",
        "Each entry of a ledger is written to one bookie only: it is lost with that bookie.",
        "none, if this is intended; else write such ledgers with W = 2 or more",
    ),
    Category.PLACEMENT_VIOLATED: Traits(
        "warning",
        "A write set of a segment violates the placement policy.",
        "see that clients know the racks; bookkeeper shell recover moves closed ledgers",
        of_records_alone=True,
    ),
    Category.PLACEMENT_SOFT: Traits(
        "info",
        "A write set of a segment does not follow a preference of the placement policy.",
        "none, or more bookies in the zones that are missing",
        of_records_alone=True,
    ),
    Category.UNDER_REPLICATED_OVERDUE: Traits(
        "warning",
        "A ledger is marked as under-replicated for longer than the grace.",
        "see that auto-recovery runs: bookkeeper shell listunderreplicated",
    ),
    Category.RECOVERY_STUCK: Traits(
        "warning",
        "A ledger is in recovery, and its record has not changed for longer than the grace.",
        "open the ledger with a client, which ends the recovery; find out why the last client did not end it",
    ),
    Category.BOOKIE_SILENT: Traits(
        "critical",
        "A bookie is registered, and never answered.",
        "check its process and the network between it and this host: one of them hangs",
    ),
    Category.AUDITOR_UNAWARE: Traits(
        "warning",
        "A bookie is not registered, and the auditor has not marked its ledgers, or will not.",
        "see that auto-recovery runs and is enabled; bookkeeper shell whoisauditor, triggeraudit",
        of_share=True,
    ),
    Category.REPLICATION_STALLED: Traits(
        "warning",
        "For long, no mark of a closed ledger was removed or changed: no replication worker makes progress.",
        "see that replication workers run, and read their logs: bookkeeper shell listunderreplicated",
        of_share=True,
    ),
    Category.ALIAS_UNRESOLVED: Traits(
        "warning",
        "Records name a bookie that has neither a registration nor a cookie in the store.",
        "if a bookie was renamed: name both with --aliases before you apply a plan, because a restored cookie of the "
        "old name makes the renamed bookie refuse to start; else collect the bookie's disks",
    ),
    Category.ENTRIES_OF_DELETED_LEDGER: Traits(
        "critical",
        "A ledger was deleted with bkmeta, and bookies that no longer had it have entries of it again.",
        "find out which disks came back; the ledger stays deleted: bkmeta delete confirm says when no bookie has it",
    ),
    Category.INCARNATION_CHANGED: Traits(
        "critical",
        "A bookie was started again without its data, and older records name it.",
        "keep its old disks; let no other bookie be wiped before its ledgers are replicated: bookkeeper "
        "shell recover BOOKIE",
        of_share=True,
    ),
    Category.INDEX_INCOMPLETE: Traits(
        "critical",
        "A bookie has logs, and a part of its index was not seen: with a new index it deletes all that the index "
        "lacks.",
        "stop this bookie first, and do not start it with an empty index: no guard keeps the entries in its logs; "
        "copy its logs, then rebuild its index (bookkeeper shell rebuild-db-ledgers-index and "
        "rebuild-db-ledger-locations-index; index files are copied back)",
    ),
    Category.SUSPECT_DISK: Traits(
        "warning",
        "Many files of one folder of a bookie are damaged.",
        "collect its bookie with --deep; replace the disk, and let the bookie's ledgers be replicated",
    ),
    Category.OPEN_FRAGMENT_PENDING: Traits(
        "warning",
        "An open ledger's last segment lacks a bookie, and was not repaired for longer than the grace.",
        "see whether the ledger's writer lives; a client that opens the ledger ends the segment",
    ),
    Category.RETURNED_WRITER: Traits(
        "critical",
        "A bookie was replaced, has entries from after that, and they differ from those of the new bookie.",
        "keep both bookies as they are; compare the entries: bkmeta explain LEDGER",
    ),
    Category.UNREFERENCED: Traits(
        "warning",
        "Two complete listings show that no upper layer names the ledger.",
        "find its owner; then bkmeta delete request --from candidates.jsonl, and verify",
    ),
    Category.DATA_WITHOUT_RECORD: Traits(
        "info",
        "Bookies hold a ledger that the store does not list.",
        "none, if it was deleted: bookies will collect it; else freeze the store (bkmeta freeze), and recover the "
        "ledger",
    ),
    Category.STORES_DIFFER: Traits(
        "critical",
        "Two stores of one cluster have different records of the ledger, or only one has a record.",
        "keep clients on the old store; move the ledger again, or find who still writes to it",
    ),
    Category.LISTING_INCOMPLETE: Traits(
        "critical",
        "Parts of the store could not be listed, or more ledgers vanished at once than deletes explain.",
        "stop bookies' garbage collection (bkmeta freeze) until it is known what happened: a backup of the store shows "
        "what was deleted (--history backup:PLACE; of orphans: --earlier)",
        of_share=True,
    ),
    Category.ROOT_MISSING: Traits(
        "critical",
        "The store has no ledgers root: running bookies may delete all that they hold.",
        "stop the bookies (kill -STOP); see whether the URI is right; else bring the store back",
    ),
    Category.STORE_EMPTY: Traits(
        "critical",
        "The store lists no ledger: running bookies delete all ledgers that they hold.",
        "stop the bookies (kill -STOP); see whether the URI is right; else bring the store back",
    ),
    Category.STORE_INCOMPLETE: Traits(
        "warning",
        "A node that every cluster has is missing, or cannot be read.",
        "start no bookie before it is back: it is in the plan of bkmeta recover",
    ),
    Category.STORE_MADE_ANEW: Traits(
        "warning",
        "A node of the store is younger than the bookies: it was restored, or the cluster was initialised again.",
        "find out who made the node, and when; do not mix clusters",
    ),
    Category.LAST_COPY: Traits(
        "warning",
        "Only one registered bookie has these entries.",
        "stop no other bookie before these ledgers are replicated: bookkeeper shell recover",
    ),
    Category.REPLICATION_ENABLED: Traits(
        "warning",
        "Auto-recovery runs while the store lacks ledgers, or cannot be listed.",
        "disable it before you do anything else: bkmeta freeze does",
    ),
    Category.PARTLY_FROZEN: Traits(
        "warning", "Bookies can list a part of a store that was frozen.", "run the same freeze again"
    ),
}
