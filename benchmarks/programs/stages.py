"""Stages of the product, and floors that need Spark, as programs: each prints what it took as JSON.

    capture URI OUT                 a store into a catalog
    etcd URI OUT                    a live etcd likewise
    etcd-answers HOSTS ROOT         the same pages of a live etcd asked for, and dropped as they come
    follow URI PLACE REVISION       a backup of a live etcd that goes on, from its last seal until a revision is sealed
    backup-point PLACE OUT          the last point in time of a backup, as a catalog
    backup-group PLACE OUT          DuckDB finds the last change of each key in the same segments, and copies the base
    apply PLAN URI ROOT JOURNAL     a plan into a store
    infer INVENTORIES               nothing but `reconstruct`, on one core, copies read beforehand
    index FOLDER N OF               a share of the index files of one bookie, into groups that are thrown away
    log FILE, journal FILE          one entry log or journal, into groups that are thrown away
    locations FOLDER N OF           a share of one database of locations, likewise
    wire LEDGERS REQUESTS ADDRESS…  lists of entries of running bookies, decoded
    archive URI OUT                 ledgers of running bookies copied into an archive, by one process
    impact CATALOG                  `check-impact` of every rack alone, by one process
    impact-spread CATALOG           the same by Spark, its start counted
    impact-pass CATALOG             pyarrow reads the same columns and counts how often each bookie is named
    page PLAN INVENTORIES           the report of a plan
    recover INVENTORIES OUT         stays: `recover` once for each line that it is given
    pass-through INVENTORIES        stays: Spark reads the same files and hands every row to Python and back
    group INVENTORIES OUT           stays: DuckDB gathers, ledger by ledger, what inference takes from the same files
    group-flat INVENTORIES OUT      stays: the same of columns without lists, as sums, least and most
    diff CATALOGS OUT               stays: `recover` that compares the catalog `now` with `earlier`
    scrutinize URI                  a whole scrutiny of a running cluster
    scrutiny-rules INVENTORIES CATALOGS OUT   stays: the rules of a scrutiny alone, by Spark
    scrutiny-read INVENTORIES CATALOGS        stays: Spark reads the same files and hands every row to Python and back
    outer-join CATALOGS             stays: Spark joins both, and counts what is equal, other, and on one side only

`seconds` and `cpu_s` are the work alone, without the start of the interpreter, imports and the Spark session.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.data import catalogs
from benchmarks.data.ledgers import BOOKIES, PASSWORD
from benchmarks.data.plans import LAYOUT
from benchmarks.programs import scrutinies
from recovery.dataset import Dataset, DatasetWriter, open_dataset

MASTER: Final = "local[2]"
_BATCH_ROWS: Final = "65536"
_DUCKDB: Final[dict[str, Any]] = {"threads": 2, "memory_limit": "2GB"}
_LISTS: Final = 4096
"""Answers that are decoded together."""


def _now() -> datetime:
    return datetime.now(UTC)


def _timed(work: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    # The first array makes Arrow import pandas, where that is installed.
    pa.array(np.zeros(0))
    began, used = time.perf_counter(), sum(os.times()[:4])
    said = work()
    return {"seconds": time.perf_counter() - began, "cpu_s": sum(os.times()[:4]) - used, **said}


def _inventories(folder: str) -> list[str]:
    return [str(path) for path in sorted(Path(folder).iterdir())]


def capture(uri: str, out: str) -> dict[str, Any]:
    """Capture a store."""
    from backends.registry import open_store
    from recovery.capture.live import capture as run
    from recovery.codecs.store import Layout

    def work() -> Mapping[str, Any]:
        with (
            open_store(uri) as opened,
            DatasetWriter(Path(out), "catalog", binding={"uri": uri}, secret=True) as writer,
        ):
            layout = Layout(opened.layout_hint or LAYOUT)
            summary = run(opened.store, opened.root, layout, writer, clock=_now)
        return {"ledgers": summary.ledgers, "complete": summary.complete}

    return _timed(work)


def etcd(uri: str, out: str) -> dict[str, Any]:
    """Take the ledgers out of a live etcd, likewise."""
    import pyarrow.parquet as pq

    import backends.etcd.store  # noqa: F401 - before the clock is read
    from backends.protocols import ScannableStore
    from backends.registry import open_store
    from recovery.codecs.keys import ledgers_of
    from recovery.codecs.store import Layout

    schema = pa.schema([("ledger", pa.int64()), ("version", pa.int64()), ("raw", pa.binary())])

    def work() -> Mapping[str, Any]:
        ledgers = 0
        with open_store(uri) as opened, pq.ParquetWriter(out, schema, use_dictionary=False) as writer:
            assert isinstance(opened.store, ScannableStore)  # noqa: S101 - etcd is one
            for batch in opened.store.scan(opened.root):
                found = ledgers_of(Layout.ETCD, pc.utf8_slice_codeunits(batch["key"], len(opened.root)))
                rows = batch.take(pa.array(found.rows))
                columns = [pa.array(found.ledger), rows["version"], rows["value"]]
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
                ledgers += len(found.rows)
            complete = not opened.store.point().gaps
        return {"ledgers": ledgers, "complete": complete}

    return _timed(work)


def follow(uri: str, place: str, revision: str) -> dict[str, Any]:
    """Follow a live etcd into a backup until a revision is sealed; 0: a base, and no more."""
    import threading
    from datetime import UTC, datetime, timedelta

    from reconcile.cli.output import Output
    from reconcile.jobs.backup.follow import FollowRequest, FollowStatus, follow_store
    from reconcile.jobs.context import Context
    from reconcile.stores import NOBODY

    ended = threading.Event()
    context = Context(NOBODY, Output(as_json=True, progress="none"), lambda: datetime.now(UTC))
    request = FollowRequest(uri, Path(place), base_every=timedelta(days=30))

    def report(status: FollowStatus) -> None:
        if status.through >= int(revision):
            ended.set()

    def work() -> Mapping[str, Any]:
        return {"ledgers": follow_store(request, context, ended, report).changes}

    return _timed(work)


def backup_point(place: str, out: str) -> dict[str, Any]:
    """Make a catalog of the last point in time of a backup."""
    from recovery.backup.chain import open_backup
    from recovery.backup.store import BackupStore
    from recovery.capture.live import capture as run

    shutil.rmtree(out, ignore_errors=True)

    def work() -> Mapping[str, Any]:
        store = BackupStore(open_backup(Path(place)))
        with DatasetWriter(Path(out), "catalog", binding={"root": store.root}, secret=True) as writer:
            summary = run(store, store.root, store.layout, writer, clock=_now, with_history=False)
        return {"ledgers": summary.ledgers, "complete": summary.complete}

    return _timed(work)


def backup_group(place: str, out: str) -> dict[str, Any]:
    """Find the last change of each key of a backup with DuckDB, and copy the base beside it, Parquet to Parquet."""
    import duckdb

    with duckdb.connect(config=_DUCKDB | {"temp_directory": f"{out}.spill"}) as database:

        def work() -> Mapping[str, Any]:
            last = (
                f"SELECT path, max_by(op, txn) AS op, max_by(after, txn) AS raw, max(txn) AS txn "  # noqa: S608 - our own names
                f"FROM read_parquet('{place}/segments/*.parquet') WHERE op <> 'children' GROUP BY path"
            )
            copy = f"COPY (SELECT * FROM ({last}) WHERE op <> 'deleted') TO '{out}' (FORMAT parquet)"  # noqa: S608 - as above
            rows = database.execute(copy).fetchall()
            base = f"SELECT * FROM read_parquet('{place}/bases/*/ledgers/*.parquet')"  # noqa: S608 - as above
            database.execute(f"COPY ({base}) TO '{out}.base' (FORMAT parquet)")
            return {"ledgers": rows[0][0]}

        return _timed(work)


def etcd_answers(hosts: str, root: str) -> dict[str, Any]:
    """Ask a live etcd for the pages that ledgers are on: what nothing that reads them so can take less than."""
    from backends.etcd import pages, rpc
    from backends.etcd.channel import Channel, PendingCall

    def work() -> Mapping[str, Any]:
        channel = Channel(hosts, uri=f"etcd://{hosts}", auth=None, tls=None, answer_s=30.0)

        def ask(request: Any) -> PendingCall:  # noqa: ANN401 - a message
            return channel.send(lambda client: client.kvstub.RangePage, request)

        def answer(_: Any, asked: PendingCall) -> Any:  # noqa: ANN401 - messages
            return channel.answer(asked, root)

        _, ledgers, _ = pages.ranges(root.encode())
        count_only = rpc.RangeRequest(key=root.encode(), count_only=True)
        revision = answer(count_only, ask(count_only)).header.revision
        keys = sum(len(page.kvs) for page in pages.read([ledgers], revision, ask, answer))
        channel.close()
        return {"ledgers": keys}

    return _timed(work)


def apply(plan: str, uri: str, root: str, journal: str) -> dict[str, Any]:
    """Apply a plan."""
    from backends.registry import open_store
    from reconcile.write import apply as engine

    dataset = open_dataset(plan, "plan")

    def work() -> Mapping[str, Any]:
        options = engine.ApplyOptions(plan_hash="benchmark")
        with open_store(uri, writable=True) as opened:
            found = engine.apply(
                lambda: dataset.batches("actions"), opened.store, root, Path(journal), options, now=_now
            )
        return {"ledgers": sum(t.written for t in found.tallies.values()), "code": found.exit_code}

    return _timed(work)


def impact(folder: str) -> dict[str, Any]:
    """Take every rack alone."""
    return _timed(lambda: _take_racks(folder, None))


def _take_racks(folder: str, master: str | None) -> dict[str, Any]:
    from benchmarks.data.impacts import AT, RACKS
    from reconcile.check.impact.names import DomainLevel
    from reconcile.cli.output import Output
    from reconcile.jobs.context import Context
    from reconcile.jobs.impact.check import check_impact
    from reconcile.jobs.impact.question import ImpactRequest
    from reconcile.stores import NOBODY

    context = Context(NOBODY, Output(as_json=True, progress="none"), lambda: AT)
    request = ImpactRequest(
        uri=f"catalog://{folder}", cache=Path(folder), topology=RACKS, drill=DomainLevel.RACK, master=master
    )
    answer = check_impact(request, context)
    if len(answer.drill) != len(set(RACKS.values())):
        raise ValueError(f"{len(answer.drill)} racks were taken")
    return {"ledgers": answer.ledgers, "verdict": answer.verdict, "spread": answer.spread}


def impact_spread(folder: str) -> dict[str, Any]:
    """Take every rack alone, by Spark."""
    return _timed(lambda: _take_racks(folder, MASTER))


def impact_pass(folder: str) -> dict[str, Any]:
    """Read the columns that the check reads, and count how often each bookie is named."""
    import pyarrow.parquet as pq

    from reconcile.check.impact.segments.columns import COLUMNS

    def work() -> Mapping[str, Any]:
        ledgers = 0
        counted: dict[str, int] = {}
        for path in sorted(Path(folder, "ledgers").iterdir()):
            rows = pq.read_table(path, columns=list(COLUMNS))
            segments = rows["segments"].combine_chunks().flatten()
            members = pc.struct_field(segments, "members").flatten()
            for item in pc.value_counts(members).to_pylist():
                counted[item["values"]] = counted.get(item["values"], 0) + item["counts"]
            ledgers += rows.num_rows
        return {"ledgers": ledgers, "bookies": len(counted)}

    return _timed(work)


def page(plan: str, folder: str) -> dict[str, Any]:
    """Make the report page of a plan."""
    from reconcile.plan.manifest import read_plan_manifest
    from reconcile.report.pages import plan_page
    from reconcile.report.plan_verdict import describe_plan

    def work() -> Mapping[str, Any]:
        made, inventories = (
            open_dataset(plan, "plan"),
            [open_dataset(path, "inventory") for path in _inventories(folder)],
        )
        manifest = read_plan_manifest(made)
        text = plan_page(made, inventories, verdict=describe_plan(manifest), made=_now())
        return {"ledgers": manifest.counts.ledgers, "characters": len(text)}

    return _timed(work)


def infer(folder: str) -> dict[str, Any]:
    """Reconstruct every ledger, in as many pieces as `recover` would cut."""
    from recovery.infer.prior import Prior, count_shapes
    from recovery.infer.reconstruct import InferOptions, reconstruct
    from recovery.model.ids import bucket_ranges

    pa.set_cpu_count(1)
    inventories = [open_dataset(path, "inventory") for path in _inventories(folder)]
    bookies, damage = (pa.concat_tables([i.read(name) for i in inventories]) for name in ("bookies", "damage"))
    options = InferOptions(passwords=(PASSWORD,))
    prior: Prior | None = None
    seconds, ledgers = 0.0, 0
    for buckets in bucket_ranges(sum(i.rows("copies") for i in inventories)):
        copies = pa.concat_tables([i.read("copies", buckets=buckets) for i in inventories])
        prior = prior or Prior.build(count_shapes(copies, bookies))
        began = time.perf_counter()
        ledgers += reconstruct(copies, bookies, damage, prior, options).num_rows
        seconds += time.perf_counter() - began
    return {"seconds": seconds, "ledgers": ledgers}


def index(folder: str, number: str, of: str) -> dict[str, Any]:
    """Read a share of the index files of a bookie: no entry log is looked at, and nothing is written."""
    from recovery.collect.disk.file_reader import Meter
    from recovery.collect.rows.damage import DamageList
    from recovery.collect.rows.index_slots import Block
    from recovery.collect.rows.ledger_facts import Interned
    from recovery.collect.rows.source_copies import Grouper, make_runs
    from recovery.collect.sources.index_files import IndexReader
    from recovery.collect.sources.index_folders import find_files, find_first_level

    def work() -> Mapping[str, Any]:
        ledgers = 0
        damage = DamageList()
        secrets = Interned()
        reader = IndexReader(Meter(None, lambda _progress: None), damage, secrets)
        levels = find_first_level([Path(folder)], damage)[int(number) :: int(of)]
        grouper = Grouper()
        for piece in reader.read(find_files(levels, damage, secrets.scopes, reader.ahead)):
            if isinstance(piece, Block):
                grouper.feed_groups(piece.groups)
                continue
            if len(piece.ledger):
                grouper.feed(make_runs(piece.ledger, piece.entry))
            ledgers += len(piece.facts)
        grouper.end()
        return {"ledgers": ledgers}

    return _timed(work)


def _records(file: str, scan: Callable[[memoryview], Iterator[Any]]) -> dict[str, Any]:
    from recovery.codecs.framing import Entries
    from recovery.collect.disk.file_reader import Mapped, Meter
    from recovery.collect.rows.scoped_ids import Scopes
    from recovery.collect.rows.source_copies import to_groups
    from recovery.collect.sources.entry_records import gather_batches

    def work() -> Mapping[str, Any]:
        entries = 0
        with Mapped(Path(file), Meter(None, lambda _progress: None)) as data:
            data.load()
            for part in gather_batches(scan(data.view), Scopes()):
                if isinstance(part, Entries):
                    to_groups(part.ledger, part.entry)
                    entries += len(part.ledger)
                    data.release(int(part.position[-1]))
        return {"entries": entries}

    return _timed(work)


def log(file: str) -> dict[str, Any]:
    """Go through an entry log."""
    from recovery.codecs.entry_log import scan_columns

    return _records(file, scan_columns)


def journal(file: str) -> dict[str, Any]:
    """Go through a journal."""
    from recovery.codecs.journal import scan_columns

    return _records(file, scan_columns)


def archive(uri: str, out: str) -> dict[str, Any]:
    """Copy every closed ledger of a cluster; a tenth of the buckets goes before that is not timed."""
    from backends.bookie.client import BookieOptions
    from backends.registry import open_store
    from reconcile.cli.options import make_context
    from reconcile.cli.output import Output
    from reconcile.jobs.capture import CaptureRequest, capture
    from recovery.archive.bookies import RunningSource
    from recovery.archive.choice import ArchiveChoice
    from recovery.archive.task import CopyTask
    from recovery.bookies.addresses import read_members
    from recovery.dataset import open_dataset
    from recovery.model.ids import BUCKETS

    folder = Path(out)
    capture(CaptureRequest(uri=uri, out=folder / "catalog"), make_context(Output(as_json=True, progress="none")))
    catalog = open_dataset(folder / "catalog", "catalog")
    with open_store(uri) as opened:
        members = read_members(opened.store, opened.root, None, {})
    addresses = {name: address for name in members.bookies if (address := members.find(name).address) is not None}
    source = RunningSource(addresses, {}, BookieOptions())
    warm = CopyTask(catalog, str(folder / "warm"), "warm", (), ArchiveChoice(int(time.time() * 1000)), source)
    warm(range(BUCKETS // 10))
    task = replace(warm, place=str(folder / "place"), run="timed")
    began, used = time.perf_counter(), time.process_time()
    counts = task(range(BUCKETS))["counts"]
    spent = {"seconds": time.perf_counter() - began, "cpu_s": time.process_time() - used}
    shutil.rmtree(folder)
    folder.mkdir()
    return {**spent, "ledgers": counts["copied"], "note": f"{counts['bytes'] >> 20} MiB"}


def wire(ledgers: str, requests: str, *addresses: str) -> dict[str, Any]:
    """Ask bookies in turn for lists of ledgers 0 to `ledgers` - 1; a tenth goes before that is not timed."""
    import asyncio

    from backends.bookie import frames
    from backends.bookie.client import Address, BookieOptions, BookieWire
    from recovery.model.groups import decode_availabilities

    places = {a: Address(a.rpartition(":")[0], int(a.rpartition(":")[2])) for a in addresses}
    answered = 0

    async def ask(bookie: Any, count: int) -> None:  # noqa: ANN401 - what `BookieWire` has
        nonlocal answered
        held: list[bytes] = []

        def decode() -> None:
            nonlocal answered
            groups, _ = decode_availabilities(held)
            answered += len(np.unique(groups.key))
            held.clear()

        def take(_: int, answer: frames.BookieAnswer) -> None:
            if answer.outcome is frames.RequestOutcome.ANSWER:
                held.append(answer.body)
            if len(held) >= _LISTS:
                decode()

        await bookie.ask(((n, frames.list_entries(n % int(ledgers))) for n in range(count)), take)
        decode()

    async def all_of_them() -> dict[str, Any]:
        nonlocal answered
        share = int(requests) // len(addresses)
        with BookieWire(places, BookieOptions(deadline_s=60)) as bookies:
            await asyncio.gather(*(ask(bookies[a], share // 10) for a in addresses))
            answered = 0
            began, used = time.perf_counter(), time.process_time()
            await asyncio.gather(*(ask(bookies[a], share) for a in addresses))
            seconds, cpu_s = time.perf_counter() - began, time.process_time() - used
            return {"seconds": seconds, "cpu_s": cpu_s, "ledgers": answered}

    return asyncio.run(all_of_them())


def locations(folder: str, number: str, of: str) -> dict[str, Any]:
    """Read a share of a database of locations: no entry log is looked at, and nothing is written."""
    from recovery.collect.disk.file_reader import Meter
    from recovery.collect.rows.damage import DamageList
    from recovery.collect.rows.scoped_ids import Scopes
    from recovery.collect.rows.source_copies import Grouper, make_runs
    from recovery.collect.sources.index_database import Database, read_range, split_ranges

    def work() -> Mapping[str, Any]:
        entries = 0
        grouper = Grouper()
        database = Database(Path(folder).parent, 0, None, 1)
        meter = Meter(None, lambda _progress: None)
        for part in split_ranges(database, DamageList())[int(number) :: int(of)]:
            for piece in read_range(part, meter, DamageList(), Scopes()):
                grouper.feed(make_runs(piece.ledger, piece.entry))
                entries += len(piece.ledger)
        grouper.end()
        return {"keys": entries}

    return _timed(work)


@contextmanager
def recover(folder: str, out: str) -> Iterator[Callable[[], dict[str, Any]]]:
    """Make a plan of inventories, for a store that is empty."""
    from reconcile.clusters import open_inventories
    from reconcile.jobs.make_plan.plan import make_plan
    from reconcile.jobs.make_plan.request import PlanRequest
    from reconcile.plan.actions import Passwords
    from recovery.dataset import prepare
    from recovery.spark import session
    from tests.simulation import histories

    with session(MASTER) as spark:

        def once() -> dict[str, Any]:
            shutil.rmtree(out, ignore_errors=True)

            def work() -> Mapping[str, Any]:
                found: tuple[Dataset, ...] = open_inventories(_inventories(folder))
                passwords = Passwords.from_candidates([PASSWORD, histories.PASSWORD])
                request = PlanRequest(
                    inventories=found,
                    live=None,
                    snapshots=(),
                    layout=LAYOUT,
                    root="/ledgers",
                    passwords=passwords,
                    expected=BOOKIES,
                    default_quorum=None,
                )
                prepare(Path(out), "plan", secret=True)
                counts = make_plan(request, Path(out), spark, now=_now).counts
                note = (
                    f"restored {counts.restored:,}, guarded {counts.guarded:,}, held {counts.held:,}, "
                    f"waiting {counts.waiting:,}"
                )
                return {"ledgers": counts.ledgers, "note": note}

            return _timed(work)

        yield once


@contextmanager
def pass_through(folder: str) -> Iterator[Callable[[], dict[str, Any]]]:
    """Read the copies of all inventories with Spark, hand them through Python, and drop them."""
    from recovery.spark import session

    files = [str(path) for inventory in _inventories(folder) for path in Path(inventory, "copies").iterdir()]

    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    with session(MASTER, settings={"spark.sql.execution.arrow.maxRecordsPerBatch": _BATCH_ROWS}) as spark:

        def once() -> dict[str, Any]:
            def work() -> Mapping[str, Any]:
                rows = spark.read.parquet(*files)
                rows.mapInArrow(same, rows.schema).write.format("noop").mode("overwrite").save()
                return {}

            return _timed(work)

        yield once


@contextmanager
def group(folder: str, out: str, *, flat: bool = False) -> Iterator[Callable[[], dict[str, Any]]]:
    """Group the copies of all inventories by ledger with DuckDB, Parquet to Parquet."""
    import duckdb

    columns = (
        "count(*) AS copies, min(first) AS first, max(last) AS last, sum(entries)::BIGINT AS entries, "
        "min(g_size) AS least_size, max(g_size) AS size, min(g_period) AS least_period, max(g_period) AS period, "
        "sum(g_count)::BIGINT AS groups, min(key) AS least_key, max(key) AS key"
        if flat
        else "list(bookie) AS bookie, list(incarnation) AS incarnation, list(source) AS source, "
        "list(groups) AS groups, list(key_kind) AS key_kind, list(key) AS key, list(headers) AS headers"
    )
    with duckdb.connect(config=_DUCKDB | {"temp_directory": f"{out}.spill"}) as database:

        def once() -> dict[str, Any]:
            def work() -> Mapping[str, Any]:
                rows = database.execute(
                    f"COPY (SELECT bucket, scope, ledger, bool_and(complete) AS complete, bool_or(limbo) AS limbo, "  # noqa: S608 - our own names
                    f"bool_or(fenced) AS fenced, max(explicit_lac) AS explicit_lac, {columns} "
                    f"FROM read_parquet('{folder}/*/copies/*.parquet') GROUP BY ALL) TO '{out}' (FORMAT parquet)"
                ).fetchall()
                return {"ledgers": rows[0][0]}

            return _timed(work)

        yield once


def group_flat(folder: str, out: str) -> AbstractContextManager[Callable[[], dict[str, Any]]]:
    """Do the same of flat columns alone."""
    return group(folder, out, flat=True)


@contextmanager
def diff(folder: str, out: str) -> Iterator[Callable[[], dict[str, Any]]]:
    """Compare a store's catalog with an earlier one."""
    from reconcile.jobs.make_plan.plan import make_plan
    from reconcile.jobs.make_plan.request import PlanRequest
    from reconcile.plan.actions import Passwords
    from recovery.dataset import prepare
    from recovery.spark import session

    with session(MASTER) as spark:

        def once() -> dict[str, Any]:
            shutil.rmtree(out, ignore_errors=True)

            def work() -> Mapping[str, Any]:
                now, earlier = (
                    open_dataset(Path(folder, name), "catalog") for name in (catalogs.NOW, catalogs.EARLIER)
                )
                request = PlanRequest(
                    inventories=(),
                    live=now,
                    snapshots=(earlier,),
                    layout=LAYOUT,
                    root="/ledgers",
                    passwords=Passwords.from_candidates([PASSWORD]),
                    expected=BOOKIES,
                    default_quorum=None,
                )
                prepare(Path(out), "plan", secret=True)
                manifest = make_plan(request, Path(out), spark, now=_now)
                return {"ledgers": manifest.counts.looked_at, "relations": manifest.sides}

            said = _timed(work)
            note = ", ".join(f"{name} {count:,}" for name, count in said.pop("relations").items())
            return {"note": note, **said}

        yield once


