"""Sets of rows: fingerprints of ledgers made and summed, rows looked up among others."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from recovery.collect.incremental.records import FINGERPRINT_WIDTH, SOURCE_COLUMN
from recovery.collect.rows.index_slots import Block, IndexPiece
from recovery.collect.rows.ledger_facts import LEDGER, NONE
from recovery.collect.rows.source_copies import GROUP_WIDTH, Ints, Mask, are_members, find_starts, sort_groups
from recovery.model import tables
from recovery.model.groups import KeyedGroups

_MIX: Final = tuple(n - (1 << 64) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_LOG_SHIFT: Final = 32


def name_columns(table: str) -> list[str]:
    """Return the columns of a table after the ledger's."""
    return [column for column in tables.AGAIN[table].names if column not in tables.KEY_COLUMNS]


def look_up(names: Sequence[bytes], numbers: Ints) -> pa.Array:
    """Return the byte string of each number; null for NONE."""
    return pa.array([None if n == NONE else names[n] for n in numbers.tolist()], pa.binary())


def renumber(values: Ints, numbers: Mapping[int, int]) -> Ints:
    """Return the number of each value; every value has one."""
    old = np.array(sorted(numbers), np.int64)
    new = np.array([numbers[n] for n in old.tolist()], np.int64)
    return new[np.searchsorted(old, values)] if len(values) else values


def are_unique(sorted_keys: Ints) -> Mask:
    """Return which of ascending keys there are only once."""
    starts = find_starts(sorted_keys)
    size = np.diff(np.append(starts, len(sorted_keys)))
    return np.repeat(size == 1, size)


def find_logs_of(piece: IndexPiece | Block) -> Ints:
    """Return ledger and log of the slots of a piece, of neighbours that are alike one row."""
    if isinstance(piece, Block):
        log = piece.slots[piece.slots != 0] >> _LOG_SHIFT
        ledger = np.full(len(log), piece.ledger)
    else:
        ledger, log = piece.ledger, piece.location >> _LOG_SHIFT
    fresh = np.flatnonzero(np.append(True, (ledger[1:] != ledger[:-1]) | (log[1:] != log[:-1]))[: len(ledger)])
    return np.column_stack((ledger[fresh], log[fresh]))


def hash_slots(rows: IndexPiece, source: int) -> Ints:
    """Return a fingerprint row for each ledger of a piece: the sum over its slots of a mixed number, and their count.

    Sums of several pieces add up to that of the whole; ledgers with facts alone have 0.
    """
    mixed = rows.location * _MIX[0]
    mixed = (mixed ^ (mixed >> 29) ^ rows.entry) * _MIX[1]
    mixed = (mixed ^ (mixed >> 32)) * _MIX[2]
    starts = find_starts(rows.ledger)
    ledger = np.append(rows.ledger[starts], rows.facts[:, LEDGER])
    fingerprints = np.zeros((len(ledger), FINGERPRINT_WIDTH), np.int64)
    fingerprints[:, 0], fingerprints[:, SOURCE_COLUMN] = ledger, source
    if len(starts):
        fingerprints[: len(starts), 2] = np.add.reduceat(mixed, starts)
        fingerprints[: len(starts), 3] = np.diff(np.append(starts, len(rows.ledger)))
    return fingerprints


def sum_fingerprints(rows: Ints) -> Ints:
    """Return fingerprint rows by ledger and source; rows of several pieces of one index are added up."""
    rows = rows[np.lexsort((rows[:, SOURCE_COLUMN], rows[:, 0]))]
    if not len(rows):
        return rows
    starts = np.flatnonzero(np.append(True, (rows[1:, :2] != rows[:-1, :2]).any(axis=1)))
    return np.column_stack((rows[starts, :2], np.add.reduceat(rows[:, 2:], starts, axis=0)))


def are_among(rows: Ints, others: Ints) -> Mask:
    """Mark rows that are among others of the same width."""
    numbers = np.unique(np.concatenate((rows, others)), axis=0, return_inverse=True)[1].reshape(-1)
    return np.isin(numbers[: len(rows)], numbers[len(rows) :])


def find_files_of(stored: Ints, wanted: Ints) -> Ints:
    """Return ledger, file and entry of each wanted (ledger, entry) pair, once for each file that has it.

    Args:
        stored: rows of ledger, file, a flag, and a group of entries.
        wanted: the pairs.
    """
    pairs, pair_of = np.unique(stored[:, :2], axis=0, return_inverse=True)
    groups = sort_groups(KeyedGroups(pair_of.reshape(-1), *(stored[:, n] for n in range(3, 2 + GROUP_WIDTH))))
    low = np.searchsorted(pairs[:, 0], wanted[:, 0], "left")
    count = np.searchsorted(pairs[:, 0], wanted[:, 0], "right") - low
    row = np.repeat(np.arange(len(wanted)), count)
    pair = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(low, count)
    is_stored = are_members(groups, pair, wanted[row, 1])
    row, pair = row[is_stored], pair[is_stored]
    return np.column_stack((wanted[row, 0], pairs[pair, 1], wanted[row, 1]))
