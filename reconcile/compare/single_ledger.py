"""What `recover` decides of one ledger, from the same evidence by the same functions, without Spark.

source of evidence     what is read of it
inventories, catalogs  for the prior, and for deletions in masses, what recover counts; else the ledger's bucket
a live store           the ledger's record, its history, who has a cookie: said, for a capture may tell more
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from backends.protocols import Versioned
from reconcile.compare import decide
from reconcile.compare.decide import Case
from reconcile.compare.evidence import (
    BookieEvidence,
    Catalog,
    KnownTables,
    find_collisions,
    has_scopes,
    select_last,
    sort_newest_first,
)
from reconcile.compare.knowledge import Knowledge, Shapes
from recovery.codecs import ledger_metadata
from recovery.dataset import Dataset
from recovery.infer.reconstruct import InferOptions
from recovery.model import tables
from recovery.model.coverage import Coverage
from recovery.model.ids import LedgerId


@dataclass(frozen=True, slots=True)
class StoredLedger:
    """What a store or a catalog has of the ledger.

    Attributes:
        source: its address.
        row: CATALOG_LEDGERS, one row or none.
        history: CATALOG_HISTORY of the ledger.
        txn: the transaction that the source was read at; None: not known.
        members: bookies that have a cookie there.
        complete: whether all of the source was read.
        catalog: all that it has; None: only this ledger was asked for.
        instance_id: of its cluster; None: it names none.
        is_guarded: a guard's lock stands for the ledger.
        keeps_times: the store knows when each change was made; else a time in `history` is when it was received.
        notes: what a person should know of `history`.
    """

    source: str
    row: pa.Table
    history: pa.Table
    txn: int | None
    members: tuple[str, ...]
    complete: bool
    catalog: Dataset | None = None
    instance_id: str | None = None
    is_guarded: bool = False
    keeps_times: bool = True
    notes: tuple[str, ...] = ()

    @property
    def at(self) -> float:
        """When it was read, in seconds since 1970; what is read now is newer than any capture."""
        return math.inf if self.catalog is None else Catalog.read(self.catalog).taken_at


@dataclass(frozen=True, slots=True)
class LedgerDecision:
    """What becomes of the ledger.

    Attributes:
        row: of RECONSTRUCTION; None: nothing shows it.
        origin: what that is from.
        shapes: the prior that was used.
        shown: rows of RECONSTRUCTION: what bookies show, where something speaks against it; guarded where that is its
            content.
    """

    row: Mapping[str, Any] | None = None
    origin: str = ""
    shapes: Shapes = ()
    shown: tuple[Mapping[str, Any], ...] = ()


def read_only_ledger(dataset: Dataset, table: str, ledger: LedgerId) -> pa.Table:
    """Return one ledger's rows of a table; only its bucket is read."""
    rows = dataset.read(table, buckets=range(ledger.bucket, ledger.bucket + 1))
    return rows.filter(is_of(rows, ledger))


def is_of(rows: pa.Table, ledger: LedgerId) -> Any:  # noqa: ANN401 - an Arrow column
    """Say which rows are the ledger's."""
    return pc.and_(pc.equal(rows["scope"], ledger.scope), pc.equal(rows["ledger"], ledger.ledger))


def decide_ledger(
    ledger: LedgerId,
    inventories: Sequence[Dataset],
    live: StoredLedger | None,
    snapshots: Sequence[StoredLedger],
    copies: pa.Table,
    bookies: pa.Table,
    plan: Dataset | None,
    knowledge: Knowledge,
    coverage: Coverage,
) -> LedgerDecision:
    """Return what a plan says about the ledger, if it does; else what `recover` would decide.

    Args:
        ledger: which.
        inventories: of different bookies of one cluster.
        live: what the store has of it.
        snapshots: what snapshots have, the newest first.
        copies: COPIES of the ledger.
        bookies: BOOKIES of all inventories.
        plan: that may know it.
        knowledge: what the operator knows.
        coverage: which bookies were looked at.
    """
    if plan is not None:
        rows = read_only_ledger(plan, "reconstruction", ledger).to_pylist()
        if rows:
            return LedgerDecision(rows[0], f"from the plan {plan.path}", plan.manifest.get("prior", ()))
    if not inventories and (not snapshots or (live is not None and live.catalog is None)):
        # Whether a store has other ledgers its capture tells.
        return LedgerDecision()
    catalogs = [one.catalog for one in (live, *snapshots) if one is not None and one.catalog is not None]
    evidence = BookieEvidence(
        live=Catalog.read(live.catalog) if live is not None and live.catalog is not None else None,
        snapshots=sort_newest_first([decided.catalog for decided in snapshots if decided.catalog is not None]),
        everywhere=coverage.is_whole,
        looked_at=True,
        is_some_lost=bool(coverage.lost),
        aliases=knowledge.aliases,
    )
    options = InferOptions(
        passwords=knowledge.passwords,
        unscanned_bookies=coverage.not_scanned,
        lost_bookies=coverage.lost,
        tail=knowledge.tail,
    )
    case = Case(
        tuple(inventories),
        bookies,
        evidence,
        options,
        knowledge.layout,
        knowledge.default_quorum,
        members_known=bool(coverage.members_known_from),
        stated_quorums=knowledge.stated_quorums,
    )
    ranges = decide.cut_ranges(case)
    sampled = decide.sample_ranges(ranges, case.rows())
    counted = [decide.count_range(case, part, _select_range(knowledge.references, part)) for part in sampled]
    case, prior = decide.prepare_case(case, counted)
    known = KnownTables(
        live.row if live is not None else tables.CATALOG_LEDGERS.empty_table(),
        tuple((decided.row, decided.txn) for decided in snapshots),
        pa.concat_tables(
            [tables.CATALOG_HISTORY.empty_table(), *(s.history for s in (live, *snapshots) if s is not None)]
        ),
        _find_collision(ledger, [*inventories, *catalogs]),
        select_ledger(knowledge.references, ledger),
        _select_last(snapshots),
    )
    issued = case.evidence.find_issued(knowledge.layout) if knowledge.layout is not None else 0
    decided = decide.decide_range(case, prior, copies, known, issued)
    outcomes = decided.outcomes().to_pylist()
    if not outcomes:
        return LedgerDecision()
    where = "all their ledgers" if len(sampled) == len(ranges) else f"{len(sampled)} of {len(ranges)} bucket ranges"
    origin = f"made now; shapes counted on {where}"
    alone = [s.source for s in (live, *snapshots) if s is not None and s.catalog is None]
    if alone:
        origin += f"; of {', '.join(alone)} only this ledger was read: a capture of it may tell recover more"
    shapes = [asdict(shape) for shape in prior.shapes]
    is_read = outcomes[0]["outcome"] in ("restored", "guarded")
    shown = [row for row in decided.shown.to_pylist() if not is_read and row["state"] is not None]
    doubted = [{**row, "outcome": "guarded"} for part in decided.doubted for row in part.to_pylist()]
    return LedgerDecision(outcomes[0], origin, shapes, (*shown, *doubted))


