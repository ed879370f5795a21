"""Records of ledgers removed by a certificate, each looked at again; and deletes taken back.

The tombstone is written and the record removed in one transaction: neither is there without the other.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from backends.pace import Pace
from backends.protocols import Write
from reconcile.deletes.certificate import Certificate
from reconcile.deletes.cluster import Cluster, read_records
from reconcile.deletes.own_root import OwnRoot
from reconcile.deletes.packed import ChangeLog, Decision
from reconcile.deletes.tombstones import (
    DAY_MS,
    REMOVED,
    Sighting,
    State,
    StepRefusedError,
    StoredRecord,
    Tombstone,
    demand_purgeable,
    demand_undoable,
    purge,
)
from reconcile.errors import GuardRefusedError, PartlyAppliedError
from recovery.codecs.replication_lock import lock_key
from recovery.codecs.store import mark_key
from recovery.model.ids import LedgerId

_FEW_LEFT_OUT: Final = 10
_SHARE_LEFT_OUT: Final = 0.05
"""So many ledgers, or this share of a certificate's if that is more, may be left out before a purge stops."""
_REMEDY: Final = "see what became of it: ask for its status; then verify again, and purge by the new certificate"


@dataclass(frozen=True, slots=True)
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
    """

    certificate: Certificate
    by: str
    name_owners: Callable[[Sequence[LedgerId]], Mapping[LedgerId, str]]
    archived: bool = False
    soak_ms: int = 0
    rate: float | None = None
    batch: int | None = None


@dataclass(slots=True)
class Purged:
    """What became of a certificate's ledgers.

    Attributes:
        purged: their records were removed by this run.
        earlier: were removed by an earlier run of the same certificate.
        left_out: are not as the certificate has them, and why; nothing of them was changed.
    """

    purged: list[LedgerId] = field(default_factory=list)
    earlier: list[LedgerId] = field(default_factory=list)
    left_out: dict[LedgerId, str] = field(default_factory=dict)


@dataclass(slots=True)
class _LastLook:
    """What stands at the keys of some ledgers right before they are removed."""

    records: dict[LedgerId, StoredRecord | None] = field(default_factory=dict)
    objections: dict[LedgerId, str] = field(default_factory=dict)


def count_lately(tombstones: Iterator[Sequence[Tombstone]], now_ms: int) -> int:
    """Return how many ledgers were purged within a day."""
    return count_since(tombstones, now_ms - DAY_MS)


def count_since(tombstones: Iterator[Sequence[Tombstone]], since_ms: int) -> int:
    """Return how many ledgers were purged after a time."""
    times = (tombstone.find_time(State.PURGED) for node in tombstones for tombstone in node)
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
    pace = Pace(request.rate)
    most = max(_FEW_LEFT_OUT, int(total * _SHARE_LEFT_OUT))
    rows = min(request.batch or cluster.most_removals, cluster.most_removals)

    def prepare(batch: Sequence[LedgerId]) -> None:
        pace.take(len(batch))
        _look_again(batch, request, cluster, own, look)

    def decide(ledger: LedgerId, tombstone: Tombstone | None) -> Decision[Tombstone] | None:
        time = now()
        at_ms = int(time.timestamp() * 1000)
        stated = certified[ledger]
        result.left_out.pop(ledger, None)
        if tombstone is not None and tombstone.state in REMOVED and tombstone.certificate == request.certificate.hash:
            if ledger not in result.earlier:
                result.earlier.append(ledger)
            return None
        if time > request.certificate.not_after:
            raise StepRefusedError(f"ledger {ledger}: the certificate ended")
        try:
            asked = tombstone and replace(tombstone, soak_ms=max(tombstone.soak_ms, request.soak_ms))
            ready = demand_purgeable(asked, request.certificate.hash, stated.version, at_ms)
            removed = _demand_unchanged(look, ledger)
            purged = purge(ready, removed, at_ms, request.by)
        except StepRefusedError as error:
            result.left_out[ledger] = str(error)
            if len(result.left_out) > most:
                problem = f"{len(result.left_out)} ledgers may not be purged now, more than {most} of {total}"
                raise StepRefusedError(f"{problem}; ledger {ledger}: {error}") from error
            return None
        removal = Write(cluster.make_key(ledger), None, removed.version)
        return Decision(purged, (removal,), (removed.raw,))

    def take_up(batch: Sequence[LedgerId]) -> None:
        known = {*result.earlier, *result.left_out}
        result.purged += [ledger for ledger in batch if ledger not in known]
        progress(len(result.purged) + len(result.earlier) + len(result.left_out), total)

    try:
        own.tombstones.change(list(certified), decide, log, rows=rows, prepare=prepare, done=take_up)
    except StepRefusedError as error:
        if result.purged:
            done = f"stopped after {len(result.purged)} of {total} ledgers: {error}"
            raise PartlyAppliedError(str(log.journal.path), done, _REMEDY) from error
        raise GuardRefusedError("the purge", str(error), _REMEDY) from error
    if result.left_out and not (result.purged or result.earlier):
        ledger, reason = next(iter(result.left_out.items()))
        raise GuardRefusedError("the purge", f"ledger {ledger}: {reason}", _REMEDY)
    return result


def undo_deletes(
    ledgers: Sequence[LedgerId],
    cluster: Cluster,
    own: OwnRoot,
    log: ChangeLog,
    sightings: Mapping[LedgerId, Mapping[str, Sighting]],
    at_ms: int,
) -> dict[LedgerId, str]:
    """Take deletes back: before the purge nothing was removed, after it the record is put back while all hold it.

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

    def decide(ledger: LedgerId, tombstone: Tombstone | None) -> Decision[Tombstone] | None:
        refused.pop(ledger, None)
        if tombstone is None:
            refused[ledger] = "nobody asked for its delete, or that was undone"
            return None
        try:
            demand_undoable(tombstone, sightings.get(ledger), at_ms)
        except StepRefusedError as error:
            refused[ledger] = str(error)
            return None
        if tombstone.state not in REMOVED:
            return Decision(None)
        key = cluster.make_key(ledger)
        if cluster.store.get(key) is not None:
            refused[ledger] = "the store has a record of it again"
            return None
        return Decision(None, (Write(key, tombstone.record.raw, None, tombstone.record.acl),))

    own.tombstones.change(ledgers, decide, log, rows=cluster.most_removals)
    return refused


