"""What an upper layer knows of its ledgers: read from files, supplied to a reconstruction, and checked."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reconcile.references import read, read_listing
from recovery.errors import InputError
from recovery.infer import facts
from recovery.infer.ledger_row import LedgerRow, SegmentRow, read_rows
from recovery.infer.prior import Prior, ShapeCounts
from recovery.infer.reconstruct import InferOptions, reconstruct
from recovery.infer.references import SCHEMA, StatedFacts, check_row, select_stated
from recovery.infer.refusal import Refusal
from recovery.model import tables
from recovery.model.ids import LedgerId
from tests.simulation import simulator

NAMES = ("a:3181", "b:3181", "c:3181")


def given(folder: Path, *lines: dict[str, Any]) -> pa.Table:
    """Write references as JSON lines and read them."""
    path = folder / "references.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read(path)


def recovered(references: pa.Table, more: int = 0, read_from: int = 17) -> dict[str, Any]:
    """Reconstruct ledger 7: three bookies hold 0 to 19, the LAC is 15; so many bytes were sent between 17 and 18.

    Headers of the last three entries were read, and of the one that they are read from.
    """
    headers = [
        {"entry": at, "lac": 15, "length": 10 * (at + 1) + (at > 17) * more, "size": 46, "digest": "CRC32C"}
        for at in sorted({read_from, 17, 18, 19})
    ]
    rows = [simulator.copy_row(7, name, range(20), headers=headers) for name in NAMES]
    copies = pa.Table.from_pylist(rows, schema=tables.COPIES)
    prior = Prior.build(ShapeCounts(), {(3, 3, 2): 10})
    damage = tables.DAMAGE.empty_table()
    found = reconstruct(copies, simulator.bookies(NAMES), damage, prior, InferOptions(), None, references)
    (row,) = found.to_pylist()
    return dict(row)


def test_a_last_entry_that_bookies_allow_closes_the_ledger(tmp_path: Path) -> None:
    """Its length is read in the header there, or is the reference's; what bookies have above it is an alternative.

    So is the length with what is above: some writers count it when they close (DEFERRED_SYNC, ids of their own).
    """
    found = recovered(given(tmp_path, {"ledger": 7, "last_entry": 17, "owner": "a topic"}))
    assert (found["last_entry"], found["length"], found["outcome"]) == (17, 180, "restored")
    assert found["grades"]["last_entry"] == found["grades"]["length"] == "reference"
    assert [(a["field"], a["value"]) for a in found["alternatives"]] == [("last_entry", "19"), ("length", "200")]
    unordered = recovered(given(tmp_path, {"ledger": 7, "last_entry": 17}), more=5)
    assert unordered["length"] == 185
    assert [a["value"] for a in unordered["alternatives"] if a["field"] == "length"] == ["180", "205"]
    wrong = recovered(given(tmp_path, {"ledger": 7, "last_entry": 17, "length": 190}), more=5)
    assert wrong["length"] == 185
    assert [a["value"] for a in wrong["alternatives"] if a["field"] == "length"] == ["190", "180", "205"]
    found = recovered(given(tmp_path, {"ledger": 7, "last_entry": 15, "length": 160}))
    assert (found["last_entry"], found["length"]) == (15, 160)
    assert [(a["field"], a["value"]) for a in found["alternatives"]] == [("last_entry", "19")]
    assert recovered(given(tmp_path, {"ledger": 7, "last_entry": 15}))["last_entry"] == 19


@pytest.mark.parametrize(("length", "is_believed"), [(29, False), (30, True), (160, True), (1, False), (0, True)])
def test_a_length_below_that_of_an_earlier_entry_is_not_believed(
    length: int, tmp_path: Path, *, is_believed: bool
) -> None:
    """Then nothing says how long the ledger was there, and the end is listed; 0 is what a recovery may have counted."""
    found = recovered(given(tmp_path, {"ledger": 7, "last_entry": 15, "length": length}), read_from=2)
    assert (found["last_entry"], found["length"]) == ((15, length) if is_believed else (19, 200))
    ends = [a["value"] for a in found["alternatives"] if a["field"] == "last_entry"]
    assert ends == (["19"] if is_believed else ["15..18"])


def test_a_last_entry_that_bookies_contradict_is_no_end(tmp_path: Path) -> None:
    """Above all that is held: guarded; below what was acknowledged, it is an alternative; so is a length."""
    found = recovered(given(tmp_path, {"ledger": 7, "last_entry": 20}))
    assert (found["outcome"], found["reason"]) == ("guarded", Refusal.LAC_BEYOND_END)
    found = recovered(given(tmp_path, {"ledger": 7, "last_entry": 14}))
    assert found["last_entry"] == 19
    assert ("last_entry", "14") in [(a["field"], a["value"]) for a in found["alternatives"]]
    found = recovered(given(tmp_path, {"ledger": 7, "last_entry": 19, "length": 7}))
    assert (found["length"], [(a["field"], a["value"]) for a in found["alternatives"]]) == (200, [("length", "7")])


def test_a_deleted_ledger_stays_deleted(tmp_path: Path) -> None:
    """A delete wins over data, also where another line of the same ledger says nothing of it."""
    references = given(tmp_path, {"ledger": 7, "last_entry": 19}, {"ledger": 7, "deleted": True})
    assert references.num_rows == 1
    found = recovered(references)
    assert (found["outcome"], found["reason"]) == ("deleted", Refusal.DELETED_BY_REFERENCE)
    assert recovered(given(tmp_path, {"ledger": 8, "deleted": True}))["outcome"] == "restored"


def test_parquet_says_the_same_as_lines(tmp_path: Path) -> None:
    """The format is told by content; an empty file names nothing."""
    lines = given(tmp_path, {"ledger": 9, "deleted": True}, {"ledger": 7, "last_entry": 19})
    pq.write_table(pa.table({"ledger": [7, 9], "last_entry": [19, None], "deleted": [None, True]}), tmp_path / "r")
    assert read(tmp_path / "r").drop_columns("source").equals(lines.drop_columns("source"))
    (tmp_path / "empty").write_text("")
    assert read(tmp_path / "empty").equals(SCHEMA.empty_table())


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "7\n",
        '{"owner": "x"}\n',
        '{"ledger": "seven"}\n',
        '{"ledger": null}\n',
        '{"ledger": 7, "deleted": "maybe"}\n',
    ],
)
def test_what_is_no_reference_is_one_clear_error(text: str, tmp_path: Path) -> None:
    """It names the file and says what to give."""
    path = tmp_path / "bad"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(path) in str(caught.value)
    with pytest.raises(InputError):
        read(tmp_path / "absent")


@pytest.mark.parametrize("name", ["json", "parquet"])
def test_a_file_says_when_it_was_listed(name: str, tmp_path: Path) -> None:
    """On a line without a ledger, which names none, or on any; the earliest counts; without a zone it is UTC."""
    listed: list[dict[str, Any]] = [
        {"listed": "2026-01-31T12:00:00.250Z"},
        {"ledger": 7, "listed": "2026-01-31T13:30:00+01:00"},
    ]
    cases: tuple[tuple[list[dict[str, Any]], list[int], int | None], ...] = (
        (listed, [7], 1_769_860_800_250),
        ([{"listed": "2026-01-31T12:00:00"}], [], 1_769_860_800_000),
        (listed[1:], [7], 1_769_862_600_000),
        ([{"ledger": 7}], [7], None),
    )
    for rows, ledgers, at_ms in cases:
        path = tmp_path / f"references.{name}"
        if name == "json":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        else:
            names = dict.fromkeys(key for row in rows for key in row)
            pq.write_table(pa.table({key: [row.get(key) for row in rows] for key in names}), path)
        table, found = read_listing(path)
        assert (table["ledger"].to_pylist(), found) == (ledgers, at_ms)


def test_a_time_that_is_none_is_refused(tmp_path: Path) -> None:
    """And a line that has neither a ledger nor a time still is no line."""
    path = tmp_path / "references.jsonl"
    for line, problem in (('{"listed": "yesterday"}', "not a time"), ('{"listed": 12}', "not a time")):
        path.write_text(line + '\n{"ledger": 1}\n')
        with pytest.raises(InputError, match=problem):
            read(path)
    path.write_text('{"listed": "2026-01-31T12:00:00Z", "ledger": 1}\n{"owner": "x"}\n')
    with pytest.raises(InputError, match="without a `ledger`"):
        read(path)


def check(
    last: int | None, stated: int | None = None, *, lac: int = 15, size: int = 10, end: int = 19, **columns: Any
) -> LedgerRow:
    """Check a row that bookies show to end at `end`, of 20 entries of `size` bytes, by a reference of both."""
    headers = [
        {"entry": at, "lac": min(lac, at - 1), "length": size * (at + 1), "size": 36 + size, "digest": "CRC32C"}
        for at in (0, 17, 18, 19)
    ]
    rows = [simulator.copy_row(7, name, range(20), headers=headers) for name in NAMES]
    copies, bookies = pa.Table.from_pylist(rows, schema=tables.COPIES), simulator.bookies(NAMES)
    prior = Prior.build(ShapeCounts(), {(3, 3, 2): 10})
    [row] = read_rows(reconstruct(copies, bookies, tables.DAMAGE.empty_table(), prior, InferOptions()))
    row = replace(row, **({"last_entry": end, "length": size * (end + 1)} | columns))
    return check_row(facts.read(copies, bookies), 0, row, StatedFacts(last, stated, deleted=None))


def list_others(row: LedgerRow) -> list[tuple[str, str]]:
    """Return the alternatives of a row that are no shapes."""
    return [(other.field, other.value) for other in row.alternatives if "/" not in other.value]


@pytest.mark.parametrize(
    ("last", "lac", "end", "taken"),
    [
        (14, 15, 19, False), (15, 15, 19, True), (17, 15, 19, True), (19, 15, 19, True), (20, 15, 19, False),
        # Above an end that is below some entries that are held; and at, or before, the first one.
        (18, 15, 17, False), (17, 15, 17, True), (0, -1, 19, True), (-1, -1, 19, False),
    ],
)  # fmt: skip
def test_between_a_lac_and_the_end_a_reference_ends_the_ledger(last: int, lac: int, end: int, *, taken: bool) -> None:
    """Else it is an alternative; or the ledger is guarded, where it is above all that is held."""
    given_length = None if last in (0, 17, 18, 19) else 10 * (last + 1)
    found = check(last, given_length, lac=lac, end=end)
    if taken:
        assert (found.last_entry, found.length, found.acked_high) == (last, 10 * (last + 1), last)
        assert (found.grades["last_entry"], found.grades["length"]) == ("reference", "reference")
        assert (("last_entry", str(end)) in list_others(found)) == (last < end)
        return
    assert (found.last_entry, found.length) == (end, 10 * (end + 1))
    assert (found.outcome == "guarded") == (last > 19)
    assert (found.grades["last_entry"], found.grades["length"]) == ("inferred", "inferred")
    assert (("last_entry", str(last)) in list_others(found)) == (last <= 19)


def test_what_was_seen_to_end_is_inferred_where_an_upper_layer_knows_more() -> None:
    """And where it does not, the grade is the reference's."""
    seen = dict.fromkeys(tables.GRADED, "observed")
    assert check(20, grades=seen).grades == {**seen, "last_entry": "inferred", "length": "inferred"}
    assert check(19, grades=seen).grades == {**seen, "last_entry": "reference", "length": "reference"}


