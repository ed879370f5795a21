"""What the page of the service shows, gathered; `reconcile.report.service_page` draws it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings.categories import SEVERITY_ORDER
from reconcile.report.service_page import JobRow, ServiceView, draw_service
from reconcile.report.trend import TrendPoint
from reconcile.service.api.metrics import add_results, read_results
from reconcile.service.runs import schedule
from reconcile.service.runs.folders import OUT
from reconcile.service.runs.history import read_points
from reconcile.service.runs.leader import Instance
from reconcile.service.runs.schedule import GateState, State
from recovery.dataset import open_dataset
from recovery.errors import DatasetError
from recovery.model.ids import LedgerId

_RUNS: Final = 60
_FINDINGS: Final = 50


def make_page(instance: Instance) -> str:
    """Return the page as HTML."""
    seen, config, now = instance.seen, instance.config, instance.now_ms()
    state, timings = seen.state, config.timings
    rows = []
    for name in sorted({*timings, *state.jobs}):
        job = state.job(name)
        due = schedule.find_due_ms(timings[name], job, now) if name in timings and job.running is None else None
        rows.append(
            JobRow(
                name,
                "running" if job.running is not None else "" if job.last is None else job.last.verdict,
                None if job.last is None else job.last.exit_code,
                None if job.last is None else _show(job.last.ended_ms),
                None if due is None else _show(due),
                job.missed,
                job.broken_off,
                job.failures,
            )
        )
    latest = state.job("scrutinize").latest
    paths = [config.data / latest[share].folder / OUT for share in sorted(latest)]
    results = read_results(paths)
    return draw_service(
        ServiceView(
            instance=config.name,
            leads=instance.leads,
            leader=state.leader,
            ready=instance.is_ready,
            problem=seen.problem,
            made=_show(now),
            rows=tuple(rows),
            gates=tuple(gate for gate in state.gates.values() if gate.state is not GateState.SAFE),
            scrutinized=add_results(results) if results else None,
            shares=(len(results), timings["scrutinize"].shares if "scrutinize" in timings else len(latest)),
            worst=tuple(_list_worst(config.data, state)),
            trend=tuple(
                TrendPoint(_word_end(point.at), point.failing, point.covered_pct, point.exit_code)
                for point in read_points(config.data / "scrutinize", _RUNS)
            ),
        )
    )


def _show(at_ms: int) -> str:
    return _word_time(datetime.fromtimestamp(at_ms / 1000, UTC))


def _word_end(at: str) -> str:
    return f"{_word_time(datetime.fromisoformat(at))} UTC"


def _word_time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def _list_worst(data: Any, state: State) -> list[Mapping[str, str]]:  # noqa: ANN401 - a path
    """Return the first findings of the last scrutinies, the gravest first."""
    worst: list[Mapping[str, str]] = []
    latest = state.job("scrutinize").latest
    for severity in SEVERITY_ORDER:
        for share in sorted(latest):
            try:
                for batch in open_dataset(data / latest[share].folder / OUT, "scrutiny").batches("findings"):
                    mask = pc.and_(pc.equal(batch["severity"], severity), pc.equal(batch["status"], "open"))
                    rows = batch.filter(mask).slice(0, _FINDINGS - len(worst))
                    worst += [_describe(row) for row in _plain(rows)]
                    if len(worst) >= _FINDINGS:
                        return worst
            except DatasetError:
                continue
    return worst


def _plain(rows: pa.Table) -> list[dict[str, Any]]:
    plain: list[dict[str, Any]] = rows.to_pylist()
    return plain


def _describe(row: Mapping[str, Any]) -> Mapping[str, str]:
    about = row["subject"] if row["ledger"] is None else f"ledger {LedgerId(row['scope'], row['ledger'])}"
    first = row["first_seen"]
    return {
        "severity": row["severity"],
        "category": row["category"],
        "about": about or "",
        "since": "" if first is None else _word_time(first),
        "suggested": row["suggested"] or "",
    }
