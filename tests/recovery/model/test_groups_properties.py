"""Sequence groups against sets of entry ids: grouping, joining, counting, ranks, availability bytes, Arrow."""

import struct

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from recovery.errors import FormatError
from recovery.model import groups, tables
from recovery.model.groups import Ints, KeyedGroups, KeyedRuns
from tests.support.mangling import mangled

TOP = (1 << 63) - 1
Row = tuple[int, int, int, int]


@st.composite
def entry_sets(draw: st.DrawFn) -> set[int]:
    """What a bookie may hold of one ledger: striped, ragged, at the ends of the id space."""
    base = draw(st.sampled_from([0, 0, 0, 1000, TOP - 40]))
    size, quorum, shift = draw(st.integers(1, 5)), draw(st.integers(1, 5)), draw(st.integers(0, 4))
    striped = {base + n for n in range(draw(st.integers(0, 40))) if (n + shift) % size < quorum}
    loose = draw(st.sets(st.one_of(st.integers(0, 40).map(base.__add__), st.integers(0, TOP)), max_size=8))
    lost = draw(st.sets(st.integers(base, base + 40), max_size=4))
    return (striped | {entry for entry in loose if entry <= TOP}) - lost


LISTS = st.lists(entry_sets(), max_size=5)


def flat(lists: list[set[int]]) -> tuple[Ints, Ints]:
    """Return (key, entry) of lists, ascending."""
    key = [number for number, entries in enumerate(lists) for _ in entries]
    return np.array(key, np.int64), np.array([e for entries in lists for e in sorted(entries)], np.int64)


def held(lists: list[set[int]]) -> KeyedGroups:
    """Return the groups of lists."""
    key, entries = flat(lists)
    return groups.group_entries(entries, key)


def members(of: KeyedGroups, lists: int) -> list[set[int]]:
    """Return lists of groups as sets, entry by entry."""
    out: list[set[int]] = [set() for _ in range(lists)]
    for key, first, last, size, period in zip(*(column.tolist() for column in of), strict=True):
        for start in range(first, last + 1, period or 1) if period else [first]:
            out[key].update(range(start, start + size))
    return out


def rows(of: KeyedGroups) -> list[tuple[int, ...]]:
    """Return groups as tuples."""
    return list(zip(*(column.tolist() for column in of), strict=True))


def greedy(entries: set[int]) -> list[Row]:
    """Group one list run by run, as BP-34's examples do."""
    runs: list[list[int]] = []
    for entry in sorted(entries):
        if runs and entry == runs[-1][0] + runs[-1][1]:
            runs[-1][1] += 1
        else:
            runs.append([entry, 1])
    out: list[Row] = []
    for start, size in runs:
        if out and out[-1][2] == size and (out[-1][3] == 0 or start - out[-1][1] == out[-1][3]):
            first, last, _, _ = out[-1]
            out[-1] = (first, start, size, start - last)
        else:
            out.append((start, start, size, 0))
    return out


@given(LISTS)
def test_lists_are_grouped_as_one_by_one(lists: list[set[int]]) -> None:
    """Many lists at once give what each alone gives, run by run from the left."""
    expected = [(key, *row) for key, entries in enumerate(lists) for row in greedy(entries)]
    assert rows(held(lists)) == expected


@given(LISTS)
def test_groups_come_apart_into_their_entries(lists: list[set[int]]) -> None:
    """Expanding groups gives back every entry in order, and the count says how many."""
    of = held(lists)
    key, entries = flat(lists)
    assert [column.tolist() for column in groups.expand(of)] == [key.tolist(), entries.tolist()]
    assert groups.count(*of[1:]).sum() == len(entries)
    runs = groups.to_runs(of)
    again = groups.regroup(*runs)
    assert rows(KeyedGroups(runs.key[again.begin], *again[1:])) == rows(of)


