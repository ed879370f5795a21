"""What every command of the program is: a click command that declares its exit codes."""

import inspect
import os
import re
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

import click

from reconcile.cli.incident import incident_option

TELEMETRY: Final = "bkmeta.telemetry"
"""In the `meta` of click's context: what records the command that runs, if its environment names a collector."""


class Exit(IntEnum):
    """How a command ended; what each means for a command stands with the command."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    FOUND = 3
    UNDECIDABLE = 4
    REFUSED = 5
    PARTLY = 6
    INTERRUPTED = 130
    TERMINATED = 143


class Command(click.Command):
    """A command with its exit codes; its help ends with them, and with an example that can be copied.

    Args:
        exits: what each code that the command can end with means; any command can be interrupted and terminated.
        not_of_incident: options that mean something else here than in an incident file, and take nothing of it.
        attributes: as click's, of which the epilog is ``Example: `` and a command line, and perhaps a paragraph more.
    """

    def __init__(
        self,
        *arguments: Any,  # noqa: ANN401 - click's
        exits: Mapping[Exit, str],
        not_of_incident: frozenset[str] = frozenset(),
        **attributes: Any,  # noqa: ANN401 - click's
    ) -> None:
        super().__init__(*arguments, **attributes)
        self.exits = exits
        incident = incident_option(self, not_of_incident)
        if incident is not None:
            self.params.append(incident)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's
        """Run the command; where the environment names a collector of OpenTelemetry's, its steps are recorded."""
        if not any(name.startswith("OTEL_") for name in os.environ):
            return super().invoke(ctx)
        try:
            from reconcile.cli.telemetry import record_command
        except ImportError:  # the extra is not installed
            return super().invoke(ctx)
        from reconcile.cli.main import exit_code_of

        with record_command(ctx.command_path.partition(" ")[2], ctx.meta) as codes:
            try:
                result = super().invoke(ctx)
            except SystemExit as ended:
                codes.append(ended.code if isinstance(ended.code, int) else Exit.DONE)
                raise
            except BaseException as error:
                codes.append(exit_code_of(error))
                raise
            codes.append(Exit.DONE)
            return result

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the exit codes, and the example with each of its lines but the last continued for a shell."""
        del ctx
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code.value), text) for code, text in self.exits.items()])
        example, _, more = inspect.cleandoc(self.epilog or "").partition("\n\n")
        formatter.write_paragraph()
        formatter.write(" \\\n    ".join(_lines(example, formatter.width - 6)) + "\n")
        if more:
            formatter.write_paragraph()
            formatter.write_text(more)


def _lines(line: str, width: int) -> list[str]:
    """Cut a command line between its options."""
    lines: list[str] = []
    for part in re.split(r" (?=--)", line):
        if lines and len(lines[-1]) + 1 + len(part) <= width:
            lines[-1] += f" {part}"
        else:
            lines.append(part)
    return lines
