"""Sequence groups: nothing at all, the ends of the id space, and bytes that ask for too much."""

import struct

import numpy as np
import pyarrow as pa
import pytest

from recovery.errors import FormatError, Reason
from recovery.model import groups
from recovery.model.groups import KeyedGroups

TOP = (1 << 63) - 1
NONE = np.empty(0, np.int64)
NOTHING = KeyedGroups(NONE, NONE, NONE, NONE, NONE)


def availability(*rows: tuple[int, int, int, int]) -> bytes:
    """Return availability bytes of groups as they are given."""
    return struct.pack(">ii56x", 0, len(rows)) + b"".join(struct.pack(">qqii", *row) for row in rows)


def test_nothing_gives_nothing() -> None:
    """Every function takes empty arrays and gives empty arrays."""
    for made in (
        groups.group_entries(NONE),
        groups.regroup(NONE, NONE, NONE),
        groups.union(NOTHING),
        groups.group_runs(groups.difference_runs(groups.to_runs(NOTHING), groups.to_runs(NOTHING))),
        groups.decode_availability(groups.encode_availability(NOTHING)),
        groups.expand(NOTHING),
        groups.runs_of(NONE, NONE),
        [groups.count(*NOTHING[1:]), groups.rank(NONE, NONE, NONE, NONE)],
        groups.from_arrow(groups.to_arrow(NOTHING, 0)),
    ):
        assert [len(column) for column in made] == [0] * len(made)
    assert groups.to_arrow(NOTHING, 2).to_pylist() == [[], []]


def test_the_last_ids_are_like_all_others() -> None:
    """Runs that end at 2^63 - 1 are grouped, joined, taken away and written."""
    of = groups.group_entries(np.array([0, TOP - 3, TOP - 1, TOP]))
    assert list(zip(*(column.tolist() for column in of[1:]), strict=True)) == [
        (0, TOP - 3, 1, TOP - 3),
        (TOP - 1, TOP - 1, 2, 0),
    ]
    assert groups.expand(groups.union(of, of))[1].tolist() == [0, TOP - 3, TOP - 1, TOP]
    last = groups.group_entries(np.array([TOP]))
    left = groups.difference_runs(groups.to_runs(of), groups.to_runs(last))
    assert left.first.tolist() == [0, TOP - 3, TOP - 1]
    assert left.size.tolist() == [1, 1, 1]
    again = groups.decode_availability(groups.encode_availability(of))
    assert groups.expand(again)[1].tolist() == [0, TOP - 3, TOP - 1, TOP]


@pytest.mark.parametrize(
    ("raw", "reason", "offset"),
    [
        (b"", Reason.TRUNCATED, 0),
        (bytes(63), Reason.TRUNCATED, 63),
        (b"\0\0\0\1" + bytes(60), Reason.BAD_VERSION, 0),
        (availability((0, 0, 1, 0))[:-1], Reason.BAD_LENGTH, 4),
        (availability() + bytes(24), Reason.BAD_LENGTH, 4),
        (struct.pack(">ii56x", 0, -1), Reason.BAD_LENGTH, 4),
        (availability((0, 0, 1, 0), (-1, 5, 1, 6)), Reason.BAD_VALUE, 88),
        (availability((5, 4, 1, 1)), Reason.BAD_VALUE, 64),
        (availability((5, 5, 0, 0)), Reason.BAD_VALUE, 64),
        (availability((5, 9, 1, 0)), Reason.BAD_VALUE, 64),
        (availability((5, 9, 3, 2)), Reason.BAD_VALUE, 64),
        (availability((5, 9, 1, 3)), Reason.BAD_VALUE, 64),
        (availability((5, 5, 1, -1)), Reason.BAD_VALUE, 64),
        (availability((TOP, TOP, 2, 0)), Reason.BAD_VALUE, 64),
    ],
)
def test_availability_bytes_that_cannot_be_are_refused(raw: bytes, reason: Reason, offset: int) -> None:
    """The reason and the group are told."""
    with pytest.raises(FormatError) as refused:
        groups.decode_availability(raw)
    assert (refused.value.reason, refused.value.offset) == (reason, offset)


def test_groups_over_each_other_stand_for_their_union() -> None:
    """Overlapping, interleaved, doubled and unsorted groups are one set, grouped by us."""
    of = groups.decode_availability(availability((8, 8, 2, 0), (0, 8, 1, 4), (2, 6, 1, 4), (8, 8, 1, 0)))
    assert groups.expand(of)[1].tolist() == [0, 2, 4, 6, 8, 9]
    assert of.first.tolist() == [0, 8]


def test_a_small_message_does_not_ask_for_much_memory() -> None:
    """Groups of 2^61 runs are kept as they are; over each other, they are refused rather than laid out."""
    wide = (0, (1 << 62) - 2, 1, 2)
    of = groups.decode_availability(availability(wide))
    assert groups.count(*of[1:]).tolist() == [1 << 61]
    with pytest.raises(FormatError, match="too many runs"):
        groups.decode_availability(availability(wide, wide))
    with pytest.raises(ValueError, match="32 bits"):
        groups.encode_availability(KeyedGroups(*(np.array([value]) for value in (0, 0, 0, TOP, 0))))


def test_equal_lists_beside_each_other_stay_apart() -> None:
    """The end of one list and the start of the next never become one run or one group."""
    of = groups.group_entries(np.array([0, 1, 2, 3]), np.array([0, 0, 1, 1]))
    assert [column.tolist() for column in of] == [[0, 1], [0, 2], [0, 2], [2, 2], [0, 0]]


@pytest.mark.parametrize(
    "rows",
    [
        [(0, (1 << 63) - 2, 2, 2)],
        [(0, (1 << 62) - (1 << 30), 1 << 30, 1 << 30), (1 << 62, (1 << 63) - (1 << 30), 1 << 30, 1 << 30)],
    ],
)
def test_a_list_of_more_entries_than_a_count_holds_is_refused(rows: list[tuple[int, int, int, int]]) -> None:
    """All 2^63 ids: their number would be negative. One fewer is a list."""
    raw = availability(*rows)
    with pytest.raises(FormatError) as refused:
        groups.decode_availability(raw)
    assert (refused.value.reason, refused.value.detail) == (Reason.BAD_VALUE, f"{1 << 63} entries")
    _, errors = groups.decode_availabilities([availability((0, 0, 1, 0)), raw])
    assert list(errors) == [1]
    most = groups.decode_availability(availability((1, (1 << 63) - 1, 1, 1)))
    assert groups.count(*most[1:]).tolist() == [(1 << 63) - 1]


def test_counts_never_wrap_when_they_are_added() -> None:
    """Several bookies may claim as much as a count holds."""
    largest = (1 << 63) - 1
    assert groups.add_counts(pa.chunked_array([[largest], [largest, 5]])) == largest
    assert groups.add_counts(pa.chunked_array([[3, 1 << 40], []])) == (1 << 40) + 3
    assert groups.add_counts(pa.chunked_array([], pa.int64())) == 0
