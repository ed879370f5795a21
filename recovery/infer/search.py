"""Ledgers that no column-wise path explains: which shape, which end, which history."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np

from recovery.infer.copies import CopyColumns, Ints, Mask, number_within, starts
from recovery.infer.facts import LedgerFacts
from recovery.infer.prior import LARGEST, Prior
from recovery.infer.refusal import Refusal
from recovery.infer.segment_cases import NOBODY, Cases, Copies, Lost, ShapeProblem, TriedShape
from recovery.infer.segment_costs import find_cheapest
from recovery.infer.solve import Solution, mark_held, solve_problems
from recovery.model.groups import run_counts

MAX_RUNS: Final = 2_000_000
"""Most runs of one ledger that are expanded."""
_AT_ONCE: Final = 512
"""Ledgers that are laid out at a time."""
TAIL: Final = 1 << 16
"""Entries that a writer may have had under way: a hole further from the end is a loss."""
_SHARE: Final = 0.3
"""Share of a ledger's entries that must be striped alike to speak for a shape."""
_ODD: Final = 0.25
"""Copies that are missing or too many, as a share, with which an unsupported shape is not an explanation."""
_OVER: Final = 0.1
"""Copies that are too many, as a share, with which a shape that is only stated is too narrow."""
_PERIODIC: Final = 3
_STRIPES: Final = 3
"""Shapes that a ledger's own stripes may speak for."""
_SIMILAR: Final = 3.0
"""Shapes up to so much above the cheapest cost are listed beside it."""
_STRANGE: Final = 2.5
"""Cost of a shape that only the number of copies supports."""
_STRANGE_IF_UNSEEN: Final = 4.5
"""As `_STRANGE`, if some bookie was not read whole: that is likelier than a shape of its own."""
_STRANGE_STRIPES: Final = 2.0
"""As `_STRANGE`, where the copies are striped like that."""
_LISTED: Final = 4
_WEIGHT: Final = 0.3
"""Cost of a shape that a share of e^-1 of the ledgers has."""


class Tail(StrEnum):
    """Where a ledger is closed if its last entries may not have been acknowledged; a word of the command line."""

    INCLUSIVE = "inclusive"
    """At the last entry that a reader could have seen."""
    ACKNOWLEDGED = "acknowledged"
    """At the last entry that can have been acknowledged, where A is stated."""
    OPEN = "open"
    """Left open where that loses nothing, for BookKeeper's own recovery to close; else as INCLUSIVE."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """The possibly hidden entries of one ledger.

    Attributes:
        hiding: bookies that may hide entries; elsewhere: bookies that may have a full copy.
        wiped: other bookies that may have lost all that they had of it.
        has_unseen: some bookie was not scanned, or not completely.
        policy: the tail policy.
    """

    hiding: int
    elsewhere: int
    wiped: int
    has_unseen: bool
    policy: Tail


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result for one ledger.

    Attributes:
        refusal: why it is held after all; None where it is not.
        solution: the cheapest history; its members are rows of the ledger. None where there is none.
        end: the last entry.
        length: up to it; -1 where nothing shows it.
        alternatives: other shapes that explain it nearly as well.
    """

    refusal: Refusal | None
    solution: Solution | None
    end: int
    length: int
    alternatives: tuple[tuple[int, int], ...] = ()


def search_histories(
    known: LedgerFacts, ledgers: Sequence[int], prior: Prior, doubts: Sequence[Doubt]
) -> Iterator[SearchResult]:
    """Find the cheapest history of each of some ledgers.

    Args:
        known: the batch that they are of.
        ledgers: their numbers there; they have entries.
        prior: assumptions for ledgers that do not show their shape.
        doubts: the doubts of each ledger.
    """
    for low in range(0, len(ledgers), _AT_ONCE):
        part = np.array(ledgers[low : low + _AT_ONCE])
        runs = known.copies.pick(part)[0].count_runs()
        columns, rows = known.copies.pick(part[runs <= MAX_RUNS])
        copies = Copies.split(columns, known.row_bookie[rows], known.row_copied[rows])
        seen = iter(zip(copies, _CopyPattern.read_all(columns), strict=True))
        cases = [
            _Case(known, ledger, doubt, prior, *next(seen)) if is_small else None
            for ledger, doubt, is_small in zip(
                part.tolist(), doubts[low : low + _AT_ONCE], runs <= MAX_RUNS, strict=True
            )
        ]
        solved = iter(_solve_cases([case for case in cases if case and case.shapes]))
        for ledger, case in zip(part.tolist(), cases, strict=True):
            if case and case.shapes:
                yield case.choose(next(solved), prior)
            else:
                refusal = Refusal.SOURCE_INCOMPLETE if case else Refusal.FRAGMENTED
                yield SearchResult(refusal, None, int(known.copies.end[ledger]), -1)


