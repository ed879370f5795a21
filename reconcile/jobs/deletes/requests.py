"""Deletes asked for, shown, and taken back."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from reconcile.deletes.cluster import read_records
from reconcile.deletes.packed import PackedDecision
from reconcile.deletes.purge import undo_deletes
from reconcile.deletes.tombstones import (
    RECORD_BYTES,
    SOAK_MS,
    TAKEN,
    DeleteState,
    Sighting,
    StoredRecord,
    Tombstone,
    list_holders,
    request_delete,
)
from reconcile.deletes.verification.evidence import gather_holdings, list_sightings
from reconcile.deletes.verification.wanted import WantedLedgers
from reconcile.jobs.context import Context, connect, now_ms, throttle
from reconcile.jobs.deletes.clusters import DeleteTarget, OpenDeletes, open_deletes, read_own_root
from reconcile.jobs.deletes.looks import Looks, gather_inventories
from reconcile.write.guards import list_registered
from recovery.codecs.ledger_record import decode
from recovery.errors import FormatError
from recovery.model.ids import LedgerId

_ROWS: Final = 200
"""Tombstones that are written to a node at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRequest:
    """Which deletes are asked for.

    Attributes:
        target: the store.
        ledgers: which.
        reason: why.
        soak_ms: time between the first safe verification and the one before the purge.
        references: where upper layers' references are, for verifications to come.
    """

    target: DeleteTarget
    ledgers: tuple[LedgerId, ...]
    reason: str = ""
    soak_ms: int = SOAK_MS
    references: tuple[str, ...] = ()


