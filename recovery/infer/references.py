"""What an upper layer knows of its ledgers, against what was reconstructed: it supplies ends, and checks them.

the reference                         what becomes of the ledger
deleted                               not restored, its data is nobody's: a delete wins over data
the same last entry                   graded `reference`
a last entry that bookies allow       closed there: what is above was never acknowledged
one above all that bookies hold       guarded: acknowledged entries are lost, or hidden
one below an acknowledged entry       what bookies show, and the reference as an alternative
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from recovery.infer.facts import Facts
from recovery.infer.readings import Reading
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
        pa.field("deletion", pa.string()),  # how it was deleted, where a store's history shows it; nobody said it
        pa.field("source", pa.string()),
    ]
)
"""References as they are compared: sorted by key, each ledger once."""

_SURE: Final = ("observed", "verified")
_READS_AS: Final = "as an upper layer has it: an entry that was acknowledged, as a LAC shows, would be cut off"
_LENGTH: Final = "the same entries; the length as an upper layer has it"
_ABOVE: Final = "all that bookies hold: entries that the upper layer does not know, and no LAC shows to be acknowledged"

Row = dict[str, Any]


def apply_references(rows: pa.Table, known: Facts, references: pa.Table) -> pa.Table:
    """Take from references what bookies do not show, and check by them what was reconstructed.

    Args:
        rows: RECONSTRUCTION of the ledgers of `known`, in their order.
        known: what bookies show.
        references: of `SCHEMA`; other ledgers' are passed over.

    Returns:
        RECONSTRUCTION.
    """
    reference_of = {(r["scope"], r["ledger"]): r for r in references.to_pylist()}
    scope, ledger = known.scope.tolist(), known.ledger.tolist()
    numbers = [n for n, key in enumerate(zip(scope, ledger, strict=True)) if _is_informative(reference_of.get(key))]
    if not numbers:
        return rows
    changed = [
        _check_row(known, n, row, reference_of[scope[n], ledger[n]])
        for n, row in zip(numbers, rows.take(pa.array(numbers)).to_pylist(), strict=True)
    ]
    untouched = np.setdiff1d(np.arange(rows.num_rows), numbers)
    joined = pa.concat_tables([rows.take(pa.array(untouched)), pa.Table.from_pylist(changed, schema=rows.schema)])
    return joined.take(pa.array(np.argsort(np.append(untouched, numbers))))


def _is_informative(reference: Mapping[str, Any] | None) -> bool:
    return reference is not None and (bool(reference["deleted"]) or reference["last_entry"] is not None)


def _check_row(known: Facts, number: int, row: Row, reference: Mapping[str, Any]) -> Row:
    if reference["deleted"]:
        return row | {"outcome": "deleted", "reason": str(Refusal.DELETED_BY_REFERENCE)}
    # A snapshot's record is as sure as a reference, and a hold has no end.
    if row["outcome"] != "restored" or row["last_entry"] is None or row["raw"] is not None:
        return row
    last, end, lac = reference["last_entry"], row["last_entry"], int(known.lac[number])
    if last > int(known.copies.end[number]):
        unproved = {name: "inferred" if grade in _SURE else grade for name, grade in row["grades"].items()}
        return row | {
            "outcome": "guarded",
            "reason": str(Refusal.LAC_BEYOND_END),
            "reading": str(Reading.LIKELIEST),
            "acked_high": None,
            "grades": row["grades"] | {name: unproved[name] for name in ("last_entry", "length")},
        }
    if last < lac or last > end or last < 0:
        return _add_alternative(row, "last_entry", last, _READS_AS)
    length = row["length"] if last == end else read_length(known, number, last)
    stated = reference["length"]
    if length < 0 and stated is None:
        return row
    if stated is not None and length >= 0 and length != stated:
        row = _add_alternative(row, "length", stated, _LENGTH)
    alternatives = [a for a in row["alternatives"] if a["field"] != "last_entry"]
    if last < end:
        alternatives.append({"field": "last_entry", "value": str(end), "reads_as": _ABOVE, "weight": 0.0})
    return row | {
        "last_entry": last,
        "length": stated if length < 0 else length,
        "segments": [segment for segment in row["segments"] if segment["first"] <= max(last, 0)],
        "grades": row["grades"] | {"last_entry": "reference", "length": "reference"},
        "alternatives": alternatives,
        "acked_high": last,
    }


def _add_alternative(row: Row, field: str, value: int, reads_as: str) -> Row:
    other = {"field": field, "value": str(value), "reads_as": reads_as, "weight": 0.0}
    return row | {"alternatives": [*row["alternatives"], other]}
