"""One scrutiny: capture, first look at every ledger of the share, second look at suspects, what stands beside them.

folder       holds
store/       the catalog of the store
inventories/ the lists of bookies that were asked, of the first look
samples/     what bookies that give no lists answered to reads of entries, where these were asked for
findings/    FINDINGS: complete before anything is counted
verdicts/    VERDICTS: a row a ledger
missing/     MISSING: entries that bookies lack, a row a ledger and bookie
wiped/       WIPED: bookies that lost their data, and whose ledgers are not repaired
reads/       READS: entries that bookies without lists gave in the last runs, a row a ledger, bookie and run
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from backends.errors import AccessDeniedError
from reconcile.check.placement_files import read_rack_info
from reconcile.check.scrutiny import bookie_findings
from reconcile.check.scrutiny.carried import REFERENCES, SOUGHT, LaterRun, Sought
from reconcile.check.scrutiny.earlier_reads import ReadAge
from reconcile.check.scrutiny.evidence_age import Moment, find_ages
from reconcile.check.scrutiny.incarnations import (
    Traces,
    Wiped,
    count_lacking,
    find_beginnings,
    find_wiped,
    list_changed,
    make_wiped_rows,
    read_cookies,
    read_wiped,
)
from reconcile.check.scrutiny.judge import Demands
from reconcile.check.scrutiny.lifecycle import Lifecycle
from reconcile.check.scrutiny.mark_progress import MarkProgress, follow_marks, list_stalled
from reconcile.check.scrutiny.replication import StoredReplication
from reconcile.check.scrutiny.run_differences import compare_runs
from reconcile.check.scrutiny.vanished import VanishedWindow
from reconcile.clusters import name_earlier, open_inventories, require_of_cluster
from reconcile.estimates import EstimatedStep
from reconcile.findings.categories import SEVERITY_ORDER
from reconcile.findings.table import Finding, FindingRun, make_rows
from reconcile.jobs.capture import capture_store
from reconcile.jobs.collect.tables import with_tables
from reconcile.jobs.context import Context, add_remedy, choose_spark, connect, throttle
from reconcile.jobs.impact.cache import provide_catalog
from reconcile.jobs.references import ReferenceSources, find_disagreements
from reconcile.jobs.scrutiny.backup_moments import read_backup_moments
from reconcile.jobs.scrutiny.beside_ledgers import find_beside, find_stale_marks, list_returned_data
from reconcile.jobs.scrutiny.carried_findings import Carried, find_carried
from reconcile.jobs.scrutiny.first_look import (
    STORE,
    AskedBookies,
    FirstLook,
    goes_on_with,
    read_first_look,
    write_first_look,
)
from reconcile.jobs.scrutiny.range_task import (
    RangeTask,
    are_of,
    count_findings,
    count_open,
    count_verdicts,
    part_from,
    read_all,
)
from reconcile.jobs.scrutiny.request import ClusterFinding, Scrutinized, ScrutinyRequest
from reconcile.jobs.scrutiny.returned_writers import compare_all
from reconcile.jobs.scrutiny.run_report import (
    find_worst,
    make_trend,
    raise_verdicts,
    write_beside,
    write_report,
)
from reconcile.jobs.scrutiny.sampled_look import (
    ROTATIONS,
    SampledBookies,
    describe_samples,
    find_sampling,
    note_rotations,
)
from reconcile.jobs.scrutiny.second_look import SecondLook
from reconcile.jobs.scrutiny.vanished_records import WINDOWS, find_listing_doubts, note_window
from reconcile.rules.segments.placement import PlacementSettings
from recovery.bookies.addresses import read_members
from recovery.bookies.recorded_members import sample_ledgers
from recovery.bookies.sampling import SampleRequest, Sampling, sample_bookies
from recovery.bookies.wire_inventory import WireRequest, collect_wire
from recovery.bookies.wire_results import AskedKind, WireSummary
from recovery.codecs.store import Layout
from recovery.codecs.store_kind import kind_of
from recovery.dataset import COLLECTED, SPILL, Dataset, open_dataset, prepare, read_part, write_manifest, write_part
from recovery.errors import FormatError, InputError
from recovery.manifest import Part
from recovery.model import tables
from recovery.model.ids import bucket_ranges
from recovery.place import DatasetPlace, copy_tree, remove_tree, to_place
from recovery.spark import count_parallel, over_buckets

if TYPE_CHECKING:
    from backends.registry import OpenStore
    from recovery.spark import SparkSession

_OF_COOKIES: Final = ["path", "kind", "created_txn"]
_SMALL: Final = 10_000

_ABSENT: Final = "absent_since"
"""What a run's manifest keeps of bookies that are not registered: since which run."""
_MOMENTS: Final = "moments"
_SAMPLES: Final = "samples"
_KEPT_MOMENTS: Final = 400
"""Of the runs before: inventories are rarely older."""


