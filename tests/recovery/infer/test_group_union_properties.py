"""Uniting the groups of several rows: the same entries, ascending and disjoint, however they were divided."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.infer.group_union import unite_groups
from recovery.model.groups import KeyedGroups, expand, group_entries
from recovery.testing.simulator import holds


def entries_of(size: int, write: int, length: int) -> list[int]:
    """Return what position 0 of an ensemble holds of a ledger."""
    return [entry for entry in range(length) if holds(0, entry, size, write)]


_sets = st.one_of(
    st.builds(entries_of, st.integers(2, 5), st.integers(1, 3), st.integers(1, 900)),
    st.lists(st.integers(0, 40), unique=True, min_size=1),
)


@settings(deadline=None, max_examples=100)
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
