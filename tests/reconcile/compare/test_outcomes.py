"""Outcomes that something else than bookies decides."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reconcile.compare.outcomes import claim_without_members, guard_beyond_locks, set_outcome, wait_without_place
from reconcile.rules.holds import is_named
from recovery.codecs.store import Layout
from recovery.infer.refusal import Refusal
from recovery.model import tables
from tests.simulation.simulator import copy_row

HELD = Refusal.TWO_HISTORIES
OUTCOMES = ("guarded", "guarded", "restored", "guarded", "guarded", "guarded")


def rows(**changes: Any) -> pa.Table:
    """Return six ledgers of two buckets, a third of their copies seen; `changes` are of the second one."""
    base: dict[str, Any] = {
        "scope": 0, "reading": "likeliest", "reason": "source_incomplete", "format": 3, "ensemble_size": 3,
        "write_quorum": 2, "ack_quorum": 2, "last_entry": 9, "missing": 6, "extra": 1, "custom": None, "raw": b"record",
        "segments": [{"first": 0, "first_low": 0, "members": ["a:1", "b:1", "z:1"], "assumed": [False, False, True]}],
        "grades": dict.fromkeys(tables.GRADED, "inferred"), "holders": ["b:1", "a:1"], "alternatives": [],
    }  # fmt: skip
    made = [
        {**base, "bucket": 1 if place < 3 else 4, "ledger": place, "outcome": outcome}
        for place, outcome in enumerate(OUTCOMES)
    ]
    made[1].update(changes)
    return pa.Table.from_pylist(made, schema=tables.RECONSTRUCTION)


WANTED = np.array([0, 1, 2, 3, 5])
NOTHING = tables.COPIES.empty_table()


@pytest.mark.parametrize(("share", "beyond"), [(9, []), (2, []), (1, [1, 5]), (0, [0, 1, 3, 5])])
def test_guarded_ledgers_beyond_a_buckets_share_of_the_locks_have_none(share: int, beyond: list[int]) -> None:
    """The first of each bucket get locks; the others are named, or held where somebody unknown may hold more."""
    found, named = guard_beyond_locks(rows(), WANTED, share, lambda: ["x:1"], NOTHING)
    assert np.flatnonzero(named).tolist() == beyond
    assert found["outcome"].to_pylist() == [*OUTCOMES]
    found, named = guard_beyond_locks(rows(), WANTED, share, lambda: None, NOTHING)
    assert [place for place, outcome in enumerate(found["outcome"].to_pylist()) if outcome == "held"] == beyond
    assert not named.any()


def test_a_guard_by_names_names_all_who_hold_anything_and_all_who_may_hold_more() -> None:
    """Holders in front, each bookie once, W = E; it claims no shape, and says in its record what it is."""
    custom = [{"key": "application", "value": b"pulsar"}]
    found, _ = guard_beyond_locks(rows(custom=custom), WANTED, 1, lambda: ["b:1", "x:1", "y:1"], NOTHING)
    made = found.to_pylist()[1]
    assert made["segments"] == [
        {"first": 0, "first_low": 0, "members": ["b:1", "a:1", "x:1", "y:1"], "assumed": [False, False, True, True]}
    ]
    assert (made["ensemble_size"], made["write_quorum"], made["ack_quorum"]) == (4, 4, 1)
    assert (made["reading"], made["last_entry"], made["raw"]) == ("universal", 9, None)
    # Of 20 places 6 lacked a copy, and one copy had no place; now all 40 are places.
    assert (made["missing"], made["extra"]) == (40 - 15, 0)
    assert made["grades"]["segments"] == made["grades"]["ensemble_size"] == "assumed"
    assert made["grades"]["last_entry"] == "inferred"
    assert made["custom"] == [*custom, {"key": "bkmeta.guard", "value": b"named"}]
    assert is_named(found).tolist() == [False, True, False, False, False, True]
    assert found.take([0, 2, 3, 4]) == rows().take([0, 2, 3, 4])


def test_who_has_a_ledger_in_logs_alone_is_named_too() -> None:
    """Its index may know the ledger and no place of an entry: outside the record it would delete the rest."""
    kept = [copy_row(1, "a:1", [0]), copy_row(1, "k:1", []), copy_row(1, "k:1", [7], source="log")]
    kept += [copy_row(3, "l:1", [1]), copy_row(9, "m:1", [1])]
    copies = pa.Table.from_pylist([one | {"key": b"k" * 32} for one in kept], schema=tables.COPIES)
    found, _ = guard_beyond_locks(rows(key=b"k" * 32), WANTED, 0, lambda: ["x:1"], copies)
    members = [row["segments"][0]["members"] for row in found.to_pylist()]
    assert members[1] == ["b:1", "a:1", "k:1", "x:1"]
    assert members[0] == members[5] == ["b:1", "a:1", "x:1"]
    assert found.to_pylist()[1]["segments"][0]["assumed"] == [False, False, True, True]


def test_who_has_another_ledger_of_the_id_cannot_be_named() -> None:
    """A reader would take its entries for this one's; and outside the record they would be deleted: held."""
    copies = pa.Table.from_pylist([copy_row(1, "k:1", [0]) | {"key": b"o" * 32}], schema=tables.COPIES)
    found, named = guard_beyond_locks(rows(key=b"k" * 32), WANTED, 1, lambda: ["x:1"], copies)
    assert np.flatnonzero(named).tolist() == [5]
    assert found["outcome"][1].as_py() == "held"


