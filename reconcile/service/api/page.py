"""The content of the service's page; `reconcile.report.service_page` draws it."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc

from reconcile.findings.categories import SEVERITY_ORDER
from reconcile.findings.view import FindingView
from reconcile.jobs.backup.status import read_status
from reconcile.report.service_page import FindingRow, JobRow, ServiceView, draw_service
from reconcile.report.trend import UNDECIDABLE, TrendPoint
from reconcile.service.api.metrics import add_results, list_newest_last, read_results
from reconcile.service.api.shares import SharedFindings
from reconcile.service.runs import commands, schedule
from reconcile.service.runs.history import read_points
from reconcile.service.runs.leader import Instance
from reconcile.service.runs.schedule import GateState, JobState, Timing
from reconcile.words import count_noun
from recovery.dataset import open_dataset
from recovery.errors import DatasetError, RecoveryError

_RUNS: Final = 60
_FINDINGS: Final = 50
_SHOWN: Final = [
    "id",
    "severity",
    "status",
    "category",
    "subject",
    "scope",
    "ledger",
    "first_seen",
    "suggested",
    "evidence",
    "bookies",
]
_NOTE: Final = SEVERITY_ORDER[-1]
_OLD: Final = 2
"""So many rounds of all shares without a new verdict mean that the schedule is not kept."""


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
    paths = list_newest_last(config.data, state.job("scrutinize"))
    results = read_results(paths)
    scrutinized = add_results(results) if results else None
    return draw_service(
        ServiceView(
            instance=config.name,
            leads=instance.leads,
            leader=state.leader,
            ready=seen.is_recent,
            problem=seen.problem,
            made=_show(now),
            rows=tuple(rows),
            gates=tuple(gate for gate in instance.gates if gate.state is not GateState.SAFE),
            scrutinized=scrutinized,
            shares=(len(results), timings["scrutinize"].shares if "scrutinize" in timings else len(latest)),
            doubts=tuple(_list_doubts(state.job("scrutinize"), timings.get("scrutinize"), now)),
            worst=tuple(_list_worst(paths, config.metadata)),
            notes=_count_notes(paths),
            passed_over={} if scrutinized is None else {**scrutinized.skipped, **scrutinized.undecided},
            backup=_describe_backup(config.backup.to, now),
            trend=tuple(
                TrendPoint(_describe_end(point.at), point.failing, point.covered_pct, point.exit_code)
                for point in read_points(config.data / "scrutinize", _RUNS)
            ),
        )
    )


def _describe_backup(place: str, now_ms: int) -> str:
    """Return in a sentence which moments the backup can restore; empty: no backup is configured."""
    if not place:
        return ""
    try:
        status = read_status(place, now_ms)
    except (RecoveryError, OSError) as error:
        return f"it cannot be read: {error}"
    if not status.windows or status.rpo_s is None:
        return "it has no base yet: nothing can be restored"
    gaps = f"; {count_noun(len(status.gaps), 'gap')}" if status.gaps else ""
    begin = _show(status.windows[-1].from_ms)
    return f"every moment since {begin} UTC can be restored; its end is {status.rpo_s:.0f} s old{gaps}"


def _show(at_ms: int) -> str:
    return _describe_time(datetime.fromtimestamp(at_ms / 1000, UTC))


def _describe_end(at: str) -> str:
    return f"{_describe_time(datetime.fromisoformat(at))} UTC"


def _describe_time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def _list_doubts(job: JobState, timing: Timing | None, now_ms: int) -> Iterator[str]:
    """Yield the reasons why scrutinies without findings do not prove that all is well now."""
    if job.failures:
        yield f"the last {count_noun(job.failures, 'run')} came to no verdict"
    for share in sorted(job.latest):
        if job.latest[share].exit_code == UNDECIDABLE:
            yield job.latest[share].verdict
            break
    if timing is None or not job.latest:
        return
    if len(job.latest) < timing.shares:
        yield f"only {len(job.latest)} of {timing.shares} shares of the ledgers were checked"
    oldest_ms = min(run.ended_ms for run in job.latest.values())
    if now_ms - oldest_ms > _OLD * timing.every_ms * timing.shares:
        yield f"some ledgers were last checked {_show(oldest_ms)} UTC"


def _count_notes(paths: Sequence[Path]) -> dict[str, int]:
    """Return how many findings of each category are notes."""
    counts: Counter[str] = Counter()
    shared = SharedFindings()
    for path in reversed(paths):
        with suppress(DatasetError):
            for rows in open_dataset(path, "scrutiny").batches("findings", ["severity", "category", "id", "ledger"]):
                batch = shared.keep_once(rows, is_newest=path == paths[-1])
                notes = batch.filter(pc.equal(batch["severity"], _NOTE))["category"]
                counts.update({row["values"]: row["counts"] for row in pc.value_counts(notes).to_pylist()})
    return dict(sorted(counts.items()))


def _list_worst(paths: Sequence[Path], uri: str) -> list[FindingRow]:
    """Return the first findings of the last scrutinies, the gravest first, without notes; each is read once."""
    worst: dict[str, list[FindingRow]] = {severity: [] for severity in SEVERITY_ORDER if severity != _NOTE}
    gravest = worst[SEVERITY_ORDER[0]]
    shared = SharedFindings()
    for path in reversed(paths):
        try:
            for read in open_dataset(path, "scrutiny").batches("findings", _SHOWN):
                batch = shared.keep_once(read, is_newest=path == paths[-1])
                for severity, rows in worst.items():
                    mask = pc.and_(pc.equal(batch["severity"], severity), pc.equal(batch["status"], "open"))
                    chosen = batch.filter(mask).slice(0, _FINDINGS - len(rows))
                    rows += [_describe(row, uri) for row in chosen.to_pylist()]
                if len(gravest) >= _FINDINGS:
                    return gravest
        except DatasetError:
            # Of a run that another instance made, or that is removed at this moment; the figures lack it, too.
            continue
    return list(islice(chain.from_iterable(worst.values()), _FINDINGS))


def _describe(row: Mapping[str, Any], uri: str) -> FindingRow:
    view = FindingView.from_row(row)
    explain = "" if view.ledger is None else shlex.join(["bkmeta", *commands.build_argv_explain(uri, str(view.ledger))])
    return FindingRow(view, explain)
