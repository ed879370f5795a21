"""Ledgers that somebody knows of, held against those that were listed."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from recovery.capture.listed_ledgers import KEYS, ListedLedgers, have_folders

IDS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40)), max_size=60)


def table_of(ids: list[tuple[int, int]]) -> pa.Table:
    """Return a table of scopes and ledgers."""
    return pa.table([pa.array([pair[n] for pair in ids], pa.int64()) for n in range(2)], schema=KEYS)


@given(listed=st.lists(IDS, max_size=3), pieces=st.lists(IDS, max_size=3))
def test_what_is_not_listed_is_left(listed: list[list[tuple[int, int]]], pieces: list[list[tuple[int, int]]]) -> None:
    """Each ledger once, ascending, whichever buckets the pieces are of and however they repeat themselves."""
    held = ListedLedgers()
    for ids in listed:
        held.add(*(np.array([pair[n] for pair in ids], np.int64) for n in range(2)))
    seen = {pair for ids in listed for pair in ids}
    for piece in pieces:
        scope, ledger = held.leave_out(table_of(piece))
        assert [*zip(scope.tolist(), ledger.tolist(), strict=True)] == sorted({*piece} - seen)


def test_folders_are_asked_for_where_they_are_few() -> None:
    """One question a folder; where most keys have a folder of their own there is none, and each key may be there."""
    asked: list[str] = []

    def are_there(folders: Sequence[str]) -> list[bool]:
        asked.extend(folders)
        return [folder != "/b" for folder in folders]

    few = pa.array(["/a/1", "/b/1", "/a/2", "/b/2"])
    assert have_folders(few, are_there).tolist() == [True, False, True, False]
    assert asked == ["/a", "/b"]
    assert have_folders(pa.array(["/a/1", "/b/1", "/b/2"]), are_there).all()
    assert len(asked) == 2
