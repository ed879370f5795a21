"""Which records are what bookies show: each column by itself, and segments as a loop over each compares them."""

from collections import Counter
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from recovery.infer import facts
from recovery.infer.reconstruct import reconstruct
from recovery.infer.refusal import Refusal
from recovery.infer.snapshot_agreement import KEPT, mark_agreeing, mark_same_segments
from recovery.model import tables
from recovery.model.ids import LedgerId
from recovery.model.metadata import LedgerState
from tests.reconcile.rules.test_sides import catalog
from tests.recovery.infer.test_reconstruct import KNOWN, SECRET, full, header, striped
from tests.recovery.infer.test_snapshot_records import TRUE
from tests.simulation import simulator

Row = dict[str, Any]
SHOWN: Final = pa.schema([tables.RECONSTRUCTION.field(name) for name in ("ensemble_size", "write_quorum", "segments")])
RECORDED: Final = pa.schema([tables.CATALOG_LEDGERS.field(name) for name in SHOWN.names])


def agree(rows: list[Row], shown: Row | None = None, record: Row | None = None) -> bool:
    """Say whether the one ledger of some rows agrees with a record of it; columns of both sides as given."""
    table = pa.Table.from_pylist(rows, schema=tables.COPIES)
    bookies = simulator.bookies(("a:3181", "b:3181", "c:3181", "d:3181", "e:3181"))
    [own] = reconstruct(table, bookies, tables.DAMAGE.empty_table(), KNOWN, SECRET).to_pylist()
    [stored] = catalog({LedgerId(0, 7): TRUE}).to_pylist()
    return bool(
        mark_agreeing(
            facts.read(table, bookies),
            np.zeros(1, np.int64),
            pa.Table.from_pylist([own | (shown or {})], schema=tables.RECONSTRUCTION),
            pa.Table.from_pylist([stored | (record or {})], schema=tables.CATALOG_LEDGERS),
        )[0]
    )


@pytest.mark.parametrize(
    ("shown", "record", "agrees"),
    [
        ({}, {}, True),
        ({}, {"last_entry": 28}, False),
        ({"last_entry": None}, {}, False),
        ({}, {"length": 299}, False),
        ({"length": None}, {}, False),
        ({}, {"state": str(LedgerState.OPEN)}, False),
        ({}, {"state": str(LedgerState.IN_RECOVERY)}, False),
        # What one side does not know does not differ.
        ({}, {"password_hash": b"o" * 32}, False),
        ({"key": None}, {}, True),
        ({}, {"password_hash": None}, True),
        ({}, {"digest": "HMAC"}, False),
        ({"digest": None}, {}, True),
        ({}, {"digest": None}, True),
        # Reasons that a record takes away, and those that it does not.
        ({"reason": str(Refusal.SOURCE_INCOMPLETE)}, {}, True),
        *(({"reason": str(reason)}, {}, False) for reason in sorted(KEPT)),
        # A shape that names whoever holds something is not seen.
        ({"reading": "likeliest"}, {}, True),
        ({"reading": None}, {}, True),
        ({"reading": "universal"}, {}, False),
        # Of a ledger that is held nothing is shown.
        ({"segments": None, "ensemble_size": None, "write_quorum": None}, {}, False),
        ({"write_quorum": 3}, {}, False),
        ({"ensemble_size": 4}, {}, False),
    ],
)
def test_each_column_has_to_agree(shown: Row, record: Row, *, agrees: bool) -> None:
    """A null agrees where the other side may know more, and not where it is the end."""
    assert agree(striped(30), shown, record) == agrees


@pytest.mark.parametrize(
    ("end", "reading", "agrees"),
    [(-1, "universal", True), (0, "universal", False), (0, "likeliest", True), (-1, "likeliest", True)],
)
def test_whoever_holds_nothing_is_in_no_wrong_place(end: int, reading: str, *, agrees: bool) -> None:
    """A shape that no bookie shows is in doubt from the first entry on."""
    both = {"last_entry": end, "length": 10 * (end + 1)}
    rows = [one | {"headers": [header(29, lac=-1)]} for one in striped(30)]
    assert agree(rows, both | {"reading": reading}, both) == agrees


