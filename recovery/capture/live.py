"""Any metadata store to a catalog: every ledger's record, and every other node below the ledgers root.

Ledgers are found by listing, level by level, as the layout says; what stands in the ledgers' tree and is not exactly a
ledger's key becomes a node of kind "other", with all below it. The empty inner nodes of the ledgers' tree are not kept.

A live store changes while it is read. Whatever was there from the first read to the last is in the catalog, unless a
gap says otherwise; a ledger that was made or removed meanwhile may be in it or not, and the catalog says between which
transactions that was. A store that shows all its keys at one point in time is read in bulk instead (`scan`),
with its history.

No listing is believed alone. A folder is listed again where the transaction that last changed its children is another
one after the listing than before it; one that its parent names and nobody can list is a gap; and ledgers that somebody
else knows of, such as bookies, are asked for by their keys where no listing named them.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backends.errors import AccessDeniedError
from backends.protocols import LiveStore, MetadataStore, ScannableStore, Versioned, parse_rights
from recovery.capture import scan
from recovery.codecs.keys import ledger_keys
from recovery.codecs.ledger_metadata import decode_columns
from recovery.codecs.store import (
    INSTANCE_ID,
    LAYOUT,
    MARKS,
    ROOT,
    SCOPED,
    SCOPED_MARKS,
    Layout,
    decode_instance_id,
    is_special,
    kind_of,
    layout_of,
    ledger_of,
    placeless,
    places,
)
from recovery.dataset import DatasetWriter
from recovery.errors import FormatError, InputError
from recovery.model import tables
from recovery.model.ids import LedgerId, buckets

_AT_ONCE: Final = 16
"""Listings in flight: enough to hide round trips, and few enough names to hold: a folder has at most 65,536."""
_BATCH: Final = 8_192
"""Rows read and written at a time."""
_GAPS: Final = 1_000
"""Gaps that are named one by one; more are counted."""

_LOOKS: Final = 3
"""Listings of one folder at most; one that changes all the time is left at what was seen."""
_SOME: Final = 5

_TWO: Final = re.compile(r"[0-9]{2}")
_THREE: Final = re.compile(r"[0-9]{3}")
_FOUR: Final = re.compile(r"[0-9]{4}")
_HEX: Final = re.compile(r"[0-9a-f]{4}")
_SHORT_TREE: Final = (_TWO, _FOUR)
_LONG_TREE: Final = (_THREE, _FOUR, _FOUR, _FOUR)
_ETCD_FOLDER: Final = re.compile("ledgers")
_SCOPED_TREE: Final = (_HEX,) * 7
_TREES: Final = {
    Layout.FLAT: (),
    Layout.LEGACY: (_SHORT_TREE,),
    Layout.HIERARCHICAL: (_SHORT_TREE, _LONG_TREE),
    Layout.LONGHIERARCHICAL: (_LONG_TREE,),
    Layout.LONGLONGHIERARCHICAL: (_LONG_TREE,),
    Layout.ETCD: ((_ETCD_FOLDER,),),
}
"""Names of the inner nodes, level by level, that lead to a layout's ledgers."""
_HIDDEN: Final = ":x"
"""End of a digest's name as a server shows it to who may not change the rights."""
_PAIR: Final = np.dtype([("scope", np.int64), ("ledger", np.int64)])
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CHILDLESS: Final = frozenset({"layout", "instance_id", "cookie", "registration", "mark", "lock"})


@dataclass(frozen=True, slots=True)
class CaptureSummary:
    """What a capture found.

    Attributes:
        layout: what LAYOUT says, else what was named; None where the root is missing and none was named.
        instance_id: of the cluster; None where it is missing.
        root: present or missing.
        complete: no gap.
        gaps: what could not be read, and why.
        ledgers: records, those that cannot be parsed included.
        unparsable: records that cannot be parsed.
        nodes: other nodes.
        vanished: ledgers that were removed between listing and reading.
        changes: of ledgers' records that the source remembers.
        txn: the store's last transaction that is in it; None where that is not known.
        since_txn: of a live store the last one before it was read: what happened between that and `txn` is in it or
            not. None: it is all in it.
        at: when the source was as the catalog shows it; read then, where it does not say.
        notes: what a person should know of how that point was chosen.
    """

    layout: str | None
    instance_id: str | None
    root: str
    complete: bool
    gaps: tuple[str, ...]
    ledgers: int
    unparsable: int
    nodes: int
    vanished: int
    changes: int
    txn: int | None
    since_txn: int | None
    at: datetime
    notes: tuple[str, ...]


