"""Rows of the databases: round trips, and any bytes at all."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from recovery.codecs import ledger_db
from recovery.codecs.ledger_db import BookieLedgerRow, StorageFlags
from recovery.errors import FormatError
from tests.support.entries import IDS, LEDGERS
from tests.support.mangling import mangled

ROWS = st.builds(
    BookieLedgerRow,
    LEDGERS,
    st.booleans(),
    st.binary(max_size=24),
    st.one_of(st.none(), st.binary(min_size=1, max_size=36)),
    st.sampled_from([None, False, True]),
    st.booleans(),
)
WORKED = bytes.fromhex("080110001a14850bf1071c5e3d8c24235676f8816ae0cbe2f14f")
LOCATIONS = st.one_of(st.integers(0, 3), st.integers(-(1 << 63), (1 << 63) - 1))
PAIRS = st.builds(ledger_db.encode_location, LEDGERS, IDS, LOCATIONS)


@given(ROWS)
def test_a_row_comes_back(row: BookieLedgerRow) -> None:
    """A ledger's row is what was encoded."""
    assert ledger_db.decode_ledgers_row(*ledger_db.encode_ledgers_row(row)) == row


@given(
    st.one_of(
        st.binary(max_size=17), LEDGERS.map(struct.Struct(">q").pack), st.just(bytes.fromhex("ffffffffffff1103"))
    ),
    st.one_of(st.binary(max_size=40), mangled(WORKED)),
)
def test_any_row_is_a_value_or_a_named_error(key: bytes, value: bytes) -> None:
    """A key names its ledger, the flags, or something reserved; what does not fit is FormatError."""
    try:
        row = ledger_db.decode_ledgers_row(key, value)
    except FormatError:
        return
    first = int.from_bytes(key[:8], "big", signed=True)
    match row:
        case BookieLedgerRow():
            assert row.ledger == first
        case StorageFlags():
            assert ledger_db.encode_storage_flags(row) == (key[:8], value)
        case None:
            assert first < 0


@given(st.lists(st.one_of(PAIRS, st.tuples(st.binary(max_size=18), st.binary(max_size=10))), max_size=12))
def test_any_locations_are_rows_or_damage(pairs: list[tuple[bytes, bytes]]) -> None:
    """Each row is taken, is empty, or is damage: told one by one, the same comes out as in columns."""
    found = ledger_db.decode_locations([key for key, _ in pairs], [value for _, value in pairs])
    taken, damaged = [], set()
    for number, (key, value) in enumerate(pairs):
        if len(key) != 16 or len(value) != 8:
            damaged.add(number)
            continue
        row = (*struct.unpack(">qq", key), *struct.unpack(">q", value))
        if min(row) < 0:
            damaged.add(number)
        elif row[2]:
            taken.append(row)
    assert list(zip(*(column.tolist() for column in found[:3]), strict=True)) == taken
    assert {damage.offset for damage in found.damage} == damaged
    assert len(found.damage) == len(damaged)


@given(LEDGERS, st.integers(1, 20))
def test_every_ledger_has_one_folder(ledger: int, dirs: int) -> None:
    """The folder of a ledger is one of those there are."""
    assert 0 <= ledger_db.shard(ledger, dirs) < dirs
    assert (ledger - ledger_db.shard(ledger, dirs)) % dirs == 0
