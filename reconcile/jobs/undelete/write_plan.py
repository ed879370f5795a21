"""The plan of an undelete: the tables, and the manifest with its hash."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backends.protocols import MetadataStore
from reconcile.jobs.undelete.history import IDS, Mask
from reconcile.jobs.undelete.request import DeletedSelection, UndeleteRequest
from reconcile.jobs.undelete.topics import NodeWrites
from reconcile.plan.actions import (
    LEAVE,
    Passwords,
    PlanPhase,
    SystemWrite,
    make_ledger_actions,
    make_system_actions,
    phase_of,
)
from reconcile.plan.entry_shares import count_entries
from reconcile.plan.manifest import (
    HistorySource,
    InputDataset,
    PlanBinding,
    PlanCounts,
    PlanManifest,
    SubtreeCounts,
    write_plan_manifest,
)
from reconcile.plan.plan_hash import Hashes, bucket_hashes
from reconcile.rules import used_ids
from reconcile.rules.sides import Relation
from recovery.codecs.store import Layout, place_key
from recovery.codecs.store import places as store_places
from recovery.dataset import Dataset, prepare, write_part
from recovery.infer.snapshot_records import restore_as_recorded
from recovery.manifest import Part
from recovery.model import tables
from recovery.model.coverage import Coverage

_UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanParts:
    """What a plan is made of.

    Attributes:
        catalog: CATALOG_LEDGERS of the records that come back, in the order of a plan.
        copied: which of them a copy of the store has, and no history.
        deletes: scope, ledger, txn, at_ms and session of deletes, each ledger once.
        on_bookies: of which of them an inventory has anything.
        nodes: what becomes of nodes of topics; None: there are none.
        source: where the latter are from; empty: nowhere.
    """

    catalog: pa.Table
    copied: Mask
    deletes: pa.Table
    on_bookies: Mask
    nodes: NodeWrites | None
    source: str


def write_plan(
    request: UndeleteRequest,
    parts: PlanParts,
    store: MetadataStore,
    root: str,
    layout: Layout,
    instances: Sequence[str],
    histories: Sequence[tuple[str, int | None]],
    inventories: Sequence[Dataset],
    now: datetime,
) -> PlanManifest:
    """Write a plan; return what it says about itself.

    Args:
        request: of the undelete.
        parts: what it is made of.
        store: that lost the ledgers.
        root: key of its ledgers root, without a slash at its end.
        layout: of it.
        instances: its instance ids.
        histories: uri and last transaction of what remembers deletes.
        inventories: that were looked at.
        now: the time.

    Raises:
        DatasetError: the disk is full or refuses.
    """
    out = request.out
    prepare(out, "plan", secret=True)
    rows = restore_as_recorded(parts.catalog)
    actions = make_ledger_actions(rows, layout, Passwords.from_candidates(()), b"")
    sides = _make_sides(parts)
    system = make_system_actions(_list_system_writes(store, root, layout, sides))
    split = sum(phase_of(seq) < PlanPhase.LEDGERS for seq in system["seq"].to_pylist())
    nodes = tables.ACTIONS.empty_table() if parts.nodes is None else parts.nodes.actions

    def write(table: str, name: str, content: pa.Table) -> Part:
        return write_part(out, table, name, [content], secret=True)

    files = {
        "actions": [
            write("actions", "system-first", system.slice(0, split)),
            write("actions", "ledgers", actions),
            *([write("actions", "subtrees", nodes)] if nodes.num_rows else []),
            write("actions", "system-last", system.slice(split)),
        ],
        **{name: [write(name, "ledgers", content)] for name, content in (("reconstruction", rows), ("sides", sides))},
        **{name: [write(name, "none", tables.PLAN[name].empty_table())] for name in ("findings", "candidates")},
    }
    left = nodes["op"].to_pylist().count(LEAVE)
    count = rows.num_rows
    manifest = PlanManifest(
        binding=PlanBinding(
            instance_ids=tuple(instances),
            layout=str(layout),
            root=root or "/",
            made=now.isoformat(timespec="seconds"),
            inputs=tuple(InputDataset("inventory", inventory.path, inventory.digest) for inventory in inventories),
            options={"undelete": _describe_selection(request.selection)},
        ),
        coverage=_cover(inventories),
        counts=PlanCounts(
            ledgers=count,
            restored=count,
            looked_at=count,
            undecided=count,
            left_alone=left,
            actions=sum(part.rows for part in files["actions"]),
            **{f"entries_{share}": entries for share, entries in count_entries(rows).items()},
        ),
        sides={name: sides["relation"].to_pylist().count(name) for name in sorted(set(sides["relation"].to_pylist()))},
        histories=tuple(HistorySource(uri, txn, chosen=False) for uri, txn in histories),
        subtrees=_count_nodes(parts),
        settings=request.settings,
    )
    hashes = Hashes()
    hashes.add(actions, rows)
    hashes.actions.update(bucket_hashes(system) | bucket_hashes(nodes))
    return write_plan_manifest(out, manifest, files, hashes)


def _describe_selection(selection: DeletedSelection) -> dict[str, Any]:
    """Return what was chosen, for the manifest; ledgers that were named are counted."""
    edges = {"begin": selection.begin, "end": selection.end}
    return {
        "ledgers": len(selection.ledgers),
        "topic": selection.topic,
        "sessions": list(selection.sessions),
        **{
            name: None if edge is None else {"txn": edge.zxid} if edge.ms is None else {"ms": edge.ms}
            for name, edge in edges.items()
        },
    }


def _make_sides(parts: PlanParts) -> pa.Table:
    """Return SIDES of the ledgers that come back."""
    catalog, count = parts.catalog, parts.catalog.num_rows
    keys = catalog.select(list(tables.KEY_COLUMNS)).append_column("at", pa.array(np.arange(count)))
    how = parts.deletes.select([*IDS, "txn", "at_ms", "session"])
    joined = keys.join(how, list(IDS), join_type="left outer").sort_by("at")
    is_known = pc.is_valid(joined["txn"]).to_numpy()
    times = joined["at_ms"].cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
    given = {
        **{name: catalog[name] for name in tables.KEY_COLUMNS},
        "on_bookies": pa.array(parts.on_bookies),
        "in_store": pa.array(np.zeros(count, np.bool_)),
        "in_earlier": pa.array(parts.copied),
        "relation": pa.array(np.where(is_known, str(Relation.DELETED), str(Relation.SNAPSHOT_ONLY))),
        "right": pa.array(np.where(is_known, "history", "earlier")),
        "deleted_txn": joined["txn"],
        "deleted_at": times,
        "deleted_session": joined["session"],
        "verdict": pa.array([_UNDECIDED] * count, pa.string()),
    }
    columns = {field.name: given.get(field.name, pa.nulls(count, field.type)) for field in tables.SIDES}
    return pa.table(columns, schema=tables.SIDES)


def _list_system_writes(store: MetadataStore, root: str, layout: Layout, sides: pa.Table) -> list[SystemWrite]:
    """Return what binds the plan to its store, and raises of generators that are behind the ids that come back."""
    places = store_places(layout)
    ids = sides["ledger"].filter(pc.equal(sides["scope"], 0)).to_numpy()
    taken = used_ids.decide_raises([used_ids.numbers(layout, used_ids.NamedIds(recorded=ids))]).taken
    nodes = dict(store.get_many([place_key(root, key) for key in taken]))
    writes = [
        SystemWrite(PlanPhase.GENERATORS, "raise", "generator", key, str(largest).encode())
        for key, largest in sorted(taken.items())
        if used_ids.is_behind(None if (node := nodes[place_key(root, key)]) is None else node.children_created, largest)
    ]
    for phase, kind, key in (
        (PlanPhase.LAYOUT, "layout", places.layout),
        (PlanPhase.INSTANCE_ID, "instance_id", places.instance_id),
    ):
        stored = store.get(root + key)
        if stored is not None:
            writes.append(SystemWrite(phase, "create", kind, key, stored.value))
    return writes


def _cover(inventories: Sequence[Dataset]) -> Coverage:
    scanned: dict[str, bool] = {}
    for inventory in inventories:
        for row in inventory.read("bookies", columns=["bookie", "complete"]).to_pylist():
            scanned[row["bookie"]] = row["complete"]
    return Coverage.count(scanned, {})


def _count_nodes(parts: PlanParts) -> tuple[SubtreeCounts, ...]:
    nodes = parts.nodes
    if nodes is None or not nodes.actions.num_rows:
        return ()
    total = nodes.created + nodes.differing
    return (SubtreeCounts(nodes.top, parts.source, nodes=total, created=nodes.created, differing=nodes.differing),)
