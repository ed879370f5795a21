"""Any metadata store to a catalog: every ledger's record, every other node below the ledgers root, and our own root.

Ledgers are found by listing, level by level, as the layout says; what is in the ledgers' tree and is not exactly a
ledger's key becomes a node of kind "other", with all below it. The empty inner nodes of the ledgers' tree are not kept.

A live store changes while it is read. Whatever was there from the first read to the last is in the catalog, unless a
gap says otherwise; a ledger that was made or removed meanwhile may be in it or not, and the catalog says between which
transactions that was. A store that shows all its keys at one point in time is read in bulk instead (`scan`),
with its history.

No listing is believed alone: `recovery.capture.ledger_tree` lists folders again, and a folder that nobody can list is a
gap. Ledgers that somebody else knows of, such as bookies, are read by their keys where no listing named them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from backends.errors import AccessDeniedError
from backends.protocols import LiveStore, MetadataStore, ScannableStore, Versioned, parse_acl
from recovery.capture import scan
from recovery.capture.ledger_tree import LISTINGS_IN_FLIGHT, MOST_LISTINGS, LedgerTree, TreePiece, sort_root_names
from recovery.capture.listed_ledgers import ListedLedgers, have_folders
from recovery.capture.subtrees import copy_subtrees
from recovery.capture.summary import CaptureSummary, choose_layout, close_catalog
from recovery.codecs.keys import kinds_of, ledger_keys, ledgers_of
from recovery.codecs.ledger_metadata import decode_columns
from recovery.codecs.store import (
    INSTANCE_ID,
    LAYOUT,
    MARKS,
    OWN_ROOT,
    ROOT,
    SCOPED,
    SCOPED_MARKS,
    Layout,
    decode_instance_id,
    find_placeless,
    kind_of,
)
from recovery.dataset import DatasetWriter
from recovery.errors import FormatError
from recovery.model import tables
from recovery.model.ids import buckets

_BATCH: Final = 8_192
"""Rows read and written at a time."""
_OWN_BATCH: Final = 4
"""Nodes of our own root, half a MiB each, that are read at a time."""
_GAPS: Final = 1_000
"""Gaps that are named one by one; more are counted."""

_HIDDEN: Final = ":x"
"""End of a digest's name as a server shows it to who may not change an ACL."""
Ints = npt.NDArray[np.int64]
_CHILDLESS: Final = frozenset({"layout", "instance_id", "cookie", "registration", "mark", "lock"})


def capture(
    store: MetadataStore,
    root: str,
    layout: Layout | None,
    out: DatasetWriter,
    *,
    clock: Callable[[], datetime],
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    known: Iterable[pa.Table] = (),
    with_rights: bool = True,
    with_own_root: bool = True,
    with_history: bool = True,
    subtrees: Sequence[str] = (),
) -> CaptureSummary:
    """Read a store into a catalog, and close it.

    A record that cannot be parsed is a row with its error. A root that does not exist is stated, with no rows. Memory
    does not grow with the number of ledgers.

    Args:
        store: only read.
        root: key of the ledgers root.
        layout: None: what LAYOUT says.
        out: a catalog; the records hold passwords, so it should be secret.
        clock: the clock.
        progress: called with how many ledgers are read, and how many there may be: an estimate until the end.
        known: scope and ledger of ledgers that somebody knows of, perhaps repeatedly, best bucket range by bucket
            range: of a live store, those that no listing named are asked for one by one, where their folder is there.
        with_rights: the ACLs of ledgers, too, which cost a live store more than all else.
        with_own_root: bkmeta's own root, too: who looks only does not need it.
        with_history: what a store remembers of keys, too, where it remembers anything.
        subtrees: keys of subtrees beside the ledgers root that are read, too; before the ledgers, so that what their
            records name was made before it is searched for.

    Raises:
        InputError: no layout was named and LAYOUT names none; or the two contradict each other.
        UnavailableError: the store stopped answering; there is no catalog then.
        AccessDeniedError: the root itself may not be listed, or LAYOUT not read and no layout was named.
    """
    started = clock()
    if isinstance(store, ScannableStore):
        gaps: list[str] = []
        copy_subtrees(store, subtrees, out, lambda _key, reason: gaps.append(reason))
        return scan.capture_scan(
            store, root.rstrip("/"), layout, out, started, progress, gaps,
            with_own_root=with_own_root, with_history=with_history,
        )  # fmt: skip
    with ExitStack() as ending:
        pool = ThreadPoolExecutor(LISTINGS_IN_FLIGHT, thread_name_prefix="capture")
        ending.callback(pool.shutdown, cancel_futures=True)
        run = _Run(store, root.rstrip("/"), out, pool, progress, with_rights=with_rights, with_own_root=with_own_root)
        return run.run(layout, started, known, subtrees)