class _Case:
    """One ledger of the search: its holders, and its possible shapes."""

    def __init__(
        self, known: LedgerFacts, ledger: int, doubt: Doubt, prior: Prior, copies: Copies, pattern: "_CopyPattern"
    ) -> None:
        self._known = known
        self._ledger = ledger
        self._doubt = doubt
        self.lost = Lost.UNSEEN if doubt.has_unseen else Lost.WIPED if doubt.wiped else Lost.NOTHING
        self._rows = slice(*np.searchsorted(known.copies.row_ledger, [ledger, ledger + 1]).tolist())
        self.end = int(known.copies.end[ledger])
        self.held_copies = copies
        shapes = pattern.list_shapes(prior, len(known.bookies), _STRANGE_IF_UNSEEN if doubt.has_unseen else _STRANGE)
        self.shapes = [c for c in shapes if c.shown or doubt.elsewhere <= prior.count_tolerated(c.ensemble, c.write)]

    def choose(self, solutions: Sequence[Solution], prior: Prior) -> SearchResult:
        """Choose an end and a history among the found ones, cheapest first."""
        known, doubt, end, held_copies = self._known, self._doubt, self.end, self.held_copies
        if not solutions:
            return SearchResult(Refusal.FRAGMENTED, None, end, -1)
        lac = max(int(known.lac[self._ledger]), -1)
        cut = _choose_end(held_copies, solutions[0], end, lac, prior, doubt)
        likely = [other for other in solutions if other.cost <= solutions[0].cost + _SIMILAR]
        if cut is not None and 0 <= cut < end:
            # Who should have had the entry depends on the shape: each that explains the copies as well has to say so.
            ends = [_choose_end(held_copies, solution, end, lac, prior, doubt) for solution in likely[1:]]
            cut = cut if all(stop is not None and stop <= cut for stop in ends) else None
        is_stated = len(likely) == 1 and prior.is_ack_stated(solutions[0].ensemble, solutions[0].write)
        if is_stated and self._may_be_closed_before(solutions[0]):
            by_acks = replace(doubt, policy=Tail.ACKNOWLEDGED)
            cut = _choose_end(held_copies, solutions[0], end, lac, prior, by_acks)
        if cut is not None and cut >= 0 and read_length(known, self._ledger, cut) < 0:
            cut = None
        end_refusal = Refusal.RAGGED_TAIL if cut is None else Refusal.NOT_FROM_ZERO if cut < 0 else None
        if cut is None or cut < 0:
            # Where it ends is open; what reads all that is seen is not.
            cut = end
        if cut < end:
            self.end, self.held_copies = end, held_copies = cut, held_copies.cut_at(cut)
            [solutions] = _solve_cases([self])
            if not solutions:
                return SearchResult(Refusal.FRAGMENTED, None, end, -1)
        length = read_length(known, self._ledger, end)
        chosen = solutions[0]
        similar = [s for s in solutions[1:] if s.cost <= chosen.cost + _SIMILAR][:_LISTED]
        refusal = end_refusal or self._find_doubt(chosen, held_copies, prior)
        shapes = tuple((s.ensemble, s.write) for s in similar)
        return SearchResult(refusal, chosen, end, length, shapes)

    def _may_be_closed_before(self, chosen: Solution) -> bool:
        """Whether a copy of the apparent last segment has the largest LAC, and nothing is hidden or lost.

        Only segments before the last one are copied while a ledger is open. But a newcomer that got nothing leaves no
        trace of a segment of its own, and a close drops adds that all bookies of a write set have: entries above that
        LAC belong to the ledger as long as enough bookies have them to acknowledge them.
        """
        doubt = self._doubt
        is_all_seen = not (doubt.hiding or doubt.has_unseen or doubt.wiped)
        return is_all_seen and bool(self._known.newest_copy[self._ledger] >= chosen.first[-1])

    def _find_doubt(self, chosen: Solution, held_copies: Copies, prior: Prior) -> Refusal | None:
        """Return the doubt about the cheapest history; None without one."""
        if _has_second_history(held_copies, self._known, self._rows, chosen) or _is_forced(held_copies, chosen, prior):
            return Refusal.TWO_HISTORIES
        unsettled = _is_unsettled(self._known, self._ledger, held_copies, chosen, self.shapes, self._doubt)
        hidden = self._doubt.hiding >= prior.fewest_acked(chosen.ensemble, chosen.write)
        return Refusal.SOURCE_INCOMPLETE if unsettled or (chosen.missing and hidden) else None


