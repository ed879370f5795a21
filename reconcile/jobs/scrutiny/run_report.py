"""What stands beside a scrutiny's tables: its page, figures, commands that mend, and how it went before."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from reconcile.check.scrutiny.lifecycle import list_repairs
from reconcile.findings.table import Run
from reconcile.jobs.context import Context
from reconcile.jobs.scrutiny.first_look import STORE
from reconcile.jobs.scrutiny.metrics import format_metrics
from reconcile.jobs.scrutiny.request import Scrutinized, ScrutinyRequest
from recovery.dataset import Dataset, open_dataset
from recovery.errors import InputError
from recovery.manifest import Part

METRICS: Final = "metrics.prom"
REPAIRS: Final = "repair.jsonl"
_POINTS: Final = 90
"""Scrutinies that the trend shows, the last one included."""


def make_trend(earlier: Dataset | None, result: Scrutinized, run: Run) -> list[Mapping[str, Any]]:
    """Return the scrutinies before and this one, the oldest first, as points of `reconcile.report.trend`."""
    failing = result.failing if result.adds_up else None
    code = 1 if failing is None else 3 if failing else 0
    point = {"at": run.name, "failing": failing, "covered_pct": result.covered_pct, "exit_code": code}
    return [*([] if earlier is None else earlier.manifest.get("trend", ())), point][-_POINTS:]


def write_report(out: Path, inventories: Sequence[Dataset], context: Context) -> None:
    """Write the page beside the run, which is whole."""
    from reconcile.report.pages import write_page  # noqa: PLC0415 - a run that fails needs no templates
    from reconcile.report.scrutiny_page import scrutiny_page  # noqa: PLC0415 - likewise

    run, catalog = open_dataset(out, "scrutiny"), open_dataset(out / STORE, "catalog")
    with context.reporter.progress("writing the report", "pages"):
        write_page(out, lambda: scrutiny_page(run, catalog, inventories, made=context.now()))


def write_beside(request: ScrutinyRequest, result: Scrutinized, parts: Sequence[Part], run: Run) -> None:
    """Write what other programs take: figures, and commands that mend."""
    text = format_metrics(result, run.at.timestamp())
    for path in filter(None, [request.out / METRICS, request.metrics]):
        _replace_file(path, text)
    with (request.out / REPAIRS).open("w", encoding="utf-8") as sink:
        for part in parts:
            rows = pq.read_table(request.out / part.file).to_pylist() if part.rows else []
            sink.writelines(json.dumps(command) + "\n" for command in list_repairs(rows))


def _replace_file(path: Path, text: str) -> None:
    """Write a file in one step: whoever reads it meanwhile sees the old one, or the new one."""
    beside = path.with_name(f".{path.name}.tmp")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise InputError(
            str(path), f"cannot be written: {error.strerror}", "name a file in a folder that is there"
        ) from error
