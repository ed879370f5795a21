"""Bookies that may have lost ledgers: the id from which on each is known to have kept its entries.

A bookie that was wiped and is in use again looks like any other: it has ledgers, and its folders are complete. But it
has nothing from before. Ids are given out in order, and most ledgers get their first entry soon. So a bookie that has
first entries of ledgers below some id, as many as bookies have there, was not wiped after that id was given out. Of a
bookie that shows no such thing it is open: it may be new, or wiped. So it is of one that lost a folder of several.

    Sample         some ledgers of the cluster, chosen by a hash of their ids, and who has their first entry
    find_kept      from which id on each bookie is seen to have kept its ledgers
    forget_lost    the same without bookies that lost a part
    has_kept       whether a bookie is seen to have kept what it got of a ledger
    count_losers   how many bookies may have lost what they had of each ledger
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from recovery.infer.copies import Ints, Mask
from recovery.infer.facts import LedgerFacts
from recovery.model.ids import mix

SAMPLED: Final = 4096
"""Ledgers in a sample: a bookie out of some hundred has enough of them."""
IN_A_ROW: Final = 6
"""First entries on one bookie that prove that it kept its ledgers; a few may be of ledgers that began late."""
THINNEST: Final = 2.0
"""A bookie may have got so many times fewer ledgers than the others in the same time."""

Kept = Mapping[int, Mapping[str, int]]
"""Scope to bookies to the id above which a ledger was written after what shows that the bookie kept its ledgers."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Ledgers of a cluster, chosen by a hash of their ids; samples of parts of a cluster add up.

    Attributes:
        holders: (scope, ledger) to the bookies that have its first entry, and not as a copy of re-replication.
    """

    holders: Mapping[tuple[int, int], tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def draw(cls, known: LedgerFacts) -> "Sample":
        """Choose among the ledgers of a batch."""
        rows = np.flatnonzero((known.copies.lo == 0) & ~known.row_copied)
        ledgers = np.unique(known.copies.row_ledger[rows])
        ledgers = ledgers[_choose_least(known.scope[ledgers], known.ledger[ledgers])]
        rows = rows[np.isin(known.copies.row_ledger[rows], ledgers)]
        names = known.bookies.to_pylist()
        holders: dict[tuple[int, int], tuple[str, ...]] = {}
        number = known.copies.row_ledger[rows]
        for scope, ledger, bookie in zip(
            *(column.tolist() for column in (known.scope[number], known.ledger[number], known.row_bookie[rows])),
            strict=True,
        ):
            holders[scope, ledger] = (*holders.get((scope, ledger), ()), names[bookie])
        return cls(holders)

    def __add__(self, other: "Sample") -> "Sample":
        joined = {**self.holders, **other.holders}
        if len(joined) <= SAMPLED:
            return Sample(joined)
        keys = list(joined)
        scope, ledger = np.array(keys, np.int64).T.copy()
        return Sample({keys[place]: joined[keys[place]] for place in _choose_least(scope, ledger).tolist()})

    def to_json(self, bookies: Sequence[str]) -> list[Any]:
        """Return the sample as JSON values; `bookies` has all names."""
        place = {name: number for number, name in enumerate(bookies)}
        return [[*key, *(place[name] for name in names)] for key, names in sorted(self.holders.items())]

    @classmethod
    def from_json(cls, rows: Iterable[Sequence[int]], bookies: Sequence[str]) -> "Sample":
        """Return the sample from the values of `to_json`."""
        return cls({(scope, ledger): tuple(bookies[place] for place in places) for scope, ledger, *places in rows})


def _choose_least(scope: Ints, ledger: Ints) -> Ints:
    """Return the places of the ids with the least hashes, in order of the ids' places."""
    hashes = mix(scope, ledger)
    if len(hashes) <= SAMPLED:
        return np.arange(len(hashes))
    return np.sort(np.argpartition(hashes, SAMPLED)[:SAMPLED])


def find_kept(sample: Sample) -> Kept:
    """Return the ids from which on bookies are known to have kept their ledgers, by scope; other bookies have none.

    What shows it are so many first entries in a row, of ledgers among which other bookies have not many times more.
    Bookies that came or were wiped later get their own row later.
    """
    kept: dict[int, dict[str, int]] = {}
    for scope in sorted({scope for scope, _ in sample.holders}):
        ledgers = sorted(ledger for other, ledger in sample.holders if other == scope)
        holders = [sample.holders[scope, ledger] for ledger in ledgers]
        holders_before = np.append(0, np.cumsum([len(names) for names in holders]))
        places: dict[str, list[int]] = {}
        for place, names in enumerate(holders):
            for name in names:
                places.setdefault(name, []).append(place)
        for name, own in places.items():
            begin, end = np.array(own[: 1 - IN_A_ROW], np.int64), np.array(own[IN_A_ROW - 1 :], np.int64)
            usual = (holders_before[end + 1] - holders_before[begin]) / len(places)
            shown = np.flatnonzero(usual <= THINNEST * IN_A_ROW)
            if len(shown):
                kept.setdefault(scope, {})[name] = ledgers[int(end[shown[0]])]
    return kept


def forget_lost(kept: Kept, lost: Collection[str]) -> Kept:
    """Return the same without bookies that lost something: they kept what they show, and perhaps nothing else."""
    return {scope: {name: since for name, since in own.items() if name not in lost} for scope, own in kept.items()}


def has_kept(kept: Kept, scope: int, ledger: int, bookie: str) -> bool:
    """Whether a bookie is known to have kept its entries of a ledger."""
    return kept.get(scope, {}).get(bookie, _NEVER) < ledger


def count_losers(known: LedgerFacts, ledgers: Ints, kept: Kept, besides: Mask) -> Ints:
    """Return how many bookies may have lost their entries of some ledgers: nothing proves that they kept them.

    Args:
        known: the batch. Who has entries of a ledger, other than copies of re-replication, was not wiped after them.
        ledgers: their numbers there, ascending.
        kept: as `find_kept` gives it.
        besides: bookies that are not counted.
    """
    names = known.bookies.to_pylist()
    scopes = sorted(kept)
    # The last row is for scopes in which no bookie shows anything.
    since = np.full((len(scopes) + 1, len(names)), _NEVER)
    for scope, row in zip(scopes, since, strict=False):
        row[:] = [kept[scope].get(name, _NEVER) for name in names]
    row_of = {scope: row_number for row_number, scope in enumerate(scopes)}
    values, inverse = np.unique(known.scope[ledgers], return_inverse=True)
    of_scope = np.array([row_of.get(scope, len(scopes)) for scope in values.tolist()], np.int64)[inverse]
    lost = np.zeros(len(ledgers), np.int64)
    for row_number in np.unique(of_scope).tolist():
        own = np.flatnonzero(of_scope == row_number)
        ids = np.sort(since[row_number, ~besides])
        lost[own] = len(ids) - np.searchsorted(ids, known.ledger[ledgers[own]])
    copies, rows = known.copies.pick(ledgers)
    bookie, ledger = known.row_bookie[rows], copies.row_ledger
    counted = (
        ~known.row_copied[rows] & ~besides[bookie] & (since[of_scope[ledger], bookie] >= known.ledger[ledgers[ledger]])
    )
    return lost - np.bincount(ledger[counted], minlength=len(ledgers))


_NEVER: Final = (1 << 63) - 1
