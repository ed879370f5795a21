"""The freeze of a rescue, and its thaw."""

from collections.abc import Sequence

from reconcile.check.left_out_copies import find_left_out
from reconcile.cli.access import AUTH_FILE_VARIABLE
from reconcile.cli.command import Exit
from reconcile.cli.options import quote_command
from reconcile.cli.rescue.open_rescue import DELETES, OpenRescue, make_refusal
from reconcile.cli.rescue.record import RescuePhase
from reconcile.deletes.approvals import Approvable
from reconcile.estimates import EstimatedStep
from recovery.dataset import open_dataset


def freeze(rescue: OpenRescue) -> None:
    """Freeze all, or what bookies delete on a cluster that lives."""
    words = ["freeze", "--incident", rescue.incident, "--journal", rescue.out / "freeze"]
    words += ["--deletes-only"] if rescue.kind == DELETES else []
    rescue.expect(EstimatedStep.LIST, rescue.record.find_phase(RescuePhase.LOOK).get("ledgers", 0))
    run_confirmed(rescue, words, codes=(Exit.DONE, Exit.UNDECIDABLE))


def thaw(rescue: OpenRescue) -> None:
    """Thaw, with what was accepted before."""
    words = build_thaw(rescue)
    unseen = rescue.record.find_phase(RescuePhase.DECIDE).get("unseen", 0)
    if rescue.kind == DELETES:
        unseen = len(rescue.record.find_phase(RescuePhase.LOOK)["bookies"])
    words += ["--accept-unseen", str(unseen)] if unseen else []
    left_out = count_older_copies(rescue)
    words += ["--accept-left-out", str(left_out)] if left_out else []
    run_confirmed(rescue, words, codes=(Exit.DONE,))


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


def run_confirmed(rescue: OpenRescue, words: Sequence[object], *, codes: Sequence[int]) -> None:
    """Run a freeze or a thaw to see its changes, and again to make them.

    Raises:
        GuardRefusedError: it refuses to, or it ended with another code than is expected.
    """
    waiting = rescue.run(*words, codes=(Exit.REFUSED, Exit.FOUND, Exit.DONE, Exit.UNDECIDABLE))
    if waiting["exit_code"] == Exit.DONE:
        return
    if "hash" not in waiting:
        raise make_refusal(words, waiting)
    rescue.run(*words, "--confirm", waiting["hash"], "--reason", "rescue", codes=codes)


def count_older_copies(rescue: OpenRescue) -> int:
    """Return how many copies the records leave out, if all of them are of older ledgers that were settled."""
    older = set(rescue.record.find_phase(RescuePhase.DECIDE).get("older", []))
    if not older:
        return 0
    inventories = [open_dataset(folder, "inventory") for folder in rescue.list_inventories()]
    layout = rescue.read_layout()
    with rescue.connect() as opened:
        left_out = list(find_left_out(opened.store, opened.root.rstrip("/"), layout, inventories))
    # Others are refused by the thaw, which names them.
    return len(left_out) if all(str(item.ledger) in older for item in left_out) else 0
