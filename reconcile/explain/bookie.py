"""One bookie from every side: which ledgers and segments name it, what it holds, and what only it holds.

    of a ledger  is
    segments     those of the record whose ensembles name it
    due          entries that the record asks of it; null: the record is open, or cannot be read
    held         entries that it would serve
    only         of these, entries that no other bookie that was collected would serve

Columns of a bucket range in, columns out. Where another bookie has the very same entries, nothing is laid out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.rules.sides import ABSENT, unite
from recovery.model import groups as sequence
from recovery.model import tables
from recovery.model.groups import KeyedGroups
from recovery.model.ids import LedgerId

Ints = npt.NDArray[np.int64]

_SERVED: Final = pa.array(["index", "wire", "journal"])
_RUNS: Final = 1 << 21
"""Runs that are laid out at a time."""
_PLAIN: Final = ("g_first", "g_last", "g_size", "g_period", "entries")
_KEYS: Final = list(tables.KEY_COLUMNS)


@dataclass(frozen=True, slots=True)
class BookieSides:
    """What there is of a bookie.

    Attributes:
        bookie: its id.
        known: the store has a cookie of it, or records name it.
        collected: there is an inventory of it.
        not_collected: other bookies that the store knows, and of which there is none: they may have what only it shows.
        ledgers: list, as `tables.BOOKIE_LISTS` names them → ledgers.
        segments: that name it.
        due: entries that closed ledgers ask of it.
        held: entries that it has.
        only: of these, those that nobody else has who was collected.
        first: list → the first ids.
    """

    bookie: str
    known: bool
    collected: bool
    not_collected: tuple[str, ...]
    ledgers: Mapping[str, int]
    segments: int
    due: int
    held: int
    only: int
    first: Mapping[str, Sequence[LedgerId]]


def see_range(bookie: str, stored: pa.Table, copies: pa.Table) -> pa.Table:
    """Return BOOKIE_LEDGERS of the ledgers of a bucket range that name a bookie, or that it holds.

    Args:
        bookie: its id.
        stored: CATALOG_LEDGERS of the range, in key order; names of bookies are ids.
        copies: COPIES of the range, of all bookies that were collected.
    """
    served = copies.filter(pc.is_in(copies["source"], value_set=_SERVED))
    own = served.filter(pc.equal(served["bookie"], bookie))
    first_parts = own.filter(pc.equal(own["part"], 0)).group_by(_KEYS).aggregate([("entries", "sum")])
    own_copies = first_parts.rename_columns([*_KEYS, "entries"]).select([*_KEYS, "entries"])
    named, segments, due = _find_named(bookie, stored)
    about = stored.select([*_KEYS, "state"]).take(pa.array(named))
    listed = stored.select(_KEYS)
    united = unite([about, own_copies, listed])
    is_wanted = (united.rows[0] != ABSENT) | (united.rows[1] != ABSENT)
    record, holding, stored_rows = (rows[is_wanted] for rows in united.rows)
    keys = united.keys.filter(pa.array(is_wanted))
    only = _count_only(keys, own, served.filter(pc.not_equal(served["bookie"], bookie)))
    entries_held = np.zeros(keys.num_rows, np.int64)
    entries_held[holding != ABSENT] = own_copies["entries"].to_numpy()[holding[holding != ABSENT]]
    place = pa.array(record, mask=record == ABSENT)
    columns = {
        **{name: keys[name] for name in _KEYS},
        "listed": pa.array(stored_rows != ABSENT),
        "state": stored["state"].take(pa.array(stored_rows, mask=stored_rows == ABSENT)),
        "segments": pc.coalesce(segments.take(place), pa.scalar([], segments.type)),
        "due": pc.if_else(pa.array(record == ABSENT), 0, due.take(place)),
        "held": pa.array(entries_held),
        "only": pa.array(only),
    }
    return pa.table(columns).cast(tables.BOOKIE_LEDGERS)


def _find_named(bookie: str, stored: pa.Table) -> tuple[Ints, pa.Array, pa.Array]:
    """Return the rows of records that name a bookie; of each the numbers of the segments, and the entries due."""
    segments = stored["segments"].combine_chunks()
    flat = segments.flatten()
    row_of = pc.list_parent_indices(segments).to_numpy(zero_copy_only=False).astype(np.int64)
    members = flat.field("members")
    sizes = pc.list_value_length(members).to_numpy(zero_copy_only=False).astype(np.int64)
    begins = np.cumsum(sizes) - sizes
    places = np.flatnonzero(pc.equal(members.flatten(), bookie).to_numpy(zero_copy_only=False))
    segment = np.searchsorted(begins + sizes, places, side="right")
    position = places - begins[segment]
    first = flat.field("first").to_numpy(zero_copy_only=False)
    last = pc.fill_null(stored["last_entry"], -1).to_numpy()[row_of]
    follows = np.flatnonzero(row_of[1:] == row_of[:-1])
    last[follows] = np.minimum(last[follows], first[follows + 1] - 1)
    low, high = first[segment], np.maximum(last[segment], first[segment] - 1)
    write = np.minimum(pc.fill_null(stored["write_quorum"], 1).to_numpy()[row_of[segment]], sizes[segment])
    due = sequence.rank(high + 1, position, sizes[segment], write) - sequence.rank(low, position, sizes[segment], write)
    rows, starts = np.unique(row_of[segment], return_index=True)
    sums = np.add.reduceat(due, starts) if len(rows) else np.empty(0, np.int64)
    in_record = segment - np.searchsorted(row_of, row_of[segment])
    lists = pa.ListArray.from_arrays(
        pa.array(np.append(starts, len(in_record)), pa.int32()), pa.array(in_record.astype(np.int32))
    )
    closed = pc.fill_null(pc.equal(stored["state"], "CLOSED"), fill_value=False).to_numpy()[rows]
    return rows, lists, pa.array(sums, pa.int64(), mask=~closed)


def _count_only(keys: pa.Table, own: pa.Table, other_rows: pa.Table) -> Ints:
    """Count the entries of each ledger that no other bookie serves."""
    counts = np.zeros(keys.num_rows, np.int64)
    own_copies, other_copies = (_number(keys, rows) for rows in (own, other_rows))
    suspects = _list_not_matched(keys.num_rows, own_copies, other_copies)
    for chosen in _cut(suspects, own_copies, other_copies):
        parts = []
        for ledger, rows in (own_copies, other_copies):
            picked = np.flatnonzero(chosen[ledger])
            groups = sequence.from_arrow(rows["groups"].take(pa.array(picked)))
            parts.append(KeyedGroups(ledger[picked][groups.key], *groups[1:]))
        for low, high in _windows(parts):
            alone = sequence.difference_runs(*(sequence.within(part, low, high) for part in parts))
            np.add.at(counts, alone.key, alone.size)
    return counts


def _number(keys: pa.Table, rows: pa.Table) -> tuple[Ints, pa.Table]:
    """Return copies of the ledgers of `keys`, each with its row there."""
    names = ["scope", "ledger"]
    row_numbers = keys.select(names).append_column("at", pa.array(np.arange(keys.num_rows)))
    numbered = rows.select(names).append_column("row", pa.array(np.arange(rows.num_rows)))
    joined = numbered.join(row_numbers, names, join_type="inner").sort_by("row")
    return joined["at"].to_numpy(), rows.take(joined["row"])


def _list_not_matched(
    ledgers: int, own_copies: tuple[Ints, pa.Table], other_copies: tuple[Ints, pa.Table]
) -> npt.NDArray[np.bool_]:
    """Say which ledgers have copies here, and nobody else has exactly the same groups."""
    wanted = np.zeros(ledgers, np.bool_)
    wanted[own_copies[0]] = True
    sides = []
    for ledger, rows in (own_copies, other_copies):
        single = pc.and_(pc.equal(rows["g_count"], 1), pc.equal(rows["part"], 0)).to_numpy()
        columns = [pc.fill_null(rows[name], -1).to_numpy()[single] for name in _PLAIN]
        sides.append(pa.table({"at": ledger[single], **dict(zip(_PLAIN, columns, strict=True))}))
    rows_of = np.bincount(own_copies[0], minlength=ledgers)
    matches = sides[0].join(sides[1].group_by(["at", *_PLAIN]).aggregate([]), ["at", *_PLAIN], join_type="inner")
    matched = np.bincount(matches["at"].to_numpy(), minlength=ledgers)
    return np.asarray(wanted & (matched < rows_of))


def _cut(
    suspects: npt.NDArray[np.bool_], own_copies: tuple[Ints, pa.Table], other_copies: tuple[Ints, pa.Table]
) -> Iterator[npt.NDArray[np.bool_]]:
    """Yield masks of ledgers, so that few runs are laid out at a time; what is heavy comes alone."""
    load = np.zeros(len(suspects), np.int64)
    for ledger, rows in (own_copies, other_copies):
        groups = sequence.from_arrow(rows["groups"])
        np.add.at(load, ledger[groups.key], sequence.run_counts(groups.first, groups.last, groups.period))
    rows_left = np.flatnonzero(suspects)
    heavy = load[rows_left] > _RUNS
    part = np.cumsum(np.where(heavy, 0, load[rows_left])) // _RUNS
    part[heavy] = -1 - np.arange(int(heavy.sum()))
    for number in np.unique(part):
        chosen = np.zeros(len(suspects), np.bool_)
        chosen[rows_left[part == number]] = True
        yield chosen


def _windows(parts: list[KeyedGroups]) -> Iterator[tuple[int, int]]:
    """Yield bounds of entries in which no more runs stand than are laid out at a time, as far as that can be known."""
    runs = sum(int(sequence.run_counts(part.first, part.last, part.period).sum()) for part in parts)
    end = max((int((part.last + part.size).max()) for part in parts if len(part.key)), default=0)
    step = max(1, -(-end // max(1, -(-runs // _RUNS))))
    for low in range(0, end, step):
        yield low, min(low + step, end) - 1
