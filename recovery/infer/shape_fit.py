"""Each ledger against the shapes that it may have; the explanation that assumes least is kept, others are listed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from recovery.infer.clean import decide
from recovery.infer.copies import Holdings, Ints, Mask, numbered
from recovery.infer.facts import Facts
from recovery.infer.prior import LARGEST, Hypothesis, Source, observed_shapes

NO_SHAPE: Final = -1
UNDECIDED, CLEAN, RE_REPLICATED, SOLVED = range(4)
PATHS: Final = ("undecided", "clean", "re-replicated", "solved")
"""What explained a ledger, as stored."""


@dataclass(frozen=True, slots=True)
class Segments:
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
    def joined(cls, parts: "Sequence[Segments]") -> "Segments":
        """Return the segments of several parts, each sorted and of other ledgers."""
        whole = cls(*(_joined([getattr(part, name) for part in parts]) for name in cls.__slots__))
        order = np.argsort(whole.ledger, kind="stable")
        if np.array_equal(order, np.arange(len(order))):
            return whole
        begin = np.cumsum(whole.size) - whole.size
        size = whole.size[order]
        cell = np.repeat(begin[order], size) + numbered(np.repeat(np.arange(len(order)), size))
        return cls(whole.ledger[order], whole.first[order], whole.low[order], size, whole.members[cell])

    def where(self, kept: Mask) -> "Segments":
        """Return some segments."""
        members = self.members[np.repeat(kept, self.size)]
        return Segments(self.ledger[kept], self.first[kept], self.low[kept], self.size[kept], members)


@dataclass(frozen=True, slots=True)
class Explained:
    """What explains each ledger.

    Attributes:
        shapes: all that were tried; the first `observed` ones are what ledgers show by themselves.
        shape: number of each ledger's, or NO_SHAPE.
        path: what explained it, a place in `PATHS`.
        end, length: the last entry, and up to it; what is held, unless the search found another.
        least: the last entry that is known to be one: the end lies in [least, end].
        missing: copies that the segments promise and nobody has.
        extra: copies that the segments do not need.
        sure: the stripes are seen, and which position each row is of.
        segments: of all explained ledgers.
        other_ledger, other_shape: shapes that explain a ledger as well, in no order.
    """

    shapes: Sequence[Hypothesis]
    observed: int
    shape: Ints
    path: Ints
    end: Ints
    length: Ints
    least: Ints
    missing: Ints
    extra: Ints
    sure: Mask
    segments: Segments
    other_ledger: Ints
    other_shape: Ints

    @property
    def seen(self) -> Mask:
        """Say which ledgers show their shape by themselves.

        Single entries that go round look like E/1, and may be 1/1 whose ensemble changed with every entry: two bookies
        that fail in turn leave 2/1.
        """
        several = np.array([*(shape.write > 1 for shape in self.shapes), False])
        found: Mask = (self.path == CLEAN) & (self.shape >= 0) & (self.shape < self.observed) & several[self.shape]
        return found


def explain(
    known: Facts, hypotheses: Sequence[Hypothesis], tried: Mask, bears: Sequence[int], elsewhere: int
) -> Explained:
    """Find for each ledger the shape that explains it with the fewest extra copies, then segments, then by the prior.

    A ledger that shows its shape is tried with nothing else.

    Args:
        known: what bookies hold.
        hypotheses: in the order of the prior.
        tried: which ledgers to try.
        bears: of each hypothesis, with how many unseen bookies it still is what it seems to be.
        elsewhere: bookies that may have a copy of all of a ledger unseen.
    """
    held, bookies = known.held, len(known.bookies)
    ensemble, write = observed_shapes(held)
    seen = np.flatnonzero(tried & (ensemble > 0))
    pairs, which = np.unique(ensemble[seen] * LARGEST + write[seen], return_inverse=True)
    shapes = [Hypothesis(pair // LARGEST, pair % LARGEST, 1.0, Source.CLUSTER) for pair in pairs.tolist()]
    trials = _Trials(held, known.row_bookie)
    fits = ensemble[seen] <= bookies
    trials.attempt(seen[fits], ensemble[seen][fits], write[seen][fits], which[fits], seen=True)
    silent = tried & (ensemble == 0)
    forms = _Forms.of(held)
    for number, hypothesis in enumerate(hypotheses, len(shapes)):
        some = np.flatnonzero(silent & forms.allow(hypothesis))
        if hypothesis.ensemble > bookies or elsewhere > bears[number - len(shapes)]:
            continue
        each = np.ones(len(some), np.int64)
        trials.attempt(some, each * hypothesis.ensemble, each * hypothesis.write, each * number)
    tried_shapes, others = [*shapes, *hypotheses], trials.others()
    single = np.flatnonzero(
        np.array([*(shape.write == 1 for shape in shapes), *[False] * (len(hypotheses) + 1)])[trials.shape]
    )
    if len(single):
        tried_shapes.append(Hypothesis(1, 1, 0.0, Source.COPIES))
        others = np.append(others[0], single), np.append(others[1], np.full(len(single), len(tried_shapes) - 1))
    return Explained(
        tried_shapes,
        len(shapes),
        trials.shape,
        np.where(trials.shape == NO_SHAPE, UNDECIDED, CLEAN),
        held.end,
        known.last_length,
        np.minimum(np.maximum(known.lac, -1), held.end),
        np.zeros(held.ledgers, np.int64),
        trials.extra,
        (trials.shape >= 0) & (trials.shape < len(shapes)) & ~np.isin(np.arange(held.ledgers), single),
        trials.segments(),
        *others,
    )


@dataclass(frozen=True, slots=True)
class _Forms:
    """What tells cheaply that a shape cannot fit, by ledger.

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
    def of(cls, held: Holdings) -> "_Forms":
        of, count = held.row_ledger, held.ledgers
        holders = np.bincount(of, minlength=count)
        largest = np.zeros(count, np.int64)
        np.maximum.at(largest, of[held.group_row], held.size)
        zeros = np.bincount(of[held.lo == 0], minlength=count)
        return cls(held.end, holders, zeros, largest, held.few_runs())

    def allow(self, hypothesis: Hypothesis) -> Mask:
        """Say which ledgers may have a shape at all."""
        ensemble, write = hypothesis.ensemble, hypothesis.write
        if write < ensemble:
            return (self.holders >= np.minimum(ensemble, self.end + write)) & (self.largest <= write)
        return self.few_runs & np.equal(self.zeros, ensemble)


