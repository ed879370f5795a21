"""Nodes of Pulsar's topics as a plan leaves them: what it writes, else what the store has; and those of new topics.

    the plan                        the store           what a topic's record is made of, and how it is written
    creates or replaces the node    any                 what it writes; by the same action
    leaves it, with other bytes     has it              the store's bytes, by their version; the snapshot's, where it is
                                                        replaced in the same edit
    nothing                         has it              the store's bytes, by their version
    nothing                         has it not          a new topic, where no other one would be hidden

A new topic gets the nodes above it that are not there, and a subscription at its beginning: a broker deletes all that
no subscription needs (ManagedLedgerImpl, internalTrimLedgers), and topics without any (brokerDeleteInactiveTopicsMode).
"""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.errors import PlanError
from reconcile.plan.actions import LEAVE, find_places
from reconcile.plan.plan_reader import open_captured_store
from reconcile.plan.upper_layers.node_edits import NodeWrite
from recovery.codecs import managed_ledger
from recovery.dataset import Dataset
from recovery.manifest import Part

KEEPER: Final = "bkmeta-adopted"
"""Subscription at the beginning of a new topic."""
_PARTITION: Final = re.compile(r"(?P<name>.+)-partition-(?P<number>[0-9]+)")
_ABOVE: Final = 3
"""Names above a topic's: tenant, namespace, persistent."""


@dataclass(frozen=True, slots=True)
class TopicNode:
    """A node: its bytes as an edit finds them, and how it is written."""

    value: bytes
    acl: str | None
    expects: int | None = None
    before: bytes | None = None


class TopicNodes:
    """Nodes of some topics, and what says whether they may be made."""

    def __init__(self, plan: Dataset, top: str, names: Collection[str], replaced: Collection[str] = ()) -> None:
        """Read them.

        Args:
            plan: that brings topics back.
            top: path of the node above all topics.
            names: of the topics below it.
            replaced: paths at and below which the snapshot's nodes replace the store's in the same edit.
        """
        self._top = top
        wanted = {path for name in names for path in self._list_asked(name)}
        self._nodes = read_nodes(plan, wanted, replaced)

    def read(self, name: str) -> bytes | None:
        """Return the record of a topic; None: neither the plan nor the store has it."""
        node = self._nodes.get(f"{self._top}/{name}")
        return None if node is None else node.value

    def write(self, name: str, record: bytes, first: int) -> dict[str, NodeWrite]:
        """Return the writes that make a topic's record so.

        Args:
            name: of the topic.
            record: its new bytes.
            first: the first ledger that it adopts.

        Raises:
            PlanError: there is no such topic, and it cannot be made.
        """
        path = f"{self._top}/{name}"
        node = self._nodes.get(path)
        if node is not None:
            return {path: NodeWrite(record, expects=node.expects, before=node.before)}
        self.require_free(name)
        acl = next((above.acl for path in self._list_above(name) if (above := self._nodes.get(path))), None)
        made = {above: b"" for above in reversed(self._list_above(name)) if above not in self._nodes}
        made |= {path: record, f"{path}/{KEEPER}": managed_ledger.encode_cursor(first)}
        return {key: NodeWrite(value, acl) for key, value in made.items()}

    def require_free(self, name: str) -> None:
        """Refuse to make a topic that no broker would serve, or that would hide another.

        Raises:
            PlanError: it is such a one.
        """
        path, names = f"{self._top}/{name}", name.split("/")
        if len(names) != _ABOVE + 1 or names[2] != "persistent" or not all(names):
            raise PlanError(path, "is no topic", "name one as persistent://tenant/namespace/topic")
        if not any(policies in self._nodes for policies in self._list_policies(names)):
            problem = "is of a namespace that neither the plan nor the store has, so no broker would serve it"
            raise PlanError(path, problem, "make the plan with all of Pulsar, of a snapshot that has the namespace")
        if self._count_partitions(name) is not None:
            problem = "is a topic with partitions: one without any would hide it"
            raise PlanError(path, problem, "name the partition, e.g. persistent://tenant/namespace/topic-partition-0")
        match = _PARTITION.fullmatch(names[-1])
        if match is None:
            return
        count = self._count_partitions("/".join([*names[:-1], match["name"]]))
        if count is None or int(match["number"]) >= count:
            has = "no topic with partitions" if count is None else f"a topic with {count} partitions"
            problem = f"is a partition of {match['name']}, which is {has}: no client would read it"
            raise PlanError(path, problem, "name another topic")

    def _count_partitions(self, name: str) -> int | None:
        node = self._nodes.get(self._place_partitions(name))
        if node is None:
            return None
        try:
            return int(json.loads(node.value)["partitions"])
        except (ValueError, KeyError, TypeError):
            return 0

    def _list_above(self, name: str) -> list[str]:
        """Return the paths above a topic's node, the nearest first."""
        return list_above(f"{self._top}/{name}", self._top.rpartition("/")[0])

    def _list_policies(self, names: Sequence[str]) -> list[str]:
        above = self._top.rpartition("/")[0]
        return [f"{above}/admin/{kind}/{'/'.join(names[:2])}" for kind in ("policies", "local-policies")]

    def _place_partitions(self, name: str) -> str:
        return f"{self._top.rpartition('/')[0]}/admin/partitioned-topics/{name}"

    def _list_asked(self, name: str) -> Iterator[str]:
        yield f"{self._top}/{name}"
        yield from self._list_above(name)
        yield from self._list_policies(name.split("/"))
        yield self._place_partitions(name)
        match = _PARTITION.fullmatch(name)
        if match is not None:
            yield self._place_partitions(match["name"])