def _solve_cases(cases: Sequence[_Case]) -> list[list[Solution]]:
    """Solve each ledger by each useful shape, the likelier first; return the solutions by cost.

    The first shape that explains a ledger sets a limit, and those after it are tried together, most of them no
    further than a few entries.
    """
    solutions: list[list[Solution]] = [[] for _ in cases]
    limit = [math.inf] * len(cases)
    if not cases:
        return []
    together = Cases.build([case.held_copies for case in cases], [case.end for case in cases])
    left = [case.shapes for case in cases]
    while any(left):
        tried = []
        for number, shapes in enumerate(left):
            count = len(shapes) if solutions[number] else 1
            left[number] = shapes[count:]
            case = cases[number]
            tried += [
                ShapeProblem(number, case.held_copies, case.end, shape, limit[number], case.lost)
                for shape in shapes[:count]
                if shape.penalty <= limit[number]
            ]
        for problem, solution in zip(
            tried, solve_problems(together, tried, find_cheapest(together, tried)), strict=True
        ):
            if solution is not None:
                solutions[problem.number].append(solution)
                limit[problem.number] = min(limit[problem.number], solution.cost + _SIMILAR)
    return [sorted(own, key=lambda solution: solution.cost) for own in solutions]


class _CopyPattern(NamedTuple):
    """The pattern of one ledger's copies.

    Attributes:
        stripes: E and W of most of its entries, and whether they are clear.
        usual, highest: number of bookies of most entries, and the greatest for one, as far as groups show it.
        holders: number of bookies with any entry.
    """

    stripes: Sequence[tuple[int, int, bool]]
    usual: int
    highest: int
    holders: int

    @classmethod
    def read_all(cls, copies: CopyColumns) -> "list[_CopyPattern]":
        """Read the patterns of all ledgers of a batch."""
        number, runs = copies.row_ledger[copies.group_row], run_counts(copies.first, copies.last, copies.period)
        entries = np.zeros(copies.ledgers, np.int64)
        np.add.at(entries, number, runs * copies.size)
        striped = np.flatnonzero((copies.size < copies.period) & (copies.period < LARGEST))
        shape = copies.period[striped] * LARGEST + copies.size[striped]
        order = np.lexsort((shape, number[striped]))
        striped, shape = striped[order], shape[order]
        head = starts(number[striped], shape)
        owner, shape, run_count = number[striped[head]], shape[head], runs[striped]
        share, longest = np.zeros(0), run_count[:0]
        if len(head):
            share = np.add.reduceat(run_count * copies.size[striped], head) / entries[owner]
            longest = np.maximum.reduceat(run_count, head)
        clear = (longest >= _PERIODIC) & (share >= _SHARE)
        order = np.lexsort((-share, owner))
        order = order[number_within(owner[order]) < _STRIPES]
        stripes: list[list[tuple[int, int, bool]]] = [[] for _ in range(copies.ledgers)]
        for ledger, pair, seen in zip(*(column[order].tolist() for column in (owner, shape, clear)), strict=True):
            stripes[ledger].append((*divmod(pair, LARGEST), seen))
        # How many bookies have each stretch between two places where some group begins or ends.
        places, ledgers = np.concatenate([copies.first, copies.last + copies.size]), np.append(number, number)
        change = np.repeat([1, -1], len(number))
        order = np.lexsort((change, places, ledgers))
        counts, ledgers = np.cumsum(change[order]), ledgers[order]
        width = np.append(np.diff(places[order]), 0) * (counts > 0)
        base = int(counts.max(initial=0)) + 1
        common = np.bincount(ledgers * base + counts, weights=width, minlength=copies.ledgers * base).reshape(-1, base)
        highest = np.zeros(copies.ledgers, np.int64)
        np.maximum.at(highest, ledgers, counts)
        holders = np.bincount(copies.row_ledger, minlength=copies.ledgers)
        return list(map(cls, stripes, common.argmax(axis=1).tolist(), highest.tolist(), holders.tolist()))

    def list_shapes(self, prior: Prior, bookies: int, strange: float) -> list[TriedShape]:
        """Return the shapes that the ledger may have, the likelier first."""
        penalties: dict[tuple[int, int], float] = {}

        def may_be(shape: tuple[int, int], penalty: float) -> None:
            if 1 <= shape[1] <= shape[0] <= bookies:
                penalties[shape] = min(penalty, penalties.get(shape, math.inf))

        for prior_shape in prior.shapes:
            weight = min(1.0, -_WEIGHT * math.log(prior_shape.weight)) if prior_shape.weight > 0 else 1.0
            may_be((prior_shape.ensemble, prior_shape.write), weight)
        for ensemble, write, clear in self.stripes:
            may_be((ensemble, write), 0.0 if clear else _STRANGE_STRIPES)
        usual, highest = self.usual, self.highest
        for odd in ((usual, usual), (highest, highest), (1, 1), (self.holders, usual)):
            may_be(odd, strange)
        shown = {stripe[:2] for stripe in self.stripes if stripe[2]}
        ordered = sorted(penalties.items(), key=lambda item: item[1])
        return [TriedShape(*shape, penalty, shape in shown) for shape, penalty in ordered]


