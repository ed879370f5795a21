"""Approvals on the command line, and the policy of this host for a cluster whose store is lost.

What needs approval, and whose, is in the policy of the cluster, in its store (`bkmeta delete policy`). A store that was
lost has none: then the file counts that BKMETA_POLICY names, without that /etc/bkmeta/policy.json, if it is there.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from reconcile.cli.options import FILE
from recovery.errors import InputError

if TYPE_CHECKING:
    from reconcile.deletes.policy import DeletePolicy
    from reconcile.jobs.approvals import Approvals

R = TypeVar("R")

VARIABLE: Final = "BKMETA_POLICY"
"""Environment variable: the file that has the policy of a cluster whose store has none."""
DEFAULT_FILE: Final = Path("/etc/bkmeta/policy.json")


def approval_option(command: Callable[..., R]) -> Callable[..., R]:
    """Add --approval; `take_approvals` takes it out again."""
    return click.option(
        "--approval",
        "approvals",
        type=FILE,
        multiple=True,
        metavar="FILE",
        help="File that `bkmeta approve` wrote; give one for each person that the cluster's policy asks for.",
    )(command)


def take_approvals(values: dict[str, Any]) -> "Approvals":
    """Take the option of `approval_option` out of a command's arguments.

    Raises:
        InputError: the policy of this host cannot be used.
    """
    from reconcile.jobs.approvals import Approvals

    return Approvals(values.pop("approvals"), read_local_policy())


def carry_approvals(files: Iterable[Path]) -> list[str]:
    """Return the options as they were typed, for the next command."""
    return [word for path in files for word in ("--approval", str(path))]


def read_local_policy() -> "DeletePolicy | None":
    """Return the policy of this host; None: there is none.

    Raises:
        InputError: it cannot be used, or BKMETA_POLICY names a file that does not exist.
    """
    named = os.environ.get(VARIABLE)
    path = Path(named) if named else DEFAULT_FILE
    if not path.exists():
        if not named:
            return None
        raise InputError(str(path), "does not exist", f"correct {VARIABLE}, which names it")
    from reconcile.deletes.policy import read_policy_file

    return read_policy_file(path)
