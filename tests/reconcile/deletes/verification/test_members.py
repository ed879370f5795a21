"""Copies that entries should have, against counting them one by one."""

import random
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from reconcile.deletes.verification import copies_due
from reconcile.deletes.verification.copies_due import (
    count_missing,
    lay_due,
    list_positions,
    make_keys,
    split_keys,
)
from recovery.model import tables
from recovery.model.groups import KeyedGroups, runs_of

pytestmark = pytest.mark.long

NAMES = [f"b{n}" for n in range(7)]


def draw_segments(draw: random.Random, size: int, last: int) -> list[tuple[int, list[str]]]:
    """Return segments of a ledger, in order."""
    segments, first = [], 0
    while True:
        segments.append((first, draw.sample(NAMES, size)))
        first += draw.randint(1, 8)
        if first > last or draw.random() < 0.4:
            return segments


@pytest.mark.parametrize("together", [1, 7, 1 << 20])
def test_missing_copies_are_those_that_counting_finds(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledgers of any quorums and segments, copies taken away at random, strays beside them; a few at once, or all."""
    monkeypatch.setattr(copies_due, "_MOST_RUNS", together)
    for seed in range(150):
        draw = random.Random(seed)
        shapes, records, held, wanted = [], [], set(), {}
        for row in range(3):
            size = draw.randint(1, 5)
            write, last = draw.randint(1, size), draw.randint(-1, 20)
            segments = draw_segments(draw, size, last)
            records.append([{"first": first, "members": members} for first, members in segments])
            shapes.append((last, size, write))
            lacking: dict[int, int] = {}
            for entry in range(last + 1):
                members = next(one for first, one in reversed(segments) if first <= entry)
                for step in range(write):
                    if draw.random() < 0.1:
                        lacking[entry] = lacking.get(entry, 0) + 1
                    else:
                        held.add((row, members[(entry + step) % size], entry))
            held |= {(row, draw.choice(NAMES), last + 1 + draw.randint(0, 3)) for _ in range(3)}
            if lacking:
                most = max(lacking.values())
                wanted[row] = (most, min(entry for entry, count in lacking.items() if count == most))
        last_entry, size_of, write_of = (np.array(column) for column in zip(*shapes, strict=True))
        positions, names = list_positions(
            np.arange(3), pa.array(records, tables.SEGMENTS), last_entry, size_of, write_of
        )
        copies = sorted(
            (int(make_keys(np.array(row), np.array(names.index(name)))), entry)
            for row, name, entry in held
            if name in names
        )
        key, entries = (np.array(column, np.int64) for column in zip(*copies, strict=True))
        runs = runs_of(entries, key)
        groups = KeyedGroups(key[runs.begin], runs.first, runs.first, runs.size, np.zeros(len(runs.first), np.int64))
        found = (column.tolist() for column in count_missing(positions, groups))
        assert {row: (most, first) for row, most, first in zip(*found, strict=True)} == wanted, seed


def test_positions_and_what_is_due_at_each() -> None:
    """Of each member of each segment, up to the next one or the end; where all write all, that is one run each."""
    records = [
        [{"first": 0, "members": ["a", "b"]}, {"first": 3, "members": ["b", "c"]}],
        [{"first": 0, "members": ["c"]}],
    ]
    ends, sizes = np.array([5, -1]), np.array([2, 1])
    positions, names = list_positions(np.array([5, 9]), pa.array(records, tables.SEGMENTS), ends, sizes, sizes)
    assert [names[number] for number in positions.bookie] == ["a", "b", "b", "c", "c"]
    columns = (positions.row, positions.place, positions.first, positions.last, positions.ensemble, positions.write)
    assert [column.tolist() for column in columns] == [
        [5, 5, 5, 5, 9], [0, 1, 0, 1, 0], [0, 0, 3, 3, 0], [2, 2, 5, 5, -1], [2, 2, 2, 2, 1], [2, 2, 2, 2, 1],
    ]  # fmt: skip
    due = lay_due(positions)
    rows, bookies = split_keys(due.key)
    assert (rows.tolist(), [names[number] for number in bookies]) == ([5] * 4, ["a", "b", "b", "c"])
    assert (due.first.tolist(), due.size.tolist()) == ([0, 0, 3, 3], [3, 3, 3, 3])


def test_of_no_ledgers_nothing_is_missing() -> None:
    """Whatever bookies hold."""
    nothing = np.zeros(0, np.int64)
    positions = copies_due.Positions(*(nothing for _ in copies_due.Positions.__slots__))
    held = KeyedGroups(*(np.array([number]) for number in (make_keys(np.array(3), np.array(1)), 0, 0, 1, 0)))
    assert [column.tolist() for column in count_missing(positions, held)] == [[], [], []]


@pytest.mark.parametrize("end", [1 << 60, (1 << 63) - 1])
def test_an_end_that_nobody_wrote_is_judged_at_once(end: int) -> None:
    """A damaged record names it: what lies above all that is held lacks every copy, whoever looks at how much."""
    members = [{"first": 0, "members": NAMES[:3]}]
    numbers = (np.array([value]) for value in (end, 3, 2))
    positions, _ = list_positions(np.arange(1), pa.array([members], tables.SEGMENTS), *numbers)
    held = [(0, 0, 1), (0, 2, 2), (1, 0, 2), (1, 3, 1), (2, 1, 2)]
    key, first, size = (np.array(column, np.int64) for column in zip(*held, strict=True))
    groups = KeyedGroups(key, first, first, size, np.zeros(len(held), np.int64))
    assert [column.tolist() for column in count_missing(positions, groups)] == [[0], [2], [4]]


def test_memory_is_bounded_for_many_ledgers_and_for_a_long_one() -> None:
    """Ten million stripes, of two thousand ledgers and of a single one: what is compared at once is a part of them."""
    for count, entries in ((2_000, 5_000), (1, 10_000_000)):
        tracemalloc.start()
        rows = np.repeat(np.arange(count), 3)
        place = np.tile(np.arange(3), count)
        many = np.full(len(rows), 3)
        last = np.full(len(rows), entries - 1)
        positions = copies_due.Positions(rows, place, place, np.zeros(len(rows), np.int64), last, many, many - 1)
        # Place p of three has the entries e with (p - e) mod 3 < 2: 2 and 3, 0 and 1, 1 and 2. The first lacks entry 0.
        begin = np.tile(np.array([2, 0, 1]), count)
        starts, size = begin, np.full(len(rows), 2)
        groups = KeyedGroups(
            make_keys(rows, place), starts, starts + (last - starts - 1) // 3 * 3, size, np.full(len(rows), 3)
        )
        found = count_missing(positions, groups)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert [column.tolist() for column in found] == [list(range(count)), [1] * count, [0] * count]
        assert peak < 512 << 20
