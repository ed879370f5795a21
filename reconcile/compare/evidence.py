"""What bookies are compared with: the store's catalog, earlier catalogs, and what they show of all bucket ranges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reconcile.rules import holds, sides
from recovery.codecs.store import Layout, generator_key
from recovery.dataset import Dataset, only, sort_by_key
from recovery.model import tables
from recovery.model.ids import buckets as buckets_of

FEW_DELETIONS: Final = 10
"""Deleted ledgers that bookies still have, of a cluster of any size, that are taken for what somebody wanted."""
SHARE_OF_DELETIONS: Final = 0.01
"""More of the ledgers on bookies than this are a catastrophe until a person says that they are not."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """One catalog, and when it was taken.

    Attributes:
        is_chosen: a person named the point in time that it shows.
    """

    dataset: Dataset
    source: str
    txn: int | None
    at: float
    ledgers: int
    layout: Layout | None = None
    is_chosen: bool = False

    @classmethod
    def of(cls, dataset: Dataset) -> "Earlier":
        """Read what a catalog says of itself."""
        rows = dataset.read("sources").to_pylist()
        row: Mapping[str, Any] = rows[0] if rows else {}
        at = row["at"].timestamp() if row.get("at") else 0.0
        layout = Layout(row["layout"]) if row.get("layout") else None
        source, is_chosen = str(row.get("uri") or dataset.path), dataset.manifest["binding"].get("at") is not None
        return cls(dataset, source, row.get("txn"), at, dataset.rows("ledgers"), layout, is_chosen)


def newest_first(catalogs: Sequence[Dataset]) -> tuple[Earlier, ...]:
    """Return catalogs by the time that they show, the newest first."""
    return tuple(sorted(map(Earlier.of, catalogs), key=lambda one: (-one.at, -(one.txn or 0))))


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the bookies are compared with; small, and picklable.

    Attributes:
        live: the store's catalog.
        earlier: the newest first.
        everywhere: every bookie was looked at, completely.
        looked_at: at least one bookie was.
        mass_deletion: more was deleted than somebody may have wanted.
        mass_let_go: the same, of what an upper layer's history shows.
        collisions: files of key columns of ledgers whose lower halves stand in several scopes.
    """

    live: Earlier | None
    earlier: tuple[Earlier, ...]
    everywhere: bool
    looked_at: bool
    mass_deletion: bool = False
    mass_let_go: bool = False
    collisions: tuple[str, ...] = ()

    @property
    def catalogs(self) -> tuple[Earlier, ...]:
        """All, the store's first."""
        return (*([self.live] if self.live else []), *self.earlier)

    @property
    def datasets(self) -> tuple[Dataset, ...]:
        """The same, as datasets."""
        return tuple(one.dataset for one in self.catalogs)

    def stored(self, buckets: range) -> pa.Table:
        """Return the store's records."""
        return self.live.dataset.read("ledgers", buckets=buckets) if self.live else tables.CATALOG_LEDGERS.empty_table()

    def issued(self, layout: Layout) -> int:
        """Return the id below which a complete earlier catalog knew every ledger of scope 0 that was not deleted."""
        found = 0
        for one in self.earlier:
            if one.dataset.manifest["coverage"].get("complete"):
                nodes = one.dataset.read("nodes", columns=["path", "children_created"])
                counters = nodes.filter(pc.equal(nodes["path"], generator_key(layout)))["children_created"]
                found = max(found, pc.max(counters).as_py() or 0)
        return int(found)

    def counters(self, layout: Layout) -> list[tuple[pa.Table, Layout]]:
        """Return CATALOG_NODES of the store and of each earlier catalog, each with its layout, else the given one."""
        columns = ["path", "children_created"]
        return [(catalog.dataset.read("nodes", columns=columns), catalog.layout or layout) for catalog in self.catalogs]

    def history(self, buckets: range) -> pa.Table:
        """Return what happened to records, as far as any catalog remembers."""
        parts = [one.dataset.read("history", buckets=buckets) for one in self.catalogs]
        return pa.concat_tables([tables.CATALOG_HISTORY.empty_table(), *parts])

    def tables(self, buckets: range, references: pa.Table | None) -> "Tables":
        """Return what is known of a bucket range besides what bookies show."""
        collided = tables.CATALOG_LEDGERS.empty_table().select(list(tables.KEY_COLUMNS))
        if self.collisions:
            wanted = [("bucket", ">=", buckets.start), ("bucket", "<", buckets.stop)]
            collided = pa.concat_tables([pq.read_table(path, filters=wanted) for path in self.collisions])
        earlier = tuple((one.dataset.read("ledgers", buckets=buckets), one.txn) for one in self.earlier)
        return Tables(self.stored(buckets), earlier, self.history(buckets), collided, references)

    def deletions(self, copies: pa.Table, buckets: range, references: pa.Table | None) -> dict[str, int]:
        """Count, of the ledgers on bookies that the store lacks, those that history shows as deleted.

        Those that an upper layer's history shows as let go of are counted apart, as far as some bookie still serves
        them: what only logs have, bookies have deleted, too.
        """
        remembers = any(one.dataset.rows("history") for one in self.catalogs)
        let_go = None if references is None else references.filter(pc.is_valid(references["deletion"]))
        if not remembers and (let_go is None or not let_go.num_rows):
            return {"on_bookies": 0, "deleted": 0, "let_go": 0, "named": 0}
        keys = list(tables.KEY_COLUMNS)
        served = copies.filter(pc.not_equal(copies["source"], "log"))
        on, serving = (part.select(keys).group_by(keys).aggregate([]) for part in (copies, served))
        stored = self.stored(buckets).select(keys)
        gone = sides.deletions(self.history(buckets)).select(keys)
        left = stored.slice(0, 0) if let_go is None else let_go.select(keys)
        held, now, deleted, has, named = (
            r != sides.ABSENT for r in sides.unite([on, stored, gone, serving, left]).rows
        )
        return {
            "on_bookies": on.num_rows,
            "deleted": int((held & deleted & ~now).sum()),
            "let_go": int((has & named & ~now).sum()),
            "named": 0 if references is None or let_go is None else references.num_rows - let_go.num_rows,
        }

    def with_deletions(self, counted: Sequence[Mapping[str, int]]) -> "Evidence":
        """Decide from all ranges' counts whether deletions are believed to have been wanted."""
        total = {name: sum(one[name] for one in counted) for name in ("on_bookies", "deleted", "let_go", "named")}
        most = max(FEW_DELETIONS, SHARE_OF_DELETIONS * total["on_bookies"])
        emptied = any(one.dataset.rows("history") and not one.ledgers for one in self.catalogs)
        return replace(
            self,
            mass_deletion=bool(total["deleted"] and (total["deleted"] > most or emptied)),
            mass_let_go=bool(total["let_go"] and (total["let_go"] > most or not total["named"])),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """What is known of some ledgers besides what bookies show.

    Attributes:
        stored: CATALOG_LEDGERS of the store.
        earlier: CATALOG_LEDGERS of each earlier catalog, the newest first, and the transaction that it was taken at.
        history: CATALOG_HISTORY of all catalogs.
        collided: key columns of ledgers that collide with another scope's.
        references: of `infer.references.SCHEMA`; None: not given.
    """

    stored: pa.Table
    earlier: tuple[tuple[pa.Table, int | None], ...]
    history: pa.Table
    collided: pa.Table
    references: pa.Table | None = None

    def records(self) -> pa.Table:
        """Return the newest earlier record of each ledger, but for holds and what cannot be read."""
        whole = [
            (only(rows, pa.array(pc.is_null(rows["error"]).to_numpy() & ~holds.is_hold(rows))), txn)
            for rows, txn in self.earlier
        ]
        return sides.newest(whole)[0]


def has_scopes(datasets: Sequence[Dataset]) -> bool:
    """Say whether any ledger is of another scope than 0, from what files say of themselves: no row is read."""
    return any(dataset.bounds(name, "scope") not in (None, (0, 0)) for dataset in datasets for name in _keyed(dataset))


def _keyed(dataset: Dataset) -> Sequence[str]:
    return ["copies"] if dataset.kind == "inventory" else ["ledgers", "history"]


def collisions(datasets: Sequence[Dataset], part: range) -> pa.Table:
    """Return the key columns of ledgers that share the lower half of their ids with one of another scope.

    Args:
        datasets: inventories and catalogs.
        part: the buckets of scope 0 that the lower halves fall into: each half is of one part, whatever its scope.
    """
    keys = list(tables.KEY_COLUMNS)
    found = [pa.schema(tables.KEY).empty_table()]
    for dataset in datasets:
        for name in _keyed(dataset):
            for batch in dataset.batches(name):
                ledger = batch["ledger"].to_numpy()
                half = buckets_of(np.zeros_like(ledger), ledger)
                mine = batch.select(keys).filter(pa.array((half >= part.start) & (half < part.stop)))
                found.append(mine.group_by(keys).aggregate([]).select(keys).cast(found[0].schema))
    rows = pa.concat_tables(found).group_by(keys).aggregate([])
    several = rows.group_by("ledger").aggregate([([], "count_all")])
    several = several.filter(pc.greater(several["count_all"], 1))["ledger"]
    return sort_by_key(
        rows.filter(pc.is_in(rows["ledger"], several.combine_chunks())).select(keys).cast(found[0].schema)
    )
