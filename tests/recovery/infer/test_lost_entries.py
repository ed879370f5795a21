"""What a torn log took of a ledger the index lists by entry: where other bookies serve it, nothing is in doubt."""

from collections.abc import Collection, Mapping
from typing import Any, Final

import pyarrow as pa
import pytest

from recovery.infer.reconstruct import reconstruct
from recovery.infer.refusal import Refusal
from recovery.model import tables
from recovery.testing import simulator
from tests.recovery.infer.test_reconstruct import KNOWN, NAMES, SECRET, Row, full, header, row, striped

FOLDER: Final = "/d/current"
TORN: Final[Mapping[str, Any]] = {"file": f"{FOLDER}/0.log", "hides": "unlisted"}
"""A log of which the rest is gone: ledgers that nobody lists may have stood there."""


def lost(*entries: int) -> dict[str, Any]:
    """Return damage of an index whose slots of some entries of ledger 7 name places that are gone."""
    groups = [{"first": entry, "last": entry, "size": 1, "period": 0} for entry in entries]
    return {"file": f"{FOLDER}/locations", "ledger": 7, "scope": 0, "hides": "ledger", "entries": groups}


def recover(rows: Collection[Row], *harms: Mapping[str, Any], folders: Collection[str] = (FOLDER,)) -> Row:
    """Reconstruct the ledger of some rows, of which the first bookie has damage."""
    made = {"bookie": NAMES[0], "incarnation": 1, "reason": "dangling", "hides_entries": True}
    dirs = [{"path": path, "role": "index", "complete": False, "bytes": 9, "unread": 0} for path in folders]
    bookies = [
        bookie | ({"complete": False, "dirs": dirs} if bookie["bookie"] == NAMES[0] else {})
        for bookie in simulator.bookies(NAMES[:4]).to_pylist()
    ]
    copies = pa.Table.from_pylist(list(rows), schema=tables.COPIES)
    damage = pa.Table.from_pylist([made | dict(harm) for harm in harms], schema=tables.DAMAGE)
    listed = pa.Table.from_pylist(bookies, schema=tables.BOOKIES)
    (found,) = reconstruct(copies, listed, damage, KNOWN, SECRET).to_pylist()
    return dict(found)


def torn(gone: Collection[int], others: Collection[int] = ()) -> list[Row]:
    """Return the copies of a ledger of 3/2 whose first bookie lost some entries; the second one lacks others."""
    entries = [[e for e in range(30) if simulator.holds(p, e, 3, 2)] for p in range(2)]
    hurt = row(NAMES[0], set(entries[0]) - set(gone)) | {"complete": False}
    return [hurt, row(NAMES[1], set(entries[1]) - set(others)), striped(30)[2]]


def test_entries_that_others_serve_are_in_no_doubt() -> None:
    """Restored as it was, its missing copies counted, whatever else of the log nobody lists."""
    for harms in ([lost(3, 5, 6)], [lost(3), TORN, lost(5, 6)]):
        found = recover(torn([3, 5, 6]), *harms)
        assert (found["outcome"], found["reading"], found["missing"], found["last_entry"]) == (
            "restored", "proved", 3, 29
        )  # fmt: skip
        assert found["segments"][0]["members"] == list(NAMES[:3])


def test_who_lost_all_is_a_member_as_before() -> None:
    """So that auto-recovery makes as many copies as there were."""
    found = recover([row(NAMES[0], []) | {"complete": False}, *full()[1:]], lost(*range(20)))
    assert (found["outcome"], found["write_quorum"], found["missing"]) == ("restored", 3, 20)
    assert set(found["segments"][0]["members"]) == set(NAMES[:3])


@pytest.mark.parametrize(("entries", "outcome"), [([3, 5], "restored"), ([3, 8], "guarded")])
def test_an_old_journal_that_has_the_same_entries_hides_no_others(entries: list[int], outcome: str) -> None:
    """What its bookie wrote stands in journals that were applied, too; one that the index lacks keeps the doubt."""
    found = recover([*torn([3, 5, 6]), row(NAMES[0], entries, source="log") | {"complete": False}], lost(3, 5, 6))
    assert found["outcome"] == outcome


def test_what_a_copy_in_an_old_journal_says_was_acknowledged_is_heard() -> None:
    """Its LAC is the end at which the ledger was closed: nobody has the entries above those that are served."""
    for lac, outcome in ((29, "restored"), (31, "guarded")):
        journal = row(NAMES[0], [3, 5], source="log", headers=[header(5, lac=lac)]) | {"complete": False}
        found = recover([*torn([3, 5, 6]), journal], lost(3, 5, 6))
        assert (found["outcome"], found["lac_low"]) == (outcome, lac)


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
    found = recover(torn([3, 5, 6], others), *harms, folders=folders)
    assert (found["outcome"], found["reason"]) == ("guarded", Refusal.DAMAGE)
