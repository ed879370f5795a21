"""Orphans searched for: the store and its references listed twice, bookies' inventories, earlier copies of the store.

folder             holds
findings/          FINDINGS: UNREFERENCED, DATA_WITHOUT_RECORD, DELETED_OUTSIDE, LISTING_INCOMPLETE
candidates.jsonl   ledgers whose delete may be asked for, as `delete request --from` takes them
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backends.registry import OpenStore
from reconcile import clusters
from reconcile.check.listing import list_known_ledgers
from reconcile.check.scrutiny.bookie_findings import list_listing_doubts
from reconcile.check.scrutiny.lifecycle import Lifecycle
from reconcile.check.scrutiny.unlisted import raise_old
from reconcile.clusters import open_inventories
from reconcile.deletes.orphans import LISTED_ONCE, TOMBSTONES, Orphans, Sides, find_orphans
from reconcile.deletes.tombstones import REMOVED, SECOND_MS, Tombstone
from reconcile.deletes.verification.absence import Absence
from reconcile.deletes.verification.evidence import ReferenceListing
from reconcile.deletes.verification.objections import UnsafeReason
from reconcile.findings.categories import Category
from reconcile.findings.table import FindingRun, make_rows
from reconcile.jobs.capture import capture_store
from reconcile.jobs.collect.tables import with_tables
from reconcile.jobs.context import Context, connect, now_ms, throttle
from reconcile.jobs.deletes.clusters import read_own_root
from reconcile.jobs.deletes.listings import find_moment, list_references, measure_since_listing
from reconcile.jobs.deletes.resurrection import read_removed
from reconcile.jobs.orphans.last_writes import read_last_writes
from reconcile.jobs.orphans.request import CANDIDATES, FoundOrphans, OrphansRequest
from reconcile.rules.sides import pick_newest_records
from reconcile.stores import catalog_path, is_backup, is_live, of_catalog, split_backup
from reconcile.words import list_names
from recovery.dataset import (
    SPILL,
    Dataset,
    open_dataset,
    prepare,
    read_inventories,
    sort_by_key,
    write_manifest,
    write_part,
)
from recovery.errors import InputError
from recovery.manifest import Part
from recovery.model import tables
from recovery.model.ids import bucket_ranges, buckets
from recovery.out_folder import write_whole
from recovery.place import DatasetPlace, remove_tree

_KIND: Final = "orphans"


@dataclass(frozen=True, slots=True, eq=False)
class _Gathered:
    """Everything that was looked at; see `Sides`.

    `behind` names bookies that were collected after the moment that a copy of the store shows: what they hold may be
    younger.
    """

    captures: tuple[Dataset, Dataset]
    listings: tuple[ReferenceListing, ReferenceListing]
    inventories: tuple[Dataset, ...]
    behind: tuple[str, ...]
    earlier: tuple[Dataset, ...]
    tombstones: pa.Table
    previous: Dataset | None
    damaged: tuple[str, ...]
    absence: Absence | None

    @property
    def gaps(self) -> list[str]:
        """What of the store was not listed."""
        rows = [row for dataset in self.captures for row in dataset.read("sources").to_pylist()]
        missing = [gap for row in rows for gap in row["gaps"]]
        return list(dict.fromkeys([*missing, *("its root is missing" for row in rows if row["root"] != "present")]))

    @property
    def has_earlier(self) -> bool:
        """Whether anything shows what the store held earlier."""
        return bool(self.earlier) or bool(self.captures[1].rows("history"))


def look_for_orphans(request: OrphansRequest, context: Context) -> FoundOrphans:
    """Look for orphans, and write what is found into the folder of the run; the store is only read.

    Raises:
        DatasetError: an inventory, a capture or the run before is damaged, or the run cannot be written.
        GuardRefusedError: what is at the key of our own root is not ours.
        InputError: a file cannot be used, no ledgers root, or two clusters.
        UnavailableError: the store does not answer.
    """
    with with_tables(request.inventories, context.now()) as folders:
        return _look_for_orphans(replace(request, inventories=folders), context)


def _look_for_orphans(request: OrphansRequest, context: Context) -> FoundOrphans:
    inventories = open_inventories(request.inventories)
    previous = None if request.since is None else open_dataset(request.since, _KIND)
    prepare(request.out, _KIND, secret=True)
    began = context.now()
    run = FindingRun(began.isoformat(timespec="seconds"), began)
    try:
        with connect(request.uri, context) as opened:
            gathered = _gather(request, opened, inventories, previous, context)
        instance_id = _read_instance(gathered.captures[1])
        answer, parts = _judge(request, gathered, run, context)
    finally:
        # Captures hold passwords: they stay no longer than they are read.
        remove_tree(request.out / SPILL)
    write_manifest(
        request.out,
        _KIND,
        {"findings": parts},
        binding={"uri": request.uri, "made": run.name, "instance_id": instance_id},
        coverage={"listed": answer.listed, "undecided": answer.undecided, "left_out": dict(answer.left_out)},
        secret=True,
        extra={
            "settings": dict(request.settings),
            "references_listed_ms": [listing.at_ms for listing in gathered.listings],
            "found": {category: dict(counted) for category, counted in answer.found.items()},
        },
    )
    return answer


def _gather(
    request: OrphansRequest,
    opened: OpenStore,
    inventories: tuple[Dataset, ...],
    previous: Dataset | None,
    context: Context,
) -> _Gathered:
    spill = request.out / SPILL
    spill.mkdir(mode=0o700, exist_ok=True)
    first_listing = list_references(request.references, opened, context).listing
    first = _capture(opened, spill / "first", context, ())
    earlier = tuple(_open_earlier(uri, spill / f"earlier-{n}", context) for n, uri in enumerate(request.earlier))
    second_listing = list_references(request.references, opened, context).listing
    second = _capture(opened, spill / "second", context, inventories)
    if second.read("sources")["root"].to_pylist() == ["missing"] and not earlier and not inventories:
        raise InputError(request.uri, "has no ledgers root", "name the root of the cluster's ledgers")
    own = read_own_root(opened)
    known = [] if own is None else [_make_keys(node) for node in own.tombstones.read_all()]
    damaged: list[str] = []
    for uri, catalog in zip(request.earlier, earlier, strict=True):
        # Tombstones that expired since are in copies.
        instances = [instance for instance in (_read_instance(second),) if instance]
        nodes = read_removed(of_catalog(catalog, uri), instances, lambda key, why: damaged.append(f"{key} ({why})"))
        known += [_make_keys(node) for node in nodes or ()]
    sources = [_name_source(request.uri, second), *clusters.of_bookies(_read_bookies(inventories))]
    sources += [_name_source(uri, dataset) for uri, dataset in zip(request.earlier, earlier, strict=True)]
    if previous is not None:
        sources.append(
            clusters.InstanceSource(f"the run {previous.path}", previous.manifest["binding"].get("instance_id"))
        )
    clusters.require_one(sources)
    listings = (first_listing, second_listing)
    backups = [uri for uri in (request.uri, *request.earlier) if is_backup(uri) and split_backup(uri)[1] is None]
    absence = measure_since_listing(opened, own, second, now_ms(context), next(iter(backups), None))
    older, behind = _place_inventories(inventories, opened)
    return _Gathered(
        (first, second), listings, older, behind, earlier, _unite(known), previous, tuple(damaged), absence
    )


def _place_inventories(
    inventories: Sequence[Dataset], opened: OpenStore
) -> tuple[tuple[Dataset, ...], tuple[str, ...]]:
    """Return the inventories that a store is later than, and the bookies of the others."""
    if is_live(opened.uri):
        return tuple(inventories), ()
    older, behind, shown_ms = list[Dataset](), list[str](), find_moment(opened)
    for inventory in inventories:
        [row] = inventory.read("bookies", columns=["bookie", "ended"]).to_pylist()
        if shown_ms is not None and row["ended"].timestamp() * SECOND_MS <= shown_ms:
            older.append(inventory)
        else:
            behind.append(row["bookie"])
    return tuple(older), tuple(behind)


def _capture(opened: OpenStore, folder: DatasetPlace, context: Context, inventories: Sequence[Dataset]) -> Dataset:
    # What bookies hold and no listing names is asked for before anybody calls it gone.
    known = list_known_ledgers(inventories)
    capture_store(opened, folder, context, known, with_rights=False, with_own_root=False)
    return open_dataset(folder, "catalog")


def _open_earlier(uri: str, folder: DatasetPlace, context: Context) -> Dataset:
    path = catalog_path(uri)
    if path is None:
        with connect(uri, context) as opened:
            capture_store(opened, folder, context)
    return open_dataset(folder if path is None else path, "catalog")


def _name_source(uri: str, catalog: Dataset) -> clusters.InstanceSource:
    return clusters.of_catalog(uri, catalog.read("sources"), catalog.read("nodes", columns=["path", "kind", "raw"]))


def _read_instance(catalog: Dataset) -> str | None:
    return next(iter(catalog.read("sources")["instance_id"].to_pylist()), None)


def _read_bookies(inventories: Sequence[Dataset]) -> pa.Table:
    return read_inventories(inventories, "bookies")


def _make_keys(tombstones: Sequence[Tombstone]) -> pa.Table:
    """Return the ledgers of a node's tombstones as columns."""
    scope = np.array([item.ledger.scope for item in tombstones], np.int64)
    ledger = np.array([item.ledger.ledger for item in tombstones], np.int64)
    removed = np.array([item.state in REMOVED for item in tombstones], np.bool_)
    return pa.table(
        [pa.array(column) for column in (buckets(scope, ledger), scope, ledger, removed)], schema=TOMBSTONES
    )


