"""Step 5 of a rescue: the plan is written, and read back from disks that are here."""

from pathlib import Path

from reconcile.cli.command import Exit
from reconcile.cli.rescue.open_rescue import DELETES, DISKS, LOST, OpenRescue
from reconcile.cli.rescue.record import RescuePhase
from reconcile.deletes.approvals import Approvable
from reconcile.estimates import EstimatedStep


def restore(rescue: OpenRescue) -> None:
    """Write the plan, and read it back from disks where all are of this machine."""
    facts = rescue.record.find_phase(RescuePhase.DECIDE)
    plan, unseen = facts["plan"], int(facts.get("unseen", 0))
    words = ["apply", plan, "--incident", rescue.incident, "--confirm", facts["hash"], "--reason", "rescue"]
    words += rescue.build_approvals(Approvable.PLAN)
    words += [*facts.get("rights", []), *(["--accept-unseen", str(unseen)] if unseen else [])]
    if rescue.kind == DELETES and rescue.is_stopped:
        rescue.wait_until(lambda: not rescue.list_registered(), "the sessions of all bookies ended")
    words += ["--accept-unfrozen"] if rescue.kind == DELETES and not (rescue.is_frozen or rescue.is_stopped) else []
    words += ["--resume"] if (Path(plan) / "journal").exists() else []
    rescue.expect(EstimatedStep.APPLY, rescue.count_writes())
    done = rescue.run(*words, codes=(Exit.DONE, Exit.FOUND))
    own = rescue.record.find_phase(RescuePhase.RESTORE)
    own["starts"] = done.get("bookies", [])
    rescue.record.save()
    disks = rescue.build_disk_options("all")
    if disks and rescue.kind == LOST:
        rescue.read_back(DISKS, ["verify", plan, "--incident", rescue.incident, *disks])