def capture(
    store: MetadataStore,
    root: str,
    layout: Layout | None,
    out: DatasetWriter,
    *,
    now: Callable[[], datetime],
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    known: Iterable[pa.Table] = (),
) -> CaptureSummary:
    """Read a store into a catalog, and close it.

    A record that cannot be parsed is a row with its error. A root that does not exist is stated, with no rows. Memory
    does not grow with the number of ledgers.

    Args:
        store: only read.
        root: key of the ledgers root.
        layout: None: what LAYOUT says.
        out: a catalog; the records hold passwords, so it should be secret.
        now: the clock.
        progress: told how many ledgers are read, and how many there may be: an estimate until the end.
        known: scope and ledger of ledgers that somebody knows of, perhaps repeatedly: of a live store, those that no
            listing named are asked for one by one.

    Raises:
        InputError: no layout was named and LAYOUT names none; or the two contradict each other.
        UnavailableError: the store stopped answering; there is no catalog then.
        AccessDeniedError: the root itself may not be listed, or LAYOUT not read and no layout was named.
    """
    started = now()
    if isinstance(store, ScannableStore):
        return _in_bulk(store, root.rstrip("/"), layout, out, started, progress)
    with ExitStack() as ending:
        pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="capture")
        ending.callback(pool.shutdown, cancel_futures=True)
        return _Run(store, root.rstrip("/"), out, pool, progress).all(layout, started, known)


def _in_bulk(
    store: ScannableStore,
    prefix: str,
    named: Layout | None,
    out: DatasetWriter,
    started: datetime,
    progress: Callable[[int, int], None],
) -> CaptureSummary:
    """Capture a store that shows one point in time, and close the catalog."""
    point = store.point()
    where = places(named)
    wanted = (ROOT, where.layout, where.instance_id)
    held = {key: store.get(prefix + key if key != ROOT else prefix or ROOT) for key in wanted}
    raw = {key: found.value for key, found in held.items() if found is not None}
    present = ROOT in raw
    layout, instance_id = named, None
    scanned = scan.Scanned(0, 0, 0, 0, None)
    if not present:
        # What deleted the root may be in the history, and the layout with it.
        before = scan.last_seen(store, prefix + where.layout, prefix)
        raw |= {where.layout: before} if before is not None else {}
    if present or where.layout in raw or named is not None:
        layout = _chosen(raw.get(where.layout), prefix + where.layout, named)
        scanned = scan.scan(store, prefix, layout, out, progress)
    if where.instance_id in raw:
        with suppress(FormatError):
            instance_id = decode_instance_id(raw[where.instance_id])
    progress(scanned.ledgers, scanned.ledgers)
    gaps = (*point.gaps, *([scanned.gap] if scanned.gap else []))
    notes = (*point.notes, *([scanned.note] if scanned.note else []))
    if point.at_ms is None:
        notes = (*notes, "the source keeps no times: the time is that of its reading")
    summary = CaptureSummary(
        layout=None if layout is None else str(layout),
        instance_id=instance_id,
        # Keys of etcd need none above them: what stands below a root that is gone is not nothing.
        root="present" if present or scanned.ledgers or scanned.nodes else "missing",
        complete=not gaps,
        gaps=gaps,
        ledgers=scanned.ledgers,
        unparsable=scanned.unparsable,
        nodes=scanned.nodes,
        vanished=0,
        changes=scanned.changes,
        txn=point.txn,
        since_txn=None,
        at=started if point.at_ms is None else _EPOCH + timedelta(milliseconds=point.at_ms),
        notes=notes,
    )
    _close(out, summary, store.uri, prefix)
    return summary


