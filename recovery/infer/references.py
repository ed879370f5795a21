"""An upper layer's facts of its ledgers, compared with the reconstruction: they supply ends, and check them.

the reference                         what becomes of the ledger
deleted, also by a tombstone          not restored, its data has no owner: a delete wins over data
the same last entry                   graded `reference`
a last entry that bookies allow       closed there: what is above was never acknowledged
one above all that bookies hold       guarded: acknowledged entries are lost, or hidden
one below an acknowledged entry       what bookies show, and the reference as an alternative
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recovery.infer.facts import LedgerFacts
from recovery.infer.ledger_row import Alternative, LedgerRow, read_rows, write_rows
from recovery.infer.readings import RecordBasis
from recovery.infer.refusal import Refusal
from recovery.infer.search import read_length
from recovery.model import tables

SCHEMA: Final = pa.schema(
    [
        *tables.KEY,
        pa.field("last_entry", pa.int64()),
        pa.field("length", pa.int64()),
        pa.field("deleted", pa.bool_()),
        pa.field("owner", pa.string()),
        pa.field("deletion", pa.string()),  # how it was deleted, where a store's history shows it without a statement
        pa.field("source", pa.string()),
        pa.field("tombstone", pa.string()),  # when and by whom it was purged; null: no tombstone says that
    ]
)
"""References for comparison: sorted by key, each ledger once."""

_READS_AS: Final = "as an upper layer has it: an entry that was acknowledged, as a LAC shows, would be cut off"
_LENGTH: Final = "the same entries; the length as an upper layer has it"
_LENGTH_READ: Final = "the same entries; the length as the header of the last one has it, not that of the next"
_COUNTED: Final = "the same entries; the length with those that were sent and not acknowledged, as some writers count"
_ABOVE: Final = "all that bookies hold: entries that the upper layer does not know, and no LAC shows to be acknowledged"


@dataclass(frozen=True, slots=True)
class StatedFacts:
    """An upper layer's facts of one ledger; None: not known."""

    last_entry: int | None
    length: int | None
    deleted: bool | None
    tombstone: str | None = None


def apply_references(rows: pa.Table, known: LedgerFacts, references: pa.Table) -> pa.Table:
    """Complete the reconstruction from references, and check it by them.

    Args:
        rows: RECONSTRUCTION of the ledgers of `known`, in their order.
        known: the facts of bookies.
        references: of `SCHEMA`; other ledgers' are passed over.

    Returns:
        RECONSTRUCTION.
    """
    reference_of = _read_references(references)
    scope, ledger = known.scope.tolist(), known.ledger.tolist()
    numbers = [n for n, key in enumerate(zip(scope, ledger, strict=True)) if key in reference_of]
    if not numbers:
        return rows
    shown = rows.take(pa.array(numbers))
    changed = [
        check_row(known, n, row, reference_of[scope[n], ledger[n]])
        for n, row in zip(numbers, read_rows(shown), strict=True)
    ]
    untouched = np.setdiff1d(np.arange(rows.num_rows), numbers)
    joined = pa.concat_tables([rows.take(pa.array(untouched)), write_rows(shown, changed)])
    return joined.take(pa.array(np.argsort(np.append(untouched, numbers))))


def select_stated(references: pa.Table | None) -> pa.Table:
    """Return the references with a deletion of their own; not those where only a store's history shows one."""
    if references is None:
        return SCHEMA.empty_table()
    deleted = pc.fill_null(references["deleted"], fill_value=False)
    return references.filter(pc.and_(deleted, pc.is_null(references["deletion"])))


def _read_references(references: pa.Table) -> dict[tuple[int, int], StatedFacts]:
    """Return the facts of each ledger with a deletion or a last entry, by scope and id."""
    keys = zip(references["scope"].to_pylist(), references["ledger"].to_pylist(), strict=True)
    values = zip(*(references[name].to_pylist() for name in StatedFacts.__slots__), strict=True)
    by_key = {key: StatedFacts(*value) for key, value in zip(keys, values, strict=True)}
    return {
        key: reference for key, reference in by_key.items() if reference.deleted or reference.last_entry is not None
    }


def check_row(known: LedgerFacts, number: int, row: LedgerRow, reference: StatedFacts) -> LedgerRow:
    """Complete one ledger's row from a reference, and check it by that."""
    if reference.deleted:
        by_tombstone = reference.tombstone is not None
        reason = Refusal.DELETED_BY_TOMBSTONE if by_tombstone else Refusal.DELETED_BY_REFERENCE
        return replace(row, outcome="deleted", reason=str(reason))
    # A snapshot's record is as sure as a reference, and a hold has no end.
    last = reference.last_entry
    if last is None or row.outcome != "restored" or row.last_entry is None or row.raw is not None:
        return row
    end, lac = row.last_entry, int(known.lac[number])
    if last > int(known.copies.end[number]):
        return replace(
            row,
            outcome="guarded",
            reason=str(Refusal.LAC_BEYOND_END),
            reading=str(RecordBasis.LIKELIEST),
            acked_high=None,
            grades={**row.grades, "last_entry": "inferred", "length": "inferred"},
        )
    if last < lac or last > end or last < 0:
        return _add_alternative(row, "last_entry", last, _READS_AS)
    length = row.length if last == end else read_length(known, number, last)
    stated = reference.length
    is_known = length is not None and length >= 0
    if not is_known and (stated is None or _is_too_short(known, number, last, stated)):
        return row
    if stated is not None and is_known and length != stated:
        row = _add_alternative(row, "length", stated, _LENGTH)
    alternatives = tuple(a for a in row.alternatives if a.field != "last_entry")
    if last < end:
        alternatives = (*alternatives, Alternative("last_entry", str(end), _ABOVE, 0.0))
        if is_known and stated != length:
            counted = {row.length: _COUNTED} if row.length is not None else {}
            others = dict.fromkeys(_list_lengths(known, number, last), _LENGTH_READ) | counted
            for given in (length, stated):
                others.pop(-1 if given is None else given, None)
            alternatives += tuple(Alternative("length", str(other), text, 0.0) for other, text in others.items())
    return replace(
        row,
        last_entry=last,
        length=length if is_known else stated,
        segments=tuple(segment for segment in row.segments or () if segment.first <= last),
        grades={**row.grades, "last_entry": "reference", "length": "reference"},
        alternatives=alternatives,
        acked_high=last,
    )


def _is_too_short(known: LedgerFacts, number: int, last: int, stated: int) -> bool:
    """Whether a header up to an end has a larger length than is stated of it; 0 may be that of a recovery.

    Where no member of an empty last segment answers a recovery, it counts nothing.
    """
    low, high = np.searchsorted(known.headers.ledger, [number, number + 1])
    lengths = known.headers.length[low:high][known.headers.entry[low:high] <= last]
    return 0 < stated < int(lengths.max(initial=0))


def _list_lengths(known: LedgerFacts, number: int, entry: int) -> list[int]:
    """Return the lengths that headers of an entry have, in order."""
    low, high = np.searchsorted(known.headers.ledger, [number, number + 1])
    lengths: list[int] = np.unique(known.headers.length[low:high][known.headers.entry[low:high] == entry]).tolist()
    return lengths


def _add_alternative(row: LedgerRow, field: str, value: int, reads_as: str) -> LedgerRow:
    return replace(row, alternatives=(*row.alternatives, Alternative(field, str(value), reads_as, 0.0)))
