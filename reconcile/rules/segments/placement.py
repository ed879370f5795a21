"""Placement: does each write set of an ensemble follow BookKeeper's placement policy?

    policy         a write set is against it where                                           Java's own check
    rack-aware     it has fewer than min(W, minNumRacksPerWriteQuorum) racks;                the same
                   with enforceMinNumRacksPerWriteQuorum: a bookie of it is in the default rack
    region-aware   reppRegionsToWrite is set, and A bookies of it are in fewer than        never fails
                   reppMinimumRegionsForDurability regions
    zone-aware     E is not a multiple of W, or W is at most minNumZonesPerWriteQuorum;         the same
                   it has fewer zones than that; a bookie has no zone and upgrade domain;
                   bookies of one zone all have one upgrade domain
                   soft: fewer zones than min(W, desiredNumZonesPerWriteQuorum)
    default        never                                                                     never fails

A bookie without a location is a bookie that the topology does not name. It fails nothing by itself: where its location
decides, the ensemble is undecided. (Java puts it into a default rack, or leaves out one that is not registered.)

What is legal in a member's place follows what the policies choose from when they replace a bookie.

Source: apache/bookkeeper 9590a97, client/RackawareEnsemblePlacementPolicyImpl, ZoneawareEnsemblePlacementPolicyImpl,
RegionAwareEnsemblePlacementPolicy, TopologyAwareEnsemblePlacementPolicy; docs/operations/scrutiny.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NO_LOCATION: Final = -1
_DEFAULT_RACK: Final = "/default-rack"
_DEFAULT_REGION_AND_RACK: Final = "/default-region/default-rack"
_DEFAULT_ZONE: Final = "/default-zone/default-upgradedomain"
_CELLS: Final = 1 << 22
"""Members of write sets that are laid out at a time: 32 MiB an array."""


class PlacementPolicy(StrEnum):
    """The placement policies of BookKeeper's client."""

    RACK_AWARE = "rack-aware"
    REGION_AWARE = "region-aware"
    ZONE_AWARE = "zone-aware"
    DEFAULT = "default"


class Placement(IntEnum):
    """How well an ensemble follows the policy, from good to bad."""

    KEPT = 0
    SOFT = 1
    UNDECIDED = 2
    VIOLATED = 3


@dataclass(frozen=True, slots=True)
class PlacementSettings:
    """The demands of a client; `reconcile.check.placement_files` has its configuration keys and their defaults."""

    policy: PlacementPolicy = PlacementPolicy.RACK_AWARE
    min_racks: int = 2
    enforce_min_racks: bool = False
    regions_to_write: tuple[str, ...] = ()
    min_regions: int = 2
    enforce_regions_in_replace: bool = True
    min_zones: int = 2
    desired_zones: int = 3
    enforce_zones: bool = True

    @property
    def demanded_regions(self) -> int:
        """How many regions an acknowledged entry has to reach; 0: any number."""
        return max(self.min_regions, 0) if self.regions_to_write else 0


@dataclass(frozen=True, slots=True, eq=False)
class BookieLocations:
    """The places of bookies; all columns have one element a bookie, codes are `NO_LOCATION` for an unknown place.

    Attributes:
        bookies: their ids; members of ensembles are places in it.
        texts: the location of each, as the topology has it; None: it has none.
        rack: code of the whole location.
        domain: code of its first part: the region, or the zone.
        upgrade: code of its second part: the upgrade domain of a zone.
        unplaced: the policy's name for the location of bookies without a known place.
    """

    bookies: tuple[str, ...]
    texts: tuple[str | None, ...]
    rack: Ints
    domain: Ints
    upgrade: Ints
    unplaced: Mask


class Ensembles(NamedTuple):
    """Ensembles as columns.

    Attributes:
        members: places in `BookieLocations.bookies`, ensemble after ensemble, in order of position.
        sizes: E of each ensemble.
        write, ack: W and A of each.
    """

    members: Ints
    sizes: Ints
    write: Ints
    ack: Ints


class _Shape(NamedTuple):
    """Some ensembles of one E, W and A: their rows, and their members, one row an ensemble."""

    rows: Ints
    members: Ints
    write: int
    ack: int


def find_location(topology: Mapping[str, str], bookie: str) -> str | None:
    """Return the place of a bookie, by its id, else by the host in its id; None if the topology lacks both."""
    return topology.get(bookie) or topology.get(bookie.rpartition(":")[0])


