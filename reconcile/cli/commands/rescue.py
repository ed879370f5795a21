"""`rescue`: the runbook, guided."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.approval import approval_option, carry_approvals
from reconcile.cli.command import Command, Exit
from reconcile.cli.options import FILE, FOLDER, make_output, now, output_options, quote_command
from reconcile.cli.output import Output, Result, say_line
from reconcile.words import count_noun, printable

if TYPE_CHECKING:
    from reconcile.cli.rescue.hosts import Hosts
    from reconcile.cli.rescue.record import RescueQuestion, RescueRecord


_DONE: Final = {"lost": "the cluster is back", "deletes": "the deletes are taken back"}
"""Kind of a rescue → what it has done."""


class _UnansweredError(Exception):
    """Questions that only a person can answer, and no terminal to ask on."""

    def __init__(self, questions: "Sequence[RescueQuestion]") -> None:
        super().__init__(", ".join(question.id for question in questions))
        self.questions = tuple(questions)


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "all steps are done; or, with status or --dry-run, it is shown",
        Exit.FAILED: "a host or the store did not answer, or a disk is full",
        Exit.USAGE: "a file of hosts, answers, or a URI that cannot be used",
        Exit.FOUND: "all steps are done, but some ledger was not read back, or a bookie must not start: the answer "
        "names them",
        Exit.UNDECIDABLE: "it waits for answers and has no terminal to ask on: the questions are listed",
        Exit.REFUSED: "it is dangerous to go on: the answer says why, and what to do",
    },
    epilog="Example: bkmeta rescue --metadata zk+hierarchical://zk1:2181/ledgers --hosts hosts.toml --out incident",
)
@click.argument("action", type=click.Choice(["status"]), required=False)
@click.option("--metadata", "uri", metavar="URI", help="The store, named as in bk_server.conf.")
@click.option("--hosts", "hosts_file", type=FILE, help="TOML: how each bookie and each server of the store is reached.")
@click.option(
    "--topic",
    metavar="GLOB",
    help="Only these topics of Pulsar's, to a store that is whole: persistent://tenant/namespace/topic, * and ?.",
)
@click.option("--out", type=FOLDER, required=True, help="The incident's folder, with all that was done and made.")
@click.option("--answers", type=FILE, help="JSON, question → answer: for a rehearsal, or without a terminal.")
@click.option("--dry-run", is_flag=True, help="Print every step and what it runs; nothing is connected to.")
@approval_option
@output_options
def rescue(
    action: str | None,
    uri: str | None,
    hosts_file: Path | None,
    topic: str | None,
    out: Path,
    answers: Path | None,
    dry_run: bool,  # noqa: FBT001 - click's option
    **shared: Any,  # noqa: ANN401 - the shared options
) -> None:
    """Lead through the worst day: stop, collect, decide, review, restore, start. WRITES what apply, freeze, thaw write.

    Each step runs the commands that it prints, and asks what only a person knows. What was not answered stays guarded
    or held. Stopped anywhere, the same command goes on. With `status` it says where it is.
    """
    from reconcile.cli.rescue.hosts import read_hosts
    from reconcile.cli.rescue.record import read_answers

    as_json = bool(shared["as_json"])
    approvals: tuple[Path, ...] = shared.pop("approvals")
    output = make_output(shared)
    if action == "status":
        sys.exit(output.show(_show_status(out)))
    if uri is None or hosts_file is None:
        raise click.UsageError("name the store and the hosts: --metadata URI --hosts FILE")
    hosts = read_hosts(hosts_file)
    if dry_run:
        lines = list(_list_steps(hosts, uri, out, topic))
        shown = Result("rescue", "nothing was connected to: this is what it runs", Exit.DONE, details=lines)
        sys.exit(output.show(shown))

    def say(line: str) -> None:
        say_line(line, err=as_json)

    command = quote_command("bkmeta", "rescue", "--metadata", uri, "--hosts", hosts_file, "--out", out)
    command += f" {quote_command('--topic', topic)}" if topic is not None else ""
    command += f" {quote_command(*carry_approvals(approvals))}" if approvals else ""
    given = {} if answers is None else read_answers(answers)
    sys.exit(output.show(_run(Incident(hosts, uri, out, given, topic, approvals), output, say, command)))


@dataclass(frozen=True, slots=True)
class Incident:
    """What a rescue is given: hosts, store, folder, answers, topics if it is about these alone, and approvals."""

    hosts: "Hosts"
    uri: str
    out: Path
    given: dict[str, str]
    topic: str | None
    approvals: tuple[Path, ...]


def _run(incident: Incident, output: Output, say: Callable[[str], None], command: str) -> Result:
    from reconcile.cli.rescue.conductor import conduct
    from reconcile.cli.rescue.open_rescue import OpenRescue
    from reconcile.cli.rescue.record import RescueRecord
    from recovery.out_folder import lock_folder

    with lock_folder(incident.out):
        record = RescueRecord.open(incident.out, incident.uri, now, topic=incident.topic)

        def ask(questions: "Sequence[RescueQuestion]") -> None:
            left = [question for question in questions if not _take_given(record, question, incident.given)]
            if left and not sys.stdin.isatty():
                raise _UnansweredError(left)
            for question in left:
                record.take_answer(question, _prompt(question))

        try:
            given = (incident.hosts, incident.uri, record, output, say, ask, incident.topic, incident.approvals)
            done = conduct(OpenRescue(*given))
        except _UnansweredError as error:
            return _make_waiting(error.questions, command)
    return Result(
        "rescue",
        _DONE[done.kind]
        + ("" if done.is_read else "; not every ledger was read back")
        + (f"; {count_noun(len(done.may_not_start), 'bookie')} must not start" if done.may_not_start else ""),
        Exit.DONE if done.is_read and not done.may_not_start else Exit.FOUND,
        counts={"may_not_start": len(done.may_not_start), "commands": len(record.values["commands"])},
        details=done.left,
        facts={
            "kind": done.kind,
            "may_not_start": dict(done.may_not_start),
            "record": str(incident.out / "rescue.json"),
        },
    )


def _take_given(record: "RescueRecord", question: "RescueQuestion", given: dict[str, str]) -> bool:
    """Take the answer of a file, if it has one.

    Raises:
        InputError: it is none of the choices.
    """
    from recovery.errors import InputError

    answer = given.get(question.id)
    if answer is None:
        return False
    if question.choices and answer not in question.choices:
        problem = f"is answered {answer!r}"
        raise InputError(question.id, problem, f"the answers are {', '.join(question.choices)}")
    record.take_answer(question, answer)
    return True


def _prompt(question: "RescueQuestion") -> str:
    for line in (f"\n{question.text}", *(f"  known: {line}" for line in question.known)):
        click.echo(printable(line), err=True)
    for choice, cost in question.choices.items():
        mark = " (recommended)" if choice == question.recommended else ""
        click.echo(printable(f"  {choice}{mark}: {cost}"), err=True)
    kind = click.Choice(list(question.choices)) if question.choices else click.STRING
    answer: str = click.prompt(question.id, type=kind, default=question.recommended, err=True, show_choices=False)
    return answer


def _make_waiting(questions: "Sequence[RescueQuestion]", command: str) -> Result:
    lines = []
    for question in questions:
        lines += [f"{question.id}: {question.text}", *(f"  known: {line}" for line in question.known)]
        lines += [
            f"  {choice}{' (recommended)' if choice == question.recommended else ''}: {cost}"
            for choice, cost in question.choices.items()
        ]
    return Result(
        "rescue",
        f"it waits for {count_noun(len(questions), 'answer')}",
        Exit.UNDECIDABLE,
        counts={"questions": len(questions)},
        details=lines,
        following=f"on a terminal, or with the answers in a file: {command} --answers FILE",
        facts={"questions": [question.to_json() for question in questions]},
    )


def _show_status(out: Path) -> Result:
    from reconcile.cli.rescue.record import RescuePhase, read_record

    values = read_record(out)
    if values is None:
        return Result("rescue", f"{out} has no rescue", Exit.DONE, facts={"phases": {}, "answers": {}})
    ended = {phase.value: values["phases"].get(phase.value, {}).get("ended") for phase in RescuePhase}
    steps_left = [phase for phase, ended_at in ended.items() if ended_at is None]
    verdict = "all steps are done" if not steps_left else f"next is {steps_left[0]}"
    lines = [f"{phase}: " + (f"done {ended_at}" if ended_at else "not done") for phase, ended_at in ended.items()]
    lines += [f"{name}: {row['answer']}, by {row['by']} {row['at']}" for name, row in values["answers"].items()]
    frozen = values["phases"].get(RescuePhase.STOP, {}).get("frozen")
    is_disabled = frozen and values["phases"].get(RescuePhase.START, {}).get("replication_disabled", True)
    if frozen is not None:
        lines.append(f"replication: disabled since {frozen}" + ("" if is_disabled else ", and enabled again"))
    return Result(
        "rescue",
        f"{verdict}; {count_noun(len(values['commands']), 'command')} run",
        Exit.DONE,
        details=lines,
        facts={"phases": ended, **{name: values[name] for name in ("metadata", "answers", "commands")}}
        | {"replication_disabled": is_disabled},
    )


def _list_steps(hosts: "Hosts", uri: str, out: Path, topic: str | None) -> Iterator[str]:
    """Yield every step with what it runs, as far as that is known before anything was looked at."""
    from reconcile.cli.rescue import scripts
    from reconcile.cli.rescue.review import name_rehearsal
    from reconcile.cli.rescue.transports import make_command
    from reconcile.stores import has_rights

    can_freeze = has_rights(uri)
    incident, plan = out / "incident.toml", out / "plan-1"
    freeze = f"  $ {quote_command('bkmeta', 'freeze', '--incident', incident)}"
    yield "0 look"
    yield f"  $ {quote_command('bkmeta', 'preflight', '--metadata', uri)}"
    yield "1 stop"
    for server in hosts.servers:
        for folder in server.folders:
            yield f"  {server.host.name}: {quote_command(*make_command(server.host, scripts.build_copy(folder)))}"
    if topic is None and can_freeze:
        yield "  where the store answers, and lists ledgers or has the node of replication; else before bookies start:"
        yield freeze
    if is_stopped := topic is None or not can_freeze:
        for bookie in hosts.bookies:
            yield f"  {bookie.name}: kill -STOP of the Java that has {bookie.process!r} in its command line"
    else:
        yield f"{freeze} --deletes-only"
    yield "2 collect"
    for bookie in hosts.bookies if topic is None else ():
        yield f"  {bookie.name}: {quote_command(bookie.program, 'collect', '--bookie-conf', bookie.conf)}"
    yield "3 decide"
    if topic is None:
        yield f"  $ {quote_command('bkmeta', 'recover', '--incident', incident, '--out', plan)}"
    else:
        yield f"  $ {quote_command('bkmeta', 'undelete', '--metadata', uri, '--topic', topic, '--out', plan)}"
    yield "4 review"
    yield f"  $ {quote_command('bkmeta', 'plan', 'show', plan)}"
    if topic is None and (root := name_rehearsal(uri)) is not None:
        yield f"  $ {quote_command('bkmeta', 'rehearse', plan, '--metadata', root)}"
        yield f"  $ {quote_command('bkmeta', 'rehearse', plan, '--metadata', root, '--remove')}"
    yield "5 restore"
    yield f"  $ {quote_command('bkmeta', 'apply', plan, '--incident', incident, '--confirm', 'HASH')}"
    yield "6 start"
    if topic is None and can_freeze:
        yield "  what is not frozen yet:"
        yield freeze
    if is_stopped:
        for bookie in hosts.bookies:
            yield f"  {bookie.name}: {bookie.start or 'a person starts it'}"
    words = ("bkmeta", "verify", plan, "--incident", incident, "--sample", "all", "--wire")
    yield f"  $ {quote_command(*words)}"
    if can_freeze:
        yield f"  $ {quote_command('bkmeta', 'thaw', '--incident', incident)}"
        yield "  and --enable-replication, if all was read, every bookie runs and no ledger is guarded or held"
    if topic is None:
        yield "of ledgers that were deleted on a cluster that lives, instead of steps 1 to 3, and of starting bookies:"
        yield (
            f"{freeze} --deletes-only" if can_freeze else "  every bookie is stopped, if you say so, and started again"
        )
        yield f"  $ {quote_command('bkmeta', 'undelete', '--metadata', uri, '--out', plan)}"