@dataclass(slots=True)
class _Sums:
    """What is added up over ranges and looks."""

    listed: int = 0
    positions: int = 0
    judged: int = 0
    read_earlier: ReadAge = field(default_factory=ReadAge)
    verdicts: dict[str, Counter[str]] = field(default_factory=dict)
    findings: dict[str, Counter[str]] = field(default_factory=dict)
    open: Counter[str] = field(default_factory=Counter)
    placement: Counter[str] = field(default_factory=Counter)
    passed: Counter[str] = field(default_factory=Counter)
    traces: dict[str, Traces] = field(default_factory=dict)
    parts: dict[str, list[Part]] = field(default_factory=lambda: {name: [] for name in tables.SCRUTINY})

    def add(self, name: str, counted: Mapping[str, Mapping[str, int]]) -> None:
        """Add counts of verdicts or of findings."""
        into = self.verdicts if name == "verdicts" else self.findings
        for key, by in counted.items():
            into.setdefault(key, Counter()).update(by)


def scrutinize(
    request: ScrutinyRequest, context: Context, *, wait: Callable[[float], None] = time.sleep
) -> Scrutinized:
    """Look at a cluster, and write what is seen into the folder of the run.

    Args:
        request: what is asked.
        context: of the job.
        wait: waits so many seconds, until bookies that did not answer are asked again.

    Raises:
        InputError: a store without a ledgers root, inventories or a run before of another cluster, a table of entries
            that cannot be read, or no Spark.
        UnavailableError: the store does not answer.
        SparkError: Spark failed.
        DatasetError: an inventory is damaged, or the run cannot be written.
    """
    with with_tables(request.inventories, context.now()) as inventories:
        return _scrutinize(replace(request, inventories=inventories), context, wait)


