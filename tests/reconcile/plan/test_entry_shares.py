"""What becomes of the entries of lost ledgers, counted."""

from typing import Any

import pyarrow as pa

from reconcile.plan.entry_shares import add_highest, count_entries
from recovery.model import tables

NONE = dict.fromkeys(("restored", "guarded", "held", "lost"), 0)


def rows(*ledgers: dict[str, Any]) -> pa.Table:
    """Return rows of RECONSTRUCTION; what is not said is null."""
    free = pa.schema([pa.field(field.name, field.type) for field in tables.RECONSTRUCTION])
    numbered = [{"scope": 0, "ledger": n, **ledger} for n, ledger in enumerate(ledgers)]
    return pa.Table.from_pylist(numbered, schema=free)


def count(*ledgers: dict[str, Any]) -> dict[str, int]:
    """Return the shares that are not 0."""
    return {share: number for share, number in count_entries(rows(*ledgers)).items() if number}


def test_nothing_is_counted_of_no_ledgers() -> None:
    """Each share is there, and is 0."""
    assert count_entries(rows()) == NONE


def test_each_entry_has_one_share() -> None:
    """Restored up to the end, guarded likewise, held as far as bookies have any; other outcomes have none."""
    assert count({"outcome": "restored", "last_entry": 9, "highest": 12}) == {"restored": 10}
    assert count({"outcome": "guarded", "last_entry": None, "highest": 4}) == {"guarded": 5}
    assert count({"outcome": "held", "last_entry": 9, "highest": 12}) == {"held": 13}
    assert count({"outcome": "held", "highest": None}, {"outcome": "held", "highest": 0}) == {"held": 1}
    assert count({"outcome": "waiting", "last_entry": 9, "highest": 12}) == {}
    assert count({"outcome": "restored"}) == {}


def test_what_was_confirmed_above_the_end_is_lost_where_the_end_was_cut_for_a_reason() -> None:
    """The record says so: up to the last add confirmed. Where it was not cut, or goes beyond that, nothing is."""
    cut = {"outcome": "restored", "last_entry": 9, "lac_low": 14, "reason": "hole"}
    assert count(cut) == {"restored": 10, "lost": 5}
    assert count(cut | {"reason": None}) == {"restored": 10}
    assert count(cut | {"lac_low": 3}) == {"restored": 10}
    assert count(cut | {"lac_low": None}) == {"restored": 10}
    assert count(cut | {"outcome": "guarded"}) == {"guarded": 10}


def test_the_highest_entry_of_each_ledger_is_added() -> None:
    """Of all copies of it; of one without an entry it is not known, and entry 0 is one."""
    copies = pa.table(
        {
            "scope": pa.array([0, 0, 0, 0, 7], pa.int64()),
            "ledger": pa.array([0, 0, 1, 2, 0], pa.int64()),
            "last": pa.array([3, 5, 0, None, 99], pa.int64()),
        }
    )
    assert add_highest(rows({}, {}, {}, {}), copies)["highest"].to_pylist() == [5, 0, None, None]
    assert add_highest(rows(), copies).num_rows == 0
