"""Pulsar's answers to what a plan asks of an upper layer."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from reconcile.plan.manifest import SubtreeCounts
from reconcile.plan.upper_layers.layer import Adoption, LayerPart, LayerSources
from reconcile.pulsar.adoption import Adoptable, append_adopted, select_adoptable
from reconcile.pulsar.candidates import Sources, write_candidates
from reconcile.pulsar.cursors import find_beyond
from reconcile.pulsar.topic_records import read_topic_records
from reconcile.pulsar.younger_nodes import YoungerNodes, make_younger
from recovery.capture.subtrees import TOPICS
from recovery.dataset import Dataset
from recovery.model.ids import LedgerId

if TYPE_CHECKING:
    from reconcile.pulsar.producers import ReadHeads


class PulsarLayer:
    """Pulsar's topics, subscriptions and schemas; an `UpperLayer`.

    Args:
        read_heads: reads what entries have of Pulsar; None: no entries are read.
    """

    def __init__(self, read_heads: "ReadHeads | None" = None) -> None:
        self._read_heads = read_heads

    def owns(self, subtrees: Sequence[SubtreeCounts]) -> bool:
        return any(count.path.endswith(TOPICS) for count in subtrees)

    def plan(self, sources: LayerSources) -> LayerPart:
        snapshot = sources.snapshot.dataset
        records = read_topic_records(snapshot)
        parts = [reconstruction for reconstruction, _ in sources.ranges]
        beyond = tuple(find_beyond(snapshot, records.cursors, sources.out, parts, sources.live))
        searched = Sources(
            sources.snapshot, sources.catalogs, sources.issued, records, sources.out, sources.live, self._read_heads
        )
        candidates = write_candidates(searched, sources.ranges)
        return LayerPart(beyond, candidates.parts, candidates.counts)

    def adopt(
        self,
        plan: Dataset,
        chosen: Mapping[LedgerId, str],
        lost: Collection[LedgerId],
        replaced: Collection[str],
        *,
        recorded: bool,
    ) -> Adoption:
        adoptable, younger = Adoptable({}, {}), YoungerNodes()
        if recorded:
            adoptable = select_adoptable(plan, {*chosen, *lost}, replaced)
        owners = {**adoptable.topics, **chosen}
        nodes = append_adopted(plan, owners, replaced)
        if recorded:
            younger = make_younger(plan, nodes, replaced)
        return Adoption(owners, younger.ledgers, {**nodes, **younger.writes}, {**adoptable.left, **younger.left})


PULSAR: Final = PulsarLayer()
"""Without what is in entries."""
