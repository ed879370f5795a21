"""What is known of one ledger's delete, and which steps it may take: pure functions, with the time as an argument.

    state       stands for                                              next
    REQUESTED   somebody asked for the delete                           a safe verification: VERIFIED
    VERIFIED    verified once; SOAKING until its soak is over           a safe verification after the soak: PURGEABLE
    PURGEABLE   verified again; a certificate may name it               a purge by that certificate: PURGED
    QUARANTINED where the policy asks for it, the purge puts a hold in  the same certificate after the quarantine:
                the place of the record first                           PURGED; a bookie of the hold leaves: REQUESTED
    PURGED      its metadata record was removed                         each holder released: CONFIRMED
    CONFIRMED   every holder was seen without it, or is decommissioned  after the retention: EXPIRED, no tombstone

A verification that is not safe leads back to REQUESTED. An undo before the purge removes the
tombstone, and nothing else was changed; of a quarantine it puts the record back, byte for byte. Entries that are seen
again lead from CONFIRMED back to PURGED.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from recovery.model.ids import LedgerId

SECOND_MS: Final = 1000
DAY_MS: Final = 24 * 3600 * SECOND_MS
SOAK_MS: Final = 7 * DAY_MS
SKEW_MS: Final = 300 * SECOND_MS
"""So much may clocks differ; what is later than that is said by a clock that is wrong."""
RETENTION_MS: Final = 30 * DAY_MS
CERTIFICATE_MS: Final = DAY_MS
"""A certificate holds for so long."""
LOOKS: Final = 2
"""Safe verifications in a row before a purge, at least."""
RECORD_BYTES: Final = 800_000
"""Of a ledger's record, at most: a tombstone has it whole, and what is learned of bookies; servers take a million."""
DECOMMISSIONED: Final = "decommissioned"
"""Begins what releases a holder that nobody saw without the ledger."""


class DeleteState(StrEnum):
    """Where a delete is; `SOAKING` and `EXPIRED` are shown and never stored."""

    REQUESTED = "REQUESTED"
    VERIFIED = "VERIFIED"
    SOAKING = "SOAKING"
    PURGEABLE = "PURGEABLE"
    QUARANTINED = "QUARANTINED"
    PURGED = "PURGED"
    CONFIRMED = "CONFIRMED"
    EXPIRED = "EXPIRED"


REMOVED: Final = frozenset({DeleteState.PURGED, DeleteState.CONFIRMED, DeleteState.EXPIRED})
"""States of a ledger whose metadata record was removed by us."""
TAKEN: Final = REMOVED | {DeleteState.QUARANTINED}
"""States of a ledger whose metadata record was removed, or replaced by a hold."""


class DeleteVerdict(StrEnum):
    """May a ledger be deleted?"""

    SAFE = "SAFE"
    UNSAFE = "UNSAFE"
    UNDECIDED = "UNDECIDED"


