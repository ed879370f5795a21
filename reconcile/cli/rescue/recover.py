"""Step 3 of a rescue of a store that is lost: a plan of what bookies have, and the questions that change it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from reconcile.cli.rescue import questions
from reconcile.cli.rescue.open_rescue import READ_CODES, OpenRescue
from reconcile.cli.rescue.record import RescuePhase
from reconcile.cli.rescue.saved_ledgers import save_ledgers
from reconcile.deletes.approvals import Approvable
from reconcile.estimates import EstimatedStep
from reconcile.jobs.plans.review import list_plan_ledgers
from reconcile.jobs.upper_layers import have_topics
from reconcile.plan.views.ledger_lists import HeldChoice, LedgerFilter, list_reuse_locked, select_held
from reconcile.plan.views.open_points import count_unopened
from recovery.dataset import open_dataset

_GIVEN_UP: Final = "older-lost.txt"
"""File of the ids whose older ledgers are given up."""
OLDER: Final = "older"
"""Folder of what bookies have of older ledgers, whose ids were given out again."""
_REUSED: Final = "ID_REUSE"
_SETTLES: Final = {"mistake": "--restore-deleted-by", "wanted": "--accept-deleted-by"}


def recover(rescue: OpenRescue) -> dict[str, Any]:
    """Make a plan, ask what changes it, and make it again with that."""
    rescue.write_incident()
    plan = make_plan(rescue, "recover")
    unopened = count_unopened(open_dataset(Path(plan["plan"]), "plan"))
    keys = (
        questions.ask_for_passwords(unopened.ledgers, unopened.keys, rescue.hosts.incident.get("passwords"))
        if unopened.ledgers
        else None
    )
    quorums = questions.ask_for_quorums(plan)
    older = plan["counts"].get("ids_reused", 0)
    reuse = questions.ask_for_older_ledgers(older) if older else None
    sessions = [questions.ask_for_session(row) for row in plan["deletions"] if row["undecided"]]
    if reuse is not None:
        # That these are to be saved is asked now, and no longer true when the plan is confirmed.
        rescue.record.find_phase(RescuePhase.DECIDE).pop("verdict", None)
    rescue.answer_all([*(asked for asked in (keys, quorums, reuse) if asked is not None), *sessions])
    if keys is not None and rescue.answer(keys) == "added":
        plan = make_plan(rescue, "recover with passwords")
    if quorums is not None and rescue.answer(quorums) != "unknown":
        rescue.write_incident(quorums=rescue.answer(quorums))
        plan = make_plan(rescue, "recover with quorums")
    rescue.record.find_phase(RescuePhase.DECIDE)["unseen"] = len(plan["coverage"]["not_scanned"])
    if words := [*settle_older(rescue, plan), *settle_sessions(rescue, plan), *settle_topics(rescue, plan)]:
        plan = rescue.run("plan", "edit", plan["plan"], *words, "--out", rescue.name_plan(), codes=READ_CODES)
    return plan


def make_plan(rescue: OpenRescue, name: str) -> dict[str, Any]:
    """Make a plan of all that is known, unless that was done."""
    facts = rescue.record.find_phase(RescuePhase.DECIDE)
    if "has_topics" not in facts:
        facts["has_topics"] = rescue.has_rights and have_topics(
            rescue.list_snapshots(), rescue.uri, rescue.make_context()
        )
    copies = sum(open_dataset(folder, "inventory").rows("copies") for folder in rescue.list_inventories())
    rescue.expect(EstimatedStep.RECOVER, copies)
    words = ["recover", "--incident", rescue.incident, *(["--pulsar"] if facts["has_topics"] else [])]
    words += rescue.build_approvals(Approvable.LOST)
    ran = len(rescue.record.values["commands"])
    made = rescue.run_once(name, words, codes=READ_CODES)
    if len(rescue.record.values["commands"]) > ran:
        rescue.measure(EstimatedStep.RECOVER, copies)
    facts["verdict"] = made["verdict"]
    return made


def settle_older(rescue: OpenRescue, plan: Mapping[str, Any]) -> Iterator[str]:
    """Save the older ledgers of ids that were given out twice, or yield the words that give them up."""
    reused = plan["counts"].get("ids_reused", 0)
    if not reused:
        return
    path = Path(plan["plan"])
    several = [line.ledger for line in list_plan_ledgers(path, LedgerFilter(category=_REUSED))]
    # Of others the store has neither ledger: they are held, and to give these up would lose both.
    held_ledgers = select_held(open_dataset(path, "plan"), HeldChoice(among=frozenset(several)))
    ledgers = [str(ledger) for ledger in several if ledger not in held_ledgers]
    rescue.record.find_phase(RescuePhase.DECIDE)["older"] = ledgers
    match rescue.answer(questions.ask_for_older_ledgers(reused)):
        case "lost":
            # Without a lock the plan keeps nothing of the older ledger, and has nothing to give up.
            locked = {str(ledger) for ledger in list_reuse_locked(open_dataset(path, "plan"))}
            if given_up := [ledger for ledger in ledgers if ledger in locked]:
                # There may be more of them than a command line takes.
                path = rescue.out / _GIVEN_UP
                path.write_text("".join(f"{ledger}\n" for ledger in given_up))
                yield from ("--accept-loss-of", str(path))
        case "export":
            save_ledgers(rescue, ledgers, OLDER)


def settle_sessions(rescue: OpenRescue, plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield the words for sessions whose deletes were a mistake, or wanted."""
    for row in (row for row in plan["deletions"] if row["undecided"]):
        answer, name = rescue.answer(questions.ask_for_session(row)), row["session"] or "none"
        if answer in _SETTLES:
            yield from (_SETTLES[answer], name)


def settle_topics(rescue: OpenRescue, plan: Mapping[str, Any]) -> Iterator[str]:
    """Ask whether topics get the ledgers that name them and came after the snapshot."""
    named = plan.get("candidates", {}).get("record", 0)
    if named and rescue.answer(questions.ask_for_adoption(named)) == "yes":
        yield "--adopt-candidates"
