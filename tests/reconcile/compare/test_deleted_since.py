"""Ledgers that were probably deleted since a snapshot: who shows it, and what speaks against it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pytest

from reconcile.compare.deleted_since import explain_by_deletion, find_alone, list_kept, mark_deleted
from reconcile.compare.evidence import KnownTables, select_last
from reconcile.compare.three_way import ComparedRange, join_sides
from recovery.dataset import sort_by_key
from recovery.infer.refusal import Refusal
from recovery.model import tables
from recovery.model.metadata import NO_ENTRY, Digest, LedgerMetadata, LedgerState, Segment
from tests.simulation.evidence import Evidence
from tests.simulation.simulator import copy_row

A, B, C, D = MEMBERS = ("a:1", "b:1", "c:1", "d:1")
CLOSED: Final = LedgerMetadata(
    3, 3, 3, 2, LedgerState.CLOSED, 9, 100, (Segment(0, (A, B, C)),), Digest.CRC32C, b"", ctime=1
)  # fmt: skip
OPEN: Final = replace(CLOSED, state=LedgerState.OPEN, last_entry=None, length=None)
CONTRADICTION: Final = {"field": "last_entry", "earlier": "9", "bookies": "5"}


def catalog(*records: LedgerMetadata | None) -> pa.Table:
    """Return CATALOG_LEDGERS of ledgers 1, 2, …; None: a record that cannot be read."""
    rows = []
    for ledger, record in enumerate(records, 1):
        [row] = (Evidence({ledger: record or CLOSED}).catalog() or tables.CATALOG_LEDGERS.empty_table()).to_pylist()
        known = ("bucket", "scope", "ledger", "raw", "version")
        rows.append(row if record else {**{name: row[name] for name in known}, "error": "not a record"})
    return pa.Table.from_pylist(rows, schema=tables.CATALOG_LEDGERS)


def known(*records: LedgerMetadata | None, stored: Sequence[int] = (), alive: Sequence[int] = ()) -> KnownTables:
    """Return what a snapshot knows of ledgers 1, 2, …, and which of these the store has, or had last."""
    rows = catalog(*records)
    of_store = rows.filter(pa.array([ledger in stored for ledger in rows["ledger"].to_pylist()]))
    last = select_last(rows.filter(pa.array([ledger in alive for ledger in rows["ledger"].to_pylist()])))
    return KnownTables(
        sort_by_key(of_store),
        ((sort_by_key(rows), 5),),
        tables.CATALOG_HISTORY.empty_table(),
        rows.slice(0, 0).select(list(tables.KEY_COLUMNS)),
        alive=sort_by_key(last) if alive else None,
    )


@pytest.mark.parametrize(
    ("record", "kept", "hiding", "marked"),
    [
        (CLOSED, (A, B, C), 0, True),
        (CLOSED, (A, B, C), 2, True),
        (CLOSED, (A, B, C), 3, False),
        (CLOSED, (A, B, C), None, False),
        (CLOSED, (A, B), 0, True),
        (CLOSED, (A,), 0, False),
        (replace(CLOSED, ack_quorum=1), (A, B), 0, False),
        (replace(CLOSED, last_entry=0), (A, B, C), 0, True),
        (replace(CLOSED, last_entry=NO_ENTRY, length=0), (A, B, C), 0, False),
        (OPEN, (A, B, C), 0, True),
        (OPEN, (A, B, C), 1, True),
        (OPEN, (A, B, C), 2, False),
        (replace(CLOSED, segments=(Segment(0, (A, B, C)), Segment(5, (D, D, D)))), (A, B), 0, True),
        (replace(CLOSED, segments=(Segment(0, (D, D, D)), Segment(5, (A, B, C)))), (A, B, C), 0, False),
        (None, (A, B, C), 0, False),
    ],
)
def test_what_its_first_members_kept_is_marked(
    record: LedgerMetadata | None, kept: Sequence[str], hiding: int | None, *, marked: bool
) -> None:
    """At most A - 1 members may have lost an entry, and fewer bookies than members may hide it; beside a sure one."""
    assert mark_deleted(catalog(record), kept, hiding).tolist() == [marked]
    is_sure = hiding is not None and hiding < len(MEMBERS) - 1 and len(kept) > 1
    assert mark_deleted(catalog(CLOSED, record), kept, hiding).tolist() == [is_sure, marked]


def test_a_bookie_with_logs_of_a_ledger_kept_its_data() -> None:
    """It counts for the ledger that it has logs of, whoever else kept anything."""
    logs = pa.table({"row": [0, 0, 1], "bookie": [A, B, A]})
    rows = catalog(CLOSED, CLOSED, CLOSED)
    assert mark_deleted(rows, (), 0, logs).tolist() == [True, False, False]
    assert mark_deleted(rows, (C,), 0, logs).tolist() == [True, True, False]
    assert mark_deleted(rows, (), 0, logs.slice(0, 0)).tolist() == [False] * 3


def test_a_bookie_kept_its_data_if_it_serves_a_ledger_whose_record_names_it() -> None:
    """In any segment of any snapshot; logs show nothing, nor do ledgers whose record names others."""
    moved = replace(CLOSED, segments=(Segment(0, (A, B, C)), Segment(5, (A, B, D))))
    rows = [copy_row(1, A, [0]), copy_row(1, B, [0], source="log"), copy_row(2, C, [0]), copy_row(2, D, [0])]
    copies = pa.Table.from_pylist([*rows, copy_row(9, B, [0])], schema=tables.COPIES)
    first = catalog(CLOSED, replace(CLOSED, segments=(Segment(0, (A, B, A)),)))
    assert list_kept(copies, [first]) == {A}
    assert list_kept(copies, [first.slice(0, 0), first, catalog(CLOSED, moved)]) == {A, C, D}
    assert list_kept(copies, []) == frozenset()


def held(ledger: int, **changes: Any) -> dict[str, Any]:
    """Return a row of RECONSTRUCTION: held, for bookies have logs alone."""
    return {
        **dict.fromkeys(("missing", "extra", "scope"), 0), "bucket": copy_row(ledger, A, [])["bucket"],
        "ledger": ledger, "class": "excluded", "outcome": "held", "reason": str(Refusal.LOGS_OR_JOURNALS_ONLY),
        "format": 3, "grades": dict.fromkeys(tables.GRADED, "unknown"), "holders": [], "alternatives": [],
        "contradictions": [CONTRADICTION], **changes,
    }  # fmt: skip


def test_logs_alone_are_explained_by_a_deletion() -> None:
    """Not where a bookie serves an entry, the store has or had it last, or something else is wrong with it."""
    rows = {
        1: held(1),
        2: held(2),
        3: held(3),
        4: held(4, reason=str(Refusal.TWO_HISTORIES)),
        5: held(5, outcome="guarded"),
        6: held(6),
        7: held(7),
        8: held(8, reason=str(Refusal.NO_ENTRIES)),
        9: held(9),
        10: held(10, reason=str(Refusal.LAC_BEYOND_END)),
    }
    copies = [copy_row(ledger, bookie, [0], source="log") for ledger in rows for bookie in (A, B)]
    copies = [row for row in copies if (row["ledger"], row["bookie"]) != (6, B)]
    copies += [copy_row(6, D, [0], source="log"), copy_row(3, C, [0]), copy_row(8, C, [])]
    beside = known(*[CLOSED] * 9, stored=[2], alive=[7])
    made = sort_by_key(pa.Table.from_pylist(list(rows.values()), schema=tables.RECONSTRUCTION))
    found = explain_by_deletion(
        made, pa.Table.from_pylist(copies, schema=tables.COPIES), beside, (), (A, B, C, D), hiding=0
    )
    changed = {row["ledger"]: row for row in found.to_pylist() if row != rows_of(made)[row["ledger"]]}
    assert sorted(changed) == [1, 8, 9]
    assert {(row["outcome"], row["reason"]) for row in changed.values()} == {("held", str(Refusal.DELETED_SINCE))}
    assert all(row["contradictions"] is None for row in changed.values())
    # What was not read completely may have deleted nothing.
    few = explain_by_deletion(made, pa.Table.from_pylist(copies, schema=tables.COPIES), beside, (), (A, C), hiding=0)
    assert few == made
    nothing = replace(beside, snapshots=())
    assert explain_by_deletion(made, pa.Table.from_pylist(copies), nothing, (A, B, C), (A, B, C), 0) is made


def rows_of(rows: pa.Table) -> dict[int, dict[str, Any]]:
    """Return rows by ledger."""
    return {row["ledger"]: row for row in rows.to_pylist()}


def test_what_a_snapshot_alone_has_was_deleted_if_its_members_kept_their_data() -> None:
    """Not what the store had last; a record that cannot be read says nothing."""
    beside = known(CLOSED, CLOSED, None, OPEN, CLOSED, alive=[2], stored=[5])
    part: ComparedRange = join_sides(tables.RECONSTRUCTION.empty_table(), beside)

    def list_ledgers(kept: Sequence[str], hiding: int | None, given: KnownTables) -> list[int]:
        places = find_alone(part, given, kept, hiding)
        return sorted(part.compared.sides["ledger"].take(pa.array(places)).to_pylist())

    assert list_ledgers((A, B, C), 0, beside) == [1, 4]
    assert list_ledgers((A, B, C), 0, replace(beside, alive=None)) == [1, 2, 4]
    assert list_ledgers((A, B, C), 2, beside) == [1]
    assert list_ledgers((), 0, beside) == []
    empty = join_sides(tables.RECONSTRUCTION.empty_table(), known(CLOSED, stored=[1]))
    assert find_alone(empty, beside, (A, B, C), 0).tolist() == []