@pytest.mark.parametrize(("own", "other"), [(b"k" * 32, None), (None, b"o" * 32)])
def test_a_key_that_is_not_known_is_not_another_one(own: bytes | None, other: bytes | None) -> None:
    """On either side: whoever has the ledger is named."""
    copies = pa.Table.from_pylist([copy_row(1, "k:1", [0]) | {"key": other}], schema=tables.COPIES)
    found, named = guard_beyond_locks(rows(key=own), WANTED, 1, lambda: ["x:1"], copies)
    assert named[1]
    assert "k:1" in found.to_pylist()[1]["segments"][0]["members"]


@pytest.mark.parametrize(
    ("changes", "hiding"),
    [({"format": 1}, ["x:1"]), ({"holders": []}, ["x:1"]), ({}, [f"x{n}:1" for n in range(13)])],
    ids=["no custom metadata", "no holder", "too many names for a reader"],
)
def test_what_cannot_be_named_is_held(changes: dict[str, Any], hiding: list[str]) -> None:
    """Its mark has no place, nobody serves it, or a reader would ask too many bookies for each entry."""
    found, named = guard_beyond_locks(rows(**changes), WANTED, 1, lambda: hiding, NOTHING)
    assert not named[1]
    assert found["outcome"][1].as_py() == "held"


def test_another_outcome_is_given_at_some_places() -> None:
    """With its reason; those that wait for a person keep both, and so does every other place."""
    before = set_outcome(rows(outcome="waiting", reason="id_out_of_range"), np.array([], np.int64), "held", HELD)
    assert before["outcome"].to_pylist() == ["guarded", "waiting", "restored", "guarded", "guarded", "guarded"]
    found = set_outcome(before, np.array([0, 1, 2]), "held", HELD)
    assert found["outcome"].to_pylist() == ["held", "waiting", "held", "guarded", "guarded", "guarded"]
    assert found["reason"].to_pylist()[:4] == [str(HELD), "id_out_of_range", str(HELD), "source_incomplete"]


def test_a_ledger_without_a_place_in_the_layout_waits() -> None:
    """Only one with an id that the layout cannot name."""
    long = {1: 1 << 40, 3: 1 << 50}
    made = [{**row, "ledger": long.get(row["ledger"], row["ledger"])} for row in rows().to_pylist()]
    found = wait_without_place(pa.Table.from_pylist(made, rows().schema), Layout.LEGACY)
    waiting = [place in long for place in range(6)]
    assert [outcome == "waiting" for outcome in found["outcome"].to_pylist()] == waiting
    assert [reason == "id_out_of_range" for reason in found["reason"].to_pylist()] == waiting
    assert wait_without_place(rows(), Layout.LEGACY) == rows()


@pytest.mark.parametrize(
    ("changes", "outcome", "reading"),
    [
        ({}, "restored", "proved"),
        ({"missing": 1}, "guarded", "likeliest"),
        ({"missing": 1, "reading": "universal"}, "guarded", "universal"),
        ({"missing": 1, "outcome": "held"}, "held", "proved"),
        ({"missing": 0, "outcome": "guarded"}, "guarded", "likeliest"),
        ({"missing": 1, "grade": "snapshot"}, "restored", "proved"),
        ({"missing": 1, "grade": "reference"}, "restored", "proved"),
        ({"missing": 1, "grade": "inferred"}, "guarded", "likeliest"),
        ({"outcome": "held", "reading": None}, "held", None),
    ],
)
def test_where_no_bookies_are_named_less_is_claimed(changes: dict[str, Any], outcome: str, reading: str | None) -> None:
    """A copy that is missing may be on a bookie that was not named, unless something else vouches for the end."""
    base: dict[str, Any] = {
        "outcome": "restored",
        "reading": "proved",
        "missing": 0,
        "reason": None,
        "grade": "observed",
    }
    made = base | changes
    grade = made.pop("grade")
    grades = {**dict.fromkeys(tables.GRADED, "observed"), "last_entry": grade}
    found = claim_without_members(rows(**made, grades=grades)).to_pylist()[1]
    reason = "source_incomplete" if outcome != made["outcome"] else None
    assert (found["outcome"], found["reading"], found["reason"]) == (outcome, reading, reason)
    lowered = {**grades, "last_entry": "inferred" if grade == "observed" else grade, "length": "inferred"}
    assert found["grades"] == lowered
