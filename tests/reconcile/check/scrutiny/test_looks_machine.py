"""The second look as a state machine: whatever a cluster does between looks, only what stood twice is reported."""

from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from reconcile.check.scrutiny.looks import (
    LEFT,
    MOST_CHANGES,
    LedgerLook,
    Suspect,
    SuspectKind,
    SuspectOutcome,
    look_again,
)

FAULTS = st.frozensets(st.sampled_from(["lost", "below", "misplaced"]))
RECHECKS = 2


class Looks(RuleBasedStateMachine):
    """One ledger of a cluster that changes as it likes, and the looks at it."""

    @initialize(faults=FAULTS.filter(bool))
    def begin(self, faults: frozenset[str]) -> None:
        """The first look found something."""
        self.version: int | None = 1
        self.skipped: str | None = None
        self.faults = faults
        self.dark = False
        self.looked_at = LedgerLook(1, findings=faults)
        self.suspect: Suspect | None = Suspect(self.looked_at)
        self.outcome: SuspectOutcome | None = None
        self.seen = [(self.version, faults)]
        self.looks = 0
        self.waits = 0

    @rule(faults=FAULTS, dark=st.booleans())
    def change(self, faults: frozenset[str], dark: bool) -> None:
        """Re-replication, an ensemble change: another record, other copies."""
        self.version = None if self.version is None else self.version + 1
        self.faults, self.dark = faults, dark

    @rule(faults=FAULTS, dark=st.booleans())
    def move_copies(self, faults: frozenset[str], dark: bool) -> None:
        """Copies come and go, bookies flap, under the same record."""
        self.faults, self.dark = faults, dark

    @rule(reason=st.sampled_from([None, "marked", "open"]))
    def mark(self, reason: str | None) -> None:
        """The auditor marks it, or a worker ends."""
        self.skipped = reason

    @rule()
    def delete(self) -> None:
        """Its owner deletes it."""
        self.version = None

    @rule()
    def look(self) -> None:
        """Look at it, if there is something to look at still."""
        if self.suspect is None:
            return
        faults = frozenset() if self.dark else self.faults
        self.looked_at = LedgerLook(self.version, self.skipped, faults, unseen=self.dark)
        self.looks += 1
        self.outcome = look_again(self.suspect, self.looked_at, rechecks=RECHECKS)
        self.suspect = self.outcome.suspect
        if self.skipped is None and self.version is not None:
            self.seen.append((self.version, faults))
        self.waits += self.outcome.kind is SuspectKind.WAITS

    @invariant()
    def what_is_reported_stood_twice(self) -> None:
        """In the last two looks, under one record."""
        if getattr(self, "outcome", None) is None or self.outcome is None:
            return
        if self.outcome.kind is SuspectKind.CONFIRMED:
            (before, earlier), (now, later) = self.seen[-2:]
            assert before == now
            assert self.outcome.findings == earlier & later != frozenset()
        if self.outcome.kind is SuspectKind.CLEAN:
            assert not self.seen[-1][1]
        if self.outcome.kind is SuspectKind.SKIPPED:
            assert self.looked_at.version is None or self.looked_at.skipped is not None

    @invariant()
    def it_ends(self) -> None:
        """After so many looks at the latest something is decided."""
        if getattr(self, "outcome", None) is None or self.outcome is None:
            return
        assert (self.suspect is None) == (self.outcome.kind not in (SuspectKind.AGAIN, SuspectKind.WAITS))
        assert self.looks <= MOST_CHANGES + RECHECKS + 1
        assert self.waits <= RECHECKS


TestLooks = Looks.TestCase


def test_a_record_that_changed_since_the_lists_were_made_is_not_reported() -> None:
    """Only the store was asked again: the same record confirms, another one decides nothing."""
    suspect = Suspect(LedgerLook(4, findings=frozenset(["lost"])))
    assert look_again(suspect, LedgerLook(4, is_fresh=False), rechecks=0) == SuspectOutcome(
        SuspectKind.CONFIRMED, findings=frozenset(["lost"])
    )
    assert look_again(suspect, LedgerLook(5, is_fresh=False), rechecks=0) == SuspectOutcome(
        SuspectKind.UNDECIDED, "changed"
    )


def test_what_explains_a_confirmed_finding_is_said_with_it() -> None:
    """Later looks alone ask for it; where nothing else is confirmed it is not said."""
    suspect = Suspect(LedgerLook(4, findings=frozenset(["BELOW_WRITE_QUORUM"])))
    both = frozenset(["BELOW_WRITE_QUORUM", "QUORUM_DIFFERS"])
    assert look_again(suspect, LedgerLook(4, findings=both), rechecks=0) == SuspectOutcome(
        SuspectKind.CONFIRMED, findings=both
    )
    alone = look_again(suspect, LedgerLook(4, findings=frozenset(["QUORUM_DIFFERS"])), rechecks=0)
    assert alone.kind is SuspectKind.AGAIN


@pytest.mark.parametrize("left", sorted(LEFT))
def test_what_was_seen_in_part_and_lacks_nothing_is_not_called_clean(left: str) -> None:
    """A miss that healed, of a ledger of which not all was seen; it is not waited for, and the reason is its own."""
    look = LedgerLook(1, left=left)
    suspect = Suspect(LedgerLook(1, findings=frozenset({"copies"})))
    assert look_again(suspect, look, rechecks=RECHECKS) == SuspectOutcome(SuspectKind.UNDECIDED, left)
    found = LedgerLook(1, findings=frozenset({"copies"}), left=left)
    assert look_again(suspect, found, rechecks=RECHECKS).kind is SuspectKind.CONFIRMED


def test_a_bookie_is_waited_for_as_often_as_was_asked_and_a_change_is_followed_three_times() -> None:
    """Then nothing is decided, with the reason."""
    dark = LedgerLook(1, unseen=True)
    suspect = Suspect(LedgerLook(1, findings=frozenset({"lost"})))
    kinds = [look_again(replace(suspect, waits=waits), dark, rechecks=RECHECKS).kind for waits in range(RECHECKS + 1)]
    assert kinds == [SuspectKind.WAITS] * RECHECKS + [SuspectKind.UNDECIDED]
    assert look_again(suspect, LedgerLook(1), rechecks=RECHECKS).kind is SuspectKind.CLEAN
    other = LedgerLook(2, findings=frozenset({"lost"}))
    ends = [look_again(replace(suspect, changes=n), other, rechecks=RECHECKS) for n in range(MOST_CHANGES + 1)]
    assert [end.reason for end in ends] == [None] * MOST_CHANGES + ["changing"]
    assert [end.suspect.changes for end in ends if end.suspect] == list(range(1, MOST_CHANGES + 1))
