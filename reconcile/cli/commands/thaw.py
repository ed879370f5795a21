"""`thaw`: bookies get back what a freeze took."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.access import AUTH_VARIABLE
from reconcile.cli.approval import approval_option, carry_approvals, take_approvals
from reconcile.cli.command import Command, Exit
from reconcile.cli.options import (
    FOLDER,
    carry_options,
    inventory_options,
    lost_option,
    make_context,
    make_output,
    output_options,
    reason_option,
)
from reconcile.cli.output import Result
from reconcile.cli.wording.freezing import ask_for_hash, make_waiting_result, take_identity
from reconcile.words import count_noun
from recovery.errors import InputError

if TYPE_CHECKING:
    from reconcile.jobs.changes.freeze import Thawed, ThawRequest

_AFTER_THAW: Final = (
    "whether every bookie's next pass ends: 'Exception when iterating over the metadata' must not come again in its log"
)


@click.command(
    name="thaw",
    cls=Command,
    exits={
        Exit.DONE: "thawed, or there was nothing to thaw",
        Exit.FAILED: "the store did not answer",
        Exit.USAGE: "a URI, an identity or a journal that cannot be used",
        Exit.FOUND: "still frozen, by another journal's freeze",
        Exit.REFUSED: "not confirmed or not approved; ledgers would be deleted; rights of others",
        Exit.PARTLY: "stopped midway: run the same command again",
    },
    epilog=f"Example: {AUTH_VARIABLE}=bkmeta:secret bkmeta thaw --metadata zk+hierarchical://zk1:2181/ledgers "
    "--inventory inv/bk1 --inventory inv/bk2",
)
@click.option("--metadata", "uri", required=True, metavar="URI", help="The store, named as in bk_server.conf.")
@click.option(
    "--confirm", metavar="HASH", help="Make the changes that have this hash. A run without this option prints it."
)
@click.option("--journal", type=FOLDER, help="The freeze's. [default: ./bkmeta-freeze-HOST-ROOT]")
@inventory_options("One bookie's inventory; give one for each bookie.")
@click.option(
    "--accept-absent",
    type=int,
    default=0,
    metavar="N",
    help="This number of ledgers of the inventories may be deleted.",
)
@click.option(
    "--accept-unseen",
    type=int,
    metavar="N",
    help="This number of bookies without an inventory may delete ledgers that have no record. Required if there is "
    "no inventory at all.",
)
@click.option(
    "--accept-left-out",
    type=int,
    default=0,
    metavar="N",
    help="This number of copies that closed records leave out may be deleted, although no other bookie has all their "
    "entries.",
)
@click.option(
    "--enable-replication",
    is_flag=True,
    help="Enable replication, too, if the freeze disabled it. Only when all is verified, and no ledger is guarded by "
    "names alone.",
)
@lost_option
@approval_option
@reason_option
@output_options
def thaw(
    uri: str,
    confirm: str | None,
    journal: Path | None,
    reason: str | None,
    inventories: tuple[str, ...],
    accept_absent: int,
    accept_unseen: int | None,
    accept_left_out: int,
    enable_replication: bool,  # noqa: FBT001 - click's option
    lost: tuple[str, ...],
    **shared: Any,  # noqa: ANN401 - click's options
) -> None:
    """Give the bookies back what freeze took. WRITES rights; from then on what has no record is deleted.

    Without --confirm it prints the exact changes and their hash, and changes nothing. Refuses while LAYOUT or
    INSTANCEID is missing, no ledger is listed, no inventory is given, ledgers of the inventories have no record,
    bookies of the store have no inventory among those given, or a closed record leaves out a bookie whose entries not
    all the bookies that it names have. Replication stays disabled without --enable-replication.
    """
    from reconcile.jobs.changes import freeze as job
    from recovery.dataset import open_dataset
    from recovery.infer.lost_disks import LostDisk

    output, approvals = make_output(shared), take_approvals(shared)
    kept = take_identity(uri, journal, makes=False)
    for option, number in (("--accept-absent", accept_absent), ("--accept-left-out", accept_left_out)):
        if number and not inventories:
            problem = "says how many ledgers of the inventories may be deleted, and no inventory was given"
            raise InputError(option, problem, "give all of them with --inventory DIR, or leave it out")
    request = job.ThawRequest(
        uri=uri,
        journal=journal or job.default_journal(uri),
        confirmed=confirm,
        reason=reason,
        approvals=approvals,
        inventories=tuple(open_dataset(path, "inventory") for path in inventories),
        accepted=job.Accepted(accept_absent, accept_unseen, accept_left_out),
        lost=tuple(map(LostDisk.parse, lost)),
        enable_replication=enable_replication,
    )
    done = job.thaw(request, make_context(output, identity=kept), ask_for_hash)
    if isinstance(done, job.Waiting):
        options = [
            *carry_options("--metadata", "--inventory", "--inventory-dir", "--lost"),
            *carry_approvals(approvals.files),
        ]
        options += ["--accept-absent", str(accept_absent)] if accept_absent else []
        options += ["--accept-unseen", str(accept_unseen)] if accept_unseen is not None else []
        options += ["--accept-left-out", str(accept_left_out)] if accept_left_out else []
        options += ["--enable-replication"] if enable_replication else []
        sys.exit(output.show(make_waiting_result(done, request, kept, options)))
    sys.exit(output.show(_make_result(done, request)))


def _make_result(thawed: "Thawed", request: "ThawRequest") -> Result:
    """Say what the rights are now, and which bookies may start."""
    from reconcile.cli.wording.starts import AFTER_THAW, list_starts

    state, counts = thawed.state, thawed.counts
    compared = counts.get("held") is not None
    verdict, code = "thawed: the rights are what they were before the freeze", 0
    if not thawed.was_frozen:
        verdict = "the journal has no freeze that is in force"
        verdict = f"replication is enabled again; {verdict}" if thawed.has_enabled else f"nothing to do: {verdict}"
    if state.frozen:
        verdict = f"STILL FROZEN by {state.identity or 'unknown'}: this journal is not of that freeze"
        code = Exit.FOUND
    details = [
        "replication is still disabled" if state.replication_disabled else "replication is enabled",
        *([] if compared else ["not compared with what bookies hold: no --inventory was given"]),
        *([] if request.inventories else ["not checked: which bookies may start; give --inventory of each"]),
        *_describe_guards(counts.get("guarded") or 0),
        f"not seen: {_AFTER_THAW}",
        "not checked: which ledgers are held; the plan's report lists them",
        *list_starts(thawed.starts.bookies, AFTER_THAW if thawed.starts.after_thaw else "now"),
    ]
    return Result(
        "thaw",
        verdict,
        code,
        counts=dict(counts),
        coverage={"compared_with_inventories": compared},
        details=details,
        following="when all is verified, and bkmeta verify reports no ledger guarded by names alone, enable "
        "replication by hand: bookkeeper shell autorecovery -enable"
        if state.replication_disabled
        else "",
        facts={
            "root": thawed.root,
            "state": str(state.state),
            "replication_disabled": state.replication_disabled,
            "journal": str(request.journal),
            "bookies": thawed.starts.to_json(),
        },
    )


def _describe_guards(guarded: int) -> list[str]:
    """Say what keeps copies that records leave out."""
    if not guarded:
        return []
    return [f"{count_noun(guarded, 'ledger')} guarded by locks: until settled, no copy is deleted, and none repaired"]
