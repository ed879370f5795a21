"""What a torn log took of a ledger the index lists by entry: where other bookies serve it, nothing is in doubt."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pytest

from recovery.infer import lost_entries
from recovery.infer.copies import LOST
from recovery.infer.reconstruct import reconstruct
from recovery.infer.refusal import Refusal
from recovery.model import tables
from recovery.model.ids import LedgerId
from recovery.model.metadata import LedgerMetadata, LedgerState, Segment
from tests.reconcile.rules.test_sides import catalog
from tests.recovery.infer.test_reconstruct import KNOWN, NAMES, SECRET, Row, full, header, row, striped
from tests.recovery.infer.test_snapshot_records import TRUE
from tests.simulation import simulator

FOLDER: Final = "/d/current"
TORN: Final[Mapping[str, Any]] = {"file": f"{FOLDER}/0.log", "hides": "unlisted"}
"""A log of which the rest is gone: ledgers that nobody lists may have stood there."""


def lost(*entries: int) -> dict[str, Any]:
    """Return damage of an index whose slots of some entries of ledger 7 name places that are gone."""
    groups = [{"first": entry, "last": entry, "size": 1, "period": 0} for entry in entries]
    return {"file": f"{FOLDER}/locations", "ledger": 7, "scope": 0, "hides": "ledger", "entries": groups}


def recover(
    rows: Collection[Row],
    *harms: Mapping[str, Any],
    folders: Collection[str] = (FOLDER,),
    stored: LedgerMetadata | None = None,
) -> Row:
    """Reconstruct the ledger of some rows, of which the first bookie has damage, and a snapshot maybe a record."""
    made = {"bookie": NAMES[0], "incarnation": 1, "reason": "dangling", "hides_entries": True}
    dirs = [{"path": path, "role": "index", "complete": False, "bytes": 9, "unread": 0} for path in folders]
    bookies = [
        bookie | ({"complete": False, "dirs": dirs} if bookie["bookie"] == NAMES[0] else {})
        for bookie in simulator.bookies(NAMES[:4]).to_pylist()
    ]
    copies = pa.Table.from_pylist(list(rows), schema=tables.COPIES)
    damage = pa.Table.from_pylist([made | dict(harm) for harm in harms], schema=tables.DAMAGE)
    listed = pa.Table.from_pylist(bookies, schema=tables.BOOKIES)
    snapshot = None if stored is None else catalog({LedgerId(0, 7): stored})
    (found,) = reconstruct(copies, listed, damage, KNOWN, SECRET, snapshot).to_pylist()
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


@pytest.mark.parametrize("state", [LedgerState.CLOSED, LedgerState.OPEN])
def test_a_record_of_others_reads_no_entry_where_it_was_lost(state: LedgerState) -> None:
    """An entry that the damaged bookie alone of a record's members had is read of who serves it."""
    ended = {"last_entry": 4, "length": 50} if state is LedgerState.CLOSED else {"last_entry": None, "length": None}
    stored = replace(TRUE, ensemble_size=2, write_quorum=2, state=state, segments=(Segment(0, NAMES[:2]),), **ended)
    served = {NAMES[0]: {0, 3}, NAMES[1]: {0, 1, 3, 4}, NAMES[2]: {1, 2, 4}}
    rows = [row(name, entries) | {"complete": name != NAMES[0]} for name, entries in served.items()]
    found = recover(rows, lost(2), stored=stored)
    assert (found["outcome"], found["ensemble_size"], found["last_entry"]) == ("restored", 2, 4)
    for entry in range(5):
        members = next(s["members"] for s in reversed(found["segments"]) if s["first"] <= entry)
        assert any(entry in served.get(name, ()) for name in members), entry


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


def test_a_ledger_that_is_not_whole_with_what_is_put_back_settles_nothing() -> None:
    """Another bookie lacks an entry, too: which of them may have had more is open."""
    assert recover(torn([3]), lost(3))["outcome"] == "restored"
    assert recover(torn([3], [7]), lost(3))["outcome"] == "guarded"


@pytest.mark.parametrize(
    ("source", "dirty", "strong"),
    [
        ("index", False, True),
        ("wire", None, True),
        ("log", True, False),
        # A bookie replays its journal unless it was stopped cleanly, or who knows.
        ("journal", True, True),
        ("journal", None, True),
        ("journal", False, False),
    ],
)
def test_which_rows_a_bookie_serves(source: str, dirty: bool | None, *, strong: bool) -> None:
    """Beside another bookie with the opposite `dirty`."""
    listed = [
        one | {"dirty": dirty if one["bookie"] == NAMES[0] else not dirty}
        for one in simulator.bookies(NAMES[:2]).to_pylist()
    ]
    copies = pa.Table.from_pylist([row(NAMES[0], range(9), source=source)], schema=tables.COPIES)
    bookies = pa.Table.from_pylist(listed, schema=tables.BOOKIES)
    assert lost_entries._mark_strong(copies, bookies).tolist() == [strong]


def test_what_is_put_back_stands_beside_rows_that_are_complete_then() -> None:
    """Those of the bookie that lost it; others stay as they were."""
    own = [row(NAMES[0], [0, 2], complete=False), row(NAMES[0], [0], source="log", complete=False)]
    others = [row(NAMES[1], [0], complete=False), row(NAMES[2], [1])]
    groups = [{"first": 1, "last": 1, "size": 1, "period": 0}]
    gone = pa.Table.from_pylist(
        [{"scope": 0, "ledger": 7, "bookie": NAMES[0], "groups": groups}],
        schema=pa.schema([tables.COPIES.field(name) for name in ("scope", "ledger", "bookie", "groups")]),
    )
    *rows, added = lost_entries._put_back(
        pa.Table.from_pylist([*own, *others], schema=tables.COPIES), gone
    ).to_pylist()  # fmt: skip
    assert [one["complete"] for one in rows] == [True, True, False, True]
    assert (added["bookie"], added["source"], added["complete"]) == (NAMES[0], LOST, True)
    assert (added["groups"], added["headers"]) == (groups, [])
