"""Held ledgers whose content is in doubt: what a person can choose, what it costs, and which guard comes with it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from reconcile.compare import decide
from reconcile.compare.decide import Case
from reconcile.compare.evidence import BookieEvidence, KnownTables
from reconcile.plan.actions import Passwords, make_ledger_actions
from reconcile.plan.alternatives import (
    FROM_BOOKIES,
    GUARDED,
    GUARDED_BY_NAMES,
    count_readable,
    describe_records,
    list_alternatives,
    list_values,
    offer_alternatives,
    read_numbers,
)
from reconcile.plan.edits import Edits, edit_plan
from reconcile.plan.manifest import read_plan_manifest
from reconcile.rules.holds import HOLD_PASSWORD_SIZE, NAMED_MARK
from recovery.codecs import ledger_metadata
from recovery.codecs.store import Layout
from recovery.dataset import open_dataset
from recovery.infer.refusal import Refusal
from recovery.model import tables
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.recovery.infer.test_reconstruct import KNOWN, NAMES, SECRET, Row, full, header, row, striped
from tests.simulation import simulator
from tests.support.plan_folder import Ledger, write_plan

PASSWORDS: Final = Passwords.from_candidates((simulator.PASSWORD,))
OTHER_KEY: Final = b"x" * 32
HIDING: Final = ("f:3181",)
DOUBTED: Final[Mapping[Refusal, tuple[list[Row], list[str]]]] = {
    Refusal.DELETED_SOMEWHERE: (
        [*full(), row("d:3181", [3], source="log")],
        ["CLOSED, 20 entries, 3/3/2, 0 entries that nobody serves, 0 copies not named"],
    ),
    Refusal.LENGTHS_DIFFER: (
        [*full(2), row("c:3181", range(20), headers=[header(19, length=1)])],
        ["CLOSED, 20 entries, 3/3/1, 0 entries that nobody serves, 0 copies not named"],
    ),
    Refusal.TWO_KEYS: (
        [*full(), row("d:3181", range(2, 7), key=OTHER_KEY)],
        [
            "CLOSED, 20 entries, 3/3/2, 0 entries that nobody serves, 0 copies not named",
            "CLOSED, 7 entries, 1/1/1, 2 entries that nobody serves, 0 copies not named",
        ],
    ),
    Refusal.LOGS_OR_JOURNALS_ONLY: (
        full(source="log"),
        ["CLOSED, 20 entries, 3/3/2, 20 entries that nobody serves, 0 copies not named"],
    ),
    Refusal.CONTRADICTION: (
        [*striped(9)[:2], row("c:3181", [1, 2], groups=[{"first": 5, "last": 4, "size": 1, "period": 0}])],
        ["CLOSED, 9 entries, 2/2/1, 0 entries that nobody serves, 0 copies not named"],
    ),
}


def offer(rows: Sequence[Row], layout: Layout, hiding: Sequence[str] | None = HIDING) -> list[Row]:
    """Return what the plan's action of ledger 7 offers, which holds it."""
    bookies = simulator.bookies(NAMES)
    known = BookieEvidence(live=None, snapshots=(), everywhere=True, looked_at=True)
    case = Case((), bookies, known, SECRET, layout, None, members_known=True)
    nothing = tables.CATALOG_LEDGERS.empty_table()
    beside = KnownTables(
        nothing, (), tables.CATALOG_HISTORY.empty_table(), nothing.select(list(tables.KEY_COLUMNS)), None
    )
    copies = pa.Table.from_pylist(list(rows), schema=tables.COPIES)
    part = decide.decide_range(case, KNOWN, copies, beside, 0)
    assert part.outcomes()["outcome"].to_pylist() == ["held"]
    actions = make_ledger_actions(part.outcomes(), layout, PASSWORDS, b"\0" * HOLD_PASSWORD_SIZE)
    offered, _ = offer_alternatives(part, layout, PASSWORDS, actions, copies, lambda: hiding)
    (action,) = offered.to_pylist()
    others: list[Row] = action["alternatives"]
    return others


