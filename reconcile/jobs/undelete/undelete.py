"""Ledgers that somebody deleted, brought back byte for byte by what the store's history has of them: a plan.

    the store now                     a ledger that is meant
    has a record of the id            stays as it is: nothing is replaced
    has a tombstone of it             stays deleted: bkmeta purged it, by a certificate
    has neither                       its last record before the delete is proposed

The last record is what history has. Where no history has it, a copy of the store is asked; a copy's record counts only
of a closed ledger, whose end never changes. Bookies are not looked at: what they collected meanwhile is gone.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backends.errors import UnsupportedStoreError
from backends.protocols import ScannableStore
from backends.registry import OpenStore
from reconcile.clusters import InstanceSource, open_inventories, read_instance_ids, require_one
from reconcile.jobs.context import Context, connect
from reconcile.jobs.deletes.resurrection import find_deleted
from reconcile.jobs.undelete import topics
from reconcile.jobs.undelete.histogram import count_sessions, draw_bars
from reconcile.jobs.undelete.history import (
    IDS,
    RECORDS,
    Deletes,
    Mask,
    OpenHistory,
    TopicMatch,
    WantedDeletes,
    find_ids,
    make_ids,
    read_copies,
    read_deletes,
)
from reconcile.jobs.undelete.request import KeptLedger, NotRestored, TopicCounts, Undeleted, UndeleteRequest
from reconcile.jobs.undelete.write_plan import PlanParts, write_plan
from reconcile.plan.views.topics import list_topics_back
from reconcile.references import References
from reconcile.report.plan_verdict import describe_plan
from reconcile.rules.holds import is_hold, is_named
from reconcile.stores import is_live, require_store_uri
from reconcile.topics import CURSOR, SCHEMA, TOPIC, name_use
from recovery.capture.summary import choose_layout
from recovery.codecs.keys import ledger_keys
from recovery.codecs.ledger_metadata import decode_columns
from recovery.codecs.store import Layout, find_placeless
from recovery.codecs.store import places as store_places
from recovery.codecs.store_kind import kind_of
from recovery.dataset import Dataset, open_dataset, sort_by_key
from recovery.errors import InputError
from recovery.model import tables
from recovery.model.ids import LedgerId, buckets
from recovery.model.metadata import NO_ENTRY

_CLOSED: Final = "CLOSED"
_TOPICS: Final = 1_000
"""Topics that are listed one by one."""


@dataclass(frozen=True, slots=True)
class _Target:
    """The store that lost the ledgers."""

    opened: OpenStore
    root: str
    layout: Layout
    instances: tuple[str, ...]


def undelete(request: UndeleteRequest, context: Context) -> Undeleted:
    """Make a plan that brings deleted ledgers back; nothing but the plan's folder is written.

    Where the selection does not say yet what comes back, nothing is written: who deleted how much, and when, is said.

    Raises:
        DatasetError: a capture or an inventory is damaged, or the plan cannot be written.
        InputError: two clusters, a store without a root, no history, or a topic that is none.
        UnavailableError: a store does not answer.
        UnsupportedStoreError: a URI is malformed, or of a store that remembers nothing.
    """
    for uri in (request.uri, *request.histories):
        require_store_uri(uri)
    inventories = open_inventories(request.inventories)
    with ExitStack() as stack:
        target = _open_target(stack.enter_context(connect(request.uri, context)))
        opened = [stack.enter_context(connect(uri, context)) for uri in request.histories]
        sources = _list_sources(target, opened)
        require_one(_name_clusters(target, sources, inventories))
        return _Run(request, context, target, sources, inventories).run(opened)


def _open_target(opened: OpenStore) -> _Target:
    root = opened.root.rstrip("/")
    named = Layout(opened.layout_hint) if opened.layout_hint else None
    key = root + store_places(named).layout
    stored = opened.store.get(key)
    if stored is None and opened.store.children(root or "/") is None:
        problem = "has no ledgers root: that is more than some deletes"
        raise InputError(opened.uri, problem, "recover it from what its bookies hold: bkmeta recover")
    layout = choose_layout(None if stored is None else stored.value, key, named)
    instances = tuple(instance for _, instance in read_instance_ids(opened.store, root))
    return _Target(opened, root, layout, instances)


def _list_sources(target: _Target, opened: Sequence[OpenStore]) -> list[OpenHistory]:
    sources = [OpenHistory.read(copy, target.layout) for copy in opened]
    if isinstance(target.opened.store, ScannableStore):
        sources.append(OpenHistory.read(target.opened, target.layout, is_target=True))
    if not sources:
        problem = "is a live ZooKeeper, which remembers nothing"
        raise UnsupportedStoreError(target.opened.uri, f"{problem}: name its files, or captures, as the history")
    return sources


def _name_clusters(
    target: _Target, sources: Sequence[OpenHistory], inventories: Sequence[Dataset]
) -> Iterator[InstanceSource]:
    yield InstanceSource(f"the store {target.opened.uri}", next(iter(target.instances), None))
    for source in sources:
        named = (instance for _, instance in read_instance_ids(source.store, source.root))
        yield InstanceSource(f"the history {source.uri}", next(named, None))
    for inventory in inventories:
        for row in inventory.read("bookies", columns=["instance_id"]).to_pylist():
            yield InstanceSource(f"the inventory {inventory.path}", row["instance_id"])


class _Run:
    """One undelete."""

    def __init__(
        self,
        request: UndeleteRequest,
        context: Context,
        target: _Target,
        sources: Sequence[OpenHistory],
        inventories: Sequence[Dataset],
    ) -> None:
        self._request = request
        self._context = context
        self._target = target
        self._sources = sources
        self._inventories = inventories
        self._selection = request.selection
        self._kept: dict[LedgerId, KeptLedger] = {}

    def run(self, opened: Sequence[OpenStore]) -> Undeleted:
        """Find the ledgers, and write the plan where the selection says what comes back."""
        selection, match, earlier = self._selection, None, topics.EarlierNodes({}, frozenset())
        if selection.topic is not None:
            match = topics.make_match(topics.parse_pattern(selection.topic))
            earlier = self._read_nodes(match)
        named = make_ids([*selection.ledgers, *(LedgerId(0, ledger) for ledger in sorted(earlier.named))])
        wanted = WantedDeletes(selection, named, match)
        with self._context.reporter.progress("reading what the history has of deletes", "sources"):
            deletes = read_deletes(self._sources, wanted)
        answer = self._tell_deletes(deletes, wanted)
        if not selection.is_complete:
            return Undeleted(**answer)
        records, as_captured = self._find_records(deletes, wanted)
        stated = pa.concat_tables([make_ids(selection.ledgers), deletes.records.select(list(IDS))])
        records, present = self._drop_present(records, stated)
        self._keep_tombstones(opened, records)
        records = self._drop(records, find_ids(records, make_ids(list(self._kept))))
        records, parsed = self._drop_unusable(records)
        answer |= {
            "present": present,
            "kept": dict(sorted(self._kept.items(), key=lambda item: (item[0].scope, item[0].ledger))),
            **_find_span(deletes, records),
        }
        if not records.num_rows:
            return Undeleted(**answer)
        return self._write(records, parsed, deletes, earlier, as_captured, answer)

    def _read_nodes(self, match: TopicMatch) -> topics.EarlierNodes:
        with self._context.reporter.progress("reading what the history has of topics", "sources"):
            return topics.read_nodes(self._sources, match)

    def _tell_deletes(self, deletes: Deletes, wanted: WantedDeletes) -> dict[str, Any]:
        """Say who deleted how much, and of the chosen sessions when."""
        gone = deletes.events.filter(deletes.events["is_delete"])
        of_sessions = deletes.all_deletes.filter(pa.array(wanted.is_of_session(deletes.all_deletes["session"])))
        inside = wanted.find_in_window(of_sessions["txn"], of_sessions["at_ms"])
        if not self._selection.is_complete:
            inside[:] = False
        return {
            "sessions": count_sessions(gone),
            "bars": draw_bars(of_sessions["at_ms"], inside),
            "gaps": tuple(
                dict.fromkeys([*(gap for source in self._sources for gap in source.point.gaps), *deletes.gaps])
            ),
            "notes": tuple(note for source in self._sources for note in source.point.notes),
            "forgets": any(source.is_target for source in self._sources) and is_live(self._target.opened.uri),
        }

    def _find_records(self, deletes: Deletes, wanted: WantedDeletes) -> tuple[pa.Table, pa.Table]:
        """Return `RECORDS` of all that are meant, raw null: not known; and scope and ledger of those of a copy."""
        deleted = deletes.records
        later = _find_later(deletes.events, deleted)
        for row, event in later:
            ledger = LedgerId(row["scope"], row["ledger"])
            reason = NotRestored.DELETED_AGAIN if event["is_delete"] else NotRestored.MADE_AGAIN
            self._kept[ledger] = KeptLedger(reason=reason, detail=f"transaction {event['txn']:#x}")
        known = deleted.filter(pc.is_valid(deleted["raw"]))
        named = make_ids(self._selection.ledgers)
        lacking = pa.concat_tables([deleted.filter(pc.is_null(deleted["raw"])).select(list(IDS)), wanted.ids])
        lacking = lacking.group_by(list(IDS)).aggregate([])
        lacking = lacking.filter(pa.array(~find_ids(lacking, known)))
        copied = RECORDS.empty_table()
        outside = self._list_outside(deletes)
        if lacking.num_rows or wanted.topic is not None:
            with self._context.reporter.progress("reading copies of the store", "sources"):
                for rows in read_copies(self._sources, wanted, lacking):
                    fresh = ~find_ids(rows, known) & ~find_ids(rows, copied) & ~find_ids(rows, outside)
                    copied = pa.concat_tables([copied, rows.filter(pa.array(fresh))])
        # Of ids that only a topic's record names nothing is said: retention deleted them long ago.
        stated = pa.concat_tables([named, deleted.select(list(IDS))]).group_by(list(IDS)).aggregate([])
        records = pa.concat_tables([known, copied])
        unknown = stated.filter(pa.array(~find_ids(stated, records)))
        nothing = pa.table({**{name: unknown[name] for name in IDS}, "txn": pa.array([0] * unknown.num_rows)})
        nothing = nothing.append_column("raw", pa.nulls(unknown.num_rows, pa.binary()))
        return pa.concat_tables([records, nothing.cast(RECORDS)]), copied.select(list(IDS))

    def _list_outside(self, deletes: Deletes) -> pa.Table:
        """Return scope and ledger of those that were deleted outside the window, unless a person named them."""
        gone = deletes.events.filter(deletes.events["is_delete"]).select(list(IDS))
        if self._selection.begin is None and self._selection.end is None:
            return gone.slice(0, 0)
        meant = find_ids(gone, deletes.records) | find_ids(gone, make_ids(self._selection.ledgers))
        return gone.filter(pa.array(~meant))

    def _drop_present(self, records: pa.Table, meant: pa.Table) -> tuple[pa.Table, tuple[LedgerId, ...]]:
        """Return the records of ledgers that the store lacks, and the ledgers that it has as they were.

        Args:
            records: `RECORDS`.
            meant: scope and ledger of those that were deleted, or named one by one.
        """
        layout, root = self._target.layout, self._target.root
        placeless = find_placeless(layout, records["scope"].to_numpy(), records["ledger"].to_numpy())
        records = self._drop(records, placeless, NotRestored.NO_PLACE)
        keys = ledger_keys(layout, records["scope"].to_numpy(), records["ledger"].to_numpy()).to_pylist()
        with self._context.reporter.progress("asking the store for these ledgers", "ledgers"):
            stored = dict(self._target.opened.store.get_many([root + key for key in keys]))
        raws = [None if (node := stored[root + key]) is None else node.value for key in keys]
        is_there = np.array([raw is not None for raw in raws], np.bool_)
        pairs = zip(raws, records["raw"].to_pylist(), strict=True)
        is_same = np.array([raw is not None and raw == own for raw, own in pairs], np.bool_)
        # What is chosen by its topic alone was never deleted.
        is_same |= is_there & ~find_ids(records, meant)
        present = tuple(_list_ledgers(records.filter(pa.array(is_same))))
        return self._drop(self._drop(records, is_same), (is_there & ~is_same)[~is_same], NotRestored.IN_STORE), present

    def _drop(self, records: pa.Table, mask: Mask, reason: NotRestored | None = None) -> pa.Table:
        """Return records without some; of these it is said why, where a reason is given."""
        if reason is not None:
            for ledger in _list_ledgers(records.filter(pa.array(mask))):
                self._kept[ledger] = KeptLedger(reason=reason)
        return records.filter(pa.array(~mask))

    def _keep_tombstones(self, opened: Sequence[OpenStore], records: pa.Table) -> None:
        """Refuse what bkmeta purged, as tombstones beside the store and beside its copies say."""
        deleted: list[References] = []
        for copy in (self._target.opened, *opened):
            deleted += find_deleted(copy, self._target.instances)
        for references in deleted:
            for where, why in references.unreadable:
                problem = f"holds tombstones that cannot be read ({why}): what was purged is not known"
                raise InputError(where, problem, "leave this copy out, or see what is there: bkmeta tombstones list")
            rows = references.rows.filter(pa.array(find_ids(references.rows, records)))
            for row in rows.select([*IDS, "tombstone"]).to_pylist():
                kept = KeptLedger(reason=NotRestored.TOMBSTONE, detail=row["tombstone"])
                self._kept[LedgerId(row["scope"], row["ledger"])] = kept

    def _drop_unusable(self, records: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return the records that can be written, in the order of a plan, and what they say."""
        records = self._drop(records, pc.is_null(records["raw"]).to_numpy(), NotRestored.NOT_KNOWN)
        scope, ledger = records["scope"].to_numpy(), records["ledger"].to_numpy()
        records = sort_by_key(records.append_column("bucket", pa.array(buckets(scope, ledger))))
        parsed = decode_columns(records["raw"].combine_chunks())
        bad = pc.is_valid(parsed["error"]).to_numpy(zero_copy_only=False)
        holds = is_hold(parsed) | is_named(parsed)
        self._drop(records, bad, NotRestored.UNPARSABLE)
        self._drop(records, holds & ~bad, NotRestored.HOLD)
        good = pa.array(~(bad | holds))
        return records.filter(good), parsed.filter(good)

    def _write(
        self,
        records: pa.Table,
        parsed: pa.Table,
        deletes: Deletes,
        earlier: topics.EarlierNodes,
        as_captured: pa.Table,
        answer: dict[str, Any],
    ) -> Undeleted:
        """Write the plan of records, in their order, and its report."""
        copied = find_ids(records, as_captured)
        is_open = pc.not_equal(parsed["state"], _CLOSED).to_numpy(zero_copy_only=False)
        states = parsed["state"].to_pylist()
        for place in np.flatnonzero(copied & is_open).tolist():
            row = records.slice(place, 1).to_pylist()[0]
            kept = KeptLedger(reason=NotRestored.NOT_CLOSED, detail=f"{states[place]} at transaction {row['txn']:#x}")
            answer["kept"][LedgerId(row["scope"], row["ledger"])] = kept
        good = pa.array(~(copied & is_open))
        records, parsed, copied, is_open = records.filter(good), parsed.filter(good), copied[good], is_open[good]
        if not records.num_rows:
            return Undeleted(**answer)
        catalog = _make_catalog(records, parsed)
        owners = _name_owners(catalog)
        nodes = self._find_nodes(owners, earlier)
        is_trimmed = self._find_trimmed(catalog, owners, nodes)
        for ledger in _list_ledgers(catalog.filter(pa.array(is_trimmed))):
            answer["kept"][ledger] = KeptLedger(reason=NotRestored.TRIMMED, detail=owners[ledger])
        catalog, copied, is_open = catalog.filter(pa.array(~is_trimmed)), copied[~is_trimmed], is_open[~is_trimmed]
        if not catalog.num_rows:
            return Undeleted(**answer)
        counts = self._count_topics(catalog, owners, nodes)
        on_bookies = self._find_on_bookies(catalog)
        parts = PlanParts(
            catalog=catalog,
            copied=copied,
            deletes=deletes.events.filter(deletes.events["is_delete"]),
            on_bookies=on_bookies,
            nodes=nodes,
            source=earlier.source,
        )
        opened = self._target.opened
        manifest = write_plan(
            self._request, parts, opened.store, self._target.root, self._target.layout, self._target.instances,
            _list_histories(self._sources, deletes), self._inventories, self._context.now(),
        )  # fmt: skip
        # Templates are loaded where there is a page to write.
        from reconcile.report.pages import plan_page, write_page  # noqa: PLC0415 - see above

        plan = open_dataset(self._request.out, "plan")
        verdict, made = describe_plan(manifest), self._context.now()
        write_page(self._request.out, lambda: plan_page(plan, self._inventories, verdict=verdict, made=made))
        is_empty = pc.fill_null(pc.equal(catalog["last_entry"], NO_ENTRY), fill_value=False).to_numpy()
        return Undeleted(
            plan=plan,
            manifest=manifest,
            empty=int(is_empty.sum()),
            not_closed=int(is_open.sum()),
            as_captured=int(copied.sum()),
            gone=int((~on_bookies & ~is_empty).sum()) if self._inventories else None,
            topics=counts,
            back=list_topics_back(plan, _TOPICS, by_records=True),
            **answer,
        )

    def _find_on_bookies(self, catalog: pa.Table) -> Mask:
        """Say of which ledgers an inventory has anything."""
        is_held = np.zeros(catalog.num_rows, np.bool_)
        for inventory in self._inventories:
            for batch in inventory.batches("copies", [*IDS]):
                is_held |= find_ids(catalog, batch)
        return is_held

    def _find_nodes(self, owners: Mapping[LedgerId, str], earlier: topics.EarlierNodes) -> topics.NodeWrites | None:
        """Return what becomes of the nodes of the ledgers' topics; None: there are none."""
        names = frozenset(owners.values())
        if not kind_of(self._target.layout).has_pulsar or not (names or earlier.nodes):
            return None
        if self._selection.topic is None:
            earlier = self._read_nodes(TopicMatch(frozenset(topics.list_names(names)).__contains__))
        return topics.write_nodes(self._target.opened.store, self._target.root, earlier, names)

    def _find_trimmed(self, catalog: pa.Table, owners: Mapping[LedgerId, str], nodes: topics.NodeWrites | None) -> Mask:
        """Say which ledgers, chosen by their topic alone, its last record no longer named: retention deleted them."""
        ledgers = _list_ledgers(catalog)
        has_window = self._selection.begin is not None or self._selection.end is not None
        if self._selection.topic is None or has_window or nodes is None:
            return np.zeros(len(ledgers), np.bool_)
        known = nodes.named_before
        nothing: frozenset[int] = frozenset()
        # A schema that went long before its topic has no node that comes back: its ledgers stay deleted, too.
        by_owner = {**dict.fromkeys(filter(topics.is_schema, owners.values()), nothing), **known}
        named = [by_owner.get(owners.get(ledger, "")) for ledger in ledgers]
        flags = [ids is not None and ledger.ledger not in ids for ids, ledger in zip(named, ledgers, strict=True)]
        return np.array(flags, np.bool_)

    def _count_topics(
        self, catalog: pa.Table, owners: Mapping[LedgerId, str], nodes: topics.NodeWrites | None
    ) -> TopicCounts:
        """Count what becomes of the records of topics, and which ledgers no record names."""
        if nodes is None:
            return TopicCounts()
        nothing: frozenset[int] = frozenset()
        unnamed = {
            ledger: owners[ledger]
            for ledger in _list_ledgers(catalog)
            if ledger in owners and ledger.ledger not in nodes.named.get(owners[ledger], nothing)
        }
        missing = self._find_missing(nodes.brought, catalog)
        return TopicCounts(created=nodes.created, differing=nodes.differing, unnamed=unnamed, missing=missing)

    def _find_missing(self, named: frozenset[int], catalog: pa.Table) -> tuple[LedgerId, ...]:
        """Return which of some ledgers neither the plan nor the store has."""
        ledgers = make_ids([LedgerId(0, number) for number in sorted(named)])
        ledgers = ledgers.filter(pa.array(~find_ids(ledgers, catalog)))
        keys = ledger_keys(self._target.layout, ledgers["scope"].to_numpy(), ledgers["ledger"].to_numpy())
        paths = [self._target.root + key for key in keys.to_pylist()]
        stored = dict(self._target.opened.store.get_many(paths))
        rows = zip(_list_ledgers(ledgers), paths, strict=True)
        return tuple(ledger for ledger, path in rows if stored[path] is None)


