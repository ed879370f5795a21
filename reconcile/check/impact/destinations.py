"""Bookies for a lost copy, or for the entries of a writer that lost a bookie.

A new member is outside the ensemble, writable, and allowed by the placement policy. Several positions of an ensemble
are filled one after the other, as BookKeeper does. Where a policy demands nothing it is enough to count; else ensembles
that are on the same racks are asked once.

Source: docs/operations/impact.md.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from reconcile.check.impact.bookies import BookieColumns, Sets
from reconcile.check.impact.names import CopyHealth
from reconcile.check.impact.segments.columns import Ints, Mask, SegmentColumns, Shape
from reconcile.check.impact.segments.judgement import States
from reconcile.rules.segments.placement import (
    BookieLocations,
    Ensembles,
    Placement,
    PlacementPolicy,
    PlacementSettings,
    find_replacements,
    judge,
    locate,
)

_TRIES: Final = 64
"""Ensembles that are tried before a policy is said to find none."""
_ROWS: Final = 4096
"""Ensembles that are asked at a time."""


def demands_places(settings: PlacementSettings) -> bool:
    """Whether a policy may refuse a bookie for its place."""
    match settings.policy:
        case PlacementPolicy.RACK_AWARE:
            return settings.enforce_min_racks
        case PlacementPolicy.REGION_AWARE:
            demands = settings.demanded_regions > 1 and settings.enforce_regions_in_replace
            return settings.enforce_min_racks or demands
        case PlacementPolicy.ZONE_AWARE:
            return settings.enforce_zones
        case _:
            return False


@dataclass(frozen=True, slots=True, eq=False)
class Destinations:
    """The writable bookies now, and when each set is taken.

    Attributes:
        bookies: as they are now.
        sets: sets that may be taken.
        settings: the placement policy.
    """

    bookies: BookieColumns
    sets: Sets
    settings: PlacementSettings
    _pools: Ints = field(init=False)
    _writable: Any = field(init=False)
    _locations: BookieLocations = field(init=False)

    def __post_init__(self) -> None:
        # The last of each is found by the number -1: nothing is taken; no other bookie can be written to.
        states = self.bookies.states[:-1]
        writable = np.stack(
            [*(self.sets.change(self.bookies.states, n)[:-1] for n in range(len(self.sets.labels))), states]
        )
        topology = {
            name: place for name, place in zip(self.bookies.names, self.bookies.locations, strict=True) if place
        }
        object.__setattr__(self, "_writable", writable == CopyHealth.READ_WRITE)
        object.__setattr__(self, "_pools", (writable == CopyHealth.READ_WRITE).sum(axis=1))
        object.__setattr__(self, "_locations", locate((*self.bookies.names, ""), topology, self.settings))

    def may_lack(self, number: int, ensemble: int) -> bool:
        """Whether segments without a bookie of a set may find fewer bookies when it is taken than they find now."""
        pool, pool_now = int(self._pools[number]), int(self._pools[-1])
        return pool < pool_now and (pool < 2 * ensemble or demands_places(self.settings))

    def count_outside(self, number: int, writable: int) -> int:
        """Return how many bookies outside an ensemble are writable, given how many of its own are."""
        return int(self._pools[number]) - writable

    def find_lacking(self, segments: SegmentColumns, states: States, wanted: Mask, writable: Ints, owner: Ints) -> Mask:
        """Mark segments without enough bookies for their positions.

        Args:
            segments: of one shape.
            states: (E, segments) of their bookies.
            wanted: (E, segments) positions that want another bookie.
            writable: positions of each on bookies that can be written to.
            owner: the set that is taken, of each.
        """
        count = wanted.sum(axis=0)
        lacking: Mask = (count > 0) & (self._pools[owner] - writable < count)
        if demands_places(self.settings):
            rows = np.flatnonzero((count > 0) & ~lacking)
            # What is asked depends on nothing else of an ensemble than these.
            can_write = states[:, rows] == CopyHealth.READ_WRITE
            alike = np.vstack(
                [owner[rows], self._locations.rack[segments.members[:, rows]], can_write, wanted[:, rows]]
            )
            _, first, inverse = np.unique(alike, axis=1, return_index=True, return_inverse=True)
            for begin in range(0, len(first), _ROWS):
                asked = rows[first[begin : begin + _ROWS]]
                refused = self._ask_policy(
                    segments.shape, segments.members[:, asked].T.astype(np.int64), wanted[:, asked].T, owner[asked]
                )
                lacking[rows] |= np.isin(inverse.ravel(), begin + np.flatnonzero(refused))
        return lacking

    def _ask_policy(self, shape: Shape, members: Ints, wanted: Mask, owner: Ints) -> Mask:
        """Return which ensembles, a row each, find no bookie for some position."""
        count, bookies = len(members), len(self._locations.bookies)
        # A bookie that no other source names is at the end of the locations, without one.
        members = np.where(members < 0, bookies - 1, members)
        refused = np.zeros(count, np.bool_)
        free = np.concatenate([self._writable[owner], np.zeros((count, 1), np.bool_)], axis=1)
        for position in range(shape.ensemble):
            rows = np.flatnonzero(wanted[:, position] & ~refused)
            if not len(rows):
                continue
            column = np.full(len(rows), shape.ensemble)
            ensembles = Ensembles(members[rows].ravel(), column, column * 0 + shape.write, column * 0 + shape.ack)
            legal = find_replacements(ensembles, column * 0 + position, self._locations, self.settings) & free[rows]
            np.put_along_axis(legal, members[rows], values=False, axis=1)
            refused[rows] = ~legal.any(axis=1)
            members[rows, position] = np.where(refused[rows], members[rows, position], legal.argmax(axis=1))
        return refused

    def finds_ensemble(self, shape: Shape, number: int) -> bool:
        """Whether a new ledger finds its bookies when a set is taken; several orders of racks are tried."""
        if self._pools[number] < shape.ensemble:
            return False
        if not demands_places(self.settings):
            return True
        free = np.flatnonzero(self._writable[number])
        tries = [_interleave(free, self._locations)[: shape.ensemble]]
        random = np.random.default_rng(0)
        tries += [random.permutation(free)[: shape.ensemble] for _ in range(_TRIES)]
        column = np.full(len(tries), shape.ensemble)
        ensembles = Ensembles(np.concatenate(tries), column, column * 0 + shape.write, column * 0 + shape.ack)
        verdicts = judge(ensembles, self._locations, self.settings)
        return bool((verdicts <= Placement.SOFT).any())


def _interleave(bookies: Ints, locations: BookieLocations) -> Ints:
    """Return bookies in an order with distant neighbours: one of each region or zone, and rack, in turns."""
    turn = np.zeros(len(bookies), np.int64)
    for codes in (locations.rack, locations.domain):
        own = codes[bookies]
        order = np.lexsort((turn, own))
        begin = np.append(True, own[order][1:] != own[order][:-1])
        start = np.maximum.accumulate(np.where(begin, np.arange(len(own)), 0))
        turn[order] = np.arange(len(own)) - start
    return bookies[np.lexsort((locations.domain[bookies], turn))]