@pytest.mark.parametrize("reason", DOUBTED)
def test_a_held_ledger_with_a_reading_offers_it_with_its_cost(reason: Refusal) -> None:
    """By each key that its copies have; what only logs have nobody serves, and of impossible groups none is counted."""
    rows, texts = DOUBTED[reason]
    others = offer(rows, Layout.HIERARCHICAL)
    assert [other["reads_as"] for other in others] == texts
    assert [other["label"] for other in others] == [GUARDED, f"{GUARDED}, other key"][: len(texts)]
    for other in others:
        record = ledger_metadata.decode(other["value"])
        assert (record.state, record.custom) == (LedgerState.CLOSED, ())


def test_without_locks_the_record_names_everybody() -> None:
    """A store without locks never offers one: the choice is guarded by names, or there is none.

    Of two keys there is none: a record keeps the copies of whom it names, and a reader would ask both for one entry.
    """
    rows, _ = DOUBTED[Refusal.DELETED_SOMEWHERE]
    (other,) = offer(rows, Layout.ETCD)
    record: LedgerMetadata = ledger_metadata.decode(other["value"])
    assert other["label"] == GUARDED_BY_NAMES
    assert set(record.segments[0].members) == {*NAMES[:4], *HIDING}
    assert record.custom == ((NAMED_MARK, b"named"),)
    assert offer(rows, Layout.ETCD, None) == []
    assert offer(DOUBTED[Refusal.TWO_KEYS][0], Layout.ETCD) == []
    assert offer(rows, Layout.ETCD, [f"n{n}:3181" for n in range(13)]) == []


@pytest.mark.parametrize(
    ("label", "guard", "by_names"), [(GUARDED, "lock", 0), (GUARDED_BY_NAMES, "named", 1), ("restore", None, 0)]
)
def test_the_choice_brings_its_guard(label: str, guard: str | None, by_names: int, tmp_path: Path) -> None:
    """What is chosen under a guard is written under that one, and counted so."""
    segments = [(0, ["b1", "b2", "b3"])]
    record = LedgerMetadata(
        3, 3, 2, 2, LedgerState.CLOSED, 9, 90, (Segment(0, ("b1", "b2", "b3")),), Digest.CRC32C, b"pw", creator_token=0
    )
    value = ledger_metadata.encode(record)
    plan = write_plan(tmp_path / "plan", [Ledger(3, segments, reason="two_keys", offers={label: value})])
    edit_plan(plan, Edits(choose={LedgerId(0, 3): label}), tmp_path / "chosen")
    chosen = open_dataset(tmp_path / "chosen", "plan")
    (action,) = (row for row in chosen.read("actions").to_pylist() if row["ledger"] == 3)
    assert (action["op"], action["value"], action["guard"]) == ("create", value, guard)
    counts = read_plan_manifest(chosen).counts
    assert (counts.held, counts.guarded, counts.restored) == (0, int(guard is not None), int(guard is None))
    assert counts.guarded_by_names == by_names


def record_of(last: int | None, state: LedgerState = LedgerState.CLOSED, length: int | None = 90) -> LedgerMetadata:
    """Return a record with an end, or without one."""
    segments = (Segment(0, ("b1", "b2", "b3")),)
    return LedgerMetadata(3, 3, 2, 2, state, last, length, segments, Digest.CRC32C, b"pw", creator_token=0)


CLOSED = record_of(9)
OPEN = record_of(None, LedgerState.OPEN, None)


@pytest.mark.parametrize(
    ("record", "words", "readable"),
    [
        (CLOSED, "CLOSED, 10 entries, 3/2/2", 10),
        (CLOSED, "CLOSED, 10 entries, 3/2/2, 4 entries that nobody serves, 0 copies not named", 6),
        (OPEN, "OPEN, no end yet, 3/2/2", 31),
        (OPEN, "OPEN, no end yet, 3/2/2, 4 entries that nobody serves", 27),
    ],
)
def test_an_alternative_reads_up_to_its_end(record: LedgerMetadata, words: str, readable: int) -> None:
    """Or as far as bookies have entries, where it has none; but for those that nobody serves."""
    assert count_readable(ledger_metadata.encode(record), words, 30) == readable


