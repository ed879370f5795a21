"""Ledgers that the column-wise paths do not prove: the cheapest ensembles that leave nothing unreadable.

What the cheapest segments (`segment_costs`) leave unreadable gets segments of its own. Of equals, who stays keeps its
place, and a copy goes before the bookie that it was made for. The theory is in `docs/internals/reconstruction.md`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from recovery.infer.clean import ENTRIES_A_SEGMENT
from recovery.infer.copies import Ints, Mask, heads
from recovery.infer.entry_counts import count_below, lay_out, rank_positions
from recovery.infer.segment_cases import NOBODY, Cases, Copies, Lost, ShapeProblem
from recovery.infer.segment_costs import ABSENCE, SEGMENT, WIPED, Path, allowance
from recovery.model.groups import within

HASTE: Final = 4.5
"""Cost of taking striping for a change at every entry."""
LOST_MEMBER: Final = 6.0
"""Cost of a position without a bookie, if no bookie can have lost its copies and no stripes show the position."""
_PATCHES: Final = 400
"""Most segments that are added to make entries readable."""
_LOOKED_THROUGH: Final = 5_000_000
"""Most entries that are checked one by one for unreadable ones."""
_BLOCK: Final = 4096
"""Entries that are looked through at a time."""
_CELLS: Final = 1 << 24
"""Entries times bookies that are laid out at a time."""


@dataclass(frozen=True, slots=True)
class Solution:
    """A history of ensembles that leaves nothing unreadable.

    Attributes:
        ensemble, write: its shape.
        cost: see the table of this module; the shape's penalty included.
        first, low: of each segment; the takeovers that begin it truly happened in [low, first].
        members: rows of `Copies`, or NOBODY: (segments, E).
        missing: copies that it promises and no bookie has.
        extra: copies that it does not need.
        thin: positions that no bookie shows in some segment that has entries for them.
        unnamed: missing copies of positions without a bookie.
        lacking: of each segment, how many such positions it has.
    """

    ensemble: int
    write: int
    cost: float
    first: Ints
    low: Ints
    members: Ints
    missing: int
    extra: int
    thin: int
    unnamed: int
    lacking: Ints


def solve_problems(
    cases: Cases, problems: Sequence[ShapeProblem], paths: Sequence[Path | None]
) -> list[Solution | None]:
    """Make histories from the cheapest segments that leave no entry unreadable.

    Args:
        cases: the ledgers.
        problems: ledgers and shapes.
        paths: the result of `find_cheapest` for each.

    Returns:
        The histories; None where there are no segments, or it would take more time than one ledger may take.
    """
    solutions: list[Solution | None] = [None] * len(problems)
    alike: dict[tuple[int, int], list[int]] = {}
    for place, (problem, path) in enumerate(zip(problems, paths, strict=True)):
        if path is not None:
            alike.setdefault(problem.shape[:2], []).append(place)
    for (_, write), places in alike.items():
        tried = [(problems[place], path) for place in places if (path := paths[place]) is not None]
        settled = [
            (place, problems[place], path)
            for place, path in zip(places, _settle_paths(cases, tried, write), strict=True)
            if path is not None
        ]
        histories = [(problem, path) for _, problem, path in settled]
        for (place, _, _), solution in zip(settled, _build_solutions(cases, histories, write), strict=True):
            solutions[place] = solution
    return solutions


_Histories = Sequence[tuple[ShapeProblem, Path]]


class _Segments(NamedTuple):
    """Segments of several histories of one shape.

    Attributes:
        history: of each; its place; ascending.
        first, behind: its first entry, and the entry after its last.
        members: (segments, E).
    """

    history: Ints
    first: Ints
    behind: Ints
    members: Ints

    @classmethod
    def join(cls, histories: _Histories) -> "_Segments":
        history = np.repeat(np.arange(len(histories)), [len(path.first) for _, path in histories])
        first, members = (np.concatenate([path[column] for _, path in histories]) for column in (1, 2))
        return cls(
            history, first, _find_behind(history, first, np.array([problem.end for problem, _ in histories])), members
        )

    def counts(self, cases: Cases, histories: _Histories, write: int) -> tuple[Ints, Ints]:
        """Return how many entries belong to each position, and how many of these its member holds: (segments, E)."""
        shape, ensemble = self.members.shape, self.members.shape[1]
        number = np.array([problem.number for problem, _ in histories])
        row = cases.row[number][self.history, None] + np.maximum(self.members, 0)
        place = np.repeat([self.first, self.behind], ensemble)
        fits = count_below(cases.groups, np.append(row, row)[None], place, ensemble, write)[1][0]
        position = np.tile(np.arange(ensemble) % len(fits), 2 * shape[0])
        fits_before, fits_behind = fits[position, np.arange(len(place))].reshape(2, *shape)
        due = rank_positions(self.behind[:, None], ensemble, write) - rank_positions(
            self.first[:, None], ensemble, write
        )
        return due, np.where(self.members == NOBODY, 0, fits_behind - fits_before)


def _find_behind(history: Ints, first: Ints, end: Ints) -> Ints:
    """Return the entry after each segment's last one; end: the last entry of each history."""
    return np.where(np.append(heads(history)[1:], True), end[history] + 1, np.append(first[1:], 0))


