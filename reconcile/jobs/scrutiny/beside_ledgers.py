"""What is beside the ledgers of a scrutiny: nodes of the store, marks of no ledger, data of deleted ledgers.

Tombstones of the captured store are held against what bookies have now; nodes are read again before they are reported.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.clusters import list_named
from reconcile.deletes.own_root import name_own_root, read_tombstones
from reconcile.deletes.tombstones import DeleteState, Tombstone, list_returned, take_sightings
from reconcile.deletes.verification.evidence import gather_holdings, list_sightings
from reconcile.deletes.verification.wanted import WantedLedgers
from reconcile.findings.categories import Category
from reconcile.findings.table import Finding, FindingRun, FindingStatement, LedgerKey
from reconcile.jobs.context import Context, now_ms
from reconcile.jobs.deletes.looks import Looks, gather_inventories
from reconcile.jobs.deletes.resurrection import read_removed
from reconcile.jobs.scrutiny.first_look import AskedBookies
from reconcile.jobs.scrutiny.range_task import read_all
from reconcile.jobs.scrutiny.request import ScrutinyRequest
from reconcile.rules import nodes as beside
from reconcile.rules import used_ids
from reconcile.stores import of_catalog
from recovery.capture.records import read_nodes_again
from recovery.codecs.store import Layout, ledger_key, mark_key
from recovery.codecs.store import places as places_of
from recovery.dataset import Dataset
from recovery.model import tables
from recovery.model.ids import LedgerId

if TYPE_CHECKING:
    from backends.registry import OpenStore

_UNKNOWN_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OF_CLUSTER: Final = ["layout", "instance_id", "cookie", "registration"]
"""Kinds of nodes that are read again together: a finding of one may rest on all of them."""
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
        damaged.append(Finding(Category.REFERENCE_UNREADABLE, key, [FindingStatement("store", "tombstones", why)]))

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
    wanted = WantedLedgers(list(known))
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
    purged = next(step for step in reversed(tombstone.steps) if step.state is DeleteState.PURGED)
    when = datetime.fromtimestamp(purged.at_ms / 1000, UTC).isoformat(timespec="seconds")
    statements = [
        FindingStatement("store", "tombstone", f"purged {when} by {purged.by}", "tombstones"),
        FindingStatement("store", "reason", tombstone.reason or None, "tombstones"),
        FindingStatement("bookies", "have it again", ", ".join(bookies), "look"),
    ]
    key = LedgerKey(ledger.bucket, ledger.scope, ledger.ledger)
    return Finding(Category.ENTRIES_OF_DELETED_LEDGER, "ledger", statements, key, bookies=bookies)


def find_stale_marks(
    opened: "OpenStore", catalog: Dataset, layout: Layout, ranges: Sequence[range], run: FindingRun
) -> Iterator[pa.Table]:
    """Yield FINDINGS of marks whose ledgers the store does not list; both are read again.

    Args:
        opened: the live store.
        catalog: of it.
        layout: of it.
        ranges: of buckets.
        run: this one.
    """
    nodes, root = catalog.read("nodes", columns=["path", "kind"]), opened.root.rstrip("/")
    has_marks = pc.any(pc.equal(nodes["kind"], "mark")).as_py()
    for part in ranges if has_marks else ():
        stored = catalog.read("ledgers", buckets=part, columns=list(tables.KEY_COLUMNS))
        rows = beside.find_stale_marks(nodes, stored, part, run, opened.uri)
        marked = [LedgerId(row["scope"], row["ledger"]) for row in rows.select(["scope", "ledger"]).to_pylist()]
        marks = [root + mark_key(ledger) for ledger in marked]
        keys = [root + _name_record(layout, ledger) for ledger in marked]
        now = {key: node is not None for key, node in opened.store.get_many([*marks, *keys])} if marks else {}
        stand = [now[mark] and not now[key] for mark, key in zip(marks, keys, strict=True)]
        yield rows.filter(pa.array(stand, pa.bool_()))


def _name_record(layout: Layout, ledger: LedgerId) -> str:
    """Return the key of a ledger's record; the layout may have no place for an id that a mark names."""
    try:
        return ledger_key(layout, ledger)
    except ValueError:
        return f"/{ledger}"


def find_beside(
    opened: "OpenStore",
    catalog: Dataset,
    layout: Layout,
    bookies: AskedBookies,
    answers: Sequence[Mapping[str, Any]],
    earlier_store: Dataset | None,
) -> list[Finding]:
    """Return the findings of what is beside the ledgers: cookies, sessions, generators, layout, instance id.

    Args:
        opened: the live store.
        catalog: of it.
        layout: of it.
        bookies: who was asked.
        answers: of the tasks.
        earlier_store: the store as the run before saw it; None: there is none.
    """
    nodes = catalog.read("nodes")
    used = [used_ids.UsedNumbers(**answer["used"]) for answer in answers]
    counters = used_ids.numbers(layout, used_ids.of_counters([(nodes, layout)]))
    raises = used_ids.decide_raises([counters, *used])
    source = next(iter(catalog.read("sources", columns=["uri"])["uri"].to_pylist()), catalog.path)
    complete = bool(catalog.manifest["coverage"].get("complete"))
    rows = read_all(bookies.given, "bookies").select(["bookie", "cookie", "instance_id"]).to_pylist()
    about = beside.InventoriedBookies(
        {row["bookie"]: row["cookie"] for row in rows},
        sorted({row["instance_id"] for row in rows if row["instance_id"] is not None}),
    )
    earlier = _read_names(earlier_store, layout)
    taken_at = next(iter(catalog.read("sources", columns=["at"])["at"].drop_null().to_pylist()), _UNKNOWN_TIME)

    def find(now: pa.Table) -> Iterator[Finding]:
        store = beside.Side.from_catalog("store", source, now, catalog.rows("ledgers"), complete=complete)
        return beside.findings(
            store, earlier, about, layout=layout, taken=raises.taken, raised=frozenset(), now=taken_at
        )

    # While a capture reads one node after the other, the cluster goes on: only what a second read shows, too, counts.
    seen = list(find(nodes))
    first = {(finding.category, finding.subject) for finding in seen}
    findings: list[Finding] = []
    if first:
        named = nodes["path"].filter(pc.is_in(nodes["kind"], value_set=pa.array(_OF_CLUSTER))).to_pylist()
        # A bookie that restarted during the capture may have no registration in it.
        names = {name for finding in seen for name in finding.bookies}
        registrations = [f"{folder}/{name}" for folder in places_of(layout).registrations for name in names]
        paths = [*named, *registrations, *(subject for _, subject in first)]
        latest_nodes = read_nodes_again(opened.store, opened.root, nodes, paths)
        findings = [finding for finding in find(latest_nodes) if (finding.category, finding.subject) in first]
    # A bookie that is down is no harm by itself: what it should hold is looked at, and whether its ledgers are marked.
    quiet = Category.COOKIE_WITHOUT_BOOKIE
    return [replace(finding, severity="info") if finding.category is quiet else finding for finding in findings]


def _read_names(earlier: Dataset | None, layout: Layout) -> beside.Side | None:
    """Return what never changes while a cluster lives, as the run before saw it; cookies and sessions may change."""
    if earlier is None:
        return None
    places, nodes = places_of(layout), earlier.read("nodes")
    constant = pc.is_in(nodes["path"], value_set=pa.array([places.layout, places.instance_id]))
    return beside.Side.from_catalog("earlier", "the run before", nodes.filter(constant), 0, complete=False)
