"""Made-up clusters as catalogs, for the impact check."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from recovery.codecs.ledger_record import encode
from recovery.codecs.store import COOKIES
from recovery.dataset import Dataset, DatasetWriter, open_dataset, sort_by_key
from recovery.model import tables
from recovery.model.ids import buckets
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.support.impact_judge import Ledger

AT: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
"""When the store was as the catalogs show it."""


def make_records(
    ledgers: Iterable[Ledger],
    *,
    unreadable: Collection[int] = (),
    why: str = "bad_value: not a record",
    created: Mapping[int, int] | None = None,
) -> pa.Table:
    """Return CATALOG_LEDGERS of ledgers, sorted by key, with the columns that the check reads.

    Args:
        ledgers: each with its own number.
        unreadable: those of them whose record cannot be parsed.
        why: they cannot.
        created: ledger to the transaction that made its record, where that is known.
    """
    made = [ledger for ledger in ledgers if ledger.number not in unreadable]
    number = np.array([*(ledger.number for ledger in made), *unreadable], np.int64)
    blank = [None] * len(unreadable)
    scope = np.zeros(len(number), np.int64)
    segments: list[Any] = [
        [{"first": first, "members": list(members)} for first, members in ledger.segments] for ledger in made
    ]
    columns = {
        "bucket": pa.array(buckets(scope, number)),
        "scope": pa.array(scope),
        "ledger": pa.array(number),
        "raw": pa.array([*map(encode_record, made), *([b""] * len(unreadable))], pa.binary()),
        "version": pa.array(scope),
        "created_txn": pa.array([(created or {}).get(int(ledger)) for ledger in number], pa.int64()),
        "changed_txn": pa.array([(created or {}).get(int(ledger)) for ledger in number], pa.int64()),
        "changed_at": pa.array(
            [AT - timedelta(days=30)] * len(number), tables.CATALOG_LEDGERS.field("changed_at").type
        ),
        "error": pa.array([*([None] * len(made)), *([why] * len(unreadable))], pa.string()),
        "state": pa.array([*(ledger.state for ledger in made), *blank], pa.string()),
        **{
            name: pa.array([*(ledger.quorum[place] for ledger in made), *blank], pa.int32())
            for place, name in enumerate(("ensemble_size", "write_quorum", "ack_quorum"))
        },
        "last_entry": pa.array([*(ledger.last for ledger in made), *blank], pa.int64()),
        "segments": pa.array([*segments, *blank], tables.SEGMENTS),
    }
    schema = tables.CATALOG_LEDGERS
    full = {name: columns.get(name, pa.nulls(len(number), schema.field(name).type)) for name in schema.names}
    return sort_by_key(pa.table(full))


def encode_record(ledger: Ledger) -> bytes:
    """Return a ledger's record as a store has it."""
    segments = tuple(Segment(first, members) for first, members in ledger.segments)
    length = None if ledger.last is None else ledger.last + 1
    state = LedgerState(ledger.state)
    return encode(LedgerMetadata(3, *ledger.quorum, state, ledger.last, length, segments, Digest.CRC32C, b"pw"))


def make_marks(ledgers: Sequence[Ledger]) -> pa.Table:
    """Return CATALOG_NODES with the marks of ledgers."""
    rows = []
    for ledger in ledgers:
        if ledger.marked:
            text = "".join(f'replica: "{bookie}"\n' for bookie in sorted(ledger.marked)) + "ctime: 1700000000000\n"
            path = f"/underreplication/ledgers/0000/0000/0000/{ledger.number:04x}/urL{ledger.number:010d}"
            rows.append({"path": path, "kind": "mark", "raw": text.encode(), "version": 0})
    return pa.Table.from_pylist(rows, schema=tables.CATALOG_NODES)


def write_catalog(
    folder: Path,
    bookies: Iterable[str],
    ledgers: Sequence[Ledger],
    *,
    nodes: Mapping[str, tuple[str, bytes]] | None = None,
    unreadable: Collection[int] = (),
    why: str = "bad_value: not a record",
    created: Mapping[int, int] | None = None,
    gaps: Sequence[str] = (),
    root: str = "present",
) -> Dataset:
    """Write a catalog of a cluster whose bookies all have cookies.

    Args:
        folder: a new one.
        bookies: ids.
        ledgers: with their marks.
        nodes: path to kind and value of others.
        unreadable: ledgers whose record cannot be parsed.
        why: they cannot.
        created: ledger to the transaction that made its record, where that is known.
        gaps: of the capture.
        root: present or missing.
    """
    others = {f"{COOKIES}/{name}": ("cookie", b"cookie") for name in bookies} | dict(nodes or {})
    rows = [{"path": path, "kind": kind, "raw": raw, "version": 0} for path, (kind, raw) in others.items()]
    source = {
        "kind": "zookeeper",
        "uri": "zk://made-up/ledgers",
        "txn": 77,
        "layout": "hierarchical",
        "at": AT,
        "complete": not gaps,
        "root": root,
        "gaps": list(gaps),
    }
    with DatasetWriter(folder, "catalog", binding={}, secret=True) as writer:
        writer.append("ledgers", make_records(ledgers, unreadable=unreadable, why=why, created=created))
        writer.append("nodes", pa.Table.from_pylist(rows, schema=tables.CATALOG_NODES))
        writer.append("nodes", make_marks(ledgers))
        writer.append("sources", pa.Table.from_pylist([source], schema=tables.CATALOG_SOURCES))
        writer.close(coverage={"complete": not gaps})
    return open_dataset(folder, "catalog")
