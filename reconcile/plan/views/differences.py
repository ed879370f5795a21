"""Two plans compared key by key: what they would write differently."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.plan.plan_reader import SYSTEM, list_subtree_ranges
from recovery.codecs import ledger_metadata
from recovery.dataset import Dataset
from recovery.errors import FormatError
from recovery.model.ids import bucket_ranges
from recovery.model.metadata import LedgerMetadata


@dataclass(frozen=True, slots=True)
class Difference:
    """One key that two plans treat differently.

    Attributes:
        key: below the ledgers root; with two slashes: anywhere in the store.
        first, second: the op of each plan, with the kind; None: it has no action there.
        fields: what differs, with both sides; a password is named, never shown.
    """

    key: str
    first: str | None
    second: str | None
    fields: tuple[tuple[str, str, str], ...]

    def __str__(self) -> str:
        if self.first is None:
            return f"{self.key}: only the second has it ({self.second})"
        if self.second is None:
            return f"{self.key}: only the first has it ({self.first})"
        return f"{self.key}: " + "; ".join(f"{name} {a} → {b}" if a != b else name for name, a, b in self.fields)


def compare_plans(first: Dataset, second: Dataset) -> Iterator[Difference]:
    """Compare two plans key by key, in bucket order; yields nothing where they would write the same.

    Holds get a random password each time, so two holds that differ in nothing else are the same.

    Raises:
        DatasetError: a file is gone or damaged.
    """
    names = ["key", "id", "op", "kind", "value", "expects", "acl", "guard"]
    rows = max(first.rows("actions"), second.rows("actions"))
    nodes = sorted({edge for plan in (first, second) for r in list_subtree_ranges(plan) for edge in (r.start, r.stop)})
    for buckets in [SYSTEM, *bucket_ranges(rows), *(range(low, high) for low, high in pairwise(nodes))]:
        sides = [d.read("actions", buckets=buckets, columns=names) for d in (first, second)]
        numbered = [
            side.select(["key", "id"]).append_column("at", pa.array(np.arange(side.num_rows))) for side in sides
        ]
        joined = numbered[0].join(numbered[1], "key", join_type="full outer", right_suffix="_2")
        is_same = pc.fill_null(pc.equal(joined["id"], joined["id_2"]), fill_value=False)
        for row in joined.filter(pc.invert(is_same)).sort_by("key").to_pylist():
            left, right = (
                None if row_number is None else side.slice(row_number, 1).to_pylist()[0]
                for side, row_number in zip(sides, (row["at"], row["at_2"]), strict=True)
            )
            difference = _difference(row["key"], left, right)
            if difference is not None:
                yield difference


def _difference(key: str, first: Mapping[str, Any] | None, second: Mapping[str, Any] | None) -> Difference | None:
    ops = [None if side is None else f"{side['op']} {side['kind']}" for side in (first, second)]
    if first is None or second is None:
        return Difference(key, ops[0], ops[1], ())
    fields = [
        (name, _describe_value(first[name]), _describe_value(second[name]))
        for name in ("op", "kind", "expects", "acl", "guard")
        if first[name] != second[name]
    ]
    are_holds = first["op"] == second["op"] == "hold"
    if first["value"] != second["value"]:
        fields += _value_fields(first, second, are_holds=are_holds)
    return Difference(key, ops[0], ops[1], tuple(fields)) if fields else None


def _describe_value(value: object) -> str:
    return "absent" if value is None else str(value)


def _value_fields(
    first: Mapping[str, Any], second: Mapping[str, Any], *, are_holds: bool
) -> Iterator[tuple[str, str, str]]:
    """Name the fields in which two values differ; two holds' passwords do not count."""
    left, right = (_record(side) for side in (first, second))
    if left is None or right is None:
        yield "value", f"{len(first['value'] or b'')} bytes", f"{len(second['value'] or b'')} other bytes"
        return
    for name in type(left).__slots__:
        a, b = getattr(left, name), getattr(right, name)
        if a == b:
            continue
        if name == "password":
            if not are_holds:
                yield "another password", "", ""
        elif name in ("custom", "unknown"):
            yield f"other {name}", "", ""
        elif name == "segments":
            yield name, _segments(a), _segments(b)
        else:
            yield name, _describe_value(a), _describe_value(b)


def _record(action: Mapping[str, Any]) -> LedgerMetadata | None:
    """Return the record that an action writes; None if it writes something else."""
    if action["kind"] != "ledger":
        return None
    try:
        return ledger_metadata.decode(action["value"] or b"")
    except FormatError:
        return None


def _segments(segments: Sequence[Any]) -> str:
    return " ".join(f"{segment.first}:[{','.join(segment.members)}]" for segment in segments)
