"""Each ledger against the shapes that it may have; the explanation that assumes least is kept, others are listed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from recovery.infer.clean import decide
from recovery.infer.copies import CopyColumns, Ints, Mask, number_within
from recovery.infer.facts import LedgerFacts
from recovery.infer.prior import LARGEST, PriorShape, ShapeSource, read_shapes

NO_SHAPE: Final = -1
UNDECIDED, CLEAN, RE_REPLICATED, SOLVED = range(4)
PATHS: Final = ("undecided", "clean", "re-replicated", "solved")
"""The paths that can explain a ledger, by their stored names."""


@dataclass(frozen=True, slots=True)
class LedgerSegments:
    """Segments of many ledgers, sorted by ledger and first entry.

    Attributes:
        ledger, first: of each segment.
        low: the takeovers that begin it truly happened in [low, first].
        size: E.
        members: bookies by number, `size` for each segment, in order of position; -1: nothing shows one.
    """

    ledger: Ints
    first: Ints
    low: Ints
    size: Ints
    members: Ints

    @classmethod
    def join(cls, parts: "Sequence[LedgerSegments]") -> "LedgerSegments":
        """Return the segments of several parts, each sorted and of other ledgers."""
        whole = cls(*(_concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__))
        order = np.argsort(whole.ledger, kind="stable")
        if np.array_equal(order, np.arange(len(order))):
            return whole
        begin = np.cumsum(whole.size) - whole.size
        size = whole.size[order]
        cell = np.repeat(begin[order], size) + number_within(np.repeat(np.arange(len(order)), size))
        return cls(whole.ledger[order], whole.first[order], whole.low[order], size, whole.members[cell])

    def select(self, kept: Mask) -> "LedgerSegments":
        """Return some segments."""
        members = self.members[np.repeat(kept, self.size)]
        return LedgerSegments(self.ledger[kept], self.first[kept], self.low[kept], self.size[kept], members)


@dataclass(frozen=True, slots=True)
class Explained:
    """The explanation of each ledger.

    Attributes:
        shapes: all that were tried; the first `observed` ones are what ledgers show by themselves.
        shape: number of each ledger's, or NO_SHAPE.
        path: the path that explained it, a place in `PATHS`.
        end, length: the last entry, and the bytes up to it; from the copies, unless the search found another.
        missing: copies that the segments promise and no bookie has.
        extra: copies that the segments do not need.
        sure: the stripes are seen, and which position each row is of.
        segments: of all explained ledgers.
        other_ledger, other_shape: shapes that explain a ledger as well, in no order.
    """

    shapes: Sequence[PriorShape]
    observed: int
    shape: Ints
    path: Ints
    end: Ints
    length: Ints
    missing: Ints
    extra: Ints
    sure: Mask
    segments: LedgerSegments
    other_ledger: Ints
    other_shape: Ints

    @property
    def seen(self) -> Mask:
        """Mark ledgers that show their shape by themselves.

        Single entries in turns look like E/1. They may be 1/1 with a change of the ensemble at every entry: two bookies
        that fail in turn leave 2/1.
        """
        several = np.array([*(shape.write > 1 for shape in self.shapes), False])
        shown: Mask = (self.path == CLEAN) & (self.shape < self.observed) & several[self.shape]
        return shown


def explain(
    known: LedgerFacts, shapes: Sequence[PriorShape], tried: Mask, tolerances: Sequence[int], elsewhere: int
) -> Explained:
    """Find for each ledger the shape that explains it with the fewest extra copies, then segments, then by the prior.

    A ledger that shows its shape is tried with nothing else.

    Args:
        known: the facts of bookies.
        shapes: in the order of the prior.
        tried: which ledgers to try.
        tolerances: of each hypothesis, the most unseen bookies with which it cannot be a wider shape.
        elsewhere: bookies that may have a copy of all of a ledger unseen.
    """
    copies, bookies = known.copies, len(known.bookies)
    ensemble, write = read_shapes(copies)
    seen = np.flatnonzero(tried & (ensemble > 0))
    pairs, pair_of = np.unique(ensemble[seen] * LARGEST + write[seen], return_inverse=True)
    shown_shapes = [PriorShape(pair // LARGEST, pair % LARGEST, 1.0, ShapeSource.CLUSTER) for pair in pairs.tolist()]
    tries = _ShapeFits(copies, known.row_bookie)
    fits = ensemble[seen] <= bookies
    tries.try_shape(seen[fits], ensemble[seen][fits], write[seen][fits], pair_of[fits], seen=True)
    silent = tried & (ensemble == 0)
    limits = _ShapeLimits.read(copies)
    for number, prior_shape in enumerate(shapes, len(shown_shapes)):
        ledgers = np.flatnonzero(silent & limits.allow(prior_shape))
        if prior_shape.ensemble > bookies or elsewhere > tolerances[number - len(shown_shapes)]:
            continue
        unit = np.ones(len(ledgers), np.int64)
        tries.try_shape(ledgers, unit * prior_shape.ensemble, unit * prior_shape.write, unit * number)
    tried_shapes, alternatives = [*shown_shapes, *shapes], tries.list_alternatives()
    single = np.flatnonzero(
        np.array([*(shape.write == 1 for shape in shown_shapes), *[False] * (len(shapes) + 1)])[tries.shape]
    )
    if len(single):
        of_prior = (number for number, s in enumerate(shapes, len(shown_shapes)) if (s.ensemble, s.write) == (1, 1))
        one = next(of_prior, len(tried_shapes))
        if one == len(tried_shapes):
            tried_shapes.append(PriorShape(1, 1, 0.0, ShapeSource.COPIES))
        alternatives = np.append(alternatives[0], single), np.append(alternatives[1], np.full(len(single), one))
    return Explained(
        tried_shapes,
        len(shown_shapes),
        tries.shape,
        np.where(tries.shape == NO_SHAPE, UNDECIDED, CLEAN),
        copies.end,
        known.last_length,
        np.zeros(copies.ledgers, np.int64),
        tries.extra,
        (tries.shape >= 0) & (tries.shape < len(shown_shapes)) & ~np.isin(np.arange(copies.ledgers), single),
        tries.collect_segments(),
        *alternatives,
    )


@dataclass(frozen=True, slots=True)
class _ShapeLimits:
    """Cheap limits of each ledger that rule shapes out.

    Attributes:
        end: the last entry.
        holders: bookies that hold entries.
        zeros: bookies that hold entry 0.
        largest: entries of the longest run.
        few_runs: so few gaps that bookies may have come and gone.
    """

    end: Ints
    holders: Ints
    zeros: Ints
    largest: Ints
    few_runs: Mask

    @classmethod
    def read(cls, copies: CopyColumns) -> "_ShapeLimits":
        ledger, count = copies.row_ledger, copies.ledgers
        holders = np.bincount(ledger, minlength=count)
        zeros = np.bincount(ledger[copies.lo == 0], minlength=count)
        return cls(copies.end, holders, zeros, copies.find_largest_runs(), copies.has_few_runs())

    def allow(self, shape: PriorShape) -> Mask:
        """Mark ledgers that may have a shape."""
        ensemble, write = shape.ensemble, shape.write
        if write < ensemble:
            return (self.holders >= np.minimum(ensemble, self.end + write)) & (self.largest <= write)
        return self.few_runs & np.equal(self.zeros, ensemble)


class _ShapeFits:
    """The best explanation of each ledger so far, and all others."""

    def __init__(self, copies: CopyColumns, row_bookie: Ints) -> None:
        self._copies = copies
        self._row_bookie = row_bookie
        self._length = np.zeros(copies.ledgers, np.int64)
        self._accepted: list[tuple[Ints, Ints]] = []
        self._parts: list[tuple[LedgerSegments, Ints]] = []
        self.shape = np.full(copies.ledgers, NO_SHAPE)
        self.extra = np.zeros(copies.ledgers, np.int64)

    def try_shape(self, ledgers: Ints, ensemble: Ints, write: Ints, shape: Ints, *, seen: bool = False) -> None:
        """Try one shape, with its number, on some ledgers in ascending order; `seen`: they show it themselves."""
        if not len(ledgers):
            return
        copies, rows = self._copies.pick(ledgers)
        if (ensemble == write).all():
            copies, stay_of = copies.split_stays()
            rows = rows[stay_of]
        decision = decide(copies, ensemble, write)
        extra, length = decision.extra, np.bincount(decision.segment_ledger, minlength=len(ledgers))
        accepted = decision.accepted if seen else decision.accepted & ~decision.hasty(copies.end)
        self._accepted.append((ledgers[accepted], shape[accepted]))
        known, known_length = self.extra[ledgers], self._length[ledgers]
        better = (extra < known) | ((extra == known) & (length < known_length))
        taken = accepted & (better | (self.shape[ledgers] == NO_SHAPE))
        self.shape[ledgers[taken]] = shape[taken]
        self.extra[ledgers[taken]] = extra[taken]
        self._length[ledgers[taken]] = length[taken]
        bookie = np.append(self._row_bookie[rows], -1)[decision.members]
        ledger = decision.segment_ledger
        part = LedgerSegments(ledgers[ledger], decision.first, decision.low, ensemble[ledger], bookie)
        self._parts.append((part, shape[ledger]))

    def collect_segments(self) -> LedgerSegments:
        """Return the segments of the best explanations."""
        chosen = [part.select(shape == self.shape[part.ledger]) for part, shape in self._parts]
        return LedgerSegments.join(chosen)

    def list_alternatives(self) -> tuple[Ints, Ints]:
        """Return ledgers and shapes of the explanations that are not the best."""
        ledger = _concatenate([ledger for ledger, _ in self._accepted])
        shape = _concatenate([shape for _, shape in self._accepted])
        beside = shape != self.shape[ledger]
        return ledger[beside], shape[beside]


def _concatenate(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, np.int64), *parts])
