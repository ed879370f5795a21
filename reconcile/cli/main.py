"""The program: its commands, loaded when they are run, and the one place where errors become messages and codes."""

import importlib
import importlib.util
import logging
import os
import shlex
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final

import click

from backends.errors import AccessDeniedError, BackendError, StoreFullError, UnavailableError, UnsupportedStoreError
from reconcile.cli.access import AUTH_FILE_VARIABLE, AUTH_VARIABLE
from reconcile.cli.command import Exit
from reconcile.cli.log_formats import DEBUG_VARIABLE, LogFormat, is_log_for_programs, set_log_format, start_log
from reconcile.cli.output import Output
from reconcile.cli.wording.remedies import describe_error, describe_error_remedy
from reconcile.errors import ReconcileError
from recovery import __version__
from recovery.codecs.store_kind import KINDS, ZOOKEEPER
from recovery.errors import DiskError, ProcessLostError, RecoveryError, SparkError

COMMANDS: Final = {
    "preflight": "The first ten minutes, and whether data can be deleted now.",
    "rescue": "Lead through a loss of metadata: one command, and the questions that matter.",
    "freeze": "Make bookies' listings fail, so that none of them deletes.",
    "thaw": "Give the bookies back what freeze took.",
    "collect": "Read one bookie's disks into an inventory.",
    "capture": "Read a metadata store into a catalog.",
    "backup": "Follow a store's metadata change by change, and restore any moment of it.",
    "recover": "Turn inventories into a plan that brings lost metadata back.",
    "undelete": "Bring deleted ledgers back, from the store's history alone.",
    "explain": "Say everything that is known of one ledger.",
    "plan": "Read a plan, compare two, cut one into waves, or change one.",
    "rehearse": "Apply a plan where it can do no harm, and read it back.",
    "apply": "Write what a plan proposes; overwrite nothing else.",
    "undo": "Take back what an apply wrote, by its journal.",
    "audit": "Read journals: who wrote what to a store, and whether a journal was altered.",
    "verify": "Read the ledgers of a plan back from bookies' disks.",
    "export": "Write ledgers' entries from bookies' disks as files, whatever their records say.",
    "check-impact": "Say whether bookies or racks may be taken away.",
    "scrutinize": "Say whether bookies and metadata agree, ledger by ledger.",
    "scrutiny": "Compare two scrutinies: what is new, gone, changed.",
    "orphans": "Find ledgers that nothing references, data without a record, and deletes that bypassed bkmeta.",
    "drill": "Try what would come back if the store were lost now.",
    "delete": "Delete ledgers in two phases, by a certificate.",
    "tombstones": "List the tombstones of deletes, and remove those that are no longer needed.",
    "archive": "Copy ledgers' entries into an archive, read them from it, and mark what is archived.",
    "approve": "Sign that you approve a plan, a certificate, or what another command would do.",
    "certificate": "Check a certificate of deletes, without a store.",
    "serve": "Run scrutinies, captures and drills by a schedule, and answer requests.",
    "ask": "Ask a service that runs.",
    "conf": "Give out the examples of configuration that come with the program.",
    "inspect": "Read one file of a bookie by itself, or say what each byte is.",
    "doctor": "Say whether this installation is complete.",
}
"""Command → its line in --help (so that --help loads none); its module has its name, with _ for -."""

_NAME: Final = "bkmeta"
_LOG: Final = logging.getLogger(__name__)
_ROOM: Final = "reconcile.cli.commands"

_FAILURES: Final = (DiskError, ProcessLostError, SparkError)
"""Errors of `recovery` that are nobody's input."""
_REMEDIES: Final = (
    (StoreFullError, "then run it again"),
    (UnavailableError, "see that its servers run, and that the address is right"),
    (
        AccessDeniedError,
        f"name who may: {AUTH_VARIABLE}=user:password or {AUTH_FILE_VARIABLE}=FILE, "
        + ", ".join(f"on {kind.name} {kind.auth_variable}" for kind in KINDS if kind is not ZOOKEEPER),
    ),
)


class _Commands(click.Group):
    """A group that imports a command when it is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if _is_there(name)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS or not _is_there(cmd_name):
            return None
        name = cmd_name.replace("-", "_")
        command = getattr(importlib.import_module(f"{_ROOM}.{name}"), name)
        if not isinstance(command, click.Command):
            raise TypeError(f"{_ROOM}.{cmd_name} has no command of that name")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])


def _is_there(command: str) -> bool:
    """Whether this program has a command: one that is packed for bookies' hosts has a few."""
    return importlib.util.find_spec(f"{_ROOM}.{command.replace('-', '_')}") is not None


def _print_completion(context: click.Context, _option: click.Parameter, shell: str | None) -> None:
    """Print the script that completes commands and options in a shell, and end."""
    from click import shell_completion

    completer = shell_completion.get_completion_class(shell or "")
    if completer is not None:
        click.echo(completer(program, {}, _NAME, f"_{_NAME.upper()}_COMPLETE").source())
        context.exit()


def _write_man_pages(context: click.Context, _option: click.Parameter, folder: str | None) -> None:
    """Write the manual's pages, and end."""
    if folder is None:
        return
    from reconcile.cli.man_pages import write_man_pages

    try:
        number = write_man_pages(program, Path(folder))
    except OSError as error:
        problem = f"{error.filename}: {error.strerror}; name a folder that can be written"
        raise click.BadParameter(problem, param_hint="--man-pages") from error
    click.echo(f"{number} pages in {folder}: man -l {shlex.quote(f'{folder}/{_NAME}.1')}")
    context.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name=_NAME)
