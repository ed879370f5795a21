"""Records of ledgers removed by a certificate, each looked at again; and deletes taken back.

The tombstone is written and the record removed in one transaction: neither is there without the other. Where the policy
asks for a quarantine, the record is replaced by a hold first, and the same certificate removes that later.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa

from backends.pace import Pace
from backends.protocols import Write
from reconcile.deletes.certificate import Certificate
from reconcile.deletes.cluster import Cluster, read_records
from reconcile.deletes.own_root import OwnRoot
from reconcile.deletes.packed import ChangeLog, PackedDecision
from reconcile.deletes.tombstones import (
    DAY_MS,
    REMOVED,
    SECOND_MS,
    TAKEN,
    DeleteState,
    Sighting,
    StepRefusedError,
    StoredRecord,
    Tombstone,
    end_quarantine,
    find_quarantine_end,
    leave_quarantine,
    list_holders,
    purge,
    quarantine,
    require_hold,
    require_purgeable,
    require_undoable,
)
from reconcile.errors import GuardRefusedError, PartlyAppliedError
from reconcile.rules.holds import HOLD_PASSWORD_SIZE, QUARANTINE_MARK, encode_holds
from recovery.codecs.replication_lock import lock_key
from recovery.codecs.store import mark_key
from recovery.model.ids import LedgerId

_FEW_LEFT_OUT: Final = 10
_SHARE_LEFT_OUT: Final = 0.05
"""So many ledgers, or this share of a certificate's if that is more, may be left out before a purge stops."""
_REMEDY: Final = "see what became of it: ask for its status; then verify again, and purge by the new certificate"


@dataclass(frozen=True, slots=True)
class Quarantine:
    """What is before a removal.

    Attributes:
        ms: how long a hold is in the place of a record.
        room: further ledgers that may be in quarantine.
    """

    ms: int
    room: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeRequest:
    """What is purged, and how.

    Attributes:
        certificate: checked, and not expired when it was.
        by: who purges.
        name_owners: says who names those of some ledgers that are named now.
        archived: whether each ledger must have a mark of the backup application still.
        soak_ms: least soak that is asked for by now, whatever the tombstones say.
        rate: ledgers a second, at most; None: no limit.
        batch: ledgers in a transaction, at most; None: as many as the store takes.
        quarantine: how records are replaced before they are removed; None: they are removed at once.
        is_ended: whether the certificate has ended: it removes what it put into quarantine, and nothing else.
    """

    certificate: Certificate
    by: str
    name_owners: Callable[[Sequence[LedgerId]], Mapping[LedgerId, str]]
    archived: bool = False
    soak_ms: int = 0
    rate: float | None = None
    batch: int | None = None
    quarantine: Quarantine | None = None
    is_ended: bool = False


@dataclass(slots=True)
class Purged:
    """What became of a certificate's ledgers.

    Attributes:
        purged: their records were removed by this run.
        earlier: were removed by an earlier run of the same certificate.
        quarantined: holds were put in the place of their records by this run.
        waiting: are in quarantine by the same certificate, and until when, ms since 1970.
        beyond: stay as they are, since as many ledgers as may be are in quarantine.
        left_out: are not as the certificate has them, and why; nothing of them was changed.
    """

    purged: list[LedgerId] = field(default_factory=list)
    earlier: list[LedgerId] = field(default_factory=list)
    quarantined: list[LedgerId] = field(default_factory=list)
    waiting: dict[LedgerId, int] = field(default_factory=dict)
    beyond: list[LedgerId] = field(default_factory=list)
    left_out: dict[LedgerId, str] = field(default_factory=dict)


@dataclass(slots=True)
class _LastLook:
    """What is at the keys of some ledgers right before they are removed.

    Attributes:
        records: of them.
        repairs: what a repair has there; a hold is marked for one all the time.
        objections: everything else that speaks against a removal.
    """

    records: dict[LedgerId, StoredRecord | None] = field(default_factory=dict)
    repairs: dict[LedgerId, str] = field(default_factory=dict)
    objections: dict[LedgerId, str] = field(default_factory=dict)


def count_lately(tombstones: Iterator[Sequence[Tombstone]], now_ms: int) -> int:
    """Return the records of how many ledgers were removed, or replaced by a hold, within a day; each counts once."""
    times = (
        tombstone.find_time(DeleteState.QUARANTINED) or tombstone.find_time(DeleteState.PURGED)
        for node in tombstones
        for tombstone in node
        if tombstone.state in TAKEN
    )
    return sum(taken_ms is not None and taken_ms > now_ms - DAY_MS for taken_ms in times)


def count_since(tombstones: Iterator[Sequence[Tombstone]], since_ms: int) -> int:
    """Return how many ledgers were purged after a time."""
    times = (tombstone.find_time(DeleteState.PURGED) for node in tombstones for tombstone in node)
    return sum(purged_ms is not None and purged_ms > since_ms for purged_ms in times)