def _scrutinize(request: ScrutinyRequest, context: Context, wait: Callable[[float], None]) -> Scrutinized:
    given = open_inventories(request.inventories)
    earlier = None if request.since is None else open_dataset(request.since, "scrutiny")
    sampling = find_sampling(request, earlier)
    lifecycle = Lifecycle(_read_first_seen(earlier, request.buckets), request.suppressions)
    begun = read_first_look(request, given, context.now())
    if begun is None:
        prepare(request.out, "scrutiny", secret=True)
    kept = f"{request.out} is not complete: run the command again, and it goes on from its suspects"
    remedy = kept if request.is_kept else "run the command again; with a folder for the run it would go on"
    with add_remedy(remedy), connect(request.uri, context, ops_s=request.ops_s) as opened:
        if begun is not None and not goes_on_with(request, opened):
            begun = None
            prepare(request.out, "scrutiny", secret=True)
        if begun is None:
            catalog, layout, gaps = _capture(request, opened, context)
        else:
            catalog, layout, gaps = open_dataset(request.out / STORE, "catalog"), begun.layout, begun.gaps
        earlier_store = None if request.since is None else open_dataset(request.since / STORE, "catalog")
        require_of_cluster(catalog, request.uri, given, name_earlier(catalog, earlier_store))
        at = context.now() if begun is None else begun.at
        demands = _find_places(request, opened)
        run = FindingRun(at.isoformat(timespec="seconds"), at)

        known = {} if earlier is None else read_wiped(earlier.read("wiped"))
        cookies = read_cookies(catalog.read("nodes", columns=_OF_COOKIES))

        def make_task(bookies: AskedBookies) -> RangeTask:
            return replace(
                _make_task(request, catalog, bookies, run, layout),
                ages=_find_ages(request, catalog, layout, bookies, earlier),
                demands=demands,
                lifecycle=lifecycle,
                compares=request.wire is not None,
                earlier=earlier,
                earlier_store=earlier_store,
                beginnings=find_beginnings(cookies, known),
                rotation=None if sampling is None else sampling.rotation,
                cookies=cookies,
            )

        if begun is None:
            rows = catalog.rows("ledgers")
            lacs_after = None if earlier_store is None else earlier_store.manifest["coverage"]["txn"]
            with choose_spark(EstimatedStep.SCRUTINIZE, rows, request.master, request.python, context) as spark:
                bookies = _ask_bookies(request, catalog, opened, given, context, spark, lacs_after)
                bookies = _read_entries(request, catalog, opened, bookies, sampling, context, spark)
                samples = () if bookies.samples is None else (bookies.samples,)
                ranges = _cut_share(request.buckets, catalog, bookies.inventories, samples)
                with context.reporter.progress("judging ledgers", "parts") as progress:
                    answers = over_buckets(spark, make_task(bookies), ranges, done=throttle(progress))
            begun = FirstLook(at, layout, gaps, bookies, answers)
            write_first_look(request, begun)
        bookies, answers, task = begun.bookies, begun.answers, make_task(begun.bookies)
        sums = _Sums()
        for answer in answers:
            _take_answer(sums, answer)
        replication = StoredReplication.from_nodes(catalog.read("nodes"), kind_of(layout))
        second_look = SecondLook(
            task, opened, layout, replication, request.wire, given, context,
            request.recheck_after_s, request.rechecks, wait,
            None if sampling is None else SampledBookies(bookies.without_lists, sampling),
        )  # fmt: skip
        _look_again(request, second_look, answers, sums, context)
        gone = _find_gone(catalog, bookies, second_look, earlier)
        beside = _find_of_bookies(request, catalog, bookies, second_look, gone)
        wiped = _find_wiped(request, task, sums, cookies, known)
        beside += list_changed(wiped, sums.traces)
        marks = _follow_marks(request, second_look, earlier)
        beside += list_stalled(marks, replication, request.demands.grace_s, at)
        beside += bookie_findings.list_listing_doubts(gaps, 0, 0)
        doubts, window = find_listing_doubts(request, opened, task, answers, run, context)
        beside += doubts
        beside += list_returned_data(request, opened, catalog, layout, context)
        beside += find_beside(opened, catalog, layout, bookies, answers, task.earlier_store)
        rows = make_rows(beside, run)
        stale = find_stale_marks(opened, catalog, layout, _cut_share(request.buckets, catalog, ()), run)
        sources = ReferenceSources(request.references, request.uri, opened, layout, request.buckets)
        disagreements = find_disagreements(sources, catalog, task.inventories, run, context, seen=task.everywhere)
        known_rows = pa.concat_tables([tables.FINDINGS.empty_table(), *disagreements])
        rows = lifecycle.apply(pa.concat_tables([rows, *stale, known_rows]))
    sought = _list_sought(request, demands, bookies, second_look, gone)
    carried = find_carried(_open_written(request, sums, second_look, sought), rows, task)
    rows = pa.concat_tables([rows, carried.findings])
    overtaken = _count_in(request, sums, pa.concat_tables([known_rows, carried.findings]))
    sums.parts["findings"].append(write_part(request.out, "findings", "beside", [rows], secret=True))
    sums.add("findings", count_findings(rows))
    sums.open.update(count_open(rows))
    remove_tree(request.out / SPILL)
    ending = _Ending(window, gone, marks, carried, rows, sought)
    result = _finish(request, sums, bookies, second_look, run, ending, sampling)
    for path in overtaken:
        path.unlink(missing_ok=True)
    write_report(request.out, bookies.inventories, context, is_covered=result.is_covered(request.min_coverage))
    return result


def _find_places(request: ScrutinyRequest, opened: "OpenStore") -> Demands:
    """Return the demands, with where bookies stand as the store says it, if nobody else did."""
    demands = request.demands
    if demands.topology is None:
        try:
            places = read_rack_info(opened)
        except (FormatError, AccessDeniedError) as error:
            problem = f"has rack information that cannot be read ({error})"
            raise InputError(request.uri, problem, "give a topology, which counts instead") from error
        demands = replace(demands, topology=places or None)
    if demands.topology is None and demands.placement != PlacementSettings():
        raise InputError("the placement policy", "needs the locations of bookies", "give a topology")
    return demands


