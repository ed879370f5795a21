"""Cookies: round trips, and any bytes at all."""

from hypothesis import example, given
from hypothesis import strategies as st

from recovery.codecs import cookie
from recovery.codecs.cookie import Cookie
from recovery.errors import FormatError
from recovery.model.ids import is_bookie_id
from tests.support import bookie_files
from tests.support.mangling import mangled

# Everything but what separates: no tabs and line ends in layout 3, no comma in a journal folder.
WORDS = st.text(st.characters(exclude_characters="\t\n\r,", exclude_categories=["Cs"]), max_size=12)
FOLDERS = st.lists(WORDS, max_size=3).map(tuple)
JOURNALS = st.lists(WORDS, min_size=1, max_size=3).map(tuple)
IDS = st.from_regex(r"[a-zA-Z0-9:-_.\-]{1,12}", fullmatch=True).filter(is_bookie_id)
COOKIES = st.one_of(
    st.builds(Cookie, st.just(3), IDS, JOURNALS, FOLDERS),
    st.builds(
        Cookie,
        st.sampled_from([4, 5]),
        IDS,
        JOURNALS,
        FOLDERS,
        st.one_of(st.none(), FOLDERS),
        st.one_of(st.none(), WORDS.filter(bool)),
    ),
)
REAL = bookie_files.cookies("c09")[0].read_bytes()
ESCAPED = st.text("\\01478dxuUnNt?'\"\n", max_size=12).map(lambda text: REAL.replace(b"journal", text.encode(), 1))
OLD = cookie.encode(Cookie(3, "10.0.0.1:3181", ("/j",), ("/d1", "/d2")))


@given(COOKIES)
@example(Cookie(5, "b\\:1", ("/j é'\"", "/k"), ("/d\x01",), ("/i",), "x"))
def test_a_cookie_comes_back(value: Cookie) -> None:
    """A cookie is what was encoded, whatever is in its names."""
    assert cookie.decode(cookie.encode(value)) == value


@given(
    st.one_of(st.binary(max_size=80), st.binary(max_size=80).map(b"5\n".__add__), mangled(REAL), mangled(OLD), ESCAPED)
)
@example(b"5\nbookieHost: '\\?'")
@example(b"")
@example(b"2")
@example(b"5\n")
@example(b"4\nbookieHost: 7")
@example(b'5\nbookieHost: "a"\njournalDir: "/j"\nledgerDirs: "2\\t/a"\n')
def test_any_bytes_are_a_cookie_or_a_named_error(raw: bytes) -> None:
    """What is taken can be written and is then the same cookie; else FormatError."""
    try:
        value = cookie.decode(raw)
    except FormatError:
        return
    assert cookie.decode(cookie.encode(value)) == value
