"""What the nodes of Pulsar's topics, subscriptions and schemas say in a snapshot, in columns, read once.

A record that cannot be read says nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.references import SCHEMAS
from recovery.capture.subtrees import TOPICS, list_captured
from recovery.codecs import managed_ledger
from recovery.codecs.managed_ledger import ManagedLedger
from recovery.dataset import Dataset
from recovery.errors import FormatError

_TABLE: Final = "subtrees"
_CURSORS: Final = pa.schema([("path", pa.string()), ("ledger", pa.int64()), ("entry", pa.int64())])
_LASTS: Final = pa.schema([("path", pa.string()), ("last", pa.int64()), ("is_ended", pa.bool_())])
_OF_TOPICS: Final = "persistent"
"""Name of the node above topics."""
_TOGETHER: Final = 1 << 14
"""Rows that become columns at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class TopicRecords:
    """What the nodes of topics, subscriptions and schemas say.

    Attributes:
        cursors: path and position of each subscription.
        lasts: path of each topic, its last ledger (-1: it has none) and whether it was ended.
        named: every ledger that any of them names, ascending, each once.
        top: path of the node above all topics.
    """

    cursors: pa.Table
    lasts: pa.Table
    named: pa.Array
    top: str = TOPICS


def find_listed(ledgers: pa.ChunkedArray, ascending: npt.NDArray[np.int64]) -> pa.Array:
    """Return which of some ledgers are among others; nothing is hashed, so it costs little for each part of many."""
    if not len(ascending):
        return pa.array(np.zeros(len(ledgers), bool))
    ids = ledgers.to_numpy()
    place = np.minimum(np.searchsorted(ascending, ids), len(ascending) - 1)
    return pa.array(ascending[place] == ids)


def read_nodes(snapshot: Dataset, wanted: pa.Array | None = None) -> Iterator[tuple[str, bytes]]:
    """Yield path and bytes of nodes below `TOPICS`; of some paths, where these are given."""
    for rows in snapshot.batches(_TABLE, ["path", "raw"]):
        chosen = rows.filter(pc.match_substring(rows["path"], f"{TOPICS}/"))
        if wanted is not None:
            chosen = chosen.filter(pc.is_in(chosen["path"], value_set=wanted))
        yield from zip(chosen["path"].to_pylist(), chosen["raw"].to_pylist(), strict=True)


def read_topic_records(snapshot: Dataset) -> TopicRecords:
    """Read a catalog with `TOPICS`.

    Raises:
        DatasetError: a file is gone or damaged.
    """
    cursors, lasts, named = _Rows(_CURSORS), _Rows(_LASTS), _Rows(pa.schema([("ledger", pa.int64())]))
    for path, raw in read_nodes(snapshot):
        try:
            record = managed_ledger.decode(raw)
        except FormatError:
            continue
        if isinstance(record, ManagedLedger):
            ids = [listed.ledger for listed in record.ledgers]
            if path.split("/")[-2] == _OF_TOPICS:
                lasts.add((path, max(ids, default=-1), record.is_ended))
        else:
            ids = [ledger for ledger, _ in record.ledgers]
            if record.position is not None:
                cursors.add((path, *record.position))
        for ledger in ids:
            named.add((ledger,))
    for rows in snapshot.batches(_TABLE, ["path", "raw"]):
        for raw in rows.filter(pc.match_substring(rows["path"], f"{SCHEMAS}/"))["raw"].to_pylist():
            for ledger in _list_schema_ledgers(raw):
                named.add((ledger,))
    ids_named = pc.unique(named.to_table()["ledger"])
    top = next((path for path in list_captured(snapshot) if path.endswith(TOPICS)), TOPICS)
    return TopicRecords(cursors.to_table(), lasts.to_table(), ids_named.take(pc.sort_indices(ids_named)), top)


def _list_schema_ledgers(raw: bytes) -> tuple[int, ...]:
    try:
        return managed_ledger.decode_schema(raw) if raw else ()
    except FormatError:
        return ()


@dataclass(slots=True)
class _Rows:
    """Rows of a schema as they come, in columns."""

    schema: pa.Schema
    _waiting: list[tuple[object, ...]] = field(default_factory=list)
    _tables: list[pa.Table] = field(default_factory=list)

    def add(self, row: tuple[object, ...]) -> None:
        """Take one."""
        self._waiting.append(row)
        if len(self._waiting) >= _TOGETHER:
            self._cut()

    def _cut(self) -> None:
        columns = zip(*self._waiting, strict=True) if self._waiting else [()] * len(self.schema)
        arrays = [pa.array(column, kind.type) for column, kind in zip(columns, self.schema, strict=True)]
        self._tables.append(pa.table(arrays, schema=self.schema))
        self._waiting.clear()

    def to_table(self) -> pa.Table:
        """Return all that came."""
        self._cut()
        return pa.concat_tables(self._tables)


def holds_topics(catalog: Dataset) -> bool:
    """Say whether a capture has a node below Pulsar's topics."""
    below = f"{TOPICS}/"
    return any(pc.any(pc.match_substring(batch["path"], below)).as_py() for batch in catalog.batches(_TABLE, ["path"]))
