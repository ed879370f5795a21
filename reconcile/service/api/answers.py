"""The answers of the service: gRPC and HTTP call the same methods."""

import hmac
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import Message

from backends.errors import BackendError
from reconcile.findings.categories import SEVERITY_ORDER, Category
from reconcile.service._pb import service_pb2 as pb
from reconcile.service.api.messages import (
    make_answer,
    make_deletes,
    make_each_delete,
    make_finding,
    make_job,
    make_maintenance,
)
from reconcile.service.api.methods import ApiError, Call, Method, Why
from reconcile.service.api.shares import SharedFindings
from reconcile.service.api.tasks import TaskBook
from reconcile.service.config import READ, Caller, Config, TokenRole
from reconcile.service.runs import commands, schedule
from reconcile.service.runs.checks import read_check
from reconcile.service.runs.children import Children, Finished, StoppedError
from reconcile.service.runs.folders import OUT
from reconcile.service.runs.leader import Instance
from reconcile.service.runs.record import NotLeaderError
from reconcile.service.runs.schedule import EndedRun, Gate, ServiceState
from recovery.dataset import open_dataset
from recovery.errors import RecoveryError
from recovery.model.ids import LedgerId, is_bookie_id, to_unsigned

_LOG: Final = logging.getLogger(__name__)
T = TypeVar("T")

