"""Three sides of a ledger: every way in which they can stand to each other has one name, and one side is right."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.findings.table import FindingRun
from reconcile.rules import sides
from reconcile.rules.sides import RIGHT, WORDS, Relation, compare, deletions, pick_newest_records, unite
from recovery.codecs import ledger_metadata
from recovery.dataset import sort_by_key
from recovery.model import tables
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment

OPEN = LedgerMetadata(
    3, 2, 2, 2, LedgerState.OPEN, None, None, (Segment(0, ("b1", "b2")),), Digest.CRC32C, b"pw", creator_token=0
)
CLOSED = replace(OPEN, state=LedgerState.CLOSED, last_entry=9, length=90)
ELSEWHERE = replace(CLOSED, segments=(Segment(0, ("b1", "b3")),))
SHORTER = replace(CLOSED, last_entry=7, length=70)
OTHER = replace(CLOSED, password=b"else")


def keys(*ledgers: LedgerId) -> pa.Table:
    """The key columns of ledgers, sorted."""
    rows = [{"bucket": one.bucket, "scope": one.scope, "ledger": one.ledger} for one in ledgers]
    return sort_by_key(pa.Table.from_pylist(rows, schema=pa.schema(tables.KEY)))


def catalog(records: Mapping[LedgerId, LedgerMetadata | bytes]) -> pa.Table:
    """CATALOG_LEDGERS of records, or of bytes that are none."""
    raws = [r if isinstance(r, bytes) else ledger_metadata.encode(r) for r in records.values()]
    parsed = ledger_metadata.decode_columns(pa.array(raws, pa.binary()))
    columns = {
        "bucket": [one.bucket for one in records],
        "scope": [one.scope for one in records],
        "ledger": [one.ledger for one in records],
        "raw": raws,
        "version": [0] * len(raws),
        **{name: parsed[name] for name in parsed.column_names},
    }
    filled = {field.name: columns.get(field.name, pa.nulls(len(raws), field.type)) for field in tables.CATALOG_LEDGERS}
    table = pa.table(filled, schema=tables.CATALOG_LEDGERS)
    return sort_by_key(table)


def happened(*changes: tuple[LedgerId, int, str, bytes | None]) -> pa.Table:
    """CATALOG_HISTORY of (ledger, transaction, op, bytes before)."""
    rows = [
        {"bucket": o.bucket, "scope": o.scope, "ledger": o.ledger, "txn": t, "session": 5, "op": op, "before": before}
        for o, t, op, before in changes
    ]
    return pa.Table.from_pylist(rows, schema=tables.CATALOG_HISTORY)


A = LedgerId(0, 7)


@pytest.mark.parametrize(
    ("held", "stored", "snapshot", "history", "relation", "right"),
    [
        (True, CLOSED, CLOSED, [], Relation.EQUAL, "store"),
        (True, ELSEWHERE, CLOSED, [], Relation.MOVED, "store"),
        (True, CLOSED, OPEN, [], Relation.CHANGED, "store"),
        (True, CLOSED, None, [], Relation.CREATED, "store"),
        (True, OPEN, CLOSED, [], Relation.WENT_BACK, "earlier"),
        (True, SHORTER, CLOSED, [], Relation.WENT_BACK, "earlier"),
        (True, OTHER, CLOSED, [], Relation.REUSED, "nobody"),
        (True, b"", CLOSED, [], Relation.UNPARSABLE, "earlier"),
        (True, b"", None, [], Relation.UNPARSABLE, "bookies"),
        (True, b"", b"x", [], Relation.UNPARSABLE, "bookies"),
        (True, CLOSED, b"x", [], Relation.CHANGED, "store"),
        (True, None, CLOSED, [], Relation.GONE, "earlier"),
        (False, None, CLOSED, [], Relation.SNAPSHOT_ONLY, "earlier"),
        (True, None, None, [], Relation.BOOKIES_ONLY, "bookies"),
        (True, None, None, [(9, "deleted")], Relation.DELETED, "history"),
        (False, None, None, [(9, "deleted")], Relation.DELETED, "history"),
        (True, None, CLOSED, [(11, "deleted")], Relation.DELETED, "history"),
        (True, None, CLOSED, [(9, "deleted")], Relation.GONE, "earlier"),
        (True, None, CLOSED, [(10, "deleted")], Relation.GONE, "earlier"),
        (True, None, None, [(9, "deleted"), (12, "created")], Relation.BOOKIES_ONLY, "bookies"),
        (True, CLOSED, CLOSED, [(11, "deleted")], Relation.EQUAL, "store"),
    ],
)
def test_each_way_the_sides_can_stand_has_one_name(
    held: bool,
    stored: LedgerMetadata | bytes | None,
    snapshot: LedgerMetadata | bytes | None,
    history: Sequence[tuple[int, str]],
    relation: Relation,
    right: str,
) -> None:
    """With a snapshot of transaction 10: presence, bytes and history decide, and in this order."""
    past, seen = pick_newest_records([(catalog({} if snapshot is None else {A: snapshot}), 10)])
    found = compare(
        keys(*([A] if held else [])),
        catalog({} if stored is None else {A: stored}),
        past,
        seen,
        happened(*((A, txn, op, None) for txn, op in history)),
        has_snapshot=True,
    )
    (row,) = found.sides.to_pylist()
    assert (row["relation"], row["right"]) == (relation, right)
    assert (row["deleted_txn"] is not None) == (relation is Relation.DELETED)


def test_without_an_earlier_catalog_nothing_is_called_created() -> None:
    """What was not looked at says nothing."""
    b = LedgerId(7, 7)
    none = tables.CATALOG_LEDGERS.empty_table()
    found = compare(
        keys(A), catalog({A: CLOSED, b: CLOSED}), none, np.zeros(0, np.int64), happened(), has_snapshot=False
    )
    by = {(r["scope"], r["ledger"]): r["relation"] for r in found.sides.to_pylist()}
    assert by == {(0, 7): Relation.STORE_AND_BOOKIES, (7, 7): Relation.STORE_ONLY}


def test_of_several_earlier_catalogs_the_newest_that_has_a_ledger_counts() -> None:
    """Each with the transaction that it was taken at."""
    b = LedgerId(0, 8)
    table, seen = pick_newest_records([(catalog({A: CLOSED}), 20), (catalog({A: OPEN, b: OPEN}), None)])
    states = dict(zip(table["ledger"].to_pylist(), table["state"].to_pylist(), strict=True))
    assert states == {7: "CLOSED", 8: "OPEN"}
    assert dict(zip(table["ledger"].to_pylist(), seen.tolist(), strict=True)) == {7: 20, 8: -1}


def test_of_one_earlier_catalog_all_is_taken_and_of_none_nothing() -> None:
    """With its transaction, where it has one."""
    for txn, stood in ((20, [20]), (None, [-1])):
        table, seen = pick_newest_records([(catalog({A: CLOSED}), txn)])
        assert (table["ledger"].to_pylist(), seen.tolist()) == ([7], stood)
    table, seen = pick_newest_records([])
    assert (table.num_rows, seen.tolist()) == (0, [])


def test_the_last_record_before_a_deletion_is_found() -> None:
    """From history; else from the snapshot; else nobody knows it."""
    b, c = LedgerId(0, 8), LedgerId(0, 9)
    raw = ledger_metadata.encode(OPEN)
    past, seen = pick_newest_records([(catalog({A: CLOSED, b: CLOSED}), 1)])
    history = happened(
        (A, 5, "changed", b"x"), (A, 9, "deleted", raw), (b, 9, "deleted", None), (c, 9, "deleted", None)
    )
    found = compare(keys(), catalog({}), past, seen, history, has_snapshot=True)
    rows = sides.last_records(found, past, history, found.where(Relation.DELETED))
    by = dict(zip(found.sides["ledger"].to_pylist(), rows["raw"].to_pylist(), strict=True))
    assert by == {7: raw, 8: ledger_metadata.encode(CLOSED), 9: None}


def test_every_relation_is_in_words_and_has_a_side() -> None:
    """Nothing that is stored lacks its meaning."""
    assert set(WORDS) == set(RIGHT) == set(Relation)


def test_two_nulls_are_equal_and_one_is_not() -> None:
    """Of plain values as of lists."""
    one, two = pa.chunked_array([[1, None, None, 2, 3]]), pa.chunked_array([[1, None, 3, None, 4]])
    assert sides.are_equal(one, two).tolist() == [True, True, False, False, False]
    one, two = pa.chunked_array([[[1], None, None, [2]]]), pa.chunked_array([[[1], None, [3], [2, 3]]])
    assert sides.are_equal(one, two).tolist() == [True, True, False, False]


IDS = st.lists(st.builds(LedgerId, st.sampled_from([0, 0, 7, -1]), st.integers(-2, 40)), unique=True, max_size=12)


@given(IDS, IDS, IDS)
def test_a_union_has_each_ledger_once_and_knows_its_rows(
    one: list[LedgerId], two: list[LedgerId], no: list[LedgerId]
) -> None:
    """Whatever the sides have: their union, in key order, and where each ledger stands in each."""
    parts = [keys(*one), keys(*two), keys(*no)]
    found = unite(parts)
    named = [LedgerId(r["scope"], r["ledger"]) for r in found.keys.to_pylist()]
    assert sorted(named) == sorted({*one, *two, *no})
    assert found.keys.equals(sort_by_key(found.keys))
    for part, rows in zip(parts, found.rows, strict=True):
        for ledger, row in zip(named, rows.tolist(), strict=True):
            there: dict[str, Any] = {} if row < 0 else part.slice(row, 1).to_pylist()[0]
            assert (row >= 0) == (ledger in [LedgerId(r["scope"], r["ledger"]) for r in part.to_pylist()])
            assert row < 0 or (there["scope"], there["ledger"]) == (ledger.scope, ledger.ledger)


def test_scopes_of_one_bucket_are_told_from_each_other() -> None:
    """In the order of a key: bucket, scope, ledger."""
    rows = [(1, -1, 9), (1, 0, 2), (1, 0, 5), (1, 7, 2), (2, 0, 1)]
    tables_of = [
        pa.table(dict(zip(tables.KEY_COLUMNS, map(list, zip(*part, strict=True)), strict=True)), schema=keys().schema)
        for part in (rows[::2], rows[1:])
    ]
    united = unite(tables_of)
    assert [tuple(row.values()) for row in united.keys.to_pylist()] == rows
    assert [part.tolist() for part in united.rows] == [[0, -1, 1, -1, 2], [-1, 0, 1, 2, 3]]


def test_what_differs_of_two_records_is_said() -> None:
    """Of a ledger under another's id, and of one that went back: each field of both sides, a key by twelve digits."""
    b, c = LedgerId(0, 8), LedgerId(0, 9)
    old = replace(CLOSED, format=1, password=None, digest=None, creator_token=None)
    stored, before = (
        catalog({A: OTHER, b: OPEN, c: replace(old, last_entry=7)}),
        catalog({A: CLOSED, b: CLOSED, c: old}),
    )
    past, seen = pick_newest_records([(before, 10)])
    found = compare(keys(), stored, past, seen, happened(), has_snapshot=True)
    run = FindingRun("r", datetime(2026, 1, 1, tzinfo=UTC))
    rows = {row["ledger"]: row for row in sides.find_other_records(found, stored, past, run, "zk", "old").to_pylist()}
    assert {number: row["category"] for number, row in rows.items()} == {
        7: "ID_REUSE",
        8: "STORE_WENT_BACK",
        9: "STORE_WENT_BACK",
    }
    said = [(one["side"], one["field"], one["value"], one["source"]) for one in rows[7]["evidence"]]
    texts = {
        ledger: dict(zip(records["ledger"].to_pylist(), records["password_hash"].to_pylist(), strict=True))[7].hex()[
            :12
        ]
        for ledger, records in (("store", stored), ("earlier", before))
    }
    assert said == [
        (side, field, value, {"store": "zk", "earlier": "old"}[side])
        for field, value in (("state", "CLOSED"), ("last_entry", "9"), ("digest", "CRC32C"), ("ctime", "nothing"))
        for side in ("store", "earlier")
    ] + [(side, "password_hash", f"key {texts[side]}…", {"store": "zk", "earlier": "old"}[side]) for side in texts]
    went = {(one["side"], one["field"]): one["value"] for one in rows[8]["evidence"]}
    assert (went["store", "state"], went["earlier", "state"]) == ("OPEN", "CLOSED")
    assert (went["store", "last_entry"], went["earlier", "last_entry"]) == ("nothing", "9")
    assert rows[8]["bucket"] == b.bucket
    unkeyed = {one["value"] for one in rows[9]["evidence"] if one["field"] == "password_hash"}
    assert unkeyed == {"nothing"}


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 9), st.sampled_from(["created", "changed", "deleted"])), max_size=12
    )
)
def test_deletions_are_those_that_nothing_came_after(changes: list[tuple[int, int, str]]) -> None:
    """In any order of the history."""
    changes = list({(ledger, txn): (ledger, txn, op) for ledger, txn, op in changes}.values())
    found = deletions(happened(*((LedgerId(0, ledger), txn, op, None) for ledger, txn, op in changes)))
    last = {ledger: op for ledger, _, op in sorted(changes, key=lambda change: change[1])}
    assert sorted(found["ledger"].to_pylist()) == sorted(ledger for ledger, op in last.items() if op == "deleted")
