"""`backup list`: what a backup holds, and what can be restored."""

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.options import PLACE, csv_option, make_context, make_output, output_options, quote_command
from reconcile.cli.output import Result
from reconcile.words import count_noun
from recovery.place import DatasetPlace

_SHOWN: Final = 20


def show_time(ms: int) -> str:
    """Return a time of ms since 1970 for people."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@click.command(
    "list",
    cls=Command,
    exits={
        Exit.DONE: "it is shown; from its first base on there is no gap",
        Exit.USAGE: "a folder without a backup",
        Exit.FOUND: "there are gaps, or manifests that cannot be read",
        Exit.UNDECIDABLE: "there is no base yet: nothing can be restored",
    },
    epilog="Example: bkmeta backup list s3://backups/c1",
)
@click.argument("place", type=PLACE)
@csv_option
@output_options
def list_(place: DatasetPlace, **shared: Any) -> None:  # noqa: ANN401 - the shared options
    """List a backup's bases, segments and gaps, what can be restored, and the age of its end."""
    from reconcile.jobs.backup.status import read_status
    from reconcile.stores import name_backup

    output = make_output(shared)
    context = make_context(output)
    status = read_status(place, int(context.now().timestamp() * 1000))
    windows = [
        f"{window.first:#x} to {window.last:#x}, {show_time(window.from_ms)} to {show_time(window.until_ms)}"
        for window in status.windows
    ]
    bases = [f"base {base.txn:#x}, {show_time(base.until_ms)}: {base.ledgers} ledgers" for base in status.bases]
    gaps = [f"gap {g.after:#x} to {g.until:#x}, {show_time(g.until_ms)}: {g.why}" for g in status.gaps]
    code = Exit.DONE if status.windows else Exit.UNDECIDABLE
    if status.windows and (status.gaps or status.damaged):
        code = Exit.FOUND
    verdict = "there is no base yet: nothing can be restored"
    if status.windows:
        verdict = f"any transaction of {' and '.join(windows[-_SHOWN:])} can be restored"
    age = "" if status.rpo_s is None else f"the end is {status.rpo_s:.1f} s old"
    result = Result(
        "backup-list",
        verdict,
        code,
        counts={
            "bases": len(status.bases),
            "segments": len(status.segments),
            "gaps": len(status.gaps),
            "changes": status.changes,
            "bytes": status.bytes,
        },
        coverage={"through": status.through, "until_ms": status.until_ms, "rpo_s": status.rpo_s},
        details=[
            f"{age}; {count_noun(status.changes, 'change')} in {count_noun(len(status.segments), 'segment')}",
            *bases[-_SHOWN:],
            *gaps[-_SHOWN:],
            *(f"manifest {number} cannot be read; an earlier one is shown" for number in status.damaged),
        ],
        following=quote_command("bkmeta", "recover", "--snapshot", name_backup(place)) if status.windows else "",
        facts={
            "store": status.uri,
            "means": status.means,
            "encryption": status.encryption,
            "hash": status.hash,
            "windows": [asdict(window) for window in status.windows],
            "bases": [asdict(base) for base in status.bases],
            "gaps": [asdict(gap) for gap in status.gaps],
        },
        rows="bases",
        columns=("folder", "txn", "until_ms", "digest", "sha256", "hash", "ledgers", "seal"),
    )
    sys.exit(output.show(result))
