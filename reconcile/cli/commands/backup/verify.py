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
        Exit.DONE: "every file is as it was sealed",
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
    verified = verify_backup(place, at, make_context(output))
    hashed = f"{count_noun(verified.seals, 'seal')}, {count_noun(verified.bases, 'base')}"
    rebuilt = f"{count_noun(verified.rebuilt, 'base')} rebuilt, {count_noun(verified.gaps, 'gap')}"
    verdict = f"verified: {hashed}, {rebuilt}"
    if verified.problems:
        verdict = f"not what was sealed: {count_noun(len(verified.problems), 'problem')}"
    result = Result(
        "backup-verify",
        verdict,
        Exit.FOUND if verified.problems else Exit.DONE,
        counts={name: getattr(verified, name) for name in ("seals", "changes", "bases", "rebuilt", "keys", "gaps")},
        details=[
            *verified.problems[:_SHOWN],
            *([] if verified.at_keys is None else [f"{count_noun(verified.at_keys, 'key')} at {at}"]),
        ],
        following="" if not verified.problems else quote_command("bkmeta", "backup", "list", place),
        facts={"problems": verified.problems, "at_keys": verified.at_keys},
    )
    sys.exit(output.show(result))