class _Trials:
    """The best explanation of each ledger so far, and all others."""

    def __init__(self, held: Holdings, row_bookie: Ints) -> None:
        self._held = held
        self._row_bookie = row_bookie
        self._length = np.zeros(held.ledgers, np.int64)
        self._accepted: list[tuple[Ints, Ints]] = []
        self._parts: list[tuple[Segments, Ints]] = []
        self.shape = np.full(held.ledgers, NO_SHAPE)
        self.extra = np.zeros(held.ledgers, np.int64)

    def attempt(self, some: Ints, ensemble: Ints, write: Ints, shape: Ints, *, seen: bool = False) -> None:
        """Try one shape, with its number, on each of some ledgers, which ascend; `seen`: they show it themselves."""
        if not len(some):
            return
        held, rows = self._held.pick(some)
        if (ensemble == write).all():
            held, stay_of = held.stays()
            rows = rows[stay_of]
        decision = decide(held, ensemble, write)
        extra, length = decision.extra, np.bincount(decision.segment_ledger, minlength=len(some))
        accepted = decision.accepted if seen else decision.accepted & ~decision.hasty(held.end)
        self._accepted.append((some[accepted], shape[accepted]))
        known, known_length = self.extra[some], self._length[some]
        better = (extra < known) | ((extra == known) & (length < known_length))
        taken = accepted & (better | (self.shape[some] == NO_SHAPE))
        self.shape[some[taken]] = shape[taken]
        self.extra[some[taken]] = extra[taken]
        self._length[some[taken]] = length[taken]
        bookie = np.append(self._row_bookie[rows], -1)[decision.members]
        of = decision.segment_ledger
        part = Segments(some[of], decision.first, decision.low, ensemble[of], bookie)
        self._parts.append((part, shape[of]))

    def segments(self) -> Segments:
        """Return the segments of the best explanations."""
        chosen = [part.where(shape == self.shape[part.ledger]) for part, shape in self._parts]
        return Segments.joined(chosen)

    def others(self) -> tuple[Ints, Ints]:
        """Return ledgers and shapes of the explanations that are not the best."""
        ledger = _joined([ledger for ledger, _ in self._accepted])
        shape = _joined([shape for _, shape in self._accepted])
        beside = shape != self.shape[ledger]
        return ledger[beside], shape[beside]


def _joined(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, np.int64), *parts])