def _choose_end(held_copies: Copies, solution: Solution, end: int, lac: int, prior: Prior, doubt: Doubt) -> int | None:
    """Return the last entry that stays; None where that cannot be said.

    An entry without a holder ends the ledger if neither it nor any later entry can have been acknowledged. A bookie
    gets its entries in order: one that lacks some of its share and holds later ones has lost them, and maybe others.
    One that was wiped may have been any member.
    """
    least = prior.fewest_acked(solution.ensemble, solution.write)
    low = max(lac + 1, end + 1 - TAIL)
    if low > end:
        return end
    holds = mark_held(held_copies, low, end + 1)
    holes = np.flatnonzero(~holds.any(axis=0))
    if not len(holes) and doubt.policy is not Tail.ACKNOWLEDGED:
        return end
    copies, unseen = _count_holders(holds, solution, np.arange(low, end + 1), _find_lossy(held_copies, solution, end))
    copies += unseen + doubt.hiding
    if len(holes):
        hole = int(holes[0])
        if low + hole == 0:
            return -1
        # Where each member was seen, and none can have lost it, BookKeeper's own recovery stops before it, too. But
        # where one lost a later entry, all may have lost this one.
        is_denied = not (doubt.hiding or doubt.has_unseen or doubt.wiped or unseen[hole:].any())
        # What is behind it was acknowledged after it, if it was; and it may have been on newcomers that lost it.
        if not is_denied and ((copies[hole:] >= least).any() or copies[hole] + doubt.wiped >= least):
            return None
        end = low + hole - 1
    if doubt.policy is Tail.ACKNOWLEDGED:
        never = np.flatnonzero(copies[: end + 1 - low] + doubt.wiped < least)
        end = low + int(never[0]) - 1 if len(never) else end
    return end