def _capture(
    request: ScrutinyRequest, opened: "OpenStore", context: Context
) -> tuple[Dataset, Layout, tuple[str, ...]]:
    """Capture the store, or take a kept capture; return its catalog, its layout, and what could not be read twice."""
    catalog = _capture_once(request, opened, context, request.max_age)
    source = _read_source(catalog)
    if not all(_stays_unreadable(opened, gap) for gap in source["gaps"]):
        remove_tree(request.out / STORE)
        catalog = _capture_once(request, opened, context, timedelta(0))
        source = _read_source(catalog)
    if source["root"] != "present" or source["layout"] is None:
        raise InputError(request.uri, "has no ledgers root", "name the root of the cluster's ledgers")
    return catalog, Layout(source["layout"]), tuple(source["gaps"])


def _stays_unreadable(opened: "OpenStore", gap: str) -> bool:
    """Say whether what a capture could not read cannot be read still; a gap that names no key counts as such."""
    key, named, _ = gap.partition(": ")
    if not named:
        return True
    # Nodes are named below the ledgers root, folders by their whole key.
    whole = key if key.startswith(opened.root) else opened.root.rstrip("/") + key
    try:
        opened.store.get(whole)
        opened.store.children(whole)
    except AccessDeniedError:
        return True
    return False


def _capture_once(request: ScrutinyRequest, opened: "OpenStore", context: Context, max_age: timedelta) -> Dataset:
    """Return the run's own capture of the store: a new one, or a copy of a kept one that is young enough."""
    store = request.out / STORE
    if request.captures is None:
        capture_store(opened, store, context, with_rights=False)
    else:
        kept = provide_catalog(request.uri, request.captures, max_age, context)
        copy_tree(to_place(kept.catalog.path), store)
    return open_dataset(store, "catalog")


def _read_source(catalog: Dataset) -> dict[str, Any]:
    source: dict[str, Any] = catalog.read("sources", columns=["root", "layout", "gaps"]).to_pylist()[0]
    return source


def _ask_bookies(
    request: ScrutinyRequest,
    catalog: Dataset,
    opened: "OpenStore",
    given: tuple[Dataset, ...],
    context: Context,
    spark: "SparkSession | None",
    lacs_after: int | None,
) -> AskedBookies:
    """Ask the bookies of which no inventory is given for the lists of their ledgers, once.

    For their explicit LACs, too, where a ledger was closed after a transaction: what a LAC says of an end stays so.
    """
    members = read_members(opened.store, opened.root, opened.layout_hint, request.aliases)
    sampled = sample_ledgers(catalog)
    addresses = {name: members.find(name) for name in sampled}
    renames = {name: member.bookie for name, member in addresses.items() if member.bookie != name}
    has = {row for inventory in given for row in inventory.read("bookies", columns=["bookie"])["bookie"].to_pylist()}
    unresolved = {name: member.why for name, member in addresses.items() if member.unresolved and name not in has}
    known = tuple(sorted({*members.bookies, *has}))
    absent = tuple(name for name in known if name not in has and members.find(name).registered_txn is None)
    if request.wire is None:
        return AskedBookies(given, given, None, renames, unresolved, known, absent)
    with context.reporter.progress("asking bookies", "parts") as progress:
        show = throttle(progress)
        summary = collect_wire(
            WireRequest(
                catalog=catalog,
                members=members,
                wanted=tuple(bookie for bookie in members.bookies if bookie not in has and bookie not in absent),
                options=request.wire.options,
                tasks=count_parallel(spark),
                buckets=request.buckets,
                only_members=True,
                lacs_after=lacs_after,
            ),
            request.out / COLLECTED,
            lambda task, ranges: over_buckets(spark, task, ranges, done=show),
            now=context.now,
        )
    asked = tuple(open_dataset(result.folder, "inventory") for result in summary.bookies if result.folder)
    return AskedBookies((*given, *asked), given, summary, renames, unresolved, known, absent)


def _read_entries(
    request: ScrutinyRequest,
    catalog: Dataset,
    opened: "OpenStore",
    bookies: AskedBookies,
    sampling: Sampling | None,
    context: Context,
    spark: "SparkSession | None",
) -> AskedBookies:
    """Read entries from the bookies that give no lists, if that is asked for."""
    if sampling is None or request.wire is None or not bookies.without_lists:
        return bookies
    members = read_members(opened.store, opened.root, opened.layout_hint, request.aliases)
    wanted = SampleRequest(
        catalog=catalog,
        members=members,
        wanted=bookies.without_lists,
        options=request.wire.options,
        sampling=sampling,
        tasks=count_parallel(spark),
        buckets=request.buckets,
    )
    with context.reporter.progress("reading entries", "parts") as progress:
        show = throttle(progress)
        sampled = sample_bookies(
            wanted, request.out / _SAMPLES, lambda task, ranges: over_buckets(spark, task, ranges, done=show)
        )
    return replace(bookies, sampled=sampled)


