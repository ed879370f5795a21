"""The last state of each key: from all keys at one point, and what was changed since. Columns in, columns out.

Keys are parted by their last characters into files beside other temporary ones, and each part is sorted on its own: the
memory is that of a part, whatever the number of keys and changes.
"""

import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backends.protocols import KEYS

_LEFT, _RIGHT, _BOTH = "left", "right", "both"
_BASE, _CREATED, _CHANGED, _DELETED = "base", "created", "changed", "deleted"
STEPS: Final = pa.schema(
    [
        pa.field("order", pa.int64(), nullable=False),
        pa.field("op", pa.string(), nullable=False),  # of BACKUP_CHANGES, or base: the key as the base has it
        *(field.with_nullable(field.name != "key") for field in KEYS),
    ]
)
"""What becomes of keys, step by step; null: as it was before."""
_PARTS: Final = 64
_FEW: Final = 1 << 18
"""Steps that are sorted at once, without files."""
Ints = npt.NDArray[np.int64]


def fold_states(
    base: Iterable[pa.RecordBatch], changes: Iterable[pa.Table], *, at_once: int = _FEW
) -> Iterator[pa.RecordBatch]:
    """Yield the keys that are there after all changes, as `KEYS`, each once, in no particular order.

    Args:
        base: `KEYS`.
        changes: BACKUP_CHANGES in the order in which they happened.
        at_once: steps that are sorted without files.
    """
    steps = chain((_begin(batch, _BASE, -1) for batch in base), _follow(changes))
    for part in _part(steps, at_once):
        yield from _take_last(part)


