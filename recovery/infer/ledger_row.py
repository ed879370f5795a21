"""Ledgers of RECONSTRUCTION that a snapshot or a reference changes, one typed row each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import pyarrow as pa

from recovery.model.metadata import Segment


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """One segment; `first_low`, `first`: it begins between these; `assumed`: of each member, if nothing shows it."""

    first: int
    first_low: int
    members: tuple[str, ...]
    assumed: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class CustomItem:
    """One key of the custom metadata, and its value."""

    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another value of a field, its meaning, and its weight: 0 to 1."""

    field: str
    value: str
    reads_as: str
    weight: float


@dataclass(frozen=True, slots=True)
class ContradictionRow:
    """A field that differs between an earlier record and the bookies, with the value of each."""

    field: str
    earlier: str
    bookies: str


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """The columns of RECONSTRUCTION that a snapshot or a reference reads or changes; `class_` is the column `class`."""

    class_: str
    outcome: str
    reason: str | None
    reading: str | None
    format: int | None
    state: str | None
    ensemble_size: int | None
    write_quorum: int | None
    ack_quorum: int | None
    last_entry: int | None
    length: int | None
    digest: str | None
    ctime: int | None
    key: bytes | None
    segments: tuple[SegmentRow, ...] | None
    custom: tuple[CustomItem, ...] | None
    grades: Mapping[str, str]
    acked_high: int | None
    missing: int
    extra: int
    alternatives: tuple[Alternative, ...]
    raw: bytes | None
    contradictions: tuple[ContradictionRow, ...] | None

    def list_segments(self) -> tuple[Segment, ...]:
        """Return the segments as metadata has them; none where the row has no record."""
        return tuple(Segment(segment.first, segment.members) for segment in self.segments or ())


_COLUMNS: Final = {field.name: field.name.rstrip("_") for field in fields(LedgerRow)}
"""Of each attribute, its column."""


def read_rows(table: pa.Table) -> list[LedgerRow]:
    """Return the rows of a RECONSTRUCTION."""
    columns = {name: table[column].to_pylist() for name, column in _COLUMNS.items()}
    columns["segments"] = [
        None
        if segments is None
        else tuple(SegmentRow(s["first"], s["first_low"], tuple(s["members"]), tuple(s["assumed"])) for s in segments)
        for segments in columns["segments"]
    ]
    for name, kind in (("custom", CustomItem), ("alternatives", Alternative), ("contradictions", ContradictionRow)):
        columns[name] = [None if items is None else tuple(kind(**item) for item in items) for items in columns[name]]
    return [LedgerRow(*values) for values in zip(*columns.values(), strict=True)]


def write_rows(base: pa.Table, rows: Sequence[LedgerRow]) -> pa.Table:
    """Return a RECONSTRUCTION with the columns of some rows in place of its own.

    Args:
        base: RECONSTRUCTION; it supplies the other columns.
        rows: one for each row of `base`, in its order.
    """
    made = {
        column: pa.array([_to_arrow(getattr(row, name)) for row in rows], base.schema.field(column).type)
        for name, column in _COLUMNS.items()
    }
    return pa.table([made.get(name, base[name]) for name in base.column_names], schema=base.schema)


def _to_arrow(value: Any) -> Any:  # noqa: ANN401 - of any column
    """Return a value in Arrow's form: lists and dicts in place of tuples and dataclasses."""
    if isinstance(value, tuple):
        return [_to_arrow(item) for item in value]
    if isinstance(value, SegmentRow | CustomItem | Alternative | ContradictionRow):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return value
