"""`scrutiny`: the commands that read scrutinies; none asks a store or a bookie."""

import click

from reconcile.cli.commands.scrutiny.diff import diff


@click.group(epilog="Example: bkmeta scrutiny diff run-monday run-tuesday")
def scrutiny() -> None:
    """Read scrutinies that `scrutinize --out RUN` wrote. No store and no bookie is asked."""


scrutiny.add_command(diff)
