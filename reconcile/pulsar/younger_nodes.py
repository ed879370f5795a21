"""Nodes of subscriptions and schemas that are younger than the snapshot, made of what their own ledgers say.

A subscription's ledger has a record with its name. The node names the ledger, and is at the topic's beginning: a
broker takes the position out of the ledger's last entry (ManagedCursorImpl, recoverFromLedger), and out of the node
only where it cannot. Where a node stands already, that one stays.

The entry of a schema's last version has all that its node says. A node that stands already, with the first of these
versions, gets the others.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.plan.manifest import read_plan_manifest
from reconcile.plan.plan_reader import open_captured_store
from reconcile.plan.upper_layers.node_edits import NodeWrite
from reconcile.plan.views.candidates import OwnLedger, list_own
from reconcile.pulsar.topic_nodes import TopicNode, list_above, read_nodes
from reconcile.references import SCHEMAS
from recovery.capture.subtrees import TOPICS
from recovery.codecs import managed_ledger, pulsar_schema
from recovery.codecs.managed_ledger import ManagedLedger
from recovery.dataset import Dataset
from recovery.errors import FormatError
from recovery.model.ids import LedgerId

_PARTITIONED: Final = "/admin/partitioned-topics"
_NO_TOPIC: Final = "is of a topic that neither the plan nor the store has"


@dataclass(slots=True)
class YoungerNodes:
    """What is made.

    Attributes:
        writes: path in the store → node.
        ledgers: that these nodes name, each with what it is, for people.
        left: ledgers of which no node is made, though they say whose they are: each with the reason.
    """

    writes: dict[str, NodeWrite] = field(default_factory=dict)
    ledgers: dict[LedgerId, str] = field(default_factory=dict)
    left: dict[LedgerId, str] = field(default_factory=dict)


def make_younger(plan: Dataset, topics: Mapping[str, NodeWrite], replaced: Collection[str] = ()) -> YoungerNodes:
    """Make the nodes of the subscriptions and schemas that a plan's candidates have ledgers of.

    Args:
        plan: that brings topics back.
        topics: nodes that the same edit writes.
        replaced: paths at and below which the snapshot's nodes replace the store's in the same edit.

    Raises:
        DatasetError: a file of the plan is gone or damaged.
    """
    last: dict[str, OwnLedger] = {}
    candidates: set[LedgerId] = set()
    tops = [count.path for count in read_plan_manifest(plan).subtrees]
    above = next((top.removesuffix(TOPICS) for top in tops if top.endswith(TOPICS)), "")
    for own in list_own(plan):
        path = _place(own, above)
        candidates.add(own.ledger)
        if path not in last or _order(own) > _order(last[path]):
            last[path] = own
    made = YoungerNodes()
    if last:
        maker = _Maker(plan, above, last, topics, replaced)
        for path, own in sorted(last.items()):
            reason = maker.add(path, own, made)
            if reason is not None:
                made.left[own.ledger] = reason
    made.ledgers = {ledger: owner for ledger, owner in made.ledgers.items() if ledger in candidates}
    return made


def _order(own: OwnLedger) -> tuple[int, bool]:
    """Order what is known of one node: the newest ledger wins, and of its two rows that which has the record."""
    return own.ledger.ledger, own.record is not None


def _place(own: OwnLedger, above: str) -> str:
    """Return the path of the node that names a ledger."""
    if own.subscription is None:
        return f"{above}{SCHEMAS}/{own.topic}"
    return f"{_topic_of(own, above)}/{own.subscription}"


def _topic_of(own: OwnLedger, above: str) -> str:
    if own.subscription is not None:
        return f"{above}{TOPICS}/{own.topic}"
    namespace, _, local = own.topic.rpartition("/")
    return f"{above}{TOPICS}/{namespace}/persistent/{local}"


class _Maker:
    """What a plan, its store and its ledgers say, read once."""

    def __init__(
        self,
        plan: Dataset,
        above: str,
        own: Mapping[str, OwnLedger],
        topics: Mapping[str, NodeWrite],
        replaced: Collection[str],
    ) -> None:
        self._above = above
        self._tops = {count.path for count in read_plan_manifest(plan).subtrees}
        asked = {path for path, ledger in own.items() for path in self._list_asked(path, ledger)}
        self._nodes: Mapping[str, TopicNode] = read_nodes(plan, asked, replaced)
        self._topics = topics
        self._named = {path: _list_named(ledger) for path, ledger in own.items()}
        self._is_back = _list_back(plan, {ledger for named in self._named.values() for ledger in named})

    def _list_asked(self, path: str, own: OwnLedger) -> Iterator[str]:
        topic = _topic_of(own, self._above)
        yield from (path, topic, topic.replace(TOPICS, _PARTITIONED, 1), *list_above(path, self._above))

    def add(self, path: str, own: OwnLedger, made: YoungerNodes) -> str | None:
        """Add the node that names a ledger, if it is needed; return why it cannot be made."""
        node, topic = self._nodes.get(path), _topic_of(own, self._above)
        if own.subscription is not None and node is not None:
            return None
        written = self._topics.get(topic)
        value = written.value if written is not None else self._nodes[topic].value if topic in self._nodes else None
        is_parted = own.subscription is None and topic.replace(TOPICS, _PARTITIONED, 1) in self._nodes
        if value is None and not is_parted:
            return _NO_TOPIC
        for ledger in self._named[path]:
            if ledger not in self._is_back:
                return f"needs ledger {ledger}, which does not come back"
        if own.subscription is None:
            return self._add_schema(path, own, made)
        first = _find_first(value or b"")
        if first is None:
            return "is of a topic that has no ledger"
        record = managed_ledger.encode_cursor(first, own.ledger.ledger)
        acl = written.acl if written is not None else self._nodes[topic].acl
        made.writes[path] = NodeWrite(record, acl)
        made.ledgers[own.ledger] = f"subscription {own.subscription} of {own.topic}"
        return None

    def _add_schema(self, path: str, own: OwnLedger, made: YoungerNodes) -> str | None:
        node = self._nodes.get(path)
        if own.record is None:
            return "is a schema whose entry was not read: make the plan again, and have payloads read"
        if self._above + SCHEMAS not in self._tops:
            return f"is a schema, and the plan brings back no {self._above + SCHEMAS}"
        if node is not None:
            try:
                is_more = pulsar_schema.extends(own.record, node.value)
            except FormatError as error:
                return f"is a schema of a topic whose node cannot be read: {error}"
            if not is_more:
                return "is a schema of a topic that has another one"
            made.writes[path] = NodeWrite(own.record, expects=node.expects, before=node.before)
        else:
            up = list_above(path, self._above)
            acl = next((above.acl for name in up if (above := self._nodes.get(name))), None)
            for name in reversed(up):
                if name not in self._nodes:
                    made.writes[name] = NodeWrite(b"", acl)
            made.writes[path] = NodeWrite(own.record, acl)
        made.ledgers |= dict.fromkeys(_list_named(own), f"schema of {own.topic}")
        return None


def _list_named(own: OwnLedger) -> tuple[LedgerId, ...]:
    """Return the ledgers that the node is to name."""
    if own.record is None:
        return (own.ledger,)
    return tuple(LedgerId(0, ledger) for ledger in managed_ledger.decode_schema(own.record))


def _find_first(raw: bytes) -> int | None:
    try:
        record = managed_ledger.decode(raw)
    except FormatError:
        return None
    ledgers = record.ledgers if isinstance(record, ManagedLedger) else ()
    return min((listed.ledger for listed in ledgers), default=None)


def _list_back(plan: Dataset, ledgers: Collection[LedgerId]) -> frozenset[LedgerId]:
    """Return those of some ledgers that come back, or are in the store."""
    ids = pa.array(sorted(ledger.ledger for ledger in ledgers), pa.int64())
    captured = open_captured_store(plan)
    back: list[int] = []
    for dataset, table in ((plan, "reconstruction"), (captured, "ledgers")):
        columns = ["scope", "ledger", *(["outcome"] if dataset is plan else [])]
        for rows in dataset.batches(table, columns) if dataset is not None else ():
            wanted = pc.and_(pc.equal(rows["scope"], 0), pc.is_in(rows["ledger"], value_set=ids))
            if dataset is plan:
                wanted = pc.and_(wanted, pc.equal(rows["outcome"], "restored"))
            back += rows["ledger"].filter(wanted).to_pylist()
    return frozenset(LedgerId(0, ledger) for ledger in back)
