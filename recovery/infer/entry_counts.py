"""Counts of entries that bookies hold up to some entry, in all and of each position of an ensemble."""

from functools import lru_cache
from typing import Final

import numpy as np

from recovery.infer.copies import Ints, Mask
from recovery.model.groups import KeyedGroups, KeyedRuns, rank, run_counts, to_runs

_SMALL: Final = 256
"""Ensembles up to this size have their round counted once."""


def _take(groups: KeyedGroups, chosen: Ints | Mask) -> KeyedGroups:
    return KeyedGroups(*(column[chosen] for column in groups))


def count_below(groups: KeyedGroups, row: Ints, place: Ints, ensemble: int, write: int) -> tuple[Ints, Ints]:
    """Return how many entries below a place a row has, in all and of each position.

    Args:
        groups: ascending by row.
        row: (rows, cells).
        place: of each cell.
        ensemble: E.
        write: W.

    Returns:
        (rows, cells), and (rows, positions, cells); there is one position where W = E.
    """
    striped = write < ensemble
    wanted = np.zeros(int(max(groups.key.max(initial=-1), row.max(initial=-1))) + 1, np.bool_)
    wanted[row] = True
    groups = _take(groups, wanted[groups.key])
    if not len(groups.key):
        return np.zeros_like(row), np.zeros((len(row), ensemble if striped else 1, row.shape[1]), np.int64)
    if striped:
        # Where a group goes on at another distance than the positions do, each run is one of its own.
        odd = (groups.last > groups.first) & (groups.period % ensemble != 0)
        if odd.any():
            runs = to_runs(_take(groups, odd))
            single_runs = KeyedGroups(runs.key, runs.first, runs.first, runs.size, np.zeros(len(runs.key), np.int64))
            joined = KeyedGroups(*(np.append(a[~odd], b) for a, b in zip(groups, single_runs, strict=True)))
            groups = _take(joined, np.lexsort((joined.first, joined.key)))
    count = run_counts(groups.first, groups.last, groups.period)
    # The last group of the row that begins below the place.
    known, code = np.unique(groups.first, return_inverse=True)
    group = np.searchsorted(groups.key * len(known) + code, row * len(known) + np.searchsorted(known, place)) - 1
    begin = np.searchsorted(groups.key, np.arange(len(wanted)))[row]
    has_group = group >= begin
    group = np.maximum(group, 0)
    runs_below = np.minimum((place - 1 - groups.first[group]) // np.maximum(groups.period, 1)[group] + 1, count[group])
    reach = groups.first[group] + (runs_below - 1) * groups.period[group] + groups.size[group]
    over = np.maximum(reach - place, 0) * has_group
    sums = np.append(0, np.cumsum(count * groups.size))
    entries = (sums[group] - sums[begin] + runs_below * groups.size[group]) * has_group - over
    if not striped:
        return entries, entries[:, None]
    per_run = rank_positions(groups.first[:, None] + groups.size[:, None], ensemble, write) - rank_positions(
        groups.first[:, None], ensemble, write
    )
    sums = np.append(np.zeros((1, ensemble), np.int64), np.cumsum(per_run * count[:, None], axis=0), axis=0)
    fits = (sums[group] - sums[begin] + runs_below[..., None] * per_run[group]) * has_group[..., None]
    cut = np.nonzero(over)
    fits[cut] -= rank_positions(reach[cut][:, None], ensemble, write) - rank_positions(
        place[cut[1], None], ensemble, write
    )
    return entries, np.ascontiguousarray(np.moveaxis(fits, 2, 1))


def rank_positions(below: Ints, ensemble: int, write: int) -> Ints:
    """Return how many entries below each entry of a column belong to each position."""
    if ensemble > _SMALL:
        return rank(below, np.arange(ensemble), np.array(ensemble), np.array(write))
    rounds, rest = np.divmod(below[:, 0], ensemble)
    counted: Ints = (rounds * write)[:, None] + _rank_round(ensemble, write)[rest]
    return counted


@lru_cache(maxsize=256)
def _rank_round(ensemble: int, write: int) -> Ints:
    """Return how many entries below n belong to each position, for each n < E: (E, E)."""
    return rank(np.arange(ensemble)[:, None], np.arange(ensemble), np.array(ensemble), np.array(write))


def lay_out(runs: KeyedRuns, rows: int, entries: int) -> Mask:
    """Return which of the entries each row holds: (rows, entries)."""
    change = np.zeros((rows, entries + 1), np.int8)
    np.add.at(change, (runs.key, runs.first), 1)
    np.add.at(change, (runs.key, runs.first + runs.size), -1)
    is_held: Mask = np.cumsum(change[:, :-1], axis=1, dtype=np.int8) > 0
    return is_held