_ROWS: Final = 500
"""Findings that are turned into messages together."""
_MOST_STREAMS: Final = 32
_MOST_ANONYMOUS_STREAMS: Final = 8
"""Readers of findings at a time: each holds open files."""
_WAIT_S: Final = 0.2
"""Between checks whether a caller that waits for a place is still there."""
_MOST_GATES: Final = 100
_LONGEST_NAMES: Final = 2000
"""Bytes of all bookies or domains: the record in the store holds those of every maintenance."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.:\-]{1,64}")
_SOAK: Final = re.compile(r"[0-9]{1,7}[smhd]")
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_HASH: Final = re.compile(r"[0-9A-Fa-f]{0,128}")
_LONGEST_LINE: Final = 500
_MOST_NAMED: Final = 1000
"""Most ledgers in one question: they become arguments of a command."""
_MOST_APPROVALS: Final = 64
_CATEGORIES: Final = tuple(map(str, Category))
_TARGETS: Final = ("", "read-only", "down", "gone")
_NEEDED: Final = "this needs a token: send `authorization: Bearer TOKEN`"
_CERTIFICATE: Final = "certificate.json"
_LEDGERS: Final = "ledgers.txt"


class Api:
    """The answers.

    Args:
        instance: the answering instance.
        tokens: token → who has it.
    """

    def __init__(self, instance: Instance, tokens: Mapping[str, Caller]) -> None:
        self._instance = instance
        self._tokens = dict(tokens)
        self._roles = {caller.name: caller.roles for caller in tokens.values()}
        self._reads = Children(instance.program)
        self._tasks = TaskBook(self.answer, instance.now_ms, self.require_role)
        self._places = threading.BoundedSemaphore(self._config.requests.at_once)
        self._anonymous_places = threading.BoundedSemaphore(self._config.requests.at_once_anonymous)
        self._streams = threading.BoundedSemaphore(_MOST_STREAMS)
        self._anonymous_streams = threading.BoundedSemaphore(_MOST_ANONYMOUS_STREAMS)

    @property
    def _config(self) -> Config:
        return self._instance.config

    def close(self) -> None:
        """End the commands for readers; commands of the leader end with the lead."""
        self._tasks.stop()
        self._reads.stop()

    def answer(
        self,
        method: Method,
        request: Message,
        by: str,
        *,
        given_s: float | None = None,
        given_up: threading.Event | None = None,
        folders: list[Path] | None = None,
    ) -> Any:  # noqa: ANN401 - a message of the method's type, or an iterator of them
        """Return the answer, or an iterator of answers.

        Args:
            method: the called method.
            request: its message.
            by: name of the caller, as `admit` returns it.
            given_s: the caller's deadline; None: none.
            given_up: set by the carrier as soon as no caller waits any longer.
            folders: gets the folder of the command that is run for the answer.

        Raises:
            ApiError: it is not answered.
        """
        longest = self._config.requests.deadline
        left_s = longest if given_s is None else min(longest, given_s)
        call = Call(by, time.monotonic() + left_s, given_up or threading.Event(), [] if folders is None else folders)
        handler: Callable[[Any, Call], Any] = getattr(self, method.attribute)
        try:
            return handler(request, call)
        except (NotLeaderError, StoppedError) as error:
            raise ApiError(Why.NOT_LEADER, str(error)) from error
        except (BackendError, RecoveryError, OSError) as error:
            raise ApiError(Why.UNAVAILABLE, str(error)) from error
        except ApiError:
            raise
        except Exception as error:  # of one request: the service goes on, and its log has the trace
            _LOG.exception("%s is not answered", method.path)
            raise ApiError(Why.BROKEN, f"a fault of the service ({type(error).__name__}): its log has more") from error

    def admit(self, method: Method, authorization: str) -> str:
        """Return the name of a method's caller, as `identify` does.

        Raises:
            ApiError: as `identify`; or the method changes something, and there is no token, or one without the role.
        """
        by = self.identify(authorization)
        if method.acts and not by:
            raise ApiError(Why.NO_TOKEN, _NEEDED)
        self.require_role(method, by)
        return by

    def require_role(self, method: Method, by: str) -> None:
        """Refuse a method that a caller has no role for; a method that changes nothing needs none.

        Raises:
            ApiError: the caller may not ask for it.
        """
        if method.role is TokenRole.READ or method.role in self._roles.get(by, ()):
            return
        problem = f"{method.path} needs a token with the role {method.role}"
        raise ApiError(Why.NOT_ALLOWED, f"{problem}: its line in the file of tokens names its roles")

    def identify(self, authorization: str) -> str:
        """Return the name of the caller; empty: not known, and not needed.

        Every known token is compared, in the same time.

        Raises:
            ApiError: the token is not known; or there is none, and reading needs one.
        """
        scheme, _, token = authorization.strip().partition(" ")
        if scheme and scheme.lower() != "bearer":
            raise ApiError(Why.NO_TOKEN, _NEEDED)
        given = token.strip().encode()
        names = [caller.name for known, caller in self._tokens.items() if hmac.compare_digest(known.encode(), given)]
        if given and not names:
            raise ApiError(Why.NO_TOKEN, "this token is not known")
        if not names and self._config.access.anonymous != READ:
            raise ApiError(Why.NO_TOKEN, _NEEDED)
        return names[0] if names else ""

    # What is going on

    def get_status(self, _request: pb.StatusRequest, _call: Call) -> pb.Status:
        """Return the last runs, the due runs, and the leader."""
        seen = self._instance.seen
        state, now = seen.state, self._instance.now_ms()
        timings = self._config.timings
        status = pb.Status(
            instance=self._config.name,
            leads=self._instance.leads,
            leader=state.leader,
            leader_address=state.address,
            epoch=state.epoch,
            leads_since_ms=state.since_ms,
            seen_s_ago=seen.age_s,
            problem=seen.problem,
            maintenances=[make_maintenance(gate) for gate in self._instance.gates],
        )
        for name in sorted({*timings, *state.jobs}):
            job = state.job(name)
            shown = make_job(name, job)
            if name in timings and job.running is None:
                shown.due_ms = schedule.find_due_ms(timings[name], job, now)
            status.jobs.append(shown)
        return status

    def list_findings(self, request: pb.FindingsRequest, call: Call) -> Iterator[pb.Finding]:
        """Yield the findings of the last scrutiny of each share, of one scope or of one ledger."""
        severity = request.severity or "info"
        if severity not in SEVERITY_ORDER:
            raise ApiError(Why.BAD_REQUEST, f"severity is one of {', '.join(SEVERITY_ORDER)}")
        if request.category and request.category not in _CATEGORIES:
            raise ApiError(Why.BAD_REQUEST, f"no category {request.category!r}; known are {', '.join(_CATEGORIES)}")
        severe = SEVERITY_ORDER[: SEVERITY_ORDER.index(severity) + 1]
        runs = self._instance.seen.state.job("scrutinize").latest
        paths = [self._require_here(run) for run in sorted(runs.values(), key=lambda run: run.ended_ms)]
        return self._read_streamed(_filter_findings(paths, request, severe, call), call)

    def _require_here(self, run: EndedRun) -> Path:
        path = self._config.data / run.folder / OUT
        if not (path / "manifest.json").is_file():
            problem = f"run {run.folder} is not in the folder of {self._config.name}"
            raise ApiError(Why.UNAVAILABLE, f"{problem}: ask {run.instance}, which made it, or share the folder `data`")
        return path

    def list_ledgers(self, request: pb.ScopeRequest, call: Call) -> Iterator[pb.Ledger]:
        """Yield the ledgers of one scope, as the last capture of the store has them."""
        captured = self._instance.find_capture()
        if captured is None:
            remedy = "ask again in some minutes"
            if not self._config.cache.background:
                remedy = "the configuration leaves it to questions of check-impact (cache.background), so ask one first"
            raise ApiError(Why.UNAVAILABLE, f"the store was not captured yet: {remedy}")
        return self._read_streamed(_list_ledgers(captured, request.ledger_scope_id, call), call)

    def _read_streamed(self, messages: Iterator[T], call: Call) -> Iterator[T]:
        """Yield messages while the caller has one of the places for long answers."""
        streams = self._streams if call.by else self._anonymous_streams
        if not streams.acquire(blocking=False):
            raise ApiError(Why.TOO_MANY, "too many callers read long answers at this moment: ask again")
        try:
            yield from messages
        finally:
            streams.release()

    # Questions that a command answers

    def check_impact(self, request: pb.ImpactRequest, call: Call) -> pb.Answer:
        """Return whether bookies may be taken away."""
        _check_impact(request.bookies, request.domains, request.target)
        words = self._instance.build_argv_impact(request.bookies, request.domains, request.target)
        self._instance.await_records(call.left_s, call.given_up)
        return make_answer(self._run(words, call, self._reads))

    def explain_ledger(self, request: pb.LedgerId, call: Call) -> pb.Answer:
        """Return all facts of one ledger."""
        words = [
            *commands.build_argv_explain(self._config.metadata, str(_read_ledger(request))),
            *self._instance.build_argv_evidence(),
            *self._config.requests.explain,
        ]
        return make_answer(self._run(words, call, self._reads))

    def get_deletes(self, request: pb.Ledgers, call: Call) -> pb.Deletes:
        """Return the states of deletes."""
        return make_deletes(self._read_deletes(request, call))

    def list_deletes(self, request: pb.Ledgers, call: Call) -> Iterator[pb.Delete]:
        """Yield the states of deletes, one by one."""
        return make_each_delete(self._read_deletes(request, call).result)

    def _read_deletes(self, request: pb.Ledgers, call: Call) -> Finished:
        if len(request.ledgers) > _MOST_NAMED:
            raise ApiError(Why.BAD_REQUEST, f"name at most {_MOST_NAMED} ledgers, or none, which is all of a scope")
        named = [str(_read_ledger(entry)) for entry in request.ledgers]
        words = commands.build_argv_status(self._config.metadata, named, to_unsigned(request.ledger_scope_id))
        return self._run(words, call, self._reads)

    @contextmanager
    def _take_place(self, call: Call) -> Iterator[Path]:
        """Yield a folder for one command.

        Callers with a token wait for a place until their deadline. Callers without one have few places of their own,
        and are refused where none is free.
        """
        if call.by:
            places = self._places
            while not places.acquire(timeout=max(0.0, min(_WAIT_S, call.left_s))):
                if call.left_s <= 0 or call.given_up.is_set():
                    problem = f"{self._config.requests.at_once} requests are under way, and none ended in time"
                    raise ApiError(Why.TOO_MANY, f"{problem}: ask again")
        else:
            places = self._anonymous_places
            if not places.acquire(blocking=False):
                problem = f"{self._config.requests.at_once_anonymous} requests without a token are under way"
                raise ApiError(Why.TOO_MANY, f"{problem}: ask again, or with a token")
        try:
            with self._instance.request_folder() as folder:
                call.folders.append(folder)
                yield folder
        finally:
            places.release()

    def _run(self, words: Sequence[str], call: Call, children: Children) -> Finished:
        with self._take_place(call) as folder:
            return _run_in(folder, words, call, children)

    # What only the leader does

    @property
    def _leading(self) -> Children:
        if not self._instance.leads:
            raise ApiError(Why.NOT_LEADER, self._instance.describe_leader())
        return self._instance.children

    def run_now(self, request: pb.RunRequest, call: Call) -> pb.Status:
        """Start a job as soon as no other one runs."""
        if request.job not in self._config.jobs:
            raise ApiError(Why.NOT_FOUND, f"no job {request.job!r}; known are {', '.join(self._config.jobs) or 'none'}")
        self._require_lead()
        self._instance.ask(request.job, _sign(call.by, request.why))
        return self.get_status(pb.StatusRequest(), call)

    def _require_lead(self) -> None:
        _ = self._leading

    def request_deletes(self, request: pb.DeletesRequest, call: Call) -> pb.Deletes:
        """Ask for deletes."""
        if not request.ledgers:
            raise ApiError(Why.BAD_REQUEST, "name ledgers")
        if request.soak and not _SOAK.fullmatch(request.soak):
            raise ApiError(Why.BAD_REQUEST, "write soak as 90s, 10m, 24h or 7d")
        if request.reason:
            _check_line("a reason", request.reason)
        children = self._leading
        with self._take_place(call) as folder:
            ledgers = _write_ledgers(folder, request.ledgers)
            reason = f"{call.by}: {request.reason}"
            words = commands.build_argv_request(self._target, ledgers, reason, request.soak)
            words += self._config.requests.delete_request
            return make_deletes(_run_in(folder, words, call, children))

    def verify_deletes(self, request: pb.VerifyRequest, call: Call) -> pb.Deletes:
        """Verify deletes, and make a certificate of the ledgers that may be purged."""
        if request.confirm_count < 0:
            raise ApiError(Why.BAD_REQUEST, "confirm_count is a number of ledgers")
        children = self._leading
        with self._take_place(call) as folder:
            ledgers = _write_ledgers(folder, request.ledgers) if request.ledgers else None
            made = folder / _CERTIFICATE
            words = commands.build_argv_verify(
                self._target, ledgers, made if request.certificate else None, request.confirm_count
            )
            words += [*self._instance.build_argv_evidence(), *self._config.requests.delete_verify]
            answer = make_deletes(_run_in(folder, words, call, children))
            if made.is_file():
                answer.certificate = made.read_bytes()
            return answer

    def purge_deletes(self, request: pb.PurgeRequest, call: Call) -> pb.Deletes:
        """Purge the ledgers of a certificate."""
        if not request.certificate:
            raise ApiError(Why.BAD_REQUEST, "give the certificate that verify-deletes made")
        if not _HASH.fullmatch(request.confirm_hash):
            raise ApiError(Why.BAD_REQUEST, "confirm_hash is of hexadecimal digits, as the certificate has it")
        if len(request.approvals) > _MOST_APPROVALS:
            raise ApiError(Why.BAD_REQUEST, f"give at most {_MOST_APPROVALS} approvals")
        children = self._leading
        with self._take_place(call) as folder:
            certificate = folder / _CERTIFICATE
            certificate.write_bytes(request.certificate)
            approvals = [folder / f"approval-{number}.json" for number in range(len(request.approvals))]
            for path, raw in zip(approvals, request.approvals, strict=True):
                path.write_bytes(raw)
            words = commands.build_argv_purge(self._target, certificate, request.confirm_hash, approvals)
            return make_deletes(_run_in(folder, words, call, children))

    @property
    def _target(self) -> list[str]:
        return commands.build_argv_target(self._config.metadata, self._config.data / "deletes", self._config.acl)

    # Tasks

    def start_task(self, request: pb.TaskRequest, call: Call) -> pb.Task:
        """Begin a long request, and return at once."""
        if request.why:
            _check_line("a reason", request.why)
        return self._tasks.start(request.method, request.request, call.by, request.why)

    def get_task(self, request: pb.TaskId, _call: Call) -> pb.Task:
        """Return a task, with its result if it has ended."""
        return self._tasks.show(request.id)

    def list_tasks(self, _request: pb.TasksRequest, _call: Call) -> pb.Tasks:
        """Return the tasks of this instance."""
        return self._tasks.list()

    def cancel_task(self, request: pb.TaskId, call: Call) -> pb.Task:
        """End a task."""
        return self._tasks.cancel(request.id, call.by)

    # Maintenances

    def open_maintenance(self, request: pb.MaintenanceRequest, call: Call) -> pb.Maintenance:
        """Open a maintenance, and return whether it is safe now."""
        if not _NAME.fullmatch(request.id):
            raise ApiError(Why.BAD_REQUEST, "write an id of letters, digits, _ . : and -, at most 64")
        _check_impact(request.bookies, request.domains, request.target)
        children = self._leading
        named = (tuple(request.bookies), tuple(request.domains))
        opened_ms = self._instance.now_ms()
        until_ms = opened_ms + _read_ttl_ms(request.ttl) if request.ttl else None
        if request.why:
            _check_line("a reason", request.why)
        target = request.target or "down"
        gate = Gate(request.id, *named, target, call.by, opened_ms, why=request.why, until_ms=until_ms)
        if len(self._instance.seen.state.gates) >= _MOST_GATES:
            raise ApiError(Why.TOO_MANY, f"{_MOST_GATES} maintenances are open: close some")
        # Before anything is kept: who is refused asks again, and it is not open by then.
        with self._take_place(call):
            try:
                self._instance.change(lambda state: schedule.open_gate(state, gate))
            except ValueError as error:
                raise ApiError(Why.BAD_REQUEST, f"{error}: close it, or name another") from error
            checked = self._instance.check_gate(gate, children, max(1.0, call.left_s))
        return self._show_gate(_find_gate(checked, gate.id))

    def get_maintenance(self, request: pb.MaintenanceId, _call: Call) -> pb.Maintenance:
        """Return a maintenance as of its last check."""
        return self._show_gate(_find_gate(self._instance.seen.state, request.id))

    def _show_gate(self, gate: Gate) -> pb.Maintenance:
        """Return a maintenance as it is now, with the whole result of its last check."""
        return make_maintenance(self._instance.judge_gate(gate), read_check(self._config.data, gate))

    def release_maintenance(self, request: pb.ReleaseRequest, call: Call) -> pb.Maintenance:
        """Release a maintenance that is not known to be safe, by a person's statement."""
        _check_line("a statement", request.statement)
        self._require_lead()
        statement = f"{call.by}: {request.statement}"

        def release(state: ServiceState) -> ServiceState:
            # Searched for in the state that is changed: another caller may close it meanwhile.
            return schedule.release_gate(state, _find_gate(state, request.id).id, statement)

        return self._show_gate(_find_gate(self._instance.change(release), request.id))

    def close_maintenance(self, request: pb.MaintenanceId, call: Call) -> pb.Status:
        """End a maintenance: it is over, or will not be."""
        self._require_lead()
        _find_gate(self._instance.seen.state, request.id)
        self._instance.change(lambda state: schedule.close_gate(state, request.id))
        return self.get_status(pb.StatusRequest(), call)


