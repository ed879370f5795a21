"""Which ids are used, of all that any source names: no generator may give one of them again.

    source                         ids
    bookies                        of every ledger that they hold, and the largest that their files name
    store, snapshots               of every record, those that their history shows as created or deleted included
    references                     of every ledger that an upper layer names, the deleted ones, too
    counters of store, snapshots   the last that each gave: ledgers that were deleted since had the ids below it

Only ids of scope 0 come from generators. What counts as used is decided here, and nowhere else.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recovery.codecs import store
from recovery.codecs.store import Layout

RAISE_LIMIT: Final = 100_000_000
"""Largest number that a counter is raised past: more takes hours, and BookKeeper skips an id that has a record."""

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class UsedNumbers:
    """What some ids say of the generators that give ids.

    Attributes:
        taken: key of each counter to the largest number that is used.
        above_short: ids that no short generator gives.
        above_raise: ids that no counter is raised past.
    """

    taken: dict[str, int] = field(default_factory=dict)
    above_short: int = 0
    above_raise: int = 0


def is_behind(next_id: int | None, largest: int) -> bool:
    """Say whether a counter would give a used id again; next_id: what it gives next, None: it never gave any."""
    return (next_id or 0) <= largest


def of_ledgers(sides: pa.Table, history: pa.Table, references: pa.Table | None) -> Ids:
    """Return the ids that count of a bucket range, each once.

    Args:
        sides: SIDES: bookies, the store and what it held earlier.
        history: CATALOG_HISTORY.
        references: of `infer.references.SCHEMA`; None: not given.
    """
    columns = [_scope_0(sides), _scope_0(history)]
    if references is not None:
        columns.append(_scope_0(references))
    return np.asarray(pc.unique(pa.chunked_array(columns, pa.int64())).to_numpy(zero_copy_only=False), np.int64)


def of_bookies(bookies: pa.Table) -> Ids:
    """Return the largest id that the files of each bookie name; BOOKIES in."""
    rows = bookies["max_ids"].to_pylist()
    return np.array([largest["ledger"] for row in rows for largest in row if largest["scope"] == 0], np.int64)


def of_counters(catalogs: Iterable[tuple[pa.Table, Layout]]) -> Ids:
    """Return the last id that each counter of some stores gave; CATALOG_NODES and layout of each in."""
    return np.array([last for nodes, layout in catalogs for last in _last_given(nodes, layout)], np.int64)


def _last_given(nodes: pa.Table, layout: Layout) -> Iterator[int]:
    nodes = nodes.filter(pc.greater(nodes["children_created"], 0)).select(["path", "children_created"])
    if layout is not Layout.ETCD:
        next_ids = nodes.filter(pc.equal(nodes["path"], store.generator_key(layout)))["children_created"]
        yield from (next_id - 1 for next_id in next_ids.to_pylist())
        return
    for row in nodes.to_pylist():
        bucket = store.bucket_of(row["path"])
        if bucket is not None:
            yield bucket << store.BUCKET_BITS | (row["children_created"] - 1)


def numbers(layout: Layout, ids: Ids) -> UsedNumbers:
    """Return what ids say of the generators of a layout."""
    past_raise = ids > RAISE_LIMIT
    past_short = ids >= store.FIRST_LONG_ID
    if layout is Layout.ETCD:
        past_raise = past_short = (ids & ((1 << store.BUCKET_BITS) - 1)) > RAISE_LIMIT
    return UsedNumbers(store.numbers_taken(layout, ids, RAISE_LIMIT), int(past_short.sum()), int(past_raise.sum()))


def _scope_0(rows: pa.Table) -> pa.Array:
    return rows["ledger"].filter(pc.equal(rows["scope"], 0)).combine_chunks()
