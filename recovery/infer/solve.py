"""Ledgers whose history the column-wise paths do not prove: the cheapest ensembles that leave nothing unreadable.

What the cheapest segments (`segment_costs`) leave unreadable gets segments of its own. Of equals, who stays keeps its
place, and a copy goes before the bookie that it was made for. The theory is in `docs/design/0006-whole-method.md`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from recovery.infer.clean import ENTRIES_A_SEGMENT
from recovery.infer.copies import Ints, Mask, heads
from recovery.infer.entry_counts import below, laid_out, ranks
from recovery.infer.segment_cases import NOBODY, Cases, Copies, Lost, Problem
from recovery.infer.segment_costs import ABSENCE, SEGMENT, WIPED, Path, allowance
from recovery.model.groups import within

HASTE: Final = 4.5
"""What it costs to take striping for a change with every entry."""
LOST_MEMBER: Final = 6.0
"""What a position without any bookie costs where no bookie can have lost it, and no stripes show that it was there."""
_PATCHES: Final = 400
"""Segments that are added so that nothing is unreadable."""
_LOOKED_THROUGH: Final = 5_000_000
"""Entries that are looked through one by one for what is unreadable."""
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
        missing: copies that it promises and nobody has.
        extra: copies that it does not need.
        thin: positions that no bookie shows in some segment that has entries for them.
        unnamed: how many of the missing copies are theirs.
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


def solve(cases: Cases, problems: Sequence[Problem], paths: Sequence[Path | None]) -> list[Solution | None]:
    """Make histories of the cheapest segments: such as leave nothing unreadable.

    Args:
        cases: the ledgers.
        problems: ledgers and shapes.
        paths: what `cheapest` found for each.

    Returns:
        The histories; None where there are no segments, or it would take more time than one ledger may take.
    """
    found: list[Solution | None] = [None] * len(problems)
    alike: dict[tuple[int, int], list[int]] = {}
    for at, (problem, path) in enumerate(zip(problems, paths, strict=True)):
        if path is not None:
            alike.setdefault(problem.candidate[:2], []).append(at)
    for (_, write), some in alike.items():
        tried = [(problems[at], path) for at in some if (path := paths[at]) is not None]
        settled = [
            (at, problems[at], path)
            for at, path in zip(some, _settled(cases, tried, write), strict=True)
            if path is not None
        ]
        histories = [(problem, path) for _, problem, path in settled]
        for (at, _, _), solution in zip(settled, _solutions(cases, histories, write), strict=True):
            found[at] = solution
    return found


_Histories = Sequence[tuple[Problem, Path]]


class _Segments(NamedTuple):
    """Segments of several histories of one shape.

    Attributes:
        of: of each, the history; ascending.
        first, behind: its first entry, and the one behind its last.
        members: (segments, E).
    """

    of: Ints
    first: Ints
    behind: Ints
    members: Ints

    @classmethod
    def joined(cls, histories: _Histories) -> "_Segments":
        of = np.repeat(np.arange(len(histories)), [len(path.first) for _, path in histories])
        first, members = (np.concatenate([path[at] for _, path in histories]) for at in (1, 2))
        return cls(of, first, _behind(of, first, np.array([problem.end for problem, _ in histories])), members)

    def counts(self, cases: Cases, histories: _Histories, write: int) -> tuple[Ints, Ints]:
        """Return how many entries belong to each position, and how many of them its member holds: (segments, E)."""
        shape, ensemble = self.members.shape, self.members.shape[1]
        number = np.array([problem.number for problem, _ in histories])
        row = cases.row[number][self.of, None] + np.maximum(self.members, 0)
        place = np.repeat([self.first, self.behind], ensemble)
        fits = below(cases.groups, np.append(row, row)[None], place, ensemble, write)[1][0]
        position = np.tile(np.arange(ensemble) % len(fits), 2 * shape[0])
        before, after = fits[position, np.arange(len(place))].reshape(2, *shape)
        due = ranks(self.behind[:, None], ensemble, write) - ranks(self.first[:, None], ensemble, write)
        return due, np.where(self.members == NOBODY, 0, after - before)


def _behind(of: Ints, first: Ints, end: Ints) -> Ints:
    """Return the entry behind each segment's last one; end: the last entry of each history."""
    return np.where(np.append(heads(of)[1:], True), end[of] + 1, np.append(first[1:], 0))


