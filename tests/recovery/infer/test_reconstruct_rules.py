"""Rules of a reconstruction by themselves, each at both of its sides: which shapes are listed, what logs alone show."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from recovery.codecs.entry import encode_lac_record
from recovery.infer import reconstruct
from recovery.infer.facts import LedgerFacts
from recovery.infer.prior import Prior, PriorShape, ShapeCounts, ShapeSource
from recovery.infer.reconstruct import InferOptions
from recovery.infer.refusal import CODES, Refusal
from recovery.infer.search import Tail
from recovery.infer.shape_fit import CLEAN, NO_SHAPE, SOLVED, UNDECIDED, Explained, LedgerSegments
from recovery.infer.unseen_bookies import UnseenBookies
from recovery.model import tables
from recovery.model.metadata import Digest
from tests.recovery.infer.test_reconstruct import KNOWN, NAMES, full, header, recover, row, striped
from tests.recovery.infer.test_search_choices import read
from tests.simulation import simulator

Shape = tuple[int, int]
NONE: Final = np.zeros(0, np.int64)


def explained_of(known: LedgerFacts, shapes: Sequence[PriorShape], observed: int = 0, **columns: Any) -> Explained:
    """Return what explains one ledger: the first of some shapes, as it is, but for columns that are given."""
    plain: dict[str, Any] = {
        "shape": 0, "path": CLEAN, "end": int(known.copies.end[0]), "length": 9, "missing": 0, "extra": 0,
        "sure": False, "other_ledger": NONE, "other_shape": NONE,
        "segments": LedgerSegments(NONE, NONE, NONE, NONE, NONE),
    }  # fmt: skip
    given = {**plain, **columns}
    arrays: dict[str, Any] = {name: np.array([value]) if np.isscalar(value) else value for name, value in given.items()}
    return Explained(shapes, observed, **arrays)


def runs_of(size: int, count: int = 3) -> dict[str, list[int]]:
    """Return two rows of some runs of a length, with gaps between them that do not repeat."""
    own = [start + entry for start in [n * (size + 1) + (n > 1) for n in range(count)] for entry in range(size)]
    return {"a": own, "b": own}


TWENTY: Final = {"a": [*range(20)], "b": [*range(20)]}


@pytest.mark.parametrize(
    ("held", "own", "other", "lac", "columns", "listed"),
    [
        # A bookie may have lost all without a trace: of 3/3 two full copies are left, and of no shape of W = 2.
        (TWENTY, (2, 2), (3, 3), 18, {}, True),
        (TWENTY, (2, 2), (5, 5), 18, {}, True),
        (TWENTY, (2, 2), (6, 6), 18, {}, False),
        (TWENTY, (2, 2), (3, 2), 18, {}, False),
        (TWENTY, (2, 2), (2, 2), 18, {}, False),
        (TWENTY, (2, 2), (1, 1), 18, {}, False),
        # Of stripes there are as long runs as W, and no longer ones.
        (TWENTY, (2, 2), (4, 3), 18, {}, False),
        (runs_of(2), (2, 2), (3, 2), 4, {}, False),
        (runs_of(3), (2, 2), (4, 3), 8, {}, True),
        (runs_of(4), (2, 2), (4, 3), 8, {}, False),
        (runs_of(4), (2, 2), (4, 4), 8, {}, True),
        # So few entries are full copies of any shape.
        ({"a": [*range(5)], "b": [*range(5)]}, (2, 2), (5, 1), 3, {}, True),
        ({"a": [*range(6)], "b": [*range(6)]}, (2, 2), (5, 1), 3, {}, False),
        # Nothing tells of an entry that was acknowledged.
        (TWENTY, (2, 2), (1, 1), -1, {}, True),
        (TWENTY, (2, 2), (1, 1), 0, {}, False),
        # Stripes that are not seen: of a larger ensemble, or of more copies.
        (TWENTY, (3, 2), (4, 2), 18, {}, True),
        (TWENTY, (3, 2), (4, 3), 18, {}, True),
        (TWENTY, (3, 2), (4, 1), 18, {}, False),
        (TWENTY, (3, 2), (2, 2), 18, {}, True),
        # What is not clean may be what is left of anything.
        (TWENTY, (2, 2), (1, 1), 18, {"extra": 1}, True),
        (TWENTY, (2, 2), (1, 1), 18, {"path": SOLVED}, True),
        (TWENTY, (2, 2), (2, 2), 18, {"path": SOLVED}, False),
        # What is seen, or sure, or not explained, and what is listed already.
        (TWENTY, (2, 2), (3, 3), 18, {"sure": True}, False),
        (TWENTY, (2, 2), (3, 3), 18, {"shape": NO_SHAPE, "path": UNDECIDED}, False),
        (TWENTY, (2, 2), (3, 3), 18, {"other_ledger": np.array([0]), "other_shape": np.array([2])}, False),
    ],
)
def test_which_shapes_of_the_cluster_are_listed_beside_one_that_is_not_seen(
    held: Mapping[str, Sequence[int]], own: Shape, other: Shape, lac: int, columns: dict[str, Any], *, listed: bool
) -> None:
    """Those that the copies can be what is left of."""
    known = replace(read([held]), lac=np.array([lac]))
    # Beside a shape that some ledger shows by itself: not this one.
    shapes = [PriorShape(*shape, 0.5, ShapeSource.CLUSTER) for shape in (own, (9, 9), other)]
    given = {"other_ledger": NONE, "other_shape": NONE} | columns
    made = reconstruct._add_prior_shapes(known, explained_of(known, shapes, **given))
    found = list(zip(made.other_ledger.tolist(), made.other_shape.tolist(), strict=True))
    assert ((0, 2) in found) == (listed or "other_ledger" in columns)
    assert len(found) == len(set(found)) <= 1
    # A shape that another ledger's copies gave is none of the cluster's; nor is one that is seen in doubt.
    alone = [*shapes[:2], replace(shapes[2], source=ShapeSource.COPIES)]
    assert not len(
        reconstruct._add_prior_shapes(
            known, explained_of(known, alone, **(given | {"other_ledger": NONE, "other_shape": NONE}))
        ).other_ledger
    )
    if columns == {}:
        assert not len(reconstruct._add_prior_shapes(known, explained_of(known, shapes, 1)).other_ledger)


@pytest.mark.parametrize(
    ("lacs", "other", "listed"),
    [
        ({"a": -1, "b": 15, "c": 15}, (2, 2), True),
        ({"a": -1, "b": 15, "c": 15}, (1, 1), False),
        ({"a": -1, "b": -1, "c": 15}, (1, 1), True),
        ({"a": 0, "b": 15, "c": 15}, (2, 2), False),
        # Nobody of a striped ledger was sent all.
        ({"a": -1, "b": 15, "c": 15}, (4, 2), False),
    ],
)
def test_who_heard_of_nothing_may_be_one_too_many(lacs: dict[str, int], other: Shape, *, listed: bool) -> None:
    """It may have been replaced before anything was acknowledged, and have been sent all before that."""
    held = {name: [*range(17)] for name in lacs}
    headers = {name: [header(16, lac=lac)] for name, lac in lacs.items()}
    known = read([held], **headers)
    shapes = [PriorShape(*shape, 0.5, ShapeSource.CLUSTER) for shape in ((3, 3), other)]
    made = reconstruct._add_prior_shapes(known, explained_of(known, shapes, other_ledger=NONE, other_shape=NONE))
    assert made.other_shape.tolist() == [1] * listed


LEFTOVER: Final[dict[str, Any]] = {
    "leftover": True, "leftover_first": 5, "leftover_copied": False, "unlisted": False, "weak_end": -1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("marks", "columns", "heard", "suspected", "refusal"),
    [
        ({}, {}, 5, False, None),
        ({}, {}, 4, True, Refusal.DELETED_SOMEWHERE),
        ({"leftover": False}, {}, 4, False, None),
        ({}, {"sure": False}, 5, True, Refusal.DELETED_SOMEWHERE),
        ({}, {"missing": 1}, 5, True, Refusal.DELETED_SOMEWHERE),
        ({}, {"path": UNDECIDED}, 5, True, Refusal.DELETED_SOMEWHERE),
        ({"leftover_copied": True}, {}, 5, True, Refusal.DELETED_SOMEWHERE),
        # Logs that no index lists, of a bookie that may serve them: up to the end they add nothing to what is whole.
        ({"leftover": False, "unlisted": True}, {}, 5, False, None),
        ({"leftover": False, "unlisted": True, "weak_end": 19}, {}, 5, False, None),
        ({"leftover": False, "unlisted": True, "weak_end": 20}, {}, 5, False, Refusal.LOG_ONLY_COPIES),
        ({"leftover": False, "unlisted": True, "weak_end": 19}, {"missing": 1}, 5, False, Refusal.LOG_ONLY_COPIES),
        ({"leftover": False, "weak_end": 20}, {}, 5, False, None),
        ({"leftover": True, "unlisted": True, "weak_end": 20}, {}, 4, True, Refusal.DELETED_SOMEWHERE),
    ],
)
def test_what_logs_alone_show_of_a_deletion(
    marks: dict[str, Any], columns: dict[str, Any], heard: int, refusal: Refusal | None, *, suspected: bool
) -> None:
    """A bookie with logs alone was replaced, if all is there without it and its place went to a copy."""
    known = read([{"a": [*range(20)], "b": [*range(20)]}])
    given: dict[str, Any] = {name: np.array([value]) for name, value in (LEFTOVER | marks).items()}
    known = replace(
        known, row_lac=np.array([9, heard]), row_copied=np.zeros(2, np.bool_), copied=np.ones(1, np.bool_), **given
    )
    shapes = [PriorShape(3, 2, 0.5, ShapeSource.CLUSTER)]
    code = np.zeros(1, np.int64)
    found = reconstruct._refuse_leftovers(known, explained_of(known, shapes, **({"sure": True} | columns)), code)
    assert found.tolist() == [suspected]
    assert code.tolist() == [0 if refusal is None else CODES[refusal]]
    # What a copy heard of is not what a member heard of.
    if columns == {} and marks == {}:
        copied = replace(known, row_copied=np.array([False, True]))
        assert reconstruct._refuse_leftovers(copied, explained_of(known, shapes, sure=True), code * 0).tolist() == [
            False
        ]


@pytest.mark.parametrize(
    ("first", "copied", "suspected"), [(5, False, True), (1, False, True), (0, False, False), (5, True, False)]
)
def test_who_had_no_share_of_its_stripes_may_have_been_a_member(first: int, *, copied: bool, suspected: bool) -> None:
    """Logs that begin behind the first entry may be of a member that lacks nothing: it deleted what it got later."""
    known = read([{"a": [*range(20)], "b": [*range(20)]}])
    given: dict[str, Any] = {name: np.array([value]) for name, value in (LEFTOVER | {"leftover_first": first}).items()}
    known = replace(known, row_lac=np.array([9, 9]), copied=np.array([copied]), **given)
    made = explained_of(known, [PriorShape(3, 2, 0.5, ShapeSource.CLUSTER)], sure=True)
    assert reconstruct._refuse_leftovers(known, made, np.zeros(1, np.int64)).tolist() == [suspected]


@pytest.mark.parametrize(
    ("elsewhere", "unsound", "has_unseen"),
    [
        (0, (), False),
        (0, (False, False), False),
        (1, (False, False), True),
        (0, (False, True), True),
        (1, (True,), True),
    ],
)
def test_a_bookie_that_was_not_looked_at_is_unseen(
    elsewhere: int, unsound: Sequence[bool], *, has_unseen: bool
) -> None:
    """Whether it is known by its name, or by their number."""
    unseen = UnseenBookies(
        np.zeros(0, np.bool_), NONE, NONE, elsewhere, NONE, np.array(unsound, np.bool_)
    )  # fmt: skip
    known = read([{"a": [0]}])
    assert reconstruct._Doubts(known, unseen, Prior(()), Tail.OPEN).has_unseen == has_unseen


@pytest.mark.parametrize(("complete", "state"), [(True, "OPEN"), (False, "CLOSED")])
def test_nothing_is_left_open_where_a_bookie_was_not_read_whole(state: str, *, complete: bool) -> None:
    """Though of this ledger all was seen: its next reader may be told that there is no entry."""
    bookies = [
        bookie | {"ledgers": 9, "complete": complete or bookie["bookie"] != NAMES[0]}
        for bookie in simulator.bookies(NAMES).to_pylist()
    ]
    [found] = reconstruct.reconstruct(
        pa.Table.from_pylist(striped(30), schema=tables.COPIES),
        pa.Table.from_pylist(bookies, schema=tables.BOOKIES),
        tables.DAMAGE.empty_table(),
        replace(KNOWN, kept={0: dict.fromkeys(NAMES, 6)}),
        InferOptions(tail=Tail.OPEN),
    ).to_pylist()
    assert (found["outcome"], found["state"]) == ("restored", state)


@pytest.mark.parametrize("password", [simulator.PASSWORD, None])
def test_a_stored_lac_verifies_only_what_a_password_opens(password: bytes | None) -> None:
    """Without the ledger's password nothing is verified."""
    record = encode_lac_record(7, 12, Digest.HMAC, simulator.PASSWORD)
    plain = [row(bookie, range(20), headers=[header(19, digest=None)]) for bookie in NAMES[:3]]
    rows = [plain[0] | {"explicit_lac": 12, "lac_record": record}, *plain[1:]]
    found = recover(rows, options=InferOptions(passwords=() if password is None else (password,)))
    assert (found["digest"], found["outcome"]) == ("HMAC", "restored")
    assert found["grades"]["digest"] == ("inferred" if password is None else "verified")


