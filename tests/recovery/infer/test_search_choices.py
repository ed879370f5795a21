"""What the search chooses of one ledger's copies: an end, a shape, a reason; each rule at both of its sides."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from recovery.infer import facts, search
from recovery.infer.copies import CopyColumns
from recovery.infer.facts import LedgerFacts
from recovery.infer.prior import LARGEST, Prior, PriorShape, ShapeSource
from recovery.infer.refusal import Refusal
from recovery.infer.search import Doubt, SearchResult, Tail, search_histories
from recovery.infer.segment_cases import NOBODY, Copies, TriedShape
from recovery.infer.solve import Solution
from recovery.model import tables
from recovery.model.groups import group_entries
from tests.recovery.infer.test_reconstruct import NAMES, header
from tests.recovery.infer.test_segment_cases import group_rows
from tests.simulation import simulator

Row = dict[str, Any]
Shape = tuple[int, int]
PLAIN: Final = Doubt(hiding=0, elsewhere=0, wiped=0, has_unseen=False, policy=Tail.INCLUSIVE)
ACKNOWLEDGED: Final = replace(PLAIN, policy=Tail.ACKNOWLEDGED)


def read(ledgers: Sequence[Mapping[str, Sequence[int]]], **headers: Sequence[Row]) -> LedgerFacts:
    """Return the facts of ledgers 0, 1, … by who holds what; headers by bookie, else that of the last entry."""
    rows = [
        simulator.copy_row(number, f"{name}:3181", own, headers=headers.get(name, [header(max(own))]))
        for number, held in enumerate(ledgers)
        for name, own in held.items()
    ]
    return facts.read(pa.Table.from_pylist(rows, schema=tables.COPIES), simulator.bookies(NAMES))


def prior_of(*shapes: Shape, stated: tuple[int, int, int] | None = None) -> Prior:
    """Return a prior of shapes of one weight; stated: the operator's word, which has a weight of its own."""
    known = tuple(PriorShape(*shape, 1 / len(shapes), ShapeSource.CLUSTER) for shape in shapes)
    return Prior(known, default=stated)


def find(
    held: Mapping[str, Sequence[int]], prior: Prior, doubt: Doubt = PLAIN, **headers: Sequence[Row]
) -> SearchResult:
    """Search the history of one ledger."""
    [result] = search_histories(read([held], **headers), [0], prior, [doubt])
    return result


def striped(entries: int, names: str = "abc", write: int = 2) -> dict[str, list[int]]:
    """Return who holds what of an ensemble that nothing happened to."""
    size = len(names)
    return {name: [e for e in range(entries) if simulator.holds(p, e, size, write)] for p, name in enumerate(names)}


def without(held: Mapping[str, Sequence[int]], name: str, *entries: int) -> dict[str, list[int]]:
    """Return the same without some entries of a bookie."""
    return {own: [e for e in kept if own != name or e not in entries] for own, kept in held.items()}


ODD: Final = without(striped(30), "a", 12)
"""A member lacks one entry in the middle."""


