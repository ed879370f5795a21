"""Groups of one bookie and ledger that come in several rows, united; large groups are not laid out run by run."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from recovery.infer.copies import Ints, Mask, heads
from recovery.model.groups import KeyedGroups, run_counts, union

_LAID_OUT: Final = 64
"""Groups with more runs stay whole except for their first and last run, unless other groups lie among them."""
_AT_ONCE: Final = 1 << 21
"""Runs that are laid out at a time: some hundred megabytes."""


def unite_groups(groups: KeyedGroups, several: Mask, ledger: Ints, limit: int) -> tuple[KeyedGroups, Mask]:
    """Sort the groups of each key; unite groups of keys with several rows, and groups that overlap or touch.

    Args:
        groups: with keys below `len(several)`, equal ones adjacent.
        several: of each key, whether its groups come from more than one row.
        ledger: of each key, ascending.
        limit: runs of one ledger that are laid out at most.

    Returns:
        The groups, ascending and disjoint by key; and the ledgers with too many runs, without their groups.
    """
    too_many = np.zeros(int(ledger.max(initial=-1)) + 1, np.bool_)
    if not several.any() and _mark_apart(groups).all():
        return groups, too_many
    touched = several.copy()
    touched[groups.key[~_mark_apart(groups)]] = True
    touched = touched[groups.key]
    overlapping = _sort_groups(_take(groups, touched))
    mixed = several.copy()
    mixed[overlapping.key[~_mark_apart(overlapping)]] = True
    mixed = mixed[overlapping.key]
    laid, kept = _split(_take(overlapping, mixed))
    runs = run_counts(laid.first, laid.last, laid.period)
    ledger_of = ledger[laid.key]
    too_many = np.bincount(ledger_of, weights=np.minimum(runs, limit + 1), minlength=len(too_many)) > limit
    laid = _take(laid, ~too_many[ledger_of])
    parts = [
        _regroup(laid, kept),
        *(_take(part, ~too_many[ledger[part.key]]) for part in (_take(overlapping, ~mixed), kept)),
    ]
    whole = _take(groups, ~touched)
    joined = _concatenate([_take(whole, ~too_many[ledger[whole.key]]), _sort_groups(_concatenate(parts))])
    # Groups of a key are together on one side: two sorted stretches are merged.
    return _take(joined, np.argsort(joined.key, kind="stable")), too_many


def _concatenate(parts: Sequence[KeyedGroups]) -> KeyedGroups:
    return KeyedGroups(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _sort_groups(groups: KeyedGroups) -> KeyedGroups:
    return _take(groups, np.lexsort((groups.first, groups.key)))


def _take(groups: KeyedGroups, chosen: Ints | Mask) -> KeyedGroups:
    return KeyedGroups(*(column[chosen] for column in groups))


def _mark_apart(groups: KeyedGroups) -> Mask:
    """Mark groups that begin after the end of the group before, with at least one entry between."""
    apart = heads(groups.key)
    apart[1:] |= groups.first[1:] > groups.last[:-1] + groups.size[:-1]
    return apart


def _split(groups: KeyedGroups) -> tuple[KeyedGroups, KeyedGroups]:
    """Divide sorted groups into groups to expand and groups to keep.

    Only the first and the last run of a group can touch what lies outside of it.
    """
    key, first, last, size, period = groups
    end = last + size
    # Ends as small numbers, so that keys can be set apart by adding: the reach so far is one accumulated maximum.
    known, small = np.unique(end, return_inverse=True)
    shift = (np.cumsum(heads(key)) - 1) * len(known)
    reach = known[np.maximum.accumulate(small + shift) - shift]
    clear = heads(key)
    clear[1:] |= first[1:] >= reach[:-1]
    clear[:-1] &= clear[1:]
    whole = clear & (run_counts(first, last, period) > _LAID_OUT)
    large = _take(groups, whole)
    single = np.zeros(len(large.key), np.int64)
    head = large._replace(last=large.first, period=single)
    tail = large._replace(first=large.last, period=single)
    inner = large._replace(first=large.first + large.period, last=large.last - large.period)
    laid = [_take(groups, ~whole), head, tail]
    return _concatenate(laid), inner


def _regroup(laid: KeyedGroups, kept: KeyedGroups) -> KeyedGroups:
    """Unite groups run by run; no result reaches across a kept group."""
    key = np.append(laid.key, kept.key)
    is_kept = np.append(np.zeros(len(laid.key), np.bool_), np.ones(len(kept.key), np.bool_))
    order = np.lexsort((np.append(laid.first, kept.first), key))
    stretch = np.cumsum(heads(key[order]) | is_kept[order])
    places = order[~is_kept[order]]
    key, stretch = key[places], stretch[~is_kept[order]]
    laid = _take(laid, places)._replace(key=stretch)
    amount = np.cumsum(run_counts(laid.first, laid.last, laid.period)) // _AT_ONCE
    # Cut where a stretch begins.
    begin = np.flatnonzero(heads(stretch))
    cuts = begin[heads(amount[begin])]
    parts = [union(_take(laid, part)) for part in np.split(np.arange(len(key)), cuts[1:])]
    merged = _concatenate(parts)
    first_of = np.append(0, np.cumsum(np.bincount(stretch)))[merged.key]
    return merged._replace(key=key[first_of])
