"""Damaged segments: with bookies as they are now, and for each set of bookies that may be taken.

Only segments that have a bookie of a set can be worse off by what their own bookies become; of the others only those
that already need a new bookie, when the set takes the last that could be one. So many sets that share no bookie cost
little more than one: each segment is judged once for each of them that has one of its bookies.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from reconcile.check.impact.bookies import BookieColumns, Codes, Sets
from reconcile.check.impact.destinations import Destinations
from reconcile.check.impact.names import OF_SEGMENTS, Impact
from reconcile.check.impact.segments.columns import Ints, Mask, SegmentColumns
from reconcile.check.impact.segments.judgement import SegmentJudgement, States, judge

NOW: Final = -1
"""The set of damage that exists before any bookie is taken."""
_RESIDUES: Final = 1 << 32
"""Weighs residues without a source more than any number of positions."""
_ROWS: Final = 1 << 16
"""Segments that are judged at a time: their columns fit in a processor's cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Hits:
    """Segments and their impacts, as columns.

    Attributes:
        row: of the segment.
        set: number of the set that is taken; `NOW`: nothing is.
        impact: place in `OF_SEGMENTS`.
        change: 1 where the set brings it about, 0 where the set makes it worse, -1 where the set turns it into another
            impact; 1 where nothing is taken.
        entries: hit entries beyond those that are hit already; 0 where a segment may still grow.
    """

    row: Ints
    set: Ints
    impact: Ints
    change: Ints
    entries: Ints

    @classmethod
    def concatenate(cls, parts: "list[Hits]") -> "Hits":
        """Concatenate all parts."""
        empty = np.zeros(0, np.int64)
        return cls(*(np.concatenate([empty, *(getattr(part, f.name) for part in parts)]) for f in fields(cls)))


@dataclass(frozen=True, slots=True, eq=False)
class ImpactCluster:
    """The input of the judgement.

    Attributes:
        bookies: as they are now.
        sets: sets that may be taken.
        destinations: which bookies may take a copy, or entries of a writer.
        margin: failure domain of each bookie, where the margin is asked for.
    """

    bookies: BookieColumns
    sets: Sets
    destinations: Destinations
    margin: Codes | None = None


def list_hits(segments: SegmentColumns, cluster: ImpactCluster, floors: States | None = None) -> Hits:
    """Return the hits.

    Args:
        segments: of one shape.
        cluster: the bookies and the sets.
        floors: as `judge` takes it.
    """
    parts = []
    for begin in range(0, len(segments), _ROWS):
        rows = slice(begin, begin + _ROWS)
        chunk = _Chunk(segments.select(rows), cluster, None if floors is None else floors[:, :, rows])
        parts += [replace(hits, row=hits.row + begin) for hits in chunk.list_hits()]
    return Hits.concatenate(parts)


@dataclass(frozen=True, slots=True, eq=False)
class _Levels:
    """How badly each impact hits each segment: (impacts, segments), 0 not at all; and the entries that it hits."""

    level: Ints
    entries: Ints


