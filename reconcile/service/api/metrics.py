"""The figures of the service as Prometheus' text format has them.

    each begins with bookkeeper_metadata_service_
    leads                       1: this instance leads
    epoch                       take-overs until now
    store_seen_seconds_ago      since the store was seen; missing: never
    runs_total{command}         runs that were begun
    missed_total{command}       runs that were due, and not begun before the next was due
    broken_off_total{command}   runs that an instance began and did not end
    failures{command}           runs in a row without a verdict
    running{command}            1: one is under way
    exit_code{command}          of the last run
    verdict_seconds{command}    end of the oldest of all shares' last verdicts, since 1970
    due_seconds{command}        when the next run is due, since 1970
    maintenances{state}         open maintenances
    commands                    processes of commands that are under way for the leader

    and, of Prometheus' own client, process_open_fds, process_resident_memory_bytes and others; and process_threads

where a backup is configured, each beginning with bookkeeper_metadata_backup_

    readable                    1: it can be read
    rpo_seconds                 age of what is sealed: so much would be lost now; missing: it has no base yet
    through                     last transaction that is sealed
    bases                       in it
    segments                    in it
    gaps                        in it
    bytes                       of its segments

and the figures of the last scrutiny (`reconcile.jobs.scrutiny.metrics`), of all shares together.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/, text format 0.0.4.
"""

import logging
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import Metric

from reconcile.findings.categories import TRAITS, Category
from reconcile.jobs.backup.status import read_status
from reconcile.jobs.scrutiny.metrics import format_families, list_metrics, make_family
from reconcile.jobs.scrutiny.request import Scrutinized
from reconcile.service.runs import schedule
from reconcile.service.runs.folders import OUT
from reconcile.service.runs.leader import Instance
from reconcile.service.runs.schedule import GateState, JobState, ServiceState
from recovery.dataset import open_dataset
from recovery.errors import DatasetError, RecoveryError

_LOG: Final = logging.getLogger(__name__)
_PROCESS: Final = CollectorRegistry()
ProcessCollector(registry=_PROCESS)


def format_service(instance: Instance) -> str:
    """Return the text of /metrics."""
    families = [*_list_service(instance), *_list_backup(instance)]
    families += _list_scrutinies(instance.config.data, instance.seen.state)
    return format_families(families, further=_PROCESS)


def _list_service(instance: Instance) -> Iterator[Metric]:
    seen, now = instance.seen, instance.now_ms()
    state, timings = seen.state, instance.config.timings
    jobs = {name: state.job(name) for name in sorted({*timings, *state.jobs})}
    open_gates = Counter(str(gate.state) for gate in instance.gates)
    counters: list[tuple[str, str, Mapping[str, float]]] = [
        ("runs", "Runs that were begun.", {name: job.number for name, job in jobs.items()}),
        ("missed", "Runs that were due, and not begun before the next was due.", {
            name: job.missed for name, job in jobs.items()}),
        ("broken_off", "Runs that an instance began and did not end.", {
            name: job.broken_off for name, job in jobs.items()}),
    ]  # fmt: skip
    gauges: list[tuple[str, str, str, Mapping[str, float]]] = [
        ("leads", "1: this instance leads.", "", {"": int(instance.leads)}),
        ("epoch", "Take-overs until now.", "", {"": state.epoch}),
        ("store_seen_seconds_ago", "Since the store was seen.", "", {} if seen.age_s is None else {
            "": round(seen.age_s, 3)}),
        ("failures", "Runs in a row that came to no verdict.", "command", {
            name: job.failures for name, job in jobs.items()}),
        ("running", "1: one is under way.", "command", {
            name: int(job.running is not None) for name, job in jobs.items()}),
        ("exit_code", "Of the last run.", "command", {
            name: job.last.exit_code for name, job in jobs.items() if job.last is not None}),
        ("verdict_seconds", "When the oldest of the last verdicts of all shares was.", "command", {
            name: min(run.ended_ms for run in job.latest.values()) / 1000 for name, job in jobs.items() if job.latest}),
        ("due_seconds", "When the next run is due.", "command", {
            name: schedule.find_due_ms(timing, jobs[name], now) / 1000
            for name, timing in timings.items() if jobs[name].running is None}),
        ("maintenances", "That are open.", "state", {str(kind): open_gates[str(kind)] for kind in GateState}),
        ("commands", "Processes of commands for the leader.", "", {"": instance.children.number}),
    ]  # fmt: skip
    for name, text, values in counters:
        yield from make_family(f"bookkeeper_metadata_service_{name}", text, "command", values, is_counter=True)
    for name, text, label, gauge in gauges:
        yield from make_family(f"bookkeeper_metadata_service_{name}", text, label, gauge)
    yield from make_family("process_threads", "Threads.", "", {"": threading.active_count()})


