"""Which bookies may start, and the cookie that each gets; what real bookies do of it is in tests/real."""

from dataclasses import replace

import msgspec
import pytest

from reconcile.plan.bookie_starts import (
    BookieSource,
    BookieStart,
    KnownBookie,
    StoredCookie,
    choose_cookie,
    decide_start,
    hash_cookie,
)
from recovery.codecs import cookie
from recovery.codecs.blocking_cookie import is_blocking, make_blocking
from recovery.codecs.cookie import Cookie

OWN = cookie.encode(Cookie(5, "b1:3181", ("/j1", "/j2"), ("/l1", "/l2"), ("/i1",), "an-instance"))
WHOLE = KnownBookie(
    "b1:3181", BookieSource.DISKS, complete=True, expands_storage=False, stamps_cookies=False, cookie=hash_cookie(OWN)
)
HARMED = replace(WHOLE, complete=False, missing=("/l2",))
NO_JOURNAL = replace(WHOLE, complete=False, missing=("/j1", "/j2"), is_only_journals=True)
NO_INDEX = replace(WHOLE, complete=False, is_index_gone=True, hiding=1)
DAMAGED = replace(WHOLE, complete=False, hiding=2)
UNSEEN = KnownBookie("b1:3181", cookie=hash_cookie(OWN))


@pytest.mark.parametrize("own", [None, OWN, cookie.encode(Cookie(3, "b1:3181", ("/j1",), ("/l1",)))])
def test_a_blocking_cookie_parses_and_differs_in_the_journal_folders(own: bytes | None) -> None:
    """All else is the bookie's own, where that is known; making one again makes the same."""
    made = make_blocking("b1:3181", "an-instance", own)
    found = cookie.decode(made)
    assert found.bookie_id == "b1:3181"
    assert is_blocking(made)
    assert not is_blocking(OWN)
    assert not is_blocking(b"?")
    assert make_blocking("b1:3181", "an-instance", own) == made
    if own is None:
        assert (found.instance_id, found.layout_version) == ("an-instance", 5)
    else:
        assert replace(found, journal_dirs=cookie.decode(own).journal_dirs) == cookie.decode(own)
        assert not set(found.journal_dirs) & set(cookie.decode(own).journal_dirs)


@pytest.mark.parametrize(
    ("known", "own", "blocks"),
    [
        (WHOLE, OWN, False),
        (HARMED, OWN, False),
        (replace(HARMED, expands_storage=None), OWN, False),
        (replace(HARMED, expands_storage=True), OWN, False),
        (replace(HARMED, lost=True), OWN, False),
        (NO_JOURNAL, OWN, False),
        (replace(NO_JOURNAL, expands_storage=None), OWN, False),
        (replace(NO_JOURNAL, expands_storage=True), OWN, True),
        (NO_INDEX, OWN, True),
        (replace(NO_INDEX, missing=("/l2",)), OWN, False),
        (replace(NO_INDEX, lost=True), OWN, False),
        (DAMAGED, OWN, False),
        (UNSEEN, OWN, False),
        (replace(UNSEEN, cookie=None), None, True),
        (replace(HARMED, cookie=None), None, True),
    ],
)
def test_a_bookie_gets_its_own_cookie_where_that_keeps_it_from_starting_empty(
    known: KnownBookie, own: bytes | None, *, blocks: bool
) -> None:
    """Else one that no folder matches."""
    chosen = choose_cookie(known, own, "an-instance")
    assert is_blocking(chosen) == blocks
    assert blocks or chosen == own