@contextmanager
def outer_join(folder: str) -> Iterator[Callable[[], dict[str, Any]]]:
    """Join two catalogs by id on all sides, and compare the hashes of their records."""
    from recovery.spark import session

    files = [
        [str(path) for path in Path(folder, name, "ledgers").iterdir()] for name in (catalogs.NOW, catalogs.EARLIER)
    ]

    with session(MASTER) as spark:

        def once() -> dict[str, Any]:
            def work() -> Mapping[str, Any]:
                now, earlier = (
                    spark.read.parquet(*some).selectExpr("xxhash64(scope, ledger) AS id", f"xxhash64(raw) AS {side}")
                    for some, side in zip(files, (catalogs.NOW, catalogs.EARLIER), strict=True)
                )
                relation = (
                    f"CASE WHEN {catalogs.NOW} = {catalogs.EARLIER} THEN 0 WHEN {catalogs.NOW} IS NULL THEN 1 "
                    f"WHEN {catalogs.EARLIER} IS NULL THEN 2 ELSE 3 END AS relation"
                )
                counted = (
                    now.join(earlier, "id", "full_outer").selectExpr(relation).groupBy("relation").count().collect()
                )
                return {"ledgers": sum(row["count"] for row in counted)}

            return _timed(work)

        yield once


def scrutinize(uri: str) -> dict[str, Any]:
    """Run a whole scrutiny."""
    return scrutinies.scrutinize(uri, _timed)