def _list_backup(instance: Instance) -> Iterator[Metric]:
    """Yield the figures of the backup, whichever instance follows; none where none is configured."""
    place = instance.config.backup.to
    if not place:
        return
    try:
        status = read_status(place, instance.now_ms())
    except (RecoveryError, OSError):
        status = None
    known: list[tuple[str, str, float | None]] = [("readable", "1: the backup can be read.", int(status is not None))]
    if status is not None:
        known += [
            ("rpo_seconds", "Age of the last seal: so much would be lost now.", status.rpo_s),
            ("through", "Last transaction that is sealed.", status.through),
            ("bases", "In the backup.", len(status.bases)),
            ("segments", "In the backup.", len(status.segments)),
            ("gaps", "In the backup.", len(status.gaps)),
            ("bytes", "Of its segments.", status.bytes),
        ]
    for name, text, value in known:
        yield from make_family(f"bookkeeper_metadata_backup_{name}", text, "", {} if value is None else {"": value})


def _list_scrutinies(data: Path, state: ServiceState) -> Iterator[Metric]:
    """Yield the figures of the last scrutiny of each share together; none where their folder is elsewhere."""
    job = state.job("scrutinize")
    results = read_results(list_newest_last(data, job))
    # A run with wrong sums has no verdict, so it is the latest of no share: it stays the last until the next run.
    is_new = job.last is not None and not job.last.came_to_verdict
    invalid = read_results([data / job.last.folder / OUT]) if job.last is not None and is_new else []
    if not (results or invalid):
        return
    ended_ms = max(
        (run.ended_ms for run in job.latest.values()), default=job.last.ended_ms if job.last is not None else 0
    )
    adds_up = all(result.adds_up for result in (*results, *invalid))
    yield from list_metrics(add_results(results or invalid), ended_ms / 1000, adds_up=adds_up)


def list_newest_last(data: Path, job: JobState) -> list[Path]:
    """Return the folders of the last run of each share of a job, the newest last."""
    return [data / run.folder / OUT for run in sorted(job.latest.values(), key=lambda run: run.ended_ms)]


def read_results(paths: Sequence[Path]) -> list[Scrutinized]:
    """Return the results of scrutinies; missing and damaged ones are left out.

    So are results of a version with another form: the log names these, once.
    """
    results = []
    for path in paths:
        try:
            result = open_dataset(path, "scrutiny").manifest["result"]
        except (DatasetError, KeyError):
            continue
        try:
            results.append(Scrutinized.from_json(result))
        except ValueError as error:
            _log_other_version(path, str(error))
    return results


@cache
def _log_other_version(path: Path, why: str) -> None:
    # A program that asks for figures asks every few seconds.
    _LOG.warning(
        "%s: another version of bkmeta wrote it (%s); no figure and no page counts it; run it again", path, why
    )


def add_results(results: Sequence[Scrutinized]) -> Scrutinized:
    """Return the sum of the results of several shares.

    A finding that is of no ledger counts once; where no ledgers decide it, only if the newest run has it.

    Args:
        results: the newest last: of bookies and marks, what it saw.
    """
    last = results[-1]
    counted = [finding for result in results for finding in result.of_cluster]
    once = {
        finding.id: finding
        for result in results
        for finding in result.of_cluster
        if result is last or TRAITS[Category(finding.category)].of_share
    }.values()
    coverage: dict[str, Any] = dict(last.coverage)
    coverage |= {name: sum(result.coverage[name] for result in results) for name in ("positions", "judged")}
    coverage["passed"] = _add_counts([result.coverage["passed"] for result in results])
    marks = [result.coverage["marks"] for result in results]
    oldest = [mark["oldest"] for mark in marks if mark["oldest"] is not None]
    coverage["marks"] = {
        **last.coverage["marks"],
        "number": sum(mark["number"] for mark in marks),
        "oldest": min(oldest, default=None),
    }
    return Scrutinized(
        listed=sum(result.listed for result in results),
        clean=sum(result.clean for result in results),
        skipped=_add_counts([result.skipped for result in results]),
        undecided=_add_counts([result.undecided for result in results]),
        with_findings=sum(result.with_findings for result in results),
        found=_count_once(
            [result.found for result in results], [f.category for f in counted], [f.category for f in once]
        ),
        by_severity=_count_once(
            [result.by_severity for result in results], [f.severity for f in counted], [f.severity for f in once]
        ),
        rechecked=sum(result.rechecked for result in results),
        coverage=coverage,
        worst=(),
        failing=sum(result.failing for result in results) - sum(f.fails for f in counted) + sum(f.fails for f in once),
        suppressed=sum(result.suppressed for result in results),
        new=None,
        resolved=None,
        carried=_add_counts([result.carried for result in results]),
        of_cluster=tuple(once),
    )


def _count_once(counts: Sequence[Mapping[str, int]], counted: Sequence[str], once: Sequence[str]) -> dict[str, int]:
    """Add counts, with the counts of findings without a ledger replaced."""
    total = Counter(_add_counts(counts))
    total.subtract(counted)
    total.update(once)
    return {key: count for key, count in total.items() if count}


def _add_counts(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for counted in counts:
        total.update(counted)
    return dict(total)
