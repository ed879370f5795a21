"""Ledger ids, their text forms, their order and their buckets."""

import pytest

from recovery.model.ids import BUCKETS, LedgerId, is_bookie_id, parse, to_signed, to_unsigned

ALL_ONES = (1 << 64) - 1


@pytest.mark.parametrize(
    ("text", "scope", "ledger"),
    [
        ("12345", 0, 12345),
        (" 7 ", 0, 7),
        ("0x3039", 0, 12345),
        ("7:12345", 7, 12345),
        ("0x7:0X3039", 7, 12345),
        ("7:0x3039", 7, 12345),
        ("00000000000000070000000000003039", 7, 12345),
        ("00000000-0000-0007-0000-000000003039", 7, 12345),
        ("18446744073709551615", 0, -1),
        ("ffffffffffffffff8000000000000000", -1, -(1 << 63)),
        ("12345678901234567890123456789012", 0x1234567890123456, 0x7890123456789012),
    ],
)
def test_every_text_form_names_its_ledger(text: str, scope: int, ledger: int) -> None:
    """Short, pair and qualified names are read as unsigned; 32 digits are a qualified name, whatever they are."""
    assert parse(text) == LedgerId(scope, ledger)


@pytest.mark.parametrize(
    "text",
    [
        *("", ":", "7:", ":7", "-1", "+1", "1_0", "0x", "1:2:3", "abc", "٣", "1" * 31, "1" * 33),
        *("18446744073709551616", "0x1" + "0" * 16, "00000000-00000007-0000-0000-00003039"),
    ],
)
def test_anything_else_is_no_id(text: str) -> None:
    """What is none of the three forms, or wider than 64 bits, is refused rather than guessed."""
    with pytest.raises(ValueError, match=r"neither decimal|more than 64"):
        parse(text)


def test_the_shortest_form_is_printed() -> None:
    """Scope 0 prints as today's id; another as a pair, unsigned."""
    assert str(LedgerId(0, 5)) == "5"
    assert str(LedgerId(7, -1)) == f"7:{ALL_ONES}"
    assert LedgerId(7, 12345).qualified_name == "00000000000000070000000000003039"


def test_ids_are_ordered_as_unsigned() -> None:
    """A half with its top bit set is larger than every one without."""
    ids = [LedgerId(-1, 0), LedgerId(0, -1), LedgerId(0, 1), LedgerId(1, 0)]
    assert sorted(ids) == [LedgerId(0, 1), LedgerId(0, -1), LedgerId(1, 0), LedgerId(-1, 0)]


def test_halves_are_signed_64_bit_patterns() -> None:
    """A half outside them is the caller's mistake; both readings of one pattern convert into each other."""
    with pytest.raises(ValueError, match="signed 64-bit"):
        LedgerId(0, 1 << 63)
    with pytest.raises(ValueError, match="signed 64-bit"):
        LedgerId(-(1 << 63) - 1, 0)
    assert to_unsigned(to_signed(ALL_ONES)) == ALL_ONES
    assert to_signed(1 << 63) == -(1 << 63)


def test_buckets_are_those_that_datasets_were_written_with() -> None:
    """Bucket numbers are stored, so they never change; one of them rests on splitmix64's published first output."""
    first_output = 0xE220A8397B1DCDAF
    assert LedgerId(0, to_signed(first_output)).bucket == first_output & (BUCKETS - 1)
    found = [LedgerId(scope, ledger).bucket for scope, ledger in ((0, 0), (0, 1), (0, 12345), (7, 12345), (-1, -1))]
    assert found == [3695, 1294, 3847, 3319, 2358]


@pytest.mark.parametrize(
    "text",
    ["10.0.0.1:3181", "bookie_four", "[::1]:3181", "a:b:c", "<=>?@;\\^", "A", "my-readonly-host:3181", "readonly1"],
)
def test_bookie_ids_that_bookkeeper_takes(text: str) -> None:
    """The class holds the range from colon to underscore; only the word itself is reserved, not what contains it."""
    assert is_bookie_id(text)


@pytest.mark.parametrize(
    "text", ["", "a b", "a/b", "a\tb", "a\n", "bücher", "readonly", "ReadOnly", "a`", "{", "a+b", "a,b"]
)
def test_bookie_ids_that_bookkeeper_refuses(text: str) -> None:
    """Slashes, blanks, anything that is not ASCII, the empty string and the reserved word."""
    assert not is_bookie_id(text)
