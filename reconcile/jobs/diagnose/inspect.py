"""What each byte of many files of bookies is; one file by itself is read by `recovery.inspect.bookie_file.look`."""

from collections.abc import Sequence
from pathlib import Path

from reconcile.jobs.context import Context, throttle
from recovery.inspect.account import Account, account_for


def account_files(paths: Sequence[Path], context: Context) -> Account:
    """Say what each byte is, of files and of all in and below folders.

    Raises:
        InputError: a path cannot be read.
    """
    with context.reporter.progress("accounting", "files") as progress:
        return account_for(list(paths), throttle(progress))
