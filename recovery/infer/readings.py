"""Ledgers that are readable although something may be hidden of them: by the likeliest record, or by who holds what.

    reading     is
    proved      a record that nothing speaks against, and that nothing which may be hidden can change
    likeliest   the record that explains the copies best, if each entry that is seen has a holder in its write set
    universal   one segment, its members all who hold any entry, E = W = their number, A = 1

A client that reads through the universal one asks one member after the other until one has the entry. If no member has
it, all answer that there is no such entry, and some readers skip its neighbours too. So bookies that may have it are
named beside the holders, and readers wait. Only doubtful content gets no reading: two keys, one entry with two
payloads, a deletion that may have been intended. See `docs/internals/guards.md`.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np

from recovery.infer.copies import Ints, Mask, number_within
from recovery.infer.facts import LedgerFacts
from recovery.infer.prior import PriorShape, ShapeSource
from recovery.infer.refusal import CODES, GUARDABLE, Refusal
from recovery.infer.shape_fit import UNDECIDED, Explained, LedgerSegments
from recovery.model.groups import KeyedGroups, KeyedRuns, difference_runs, to_runs

MOST_NAMED: Final = 12
"""Bookies that are named beside the holders: with so many a reader was seen to need 1.3 requests an entry."""
MOST_RUNS: Final = 2_000_000
"""Runs of one ledger that are expanded to find entries without a holder."""


class RecordBasis(StrEnum):
    """What a record rests on; stored in plans, so a value is never renamed."""

    PROVED = "proved"
    LIKELIEST = "likeliest"
    UNIVERSAL = "universal"


@dataclass(frozen=True, slots=True)
class Readings:
    """How ledgers with possibly hidden entries are read.

    Attributes:
        explained: explanations, with the record of each ledger that has a reading.
        guarded: ledgers with a reading that are not restored.
        universal: guarded ledgers with the universal reading.
    """

    explained: Explained
    guarded: Mask
    universal: Mask


def refuse_content(known: LedgerFacts, refusal: Ints, is_deleted: Mask) -> None:
    """Give each refused ledger the reason against its content, if there is one.

    Args:
        known: the facts of bookies.
        refusal: code of the reason of each ledger, or 0; changed.
        is_deleted: a bookie shows traces of a deletion.
    """
    reasons = [CODES[reason] for reason in GUARDABLE]
    for mask, reason in (
        (known.broken & ~known.fragmented, Refusal.CONTRADICTION),
        (known.reincarnated, Refusal.TWO_INCARNATIONS),
        (known.keys > 1, Refusal.TWO_KEYS),
        (known.lengths_differ, Refusal.LENGTHS_DIFFER),
        (known.digests_differ, Refusal.DIGESTS_DIFFER),
        (is_deleted, Refusal.DELETED_SOMEWHERE),
    ):
        refusal[mask & np.isin(refusal, reasons)] = CODES[reason]


def find_readings(
    known: LedgerFacts, explained: Explained, refusal: Ints, may_hide: Mask, accepted: frozenset[Refusal] = frozenset()
) -> Readings:
    """Find a reading of each refused ledger, unless its content is in doubt.

    Args:
        known: the facts of bookies.
        explained: the explanation of each ledger, also of refused ones, if there is one.
        refusal: code of the reason of each ledger, or 0.
        may_hide: which bookies may have unseen entries.
        accepted: doubts of content that a person accepts.
    """
    can_be = np.isin(refusal, [CODES[reason] for reason in GUARDABLE | accepted])
    if Refusal.TWO_HISTORIES not in accepted:
        can_be &= ~((refusal == CODES[Refusal.TWO_HISTORIES]) & known.overlapped)
    likeliest = can_be & (explained.path != UNDECIDED)
    members = np.bincount(known.copies.row_ledger, minlength=known.count)
    empty = can_be & (refusal == CODES[Refusal.NO_ENTRIES])
    members[empty] = np.bincount(known.idle_ledger, minlength=known.count)[empty]
    universal = can_be & ~likeliest & (members > 0)
    segments = _name_holders(known, universal, empty, may_hide)
    shapes = list(explained.shapes)
    sizes, shape_of = np.unique(segments.size, return_inverse=True)
    shape, end, length = explained.shape.copy(), explained.end.copy(), explained.length.copy()
    shape[segments.ledger] = len(shapes) + shape_of
    end[universal] = known.copies.end[universal]
    longest = np.zeros(known.count, np.int64)
    np.maximum.at(longest, known.headers.ledger, known.headers.length)
    length[universal] = known.last_length[universal]
    # Who sent ids out of order counts up to the entry sent last; any length serves readers of entries.
    length = np.where((likeliest | universal) & (known.crossed | (length < 0)), longest, length)
    copy_counts = np.bincount(known.copies.row_ledger, weights=known.copies.count, minlength=known.count).astype(
        np.int64
    )
    size_of = np.zeros(known.count, np.int64)
    size_of[segments.ledger] = segments.size
    is_alone = ~universal[explained.other_ledger]
    return Readings(
        replace(
            explained,
            shapes=[*shapes, *(PriorShape(size, size, 0.0, ShapeSource.COPIES) for size in sizes.tolist())],
            shape=shape,
            path=np.where(universal, UNDECIDED, explained.path),
            end=end,
            length=length,
            missing=np.where(universal, size_of * (end + 1) - copy_counts, explained.missing),
            extra=np.where(universal, 0, explained.extra),
            segments=LedgerSegments.join([explained.segments.select(~universal[explained.segments.ledger]), segments]),
            other_ledger=explained.other_ledger[is_alone],
            other_shape=explained.other_shape[is_alone],
        ),
        likeliest | universal,
        universal,
    )


def _name_holders(known: LedgerFacts, wanted: Mask, empty: Mask, may_hide: Mask) -> LedgerSegments:
    """Return one segment of each wanted ledger: all holders of any entry, those of the first entries in front.

    Of a ledger without entries, those who know it. Behind them, where some entry is on none, those who may have it.
    """
    rows = np.flatnonzero(wanted[known.copies.row_ledger])
    idle = np.flatnonzero((wanted & empty)[known.idle_ledger])
    ledger = np.append(known.copies.row_ledger[rows], known.idle_ledger[idle])
    bookie = np.append(known.row_bookie[rows], known.idle_bookie[idle])
    low = np.append(known.copies.lo[rows], np.zeros(len(idle), np.int64))
    holes = find_holes(known, np.flatnonzero(wanted), known.copies.end)
    lacking = np.unique(holes.key)
    named = np.flatnonzero(may_hide)
    pairs = np.stack([np.repeat(lacking, len(named)), np.tile(named, len(lacking))])
    base = len(known.bookies)
    pairs = pairs[:, ~np.isin(pairs[0] * base + pairs[1], ledger * base + bookie)]
    pairs = pairs[:, number_within(pairs[0]) < MOST_NAMED]
    ledger, bookie = np.append(ledger, pairs[0]), np.append(bookie, pairs[1])
    low = np.append(low, np.full(len(pairs[0]), 1 << 62))
    order = np.lexsort((bookie, low, ledger))
    numbers, sizes = np.unique(ledger, return_counts=True)
    zero = np.zeros(len(numbers), np.int64)
    return LedgerSegments(numbers, zero, zero, sizes, bookie[order])


def find_holes(known: LedgerFacts, ledgers: Ints, ends: Ints) -> KeyedRuns:
    """Return the runs of entries, from 0 to the end of each of some ledgers, that no bookie is seen to serve.

    Args:
        known: the facts of bookies.
        ledgers: their numbers, ascending. Ledgers with more than `MOST_RUNS` runs are left out.
        ends: the last entry of every ledger.

    Returns:
        Sorted; keys are numbers of ledgers.
    """
    ledgers = ledgers[known.copies.count_runs()[ledgers] <= MOST_RUNS]
    copies, _ = known.copies.pick(ledgers)
    served = to_runs(
        KeyedGroups(copies.row_ledger[copies.group_row], copies.first, copies.last, copies.size, copies.period)
    )
    is_served = ~known.unserved[ledgers[served.key]]
    served = KeyedRuns(*(column[is_served] for column in served))
    size = ends[ledgers] + 1
    filled = np.flatnonzero(size > 0)
    holes = difference_runs(KeyedRuns(filled, np.zeros(len(filled), np.int64), size[filled]), served)
    return holes._replace(key=ledgers[holes.key])