@dataclass(frozen=True, slots=True)
class _Reading:
    """Ledgers whose records were sent for, with their keys, and the answers that will come."""

    keys: list[str]
    scope: Ints
    ledger: Ints
    values: Future[list[tuple[str, Versioned | None]]]
    acls: Future[dict[str, str]]


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


class _Run:
    """One capture in progress; keys are below the root."""

    def __init__(
        self,
        store: MetadataStore,
        prefix: str,
        out: DatasetWriter,
        pool: ThreadPoolExecutor,
        progress: Callable[[int, int], None],
        *,
        with_rights: bool,
        with_own_root: bool,
    ) -> None:
        self._with_own_root = with_own_root
        self._store = store
        self._live = store if isinstance(store, LiveStore) else None
        self._rights = self._live if with_rights else None
        self._prefix = prefix
        self._out = out
        self._pool = pool
        self._tree = LedgerTree(
            store, prefix, pool, lambda key, reason: self._add_gap(key, str(reason)), most_listings=MOST_LISTINGS
        )
        self._key = self._tree.store_key
        self._progress = progress
        self._gaps: list[str] = []
        self._more_gaps = 0
        self._txn: int | None = None
        self._since: int | None = None
        self._ledgers = 0
        self._unparsable = 0
        self._nodes = 0
        self._vanished = 0
        self._hidden = 0
        self._fraction = 0.0
        self._seen: ListedLedgers | None = None
        self._shown: dict[str, bool] = {}

    def run(
        self, layout: Layout | None, started: datetime, known: Iterable[pa.Table], subtrees: Sequence[str]
    ) -> CaptureSummary:
        """Capture everything, and close the catalog."""
        if self._rights is not None:
            with suppress(AccessDeniedError):
                list(self._rights.get_acls([self._key(ROOT)]))  # opens what it needs: that is a transaction, too
        if self._live is not None:
            self._since = self._live.latest_txn()
        copy_subtrees(self._store, subtrees, self._out, self._add_gap)
        known = iter(known)
        first = next(known, None)
        self._seen = None if first is None else ListedLedgers()
        names = self._store.children(self._key(ROOT))
        instance_id = None
        if names is not None:
            layout = self._read_layout(layout, present="LAYOUT" in names)
            instance_id = self._read_instance_id() if "INSTANCEID" in names else None
            self._write_everything(layout)
            if first is not None and self._seen is not None:
                self._read_unlisted(layout, self._seen, chain([first], known))
        if self._prefix and self._with_own_root:
            self._write_own_root()
        if self._live is not None:
            self._txn = self._live.latest_txn()
        gaps = (*self._gaps, f"and {self._more_gaps} more") if self._more_gaps else tuple(self._gaps)
        summary = CaptureSummary(
            layout=None if layout is None else str(layout),
            instance_id=instance_id,
            root="missing" if names is None else "present",
            complete=not gaps,
            gaps=gaps,
            ledgers=self._ledgers,
            unparsable=self._unparsable,
            nodes=self._nodes,
            subtree_nodes=self._out.rows["subtrees"],
            vanished=self._vanished,
            changes=0,
            txn=self._txn,
            since_txn=self._since,
            at=started,
            notes=tuple(self._make_notes()),
        )
        self._progress(self._ledgers, self._ledgers)
        close_catalog(self._out, summary, self._store.uri, self._prefix)
        return summary

    def _make_notes(self) -> Iterator[str]:
        if self._tree.changed:
            yield f"{_count(self._tree.changed, 'folder')} changed while being listed and were listed again"
        if self._vanished:
            yield f"{_count(self._vanished, 'ledger')} were removed between being listed and being read"
        if self._live is not None and self._rights is None:
            yield "the ACLs of ledgers were not asked for"
        if self._hidden:
            yield (
                f"the ACLs of {_count(self._hidden, 'record')} are not in it: they may not be read, or their digests "
                "are shown only to who may change them (BKMETA_ZK_AUTH)"
            )

    def _add_gap(self, key: str, reason: str) -> None:
        if len(self._gaps) < _GAPS:
            self._gaps.append(f"{key}: {reason}")
        else:
            self._more_gaps += 1

    def _read_layout(self, named: Layout | None, *, present: bool) -> Layout:
        key = self._key(LAYOUT)
        try:
            node = self._store.get(key) if present else None
        except AccessDeniedError:
            # A gap when the nodes are read; without a name there is nothing to go by.
            if named is None:
                raise
            return named
        return choose_layout(None if node is None else node.value, key, named)

    def _read_instance_id(self) -> str | None:
        try:
            node = self._store.get(self._key(INSTANCE_ID))
            return decode_instance_id(node.value) if node else None
        except (FormatError, AccessDeniedError):
            return None

    def _write_everything(self, layout: Layout) -> None:
        names = sort_root_names(layout, self._tree.list_root())
        if SCOPED in names.folders:
            self._write_nodes([SCOPED])
        self._write_tree([ROOT, *names.rest])
        self._write_ledgers(layout, self._tree.walk(layout, names))

    # Ledgers

    def _write_ledgers(self, layout: Layout, pieces: Iterable[TreePiece]) -> None:
        """Write the ledgers among the keys of a tree, and what else is there."""
        keys: list[str] = []
        strays: list[str] = []
        waiting: _Reading | None = None  # one batch is on its way while the one before it is parsed and written
        for piece in chain(pieces, [None]):
            keys += piece.keys if piece is not None else ()
            self._fraction += piece.share if piece is not None else 0.0
            while len(keys) >= _BATCH or (piece is None and keys):
                reading = self._begin_reading(layout, keys[:_BATCH], strays)
                del keys[:_BATCH]
                self._write_records(waiting)
                waiting = reading
            if len(strays) >= _BATCH:
                self._write_tree(strays)
                strays.clear()
        self._write_records(waiting)
        self._write_tree(strays)

    def _begin_reading(self, layout: Layout, keys: list[str], strays: list[str]) -> "_Reading":
        """Send for the records of the ledgers among keys; the other keys are added to strays."""
        ledgers = ledgers_of(layout, pa.array(keys, pa.string()))
        is_stray = np.ones(len(keys), np.bool_)
        is_stray[ledgers.rows] = False
        strays += [keys[row] for row in np.flatnonzero(is_stray)]
        ledger_keys = [keys[row] for row in ledgers.rows]
        values = self._pool.submit(lambda: list(self._read(ledger_keys)))
        return _Reading(
            ledger_keys, ledgers.scope, ledgers.ledger, values, self._pool.submit(self._read_acls, ledger_keys)
        )

    def _write_records(self, reading: "_Reading | None") -> None:
        if reading is None:
            return
        row_of = {key: row for row, key in enumerate(reading.keys)}
        nodes = {row_of[key]: node for key, node in reading.values.result()}
        present = [row for row, node in nodes.items() if node is not None]
        self._vanished += len(nodes) - len(present)
        self._write_rows(
            [reading.keys[row] for row in present],
            reading.scope[present],
            reading.ledger[present],
            [node for node in nodes.values() if node is not None],
            reading.acls,
        )

    def _write_rows(
        self, keys: list[str], scope: Ints, ledger: Ints, nodes: Sequence[Versioned], acls: Future[dict[str, str]]
    ) -> None:
        if not nodes:
            return
        if self._seen is not None:
            self._seen.add(scope, ledger)
        raws = pa.array([node.value for node in nodes], pa.binary())
        parsed = decode_columns(raws)
        shown = self._filter_shown(keys, acls.result())
        columns = {
            "bucket": pa.array(buckets(scope, ledger)),
            "scope": pa.array(scope),
            "ledger": pa.array(ledger),
            "raw": raws,
            **self._stamp_columns(nodes),
            **({} if self._live is None else {"acl": pa.array(shown, pa.string())}),
            **{name: parsed[name] for name in parsed.schema.names},
        }
        self._out.append("ledgers", pa.table(columns, schema=tables.CATALOG_LEDGERS))
        self._ledgers += len(nodes)
        self._unparsable += len(nodes) - parsed["error"].null_count
        self._progress(self._ledgers, max(self._ledgers + 1, round(self._ledgers / max(self._fraction, 1e-9))))

    def _read_acls(self, keys: list[str]) -> dict[str, str]:
        """Return the ACLs of what is at keys, as far as they may be read."""
        if self._rights is None:
            return {}
        acls: dict[str, str] = {}
        answered = 0
        try:
            for _, acl in self._rights.get_acls([self._key(key) for key in keys]):
                if acl is not None:
                    acls[keys[answered]] = acl.text
                answered += 1
        except AccessDeniedError:
            # What is behind a refusal is lost with it: the rest one by one.
            for key in keys[answered:]:
                with suppress(AccessDeniedError):
                    node = self._store.get(self._key(key))
                    if node is not None and node.acl is not None:
                        acls[key] = node.acl
        return acls

    def _filter_shown(self, keys: list[str], acls: Mapping[str, str]) -> list[str | None]:
        """Return the ACLs of keys; None where one may not be read, or a digest in it is hidden."""
        shown: list[str | None] = []
        for key in keys:
            acl = acls.get(key)
            is_known = acl is not None and self._is_shown(acl)
            self._hidden += self._rights is not None and not is_known
            shown.append(acl if is_known else None)
        return shown

    def _is_shown(self, acl: str) -> bool:
        shown = self._shown.get(acl)
        if shown is None:
            shown = self._shown[acl] = all(
                entry.scheme != "digest" or not entry.name.endswith(_HIDDEN) for entry in parse_acl(acl)
            )
        return shown

    def _read_unlisted(self, layout: Layout, listed: ListedLedgers, known: Iterable[pa.Table]) -> None:
        """Ask by key for ledgers that somebody knows of and no listing named."""
        unlisted: set[str] = set()
        for rows in known:
            scope, ledger = listed.leave_out(rows)
            fits = ~find_placeless(layout, scope, ledger)
            scope, ledger = scope[fits], ledger[fits]
            keys = ledger_keys(layout, scope, ledger)
            is_asked = np.ones(len(keys), np.bool_)
            if self._live is not None:
                is_asked = have_folders(keys, lambda folders: self._pool.map(self._may_stand, folders))
            asked = np.flatnonzero(is_asked)
            for start in range(0, len(asked), _BATCH):
                part = asked[start : start + _BATCH]
                self._read_ledgers(keys.take(pa.array(part)).to_pylist(), scope[part], ledger[part], unlisted)

    def _may_stand(self, key: str) -> bool:
        try:
            return self._store.get(self._key(key)) is not None
        except AccessDeniedError:
            return True

    def _read_ledgers(self, keys: list[str], scope: Ints, ledger: Ints, unlisted: set[str]) -> None:
        row_of = {key: row for row, key in enumerate(keys)}
        nodes = {key: node for key, node in self._read(keys) if node is not None and key not in unlisted}
        unlisted.update(nodes)
        for key, node in nodes.items():
            if self._since is None or node.created_txn is None or node.created_txn <= self._since:
                self._add_gap(key, "is there, and no listing named it: what else a listing left out is not known")
        rows = [row_of[key] for key in nodes]
        acls = self._pool.submit(self._read_acls, list(nodes))
        self._write_rows(list(nodes), scope[rows], ledger[rows], list(nodes.values()), acls)

    def _read(self, keys: list[str]) -> Iterator[tuple[str, Versioned | None]]:
        """Yield the values of keys; what may not be read is a gap."""
        answered = 0
        try:
            for _, node in self._store.get_many([self._key(key) for key in keys]):
                yield keys[answered], node
                answered += 1
        except AccessDeniedError:
            # The reads in flight behind a refusal are lost with it: the rest one by one.
            yield from self._read_with_acls(keys[answered:])

    def _stamp_columns(self, nodes: Sequence[Versioned]) -> dict[str, pa.Array]:
        txns = [txn for node in nodes for txn in (node.created_txn, node.changed_txn) if txn is not None]
        self._txn = max([*txns, *([] if self._txn is None else [self._txn])], default=None)
        return {
            "version": pa.array([node.version for node in nodes], pa.int64()),
            "acl": pa.array([node.acl for node in nodes], pa.string()),
            "created_txn": pa.array([node.created_txn for node in nodes], pa.int64()),
            "changed_txn": pa.array([node.changed_txn for node in nodes], pa.int64()),
            "created_at": scan.times(pa.array([node.created_ms for node in nodes], pa.int64())),
            "changed_at": scan.times(pa.array([node.changed_ms for node in nodes], pa.int64())),
        }

    # Other nodes

    def _write_tree(self, keys: Iterable[str]) -> None:
        """Write nodes, and all below them but the root's."""
        stack = list(keys)
        while stack:
            batch = [stack.pop() for _ in range(min(_BATCH, len(stack)))]
            self._write_nodes(batch)
            folders = [key for key in batch if key != ROOT and kind_of(key) not in _CHILDLESS]
            for key, names in zip(folders, self._tree.list_folders(folders), strict=True):
                stack += [f"{key}/{name}" for name in names]

    def _write_own_root(self) -> None:
        """Write bkmeta's own root; after the ledgers, so that no ledger that is missing lacks its tombstone.

        A node that is split while they are read is gone, and its halves, whose names begin with its own, are there.
        """
        if self._prefix + OWN_ROOT not in self._write_nodes([OWN_ROOT], "own_root"):
            return
        [folders] = self._tree.list_folders([OWN_ROOT])
        for folder in [f"{OWN_ROOT}/{name}" for name in folders]:
            self._write_nodes([folder], "own_root")
            read: set[str] = set()
            for _ in range(MOST_LISTINGS):
                [names] = self._tree.list_folders([folder])
                missing = [n for n in names if not any(n[:end] in read for end in range(1, len(n) + 1))]
                if not missing:
                    break
                for start in range(0, len(missing), _OWN_BATCH):
                    keys = [f"{folder}/{name}" for name in missing[start : start + _OWN_BATCH]]
                    read |= {key.rpartition("/")[2] for key in self._write_nodes(keys, "own_root")}
            else:
                self._add_gap(folder, "its nodes changed again and again, or may not be read")

    def _write_nodes(self, keys: list[str], table: str = "nodes") -> set[str]:
        """Write what is at keys; return the store's keys of what was there."""
        # Marks are many: they come without their ACLs, which would cost a second read each.
        marks = [key for key in keys if key.startswith((MARKS, SCOPED_MARKS))]
        rest = [key for key in keys if not key.startswith((MARKS, SCOPED_MARKS))]
        nodes = {key: node for key, node in chain(self._read(marks), self._read_with_acls(rest)) if node is not None}
        if not nodes:
            return set()
        paths = pa.array(list(nodes), pa.string())
        columns = {
            "path": paths,
            "kind": kinds_of(paths),
            "raw": pa.array([node.value for node in nodes.values()], pa.binary()),
            **self._stamp_columns(list(nodes.values())),
            "owner": pa.array([node.owner or None for node in nodes.values()], pa.int64()),
            "children_created": pa.array([node.children_created for node in nodes.values()], pa.int64()),
        }
        self._out.append(table, pa.table(columns, schema=tables.CATALOG_NODES))
        self._nodes += len(nodes) if table == "nodes" else 0
        return {self._key(key) for key in nodes}

    def _read_with_acls(self, keys: Sequence[str]) -> Iterator[tuple[str, Versioned | None]]:
        def read(key: str) -> Versioned | AccessDeniedError | None:
            try:
                return self._store.get(self._key(key))
            except AccessDeniedError as error:
                return error

        for key, node in zip(keys, self._pool.map(read, keys), strict=True):
            if isinstance(node, AccessDeniedError):
                self._add_gap(key, "access denied, not read")
            else:
                yield key, node