class StepRefusedError(Exception):
    """A delete may not take a step; its argument says why."""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A ledger's metadata record as the store held it.

    Attributes:
        raw: the bytes; they may hold a password.
        version: token of the store.
        created_ms: when the store says that it was created, ms since 1970; None: it does not say.
        acl: its rights, as the store's adapter writes them; None: not known.
    """

    raw: bytes
    version: int
    created_ms: int | None = None
    acl: str | None = None

    def __repr__(self) -> str:
        """Without the bytes: a value may land in a log."""
        return f"StoredRecord({len(self.raw)} bytes, version={self.version})"


@dataclass(frozen=True, slots=True)
class Holder:
    """One life of a bookie that may hold entries of the ledger.

    Attributes:
        bookie: its id.
        incarnation: number of this life, as its inventory has it.
        seen_ms: when it was looked at last while it counted as a holder.
        released_ms: since when it counts as one that holds nothing; None: it may hold something.
        release: how that is known: the inventory that shows it, or that the bookie was decommissioned.
        entries: that it had when it was seen with the ledger last; None: not known.
    """

    bookie: str
    incarnation: int
    seen_ms: int
    released_ms: int | None = None
    release: str = ""
    entries: int | None = None


@dataclass(frozen=True, slots=True)
class DeleteStep:
    """A state that was reached, when, and by whom."""

    state: DeleteState
    at_ms: int
    by: str


@dataclass(frozen=True, slots=True)
class Tombstone:
    """One ledger's delete.

    Attributes:
        ledger: which.
        state: as stored; `find_state` says where it is at a time.
        record: of the ledger, as it was when it was looked at last, or removed.
        members: every bookie of every segment that any look at the record showed.
        holders: lives of bookies that hold, or held, entries.
        steps: how it came here, in order.
        reason: why, as who asked said it.
        soak_ms: time between the first safe verification and the one before the purge.
        safe_in_row: safe verifications without another one between them.
        listed_ms: when the references of the last safe verification were listed.
        objections: why the last verification was not safe.
        certificate: hash of the certificate that names it; empty: none does.
        references: where upper layers' references are, as who asked named them.
        hold: record that is in the place of the ledger's while it is in quarantine; empty: it never was.
        quarantine_ms: how long it is there.
    """

    ledger: LedgerId
    state: DeleteState
    record: StoredRecord
    members: tuple[str, ...]
    holders: tuple[Holder, ...]
    steps: tuple[DeleteStep, ...]
    reason: str
    soak_ms: int
    safe_in_row: int = 0
    listed_ms: int | None = None
    objections: tuple[str, ...] = ()
    certificate: str = ""
    references: tuple[str, ...] = ()
    hold: bytes = b""
    quarantine_ms: int = 0

    @property
    def since_ms(self) -> int:
        """When the stored state was reached."""
        return self.steps[-1].at_ms

    def find_time(self, state: DeleteState) -> int | None:
        """Return when a state was reached last; None: never."""
        return next((step.at_ms for step in reversed(self.steps) if step.state is state), None)


@dataclass(frozen=True, slots=True)
class Verification:
    """What a look at one ledger gave.

    Attributes:
        verdict: may it be deleted?
        reasons: why not; empty if it is safe.
        record: as it stood; None: there is none.
        members: bookies of its segments.
        holders: lives of bookies that hold entries, or are members.
        listed_ms: when the references were listed; the earliest of several.
    """

    verdict: DeleteVerdict
    reasons: tuple[str, ...]
    record: StoredRecord | None
    members: tuple[str, ...] = ()
    holders: tuple[Holder, ...] = ()
    listed_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Sighting:
    """What one inventory, or a bookie, says about one ledger.

    Attributes:
        bookie, incarnation: who.
        holds: whether it has any entry of the ledger, or knows it.
        at_ms: when it was looked at.
        source: the inventory.
        formatted_ms: when the youngest of its folders was formatted; None: not known.
        entries: that it has; None: not known.
    """

    bookie: str
    incarnation: int
    holds: bool
    at_ms: int
    source: str
    formatted_ms: int | None = None
    entries: int | None = None


def find_state(tombstone: Tombstone, now_ms: int) -> DeleteState:
    """Return where a delete is at a time: a verified one soaks until its soak is over."""
    if tombstone.state is DeleteState.VERIFIED and now_ms < find_soak_end(tombstone):
        return DeleteState.SOAKING
    return tombstone.state


def find_soak_end(tombstone: Tombstone) -> int:
    """Return when the soak ends, ms since 1970; of one that was not verified, as if that were done at once."""
    began = tombstone.find_time(DeleteState.VERIFIED)
    return (tombstone.since_ms if began is None else began) + tombstone.soak_ms


def find_quarantine_end(tombstone: Tombstone) -> int:
    """Return when the quarantine of a quarantined ledger ends, ms since 1970."""
    return (
        max(step.at_ms for step in tombstone.steps if step.state is DeleteState.QUARANTINED) + tombstone.quarantine_ms
    )


def is_due(tombstone: Tombstone, now_ms: int) -> bool:
    """Whether a verification would take a delete further: a purgeable one, too, that no certificate names any more.

    A certificate is made after the references were listed, and ends `CERTIFICATE_MS` later: one that was made by an
    old list may count as ended a little early.
    """
    if tombstone.state is DeleteState.PURGEABLE:
        listed_ms = tombstone.listed_ms or tombstone.since_ms
        return not tombstone.certificate or now_ms > listed_ms + CERTIFICATE_MS
    return find_state(tombstone, now_ms) in (DeleteState.REQUESTED, DeleteState.VERIFIED)


def request_delete(
    ledger: LedgerId,
    record: StoredRecord,
    members: Sequence[str],
    at_ms: int,
    by: str,
    *,
    reason: str = "",
    soak_ms: int = SOAK_MS,
    references: Sequence[str] = (),
) -> Tombstone:
    """Return the tombstone of a ledger whose delete somebody asks for."""
    return Tombstone(
        ledger,
        DeleteState.REQUESTED,
        record,
        tuple(members),
        (),
        (DeleteStep(DeleteState.REQUESTED, at_ms, by),),
        reason,
        soak_ms,
        references=tuple(references),
    )


def take_verification(
    tombstone: Tombstone, verification: Verification, at_ms: int, by: str, *, looks: int = LOOKS
) -> Tombstone:
    """Return a tombstone after a verification; one whose record was removed or is in quarantine stays as it is.

    Args:
        tombstone: before.
        verification: what was seen.
        at_ms: when.
        by: who looked.
        looks: safe verifications in a row that a purge needs.
    """
    if tombstone.state in TAKEN:
        return tombstone
    record = verification.record or tombstone.record
    members = tuple(dict.fromkeys((*tombstone.members, *verification.members)))
    holders = _join_holders(tombstone.holders, verification.holders)
    seen = replace(tombstone, record=record, members=members, holders=holders, certificate="")
    if verification.verdict is not DeleteVerdict.SAFE:
        state = replace(seen, safe_in_row=0, objections=verification.reasons)
        return state if state.state is DeleteState.REQUESTED else _step(state, DeleteState.REQUESTED, at_ms, by)
    changed = tombstone.state is not DeleteState.REQUESTED and record.version != tombstone.record.version
    count = 1 if changed else tombstone.safe_in_row + 1
    safe = replace(seen, safe_in_row=count, objections=(), listed_ms=verification.listed_ms)
    if tombstone.state is DeleteState.REQUESTED or changed:
        return _step(safe, DeleteState.VERIFIED, at_ms, by)
    if tombstone.state is DeleteState.PURGEABLE:
        return safe
    ready = at_ms >= find_soak_end(tombstone) and count >= max(looks, LOOKS)
    return _step(safe, DeleteState.PURGEABLE, at_ms, by) if ready else safe


def name_certificate(tombstone: Tombstone, certificate: str) -> Tombstone:
    """Return a purgeable tombstone with the certificate that names it.

    Raises:
        StepRefusedError: it is not purgeable.
    """
    if tombstone.state is not DeleteState.PURGEABLE:
        raise StepRefusedError(f"it is {tombstone.state}, not {DeleteState.PURGEABLE}")
    return replace(tombstone, certificate=certificate)


def require_purgeable(tombstone: Tombstone | None, certificate: str, version: int, at_ms: int) -> Tombstone:
    """Return a tombstone that may be purged now by a certificate.

    Args:
        tombstone: None: nobody asked for the delete.
        certificate: its hash.
        version: of the record, as the certificate has it.
        at_ms: now.

    Raises:
        StepRefusedError: it may not.
    """
    if tombstone is None:
        raise StepRefusedError("no delete was requested, or it was undone")
    if tombstone.state is not DeleteState.PURGEABLE:
        raise StepRefusedError(f"it is {find_state(tombstone, at_ms)}, not {DeleteState.PURGEABLE}")
    if tombstone.certificate != certificate:
        raise StepRefusedError("a later verification took the place of this certificate's")
    if tombstone.record.version != version:
        raise StepRefusedError("its record changed since the certificate was made")
    if at_ms + SKEW_MS < tombstone.since_ms:
        raise StepRefusedError("it was verified later than now: a clock is wrong, here or where it was verified")
    if at_ms < find_soak_end(tombstone):
        raise StepRefusedError("its soak is not over")
    return tombstone


def purge(tombstone: Tombstone, record: StoredRecord, at_ms: int, by: str) -> Tombstone:
    """Return the tombstone of a ledger whose record is removed together with the writing of it.

    Args:
        tombstone: one that `require_purgeable` let pass.
        record: that is removed.
        at_ms: now.
        by: who purges.

    Raises:
        StepRefusedError: the record is not the one that was verified.
    """
    _require_verified(tombstone, record)
    return _step(replace(tombstone, record=record), DeleteState.PURGED, at_ms, by)


def list_holders(tombstone: Tombstone) -> tuple[str, ...]:
    """Return the bookies that have entries of a ledger as far as is known; of one without any, its members."""
    holders = {h.bookie for h in tombstone.holders if h.released_ms is None and h.entries != 0}
    return tuple(sorted(holders or tombstone.members))


def quarantine(
    tombstone: Tombstone, record: StoredRecord, hold: bytes, quarantine_ms: int, at_ms: int, by: str
) -> Tombstone:
    """Return the tombstone of a ledger whose record is replaced by a hold together with the writing of it.

    Args:
        tombstone: one that `require_purgeable` let pass.
        record: that is replaced.
        hold: takes its place.
        quarantine_ms: for how long.
        at_ms: now.
        by: who purges.

    Raises:
        StepRefusedError: the record is not the one that was verified.
    """
    _require_verified(tombstone, record)
    changed = replace(tombstone, record=record, hold=hold, quarantine_ms=quarantine_ms)
    return _step(changed, DeleteState.QUARANTINED, at_ms, by)


def end_quarantine(tombstone: Tombstone, standing: StoredRecord | None, at_ms: int, by: str) -> Tombstone:
    """Return the tombstone of a ledger whose hold is removed together with the writing of it.

    Args:
        tombstone: of a quarantined ledger.
        standing: what is in the place of its record; None: nothing does, and nothing is to be removed.
        at_ms: now.
        by: who purges.

    Raises:
        StepRefusedError: its quarantine is not over, or what is there is not the hold.
    """
    if at_ms < find_quarantine_end(tombstone):
        raise StepRefusedError("its quarantine is not over")
    require_hold(tombstone, standing)
    return _step(tombstone, DeleteState.PURGED, at_ms, by)


def require_hold(tombstone: Tombstone, standing: StoredRecord | None) -> None:
    """Check that what is in the place of a quarantined ledger's record, if anything does, is its hold.

    Raises:
        StepRefusedError: it is not.
    """
    if standing is not None and standing.raw != tombstone.hold:
        problem = "another program changed the hold that replaced its record"
        raise StepRefusedError(f"{problem}: see which one, remove what it wrote, then take the delete back")


def leave_quarantine(tombstone: Tombstone, objection: str, at_ms: int, by: str) -> Tombstone:
    """Return the tombstone of a quarantined ledger whose record is put back together with the writing of it."""
    changed = replace(tombstone, hold=b"", quarantine_ms=0, safe_in_row=0, objections=(objection,), certificate="")
    return _step(changed, DeleteState.REQUESTED, at_ms, by)


def _require_verified(tombstone: Tombstone, record: StoredRecord) -> None:
    if record.version != tombstone.record.version or record.raw != tombstone.record.raw:
        raise StepRefusedError("its record is not the one that was verified")


def take_sightings(tombstone: Tombstone, sightings: Collection[Sighting], at_ms: int, by: str) -> Tombstone:
    """Return a removed ledger's tombstone after bookies were looked at; looks from before the purge say nothing.

    A holder is released by a look that shows the same life without the ledger: the same incarnation, or folders that
    were formatted before the holder was last seen; but not by one of a time to come. Whoever is seen with it is a
    holder, released or not before.
    """
    purged_ms = tombstone.find_time(DeleteState.PURGED)
    if tombstone.state not in REMOVED or purged_ms is None:
        return tombstone
    holders = {(holder.bookie, holder.incarnation): holder for holder in tombstone.holders}
    for sighting in sorted(sightings, key=lambda item: item.at_ms):
        if sighting.at_ms < purged_ms:
            continue
        key = (sighting.bookie, sighting.incarnation)
        if sighting.holds:
            holders[key] = Holder(*key, sighting.at_ms, entries=sighting.entries)
            continue
        if sighting.at_ms > at_ms + SKEW_MS:
            continue
        for life, holder in holders.items():
            if holder.released_ms is None and _is_same_life(holder, sighting) and sighting.at_ms >= holder.seen_ms:
                holders[life] = replace(holder, released_ms=sighting.at_ms, release=sighting.source)
    return _settle(replace(tombstone, holders=tuple(holders.values())), at_ms, by)


def decommission(tombstone: Tombstone, bookie: str, at_ms: int, by: str) -> Tombstone:
    """Return a removed ledger's tombstone after a bookie was taken out of service with its disks."""
    if tombstone.state not in REMOVED:
        return tombstone
    known = {holder.bookie for holder in tombstone.holders}
    holders = [
        replace(holder, released_ms=at_ms, release=f"{DECOMMISSIONED} by {by}")
        if holder.bookie == bookie and holder.released_ms is None
        else holder
        for holder in tombstone.holders
    ]
    if bookie in tombstone.members and bookie not in known:
        holders.append(Holder(bookie, 0, at_ms, at_ms, f"{DECOMMISSIONED} by {by}"))
    return _settle(replace(tombstone, holders=tuple(holders)), at_ms, by)


