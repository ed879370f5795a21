"""The segments of many ledgers as columns, segments of one shape (E, W, A) together.

Position p of segment n is in row p, column n: what is computed position by position is then computed on whole
columns. Entry e is on positions (e + i) mod E, i < W, so there are as many write sets as residues e mod E occur.

Source: docs/operations/impact.md.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recovery.model.metadata import LedgerState

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

COLUMNS: Final = (
    "bucket",
    "scope",
    "ledger",
    "created_txn",
    "changed_txn",
    "created_at",
    "changed_at",
    "error",
    "state",
    "ensemble_size",
    "write_quorum",
    "ack_quorum",
    "last_entry",
    "ctime",
    "segments",
)
"""Of CATALOG_LEDGERS, that are read."""
NO_END: Final = np.iinfo(np.int64).max
"""Last entry of a segment that may still grow."""
_LARGEST: Final = 1 << 20
"""No ensemble is as large."""
_PAIR: Final = np.dtype([("scope", np.int64), ("ledger", np.int64)])


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """The quorums of a ledger."""

    ensemble: int
    write: int
    ack: int

    def __str__(self) -> str:
        return f"{self.ensemble}/{self.write}/{self.ack}"


@dataclass(frozen=True, slots=True, eq=False)
class SegmentColumns:
    """Segments of one shape.

    Attributes:
        shape: of all of them.
        ledger: row of each segment's ledger in the table that was read.
        number: of the segment in its ledger, from 0.
        first, last: entries; `last` is `first - 1` where there is none, and `NO_END` where it may still grow.
        members: (E, segments), numbers of bookies; -1 is a bookie that no other source names.
        final: the last segment of a ledger that is not closed.
        open: the last segment of an open ledger: a client may write to it.
    """

    shape: Shape
    ledger: Ints
    number: Ints
    first: Ints
    last: Ints
    members: npt.NDArray[np.int32]
    final: Mask
    open: Mask

    def __len__(self) -> int:
        return len(self.ledger)

    def select(self, rows: Any) -> "SegmentColumns":  # noqa: ANN401 - a mask or numbers
        """Return some of the segments."""
        return SegmentColumns(
            self.shape,
            self.ledger[rows],
            self.number[rows],
            self.first[rows],
            self.last[rows],
            self.members[:, rows],
            self.final[rows],
            self.open[rows],
        )

    def find_residues(self) -> Mask:
        """Return which residues e mod E have an entry: (E, segments). All may occur where a segment may still grow."""
        size = self.shape.ensemble
        count = np.clip(np.where(self.last == NO_END, size, self.last - self.first + 1), 0, size)
        residue = np.arange(size)[:, None]
        occurs: Mask = (residue - self.first) % size < count
        return occurs

    def count_entries(self, residues: Mask) -> Ints:
        """Return how many entries of each segment have one of some residues; 0 where it may still grow."""
        size = self.shape.ensemble
        last = np.where(self.last == NO_END, self.first - 1, self.last)
        total = np.zeros(len(self), np.int64)
        for residue in range(size):
            total += residues[residue] * ((last - residue) // size - (self.first - 1 - residue) // size)
        return total


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """The content of the records of some ledgers.

    Attributes:
        groups: the segments, segments of one shape together.
        unreadable: rows of ledgers with a record that cannot be read, or contradicts itself.
        shapes: (rows, 3) E, W, A; 0 where they cannot be read.
    """

    groups: tuple[SegmentColumns, ...]
    unreadable: Ints
    shapes: Ints


def read_records(rows: pa.Table, names: pa.Array) -> Records:
    """Read the segments of ledgers.

    Args:
        rows: of CATALOG_LEDGERS, with `COLUMNS`.
        names: of bookies; a member's number is its place there.
    """
    segments = rows["segments"].combine_chunks()
    count = pc.fill_null(pc.list_value_length(segments), 0).to_numpy().astype(np.int64)
    flat = segments.flatten()
    first = pc.struct_field(flat, "first").to_numpy(zero_copy_only=False)
    members = pc.struct_field(flat, "members")
    size = pc.list_value_length(members).to_numpy(zero_copy_only=False).astype(np.int64)
    bookie = pc.fill_null(pc.index_in(members.flatten(), value_set=names), -1).to_numpy(zero_copy_only=False)
    offset = np.cumsum(size) - size

    shapes = np.stack([_read_numbers(rows[name], 0) for name in ("ensemble_size", "write_quorum", "ack_quorum")], 1)
    state = rows["state"].combine_chunks()
    closed = pc.fill_null(pc.equal(state, str(LedgerState.CLOSED)), fill_value=False).to_numpy(zero_copy_only=False)
    opened = pc.fill_null(pc.equal(state, str(LedgerState.OPEN)), fill_value=False).to_numpy(zero_copy_only=False)
    end = _read_numbers(rows["last_entry"], -1)
    ledger = np.repeat(np.arange(len(count)), count)
    begin = np.cumsum(count) - count
    number = np.arange(len(ledger)) - begin[ledger]
    is_last = number == count[ledger] - 1
    following = np.append(first[1:], 0)

    wrong = (size != shapes[ledger, 0]) | (first < 0) | (~is_last & (following <= first))
    readable = pc.is_null(rows["error"]).to_numpy() & (count > 0)
    readable &= (shapes[:, 0] >= shapes[:, 1]) & (shapes[:, 1] >= shapes[:, 2]) & (shapes[:, 2] >= 1)
    readable &= shapes[:, 0] < _LARGEST
    readable &= ~closed | rows["last_entry"].is_valid().to_numpy()
    readable[ledger[wrong]] = False

    last = np.where(is_last, NO_END, following - 1)
    last = np.where(closed[ledger], np.minimum(last, np.maximum(end[ledger], first - 1)), last)
    final = is_last & ~closed[ledger]
    key = (shapes[:, 0] * _LARGEST + shapes[:, 1]) * _LARGEST + shapes[:, 2]
    groups = []
    taken = readable[ledger]
    chosen = np.flatnonzero(taken)
    kind = key[ledger[chosen]]
    for value in np.unique(key[readable]).tolist():
        own = chosen[kind == value]
        ensemble, write, ack = shapes[ledger[own[0]]].tolist()
        place = offset[own] + np.arange(ensemble)[:, None]
        groups.append(
            SegmentColumns(
                Shape(ensemble, write, ack),
                ledger[own],
                number[own],
                first[own],
                last[own],
                bookie[place].astype(np.int32),
                final[own],
                (final & opened[ledger])[own],
            )
        )
    shapes[~readable] = 0
    return Records(tuple(groups), np.flatnonzero(~readable), shapes)


def _read_numbers(column: pa.ChunkedArray, absent: int) -> Ints:
    numbers: Ints = pc.fill_null(column, absent).to_numpy().astype(np.int64)
    return numbers


class LedgerRows:
    """The rows of a table that has each ledger once."""

    def __init__(self, rows: pa.Table) -> None:
        keys = _join(rows)
        self._order = np.argsort(keys, order=("scope", "ledger")) if len(keys) else np.zeros(0, np.int64)
        self._keys = keys[self._order]

    def find(self, rows: pa.Table) -> Ints:
        """Return the row of each ledger of another table; -1: it has none."""
        wanted = _join(rows)
        if not len(self._keys):
            return np.full(len(wanted), -1)
        place = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        row: Ints = np.where(self._keys[place] == wanted, self._order[place], -1)
        return row


def _join(rows: pa.Table) -> npt.NDArray[np.void]:
    keys = np.empty(rows.num_rows, _PAIR)
    keys["scope"], keys["ledger"] = (rows[name].to_numpy() for name in ("scope", "ledger"))
    return keys
