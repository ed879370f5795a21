"""A backup as a store that shows one point in time, and remembers all that it holds; nothing is written to it.

What is scanned is made of a base and the changes behind it, in bounded memory. Single keys are looked up the same way,
once for all of them: the point is kept as a catalog beside other temporary files.
"""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from backends.errors import ReadOnlyStoreError, UnavailableError
from backends.protocols import CHANGES, KEYS, StorePoint, Versioned, Write
from recovery.backup.chain import Backup
from recovery.backup.last_states import fold_states
from recovery.backup.manifest import SegmentLink, list_windows
from recovery.backup.point import ShownPoint, choose_point, read_until
from recovery.capture.catalog_store import CatalogStore
from recovery.capture.live import capture
from recovery.codecs.store import OWN_ROOT, ROOT, Layout, places
from recovery.codecs.store_kind import kind_of
from recovery.dataset import DatasetWriter, open_dataset

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_VALUES: Final = ("created", "changed", "deleted")


class BackupStore:
    """A backup as a `backends.protocols.ScannableStore`; every write raises.

    Args:
        backup: opened.
        moment: the point in time, as `recovery.backup.point` takes it; None: the last one.

    Raises:
        InputError: the backup does not reach that point.
    """

    def __init__(self, backup: Backup, moment: str | None = None) -> None:
        self._backup = backup
        self._shown = choose_point(backup, moment)
        self._gaps: tuple[str, ...] | None = None
        self._catalog: CatalogStore | None = None
        self._found: dict[str, Versioned | None] = {}
        self._stack = ExitStack()
        self._closed = False

    @property
    def uri(self) -> str:
        """Where the backup is."""
        return f"backup:{self._backup.place}"

    @property
    def root(self) -> str:
        """Key of the ledgers root."""
        return str(self._backup.manifest.binding.get("root", ""))

    @property
    def layout(self) -> Layout | None:
        """Of the ledgers; None: it is not known."""
        layout = self._backup.manifest.binding.get("layout")
        return Layout(layout) if layout else None

    @property
    def shown(self) -> ShownPoint:
        """The point that is shown, and what it is made of."""
        return self._shown

    def point(self) -> StorePoint:
        """Return the point, and as notes from where on history is remembered, and what is missing of it."""
        self._require_open()
        manifest, shown = self._backup.manifest, self._shown
        notes = list(shown.notes)
        windows = list(list_windows(manifest))
        notes.append(f"a backup, followed by {manifest.binding.get('means')}; history begins at {windows[0][1]:#x}")
        notes += [
            f"history has a gap from {gap.after:#x} to {gap.until:#x}: {gap.why}"
            for gap in manifest.gaps
            if gap.after < shown.txn
        ]
        if self._gaps is None:
            with self._backup.open_base(shown.base) as catalog:
                self._gaps = CatalogStore(catalog, self.root).point().gaps
        return StorePoint(shown.txn, shown.at_ms, self._gaps, tuple(notes))

    def scan(self, root: str) -> Iterator[pa.RecordBatch]:
        """Yield a key and all below it, as `KEYS`."""
        self._require_open()
        with self._backup.open_base(self._shown.base) as catalog:
            base = CatalogStore(catalog, self.root).scan(root)
            changes = (_select_below(rows, rows["path"], root) for rows in read_until(self._backup, self._shown))
            yield from fold_states(base, changes)

    def history(self, root: str) -> Iterator[pa.RecordBatch]:
        """Yield what happened up to the point, as `CHANGES`; where the store keeps no times, when it was received."""
        self._require_open()
        names = ["path", "txn", "at", "received_at", "session", "op", "before", "after"]
        # A lease is not who made a change.
        has_sessions = kind_of(self.layout).keeps_times
        for rows in self._backup.read_changes(self._list_history(), names):
            changes = _select_below(rows, rows["path"], root)
            wanted = pc.and_(
                pc.less_equal(changes["txn"], self._shown.txn), pc.is_in(changes["op"], value_set=pa.array(_VALUES))
            )
            changes = changes.filter(wanted)
            times = pc.coalesce(changes["at"], changes["received_at"]).cast(pa.timestamp("ms", "UTC"), safe=False)
            columns = {
                "key": changes["path"],
                "txn": changes["txn"],
                "at_ms": times.cast(pa.int64()),
                "session": changes["session"] if has_sessions else pa.nulls(changes.num_rows, pa.int64()),
                **{name: changes[name] for name in ("op", "before", "after")},
            }
            made = pa.table({name: columns[name] for name in CHANGES.names}).cast(CHANGES)
            yield from made.combine_chunks().to_batches()

    def _list_history(self) -> list[SegmentLink]:
        return [link for link in self._backup.manifest.segments if link.after < self._shown.txn]

    def has_part(self, key: str) -> bool:
        """Say whether what is at a key, and all below it, is followed."""
        return any(f"{key}/".startswith(f"{top}/") for top in self._backup.manifest.binding["tops"])

    def get(self, key: str) -> Versioned | None:
        """Return one key."""
        self._require_open()
        if self._catalog is not None:
            return self._catalog.get(key)
        if key not in self._found:
            self._find(key)
        return self._found[key]

    def _find(self, key: str) -> None:
        """Look a key up without a catalog, and what every reader asks for first with it."""
        own = places(self.layout)
        keys = [self.root or ROOT, self.root + own.layout, self.root + own.instance_id, key]
        wanted = pa.array(list(dict.fromkeys(keys)))
        with self._backup.open_base(self._shown.base) as catalog:
            base = CatalogStore(catalog, self.root)
            nodes = {name: base.get(name) for name in keys}
        begun = pa.RecordBatch.from_pylist(
            [_as_row(name, node) for name, node in nodes.items() if node is not None], schema=KEYS
        )
        steps = (
            rows.filter(pc.is_in(rows["path"], value_set=wanted)) for rows in read_until(self._backup, self._shown)
        )
        self._found |= dict.fromkeys(keys)
        for batch in fold_states([begun], steps):
            for row in batch.to_pylist():
                name = row.pop("key")
                self._found[name] = Versioned(**row)

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Versioned | None]]:
        """Yield keys in the given order, without ACLs."""
        return self._open_catalog().get_many(keys)

    def children(self, key: str) -> list[str] | None:
        """Return the names directly below a key; None if it is absent."""
        return self._open_catalog().children(key)

    def write(self, changes: Sequence[Write]) -> list[int]:
        """Refuse."""
        self._refuse(f"{len(changes)} changes were asked for")

    def raise_counter(self, key: str, beyond: int) -> int:
        """Refuse."""
        self._refuse(f"{key} was to be raised beyond {beyond}")

    def close(self) -> None:
        """Close it, and remove what was kept of it here."""
        self._closed = True
        self._stack.close()

    def _open_catalog(self) -> CatalogStore:
        self._require_open()
        if self._catalog is None:
            folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="bkmeta-point-"))) / "catalog"
            with DatasetWriter(folder, "catalog", binding={"root": self.root}, secret=True) as out:
                subtrees = [top for top in self._backup.manifest.binding["tops"] if not self._is_own(top)]
                clock = lambda: _EPOCH + timedelta(milliseconds=self._shown.at_ms)  # noqa: E731 - one value
                capture(self, self.root, self.layout, out, clock=clock, with_history=False, subtrees=subtrees)
            self._catalog = CatalogStore(open_dataset(folder, "catalog"), self.root)
        return self._catalog

    def _is_own(self, top: str) -> bool:
        return top in (self.root, self.root + OWN_ROOT)

    def _refuse(self, change: str) -> NoReturn:
        raise ReadOnlyStoreError(self.uri, change)

    def _require_open(self) -> None:
        if self._closed:
            raise UnavailableError(self.uri, "it was closed")


def _as_row(key: str, node: Versioned) -> dict[str, object]:
    return {"key": key, **{name: getattr(node, name) for name in KEYS.names if name != "key"}}


def _select_below(rows: pa.Table, keys: pa.ChunkedArray, root: str) -> pa.Table:
    prefix = root.rstrip("/")
    return rows.filter(pc.or_(pc.equal(keys, root), pc.starts_with(keys, prefix + "/")))
