"""How much would come back if a cluster's metadata were lost today: the true records compared with a plan's.

    class      the record that a plan made without the store
    exact      says what the true one says, in every field
    readable   serves every entry that the true one serves; guarded ones, too
    held       is a hold: all copies are kept, no client reads
    lost       is not there, or serves less
    undecided  not known: the true record cannot be read, or is newer than the facts of bookies

The end of an open ledger is not known: it is assumed at the last entry up to which A bookies of the write set have
every entry. Pure functions of a bucket range.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.check.records.fields import FIELDS, PASSWORD, find_differing, list_names
from reconcile.rules import holds
from reconcile.rules.segments.copies import Sight, find_faults
from reconcile.rules.segments.faults import Fault
from reconcile.rules.sides import ABSENT, unite
from recovery.codecs.ledger_metadata import decode_columns
from recovery.model import tables

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_BACK: Final = ("restored", "guarded")
_UNREAD: Final = pa.array([int(fault) for fault in (Fault.LOST, Fault.MISPLACED_ALL)], pa.int8())
"""Faults of entries that no reader gets."""
_NOT_ACKNOWLEDGED: Final = pa.array(
    [int(fault) for fault in (Fault.LOST, Fault.MISPLACED_ALL, Fault.BELOW_ACK_QUORUM)], pa.int8()
)
_GUESSES: Final = pa.array(["inferred", "assumed", "unknown"])
_GRADE_OF: Final = {name: "password" if name == PASSWORD else name for name in FIELDS if name != "format"}
"""Field → its grade."""
_WRITTEN: Final = ("create", "replace")


class Class(StrEnum):
    """The outcome of a ledger."""

    EXACT = "exact"
    READABLE = "readable"
    HELD = "held"
    LOST = "lost"
    UNDECIDED = "undecided"


class DrillReason(StrEnum):
    """The reason; for a held ledger it is the hold's own."""

    GUARDED = "guarded"
    NO_RECORD = "on no bookie that was collected"
    EMPTY = "without an entry: on no bookie"
    DELETED = "taken for deleted"
    FEWER_ENTRIES = "entries that are readable now would not be"
    OTHER_DIGEST = "another digest type"
    OTHER_KEY = "another password"
    BROKEN = "its record cannot be read now"
    HOLD = "held now"
    NEWER = "changed since the bookies were collected"


@dataclass(frozen=True, slots=True, eq=False)
class DrillRange:
    """A bucket range.

    Attributes:
        rows: DRILLS.
        entries: class → entries that are readable now.
        guessed: field → restored ledgers with a guess in this field.
        differs: field → restored ledgers with another value in this field.
        returned: outcome → ledgers that the store does not list, and that a plan would bring back or hold.
    """

    rows: pa.Table
    entries: Mapping[str, int]
    guessed: Mapping[str, int]
    differs: Mapping[str, int]
    returned: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Ends:
    """The last entry of each ledger; -1: it has none."""

    last: Ints
    gone: Ints


def read_written(actions: pa.Table) -> pa.Table:
    """Return the records that a plan writes, holds left out: CATALOG_LEDGERS in key order; ACTIONS in."""
    is_record = pc.and_(pc.equal(actions["kind"], "ledger"), pc.is_in(actions["op"], value_set=pa.array(_WRITTEN)))
    rows = actions.filter(is_record).sort_by([(name, "ascending") for name in tables.KEY_COLUMNS])
    values = decode_columns(rows["value"])
    own = {
        **{name: rows[name] for name in tables.KEY_COLUMNS},
        "raw": rows["value"],
        "version": pa.array(np.zeros(rows.num_rows, np.int64)),
        **{name: values[name] for name in values.column_names},
    }
    columns = [own[f.name] if f.name in own else pa.nulls(rows.num_rows, f.type) for f in tables.CATALOG_LEDGERS]
    return pa.table(columns, schema=tables.CATALOG_LEDGERS)


