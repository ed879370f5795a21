"""What a plan asks of an upper layer: the room of one, such as `reconcile.pulsar`, answers it.

question                                       asked by
which nodes of a snapshot are its own          the plan, of the subtrees that it brings back
what speaks against the ledgers coming back    the plan: findings of nodes; candidates for ledgers without a node
how ledgers get a node                         an edit of a plan: nodes that name ledgers after the snapshot
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from reconcile.compare.evidence import Catalog
from reconcile.findings.table import Finding
from reconcile.plan.manifest import SubtreeCounts
from reconcile.plan.upper_layers.node_edits import NodeWrite
from recovery.dataset import Dataset
from recovery.manifest import Part
from recovery.model.ids import LedgerId
from recovery.place import DatasetPlace


@dataclass(frozen=True, slots=True, eq=False)
class LayerSources:
    """What an upper layer's part of a plan is made of.

    Attributes:
        snapshot: that the nodes are taken from.
        catalogs: the store and the snapshots, the newest first.
        issued: id below which the snapshot knew every ledger that was not deleted.
        ranges: RECONSTRUCTION and SIDES, range by range.
        out: the plan's folder.
        live: catalog of the store.
    """

    snapshot: Catalog
    catalogs: Sequence[Catalog]
    issued: int
    ranges: Sequence[tuple[Part, Part]]
    out: DatasetPlace
    live: Dataset | None = None


@dataclass(frozen=True, slots=True)
class LayerPart:
    """An upper layer's part of a plan.

    Attributes:
        findings: of its nodes.
        candidates: parts of CANDIDATES, in their order.
        counts: candidates by the best that is known of each.
    """

    findings: tuple[Finding, ...] = ()
    candidates: tuple[Part, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Adoption:
    """Ledgers of a plan that get a node of an upper layer.

    Attributes:
        owners: ledger → whose it becomes.
        named: ledgers that other nodes name, each with what it is, for people.
        nodes: path in the store → node.
        left: ledgers without a node, though they say whose they are: each with the reason.
    """

    owners: Mapping[LedgerId, str] = field(default_factory=dict)
    named: Mapping[LedgerId, str] = field(default_factory=dict)
    nodes: Mapping[str, NodeWrite] = field(default_factory=dict)
    left: Mapping[LedgerId, str] = field(default_factory=dict)


class UpperLayer(Protocol):
    """An upper layer, whose nodes a plan brings back."""

    def owns(self, subtrees: Sequence[SubtreeCounts]) -> bool:
        """Say whether subtrees of a plan have its nodes."""

    def plan(self, sources: LayerSources) -> LayerPart:
        """Return its part of a plan.

        Raises:
            DatasetError: a file is gone or damaged, or the plan cannot be written.
        """

    def adopt(
        self,
        plan: Dataset,
        chosen: Mapping[LedgerId, str],
        lost: Collection[LedgerId],
        replaced: Collection[str],
        *,
        recorded: bool,
    ) -> Adoption:
        """Return the nodes that name ledgers which are younger than the snapshot.

        Args:
            plan: that brings its nodes back.
            chosen: ledger → whose it becomes, as a person says.
            lost: ledgers that a person gives up.
            replaced: paths at and below which the snapshot's nodes replace the store's in the same edit.
            recorded: ledgers whose own record says whose they are get a node, too.

        Raises:
            DatasetError: a file of the plan is gone or damaged.
            PlanError: a node cannot name a chosen ledger, or the plan does not bring that back to its end.
        """