def _count_holders(holds: Mask, solution: Solution, entries: Ints, lossy: Mask) -> tuple[Ints, Ints]:
    """Return how many bookies hold each entry, and how many of its write set are unseen or may have lost it."""
    segment = np.searchsorted(solution.first, entries, "right") - 1
    unseen = np.zeros(len(entries), np.int64)
    for i in range(solution.write):
        members = solution.members[segment, (entries + i) % solution.ensemble]
        unseen += (members == NOBODY) | (lossy[members] & ~holds[members, np.arange(len(entries))])
    return holds.sum(axis=0), unseen


def _find_lossy(held_copies: Copies, solution: Solution, end: int) -> Mask:
    """Mark rows that lack an entry of their share and hold a later one."""
    low = max(0, end + 1 - TAIL)
    holds = mark_held(held_copies, low, end + 1)
    bounds = np.append(solution.first, end + 1)
    lossy = np.zeros(len(held_copies.bookie), np.bool_)
    for members, begin, behind in zip(solution.members, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        entries = np.arange(max(begin, low), behind)
        for position in np.flatnonzero(members != NOBODY).tolist():
            own = entries[(position - entries) % solution.ensemble < solution.write]
            has_entry = holds[members[position], own - low]
            lossy[members[position]] |= bool((np.diff(has_entry.astype(np.int8)) > 0).any())
    return lossy


def _is_unsettled(
    known: LedgerFacts, ledger: int, held_copies: Copies, chosen: Solution, shapes: Sequence[TriedShape], doubt: Doubt
) -> bool:
    """Whether it is unclear which unread bookies are members: an unnamed member would lose its copies.

    A shape that the copies do not show must be whole, or lack just what those bookies can have; and leave little over.
    """
    if not doubt.elsewhere:
        return False
    idle = np.searchsorted(known.idle_ledger, [ledger, ledger + 1])
    spare = doubt.elsewhere + int(idle[1] - idle[0]) - chosen.lacking[chosen.lacking > 0]
    if any(c.shown and c[:2] == (chosen.ensemble, chosen.write) for c in shapes):
        return bool((spare > 0).any())
    over = not held_copies.copied.any() and chosen.extra > _OVER * held_copies.entries
    return over or chosen.missing > chosen.unnamed or bool(spare.any())


def _has_second_history(held_copies: Copies, known: LedgerFacts, rows: slice, solution: Solution) -> bool:
    """Whether some bookie holds entries that no history of one ledger leaves there.

    One that was replaced before anything of its segment was answered is in no segment, and holds what was under way
    then: nothing from before the segment, with no LAC inside it, and the same as a member, as their lengths show. What
    re-replication leaves behind shows its copies.
    """
    if held_copies.copied.any():
        return False
    members = np.isin(np.arange(len(held_copies.bookie)), solution.members)
    lo, hi, lacs = known.copies.lo[rows], known.copies.hi[rows], known.row_lac[rows]
    # That their lengths agree was asked before.
    read = np.where(known.row_first[rows], lo, -1)
    shown = np.append(read[members], hi[members])
    for row in np.flatnonzero(~members & np.isin(np.arange(len(members)), held_copies.groups.key)).tolist():
        replaced = (solution.low <= lo[row]) & (lacs[row] < solution.first)
        if not replaced.any() or not np.isin([lo[row] if read[row] >= 0 else hi[row], hi[row]], shown).any():
            return True
    return False


def _is_forced(held_copies: Copies, solution: Solution, prior: Prior) -> bool:
    """Whether an unsupported shape leaves much unexplained."""
    if solution.write < solution.ensemble:
        return False
    known = {(shape.ensemble, shape.write) for shape in prior.shapes}
    odd = solution.missing + solution.extra > _ODD * held_copies.entries
    return odd and (solution.ensemble, solution.write) not in known


def read_length(known: LedgerFacts, ledger: int, end: int) -> int:
    """Return the length up to an entry from its own header or from the next entry's; else -1."""
    low, high = np.searchsorted(known.headers.ledger, [ledger, ledger + 1])
    entry, length = known.headers.entry[low:high], known.headers.length[low:high]
    payload = known.headers.payload[low:high]
    is_end = entry == end
    behind = (entry == end + 1) & (payload >= 0)
    if not is_end.any() and not behind.any():
        return -1
    return int(max(length[is_end].tolist() + (length[behind] - payload[behind]).tolist()))
