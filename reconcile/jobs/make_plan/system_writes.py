"""The writes of a plan that are of no ledger: generators, LAYOUT, instance id, cookies."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.compare.evidence import sort_newest_first
from reconcile.jobs.make_plan.request import PlanRequest
from reconcile.plan.actions import LEAVE, Phase, SystemWrite
from reconcile.rules import used_ids
from recovery.codecs import store


@dataclass(frozen=True, slots=True)
class _Node:
    """What the store has at a key: its value, and the children that it ever had."""

    raw: bytes | None
    children_created: int | None


def list_system_writes(
    request: PlanRequest, bookies: pa.Table, taken: Mapping[str, int], *, with_cookies: bool
) -> list[SystemWrite]:
    """Return what a cluster needs besides ledgers, as far as the store does not have it already.

    Args:
        request: what the plan is made of.
        bookies: BOOKIES of all inventories.
        taken: key of each generator to the largest number that it is raised past.
        with_cookies: create the cookies of bookies that were read completely.
    """
    nodes: dict[str, _Node] = {}
    if request.live is not None:
        for row in request.live.read("nodes", columns=["path", "raw", "children_created"]).to_pylist():
            nodes[row["path"]] = _Node(row["raw"], row["children_created"])
    places = store.places(request.layout)
    writes = [
        SystemWrite(Phase.GENERATORS, "raise", "generator", counter, str(largest).encode())
        for counter, largest in sorted(taken.items())
        if used_ids.is_behind(nodes[counter].children_created if counter in nodes else None, largest)
    ]
    wanted = [SystemWrite(Phase.LAYOUT, "create", "node", folder, b"") for folder in places.folders]
    wanted.append(SystemWrite(Phase.LAYOUT, "create", "layout", places.layout, store.layout_bytes(request.layout)))
    instances = sorted({i for i in bookies["instance_id"].to_pylist() if i is not None}) or _snapshot_instances(request)
    wanted += [
        SystemWrite(Phase.INSTANCE_ID, "create", "instance_id", places.instance_id, i.encode()) for i in instances
    ]
    if with_cookies:
        wanted += [
            SystemWrite(Phase.COOKIES, "create", "cookie", f"{places.cookies}/{row['bookie']}", row["cookie"])
            for row in bookies.select(["bookie", "complete", "cookie"]).to_pylist()
            if row["complete"] and row["cookie"] is not None
        ]
    # LAYOUT and instance id are always named: that binds the plan to a store that has these, or none.
    bound = ("layout", "instance_id")
    writes += [write for write in wanted if write.kind in bound or write.key not in nodes]
    # Another cookie in the store is replaced only where a person names it.
    return writes + [
        replace(write, op=LEAVE)
        for write in wanted
        if write.kind == "cookie" and write.key in nodes and nodes[write.key].raw != write.value
    ]


def _snapshot_instances(request: PlanRequest) -> list[str]:
    """Return the instance id of the newest snapshot that has one."""
    for catalog in sort_newest_first(request.snapshots):
        nodes = catalog.dataset.read("nodes", columns=["kind", "raw"])
        raws = nodes.filter(pc.equal(nodes["kind"], "instance_id"))["raw"].to_pylist()
        if raws:
            return sorted(raw.decode(errors="replace") for raw in raws)
    return []
