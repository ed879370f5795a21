"""`archive`: entries copied into an archive and read from it, and the marks that say which ledgers are archived."""

import click

from reconcile.cli.commands.archive.marks import mark, show, unmark
from reconcile.cli.commands.archive.read import read
from reconcile.cli.commands.archive.run import run
from reconcile.cli.commands.archive.verify import verify


@click.group(epilog="Example: bkmeta archive show --metadata zk+hierarchical://zk1:2181/ledgers 123")
def archive() -> None:
    """Copy ledgers' entries into an archive, prove and read it, and mark the ledgers that are archived.

    Nothing is deleted by a mark, nor kept; a cluster's policy can forbid to delete a ledger without one.
    """


for command in (run, verify, read, mark, unmark, show):
    archive.add_command(command)