def locate(bookies: Sequence[str], topology: Mapping[str, str], settings: PlacementSettings) -> BookieLocations:
    """Return the locations of bookies.

    Args:
        bookies: their ids, each once.
        topology: bookie id, or host, to location: ``/rack``, ``/region/rack``, ``/zone/upgrade-domain``.
        settings: with the policy's name for an unknown location.
    """
    texts = tuple(_strip(find_location(topology, bookie)) for bookie in bookies)
    parts = [None if text is None else text[1:].split("/") for text in texts]
    zones = settings.policy is PlacementPolicy.ZONE_AWARE
    unplaced = [
        part is not None and ((len(part) != 2 or text == _DEFAULT_ZONE) if zones else text == _default_rack(settings))
        for text, part in zip(texts, parts, strict=True)
    ]
    is_nowhere = [
        settings.policy is PlacementPolicy.REGION_AWARE and text == _DEFAULT_REGION_AND_RACK for text in texts
    ]
    return BookieLocations(
        tuple(bookies),
        texts,
        _number(texts),
        _number(
            [None if part is None or nowhere else part[0] for nowhere, part in zip(is_nowhere, parts, strict=True)]
        ),
        _number([part[1] if part and len(part) > 1 else None for part in parts]),
        np.array(unplaced, np.bool_),
    )


def judge(ensembles: Ensembles, locations: BookieLocations, settings: PlacementSettings) -> npt.NDArray[np.int8]:
    """Return how well each ensemble follows the policy: its worst write set, as values of `Placement`."""
    verdicts = np.zeros(len(ensembles.sizes), np.int8)
    for shape in _shapes(ensembles):
        verdicts[shape.rows] = judge_write_sets(shape.members, shape.write, shape.ack, locations, settings).max(1)
    return verdicts


def judge_write_sets(
    members: Ints, write: int, ack: int, locations: BookieLocations, settings: PlacementSettings
) -> npt.NDArray[np.int8]:
    """Return how well each write set of ensembles of one shape follows the policy.

    Args:
        members: places in `locations.bookies`, a row an ensemble.
        write: W of all of them.
        ack: A of all of them.
        locations: of the bookies.
        settings: the policy.

    Returns:
        Values of `Placement`, a row an ensemble; column r is the write set of the entries e with e mod E = r.
    """
    size = members.shape[1]
    sets = members[:, (np.arange(size)[:, None] + np.arange(write)[None, :]) % size]
    match settings.policy:
        case PlacementPolicy.RACK_AWARE:
            return _judge_racks(sets, locations, settings)
        case PlacementPolicy.REGION_AWARE if settings.demanded_regions > 1:
            return _judge_regions(locations.domain[sets], ack, settings.demanded_regions)
        case PlacementPolicy.ZONE_AWARE if size % write or write <= settings.min_zones:
            return np.full(sets.shape[:2], Placement.VIOLATED, np.int8)
        case PlacementPolicy.ZONE_AWARE:
            return _judge_zones(sets, locations, settings)
        case _:
            return np.zeros(sets.shape[:2], np.int8)


def find_replacements(
    ensembles: Ensembles, positions: Ints, locations: BookieLocations, settings: PlacementSettings
) -> Mask:
    """Return the bookies that the policy allows in the place of one member, writable or not.

    Args:
        ensembles: each with its one member to be replaced.
        positions: of that member in each ensemble.
        locations: of the bookies that may be taken; one without a location is taken where the policy demands nothing.
        settings: the policy.

    Returns:
        A row an ensemble, a column a bookie of `locations`; at most `_CELLS` are laid out at a time in between.
    """
    legal = np.ones((len(ensembles.sizes), len(locations.bookies)), np.bool_)
    for shape in _shapes(ensembles, len(locations.bookies)):
        allowed = _choose(shape, positions[shape.rows], locations, settings)
        np.put_along_axis(allowed, shape.members, values=False, axis=1)
        legal[shape.rows] = allowed
    return legal


