"""Inventories of all bookies, as `bkmeta collect` would write them of made-up ledgers."""

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.data.ledgers import BOOKIES, CHUNK, INSTANCE, PASSWORD, PAYLOAD, Ledgers, chunk, groups, stays
from recovery.codecs import cookie
from recovery.codecs.cookie import Cookie
from recovery.codecs.entry import HEADER_SIZE, master_key
from recovery.dataset import DatasetWriter
from recovery.model import tables
from recovery.model.groups import count, to_arrow
from recovery.model.ids import buckets
from recovery.model.metadata import DIGEST_SIZES, Digest

_KEY: Final = hashlib.sha256(master_key(PASSWORD)).digest()
_SIZE: Final = HEADER_SIZE + DIGEST_SIZES[Digest.CRC32C] + PAYLOAD
_SEEN: Final = datetime(2026, 1, 1, tzinfo=UTC)
_BOOKIE: Final = pa.array(BOOKIES)


def write(folder: Path, ledgers: int) -> None:
    """Write a folder of inventories, one a bookie, of so many ledgers."""
    fill(folder, ledgers, lambda _number, made: (copies(made), tables.DAMAGE.empty_table()))


def fill(folder: Path, ledgers: int, found: Callable[[int, Ledgers], tuple[pa.Table, pa.Table]]) -> None:
    """Write a folder of inventories of what was found, chunk by chunk.

    Args:
        folder: empty.
        ledgers: how many.
        found: number of a chunk and its ledgers → COPIES and DAMAGE of all bookies, in any order.
    """
    with ExitStack() as stack:
        writers = [
            stack.enter_context(DatasetWriter(folder / f"b{number:02d}", "inventory", binding={"bookie": name}))
            for number, name in enumerate(BOOKIES)
        ]
        counted = np.zeros((len(BOOKIES), 3), np.int64)
        largest = -1
        for number in range(-(-ledgers // CHUNK)):
            made = chunk(number, ledgers)
            largest = int(made.ledger[-1])
            rows, damage = found(number, made)
            for bookie, writer in enumerate(writers):
                own, harm = (one.filter(pc.equal(one["bookie"], BOOKIES[bookie])) for one in (rows, damage))
                writer.append("copies", own)
                writer.append("damage", harm)
                counted[bookie] += own.num_rows, np.sum(own["entries"].to_numpy()), harm.num_rows
        for bookie, writer in enumerate(writers):
            writer.append("bookies", bookie_row(BOOKIES[bookie], *counted[bookie].tolist(), largest=largest))
            writer.close(coverage={"bookie": BOOKIES[bookie], "complete": True})


def copies(made: Ledgers) -> pa.Table:
    """Return rows of COPIES of all bookies, in no order."""
    stay = stays(made)
    held, last = groups(stay.position, stay.low, stay.high)
    rows = len(stay.of)
    size = count(*held[1:])
    scope, ledger = np.zeros(rows, np.int64), made.ledger[stay.of]
    # The whole runs are the largest group of each row: all others have one entry.
    whole = np.flatnonzero(held.size > 1)
    header = pa.StructArray.from_arrays(
        [
            pa.array(last),
            pa.array(last - 1),
            pa.array((last + 1) * PAYLOAD),
            _same(_SIZE, pa.int64(), rows),
            _same(str(Digest.CRC32C), pa.string(), rows),
        ],
        fields=list(tables.HEADERS.value_type),
    )
    columns = {
        "bucket": pa.array(buckets(scope, ledger)),
        "scope": pa.array(scope),
        "ledger": pa.array(ledger),
        "bookie": _BOOKIE.take(pa.array(stay.bookie)),
        "incarnation": _same(1, pa.int64(), rows),
        "source": _same("index", pa.string(), rows),
        "part": _same(0, pa.int32(), rows),
        "groups": to_arrow(held, rows),
        "entries": pa.array(np.bincount(held.key, weights=size, minlength=rows).astype(np.int64)),
        "first": pa.array(held.first[np.searchsorted(held.key, np.arange(rows))]),
        "last": pa.array(last),
        "g_first": pa.array(held.first[whole]),
        "g_last": pa.array(held.last[whole]),
        "g_size": pa.array(held.size[whole]),
        "g_period": pa.array(held.period[whole]),
        "g_count": pa.array(np.bincount(held.key, minlength=rows).astype(np.int64)),
        "complete": _same(True, pa.bool_(), rows),  # noqa: FBT003 - a column's value
        "fenced": _same(False, pa.bool_(), rows),  # noqa: FBT003 - as above
        "limbo": _same(False, pa.bool_(), rows),  # noqa: FBT003 - as above
        "key_kind": _same("set", pa.string(), rows),
        "key": _same(_KEY, pa.binary(), rows),
        "explicit_lac": pa.nulls(rows, pa.int64()),
        "lac_record": pa.nulls(rows, pa.binary()),
        "headers": pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32)), header, type=tables.HEADERS),
    }
    return pa.table(columns, schema=tables.COPIES)


def _same(value: object, kind: pa.DataType, rows: int) -> pa.Array:
    return pa.array([value], kind).take(pa.array(np.zeros(rows, np.int64)))


def bookie_row(name: str, ledgers: int, entries: int, damaged: int, *, largest: int) -> pa.Table:
    """Return the row of BOOKIES of a bookie that was running, and of which all folders were seen."""
    row = {
        "bookie": name,
        "incarnation": 1,
        "incarnation_evidence": [],
        "instance_id": INSTANCE,
        "cookie": cookie.encode(identity(name)),
        "version_files": [],
        "storage": "interleaved",
        "mode": "disks",
        "dirty": True,
        "started": _SEEN,
        "ended": _SEEN,
        "complete": True,
        "dirs": [],
        "journals": [],
        "max_ids": [{"scope": 0, "ledger": largest}],
        "ledgers": ledgers,
        "entries": entries,
        "damaged": damaged,
    }
    return pa.Table.from_pylist([row], schema=tables.BOOKIES)


def identity(name: str) -> Cookie:
    """Return the cookie of a bookie with one folder for its journal and one for its ledgers."""
    return Cookie(5, name, ("/data/journal",), ("/data/ledgers",), None, INSTANCE)
