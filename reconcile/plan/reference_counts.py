"""How references and ledgers agree, in a bucket range and in all of them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.plan.manifest import ReferenceCounts, UnreferencedLedger
from reconcile.rules.sides import ABSENT, unite
from recovery.model.ids import LedgerId

_SOME: Final = 100
_HASH_DIGITS: Final = 12


def count_references(references: pa.Table, rows: pa.Table, stored: pa.Table) -> ReferenceCounts:
    """Count what references name, what they do not, and what they name in vain; list some of the latter two.

    Args:
        references: `infer.references.SCHEMA` of a bucket range.
        rows: RECONSTRUCTION of its ledgers.
        stored: CATALOG_LEDGERS of the store.
    """
    wanted = references.filter(pc.invert(pc.fill_null(references["deleted"], fill_value=False)))
    named, on_bookies, in_store = unite([references, rows, stored]).rows
    wanted_rows, is_on_bookies, is_in_store = unite([wanted, rows, stored]).rows
    unreferenced = np.sort(on_bookies[(on_bookies != ABSENT) & (named == ABSENT)])
    in_vain = wanted_rows[(wanted_rows != ABSENT) & (is_on_bookies == ABSENT) & (is_in_store == ABSENT)]
    some_unreferenced = rows.select(["scope", "ledger", "key"]).take(pa.array(unreferenced[:_SOME])).to_pylist()
    some_not_found = wanted.select(["scope", "ledger"]).take(pa.array(np.sort(in_vain)[:_SOME])).to_pylist()
    return ReferenceCounts(
        referenced=int(((named != ABSENT) & ((on_bookies != ABSENT) | (in_store != ABSENT))).sum()),
        unreferenced=len(unreferenced),
        referenced_not_found=len(in_vain),
        some_unreferenced=tuple(
            UnreferencedLedger(row["scope"], row["ledger"], None if row["key"] is None else row["key"].hex())
            for row in some_unreferenced
        ),
        some_not_found=tuple(LedgerId(row["scope"], row["ledger"]) for row in some_not_found),
    )


def sum_references(
    counts: Sequence[ReferenceCounts], references: pa.Table, *, unreadable: int, gaps: int
) -> ReferenceCounts:
    """Return what all ranges say about references.

    Args:
        counts: of the ranges.
        references: `infer.references.SCHEMA`, of all ranges.
        unreadable: records that could not be read.
        gaps: parts of stores that their copies lack.
    """
    unreferenced = [ledger for count in counts for ledger in count.some_unreferenced]
    return ReferenceCounts(
        referenced=sum(count.referenced for count in counts),
        unreferenced=sum(count.unreferenced for count in counts),
        referenced_not_found=sum(count.referenced_not_found for count in counts),
        some_unreferenced=add_neighbours(references, unreferenced[:_SOME]),
        some_not_found=tuple(ledger for count in counts for ledger in count.some_not_found)[:_SOME],
        unreadable=unreadable,
        gaps=gaps,
    )


def add_neighbours(references: pa.Table, unreferenced: Sequence[UnreferencedLedger]) -> tuple[UnreferencedLedger, ...]:
    """Return ledgers that nothing references with hints, none of which says whose they are.

    Args:
        references: `infer.references.SCHEMA`.
        unreferenced: with the whole hash of the key.

    Returns:
        Each with the first digits of its key's hash, and the owners of the nearest ids below and above.
    """
    hinted = []
    scope, ledger = references["scope"].to_numpy(), references["ledger"].to_numpy()
    order = np.lexsort((ledger, scope))
    for alone in unreferenced:
        of_scope = order[scope[order] == alone.scope]
        place = int(np.searchsorted(ledger[of_scope], alone.ledger))
        nearest = pa.array(of_scope[max(place - 1, 0) : place + 1])
        rows = references.select(["ledger", "owner"]).take(nearest).to_pylist()
        neighbours = tuple(f"{row['owner'] or 'unnamed'} ({row['ledger']})" for row in rows)
        key = None if alone.key is None else alone.key[:_HASH_DIGITS]
        hinted.append(replace(alone, key=key, neighbours=neighbours))
    return tuple(hinted)
