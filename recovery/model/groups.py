"""Sequence groups: the entries that one bookie holds of one ledger, as runs at equal distances; many ledgers at once.

A group stands for the runs ``[s, s + size)`` for s = first, first + period, ..., last. Its period is 0 if and only if
it is one run. What all functions take and give is *flat*: arrays of equal length, one element a run or a group, with a
`key` that says which list (a ledger, a copy, a row) it belongs to; equal keys are adjacent. Ids go up to 2^63 - 1. No
function loops over lists.

Availability bytes (BP-34), big-endian, offsets and sizes in bytes, one list:

    at      size  field
    0       4     version, int32: 0
    4       4     g, int32
    8       56    zero
    64      24 g  int64 first, int64 last, int32 size, int32 period

What is written here is grouped, as BP-34 means it. Released bookies send a group with period 0 for every run.

Source: BP-34, "GetListOfEntriesOfALedger"; apache/bookkeeper 9590a97, util/AvailabilityOfEntriesOfLedger;
docs/formats/bookie-storage.md; the rank of an entry: docs/internals/reconstruction.md.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recovery.errors import FormatError, Reason
from recovery.model import tables

Ints = npt.NDArray[np.int64]

_HEADER: Final = struct.Struct(">ii56x")
_HEAD: Final = np.dtype([("version", ">i4"), ("groups", ">i4")])
_GROUP: Final = np.dtype([("first", ">i8"), ("last", ">i8"), ("size", ">i4"), ("period", ">i4")])
_I32: Final = (1 << 31) - 1
_I64: Final = (1 << 63) - 1
MOST_ENTRIES: Final = _I64
"""Largest count that is reported; larger counts are reported as this one."""
_SURELY_COUNTABLE: Final = float(1 << 62)
"""Entries: floats are exact enough below it."""
_MAX_RUNS: Final = 1 << 19
"""Most runs that foreign bytes may make us expand one by one: 4 MiB an array, some twenty arrays at a time."""


class Runs(NamedTuple):
    """Runs of consecutive entries. `begin`: the input element that each begins with."""

    begin: Ints
    first: Ints
    size: Ints


class GroupArrays(NamedTuple):
    """Groups. `begin`: the first run of each, so ``key[begin]`` is its list."""

    begin: Ints
    first: Ints
    last: Ints
    size: Ints
    period: Ints


class KeyedRuns(NamedTuple):
    """Runs with the list that each belongs to."""

    key: Ints
    first: Ints
    size: Ints


class KeyedGroups(NamedTuple):
    """Groups with the list that each belongs to."""

    key: Ints
    first: Ints
    last: Ints
    size: Ints
    period: Ints


def _changes(values: Ints) -> npt.NDArray[np.bool_]:
    """Mark elements that differ from the one before; the first one is marked."""
    changed = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=changed[1:])
    return changed


def runs_of(entries: Ints, key: Ints | None = None) -> Runs:
    """Return the runs of consecutive entry ids.

    Args:
        entries: not negative, ascending within each list; duplicates count once.
        key: the list of each; None: there is only one.
    """
    begins = np.ones(len(entries), np.bool_)
    np.greater(entries[1:] - entries[:-1], 1, out=begins[1:])
    if key is not None:
        begins |= _changes(key)
    index = np.flatnonzero(begins)
    first = entries[index]
    return Runs(index, first, entries[_ends(index, len(entries))] - first + 1)


def _ends(starts: Ints, count: int) -> Ints:
    """Return the last element of each stretch that begins at `starts`, of `count` elements in all."""
    return np.append(starts[1:], count)[: len(starts)] - 1


def regroup(key: Ints, first: Ints, size: Ints) -> GroupArrays:
    """Return the groups of runs: greedily, from the left.

    A run joins the open group if it has the same list and size, and the group has one run so far or the run keeps its
    distance.

    Args:
        key: the list of each run; equal ones adjacent.
        first: where each run starts; ascending within a list, runs apart from each other.
        size: entries of each run.
    """
    count = len(first)
    distance = np.zeros(count, np.int64)
    np.subtract(first[1:], first[:-1], out=distance[1:])
    begins = _changes(key) | _changes(size)
    # A run at another distance than the one before it ends a group of two or more. Where several such runs follow each
    # other, the first begins a group, the second joins it as its second run, the third begins the next one.
    odd = _changes(distance) & ~begins
    odd[1:] &= ~begins[:-1]
    row = np.flatnonzero(odd)
    chain = np.ones(len(row), np.bool_)
    np.not_equal(row[1:] - row[:-1], 1, out=chain[1:])
    place = np.arange(len(row))
    begins[row[(place - np.maximum.accumulate(np.where(chain, place, 0))) % 2 == 0]] = True
    index = np.flatnonzero(begins)
    end = _ends(index, count)
    period = np.where(end > index, distance[np.minimum(index + 1, count - 1)], 0)
    return GroupArrays(index, first[index], first[end], size[index], period)


def group_entries(entries: Ints, key: Ints | None = None) -> KeyedGroups:
    """Return the groups of entry ids; arguments as for `runs_of`, lists without a key are number 0."""
    runs = runs_of(entries, key)
    of_run = np.zeros(len(runs.begin), np.int64) if key is None else key[runs.begin]
    groups = regroup(of_run, runs.first, runs.size)
    return KeyedGroups(of_run[groups.begin], *groups[1:])


def run_counts(first: Ints, last: Ints, period: Ints) -> Ints:
    """Return how many runs each group has."""
    return (last - first) // np.maximum(period, 1) + 1


def count(first: Ints, last: Ints, size: Ints, period: Ints) -> Ints:
    """Return how many entries each group has."""
    return run_counts(first, last, period) * size


def add_counts(counts: pa.ChunkedArray) -> int:
    """Return the sum of counts that are not negative; at most 2^63 - 1, for bookies may claim more."""
    values = counts.to_numpy()
    return min((int((values >> 32).sum()) << 32) + int((values & 0xFFFF_FFFF).sum()), MOST_ENTRIES)


def to_runs(groups: KeyedGroups) -> KeyedRuns:
    """Return the runs of groups, expanded, in their order."""
    runs = run_counts(groups.first, groups.last, groups.period)
    first = np.repeat(groups.first, runs) + _number(runs) * np.repeat(groups.period, runs)
    return KeyedRuns(np.repeat(groups.key, runs), first, np.repeat(groups.size, runs))


def within(groups: KeyedGroups, low: int, high: int) -> KeyedRuns:
    """Return the runs of the entries from `low` to `high`, both included; only runs that reach there are laid out."""
    step = np.maximum(groups.period, 1)
    begin = np.maximum(-((groups.first + (groups.size - 1) - low) // step), 0)
    end = np.minimum((groups.last - groups.first) // step, (high - groups.first) // step)
    chunk = begin <= end
    first = groups.first[chunk] + begin[chunk] * groups.period[chunk]
    last = groups.first[chunk] + end[chunk] * groups.period[chunk]
    runs = to_runs(KeyedGroups(groups.key[chunk], first, last, groups.size[chunk], groups.period[chunk]))
    bound = np.maximum(runs.first, low)
    return KeyedRuns(runs.key, bound, np.minimum(runs.first + (runs.size - 1), high) - bound + 1)


def expand(groups: KeyedGroups) -> tuple[Ints, Ints]:
    """Return (key, entry) of every entry. For foreign groups call `count` first: it has the length of the result."""
    return lay_out(to_runs(groups))


def next_entry(groups: KeyedGroups, low: int) -> int | None:
    """Return the first entry that is not below `low`; None where there is none."""
    later = groups.last + (groups.size - 1) >= low
    first, size, step = groups.first[later], groups.size[later], np.maximum(groups.period[later], 1)
    if not len(first):
        return None
    run = np.maximum(-((first + (size - 1) - low) // step), 0)
    return int(np.maximum(first + run * groups.period[later], low).min())


def lay_out(runs: KeyedRuns) -> tuple[Ints, Ints]:
    """Return (key, entry) of every entry of runs."""
    return np.repeat(runs.key, runs.size), np.repeat(runs.first, runs.size) + _number(runs.size)


def _number(counts: Ints) -> Ints:
    """Return 0, 1, ... for each count, concatenated."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)