def _make_task(
    request: ScrutinyRequest, catalog: Dataset, bookies: AskedBookies, run: FindingRun, layout: Layout
) -> RangeTask:
    rows = read_all(bookies.given, "bookies").select(["bookie", "complete"]).to_pylist()
    whole = {row["bookie"] for row in rows if row["complete"]}
    everywhere = not bookies.unresolved and whole.issuperset(bookies.known)
    return RangeTask(
        str(request.out.absolute()),
        catalog,
        bookies.inventories,
        bookies.renames,
        request.demands,
        run,
        everywhere,
        layout,
        bookies.awaited,
        samples=bookies.samples,
    )


def _find_ages(
    request: ScrutinyRequest, catalog: Dataset, layout: Layout, bookies: AskedBookies, earlier: Dataset | None
) -> dict[str, int | None]:
    """Return how old the inventories that were given are; see `find_ages`."""
    kind, newest = kind_of(layout), catalog.manifest["coverage"]["txn"]
    rows = read_all(bookies.given, "bookies")
    moments = [] if kind.keeps_times else _read_moments(earlier)
    if request.history is not None:
        starts = rows["started"].to_pylist()
        moments += read_backup_moments(request.history, starts, catalog, keeps_times=kind.keeps_times)
    registered = StoredReplication.from_nodes(catalog.read("nodes"), kind).registered
    return find_ages(rows, registered, moments, newest)


def _read_moments(run: Dataset | None) -> list[Moment]:
    """Return what a run and those before it knew of when the store had which transaction."""
    return [] if run is None else [Moment.from_json(fields) for fields in run.manifest.get(_MOMENTS, ())]


def _cut_share(
    share: range, catalog: Dataset, inventories: Sequence[Dataset], samples: Sequence[Dataset] = ()
) -> list[range]:
    rows = catalog.rows("ledgers") + sum(inventory.rows("copies") for inventory in inventories)
    rows += sum(sample.rows("samples") for sample in samples)
    parts = bucket_ranges(rows, at_least=2 if rows > _SMALL else 1)
    cut = [range(max(part.start, share.start), min(part.stop, share.stop)) for part in parts]
    return [part for part in cut if len(part)]


def _take_answer(sums: _Sums, answer: Mapping[str, Any]) -> None:
    sums.listed += answer["listed"]
    sums.positions += answer["positions"]
    sums.judged += answer["judged"]
    sums.read_earlier = sums.read_earlier.add(ReadAge.from_json(answer["read_earlier"]))
    sums.passed.update(answer["passed"])
    for bookie, fields in answer["traces"].items():
        sums.traces[bookie] = sums.traces.get(bookie, Traces()) + Traces(**fields)
    sums.placement.update(answer["placement"])
    sums.add("verdicts", answer["counts"])
    sums.add("findings", answer["findings"])
    sums.open.update(answer["open"])
    for name, part in answer["parts"].items():
        sums.parts[name].append(part_from(part))


def _look_again(
    request: ScrutinyRequest,
    second_look: SecondLook,
    answers: Sequence[Mapping[str, Any]],
    sums: _Sums,
    context: Context,
) -> None:
    """Settle every suspect, compare entries where that is to be done, and write what became of them."""
    files = [answer["suspects"] for answer in answers if answer["suspects"]]
    compared = [answer["compared"] for answer in answers if answer["compared"]]
    with context.reporter.progress("looking again", "parts") as progress:
        show = throttle(progress)
        settled = second_look.settle(files, lambda done: show(done, len(files)))
        for number, became in enumerate(compare_all(second_look, settled, compared)):
            for name, rows in (
                ("findings", became.findings),
                ("verdicts", became.verdicts),
                ("missing", became.missing),
                ("reads", became.reads),
            ):
                sums.parts[name].append(write_part(request.out, name, f"again-{number:05d}", [rows], secret=True))
            sums.judged += became.more_judged
            sums.add("verdicts", count_verdicts(became.verdicts))
            sums.add("findings", count_findings(became.findings))
            sums.open.update(count_open(became.findings))


def _count_in(request: ScrutinyRequest, sums: _Sums, findings: pa.Table) -> list[DatasetPlace]:
    """Count findings that came after verdicts into these; return the files that are overtaken."""
    changed = raise_verdicts(request.out, sums.parts, findings)
    for verdict, counted in changed.before.items():
        sums.verdicts[verdict].subtract(counted)
    sums.add("verdicts", changed.after)
    return changed.overtaken


