"""The manual: a page for the program and one for each command, made of what `--help` is made of."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from reconcile.cli.command import Command
from recovery import __version__

_SECTION: Final = "1"
_EVERY: Final = ("130: it was interrupted", "143: it was asked to end")
"""Exit codes that each command has, and its help does not repeat."""


def walk_commands(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield a command and all below it, each with the words that it is called by."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            if (subcommands := command.get_command(context, name)) is not None:
                yield from walk_commands(f"{path} {name}", subcommands)


def write_man_pages(program: click.Group, folder: Path) -> int:
    """Write `bkmeta.1` and a page for each command into a folder; return how many.

    Raises:
        OSError: the folder cannot be made or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pages = dict(walk_commands("bkmeta", program))
    for path, command in pages.items():
        subcommands = [name for name in pages if name.rpartition(" ")[0] == path]
        (folder / f"{path.replace(' ', '-')}.{_SECTION}").write_text(make_man_page(path, command, subcommands))
    return len(pages)


def make_man_page(path: str, command: click.Command, subcommands: list[str]) -> str:
    """Return the page of a command, in the macros of `man`.

    Args:
        path: the words that it is called by.
        command: the command.
        subcommands: the words of the commands that it is the group of.
    """
    return "\n".join(_make_lines(path, command, subcommands)) + "\n"


def _make_lines(path: str, command: click.Command, subcommands: list[str]) -> Iterator[str]:
    context = click.Context(command, info_name=path)
    first, _, rest = inspect.cleandoc(command.help or "").partition("\n\n")
    yield f'.TH {_escape(path.replace(" ", "-").upper())} {_SECTION} "" "bkmeta {__version__}" "bkmeta"'
    # No word is cut and no line is spread: options are copied from here.
    yield from (".nh", ".ad l", ".SH NAME", f"{_escape(path.replace(' ', '-'))} \\- {_join(first)}", ".SH SYNOPSIS")
    yield f"\\fB{_escape(path)}\\fR {_escape(' '.join(command.collect_usage_pieces(context)))}"
    yield ".SH DESCRIPTION"
    for number, paragraph in enumerate([first, *filter(None, rest.split("\n\n"))]):
        yield from ([".PP"] if number else [])
        yield _join(paragraph)
    records = [record for parameter in command.get_params(context) if (record := parameter.get_help_record(context))]
    records = [(typed, text) for typed, text in records if text]
    if records:
        yield ".SH OPTIONS"
    for typed, text in records:
        yield from (".TP", f"\\fB{_escape(typed)}\\fR", _join(text))
    if subcommands:
        yield ".SH COMMANDS"
        context = click.Context(command)
        for name in subcommands:
            inner = command.get_command(context, name.rpartition(" ")[2]) if isinstance(command, click.Group) else None
            text = inspect.cleandoc((inner and inner.help) or "").partition("\n\n")[0]
            yield from (".TP", f"\\fB{_escape(name.replace(' ', '-'))}\\fR({_SECTION})", _join(text))
    if isinstance(command, Command):
        yield ".SH EXIT STATUS"
        for code, text in command.exits.items():
            yield from (".TP", f"\\fB{code.value}\\fR", _join(text))
        yield from (".PP", _join("; ".join(_EVERY) + "."))
    example, _, more = inspect.cleandoc(command.epilog or "").partition("\n\n")
    if example:
        yield from (".SH EXAMPLES", ".nf", _escape(example.removeprefix("Example: ")), ".fi")
    if more:
        yield from (".PP", _join(more))
    group = path.rpartition(" ")[0]
    if group:
        yield from (".SH SEE ALSO", f"\\fB{_escape(group.replace(' ', '-'))}\\fR({_SECTION})")


def _join(text: str) -> str:
    """Return a paragraph as one line."""
    return _escape(" ".join(text.replace("\b", " ").split()))


def _escape(text: str) -> str:
    """Return text that roff prints as it is: a hyphen is the one that is typed, no line is a macro, all is ASCII."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    text = "".join(sign if sign.isascii() else f"\\[u{ord(sign):04X}]" for sign in text)
    return f"\\&{text}" if text.startswith(".") else text
