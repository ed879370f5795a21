"""Which ledgers an archive takes, and which it has already: what it has may be deleted by a mark."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recovery.archive.choice import (
    COLUMNS,
    KNOWN,
    ArchiveChoice,
    Chosen,
    choose,
    drop_repeated,
    list_topics,
    measure_frames,
)
from recovery.model.ids import LedgerId
from recovery.model.positions import FAR
from recovery.model.tables import ARCHIVED, CATALOG_LEDGERS

NOW = 1_000_000
STORED: dict[str, Any] = {
    "bucket": 0, "scope": 0, "ledger": 1, "error": None, "state": "CLOSED", "last_entry": 9, "length": 90,
    "digest": "CRC32C", "ctime": 1_000, "changed_at": None, "password_hash": b"h", "custom": [],
}  # fmt: skip
OWN = [{"key": "pulsar/managed-ledger", "value": b"t/n/persistent/a%3Ab"}]
OF_CURSOR = [*OWN, {"key": "pulsar/cursor", "value": b"sub"}]
OTHER = [{"key": "pulsar/schemaId", "value": b"t/n/persistent/a%3Ab"}]
TOPIC, YOUNG = {"topics": "t/n/persistent/a:*"}, {"older_than_ms": 10_000}


def at(ms: int) -> datetime:
    """Return a time as a catalog has it."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def stored(*rows: dict[str, Any]) -> pa.Table:
    """Return rows of a store."""
    schema = pa.schema([CATALOG_LEDGERS.field(name) for name in COLUMNS])
    return pa.Table.from_pylist([STORED | row for row in rows], schema=schema)


def archived(*rows: dict[str, Any]) -> pa.Table:
    """Return rows of an archive, of the same ledgers unless they say otherwise."""
    schema = pa.schema([ARCHIVED.field(name) for name in KNOWN])
    named = [{name: value for name, value in (STORED | {"sha256": "x"} | row).items() if name in KNOWN} for row in rows]
    return pa.Table.from_pylist(named, schema=schema)


def lists(found: Chosen) -> list[list[int]]:
    """Return the rows that are taken, known and other ones."""
    return [list(map(int, rows)) for rows in (found.rows, found.known, found.others)]


@pytest.mark.parametrize(
    ("row", "choice", "counted"),
    [
        ({}, {}, "taken"),
        ({"error": "damaged"}, {}, "unreadable"),
        ({"last_entry": FAR}, {}, "unreadable"),
        ({"last_entry": FAR - 1}, {}, "taken"),
        ({"error": "damaged", "state": None, "last_entry": None}, {}, "unreadable"),
        ({"state": "OPEN", "last_entry": None}, {}, "open"),
        ({"state": "IN_RECOVERY", "last_entry": None}, {}, "open"),
        ({"custom": OWN}, TOPIC, "taken"),
        ({"custom": OWN}, {"topics": "t/n/persistent/b*"}, "other_topics"),
        ({"custom": OF_CURSOR}, TOPIC, "other_topics"),
        ({"custom": OTHER}, TOPIC, "other_topics"),
        ({}, TOPIC, "other_topics"),
        ({"ctime": NOW - 10_000}, YOUNG, "taken"),
        ({"ctime": NOW - 9_999}, YOUNG, "young"),
        ({"ctime": 1, "changed_at": at(NOW - 5_000)}, YOUNG, "young"),
        ({"ctime": NOW, "changed_at": at(NOW - 10_000)}, YOUNG, "taken"),
        ({"ctime": None}, YOUNG, "unknown_age"),
        ({"ctime": None}, {}, "taken"),
        ({}, {"ledgers": (LedgerId(0, 1), LedgerId(5, 2))}, "taken"),
        ({}, {"ledgers": (LedgerId(1, 1), LedgerId(0, 2))}, None),
        ({"state": "OPEN"}, {"ledgers": (LedgerId(0, 2),)}, None),
    ],
)
def test_closed_ledgers_that_are_asked_for_are_taken(
    row: dict[str, Any], choice: dict[str, Any], counted: str | None
) -> None:
    """Each other one is counted once, as what keeps it out; one that is not named is not counted at all."""
    found = choose(stored(row), archived(), ArchiveChoice(NOW, **choice))
    assert {name: count for name, count in found.counts.items() if count} == ({} if counted is None else {counted: 1})
    assert lists(found) == [[0] if counted == "taken" else [], [], []]


