"""Ledgers that no column-wise path explains: which shape, which end, which history."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np

from recovery.infer.copies import Holdings, Ints, Mask, numbered, starts
from recovery.infer.facts import Facts
from recovery.infer.prior import LARGEST, Prior
from recovery.infer.refusal import Refusal
from recovery.infer.segment_cases import NOBODY, Candidate, Cases, Copies, Lost, Problem
from recovery.infer.segment_costs import cheapest
from recovery.infer.solve import Solution, laid_on, solve
from recovery.model.groups import run_counts

MAX_RUNS: Final = 2_000_000
"""Runs of one ledger that are laid out one by one."""
_AT_ONCE: Final = 512
"""Ledgers that are laid out at a time."""
TAIL: Final = 1 << 16
"""Entries that a writer may have had under way: a hole further from the end is a loss."""
_SHARE: Final = 0.3
"""Share of a ledger's entries that must be striped alike to speak for a shape."""
_ODD: Final = 0.25
"""Copies that are missing or too many, as a share, with which an unsupported shape is no explanation."""
_OVER: Final = 0.1
"""Copies that are too many, as a share, with which a shape that is only stated is too narrow."""
_PERIODIC: Final = 3
_STRIPES: Final = 3
"""Shapes that a ledger's own stripes may speak for."""
_SIMILAR: Final = 3.0
"""Shapes that cost so much more than the cheapest one are listed beside it."""
_STRANGE: Final = 2.5
"""What a shape costs that nothing but the number of copies speaks for."""
_STRANGE_IF_UNSEEN: Final = 4.5
"""The same where nobody looked at all that some bookie has: that is likelier than a shape of its own."""
_STRANGE_STRIPES: Final = 2.0
"""The same where the copies are striped like that."""
_LISTED: Final = 4
_WEIGHT: Final = 0.3
"""What a shape costs that e^-1 of the ledgers have."""


