"""Availability bytes: the examples of BP-34 grouped as it means them, and what released bookies send."""

import json

import numpy as np
import pytest

from recovery.model import groups
from recovery.model.groups import KeyedGroups
from tests.support.cases import DATA

ONE = [1, 2, 4, 5, 7, 8, 10, 11]
TWO = [1, 2, 3, 6, 7, 8, 11, 13, 16, 17, 18, 21, 22]

ONE_GROUPED = "0000000000000001 000000000000000a 00000002 00000003"
TWO_GROUPED = """
0000000000000001 0000000000000006 00000003 00000005
000000000000000b 000000000000000d 00000001 00000002
0000000000000010 0000000000000010 00000003 00000000
0000000000000015 0000000000000015 00000002 00000000
"""
RAGGED_GROUPED = """
0000000000000000 0000000000000004 00000001 00000002
0000000000000006 0000000000000006 00000002 00000000
0000000000000009 000000000000000b 00000001 00000002
"""
GROUPED = [
    (ONE, [(1, 10, 2, 3)], ONE_GROUPED),
    (TWO, [(1, 6, 3, 5), (11, 13, 1, 2), (16, 16, 3, 0), (21, 21, 2, 0)], TWO_GROUPED),
    ([3, 9], [(3, 9, 1, 6)], "0000000000000003 0000000000000009 00000001 00000006"),
    ([0, 2, 4, 6, 7, 9, 11], [(0, 4, 1, 2), (6, 6, 2, 0), (9, 11, 1, 2)], RAGGED_GROUPED),
    ([], [], ""),
    ([7], [(7, 7, 1, 0)], "0000000000000007 0000000000000007 00000001 00000000"),
    ([0, 1, 2, 3, 4], [(0, 0, 5, 0)], "0000000000000000 0000000000000000 00000005 00000000"),
]

ONE_SENT = """
0000000000000001 0000000000000001 00000002 00000000
0000000000000004 0000000000000004 00000002 00000000
0000000000000007 0000000000000007 00000002 00000000
000000000000000a 000000000000000a 00000002 00000000
"""
TWO_SENT = """
0000000000000001 0000000000000001 00000003 00000000
0000000000000006 0000000000000006 00000003 00000000
000000000000000b 000000000000000b 00000001 00000000
000000000000000d 000000000000000d 00000001 00000000
0000000000000010 0000000000000010 00000003 00000000
0000000000000015 0000000000000015 00000002 00000000
"""
RAGGED_SENT = """
0000000000000000 0000000000000000 00000001 00000000
0000000000000002 0000000000000002 00000001 00000000
0000000000000004 0000000000000004 00000001 00000000
0000000000000006 0000000000000006 00000002 00000000
0000000000000009 0000000000000009 00000001 00000000
000000000000000b 000000000000000b 00000001 00000000
"""
SENT = [(ONE, ONE_SENT), (TWO, TWO_SENT), ([0, 2, 4, 6, 7, 9, 11], RAGGED_SENT), ([], "")]


def message(listed: str) -> bytes:
    """Return the availability bytes of groups written in hex."""
    body = bytes.fromhex(listed)
    return bytes(4) + (len(body) // 24).to_bytes(4, "big") + bytes(56) + body


def rows(held: KeyedGroups) -> list[tuple[int, ...]]:
    """Return groups as tuples."""
    return list(zip(*(column.tolist() for column in held[1:]), strict=True))


@pytest.mark.parametrize(("entries", "expected", "listed"), GROUPED)
def test_the_grouped_examples(entries: list[int], expected: list[tuple[int, ...]], listed: str) -> None:
    """The groups of each example, and their bytes; the first two are BP-34's own."""
    held = groups.group_entries(np.array(entries, np.int64))
    assert rows(held) == expected
    assert groups.encode_availability(held) == message(listed)
    assert rows(groups.decode_availability(message(listed))) == expected


@pytest.mark.parametrize(("entries", "listed"), SENT)
def test_what_released_bookies_send(entries: list[int], listed: str) -> None:
    """One group for every run, period 0: the same entries, grouped by us."""
    held = groups.decode_availability(message(listed))
    assert rows(held) == rows(groups.group_entries(np.array(entries, np.int64)))
    assert groups.expand(held)[1].tolist() == entries


def test_what_each_release_makes_of_entries_is_read() -> None:
    """4.10.0 to 4.18.0 all give these bytes: striped, ragged, empty, at the end of ids."""
    lines = (DATA.parent / "bookkeeper-old" / "availability.txt").read_text().splitlines()
    assert len(lines) == 52
    for line in lines:
        listed, sent = line.rsplit(" ", 1)
        entries = json.loads(listed)
        held = groups.decode_availability(bytes.fromhex(sent))
        assert groups.expand(held)[1].tolist() == entries
        assert rows(held) == rows(groups.group_entries(np.array(entries, np.int64)))
