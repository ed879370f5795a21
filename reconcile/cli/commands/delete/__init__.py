"""`delete`: deletes in two phases; until the purge each can be taken back."""

import click

from reconcile.cli.commands.delete.confirm import confirm
from reconcile.cli.commands.delete.policy import policy
from reconcile.cli.commands.delete.purge import purge
from reconcile.cli.commands.delete.request import request
from reconcile.cli.commands.delete.status import status
from reconcile.cli.commands.delete.undo import undo
from reconcile.cli.commands.delete.verify import verify


@click.group(epilog="Example: bkmeta delete status --metadata zk+hierarchical://zk1:2181/ledgers")
def delete() -> None:
    """Delete ledgers in two phases: request, verify, soak, verify again, purge by a certificate, confirm.

    Until the purge a delete can be taken back, and nothing was removed.
    """


for command in (request, verify, purge, confirm, undo, status, policy):
    delete.add_command(command)
