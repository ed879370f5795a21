"""Locks of ids that two ledgers have: each bucket has a share of those that one listing of a store can hold."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.compare.evidence import Catalog
from reconcile.plan.actions import LEAVE, REUSE_LOCK_TIME, make_reuse_locks, make_reuse_releases
from reconcile.rules import holds
from recovery.codecs.replication_lock import MAX_LOCKS, ledger_of_lock, read_reuse_end
from recovery.codecs.store import Layout
from recovery.codecs.store_kind import kind_of
from recovery.model import tables
from recovery.model.ids import BUCKETS, LedgerId


class LockRoom:
    """How many locks of ids with two ledgers each bucket still has a place for.

    Args:
        share: locks that a plan may make in each bucket.
        buckets: of the guards' locks that it makes; they come first.
    """

    def __init__(self, share: int, buckets: Iterable[int]) -> None:
        self._share = share
        self._made = Counter(buckets)

    def take(self, bucket: int) -> bool:
        """Take a place in a bucket; False: it has none left."""
        has_place = self._made[bucket] < self._share
        self._made[bucket] += has_place
        return has_place


def list_reuse_locks(live: Catalog | None) -> list[dict[str, Any]]:
    """Return the locks of ids with two ledgers that the store has, as key, path, version, raw, end; None: no store."""
    if live is None:
        return []
    rows = live.dataset.read("nodes", columns=["path", "kind", "raw", "owner", "version"])
    listed = []
    for row in rows.filter(pc.equal(rows["kind"], "lock")).to_pylist():
        ledger, end = ledger_of_lock(row["path"]), read_reuse_end(row["raw"], row["owner"] or 0)
        if ledger is not None and end is not None:
            key = {"bucket": ledger.bucket, "scope": ledger.scope, "ledger": ledger.ledger}
            listed.append({**key, **{name: row[name] for name in ("path", "version", "raw")}, "end": end})
    return sorted(listed, key=lambda row: tuple(row[name] for name in tables.KEY_COLUMNS))


def share_locks(layout: Layout, there: int) -> int:
    """Return how many locks a plan may make in each bucket; there: how many the store has."""
    return max(0, MAX_LOCKS - there) // BUCKETS if kind_of(layout).has_replication else 0


def plan_reuse_locks(
    layout: Layout,
    made: datetime,
    standing: list[dict[str, Any]],
    places: npt.NDArray[np.int64],
    stored: pa.Table,
    under_guard: npt.NDArray[np.bool_],
    room: LockRoom,
) -> pa.Table:
    """Return the actions that make locks of ids that two ledgers have, and remove those that are not needed now.

    Args:
        layout: of the target.
        made: when the plan is made.
        standing: such locks that the store has, of the range, as `list_reuse_locks` gives them.
        places: rows of the store that want one.
        stored: CATALOG_LEDGERS of the store.
        under_guard: which of these a guard's lock keeps.
        room: for locks, beside those of guards.
    """
    if not kind_of(layout).has_replication:
        return tables.ACTIONS.empty_table()
    places = places[~(under_guard | holds.is_hold(stored))[places]]
    wanted = stored.select(list(tables.KEY_COLUMNS)).take(pa.array(places))
    lock_of = {LedgerId(row["scope"], row["ledger"]): row for row in standing}
    needed = {LedgerId(row["scope"], row["ledger"]) for row in wanted.to_pylist()}
    missing = [
        LedgerId(row["scope"], row["ledger"]) not in lock_of and room.take(row["bucket"]) for row in wanted.to_pylist()
    ]
    parts = [tables.ACTIONS.empty_table()]
    if any(missing):
        parts.append(make_reuse_locks(wanted.filter(pa.array(missing)), made + REUSE_LOCK_TIME))
    if standing:
        columns = {name: [row[name] for row in standing] for name in standing[0] if name != "end"}
        over = [row["end"] <= made or LedgerId(row["scope"], row["ledger"]) not in needed for row in standing]
        parts.append(
            make_reuse_releases(pa.table({**columns, "op": ["remove" if is_past else LEAVE for is_past in over]}))
        )
    return pa.concat_tables(parts)
