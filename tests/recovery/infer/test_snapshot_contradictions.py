"""What bytes say against a record, field by field, and what only looks as if it did: each rule at both sides."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

from recovery.infer import snapshot_contradictions as contradictions
from recovery.infer.facts import DIGESTS, LedgerFacts
from recovery.infer.ledger_row import LedgerRow
from recovery.infer.refusal import Refusal
from recovery.model.metadata import Digest, LedgerMetadata, Segment
from tests.recovery.infer.test_reconstruct import NAMES, full, header
from tests.recovery.infer.test_search_choices import read
from tests.recovery.infer.test_snapshot_records import OPEN, TRUE
from tests.recovery.infer.test_snapshot_records_choices import row_of

Row = dict[str, Any]
KEY: Final = b"k" * 32


def with_headers(*headers: Row) -> LedgerFacts:
    """Return three full copies of thirty entries; these headers were read from the first."""
    return read([{"a": [*range(30)], "b": [*range(30)], "c": [*range(30)]}], a=headers, b=[], c=[])


def told(entry: int, length: int | None = None) -> Row:
    """Return a header of an entry of ten bytes; with another running length than in order where one is given."""
    return header(entry, lac=-1, length=10 * (entry + 1) if length is None else length)


# Who sends in order: 300 bytes up to entry 29.
IN_ORDER: Final = (told(29),)
# Entry 28 was sent last, or 27 was: its header has the length of all.
TURNED: Final = (told(28, 300), told(29, 290))
THREE: Final = (told(27, 300), told(28, 285), told(29, 290))

LENGTHS: Final[Sequence[tuple[Sequence[Row], dict[str, Any], str, tuple[Refusal, str] | None]]] = [
    (IN_ORDER, {}, "", None),
    (IN_ORDER, {"length": 299}, "", (Refusal.LENGTHS_DIFFER, "300")),
    # A larger one is only in doubt, where nothing is behind the end and no two entries share bytes.
    (IN_ORDER, {"length": 301}, "", (Refusal.TWO_HISTORIES, "300")),
    (IN_ORDER, {"length": 301}, "overlapped", (Refusal.LENGTHS_DIFFER, "300")),
    ((told(28),), {"last_entry": 28, "length": 291}, "", (Refusal.LENGTHS_DIFFER, "290")),
    (IN_ORDER, {"length": None}, "", (Refusal.LENGTHS_DIFFER, "300")),
    # As large as the largest that was read: right if that one was sent last, and only then.
    (TURNED, {"length": 300}, "crossed", None),
    (TURNED, {"length": 300}, "", (Refusal.LENGTHS_DIFFER, "290")),
    (TURNED, {"length": 300}, "crossed overlapped", (Refusal.LENGTHS_DIFFER, "290")),
    (TURNED, {"length": 299}, "crossed", (Refusal.LENGTHS_DIFFER, "290")),
    (THREE, {"length": 285}, "crossed", (Refusal.LENGTHS_DIFFER, "290")),
    # Of entries up to the end, with others behind it; or with none that was read before it.
    ((told(27, 300), told(28, 290), told(29, 295)), {"last_entry": 28, "length": 300}, "crossed", None),
    (IN_ORDER, {"last_entry": 20, "length": 210}, "crossed", None),
    # What was answered and never forced is counted, with an entry behind the end.
    ((told(21),), {"last_entry": 20, "length": 220}, "", None),
    ((told(21),), {"last_entry": 20, "length": 210}, "", None),
    ((told(21),), {"last_entry": 20, "length": 219}, "", (Refusal.LENGTHS_DIFFER, "210")),
    # A recovery without an answer from an empty segment counts nothing; no other length is 0 with entries.
    (IN_ORDER, {"length": 0, "segments": (Segment(0, NAMES[:3]), Segment(30, NAMES[:3]))}, "", None),
    (IN_ORDER, {"length": 0}, "", (Refusal.LENGTHS_DIFFER, "300")),
    (
        IN_ORDER,
        {"length": 299, "segments": (Segment(0, NAMES[:3]), Segment(30, NAMES[:3]))},
        "",
        (Refusal.LENGTHS_DIFFER, "300"),
    ),
    # The first entry alone, and none.
    ((told(0),), {"last_entry": 0, "length": 10}, "", None),
    ((told(0),), {"last_entry": 0, "length": 9}, "", (Refusal.LENGTHS_DIFFER, "10")),
    (IN_ORDER, {"last_entry": -1, "length": 0}, "", None),
    (IN_ORDER, {"last_entry": -1, "length": 5}, "", (Refusal.LENGTHS_DIFFER, "0: no entry")),
    # Running lengths never fall: not before the end, and not behind it.
    ((told(10),), {"last_entry": 20, "length": 110}, "", None),
    ((told(10),), {"last_entry": 20, "length": 109}, "", (Refusal.LENGTHS_DIFFER, "110 at entry 10")),
    ((told(25),), {"last_entry": 20, "length": 259}, "", None),
    ((told(25),), {"last_entry": 20, "length": 261}, "", (Refusal.LENGTHS_DIFFER, "260 at entry 25")),
]  # fmt: skip


@pytest.mark.parametrize(("headers", "changes", "marks", "wanted"), LENGTHS)
def test_which_lengths_bytes_contradict(
    headers: Sequence[Row], changes: dict[str, Any], marks: str, wanted: tuple[Refusal, str] | None
) -> None:
    """By the headers that were read, wherever they stand."""
    known = with_headers(*headers)
    crossed, overlapped = (np.array([name in marks.split()]) for name in ("crossed", "overlapped"))
    known = replace(known, crossed=crossed, overlapped=overlapped)
    found = list(contradictions._check_length(known, 0, replace(TRUE, **changes)))
    if wanted is None:
        assert found == []
        return
    [one] = found
    refusal, shown = wanted
    assert (one.field, one.refusal, one.snapshot) == ("length", refusal, str(changes["length"] or 0))
    assert one.bookies == shown or one.bookies.startswith(f"{shown}, as a header of entry ")


def identity_of(known: LedgerFacts, row: LedgerRow, record: LedgerMetadata, key: bytes | None = None) -> list[str]:
    """Return the fields of a record's identity that are contradicted."""
    return [one.field for one in contradictions._check_identity(known, 0, row, record, key)]


