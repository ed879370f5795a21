"""What becomes of purged ledgers: bookies seen without them, decommissioned bookies, tombstones that may go."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from reconcile.check.preflight.gc_settings import COLLECTION_STOPS
from reconcile.deletes.own_root import require_clock
from reconcile.deletes.packed import PackedDecision
from reconcile.deletes.tombstones import (
    REMOVED,
    RETENTION_MS,
    DeleteState,
    Holder,
    Tombstone,
    decommission,
    is_expired,
    list_overdue,
    list_released,
    list_returned,
    list_waiting,
    take_sightings,
)
from reconcile.deletes.verification.evidence import gather_holdings, list_sightings
from reconcile.deletes.verification.wanted import WantedLedgers
from reconcile.errors import GuardRefusedError
from reconcile.jobs.context import Context, now_ms
from reconcile.jobs.deletes.clusters import DeleteTarget, OpenDeletes, open_deletes
from reconcile.jobs.deletes.looks import Looks, gather_inventories
from reconcile.write.guards import list_registered
from recovery.codecs import ledger_metadata
from recovery.codecs.store_kind import kind_of
from recovery.model.ids import LedgerId

_ROWS = 200
"""Tombstones that are changed in a transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmRequest:
    """Which bookies are looked at for receipts.

    Attributes:
        target: the store.
        looks: at bookies.
        retention_ms: time that a bookie may be away before it is named.
    """

    target: DeleteTarget
    looks: Looks
    retention_ms: int = RETENTION_MS


@dataclass(slots=True)
class RemovedCopies:
    """What a bookie removed, as it was seen to hold it last.

    Attributes:
        ledgers: how many.
        entries: of all of them; None: of some it is not known.
        bytes: of their payload, about: its share of the entries is taken for its share of the length that the record
            had; None: of some it is not known.
    """

    ledgers: int = 0
    entries: int | None = 0
    bytes: int | None = 0

    def add(self, entries: int | None, of_all: int | None, length: int | None) -> None:
        """Count one more ledger.

        Args:
            entries: that the bookie had; None: not known.
            of_all: entries of the ledger, by its record; None: not known.
            length: bytes of their payload, by its record; None: not known.
        """
        self.ledgers += 1
        self.entries = None if entries is None or self.entries is None else self.entries + entries
        if entries is None or of_all is None or length is None or self.bytes is None:
            self.bytes = None
        else:
            self.bytes += round(length * min(entries, of_all) / max(of_all, 1))


@dataclass(slots=True)
class Receipts:
    """What looks at bookies gave.

    Attributes:
        confirmed: ledgers that no bookie holds any more.
        waiting: the others, with the bookies that may hold something.
        returned: ledgers whose data came back, with the bookies that have them.
        removed: bookies that were seen without ledgers for the first time, with what they had.
        overdue: bookies that were not seen without a ledger for longer than the retention, with how many ledgers.
        collection_stops: why bookies may keep deleted ledgers until they are started again; empty: they do not.
    """

    confirmed: list[LedgerId] = field(default_factory=list)
    waiting: dict[LedgerId, tuple[str, ...]] = field(default_factory=dict)
    returned: dict[LedgerId, tuple[str, ...]] = field(default_factory=dict)
    overdue: dict[str, int] = field(default_factory=dict)
    removed: dict[str, RemovedCopies] = field(default_factory=dict)
    collection_stops: str = ""

    @property
    def removed_in_all(self) -> RemovedCopies:
        """What all bookies removed together; `ledgers` counts a ledger once for each of its bookies."""
        total = RemovedCopies()
        for item in self.removed.values():
            total.ledgers += item.ledgers
            total.entries = None if item.entries is None or total.entries is None else total.entries + item.entries
            total.bytes = None if item.bytes is None or total.bytes is None else total.bytes + item.bytes
        return total