@dataclass(slots=True)
class RequestedDeletes:
    """What became of requests.

    Attributes:
        requested: have a tombstone now.
        earlier: had one already.
        absent: the store has no record of them.
        refused: get no tombstone, and why.
    """

    requested: list[LedgerId] = field(default_factory=list)
    earlier: list[LedgerId] = field(default_factory=list)
    absent: list[LedgerId] = field(default_factory=list)
    refused: dict[LedgerId, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoDeletesRequest:
    """Which deletes are taken back.

    Attributes:
        target: the store.
        ledgers: which.
        looks: at bookies, for those whose record was removed.
    """

    target: DeleteTarget
    ledgers: tuple[LedgerId, ...]
    looks: Looks


@dataclass(frozen=True, slots=True)
class UndoneDeletes:
    """What was taken back.

    Attributes:
        undone: have no tombstone any more, and their record.
        put_back: of these, whose record had been removed, or a hold was in its place.
        lost: of these, what their bookies lost while they were in quarantine, as far as it was looked at.
        refused: why others could not be.
    """

    undone: tuple[LedgerId, ...]
    put_back: tuple[LedgerId, ...]
    refused: Mapping[LedgerId, str]
    lost: Mapping[LedgerId, tuple[str, ...]] = field(default_factory=dict)


def request_deletes(request: DeleteRequest, context: Context) -> RequestedDeletes:
    """Write a tombstone for each ledger that has a record and no tombstone yet, where the policy lets it be deleted.

    Raises:
        GuardRefusedError: what is at the key of our own root is not ours.
        UnavailableError: the store does not answer.
    """
    result = RequestedDeletes()
    records: dict[LedgerId, StoredRecord | None] = {}
    refusals: dict[LedgerId, str] = {}
    with (
        open_deletes(request.target, context) as target,
        context.reporter.progress("asking for deletes", "ledgers") as progress,
    ):
        show = throttle(progress)
        at_ms = now_ms(context)
        known = target.own.tombstones.read_some(request.ledgers)
        result.earlier = [ledger for ledger in request.ledgers if ledger in known]

        def prepare(batch: Sequence[LedgerId]) -> None:
            records.clear()
            records.update(read_records(batch, target.cluster))
            refusals.clear()
            refusals.update(_find_refusals(records, target))

        def decide(ledger: LedgerId, tombstone: Tombstone | None) -> PackedDecision[Tombstone] | None:
            record = records[ledger]
            if tombstone is not None or record is None or ledger in refusals:
                return None
            members = _read_members(record)
            return PackedDecision(
                request_delete(
                    ledger,
                    record,
                    members,
                    at_ms,
                    target.by,
                    reason=request.reason,
                    soak_ms=max(request.soak_ms, target.policy.soak_ms),
                    references=request.references,
                )
            )

        def take_up(batch: Sequence[LedgerId]) -> None:
            for ledger in batch:
                record = records[ledger]
                if record is None:
                    result.absent.append(ledger)
                elif ledger in refusals:
                    result.refused[ledger] = refusals[ledger]
                else:
                    result.requested.append(ledger)
            show(len(result.absent) + len(result.refused) + len(result.requested), len(request.ledgers))

        fresh = [ledger for ledger in dict.fromkeys(request.ledgers) if ledger not in known]
        target.own.tombstones.change(fresh, decide, target.log, rows=_ROWS, prepare=prepare, done=take_up)
        counts = {"requested": len(result.requested), "earlier": len(result.earlier), "absent": len(result.absent)}
        target.log.end({**counts, "refused": len(result.refused)}, 0)
    # They were written in the order of their nodes.
    result.requested.sort()
    result.absent.sort()
    return result


def read_tombstones(uri: str, ledgers: Sequence[LedgerId], context: Context) -> list[Tombstone]:
    """Return the tombstones of ledgers, or all if none is named, in the order of their ids; the store is only read.

    Raises:
        FormatError: a node is not ours to read.
        GuardRefusedError: what is at the key of our own root is not ours.
        UnavailableError: the store does not answer.
    """
    with connect(uri, context) as opened:
        own = read_own_root(opened)
        return [] if own is None else own.tombstones.read_sorted(ledgers)


def measure_tombstones(uri: str, context: Context) -> tuple[int, int]:
    """Return how many nodes tombstones take, and their bytes.

    Raises:
        GuardRefusedError: what is at the key of our own root is not ours.
        UnavailableError: the store does not answer.
    """
    with connect(uri, context) as opened:
        own = read_own_root(opened)
        return (0, 0) if own is None else own.tombstones.measure()


def undo(request: UndoDeletesRequest, context: Context) -> UndoneDeletes:
    """Take deletes back: tombstones are removed, and removed records put back while every holder has the ledger.

    Raises:
        GuardRefusedError: what is at the key of our own root is not ours.
        UnavailableError: the store does not answer.
    """
    with open_deletes(request.target, context) as target:
        known = target.own.tombstones.read_some(request.ledgers)
        removed = {ledger for ledger, tombstone in known.items() if tombstone.state in TAKEN}
        sightings: dict[LedgerId, dict[str, Sighting]] = {}
        if removed and request.looks.are_asked:
            raws = {ledger: known[ledger].record.raw for ledger in removed}
            with gather_inventories(request.looks, target.opened, target.cluster.layout, raws, context) as inventories:
                wanted = WantedLedgers(list(removed))
                holdings = gather_holdings(inventories, wanted)
            for number, ledger in enumerate(wanted.ledgers):
                sightings[ledger] = {item.bookie: item for item in list_sightings(holdings, number)}
        ledgers = tuple(dict.fromkeys(request.ledgers))
        refused = undo_deletes(ledgers, target.cluster, target.own, target.log, sightings, now_ms(context))
        undone = tuple(ledger for ledger in ledgers if ledger not in refused)
        registered = {name for _, name in list_registered(target.cluster.store, target.cluster.root)}
        quarantined = [known[ledger] for ledger in undone if known[ledger].state is DeleteState.QUARANTINED]
        lost = {
            item.ledger: tuple(_list_lost(item, sightings.get(item.ledger, {}), registered)) for item in quarantined
        }
        target.log.end({"undone": len(undone), "refused": len(refused)}, 0)
    put_back = tuple(item for item in undone if item in removed)
    return UndoneDeletes(undone, put_back, refused, {ledger: texts for ledger, texts in lost.items() if texts})


def _list_lost(tombstone: Tombstone, looks: Mapping[str, Sighting], registered: Collection[str]) -> Iterator[str]:
    """Yield what the bookies of a ledger lost while it was in quarantine: no repair takes place meanwhile."""
    since_ms = tombstone.find_time(DeleteState.QUARANTINED) or 0
    had = {item.bookie: item.entries for item in tombstone.holders}
    for bookie in list_holders(tombstone):
        look, entries = looks.get(bookie), had.get(bookie)
        if look is not None and look.at_ms >= since_ms:
            if not look.holds:
                yield f"{bookie} has none of its entries any more"
            elif entries is not None and look.entries is not None and look.entries < entries:
                yield f"{bookie} has {look.entries} of its {entries} entries"
        elif bookie not in registered:
            yield f"{bookie} is not registered now"


def _find_refusals(records: Mapping[LedgerId, StoredRecord | None], target: OpenDeletes) -> dict[LedgerId, str]:
    """Return which of some ledgers get no tombstone, and why."""
    standing = {ledger: record for ledger, record in records.items() if record is not None}
    refusals = dict[LedgerId, str]()
    if target.policy.archived:
        marked = target.own.archive.read_some(list(standing))
        why = "it has no archive mark, which the policy of the cluster requires"
        refusals.update((ledger, why) for ledger in standing if ledger not in marked)
    for ledger, record in standing.items():
        size = len(record.raw)
        if size > RECORD_BYTES:
            refusals[ledger] = f"its record of {size} bytes is larger than a tombstone takes, {RECORD_BYTES}"
    return refusals


def _read_members(record: StoredRecord) -> tuple[str, ...]:
    """Return every bookie of every segment; none of a record that cannot be parsed: verification says so."""
    try:
        metadata = decode(record.raw)
    except FormatError:
        return ()
    return tuple(dict.fromkeys(member for segment in metadata.segments for member in segment.members))
