"""What upper layers know of ledgers, against what bookies and the store show: findings, and who owns what.

the reference                                   is
an end above all that bookies hold              critical where all of them were looked at: acknowledged entries are lost
an end below an entry that a LAC shows          critical: an acknowledged entry is beyond what the layer will read
an end above that of the store's closed record  critical: the same entries cannot be read
another length, or an end below the record's    a warning
a ledger that nothing has                       critical where it has entries, and all bookies were looked at
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
from reconcile.findings.table import Finding, Run, Said
from reconcile.rules import sides

Mask = npt.NDArray[np.bool_]
_LEFT_OUT: Final = ("bookies that were not looked at, or not completely",)


def named(keys: pa.Table, references: pa.Table | None) -> pa.Table:
    """Add to a table of ledgers whether an upper layer names each, and its owner; nulls where none was asked."""
    if references is None:
        count = keys.num_rows
        return keys.append_column("referenced", pa.nulls(count, pa.bool_())).append_column(
            "owner", pa.nulls(count, pa.string())
        )
    ours, theirs = sides.unite([keys, references]).rows
    at = np.full(keys.num_rows, sides.ABSENT)
    at[ours[ours != sides.ABSENT]] = theirs[ours != sides.ABSENT]
    owner = references["owner"].take(pa.array(at, mask=at == sides.ABSENT))
    return keys.append_column("referenced", pa.array(at != sides.ABSENT)).append_column("owner", owner)


def findings(
    references: pa.Table,
    rows: pa.Table,
    copies: pa.Table,
    stored: pa.Table,
    run: Run,
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
        looked_at: at least one bookie was; else nothing is said of what none has.
        seen: every bookie was, completely.
    """
    keys = ["bucket", "scope", "ledger"]
    ends = copies.group_by(keys).aggregate([("last", "max")])
    said, held, now, ended = sides.unite([references, rows, stored, ends]).rows
    mine = said != sides.ABSENT
    one = _Joined(references, rows, stored, ends, said[mine], held[mine], now[mine], ended[mine])
    found = [_differing(one, run, seen=seen), _deleted(one, run)]
    return pa.concat_tables([*found, *([_in_vain(one, run, seen=seen)] if looked_at else [])])


def unreadable(records: Sequence[tuple[str, str]], gaps: Sequence[str]) -> Iterator[Finding]:
    """Yield findings of records of upper layers that cannot be read, and of parts of their stores that are missing."""
    for path, problem in records:
        yield Finding(
            category=Category.REFERENCE_UNREADABLE,
            subject=path,
            said=[Said("reference", "record", problem)],
        )
    for gap in gaps:
        yield Finding(category=Category.REFERENCE_UNREADABLE, subject=gap, said=[Said("reference", "store", "a gap")])


class _Joined:
    """References with what the other sides have of each, in columns of NumPy; -2 where a number is not known."""

    def __init__(
        self, references: pa.Table, rows: pa.Table, stored: pa.Table, ends: pa.Table, *at: npt.NDArray[np.int64]
    ) -> None:
        of, held, now, ended = at
        self.rows = references.take(pa.array(of))
        self.on, self.in_store = held != sides.ABSENT, now != sides.ABSENT
        self.deleted = pc.fill_null(self.rows["deleted"], fill_value=False).to_numpy()
        self.last, self.length = _numbers(self.rows["last_entry"]), _numbers(self.rows["length"])
        self.end = _taken(ends["last_max"], ended)
        self.lac = _taken(rows["lac_low"], held)
        self.shown = _taken(rows["last_entry"], held)
        self.shown_length = _taken(rows["length"], held)
        closed = pc.fill_null(pc.equal(stored["state"], "CLOSED"), fill_value=False)
        self.closed = np.append(closed.to_numpy(), False)[now]
        self.record = _taken(stored["last_entry"], now)
        self.record_length = _taken(stored["length"], now)

    def said(self) -> list[Said]:
        """Return the evidence of each."""
        columns: Sequence[tuple[str, str, Any]] = (
            ("reference", "owner", self.rows["owner"]),
            ("reference", "last_entry", self.rows["last_entry"]),
            ("reference", "length", self.rows["length"]),
            ("bookies", "last entry held", _shown(self.end)),
            ("bookies", "largest LAC", _shown(self.lac)),
            ("bookies", "length", _shown(self.shown_length)),
            ("store", "last_entry", _shown(self.record)),
            ("store", "length", _shown(self.record_length)),
        )
        source = self.rows["source"]
        return [Said(side, name, value, source if side == "reference" else "recover") for side, name, value in columns]


_UNKNOWN: Final = -2


def _numbers(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = pc.fill_null(column, _UNKNOWN).to_numpy().astype(np.int64)
    return found


def _taken(column: pa.ChunkedArray, at: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.append(_numbers(column), _UNKNOWN)[at]


def _shown(numbers: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(numbers, pa.int64(), mask=numbers == _UNKNOWN)


def _differing(one: _Joined, run: Run, *, seen: bool) -> pa.Table:
    ends = (one.last != _UNKNOWN) & ~one.deleted
    lost = ends & one.on & (one.last > np.maximum(one.end, -1))
    below = ends & one.on & (one.lac > one.last)
    cut = ends & one.closed & (one.record < one.last)
    stated = ends & (one.length != _UNKNOWN)
    lengths = stated & (one.shown == one.last) & (one.shown_length != _UNKNOWN) & (one.shown_length != one.length)
    lengths |= stated & one.closed & (one.record == one.last) & (one.record_length != one.length)
    longer = ends & one.closed & (one.record > one.last)
    grave = below | cut | (lost & seen)
    return _of(one, Category.REFERENCE_DIFFERS, lost | below | cut | lengths | longer, grave, run, seen=seen)


def _in_vain(one: _Joined, run: Run, *, seen: bool) -> pa.Table:
    absent = ~one.on & ~one.in_store & ~one.deleted
    return _of(one, Category.REFERENCE_NOT_FOUND, absent, absent & (one.last >= 0) & seen, run, seen=seen)


def _deleted(one: _Joined, run: Run) -> pa.Table:
    still = one.deleted & (one.on | one.in_store)
    rows = one.rows.filter(pa.array(still))
    on, now = (pa.array(np.where(mask[still], "yes", "no")) for mask in (one.on, one.in_store))
    said = [
        Said("reference", "owner", rows["owner"], rows["source"]),
        Said("reference", "deleted", pc.fill_null(rows["deletion"], "as it says"), rows["source"]),
        Said("bookies", "have it", on),
        Said("store", "has it", now),
    ]
    return table.of_ledgers(
        Category.DELETED_BY_OWNER, rows, said, run, subject="reference", unknowns=["whether it was wanted"]
    )


def _of(one: _Joined, category: Category, which: Mask, grave: Mask, run: Run, *, seen: bool) -> pa.Table:
    rows = one.rows.filter(pa.array(which))
    said = [Said(part.side, part.field, _picked(part.value, which), _picked(part.source, which)) for part in one.said()]
    severity = pa.array(np.where(grave[which], "critical", "warning"))
    unknowns = () if seen else _LEFT_OUT
    return table.of_ledgers(category, rows, said, run, subject="reference", severity=severity, unknowns=unknowns)


def _picked(value: Any, which: Mask) -> Any:  # noqa: ANN401 - an Arrow column, or text
    return value if isinstance(value, str) else value.filter(pa.array(which))