@dataclass(frozen=True, slots=True)
class _Gone:
    """Bookies that are not there, each asked or looked for twice.

    Attributes:
        silent: they are registered, and do not answer.
        absent: they are not registered; with the begin of the first run that saw it, without one between that did not.
    """

    silent: tuple[str, ...]
    absent: Mapping[str, datetime]


def _find_gone(catalog: Dataset, bookies: AskedBookies, second_look: SecondLook, earlier: Dataset | None) -> _Gone:
    """Return the bookies that are not there, after those that did not answer are asked once more."""
    # One that no record names any more, decommissioned and with its cookie still there, is not waited for.
    named = {bookies.renames.get(name, name) for name in sample_ledgers(catalog)}
    silent, absent = second_look.recheck_bookies(bookies.silent, [name for name in bookies.absent if name in named])
    known = {} if earlier is None else earlier.manifest.get(_ABSENT, {})
    at = second_look.task.run.at
    return _Gone(tuple(silent), {name: datetime.fromisoformat(known.get(name, at.isoformat())) for name in absent})


def _find_of_bookies(
    request: ScrutinyRequest, catalog: Dataset, bookies: AskedBookies, second_look: SecondLook, gone: _Gone
) -> list[Finding]:
    """Return the findings of bookies."""
    why = {} if bookies.summary is None else {result.bookie: result.why for result in bookies.summary.bookies}
    findings = [
        *bookie_findings.list_silent(gone.silent, why),
        *bookie_findings.list_unresolved(bookies.unresolved),
        *bookie_findings.list_suspect_disks(read_all(bookies.given, "damage")),
    ]
    nodes = catalog.read("nodes")
    replication = second_look.replication
    unmarked: Counter[str] = Counter()
    for part in _cut_share(request.buckets, catalog, ()) if gone.absent else ():
        stored = catalog.read("ledgers", buckets=part)
        unmarked.update(bookie_findings.count_naming(stored, gone.absent, replication.marks))
    delay = bookie_findings.read_lost_bookie_delay(nodes)
    now = second_look.context.now()
    waited_s = {name: max(second_look.waited_s, (now - since).total_seconds()) for name, since in gone.absent.items()}
    return [*findings, *bookie_findings.list_unaware(unmarked, replication, delay, waited_s)]


def _find_wiped(
    request: ScrutinyRequest, task: RangeTask, sums: _Sums, cookies: Mapping[str, int], known: Mapping[str, Wiped]
) -> list[Wiped]:
    """Return the bookies that lost their data and whose ledgers are not repaired, and write them."""
    had = {} if task.earlier_store is None else read_cookies(task.earlier_store.read("nodes", columns=_OF_COOKIES))
    txn = task.catalog.manifest["coverage"]["txn"]
    lacking: Counter[str] = Counter()
    candidates = find_wiped(sums.traces, cookies, had, known, txn, task.run.at)
    for part in sums.parts["missing"] if candidates else ():
        if part.rows:
            lacking.update(count_lacking(candidates, read_part(request.out, part.file)))
    wiped = [
        replace(entry, ledgers=lacking[entry.bookie])
        for entry in candidates
        if lacking[entry.bookie] or (entry.bookie in known and sums.traces[entry.bookie].older_unseen)
    ]
    sums.parts["wiped"].append(write_part(request.out, "wiped", "wiped", [make_wiped_rows(wiped)], secret=True))
    return wiped


def _follow_marks(request: ScrutinyRequest, second_look: SecondLook, earlier: Dataset | None) -> MarkProgress:
    """Return what marks of closed ledgers did since the run before."""
    task, marks = second_look.task, second_look.replication.marks
    now = _keep_closed(marks, task.catalog, request.buckets)
    if earlier is None or task.earlier_store is None:
        return follow_marks(now, task.run.at, None, None, task.run.at)
    had = StoredReplication.from_nodes(task.earlier_store.read("nodes"), kind_of(task.layout)).marks
    known = earlier.manifest["coverage"].get("marks")
    return follow_marks(
        now,
        task.run.at,
        _keep_closed(had, task.earlier_store, request.buckets),
        None if known is None else msgspec.convert(known, MarkProgress),
        datetime.fromisoformat(earlier.manifest["binding"]["made"]),
    )


