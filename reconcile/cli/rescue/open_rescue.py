"""What the steps of a rescue share: hosts, record, questions, commands, and what is known by now."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_random_exponential

from backends.registry import OpenStore
from reconcile.cli.access import AUTH_FILE_VARIABLE, AUTH_VARIABLE
from reconcile.cli.approval import carry_approvals
from reconcile.cli.command import Exit
from reconcile.cli.options import make_context, quote_command
from reconcile.cli.output import Output
from reconcile.cli.rescue import questions
from reconcile.cli.rescue.copies import copy_server
from reconcile.cli.rescue.hosts import BookieHost, Hosts
from reconcile.cli.rescue.own_commands import run_own
from reconcile.cli.rescue.record import RescuePhase, RescueQuestion, RescueRecord
from reconcile.deletes.approvals import Approvable, read_approval
from reconcile.errors import GuardRefusedError
from reconcile.estimates import EstimatedStep, estimate_s, in_words
from reconcile.jobs.context import Context, connect
from reconcile.stores import has_rights
from reconcile.words import count_noun, list_names
from reconcile.write.guards import list_registered, require_layout
from recovery.codecs.store import Layout
from recovery.dataset import open_dataset

LOST, DELETES = "lost", "deletes"
DISKS, WIRE = "disks", "wire"
"""What ledgers are read back from."""
AT_ONCE: Final = 16
"""Hosts that are worked on together."""
_IDENTITY: Final = "bkmeta-identity"
_INCIDENT: Final = "incident.toml"
READ_CODES: Final = (Exit.DONE, Exit.FOUND, Exit.UNDECIDABLE)
"""How a command ends that found something, and did what it does."""
PATIENCE_S: Final = 180
"""For a bookie to register, or for the session of one that was killed to end."""

Say = Callable[[str], None]
Ask = Callable[[Sequence[RescueQuestion]], None]


class OpenRescue:
    """A rescue that is under way, and what all its steps share.

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
        self.output, self.topic = output, topic
        self.approvals = {path: read_approval(path).subject.kind for path in approvals}
        self.hosts, self.uri, self.record, self.say, self.ask = hosts, uri, record, say, ask
        self.out = record.folder
        self.has_rights = has_rights(uri)

    def make_context(self) -> Context:
        """Return the context of a job, as the identity of the freeze where there is one."""
        return make_context(self.output, self.find_identity())

    def connect(self) -> AbstractContextManager[OpenStore]:
        """Give the store, only to be read."""
        return connect(self.uri, self.make_context())

    @property
    def kind(self) -> str:
        return str(self.record.find_phase(RescuePhase.LOOK).get("kind", LOST))

    @property
    def is_frozen(self) -> bool:
        """Whether this rescue freezes, which etcd, without rights, cannot be."""
        if self.kind == DELETES:
            return self.record.find_answer(self.ask_to_keep().id) == "freeze"
        return self.has_rights

    @property
    def is_stopped(self) -> bool:
        """Whether this rescue stops every bookie: all is lost, or nothing else keeps bookies from deleting."""
        return self.kind == LOST or self.record.find_answer(self.ask_to_keep().id) == "stop"

    def ask_to_keep(self) -> RescueQuestion:
        """Return the question how bookies are kept from deleting on a cluster that lives."""
        facts = self.record.find_phase(RescuePhase.LOOK)
        if self.has_rights:
            return questions.ask_to_freeze(facts.get("ledgers", 0))
        return questions.ask_to_stop(len(facts.get("bookies", ())), len(self.hosts.bookies))

    @property
    def incident(self) -> Path:
        return self.out / _INCIDENT

    @property
    def passwords(self) -> Path | None:
        named = self.hosts.incident.get("passwords")
        return None if named is None else Path(named)

    def find_named_id(self, bookie: BookieHost) -> str | None:
        """Return a bookie's id, from its disks or the file of hosts; None: neither names it."""
        collected = self.record.find_phase(RescuePhase.COLLECT).get("bookies", {})
        return collected.get(bookie.name) or bookie.bookie

    def find_id(self, bookie: BookieHost) -> str | None:
        """Return a bookie's id, from its disks, the file of hosts, or an answer; None: not known."""
        return self.find_named_id(bookie) or self.record.find_answer(f"id of {bookie.name}")

    def list_snapshots(self) -> list[str]:
        """Return what the store held earlier, as the file of hosts names it, and the files of its servers."""
        servers = [str(self.out.absolute() / "servers")] if self.hosts.servers and self.kind == LOST else []
        return [*self.hosts.incident.get("snapshots", []), *servers]

    def list_histories(self) -> list[str]:
        """Return the histories that are named; a live etcd is one by itself."""
        servers = [f"zkfiles://{self.out.absolute() / 'servers'}"] if self.hosts.servers else []
        return [*self.hosts.incident.get("snapshots", []), *servers]

    def list_inventories(self) -> Iterator[Path]:
        for bookie in self.hosts.bookies:
            if self.record.find_phase(RescuePhase.COLLECT).get("bookies", {}).get(bookie.name):
                yield self.out / "inv" / bookie.name

    def find_identity(self) -> Path | None:
        kept = self.out / _IDENTITY
        named = AUTH_VARIABLE in os.environ or AUTH_FILE_VARIABLE in os.environ
        return kept if kept.exists() and not named else None

    def name_plan(self) -> Path:
        """Return a folder for another plan."""
        number = 1
        while (self.out / f"plan-{number}").exists():
            number += 1
        return self.out / f"plan-{number}"

    def write_incident(self, quorums: str | None = None) -> None:
        """Write what the commands are told: what the file of hosts says, and what is known by now."""
        members = list(self.hosts.incident.get("bookies", ())) if self.kind == LOST else []
        values: dict[str, Any] = {**self.hosts.incident, "store": self.uri}
        if self.kind == LOST:
            for bookie in self.hosts.bookies:
                name = self.find_id(bookie)
                members += [name] if name and name not in members else []
            # Before a bookie is collected none may be known.
            values |= {"bookies": members} if members else {}
            values |= {"inventories": str(self.out.absolute() / "inv")}
            lost = [bookie if folder is None else f"{bookie}={folder}" for bookie, folder in self.list_given_up()]
            values |= {"lost": lost} if lost else {}
        values |= {"snapshots": snapshots} if (snapshots := self.list_snapshots()) else {}
        values |= {"quorums": quorums} if quorums else {}
        lines = [f"{key} = {json.dumps(value)}\n" for key, value in values.items()]
        self.incident.write_text("".join(lines))

    def list_given_up(self) -> Iterator[tuple[str | None, str | None]]:
        """Yield what a person said is gone: a bookie, and its folder; None: all of it."""
        facts = self.record.find_phase(RescuePhase.COLLECT)
        for bookie in self.hosts.bookies:
            if self.record.find_answer(f"disks of {bookie.name}") == "gone":
                yield self.find_id(bookie), None
        for name, paths in facts.get("gaps", {}).items():
            for path in paths:
                if self.record.find_answer(f"folder {path} of {name}") == "gone":
                    yield facts["bookies"][name], path

    def is_said_to_be_gone(self, bookie: BookieHost) -> bool:
        """Whether a person said of all of a bookie that was not read that it is gone."""
        gaps = self.record.find_phase(RescuePhase.COLLECT).get("gaps", {}).get(bookie.name)
        asked = [f"folder {path} of {bookie.name}" for path in gaps] if gaps else [f"disks of {bookie.name}"]
        return all(self.record.find_answer(question) == "gone" for question in asked)

    def copy_servers(self, *, again: bool = False) -> None:
        for server in self.hosts.servers:
            self.say(f"copying the files of {server.host.name} to {self.out / 'servers' / server.host.name}")
        self.at_each(lambda server: copy_server(server, self.out / "servers", again=again), self.hosts.servers)

    def answer(self, question: RescueQuestion) -> str:
        self.answer_all([question])
        return self.record.find_answer(question.id) or ""

    def answer_all(self, questions: Sequence[RescueQuestion]) -> None:
        left = [question for question in questions if self.record.find_answer(question.id) is None]
        if left:
            self.ask(left)

    def forget(self, question: str) -> None:
        """Forget an answer, so that it is asked again."""
        self.record.values["answers"].pop(question, None)
        self.record.save()

    def forget_result(self, name: str) -> None:
        """Forget what a command gave, so that it is run again."""
        self.record.find_phase(RescuePhase.DECIDE).get("results", {}).pop(name, None)
        self.record.save()

    def at_each(self, work: Callable[[Any], Any], hosts: Sequence[Any]) -> list[Any]:
        """Do something at each of some hosts at once; the first error is raised when all have ended."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            done = [pool.submit(work, host) for host in hosts]
        return [item.result() for item in done]

    def expect(self, step: EstimatedStep, things: int) -> None:
        """Say about how long a step takes, before it begins: by what it took here, or else where it was measured."""
        each_s = self.record.find_phase(RescuePhase.LOOK).get("measured", {}).get(step)
        if each_s is None:
            self.say(f"  {step} takes {in_words(estimate_s(step, things))}, by what was measured on two cores")
        else:
            self.say(f"  {step} takes {in_words(each_s * things)}, by what it took here")

    def measure(self, step: EstimatedStep, things: int) -> None:
        """Keep what each thing cost the last command in seconds."""
        if things:
            measured = self.record.find_phase(RescuePhase.LOOK).setdefault("measured", {})
            measured[step] = self.record.values["commands"][-1]["seconds"] / things

    def wait_until(self, is_so: Callable[[], bool], what_came: str) -> None:
        """Wait until something is so, and say that it came.

        Raises:
            GuardRefusedError: it does not come.
        """
        waiting = Retrying(
            retry=retry_if_result(lambda is_come: not is_come),
            stop=stop_after_delay(PATIENCE_S),
            wait=wait_random_exponential(multiplier=0.1, max=2),
        )
        try:
            waiting(is_so)
        except RetryError as error:
            problem = f"waited {PATIENCE_S} s, and this is not so yet: {what_came}"
            raise GuardRefusedError("rescue", problem, "read the bookie's log, then run this again") from error
        self.say(what_came)

    def run(self, *words: object, codes: Sequence[int]) -> dict[str, Any]:
        """Run a command of this program, print it as a person would type it, and return its result.

        Raises:
            GuardRefusedError: it ended with another code than is expected.
        """
        command = quote_command("bkmeta", *words)
        self.say(f"$ {command}")
        environment = dict(os.environ)
        if (identity := self.find_identity()) is not None:
            environment[AUTH_FILE_VARIABLE] = str(identity)
        # What to do in the first ten minutes is said once.
        is_told = words[0] == "preflight" and (bool(self.record.values["commands"]) or self.topic is not None)
        ran = run_own(words, environment, self.output, is_told=is_told)
        result = ran.result
        self.record.add_command(command, ran.code, str(result["verdict"]), ran.seconds)
        self.say(f"  {result['verdict']}" + (f" ({ran.seconds:.0f} s)" if ran.seconds >= 1 else ""))
        if ran.code not in codes:
            raise make_refusal(words, result, f"ended with {ran.code}: ")
        return result

    def run_once(self, name: str, words: Sequence[object], *, codes: Sequence[int]) -> dict[str, Any]:
        """Run a command that makes a plan, unless that was done; return its result."""
        results: dict[str, Any] = self.record.find_phase(RescuePhase.DECIDE).setdefault("results", {})
        if name not in results:
            results[name] = self.run(*words, "--out", self.name_plan(), codes=codes)
            self.record.save()
        made: dict[str, Any] = results[name]
        return made

    def build_undelete(self) -> list[object]:
        histories = (word for uri in self.list_histories() for word in ("--history", uri))
        return ["undelete", "--metadata", self.uri, *histories]

    def build_approvals(self, kind: Approvable) -> list[str]:
        """Return the options for the files that approve one kind of thing: its command refuses those of another."""
        return carry_approvals(path for path, approved in self.approvals.items() if approved is kind)

    def build_disk_options(self, sample: str) -> list[str]:
        """Return what reads entries back from disks; nothing unless every bookie's are of this machine."""
        if any(bookie.host.transport != "local" for bookie in self.hosts.bookies):
            return []
        disks = self.record.find_phase(RescuePhase.COLLECT).get("disks", {})
        words = [f"{bookie}={folder}" for bookie, folders in disks.items() for folder in folders]
        return ["--sample", sample, *(word for disk in words for word in ("--disk", disk))] if words else []

    def read_counts(self) -> dict[str, int]:
        """Return the counts of the plan that is written."""
        plan = open_dataset(Path(self.record.find_phase(RescuePhase.DECIDE)["plan"]), "plan")
        counts: dict[str, int] = plan.manifest["counts"]
        return counts

    def count_writes(self) -> int:
        counts = self.read_counts()
        return counts["actions"] - counts.get("left_alone", 0)

    def read_back(self, source: str, words: Sequence[object]) -> dict[str, Any]:
        """Read ledgers back; where not all are as the plan has them, or were read, go on only if a person says so.

        Raises:
            GuardRefusedError: no person does.
        """
        entries = self.read_counts()
        total = sum(entries.get(f"entries_{share}", 0) for share in ("restored", "guarded"))
        self.say(f"  each copy of {count_noun(total, 'entry', 'entries')} is read: as long as the disks take for that")
        read = self.run(*words, codes=READ_CODES)
        if read["exit_code"] == Exit.FOUND:
            question = questions.ask_to_go_on(f"{source} read", read["verdict"])
            problem, remedy = "is not as the plan has it", "see why: bkmeta explain LEDGER, then run this again"
        elif read["exit_code"] == Exit.UNDECIDABLE and not self.is_given_up(read["coverage"]):
            is_last = source == WIRE and self.is_frozen
            question = questions.ask_to_go_on_unread(f"{source} unread", read, is_last=is_last)
            problem, remedy = "is not all", "make the bookies answer that were not read, then run this again"
        else:
            return read
        if self.answer(question) == "no":
            self.forget(question.id)
            raise GuardRefusedError("what was read", f"{problem}: {read['verdict']}", remedy)
        return read

    def is_given_up(self, coverage: Mapping[str, Any]) -> bool:
        """Whether all bookies that were not read are such as a person said were gone, at least in part."""
        unread = {bookie for kind in ("without_disks", "unresolved", "incomplete") for bookie in coverage[kind]}
        if is_all := bool(unread) and unread <= {bookie for bookie, _ in self.list_given_up()}:
            self.say(f"  not read: {list_names(sorted(unread))}: you said what of these is gone")
        return is_all

    def read_layout(self) -> Layout:
        with self.connect() as opened:
            hint = None if opened.layout_hint is None else Layout(opened.layout_hint)
            return require_layout(opened.store, opened.root.rstrip("/"), hint)

    def list_registered(self) -> set[str]:
        with self.connect() as opened:
            return {name for _, name in list_registered(opened.store, opened.root.rstrip("/"))}


def make_refusal(words: Sequence[object], result: Mapping[str, Any], prefix: str = "") -> GuardRefusedError:
    """Return the error for a command that did not do its part; what to do next is in it once."""
    remedy = result.get("next") or "do what it says, then run this again"
    return GuardRefusedError(f"bkmeta {words[0]}", prefix + result["verdict"].removesuffix(f"; {remedy}"), remedy)
