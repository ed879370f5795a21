"""The service's values as messages of its proto."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.struct_pb2 import Struct

from reconcile.findings.view import FindingView
from reconcile.service._pb import service_pb2 as pb
from reconcile.service.runs.children import Finished
from reconcile.service.runs.schedule import EndedRun, Gate, JobState, Running
from recovery.model.ids import parse

_EXACT: Final = 1 << 53


def _make_struct(result: Mapping[str, Any]) -> Struct:
    """Return an object; numbers that a double cannot hold exactly, such as ids of ledgers, are strings."""
    return json_format.ParseDict(_keep_exact(dict(result)), Struct())


def _keep_exact(value: Any) -> Any:  # noqa: ANN401 - what JSON has
    match value:
        case dict():
            return {name: _keep_exact(entry) for name, entry in value.items()}
        case list():
            return [_keep_exact(entry) for entry in value]
        case int() if not -_EXACT <= value <= _EXACT:
            return str(value)
    return value


def read_whole(value: Any) -> Any:  # noqa: ANN401 - what JSON has
    """Return JSON with whole numbers as commands print them: an object of protobuf has doubles only."""
    match value:
        case dict():
            return {name: read_whole(entry) for name, entry in value.items()}
        case list():
            return [read_whole(entry) for entry in value]
        case float() if value.is_integer():
            return int(value)
    return value


def make_answer(finished: Finished) -> pb.Answer:
    """Return a command's answer."""
    return pb.Answer(exit_code=finished.exit_code, verdict=finished.verdict, result=_make_struct(finished.result))


def make_deletes(finished: Finished) -> pb.Deletes:
    """Return the answer of a command of deletes."""
    result = finished.result
    return pb.Deletes(
        exit_code=finished.exit_code,
        verdict=finished.verdict,
        ledgers=make_each_delete(result),
        certificate_hash=result.get("hash") or "",
        result=_make_struct({name: value for name, value in result.items() if name != "ledgers"}),
    )


def make_each_delete(result: Mapping[str, Any]) -> Iterator[pb.Delete]:
    """Yield the ledgers that a command of deletes names."""
    for entry in result.get("ledgers") or ():
        ledger = parse(str(entry["ledger"]))
        yield pb.Delete(
            ledger_id=ledger.ledger,
            ledger_scope_id=ledger.scope,
            state=entry.get("state") or "",
            verdict=entry.get("verdict") or "",
            reasons=entry.get("reasons") or (),
        )


def _make_run(run: Running | EndedRun | None) -> pb.Run | None:
    if run is None:
        return None
    shown = pb.Run(number=run.number, instance=run.instance, share=run.share, by=run.by, began_ms=run.since_ms)
    if isinstance(run, EndedRun):
        shown.ended_ms, shown.exit_code = run.ended_ms, run.exit_code
        shown.verdict, shown.folder = run.verdict, run.folder
    return shown


def make_job(name: str, job: JobState) -> pb.Job:
    """Return a job."""
    return pb.Job(
        name=name,
        running=_make_run(job.running),
        last=_make_run(job.last),
        latest=[shown for share in sorted(job.latest) if (shown := _make_run(job.latest[share])) is not None],
        asked=job.asked is not None,
        failures=job.failures,
        missed=job.missed,
        broken_off=job.broken_off,
    )


def make_maintenance(gate: Gate, result: Mapping[str, Any] | None = None) -> pb.Maintenance:
    """Return a maintenance, with the result of its last check if given."""
    return pb.Maintenance(
        id=gate.id,
        state=gate.state.value,
        bookies=gate.bookies,
        domains=gate.domains,
        target=gate.target,
        opened_by=gate.by,
        opened_ms=gate.opened_ms,
        verdict=gate.verdict,
        checked_ms=gate.checked_ms,
        statement=gate.statement,
        why=gate.why,
        until_ms=gate.until_ms,
        result=None if result is None else _make_struct(result),
    )


def make_finding(row: Mapping[str, Any]) -> pb.Finding:
    """Return a finding; a row of FINDINGS in."""
    view = FindingView.from_row(row)
    return pb.Finding(
        id=view.id,
        category=view.category,
        severity=view.severity,
        status=view.status,
        ledger_id=None if view.ledger is None else view.ledger.ledger,
        ledger_scope_id=0 if view.ledger is None else view.ledger.scope,
        segment=view.segment,
        subject=view.subject,
        bookies=view.bookies,
        evidence=[pb.Evidence(**asdict(fact)) for fact in view.facts],
        unknowns=view.unknowns,
        says=view.says,
        suggested=view.remedy,
        first_seen_ms=_to_ms(view.first_seen),
        last_seen_ms=_to_ms(view.last_seen),
    )


def _to_ms(time: datetime) -> int:
    return int(time.timestamp() * 1000)