def _unite(parts: Sequence[pa.Table]) -> pa.Table:
    """Return the ledgers of all tombstones, each once; removed, where any says so."""
    rows = pa.concat_tables([TOMBSTONES.empty_table(), *parts])
    rows = rows.group_by(list(tables.KEY_COLUMNS)).aggregate([("removed", "max")])
    return sort_by_key(rows.rename_columns(TOMBSTONES.names).cast(TOMBSTONES))


def _judge(
    request: OrphansRequest, gathered: _Gathered, run: FindingRun, context: Context
) -> tuple[FoundOrphans, list[Part]]:
    answer, parts = FoundOrphans(listed=gathered.captures[1].rows("ledgers")), []
    gaps, lifecycle, known = gathered.gaps, Lifecycle(_read_first_seen(gathered.previous)), _read_known(gathered)
    rows = answer.listed + sum(dataset.rows("copies") for dataset in gathered.inventories)
    ranges = bucket_ranges(rows)
    with (
        write_whole(request.out / CANDIDATES, secret=True) as candidates,
        context.reporter.progress("looking for orphans", "parts") as progress,
    ):
        show = throttle(progress)
        for number, part in enumerate(ranges, 1):
            orphans = _find_range(request, gathered, known, part, run, lists_all=not gaps)
            rows_found = lifecycle.apply(orphans.findings)
            rows_found = raise_old(rows_found, run, request.min_age_ms / SECOND_MS)
            parts.append(
                write_part(request.out, "findings", f"buckets-{part.start:04d}", [sort_by_key(rows_found)], secret=True)
            )
            answer.take(rows_found)
            answer.left_out += orphans.left_out
            answer.candidates += orphans.candidates.num_rows
            candidates.sink.writelines(_describe_candidates(orphans.candidates))
            show(number, len(ranges))
    vanished, listed = (
        answer.count(Category.DELETED_OUTSIDE),
        max((dataset.rows("ledgers") for dataset in gathered.earlier), default=0),
    )
    if gathered.absence is not None and gathered.absence.is_mass and gathered.absence.gone > vanished:
        vanished, listed = gathered.absence.gone, gathered.absence.listed
    doubts = make_rows(list_listing_doubts(gaps, vanished, listed), run)
    answer.take(doubts)
    parts.append(write_part(request.out, "findings", "beside", [doubts], secret=True))
    answer.undecided = _list_undecided(gathered, gaps, answer)
    return answer, parts


