"""The hashes of a plan's buckets: read as they are written, and made of rows as they come."""

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.plan.plan_hash import SYSTEM_BUCKET, BucketStream, Hashes, read_hashes

HASHES = Hashes({-1: "a", 3: "b"}, {3: "c"})


def test_hashes_are_read_as_they_are_written() -> None:
    """As a manifest has them, and as JSON has that."""
    assert read_hashes(HASHES.sign({})) == HASHES
    assert read_hashes({"bucket_hashes": {"actions": {"-1": "a", "3": "b"}, "settled": {"3": "c"}}}) == HASHES


@pytest.mark.parametrize("stored", [None, 7, [], {}, {"actions": {}}, {"actions": {"x": "a"}, "settled": {}}])
def test_what_are_no_hashes_of_ours_are_none(stored: object) -> None:
    """Missing, of another type, or of buckets that are no numbers."""
    assert read_hashes({"bucket_hashes": stored}) is None
    assert read_hashes({}) is None


def rows(*buckets: int | None) -> pa.Table:
    """Return rows of some buckets."""
    return pa.table({"bucket": pa.array(buckets, pa.int16())})


@given(st.lists(st.lists(st.integers(SYSTEM_BUCKET, 6), max_size=8), max_size=6))
def test_buckets_are_given_on_whole_and_in_their_order(batches: list[list[int]]) -> None:
    """However the rows are cut: each bucket once, all of its rows; those of no ledger last; nothing is misplaced."""
    ledgers = iter(sorted(bucket for batch in batches for bucket in batch if bucket != SYSTEM_BUCKET))
    ordered = [[b if b == SYSTEM_BUCKET else next(ledgers) for b in batch] for batch in batches]
    stream = BucketStream()
    given_on = [table["bucket"].to_pylist() for batch in ordered for table in stream.add(rows(*batch))]
    given_on += [table["bucket"].to_pylist() for table in stream.rest()]
    assert stream.misplaced == 0
    if SYSTEM_BUCKET in {bucket for batch in ordered for bucket in batch}:
        assert set(given_on.pop()) == {SYSTEM_BUCKET}
    whole = [buckets for buckets in given_on if buckets]
    every = [bucket for batch in ordered for bucket in batch if bucket != SYSTEM_BUCKET]
    assert [bucket for buckets in whole for bucket in buckets] == every
    assert all(before[-1] < after[0] for before, after in pairwise(whole))


def test_each_bucket_is_given_on_as_soon_as_another_begins() -> None:
    """Nothing waits for the end but the last bucket: a plan is larger than memory."""
    stream = BucketStream()
    assert [table["bucket"].to_pylist() for table in stream.add(rows(1, 1, 2))] == [[1, 1]]
    assert [table["bucket"].to_pylist() for table in stream.add(rows(2, 2))] == []
    assert [table["bucket"].to_pylist() for table in stream.add(rows(3))] == [[2, 2, 2]]
    assert [table["bucket"].to_pylist() for table in stream.rest()] == [[3]]


@pytest.mark.parametrize(
    ("batches", "misplaced"),
    [
        ([[None]], 1),
        ([[-2, 0]], 1),
        ([[0, -2, 0]], 1),
        ([[3, 2, 3]], 1),
        ([[3], [2, 2]], 2),
        ([[3], [3], [3, 4]], 0),
        ([[-1, -1], [0]], 0),
    ],
)
def test_rows_that_stand_where_nobody_looks_are_counted(batches: list[list[int | None]], misplaced: int) -> None:
    """Of no bucket, or behind a later one; they are not given on."""
    stream = BucketStream()
    given_on = sum(table.num_rows for batch in batches for table in stream.add(rows(*batch)))
    given_on += sum(table.num_rows for table in stream.rest())
    assert stream.misplaced == misplaced
    assert given_on == sum(map(len, batches)) - misplaced
