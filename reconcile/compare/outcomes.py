"""Other outcomes for ledgers that something speaks against. Tables of RECONSTRUCTION in and out."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.rules.holds import NAMED_MARK
from recovery.codecs import store
from recovery.infer.readings import MOST_NAMED, RecordBasis
from recovery.infer.refusal import Refusal
from recovery.model import tables
from recovery.model.metadata import WRITTEN_FORMAT


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


def guard_beyond_locks(
    rows: pa.Table,
    wanted: npt.NDArray[np.int64],
    locks_a_bucket: int,
    list_hiding: Callable[[], Sequence[str] | None],
    copies: pa.Table,
) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
    """Guard by names alone, or hold, the guarded ledgers for which the store has no room for a lock; reasons stay.

    Locks are in one listing, which holds so many. Buckets are a hash of the id, so each gets the same share of them:
    what becomes of a ledger depends neither on the other buckets nor on how the work is cut.

    Args:
        rows: RECONSTRUCTION, sorted by key.
        wanted: rows of ledgers that the plan would write a record of.
        locks_a_bucket: how many locks each bucket may have.
        list_hiding: returns all bookies that may have more than was seen; None: not all of them are known.
        copies: COPIES of these ledgers, or of more.

    Returns:
        The rows, and which of them are guarded by names.
    """
    wants = np.zeros(rows.num_rows, np.bool_)
    wants[wanted] = True
    wants &= pc.equal(rows["outcome"], "guarded").to_numpy()
    wanted_before = np.cumsum(wants) - wants
    bucket = rows["bucket"].to_numpy()
    begin = np.searchsorted(bucket, bucket)
    beyond = wants & (wanted_before - wanted_before[begin] >= locks_a_bucket) if len(bucket) else wants
    if not beyond.any():
        return rows, beyond
    hiding = list_hiding()
    # The mark by which such a record is known needs a record that has custom metadata.
    named = beyond & pc.fill_null(pc.equal(rows["format"], WRITTEN_FORMAT), fill_value=False).to_numpy()
    named &= hiding is not None and len(hiding) <= MOST_NAMED
    named &= pc.list_value_length(rows["holders"]).to_numpy() > 0
    strangers = _list_strangers(rows, named, copies)
    # Whoever has another ledger of this id would be asked for this one's entries.
    named[strangers.filter(strangers["differs"])["place"].to_numpy()] = False
    index = rows.schema.get_field_index("outcome")
    outcome = pc.if_else(pa.array(beyond & ~named), "held", rows["outcome"])
    rows = rows.set_column(index, rows.schema.field(index), outcome)
    return _name_everybody(rows, named, strangers, hiding or ()), named


def _list_strangers(rows: pa.Table, named: npt.NDArray[np.bool_], copies: pa.Table) -> pa.Table:
    """Return who else has anything of ledgers, be it that its index knows them, or logs alone.

    Returns:
        place: the row of the ledger, one that is `named`; bookie; differs: it has them with another key. In order.
    """
    numbered = rows.select(["scope", "ledger", "key", "holders"]).filter(pa.array(named))
    numbered = numbered.append_column("place", pa.array(np.flatnonzero(named)))
    holders = numbered["holders"].combine_chunks()
    owners = numbered["place"].take(pc.list_parent_indices(holders))
    served = pa.table({"place": owners, "bookie": holders.flatten()})
    own = numbered.select(["scope", "ledger", "key", "place"]).rename_columns(["scope", "ledger", "own_key", "place"])
    strangers = copies.select(["scope", "ledger", "bookie", "key"]).join(own, ["scope", "ledger"], join_type="inner")
    strangers = strangers.join(served, ["place", "bookie"], join_type="left anti")
    differs = pc.fill_null(pc.not_equal(strangers["key"], strangers["own_key"]), fill_value=False)
    strangers = strangers.select(["place", "bookie"]).append_column("differs", differs)
    return strangers.sort_by([("place", "ascending"), ("bookie", "ascending")])


def _name_everybody(
    rows: pa.Table, named: npt.NDArray[np.bool_], strangers: pa.Table, hiding: Sequence[str]
) -> pa.Table:
    """Return the rows, some of them read through all who have anything and all who may hold more.

    No bookie is then outside the record, so that none has a copy too many; see `docs/internals/guards.md`.

    Args:
        rows: RECONSTRUCTION.
        named: which rows: guarded ones, each with a holder.
        strangers: as `_list_strangers` returns them.
        hiding: bookies that may have more than was seen.
    """
    if not named.any():
        return rows
    chosen = rows.filter(pa.array(named))
    holders = chosen["holders"].combine_chunks()
    counts = pc.list_value_length(holders).to_numpy(zero_copy_only=False).astype(np.int64)
    number = np.arange(chosen.num_rows)
    strangers = strangers.filter(pa.array(named[strangers["place"].to_numpy()]))
    of_strangers = np.searchsorted(np.flatnonzero(named), strangers["place"].to_numpy())
    owner = np.concatenate([np.repeat(number, counts), of_strangers, np.repeat(number, len(hiding))])
    hiding_names = pa.array(list(hiding), pa.string()).take(pa.array(np.tile(np.arange(len(hiding)), len(number))))
    names = pa.concat_arrays([holders.flatten(), strangers["bookie"].combine_chunks(), hiding_names])
    codes = names.dictionary_encode().indices.to_numpy().astype(np.int64)
    # Each once, as a holder if it is one.
    first = np.unique(owner * (int(codes.max()) + 1) + codes, return_index=True)[1]
    first = np.sort(first)
    first = first[np.argsort(owner[first], kind="stable")]
    sizes = np.bincount(owner[first], minlength=len(number))
    end = pc.fill_null(chosen["last_entry"], -1).to_numpy()
    write = chosen["write_quorum"].to_numpy()
    copy_counts = write * (end + 1) - chosen["missing"].to_numpy() + chosen["extra"].to_numpy()
    item = rows.schema.field("segments").type.value_type
    offsets = pa.array(np.append(0, np.cumsum(sizes)).astype(np.int32))
    zero = pa.array(np.zeros(len(number), np.int64))
    segment = pa.StructArray.from_arrays(
        [
            zero,
            zero,
            pa.ListArray.from_arrays(offsets, names.take(pa.array(first)), type=item.field("members").type),
            pa.ListArray.from_arrays(offsets, pa.array(first >= counts.sum()), type=item.field("assumed").type),
        ],
        fields=list(item),
    )
    one_each = pa.array(np.arange(len(number) + 1, dtype=np.int32))
    mark = pa.array([{"key": NAMED_MARK, "value": b"named"}], tables.CUSTOM.value_type)
    grades = chosen["grades"].combine_chunks()
    assumed = pa.array(["assumed"], pa.string()).take(zero)
    of_shape = ("ensemble_size", "write_quorum", "ack_quorum", "segments")
    columns = {
        "reading": pa.array([str(RecordBasis.UNIVERSAL)]).take(zero),
        "ensemble_size": pa.array(sizes, pa.int32()),
        "write_quorum": pa.array(sizes, pa.int32()),
        "ack_quorum": pa.array(np.ones(len(number)), pa.int32()),
        "segments": pa.ListArray.from_arrays(one_each, segment, type=rows.schema.field("segments").type),
        "custom": _append(chosen["custom"].combine_chunks(), mark),
        "grades": pa.StructArray.from_arrays(
            [assumed if name in of_shape else grades.field(name) for name in tables.GRADED], fields=list(grades.type)
        ),
        "missing": pa.array(sizes * (end + 1) - copy_counts),
        "extra": zero,
        "raw": pa.nulls(len(number), pa.binary()),
    }
    for name, values in columns.items():
        index = rows.schema.get_field_index(name)
        chosen = chosen.set_column(index, rows.schema.field(index), values.cast(rows.schema.field(index).type))
    order = np.argsort(np.r_[np.flatnonzero(~named), np.flatnonzero(named)])
    return pa.concat_tables([rows.filter(pa.array(~named)), chosen]).take(pa.array(order))


def _append(lists: pa.ListArray, item: pa.Array) -> pa.ListArray:
    """Return the lists with an item at the end of each; null is an empty list."""
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    number = np.arange(len(lists))
    items = pa.concat_arrays([lists.flatten(), item.take(pa.array(np.zeros(len(lists), np.int64)))])
    order = np.argsort(np.append(np.repeat(number, counts), number), kind="stable")
    offsets = np.append(0, np.cumsum(counts + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), items.take(pa.array(order)), type=lists.type)


def claim_without_members(rows: pa.Table) -> pa.Table:
    """Claim less where nothing says which bookies the cluster has.

    Copies that are missing may be on one that nobody named: such ledgers are guarded, unless a snapshot's record or
    an upper layer vouches for their end. No end is observed, for entries above it may be there, too.
    """
    grades = rows["grades"].combine_chunks()
    vouched = pc.is_in(grades.field("last_entry"), value_set=pa.array(["snapshot", "reference"]))
    gap = pc.and_(pc.equal(rows["outcome"], "restored"), pc.greater(rows["missing"], 0))
    hidden = np.flatnonzero(pc.and_not(gap, vouched).to_numpy())
    rows = set_outcome(rows, hidden, "guarded", Refusal.SOURCE_INCOMPLETE)
    reading_index = rows.schema.get_field_index("reading")
    proved = pc.equal(rows["reading"], str(RecordBasis.PROVED))
    is_guess = pc.fill_null(pc.and_(pc.equal(rows["outcome"], "guarded"), proved), fill_value=False)
    readings = pc.if_else(is_guess, str(RecordBasis.LIKELIEST), rows["reading"])
    rows = rows.set_column(reading_index, rows.schema.field(reading_index), readings)
    columns = [
        pc.if_else(pc.equal(column, "observed"), "inferred", column) if name in ("last_entry", "length") else column
        for name, column in zip(tables.GRADED, grades.flatten(), strict=True)
    ]
    index = rows.schema.get_field_index("grades")
    lowered = pa.StructArray.from_arrays(columns, fields=list(grades.type))
    return rows.set_column(index, rows.schema.field(index), lowered)
