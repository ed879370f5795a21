"""`backup follow`: every change of a store into a backup, as it happens."""

import re
import signal
import sys
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.option_groups.subtrees import read_choice, subtree_options
from reconcile.cli.options import PLACE, Duration, make_context, make_output, output_options, quote_command
from reconcile.cli.output import Result
from reconcile.words import count_noun
from recovery.place import DatasetPlace

if TYPE_CHECKING:
    from reconcile.jobs.backup.follow import FollowStatus

_SIZE: Final = re.compile(r"([0-9]{1,6})(KiB|MiB)")
_UNITS: Final = {"KiB": 1 << 10, "MiB": 1 << 20}
_SAID_EVERY_S: Final = 60.0
_LONGEST_SEAL: Final = timedelta(hours=1)


class _SealAfter(click.ParamType[tuple[timedelta, int]]):
    """A duration, a size, or both with a bar between them."""

    name = "seal"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[timedelta, int]:
        """Return after how long, and after how many bytes, changes are sealed."""
        if isinstance(value, tuple):
            return value
        duration, size = timedelta(seconds=5), 1 << 20
        for part in str(value).split("|"):
            match = _SIZE.fullmatch(part)
            if match is not None:
                size = max(1, int(match[1])) * _UNITS[match[2]]
                continue
            duration = Duration().convert(part, param, ctx)
            if not timedelta(0) < duration <= _LONGEST_SEAL:
                self.fail(f"{part} is not from 1s to 1h", param, ctx)
        return duration, size


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "it was stopped as you asked; all that was received is sealed",
        Exit.FAILED: "the disk is full, or the store did not answer before there was a base",
        Exit.USAGE: "a URI, a folder or a recipient that cannot be used, or another follower writes the backup",
    },
    epilog="Example: bkmeta backup follow --metadata etcd://e1:2379/bk/c1 --to s3://backups/c1 --base-every 24h",
)
@click.option("--metadata", "uri", required=True, metavar="URI", help="The store, named as in bk_server.conf.")
@click.option("--to", "place", type=PLACE, required=True, help="Folder of the backup; it will hold passwords.")
@click.option(
    "--logs",
    multiple=True,
    metavar="DIR",
    help="Folder of a ZooKeeper server's logs and snapshots, read in place. Repeat the option for each folder.",
)
@subtree_options
@click.option(
    "--seal-after",
    type=_SealAfter(),
    default="5s|1MiB",
    show_default=True,
    metavar="DURATION|SIZE",
    help="Seal changes after so long, or as soon as there are so many bytes of them.",
)
@click.option(
    "--base-every",
    type=Duration(),
    default="24h",
    show_default=True,
    help="Time between two captures of the whole store.",
)
@click.option(
    "--keep",
    type=Duration(),
    help="How far back every moment can be restored. Each new base removes what is older. [default: nothing is "
    "removed]",
)
@click.option(
    "--encrypt-to",
    metavar="age1…|gpg:KEY",
    help="Encrypt all files for this recipient, by the system's age or gpg. [default: mode 0600, not encrypted]",
)
@output_options
def follow(
    uri: str,
    place: DatasetPlace,
    logs: tuple[str, ...],
    subtrees: tuple[str, ...],
    seal_after: tuple[timedelta, int],
    base_every: timedelta,
    keep: timedelta | None,
    encrypt_to: str | None,
    *,
    pulsar: bool,
    **shared: Any,  # noqa: ANN401 - the shared options
) -> None:
    """Follow a store: a base first, then every change, sealed every few seconds, until you stop it.

    An existing backup is continued. Changes that could not be seen become a gap with both ends, and a new base. The
    store is only read.
    """
    from reconcile.jobs.backup.follow import FollowRequest, follow_store
    from recovery.backup.encryption import Recipient

    output = make_output(shared)
    context = make_context(output)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: ended.set())
    request = FollowRequest(
        uri=uri,
        place=place,
        logs=logs,
        subtrees=read_choice(subtrees, pulsar=pulsar),
        seal_after=seal_after[0],
        seal_bytes=seal_after[1],
        base_every=base_every,
        keep=keep,
        recipient=None if encrypt_to is None else Recipient.parse(encrypt_to),
    )
    said_at = 0.0

    def report(status: "FollowStatus") -> None:
        nonlocal said_at
        if time.monotonic() - said_at >= _SAID_EVERY_S or status.seals + status.bases == 1:
            said_at = time.monotonic()
            rpo_s = status.measure_rpo_s(int(context.now().timestamp() * 1000))
            counts = f"{count_noun(status.changes, 'change')}, {count_noun(status.bases, 'base')}"
            click.echo(f"sealed through {status.through:#x}; RPO {rpo_s:.1f} s; {counts}", err=True)

    status = follow_store(request, context, ended, report)
    rpo_s = status.measure_rpo_s(int(context.now().timestamp() * 1000))
    result = Result(
        "backup-follow",
        f"followed through transaction {status.through:#x}: {count_noun(status.changes, 'change')} sealed",
        Exit.DONE,
        counts={"changes": status.changes, "seals": status.seals, "bases": status.bases, "gaps": status.gaps},
        coverage={"through": status.through, "until_ms": status.until_ms, "rpo_s": rpo_s, "gap": status.gap},
        following=quote_command("bkmeta", "backup", "verify", place),
        facts={"to": str(place)},
    )
    sys.exit(output.show(result))
