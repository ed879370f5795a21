"""`backup verify`: every hash, the chain, and each base held against what it was made of."""

import sys
from typing import Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.options import PLACE, make_context, make_output, output_options, quote_command
from reconcile.cli.output import Result
from reconcile.words import count_noun
from recovery.place import DatasetPlace

_SHOWN: Final = 20


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "all of it is what was sealed",
        Exit.USAGE: "a folder without a backup, a point that it does not reach, or a key that is not here",
        Exit.FOUND: "files are missing or altered, or a base is not what the changes before it make",
    },
    epilog="Example: bkmeta backup verify s3://backups/c1 --at 2026-05-31T12:00:00Z",
)
@click.argument("place", type=PLACE)
@click.option("--at", metavar="TIME|TRANSACTION|before:SESSION", help="Restore this point, too, and count its keys.")
@output_options
def verify(place: DatasetPlace, at: str | None, **shared: Any) -> None:  # noqa: ANN401 - the shared options
    """Compute every hash of a backup again, and rebuild each base from the one before it and the changes between.

    Memory does not grow with the backup. Nothing is written.
    """
    from reconcile.jobs.backup.verify import verify_backup

    output = make_output(shared)
    found = verify_backup(place, at, make_context(output))
    made = f"{count_noun(found.seals, 'seal')}, {count_noun(found.bases, 'base')}, {count_noun(found.rebuilt, 'base')}"
    verdict = f"verified: {made} rebuilt, {count_noun(found.gaps, 'gap')}"
    if found.problems:
        verdict = f"not what was sealed: {count_noun(len(found.problems), 'problem')}"
    result = Result(
        "backup-verify",
        verdict,
        Exit.FOUND if found.problems else Exit.DONE,
        counts={name: getattr(found, name) for name in ("seals", "changes", "bases", "rebuilt", "keys", "gaps")},
        details=[
            *found.problems[:_SHOWN],
            *([] if found.at_keys is None else [f"{count_noun(found.at_keys, 'key')} at {at}"]),
        ],
        following="" if not found.problems else quote_command("bkmeta", "backup", "list", place),
        facts={"problems": found.problems, "at_keys": found.at_keys},
    )
    sys.exit(output.show(result))