def _find_range(
    request: OrphansRequest, gathered: _Gathered, known: pa.Table, part: range, run: FindingRun, *, lists_all: bool
) -> Orphans:
    first, second = (capture.read("ledgers", buckets=part) for capture in gathered.captures)
    copies = [dataset.read("copies", buckets=part) for dataset in gathered.inventories]
    catalogs = [(dataset.read("ledgers", buckets=part), _read_txn(dataset)) for dataset in gathered.earlier]
    catalogs.sort(key=lambda pair: -1 if pair[1] is None else pair[1], reverse=True)
    histories = [dataset.read("history", buckets=part) for dataset in (*gathered.earlier, gathered.captures[1])]
    sides = Sides(
        (first, second),
        pa.concat_tables([tables.COPIES.empty_table(), *copies]),
        pick_newest_records(catalogs),
        pa.concat_tables(histories),
        _cut(gathered.tombstones, part),
        _cut(known, part),
        sort_by_key(read_last_writes(gathered.inventories, part)),
    )
    first_listing, second_listing = (_cut_listing(listing, part) for listing in gathered.listings)
    return find_orphans(
        sides,
        (first_listing, second_listing),
        request.min_age_ms,
        run,
        lists_all=lists_all,
        has_earlier=gathered.has_earlier,
    )