@click.option(
    "--log-format",
    type=click.Choice(LogFormat, case_sensitive=False),
    help="Messages as lines on stderr, as JSON on stderr, or in systemd's journal.  [default: text]",
)
@click.option(
    "--completion",
    type=click.Choice(["bash", "zsh", "fish"]),
    is_eager=True,
    expose_value=False,
    callback=_print_completion,
    help="Print the script that completes commands and options in this shell.",
)
@click.option(
    "--man-pages",
    metavar="DIR",
    is_eager=True,
    expose_value=False,
    callback=_write_man_pages,
    help="Write a page for `man` of each command into DIR.",
)
def program(log_format: LogFormat | None) -> None:
    """Bring lost Apache BookKeeper metadata back, and prove that metadata and bookies agree.

    Every command is read-only unless its help says that it writes; none ever writes to a bookie's disks.
    """
    if log_format is not None:
        set_log_format(log_format)


class _TerminatedError(BaseException):
    """SIGTERM arrived; like KeyboardInterrupt it must pass every handler of ordinary errors."""


_asked_to_stop: list[type[BaseException]] = []
"""By which signals; a library may swallow what a handler raises, and then fail for what the signal did to it."""


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    _asked_to_stop.append(_TerminatedError)
    raise _TerminatedError


def _interrupt(number: int, frame: FrameType | None) -> None:
    _asked_to_stop.append(KeyboardInterrupt)
    signal.default_int_handler(number, frame)


def exit_code_of(error: BaseException) -> int:
    """Return the exit code that an error stands for (docs/operations/exit-codes.md)."""
    match error:
        case ReconcileError() | click.ClickException():
            return int(error.exit_code)
        case UnsupportedStoreError():
            return Exit.USAGE
        case RecoveryError():
            return Exit.FAILED if isinstance(error, _FAILURES) else Exit.USAGE
        case KeyboardInterrupt() | click.Abort():
            return Exit.INTERRUPTED
        case _TerminatedError():
            return Exit.TERMINATED
        case _:
            return Exit.FAILED


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program and end the process with its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        _asked_to_stop.clear()
        signal.signal(signal.SIGINT, _interrupt)
        signal.signal(signal.SIGTERM, _terminate)
        start_log(as_json="--json" in given)
        code = program.main(given, prog_name=_NAME, standalone_mode=False)
    except (Exception, KeyboardInterrupt, _TerminatedError) as error:  # noqa: BLE001 - every error ends here
        code = _end_by(error, given)
        _let_go_of_stdout()
    sys.exit(code if isinstance(code, int) else Exit.DONE)


def _let_go_of_stdout() -> None:
    """Drop output that cannot be written, or Python would try again at exit and end with a code of its own."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end_by(error: BaseException, given: Sequence[str]) -> int:
    if isinstance(error, click.Abort) and error.__cause__ is not None:
        error = error.__cause__
    if _asked_to_stop:
        error = _to_stop(error)
    code = exit_code_of(error)
    as_json = "--json" in given
    if code in (Exit.INTERRUPTED, Exit.TERMINATED):
        # Anybody who asks twice wants no more words.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if os.environ.get(DEBUG_VARIABLE):
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    match error:
        case BrokenPipeError():
            # Anybody who read our output went away; what they read was right.
            return code
        case click.UsageError() if not as_json and not is_log_for_programs():
            error.show()
            return code
        case click.ClickException():
            message = error.format_message()
        case RecoveryError() | ReconcileError() | BackendError():
            text = describe_error(error) if isinstance(error, ReconcileError) else str(error)
            message = "; ".join([text, *[remedy for kind, remedy in _REMEDIES if isinstance(error, kind)][:1]])
        case KeyboardInterrupt() | click.Abort() | _TerminatedError():
            message = "; ".join(["stopped before the end", *getattr(error, "__notes__", ())])
        case _:
            message = "; ".join([_unforeseen(error, given), *getattr(error, "__notes__", ())])
    following = describe_error_remedy(error) or next(
        (remedy for kind, remedy in _REMEDIES if isinstance(error, kind)), ""
    )
    if is_log_for_programs():
        _LOG.error("%s", message)
        if not as_json:
            return code
    try:
        Output.failure(message, code, as_json=as_json, following=following)
    except OSError:
        # An object that cannot be printed is said at least.
        Output.failure(message, code, as_json=False)
    return code


def _to_stop(error: BaseException) -> BaseException:
    """Return the error of the signal that stopped the program, whatever else failed by then, with what to do next."""
    if isinstance(error, (KeyboardInterrupt, click.Abort, _TerminatedError)):
        return error
    stop = _asked_to_stop[0]()
    for note in getattr(error, "__notes__", ()):
        stop.add_note(note)
    return stop.with_traceback(error.__traceback__)


def _unforeseen(error: BaseException, given: Sequence[str]) -> str:
    """Keep what is needed to mend the program, and say where; what an error says may be secret, so it stays there."""
    named = type(error).__name__
    if isinstance(error, OSError):
        named = f"{error.filename or named}: {error.strerror or 'the system refused'}"
    try:
        kept, path = tempfile.mkstemp(prefix="bkmeta-error-", suffix=".txt")
        with os.fdopen(kept, "w", encoding="utf-8") as file:
            file.write(f"bkmeta {__version__}, Python {sys.version}\n{shlex.join(['bkmeta', *given])}\n\n")
            file.writelines(traceback.format_exception(error))
    except OSError:
        where = f"set {DEBUG_VARIABLE}=1 to see where"
    else:
        where = f"where it happened is in {path}"
    if isinstance(error, OSError):
        return f"{named}; fix that and run it again; {where}"
    return f"a fault of this program ({named}); {where}: please report it"