def _chosen(raw: bytes | None, where: str, named: Layout | None) -> Layout:
    """Return the layout that a store has: what LAYOUT says, else what was named."""
    remedy = "name the cluster's layout in the store URI, e.g. zk+hierarchical://"
    if raw is None:
        if named is None:
            raise InputError(where, "is missing, and no layout was named", remedy)
        return named
    try:
        stored = layout_of(raw)
    except FormatError as error:
        if named is None:
            raise InputError(where, f"cannot be used ({error.detail or error.reason})", remedy) from error
        return named
    # LAYOUT never names scopes: that layout is a known one with a tree beside it.
    if named not in (None, stored, Layout.LONGLONGHIERARCHICAL):
        raise InputError(where, f"says {stored}, the store URI says {named}", "name the one that LAYOUT says")
    return stored


def _close(out: DatasetWriter, summary: CaptureSummary, uri: str, prefix: str) -> None:
    """Write the row about the source, and the manifest."""
    kind = uri.partition(":")[0]
    source = {
        "kind": {"zk": "zookeeper"}.get(kind, kind),
        "uri": uri + prefix,
        **{
            name: getattr(summary, name)
            for name in ("instance_id", "layout", "txn", "since_txn", "at", "complete", "root")
        },
        "gaps": list(summary.gaps),
        "notes": list(summary.notes),
    }
    out.append("sources", pa.Table.from_pylist([source], schema=tables.CATALOG_SOURCES))
    out.close(coverage={**asdict(summary), "at": summary.at.isoformat()})


@dataclass(frozen=True, slots=True)
class _Folder:
    """An inner node of the ledgers' tree, to be listed, or (with `names`) to be looked at again.

    Attributes:
        key: of the node.
        tree: what the names of inner nodes below it look like, level by level; empty: ledgers stand below it.
        share: of all there is to list.
        names: what was listed there.
        stamp: the transaction that had last changed its children, before it was listed.
        looks: how often it was listed.
    """

    key: str
    tree: Sequence[re.Pattern[str]]
    share: float
    names: frozenset[str] | None = None
    stamp: int | None = None
    looks: int = 0


@dataclass(frozen=True, slots=True)
class _Reading:
    """Ledgers that were asked for: whose key it is, and the answers that will come."""

    of: Mapping[str, LedgerId]
    values: Future[list[tuple[str, Versioned | None]]]
    rights: Future[dict[str, str]]


