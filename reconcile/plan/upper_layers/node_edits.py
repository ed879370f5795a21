"""Nodes of upper layers in a plan that is edited: values of some, and nodes that the plan did not have before."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.plan.actions import LEAVE, SUBTREE, PlanPhase, find_places
from reconcile.plan.manifest import SubtreeCounts
from recovery.codecs import store
from recovery.model import tables


@dataclass(frozen=True, slots=True)
class NodeWrite:
    """What a node is to be.

    Attributes:
        value: its bytes.
        acl: of a node that is created; None: as the store has it.
        expects: version that is replaced where the plan has no action of the node; None: it is absent.
        before: bytes of that version.
    """

    value: bytes
    acl: str | None = None
    expects: int | None = None
    before: bytes | None = None


class NodeEditor:
    """The edits of nodes of upper layers, bucket range by bucket range.

    Attributes:
        replaced: paths at and below which nodes are replaced by the snapshot's.
        changed: counts of the plan.
    """

    def __init__(self, replace_below: frozenset[str], acl: str | None, writes: Mapping[str, NodeWrite]) -> None:
        self._replace_below = replace_below
        self._acl = acl
        self._writes = writes
        places = find_places(pa.array(list(writes), pa.string())).tolist()
        self._places = dict(zip(writes, places, strict=True))
        self._made: list[str] = []
        self.replaced: set[str] = set()
        self.changed: Counter[str] = Counter()

    def list_ranges(self, spans: Sequence[range]) -> list[range]:
        """Return the bucket ranges of a plan's nodes with those of nodes that it gets, in their order."""
        beside = {bucket for bucket in self._places.values() if not any(bucket in span for span in spans)}
        return sorted([*spans, *(range(bucket, bucket + 1) for bucket in beside)], key=lambda span: span.start)

    def edit(self, rows: pa.Table, buckets: range) -> pa.Table:
        """Edit the actions of a bucket range: whole columns, for they may be millions; ids are to be made again."""
        key, op, acl = pc.utf8_slice_codeunits(rows["key"], 1), rows["op"], rows["acl"]
        for path in sorted(self._replace_below):
            chosen = pc.and_(pc.equal(op, LEAVE), pc.or_(pc.equal(key, path), pc.starts_with(key, f"{path}/")))
            op = self._release(op, chosen)
            if pc.any(chosen).as_py():
                self.replaced.add(path)
        if self._acl is not None:
            acl = pc.if_else(pc.equal(op, "create"), self._acl, acl)
        value = rows["value"]
        new: list[str] = []
        for path in (path for path, bucket in self._places.items() if bucket in buckets):
            # A counter is raised by an action of its own, beside that of its node.
            is_own = pc.and_(pc.equal(key, path), pc.not_equal(op, "raise"))
            if not pc.any(is_own).as_py():
                new.append(path)
                continue
            op = self._release(op, pc.and_(is_own, pc.equal(op, LEAVE)))
            value = pc.if_else(is_own, pa.scalar(self._writes[path].value, pa.binary()), value)
        for name, column in (("op", op), ("acl", acl), ("value", value)):
            index = tables.ACTIONS.get_field_index(name)
            rows = rows.set_column(index, tables.ACTIONS.field(index), column)
        return self._insert(rows, new) if new else rows

    def _release(self, op: pa.ChunkedArray, chosen: pa.ChunkedArray) -> pa.ChunkedArray:
        self.changed["left_alone"] -= pc.sum(chosen).as_py() or 0
        return pc.if_else(chosen, "replace", op)

    def _insert(self, rows: pa.Table, paths: Sequence[str]) -> pa.Table:
        numbers: Counter[int] = Counter()
        for bucket, seq in zip(rows["bucket"].to_pylist(), rows["seq"].to_pylist(), strict=True):
            numbers[bucket] = max(numbers[bucket], (seq & 0xFFFF_FFFF) + 1)
        made: list[dict[str, Any]] = []
        for path in sorted(paths):
            bucket, write = self._places[path], self._writes[path]
            is_new = write.expects is None
            made.append(
                {
                    "bucket": bucket,
                    "id": b"",
                    "seq": int(PlanPhase.LEDGERS) << 48 | bucket << 32 | numbers[bucket],
                    "wave": 0,
                    "op": "create" if is_new else "replace",
                    "kind": SUBTREE,
                    "key": store.name_outside(path),
                    "value": write.value,
                    "acl": (self._acl or write.acl) if is_new else None,
                    "expects": write.expects,
                    "before": write.before,
                    "choice": 0,
                    "alternatives": [],
                }
            )
            numbers[bucket] += 1
            self._made += [path] if is_new else []
        inserted = pa.Table.from_pylist(made, schema=tables.ACTIONS)
        return pa.concat_tables([rows, inserted]).sort_by([("bucket", "ascending"), ("seq", "ascending")])

    def count(self, subtrees: Sequence[SubtreeCounts]) -> tuple[SubtreeCounts, ...]:
        """Return the counts of a plan's subtrees with the nodes that it got."""
        made = {count.path: sum(path.startswith(f"{count.path}/") for path in self._made) for count in subtrees}
        return tuple(count + SubtreeCounts(count.path, added=made[count.path]) for count in subtrees)
