"""`verify`: the ledgers of a plan, read back from bookies or their disks."""

import sys
from pathlib import Path
from typing import Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.incident import is_typed
from reconcile.cli.option_groups.wire import take_wire, wire_options
from reconcile.cli.options import PLACE, by_bookie, make_context, make_output, output_options, read_aliases
from reconcile.cli.wording.verified import make_verify_result
from recovery.place import DatasetPlace

SAMPLE: Final = "1000"


_ALL: Final = "all"


def parse_sample(_context: click.Context, _parameter: click.Parameter, value: str) -> int | None:
    """Read a number of ledgers; None is all of them."""
    if value == _ALL:
        return None
    if not value.isdigit() or int(value) < 1:
        raise click.BadParameter("write a number above 0, or all")
    return int(value)


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "every ledger that was checked is as it should be",
        Exit.FAILED: "the store did not answer, or the tool failed",
        Exit.USAGE: "a plan, a URI, folders or files that cannot be used",
        Exit.FOUND: "ledgers, holds or guards are not as they should be",
        Exit.UNDECIDABLE: "some could not be checked: disks are missing, or bookies do not answer",
    },
    epilog="Example: bkmeta verify plan --metadata zk+hierarchical://zk1:2181/ledgers --sample all "
    "--disk bk1:3181=/mnt/bk1 --disk bk2:3181=/mnt/bk2",
)
@click.argument("plan", type=PLACE)
@click.option("--metadata", "uri", required=True, metavar="URI", help="The store that the plan was applied to.")
@click.option(
    "--sample",
    callback=parse_sample,
    default=SAMPLE,
    show_default=True,
    metavar="N|all",
    help="Ledgers drawn by the plan's hash, or all.",
)
@click.option("--disk", "disks", multiple=True, callback=by_bookie, metavar="ID=DIR", help="A bookie's folder.")
@click.option("--wire", is_flag=True, help="Ask the running bookies instead of reading disks.")
@wire_options
@output_options
def verify(
    plan: DatasetPlace,
    uri: str,
    sample: int | None,
    disks: dict[str, list[Path]],
    wire: bool,  # noqa: FBT001 - click's option
    **shared: Any,  # noqa: ANN401 - click's options
) -> None:
    """Read the ledgers of PLAN back: records from the store, entries through them from bookies or disks. Only reads.

    From disks, every entry is searched for where its bookie would serve it from: give every folder of a bookie, or the
    folder that they are in. With --wire the running bookies are asked for it, without fencing and without recovery.
    Its digest is checked with the password that is in the record.
    """
    from reconcile.jobs import verify as job

    output = make_output(shared)
    aliases = read_aliases(shared["aliases"])
    wire_access = take_wire(shared, wire=wire, without=frozenset({"aliases"}))
    if wire and not is_typed("disks"):
        disks = {}
    if wire == bool(disks):
        raise click.UsageError("give either --wire, or the bookies' folders with --disk ID=DIR")
    source = disks if wire_access is None else wire_access
    read = job.verify(
        job.VerifyRequest(plan=plan, uri=uri, source=source, sample=sample, aliases=aliases), make_context(output)
    )
    sys.exit(output.show(make_verify_result("verify", read, plan)))
