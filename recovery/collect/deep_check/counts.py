"""The counts of a deep check."""

from dataclasses import dataclass


@dataclass(slots=True)
class DeepCounts:
    """The counts of the comparison.

    Attributes:
        in_index, in_logs, in_journals: slots of the index, records of entry logs, entries of journals.
        shadowed: records of entry logs beside the one that counts.
        dangling: slots without an entry at their place.
        elsewhere: dangling slots with their entry in another log.
        unindexed: entries in logs that the index of their ledger lacks, and no journal would bring back.
        replayed: entries in journals after the mark that the index lacks.
        journal_only: replayed entries that no entry log has either.
        digests_right, digests_wrong: records with a checked digest.
        not_checkable: records without a digest, or of ledgers without a known password.
        ledgers_not_checkable: the number of their ledgers.
        conflicts: entries with copies of different payloads.
        ids_damaged: records with a digest that is right under other ids than their own.
        replaced: slots with the whole record of another entry at their place.
    """

    in_index: int = 0
    in_logs: int = 0
    in_journals: int = 0
    shadowed: int = 0
    dangling: int = 0
    elsewhere: int = 0
    unindexed: int = 0
    replayed: int = 0
    journal_only: int = 0
    digests_right: int = 0
    digests_wrong: int = 0
    not_checkable: int = 0
    ledgers_not_checkable: int = 0
    conflicts: int = 0
    ids_damaged: int = 0
    replaced: int = 0