class Tail(StrEnum):
    """Where a ledger is closed whose last entries may not have been acknowledged; a word of the command line."""

    INCLUSIVE = "inclusive"
    """At the last entry that a reader could have seen."""
    ACKNOWLEDGED = "acknowledged"
    """At the last entry that can have been acknowledged, as far as somebody stands for A."""
    OPEN = "open"
    """Left open where that loses nothing, so that BookKeeper's own recovery closes it; else as INCLUSIVE."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """What may be hidden of one ledger.

    Attributes:
        blind: bookies that may hide entries; elsewhere: those that may have a copy of all of it.
        wiped: other bookies that may have lost all that they had of it.
        unseen: some bookie was not scanned, or not completely.
        policy: how it is closed.
    """

    blind: int
    elsewhere: int
    wiped: int
    unseen: bool
    policy: Tail


@dataclass(frozen=True, slots=True)
class Found:
    """What came of one ledger.

    Attributes:
        refusal: why it is held after all; None where it is not.
        solution: the cheapest history; its members are rows of the ledger. None where there is none.
        end: the last entry.
        length: up to it; -1 where nothing shows it.
        others: other shapes that explain it nearly as well.
        least: the last entry that a reader can have been told of: the end lies in [least, end].
    """

    refusal: Refusal | None
    solution: Solution | None
    end: int
    length: int
    others: tuple[tuple[int, int], ...] = ()
    least: int = -1


def search(known: Facts, ledgers: Sequence[int], prior: Prior, doubts: Sequence[Doubt]) -> Iterator[Found]:
    """Find the cheapest history of each of some ledgers.

    Args:
        known: the batch that they are of.
        ledgers: their numbers there; they have entries.
        prior: what may be assumed.
        doubts: what may be hidden of each.
    """
    for low in range(0, len(ledgers), _AT_ONCE):
        part = np.array(ledgers[low : low + _AT_ONCE])
        runs = known.held.pick(part)[0].runs()
        held, rows = known.held.pick(part[runs <= MAX_RUNS])
        copies = Copies.each(held, known.row_bookie[rows], known.row_copied[rows])
        seen = iter(zip(copies, _Seen.each(held), strict=True))
        cases = [
            _Case(known, ledger, doubt, prior, *next(seen)) if few else None
            for ledger, doubt, few in zip(part.tolist(), doubts[low : low + _AT_ONCE], runs <= MAX_RUNS, strict=True)
        ]
        solved = iter(_solved([case for case in cases if case and case.candidates]))
        for ledger, case in zip(part.tolist(), cases, strict=True):
            if case and case.candidates:
                yield case.found(next(solved), prior)
            else:
                refusal = Refusal.SOURCE_INCOMPLETE if case else Refusal.FRAGMENTED
                yield Found(refusal, None, int(known.held.end[ledger]), -1)


class _Case:
    """One ledger that is searched: who holds what, and which shapes it may have."""

    def __init__(self, known: Facts, ledger: int, doubt: Doubt, prior: Prior, copies: Copies, seen: "_Seen") -> None:
        self._known = known
        self._ledger = ledger
        self._doubt = doubt
        self.lost = Lost.UNSEEN if doubt.unseen else Lost.WIPED if doubt.wiped else Lost.NOTHING
        self._rows = slice(*np.searchsorted(known.held.row_ledger, [ledger, ledger + 1]).tolist())
        self.end = int(known.held.end[ledger])
        self.laid = copies
        candidates = seen.candidates(prior, len(known.bookies), _STRANGE_IF_UNSEEN if doubt.unseen else _STRANGE)
        self.candidates = [c for c in candidates if c.shown or doubt.elsewhere <= prior.bears(c.ensemble, c.write)]

    def found(self, solutions: Sequence[Solution], prior: Prior) -> Found:
        """Choose an end and a history of those that there are, cheapest first."""
        known, doubt, end, laid = self._known, self._doubt, self.end, self.laid
        if not solutions:
            return Found(Refusal.FRAGMENTED, None, end, -1)
        told = max(int(known.lac[self._ledger]), -1)
        cut = _end(laid, solutions[0], end, told, prior, doubt)
        if (
            not (doubt.blind or doubt.unseen or doubt.wiped)
            and known.closed_copy[self._ledger] >= solutions[0].first[-1]
        ):
            # A copy of the last segment shows where the ledger was closed: what is behind it was dropped.
            cut = min(told, end)
        if cut is None:
            return Found(Refusal.RAGGED_TAIL, None, end, -1)
        if cut < 0:
            return Found(Refusal.NOT_FROM_ZERO, None, end, -1)
        if cut < end:
            self.end, self.laid = end, laid = cut, laid.until(cut)
            [solutions] = _solved([self])
            if not solutions:
                return Found(Refusal.FRAGMENTED, None, end, -1)
        length = length_at(known, self._ledger, end)
        chosen = solutions[0]
        others = [s for s in solutions[1:] if s.cost <= chosen.cost + _SIMILAR][:_LISTED]
        refusal = None
        if _second_history(laid, known, self._rows, chosen) or _forced(laid, chosen, prior):
            refusal = Refusal.TWO_HISTORIES
        elif length < 0:
            refusal = Refusal.NO_LAST_HEADER
        elif _unsettled(known, self._ledger, laid, chosen, self.candidates, doubt) or (
            chosen.missing and doubt.blind >= prior.fewest_acked(chosen.ensemble, chosen.write)
        ):
            refusal = Refusal.SOURCE_INCOMPLETE
        shapes = tuple((s.ensemble, s.write) for s in others)
        return Found(refusal, chosen, end, length, shapes, min(told, end))


def _solved(cases: Sequence[_Case]) -> list[list[Solution]]:
    """Solve each ledger by each shape that may be of use, the likelier first; return what came of it by cost.

    The first shape that explains a ledger sets a limit, and those after it are weighed together, most of them no
    further than a few entries.
    """
    found: list[list[Solution]] = [[] for _ in cases]
    limit = [math.inf] * len(cases)
    if not cases:
        return []
    together = Cases.of([case.laid for case in cases], [case.end for case in cases])
    left = [case.candidates for case in cases]
    while any(left):
        tried = []
        for number, candidates in enumerate(left):
            now = len(candidates) if found[number] else 1
            left[number] = candidates[now:]
            case = cases[number]
            tried += [
                Problem(number, case.laid, case.end, candidate, limit[number], case.lost)
                for candidate in candidates[:now]
                if candidate.penalty <= limit[number]
            ]
        for problem, solution in zip(tried, solve(together, tried, cheapest(together, tried)), strict=True):
            if solution is not None:
                found[problem.number].append(solution)
                limit[problem.number] = min(limit[problem.number], solution.cost + _SIMILAR)
    return [sorted(some, key=lambda solution: solution.cost) for some in found]


class _Seen(NamedTuple):
    """What the copies of one ledger look like.

    Attributes:
        stripes: E, W, and whether they are clear, of what most of its entries are striped like.
        usual, most: how many bookies have most entries, and how many have one at most, as far as groups show it.
        holders: how many have any.
    """

    stripes: Sequence[tuple[int, int, bool]]
    usual: int
    most: int
    holders: int

    @classmethod
    def each(cls, held: Holdings) -> "list[_Seen]":
        """Look at all ledgers of a batch."""
        of, runs = held.row_ledger[held.group_row], run_counts(held.first, held.last, held.period)
        entries = np.zeros(held.ledgers, np.int64)
        np.add.at(entries, of, runs * held.size)
        striped = np.flatnonzero((runs > 1) & (held.size < held.period) & (held.period < LARGEST))
        shape = held.period[striped] * LARGEST + held.size[striped]
        order = np.lexsort((shape, of[striped]))
        striped, shape = striped[order], shape[order]
        head = starts(of[striped], shape)
        owner, shape, many = of[striped[head]], shape[head], runs[striped]
        share, longest = np.zeros(0), many[:0]
        if len(head):
            share = np.add.reduceat(many * held.size[striped], head) / entries[owner]
            longest = np.maximum.reduceat(many, head)
        clear = (longest >= _PERIODIC) & (share >= _SHARE)
        order = np.lexsort((-share, owner))
        order = order[numbered(owner[order]) < _STRIPES]
        stripes: list[list[tuple[int, int, bool]]] = [[] for _ in range(held.ledgers)]
        for ledger, pair, seen in zip(*(column[order].tolist() for column in (owner, shape, clear)), strict=True):
            stripes[ledger].append((*divmod(pair, LARGEST), seen))
        # How many bookies have each stretch between two places where some group begins or ends.
        places, both = np.concatenate([held.first, held.last + held.size]), np.append(of, of)
        change = np.repeat([1, -1], len(of))
        order = np.lexsort((change, places, both))
        counts, both = np.cumsum(change[order]), both[order]
        width = np.append(np.diff(places[order]), 0) * (counts > 0)
        base = int(counts.max(initial=0)) + 1
        common = np.bincount(both * base + counts, weights=width, minlength=held.ledgers * base).reshape(-1, base)
        most = np.zeros(held.ledgers, np.int64)
        np.maximum.at(most, both, counts)
        holders = np.bincount(held.row_ledger, minlength=held.ledgers)
        return list(map(cls, stripes, common.argmax(axis=1).tolist(), most.tolist(), holders.tolist()))

    def candidates(self, prior: Prior, bookies: int, strange: float) -> list[Candidate]:
        """Return the shapes that the ledger may have, the likelier first."""
        penalties: dict[tuple[int, int], float] = {}

        def may_be(shape: tuple[int, int], penalty: float) -> None:
            if 1 <= shape[1] <= shape[0] <= bookies:
                penalties[shape] = min(penalty, penalties.get(shape, math.inf))

        for hypothesis in prior.hypotheses:
            weight = min(1.0, -_WEIGHT * math.log(hypothesis.weight)) if hypothesis.weight > 0 else 1.0
            may_be((hypothesis.ensemble, hypothesis.write), weight)
        for ensemble, write, clear in self.stripes:
            may_be((ensemble, write), 0.0 if clear else _STRANGE_STRIPES)
        usual, most = self.usual, self.most
        for odd in ((usual, usual), (most, most), (1, 1), (self.holders, usual)):
            may_be(odd, strange)
        shown = {stripe[:2] for stripe in self.stripes if stripe[2]}
        ordered = sorted(penalties.items(), key=lambda item: item[1])
        return [Candidate(*shape, penalty, shape in shown) for shape, penalty in ordered]


def _end(laid: Copies, solution: Solution, end: int, told: int, prior: Prior, doubt: Doubt) -> int | None:
    """Return the last entry that stays; None where that cannot be said.

    An entry that nobody holds ends the ledger if neither it nor any behind it can have been acknowledged. A bookie gets
    its entries in order: one that lacks some of its share and holds later ones has lost them, and maybe others. One
    that was wiped may have been any member.
    """
    least = prior.fewest_acked(solution.ensemble, solution.write)
    low = max(told + 1, end + 1 - TAIL)
    if low > end:
        return end
    holds = laid_on(laid, low, end + 1)
    holes = np.flatnonzero(~holds.any(axis=0))
    if not len(holes) and doubt.policy is not Tail.ACKNOWLEDGED:
        return end
    copies, unseen = _counted(holds, solution, np.arange(low, end + 1), _lossy(laid, solution, end))
    copies += unseen + doubt.blind
    if len(holes):
        hole = int(holes[0])
        if low + hole == 0:
            return -1
        # What stands behind it was acknowledged after it, if it was; and it may have been on newcomers that lost it.
        if (copies[hole:] >= least).any() or copies[hole] + doubt.wiped >= least:
            return None
        end = low + hole - 1
    if doubt.policy is Tail.ACKNOWLEDGED:
        never = np.flatnonzero(copies[: end + 1 - low] + doubt.wiped < least)
        end = low + int(never[0]) - 1 if len(never) else end
    return end


def _counted(holds: Mask, solution: Solution, entries: Ints, lossy: Mask) -> tuple[Ints, Ints]:
    """Return how many bookies hold each entry, and how many of its write set nothing shows, or may have lost it."""
    segment = np.searchsorted(solution.first, entries, "right") - 1
    unseen = np.zeros(len(entries), np.int64)
    for i in range(solution.write):
        who = solution.members[segment, (entries + i) % solution.ensemble]
        unseen += (who == NOBODY) | (lossy[who] & ~holds[who, np.arange(len(entries))])
    return holds.sum(axis=0), unseen


def _lossy(laid: Copies, solution: Solution, end: int) -> Mask:
    """Say which rows lack an entry of their share and hold a later one of it."""
    low = max(0, end + 1 - TAIL)
    holds = laid_on(laid, low, end + 1)
    bounds = np.append(solution.first, end + 1)
    found = np.zeros(len(laid.bookie), np.bool_)
    for members, begin, behind in zip(solution.members, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        entries = np.arange(max(begin, low), behind)
        for position in np.flatnonzero(members != NOBODY).tolist():
            own = entries[(position - entries) % solution.ensemble < solution.write]
            held = holds[members[position], own - low]
            found[members[position]] |= bool((np.diff(held.astype(np.int8)) > 0).any())
    return found


def _unsettled(
    known: Facts, ledger: int, laid: Copies, chosen: Solution, candidates: Sequence[Candidate], doubt: Doubt
) -> bool:
    """Whether it is open which bookies that nobody looked at are members: those that are not named lose their copies.

    A shape that the copies do not show must be whole, or lack just what those bookies can have; and leave little over.
    """
    if not doubt.elsewhere:
        return False
    idle = np.searchsorted(known.idle_ledger, [ledger, ledger + 1])
    spare = doubt.elsewhere + int(idle[1] - idle[0]) - chosen.lacking[chosen.lacking > 0]
    if any(c.shown and c[:2] == (chosen.ensemble, chosen.write) for c in candidates):
        return bool((spare > 0).any())
    over = not laid.copied.any() and chosen.extra > _OVER * laid.entries
    return over or chosen.missing > chosen.unnamed or bool(spare.any())


def _second_history(laid: Copies, known: Facts, rows: slice, solution: Solution) -> bool:
    """Whether some bookie holds entries that no history of one ledger leaves there.

    One that was replaced before anything of its segment was answered is in no segment, and holds what was under way
    then: nothing from before the segment, with no LAC inside it, and the same as a member, as their lengths show. What
    re-replication leaves behind shows its copies.
    """
    if laid.copied.any():
        return False
    members = np.isin(np.arange(len(laid.bookie)), solution.members)
    lo, hi, lacs = known.held.lo[rows], known.held.hi[rows], known.row_lac[rows]
    # That their lengths agree was asked before.
    read = np.where(known.row_first[rows], lo, -1)
    shown = np.append(read[members], hi[members])
    for row in np.flatnonzero(~members & np.isin(np.arange(len(members)), laid.groups.key)).tolist():
        replaced = (solution.low <= lo[row]) & (lacs[row] < solution.first)
        if not replaced.any() or not np.isin([lo[row] if read[row] >= 0 else hi[row], hi[row]], shown).any():
            return True
    return False


def _forced(laid: Copies, solution: Solution, prior: Prior) -> bool:
    """Whether a shape that nothing supports leaves much unexplained."""
    if solution.write < solution.ensemble:
        return False
    known = {(shape.ensemble, shape.write) for shape in prior.hypotheses}
    odd = solution.missing + solution.extra > _ODD * laid.entries
    return odd and (solution.ensemble, solution.write) not in known


def length_at(known: Facts, ledger: int, end: int) -> int:
    """Return the length up to an entry as headers of it, or of the one behind it, show it; else -1."""
    low, high = np.searchsorted(known.headers.ledger, [ledger, ledger + 1])
    entry, length = known.headers.entry[low:high], known.headers.length[low:high]
    payload = known.headers.payload[low:high]
    at = entry == end
    behind = (entry == end + 1) & (payload >= 0)
    if not at.any() and not behind.any():
        return -1
    return int(max(length[at].tolist() + (length[behind] - payload[behind]).tolist()))
