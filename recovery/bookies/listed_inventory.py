"""Inventories made of a table of one's own: which entries bookies have, where a bookie itself cannot be collected.

    column    Parquet                    JSON lines
    bookie    string: its id             the same
    ledger    an integer, 0 or more      the same
    entries   list<list<int64>>          [[first, last], ...]: each range with both its ends

A table is what somebody says: what it lists counts as held by that bookie, and nothing else follows from it. No row and
no bookie is complete, and without headers no entry proves a length or a digest.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import pyarrow.parquet as pq

from recovery.bookies.wire_results import folder_of
from recovery.collect.disk.folders import hash_incarnation
from recovery.collect.rows.bookies import BookieRow, LifeEvidence, bind_inventory
from recovery.collect.rows.copies import NO_LAC, CopySource, Known, make_copies
from recovery.collect.rows.entry_headers import HEAD_WIDTH
from recovery.dataset import DatasetWriter
from recovery.errors import InputError
from recovery.model.groups import MOST_ENTRIES, KeyedRuns, add_counts, group_runs, union_runs
from recovery.model.ids import LedgerId, is_bookie_id
from recovery.place import DatasetPlace

Ints = npt.NDArray[np.int64]

MODE: Final = "table"
"""How an inventory came about; stored."""
SCHEMA: Final = pa.schema(
    [("bookie", pa.string()), ("ledger", pa.int64()), ("entries", pa.list_(pa.list_(pa.int64())))]
)
_LINES: Final = (".jsonl", ".json", ".ndjson")
_REMEDY: Final = "rows of bookie, ledger, entries, and of these ranges of a first and a last: docs/formats/inventory.md"
_LAST_ENTRY: Final = (1 << 63) - 2
_LEDGERS_AT_ONCE: Final = 1 << 16
_LEAST_BLOCK: Final = 1 << 20
_LARGEST_BLOCK: Final = (1 << 31) - 1
"""Bytes; Arrow counts them in 31 bits."""


@dataclass(frozen=True, slots=True, eq=False)
class _Ranges:
    """Ranges of entries, one element each; the bookie is a number."""

    bookie: Ints
    ledger: Ints
    first: Ints
    last: Ints


def write_listed(table: Path, out: DatasetPlace, now: datetime) -> list[DatasetPlace]:
    """Make an inventory of each bookie that a table names; return their folders.

    Args:
        table: a Parquet file, or JSON lines (`.jsonl`).
        out: the folders are in it; there may be others.
        now: the time, aware.

    Raises:
        InputError: the table cannot be read, or says what cannot be.
        DatasetError: an inventory cannot be written.
    """
    rows = _read(table)
    if not rows.num_rows:
        raise InputError(str(table), "has no rows, so it names no bookie", _REMEDY)
    names, ranges = _check(table, rows)
    order = np.lexsort((ranges.ledger, ranges.bookie))
    bounds = np.searchsorted(ranges.bookie[order], np.arange(len(names) + 1))
    folders: list[DatasetPlace] = []
    for number, name in enumerate(names):
        own = order[bounds[number] : bounds[number + 1]]
        folders.append(out / folder_of(name))
        _write(folders[-1], name, _Ranges(*(column[own] for column in _columns(ranges))), table, now)
    return folders


def _columns(ranges: _Ranges) -> tuple[Ints, Ints, Ints, Ints]:
    return ranges.bookie, ranges.ledger, ranges.first, ranges.last


def _read(table: Path) -> pa.Table:
    """Return the three columns of a table, as the schema has them.

    Raises:
        InputError: it is none.
    """
    try:
        if table.suffix in _LINES:
            options = pyarrow.json.ParseOptions(explicit_schema=SCHEMA, unexpected_field_behavior="error")
            blocks = pyarrow.json.ReadOptions(block_size=_find_block(table))
            rows = pyarrow.json.read_json(table, parse_options=options, read_options=blocks)
        else:
            rows = pq.read_table(table, columns=SCHEMA.names)
        return rows.select(SCHEMA.names).cast(SCHEMA)
    except (pa.ArrowException, KeyError) as error:
        problem = str(error).partition("\n")[0]
        raise InputError(str(table), f"is not a table of entries ({problem})", _REMEDY) from error
    except OSError as error:
        raise InputError(str(table), f"cannot be read ({error.strerror or error})", _REMEDY) from error


def _find_block(table: Path) -> int:
    """Return a size of blocks that the longest line fits into: Arrow takes none that reaches into a third one."""
    with table.open("rb") as lines:
        return min(max(map(len, lines), default=0) + _LEAST_BLOCK, _LARGEST_BLOCK)


def _check(table: Path, rows: pa.Table) -> tuple[Sequence[str], _Ranges]:
    """Return the names of bookies, and the ranges with their bookie's number.

    Raises:
        InputError: a row says what cannot be.
    """
    for column in SCHEMA.names:
        _refuse(table, rows, pc.is_null(rows[column]), f"has no {column}")
    coded = pc.dictionary_encode(rows["bookie"].combine_chunks())
    names = coded.dictionary.to_pylist()
    strange = pa.array([name for name in names if not is_bookie_id(name)], pa.string())
    _refuse(table, rows, pc.is_in(rows["bookie"], value_set=strange), "has no bookie id")
    _refuse(table, rows, pc.less(rows["ledger"], 0), "has no ledger's id")
    entries = rows["entries"].combine_chunks()
    row_of = pc.list_parent_indices(entries).to_numpy(zero_copy_only=False)
    pairs = entries.flatten()
    odd = pc.fill_null(pc.not_equal(pc.list_value_length(pairs), 2), fill_value=True)
    _refuse_ranges(table, row_of, np.asarray(odd.to_numpy(zero_copy_only=False)))
    ends = pairs.flatten()
    _refuse_ranges(table, np.repeat(row_of, 2), np.asarray(ends.is_null().to_numpy(zero_copy_only=False)))
    first, last = ends.to_numpy(zero_copy_only=False).reshape(-1, 2).T.astype(np.int64)
    _refuse_ranges(table, row_of, (first < 0) | (last < first) | (last > _LAST_ENTRY))
    bookie = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    ledger = rows["ledger"].to_numpy()
    return names, _Ranges(bookie[row_of], ledger[row_of], first, last)


def _refuse(table: Path, rows: pa.Table, is_wrong: pa.ChunkedArray, problem: str) -> None:
    wrong = np.flatnonzero(is_wrong.to_numpy())
    if len(wrong):
        raise InputError(f"{table}, row {wrong[0] + 1} of {rows.num_rows}", problem, _REMEDY)


def _refuse_ranges(table: Path, row_of: Ints, is_wrong: npt.NDArray[np.bool_]) -> None:
    wrong = np.flatnonzero(is_wrong)
    if len(wrong):
        raise InputError(f"{table}, row {row_of[wrong[0]] + 1}", "has a range that is none", _REMEDY)


def _write(folder: DatasetPlace, bookie: str, ranges: _Ranges, table: Path, now: datetime) -> None:
    evidence = [LifeEvidence("bookie", bookie), LifeEvidence("table", str(table))]
    number = hash_incarnation([(part.kind, part.value) for part in evidence])
    ledgers = np.unique(ranges.ledger)
    binding = bind_inventory(bookie, number, None, None)
    runs = KeyedRuns(ranges.ledger, ranges.first, ranges.last - ranges.first + 1)
    entries = 0
    with DatasetWriter(folder, "inventory", binding=binding) as writer:
        for share in _cut(ledgers):
            own = (ranges.ledger >= share[0]) & (ranges.ledger <= share[-1])
            groups = group_runs(union_runs(KeyedRuns(*(column[own] for column in runs))))
            rows = make_copies(
                CopySource.WIRE, _know_nothing(share), groups, np.empty((0, HEAD_WIDTH), np.int64), bookie, number
            )
            entries += add_counts(rows["entries"])
            writer.append("copies", rows)
        row = BookieRow(
            bookie=bookie,
            incarnation=number,
            incarnation_evidence=evidence,
            storage="none",
            mode=MODE,
            started=now,
            ended=now,
            max_ids=[LedgerId(0, int(ledgers[-1]))] if len(ledgers) else [],
            ledgers=len(ledgers),
            entries=min(entries, MOST_ENTRIES),
        )
        writer.append("bookies", row.to_table())
        writer.close(
            coverage={**row.to_coverage("bookie", "complete", "mode", "ledgers", "entries"), "table": str(table)}
        )


def _cut(ledgers: Ints) -> Iterator[Ints]:
    for begin in range(0, len(ledgers), _LEDGERS_AT_ONCE):
        yield ledgers[begin : begin + _LEDGERS_AT_ONCE]


def _know_nothing(ledgers: Ints) -> Known:
    """Return that of ledgers nothing is known beside their entries."""
    no = np.zeros(len(ledgers), np.bool_)
    return Known(
        ledger=ledgers,
        complete=no,
        fenced=no,
        limbo=no,
        key=np.full(len(ledgers), -1),
        keys=[],
        lac=np.full(len(ledgers), NO_LAC),
        lac_record=[None] * len(ledgers),
    )