def _demand_unchanged(look: _LastLook, ledger: LedgerId) -> StoredRecord:
    """Return a ledger's record as it stands, if nothing speaks against its removal."""
    if ledger in look.objections:
        raise StepRefusedError(look.objections[ledger])
    record = look.records.get(ledger)
    if record is None:
        raise StepRefusedError("its record is gone: somebody else removed it")
    return record


def _look_again(
    batch: Sequence[LedgerId], request: PurgeRequest, cluster: Cluster, own: OwnRoot, look: _LastLook
) -> None:
    """Read what stands at the keys of some ledgers now."""
    look.records = read_records(batch, cluster)
    look.objections = {}
    keys: dict[str, tuple[LedgerId, str]] = {}
    for ledger in batch:
        keys[cluster.root + mark_key(ledger)] = (ledger, "it is marked for replication now")
        keys[cluster.root + lock_key(ledger)] = (ledger, "somebody holds its replication lock now")
    for key, node in cluster.store.get_many(keys):
        if node is not None:
            ledger, text = keys[key]
            look.objections[ledger] = text
    owners = request.name_owners(batch)
    look.objections.update((ledger, f"{owner} refers to it now") for ledger, owner in owners.items())
    if request.archived:
        marked = own.archive.read_some(batch)
        look.objections.update((ledger, "it has no archive mark now") for ledger in batch if ledger not in marked)
