"""Step 0 of a rescue: what kind of disaster it is."""

from collections.abc import Mapping
from typing import Any

from reconcile.cli.command import Exit
from reconcile.cli.rescue import questions
from reconcile.cli.rescue.open_rescue import DELETES, LOST, READ_CODES, OpenRescue
from reconcile.cli.rescue.record import RescuePhase
from reconcile.errors import GuardRefusedError
from reconcile.estimates import EstimatedStep


def look(rescue: OpenRescue) -> None:
    """Find out what kind of disaster it is, or ask."""
    seen = rescue.run("preflight", "--metadata", rescue.uri, codes=READ_CODES)
    facts = rescue.record.find_phase(RescuePhase.LOOK)
    ledgers = seen["counts"].get("ledgers_listed")
    facts["bookies"] = [row["id"] for row in seen.get("bookies", [])]
    facts["ledgers"], facts["root"] = ledgers or 0, seen.get("root")
    rescue.measure(EstimatedStep.LIST, facts["ledgers"])
    if not ledgers:
        require_lost(rescue, seen)
        facts["kind"] = LOST
        rescue.say("the store lists no ledgers: it counts as lost, and every bookie is stopped")
        return
    if rescue.topic is not None:
        facts["kind"] = DELETES
        rescue.say("topics come back to a store that is whole")
        return
    history = {} if seen.get("level") == "critical" else read_history(rescue)
    question = questions.ask_what_happened(ledgers, seen, history, can_freeze=rescue.has_rights)
    facts["kind"] = rescue.answer(question)


def read_history(rescue: OpenRescue) -> dict[str, Any]:
    """Return what history says of deletes of ledgers that the store lacks; nothing where there is none."""
    rescue.copy_servers()
    if rescue.has_rights and not rescue.list_histories():
        return {}
    return rescue.run_once("sessions", rescue.build_undelete(), codes=tuple(Exit))


def require_lost(rescue: OpenRescue, seen: Mapping[str, Any]) -> None:
    """Ask whether a store is lost that was not seen to be.

    Raises:
        GuardRefusedError: it is not, or only topics were to come back.
    """
    if rescue.topic is not None:
        problem = f"lists no ledgers: {seen['verdict']}"
        raise GuardRefusedError("the store", problem, "where more than a topic is lost, leave --topic out")
    if seen.get("root") == "missing" or (seen["counts"].get("ledgers_listed") == 0 and _is_listed_whole(seen)):
        return
    question = questions.ask_whether_lost(seen["verdict"])
    if rescue.answer(question) == "no":
        rescue.forget(question.id)
        remedy = "make it answer, then run this again; a store that comes back empty makes bookies delete everything"
        raise GuardRefusedError("the store", f"was not seen: {seen['verdict']}", remedy)


def _is_listed_whole(seen: Mapping[str, Any]) -> bool:
    return bool(seen["coverage"].get("listed_whole"))