def scrutiny_rules(folder: str, catalog: str, out: str) -> AbstractContextManager[Callable[[], dict[str, Any]]]:
    """Judge every ledger of a catalog."""
    return scrutinies.rules(_inventories(folder), catalog, out, MASTER, _timed)


def scrutiny_read(folder: str, catalog: str) -> AbstractContextManager[Callable[[], dict[str, Any]]]:
    """Read what these rules read."""
    return scrutinies.read_same(_inventories(folder), catalog, MASTER, _BATCH_ROWS, _timed)


_ENDING: Final[Mapping[str, Callable[..., dict[str, Any]]]] = {
    "capture": capture,
    "etcd": etcd,
    "etcd-answers": etcd_answers,
    "follow": follow,
    "backup-point": backup_point,
    "backup-group": backup_group,
    "apply": apply,
    "page": page,
    "impact": impact,
    "impact-spread": impact_spread,
    "impact-pass": impact_pass,
    "infer": infer,
    "index": index,
    "log": log,
    "journal": journal,
    "locations": locations,
    "wire": wire,
    "archive": archive,
    "scrutinize": scrutinize,
}
_STAYING: Final[Mapping[str, Callable[..., AbstractContextManager[Callable[[], dict[str, Any]]]]]] = {
    "recover": recover,
    "pass-through": pass_through,
    "group": group,
    "group-flat": group_flat,
    "diff": diff,
    "outer-join": outer_join,
    "scrutiny-rules": scrutiny_rules,
    "scrutiny-read": scrutiny_read,
}


def _say(said: Mapping[str, Any]) -> None:
    print(json.dumps(said), flush=True)


def main() -> None:
    """Run the stage that the arguments name.

    The program ends as the product's door does, without the part of the end that threads of Arrow or DuckDB may abort.
    """
    name, *arguments = sys.argv[1:]
    if name in _ENDING:
        _say(_ENDING[name](*arguments))
        os._exit(0)
    with _STAYING[name](*arguments) as once:
        _say({"ready": True})
        for _ in sys.stdin:
            _say(once())


if __name__ == "__main__":
    main()