@pytest.mark.parametrize(
    ("own", "key", "differ"),
    [(KEY, KEY, False), (KEY, b"o" * 32, True), (None, KEY, False), (KEY, None, False), (None, None, False)],
)
def test_two_keys_are_two_ledgers(own: bytes | None, key: bytes | None, *, differ: bool) -> None:
    """Where both sides have one."""
    known, row = row_of(full(3, 30))
    assert identity_of(known, replace(row, key=own), replace(TRUE, write_quorum=3), key) == ["key"] * differ


@pytest.mark.parametrize("shown", [None, *DIGESTS])
@pytest.mark.parametrize("recorded", [None, *Digest])
def test_two_digests_are_two_ledgers(shown: Digest | None, recorded: Digest | None) -> None:
    """Where both sides have one."""
    known, row = row_of(full(3, 30))
    known = replace(known, digest=np.array([-1 if shown is None else DIGESTS.index(shown)]))
    differ = shown is not None and recorded is not None and shown is not recorded
    record = replace(TRUE, write_quorum=3, digest=recorded)
    assert identity_of(known, replace(row, key=None), record) == ["digest"] * differ


def stripes(size: int, write: int, entries: int = 30) -> dict[str, list[int]]:
    """Return who holds what of an ensemble that nothing happened to."""
    names = "abcde"[:size]
    return {
        name: [e for e in range(entries) if (place - e) % size < write] for place, name in enumerate(names)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("held", "shape", "differ"),
    [
        (stripes(3, 2), (3, 2), False),
        (stripes(3, 2), (3, 3), True),
        (stripes(3, 2), (1, 1), True),
        (stripes(2, 1), (2, 2), True),
        # Bookies that fail in turn leave of 1/1 what striping leaves.
        (stripes(2, 1), (1, 1), False),
        (stripes(3, 1), (1, 1), False),
        (stripes(3, 3), (2, 2), False),
    ],
)
def test_another_pattern_is_another_ledger(held: dict[str, list[int]], shape: tuple[int, int], *, differ: bool) -> None:
    """What two bookies repeat."""
    _, row = row_of(full(3, 30))
    record = replace(TRUE, ensemble_size=shape[0], write_quorum=shape[1])
    found = identity_of(read([held]), replace(row, key=None), record)
    assert found == ["ensemble_size/write_quorum"] * differ


@pytest.mark.parametrize(
    ("held", "copied", "shape"),
    [
        (stripes(2, 1, 6), "", (2, 1)),
        (stripes(2, 1, 4), "", None),
        (stripes(3, 2), "", (3, 2)),
        (stripes(3, 3), "", None),
        # One row repeats it, alone or beside others that do not.
        ({"a": [0, 2, 4, 6]}, "", None),
        ({"a": [0, 2, 4, 6], "b": [1, 3]}, "", None),
        ({"a": [0, 2, 4, 6], "b": [*range(8)]}, "", None),
        # A copy agrees if it repeats the same, and never contradicts.
        ({"a": [0, 2, 4, 6], "c": [1, 3, 5, 7]}, "c", (2, 1)),
        ({"a": [0, 2, 4, 6], "c": [1, 3]}, "c", None),
        ({"a": [0, 2, 4, 6], "c": [1, 4, 7]}, "c", None),
        ({"a": [0, 3, 6, 9], "c": [1, 2, 4, 5, 7, 8]}, "c", None),
        ({"a": [0, 2, 4, 6], "b": [1, 3, 5, 7], "c": [0, 3, 6]}, "c", (2, 1)),
        ({"a": [0, 2, 4, 6], "c": [1, 3, 5, 7]}, "ac", None),
        # Two that wrote differ.
        ({"a": [0, 2, 4, 6], "b": [1, 3, 5, 7], "c": [0, 3, 6]}, "", None),
    ],
)
def test_which_pattern_two_bookies_repeat(
    held: dict[str, list[int]], copied: str, shape: tuple[int, int] | None
) -> None:
    """Three times each, and none that wrote another one."""
    headers = {name: [header(max(own), lac=max(own) - (name not in copied))] for name, own in held.items()}
    known = read([{"a": [*range(9)], "b": [*range(9)]}, held], **headers)
    assert contradictions._read_repeated_shape(known, known.ledger.tolist().index(1)) == shape