def _settled(cases: Cases, histories: _Histories, write: int) -> Iterator[Path | None]:
    """Make sure that nothing is unreadable, and choose among equal members; None where that would take too long."""
    segments = _Segments.joined(histories)
    due, in_place = segments.counts(cases, histories, write)
    lacking = np.bincount(segments.of, weights=_uncovered(due != in_place, write)) > 0
    for at, ((_, copies, end, candidate, *_), path) in enumerate(histories):
        cost, first, members, shares = path
        if lacking[at]:
            # With more segments it costs too much.
            allowed = int(min(_PATCHES, (allowance(histories[at][0]) - cost) // SEGMENT + 1))
            readable = _readable(copies, end, write, first, members, in_place[segments.of == at], allowed)
            if readable is None:
                yield None
                continue
            first, members, patches = readable
            cost, shares = cost + SEGMENT * patches, _shares(copies, first, end, candidate.ensemble, write)
        yield Path(cost, first, _aligned(_with_newest(copies, first, members, end, write, shares), write), shares)


def _solutions(cases: Cases, histories: _Histories, write: int) -> Iterator[Solution]:
    """Join segments of one ensemble, and count what they leave open."""
    if not histories:
        return
    segments, low = _joined(_Segments.joined(histories), np.array([problem.end for problem, _ in histories]), write)
    due, in_place = segments.counts(cases, histories, write)
    # A member that shows nothing of its share is as good as nobody, and says less.
    members = np.where((in_place == 0) & (due > 0), NOBODY, segments.members)
    nobody = (members == NOBODY) & (due > 0)
    begin = np.searchsorted(segments.of, np.arange(len(histories) + 1))
    thin = np.logical_or.reduceat(nobody, begin[:-1]).sum(axis=1).tolist()
    held = np.add.reduceat(in_place.sum(axis=1), begin[:-1]).tolist()
    unnamed = np.add.reduceat((due * nobody).sum(axis=1), begin[:-1]).tolist()
    lacking = nobody.sum(axis=1)
    for at, (problem, path) in enumerate(histories):
        (ensemble, _, penalty, shown), own = problem.candidate, slice(begin[at], begin[at + 1])
        many = int(begin[at + 1] - begin[at])
        hasty = write == ensemble and many > 1 and problem.end + 1 < ENTRIES_A_SEGMENT * many
        cost = path.cost + penalty + HASTE * hasty
        if not shown:
            cost += _absent(problem.lost, thin[at], unnamed[at])
        missing, extra = write * (problem.end + 1) - held[at], problem.copies.entries - held[at]
        yield Solution(
            ensemble, write, cost, segments.first[own], low[own], members[own], missing, extra, thin[at], unnamed[at],
            lacking[own],
        )  # fmt: skip


def _absent(lost: Lost, positions: int, copies: int) -> float:
    """Return what it costs, beside their copies, that no bookie shows so many positions."""
    if lost is Lost.NOTHING:
        return LOST_MEMBER * positions
    # What a wipe took at once costs less than its copies one by one, and not less than one of them.
    return -min(WIPED, max(copies - ABSENCE, 0.0)) if lost is Lost.WIPED else 0.0


def _due(first: Ints, end: int, ensemble: int, write: int) -> Ints:
    """Return how many entries belong to each position: (segments, E)."""
    below = ranks(np.append(first, end + 1)[:, None], ensemble, write)
    return below[1:] - below[:-1]


def _shares(copies: Copies, first: Ints, end: int, ensemble: int, write: int) -> Ints:
    """Return how many entries each row holds of each position: (segments, rows, E); of one where W = E."""
    bounds, rows = np.append(first, end + 1), np.arange(len(copies.bookie))
    row = np.broadcast_to(rows[:, None], (len(rows), len(bounds)))
    fits = below(copies.groups, row, bounds, ensemble, write)[1]
    return np.moveaxis(np.diff(fits), 2, 0)


def _in_place(shares: Ints, members: Ints) -> Ints:
    """Return how many entries each member holds of those that belong to it: (segments, E)."""
    position = np.arange(members.shape[1]) if shares.shape[2] > 1 else np.zeros(members.shape[1], np.int64)
    of = np.arange(len(members))[:, None]
    return np.where(members == NOBODY, 0, shares[of, np.maximum(members, 0), position])


class Laid(NamedTuple):
    """Copies laid on given segments, both up to the same end: (segments, E).

    Attributes:
        due: how many entries belong to each position.
        in_place: how many of them its member holds.
        readable: whether all that somebody holds has a holder in its write set.
    """

    due: Ints
    in_place: Ints
    readable: bool

    @classmethod
    def of(cls, copies: Copies, end: int, write: int, first: Ints, members: Ints) -> "Laid":
        """Lay copies on segments that begin no later than the end; copies as for `solve`."""
        if not len(copies.bookie):
            due = _due(first, end, members.shape[1], write)
            return cls(due, np.zeros_like(due), readable=True)
        in_place = _in_place(_shares(copies, first, end, members.shape[1], write), members)
        found = _readable(copies, end, write, first, members, in_place)
        due = _due(first, end, members.shape[1], write)
        return cls(due, in_place, found is not None and np.array_equal(found[1], members))


def _readable(
    copies: Copies, end: int, write: int, first: Ints, members: Ints, in_place: Ints, patches: int = _PATCHES
) -> tuple[Ints, Ints, int] | None:
    """Give segments of their own to entries that somebody holds and no member of their write set.

    Returns:
        first entries, members, and how many segments were added; None where these are too many.
    """
    lacking = _uncovered(_due(first, end, members.shape[1], write) != in_place, write)
    if not lacking.any():
        return first, members, 0
    bounds = np.append(first, end + 1)
    if int(np.diff(bounds)[lacking].sum()) > _LOOKED_THROUGH:
        return None
    found_first: list[int] = []
    found_members: list[Ints] = []
    for at in range(len(first)):
        own = [(int(first[at]), members[at])]
        if lacking[at]:
            allowed = patches - len(found_first) + at
            own = _patched(copies, (int(bounds[at]), int(bounds[at + 1])), members[at], write, allowed)
            if len(own) > allowed:
                return None
        found_first += [start for start, _ in own]
        found_members += [who for _, who in own]
    return np.array(found_first), np.stack(found_members), len(found_first) - len(first)


def _uncovered(short: Mask, write: int) -> Mask:
    """Say which segments have a write set whose members all lack some of their share: (segments, E)."""
    none: Mask = np.logical_and.reduce([np.roll(short, -i, axis=1) for i in range(write)])
    return np.asarray(none.any(axis=1))


def _patched(
    copies: Copies, within: tuple[int, int], members: Ints, write: int, allowed: int
) -> list[tuple[int, Ints]]:
    """Return the segments that one segment needs so that all that somebody holds is readable."""
    low, high = within
    found = [(low, members)]
    current = members
    step = max(_BLOCK, _CELLS // max(len(copies.bookie), 1))
    for begin in range(low, high, step):
        holds = laid_on(copies, begin, min(high, begin + step))
        at, count = 0, holds.shape[1]
        while at < count:
            stop = min(count, at + _BLOCK)
            short = _unreadable(holds[:, at:stop], current, begin + at, write)
            if not len(short):
                at = stop
                continue
            at += int(short[0])
            entry = begin + at
            back = current is not members and not len(_unreadable(holds[:, at : at + 1], members, entry, write))
            current = members if back else _with_holder(holds[:, at : at + _BLOCK], members, entry, write)
            if found[-1][0] == entry:
                found.pop()
            found.append((entry, current))
            if len(found) > allowed:
                return found
    return found


def laid_on(copies: Copies, low: int, high: int) -> Mask:
    """Return who holds which entry of [low, high): (rows, entries)."""
    runs = within(copies.groups, low, high - 1)
    return laid_out(runs._replace(first=runs.first - low), len(copies.bookie), high - low)


def _unreadable(holds: Mask, members: Ints, begin: int, write: int) -> Ints:
    """Return the places, of columns from entry `begin`, that somebody holds and no member of their write set."""
    places = np.arange(holds.shape[1])
    covered = np.zeros(len(places), np.bool_)
    for i in range(write):
        who = members[(begin + places + i) % len(members)]
        covered |= (who != NOBODY) & holds[who, places]
    return np.flatnonzero(holds.any(axis=0) & ~covered)


def _with_holder(holds: Mask, members: Ints, entry: int, write: int) -> Ints:
    """Return members with the bookie that holds an entry, and most entries after it, in its write set."""
    able = np.flatnonzero(holds[:, 0])
    until = np.append(holds[able], np.zeros((len(able), 1), np.bool_), axis=1).argmin(axis=1)
    who = int(able[until.argmax()])
    write_set = (entry + np.arange(write)) % len(members)
    empty = write_set[members[write_set] == NOBODY]
    place = int(empty[0]) if len(empty) else int(write_set[0])
    changed = members.copy()
    changed[members == who] = members[place]
    changed[place] = who
    return changed


def _with_newest(copies: Copies, first: Ints, members: Ints, end: int, write: int, shares: Ints) -> Ints:
    """Prefer a complete copy that re-replication made to the bookie that it replaced and that came back.

    Only where a single position fits it: which of several it was made for cannot be told.
    """
    spare = np.flatnonzero(copies.copied)
    if not len(spare):
        return members
    due = _due(first, end, members.shape[1], write)
    members = members.copy()
    whole = ((shares[:, spare] == due[:, None]) & (due[:, None] > 0)).any(axis=2)
    for at in range(len(first)):
        for row in spare[whole[at]].tolist():
            replaced = members[at] != NOBODY
            replaced &= ~copies.copied[members[at]] & (shares[at, row] == due[at]) & (due[at] > 0)
            if replaced.sum() == 1 and row not in members[at]:
                members[at, replaced] = row
    return members


def _aligned(members: Ints, write: int) -> Ints:
    """Where all positions hold the same, let whoever stays keep its place."""
    if write < members.shape[1]:
        return members
    aligned = members.copy()
    for at in range(1, len(members)):
        before, now = aligned[at - 1], members[at]
        stays = np.isin(before, now) & (before != NOBODY)
        newcomers = [who for who in now.tolist() if who not in before[stays]]
        aligned[at] = np.where(stays, before, NOBODY)
        aligned[at, ~stays] = newcomers
    return aligned


def _joined(segments: _Segments, end: Ints, write: int) -> tuple[_Segments, Ints]:
    """Join segments of one ensemble, and date each takeover as far as the striping shows it: it is in [low, first]."""
    of, first, _, members = segments
    ensemble = members.shape[1]
    keep = heads(of)
    keep[1:] |= (members[1:] != members[:-1]).any(axis=1)
    of, first, members = of[keep], first[keep], members[keep]
    head = heads(of)
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
    disordered = late > end[of]
    disordered[later] |= late[later] <= late[later - 1]
    first = np.where(np.bincount(of, weights=disordered)[of] > 0, first, late)
    low[later] = np.minimum(np.maximum(low[later], first[later - 1] + 1), first[later])
    low[head] = 0
    return _Segments(of, first, _behind(of, first, end), members), low
