"""Uniting the groups of several rows: the same entries, ascending and disjoint, however they were divided."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.infer.group_union import unite_groups
from recovery.model.groups import KeyedGroups, expand, group_entries
from tests.simulation.simulator import holds


def entries_of(size: int, write: int, length: int) -> list[int]:
    """Return what position 0 of an ensemble holds of a ledger."""
    return [entry for entry in range(length) if holds(0, entry, size, write)]


_sets = st.one_of(
    st.builds(entries_of, st.integers(2, 5), st.integers(1, 3), st.integers(1, 900)),
    st.lists(st.integers(0, 40), unique=True, min_size=1),
)


@given(
    st.lists(st.tuples(_sets, st.sampled_from(["cut", "scattered", "doubled"]), st.integers(0, 1 << 30)), max_size=4)
)
def test_divided_entries_come_together(sets: list[tuple[list[int], str, int]]) -> None:
    """Each key's entries are the union of its parts; groups ascend, and neither overlap nor touch."""
    parts: list[KeyedGroups] = []
    want: dict[int, list[int]] = {}
    for key, (entries, how, seed) in enumerate(sets):
        want[key] = sorted(entries)
        rng = np.random.default_rng(seed)
        own = np.array(want[key])
        if how == "cut":
            pieces = np.split(own, np.sort(rng.integers(0, len(own) + 1, 2)))
        elif how == "scattered":
            side = rng.random(len(own)) < 0.05
            pieces = [own[side], own[~side]]
        else:
            pieces = [own, own[rng.random(len(own)) < 0.5]]
        for piece in pieces:
            groups = group_entries(piece)
            parts.append(groups._replace(key=np.full(len(groups.key), key)))
    if not parts:
        return
    joined = KeyedGroups(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    joined = KeyedGroups(*(column[np.argsort(joined.key, kind="stable")] for column in joined))
    keys = np.arange(len(sets))
    found, too_many = unite_groups(joined, np.ones(len(sets), np.bool_), keys, 1 << 20)
    assert not too_many.any()
    of, entry = expand(found)
    assert {key: entry[of == key].tolist() for key in want} == want
    ends = found.last + found.size
    same = found.key[1:] == found.key[:-1]
    assert (found.first[1:][same] > ends[:-1][same]).all()
    none, refused = unite_groups(joined, np.ones(len(sets), np.bool_), keys, 0)
    assert refused.all()
    assert not len(none.key)


Group = tuple[int, int, int, int]
"""First, last, size, period."""


def unite(rows: list[list[Group]], several: list[bool], limit: int = 1 << 20) -> tuple[list[list[Group]], list[bool]]:
    """Unite the groups of keys 0, 1, …, each of a ledger of its own; return these, and which had too many runs."""
    keys = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    columns = np.array([group for row in rows for group in row], np.int64).reshape(-1, 4).T
    found, too_many = unite_groups(KeyedGroups(keys, *columns), np.array(several), np.arange(len(rows)), limit)
    united: list[list[Group]] = [[] for _ in rows]
    for key, *group in zip(*(column.tolist() for column in found), strict=True):
        united[key].append((group[0], group[1], group[2], group[3]))
    return united, too_many.tolist()


PLAIN: Group = (0, 0, 5, 0)


@pytest.mark.parametrize(
    ("groups", "wanted"),
    [
        ([(0, 0, 5, 0), (3, 3, 4, 0)], [(0, 0, 7, 0)]),
        ([(0, 0, 5, 0), (5, 5, 4, 0)], [(0, 0, 9, 0)]),
        ([(0, 0, 5, 0), (6, 6, 4, 0)], [(0, 0, 5, 0), (6, 6, 4, 0)]),
        ([(6, 6, 4, 0), (0, 0, 5, 0)], [(0, 0, 5, 0), (6, 6, 4, 0)]),
    ],
    ids=["overlap", "touch", "apart", "out of order"],
)
@pytest.mark.parametrize("beside", [[], [PLAIN]], ids=["alone", "beside another"])
@pytest.mark.parametrize("several", [False, True], ids=["one row", "several rows"])
def test_groups_of_a_key_are_sorted_and_joined(
    groups: list[Group], wanted: list[Group], beside: list[Group], *, several: bool
) -> None:
    """Whether they came from one row or from more, and whatever stands beside them."""
    for rows, flags in (([groups, beside], [several, False]), ([beside, groups], [False, several])):
        expected = [wanted if row is groups else row for row in rows]
        assert unite(rows, flags) == (expected, [False, False])


def test_what_a_long_run_covers_is_not_kept_beside_it() -> None:
    """A group of many runs in a run that began earlier, with a short one between: all is one run."""
    assert unite([[(0, 0, 500, 0), (10, 10, 3, 0), (20, 420, 2, 4)]], [True]) == ([[(0, 0, 500, 0)]], [False])


def test_as_many_runs_as_the_limit_are_laid_out() -> None:
    """One more is too many, and the ledger beside it is united all the same."""
    rows: list[list[Group]] = [[(0, 8, 1, 2), (1, 1, 1, 0)], [PLAIN, (5, 5, 1, 0)]]
    assert unite(rows, [True, True], 6) == ([[(0, 0, 3, 0), (4, 8, 1, 2)], [(0, 0, 6, 0)]], [False, False])
    assert unite(rows, [True, True], 5) == ([[], [(0, 0, 6, 0)]], [True, False])


def test_of_nothing_nothing_is_united() -> None:
    """Keys that have no groups stay so."""
    assert unite([[], []], [True, False]) == ([[], []], [False, False])


@pytest.mark.parametrize("several", [(False, False), (False, True), (True, False), (True, True)])
def test_groups_of_several_rows_become_those_of_one(several: tuple[bool, bool]) -> None:
    """Beside a key of one row, whose groups stay as they are, in whatever order they came."""
    evens = group_entries(np.arange(0, 24, 2))
    first, last = (evens._replace(first=np.array([a]), last=np.array([b])) for a, b in ((0, 8), (10, 22)))
    for parts in ((first, last), (last, first)):
        both = [part._replace(key=np.array([key])) for key in (0, 1) for part in parts]
        groups = KeyedGroups(*(np.concatenate(column) for column in zip(*both, strict=True)))
        found, _ = unite_groups(groups, np.array(several), np.arange(2), 1 << 20)
        counts = np.bincount(found.key, minlength=2).tolist()
        assert counts == [1 if is_of_several else 2 for is_of_several in several]
        of, entry = expand(found)
        assert [entry[of == key].tolist() for key in (0, 1)] == [[*range(0, 24, 2)]] * 2
