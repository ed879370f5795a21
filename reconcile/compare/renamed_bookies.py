"""Bookies that have another name than records know them by, and nobody said so.

A bookie of a new address or id serves all that it had under its old one, which then answers nowhere. What shows it:
nearly all ledgers that it holds, and that records know, are another bookie's by the records; that bookie was not
collected and is not registered; and it has hardly a ledger that this one lacks. A newcomer that auto-recovery gave all
data of one lost bookie looks the same, so this is a proposal: until a person confirms it, its ledgers are guarded.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.compare.evidence import BookieEvidence, read_unguarded
from reconcile.compare.outcomes import set_outcome
from reconcile.compare.three_way import ComparedRange
from reconcile.findings.categories import Category
from reconcile.findings.table import Finding, FindingStatement
from reconcile.rules import sides
from reconcile.rules.segments.member_names import name_any, rename_members
from recovery.dataset import Dataset
from recovery.infer.readings import RecordBasis
from recovery.infer.refusal import Refusal
from recovery.model import tables
from recovery.model.ids import BUCKETS

_KEYS: Final = ["scope", "ledger"]
_SAMPLE: Final = 500_000
"""Rows that are compared; of larger clusters a share of the buckets, which are a hash of the id."""
_FEWEST: Final = 3
"""Ledgers that show anything."""
_ITS_LEDGERS: Final = 0.9
"""Of the ledgers that the bookie holds and that records do not give it, those that they give the other name."""
_OTHERS_LEDGERS: Final = 0.5
"""Of the ledgers that records give the other name, those that the bookie holds; some were trimmed, or have no entry."""


@dataclass(frozen=True, slots=True)
class ProposedAlias:
    """Another name of a bookie, as it seems.

    Attributes:
        name: in records.
        bookie: that was collected.
        ledgers: that it holds, and whose records have the name.
        of_ledgers: that it holds, and whose records do not name it.
    """

    name: str
    bookie: str
    ledgers: int
    of_ledgers: int

    def make_finding(self) -> Finding:
        """Return it as a finding, with the line that confirms it."""
        value = (
            f"{self.bookie} holds {self.of_ledgers} ledgers whose records do not name it; {self.ledgers} of these "
            f"records name {self.name}, which was not collected and is not registered"
        )
        return Finding(
            Category.ALIAS_UNRESOLVED,
            f"name {self.name}",
            (FindingStatement("bookies", "name", value),),
            bookies=[self.bookie, self.name],
            suggested=f"if both are one bookie, put this line into the file of aliases and recover again: "
            f"{self.name} {self.bookie}; do so before you apply: a cookie that comes back under the old name makes the "
            f"renamed bookie refuse to start. If they are two, collect {self.name}, or state that it is lost. Until "
            "then its ledgers are guarded",
        )


def propose_aliases(
    inventories: Sequence[Dataset], bookies: pa.Table, evidence: BookieEvidence, absent: Collection[str]
) -> tuple[ProposedAlias, ...]:
    """Return the names of bookies that nothing answers to, and which seem to be others' old names.

    Args:
        inventories: of bookies.
        bookies: BOOKIES of all of them.
        evidence: the store and snapshots.
        absent: names that are stated to be of bookies that are gone.
    """
    collected = [name for name in bookies["bookie"].to_pylist() if name not in evidence.aliases]
    total = sum(inventory.rows("copies") for inventory in inventories) + sum(
        d.rows("ledgers") for d in evidence.datasets
    )
    if not inventories or not evidence.datasets or not total:
        return ()
    buckets = range(min(BUCKETS, -(-BUCKETS * _SAMPLE // total)))
    records = [read_unguarded(d, buckets, [*_KEYS, "segments"]) for d in evidence.datasets]
    recorded = pa.concat_tables([_list_members(rename_members(rows, evidence.aliases)) for rows in records])
    recorded = recorded.group_by([*_KEYS, "bookie"]).aggregate([])
    known = {*collected, *evidence.aliases.values(), *absent, *_list_registered(evidence)}
    strange = pa.array(sorted({*pc.unique(recorded["bookie"]).to_pylist()} - known), pa.string())
    if not len(strange):
        return ()
    parts = [d.read("copies", buckets=buckets, columns=[*_KEYS, "bookie", "source"]) for d in inventories]
    copies = pa.concat_tables(parts)
    held = copies.filter(pc.not_equal(copies["source"], "log")).group_by([*_KEYS, "bookie"]).aggregate([])
    named = recorded.filter(pc.is_in(recorded["bookie"], value_set=strange)).rename_columns([*_KEYS, "name"])
    named = named.join(held.group_by(_KEYS).aggregate([]), _KEYS, join_type="left semi")
    ungiven = held.join(recorded.group_by(_KEYS).aggregate([]), _KEYS, join_type="left semi")
    ungiven = ungiven.join(recorded, [*_KEYS, "bookie"], join_type="left anti")
    both = _count(ungiven.join(named, _KEYS, join_type="inner"), ["bookie", "name"])
    of_bookie, of_name = _count(ungiven, ["bookie"]), _count(named, ["name"])
    fitting = {
        pair: count
        for pair, count in both.items()
        if count >= _FEWEST
        and count >= _ITS_LEDGERS * of_bookie[pair[:1]]
        and count >= _OTHERS_LEDGERS * of_name[pair[1:]]
    }
    # A name is of one bookie, and a bookie that fits two names shows neither.
    alone = [
        (pair, count)
        for pair, count in sorted(fitting.items())
        if sum(pair[0] == bookie or pair[1] == name for bookie, name in fitting) == 1
    ]
    return tuple(ProposedAlias(name, bookie, count, of_bookie[bookie,]) for (bookie, name), count in alone)


def _list_members(stored: pa.Table) -> pa.Table:
    """Return scope, ledger and bookie of each member of each segment."""
    segments = stored["segments"].combine_chunks()
    members = pc.struct_field(pc.list_flatten(segments), "members")
    rows = pc.list_parent_indices(segments).take(pc.list_parent_indices(members))
    return stored.select(_KEYS).take(rows).append_column("bookie", pc.list_flatten(members))


def _list_registered(evidence: BookieEvidence) -> list[str]:
    if evidence.live is None:
        return []
    nodes = evidence.live.dataset.read("nodes", columns=["path", "kind"])
    return [
        path.rsplit("/", 1)[-1] for path in nodes.filter(pc.equal(nodes["kind"], "registration"))["path"].to_pylist()
    ]


def _count(rows: pa.Table, columns: list[str]) -> dict[tuple[str, ...], int]:
    counted = rows.group_by(columns).aggregate([([], "count_all")])
    names = zip(*(counted[column].to_pylist() for column in columns), strict=True)
    return dict(zip(names, counted["count_all"].to_pylist(), strict=True))


def guard_renamed(evidence: BookieEvidence, part: ComparedRange, buckets: range) -> ComparedRange:
    """Return a range whose ledgers are guarded that records give a name of which only a proposal says whose it is."""
    if not evidence.proposed:
        return part
    names = frozenset(evidence.proposed)
    columns = list(tables.KEY_COLUMNS)
    records = [read_unguarded(d, buckets, [*columns, "segments"]) for d in evidence.datasets]
    keys = pa.concat_tables([rows.filter(pa.array(name_any(rows, names))).select(columns) for rows in records])
    keys = keys.group_by(columns).aggregate([])
    alone = part.alone if part.alone is None else _guard(part.alone, keys)
    return replace(part, rows=_guard(part.rows, keys), alone=alone)


def _guard(rows: pa.Table, keys: pa.Table) -> pa.Table:
    own, named = sides.unite([rows, keys]).rows
    found = own[(own != sides.ABSENT) & (named != sides.ABSENT)]
    places = found[pc.equal(rows["outcome"], "restored").to_numpy()[found]]
    if not len(places):
        return rows
    rows = set_outcome(rows, places, "guarded", Refusal.SOURCE_INCOMPLETE)
    is_guess = np.zeros(rows.num_rows, np.bool_)
    is_guess[places] = True
    index = rows.schema.get_field_index("reading")
    readings = pc.if_else(pa.array(is_guess), str(RecordBasis.LIKELIEST), rows["reading"])
    return rows.set_column(index, rows.schema.field(index), readings)
