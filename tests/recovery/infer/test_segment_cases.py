"""What the search is given: copies grouped in one way, and the places where segments may begin."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.infer import segment_cases
from recovery.infer.copies import CopyColumns
from recovery.infer.segment_cases import Cases, Copies
from recovery.model.groups import KeyedGroups, group_entries, to_runs

_ENTRIES = 24


def group_rows(rows: Sequence[Sequence[int]]) -> KeyedGroups:
    """Return the groups of rows of entries, which are their keys."""
    keys = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    return group_entries(np.concatenate([np.array(row, np.int64) for row in rows]), keys)


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sets(st.integers(0, _ENTRIES), min_size=1), st.booleans()),
        min_size=1,
        max_size=5,
    )
)
def test_each_ledgers_copies_are_grouped_anew(rows: list[tuple[int, set[int], bool]]) -> None:
    """However an inventory grouped them: a row of which each run is a group of its own is as one that never was."""
    rows.sort(key=lambda row: row[0])
    ledger = np.array([number for number, _, _ in rows])
    wanted = group_rows([sorted(entries) for _, entries, _ in rows])
    runs = to_runs(wanted)
    alone = np.array([is_alone for _, _, is_alone in rows])
    whole, single = ~alone[wanted.key], alone[runs.key]
    apart = (runs.key[single], runs.first[single], runs.first[single], runs.size[single], 0 * runs.size[single])
    columns = [np.append(a[whole], b) for a, b in zip(wanted, apart, strict=True)]
    order = np.lexsort((columns[1], columns[0]))
    batch = CopyColumns.sum_up(3, ledger, *(column[order] for column in columns))
    bookie, copied = np.arange(len(rows)) + 7, alone
    split = Copies.split(batch, bookie, copied)
    assert len(split) == 3
    for number, own in enumerate(split):
        mine = np.flatnonzero(ledger == number)
        assert own.bookie.tolist() == bookie[mine].tolist()
        assert own.copied.tolist() == copied[mine].tolist()
        chosen = np.isin(wanted.key, mine)
        expected = [column[chosen].tolist() for column in wanted]
        expected[0] = [key - int(mine[0]) for key in expected[0]]
        assert [column.tolist() for column in own.groups] == expected


@pytest.mark.parametrize(
    ("first", "last", "size", "groups"), [(6, 10, 1, 1), (7, 11, 1, 2), (6, 10, 2, 2), (6, 6, 1, 1), (5, 9, 1, 2)]
)
def test_a_group_that_keeps_its_distance_goes_on(first: int, last: int, size: int, groups: int) -> None:
    """Entries 0, 2, 4, and others of the same row behind them: with the same size, and no other gap."""
    two = [np.array(pair) for pair in ([0, 0], [0, first], [4, last], [1, size], [2, 2 if last > first else 0])]
    [split] = Copies.split(CopyColumns.sum_up(1, np.zeros(1, np.int64), *two), np.array([7]), np.zeros(1, np.bool_))
    assert len(split.groups.key) == groups
    assert split.entries == 3 + ((last - first) // 2 + 1) * size


def find_cuts(*ledgers: tuple[int, list[list[int]]]) -> list[tuple[list[int], list[int]]]:
    """Return the cuts of ledgers, each its end and who holds what; and which of them are main ones."""
    copies = [Copies(np.arange(len(rows)), np.zeros(len(rows), np.bool_), group_rows(rows)) for _, rows in ledgers]
    cases = Cases.build(copies, [end for end, _ in ledgers])
    parts = [slice(*cases.begin[n : n + 2].tolist()) for n in range(len(ledgers))]
    return [(cases.cuts[part].tolist(), cases.cuts[part][cases.main[part]].tolist()) for part in parts]


def test_a_segment_may_begin_where_somebody_comes_or_goes() -> None:
    """Not behind the end, nor inside stripes; where a row has two runs alone, at both, for their distance is chance."""
    whole = list(range(12))
    assert find_cuts((11, [whole, list(range(5)), list(range(5, 12))])) == [([0, 5, 12], [0, 5, 12])]
    assert find_cuts((11, [[0, 1, 3, 4, 6, 7, 9, 10]])) == [([0, 11, 12], [0, 11, 12])]
    assert find_cuts((11, [[0, 1, 6, 7]])) == [([0, 2, 6, 8, 12], [0, 2, 6, 8, 12])]
    assert find_cuts((11, [[1, 2], whole]), (3, [[0, 1, 2, 3]])) == [
        ([0, 1, 3, 12], [0, 1, 3, 12]),
        ([0, 4], [0, 4]),
    ]


@pytest.mark.parametrize(("cuts", "main", "wanted"), [(9, 9, 5), (4, 9, 4), (1, 9, 1), (9, 2, 2), (4, 4, 4)])
def test_of_many_places_those_with_the_widest_gap_are_taken(
    cuts: int, main: int, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bookie that begins or stops for good, one that is away for long, then for short; of two, where it comes."""
    monkeypatch.setattr(segment_cases, "_CUTS", cuts)
    monkeypatch.setattr(segment_cases, "_MAIN", main)
    # Row 0 begins at 3 and stays; row 1 is away from 10 to 15, from 20 to 22, where it stays to the end.
    held = [list(range(3, 31)), [*range(10), *range(15, 20), *range(22, 31)]]
    by_gap = [3, 15, 10, 22, 20]
    (found, likely), other = find_cuts((30, held), (30, held))
    assert other == (found, likely)
    assert found == sorted([0, *by_gap[:cuts], 31])
    assert likely == sorted([0, *by_gap[: min(cuts, main)], 31])
    assert len(likely) == wanted + 2
