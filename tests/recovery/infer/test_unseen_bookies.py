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
