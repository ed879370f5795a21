"""Bookies for positions that never received an entry: nothing shows the true ones, and no reader asks them."""

from typing import Final

import numpy as np

from recovery.infer.copies import Ints, Mask
from recovery.infer.facts import LedgerFacts
from recovery.infer.shape_fit import LedgerSegments
from recovery.model.ids import buckets

_PAIRS: Final = 1 << 24
"""Pairs of bookies that are compared at a time: some tens of megabytes."""


def name_members(known: LedgerFacts, segments: LedgerSegments) -> tuple[LedgerSegments, Mask]:
    """Name a bookie for each position that shows none.

    First those that know the ledger and hold nothing of it, then those that was not read or that lost what they
    had, then others in an order of the ledger's own; never one that is in the ensemble already.

    Returns:
        The segments, and which members were named here.
    """
    members = segments.members.copy()
    blank = members < 0
    of_member = np.repeat(np.arange(len(segments.size)), segments.size)
    lacking = np.unique(of_member[blank])
    begin = np.cumsum(segments.size) - segments.size
    for size in np.unique(segments.size[lacking]).tolist():
        of_size = lacking[segments.size[lacking] == size]
        step = max(1, _PAIRS // (size * size))
        for low in range(0, len(of_size), step):
            chosen = of_size[low : low + step]
            cells = begin[chosen][:, None] + np.arange(size)
            members[cells] = _complete(known, segments.ledger[chosen], members[cells])
    return LedgerSegments(segments.ledger, segments.first, segments.low, segments.size, members), blank


def _complete(known: LedgerFacts, ledger: Ints, members: Ints) -> Ints:
    """Complete ensembles of one size.

    Args:
        known: which bookie knows which ledger.
        ledger: of each ensemble.
        members: (ensembles, E).
    """
    size, bookies = members.shape[1], len(known.bookies)
    first = np.searchsorted(known.idle_ledger, ledger)
    idle_count = np.searchsorted(known.idle_ledger, ledger, "right") - first
    nth = np.arange(min(size, int(idle_count.max(initial=0))))
    is_idle = nth < idle_count[:, None]
    idle = np.where(is_idle, np.append(known.idle_bookie, -1)[np.where(is_idle, first[:, None] + nth, -1)], -1)
    # Of E others in a row, at least as many are not members yet as there are blanks left.
    start = buckets(known.scope[ledger], known.ledger[ledger]).astype(np.int64)
    absent = np.union1d(known.unscanned, np.flatnonzero(known.lost))[:size]
    rest = (start[:, None] + np.arange(min(bookies, size + len(absent)))) % max(bookies, 1)
    rest = np.where(_mark_among(rest, idle), -1, rest)
    unseen = np.repeat(absent[None, :], len(ledger), axis=0)
    unseen = np.where(_mark_among(unseen, idle), -1, unseen)
    rest = np.where(_mark_among(rest, unseen), -1, rest)
    spare = np.concatenate([idle, unseen, rest, np.full((len(ledger), 1), -1)], axis=1)
    spare = np.where(_mark_among(spare, members), -1, spare)
    # Usable ones to the front, in their order; the n-th blank takes the n-th, or the -1 behind them.
    spare = np.take_along_axis(spare, np.argsort(spare < 0, axis=1, kind="stable"), axis=1)
    blank = members < 0
    place = np.clip(np.cumsum(blank, axis=1) - 1, 0, spare.shape[1] - 1)
    completed: Ints = np.where(blank, np.take_along_axis(spare, place, axis=1), members)
    return completed


def _mark_among(values: Ints, group: Ints) -> Mask:
    """Mark values that are in the same row of `others`."""
    among: Mask = (values[:, :, None] == group[:, None, :]).any(axis=2)
    return among
