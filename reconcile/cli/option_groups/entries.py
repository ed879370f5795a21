"""What `export` and `archive read` share: the formats that they give entries in."""

from collections.abc import Callable, Mapping
from typing import Final, ParamSpec, TypeVar

import click

from reconcile.words import count_noun

P = ParamSpec("P")
R = TypeVar("R")

FORMATS: Final = ("raw", "jsonl", "parquet", "pulsar")
"""`recovery.bookies.entry_files.EntryFormat`, for --help without the libraries that it needs."""


def format_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add --as."""
    return click.option(
        "--as",
        "form",
        type=click.Choice(FORMATS),
        default="jsonl",
        show_default=True,
        help="Format: JSON lines; entries as bookies store them, each after its size; a Parquet table; or the "
        "messages of Pulsar's topics, unpacked.",
    )(command)


def describe_messages(counts: Mapping[str, int]) -> list[str]:
    """Return the counts of Pulsar's messages, in words; empty where no messages were asked for."""
    if "messages" not in counts:
        return []
    lines = [count_noun(counts["messages"], "message")]
    if counts["encrypted"]:
        lines.append(
            f"{counts['encrypted']} of them encrypted: written as they are; their keys are needed to read them"
        )
    if counts["chunks"]:
        lines.append(
            f"{counts['chunks']} of them are parts of larger messages: join those of one uuid by their numbers"
        )
    if counts["not_messages"]:
        noun = count_noun(counts["not_messages"], "entry", "entries")
        lines.append(f"{noun} no message of Pulsar, and left out: --as jsonl has them")
    return lines
