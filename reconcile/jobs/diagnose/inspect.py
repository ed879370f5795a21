"""Files of bookies: one read alone, or what each byte of many is."""

from collections.abc import Sequence
from pathlib import Path

from reconcile.jobs.context import Context, throttle
from recovery.inspect.bookie_file import look
from recovery.inspect.byte_account import Account, account_for
from recovery.inspect.file_notes import FileReport


def inspect_file(path: Path, context: Context) -> FileReport:
    """Read one file, or the folder of a database.

    Raises:
        InputError: it is missing, cannot be read, or is not a file of a bookie that is known.
    """
    with context.reporter.progress("reading", "files"):
        return look(path)


def account_files(paths: Sequence[Path], context: Context) -> Account:
    """Say what each byte is, of files and of all in and below folders.

    Raises:
        InputError: a path cannot be read.
    """
    with context.reporter.progress("accounting", "files") as progress:
        return account_for(list(paths), throttle(progress))