@pytest.mark.parametrize(
    ("last", "length", "columns", "wanted", "others"),
    [
        (17, None, {}, 180, ["200"]),
        (17, 180, {}, 180, []),
        (17, 190, {}, 180, ["190", "200"]),
        (16, 170, {}, 170, []),
        (19, None, {}, 200, []),
        (19, 200, {}, 200, []),
        (19, 7, {}, 200, ["7"]),
        # The row's own, however it was read.
        (19, None, {"length": 777}, 777, []),
        (19, 200, {"length": 777}, 777, ["200"]),
        (19, 200, {"length": -1}, 200, []),
        (17, None, {"length": 777}, 180, ["777"]),
    ],
)
def test_which_length_goes_with_the_end_of_a_reference(
    last: int, length: int | None, columns: dict[str, Any], wanted: int, others: list[str]
) -> None:
    """What the headers show, else the reference's; others are listed where both are known and differ."""
    found = check(last, length, **columns)
    assert (found.last_entry, found.length) == (last, wanted)
    assert [value for field, value in list_others(found) if field == "length"] == others


def test_empty_entries_have_a_length() -> None:
    """Of 0 bytes, at the end, and before it; with a header that no one read there is none."""
    ended = [check(last, size=0) for last in (17, 19)]
    assert [(row.last_entry, row.length) for row in ended] == [(17, 0), (19, 0)]
    assert check(15, size=0).grades["last_entry"] == "inferred"


