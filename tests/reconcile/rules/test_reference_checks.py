"""What upper layers know of ledger 7, of which bookies hold 0 to 9: what is said, how grave it is, who owns what."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from backends.protocols import Versioned
from reconcile.compare.single_ledger import as_catalog_row
from reconcile.findings.categories import Category
from reconcile.findings.table import FindingRun
from reconcile.rules import reference_checks
from recovery.infer.references import SCHEMA
from recovery.model import metadata as md
from recovery.model import tables
from recovery.model.ids import LedgerId
from tests.reconcile.rules.test_id_reuse import copies, stored
from tests.simulation import simulator

RUN = FindingRun("test", datetime(2030, 1, 1, tzinfo=UTC))
BUCKET = simulator.copy_row(7, "a:1", [])["bucket"]


def reference(**known: Any) -> pa.Table:
    """What an upper layer knows of ledger 7."""
    row = {"bucket": BUCKET, "scope": 0, "ledger": 7, "deleted": False, "owner": "topic", "source": "file"}
    return pa.Table.from_pylist([row | known], schema=SCHEMA)


def shown(**known: Any) -> pa.Table:
    """What was reconstructed of ledger 7."""
    row = dict.fromkeys(tables.RECONSTRUCTION.names) | {
        "bucket": BUCKET, "scope": 0, "ledger": 7, "class": "clean", "outcome": "restored", "missing": 0, "extra": 0,
        "holders": [], "alternatives": [], "grades": dict.fromkeys(tables.GRADED, "unknown"),
        "last_entry": 9, "length": 90, "lac_low": 8, **known,
    }  # fmt: skip
    return pa.Table.from_pylist([row], schema=tables.RECONSTRUCTION)


NO_RECORD = tables.CATALOG_LEDGERS.empty_table()
HELD = copies({"a:1": set(range(10))})


@pytest.mark.parametrize(
    ("known", "record", "seen", "severity"),
    [
        ({"last_entry": 9}, NO_RECORD, True, None),
        ({"last_entry": 9, "length": 90}, NO_RECORD, True, None),
        ({"last_entry": 9, "length": 90}, stored(), True, None),
        ({"last_entry": 9}, stored(), True, None),
        ({"last_entry": 9, "deleted": None}, stored(last_entry=8), False, "critical"),
        # What nobody can read says nothing.
        ({"last_entry": 9}, as_catalog_row(Versioned(b"no record", 0), LedgerId(0, 7)), True, None),
        ({"last_entry": 10}, NO_RECORD, True, "critical"),
        ({"last_entry": 10}, NO_RECORD, False, "warning"),
        ({"last_entry": 8}, NO_RECORD, True, None),
        ({"last_entry": 7}, NO_RECORD, False, "critical"),
        ({"last_entry": 9, "length": 91}, NO_RECORD, True, "warning"),
        # Of another end than what is shown, the length is another one.
        ({"last_entry": 8, "length": 91}, NO_RECORD, True, None),
        ({"last_entry": 9, "length": 90}, stored(length=91), True, "warning"),
        ({"last_entry": 8, "length": 80}, stored(length=91), True, "warning"),
        ({"last_entry": 8}, stored(), True, "warning"),
        ({"last_entry": 9}, stored(last_entry=8), False, "critical"),
        ({"last_entry": 9}, stored(state=md.LedgerState.OPEN, last_entry=None, length=None), True, None),
        ({"last_entry": 7, "deleted": True}, stored(), True, None),
        ({}, stored(), True, None),
    ],
)
def test_where_a_reference_differs(
    known: dict[str, Any], record: pa.Table, *, seen: bool, severity: str | None
) -> None:
    """Ends and lengths against what bookies hold, what a LAC shows and what the store's closed record says."""
    rows = reference_checks.findings(
        reference(**known), shown(), HELD, record, RUN, looked_at=True, seen=seen
    ).to_pylist()
    found = [row for row in rows if row["category"] == Category.REFERENCE_DIFFERS]
    assert [row["severity"] for row in found] == ([severity] if severity else [])
    assert all(bool(row["unknowns"]) != seen for row in found)
    # Each side says where it is from: what an upper layer says, by its own file.
    sources = {(one["side"] == "reference", one["source"]) for row in found for one in row["evidence"]}
    assert sources == ({(True, "file"), (False, "recover")} if severity else set())


