"""Step 3 of a rescue of deletes, or of topics: a plan of what a history has, and whose deletes were a mistake."""

from collections.abc import Sequence
from typing import Any, Final

from reconcile.cli.command import Exit
from reconcile.cli.rescue import questions
from reconcile.cli.rescue.freezes import name_thaw
from reconcile.cli.rescue.open_rescue import READ_CODES, OpenRescue, make_refusal
from reconcile.cli.rescue.record import RescuePhase
from reconcile.cli.wording.topics import describe_topic, describe_unload
from reconcile.errors import GuardRefusedError

_TOPICS: Final = 10
"""Topics that are named before the plan is confirmed."""


def undelete(rescue: OpenRescue) -> dict[str, Any]:
    """Show who deleted what, ask which of it was a mistake, and make a plan that brings it back."""
    rescue.write_incident()
    words = rescue.build_undelete()
    if rescue.topic is not None:
        plan = make_undelete(rescue, [*words, "--topic", rescue.topic])
        facts = rescue.record.find_phase(RescuePhase.DECIDE)
        facts["topics"] = [describe_topic(row) for row in plan["topics"][:_TOPICS]]
        facts["unload"] = [describe_unload(row) for row in plan["topics"]]
        return plan
    seen = rescue.run_once("sessions", words, codes=(Exit.USAGE,))
    if "sessions" not in seen:
        rescue.forget_result("sessions")
        raise make_refusal(words, seen)
    sessions = [questions.ask_for_session(row) for row in seen["sessions"]]
    if not sessions:
        problem = "has no delete of a ledger that the store lacks"
        rescue.forget_result("sessions")
        remedy = f"name more of it: snapshots in [incident], or [[server]]; {name_thaw(rescue)}"
        raise GuardRefusedError("the history", problem, remedy)
    rescue.answer_all(sessions)
    chosen = [row for row in seen["sessions"] if rescue.answer(questions.ask_for_session(row)) == "mistake"]
    if not chosen:
        for question in sessions:
            rescue.forget(question.id)
        problem = "was called a mistake, so nothing comes back"
        raise GuardRefusedError("no session", problem, f"to decide again run this again; {name_thaw(rescue)}")
    words += [word for row in chosen for word in ("--session", row["session"] or "none")]
    first, last = min(row["first_txn"] for row in chosen), max(row["last_txn"] for row in chosen)
    words += ["--from-time", str(first), "--to-time", str(last)]
    return make_undelete(rescue, words)


def make_undelete(rescue: OpenRescue, words: Sequence[object]) -> dict[str, Any]:
    """Make the plan.

    Raises:
        GuardRefusedError: the history has nothing of what was chosen.
    """
    plan = rescue.run(*words, "--out", rescue.name_plan(), codes=READ_CODES)
    if plan["plan"] is None:
        remedy = f"name more of the history: snapshots in [incident]; {name_thaw(rescue)}"
        raise GuardRefusedError("undelete", plan["verdict"], remedy)
    return plan