def _shapes(ensembles: Ensembles, times: int = 1) -> Iterator[_Shape]:
    """Yield the ensembles by shape, in parts; `times`: how often each is laid out."""
    starts = np.cumsum(ensembles.sizes) - ensembles.sizes
    keys = np.column_stack((ensembles.sizes, ensembles.write, ensembles.ack))
    kinds, of_row = np.unique(keys, axis=0, return_inverse=True)
    for kind, (size, write, ack) in enumerate(kinds.tolist()):
        if not 0 < write <= size:
            raise ValueError(f"no write quorum of an ensemble of {size}: {write}")
        rows = np.flatnonzero(of_row == kind)
        step = max(1, _CELLS // (size * write * times))
        for begin in range(0, len(rows), step):
            part = rows[begin : begin + step]
            yield _Shape(part, ensembles.members[starts[part][:, None] + np.arange(size)], write, ack)


def _judge_racks(sets: Ints, locations: BookieLocations, settings: PlacementSettings) -> npt.NDArray[np.int8]:
    racks = locations.rack[sets]
    unknown = (racks == NO_LOCATION).sum(-1)
    wanted = min(sets.shape[-1], settings.min_racks)
    seen = _count_distinct(racks)
    fails = seen + unknown < wanted
    open_ = seen < wanted
    if settings.enforce_min_racks:
        fails |= locations.unplaced[sets].any(-1)
        open_ |= unknown > 0
    return _grade(fails, open_)


def _judge_regions(regions: Ints, ack: int, wanted: int) -> npt.NDArray[np.int8]:
    unknown = (regions == NO_LOCATION).sum(-1)
    largest = _find_largest(regions, wanted - 1)
    # Those without a location may each be in a region of their own, or all in the one with most.
    own = np.minimum(unknown, (largest == 0).sum(-1))
    return _grade(largest.sum(-1) + own >= ack, largest.sum(-1) + unknown >= ack)


def _judge_zones(sets: Ints, locations: BookieLocations, settings: PlacementSettings) -> npt.NDArray[np.int8]:
    zones, domains = locations.domain[sets], locations.upgrade[sets]
    unknown = (zones == NO_LOCATION).sum(-1)
    seen = _count_distinct(zones)
    alike = zones[..., :, None] == zones[..., None, :]
    together = (alike.sum(-1) > 1) & (zones != NO_LOCATION)
    one_domain = (~alike | (domains[..., :, None] == domains[..., None, :])).all(-1)
    crowded = (together & one_domain).any(-1)
    fails = locations.unplaced[sets].any(-1) | (seen + unknown < settings.min_zones) | (crowded & (unknown == 0))
    verdicts = _grade(fails, unknown > 0)
    soft = (seen < min(sets.shape[-1], settings.desired_zones)) & (verdicts == Placement.KEPT)
    return np.where(soft, np.int8(Placement.SOFT), verdicts)


def _choose(shape: _Shape, position: Ints, locations: BookieLocations, settings: PlacementSettings) -> Mask:
    """Mark bookies that the policy allows in the place of a member, members included; (ensembles, bookies).

    A policy that enforces nothing takes any bookie when it finds none that it would rather have.
    """
    match settings.policy:
        case PlacementPolicy.RACK_AWARE if settings.enforce_min_racks:
            return _choose_by_rack(shape, position, locations)
        case PlacementPolicy.REGION_AWARE:
            return _choose_by_region(shape, position, locations, settings)
        case PlacementPolicy.ZONE_AWARE if settings.enforce_zones:
            return _choose_by_zone(shape, position, locations, settings.min_zones)
        case _:
            return np.ones((len(shape.rows), len(locations.bookies)), np.bool_)


def _choose_by_rack(shape: _Shape, position: Ints, locations: BookieLocations) -> Mask:
    """Allow the rack of the removed bookie, or a rack without another member."""
    racks = locations.rack[shape.members]
    own = np.take_along_axis(racks, position[:, None], 1)
    other_racks = np.where(np.arange(racks.shape[1]) == position[:, None], NO_LOCATION - 1, racks)
    candidates = locations.rack[None, :]
    used = (other_racks[:, :, None] == candidates[:, None, :]).any(1)
    placed = (candidates != NO_LOCATION) & ~locations.unplaced[None, :]
    return np.asarray(placed & (~used | (candidates == own)))


def _choose_by_region(shape: _Shape, position: Ints, locations: BookieLocations, settings: PlacementSettings) -> Mask:
    """Allow the region of the removed bookie, or one that keeps the rule; any if the other members break it."""
    count, bookies = len(shape.rows), len(locations.bookies)
    placed = np.broadcast_to(~locations.unplaced | (not settings.enforce_min_racks), (count, bookies))
    if settings.demanded_regions <= 1 or not settings.enforce_regions_in_replace:
        return placed.copy()
    own = locations.domain[shape.members[np.arange(count), position]]
    same = (locations.domain[None, :] == own[:, None]) & (own[:, None] != NO_LOCATION)
    size = shape.members.shape[1]
    other_regions = np.where(np.arange(size) == position[:, None], NO_LOCATION, locations.domain[shape.members])
    sets = other_regions[:, (np.arange(size)[:, None] + np.arange(shape.write)) % size]
    broken = (_find_largest(sets, settings.demanded_regions - 1).sum(-1) >= shape.ack).any(1)
    kept = _judge_with_each(shape, position, locations, settings) == Placement.KEPT
    return np.asarray(placed & (same | kept | broken[:, None]))


def _choose_by_zone(shape: _Shape, position: Ints, locations: BookieLocations, least: int) -> Mask:
    """Allow a zone that keeps the zones of each write set, and no upgrade domain that all others of the zone share."""
    count, size = shape.members.shape
    zones, domains = locations.domain[None, None, :], locations.upgrade[None, None, :]
    allowed = np.repeat(((locations.domain != NO_LOCATION) & ~locations.unplaced)[None, :], count, axis=0)
    for begin in range(1 - shape.write, 1):
        around = np.array([offset for offset in range(begin, begin + shape.write) if offset], np.int64)
        other_members = np.take_along_axis(shape.members, (position[:, None] + around) % size, 1)
        same_zone = locations.domain[other_members][:, :, None] == zones
        same_domain = same_zone & (locations.upgrade[other_members][:, :, None] == domains)
        few = _count_distinct(locations.domain[other_members]) < least
        allowed &= ~(few[:, None] & same_zone.any(1))
        allowed &= ~(same_domain.any(1) & (same_domain == same_zone).all(1))
    return allowed


def _judge_with_each(
    shape: _Shape, position: Ints, locations: BookieLocations, settings: PlacementSettings
) -> npt.NDArray[np.int8]:
    """Return the worst of the write sets that a position is in, a row an ensemble, a column a bookie in its place."""
    count, size = shape.members.shape
    bookies = len(locations.bookies)
    tried = np.repeat(shape.members, bookies, axis=0)
    tried[np.arange(count * bookies), np.repeat(position, bookies)] = np.tile(np.arange(bookies), count)
    sets = judge_write_sets(tried, shape.write, shape.ack, locations, settings).reshape(count, bookies, size)
    inside = (position[:, None] - np.arange(size)) % size < shape.write
    return np.asarray(np.where(inside[:, None, :], sets, np.int8(0)).max(-1))


def _grade(fails: Mask, open_: Mask) -> npt.NDArray[np.int8]:
    return np.where(fails, np.int8(Placement.VIOLATED), np.where(open_, np.int8(Placement.UNDECIDED), np.int8(0)))


def _count_distinct(codes: Ints) -> Ints:
    """Return how many codes there are along the last axis; `NO_LOCATION` is none."""
    ordered = np.sort(codes, axis=-1)
    new = np.ones(ordered.shape, np.bool_)
    new[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    return np.asarray((new & (ordered != NO_LOCATION)).sum(-1))


def _find_largest(codes: Ints, number: int) -> Ints:
    """Return how often the most frequent codes occur along the last axis, at most so many of them."""
    return -np.sort(-_count_each(codes), axis=-1)[..., :number]


def _count_each(codes: Ints) -> Ints:
    """Return, along the last axis, the count of each code at its first place; 0 elsewhere, and for no code."""
    alike = codes[..., :, None] == codes[..., None, :]
    earlier = (alike & np.tri(codes.shape[-1], k=-1, dtype=np.bool_)).any(-1)
    return np.where(earlier | (codes == NO_LOCATION), 0, alike.sum(-1))


def _number(texts: Sequence[str | None]) -> Ints:
    codes = {text: code for code, text in enumerate(sorted({text for text in texts if text is not None}))}
    return np.array([NO_LOCATION if text is None else codes[text] for text in texts], np.int64)


def _strip(text: str | None) -> str | None:
    return None if text is None else text.rstrip("/")


def _default_rack(settings: PlacementSettings) -> str:
    return _DEFAULT_REGION_AND_RACK if settings.policy is PlacementPolicy.REGION_AWARE else _DEFAULT_RACK