TENS: Final = [e for e in range(40) if e % 10 != 9]
"""What copies of 5/2 have in batches of ten."""


@pytest.mark.parametrize(
    ("held", "shape", "segments", "shown"),
    [
        # Each third entry is missing: of 3/2, and of no position of 4/3.
        ({"a": stripes(3, 2)["a"], "b": stripes(3, 2)["b"]}, (4, 3), 1, "3/2"),
        ({"a": stripes(3, 2)["a"], "b": stripes(3, 2)["b"]}, (3, 3), 1, "3/2"),
        ({"a": stripes(3, 2)["a"], "b": stripes(3, 2)["b"]}, (3, 2), 1, None),
        # One entry of three is no share of 3/2.
        ({"a": stripes(3, 1)["a"], "b": stripes(3, 1)["b"]}, (3, 2), 1, "3/1"),
        # Where batches end, copies lack what their position is not sent.
        ({"a": TENS, "b": TENS}, (5, 2), 1, None),
        ({"a": TENS, "b": TENS}, (5, 4), 1, None),
        ({"a": TENS, "b": TENS}, (3, 2), 1, "10/9"),
        # What is behind the last run is no hole.
        ({name: [e for e in range(17) if e % 6 != 5] for name in "ab"}, (5, 3), 1, None),
        # One bookie, two patterns, two runs, or as many as the ensemble may have changed.
        ({"a": stripes(3, 2)["a"], "b": [*range(30)]}, (4, 3), 1, None),
        ({"a": stripes(3, 2)["a"], "b": stripes(4, 2)["b"]}, (4, 3), 1, None),
        ({"a": [0, 1, 3, 4], "b": [0, 1, 3, 4]}, (4, 4), 1, None),
        ({"a": [0, 1, 3, 4, 6, 7], "b": [0, 1, 3, 4, 6, 7]}, (4, 4), 1, "3/2"),
        ({"a": [0, 1, 3, 4, 6, 7], "b": [0, 1, 3, 4, 6, 7]}, (4, 4), 2, "3/2"),
        ({"a": [0, 1, 3, 4, 6, 7], "b": [0, 1, 3, 4, 6, 7]}, (4, 4), 3, None),
    ],
)
def test_holes_in_the_share_of_every_position_are_of_another_shape(
    held: dict[str, list[int]], shape: tuple[int, int], segments: int, shown: str | None
) -> None:
    """Copies have all of their position's share."""
    headers = {name: [header(max(own), lac=99)] for name, own in held.items()}
    known = read([{"a": [*range(9)]}, held], **headers)
    parts = tuple(Segment(first, NAMES[: shape[0]]) for first in range(segments))
    record = replace(TRUE, ensemble_size=shape[0], write_quorum=shape[1], segments=parts)
    found = contradictions.find_other_stripes(known, known.ledger.tolist().index(1), record)
    assert (found and found.bookies) == shown
    assert found is None or found[1] == f"{shape[0]}/{shape[1]}"


@pytest.mark.parametrize(("last", "said"), [(None, []), (48, ["last_entry"]), (49, []), (50, [])])
def test_an_open_record_is_contradicted_by_an_end_below_its_last_segment(last: int | None, said: list[str]) -> None:
    """Not where bookies show no end."""
    known, row = row_of(full(3, 30))
    record = replace(OPEN, write_quorum=3, segments=(Segment(0, NAMES[:3]), Segment(50, NAMES[:3])))
    found = contradictions.find_contradictions(known, 0, replace(row, last_entry=last), record, row.key)
    assert [one.field for one in found] == said


@pytest.mark.parametrize(
    ("end", "start", "is_doubted"),
    [(19, 20, False), (19, 21, True), (19, 50, True), (28, 50, True), (29, 50, False), (28, 29, False)],
)
def test_a_closed_record_that_ends_before_its_last_segment_is_not_believed_against_entries(
    end: int, start: int, *, is_doubted: bool
) -> None:
    """A segment begins behind what was acknowledged; where no bookie has an entry above the end, nothing is cut."""
    (_, row), known = row_of(full(3, 30)), with_headers(told(29))
    parts = (Segment(0, NAMES[:3]), Segment(start, NAMES[:3]))
    record = replace(TRUE, write_quorum=3, last_entry=end, length=10 * (end + 1), segments=parts)
    found = [
        contradiction
        for contradiction in contradictions.find_contradictions(known, 0, row, record, row.key)
        if contradiction.field == "last_entry"
    ]
    assert [one.refusal for one in found] == [Refusal.TWO_HISTORIES] * is_doubted


def test_a_record_without_an_end_has_no_entry() -> None:
    """As one that is closed at -1."""
    assert [contradictions.read_end(r) for r in (TRUE, replace(TRUE, last_entry=0), OPEN)] == [29, 0, -1]