def _sign(by: str, why: str) -> str:
    """Return the caller, and the reason if it is given."""
    if not why:
        return by
    _check_line("a reason", why)
    return f"{by}: {why}"


def _read_ttl_ms(text: str) -> int:
    if not _SOAK.fullmatch(text) or int(text[:-1]) == 0:
        raise ApiError(Why.BAD_REQUEST, "write ttl as 90m, 8h or 2d")
    return int(text[:-1]) * _UNIT_MS[text[-1]]


def _find_gate(state: ServiceState, gate_id: str) -> Gate:
    gate = state.gates.get(gate_id)
    if gate is None:
        raise ApiError(Why.NOT_FOUND, f"no maintenance {gate_id!r} is open")
    return gate


def _run_in(folder: Path, words: Sequence[str], call: Call, children: Children) -> Finished:
    finished = children.run(words, folder, timeout_s=max(0.0, call.left_s), given_up=call.given_up)
    if finished.timed_out:
        raise ApiError(Why.TOO_LATE, "it was not done within the deadline, and was ended; ask again with a longer one")
    if not finished.result:
        raise ApiError(Why.UNAVAILABLE, finished.verdict)
    return finished


def _read_ledger(entry: pb.LedgerId) -> LedgerId:
    """Return a ledger; a missing id means no ledger, not ledger 0."""
    if not entry.HasField("ledger_id"):
        raise ApiError(Why.BAD_REQUEST, "name a ledger: ledger_id is missing")
    return LedgerId(entry.ledger_scope_id, entry.ledger_id)