def _find_later(events: pa.Table, deleted: pa.Table) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Return the deletes after which something else happened to the ledger, each with what did."""
    if not deleted.num_rows:
        return []
    later = events.rename_columns({"txn": "last_txn"}).select([*IDS, "last_txn", "is_delete"])
    joined = deleted.select([*IDS, "txn"]).join(later, list(IDS), join_type="inner")
    rows = joined.filter(pc.greater(joined["last_txn"], joined["txn"])).to_pylist()
    return [(row, {"txn": row["last_txn"], "is_delete": row["is_delete"]}) for row in rows]


def _find_span(deletes: Deletes, records: pa.Table) -> dict[str, int | None]:
    """Return when the first and the last of some ledgers was deleted."""
    gone = deletes.events.filter(deletes.events["is_delete"])
    span = pc.min_max(gone["at_ms"].filter(pa.array(find_ids(gone, records)))).as_py()
    return {"first_at_ms": span["min"], "last_at_ms": span["max"]}


def _list_ledgers(rows: pa.Table) -> list[LedgerId]:
    return [LedgerId(row["scope"], row["ledger"]) for row in rows.select(list(IDS)).to_pylist()]


def _name_owners(catalog: pa.Table) -> dict[LedgerId, str]:
    """Return whose each ledger is, as its record says: a topic's, its subscriptions' states too, or a schema's."""
    owners: dict[LedgerId, str] = {}
    for ledger, custom in zip(_list_ledgers(catalog), catalog["custom"].to_pylist(), strict=True):
        use = name_use(custom or ())
        if use is not None and (use[1] == TOPIC or use[1].startswith(CURSOR)):
            owners[ledger] = use[0]
        elif use is not None and use[1] == SCHEMA:
            owners[ledger] = topics.name_schema(use[0])
    return owners


def _make_catalog(records: pa.Table, parsed: pa.Table) -> pa.Table:
    """Return records as CATALOG_LEDGERS; what only a store knows of them is null."""
    given = {**{name: records[name] for name in (*tables.KEY_COLUMNS, "raw")}}
    given |= {name: parsed[name] for name in parsed.column_names}
    count = records.num_rows
    given["version"] = pa.array(np.zeros(count, np.int64))
    columns = {field.name: given.get(field.name, pa.nulls(count, field.type)) for field in tables.CATALOG_LEDGERS}
    return pa.table(columns, schema=tables.CATALOG_LEDGERS)


def _list_histories(sources: Sequence[OpenHistory], deletes: Deletes) -> list[tuple[str, int | None]]:
    return [(source.uri, source.point.txn) for source in sources] if deletes.all_deletes.num_rows else []
