"""Each class of a drill by its bound: what is one entry short, one field off, or not to be told."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from reconcile.check.records.drill import DrillRange, judge_drill, read_written
from reconcile.rules.segments.copies import Sight
from recovery.codecs import ledger_metadata
from recovery.dataset import sort_by_key
from recovery.model import tables
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.reconcile.rules.test_copies_properties import NOTHING_HIDDEN, Ledger, make_copies, make_stored
from tests.support.inventories import fill_row

PAIR = [(0, ["bk0", "bk1"])]
ALL = {"bk0": set(range(10)), "bk1": set(range(10))}
SEEN = Sight({f"bk{n}": None for n in range(4)}, frozenset(), NOTHING_HIDDEN)
COLLECTED = datetime(2026, 1, 1, tzinfo=UTC)


def encode(
    last: int, members: tuple[str, ...] = ("bk0", "bk1"), password: bytes = b"pw", digest: str = "CRC32C"
) -> bytes:
    """A record of a closed ledger, as BookKeeper has it."""
    return ledger_metadata.encode(
        LedgerMetadata(
            3, len(members), 2, 2, LedgerState.CLOSED, last, 100, (Segment(0, members),), Digest(digest), password
        )
    )


def judge(
    held: dict[str, set[int]],
    *,
    outcome: str | None = "restored",
    written: bytes | None = None,
    state: str = "CLOSED",
    changed: datetime | None = None,
) -> DrillRange:
    """One ledger of ten entries on two bookies, as the store has it; what bookies have; what the plan does."""
    ledger = Ledger(2, 2, 9, PAIR, held)
    stored = make_stored([ledger])
    raw = encode(9)
    columns = ledger_metadata.decode_columns(pa.array([raw]))
    for name in columns.column_names:
        stored = stored.set_column(stored.schema.get_field_index(name), stored.schema.field(name), columns[name])
    put: dict[str, list[Any]] = {
        "raw": [raw if state == "CLOSED" else b"other"],
        "changed_at": [changed],
        "state": [state],
    }
    for name, values in put.items():
        field = stored.schema.field(name)
        stored = stored.set_column(stored.schema.get_field_index(name), field, pa.array(values, field.type))
    key = {name: stored[name][0].as_py() for name in tables.KEY_COLUMNS}
    grades = dict.fromkeys(tables.GRADED, "observed") | {"ack_quorum": "assumed"}
    rows = [] if outcome is None else [{**key, "outcome": outcome, "grades": grades, "reason": None, "class": "clean"}]
    rows = [
        fill_row(tables.RECONSTRUCTION, row) | {"reason": "two_keys" if outcome == "held" else None} for row in rows
    ]
    actions = [] if written is None else [{**key, "kind": "ledger", "op": "create", "value": written, "id": b""}]
    made = pa.Table.from_pylist([fill_row(tables.ACTIONS, row) for row in actions], schema=tables.ACTIONS)
    copies = make_copies([ledger])
    lasts = pa.array([max(entries) for entries in held.values()], pa.int64())
    copies = copies.set_column(copies.schema.get_field_index("last"), copies.schema.field("last"), lasts)
    return judge_drill(
        sort_by_key(stored),
        pa.Table.from_pylist(rows, schema=tables.RECONSTRUCTION),
        read_written(made),
        copies,
        SEEN,
        COLLECTED,
    )


def seen(judged: DrillRange) -> tuple[str, str | None, int, list[str]]:
    """The only row."""
    (row,) = judged.rows.to_pylist()
    return row["class"], row["reason"], row["entries_lost"], row["differs"]


@pytest.mark.parametrize(
    ("outcome", "written", "said"),
    [
        ("restored", encode(9), ("exact", None, 0, [])),
        ("restored", encode(10), ("readable", None, 0, ["last_entry"])),
        ("restored", encode(8), ("lost", "entries that are readable now would not be", 1, ["last_entry"])),
        ("guarded", encode(9), ("readable", "guarded", 0, [])),
        ("restored", encode(9, ("bk1", "bk0")), ("readable", None, 0, ["segments"])),
        ("restored", encode(9, ("bk0", "bk2")), ("readable", None, 0, ["segments"])),
        (
            "restored",
            encode(9, ("bk3", "bk2")),
            ("lost", "entries that are readable now would not be", 10, ["segments"]),
        ),
        ("restored", encode(9, password=b"no"), ("lost", "another password", 10, ["password_hash"])),
        ("restored", encode(9, digest="HMAC"), ("lost", "another digest type", 10, ["digest"])),
        ("held", None, ("held", "two_keys", 0, [])),
        ("deleted", None, ("lost", "taken for deleted", 10, [])),
        (None, None, ("lost", "on no bookie that was collected", 10, [])),
    ],
    ids=range(12),
)
def test_a_ledger_is_what_its_record_would_serve(
    outcome: str | None, written: bytes | None, said: tuple[str, str | None, int, list[str]]
) -> None:
    """One entry, one member, one secret decide; a longer end and other places of the same members do not."""
    assert seen(judge(ALL, outcome=outcome, written=written)) == said


def test_what_is_gone_today_is_not_lost_by_the_drill() -> None:
    """Entry 9 is on no bookie now: a record that ends before it loses nothing; one that ends earlier does."""
    held = {"bk0": set(range(9)), "bk1": set(range(9))}
    assert seen(judge(held, written=encode(8))) == ("readable", None, 0, ["last_entry"])
    assert seen(judge(held, written=encode(7)))[:3] == ("lost", "entries that are readable now would not be", 1)


def test_an_open_ledger_ends_where_all_before_may_be_acknowledged() -> None:
    """Entry 9 is on one of two bookies, and A is 2: an end at 8 loses nothing, at 7 entry 8."""
    held = {"bk0": set(range(10)), "bk1": set(range(9))}
    assert seen(judge(held, written=encode(8), state="OPEN"))[:3] == ("readable", None, 0)
    assert seen(judge(held, written=encode(7), state="OPEN"))[2] == 1


@pytest.mark.parametrize(("later", "said"), [(0, "lost"), (1, "undecided")])
def test_a_ledger_that_changed_since_is_undecided(later: int, said: str) -> None:
    """What came after the bookies were read, they cannot show."""
    changed = COLLECTED + timedelta(microseconds=later)
    assert seen(judge({}, outcome=None, changed=changed))[0] == said


def test_fields_are_counted_for_those_that_come_back() -> None:
    """Guesses by their grade, differences by their values; nothing is counted of what is held or lost."""
    back = judge(ALL, written=encode(10))
    assert {name: count for name, count in back.guessed.items() if count} == {"ack_quorum": 1}
    assert {name: count for name, count in back.differs.items() if count} == {"last_entry": 1}
    held = judge(ALL, outcome="held")
    assert not any(held.guessed.values())
    assert not any(held.differs.values())
    assert (back.entries["readable"], held.entries["held"]) == (10, 10)
