"""`backup prune`: a backup without what is older than wanted."""

import sys
from datetime import timedelta
from typing import Any

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.options import PLACE, Duration, make_context, make_output, output_options, quote_command
from reconcile.cli.output import Result
from reconcile.words import count_noun
from recovery.place import DatasetPlace


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "what is older is removed; perhaps nothing is older",
        Exit.FAILED: "the disk is full",
        Exit.USAGE: "a folder without a backup, or a follower wrote at the same time: run it again",
    },
    epilog="Example: bkmeta backup prune s3://backups/c1 --keep 30d --keep-bases 2",
)
@click.argument("place", type=PLACE)
@click.option("--keep", type=Duration(), required=True, help="How far back every moment can still be restored.")
@click.option(
    "--keep-bases",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of bases that stay, however old they are.",
)
@output_options
def prune(place: DatasetPlace, keep: timedelta, keep_bases: int, **shared: Any) -> None:  # noqa: ANN401 - the shared
    """Remove what is older than --keep, up to the last base before that; and files that no manifest names.

    WRITES to the backup's folder. What a reader may still read goes at a later prune.
    """
    from reconcile.jobs.backup.prune import prune_backup

    output = make_output(shared)
    pruned = prune_backup(place, keep, keep_bases, make_context(output))
    gone = f"{count_noun(pruned.links, 'link')} of the chain and {count_noun(pruned.strays, 'stray file')} removed"
    result = Result(
        "backup-prune",
        gone if pruned.first is None else f"{gone}; it begins at transaction {pruned.first:#x}",
        Exit.DONE,
        counts={"links": pruned.links, "strays": pruned.strays},
        coverage={"first": pruned.first},
        following=quote_command("bkmeta", "backup", "verify", place),
    )
    sys.exit(output.show(result))
