"""What a torn log took of a ledger the index lists by entry: where other bookies serve it, nothing is in doubt."""

from collections.abc import Collection, Mapping
from typing import Any, Final

import pyarrow as pa
import pytest

from recovery.infer.reconstruct import reconstruct
from recovery.infer.refusal import Refusal
from recovery.model import tables
from recovery.testing import simulator
from tests.recovery.infer.test_reconstruct import KNOWN, NAMES, SECRET, Row, row, striped

FOLDER: Final = "/d/current"
TORN: Final[Mapping[str, Any]] = {"file": f"{FOLDER}/0.log", "hides": "unlisted"}
"""A log of which the rest is gone: ledgers that nobody lists may have stood there."""


def lost(*entries: int) -> dict[str, Any]:
    """Return damage of an index whose slots of some entries of ledger 7 name places that are gone."""
    groups = [{"first": entry, "last": entry, "size": 1, "period": 0} for entry in entries]
    return {"file": f"{FOLDER}/locations", "ledger": 7, "scope": 0, "hides": "ledger", "entries": groups}


def recover(
    gone: Collection[int], *harms: Mapping[str, Any], folders: Collection[str] = (FOLDER,), others: Collection[int] = ()
) -> Row:
    """Reconstruct a ledger of 3/2 whose first bookie has lost some entries; the second one lacks others, unseen."""
    hurt, beside, *rest = striped(30)
    entries = [[e for e in range(30) if simulator.holds(p, e, 3, 2)] for p in range(2)]
    hurt = row(hurt["bookie"], set(entries[0]) - set(gone)) | {"complete": False}
    beside = row(beside["bookie"], set(entries[1]) - set(others))
    made = {"bookie": NAMES[0], "incarnation": 1, "reason": "dangling", "hides_entries": True}
    dirs = [{"path": path, "role": "index", "complete": False, "bytes": 9, "unread": 0} for path in folders]
    bookies = [
        bookie | ({"complete": False, "dirs": dirs} if bookie["bookie"] == NAMES[0] else {})
        for bookie in simulator.bookies(NAMES[:4]).to_pylist()
    ]
    copies = pa.Table.from_pylist([hurt, beside, *rest], schema=tables.COPIES)
    damage = pa.Table.from_pylist([made | dict(harm) for harm in harms], schema=tables.DAMAGE)
    (found,) = reconstruct(
        copies, pa.Table.from_pylist(bookies, schema=tables.BOOKIES), damage, KNOWN, SECRET
    ).to_pylist()
    return dict(found)


def test_entries_that_others_serve_are_in_no_doubt() -> None:
    """Restored as it was, its missing copies counted, whatever else of the log nobody lists."""
    for harms in ([lost(3, 5, 6)], [lost(3), TORN, lost(5, 6)]):
        found = recover([3, 5, 6], *harms)
        assert (found["outcome"], found["reading"], found["missing"], found["last_entry"]) == (
            "restored", "proved", 3, 29
        )  # fmt: skip
        assert found["segments"][0]["members"] == list(NAMES[:3])


@pytest.mark.parametrize(
    ("harms", "others", "folders"),
    [
        ([lost(3, 5, 6)], [3], [FOLDER]),
        ([lost(3, 5, 6) | {"entries": None}], [], [FOLDER]),
        ([lost(3, 5, 6) | {"hides": None}], [], [FOLDER]),
        ([lost(3, 5, 6), lost() | {"entries": None}], [], [FOLDER]),
        ([lost(3, 5, 6), {**TORN, "hides": "everything"}], [], [FOLDER]),
        ([lost(3, 5, 6)], [], [FOLDER, "/gone/current"]),
    ],
    ids=["on nobody else", "not listed", "of before", "more of it", "of any ledger", "a folder not given"],
)
def test_what_may_be_more_is_doubted(harms: list[dict[str, Any]], others: list[int], folders: list[str]) -> None:
    """An entry that nobody else serves, damage that lists none, a folder that nobody saw: guarded, as before."""
    found = recover([3, 5, 6], *harms, others=others, folders=folders)
    assert (found["outcome"], found["reason"]) == ("guarded", Refusal.DAMAGE)