def test_a_ledger_of_empty_entries_has_a_length() -> None:
    """Of 0 bytes: its last header was read."""
    found = recover(full(3, 20, headers=[header(19, length=0, size=36)]))
    assert (found["outcome"], found["reason"], found["length"]) == ("restored", None, 0)
    unread = recover(full(3, 20, headers=[header(10, length=0, size=36)]))
    assert (unread["outcome"], unread["reason"]) == ("guarded", Refusal.NO_LAST_HEADER)


def test_a_copied_ledger_that_is_clean_has_one_ensemble() -> None:
    """It is re-replicated, and fitted once."""
    copied = [one | {"headers": [header(one["last"], lac=29)]} for one in striped(30)]
    found = recover(copied)
    assert (found["class"], len(found["segments"]), found["extra"]) == ("re-replicated", 1, 0)


@pytest.mark.parametrize(("unseen", "outcome"), [(0, "restored"), (1, "restored"), (2, "restored"), (3, "guarded")])
def test_full_copies_are_whole_beside_fewer_unseen_bookies_than_w(unseen: int, outcome: str) -> None:
    """Of 3/3, the widest shape of a snapshot, however few of them its other shapes tolerate.

    Three bookies without a trace of a ledger may have its next segment alone.
    """
    found = recover(full(), names=NAMES[:3], options=InferOptions(unscanned_bookies=unseen))
    assert (found["ensemble_size"], found["write_quorum"]) == (3, 3)
    assert (found["outcome"], found["reason"]) == (
        (outcome, None) if outcome == "restored" else (outcome, Refusal.SOURCE_INCOMPLETE)
    )


