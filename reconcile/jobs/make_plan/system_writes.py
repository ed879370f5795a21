"""The writes of a plan that are of no ledger: generators, LAYOUT, instance id, cookies."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.compare.evidence import sort_newest_first
from reconcile.jobs.make_plan.known_bookies import WantedCookie
from reconcile.jobs.make_plan.request import PlanRequest
from reconcile.plan.actions import LEAVE, PlanPhase, SystemWrite
from reconcile.plan.bookie_starts import KnownBookie, StoredCookie
from reconcile.rules import used_ids
from recovery.codecs import store
from recovery.codecs.blocking_cookie import is_blocking


@dataclass(frozen=True, slots=True)
class _Node:
    """What the store has at a key: its value with its version, and the children that it ever had."""

    raw: bytes | None
    version: int
    children_created: int | None


@dataclass(frozen=True, slots=True)
class SystemWrites:
    """The writes that are of no ledger, and what comes of the bookies' cookies.

    Attributes:
        writes: in the order of their phases.
        bookies: every bookie that is known, with what the store has of it when these are made.
    """

    writes: list[SystemWrite]
    bookies: tuple[KnownBookie, ...]


def list_system_writes(
    request: PlanRequest,
    bookies: pa.Table,
    taken: Mapping[str, int],
    cookies: Sequence[WantedCookie],
    *,
    with_cookies: bool,
) -> SystemWrites:
    """Return what a cluster needs besides ledgers, as far as the store does not have it already.

    Args:
        request: what the plan is made of.
        bookies: BOOKIES of all inventories.
        taken: key of each generator to the largest number that it is raised past.
        cookies: that the store is to have.
        with_cookies: write them.
    """
    nodes: dict[str, _Node] = {}
    if request.live is not None:
        for row in request.live.read("nodes", columns=["path", "raw", "version", "children_created"]).to_pylist():
            nodes[row["path"]] = _Node(row["raw"], row["version"], row["children_created"])
    places = store.places(request.layout)
    writes = [
        SystemWrite(PlanPhase.GENERATORS, "raise", "generator", counter, str(largest).encode())
        for counter, largest in sorted(taken.items())
        if used_ids.is_behind(nodes[counter].children_created if counter in nodes else None, largest)
    ]
    wanted = [SystemWrite(PlanPhase.LAYOUT, "create", "node", folder, b"") for folder in places.folders]
    wanted.append(SystemWrite(PlanPhase.LAYOUT, "create", "layout", places.layout, store.layout_bytes(request.layout)))
    instances = sorted({i for i in bookies["instance_id"].to_pylist() if i is not None}) or _snapshot_instances(request)
    wanted += [
        SystemWrite(PlanPhase.INSTANCE_ID, "create", "instance_id", places.instance_id, i.encode()) for i in instances
    ]
    # LAYOUT and instance id are always named: that binds the plan to a store that has these, or none.
    bound = ("layout", "instance_id")
    writes += [write for write in wanted if write.kind in bound or write.key not in nodes]
    keys = {cookie.known.bookie: f"{places.cookies}/{cookie.known.bookie}" for cookie in cookies}
    made = list(_write_cookies(cookies, keys, nodes)) if with_cookies else []
    written = {write.key: write.value for write in made if write.op != LEAVE}
    known = []
    for cookie in cookies:
        key = keys[cookie.known.bookie]
        stored = nodes[key].raw if key in nodes else None
        compare = cookie.known.compare
        known.append(replace(cookie.known, stored=compare(stored), planned=compare(written.get(key, stored))))
    return SystemWrites([*writes, *made], tuple(known))


def _write_cookies(
    cookies: Sequence[WantedCookie], keys: Mapping[str, str], nodes: Mapping[str, _Node]
) -> Iterator[SystemWrite]:
    """Yield the writes of cookies; one that the store has is replaced only where it is a blocking one of ours."""
    for cookie in cookies:
        write = SystemWrite(PlanPhase.COOKIES, "create", "cookie", keys[cookie.known.bookie], cookie.raw)
        node = nodes.get(write.key)
        if node is None:
            yield write
        elif node.raw is not None and is_blocking(node.raw) and not is_blocking(cookie.raw):
            yield replace(write, op="replace", expects=node.version, before=node.raw)
        elif cookie.is_of_disks and cookie.known.compare(node.raw) is StoredCookie.OTHER:
            # Another cookie in the store is replaced only where a person names it.
            yield replace(write, op=LEAVE)


def _snapshot_instances(request: PlanRequest) -> list[str]:
    """Return the instance id of the newest snapshot that has one."""
    for catalog in sort_newest_first(request.snapshots):
        nodes = catalog.dataset.read("nodes", columns=["kind", "raw"])
        raws = nodes.filter(pc.equal(nodes["kind"], "instance_id"))["raw"].to_pylist()
        if raws:
            return sorted(raw.decode(errors="replace") for raw in raws)
    return []
