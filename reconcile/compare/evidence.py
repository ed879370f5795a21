"""What bookies are compared with: the store's catalog, snapshots, and what they show of all bucket ranges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.rules import holds, sides
from reconcile.rules.segments.member_names import rename_members, rename_records
from recovery.codecs.store import Layout, generator_key
from recovery.dataset import Dataset, read_part, select_rows, sort_by_key
from recovery.infer.references import select_stated
from recovery.model import tables
from recovery.model.ids import LedgerId
from recovery.model.ids import buckets as buckets_of
from recovery.place import to_place

FEW_DELETIONS: Final = 10
"""Deleted ledgers that bookies still have, of a cluster of any size, that are taken for what somebody wanted."""
_OWN_FILES: Final = "zkfiles"
"""Kind of a source whose files have every transaction."""
SHARE_OF_DELETIONS: Final = 0.01
"""More of the ledgers on bookies than this are a catastrophe until a person says that they are not."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """One catalog, and when it was taken.

    Attributes:
        is_chosen: a person named the point in time that it shows.
        is_last: it is all that the store had last: read of its own files, to their end.
    """

    dataset: Dataset
    source: str
    txn: int | None
    taken_at: float
    ledgers: int
    layout: Layout | None = None
    is_chosen: bool = False
    is_last: bool = False

    @classmethod
    def read(cls, dataset: Dataset) -> "Catalog":
        """Read what a catalog says about itself."""
        rows = dataset.read("sources").to_pylist()
        row: Mapping[str, Any] = rows[0] if rows else {}
        taken_at = row["at"].timestamp() if row.get("at") else 0.0
        layout = Layout(row["layout"]) if row.get("layout") else None
        source, is_chosen = str(row.get("uri") or dataset.path), dataset.manifest["binding"].get("at") is not None
        is_last = row.get("kind") == _OWN_FILES and bool(row["complete"]) and not row["gaps"] and not is_chosen
        return cls(dataset, source, row.get("txn"), taken_at, dataset.rows("ledgers"), layout, is_chosen, is_last)

    def find_issued(self, layout: Layout) -> int:
        """Return the id below which it knew every ledger of scope 0 that was not deleted; 0: it is not complete."""
        if not self.dataset.manifest["coverage"].get("complete"):
            return 0
        nodes = self.dataset.read("nodes", columns=["path", "children_created"])
        counters = nodes.filter(pc.equal(nodes["path"], generator_key(layout)))["children_created"]
        return int(pc.max(counters).as_py() or 0)


def sort_newest_first(catalogs: Sequence[Dataset]) -> tuple[Catalog, ...]:
    """Return catalogs by the time that they show, the newest first."""
    return tuple(sorted(map(Catalog.read, catalogs), key=lambda catalog: (-catalog.taken_at, -(catalog.txn or 0))))


@dataclass(frozen=True, slots=True)
class BookieEvidence:
    """What the bookies are compared with; small, and picklable.

    Attributes:
        live: the store's catalog.
        snapshots: the newest first.
        everywhere: every bookie was looked at, completely.
        looked_at: at least one bookie was.
        is_some_lost: somebody states that disks are gone for good: what a record names may have been there.
        mass_deletion: more was deleted than somebody may have wanted.
        mass_let_go: the same, of what an upper layer's history shows.
        collisions: files of key columns of ledgers whose lower halves are in several scopes.
        aliases: other names of bookies in records → ids.
        proposed: those of `aliases` that nobody stated: the evidence suggests them.
        kept: bookies that hold a ledger for which a snapshot names them: they were not wiped since.
    """

    live: Catalog | None
    snapshots: tuple[Catalog, ...]
    everywhere: bool
    looked_at: bool
    mass_deletion: bool = False
    mass_let_go: bool = False
    collisions: tuple[str, ...] = ()
    is_some_lost: bool = False
    aliases: Mapping[str, str] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    proposed: Mapping[str, str] = field(default_factory=dict)

    @property
    def catalogs(self) -> tuple[Catalog, ...]:
        """All, the store's first."""
        return (*([self.live] if self.live else []), *self.snapshots)

    @property
    def datasets(self) -> tuple[Dataset, ...]:
        """The datasets of all catalogs, the store's first."""
        return tuple(catalog.dataset for catalog in self.catalogs)

    def with_proposed(self, proposed: Mapping[str, str]) -> "BookieEvidence":
        """Return it with other names of bookies that the evidence suggests."""
        return replace(self, aliases={**self.aliases, **proposed}, proposed=proposed)

    def list_guarded(self) -> frozenset[LedgerId]:
        """Return the ledgers that the store has guards' locks of."""
        return frozenset() if self.live is None else _list_guarded(self.live.dataset)

    def read_stored(self, buckets: range) -> pa.Table:
        """Return the store's records; their bytes are the store's, also where they have other names of bookies."""
        if self.live is None:
            return tables.CATALOG_LEDGERS.empty_table()
        return rename_members(self.live.dataset.read("ledgers", buckets=buckets), self.aliases)

    def find_issued(self, layout: Layout) -> int:
        """Return the id below which a complete snapshot knew every ledger of scope 0 that was not deleted."""
        return max((catalog.find_issued(layout) for catalog in self.snapshots), default=0)

    def read_counters(self, layout: Layout) -> list[tuple[pa.Table, Layout]]:
        """Return CATALOG_NODES of the store and of each snapshot, each with its layout, else the given one."""
        columns = ["path", "children_created"]
        return [(catalog.dataset.read("nodes", columns=columns), catalog.layout or layout) for catalog in self.catalogs]

    def read_members(self, buckets: range) -> list[pa.Table]:
        """Return key and segments of each snapshot's records, as far as nothing of ours wrote them."""
        names = ["scope", "ledger", "segments"]
        parts = [read_unguarded(catalog.dataset, buckets, names) for catalog in self.snapshots]
        return [rename_members(part, self.aliases) for part in parts]

    def read_history(self, buckets: range) -> pa.Table:
        """Return what happened to records, as far as any catalog remembers."""
        parts = [catalog.dataset.read("history", buckets=buckets) for catalog in self.catalogs]
        return pa.concat_tables([tables.CATALOG_HISTORY.empty_table(), *parts])

    def read_tables(self, buckets: range, references: pa.Table | None) -> "KnownTables":
        """Return what is known of a bucket range besides what bookies show."""
        collided = tables.CATALOG_LEDGERS.empty_table().select(list(tables.KEY_COLUMNS))
        if self.collisions:
            wanted = [("bucket", ">=", buckets.start), ("bucket", "<", buckets.stop)]
            files = map(to_place, self.collisions)
            collided = pa.concat_tables([read_part(path.parent, path.name, filters=wanted) for path in files])
        snapshots = tuple(
            (rename_records(read_unguarded(catalog.dataset, buckets), self.aliases), catalog.txn)
            for catalog in self.snapshots
        )
        alive = select_last(snapshots[0][0]) if self.snapshots and self.snapshots[0].is_last else None
        return KnownTables(
            self.read_stored(buckets), snapshots, self.read_history(buckets), collided, references, alive
        )

    def count_deletions(self, copies: pa.Table, buckets: range, references: pa.Table | None) -> dict[str, int]:
        """Count, of the ledgers on bookies that the store lacks, those that only history shows as deleted.

        Those that an upper layer's history shows as let go of are counted apart, as far as some bookie still serves
        them: what only logs have, bookies have deleted, too.
        """
        remembers = any(catalog.dataset.rows("history") for catalog in self.catalogs)
        let_go = None if references is None else references.filter(pc.is_valid(references["deletion"]))
        if not remembers and (let_go is None or not let_go.num_rows):
            return {"on_bookies": 0, "deleted": 0, "let_go": 0, "named": 0}
        keys = list(tables.KEY_COLUMNS)
        served = copies.filter(pc.not_equal(copies["source"], "log"))
        on, serving = (part.select(keys).group_by(keys).aggregate([]) for part in (copies, served))
        stored = self.read_stored(buckets).select(keys)
        gone = sides.deletions(self.read_history(buckets)).select(keys)
        left = stored.slice(0, 0) if let_go is None else let_go.select(keys)
        meant = select_stated(references).select(keys)
        is_on_bookies, is_stored, deleted, has, named, stated = (
            r != sides.ABSENT for r in sides.unite([on, stored, gone, serving, left, meant]).rows
        )
        return {
            "on_bookies": on.num_rows,
            "deleted": int((is_on_bookies & deleted & ~is_stored & ~stated).sum()),
            "let_go": int((has & named & ~is_stored).sum()),
            "named": 0 if references is None or let_go is None else references.num_rows - let_go.num_rows,
        }

    def with_deletions(self, counted: Sequence[Mapping[str, int]]) -> "BookieEvidence":
        """Decide from all ranges' counts whether deletions are believed to have been wanted."""
        total = {name: sum(item[name] for item in counted) for name in ("on_bookies", "deleted", "let_go", "named")}
        limit = max(FEW_DELETIONS, SHARE_OF_DELETIONS * total["on_bookies"])
        emptied = any(item.dataset.rows("history") and not item.ledgers for item in self.catalogs)
        return replace(
            self,
            mass_deletion=bool(total["deleted"] and (total["deleted"] > limit or emptied)),
            mass_let_go=bool(total["let_go"] and (total["let_go"] > limit or not total["named"])),
        )