@pytest.mark.parametrize(("lac", "agrees"), [(28, True), (29, True), (30, False)])
def test_no_record_agrees_below_a_lac(lac: int, *, agrees: bool) -> None:
    """It may be the last entry itself."""
    rows = [one | {"explicit_lac": lac} for one in full(3, 30)]
    columns = {"last_entry": 29, "length": 300, "reason": None, "reading": "proved", "write_quorum": 3}
    assert agree(rows, columns, {"write_quorum": 3}) == agrees


def test_what_was_left_open_does_not_agree_with_a_closed_record() -> None:
    """It has no end."""
    assert not agree(striped(30), {"state": "OPEN", "last_entry": None, "length": None})


def is_same(shown: Row, recorded: Row) -> bool:
    """Compare the segments of two sides one by one."""
    shapes = [(side["ensemble_size"], side["write_quorum"]) for side in (shown, recorded)]
    if None in shapes[0] or shapes[0] != shapes[1]:
        return False
    if len(shown["segments"]) != len(recorded["segments"]):
        return False
    for own, other in zip(shown["segments"], recorded["segments"], strict=True):
        names = own["members"], other["members"]
        alike = Counter(names[0]) == Counter(names[1]) if shapes[0][0] == shapes[0][1] else names[0] == names[1]
        if not alike or other["first"] not in range(own["first_low"], own["first"] + 1):
            return False
    return True


def draw(rng: Random) -> tuple[Row, Row]:
    """Draw what is shown of a ledger, and a record that is the same but for one thing, or nothing."""
    size = rng.randint(1, 3)
    shape: Row = {"ensemble_size": size, "write_quorum": rng.randint(1, size)}
    segments: list[Row] = []
    for place in range(rng.randint(1, 3)):
        members = rng.sample("abcd", size)
        low, first = 10 * place, 10 * place + rng.choice([0, 2])
        segments.append({"first": first, "first_low": low, "members": members, "assumed": [False] * size})
    recorded: list[Row] = [
        {"first": rng.randint(s["first_low"], s["first"]), "members": s["members"]} for s in segments
    ]
    shown = {**shape, "segments": segments}
    record = {**shape, "segments": recorded}
    one = rng.choice(recorded)
    match rng.randrange(9):
        case 0:
            one["members"] = rng.sample(one["members"], size)
        case 1:
            one["members"] = rng.sample("abcd", size)
        case 2:
            one["members"] = [*one["members"], "e"]
        case 3:
            one["first"] += rng.choice([-3, -1, 1, 3])
        case 4:
            recorded.pop()
        case 5:
            recorded.append({"first": 99, "members": rng.sample("abcd", size)})
        case 6:
            record["write_quorum" if rng.random() < 0.5 else "ensemble_size"] += 1
        case 7:
            shown = {"ensemble_size": None, "write_quorum": None, "segments": None}
            record["segments"] = recorded[: rng.choice([0, 1])]
    return shown, record


def test_segments_are_compared_as_a_loop_compares_them() -> None:
    """In batches of one and of several pairs: all agree, some, or none. With W = E the order is free."""
    rng = Random(5)
    seen: Counter[bool] = Counter()
    for size in [1] * 50 + [2, 3, 5] * 20:
        pairs = [draw(rng) for _ in range(size)]
        wanted = [is_same(*pair) for pair in pairs]
        sides = [
            pa.Table.from_pylist([pair[n] for pair in pairs], schema=schema)
            for n, schema in enumerate((SHOWN, RECORDED))
        ]
        assert mark_same_segments(*sides).tolist() == wanted, pairs
        seen.update(wanted)
    assert min(seen.values()) > 30
