"""Stages of scrutiny: a whole run on running bookies, the rules alone, and Spark that only reads what these read."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from benchmarks.data import catalogs
from benchmarks.data.plans import LAYOUT
from recovery.dataset import open_dataset

_AT: Final = datetime(2026, 1, 3, tzinfo=UTC)
Once = Callable[[], dict[str, Any]]
Timed = Callable[[Callable[[], Mapping[str, Any]]], dict[str, Any]]


def scrutinize(uri: str, timed: Timed) -> dict[str, Any]:
    """Run a whole scrutiny of a cluster over the wire, as the command does."""
    from backends.bookie.client import BookieOptions
    from reconcile.check.scrutiny.judge import Demands
    from reconcile.cli.output import Output
    from reconcile.jobs.context import Context, WireOptions
    from reconcile.jobs.scrutiny.request import ScrutinyRequest
    from reconcile.jobs.scrutiny.scrutinize import scrutinize as run
    from reconcile.rules.segments.placement import PlacementSettings
    from reconcile.stores import NOBODY

    context = Context(NOBODY, Output(as_json=True, progress="none"), lambda: datetime.now(UTC))
    demands = Demands(86_400, None, PlacementSettings())

    def work() -> Mapping[str, Any]:
        with tempfile.TemporaryDirectory(prefix="bkmeta-bench-") as folder:
            request = ScrutinyRequest(
                uri=uri,
                out=Path(folder, "run"),
                inventories=(),
                wire=WireOptions(BookieOptions(), {}),
                demands=demands,
                recheck_after_s=0,
                master="local[2]",
            )
            result = run(request, context)
        return {"ledgers": result.listed, "clean": result.clean, "judged": result.covered_pct}

    return timed(work)


@contextmanager
def rules(inventories: Sequence[str], catalog: str, out: str, master: str, timed: Timed) -> Iterator[Once]:
    """Judge every ledger of a catalog by the inventories, through Spark, verdicts and findings written."""
    from reconcile.check.scrutiny.judge import Demands
    from reconcile.findings.table import FindingRun
    from reconcile.jobs.scrutiny.range_task import RangeTask
    from reconcile.rules.segments.placement import PlacementSettings
    from recovery.model.ids import bucket_ranges
    from recovery.spark import over_buckets, session

    stored = open_dataset(Path(catalog, catalogs.EARLIER), "catalog")
    opened = tuple(open_dataset(path, "inventory") for path in inventories)
    demands = Demands(86_400, None, PlacementSettings())

    with session(master) as spark:

        def once() -> dict[str, Any]:
            shutil.rmtree(out, ignore_errors=True)
            Path(out).mkdir(parents=True)
            task = RangeTask(out, stored, opened, {}, demands, FindingRun("benchmark", _AT), True, LAYOUT)  # noqa: FBT003 - its eight fields in their order

            def work() -> Mapping[str, Any]:
                spans = bucket_ranges(stored.rows("ledgers") + sum(one.rows("copies") for one in opened))
                verdicts: Counter[str] = Counter()
                listed = 0
                for answer in over_buckets(spark, task, spans):
                    listed += answer["listed"]
                    for word, by_reason in answer["counts"].items():
                        verdicts[word] += sum(by_reason.values())
                return {"ledgers": listed, "note": ", ".join(f"{n:,} {word}" for word, n in sorted(verdicts.items()))}

            return timed(work)

        yield once


@contextmanager
def read_same(inventories: Sequence[str], catalog: str, master: str, batch_rows: str, timed: Timed) -> Iterator[Once]:
    """Read copies and records with Spark, hand them through Python, and drop them."""
    from recovery.spark import session

    copies = [str(path) for inventory in inventories for path in Path(inventory, "copies").iterdir()]
    records = [str(path) for path in Path(catalog, catalogs.EARLIER, "ledgers").iterdir()]

    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    with session(master, settings={"spark.sql.execution.arrow.maxRecordsPerBatch": batch_rows}) as spark:

        def once() -> dict[str, Any]:
            def work() -> Mapping[str, Any]:
                for files in (copies, records):
                    rows = spark.read.parquet(*files)
                    rows.mapInArrow(same, rows.schema).write.format("noop").mode("overwrite").save()
                return {}

            return timed(work)

        yield once