@pytest.mark.parametrize(
    ("known", "stored", "why", "is_kept_out", "keeping"),
    [
        (WHOLE, "none", "the store has no cookie of it", True, "as long as the store has no cookie"),
        (WHOLE, "blocking", "a cookie of it that no folder matches", True, "Its cookie in the store keeps it"),
        (WHOLE, "other", "another cookie of it than its folders hold", True, "Its cookie in the store keeps it"),
        (replace(WHOLE, expands_storage=True), "other", "another cookie", False, "allowStorageExpansion is on"),
        (HARMED, "own", "missing, empty or without VERSION (/l2)", True, "Its cookie in the store keeps it"),
        (HARMED, "none", "missing, empty or without VERSION", False, "so it starts empty"),
        (replace(HARMED, lost=True), "own", "missing, empty or without VERSION", True, "Its cookie"),
        (replace(HARMED, expands_storage=None), "own", "missing", True, "Its cookie in the store keeps it"),
        (
            replace(HARMED, stamps_cookies=None),
            "own",
            "missing",
            False,
            "dataIntegrityStampMissingCookies of its bk_server.conf was not read",
        ),
        (replace(HARMED, stamps_cookies=True), "blocking", "missing", False, "MissingCookies is on"),
        (NO_JOURNAL, "own", "missing", True, "Its cookie in the store keeps it"),
        (replace(NO_JOURNAL, expands_storage=True), "own", "missing", False, "allowStorageExpansion is on"),
        (
            replace(NO_JOURNAL, expands_storage=None, stamps_cookies=None),
            "own",
            "missing",
            False,
            "allowStorageExpansion of its bk_server.conf was not read and dataIntegrity",
        ),
        (replace(NO_JOURNAL, expands_storage=True), "blocking", "missing", True, "Its cookie in the store keeps it"),
        (NO_INDEX, "own", "a part of its index is gone", False, "nothing in the store keeps it from starting"),
        (NO_INDEX, "blocking", "a part of its index is gone", True, "Its cookie in the store keeps it"),
        (DAMAGED, "own", "2 damaged places of its disks may hide", False, "nothing in the store keeps it"),
        (DAMAGED, "none", "2 damaged places", True, "as long as the store has no cookie"),
        (replace(WHOLE, complete=False), "own", "it was not read completely", False, "nothing in the store"),
        (UNSEEN, "own", "it was not collected", False, "it starts if its folders are all there"),
        (UNSEEN, "none", "it was not collected", False, "starts if a folder is missing or empty"),
        (UNSEEN, "blocking", "it was not collected", False, "MissingCookies of its bk_server.conf was not read"),
        (replace(UNSEEN, lost=True), "own", "its disks are stated to be lost", False, "if its folders are all there"),
        (
            replace(WHOLE, source=BookieSource.WIRE),
            "own",
            "asked over the wire only",
            False,
            "its folders are all there",
        ),
    ],
)
def test_a_bookie_must_not_start(known: KnownBookie, stored: str, why: str, keeping: str, *, is_kept_out: bool) -> None:
    """With why, and with what keeps it from starting, or what lets it."""
    start = decide_start(known, StoredCookie(stored))
    assert not start.may_start
    assert why in start.reason
    assert start.is_kept_out == is_kept_out
    assert keeping in start.keeping
    assert start.keeping.startswith("Keep it stopped yourself: ") != is_kept_out
    assert str(start) == f"b1:3181 must not start: {start.reason}. {start.keeping}"


@pytest.mark.parametrize(
    "known",
    [WHOLE, replace(DAMAGED, lost=True), replace(NO_INDEX, lost=True), replace(WHOLE, expands_storage=None)],
)
def test_a_bookie_may_start(known: KnownBookie) -> None:
    """All of it was read, or what was not is given up, and the store has its own cookie."""
    start = decide_start(known, StoredCookie.OWN)
    assert start == BookieStart("b1:3181", may_start=True)
    assert str(start) == "b1:3181 may start"


def test_while_something_is_unfinished_no_bookie_may_start() -> None:
    """That is why, beside what is wrong with the bookie itself; its cookie is not blamed."""
    assert decide_start(WHOLE, StoredCookie.NONE, "later waves are not written").reason == "later waves are not written"
    reason = decide_start(HARMED, StoredCookie.NONE, "later waves are not written").reason
    assert reason == "folders of it are missing, empty or without VERSION (/l2), later waves are not written"


@pytest.mark.parametrize(
    ("stored", "found"),
    [(None, "none"), (OWN, "own"), (b"?", "other"), (make_blocking("b1:3181", None, OWN), "blocking")],
)
def test_a_cookie_of_the_store_is_compared(stored: bytes | None, found: str) -> None:
    """With the bookie's own; where that is not known, any that does not block is another one."""
    assert WHOLE.compare(stored) == StoredCookie(found)
    assert KnownBookie("b1:3181").compare(OWN) is StoredCookie.OTHER


def test_a_known_bookie_is_kept_in_a_manifest() -> None:
    """As it was."""
    for known in (WHOLE, HARMED, NO_JOURNAL, UNSEEN, replace(DAMAGED, planned=StoredCookie.BLOCKING)):
        assert msgspec.convert(known.to_json(), KnownBookie) == known


def test_what_may_start_needs_no_reason() -> None:
    """And nothing keeps it out."""
    start = BookieStart("b1:3181", may_start=True)
    assert (start.why, start.reason, start.keeping, start.is_kept_out) == ("", "", "", False)
    assert str(start) == "b1:3181 may start"


def test_a_blocking_cookie_is_no_second_reason() -> None:
    """It was written because of the first: what was not seen of the bookie. Alone it is one."""
    assert "a cookie of it that no folder matches" in decide_start(WHOLE, StoredCookie.BLOCKING).reason
    assert "cookie" not in decide_start(NO_INDEX, StoredCookie.BLOCKING).reason
