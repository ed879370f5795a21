"""The steps of a rescue. Each runs the commands that it prints; what a step has done is never done again.

    look       what kind of disaster? a store that is lost or went back, or deletes on a cluster that lives
    stop       the store's files are copied; every bookie is stopped where it is, and seen to be
    collect    every bookie's disks at once; what is missing becomes a question
    decide     a plan, and the questions that change it
    review     the plan, a rehearsal, one hash to confirm
    restore    apply; read back from disks that are here
    start      freeze, bookies in their order, read back over the wire, thaw; what is left

Of deletes on a cluster that lives, and of topics: freeze instead of stop, no collect, `undelete` instead of `recover`.
Where the store cannot be frozen, bookies are stopped for these, too.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc

from reconcile.check.left_out_copies import find_left_out
from reconcile.cli.access import AUTH_FILE_VARIABLE, AUTH_VARIABLE
from reconcile.cli.approval import carry_approvals
from reconcile.cli.command import Exit
from reconcile.cli.options import make_context, quote_command
from reconcile.cli.output import Output
from reconcile.cli.rescue import questions, scripts
from reconcile.cli.rescue.copies import FetchedBookie, collect_bookie, copy_server, export_ledgers
from reconcile.cli.rescue.hosts import BookieHost, Hosts
from reconcile.cli.rescue.own_commands import run_own
from reconcile.cli.rescue.record import RescuePhase, RescueQuestion, RescueRecord
from reconcile.cli.rescue.transports import HostError, require_done, run_script
from reconcile.cli.wording.topics import describe_topic, describe_unload
from reconcile.compare.evidence import sort_newest_first
from reconcile.deletes.approvals import Approvable, read_approval
from reconcile.errors import GuardRefusedError, PlanError
from reconcile.estimates import EstimatedStep, estimate_s, in_words
from reconcile.jobs.context import connect
from reconcile.jobs.described_bookies import list_recorded_bookies
from reconcile.jobs.plans.review import list_plan_ledgers
from reconcile.jobs.upper_layers import have_topics
from reconcile.plan.views.ledger_lists import HeldChoice, LedgerFilter, list_reuse_locked, select_held
from reconcile.plan.views.open_points import count_rights, count_unopened
from reconcile.stores import catalog_path, has_rights
from reconcile.words import count_noun, list_names
from reconcile.write.guards import OPEN_ACL, ask_whether_running, choose_acl, list_registered, require_layout
from reconcile.write.plan_actions import require_acl
from recovery.bookies.addresses import read_members
from recovery.codecs.store import Layout
from recovery.dataset import SNAPSHOTS, Dataset, open_dataset

LOST, DELETES = "lost", "deletes"
_AT_ONCE: Final = 16
"""Hosts that are worked on together."""
_IDENTITY: Final = "bkmeta-identity"
_INCIDENT: Final = "incident.toml"
_ANY_HASH: Final = "any"
_TYPED: Final = 8
_FROM_SNAPSHOT: Final = "from-snapshot"
_REUSED: Final = "ID_REUSE"
_TOPICS: Final = 10
"""Topics that are named before the plan is confirmed."""
_OLDER: Final = "older"
"""Folder of what bookies have of older ledgers, whose ids were given out again."""
_NOT_READ: Final = {"may_start": False, "reason": "its disks were not read"}
_GIVEN_UP: Final = "older-lost.txt"
"""File of the ids whose older ledgers are given up."""
_SETTLES: Final = {"mistake": "--restore-deleted-by", "wanted": "--accept-deleted-by"}
_PATIENCE_S: Final = 180
"""For a bookie to register, or for the session of one that was killed to end."""
_READ: Final = (Exit.DONE, Exit.FOUND, Exit.UNDECIDABLE)
"""How a command ends that found something, and did what it does."""

Say = Callable[[str], None]
Ask = Callable[[Sequence[RescueQuestion]], None]


@dataclass(frozen=True, slots=True)
class RescueEnd:
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
        topic: the topics that are brought back, and nothing else; None: it is not about topics.
        approvals: files that colleagues signed, where the cluster's policy asks for a second person.

    Raises:
        InputError: a file is not an approval.
    """

    def __init__(
        self,
        hosts: Hosts,
        uri: str,
        record: RescueRecord,
        output: Output,
        say: Say,
        ask: Ask,
        topic: str | None = None,
        approvals: Sequence[Path] = (),
    ) -> None:
        self._output, self._topic = output, topic
        self._approvals = {path: read_approval(path).subject.kind for path in approvals}
        self._hosts, self._uri, self._record, self._say, self._ask = hosts, uri, record, say, ask
        self._out = record.folder
        self._has_rights = has_rights(uri)

    def run(self) -> RescueEnd:
        """Go on where the record ends.

        Raises:
            GuardRefusedError: it is dangerous to go on: the way out is said.
            HostError: a host cannot be reached, or a script failed there.
        """
        steps: Mapping[RescuePhase, Callable[[], None]] = {
            RescuePhase.LOOK: self._look,
            RescuePhase.STOP: self._stop,
            RescuePhase.COLLECT: self._collect,
            RescuePhase.DECIDE: self._decide,
            RescuePhase.REVIEW: self._review,
            RescuePhase.RESTORE: self._restore,
            RescuePhase.START: self._start,
        }
        for number, (phase, step) in enumerate(steps.items()):
            self._say(f"== {number} {phase.value}" + (": done before" if self._record.is_done(phase) else ""))
            if not self._record.is_done(phase):
                step()
                self._record.end(phase)
        return self._end()

    # The steps

    def _look(self) -> None:
        if self._topic is None and not self._record.values["commands"]:
            self._say("the first ten minutes are those of a lost store; were ledgers only deleted, stop nothing yet")
        seen = self._run("preflight", "--metadata", self._uri, codes=_READ)
        facts = self._record.find_phase(RescuePhase.LOOK)
        ledgers = seen["counts"].get("ledgers_listed")
        facts["bookies"] = [row["id"] for row in seen.get("bookies", [])]
        facts["ledgers"] = ledgers or 0
        self._measure(EstimatedStep.LIST, facts["ledgers"])
        if not ledgers:
            self._require_lost(seen)
            facts["kind"] = LOST
            self._say("the store lists no ledgers: it counts as lost, and every bookie is stopped")
            return
        if self._topic is not None:
            facts["kind"] = DELETES
            self._say("topics come back to a store that is whole")
            return
        history = {} if seen.get("level") == "critical" else self._read_history()
        question = questions.ask_what_happened(ledgers, seen, history, can_freeze=self._has_rights)
        facts["kind"] = self._answer(question)

    def _read_history(self) -> dict[str, Any]:
        """Return what history says of deletes of ledgers that the store lacks; nothing where there is none."""
        self._copy_servers()
        if self._has_rights and not self._list_histories():
            return {}
        return self._run_once("sessions", self._build_undelete(), codes=tuple(Exit))

    def _copy_servers(self, *, again: bool = False) -> None:
        for server in self._hosts.servers:
            self._say(f"copying the files of {server.host.name} to {self._out / 'servers' / server.host.name}")
        self._at_each(lambda server: copy_server(server, self._out / "servers", again=again), self._hosts.servers)

    def _require_lost(self, seen: Mapping[str, Any]) -> None:
        """Ask whether a store is lost that was not seen to be.

        Raises:
            GuardRefusedError: it is not, or only topics were to come back.
        """
        if self._topic is not None:
            problem = f"lists no ledgers: {seen['verdict']}"
            raise GuardRefusedError("the store", problem, "where more than a topic is lost, leave --topic out")
        if seen.get("root") == "missing" or (seen["counts"].get("ledgers_listed") == 0 and _is_listed_whole(seen)):
            return
        question = questions.ask_whether_lost(seen["verdict"])
        if self._answer(question) == "no":
            self._forget(question.id)
            remedy = (
                "make it answer, then run this again; a store that comes back empty makes bookies delete everything"
            )
            raise GuardRefusedError("the store", f"was not seen: {seen['verdict']}", remedy)

    def _stop(self) -> None:
        # Of deletes a person may have thought about the question for long, and more may have come.
        self._copy_servers(again=self._kind == DELETES)
        if self._kind == DELETES:
            self._forget_result("sessions")
            self._write_incident()
            if self._answer(self._ask_to_keep()) == "freeze":
                self._freeze()
        if self._is_stopped:
            self._stop_bookies()

    def _stop_bookies(self) -> None:
        """Stop every bookie where it is, and see that none answers.

        Raises:
            GuardRefusedError: one runs on, or may.
            HostError: a host was not reached, and its bookie may run.
        """
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
        for bookie in self._hosts.bookies:
            self._say(f"{bookie.name}: {bookie.program} collect --bookie-conf {bookie.conf}")
        seconds = estimate_s(EstimatedStep.COLLECT, 1_000_000)
        self._say(f"  a million ledgers of a bookie take {in_words(seconds)}; an hour where its disk seeks")
        collected = self._collect_all()
        facts = self._record.find_phase(RescuePhase.COLLECT)
        facts["bookies"] = {item.name: item.bookie for item in collected if item.bookie is not None}
        facts["disks"] = {item.bookie: _list_disks(item) for item in collected if item.bookie is not None}
        unread = [item for item in collected if not item.is_complete]
        facts["gaps"] = {item.name: [gap.path for gap in item.gaps] for item in unread if item.bookie is not None}
        gaps = [question for item in unread for question in _ask_for_gaps(item)]
        names = self._ask_for_ids()
        self._answer_all([*gaps, *names])
        self._require_own_ids(names)

    def _ask_for_ids(self) -> list[RescueQuestion]:
        """Return the questions for the ids of bookies that neither their disks nor the file of hosts name."""
        bookies = self._hosts.bookies
        nameless = [bookie.name for bookie in bookies if self._find_named_id(bookie) is None]
        if not nameless:
            return []
        known = {self._find_named_id(bookie) for bookie in bookies}
        context = make_context(self._output, self._find_identity())
        left = sorted(list_recorded_bookies(self._list_snapshots(), self._uri, context) - known)
        return [questions.ask_for_id(name, left, is_only=len(nameless) == len(left) == 1) for name in nameless]

    def _require_own_ids(self, asked: Sequence[RescueQuestion]) -> None:
        """Refuse an id that a person does not know, or that two bookies would have.

        Raises:
            GuardRefusedError: a bookie has no id of its own.
        """
        ids = [self._find_id(bookie) for bookie in self._hosts.bookies]
        remedy = "write the `id` of each such bookie in the file of hosts, and each bookie that it lacks; then run this"
        for question in asked:
            answer = self._answer(question)
            if answer == questions.NONE_OF_THESE or ids.count(answer) > 1:
                self._forget(question.id)
                is_twice = answer != questions.NONE_OF_THESE
                problem = f"is answered {answer}, which another bookie has" if is_twice else "is not known"
                raise GuardRefusedError(question.id, problem, f"{remedy} again")

    def _find_named_id(self, bookie: BookieHost) -> str | None:
        """Return a bookie's id, from its disks or the file of hosts; None: neither names it."""
        collected = self._record.find_phase(RescuePhase.COLLECT).get("bookies", {})
        return collected.get(bookie.name) or bookie.bookie

    def _find_id(self, bookie: BookieHost) -> str | None:
        """Return a bookie's id, from its disks, the file of hosts, or an answer; None: not known."""
        return self._find_named_id(bookie) or self._record.find_answer(f"id of {bookie.name}")

    def _collect_all(self) -> list[FetchedBookie]:
        """Collect every bookie, all at once, and say each as it is done."""
        bookies, passwords = self._hosts.bookies, self._passwords
        with (
            ThreadPoolExecutor(_AT_ONCE) as pool,
            self._output.progress("collecting bookies", "bookies") as show,
        ):
            begun = [pool.submit(collect_bookie, bookie, self._out / "inv", passwords) for bookie in bookies]
            for done, item in enumerate(as_completed(begun), 1):
                self._say(f"{item.result().name}: {item.result().verdict} ({done} of {len(bookies)} bookies)")
                show(done, len(bookies))
        return [item.result() for item in begun]

    def _decide(self) -> None:
        plan = self._undelete() if self._kind == DELETES else self._recover()
        facts = self._record.find_phase(RescuePhase.DECIDE)
        facts["plan"], facts["hash"] = plan["plan"], plan["hash"]
        if self._kind == LOST and (snapshot := self._find_rights()) is not None:
            words = ["plan", "edit", plan["plan"], "--acl-of", f"catalog://{snapshot}"]
            plan = self._run(*words, "--out", self._name_plan(), codes=_READ)
            facts["plan"], facts["hash"] = plan["plan"], plan["hash"]
        rights = self._choose_rights(open_dataset(Path(plan["plan"]), "plan"))
        facts["rights"] = [] if rights is None else ["--acl", rights]

    def _review(self) -> None:
        facts = self._record.find_phase(RescuePhase.DECIDE)
        shown = self._run("plan", "show", facts["plan"], codes=(*_READ, Exit.REFUSED))
        self._say(f"the report: {Path(facts['plan']) / 'report.html'}")
        known = [shown["verdict"], *facts.get("topics", [])]
        # What is lost for certain is said before a person confirms.
        known += [facts["verdict"]] if "verdict" in facts else []
        if (root := name_rehearsal(self._uri)) is not None and self._kind == LOST:
            if facts.get("rehearsed", {}).get("hash") != facts["hash"]:
                words = ["rehearse", facts["plan"], "--metadata", root, *self._build_disk_options("1000")]
                self._expect(EstimatedStep.APPLY, self._count_writes())
                rehearsed = self._run(*words, codes=_READ)
                self._measure(EstimatedStep.APPLY, self._count_writes())
                self._run("rehearse", facts["plan"], "--metadata", root, "--remove", codes=_READ)
                # A person may take hours to confirm it, and then it is not tried again.
                facts["rehearsed"] = {"hash": facts["hash"], "verdict": rehearsed["verdict"]}
                self._record.save()
            known.append(f"rehearsed: {facts['rehearsed']['verdict']}")
        question = RescueQuestion(
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
        facts = self._record.find_phase(RescuePhase.DECIDE)
        plan, unseen = facts["plan"], int(facts.get("unseen", 0))
        words = ["apply", plan, "--incident", self._incident, "--confirm", facts["hash"], "--reason", "rescue"]
        words += self._build_approvals(Approvable.PLAN)
        words += [*facts.get("rights", []), *(["--accept-unseen", str(unseen)] if unseen else [])]
        if self._kind == DELETES and self._is_stopped:
            self._await(lambda: not self._list_registered(), "the sessions of all bookies ended")
        words += ["--accept-unfrozen"] if self._kind == DELETES and not (self._is_frozen or self._is_stopped) else []
        words += ["--resume"] if (Path(plan) / "journal").exists() else []
        self._expect(EstimatedStep.APPLY, self._count_writes())
        done = self._run(*words, codes=(Exit.DONE, Exit.FOUND))
        own = self._record.find_phase(RescuePhase.RESTORE)
        own["starts"] = done.get("bookies", [])
        self._record.save()
        disks = self._build_disk_options("all")
        if disks and self._kind == LOST:
            self._read_back("disks read", ["verify", plan, "--incident", self._incident, *disks])

    def _start(self) -> None:
        plan = self._record.find_phase(RescuePhase.DECIDE)["plan"]
        is_flat = False
        if self._kind == LOST and self._is_frozen:
            is_flat = self._read_layout() is Layout.FLAT
            self._freeze()
            if is_flat:
                # Frozen bookies of this layout do not start. The thaw refuses what they would delete, and replication
                # stays disabled.
                self._thaw()
        if self._is_stopped:
            self._start_bookies()
        words = ["verify", plan, "--incident", self._incident, "--sample", "all", "--wire"]
        read = self._read_back("wire read", words)
        facts = self._record.find_phase(RescuePhase.START)
        facts["read"], facts["read_code"] = read["verdict"], read["exit_code"]
        if self._is_frozen and not is_flat:
            self._thaw()

    # What the steps share

    def _read_back(self, name: str, words: Sequence[object]) -> dict[str, Any]:
        """Read ledgers back; where not all are as the plan has them, go on only if a person says so.

        Raises:
            GuardRefusedError: no person does.
        """
        entries = self._read_counts()
        total = sum(entries.get(f"entries_{share}", 0) for share in ("restored", "guarded"))
        self._say(f"  each copy of {count_noun(total, 'entry', 'entries')} is read: as long as the disks take for that")
        read = self._run(*words, codes=_READ)
        if read["exit_code"] == Exit.FOUND:
            question = questions.ask_to_go_on(name, read["verdict"])
            if self._answer(question) == "no":
                self._forget(name)
                problem = f"is not as the plan has it: {read['verdict']}"
                raise GuardRefusedError("what was read", problem, "see why: bkmeta explain LEDGER, then run this again")
        return read

    @property
    def _kind(self) -> str:
        return str(self._record.find_phase(RescuePhase.LOOK).get("kind", LOST))

    @property
    def _is_frozen(self) -> bool:
        """Whether this rescue freezes, which etcd, without rights, cannot be."""
        if self._kind == DELETES:
            return self._record.find_answer(self._ask_to_keep().id) == "freeze"
        return self._has_rights

    @property
    def _is_stopped(self) -> bool:
        """Whether this rescue stops every bookie: all is lost, or nothing else keeps bookies from deleting."""
        return self._kind == LOST or self._record.find_answer(self._ask_to_keep().id) == "stop"

    def _ask_to_keep(self) -> RescueQuestion:
        """Return the question how bookies are kept from deleting on a cluster that lives."""
        facts = self._record.find_phase(RescuePhase.LOOK)
        if self._has_rights:
            return questions.ask_to_freeze(facts.get("ledgers", 0))
        return questions.ask_to_stop(len(facts.get("bookies", ())), len(self._hosts.bookies))

    @property
    def _incident(self) -> Path:
        return self._out / _INCIDENT

    def _recover(self) -> dict[str, Any]:
        """Make a plan, ask what changes it, and make it again with that."""
        self._write_incident()
        plan = self._make_plan("recover")
        unopened = count_unopened(open_dataset(Path(plan["plan"]), "plan"))
        keys = (
            questions.ask_for_passwords(unopened.ledgers, unopened.keys, self._hosts.incident.get("passwords"))
            if unopened.ledgers
            else None
        )
        quorums = questions.ask_for_quorums(plan)
        older = plan["counts"].get("ids_reused", 0)
        reuse = questions.ask_for_older_ledgers(older) if older else None
        sessions = [questions.ask_for_session(row) for row in plan["deletions"] if row["undecided"]]
        if reuse is not None:
            # That these are to be saved is asked now, and no longer true when the plan is confirmed.
            self._record.find_phase(RescuePhase.DECIDE).pop("verdict", None)
        self._answer_all([*(one for one in (keys, quorums, reuse) if one is not None), *sessions])
        if keys is not None and self._answer(keys) == "added":
            plan = self._make_plan("recover with passwords")
        if quorums is not None and self._answer(quorums) != "unknown":
            self._write_incident(quorums=self._answer(quorums))
            plan = self._make_plan("recover with quorums")
        self._record.find_phase(RescuePhase.DECIDE)["unseen"] = len(plan["coverage"]["not_scanned"])
        if words := [*self._settle_older(plan), *self._settle_sessions(plan), *self._settle_topics(plan)]:
            plan = self._run("plan", "edit", plan["plan"], *words, "--out", self._name_plan(), codes=_READ)
        return plan

    def _make_plan(self, name: str) -> dict[str, Any]:
        """Make a plan of all that is known, unless that was done."""
        facts = self._record.find_phase(RescuePhase.DECIDE)
        if "has_topics" not in facts:
            facts["has_topics"] = self._has_rights and have_topics(
                self._list_snapshots(), self._uri, make_context(self._output, self._find_identity())
            )
        copies = sum(open_dataset(folder, "inventory").rows("copies") for folder in self._list_inventories())
        self._expect(EstimatedStep.RECOVER, copies)
        words = ["recover", "--incident", self._incident, *(["--pulsar"] if facts["has_topics"] else [])]
        words += self._build_approvals(Approvable.LOST)
        ran = len(self._record.values["commands"])
        made = self._run_once(name, words, codes=_READ)
        if len(self._record.values["commands"]) > ran:
            self._measure(EstimatedStep.RECOVER, copies)
        facts["verdict"] = made["verdict"]
        return made

    def _list_inventories(self) -> Iterator[Path]:
        for bookie in self._hosts.bookies:
            if self._record.find_phase(RescuePhase.COLLECT).get("bookies", {}).get(bookie.name):
                yield self._out / "inv" / bookie.name

    def _settle_older(self, plan: Mapping[str, Any]) -> Iterator[str]:
        """Save the older ledgers of ids that were given out twice, or yield the words that give them up."""
        reused = plan["counts"].get("ids_reused", 0)
        if not reused:
            return
        path = Path(plan["plan"])
        several = [line.ledger for line in list_plan_ledgers(path, LedgerFilter(category=_REUSED))]
        # Of others the store has neither ledger: they are held, and to give these up would lose both.
        held = select_held(open_dataset(path, "plan"), HeldChoice(among=frozenset(several)))
        ledgers = [str(ledger) for ledger in several if ledger not in held]
        self._record.find_phase(RescuePhase.DECIDE)["older"] = ledgers
        match self._answer(questions.ask_for_older_ledgers(reused)):
            case "lost":
                # Without a lock the plan keeps nothing of the older ledger, and has nothing to give up.
                locked = {str(ledger) for ledger in list_reuse_locked(open_dataset(path, "plan"))}
                if given_up := [ledger for ledger in ledgers if ledger in locked]:
                    # There may be more of them than a command line takes.
                    path = self._out / _GIVEN_UP
                    path.write_text("".join(f"{ledger}\n" for ledger in given_up))
                    yield from ("--accept-loss-of", str(path))
            case "export":
                self._export_older(ledgers)

    def _export_older(self, ledgers: Sequence[str]) -> None:
        """Save what each bookie has of the older ledgers; where some may have more, go on only if a person says so.

        Raises:
            GuardRefusedError: no person does.
        """
        ids, disks = (self._record.find_phase(RescuePhase.COLLECT)[name] for name in ("bookies", "disks"))
        saved: dict[str, str] = self._record.find_phase(RescuePhase.DECIDE).setdefault("saved", {})
        for bookie in self._hosts.bookies:
            name = ids.get(bookie.name)
            if name is None:
                saved[bookie.name] = "its disks were not read"
            elif saved.get(bookie.name) != "":
                self._say(f"{bookie.name}: {bookie.program} export of {count_noun(len(ledgers), 'ledger')}")
                done = export_ledgers(bookie, name, disks[name], ledgers, self._out / _OLDER, self._passwords)
                saved[bookie.name] = done.problem
                self._say(f"  {done.verdict}")
            self._record.save()
        lacking = [f"{name}: {problem}" for name, problem in saved.items() if problem]
        if lacking:
            question = questions.ask_for_unsaved(lacking)
            if self._answer(question) == "no":
                self._forget(question.id)
                remedy = "save the rest with bkmeta export, then run this again and answer yes"
                raise GuardRefusedError("what was saved of older ledgers", f"may not be all: {lacking[0]}", remedy)

    def _settle_sessions(self, plan: Mapping[str, Any]) -> Iterator[str]:
        for row in (row for row in plan["deletions"] if row["undecided"]):
            answer, name = self._answer(questions.ask_for_session(row)), row["session"] or "none"
            if answer in _SETTLES:
                yield from (_SETTLES[answer], name)

    def _settle_topics(self, plan: Mapping[str, Any]) -> Iterator[str]:
        """Ask whether topics get the ledgers that name them and came after the snapshot."""
        named = plan.get("candidates", {}).get("record", 0)
        if named and self._answer(questions.ask_for_adoption(named)) == "yes":
            yield "--adopt-candidates"

    def _find_rights(self) -> str | None:
        """Return the newest capture that has rights of records; None: none has any but those of an open store."""
        given = [catalog_path(text) for text in self._hosts.incident.get("snapshots", [])]
        made = sorted(self._out.absolute().glob(f"plan-*/{SNAPSHOTS}/*"))
        catalogs = [open_dataset(str(path), "catalog") for path in (*given, *made) if path is not None]
        for catalog in sort_newest_first(catalogs):
            columns = (batch["acl"] for batch in catalog.dataset.batches("ledgers", ["acl"]))
            acls = {acl for column in columns for acl in pc.unique(column).to_pylist()}
            if acls - {None, OPEN_ACL}:
                return str(catalog.dataset.path)
        return None

    def _choose_rights(self, plan: Dataset) -> str | None:
        """Return what `apply --acl` takes: what the snapshot has, what a person says, or None where all is open."""
        rights = count_rights(plan)
        if not rights.lacking:
            return _FROM_SNAPSHOT if rights.created else None
        secured = ""
        with connect(self._uri, make_context(self._output, self._find_identity())) as opened:
            try:
                choose_acl(opened.store, opened.root)
            except GuardRefusedError as error:
                secured = str(error)
        if not secured and set(rights.named) <= {OPEN_ACL}:
            return None
        return self._answer_rights(questions.ask_for_rights(rights.created, rights.lacking, rights.named, secured))

    def _answer_rights(self, question: RescueQuestion) -> str:
        """Return the rights that a person names. What is none is forgotten: `apply` would refuse it each time.

        Raises:
            GuardRefusedError: the answer is not rights.
        """
        rights = self._answer(question)
        try:
            require_acl(rights)
        except PlanError as error:
            self._forget(question.id)
            problem = f"are answered {rights!r}, which is not scheme:id:perms,…"
            raise GuardRefusedError("the rights", problem, "run this again, and write them so") from error
        return rights

    def _undelete(self) -> dict[str, Any]:
        """Show who deleted what, ask which of it was a mistake, and make a plan that brings it back."""
        self._write_incident()
        words = self._build_undelete()
        if self._topic is not None:
            plan = self._make_undelete([*words, "--topic", self._topic])
            facts = self._record.find_phase(RescuePhase.DECIDE)
            facts["topics"] = [describe_topic(row) for row in plan["topics"][:_TOPICS]]
            facts["unload"] = [describe_unload(row) for row in plan["topics"]]
            return plan
        seen = self._run_once("sessions", words, codes=(Exit.USAGE,))
        if "sessions" not in seen:
            self._forget_result("sessions")
            raise _make_refusal(words, seen)
        sessions = [questions.ask_for_session(row) for row in seen["sessions"]]
        if not sessions:
            problem = "has no delete of a ledger that the store lacks"
            self._forget_result("sessions")
            remedy = f"name more of it: snapshots in [incident], or [[server]]; {self._name_thaw()}"
            raise GuardRefusedError("the history", problem, remedy)
        self._answer_all(sessions)
        chosen = [row for row in seen["sessions"] if self._answer(questions.ask_for_session(row)) == "mistake"]
        if not chosen:
            for question in sessions:
                self._forget(question.id)
            problem = "was called a mistake, so nothing comes back"
            raise GuardRefusedError("no session", problem, f"to decide again run this again; {self._name_thaw()}")
        words += [word for row in chosen for word in ("--session", row["session"] or "none")]
        first, last = min(row["first_txn"] for row in chosen), max(row["last_txn"] for row in chosen)
        words += ["--from-time", str(first), "--to-time", str(last)]
        return self._make_undelete(words)

    def _list_histories(self) -> list[str]:
        """Return the histories that are named; a live etcd is one by itself."""
        servers = [f"zkfiles://{self._out.absolute() / 'servers'}"] if self._hosts.servers else []
        return [*self._hosts.incident.get("snapshots", []), *servers]

    def _build_undelete(self) -> list[object]:
        histories = (word for uri in self._list_histories() for word in ("--history", uri))
        return ["undelete", "--metadata", self._uri, *histories]

    def _make_undelete(self, words: Sequence[object]) -> dict[str, Any]:
        plan = self._run(*words, "--out", self._name_plan(), codes=_READ)
        if plan["plan"] is None:
            remedy = f"name more of the history: snapshots in [incident]; {self._name_thaw()}"
            raise GuardRefusedError("undelete", plan["verdict"], remedy)
        return plan

    def _name_thaw(self) -> str:
        """Return how to leave off before anything is written: the freeze is all that was done."""
        if self._is_stopped:
            return "or leave it: kill -KILL every bookie, and start it again; nothing else was changed"
        if not self._is_frozen:
            return "or leave it: nothing was changed"
        words = self._build_thaw()
        set_first = f"{AUTH_FILE_VARIABLE}={quote_command(identity)} " if (identity := self._find_identity()) else ""
        return f"or leave it, and end the freeze: {set_first}{quote_command('bkmeta', *words)}"

    def _forget_result(self, name: str) -> None:
        """Forget what a command gave, so that it is run again."""
        self._record.find_phase(RescuePhase.DECIDE).get("results", {}).pop(name, None)
        self._record.save()

    def _freeze(self) -> None:
        words = ["freeze", "--incident", self._incident, "--journal", self._out / "freeze"]
        words += ["--deletes-only"] if self._kind == DELETES else []
        self._expect(EstimatedStep.LIST, self._record.find_phase(RescuePhase.LOOK).get("ledgers", 0))
        self._run_confirmed(words, codes=(Exit.DONE, Exit.UNDECIDABLE))

    def _thaw(self) -> None:
        words = self._build_thaw()
        unseen = self._record.find_phase(RescuePhase.DECIDE).get("unseen", 0)
        if self._kind == DELETES:
            unseen = len(self._record.find_phase(RescuePhase.LOOK)["bookies"])
        words += ["--accept-unseen", str(unseen)] if unseen else []
        left_out = self._count_older_copies()
        words += ["--accept-left-out", str(left_out)] if left_out else []
        self._run_confirmed(words, codes=(Exit.DONE,))

    def _build_thaw(self) -> list[object]:
        thaw = ["thaw", "--incident", self._incident, "--journal", self._out / "freeze"]
        return [*thaw, *self._build_approvals(Approvable.THAW)]

    def _build_approvals(self, kind: Approvable) -> list[str]:
        """Return the options for the files that approve one kind of thing: its command refuses those of another."""
        return carry_approvals(path for path, approved in self._approvals.items() if approved is kind)

    def _run_confirmed(self, words: Sequence[object], *, codes: Sequence[int]) -> None:
        """Run a freeze or a thaw to see its changes, and again to make them.

        Raises:
            GuardRefusedError: it refuses to, or it ended with another code than is expected.
        """
        waiting = self._run(*words, codes=(Exit.REFUSED, Exit.FOUND, Exit.DONE, Exit.UNDECIDABLE))
        if waiting["exit_code"] == Exit.DONE:
            return
        if "hash" not in waiting:
            raise _make_refusal(words, waiting)
        self._run(*words, "--confirm", waiting["hash"], "--reason", "rescue", codes=codes)

    def _count_older_copies(self) -> int:
        """Return how many copies the records leave out, if all of them are of older ledgers that were settled."""
        older = set(self._record.find_phase(RescuePhase.DECIDE).get("older", []))
        if not older:
            return 0
        inventories = [open_dataset(folder, "inventory") for folder in self._list_inventories()]
        layout = self._read_layout()
        with connect(self._uri, make_context(self._output, self._find_identity())) as opened:
            left_out = list(find_left_out(opened.store, opened.root.rstrip("/"), layout, inventories))
        # Others are refused by the thaw, which names them.
        return len(left_out) if all(str(item.ledger) in older for item in left_out) else 0

    def _read_layout(self) -> Layout:
        with connect(self._uri, make_context(self._output, self._find_identity())) as opened:
            hint = None if opened.layout_hint is None else Layout(opened.layout_hint)
            return require_layout(opened.store, opened.root.rstrip("/"), hint)

    def _start_bookies(self) -> None:
        starts = {row["bookie"]: row for row in self._record.find_phase(RescuePhase.RESTORE)["starts"]}
        for bookie in self._hosts.bookies:
            name = self._find_id(bookie)
            if self._record.find_answer(f"host {bookie.name}") == "down":
                self._say(f"{bookie.name} was not reached, and stays off")
                continue
            # Of deletes no disks were read: what the bookies had is what they have.
            if self._kind == LOST and not (row := starts.get(name, _NOT_READ))["may_start"]:
                self._say(f"{bookie.name} stays stopped: {row['reason']}")
                continue
            self._start_bookie(bookie, name)

    def _start_bookie(self, bookie: BookieHost, name: str | None) -> None:
        """Kill what was stopped, start it, and wait until it is registered.

        Args:
            bookie: its host.
            name: its id; None: it is not known. All other bookies that run were started here.
        """
        started: dict[str, str] = self._record.find_phase(RescuePhase.START).setdefault("started", {})

        def find() -> set[str]:
            registered = self._list_registered()
            return registered - set(started.values()) if name is None else registered & {name}

        if started.get(bookie.name) in self._list_running():
            return
        left = scripts.parse_processes(
            require_done(bookie.host, run_script(bookie.host, scripts.build_kill(bookie.process)), "kill").out
        )
        if left:
            raise GuardRefusedError(bookie.name, f"process {left[0].pid} cannot be killed", "kill it from its node")
        # Its session may outlive it: what is registered then is not the bookie that is started.
        self._await(lambda: not find(), f"{bookie.name}: its session ended")
        if bookie.start is None:
            self._answer(RescueQuestion(f"started {bookie.name}", f"start {bookie.name} by hand, then say: done"))
        else:
            self._say(f"{bookie.name}: {bookie.start}")
            require_done(bookie.host, run_script(bookie.host, scripts.build_start(bookie.start)), "its start")
        self._await(lambda: bool(find()), f"{bookie.name}: it is registered")
        started[bookie.name] = min(find())
        self._record.save()

    def _await(self, is_so: Callable[[], bool], what_came: str) -> None:
        """Wait until something is so, and say that it came.

        Raises:
            GuardRefusedError: it does not come.
        """
        until = time.monotonic() + _PATIENCE_S
        while not is_so():
            if time.monotonic() > until:
                problem = f"waited {_PATIENCE_S} s, and this is not so yet: {what_came}"
                raise GuardRefusedError("rescue", problem, "read the bookie's log, then run this again")
            time.sleep(1)
        self._say(what_came)

    def _list_registered(self) -> set[str]:
        with connect(self._uri, make_context(self._output, self._find_identity())) as opened:
            return {name for _, name in list_registered(opened.store, opened.root.rstrip("/"))}

    def _list_running(self) -> set[str]:
        """Return the registered bookies that answer. One that crashed is registered until its session ends.

        Of one whose registration names no address nothing more can be told.
        """
        with connect(self._uri, make_context(self._output, self._find_identity())) as opened:
            names = read_members(opened.store, opened.root.rstrip("/"), opened.layout_hint, {})
            members = [member for name in names.bookies if (member := names.find(name)).registered_txn is not None]
        answers = ask_whether_running(str(member.address) for member in members)
        return {member.bookie for member in members if answers.get(str(member.address), True)}

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
        asked = {name: questions.ask_for_host(name, error) for name, error in unreached}
        self._answer_all(list(asked.values()))
        for name, error in unreached:
            if self._answer(asked[name]) != "down":
                self._forget(asked[name].id)
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
        facts, question = self._record.find_phase(RescuePhase.STOP), questions.ask_for_the_silent(silent)
        if facts.get("silent") != silent:
            self._forget(question.id)
        facts["silent"] = silent
        if self._answer(question) != "off":
            self._forget(question.id)
            problem = f"no process of the bookie was found on {count_noun(len(silent), 'host')}: {list_names(silent)}"
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
        disks = self._record.find_phase(RescuePhase.COLLECT).get("disks", {})
        words = [f"{bookie}={folder}" for bookie, folders in disks.items() for folder in folders]
        return ["--sample", sample, *(word for disk in words for word in ("--disk", disk))] if words else []

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
        ids = self._record.find_phase(RescuePhase.COLLECT).get("bookies", {})
        members = list(self._hosts.incident.get("bookies", ())) if self._kind == LOST else []
        values: dict[str, Any] = {**self._hosts.incident, "store": self._uri}
        if self._kind == LOST:
            for bookie in self._hosts.bookies:
                name = self._find_id(bookie)
                members += [name] if name and name not in members else []
            values |= {"bookies": members, "inventories": str(self._out.absolute() / "inv")}
            gone = [b for b in self._hosts.bookies if self._record.find_answer(f"disks of {b.name}") == "gone"]
            lost = [self._find_id(bookie) for bookie in gone]
            for name, paths in self._record.find_phase(RescuePhase.COLLECT).get("gaps", {}).items():
                given_up = [p for p in paths if self._record.find_answer(f"folder {p} of {name}") == "gone"]
                lost += [f"{ids[name]}={path}" for path in given_up]
            values |= {"lost": lost} if lost else {}
        values |= {"snapshots": snapshots} if (snapshots := self._list_snapshots()) else {}
        values |= {"quorums": quorums} if quorums else {}
        lines = [f"{key} = {json.dumps(value)}\n" for key, value in values.items()]
        self._incident.write_text("".join(lines))

    def _list_snapshots(self) -> list[str]:
        """Return what the store held earlier, as the file of hosts names it, and the files of its servers."""
        servers = [str(self._out.absolute() / "servers")] if self._hosts.servers and self._kind == LOST else []
        return [*self._hosts.incident.get("snapshots", []), *servers]

    @property
    def _passwords(self) -> Path | None:
        named = self._hosts.incident.get("passwords")
        return None if named is None else Path(named)

    def _read_counts(self) -> dict[str, int]:
        """Return the counts of the plan that is written."""
        plan = open_dataset(Path(self._record.find_phase(RescuePhase.DECIDE)["plan"]), "plan")
        counts: dict[str, int] = plan.manifest["counts"]
        return counts

    def _count_writes(self) -> int:
        counts = self._read_counts()
        return counts["actions"] - counts.get("left_alone", 0)

    def _expect(self, step: EstimatedStep, things: int) -> None:
        """Say about how long a step takes, before it begins: by what it took here, or else where it was measured."""
        each_s = self._record.find_phase(RescuePhase.LOOK).get("measured", {}).get(step)
        if each_s is None:
            self._say(f"  {step} takes {in_words(estimate_s(step, things))}, by what was measured on two cores")
        else:
            self._say(f"  {step} takes {in_words(each_s * things)}, by what it took here")

    def _measure(self, step: EstimatedStep, things: int) -> None:
        """Keep what each thing cost the last command in seconds."""
        if things:
            measured = self._record.find_phase(RescuePhase.LOOK).setdefault("measured", {})
            measured[step] = self._record.values["commands"][-1]["seconds"] / things

    def _answer(self, question: RescueQuestion) -> str:
        self._answer_all([question])
        return self._record.find_answer(question.id) or ""

    def _answer_all(self, questions: Sequence[RescueQuestion]) -> None:
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
        results: dict[str, Any] = self._record.find_phase(RescuePhase.DECIDE).setdefault("results", {})
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
        # What to do in the first ten minutes is said once.
        is_told = words[0] == "preflight" and (bool(self._record.values["commands"]) or self._topic is not None)
        ran = run_own(words, environment, self._output, is_told=is_told)
        result = ran.result
        self._record.add_command(command, ran.code, str(result["verdict"]), ran.seconds)
        self._say(f"  {result['verdict']}" + (f" ({ran.seconds:.0f} s)" if ran.seconds >= 1 else ""))
        if ran.code not in codes:
            raise _make_refusal(words, result, f"ended with {ran.code}: ")
        return result

    def _end(self) -> RescueEnd:
        decided = self._record.find_phase(RescuePhase.DECIDE)
        starts = self._record.find_phase(RescuePhase.RESTORE).get("starts", [])
        stay = {str(row["bookie"]): str(row["reason"]) for row in starts if not row["may_start"]}
        when = self._record.now().isoformat(timespec="seconds")
        left = [f"as of {when}: {self._record.find_phase(RescuePhase.START).get('read', '')}"]
        left += [f"{bookie} must not start: {reason}" for bookie, reason in stay.items()]
        if decided.get("saved"):
            text = f"older ledgers of {count_noun(len(decided['older']), 'id')} are in {self._out / _OLDER}"
            left.append(f"{text}: give them to the team that wrote them")
        left += decided.get("unload", [])
        if decided.get("has_topics"):
            left.append("restart the brokers, or start them now: they read topics and subscriptions again")
        if self._is_frozen:
            left.append("when all is verified, enable replication by hand: bookkeeper shell autorecovery -enable")
        left.append(f"from today on, daily: bkmeta capture --metadata {self._uri} --out DIR")
        is_read = self._record.find_phase(RescuePhase.START).get("read_code") == Exit.DONE
        return RescueEnd(self._kind, tuple(left), stay, is_read)


def name_rehearsal(uri: str) -> str | None:
    """Return the URI of a root for rehearsals beside the cluster's; None: where it is cannot be told."""
    is_plain = re.fullmatch(r"[a-z+]+://[^/]+/.+", uri) is not None
    return f"{uri.rstrip('/')}-rehearsal" if is_plain else None


def _make_refusal(words: Sequence[object], result: Mapping[str, Any], prefix: str = "") -> GuardRefusedError:
    """Return the error for a command that did not do its part; what to do next is in it once."""
    remedy = result.get("next") or "do what it says, then run this again"
    return GuardRefusedError(f"bkmeta {words[0]}", prefix + result["verdict"].removesuffix(f"; {remedy}"), remedy)


def _ask_for_gaps(item: FetchedBookie) -> list[RescueQuestion]:
    """Return the questions for what was not read of a bookie: folder by folder where it is known which."""
    if item.bookie is None or not item.gaps:
        return [questions.ask_for_disks(item)]
    return [questions.ask_for_folder(item, gap) for gap in item.gaps]


def _is_listed_whole(seen: Mapping[str, Any]) -> bool:
    return bool(seen["coverage"].get("listed_whole"))


def _list_disks(item: FetchedBookie) -> list[str]:
    """Return the folders of a bookie that are there."""
    missing = {gap.path for gap in item.gaps if gap.is_missing}
    return [disk for disk in item.disks if disk not in missing]
