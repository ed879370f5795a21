"""What upper layers know of their ledgers, of files and of stores; what of it a store and bookies do not show."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile import clusters
from reconcile.findings.table import FindingRun, make_rows
from reconcile.jobs.context import Context, connect
from reconcile.references import References, of_store, read
from reconcile.rules import reference_checks
from reconcile.stores import is_store
from recovery.capture.records import read_records
from recovery.codecs.store import Layout
from recovery.dataset import Dataset, sort_by_key
from recovery.model import tables
from recovery.model.ids import bucket_ranges

if TYPE_CHECKING:
    from backends.registry import OpenStore


def read_references(names: Sequence[str], context: Context) -> References | None:
    """Read what upper layers know, of files and of stores that hold Pulsar's records; None where nothing is named.

    Args:
        names: paths of files, URIs of stores, folders of captures.
        context: of the job.

    Raises:
        InputError: one cannot be read, or is none.
        UnsupportedStoreError: a URI that is malformed, or of a store that is not read.
        UnavailableError: a store does not answer.
    """
    parts = []
    for name in names:
        if not is_store(name):
            parts.append(References(read(Path(name))))
            continue
        with connect(name, context) as opened:
            parts.append(of_store(opened))
    return References.unite(parts)


@dataclass(frozen=True, slots=True)
class ReferenceSources:
    """Where references are read from, and the store that they are held against.

    Attributes:
        names: paths of files, URIs of stores, folders of captures.
        uri: of the store.
        opened: it.
        layout: of it.
        buckets: those that are looked at.
    """

    names: tuple[str, ...]
    uri: str
    opened: "OpenStore"
    layout: Layout
    buckets: range


def find_disagreements(
    sources: ReferenceSources,
    catalog: Dataset,
    inventories: Sequence[Dataset],
    run: FindingRun,
    context: Context,
    *,
    seen: bool,
) -> Iterator[pa.Table]:
    """Yield FINDINGS of references that a store and bookies do not bear out, each seen twice; and of unreadable ones.

    Args:
        sources: of the references.
        catalog: the store, captured.
        inventories: of the bookies.
        run: this one.
        context: of the job.
        seen: every bookie was looked at, for every ledger: what none has is lost.

    Raises:
        InputError: a source cannot be read, or is of another cluster.
        UnavailableError: a store does not answer.
    """
    listed = read_references(sources.names, context)
    if listed is None:
        return
    clusters.require_one(
        [clusters.of_catalog(sources.uri, catalog.read("sources"), catalog.read("nodes")), *listed.stores]
    )
    yield make_rows(reference_checks.unreadable(listed.unreadable, listed.gaps), run)
    later: References | None = None
    for span in bucket_ranges(catalog.rows("ledgers") + sum(inventory.rows("copies") for inventory in inventories)):
        part = range(max(span.start, sources.buckets.start), min(span.stop, sources.buckets.stop))
        if not part:
            continue
        copies = pa.concat_tables(
            [tables.COPIES.empty_table(), *(inventory.read("copies", buckets=part) for inventory in inventories)]
        )
        stored = catalog.read("ledgers", buckets=part)
        first = _find(_select_buckets(listed.rows, part), copies, stored, run, seen=seen)
        if not first.num_rows:
            continue
        # Owners and clients go on while all this is read: both sides are read once more.
        later = later or read_references(sources.names, context)
        if later is None:
            return
        keys = first.select(list(tables.KEY_COLUMNS)).group_by(list(tables.KEY_COLUMNS)).aggregate([])
        scope, ledger = (keys[name].to_numpy() for name in ("scope", "ledger"))
        stored = sort_by_key(read_records(sources.opened.store, sources.opened.root, sources.layout, scope, ledger))
        second = _find(_keep(_select_buckets(later.rows, part), keys), _keep(copies, keys), stored, run, seen=seen)
        yield second.filter(pc.is_in(second["id"], value_set=first["id"].combine_chunks()))


def _find(references: pa.Table, copies: pa.Table, stored: pa.Table, run: FindingRun, *, seen: bool) -> pa.Table:
    shown = copies.group_by(list(tables.KEY_COLUMNS)).aggregate([("explicit_lac", "max")])
    columns = {
        **{name: shown[name] for name in tables.KEY_COLUMNS},
        "lac_low": shown["explicit_lac_max"],
        "last_entry": pa.nulls(shown.num_rows, pa.int64()),
        "length": pa.nulls(shown.num_rows, pa.int64()),
    }
    rows = pa.table(columns).sort_by([(name, "ascending") for name in tables.KEY_COLUMNS])
    return reference_checks.findings(references, rows, copies, stored, run, looked_at=True, seen=seen)


def _select_buckets(rows: pa.Table, part: range) -> pa.Table:
    return rows.filter(pc.and_(pc.greater_equal(rows["bucket"], part.start), pc.less(rows["bucket"], part.stop)))


def _keep(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """Return the rows of some ledgers, in their order."""
    names = ["scope", "ledger"]
    numbered = rows.select(names).append_column("row", pa.array(np.arange(rows.num_rows)))
    places = numbered.join(keys.select(names), names, join_type="inner")["row"].to_numpy()
    return rows.take(pa.array(np.sort(places)))
