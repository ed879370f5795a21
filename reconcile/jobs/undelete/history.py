"""Deletes of ledgers as a store's history has them, and records as copies of the store have them: columns in and out.

source                         who deleted what, when    the last record            what was there at its point
a ZooKeeper's files            yes                       as the logs have it        yes
etcd, its database file        when: by revision alone   until it is compacted      yes
a capture of one of these      yes                       yes                        yes
a capture of a live ZooKeeper  no                        no                         yes
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backends.errors import CorruptStoreError, UnsupportedStoreError
from backends.protocols import ScannableStore, StorePoint
from backends.registry import OpenStore
from reconcile.jobs.undelete.request import DeletedSelection
from reconcile.topics import name_use
from recovery.capture.summary import choose_layout
from recovery.codecs.keys import ledgers_of
from recovery.codecs.ledger_metadata import decode_columns
from recovery.codecs.store import ROOT, Layout
from recovery.codecs.store import places as store_places
from recovery.model.ids import LedgerId

CREATED: Final = "created"
DELETED: Final = "deleted"
IDS: Final = ("scope", "ledger")
RECORDS: Final = pa.schema(
    [
        pa.field("scope", pa.int64()),
        pa.field("ledger", pa.int64()),
        pa.field("txn", pa.int64()),
        pa.field("raw", pa.binary()),
    ]
)
"""Records of ledgers, and the transaction that each is of: of its delete, or of the copy."""
_EVENTS: Final = pa.schema(
    [
        pa.field("scope", pa.int64()),
        pa.field("ledger", pa.int64()),
        pa.field("txn", pa.int64()),
        pa.field("at_ms", pa.int64()),
        pa.field("session", pa.int64()),
        pa.field("is_delete", pa.bool_()),
    ]
)
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class OpenHistory:
    """A store that remembers, or a copy of one.

    Attributes:
        uri: as it was given.
        store: it.
        root: key of its ledgers root, without a slash at its end.
        layout: of its keys.
        point: what it shows.
        is_target: it is the store that lost the ledgers, itself.
    """

    uri: str
    store: ScannableStore
    root: str
    layout: Layout
    point: StorePoint
    is_target: bool = False

    @classmethod
    def read(cls, opened: OpenStore, layout: Layout, *, is_target: bool = False) -> "OpenHistory":
        """Take an open store as a source.

        Args:
            opened: it.
            layout: of the store that lost the ledgers: this one's where it names none.
            is_target: it is that store.

        Raises:
            UnsupportedStoreError: it is a live store that remembers nothing.
        """
        store = opened.store
        if not isinstance(store, ScannableStore):
            problem = "a live ZooKeeper remembers nothing: name its files, zkfiles:///DIR, or captures, catalog:///DIR"
            raise UnsupportedStoreError(opened.uri, problem)
        root, named = opened.root.rstrip("/"), Layout(opened.layout_hint) if opened.layout_hint else None
        if named is None:
            key = root + store_places(None).layout
            node = store.get(key)
            named = layout if node is None else choose_layout(node.value, key, None)
        return cls(opened.uri, store, root, named, store.point(), is_target)


@dataclass(slots=True)
class TopicMatch:
    """Which managed ledgers are meant: by a pattern, or by their names; answers are kept.

    Attributes:
        decide: says about a name, tenant/namespace/persistent/topic, whether it is meant.
    """

    decide: Callable[[str], bool]
    _known: dict[str, bool] = field(default_factory=dict)

    def __call__(self, name: str) -> bool:
        """Say whether a name is meant."""
        if name not in self._known:
            self._known[name] = self.decide(name)
        return self._known[name]


@dataclass(frozen=True, slots=True, eq=False)
class WantedDeletes:
    """What of history is meant.

    Attributes:
        selection: as a person made it.
        ids: scope and ledger of ledgers that are meant by their ids: named, or named by a topic's record.
        topic: which topics are meant; None: ledgers are not chosen by their topics.
    """

    selection: DeletedSelection
    ids: pa.Table
    topic: TopicMatch | None = None

    def find_in_window(self, txn: Any, at_ms: Any) -> Mask:  # noqa: ANN401 - Arrow columns
        """Say which transactions are inside the window."""
        inside = np.ones(len(txn), np.bool_)
        for edge, holds in ((self.selection.begin, pc.greater_equal), (self.selection.end, pc.less_equal)):
            if edge is not None:
                value, column = (edge.zxid, txn) if edge.ms is None else (edge.ms, at_ms)
                inside &= fill(holds(column, value))
        return inside

    def is_of_session(self, column: Any) -> Mask:  # noqa: ANN401 - an Arrow column
        """Say which are of the sessions that are meant."""
        sessions = self.selection.sessions
        known = pa.array([session for session in sessions if session is not None], pa.int64())
        of_known: Mask = pc.is_in(column, value_set=known).to_numpy(zero_copy_only=False)
        of_none: Mask = pc.is_null(column).to_numpy(zero_copy_only=False)
        return of_known | (of_none & (None in sessions))

    def find_by_topic(self, raws: pa.Array, among: Mask) -> Mask:
        """Say which records, of some of them, name a topic that is meant."""
        mask = np.zeros(len(raws), np.bool_)
        if self.topic is None:
            return mask
        rows = np.flatnonzero(among & fill(pc.is_valid(raws)))
        customs = decode_columns(raws.take(pa.array(rows)))["custom"].to_pylist()
        for row, custom in zip(rows.tolist(), customs, strict=True):
            use = name_use(custom or ())
            mask[row] = use is not None and self.topic(use[0])
        return mask


@dataclass(frozen=True, slots=True, eq=False)
class Deletes:
    """What the histories say.

    Attributes:
        events: scope, ledger, txn, at_ms, session, is_delete: of every ledger the last creation or delete.
        all_deletes: the same of every delete.
        records: `RECORDS` of the deletes that are meant: the record before each; raw null: not known.
        gaps: what could not be read.
    """

    events: pa.Table
    all_deletes: pa.Table
    records: pa.Table
    gaps: tuple[str, ...]


def fill(mask: Any) -> Mask:  # noqa: ANN401 - an Arrow column
    """Return a mask without nulls."""
    filled: Mask = np.asarray(pc.fill_null(mask, fill_value=False).to_numpy(zero_copy_only=False), np.bool_)
    return filled


def make_ids(ledgers: Sequence[LedgerId]) -> pa.Table:
    """Return ids of ledgers as columns."""
    columns = ([ledger.scope for ledger in ledgers], [ledger.ledger for ledger in ledgers])
    return pa.table({name: pa.array(column, pa.int64()) for name, column in zip(IDS, columns, strict=True)})


def find_ids(rows: pa.Table, ids: pa.Table) -> Mask:
    """Say which rows are of some ledgers; columns scope and ledger in both."""
    mask = np.zeros(rows.num_rows, np.bool_)
    near = np.flatnonzero(fill(pc.is_in(rows["ledger"], value_set=ids["ledger"].combine_chunks())))
    if len(near):
        pairs = {(row["scope"], row["ledger"]) for row in ids.select(list(IDS)).to_pylist()}
        some = rows.select(list(IDS)).take(pa.array(near)).to_pylist()
        mask[near] = [(row["scope"], row["ledger"]) in pairs for row in some]
    return mask


def _list_ledgers(batch: pa.RecordBatch, source: OpenHistory) -> pa.Table:
    """Return the rows of a batch whose keys are ledgers', with scope and ledger."""
    names = pc.utf8_slice_codeunits(batch["key"], len(source.root)) if source.root else batch["key"]
    ledgers = ledgers_of(source.layout, pc.if_else(pc.equal(names, ""), ROOT, names))
    rows = pa.Table.from_batches([batch]).take(pa.array(ledgers.rows))
    return rows.append_column("scope", pa.array(ledgers.scope)).append_column("ledger", pa.array(ledgers.ledger))


