"""`plan`: the commands that read plans, and make new ones of them; none touches a store."""

import click

from reconcile.cli.commands.plan.diff import diff
from reconcile.cli.commands.plan.edit import edit
from reconcile.cli.commands.plan.ledgers import ledgers
from reconcile.cli.commands.plan.show import show
from reconcile.cli.commands.plan.split import split


@click.group(epilog="Example: bkmeta plan show plan")
def plan() -> None:
    """Read a plan, list its ledgers, compare two, cut one into waves, or change one. No store is touched."""


for command in (show, ledgers, diff, split, edit):
    plan.add_command(command)
