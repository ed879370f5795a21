"""Held ledgers as an offer to a person: which copies are read, and by which of two keys."""

from typing import Any

import pyarrow as pa
import pytest

from reconcile.compare.doubted_readings import read_doubted
from recovery.infer.refusal import Refusal
from recovery.model import tables
from tests.simulation.simulator import copy_row

FIRST, SECOND = b"1" * 32, b"2" * 32


def row(ledger: int, outcome: str, reason: Refusal | None = None) -> dict[str, Any]:
    """Return a row of RECONSTRUCTION."""
    return {
        **dict.fromkeys(("missing", "extra", "scope"), 0), "bucket": copy_row(ledger, "a:1", [])["bucket"],
        "ledger": ledger, "class": "excluded", "outcome": outcome, "reason": reason and str(reason), "format": 3,
        "grades": dict.fromkeys(tables.GRADED, "unknown"), "holders": [], "alternatives": [],
    }  # fmt: skip


def read(reasons: dict[int, Refusal | None], keys: dict[int, list[bytes | None]]) -> list[list[tuple[int, str]]]:
    """Return which rows of copies are read first, and which then: of each ledger bookie after bookie has these keys.

    Ledgers without a reason are restored. What is read gives a row for each ledger that has copies there.
    """
    copies = [
        copy_row(ledger, f"b{number}:1", [0]) | {"key": key}
        for ledger, some in keys.items()
        for number, key in enumerate(some)
    ]
    rows = [row(ledger, "held" if reason else "restored", reason) for ledger, reason in reasons.items()]
    asked: list[list[tuple[int, str]]] = []

    def reconstruct(own: pa.Table) -> pa.Table:
        asked.append(sorted(zip(own["ledger"].to_pylist(), own["bookie"].to_pylist(), strict=True)))
        outcomes = {1: "restored", 2: "guarded"}
        made = [row(ledger, outcomes.get(ledger, "held")) for ledger in sorted(set(own["ledger"].to_pylist()))]
        return pa.Table.from_pylist(made, schema=tables.RECONSTRUCTION)

    read_rows = read_doubted(
        pa.Table.from_pylist(rows, schema=tables.RECONSTRUCTION),
        pa.Table.from_pylist(copies, schema=tables.COPIES),
        reconstruct,
    )
    for some, part in zip(asked, read_rows, strict=False):
        assert part["ledger"].to_pylist() == sorted({ledger for ledger, _ in some if ledger in (1, 2)})
    assert all(part.num_rows == 0 for part in read_rows) or asked
    return asked


def test_held_ledgers_are_read_by_what_bookies_show() -> None:
    """All their copies, whatever their key where only one key is doubted; of those that cannot be read nothing."""
    keys: dict[int, list[bytes | None]] = {1: [FIRST, SECOND], 2: [FIRST], 3: [FIRST], 9: [FIRST]}
    read_of = read({1: Refusal.TWO_HISTORIES, 2: None, 3: Refusal.TWO_HISTORIES}, keys)
    assert read_of == [[(1, "b0:1"), (1, "b1:1"), (3, "b0:1")], []]


@pytest.mark.parametrize(
    ("keys", "others"),
    [
        ([FIRST, SECOND, FIRST], ["b1:1"]),
        ([SECOND, FIRST, FIRST], ["b0:1"]),
        ([FIRST, SECOND, SECOND, None], ["b0:1"]),
        ([None, None, None, FIRST, SECOND], ["b4:1"]),
        ([SECOND, FIRST, None], ["b1:1"]),
    ],
    ids=["most have the first", "most have the last", "one has none", "most have none", "as many have either"],
)
def test_of_two_keys_the_one_that_more_bookies_have_is_read_first(keys: list[bytes | None], others: list[str]) -> None:
    """Rows without a key go with it; the other key is read alone, of ledgers with two keys alone."""
    first, other = read(
        {1: Refusal.TWO_KEYS, 2: Refusal.TWO_KEYS, 3: Refusal.TWO_HISTORIES},
        {3: [FIRST, SECOND, SECOND], 1: keys, 2: [SECOND, SECOND, FIRST]},
    )
    assert other == [*((1, name) for name in others), (2, "b2:1")]
    rest = [(1, f"b{number}:1") for number in range(len(keys)) if f"b{number}:1" not in others]
    assert first == [*rest, (2, "b0:1"), (2, "b1:1"), (3, "b0:1"), (3, "b1:1"), (3, "b2:1")]


def test_without_a_held_ledger_nothing_is_read() -> None:
    """Nor where bookies have nothing of it."""
    assert read({1: None}, {1: [FIRST]}) == []
    assert read({1: Refusal.TWO_KEYS}, {2: [FIRST]}) == []
