"""Ledgers of a snapshot that were probably deleted since: by retention or by a client, and bookies collected them.

    bookies have of the ledger              then it was probably deleted, where
    nothing                                 so many members of its first segment are known to have kept their data that
                                            one of them had each entry
    logs alone, or an index without entry   the same; a bookie with logs of it kept its data, and its index let go of it

A bookie is known to have kept its data where it holds a ledger for which a snapshot's record names it: a bookie that
was wiped since holds none of these. What the store had last, as its own files show, was not deleted.

A bookie lets go of a closed ledger, too, whose copies moved to others. And all members of an open one may have been
replaced before its first entry. So nothing is taken for deleted where bookies that were not looked at may have it.
"""

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.compare.evidence import KnownTables
from reconcile.compare.outcomes import set_outcome
from reconcile.compare.three_way import ComparedRange
from reconcile.rules.sides import ABSENT, Relation, take_rows, unite
from recovery.infer.refusal import Refusal
from recovery.model import tables
from recovery.model.metadata import NO_ENTRY, LedgerState

Mask = npt.NDArray[np.bool_]
_KEYS: Final = list(tables.KEY_COLUMNS)
_UNEXPLAINED: Final = pa.array(
    [str(reason) for reason in (Refusal.LOGS_OR_JOURNALS_ONLY, Refusal.NO_ENTRIES, Refusal.LAC_BEYOND_END)]
)
"""Reasons of ledgers of which no bookie serves an entry, and that say nothing of why."""


def list_kept(copies: pa.Table, snapshots: Sequence[pa.Table]) -> frozenset[str]:
    """Return the bookies that hold a ledger for which a snapshot's record names them.

    Args:
        copies: COPIES, with scope, ledger, bookie and source at least.
        snapshots: CATALOG_LEDGERS of the same ledgers, with scope, ledger and segments.
    """
    names = ["scope", "ledger"]
    holders = copies.filter(pc.not_equal(copies["source"], "log")).group_by([*names, "bookie"]).aggregate([])
    kept: set[str] = set()
    for records in snapshots:
        shared = records.select(names).append_column("row", pa.array(np.arange(records.num_rows)))
        pairs = holders.join(shared, names, join_type="inner").select(["row", "bookie"])
        if pairs.num_rows:
            named = pairs.join(_list_members(records), ["row", "bookie"], join_type="left semi")
            kept.update(named["bookie"].to_pylist())
    return frozenset(kept)


def _list_members(records: pa.Table) -> pa.Table:
    """Return row and bookie of each member that the records' segments name."""
    segments = records["segments"].combine_chunks()
    members = pc.struct_field(segments.flatten(), "members")
    row = pc.list_parent_indices(segments).take(pc.list_parent_indices(members)).cast(pa.int64())
    return pa.table({"row": row, "bookie": members.flatten().cast(pa.string())})


def mark_deleted(
    records: pa.Table, kept: Collection[str], hiding: int | None, holding_logs: pa.Table | None = None
) -> Mask:
    """Say which records with entries had each of these on a bookie that kept its data, so that one would be there.

    An entry is acknowledged by A members: where at most A - 1 of a segment's members may have lost it, another has it,
    unless its copies moved to as many bookies that were not looked at.

    Args:
        records: CATALOG_LEDGERS of ledgers of which no bookie serves an entry.
        kept: bookies that were read completely, and kept their data.
        hiding: how many bookies may have more than was seen; None: not known, so none is marked.
        holding_logs: row of `records` and bookie, of those that have logs of a ledger; None: there are none.
    """
    has_entries = pc.fill_null(pc.greater(records["last_entry"], NO_ENTRY), fill_value=False).to_numpy().copy()
    has_entries |= pc.fill_null(pc.not_equal(records["state"], str(LedgerState.CLOSED)), fill_value=False).to_numpy()
    segments = records["segments"].combine_chunks()
    counts = pc.fill_null(pc.list_value_length(segments), 0).to_numpy(zero_copy_only=False)
    wanted = np.flatnonzero(has_entries & (counts > 0))
    result = np.zeros(records.num_rows, np.bool_)
    if not len(wanted) or hiding is None:
        return result
    first = pc.list_element(segments.take(pa.array(wanted)), 0)
    members = pc.struct_field(first, "members")
    row = wanted[pc.list_parent_indices(members).to_numpy()]
    named = pa.table({"row": pa.array(row), "bookie": members.flatten().cast(pa.string())})
    named = named.append_column("place", pa.array(np.arange(named.num_rows)))
    is_seen = pc.is_in(named["bookie"], value_set=pa.array(sorted(kept), pa.string())).to_numpy().copy()
    if holding_logs is not None and holding_logs.num_rows:
        logged = named.join(holding_logs, ["row", "bookie"], join_type="left semi")
        is_seen[logged["place"].to_numpy()] = True
    seen, unseen = (np.bincount(row[mask], minlength=records.num_rows) for mask in (is_seen, ~is_seen))
    ack = pc.fill_null(records["ack_quorum"], 0).to_numpy()
    is_closed = pc.fill_null(pc.equal(records["state"], str(LedgerState.CLOSED)), fill_value=False).to_numpy()
    may_have_moved = (seen <= hiding) | (~is_closed & (ack <= hiding))
    result[wanted] = (unseen < ack)[wanted] & ~may_have_moved[wanted]
    return result


