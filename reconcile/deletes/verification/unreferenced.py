"""Does any upper layer name a ledger? What two listings say about it, who made it, and how old it was then."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.deletes.tombstones import SECOND_MS
from reconcile.deletes.verification import makers
from reconcile.deletes.verification.evidence import ReferenceListing
from reconcile.deletes.verification.objections import Objections, UnsafeReason
from reconcile.deletes.verification.wanted import Ints, WantedLedgers
from reconcile.references import COMPACTION
from recovery.infer.references import select_stated


def judge_references(
    wanted: WantedLedgers,
    records: pa.Table,
    listings: Sequence[ReferenceListing],
    min_age_ms: int,
    objections: Objections,
) -> None:
    """Object to ledgers that an upper layer names, or may name where nobody looked.

    Args:
        wanted: the ledgers.
        records: of those that the store has: `row` (number of the ledger), `custom`, `created_at`, `ctime`.
        listings: of references.
        min_age_ms: of a ledger when references were listed first.
        objections: gathered here.
    """
    for listing in listings:
        if listing.references is None:
            detail = "no upper layer was named; an empty file of references says that there is none"
            objections.add_all(UnsafeReason.REFERENCES_UNKNOWN, listing.problem or detail)
            continue
        if listing.problem:
            objections.add_all(UnsafeReason.REFERENCES_UNKNOWN, listing.problem)
        rows, numbers = wanted.select(select_live(listing.references.rows))
        owners = pc.fill_null(rows["owner"], "an upper layer").to_pylist()
        objections.add(numbers, UnsafeReason.REFERENCED, [f"{owner} refers to it" for owner in owners])
    _judge_makers(wanted, records, listings, objections)
    _judge_age(records, min(listing.at_ms for listing in listings), min_age_ms, objections)


def select_live(references: pa.Table) -> pa.Table:
    """Return the references that do not say that the ledger was deleted."""
    return references.filter(pc.invert(pc.fill_null(references["deleted"], fill_value=False)))


def find_births(records: pa.Table) -> Ints:
    """Return when each ledger was made, ms since 1970, as its record or the store says: the later one; -1: unknown."""
    born: Ints = np.maximum(read_times(records["created_at"]), pc.fill_null(records["ctime"], -1).to_numpy())
    return born


def read_times(column: Any) -> Ints:  # noqa: ANN401 - an Arrow column
    """Return times as ms since 1970; -1 where there is none."""
    ms = pc.cast(pc.cast(column, pa.timestamp("ms", "UTC"), safe=False), pa.int64())
    return np.asarray(pc.fill_null(ms, -1).to_numpy(zero_copy_only=False), np.int64)


def _judge_makers(
    wanted: WantedLedgers, records: pa.Table, listings: Sequence[ReferenceListing], objections: Objections
) -> None:
    """Object to ledgers that a broker, or another application, may name where nobody looked."""
    row, custom = records["row"].to_numpy(), records["custom"]
    stated = np.zeros(len(wanted), np.bool_)
    for listing in listings:
        if listing.references is not None:
            _, numbers = wanted.select(select_stated(listing.references.rows))
            stated[numbers] = True
    is_open = ~stated[row]
    objections.add(
        row[makers.find_hidden(custom, _list_owners(listings)) & is_open], UnsafeReason.MAKER_UNLISTED, makers.HIDDEN
    )
    if not all(listing.is_stated for listing in listings):
        unlisted = makers.find_others(custom, has_pravega=all(listing.has_pravega for listing in listings))
        objections.add(row[unlisted & is_open], UnsafeReason.MAKER_UNLISTED, makers.OTHERS)


def _list_owners(listings: Sequence[ReferenceListing]) -> set[str] | None:
    """Return the owners that any listing names; None: one of them read no store's records.

    The subscription of a compaction is none of them where bookies told what it names.
    """
    owners: set[str] = set()
    for listing in listings:
        if listing.references is None or not listing.references.stores:
            return None
        named = pc.drop_null(pc.unique(listing.references.rows["owner"])).to_pylist()
        owners.update(owner for owner in named if owner.removeprefix(COMPACTION) not in listing.read_topics)
    return owners


def _judge_age(records: pa.Table, listed_ms: int, min_age_ms: int, objections: Objections) -> None:
    row, born = records["row"].to_numpy(), find_births(records)
    unknown = (born < 0) & (min_age_ms > 0)
    objections.add(row[unknown], UnsafeReason.TOO_YOUNG, "nothing says when it was created, and an age is demanded")
    young = (born >= 0) & (born + min_age_ms > listed_ms)
    detail = f"it was not {min_age_ms // SECOND_MS} seconds old when references were listed"
    objections.add(row[young], UnsafeReason.TOO_YOUNG, detail)
