"""Positions of segments: which entries of a closed ledger belong on which bookie, many ledgers at once.

Entry e of a segment belongs on the W positions (e + i) mod E, i < W, of its ensemble; e is counted from the ledger's
begin, not from the segment's. So position p takes the entries e with (e - phase) mod E < W, phase = (p - W + 1) mod E.
What all functions take and give is flat, as in `recovery.model.groups`.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recovery.model.groups import KeyedGroups, KeyedRuns, rank, run_counts, to_runs

Ints = npt.NDArray[np.int64]

FAR: Final = 1 << 62
"""No ledger has entries from here on: a record that names one is damaged."""


class Cells(NamedTuple):
    """Positions of segments, one element each.

    `ledger` and `bookie` are numbers, `low` and `high` the first and the last entry of the segment, `due` says how
    many entries belong on the position.
    """

    ledger: Ints
    bookie: Ints
    position: Ints
    ensemble: Ints
    write: Ints
    low: Ints
    high: Ints
    due: Ints

    def select(self, chosen: npt.NDArray[np.bool_] | Ints) -> "Cells":
        """Return some of the positions."""
        return Cells(*(column[chosen] for column in self))


def find_closed(stored: pa.Table) -> Ints:
    """Return the rows of closed ledgers with entries and a readable record; CATALOG_LEDGERS in."""
    closed = pc.and_(pc.equal(stored["state"], "CLOSED"), pc.greater_equal(stored["last_entry"], 0))
    return np.flatnonzero(pc.fill_null(closed, fill_value=False).to_numpy())


def lay_out_cells(stored: pa.Table, closed: Ints) -> tuple[list[str], Cells]:
    """Return the names of bookies that records have, and every position on which an entry belongs.

    Args:
        stored: CATALOG_LEDGERS: ``segments``, ``write_quorum`` and ``last_entry``.
        closed: the rows that are laid out; ledgers are numbered in this order.
    """
    rows = stored.select(["segments", "write_quorum", "last_entry"]).take(pa.array(closed))
    segments = rows["segments"].combine_chunks()
    lists = segments.flatten()
    of_segment = pc.list_parent_indices(segments).to_numpy(zero_copy_only=False).astype(np.int64)
    first = lists.field("first").to_numpy(zero_copy_only=False).astype(np.int64)
    members = lists.field("members")
    sizes = pc.list_value_length(members).to_numpy(zero_copy_only=False).astype(np.int64)
    end = _numbers(rows, "last_entry")[of_segment]
    last = end.copy()
    follows = np.flatnonzero(of_segment[1:] == of_segment[:-1])
    last[follows] = np.minimum(end[follows], first[follows + 1] - 1)
    coded = members.flatten().dictionary_encode()
    bookie = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    segment = np.repeat(np.arange(len(first)), sizes)
    position = np.arange(len(segment)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    ledger, ensemble = of_segment[segment], sizes[segment]
    write = np.minimum(_numbers(rows, "write_quorum")[ledger], ensemble)
    low, high = first[segment], last[segment]
    sane = (low <= high) & (write > 0)
    ledger, bookie, position, ensemble, write, low, high = (
        column[sane] for column in (ledger, bookie, position, ensemble, write, low, high)
    )
    due = rank(high + 1, position, ensemble, write) - rank(low, position, ensemble, write)
    cells = Cells(ledger, bookie, position, ensemble, write, low, high, due)
    return coded.dictionary.to_pylist(), cells.select(due > 0)


def lay_out_due(cells: Cells, begin: Ints, end: Ints) -> KeyedRuns:
    """Return the runs of entries that belong on each position, keyed by its place among these.

    Args:
        cells: positions.
        begin: of each position, the first entry that is laid out.
        end: the last one; none where they cross.
    """
    begin, end = np.maximum(cells.low, begin), np.minimum(cells.high, end)
    rows = np.flatnonzero(begin <= end)
    begin, end, ensemble, write = (column[rows] for column in (begin, end, cells.ensemble, cells.write))
    striped = write < ensemble
    phase = _find_phase(cells)[rows]
    start = np.where(striped, begin - (begin - phase) % ensemble, begin)
    size = np.where(striped, write, end - begin + 1)
    step = np.where(striped, ensemble, end - begin + 1)
    last = start + (end - start) // step * step
    period = np.where(last > start, step, 0)
    runs = to_runs(KeyedGroups(rows, start, last, size, period))
    number = run_counts(start, last, period)
    lower, upper = np.repeat(begin, number), np.repeat(end, number)
    first = np.maximum(runs.first, lower)
    stop = np.minimum(runs.first + runs.size - 1, upper)
    return KeyedRuns(*(column[first <= stop] for column in (runs.key, first, stop - first + 1)))


def find_ends(cells: Cells) -> tuple[Ints, Ints]:
    """Return the first and the last entry that belong on each position."""
    phase = _find_phase(cells)
    ahead = (cells.low - phase) % cells.ensemble
    behind = (cells.high - phase) % cells.ensemble
    first = np.where(ahead < cells.write, cells.low, cells.low + cells.ensemble - ahead)
    last = np.where(behind < cells.write, cells.high, cells.high - (behind - cells.write + 1))
    return first, last


def _find_phase(cells: Cells) -> Ints:
    return (cells.position - cells.write + 1) % cells.ensemble


def _numbers(table: pa.Table, name: str) -> Ints:
    return np.asarray(pc.fill_null(table[name], 0).to_numpy(), np.int64)
