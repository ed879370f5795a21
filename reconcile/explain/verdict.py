"""The verdict on one ledger in a sentence, and whether there is something to be done about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from reconcile.findings.categories import Category
from reconcile.rules.holds import HOLD_MARK, QUARANTINE_MARK
from reconcile.words import count_noun
from recovery.model.ids import LedgerId
from recovery.model.metadata import LedgerMetadata


class Standing(StrEnum):
    """What is to be said about a ledger in a word; stored in --json, so never renamed."""

    SETTLED = "settled"
    """It is in the store and nothing disagrees, or it comes back."""
    OPEN = "open"
    """Something is wrong, waits, or nothing knows it though everything was looked at."""
    UNDECIDED = "undecided"
    """Something does not know it, and not everything was looked at."""


@dataclass(frozen=True, slots=True)
class VerdictFacts:
    """What a verdict follows from.

    Attributes:
        ledger: which.
        row: of RECONSTRUCTION; None: nothing shows the ledger.
        reason: why it is not restored, in words; empty where it is.
        is_in_store: the store has a record of it.
        record: that record; None: there is none, or it cannot be read.
        is_guarded: the store has a guard's lock of it.
        is_in_snapshot: a snapshot has a record of it.
        has_actions: the plan has an action for it.
        deletion: who deleted it and when, in words; None: nothing shows a deletion.
        disagreements: the categories of what the sides disagree in.
        may_exist_elsewhere: something that was not looked at may know it.
    """

    ledger: LedgerId
    row: Mapping[str, Any] | None
    reason: str
    is_in_store: bool
    record: LedgerMetadata | None
    is_guarded: bool
    is_in_snapshot: bool
    has_actions: bool
    deletion: str | None
    disagreements: Sequence[str]
    may_exist_elsewhere: bool

    @property
    def is_known(self) -> bool:
        """Whether the store, a bookie, a plan or a history knows the ledger."""
        return self.is_in_store or self.row is not None or self.has_actions or self.deletion is not None

    @property
    def is_hold(self) -> bool:
        """Whether the store's record is a hold."""
        return self.record is not None and any(key == HOLD_MARK for key, _ in self.record.custom)


def find_quarantine(record: LedgerMetadata | None) -> str | None:
    """Return until when a record is the hold of a delete's quarantine, ISO 8601; None: it is none."""
    custom = () if record is None else record.custom
    return next((value.decode(errors="replace") for key, value in custom if key == QUARANTINE_MARK), None)


def judge(facts: VerdictFacts) -> tuple[str, Standing]:
    """Return the verdict on a ledger, and how it stands."""
    name = f"ledger {facts.ledger}"
    absent = Standing.UNDECIDED if facts.may_exist_elsewhere else Standing.OPEN
    if not facts.is_known:
        if facts.is_in_snapshot:
            return f"{name}: only a snapshot knows it", absent
        unseen = "not everything that could know it was looked at"
        if not facts.may_exist_elsewhere:
            unseen = "everything was looked at"
        return f"{name}: nothing that was looked at knows it, and {unseen}", absent
    parts = [*_describe_store(facts), *_describe_outcome(facts)]
    if facts.disagreements:
        parts.append(f"disagreements: {len(facts.disagreements)}")
    return f"{name}: {'; '.join(parts)}", _judge_standing(facts, absent)


def _judge_standing(facts: VerdictFacts, absent: Standing) -> Standing:
    if facts.disagreements:
        # That no bookie has it is certain only where all were looked at.
        is_absence = all(category == Category.NOT_ON_BOOKIES for category in facts.disagreements)
        return absent if is_absence else Standing.OPEN
    if facts.is_in_store:
        is_open_hold = facts.is_hold and find_quarantine(facts.record) is None
        waits = facts.record is None or is_open_hold or facts.is_guarded
        return Standing.OPEN if waits else Standing.SETTLED
    is_restored = facts.row is None or facts.row["outcome"] == "restored"
    return Standing.SETTLED if is_restored and facts.deletion is None else Standing.OPEN


def _describe_store(facts: VerdictFacts) -> list[str]:
    if not facts.is_in_store:
        return [] if facts.deletion is None else [f"{facts.deletion}; not restored unless you choose it"]
    if facts.record is None:
        return ["in the store, in a form that cannot be read"]
    if until := find_quarantine(facts.record):
        return [f"in quarantine until {until} before its delete: its data is kept, and no client can read it"]
    if facts.is_hold:
        return ["in the store as a hold: its data is kept, and no client can read it"]
    if facts.is_guarded:
        return [f"in the store, {facts.record.state}, guarded: a lock keeps every copy until it is settled"]
    return [f"in the store, {facts.record.state}"]


def _describe_outcome(facts: VerdictFacts) -> list[str]:
    row = facts.row
    if row is None:
        return []
    if row["outcome"] not in ("restored", "guarded"):
        outcome = "bookies alone would not settle it" if facts.is_in_store else str(row["outcome"])
        return [f"{outcome} ({row['reason']}): {facts.reason}" if row["reason"] else outcome]
    if facts.deletion is not None and not facts.is_in_store:
        return ["bookies still show it"]
    quorums = f"{row['ensemble_size']}/{row['write_quorum']}/{row['ack_quorum']}"
    entries = "" if row["last_entry"] is None else f" {count_noun(row['last_entry'] + 1, 'entry', 'entries')},"
    record = f"{row['state']},{entries} {quorums}"
    if facts.is_in_store:
        return [f"bookies show {record}"]
    source = "comes back from bookies" if row["raw"] is None else "comes back on a snapshot's word"
    if not row["holders"]:
        source = "only a snapshot knows it; comes back on its word"
    if row["outcome"] == "guarded":
        hides = f"; what may hide more: {facts.reason}" if facts.reason else ""
        return [f"{source} guarded, by the {row['reading']} reading, readable and no copy deleted: {record}{hides}"]
    return [f"{source}: {record}"]
