"""What a plan is made of, and that all of it is of one cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from reconcile import clusters
from reconcile.compare.knowledge import StatedQuorums
from reconcile.plan.actions import Passwords
from reconcile.references import References
from recovery.capture.subtrees import NO_SUBTREES, SubtreeChoice
from recovery.codecs.store import Layout
from recovery.dataset import Dataset
from recovery.infer.lost_disks import LostDisk
from recovery.infer.search import Tail


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What a plan is made of.

    Attributes:
        inventories: inventory folders; each bookie once.
        live: catalog of the store that is to be repaired; None: plan for an empty one.
        snapshots: catalogs of what the store held earlier: sides of the comparison; their (E, W, A) count in the prior.
        layout: of the target.
        root: ledgers root key of the target, for the manifest.
        passwords: candidates.
        expected: bookies that the cluster has, as the operator says; None: not said.
        default_quorum: (E, W, A) where nothing else decides.
        stated_quorums: (E, W, A) of some ledgers, as the operator says.
        tail: where ledgers are closed whose last entries may not have been acknowledged.
        references: what upper layers know of their ledgers.
        lost: disks that are gone for good, as the operator states.
        raise_past: ids up to this one are used, as the operator says, however far above all others they stand.
        aliases: other names of bookies in records → ids.
        subtrees: of upper layers, which are brought back from a snapshot.
        settings: of the run, each with where it came from, for the manifest.
    """

    inventories: tuple[Dataset, ...] = ()
    live: Dataset | None = None
    snapshots: tuple[Dataset, ...] = ()
    layout: Layout
    root: str
    passwords: Passwords
    expected: tuple[str, ...] | None = None
    default_quorum: tuple[int, int, int] | None = None
    stated_quorums: StatedQuorums = field(default_factory=StatedQuorums)
    tail: Tail = Tail.INCLUSIVE
    references: References | None = None
    lost: tuple[LostDisk, ...] = ()
    raise_past: int | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    subtrees: SubtreeChoice = NO_SUBTREES
    settings: Mapping[str, Any] = field(default_factory=dict)


def list_sources(request: PlanRequest, bookies: pa.Table) -> tuple[clusters.InstanceSource, ...]:
    """Return everything that says about which cluster it is, the bookies first; BOOKIES in.

    Raises:
        InputError: a snapshot, or a store of references, is of another cluster than the bookies; than the store, where
            no bookie names one. That the store itself is of another is a finding: somebody may have initialised it
            again, and apply refuses it.
    """
    of_bookies = clusters.of_bookies(bookies)
    live = [_make_source("the store", request.live)] if request.live is not None else []
    snapshots = [_make_source("snapshot", snapshot) for snapshot in request.snapshots]
    snapshots += request.references.stores if request.references is not None else ()
    is_named = any(source.instance_id is not None for source in of_bookies)
    clusters.require_one([*of_bookies, *([] if is_named else live), *snapshots])
    # Nothing is believed of a store that is empty.
    is_empty = request.live is None or not request.live.rows("ledgers")
    return (*of_bookies, *([] if is_empty else live), *snapshots)


def _make_source(title: str, catalog: Dataset) -> clusters.InstanceSource:
    rows = catalog.read("sources")
    uri = next(iter(rows["uri"].to_pylist()), None)
    name = f"{title} {uri} ({catalog.path})" if uri else f"{title} {catalog.path}"
    return clusters.of_catalog(name, rows, catalog.read("nodes", columns=["path", "kind", "raw"]))