def _settle_paths(cases: Cases, histories: _Histories, write: int) -> Iterator[Path | None]:
    """Make every entry readable, and choose among equal members; None if that would take too long."""
    segments = _Segments.join(histories)
    due, in_place = segments.counts(cases, histories, write)
    lacking = np.bincount(segments.history, weights=_mark_uncovered(due != in_place, write)) > 0
    for place, ((_, copies, end, shape, *_), path) in enumerate(histories):
        cost, first, members, shares = path
        if lacking[place]:
            # With more segments it costs too much.
            allowed = int(min(_PATCHES, (allowance(histories[place][0]) - cost) // SEGMENT + 1))
            readable = _make_readable(copies, end, write, first, members, in_place[segments.history == place], allowed)
            if readable is None:
                yield None
                continue
            first, members, patches = readable
            cost, shares = cost + SEGMENT * patches, _count_shares(copies, first, end, shape.ensemble, write)
        yield Path(cost, first, _align(_prefer_newest(copies, first, members, end, write, shares), write), shares)


def _build_solutions(cases: Cases, histories: _Histories, write: int) -> Iterator[Solution]:
    """Join segments of one ensemble, and count their missing and extra copies."""
    if not histories:
        return
    segments, low = _join(_Segments.join(histories), np.array([problem.end for problem, _ in histories]), write)
    due, in_place = segments.counts(cases, histories, write)
    # A member that shows nothing of its share is as good as an empty position, and claims less.
    members = np.where((in_place == 0) & (due > 0), NOBODY, segments.members)
    nobody = (members == NOBODY) & (due > 0)
    begin = np.searchsorted(segments.history, np.arange(len(histories) + 1))
    thin = np.logical_or.reduceat(nobody, begin[:-1]).sum(axis=1).tolist()
    in_place_counts = np.add.reduceat(in_place.sum(axis=1), begin[:-1]).tolist()
    unnamed = np.add.reduceat((due * nobody).sum(axis=1), begin[:-1]).tolist()
    lacking = nobody.sum(axis=1)
    for place, (problem, path) in enumerate(histories):
        (ensemble, _, penalty, shown), own = problem.shape, slice(begin[place], begin[place + 1])
        count = int(begin[place + 1] - begin[place])
        hasty = write == ensemble and count > 1 and problem.end + 1 < ENTRIES_A_SEGMENT * count
        cost = path.cost + penalty + HASTE * hasty
        if not shown:
            cost += _cost_absent(problem.lost, thin[place], unnamed[place])
        missing, extra = (
            write * (problem.end + 1) - in_place_counts[place],
            problem.copies.entries - in_place_counts[place],
        )
        yield Solution(
            ensemble, write, cost, segments.first[own], low[own], members[own], missing, extra, thin[place],
            unnamed[place], lacking[own],
        )  # fmt: skip


def _cost_absent(lost: Lost, positions: int, copies: int) -> float:
    """Return the additional cost of positions without a bookie, beside their copies."""
    if lost is Lost.NOTHING:
        return LOST_MEMBER * positions
    # What a wipe took at once costs less than its copies one by one, and not less than one of them.
    return -min(WIPED, max(copies - ABSENCE, 0.0)) if lost is Lost.WIPED else 0.0


def _count_due(first: Ints, end: int, ensemble: int, write: int) -> Ints:
    """Return how many entries belong to each position: (segments, E)."""
    below = rank_positions(np.append(first, end + 1)[:, None], ensemble, write)
    return below[1:] - below[:-1]


def _count_shares(copies: Copies, first: Ints, end: int, ensemble: int, write: int) -> Ints:
    """Return how many entries of each position each row holds: (segments, rows, E); of one position where W = E."""
    bounds, rows = np.append(first, end + 1), np.arange(len(copies.bookie))
    row = np.broadcast_to(rows[:, None], (len(rows), len(bounds)))
    fits = count_below(copies.groups, row, bounds, ensemble, write)[1]
    return np.moveaxis(np.diff(fits), 2, 0)


def _count_in_place(shares: Ints, members: Ints) -> Ints:
    """Return how many entries each member holds of those that belong to it: (segments, E)."""
    position = np.arange(members.shape[1]) if shares.shape[2] > 1 else np.zeros(members.shape[1], np.int64)
    segment = np.arange(len(members))[:, None]
    return np.where(members == NOBODY, 0, shares[segment, np.maximum(members, 0), position])


class PlacedCopies(NamedTuple):
    """How many copies are where given segments place them, up to one end: (segments, E).

    Attributes:
        due: how many entries belong to each position.
        in_place: how many of them its member holds.
        readable: whether each entry with a holder has one in its write set.
    """

    due: Ints
    in_place: Ints
    readable: bool

    @classmethod
    def sum_up(cls, copies: Copies, end: int, write: int, first: Ints, members: Ints) -> "PlacedCopies":
        """Count the copies of segments that begin no later than the end; copies as for `solve_problems`."""
        if not len(copies.bookie):
            due = _count_due(first, end, members.shape[1], write)
            return cls(due, np.zeros_like(due), readable=True)
        in_place = _count_in_place(_count_shares(copies, first, end, members.shape[1], write), members)
        readable = _make_readable(copies, end, write, first, members, in_place)
        due = _count_due(first, end, members.shape[1], write)
        return cls(due, in_place, readable is not None and np.array_equal(readable[1], members))


def _make_readable(
    copies: Copies, end: int, write: int, first: Ints, members: Ints, in_place: Ints, patches: int = _PATCHES
) -> tuple[Ints, Ints, int] | None:
    """Give segments of their own to entries with a holder, but none in their write set.

    Returns:
        first entries, members, and how many segments were added; None where these are too many.
    """
    lacking = _mark_uncovered(_count_due(first, end, members.shape[1], write) != in_place, write)
    if not lacking.any():
        return first, members, 0
    bounds = np.append(first, end + 1)
    if int(np.diff(bounds)[lacking].sum()) > _LOOKED_THROUGH:
        return None
    found_first: list[int] = []
    found_members: list[Ints] = []
    for place in range(len(first)):
        own = [(int(first[place]), members[place])]
        if lacking[place]:
            allowed = patches - len(found_first) + place
            own = _patch(copies, (int(bounds[place]), int(bounds[place + 1])), members[place], write, allowed)
            if len(own) > allowed:
                return None
        found_first += [start for start, _ in own]
        found_members += [ensemble for _, ensemble in own]
    return np.array(found_first), np.stack(found_members), len(found_first) - len(first)


def _mark_uncovered(short: Mask, write: int) -> Mask:
    """Mark write sets in which all members lack some of their share: (segments, E)."""
    none: Mask = np.logical_and.reduce([np.roll(short, -i, axis=1) for i in range(write)])
    return np.asarray(none.any(axis=1))


def _patch(copies: Copies, within: tuple[int, int], members: Ints, write: int, allowed: int) -> list[tuple[int, Ints]]:
    """Return the segments that replace one segment so that every held entry is readable."""
    low, high = within
    segments = [(low, members)]
    current = members
    step = max(_BLOCK, _CELLS // max(len(copies.bookie), 1))
    for begin in range(low, high, step):
        holds = mark_held(copies, begin, min(high, begin + step))
        place, count = 0, holds.shape[1]
        while place < count:
            stop = min(count, place + _BLOCK)
            short = _find_unreadable(holds[:, place:stop], current, begin + place, write)
            if not len(short):
                place = stop
                continue
            place += int(short[0])
            entry = begin + place
            back = not len(_find_unreadable(holds[:, place : place + 1], members, entry, write))
            current = members if back else _add_holder(holds[:, place : place + _BLOCK], members, entry, write)
            if segments[-1][0] == entry:
                segments.pop()
            segments.append((entry, current))
            if len(segments) > allowed:
                return segments
    return segments


def mark_held(copies: Copies, low: int, high: int) -> Mask:
    """Return which row holds which entry of [low, high): (rows, entries)."""
    runs = within(copies.groups, low, high - 1)
    return lay_out(runs._replace(first=runs.first - low), len(copies.bookie), high - low)


def _find_unreadable(holds: Mask, members: Ints, begin: int, write: int) -> Ints:
    """Return the places, of columns from entry `begin`, with a holder but none in their write set."""
    places = np.arange(holds.shape[1])
    covered = np.zeros(len(places), np.bool_)
    for i in range(write):
        member = members[(begin + places + i) % len(members)]
        covered |= (member != NOBODY) & holds[member, places]
    return np.flatnonzero(holds.any(axis=0) & ~covered)


def _add_holder(holds: Mask, members: Ints, entry: int, write: int) -> Ints:
    """Return members with the bookie that holds an entry, and most entries after it, in its write set."""
    able = np.flatnonzero(holds[:, 0])
    until = np.append(holds[able], np.zeros((len(able), 1), np.bool_), axis=1).argmin(axis=1)
    holder = int(able[until.argmax()])
    write_set = (entry + np.arange(write)) % len(members)
    empty = write_set[members[write_set] == NOBODY]
    place = int(empty[0]) if len(empty) else int(write_set[0])
    changed = members.copy()
    changed[members == holder] = members[place]
    changed[place] = holder
    return changed


def _prefer_newest(copies: Copies, first: Ints, members: Ints, end: int, write: int, shares: Ints) -> Ints:
    """Prefer a complete copy that re-replication made to the bookie that it replaced and that came back.

    Only where a single position fits it: of several, the right one is not known.
    """
    spare = np.flatnonzero(copies.copied)
    if not len(spare):
        return members
    due = _count_due(first, end, members.shape[1], write)
    members = members.copy()
    whole = ((shares[:, spare] == due[:, None]) & (due[:, None] > 0)).any(axis=2)
    for segment in range(len(first)):
        for row in spare[whole[segment]].tolist():
            replaced = members[segment] != NOBODY
            replaced &= ~copies.copied[members[segment]] & (shares[segment, row] == due[segment]) & (due[segment] > 0)
            if replaced.sum() == 1 and row not in members[segment]:
                members[segment, replaced] = row
    return members


def _align(members: Ints, write: int) -> Ints:
    """Where all positions hold the same, let a bookie that stays keep its place."""
    if write < members.shape[1]:
        return members
    aligned = members.copy()
    for segment in range(1, len(members)):
        previous, current = aligned[segment - 1], members[segment]
        stays = np.isin(previous, current) & (previous != NOBODY)
        newcomers = [row for row in current.tolist() if row not in previous[stays]]
        aligned[segment] = np.where(stays, previous, NOBODY)
        aligned[segment, ~stays] = newcomers
    return aligned


def _join(segments: _Segments, end: Ints, write: int) -> tuple[_Segments, Ints]:
    """Join segments of one ensemble, and date each takeover as far as the striping shows it: it is in [low, first]."""
    history, first, _, members = segments
    ensemble = members.shape[1]
    keep = heads(history)
    keep[1:] |= (members[1:] != members[:-1]).any(axis=1)
    history, first, members = history[keep], first[keep], members[keep]
    head = heads(history)
    low, late = first.copy(), first.copy()
    later = np.flatnonzero(~head)
    if write < ensemble:
        changed = members[later] != members[later - 1]
        begin = np.arange(ensemble) - write + 1
        # From the start to the position's next entry; and from behind its last one before the start.
        ahead = -(first[later, None] - begin) % ensemble
        ahead[ahead > ensemble - write] = 0
        into = (first[later, None] - 1 - begin) % ensemble
        late[later] += np.where(changed, ahead, ensemble).min(axis=1)
        low[later] -= np.where(changed, np.maximum(into - write + 1, 0), ensemble).min(axis=1)
    disordered = late > end[history]
    disordered[later] |= late[later] <= late[later - 1]
    first = np.where(np.bincount(history, weights=disordered)[history] > 0, first, late)
    low[later] = np.minimum(np.maximum(low[later], first[later - 1] + 1), first[later])
    low[head] = 0
    return _Segments(history, first, _find_behind(history, first, end), members), low