@pytest.mark.parametrize("lost", [(), ("d:3181",)])
def test_a_lost_bookie_settles_no_contradiction(lost: tuple[str, ...]) -> None:
    """Two headers of one entry differ, whatever is gone: who wants to read the ledger all the same has to say so."""
    rows = [*full(2), row(NAMES[2], range(20), headers=[header(19, length=777)])]
    options = InferOptions(passwords=(simulator.PASSWORD,), lost_bookies=lost, is_doubt_accepted=True)
    found = recover(rows, options=options)
    assert (found["outcome"], found["reason"]) == ("guarded", Refusal.LENGTHS_DIFFER)
    held = recover(rows, options=replace(options, is_doubt_accepted=False))
    assert (held["outcome"], held["reason"]) == ("held", Refusal.LENGTHS_DIFFER)


def test_a_ledger_that_is_searched_has_its_shape_from_where_the_prior_has_it() -> None:
    """A bookie was replaced, another one lacks an entry: whoever stated the quorums is why they are what they are."""
    rows = [*full(1, 30), row(NAMES[1], [entry for entry in range(30) if entry != 17])]
    rows += [row(NAMES[2], range(15)), row(NAMES[3], range(15, 30))]
    found = recover(rows, prior=Prior.build(ShapeCounts(), {}, (3, 3, 2)))
    assert (found["class"], found["ensemble_size"], found["write_quorum"]) == ("solved", 3, 3)
    assert (found["grades"]["ensemble_size"], found["grades"]["write_quorum"]) == ("assumed", "assumed")
