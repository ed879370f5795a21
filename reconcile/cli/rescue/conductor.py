"""The steps of a rescue. Each runs the commands that it prints; what a step has done is never done again.

    look       what kind of disaster? a store that is lost or went back, or deletes on a cluster that lives
    stop       the store's files are copied; every bookie is stopped where it is, and seen to be
    collect    every bookie's disks at once; what is missing becomes a question
    decide     a plan, and the questions that change it
    review     the plan, a rehearsal, one hash to confirm
    restore    apply; read back from disks that are here
    start      freeze, bookies in their order, read back over the wire, thaw; what is left

Of deletes on a cluster that lives: freeze instead of stop, no collect, `undelete` instead of `recover`.
"""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from backends.registry import parse_store_uri
from reconcile.cli.access import AUTH_FILE_VARIABLE, AUTH_VARIABLE
from reconcile.cli.command import Exit
from reconcile.cli.options import make_context, quote_command
from reconcile.cli.output import Output
from reconcile.cli.rescue import scripts
from reconcile.cli.rescue.copies import CollectedBookie, collect_bookie, copy_server
from reconcile.cli.rescue.hosts import BookieHost, Hosts
from reconcile.cli.rescue.record import Phase, Question, Record
from reconcile.cli.rescue.transports import HostError, make_own_command, require_done, run_script
from reconcile.errors import GuardRefusedError
from reconcile.jobs.context import connect
from reconcile.words import count_noun, list_names
from reconcile.write.guards import list_registered

LOST, DELETES = "lost", "deletes"
_AT_ONCE: Final = 16
"""Hosts that are worked on together."""
_IDENTITY: Final = "bkmeta-identity"
_INCIDENT: Final = "incident.toml"
_ANY_HASH: Final = "any"
_TYPED: Final = 8
_LIKELY: Final = 0.5
"""Share of the evidence from which on quorums are asked about."""
_SILENT: Final = "bookies off"
"""Question whether bookies without a process are off."""
_PATIENCE_S: Final = 180
"""For a bookie to register, or for the session of one that was killed to end."""
_READ: Final = (Exit.DONE, Exit.FOUND, Exit.UNDECIDABLE)
"""How a command ends that found something, and did what it does."""