def _check_line(what: str, text: str) -> None:
    if not (text.strip() and text.isprintable() and len(text.encode()) <= _LONGEST_LINE):
        raise ApiError(Why.BAD_REQUEST, f"{what} is one line of at most {_LONGEST_LINE} bytes")


def _check_impact(bookies: Sequence[str], domains: Sequence[str], target: str) -> None:
    """Check the names that a caller wants to take away: they go into a command, and may stay in the record."""
    if bool(bookies) == bool(domains):
        raise ApiError(Why.BAD_REQUEST, "name bookies, or domains")
    unfit = [name for name in bookies if not is_bookie_id(name)]
    unfit += [name for name in domains if not (name.strip() and name.isprintable())]
    if unfit:
        raise ApiError(Why.BAD_REQUEST, f"{unfit[0]!r} is no name of a {'bookie' if bookies else 'domain'}")
    if sum(len(name.encode()) for name in (*bookies, *domains)) > _LONGEST_NAMES:
        raise ApiError(Why.BAD_REQUEST, f"more than {_LONGEST_NAMES} bytes of names: ask for fewer at a time")
    if target not in _TARGETS:
        raise ApiError(Why.BAD_REQUEST, f"target is one of {', '.join(filter(None, _TARGETS))}")


def _write_ledgers(folder: Path, ledgers: Sequence[pb.LedgerId]) -> Path:
    path = folder / _LEDGERS
    path.write_text("".join(f"{ledger}\n" for ledger in map(_read_ledger, ledgers)), encoding="utf-8")
    return path


