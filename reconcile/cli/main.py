"""The program: its commands, loaded when they are run, and the one place where errors become messages and codes."""

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Final

import click

from backends.errors import BackendError, UnsupportedStoreError
from reconcile.cli.output import Output
from reconcile.errors import ReconcileError
from recovery import __version__
from recovery.errors import RecoveryError

COMMANDS: Final = {
    "preflight": ("reconcile.cli.preflight:preflight", "The first ten minutes, and whether data can be deleted now."),
    "freeze": ("reconcile.cli.freeze:freeze_command", "Make bookies' listings fail, so that none of them deletes."),
    "thaw": ("reconcile.cli.freeze:thaw_command", "Give the bookies back what freeze took."),
    "collect": ("reconcile.cli.collect:collect", "Read one bookie's disks into an inventory."),
    "capture": ("reconcile.cli.recover:capture", "Read a metadata store into a catalog."),
    "recover": ("reconcile.cli.recover:recover", "Turn inventories into a plan that brings lost metadata back."),
    "plan": ("reconcile.cli.plans:plan", "Read a plan, compare two, or cut one into waves."),
    "rehearse": ("reconcile.cli.verify:rehearse", "Apply a plan where it can do no harm, and read it back."),
    "apply": ("reconcile.cli.recover:apply", "Write what a plan proposes, and nothing over anything."),
    "verify": ("reconcile.cli.verify:verify", "Read the ledgers of a plan back from bookies' disks."),
    "inspect": ("reconcile.cli.tools:inspect", "Read one file of a bookie by itself."),
    "doctor": ("reconcile.cli.tools:doctor", "Say whether this installation is complete."),
}
"""Command → where it is, and its line in --help (so that --help loads none of them)."""

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
EXIT_TERMINATED: Final = 143


class _Commands(click.Group):
    """A group that imports a command when it is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{module}.{attribute} is not a command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="bkmeta")
def program() -> None:
    """Bring lost Apache BookKeeper metadata back, and prove that metadata and bookies agree.

    Every command is read-only unless its help says that it writes; none ever writes to a bookie's disks.
    """


class _TerminatedError(BaseException):
    """SIGTERM arrived; like KeyboardInterrupt it must pass every handler of ordinary errors."""


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    raise _TerminatedError


def exit_code_of(error: BaseException) -> int:
    """Return the exit code that an error stands for (docs/operations/exit-codes.md)."""
    if isinstance(error, ReconcileError):
        return int(error.exit_code)
    if isinstance(error, RecoveryError | UnsupportedStoreError):
        return EXIT_USAGE
    if isinstance(error, BackendError):
        return EXIT_FAILED
    if isinstance(error, click.ClickException):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return EXIT_INTERRUPTED
    if isinstance(error, _TerminatedError):
        return EXIT_TERMINATED
    return EXIT_FAILED


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program and end the process with its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        code = program.main(given, prog_name="bkmeta", standalone_mode=False)
    except (RecoveryError, ReconcileError, BackendError) as error:
        code = exit_code_of(error)
        Output.failure(str(error), code, as_json="--json" in given)
    except click.ClickException as error:
        code = error.exit_code
        if "--json" in given:
            Output.failure(error.format_message(), code, as_json=True)
        else:
            error.show()
    except (KeyboardInterrupt, click.Abort, _TerminatedError) as error:
        code = exit_code_of(error)
        Output.failure("stopped before the end; nothing that was finished is lost", code, as_json="--json" in given)
    except BrokenPipeError:
        # Whoever read our output went away; what they read was right.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_FAILED
    sys.exit(code if isinstance(code, int) else 0)
