"""One instance of the service: it campaigns, leads, runs due jobs, and records them in the store.

    thread      does
    leader      connects, campaigns, runs jobs one after the other
    gates       while this instance leads: looks whether maintenances are safe by now
    backup      while this instance leads: has the store followed into a backup, where one is configured
    watcher     reads the record every few seconds, so that requests never wait for the store
    records     captures the store again before the captures are too old
    bookies     watches who is registered: where that changes, maintenances are checked at once

Who loses the lead ends every command that runs for it before another instance can lead, and writes nothing any more:
each write names the epoch. A command that is ended so is broken off; the next leader runs it again.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from backends.errors import BackendError, UnavailableError
from backends.protocols import Election
from backends.registry import OpenStore, open_election
from reconcile.deletes.own_root import (
    make_own_root,
    name_own_root,
    open_log,
    open_own_root,
    read_instance_id,
)
from reconcile.errors import ReconcileError
from reconcile.jobs.context import Context, connect, now_ms
from reconcile.service.config import Config
from reconcile.service.runs import checks, commands, folders, schedule
from reconcile.service.runs.children import PROGRAM, Children, Finished, StoppedError
from reconcile.service.runs.history import FILE as HISTORY
from reconcile.service.runs.history import add_point, make_point
from reconcile.service.runs.present import BookieWatch, KeptRecords
from reconcile.service.runs.record import NotLeaderError, ServiceRecord
from reconcile.service.runs.schedule import Gate, GateState, ServiceState, Timing
from reconcile.stores import choose_identity
from recovery.dataset import MANIFEST
from recovery.errors import RecoveryError

_LOG: Final = logging.getLogger(__name__)
_AGAIN_S: Final = 2.0
"""Between reads of the record, and between attempts to reach the store."""
_BACKUP_AGAIN_S: Final = 5.0
_LONGEST_WAIT_S: Final = 30.0
"""A clock that jumps is noticed within this."""
_FAILED: Final = 1
_KNOWN: Final = (BackendError, ReconcileError, RecoveryError, OSError)
"""Stores, disks and inputs fail, and come back; anything else is a fault of ours."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The record as it was seen last.

    Attributes:
        state: of the record; empty before it was first seen.
        age_s: seconds since that reading; None: never.
        problem: why it was not seen since; empty: it was.
    """

    state: ServiceState
    age_s: float | None
    problem: str

    @property
    def is_recent(self) -> bool:
        """Whether that was lately: the service is ready."""
        return self.age_s is not None and self.age_s < _LONGEST_WAIT_S


class Instance:
    """One instance of the service.

    Args:
        config: of the instance.
        context: whom stores take it for, and the clock.
        program: the program for commands.
    """

    def __init__(self, config: Config, context: Context, program: tuple[str, ...] = PROGRAM) -> None:
        self.config = config
        self._context = context
        self.program = program
        self._stopping = threading.Event()
        self._wake = threading.Condition()
        self._record: ServiceRecord | None = None
        self._election: Election | None = None
        self._children = Children(program)
        self._epoch: int | None = None
        self._state = ServiceState()
        self._seen_at: float | None = None
        self._problem = "the store was not reached yet"
        self._threads: list[threading.Thread] = []
        self._records = KeptRecords(config, context, Children(program))
        self._bookies = BookieWatch(config.metadata, context, self._see_bookies)
        self._bookies_changed = False

    def start(self) -> None:
        """Begin to campaign, in threads of its own."""
        tasks = {"leader": self._run, "watcher": self._watch}
        tasks |= {"records": self._records.keep, "bookies": self._bookies.watch}
        for name, task in tasks.items():
            thread = threading.Thread(target=task, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """End the running commands, resign, and end the threads."""
        self._stopping.set()
        self._lose()
        self._records.stop()
        self._bookies.stop()
        election = self._election
        if election is not None:
            election.close()
        for thread in self._threads:
            thread.join()

    @property
    def leads(self) -> bool:
        """Whether this instance leads."""
        return self._epoch is not None

    @property
    def seen(self) -> Seen:
        """The record as it was seen last."""
        seen_at = self._seen_at
        age_s = None if seen_at is None else time.monotonic() - seen_at
        seen = Seen(self._state, age_s, self._problem)
        if age_s is None or seen.is_recent or seen.problem:
            return seen
        return replace(seen, problem=f"the store has not answered for {age_s:.0f} s")

    def ask(self, name: str, by: str) -> ServiceState:
        """Run a job now.

        Raises:
            NotLeaderError: another instance leads.
            UnavailableError: the store does not answer.
        """
        return self.change(lambda state: schedule.ask(state, name, by, self.now_ms()))

    def change(self, decide: Callable[[ServiceState], ServiceState]) -> ServiceState:
        """Change the record, as the leader.

        Raises:
            NotLeaderError: another instance leads.
            UnavailableError: the store does not answer.
        """
        epoch, record = self._epoch, self._record
        if epoch is None or record is None:
            raise NotLeaderError(self.describe_leader())
        state = record.change(decide, epoch=epoch)
        self._take(state)
        with self._wake:
            self._wake.notify_all()
        return state

    def describe_leader(self) -> str:
        """Return what to do with a question that only the leader answers, for an instance that does not lead.

        The record has who took the lead last. It is not changed when a lead ends.
        """
        state = self._state
        if not state.leader:
            return "no instance leads yet: ask again in some seconds"
        if state.leader == self.config.name:
            return f"{state.leader} does not lead any longer, and no other instance does yet: ask again in some seconds"
        return f"{state.leader} leads, at {state.address}: ask there, or again in some seconds if it does not answer"

    @property
    def children(self) -> Children:
        """The commands of this lead; they end with it."""
        return self._children

    def now_ms(self) -> int:
        """Return the time."""
        return now_ms(self._context)

    # The lead

    def _run(self) -> None:
        while not self._stopping.is_set():
            with self._survive(_AGAIN_S), connect(self.config.metadata, self._context, writable=True) as opened:
                self._campaign(opened)

    def _campaign(self, opened: OpenStore) -> None:
        """Campaign, and lead, again and again."""
        key = self._prepare(opened)
        election = self._election = open_election(
            self.config.metadata,
            f"{key}/leader",
            self.config.name,
            acl=self.config.acl or None,
            auth=choose_identity(self._context.access, self.config.metadata),
            sasl=self._context.access.sasl,
            tls=self._context.access.tls,
            session_s=self.config.election.session,
        )
        try:
            while not self._stopping.is_set():
                # A leader doubts itself after two thirds of its session; one that is stopped cannot: its commands do.
                self._children = Children(self.program, silence_s=self.config.election.session / 3)
                # It waits when it has resigned: another instance may be able to do what this one cannot.
                with self._survive(_AGAIN_S):
                    try:
                        if election.campaign(self._lose):
                            self._lead()
                    except NotLeaderError as error:
                        _LOG.warning("no longer leader: %s", error)
                    finally:
                        self._lose()
                        election.resign()
        finally:
            election.close()

    def _prepare(self, opened: OpenStore) -> str:
        """Make bkmeta's own root if it does not exist; return its key."""
        key = name_own_root(opened.root)
        acl = self.config.acl or None
        folders.claim(self.config.data, opened.root.rstrip("/"), read_instance_id(opened.store, opened.root))
        if open_own_root(opened.store, opened.root, acl) is None:
            folder = folders.make_private(self.config.data / "deletes")
            with open_log(folder, opened.store, opened.root, self._context.now) as log:
                make_own_root(opened.store, opened.root, log, acl)
        stored = opened.store.get(key)
        self._record = ServiceRecord(opened.store, f"{key}/service", acl or (None if stored is None else stored.acl))
        return key

    def _lose(self) -> None:
        """End at once the commands that only the leader may run."""
        self._children.stop()
        # Afterwards: `_lead` sets the one, and then reads the other.
        self._epoch = None
        with self._wake:
            self._wake.notify_all()

    def _lead(self) -> None:
        record, children = self._record, self._children
        if record is None:
            return
        address = self.config.address
        state = record.change(lambda state: schedule.take_over(state, self.config.name, address, self.now_ms()))
        self._take(state)
        self._epoch = epoch = state.epoch
        _LOG.warning("%s leads, epoch %d", self.config.name, epoch)
        if children.is_stopped:
            self._epoch = None
        gates = threading.Thread(target=self._check_gates, args=(epoch, children), name="gates", daemon=True)
        gates.start()
        backup = threading.Thread(target=self._follow_backup, args=(epoch, children), name="backup", daemon=True)
        backup.start()
        try:
            while self._epoch == epoch and not self._stopping.is_set():
                self._do_next(record, children, epoch)
        finally:
            self._lose()
            gates.join()
            backup.join()

    def _do_next(self, record: ServiceRecord, children: Children, epoch: int) -> None:
        """Run the due job, or wait until one is due."""
        timings = self.config.timings
        chosen = schedule.choose_next(self._state, timings, self.now_ms())
        wait_s = _LONGEST_WAIT_S if chosen is None else (chosen[1] - self.now_ms()) / 1000
        if chosen is not None and wait_s <= 0:
            self._run_job(timings[chosen[0]], record, children, epoch)
            return
        with self._wake:
            if self._epoch == epoch and not self._is_asked():
                self._wake.wait(min(wait_s, _LONGEST_WAIT_S))

    def _is_asked(self) -> bool:
        return any(self._state.job(name).asked is not None for name in self.config.jobs)

    def _run_job(self, timing: Timing, record: ServiceRecord, children: Children, epoch: int) -> None:
        state = record.change(lambda state: schedule.start(state, timing, self.now_ms()), epoch=epoch)
        self._take(state)
        run = state.job(timing.name).running
        if run is None:
            raise NotLeaderError("the run that was begun is not in the record")
        job = self.config.jobs[timing.name]
        place = ""
        try:
            folder = folders.make_folder(self.config.data, timing.name, self._context.now(), run.epoch, run.number)
            place = str(folder.relative_to(self.config.data))
            finished = children.run(self._word(state, timing, folder), folder, timeout_s=job.timeout)
        except (OSError, RecoveryError) as error:
            finished = Finished(_FAILED, {}, str(error))
        code = _FAILED if finished.timed_out else finished.exit_code
        self._end_run(record, timing.name, epoch, (code, finished.verdict, place))
        named = [ended.folder for ended in self._state.job(timing.name).latest.values()]
        folders.remove_others(self.config.data, timing.name, job.keep, [*named, place], self._context.now())
        point = make_point(self._context.now().isoformat(), run.share, code, finished.verdict, finished.result)
        try:
            add_point(self.config.data / timing.name, point)
        except OSError as error:
            # The record has the run; only the picture lacks it.
            self._say(f"{timing.name}: the run is missing in {HISTORY}: {error}")

    def _word(self, state: ServiceState, timing: Timing, folder: Path) -> list[str]:
        """Return the words of a job's command."""
        known = state.job(timing.name)
        out = folder / folders.OUT
        job, master = self.config.jobs[timing.name], self.config.spark_master
        words = commands.build_argv_job(timing.name, self.config.metadata, out, job.arguments, master)
        share = schedule.WHOLE if known.running is None else known.running.share
        if timing.name == "scrutinize":
            words += [*commands.build_argv_share(share, timing.shares), *self._build_argv_captures()]
        earlier = known.latest.get(share) if timing.name in commands.GOING_ON else None
        since = None if earlier is None else self.config.data / earlier.folder / folders.OUT
        return words + commands.build_argv_since(since if since is not None and (since / MANIFEST).exists() else None)

    def _end_run(self, record: ServiceRecord, name: str, epoch: int, ended: tuple[int, str, str]) -> None:
        """Keep how a run ended; while the store does not answer, as long as this instance leads."""
        while True:
            try:
                state = record.change(lambda state: schedule.end(state, name, self.now_ms(), *ended), epoch=epoch)
            except UnavailableError as error:
                self._say(str(error))
                if self._epoch != epoch:
                    raise
                self._stopping.wait(_AGAIN_S)
            else:
                self._take(state)
                return

    def _follow_backup(self, epoch: int, children: Children) -> None:
        """Run the follower of the store while this instance leads; an ended one is started again."""
        backup = self.config.backup
        while backup.to and self._epoch == epoch and not children.is_stopped:
            with self._survive(), suppress(StoppedError):
                folder = folders.make_private(self.config.data / "backup")
                words = commands.build_argv_backup(self.config.metadata, backup.to, backup.keep, backup.arguments)
                finished = children.run(words, folder, timeout_s=threading.TIMEOUT_MAX, given_up=threading.Event())
                self._say(f"backup: it ended, and is begun again: {finished.verdict}")
            with self._wake:
                self._wake.wait_for(lambda: self._epoch != epoch, _BACKUP_AGAIN_S)

    # Maintenances

    def _check_gates(self, epoch: int, children: Children) -> None:
        while self._epoch == epoch:
            over = [gate.id for gate in self._state.gates.values() if schedule.is_over(gate, self.now_ms())]
            for gate_id in over:
                with self._survive():
                    self.change(partial(schedule.close_gate, gate_id=gate_id))
                    _LOG.warning("maintenance %s is closed: its time is over", gate_id)
            waiting = [gate for gate in self._state.gates.values() if gate.state is not GateState.RELEASED]
            for gate in waiting:
                if children.is_stopped:
                    return
                with self._survive(), suppress(StoppedError):
                    self.check_gate(gate, children)
            try:
                checks.remove_others(self.config.data, self._state.gates)
            except OSError as error:
                self._say(str(error))
            with self._wake:
                self._wake.wait_for(partial(self._must_look, epoch), self.config.gates.check_every)
                self._bookies_changed = False

    def _must_look(self, epoch: int) -> bool:
        return self._epoch != epoch or self._bookies_changed

    def _see_bookies(self) -> None:
        with self._wake:
            self._bookies_changed = True
            self._wake.notify_all()

    def check_gate(self, gate: Gate, children: Children, timeout_s: float | None = None) -> ServiceState:
        """Check whether a maintenance is safe now, and keep the result.

        Args:
            gate: the maintenance to check.
            children: of the lead.
            timeout_s: of the check; None: as long as a request may take.

        Raises:
            StoppedError: this instance does not lead any more.
            NotLeaderError: another instance leads.
            UnavailableError: the store does not answer.
        """
        words = self.build_argv_impact(gate.bookies, gate.domains, gate.target)
        self.await_records(timeout_s or self.config.requests.deadline, self._stopping)
        with self.request_folder() as folder:
            finished = children.run(words, folder, timeout_s=timeout_s or self.config.requests.deadline)
        is_safe, checked_ms = finished.exit_code == 0, self.now_ms()
        try:
            checks.keep_check(self.config.data, gate.id, checked_ms, finished.result)
        except (OSError, RecoveryError) as error:
            # The record has the verdict; only the whole of it is lacking.
            self._say(f"maintenance {gate.id}: the result of its check is not kept: {error}")
        return self.change(
            lambda state: schedule.take_check(
                state, gate.id, is_safe=is_safe, verdict=finished.verdict, now_ms=checked_ms
            )
        )

    def judge_gate(self, gate: Gate) -> Gate:
        """Return a maintenance as it is now; it is not checked while there is no leader, or no store."""
        longest_s = 2 * self.config.gates.check_every + self.config.requests.deadline
        return schedule.judge_gate(gate, self.now_ms(), round(longest_s * 1000))

    @property
    def gates(self) -> list[Gate]:
        """The open maintenances, each as it is now."""
        return [self.judge_gate(gate) for gate in self._state.gates.values()]

    def build_argv_impact(self, bookies: Sequence[str], domains: Sequence[str], target: str) -> list[str]:
        """Return the command that checks whether bookies, or all of some domains, may be taken away."""
        words = [
            *commands.build_argv_impact(self.config.metadata, bookies, domains, target),
            *self._build_argv_captures(),
        ]
        words += [*self.build_argv_evidence(), *commands.build_argv_master(self.config.spark_master)]
        return [*words, *self.config.requests.check_impact]

    def build_argv_evidence(self) -> list[str]:
        """Return the arguments that name the last scrutiny of each share, as far as this folder has them."""
        latest = self._state.job("scrutinize").latest
        runs = [self.config.data / latest[share].folder / folders.OUT for share in sorted(latest)]
        return commands.build_argv_evidence([run for run in runs if (run / MANIFEST).exists()])

    def _build_argv_captures(self) -> list[str]:
        return commands.build_argv_captures(self._records.folder, self.config.cache.max_age)

    def await_records(self, wait_s: float, given_up: threading.Event) -> None:
        """Wait until records that are young enough are captured, if that is under way."""
        self._records.await_capture(wait_s, given_up)

    def find_capture(self) -> Path | None:
        """Return the newest whole capture of the store; None: there is none yet."""
        return self._records.find_newest()

    @contextmanager
    def request_folder(self) -> Iterator[Path]:
        """Yield a folder for one request; it is removed afterwards.

        Captures of a killed instance are removed as soon as none of them can be used any longer.
        """
        requests = folders.make_private(self.config.data / "requests")
        folders.remove_abandoned(requests, self._context.now(), 2 * self.config.requests.deadline)
        with TemporaryDirectory(dir=requests) as own:
            yield Path(own)

    # The record

    def _watch(self) -> None:
        while not self._stopping.wait(_AGAIN_S if self._seen_at is not None else 0.1):
            record = self._record
            if record is None:
                continue
            with self._survive():
                self._take(record.read())

    def _take(self, state: ServiceState) -> None:
        self._state = state
        self._seen_at = time.monotonic()
        self._problem = ""

    @contextmanager
    def _survive(self, wait_s: float = 0.0) -> Iterator[None]:
        """Log an error, wait, and go on: if the thread ended, the instance would never lead again."""
        try:
            yield
        except _KNOWN as error:
            self._say(str(error))
        except Exception as error:  # noqa: BLE001 - any error: the next try may succeed; the log has the trace
            problem = f"a fault of the service ({type(error).__name__}: {error}): its log has more"
            if problem != self._problem:
                _LOG.error("an error in the service, which goes on", exc_info=error)
            self._say(problem)
        else:
            return
        self._stopping.wait(wait_s)

    def _say(self, problem: str) -> None:
        if problem != self._problem:
            _LOG.warning("%s", problem)
        self._problem = problem
