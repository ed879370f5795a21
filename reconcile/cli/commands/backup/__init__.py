"""`backup`: a backup of metadata that follows the store, change by change."""

import click

from reconcile.cli.commands.backup.follow import follow
from reconcile.cli.commands.backup.list import list_
from reconcile.cli.commands.backup.observer import observer
from reconcile.cli.commands.backup.prune import prune
from reconcile.cli.commands.backup.verify import verify


@click.group(epilog="Example: bkmeta backup follow --metadata etcd://e1:2379/bk/c1 --to /backup/c1")
def backup() -> None:
    """Follow a store's metadata change by change; what is lost with the store is the last seconds.

    `backup:PLACE` is a store for every other command, at any point in time: --at.
    """


for command in (follow, list_, verify, prune, observer):
    backup.add_command(command)
