"""Possible shapes of a ledger whose copies do not show its shape: counted shapes of this cluster, by weight.

Striped copies of a ledger show its E and W. Full copies on all its bookies do not: three full copies may be
a 3/3 ledger, a 4/4 one that lost a bookie, or a 2/2 one with a leftover. Such shapes count only with support; the rule
and its reasons are in `docs/internals/reconstruction.md`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa

from recovery.infer import facts
from recovery.infer.clean import decide
from recovery.infer.copies import CopyColumns, Ints, Mask
from recovery.infer.wiped_bookies import Kept, Sample, find_kept
from recovery.model.groups import run_counts

FEWEST: Final = 2
"""Fewest full-copy ledgers that support a shape: a single one may be a leftover or a loss."""
SHARE: Final = 0.02
"""Share of all full-copy ledgers that a shape needs."""
LARGE: Final = 100
"""From so many full-copy ledgers on, the cluster is large: each bookie takes part in each shape."""
CHANCE: Final = 0.01
"""Anything less likely than this is no chance."""
SLACK: Final = 1.25
"""Up to so many times the average effect of one bookie's loss, this explains the count."""

BOOKKEEPER_DEFAULT: Final = (3, 2, 2)
"""The default of BookKeeper's client. Source: apache/bookkeeper 9590a97, BookKeeper.createLedger."""

_PERIODIC: Final = 3
"""Runs that a group needs to show a period: two have one by chance."""
LARGEST: Final = 1 << 20
"""All ensembles are smaller, so both numbers of a shape fit in one."""


class ShapeSource(StrEnum):
    """Where a shape or an ack quorum is known from; stored with alternatives."""

    CLUSTER = "cluster"
    SNAPSHOT = "snapshot"
    DEFAULT_QUORUM = "default-quorum"
    BOOKKEEPER_DEFAULT = "bookkeeper-default"
    COPIES = "copies"
    """A shape that only the form of a ledger's own copies supports."""
    WRITE_QUORUM = "write-quorum"
    """BookKeeper's own rule for a record that does not hold A: A = W."""