def _keep_closed(marks: pa.Table, catalog: Dataset, share: range) -> pa.Table:
    """Return the marks of closed ledgers of a share."""
    inside = pc.and_(pc.greater_equal(marks["bucket"], share.start), pc.less(marks["bucket"], share.stop))
    marks = marks.filter(inside)
    parts = [marks.slice(0, 0)]
    for part in _cut_share(share, catalog, ()) if marks.num_rows else ():
        stored = catalog.read("ledgers", buckets=part, columns=[*tables.KEY_COLUMNS, "state"])
        closed = stored.filter(pc.fill_null(pc.equal(stored["state"], "CLOSED"), fill_value=False))
        parts.append(marks.filter(are_of(marks, closed)))
    return pa.concat_tables(parts)


def _list_sought(
    request: ScrutinyRequest, demands: Demands, bookies: AskedBookies, second_look: SecondLook, gone: _Gone
) -> Sought:
    """Return what this run looked at."""
    given = second_look.given_bookies
    results = () if bookies.summary is None else bookies.summary.bookies
    answered = {result.bookie for result in results if result.kind is AskedKind.COLLECTED and not result.unanswered}
    seen = (given | answered) - set(gone.silent) - gone.absent.keys()
    earlier = second_look.task.earlier
    had = () if earlier is None else earlier.manifest.get(REFERENCES, ())
    return Sought(
        demands.topology is not None,
        set(had) <= set(request.references),
        given,
        seen,
        frozenset(result.bookie for result in results),
        second_look.replication.registered,
        seen.issuperset(bookies.known) and not bookies.unresolved,
        second_look.task.compares,
    )


