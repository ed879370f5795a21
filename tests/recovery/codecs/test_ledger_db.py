"""Rows of the databases: which are refused, and why."""

import pytest

from recovery.codecs import ledger_db
from recovery.codecs.ledger_db import BookieLedgerRow, StorageFlags
from recovery.errors import FormatError, Reason

KEY = (5).to_bytes(8, "big")
VALUE = bytes.fromhex("080110001a02aabb")


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (b"", VALUE, Reason.BAD_LENGTH),
        (KEY + b"\0", VALUE, Reason.BAD_LENGTH),
        (KEY + bytes(7) + b"\1", VALUE, Reason.BAD_VALUE),
        (KEY, b"", Reason.TRUNCATED),
        (KEY, VALUE[:4], Reason.TRUNCATED),
        (KEY, VALUE[:-1], Reason.BAD_VALUE),
        (bytes.fromhex("ffffffffffff1103"), bytes(7), Reason.BAD_LENGTH),
    ],
)
def test_a_row_that_is_none_is_refused(key: bytes, value: bytes, reason: Reason) -> None:
    """A key of another form, a value that is not LedgerData or lacks a required field."""
    with pytest.raises(FormatError) as refused:
        ledger_db.decode_ledgers_row(key, value)
    assert refused.value.reason is reason


def test_a_reserved_key_is_passed_over() -> None:
    """Negative ids other than that of the flags are the bookie's own."""
    assert ledger_db.decode_ledgers_row((-2).to_bytes(8, "big", signed=True), b"anything") is None


def test_flags_without_the_bit_say_nothing() -> None:
    """Other bits do not ask for an integrity check."""
    assert not StorageFlags(0).needs_integrity_check
    assert not StorageFlags(2).needs_integrity_check
    assert StorageFlags(3).needs_integrity_check


def test_a_key_is_not_shown() -> None:
    """What is printed of a row does not hold the master key."""
    assert "kkk" not in repr(BookieLedgerRow(5, fenced=False, master_key=b"k" * 20))


def test_no_rows_are_no_locations() -> None:
    """An empty batch gives empty arrays."""
    found = ledger_db.decode_locations([], [])
    assert [len(column) for column in found[:4]] == [0, 0, 0, 0]


def test_lengths_that_add_up_are_told_one_by_one() -> None:
    """One key too long and the next too short do not shift the rows between them."""
    keys = [bytes(17), *(ledger_db.encode_location(5, n, 1)[0] for n in range(2)), bytes(15)]
    found = ledger_db.decode_locations(keys, [(1028).to_bytes(8, "big")] * 4)
    assert list(zip(found.ledger.tolist(), found.entry.tolist(), strict=True)) == [(5, 0), (5, 1)]
    assert [damage.offset for damage in found.damage] == [0, 3]