def _select_last(snapshots: Sequence[StoredLedger]) -> pa.Table | None:
    """Return what the store had last of the ledger; None where no snapshot shows that."""
    newest = snapshots[0] if snapshots else None
    if newest is None or newest.catalog is None or not Catalog.read(newest.catalog).is_last:
        return None
    return select_last(newest.row)


def _find_collision(ledger: LedgerId, datasets: Sequence[Dataset]) -> pa.Table:
    """Return the key of the ledger if one of another scope has the same lower half; reads nothing where none has."""
    collisions = tables.CATALOG_LEDGERS.empty_table().select(list(tables.KEY_COLUMNS))
    if has_scopes(datasets):
        half = LedgerId(0, ledger.ledger).bucket
        collisions = find_collisions(datasets, range(half, half + 1))
    return collisions.filter(is_of(collisions, ledger))


def _select_range(references: pa.Table | None, buckets: range) -> pa.Table | None:
    if references is None:
        return None
    bucket = references["bucket"]
    return references.filter(pc.and_(pc.greater_equal(bucket, buckets.start), pc.less(bucket, buckets.stop)))


def select_ledger(references: pa.Table | None, ledger: LedgerId) -> pa.Table | None:
    """Return what upper layers know of the ledger; None where none was asked."""
    return None if references is None else references.filter(is_of(references, ledger))


def as_catalog_row(entry: Versioned, ledger: LedgerId) -> pa.Table:
    """Return a record that was read from a store as a row of CATALOG_LEDGERS."""
    raw = pa.array([entry.value], pa.binary())
    parsed = ledger_metadata.decode_columns(raw)
    own: dict[str, Any] = {
        "bucket": pa.array([ledger.bucket], pa.int16()),
        "scope": pa.array([ledger.scope]),
        "ledger": pa.array([ledger.ledger]),
        "raw": raw,
        "version": pa.array([entry.version]),
        "created_txn": pa.array([entry.created_txn], pa.int64()),
        "changed_txn": pa.array([entry.changed_txn], pa.int64()),
        "created_at": _time(entry.created_ms),
        "changed_at": _time(entry.changed_ms),
    }
    columns = [
        own[f.name] if f.name in own else parsed[f.name] if f.name in parsed.schema.names else pa.nulls(1, f.type)
        for f in tables.CATALOG_LEDGERS
    ]
    return pa.table(columns, schema=tables.CATALOG_LEDGERS)


def as_history_rows(changes: Iterable[pa.RecordBatch], key: str, ledger: LedgerId) -> pa.Table:
    """Return what happened to one key of a store as rows of CATALOG_HISTORY."""
    parts = [tables.CATALOG_HISTORY.empty_table()]
    for batch in changes:
        rows = batch.filter(pc.equal(batch["key"], key))
        count = rows.num_rows
        own = {
            "bucket": pa.array([ledger.bucket] * count, pa.int16()),
            "scope": pa.array([ledger.scope] * count, pa.int64()),
            "ledger": pa.array([ledger.ledger] * count, pa.int64()),
            "at": rows["at_ms"].cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
        }
        columns = {f.name: own[f.name] if f.name in own else rows[f.name] for f in tables.CATALOG_HISTORY}
        parts.append(pa.table(columns, schema=tables.CATALOG_HISTORY))
    return pa.concat_tables(parts)


def _time(milliseconds: int | None) -> pa.Array:
    return pa.array([milliseconds], pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
