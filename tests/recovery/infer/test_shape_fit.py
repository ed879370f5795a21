"""Which shape explains a ledger best of those that are tried, and which others explain it, too."""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Final

import numpy as np
import pyarrow as pa
import pytest

from recovery.infer import facts
from recovery.infer.facts import LedgerFacts
from recovery.infer.prior import PriorShape, ShapeSource
from recovery.infer.shape_fit import CLEAN, NO_SHAPE, UNDECIDED, Explained, explain
from recovery.model import tables
from tests.recovery.infer.test_clean import draw
from tests.recovery.infer.test_reconstruct import header
from tests.simulation import simulator
from tests.simulation.simulator import copy_row, holds

Shape = tuple[int, int]
NAMES: Final = tuple(f"{name}:3181" for name in "abcdefghij")


def read(*ledgers: Sequence[Sequence[int]]) -> LedgerFacts:
    """Return what is known of ledgers 0, 1, … by the rows of each."""
    rows = [
        copy_row(number, name, own, headers=[header(max(own))])
        for number, held in enumerate(ledgers)
        for name, own in zip(NAMES, held, strict=False)
    ]
    return facts.read(pa.Table.from_pylist(rows, schema=tables.COPIES), simulator.bookies(NAMES))


def explain_by(
    known: LedgerFacts, shapes: Sequence[Shape], tolerances: Sequence[int] | None = None, elsewhere: int = 0
) -> Explained:
    """Explain all ledgers by some shapes."""
    prior = [PriorShape(*shape, 0.1, ShapeSource.CLUSTER) for shape in shapes]
    tried = np.ones(known.count, np.bool_)
    return explain(known, prior, tried, tolerances or [9] * len(shapes), elsewhere)


def striped(entries: int, size: int, write: int) -> list[list[int]]:
    """Return the copies of an ensemble that nothing happened to."""
    shares = [[e for e in range(entries) if holds(position, e, size, write)] for position in range(size)]
    return [own for own in shares if own]


def shapes_of(explained: Explained) -> list[Shape | None]:
    """Return the shape of each ledger."""
    shapes: list[Shape | None] = [(shape.ensemble, shape.write) for shape in explained.shapes]
    return [None if number == NO_SHAPE else shapes[number] for number in explained.shape.tolist()]


def test_the_shape_that_leaves_the_fewest_copies_over_is_taken() -> None:
    """Of equals the one of fewer segments, then the one of the prior that comes first; the others are listed."""
    rng = Random(2)
    shapes = [(3, 2), (2, 2), (3, 3), (1, 1), (4, 2), (2, 1), (4, 3)]
    drawn = [rows for rows, *_ in (draw(rng) for _ in range(150)) if rows and len(rows) <= len(NAMES)]
    known = read(*drawn)
    found = explain_by(known, shapes)
    alone = [explain_by(known, [shape]) for shape in shapes]
    segments = [np.bincount(one.segments.ledger, minlength=known.count) for one in alone]
    listed = Counter(zip(found.other_ledger.tolist(), found.other_shape.tolist(), strict=True))
    seen: Counter[int] = Counter()
    for ledger in np.flatnonzero(found.shape >= found.observed).tolist():
        fits = [
            (int(one.extra[ledger]), int(count[ledger]), number)
            for number, (one, count) in enumerate(zip(alone, segments, strict=True))
            if one.shape[ledger] != NO_SHAPE
        ]
        assert found.shape[ledger] - found.observed == min(fits)[2]
        assert found.extra[ledger] == min(fits)[0]
        others = {number + found.observed for *_, number in fits} - {found.shape[ledger]}
        assert {shape for own, shape in listed if own == ledger} == others
        seen[len(fits)] += 1
    assert seen[1] > 10
    assert seen[2] > 3
    assert max(listed.values()) == 1


@pytest.mark.parametrize("shapes", [[(2, 1), (4, 1)], [(4, 1), (2, 1)]])
def test_the_shape_of_fewer_segments_is_taken(shapes: Sequence[Shape]) -> None:
    """Four bookies with an entry each are one ensemble of four, or two of two: whichever the prior has first."""
    found = explain_by(read([[0], [1], [2], [3]]), shapes)
    assert shapes_of(found) == [(4, 1)]
    assert len(found.segments.ledger) == 1
    assert [found.shapes[number].ensemble for number in found.other_shape.tolist()] == [2]


def test_only_ledgers_that_are_to_be_tried_are() -> None:
    """Those that show their shape, and those that do not."""
    long, short = striped(30, 3, 2), [[0], [0]]
    known = read(long, long, short, short)
    tried = np.isin(known.ledger, [0, 2])
    found = explain(known, [PriorShape(2, 2, 0.1, ShapeSource.CLUSTER)], tried, [9], 0)
    path = dict(zip(known.ledger.tolist(), found.path.tolist(), strict=True))
    assert path == {0: CLEAN, 1: UNDECIDED, 2: CLEAN, 3: UNDECIDED}
    assert [(shape.ensemble, shape.write) for shape in found.shapes] == [(3, 2), (2, 2)]
    assert found.observed == 1
    seen = dict(zip(known.ledger.tolist(), zip(found.seen.tolist(), found.sure.tolist(), strict=True), strict=True))
    assert seen == {0: (True, True), 1: (False, False), 2: (False, False), 3: (False, False)}


def test_a_shape_that_is_seen_may_change_with_every_entry() -> None:
    """One that is not seen may not: stripes look like that."""
    gone = [[1, 3, 5], [0], [2], [4], [6]]
    assert shapes_of(explain_by(read(gone), [(2, 2)])) == [(2, 1)]
    assert shapes_of(explain_by(read([[0], [0, 1], [1]]), [(2, 2)])) == [None]
    assert shapes_of(explain_by(read([[0, 1], [*range(4)], [2, 3]]), [(2, 2)])) == [(2, 2)]


def test_no_shape_is_larger_than_the_cluster_or_hides_more_than_it_may() -> None:
    """An ensemble may have as many bookies as there are, and hide as many of them as are tolerated."""
    known = read([[0], [0]])
    assert shapes_of(explain_by(known, [(11, 2)])) == [None]
    assert shapes_of(explain_by(known, [(10, 2)])) == [(10, 2)]
    for elsewhere, shape in ((0, (2, 2)), (1, (2, 2)), (2, (3, 2)), (3, None)):
        assert shapes_of(explain_by(known, [(2, 2), (3, 2)], [1, 2], elsewhere)) == [shape]
    # Runs as long as W are of that shape.
    assert shapes_of(explain_by(read(striped(4, 3, 2)), [(3, 2)])) == [(3, 2)]


def test_single_entries_that_go_round_may_be_one_bookie_after_another() -> None:
    """1/1 is listed beside E/1, whether the cluster has it or not; nothing of it is sure, or seen."""
    known = read(striped(30, 2, 1))
    for shapes, other in (([(2, 2)], 2), ([(1, 1), (2, 2)], 1), ([(2, 2), (1, 1)], 2)):
        found = explain_by(known, shapes)
        assert shapes_of(found) == [(2, 1)]
        assert (found.other_ledger.tolist(), found.other_shape.tolist()) == ([0], [other])
        assert (found.shapes[other].ensemble, found.shapes[other].write) == (1, 1)
        assert (found.sure.tolist(), found.seen.tolist()) == ([False], [False])
    wide = explain_by(read(striped(30, 3, 2)), [(1, 1)])
    assert (wide.other_ledger.tolist(), wide.sure.tolist(), wide.seen.tolist()) == ([], [True], [True])
