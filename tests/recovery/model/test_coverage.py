"""The account of which bookies were looked at."""

import msgspec

from recovery.model.coverage import Coverage


def test_every_bookie_stands_in_the_account() -> None:
    """Each bookie is listed by what was looked at of it, and by whether anything names it."""
    found = Coverage.count({"b": True, "a": False, "x": True}, {"with a cookie": {"a", "c"}, "expected": {"b"}})
    assert found == Coverage(
        scanned=("a", "b", "x"),
        complete=("b", "x"),
        not_complete=("a",),
        members_known_from=("with a cookie", "expected"),
        not_scanned=("c",),
        not_named=("x",),
    )
    assert not found.is_whole
    assert msgspec.convert(found.to_json(), Coverage) == found


def test_nothing_is_whole_whose_members_nothing_names() -> None:
    """Without a list of members, a bookie that was looked at completely may be one of many; none is a stranger."""
    found = Coverage.count({"a": True}, {})
    assert (found.is_whole, found.not_named) == (False, ())
    assert Coverage.count({"a": True}, {"expected": {"a"}}).is_whole
    assert not Coverage.count({"a": True}, {"expected": {"a", "b"}}).is_whole
    assert msgspec.convert({"scanned": ["a"]}, Coverage) == Coverage(scanned=("a",))
