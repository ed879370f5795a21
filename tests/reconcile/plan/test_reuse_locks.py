"""Locks of ids that two ledgers have, beside those of guards: each bucket has a share of one listing."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from reconcile.plan.actions import REUSE_LOCK_TIME
from reconcile.plan.reuse_locks import LockRoom, list_reuse_locks, plan_reuse_locks, share_locks
from reconcile.rules.holds import HOLD_MARK
from recovery.codecs.replication_lock import MAX_LOCKS, encode_guard, encode_reuse, lock_key
from recovery.codecs.store import Layout
from recovery.model.ids import BUCKETS, LedgerId
from tests.reconcile.rules.test_sides import CLOSED, catalog

Row = dict[str, Any]
MADE: Final = datetime(2030, 1, 1, tzinfo=UTC)
LATER: Final = MADE + timedelta(hours=1)
ONE, TWO, HELD, GUARDED = (LedgerId(0, number) for number in (1, 2, 3, 4))
STORED: Final = catalog(
    dict.fromkeys((ONE, TWO, GUARDED), CLOSED) | {HELD: replace(CLOSED, custom=((HOLD_MARK, b"x"),))}
)
PLACES: Final = {LedgerId(row["scope"], row["ledger"]): n for n, row in enumerate(STORED.to_pylist())}
UNDER_GUARD: Final = np.array([n == GUARDED for n in PLACES])


def standing(ledger: LedgerId, end: datetime) -> Row:
    """Return a lock that the store has."""
    key = {"bucket": ledger.bucket, "scope": ledger.scope, "ledger": ledger.ledger}
    return {**key, "path": lock_key(ledger), "version": 5, "raw": encode_reuse(end), "end": end}


def planned(
    *wanted: LedgerId, locks: Sequence[Row] = (), share: int = 9, layout: Layout = Layout.HIERARCHICAL
) -> list[tuple[str, str, Any]]:
    """Return op, key and value of each action for ids that want a lock; those of guards have a bucket of their own."""
    places = np.array([PLACES[ledger] for ledger in wanted], np.int64)
    rows = plan_reuse_locks(layout, MADE, list(locks), places, STORED, UNDER_GUARD, LockRoom(share, [])).to_pylist()
    return [(row["op"], row["key"], row["value"] or row["before"]) for row in rows]


def test_locks_of_reused_ids_count_in_the_share_of_each_bucket() -> None:
    """The guards' locks come first; what is left of a bucket's share is for reused ids, and no other bucket has it."""
    room = LockRoom(3, [5, 5, 6, 6, 6, 6])
    assert [room.take(bucket) for bucket in (5, 5, 6, 7, 7, 7, 7)] == [True, False, False, True, True, True, False]
    assert not LockRoom(0, []).take(5)


@pytest.mark.parametrize(
    ("layout", "there", "share"),
    [
        (Layout.HIERARCHICAL, 0, MAX_LOCKS // BUCKETS),
        (Layout.HIERARCHICAL, MAX_LOCKS - 2 * BUCKETS, 2),
        (Layout.HIERARCHICAL, MAX_LOCKS + BUCKETS, 0),
        (Layout.ETCD, 0, 0),
    ],
)
def test_a_plan_makes_as_many_locks_as_one_listing_has_a_place_for(layout: Layout, there: int, share: int) -> None:
    """What the store has is taken off; a store without replication has no locks."""
    assert share_locks(layout, there) == share


def test_which_locks_of_a_store_are_of_reused_ids() -> None:
    """No guard's lock, no worker's and no other node; in the order of their ledgers, with the time of their end."""

    def node(path: str, raw: bytes, **others: object) -> Mapping[str, object]:
        return {"path": path, "kind": "lock", "raw": raw, "owner": 0, "version": 5, **others}

    nodes = pa.Table.from_pylist(
        [
            node(lock_key(TWO), encode_reuse(LATER), owner=None),
            node(lock_key(ONE), encode_reuse(MADE)),
            node(lock_key(HELD), encode_guard("ab" * 32)),
            node(lock_key(GUARDED), encode_reuse(LATER), owner=0x17),
            node("/underreplication/locks/mine", encode_reuse(LATER)),
            node(lock_key(LedgerId(0, 9)), encode_reuse(LATER), kind="mark"),
        ]
    )
    live: Any = SimpleNamespace(dataset=SimpleNamespace(read=lambda _name, columns: nodes.select(columns)))
    expected = [standing(ONE, MADE), standing(TWO, LATER)]
    assert list_reuse_locks(live) == sorted(expected, key=lambda row: (row["bucket"], row["ledger"]))
    assert list_reuse_locks(None) == []


def test_an_id_that_two_ledgers_have_gets_a_lock_with_an_end() -> None:
    """Unless it has one, a guard keeps its copies, it is held, its bucket has no place, or the store knows no locks."""
    made = ("keep", lock_key(ONE), encode_reuse(MADE + REUSE_LOCK_TIME))
    assert planned(ONE) == [made]
    assert planned(ONE, GUARDED, HELD) == [made]
    assert planned(GUARDED) == planned(HELD) == planned() == []
    assert planned(ONE, share=0) == planned(ONE, layout=Layout.ETCD) == []
    two = planned(ONE, TWO)
    assert [(op, key) for op, key, _ in two] == [("keep", lock_key(ONE)), ("keep", lock_key(TWO))]
    assert planned(ONE, TWO, locks=[standing(TWO, LATER)])[0] == made


@pytest.mark.parametrize(
    ("wanted", "end", "op"),
    [
        ((TWO,), LATER, "leave"),
        ((TWO,), MADE, "remove"),
        ((TWO,), MADE - timedelta(seconds=1), "remove"),
        ((), LATER, "remove"),
        ((ONE,), LATER, "remove"),
    ],
)
def test_a_lock_goes_at_its_end_or_when_nothing_wants_it(wanted: Sequence[LedgerId], end: datetime, op: str) -> None:
    """Until then it is left to a person, who may accept the older ledger's loss."""
    found = [row for row in planned(*wanted, locks=[standing(TWO, end)]) if row[0] != "keep"]
    assert found == [(op, lock_key(TWO), encode_reuse(end))]


def test_a_lock_that_stands_takes_no_place() -> None:
    """The one place of a bucket is for a lock that is not there yet."""
    room = LockRoom(1, [])
    places = np.array([PLACES[TWO]], np.int64)
    args: Any = (Layout.HIERARCHICAL, MADE, [standing(TWO, LATER)], places, STORED, UNDER_GUARD, room)
    assert plan_reuse_locks(*args)["op"].to_pylist() == ["leave"]
    assert room.take(TWO.bucket)