@pytest.mark.parametrize(
    ("known", "looked_at", "seen", "severity"),
    [
        ({"last_entry": 0}, True, True, "critical"),
        ({"last_entry": 0}, True, False, "warning"),
        ({"last_entry": -1}, True, True, "warning"),
        ({"last_entry": 0}, False, True, None),
        ({"last_entry": 0, "deleted": True}, True, True, None),
    ],
)
def test_what_nothing_has(known: dict[str, Any], *, looked_at: bool, seen: bool, severity: str | None) -> None:
    """A ledger that only an upper layer names is lost where it had entries and all bookies were looked at."""
    nothing = (tables.RECONSTRUCTION.empty_table(), tables.COPIES.empty_table(), NO_RECORD)
    rows = reference_checks.findings(reference(**known), *nothing, RUN, looked_at=looked_at, seen=seen).to_pylist()
    expected = [(str(Category.REFERENCE_NOT_FOUND), severity)] if severity else []
    assert [(row["category"], row["severity"]) for row in rows] == expected


@pytest.mark.parametrize(
    ("held", "record", "said"),
    [(HELD, NO_RECORD, ["yes", "no"]), (HELD.slice(0, 0), stored(), ["no", "yes"]), (HELD, stored(), ["yes", "yes"])],
)
def test_what_its_owner_deleted_and_something_still_has(held: pa.Table, record: pa.Table, said: list[str]) -> None:
    """The finding says who has it."""
    rows = shown() if held.num_rows else shown().slice(0, 0)
    [found] = reference_checks.findings(
        reference(deleted=True), rows, held, record, RUN, looked_at=True, seen=True
    ).to_pylist()
    assert found["category"] == Category.DELETED_BY_OWNER
    evidence = {(one["side"], one["field"]): one["value"] for one in found["evidence"]}
    assert [evidence["bookies", "have it"], evidence["store", "has it"]] == said


def test_owners_are_added_in_the_order_of_the_ledgers() -> None:
    """Named with an owner, named by nobody, named without one; where nobody was asked, nothing is known."""
    ids = [LedgerId(0, number) for number in (7, 8, 9)]
    keys = pa.table(
        {name: [getattr(one, name) for one in ids] for name in ("bucket", "scope", "ledger")},
        schema=pa.schema([SCHEMA.field(name) for name in ("bucket", "scope", "ledger")]),
    )
    known = pa.concat_tables([
        reference(bucket=one.bucket, ledger=one.ledger, owner=owner)
        for one, owner in ((ids[2], None), (ids[0], "topic"))
    ])  # fmt: skip
    named = reference_checks.add_owners(keys, known)
    assert named["referenced"].to_pylist() == [True, False, True]
    assert named["owner"].to_pylist() == ["topic", None, None]
    nobody = reference_checks.add_owners(keys, None)
    assert nobody.schema.equals(named.schema)
    assert nobody.select(["referenced", "owner"]).to_pylist() == [{"referenced": None, "owner": None}] * 3
    assert nobody["ledger"].to_pylist() == [7, 8, 9]