def compare_states(left: Iterable[pa.RecordBatch], right: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the keys in which two states differ: `key`, and `side`: left or right has it alone, both differ.

    Args:
        left: `KEYS`, each key once.
        right: the same.
    """
    sides = chain((_begin(batch, _LEFT, 0) for batch in left), (_begin(batch, _RIGHT, 1) for batch in right))
    for part in _part(sides, _FEW):
        yield _find_differences(part)


def _find_differences(rows: pa.Table) -> pa.Table:
    rows = rows.sort_by([("key", "ascending"), ("order", "ascending")]).combine_chunks()
    key, side = rows["key"].combine_chunks(), rows["op"].combine_chunks()
    is_pair = np.zeros(len(key), np.bool_)
    is_pair[1:] = pc.equal(key[1:], key[:-1]).to_numpy(zero_copy_only=False) if len(key) else False
    is_same = np.ones(len(key), np.bool_)
    for name in KEYS.names:
        column = rows[name].combine_chunks()
        below, above = column[1:], column[:-1]
        equal = pc.fill_null(pc.equal(below, above), fill_value=False)
        equal = pc.or_(equal, pc.and_(below.is_null(), above.is_null()))
        is_same[1:] &= equal.to_numpy(zero_copy_only=False)
    has_pair = is_pair.copy()
    has_pair[:-1] |= is_pair[1:]
    differs = np.flatnonzero((is_pair & ~is_same) | ~has_pair)
    sides = pc.if_else(pa.array(is_pair[differs]), _BOTH, side.take(pa.array(differs)))
    return pa.table({"key": key.take(pa.array(differs)), "side": sides})


def _part(steps: Iterable[pa.Table], at_once: int) -> Iterator[pa.Table]:
    """Yield all steps in parts, those of a key in one; a few in one part."""
    steps = iter(steps)
    waiting: list[pa.Table] = []
    rows = 0
    for table in steps:
        waiting.append(table)
        rows += table.num_rows
        if rows > at_once:
            break
    else:
        if rows:
            yield pa.concat_tables(waiting)
        return
    with tempfile.TemporaryDirectory(prefix="bkmeta-states-") as folder:
        for part in _part_steps(chain(_drain(waiting), steps), Path(folder)):
            yield pq.read_table(part, use_threads=False)
            part.unlink()


def _drain(tables: list[pa.Table]) -> Iterator[pa.Table]:
    while tables:
        yield tables.pop(0)


def _part_steps(steps: Iterable[pa.Table], folder: Path) -> list[Path]:
    paths = [folder / f"{number}.parquet" for number in range(_PARTS)]
    writers = [pq.ParquetWriter(path, STEPS, compression="lz4") for path in paths]
    rows_of: list[list[pa.Table]] = [[] for _ in paths]
    rows = [0] * _PARTS

    def write(number: int) -> None:
        writers[number].write_table(pa.concat_tables(rows_of[number]))
        rows_of[number], rows[number] = [], 0

    for table in steps:
        part = _number_parts(table["key"].combine_chunks())
        order = np.argsort(part, kind="stable")
        sorted_steps = table.take(pa.array(order))
        edges = np.searchsorted(part[order], np.arange(_PARTS + 1))
        for number in range(_PARTS):
            count = int(edges[number + 1] - edges[number])
            if count:
                rows_of[number].append(sorted_steps.slice(int(edges[number]), count))
                rows[number] += count
                if rows[number] > _FEW // _PARTS:
                    write(number)
    for number, writer in enumerate(writers):
        if rows_of[number]:
            write(number)
        writer.close()
    return paths


def _number_parts(keys: pa.Array) -> Ints:
    """Return the part of each key: by its last two bytes and its length."""
    raw = keys.cast(pa.binary())
    lengths = pc.binary_length(raw).to_numpy(zero_copy_only=False).astype(np.int64)
    _, offsets, data = raw.buffers()
    ends = np.frombuffer(offsets, np.int32, len(raw) + 1, raw.offset * 4)[1:].astype(np.int64)
    letters = np.frombuffer(data, np.uint8).astype(np.int64) if data is not None else np.zeros(1, np.int64)
    last = np.where(lengths > 0, letters[np.maximum(ends - 1, 0)], 0)
    second_last = np.where(lengths > 1, letters[np.maximum(ends - 2, 0)], 0)
    numbers: Ints = (last * 31 + second_last * 7 + lengths) % _PARTS
    return numbers


def _begin(batch: pa.RecordBatch, op: str, order: int) -> pa.Table:
    rows = pa.Table.from_batches([batch])
    rows = rows.append_column("order", pa.array(np.full(rows.num_rows, order)))
    rows = rows.append_column("op", pa.repeat(op, rows.num_rows))
    return rows.select(STEPS.names).cast(STEPS)


def _follow(changes: Iterable[pa.Table]) -> Iterator[pa.Table]:
    order = 0
    for rows in changes:
        count = rows.num_rows
        if not count:
            continue
        is_value = pc.is_in(rows["op"], value_set=pa.array([_CREATED, _CHANGED]))
        is_created = pc.equal(rows["op"], _CREATED)
        columns = {
            "order": pa.array(np.arange(order, order + count)),
            "op": rows["op"],
            "key": rows["path"],
            "value": rows["after"],
            **{name: rows[name] for name in ("version", "acl", "owner", "children_created")},
            "created_txn": pc.coalesce(rows["created_txn"], pc.if_else(is_created, rows["txn"], _null(pa.int64()))),
            "changed_txn": pc.if_else(is_value, rows["txn"], _null(pa.int64())),
            "created_ms": _to_ms(rows["created_at"]),
            "changed_ms": pc.if_else(is_value, _to_ms(rows["at"]), _null(pa.int64())),
        }
        order += count
        yield pa.table({name: columns[name] for name in STEPS.names}).cast(STEPS)


def _null(kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(None, kind)


def _to_ms(times: Any) -> Any:  # noqa: ANN401 - Arrow columns
    return times.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())


def _take_last(steps: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield the keys that are there after the last step of each."""
    steps = steps.sort_by([("key", "ascending"), ("order", "ascending")]).combine_chunks()
    numbers = np.arange(steps.num_rows)
    key = steps["key"].combine_chunks()
    is_other = np.ones(len(key), np.bool_)
    is_other[1:] = pc.not_equal(key[1:], key[:-1]).to_numpy(zero_copy_only=False)
    op = steps["op"].combine_chunks()
    is_deleted = pc.equal(op, _DELETED).to_numpy(zero_copy_only=False)
    begins = is_other | pc.is_in(op, value_set=pa.array([_BASE, _CREATED])).to_numpy(zero_copy_only=False)
    begins[1:] |= is_deleted[:-1]
    life = np.maximum.accumulate(np.where(begins, numbers, 0))
    is_last = np.ones(len(key), np.bool_)
    is_last[:-1] = is_other[1:]
    rows = np.flatnonzero(is_last & ~is_deleted)
    columns = {"key": key.take(pa.array(rows))}
    for name in KEYS.names:
        if name == "key":
            continue
        column = steps[name].combine_chunks()
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        newest = np.maximum.accumulate(np.where(valid, numbers, -1))[rows]
        columns[name] = column.take(pa.array(newest, mask=newest < life[rows]))
    columns["value"] = pc.fill_null(columns["value"], b"")
    for name in ("version", "owner"):
        columns[name] = pc.fill_null(columns[name], 0)
    yield from pa.table({name: columns[name] for name in KEYS.names}).cast(KEYS).to_batches()
