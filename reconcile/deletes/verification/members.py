"""Has every entry of a closed ledger its copies? What members of ensembles should hold against what they hold."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recovery.model.groups import KeyedGroups, KeyedRuns, difference_runs, run_counts, within

Ints = npt.NDArray[np.int64]

_SHIFT: Final = 32
"""Bits of a key below the ledger's number: the number of the bookie."""
_MOST_RUNS: Final = 1 << 20
"""Runs that are laid out together; a run takes some 200 bytes while it is compared."""


@dataclass(frozen=True, slots=True)
class Positions:
    """Positions of ensembles, flat; arrays of one length.

    Attributes:
        row: number of the ledger.
        bookie: number of the bookie at the position.
        place: of the bookie in the ensemble.
        first, last: entries of the segment; last < first where it has none.
        ensemble, write: E and W of the ledger.
    """

    row: Ints
    bookie: Ints
    place: Ints
    first: Ints
    last: Ints
    ensemble: Ints
    write: Ints


def list_positions(
    rows: Ints, segments: pa.Array, last_entry: Ints, ensemble: Ints, write: Ints
) -> tuple[Positions, list[str]]:
    """Return the positions of ledgers' segments, and the names of their bookies.

    Args:
        rows: numbers of ledgers, one a record.
        segments: as `recovery.model.tables.SEGMENTS`, none null.
        last_entry: of each record.
        ensemble: E of each.
        write: W of each.
    """
    counts = segments.value_lengths().to_numpy(zero_copy_only=False)
    flat = segments.flatten()
    record = np.repeat(np.arange(len(rows)), counts)
    first = flat.field("first").to_numpy(zero_copy_only=False)
    is_last = np.ones(len(record), np.bool_)
    is_last[:-1] = record[1:] != record[:-1]
    following = np.append(first[1:], 0)
    end = np.where(is_last, last_entry[record], np.minimum(following - 1, last_entry[record]))
    members = flat.field("members")
    sizes = members.value_lengths().to_numpy(zero_copy_only=False)
    segment = np.repeat(np.arange(len(record)), sizes)
    place = np.arange(len(segment)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    names = members.flatten().dictionary_encode()
    record_of = record[segment]
    return (
        Positions(
            rows[record_of],
            names.indices.to_numpy(zero_copy_only=False).astype(np.int64),
            place,
            first[segment],
            end[segment],
            ensemble[record_of],
            write[record_of],
        ),
        names.dictionary.to_pylist(),
    )


def lay_due(positions: Positions) -> KeyedRuns:
    """Return the runs that each bookie should hold of each ledger; keys are of `make_keys`.

    Entry e belongs to place p of an ensemble if ``(p - e) mod E < W``.
    """
    filled = positions.last >= positions.first
    row, bookie, place, first, last, size, write = (
        getattr(positions, name)[filled] for name in ("row", "bookie", "place", "first", "last", "ensemble", "write")
    )
    key = make_keys(row, bookie)
    whole = write >= size
    origin = place - write + 1
    low = np.floor_divide(first - origin - write + 1 + size - 1, size)
    high = np.floor_divide(last - origin, size)
    count = np.where(whole, 1, np.maximum(high - low + 1, 0))
    number = np.repeat(np.arange(len(key)), count)
    step = np.arange(len(number)) - np.repeat(np.cumsum(count) - count, count)
    begin = np.where(
        whole[number], first[number], np.maximum(origin[number] + (low[number] + step) * size[number], first[number])
    )
    stop = origin[number] + (low[number] + step) * size[number] + write[number] - 1
    end = np.where(whole[number], last[number], np.minimum(stop, last[number]))
    kept = end >= begin
    return KeyedRuns(key[number][kept], begin[kept], (end - begin + 1)[kept])


def make_keys(row: Ints, bookie: Ints) -> Ints:
    """Return one number for a ledger and a bookie."""
    return (row << _SHIFT) | bookie


def split_keys(keys: Ints) -> tuple[Ints, Ints]:
    """Return the numbers of ledgers and of bookies that `make_keys` made keys of."""
    return keys >> _SHIFT, keys & ((1 << _SHIFT) - 1)


def count_missing(positions: Positions, stored: KeyedGroups) -> tuple[Ints, Ints, Ints]:
    """Return which ledgers lack copies: their numbers, most copies that an entry lacks, and the first such entry.

    Where W < E a stripe is a run of its own, so runs are laid out for some ledgers at a time, and of a long ledger for
    some entries at a time: memory is bounded by `_MOST_RUNS`, not by what is asked.

    Args:
        positions: of the ledgers.
        stored: what bookies hold; keys are of `make_keys`.
    """
    order = np.argsort(positions.row, kind="stable")
    positions = Positions(*(getattr(positions, name)[order] for name in Positions.__slots__))
    of_stored = stored.key >> _SHIFT
    order = np.argsort(of_stored, kind="stable")
    of_stored, stored = of_stored[order], KeyedGroups(*(column[order] for column in stored))
    rows, begins = np.unique(positions.row, return_index=True)
    if not len(rows):
        return rows, np.zeros(0, np.int64), np.zeros(0, np.int64)
    ledger = np.searchsorted(rows, of_stored)
    wanted = (ledger < len(rows)) & (rows[np.minimum(ledger, len(rows) - 1)] == of_stored)
    positions = _cut_ends(positions, rows, ledger[wanted], (stored.last + stored.size - 1)[wanted])
    spans = np.maximum(positions.last - positions.first + 1, 0)
    stripes = np.where(positions.write >= positions.ensemble, 1, spans // np.maximum(positions.ensemble, 1) + 2)
    runs = np.add.reduceat(stripes, begins)
    np.add.at(runs, ledger[wanted], run_counts(stored.first, stored.last, stored.period)[wanted])
    batch = np.cumsum(runs) // _MOST_RUNS
    stops = np.append(np.flatnonzero(np.diff(batch)) + 1, len(rows))
    counts: list[tuple[Ints, Ints, Ints]] = []
    for low, high in pairwise([0, *stops.tolist()]):
        own = slice(*np.searchsorted(positions.row, [rows[low], rows[high - 1] + 1]))
        stored_part = slice(*np.searchsorted(of_stored, [rows[low], rows[high - 1] + 1]))
        part = Positions(*(getattr(positions, name)[own] for name in Positions.__slots__))
        groups = KeyedGroups(*(column[stored_part] for column in stored))
        counts.append(_count_in_windows(part, groups, int(runs[low:high].sum()) // _MOST_RUNS + 1))
    return _concatenate(counts)


def _cut_ends(positions: Positions, rows: Ints, ledger: Ints, stored: Ints) -> Positions:
    """Return positions that end an ensemble's width above all that is stored of their ledgers.

    Above that each stripe lacks what the one before lacks; and an end that a damaged record names may be 2^60.

    Args:
        positions: of the ledgers.
        rows: the ledgers, in order.
        ledger: of what is stored, the place among these.
        stored: the last entry of it.
    """
    top = np.full(len(rows), -1, np.int64)
    np.maximum.at(top, ledger, stored)
    above = np.maximum(top[np.searchsorted(rows, positions.row)], positions.first - 1)
    return replace(positions, last=np.minimum(positions.last, above + positions.ensemble))


def _concatenate(counts: Sequence[tuple[Ints, Ints, Ints]]) -> tuple[Ints, Ints, Ints]:
    ledgers, most, first = (np.concatenate(columns) for columns in zip(*counts, strict=True))
    return ledgers, most, first


def _count_in_windows(positions: Positions, stored: KeyedGroups, windows: int) -> tuple[Ints, Ints, Ints]:
    """Return what `count_missing` does, of so many stretches of entries one after the other."""
    end = int(positions.last.max()) + 1
    width = max(-(-end // windows), 1)
    counts = []
    for low in range(0, end, width):
        first = np.maximum(positions.first, low)
        last = np.minimum(positions.last, low + width - 1)
        part = replace(positions, first=first, last=last)
        counts.append(_count(lay_due(part), within(stored, low, low + width - 1)))
    if not counts:
        return (np.zeros(0, np.int64),) * 3
    ledgers, most, first = _concatenate(counts)
    # The most first, and of the same number the first entry: the windows stand in their order.
    order = np.lexsort((first, -most, ledgers))
    ledgers, begins = np.unique(ledgers[order], return_index=True)
    return ledgers, most[order][begins], first[order][begins]


def _count(due: KeyedRuns, stored: KeyedRuns) -> tuple[Ints, Ints, Ints]:
    missing = difference_runs(due, stored)
    row = missing.key >> _SHIFT
    place = np.concatenate([missing.first, missing.first + missing.size])
    change = np.concatenate([np.ones(len(row), np.int64), np.full(len(row), -1)])
    rows = np.concatenate([row, row])
    order = np.lexsort((change, place, rows))
    rows, place, change = rows[order], place[order], change[order]
    # Each ledger's changes sum to nothing, so that the count begins anew with the next one.
    lacking = np.cumsum(change)
    ledgers = np.unique(row)
    begins = np.searchsorted(rows, ledgers)
    most = np.maximum.reduceat(lacking, begins) if len(ledgers) else np.zeros(0, np.int64)
    at_most = lacking == most[np.searchsorted(ledgers, rows)] if len(ledgers) else np.zeros(0, np.bool_)
    worst = np.flatnonzero(at_most)
    _, firsts = np.unique(rows[worst], return_index=True)
    return ledgers, most, place[worst[firsts]]