@pytest.mark.parametrize(
    ("row", "known", "counted"),
    [
        ({}, {}, "archived"),
        ({"ctime": None, "digest": None, "password_hash": None}, {"ctime": None, "digest": None, "password_hash": None},
         "archived"),
        ({}, {"last_entry": 8}, "other_history"),
        ({}, {"length": 89}, "other_history"),
        ({}, {"digest": "HMAC"}, "other_history"),
        ({}, {"ctime": 1_001}, "other_history"),
        ({}, {"password_hash": b"other"}, "other_history"),
        ({}, {"ctime": None}, "other_history"),
        ({"ctime": None}, {}, "other_history"),
        ({}, {"password_hash": None}, "other_history"),
        ({}, {"scope": 1}, "taken"),
        ({}, {"ledger": 2}, "taken"),
        ({"state": "OPEN"}, {}, "open"),
    ],
)  # fmt: skip
def test_what_the_archive_has_is_the_same_ledger(row: dict[str, Any], known: dict[str, Any], counted: str) -> None:
    """By all that a closed ledger keeps; another history under its id is neither had nor taken."""
    found = choose(stored(row), archived(known), ArchiveChoice(NOW))
    assert {name: count for name, count in found.counts.items() if count} == {counted: 1}
    places = ("taken", "archived", "other_history")
    assert lists(found) == [[0] if counted == name else [] for name in places]


def test_each_ledger_is_compared_with_its_own_row() -> None:
    """Wherever that stands; places are those of each table."""
    rows = stored(*({"ledger": n, "last_entry": n} for n in (5, 6, 7, 8)), {"ledger": 9, "state": "OPEN"})
    known = archived(*({"ledger": n, "last_entry": n} for n in (8, 99, 6)), {"ledger": 5, "last_entry": 4})
    found = choose(rows, known, ArchiveChoice(NOW))
    assert lists(found) == [[2], [1, 3], [0]]
    assert found.known_rows.tolist() == [2, 0]
    assert +found.counts == {"open": 1, "archived": 2, "other_history": 1, "taken": 1}
    nothing = choose(stored(), known, ArchiveChoice(NOW))
    assert lists(nothing) == [[], [], []]


def test_a_ledger_that_is_there_twice_counts_as_it_was_first() -> None:
    """A task that was tried again writes the same; the order of the others stays."""
    twice = archived(
        {"ledger": 3, "sha256": "a"}, {"ledger": 2}, {"ledger": 3, "sha256": "b"}, {"ledger": 3, "scope": 1}
    )
    kept = drop_repeated(twice)
    assert [(row["scope"], row["ledger"], row["sha256"]) for row in kept.to_pylist()] == [
        (0, 3, "a"), (0, 2, "x"), (1, 3, "x")
    ]  # fmt: skip
    assert drop_repeated(archived()).num_rows == 0


def test_topics_are_those_whose_messages_ledgers_have() -> None:
    """Not those of their cursors or schemas."""
    column = stored({"custom": OWN}, {"custom": OF_CURSOR}, {}, {"custom": OTHER}, {"custom": OWN})["custom"]
    own = "t/n/persistent/a%3Ab"
    assert list_topics(column).to_pylist() == [own, None, None, None, own]
    assert list_topics(column.combine_chunks()).to_pylist() == [own, None, None, None, own]


def test_frames_are_measured_by_records() -> None:
    """A size of 4 bytes, the header, the digest and the payload of each; the largest digest where none is said."""
    rows = stored(
        {}, {"digest": "DUMMY"}, {"digest": None}, {"digest": "HMAC"}, {"scope": 1}, {"last_entry": -1, "length": 0},
        {"length": -1},
    )  # fmt: skip
    each = np.array([4 + 32 + 4, 4 + 32, 4 + 32 + 20, 4 + 32 + 20, 4 + 41 + 4])
    assert measure_frames(rows).tolist() == [*(90 + 10 * each).tolist(), 0, 400]