def test_what_all_sides_know_is_the_evidence() -> None:
    """Each number of each side, nothing where a side does not know it; who says so by its own file."""

    def tell(record: pa.Table, held: pa.Table, **known: Any) -> list[tuple[str, str, str]]:
        [row] = reference_checks.findings(
            reference(**known), shown(), held, record, RUN, looked_at=True, seen=True
        ).to_pylist()
        return [(one["side"], one["field"], one["value"]) for one in row["evidence"]]

    assert tell(stored(), HELD, last_entry=10, length=91) == [
        ("reference", "owner", "topic"),
        ("reference", "last_entry", "10"),
        ("reference", "length", "91"),
        ("bookies", "last entry held", "9"),
        ("bookies", "largest LAC", "8"),
        ("bookies", "length", "90"),
        ("store", "last_entry", "9"),
        ("store", "length", "90"),
    ]
    assert tell(NO_RECORD, HELD.slice(0, 0), last_entry=0)[1:] == [
        ("reference", "last_entry", "0"),
        ("reference", "length", "nothing"),
        ("bookies", "last entry held", "nothing"),
        ("bookies", "largest LAC", "8"),
        ("bookies", "length", "90"),
        ("store", "last_entry", "nothing"),
        ("store", "length", "nothing"),
    ]


def test_an_empty_end_is_an_end() -> None:
    """A layer that knows of no entry disagrees with a record that has some, and not with bookies that have none."""
    for known, record, severity in (({"last_entry": -1}, stored(), "critical"), ({"last_entry": -1}, NO_RECORD, None)):
        rows = reference_checks.findings(
            reference(**known), shown(lac_low=-1 if record is NO_RECORD else 8), HELD.slice(0, 0), record, RUN,
            looked_at=True, seen=True,
        ).to_pylist()  # fmt: skip
        assert [row["severity"] for row in rows] == ([severity] if severity else [])


def test_who_deleted_it_is_said() -> None:
    """By what the layer wrote, or that it says so."""
    for known, text in (({}, "as it says"), ({"deletion": "trimmed"}, "trimmed")):
        [row] = reference_checks.findings(
            reference(deleted=True, **known), shown(), HELD, NO_RECORD, RUN, looked_at=True, seen=True
        ).to_pylist()
        assert [(one["side"], one["field"], one["value"], one["source"]) for one in row["evidence"]] == [
            ("reference", "owner", "topic", "file"),
            ("reference", "deleted", text, "file"),
            ("bookies", "have it", "yes", "recover"),
            ("store", "has it", "no", "recover"),
        ]
        assert row["unknowns"] == ["whether it was wanted"]


def test_ledgers_that_nobody_refers_to_are_passed_over() -> None:
    """Others of the range are matched by their ids, in whatever rows they stand."""
    ids = [LedgerId(0, number) for number in (5, 7)]
    rows = [shown(bucket=one.bucket, ledger=one.ledger, last_entry=n, lac_low=n) for n, one in enumerate(ids, 8)]
    held = pa.concat_tables([copies({"a:1": set(range(9))}).set_column(0, "bucket", [[ids[0].bucket]])
                             .set_column(2, "ledger", [[5]]).cast(tables.COPIES), HELD])  # fmt: skip
    agrees = reference(bucket=ids[0].bucket, ledger=5, last_entry=8, owner="other", source="other file")
    [row] = reference_checks.findings(
        pa.concat_tables([agrees, reference(last_entry=10)]),
        pa.concat_tables(rows),
        held,
        NO_RECORD,
        RUN,
        looked_at=True,
        seen=True,
    ).to_pylist()
    values = {(one["side"], one["field"]): one["value"] for one in row["evidence"]}
    assert (row["ledger"], values["bookies", "last entry held"], values["bookies", "largest LAC"]) == (7, "9", "9")
    assert (values["reference", "owner"], row["evidence"][0]["source"]) == ("topic", "file")


def test_what_cannot_be_read_of_upper_layers_is_told() -> None:
    """Records by their paths, and parts of a store that are missing."""
    rows = list(reference_checks.unreadable([("/managed-ledgers/t", "cut short")], ["a gap of txn 5"]))
    assert [(row.category, row.subject, row.statements[0].field, row.statements[0].value) for row in rows] == [
        (Category.REFERENCE_UNREADABLE, "/managed-ledgers/t", "record", "cut short"),
        (Category.REFERENCE_UNREADABLE, "a gap of txn 5", "store", "a gap"),
    ]
