"""The bookies of a cluster as columns: the state, weight and place of each; and sets of bookies to be taken.

A bookie is registered by a node of its own that lives with its session. In files and in captures such nodes say nothing
of today, so there every bookie with a cookie counts as registered.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.check.impact.names import UNKNOWN, CopyHealth, DomainLevel, ImpactTarget
from reconcile.check.impact.segments.judgement import States
from recovery.codecs.store_kind import KINDS

Codes = npt.NDArray[np.int32]
_NONE: Final = -1
_READ_ONLY: Final = frozenset(kind.places.registrations[1] for kind in KINDS)
"""Folders of read-only bookies."""


@dataclass(frozen=True, slots=True, eq=False)
class BookieColumns:
    """Every bookie that has a cookie, is registered, or was named; the last element of a column is for all others.

    Attributes:
        names: ids, ascending.
        states: of each, and of any other: that is not registered, so it is down.
        weights: share of the cluster's capacity, in any unit; any other has none.
        locations: as the topology has them; None: it has none.
    """

    names: tuple[str, ...]
    states: States
    weights: npt.NDArray[np.float64]
    locations: tuple[str | None, ...]

    def number(self, name: str) -> int:
        """Return the place of a bookie."""
        return self.names.index(name)

    def writable(self) -> int:
        """Return how many can be written to."""
        return int((self.states == CopyHealth.READ_WRITE).sum())

    def domain_of(self, bookie: int, level: DomainLevel) -> str:
        """Return the failure domain of a bookie by its place; -1 is any other."""
        if level is DomainLevel.BOOKIE:
            return self.names[bookie] if bookie >= 0 else UNKNOWN
        location = self.locations[bookie] if bookie >= 0 else None
        if location is None:
            return UNKNOWN
        return location if level is DomainLevel.RACK else "/" + location.strip("/").split("/")[0]

    def code_domains(self, level: DomainLevel) -> tuple[tuple[str, ...], Codes]:
        """Return the failure domains, and the domain of each bookie; bookies without a location are one domain."""
        domains = [self.domain_of(bookie, level) for bookie in range(len(self.names))]
        named = tuple(sorted({*domains, UNKNOWN}, key=lambda name: (name == UNKNOWN, name)))
        places = {name: code for code, name in enumerate(named)}
        return named, np.array([*(places[name] for name in domains), places[UNKNOWN]], np.int32)


def read_bookies(
    nodes: pa.Table,
    *,
    alive: bool,
    unrecoverable: Collection[str] = (),
    named: Collection[str] = (),
    weights: Mapping[str, float] | None = None,
    topology: Mapping[str, str] | None = None,
) -> BookieColumns:
    """Return the bookies of a cluster.

    Args:
        nodes: path and kind of CATALOG_NODES.
        alive: the registrations are current.
        unrecoverable: bookies that a person declared to have lost their data.
        named: bookies that a person named.
        weights: of bookies; others have 1.
        topology: bookie to location.
    """
    cookies = _list_names(nodes, "cookie")
    registered = {
        path.rpartition("/")[2]: path.rpartition("/")[0]
        for path in sorted(nodes.filter(pc.equal(nodes["kind"], "registration"))["path"].to_pylist())
    }
    read_only = {name for name, folder in registered.items() if folder in _READ_ONLY}
    names = tuple(sorted({*cookies, *registered, *unrecoverable, *named}))

    def choose_state(name: str) -> CopyHealth:
        if name in unrecoverable:
            return CopyHealth.UNRECOVERABLE
        if not alive:
            return CopyHealth.READ_WRITE if name in cookies else CopyHealth.DOWN
        if name not in registered:
            return CopyHealth.DOWN
        return CopyHealth.READ_ONLY if name in read_only else CopyHealth.READ_WRITE

    members = {*cookies, *registered}
    weighed = [(weights or {}).get(name, 1.0) if name in members else 0.0 for name in names]
    return BookieColumns(
        names,
        np.array([*map(choose_state, names), CopyHealth.DOWN], np.int8),
        np.array([*weighed, 0.0]),
        tuple((topology or {}).get(name) for name in names),
    )


def _list_names(nodes: pa.Table, kind: str) -> set[str]:
    return {path.rpartition("/")[2] for path in nodes.filter(pc.equal(nodes["kind"], kind))["path"].to_pylist()}


@dataclass(frozen=True, slots=True, eq=False)
class Sets:
    """Sets of bookies, each taken away alone; no bookie is in two sets.

    Attributes:
        labels: of each set.
        of: the set that each bookie is in, -1 where it is in none; the last element is for any other bookie.
        target: the action on them.
    """

    labels: tuple[str, ...]
    of: Codes
    target: ImpactTarget

    @classmethod
    def from_bookies(cls, bookies: BookieColumns, label: str, taken: Collection[str], target: ImpactTarget) -> "Sets":
        """Return one set."""
        column = [0 if name in taken else _NONE for name in bookies.names]
        return cls((label,), np.array([*column, _NONE], np.int32), target)

    @classmethod
    def from_domains(cls, bookies: BookieColumns, level: DomainLevel, target: ImpactTarget) -> "Sets":
        """Return a set for each failure domain; bookies without a location are in none."""
        labels, codes = bookies.code_domains(level)
        return cls(labels[:-1], np.where(codes == len(labels) - 1, _NONE, codes).astype(np.int32), target)

    def change(self, states: States, number: int) -> States:
        """Return the states of bookies when one set is taken away."""
        return np.where(self.of == number, np.maximum(states, np.int8(self.target.state)), states).astype(np.int8)

    def list_members(self, bookies: BookieColumns, number: int) -> tuple[str, ...]:
        """Return the bookies of a set."""
        return tuple(name for name, owner in zip(bookies.names, self.of.tolist(), strict=False) if owner == number)


def match_domains(bookies: BookieColumns, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the bookies of each domain that is named.

    Args:
        bookies: of the cluster, with their locations.
        names: each the beginning of locations, part by part, or a single part at any place.
    """
    parts = [None if location is None else location.strip("/").split("/") for location in bookies.locations]
    matches = {}
    for name in names:
        wanted = name.strip("/").split("/")
        matches[name] = tuple(
            bookie
            for bookie, own in zip(bookies.names, parts, strict=True)
            if own is not None and (own[: len(wanted)] == wanted or (not name.startswith("/") and name in own))
        )
    return matches