def purge_ledgers(
    request: PurgeRequest,
    cluster: Cluster,
    own: OwnRoot,
    log: ChangeLog,
    *,
    now: Callable[[], datetime],
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Purged:
    """Remove the records of a certificate's ledgers; one that is not as the certificate has it is left out, and named.

    A breaker stops the run where many are left out: what speaks against one in twenty may speak against all. To repeat
    it goes on with it: a ledger that was removed by the same certificate is passed over.

    Raises:
        GuardRefusedError: no ledger may be purged; nothing was removed by this run.
        PartlyAppliedError: many may not, or the certificate ended; what was removed stays removed.
        BackendError: the store failed.
    """
    certified = request.certificate.ledgers
    total, result, look = len(certified), Purged(), _LastLook()
    fates: dict[LedgerId, list[LedgerId]] = {}
    pace = Pace(request.rate)
    most = max(_FEW_LEFT_OUT, int(total * _SHARE_LEFT_OUT))
    rows = min(request.batch or cluster.most_removals, cluster.most_removals)

    def prepare(batch: Sequence[LedgerId]) -> None:
        pace.take(len(batch))
        _look_again(batch, request, cluster, own, look)
        for ledger in batch:
            fates.pop(ledger, None)

    def decide(ledger: LedgerId, tombstone: Tombstone | None) -> PackedDecision[Tombstone] | None:
        time = now()
        at_ms = int(time.timestamp() * 1000)
        fates.pop(ledger, None)
        result.left_out.pop(ledger, None)
        ours = tombstone if tombstone is not None and tombstone.certificate == request.certificate.hash else None
        if ours is not None and ours.state in REMOVED:
            fates[ledger] = result.earlier
            return None
        quarantined = ours if ours is not None and ours.state is DeleteState.QUARANTINED else None
        if quarantined is None and request.is_ended:
            return None
        if quarantined is None and time > request.certificate.not_after:
            raise StepRefusedError(f"ledger {ledger}: the certificate ended")
        if quarantined is not None and at_ms < (end_ms := find_quarantine_end(quarantined)):
            result.waiting[ledger] = end_ms
            return None
        try:
            return take(ledger, tombstone, at_ms) if quarantined is None else end(ledger, quarantined, at_ms)
        except StepRefusedError as error:
            fates.pop(ledger, None)
            result.left_out[ledger] = str(error)
            if len(result.left_out) > most:
                problem = f"{len(result.left_out)} ledgers may not be purged now, more than {most} of {total}"
                raise StepRefusedError(f"{problem}; ledger {ledger}: {error}") from error
            return None

    def take(ledger: LedgerId, tombstone: Tombstone | None, at_ms: int) -> PackedDecision[Tombstone] | None:
        """Remove a record, or put a hold in its place."""
        asked = tombstone and replace(tombstone, soak_ms=max(tombstone.soak_ms, request.soak_ms))
        ready = require_purgeable(asked, request.certificate.hash, certified[ledger].version, at_ms)
        record = _require_unchanged(look, ledger)
        key = cluster.make_key(ledger)
        if request.quarantine is None:
            fates[ledger] = result.purged
            purged = purge(ready, record, at_ms, request.by)
            return PackedDecision(purged, (Write(key, None, record.version),), (record.raw,))
        in_batch = sum(fate is result.quarantined for fate in fates.values())
        if len(result.quarantined) + in_batch >= request.quarantine.room:
            fates[ledger] = result.beyond
            return None
        fates[ledger] = result.quarantined
        hold = make_hold(ready, at_ms + request.quarantine.ms)
        changed = quarantine(ready, record, hold, request.quarantine.ms, at_ms, request.by)
        return PackedDecision(changed, (Write(key, hold, record.version),), (record.raw,))

    def end(ledger: LedgerId, tombstone: Tombstone, at_ms: int) -> PackedDecision[Tombstone]:
        """Remove the hold of a ledger whose quarantine is over."""
        if ledger in look.objections:
            raise StepRefusedError(look.objections[ledger])
        standing = look.records.get(ledger)
        purged = end_quarantine(tombstone, standing, at_ms, request.by)
        fates[ledger] = result.purged
        if standing is None:
            return PackedDecision(purged)
        return PackedDecision(purged, (Write(cluster.make_key(ledger), None, standing.version),), (standing.raw,))

    def take_up(batch: Sequence[LedgerId]) -> None:
        for ledger in batch:
            if ledger in fates:
                fates.pop(ledger).append(ledger)
        lists = (result.purged, result.earlier, result.quarantined, result.beyond, result.waiting, result.left_out)
        progress(sum(map(len, lists)), total)

    try:
        own.tombstones.change(list(certified), decide, log, rows=rows, prepare=prepare, done=take_up)
    except StepRefusedError as error:
        if changed := len(result.purged) + len(result.quarantined):
            done = f"stopped after {changed} of {total} ledgers: {error}"
            raise PartlyAppliedError(str(log.journal.path), done, _REMEDY) from error
        raise GuardRefusedError("the purge", str(error), _REMEDY) from error
    if result.left_out and not (result.purged or result.earlier or result.quarantined or result.waiting):
        ledger, reason = next(iter(result.left_out.items()))
        raise GuardRefusedError("the purge", f"ledger {ledger}: {reason}", _REMEDY)
    return result


def make_hold(tombstone: Tombstone, until_ms: int) -> bytes:
    """Return the record that keeps the data of a ledger in quarantine, and that no client can open.

    Args:
        tombstone: of the ledger.
        until_ms: when the quarantine ends, ms since 1970.
    """
    until = datetime.fromtimestamp(until_ms / SECOND_MS, UTC).isoformat(timespec="seconds")
    reason = f"in quarantine until {until}, before its delete" + (f": {tombstone.reason}" if tombstone.reason else "")
    holders = pa.array([list_holders(tombstone)], pa.list_(pa.string()))
    marks = {QUARANTINE_MARK: until.encode()}
    [hold] = encode_holds(pa.array([reason]), holders, os.urandom(HOLD_PASSWORD_SIZE), marks).to_pylist()
    return bytes(hold)


def undo_deletes(
    ledgers: Sequence[LedgerId],
    cluster: Cluster,
    own: OwnRoot,
    log: ChangeLog,
    sightings: Mapping[LedgerId, Mapping[str, Sighting]],
    at_ms: int,
) -> dict[LedgerId, str]:
    """Take deletes back: before the purge nothing was removed, after it the record is put back while all hold it.

    In a quarantine the record takes the place of its hold, whatever bookies have.

    Args:
        ledgers: which.
        cluster: where their records are.
        own: where their tombstones are.
        log: by which it is written.
        sightings: of each ledger the last look at each bookie since the purge.
        at_ms: now.

    Returns:
        What could not be taken back, and why.

    Raises:
        BackendError: the store failed.
    """
    refused: dict[LedgerId, str] = {}

    def decide(ledger: LedgerId, tombstone: Tombstone | None) -> PackedDecision[Tombstone] | None:
        refused.pop(ledger, None)
        if tombstone is None:
            refused[ledger] = "no delete was requested, or it was undone"
            return None
        if tombstone.state not in TAKEN:
            return PackedDecision(None)
        key = cluster.make_key(ledger)
        standing = read_records([ledger], cluster)[ledger]
        try:
            if standing is not None and tombstone.state is DeleteState.QUARANTINED:
                require_hold(tombstone, standing)
                return PackedDecision(None, (Write(key, tombstone.record.raw, standing.version),), (standing.raw,))
            require_undoable(tombstone, sightings.get(ledger), at_ms)
        except StepRefusedError as error:
            refused[ledger] = str(error)
            return None
        if standing is not None:
            refused[ledger] = "the store has a record of it again"
            return None
        return PackedDecision(None, (Write(key, tombstone.record.raw, None, tombstone.record.acl),))

    own.tombstones.change(ledgers, decide, log, rows=cluster.most_removals)
    return refused


def end_quarantines(
    reasons: Mapping[LedgerId, str], cluster: Cluster, own: OwnRoot, log: ChangeLog, at_ms: int, by: str
) -> None:
    """Put the records of quarantined ledgers back before their time, for BookKeeper to repair; request all again.

    Args:
        reasons: why, of each.
        cluster: where their records are.
        own: where their tombstones are.
        log: by which it is written.
        at_ms: now.
        by: who looked.

    Raises:
        BackendError: the store failed.
    """

    def decide(ledger: LedgerId, tombstone: Tombstone | None) -> PackedDecision[Tombstone] | None:
        if tombstone is None or tombstone.state is not DeleteState.QUARANTINED:
            return None
        standing = read_records([ledger], cluster)[ledger]
        if standing is None or standing.raw != tombstone.hold:
            return None
        write = Write(cluster.make_key(ledger), tombstone.record.raw, standing.version)
        return PackedDecision(leave_quarantine(tombstone, reasons[ledger], at_ms, by), (write,), (standing.raw,))

    own.tombstones.change(list(reasons), decide, log, rows=cluster.most_removals)


def _require_unchanged(look: _LastLook, ledger: LedgerId) -> StoredRecord:
    """Return a ledger's record as it stands, if nothing speaks against its removal."""
    for objections in (look.repairs, look.objections):
        if ledger in objections:
            raise StepRefusedError(objections[ledger])
    record = look.records.get(ledger)
    if record is None:
        raise StepRefusedError("its record is gone: another program removed it")
    return record


def _look_again(
    batch: Sequence[LedgerId], request: PurgeRequest, cluster: Cluster, own: OwnRoot, look: _LastLook
) -> None:
    """Read what is at the keys of some ledgers now."""
    look.records = read_records(batch, cluster)
    look.repairs, look.objections = {}, {}
    keys: dict[str, tuple[LedgerId, str]] = {}
    for ledger in batch:
        keys[cluster.root + mark_key(ledger)] = (ledger, "it is marked for replication now")
        keys[cluster.root + lock_key(ledger)] = (ledger, "another program holds its replication lock now")
    for key, node in cluster.store.get_many(keys):
        if node is not None:
            ledger, text = keys[key]
            look.repairs[ledger] = text
    owners = request.name_owners(batch)
    look.objections.update((ledger, f"{owner} refers to it now") for ledger, owner in owners.items())
    if request.archived:
        marked = own.archive.read_some(batch)
        look.objections.update((ledger, "it has no archive mark now") for ledger in batch if ledger not in marked)