class _Chunk:
    """Some segments of one shape."""

    def __init__(self, segments: SegmentColumns, cluster: ImpactCluster, floors: States | None) -> None:
        self._segments = segments
        self._cluster = cluster
        self._floors = floors
        self._occurs = segments.find_residues()
        self._states = cluster.bookies.states[segments.members]
        self._owners = cluster.sets.of[segments.members]
        self._margin = None if cluster.margin is None else cluster.margin[segments.members]

    def list_hits(self) -> Iterator[Hits]:
        """Yield the hits now, then those of sets."""
        segments, sets = self._segments, self._cluster.sets
        everything = np.arange(len(segments))
        judgement = self._judge(everything, self._states)
        now = self._rate(everything, self._states, judgement, NOW)
        none = np.zeros_like(now.level)
        yield _list_changes(everything, np.full(len(segments), NOW), _Levels(none, none), now)
        for position in range(segments.shape.ensemble):
            owner = self._owners[position]
            fresh = owner >= 0
            for earlier in range(position):
                fresh &= self._owners[earlier] != owner
            rows = np.flatnonzero(fresh)
            if len(rows):
                yield self._list_of_sets(rows, owner[rows].astype(np.int64), now)
        yield from self._list_of_elsewhere(judgement, now, sets)

    def _list_of_sets(self, rows: Ints, owner: Ints, now: _Levels) -> Hits:
        """Return the hits of sets that contain a bookie of the segments."""
        taken = self._owners[:, rows] == owner
        current = self._states[:, rows]
        states = np.where(taken, np.maximum(current, np.int8(self._cluster.sets.target.state)), current).astype(np.int8)
        judgement = self._judge(rows, states)
        rated = self._rate(rows, states, judgement, owner)
        return _list_changes(rows, owner, _Levels(now.level[:, rows], now.entries[:, rows]), rated)

    def _list_of_elsewhere(self, judgement: SegmentJudgement, now: _Levels, sets: Sets) -> Iterator[Hits]:
        """Yield the hits of sets that take bookies needed as destinations by other segments."""
        needy = np.flatnonzero(judgement.copied.any(axis=0) | judgement.replaced.any(axis=0))
        if not len(needy):
            return
        for number in range(len(sets.labels)):
            if not self._cluster.destinations.may_lack(number, self._segments.shape.ensemble):
                continue
            rows = needy[(self._owners[:, needy] != number).all(axis=0)]
            owner = np.full(len(rows), number)
            part = _select(judgement, rows)
            rated = self._rate(rows, self._states[:, rows], part, owner)
            yield _list_changes(rows, owner, _Levels(now.level[:, rows], now.entries[:, rows]), rated)

    def _judge(self, rows: Ints, states: States) -> SegmentJudgement:
        return judge(
            self._segments.select(rows),
            self._occurs[:, rows],
            states,
            None if self._floors is None else self._floors[:, :, rows],
            None if self._margin is None else self._margin[:, rows],
        )

    def _rate(self, rows: Ints, states: States, judgement: SegmentJudgement, number: Ints | int) -> _Levels:
        """Return how badly segments are hit; `number`: of the set of each."""
        segments = self._segments.select(rows)
        destinations = self._cluster.destinations
        owner = np.broadcast_to(np.asarray(number, np.int64), len(rows))
        unwritten, uncopied = (
            destinations.find_lacking(segments, states, wanted, judgement.writable, owner)
            for wanted in (judgement.replaced, judgement.copied)
        )
        count = len(rows)
        level = np.zeros((len(OF_SEGMENTS), count), np.int64)
        entries = np.zeros((len(OF_SEGMENTS), count), np.int64)
        by_residue = {
            Impact.DATA_LOSS: judgement.lost,
            Impact.READ_AVAILABILITY_LOSS: judgement.unreadable,
            Impact.READ_MARGIN_LOSS: judgement.narrow,
        }
        for impact, residues in by_residue.items():
            place = OF_SEGMENTS.index(impact)
            level[place] = residues.sum(axis=0)
            hit = np.flatnonzero(level[place])
            entries[place, hit] = segments.select(hit).count_entries(residues[:, hit])
        whole = {
            Impact.RECOVERY_LOSS: judgement.uncovered,
            Impact.WRITE_AVAILABILITY_LOSS: judgement.replaced.sum(axis=0) * unwritten,
            Impact.REBUILDING_STALL: judgement.waiting * _RESIDUES + judgement.copied.sum(axis=0) * uncopied,
        }
        for impact, values in whole.items():
            place = OF_SEGMENTS.index(impact)
            level[place] = values
            hit = np.flatnonzero(values)
            part = segments.select(hit)
            entries[place, hit] = part.count_entries(np.ones((segments.shape.ensemble, len(hit)), np.bool_))
        return _Levels(level, entries)


def _select(judgement: SegmentJudgement, rows: Ints) -> SegmentJudgement:
    return SegmentJudgement(*(getattr(judgement, field.name)[..., rows] for field in fields(judgement)))


def _list_changes(rows: Ints, owner: Ints, before: _Levels, after: _Levels) -> Hits:
    """Return where segments are worse off, or hit in another way."""
    changed: Mask = (after.level > before.level) | ((after.level == 0) & (before.level > 0))
    changed |= after.entries != before.entries
    impact, place = np.nonzero(changed)
    was, now = before.level[impact, place] > 0, after.level[impact, place] > 0
    change: npt.NDArray[np.int64] = now.astype(np.int64) - was
    more = after.entries[impact, place] - before.entries[impact, place]
    return Hits(rows[place], owner[place], impact, change, more)