def read_deletes(sources: Sequence[OpenHistory], wanted: WantedDeletes) -> Deletes:
    """Read what histories say about ledgers.

    Raises:
        UnavailableError: a source stopped answering.
    """
    events, records, gaps = [_EVENTS.empty_table()], [RECORDS.empty_table()], list[str]()
    for source in sources:
        try:
            for batch in source.store.history(source.root or ROOT):
                rows = _list_ledgers(batch, source)
                rows = rows.filter(pc.is_in(rows["op"], value_set=pa.array([CREATED, DELETED])))
                rows = rows.append_column("is_delete", pc.equal(rows["op"], DELETED))
                events.append(rows.select(_EVENTS.names).cast(_EVENTS))
                meant = rows.filter(pa.array(_find_meant(rows, wanted)))
                records.append(meant.rename_columns({"before": "raw"}).select(RECORDS.names).cast(RECORDS))
        except CorruptStoreError as error:
            gaps.append(f"{source.uri}: {error}")
    every = _take_each(pa.concat_tables(events), [*IDS, "txn"])
    last = _take_each(every, list(IDS))
    all_deletes = every.filter(every["is_delete"])
    return Deletes(last, all_deletes, _take_each(pa.concat_tables(records), list(IDS)), tuple(gaps))


def _find_meant(rows: pa.Table, wanted: WantedDeletes) -> Mask:
    """Say which rows are deletes that are meant: in the window, and by one of their session, id or topic."""
    among = fill(rows["is_delete"]) & wanted.find_in_window(rows["txn"], rows["at_ms"])
    meant = find_ids(rows, wanted.ids) | wanted.is_of_session(rows["session"])
    return among & (meant | wanted.find_by_topic(rows["before"].combine_chunks(), among & ~meant))


