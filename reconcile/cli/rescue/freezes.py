"""The freeze of a rescue, and its thaw."""

from collections.abc import Sequence
from typing import Any

from backends.errors import BackendError
from reconcile.cli.access import AUTH_FILE_VARIABLE
from reconcile.cli.command import Exit
from reconcile.cli.options import quote_command
from reconcile.cli.rescue.left_out import settle_left_out
from reconcile.cli.rescue.open_rescue import DELETES, LOST, OpenRescue, make_refusal
from reconcile.cli.rescue.record import RescuePhase
from reconcile.deletes.approvals import Approvable
from reconcile.errors import GuardRefusedError
from reconcile.estimates import EstimatedStep
from recovery.codecs.store import UNDERREPLICATION


def freeze_early(rescue: OpenRescue) -> None:
    """Freeze a store that is not gone before its bookies are stopped: else replication copies what it misses.

    Where that is refused the bookies are stopped all the same; none starts before the freeze was made.
    """
    if not is_there(rescue):
        rescue.say("the store has no ledger and nothing of replication: it is frozen before any bookie starts")
        return
    try:
        freeze(rescue)
    except GuardRefusedError as error:
        rescue.say(f"replication is not disabled yet: {error}; bookies are stopped, and none starts before it is")


def is_there(rescue: OpenRescue) -> bool:
    """Whether the store answers, and lists ledgers or has the node of replication."""
    facts = rescue.record.find_phase(RescuePhase.LOOK)
    if facts.get("root") != "present" or facts["ledgers"]:
        return facts.get("root") == "present"
    try:
        with rescue.connect() as opened:
            return opened.store.children(opened.root.rstrip("/") + UNDERREPLICATION) is not None
    except BackendError:
        return False


def freeze(rescue: OpenRescue) -> None:
    """Freeze all, or what bookies delete on a cluster that lives; before anything else that disables replication."""
    words = ["freeze", "--incident", rescue.incident, "--journal", rescue.out / "freeze"]
    words += ["--deletes-only"] if rescue.kind == DELETES else []
    rescue.expect(EstimatedStep.LIST, rescue.record.find_phase(RescuePhase.LOOK).get("ledgers", 0))
    run_confirmed(rescue, words, codes=(Exit.DONE, Exit.UNDECIDABLE))
    rescue.record.find_phase(RescuePhase.STOP).setdefault("frozen", rescue.record.show_now())
    rescue.record.save()


def thaw(rescue: OpenRescue, *, enable_replication: bool = False) -> None:
    """Thaw, with what was accepted before.

    Args:
        rescue: of it.
        enable_replication: whether replication goes on, if the freeze disabled it.
    """
    words = build_thaw(rescue)
    unseen = rescue.record.find_phase(RescuePhase.DECIDE).get("unseen", 0)
    if rescue.kind == DELETES:
        unseen = len(rescue.record.find_phase(RescuePhase.LOOK)["bookies"])
    words += ["--accept-unseen", str(unseen)] if unseen else []
    # All are asked about by now, unless another client wrote meanwhile.
    left_out = settle_left_out(rescue, None) if rescue.kind == LOST else 0
    words += ["--accept-left-out", str(left_out)] if left_out else []
    words += ["--enable-replication"] if enable_replication else []
    done = run_confirmed(rescue, words, codes=(Exit.DONE,))
    rescue.record.find_phase(RescuePhase.START)["replication_disabled"] = done.get("replication_disabled")
    rescue.record.save()


def build_thaw(rescue: OpenRescue) -> list[object]:
    """Return the words of the thaw, without what it accepts."""
    words = ["thaw", "--incident", rescue.incident, "--journal", rescue.out / "freeze"]
    return [*words, *rescue.build_approvals(Approvable.THAW)]


def name_thaw(rescue: OpenRescue) -> str:
    """Return how to leave off before anything is written: the freeze is all that was done."""
    if rescue.is_stopped:
        return "or leave it: kill -KILL every bookie, and start it again; nothing else was changed"
    if not rescue.is_frozen:
        return "or leave it: nothing was changed"
    words = build_thaw(rescue)
    set_first = f"{AUTH_FILE_VARIABLE}={quote_command(identity)} " if (identity := rescue.find_identity()) else ""
    return f"or leave it, and end the freeze: {set_first}{quote_command('bkmeta', *words)}"


def run_confirmed(rescue: OpenRescue, words: Sequence[object], *, codes: Sequence[int]) -> dict[str, Any]:
    """Run a freeze or a thaw to see its changes, and again to make them; return its result.

    Raises:
        GuardRefusedError: it refuses to, or it ended with another code than is expected.
    """
    waiting = rescue.run(*words, codes=(Exit.REFUSED, Exit.FOUND, Exit.DONE, Exit.UNDECIDABLE))
    if waiting["exit_code"] == Exit.DONE:
        return waiting
    if "hash" not in waiting:
        raise make_refusal(words, waiting)
    return rescue.run(*words, "--confirm", waiting["hash"], "--reason", "rescue", codes=codes)
