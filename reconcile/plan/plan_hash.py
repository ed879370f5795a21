"""The hash of a plan: what a confirmation binds itself to.

    action id    SHA-256 of what an action writes: op, kind, key, expects, acl, value, before, choice, alternatives,
                 guard
    actions      of each bucket the SHA-256 of its sorted ids, each with the action's seq and wave
    settled      of each bucket the SHA-256 of what is said about its ledgers: outcome, reason, reading, holders,
                 alternatives
    hash         SHA-256 of the manifest but for its list of files, and of both hashes of every bucket

The manifest has the binding, the coverage and the counts. So whatever a guard, an edit or a person relies on has a part
in the hash. It depends neither on how the work was cut into tasks nor on Parquet. Fields are written with their lengths
before them: no two rows give the same bytes.

Beside the hash the manifest has both hashes of every bucket (`bucket_hashes`, in no hash itself): who reads one bucket
can tell by them alone that its rows are those that the hash was made of.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recovery.model import tables

VERSION: Final = 3
"""Of what the hash covers; a plan of another version is made again."""
SYSTEM_BUCKET: Final = -1
BUCKETS_END: Final = 1 << 15
"""Behind all buckets: those of ledgers, and those of upper layers' nodes."""
_NO_BUCKET: Final = -2
_BUCKETS: Final = "bucket_hashes"
_NOT_COVERED: Final = frozenset({"tables", "digest", "hash", _BUCKETS})
_WRITES: Final = ("op", "kind", "key", "expects", "acl", "value", "before", "choice", "alternatives", "guard")
_SAYS: Final = ("scope", "ledger", "outcome", "reason", "reading", "holders", "alternatives")


def _field(column: Any) -> Any:  # noqa: ANN401 - an Arrow column
    """Return values as bytes with their length before them; "-" where there is none."""
    if pa.types.is_list(column.type):
        return _list_field(column)
    raw = column if pa.types.is_binary(column.type) else pc.cast(pc.cast(column, pa.string()), pa.binary())
    length = pc.cast(pc.cast(pc.binary_length(raw), pa.string()), pa.binary())
    return pc.fill_null(pc.binary_join_element_wise(length, raw, b":"), b"-")


def _list_field(column: Any) -> Any:  # noqa: ANN401 - an Arrow column
    lists = column.combine_chunks()
    counts = pc.fill_null(pc.list_value_length(lists), 0)
    items = lists.flatten()
    if pa.types.is_struct(items.type):
        # A weight is for people, and a float.
        names = [column_field.name for column_field in items.type if column_field.name != "weight"]
        items = _join_fields([pc.struct_field(items, name) for name in names])
    offsets = pa.array(np.r_[0, np.cumsum(counts.to_numpy())], pa.int32())
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, _field(items)), b"")
    return _field(pc.binary_join_element_wise(_field(counts), joined, b""))


def _join_fields(columns: Iterable[Any]) -> Any:  # noqa: ANN401 - an Arrow column
    return pc.binary_join_element_wise(*(_field(column) for column in columns), b"")


def action_ids(actions: pa.Table) -> pa.Array:
    """Return the SHA-256 of what each action writes, where, what it replaces, and what it could write instead."""
    rows = _join_fields(actions[name] for name in _WRITES)
    return pa.array([hashlib.sha256(row).digest() for row in rows.to_pylist()], pa.binary())


def with_ids(actions: pa.Table) -> pa.Table:
    """Return actions with their ids made again."""
    index = tables.ACTIONS.get_field_index("id")
    return actions.set_column(index, tables.ACTIONS.field(index), action_ids(actions))


def bucket_hashes(actions: pa.Table) -> dict[int, str]:
    """Return, for each bucket that has actions, the SHA-256 of its sorted ids, with their places in the order."""
    columns = ("bucket", "id", "seq", "wave")
    ordered = actions.select(columns).sort_by([(name, "ascending") for name in columns[:-1]])
    return dict(_by_bucket(ordered["bucket"], _join_fields(ordered[name] for name in columns[1:])))