def list_of(rows: int, *readings: tuple[str, list[bytes | None]]) -> list[list[tuple[str, bytes]]]:
    """Return label and bytes of the alternatives of each row."""
    columns = [
        (label, pa.array(values, pa.binary()), pa.array([f"{label} in words" for _ in values]))
        for label, values in readings
    ]
    found = list_alternatives(rows, columns)
    assert found.type == tables.ACTIONS.field("alternatives").type
    assert all(one["reads_as"] == f"{one['label']} in words" for row in found.to_pylist() for one in row)
    return [[(one["label"], one["value"]) for one in row] for row in found.to_pylist()]


def test_each_row_has_the_alternatives_that_it_has_bytes_of() -> None:
    """In the order of the readings; none where there is none, and no row where there are no rows."""
    assert list_of(3, ("a", [b"1", None, b"3"]), ("b", [b"4", None, None])) == [
        [("a", b"1"), ("b", b"4")], [], [("a", b"3")]
    ]  # fmt: skip
    assert list_of(2) == [[], []]
    assert list_of(0, ("a", [])) == list_of(0) == []


def test_numbers_are_read_of_the_ledgers_that_are_asked_for() -> None:
    """Whole numbers of the fields that a record can have another of; nothing where no ledger is asked for."""
    offered = [("length", "7"), ("last_entry", "12"), ("last_entry", "-1"), ("length", "x"), ("digest", "12")]
    rows = pa.table(
        {
            "scope": pa.array([0, 0, 0], pa.int64()),
            "ledger": pa.array([3, 4, 5], pa.int64()),
            "alternatives": [[{"field": field, "value": value} for field, value in offered], [], []],
        }
    )
    wanted = {LedgerId(0, 3), LedgerId(0, 4)}
    assert read_numbers(rows, wanted) == {
        LedgerId(0, 3): {
            "length=7": ("length", 7),
            "last_entry=12": ("last_entry", 12),
            "last_entry=-1": ("last_entry", -1),
        },
        LedgerId(0, 4): {},
    }
    assert read_numbers(rows, set()) == {}


@pytest.mark.parametrize(
    ("op", "base"), [("hold", "bookies"), ("create", "own"), ("replace", "own"), ("hold", None), ("create", None)]
)
def test_a_number_changes_the_record_that_would_be_written(op: str, base: str | None) -> None:
    """Of a hold that is the bookies' own reading; where there is none only what is offered whole can be chosen."""
    hold = ledger_metadata.encode(record_of(3))
    own = ledger_metadata.encode(CLOSED)
    offered = [{"label": "restore", "value": b"whole"}]
    if base == "bookies":
        offered.append({"label": FROM_BOOKIES, "value": own})
    row = {"op": op, "value": own if base == "own" else hold if op == "hold" else None, "alternatives": offered}
    numbers = {"length=7": ("length", 7), "last_entry=4": ("last_entry", 4)}
    found = list_values(row, numbers)
    whole = {str(one["label"]): one["value"] for one in offered}
    if base is None:
        assert found == whole
    else:
        changed = {
            "length=7": ledger_metadata.encode(record_of(9, length=7)),
            "last_entry=4": ledger_metadata.encode(record_of(4)),
        }
        assert found == whole | changed
        assert list_values(row, {"restore": ("length", 7)}) == whole


def test_records_are_told_in_words() -> None:
    """State, entries and quorums; what has no end yet, and what no reader could read."""
    raw = [ledger_metadata.encode(CLOSED), ledger_metadata.encode(OPEN), b"no record", None]
    parsed = ledger_metadata.decode_columns(pa.array(raw, pa.binary()))
    told = ["CLOSED, 10 entries, 3/2/2", "OPEN, no end yet, 3/2/2", "cannot be read", "cannot be read"]
    assert describe_records(parsed).to_pylist() == told
    assert describe_records(pa.table(parsed).slice(1, 2)).to_pylist() == told[1:3]
