"""How sure each field of a proposal is, and which other ends are listed beside it."""

from typing import Any, Final

import pytest

from recovery.infer import rows
from recovery.infer.prior import Prior, ShapeCounts, ShapeSource
from recovery.model.metadata import Digest
from tests.recovery.infer.test_reconstruct import NAMES, Row, full, header, recover, row, striped

FOUR: Final = NAMES[:4]
STRIPED: Final = Prior.build(ShapeCounts(), {(3, 2, 2): 5})


@pytest.mark.parametrize("digest", Digest)
def test_each_digest_type_can_be_verified(digest: Digest) -> None:
    """And goes into a record with a password."""
    found = recover(full(3, 20, headers=[header(19, digest=str(digest))]))
    assert (found["digest"], found["grades"]["digest"], found["format"]) == (str(digest), "verified", 3)


@pytest.mark.parametrize(
    ("columns", "grade"),
    [
        ({"headers": [header(29, lac=28)]}, "assumed"),
        # A copy that heard of the last entry was made of the closed ledger.
        ({"headers": [header(29, lac=29)]}, "inferred"),
        ({"headers": [header(27, lac=27), header(29, lac=28)]}, "assumed"),
        # Unless its writer told bookies so.
        ({"headers": [header(29, lac=29)], "explicit_lac": 29}, "assumed"),
        ({"headers": [header(29, lac=29)], "explicit_lac": 28}, "inferred"),
        ({"headers": [header(29, lac=28)], "explicit_lac": 29}, "assumed"),
    ],
)
def test_a_copy_shows_that_a_ledger_was_closed(columns: dict[str, Any], grade: str) -> None:
    """If it knows that the last entry is acknowledged, and its writer told no bookie so."""
    assert recover(full(3, 30, **columns))["grades"]["state"] == grade


def test_what_is_guarded_is_inferred_at_most() -> None:
    """Though its stripes are seen; what is assumed stays so."""
    seen = recover(striped(30), names=FOUR)
    assert (seen["outcome"], seen["grades"]["ensemble_size"]) == ("restored", "observed")
    hidden = recover([one | {"explicit_lac": 40} for one in striped(30)], names=FOUR)
    assert (hidden["outcome"], hidden["grades"]["ensemble_size"]) == ("guarded", "inferred")
    plain = Prior.build(ShapeCounts(), {}, (3, 3, 2))
    assert recover(full(), prior=plain)["grades"]["ensemble_size"] == "assumed"
    guarded = recover(full(explicit_lac=40), prior=plain)
    assert (guarded["outcome"], guarded["grades"]["ensemble_size"]) == ("guarded", "assumed")


@pytest.mark.parametrize("source", ShapeSource)
def test_what_is_stated_for_all_is_assumed_of_each(source: ShapeSource) -> None:
    """What a snapshot or other ledgers show is inferred; A only by a snapshot."""
    is_stated = source in (ShapeSource.DEFAULT_QUORUM, ShapeSource.BOOKKEEPER_DEFAULT)
    assert rows._GRADES[rows._grade_shape(source)] == ("assumed" if is_stated else "inferred")
    assert rows._GRADES[rows._grade_quorum(source)] == ("inferred" if source is ShapeSource.SNAPSHOT else "assumed")


def ends(found: Row) -> list[str]:
    """Return the other ends of a row."""
    return [other["value"] for other in found["alternatives"] if other["field"] == "last_entry"]


def test_a_ledger_may_end_anywhere_from_what_a_whole_ensemble_knew_on() -> None:
    """What a member lost alone lowers no end: it tells a recovery what it knows to be acknowledged."""
    whole = striped(30)
    assert ends(recover(whole, names=FOUR)) == ["27..28"]
    assert ends(recover([one | {"explicit_lac": 29} for one in whole], names=FOUR)) == []
    lacking = [row(NAMES[0], [e for e in range(30) if e % 3 != 1 and e != 12]), *whole[1:]]
    assert ends(recover(lacking, names=FOUR, prior=STRIPED)) == ["27..28"]
    # Pieces alone do not show how many copies there were.
    pieces = {NAMES[0]: [0, 1, 5, 9, 20], NAMES[1]: [2, 3, 5, 11], NAMES[2]: [1, 4, 20]}
    universal = recover([row(name, own, limbo=True) for name, own in pieces.items()])
    assert (universal["reading"], ends(universal)) == ("universal", ["19"])
    held = recover([row(NAMES[0], range(9)), row(NAMES[1], range(9), key=b"x" * 32)])
    assert (held["outcome"], held["alternatives"]) == ("held", [])
    assert recover([row(NAMES[0], [])])["outcome"] != "restored"


def known_to(*acked: int) -> list[Row]:
    """Return full copies of entries 0 to 9 whose headers show so much to be acknowledged, each on a bookie."""
    return [row(name, range(10), headers=[header(9, lac=lac)]) for name, lac in zip(NAMES, acked, strict=False)]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (known_to(8, 8), "8"),
        # A bookie that knows only of 3 may have been replaced then, by one that lost all and answered a recovery.
        (known_to(3, 8), "3..8"),
        (known_to(-1, 8), "-1..8"),
        # Less than two bookies show nothing.
        (known_to(8), "-1..8"),
        # The header of a copy shows its own entry; a later one may have been under way to the same bookie.
        ([row(NAMES[0], range(10), headers=[header(4, lac=8), header(9, lac=3)]), *known_to(0, 8)[1:]], "4..8"),
        ([row(NAMES[0], range(10), headers=[header(4, lac=2), header(9, lac=3)]), *known_to(0, 8)[1:]], "3..8"),
        # What no header was read of shows nothing.
        ([row(NAMES[0], range(10), headers=[]), *known_to(0, 8)[1:]], "-1..8"),
    ],
)
def test_an_end_below_a_lac_is_listed_unless_a_whole_ensemble_knew_it(rows: list[Row], expected: str) -> None:
    """Of 2/2: who knows an entry to be acknowledged is a member after it, or another segment begins after it."""
    assert ends(recover(rows, prior=Prior.build(ShapeCounts(), {(2, 2, 2): 5}))) == [expected]


def test_the_widest_listed_shape_counts() -> None:
    """Of 3/3 beside 2/2, three bookies have to know it."""
    both = Prior.build(ShapeCounts(), {(2, 2, 2): 5, (3, 3, 2): 5})
    assert ends(recover(known_to(8, 8, 4), prior=both)) == ["4..8"]
    assert ends(recover(known_to(8, 8), prior=both)) == ["-1..8"]


def max_entry(copy: Row) -> int:
    """Return the last entry of a copy."""
    return max(int(one["entry"]) for one in copy["headers"])


def test_an_observed_end_has_no_other() -> None:
    """All bookies were seen, and the writer told some that the last entry is acknowledged."""
    told = [one | {"explicit_lac": 29, "headers": [header(max_entry(one), lac=3)]} for one in striped(30)]
    found = recover(told, names=FOUR)
    assert (found["grades"]["last_entry"], ends(found)) == ("observed", [])
    found = recover(told)
    assert (found["grades"]["last_entry"], ends(found)) == ("inferred", ["3..28"])