@given(LISTS, st.data())
def test_a_stretch_has_the_entries_that_are_in_it(lists: list[set[int]], data: st.DataObject) -> None:
    """From any entry to any other, and what comes next after any: as the sets have it."""
    of = held(lists)
    some = sorted({0, *(entry for entries in lists for entry in entries), TOP})
    low = data.draw(st.sampled_from(some))
    high = min(TOP, low + data.draw(st.sampled_from([0, 1, 5, 50, TOP])))
    key, entries = groups.lay_out(groups.within(of, low, high))
    found = set(zip(key.tolist(), entries.tolist(), strict=True))
    assert found == {(n, entry) for n, entries in enumerate(lists) for entry in entries if low <= entry <= high}
    assert len(key) == len(found)
    left = [entry for entry in some if entry >= low and any(entry in entries for entries in lists)]
    assert groups.next_entry(of, low) == min(left, default=None)


@given(LISTS)
def test_entries_that_come_twice_count_once(lists: list[set[int]]) -> None:
    """Duplicates in ascending ids change nothing."""
    key, entries = flat(lists)
    assert rows(groups.group_entries(np.repeat(entries, 2), np.repeat(key, 2))) == rows(held(lists))


@given(st.lists(st.tuples(entry_sets(), entry_sets(), entry_sets()), max_size=4))
def test_a_union_is_that_of_the_sets(lists: list[tuple[set[int], set[int], set[int]]]) -> None:
    """Joining any number of lists key by key is joining the sets; of one list it changes nothing."""
    parts = [held([of[n] for of in lists]) for n in range(3)]
    assert rows(groups.union(*parts)) == rows(held([a | b | c for a, b, c in lists]))
    assert rows(groups.union(parts[0])) == rows(parts[0])


@given(st.lists(st.tuples(entry_sets(), entry_sets()), max_size=4))
def test_a_difference_is_that_of_the_sets(lists: list[tuple[set[int], set[int]]]) -> None:
    """Taking one list away from another key by key is taking away the set."""
    ours, others = (groups.to_runs(held([of[n] for of in lists])) for n in (0, 1))
    left = groups.group_runs(groups.difference_runs(ours, others))
    assert rows(left) == rows(held([a - b for a, b in lists]))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(1, 9)), max_size=12))
def test_any_runs_are_joined(runs: list[tuple[int, int, int]]) -> None:
    """Runs in any order, over each other or side by side, become sorted runs that lie apart."""
    columns = [np.array(column, np.int64) for column in zip(*runs, strict=True)] or [np.empty(0, np.int64)] * 3
    joined = groups.group_runs(groups.union_runs(KeyedRuns(*columns)))
    expected: list[set[int]] = [set() for _ in range(4)]
    for key, first, size in runs:
        expected[key].update(range(first, first + size))
    assert rows(joined) == rows(held(expected))


# Ranks


@given(st.integers(1, 6), st.data())
def test_ranks_count_the_entries_of_a_position(ensemble_size: int, data: st.DataObject) -> None:
    """The rank of n is the number of entries below n that round robin puts there."""
    quorum = data.draw(st.integers(1, ensemble_size))
    position = data.draw(st.integers(0, ensemble_size - 1))
    n = np.arange(40)
    mine = (position - n) % ensemble_size < quorum
    shape = np.full(40, ensemble_size), np.full(40, quorum)
    assert groups.holds(n, np.full(40, position), *shape).tolist() == mine.tolist()
    assert groups.rank(n, np.full(40, position), *shape).tolist() == [int(mine[:end].sum()) for end in n]


@given(st.integers(0, TOP), st.integers(1, 9), st.data())
def test_ranks_of_all_positions_add_up(n: int, ensemble_size: int, data: st.DataObject) -> None:
    """Over all positions of an ensemble, every entry below n is counted once a write quorum; up to 2^63 - 1."""
    quorum = data.draw(st.integers(1, ensemble_size))
    position = np.arange(ensemble_size)
    found = groups.rank(np.array(n), position, np.array(ensemble_size), np.array(quorum))
    assert sum(found.tolist()) == n * quorum


