"""Options of asking bookies, as they come to whoever asks."""

from typing import Any

import click
from click.testing import CliRunner

from backends.bookie.client import BookieOptions
from reconcile.cli.option_groups.wire import take_wire, wire_options


def test_what_is_typed_is_how_bookies_are_asked() -> None:
    """Each number comes to its place; without any it is what the client itself has."""
    taken: list[BookieOptions] = []

    @click.command()
    @wire_options
    def ask(**values: Any) -> None:
        wire = take_wire(values, wire=True)
        assert wire is not None
        taken.append(wire.options)

    runner = CliRunner()
    words = ["--deadline", "2", "--patience", "0.5", "--max-requests-s", "30", "--max-total-requests-s", "40"]
    for line in ([], words):
        done = runner.invoke(ask, line)
        assert done.exit_code == 0, done.output
    assert taken == [BookieOptions(), BookieOptions(deadline_s=2, patience_s=0.5, per_bookie=30, in_total=40)]
    assert runner.invoke(ask, ["--patience", "0"]).exit_code == 2