@dataclass(frozen=True, slots=True, eq=False)
class KnownTables:
    """What is known of some ledgers besides what bookies show.

    Attributes:
        stored: CATALOG_LEDGERS of the store.
        snapshots: CATALOG_LEDGERS of each snapshot, the newest first, and the transaction that it was taken at.
        history: CATALOG_HISTORY of all catalogs.
        collided: key columns of ledgers that collide with another scope's.
        references: of `infer.references.SCHEMA`; None: not given.
        alive: key columns and bytes of the records that the store had last; None: nothing shows them.
    """

    stored: pa.Table
    snapshots: tuple[tuple[pa.Table, int | None], ...]
    history: pa.Table
    collided: pa.Table
    references: pa.Table | None = None
    alive: pa.Table | None = None

    def records(self) -> pa.Table:
        """Return the newest snapshot's record of each ledger, but for holds and what cannot be read."""
        whole = [
            (select_rows(rows, pa.array(pc.is_null(rows["error"]).to_numpy() & ~holds.is_hold(rows))), txn)
            for rows, txn in self.snapshots
        ]
        return sides.pick_newest_records(whole)[0]


def select_last(records: pa.Table) -> pa.Table:
    """Return what `KnownTables` needs of the records that the store had last; CATALOG_LEDGERS in."""
    return records.select([*tables.KEY_COLUMNS, "raw"])


