"""Which records of a snapshot agree with bookies, in columns: such ledgers are not judged one by one."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recovery.infer.copies import Ints, Mask
from recovery.infer.facts import LedgerFacts
from recovery.infer.readings import RecordBasis
from recovery.infer.refusal import Refusal
from recovery.model.metadata import NO_ENTRY, LedgerState

KEPT: Final = frozenset(
    {
        Refusal.ID_OUT_OF_RANGE,
        Refusal.CONTRADICTION,
        Refusal.TWO_KEYS,
        Refusal.TWO_INCARNATIONS,
        Refusal.LENGTHS_DIFFER,
        Refusal.DIGESTS_DIFFER,
        Refusal.LIMBO,
        Refusal.DELETED_SOMEWHERE,
        Refusal.LOGS_OR_JOURNALS_ONLY,
    }
)
"""Reasons that a snapshot's record does not remove."""


def mark_agreeing(known: LedgerFacts, numbers: Ints, shown: pa.Table, records: pa.Table) -> Mask:
    """Mark closed records that agree with bookies, if no fact outside of the rows can contradict them.

    Args:
        known: the facts of bookies.
        numbers: of ledgers there.
        shown: RECONSTRUCTION of these.
        records: CATALOG_LEDGERS of these.
    """
    agrees: Mask = mark_same_segments(shown, records) & pc.equal(records["state"], str(LedgerState.CLOSED)).to_numpy()
    for name in ("last_entry", "length"):
        agrees &= pc.fill_null(pc.equal(shown[name], records[name]), fill_value=False).to_numpy()
    agrees &= ~_mark_different(shown["key"], records["password_hash"]) & ~_mark_different(
        shown["digest"], records["digest"]
    )
    agrees &= _mark_uncontradicted(known, numbers, shown, records)
    return agrees


def _mark_uncontradicted(known: LedgerFacts, numbers: Ints, shown: pa.Table, records: pa.Table) -> Mask:
    """Mark ledgers where no fact outside of the rows can contradict an agreeing record.

    A row under a guard may end below a LAC, or have a shape that copies do not show.
    """
    end = pc.fill_null(records["last_entry"], NO_ENTRY).to_numpy()
    is_kept = pc.is_in(shown["reason"], value_set=pa.array(sorted(KEPT), pa.string())).to_numpy()
    is_assumed = pc.fill_null(pc.equal(shown["reading"], str(RecordBasis.UNIVERSAL)), fill_value=False).to_numpy()
    is_free: Mask = (known.lac[numbers] <= end) & ~is_kept & ~(is_assumed & (end >= 0))
    return is_free


def _mark_different(shown: pa.ChunkedArray, records: pa.ChunkedArray) -> Mask:
    """Mark ledgers with a known and different value on both sides."""
    is_different: Mask = pc.fill_null(pc.not_equal(shown, records), fill_value=False).to_numpy()
    return is_different


def mark_same_segments(shown: pa.Table, records: pa.Table) -> Mask:
    """Mark ledgers with segments that are equal for a reader on both sides: with W = E in any order."""
    alike = [
        pc.fill_null(pc.equal(shown[name], records[name]), fill_value=False)
        for name in ("ensemble_size", "write_quorum")
    ]
    counts = [pc.fill_null(pc.list_value_length(side["segments"]), 0).to_numpy() for side in (shown, records)]
    is_same: Mask = pc.and_(*alike).to_numpy() & (counts[0] == counts[1])
    chosen = np.flatnonzero(is_same)
    size = shown["ensemble_size"].take(pa.array(chosen)).to_numpy().astype(np.int64)
    plain = size == shown["write_quorum"].take(pa.array(chosen)).to_numpy()
    number = np.repeat(np.arange(len(chosen)), counts[0][chosen])
    proposed, recorded = (
        side["segments"].take(pa.array(chosen)).combine_chunks().flatten() for side in (shown, records)
    )
    low, high, start, width = (
        column.to_numpy().astype(np.int64)
        for column in (
            proposed.field(1),
            proposed.field(0),
            recorded.field(0),
            pc.list_value_length(recorded.field(1)),
        )
    )
    fits = (low <= start) & (start <= high)
    # Members are side by side; where the widths differ the ledger is out anyway.
    cells = [np.repeat(np.arange(len(number)), size[number]), np.repeat(np.arange(len(number)), width)]
    members = [proposed.field(2).flatten(), recorded.field(1).flatten()]
    names = pc.unique(pa.chunked_array([column.cast(pa.string()) for column in members], pa.string()))
    folded = []
    for segment, column in zip(cells, members, strict=True):
        code = pc.index_in(column, value_set=names).to_numpy().astype(np.int64)
        order = np.lexsort((np.where(plain[number][segment], code, np.arange(len(code))), segment))
        folded.append(code[order])
    right = fits & (width == size[number])
    if right.all():
        np.logical_and.at(right, cells[0], folded[0] == folded[1])
    else:
        begin = [np.cumsum(count) - count for count in (size[number], width)]
        for place in np.flatnonzero(right).tolist():
            left, other = (
                side[start : start + size[number[place]]]
                for side, start in zip(folded, (b[place] for b in begin), strict=True)
            )
            right[place] = np.array_equal(left, other)
    is_same[chosen[np.unique(number[~right])]] = False
    return is_same