def judge_drill(
    true: pa.Table,
    rows: pa.Table,
    written: pa.Table,
    copies: pa.Table,
    sight: Sight,
    collected: datetime | None,
) -> DrillRange:
    """Return the outcome of each ledger of a bucket range.

    Args:
        true: CATALOG_LEDGERS of the store.
        rows: RECONSTRUCTION that was made without it.
        written: result of `read_written` for its actions.
        copies: COPIES of the bookies.
        sight: how these bookies were scanned.
        collected: when the first of them was read; None: none was.
    """
    united = unite([side.select(list(tables.KEY_COLUMNS)) for side in (true, rows, written)])
    listed = united.rows[0] != ABSENT
    t, r, w = (places[listed] for places in united.rows)
    true = true.take(pa.array(t))
    broken, hold = pc.is_valid(true["error"]).to_numpy(), holds.is_hold(true)
    ends = _find_ends(true, copies, sight)
    count = true.num_rows
    classes: npt.NDArray[Any] = np.full(count, Class.LOST, object)
    reasons: npt.NDArray[Any] = np.full(count, None, object)
    lost = np.maximum(ends.last + 1 - ends.gone, 0)
    readable_now = lost.copy()
    outcome, reason = (_take_texts(rows[name], r) for name in ("outcome", "reason"))
    reasons[r == ABSENT] = DrillReason.NO_RECORD
    reasons[(r == ABSENT) & (ends.last < 0)] = DrillReason.EMPTY
    reasons[outcome == "deleted"] = DrillReason.DELETED
    is_held = np.isin(outcome, ["held", "waiting"])
    classes[is_held], reasons[is_held], lost[is_held] = Class.HELD, reason[is_held], 0
    back = np.flatnonzero(np.isin(outcome, _BACK) & (w != ABSENT))
    masks = {name: np.zeros(count, np.bool_) for name in FIELDS}
    if len(back):
        true_records, new_records = true.take(pa.array(back)), written.take(pa.array(w[back]))
        masks_back = find_differing(true_records, new_records)
        for name, mask in masks_back.items():
            masks[name][back] = mask
        lost[back] = _count_lost(new_records, _Ends(ends.last[back], ends.gone[back]), copies, sight)
        other_key = masks_back[PASSWORD] & pc.is_valid(new_records[PASSWORD]).to_numpy()
        other_key &= pc.is_valid(true_records[PASSWORD]).to_numpy()
        other_digest = masks_back["digest"] & pc.is_valid(new_records["digest"]).to_numpy()
        other_digest &= pc.is_valid(true_records["digest"]).to_numpy()
        is_same = ~np.logical_or.reduce(list(masks_back.values()))
        guarded = outcome[back] == "guarded"
        whole = (lost[back] == 0) & ~other_key & ~other_digest
        lost[back[other_key | other_digest]] = readable_now[back[other_key | other_digest]]
        classes[back] = np.select([whole & is_same & ~guarded, whole], [Class.EXACT, Class.READABLE], Class.LOST)
        reasons[back] = DrillReason.FEWER_ENTRIES
        reasons[back[other_digest]], reasons[back[other_key]] = DrillReason.OTHER_DIGEST, DrillReason.OTHER_KEY
        reasons[back[whole]] = None
        reasons[back[whole & guarded]] = DrillReason.GUARDED
    newer = (classes == Class.LOST) & _is_newer(true, collected)
    for mask, why in ((newer, DrillReason.NEWER), (hold, DrillReason.HOLD), (broken, DrillReason.BROKEN)):
        classes[mask], reasons[mask], lost[mask] = Class.UNDECIDED, why, 0
    grades = rows["grades"].combine_chunks().take(pa.array(np.maximum(r[back], 0)))
    comes_back = np.isin(classes[back], [Class.EXACT, Class.READABLE])
    return DrillRange(
        _make_rows(true, classes, reasons, lost, masks),
        {str(name): int(readable_now[classes == name].sum()) for name in Class},
        {name: _count_guesses(grades, grade, comes_back) for name, grade in _GRADE_OF.items()},
        {name: int(mask[back][comes_back].sum()) for name, mask in masks.items()},
        _count_returned(rows, united.rows[1][~listed]),
    )