@dataclass(frozen=True, slots=True)
class ShapeCounts:
    """How many ledgers show which shape; counts of parts of a cluster add up.

    Attributes:
        striped: (E, W), W < E, to ledgers.
        full: number of full copies → ledgers whose entries all have so many copies.
        members: number of full copies → bookie → the number of such ledgers on it.
        bookies: all that were seen.
        sample: which of them have the first entries of some ledgers.
    """

    striped: Mapping[tuple[int, int], int] = field(default_factory=dict)
    full: Mapping[int, int] = field(default_factory=dict)
    members: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    bookies: frozenset[str] = frozenset()
    sample: Sample = field(default_factory=Sample)

    def __add__(self, other: "ShapeCounts") -> "ShapeCounts":
        return ShapeCounts(
            dict(Counter(self.striped) + Counter(other.striped)),
            dict(Counter(self.full) + Counter(other.full)),
            {
                copies: dict(Counter(self.members.get(copies, {})) + Counter(other.members.get(copies, {})))
                for copies in {*self.members, *other.members}
            },
            self.bookies | other.bookies,
            self.sample + other.sample,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the counts as JSON values."""
        names = sorted(self.bookies)
        return {
            "striped": [[*shape, count] for shape, count in sorted(self.striped.items())],
            "full": [[copies, count, self.members.get(copies, {})] for copies, count in sorted(self.full.items())],
            "bookies": names,
            "sample": self.sample.to_json(names),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "ShapeCounts":
        """Return the counts from the values of `to_json`."""
        return cls(
            {(ensemble, write): count for ensemble, write, count in value["striped"]},
            {copies: count for copies, count, _ in value["full"]},
            {copies: dict(members) for copies, _, members in value["full"]},
            frozenset(value["bookies"]),
            Sample.from_json(value["sample"], value["bookies"]),
        )


@dataclass(frozen=True, slots=True)
class PriorShape:
    """One shape that a ledger may have.

    Attributes:
        weight: the share of the ledgers that its source counts.
    """

    ensemble: int
    write: int
    weight: float
    source: ShapeSource


@dataclass(frozen=True, slots=True)
class Prior:
    """Shapes and ack quorums to assume for ledgers that do not show theirs.

    Attributes:
        shapes: in the order in which they are tried.
        acks: (E, W) to the A that a snapshot has most often.
        least_acks: (E, W) to the smallest A that a snapshot has.
        default: (E, W, A) as the operator states.
        kept: from which id on bookies are seen to have kept their ledgers.
    """

    shapes: tuple[PriorShape, ...]
    acks: Mapping[tuple[int, int], int] = field(default_factory=dict)
    least_acks: Mapping[tuple[int, int], int] = field(default_factory=dict)
    default: tuple[int, int, int] | None = None
    kept: Kept = field(default_factory=dict)

    @classmethod
    def build(
        cls,
        shapes: ShapeCounts,
        catalog_counts: Mapping[tuple[int, int, int], int] | None = None,
        default_quorum: tuple[int, int, int] | None = None,
        *,
        unscanned: Iterable[str] = (),
    ) -> "Prior":
        """Build the prior from this cluster's own ledgers, a snapshot, the operator's statement, else the default.

        Args:
            shapes: counted on copies.
            catalog_counts: (E, W, A) of stored metadata, to ledgers.
            default_quorum: (E, W, A).
            unscanned: members of the cluster without an inventory: what such a member would hold is missing in all.
        """
        shapes += ShapeCounts(bookies=frozenset(unscanned))
        stored: Counter[tuple[int, int]] = Counter()
        acks: dict[tuple[int, int], Counter[int]] = {}
        for (ensemble, write, ack), count in (catalog_counts or {}).items():
            if 1 <= ack <= write <= ensemble:
                stored[ensemble, write] += count
                acks.setdefault((ensemble, write), Counter())[ack] += count
        seen = Counter(shapes.striped) + Counter({(n, n): shapes.full[n] for n in list_supported(shapes)})
        known_shapes = [*_rank_shapes(seen, ShapeSource.CLUSTER), *_rank_shapes(stored, ShapeSource.SNAPSHOT)]
        if default_quorum is not None:
            known_shapes.append(PriorShape(default_quorum[0], default_quorum[1], 0.0, ShapeSource.DEFAULT_QUORUM))
        if not known_shapes:
            known_shapes.append(PriorShape(*BOOKKEEPER_DEFAULT[:2], 0.0, ShapeSource.BOOKKEEPER_DEFAULT))
        first: dict[tuple[int, int], PriorShape] = {}
        for prior_shape in known_shapes:
            first.setdefault((prior_shape.ensemble, prior_shape.write), prior_shape)
        usual = {shape: max(sorted(counts), key=counts.__getitem__) for shape, counts in acks.items()}
        least = {shape: min(counts) for shape, counts in acks.items()}
        return cls(tuple(first.values()), usual, least, default_quorum, find_kept(shapes.sample))

    def with_stated(self, quorum: tuple[int, int, int]) -> "Prior":
        """Return the prior of ledgers with a stated (E, W, A): nothing else is assumed of them."""
        stated = PriorShape(quorum[0], quorum[1], 1.0, ShapeSource.DEFAULT_QUORUM)
        return Prior((stated,), default=quorum, kept=self.kept)

    def ack_quorum(self, ensemble: int, write: int) -> tuple[int, ShapeSource]:
        """Return the A of a shape, and its source."""
        if (ensemble, write) in self.acks:
            return self.acks[ensemble, write], ShapeSource.SNAPSHOT
        if self.default is not None and self.default[:2] == (ensemble, write):
            return self.default[2], ShapeSource.DEFAULT_QUORUM
        if not self.acks and self.default is None and (ensemble, write) == BOOKKEEPER_DEFAULT[:2]:
            return BOOKKEEPER_DEFAULT[2], ShapeSource.BOOKKEEPER_DEFAULT
        return write, ShapeSource.WRITE_QUORUM

    def count_tolerated(self, ensemble: int, write: int) -> int:
        """Return how many unseen bookies an inferred shape tolerates: with more, it may be a wider shape.

        All entries on n bookies, and m more that was not read, are W = n to n + m. What this cluster shows does not
        settle that, for the same bookies are missing everywhere; a snapshot or the operator does.
        """
        stated = {*self.acks, *([self.default[:2]] if self.default else [])}
        if (ensemble, write) not in stated:
            return 0
        return min([wider for _, wider in stated if wider > write], default=1 << 62) - write - 1

    def fewest_acked(self, ensemble: int, write: int) -> int:
        """Return the fewest acknowledging bookies of an unsure shape: the smallest stated A; else 1."""
        if (ensemble, write) in self.least_acks:
            return self.least_acks[ensemble, write]
        known = [*self.least_acks.values(), *([self.default[2]] if self.default else [])]
        return min(write, *known) if known else 1

    def is_ack_stated(self, ensemble: int, write: int) -> bool:
        """Whether a person states the A of a shape: records of other ledgers prove nothing for a ledger without one."""
        return self.default is not None and self.default[:2] == (ensemble, write)

    def surely_acked(self, ensemble: int, write: int) -> int:
        """Return how many copies an acknowledged entry has at least, where its A is stated; else 1."""
        if (ensemble, write) in self.least_acks:
            return self.least_acks[ensemble, write]
        return self.default[2] if self.default is not None and self.default[:2] == (ensemble, write) else 1


def _rank_shapes(counts: Mapping[tuple[int, int], int], source: ShapeSource) -> Iterable[PriorShape]:
    total = sum(counts.values())
    for shape, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        yield PriorShape(*shape, count / total, source)


def list_supported(shapes: ShapeCounts) -> list[int]:
    """Return the numbers of full copies that are believed to be ensembles, not losses of others."""
    total = sum(shapes.full.values())
    return sorted(
        copies
        for copies, count in shapes.full.items()
        if count >= FEWEST and count >= SHARE * total and not _is_one_wiped(shapes, copies)
    )


def _is_one_wiped(shapes: ShapeCounts, copies: int) -> bool:
    """Whether one wiped bookie explains the ledgers with this number of copies: they would have one more.

    It takes part in none of them. Of ledgers of m copies on b bookies, a share of m / b is on each.
    """
    count, members = shapes.full[copies], shapes.members.get(copies, {})
    larger, bookies = shapes.full.get(copies + 1, 0), len(shapes.bookies)
    if not larger or all(bookie in members for bookie in shapes.bookies):
        return False
    by_chance = bookies * (1 - copies / bookies) ** count
    large = sum(shapes.full.values()) >= LARGE
    return (large or by_chance < CHANCE) and count * (bookies - copies - 1) <= SLACK * larger * (copies + 1)


def read_shapes(copies: CopyColumns) -> tuple[Ints, Ints]:
    """Return E and W of each ledger that shows them: all groups of three runs or more agree; else 0 and 0."""
    periodic = _find_periodic(copies)
    shape = copies.period[periodic] * LARGEST + copies.size[periodic]
    ledger = copies.row_ledger[copies.group_row[periodic]]
    lowest, highest = np.full(copies.ledgers, 1 << 62), np.full(copies.ledgers, -1)
    np.minimum.at(lowest, ledger, shape)
    np.maximum.at(highest, ledger, shape)
    agreed = lowest == highest
    return np.where(agreed, highest // LARGEST, 0), np.where(agreed, highest % LARGEST, 0)


def find_striped(copies: CopyColumns) -> Mask:
    """Mark ledgers with a group that shows stripes, perhaps not the stripes of all."""
    striped = np.zeros(copies.ledgers, np.bool_)
    striped[copies.row_ledger[copies.group_row[_find_periodic(copies)]]] = True
    return striped


def _find_periodic(copies: CopyColumns) -> Mask:
    runs = run_counts(copies.first, copies.last, copies.period)
    periodic: Mask = (runs >= _PERIODIC) & (copies.period < LARGEST)
    return periodic


def count_shapes(copies: pa.Table, bookies: pa.Table) -> ShapeCounts:
    """Count the shapes that ledgers show by themselves.

    Only ledgers of one key, that no bookie is in doubt about, and without copies of re-replication. A striped one
    counts if at least E bookies hold it; one with full copies if it is longer than any write quorum could hide, and
    every entry has as many copies as the first.

    Args:
        copies: COPIES, in any order.
        bookies: BOOKIES.
    """
    known = facts.read(copies, bookies)
    columns = known.copies
    sound = ~(known.broken | known.fragmented | known.limbo | known.copied | known.leftover | known.unindexed)
    sound &= ~known.unlisted & ~known.reincarnated & (known.keys == 1)
    holders = np.bincount(columns.row_ledger, minlength=known.count)
    ensemble, write = read_shapes(columns)
    striped = sound & (ensemble > 0) & (ensemble <= holders)
    shapes, counts = np.unique(ensemble[striped] * LARGEST + write[striped], return_counts=True)
    size = _count_full_copies(columns, sound & (ensemble == 0))
    sizes, ledgers = np.unique(size[size > 0], return_counts=True)
    member = size[columns.row_ledger] > 0
    names = known.bookies.to_pylist()
    pairs, taken = np.unique(
        size[columns.row_ledger[member]] * len(names) + known.row_bookie[member], return_counts=True
    )
    members: dict[int, dict[str, int]] = {}
    for pair, count in zip(pairs.tolist(), taken.tolist(), strict=True):
        members.setdefault(pair // len(names), {})[names[pair % len(names)]] = count
    return ShapeCounts(
        {divmod(shape, LARGEST): n for shape, n in zip(shapes.tolist(), counts.tolist(), strict=True)},
        dict(zip(sizes.tolist(), ledgers.tolist(), strict=True)),
        members,
        frozenset(names),
        Sample.draw(known),
    )


def _count_full_copies(copies: CopyColumns, tried: Mask) -> Ints:
    """Return how many copies each entry of a ledger has, where all have as many and no striping could hide; else 0."""
    ledger = copies.row_ledger
    first = np.bincount(ledger[copies.lo == 0], minlength=copies.ledgers)
    parts = np.bincount(ledger[(copies.lo > 0) | (copies.hi < copies.end[ledger])], minlength=copies.ledgers)
    possible = tried & (first > 0) & (copies.end >= first) & copies.has_few_runs()
    gaps = np.bincount(ledger[copies.hi - copies.lo + 1 != copies.count], minlength=copies.ledgers)
    whole = possible & (parts == 0) & (gaps == 0)
    changed = np.flatnonzero(possible & ~whole)
    stays = copies.pick(changed)[0].split_stays()[0]
    decision = decide(stays, first[changed], first[changed])
    exact = decision.accepted & (decision.extra == 0) & ~decision.hasty(stays.end)
    counts = np.where(whole, first, 0)
    counts[changed[exact]] = first[changed[exact]]
    return counts