def _joined(scope: npt.NDArray[np.int64], ledger: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    pairs = np.empty(len(scope), _PAIR)
    pairs["scope"], pairs["ledger"] = scope, ledger
    return pairs


def _many(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


class _Run:
    """One capture in progress; keys are below the root."""

    def __init__(
        self,
        store: MetadataStore,
        prefix: str,
        out: DatasetWriter,
        pool: ThreadPoolExecutor,
        progress: Callable[[int, int], None],
    ) -> None:
        self._store = store
        self._live = store if isinstance(store, LiveStore) else None
        self._prefix = prefix
        self._out = out
        self._pool = pool
        self._progress = progress
        self._gaps: list[str] = []
        self._more_gaps = 0
        self._txn: int | None = None
        self._since: int | None = None
        self._ledgers = 0
        self._unparsable = 0
        self._nodes = 0
        self._vanished = 0
        self._changed = 0
        self._hidden = 0
        self._fraction = 0.0
        self._seen: list[npt.NDArray[Any]] | None = None
        self._shown: dict[str, bool] = {}

    def all(self, layout: Layout | None, started: datetime, known: Iterable[pa.Table]) -> CaptureSummary:
        """Capture everything, and close the catalog."""
        if self._live is not None:
            with suppress(AccessDeniedError):
                list(self._live.get_acls([self._key(ROOT)]))  # opens what it needs: that is a transaction, too
            self._since = self._live.latest_txn()
        known = iter(known)
        first = next(known, None)
        self._seen = None if first is None else []
        names = self._store.children(self._key(ROOT))
        instance_id = None
        if names is not None:
            layout = self._layout(layout, present="LAYOUT" in names)
            instance_id = self._instance_id() if "INSTANCEID" in names else None
            self._everything(layout)
            if first is not None:
                self._ask_for_known(layout, chain([first], known))
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
            vanished=self._vanished,
            changes=0,
            txn=self._txn,
            since_txn=self._since,
            at=started,
            notes=tuple(self._notes()),
        )
        self._progress(self._ledgers, self._ledgers)
        _close(self._out, summary, self._store.uri, self._prefix)
        return summary

    def _notes(self) -> Iterator[str]:
        if self._changed:
            yield f"{_many(self._changed, 'folder')} changed while being listed and were listed again"
        if self._vanished:
            yield f"{_many(self._vanished, 'ledger')} were removed between being listed and being read"
        if self._hidden:
            yield (
                f"the rights of {_many(self._hidden, 'record')} are not in it: they may not be read, or their digests "
                "are shown only to who may change them (BKMETA_ZK_AUTH)"
            )

    def _key(self, key: str) -> str:
        return self._prefix + key if key != ROOT else self._prefix or ROOT

    def _gap(self, key: str, why: str) -> None:
        if len(self._gaps) < _GAPS:
            self._gaps.append(f"{key}: {why}")
        else:
            self._more_gaps += 1

    def _layout(self, named: Layout | None, *, present: bool) -> Layout:
        where = self._key(LAYOUT)
        try:
            held = self._store.get(where) if present else None
        except AccessDeniedError:
            # A gap when the nodes are read; without a name there is nothing to go by.
            if named is None:
                raise
            return named
        return _chosen(None if held is None else held.value, where, named)

    def _instance_id(self) -> str | None:
        try:
            held = self._store.get(self._key(INSTANCE_ID))
            return decode_instance_id(held.value) if held else None
        except (FormatError, AccessDeniedError):
            return None

    def _everything(self, layout: Layout) -> None:
        others = [ROOT]
        tops: list[_Folder] = []
        flat: list[str] = []
        share = 0.0
        for name in self._names_of_root():
            tree = next((tree for tree in _TREES[layout] if tree[0].fullmatch(name)), None)
            if f"/{name}" == SCOPED:
                tops.append(_Folder(SCOPED, _SCOPED_TREE, share))
                self._write_nodes([SCOPED])
            elif tree is not None:
                tops.append(_Folder(f"/{name}", tree[1:], share))
            elif layout is Layout.FLAT and not is_special(name):
                flat.append(f"/{name}")
            else:
                others.append(f"/{name}")
        share = 1 / max(1, len(tops) + bool(flat))
        self._write_tree(others)
        self._write_ledgers(layout, self._found([replace(top, share=share) for top in tops], flat))

    def _names_of_root(self) -> list[str]:
        """Return what was listed below the root, in any of as many listings as it took."""
        root = _Folder(ROOT, (), 0.0)
        found: dict[str, None] = {}
        for _ in range(_LOOKS):
            [before] = self._stamps_of([root])
            found |= dict.fromkeys(self._store.children(self._key(ROOT)) or ())
            [after] = self._stamps_of([root])
            if before == after:
                break
            self._changed += 1
        return list(found)

    # Ledgers

    def _found(self, tops: list["_Folder"], flat: list[str]) -> Iterator[str]:
        """Yield the keys that stand where ledgers do, and those that do not fit on the way."""
        for key in flat:
            self._fraction += 1 / (len(tops) + 1) / len(flat)
            yield key
        stack = list(reversed(tops))
        while stack:
            taken = [stack.pop() for _ in range(min(_AT_ONCE, len(stack)))]
            looks = [folder for folder in taken if folder.names is not None]
            fresh = [folder for folder in taken if folder.names is None]
            fresh += self._changed_since(looks)
            below: list[_Folder] = []
            stamps = self._stamps_of(fresh)
            for folder, names, stamp in zip(fresh, self._listings([f.key for f in fresh]), stamps, strict=True):
                new = [name for name in names if folder.names is None or name not in folder.names]
                inner = [name for name in new if folder.tree and folder.tree[0].fullmatch(name)]
                deeper = frozenset(inner)
                yield from (f"{folder.key}/{name}" for name in new if name not in deeper)
                if not inner:
                    self._fraction += folder.share
                share = folder.share / max(1, len(inner))
                below += [_Folder(f"{folder.key}/{name}", folder.tree[1:], share) for name in inner]
                if stamp is not None and folder.looks + 1 < _LOOKS:
                    # The second look at a folder comes when all below it was read.
                    seen = frozenset(names) | (folder.names or frozenset())
                    below.append(replace(folder, share=0.0, names=seen, stamp=stamp, looks=folder.looks + 1))
            stack += reversed(below)

    def _stamps_of(self, folders: Sequence["_Folder"]) -> list[int | None]:
        """Return the transaction that last changed each folder's children; None where none is told."""
        if self._live is None or not folders:
            return [None] * len(folders)
        found = self._read_rightless([folder.key for folder in folders])
        return [None if held is None else held.children_txn for held in found]

    def _changed_since(self, folders: Sequence["_Folder"]) -> list["_Folder"]:
        """Return the folders whose children changed since they were listed."""
        stamps = self._stamps_of(folders)
        changed = [f for f, stamp in zip(folders, stamps, strict=True) if stamp is not None and stamp != f.stamp]
        self._changed += len(changed)
        return changed

    def _listings(self, keys: list[str]) -> Iterator[list[str]]:
        """Yield the names below each key, in the given order; what cannot be listed is a gap."""

        def listed(key: str) -> list[str] | AccessDeniedError | None:
            try:
                return self._store.children(self._key(key))
            except AccessDeniedError as error:
                return error

        for key, names in zip(keys, self._pool.map(listed, keys), strict=True):
            if isinstance(names, AccessDeniedError):
                self._gap(key, "access denied, not listed")
                yield []
            else:
                yield names if names is not None else self._listed_again(key)

    def _listed_again(self, key: str) -> list[str]:
        """Return the names below a key that was named and not found: removed meanwhile, or made again, or a gap."""
        parent, _, name = key.rpartition("/")
        for _ in range(_LOOKS):
            try:
                above = self._store.children(self._key(parent or ROOT))
                if above is None or name not in above:
                    self._changed += 1
                    return []
                names = self._store.children(self._key(key))
            except AccessDeniedError:
                break
            if names is not None:
                return names
        self._gap(key, "named by the folder above it, and not to be found when listed")
        return []

    def _write_ledgers(self, layout: Layout, keys: Iterable[str]) -> None:
        strays: list[str] = []
        batch: list[tuple[str, LedgerId]] = []
        waiting: _Reading | None = None  # one batch is on its way while the one before it is parsed and written
        for key in keys:
            ledger = ledger_of(layout, key)
            if ledger is None:
                strays.append(key)
                if len(strays) >= _BATCH:
                    self._write_tree(strays)
                    strays.clear()
            else:
                batch.append((key, ledger))
                if len(batch) >= _BATCH:
                    begun = self._begun(batch)
                    self._write_records(waiting)
                    waiting = begun
                    batch.clear()
        begun = self._begun(batch)
        self._write_records(waiting)
        self._write_records(begun)
        self._write_tree(strays)

    def _begun(self, batch: list[tuple[str, LedgerId]]) -> "_Reading":
        of = dict(batch)
        keys = list(of)
        values = self._pool.submit(lambda: list(self._read(keys)))
        return _Reading(of, values, self._pool.submit(self._rights_of, keys))

    def _write_records(self, reading: "_Reading | None") -> None:
        if reading is None:
            return
        ledgers: list[LedgerId] = []
        held: list[Versioned] = []
        keys: list[str] = []
        for key, found in reading.values.result():
            if found is None:
                self._vanished += 1
            else:
                keys.append(key)
                ledgers.append(reading.of[key])
                held.append(found)
        self._write_found(keys, ledgers, held, reading.rights)

    def _write_found(
        self, keys: list[str], ledgers: list[LedgerId], held: list[Versioned], rights: Future[dict[str, str]]
    ) -> None:
        if not held:
            return
        scope = np.array([ledger.scope for ledger in ledgers], np.int64)
        ledger = np.array([ledger.ledger for ledger in ledgers], np.int64)
        if self._seen is not None:
            self._seen.append(_joined(scope, ledger))
        raws = pa.array([found.value for found in held], pa.binary())
        parsed = decode_columns(raws)
        acls = self._shown_rights(keys, rights.result())
        columns = {
            "bucket": pa.array(buckets(scope, ledger)),
            "scope": pa.array(scope),
            "ledger": pa.array(ledger),
            "raw": raws,
            **self._stamps(held),
            **({} if self._live is None else {"acl": pa.array(acls, pa.string())}),
            **{name: parsed[name] for name in parsed.schema.names},
        }
        self._out.append("ledgers", pa.table(columns, schema=tables.CATALOG_LEDGERS))
        self._ledgers += len(held)
        self._unparsable += len(held) - parsed["error"].null_count
        self._progress(self._ledgers, max(self._ledgers + 1, round(self._ledgers / max(self._fraction, 1e-9))))

    def _rights_of(self, keys: list[str]) -> dict[str, str]:
        """Return the rights of what stands at keys, as far as they may be read."""
        if self._live is None:
            return {}
        found: dict[str, str] = {}
        at = 0
        try:
            for _, rights in self._live.get_acls([self._key(key) for key in keys]):
                if rights is not None:
                    found[keys[at]] = rights.acl
                at += 1
        except AccessDeniedError:
            # What is behind a refusal is lost with it: the rest one by one.
            for key in keys[at:]:
                with suppress(AccessDeniedError):
                    held = self._store.get(self._key(key))
                    if held is not None and held.acl is not None:
                        found[key] = held.acl
        return found

    def _shown_rights(self, keys: list[str], rights: Mapping[str, str]) -> list[str | None]:
        """Return the rights of keys; None where they may not be read, or a digest in them is hidden."""
        shown: list[str | None] = []
        for key in keys:
            acl = rights.get(key)
            known = acl is not None and self._is_shown(acl)
            self._hidden += self._live is not None and not known
            shown.append(acl if known else None)
        return shown

    def _is_shown(self, acl: str) -> bool:
        shown = self._shown.get(acl)
        if shown is None:
            shown = self._shown[acl] = all(
                right.scheme != "digest" or not right.name.endswith(_HIDDEN) for right in parse_rights(acl)
            )
        return shown

    def _ask_for_known(self, layout: Layout, known: Iterable[pa.Table]) -> None:
        """Ask by key for ledgers that somebody knows of and no listing named."""
        seen = np.unique(np.concatenate([np.zeros(0, _PAIR), *(self._seen or ())]))
        for rows in known:
            scope, ledger = (rows[name].to_numpy() for name in ("scope", "ledger"))
            pairs = np.unique(_joined(scope, ledger))
            pairs = pairs[~np.isin(pairs, seen, assume_unique=True)]
            fits = ~placeless(layout, pairs["scope"], pairs["ledger"])
            for at in range(0, len(pairs), _BATCH):
                part = pairs[at : at + _BATCH][fits[at : at + _BATCH]]
                self._ask_for(layout, part["scope"].copy(), part["ledger"].copy())
            seen = np.union1d(seen, pairs)

    def _ask_for(self, layout: Layout, scope: npt.NDArray[np.int64], ledger: npt.NDArray[np.int64]) -> None:
        keys = ledger_keys(layout, scope, ledger).to_pylist()
        found = [
            (key, LedgerId(*pair), held)
            for (key, held), *pair in zip(self._read(keys), scope.tolist(), ledger.tolist(), strict=True)
            if held is not None
        ]
        for key, _, held in found:
            if self._since is None or held.created_txn is None or held.created_txn <= self._since:
                self._gap(key, "is there, and no listing named it: what else a listing left out is not known")
        there = [key for key, _, _ in found]
        rights = self._pool.submit(self._rights_of, there)
        self._write_found(there, [of for _, of, _ in found], [held for _, _, held in found], rights)

    def _read(self, keys: list[str]) -> Iterator[tuple[str, Versioned | None]]:
        """Yield the values of keys; what may not be read is a gap."""
        at = 0
        try:
            for _, found in self._store.get_many([self._key(key) for key in keys]):
                yield keys[at], found
                at += 1
        except AccessDeniedError:
            # The reads in flight behind a refusal are lost with it: the rest one by one.
            yield from self._read_with_rights(keys[at:])

    def _read_rightless(self, keys: list[str]) -> list[Versioned | None]:
        """Return what stands at keys; None also where that may not be read: listing it says so."""
        try:
            return [held for _, held in self._store.get_many([self._key(key) for key in keys])]
        except AccessDeniedError:
            found: list[Versioned | None] = []
            for key in keys:
                try:
                    found.append(self._store.get(self._key(key)))
                except AccessDeniedError:
                    found.append(None)
            return found

    def _stamps(self, held: Sequence[Versioned]) -> dict[str, pa.Array]:
        txns = [txn for found in held for txn in (found.created_txn, found.changed_txn) if txn is not None]
        self._txn = max([*txns, *([] if self._txn is None else [self._txn])], default=None)
        return {
            "version": pa.array([found.version for found in held], pa.int64()),
            "acl": pa.array([found.acl for found in held], pa.string()),
            "created_txn": pa.array([found.created_txn for found in held], pa.int64()),
            "changed_txn": pa.array([found.changed_txn for found in held], pa.int64()),
            "created_at": _times([found.created_ms for found in held]),
            "changed_at": _times([found.changed_ms for found in held]),
        }

    # Other nodes

    def _write_tree(self, tops: Iterable[str]) -> None:
        """Write nodes, and all below them but the root's."""
        stack = list(tops)
        while stack:
            taken = [stack.pop() for _ in range(min(_BATCH, len(stack)))]
            self._write_nodes(taken)
            folders = [key for key in taken if key != ROOT and kind_of(key) not in _CHILDLESS]
            for key, names in zip(folders, self._listings(folders), strict=True):
                stack += [f"{key}/{name}" for name in names]

    def _write_nodes(self, keys: list[str]) -> None:
        # Marks are many: they come without their rights, which would cost a second read each.
        many = [key for key in keys if key.startswith((MARKS, SCOPED_MARKS))]
        few = [key for key in keys if not key.startswith((MARKS, SCOPED_MARKS))]
        read = [*self._read(many), *self._read_with_rights(few)]
        found = [(key, held) for key, held in read if held is not None]
        if not found:
            return
        held = [node for _, node in found]
        columns = {
            "path": pa.array([key for key, _ in found], pa.string()),
            "kind": pa.array([kind_of(key) for key, _ in found], pa.string()),
            "raw": pa.array([node.value for node in held], pa.binary()),
            **self._stamps(held),
            "owner": pa.array([node.owner or None for node in held], pa.int64()),
            "children_created": pa.array([node.children_created for node in held], pa.int64()),
        }
        self._out.append("nodes", pa.table(columns, schema=tables.CATALOG_NODES))
        self._nodes += len(found)

    def _read_with_rights(self, keys: list[str]) -> Iterator[tuple[str, Versioned | None]]:
        def read(key: str) -> Versioned | AccessDeniedError | None:
            try:
                return self._store.get(self._key(key))
            except AccessDeniedError as error:
                return error

        for key, held in zip(keys, self._pool.map(read, keys), strict=True):
            if isinstance(held, AccessDeniedError):
                self._gap(key, "access denied, not read")
            else:
                yield key, held


def _times(milliseconds: Sequence[int | None]) -> pa.Array:
    return pc.cast(pa.array(milliseconds, pa.int64()).cast(pa.timestamp("ms", "UTC")), pa.timestamp("us", "UTC"))