def _find_ends(true: pa.Table, copies: pa.Table, sight: Sight) -> _Ends:
    """Return the last entry of each ledger, and how many entries up to it are unreadable even now."""
    closed = pc.fill_null(pc.equal(true["state"], "CLOSED"), fill_value=False).to_numpy()
    last = np.where(closed, pc.fill_null(true["last_entry"], -1).to_numpy(), -1)
    keys = ["scope", "ledger"]
    highest = copies.select([*keys, "last"]).group_by(keys).aggregate([("last", "max")])
    numbered = true.select(keys).append_column("row", pa.array(np.arange(true.num_rows)))
    seen = numbered.join(highest, keys, join_type="inner")
    end = last.copy()
    end[seen["row"].to_numpy()] = pc.fill_null(seen["last_max"], -1).to_numpy()
    end[closed] = last[closed]
    faults = find_faults(_close_at(true, end), copies, sight).faults
    doubt = faults.filter(pc.is_in(faults["fault"], value_set=_NOT_ACKNOWLEDGED))
    firsts = doubt["groups"].combine_chunks()
    first = pc.struct_field(firsts.flatten(), 0).to_numpy(zero_copy_only=False)
    row_of = doubt["row"].to_numpy()[pc.list_parent_indices(firsts).to_numpy(zero_copy_only=False)]
    least = end.copy()
    np.minimum.at(least, row_of, first - 1)
    end = np.where(closed, end, least)
    return _Ends(end, _count_unread(_close_at(true, end), copies, sight))


def _close_at(records: pa.Table, ends: Ints) -> pa.Table:
    """Return records as if each were closed at an entry; CATALOG_LEDGERS in and out."""
    schema = records.schema
    state = pa.array(np.full(records.num_rows, "CLOSED"), pa.string(), mask=pc.is_null(records["state"]).to_numpy())
    closed = records.set_column(schema.get_field_index("state"), schema.field("state"), state)
    return closed.set_column(schema.get_field_index("last_entry"), schema.field("last_entry"), pa.array(ends))


def _count_unread(records: pa.Table, copies: pa.Table, sight: Sight) -> Ints:
    """Count the entries of each closed ledger that no reader gets by its record."""
    faults = find_faults(records, copies, sight).faults
    unread = faults.filter(pc.is_in(faults["fault"], value_set=_UNREAD))
    counts = np.zeros(records.num_rows, np.int64)
    np.add.at(counts, unread["row"].to_numpy(), unread["entries"].to_numpy())
    return counts


def _count_lost(new_records: pa.Table, ends: _Ends, copies: pa.Table, sight: Sight) -> Ints:
    """Count the entries that the true records serve and the plan's records do not."""
    closed = pc.fill_null(pc.equal(new_records["state"], "CLOSED"), fill_value=False).to_numpy()
    last = np.where(closed, pc.fill_null(new_records["last_entry"], -1).to_numpy(), ends.last)
    unread = _count_unread(_close_at(new_records, np.minimum(last, ends.last)), copies, sight)
    return np.asarray(np.maximum(unread + np.maximum(ends.last - last, 0) - ends.gone, 0))


def _is_newer(true: pa.Table, collected: datetime | None) -> Mask:
    if collected is None:
        return np.zeros(true.num_rows, np.bool_)
    later = pc.greater(true["changed_at"], pa.scalar(collected, pa.timestamp("us", "UTC")))
    mask: Mask = pc.fill_null(later, fill_value=False).to_numpy()
    return mask


def _take_texts(column: pa.ChunkedArray, places: Ints) -> npt.NDArray[Any]:
    """Return a text a row, None where there is no place."""
    taken = column.combine_chunks().take(pa.array(places, mask=places == ABSENT))
    texts: npt.NDArray[Any] = taken.to_numpy(zero_copy_only=False)
    return texts


def _count_guesses(grades: pa.StructArray, name: str, rows: Mask) -> int:
    guessed = pc.is_in(pc.struct_field(grades, name), value_set=_GUESSES).to_numpy(zero_copy_only=False)
    return int((guessed & rows).sum())


def _count_returned(rows: pa.Table, places: Ints) -> dict[str, int]:
    outcomes = _take_texts(rows["outcome"], places[places != ABSENT])
    return dict(Counter(name for name in outcomes.tolist() if name != "deleted"))


def _make_rows(
    true: pa.Table, classes: npt.NDArray[Any], reasons: npt.NDArray[Any], lost: Ints, masks: dict[str, Mask]
) -> pa.Table:
    columns = {
        **{name: true[name] for name in tables.KEY_COLUMNS},
        "class": pa.array([str(value) for value in classes], pa.string()),
        "reason": pa.array([None if value is None else str(value) for value in reasons], pa.string()),
        "entries_lost": pa.array(lost),
        "differs": list_names(masks),
    }
    return pa.table(columns).cast(tables.DRILLS)