def _take_each(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return of the rows of the same names the last by transaction, one whose record is known before another."""
    if not rows.num_rows:
        return rows
    keys = [rows[name].to_numpy() for name in names]
    known = pc.is_valid(rows["raw"]).to_numpy() if "raw" in rows.column_names else np.ones(rows.num_rows, np.bool_)
    order = np.lexsort([known, rows["txn"].to_numpy(), *reversed(keys)])
    ordered = [key[order] for key in keys]
    last = np.ones(len(order), np.bool_)
    last[:-1] = np.logical_or.reduce([key[1:] != key[:-1] for key in ordered])
    return rows.take(pa.array(order[last]))


def read_copies(sources: Sequence[OpenHistory], wanted: WantedDeletes, lacking: pa.Table) -> Iterator[pa.Table]:
    """Yield `RECORDS` of ledgers as the sources have them at their points, the newest source first.

    Args:
        sources: the store that lost the ledgers is passed over.
        wanted: a ledger whose record names a topic that is meant is yielded, too.
        lacking: scope and ledger of those that are wanted in any case.

    Raises:
        UnavailableError: a source stopped answering.
    """
    newest_first = sorted(sources, key=lambda source: (source.point.at_ms or 0, source.point.txn or 0), reverse=True)
    for source in newest_first:
        if source.is_target:
            continue
        try:
            for batch in source.store.scan(source.root or ROOT):
                rows = _list_ledgers(batch, source)
                meant = find_ids(rows, lacking)
                meant |= wanted.find_by_topic(rows["value"].combine_chunks(), ~meant)
                rows = rows.filter(pa.array(meant)).rename_columns({"value": "raw"})
                txn = pa.array([source.point.txn or 0] * rows.num_rows, pa.int64())
                yield rows.append_column("txn", txn).select(RECORDS.names).cast(RECORDS)
        except CorruptStoreError:
            continue  # its gaps say so
