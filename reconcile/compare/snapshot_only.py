"""What becomes of ledgers that neither the store nor any bookie that was looked at has, and a snapshot does.

    the snapshot's record    every bookie was looked at   some bookie was not
    closed without entries   itself                       itself
    open, without entries,   itself                       held by members that were not looked at
    the store's last
    closed with entries      nothing: they are lost, or   itself
                             were deleted since; itself,
                             if some are stated to be
                             lost and may have had it
    not closed               nothing                      held by members that were not looked at, and
                                                         by A others or more that were not

A closed ledger's end never changes, so such a record is what it was, byte for byte. Against it speak a deletion in a
history, a reference that says deleted or knows a later end, a ledger of another scope with the same lower half, and,
where no bookie was looked at, a store that has other ledgers.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.compare.evidence import BookieEvidence, KnownTables
from reconcile.compare.three_way import ComparedRange
from reconcile.rules import sides
from reconcile.rules.sides import Relation
from recovery.dataset import sort_by_key
from recovery.infer.facts import MAX_ENTRY
from recovery.infer.snapshot_records import hold_by_members, restore_as_recorded
from recovery.model import tables
from recovery.model.metadata import NO_ENTRY, LedgerState


def propose_rows(
    evidence: BookieEvidence, part: ComparedRange, known: KnownTables, looked_at: Sequence[str], hiding: Sequence[str]
) -> pa.Table:
    """Return RECONSTRUCTION of ledgers that only a snapshot has, and that nothing speaks against.

    Args:
        evidence: the store and snapshots.
        part: the range, settled.
        known: what else is known.
        looked_at: bookies that were, completely.
        hiding: bookies that may have more than was seen, as far as they are known.
    """
    nothing = tables.RECONSTRUCTION.empty_table()
    if not evidence.looked_at and evidence.live is not None and evidence.live.ledgers:
        return nothing
    alone = part.compared.where(Relation.SNAPSHOT_ONLY)
    alone = alone[~part.collided[alone]]
    if evidence.everywhere and evidence.looked_at:
        # What the lost disks had, those that are there would have, too.
        alone = np.setdiff1d(alone, part.deleted_since)
    if not len(alone):
        return nothing
    wanted, places = sides.unite([part.compared.sides.take(pa.array(alone)), (records := known.records())]).rows
    records = records.take(pa.array(np.sort(places[(wanted != sides.ABSENT) & (places != sides.ABSENT)])))
    if known.references is not None:
        records = _drop_disputed(records, known.references)
    closed = pc.equal(records["state"], "CLOSED")
    if evidence.everywhere and evidence.looked_at and not evidence.is_some_lost:
        empty = pc.fill_null(pc.equal(records["last_entry"], NO_ENTRY), fill_value=False)
        kept = pc.or_(pc.and_(closed, empty), pa.array(_mark_open_and_empty(records, known)))
        return restore_as_recorded(records.filter(kept))
    held = hold_by_members(records.filter(pc.invert(closed)), looked_at, hiding)
    return sort_by_key(pa.concat_tables([restore_as_recorded(records.filter(closed)), held]))


def _mark_open_and_empty(records: pa.Table, known: KnownTables) -> npt.NDArray[np.bool_]:
    """Say which records are the last ones that the store had, of ledgers that were open and got no entry.

    No bookie has any of such a ledger, and each was looked at: so its record loses nothing, and its writer, or whoever
    opens it, finds it as it was.
    """
    marked = np.zeros(records.num_rows, np.bool_)
    if known.alive is None or not records.num_rows:
        return marked
    keys = list(tables.KEY_COLUMNS)
    recorded, alive = sides.unite([records.select(keys), known.alive.select(keys)]).rows
    marked[recorded[(recorded != sides.ABSENT) & (alive != sides.ABSENT)]] = True
    is_first = pc.equal(pc.list_value_length(records["segments"]), 1)
    is_open = pc.and_(pc.equal(records["state"], str(LedgerState.OPEN)), is_first)
    marked &= pc.fill_null(is_open, fill_value=False).to_numpy()
    return marked


def _drop_disputed(records: pa.Table, references: pa.Table) -> pa.Table:
    """Leave out records of ledgers that an upper layer deleted, or of which it knows a later end."""
    recorded, other = sides.unite([records, references]).rows
    is_referenced = (recorded != sides.ABSENT) & (other != sides.ABSENT)
    own, referenced = records.take(pa.array(recorded[is_referenced])), references.take(pa.array(other[is_referenced]))
    later = pc.greater(referenced["last_entry"], pc.fill_null(own["last_entry"], MAX_ENTRY))
    against = pc.or_(pc.fill_null(referenced["deleted"], fill_value=False), pc.fill_null(later, fill_value=False))
    kept = np.ones(records.num_rows, np.bool_)
    kept[recorded[is_referenced][against.to_numpy()]] = False
    return records.filter(pa.array(kept))
