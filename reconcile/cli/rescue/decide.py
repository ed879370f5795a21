"""Step 3 of a rescue: a plan, the questions that change it, and the rights of what it writes."""

from pathlib import Path

from reconcile.cli.rescue.left_out import settle_left_out
from reconcile.cli.rescue.open_rescue import DELETES, LOST, READ_CODES, OpenRescue
from reconcile.cli.rescue.record import RescuePhase
from reconcile.cli.rescue.recover import recover
from reconcile.cli.rescue.rights import choose_rights, find_rights
from reconcile.cli.rescue.undelete import undelete
from recovery.dataset import open_dataset


def decide(rescue: OpenRescue) -> None:
    """Make the plan, with all that is asked about it."""
    plan = undelete(rescue) if rescue.kind == DELETES else recover(rescue)
    facts = rescue.record.find_phase(RescuePhase.DECIDE)
    facts["plan"], facts["hash"] = plan["plan"], plan["hash"]
    if rescue.kind == LOST and (snapshot := find_rights(rescue)) is not None:
        words = ["plan", "edit", plan["plan"], "--acl-of", f"catalog://{snapshot}"]
        plan = rescue.run(*words, "--out", rescue.name_plan(), codes=READ_CODES)
        facts["plan"], facts["hash"] = plan["plan"], plan["hash"]
    if rescue.kind == LOST and rescue.is_frozen:
        settle_left_out(rescue, Path(facts["plan"]))
    rights = choose_rights(rescue, open_dataset(Path(plan["plan"]), "plan"))
    facts["rights"] = [] if rights is None else ["--acl", rights]