def _list_of_cluster(findings: pa.Table, severe: Sequence[str]) -> tuple[ClusterFinding, ...]:
    """Return the findings that are of no ledger; FINDINGS in."""
    rows = findings.filter(pc.is_null(findings["ledger"])).select(["id", "category", "severity", "status"]).to_pylist()
    return tuple(
        ClusterFinding(
            row["id"].hex(), row["category"], row["severity"], row["status"] == "open" and row["severity"] in severe
        )
        for row in rows
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Ending:
    """What a run knows at its end beside its sums; `rows`: its findings that are beside the ledgers."""

    window: VanishedWindow | None
    gone: _Gone
    marks: MarkProgress
    carried: Carried
    rows: pa.Table
    sought: Sought


def _finish(
    request: ScrutinyRequest,
    sums: _Sums,
    bookies: AskedBookies,
    second_look: SecondLook,
    run: FindingRun,
    ending: _Ending,
    sampling: Sampling | None,
) -> Scrutinized:
    task = second_look.task
    by_severity: Counter[str] = Counter()
    for counted in sums.findings.values():
        by_severity.update(counted)
    severe = SEVERITY_ORDER[: SEVERITY_ORDER.index(request.fail_on) + 1]
    summary = bookies.summary
    kinds: Counter[str] = Counter() if summary is None else Counter(str(result.kind) for result in summary.bookies)
    whole = request.share[1] == 1
    coverage = {
        "bookies": len(bookies.known),
        "inventories": len(bookies.given),
        "asked": 0 if summary is None else len(summary.bookies),
        "answered": kinds[AskedKind.COLLECTED],
        "without_lists": kinds[AskedKind.NO_LISTS],
        "sampled": describe_samples(bookies, sampling, sums.read_earlier),
        "silent": sorted(bookies.silent),
        "not_registered": list(bookies.absent),
        "positions": sums.positions,
        "judged": sums.judged,
        "passed": {reason: count for reason, count in sorted(sums.passed.items()) if count},
        "marks": ending.marks.to_json(),
        "share": list(request.share),
        "placement": dict(sums.placement),
        "undated": _list_undated(task),
        "references": len(request.references),
        "marks_kept": second_look.replication.is_kept,
        "not_told": _list_not_told(summary, has_earlier=task.earlier_store is not None),
    }
    differences = None
    if task.earlier is not None:
        differences = compare_runs(task.earlier, _open_written(request, sums, second_look, ending.sought))
    result = Scrutinized(
        # Not counted from what was judged: a ledger that got lost on the way shows.
        listed=task.catalog.rows("ledgers") if whole else sums.listed,
        clean=sums.verdicts.pop("clean", Counter()).total(),
        # Verdicts that were given again leave zeros behind.
        skipped=dict(+sums.verdicts.pop("skipped", Counter())),
        undecided=dict(+sums.verdicts.pop("undecided", Counter())),
        with_findings=sum(counted.total() for counted in sums.verdicts.values()),
        found={category: counted.total() for category, counted in sorted(sums.findings.items())},
        by_severity={severity: by_severity[severity] for severity in SEVERITY_ORDER},
        rechecked=second_look.looked_at,
        coverage=coverage,
        worst=tuple(find_worst(request.out, sums.parts["findings"], severe)),
        failing=sum(sums.open[severity] for severity in severe),
        suppressed=by_severity.total() - sums.open.total(),
        new=None if differences is None else differences.new.num_rows,
        resolved=None if differences is None else len(differences.resolved),
        not_looked_for=None
        if differences is None
        else len(differences.gone) - len(differences.resolved) + sum(ending.carried.reasons.values()),
        gone=() if differences is None else differences.gone,
        carried=ending.carried.reasons,
        of_cluster=_list_of_cluster(ending.rows, severe),
    )
    write_beside(request, result, sums.parts["findings"], run)
    write_manifest(
        request.out,
        "scrutiny",
        sums.parts,
        binding={"uri": request.uri, "made": run.name},
        coverage=result.coverage,
        secret=True,
        extra={
            "settings": dict(request.settings),
            "result": _drop_rows(result),
            "adds_up": result.adds_up,
            WINDOWS: note_window(task.earlier, ending.window),
            _ABSENT: {name: since.isoformat() for name, since in sorted(ending.gone.absent.items())},
            ROTATIONS: note_rotations(request, sampling, task.earlier),
            REFERENCES: list(request.references),
            SOUGHT: ending.sought.to_json(),
            _MOMENTS: _note_moment(task, run),
            "trend": make_trend(task.earlier, result, run, request.min_coverage),
        },
    )
    return result


def _list_not_told(summary: WireSummary | None, *, has_earlier: bool) -> list[str]:
    """Return what running bookies did not tell, in words: only inventories have it."""
    if summary is None or not any(
        result.kind in (AskedKind.COLLECTED, AskedKind.NO_LISTS) for result in summary.bookies
    ):
        return []
    told = " of ledgers that were closed before the run before" if has_earlier else ""
    return ["fences of ledgers whose records are open", f"explicit LACs{told}"]


def _drop_rows(result: Scrutinized) -> dict[str, Any]:
    """Return what the manifest keeps of a result: all but findings, which have files of their own."""
    values = asdict(replace(result, worst=(), gone=()))
    return {name: value for name, value in values.items() if name not in ("worst", "gone")}


def _open_written(request: ScrutinyRequest, sums: _Sums, second_look: SecondLook, sought: Sought) -> LaterRun:
    """Return this run as far as it is written, to hold findings of the run before against it."""
    task = second_look.task
    parts = {name: [asdict(part) for part in parts] for name, parts in sums.parts.items()}
    about = {"kind": "scrutiny", "schema_version": list(tables.SCHEMA_VERSION), "tables": parts}
    written = Dataset(task.out, about)
    return LaterRun(written, (task.earlier_store, task.catalog), second_look.replication.marks, sought, request.buckets)


def _list_undated(task: RangeTask) -> list[str]:
    """Return the bookies whose inventories cannot be placed among the store's changes at all."""
    return [] if kind_of(task.layout).keeps_times else sorted(name for name, age in task.ages.items() if age is None)


def _note_moment(task: RangeTask, run: FindingRun) -> list[list[Any]]:
    """Return which transaction the store had by when, the newest last."""
    txn = task.catalog.manifest["coverage"]["txn"]
    own = [] if txn is None else [Moment(txn, run.at)]
    return [moment.to_json() for moment in [*_read_moments(task.earlier), *own][-_KEPT_MOMENTS:]]


def _read_first_seen(earlier: Dataset | None, share: range) -> dict[bytes, datetime] | None:
    """Return id → when it was seen first, of the findings of the run before that are of this run's share."""
    if earlier is None:
        return None
    rows = earlier.read("findings", columns=["id", "bucket", "first_seen"])
    inside = pc.and_(pc.greater_equal(rows["bucket"], share.start), pc.less(rows["bucket"], share.stop))
    rows = rows.filter(pc.fill_null(inside, fill_value=True))
    return dict(zip(rows["id"].to_pylist(), rows["first_seen"].to_pylist(), strict=True))
