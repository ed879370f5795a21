"""What each topic of Pulsar's gets back by a plan: ledgers, entries, until when; and what of its nodes.

    node          the plan                                                   its broker
    created       writes the topic's record, as history or a snapshot has it  serves it on from memory if the record was
                                                                             deleted under it; else there is none
    replaced      writes that record over the store's                         serves the store's: unload it first
    differs       leaves another record of the topic as it is                 serves the other one
    stands        writes nothing of it, and ledgers that it names             knows these ledgers as gone: unload it

Only what the plan itself holds is read, so whoever has the plan sees the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.plan.actions import LEAVE
from reconcile.topics import TOPIC, name_use
from recovery.codecs import managed_ledger
from recovery.codecs.managed_ledger import ManagedLedger
from recovery.dataset import Dataset
from recovery.errors import FormatError

_TOPICS: Final = "/managed-ledgers"
_NODE: Final = rf"^/.*{_TOPICS}/[^/]+/[^/]+/persistent/[^/]+$"
_BELOW: Final = rf"^/.*{_TOPICS}/[^/]+/[^/]+/persistent/[^/]+/[^/]+$"
_READABLE: Final = pa.array(["restored", "guarded"])
_SCHEME: Final = "persistent://"
_DOMAIN: Final = "/persistent/"


class NodeState(StrEnum):
    """What a plan does with the record of a topic; see the module."""

    CREATED = "created"
    REPLACED = "replaced"
    DIFFERS = "differs"
    STANDS = "stands"


_STATES: Final = {"create": NodeState.CREATED, "replace": NodeState.REPLACED, LEAVE: NodeState.DIFFERS}


@dataclass(slots=True)
class TopicBack:
    """One topic.

    Attributes:
        name: tenant/namespace/persistent/topic.
        node: what the plan does with its record.
        ledgers, entries: that come back. An entry may hold several messages.
        not_closed: of these ledgers, those whose end no record has: their entries are not counted.
        until_ms: when the last of these ledgers was closed, ms since 1970; None: the record does not say.
        is_to_the_end: the last ledger that the record names comes back; None: no record was read.
        subscriptions: that come back.
    """

    name: str
    node: NodeState
    ledgers: int = 0
    entries: int = 0
    not_closed: int = 0
    until_ms: int | None = None
    is_to_the_end: bool | None = None
    subscriptions: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Its name as Pulsar's tools take it."""
        return _SCHEME + self.name.replace(_DOMAIN, "/", 1)


@dataclass(frozen=True, slots=True)
class TopicsBack:
    """Topics of a plan: the first of them, and how many there are."""

    topics: tuple[TopicBack, ...] = ()
    total: int = 0


def list_topics_back(plan: Dataset, shown: int, *, by_records: bool = False) -> TopicsBack:
    """Return what topics get back by a plan.

    Args:
        plan: any.
        shown: topics that are listed, at most; the first by their place in the plan.
        by_records: whether ledgers name their topics, too, where the plan has no node of these; of a small plan.

    Raises:
        DatasetError: a file of the plan is gone or damaged.
    """
    found: dict[str, TopicBack] = {}
    named: dict[str, ManagedLedger] = {}
    names: set[str] = set()
    nodes = 0
    for rows in _read_nodes(plan, _NODE):
        nodes += rows.num_rows
        if by_records:
            names.update(map(_name_topic, rows["key"].to_pylist()))
        for row in rows.slice(0, max(0, shown - len(found))).to_pylist():
            name = _name_topic(row["key"])
            found[name] = TopicBack(name, _STATES[row["op"]])
            try:
                record = managed_ledger.decode(row["value"] or b"")
            except FormatError:
                continue
            if isinstance(record, ManagedLedger):
                named[name] = record
    if found:
        for rows in _read_nodes(plan, _BELOW):
            for key in rows.filter(pc.not_equal(rows["op"], LEAVE))["key"].to_pylist():
                topic, _, subscription = _name_topic(key).rpartition("/")
                if topic in found:
                    found[topic].subscriptions.append(subscription)
    owners = {listed.ledger: name for name, record in named.items() for listed in record.ledgers}
    back = _read_back(plan, None if by_records else owners)
    if by_records:
        for ledger, (_, custom) in back.items():
            use = name_use(custom or ())
            if use is None or use[1] != TOPIC:
                continue
            name = owners.setdefault(ledger, use[0])
            if name not in names and len(found) < shown:
                found[name] = TopicBack(name, NodeState.STANDS)
            names.add(name)
    for ledger, (entries, _) in back.items():
        if (gets := found.get(owners.get(ledger, ""))) is not None:
            gets.ledgers += 1
            gets.entries += entries or 0
            gets.not_closed += entries is None
    for name, record in named.items():
        came = [listed for listed in record.ledgers if listed.ledger in back]
        found[name].until_ms = max((listed.closed_ms for listed in came if listed.closed_ms is not None), default=None)
        found[name].is_to_the_end = bool(record.ledgers) and record.ledgers[-1].ledger in back
    return TopicsBack(tuple(found.values()), len(names) if by_records else nodes)


def _read_nodes(plan: Dataset, pattern: str) -> Any:  # noqa: ANN401 - an iterator of tables
    for rows in plan.batches("actions", ["kind", "op", "key", "value"]):
        nodes = rows.filter(pc.equal(rows["kind"], "subtree"))
        yield nodes.filter(pc.match_substring_regex(nodes["key"], pattern))


def _name_topic(key: str) -> str:
    """Return what stands below the node above all topics."""
    return key.partition(f"{_TOPICS}/")[2]


def _read_back(plan: Dataset, wanted: Mapping[int, str] | None) -> dict[int, tuple[int | None, Any]]:
    """Return the entries (None: not closed) and the custom metadata of ledgers of scope 0 that come back.

    Args:
        plan: of them.
        wanted: those that are asked for; None: all.
    """
    if wanted is not None and not wanted:
        return {}
    back: dict[int, tuple[int | None, Any]] = {}
    ids = None if wanted is None else pa.array(sorted(wanted), pa.int64())
    columns = ["scope", "ledger", "outcome", "last_entry", *(["custom"] if wanted is None else [])]
    for rows in plan.batches("reconstruction", columns):
        mask = pc.and_(pc.equal(rows["scope"], 0), pc.is_in(rows["outcome"], value_set=_READABLE))
        if ids is not None:
            mask = pc.and_(mask, pc.is_in(rows["ledger"], value_set=ids))
        for row in rows.filter(mask).to_pylist():
            back[row["ledger"]] = (None if row["last_entry"] is None else row["last_entry"] + 1, row.get("custom"))
    return back