# Availability bytes


@given(entry_sets())
def test_availability_bytes_come_back(entries: set[int]) -> None:
    """Our own bytes give the same groups; they take 24 bytes each behind 64, where 32 bits hold their distances."""
    of = held([entries])
    raw = groups.encode_availability(of)
    assert (of.period >= 1 << 31).any() or len(raw) == 64 + 24 * len(of.first)
    assert rows(groups.decode_availability(raw)) == rows(of)


@given(entry_sets())
def test_what_released_bookies_send_is_the_same_set(entries: set[int]) -> None:
    """One group for each run, period 0, decodes to the groups that we make."""
    runs = groups.to_runs(held([entries]))
    single = KeyedGroups(runs.key, runs.first, runs.first, runs.size, np.zeros(len(runs.key), np.int64))
    assert rows(groups.decode_availability(groups.encode_availability(single))) == rows(held([entries]))


@given(st.integers(0, 5), st.integers(1, 1 << 40), st.integers(0, 3), st.integers(0, 1 << 40))
def test_runs_and_distances_beyond_32_bits_are_written(first: int, size: int, more: int, gap: int) -> None:
    """What 32 bits do not hold becomes several groups that decode to the same."""
    period = (size + 1 + gap) if more else 0
    of = KeyedGroups(*(np.array([value], np.int64) for value in (0, first, first + more * period, size, period)))
    again = groups.decode_availability(groups.encode_availability(of))
    assert [column.tolist() for column in groups.union_runs(groups.to_runs(again))] == [
        column.tolist() for column in groups.to_runs(of)
    ]


ENTRY = st.one_of(st.integers(0, 50), st.integers(-(1 << 63), TOP))
GROUP = st.tuples(ENTRY, ENTRY, st.integers(-1, 12), st.integers(-1, 12))
WORKED = groups.encode_availability(held([{1, 2, 3, 6, 7, 8, 11, 13, 16, 17, 18, 21, 22}]))


@given(
    st.one_of(
        st.binary(max_size=200),
        mangled(WORKED),
        st.lists(GROUP, max_size=5).map(
            lambda listed: struct.pack(">ii56x", 0, len(listed)) + b"".join(struct.pack(">qqii", *g) for g in listed)
        ),
    )
)
def test_any_bytes_are_groups_or_a_named_error(raw: bytes) -> None:
    """What is taken is ascending and disjoint, and stands for what the bytes say; else FormatError inside the bytes."""
    try:
        of = groups.decode_availability(raw)
    except FormatError as error:
        assert 0 <= error.offset <= len(raw)  # noqa: PT017  # both ways are right
        return
    end = of.last + (of.size - 1)
    assert (of.first[1:] > end[:-1]).all()
    assert ((of.period == 0) == (of.first == of.last)).all()
    if groups.count(*of[1:]).sum(dtype=np.float64) < 10_000:
        said: set[int] = set()
        for at in range(64, len(raw), 24):
            first, last, size, period = struct.unpack_from(">qqii", raw, at)
            for start in range(first, last + 1, period or 1):
                said.update(range(start, start + size))
        assert members(of, 1) == [said]


# Arrow


@given(LISTS)
def test_a_column_comes_back(lists: list[set[int]]) -> None:
    """One row a list, empty ones too; also from a slice and from chunks."""
    of = held(lists)
    column = groups.to_arrow(of, len(lists))
    column.validate(full=True)
    assert column.type == tables.GROUPS
    assert len(column) == len(lists)
    assert rows(groups.from_arrow(column)) == rows(of)
    assert rows(groups.from_arrow(pa.chunked_array([column[:1], column[1:]], tables.GROUPS))) == rows(of)
    assert rows(groups.from_arrow(column[1:])) == rows(held(lists[1:]))
