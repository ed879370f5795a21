"""Cookies: the old layout, how names are escaped, and what is refused."""

import pytest

from recovery.codecs import cookie
from recovery.codecs.cookie import Cookie
from recovery.errors import FormatError, Reason

LINES = b"3\n10.0.0.1:3181\n/j1,/j2\n2\t/d1\t/d2\n"
TEXT = b'4\nbookieHost: "a"\njournalDir: "/j"\nledgerDirs: "1\\t/d"\n'


def test_layout_3_has_three_lines() -> None:
    """It is read and made again."""
    value = Cookie(3, "10.0.0.1:3181", ("/j1", "/j2"), ("/d1", "/d2"))
    assert cookie.decode(LINES) == value
    assert cookie.encode(value) == LINES


def test_layout_4_has_neither_instance_nor_index_folders() -> None:
    """What a cookie does not say is None."""
    value = cookie.decode(TEXT)
    assert value == Cookie(4, "a", ("/j",), ("/d",))
    assert cookie.encode(value) == TEXT


@pytest.mark.parametrize("raw", [LINES, TEXT])
@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
def test_other_ends_of_lines_are_read_as_a_bookie_reads_them(raw: bytes, end: bytes) -> None:
    """An editor elsewhere may have written them."""
    assert cookie.decode(raw.replace(b"\n", end)) == cookie.decode(raw)


def test_of_a_field_that_stands_twice_the_last_counts() -> None:
    """As a bookie reads it."""
    assert cookie.decode(TEXT + b'bookieHost: "b"\n') == Cookie(4, "b", ("/j",), ("/d",))


def test_empty_fields_say_nothing() -> None:
    """An empty instance id or empty index folders are as if absent."""
    assert cookie.decode(TEXT + b'instanceId: ""\nindexDirs: ""\n') == Cookie(4, "a", ("/j",), ("/d",))


def test_names_are_escaped_as_in_c() -> None:
    """Quotes, backslashes and all but ASCII, in octal digits of their UTF-8."""
    value = Cookie(5, "a", ("/j'\"\\",), ("/é",))
    raw = rb"""5
bookieHost: "a"
journalDir: "/j\'\"\\"
ledgerDirs: "1\t/\303\251"
"""
    assert cookie.encode(value) == raw
    assert cookie.decode(raw) == value
    assert cookie.decode(raw.replace(rb"\303\251", "é".encode())) == value
    odd = Cookie(5, "a", ("/\a\b\v\f\n\x01\\007",), ("/d",))
    assert rb'journalDir: "/\a\b\v\f\n\001\\007"' in cookie.encode(odd)
    assert cookie.decode(cookie.encode(odd)) == odd


@pytest.mark.parametrize(
    ("text", "folders"),
    [(b"data2/bookkeeper/ledgers", ("data2/bookkeeper/ledgers",)), (b"/d1,/d2", ("/d1", "/d2")), (b"/1", ("/1",))],
)
def test_a_list_without_its_number_is_read(text: bytes, folders: tuple[str, ...]) -> None:
    """As BookKeeper's own shell made cookies before 4.10, and as a bookie reads them."""
    assert cookie.decode(TEXT.replace(b"1\\t/d", text)).ledger_dirs == folders
    assert cookie.decode(LINES.replace(b"2\t/d1\t/d2", text)).ledger_dirs == folders


def test_a_later_layout_is_read_as_the_last_known() -> None:
    """Fields that are not known are passed over."""
    assert cookie.decode(b"6" + TEXT[1:] + b'shape: "round"\n') == Cookie(6, "a", ("/j",), ("/d",))


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", Reason.EMPTY),
        (b"\xff\n", Reason.BAD_VALUE),
        (b"BKLO", Reason.BAD_MAGIC),
        (b"-4\n", Reason.BAD_MAGIC),
        (b"2\n", Reason.BAD_VERSION),
        (b"3\na\n/j\n", Reason.BAD_LENGTH),
        (b"3\na\n/j", Reason.TRUNCATED),
        (b"3\na\n/j\n2\t/d\n", Reason.BAD_LENGTH),
        (TEXT[:-2], Reason.BAD_VALUE),
        (TEXT[:18], Reason.TRUNCATED),
        (TEXT.replace(b"1\\t", b"one\\t"), Reason.BAD_LENGTH),
        (TEXT.replace(b'"a"', b'"\\377"'), Reason.BAD_VALUE),
        (TEXT.replace(b'"a"', b'"\\777"'), Reason.BAD_VALUE),
        (TEXT.replace(b'"a"', b'"\\d"'), Reason.BAD_VALUE),
        (TEXT.replace(b'"a"', b'"\\xg"'), Reason.BAD_VALUE),
        (TEXT + b"x {" * 5000, Reason.BAD_VALUE),
    ],
)
def test_a_cookie_that_is_none_is_refused(raw: bytes, reason: Reason) -> None:
    """The reason is told."""
    with pytest.raises(FormatError) as refused:
        cookie.decode(raw)
    assert refused.value.reason is reason


def test_what_a_layout_cannot_say_is_not_written() -> None:
    """Layout 3 has no instance id; layout 2 no bookie."""
    with pytest.raises(ValueError, match="layout 3"):
        cookie.encode(Cookie(3, "a", ("/j",), ("/d",), None, "x"))
    with pytest.raises(ValueError, match="layout 2"):
        cookie.encode(Cookie(2, "a", ("/j",), ("/d",)))