def ledger_hashes(rows: pa.Table) -> dict[int, str]:
    """Return, for each bucket that has ledgers, the SHA-256 of what RECONSTRUCTION says about them."""
    ordered = rows.select(["bucket", *_SAYS]).sort_by([(name, "ascending") for name in tables.KEY_COLUMNS])
    return dict(_by_bucket(ordered["bucket"], _join_fields(ordered[name] for name in _SAYS)))


def _by_bucket(bucket: Any, rows: Any) -> Iterator[tuple[int, str]]:  # noqa: ANN401 - Arrow columns
    values = bucket.to_numpy()
    starts = np.flatnonzero(np.r_[True, values[1:] != values[:-1]]) if len(values) else np.zeros(0, np.int64)
    for low, high in zip(starts.tolist(), [*starts[1:].tolist(), len(values)], strict=False):
        hashed = hashlib.sha256(b"".join(rows.slice(low, high - low).to_pylist()))
        yield int(values[low]), hashed.hexdigest()


@dataclass(frozen=True, slots=True)
class Hashes:
    """Of every bucket of a plan: of its actions, and of what is said about its ledgers."""

    actions: dict[int, str] = field(default_factory=dict)
    settled: dict[int, str] = field(default_factory=dict)

    def add(self, actions: pa.Table, settled: pa.Table) -> None:
        """Take the rows of buckets that nothing was taken of yet."""
        self.actions.update(bucket_hashes(actions))
        self.settled.update(ledger_hashes(settled))

    def sign(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a plan's manifest gets besides: its hash, the version of that, and the hashes of the buckets."""
        buckets = {"actions": self.actions, "settled": self.settled}
        return {
            "hash_version": VERSION,
            _BUCKETS: buckets,
            "hash": plan_hash({**manifest, "hash_version": VERSION}, self),
        }


def read_hashes(manifest: Mapping[str, Any]) -> Hashes | None:
    """Return the hashes of the buckets that a plan's manifest has; None: it has none, or they are not ours."""
    try:
        return Hashes(*(_read_buckets(manifest[_BUCKETS][name]) for name in ("actions", "settled")))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _read_buckets(stored: Mapping[str, str]) -> dict[int, str]:
    return {int(bucket): str(value) for bucket, value in stored.items()}


def plan_hash(manifest: Mapping[str, Any], hashes: Hashes) -> str:
    """Return what a confirmation names."""
    covered = {name: value for name, value in manifest.items() if name not in _NOT_COVERED}
    # As it is read again: keys are texts then.
    plain = json.loads(json.dumps([covered, sorted(hashes.actions.items()), sorted(hashes.settled.items())]))
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class BucketStream:
    """Rows that come in the order of their buckets, given on bucket by bucket; those of no ledger at the end.

    Attributes:
        misplaced: rows of no bucket, or behind rows of a later one.
    """

    def __init__(self) -> None:
        self.misplaced = 0
        self._system: list[pa.Table] = []
        self._last: list[pa.Table] = []
        self._bucket = SYSTEM_BUCKET

    def add(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Take rows; yield those of the buckets that are whole by now."""
        values = pc.fill_null(rows["bucket"], _NO_BUCKET).to_numpy()
        is_system = values == SYSTEM_BUCKET
        if is_system.any():
            self._system.append(rows.filter(pa.array(is_system)))
            rows, values = rows.filter(pa.array(~is_system)), values[~is_system]
        if not len(values):
            return
        earlier = np.maximum.accumulate(np.r_[self._bucket, values])[:-1]
        bad = values < earlier
        self.misplaced += int(bad.sum())
        good = rows.filter(pa.array(~bad))
        if not good.num_rows:
            return
        last = int(good["bucket"][-1].as_py())
        begun = int(np.searchsorted(good["bucket"].to_numpy(), last))
        if last != self._bucket:
            whole = [*self._last, good.slice(0, begun)]
            self._last = []
            yield pa.concat_tables(whole)
            good = good.slice(begun)
        self._last.append(good)
        self._bucket = last

    def rest(self) -> Iterator[pa.Table]:
        """Yield the rows of the last bucket, and those of no ledger."""
        for rows in (self._last, self._system):
            if rows:
                yield pa.concat_tables(rows)