Say = Callable[[str], None]
Ask = Callable[[Sequence[Question]], None]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a rescue ended.

    Attributes:
        kind: what it was taken for.
        left: what is left to do, a line each.
        may_not_start: bookies that must not start, with the reason.
        is_read: whether every ledger of the plan was read back as it should be.
    """

    kind: str
    left: tuple[str, ...]
    may_not_start: Mapping[str, str]
    is_read: bool


class Conductor:
    """One rescue.

    Args:
        hosts: of it.
        uri: of the store.
        record: what was done.
        output: of the command.
        say: is given each line for people.
        ask: asks questions until each has an answer in the record; raises where there is no answer.
    """

    def __init__(self, hosts: Hosts, uri: str, record: Record, output: Output, say: Say, ask: Ask) -> None:
        self._output = output
        self._hosts, self._uri, self._record, self._say, self._ask = hosts, uri, record, say, ask
        self._out = record.folder
        self._has_rights = parse_store_uri(uri).kind == "zookeeper"
        self._is_flat = "flat" in uri.partition(":")[0]

    def run(self) -> Ended:
        """Go on where the record ends.

        Raises:
            GuardRefusedError: it is dangerous to go on: the way out is said.
            HostError: a host cannot be reached, or a script failed there.
        """
        steps: Mapping[Phase, Callable[[], None]] = {
            Phase.LOOK: self._look,
            Phase.STOP: self._stop,
            Phase.COLLECT: self._collect,
            Phase.DECIDE: self._decide,
            Phase.REVIEW: self._review,
            Phase.RESTORE: self._restore,
            Phase.START: self._start,
        }
        for number, (phase, step) in enumerate(steps.items()):
            self._say(f"== {number} {phase.value}" + (": done before" if self._record.is_done(phase) else ""))
            if not self._record.is_done(phase):
                step()
                self._record.end(phase)
        return self._end()

    # The steps

    def _look(self) -> None:
        seen = self._run("preflight", "--metadata", self._uri, codes=_READ)
        facts = self._record.find_phase(Phase.LOOK)
        ledgers = seen["counts"].get("ledgers_listed")
        facts["bookies"] = [row["id"] for row in seen.get("bookies", [])]
        if not ledgers:
            facts["kind"] = LOST
            self._say("the store lists no ledgers, or does not answer: it counts as lost, and every bookie is stopped")
            return
        question = Question(
            "kind",
            "what happened?",
            (f"the store lists {count_noun(ledgers, 'ledger')}", f"preflight: {seen['verdict']}"),
            {
                LOST: "the store was lost, emptied, or put back from an older copy: every bookie is stopped at once",
                DELETES: "ledgers of a live cluster were deleted by mistake: nothing is stopped, deletes are frozen",
            },
            LOST if seen.get("level") == "critical" else DELETES,
        )
        facts["kind"] = self._answer(question)

    def _stop(self) -> None:
        for server in self._hosts.servers:
            self._say(f"copying the files of {server.host.name} to {self._out / 'servers' / server.host.name}")
        self._at_each(lambda server: copy_server(server, self._out / "servers"), self._hosts.servers)
        if self._kind == DELETES:
            self._write_incident()
            self._freeze()
            return
        for bookie in self._hosts.bookies:
            self._say(f"{bookie.name}: kill -STOP of the Java that has {bookie.process!r} in its command line")
        stops = self._at_each(self._stop_bookie, self._hosts.bookies)
        self._require_down([(name, error) for name, error in stops if isinstance(error, HostError)])
        states = {name: processes for name, processes in stops if not isinstance(processes, HostError)}
        going = [(name, p) for name, processes in states.items() for p in processes if p.state not in scripts.STOPPED]
        if going:
            name, running = going[0]
            problem = f"process {running.pid} is in state {running.state} after kill -STOP, as {len(going)} in all"
            remedy = "the first process of a container ignores it from inside: stop it from its node, then run again"
            raise GuardRefusedError(name, problem, remedy)
        for name, processes in states.items():
            self._say(f"{name}: " + (f"stopped, process {processes[0].pid}" if processes else "no such process runs"))
        self._require_off([name for name, processes in states.items() if not processes])
        seen = self._run("preflight", "--metadata", self._uri, codes=_READ)
        if answering := [row["id"] for row in seen.get("bookies", []) if row["answers"]]:
            problem = f"{list_names(answering)} still answers"
            raise GuardRefusedError("the cluster", problem, "name every bookie in the file of hosts, then run again")

    def _collect(self) -> None:
        if self._kind == DELETES:
            return
        passwords = self._hosts.incident.get("passwords")
        for bookie in self._hosts.bookies:
            self._say(f"{bookie.name}: {bookie.program} collect --bookie-conf {bookie.conf}")

        def collect(bookie: BookieHost) -> CollectedBookie:
            return collect_bookie(bookie, self._out / "inv", None if passwords is None else Path(passwords))

        collected = self._at_each(collect, self._hosts.bookies)
        facts = self._record.find_phase(Phase.COLLECT)
        facts["bookies"] = {item.name: item.bookie for item in collected if item.bookie is not None}
        facts["disks"] = {item.bookie: list(item.disks) for item in collected if item.bookie is not None}
        for item in collected:
            self._say(f"{item.name}: {item.verdict}")
        unread = [item for item in collected if not item.is_complete]
        self._answer_all([_ask_for_disks(item) for item in unread])
        named = {bookie.name: bookie.bookie for bookie in self._hosts.bookies}
        nameless = [item for item in unread if item.bookie is None and named[item.name] is None]
        text = "what is the id of {}, as ledger metadata names it?"
        self._answer_all([Question(f"id of {item.name}", text.format(item.name)) for item in nameless])

    def _decide(self) -> None:
        plan = self._undelete() if self._kind == DELETES else self._recover()
        facts = self._record.find_phase(Phase.DECIDE)
        facts["plan"], facts["hash"] = plan["plan"], plan["hash"]

    def _review(self) -> None:
        facts = self._record.find_phase(Phase.DECIDE)
        shown = self._run("plan", "show", facts["plan"], codes=(*_READ, Exit.REFUSED))
        self._say(f"the report: {Path(facts['plan']) / 'report.html'}")
        known = [shown["verdict"]]
        if (root := self._name_rehearsal()) is not None and self._kind == LOST:
            words = ["rehearse", facts["plan"], "--metadata", root, *self._build_disk_options("1000")]
            known.append(f"rehearsed: {self._run(*words, codes=_READ)['verdict']}")
            self._run("rehearse", facts["plan"], "--metadata", root, "--remove", codes=_READ)
        question = Question(
            "confirm",
            f"write this plan? type the first {_TYPED} digits of its hash, {facts['hash']}",
            (*known, f"{_ANY_HASH!r} confirms any plan: for a rehearsal with a file of answers"),
        )
        typed = self._answer(question)
        if typed != _ANY_HASH and not (len(typed) >= _TYPED and facts["hash"].startswith(typed.lower())):
            self._forget("confirm")
            problem = f"has hash {facts['hash']}, not {typed}"
            raise GuardRefusedError("the plan", problem, "run this again, and type its hash")

    def _restore(self) -> None:
        facts = self._record.find_phase(Phase.DECIDE)
        plan, unseen = facts["plan"], int(facts.get("unseen", 0))
        words = ["apply", plan, "--incident", self._incident, "--confirm", facts["hash"], "--reason", "rescue"]
        words += ["--accept-unseen", str(unseen)] if unseen else []
        words += ["--accept-unfrozen"] if self._kind == DELETES and not self._has_rights else []
        words += ["--resume"] if (Path(plan) / "journal").exists() else []
        done = self._run(*words, codes=(Exit.DONE, Exit.FOUND))
        own = self._record.find_phase(Phase.RESTORE)
        own["starts"] = done.get("bookies", [])
        self._record.save()
        disks = self._build_disk_options("all")
        if disks and self._kind == LOST:
            self._read_back("disks read", ["verify", plan, "--incident", self._incident, *disks])

    def _start(self) -> None:
        plan = self._record.find_phase(Phase.DECIDE)["plan"]
        if self._kind == LOST:
            if self._has_rights and not self._is_flat:
                self._freeze()
            self._start_bookies()
        words = ["verify", plan, "--incident", self._incident, "--sample", "all", "--wire"]
        read = self._read_back("wire read", words)
        facts = self._record.find_phase(Phase.START)
        facts["read"], facts["read_code"] = read["verdict"], read["exit_code"]
        if self._has_rights and not (self._kind == LOST and self._is_flat):
            self._thaw()

    # What the steps share

    def _read_back(self, name: str, words: Sequence[object]) -> dict[str, Any]:
        """Read ledgers back; where not all are as the plan has them, go on only if a person says so.

        Raises:
            GuardRefusedError: no person does.
        """
        read = self._run(*words, codes=_READ)
        if read["exit_code"] == Exit.FOUND:
            question = Question(
                name,
                "not every ledger is as the plan has it. Go on?",
                (read["verdict"],),
                {"no": "it ends here; see why, then run this again", "yes": "it goes on to the next step"},
                "no",
            )
            if self._answer(question) == "no":
                self._forget(name)
                problem = f"is not as the plan has it: {read['verdict']}"
                raise GuardRefusedError("what was read", problem, "see why: bkmeta explain LEDGER, then run this again")
        return read

    @property
    def _kind(self) -> str:
        return str(self._record.find_phase(Phase.LOOK).get("kind", LOST))

    @property
    def _incident(self) -> Path:
        return self._out / _INCIDENT

    def _recover(self) -> dict[str, Any]:
        """Make a plan, ask what changes it, and make it again with that."""
        self._write_incident()
        plan = self._run_once("recover", ["recover", "--incident", self._incident], codes=_READ)
        quorums = _ask_for_quorums(plan)
        sessions = [_ask_for_session(row) for row in plan["deletions"] if row["undecided"]]
        self._answer_all([*([quorums] if quorums else []), *sessions])
        if quorums is not None and self._answer(quorums) != "unknown":
            self._write_incident(quorums=self._answer(quorums))
            plan = self._run_once("recover with quorums", ["recover", "--incident", self._incident], codes=_READ)
        self._record.find_phase(Phase.DECIDE)["unseen"] = len(plan["coverage"]["not_scanned"])
        words: list[str] = []
        for row in (row for row in plan["deletions"] if row["undecided"]):
            answer, name = self._answer(_ask_for_session(row)), row["session"] or "none"
            words += ["--restore-deleted-by", name] if answer == "mistake" else []
            words += ["--accept-deleted-by", name] if answer == "wanted" else []
        if words:
            plan = self._run("plan", "edit", plan["plan"], *words, "--out", self._name_plan(), codes=_READ)
        return plan

    def _undelete(self) -> dict[str, Any]:
        """Show who deleted what, ask which of it was a mistake, and make a plan that brings it back."""
        self._write_incident()
        histories = [*self._hosts.incident.get("snapshots", [])]
        histories += [f"zkfiles://{self._out.absolute() / 'servers'}"] if self._hosts.servers else []
        words = ["undelete", "--metadata", self._uri, *(w for uri in histories for w in ("--history", uri))]
        seen = self._run_once("sessions", words, codes=(Exit.USAGE,))
        sessions = [_ask_for_session(row) for row in seen["sessions"]]
        if not sessions:
            problem = "has no delete of a ledger that the store lacks"
            raise GuardRefusedError("the history", problem, "name more of it: snapshots in [incident], or [[server]]")
        self._answer_all(sessions)
        chosen = [row for row in seen["sessions"] if self._answer(_ask_for_session(row)) == "mistake"]
        if not chosen:
            problem = "was called a mistake"
            raise GuardRefusedError("no session", problem, f"nothing is restored; to decide again remove {self._out}")
        words += [word for row in chosen for word in ("--session", row["session"] or "none")]
        first, last = min(row["first_txn"] for row in chosen), max(row["last_txn"] for row in chosen)
        words += ["--from-time", str(first), "--to-time", str(last)]
        plan = self._run(*words, "--out", self._name_plan(), codes=_READ)
        if plan["plan"] is None:
            raise GuardRefusedError("undelete", plan["verdict"], "name more of the history: snapshots in [incident]")
        return plan

    def _freeze(self) -> None:
        if not self._has_rights:
            self._say("etcd has no rights that could be taken: nothing can be frozen")
            return
        words = ["freeze", "--incident", self._incident, "--journal", self._out / "freeze"]
        waiting = self._run(*words, codes=(Exit.REFUSED, Exit.FOUND, Exit.DONE, Exit.UNDECIDABLE))
        self._run(*words, "--confirm", waiting["hash"], "--reason", "rescue", codes=(Exit.DONE, Exit.UNDECIDABLE))

    def _thaw(self) -> None:
        words: list[object] = ["thaw", "--incident", self._incident, "--journal", self._out / "freeze"]
        unseen = self._record.find_phase(Phase.DECIDE).get("unseen", 0)
        if self._kind == DELETES:
            unseen = len(self._record.find_phase(Phase.LOOK)["bookies"])
        words += ["--accept-unseen", str(unseen)] if unseen else []
        waiting = self._run(*words, codes=(Exit.REFUSED, Exit.FOUND, Exit.DONE, Exit.UNDECIDABLE))
        if waiting["exit_code"] == Exit.DONE:
            return
        if "hash" not in waiting:
            remedy = waiting.get("next") or "do what it says, then run this again"
            raise GuardRefusedError("thaw", waiting["verdict"], remedy)
        self._run(*words, "--confirm", waiting["hash"], "--reason", "rescue", codes=(Exit.DONE,))

    def _start_bookies(self) -> None:
        starts = {row["bookie"]: row for row in self._record.find_phase(Phase.RESTORE)["starts"]}
        ids = self._record.find_phase(Phase.COLLECT)["bookies"]
        for bookie in self._hosts.bookies:
            row = starts.get(ids.get(bookie.name) or bookie.bookie)
            if self._record.find_answer(f"host {bookie.name}") == "down":
                self._say(f"{bookie.name} was not reached, and stays off")
                continue
            if row is None or not row["may_start"]:
                self._say(f"{bookie.name} stays stopped: " + (row["reason"] if row else "its disks were not read"))
                continue
            name, started = str(row["bookie"]), self._record.find_phase(Phase.START).setdefault("started", [])
            if bookie.name in started and self._is_registered(name):
                continue
            left = scripts.parse_processes(
                require_done(bookie.host, run_script(bookie.host, scripts.build_kill(bookie.process)), "kill").out
            )
            if left:
                raise GuardRefusedError(bookie.name, f"process {left[0].pid} cannot be killed", "kill it from its node")
            # Its session may outlive it: what is registered then is not the bookie that is started.
            self._await(partial(self._is_gone, name), f"{bookie.name}: the session of {name} ended")
            if bookie.start is None:
                self._answer(Question(f"started {bookie.name}", f"start {bookie.name} by hand, then say: done"))
            else:
                self._say(f"{bookie.name}: {bookie.start}")
                require_done(bookie.host, run_script(bookie.host, scripts.build_start(bookie.start)), "its start")
            self._await(partial(self._is_registered, name), f"{bookie.name}: {name} is registered")
            started.append(bookie.name)
            self._record.save()

    def _await(self, is_so: Callable[[], bool], what_came: str) -> None:
        """Wait until something is so, and say that it came.

        Raises:
            GuardRefusedError: it does not come.
        """
        until = time.monotonic() + _PATIENCE_S
        while not is_so():
            if time.monotonic() > until:
                problem = f"did not come within {_PATIENCE_S} s"
                raise GuardRefusedError(f"this: {what_came}", problem, "read the bookie's log, then run this again")
            time.sleep(1)
        self._say(what_came)

    def _is_registered(self, bookie: str) -> bool:
        with connect(self._uri, make_context(self._output, self._find_identity())) as opened:
            return any(name == bookie for _, name in list_registered(opened.store, opened.root.rstrip("/")))

    def _is_gone(self, bookie: str) -> bool:
        return not self._is_registered(bookie)

    def _stop_bookie(self, bookie: BookieHost) -> tuple[str, list[scripts.Process] | HostError]:
        try:
            done = run_script(bookie.host, scripts.build_stop(bookie.process))
            answer = require_done(bookie.host, done, "kill -STOP")
        except HostError as error:
            return bookie.name, error
        return bookie.name, scripts.parse_processes(answer.out)

    def _require_down(self, unreached: Sequence[tuple[str, HostError]]) -> None:
        """Ask of hosts that were not reached whether their bookies are certainly off.

        Raises:
            HostError: one is not.
        """
        questions = {
            name: Question(
                f"host {name}",
                f"{error}. Is its bookie certainly off, and will it stay off?",
                (),
                {
                    "no": "it ends here: a bookie that runs deletes; make the host reachable, then run this again",
                    "down": "it goes on without that host; its disks count as missing",
                },
                "no",
            )
            for name, error in unreached
        }
        self._answer_all(list(questions.values()))
        for name, error in unreached:
            if self._answer(questions[name]) != "down":
                self._forget(questions[name].id)
                raise error

    def _require_off(self, silent: list[str]) -> None:
        """Ask whether the bookies without a process are off: another command line hides a bookie that deletes.

        Args:
            silent: names of hosts that were reached, and have no such process.

        Raises:
            GuardRefusedError: one may run.
        """
        if not silent:
            return
        facts = self._record.find_phase(Phase.STOP)
        if facts.get("silent") != silent:
            self._forget(_SILENT)
        facts["silent"] = silent
        problem = f"no process of the bookie was found on {count_noun(len(silent), 'host')}: {list_names(silent)}"
        question = Question(
            _SILENT,
            f"{problem}. Are these bookies certainly off?",
            ("a bookie is found by the text of `process` in the command line of its Java; without the key, by `conf`",),
            {
                "no": "it ends here: a bookie that runs deletes; give the host another `process`, then run this again",
                "off": "it goes on: their disks are collected, and they are started in the last step",
            },
            "no",
        )
        if self._answer(question) != "off":
            self._forget(_SILENT)
            remedy = "correct `process` in the file of hosts, or stop the bookies, then run this again"
            raise GuardRefusedError("the cluster", problem, remedy)

    def _forget(self, question: str) -> None:
        """Forget an answer, so that it is asked again."""
        self._record.values["answers"].pop(question, None)
        self._record.save()

    def _build_disk_options(self, sample: str) -> list[str]:
        """Return what reads entries back from disks; nothing unless every bookie's are of this machine."""
        if any(bookie.host.transport != "local" for bookie in self._hosts.bookies):
            return []
        disks = self._record.find_phase(Phase.COLLECT).get("disks", {})
        words = [f"{bookie}={folder}" for bookie, folders in disks.items() for folder in folders]
        return ["--sample", sample, *(word for disk in words for word in ("--disk", disk))] if words else []

    def _name_rehearsal(self) -> str | None:
        """Return the URI of a root for rehearsals beside the cluster's; None: where it is cannot be told."""
        is_plain = re.fullmatch(r"(?:zk\+?[a-z]*|etcd)://[^/]+/.+", self._uri) is not None
        return f"{self._uri.rstrip('/')}-rehearsal" if is_plain else None

    def _name_plan(self) -> Path:
        """Return a folder for another plan."""
        number = 1
        while (self._out / f"plan-{number}").exists():
            number += 1
        return self._out / f"plan-{number}"

    def _find_identity(self) -> Path | None:
        kept = self._out / _IDENTITY
        named = AUTH_VARIABLE in os.environ or AUTH_FILE_VARIABLE in os.environ
        return kept if kept.exists() and not named else None

    def _write_incident(self, quorums: str | None = None) -> None:
        """Write what the commands are told: what the file of hosts says, and what is known by now."""
        ids = self._record.find_phase(Phase.COLLECT).get("bookies", {})
        members = list(self._hosts.incident.get("bookies", ())) if self._kind == LOST else []
        values: dict[str, Any] = {**self._hosts.incident, "store": self._uri}
        if self._kind == LOST:
            for bookie in self._hosts.bookies:
                name = ids.get(bookie.name) or bookie.bookie or self._record.find_answer(f"id of {bookie.name}")
                members += [name] if name and name not in members else []
            values |= {"bookies": members, "inventories": str(self._out.absolute() / "inv")}
            gone = [b for b in self._hosts.bookies if self._record.find_answer(f"disks of {b.name}") == "gone"]
            lost = [ids.get(b.name) or b.bookie or self._record.find_answer(f"id of {b.name}") for b in gone]
            values |= {"lost": lost} if lost else {}
        servers = [str(self._out.absolute() / "servers")] if self._hosts.servers and self._kind == LOST else []
        snapshots = [*values.get("snapshots", []), *servers]
        values |= {"snapshots": snapshots} if snapshots else {}
        values |= {"quorums": quorums} if quorums else {}
        lines = [f"{key} = {json.dumps(value)}\n" for key, value in values.items()]
        self._incident.write_text("".join(lines))

    def _answer(self, question: Question) -> str:
        self._answer_all([question])
        return self._record.find_answer(question.id) or ""

    def _answer_all(self, questions: Sequence[Question]) -> None:
        left = [question for question in questions if self._record.find_answer(question.id) is None]
        if left:
            self._ask(left)

    def _at_each(self, work: Callable[[Any], Any], hosts: Sequence[Any]) -> list[Any]:
        """Do something at each of some hosts at once; the first error is raised when all have ended."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            done = [pool.submit(work, host) for host in hosts]
        return [item.result() for item in done]

    def _run_once(self, name: str, words: Sequence[object], *, codes: Sequence[int]) -> dict[str, Any]:
        """Run a command that makes a plan, unless that was done; return its result."""
        results: dict[str, Any] = self._record.find_phase(Phase.DECIDE).setdefault("results", {})
        if name not in results:
            results[name] = self._run(*words, "--out", self._name_plan(), codes=codes)
            self._record.save()
        made: dict[str, Any] = results[name]
        return made

    def _run(self, *words: object, codes: Sequence[int]) -> dict[str, Any]:
        """Run a command of this program, print it as a person would type it, and return its result.

        Raises:
            GuardRefusedError: it ended with another code than is expected.
        """
        command = quote_command("bkmeta", *words)
        self._say(f"$ {command}")
        environment = dict(os.environ)
        if (identity := self._find_identity()) is not None:
            environment[AUTH_FILE_VARIABLE] = str(identity)
        program = make_own_command(*words, "--json")
        # What to do in the first ten minutes is said once.
        is_told = words[0] == "preflight" and bool(self._record.values["commands"])
        stderr = subprocess.DEVNULL if is_told else None
        done = subprocess.run(program, stdout=subprocess.PIPE, stderr=stderr, env=environment, check=False)
        lines = done.stdout.decode(errors="replace").splitlines()
        try:
            result: dict[str, Any] = json.loads(lines[-1])
        except (IndexError, ValueError):
            result = {"verdict": "it ended without a result", "next": "", "counts": {}}
        self._record.add_command(command, done.returncode, str(result["verdict"]))
        self._say(f"  {result['verdict']}")
        if done.returncode not in codes:
            remedy = result.get("next") or "do what it says, then run this again"
            raise GuardRefusedError(f"bkmeta {words[0]}", f"ended with {done.returncode}: {result['verdict']}", remedy)
        return result

    def _end(self) -> Ended:
        starts = self._record.find_phase(Phase.RESTORE).get("starts", [])
        stay = {str(row["bookie"]): str(row["reason"]) for row in starts if not row["may_start"]}
        when = self._record.now().isoformat(timespec="seconds")
        left = [f"as of {when}: {self._record.find_phase(Phase.START).get('read', '')}"]
        left += [f"{bookie} must not start: {reason}" for bookie, reason in stay.items()]
        left.append("when all is verified, enable replication by hand: bookkeeper shell autorecovery -enable")
        left.append(f"from today on, daily: bkmeta capture --metadata {self._uri} --out DIR")
        is_read = self._record.find_phase(Phase.START).get("read_code") == Exit.DONE
        return Ended(self._kind, tuple(left), stay, is_read)


def _ask_for_disks(item: CollectedBookie) -> Question:
    return Question(
        f"disks of {item.name}",
        f"{item.name}: {item.verdict}. May what is missing come back?",
        tuple(item.gaps),
        {
            "back": "its ledgers are guarded: readable, every copy kept, to be settled when it is back",
            "gone": "what only it had is given up, by name, in the plan; nothing waits for it",
        },
        "back",
    )


def _ask_for_session(row: Mapping[str, Any]) -> Question:
    """Return the question for the deletes of a session; only a plan of `recover` can hold them until later."""
    name, ledgers = row["session"] or "none", count_noun(row["ledgers"], "ledger")
    who = f"session {name}" if row["session"] else "an unknown session"
    span = f"from {row['first_at']} to {row['last_at']}"
    if not row["first_at"]:
        span = f"in transactions {row['first_txn']} to {row['last_txn']}"
    choices = {
        "mistake": "the last record of each is written, byte for byte",
        "wanted": "they stay deleted, and bookies delete their data",
    }
    can_wait = "on_bookies" in row
    if can_wait:
        choices["later"] = "they are held: their data is kept, and no client reads them"
    return Question(
        f"session {name}",
        f"{who} deleted {ledgers} {span}: a mistake?",
        (f"{row['on_bookies']} of them are on bookies",) if can_wait else (),
        choices,
        "later" if can_wait else None,
    )


def _ask_for_quorums(plan: Mapping[str, Any]) -> Question | None:
    """Return the question for the quorums, where ledgers wait for them and most of the evidence names some."""
    waiting = sum(plan[kind].get("source_incomplete", 0) for kind in ("reasons", "doubts"))
    likely = max(plan["prior"], key=lambda row: row["weight"], default=None)
    if not waiting or likely is None or likely["weight"] < _LIKELY:
        return None
    name = f"{likely['ensemble']}/{likely['write']}"
    ensemble, write = likely["ensemble"], likely["write"]
    choices = {
        f"{name}/{ack}": f"ensemble {ensemble}, write quorum {write}, ack quorum {ack}, all of them"
        for ack in range(write, 0, -1)
    }
    return Question(
        "quorums",
        f"were ledgers written with ensemble and write quorum {name}, as {likely['weight']:.0%} of the evidence says?",
        (f"{count_noun(waiting, 'ledger')} do not show theirs by themselves",),
        {**choices, "unknown": "they stay guarded, or held"},
        "unknown",
    )
