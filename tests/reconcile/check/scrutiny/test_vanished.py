"""Records that are gone since the run before: what is ordinary, and what is to be doubted."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from reconcile.check.scrutiny.vanished import (
    BKMETA,
    HISTORY,
    Vanished,
    VanishedWindow,
    find_vanished,
    list_doubts,
    list_lower_counters,
)
from recovery.model import tables
from recovery.model.ids import LedgerId
from tests.support.inventories import fill_row

DAY_S = 86_400.0
ORDINARY = [VanishedWindow(DAY_S, 1000, 90), VanishedWindow(DAY_S, 1000, 110)]


def doubt(
    vanished: Vanished, windows: list[VanishedWindow] = ORDINARY, seconds: float = DAY_S, **how: Any
) -> dict[str, str]:
    """What is said of records that are gone; empty: nothing."""
    found = list(list_doubts(vanished, windows, seconds, how.pop("went_back", ()), has_reasons=how.pop("known", True)))
    assert len(found) <= 1
    return {statement.field: str(statement.value) for one in found for statement in one.statements}


@pytest.mark.parametrize(
    ("gone", "windows", "seconds", "known", "is_alarm"),
    [
        # Trimming, minutes apart, where nothing explains a deletion and nothing like it was seen.
        (16, [VanishedWindow(180, 105, 0)] * 9, 180, False, False),
        (53, [], 180, False, True),
        # A retention under ten days, a share a day: as ever, three times as much, and in three days.
        (110, ORDINARY, DAY_S, True, False),
        (340, ORDINARY, DAY_S, True, True),
        (340, ORDINARY, 3 * DAY_S, True, False),
        # What is always explained was not, this time; few are never an alarm.
        (11, [VanishedWindow(DAY_S, 100, 0)], DAY_S, True, True),
        (10, [VanishedWindow(DAY_S, 100, 0)], DAY_S, True, False),
        (11, [VanishedWindow(DAY_S, 110, 0)], DAY_S, True, False),
        (10, [VanishedWindow(DAY_S, 20, 0)], DAY_S, True, False),
        (11, [VanishedWindow(DAY_S, 20, 0)], DAY_S, True, True),
        # The largest share of all windows counts; of a window without ledgers, or of no time, there is none.
        (300, ORDINARY, DAY_S, True, False),
        (
            300,
            [VanishedWindow(DAY_S, 1000, 90), VanishedWindow(DAY_S, 0, 0), VanishedWindow(0, 1000, 900)],
            DAY_S,
            True,
            True,
        ),
    ],
)
def test_more_than_any_retention_took_before_is_an_alarm(
    gone: int, windows: list[VanishedWindow], seconds: float, known: bool, is_alarm: bool
) -> None:
    """By the share of what was listed; the number, the usual rate and the time are said."""
    listed = windows[0].listed if windows else 105
    said = doubt(Vanished(listed=listed, gone=gone), windows, seconds, known=known)
    assert bool(said) is is_alarm
    if is_alarm:
        assert said["gone, and nothing explains it"] == f"{gone} of {listed}"
        assert (said["explained"], said["time since"]) == ("none", str(timedelta(seconds=seconds)))


def test_the_usual_rate_is_said_where_it_is_known() -> None:
    """The largest of all windows, of as long a time, with how many there are."""
    usual = "unexplained in so long a time, usually"
    assert doubt(Vanished(listed=1000, gone=900))[usual] == "11.0 % at most, by 2 earlier windows"
    assert doubt(Vanished(listed=1000, gone=900), [])[usual] == "not known"


def test_what_is_explained_is_never_an_alarm() -> None:
    """All of them, by the store's history and by tombstones."""
    assert doubt(Vanished(listed=100, gone=100, explained={HISTORY: 60, BKMETA: 40}), []) == {}
    said = doubt(Vanished(listed=100, gone=100, explained={HISTORY: 60, BKMETA: 20}), [])
    assert said["explained"] == f"20 {BKMETA}, 60 {HISTORY}"


def test_a_store_that_went_back_is_an_alarm_however_few_are_gone() -> None:
    """Its own counts say it; or that all the newest are gone, and none was made since."""
    assert doubt(Vanished(listed=10), went_back=["its last transaction was 9, and is 7"])["it went back"]
    newest = Vanished(listed=1000, gone=11, oldest_gone=50, newest_kept=49, newest_now=49)
    assert doubt(newest)["gone are the newest ledgers"]
    assert doubt(replace(newest, newest_now=60)) == {}
    assert doubt(replace(newest, oldest_gone=48)) == {}
    assert doubt(replace(newest, oldest_gone=49)) == {}
    assert doubt(replace(newest, oldest_gone=None)) == {}
    assert doubt(replace(newest, newest_kept=None)) == {}
    assert doubt(replace(newest, gone=10)) == {}
    assert list_lower_counters({"/a": 5, "/b": 5, "/c": 5}, {"/a": 5, "/b": 4}) == ["/b"]


def test_a_listing_that_leaves_out_what_is_there_is_an_alarm() -> None:
    """One ledger is enough: it has a record when it is asked for by its key."""
    assert doubt(Vanished(listed=1000, gone=1, unlisted=1))["not listed, and there when asked for by their keys"] == "1"


def test_who_is_gone_and_what_the_store_remembers_of_it() -> None:
    """Each ledger of the run before that is not listed now, with its last deletion; the newest one that is left.

    One that was made since is neither, nor is one that is gone.
    """
    ids = [LedgerId(0, n) for n in range(6)]
    rows = [{"bucket": one.bucket, "scope": 0, "ledger": one.ledger, "created_txn": 10 + one.ledger} for one in ids]
    earlier = pa.Table.from_pylist(rows, schema=pa.schema([*tables.KEY, ("created_txn", pa.int64())])).sort_by(
        [(name, "ascending") for name in tables.KEY_COLUMNS]
    )
    stored = earlier.filter(pa.array([row["ledger"] in (0, 3, 5) for row in earlier.to_pylist()]))
    earlier = earlier.filter(pa.array([row["ledger"] != 5 for row in earlier.to_pylist()]))
    history = [
        fill_row(tables.CATALOG_HISTORY, {"bucket": ids[1].bucket, "ledger": 1, "txn": txn, "op": op, "session": 7})
        for txn, op in ((20, "created"), (21, "deleted"), (25, "deleted"))
    ]
    gone, newest = find_vanished(earlier, stored, pa.Table.from_pylist(history, schema=tables.CATALOG_HISTORY))
    told = {row["ledger"]: (row["created_txn"], row["deleted_txn"], row["session"]) for row in gone.to_pylist()}
    assert told == {1: (11, 25, 7), 2: (12, None, None), 4: (14, None, None)}
    assert newest == 13