def _lay(runs: KeyedRuns, weight: Ints | int) -> tuple[npt.NDArray[np.uint64], Ints, Ints, Ints]:
    """Return position, key and change of weight of both ends of runs, sorted by (key, position), and the sort."""
    # The end of a run may be 2^63, which only unsigned numbers hold.
    begin = runs.first.astype(np.uint64)
    position = np.concatenate([begin, begin + runs.size.astype(np.uint64)])
    key = np.concatenate([runs.key, runs.key])
    change = np.concatenate([np.broadcast_to(weight, runs.size.shape), np.broadcast_to(-weight, runs.size.shape)])
    order = sort_positions(key, position)
    return position[order], key[order], change[order], order


def sort_positions(key: Ints, position: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
    """Return the order of rows by (key, position); fast if the rows come in parts that are sorted already."""
    if not len(key):
        return np.empty(0, np.intp)
    low, span = int(key.min()), int(position.max()) + 1
    if (int(key.max()) - low + 1) * span <= 1 << 64:
        # One number for both: parts that are sorted already, as groups are, are then merged rather than sorted.
        return np.argsort((key - low).astype(np.uint64) * np.uint64(span) + position, kind="stable")
    return np.lexsort((position, key))


def _cover(position: npt.NDArray[np.uint64], key: Ints, inside: npt.NDArray[np.bool_]) -> KeyedRuns:
    """Return the runs between positions after which `inside` is true; of equal positions the last counts."""
    settled = np.ones(len(position), np.bool_)
    settled[:-1] = (position[1:] != position[:-1]) | (key[1:] != key[:-1])
    position, key, inside = position[settled], key[settled], inside[settled]
    turns = np.flatnonzero(_changes(inside.astype(np.int64)))
    turns = turns[1:] if len(turns) and not inside[0] else turns
    begin, end = turns[::2], turns[1::2]
    return KeyedRuns(key[begin], position[begin].astype(np.int64), (position[end] - position[begin]).astype(np.int64))


def union_runs(runs: KeyedRuns) -> KeyedRuns:
    """Return the runs of all entries that are in any run of the same list.

    Args:
        runs: in any order; overlapping or not.

    Returns:
        Sorted by (key, first), and apart from each other.
    """
    position, key, change, _ = _lay(runs, 1)
    return _cover(position, key, np.cumsum(change) > 0)


def difference_runs(runs: KeyedRuns, without: KeyedRuns) -> KeyedRuns:
    """Return the runs of all entries that are in `runs` and not in `without`; otherwise as `union_runs`."""
    combined = KeyedRuns(*(np.concatenate(pair) for pair in zip(runs, without, strict=True)))
    own_names = np.concatenate([np.ones(len(runs.key), np.int64), np.zeros(len(without.key), np.int64)])
    position, key, change, order = _lay(combined, 1)
    own = np.concatenate([own_names, own_names])[order] == 1
    node = np.cumsum(np.where(own, change, 0)) > 0
    return _cover(position, key, node & (np.cumsum(np.where(own, 0, change)) == 0))


def group_runs(runs: KeyedRuns) -> KeyedGroups:
    """Return the groups of sorted, disjoint runs, as `union_runs` returns them."""
    groups = regroup(*runs)
    return KeyedGroups(runs.key[groups.begin], *groups[1:])


def union(groups: KeyedGroups, *rest: KeyedGroups) -> KeyedGroups:
    """Return the groups of all entries that are in any list with the same key."""
    runs = [to_runs(part) for part in (groups, *rest)]
    return group_runs(union_runs(KeyedRuns(*(np.concatenate(column) for column in zip(*runs, strict=True)))))


def rank(n: Ints, position: Ints, ensemble_size: Ints, write_quorum: Ints) -> Ints:
    """Return how many entries below `n` belong to a position of the ensemble.

    Entry e belongs to position p if ``(p - e) mod E < W``. Arguments broadcast; n up to 2^63 - 1.
    """
    rounds, rest = np.divmod(n, ensemble_size)
    begin = position - write_quorum + 1
    # Of one round, the position takes [begin, position]; below 0 that goes on from E.
    low = np.clip(rest - np.maximum(begin, 0), 0, position + 1 - np.maximum(begin, 0))
    high = np.where(begin < 0, np.maximum(rest - begin - ensemble_size, 0), 0)
    return np.asarray(rounds * write_quorum + low + high)


def holds(entry: Ints, position: Ints, ensemble_size: Ints, write_quorum: Ints) -> npt.NDArray[np.bool_]:
    """Whether entries belong to positions of the ensemble; arguments broadcast."""
    return np.asarray(
        np.mod(np.mod(position, ensemble_size) - np.mod(entry, ensemble_size), ensemble_size) < write_quorum
    )


# Availability bytes


def encode_availability(groups: KeyedGroups) -> bytes:
    """Return the availability bytes of one list, grouped.

    A run or a period that 32 bits do not hold is written as several groups.

    Args:
        groups: ascending and disjoint; keys are ignored.

    Raises:
        ValueError: the format does not hold that many groups.
    """
    groups = _narrow(groups)
    raw = np.empty(len(groups.first), _GROUP)
    for name in ("first", "last", "size", "period"):
        raw[name] = getattr(groups, name)
    return _HEADER.pack(0, len(raw)) + raw.tobytes()


def _narrow(groups: KeyedGroups) -> KeyedGroups:
    wide = (groups.size > _I32) | (groups.period > _I32)
    if not wide.any():
        return groups
    runs = np.where(wide, run_counts(groups.first, groups.last, groups.period), 1)
    if (runs.astype(np.float64) * ((groups.size - 1) // _I32 + 1)).sum() > _I32:
        raise ValueError("more groups than 32 bits count")
    order = np.repeat(np.arange(len(runs)), runs)
    wide = wide[order]
    size, period = groups.size[order], groups.period[order]
    first = groups.first[order] + np.where(wide, _number(runs) * period, 0)
    last = np.where(wide, first, groups.last[order])
    parts = (size - 1) // _I32 + 1
    offset = _number(parts) * _I32
    order = np.repeat(np.arange(len(parts)), parts)
    return KeyedGroups(
        np.zeros(len(order), np.int64),
        first[order] + offset,
        last[order] + offset,
        np.minimum(size[order] - offset, _I32),
        np.where(wide, 0, period)[order],
    )


def decode_availability(raw: bytes | memoryview) -> KeyedGroups:
    """Return the groups of availability bytes, with key 0.

    They are grouped again, so runs that were sent one by one become groups. Groups that overlap or are out of order
    mean their union. Only groups with too many runs to expand are given as they were sent.

    Raises:
        FormatError: another version, another length than the number of groups needs, or an impossible group.
    """
    if len(raw) < _HEADER.size:
        raise FormatError(Reason.TRUNCATED, "availability", len(raw), f"the header takes {_HEADER.size} bytes")
    version, number = _HEADER.unpack_from(raw)
    if version != 0:
        raise FormatError(Reason.BAD_VERSION, "availability", 0, f"version {version}")
    if number < 0 or len(raw) != _HEADER.size + number * _GROUP.itemsize:
        raise FormatError(Reason.BAD_LENGTH, "availability", 4, f"{number} groups in {len(raw)} bytes")
    table = np.frombuffer(raw, _GROUP, number, _HEADER.size)
    first, last, size, period = (table[name].astype(np.int64) for name in ("first", "last", "size", "period"))
    number_of = last > first
    good = (first >= 0) & (size > 0) & (period >= 0) & (last >= first) & (last <= _I64 - size + 1)
    good &= ~number_of | ((period >= size) & ((last - first) % np.maximum(period, 1) == 0))
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        detail = f"first {first[row]}, last {last[row]}, size {size[row]}, period {period[row]}"
        raise FormatError(Reason.BAD_VALUE, "availability", _HEADER.size + row * _GROUP.itemsize, detail)
    groups = KeyedGroups(np.zeros(number, np.int64), first, last, size, np.where(number_of, period, 0))
    _require_countable(groups)
    begin, end = first[1:], last[:-1] + (size[:-1] - 1)
    if run_counts(first, last, groups.period).sum(dtype=np.float64) <= _MAX_RUNS + number:
        apart = (begin > end) & (begin - end > 1)
        return group_runs(to_runs(groups)) if apart.all() else union(groups)
    if (begin > end).all():
        return groups
    raise FormatError(Reason.BAD_LENGTH, "availability", _HEADER.size, "overlapping groups of too many runs")


def _require_countable(groups: KeyedGroups) -> None:
    """Refuse a list of more entries than 63 bits count; groups that overlap count each.

    Raises:
        FormatError: it has more.
    """
    runs = run_counts(groups.first, groups.last, groups.period)
    if (runs.astype(np.float64) * groups.size).sum() < _SURELY_COUNTABLE:
        return
    entries = sum(many * long for many, long in zip(runs.tolist(), groups.size.tolist(), strict=True))
    if entries > _I64:
        raise FormatError(Reason.BAD_VALUE, "availability", _HEADER.size, f"{entries} entries")


def decode_availabilities(raws: Sequence[bytes]) -> tuple[KeyedGroups, dict[int, FormatError]]:
    """Return the groups of many lists at once, as `decode_availability` does for one list; keys are their places.

    Returns:
        The groups, sorted by key; and why there are none of some.
    """
    sizes = np.fromiter(map(len, raws), np.int64, len(raws))
    heads = np.frombuffer(b"".join([raw[: _HEAD.itemsize].ljust(_HEAD.itemsize, b"\xff") for raw in raws]), _HEAD)
    numbers = heads["groups"].astype(np.int64)
    usual = (heads["version"] == 0) & (numbers >= 0) & (sizes == _HEADER.size + numbers * _GROUP.itemsize)
    row = np.flatnonzero(usual)
    table = np.frombuffer(b"".join([raws[n][_HEADER.size :] for n in row.tolist()]), _GROUP)
    key = np.repeat(row, numbers[row])
    first, last, size, period = (table[name].astype(np.int64) for name in ("first", "last", "size", "period"))
    # Single runs that ascend and do not touch each other: all that released bookies send.
    single = (first >= 0) & (size > 0) & (period >= 0) & (last == first) & (last <= _I64 - size + 1)
    end = first + (size - 1)
    single[1:] &= (key[1:] != key[:-1]) | ((first[1:] > end[:-1]) & (first[1:] - end[:-1] > 1))
    usual[key[~single]] = False
    kept = usual[key]
    runs = [group_runs(KeyedRuns(key[kept], first[kept], size[kept]))]
    errors: dict[int, FormatError] = {}
    for n in np.flatnonzero(~usual).tolist():
        try:
            groups = decode_availability(raws[n])
        except FormatError as error:
            errors[n] = error
        else:
            runs.append(groups._replace(key=np.full(len(groups.key), n)))
    whole = KeyedGroups(*(np.concatenate(column) for column in zip(*runs, strict=True)))
    order = np.argsort(whole.key, kind="stable")
    return KeyedGroups(*(column[order] for column in whole)), errors


# Arrow


def to_arrow(groups: KeyedGroups, rows: int) -> pa.Array:
    """Return the GROUPS column of so many rows.

    Args:
        groups: sorted by key; keys are row numbers.
        rows: of the table; rows without a group have an empty list.
    """
    offsets = np.searchsorted(groups.key, np.arange(rows + 1)).astype(np.int32)
    item = tables.GROUPS.value_type
    values = pa.StructArray.from_arrays([pa.array(column) for column in groups[1:]], fields=list(item))
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=tables.GROUPS)


def from_arrow(column: pa.Array | pa.ChunkedArray) -> KeyedGroups:
    """Return the groups of a GROUPS column; keys are row numbers."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    fields = column.flatten().flatten()
    return KeyedGroups(np.repeat(np.arange(len(column)), lengths), *(values.to_numpy() for values in fields))