def _list_ledgers(captured: Path, scope: int, call: Call) -> Iterator[pb.Ledger]:
    catalog = open_dataset(captured, "catalog")
    [source] = catalog.read("sources", columns=["at", "gaps"]).to_pylist()
    captured_ms = int(source["at"].timestamp() * 1000)
    for batch in catalog.batches("ledgers", ["scope", "ledger", "state", "last_entry", "length"]):
        rows = batch.filter(pc.equal(batch["scope"], scope))
        for start in range(0, rows.num_rows, _ROWS):
            for row in rows.slice(start, _ROWS).to_pylist():
                if call.given_up.is_set():
                    return
                if call.left_s <= 0:
                    raise ApiError(Why.TOO_LATE, "not all was read within the deadline: this is not all of it")
                yield pb.Ledger(
                    ledger_id=row["ledger"],
                    ledger_scope_id=row["scope"],
                    state=row["state"] or "",
                    last_entry=row["last_entry"],
                    length=row["length"],
                    captured_ms=captured_ms,
                )
    if source["gaps"]:
        raise ApiError(Why.UNAVAILABLE, f"the capture has gaps, so this is not all of it: {source['gaps'][0]}")


def _filter_findings(
    paths: Sequence[Path], request: pb.FindingsRequest, severe: Sequence[str], call: Call
) -> Iterator[pb.Finding]:
    shared = SharedFindings()
    for path in reversed(paths):
        for read in open_dataset(path, "scrutiny").batches("findings"):
            batch = shared.keep_once(read, is_newest=path == paths[-1])
            mask = pc.is_in(batch["severity"], value_set=pa.array(severe))
            if request.category:
                mask = pc.and_(mask, pc.equal(batch["category"], request.category))
            is_in_scope = pc.equal(batch["scope"], request.ledger_scope_id)
            if request.HasField("ledger_id"):
                mask = pc.and_(mask, pc.and_(pc.equal(batch["ledger"], request.ledger_id), is_in_scope))
            else:
                # What is found of the cluster, or of a bookie, is of no scope.
                mask = pc.and_(mask, pc.or_kleene(is_in_scope, pc.is_null(batch["ledger"])))
            rows = batch.filter(mask)
            for start in range(0, rows.num_rows, _ROWS):
                for row in rows.slice(start, _ROWS).to_pylist():
                    if call.given_up.is_set():
                        return
                    if call.left_s <= 0:
                        raise ApiError(Why.TOO_LATE, "not all was read within the deadline: this is not all of it")
                    yield make_finding(row)
