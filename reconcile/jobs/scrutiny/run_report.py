"""What a scrutiny's tables say when all is judged, and what is beside them: page, figures, commands that repair."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.check.scrutiny.judge import raise_rows
from reconcile.check.scrutiny.lifecycle import list_repairs
from reconcile.findings.table import FindingRun
from reconcile.id_files import write_keys
from reconcile.jobs.context import Context
from reconcile.jobs.scrutiny.first_look import STORE
from reconcile.jobs.scrutiny.range_task import are_of, count_verdicts
from reconcile.jobs.scrutiny.request import Scrutinized, ScrutinyRequest
from recovery.dataset import Dataset, open_dataset, read_part, sort_by_key, write_part
from recovery.errors import InputError
from recovery.manifest import Part
from recovery.model import tables
from recovery.out_folder import write_whole
from recovery.place import DatasetPlace

METRICS: Final = "metrics.prom"
REPAIRS: Final = "repair.jsonl"
GONE: Final = "gone.jsonl"
"""Findings of the run before that are gone, each with what resolved it."""
IDS: Final = "ledgers"
"""Folder of a file for each category: the ids of its ledgers, one a line."""
_POINTS: Final = 90
"""Scrutinies that the trend shows, the last one included."""
_SHOWN: Final = 20
"""Findings that a result shows."""
_RAISED: Final = "raised"
"""Begin of the names of files with verdicts that were given again."""


@dataclass(slots=True)
class RaisedVerdicts:
    """Verdicts that were given again.

    Attributes:
        before: what they were, counted.
        after: what they are.
        overtaken: files that do not count any more.
    """

    before: dict[str, Counter[str]] = field(default_factory=dict)
    after: dict[str, Counter[str]] = field(default_factory=dict)
    overtaken: list[DatasetPlace] = field(default_factory=list)


def raise_verdicts(out: DatasetPlace, parts: Mapping[str, list[Part]], later: pa.Table) -> RaisedVerdicts:
    """Give ledgers their verdicts again of which something was found after they were judged.

    What was written stays as it is until the run is whole: a run that is killed goes on from it.

    Args:
        out: folder of the run.
        parts: of its findings and verdicts; files that are overtaken are replaced.
        later: FINDINGS.
    """
    raised = RaisedVerdicts()
    later = later.filter(pc.is_valid(later["ledger"]))
    findings = {Path(part.file).name: part for part in parts["findings"]}
    for place, part in enumerate(parts["verdicts"] if later.num_rows else ()):
        rows = read_part(out, part.file) if part.rows else tables.VERDICTS.empty_table()
        own = findings[Path(part.file).name]
        known = read_part(out, own.file) if own.rows else tables.FINDINGS.empty_table()
        touched = are_of(rows, later)
        some = rows.filter(touched)
        if not some.num_rows:
            continue
        given = raise_rows(some, pa.concat_tables([known, later]))
        for counted, verdicts in ((raised.before, some), (raised.after, given)):
            for verdict, reasons in count_verdicts(verdicts).items():
                counted.setdefault(verdict, Counter()).update(reasons)
        raised.overtaken.append(out / part.file)
        whole = sort_by_key(pa.concat_tables([rows.filter(pc.invert(touched)), given]))
        parts["verdicts"][place] = write_part(out, "verdicts", f"{_RAISED}-{place:05d}", [whole], secret=True)
    return raised


def find_worst(out: DatasetPlace, parts: Sequence[Part], severe: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return the first findings at or above the severity that fails, the gravest first."""
    found: dict[str, list[Mapping[str, Any]]] = {severity: [] for severity in severe}
    for part in parts:
        rows = read_part(out, part.file) if part.rows else tables.FINDINGS.empty_table()
        for severity in severe:
            wanted = _SHOWN - len(found[severity])
            mask = pc.and_(pc.equal(rows["severity"], severity), pc.equal(rows["status"], "open"))
            found[severity] += rows.filter(mask).slice(0, wanted).to_pylist()
    return [row for severity in severe for row in found[severity]][:_SHOWN]


def make_trend(
    earlier: Dataset | None, result: Scrutinized, run: FindingRun, min_coverage: float
) -> list[Mapping[str, Any]]:
    """Return the scrutinies before and this one, the oldest first, as points of `reconcile.report.trend`."""
    failing = result.failing if result.adds_up else None
    code = 1 if failing is None else 3 if failing else 0 if result.is_covered(min_coverage) else 4
    point = {"at": run.name, "failing": failing, "covered_pct": result.covered_pct, "exit_code": code}
    return [*([] if earlier is None else earlier.manifest.get("trend", ())), point][-_POINTS:]


def write_report(out: DatasetPlace, inventories: Sequence[Dataset], context: Context, *, is_covered: bool) -> None:
    """Write the page beside the run, which is whole."""
    from reconcile.report.pages import write_page  # noqa: PLC0415 - a run that fails needs no templates
    from reconcile.report.scrutiny_page import scrutiny_page  # noqa: PLC0415 - likewise

    run, catalog = open_dataset(out, "scrutiny"), open_dataset(out / STORE, "catalog")
    with context.reporter.progress("writing the report", "pages"):
        write_page(out, lambda: scrutiny_page(run, catalog, inventories, made=context.now(), is_covered=is_covered))


def write_beside(request: ScrutinyRequest, result: Scrutinized, parts: Sequence[Part], run: FindingRun) -> None:
    """Write what other programs take: figures, commands that repair, what is gone, ids of ledgers by category."""
    from reconcile.jobs.scrutiny.metrics import format_metrics  # noqa: PLC0415 - at the end of a run alone

    text = format_metrics(result, run.at.timestamp())
    with write_whole(request.out / METRICS, secret=False) as metrics:
        metrics.sink.write(text.encode())
    if request.metrics is not None:
        _replace_file(request.metrics, text)
    with write_whole(request.out / REPAIRS, secret=False) as repairs:
        for part in parts:
            rows = read_part(request.out, part.file).to_pylist() if part.rows else []
            repairs.sink.writelines(f"{json.dumps(command)}\n".encode() for command in list_repairs(rows))
    if result.new is not None:
        with write_whole(request.out / GONE, secret=False) as gone:
            gone.sink.writelines(f"{json.dumps(finding.to_json())}\n".encode() for finding in result.gone)
    _write_ids_of_categories(request.out / IDS, request.out, parts)


def _write_ids_of_categories(folder: DatasetPlace, out: DatasetPlace, parts: Sequence[Part]) -> None:
    """Write the ids of each category's ledgers, but of findings that are suppressed."""
    keys: dict[str, list[pa.Table]] = {}
    for part in parts:
        columns = ["category", "scope", "ledger", "status"]
        rows = read_part(out, part.file, columns=columns) if part.rows else tables.FINDINGS.empty_table()
        rows = rows.filter(pc.and_(pc.is_valid(rows["ledger"]), pc.equal(rows["status"], "open")))
        for category in pc.unique(rows["category"]).to_pylist():
            of_category = rows.filter(pc.equal(rows["category"], category))
            keys.setdefault(category, []).append(of_category.select(["scope", "ledger"]))
    for category, found in keys.items():
        folder.mkdir(parents=True, exist_ok=True)
        write_keys(folder / f"{category}.txt", found)


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
