"""Rows of the table of copies, made of flat arrays: a row for each ledger and source, several for many groups."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np
import pyarrow as pa

from recovery.codecs.entry import key_kind
from recovery.collect.rows.entry_headers import DIGEST_COLUMN, DIGESTS, HEAD_WIDTH, LENGTH_COLUMN
from recovery.collect.rows.scoped_ids import Scopes
from recovery.collect.rows.source_copies import Ints, Mask, find_starts, pick_groups
from recovery.model import ids, tables
from recovery.model.groups import KeyedGroups, count, to_arrow

NO_LAC: Final = -2
"""A number below every explicit LAC."""


class CopySource(StrEnum):
    """Where copies are known from; values are stored."""

    INDEX = "index"
    LOG = "log"
    JOURNAL = "journal"
    WIRE = "wire"


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """The facts of some ledgers beside their entries; one element a ledger.

    Attributes:
        ledger: ascending; keys, see `scoped_ids`.
        complete: absence of other entries may be believed.
        fenced, limbo: as stored.
        key: number of the master key in `keys`; -1: none is stored.
        keys: stored master keys, as `ledger_facts.make_stamp` has them.
        lac: explicit LAC; NO_LAC if there is none.
        lac_record: the record of each; None if there is none.
        scopes: names the ledgers.
    """

    ledger: Ints
    complete: Mask
    fenced: Mask
    limbo: Mask
    key: Ints
    keys: Sequence[bytes]
    lac: Ints
    lac_record: Sequence[bytes | None]
    scopes: Scopes = field(default_factory=Scopes)


def make_copies(
    source: CopySource, known: Known, groups: KeyedGroups, heads: Ints, bookie: str, incarnation: int
) -> pa.Table:
    """Return rows of COPIES.

    Args:
        source: of all rows.
        known: the ledgers that get a row, also those without entries.
        groups: canonical, of these ledgers.
        heads: header rows of these ledgers (see `entry_headers`), in any order, doubles allowed.
        bookie: its id.
        incarnation: of it.
    """
    ledger, part, row_of = _lay_out_rows(known.ledger, groups.key)
    rows = len(ledger)
    place = np.searchsorted(known.ledger, ledger)
    front = part == 0
    keyed = KeyedGroups(row_of, *groups[1:])
    entries = count(*groups[1:])
    total = np.zeros(rows, np.int64)
    np.add.at(total, row_of, entries)
    begin = find_starts(row_of)
    filled = row_of[begin]
    first, last = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    first[filled] = groups.first[begin]
    end = np.append(begin[1:], len(row_of)) - 1 if len(begin) else begin
    last[filled] = groups.last[end] + groups.size[end] - 1
    largest = np.lexsort((groups.first, -entries, row_of))
    largest = largest[find_starts(row_of[largest])]
    best = pick_groups(keyed, largest)
    empty = np.ones(rows, np.bool_)
    empty[filled] = False
    wide = {
        name: _place_values(rows, filled, column, empty)
        for name, column in zip(("g_first", "g_last", "g_size", "g_period"), best[1:], strict=True)
    }
    scope, number = known.scopes.ids(ledger)
    columns = {
        "bucket": pa.array(ids.buckets(scope, number)),
        "scope": pa.array(scope),
        "ledger": pa.array(number),
        "bookie": pa.repeat(bookie, rows),
        "incarnation": pa.array(np.full(rows, incarnation)),
        "source": pa.repeat(source.value, rows),
        "part": pa.array(part.astype(np.int32)),
        "groups": to_arrow(keyed, rows),
        "entries": pa.array(total),
        "first": pa.array(first, mask=empty),
        "last": pa.array(last, mask=empty),
        **wide,
        "g_count": pa.array(np.bincount(row_of, minlength=rows).astype(np.int64)),
        "complete": pa.array(known.complete[place]),
        "fenced": pa.array(known.fenced[place] & front),
        "limbo": pa.array(known.limbo[place] & front),
        **_make_key_columns(known, np.where(front, known.key[place], -1)),
        "explicit_lac": pa.array(known.lac[place], mask=(known.lac[place] == NO_LAC) | ~front),
        "lac_record": pa.array(
            [known.lac_record[n] if f else None for n, f in zip(place.tolist(), front.tolist(), strict=True)],
            pa.binary(),
        ),
        "headers": _make_headers(heads, ledger, front),
    }
    return pa.table(columns).select(tables.COPIES.names).cast(tables.COPIES)


def _lay_out_rows(ledgers: Ints, key: Ints) -> tuple[Ints, Ints, Ints]:
    """Return ledger and part of each row, and the row of each group."""
    low = np.searchsorted(key, ledgers)
    counts = np.searchsorted(key, ledgers, "right") - low
    parts = np.maximum(-(-counts // tables.GROUPS_PER_ROW), 1)
    start = np.cumsum(parts) - parts
    row_of = np.repeat(np.arange(len(ledgers)), parts)
    inside = np.arange(len(key)) - np.repeat(low, counts)
    return (
        ledgers[row_of],
        np.arange(len(row_of)) - start[row_of],
        np.repeat(start, counts) + inside // (tables.GROUPS_PER_ROW),
    )


def _place_values(rows: int, rows_of: Ints, values: Ints, empty: Mask) -> pa.Array:
    column = np.zeros(rows, np.int64)
    column[rows_of] = values
    return pa.array(column, mask=empty)


def _make_key_columns(known: Known, number: Ints) -> dict[str, pa.Array]:
    """Return the columns of master keys; number -1 selects the last element, which is null."""
    used, number_of = np.unique(number, return_inverse=True)
    kinds: list[str] = []
    hashes: list[bytes | None] = []
    for n in used.tolist():
        stored = None if n < 0 else known.keys[n]
        kinds.append(key_kind(stored))
        hashes.append(stored if kinds[-1] == "set" else None)
    return {
        "key_kind": pa.array(kinds, pa.string()).take(pa.array(number_of)),
        "key": pa.array(hashes, pa.binary()).take(pa.array(number_of)),
    }


def _make_headers(heads: Ints, ledger: Ints, front: Mask) -> pa.Array:
    """Return the column of headers, ascending by entry, for the first row of each ledger.

    An entry that occurs twice with two lengths has both: two ledgers had the id. The storage decides which of them a
    replay keeps (Sorted keeps the first in memory, the others the last).
    """
    heads = heads[np.isin(heads[:, 0], ledger)]
    key_columns = [0, 1, LENGTH_COLUMN]
    heads = heads[np.lexsort(heads[:, key_columns[::-1]].T)]
    other = (heads[1:, key_columns] != heads[:-1, key_columns]).any(axis=1)
    fresh = np.append(True, other) if len(heads) else np.empty(0, np.bool_)
    heads = heads[fresh]
    low = np.searchsorted(heads[:, 0], ledger)
    counts = np.where(front, np.searchsorted(heads[:, 0], ledger, "right") - low, 0)
    offsets = np.append(0, np.cumsum(counts)).astype(np.int32)
    item = tables.HEADERS.value_type
    names = pa.array([*map(str, DIGESTS), None], pa.string())
    digest = names.take(pa.array(heads[:, DIGEST_COLUMN] % len(names)))
    columns = [pa.array(np.ascontiguousarray(heads[:, n])) for n in range(1, HEAD_WIDTH - 1)]
    values = pa.StructArray.from_arrays([*columns, digest], fields=list(item))
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=tables.HEADERS)