def test_segments_behind_the_end_of_a_reference_go() -> None:
    """One that begins at the last entry stays."""
    segments = tuple(SegmentRow(first, first, NAMES, (False,) * 3) for first in (0, 17, 18))
    for last, kept in ((17, [0, 17]), (18, [0, 17, 18]), (19, [0, 17, 18])):
        found = check(last, segments=segments)
        assert [segment.first for segment in found.segments or ()] == kept


def test_what_has_no_end_or_a_record_of_its_own_is_left_as_it_is() -> None:
    """Left open, guarded, held, or as a snapshot has it."""
    left: list[dict[str, Any]] = [
        {"last_entry": None, "length": None, "state": "OPEN"},
        {"outcome": "guarded"},
        {"outcome": "held", "last_entry": None},
        {"raw": b"record"},
    ]
    for columns in left:
        assert check(17, **columns) == check(None, **columns)


def test_only_what_somebody_said_was_deleted_is_stated() -> None:
    """Not what only a store's history shows; nor what no reference states."""
    rows: list[dict[str, Any]] = [
        {"ledger": number, "bucket": 0, "scope": 0, "deleted": deleted, "deletion": deletion}
        for number, (deleted, deletion) in enumerate(
            [(True, None), (True, "session 5"), (False, None), (None, None), (None, "session 5")]
        )
    ]
    assert select_stated(pa.Table.from_pylist(rows, schema=SCHEMA))["ledger"].to_pylist() == [0]
    assert select_stated(None).num_rows == 0


@pytest.mark.parametrize(
    ("tombstone", "reason"),
    [(None, Refusal.DELETED_BY_REFERENCE), ("2026 by me", Refusal.DELETED_BY_TOMBSTONE)],
)
def test_a_tombstone_is_called_one(tombstone: str | None, reason: Refusal) -> None:
    """A delete of an upper layer is none."""
    row = {"ledger": 7, "bucket": LedgerId(0, 7).bucket, "scope": 0, "deleted": True, "tombstone": tombstone}
    found = recovered(pa.Table.from_pylist([row], schema=SCHEMA))
    assert (found["outcome"], found["reason"]) == ("deleted", reason)
