"""Which bookies may take a copy that was lost, or the entries of a writer that lost a bookie.

A new member stands outside the ensemble, can be written to, and is one that the placement policy takes. Several
positions of an ensemble are filled one behind the other, as BookKeeper does. Where a policy demands nothing it is enough
to count; else segments that stand on the same racks are asked once.

Source: bookkeeper-metadata §8.2, §8.5.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from reconcile.check.impact.bookies import Bookies, Sets
from reconcile.check.impact.judgement import States
from reconcile.check.impact.segments import Ints, Mask, Segments, Shape

_TRIES: Final = 64
"""Ensembles that are tried before a policy is said to find none."""


@dataclass(frozen=True, slots=True, eq=False)
class Destinations:
    """What can be written to now, and when each set is taken.

    Attributes:
        bookies: as they are now.
        sets: that may be taken.
    """

    bookies: Bookies
    sets: Sets
    _pools: Ints = field(init=False)

    def __post_init__(self) -> None:
        pools = self.sets.count_writable(self.bookies.states)
        # The last one is found by the number -1: nothing is taken.
        object.__setattr__(self, "_pools", np.append(pools, self.bookies.writable()))

    def may_lack(self, number: int, ensemble: int) -> bool:
        """Whether segments of so many bookies may find fewer bookies when a set is taken than they find now."""
        return (
            bool(self._pools[number] < min(2 * ensemble, self._pools[-1] + 1))
            and self._pools[number] != self._pools[-1]
        )

    def find_lacking(self, segments: Segments, states: States, wanted: Mask, writable: Ints, owner: Ints) -> Mask:
        """Return which segments lack bookies for the positions that want one.

        Args:
            segments: of one shape.
            states: (E, segments) of their bookies.
            wanted: (E, segments) positions that want another bookie.
            writable: positions of each on bookies that can be written to.
            owner: the set that is taken, of each.
        """
        count = wanted.sum(axis=0)
        lacking: Mask = (count > 0) & (self._pools[owner] - writable < count)
        return lacking

    def finds_ensemble(self, shape: Shape, number: int) -> bool:
        """Whether a new ledger finds its bookies when a set is taken."""
        return bool(self._pools[number] >= shape.ensemble)
