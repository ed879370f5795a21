"""Data of deleted ledgers that came back: tombstones of the captured store, held against what bookies have now."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from reconcile.clusters import list_named
from reconcile.deletes.own_root import name_own_root, read_tombstones
from reconcile.deletes.tombstones import State, Tombstone, list_returned, take_sightings
from reconcile.deletes.verification.evidence import gather_holdings, list_sightings
from reconcile.deletes.verification.wanted import Wanted
from reconcile.findings.categories import Category
from reconcile.findings.table import Finding, LedgerKey, Statement
from reconcile.jobs.context import Context
from reconcile.jobs.deletes.clusters import now_ms
from reconcile.jobs.deletes.looks import Looks, gather_inventories
from reconcile.jobs.deletes.resurrection import read_removed
from reconcile.jobs.scrutiny.request import ScrutinyRequest
from reconcile.stores import of_catalog
from recovery.codecs.store import Layout
from recovery.dataset import Dataset

if TYPE_CHECKING:
    from backends.registry import OpenStore

_AT_A_TIME: Final = 20_000
"""Deleted ledgers that bookies are looked at for together, at least, where there are so many."""


def list_returned_data(
    request: ScrutinyRequest, opened: "OpenStore", catalog: Dataset, layout: Layout, context: Context
) -> Iterator[Finding]:
    """Yield a finding for each deleted ledger that bookies have again, and for tombstones that cannot be read.

    Bookies that were never seen without a ledger may not have deleted it yet: of them nothing is said here.

    Args:
        request: of the scrutiny.
        opened: the live store.
        catalog: of it.
        layout: of it.
        context: of the job.

    Raises:
        DatasetError: an inventory is damaged.
        UnavailableError: the store does not answer.
    """
    damaged: list[Finding] = []

    def report(key: str, why: str) -> None:
        damaged.append(Finding(Category.REFERENCE_UNREADABLE, key, [Statement("store", "tombstones", why)]))

    looks = Looks(request.inventories, request.wire, aliases=request.aliases)
    waiting: list[Tombstone] = []
    named = list_named(catalog)
    nodes = read_removed(of_catalog(catalog, request.uri), named, report)
    for node in nodes or ():
        waiting += [item for item in node if item.ledger.bucket in request.buckets and _was_released(item)]
        if len(waiting) >= _AT_A_TIME:
            yield from _look(waiting, looks, opened, layout, context)
            waiting = []
    if waiting:
        yield from _look(waiting, looks, opened, layout, context)
    yield from damaged


def _was_released(tombstone: Tombstone) -> bool:
    """Whether any bookie was seen without the ledger."""
    return any(holder.released_ms is not None for holder in tombstone.holders)


def _look(
    tombstones: list[Tombstone], looks: Looks, opened: "OpenStore", layout: Layout, context: Context
) -> Iterator[Finding]:
    known = {item.ledger: item for item in tombstones}
    wanted = Wanted(list(known))
    raws = {ledger: known[ledger].record.raw for ledger in wanted.ledgers}
    with gather_inventories(looks, opened, layout, raws, context) as inventories:
        holdings = gather_holdings(inventories, wanted)
    at_ms = now_ms(context)
    returned: dict[Tombstone, tuple[str, ...]] = {}
    for number, ledger in enumerate(wanted.ledgers):
        tombstone = known[ledger]
        bookies = list_returned(tombstone, take_sightings(tombstone, list_sightings(holdings, number), at_ms, ""))
        if bookies:
            returned[tombstone] = bookies
    if not returned:
        return
    # Looked at again: a delete that was taken back meanwhile is none.
    nodes = read_tombstones(opened.store, name_own_root(opened.root))
    standing = nodes.read_some([item.ledger for item in returned])
    for tombstone, bookies in returned.items():
        if tombstone.ledger in standing:
            yield _make_finding(tombstone, bookies)


def _make_finding(tombstone: Tombstone, bookies: tuple[str, ...]) -> Finding:
    ledger = tombstone.ledger
    purged = next(step for step in reversed(tombstone.steps) if step.state is State.PURGED)
    when = datetime.fromtimestamp(purged.at_ms / 1000, UTC).isoformat(timespec="seconds")
    statements = [
        Statement("store", "tombstone", f"purged {when} by {purged.by}", "tombstones"),
        Statement("store", "reason", tombstone.reason or None, "tombstones"),
        Statement("bookies", "have it again", ", ".join(bookies), "look"),
    ]
    key = LedgerKey(ledger.bucket, ledger.scope, ledger.ledger)
    return Finding(Category.ENTRIES_OF_DELETED_LEDGER, "ledger", statements, key, bookies=bookies)
