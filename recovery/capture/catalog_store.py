"""A catalog as the store that it was made from, read-only: what takes a store takes a capture.

Ledgers are found by their bucket, other nodes by their path, those of bkmeta's own root too. Inner nodes of the
ledgers' tree, which a catalog does not keep, are there again, empty. Only the names of children below them need more
than a bucket: they are made from the keys of all ledgers, 48 bytes each, once.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain, pairwise
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backends.errors import ReadOnlyStoreError, UnavailableError
from backends.protocols import CHANGES, KEYS, StorePoint, Versioned, Write
from recovery.codecs.keys import ledger_keys
from recovery.codecs.store import OWN_ROOT, ROOT, Layout, ledger_of
from recovery.dataset import Dataset

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OWN: Final = "own_root"
_SUBTREES: Final = "subtrees"
_STEP: Final = 100_000
"""Changes held at a time."""


class CatalogStore:
    """A catalog as a `backends.protocols.ScannableStore`; every write raises.

    Args:
        dataset: of kind catalog.
        root: key that the ledgers root has in this store, without a slash at its end.
    """

    def __init__(self, dataset: Dataset, root: str) -> None:
        self._dataset = dataset
        self._root = root
        sources = dataset.read("sources").to_pylist()
        self._source: dict[str, Any] = sources[0] if sources else {}
        layout = self._source.get("layout")
        self._layout = Layout(layout) if layout else None
        self._nodes: pa.Table | None = None
        self._names: npt.NDArray[np.bytes_] | None = None
        self._closed = False

    @property
    def uri(self) -> str:
        """Where the catalog is."""
        return f"catalog://{self._dataset.path}"

    @property
    def layout(self) -> Layout | None:
        """Of the store that it was made from; None: it had no root."""
        return self._layout

    def point(self) -> StorePoint:
        """Return the catalog's own point, gaps and notes."""
        self._require_open()
        time = self._source.get("at")
        gaps = self._source.get("gaps") or (["it is not said what was read"] if not self._source else [])
        notes = self._source.get("notes") or []
        return StorePoint(self._source.get("txn"), None if time is None else _ms(time), tuple(gaps), tuple(notes))

    def has_part(self, key: str) -> bool:
        """Say whether what is at a key, and all below it, was captured."""
        tops = (self._root, *self._dataset.manifest["binding"].get("subtrees", ()))
        return any(f"{key}/".startswith(f"{top}/") for top in tops)

    def get(self, key: str) -> Versioned | None:
        """Return one key."""
        self._require_open()
        below = self._below(key)
        if below is None:
            node = self._find_beside(key)
            above = self._present() and (key == ROOT or self._root.startswith(key + "/"))
            return node or (Versioned(b"", 0) if above else None)
        ledger = ledger_of(self._layout, below) if self._layout else None
        if ledger is not None:
            rows = self._dataset.read("ledgers", buckets=range(ledger.bucket, ledger.bucket + 1))
            own = pc.and_(pc.equal(rows["scope"], ledger.scope), pc.equal(rows["ledger"], ledger.ledger))
            return _make_versioned(rows.filter(own))
        nodes = self._all_nodes()
        node = _make_versioned(nodes.filter(pc.equal(nodes["path"], below)))
        if node is None and ((below == ROOT and self._present()) or self._children(below)):
            return Versioned(b"", 0)
        return node

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Versioned | None]]:
        """Yield keys in the given order, without ACLs."""
        for key in keys:
            node = self.get(key)
            yield key, None if node is None else replace(node, acl=None)

    def children(self, key: str) -> list[str] | None:
        """Return the names directly below a key; None if it is absent."""
        self._require_open()
        below = self._below(key)
        if below is None:
            if self.get(key) is None:
                return None
            beside = self._list_beside(key)
            if key == ROOT or self._root.startswith(key + "/"):
                beside.add(self._root[len(key.rstrip("/")) + 1 :].split("/")[0])
            if self._root.rpartition("/")[0] == key.rstrip("/") and self._dataset.rows(_OWN):
                beside.add(self._root.rpartition("/")[2] + OWN_ROOT)
            return sorted(beside)
        names = self._children(below)
        return names if names or self.get(key) is not None else None

    def scan(self, root: str) -> Iterator[pa.RecordBatch]:
        """Yield a key and all below it, as `KEYS`."""
        self._require_open()
        for rows in chain(self._tables(), self._yield_beside()):
            batch = rows.filter(self._is_below(rows["key"], root)).combine_chunks()
            yield from batch.to_batches()

    def history(self, root: str) -> Iterator[pa.RecordBatch]:
        """Yield what happened to ledgers' records, `txn` ascending."""
        self._require_open()
        if self._layout is None:
            return
        txns = [batch["txn"].to_numpy() for batch in self._dataset.batches("history")]
        if not txns:
            return
        ordered = np.sort(np.concatenate(txns))
        edges = [*np.unique(ordered[::_STEP]).tolist(), int(ordered[-1]) + 1]
        for low, high in pairwise(edges):
            parts = []
            for batch in self._dataset.batches("history"):
                wanted = pc.and_(pc.greater_equal(batch["txn"], low), pc.less(batch["txn"], high))
                parts.append(batch.filter(wanted))
            rows = pa.concat_tables(parts).sort_by("txn")
            rows = rows.append_column("key", self._ledger_keys(rows))
            rows = rows.append_column("at_ms", _milliseconds(rows["at"])).select(CHANGES.names).cast(CHANGES)
            yield from rows.filter(self._is_below(rows["key"], root)).combine_chunks().to_batches()

    def write(self, changes: Sequence[Write]) -> list[int]:
        """Refuse."""
        self._refuse(f"{len(changes)} changes were asked for")

    def raise_counter(self, key: str, beyond: int) -> int:
        """Refuse."""
        self._refuse(f"{key} was to be raised beyond {beyond}")

    def close(self) -> None:
        """Close the catalog; what is asked afterwards raises."""
        self._closed = True

    def _refuse(self, change: str) -> NoReturn:
        raise ReadOnlyStoreError(self.uri, change)

    def _require_open(self) -> None:
        if self._closed:
            raise UnavailableError(self.uri, "it was closed")

    def _present(self) -> bool:
        return self._source.get("root") != "missing"

    def _below(self, key: str) -> str | None:
        """Return a key as the catalog has it; None where it is not in the catalog's root."""
        if key == (self._root or ROOT):
            return ROOT
        if self._root and (key + "/").startswith(f"{self._root}{OWN_ROOT}/"):
            return key[len(self._root) :]
        return key[len(self._root) :] if key.startswith(self._root + "/") else None

    def _is_below(self, keys: Any, root: str) -> Any:  # noqa: ANN401 - Arrow columns
        prefix = root.rstrip("/")
        return pc.or_(pc.equal(keys, root), pc.starts_with(keys, prefix + "/"))

    def _ledger_keys(self, rows: pa.Table) -> pa.Array:
        if self._layout is None:
            return pa.array([], pa.string())
        keys = ledger_keys(self._layout, rows["scope"].to_numpy(), rows["ledger"].to_numpy())
        return pc.binary_join_element_wise(self._root, keys, "") if self._root else keys

    def _tables(self) -> Iterator[pa.Table]:
        """Yield all that the catalog has, as `KEYS`."""
        for rows in chain(self._dataset.batches("nodes"), self._dataset.batches(_OWN)):
            paths = rows["path"]
            if self._root:
                named = pc.binary_join_element_wise(self._root, paths, "")
                paths = pc.if_else(pc.equal(paths, ROOT), self._root, named)
            yield _keys(rows, paths)
        for rows in self._dataset.batches("ledgers"):
            yield _keys(rows, self._ledger_keys(rows))

    def _yield_beside(self) -> Iterator[pa.Table]:
        """Yield the nodes of subtrees beside the root, as `KEYS`; they are too many to be kept."""
        for rows in self._dataset.batches(_SUBTREES):
            yield _keys(rows, rows["path"])

    def _find_beside(self, key: str) -> Versioned | None:
        for rows in self._dataset.batches(_SUBTREES):
            node = _make_versioned(rows.filter(pc.equal(rows["path"], key)))
            if node is not None:
                return node
        return None

    def _list_beside(self, key: str) -> set[str]:
        """Return the names directly below a key that no part of the root is."""
        start = key.rstrip("/") + "/"
        names: set[str] = set()
        for rows in self._dataset.batches(_SUBTREES, ["path"]):
            below = rows["path"].filter(pc.starts_with(rows["path"], start))
            names.update(path[len(start) :].split("/")[0] for path in below.to_pylist())
        return names

    def _all_nodes(self) -> pa.Table:
        if self._nodes is None:
            self._nodes = pa.concat_tables([self._dataset.read("nodes"), self._dataset.read(_OWN)])
        return self._nodes

    def _children(self, below: str) -> list[str]:
        """Return the names directly below a key as the catalog has it."""
        names = self._sort_names()
        start = (below.rstrip("/") + "/").encode()
        children = []
        row = int(np.searchsorted(names, start))
        while row < len(names) and (name := bytes(names[row])).startswith(start):
            child = name[len(start) :].split(b"/")[0]
            if child:
                children.append(child.decode())
            # Between a key and what is below it others may stand; then to what is behind that: "0" comes after "/".
            own = bytes(names[row]) == start + child
            row = row + 1 if own else int(np.searchsorted(names, start + child + b"0"))
        return sorted(set(children))

    def _sort_names(self) -> "npt.NDArray[np.bytes_]":
        if self._names is None:
            root = len(self._root)
            columns = [pc.utf8_slice_codeunits(rows["key"], root).cast(pa.binary()) for rows in self._tables()]
            names = [np.array(column.to_pylist(), np.bytes_) for column in columns if len(column)]
            self._names = np.sort(np.concatenate(names)) if names else np.zeros(0, "S1")
        return self._names


