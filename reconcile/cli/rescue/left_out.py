"""Copies that records leave out: what becomes of them is asked, and the thaw is told their number."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from reconcile.check.left_out_copies import LeftOut, find_left_out
from reconcile.cli.rescue import questions
from reconcile.cli.rescue.open_rescue import OpenRescue
from reconcile.cli.rescue.record import RescuePhase
from reconcile.cli.rescue.saved_ledgers import save_ledgers
from reconcile.plan.manifest import read_plan_manifest
from recovery.codecs.store import Layout
from recovery.dataset import open_dataset

LEFT_OUT: Final = "left-out"
"""Folder of what bookies have of ledgers whose records leave copies out."""


def settle_left_out(rescue: OpenRescue, plan: Path | None) -> int:
    """Ask what becomes of copies that no client reads and that bookies delete after the thaw; return how many.

    What was asked before, of the same ledgers or of ids with two of them, is not asked again.

    Args:
        rescue: of it.
        plan: counts as written; None: it is.

    Raises:
        GuardRefusedError: some may have more than was saved, and no person says to go on.
    """
    facts = rescue.record.find_phase(RescuePhase.DECIDE)
    settled = {*facts.get("older", []), *facts.get("left_out", [])}
    left_out = list_left_out(rescue, plan)
    if copies := [item for item in left_out if str(item.ledger) not in settled]:
        ledgers = sorted({str(item.ledger) for item in copies})
        question = questions.ask_for_left_out(list(map(str, copies)), len(ledgers))
        if facts.get("left_out"):
            # Others were asked about before.
            rescue.forget(question.id)
        if rescue.answer(question) == "export":
            save_ledgers(rescue, ledgers, LEFT_OUT)
        facts["left_out"] = [*facts.get("left_out", []), *ledgers]
        rescue.record.save()
    return len(left_out)


def list_left_out(rescue: OpenRescue, plan: Path | None) -> Sequence[LeftOut]:
    """Return the copies that records leave out, of the store or of a plan that counts as written."""
    inventories = [open_dataset(folder, "inventory") for folder in rescue.list_inventories()]
    written = None if plan is None else open_dataset(plan, "plan")
    planned = None if written is None else read_plan_manifest(written).binding.layout
    layout = rescue.read_layout() if planned is None else Layout(planned)
    with rescue.connect() as opened:
        return list(find_left_out(opened.store, opened.root.rstrip("/"), layout, inventories, written))