def explain_by_deletion(
    rows: pa.Table,
    copies: pa.Table,
    known: KnownTables,
    kept: Collection[str],
    complete: Collection[str],
    hiding: int | None,
) -> pa.Table:
    """Return the rows with the reason that the ledger was probably deleted, where bookies have logs of it at most.

    They stay held: nothing proves a deletion. What their snapshot's record says is not a contradiction then.

    Args:
        rows: RECONSTRUCTION.
        copies: COPIES of these ledgers.
        known: what else is known of them.
        kept: bookies that were read completely, and kept their data.
        complete: all that were read completely.
        hiding: as `mark_deleted` takes it.
    """
    unexplained = np.flatnonzero(
        pc.and_(pc.equal(rows["outcome"], "held"), pc.is_in(rows["reason"], _UNEXPLAINED)).to_numpy()
    )
    if not len(unexplained) or not known.snapshots:
        return rows
    records = drop_alive(known.records(), known)
    chosen, recorded, stored = unite([take_rows(rows, unexplained).select(_KEYS), records, known.stored]).rows
    are_recorded = (chosen != ABSENT) & (recorded != ABSENT) & (stored == ABSENT)
    unexplained, records = unexplained[chosen[are_recorded]], records.take(pa.array(recorded[are_recorded]))
    numbered = records.select(["scope", "ledger"]).append_column("row", pa.array(np.arange(records.num_rows)))
    own = copies.select(["scope", "ledger", "bookie", "source", "entries"]).join(
        numbered, ["scope", "ledger"], join_type="inner"
    )
    is_log = pc.equal(own["source"], "log")
    served = own.filter(pc.and_(pc.invert(is_log), pc.greater(own["entries"], 0)))["row"].to_numpy()
    is_complete = pc.is_in(own["bookie"], value_set=pa.array(sorted(complete), pa.string()))
    logs = own.filter(pc.and_(is_log, is_complete)).select(["row", "bookie"]).group_by(["row", "bookie"]).aggregate([])
    deleted = mark_deleted(records, kept, hiding, logs)
    deleted[served] = False
    places = unexplained[deleted]
    rows = set_outcome(rows, places, "held", Refusal.DELETED_SINCE)
    if not len(places):
        return rows
    is_explained = np.zeros(rows.num_rows, np.bool_)
    is_explained[places] = True
    index = rows.schema.get_field_index("contradictions")
    kind = rows.schema.field(index)
    left = pa.array(np.arange(rows.num_rows), mask=is_explained)
    return rows.set_column(index, kind, rows["contradictions"].combine_chunks().take(left))


def find_alone(
    part: ComparedRange, known: KnownTables, kept: Collection[str], hiding: int | None
) -> npt.NDArray[np.int64]:
    """Return the rows of the join that a snapshot alone has, and that were probably deleted since.

    Args:
        part: the range, settled.
        known: what else is known.
        kept: bookies that were read completely, and kept their data.
        hiding: as `mark_deleted` takes it.
    """
    places = part.compared.where(Relation.SNAPSHOT_ONLY)
    if not len(places) or not kept:
        return np.zeros(0, np.int64)
    records = take_rows(part.snapshot, part.compared.snapshot[places])
    is_deleted = mark_deleted(records, kept, hiding)
    if known.alive is not None:
        alone, alive = unite([records.select(_KEYS), known.alive.select(_KEYS)]).rows
        is_deleted[alone[(alone != ABSENT) & (alive != ABSENT)]] = False
    return np.asarray(places[is_deleted])


def drop_alive(records: pa.Table, known: KnownTables) -> pa.Table:
    """Leave out records of ledgers that the store had last, as its own files show."""
    if known.alive is None:
        return records
    recorded, alive = unite([records.select(_KEYS), known.alive.select(_KEYS)]).rows
    return records.take(pa.array(np.sort(recorded[(recorded != ABSENT) & (alive == ABSENT)])))
