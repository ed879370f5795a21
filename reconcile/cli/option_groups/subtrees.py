"""`--subtree` and `--pulsar`: nodes of upper layers that are captured, or brought back, with the ledgers."""

from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

if TYPE_CHECKING:
    from recovery.capture.subtrees import SubtreeChoice

P = ParamSpec("P")
R = TypeVar("R")


def subtree_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add --subtree and --pulsar."""
    command = click.option(
        "--pulsar",
        is_flag=True,
        help="All that Pulsar keeps beside the ledgers root: tenants, namespaces, topics, subscriptions, schemas, "
        "racks, counters, functions. Not load reports, leaders and owners of bundles.",
    )(command)
    return click.option(
        "--subtree",
        "subtrees",
        multiple=True,
        metavar="PATH",
        help="A node of an upper layer and all below it, without nodes of sessions: e.g. /managed-ledgers.",
    )(command)


def read_choice(subtrees: tuple[str, ...], *, pulsar: bool) -> "SubtreeChoice":
    """Return which subtrees somebody wants."""
    from recovery.capture.subtrees import SubtreeChoice

    return SubtreeChoice(subtrees, pulsar)