@pytest.mark.parametrize("most", [1000, 30])
def test_a_batch_decides_as_each_ledger_alone(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside one of too many runs, and one that no shape may explain while a bookie was not looked at."""
    crumbs = {"a": [*range(0, 60, 2)], "b": [*range(1, 61, 2)]}
    whole = {"a": [*range(9)], "b": [*range(9)], "c": [0, 2, 5, 7]}
    doubts = [replace(PLAIN, elsewhere=1, has_unseen=True), PLAIN, PLAIN, replace(PLAIN, elsewhere=1), PLAIN]
    held = [whole, crumbs, ODD, whole, {**ODD, "d": [3, 4]}]
    monkeypatch.setattr(search, "MAX_RUNS", most)
    prior = prior_of((3, 2), (2, 2))
    known = read(held)
    order = known.ledger.tolist()
    result_of = dict(zip(order, search_histories(known, range(5), prior, [doubts[n] for n in order]), strict=True))
    together = [result_of[number] for number in range(5)]
    apart = [find(own, prior, doubt) for own, doubt in zip(held, doubts, strict=True)]
    assert [(r.refusal, r.end, r.length, r.alternatives) for r in together] == [
        (r.refusal, r.end, r.length, r.alternatives) for r in apart
    ]
    for one, other in zip(together, apart, strict=True):
        assert (one.solution is None) == (other.solution is None)
        if one.solution is not None and other.solution is not None:
            assert one.solution.members.tolist() == other.solution.members.tolist()
    assert together[0].refusal is Refusal.SOURCE_INCOMPLETE
    assert (together[1].refusal is Refusal.FRAGMENTED) == (most < 60)
    assert together[0].end == 8
    assert together[1].end == 59


@pytest.mark.parametrize(("most", "refusal"), [(5, None), (4, Refusal.FRAGMENTED)])
def test_as_many_runs_as_are_laid_out_are_searched(
    most: int, refusal: Refusal | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more is left alone."""
    monkeypatch.setattr(search, "MAX_RUNS", most)
    assert find({"a": [*range(9)], "b": [*range(9)], "c": [0, 2, 5, 6]}, prior_of((2, 2), (3, 3))).refusal is refusal


# An entry that nobody holds, and one behind it: 9, 10 on one bookie of the three that hold all before.


def with_hole(hole: int, behind: int = 1, names: str = "a") -> dict[str, list[int]]:
    """Return three full copies up to a hole, and entries behind it on some bookies."""
    return {n: [*range(hole), *(range(hole + 1, hole + 1 + behind) if n in names else ())] for n in "abc"}


HEADS: Final = [header(e, lac=-1) for e in range(20)]


def end_of(held: Mapping[str, Sequence[int]], prior: Prior, doubt: Doubt = PLAIN) -> int | None:
    """Return where a ledger without a LAC ends; None: that cannot be said."""
    heads = {name: [HEADS[e] for e in own] for name, own in held.items()}
    result = find(held, prior, doubt, **heads)
    return None if result.refusal in (Refusal.RAGGED_TAIL, Refusal.NOT_FROM_ZERO) else result.end


@pytest.mark.parametrize("behind", [1, 3])
@pytest.mark.parametrize(
    ("doubt", "few", "enough"),
    [
        (PLAIN, 8, 8),
        (replace(PLAIN, hiding=1), 8, None),
        (replace(PLAIN, hiding=2), None, None),
        (replace(PLAIN, has_unseen=True), 8, None),
        (replace(PLAIN, wiped=1), 8, None),
        (replace(PLAIN, wiped=2), 8, None),
        (replace(PLAIN, wiped=3), None, None),
    ],
)
def test_a_hole_that_nobody_can_have_had_ends_the_ledger(
    doubt: Doubt, few: int | None, enough: int | None, behind: int
) -> None:
    """Nobody holds entry 9, of which three are told; newcomers hold entry 10, as many as acknowledge it, or fewer."""
    newcomers = [[10]] * behind
    copies = copies_of(range(9), range(9), range(9), *newcomers)
    later = [3, 4, 5] if behind == 3 else [0, 1, 3]
    history = solution_of((3, 3), [0, 10], [[0, 1, 2], later])
    prior = Prior((), least_acks={(3, 3): 3})
    assert search._choose_end(copies, history, 10, -1, prior, doubt) == (few if behind == 1 else enough)
    # A member that nobody shows, or that lost another entry, may have had it.
    blank = solution_of((3, 3), [0, 10], [[0, 1, NOBODY], later])
    lossy = copies_of([*range(3), *range(4, 9)], range(9), range(9), *newcomers)
    for own, found in ((copies, blank), (lossy, history)):
        assert search._choose_end(own, found, 10, -1, prior, PLAIN) == (8 if behind == 1 else None)


@pytest.mark.parametrize("lost", [True, False])
def test_a_member_that_lost_a_later_entry_denies_no_earlier_one(*, lost: bool) -> None:
    """Nobody has entry 9 of a 4/2 ledger, and those who have 11 were sent 10: where that is gone, so may 9 be.

    Where 10 is there, nothing was lost: no bookie got 9, and BookKeeper's own recovery stops before it.
    """
    held = without(without(striped(12, "abcd"), "b", 9), "c", 9, 10)
    history = solution_of((4, 2), [0], [[0, 1, 2, 3]])
    copies = copies_of(*(without(held, "d", 10) if lost else held).values())
    assert search._choose_end(copies, history, 11, 8, prior_of((4, 2)), PLAIN) == (None if lost else 8)


def test_one_shape_that_may_have_had_the_entry_is_enough_to_leave_the_end_open() -> None:
    """A ledger of three entries on one bookie, of which others have the first: 1/1 would have lost the second."""
    stated = prior_of((3, 3), stated=(3, 3, 2))
    assert end_of(with_hole(9), stated) == 8
    assert end_of(with_hole(1), stated) is None


def test_every_shape_that_explains_the_copies_has_to_end_it() -> None:
    """Three full copies may be what is left of 4/4, of which nobody shows one: that one may have had the hole."""
    heavy = prior_of((3, 3), stated=(3, 3, 2))
    assert end_of(with_hole(9), heavy) == 8
    lighter = replace(heavy, shapes=(*heavy.shapes, PriorShape(4, 4, 1.0, ShapeSource.CLUSTER)))
    # A position that nobody shows costs nothing where a bookie was not looked at.
    seen = replace(PLAIN, has_unseen=True)
    assert end_of(with_hole(9), heavy, seen) == 8
    assert end_of(with_hole(9, names="abc"), lighter, seen) is None


def test_what_fewer_acknowledged_is_cut_by_every_shape_or_not() -> None:
    """The last entry is on one bookie of three: enough if A may be 1, as it is of one of two shapes."""
    held = {**{n: [*range(9)] for n in "bc"}, "a": [*range(10)]}
    assert end_of(held, Prior(prior_of((3, 3)).shapes, least_acks={(3, 3): 2}), ACKNOWLEDGED) == 8
    both = prior_of((3, 3), (4, 3))
    assert end_of(held, replace(both, least_acks={(3, 3): 2, (4, 3): 2}), ACKNOWLEDGED) == 8
    assert end_of(held, replace(both, least_acks={(3, 3): 1, (4, 3): 1}), ACKNOWLEDGED) == 9


def test_the_last_entry_alone_may_be_what_was_not_acknowledged() -> None:
    """The LAC of its header is the entry before it; asked for what was acknowledged, what one of three has is cut."""
    held = {**{n: [*range(9)] for n in "bc"}, "a": [*range(10)]}
    prior = Prior(prior_of((3, 3)).shapes, least_acks={(3, 3): 2})
    assert find(held, prior, ACKNOWLEDGED).end == 8
    assert find(held, prior).end == 9
    assert find(held, prior, replace(ACKNOWLEDGED, hiding=1)).end == 9
    assert find(held, prior, replace(ACKNOWLEDGED, wiped=1)).end == 9


@pytest.mark.parametrize("ack", [2, 3])
@pytest.mark.parametrize(
    ("doubt", "wanted"),
    [
        (PLAIN, 8),
        (replace(PLAIN, wiped=1), 10),
        (replace(PLAIN, hiding=1), 10),
        (replace(PLAIN, has_unseen=True), 10),
    ],
    ids=["all seen", "wiped", "hidden", "not looked at"],
)
def test_a_late_copy_ends_a_ledger_at_a_stated_ack_quorum_only_if_all_was_seen(
    doubt: Doubt, wanted: int, ack: int
) -> None:
    """Nobody who wrote shows as late a LAC as a copy of the last segment: what one of three has above it is cut."""
    held = {"a": [*range(11)], "b": [*range(9)], "c": [*range(9)]}
    late = {"a": [header(10, lac=-1)], "b": [header(8, lac=-1)], "c": [header(0, lac=8), header(8, lac=8)]}
    late["a"].insert(0, header(8, lac=-1))
    stated = prior_of((3, 3), stated=(3, 3, ack))
    assert find(held, stated, doubt, **late).end == wanted
    if doubt is PLAIN:
        # Without the copy, without the statement, or beside another shape that may be meant, nothing is cut.
        assert find(held, stated, doubt, **{**late, "c": [header(8, lac=7)]}).end == 10
        assert find(held, prior_of((3, 3)), doubt, **late).end == 10
        assert find(held, replace(stated, default=(4, 3, ack)), doubt, **late).end == 10
        copied = {**late, "a": [header(9, lac=-1)], "b": late["c"]}
        assert find({**held, "a": [*range(10)]}, stated, doubt, **copied).end == 9


def test_a_late_copy_of_an_earlier_segment_ends_nothing() -> None:
    """Segments before the last are copied of open ledgers, too; one whose first entry was copied is the last."""
    held = {"a": [*range(13)], "b": [*range(6)], "c": [*range(11)], "d": [*range(6, 11)]}
    stated = prior_of((3, 3), stated=(3, 3, 2))
    plain = {n: [header(max(own), lac=-1), header(10, lac=-1)][:: -1 if n == "a" else 1] for n, own in held.items()}
    plain["a"] = [header(10, lac=-1), header(12, lac=-1)]
    plain["c"] = [header(10, lac=-1)]
    for copied, wanted in ((5, 12), (6, 10), (10, 10)):
        heads = {
            **plain,
            "b" if copied == 5 else "d": [header(copied, lac=10), *([header(10, lac=10)] if copied > 5 else [])],
        }
        if copied == 6:
            heads["d"] = [header(6, lac=10), header(10, lac=9)]
        assert find(held, stated, PLAIN, **heads).end == wanted, copied


def test_ledgers_of_empty_entries_have_a_length() -> None:
    """Of 0 bytes: at the end, and at the end that a hole leaves."""
    stated = prior_of((3, 3), stated=(3, 3, 2))
    none = [header(e, lac=-1, length=0, size=36) for e in range(20)]
    for held, end in (({**with_hole(9, 0), "a": [*range(7), 8]}, 8), (with_hole(9), 8)):
        heads = {name: [none[e] for e in own] for name, own in held.items()}
        result = find(held, stated, PLAIN, **heads)
        assert (result.refusal, result.end, result.length) == (None, end, 0)


def test_an_end_of_which_no_header_was_read_cannot_be_said() -> None:
    """The hole ends it, and neither the entry before it nor the hole shows how long it is."""
    heads = {n: [HEADS[own[-1]]] if n == "a" else [HEADS[2]] for n, own in with_hole(9).items()}
    result = find(with_hole(9), prior_of((3, 3), stated=(3, 3, 2)), PLAIN, **heads)
    assert (result.refusal, result.end, result.length) == (Refusal.RAGGED_TAIL, 10, 110)


# The rules by themselves.


def solution_of(shape: Shape, first: Sequence[int], members: Sequence[Sequence[int]], **columns: Any) -> Solution:
    """Return a history that leaves nothing open, but as given."""
    count = len(first)
    plain = {"missing": 0, "extra": 0, "thin": 0, "unnamed": 0, "lacking": np.zeros(count, np.int64)}
    return Solution(*shape, 0.0, np.array(first), np.array(first), np.array(members), **{**plain, **columns})


def copies_of(*held: Sequence[int], copied: Sequence[int] = ()) -> Copies:
    """Return the rows of one ledger; copied: which of them re-replication made."""
    return Copies(np.arange(len(held)), np.isin(np.arange(len(held)), copied), group_rows(held))


def case_of(held: Mapping[str, Sequence[int]], prior: Prior, doubt: Doubt, **headers: Sequence[Row]) -> search._Case:
    """Return one ledger that is searched."""
    known = read([held], **headers)
    rows = known.copies.pick(np.zeros(1, np.int64))[1]
    [copies] = Copies.split(known.copies, known.row_bookie[rows], known.row_copied[rows])
    return search._Case(known, 0, doubt, prior, copies, *search._CopyPattern.read_all(known.copies))


@pytest.mark.parametrize(("least", "end"), [(1, 9), (2, 8), (3, 8)])
def test_a_shape_that_would_end_it_later_leaves_the_end_open(least: int, end: int) -> None:
    """One that would end it there, or before, does not."""
    held = {"a": [*range(10)], "b": [*range(9)], "c": [*range(7)]}
    prior = Prior(prior_of((3, 3), (3, 2)).shapes, least_acks={(3, 3): 2, (3, 2): least})
    case = case_of(held, prior, ACKNOWLEDGED, **{n: [HEADS[e] for e in own] for n, own in held.items()})
    likely = [solution_of(shape, [0], [[0, 1, 2]]) for shape in ((3, 3), (3, 2))]
    result = case.choose(likely, prior)
    assert (result.end, result.refusal is Refusal.RAGGED_TAIL) == (end, end == 9)
    # One that costs much more is not asked.
    assert case_of(held, prior, ACKNOWLEDGED).choose([likely[0], replace(likely[1], cost=9.0)], prior).end == 8


@pytest.mark.parametrize(
    ("held", "heads", "end", "refusal"),
    [
        # Entry 0 alone is left; and its length is not shown.
        ({"a": [0, 2], "b": [0], "c": [0]}, [0, 2], 0, None),
        ({"a": [0, 2], "b": [0], "c": [0]}, [2], 2, Refusal.RAGGED_TAIL),
        # No bookie has the first entry.
        ({"a": [1, 2], "b": [1], "c": [1]}, [2], 2, Refusal.NOT_FROM_ZERO),
        ({"a": [1, 2], "b": [1], "c": [1]}, [1, 2], 2, Refusal.NOT_FROM_ZERO),
    ],
)
def test_a_ledger_may_end_at_its_first_entry(
    held: Mapping[str, Sequence[int]], heads: Sequence[int], end: int, refusal: Refusal | None
) -> None:
    """But not before it."""
    prior = prior_of((3, 3), stated=(3, 3, 2))
    case = case_of(held, prior, PLAIN, a=[HEADS[e] for e in heads], b=[], c=[])
    result = case.choose([solution_of((3, 3), [0], [[0, 1, 2]])], prior)
    assert (result.end, result.refusal) == (end, refusal)


@pytest.mark.parametrize(("lac", "end"), [(-1, 8), (7, 8), (8, 8), (9, 10)])
def test_nothing_is_cut_off_up_to_a_lac(lac: int, end: int) -> None:
    """An entry that no bookie holds any longer, and that a LAC covers, was acknowledged."""
    heads = {name: [HEADS[e] for e in own] for name, own in with_hole(9).items()}
    heads["a"][-1] = header(10, lac=lac)
    assert find(with_hole(9), prior_of((3, 3), stated=(3, 3, 2)), PLAIN, **heads).end == end


@pytest.mark.parametrize(("copied", "begin", "may_be"), [(9, 9, True), (9, 10, False), (10, 9, True), (-1, 0, False)])
def test_the_last_segment_may_be_closed_where_a_copy_of_it_has_the_largest_lac(
    copied: int, begin: int, *, may_be: bool
) -> None:
    """From its first entry on."""
    case = case_of(striped(12), prior_of((3, 2)), PLAIN)
    case._known = replace(case._known, newest_copy=np.array([copied]))
    solution = solution_of((3, 2), [0, begin] if begin else [0], [[0, 1, 2]] * (2 if begin else 1))
    assert case._may_be_closed_before(solution) == may_be


def test_a_forced_history_and_a_second_one_are_doubts() -> None:
    """Each by itself; of neither there is none."""
    held = {"a": [*range(10)], "b": [*range(10)]}
    case = case_of(held, prior_of((3, 3)), PLAIN)
    plain = solution_of((2, 2), [0], [[0, 1]])
    assert case._find_doubt(plain, case.held_copies, prior_of((3, 3))) is None
    forced = replace(plain, missing=3, extra=3)
    assert case._find_doubt(forced, case.held_copies, prior_of((3, 3))) is Refusal.TWO_HISTORIES
    alone = replace(plain, members=np.array([[0, NOBODY]]))
    assert case._find_doubt(alone, case.held_copies, prior_of((3, 3))) is Refusal.TWO_HISTORIES
    # The choice asks for it, where the end is no doubt.
    assert [case.choose([one], prior_of((3, 3))).refusal for one in (plain, alone)] == [None, Refusal.TWO_HISTORIES]


def test_a_ledger_of_one_shape_beside_one_of_several_stops_none() -> None:
    """Each is tried by all of its shapes."""
    held = [{"a": [0, 1, 3]}, {"a": [0, 1, 3], "b": [0, 1, 3]}, {"a": [0, 1, 2], "b": [0, 2, 3], "c": [0, 1, 3]}]
    known = read(held)
    both = dict(zip(known.ledger.tolist(), search_histories(known, range(3), prior_of(), [PLAIN] * 3), strict=True))
    alone = [find(own, prior_of()) for own in held]
    assert [both[number].alternatives for number in range(3)] == [one.alternatives for one in alone]
    assert any(one.alternatives for one in alone)


def test_who_came_later_lost_nothing_from_before() -> None:
    """A newcomer lacks what was written before its segment."""
    copies = copies_of(range(10), range(5), range(5, 10))
    history = solution_of((2, 2), [0, 5], [[0, 1], [0, 2]])
    assert search._find_lossy(copies, history, 9).tolist() == [False, False, False]


@pytest.mark.parametrize(
    ("missing", "extra", "known", "forced"),
    [(3, 3, (), True), (3, 2, (), False), (3, 3, ((2, 2),), False), (0, 0, (), False)],
)
def test_an_unsupported_shape_must_explain_three_copies_in_four(
    missing: int, extra: int, known: Sequence[Shape], *, forced: bool
) -> None:
    """Of twenty: five that are missing or too many may be; stripes speak for themselves."""
    copies = copies_of(range(10), range(10))
    prior = prior_of(*known)
    assert search._is_forced(copies, solution_of((2, 2), [0], [[0, 1]], missing=missing, extra=extra), prior) == forced
    striped = solution_of((3, 2), [0], [[0, 1, NOBODY]], missing=missing, extra=extra)
    assert not search._is_forced(copies, striped, prior)


SHOWN: Final = [TriedShape(3, 2, 0.0, shown=True), TriedShape(2, 2, 1.0)]
NOT_SHOWN: Final = [TriedShape(4, 2, 0.0, shown=True), TriedShape(3, 2, 1.0)]


@pytest.mark.parametrize(
    ("shapes", "elsewhere", "lacking", "columns", "copied", "unsettled"),
    [
        (SHOWN, 0, [9], {"missing": 9}, (), False),
        (SHOWN, 1, [1, 1], {}, (), False),
        (SHOWN, 2, [2, 1], {}, (), True),
        (SHOWN, 1, [0, 1], {}, (), False),
        (SHOWN, 1, [2], {"missing": 9}, (), False),
        (NOT_SHOWN, 1, [1], {}, (), False),
        (NOT_SHOWN, 1, [1, 2], {}, (), True),
        (NOT_SHOWN, 1, [2], {}, (), True),
        (NOT_SHOWN, 1, [1], {"missing": 4, "unnamed": 4}, (), False),
        (NOT_SHOWN, 1, [1], {"missing": 5, "unnamed": 4}, (), True),
        (NOT_SHOWN, 1, [1], {"extra": 2}, (), False),
        (NOT_SHOWN, 1, [1], {"extra": 3}, (), True),
        (NOT_SHOWN, 1, [1], {"extra": 3}, (0,), False),
        ([TriedShape(3, 2, 0.0)], 1, [2], {}, (), True),
    ],
)
def test_who_may_be_a_member_that_nobody_looked_at(
    shapes: Sequence[TriedShape],
    elsewhere: int,
    lacking: Sequence[int],
    columns: Mapping[str, int],
    copied: Sequence[int],
    *,
    unsettled: bool,
) -> None:
    """With more such bookies than positions without one it is open who they are; what is not shown must be whole."""
    copies = copies_of(range(10), range(10), copied=copied)
    members = [[0, 1, NOBODY]] * len(lacking)
    first = list(range(len(lacking)))
    chosen = solution_of((3, 2), first, members, **{**columns, "lacking": np.array(lacking)})
    known = read([{"a": [0], "b": [0]}])
    doubt = replace(PLAIN, elsewhere=elsewhere)
    assert search._is_unsettled(known, 0, copies, chosen, shapes, doubt) == unsettled


@pytest.mark.parametrize(
    ("segments", "heads", "second"),
    [
        # It begins where the second segment does, has no LAC of it, and shares an entry with a member.
        ([0, 5], [header(5, lac=4), header(6, lac=4)], False),
        ([0, 5], [header(5, lac=4), header(6, lac=5)], True),
        ([0, 6], [header(5, lac=4), header(6, lac=4)], True),
        ([0], [header(5, lac=4), header(6, lac=4)], True),
        ([0, 5], [header(6, lac=4)], False),
    ],
)
def test_who_stands_beside_an_ensemble_was_replaced_before_any_answer(
    segments: Sequence[int], heads: Sequence[Row], *, second: bool
) -> None:
    """Else it shows a second history of the id."""
    held = {"a": [*range(7)], "b": [*range(7)], "c": [5, 6]}
    both = [header(e) for e in (0, 5, 6)]
    known = read([held], a=both, b=both, c=heads)
    solution = solution_of((2, 2), segments, [[0, 1]] * len(segments))
    copies = copies_of(*held.values())
    assert search._has_second_history(copies, known, slice(0, 3), solution) == second
    # Re-replication leaves such rows.
    assert not search._has_second_history(copies_of(*held.values(), copied=[0]), known, slice(0, 3), solution)


@pytest.mark.parametrize(
    ("members_end", "heads", "second"),
    [
        # A member's last entry is the stranger's first, or its last; else nothing shows that they are the same.
        (5, [header(5, lac=-1), header(7, lac=-1)], False),
        (7, [header(5, lac=-1), header(7, lac=-1)], False),
        (6, [header(5, lac=-1), header(7, lac=-1)], True),
        (5, [header(7, lac=-1)], True),
        (7, [header(7, lac=-1)], False),
    ],
)
def test_a_stranger_shares_an_entry_whose_header_was_read(
    members_end: int, heads: Sequence[Row], *, second: bool
) -> None:
    """Its first, if that header was read, or its last."""
    held = {"a": [*range(members_end + 1)], "b": [*range(members_end + 1)], "c": [5, 6, 7]}
    known = read([held], c=heads)
    solution = solution_of((2, 2), [0, 5], [[0, 1]] * 2)
    assert search._has_second_history(copies_of(*held.values()), known, slice(0, 3), solution) == second


@pytest.mark.parametrize(
    ("heads", "length"),
    [
        ([header(4, length=50)], 50),
        ([header(4, length=50), header(5, length=61)], 51),
        ([header(5, length=60)], 50),
        ([header(5, length=60), header(6, length=70)], 50),
        ([header(5, length=20, size=36)], 20),
        ([header(5, length=60, digest=None)], -1),
        ([header(3, length=40), header(6, length=70)], -1),
        ([header(3, length=40)], -1),
    ],
)
def test_the_length_up_to_an_entry_is_the_largest_that_is_shown(heads: Sequence[Row], length: int) -> None:
    """By a header of it, or of the entry behind it, whose own bytes are known."""
    own = [*range(7)]
    known = read([{"a": own}, {"a": own}], a=heads)
    assert search.read_length(known, 0, 4) == search.read_length(known, 1, 4) == length


def pattern_of(*held: Sequence[int]) -> search._CopyPattern:
    """Return what the copies of one ledger look like."""
    groups = group_entries(
        np.concatenate([np.array(row, np.int64) for row in held]), np.repeat(np.arange(len(held)), [*map(len, held)])
    )
    [pattern] = search._CopyPattern.read_all(CopyColumns.sum_up(1, np.zeros(len(held), np.int64), *groups))
    return pattern


def test_stripes_are_clear_from_three_runs_and_three_entries_in_ten_on() -> None:
    """Two runs, or a smaller share, are listed as a chance; three kinds at most, those of most entries first."""
    assert pattern_of([0, 2, 4], range(7)).stripes == [(2, 1, True)]
    assert pattern_of([0, 2, 4], range(8)).stripes == [(2, 1, False)]
    assert pattern_of([0, 2], range(3)).stripes == [(2, 1, False)]
    assert pattern_of(range(9)).stripes == []
    kinds = [[*range(0, 12, 2)], [*range(0, 15, 3)], [*range(0, 16, 4)], [*range(0, 15, 5)]]
    assert [stripe[:2] for stripe in pattern_of(*kinds, [0, 1, 20, 30, 40, 41, 42, 50]).stripes] == [
        (2, 1),
        (3, 1),
        (4, 1),
    ]


def test_how_many_have_most_entries_is_asked_of_entries_that_somebody_has() -> None:
    """A hole longer than all else says nothing."""
    pattern = pattern_of([*range(5), 100], range(6), range(2))
    assert (pattern.usual, pattern.highest, pattern.holders) == (2, 3, 3)


def test_which_shapes_are_tried_and_at_what_price() -> None:
    """The prior's by weight, the ledger's own stripes, and what the number of copies says; none larger than bookies."""
    pattern = search._CopyPattern([(3, 2, True), (4, 2, False), (6, 2, True)], 2, 3, 4)
    weights = {(5, 5): 1.0, (5, 4): 0.5, (4, 3): 1e-9, (3, 2): 0.5, (5, 1): 0.0, (6, 6): 1.0}
    prior = Prior(tuple(PriorShape(*shape, weight, ShapeSource.CLUSTER) for shape, weight in weights.items()))
    tried = {shape[:2]: (round(shape.penalty, 2), shape.shown) for shape in pattern.list_shapes(prior, 5, 2.5)}
    assert tried == {
        (5, 5): (0.0, False), (3, 2): (0.0, True), (5, 4): (0.21, False), (4, 3): (1.0, False), (5, 1): (1.0, False),
        (4, 2): (2.0, False), (2, 2): (2.5, False), (3, 3): (2.5, False), (1, 1): (2.5, False),
    }  # fmt: skip
    assert len(NAMES) < LARGEST


def test_who_lost_an_entry_may_have_had_any() -> None:
    """Of the last entries alone, where there are very many: what is missing before them says nothing of the end."""
    copies = copies_of(range(10), [*range(3), *range(4, 10)], [*range(9)])
    history = solution_of((3, 3), [0], [[0, 1, 2]])
    assert search._find_lossy(copies, history, 9).tolist() == [False, True, False]


@pytest.mark.parametrize(("tail", "lossy"), [(7, True), (6, True), (5, False)])
def test_only_the_last_entries_are_looked_through(tail: int, monkeypatch: pytest.MonkeyPatch, *, lossy: bool) -> None:
    """In a segment that began before them, too."""
    monkeypatch.setattr(search, "TAIL", tail)
    copies = copies_of(range(10), [0, 1, 2, 3, 5, 6, 7, 8, 9])
    history = solution_of((2, 2), [0, 2], [[0, 1]] * 2)
    assert search._find_lossy(copies, history, 9).tolist() == [False, lossy]