def confirm_deletes(request: ConfirmRequest, context: Context) -> Receipts:
    """Look at bookies for the ledgers whose records were removed, and record who was seen without them.

    Raises:
        DatasetError: an inventory is missing or damaged.
        GuardRefusedError: what is at the key of our own root is not ours.
        UnavailableError: the store does not answer.
    """
    with open_deletes(request.target, context) as target:
        is_asked = request.looks.wire is not None
        records = {item.ledger: item.record.raw if is_asked else b"" for item in _iterate_removed(target)}
        wanted = WantedLedgers(list(records))
        with gather_inventories(request.looks, target.opened, target.cluster.layout, records, context) as inventories:
            holdings = gather_holdings(inventories, wanted)
        numbers = {ledger: number for number, ledger in enumerate(wanted.ledgers)}
        at_ms = now_ms(context)
        seen: dict[LedgerId, _Seen] = {}

        def take(tombstone: Tombstone) -> Tombstone:
            changed = take_sightings(tombstone, list_sightings(holdings, numbers[tombstone.ledger]), at_ms, target.by)
            seen[tombstone.ledger] = _Seen(
                changed.state is DeleteState.CONFIRMED,
                list_waiting(changed),
                list_returned(tombstone, changed),
                list_overdue(changed, at_ms, request.retention_ms),
                list_released(tombstone, changed),
                tombstone.record.raw,
            )
            return changed

        _change(target, wanted.ledgers, take)
        receipts = _sum_up(seen)
        if receipts.waiting and not kind_of(target.cluster.layout).has_replication:
            receipts.collection_stops = COLLECTION_STOPS
        counts = {"confirmed": len(receipts.confirmed), "waiting": len(receipts.waiting)}
        target.log.end({**counts, "returned": len(receipts.returned)}, 0)
    return receipts


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a look shows of one ledger; see `Receipts`."""

    is_confirmed: bool
    waiting: tuple[str, ...]
    returned: tuple[str, ...]
    overdue: tuple[str, ...]
    released: tuple[Holder, ...]
    record: bytes


def _sum_up(seen: Mapping[LedgerId, _Seen]) -> Receipts:
    receipts = Receipts()
    released = [ledger for ledger, item in seen.items() if item.released]
    records = ledger_metadata.decode_columns(pa.array([seen[ledger].record for ledger in released], pa.binary()))
    ends, lengths = (dict(zip(released, records[name].to_pylist(), strict=True)) for name in ("last_entry", "length"))
    for ledger, item in sorted(seen.items()):
        if item.is_confirmed:
            receipts.confirmed.append(ledger)
        else:
            receipts.waiting[ledger] = item.waiting
        if item.returned:
            receipts.returned[ledger] = item.returned
        for holder in item.released:
            of_all = None if ends[ledger] is None else ends[ledger] + 1
            receipts.removed.setdefault(holder.bookie, RemovedCopies()).add(holder.entries, of_all, lengths[ledger])
        for bookie in item.overdue:
            receipts.overdue[bookie] = receipts.overdue.get(bookie, 0) + 1
    return receipts


def decommission_bookie(target: DeleteTarget, bookie: str, context: Context) -> int:
    """Record that a bookie was taken out of service with its disks; return how many tombstones that concerns.

    Raises:
        GuardRefusedError: the bookie is registered; or what is at the key of our own root is not ours.
        UnavailableError: the store does not answer.
    """
    with open_deletes(target, context) as opened:
        base = opened.cluster.root
        if any(name == bookie for _, name in list_registered(opened.cluster.store, base)):
            problem = "is registered: it is in service"
            raise GuardRefusedError(f"bookie {bookie}", problem, "stop it and take its disks out of service first")
        at_ms = now_ms(context)
        concerned = [
            item.ledger for item in _iterate_removed(opened) if decommission(item, bookie, at_ms, opened.by) != item
        ]
        _change(opened, concerned, lambda item: decommission(item, bookie, at_ms, opened.by))
        opened.log.end({"decommissioned": len(concerned)}, 0)
    return len(concerned)


def expire_tombstones(target: DeleteTarget, retention_ms: int, context: Context) -> tuple[list[LedgerId], int]:
    """Remove the tombstones whose ledgers nobody holds, after the retention; return them, and how many are kept.

    Raises:
        GuardRefusedError: what is at the key of our own root is not ours, or the clock is not the store's.
        UnavailableError: the store does not answer.
    """
    with open_deletes(target, context) as opened:
        require_clock(opened.cluster.store, opened.own, context.now, opened.by, opened.log)
        at_ms = now_ms(context)
        expired, kept = list[LedgerId](), 0
        for item in _iterate_removed(opened):
            if is_expired(item, at_ms, retention_ms):
                expired.append(item.ledger)
            else:
                kept += 1

        def decide(_ledger: LedgerId, tombstone: Tombstone | None) -> PackedDecision[Tombstone] | None:
            may_go = tombstone is not None and is_expired(tombstone, at_ms, retention_ms)
            return PackedDecision(None) if may_go else None

        opened.own.tombstones.change(expired, decide, opened.log, rows=_ROWS)
        opened.log.end({"expired": len(expired)}, 0)
    return expired, kept


def _iterate_removed(target: OpenDeletes) -> Iterator[Tombstone]:
    """Yield the tombstones of removed ledgers; one node of them is in memory at a time."""
    return (item for node in target.own.tombstones.read_all() for item in node if item.state in REMOVED)


def _change(target: OpenDeletes, ledgers: Sequence[LedgerId], change: Callable[[Tombstone], Tombstone]) -> None:
    def decide(_ledger: LedgerId, tombstone: Tombstone | None) -> PackedDecision[Tombstone] | None:
        if tombstone is None or tombstone.state not in REMOVED:
            return None
        changed = change(tombstone)
        return None if changed == tombstone else PackedDecision(changed)

    target.own.tombstones.change(ledgers, decide, target.log, rows=_ROWS)
