"""What damage hides is bounded by ledger: what a bookie was seen to list, and what damage does not name, is certain."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from recovery.infer import facts
from recovery.infer.unseen_bookies import UnseenBookies
from recovery.model import tables
from tests.recovery.infer.test_reconstruct import NAMES, Row, full
from tests.simulation import simulator

FOLDER: Final = "/d/current"


def count_hiding(
    rows: list[Row], harm: dict[str, Any], *, folders: tuple[str, ...] = (FOLDER,), whole: bool = True
) -> tuple[int, int, bool]:
    """Return how many bookies may hide entries of ledger 7, how many of its holders, and whether damage names it.

    Args:
        rows: its copies.
        harm: of the damage, which the first bookie has.
        folders: of that one that were not read to their end.
        whole: whether its own row says that all of the ledger was seen there.
    """
    rows = [r | {"complete": whole or r["bookie"] != NAMES[0]} for r in rows]
    dirs = [{"path": path, "role": "index", "complete": False, "bytes": 9, "unread": 0} for path in folders]
    listed = [
        bookie | ({"complete": False, "dirs": dirs} if bookie["bookie"] == NAMES[0] else {})
        for bookie in simulator.bookies(NAMES).to_pylist()
    ]
    made = {"bookie": NAMES[0], "incarnation": 1, "file": f"{FOLDER}/f", "reason": "zeros", "hides_entries": True}
    bookies = pa.Table.from_pylist(listed, schema=tables.BOOKIES)
    known = facts.read(pa.Table.from_pylist(rows, schema=tables.COPIES), bookies)
    damage = pa.Table.from_pylist([made | harm], schema=tables.DAMAGE)
    unseen = UnseenBookies.gather(known, bookies, damage, np.zeros(1, np.bool_), 0)
    return int(unseen.bookies[0]), int(unseen.holders[0]), bool(unseen.named[0])


OTHERS: Final = full(4)[1:]
"""Copies of three bookies that have no damage."""


@pytest.mark.parametrize("rows", [full(), OTHERS], ids=["a holder", "another one"])
def test_damage_that_names_another_ledger_hides_nothing_of_this_one(rows: list[Row]) -> None:
    """On the bookie that has it, or on one that has nothing of it; damage that names this one does."""
    assert count_hiding(rows, {"ledger": 8, "scope": 0}) == (0, 0, False)
    hiding, _, named = count_hiding(rows, {"ledger": 7, "scope": 0})
    assert (hiding, named) == (1, True)


def test_what_a_bookie_lists_is_not_touched_by_damage_that_names_no_ledger() -> None:
    """A torn log may have had ledgers that nobody lists; a row that was read to its end has all of its own."""
    assert count_hiding(full(), {}) == (0, 0, False)
    assert count_hiding(full(), {}, whole=False) == (1, 1, False)
    assert count_hiding(OTHERS, {}) == (1, 0, False)


def test_a_folder_that_no_damage_explains_hides_any_ledger() -> None:
    """It was not given, so nobody knows what stands there."""
    assert count_hiding(OTHERS, {"ledger": 8, "scope": 0}, folders=(FOLDER, "/gone/current")) == (1, 0, False)


@pytest.mark.parametrize(
    ("scanned", "named", "unscanned", "lost", "torn", "unsound", "outsiders"),
    [
        ("abcde", "", 0, "", "", "", 2),
        ("abcd", "e", 1, "", "", "e", 2),
        # Known by their number alone: each may have had an entry.
        ("abcde", "", 2, "", "", "", 4),
        ("abcd", "e", 3, "", "", "e", 4),
        # What is lost hides nothing, and may have had one; so may who was not read completely.
        ("abcde", "", 0, "c", "", "", 3),
        ("abcde", "", 0, "e", "", "", 2),
        ("abcde", "", 0, "", "a", "a", 3),
        ("abcde", "", 0, "", "e", "e", 2),
        ("abcde", "", 0, "a", "a", "", 3),
        ("abcde", "", 0, "bc", "a", "a", 5),
        ("abcd", "e", 1, "e", "", "", 2),
        ("ab", "cde", 3, "", "", "cde", 3),
    ],
)
def test_who_may_have_had_an_entry_that_nothing_shows(
    scanned: str, named: str, unscanned: int, lost: str, torn: str, unsound: str, outsiders: int
) -> None:
    """All but those that are seen whole and have entries of the ledger: `a`, `b` and `c` have some."""
    rows = [one | {"complete": one["bookie"][0] not in torn} for one in full(3) if one["bookie"][0] in scanned]
    listed = [
        bookie | {"complete": bookie["bookie"][0] not in torn}
        for bookie in simulator.bookies([f"{name}:3181" for name in scanned]).to_pylist()
    ]
    bookies = pa.Table.from_pylist(listed, schema=tables.BOOKIES)
    known = facts.read(
        pa.Table.from_pylist(rows, schema=tables.COPIES),
        bookies,
        unscanned=[f"{name}:3181" for name in named],
        lost=[f"{name}:3181" for name in lost],
    )
    nothing = np.zeros(0, np.bool_)
    unseen = UnseenBookies.gather(known, bookies, tables.DAMAGE.empty_table(), nothing, unscanned)
    names = [name[0] for name in known.bookies.to_pylist()]
    assert "".join(names[place] for place in np.flatnonzero(unseen.unsound)) == unsound
    assert unseen.count_outsiders(known).tolist() == [outsiders]
