"""The running bookies of a cluster, asked over the wire, into inventories."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reconcile.estimates import EstimatedStep
from reconcile.jobs.capture import capture_store
from reconcile.jobs.context import Context, WireOptions, add_remedy, choose_spark, connect, throttle
from recovery.bookies.addresses import read_members
from recovery.bookies.wire_inventory import WireRequest, collect_wire
from recovery.bookies.wire_results import CATALOG, WireSummary
from recovery.dataset import open_dataset
from recovery.errors import InputError
from recovery.place import DatasetPlace
from recovery.spark import count_parallel, over_buckets, require_spark


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRequest:
    """Which bookies are asked, and where their inventories go.

    Attributes:
        uri: the store, whose ledgers are asked for.
        bookies: these only; None: all that the store knows.
        wire: how they are asked.
        passwords: that may have made HMACs.
        master: Spark's; None: this host, and only where there are many ledgers.
        python: what executors run as their Python; None: what they have.
        out: folder that the inventories go below.
        settings: of the run, each with where it came from, for the manifests.
    """

    uri: str
    bookies: tuple[str, ...] | None = None
    wire: WireOptions
    passwords: tuple[bytes, ...] = ()
    master: str | None = None
    python: Path | None = None
    out: DatasetPlace
    settings: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CollectedCluster:
    """What came of asking a cluster.

    Attributes:
        summary: of the bookies.
        gaps: parts of the store that could not be read.
    """

    summary: WireSummary
    gaps: tuple[str, ...]


def collect_cluster(request: ClusterRequest, context: Context) -> CollectedCluster:
    """Ask the bookies of a cluster into inventories, one below `out` for each that answers.

    Raises:
        InputError: a bookie that nobody knows, a store without a ledgers root, or no Spark.
        UnavailableError: the store does not answer.
        SparkError: Spark failed.
    """
    if request.master is not None:
        require_spark(request.master, request.python)
    catalog = request.out / CATALOG
    remedy = f"{request.out} is not complete: run the command again, into another folder"
    with add_remedy(remedy), connect(request.uri, context) as opened:
        members = read_members(opened.store, opened.root, opened.layout_hint, request.wire.aliases)
        captured = capture_store(opened, catalog, context, settings=request.settings)
    if captured.root != "present":
        problem = "has no ledgers root, so nothing says what to ask for"
        raise InputError(request.uri, problem, "collect from the bookies' disks")
    with (
        add_remedy(remedy),
        choose_spark(EstimatedStep.SCRUTINIZE, captured.ledgers, request.master, request.python, context) as spark,
        context.reporter.progress("asking bookies", "parts") as progress,
    ):
        show = throttle(progress)
        wanted = WireRequest(
            catalog=open_dataset(catalog, "catalog"),
            members=members,
            wanted=request.bookies,
            options=request.wire.options,
            passwords=request.passwords,
            tasks=count_parallel(spark),
            settings=request.settings,
        )
        summary = collect_wire(
            wanted,
            request.out,
            lambda task, ranges: over_buckets(spark, task, ranges, done=show),
            now=context.now,
        )
    return CollectedCluster(summary, tuple(captured.gaps))