def list_waiting(tombstone: Tombstone) -> tuple[str, ...]:
    """Return the bookies that may still hold entries of a removed ledger."""
    seen = {holder.bookie for holder in tombstone.holders}
    open_ones = [holder.bookie for holder in tombstone.holders if holder.released_ms is None]
    return tuple(dict.fromkeys((*open_ones, *(member for member in tombstone.members if member not in seen))))


def list_returned(before: Tombstone, after: Tombstone) -> tuple[str, ...]:
    """Return the bookies that a look shows with a removed ledger though they, or all, had been seen without it.

    Args:
        before: as it was.
        after: the same with what the look shows.
    """
    waiting, known = set(list_waiting(before)), {holder.bookie for holder in before.holders}
    was_confirmed = before.find_time(DeleteState.CONFIRMED) is not None
    names = (
        holder.bookie
        for holder in after.holders
        if holder.released_ms is None
        and holder not in before.holders
        and (was_confirmed or (holder.bookie in known and holder.bookie not in waiting))
    )
    return tuple(dict.fromkeys(names))


def is_expired(tombstone: Tombstone, now_ms: int, retention_ms: int = RETENTION_MS) -> bool:
    """Whether a tombstone may go: all holders are released, and the retention since its purge is over."""
    purged_ms = tombstone.find_time(DeleteState.PURGED)
    return (
        tombstone.state is DeleteState.CONFIRMED
        and not list_waiting(tombstone)
        and purged_ms is not None
        and now_ms >= purged_ms + retention_ms
    )