def _cut(rows: pa.Table, part: range) -> pa.Table:
    """Return the rows of a bucket range, of a table in key order."""
    low, high = np.searchsorted(rows["bucket"].to_numpy(), [part.start, part.stop]).tolist()
    return rows.slice(low, high - low)


def _cut_listing(listing: ReferenceListing, part: range) -> ReferenceListing:
    if listing.references is None:
        return listing
    return replace(listing, references=replace(listing.references, rows=_cut(listing.references.rows, part)))


def _read_txn(catalog: Dataset) -> int | None:
    return next(iter(catalog.read("sources")["txn"].to_pylist()), None)


def _read_first_seen(previous: Dataset | None) -> dict[bytes, datetime] | None:
    if previous is None:
        return None
    rows = previous.read("findings", columns=["id", "first_seen"])
    return dict(zip(rows["id"].to_pylist(), rows["first_seen"].to_pylist(), strict=True))


def _read_known(gathered: _Gathered) -> pa.Table:
    """Return the ledgers that the run before found unreferenced, if its references were listed before this run's."""
    keys = list(tables.KEY_COLUMNS)
    previous = gathered.previous
    empty = tables.FINDINGS.empty_table().select(keys)
    if previous is None or max(previous.manifest["references_listed_ms"]) >= gathered.listings[0].at_ms:
        return empty
    rows = previous.read("findings", columns=[*keys, "category"])
    return sort_by_key(rows.filter(pc.equal(rows["category"], Category.UNREFERENCED)).select(keys))


def _describe_candidates(keys: pa.Table) -> Iterator[bytes]:
    for scope, ledger in zip(keys["scope"].to_pylist(), keys["ledger"].to_pylist(), strict=True):
        yield json.dumps({"ledger": ledger, **({"scope": scope} if scope else {})}).encode() + b"\n"


def _list_undecided(gathered: _Gathered, gaps: Sequence[str], answer: FoundOrphans) -> list[str]:
    """Return what could not be looked at, in words."""
    undecided = [f"the store was not listed completely: {gap}" for gap in gaps[:1]]
    if gathered.absence is not None and gathered.absence.is_mass:
        undecided.append(
            f"{gathered.absence.gone} of the {gathered.absence.listed} ledgers that the last verification listed are "
            "gone, and not by a purge: what names the others may be gone, too. A backup of the store, named as an "
            "earlier copy, explains those that others deleted"
        )
    if gathered.behind:
        undecided.append(
            f"data without a record was not searched for on {list_names(gathered.behind)}: collected after the moment "
            "that this copy of the store shows; name a later copy, or the store"
        )
    undecided += [f"tombstones of an earlier copy cannot be read: {where}" for where in gathered.damaged[:1]]
    undecided += dict.fromkeys(listing.problem for listing in gathered.listings if listing.problem)
    if answer.left_out[UnsafeReason.REFERENCES_UNKNOWN] and all(
        listing.references is None for listing in gathered.listings
    ):
        undecided.append("no upper layer was named: an empty file of references says that there is none")
    if answer.left_out[LISTED_ONCE]:
        undecided.append(
            f"references were listed once for {answer.left_out[LISTED_ONCE]} ledgers: list them again, and look again "
            "with this run as the one before"
        )
    return undecided
