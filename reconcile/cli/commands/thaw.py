"""`thaw`: bookies get back what a freeze took."""

import sys
from pathlib import Path
from typing import Any

import click

from reconcile.check import listing
from reconcile.cli.command import Command, Exit
from reconcile.cli.commands.freeze import FreezeRun, freeze_identity, freeze_layout, journal_folder
from reconcile.cli.options import (
    AUTH_VARIABLE,
    FOLDER,
    carried,
    inventory_options,
    make_output,
    output_options,
    reason_option,
)
from reconcile.stores import open_store
from reconcile.write import freeze as engine
from recovery.dataset import open_dataset
from recovery.errors import InputError


@click.command(
    name="thaw",
    cls=Command,
    exits={
        Exit.DONE: "thawed, or there was nothing to thaw",
        Exit.FAILED: "the store did not answer",
        Exit.USAGE: "a URI, an identity or a journal that cannot be used",
        Exit.FOUND: "still frozen, by another journal's freeze",
        Exit.REFUSED: "not confirmed; ledgers would be deleted; rights of others",
        Exit.PARTLY: "stopped midway: run the same command again",
    },
    epilog=f"Example: {AUTH_VARIABLE}=bkmeta:secret bkmeta thaw --metadata zk+hierarchical://zk1:2181/ledgers "
    "--inventory inv/bk1 --inventory inv/bk2",
)
@click.option("--metadata", "uri", required=True, metavar="URI", help="The store, named as in bk_server.conf.")
@click.option("--confirm", metavar="HASH", help="Of the changes that a run without it prints.")
@click.option("--journal", type=FOLDER, help="The freeze's. [default: ./bkmeta-freeze-HOST-ROOT]")
@inventory_options("What one bookie holds; of each bookie.")
@click.option(
    "--accept-absent", type=int, default=0, metavar="N", help="So many ledgers of the inventories may be deleted."
)
@click.option(
    "--accept-unseen",
    type=int,
    metavar="N",
    help="So many bookies that no inventory is of may delete what has no record. Without any inventory it is demanded.",
)
@click.option(
    "--accept-left-out",
    type=int,
    default=0,
    metavar="N",
    help="So many copies that closed records leave out may be deleted though nothing else has all their entries.",
)
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
    **shared: Any,  # noqa: ANN401 - click's options
) -> None:
    """Give the bookies back what freeze took. WRITES rights; from then on what has no record is deleted.

    Without --confirm it prints the exact changes and their hash, and changes nothing. Refuses while LAYOUT or
    INSTANCEID is missing, no ledger is listed, no inventory is given, ledgers of the inventories have no record,
    bookies of the store have no inventory among those given, or a closed record leaves out a bookie whose entries not
    all the bookies that it names have. Replication stays disabled.
    """
    output = make_output(shared)
    auth = freeze_identity(uri)
    opened_inventories = [open_dataset(path, "inventory") for path in inventories]
    for option, number in (("--accept-absent", accept_absent), ("--accept-left-out", accept_left_out)):
        if number and not inventories:
            problem = "says what of the inventories may go, and no inventory was given"
            raise InputError(option, problem, "give all of them with --inventory DIR, or leave it out")
    with open_store(uri, writable=True, auth=auth) as opened:
        again = carried("--inventory", "--inventory-dir")
        again += ["--accept-absent", str(accept_absent)] if accept_absent else []
        again += ["--accept-unseen", str(accept_unseen)] if accept_unseen is not None else []
        again += ["--accept-left-out", str(accept_left_out)] if accept_left_out else []
        run = FreezeRun(opened, auth, journal or journal_folder(uri), uri, again, reason=reason)
        past = engine.read_past(run.folder, run.root)
        if past is None:
            problem = "holds no journal of a freeze, which alone knows the former rights"
            raise InputError(str(run.folder), problem, "name its folder with --journal")
        counts: dict[str, int | None] = {}
        if past.originals:
            listing.demand_described(run.store, run.root, opened_inventories)
            layout = engine.demand_layout(run.store, run.root, freeze_layout(opened))
            counts = listing.demand_restored(
                run.store, run.root, layout, opened_inventories, accept_absent=accept_absent
            )
            counts["unseen"] = listing.demand_seen(run.store, run.root, opened_inventories, accept=accept_unseen)
            if opened_inventories:
                counts["left_out"] = listing.demand_named(
                    run.store, run.root, layout, opened_inventories, accept=accept_left_out
                )

        def propose(past: engine.Past | None) -> engine.Proposal:
            return engine.propose_thaw(run.store, run.root, past or engine.Past())

        waiting = run.make("thaw", propose, confirm, counts)
        sys.exit(output.show(waiting or run.ended(bool(past.originals), counts)))