def list_above(path: str, root: str) -> list[str]:
    """Return the paths above a node and below another one, the nearest first."""
    names = path.removeprefix(root).split("/")[1:]
    return [root + "".join(f"/{part}" for part in names[:end]) for end in range(len(names) - 1, 0, -1)]


def read_nodes(plan: Dataset, paths: Collection[str], replaced: Collection[str]) -> dict[str, TopicNode]:
    """Return some nodes as a plan leaves them.

    Args:
        plan: that brings topics back.
        paths: of the nodes.
        replaced: paths at and below which the snapshot's nodes replace the store's in the same edit.

    Raises:
        DatasetError: a file of the plan is gone or damaged.
    """
    return dict(_read_stored(plan, paths)) | dict(_read_planned(plan, paths, replaced))


def _read_stored(plan: Dataset, paths: Collection[str]) -> Iterator[tuple[str, TopicNode]]:
    captured = open_captured_store(plan) if paths else None
    wanted = pa.array(sorted(paths), pa.string())
    columns = ["path", "raw", "acl", "version"]
    for rows in captured.batches("subtrees", columns) if captured is not None else ():
        for row in rows.filter(pc.is_in(rows["path"], value_set=wanted)).to_pylist():
            yield row["path"], TopicNode(bytes(row["raw"]), row["acl"], row["version"], bytes(row["raw"]))


def _read_planned(plan: Dataset, paths: Collection[str], replaced: Collection[str]) -> Iterator[tuple[str, TopicNode]]:
    ordered = pa.array(sorted(paths), pa.string())
    keys = pc.binary_join_element_wise("/", ordered, "")
    places = find_places(ordered).tolist()
    parts = [part for part in plan.parts("actions") if _has_any(part, places)]
    for rows in plan.batches("actions", ["key", "op", "value", "acl", "before"], parts=parts):
        chosen = pc.and_(pc.is_in(rows["key"], value_set=keys), pc.not_equal(rows["op"], "raise"))
        for row in rows.filter(chosen).to_pylist():
            path = row["key"][1:]
            is_kept = row["op"] == LEAVE and not any(f"{path}/".startswith(f"{top}/") for top in replaced)
            yield path, TopicNode(bytes(row["before"] if is_kept else row["value"]), row["acl"])


def _has_any(part: Part, buckets: Sequence[int]) -> bool:
    low, high = part.first_bucket, part.last_bucket
    return low is not None and high is not None and any(low <= bucket <= high for bucket in buckets)
