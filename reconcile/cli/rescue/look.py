"""Step 0 of a rescue: what kind of disaster it is."""

import shlex
from collections.abc import Mapping
from typing import Any, Final

from backends.errors import BackendError
from backends.registry import parse_store_uri
from reconcile.cli.command import Exit
from reconcile.cli.rescue import questions
from reconcile.cli.rescue.hosts import BookieHost
from reconcile.cli.rescue.open_rescue import DELETES, LOST, READ_CODES, OpenRescue
from reconcile.cli.rescue.record import RescuePhase
from reconcile.cli.rescue.transports import HostError, require_done, run_script
from reconcile.errors import GuardRefusedError
from reconcile.estimates import EstimatedStep
from recovery.collect.disk.bookie_conf import parse_properties

_CONFS: Final = 3
"""Configurations that are read before bookies are stopped: one host that is not reached takes its time."""


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
    """Ask whether a store is lost that was not seen to be, or that may not be the one of these bookies.

    Raises:
        GuardRefusedError: it is not, or only topics were to come back.
    """
    if rescue.topic is not None:
        problem = f"lists no ledgers: {seen['verdict']}"
        raise GuardRefusedError("the store", problem, "where more than a topic is lost, leave --topic out")
    is_seen = seen.get("root") == "missing" or (seen["counts"].get("ledgers_listed") == 0 and _is_listed_whole(seen))
    other_roots = list_other_roots(rescue) if is_seen else ()
    if other_roots is None:
        return
    question = questions.ask_whether_lost(seen["verdict"], other_roots)
    if rescue.answer(question) == "no":
        rescue.forget(question.id)
        remedy = "make it answer, then run this again; a store that comes back empty makes bookies delete everything"
        problem = "was not seen"
        if other_roots:
            problem, remedy = "may not be that of these bookies", "name it as their bk_server.conf does: --metadata URI"
        raise GuardRefusedError("the store", f"{problem}: {seen['verdict']}", remedy)


def list_other_roots(rescue: OpenRescue) -> tuple[str, ...] | None:
    """Return what the first bookies' configurations name instead of this root, a line each; None: one names it."""
    lines = []
    for bookie in rescue.hosts.bookies[:_CONFS]:
        root = read_root(bookie)
        if root == parse_store_uri(rescue.uri).root:
            return None
        named = "could not be read, or names no store" if root is None else f"names the root {root}"
        lines.append(f"{bookie.name}: {bookie.conf} {named}")
    return tuple(lines)


def read_root(bookie: BookieHost) -> str | None:
    """Return the ledgers root that a bookie's configuration names; None: it cannot be read, or names none."""
    try:
        done = run_script(bookie.host, f"cat {shlex.quote(bookie.conf)}")
        properties = parse_properties(require_done(bookie.host, done, "reading its configuration").out.decode())
        if uri := ",".join(properties.get("metadataServiceUri", [])):
            return parse_store_uri(uri).root
    except (HostError, BackendError, UnicodeDecodeError):
        return None
    named = properties.get("zkLedgersRootPath", ["/ledgers"])
    return named[0] if properties.get("zkServers") else None


def _is_listed_whole(seen: Mapping[str, Any]) -> bool:
    return bool(seen["coverage"].get("listed_whole"))
