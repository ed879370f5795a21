"""A plan that creates the records of made-up ledgers, and the same writes for a client that is not ours.

records.bin   every write in the plan's order: int32 size and key, int32 size and value; big-endian
"""

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from benchmarks.data.inventories import bookie_row, copies
from benchmarks.data.ledgers import BOOKIES, CHUNK, PASSWORD, chunk
from reconcile.plan.actions import Passwords, make_ledger_actions
from reconcile.plan.plan_hash import Hashes, bucket_hashes
from reconcile.rules.holds import HOLD_PASSWORD_SIZE
from recovery.codecs.store import Layout
from recovery.dataset import sort_by_key, write_manifest, write_part
from recovery.infer.prior import Prior, count_shapes
from recovery.infer.reconstruct import InferOptions, reconstruct
from recovery.manifest import Part
from recovery.model import tables

RECORDS: Final = "records.bin"
LAYOUT: Final = Layout.HIERARCHICAL
_SIZE: Final = struct.Struct(">i")


def write(folder: Path, ledgers: int) -> None:
    """Write a plan of so many creates, and its records."""
    passwords = Passwords.from_candidates([PASSWORD])
    found = []
    for number in range(-(-ledgers // CHUNK)):
        rows = copies(chunk(number, ledgers))
        bookies = pa.concat_tables([bookie_row(name, 0, 0, 0, largest=0) for name in BOOKIES])
        prior = Prior.build(count_shapes(rows, bookies))
        options = InferOptions(passwords=passwords.values)
        found.append(reconstruct(rows, bookies, tables.DAMAGE.empty_table(), prior, options))
    every = sort_by_key(pa.concat_tables(found))
    secrets = bytes(HOLD_PASSWORD_SIZE * every.num_rows)
    actions = make_ledger_actions(every, LAYOUT, passwords, secrets)
    parts: dict[str, list[Part]] = {"actions": [write_part(folder, "actions", "buckets", [actions], secret=True)]}
    for name in ("findings", "reconstruction"):
        parts[name] = [write_part(folder, name, "buckets", [tables.PLAN[name].empty_table()], secret=True)]
    hashes = Hashes(bucket_hashes(actions))
    extra: dict[str, object] = {"counts": {}, "reasons": {}}
    write_manifest(folder, "plan", parts, binding={}, coverage={}, secret=True, extra=extra, sign=hashes.sign)
    write_records(actions.to_batches(), folder / RECORDS)


def write_records(actions: Iterable[pa.RecordBatch | pa.Table], path: Path) -> None:
    """Write what actions of a plan create to a file for a client that is not ours."""
    with path.open("wb") as sink:
        for key, value in _writes(actions):
            sink.write(_SIZE.pack(len(key)) + key + _SIZE.pack(len(value)) + value)


def _writes(actions: Iterable[pa.RecordBatch | pa.Table]) -> Iterator[tuple[bytes, bytes]]:
    for batch in actions:
        keys, values = (batch.column(name).to_pylist() for name in ("key", "value"))
        yield from ((key.encode(), value) for key, value in zip(keys, values, strict=True))
