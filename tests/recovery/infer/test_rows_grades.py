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


def test_a_ledger_may_end_anywhere_from_its_lac_on_or_before_what_a_member_lacks() -> None:
    """Where an entry has fewer copies than W a recovery may have ended before it."""
    whole = striped(30)
    assert ends(recover(whole, names=FOUR)) == ["28"]
    assert ends(recover([one | {"explicit_lac": 29} for one in whole], names=FOUR)) == []
    lacking = [row(NAMES[0], [e for e in range(30) if e % 3 != 1 and e != 12]), *whole[1:]]
    assert ends(recover(lacking, names=FOUR, prior=STRIPED)) == ["11..28"]
    # Of a shape of more copies each entry may be such a one.
    assert ends(recover(lacking, names=FOUR)) == ["-1..28"]
    # Pieces alone do not show how many copies there were.
    pieces = {NAMES[0]: [0, 1, 5, 9, 20], NAMES[1]: [2, 3, 5, 11], NAMES[2]: [1, 4, 20]}
    universal = recover([row(name, own, limbo=True) for name, own in pieces.items()])
    assert (universal["reading"], ends(universal)) == ("universal", ["19"])
    held = recover([row(NAMES[0], range(9)), row(NAMES[1], range(9), key=b"x" * 32)])
    assert (held["outcome"], held["alternatives"]) == ("held", [])
