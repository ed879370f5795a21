"""Step 1 of a rescue: the store's files are copied, bookies are stopped where they are, or deletes are frozen."""

from collections.abc import Sequence

from reconcile.cli.rescue import questions, scripts
from reconcile.cli.rescue.freezes import freeze, freeze_early
from reconcile.cli.rescue.hosts import BookieHost
from reconcile.cli.rescue.open_rescue import DELETES, READ_CODES, OpenRescue
from reconcile.cli.rescue.record import RescuePhase
from reconcile.cli.rescue.transports import HostError, require_done, run_script
from reconcile.errors import GuardRefusedError
from reconcile.words import count_noun, list_names


def stop(rescue: OpenRescue) -> None:
    """Copy the store's files; freeze what is not gone, and stop every bookie, or freeze what bookies delete."""
    # Of deletes a person may have thought about the question for long, and more may have come.
    rescue.copy_servers(again=rescue.kind == DELETES)
    if rescue.kind == DELETES:
        rescue.forget_result("sessions")
        rescue.write_incident()
        if rescue.answer(rescue.ask_to_keep()) == "freeze":
            freeze(rescue)
    elif rescue.is_frozen:
        rescue.write_incident()
        freeze_early(rescue)
    if rescue.is_stopped:
        stop_bookies(rescue)


def stop_bookies(rescue: OpenRescue) -> None:
    """Stop every bookie where it is, and see that none answers.

    Raises:
        GuardRefusedError: one runs on, or may.
        HostError: a host was not reached, and its bookie may run.
    """
    for bookie in rescue.hosts.bookies:
        rescue.say(f"{bookie.name}: kill -STOP of the Java that has {bookie.process!r} in its command line")
    stops = rescue.at_each(stop_bookie, rescue.hosts.bookies)
    require_down(rescue, [(name, error) for name, error in stops if isinstance(error, HostError)])
    states = {name: processes for name, processes in stops if not isinstance(processes, HostError)}
    going = [(name, p) for name, processes in states.items() for p in processes if p.state not in scripts.STOPPED]
    if going:
        name, running = going[0]
        problem = f"process {running.pid} is in state {running.state} after kill -STOP, as {len(going)} in all"
        remedy = "the first process of a container ignores it from inside: stop it from its node, then run again"
        raise GuardRefusedError(name, problem, remedy)
    for name, processes in states.items():
        rescue.say(f"{name}: " + (f"stopped, process {processes[0].pid}" if processes else "no such process runs"))
    require_off(rescue, [name for name, processes in states.items() if not processes])
    seen = rescue.run("preflight", "--metadata", rescue.uri, codes=READ_CODES)
    if answering := [row["id"] for row in seen.get("bookies", []) if row["answers"]]:
        problem = f"{list_names(answering)} still answers"
        raise GuardRefusedError("the cluster", problem, "name every bookie in the file of hosts, then run again")


def stop_bookie(bookie: BookieHost) -> tuple[str, list[scripts.Process] | HostError]:
    """Return a host's name with its bookie's processes after `kill -STOP`, or why it was not reached."""
    try:
        done = run_script(bookie.host, scripts.build_stop(bookie.process))
        answer = require_done(bookie.host, done, "kill -STOP")
    except HostError as error:
        return bookie.name, error
    return bookie.name, scripts.parse_processes(answer.out)


def require_down(rescue: OpenRescue, unreached: Sequence[tuple[str, HostError]]) -> None:
    """Ask of hosts that were not reached whether their bookies are certainly off.

    Raises:
        HostError: one is not.
    """
    asked = {name: questions.ask_for_host(name, error) for name, error in unreached}
    rescue.answer_all(list(asked.values()))
    for name, error in unreached:
        if rescue.answer(asked[name]) != "down":
            rescue.forget(asked[name].id)
            raise error


def require_off(rescue: OpenRescue, silent: list[str]) -> None:
    """Ask whether the bookies without a process are off: another command line hides a bookie that deletes.

    Args:
        rescue: of the bookies.
        silent: names of hosts that were reached, and have no such process.

    Raises:
        GuardRefusedError: one may run.
    """
    if not silent:
        return
    facts, question = rescue.record.find_phase(RescuePhase.STOP), questions.ask_for_the_silent(silent)
    if facts.get("silent") != silent:
        rescue.forget(question.id)
    facts["silent"] = silent
    if rescue.answer(question) != "off":
        rescue.forget(question.id)
        problem = f"no process of the bookie was found on {count_noun(len(silent), 'host')}: {list_names(silent)}"
        remedy = "correct `process` in the file of hosts, or stop the bookies, then run this again"
        raise GuardRefusedError("the cluster", problem, remedy)