def _keys(rows: pa.Table, keys: Any) -> pa.Table:  # noqa: ANN401 - an Arrow column
    columns = {
        "key": keys,
        "value": rows["raw"],
        **{name: rows[name] for name in ("version", "acl", "created_txn", "changed_txn")},
        "created_ms": _milliseconds(rows["created_at"]),
        "changed_ms": _milliseconds(rows["changed_at"]),
        "owner": pc.fill_null(rows["owner"], 0) if "owner" in rows.column_names else _make_nulls(rows, 0),
        "children_created": rows["children_created"] if "owner" in rows.column_names else _make_nulls(rows, None),
    }
    return pa.table(columns, schema=KEYS)


def _make_nulls(rows: pa.Table, value: int | None) -> pa.Array:
    return pa.nulls(rows.num_rows, pa.int64()) if value is None else pa.array(np.full(rows.num_rows, value))


def _milliseconds(times: Any) -> Any:  # noqa: ANN401 - Arrow columns
    return pc.cast(pc.cast(times, pa.timestamp("ms", "UTC"), safe=False), pa.int64())


def _ms(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(milliseconds=1)


def _make_versioned(rows: pa.Table) -> Versioned | None:
    if not rows.num_rows:
        return None
    (row,) = rows.slice(0, 1).to_pylist()
    return Versioned(
        value=row["raw"],
        version=row["version"],
        created_txn=row["created_txn"],
        changed_txn=row["changed_txn"],
        created_ms=None if row["created_at"] is None else _ms(row["created_at"]),
        changed_ms=None if row["changed_at"] is None else _ms(row["changed_at"]),
        owner=row.get("owner") or 0,
        children_created=row.get("children_created"),
        acl=row["acl"],
    )
