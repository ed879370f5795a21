"""`verify`: the ledgers of a plan, read back from bookies or their disks."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.access import EnvironmentAccess
from reconcile.cli.command import Command, Exit
from reconcile.cli.incident import is_typed
from reconcile.cli.options import FOLDER, by_bookie, make_output, output_options
from reconcile.cli.output import Output
from reconcile.cli.wire import take_wire, wire_options
from reconcile.jobs.context import throttle

if TYPE_CHECKING:
    from backends.bookie.client import Options
    from backends.protocols import MetadataStore
    from backends.registry import OpenStore
    from reconcile.check.verify import Cluster, Verified
    from recovery.bookies.disk_reader import BookieDisks
    from recovery.bookies.wire_reader import AskedCluster
    from recovery.dataset import Dataset

from reconcile.cli.wording.verified import verified_result

SAMPLE: Final = "1000"


_ALL: Final = "all"


def parse_sample(_context: click.Context, _parameter: click.Parameter, value: str) -> int | None:
    """Read a number of ledgers; None is all of them."""
    if value == _ALL:
        return None
    if not value.isdigit() or int(value) < 1:
        raise click.BadParameter("write a number above 0, or all")
    return int(value)


@contextmanager
def open_disks_of(disks: Mapping[str, Sequence[Path]], output: Output) -> "Iterator[dict[str, BookieDisks]]":
    """Give the bookies whose folders are named, opened."""
    from recovery.bookies.disk_reader import open_disks

    with ExitStack() as stack:
        found: dict[str, BookieDisks] = {}
        with output.progress("opening disks", "bookies") as told:
            for number, (bookie, folders) in enumerate(disks.items()):
                found[bookie] = stack.enter_context(open_disks(bookie, folders))
                told(number + 1, len(disks))
        yield found


@contextmanager
def open_wire(opened: "OpenStore", asked: "tuple[Options, dict[str, str]]") -> "Iterator[AskedCluster]":
    """Give the bookies that are registered in a store."""
    from recovery.bookies.addresses import read_members
    from recovery.bookies.wire_reader import AskedCluster

    options, aliases = asked
    members = read_members(opened.store, opened.root, opened.layout_hint, aliases)
    with AskedCluster(members, options) as cluster:
        yield cluster


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "every ledger that was looked at is as it should be",
        Exit.FAILED: "the store did not answer, or the tool failed",
        Exit.USAGE: "a plan, a URI, folders or files that cannot be used",
        Exit.FOUND: "ledgers or holds are not as they should be",
        Exit.UNDECIDABLE: "some could not be looked at: disks are missing, or bookies do not answer",
    },
    epilog="Example: bkmeta verify plan --metadata zk+hierarchical://zk1:2181/ledgers --sample all "
    "--disk bk1:3181=/mnt/bk1 --disk bk2:3181=/mnt/bk2",
)
@click.argument("plan", type=FOLDER)
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
    plan: Path,
    uri: str,
    sample: int | None,
    disks: dict[str, list[Path]],
    wire: bool,  # noqa: FBT001 - click's option
    **shared: Any,  # noqa: ANN401 - click's options
) -> None:
    """Read the ledgers of PLAN back: records from the store, entries through them from bookies or disks. Only reads.

    From disks, every entry is looked for where its bookie would serve it from: give every folder of a bookie, or the
    folder that they stand in. With --wire the running bookies are asked for it, without fencing and without recovery.
    Its digest is checked with the password that stands in the record.
    """
    from reconcile.plan.plan_reader import open_whole
    from reconcile.stores import open_store

    output = make_output(shared)
    asked = take_wire(shared, wire=wire)
    if wire and not is_typed("disks"):
        disks = {}
    if wire == bool(disks):
        raise click.UsageError("give either --wire, or the bookies' folders with --disk ID=DIR")
    dataset, _ = open_whole(plan)
    with ExitStack() as stack:
        opened = stack.enter_context(open_store(uri, EnvironmentAccess()))
        bookies: AskedCluster | dict[str, BookieDisks]
        if asked is not None:
            bookies = stack.enter_context(open_wire(opened, asked))
        else:
            bookies = stack.enter_context(open_disks_of(disks, output))
        found = read_back(dataset, opened.store, opened.root, bookies, sample, output)
    result = verified_result("verify", found, bookies, plan)
    sys.exit(output.show(result))


def read_back(
    dataset: "Dataset",
    store: "MetadataStore",
    root: str,
    bookies: "Cluster",
    sample: int | None,
    output: Output,
) -> "Verified":
    """Read ledgers of a plan back, and say how far it is."""
    from reconcile.check.verify import verify as run

    with output.progress("reading back", "ledgers") as told:
        return run(dataset, store, root, bookies, sample=sample, progress=throttle(told))
