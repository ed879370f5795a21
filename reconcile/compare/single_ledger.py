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
from reconcile.compare.evidence import Earlier, Evidence, Tables, collisions, has_scopes, newest_first
from reconcile.compare.knowledge import Knowledge, Shapes
from recovery.codecs import ledger_metadata
from recovery.dataset import Dataset
from recovery.infer.reconstruct import Options
from recovery.model import tables
from recovery.model.coverage import Coverage
from recovery.model.ids import LedgerId


@dataclass(frozen=True, slots=True)
class Stored:
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
    """

    source: str
    row: pa.Table
    history: pa.Table
    txn: int | None
    members: tuple[str, ...]
    complete: bool
    catalog: Dataset | None = None
    instance_id: str | None = None

    @property
    def at(self) -> float:
        """When it was read, in seconds since 1970; what is read now is newer than any capture."""
        return math.inf if self.catalog is None else Earlier.of(self.catalog).at


@dataclass(frozen=True, slots=True)
class Decided:
    """What becomes of the ledger.

    Attributes:
        row: of RECONSTRUCTION; None: nothing shows it.
        origin: what that is from.
        shapes: the prior that was used.
        shown: rows of RECONSTRUCTION: what bookies show, where something else speaks against it.
    """

    row: Mapping[str, Any] | None = None
    origin: str = ""
    shapes: Shapes = ()
    shown: tuple[Mapping[str, Any], ...] = ()


def only(dataset: Dataset, table: str, ledger: LedgerId) -> pa.Table:
    """Return one ledger's rows of a table; only its bucket is read."""
    rows = dataset.read(table, buckets=range(ledger.bucket, ledger.bucket + 1))
    return rows.filter(is_of(rows, ledger))


def is_of(rows: pa.Table, ledger: LedgerId) -> Any:  # noqa: ANN401 - an Arrow column
    """Say which rows are the ledger's."""
    return pc.and_(pc.equal(rows["scope"], ledger.scope), pc.equal(rows["ledger"], ledger.ledger))


def decided(
    ledger: LedgerId,
    inventories: Sequence[Dataset],
    live: Stored | None,
    earlier: Sequence[Stored],
    copies: pa.Table,
    bookies: pa.Table,
    plan: Dataset | None,
    knowledge: Knowledge,
    coverage: Coverage,
) -> Decided:
    """Return what a plan says of the ledger, if it does; else what `recover` would decide.

    Args:
        ledger: which.
        inventories: of different bookies of one cluster.
        live: what the store has of it.
        earlier: what earlier catalogs have, the newest first.
        copies: COPIES of the ledger.
        bookies: BOOKIES of all inventories.
        plan: that may know it.
        knowledge: what the operator knows.
        coverage: which bookies were looked at.
    """
    if plan is not None:
        rows = only(plan, "reconstruction", ledger).to_pylist()
        if rows:
            return Decided(rows[0], f"from the plan {plan.path}", plan.manifest.get("prior", ()))
    if not inventories and (not earlier or (live is not None and live.catalog is None)):
        # Whether a store has other ledgers its capture tells.
        return Decided()
    whole = [one for one in (live, *earlier) if one is not None and one.catalog is not None]
    evidence = Evidence(
        live=Earlier.of(live.catalog) if live is not None and live.catalog is not None else None,
        earlier=newest_first([one.catalog for one in earlier if one.catalog is not None]),
        everywhere=coverage.is_whole,
        looked_at=True,
    )
    options = Options(passwords=knowledge.passwords, unscanned_bookies=coverage.not_scanned, tail=knowledge.tail)
    case = Case(
        tuple(inventories),
        bookies,
        evidence,
        options,
        knowledge.layout,
        knowledge.default_quorum,
        members_known=bool(coverage.members_known_from),
    )
    ranges = decide.ranges(case)
    sampled = decide.sampled(ranges, case.rows())
    counted = [decide.counted(case, part, _of_range(knowledge.references, part)) for part in sampled]
    case, prior = decide.prepared(case, counted)
    known = Tables(
        live.row if live is not None else tables.CATALOG_LEDGERS.empty_table(),
        tuple((one.row, one.txn) for one in earlier),
        pa.concat_tables(
            [tables.CATALOG_HISTORY.empty_table(), *(s.history for s in (live, *earlier) if s is not None)]
        ),
        _collided(ledger, [*inventories, *(one.catalog for one in whole if one.catalog is not None)]),
        of_ledger(knowledge.references, ledger),
    )
    issued = case.evidence.issued(knowledge.layout) if knowledge.layout is not None else 0
    one = decide.decided(case, prior, copies, known, issued)
    found = one.outcomes().to_pylist()
    if not found:
        return Decided()
    where = "all their ledgers" if len(sampled) == len(ranges) else f"{len(sampled)} of {len(ranges)} bucket ranges"
    said = f"made now; shapes counted on {where}"
    alone = [s.source for s in (live, *earlier) if s is not None and s.catalog is None]
    if alone:
        said += f"; of {', '.join(alone)} only this ledger was read: a capture of it may tell recover more"
    shapes = [asdict(shape) for shape in prior.shapes]
    shown = [row for row in one.shown.to_pylist() if found[0]["outcome"] != "restored" and row["state"] is not None]
    return Decided(found[0], said, shapes, tuple(shown))


def _collided(ledger: LedgerId, datasets: Sequence[Dataset]) -> pa.Table:
    """Return the key of the ledger if one of another scope has the same lower half; reads nothing where none has."""
    found = tables.CATALOG_LEDGERS.empty_table().select(list(tables.KEY_COLUMNS))
    if has_scopes(datasets):
        half = LedgerId(0, ledger.ledger).bucket
        found = collisions(datasets, range(half, half + 1))
    return found.filter(is_of(found, ledger))


def _of_range(references: pa.Table | None, buckets: range) -> pa.Table | None:
    if references is None:
        return None
    bucket = references["bucket"]
    return references.filter(pc.and_(pc.greater_equal(bucket, buckets.start), pc.less(bucket, buckets.stop)))


def of_ledger(references: pa.Table | None, ledger: LedgerId) -> pa.Table | None:
    """Return what upper layers know of the ledger; None where none was asked."""
    return None if references is None else references.filter(is_of(references, ledger))


def stored_row(held: Versioned, ledger: LedgerId) -> pa.Table:
    """Return a record that was read from a store as a row of CATALOG_LEDGERS."""
    raw = pa.array([held.value], pa.binary())
    parsed = ledger_metadata.decode_columns(raw)
    own: dict[str, Any] = {
        "bucket": pa.array([ledger.bucket], pa.int16()),
        "scope": pa.array([ledger.scope]),
        "ledger": pa.array([ledger.ledger]),
        "raw": raw,
        "version": pa.array([held.version]),
        "created_at": _time(held.created_ms),
        "changed_at": _time(held.changed_ms),
    }
    columns = [
        own[f.name] if f.name in own else parsed[f.name] if f.name in parsed.schema.names else pa.nulls(1, f.type)
        for f in tables.CATALOG_LEDGERS
    ]
    return pa.table(columns, schema=tables.CATALOG_LEDGERS)


def history_rows(changes: Iterable[pa.RecordBatch], key: str, ledger: LedgerId) -> pa.Table:
    """Return what happened to one key of a store as rows of CATALOG_HISTORY."""
    found = [tables.CATALOG_HISTORY.empty_table()]
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
        found.append(pa.table(columns, schema=tables.CATALOG_HISTORY))
    return pa.concat_tables(found)


def _time(milliseconds: int | None) -> pa.Array:
    return pa.array([milliseconds], pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