def _list_guarded(catalog: Dataset) -> frozenset[LedgerId]:
    return holds.list_guarded(catalog.read("nodes", columns=["path", "kind", "raw", "owner"]))


def read_unguarded(catalog: Dataset, buckets: range, columns: list[str] | None = None) -> pa.Table:
    """Return a catalog's records but for those under a guard: what they say was found from what bookies showed."""
    wanted = columns if columns is None else list(dict.fromkeys([*columns, "scope", "ledger", "custom"]))
    rows = catalog.read("ledgers", buckets=buckets, columns=wanted)
    rows = select_rows(rows, pa.array(~(holds.mark_guarded(rows, _list_guarded(catalog)) | holds.is_named(rows))))
    return rows if columns is None else rows.select(columns)


def has_scopes(datasets: Sequence[Dataset]) -> bool:
    """Say whether any ledger is of another scope than 0, from what files say about themselves: no row is read."""
    return any(
        dataset.bounds(name, "scope") not in (None, (0, 0))
        for dataset in datasets
        for name in _tables_of_ledgers(dataset)
    )


def _tables_of_ledgers(dataset: Dataset) -> Sequence[str]:
    return ["copies"] if dataset.kind == "inventory" else ["ledgers", "history"]


def find_collisions(datasets: Sequence[Dataset], part: range) -> pa.Table:
    """Return the key columns of ledgers that share the lower half of their ids with one of another scope.

    Args:
        datasets: inventories and catalogs.
        part: the buckets of scope 0 that the lower halves fall into: each half is of one part, whatever its scope.
    """
    keys = list(tables.KEY_COLUMNS)
    parts = [pa.schema(tables.KEY).empty_table()]
    for dataset in datasets:
        for name in _tables_of_ledgers(dataset):
            for batch in dataset.batches(name):
                ledger = batch["ledger"].to_numpy()
                half = buckets_of(np.zeros_like(ledger), ledger)
                selected = batch.select(keys).filter(pa.array((half >= part.start) & (half < part.stop)))
                parts.append(selected.group_by(keys).aggregate([]).select(keys).cast(parts[0].schema))
    rows = pa.concat_tables(parts).group_by(keys).aggregate([])
    several = rows.group_by("ledger").aggregate([([], "count_all")])
    several = several.filter(pc.greater(several["count_all"], 1))["ledger"]
    return sort_by_key(
        rows.filter(pc.is_in(rows["ledger"], several.combine_chunks())).select(keys).cast(parts[0].schema)
    )
