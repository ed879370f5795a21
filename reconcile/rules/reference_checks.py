"""Upper layers' references compared with bookies and the store: findings, and the owners of ledgers.

the reference                                   is
an end above all that bookies hold              critical where all of them were scanned: acknowledged entries are lost
an end below an entry that a LAC shows          critical: an acknowledged entry is beyond what the layer will read
an end above that of the store's closed record  critical: the same entries cannot be read
another length, or an end below the record's    a warning
a ledger that nothing has                       critical where it has entries, and all bookies were scanned
a deleted ledger that something still has       a warning
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings import table
from reconcile.findings.categories import Category
from reconcile.findings.table import Finding, FindingRun, FindingStatement
from reconcile.rules import sides

Mask = npt.NDArray[np.bool_]
_LEFT_OUT: Final = ("bookies that were not scanned, or not completely",)


def add_owners(keys: pa.Table, references: pa.Table | None) -> pa.Table:
    """Add to a table of ledgers whether an upper layer names each, and its owner; nulls where none was asked."""
    if references is None:
        count = keys.num_rows
        return keys.append_column("referenced", pa.nulls(count, pa.bool_())).append_column(
            "owner", pa.nulls(count, pa.string())
        )
    ledgers, referenced = sides.unite([keys, references]).rows
    places = np.full(keys.num_rows, sides.ABSENT)
    places[ledgers[ledgers != sides.ABSENT]] = referenced[ledgers != sides.ABSENT]
    owner = references["owner"].take(pa.array(places, mask=places == sides.ABSENT))
    return keys.append_column("referenced", pa.array(places != sides.ABSENT)).append_column("owner", owner)


def add_tombstones(keys: pa.Table, references: pa.Table | None) -> pa.Table:
    """Add the tombstones to a table of ledgers; null for a ledger without one."""
    if references is None:
        return keys.append_column("tombstone", pa.nulls(keys.num_rows, pa.string()))
    ledgers, referenced = sides.unite([keys, references]).rows
    places = np.full(keys.num_rows, sides.ABSENT)
    places[ledgers[ledgers != sides.ABSENT]] = referenced[ledgers != sides.ABSENT]
    texts = references["tombstone"].take(pa.array(places, mask=places == sides.ABSENT))
    return keys.append_column("tombstone", texts)


def findings(
    references: pa.Table,
    rows: pa.Table,
    copies: pa.Table,
    stored: pa.Table,
    run: FindingRun,
    *,
    looked_at: bool,
    seen: bool,
) -> pa.Table:
    """Return the findings of a bucket range.

    Args:
        references: of `infer.references.SCHEMA`.
        rows: RECONSTRUCTION.
        copies: COPIES of the same ledgers.
        stored: CATALOG_LEDGERS of the store.
        run: this one.
        looked_at: at least one bookie was scanned; else missing ledgers are not reported.
        seen: every bookie was, completely.
    """
    keys = ["bucket", "scope", "ledger"]
    ends = copies.group_by(keys).aggregate([("last", "max")])
    referenced, shown, in_store, ended = sides.unite([references, rows, stored, ends]).rows
    is_referenced = referenced != sides.ABSENT
    joined = _ReferenceJoin(
        references,
        rows,
        stored,
        ends,
        referenced[is_referenced],
        shown[is_referenced],
        in_store[is_referenced],
        ended[is_referenced],
    )
    parts = [_find_differing(joined, run, seen=seen), _find_deleted(joined, run)]
    return pa.concat_tables([*parts, *([_find_missing(joined, run, seen=seen)] if looked_at else [])])


def unreadable(records: Sequence[tuple[str, str]], gaps: Sequence[str]) -> Iterator[Finding]:
    """Yield findings of records of upper layers that cannot be read, and of parts of their stores that are missing."""
    for path, problem in records:
        yield Finding(
            category=Category.REFERENCE_UNREADABLE,
            subject=path,
            statements=[FindingStatement("reference", "record", problem)],
        )
    for gap in gaps:
        yield Finding(
            category=Category.REFERENCE_UNREADABLE,
            subject=gap,
            statements=[FindingStatement("reference", "store", "a gap")],
        )


class _ReferenceJoin:
    """References with the values of the other sides, in columns of NumPy; -2 for an unknown number."""

    def __init__(
        self, references: pa.Table, rows: pa.Table, stored: pa.Table, ends: pa.Table, *places: npt.NDArray[np.int64]
    ) -> None:
        referenced, shown, in_store, ended = places
        self.rows = references.take(pa.array(referenced))
        self.on, self.in_store = shown != sides.ABSENT, in_store != sides.ABSENT
        self.deleted = pc.fill_null(self.rows["deleted"], fill_value=False).to_numpy()
        self.last, self.length = _numbers(self.rows["last_entry"]), _numbers(self.rows["length"])
        self.end = _take_numbers(ends["last_max"], ended)
        self.lac = _take_numbers(rows["lac_low"], shown)
        self.shown = _take_numbers(rows["last_entry"], shown)
        self.shown_length = _take_numbers(rows["length"], shown)
        closed = pc.fill_null(pc.equal(stored["state"], "CLOSED"), fill_value=False)
        self.closed = np.append(closed.to_numpy(), False)[in_store]
        self.record = _take_numbers(stored["last_entry"], in_store)
        self.record_length = _take_numbers(stored["length"], in_store)

    def state(self) -> list[FindingStatement]:
        """Return the evidence of each."""
        columns: Sequence[tuple[str, str, Any]] = (
            ("reference", "owner", self.rows["owner"]),
            ("reference", "last_entry", self.rows["last_entry"]),
            ("reference", "length", self.rows["length"]),
            ("bookies", "last entry held", _as_nullable(self.end)),
            ("bookies", "largest LAC", _as_nullable(self.lac)),
            ("bookies", "length", _as_nullable(self.shown_length)),
            ("store", "last_entry", _as_nullable(self.record)),
            ("store", "length", _as_nullable(self.record_length)),
        )
        source = self.rows["source"]
        return [
            FindingStatement(side, name, value, source if side == "reference" else "recover")
            for side, name, value in columns
        ]


_UNKNOWN: Final = -2


def _numbers(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = pc.fill_null(column, _UNKNOWN).to_numpy().astype(np.int64)
    return numbers


def _take_numbers(column: pa.ChunkedArray, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.append(_numbers(column), _UNKNOWN)[places]


def _as_nullable(numbers: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(numbers, pa.int64(), mask=numbers == _UNKNOWN)


def _find_differing(joined: _ReferenceJoin, run: FindingRun, *, seen: bool) -> pa.Table:
    ends = (joined.last != _UNKNOWN) & ~joined.deleted
    lost = ends & joined.on & (joined.last > np.maximum(joined.end, -1))
    below = ends & joined.on & (joined.lac > joined.last)
    cut = ends & joined.closed & (joined.record < joined.last)
    stated = ends & (joined.length != _UNKNOWN)
    lengths = (
        stated
        & (joined.shown == joined.last)
        & (joined.shown_length != _UNKNOWN)
        & (joined.shown_length != joined.length)
    )
    lengths |= stated & joined.closed & (joined.record == joined.last) & (joined.record_length != joined.length)
    longer = ends & joined.closed & (joined.record > joined.last)
    grave = below | cut | (lost & seen)
    return _make_findings(
        joined, Category.REFERENCE_DIFFERS, lost | below | cut | lengths | longer, grave, run, seen=seen
    )


def _find_missing(joined: _ReferenceJoin, run: FindingRun, *, seen: bool) -> pa.Table:
    absent = ~joined.on & ~joined.in_store & ~joined.deleted
    return _make_findings(
        joined, Category.REFERENCE_NOT_FOUND, absent, absent & (joined.last >= 0) & seen, run, seen=seen
    )


def _find_deleted(joined: _ReferenceJoin, run: FindingRun) -> pa.Table:
    still = joined.deleted & (joined.on | joined.in_store)
    is_purged = pc.is_valid(joined.rows["tombstone"]).to_numpy()
    parts = [
        _describe_deleted(joined, run, still & ~is_purged, "reference", "deletion"),
        _describe_deleted(joined, run, still & is_purged, "tombstone", "tombstone"),
    ]
    return pa.concat_tables(parts)


def _describe_deleted(joined: _ReferenceJoin, run: FindingRun, mask: Mask, side: str, column: str) -> pa.Table:
    """Return findings of deleted ledgers that still exist; `column` has the kind of the deletion."""
    rows = joined.rows.filter(pa.array(mask))
    on, in_store = (pa.array(np.where(there[mask], "yes", "no")) for there in (joined.on, joined.in_store))
    statements = [
        FindingStatement("reference", "owner", rows["owner"], rows["source"]),
        FindingStatement(side, "deleted", pc.fill_null(rows[column], "as it says"), rows["source"]),
        FindingStatement("bookies", "have it", on),
        FindingStatement("store", "has it", in_store),
    ]
    return table.make_ledger_findings(
        Category.DELETED_BY_OWNER, rows, statements, run, subject="reference", unknowns=["whether it was wanted"]
    )


def _make_findings(
    joined: _ReferenceJoin, category: Category, mask: Mask, grave: Mask, run: FindingRun, *, seen: bool
) -> pa.Table:
    rows = joined.rows.filter(pa.array(mask))
    statements = [
        FindingStatement(part.side, part.field, _filter_column(part.value, mask), _filter_column(part.source, mask))
        for part in joined.state()
    ]
    severity = pa.array(np.where(grave[mask], "critical", "warning"))
    unknowns = () if seen else _LEFT_OUT
    return table.make_ledger_findings(
        category, rows, statements, run, subject="reference", severity=severity, unknowns=unknowns
    )


def _filter_column(value: Any, mask: Mask) -> Any:  # noqa: ANN401 - an Arrow column, or text
    return value if isinstance(value, str) else value.filter(pa.array(mask))
