"""Copies that a closed record leaves out, and that the over-replicated check of their bookies may delete.

A ledger with a guard's lock is skipped: its copies stay. Before a plan is written, its records and locks count as
written.

Records are read. The entries of a copy on a bookie that the record does not name are compared with those on the named
bookies.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backends.protocols import MetadataStore
from reconcile.check.guard_locks import select_guarded
from reconcile.check.listing import KEYS
from reconcile.plan.actions import Guard
from recovery.codecs.keys import ledger_keys
from recovery.codecs.ledger_metadata import decode_columns
from recovery.codecs.store import (
    Layout,
    find_placeless,
)
from recovery.dataset import Dataset
from recovery.model.groups import KeyedGroups, from_arrow, next_entry, within
from recovery.model.ids import LedgerId, bucket_ranges
from recovery.model.metadata import LedgerState

_ENTRIES_AT_ONCE: Final = 1 << 20


_FEW_RUNS: Final = 64
_WRITTEN: Final = pa.array(["create", "hold", "replace", "remove"])
"""Ops of a plan after which a key is as it has it."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A bookie that a closed record does not name, and that holds entries which are not on their full write set.

    Attributes:
        ledger: the ledger.
        bookie: holds a copy that the over-replicated check may delete.
        entries: so many of its entries.
        first: the first of them.
    """

    ledger: LedgerId
    bookie: str
    entries: int
    first: int

    def __str__(self) -> str:
        more = f" and {self.entries - 1} more" if self.entries > 1 else ""
        return f"ledger {self.ledger} on {self.bookie}: entry {self.first}{more}"


def find_left_out(
    store: MetadataStore, root: str, layout: Layout, inventories: Sequence[Dataset], plan: Dataset | None = None
) -> Iterator[LeftOut]:
    """Yield every copy that a thaw gives up although not all bookies that the record names have its entries.

    An entry above the record's end is on no write set. What a bookie without an inventory holds is not known, so it
    counts as nothing.

    Args:
        store: only read.
        root: of the ledgers.
        layout: of the store.
        inventories: of the bookies.
        plan: counts as written; None: the store is as it is.

    Raises:
        DatasetError: an inventory or the plan is damaged.
        BackendError: the store does not answer.
    """
    rows = sum(inventory.rows("copies") for inventory in inventories)
    for buckets in bucket_ranges(rows):
        names = ["scope", "ledger", "bookie", "groups", "source", "entries"]
        copies = pa.concat_tables(
            [inventory.read("copies", buckets=buckets, columns=names) for inventory in inventories]
        )
        # What only a log has may be a ledger that was deleted long ago.
        copies = copies.filter(pc.and_(pc.not_equal(copies["source"], "log"), pc.greater(copies["entries"], 0)))
        ids = copies.select(KEYS.names).group_by(KEYS.names).aggregate([])
        bad = find_placeless(layout, ids["scope"].to_numpy(), ids["ledger"].to_numpy())
        ids = ids.filter(pa.array(~bad))
        keys = ledger_keys(layout, ids["scope"].to_numpy(), ids["ledger"].to_numpy())
        stored = [
            None if versioned is None else versioned.value
            for _, versioned in store.get_many([root + key for key in keys.to_pylist()])
        ]
        raws, planned = pa.array(stored, pa.binary()), _read_records(plan, buckets)
        if planned is not None:
            places = pc.index_in(keys, value_set=planned["key"])
            raws = pc.if_else(pc.is_valid(places), planned["value"].take(places), raws)
        records = decode_columns(raws)
        columns = ["state", "ensemble_size", "write_quorum", "last_entry", "segments"]
        known = ids.append_column("row", pa.array(np.arange(ids.num_rows)))
        for name in columns:
            known = known.append_column(name, records[name])
        closed = known.filter(pc.fill_null(pc.equal(known["state"], str(LedgerState.CLOSED)), fill_value=False))
        strays = _find_strays(copies, closed)
        records = [closed.slice(row, 1).to_pylist()[0] for row in strays]
        guarded = _select_guarded(store, root, [LedgerId(row["scope"], row["ledger"]) for row in records], planned)
        for record in records:
            if LedgerId(record["scope"], record["ledger"]) not in guarded:
                is_of_ledger = pc.and_(
                    pc.equal(copies["scope"], record["scope"]), pc.equal(copies["ledger"], record["ledger"])
                )
                yield from _of_ledger(copies.filter(is_of_ledger), record)


def _read_records(plan: Dataset | None, buckets: range) -> pa.Table | None:
    """Return what a plan writes of ledgers: their keys, values (null: removed), and guards."""
    if plan is None:
        return None
    rows = plan.read("actions", buckets=buckets, columns=["scope", "ledger", "kind", "op", "key", "value", "guard"])
    is_written = pc.and_(pc.equal(rows["kind"], "ledger"), pc.is_in(rows["op"], value_set=_WRITTEN))
    return rows.filter(is_written).combine_chunks()


def _select_guarded(
    store: MetadataStore, root: str, ledgers: Sequence[LedgerId], planned: pa.Table | None
) -> set[LedgerId]:
    """Return the ledgers that a lock guards, or will when a plan is written."""
    guarded = select_guarded(store, root, ledgers)
    if planned is None:
        return guarded
    locks: dict[str, set[LedgerId]] = {}
    for row in planned.filter(pc.is_valid(planned["guard"])).select(["scope", "ledger", "guard"]).to_pylist():
        locks.setdefault(row["guard"], set()).add(LedgerId(row["scope"], row["ledger"]))
    return (guarded - locks.get(Guard.RELEASE, set())) | locks.get(Guard.LOCK, set())


def _find_strays(copies: pa.Table, closed: pa.Table) -> list[int]:
    """Return the rows of closed ledgers that an unnamed bookie holds something of; there are few."""
    segments = closed["segments"].combine_chunks()
    of_segment = pc.list_parent_indices(segments)
    members = pc.struct_field(segments.flatten(), "members")
    named = pa.table(
        {
            "at": of_segment.take(pc.list_parent_indices(members)).cast(pa.int64()),
            "bookie": members.flatten(),
        }
    )
    numbered = closed.select(KEYS.names).append_column("at", pa.array(np.arange(closed.num_rows)))
    copies_of_closed = copies.select([*KEYS.names, "bookie"]).join(numbered, KEYS.names, join_type="inner")
    strays = copies_of_closed.join(named, ["at", "bookie"], join_type="left anti")
    rows: list[int] = pc.unique(strays["at"]).to_pylist() if strays.num_rows else []
    return rows


def _of_ledger(copies: pa.Table, record: Mapping[str, Any]) -> Iterator[LeftOut]:
    """Compare the entries of each bookie that a record does not name with those of the bookies that it does.

    A million entries at a time: a ledger may have thousands of millions, in a few groups.
    """
    names = pc.unique(copies["bookie"]).to_pylist()
    groups = {name: from_arrow(copies.filter(pc.equal(copies["bookie"], name))["groups"]) for name in names}
    named = {member for segment in record["segments"] for member in segment["members"]}
    for bookie in sorted(set(names) - named):
        own_groups = groups[bookie]
        lacking = 0
        first = None
        low, end = next_entry(own_groups, 0), int((own_groups.last + (own_groups.size - 1)).max(initial=-1))
        while low is not None:
            high = min(low + _ENTRIES_AT_ONCE - 1, end)
            entries = np.flatnonzero(_mark_entries(own_groups, low, high) & ~_everywhere(groups, record, low, high))
            lacking += len(entries)
            first = low + int(entries[0]) if first is None and len(entries) else first
            low = next_entry(own_groups, high + 1) if high < end else None
        if first is not None:
            yield LeftOut(LedgerId(record["scope"], record["ledger"]), bookie, lacking, first)


def _mark_entries(groups: KeyedGroups, low: int, high: int) -> npt.NDArray[np.bool_]:
    """Mark each entry from `low` to `high` that a bookie has."""
    runs = within(groups, low, high)
    begin, end = runs.first - low, runs.first - low + runs.size
    entries = high - low + 1
    if len(begin) > _FEW_RUNS:
        depth = np.bincount(begin, minlength=entries + 1) - np.bincount(end, minlength=entries + 1)
        return np.cumsum(depth[:entries]) > 0
    marked = np.zeros(entries, np.bool_)
    for first, last in zip(begin.tolist(), end.tolist(), strict=True):
        marked[first:last] = True
    return marked


def _everywhere(
    groups: Mapping[str, KeyedGroups], record: Mapping[str, Any], low: int, high: int
) -> npt.NDArray[np.bool_]:
    """Mark each entry from `low` to `high` that all bookies named for it have."""
    last = record["last_entry"] if record["last_entry"] is not None else -1
    everywhere = np.zeros(high - low + 1, np.bool_)
    firsts = [segment["first"] for segment in record["segments"]]
    for segment, upto in zip(record["segments"], [*(first - 1 for first in firsts[1:]), last], strict=True):
        begin, end = max(segment["first"], low), min(upto, last, high)
        if begin > end:
            continue
        on_members = np.ones(end - begin + 1, np.bool_)
        size = len(segment["members"])
        for position, member in enumerate(segment["members"]):
            turn = (position - np.arange(begin, begin + size)) % size < record["write_quorum"]
            on_member = _mark_entries(groups[member], begin, end) if member in groups else False
            on_members &= on_member | ~np.tile(turn, -(-len(on_members) // size))[: len(on_members)]
        everywhere[begin - low : end - low + 1] = on_members
    return everywhere
