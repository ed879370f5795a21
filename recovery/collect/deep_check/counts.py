"""What a deep check counts."""

from dataclasses import dataclass


@dataclass(slots=True)
class DeepCounts:
    """What comparing everything gave.

    Attributes:
        in_index, in_logs, in_journals: slots of the index, records of entry logs, entries of journals.
        shadowed: records of entry logs beside the one that counts.
        dangling: slots whose entry is not there.
        elsewhere: of these, entries that are in another log.
        unindexed: entries in logs that the index of their ledger lacks, and no journal would bring back.
        replayed: entries behind the mark of a journal that the index lacks.
        journal_only: of these, entries that no entry log has either.
        digests_right, digests_wrong: records whose digest was checked.
        not_checkable: records of ledgers whose password is not known, or that carry no digest.
        ledgers_not_checkable: how many ledgers these are.
        conflicts: entries that are there with different payloads.
        ids_damaged: records whose digest is right under other ids than those that they have.
        replaced: slots at whose place the whole record of another entry stands.
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
