"""Other outcomes for ledgers that something speaks against. Tables of RECONSTRUCTION in and out."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recovery.codecs import store
from recovery.infer.readings import Reading
from recovery.infer.refusal import Refusal
from recovery.model import tables


def wait_without_place(rows: pa.Table, layout: store.Layout) -> pa.Table:
    """Return the rows, waiting for a person where the layout has no key for the ledger's id."""
    bad = store.find_placeless(layout, rows["scope"].to_numpy(), rows["ledger"].to_numpy())
    if not bad.any():
        return rows
    for name, value in (("outcome", "waiting"), ("reason", str(Refusal.ID_OUT_OF_RANGE))):
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, rows.schema.field(index), pc.if_else(pa.array(bad), value, rows[name]))
    return rows


def set_outcome(rows: pa.Table, places: npt.NDArray[np.int64], outcome: str, reason: Refusal) -> pa.Table:
    """Return the rows with another outcome and reason at some places; those that wait for a person keep theirs."""
    if not len(places):
        return rows
    chosen = np.zeros(rows.num_rows, np.bool_)
    chosen[places] = True
    chosen &= pc.not_equal(rows["outcome"], "waiting").to_numpy()
    for name, value in (("outcome", outcome), ("reason", str(reason))):
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, rows.schema.field(index), pc.if_else(pa.array(chosen), value, rows[name]))
    return rows


def hold_beyond_locks(rows: pa.Table, lost: npt.NDArray[np.int64], locks_a_bucket: int) -> pa.Table:
    """Hold guarded ledgers for which the store has no room for a lock; their reason stays.

    Locks stand in one listing, which holds so many. Buckets are a hash of the id, so each gets the same share of them:
    who is held depends neither on the other buckets nor on how the work is cut.

    Args:
        rows: RECONSTRUCTION, sorted by key.
        lost: rows of ledgers that the store has no record of.
        locks_a_bucket: how many locks each bucket may have.
    """
    wants = np.zeros(rows.num_rows, np.bool_)
    wants[lost] = True
    wants &= pc.equal(rows["outcome"], "guarded").to_numpy()
    before = np.cumsum(wants) - wants
    bucket = rows["bucket"].to_numpy()
    begin = np.searchsorted(bucket, bucket)
    beyond = wants & (before - before[begin] >= locks_a_bucket) if len(bucket) else wants
    index = rows.schema.get_field_index("outcome")
    return rows.set_column(index, rows.schema.field(index), pc.if_else(pa.array(beyond), "held", rows["outcome"]))


def claim_without_members(rows: pa.Table) -> pa.Table:
    """Claim less where nothing says which bookies the cluster has.

    Copies that are missing may stand on one that nobody named: such ledgers are guarded, unless a snapshot's record or
    an upper layer vouches for their end. No end is observed, for entries above it may stand there, too.
    """
    grades = rows["grades"].combine_chunks()
    vouched = pc.is_in(grades.field("last_entry"), value_set=pa.array(["snapshot", "reference"]))
    gap = pc.and_(pc.equal(rows["outcome"], "restored"), pc.greater(rows["missing"], 0))
    hidden = np.flatnonzero(pc.and_not(gap, vouched).to_numpy())
    rows = set_outcome(rows, hidden, "guarded", Refusal.SOURCE_INCOMPLETE)
    at = rows.schema.get_field_index("reading")
    proved = pc.equal(rows["reading"], str(Reading.PROVED))
    is_guess = pc.fill_null(pc.and_(pc.equal(rows["outcome"], "guarded"), proved), fill_value=False)
    readings = pc.if_else(is_guess, str(Reading.LIKELIEST), rows["reading"])
    rows = rows.set_column(at, rows.schema.field(at), readings)
    columns = [
        pc.if_else(pc.equal(column, "observed"), "inferred", column) if name in ("last_entry", "length") else column
        for name, column in zip(tables.GRADED, grades.flatten(), strict=True)
    ]
    index = rows.schema.get_field_index("grades")
    lowered = pa.StructArray.from_arrays(columns, fields=list(grades.type))
    return rows.set_column(index, rows.schema.field(index), lowered)