def list_released(earlier: Tombstone, later: Tombstone) -> tuple[Holder, ...]:
    """Return the holders that a look shows without a removed ledger for the first time.

    Args:
        earlier: as it was.
        later: the same with what the look shows.
    """
    known = {(holder.bookie, holder.incarnation) for holder in earlier.holders if holder.released_ms is not None}
    return tuple(
        holder
        for holder in later.holders
        if holder.released_ms is not None and (holder.bookie, holder.incarnation) not in known
    )


def list_overdue(tombstone: Tombstone, now_ms: int, retention_ms: int = RETENTION_MS) -> tuple[str, ...]:
    """Return the bookies that were not seen without the ledger for longer than the retention."""
    purged_ms = tombstone.find_time(DeleteState.PURGED)
    late = tombstone.state is DeleteState.PURGED and purged_ms is not None and now_ms >= purged_ms + retention_ms
    return list_waiting(tombstone) if late else ()


def require_undoable(tombstone: Tombstone, sightings: Mapping[str, Sighting] | None, at_ms: int) -> None:
    """Check that an undo is possible.

    Args:
        tombstone: of a ledger; before its purge anything is possible.
        sightings: the last look at each bookie since the purge; None: nobody looked.
        at_ms: now.

    Raises:
        StepRefusedError: the record was removed, or its hold was, and a holder was not seen to hold the ledger since.
    """
    if tombstone.state not in TAKEN:
        return
    taken_ms = max(
        step.at_ms for step in tombstone.steps if step.state in (DeleteState.PURGED, DeleteState.QUARANTINED)
    )
    looks = sightings or {}
    for bookie in dict.fromkeys((*tombstone.members, *(holder.bookie for holder in tombstone.holders))):
        look = looks.get(bookie)
        if look is None or look.at_ms < taken_ms:
            raise StepRefusedError(f"its record was removed, and bookie {bookie} was not read since")
        if look.at_ms > at_ms + SKEW_MS:
            raise StepRefusedError(f"its record was removed, and bookie {bookie} was read later than now")
        if not look.holds:
            raise StepRefusedError(f"its record was removed, and bookie {bookie} does not hold it any more")
        if any(h.released_ms is not None for h in tombstone.holders if h.bookie == bookie):
            raise StepRefusedError(f"its record was removed, and bookie {bookie} was seen without it since")


def _step(tombstone: Tombstone, state: DeleteState, at_ms: int, by: str) -> Tombstone:
    return replace(tombstone, state=state, steps=(*tombstone.steps, DeleteStep(state, at_ms, by)))


def _settle(tombstone: Tombstone, at_ms: int, by: str) -> Tombstone:
    """Return a removed ledger's tombstone in the state that its holders give it."""
    state = DeleteState.PURGED if list_waiting(tombstone) else DeleteState.CONFIRMED
    if state is tombstone.state:
        return tombstone
    if state is DeleteState.PURGED:
        # The time of the purge stays that of the removal.
        return replace(tombstone, state=state)
    return _step(tombstone, state, at_ms, by)


def _join_holders(known: Sequence[Holder], seen: Sequence[Holder]) -> tuple[Holder, ...]:
    lives = {(holder.bookie, holder.incarnation): holder for holder in known}
    lives.update({(holder.bookie, holder.incarnation): holder for holder in seen})
    return tuple(lives.values())


def _is_same_life(holder: Holder, sighting: Sighting) -> bool:
    if holder.bookie != sighting.bookie:
        return False
    old = sighting.formatted_ms is not None and sighting.formatted_ms < holder.seen_ms
    return holder.incarnation == sighting.incarnation or old
